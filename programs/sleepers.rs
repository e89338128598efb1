use std::{error::Error, time::Duration};

use trapline::Os;
use trapline_cli::Program;

/// Many tasks that each sleep for a random time under a second
#[derive(clap::Args)]
pub(crate) struct Sleepers {
    /// The number of tasks
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: u32,
}

impl Program for Sleepers {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let start = os.now().await;
        let mut sum = Duration::ZERO;
        let mut sleepers = Vec::new();
        for _ in 0..self.count {
            let span = Duration::from_micros(os.random().await % 1_000_000);
            sum += span;
            let sleeper = async move |os: &mut Os| os.sleep(span).await;
            sleepers.push(os.spawn("sleeper", sleeper).await?);
        }
        for sleeper in sleepers {
            os.wait(sleeper).await?;
        }
        let took = os.now().await - start;
        writeln!(os, "{} tasks slept for {sum:.3?} in {took:.3?}", self.count);
        Ok(())
    }
}
