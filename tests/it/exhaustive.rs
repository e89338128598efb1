//! The exhaustive search: it runs one schedule of each causal order, and misses no outcome.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use trapline::{
    Errno, Error, Explored, Kernel, Os, Promise, Queue, Setter, Shared, check,
    sync::{Barrier, Condition, Flag, Group, Mutex, Semaphore},
};

use crate::support::two_counters;

type Body = fn(&mut Kernel) -> Result<(), Error>;

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

/// Names the end of a run: a deadlock is one.
fn ended(kernel: &mut Kernel, outcome: impl FnOnce() -> String) -> Result<(), Error> {
    match kernel.run() {
        Ok(_) => kernel.outcome(outcome()),
        Err(Error::Deadlock(_)) => kernel.outcome(format!("deadlock {}", outcome())),
        Err(error) => return Err(error),
    }
    Ok(())
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
    ("a kill at a queue", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let queue = Queue::bounded(os, 1).await;
            let mut all = Vec::new();
            for name in ["a", "b"] {
                let (queue, log) = (queue.clone(), mine.clone());
                let get = async move |os: &mut Os| {
                    let got = queue.get(os).await;
                    log.update(|log| *log += &format!("{name}{got:?} "));
                };
                all.push(os.spawn(name, get).await.expect("there is room"));
            }
            let source = queue.clone();
            let put = async move |os: &mut Os| {
                let _ = source.put(os, 1).await;
                source.close(os).await;
            };
            os.spawn("put", put).await.expect("there is room");
            os.kill(all[0]).await;
        })?;
        ended(kernel, || log.get())
    }),
    ("attempts at a queue", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let queue = Queue::bounded(os, 1).await;
            for name in ["a", "b"] {
                let (queue, log) = (queue.clone(), mine.clone());
                let put = async move |os: &mut Os| {
                    let put = queue.try_put(os, 1).await.is_ok();
                    log.update(|log| *log += &format!("{name}{put} "));
                };
                os.spawn(name, put).await.expect("there is room");
            }
            let _ = queue.get(os).await;
            let len = queue.len();
            mine.update(|log| *log += &format!("{len} "));
        })?;
        ended(kernel, || log.get())
    }),
    ("locks in opposite order", |kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            let (a, b) = (Mutex::new(os, ()).await, Mutex::new(os, ()).await);
            for (a, b) in [(a.clone(), b.clone()), (b, a)] {
                let lock = async move |os: &mut Os| {
                    let _a = a.lock(os).await;
                    let _b = b.lock(os).await;
                };
                os.spawn("locker", lock).await.expect("there is room");
            }
        })?;
        ended(kernel, String::new)
    }),
    ("permits", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let semaphore = Semaphore::new(os, 1).await;
            for name in ["a", "b"] {
                let (semaphore, log) = (semaphore.clone(), mine.clone());
                let take = async move |os: &mut Os| {
                    let permit = semaphore.try_acquire(os).await;
                    log.update(|log| *log += &format!("{name}{} ", permit.is_some()));
                };
                os.spawn(name, take).await.expect("there is room");
            }
        })?;
        ended(kernel, || log.get())
    }),
    ("a flag", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let flag = Flag::new(os).await;
            let (set, wait, log) = (flag.clone(), flag.clone(), mine.clone());
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
        })?;
        ended(kernel, || log.get())
    }),
    ("a barrier", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let barrier = Barrier::new(os, 2).await;
            for name in ["a", "b"] {
                let (barrier, log) = (barrier.clone(), mine.clone());
                let wait = async move |os: &mut Os| {
                    let last = barrier.wait(os).await;
                    log.update(|log| *log += &format!("{name}{last} "));
                };
                os.spawn(name, wait).await.expect("there is room");
            }
        })?;
        ended(kernel, || log.get())
    }),
    ("a condition", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let (flag, set) = (Mutex::new(os, false).await, Condition::new(os).await);
            let (theirs, told, log) = (flag.clone(), set.clone(), mine.clone());
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
        })?;
        ended(kernel, || log.get())
    }),
    ("a promise", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let (setter, promise) = Promise::new(os).await;
            for n in 1..=2 {
                let (setter, log) = (setter.clone(), mine.clone());
                let set = async move |os: &mut Os| {
                    let set = setter.set(os, n).await.is_ok();
                    log.update(|log| *log += &format!("{n}{set} "));
                };
                os.spawn("set", set).await.expect("there is room");
            }
            let early = promise.get();
            let value = promise.wait(os).await;
            mine.update(|log| *log += &format!("{early:?}{value:?} "));
        })?;
        ended(kernel, || log.get())
    }),
    ("a group", |kernel| {
        let log = Shared::new(String::new());
        let mine = log.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let mut group = Group::new(os).await;
            for n in 0..2 {
                let member = async move |os: &mut Os| os.yield_now().await;
                let _ = group.spawn(os, format!("{n}"), member).await;
            }
            let first = group.first(os).await.map(|(tid, _)| tid);
            mine.update(|log| *log += &format!("{first:?}"));
        })?;
        ended(kernel, || log.get())
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
    // No turn touches what another does, so there is one causal order. In it, and with the latest
    // turn first, no increment is lost.
    let hidden = check(|kernel| {
        let sum = Rc::new(Cell::new(0));
        for (name, rest) in [("left", 0), ("right", 2)] {
            let sum = Rc::clone(&sum);
            kernel.spawn(name, async move |os: &mut Os| {
                for _ in 0..rest {
                    os.yield_now().await;
                }
                let read = sum.get();
                os.yield_now().await;
                sum.set(read + 1);
            })?;
        }
        kernel.run()?;
        kernel.outcome(sum.get().to_string());
        Ok(())
    });
    let failure = hidden.exhaustive().explore().failure;
    let why = failure.expect("two orders differ").why;
    assert!(
        why.contains("one:   passes: 2\n  other: passes: 1"),
        "{why}"
    );
}

#[test]
fn an_exhaustive_search_finds_the_failing_schedule() {
    let failing = check(|kernel| {
        counter(2, 1)(kernel)?;
        Ok(())
    });
    assert!(failing.exhaustive().explore().failure.is_none());
    let failing = check(|kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            let (a, b) = (Mutex::new(os, ()).await, Mutex::new(os, ()).await);
            for (a, b) in [(a.clone(), b.clone()), (b, a)] {
                let lock = async move |os: &mut Os| {
                    let _a = a.lock(os).await;
                    let _b = b.lock(os).await;
                };
                os.spawn("locker", lock).await.expect("there is room");
            }
        })?;
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
fn outcomes_are_a_set() {
    let all: BTreeSet<String> = exhaustive(counter(2, 1)).outcomes;
    assert_eq!(all.len(), 2);
}

// ---- random programs

/// A call of a random program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(usize),
    Get(usize),
    TryPut(usize),
    TryGet(usize),
    Close(usize),
    Len(usize),
    Read,
    Write,
    Yield,
    Kill(usize),
    Wait(usize),
    Lock,
    Random,
    Sleep(u64),
    TimedGet(usize),
    Spawn,
    Child,
    Permit,
    TryPermit,
    SetFlag,
    ClearFlag,
    WaitFlag,
    Barrier,
    SetPromise,
    WaitPromise,
    WaitCondition,
    Notify,
    NotifyAll,
    Tasks,
    Exit,
    Shutdown,
}

/// Draws a number below `end`. (A linear congruential generator.)
fn draw(state: &mut u64, end: usize) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) % end as u64) as usize
}

fn step(state: &mut u64, tasks: usize) -> Step {
    let (queue, task) = (draw(state, 2), draw(state, tasks));
    match draw(state, 44) {
        0..3 => Step::Put(queue),
        3..6 => Step::Get(queue),
        6 => Step::TryPut(queue),
        7 => Step::TryGet(queue),
        8 => Step::Close(queue),
        9 => Step::Len(queue),
        10 | 11 => Step::Read,
        12 | 13 => Step::Write,
        14 => Step::Yield,
        15..18 => Step::Kill(task),
        18..21 => Step::Wait(task),
        21 | 22 => Step::Lock,
        23 => Step::Random,
        24 => Step::Sleep(1 + queue as u64),
        25 => Step::TimedGet(queue),
        26 | 27 => Step::Spawn,
        28 | 29 => Step::Child,
        30 => Step::Permit,
        31 => Step::TryPermit,
        32 => Step::SetFlag,
        33 => Step::ClearFlag,
        34 => Step::WaitFlag,
        35 => Step::Barrier,
        36 => Step::SetPromise,
        37 => Step::WaitPromise,
        38 => Step::WaitCondition,
        39 => Step::Notify,
        40 => Step::NotifyAll,
        41 => Step::Tasks,
        42 => Step::Exit,
        _ => Step::Shutdown,
    }
}

/// What the tasks of a random program share.
#[derive(Clone)]
struct World {
    queues: Vec<Queue<usize>>,
    lock: Mutex<usize>,
    told: Condition,
    permits: Semaphore,
    flag: Flag,
    barrier: Barrier,
    setter: Setter<usize>,
    promise: Promise<usize>,
    number: Shared<usize>,
    tids: Shared<Vec<trapline::Tid>>,
    logs: Rc<RefCell<Vec<String>>>,
}

impl World {
    async fn new(os: &mut Os, logs: Rc<RefCell<Vec<String>>>) -> Self {
        let (setter, promise) = Promise::new(os).await;
        // Main has the number 1, and its children those after it.
        let tids = (0..logs.borrow().len() as u64).map(|at| (at + 2).into());
        Self {
            queues: vec![Queue::bounded(os, 1).await, Queue::unbounded(os).await],
            lock: Mutex::new(os, 0).await,
            told: Condition::new(os).await,
            permits: Semaphore::new(os, 1).await,
            flag: Flag::new(os).await,
            barrier: Barrier::new(os, 2).await,
            setter,
            promise,
            number: Shared::new(0),
            tids: Shared::new(tids.collect()),
            logs,
        }
    }

    /// Runs the steps of a task. What each call returns goes to the task's own log.
    async fn run(&self, os: &mut Os, me: usize, steps: &[Step]) {
        for (at, step) in steps.iter().enumerate() {
            let text = match *step {
                Step::Put(_)
                | Step::Get(_)
                | Step::TryPut(_)
                | Step::TryGet(_)
                | Step::Close(_)
                | Step::Len(_)
                | Step::TimedGet(_) => self.at_queue(os, 10 * me + at, *step).await,
                Step::Lock
                | Step::Permit
                | Step::TryPermit
                | Step::SetFlag
                | Step::ClearFlag
                | Step::WaitFlag
                | Step::Barrier
                | Step::SetPromise
                | Step::WaitPromise
                | Step::WaitCondition
                | Step::Notify
                | Step::NotifyAll => self.at_lock(os, 10 * me + at, *step).await,
                Step::Exit => return,
                _ => self.with_tasks(os, 10 * me + at, *step).await,
            };
            self.logs.borrow_mut()[me] += &format!("{text} ");
        }
    }

    async fn at_queue(&self, os: &mut Os, message: usize, step: Step) -> String {
        match step {
            Step::Put(queue) => format!("{}", self.queues[queue].put(os, message).await.is_ok()),
            Step::Get(queue) => format!("{:?}", self.queues[queue].get(os).await),
            Step::TryPut(queue) => {
                format!("{}", self.queues[queue].try_put(os, message).await.is_ok())
            }
            Step::TryGet(queue) => format!("{:?}", self.queues[queue].try_get(os).await),
            Step::Len(queue) => format!("{}", self.queues[queue].len()),
            Step::TimedGet(queue) => {
                let get = async |os: &mut Os| self.queues[queue].get(os).await;
                format!("{:?}", os.timeout(Duration::from_millis(1), get).await)
            }
            Step::Close(queue) => {
                self.queues[queue].close(os).await;
                String::new()
            }
            _ => unreachable!("it is for a queue"),
        }
    }

    async fn at_lock(&self, os: &mut Os, message: usize, step: Step) -> String {
        match step {
            Step::Lock => {
                let mut held = self
                    .lock
                    .lock(os)
                    .await
                    .unwrap_or_else(|poisoned| poisoned.0);
                os.yield_now().await;
                *held += 1;
                format!("{}", *held)
            }
            Step::WaitCondition => {
                let held = self
                    .lock
                    .lock(os)
                    .await
                    .unwrap_or_else(|poisoned| poisoned.0);
                format!("{}", self.told.wait(os, held).await.is_ok())
            }
            Step::Permit => {
                let _permit = self.permits.acquire(os).await;
                format!("{}", os.now().await.as_millis())
            }
            Step::TryPermit => format!("{}", self.permits.try_acquire(os).await.is_some()),
            Step::Barrier => format!("{}", self.barrier.wait(os).await),
            Step::SetPromise => format!("{}", self.setter.set(os, message).await.is_ok()),
            Step::WaitPromise => format!("{:?}", self.promise.wait(os).await),
            Step::Notify => {
                self.told.notify_one(os).await;
                String::new()
            }
            Step::NotifyAll => {
                self.told.notify_all(os).await;
                String::new()
            }
            Step::SetFlag => {
                self.flag.set(os).await;
                String::new()
            }
            Step::ClearFlag => {
                self.flag.clear(os).await;
                String::new()
            }
            Step::WaitFlag => {
                let is_set = self.flag.is_set();
                self.flag.wait(os).await;
                format!("{is_set}")
            }
            _ => unreachable!("it is for a lock"),
        }
    }

    async fn with_tasks(&self, os: &mut Os, message: usize, step: Step) -> String {
        match step {
            Step::Read => format!("{}", self.number.get()),
            Step::Write => {
                self.number.set(message);
                String::new()
            }
            Step::Kill(task) => format!("{}", os.kill(self.tids.get()[task]).await),
            Step::Wait(task) => format!("{:?}", os.wait(self.tids.get()[task]).await),
            Step::Random => format!("{}", os.random().await % 100),
            Step::Sleep(millis) => {
                os.sleep(Duration::from_millis(millis)).await;
                format!("{}", os.now().await.as_millis())
            }
            Step::Spawn => {
                let number = self.number.clone();
                let write = async move |os: &mut Os| {
                    os.yield_now().await;
                    number.set(message);
                };
                format!("{:?}", os.spawn_detached("detached", write).await)
            }
            Step::Child => {
                let number = self.number.clone();
                let read = async move |_: &mut Os| number.get();
                match os.spawn_child("child", read).await {
                    Ok(mut child) => format!("{:?}", child.wait(os).await),
                    Err(error) => format!("{error}"),
                }
            }
            Step::Tasks => format!("{}", os.tasks().await.len()),
            Step::Shutdown => os.shutdown().await,
            _ => {
                os.yield_now().await;
                String::new()
            }
        }
    }
}

/// Runs a program of these tasks, as children of one task. The outcome is what each call returned.
fn program(tasks: &[Vec<Step>], kernel: &mut Kernel) -> Result<(), Error> {
    let logs = Rc::new(RefCell::new(vec![String::new(); tasks.len()]));
    let (all, tasks) = (Rc::clone(&logs), tasks.to_vec());
    kernel.spawn("main", async move |os: &mut Os| {
        let world = World::new(os, all).await;
        for (me, steps) in tasks.into_iter().enumerate() {
            let world = world.clone();
            let run = async move |os: &mut Os| world.run(os, me, &steps).await;
            os.spawn(format!("{me}"), run).await?;
        }
        Ok::<(), Errno>(())
    })?;
    let outcome = || format!("{:?}", logs.borrow());
    match kernel.run() {
        Ok(report) => kernel.outcome(format!("{}{}", outcome(), report.failures)),
        Err(Error::Deadlock(_)) => kernel.outcome(format!("deadlock {}", outcome())),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Draws a program: two or three tasks, of at most three or two steps.
fn drawn(seed: u64) -> Vec<Vec<Step>> {
    let mut state = seed.wrapping_mul(7919) + 1;
    let tasks = 2 + seed as usize % 2;
    let most = if tasks == 2 { 3 } else { 2 };
    let count = |state: &mut u64| 1 + draw(state, most);
    (0..tasks)
        .map(|_| {
            (0..count(&mut state))
                .map(|_| step(&mut state, tasks))
                .collect()
        })
        .collect()
}

/// Returns a number of the environment, for longer runs of the test below.
fn wanted(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Compares the search with all schedules that there are, up to a number.
#[test]
fn random_programs_have_no_other_outcome() {
    let first = wanted("TRAPLINE_FUZZ_FIRST", 0);
    let programs = wanted("TRAPLINE_FUZZ_PROGRAMS", 25);
    let schedules = wanted("TRAPLINE_FUZZ_SCHEDULES", 300);
    for seed in first..first + programs {
        let tasks = drawn(seed);
        let search = check(|kernel| program(&tasks, kernel)).exhaustive();
        let explored = search.schedules(schedules).explore();
        assert_eq!(explored.failure, None, "program {seed}: {tasks:?}");
        assert_eq!(
            explored.schedules, explored.classes,
            "program {seed}: {tasks:?}"
        );
        if !explored.complete {
            continue;
        }
        let parts = check(|kernel| program(&tasks, kernel))
            .exhaustive()
            .threads(1);
        let parts = parts.explore();
        assert_eq!(
            (parts.schedules, parts.classes, &parts.outcomes),
            (explored.schedules, explored.classes, &explored.outcomes),
            "program {seed}, in parts: {tasks:?}"
        );
        let search = check(|kernel| program(&tasks, kernel)).preemptions(usize::MAX);
        let all = search.schedules(schedules).explore();
        assert!(!all.complete || all.schedules >= explored.schedules);
        let missed: Vec<_> = all.outcomes.difference(&explored.outcomes).collect();
        assert!(missed.is_empty(), "program {seed}: {tasks:?}: {missed:?}");
        let invented: Vec<_> = explored.outcomes.difference(&all.outcomes).collect();
        let invented = invented.into_iter().filter(|_| all.complete);
        assert_eq!(invented.count(), 0, "program {seed}: {tasks:?}");
    }
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
            let other = std::thread::spawn(move || remote.set(1));
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
