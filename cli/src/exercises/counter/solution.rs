//! A solution of `task.rs`.

use std::error::Error;

use trapline::{Os, Shared, sync::Mutex};
use trapline_cli::Program;

/// Two tasks work, and each adds one to a sum
#[derive(clap::Args)]
pub(crate) struct Solution {}

impl Program for Solution {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let (desk, rules) = (Desk::default(), Rules::new(os).await);
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let desk = desk.clone();
            let rules = rules.clone();
            let each = async move |os: &mut Os| rules.count(os, &desk).await;
            tasks.push(os.spawn("task", each).await?);
        }
        for task in tasks {
            os.wait(task).await?;
        }
        let (sum, most) = (desk.sum.get(), desk.most.get());
        writeln!(os, "{sum}, at most {most} at work");
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Desk {
    sum: Shared<u32>,
    at_work: Shared<u32>,
    most: Shared<u32>,
}

impl Desk {
    async fn work(&self, os: &mut Os) {
        self.at_work.update(|at_work| *at_work += 1);
        let at_work = self.at_work.get();
        self.most.update(|most| *most = at_work.max(*most));
        os.yield_now().await;
        self.at_work.update(|at_work| *at_work -= 1);
    }

    async fn add(&self, os: &mut Os) {
        let read = self.sum.get();
        os.yield_now().await;
        self.sum.set(read + 1);
    }
}

#[derive(Clone)]
struct Rules {
    lock: Mutex<()>,
}

impl Rules {
    async fn new(os: &mut Os) -> Self {
        let lock = Mutex::new(os, ()).await;
        Self { lock }
    }

    async fn count(&self, os: &mut Os, desk: &Desk) {
        desk.work(os).await;
        let _guard = self.lock.lock(os).await;
        desk.add(os).await;
    }
}
