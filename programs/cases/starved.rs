use std::{cell::Cell, error::Error, rc::Rc};

use trapline::{Abandoned, Os, Promise, Queue, Setter, sync::Group};
use trapline_cli::Program;

use super::conclude;

/// Goes wrong: a worker that hardly gets a turn, since its clients poll
#[derive(clap::Args)]
pub(crate) struct Starved {
    /// Let the clients wait for their answers instead
    #[arg(long)]
    cured: bool,
}

impl Program for Starved {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let jobs = Queue::unbounded(os).await;
        let polls = Rc::new(Cell::new(0));
        let mut tasks = Group::new(os).await;
        for n in 1..=5 {
            let (jobs, cured, polls) = (jobs.clone(), self.cured, Rc::clone(&polls));
            let client = async move |os: &mut Os| client(os, &jobs, cured, &polls).await;
            tasks.spawn(os, format!("client-{n}"), client).await?;
        }
        let mine = jobs.clone();
        let worker = async move |os: &mut Os| worker(os, &mine).await;
        let worker = os.spawn("worker", worker).await?;
        tasks.join(os).await?;
        jobs.close(os).await;
        os.wait(worker).await?;
        if polls.get() > 0 {
            let polls = polls.get();
            let what =
                format!("clients asked {polls} times in vain, each time instead of the worker");
            conclude(os, "starved", &what);
        }
        Ok(())
    }
}

async fn client(
    os: &mut Os,
    jobs: &Queue<Setter<()>>,
    cured: bool,
    polls: &Cell<u64>,
) -> Result<(), Abandoned> {
    let (job, answer) = Promise::new(os).await;
    let _ = jobs.put(os, job).await;
    if cured {
        return answer.wait(os).await;
    }
    while answer.get().is_none() {
        polls.set(polls.get() + 1);
        os.yield_now().await;
    }
    Ok(())
}

async fn worker(os: &mut Os, jobs: &Queue<Setter<()>>) {
    while let Ok(job) = jobs.get(os).await {
        // The work, in three pieces.
        for _ in 0..3 {
            os.yield_now().await;
        }
        let _ = job.set(os, ()).await;
    }
}
