//! Lottery scheduling.

use std::time::Duration;

use super::{
    Cause, Facts, Policy, Runnable,
    kept::{PerTask, Slices},
    random::Draws,
};
use crate::abi::Nanos;

/// Lottery: each time slice goes to a ready task that is drawn in proportion to its tickets.
/// [`Os::set_tickets`](crate::Os::set_tickets) sets them. The seed determines the draws. (OSTEP,
/// chapter 9; Waldspurger and Weihl, OSDI 1994.)
#[derive(Debug)]
pub struct Lottery {
    ready: Vec<Runnable>,
    /// The tickets of the task at each place of `ready`.
    tickets: Sums,
    /// The place of each task in `ready`, plus one; 0 for a task that is not there.
    places: PerTask<u32>,
    /// The tasks that go on with their slices, the next of them at the end.
    winners: Vec<Runnable>,
    draws: Draws,
    slices: Slices,
}

/// Numbers, and the sums of 64 of them, and of 64 sums, and so on: a number is found by its place in
/// the total in a step for each level.
#[derive(Debug, Default)]
struct Sums(Vec<Vec<u64>>);

impl Sums {
    const WIDTH: usize = 64;

    fn total(&self) -> u64 {
        self.0.last().map_or(0, |top| top.iter().sum())
    }

    /// Sets the number at a place, which may be the first free one.
    fn set(&mut self, mut place: usize, number: u64) {
        let old = self.at(place);
        for level in &mut self.0 {
            if level.len() <= place {
                level.resize(place + 1, 0);
            }
            level[place] = level[place] - old + number;
            place /= Self::WIDTH;
        }
        match self.0.last() {
            None => self.0.push(vec![number]),
            Some(top) if top.len() > Self::WIDTH => {
                let sums = top.chunks(Self::WIDTH).map(|some| some.iter().sum());
                self.0.push(sums.collect());
            }
            Some(_) => {}
        }
    }

    /// Returns the place at which the sum of the numbers exceeds this one.
    fn find(&self, mut sum: u64) -> usize {
        let mut place = 0;
        for level in self.0.iter().rev() {
            place *= Self::WIDTH;
            while sum >= level[place] {
                sum -= level[place];
                place += 1;
            }
        }
        place
    }

    fn at(&self, place: usize) -> u64 {
        let numbers = self.0.first();
        let number = numbers.and_then(|numbers| numbers.get(place));
        number.copied().unwrap_or(0)
    }
}

impl Lottery {
    /// Returns the policy with this time slice, which is at least a nanosecond, and the draws of
    /// this seed.
    #[must_use]
    pub fn new(quantum: Duration, seed: u64) -> Self {
        Self {
            ready: Vec::new(),
            tickets: Sums::default(),
            places: PerTask::default(),
            winners: Vec::new(),
            draws: Draws::new(seed),
            slices: Slices::of_length(quantum),
        }
    }

    fn insert(&mut self, task: Runnable, tickets: u32) {
        self.tickets.set(self.ready.len(), tickets.into());
        self.ready.push(task);
        let count = u32::try_from(self.ready.len());
        *self.places.at(task) = count.expect("a kernel has fewer tasks");
    }

    /// Takes the task at a place, to which the last one moves.
    fn take(&mut self, place: usize) -> Runnable {
        let last = self.ready.len() - 1;
        self.tickets.set(place, self.tickets.at(last));
        self.tickets.set(last, 0);
        let task = self.ready.swap_remove(place);
        let number = std::mem::take(self.places.at(task));
        if let Some(moved) = self.ready.get(place) {
            *self.places.at(*moved) = number;
        }
        task
    }
}

impl Policy for Lottery {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.insert(task, 100);
    }

    fn push_with(&mut self, _: Cause, facts: &Facts<'_>) {
        if self.slices.go_on(facts) {
            self.winners.push(facts.task);
        } else {
            self.insert(facts.task, facts.tickets);
        }
    }

    fn pop(&mut self) -> Option<Runnable> {
        self.winners.pop().or_else(|| {
            let place = match self.ready.len() {
                0 => return None,
                1 => 0,
                _ => self.tickets.find(self.draws.below(self.tickets.total())),
            };
            Some(self.take(place))
        })
    }

    fn remove(&mut self, task: Runnable) {
        match *self.places.at(task) {
            0 => self.winners.retain(|other| *other != task),
            node => drop(self.take(node as usize - 1)),
        }
    }

    fn len(&self) -> usize {
        self.ready.len() + self.winners.len()
    }

    fn reseed(&mut self, seed: u64) {
        self.draws = Draws::new(seed);
    }

    fn charge(&mut self, facts: &Facts<'_>) {
        self.slices.charge(facts);
    }

    fn slice(&mut self, facts: &Facts<'_>) -> Nanos {
        self.slices.left(facts.task)
    }

    fn changed(&mut self, facts: &Facts<'_>) {
        if let Some(place) = self.places.at(facts.task).checked_sub(1) {
            self.tickets.set(place as usize, facts.tickets.into());
        }
    }

    fn ended(&mut self, task: Runnable) {
        self.slices.forget(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ticket_belongs_to_one_place_in_order() {
        // Three levels, and places that were given up and taken again.
        let mut sums = Sums::default();
        for place in 0..5000 {
            sums.set(place, place as u64 % 3);
        }
        for place in (0..5000).step_by(7) {
            sums.set(place, 0);
            sums.set(place, 2);
        }
        let owners = (0..5000).flat_map(|place| vec![place; sums.at(place) as usize]);
        let owners: Vec<usize> = owners.collect();
        assert_eq!(sums.total(), owners.len() as u64);
        for (ticket, owner) in owners.iter().enumerate() {
            assert_eq!(sums.find(ticket as u64), *owner);
        }
    }
}
