use std::{error::Error, time::Duration};

use trapline::Os;
use trapline_cli::{Program, duration};

use crate::http_get::{Response, Url};

/// Timers in the style of a browser, which a long response does not delay
#[derive(clap::Args)]
pub(crate) struct Timers {
    /// A page to fetch meanwhile, such as http://example.com/
    #[arg(long)]
    url: Option<Url>,
    /// The timeout of the request
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration, requires = "url")]
    timeout: Duration,
}

impl Program for Timers {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let tick = async |os: &mut Os| writeln!(os, "timer tick");
        let interval = os.call_every(Duration::from_secs(2), tick).await;
        let timeout = async move |os: &mut Os| {
            writeln!(os, "timer timeout");
            // Ending this task ends the kernel's run.
            os.kill(interval).await;
        };
        os.call_later(Duration::from_secs(5), timeout).await;
        if let Some(url) = &self.url {
            let mut response = Response::to(os, url, self.timeout).await?;
            show(os, response.head.as_bytes()).await;
            writeln!(os);
            let mut line = Vec::new();
            while let Some(piece) = response.piece(os).await? {
                line.extend(piece);
                let end = match line.iter().rposition(|byte| *byte == b'\n') {
                    Some(at) => at + 1,
                    // A line may be longer than the limit.
                    None if line.len() >= LONGEST => line.len(),
                    None => 0,
                };
                let rest = line.split_off(end);
                show(os, &line).await;
                line = rest;
            }
            show(os, &line).await;
        }
        Ok(())
    }
}

/// The longest incomplete line that is kept, in bytes.
const LONGEST: usize = 64 * 1024;

/// Prints lines, and yields after each: the other tasks do not have to wait for all of them.
async fn show(os: &mut Os, text: &[u8]) {
    for line in String::from_utf8_lossy(text).lines() {
        writeln!(os, "{line}");
        os.yield_now().await;
    }
}
