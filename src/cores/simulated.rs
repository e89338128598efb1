//! Kernels on one thread and one clock. A seed decides which has the next turn, and so in which order
//! mail arrives.

use std::{cell::Cell, rc::Rc, time::Duration};

use super::stuck;
use crate::{
    abi::KernelId,
    kernel::{Error, Kernel, Report, Step},
    sched::Draws,
    world::Pace,
};

/// A kernel that runs, or its result.
struct Member {
    id: KernelId,
    kernel: Option<(Kernel, Rc<Pace>)>,
    result: Option<Result<Report, Error>>,
    /// The failure of another kernel that has shut it down.
    peer: Option<(KernelId, String)>,
}

struct Crew {
    members: Vec<Member>,
    clock: Rc<Cell<Duration>>,
    draws: Draws,
}

/// Boots so many kernels, one after the other, and runs them. `mixes` has the tasks of each in a random
/// order, too.
pub(super) fn run(
    count: usize,
    seed: u64,
    mixes: bool,
    boot: impl Fn(KernelId) -> Result<Kernel, Error>,
) -> Vec<Result<Report, Error>> {
    let mut crew = Crew {
        members: Vec::new(),
        clock: Rc::default(),
        draws: Draws::new(seed),
    };
    for id in (0..count).map(KernelId::at) {
        let (own, is_shown) = (crew.draws.draw(), count > 1);
        let booted = boot(id).and_then(|mut kernel| {
            kernel.enlist(id, is_shown);
            let pace = kernel
                .keep_step(&crew.clock, own, mixes)
                .map_err(Error::from)?;
            Ok((kernel, pace))
        });
        let (kernel, result) = match booted {
            Ok(booted) => (Some(booted), None),
            Err(error) => (None, Some(Err(error))),
        };
        crew.members.push(Member {
            id,
            kernel,
            result,
            peer: None,
        });
    }
    drop(boot);
    crew.fail_for_boot();
    while crew.turn() {}
    let results = crew.members.into_iter().map(|member| member.result);
    results
        .map(|result| result.expect("all have ended"))
        .collect()
}

impl Crew {
    fn fail_for_boot(&mut self) {
        let mut results = self
            .members
            .iter()
            .map(|member| (member.id, &member.result));
        let failed = results.find_map(|(id, result)| match result {
            Some(Err(error)) => Some((id, error.to_string())),
            _ => None,
        });
        if let Some((id, why)) = failed {
            self.shut_down(id, &why);
        }
    }

    /// Gives one kernel a turn, or lets the time pass if all wait. Returns whether any is left.
    fn turn(&mut self) -> bool {
        let ready: Vec<usize> =
            self.places(|kernel, pace| pace.asleep().is_none() || kernel.remote().is_raised());
        if ready.is_empty() {
            return self.let_time_pass();
        }
        let at = ready[self.draws.below(ready.len() as u64) as usize];
        let member = &mut self.members[at];
        let (kernel, pace) = member.kernel.as_mut().expect("it runs");
        pace.wake();
        match kernel.step() {
            Ok(Step::Ran(_) | Step::Idle) => {}
            Ok(Step::Finished) => {
                let report = kernel.report();
                self.end(at, Ok(report));
            }
            Err(error) => self.end(at, Err(error)),
        }
        true
    }

    /// Returns the places of the kernels that run and that are so.
    fn places(&self, is_so: impl Fn(&Kernel, &Pace) -> bool) -> Vec<usize> {
        let members = self.members.iter().enumerate();
        let places = members.filter_map(|(at, member)| {
            let (kernel, pace) = member.kernel.as_ref()?;
            is_so(kernel, pace).then_some(at)
        });
        places.collect()
    }

    /// Sets the clock to the next instant for which a kernel waits. If no kernel waits for one, none can
    /// go on: that is a deadlock of all.
    fn let_time_pass(&mut self) -> bool {
        let running = self
            .members
            .iter()
            .filter_map(|member| member.kernel.as_ref());
        let paces: Vec<Rc<Pace>> = running.map(|(_, pace)| Rc::clone(pace)).collect();
        let until = |pace: &Rc<Pace>| pace.asleep().flatten();
        if let Some(next) = paces.iter().filter_map(until).min() {
            self.clock.set(next);
            let due = paces.iter().filter(|pace| until(pace) == Some(next));
            due.for_each(|pace| pace.wake());
            return true;
        }
        let running = self.members.iter_mut().filter_map(|member| {
            let (kernel, _) = member.kernel.as_mut()?;
            Some((member.id, kernel))
        });
        let mut running: Vec<_> = running.collect();
        // First all reports: the end of one kernel changes what the others wait for.
        let reports = match &mut running[..] {
            [(_, kernel)] if !kernel.is_beside() => vec![kernel.stuck_among()],
            all => stuck::reports(all)
                .into_iter()
                .map(Error::Deadlock)
                .collect(),
        };
        for (at, error) in self.places(|_, _| true).into_iter().zip(reports) {
            self.members[at].result = Some(Err(error));
        }
        self.members
            .iter_mut()
            .for_each(|member| drop(member.kernel.take()));
        false
    }

    /// Ends a kernel with this result. If it has failed, shuts the others down.
    fn end(&mut self, at: usize, result: Result<Report, Error>) {
        let has_others = self.members.len() > 1;
        let member = &mut self.members[at];
        let result = result.map_err(|error| match has_others {
            true => error.beside(member.id),
            false => error,
        });
        let why = result.as_ref().err().map(ToString::to_string);
        member.result = Some(match (result, member.peer.take()) {
            (Ok(_), Some((kernel, why))) => Err(Error::Peer { kernel, why }),
            (result, _) => result,
        });
        let id = member.id;
        drop(member.kernel.take());
        if let Some(why) = why {
            self.shut_down(id, &why);
        }
    }

    fn shut_down(&mut self, id: KernelId, why: &str) {
        for member in &mut self.members {
            if let Some((kernel, _)) = &member.kernel
                && member.peer.is_none()
            {
                member.peer = Some((id, why.to_string()));
                kernel.remote().shutdown();
            }
        }
    }
}
