use std::{cell::Cell, error::Error, rc::Rc, time::Duration};

use trapline::{Os, sync::Group};
use trapline_cli::{Program, duration};

/// Many reads that block, each on a thread, for a random time under a second
#[derive(clap::Args)]
pub(crate) struct FakeIo {
    /// The number of reads
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: u32,
    /// The time for which each blocks its thread, instead of a random one
    #[arg(long, value_name = "TIME", value_parser = duration)]
    delay: Option<Duration>,
}

impl Program for FakeIo {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let start = os.now().await;
        let sum = Rc::new(Cell::new(Duration::ZERO));
        let mut readers = Group::new(os).await;
        for _ in 0..self.count {
            let sum = Rc::clone(&sum);
            let delay = match self.delay {
                Some(delay) => delay,
                None => Duration::from_micros(os.random().await % 1_000_000),
            };
            let reader = async move |os: &mut Os| {
                let delay = os.run_blocking(move || read(delay)).await?;
                sum.set(sum.get().saturating_add(delay));
                Ok::<(), trapline::Panicked>(())
            };
            readers.spawn(os, "reader", reader).await?;
        }
        readers.join(os).await?;
        let (sum, took) = (sum.get(), os.now().await - start);
        writeln!(
            os,
            "{} reads blocked for {sum:.3?} in {took:.3?}",
            self.count
        );
        Ok(())
    }
}

/// A system call that the kernel cannot watch: it completes at any time.
fn read(delay: Duration) -> Duration {
    trapline::pause(delay);
    delay
}
