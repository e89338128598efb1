//! A solution of `task.rs`.

use std::error::Error;

use trapline::{Os, Queue, Shared};
use trapline_cli::Program;

/// A producer and a consumer share a buffer with two slots
#[derive(clap::Args)]
pub(crate) struct Solution {}

impl Program for Solution {
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

/// Tokens: one for each free slot, and one for each that is filled.
#[derive(Clone)]
struct Rules {
    room: Queue<()>,
    filled: Queue<()>,
}

impl Rules {
    async fn new(os: &mut Os) -> Self {
        let (room, filled) = (Queue::unbounded(os).await, Queue::unbounded(os).await);
        for _ in 0..2 {
            let _ = room.put(os, ()).await;
        }
        Self { room, filled }
    }

    async fn produce(&self, os: &mut Os, slots: &Slots) {
        for item in 1..=3 {
            let _ = self.room.get(os).await;
            slots.put(item);
            let _ = self.filled.put(os, ()).await;
        }
    }

    async fn consume(&self, os: &mut Os, slots: &Slots) {
        for _ in 1..=3 {
            let _ = self.filled.get(os).await;
            slots.take();
            let _ = self.room.put(os, ()).await;
        }
    }
}
