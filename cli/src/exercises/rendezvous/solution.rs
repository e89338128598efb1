//! A solution of `task.rs`.

use std::error::Error;

use trapline::{Os, Queue, Shared};
use trapline_cli::Program;

/// Two tasks meet, and swap their numbers
#[derive(clap::Args)]
pub(crate) struct Solution {}

impl Program for Solution {
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

/// A queue for each, with room for its number.
#[derive(Clone)]
struct Rules {
    sent: [Queue<u32>; 2],
}

impl Rules {
    async fn new(os: &mut Os) -> Self {
        let sent = [Queue::bounded(os, 1).await, Queue::bounded(os, 1).await];
        Self { sent }
    }

    async fn swap(&self, os: &mut Os, task: usize, number: u32) -> u32 {
        let _ = self.sent[task].put(os, number).await;
        self.sent[1 - task].get(os).await.unwrap_or_default()
    }
}
