//! A tree of many schedules is divided, and its first schedules run again in the parts. A limit may end the
//! parts before.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use trapline::{
    Check, Errno, Error, Explored, Kernel, Os, Promise, Queue, Setter, Shared, check, sync::Group,
};

use super::Body;

/// Clients that poll for the answer of a worker. A schedule in which a client polls before the worker has a
/// turn has too many turns. The parts begin with such ones.
fn polls(kernel: &mut Kernel) -> Result<(), Error> {
    let polls = Shared::new(0);
    let theirs = polls.clone();
    kernel.spawn("main", async move |os: &mut Os| {
        let jobs: Queue<Setter<()>> = Queue::unbounded(os).await;
        let mut clients = Group::new(os).await;
        for _ in 0..5 {
            let (jobs, polls) = (jobs.clone(), theirs.clone());
            let client = async move |os: &mut Os| {
                let (job, answer) = Promise::new(os).await;
                let _ = jobs.put(os, job).await;
                while answer.get().is_none() {
                    polls.update(|polls| *polls += 1);
                    os.yield_now().await;
                }
            };
            clients.spawn(os, "client", client).await?;
        }
        let mine = jobs.clone();
        let worker = async move |os: &mut Os| {
            while let Ok(job) = mine.get(os).await {
                let _ = job.set(os, ()).await;
            }
        };
        os.spawn("worker", worker).await?;
        clients.join(os).await.expect("a client fails at nothing");
        jobs.close(os).await;
        Ok::<(), Errno>(())
    })?;
    kernel.run()?.check()?;
    kernel.outcome(polls.get().to_string());
    Ok(())
}

fn search() -> Check<Body> {
    let search = check(polls as Body).exhaustive().steps(150);
    search.time(Duration::from_secs(60))
}

/// What was run is no proof.
fn assert_keeps(explored: &Explored, least: u64) {
    assert_eq!(explored.failure, None);
    assert!(!explored.complete && !explored.proved);
    assert!(explored.schedules >= least, "{explored}");
    assert_eq!(explored.schedules, explored.classes);
    assert!(!explored.outcomes.is_empty(), "{explored}");
}

#[test]
fn a_limit_of_schedules_shows_no_less_than_a_smaller_one() {
    let few = search().threads(1).schedules(50).explore();
    assert_eq!(few.schedules, 50);
    let more = search().threads(1).schedules(300).explore();
    assert_keeps(&more, 50);
    assert!(more.outcomes.is_superset(&few.outcomes));
    let bound = more.bound.expect("it is not complete");
    assert!(bound.ends_with("it ended after 300 schedules"), "{bound}");
}

#[test]
fn the_progress_of_a_divided_search_goes_on_and_its_result_says_no_less() {
    static LAST: AtomicU64 = AtomicU64::new(0);
    static REPORTS: AtomicU64 = AtomicU64::new(0);
    let explored = search()
        .threads(2)
        .progress(|progress| {
            let before = LAST.fetch_max(progress.schedules, Relaxed);
            assert!(progress.schedules >= before, "{progress:?} after {before}");
            REPORTS.fetch_add(1, Relaxed);
        })
        .stop_when(|| REPORTS.load(Relaxed) >= 6)
        .explore();
    let bound = explored.bound.clone().expect("it did not end");
    assert!(bound.contains("it was interrupted"), "{bound}");
    assert_keeps(&explored, LAST.load(Relaxed));
}
