//! The completely fair scheduler of OSTEP's chapter 9.

use std::time::Duration;

use super::{
    Cause, Facts, Policy, Runnable,
    kept::{Order, PerTask},
};
use crate::abi::Nanos;

/// The weights of Linux for the nice values from -20 to 19.
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

const USUAL: u32 = 1024;

/// The fixed point of a virtual runtime: this many units are a nanosecond at the nice value 0.
const UNIT: u128 = 16;

/// The completely fair scheduler (CFS), as chapter 9 of OSTEP (Operating Systems: Three Easy Pieces)
/// describes it: the ready task with the lowest virtual runtime. The virtual runtime of a task rises
/// the slower the greater its weight is, which its nice value determines
/// ([`Os::set_nice`](crate::Os::set_nice)). The weights are those of Linux.
///
/// The ready tasks share the latency of 48 ms in proportion to their weights, but no slice is below
/// the granularity of 6 ms. When a task arrives, the slice of the running task is divided anew: the
/// rest of it gets shorter, or is over. A task that arrives, or comes back from a wait, has at least
/// the lowest virtual runtime of the others. Of equals, the task that arrived first.
///
/// Linux does more: it looks at slices at each tick of its timer alone, lets a task that wakes
/// interrupt another one, has a queue for each processor, and has used EEVDF instead of CFS since
/// version 6.6. Here a slice ends exactly, on several processors it is the same as on one, and a new
/// arrival divides only one of the slices there.
///
/// ```
/// use std::time::Duration;
/// use trapline::sched::Fair;
///
/// let milliseconds = Duration::from_millis;
/// let policy = Fair::default().latency(milliseconds(24)).granularity(milliseconds(3));
/// ```
#[derive(Debug)]
pub struct Fair {
    ready: Order,
    tasks: PerTask<FairTask>,
    weight: u64,
    /// The lowest virtual runtime of a task that was ready or computed. It never falls.
    lowest: u64,
    /// The tasks that go on unless their slices are over, the next of them at the end.
    going_on: Vec<Runnable>,
    latency: Nanos,
    granularity: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct FairTask {
    /// Its weight among the ready tasks; 0 if it is not one of them.
    weight: u32,
    /// The weights among which its slice shares the latency, its own included.
    all: u32,
    used: Nanos,
}

impl Default for Fair {
    fn default() -> Self {
        Self {
            ready: Order::default(),
            tasks: PerTask::default(),
            weight: 0,
            lowest: 0,
            going_on: Vec::new(),
            latency: Self::LATENCY.into(),
            granularity: Self::GRANULARITY.into(),
        }
    }
}

impl Fair {
    pub(super) const LATENCY: Duration = Duration::from_millis(48);
    pub(super) const GRANULARITY: Duration = Duration::from_millis(6);

    /// Sets the time in which each ready task computes once.
    #[must_use]
    pub fn latency(mut self, span: Duration) -> Self {
        self.latency = span.into();
        self
    }

    /// Sets the shortest slice.
    #[must_use]
    pub fn granularity(mut self, span: Duration) -> Self {
        self.granularity = span.into();
        self
    }

    fn enter(&mut self, task: Runnable, weight: u32) {
        self.tasks.at(task).weight = weight;
        self.weight += u64::from(weight);
    }

    /// Adds a task that starts a new slice in its turn.
    fn line_up(&mut self, task: Runnable) {
        self.tasks.at(task).used = Nanos::ZERO;
        self.ready.insert(task);
    }

    /// Returns the next task whose slice is not over.
    fn next_going_on(&mut self) -> Option<Runnable> {
        while let Some(task) = self.going_on.pop() {
            let FairTask { weight, used, .. } = self.tasks.get(task.slot);
            if used < self.share(weight, self.weight) {
                return Some(task);
            }
            self.line_up(task);
        }
        None
    }

    fn share(&self, own: u32, all: impl Into<u128>) -> Nanos {
        let share = u128::from(own) * u128::from(self.latency.0) / all.into();
        let share = Nanos(u64::try_from(share).unwrap_or(u64::MAX));
        share.max(self.granularity).max(Nanos(1))
    }

    /// Takes the weight of a task that is no longer ready.
    fn leave(&mut self, task: Runnable) {
        let weight = std::mem::take(&mut self.tasks.at(task).weight);
        self.weight -= u64::from(weight);
    }
}

fn weight_of(nice: i32) -> u32 {
    let place = usize::try_from(nice + 20).unwrap_or(0);
    WEIGHTS[place.min(WEIGHTS.len() - 1)]
}

impl Policy for Fair {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.enter(task, USUAL);
        self.line_up(task);
    }

    fn push_with(&mut self, cause: Cause, facts: &Facts<'_>) {
        if let Cause::Spawned | Cause::Woken = cause {
            let runtime = self.ready.key(facts.task);
            // A unit less: of equals it comes before the task that has just computed.
            *runtime = self.lowest.saturating_sub(1).max(*runtime);
        }
        self.enter(facts.task, weight_of(facts.nice));
        if facts.keeps_place || facts.computed > Nanos::ZERO {
            self.going_on.push(facts.task);
        } else {
            self.line_up(facts.task);
        }
    }

    fn pop(&mut self) -> Option<Runnable> {
        let task = self.next_going_on().or_else(|| self.ready.pop())?;
        self.leave(task);
        Some(task)
    }

    fn remove(&mut self, task: Runnable) {
        if !self.ready.remove(task) {
            self.going_on.retain(|other| *other != task);
        }
        self.leave(task);
    }

    fn len(&self) -> usize {
        self.ready.len() + self.going_on.len()
    }

    /// A full slice raises the virtual runtime of every task by the same, and exactly so: the prices
    /// are those of slices, since a slice is rounded to nanoseconds.
    fn charge(&mut self, facts: &Facts<'_>) {
        let own = weight_of(facts.nice);
        let task = self.tasks.at(facts.task);
        task.used = task.used.saturating_add(facts.computed);
        let all = task.all.max(own);
        let slice = self.share(own, all);
        let (span, weight) = match slice > self.granularity {
            true => (self.latency, all),
            false => (slice, own),
        };
        let price = u128::from(span.0) * UNIT * u128::from(USUAL) / u128::from(weight);
        let price = price * u128::from(facts.computed.0) / u128::from(slice.0);
        let price = u64::try_from(price).unwrap_or(u64::MAX);
        let runtime = self.ready.key(facts.task);
        *runtime = runtime.saturating_add(price);
        let runtime = *runtime;
        let first = self.ready.first_key().unwrap_or(runtime);
        self.lowest = self.lowest.max(runtime.min(first));
    }

    fn slice(&mut self, facts: &Facts<'_>) -> Nanos {
        let own = weight_of(facts.nice);
        let all = self.weight.saturating_add(own.into());
        let all = u32::try_from(all).unwrap_or(u32::MAX);
        let share = self.share(own, all);
        let task = self.tasks.at(facts.task);
        task.all = all;
        share.saturating_sub(task.used).max(Nanos(1))
    }

    /// Each arrival divides the latency anew. The task that computes goes on if its slice is not over.
    fn preempts(&self, _: &Facts<'_>, _: &Facts<'_>) -> bool {
        true
    }

    fn ended(&mut self, task: Runnable) {
        self.remove(task);
        self.tasks.forget(task);
        self.ready.forget(task);
    }
}
