//! Searches of schedules: the same programs under trapline's search, shuttle's and loom's.
//!
//! Shuttle and loom run threads; a task of trapline has its place. An access to an atomic number is
//! a point of their schedules, so the task traps between its two. Shuttle has futures, too: where
//! the program needs no lock, they take part.
//!
//! By seeds, the figure is the time of a schedule, all of it: a new program, its tasks, its end. A
//! complete search is measured whole, by its time and its number of runs. Trapline's runs each
//! causal order a second time, for its audit; these runs are not counted, but their time is.

use std::{
    array,
    cell::Cell,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use trapline::{
    Errno, Error, Kernel, Os, Shared, Tid, check,
    sync::{Condition, Mutex},
};

use crate::{
    Plan,
    contest::Contest,
    meter::{cpu_time, ns_each},
};

const SCHEDULES: usize = 20_000;
/// The turns of the buffer's writer, and half of those of each reader.
const BUFFERED: usize = 2;
const YIELDING: usize = 10;
const YIELDS: usize = 100;
/// No peer needs more runs for the programs below.
const MOST: usize = 500_000;

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let count = plan.times(SCHEDULES);
    let few = count / 10;
    let ns = move |time| ns_each(time, count);
    let ns_few = move |time| ns_each(time, few);
    let contest = |name: &str| Contest::new(name, plan.rounds, &["ns per schedule"]);
    vec![
        contest("a counter of two tasks, random schedules")
            .enter("trapline", move || ns(ours(count, counter)))
            .enter("shuttle, threads", move || {
                ns(shuttle(count, shuttled::counter))
            })
            .enter("shuttle, futures", move || {
                ns(shuttle(count, shuttled::counter_of_futures))
            }),
        contest("Cargill's bounded buffer, random schedules")
            .enter("trapline", move || ns_few(ours(few, buffer)))
            .enter("shuttle, threads", move || {
                ns_few(shuttle(few, shuttled::buffer))
            }),
        contest("two locks, random schedules")
            .enter("trapline", move || ns(ours(count, locks)))
            .enter("shuttle, threads", move || {
                ns(shuttle(count, shuttled::locks))
            }),
        contest("10 tasks, 100 yields each, random schedules")
            .enter("trapline", move || ns_few(ours(few, yields)))
            .enter("shuttle, threads", move || {
                ns_few(shuttle(few, shuttled::yields))
            })
            .enter("shuttle, futures", move || {
                ns_few(shuttle(few, shuttled::yields_of_futures))
            }),
        complete(plan, "all of two tasks that count to two")
            .enter_many("trapline", || Ok(all_of_ours(shared_counter)))
            .enter_many("loom", || Ok(all_of_loom(|| loomed::count(2, 2))))
            .enter_many("shuttle, depth first", || {
                Ok(all_of_shuttle(|| shuttled::count(2, 2)))
            }),
        // Depth first, shuttle needs over 500,000 runs.
        complete(plan, "all of three philosophers")
            .enter_many("trapline", || Ok(all_of_ours(dining::<3>)))
            .enter_many("loom", || Ok(all_of_loom(|| loomed::dining(3)))),
        complete(plan, "all of five philosophers")
            .enter_many("trapline", || Ok(all_of_ours(dining::<5>))),
    ]
}

fn complete(plan: &Plan, name: &str) -> Contest {
    Contest::new(name, plan.rounds.min(3), &["ms per search", "runs"])
}

const ROOM: &str = "there is room for the tasks";

// ---- trapline

/// The CPU time of so many random schedules.
fn ours(schedules: usize, program: fn(&mut Kernel) -> Result<(), Error>) -> Duration {
    let start = cpu_time();
    check(program)
        .without_environment()
        .schedules(schedules as u64)
        .run();
    cpu_time() - start
}

/// The milliseconds of a complete search, and its runs.
fn all_of_ours(program: impl Fn(&mut Kernel) -> Result<(), Error>) -> Vec<f64> {
    let start = cpu_time();
    let explored = check(program).without_environment().exhaustive().explore();
    let time = cpu_time() - start;
    assert!(explored.complete, "{explored}");
    vec![time.as_secs_f64() * 1e3, explored.schedules as f64]
}

/// Runs tasks to their ends, as children of one task.
fn family<F, const N: usize>(kernel: &mut Kernel, tasks: [F; N]) -> Result<(), Error>
where
    F: AsyncFnOnce(&mut Os) + 'static,
{
    kernel.spawn("main", async move |os: &mut Os| {
        wait_all(os, tasks).await.expect(ROOM);
    })?;
    kernel.run().map(drop)
}

async fn wait_all<F, const N: usize>(os: &mut Os, tasks: [F; N]) -> Result<(), Errno>
where
    F: AsyncFnOnce(&mut Os) + 'static,
{
    let mut all = [Tid::KERNEL; N];
    for (tid, task) in all.iter_mut().zip(tasks) {
        *tid = os.spawn("task", task).await?;
    }
    for task in &all {
        os.wait(*task).await?;
    }
    Ok(())
}

fn counter(kernel: &mut Kernel) -> Result<(), Error> {
    let sum = Rc::new(Cell::new(0));
    let count = || {
        let sum = Rc::clone(&sum);
        async move |os: &mut Os| {
            let read = sum.get();
            os.yield_now().await;
            sum.set(read + 1);
        }
    };
    family(kernel, [count(), count()])
}

fn shared_counter(kernel: &mut Kernel) -> Result<(), Error> {
    let sum = Shared::new(0);
    for _ in 0..2 {
        let sum = sum.clone();
        kernel.spawn("counter", async move |os: &mut Os| {
            for _ in 0..2 {
                let read = sum.get();
                os.yield_now().await;
                sum.set(read + 1);
                os.yield_now().await;
            }
        })?;
    }
    kernel.run().map(drop)
}

fn buffer(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn("main", async |os: &mut Os| {
        let (full, changed) = (Mutex::new(os, false).await, Condition::new(os).await);
        let turns = |when: bool, times: usize| {
            let (full, changed) = (full.clone(), changed.clone());
            async move |os: &mut Os| {
                for _ in 0..times {
                    let mut is_full = full.lock(os).await.expect("no task dies");
                    while *is_full != when {
                        is_full = changed.wait(os, is_full).await.expect("no task dies");
                    }
                    *is_full = !when;
                    changed.notify_all(os).await;
                }
            }
        };
        let tasks = [
            turns(true, BUFFERED),
            turns(true, BUFFERED),
            turns(false, 2 * BUFFERED),
        ];
        wait_all(os, tasks).await.expect(ROOM);
    })?;
    kernel.run().map(drop)
}

fn locks(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn("main", async |os: &mut Os| {
        let (a, b) = (Mutex::new(os, 0).await, Mutex::new(os, 0).await);
        let both = || {
            let (a, b) = (a.clone(), b.clone());
            async move |os: &mut Os| {
                let mut a = a.lock(os).await.expect("no task dies");
                let mut b = b.lock(os).await.expect("no task dies");
                *a += 1;
                *b += 1;
            }
        };
        wait_all(os, [both(), both()]).await.expect(ROOM);
    })?;
    kernel.run().map(drop)
}

fn yields(kernel: &mut Kernel) -> Result<(), Error> {
    let one = || {
        async move |os: &mut Os| {
            for _ in 0..YIELDS {
                os.yield_now().await;
            }
        }
    };
    family(kernel, [(); YIELDING].map(|()| one()))
}

/// Philosophers around a table, one of them left-handed.
fn dining<const COUNT: usize>(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn("main", async move |os: &mut Os| {
        let mut forks = Vec::new();
        for _ in 0..COUNT {
            forks.push(Mutex::new(os, ()).await);
        }
        let dine = |at: usize| {
            let (first, second) = hands(at, COUNT);
            let (first, second) = (forks[first].clone(), forks[second].clone());
            async move |os: &mut Os| {
                let _first = first.lock(os).await;
                let _second = second.lock(os).await;
            }
        };
        wait_all(os, array::from_fn::<_, COUNT, _>(dine))
            .await
            .expect(ROOM);
    })?;
    kernel.run().map(drop)
}

/// The forks of a philosopher, in the order in which they are taken.
fn hands(at: usize, count: usize) -> (usize, usize) {
    match at {
        0 => (1 % count, 0),
        _ => (at, (at + 1) % count),
    }
}

// ---- the peers

/// The CPU time of so many random schedules.
fn shuttle(schedules: usize, program: fn()) -> Duration {
    let scheduler = shuttle::scheduler::RandomScheduler::new(schedules);
    let start = cpu_time();
    shuttle::Runner::new(scheduler, quiet()).run(program);
    cpu_time() - start
}

fn quiet() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    config.failure_persistence = shuttle::FailurePersistence::None;
    config
}

/// The milliseconds of all schedules, and their number.
fn all_of_shuttle(program: impl Fn() + Send + Sync + 'static) -> Vec<f64> {
    let scheduler = shuttle::scheduler::DfsScheduler::new(Some(MOST), false);
    let start = cpu_time();
    let runs = shuttle::Runner::new(scheduler, quiet()).run(program);
    let time = cpu_time() - start;
    assert!(runs < MOST, "{runs} runs are not all");
    vec![time.as_secs_f64() * 1e3, runs as f64]
}

/// The same by loom, which leaves out equivalent schedules, too.
fn all_of_loom(program: impl Fn() + Send + Sync + 'static) -> Vec<f64> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    RUNS.store(0, Ordering::Relaxed);
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.max_permutations = Some(MOST);
    let start = cpu_time();
    builder.check(move || {
        RUNS.fetch_add(1, Ordering::Relaxed);
        program();
    });
    let time = cpu_time() - start;
    let runs = RUNS.load(Ordering::Relaxed);
    assert!(runs < MOST as u64, "{runs} runs are not all");
    vec![time.as_secs_f64() * 1e3, runs as f64]
}

/// The programs, over the types of a peer.
macro_rules! programs {
    ($peer:ident) => {
        use $peer::{
            sync::{
                Arc, Mutex,
                atomic::{AtomicU64, Ordering::SeqCst},
            },
            thread,
        };

        use super::hands;

        pub(super) fn count(tasks: usize, times: usize) {
            let sum = Arc::new(AtomicU64::new(0));
            let start = |_| {
                let sum = Arc::clone(&sum);
                thread::spawn(move || {
                    for _ in 0..times {
                        let read = sum.load(SeqCst);
                        sum.store(read + 1, SeqCst);
                    }
                })
            };
            join((0..tasks).map(start).collect());
        }

        #[allow(dead_code, reason = "one of the peers needs too many runs")]
        pub(super) fn dining(count: usize) {
            let forks: Vec<_> = (0..count).map(|_| Arc::new(Mutex::new(()))).collect();
            let start = |at: usize| {
                let (first, second) = hands(at, count);
                let (first, second) = (Arc::clone(&forks[first]), Arc::clone(&forks[second]));
                thread::spawn(move || {
                    let _first = first.lock();
                    let _second = second.lock();
                })
            };
            join((0..count).map(start).collect());
        }

        fn join(threads: Vec<thread::JoinHandle<()>>) {
            for thread in threads {
                thread.join().expect("no thread panics");
            }
        }
    };
}

mod loomed {
    programs!(loom);
}

mod shuttled {
    programs!(shuttle);

    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use shuttle::{future, sync::Condvar};

    use super::{BUFFERED, YIELDING, YIELDS};

    pub(super) fn counter() {
        count(2, 1);
    }

    /// The number itself is no point of the schedule, as in trapline's program.
    pub(super) fn counter_of_futures() {
        let sum = Arc::new(AtomicU32::new(0));
        let start = |_| {
            let sum = Arc::clone(&sum);
            future::spawn(async move {
                let read = sum.load(Relaxed);
                future::yield_now().await;
                sum.store(read + 1, Relaxed);
            })
        };
        let tasks: Vec<_> = (0..2).map(start).collect();
        future::block_on(async {
            for task in tasks {
                task.await.expect("no task panics");
            }
        });
    }

    pub(super) fn buffer() {
        let full = Arc::new((Mutex::new(false), Condvar::new()));
        let start = |(when, times): (bool, usize)| {
            let full = Arc::clone(&full);
            thread::spawn(move || {
                let (full, changed) = &*full;
                for _ in 0..times {
                    let mut is_full = full.lock().expect("no thread panics");
                    while *is_full != when {
                        is_full = changed.wait(is_full).expect("no thread panics");
                    }
                    *is_full = !when;
                    changed.notify_all();
                }
            })
        };
        let turns = [(true, BUFFERED), (true, BUFFERED), (false, 2 * BUFFERED)];
        join(turns.into_iter().map(start).collect());
    }

    pub(super) fn locks() {
        let (a, b) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let start = |_| {
            let (a, b) = (Arc::clone(&a), Arc::clone(&b));
            thread::spawn(move || {
                let mut a = a.lock().expect("no thread panics");
                let mut b = b.lock().expect("no thread panics");
                *a += 1;
                *b += 1;
            })
        };
        join((0..2).map(start).collect());
    }

    pub(super) fn yields() {
        let one = |_| {
            thread::spawn(|| {
                for _ in 0..YIELDS {
                    thread::yield_now();
                }
            })
        };
        join((0..YIELDING).map(one).collect());
    }

    pub(super) fn yields_of_futures() {
        let one = |_| {
            future::spawn(async {
                for _ in 0..YIELDS {
                    future::yield_now().await;
                }
            })
        };
        let tasks: Vec<_> = (0..YIELDING).map(one).collect();
        future::block_on(async {
            for task in tasks {
                task.await.expect("no task panics");
            }
        });
    }
}
