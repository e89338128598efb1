//! Turns that take time: a timer may fire while tasks are ready.

use std::time::Duration;

use trapline::{Check, Error, Explored, Kernel, Os, Shared, check};

type Body = fn(&mut Kernel) -> Result<(), Error>;
type Set = fn(Check<Body>) -> Check<Body>;

const STRATEGIES: [(&str, Set); 6] = [
    ("random", |check| check.random()),
    ("pct", |check| check.pct(2)),
    ("fifo", |check| check.fifo()),
    ("preemptions", |check| check.preemptions(1)),
    ("exhaustive", |check| check.exhaustive()),
    ("in parts", |check| check.exhaustive().threads(2)),
];

const MS: Duration = Duration::from_millis(1);

/// A task that sleeps for 1 ms against one that yields three times.
fn race(kernel: &mut Kernel) -> Result<(), Error> {
    let first = Shared::new("");
    let (one, other) = (first.clone(), first.clone());
    kernel.spawn("sleeper", async move |os: &mut Os| {
        os.sleep(MS).await;
        one.update(|first| first.is_empty().then(|| *first = "the sleeper"));
    })?;
    kernel.spawn("worker", async move |os: &mut Os| {
        for _ in 0..3 {
            os.yield_now().await;
        }
        other.update(|first| first.is_empty().then(|| *first = "the worker"));
    })?;
    kernel.run()?;
    assert_eq!(first.get(), "the worker");
    Ok(())
}

#[test]
fn every_strategy_finds_a_sleep_that_is_over_too_early() {
    for (name, set) in STRATEGIES {
        let body: Body = race;
        let instant = set(check(body)).explore();
        assert_eq!(instant.failure, None, "{name}");
        let explored = set(check(body))
            .turns_take(Duration::ZERO..=5 * MS)
            .explore();
        assert!(explored.schedules < 100, "{name}: {}", explored.schedules);
        let failure = explored.failure.unwrap_or_else(|| panic!("{name}"));
        assert!(failure.why.contains("the sleeper"), "{name}: {failure}");
        // One step of the clock, at most with one preemption after it.
        assert!(failure.preemptions < 2, "{name}: {failure}");
        assert_eq!(failure.replay.matches('t').count(), 1, "{name}: {failure}");
        let body: Body = race;
        let again = check(body).turns_take(Duration::ZERO..=5 * MS);
        let again = again.replay(&failure.replay).unwrap().explore();
        assert!(again.failure.unwrap().why.contains("the sleeper"), "{name}");
        assert_eq!(again.changed, None, "{name}");
    }
}

fn outcomes(body: impl Fn(&mut Kernel) -> Result<String, Error>, turn: Duration) -> Explored {
    let body = |kernel: &mut Kernel| {
        let outcome = body(kernel)?;
        kernel.outcome(outcome);
        Ok(())
    };
    let check = check(body).exhaustive();
    let explored = match turn {
        Duration::ZERO => check.explore(),
        turn => check.turns_take(Duration::ZERO..=turn).explore(),
    };
    assert_eq!(explored.failure, None);
    assert!(explored.complete, "{explored}");
    explored
}

/// After n turns the clock is at most n times the limit ahead.
#[test]
fn the_limit_of_a_turn_bounds_how_far_the_clock_goes() {
    let body = |kernel: &mut Kernel| {
        let told = Shared::new(Vec::new());
        let tells = told.clone();
        let sleeper = async |os: &mut Os| os.sleep(4 * MS).await;
        kernel.spawn("sleeper", sleeper)?;
        kernel.spawn("worker", async move |os: &mut Os| {
            for _ in 0..5 {
                let now = os.now().await;
                tells.update(|told| told.push(now.as_millis()));
            }
        })?;
        kernel.run()?;
        let told = told.get();
        Ok(told.iter().filter(|now| **now < 4).count().to_string())
    };
    let early = |turn| -> Vec<String> { outcomes(body, turn).outcomes.into_iter().collect() };
    assert_eq!(early(Duration::ZERO), ["5"]);
    // The sleep begins with the first or a later turn; a call of the sixth turn is the fifth of the worker.
    assert_eq!(early(MS / 2), ["5"]);
    assert_eq!(early(MS), ["3", "4", "5"]);
    assert_eq!(early(2 * MS), ["1", "2", "3", "4", "5"]);
    assert_eq!(early(4 * MS), ["0", "1", "2", "3", "4", "5"]);
}
