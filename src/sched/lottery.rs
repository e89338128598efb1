//! Lottery scheduling.

use std::time::Duration;

use super::{
    Cause, Facts, Policy, Runnable,
    random::Draws,
    table::{PerTask, Slices},
};
use crate::abi::Nanos;

/// Lottery: each time slice goes to a ready task that is drawn in proportion to its tickets.
/// [`Os::set_tickets`](crate::Os::set_tickets) sets them. The seed determines the draws. (OSTEP,
/// chapter 9; Waldspurger and Weihl, OSDI 1994.)
#[derive(Debug)]
pub struct Lottery {
    ready: Vec<Entry>,
    /// The sums of tickets: a binary indexed tree over `ready`.
    sums: Vec<u64>,
    total: u64,
    /// The place of each task in `ready`, plus one; 0 for a task that is not there.
    places: PerTask<u32>,
    /// The tasks that go on with their slices, the next of them at the end.
    winners: Vec<Runnable>,
    draws: Draws,
    quantum: Nanos,
    slices: Slices,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    task: Runnable,
    tickets: u32,
}

impl Lottery {
    /// Returns the policy with this time slice, which is at least a nanosecond, and the draws of
    /// this seed.
    #[must_use]
    pub fn new(quantum: Duration, seed: u64) -> Self {
        Self {
            ready: Vec::new(),
            sums: Vec::new(),
            total: 0,
            places: PerTask::default(),
            winners: Vec::new(),
            draws: Draws::new(seed),
            quantum: Nanos::from(quantum).max(Nanos(1)),
            slices: Slices::default(),
        }
    }

    fn insert(&mut self, task: Runnable, tickets: u32) {
        let place = self.ready.len();
        self.ready.push(Entry { task, tickets });
        // The sum of a node covers as many entries as its lowest bit says.
        let node = place + 1;
        let first = node - (node & node.wrapping_neg());
        let mut sum = u64::from(tickets);
        let mut below = node - 1;
        while below > first {
            sum += self.sums[below - 1];
            below -= below & below.wrapping_neg();
        }
        self.sums.push(sum);
        self.total += u64::from(tickets);
        *self.places.at(task) = u32::try_from(node).expect("a kernel has fewer tasks");
    }

    /// Changes the tickets at a place.
    fn set(&mut self, place: usize, tickets: u32) {
        let before = std::mem::replace(&mut self.ready[place].tickets, tickets);
        let mut node = place + 1;
        while let Some(sum) = self.sums.get_mut(node - 1) {
            *sum = *sum - u64::from(before) + u64::from(tickets);
            node += node & node.wrapping_neg();
        }
        self.total = self.total - u64::from(before) + u64::from(tickets);
    }

    /// Returns the place of the task that has the ticket of this number.
    fn find(&self, mut ticket: u64) -> usize {
        let mut place = 0;
        let mut step = self.sums.len().next_power_of_two();
        while step > 0 {
            if let Some(sum) = self.sums.get(place + step - 1)
                && *sum <= ticket
            {
                ticket -= sum;
                place += step;
            }
            step /= 2;
        }
        place
    }

    fn take(&mut self, place: usize) -> Runnable {
        let last = self.ready.len() - 1;
        let gone = self.ready[place].task;
        let moved = self.ready[last];
        self.set(place, moved.tickets);
        self.set(last, 0);
        self.ready[place] = moved;
        *self.places.at(moved.task) = place as u32 + 1;
        *self.places.at(gone) = 0;
        self.ready.pop();
        self.sums.pop();
        gone
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
                let ticket = self.draws.below(self.total);
                self.find(ticket)
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
        self.slices.left(facts.task, self.quantum)
    }

    fn changed(&mut self, facts: &Facts<'_>) {
        if let Some(place) = self.places.at(facts.task).checked_sub(1) {
            self.set(place as usize, facts.tickets);
        }
    }

    fn ended(&mut self, task: Runnable) {
        self.slices.forget(task);
    }
}
