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

    /// Adds to the number at a place, which may be the first free one.
    fn add(&mut self, mut place: usize, number: u64) {
        for level in &mut self.0 {
            if level.len() <= place {
                level.resize(place + 1, 0);
            }
            level[place] += number;
            place /= Self::WIDTH;
        }
        let is_full = self.0.last().is_none_or(|top| top.len() > Self::WIDTH);
        if is_full {
            self.grow(number);
        }
    }

    /// Adds a level above the highest; the first level gets the first number.
    fn grow(&mut self, first: u64) {
        let top = match self.0.last() {
            None => vec![first],
            Some(top) => top
                .chunks(Self::WIDTH)
                .map(|some| some.iter().sum())
                .collect(),
        };
        self.0.push(top);
    }

    fn subtract(&mut self, mut place: usize, number: u64) {
        for level in &mut self.0 {
            level[place] -= number;
            place /= Self::WIDTH;
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
        self.0[0][place]
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
        self.tickets.add(self.ready.len(), tickets.into());
        self.ready.push(task);
        let count = u32::try_from(self.ready.len());
        *self.places.at(task) = count.expect("a kernel has fewer tasks");
    }

    /// Takes the task at a place, to which the last one moves.
    fn take(&mut self, place: usize) -> Runnable {
        let last = self.ready.len() - 1;
        let moved = self.tickets.at(last);
        self.tickets.subtract(place, self.tickets.at(place));
        if place < last {
            self.tickets.subtract(last, moved);
            self.tickets.add(place, moved);
        }
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
        if let Some(winner) = self.winners.pop() {
            return Some(winner);
        }
        let place = match self.ready.len() {
            0 => return None,
            1 => 0,
            _ => {
                let ticket = self.draws.below(self.tickets.total());
                self.tickets.find(ticket)
            }
        };
        Some(self.take(place))
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
            let place = place as usize;
            self.tickets.subtract(place, self.tickets.at(place));
            self.tickets.add(place, facts.tickets.into());
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
            sums.add(place, place as u64 % 3);
        }
        for place in (0..5000).step_by(7) {
            sums.subtract(place, sums.at(place));
            sums.add(place, 2);
        }
        let owners = (0..5000).flat_map(|place| vec![place; sums.at(place) as usize]);
        let owners: Vec<usize> = owners.collect();
        assert_eq!(sums.total(), owners.len() as u64);
        for (ticket, owner) in owners.iter().enumerate() {
            assert_eq!(sums.find(ticket as u64), *owner);
        }
    }
}
