//! The exhaustive search: it runs one schedule of each causal order, and misses no outcome.

mod daemons;
pub(crate) mod every;
mod kept;
mod proved;
pub(crate) mod random;
pub(crate) mod rest;
mod services;
mod sharing;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use trapline::{
    Check, Errno, Error, Explored, IntoExit, Kernel, Os, Promise, Queue, Shared, Tid, check,
    sync::{Barrier, Condition, Flag, Group, Mutex, Semaphore},
};

use every::every;
use proved::unseen;

use crate::support::{spin, two_counters};

type Body = fn(&mut Kernel) -> Result<(), Error>;
type Boot = fn(&mut Kernel) -> Result<Tid, Errno>;

fn exhaustive(body: impl Fn(&mut Kernel) -> Result<(), Error>) -> Explored {
    let explored = check(body).exhaustive().explore();
    assert_eq!(explored.failure, None);
    assert!(explored.complete);
    assert_eq!(
        explored.schedules, explored.classes,
        "no causal order runs twice"
    );
    explored
}

/// The same, and compares its outcomes with those of all schedules.
fn exact(body: impl Fn(&mut Kernel) -> Result<(), Error>) -> Explored {
    let explored = exhaustive(&body);
    let all = check(&body).preemptions(usize::MAX).explore();
    assert_eq!(all.failure, None);
    assert!(all.complete);
    assert_eq!(explored.outcomes, all.outcomes);
    assert!(explored.schedules <= all.schedules);
    explored
}

/// Compares the outcomes of a search with those of all schedules on kernels that no search makes.
fn exact_beside_every(program: impl Fn(&mut Kernel) -> Result<String, Error>) -> Explored {
    let explored = exhaustive(|kernel| {
        let outcome = program(kernel)?;
        kernel.outcome(outcome);
        Ok(())
    });
    let all = every(u64::MAX, program);
    assert_eq!(explored.outcomes, all.outcomes);
    explored
}

/// Names the end of a run: a deadlock is one.
fn ended(kernel: &mut Kernel, outcome: impl FnOnce() -> String) -> Result<(), Error> {
    match kernel.run() {
        Ok(_) => kernel.outcome(outcome()),
        Err(Error::Deadlock(_)) => kernel.outcome(format!("deadlock {}", outcome())),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Runs a task with a text to which it and its children add. The outcome is that text.
fn noted<T: IntoExit>(
    kernel: &mut Kernel,
    main: impl AsyncFnOnce(&mut Os, Shared<String>) -> T + 'static,
) -> Result<(), Error> {
    let log = Shared::new(String::new());
    let theirs = log.clone();
    kernel.spawn("main", async move |os: &mut Os| main(os, theirs).await)?;
    ended(kernel, || log.get())
}

/// Starts two tasks that do the same. Returns them.
async fn both(os: &mut Os, program: impl AsyncFn(&mut Os, &'static str) + 'static) -> [Tid; 2] {
    let program = Rc::new(program);
    let mut all = [Tid::KERNEL; 2];
    for (tid, name) in all.iter_mut().zip(["a", "b"]) {
        let program = Rc::clone(&program);
        let spawned = os.spawn(name, async move |os: &mut Os| program(os, name).await);
        *tid = spawned.await.expect("there is room");
    }
    all
}

/// Starts two tasks that take two locks in opposite order. Each adds its name once it has both.
async fn opposite(os: &mut Os, log: Shared<String>) -> [Tid; 2] {
    let (a, b) = (Mutex::new(os, ()).await, Mutex::new(os, ()).await);
    let lock = async move |os: &mut Os, name: &'static str| {
        let (first, second) = if name == "a" { (&a, &b) } else { (&b, &a) };
        let _first = first.lock(os).await;
        let _second = second.lock(os).await;
        log.update(|log| *log += name);
    };
    both(os, lock).await
}

/// Philosophers around a table, one of them left-handed. The outcome is the first to eat at each
/// fork.
fn dining(count: usize) -> impl Fn(&mut Kernel) -> Result<(), Error> {
    move |kernel| {
        let eaten = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&eaten);
        kernel.spawn("main", async move |os: &mut Os| {
            let mut forks = Vec::new();
            for _ in 0..count {
                forks.push(Mutex::new(os, None).await);
            }
            let mut all = Vec::new();
            for at in 0..count {
                let (mut left, mut right) = (forks[at].clone(), forks[(at + 1) % count].clone());
                if at == 0 {
                    std::mem::swap(&mut left, &mut right);
                }
                let dine = async move |os: &mut Os| {
                    let mut left = left.lock(os).await.expect("no one dies");
                    let mut right = right.lock(os).await.expect("no one dies");
                    left.get_or_insert(at);
                    right.get_or_insert(at);
                };
                all.push(os.spawn("philosopher", dine).await?);
            }
            for philosopher in all {
                os.wait(philosopher).await?;
            }
            for fork in forks {
                let first = *fork.lock(os).await.expect("no one dies");
                log.borrow_mut().push(first);
            }
            Ok::<(), Errno>(())
        })?;
        kernel.run()?.check()?;
        kernel.outcome(format!("{:?}", eaten.borrow()));
        Ok(())
    }
}

#[test]
fn philosophers_dine_in_each_order_once() {
    let explored = exhaustive(dining(3));
    assert_eq!(explored.schedules, 6);
    let explored = exhaustive(dining(5));
    assert_eq!(explored.schedules, 30);
    let explored = exhaustive(dining(6));
    assert_eq!(explored.schedules, 62);
}

/// Tasks that read a shared number, trap, and write it back one higher, some times each.
fn counter(tasks: usize, times: usize) -> impl Fn(&mut Kernel) -> Result<(), Error> {
    move |kernel| {
        let sum = Shared::new(0);
        for _ in 0..tasks {
            let sum = sum.clone();
            kernel.spawn("counter", async move |os: &mut Os| {
                for _ in 0..times {
                    let read = sum.get();
                    os.yield_now().await;
                    sum.set(read + 1);
                    os.yield_now().await;
                }
            })?;
        }
        kernel.run()?;
        kernel.outcome(sum.get().to_string());
        Ok(())
    }
}

#[test]
fn a_counter_is_run_in_each_order_once() {
    let explored = exact(counter(2, 1));
    assert!(explored.outcomes.iter().eq(["1", "2"]));
    let explored = exact(counter(2, 2));
    assert!(explored.outcomes.iter().eq(["2", "3", "4"]));
}

#[test]
fn three_tasks_count_to_two() {
    let explored = exhaustive(counter(3, 2));
    assert_eq!(explored.schedules, 7134);
    assert!(explored.outcomes.iter().eq(["2", "3", "4", "5", "6"]));
}

/// Producers and consumers at a queue.
fn producers(
    producers: usize,
    each: usize,
    consumers: usize,
    room: usize,
) -> impl Fn(&mut Kernel) -> Result<(), Error> {
    move |kernel| {
        let got = Rc::new(RefCell::new(vec![String::new(); consumers]));
        let log = Rc::clone(&got);
        kernel.spawn("main", async move |os: &mut Os| {
            let queue = Queue::bounded(os, room).await;
            for at in 0..producers {
                let queue = queue.clone();
                let produce = async move |os: &mut Os| {
                    for n in 0..each {
                        let _ = queue.put(os, (at, n)).await;
                    }
                };
                os.spawn("producer", produce).await?;
            }
            let mut all = Vec::new();
            for at in 0..consumers {
                let (queue, log) = (queue.clone(), Rc::clone(&log));
                let consume = async move |os: &mut Os| {
                    for _ in 0..producers * each / consumers {
                        let (from, n) = queue.get(os).await.expect("it is open");
                        log.borrow_mut()[at] += &format!("{from}{n} ");
                    }
                };
                all.push(os.spawn("consumer", consume).await?);
            }
            for task in all {
                os.wait(task).await?;
            }
            Ok::<(), Errno>(())
        })?;
        kernel.run()?.check()?;
        kernel.outcome(got.borrow().join("|"));
        Ok(())
    }
}

#[test]
fn producers_and_consumers_meet_in_each_order_once() {
    for room in 0..3 {
        // Six orders of the puts, and six of the gets. Each producer ends before its parent or
        // after it.
        assert_eq!(exhaustive(producers(2, 2, 2, room)).schedules, 6 * 6 * 4);
    }
    let explored = exact(producers(2, 1, 1, 1));
    assert_eq!(explored.outcomes.len(), 2);
}

/// Two producers with two messages each, and two consumers that take until the queue is closed. Their
/// parent closes it when the producers have ended.
fn producers_until_closed(room: usize) -> impl Fn(&mut Kernel) -> Result<(), Error> {
    move |kernel| {
        kernel.spawn("main", async move |os: &mut Os| {
            let queue = Queue::bounded(os, room).await;
            let (mut producers, mut consumers) = (Vec::new(), Vec::new());
            for _ in 0..2 {
                let queue = queue.clone();
                let produce = async move |os: &mut Os| {
                    for n in 0..2 {
                        queue.put(os, n).await.expect("it is open");
                    }
                };
                producers.push(os.spawn("producer", produce).await?);
            }
            for _ in 0..2 {
                let queue = queue.clone();
                let consume = async move |os: &mut Os| while queue.get(os).await.is_ok() {};
                consumers.push(os.spawn("consumer", consume).await?);
            }
            for task in producers {
                os.wait(task).await?;
            }
            queue.close(os).await;
            for task in consumers {
                os.wait(task).await?;
            }
            Ok::<(), Errno>(())
        })?;
        kernel.run()?.check()
    }
}

#[test]
fn consumers_until_the_close_meet_in_each_order_once() {
    // Six orders of the puts. Each of the four messages goes to either consumer. The last gets of the
    // consumers come before the close or after it, in either order; with more room, so may the gets
    // of the messages that are still in the queue.
    for room in 0..=4 {
        let closes = 6 + 2 * room;
        let explored = exhaustive(producers_until_closed(room));
        assert_eq!(
            explored.schedules,
            6 * 16 * closes as u64,
            "room for {room}"
        );
    }
}

/// An address of this machine.
const HERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80));

/// Small programs of every kind, with all outcomes.
const PROGRAMS: &[(&str, Body)] = &[
    ("waits for one end", |kernel| {
        let log = Shared::new(String::new());
        let child = kernel.spawn("child", async |os: &mut Os| os.yield_now().await)?;
        for name in ["a", "b"] {
            let log = log.clone();
            kernel.spawn(name, async move |os: &mut Os| {
                let found = os.wait(child).await.is_ok();
                log.update(|log| *log += &format!("{name}{found} "));
            })?;
        }
        ended(kernel, || log.get())
    }),
    ("a child whose parent ends", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("parent", async move |os: &mut Os| {
            let log = mine.clone();
            let child = os
                .spawn("child", async move |os: &mut Os| os.yield_now().await)
                .await;
            let child = child.expect("there is room");
            os.spawn_detached("third", async move |os: &mut Os| {
                let found = os.wait(child).await.is_ok();
                log.update(|log| *log += &format!("{found}"));
            })
            .await
            .expect("there is room");
        })?;
        ended(kernel, || log.get())
    }),
    ("a kill", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        let victim = kernel.spawn("victim", async move |os: &mut Os| {
            for n in 0..2 {
                os.yield_now().await;
                mine.update(|log| *log += &format!("{n}"));
            }
        })?;
        kernel.spawn("killer", async move |os: &mut Os| {
            os.yield_now().await;
            os.kill(victim).await;
        })?;
        ended(kernel, || log.get())
    }),
    ("a kill at a wait", |kernel| {
        noted(kernel, async |os, log| {
            let child = os
                .spawn("child", async |os: &mut Os| os.yield_now().await)
                .await?;
            let wait = async move |os: &mut Os| drop(os.wait(child).await);
            let victim = os.spawn("victim", wait).await?;
            let kill = async move |os: &mut Os| {
                let _ = os.kill(victim).await;
            };
            os.spawn("killer", kill).await?;
            let ended = os.wait(victim).await?;
            let is_left = os.wait(child).await.is_ok();
            log.update(|log| *log += &format!("{ended} {is_left}"));
            Ok::<_, Errno>(())
        })
    }),
    ("a kill at a put", |kernel| {
        noted(kernel, async |os, log| {
            let queue = Queue::bounded(os, 1).await;
            let _ = queue.put(os, 1).await;
            let (puts, gets) = (queue.clone(), queue.clone());
            let put = async move |os: &mut Os| {
                os.yield_now().await;
                os.yield_now().await;
                assert!(puts.put(os, 2).await.is_ok());
            };
            let victim = os.spawn("victim", put).await?;
            let get = async move |os: &mut Os| assert!(gets.get(os).await.is_ok());
            os.spawn("getter", get).await?;
            let kill = async move |os: &mut Os| {
                let _ = os.kill(victim).await;
            };
            os.spawn("killer", kill).await?;
            let ended = os.wait(victim).await?;
            let last = queue.try_get(os).await;
            log.update(|log| *log += &format!("{ended} {last:?}"));
            Ok::<_, Errno>(())
        })
    }),
    ("a kill at a queue", |kernel| {
        noted(kernel, async |os, log| {
            let queue = Queue::bounded(os, 1).await;
            let source = queue.clone();
            let get = async move |os: &mut Os, name| {
                let got = queue.get(os).await;
                log.update(|log| *log += &format!("{name}{got:?} "));
            };
            let [first, _] = both(os, get).await;
            let put = async move |os: &mut Os| {
                let _ = source.put(os, 1).await;
                source.close(os).await;
            };
            os.spawn("put", put).await.expect("there is room");
            os.kill(first).await;
        })
    }),
    ("attempts at a queue", |kernel| {
        noted(kernel, async |os, log| {
            let queue = Queue::bounded(os, 1).await;
            let (puts, told) = (queue.clone(), log.clone());
            let put = async move |os: &mut Os, name| {
                let put = puts.try_put(os, 1).await.is_ok();
                told.update(|log| *log += &format!("{name}{put} "));
            };
            both(os, put).await;
            let _ = queue.get(os).await;
            let len = queue.len();
            log.update(|log| *log += &format!("{len} "));
        })
    }),
    ("locks in opposite order", |kernel| {
        noted(kernel, async |os, log| {
            opposite(os, log).await;
        })
    }),
    ("permits", |kernel| {
        noted(kernel, async |os, log| {
            let semaphore = Semaphore::new(os, 1).await;
            let take = async move |os: &mut Os, name| {
                let permit = semaphore.try_acquire(os).await;
                log.update(|log| *log += &format!("{name}{} ", permit.is_some()));
            };
            both(os, take).await;
        })
    }),
    ("a flag", |kernel| {
        noted(kernel, async |os, log| {
            let flag = Flag::new(os).await;
            let (set, wait, log) = (flag.clone(), flag.clone(), log.clone());
            let setter = async move |os: &mut Os| {
                set.set(os).await;
                set.clear(os).await;
            };
            os.spawn("set", setter).await.expect("there is room");
            let waiter = async move |os: &mut Os| {
                let is_set = wait.is_set();
                wait.wait(os).await;
                log.update(|log| *log += &format!("{is_set}"));
            };
            os.spawn("wait", waiter).await.expect("there is room");
        })
    }),
    ("a barrier", |kernel| {
        noted(kernel, async |os, log| {
            let barrier = Barrier::new(os, 2).await;
            let wait = async move |os: &mut Os, name| {
                let last = barrier.wait(os).await;
                log.update(|log| *log += &format!("{name}{last} "));
            };
            both(os, wait).await;
        })
    }),
    ("a condition", |kernel| {
        noted(kernel, async |os, log| {
            let (flag, set) = (Mutex::new(os, false).await, Condition::new(os).await);
            let (theirs, told, log) = (flag.clone(), set.clone(), log.clone());
            let waiter = async move |os: &mut Os| {
                // Wrong on purpose: the check and the wait are not one.
                let is_set = *theirs.lock(os).await.expect("no one dies");
                if !is_set {
                    let guard = theirs.lock(os).await.expect("no one dies");
                    let _ = told.wait(os, guard).await;
                }
                log.update(|log| *log += "told");
            };
            os.spawn("waiter", waiter).await.expect("there is room");
            let setter = async move |os: &mut Os| {
                *flag.lock(os).await.expect("no one dies") = true;
                set.notify_one(os).await;
            };
            os.spawn("setter", setter).await.expect("there is room");
        })
    }),
    ("a promise", |kernel| {
        noted(kernel, async |os, log| {
            let (setter, promise) = Promise::new(os).await;
            for n in 1..=2 {
                let (setter, log) = (setter.clone(), log.clone());
                let set = async move |os: &mut Os| {
                    let set = setter.set(os, n).await.is_ok();
                    log.update(|log| *log += &format!("{n}{set} "));
                };
                os.spawn("set", set).await.expect("there is room");
            }
            let early = promise.get();
            let value = promise.wait(os).await;
            log.update(|log| *log += &format!("{early:?}{value:?} "));
        })
    }),
    ("a group", |kernel| {
        noted(kernel, async |os, log| {
            let mut group = Group::new(os).await;
            for n in 0..2 {
                let member = async move |os: &mut Os| os.yield_now().await;
                let _ = group.spawn(os, format!("{n}"), member).await;
            }
            let first = group.first(os).await.map(|(tid, _)| tid);
            log.update(|log| *log += &format!("{first:?}"));
        })
    }),
    ("random numbers", |kernel| {
        let log = Shared::new(String::new());
        for name in ["a", "b"] {
            let log = log.clone();
            kernel.spawn(name, async move |os: &mut Os| {
                let drawn = os.random().await % 1000;
                log.update(|log| *log += &format!("{name}{drawn} "));
            })?;
        }
        ended(kernel, || log.get())
    }),
    ("sleeps and timeouts", |kernel| {
        let log = Shared::new(String::new());
        for (name, span) in [("a", 1), ("b", 1), ("c", 2)] {
            let log = log.clone();
            kernel.spawn(name, async move |os: &mut Os| {
                let span = Duration::from_millis(span);
                let sleep = async |os: &mut Os| os.sleep(span).await;
                let cut = os.timeout(Duration::from_millis(1), sleep).await.is_err();
                log.update(|log| *log += &format!("{name}{cut} "));
            })?;
        }
        ended(kernel, || log.get())
    }),
    ("a list of tasks", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("ps", async move |os: &mut Os| {
            let tasks = os.tasks().await.len();
            mine.update(|log| *log += &format!("{tasks}"));
        })?;
        kernel.spawn("other", async |os: &mut Os| os.yield_now().await)?;
        ended(kernel, || log.get())
    }),
    ("a shutdown", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("a", async move |os: &mut Os| {
            os.yield_now().await;
            mine.update(|log| *log += "a");
        })?;
        kernel.spawn("b", async |os: &mut Os| {
            os.shutdown().await;
        })?;
        ended(kernel, || log.get())
    }),
    ("an accept and a close", |kernel| {
        noted(kernel, async |os, log| {
            let listener = os.listen(HERE).await.expect("the port is free");
            let theirs = listener.clone();
            let accept = async move |os: &mut Os| {
                let accepted = theirs.accept(os).await.map(drop);
                log.update(|log| *log += &format!("{accepted:?}"));
            };
            os.spawn("accept", accept).await.expect("there is room");
            let close = async move |os: &mut Os| {
                os.yield_now().await;
                listener.close(os).await.expect("it is open");
            };
            os.spawn("close", close).await.expect("there is room");
        })
    }),
    ("two accepts and a kill", |kernel| {
        noted(kernel, async |os, log| {
            let listener = os.listen(HERE).await.expect("the port is free");
            let accept = async move |os: &mut Os, name| {
                let accepted = listener.accept(os).await.map(drop);
                log.update(|log| *log += &format!("{name}{accepted:?} "));
            };
            let [first, _] = both(os, accept).await;
            os.kill(first).await;
        })
    }),
    ("clones of a listener", |kernel| {
        noted(kernel, async |os, log| {
            let listener = os.listen(HERE).await.expect("the port is free");
            for _ in 0..2 {
                let theirs = listener.clone();
                let drops = async move |os: &mut Os| {
                    os.yield_now().await;
                    drop(theirs);
                    os.yield_now().await;
                };
                os.spawn("drop", drops).await.expect("there is room");
            }
            drop(listener);
            let again = os.listen(HERE).await.map(drop).is_ok();
            log.update(|log| *log += &format!("{again}"));
        })
    }),
    ("locks in opposite order, beside another task", |kernel| {
        noted(kernel, async |os, log| {
            opposite(os, log.clone()).await;
            let beside = async move |os: &mut Os| {
                for n in 0..2 {
                    log.update(|log| *log += &format!("{n}"));
                    os.yield_now().await;
                }
            };
            os.spawn("beside", beside).await.expect("there is room");
        })
    }),
    ("locks in opposite order, and a kill", |kernel| {
        noted(kernel, async |os, log| {
            let [first, _] = opposite(os, log).await;
            let kill = async move |os: &mut Os| {
                os.kill(first).await;
            };
            os.spawn("kill", kill).await.expect("there is room");
        })
    }),
    ("a host that stops early", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("long", async move |os: &mut Os| {
            for n in 0..3 {
                mine.update(|log| *log += &format!("{n}"));
                os.yield_now().await;
            }
        })?;
        let short = kernel.spawn("short", async |os: &mut Os| os.yield_now().await)?;
        kernel.run_until(&[short])?;
        kernel.outcome(log.get());
        Ok(())
    }),
    ("a host that goes step by step", |kernel| {
        let log = Shared::new(String::new());
        let mut seen = String::new();
        for name in ["a", "b"] {
            let log = log.clone();
            kernel.spawn(name, async move |os: &mut Os| {
                log.update(|log| *log += name);
                os.yield_now().await;
            })?;
        }
        for _ in 0..3 {
            kernel.step()?;
            seen += &format!("{} ", log.get());
        }
        kernel.outcome(seen);
        Ok(())
    }),
];

#[test]
fn no_outcome_is_missed() {
    for (name, body) in PROGRAMS {
        println!("{name}");
        let explored = exact(body);
        println!(
            "  {} schedules, {:?}",
            explored.schedules, explored.outcomes
        );
    }
}

/// The parts of a search are disjoint, and together they are the whole.
fn assert_divides(name: &str, body: impl Fn(&mut Kernel) -> Result<(), Error> + Sync) {
    let whole = check(&body).exhaustive().explore();
    let mut union = BTreeSet::new();
    let mut schedules = 0;
    for number in 1..=3 {
        let part = check(&body).exhaustive().shard(number, 3).explore();
        assert_eq!(part.failure, None, "{name}");
        assert!(part.complete, "{name}: {part}");
        assert_eq!(part.schedules, part.classes, "{name}");
        schedules += part.schedules;
        union.extend(part.outcomes);
    }
    assert_eq!(
        (schedules, &union),
        (whole.schedules, &whole.outcomes),
        "{name}"
    );
    let threads = check(&body).exhaustive().threads(2).explore();
    assert!(threads.complete, "{name}");
    assert_eq!(
        (threads.schedules, threads.classes, &threads.outcomes),
        (whole.schedules, whole.classes, &whole.outcomes),
        "{name}"
    );
}

#[test]
fn a_search_is_divided_into_disjoint_parts() {
    for (name, body) in PROGRAMS {
        assert_divides(name, body);
    }
    assert_divides("philosophers", dining(5));
    assert_divides("producers", producers(2, 2, 2, 1));
    assert_divides("a counter", counter(2, 2));
}

#[test]
fn schedules_with_few_preemptions_are_divided_as_well() {
    let whole = check(counter(2, 1)).preemptions(2).explore();
    let mut schedules = 0;
    let mut union = BTreeSet::new();
    for number in 1..=3 {
        let part = check(counter(2, 1))
            .preemptions(2)
            .shard(number, 3)
            .explore();
        schedules += part.schedules;
        union.extend(part.outcomes);
    }
    assert_eq!((schedules, &union), (whole.schedules, &whole.outcomes));
    let threads = check(counter(2, 1)).preemptions(2).threads(2).explore();
    assert_eq!(threads.schedules, whole.schedules);
    assert_eq!((threads.bound, threads.complete), (whole.bound, false));
}

#[test]
fn the_first_failure_is_the_same_on_any_number_of_threads() {
    let opposite = |kernel: &mut Kernel| {
        let order = Shared::new(String::new());
        for name in ["a", "b", "c"] {
            let order = order.clone();
            kernel.spawn(name, async move |os: &mut Os| {
                os.yield_now().await;
                order.update(|order| *order += name);
            })?;
        }
        kernel.run()?;
        assert_ne!(order.get(), "cba");
        Ok(())
    };
    let [one, two, all] = [1, 2, 0].map(|threads| {
        let explored = check(opposite).exhaustive().threads(threads).explore();
        (
            explored.failure.expect("an order is forbidden"),
            explored.schedules,
        )
    });
    assert_eq!(one, two);
    assert_eq!(one, all);
}

#[test]
fn a_long_search_reports_causal_orders_and_what_is_left() {
    let last = Arc::new(std::sync::Mutex::new(None));
    let told = Arc::clone(&last);
    let search = check(counter(4, 4)).exhaustive().progress(move |progress| {
        assert!(progress.classes == progress.schedules);
        *told.lock().expect("no thread panics") = progress.left;
    });
    let explored = search.time(Duration::from_millis(450)).explore();
    // The end may come within a schedule or after one.
    let bound = explored.bound.expect("it did not end");
    assert!(bound.starts_with("it ended after 450ms"), "{bound}");
    let left = last
        .lock()
        .expect("no thread panics")
        .expect("it has reported");
    assert!(left <= Duration::from_millis(250), "{left:?}");
}

/// The schedules that come before a division of the search are told as well.
#[test]
fn a_search_of_few_schedules_reports_progress() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    let slow = |kernel: &mut Kernel| {
        RUNS.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(20));
        counter(3, 2)(kernel)
    };
    let search = check(slow).exhaustive().threads(2).progress(|progress| {
        assert_eq!(progress.of, u64::MAX);
        IS_TOLD.store(progress.schedules > 0, Ordering::Relaxed);
    });
    let explored = search
        .stop_when(|| IS_TOLD.load(Ordering::Relaxed))
        .explore();
    let bound = explored.bound.expect("it did not end");
    assert!(bound.starts_with("it was interrupted"), "{bound}");
    assert!(explored.schedules > 0 && RUNS.load(Ordering::Relaxed) < 256);
}

#[test]
fn a_complete_search_promises_no_time() {
    static SEEN: AtomicBool = AtomicBool::new(false);
    let search = check(counter(4, 4)).exhaustive().progress(|progress| {
        assert_eq!((progress.of, progress.left), (u64::MAX, None));
        SEEN.store(true, Ordering::Relaxed);
    });
    let explored = search.stop_when(|| SEEN.load(Ordering::Relaxed)).explore();
    let bound = explored.bound.expect("it did not end");
    assert!(bound.starts_with("it was interrupted"), "{bound}");
    assert!(explored.schedules > 0);
}

#[test]
fn the_audit_finds_memory_that_the_search_does_not_see() {
    let hidden = check(|kernel| two_counters::<Rc<Cell<u32>>>(kernel).map(drop));
    let explored = hidden.exhaustive().explore();
    let failure = explored.failure.expect("two orders differ");
    assert!(
        failure
            .why
            .contains("the tasks share something that the search does not see"),
        "{failure}"
    );
    assert!(
        failure.why.contains("one:   passes: 1\n  other: passes: 2"),
        "{failure}"
    );
    assert!(failure.details.contains("; schedule 0."), "{failure}");
    assert!(!explored.complete);
}

#[test]
fn the_audit_finds_memory_that_few_orders_show() {
    // The order of the search loses no increment, and neither does that with the latest turn first.
    let failure = check(unseen(0, 2)).exhaustive().explore().failure;
    let why = failure.expect("two orders differ").why;
    assert!(
        why.contains("one:   passes: 2\n  other: passes: 1"),
        "{why}"
    );
}

#[test]
fn the_audit_names_the_schedule_of_which_two_orders_differ() {
    let hidden = check(|kernel| {
        let last = Shared::new("");
        for name in ["left", "right"] {
            let last = last.clone();
            kernel.spawn(name, async move |_: &mut Os| last.set(name))?;
        }
        kernel.run()?;
        match last.get() {
            // Not in the first schedule.
            "left" => unseen(0, 2)(kernel),
            _ => Ok(()),
        }
    });
    let failure = hidden.exhaustive().explore().failure;
    let details = failure.expect("two orders differ").details;
    assert!(details.starts_with("schedule 1 fails, "), "{details}");
}

#[test]
fn a_shard_without_a_part_is_not_complete_if_an_end_has_cut_the_division() {
    for search in [|| check(spins).exhaustive(), || check(spins).preemptions(1)] {
        for number in 1..=3 {
            let part = search().shard(number, 3).stop_when(|| true).explore();
            assert_eq!((part.complete, part.schedules), (false, 0), "{number}");
            assert_eq!(part.bound.as_deref(), Some("it was interrupted"));
        }
    }
}

fn spins(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn("main", spin)?;
    kernel.run().map(drop)
}

/// A search runs its first schedule before it begins, to see whether it can be repeated.
#[test]
fn a_failure_is_not_lost_if_the_time_ends_within_the_first_schedule() {
    const TIME: Duration = Duration::from_millis(1);
    fn slow(program: Boot) -> Check<impl Fn(&mut Kernel) -> Result<(), Error>> {
        let slow = check(move |kernel| {
            let begun = Instant::now();
            while begun.elapsed() <= TIME {}
            program(kernel)?;
            kernel.run()?.check()
        });
        slow.time(TIME).steps(20)
    }
    let fails: Boot = |kernel| kernel.spawn("main", async |_: &mut Os| panic!("found"));
    for search in [slow(fails).exhaustive(), slow(fails).preemptions(1)] {
        let failure = search.explore().failure.expect("it fails");
        assert!(failure.why.contains("found"), "{failure}");
    }
    // The search cuts a schedule of so many turns, which is no failure.
    let spins: Boot = |kernel| kernel.spawn("main", spin);
    for search in [slow(spins).exhaustive(), slow(spins).preemptions(1)] {
        assert_eq!(search.explore().failure, None);
    }
}

#[test]
fn an_exhaustive_search_finds_the_failing_schedule() {
    let failing = check(|kernel| {
        let log = Shared::new(String::new());
        let main = async |os: &mut Os| {
            opposite(os, log).await;
        };
        kernel.spawn("main", main)?;
        kernel.run().map(drop)
    });
    let explored = failing.exhaustive().explore();
    let failure = explored.failure.expect("they lock each other out");
    assert!(failure.why.contains("deadlock"), "{failure}");
    assert!(!explored.complete);
}

#[test]
fn a_bounded_search_is_not_complete() {
    let explored = check(counter(3, 2)).exhaustive().schedules(100).explore();
    assert_eq!((explored.schedules, explored.complete), (100, false));
    assert_eq!(
        explored.to_string(),
        "100 schedules pass; the search is not complete: it ended after 100 schedules"
    );
    let explored = check(counter(2, 1)).preemptions(1).explore();
    assert!(!explored.complete);
    let bound = explored.bound.expect("there are others");
    assert_eq!(bound, "only schedules with at most 1 preemption ran");
    let endless = check(|kernel| {
        let is_set = Shared::new(false);
        let flag = is_set.clone();
        kernel.spawn("spin", async move |os: &mut Os| {
            while !flag.get() {
                os.yield_now().await;
            }
        })?;
        kernel.spawn("set", async move |_: &mut Os| is_set.set(true))?;
        kernel.run().map(drop)
    });
    let explored = endless.exhaustive().steps(20).explore();
    assert_eq!((&explored.failure, explored.complete), (&None, false));
    assert!(explored.schedules > 5);
    let bound = explored.bound.expect("some are longer");
    assert_eq!(bound, "schedules of more than 20 turns were cut");
}

#[test]
fn schedules_that_are_cut_count_for_the_limit_of_schedules() {
    let polling = || {
        check(|kernel| {
            let polls = Shared::new(0);
            for name in ["left", "right"] {
                let polls = polls.clone();
                kernel.spawn(name, async move |os: &mut Os| {
                    loop {
                        polls.update(|polls| *polls += 1);
                        os.yield_now().await;
                    }
                })?;
            }
            kernel.run().map(drop)
        })
        .steps(30)
        .schedules(5)
        .time(Duration::from_secs(60))
    };
    for search in [polling().exhaustive(), polling().preemptions(2)] {
        let explored = search.explore();
        assert_eq!((&explored.failure, explored.schedules), (&None, 0));
        let bound = explored.bound.expect("all are longer");
        let expected = "schedules of more than 30 turns were cut; it ended after 5 schedules";
        assert_eq!(bound, expected);
    }
}

#[test]
fn hidden_nondeterminism_ends_an_exhaustive_search() {
    let runs = Cell::new(0);
    let hidden = check(|kernel| {
        runs.set(runs.get() + 1);
        let (sum, is_odd) = (Shared::new(0), runs.get() > 3 && runs.get() % 2 == 1);
        for name in ["left", "right"] {
            let sum = sum.clone();
            kernel.spawn(name, async move |os: &mut Os| {
                sum.set(1);
                if !is_odd {
                    os.yield_now().await;
                    sum.set(2);
                }
            })?;
        }
        kernel.run().map(drop)
    });
    let failure = hidden.exhaustive().explore().failure.expect("runs differ");
    let is_named = failure.why.contains("nondeterminism") || failure.why.contains("does not see");
    assert!(is_named, "{failure}");
}

#[test]
fn a_search_of_preemptions_notices_hidden_nondeterminism_and_threads() {
    let runs = Cell::new(0);
    let changes = |kernel: &mut Kernel| {
        let traps = runs.replace(runs.get() + 1);
        let program = async move |os: &mut Os| {
            for _ in 0..traps {
                os.get_tid().await;
            }
        };
        kernel.spawn("main", program)?;
        kernel.run().map(drop)
    };
    let found = check(changes)
        .preemptions(2)
        .without_environment()
        .explore();
    let why = found.failure.expect("two runs differ").why;
    assert!(why.contains("nondeterminism"), "{why}");

    let threaded = |kernel: &mut Kernel| {
        let program = async |os: &mut Os| {
            let (setter, promise) = Promise::new(os).await;
            let remote = setter.remote();
            let other = thread::spawn(move || remote.set(1));
            let _ = promise.wait(os).await;
            drop(other.join());
        };
        kernel.spawn("main", program)?;
        kernel.run().map(drop)
    };
    let found = check(threaded)
        .preemptions(2)
        .without_environment()
        .explore();
    assert!(!found.complete, "{found}");
}

#[test]
fn the_drop_of_a_last_setter_is_seen_beside_tasks_that_wait_for_one_another() {
    let explored = check(|kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            let (setter, _promise) = Promise::<u32>::new(os).await;
            let gate = Flag::new(os).await;
            for other in [None, Some(4_u64), Some(3)] {
                let (gate, setter) = (gate.clone(), setter.clone());
                let program = async move |os: &mut Os| {
                    gate.wait(os).await;
                    if other.is_some() {
                        drop(setter);
                    }
                    os.yield_now().await;
                    if let Some(other) = other {
                        let _ = os.wait(Tid::from(other)).await;
                    }
                };
                os.spawn("task", program).await.expect("there is room");
            }
            drop(setter);
            gate.set(os).await;
        })?;
        match kernel.run() {
            Err(Error::Deadlock(_)) => Ok(()),
            ran => ran.map(drop),
        }
    });
    let explored = explored.exhaustive().explore();
    assert!(
        explored.failure.is_none() && explored.complete,
        "{explored}"
    );
}

/// Three tasks, each with a lock, of which two want that of the next, and the third waits for the end
/// of the first. A fourth one kills the third.
fn chain(kernel: &mut Kernel) -> Result<String, Error> {
    let log = Shared::new(String::new());
    let mine = log.clone();
    kernel.spawn("main", async move |os: &mut Os| {
        let locks = [Mutex::new(os, ()).await, Mutex::new(os, ()).await];
        let last = Mutex::new(os, ()).await;
        let wanted = [locks[1].clone(), last.clone()];
        let first = Tid::from(2);
        for (lock, wanted) in locks.into_iter().zip(wanted) {
            let mut held = lock.lock(os).await.expect("it is new");
            let log = mine.clone();
            let wants = async move |os: &mut Os| {
                held.adopt(os);
                let got = wanted.lock(os).await.is_ok();
                log.update(|log| *log += &format!("{got} "));
            };
            os.spawn("wants", wants).await?;
        }
        let mut held = last.lock(os).await.expect("it is new");
        let waits = async move |os: &mut Os| {
            held.adopt(os);
            let _ = os.wait(first).await;
        };
        let third = os.spawn("waits", waits).await?;
        let kills = async move |os: &mut Os| {
            os.kill(third).await;
        };
        os.spawn("kills", kills).await.map(drop)
    })?;
    let end = match kernel.run() {
        Err(Error::Deadlock(deadlock)) => format!("{:?}", deadlock.cycles),
        ran => ran.map(|_| String::new())?,
    };
    Ok(format!("{}{end}", log.get()))
}

#[test]
fn a_kill_far_along_a_chain_of_waits_does_not_hide_the_cycle() {
    let explored = exact_beside_every(chain);
    let is_cycle = |outcome: &&String| outcome.contains('[');
    let cycles = explored.outcomes.iter().filter(is_cycle).count();
    assert!(cycles > 0 && cycles < explored.outcomes.len());
}

/// Two tasks that lock each other out, and one beside them. The test runs on after the deadlock.
#[test]
fn a_test_that_goes_on_after_a_deadlock_misses_no_outcome() {
    let explored = exact_beside_every(|kernel| {
        let turns = Shared::new(0);
        let counted = turns.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            opposite(os, Shared::new(String::new())).await;
            let count = async move |os: &mut Os| {
                for _ in 0..3 {
                    counted.update(|turns| *turns += 1);
                    os.yield_now().await;
                }
            };
            os.spawn("count", count).await.map(drop)
        })?;
        let mut ends = String::new();
        for _ in 0..2 {
            let end = match kernel.run() {
                Err(Error::Deadlock(deadlock)) => format!("{:?}", deadlock.cycles),
                ran => ran.map(|_| "done".to_string())?,
            };
            ends += &format!("{} {end} ", turns.get());
        }
        Ok(ends)
    });
    // The run stops after any number of turns beside the cycle, and the next run goes on.
    let cycles: Vec<_> = explored
        .outcomes
        .iter()
        .filter(|end| !end.contains("done"))
        .collect();
    assert_eq!(cycles.len(), 4, "{cycles:?}");
}

#[test]
fn a_test_may_look_at_what_a_deadlock_has_left() {
    let look = |kernel: &mut Kernel| {
        let number = Shared::new(0);
        let (written, found) = (number.clone(), Rc::new(RefCell::new(None)));
        let queue = Rc::clone(&found);
        kernel.spawn("main", async move |os: &mut Os| {
            let letters = Queue::unbounded(os).await;
            queue.replace(Some(letters.clone()));
            let write = async move |os: &mut Os| {
                written.set(1);
                let _ = letters.put(os, ()).await;
            };
            os.spawn("write", write).await?;
            for other in [4_u64, 3] {
                let wait = async move |os: &mut Os| {
                    let _ = os.wait(Tid::from(other)).await;
                };
                os.spawn("wait", wait).await?;
            }
            Ok::<(), Errno>(())
        })?;
        let end = match kernel.run() {
            Err(Error::Deadlock(_)) => "deadlock",
            ran => ran.map(|_| "done")?,
        };
        let letters = found.take().map(|queue: Queue<()>| queue.len());
        // Made by the test, whichever task ran last.
        let late = Shared::new(number.get());
        Ok(format!("{end} {letters:?} {}", late.get()))
    };
    exact_beside_every(look);
    let audited = check(|kernel| look(kernel).map(|outcome| kernel.outcome(outcome)));
    assert_eq!(audited.audit().schedules(50).explore().failure, None);
}

#[test]
fn a_closure_that_runs_another_kernel_than_its_own_is_refused() {
    fn work(kernel: &mut Kernel) -> Result<(), Error> {
        kernel.spawn("main", async |os: &mut Os| os.yield_now().await)?;
        kernel.run()?.check()
    }
    const CLOSURES: &[(&str, Body)] = &[
        ("replaces it", |kernel| {
            *kernel = Kernel::simulated(0);
            work(kernel)
        }),
        ("replaces it by a real one", |kernel| {
            *kernel = Kernel::real()?;
            work(kernel)
        }),
        ("replaces it after the run", |kernel| {
            work(kernel)?;
            *kernel = Kernel::simulated(0);
            Ok(())
        }),
        ("exchanges it for a while", |kernel| {
            let mut own = Kernel::simulated(0);
            std::mem::swap(kernel, &mut own);
            work(kernel)?;
            std::mem::swap(kernel, &mut own);
            Ok(())
        }),
        ("runs its own", |_| work(&mut Kernel::simulated(0))),
        ("steps through its own", |_| {
            let mut own = Kernel::simulated(0);
            own.spawn("main", async |os: &mut Os| os.yield_now().await)?;
            own.step().map(drop)
        }),
        ("runs its own beside it", |kernel| {
            work(&mut Kernel::simulated(0))?;
            work(kernel)
        }),
        ("makes it as new", |kernel| {
            kernel.reset(0)?;
            work(kernel)
        }),
    ];
    for (name, closure) in CLOSURES {
        let searches = [
            check(closure).random(),
            check(closure).pct(1),
            check(closure).random().audit(),
            check(closure).exhaustive(),
            check(closure).preemptions(1),
            check(closure).exhaustive().threads(2),
        ];
        for search in searches {
            let explored = search.schedules(20).explore();
            let why = explored.failure.expect(name).why;
            assert!(why.contains("has run another kernel"), "{name}: {why}");
        }
    }
    // One that is only made decides nothing.
    let harmless = check(|kernel| {
        let _unused = Kernel::simulated(0);
        work(kernel)
    });
    assert_eq!(harmless.exhaustive().explore().failure, None);
}

/// One task writes before the wait that closes the cycle in some schedules. In others that of the other
/// task closes it, and a third one may have read in between.
#[test]
fn either_wait_of_a_cycle_is_the_last_one_in_some_schedule() {
    let explored = exact_beside_every(|kernel| {
        let written = Shared::new(0);
        let read = Shared::new(None);
        let (value, result) = (written.clone(), read.clone());
        kernel.spawn("main", async move |os: &mut Os| {
            let (a, b) = (Mutex::new(os, ()).await, Mutex::new(os, ()).await);
            let (first, second) = (b.clone(), a.clone());
            let mine = value.clone();
            let locks = async move |os: &mut Os| {
                let _first = first.lock(os).await;
                // So that its wait comes first in the first schedule.
                os.yield_now().await;
                let _second = second.lock(os).await;
            };
            os.spawn("locks", locks).await?;
            let writes = async move |os: &mut Os| {
                let _first = a.lock(os).await;
                mine.set(1);
                let _second = b.lock(os).await;
            };
            os.spawn("writes", writes).await?;
            let reads = async move |_: &mut Os| result.set(Some(value.get()));
            os.spawn("reads", reads).await.map(drop)
        })?;
        let end = match kernel.run() {
            Err(Error::Deadlock(_)) => "deadlock",
            ran => ran.map(|_| "done")?,
        };
        Ok(format!("{end} {:?}", read.get()))
    });
    assert!(explored.outcomes.contains("deadlock Some(1)"));
}

#[test]
fn a_task_that_ends_makes_room_for_another_one() {
    let body = |kernel: &mut Kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            for _ in 0..3 {
                let spawned = os.spawn_detached("child", async |_| {}).await;
                mine.update(|log| *log += &format!("{} ", spawned.is_ok()));
            }
        })?;
        ended(kernel, || log.get())
    };
    let explored = check(body).max_tasks(3).exhaustive().explore();
    let all = check(body).max_tasks(3).preemptions(usize::MAX).explore();
    assert!(explored.complete && all.complete);
    assert_eq!(explored.outcomes, all.outcomes);
    assert_eq!(explored.outcomes.len(), 2);
}
