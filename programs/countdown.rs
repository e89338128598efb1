use std::{error::Error, time::Duration};

use trapline::Os;
use trapline_cli::Program;

/// One task counts down every four seconds, another counts up every second
#[derive(clap::Args)]
pub(crate) struct Countdown {
    /// Alternate by a yield after each count, instead
    #[arg(long)]
    alternate: bool,
    /// Count down and then up, five each, in one task
    #[arg(long, conflicts_with = "alternate")]
    synchronous: bool,
}

impl Program for Countdown {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        if self.alternate {
            os.spawn("down", async |os| countdown(os, 5, None).await)
                .await?;
            // The child has its first turn before this task continues, so the two alternate.
            countup(os, 5, None).await;
            return Ok(());
        }
        let (down, up) = (Some(Duration::from_secs(4)), Some(Duration::from_secs(1)));
        if self.synchronous {
            countdown(os, 5, up).await;
            countup(os, 5, up).await;
            return Ok(());
        }
        os.spawn("down", async move |os| countdown(os, 5, down).await)
            .await?;
        os.spawn("up", async move |os| countup(os, 20, up).await)
            .await?;
        Ok(())
    }
}

async fn countdown(os: &mut Os, from: u32, pause: Option<Duration>) {
    for n in (1..=from).rev() {
        writeln!(os, "Down {n}");
        switch(os, pause).await;
    }
}

async fn countup(os: &mut Os, to: u32, pause: Option<Duration>) {
    for n in 0..to {
        writeln!(os, "Up {n}");
        switch(os, pause).await;
    }
}

/// Lets the others run, for that time or for a turn each.
async fn switch(os: &mut Os, pause: Option<Duration>) {
    match pause {
        Some(span) => os.sleep(span).await,
        None => os.yield_now().await,
    }
}
