//! What a search proves, what it says of that, and what its audit takes.

use std::{
    cell::Cell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use trapline::{
    Check, Errno, Error, Explored, Kernel, Os, Promise, Queue, Shared, check, sync::Mutex,
};

use super::{counter, producers, spins};
use crate::support::passes;

const PROVED: &str = "proved: no other order of turns, if turns take no time and the seed is 0, has another \
     outcome";
const ONE_ORDER: &str = "the search is complete, and nothing is proved: all orders of turns have one causal \
     order, so the search cannot tell whether tasks share what it does not see";
const UNSEEN: &str = "the tasks share something that the search does not see";

/// Two tasks increment a number that the search does not see, each in two turns after some at rest.
/// Nothing that it sees is common to them, so there is one causal order.
pub(super) fn unseen(left: usize, right: usize) -> impl Fn(&mut Kernel) -> Result<(), Error> {
    move |kernel| {
        let sum = increments(kernel, left, right)?;
        kernel.run()?;
        kernel.outcome(sum.get().to_string());
        Ok(())
    }
}

fn increments(kernel: &mut Kernel, left: usize, right: usize) -> Result<Rc<Cell<u32>>, Errno> {
    let sum = Rc::new(Cell::new(0));
    for (name, rest) in [("left", left), ("right", right)] {
        let sum = Rc::clone(&sum);
        kernel.spawn(name, async move |os: &mut Os| {
            passes(os, rest).await;
            let read = sum.get();
            os.yield_now().await;
            sum.set(read + 1);
        })?;
    }
    Ok(sum)
}

#[test]
fn an_increment_that_few_orders_lose_is_found() {
    for rest in [0, 2, 6, 20, 60] {
        let explored = check(unseen(rest, 0)).exhaustive().explore();
        assert!(!explored.proved, "after {rest}: {explored}");
        let why = explored.failure.expect("an order loses it").why;
        assert!(why.starts_with(UNSEEN), "after {rest}: {why}");
    }
}

/// Tasks that touch nothing in common.
fn apart(tasks: usize) -> impl Fn(&mut Kernel) -> Result<(), Error> {
    move |kernel| {
        for _ in 0..tasks {
            kernel.spawn("apart", async |os: &mut Os| os.yield_now().await)?;
        }
        kernel.run().map(drop)
    }
}

#[test]
fn one_causal_order_of_several_tasks_proves_nothing() {
    for explored in [
        check(apart(2)).exhaustive().explore(),
        check(apart(2)).exhaustive().threads(2).explore(),
        // They share a queue, of which the search sees all there is to see.
        check(producers(1, 1, 1, 1)).exhaustive().explore(),
    ] {
        assert!(
            explored.failure.is_none() && explored.complete,
            "{explored}"
        );
        if explored.classes == 1 {
            assert!(!explored.proved);
            assert_eq!(
                explored.to_string(),
                format!("1 schedule passes; {ONE_ORDER}")
            );
        }
    }
    let part = |number| check(apart(2)).exhaustive().shard(number, 2).explore();
    for part in [part(1), part(2)] {
        assert!(part.complete, "{part}");
        assert_eq!(part.proved, part.classes == 0, "{part}");
        // The other part may have other outcomes.
        let own = "; proved: no other order of turns of this part, if turns take no time and";
        assert_eq!(part.to_string().contains(own), part.proved, "{part}");
    }
}

#[test]
fn a_program_with_a_single_schedule_is_proved() {
    let explored = check(apart(1)).exhaustive().explore();
    assert!(explored.proved, "{explored}");
    assert_eq!(explored.to_string(), format!("1 schedule passes; {PROVED}"));
}

#[test]
fn a_complete_search_is_proved_if_its_audit_agrees() {
    for explored in [
        check(counter(2, 1)).exhaustive().explore(),
        check(counter(2, 2)).exhaustive().threads(2).explore(),
        check(super::dining(3)).exhaustive().explore(),
        check(counter(2, 1)).preemptions(usize::MAX).explore(),
    ] {
        assert!(explored.proved, "{explored}");
        let schedules = explored.schedules;
        assert_eq!(
            explored.to_string(),
            format!("{schedules} schedules pass; {PROVED}")
        );
    }
    for explored in [
        check(counter(2, 2)).exhaustive().schedules(3).explore(),
        check(counter(2, 1)).preemptions(1).explore(),
        check(counter(2, 1)).explore(),
    ] {
        assert!(!explored.proved, "{explored}");
        assert!(!explored.to_string().contains("proved"), "{explored}");
    }
}

/// Two tasks have two causal orders. In one of these, which does not run first, two others may lose an
/// increment that the search does not see. The orders in which it runs do not lose it.
fn seldom(kernel: &mut Kernel, fails: bool) -> Result<(), Error> {
    let last = Shared::new("");
    for name in ["a", "b"] {
        let last = last.clone();
        kernel.spawn(name, async move |_: &mut Os| last.set(name))?;
    }
    let sum = increments(kernel, 0, 2)?;
    kernel.run()?;
    let is_lost = last.get() == "a" && sum.get() == 1;
    assert!(!(fails && is_lost), "it is lost");
    kernel.outcome(is_lost.to_string());
    Ok(())
}

#[test]
fn schedules_are_drawn_after_a_complete_search() {
    let explored = check(|kernel| seldom(kernel, false)).exhaustive().explore();
    let why = explored.failure.expect("it differs").why;
    let drawn =
        "a schedule that was drawn has an outcome that no schedule of the complete search has";
    assert!(why.starts_with(UNSEEN) && why.contains(drawn), "{why}");
    let explored = check(|kernel| seldom(kernel, true)).exhaustive().explore();
    let failure = explored.failure.expect("it fails");
    let why = &failure.why;
    assert!(why.contains("it is lost") && why.contains(UNSEEN), "{why}");
    assert!(failure.details.contains("fails with"), "{failure}");
}

#[test]
fn an_audit_that_is_cut_is_named_and_proves_nothing() {
    thread_local! {
        static RUNS: Cell<u64> = const { Cell::new(0) };
    }
    fn is_over() -> bool {
        RUNS.get() >= 8
    }
    // Two runs for hidden nondeterminism, and one or two for each causal order.
    let explored = check(|kernel: &mut Kernel| {
        RUNS.set(RUNS.get() + 1);
        let number = Shared::new(0);
        for at in 0..2 {
            let number = number.clone();
            kernel.spawn("writes", async move |os: &mut Os| {
                os.yield_now().await;
                number.set(at);
            })?;
        }
        kernel.run().map(drop)
    });
    let explored = explored.exhaustive().stop_when(is_over).explore();
    assert!(explored.complete && !explored.proved, "{explored}");
    let unaudited = explored.unaudited.as_deref().expect("it is cut");
    assert!(
        unaudited.starts_with("it was interrupted, after "),
        "{unaudited}"
    );
    assert!(
        explored
            .to_string()
            .contains("nothing is proved: it was interrupted")
    );
}

#[test]
fn a_thread_that_a_task_polls_is_named() {
    let runs = Cell::new(0);
    // What a thread does that is late for one run.
    let polls = |kernel: &mut Kernel| {
        runs.set(runs.get() + 1);
        let is_late = runs.get() == 4;
        let is_set = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&is_set);
        kernel.spawn("main", async move |os: &mut Os| {
            let thread = thread::spawn(move || set.store(!is_late, Ordering::Relaxed));
            drop(thread.join());
            if !is_set.load(Ordering::Relaxed) {
                os.yield_now().await;
            }
        })?;
        kernel.spawn("other", async |os: &mut Os| os.yield_now().await)?;
        kernel.run().map(drop)
    };
    for search in [check(polls).exhaustive(), check(polls).audit().schedules(1)] {
        runs.set(0);
        let why = search.explore().failure.expect("runs differ").why;
        assert!(why.starts_with("hidden nondeterminism"), "{why}");
        assert!(why.contains("a clock, a thread."), "{why}");
    }
}

/// A task that waits for a setter of another thread that is leaked.
fn leaks(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn("main", async |os: &mut Os| {
        let (setter, promise) = Promise::<u32>::new(os).await;
        std::mem::forget(setter.remote());
        drop(setter);
        let _ = promise.wait(os).await;
    })?;
    kernel.run().map(drop)
}

type Body = fn(&mut Kernel) -> Result<(), Error>;
type Strategy = fn(Check<Body>) -> Check<Body>;

const STRATEGIES: [Strategy; 4] = [Check::random, Check::audit, Check::exhaustive, |check| {
    check.preemptions(1)
}];

#[test]
fn the_time_ends_a_wait_for_a_thread() {
    for set in STRATEGIES {
        let search = set(check(leaks as Body)).time(Duration::from_millis(5));
        let explored = search.explore();
        assert!(
            explored.failure.is_none() && explored.schedules == 0,
            "{explored}"
        );
        assert_eq!(
            explored.bound.as_deref(),
            Some(
                "it ended after 5ms, within a schedule that waits for another thread (Setter::remote)"
            )
        );
    }
}

#[test]
fn a_wait_for_a_thread_fails_a_search_without_a_time() {
    let failure = check(leaks).exhaustive().explore().failure;
    let why = failure.expect("it does not wait for ever").why;
    assert!(
        why.starts_with("stalled: no task is ready, and only other threads"),
        "{why}"
    );
    assert!(why.contains("remote setters alive: 1"), "{why}");
    assert!(why.contains("(Setter::remote)"), "{why}");
}

/// The audit of many tasks. It took a time that grew with the cube of their number.
#[test]
fn the_audit_of_many_tasks_ends() {
    let named = |explored: Explored| {
        assert!(
            explored.failure.is_none() && explored.classes == 1,
            "{explored}"
        );
    };
    named(check(apart(1_000)).audit().schedules(1).explore());
    let queue = |kernel: &mut Kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            let queue = Queue::unbounded(os).await;
            for at in 0..500 {
                let queue = queue.clone();
                let put = async move |os: &mut Os| queue.put(os, at).await.map_err(|_| "closed");
                os.spawn_detached("puts", put).await.expect("there is room");
            }
            for _ in 0..500 {
                let _ = queue.get(os).await;
            }
        })?;
        kernel.run().map(drop)
    };
    named(check(queue).audit().schedules(1).explore());
    let explored = check(apart(1_000)).exhaustive().explore();
    assert!(explored.complete && !explored.proved, "{explored}");
}

#[test]
fn the_time_ends_the_audit_of_a_schedule() {
    for set in STRATEGIES {
        let search = set(check(spins as Body)).steps(u64::MAX);
        let explored = search.time(Duration::from_millis(1)).explore();
        assert!(!explored.proved && !explored.complete, "{explored}");
    }
}

/// A lock is handed to a task that has not run since, and another one waits for it. The next turn of the first
/// closes a cycle then. So it matters which of the two waits first, and how far a third task has come.
#[test]
fn each_wait_closes_a_cycle_that_a_lock_on_its_way_is_part_of() {
    let explored = check(|kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            let (one, other) = (Mutex::new(os, ()).await, Mutex::new(os, ()).await);
            let count = Shared::new(0);
            let mut tasks = Vec::new();
            for locks in [[&one, &other], [&other, &one]] {
                let [first, second] = locks.map(Clone::clone);
                let locks = async move |os: &mut Os| {
                    let _first = first.lock(os).await;
                    let _second = second.lock(os).await;
                };
                tasks.push(os.spawn("locks", locks).await.unwrap());
            }
            let counts = async move |os: &mut Os| {
                for _ in 0..2 {
                    count.update(|count| *count += 1);
                    os.yield_now().await;
                }
            };
            tasks.push(os.spawn("counts", counts).await.unwrap());
            for task in tasks {
                os.wait(task).await.unwrap();
            }
        })?;
        let ended = kernel.run();
        let is_deadlock = matches!(ended, Err(Error::Deadlock(_)));
        kernel.outcome(if is_deadlock { "deadlock" } else { "ends" });
        Ok(())
    });
    let explored = explored.exhaustive().explore();
    assert!(explored.proved, "{explored}");
    assert_eq!(explored.schedules, explored.classes);
    assert!(
        explored.outcomes.iter().eq(["deadlock", "ends"]),
        "{explored}"
    );
}
