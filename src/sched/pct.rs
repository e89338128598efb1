//! Random priorities that change a few times.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{Cause, Policy, Runnable, random::Draws};
use crate::abi::Tid;

/// The bounds of the drawn length of a run, as powers of two.
const LENGTHS: (u64, u64) = (2, 12);

/// Each task has a random priority, and the ready task with the highest runs. At `d` random turns
/// the task that is next loses its priority: it falls below all others. A task that yields falls as
/// well, since it may wait for the others in a loop. (Probabilistic concurrency testing; Burckhardt,
/// Kothari, Musuvathi and Nagarakatte, ASPLOS 2010. The yield is that of shuttle.)
///
/// A defect that needs `d` changes in a run of k turns with n tasks is found with a probability of
/// at least 1 / (n k^d), whatever else the program does. The policy cannot know k. So the seed also
/// draws a length, a power of two from 4 to 4,096, and the changes are within it. Turns without a
/// choice do not count.
///
/// ```
/// use trapline::{Kernel, Os, SimWorld, sched::Pct};
///
/// let builder = Kernel::builder().world(SimWorld::new(0)).policy(Pct::new(3, 1));
/// let mut kernel = builder.build()?;
/// for name in ["a", "b"] {
///     kernel.spawn(name, async move |os: &mut Os| for _ in 0..3 {
///         write!(os, "{name}");
///         os.yield_now().await;
///     })?;
/// }
/// kernel.run()?;
/// assert_eq!(kernel.take_console().len(), 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pct {
    /// By priority.
    ready: BTreeMap<(u64, Tid), Runnable>,
    seed: u64,
    /// The turns at which a priority changes, the next of them at the end.
    points: Vec<u64>,
    changes: u32,
    /// The priorities of the tasks that have lost their own.
    fallen: FxHashMap<Tid, u64>,
    /// The turns with a choice.
    turns: u64,
    /// The lowest priority so far.
    low: u64,
}

/// Above this are the priorities that the seed gives.
const FALLEN: u64 = 1 << 63;

impl Pct {
    /// Returns the policy with this number of changes, and the draws of this seed.
    #[must_use]
    pub fn new(changes: u32, seed: u64) -> Self {
        let mut pct = Self {
            ready: BTreeMap::new(),
            seed: 0,
            points: Vec::new(),
            changes,
            fallen: FxHashMap::default(),
            turns: 0,
            low: FALLEN,
        };
        pct.reseed(seed);
        pct
    }

    fn priority(&self, task: Tid) -> u64 {
        let own = || mixed(self.seed, task) | FALLEN;
        self.fallen.get(&task).copied().unwrap_or_else(own)
    }

    /// Puts a task below all others.
    fn fall(&mut self, task: Tid) {
        self.low -= 1;
        self.fallen.insert(task, self.low);
    }
}

impl Policy for Pct {
    fn push(&mut self, task: Runnable, cause: Cause) {
        if cause == Cause::Yielded {
            self.fall(task.tid);
        }
        self.ready.insert((self.priority(task.tid), task.tid), task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        if self.ready.len() > 1 {
            self.turns += 1;
            while self.points.pop_if(|point| *point == self.turns).is_some() {
                if let Some(((_, tid), task)) = self.ready.pop_last() {
                    self.fall(tid);
                    self.push(task, Cause::Preempted);
                }
            }
        }
        self.ready.pop_last().map(|(_, task)| task)
    }

    fn remove(&mut self, task: Runnable) {
        self.ready.remove(&(self.priority(task.tid), task.tid));
    }

    fn ended(&mut self, task: Runnable) {
        self.fallen.remove(&task.tid);
    }

    fn wants_facts(&self) -> bool {
        false
    }

    fn len(&self) -> usize {
        self.ready.len()
    }

    fn reseed(&mut self, seed: u64) {
        let mut draws = Draws::new(seed);
        self.seed = draws.next();
        let length = 1 << (LENGTHS.0 + draws.below(LENGTHS.1 - LENGTHS.0 + 1));
        self.points.clear();
        let points = (0..self.changes).map(|_| 1 + draws.below(length));
        self.points.extend(points);
        // The next is the last.
        self.points.sort_unstable_by(|a, b| b.cmp(a));
        self.fallen.clear();
        (self.turns, self.low) = (0, FALLEN);
    }
}

/// Returns the priority that a seed gives a task. (The finish of SplitMix64.)
fn mixed(seed: u64, task: Tid) -> u64 {
    let mut z = seed.wrapping_add(u64::from(task).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Slot;

    #[test]
    fn the_priorities_of_tasks_that_have_ended_are_forgotten() {
        let mut pct = Pct::new(3, 1);
        for number in 1..=100_u64 {
            let task = Runnable {
                tid: number.into(),
                slot: Slot::new(1),
            };
            pct.push(task, Cause::Yielded);
            assert_eq!(pct.pop(), Some(task));
            pct.ended(task);
        }
        assert!(pct.fallen.is_empty());
    }
}
