//! A solution of `task.rs`.

use std::error::Error;

use trapline::{Os, Queue, Shared};
use trapline_cli::Program;

/// Two tasks wait for each other after each phase
#[derive(clap::Args)]
pub(crate) struct Solution {}

impl Program for Solution {
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

/// Each sends the other a message, and waits for the other's.
#[derive(Clone)]
struct Rules {
    arrived: [Queue<()>; 2],
}

impl Rules {
    async fn new(os: &mut Os) -> Self {
        let arrived = [Queue::unbounded(os).await, Queue::unbounded(os).await];
        Self { arrived }
    }

    async fn meet(&self, os: &mut Os, task: usize) {
        let _ = self.arrived[task].put(os, ()).await;
        let _ = self.arrived[1 - task].get(os).await;
    }
}
