//! Message queues: rules S40 to S44, and a plain model that random runs are compared with.

mod model;

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use trapline::{
    Closed, Elapsed, Errno, Error, Event, Exit, Fact, Kernel, Os, Queue, Reply, SimWorld,
    SystemCall, Tid, TryGetError, TryPutError,
};

use crate::{
    stepping::{Dropped, Notes, Place, boot, finish, noting, printed, settle},
    support::{in_a_mode, leave_answer, leave_answer_before, unplaced},
};

const S: Duration = Duration::from_secs(1);

/// Spawns a task that gets once and notes what it got.
async fn getter(os: &mut Os, name: &'static str, queue: &Queue<u32>, notes: &Notes) -> Tid {
    let (queue, notes) = (queue.clone(), notes.clone());
    let program = async move |os: &mut Os| {
        let got = queue.get(os).await;
        notes.note(match got {
            Ok(n) => format!("{name} got {n}"),
            Err(Closed(())) => format!("{name} closed"),
        });
    };
    os.spawn(name, program).await.unwrap()
}

/// Spawns a task that puts one message and notes when it is in.
async fn putter(os: &mut Os, n: u32, queue: &Queue<u32>, notes: &Notes) -> Tid {
    let (queue, notes) = (queue.clone(), notes.clone());
    let program = async move |os: &mut Os| {
        let put = queue.put(os, n).await;
        notes.note(match put {
            Ok(()) => format!("put {n}"),
            Err(Closed(n)) => format!("handed back {n}"),
        });
    };
    os.spawn("putter", program).await.unwrap()
}

/// What a task does in one tick.
#[derive(Clone, Copy)]
enum Act {
    Put(u32),
    TryGet,
    Get,
    Kill(Tid),
    Close,
}

/// Has each of these done by a task of its own, one second from now, one after the other with
/// nobody's turn in between: whoever is woken by one of them runs after the last.
async fn in_a_row(os: &mut Os, queue: &Queue<u32>, notes: &Notes, acts: &[Act]) {
    let when = os.now().await + S;
    for &act in acts {
        let (queue, notes) = (queue.clone(), notes.clone());
        let program = async move |os: &mut Os| {
            os.sleep_until(when).await;
            match act {
                Act::Put(n) => drop(queue.put(os, n).await.map_err(|_| notes.note("refused"))),
                Act::TryGet => notes.note(format!("try_get {:?}", queue.try_get(os).await.ok())),
                Act::Get => notes.note(format!("get {:?}", queue.get(os).await.ok())),
                Act::Kill(tid) => assert!(os.kill(tid).await),
                Act::Close => queue.close(os).await,
            }
        };
        os.spawn("actor", program).await.unwrap();
    }
    os.sleep_until(when).await;
    settle(os).await;
}

#[test]
fn s40_messages_are_first_in_first_out() {
    boot(async |os| {
        for queue in [Queue::unbounded(os).await, Queue::bounded(os, 100).await] {
            for n in 0..100 {
                queue.put(os, n).await.unwrap();
            }
            for n in 0..100 {
                assert_eq!(queue.get(os).await, Ok(n));
            }
        }
    });
}

#[test]
fn s40_getters_are_first_come_first_served() {
    let seen = noting(async move |os, notes| {
        let queue = Queue::unbounded(os).await;
        for name in ["a", "b", "c"] {
            getter(os, name, &queue, &notes).await;
        }
        settle(os).await;
        for n in 0..3 {
            queue.put(os, n).await.unwrap();
        }
        settle(os).await;
    });
    assert_eq!(seen.take(), ["a got 0", "b got 1", "c got 2"]);
}

#[test]
fn s40_putters_are_first_come_first_served() {
    let seen = noting(async move |os, notes| {
        let queue = Queue::bounded(os, 1).await;
        for n in 0..4 {
            putter(os, n, &queue, &notes).await;
        }
        settle(os).await;
        for n in 0..4 {
            assert_eq!(queue.get(os).await, Ok(n));
            settle(os).await;
        }
    });
    assert_eq!(seen.take(), ["put 0", "put 1", "put 2", "put 3"]);
}

#[test]
fn s40_nobody_barges_past_a_getter_that_has_not_run_yet() {
    for blocking in [true, false] {
        let seen = noting(async move |os, notes| {
            let queue = Queue::unbounded(os).await;
            getter(os, "first", &queue, &notes).await;
            settle(os).await;
            // The put matches the message with the getter, and this task has the next turn.
            queue.put(os, 1).await.unwrap();
            assert_eq!(queue.len(), 0);
            if blocking {
                let late = os.timeout(S, async |os| queue.get(os).await).await;
                assert_eq!(late, Err(Elapsed));
            } else {
                assert_eq!(queue.try_get(os).await, Err(TryGetError::Empty));
            }
        });
        assert_eq!(seen.take(), ["first got 1"]);
    }
}

#[test]
fn s40_nobody_barges_between_the_match_and_the_turn() {
    for (act, stolen) in [(Act::TryGet, "try_get None"), (Act::Get, "get Some(2)")] {
        let seen = noting(async move |os, notes| {
            let queue = Queue::unbounded(os).await;
            getter(os, "first", &queue, &notes).await;
            settle(os).await;
            in_a_row(os, &queue, &notes, &[Act::Put(1), act]).await;
            queue.put(os, 2).await.unwrap();
            settle(os).await;
        });
        let mut seen = seen.take();
        seen.sort();
        assert_eq!(seen, ["first got 1", stolen]);
    }
}

#[test]
fn s40_a_put_does_not_barge_past_putters_that_wait() {
    boot(async |os| {
        let queue = Queue::bounded(os, 1).await;
        queue.put(os, 0).await.unwrap();
        putter(os, 1, &queue, &Notes::default()).await;
        settle(os).await;
        assert_eq!(queue.get(os).await, Ok(0));
        // The room went to the putter that waited, before it has run.
        assert_eq!(queue.try_put(os, 2).await, Err(TryPutError::Full(2)));
        assert_eq!(queue.get(os).await, Ok(1));
    });
}

#[test]
fn s41_put_on_a_full_queue_blocks_until_there_is_room() {
    let printed = printed(async |os| {
        let queue = Queue::bounded(os, 2).await;
        let source = queue.clone();
        os.spawn("source", async move |os| {
            for n in 0..4 {
                source.put(os, n).await.unwrap();
                let now = os.now().await;
                writeln!(os, "{n} is in at {now:?}");
            }
        })
        .await
        .unwrap();
        for n in 0..4 {
            os.sleep(S).await;
            assert_eq!(queue.len(), if n < 3 { 2 } else { 1 });
            assert_eq!(queue.get(os).await, Ok(n));
        }
    });
    assert_eq!(
        printed,
        "0 is in at 0ns\n1 is in at 0ns\n2 is in at 1s\n3 is in at 2s\n"
    );
}

#[test]
fn s41_without_capacity_each_put_waits_for_its_get() {
    boot(async |os| {
        let queue = Queue::bounded(os, 0).await;
        assert_eq!(queue.try_put(os, 0).await, Err(TryPutError::Full(0)));
        assert_eq!(queue.try_get(os).await, Err(TryGetError::Empty));
        // The putter first, then the getter.
        let notes = Notes::default();
        putter(os, 1, &queue, &notes).await;
        settle(os).await;
        assert_eq!((queue.len(), notes.take().len()), (0, 0));
        assert_eq!(queue.try_get(os).await, Ok(1));
        settle(os).await;
        assert_eq!(notes.take(), ["put 1"]);
        // The getter first: then even try_put finds somebody.
        getter(os, "getter", &queue, &notes).await;
        settle(os).await;
        assert_eq!(queue.try_put(os, 2).await, Ok(()));
        settle(os).await;
        assert_eq!(notes.take(), ["getter got 2"]);
    });
}

#[test]
fn s41_a_message_that_came_back_takes_its_room() {
    boot(async |os| {
        let (queue, notes) = (Queue::bounded(os, 1).await, Notes::default());
        let victim = getter(os, "victim", &queue, &notes).await;
        settle(os).await;
        // 1 is matched with the victim, 2 fills the queue, and then 1 comes back.
        let acts = [Act::Put(1), Act::Put(2), Act::Kill(victim)];
        in_a_row(os, &queue, &notes, &acts).await;
        assert_eq!((queue.len(), notes.take().len()), (2, 0));
        // There is no room until both are gone.
        putter(os, 3, &queue, &notes).await;
        settle(os).await;
        assert_eq!(queue.get(os).await, Ok(1));
        settle(os).await;
        assert_eq!((queue.len(), notes.take().len()), (1, 0));
        assert_eq!(queue.get(os).await, Ok(2));
        settle(os).await;
        assert_eq!(notes.take(), ["put 3"]);
        assert_eq!(queue.get(os).await, Ok(3));
    });
}

#[test]
fn s42_after_close_getters_receive_what_is_left_and_then_closed() {
    boot(async |os| {
        let queue = Queue::bounded(os, 2).await;
        queue.put(os, 1).await.unwrap();
        queue.put(os, 2).await.unwrap();
        queue.close(os).await;
        queue.close(os).await;
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.get(os).await, Ok(1));
        assert_eq!(queue.try_get(os).await, Ok(2));
        assert_eq!(queue.get(os).await, Err(Closed(())));
        assert_eq!(queue.get(os).await, Err(Closed(())));
        assert_eq!(queue.try_get(os).await, Err(TryGetError::Closed));
    });
}

#[test]
fn s42_put_on_a_closed_queue_hands_the_item_back() {
    boot(async |os| {
        for queue in [Queue::bounded(os, 1).await, Queue::bounded(os, 0).await] {
            queue.close(os).await;
            assert_eq!(queue.put(os, "a").await, Err(Closed("a")));
            assert_eq!(queue.try_put(os, "b").await, Err(TryPutError::Closed("b")));
            assert_eq!(queue.try_get(os).await, Err(TryGetError::Closed));
        }
    });
}

#[test]
fn s42_closing_wakes_both_ends_in_order() {
    let seen = noting(async move |os, notes| {
        let empty = Queue::unbounded(os).await;
        let full = Queue::bounded(os, 1).await;
        full.put(os, 0).await.unwrap();
        for name in ["a", "b"] {
            getter(os, name, &empty, &notes).await;
        }
        for n in 1..=2 {
            putter(os, n, &full, &notes).await;
        }
        settle(os).await;
        empty.close(os).await;
        full.close(os).await;
        settle(os).await;
        // What the putters wanted to put never was in the queue.
        assert_eq!(full.get(os).await, Ok(0));
        assert_eq!(full.get(os).await, Err(Closed(())));
    });
    let expected = ["a closed", "b closed", "handed back 1", "handed back 2"];
    assert_eq!(seen.take(), expected);
}

#[test]
fn s42_a_message_that_was_matched_before_the_close_arrives() {
    let seen = noting(async move |os, notes| {
        let queue = Queue::unbounded(os).await;
        for name in ["a", "b"] {
            getter(os, name, &queue, &notes).await;
        }
        settle(os).await;
        in_a_row(os, &queue, &notes, &[Act::Put(1), Act::Close]).await;
    });
    assert_eq!(seen.take(), ["a got 1", "b closed"]);
}

#[test]
fn s43_a_message_that_comes_back_after_the_close_is_still_to_be_had() {
    boot(async |os| {
        let (queue, notes) = (Queue::unbounded(os).await, Notes::default());
        let victim = getter(os, "victim", &queue, &notes).await;
        settle(os).await;
        let acts = [Act::Put(1), Act::Close, Act::Kill(victim)];
        in_a_row(os, &queue, &notes, &acts).await;
        assert_eq!(queue.get(os).await, Ok(1));
        assert_eq!(queue.get(os).await, Err(Closed(())));
    });
}

/// What becomes of the task that a message was matched with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Killed,
    TimedOut,
}

#[test]
fn s43_a_message_goes_to_the_next_getter_in_its_old_place() {
    // So many getters wait; so many messages are put; then these are killed, before anybody runs.
    let most = if in_a_mode() { 3 } else { 5 };
    for getters in 0..most {
        for puts in 0..most {
            for victims in subsets_in_any_order(getters) {
                let seen = matched_and_killed(getters, puts, &victims);
                // The matches of the survivors stand; what comes back goes to those who wait, in
                // the order of the deaths, and what nobody waits for is left, in order.
                let mut owner: Vec<Option<usize>> =
                    (0..puts).map(|n| (n < getters).then_some(n)).collect();
                let mut waiting: Vec<usize> = (puts.min(getters)..getters).collect();
                for victim in &victims {
                    waiting.retain(|other| other != victim);
                    if let Some(lost) = owner.iter_mut().find(|who| **who == Some(*victim)) {
                        *lost = (!waiting.is_empty()).then(|| waiting.remove(0));
                    }
                }
                let mut expected: Vec<_> = owner
                    .iter()
                    .enumerate()
                    .filter_map(|(n, who)| who.map(|who| format!("{who} got {n}")))
                    .collect();
                let left = owner.iter().enumerate().filter(|(_, who)| who.is_none());
                expected.extend(left.map(|(n, _)| format!("left {n}")));
                expected.sort();
                let mut sorted = seen.clone();
                sorted.sort();
                assert_eq!(sorted, expected, "{getters} {puts} {victims:?}");
                let left: Vec<_> = seen.iter().filter(|n| n.starts_with("left")).collect();
                assert!(left.is_sorted(), "{getters} {puts} {victims:?}");
            }
        }
    }
}

fn subsets_in_any_order(of: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    let mut at = 0;
    while at < all.len() {
        for n in 0..of {
            if !all[at].contains(&n) {
                let mut longer = all[at].clone();
                longer.push(n);
                all.push(longer);
            }
        }
        at += 1;
    }
    all
}

fn matched_and_killed(getters: usize, puts: usize, victims: &[usize]) -> Vec<String> {
    const NAMES: [&str; 5] = ["0", "1", "2", "3", "4"];
    let notes = Notes::default();
    let theirs = notes.clone();
    let victims = victims.to_vec();
    boot(async move |os| {
        let queue = Queue::unbounded(os).await;
        let mut tids = Vec::new();
        for name in &NAMES[..getters] {
            tids.push(getter(os, name, &queue, &theirs).await);
        }
        settle(os).await;
        let puts = (0..puts).map(|n| Act::Put(n as u32));
        let kills = victims.iter().map(|&victim| Act::Kill(tids[victim]));
        let acts: Vec<_> = puts.chain(kills).collect();
        in_a_row(os, &queue, &theirs, &acts).await;
        while let Ok(n) = queue.try_get(os).await {
            theirs.note(format!("left {n}"));
        }
        // Those who still wait got nothing.
        for tid in tids {
            os.kill(tid).await;
        }
    });
    notes.take()
}

/// A kernel in which the next tick is the first of a getter that has been matched with `1`, in a
/// queue that holds `2` as well; and the tids of the getter and of a task that waits behind it.
fn on_the_brink(fate: Fate, behind: bool) -> (Kernel, Notes, Place<Queue<u32>>) {
    let notes = Notes::default();
    let place = Place::default();
    let (theirs, queues) = (notes.clone(), place.clone());
    let mut kernel = Kernel::simulated(0);
    let main = async move |os: &mut Os| {
        let queue = Queue::unbounded(os).await;
        queues.put(queue.clone());
        let (mine, notes) = (queue.clone(), theirs.clone());
        let victim = async move |os: &mut Os| {
            // Armed last: at one second the killer or the source comes first.
            os.yield_now().await;
            let got = match fate {
                Fate::TimedOut => os.timeout(S, async |os| mine.get(os).await).await,
                Fate::Killed => Ok(mine.get(os).await),
            };
            notes.note(format!("victim {got:?}"));
        };
        let victim = os.spawn("victim", victim).await.unwrap(); // 2
        let source = queue.clone();
        let put = async move |os: &mut Os| {
            os.sleep_until(S).await;
            source.put(os, 1).await.unwrap();
            source.put(os, 2).await.unwrap();
        };
        os.spawn("source", put).await.unwrap(); // 3
        let kill = async move |os: &mut Os| {
            os.sleep_until(S).await;
            if fate == Fate::Killed {
                os.kill(victim).await;
            }
        };
        os.spawn("killer", kill).await.unwrap(); // 4
        settle(os).await;
        if behind {
            getter(os, "next", &queue, &theirs).await; // 5
        }
    };
    kernel.spawn("main", main).unwrap();
    (kernel, notes, place)
}

#[test]
fn s43_step_by_step_on_the_brink() {
    for fate in [Fate::Killed, Fate::TimedOut] {
        for behind in [true, false] {
            let (mut kernel, notes, queue) = on_the_brink(fate, behind);
            finish(&mut kernel);
            let mut expected: Vec<&str> = Vec::new();
            if fate == Fate::TimedOut {
                expected.push("victim Err(Elapsed)");
            }
            if behind {
                expected.push("next got 1");
            }
            let mut seen = notes.take();
            seen.sort_by_key(|note| note.starts_with("next"));
            assert_eq!(seen, expected, "{fate:?}");
            let queue = queue.take().unwrap();
            assert_eq!(queue.len(), if behind { 1 } else { 2 });
            // What is left is in its old order.
            let main = async move |os: &mut Os| {
                if !behind {
                    assert_eq!(queue.get(os).await, Ok(1));
                }
                assert_eq!(queue.get(os).await, Ok(2));
            };
            let tid = kernel.spawn("after", main).unwrap();
            assert_eq!(finish(&mut kernel).exits()[&tid], Exit::Done);
        }
    }
}

#[test]
fn s43_a_message_that_is_handed_back_to_nobody_is_dropped() {
    // The answer of a put is on its way when the task is killed: full, closed, and closed while
    // it waited.
    for case in 0..3 {
        let notes = Notes::default();
        let theirs = notes.clone();
        boot(async move |os| {
            let queue = Queue::bounded(os, 0).await;
            if case == 1 {
                queue.close(os).await;
            }
            let (mine, message) = (queue.clone(), Dropped(theirs.clone(), "dropped"));
            let when = if case == 2 { Duration::ZERO } else { S };
            let victim = async move |os: &mut Os| {
                os.sleep_until(when).await;
                if case == 0 {
                    let _ = mine.try_put(os, message).await;
                } else {
                    let _ = mine.put(os, message).await;
                }
                panic!("it runs on");
            };
            let victim = os.spawn("victim", victim).await.unwrap();
            let closing = queue.clone();
            let close = async move |os: &mut Os| {
                os.sleep_until(S).await;
                if case == 2 {
                    closing.close(os).await;
                }
            };
            os.spawn("closer", close).await.unwrap();
            // At one second: the victim's call or the close, and then this.
            settle(os).await;
            os.sleep_until(S).await;
            assert!(os.kill(victim).await);
            assert_eq!(theirs.take(), ["dropped"], "case {case}");
        });
    }
}

#[test]
fn s44_every_put_and_get_is_a_trap_and_shows_in_the_trace() {
    let notes = Notes::default();
    let seen = notes.clone();
    let tracer = move |event: &Event<'_>| {
        if let Fact::Trapped { .. } | Fact::Replied { .. } | Fact::Blocked { .. } = event.fact {
            seen.note(&event.fact);
        }
    };
    let builder = Kernel::builder().world(SimWorld::new(0)).tracer(tracer);
    let mut kernel = builder.build().unwrap();
    let main = async |os: &mut Os| {
        let queue = Queue::bounded(os, 1).await;
        let _ = queue.put(os, 'a').await;
        let _ = queue.try_put(os, 'b').await;
        let _ = queue.get(os).await;
        let _ = queue.try_get(os).await;
        let _ = queue.try_put(os, 'c').await;
        let _ = queue.try_get(os).await;
        queue.close(os).await;
        let _ = queue.put(os, 'd').await;
        let _ = queue.get(os).await;
    };
    kernel.spawn("main", main).unwrap();
    let report = finish(&mut kernel);
    assert_eq!(report.traps, 10);
    let expected = "\
trapped new_queue(1)
replied queue 1
trapped put(1)
replied ok
trapped try_put(1)
replied full, message 1 handed back
trapped get(1)
replied message 0
trapped try_get(1)
replied try again
trapped try_put(1)
replied ok
trapped try_get(1)
replied message 2
trapped close_queue(1)
replied ok
trapped put(1)
replied closed, message 3 handed back
trapped get(1)
replied Closed (it is closed)";
    assert_eq!(notes.take().join("\n"), expected);
}

#[test]
fn blocked_tasks_show_in_ps_and_in_deadlock_reports() {
    let mut kernel = Kernel::simulated(0);
    let main = async |os: &mut Os| {
        let queues = [
            Queue::<u32>::unbounded(os).await,
            Queue::bounded(os, 0).await,
            Queue::unbounded(os).await,
        ];
        os.sleep(S * 4).await;
        let (full, empty) = (queues[1].clone(), queues[2].clone());
        let put = async move |os: &mut Os| full.put(os, 1).await;
        os.spawn("putter", put).await.unwrap();
        settle(os).await;
        for task in os.tasks().await {
            writeln!(os, "{task}");
        }
        let _ = empty.get(os).await;
    };
    kernel.spawn("main", main).unwrap();
    let Err(Error::Deadlock(deadlock)) = kernel.run() else {
        panic!("it is a deadlock");
    };
    let ps = kernel.take_console();
    assert!(ps.contains("tid 2 \"putter\" waits for queue 2 (put), since 00:04.000"));
    assert_eq!(
        unplaced(&deadlock.to_string()),
        "deadlock: no task is ready, and nothing can make one ready\n  \
         tid 1 \"main\" waits for queue 3 (get), since 00:04.000\n  \
         tid 2 \"putter\" waits for queue 2 (put), since 00:04.000"
    );
    kernel.audit();
}

#[test]
fn a_queue_is_freed_with_its_last_handle() {
    let seen = noting(async move |os, notes| {
        let queue = Queue::unbounded(os).await;
        let other = queue.clone();
        let first = queue.id();
        queue
            .put(os, Dropped(notes.clone(), "message"))
            .await
            .unwrap();
        drop(queue);
        notes.note("one handle left");
        drop(other);
        notes.note("freed");
        // Its place is used again, its number is not.
        let queue = Queue::<u32>::unbounded(os).await;
        assert_ne!(queue.id(), first);
        assert_eq!(
            (first.to_string(), queue.id().to_string()),
            ("1".into(), "2".into())
        );
        // Whoever still knows the number finds it closed.
        let stale = os.trap(SystemCall::Get(first)).await;
        assert_eq!(stale, Reply::Err(Errno::Closed));
    });
    assert_eq!(seen.take(), ["one handle left", "message", "freed"]);
}

#[test]
fn a_queue_is_freed_while_somebody_waits_by_its_number() {
    boot(async |os| {
        let queue = Queue::<u32>::unbounded(os).await;
        let id = queue.id();
        let get = async move |os: &mut Os| {
            assert_eq!(
                os.trap(SystemCall::Get(id)).await,
                Reply::Err(Errno::Closed)
            );
        };
        let waits = os.spawn("waits", get).await.unwrap();
        settle(os).await;
        drop(queue);
        settle(os).await;
        assert_eq!(os.wait(waits).await, Ok(Exit::Done));
    });
}

#[test]
fn raw_puts_have_no_message() {
    boot(async |os| {
        let queue = Queue::<u32>::unbounded(os).await;
        for call in [SystemCall::Put(queue.id()), SystemCall::TryPut(queue.id())] {
            assert_eq!(os.trap(call).await, Reply::Err(Errno::Invalid));
        }
        assert!(queue.is_empty());
        queue.put(os, 1).await.unwrap();
        assert_eq!(queue.get(os).await, Ok(1));
    });
}

#[test]
fn handles_travel_through_queues() {
    boot(async |os| {
        let requests = Queue::<(u32, Queue<u32>)>::bounded(os, 0).await;
        let server = requests.clone();
        os.spawn("server", async move |os| {
            while let Ok((n, reply)) = server.get(os).await {
                reply.put(os, n * n).await.unwrap();
            }
        })
        .await
        .unwrap();
        for n in 0..5 {
            let reply = Queue::unbounded(os).await;
            requests.put(os, (n, reply.clone())).await.unwrap();
            assert_eq!(reply.get(os).await, Ok(n * n));
        }
        requests.close(os).await;
    });
    // The last handle of a queue may be a message, even in a queue that is freed with it.
    let seen = noting(async move |os, notes| {
        let outer = Queue::unbounded(os).await;
        let inner = Queue::unbounded(os).await;
        inner
            .put(os, Dropped(notes.clone(), "innermost"))
            .await
            .unwrap();
        outer.put(os, inner).await.unwrap();
        drop(outer);
        notes.note("both freed");
        os.yield_now().await;
    });
    assert_eq!(seen.take(), ["innermost", "both freed"]);
}

#[test]
fn a_queue_of_another_kernel_counts_as_closed() {
    let place = Place::default();
    let theirs = place.clone();
    let mut one = Kernel::simulated(0);
    let keep = async move |os: &mut Os| {
        let queue = Queue::unbounded(os).await;
        queue.put(os, 1).await.unwrap();
        theirs.put(queue);
    };
    one.spawn("keep", keep).unwrap();
    finish(&mut one);
    let queue = place.take().unwrap();
    let (mine, theirs) = (queue.clone(), queue);
    boot(async move |os| {
        // One of this kernel's has the same number.
        let own = Queue::unbounded(os).await;
        own.put(os, 7).await.unwrap();
        assert_eq!(theirs.put(os, 2).await, Err(Closed(2)));
        assert_eq!(theirs.try_put(os, 2).await, Err(TryPutError::Closed(2)));
        assert_eq!(theirs.get(os).await, Err(Closed(())));
        assert_eq!(theirs.try_get(os).await, Err(TryGetError::Closed));
        theirs.close(os).await;
        drop(theirs);
        assert_eq!(own.get(os).await, Ok(7));
        own.put(os, 8).await.unwrap();
    });
    let get = async move |os: &mut Os| assert_eq!(mine.get(os).await, Ok(1));
    let tid = one.spawn("get", get).unwrap();
    assert_eq!(finish(&mut one).exits()[&tid], Exit::Done);
}

#[test]
fn destructors_of_messages_may_panic_and_may_use_queues() {
    struct Bad(Option<Queue<Bad>>);
    impl Drop for Bad {
        fn drop(&mut self) {
            if self.0.as_ref().is_none_or(Queue::is_empty) {
                panic!("bad");
            }
        }
    }
    boot(async |os| {
        let queue = Queue::bounded(os, 0).await;
        for killed in [true, false] {
            let mine = queue.clone();
            let victim = async move |os: &mut Os| {
                let message = Bad(Some(mine.clone()));
                let put = os.timeout(S, async |os| mine.put(os, message).await).await;
                assert!(matches!(put, Err(Elapsed)));
            };
            let victim = os.spawn("victim", victim).await.unwrap();
            settle(os).await;
            if killed {
                assert!(os.kill(victim).await);
            } else {
                assert_eq!(os.wait(victim).await, Ok(Exit::Done));
            }
        }
        // The queue is none the worse for it.
        assert!(queue.try_get(os).await.is_err());
    });
}

#[test]
fn what_is_refused_again_and_again_leaves_the_queue_as_it_was() {
    boot(async |os| {
        let queue = Queue::bounded(os, 1).await;
        queue.put(os, 0).await.unwrap();
        for n in 0..1000 {
            assert_eq!(queue.try_put(os, n).await, Err(TryPutError::Full(n)));
        }
        assert_eq!(queue.get(os).await, Ok(0));
        assert!(queue.is_empty());
    });
}

#[test]
fn s43_a_message_that_was_answered_and_not_taken_goes_back_to_its_old_place() {
    for (blocked, tries) in [(false, false), (false, true), (true, false)] {
        boot(async move |os| {
            let queue = Queue::unbounded(os).await;
            if blocked {
                let source = queue.clone();
                let putter = async move |os: &mut Os| {
                    for n in 1..=2 {
                        source.put(os, n).await.unwrap();
                    }
                };
                os.spawn_detached("putter", async move |os: &mut Os| {
                    settle(os).await;
                    putter(os).await;
                })
                .await
                .unwrap();
            } else {
                queue.put(os, 1).await.unwrap();
                queue.put(os, 2).await.unwrap();
            }
            for _ in 0..3 {
                if tries {
                    leave_answer(queue.try_get(os)).await;
                } else {
                    leave_answer(queue.get(os)).await;
                }
            }
            assert_eq!(queue.get(os).await, Ok(1));
            assert_eq!(queue.get(os).await, Ok(2));
        });
    }
}

#[test]
fn s43_a_message_that_was_not_taken_goes_to_the_getter_that_waits() {
    for panics in [false, true] {
        let seen = noting(async move |os, notes| {
            let queue = Queue::unbounded(os).await;
            let mine = queue.clone();
            let careless = async move |os: &mut Os| {
                let left = leave_answer_before(mine.get(os), || {
                    assert!(!panics, "with the answer in the air");
                });
                left.await;
                os.sleep(S).await;
            };
            os.spawn("careless", careless).await.unwrap();
            let mine = queue.clone();
            let next = async move |os: &mut Os| notes.note(mine.get(os).await.unwrap());
            os.spawn("next", next).await.unwrap();
            settle(os).await;
            queue.put(os, "kept").await.unwrap();
            settle(os).await;
        });
        assert_eq!(seen.take(), ["kept"]);
    }
}

#[test]
fn what_else_was_answered_and_not_taken_is_dropped() {
    let seen = noting(async move |os, notes| {
        let message = |name| Dropped(notes.clone(), name);
        let queue = Queue::bounded(os, 0).await;
        leave_answer(queue.try_put(os, message("full"))).await;
        queue.close(os).await;
        leave_answer(queue.put(os, message("closed"))).await;
        notes.note("went on");
        // A queue that was made and not taken is free again.
        drop(queue);
        leave_answer(Queue::<u32>::unbounded(os)).await;
        os.yield_now().await;
        let next = Queue::<u32>::unbounded(os).await;
        assert_eq!(next.id().number(), 3);
    });
    assert_eq!(seen.take(), ["full", "closed", "went on"]);
}

#[test]
fn a_trap_that_is_polled_again_before_its_answer_stays_pending() {
    struct PolledOnDrop<F: Future>(Pin<Box<F>>, Notes);
    impl<F: Future> Drop for PolledOnDrop<F> {
        fn drop(&mut self) {
            let mut cx = Context::from_waker(Waker::noop());
            let poll = self.0.as_mut().poll(&mut cx);
            self.1.note(if poll.is_pending() {
                "pending"
            } else {
                "ready"
            });
        }
    }
    impl<F: Future> Future for PolledOnDrop<F> {
        type Output = F::Output;
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
            // Twice in the turn that makes it.
            let _ = self.0.as_mut().poll(cx).is_pending() && self.0.as_mut().poll(cx).is_pending();
            Poll::Pending
        }
    }
    let notes = Notes::default();
    let seen = notes.clone();
    let mut kernel = Kernel::simulated(0);
    let main = async move |os: &mut Os| {
        let queue = Queue::<u32>::unbounded(os).await;
        let (mine, theirs) = (queue.clone(), notes.clone());
        let victim = async move |os: &mut Os| {
            PolledOnDrop(Box::pin(mine.get(os)), theirs).await.unwrap();
        };
        let victim = os.spawn("victim", victim).await.unwrap();
        settle(os).await;
        // It waits; then one that has ended by itself is dropped at its last call.
        assert!(os.kill(victim).await);
        let last = async move |os: &mut Os| {
            PolledOnDrop(Box::pin(os.exit(Exit::Done)), notes).await;
        };
        let last = os.spawn("last", last).await.unwrap();
        assert_eq!(os.wait(last).await, Ok(Exit::Done));
    };
    let main = kernel.spawn("main", main).unwrap();
    assert_eq!(finish(&mut kernel).exits()[&main], Exit::Done);
    assert_eq!(seen.take(), ["pending", "pending"]);
}

#[test]
fn a_message_that_holds_a_handle_of_its_own_queue_is_freed_with_the_kernel() {
    struct Own {
        _handle: Queue<Own>,
        _noted: Dropped,
    }
    let notes = Notes::default();
    let theirs = notes.clone();
    let mut kernel = Kernel::simulated(0);
    let main = async move |os: &mut Os| {
        let queue = Queue::unbounded(os).await;
        for name in ["first", "second"] {
            let own = Own {
                _handle: queue.clone(),
                _noted: Dropped(theirs.clone(), name),
            };
            assert!(queue.put(os, own).await.is_ok());
        }
    };
    kernel.spawn("main", main).unwrap();
    finish(&mut kernel);
    assert!(notes.take().is_empty());
    drop(kernel);
    assert_eq!(notes.take(), ["first", "second"]);
}
