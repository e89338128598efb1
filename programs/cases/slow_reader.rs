use std::{error::Error, time::Duration};

use trapline::{Closed, Os, Queue, sync::Group};
use trapline_cli::Program;

use super::conclude_slow;

/// The number of items, the time between two items, and the time that a reader takes for one.
const ITEMS: u32 = 12;
const EVERY: Duration = Duration::from_millis(2);
const READING: Duration = Duration::from_millis(10);

/// Goes wrong: a source that is as slow as its slowest reader
#[derive(clap::Args)]
pub(crate) struct SlowReader {
    /// The number of readers
    #[arg(long, value_name = "N", default_value_t = 1)]
    readers: u32,
}

impl Program for SlowReader {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let start = os.now().await;
        let queue = Queue::bounded(os, 2).await;
        let mut readers = Group::new(os).await;
        for _ in 0..self.readers {
            let queue = queue.clone();
            let reader = async move |os: &mut Os| reader(os, &queue).await;
            readers.spawn(os, "reader", reader).await?;
        }
        let mine = queue.clone();
        let source = async move |os: &mut Os| source(os, &mine).await;
        let source = os.spawn("source", source).await?;
        os.wait(source).await?;
        queue.close(os).await;
        readers.join(os).await?;
        let took = os.now().await - start;
        let why = "the queue is full, and the source waits for its readers";
        conclude_slow(os, "slow-reader", took, EVERY * ITEMS + READING, why);
        Ok(())
    }
}

/// Produces an item at intervals.
async fn source(os: &mut Os, queue: &Queue<u32>) -> Result<(), Closed<u32>> {
    for item in 0..ITEMS {
        os.sleep(EVERY).await;
        queue.put(os, item).await?;
    }
    Ok(())
}

/// Takes its time for each item.
async fn reader(os: &mut Os, queue: &Queue<u32>) {
    while queue.get(os).await.is_ok() {
        os.sleep(READING).await;
    }
}
