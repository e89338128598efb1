//! Two tasks, a and b, meet, and each gives the other its number.
//!
//! It prints a line such as `a is here, b is here, b has 10, a has 20`. No task has the other's number
//! before both are here. Either may come first, and either may have its number first: all four happen.

use std::error::Error;

use trapline::{Os, Queue, Shared};
use trapline_cli::Program;

/// Two tasks meet, and swap their numbers
#[derive(clap::Args)]
pub(crate) struct Task {}

impl Program for Task {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let (log, rules) = (Shared::new(Vec::new()), Rules::new(os).await);
        let mut tasks = Vec::new();
        for task in 0..2 {
            let log = log.clone();
            let rules = rules.clone();
            let each = async move |os: &mut Os| meet(os, task, &log, &rules).await;
            tasks.push(os.spawn("task", each).await?);
        }
        for task in tasks {
            os.wait(task).await?;
        }
        writeln!(os, "{}", log.get().join(", "));
        Ok(())
    }
}

async fn meet(os: &mut Os, task: usize, log: &Shared<Vec<String>>, rules: &Rules) {
    let name = ["a", "b"][task];
    os.yield_now().await;
    log.update(|log| log.push(format!("{name} is here")));
    let number = rules.swap(os, task, [10, 20][task]).await;
    os.yield_now().await;
    log.update(|log| log.push(format!("{name} has {number}")));
}

// Your part:

#[derive(Clone)]
struct Rules {
    sent: [Queue<u32>; 2],
}

impl Rules {
    async fn new(os: &mut Os) -> Self {
        let sent = [Queue::bounded(os, 0).await, Queue::bounded(os, 0).await];
        Self { sent }
    }

    async fn swap(&self, os: &mut Os, task: usize, number: u32) -> u32 {
        let _ = self.sent[task].put(os, number).await;
        self.sent[1 - task].get(os).await.unwrap_or_default()
    }
}
