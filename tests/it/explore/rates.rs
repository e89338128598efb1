//! How often priorities that change a few times find a defect of a known depth.

use std::{cell::Cell, rc::Rc};

use trapline::{Error, Kernel, Os, Shared, check};

/// What separates two turns of a task.
#[derive(Clone, Copy, Debug)]
enum Step {
    Yield,
    Call,
}

impl Step {
    async fn take(self, os: &mut Os, times: u64) {
        for _ in 0..times {
            match self {
                Self::Yield => os.yield_now().await,
                Self::Call => drop(os.get_tid().await),
            }
        }
    }
}

/// The runs in which a search counts turns, before the first schedule.
const MEASURED: u64 = 8;

/// Searches, and returns the share of the schedules in which the body returns true.
fn rate(changes: u32, schedules: u64, body: impl Fn(&mut Kernel) -> Result<bool, Error>) -> f64 {
    let (hits, runs) = (Cell::new(0), Cell::new(0));
    let counted = |kernel: &mut Kernel| {
        let is_hit = body(kernel)?;
        if runs.replace(runs.get() + 1) >= MEASURED {
            hits.set(hits.get() + u64::from(is_hit));
        }
        Ok(())
    };
    check(counted).pct(changes).schedules(schedules).run();
    hits.get() as f64 / (runs.get() - MEASURED) as f64
}

/// Figure 1b of the paper: one task sees that a pointer is set, and uses it in a later turn; another
/// clears it, after `late` turns. There are so many pairs of a check and a use, behind `before` turns.
/// Returns whether the pointer is used when it is cleared.
fn atomicity(
    kernel: &mut Kernel,
    step: Step,
    (before, pairs, late): (u64, u64, u64),
) -> Result<bool, Error> {
    let (is_set, is_hit) = (Shared::new(true), Rc::new(Cell::new(false)));
    let (pointer, found) = (is_set.clone(), Rc::clone(&is_hit));
    kernel.spawn("uses", async move |os: &mut Os| {
        step.take(os, before).await;
        for _ in 0..pairs {
            let was_set = pointer.get();
            step.take(os, 1).await;
            found.set(found.get() || was_set && !pointer.get());
        }
    })?;
    kernel.spawn("clears", async move |os: &mut Os| {
        step.take(os, late).await;
        is_set.set(false);
    })?;
    kernel.run()?;
    Ok(is_hit.get())
}

#[test]
fn a_defect_of_depth_two_is_found_as_often_as_the_paper_says_in_runs_of_any_length() {
    for step in [Step::Yield, Step::Call] {
        // The turns of both tasks: k.
        for (before, pairs, schedules) in [(1, 1, 4_000), (19, 1, 8_000), (4_198, 800, 400)] {
            let k = (before + pairs + 2) as f64;
            let found = rate(1, schedules, |kernel| {
                atomicity(kernel, step, (before, pairs, 0))
            });
            // Each of the pairs is a defect of its own. The rest is chance.
            let bound = pairs as f64 / (2.0 * k);
            assert!(found > 0.8 * bound, "{step:?}, k = {k}: {found} of {bound}");
        }
    }
}

/// Two tasks begin, `c` runs, `b` ends, and then `a` ends. If `a` begins after `b`, the change that
/// comes later must leave its task lower; otherwise higher.
fn chain(kernel: &mut Kernel, step: Step) -> Result<bool, Error> {
    let order = Rc::new(Cell::new(0_u64));
    let at = |digit: u64| {
        let order = Rc::clone(&order);
        move || order.set(order.get() * 10 + digit)
    };
    let (begins, ends) = (at(1), at(4));
    kernel.spawn("a", async move |os: &mut Os| {
        begins();
        step.take(os, 1).await;
        ends();
    })?;
    let (begins, ends) = (at(0), at(3));
    kernel.spawn("b", async move |os: &mut Os| {
        begins();
        step.take(os, 1).await;
        ends();
    })?;
    let runs = at(2);
    kernel.spawn("c", async move |_: &mut Os| runs())?;
    kernel.run()?;
    Ok([1_234, 10_234].contains(&order.get()))
}

#[test]
fn a_defect_of_depth_three_is_found_as_often_as_the_paper_says() {
    let k = 5.0_f64;
    let bound = 1.0 / (3.0 * k.powi(2));
    for step in [Step::Yield, Step::Call] {
        let found = rate(2, 12_000, |kernel| chain(kernel, step));
        assert!(found > 0.8 * bound, "{step:?}: {found} of {bound}");
    }
}

#[test]
fn a_schedule_that_is_longer_than_those_before_has_more_changes() {
    let runs = Cell::new(0);
    let found = rate(1, 2_000, |kernel| {
        let is_short = runs.replace(runs.get() + 1) < MEASURED;
        let turns = if is_short { 1 } else { 30 };
        atomicity(kernel, Step::Call, (2 * turns, 1, turns))
    });
    assert!(found > 0.0);
}
