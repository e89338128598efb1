//! A rung of the ladder: the timers of a stretch of time, unordered. There may be a million of them, so each
//! has the lower half of its number, and the rung has the upper half once.

use crate::{abi::Nanos, sched::Slot};

/// The number of timers for which the foot has room.
pub(super) const FOOT: usize = 64;

/// A timer: its deadline, and its number in order of arming. Timers fire in this order.
pub(crate) type Timer = (Nanos, u64);

/// A timer, and the slot of its task.
pub(super) type Armed = (Timer, Slot);

/// The timers from an instant on, up to the begin of the rung above.
#[derive(Debug)]
pub(super) struct Rung {
    pub(super) from: Timer,
    /// What is added to the numbers of the near ones.
    base: u64,
    /// Those whose numbers are near the first one's, mostly in order of these.
    near: Vec<Near>,
    /// The others. Few rungs are left for so long that there are any.
    far: Vec<Armed>,
}

#[derive(Debug)]
struct Near {
    deadline: Nanos,
    number: u32,
    /// [`Slot::NONE`] if it is disarmed.
    slot: Slot,
}

/// What a rung does not find at once is disarmed by its number when it leaves.
pub(super) enum Disarmed {
    Gone,
    Marked,
    Unmarked,
}

impl Rung {
    /// An empty rung, with room for so many timers.
    pub(super) fn new(from: Timer, room: usize) -> Self {
        Self {
            from,
            base: 0,
            near: Vec::with_capacity(room),
            far: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.near.len() + self.far.len()
    }

    #[inline(always)]
    pub(super) fn push(&mut self, (timer, slot): Armed) {
        let kept = self.near.len();
        if kept == 0 {
            self.base = timer.1.saturating_sub(1 << 31);
        }
        let Some(number) = self.number(timer) else {
            return self.far.push((timer, slot));
        };
        if kept == self.near.capacity() {
            self.near.reserve_exact(FOOT + growth(kept));
        }
        let deadline = timer.0;
        self.near.push(Near {
            deadline,
            number,
            slot,
        });
    }

    /// The lower half of the number of a near timer.
    #[inline(always)]
    fn number(&self, timer: Timer) -> Option<u32> {
        timer.1.checked_sub(self.base)?.try_into().ok()
    }

    fn armed(&self, near: &Near) -> Armed {
        let number = self.base + u64::from(near.number);
        ((near.deadline, number), near.slot)
    }

    /// All, with those that are marked.
    pub(super) fn iter(&self) -> impl Iterator<Item = Armed> {
        let near = self.near.iter().map(|near| self.armed(near));
        near.chain(self.far.iter().copied())
    }

    pub(super) fn disarm(&mut self, timer: Timer) -> Disarmed {
        let last = self.near.last().map(|near| self.armed(near).0);
        if last == Some(timer) {
            self.near.pop();
            return Disarmed::Gone;
        }
        let found = self
            .number(timer)
            .map(|number| self.near.binary_search_by_key(&number, |near| near.number));
        let Some(Ok(at)) = found else {
            return Disarmed::Unmarked;
        };
        self.near[at].slot = Slot::NONE;
        Disarmed::Marked
    }

    pub(super) fn retain(&mut self, mut keeps: impl FnMut(&Armed) -> bool) {
        let base = self.base;
        self.near.retain(|near| {
            let number = base + u64::from(near.number);
            keeps(&((near.deadline, number), near.slot))
        });
        self.far.retain(keeps);
    }
}

/// Returns for how many more timers a full list gets room. A long one has little to spare: there may be a
/// million timers, and the system moves its pages without a copy.
pub(super) fn growth(kept: usize) -> usize {
    const LONG: usize = 8192;
    if kept < LONG { kept / 2 } else { kept / 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_on_a_rung_takes_16_bytes() {
        assert_eq!(size_of::<Near>(), 16);
    }

    #[test]
    fn a_rung_has_timers_of_all_numbers() {
        let middle = 1u64 << 40;
        let mut rung = Rung::new((Nanos(0), 0), 0);
        let numbers = [0, 1 << 30, 1 << 31, 1 << 32, 1 << 39];
        let numbers = numbers.map(|less| [middle - less, middle + less]);
        let mut numbers: Vec<u64> = numbers.into_iter().flatten().collect();
        numbers.remove(0);
        for number in &numbers {
            rung.push(((Nanos(7), *number), Slot::LAST));
        }
        let mut kept: Vec<u64> = rung.iter().map(|(timer, _)| timer.1).collect();
        assert_eq!((rung.near.len(), rung.far.len()), (4, 5));
        kept.sort_unstable();
        numbers.sort_unstable();
        assert_eq!(kept, numbers);
    }
}
