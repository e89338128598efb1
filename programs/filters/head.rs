use std::error::Error;

use trapline::Os;
use trapline_cli::Program;

use super::text;

/// Prints the first lines of files of the disk, or of standard input
#[derive(clap::Args)]
pub(crate) struct Head {
    /// The files, one after the other; `-` is standard input
    files: Vec<String>,
    /// How many lines of them all
    #[arg(short = 'n', long, value_name = "N", default_value = "10")]
    lines: u64,
}

impl Program for Head {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let mut left = self.lines;
        let mut lines = text::open(os, &self.files).await?;
        while left > 0
            && let Some(line) = lines.next(os).await?
        {
            write!(os, "{line}");
            left -= 1;
        }
        Ok(lines.end()?)
    }
}
