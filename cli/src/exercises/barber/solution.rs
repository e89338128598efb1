//! A solution of `task.rs`.

use std::error::Error;

use trapline::{
    Os, Shared,
    sync::{Mutex, Semaphore},
};
use trapline_cli::Program;

/// Customers of a barber wait on one seat, or leave
#[derive(clap::Args)]
pub(crate) struct Solution {}

impl Program for Solution {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let (shop, rules) = (Shop::default(), Rules::new(os).await);
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let shop = shop.clone();
            let rules = rules.clone();
            let each = async move |os: &mut Os| rules.visit(os, &shop).await;
            tasks.push(os.spawn("task", each).await?);
        }
        for task in tasks {
            os.wait(task).await?;
        }
        writeln!(os, "{} of 3 customers are served", shop.served.get());
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Shop {
    is_cutting: Shared<bool>,
    served: Shared<u32>,
}

impl Shop {
    async fn cut(&self, os: &mut Os) {
        assert!(!self.is_cutting.get(), "two customers are in the chair");
        self.is_cutting.set(true);
        os.yield_now().await;
        self.is_cutting.set(false);
        self.served.update(|served| *served += 1);
    }
}

#[derive(Clone)]
struct Rules {
    seat: Semaphore,
    chair: Mutex<()>,
}

impl Rules {
    async fn new(os: &mut Os) -> Self {
        let (seat, chair) = (Semaphore::new(os, 1).await, Mutex::new(os, ()).await);
        Self { seat, chair }
    }

    async fn visit(&self, os: &mut Os, shop: &Shop) {
        let Some(sitting) = self.seat.try_acquire(os).await else {
            return;
        };
        let _chair = self.chair.lock(os).await;
        drop(sitting);
        shop.cut(os).await;
    }
}
