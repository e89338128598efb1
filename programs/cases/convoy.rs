use std::{error::Error, time::Duration};

use trapline::{
    Os, Program,
    sync::{Group, Mutex},
};

/// Goes wrong: tasks that queue up for a lock that each holds for too long
#[derive(clap::Args)]
pub(crate) struct Convoy {
    /// Hold the lock only while it is needed
    #[arg(long)]
    cured: bool,
}

impl Program for Convoy {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let total = Mutex::new(os, 0).await;
        let mut workers = Group::new(os).await;
        for n in 1..=4 {
            let (total, cured) = (total.clone(), self.cured);
            let worker = async move |os: &mut Os| {
                for _ in 0..3 {
                    count(os, &total, cured).await;
                }
            };
            workers.spawn(os, format!("worker-{n}"), worker).await?;
        }
        workers.join(os).await?;
        Ok(())
    }
}

/// Fetches a number, which takes a while, and adds it to the total.
async fn count(os: &mut Os, total: &Mutex<u64>, cured: bool) {
    if cured {
        let number = fetch(os).await;
        if let Ok(mut total) = total.lock(os).await {
            *total += number;
        }
    } else if let Ok(mut total) = total.lock(os).await {
        *total += fetch(os).await;
    }
    // What it does besides.
    os.sleep(Duration::from_millis(2)).await;
}

async fn fetch(os: &mut Os) -> u64 {
    os.sleep(Duration::from_millis(5)).await;
    1
}
