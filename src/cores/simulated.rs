//! Kernels on one thread and one clock. A seed decides which has the next turn, and so in which order
//! mail arrives; or, in a search, the policy of a kernel that conducts them.

use std::{cell::Cell, rc::Rc, time::Duration};

use super::stuck;
use crate::{
    abi::KernelId,
    kernel::{Conductor, Error, Kernel, Own, Part, Report, Step},
    sched::Draws,
    world::Pace,
};

/// A kernel that runs, or its result.
struct Member {
    id: KernelId,
    kernel: Option<(Kernel, Rc<Pace>)>,
    /// What it shares with the conductor, if there is one.
    part: Rc<Part>,
    /// Why the kernel fails, until the turn of its own in which it ends.
    failure: Option<Error>,
    result: Option<Result<Report, Error>>,
    /// The failure of another kernel that has shut it down.
    peer: Option<(KernelId, String)>,
}

impl Member {
    /// Whether all that is left to the kernel is its end: it has failed, or no task keeps it running.
    fn is_over(&self) -> bool {
        let has_tasks = |(kernel, _): &(Kernel, Rc<Pace>)| kernel.has_tasks();
        self.failure.is_some() || !self.kernel.as_ref().is_none_or(has_tasks)
    }

    /// Returns the error with the number of the kernel before those of its tasks, if it has others beside it.
    fn numbered(&self, error: Error, has_others: bool) -> Error {
        match has_others {
            true => error.beside(self.id),
            false => error,
        }
    }
}

/// The most times that kernels take what a turn has sent, and what was sent for that. Only daemons send more
/// before a task has its turn.
const MOST_ANSWERS: usize = 100_000;

struct Crew {
    members: Vec<Member>,
    clock: Rc<Cell<Duration>>,
    draws: Draws,
    conductor: Option<Rc<Conductor>>,
}

/// Boots so many kernels, one after the other, and runs them.
pub(super) fn run(
    count: usize,
    seed: u64,
    conductor: Option<Rc<Conductor>>,
    boot: impl Fn(KernelId) -> Result<Kernel, Error>,
) -> Vec<Result<Report, Error>> {
    let mut crew = Crew {
        members: Vec::new(),
        clock: Rc::default(),
        draws: Draws::new(seed),
        conductor,
    };
    for id in (0..count).map(KernelId::at) {
        let (own, is_shown) = (crew.draws.draw(), count > 1);
        let booted = boot(id).and_then(|mut kernel| {
            kernel.enlist(id, is_shown);
            let kept = kernel.keep_step(&crew.clock, own, crew.conductor.as_ref());
            let (pace, part) = kept.map_err(Error::from)?;
            Ok((kernel, pace, part.unwrap_or_default()))
        });
        let (kernel, part, result) = match booted {
            Ok((kernel, pace, part)) => (Some((kernel, pace)), part, None),
            Err(error) => (None, Rc::default(), Some(Err(error))),
        };
        crew.members.push(Member {
            id,
            kernel,
            part,
            failure: None,
            result,
            peer: None,
        });
    }
    drop(boot);
    crew.fail_for_boot();
    match crew.conductor.clone() {
        None => while crew.turn() {},
        Some(conductor) => {
            conductor.begin();
            (0..count).for_each(|at| crew.settle(at, &conductor));
            while crew.conducted_turn(&conductor) {}
            conductor.note_wait();
        }
    }
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
        self.step(at, Kernel::step);
        true
    }

    /// Carries out a step of a kernel. One that has failed before ends instead: other kernels may have had turns
    /// between the two.
    fn step(&mut self, at: usize, step: impl FnOnce(&mut Kernel) -> Result<Step, Error>) {
        let member = &mut self.members[at];
        if let Some(error) = member.failure.take() {
            return self.end(at, Err(error));
        }
        let Some((kernel, pace)) = member.kernel.as_mut() else {
            return;
        };
        pace.wake();
        match step(kernel) {
            Ok(Step::Ran(_) | Step::Idle) => {}
            Ok(Step::Finished) => {
                let report = kernel.report();
                self.end(at, Ok(report));
            }
            Err(error) => {
                // It waits for nothing any more.
                pace.wake();
                member.failure = Some(error);
            }
        }
    }

    /// Gives the task its turn that the conductor chooses, or lets the time pass if all wait. What the turn
    /// has sent arrives at once. Returns whether any kernel is left.
    fn conducted_turn(&mut self, conductor: &Conductor) -> bool {
        let due = self.places_of_live(Kernel::has_turn_due);
        let is_ready = |member: &Member| member.kernel.is_some() && member.part.is_ready();
        let at = if let Some(at) = due.first() {
            self.step(*at, Kernel::have_turn);
            *at
        } else if !self.members.iter().any(is_ready) {
            return self.let_time_pass_for_all(conductor);
        } else if conductor.is_at_limit() {
            return self.abandon(conductor, |kernel| kernel.over_limit(conductor));
        } else if let Some((kernel, task)) =
            conductor.next(|kernel| &self.members[kernel.index()].part)
        {
            let at = kernel.index();
            if task.tid.is_kernel() {
                self.own_turn(at);
            } else {
                self.members[at].part.resume(task);
                self.step(at, Kernel::have_turn);
            }
            at
        } else {
            let why = conductor.failure();
            return self.abandon(conductor, |_| Error::Policy(why.clone()));
        };
        self.settle(at, conductor);
        for _ in 0..MOST_ANSWERS {
            let raised = self.places_of_live(|kernel| kernel.remote().is_raised());
            match raised.first() {
                Some(at) => self.settle(*at, conductor),
                None => {
                    self.note_missed(conductor);
                    return true;
                }
            }
        }
        let why = "daemons of several kernels send each other mail without an end";
        self.abandon(conductor, |_| Error::Policy(why.into()))
    }

    /// Gives a kernel itself a turn: it ends, or is shut down, or will look at the world.
    fn own_turn(&mut self, at: usize) {
        let member = &self.members[at];
        match (member.part.own_turn(), &member.kernel) {
            (Own::End, _) => self.step(at, Kernel::look),
            (Own::Shutdown, Some((kernel, _))) => kernel.remote().shutdown(),
            (Own::Shutdown | Own::Look, _) => {}
        }
    }

    /// Notes what has come to kernels that are over or gone.
    fn note_missed(&self, conductor: &Conductor) {
        let members = self.members.iter();
        let passed = members.filter(|member| member.kernel.is_none() || member.part.is_over());
        passed.for_each(|member| conductor.note_missed(member.id, &member.part));
    }

    /// Lets the time pass. The kernels whose time has come look at the world in any order, and mail of the first
    /// may reach another before.
    fn let_time_pass_for_all(&mut self, conductor: &Conductor) -> bool {
        conductor.note_wait();
        let goes_on = self.let_time_pass();
        for Member {
            id, kernel, part, ..
        } in &self.members
        {
            let waits = |(_, pace): &(Kernel, Rc<Pace>)| pace.asleep().is_some();
            if !kernel.as_ref().is_none_or(waits) {
                conductor.wake(*id, part);
            }
        }
        goes_on
    }

    /// Has a kernel take what has come, and tells the conductor what it has done.
    fn settle(&mut self, at: usize, conductor: &Conductor) {
        let member = &self.members[at];
        let kernel = member.kernel.as_ref().map(|(kernel, _)| kernel);
        conductor.polls(member.id, kernel, &member.part);
        loop {
            if !self.members[at].is_over() {
                self.step(at, Kernel::look);
            }
            let member = &self.members[at];
            let Member {
                id, kernel, part, ..
            } = member;
            conductor.follow(*id, kernel.as_ref().map(|(kernel, _)| kernel), part);
            if let Some((kernel, _)) = kernel
                && member.is_over()
            {
                return conductor.finish(*id, kernel, part);
            }
            let waits = |(_, pace): &(Kernel, Rc<Pace>)| pace.asleep().is_some();
            let is_due = |(kernel, _): &(Kernel, Rc<Pace>)| kernel.has_turn_due();
            if part.is_ready() || kernel.as_ref().is_none_or(|it| waits(it) || is_due(it)) {
                break;
            }
        }
    }

    /// Ends all kernels that run with an error.
    fn abandon(&mut self, conductor: &Conductor, error: impl Fn(&Kernel) -> Error) -> bool {
        let has_others = self.members.len() > 1;
        for member in &mut self.members {
            if let Some((kernel, _)) = member.kernel.take() {
                let error = member.failure.take().unwrap_or_else(|| error(&kernel));
                member.result = Some(Err(member.numbered(error, has_others)));
                drop(kernel);
                conductor.follow(member.id, None, &member.part);
            }
        }
        false
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

    /// Returns those of them that are not over.
    fn places_of_live(&self, is_so: impl Fn(&Kernel) -> bool) -> Vec<usize> {
        let mut places = self.places(|kernel, _| is_so(kernel));
        places.retain(|at| !self.members[*at].part.is_over());
        places
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
        let result = result.map_err(|error| member.numbered(error, has_others));
        let why = result.as_ref().err().map(ToString::to_string);
        member.result = Some(match (result, member.peer.take()) {
            (Ok(_), Some((kernel, why))) => Err(Error::Peer { kernel, why }),
            (result, _) => result,
        });
        let id = member.id;
        drop(member.kernel.take());
        if let Some(why) = why {
            if let Some(conductor) = &self.conductor {
                conductor.note_failure();
            }
            self.shut_down(id, &why);
        }
    }

    fn shut_down(&mut self, id: KernelId, why: &str) {
        for member in &mut self.members {
            if let Some((kernel, _)) = &member.kernel
                && member.peer.is_none()
            {
                member.peer = Some((id, why.to_string()));
                match &self.conductor {
                    Some(_) if member.part.is_over() => {}
                    Some(conductor) => conductor.end(member.id, &member.part),
                    None => kernel.remote().shutdown(),
                }
            }
        }
    }
}
