//! A policy that draws the next task.

use rand_pcg::{
    Pcg64Mcg,
    rand_core::{Rng, SeedableRng},
};

use super::{Cause, Policy, Runnable, kept::PerTask};

/// Each turn goes to a ready task that is drawn with equal probability. The seed determines all
/// draws, and so the schedule.
///
/// ```
/// use trapline::{Kernel, Os, SimWorld, sched::Random};
///
/// let schedule = |seed| -> Result<String, Box<dyn std::error::Error>> {
///     let builder = Kernel::builder().world(SimWorld::new(0)).policy(Random::new(seed));
///     let mut kernel = builder.build()?;
///     for name in ["a", "b", "c"] {
///         kernel.spawn(name, async move |os: &mut Os| for _ in 0..3 {
///             write!(os, "{name}");
///             os.yield_now().await;
///         })?;
///     }
///     kernel.run()?;
///     Ok(kernel.take_console())
/// };
/// assert_eq!(schedule(7)?, schedule(7)?);
/// assert_ne!(schedule(7)?, schedule(8)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Random {
    /// In an order that depends on pushes, draws and removals alone, so that a seed repeats a run. A
    /// removed task leaves a hole in its place, except in the last one: a draw counts no holes.
    ready: Vec<Runnable>,
    /// Set from the first removal on: a run without removals need not note places.
    places: Option<Places>,
    draws: Draws,
}

/// The places of the ready tasks, and the holes between them.
#[derive(Debug, Default)]
struct Places {
    /// Plus one; 0 for a task that is not there.
    of: PerTask<usize>,
    /// In order.
    holes: Vec<usize>,
}

impl Places {
    fn note(&mut self, ready: &[Runnable]) {
        for (place, task) in ready.iter().enumerate() {
            *self.of.at(*task) = place + 1;
        }
    }

    /// Returns the place of the nth task, counted from 0.
    fn of_nth(&self, nth: usize) -> usize {
        // The holes before that place.
        let (mut least, mut most) = (0, self.holes.len());
        while least < most {
            let middle = usize::midpoint(least, most);
            match self.holes[middle] - middle <= nth {
                true => least = middle + 1,
                false => most = middle,
            }
        }
        nth + least
    }
}

impl Random {
    /// Returns the policy with the draws of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            ready: Vec::new(),
            places: None,
            draws: Draws::new(seed),
        }
    }

    #[cold]
    fn pop_between_holes(&mut self) -> Option<Runnable> {
        let (len, places) = (self.len(), self.places.as_mut()?);
        let place = match len {
            0 => return None,
            1 => self.ready.len() - 1,
            _ => places.of_nth(self.draws.below(len as u64) as usize),
        };
        let task = self.ready.swap_remove(place);
        if let Some(moved) = self.ready.get(place) {
            *places.of.at(*moved) = place + 1;
        }
        *places.of.at(task) = 0;
        self.trim();
        Some(task)
    }

    /// Notes the place behind the others, and makes room there.
    #[cold]
    #[inline(never)]
    fn push_with_room(&mut self, task: Runnable) {
        if let Some(places) = &mut self.places {
            *places.of.at(task) = self.ready.len() + 1;
        }
        self.ready.push(task);
    }

    fn trim(&mut self) {
        if let Some(Places { holes, .. }) = &mut self.places {
            while holes.pop_if(|hole| *hole + 1 == self.ready.len()).is_some() {
                self.ready.pop();
            }
        }
    }

    fn close(&mut self) {
        let Some(places) = &mut self.places else {
            return;
        };
        let mut holes = places.holes.drain(..).peekable();
        let mut next = 0;
        self.ready.retain(|_| {
            next += 1;
            holes.next_if_eq(&(next - 1)).is_none()
        });
        drop(holes);
        places.note(&self.ready);
    }
}

impl Policy for Random {
    #[inline]
    fn push(&mut self, task: Runnable, _: Cause) {
        // Behind a call for more memory, each push would save registers.
        let is_full = self.ready.len() == self.ready.capacity();
        if is_full || self.places.is_some() {
            return self.push_with_room(task);
        }
        self.ready.push(task);
    }

    #[inline]
    fn pop(&mut self) -> Option<Runnable> {
        if self.places.is_some() {
            return self.pop_between_holes();
        }
        if self.ready.len() < 2 {
            return self.ready.pop();
        }
        let at = self.draws.below(self.ready.len() as u64);
        // `swap_remove` moves the last as a whole, and waits for the stores of its parts.
        let last = self.ready.pop()?;
        let place = self.ready.get_mut(at as usize);
        Some(place.map_or(last, |place| std::mem::replace(place, last)))
    }

    fn remove(&mut self, task: Runnable) {
        let ready = &self.ready;
        let places = self.places.get_or_insert_with(|| {
            let mut places = Places::default();
            places.note(ready);
            places
        });
        let Some(place) = std::mem::take(places.of.at(task)).checked_sub(1) else {
            return;
        };
        let at = places.holes.partition_point(|hole| *hole < place);
        places.holes.insert(at, place);
        // Closing the holes takes a step for each task, and opening one a step for each hole.
        if places.holes.len() > 64 + ready.len() / 256 {
            self.close();
        }
        self.trim();
    }

    fn len(&self) -> usize {
        let holes = self.places.as_ref().map_or(0, |places| places.holes.len());
        self.ready.len() - holes
    }

    fn wants_facts(&self) -> bool {
        false
    }

    fn reseed(&mut self, seed: u64) {
        self.draws = Draws::new(seed);
        if self.ready.is_empty() {
            self.places = None;
        }
    }
}

/// The random numbers of a policy: a sequence apart from that of the world with the same seed.
#[derive(Clone, Debug)]
pub struct Draws {
    numbers: Pcg64Mcg,
    /// The next number. It is drawn ahead, so that the choice of a task does not wait for it.
    next: u64,
}

impl Draws {
    /// Returns the sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut numbers = Pcg64Mcg::seed_from_u64(!seed);
        let next = numbers.next_u64();
        Self { numbers, next }
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        std::mem::replace(&mut self.next, self.numbers.next_u64())
    }

    /// Returns a number below `end`. (Lemire's multiplication; its bias is below `end` / 2^64.)
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Slot;

    fn task(number: usize) -> Runnable {
        Runnable {
            tid: (number as u64).into(),
            slot: Slot::new(number),
        }
    }

    /// The policy with a search for each removal, whose draws are the meaning of a seed.
    struct Plain(Vec<Runnable>, Draws);

    impl Plain {
        fn pop(&mut self) -> Option<Runnable> {
            match self.0.len() {
                0 | 1 => self.0.pop(),
                len => Some(self.0.swap_remove(self.1.below(len as u64) as usize)),
            }
        }

        fn remove(&mut self, task: Runnable) {
            self.0.retain(|other| *other != task);
        }
    }

    /// A removed task may come back, as it does for a policy that moves its tasks.
    #[test]
    fn a_removal_has_the_same_effect_before_and_after_other_pushes() {
        let (mut random, mut plain) = (Random::new(7), Plain(Vec::new(), Draws::new(7)));
        let mut choices = Draws::new(1);
        let mut has_closed = false;
        for step in 0..20_000 {
            let number = 1 + choices.below(2000) as usize;
            let is_there = plain.0.contains(&task(number));
            match choices.below(8) {
                0 => assert_eq!(random.pop(), plain.pop(), "{step}"),
                1..=3 => {
                    random.remove(task(number));
                    plain.remove(task(number));
                }
                _ if !is_there => {
                    random.push(task(number), Cause::Woken);
                    plain.0.push(task(number));
                }
                _ => {}
            }
            assert_eq!(random.len(), plain.0.len(), "{step}");
            let places = random.places.as_ref();
            has_closed |= places.is_some_and(|places| places.holes.len() > 64);
        }
        assert!(has_closed, "there are holes enough");
        while let Some(next) = plain.pop() {
            assert_eq!(random.pop(), Some(next));
        }
        assert_eq!((random.pop(), random.len()), (None, 0));
    }
}
