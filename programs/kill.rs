//! `multitask.rs` explains which task prints "Task N terminated".

use std::error::Error;

use trapline::Os;
use trapline_cli::Program;

/// A task that starts another and kills it
#[derive(clap::Args)]
pub(crate) struct Kill {}

impl Program for Kill {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let me = os.get_tid().await;
        let child = os.spawn("foo", foo).await?;
        for _ in 0..5 {
            os.yield_now().await;
        }
        if os.kill(child).await {
            writeln!(os, "Task {child} terminated");
        }
        writeln!(os, "main done");
        writeln!(os, "Task {me} terminated");
        Ok(())
    }
}

async fn foo(os: &mut Os) -> ! {
    let tid = os.get_tid().await;
    loop {
        writeln!(os, "I'm foo {tid}");
        os.yield_now().await;
    }
}
