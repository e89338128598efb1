use std::error::Error;

use trapline::Os;
use trapline_cli::Program;

/// A task in two parts, with a trap between them
#[derive(clap::Args)]
pub(crate) struct Parts {}

impl Program for Parts {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        writeln!(os, "Part 1");
        os.yield_now().await;
        writeln!(os, "Part 2");
        Ok(())
    }
}
