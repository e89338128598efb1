//! The exhaustive search: one schedule for each causal order.
//!
//! The search goes through the tree of schedules, depth first, by running the body again for each.
//! After a schedule it looks for races: two turns that touch the same object, and that no chain of
//! other turns orders. For each race it adds a schedule in which the second comes first. So it runs
//! at least one schedule of each causal order. Sleep sets keep it from running two. (Source-DPOR:
//! Abdulla, Aronis, Jonsson and Sagonas, "Optimal dynamic partial order reduction", POPL 2014. Sleep
//! sets: Godefroid, 1996.)
//!
//! What happens between turns is a turn of a task of its own: [`CLOCK`], where turns take time, and
//! [`FAULTS`]. Each answer of what is decided within a turn is a schedule of its own, below one node.
//!
//! What a turn touches is known after it has run. A task that is killed has no next turn, which could
//! race with the kill and with the turns after it. So every ready task is tried before such a kill.
//! A task that sleeps and is woken by a turn may do something else than what it would have done before it.
//! So that turn, too, races with the later turns that would not have commuted with the task's own.

use std::{cell::RefCell, iter, rc::Rc};

use super::{
    causal::Turn,
    foot::Foot,
    node::{
        CLOCK, Cut, DRAWN, Decider, FAULTS, Node, Part, Ran, TreeRun, is_between, next_picks, rests,
    },
    notes,
    plan::{Delay, Step, When},
    settings::Settings,
    space::{Before, Decide, Happens, Move, Pick, Which},
    watchdog::TrialWatch,
};
use crate::{Cause, Footprints, Note, Policy, Runnable, Tid};

/// The tree of schedules, and the policy that goes through it. Clones are handles to the same tree.
#[derive(Clone)]
pub(super) struct Tree(Rc<RefCell<TreeState>>);

#[derive(Default)]
struct TreeState {
    footprints: Footprints,
    part: Part,
    /// The way to the schedule under way. The nodes before it are all explored.
    nodes: Vec<Node>,
    /// The turns of the schedule that has ended, one for each node.
    turns: Vec<Turn>,
    run: TreeRun,
    /// The turns on the way that have woken a task: see [`Node::woken`].
    wakers: Vec<usize>,
    most: usize,
    decider: Decider,
    /// Gets the decisions of the schedule under way.
    watch: TrialWatch,
    /// Whether more orders of a schedule were asked for.
    has_more: bool,
    has_choice: bool,
    /// The notes of the turn that has ended, and the ready tasks: kept to reuse their memory.
    lines: Vec<Note>,
    tasks: Vec<Tid>,
}

impl Tree {
    /// Returns the tree below a part. Tells this watch the decisions of each schedule.
    pub(super) fn new(settings: &Settings, part: Part, watch: &TrialWatch) -> Self {
        Self(Rc::new(RefCell::new(TreeState {
            part,
            most: usize::try_from(settings.steps()).unwrap_or(usize::MAX),
            watch: watch.clone(),
            ..TreeState::default()
        })))
    }

    /// Prepares for a schedule, on a kernel with these notes.
    pub(super) fn begin(&self, footprints: Footprints, decider: Decider) {
        let this = &mut *self.0.borrow_mut();
        this.footprints = footprints;
        // What leads to the node with the next choice is known.
        let known = match decider {
            Decider::Tree => std::mem::take(&mut this.turns),
            _ => Vec::new(),
        };
        this.run.reset(known);
        this.watch.decide(&this.run.made);
        this.decider = decider;
    }

    pub(super) fn end(&self) -> Ran {
        let this = &mut *self.0.borrow_mut();
        this.end_turn(true);
        let run = &mut this.run;
        let is_ordered = matches!(this.decider, Decider::Order(_));
        let has_other = run.cut.is_none() && !is_ordered;
        let other = has_other.then(|| run.causality.other_order()).flatten();
        let mut ran = Ran {
            plan: run.made.clone(),
            cut: run.cut.clone(),
            class: run.causality.class(),
            other: other.filter(|order| run.is_possible(order)),
            more: Vec::new(),
            turns: run.causality.len(),
        };
        if ran.other.is_some() && matches!(this.decider, Decider::Tree) && !this.has_more {
            this.has_more = true;
            let rests = match this.part.is_first {
                true => rests(ran.turns),
                false => 0,
            };
            ran.more = run.causality.more_orders(DRAWN, rests);
            ran.more.retain(|order| run.is_possible(order));
        }
        if !is_ordered {
            this.turns = run.causality.take_turns();
        }
        ran
    }

    /// Returns the order of turns of the last schedule that no order has decided.
    pub(super) fn order(&self) -> Vec<Move> {
        let this = self.0.borrow();
        this.turns.iter().map(Turn::again).collect()
    }

    /// Looks at the turns of the last schedule that no order has decided.
    pub(super) fn with_turns<T>(&self, look: impl FnOnce(&[Turn]) -> T) -> T {
        look(&self.0.borrow().turns)
    }

    pub(super) fn has_choice(&self) -> bool {
        self.0.borrow().has_choice
    }

    /// Takes what the last turn of the last schedule has touched and decided.
    pub(super) fn last_turn(&self) -> (Foot, Vec<Pick>) {
        let last = self.0.borrow_mut().turns.pop();
        last.map_or_else(Default::default, |turn| {
            let picks = turn.picks().to_vec();
            (turn.foot, picks)
        })
    }

    /// Moves to the next schedule. Returns whether there is one.
    pub(super) fn advance(&self) -> bool {
        let this = &mut *self.0.borrow_mut();
        let turns = &mut this.turns;
        // Each node on the way has one turn.
        while this.nodes.len() > this.part.turns.len()
            && let (Some(node), Some(turn)) = (this.nodes.last_mut(), turns.pop())
        {
            node.foot.join(&turn.foot);
            if next_picks(&mut node.picks) {
                return true;
            }
            node.done
                .push((node.chosen, std::mem::take(&mut node.foot)));
            if let Some(next) = node.next() {
                node.chosen = next;
                return true;
            }
            this.nodes.pop();
        }
        false
    }
}

impl TreeState {
    fn make(&mut self, step: Step) {
        self.watch.decide_also(&step);
        self.run.made.0.push(step);
    }

    /// Adds what the turn under way has touched, and looks for races.
    fn end_turn(&mut self, is_last: bool) {
        let mut lines = std::mem::take(&mut self.lines);
        self.footprints.take(&mut lines);
        let shared = notes::take_shared();
        if self.run.current.is_some_and(is_between)
            && let Some(own) = lines.iter().position(|note| *note == Note::Barrier)
        {
            // The clock or the fault itself.
            lines.remove(own);
        }
        let barrier = lines.iter().position(|note| *note == Note::Barrier);
        let (mine, after) = lines.split_at(barrier.unwrap_or(lines.len()));
        if self.run.is_wait {
            // All that has happened is before the wait, too.
            self.try_before_barrier();
            self.run.causality.barrier();
        }
        if let Some(task) = self.run.current.take()
            && !self.run.causality.repeat(task, mine)
        {
            let mut foot = self.run.causality.foot(task, mine, &shared);
            self.run.touch_between(task, &mut foot);
            if self.run.cut.is_none() && (is_last || !after.is_empty()) {
                self.end_pass(&mut foot, after);
            }
            self.add(task, foot, mine);
        }
        let is_wait = std::mem::take(&mut self.run.is_wait);
        if !after.is_empty() || is_wait || is_last {
            self.try_before_barrier();
        }
        if !after.is_empty() || is_wait {
            self.run.causality.barrier();
        }
        self.lines = lines;
    }

    /// What has not happened between turns could have happened before each turn with which it does not
    /// commute.
    fn try_before_barrier(&mut self) {
        let Some(may) = &self.run.may else {
            return;
        };
        if !matches!(self.decider, Decider::Tree) || self.run.cut.is_some() {
            return;
        }
        let clock = (may.has_deadline && may.can_fit).then_some(CLOCK);
        let faults = (!may.faults.is_empty()).then_some(FAULTS);
        for task in clock.into_iter().chain(faults) {
            let mut foot = Foot::default();
            self.run.touch_between(task, &mut foot);
            let races = self.run.causality.races(task, &foot);
            for race in races.into_iter().chain(self.wakers(task, &foot)) {
                self.nodes[race].try_one_of(&[task], task);
            }
        }
    }

    /// Returns the turns on the way that have woken a task whose own turn would not have commuted with this
    /// one of another task.
    fn wakers(&self, task: Tid, foot: &Foot) -> Vec<usize> {
        let len = self.run.causality.len();
        let wakers = self.wakers.iter().copied().filter(|waker| *waker < len);
        let wakers = wakers.filter(|waker| self.nodes[*waker].has_woken_before(task, foot));
        wakers.collect()
    }

    /// The host or the world acts after the turn. The tasks that are ready could have run before:
    /// so each of them must be tried in the place of this turn.
    fn end_pass(&self, foot: &mut Foot, after: &[Note]) {
        let was_ready = |task: &&Runnable| !after.contains(&Note::Woken(task.tid));
        for task in self.run.ready.iter().filter(was_ready) {
            foot.touch_all();
            foot.kill(task.tid);
        }
    }

    fn add(&mut self, task: Tid, foot: Foot, lines: &[Note]) {
        if let Decider::Order(_) = self.decider {
            // The audit compares the hashes alone.
            return self.run.causality.add_to_hash(task, &foot);
        }
        let depth = self.run.causality.len();
        let races = self.run.causality.add(task, foot, lines);
        if !matches!(self.decider, Decider::Tree) {
            return;
        }
        let turn = self.run.causality.turn(depth);
        while self.wakers.pop_if(|waker| *waker >= depth).is_some() {}
        let mut wakers = self.wakers(task, &turn.foot);
        wakers.retain(|waker| !self.run.causality.turn(*waker).comes_before(turn));
        for race in races.into_iter().chain(wakers) {
            let initials = self.run.causality.initials(race, depth);
            let node = &mut self.nodes[race];
            node.try_one_of(&initials, task);
            // The clock can perhaps come first after turns of others.
            if self.run.clock_after(race) && node.is_early {
                node.try_all();
            }
        }
        let node = &mut self.nodes[depth];
        // It may disarm what would have made the clock go on.
        if !is_between(task) && turn.foot.changes_clock() {
            if node.ready.contains(&CLOCK) {
                node.backtrack
                    .extend((!node.backtrack.contains(&CLOCK)).then_some(CLOCK));
            } else if node.is_early {
                node.try_all();
            }
        }
        // The victim's next turn is not in this schedule, and may race with the turns after this
        // one. So each ready task is tried in the place of the kill.
        let mut killed = turn.foot.killed(task);
        if killed.any(|victim| node.ready.contains(&victim)) {
            node.try_all();
        }
        node.divide_sleep(turn, &mut self.run.sleep);
        if !node.woken.is_empty() {
            self.wakers.push(depth);
        }
    }

    fn choose(&mut self) -> Result<Tid, Cut> {
        let mut tasks = std::mem::take(&mut self.tasks);
        self.run.candidates(&mut tasks);
        self.run.picked = 0;
        let chosen = match self.decider {
            Decider::Tree => self.choose_among(&mut tasks),
            _ => self.choose_given(&tasks),
        };
        self.tasks = tasks;
        chosen
    }

    /// Chooses what the decider says, of these tasks.
    fn choose_given(&mut self, tasks: &[Tid]) -> Result<Tid, Cut> {
        let depth = self.run.causality.len();
        let next = match &mut self.decider {
            Decider::Tree => unreachable!("it chooses by itself"),
            // A policy may return a task that has ended meanwhile.
            Decider::Policy(policy, _) => iter::from_fn(|| policy.pop())
                .map(|task| Move::of(task.tid))
                .find(|next| tasks.contains(&next.task)),
            Decider::Order(turns) => turns.pop_front(),
            Decider::Probe(turns) if depth == turns.len() => {
                return Err(Cut::Probed(tasks.to_vec()));
            }
            Decider::Probe(turns) => turns.get(depth).cloned(),
        };
        let next = next.map(|next| {
            self.run.given = next.picks;
            next.task
        });
        // In another order, the clock may go on before enough turns have run.
        let goes_on = self.run.may.as_ref().is_some_and(|may| may.has_deadline);
        let is_possible = |next: &Tid| tasks.contains(next) || *next == CLOCK && goes_on;
        next.filter(is_possible).ok_or_else(|| self.unrepeatable())
    }

    /// Decides what happens before a turn.
    fn before_turn(&mut self, may: Before) -> Option<Happens> {
        self.end_turn(false);
        self.run.next = None;
        if self.run.cut.is_some() {
            return None;
        }
        let is_idle = may.waits && !may.has_deadline && may.faults.is_empty();
        let (waits, is_early) = (may.waits, may.can_fit && !may.is_full);
        if is_idle {
            self.run.may = Some(may);
            return None;
        }
        let task = match &self.decider {
            Decider::Policy(_, drawn) => match drawn.before_turn(&may) {
                Some(Happens::Clock) => Some(CLOCK),
                Some(Happens::Fault(which)) => {
                    let at = may.faults.iter().position(|fault| *fault == which);
                    self.run.given = vec![Pick {
                        is_fault: true,
                        answer: at.unwrap_or(0) as u64,
                        of: may.faults.len() as u64,
                    }];
                    Some(FAULTS)
                }
                None => (waits && may.has_deadline).then_some(CLOCK),
            },
            _ => None,
        };
        self.run.may = Some(may);
        if matches!(self.decider, Decider::Policy(..)) && task.is_none() {
            return None;
        }
        let chosen = task.map_or_else(|| self.choose(), Ok);
        let chosen = chosen.map_err(|cut| self.run.cut = Some(cut)).ok()?;
        self.run.picked = 0;
        self.begin_between(chosen, waits, is_early)
    }

    /// Begins what happens before a turn, or leaves the turn to that task.
    fn begin_between(&mut self, chosen: Tid, waits: bool, is_early: bool) -> Option<Happens> {
        let turn = self.run.turns + 1;
        match chosen {
            CLOCK => {
                self.run.current = Some(CLOCK);
                // Where no turn is long enough, or every processor computes, all that happens is before the
                // wait or after it.
                self.run.is_wait = waits && !is_early;
                if !waits {
                    self.make(Step::Time(turn));
                }
                Some(Happens::Clock)
            }
            FAULTS => {
                self.run.current = Some(FAULTS);
                let may = self.run.may.as_ref()?;
                let faults = may.faults.clone();
                let which = faults[self.answer(true, faults.len() as u64, None) as usize];
                let waits = self.run.waits;
                self.make(Step::Fault(When { turn, waits }, which));
                Some(Happens::Fault(which))
            }
            task => {
                self.run.next = Some(task);
                None
            }
        }
    }

    /// Chooses one of the ready tasks, which are in order of arrival.
    fn choose_among(&mut self, ready: &mut [Tid]) -> Result<Tid, Cut> {
        let depth = self.run.causality.len();
        if let Some(node) = self.nodes.get(depth) {
            ready.sort_unstable();
            let is_same = *node.ready == *ready;
            let chosen = is_same.then_some(node.chosen);
            return chosen.ok_or_else(|| self.unrepeatable());
        }
        if depth >= self.most {
            return Err(Cut::TooLong);
        }
        let mut sleep = std::mem::take(&mut self.run.sleep);
        if depth == self.part.turns.len() {
            sleep.clone_from(&self.part.sleep);
        }
        if self.run.may.as_ref().is_some_and(|may| may.waits) {
            // A wait takes no time of turns. So it is not what the step of the clock was before.
            sleep.retain(|(task, _)| *task != CLOCK);
        }
        self.run.given.clear();
        let chosen = match self.part.turns.get(depth) {
            Some(next) if ready.contains(&next.task) => {
                self.run.given.extend(&next.picks);
                next.task
            }
            Some(_) => return Err(self.unrepeatable()),
            None => {
                let is_awake = |task: &&Tid| !sleep.iter().any(|(other, _)| other == *task);
                *ready.iter().find(is_awake).ok_or(Cut::Redundant)?
            }
        };
        self.has_choice |= ready.len() > 1;
        let may = self.run.may.as_ref();
        // At a wait, and there alone, all that can happen is tried.
        let waits = may.is_some_and(|may| may.waits);
        let is_early = may.is_some_and(|may| may.has_deadline && may.can_fit);
        let is_early = is_early && !ready.contains(&CLOCK);
        ready.sort_unstable();
        let before = self.nodes.last().filter(|node| *node.ready == *ready);
        let ready = before.map_or_else(|| Rc::from(&*ready), |node| Rc::clone(&node.ready));
        let ready_here = Rc::clone(&ready);
        self.nodes.push(Node {
            ready,
            chosen,
            picks: Vec::new(),
            foot: Foot::default(),
            is_early,
            sleep,
            woken: Vec::new(),
            backtrack: match waits {
                true => ready_here.to_vec(),
                false => vec![chosen],
            },
            done: Vec::new(),
        });
        Ok(chosen)
    }

    /// Answers a choice within the turn under way.
    /// `drawn` is what a policy draws instead of the tree, if that is not given.
    fn answer(&mut self, is_fault: bool, of: u64, drawn: Option<u64>) -> u64 {
        let (depth, at) = (self.run.causality.len(), self.run.picked);
        self.run.picked += 1;
        let mut given = self.run.given.iter();
        let given = given.position(|pick| pick.is_fault == is_fault);
        let given = given.map_or(0, |at| self.run.given.remove(at).answer) % of;
        let pick = |answer| Pick {
            is_fault,
            answer,
            of,
        };
        let answer = match &mut self.decider {
            Decider::Policy(..) => drawn.unwrap_or(given),
            Decider::Order(_) | Decider::Probe(_) => given,
            Decider::Tree => match self.nodes.get_mut(depth) {
                None => 0,
                Some(node) if at >= node.picks.len() => {
                    node.picks.push(pick(given));
                    given
                }
                Some(node) if node.picks[at].of == of => node.picks[at].answer,
                Some(_) => {
                    self.run.cut = Some(Cut::Unrepeatable(format!(
                        "after {depth} turns, which were taken before, a choice has {of} answers, and \
                         had others"
                    )));
                    0
                }
            },
        };
        self.run.causality.pick(pick(answer));
        answer
    }

    fn unrepeatable(&self) -> Cut {
        let ready = self.run.ready.iter().map(|task| task.tid.to_string());
        let (turns, ready) = (self.run.causality.len(), ready.collect::<Vec<_>>());
        Cut::Unrepeatable(format!(
            "after {turns} turns, which were taken before, other tasks are ready: {}",
            ready.join(", ")
        ))
    }
}

impl Decide for Tree {
    fn choose(&self, of: u64, drawn: u64) -> u64 {
        let this = &mut *self.0.borrow_mut();
        let drawn = match &this.decider {
            Decider::Policy(_, other) => Some(other.choose(of, drawn)),
            _ => None,
        };
        let answer = this.answer(false, of, drawn);
        this.run.choices += 1;
        if answer > 0 {
            this.make(Step::Choice(this.run.choices, answer));
        }
        answer
    }

    fn before_turn(&self, may: &Before) -> Option<Happens> {
        let this = &mut *self.0.borrow_mut();
        let happens = this.before_turn(may.clone());
        let is_fault = matches!(happens, Some(Happens::Fault(_)));
        this.run.waits += u32::from(may.waits && !is_fault);
        happens
    }

    fn at_call(&self, faults: &[u32]) -> Option<u32> {
        let this = &mut *self.0.borrow_mut();
        let drawn = match &this.decider {
            Decider::Policy(_, drawn) => Some(drawn.at_call(faults)),
            _ => None,
        };
        let place = |at: u32| faults.iter().position(|fault| *fault == at);
        let drawn = drawn.map(|at| at.and_then(place).map_or(0, |place| place as u64 + 1));
        let answer = this.answer(true, faults.len() as u64 + 1, drawn);
        let at = *faults.get((answer as usize).checked_sub(1)?)?;
        let which = Which { at, ends: false };
        let turn = this.run.turns;
        this.make(Step::Fault(When { turn, waits: 0 }, which));
        Some(at)
    }
}

impl Policy for Tree {
    fn push(&mut self, task: Runnable, cause: Cause) {
        let this = &mut *self.0.borrow_mut();
        this.run.ready.push_back(task);
        if let Decider::Policy(policy, _) = &mut this.decider {
            policy.push(task, cause);
        }
    }

    fn stays(&self) -> bool {
        true
    }

    fn pop(&mut self) -> Option<Runnable> {
        let this = &mut *self.0.borrow_mut();
        this.end_turn(false);
        if this.run.ready.is_empty() || this.run.cut.is_some() {
            return None;
        }
        let next = this.run.next.take();
        let chosen = match next.filter(|next| this.run.is_ready(*next)) {
            Some(next) => Ok(next),
            None => {
                this.run.may = None;
                this.choose()
            }
        };
        let run = &mut this.run;
        let chosen = chosen.map_err(|cut| run.cut = Some(cut)).ok()?;
        let at = run.ready.iter().position(|task| task.tid == chosen)?;
        (run.turns, run.waits) = (run.turns + 1, 0);
        if at > 0 {
            let (turn, by) = (run.turns, at as u32);
            this.make(Step::Delay(Delay { turn, by }));
            this.run.ready.rotate_left(at);
        }
        this.run.current = Some(chosen);
        this.run.ready.pop_front()
    }

    fn remove(&mut self, task: Runnable) {
        let this = &mut *self.0.borrow_mut();
        this.run.ready.retain(|other| *other != task);
        if let Decider::Policy(policy, _) = &mut this.decider {
            policy.remove(task);
        }
    }

    fn wants_facts(&self) -> bool {
        false
    }

    fn len(&self) -> usize {
        let this = self.0.borrow();
        // A schedule that is cut ends with an error of the policy.
        match this.run.cut {
            Some(_) => 0,
            None => this.run.ready.len(),
        }
    }
}
