use std::{error::Error, io::ErrorKind};

use trapline::Os;
use trapline_cli::Program;

/// Removes files and empty directories of the disk
#[derive(clap::Args)]
pub(crate) struct Rm {
    /// The files, one after the other, up to one that cannot be removed
    #[arg(required = true)]
    files: Vec<String>,
    /// Do not fail for a file that is not there
    #[arg(short, long)]
    force: bool,
}

impl Program for Rm {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        for name in &self.files {
            match os.disk().remove(os, name).await {
                Err(error) if error.kind() == ErrorKind::NotFound && self.force => {}
                removed => removed?,
            }
        }
        Ok(())
    }
}
