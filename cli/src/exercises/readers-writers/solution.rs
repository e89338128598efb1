//! A solution of `task.rs`.

use std::error::Error;

use trapline::{Os, Shared, sync::Semaphore};
use trapline_cli::Program;

/// Two readers and a writer share a page
#[derive(clap::Args)]
pub(crate) struct Solution {}

impl Program for Solution {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let (page, rules) = (Page::default(), Rules::new(os).await);
        let mut tasks = Vec::new();
        for task in 0..3 {
            let page = page.clone();
            let rules = rules.clone();
            let each = async move |os: &mut Os| match task {
                2 => rules.write(os, &page).await,
                _ => rules.read(os, &page).await,
            };
            tasks.push(os.spawn("task", each).await?);
        }
        for task in tasks {
            os.wait(task).await?;
        }
        writeln!(os, "at most {} at once", page.most.get());
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Page {
    left: Shared<u32>,
    right: Shared<u32>,
    readers: Shared<u32>,
    most: Shared<u32>,
}

impl Page {
    async fn read(&self, os: &mut Os) {
        self.readers.update(|readers| *readers += 1);
        let readers = self.readers.get();
        self.most.update(|most| *most = readers.max(*most));
        let left = self.left.get();
        os.yield_now().await;
        let right = self.right.get();
        self.readers.update(|readers| *readers -= 1);
        writeln!(os, "{left} {right}");
    }

    async fn write(&self, os: &mut Os) {
        self.left.set(1);
        os.yield_now().await;
        self.right.set(1);
    }
}

/// A reader needs a permit, the writer all of them.
#[derive(Clone)]
struct Rules {
    permits: Semaphore,
}

impl Rules {
    async fn new(os: &mut Os) -> Self {
        let permits = Semaphore::new(os, 2).await;
        Self { permits }
    }

    async fn read(&self, os: &mut Os, page: &Page) {
        let _one = self.permits.acquire(os).await;
        page.read(os).await;
    }

    async fn write(&self, os: &mut Os, page: &Page) {
        let _all = self.permits.acquire_many(os, 2).await;
        page.write(os).await;
    }
}
