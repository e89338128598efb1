//! Callback style: no function here waits; each one registers its successor.

use std::{error::Error, time::Duration};

use trapline::{Closed, Os, Queue};
use trapline_cli::{Program, duration};

use crate::producer_consumer::{consumer, producer};

/// Callbacks that count down and up, each scheduling the next
#[derive(clap::Args)]
pub(crate) struct Callbacks {
    /// A producer and a consumer with a queue for callbacks, instead
    #[arg(long)]
    queue: bool,
    /// The counts in callbacks, beside a producer and a consumer in coroutines
    #[arg(long, conflicts_with = "queue")]
    mixed: bool,
    /// Stop everything from inside after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    stop_after: Option<Duration>,
}

impl Program for Callbacks {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        if let Some(delay) = self.stop_after {
            os.call_later(delay, async |os: &mut Os| os.shutdown().await)
                .await;
        }
        if self.queue {
            let queue = Queue::unbounded(os).await;
            let source = queue.clone();
            os.call_soon(async |os: &mut Os| produce(os, source, 0, 10).await)
                .await;
            consume(os, queue).await;
            return Ok(());
        }
        os.call_soon(async |os: &mut Os| countdown(os, 5).await)
            .await;
        os.call_soon(async |os: &mut Os| countup(os, 0, 20).await)
            .await;
        if self.mixed {
            coroutines(os).await;
        }
        Ok(())
    }
}

/// A coroutine is a callback that may wait.
async fn coroutines(os: &mut Os) {
    let queue = Queue::unbounded(os).await;
    let source = queue.clone();
    os.call_soon(async move |os: &mut Os| {
        producer(os, &source, 0..10).await?;
        source.close(os).await;
        Ok::<(), Closed<u64>>(())
    })
    .await;
    os.call_soon(async move |os: &mut Os| consumer(os, &queue).await)
        .await;
}

async fn countdown(os: &mut Os, n: u32) {
    if n > 0 {
        writeln!(os, "Down {n}");
        let next = async move |os: &mut Os| countdown(os, n - 1).await;
        os.call_later(Duration::from_secs(4), next).await;
    }
}

async fn countup(os: &mut Os, n: u32, to: u32) {
    if n < to {
        writeln!(os, "Up {n}");
        let next = async move |os: &mut Os| countup(os, n + 1, to).await;
        os.call_later(Duration::from_secs(1), next).await;
    }
}

/// The queue for callbacks. It calls back with an item when there is one, or with an error when
/// there will be none.
async fn get(
    os: &mut Os,
    queue: Queue<u32>,
    callback: impl AsyncFnOnce(&mut Os, Result<u32, Closed>) + 'static,
) {
    os.call_soon(async move |os: &mut Os| {
        let item = queue.get(os).await;
        callback(os, item).await;
    })
    .await;
}

async fn produce(os: &mut Os, queue: Queue<u32>, n: u32, count: u32) -> Result<(), Closed<u32>> {
    if n == count {
        writeln!(os, "Producer done");
        queue.close(os).await;
        return Ok(());
    }
    writeln!(os, "Producing {n}");
    queue.put(os, n).await?;
    let next = async move |os: &mut Os| produce(os, queue, n + 1, count).await;
    os.call_later(Duration::from_secs(1), next).await;
    Ok(())
}

async fn consume(os: &mut Os, queue: Queue<u32>) {
    let again = queue.clone();
    get(os, queue, async move |os, item| match item {
        Ok(item) => {
            writeln!(os, "Consuming {item}");
            consume(os, again).await;
        }
        Err(Closed(())) => writeln!(os, "Consumer done"),
    })
    .await;
}
