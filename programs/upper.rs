use std::error::Error;

use trapline::Os;
use trapline_cli::Program;

/// Prints the lines of standard input in capitals
#[derive(clap::Args)]
pub(crate) struct Upper {}

impl Program for Upper {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        while let Some(line) = os.read_line().await? {
            writeln!(os, "{}", line.to_uppercase());
        }
        Ok(())
    }
}
