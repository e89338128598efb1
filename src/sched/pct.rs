//! Random priorities that change a few times.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{Cause, Policy, Runnable, random::Draws};
use crate::abi::Tid;

/// The bounds of the drawn length of a run, as powers of two.
const LENGTHS: (u64, u64) = (2, 12);

/// Each task has a random priority, and the ready task with the highest runs. After each of `d`
/// random turns the task that had the turn loses its priority: it falls below all tasks that have
/// kept theirs. (Probabilistic concurrency testing; Burckhardt, Kothari, Musuvathi and Nagarakatte,
/// ASPLOS 2010.)
///
/// The paper's bound: a defect of depth `d + 1`, which needs `d` changes, is found in a run of at most
/// k turns with n tasks with a probability of at least 1 / (n k^d), whatever else the program does.
/// It holds if the policy is given k, with [`Pct::length`]. A search counts k in eight runs before its
/// first schedule ([`Check::pct`](crate::Check::pct)). Without a length, the seed draws one: a power of
/// two from 4 to 4,096.
///
/// A run that is longer gets `d` more changes each time its length doubles. From then on, a task that
/// yields falls as well, since it may wait for the others in a loop.
///
/// ```
/// use trapline::{Kernel, Os, SimWorld, sched::Pct};
///
/// let policy = Pct::new(3, 1).length(8);
/// let builder = Kernel::builder().world(SimWorld::new(0)).policy(policy);
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
    ready: BTreeMap<(u64, Tid), Runnable>,
    seed: u64,
    draws: Draws,
    salt: u64,
    changes: u32,
    known: Option<u64>,
    /// The known or the drawn one.
    length: u64,
    /// The last turn for which changes are drawn.
    end: u64,
    /// The turns after which a task falls, and how low, the next of them at the end.
    points: Vec<(u64, u64)>,
    fallen: FxHashMap<Tid, u64>,
    turns: u64,
    low: u64,
}

/// Above this are the priorities that the seed gives.
const FALLEN: u64 = 1 << 63;

impl Pct {
    /// The most changes that a text or a search may ask for.
    pub const MOST: u32 = 1000;

    /// Returns the policy with this number of changes, and the draws of this seed.
    #[must_use]
    pub fn new(changes: u32, seed: u64) -> Self {
        Self::of(changes, None, seed)
    }

    /// Returns the same for a run of so many turns, if they are known.
    pub(crate) fn of(changes: u32, known: Option<u64>, seed: u64) -> Self {
        let mut pct = Self {
            ready: BTreeMap::new(),
            seed,
            draws: Draws::new(seed),
            salt: 0,
            changes,
            known,
            length: 0,
            end: 0,
            points: Vec::new(),
            fallen: FxHashMap::default(),
            turns: 0,
            low: FALLEN,
        };
        pct.reseed(seed);
        pct
    }

    /// Sets the number of turns of a run, all tasks together, and at least one. To be set before the
    /// run.
    #[must_use]
    pub fn length(self, turns: u64) -> Self {
        Self::of(self.changes, Some(turns), self.seed)
    }

    /// Reads the number of changes and the length of a run in the text of `--policy pct:3,length=120`.
    /// Without a number there are 3 changes.
    ///
    /// *Errors:* a text that says what it takes. There may be 1,000 changes.
    pub fn parameters(text: &str) -> Result<(u32, Option<u64>), String> {
        const USAGE: &str = "pct takes a number of changes from 0 to 1000, and the turns of a run, \
                             such as pct:3 or pct:3,length=120";
        let (mut changes, mut length) = (None, None);
        for param in text.split(',').filter(|param| !param.is_empty()) {
            let is_twice = match param.split_once('=') {
                Some(("length", text)) => match text.parse() {
                    Ok(turns @ 1_u64..) => length.replace(turns).is_some(),
                    _ => return Err(format!("'{text}' is no length of a run: give turns from 1")),
                },
                _ => {
                    let number = param.parse().ok().filter(|changes| *changes <= Self::MOST);
                    changes.replace(number.ok_or(USAGE)?).is_some()
                }
            };
            if is_twice {
                return Err(USAGE.into());
            }
        }
        Ok((changes.unwrap_or(3), length))
    }

    /// Draws as many changes as there are in a run, after turns up to this one.
    fn draw_up_to(&mut self, end: u64) {
        // How low a task falls does not depend on when: a later change may leave it higher.
        for _ in 0..self.changes {
            let turn = self.end + 1 + self.draws.below(end - self.end);
            self.low -= 1;
            self.points.push((turn, self.low));
        }
        self.points.sort_unstable_by(|a, b| b.cmp(a));
        self.end = end;
    }

    fn priority(&self, task: Tid) -> u64 {
        let own = || mixed(self.salt, task) | FALLEN;
        self.fallen.get(&task).copied().unwrap_or_else(own)
    }
}

impl Policy for Pct {
    fn push(&mut self, task: Runnable, cause: Cause) {
        if cause == Cause::Yielded && self.turns > self.length {
            self.low -= 1;
            self.fallen.insert(task.tid, self.low);
        }
        self.ready.insert((self.priority(task.tid), task.tid), task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        let (_, task) = self.ready.pop_last()?;
        self.turns += 1;
        while let Some((_, low)) = self.points.pop_if(|(turn, _)| *turn == self.turns) {
            self.fallen.insert(task.tid, low);
        }
        if self.turns == self.end {
            self.draw_up_to(self.end.saturating_mul(2));
        }
        Some(task)
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
        (self.seed, self.draws) = (seed, Draws::new(seed));
        self.salt = self.draws.draw();
        let drawn = 1 << (LENGTHS.0 + self.draws.below(LENGTHS.1 - LENGTHS.0 + 1));
        self.length = self.known.unwrap_or(drawn).max(1);
        (self.turns, self.end, self.low) = (0, 0, FALLEN);
        self.fallen.clear();
        self.points.clear();
        self.draw_up_to(self.length);
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
