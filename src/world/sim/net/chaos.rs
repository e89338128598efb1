//! Chaos: faults at random, for a while.

use rand_pcg::{Pcg64, rand_core::SeedableRng};

use super::{
    fault::Fault,
    links::below,
    state::{Net, Timer},
};
use crate::abi::{HostId, Nanos};

/// The random numbers of chaos are a sequence apart from those of the net.
const OF_CHAOS: u64 = 0x0063_6861_6f73;

/// How long it lasts.
const SPAN: Nanos = Nanos::from_millis(60_000);

/// The mean time between two faults, for each level.
const MEANS: [Nanos; 3] = [
    Nanos::from_millis(5000),
    Nanos::from_millis(1500),
    Nanos::from_millis(400),
];

/// The shortest and the longest time until a fault ends.
const SHORTEST: Nanos = Nanos::from_millis(10);
const LONGEST: Nanos = Nanos::from_millis(5000);

/// A source of faults.
pub(super) struct Chaos {
    random: Pcg64,
    /// The next fault comes at that time; never once it is over.
    next: Nanos,
    end: Nanos,
    mean: Nanos,
}

impl Chaos {
    pub(super) fn new(level: u8, seed: u64, now: Nanos) -> Option<Self> {
        let level = usize::from(level).checked_sub(1)?.min(MEANS.len() - 1);
        let mut chaos = Self {
            random: Pcg64::seed_from_u64(seed ^ OF_CHAOS),
            next: now,
            end: now.saturating_add(SPAN),
            mean: MEANS[level],
        };
        chaos.schedule();
        Some(chaos)
    }

    /// When the next fault comes. It is not waited for: chaos keeps no run alive.
    pub(super) fn next(&self) -> Option<Nanos> {
        (self.next < self.end).then_some(self.next)
    }

    fn is_due(&self, now: Nanos) -> bool {
        self.next().is_some_and(|next| next <= now)
    }

    fn schedule(&mut self) {
        let gap = 1 + below(&mut self.random, 2 * self.mean.0);
        self.next = self.next.saturating_add(Nanos(gap));
    }

    /// When a fault of now ends.
    fn until(&mut self) -> Nanos {
        let span = SHORTEST.0 + below(&mut self.random, LONGEST.0 - SHORTEST.0);
        self.next.saturating_add(Nanos(span)).min(self.end)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        Some(from[below(&mut self.random, from.len() as u64) as usize].clone())
    }
}

impl Net {
    /// Returns the faults that are due: those of chaos, and the ends of earlier ones.
    pub(super) fn take_faults(&mut self) -> Vec<Fault> {
        let mut faults = std::mem::take(&mut self.ended_faults);
        while let Some(mut chaos) = self.chaos.take_if(|chaos| chaos.is_due(self.now)) {
            if let Some((fault, end)) = self.draw(&mut chaos) {
                let at = chaos.until();
                faults.push(fault);
                if let Some(end) = end {
                    self.agenda.arm(at, Timer::EndFault(Box::new(end)));
                }
            }
            chaos.schedule();
            self.chaos = Some(chaos);
        }
        faults
    }

    /// Draws a fault, and what ends it; `None` if there is nothing to break.
    fn draw(&self, chaos: &mut Chaos) -> Option<(Fault, Option<Fault>)> {
        let kind = below(&mut chaos.random, 10);
        if kind == 9 {
            let crashable = |host: &HostId| {
                let machine = self.hosts.get(*host);
                machine.is_up && machine.boots
            };
            let hosts: Vec<_> = self.hosts.ids().filter(crashable).collect();
            let host = self.name(chaos.pick(&hosts)?);
            return Some((Fault::Crash(host.clone()), Some(Fault::Restart(host))));
        }
        let hosts: Vec<_> = self.hosts.ids().collect();
        let a = chaos.pick(&hosts)?;
        let others: Vec<_> = hosts.into_iter().filter(|host| *host != a).collect();
        let b = chaos.pick(&others)?;
        let is_cut = self.links.is_cut((a, b)) || self.links.is_cut((b, a));
        let (a, b) = (self.name(a), self.name(b));
        match kind {
            0..=4 if is_cut => None,
            0..=3 => Some((Fault::Cut(a.clone(), b.clone()), Some(Fault::Heal(a, b)))),
            4 => {
                let cut = Fault::CutOneWay(a.clone(), b.clone());
                Some((cut, Some(Fault::Heal(a, b))))
            }
            5..=6 => {
                let factor = 2 + below(&mut chaos.random, 19) as u32;
                Some((Fault::Slow(a.clone(), factor), Some(Fault::Slow(a, 1))))
            }
            _ => Some((Fault::Reset(a, b), None)),
        }
    }

    fn name(&self, host: HostId) -> String {
        self.hosts.get(host).name.clone()
    }
}
