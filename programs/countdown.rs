use std::{error::Error, time::Duration};

use trapline::{Os, Program};

/// One task counts down every four seconds, another counts up every second
#[derive(clap::Args)]
pub(crate) struct Countdown {}

impl Program for Countdown {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        os.spawn("down", async |os| countdown(os, 5).await).await?;
        os.spawn("up", async |os| countup(os, 20).await).await?;
        Ok(())
    }
}

async fn countdown(os: &mut Os, from: u32) {
    for n in (1..=from).rev() {
        writeln!(os, "Down {n}");
        os.sleep(Duration::from_secs(4)).await;
    }
}

async fn countup(os: &mut Os, to: u32) {
    for n in 0..to {
        writeln!(os, "Up {n}");
        os.sleep(Duration::from_secs(1)).await;
    }
}
