use std::error::Error;

use trapline::Os;
use trapline_cli::Program;

/// Prints the names in a directory of the disk
#[derive(clap::Args)]
pub(crate) struct Ls {
    /// The directory; without it, the root
    #[arg(value_name = "DIR", default_value = ".")]
    name: String,
}

impl Program for Ls {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        for name in os.disk().list(os, &self.name).await? {
            writeln!(os, "{name}");
            os.yield_now().await;
        }
        Ok(())
    }
}
