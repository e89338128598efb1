//! `multitask.rs` explains which task prints "Task N terminated".

use std::error::Error;

use trapline::Os;
use trapline_cli::Program;

/// A task that starts another and waits for its end
#[derive(clap::Args)]
pub(crate) struct Wait {}

impl Program for Wait {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let me = os.get_tid().await;
        let child = os.spawn("foo", foo).await?;
        writeln!(os, "Waiting for child");
        os.wait(child).await?;
        writeln!(os, "Child done");
        writeln!(os, "Task {me} terminated");
        Ok(())
    }
}

async fn foo(os: &mut Os) {
    let tid = os.get_tid().await;
    for _ in 0..5 {
        writeln!(os, "I'm foo {tid}");
        os.yield_now().await;
    }
    writeln!(os, "Task {tid} terminated");
}
