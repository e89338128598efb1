use std::{error::Error, time::Duration};

use trapline::{Abandoned, Closed, Os, Promise, Queue};
use trapline_cli::Program;

/// Two generators that yield futures, stepped by hand and then by a driver each
#[derive(clap::Args)]
pub(crate) struct Lists {
    /// Start, and stop five seconds later, instead, with the times in seconds since boot
    #[arg(long)]
    delay: bool,
}

impl Program for Lists {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        if self.delay {
            say_time(os, "start").await;
            os.sleep(Duration::from_secs(5)).await;
            say_time(os, "stop").await;
            return Ok(());
        }
        let lists = [list(os, "abc").await?, list(os, "123").await?];
        for _ in 0..2 {
            for list in &lists {
                list.next(os).await?;
            }
        }
        for list in lists {
            os.spawn("driver", async move |os| drive(os, &list).await)
                .await?;
        }
        Ok(())
    }
}

async fn say_time(os: &mut Os, what: &str) {
    let now = os.now().await.as_secs_f64();
    writeln!(os, "{what} {now:.3}");
}

/// A generator: each request for its next future runs it until it yields one.
#[derive(Clone)]
struct Generator {
    wanted: Queue<()>,
    yielded: Queue<Promise<()>>,
}

impl Generator {
    async fn next(&self, os: &mut Os) -> Result<Promise<()>, Closed> {
        self.wanted.put(os, ()).await?;
        self.yielded.get(os).await
    }
}

/// Resumes a generator whenever the future that it has yielded completes.
async fn drive(os: &mut Os, list: &Generator) -> Result<(), Abandoned> {
    while let Ok(future) = list.next(os).await {
        future.wait(os).await?;
    }
    Ok(())
}

async fn list(os: &mut Os, name: &'static str) -> Result<Generator, Box<dyn Error>> {
    let list = Generator {
        wanted: Queue::unbounded(os).await,
        yielded: Queue::unbounded(os).await,
    };
    let own = list.clone();
    let program = async move |os: &mut Os| {
        for n in 0..5 {
            own.wanted.get(os).await?;
            writeln!(os, "{name}   {n}");
            let future = soon(os).await;
            own.yielded.put(os, future).await.map_err(|_| Closed(()))?;
        }
        own.yielded.close(os).await;
        Ok::<(), Closed>(())
    };
    os.spawn(name, program).await?;
    Ok(list)
}

/// A future that completes after the other tasks have had their turns.
async fn soon(os: &mut Os) -> Promise<()> {
    let (setter, future) = Promise::new(os).await;
    let complete = async move |os: &mut Os| setter.set(os, ()).await;
    os.call_soon(complete).await;
    future
}
