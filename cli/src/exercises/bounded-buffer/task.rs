//! A producer puts the items 1, 2 and 3 into a buffer with two slots, and a consumer takes them.
//!
//! It prints `[1, 2, 3], at most N in the buffer`, where N is 1 in some schedules and 2 in others. The
//! buffer never overflows, and nothing is taken from an empty one. `Slots` stays as it is.

use std::error::Error;

use trapline::{Os, Shared};
use trapline_cli::Program;

/// A producer and a consumer share a buffer with two slots
#[derive(clap::Args)]
pub(crate) struct Task {}

impl Program for Task {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let (slots, rules) = (Slots::default(), Rules::new(os).await);
        let (theirs, its) = (slots.clone(), rules.clone());
        let producer = async move |os: &mut Os| its.produce(os, &theirs).await;
        let producer = os.spawn("producer", producer).await?;
        let theirs = slots.clone();
        let consumer = async move |os: &mut Os| rules.consume(os, &theirs).await;
        let consumer = os.spawn("consumer", consumer).await?;
        os.wait(producer).await?;
        os.wait(consumer).await?;
        let (taken, most) = (slots.taken.get(), slots.most.get());
        writeln!(os, "{taken:?}, at most {most} in the buffer");
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Slots {
    items: Shared<Vec<u32>>,
    taken: Shared<Vec<u32>>,
    most: Shared<usize>,
}

impl Slots {
    fn put(&self, item: u32) {
        self.items.update(|items| items.push(item));
        let len = self.items.with(Vec::len);
        assert!(len <= 2, "the buffer overflows");
        self.most.update(|most| *most = len.max(*most));
    }

    fn take(&self) {
        assert!(
            self.items.with(|items| !items.is_empty()),
            "the buffer is empty"
        );
        let item = self.items.update(|items| items.remove(0));
        self.taken.update(|taken| taken.push(item));
    }
}

// Your part:

#[derive(Clone)]
struct Rules;

impl Rules {
    async fn new(_: &mut Os) -> Self {
        Self
    }

    async fn produce(&self, os: &mut Os, slots: &Slots) {
        for item in 1..=3 {
            slots.put(item);
            os.yield_now().await;
        }
    }

    async fn consume(&self, os: &mut Os, slots: &Slots) {
        for _ in 1..=3 {
            slots.take();
            os.yield_now().await;
        }
    }
}
