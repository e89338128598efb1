//! The first steps of the course: tasks that take turns, start each other, and end.
//!
//! The course's kernel prints "Task N terminated" itself. This kernel prints nothing: each task
//! prints it as its last act. A task that kills another prints it for the victim.

use std::error::Error;

use trapline::{Os, Tid};
use trapline_cli::Program;

/// Two tasks that take turns
#[derive(clap::Args)]
pub(crate) struct Multitask {
    /// The number of foo's turns
    #[arg(long, value_name = "N", default_value_t = 10)]
    foo: u32,
    /// The number of bar's turns
    #[arg(long, value_name = "N", default_value_t = 10)]
    bar: u32,
}

impl Program for Multitask {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let me = os.get_tid().await;
        let bar = async move |os: &mut Os| {
            let me = os.get_tid().await;
            turns(os, "bar", me, self.bar).await;
        };
        os.spawn("bar", bar).await?;
        turns(os, "foo", me, self.foo).await;
        Ok(())
    }
}

/// Two tasks that ask for their own numbers
#[derive(clap::Args)]
pub(crate) struct Tids {}

impl Program for Tids {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let me = os.get_tid().await;
        let bar = async |os: &mut Os| {
            let me = os.get_tid().await;
            turns(os, &format!("bar {me}"), me, 10).await;
        };
        os.spawn("bar", bar).await?;
        turns(os, &format!("foo {me}"), me, 5).await;
        Ok(())
    }
}

/// A task that starts another and kills it
#[derive(clap::Args)]
pub(crate) struct Kill {}

impl Program for Kill {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let me = os.get_tid().await;
        let program = async |os: &mut Os| foo(os, u32::MAX).await;
        let child = os.spawn("foo", program).await?;
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

/// A task that starts another and waits for its end
#[derive(clap::Args)]
pub(crate) struct Wait {}

impl Program for Wait {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let me = os.get_tid().await;
        let program = async |os: &mut Os| foo(os, 5).await;
        let child = os.spawn("foo", program).await?;
        writeln!(os, "Waiting for child");
        os.wait(child).await?;
        writeln!(os, "Child done");
        writeln!(os, "Task {me} terminated");
        Ok(())
    }
}

async fn foo(os: &mut Os, count: u32) {
    let me = os.get_tid().await;
    turns(os, &format!("foo {me}"), me, count).await;
}

async fn turns(os: &mut Os, name: &str, me: Tid, count: u32) {
    for _ in 0..count {
        writeln!(os, "I'm {name}");
        os.yield_now().await;
    }
    writeln!(os, "Task {me} terminated");
}
