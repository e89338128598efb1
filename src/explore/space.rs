//! What a schedule decides besides the order of its turns: the answers of choices, the time that turns
//! take, and faults.
//!
//! The world of a trial asks a [`Space`], which knows what is possible, and has the answer decided: by
//! the seed, by a plan, or by the tree of an exhaustive search.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use super::{
    felt::{Counted, Faults},
    may::{MayFault, What},
};
use crate::{BeforeTurn, Event, Fault, Inject, SimNet, SystemCall, Tid, Tracer, sched::Draws};

/// Answers what a schedule decides. The strategies, the tree and the plans each have one.
pub(super) trait Decide {
    /// Answers a choice among so many. `drawn` is the answer of the seed.
    fn choose(&self, of: u64, drawn: u64) -> u64;

    /// Decides what happens before the next turn, besides a wait for the clock.
    fn before_turn(&self, may: &Before) -> Option<Happens>;

    /// Decides which of these faults befalls the call under way, if any. Their numbers are those of the
    /// list.
    fn at_call(&self, faults: &[u32]) -> Option<u32>;
}

/// What may happen before a turn.
#[derive(Clone, Debug)]
pub(super) struct Before {
    /// Whether no task can have a turn before the clock goes on.
    pub(super) waits: bool,
    /// Whether that is because every processor computes.
    pub(super) is_full: bool,
    /// Whether there is an instant to which the clock can go on.
    pub(super) has_deadline: bool,
    /// Whether the clock may go on to it while tasks are ready.
    pub(super) fits: bool,
    /// Whether enough turns can ever let it do so.
    pub(super) can_fit: bool,
    pub(super) faults: Vec<Which>,
    /// Whether one of them crashes a host.
    pub(super) crashes: bool,
}

/// A fault of the list, by its number, or its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Which {
    pub(super) at: u32,
    pub(super) ends: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Happens {
    /// The clock goes on to the next deadline.
    Clock,
    Fault(Which),
}

/// What a search varies, apart from orders and choices.
#[derive(Clone, Default)]
pub(super) struct Limits {
    /// The most time that a turn takes.
    pub(super) turn: Option<Duration>,
    /// The most faults of a schedule, and those that are possible.
    pub(super) most: usize,
    pub(super) faults: Arc<[MayFault]>,
}

impl Limits {
    pub(super) fn is_used(&self) -> bool {
        self.turn.is_some() || self.most > 0
    }

    /// Whether something may happen between turns.
    pub(super) fn is_asked(&self) -> bool {
        let is_between = |fault: &MayFault| matches!(fault.what, What::Between(_));
        self.turn.is_some() || self.most > 0 && self.faults.iter().any(is_between)
    }
}

/// What the world of a trial asks. Clones are handles to the same.
#[derive(Clone)]
pub(super) struct Space(Rc<RefCell<Asked>>);

struct Asked {
    limits: Limits,
    steps: u64,
    decider: Option<Rc<dyn Decide>>,
    /// How far the clock has gone on while tasks were ready.
    taken: Duration,
    /// The faults so far that have no end, or are ended.
    used: usize,
    /// Those that last.
    lasting: Vec<u32>,
    /// `None` until there is something to count.
    counted: Option<Counted>,
}

impl Space {
    pub(super) fn new(limits: Limits, steps: u64) -> Self {
        Self(Rc::new(RefCell::new(Asked {
            limits,
            steps,
            decider: None,
            taken: Duration::ZERO,
            used: 0,
            lasting: Vec::new(),
            counted: None,
        })))
    }

    /// Has this decide from now on. Before, the seed answers choices and nothing else happens.
    pub(super) fn decide_by(&self, decider: impl Decide + 'static) {
        self.0.borrow_mut().decider = Some(Rc::new(decider));
    }

    fn decider(&self) -> Option<Rc<dyn Decide>> {
        self.0.borrow().decider.clone()
    }

    /// Begins a schedule.
    pub(super) fn begin(&self) {
        let this = &mut *self.0.borrow_mut();
        (this.taken, this.used) = (Duration::ZERO, 0);
        this.lasting.clear();
        this.counted = None;
    }

    /// Returns the counts of the faults of the schedule, which has ended.
    pub(super) fn end(&self, net: &SimNet) -> Faults {
        let this = &mut *self.0.borrow_mut();
        this.counted
            .get_or_insert_default()
            .end(&this.limits.faults, net)
    }

    /// Sees what tasks feel of faults.
    pub(super) fn tracer(&self) -> impl Tracer + 'static {
        let asked = Rc::clone(&self.0);
        move |event: &Event<'_>| {
            let counted = &mut asked.borrow_mut().counted;
            counted.get_or_insert_default().observe(event);
        }
    }

    pub(super) fn is_asked(&self) -> bool {
        self.0.borrow().limits.is_asked()
    }

    pub(super) fn choose(&self, of: u64, drawn: u64) -> u64 {
        let decider = self.decider();
        decider.map_or(drawn, |decider| decider.choose(of, drawn))
    }

    /// Decides what happens before a turn: see [`World::before_turn`](crate::World::before_turn).
    /// `report` is the next instant at which the network reports something.
    pub(super) fn before_turn(
        &self,
        at: BeforeTurn,
        now: Duration,
        report: Option<Duration>,
        net: Option<&SimNet>,
    ) -> Option<Duration> {
        let next = [at.deadline, report].into_iter().flatten().min();
        let next = next.filter(|next| *next > now);
        let may = self.may(at, next.map(|next| next - now));
        let decider = self.decider()?;
        match decider.before_turn(&may)? {
            // The kernel waits by itself.
            Happens::Clock if at.waits => None,
            Happens::Clock => {
                let next = next?;
                self.0.borrow_mut().taken += next - now;
                Some(next)
            }
            Happens::Fault(which) => {
                self.apply(which, net?, decider);
                Some(now)
            }
        }
    }

    fn may(&self, at: BeforeTurn, span: Option<Duration>) -> Before {
        let this = &mut *self.0.borrow_mut();
        let room = |turns: u64| {
            let turns = u32::try_from(turns).unwrap_or(u32::MAX);
            let most = this.limits.turn.map(|turn| turn.saturating_mul(turns));
            let fits = most.zip(span).map(|(most, span)| this.taken + span <= most);
            fits.unwrap_or(false)
        };
        let faults = this.faults();
        Before {
            waits: at.waits,
            is_full: at.is_full,
            has_deadline: span.is_some(),
            fits: room(at.turns),
            can_fit: room(this.steps),
            crashes: faults.iter().any(|fault| this.crashes(*fault)),
            faults,
        }
    }

    fn apply(&self, which: Which, net: &SimNet, decider: Rc<dyn Decide>) {
        let mut this = self.0.borrow_mut();
        let What::Between(fault) = this.limits.faults[which.at as usize].what.clone() else {
            return;
        };
        let end = MayFault::end_of(&fault);
        match which.ends {
            true => this.lasting.retain(|at| *at != which.at),
            false => {
                this.used += 1;
                this.lasting.extend(end.is_some().then_some(which.at));
            }
        }
        drop(this);
        let fault = if which.ends { end } else { Some(fault) };
        // What it names may not be there yet, or be down.
        let leaves = Rc::new(move |of, drawn| decider.choose(of, drawn));
        let happened = fault
            .as_ref()
            .map_or(Ok(()), |fault| net.apply_deciding(fault, leaves));
        if let (Some(fault), false) = (&fault, which.ends) {
            let this = &mut *self.0.borrow_mut();
            let text = &this.limits.faults[which.at as usize].text;
            let counted = this.counted.get_or_insert_default();
            counted.between(text, fault, happened);
        }
    }

    /// Decides whether a fault befalls a call.
    pub(super) fn at_call(&self, call: SystemCall) -> Option<Inject> {
        let this = &mut *self.0.borrow_mut();
        let is_of_call = |fault: &MayFault| match fault.what {
            What::Call(other, _) => other.number() == call.number(),
            What::Between(_) => false,
        };
        let faults = (0..).zip(&*this.limits.faults);
        let faults: Vec<u32> = faults
            .filter(|it| is_of_call(it.1))
            .map(|it| it.0)
            .collect();
        for at in &faults {
            let counted = this.counted.get_or_insert_default();
            counted.met(&this.limits.faults[*at as usize].text);
        }
        if faults.is_empty() || this.used >= this.limits.most {
            return None;
        }
        let decider = this.decider.clone()?;
        let at = decider.at_call(&faults)?;
        this.used += 1;
        let counted = this.counted.get_or_insert_default();
        counted.befalls(&this.limits.faults[at as usize].text);
        match this.limits.faults[at as usize].what {
            What::Call(_, inject) => Some(inject),
            What::Between(_) => None,
        }
    }
}

impl Asked {
    fn crashes(&self, fault: Which) -> bool {
        let what = &self.limits.faults[fault.at as usize].what;
        let is_crash = matches!(what, What::Between(Fault::Crash(_) | Fault::Power(_)));
        is_crash && !fault.ends
    }

    /// The faults and their ends that may happen now. An end does not count.
    fn faults(&self) -> Vec<Which> {
        let of = |ends| move |at: u32| Which { at, ends };
        let all = (0..).zip(&*self.limits.faults);
        let begins = all.filter(|(at, fault)| {
            let is_between = matches!(fault.what, What::Between(_));
            is_between && !self.lasting.contains(at)
        });
        let has_more = self.used < self.limits.most;
        let begins = begins.filter(|_| has_more).map(|(at, _)| of(false)(at));
        begins
            .chain(self.lasting.iter().copied().map(of(true)))
            .collect()
    }
}

/// The first answer of each choice, and nothing else, as the first schedule of an exhaustive search has
/// it.
pub(super) struct First;

impl Decide for First {
    fn choose(&self, _of: u64, _drawn: u64) -> u64 {
        0
    }

    fn before_turn(&self, _may: &Before) -> Option<Happens> {
        None
    }

    fn at_call(&self, _faults: &[u32]) -> Option<u32> {
        None
    }
}

/// Decides by a seed. Choices have the answers of a plain run, unless they are drawn, too.
pub(super) struct Drawn {
    draws: RefCell<Draws>,
    /// One in so many chances is taken.
    rarity: u64,
    draws_choices: bool,
}

impl Drawn {
    pub(super) fn new(seed: u64) -> Self {
        // Apart from the numbers of a policy with the same seed.
        let mut draws = Draws::new(seed ^ 0x0073_7061_6365);
        let rarity = 1 << (2 + 2 * draws.below(4));
        Self {
            draws: RefCell::new(draws),
            rarity,
            draws_choices: false,
        }
    }

    /// The same, where choices are drawn.
    pub(super) fn with_choices(seed: u64) -> Self {
        Self {
            draws_choices: true,
            ..Self::new(seed)
        }
    }

    fn takes(&self, chances: usize) -> Option<usize> {
        let draws = &mut *self.draws.borrow_mut();
        let takes = chances > 0 && draws.below(self.rarity) == 0;
        takes.then(|| draws.below(chances as u64) as usize)
    }
}

impl Decide for Drawn {
    fn choose(&self, of: u64, drawn: u64) -> u64 {
        match self.draws_choices {
            true => self.draws.borrow_mut().below(of),
            false => drawn,
        }
    }

    fn before_turn(&self, may: &Before) -> Option<Happens> {
        // The clock's chance does not depend on how many faults there are.
        if may.fits && !may.waits && self.draws.borrow_mut().below(self.rarity.min(4)) == 0 {
            return Some(Happens::Clock);
        }
        let fault = self.takes(may.faults.len())?;
        Some(Happens::Fault(may.faults[fault]))
    }

    fn at_call(&self, faults: &[u32]) -> Option<u32> {
        self.takes(faults.len()).map(|at| faults[at])
    }
}

/// What is decided within a turn, and among how many answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pick {
    /// Whether it is a fault at the call. No fault is the answer 0, and as if that was not asked: earlier
    /// faults decide whether it is.
    pub(super) is_fault: bool,
    pub(super) answer: u64,
    pub(super) of: u64,
}

/// A turn that is to run: its task, and what is decided within it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Move {
    pub(super) task: Tid,
    pub(super) picks: Vec<Pick>,
}

impl Move {
    pub(super) fn of(task: Tid) -> Self {
        let picks = Vec::new();
        Self { task, picks }
    }
}
