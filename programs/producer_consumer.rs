use std::{error::Error, time::Duration};

use trapline::{Closed, Os, Queue, sync::Group};
use trapline_cli::Program;

/// Tasks that produce items and tasks that consume them, with a message queue between them
#[derive(clap::Args)]
pub(crate) struct ProducerConsumer {
    /// The number of items from all producers together
    #[arg(long, value_name = "N", default_value_t = 10)]
    count: u64,
    /// The queue's capacity; without it the queue is unbounded
    #[arg(long, value_name = "N")]
    capacity: Option<usize>,
    /// The number of producers
    #[arg(long, value_name = "N", default_value_t = 1)]
    producers: u32,
    /// The number of consumers
    #[arg(long, value_name = "N", default_value_t = 1)]
    consumers: u32,
}

impl Program for ProducerConsumer {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let queue = match self.capacity {
            Some(capacity) => Queue::bounded(os, capacity).await,
            None => Queue::unbounded(os).await,
        };
        let mut producers = Group::new(os).await;
        for first in 0..self.producers {
            let queue = queue.clone();
            let items = (first.into()..self.count).step_by(self.producers as usize);
            let program = async move |os: &mut Os| producer(os, &queue, items).await;
            producers.spawn(os, "producer", program).await?;
        }
        let mut consumers = Group::new(os).await;
        for _ in 0..self.consumers {
            let queue = queue.clone();
            let program = async move |os: &mut Os| consumer(os, &queue).await;
            consumers.spawn(os, "consumer", program).await?;
        }
        producers.join(os).await?;
        queue.close(os).await;
        consumers.join(os).await?;
        Ok(())
    }
}

pub(crate) async fn producer(
    os: &mut Os,
    queue: &Queue<u64>,
    items: impl Iterator<Item = u64>,
) -> Result<(), Closed<u64>> {
    for n in items {
        writeln!(os, "Producing {n}");
        queue.put(os, n).await?;
        os.sleep(Duration::from_secs(1)).await;
    }
    writeln!(os, "Producer done");
    Ok(())
}

pub(crate) async fn consumer(os: &mut Os, queue: &Queue<u64>) {
    while let Ok(n) = queue.get(os).await {
        writeln!(os, "Consuming {n}");
    }
    writeln!(os, "Consumer done");
}
