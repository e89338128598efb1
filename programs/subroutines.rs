use std::error::Error;

use trapline::{Os, Program};

/// A call chain whose innermost function traps: subroutines are plain async functions
#[derive(clap::Args)]
pub(crate) struct Subroutines {}

impl Program for Subroutines {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let result = main_step(os).await;
        writeln!(os, "main_step {result}");
        Ok(())
    }
}

async fn main_step(os: &mut Os) -> u32 {
    let result = small_step(os).await;
    writeln!(os, "small_step {result}");
    result * 100
}

async fn small_step(os: &mut Os) -> u32 {
    os.yield_now().await;
    123
}
