//! Permits in batches, locks that readers share, and values that are watched, broadcast or made once.

use std::{collections::VecDeque, rc::Rc, time::Duration};

use trapline::{
    Either2, Elapsed, Error, Exit, Kernel, OnDeadlock, Os, Scope, Shared, Source, Tid, check,
    sync::{Broadcast, Flag, Missed, Once, RwLock, Semaphore, Watch},
};

use crate::support::{Diary, logged, sim, tid, unplaced, unscripted};

const MS: Duration = Duration::from_millis(1);

/// Runs a program alone, to a good end.
fn alone(program: impl AsyncFnOnce(&mut Os) + 'static) {
    let mut kernel = sim().build().unwrap();
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
}

async fn spawn(os: &mut Os, program: impl AsyncFnOnce(&mut Os) + 'static) -> Tid {
    os.spawn("task", program).await.unwrap()
}

// ---- permits in batches

#[test]
fn a_large_request_is_not_overtaken() {
    alone(async |os: &mut Os| {
        let (permits, diary) = (Semaphore::new(os, 4).await, Diary::default());
        let first = permits.acquire_many(os, 3).await.unwrap();
        assert_eq!((first.count(), permits.available()), (3, 1));
        for count in [2, 1, 4, 1] {
            let (permits, diary) = (permits.clone(), diary.clone());
            spawn(os, async move |os: &mut Os| {
                let permit = permits.acquire_many(os, count).await.unwrap();
                diary.note(format!("{count}"));
                os.sleep(MS).await;
                drop(permit);
            })
            .await;
        }
        os.sleep(MS).await;
        // One is left, and the second request is for one: it waits behind the first.
        assert_eq!((permits.available(), diary.text()), (0, String::new()));
        assert!(permits.try_acquire(os).await.is_none());
        drop(first);
        os.sleep(MS / 2).await;
        assert_eq!(diary.text(), "2, 1");
        os.sleep(10 * MS).await;
        assert_eq!(diary.text(), "2, 1, 4, 1");
        assert_eq!(permits.available(), 4);
        assert!(permits.try_acquire_many(os, 5).await.is_none());
        drop(permits.try_acquire_many(os, 0).await.unwrap());
        assert_eq!(permits.try_acquire_many(os, 4).await.unwrap().count(), 4);
    });
}

#[test]
fn a_request_that_is_cut_lets_those_behind_it_go() {
    for cut in 0..3 {
        alone(async move |os: &mut Os| {
            let permits = Semaphore::new(os, 2).await;
            let one = permits.acquire(os).await.unwrap();
            let (scope, theirs) = (Scope::new(), permits.clone());
            let within = scope.clone();
            let large = spawn(os, async move |os: &mut Os| {
                let all = async |os: &mut Os| theirs.acquire_many(os, 2).await.map(drop);
                let timed = async |os: &mut Os| os.timeout(4 * MS, all).await.is_err();
                assert_ne!(within.run(os, timed).await, Ok(false));
            })
            .await;
            os.sleep(MS).await;
            let theirs = permits.clone();
            let small = spawn(os, async move |os: &mut Os| {
                drop(theirs.acquire(os).await.unwrap());
                assert_eq!(os.now().await, if cut == 2 { 4 * MS } else { 2 * MS });
            })
            .await;
            os.sleep(MS).await;
            match cut {
                0 => assert!(os.kill(large).await),
                1 => scope.cancel(os).await,
                _ => {}
            }
            os.wait(small).await.unwrap();
            drop(one);
            assert_eq!(permits.available(), 2);
        });
    }
}

/// What a semaphore must do: requests in order, each as a whole.
#[derive(Default)]
struct Model {
    left: usize,
    waiting: VecDeque<(usize, usize)>,
    granted: Vec<usize>,
}

impl Model {
    fn serve(&mut self) {
        while let Some(&(task, count)) = self.waiting.front()
            && count <= self.left
        {
            self.left -= count;
            self.waiting.pop_front();
            self.granted.push(task);
        }
    }
}

/// Tasks that take permits, of which one is killed. They tell the model in the turn in which they ask and
/// give, and it says who has permits.
fn against_the_model(kernel: &mut Kernel, counts: [usize; 3], killed: usize) -> Result<(), Error> {
    let model = Shared::new(Model {
        left: 3,
        ..Model::default()
    });
    let kept = model.clone();
    kernel.spawn("main", async move |os: &mut Os| {
        let permits = Semaphore::new(os, 3).await;
        let mut tasks = Vec::new();
        for (task, count) in counts.into_iter().enumerate() {
            let (permits, model) = (permits.clone(), model.clone());
            let program = async move |os: &mut Os| {
                model.update(|model| {
                    model.waiting.push_back((task, count));
                    model.serve();
                });
                let asked = Asked { task, count, model };
                let permit = permits.acquire_many(os, count).await;
                let is_granted = |model: &mut Model| model.granted.contains(&task);
                assert!(asked.model.update(is_granted), "out of turn");
                os.yield_now().await;
                drop(permit);
                drop(asked);
                os.yield_now().await;
            };
            tasks.push(os.spawn("taker", program).await.unwrap());
        }
        os.kill(tasks[killed]).await;
        for task in tasks {
            os.wait(task).await.unwrap();
        }
        assert_eq!(permits.available(), 3);
    })?;
    kernel.run()?.check()?;
    assert_eq!(kept.update(|model| model.left), 3);
    Ok(())
}

struct Asked {
    task: usize,
    count: usize,
    model: Shared<Model>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.model.update(|model| {
            match model.granted.iter().position(|task| *task == self.task) {
                Some(place) => {
                    model.granted.remove(place);
                    model.left += self.count;
                }
                None => model.waiting.retain(|(task, _)| *task != self.task),
            }
            model.serve();
        });
    }
}

#[test]
fn requests_are_granted_as_the_model_says_whatever_is_killed() {
    for counts in [[2, 2, 1], [1, 3, 1], [3, 1, 2]] {
        for killed in 0..3 {
            let run = |kernel: &mut Kernel| against_the_model(kernel, counts, killed);
            let explored = check(run).exhaustive().schedules(3_000).explore();
            assert_eq!(explored.failure, None, "{counts:?} {killed}");
        }
    }
}

// ---- a lock that readers share

#[test]
fn neighbours_share_and_a_writer_is_not_overtaken() {
    alone(async |os: &mut Os| {
        let (lock, diary) = (RwLock::new(os, 0).await, Diary::default());
        for (at, letter) in "rrwrrwwr".chars().enumerate() {
            let (lock, diary) = (lock.clone(), diary.clone());
            spawn(os, async move |os: &mut Os| {
                let value = match letter {
                    'r' => {
                        let guard = lock.read(os).await.unwrap();
                        os.sleep(MS).await;
                        *guard
                    }
                    _ => {
                        let mut guard = lock.write(os).await.unwrap();
                        os.sleep(MS).await;
                        *guard += 1;
                        *guard
                    }
                };
                let now = os.now().await.as_millis();
                diary.note(format!("{at}{letter}{value}@{now}"));
            })
            .await;
        }
        os.sleep(20 * MS).await;
        assert_eq!(
            diary.text(),
            "0r0@1, 1r0@1, 2w1@2, 3r1@3, 4r1@3, 5w2@4, 6w3@5, 7r3@6"
        );
    });
}

#[test]
fn s89_only_a_writer_that_dies_poisons_the_lock() {
    alone(async |os: &mut Os| {
        let lock = RwLock::new(os, 0).await;
        for (writes, cut) in [(false, false), (true, false), (false, true), (true, true)] {
            let theirs = lock.clone();
            let holder = spawn(os, async move |os: &mut Os| {
                let hold = async |os: &mut Os| {
                    if writes {
                        let _guard = theirs.write(os).await.unwrap();
                        os.sleep(9 * MS).await;
                    } else {
                        let _guard = theirs.read(os).await.unwrap();
                        os.sleep(9 * MS).await;
                    }
                };
                let _ = os.timeout(if cut { MS } else { 8 * MS }, hold).await;
            })
            .await;
            os.sleep(MS / 2).await;
            if !cut {
                os.kill(holder).await;
            }
            os.sleep(MS).await;
            assert_eq!(lock.read(os).await.is_err(), writes);
            assert_eq!(lock.write(os).await.is_err(), writes);
            lock.clear_poison();
            assert!(lock.read(os).await.is_ok());
        }
        // Nor does one that waits, or that returns.
        let held = lock.read(os).await.unwrap();
        let write = async |os: &mut Os| lock.write(os).await.map(drop).is_ok();
        assert_eq!(os.timeout(MS, write).await, Err(Elapsed));
        drop(held);
        assert_eq!(os.timeout(MS, write).await, Ok(true));
        assert!(lock.read(os).await.is_ok());
    });
}

#[test]
fn a_cycle_through_a_shared_lock_is_found_and_named() {
    let builder = || unscripted().on_deadlock(OnDeadlock::Stop);
    let stopped = |kernel: &mut Kernel| match kernel.run() {
        Err(Error::Deadlock(deadlock)) => deadlock,
        other => panic!("a deadlock: {other:?}"),
    };
    // A task that reads reads again, behind a writer.
    let mut kernel = builder().build().unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            let lock = RwLock::named(os, "routes", ()).await;
            let _one = lock.read(os).await;
            let theirs = lock.clone();
            spawn(os, async move |os: &mut Os| drop(theirs.write(os).await)).await;
            os.yield_now().await;
            let _two = lock.read(os).await;
        })
        .unwrap();
    assert_eq!(
        unplaced(&stopped(&mut kernel).to_string()),
        "deadlock: tasks wait for one another, and no other can end that\n  \
         tid 1 \"main\" waits for rwlock 1 \"routes\", held by task 1, since 00:00.000\n  \
         tid 2 \"task\" waits for rwlock 1 \"routes\", held by task 1, since 00:00.000\n  \
         cycle: 1 -> 1\n  waits on a cycle: 2 -> 1"
    );
    // If the writer gives up, that reader goes on.
    let mut kernel = builder().build().unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            let lock = RwLock::new(os, ()).await;
            let _one = lock.read(os).await;
            let theirs = lock.clone();
            spawn(os, async move |os: &mut Os| {
                let write = async |os: &mut Os| drop(theirs.write(os).await);
                assert_eq!(os.timeout(MS, write).await, Err(Elapsed));
            })
            .await;
            os.yield_now().await;
            let _two = lock.read(os).await;
            assert_eq!(os.now().await, MS);
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

/// A reader of two that then asks to write waits for the other one, and when that one leaves, for itself.
async fn upgrades(os: &mut Os, lock: RwLock<()>, after: Duration) {
    let _share = lock.read(os).await;
    os.sleep(after).await;
    drop(lock.write(os).await);
}

#[test]
fn a_cycle_that_closes_when_a_reader_leaves_is_found() {
    let alive = async |os: &mut Os| loop {
        os.sleep(MS).await;
    };
    // In the second case the one that leaves was there first: it was never the holder.
    for (others_at, leaves_at, closes_at) in [(1, 20, 20), (1, 5, 10)] {
        let mut kernel = unscripted().on_deadlock(OnDeadlock::Stop).build().unwrap();
        kernel.spawn("alive", alive).unwrap();
        let main = async move |os: &mut Os| {
            let lock = RwLock::named(os, "table", ()).await;
            let (one, other) = (lock.clone(), lock);
            spawn(os, async move |os: &mut Os| {
                upgrades(os, one, 10 * MS).await;
            })
            .await;
            os.sleep(others_at * MS).await;
            let share = other.read(os).await;
            os.sleep((leaves_at - others_at) * MS).await;
            drop(share);
            os.sleep(MS).await;
        };
        kernel.spawn("main", main).unwrap();
        let Err(Error::Deadlock(deadlock)) = kernel.run() else {
            panic!("it waits for itself");
        };
        assert_eq!(deadlock.cycles, [[tid(3)]]);
        assert_eq!(kernel.now(), closes_at * MS);
    }
}

#[test]
fn a_cycle_that_closes_when_a_reader_leaves_is_reported_once_and_killed() {
    // Both ask to write: the younger is on the first cycle, and the other is left on its own.
    for (action, cycles) in [(OnDeadlock::Kill, 2), (OnDeadlock::Warn, 1)] {
        let (mut kernel, log) = logged(unscripted().on_deadlock(action));
        let main = async |os: &mut Os| {
            let lock = RwLock::new(os, ()).await;
            for after in [1, 2] {
                let lock = lock.clone();
                spawn(os, async move |os: &mut Os| {
                    upgrades(os, lock, after * MS).await;
                })
                .await;
            }
        };
        kernel.spawn("main", main).unwrap();
        let ended = kernel.run();
        assert_eq!(ended.is_ok(), action == OnDeadlock::Kill, "{ended:?}");
        let lines = log.lines();
        let found = lines.iter().filter(|line| line.contains("deadlock"));
        assert_eq!(found.count(), cycles, "{lines:?}");
    }
}

#[test]
fn a_cycle_of_a_task_that_has_adopted_is_reported_once() {
    let (mut kernel, log) = logged(unscripted().on_deadlock(OnDeadlock::Warn));
    let main = async |os: &mut Os| {
        let lock = RwLock::new(os, ()).await;
        let first = lock.read(os).await;
        let mut moved = lock.read(os).await;
        let theirs = lock.clone();
        let adopts = async move |os: &mut Os| {
            moved.iter_mut().for_each(|share| share.adopt(os));
            drop(theirs.write(os).await);
        };
        spawn(os, adopts).await;
        os.sleep(MS).await;
        drop(first);
    };
    kernel.spawn("main", main).unwrap();
    assert!(kernel.run().is_err(), "it waits for its own share");
    let lines = log.lines();
    let found = lines.iter().filter(|line| line.contains("deadlock"));
    assert_eq!(found.count(), 1, "{lines:?}");
}

#[test]
fn a_guard_of_a_shared_lock_that_another_task_adopts_is_its_own() {
    let moves = |adopts: bool, writes: bool| {
        let mut kernel = unscripted().on_deadlock(OnDeadlock::Stop).build().unwrap();
        let main = async move |os: &mut Os| {
            let lock = RwLock::new(os, ()).await;
            let (mut share, mut whole) = (None, None);
            match writes {
                true => whole = lock.write(os).await.ok(),
                false => share = lock.read(os).await.ok(),
            }
            let ends = async move |os: &mut Os| {
                if adopts {
                    share.iter_mut().for_each(|share| share.adopt(os));
                    whole.iter_mut().for_each(|whole| whole.adopt(os));
                }
                os.sleep(MS).await;
            };
            spawn(os, ends).await;
            os.yield_now().await;
            drop(lock.write(os).await);
        };
        kernel.spawn("main", main).unwrap();
        kernel.run().map(drop)
    };
    for writes in [false, true] {
        assert!(moves(true, writes).is_ok(), "{writes}");
        let ended = moves(false, writes);
        assert!(matches!(ended, Err(Error::Deadlock(_))), "{ended:?}");
    }
}

#[test]
fn a_task_that_takes_no_permits_holds_none() {
    for tries in [false, true] {
        let mut kernel = unscripted().build().unwrap();
        let main = async move |os: &mut Os| {
            let pool = Semaphore::named(os, "pool", 1).await;
            let _permit = pool.acquire(os).await;
            let theirs = pool.clone();
            let asks = async move |os: &mut Os| {
                match tries {
                    true => drop(theirs.try_acquire_many(os, 0).await),
                    false => drop(theirs.acquire_many(os, 0).await),
                }
                drop(theirs.acquire(os).await);
            };
            let asker = spawn(os, asks).await;
            let _ = os.wait(asker).await;
        };
        kernel.spawn("main", main).unwrap();
        let Err(Error::Deadlock(deadlock)) = kernel.run() else {
            panic!("the permit is not given back");
        };
        let text = deadlock.to_string();
        assert!(text.contains("last taken by task 1"), "{text}");
    }
}

/// Readers and writers, of which one is killed or cut: no two writers, no reader beside a writer.
fn readers_and_writers(kernel: &mut Kernel, act: usize) -> Result<(), Error> {
    let within = Shared::new((0_u32, 0_u32));
    kernel.spawn("main", async move |os: &mut Os| {
        let lock = RwLock::new(os, 0).await;
        let scope = Scope::new();
        let mut tasks = Vec::new();
        for (at, writes) in [false, true, false].into_iter().enumerate() {
            let (lock, within, scope) = (lock.clone(), within.clone(), scope.clone());
            let program = async move |os: &mut Os| {
                let body = async |os: &mut Os| {
                    let inside = Inside(within.clone(), writes);
                    if writes {
                        let mut guard = lock.write(os).await.unwrap_or_else(|poisoned| poisoned.0);
                        inside.enter();
                        os.yield_now().await;
                        *guard += 1;
                        inside.leave();
                    } else {
                        let guard = lock.read(os).await.unwrap_or_else(|poisoned| poisoned.0);
                        inside.enter();
                        os.yield_now().await;
                        inside.leave();
                        drop(guard);
                    }
                };
                match at == 1 && act == 1 {
                    true => drop(scope.run(os, body).await),
                    false => body(os).await,
                }
            };
            tasks.push(os.spawn("task", program).await.unwrap());
        }
        match act {
            0 => drop(os.kill(tasks[1]).await),
            1 => scope.cancel(os).await,
            2 => drop(os.kill(tasks[0]).await),
            _ => {}
        }
        for task in tasks {
            os.wait(task).await.unwrap();
        }
        // Nothing is held: this does not wait.
        drop(lock.write(os).await);
    })?;
    kernel.run()?.check()?;
    Ok(())
}

struct Inside(Shared<(u32, u32)>, bool);

impl Inside {
    fn enter(&self) {
        self.0.update(|(readers, writers)| {
            assert_eq!(*writers, 0, "a writer is alone");
            if self.1 {
                assert_eq!(*readers, 0, "a writer is alone");
                *writers += 1;
            } else {
                *readers += 1;
            }
        });
    }

    fn leave(&self) {
        self.0.update(|(readers, writers)| match self.1 {
            true => *writers -= 1,
            false => *readers -= 1,
        });
    }
}

#[test]
fn no_order_lets_a_reader_beside_a_writer_whatever_is_cut() {
    // A task that dies inside does not leave: only cuts of those that wait are tried beside others.
    let explored = check(|kernel| readers_and_writers(kernel, 3)).exhaustive();
    let explored = explored.schedules(20_000).explore();
    assert_eq!(explored.failure, None);
    println!("{explored}");
}

// ---- watch

#[test]
fn a_handle_waits_for_what_it_has_not_seen() {
    alone(async |os: &mut Os| {
        let watch = Watch::new(os, "one").await;
        let other = watch.clone();
        let changed = async |os: &mut Os, watch: &Watch<&'static str>| {
            let changed = async |os: &mut Os| watch.changed(os).await;
            os.timeout(MS, changed).await.is_ok()
        };
        assert!(!changed(os, &watch).await);
        watch.set(os, "two").await;
        watch.set(os, "three").await;
        assert!(changed(os, &watch).await);
        assert!(!changed(os, &watch).await, "it has seen both");
        // A look is one, too, and of this handle alone.
        let late = other.clone();
        assert_eq!(other.get(), "three");
        assert!(!changed(os, &other).await);
        assert!(changed(os, &late).await);
        let waits = spawn(os, async move |os: &mut Os| {
            other.changed(os).await;
            assert_eq!(other.get(), "four");
        })
        .await;
        os.sleep(MS).await;
        watch.set(os, "four").await;
        os.wait(waits).await.unwrap();
    });
}

// ---- broadcast

#[test]
fn each_receiver_gets_each_message_since_it_subscribed() {
    alone(async |os: &mut Os| {
        let sender = Broadcast::new(os, 3).await;
        assert_eq!(sender.put(os, 0).await, 0, "no receiver");
        let one = sender.subscribe(os).await;
        assert_eq!(sender.put(os, 1).await, 1);
        let two = sender.subscribe(os).await;
        assert_eq!(sender.put(os, 2).await, 2);
        assert_eq!((one.get(os).await, one.get(os).await), (Ok(1), Ok(2)));
        assert_eq!(two.get(os).await, Ok(2));
        for n in 3..=7 {
            sender.put(os, n).await;
        }
        drop(one);
        let second = sender.clone();
        drop(sender);
        assert_eq!(two.get(os).await, Err(Missed::Lagged(2)));
        let blocked = async |os: &mut Os| {
            for n in 5..=7 {
                assert_eq!(two.get(os).await, Ok(n));
            }
            two.get(os).await
        };
        assert_eq!(os.timeout(MS, blocked).await, Err(Elapsed));
        second.put(os, 8).await;
        drop(second);
        assert_eq!(two.get(os).await, Ok(8));
        assert_eq!(two.get(os).await, Err(Missed::Closed));
        assert_eq!(two.get(os).await, Err(Missed::Closed));
    });
}

#[test]
fn a_message_is_dropped_when_no_receiver_will_get_it() {
    #[derive(Clone)]
    struct Counted(#[expect(dead_code, reason = "its count is used")] Rc<()>);
    alone(async |os: &mut Os| {
        let count = Rc::new(());
        let left = || Rc::strong_count(&count) - 1;
        let sender = Broadcast::new(os, 2).await;
        let message = || Counted(Rc::clone(&count));
        sender.put(os, message()).await;
        assert_eq!(left(), 0);
        let (one, two) = (sender.subscribe(os).await, sender.subscribe(os).await);
        for kept in [1, 2, 2] {
            sender.put(os, message()).await;
            assert_eq!(left(), kept);
        }
        assert!(one.get(os).await.is_err());
        drop(one.get(os).await);
        assert_eq!(left(), 2);
        drop(two);
        assert_eq!(left(), 1);
        drop(one.get(os).await);
        assert_eq!(left(), 0);
    });
}

// ---- once

#[test]
fn the_next_caller_makes_the_value_if_the_first_is_killed_or_cut() {
    for cut in [false, true] {
        alone(async move |os: &mut Os| {
            let once = Once::new(os).await;
            let make = async move |os: &mut Os, once: &Once<u8>, n: u8| {
                let init = async |os: &mut Os| {
                    os.sleep(5 * MS).await;
                    n
                };
                *once.get_or_init(os, init).await
            };
            let theirs = once.clone();
            let first = spawn(os, async move |os: &mut Os| {
                let body = async |os: &mut Os| make(os, &theirs, 1).await;
                assert_eq!(os.timeout(2 * MS, body).await, Err(Elapsed));
            })
            .await;
            os.sleep(MS).await;
            let mut others = Vec::new();
            for n in 2..4 {
                let theirs = once.clone();
                let program = async move |os: &mut Os| make(os, &theirs, n).await;
                others.push(os.spawn_child("other", program).await.unwrap());
            }
            if !cut {
                os.kill(first).await;
            }
            assert_eq!(once.get(), None);
            for mut other in others {
                assert_eq!(other.wait(os).await, Ok(2));
            }
            assert_eq!(os.now().await, if cut { 7 * MS } else { 6 * MS });
            assert_eq!((once.get(), make(os, &once, 9).await), (Some(&2), 2));
        });
    }
}

#[test]
fn a_value_that_needs_itself_is_a_fault() {
    let mut kernel = sim().build().unwrap();
    let main = async |os: &mut Os| {
        let once = Once::new(os).await;
        let theirs = once.clone();
        let inner = async move |os: &mut Os| {
            let again = async |os: &mut Os| *theirs.get_or_init(os, async |_: &mut Os| 1).await;
            theirs.get_or_init(os, again).await;
        };
        let tid = os.spawn("inner", inner).await.unwrap();
        let exit = os.wait(tid).await.unwrap();
        assert!(matches!(exit, Exit::Faulted(why) if why.contains("wait for itself")));
        assert_eq!(once.get_or_init(os, async |_: &mut Os| 2).await, &2);
    };
    kernel.spawn("main", main).unwrap();
    assert!(
        kernel
            .run()
            .unwrap()
            .exits()
            .values()
            .all(|exit| *exit == Exit::Done)
    );
}

// ---- as sources of a select

#[test]
fn s70_each_is_a_source_and_its_call_does_not_block() {
    alone(async |os: &mut Os| {
        let (permits, lock) = (Semaphore::new(os, 3).await, RwLock::new(os, 0).await);
        let (watch, once) = (Watch::new(os, 0).await, Once::<u8>::new(os).await);
        let sender = Broadcast::new(os, 1).await;
        let receiver = sender.subscribe(os).await;
        let (two, guard) = (permits.acquire_many(os, 2).await, lock.read(os).await);
        let (setter, maker) = (watch.clone(), once.clone());
        spawn(os, async move |os: &mut Os| {
            let init = async |os: &mut Os| {
                os.sleep(MS).await;
                setter.set(os, 1).await;
                os.sleep(MS).await;
                sender.put(os, 1).await;
                os.sleep(MS).await;
                drop(two);
                os.sleep(MS).await;
                drop(guard);
                os.sleep(MS).await;
                5
            };
            maker.get_or_init(os, init).await;
        })
        .await;
        os.yield_now().await;
        let mut all = vec![
            (0, Source::permits(&permits, 2)),
            (1, Source::write(&lock)),
            (2, Source::changed(&watch)),
            (3, Source::broadcast(&receiver)),
            (4, Source::once(&once)),
        ];
        let mut seen = Vec::new();
        while !all.is_empty() {
            let sources: Vec<Source> = all.iter().map(|(_, source)| *source).collect();
            seen.push(all.remove(os.select(&sources).await).0);
        }
        assert_eq!(seen, [2, 3, 0, 1, 4]);
        assert_eq!(os.select(&[Source::read(&lock)]).await, 0);
        // None of these calls blocks.
        let calls = async |os: &mut Os| {
            drop(permits.acquire_many(os, 2).await.unwrap());
            drop(lock.write(os).await.unwrap());
            drop(lock.read(os).await.unwrap());
            watch.changed(os).await;
            assert_eq!(receiver.get(os).await, Ok(1));
            assert_eq!(once.get_or_init(os, async |_: &mut Os| 6).await, &5);
        };
        os.timeout(Duration::from_nanos(1), calls).await.unwrap();
    });
}

#[test]
fn s70_each_is_an_arm_and_a_thing_of_another_kernel_is_ready() {
    alone(async |os: &mut Os| {
        let flag = Flag::new(os).await;
        let (permits, lock) = (Semaphore::new(os, 3).await, RwLock::new(os, 7).await);
        let (watch, once) = (Watch::new(os, 0).await, Once::<u8>::new(os).await);
        let sender = Broadcast::new(os, 1).await;
        let receiver = sender.subscribe(os).await;
        macro_rules! second {
            ($arm:expr) => {
                match os.first((flag.wait_arm(), $arm)).await {
                    Either2::First(()) => unreachable!("the flag is not set"),
                    Either2::Second(got) => got,
                }
            };
        }
        assert_eq!(second!(permits.acquire_many_arm(2)).unwrap().count(), 2);
        assert_eq!(*second!(lock.read_arm()).unwrap(), 7);
        *second!(lock.write_arm()).unwrap() += 1;
        watch.set(os, 4).await;
        second!(watch.changed_arm());
        sender.put(os, 3).await;
        assert_eq!(second!(receiver.get_arm()), Ok(3));
        assert_eq!(*second!(once.get_or_init_arm(async |_: &mut Os| 1)), 1);
    });
}

// ---- the enemies

/// What the other task does to the one that it has spawned.
#[derive(Clone, Copy, Debug)]
enum Act {
    Kill,
    Cancel,
    Timeout,
    Shutdown,
}

/// A task gets, with what it needs made by a second one, and a third one acts against it at every step.
/// Nothing is lost: what the task has not returned is there for the next one.
fn enemies(kernel: &mut Kernel, act: Act) -> Result<(), Error> {
    let got = Shared::new((Vec::new(), false));
    let seen = got.clone();
    kernel.spawn("main", async move |os: &mut Os| {
        let sender = Broadcast::new(os, 2).await;
        let (receiver, watch) = (sender.subscribe(os).await, Watch::new(os, 0).await);
        let receiver = Rc::new(receiver);
        let (scope, theirs, changes) = (Scope::new(), receiver.clone(), watch.clone());
        let (within, sees) = (scope.clone(), seen.clone());
        let victim = async move |os: &mut Os| {
            let body = async |os: &mut Os| {
                let message = theirs.get(os).await.unwrap();
                sees.update(|(got, _)| got.push(message));
                changes.changed(os).await;
                sees.update(|(_, changed)| *changed = true);
            };
            match act {
                Act::Timeout => drop(os.timeout(Duration::ZERO, body).await),
                _ => drop(within.run(os, body).await),
            }
        };
        let victim = os.spawn("victim", victim).await.unwrap();
        let setter = watch.clone();
        let puts = async move |os: &mut Os| {
            sender.put(os, 7).await;
            setter.set(os, 1).await;
        };
        let puts = os.spawn("puts", puts).await.unwrap();
        match act {
            Act::Kill => drop(os.kill(victim).await),
            Act::Cancel => scope.cancel(os).await,
            Act::Timeout => {}
            Act::Shutdown => os.shutdown().await,
        }
        os.wait(puts).await.unwrap();
        os.wait(victim).await.unwrap();
        let (got, _) = seen.get();
        let next = receiver.get(os).await;
        match got.as_slice() {
            [] => assert_eq!(next, Ok(7), "it is there still"),
            _ => assert_eq!((got.as_slice(), next), (&[7][..], Err(Missed::Closed))),
        }
        watch.changed(os).await;
        assert_eq!(watch.get(), 1);
    })?;
    kernel.run()?.check()?;
    drop(got);
    Ok(())
}

#[test]
fn no_message_and_no_change_is_lost_whatever_is_cut() {
    for act in [Act::Kill, Act::Cancel, Act::Timeout, Act::Shutdown] {
        let explored = check(|kernel| enemies(kernel, act)).exhaustive();
        let explored = explored.schedules(5_000).explore();
        assert_eq!(explored.failure, None, "{act:?}");
    }
}

#[test]
fn s71_a_request_for_no_permits_never_waits() {
    alone(async |os: &mut Os| {
        let permits = Semaphore::new(os, 1).await;
        let first = permits.acquire(os).await.unwrap();
        let theirs = permits.clone();
        let second = spawn(os, async move |os: &mut Os| {
            drop(theirs.acquire(os).await.unwrap());
        })
        .await;
        os.yield_now().await;
        // One task waits for the only permit.
        let (none, now) = (Source::permits(&permits, 0), Source::after(Duration::ZERO));
        assert_eq!(os.select(&[none, now]).await, 0);
        assert_eq!(permits.acquire_many(os, 0).await.unwrap().count(), 0);
        drop(first);
        os.wait(second).await.unwrap();
    });
}
