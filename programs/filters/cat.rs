use std::error::Error;

use trapline::Os;
use trapline_cli::Program;

use super::text;

/// Prints files of the disk, or standard input
#[derive(clap::Args)]
pub(crate) struct Cat {
    /// The files, one after the other; `-` is standard input
    files: Vec<String>,
}

impl Program for Cat {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let mut lines = text::open(os, &self.files).await?;
        while let Some(line) = lines.next(os).await? {
            write!(os, "{line}");
        }
        Ok(lines.end()?)
    }
}
