//! A random walk that draws all interleavings with equal probability.

use std::{cell::Cell, fmt, rc::Rc, str::FromStr};

use super::{
    Cause, Policy, Runnable,
    random::{Draws, Random},
};
use crate::abi::Tid;

/// The most tasks of which the turns are known. Others count as one turn.
const MOST: usize = 32;

/// How many turns tasks have, by their numbers, and which task spawns which. Its text is the turns of
/// tasks 1, 2 and so on, with the parent behind `<` unless that is the host: `12/30<1/8<1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TurnCounts {
    tasks: [Counted; MOST],
    len: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counted {
    turns: u32,
    /// The number of its parent, or 0.
    parent: u8,
}

/// Returns the place of a task, if it has one.
fn place(task: Tid) -> Option<usize> {
    let number = usize::try_from(u64::from(task)).ok()?;
    number.checked_sub(1).filter(|place| *place < MOST)
}

impl TurnCounts {
    fn at(&mut self, place: usize) -> &mut Counted {
        self.len = self.len.max(place + 1);
        &mut self.tasks[place]
    }
}

impl FromStr for TurnCounts {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut counts = Self::default();
        for (at, task) in text.split('/').enumerate() {
            let (turns, parent) = task.split_once('<').unwrap_or((task, "0"));
            let parent = parent.parse().map_err(drop)?;
            if at >= MOST || usize::from(parent) > at {
                return Err(());
            }
            let turns = turns.parse().map_err(drop)?;
            *counts.at(at) = Counted { turns, parent };
        }
        Ok(counts)
    }
}

impl fmt::Display for TurnCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Counted { turns, parent }) in self.tasks[..self.len].iter().enumerate() {
            let slash = if at > 0 { "/" } else { "" };
            write!(f, "{slash}{turns}")?;
            if *parent > 0 {
                write!(f, "<{parent}")?;
            }
        }
        Ok(())
    }
}

/// Draws each turn among the ready tasks in proportion to the turns that they have left, with those of
/// the tasks that they have yet to spawn. If the counts are right, and no task waits for another, each
/// interleaving has the same probability. A fair draw favours those in which short tasks are over
/// early. (The walk of SURW: Zhao, Wolff, Mathur and Roychoudhury, "Selectively uniform concurrency
/// testing", ASPLOS 2025. There the walk is uniform over the events that are selected. Here each turn
/// is an event, since what a turn touches is known after it only.)
///
/// ```
/// use trapline::{Kernel, Os, SimWorld, sched::Surw};
///
/// let policy = Surw::new("4/4".parse().unwrap(), 1);
/// let mut kernel = Kernel::builder().world(SimWorld::new(0)).policy(policy).build()?;
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
pub struct Surw {
    ready: Vec<Runnable>,
    counts: TurnCounts,
    run: Progress,
    draws: Draws,
}

/// The turns that tasks have had, and which tasks there have been.
#[derive(Clone, Copy, Default, Debug)]
struct Progress {
    turns: [u32; MOST],
    is_born: [bool; MOST],
}

impl Surw {
    /// Returns the policy with these counts, and the draws of this seed.
    #[must_use]
    pub fn new(counts: TurnCounts, seed: u64) -> Self {
        Self {
            ready: Vec::new(),
            counts,
            run: Progress::default(),
            draws: Draws::new(seed),
        }
    }

    /// Returns the turns that each task has left, with those of tasks that it has yet to spawn.
    fn left(&self) -> [u64; MOST] {
        let mut left = [0; MOST];
        for (at, counted) in self.counts.tasks[..self.counts.len].iter().enumerate() {
            let mut heir = at;
            while !self.run.is_born[heir] {
                match self.counts.tasks[heir].parent.checked_sub(1) {
                    Some(parent) => heir = parent.into(),
                    None => break,
                }
            }
            left[heir] += u64::from(counted.turns.saturating_sub(self.run.turns[at]));
        }
        left
    }

    fn draw(&mut self) -> usize {
        let left = self.left();
        let weight = |task: &Runnable| place(task.tid).map_or(1, |place| left[place].max(1));
        let mut drawn = self.draws.below(self.ready.iter().map(weight).sum());
        let is_drawn = |task: &Runnable| {
            let weight = weight(task);
            let is_here = drawn < weight;
            drawn = drawn.wrapping_sub(weight);
            is_here
        };
        self.ready.iter().position(is_drawn).unwrap_or(0)
    }
}

impl Policy for Surw {
    fn push(&mut self, task: Runnable, _: Cause) {
        if let Some(place) = place(task.tid) {
            self.run.is_born[place] = true;
        }
        self.ready.push(task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        let at = match self.ready.len() {
            0 => return None,
            1 => 0,
            _ => self.draw(),
        };
        let task = self.ready.swap_remove(at);
        if let Some(place) = place(task.tid) {
            self.run.turns[place] = self.run.turns[place].saturating_add(1);
        }
        Some(task)
    }

    fn remove(&mut self, task: Runnable) {
        self.ready.retain(|other| *other != task);
    }

    fn len(&self) -> usize {
        self.ready.len()
    }

    fn wants_facts(&self) -> bool {
        false
    }

    fn reseed(&mut self, seed: u64) {
        self.draws = Draws::new(seed);
        self.run = Progress::default();
    }
}

/// Draws each turn, as [`Random`] does, and counts the turns of tasks: the most of several runs.
pub(crate) struct Counting {
    random: Random,
    run: TurnCounts,
    last: Tid,
    most: Rc<Cell<TurnCounts>>,
}

impl Counting {
    pub(crate) fn new(seed: u64, most: &Rc<Cell<TurnCounts>>) -> Self {
        Self {
            random: Random::new(seed),
            run: TurnCounts::default(),
            last: Tid::KERNEL,
            most: Rc::clone(most),
        }
    }
}

impl Policy for Counting {
    fn push(&mut self, task: Runnable, cause: Cause) {
        if let (Cause::Spawned, Some(at)) = (cause, place(task.tid)) {
            let parent = place(self.last).filter(|parent| *parent < at);
            let parent = parent.map_or(0, |parent| parent as u8 + 1);
            let mut most = self.most.get();
            most.at(at).parent = parent;
            self.most.set(most);
        }
        self.random.push(task, cause);
    }

    fn pop(&mut self) -> Option<Runnable> {
        let task = self.random.pop()?;
        self.last = task.tid;
        if let Some(at) = place(task.tid) {
            let turns = &mut self.run.at(at).turns;
            *turns = turns.saturating_add(1);
            let mut most = self.most.get();
            let known = most.at(at);
            known.turns = known.turns.max(*turns);
            self.most.set(most);
        }
        Some(task)
    }

    fn remove(&mut self, task: Runnable) {
        self.random.remove(task);
    }

    fn len(&self) -> usize {
        self.random.len()
    }

    fn wants_facts(&self) -> bool {
        false
    }

    fn reseed(&mut self, seed: u64) {
        self.random.reseed(seed);
        (self.run, self.last) = (TurnCounts::default(), Tid::KERNEL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_are_written() {
        for text in ["12", "12/30<1/8<1", "0/4/4294967295<2"] {
            assert_eq!(text.parse::<TurnCounts>().unwrap().to_string(), text);
        }
        let many = ["1"; MOST + 1].join("/");
        for text in [
            "",
            "x",
            "1/",
            "1<1",
            "1/2<3",
            "1<",
            "-1",
            "4294967296",
            &many,
        ] {
            assert_eq!(text.parse::<TurnCounts>(), Err(()), "{text}");
        }
    }
}
