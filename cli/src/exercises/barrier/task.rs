//! Two tasks, a and b, go through three phases.
//!
//! It prints the phases in the order in which they were done, such as `a1 b1 b2 a2 a3 b3`. No task does a
//! phase before both have done the one before it. Within a phase both orders happen. Only `Rules` is yours.

use std::error::Error;

use trapline::{Os, Shared};
use trapline_cli::Program;

/// Two tasks wait for each other after each phase
#[derive(clap::Args)]
pub(crate) struct Task {}

impl Program for Task {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let (log, rules) = (Shared::new(String::new()), Rules::new(os).await);
        let mut tasks = Vec::new();
        for task in 0..2 {
            let log = log.clone();
            let rules = rules.clone();
            let each = async move |os: &mut Os| phases(os, task, &log, &rules).await;
            tasks.push(os.spawn("task", each).await?);
        }
        for task in tasks {
            os.wait(task).await?;
        }
        writeln!(os, "{}", log.get());
        Ok(())
    }
}

async fn phases(os: &mut Os, task: usize, log: &Shared<String>, rules: &Rules) {
    for phase in 1..=3 {
        os.yield_now().await;
        let name = ["a", "b"][task];
        log.update(|log| *log += &format!("{name}{phase} "));
        if phase < 3 {
            rules.meet(os, task).await;
        }
    }
}

// Your part:

#[derive(Clone)]
struct Rules;

impl Rules {
    async fn new(_: &mut Os) -> Self {
        Self
    }

    async fn meet(&self, os: &mut Os, _task: usize) {
        os.yield_now().await;
    }
}
