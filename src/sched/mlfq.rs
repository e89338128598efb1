//! The multi-level feedback queue.

use std::time::Duration;

use super::{
    Cause, Facts, Policy, Runnable,
    kept::{Line, PerTask},
};
use crate::abi::Nanos;

/// The multi-level feedback queue: it learns which tasks are interactive. (OSTEP, chapter 8;
/// Corbató, CTSS, 1962.)
///
/// 1. A task of a higher level runs before, and interrupts, those of a lower one.
/// 2. Tasks of one level run round robin, with the level's time slice.
/// 3. A task begins at the highest level.
/// 4. A task that has used its allotment at a level falls to the next, however often it has given
///    up the processor before. With [`stay`](Mlfq::stay), the older rule, a task that blocks before
///    that keeps its level and gets a new allotment.
/// 5. After each [`boost`](Mlfq::boost) period all tasks are at the highest level.
///
/// ```
/// use std::time::Duration;
/// use trapline::{Kernel, sched::Mlfq};
///
/// let quanta = [10, 20, 40].map(Duration::from_millis);
/// let policy = Mlfq::new(quanta).boost(Duration::from_secs(1));
/// let kernel = Kernel::builder().policy(policy).build()?;
/// # Ok::<(), trapline::Error>(())
/// ```
#[derive(Debug)]
pub struct Mlfq {
    /// The highest first.
    levels: Vec<Level>,
    tasks: PerTask<MlfqTask>,
    boost: Nanos,
    stay: bool,
    bump: bool,
}

#[derive(Debug)]
struct Level {
    ready: Line,
    quantum: Nanos,
    allotment: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct MlfqTask {
    has_arrived: bool,
    level: u8,
    slice: Nanos,
    allotment: Nanos,
    /// The level at which its last slice ended, if the task has not been ready since.
    used_at: Option<u8>,
}

/// How long a task may compute at a level of [`Mlfq`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Allotment {
    /// A number of time slices; 0 counts as 1.
    Slices(u32),
    /// A time, at least a nanosecond.
    Time(Duration),
}

impl Mlfq {
    /// Returns the policy with a level for each time slice, the highest first. The allotment at
    /// each level is one slice, and there is no boost. Without any slice there is one level with
    /// 10 ms; more than 256 levels count as 256.
    #[must_use]
    pub fn new(quanta: impl IntoIterator<Item = Duration>) -> Self {
        let level = |quantum: Duration| {
            let quantum = Nanos::from(quantum).max(Nanos(1));
            Level {
                ready: Line::default(),
                quantum,
                allotment: quantum,
            }
        };
        let mut levels: Vec<Level> = quanta.into_iter().take(256).map(level).collect();
        if levels.is_empty() {
            levels.push(level(Duration::from_millis(10)));
        }
        Self {
            levels,
            tasks: PerTask::default(),
            boost: Nanos::FOREVER,
            stay: false,
            bump: false,
        }
    }

    /// Sets the allotments, the highest level first. The last counts for the levels below as well.
    #[must_use]
    pub fn allotments(mut self, allotments: &[Allotment]) -> Self {
        for (at, level) in self.levels.iter_mut().enumerate() {
            level.allotment = match allotments.get(at).or(allotments.last()) {
                None => level.quantum,
                Some(Allotment::Time(time)) => Nanos::from(*time).max(Nanos(1)),
                Some(Allotment::Slices(count)) => {
                    Nanos(level.quantum.0.saturating_mul(u64::from(*count).max(1)))
                }
            };
        }
        self
    }

    /// Moves all tasks to the highest level after each such period, counted from boot. A period of
    /// zero is none.
    #[must_use]
    pub fn boost(mut self, period: Duration) -> Self {
        self.boost = match Nanos::from(period) {
            Nanos::ZERO => Nanos::FOREVER,
            period => period,
        };
        self
    }

    /// Lets a task that blocks before its allotment is used keep its level, with a new allotment.
    #[must_use]
    pub fn stay(mut self) -> Self {
        self.stay = true;
        self
    }

    /// Puts a task that comes back from a wait at the front of its level. It interrupts a task of
    /// its level.
    #[must_use]
    pub fn bump(mut self) -> Self {
        self.bump = true;
        self
    }

    /// Returns a task at a level, with a new slice and a new allotment.
    fn fresh(&self, level: usize) -> MlfqTask {
        let quantum = self.levels[level].quantum;
        let allotment = self.levels[level].allotment;
        MlfqTask {
            has_arrived: true,
            level: u8::try_from(level).expect("there are 256 levels at most"),
            slice: quantum.min(allotment),
            allotment,
            used_at: None,
        }
    }

    /// Returns a task that has waited, under the older rule 4. A slice that was used up to its end
    /// counts, as in OSTEP's simulator.
    fn stayed(&self, task: MlfqTask) -> MlfqTask {
        if let Some(level) = task.used_at {
            let Level {
                quantum, allotment, ..
            } = self.levels[usize::from(level)];
            let allotment = allotment.saturating_sub(quantum);
            if allotment > Nanos::ZERO {
                return MlfqTask {
                    allotment,
                    slice: quantum.min(allotment),
                    ..self.fresh(level.into())
                };
            }
        }
        self.fresh(task.level.into())
    }
}

impl Policy for Mlfq {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.levels[0].ready.push_back(task);
    }

    fn push_with(&mut self, cause: Cause, facts: &Facts<'_>) {
        let mut task = *self.tasks.at(facts.task);
        let is_first = if !task.has_arrived {
            task = self.fresh(0);
            false
        } else if cause == Cause::Woken {
            if self.stay {
                task = self.stayed(task);
            }
            self.bump
        } else {
            facts.keeps_place && task.used_at.is_none()
        };
        task.used_at = None;
        *self.tasks.at(facts.task) = task;
        let ready = &mut self.levels[usize::from(task.level)].ready;
        if is_first {
            ready.push_front(facts.task);
        } else {
            ready.push_back(facts.task);
        }
    }

    fn pop(&mut self) -> Option<Runnable> {
        self.levels
            .iter_mut()
            .find_map(|level| level.ready.pop_front())
    }

    /// Keeps the task: the kernel skips it.
    fn remove(&mut self, _: Runnable) {}

    fn len(&self) -> usize {
        self.levels.iter().map(|level| level.ready.len()).sum()
    }

    fn charge(&mut self, facts: &Facts<'_>) {
        let mut task = *self.tasks.at(facts.task);
        let level = usize::from(task.level);
        task.slice = task.slice.saturating_sub(facts.computed);
        task.allotment = task.allotment.saturating_sub(facts.computed);
        if task.allotment == Nanos::ZERO {
            task = self.fresh((level + 1).min(self.levels.len() - 1));
            task.used_at = u8::try_from(level).ok();
        } else if task.slice == Nanos::ZERO {
            task.used_at = Some(task.level);
            task.slice = self.levels[level].quantum.min(task.allotment);
        }
        *self.tasks.at(facts.task) = task;
    }

    fn slice(&mut self, facts: &Facts<'_>) -> Nanos {
        self.tasks.at(facts.task).slice
    }

    fn preempts(&self, ready: &Facts<'_>, running: &Facts<'_>) -> bool {
        let task = self.tasks.get(ready.task.slot);
        let level = match task.has_arrived && self.stay {
            true => self.stayed(task).level,
            false => task.level,
        };
        let other = self.tasks.get(running.task.slot).level;
        level < other || level == other && self.bump && task.has_arrived
    }

    fn ended(&mut self, task: Runnable) {
        self.tasks.forget(task);
    }

    /// Boosts all tasks. The lowest level is the first behind the highest, as in OSTEP's simulator.
    fn alarm(&mut self, now: Nanos) -> Nanos {
        if now > Nanos::ZERO {
            if let [highest, lower @ ..] = &mut self.levels[..] {
                for level in lower.iter_mut().rev() {
                    while let Some(task) = level.ready.pop_front() {
                        highest.ready.push_back(task);
                    }
                }
            }
            let fresh = self.fresh(0);
            for task in self.tasks.all().filter(|task| task.has_arrived) {
                *task = fresh;
            }
        }
        let past = now.0 / self.boost.0 * self.boost.0;
        Nanos(past).saturating_add(self.boost)
    }
}
