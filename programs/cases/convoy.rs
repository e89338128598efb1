use std::{error::Error, time::Duration};

use trapline::{
    Os,
    sync::{Group, Mutex},
};
use trapline_cli::Program;

use super::conclude_slow;

/// The number of counts per worker, the time of a fetch, and the time of its other work.
const TIMES: u32 = 3;
const FETCH: Duration = Duration::from_millis(5);
const REST: Duration = Duration::from_millis(2);
/// How much of its other work is computing. One processor has time for that of all four workers.
const COMPUTE: Duration = Duration::from_micros(500);

/// Goes wrong: tasks that queue up for a lock that each holds for too long
#[derive(clap::Args)]
pub(crate) struct Convoy {
    /// Hold the lock only while it is needed
    #[arg(long)]
    cured: bool,
}

impl Program for Convoy {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let start = os.now().await;
        let total = Mutex::new(os, 0).await;
        let mut workers = Group::new(os).await;
        for n in 1..=4 {
            let (total, cured) = (total.clone(), self.cured);
            let worker = async move |os: &mut Os| {
                for _ in 0..TIMES {
                    count(os, &total, cured).await;
                }
            };
            workers.spawn(os, format!("worker-{n}"), worker).await?;
        }
        workers.join(os).await?;
        let took = os.now().await - start;
        let why = "each worker holds the lock while it fetches, and the others wait for it";
        conclude_slow(os, "convoy", took, (FETCH + REST) * TIMES, why);
        Ok(())
    }
}

/// Fetches a number, which takes a while, adds it to the total, and does the worker's other work.
async fn count(os: &mut Os, total: &Mutex<u64>, cured: bool) {
    let mut fetched = os.now().await + FETCH;
    if cured {
        let number = fetch(os).await;
        if let Ok(mut total) = total.lock(os).await {
            *total += number;
        }
    } else {
        if let Ok(mut total) = total.lock(os).await {
            *total += fetch(os).await;
        }
        fetched = os.now().await;
    }
    // The worker's other work: it computes, and waits for the rest of the time.
    os.compute(COMPUTE).await;
    os.sleep_until(fetched + REST).await;
}

async fn fetch(os: &mut Os) -> u64 {
    os.sleep(FETCH).await;
    1
}
