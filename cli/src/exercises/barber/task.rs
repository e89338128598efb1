//! A barber has a chair, and a waiting room with one seat. Three customers come.
//!
//! A customer sits down in the waiting room first, though the barber is free. One that finds the seat
//! taken leaves. It prints how many are served: 1, 2 or 3, and each of them happens. Two are never in the
//! chair at once. `Shop` stays as it is.

use std::error::Error;

use trapline::{Os, Shared};
use trapline_cli::Program;

/// Customers of a barber wait on one seat, or leave
#[derive(clap::Args)]
pub(crate) struct Task {}

impl Program for Task {
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

// Your part:

#[derive(Clone)]
struct Rules;

impl Rules {
    async fn new(_: &mut Os) -> Self {
        Self
    }

    async fn visit(&self, os: &mut Os, shop: &Shop) {
        shop.cut(os).await;
    }
}
