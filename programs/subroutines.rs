use std::{error::Error, time::Duration};

use trapline::Os;
use trapline_cli::Program;

/// A call chain whose innermost function sleeps: subroutines are plain async functions
#[derive(clap::Args)]
pub(crate) struct Subroutines {}

impl Program for Subroutines {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        writeln!(os, "TASK BEGIN...");
        writeln!(os, "     MainStep...");
        let result = main_step(os).await;
        writeln!(os, "     MainStep Finished with result {result}");
        writeln!(os, "TASK END");
        Ok(())
    }
}

async fn main_step(os: &mut Os) -> u32 {
    writeln!(os, "         SmallStep(s)...");
    let result = small_step(os).await;
    writeln!(os, "         SmallStep(s) Finished with result {result}");
    result * 100
}

async fn small_step(os: &mut Os) -> u32 {
    writeln!(os, "             I'm doing the small step...");
    os.sleep(Duration::from_secs(2)).await;
    writeln!(os, "             I'm finished");
    123
}
