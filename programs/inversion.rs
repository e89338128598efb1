use std::{error::Error, time::Duration};

use trapline::{
    Os,
    sync::{Group, Mutex},
};
use trapline_cli::{Program, duration};

/// Priority inversion: a high task waits for a low one, and one in the middle computes
///
/// The task "low" holds a mutex. The task "high" waits for it. The task "middle" needs no mutex,
/// and keeps "low" from the processor. This stopped the Mars Pathfinder in 1997. See it under
/// `--policy priority`, and cured under `--policy priority:inherit`.
#[derive(clap::Args)]
pub(crate) struct Inversion {
    /// How long "middle" computes
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "100ms")]
    middle: Duration,
}

const HELD: Duration = Duration::from_millis(30);
const STEP: Duration = Duration::from_millis(10);

impl Program for Inversion {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let bus = Mutex::named(os, "bus", ()).await;
        let mut tasks = Group::new(os).await;
        os.set_priority(1).await;
        let lock = bus.clone();
        let low = async move |os: &mut Os| {
            let held = lock.lock(os).await;
            os.compute(HELD).await;
            drop(held);
        };
        tasks.spawn(os, "low", low).await?;
        os.set_priority(3).await;
        let high = async move |os: &mut Os| {
            os.sleep(STEP).await;
            let held = bus.lock(os).await;
            let waited = os.now().await.saturating_sub(STEP);
            writeln!(os, "high waited {waited:?} for the mutex");
            os.compute(STEP).await;
            drop(held);
        };
        tasks.spawn(os, "high", high).await?;
        os.set_priority(2).await;
        let span = self.middle;
        let middle = async move |os: &mut Os| {
            os.sleep(STEP * 2).await;
            os.compute(span).await;
        };
        tasks.spawn(os, "middle", middle).await?;
        tasks.join(os).await?;
        Ok(())
    }
}
