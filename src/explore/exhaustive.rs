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

use std::{cell::RefCell, collections::VecDeque, fmt, rc::Rc};

use super::{
    causal::{Causality, Foot, Turn, conflict},
    notes,
    plan::{Delay, Plan},
};
use crate::{Cause, Footprints, Note, Policy, Runnable, Tid};

/// The tree of schedules, and the policy that goes through it. Clones are handles to the same tree.
#[derive(Clone)]
pub(super) struct Tree(Rc<RefCell<State>>);

struct State {
    footprints: Footprints,
    /// The way to the schedule under way. The nodes before it are all explored.
    nodes: Vec<Node>,
    /// The turns of the schedule that has ended, one for each node.
    turns: Vec<Turn>,
    run: Run,
    /// The most turns of a schedule.
    most: usize,
    /// Decides instead of the nodes: a run of the audit.
    forced: Option<VecDeque<Tid>>,
}

/// A choice of a turn.
struct Node {
    /// The ready tasks, by tid.
    ready: Vec<Tid>,
    chosen: Tid,
    /// The tasks whose turn here leads only to causal orders that were run before.
    sleep: Vec<(Tid, Foot)>,
    /// The tasks to choose here, in turn.
    backtrack: Vec<Tid>,
    /// The tasks that were chosen here, with what their turn touched.
    done: Vec<(Tid, Foot)>,
}

/// The schedule under way.
#[derive(Default)]
struct Run {
    /// In order of arrival.
    ready: VecDeque<Runnable>,
    causality: Causality,
    /// The turn under way.
    current: Option<Tid>,
    sleep: Vec<(Tid, Foot)>,
    made: Plan,
    /// Why the schedule was not run to its end.
    cut: Option<Cut>,
}

/// Why a schedule was not run to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// Every continuation has a causal order that was run before.
    Redundant,
    /// It has too many turns.
    TooLong,
    /// The body did not repeat what it did in an earlier run of the same turns.
    Unrepeatable(String),
}

/// A schedule that was run.
pub(super) struct Ran {
    pub(super) plan: Plan,
    pub(super) cut: Option<Cut>,
    /// The hash of its causal order.
    pub(super) class: u64,
    /// Another order of the same turns that only independent turns tell apart.
    pub(super) other: Option<Vec<Tid>>,
}

impl Tree {
    pub(super) fn new(most: usize) -> Self {
        Self(Rc::new(RefCell::new(State {
            footprints: Footprints::default(),
            nodes: Vec::new(),
            turns: Vec::new(),
            run: Run::default(),
            most,
            forced: None,
        })))
    }

    /// Prepares for the next schedule, on a kernel with these notes.
    pub(super) fn begin(&self, footprints: Footprints) {
        let this = &mut *self.0.borrow_mut();
        this.footprints = footprints;
        this.run = Run::default();
        this.forced = None;
    }

    /// The same for a schedule with these turns.
    pub(super) fn begin_forced(&self, footprints: Footprints, turns: Vec<Tid>) {
        self.begin(footprints);
        self.0.borrow_mut().forced = Some(turns.into());
    }

    /// Ends the schedule, and returns what was run.
    pub(super) fn end(&self) -> Ran {
        let this = &mut *self.0.borrow_mut();
        this.end_turn(true);
        let run = &mut this.run;
        let is_whole = run.cut.is_none() && this.forced.is_none();
        let ran = Ran {
            plan: run.made.clone(),
            cut: run.cut.clone(),
            class: run.causality.class(),
            other: is_whole.then(|| run.causality.other_order()).flatten(),
        };
        if this.forced.is_none() {
            this.turns = run.causality.take_turns();
        }
        ran
    }

    /// Moves to the next schedule. Returns whether there is one.
    pub(super) fn advance(&self) -> bool {
        let this = &mut *self.0.borrow_mut();
        let turns = &mut this.turns;
        // Each node on the way has one turn.
        while let (Some(node), Some(turn)) = (this.nodes.last_mut(), turns.pop()) {
            node.done.push((node.chosen, turn.foot));
            if let Some(next) = node.next() {
                node.chosen = next;
                return true;
            }
            this.nodes.pop();
        }
        false
    }
}

impl Node {
    fn next(&self) -> Option<Tid> {
        let is_among = |all: &[(Tid, Foot)], task: Tid| all.iter().any(|(other, _)| *other == task);
        let mut tasks = self.backtrack.iter().copied();
        tasks.find(|task| !is_among(&self.done, *task) && !is_among(&self.sleep, *task))
    }
}

impl State {
    /// Adds what the turn under way has touched, and looks for races.
    fn end_turn(&mut self, is_last: bool) {
        let mut lines = Vec::new();
        self.footprints.take(&mut lines);
        let shared = notes::take_shared();
        let barrier = lines.iter().position(|note| *note == Note::Barrier);
        let (mine, after) = lines.split_at(barrier.unwrap_or(lines.len()));
        if let Some(task) = self.run.current.take() {
            let mut foot = self.run.causality.foot(task, mine, &shared);
            let is_cut = self.run.cut.is_some();
            if !is_cut && (is_last || !after.is_empty()) {
                self.end_pass(&mut foot, after);
            }
            self.add(task, foot, mine);
        } else {
            self.run.causality.wake(mine);
        }
        if !after.is_empty() {
            self.run.causality.barrier();
            self.run.causality.wake(after);
        }
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
        let depth = self.run.causality.len();
        let races = self.run.causality.add(task, foot, lines);
        if self.forced.is_some() {
            return;
        }
        let turns = self.run.causality.turns();
        let turn = &turns[depth];
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
        if turn
            .foot
            .killed(task)
            .any(|victim| node.ready.contains(&victim))
        {
            let ready = node.ready.iter().copied();
            let more = ready.filter(|task| !node.backtrack.contains(task));
            node.backtrack.extend(more.collect::<Vec<_>>());
        }
        let asleep = node.sleep.iter().chain(&node.done);
        let asleep = asleep.filter(|(other, foot)| *other != task && !conflict(foot, &turn.foot));
        self.run.sleep = asleep.cloned().collect();
    }

    /// Chooses the next task.
    fn choose(&mut self) -> Result<Tid, Cut> {
        let mut ready: Vec<Tid> = self.run.ready.iter().map(|task| task.tid).collect();
        if let Some(forced) = &mut self.forced {
            let next = forced.pop_front();
            let next = next.filter(|next| ready.contains(next));
            return next.ok_or_else(|| Cut::Unrepeatable(self.unrepeatable()));
        }
        let depth = self.run.causality.len();
        if depth == self.nodes.len() {
            if depth >= self.most {
                return Err(Cut::TooLong);
            }
            let sleep = std::mem::take(&mut self.run.sleep);
            let is_awake = |task: &&Tid| !sleep.iter().any(|(other, _)| other == *task);
            let chosen = *ready.iter().find(is_awake).ok_or(Cut::Redundant)?;
            ready.sort_unstable();
            self.nodes.push(Node {
                ready,
                chosen,
                sleep,
                backtrack: vec![chosen],
                done: Vec::new(),
            });
            return Ok(chosen);
        }
        ready.sort_unstable();
        let node = &self.nodes[depth];
        if node.ready != ready {
            return Err(Cut::Unrepeatable(self.unrepeatable()));
        }
        Ok(node.chosen)
    }

    fn unrepeatable(&self) -> String {
        let ready: Vec<String> = self
            .run
            .ready
            .iter()
            .map(|task| task.tid.to_string())
            .collect();
        format!(
            "after {} turns, which were taken before, other tasks are ready: {}",
            self.run.causality.len(),
            ready.join(", ")
        )
    }
}

impl Policy for Tree {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.0.borrow_mut().run.ready.push_back(task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        let this = &mut *self.0.borrow_mut();
        this.end_turn(false);
        if this.run.ready.is_empty() || this.run.cut.is_some() {
            return None;
        }
        let chosen = match this.choose() {
            Ok(chosen) => chosen,
            Err(cut) => {
                this.run.cut = Some(cut);
                return None;
            }
        };
        let run = &mut this.run;
        let at = run.ready.iter().position(|task| task.tid == chosen)?;
        if at > 0 {
            let turn = run.causality.len() as u32 + 1;
            run.made.0.push(Delay {
                turn,
                by: at as u32,
            });
            run.ready.rotate_left(at);
        }
        run.current = Some(chosen);
        notes::set_task(chosen);
        run.ready.pop_front()
    }

    fn remove(&mut self, task: Runnable) {
        self.0.borrow_mut().run.ready.retain(|other| *other != task);
    }

    fn len(&self) -> usize {
        let this = self.0.borrow();
        // A schedule that is cut ends with an error of the policy.
        if this.run.cut.is_some() {
            0
        } else {
            this.run.ready.len()
        }
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tree({} nodes)", self.0.borrow().nodes.len())
    }
}
