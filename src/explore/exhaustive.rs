//! The exhaustive search: one schedule for each causal order.
//!
//! The search goes through the tree of schedules, depth first, by running the body again for each.
//! After a schedule it looks for races: two turns that touch the same object, and that no chain of
//! other turns orders. For each race it adds a schedule in which the second comes first. So it runs
//! at least one schedule of each causal order. Sleep sets keep it from running two. (Source-DPOR:
//! Abdulla, Aronis, Jonsson and Sagonas, "Optimal dynamic partial order reduction", POPL 2014. Sleep
//! sets: Godefroid, 1996.)
//!
//! What a turn touches is known after it has run. A task that is killed has no next turn, which could
//! race with the kill and with the turns after it. So every ready task is tried before such a kill.

use std::{cell::RefCell, collections::VecDeque, iter, rc::Rc};

use super::{
    causal::{Causality, Foot, Turn},
    notes,
    plan::{Delay, Plan, Step},
    settings::Settings,
    space::{Decide, Move, Pick},
    watchdog::TrialWatch,
};
use crate::{Cause, Footprints, Note, Policy, Runnable, Tid, sched::Draws};

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

/// A part of the tree: the schedules that begin with these turns.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) turns: Vec<Move>,
    /// The tasks whose next turn leads only to causal orders of other parts.
    pub(super) sleep: Vec<(Tid, Foot)>,
    /// The first part of the search has the longest audit.
    pub(super) is_first: bool,
}

#[derive(Default)]
pub(super) enum Decider {
    /// The tree: the next schedule of the search.
    #[default]
    Tree,
    /// These turns. The schedule is cut after them.
    Probe(Vec<Move>),
    /// These turns, in order.
    Order(VecDeque<Move>),
    /// A policy, and what answers choices, if the seed does not.
    Policy(Box<dyn Policy>, Option<Draws>),
}

struct Node {
    /// The ready tasks, by tid. Nodes share what is the same.
    ready: Rc<[Tid]>,
    chosen: Tid,
    /// What is decided in the turn of that task, and what it touched with earlier decisions.
    picks: Vec<Pick>,
    foot: Foot,
    /// The tasks whose turn here leads only to causal orders that were run before.
    sleep: Vec<(Tid, Foot)>,
    /// The tasks to choose here, in turn.
    backtrack: Vec<Tid>,
    /// The tasks that were chosen here, with what their turn touched.
    done: Vec<(Tid, Foot)>,
}

#[derive(Default)]
struct TreeRun {
    /// In order of arrival.
    ready: VecDeque<Runnable>,
    causality: Causality,
    current: Option<Tid>,
    sleep: Vec<(Tid, Foot)>,
    made: Plan,
    cut: Option<Cut>,
    /// What the turn under way is to decide, if no node says so, and how many decisions it has made.
    given: Vec<u64>,
    picked: usize,
    choices: u32,
}

/// Why a schedule was not run to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// Every continuation has a causal order that was run before.
    Redundant,
    TooLong,
    /// Only its begin was to be run. These tasks are ready then.
    Probed(Vec<Tid>),
    /// The body did not repeat what it did in an earlier run of the same turns.
    Unrepeatable(String),
}

pub(super) struct Ran {
    pub(super) plan: Plan,
    pub(super) cut: Option<Cut>,
    pub(super) class: u64,
    /// Another order of the same turns that only independent turns tell apart.
    pub(super) other: Option<Vec<Move>>,
    /// More of them, if it is the first schedule that has any.
    pub(super) more: Vec<Vec<Move>>,
    pub(super) turns: usize,
}

/// The orders that are drawn in each part of a search.
const DRAWN: usize = 6;

/// Returns the number of orders in which a task rests, for a schedule of so many turns: as many, until
/// the audit would run more than 20,000 turns; for longer ones at least 10.
fn rests(turns: usize) -> usize {
    turns.min((20_000 / turns.max(1)).max(10))
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
        let mut ran = Ran {
            plan: run.made.clone(),
            cut: run.cut.clone(),
            class: run.causality.class(),
            other: has_other.then(|| run.causality.other_order()).flatten(),
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

impl TreeRun {
    fn reset(&mut self, known: Vec<Turn>) {
        self.ready.clear();
        self.causality.reset(known);
        self.current = None;
        self.sleep.clear();
        self.made.0.clear();
        self.cut = None;
        self.given.clear();
        (self.picked, self.choices) = (0, 0);
    }
}

/// Moves to the next decisions of a turn: the last one that has another answer has it. Those after it
/// are made anew. Returns whether there are such decisions.
pub(super) fn next_picks(picks: &mut Vec<Pick>) -> bool {
    while let Some(Pick { answer, of }) = picks.pop() {
        if answer + 1 < of {
            let answer = answer + 1;
            picks.push(Pick { answer, of });
            return true;
        }
    }
    false
}

impl Node {
    fn next(&self) -> Option<Tid> {
        let is_among = |all: &[(Tid, Foot)], task: Tid| all.iter().any(|(other, _)| *other == task);
        let mut tasks = self.backtrack.iter().copied();
        tasks.find(|task| !is_among(&self.done, *task) && !is_among(&self.sleep, *task))
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
        let barrier = lines.iter().position(|note| *note == Note::Barrier);
        let (mine, after) = lines.split_at(barrier.unwrap_or(lines.len()));
        if let Some(task) = self.run.current.take()
            && !self.run.causality.repeat(task, mine)
        {
            let mut foot = self.run.causality.foot(task, mine, &shared);
            if self.run.cut.is_none() && (is_last || !after.is_empty()) {
                self.end_pass(&mut foot, after);
            }
            self.add(task, foot, mine);
        }
        if !after.is_empty() {
            self.run.causality.barrier();
        }
        self.lines = lines;
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
        for race in races {
            let initials = self.run.causality.initials(race, depth);
            let node = &mut self.nodes[race];
            if !initials.iter().any(|task| node.backtrack.contains(task)) {
                let pick = initials.iter().find(|initial| **initial == task);
                let pick = pick.or(initials.first()).copied();
                node.backtrack
                    .extend(pick.filter(|pick| node.ready.contains(pick)));
            }
        }
        let node = &mut self.nodes[depth];
        // The victim's next turn is not in this schedule, and may race with the turns after this
        // one. So each ready task is tried in the place of the kill.
        let mut killed = turn.foot.killed(task);
        if killed.any(|victim| node.ready.contains(&victim)) {
            let ready = node.ready.iter().copied();
            let more = ready.filter(|task| !node.backtrack.contains(task));
            node.backtrack.extend(more.collect::<Vec<_>>());
        }
        let stays = |(other, foot): &&(Tid, Foot)| *other != task && !turn.foot.wakes(*other, foot);
        let asleep = node.sleep.iter().chain(&node.done).filter(stays);
        self.run.sleep.clear();
        self.run.sleep.extend(asleep.cloned());
    }

    fn choose(&mut self) -> Result<Tid, Cut> {
        let depth = self.run.causality.len();
        let mut ready = self.run.ready.iter().map(|task| task.tid);
        self.run.picked = 0;
        let next = match &mut self.decider {
            Decider::Tree => return self.choose_in_tree(),
            // A policy may return a task that has ended meanwhile.
            Decider::Policy(policy, _) => iter::from_fn(|| policy.pop())
                .map(|task| Move::of(task.tid))
                .find(|next| ready.clone().any(|ready| ready == next.task)),
            Decider::Order(turns) => turns.pop_front(),
            Decider::Probe(turns) if depth == turns.len() => {
                return Err(Cut::Probed(ready.collect()));
            }
            Decider::Probe(turns) => turns.get(depth).cloned(),
        };
        let next = next.map(|next| {
            self.run.given = next.answers;
            next.task
        });
        let next = next.filter(|next| ready.any(|ready| ready == *next));
        next.ok_or_else(|| self.unrepeatable())
    }

    fn choose_in_tree(&mut self) -> Result<Tid, Cut> {
        let mut ready = std::mem::take(&mut self.tasks);
        ready.clear();
        ready.extend(self.run.ready.iter().map(|task| task.tid));
        let chosen = self.choose_among(&mut ready);
        self.tasks = ready;
        chosen
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
        self.run.given.clear();
        let chosen = match self.part.turns.get(depth) {
            Some(next) if ready.contains(&next.task) => {
                self.run.given.extend(&next.answers);
                next.task
            }
            Some(_) => return Err(self.unrepeatable()),
            None => {
                let is_awake = |task: &&Tid| !sleep.iter().any(|(other, _)| other == *task);
                *ready.iter().find(is_awake).ok_or(Cut::Redundant)?
            }
        };
        self.has_choice |= ready.len() > 1;
        ready.sort_unstable();
        let before = self.nodes.last().filter(|node| *node.ready == *ready);
        let ready = before.map_or_else(|| Rc::from(&*ready), |node| Rc::clone(&node.ready));
        self.nodes.push(Node {
            ready,
            chosen,
            picks: Vec::new(),
            foot: Foot::default(),
            sleep,
            backtrack: vec![chosen],
            done: Vec::new(),
        });
        Ok(chosen)
    }

    /// Answers a choice within the turn under way.
    fn answer(&mut self, of: u64, drawn: u64) -> u64 {
        let (depth, at) = (self.run.causality.len(), self.run.picked);
        self.run.picked += 1;
        let given = self.run.given.get(at).copied().unwrap_or(0) % of;
        let answer = match &mut self.decider {
            Decider::Policy(_, None) => drawn,
            Decider::Policy(_, Some(draws)) => draws.below(of),
            Decider::Order(_) | Decider::Probe(_) => given,
            Decider::Tree => match self.nodes.get_mut(depth) {
                None => 0,
                Some(node) if at >= node.picks.len() => {
                    node.picks.push(Pick { answer: given, of });
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
        self.run.causality.pick(Pick { answer, of });
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
        let answer = this.answer(of, drawn);
        this.run.choices += 1;
        if answer > 0 {
            this.make(Step::Choice(this.run.choices, answer));
        }
        answer
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

    fn pop(&mut self) -> Option<Runnable> {
        let this = &mut *self.0.borrow_mut();
        this.end_turn(false);
        if this.run.ready.is_empty() || this.run.cut.is_some() {
            return None;
        }
        let chosen = this.choose();
        let run = &mut this.run;
        let chosen = chosen.map_err(|cut| run.cut = Some(cut)).ok()?;
        let at = run.ready.iter().position(|task| task.tid == chosen)?;
        if at > 0 {
            let turn = run.causality.len() as u32 + 1;
            let by = at as u32;
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
