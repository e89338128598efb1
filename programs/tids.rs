//! `multitask.rs` explains which task prints "Task N terminated".

use std::error::Error;

use trapline::{Os, Tid};
use trapline_cli::Program;

/// Two tasks that ask for their own numbers
#[derive(clap::Args)]
pub(crate) struct Tids {}

impl Program for Tids {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let me = os.get_tid().await;
        let bar = async |os: &mut Os| {
            let me = os.get_tid().await;
            turns(os, "bar", me, 10).await;
        };
        os.spawn("bar", bar).await?;
        turns(os, "foo", me, 5).await;
        Ok(())
    }
}

async fn turns(os: &mut Os, name: &str, me: Tid, count: u32) {
    for _ in 0..count {
        writeln!(os, "I'm {name} {me}");
        os.yield_now().await;
    }
    writeln!(os, "Task {me} terminated");
}
