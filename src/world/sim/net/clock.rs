//! The wall clocks of the hosts: the virtual time, from a dawn on, with steps.

use std::time::Duration;

use crate::abi::{HostId, Nanos};

const SECOND: i128 = 1_000_000_000;

/// The time of day at the begin, unless a world sets one: 2000-01-01T00:00:00Z.
pub(super) const DAWN: Duration = Duration::from_secs(946_684_800);

#[derive(Clone, Default)]
pub(super) struct Clocks(Vec<Step>);

/// A clock differs by so many nanoseconds from an instant on.
#[derive(Clone)]
struct Step {
    at: Nanos,
    /// All hosts, unless it is one.
    host: Option<HostId>,
    by: i64,
}

impl Clocks {
    pub(super) fn step(&mut self, at: Nanos, host: Option<HostId>, by: i64) {
        self.0.push(Step { at, host, by });
    }

    /// The steps that were made, in a world that begins.
    pub(super) fn begin(&mut self) {
        self.0.iter_mut().for_each(|step| step.at = Nanos::ZERO);
    }

    /// The time of day on a host, from 1970 to 2554.
    pub(super) fn time(&self, host: HostId, dawn: Nanos, now: Nanos) -> Nanos {
        let nanos = self.nanos(host, dawn, now).max(0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).into()
    }

    /// The instant at which the second of a host's clock ends.
    pub(super) fn next_second(&self, host: HostId, dawn: Nanos, now: Nanos) -> Nanos {
        let within = self.nanos(host, dawn, now).rem_euclid(SECOND);
        let left = Duration::from_nanos((SECOND - within) as u64);
        now.saturating_add(left.into())
    }

    fn nanos(&self, host: HostId, dawn: Nanos, now: Nanos) -> i128 {
        let is_here = |step: &&Step| step.at <= now && step.host.is_none_or(|of| of == host);
        let steps: i128 = self
            .0
            .iter()
            .filter(is_here)
            .map(|step| i128::from(step.by))
            .sum();
        let begin_and_now = Duration::from(dawn) + Duration::from(now);
        begin_and_now.as_nanos() as i128 + steps
    }
}
