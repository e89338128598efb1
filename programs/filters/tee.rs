use std::error::Error;

use trapline::{Mode, Os};
use trapline_cli::Program;

use super::text;

/// Prints standard input, and writes it to files of the disk
#[derive(clap::Args)]
pub(crate) struct Tee {
    /// The files. What they have is lost
    files: Vec<String>,
    /// Append to the files
    #[arg(short, long)]
    append: bool,
}

impl Program for Tee {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let mut copies = Vec::new();
        for name in &self.files {
            let file = os.disk().open(os, name, Mode::Append).await?;
            if !self.append {
                file.truncate(os, 0).await?;
            }
            copies.push(file);
        }
        for mut text in text::open(os, &[]).await? {
            while let Some(line) = text.next(os).await? {
                write!(os, "{line}");
                for copy in &copies {
                    copy.append(os, line.as_bytes()).await?;
                }
            }
        }
        Ok(())
    }
}
