use std::{error::Error, time::Duration};

use trapline::Os;
use trapline_cli::{Program, duration};

/// A task that says every second that it is alive
#[derive(clap::Args)]
pub(crate) struct Alive {
    /// The time between two signs of life
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    every: Duration,
    /// The number of signs of life; without it they never end
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

impl Program for Alive {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        for _ in 0..self.count.unwrap_or(u64::MAX) {
            writeln!(os, "I'm alive");
            os.sleep(self.every).await;
        }
        Ok(())
    }
}
