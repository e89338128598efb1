use std::error::Error;

use trapline::Os;
use trapline_cli::Program;

use super::text;

/// Prints the lines that have a text in them; fails if there is none
#[derive(clap::Args)]
pub(crate) struct Grep {
    /// The text, as it is: no pattern
    text: String,
    /// The files of the disk; `-` and no file are standard input
    files: Vec<String>,
    /// Print the lines without the text
    #[arg(short = 'v', long)]
    invert: bool,
}

impl Program for Grep {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let mut found = false;
        let mut lines = text::open(os, &self.files).await?;
        while let Some(line) = lines.next(os).await? {
            let line = line.strip_suffix('\n').unwrap_or(&line);
            if line.contains(&self.text) != self.invert {
                found = true;
                writeln!(os, "{line}");
            }
        }
        lines.end()?;
        match found {
            true => Ok(()),
            false => Err("no line is found".into()),
        }
    }
}
