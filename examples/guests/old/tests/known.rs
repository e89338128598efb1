//! The search finds two bugs of an old version of `tokio::sync`. The programs are those of the example,
//! which runs them with a version without the bugs.

#[path = "../../tests/known/mod.rs"]
mod programs;

use trapline::{Error, Explored, Failure, Kernel};

type Program = fn(&mut Kernel) -> Result<(), Error>;

/// Some order of turns ends in a deadlock.
fn deadlocks(program: Program) -> Failure {
    let found: Explored = trapline::check(program).exhaustive().explore();
    println!("after {} schedules: {found}", found.schedules);
    let failure = found.failure.expect("the search finds the bug");
    assert!(failure.why.contains("deadlock"), "{failure}");
    // A drawn schedule finds it, too, and the report's value repeats it.
    let drawn = trapline::check(program).schedules(1000).explore();
    println!("drawn: after {} schedules", drawn.schedules);
    assert!(drawn.failure.is_some());
    let again = trapline::check(program)
        .replay(&failure.replay)
        .unwrap()
        .explore();
    assert_eq!(again.failure.expect("the replay fails").why, failure.why);
    failure
}

#[test]
fn a_receiver_that_drains_waits_for_ever() {
    let fifo = trapline::check(programs::a_receiver_that_drains as Program)
        .fifo()
        .explore();
    assert!(fifo.failure.is_none(), "{fifo}");
    let failure = deadlocks(programs::a_receiver_that_drains);
    assert!(failure.why.contains("receiver"), "{failure}");
    assert_eq!(failure.preemptions, 1);
}

#[test]
fn a_permit_that_is_released_wakes_nothing() {
    let failure = deadlocks(programs::a_permit_that_is_released);
    assert!(failure.why.contains("receiver"), "{failure}");
}
