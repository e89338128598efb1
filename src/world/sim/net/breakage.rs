//! What chaos breaks: the faults that it draws, and their ends.

use super::{
    chaos::Chaos,
    fault::Fault,
    links::below,
    state::{Net, Timer},
};
use crate::abi::HostId;

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
