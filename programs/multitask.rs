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

async fn turns(os: &mut Os, name: &str, me: Tid, count: u32) {
    for _ in 0..count {
        writeln!(os, "I'm {name}");
        os.yield_now().await;
    }
    writeln!(os, "Task {me} terminated");
}
