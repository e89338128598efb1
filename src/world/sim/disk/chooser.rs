//! What decides what a crash leaves: chance, or an enumeration of all that it may leave.

use rand_pcg::{Pcg64, rand_core::Rng};

use crate::world::sequence::below;

/// Draws what a crash leaves. Crashes differ in kind, since the typical ones are rare among all: all
/// is lost; all is kept; all up to a point; each thing by itself.
pub(super) struct Chooser<'a> {
    random: &'a mut Pcg64,
}

enum Kind {
    Lost,
    Kept,
    /// So many more things are kept.
    UpTo(u64),
    Each,
}

impl<'a> Chooser<'a> {
    pub(super) fn new(random: &'a mut Pcg64) -> Self {
        Self { random }
    }

    /// A crash of a random kind. What it returns chooses a number below that which it is given.
    pub(super) fn of_crash(self) -> impl FnMut(u64) -> u64 + use<'a> {
        let random = self.random;
        let mut kind = match below(random, 8) {
            0 => Kind::Lost,
            1 => Kind::Kept,
            // The point is anywhere, a near one more often.
            2..=3 => Kind::UpTo(random.next_u64() >> (58 + below(random, 6))),
            _ => Kind::Each,
        };
        move |limit| match &mut kind {
            Kind::Lost => 0,
            Kind::Kept => limit - 1,
            Kind::UpTo(0) => {
                kind = Kind::Lost;
                below(random, limit)
            }
            Kind::UpTo(left) => {
                *left -= 1;
                limit - 1
            }
            Kind::Each => match below(random, 3) {
                0 => 0,
                1 => limit - 1,
                _ => below(random, limit),
            },
        }
    }
}

/// All sequences of choices, one after the other, in the order of numbers: first that in which nothing
/// is kept.
pub(super) struct All {
    /// The choices of the next sequence that are fixed, each with its limit.
    fixed: Vec<(u64, u64)>,
    is_over: bool,
}

impl All {
    pub(super) fn new() -> Self {
        Self {
            fixed: Vec::new(),
            is_over: false,
        }
    }

    /// Makes the choices of the next sequence; `None` after the last one.
    pub(super) fn next<T>(
        &mut self,
        run: impl FnOnce(&mut dyn FnMut(u64) -> u64) -> T,
    ) -> Option<T> {
        if self.is_over {
            return None;
        }
        let mut at = 0;
        let result = run(&mut |limit| {
            if at == self.fixed.len() {
                self.fixed.push((0, limit));
            }
            at += 1;
            self.fixed[at - 1].0
        });
        while let Some((choice, limit)) = self.fixed.pop() {
            if choice + 1 < limit {
                self.fixed.push((choice + 1, limit));
                return Some(result);
            }
        }
        self.is_over = true;
        Some(result)
    }
}
