//! The warning of a task that stops the virtual clock: it is ready again and again, and so keeps the
//! clock from the next timer.
//!
//! The turns of each task are counted between two polls of the world that find the same time. The
//! first count comes when the instant has had many turns for each task.

use super::Kernel;
use crate::{
    abi::{Nanos, Tid},
    log::tracing::warn_of_standstill,
};

/// The number of turns at one instant of which the kernel warns.
const MANY: u64 = 1_000_000;

/// The tasks are counted when an instant has had this many turns for each of them, or [`AT_LATEST`]
/// together; but not before each of a crowd can have had some.
const FOR_EACH: u64 = 64;

const AT_LATEST: u64 = MANY / 2;

const SOME: u64 = 4;

#[derive(Debug)]
pub(super) struct Standstill {
    /// The tick from which the next poll counts.
    next: u64,
    /// The instant of the last count, and the tick at which it began.
    at: Nanos,
    begun: u64,
    /// The traps of each task at the first count, by tid.
    first: Option<Vec<(Tid, u64)>>,
    is_told: bool,
}

impl Default for Standstill {
    fn default() -> Self {
        Self {
            next: FOR_EACH,
            at: Nanos::FOREVER,
            begun: 0,
            first: None,
            is_told: false,
        }
    }
}

impl Standstill {
    /// Notes that the clock has moved, before this tick. One store: short instants cost no more.
    #[inline(always)]
    pub(super) fn end(&mut self, tick: u64) {
        self.next = tick + FOR_EACH;
    }
}

impl Kernel {
    /// Warns once of a task that has had a million turns at one instant, if a task waits for the
    /// clock.
    #[inline(always)]
    pub(super) fn check_standstill(&mut self) {
        if self.stats.ticks >= self.standstill.next {
            self.count_turns();
        }
    }

    #[cold]
    #[inline(never)]
    fn count_turns(&mut self) {
        let ticks = self.stats.ticks;
        let standstill = &mut self.standstill;
        if standstill.is_told {
            standstill.next = u64::MAX;
            return;
        }
        if standstill.at != self.clock {
            standstill.at = self.clock;
            standstill.begun = standstill.next - FOR_EACH;
            standstill.first = None;
        }
        let live = self.tasks.live() as u64;
        let enough = (FOR_EACH * live).min(AT_LATEST).max(SOME * live);
        let Some(first) = &standstill.first else {
            standstill.next = standstill.begun + enough;
            if ticks >= standstill.next {
                let traps = self.tasks.iter().map(|task| (task.tid(), task.traps()));
                standstill.first = Some(traps.collect());
                standstill.next = ticks + MANY;
            }
            return;
        };
        let before = |tid| match first.binary_search_by_key(&tid, |(tid, _)| *tid) {
            Ok(at) => first[at].1,
            Err(_) => 0,
        };
        let tasks = self.tasks.iter().filter(|task| !task.tid().is_daemon());
        let turns = tasks.map(|task| (task.traps() - before(task.tid()), task));
        let Some((most, busiest)) = turns.max_by_key(|(turns, _)| *turns) else {
            return;
        };
        // A task that has had fewer needs as many turns as are missing. A count goes through all
        // tasks, so many turns come between two.
        standstill.next = ticks + MANY.saturating_sub(most).max(enough);
        if most >= MANY && !self.waits_on_threads() {
            self.standstill.is_told = true;
            warn_of_standstill(busiest.tid(), busiest.name(), self.clock);
        }
    }
}
