use std::error::Error;

use trapline::Os;
use trapline_cli::Program;

/// Prints a line again and again, until it is killed
#[derive(clap::Args)]
pub(crate) struct Yes {
    /// The line
    #[arg(default_value = "y")]
    text: Vec<String>,
}

impl Program for Yes {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let text = self.text.join(" ");
        loop {
            writeln!(os, "{text}");
            os.yield_now().await;
        }
    }
}
