//! The flags that decide which lane a trap takes, and those that change the turn after it.

use super::frame::{
    DEFERRED, DUE, NOTED, OBSERVED, PAYLOAD, PUBLISHED, REQUEUED, SCREENED, TrapFrame,
};
use crate::abi::SystemCall;

impl TrapFrame {
    /// Returns whether the fast lane may answer the call.
    #[inline(always)]
    pub(crate) fn is_in_lane(&self) -> bool {
        self.flags.get() & !REQUEUED == 0
    }

    /// Returns whether a task that stays ready leaves its place, to be put back.
    #[inline(always)]
    pub(crate) fn is_requeued(&self) -> bool {
        self.flags.get() & REQUEUED != 0
    }

    /// Returns whether the fast lane may answer the call, and its turns are published.
    pub(crate) fn is_in_published_lane(&self) -> bool {
        self.flags.get() == REQUEUED | PUBLISHED
    }

    /// Returns whether the fast lane may answer the call, and tracers get events.
    pub(crate) fn is_in_observed_lane(&self) -> bool {
        self.flags.get() == OBSERVED
    }

    /// Returns whether nothing comes with a call but what belongs to it, and nothing decides on it.
    #[inline(always)]
    pub(crate) fn is_bare(&self, call: SystemCall) -> bool {
        match self.flags.get() & !(REQUEUED | PUBLISHED) {
            0 => true,
            PAYLOAD => call.has_payload(),
            _ => false,
        }
    }

    /// Returns whether only deferred calls come with a call, and nothing decides on it.
    #[inline(always)]
    pub(crate) fn has_only_deferred(&self) -> bool {
        self.flags.get() & !(REQUEUED | PUBLISHED) == DEFERRED
    }

    /// Makes tasks that stay ready leave their places, to be put back.
    pub(crate) fn set_requeued(&self, requeued: bool) {
        self.flag(REQUEUED, requeued);
    }

    /// Emits all traps to tracers.
    pub(crate) fn set_observed(&self, observed: bool) {
        self.flag(OBSERVED, observed);
    }

    pub(crate) fn set_published(&self, published: bool) {
        self.flag(PUBLISHED, published);
    }

    /// Has the kernel screen the next trap.
    pub(crate) fn set_screened(&self, screened: bool) {
        self.flag(SCREENED, screened);
    }

    #[inline(always)]
    pub(crate) fn is_screened(&self) -> bool {
        self.flags.get() & SCREENED != 0
    }

    /// Returns whether a trap is noted or screened. One question for both.
    #[inline(always)]
    pub(crate) fn is_looked_into(&self) -> bool {
        self.flags.get() & (NOTED | SCREENED) != 0
    }

    /// Sends the next trap to the plain lane, which cuts it.
    pub(crate) fn set_due(&self) {
        self.flag(DUE, true);
    }

    pub(crate) fn take_due(&self) -> bool {
        let due = self.flags.get() & DUE != 0;
        self.flag(DUE, false);
        due
    }
}
