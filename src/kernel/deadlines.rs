//! The timeouts around the calls of one task.

use super::timers::Timer;

#[derive(Default, Debug)]
pub(super) struct Timeouts {
    /// The timeouts that have not fired, the outermost first.
    pub(super) armed: Vec<Timer>,
    /// The outermost timeout that has fired and not cut yet. Those within it are disarmed.
    pub(super) due: Option<Due>,
}

impl Timeouts {
    pub(super) fn take(&mut self, number: u64) -> impl Iterator<Item = Timer> {
        let outer = self.armed.iter();
        let outer = outer.take_while(|(_, other)| *other != number).count();
        self.armed.drain(outer..)
    }
}

/// A timeout that has fired.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) number: u64,
    /// The calls that it has let through because they only ask.
    asked: u8,
    /// Whether it has let one answer through. Then it cuts the next call before its effect.
    pub(super) spent: bool,
}

impl Due {
    /// The most calls that only ask before the one answer.
    const MOST_ASKED: u8 = 16;

    pub(super) fn new(number: u64, spent: bool) -> Self {
        Self {
            number,
            asked: 0,
            spent,
        }
    }

    pub(super) fn let_through(&mut self, only_asks: bool) {
        if only_asks && self.asked < Self::MOST_ASKED {
            self.asked += 1;
        } else {
            self.spent = true;
        }
    }
}
