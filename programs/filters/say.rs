use std::error::Error;

use trapline::Os;
use trapline_cli::Program;

/// Prints its arguments, as the `echo` of other systems (`echo` is a server here)
#[derive(clap::Args)]
pub(crate) struct Say {
    /// The words of the line
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Program for Say {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        writeln!(os, "{}", self.words.join(" "));
        Ok(())
    }
}
