//! A binary that adds a policy, a world and a tracer to its command line.
//!
//! ```sh
//! cargo run --example extended -- boot --policy lifo greet
//! cargo run --example extended -- boot --world lapse:100 greet
//! cargo run --example extended -- boot --disk . note hello
//! ```

use std::{error::Error, io, process::ExitCode, time::Duration};

use trapline::{
    Cause, Event, Fact, Happening, Mode, Os, Policy, RealWorld, Runnable, World, forward_world,
};
use trapline_cli::{App, Program, program};

/// Two tasks that greet each second
#[derive(clap::Args)]
struct Greet {
    /// How often
    #[arg(long, default_value_t = 3)]
    count: u32,
}

impl Program for Greet {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        for name in ["Ada", "Bob"] {
            let greet = async move |os: &mut Os| {
                for _ in 0..self.count {
                    writeln!(os, "hello from {name}");
                    os.sleep(Duration::from_secs(1)).await;
                }
            };
            os.spawn(name, greet).await?;
        }
        Ok(())
    }
}

/// Appends a line to a file of the disk, and prints all lines
#[derive(clap::Args)]
struct Note {
    /// The line
    text: String,
}

impl Program for Note {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let notes = os.disk().open(os, "notes", Mode::Append).await?;
        let line = format!("{}\n", self.text);
        notes.append(os, line.as_bytes()).await?;
        notes.sync(os).await?;
        os.disk().sync_dir(os, ".").await?;
        let mut all = vec![0; notes.len(os).await?.try_into()?];
        let n = notes.read_at(os, &mut all, 0).await?;
        write!(os, "{}", str::from_utf8(&all[..n])?);
        Ok(())
    }
}

/// The task that became ready last goes first.
#[derive(Default)]
struct Lifo(Vec<Runnable>);

impl Policy for Lifo {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.0.push(task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        self.0.pop()
    }

    fn remove(&mut self, task: Runnable) {
        self.0.retain(|other| *other != task);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The real world with a clock that is faster by a factor.
struct Lapse {
    inner: RealWorld,
    factor: u32,
}

impl Lapse {
    fn new(params: &str) -> Result<Self, Box<dyn Error>> {
        let factor = match params {
            "" => 10,
            text => text.parse().ok().filter(|factor| *factor > 0).ok_or(
                "lapse takes how many times as fast the clock is, from 1, such as lapse:100",
            )?,
        };
        let inner = RealWorld::new()?;
        Ok(Self { inner, factor })
    }
}

impl World for Lapse {
    forward_world!(inner: random, reseed, seed, print, take_console);
    forward_world!(inner: is_idle, remote, submit, io, mail, spins, choose);

    fn now(&mut self) -> Duration {
        self.inner.now().saturating_mul(self.factor)
    }

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        let deadline = deadline.map(|deadline| deadline / self.factor);
        self.inner.wait(deadline, happened)
    }

    fn wait_for_threads(
        &mut self,
        deadline: Option<Duration>,
        patience: Duration,
        happened: &mut Vec<Happening>,
    ) -> io::Result<Duration> {
        let deadline = deadline.map(|deadline| deadline / self.factor);
        self.inner.wait_for_threads(deadline, patience, happened)
    }
}

fn main() -> ExitCode {
    App::new([program::<Greet>("greet"), program::<Note>("note")])
        .policy("lifo", |params: &str| match params {
            "" => Ok(Box::new(Lifo::default())),
            _ => Err("lifo takes no parameters".into()),
        })
        .world("lapse", |params: &str| Ok(Box::new(Lapse::new(params)?)))
        .tracer(|| {
            |event: &Event<'_>| {
                if let Fact::Exited { .. } = event.fact {
                    eprintln!("{event}");
                }
            }
        })
        .main()
}
