use std::{error::Error, time::Duration};

use trapline::{Os, sync::Group};
use trapline_cli::Program;

/// An editor beside a batch of number crunchers
///
/// The editor waits for keys and computes a little for each. It prints how long the keys waited for
/// it. The crunchers only compute.
#[derive(clap::Args)]
pub(crate) struct Interactive {
    /// The number of crunchers
    #[arg(long, value_name = "N", default_value_t = 3)]
    crunchers: u32,
    /// The number of keys
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
}

/// The time between two keys, the work for a key, and that of a cruncher.
const PAUSE: Duration = Duration::from_millis(50);
const KEY: Duration = Duration::from_millis(2);
const CRUNCH: Duration = Duration::from_millis(200);

impl Program for Interactive {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let mut tasks = Group::new(os).await;
        let keys = self.keys;
        let editor = async move |os: &mut Os| {
            let mut slowest = Duration::ZERO;
            let mut sum = Duration::ZERO;
            for key in 1..=keys {
                os.sleep_until(PAUSE * key).await;
                os.compute(KEY).await;
                let late = os.now().await.saturating_sub(PAUSE * key + KEY);
                slowest = slowest.max(late);
                sum += late;
            }
            let mean = sum / keys;
            writeln!(os, "a key waited {mean:?} on average, {slowest:?} at most");
        };
        tasks.spawn(os, "editor", editor).await?;
        for n in 1..=self.crunchers {
            let cruncher = async |os: &mut Os| os.compute(CRUNCH).await;
            tasks.spawn(os, format!("cruncher-{n}"), cruncher).await?;
        }
        tasks.join(os).await?;
        Ok(())
    }
}
