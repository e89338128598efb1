use std::error::Error;

use trapline::Os;
use trapline_cli::Program;

use super::text;

/// Counts the lines, words and bytes of files of the disk, or of standard input
#[derive(clap::Args)]
pub(crate) struct Wc {
    /// The files, which are counted together; `-` is standard input
    files: Vec<String>,
    /// Print only the number of lines
    #[arg(short, long)]
    lines: bool,
}

impl Program for Wc {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let (mut lines, mut words, mut bytes) = (0, 0, 0);
        let mut texts = text::open(os, &self.files).await?;
        while let Some(line) = texts.next(os).await? {
            lines += usize::from(line.ends_with('\n'));
            words += line.split_whitespace().count();
            bytes += line.len();
        }
        match self.lines {
            true => writeln!(os, "{lines}"),
            false => writeln!(os, "{lines} {words} {bytes}"),
        }
        Ok(texts.end()?)
    }
}
