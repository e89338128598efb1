use std::{error::Error, time::Duration};

use trapline::{Os, Program, cli};

use crate::http_get::{Url, fetch};

/// Timers in the manner of a browser, which a long response does not hold up
#[derive(clap::Args)]
pub(crate) struct Timers {
    /// A page to fetch meanwhile, such as http://example.com/
    #[arg(long)]
    url: Option<Url>,
    /// How long to wait for it
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = cli::duration, requires = "url")]
    timeout: Duration,
}

impl Program for Timers {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let tick = async |os: &mut Os| writeln!(os, "timer tick");
        let interval = os.call_every(Duration::from_secs(2), tick).await;
        let timeout = async move |os: &mut Os| {
            writeln!(os, "timer timeout");
            // Nothing is left after this, and the kernel's run ends.
            os.kill(interval).await;
        };
        os.call_later(Duration::from_secs(5), timeout).await;
        if let Some(url) = &self.url {
            let response = fetch(os, url, self.timeout).await?;
            for line in String::from_utf8_lossy(&response).lines() {
                writeln!(os, "{line}");
                // Whoever waits behind us goes first: no convoy.
                os.yield_now().await;
            }
        }
        Ok(())
    }
}
