//! A solution of `task.rs`.

use std::error::Error;

use trapline::{Os, Shared, sync::Mutex};
use trapline_cli::Program;

/// Four philosophers share four forks
#[derive(clap::Args)]
pub(crate) struct Solution {}

impl Program for Solution {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let (table, rules) = (Table::default(), Rules::new(os).await);
        let mut tasks = Vec::new();
        for task in 0..4 {
            let table = table.clone();
            let rules = rules.clone();
            let each =
                async move |os: &mut Os| rules.dine(os, &table, [task, (task + 1) % 4]).await;
            tasks.push(os.spawn("task", each).await?);
        }
        for task in tasks {
            os.wait(task).await?;
        }
        let (meals, most) = (table.meals.get(), table.most.get());
        writeln!(os, "{meals} meals, at most {most} at once");
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Table {
    in_use: [Shared<bool>; 4],
    eating: Shared<u32>,
    meals: Shared<u32>,
    most: Shared<u32>,
}

impl Table {
    async fn eat(&self, os: &mut Os, forks: [usize; 2]) {
        for fork in forks {
            assert!(!self.in_use[fork].get(), "another philosopher has the fork");
            self.in_use[fork].set(true);
        }
        self.eating.update(|eating| *eating += 1);
        let eating = self.eating.get();
        self.most.update(|most| *most = eating.max(*most));
        os.yield_now().await;
        self.eating.update(|eating| *eating -= 1);
        for fork in forks {
            self.in_use[fork].set(false);
        }
        self.meals.update(|meals| *meals += 1);
    }
}

/// Each takes the fork with the lower number first.
#[derive(Clone)]
struct Rules {
    locks: Vec<Mutex<()>>,
}

impl Rules {
    async fn new(os: &mut Os) -> Self {
        let mut locks = Vec::new();
        for _ in 0..4 {
            locks.push(Mutex::new(os, ()).await);
        }
        Self { locks }
    }

    async fn dine(&self, os: &mut Os, table: &Table, mut forks: [usize; 2]) {
        forks.sort_unstable();
        let _low = self.locks[forks[0]].lock(os).await;
        let _high = self.locks[forks[1]].lock(os).await;
        table.eat(os, forks).await;
    }
}
