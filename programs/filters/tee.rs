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
        let (mut lines, mut copies) = (text::open(os, &[]).await?, Vec::new());
        for name in &self.files {
            let copy = os.disk().open(os, name, Mode::Append).await;
            let copy = copy.map_err(|error| lines.missing.push(error.to_string()));
            if let (Ok(copy), false) = (&copy, self.append) {
                copy.truncate(os, 0).await?;
            }
            copies.extend(copy);
        }
        while let Some(line) = lines.next(os).await? {
            write!(os, "{line}");
            for copy in &copies {
                copy.append(os, line.as_bytes()).await?;
            }
        }
        Ok(lines.end()?)
    }
}
