//! The causal order of a schedule's turns: which of them come before which in every schedule that
//! differs only in the order of independent turns.

use std::{
    collections::BinaryHeap,
    hash::{Hash, Hasher},
};

use rustc_hash::{FxHashMap, FxHasher};

use super::{
    clock::{Clock, index},
    foot::{self, Closes, Foot, Name, Own, conflict},
    notes::Made,
    space::{Move, Pick},
};
use crate::{Note, Object, QueueId, Tid, sched::Draws};

#[derive(Debug)]
pub(super) struct Turn {
    pub(super) task: Tid,
    /// The number of this turn among those of its task, from 1.
    pub(super) number: u32,
    pub(super) foot: Foot,
    /// The turns before this one, itself included.
    clock: Clock,
    /// The turns from which that follows, with the turn before of its task, and all turns before the
    /// last barrier.
    before: Vec<usize>,
    /// The barriers before it.
    barriers: u64,
    /// What was chosen in it.
    picks: Vec<Pick>,
}

impl Turn {
    /// Returns what makes it run again.
    pub(super) fn again(&self) -> Move {
        Move {
            task: self.task,
            picks: self.picks.clone(),
        }
    }

    pub(super) fn picks(&self) -> &[Pick] {
        &self.picks
    }

    /// Returns whether this turn comes before one with that clock.
    fn is_before(&self, clock: &Clock) -> bool {
        self.number <= clock.of(self.task)
    }

    pub(super) fn comes_before(&self, later: &Self) -> bool {
        self.is_before(&later.clock)
    }
}

#[derive(Debug, Default)]
struct Known {
    name: Option<Made>,
    capacity: u64,
    stored: usize,
    /// The turns that removed messages, in order.
    removed: Vec<usize>,
}

#[derive(Debug, Default)]
struct Lane {
    /// What comes before its next turn.
    clock: Clock,
    /// The turns of others from which that follows.
    before: Vec<usize>,
    /// Its last turn, and the hash of that.
    last: Option<usize>,
    hash: u64,
    made: u64,
}

/// An object.
#[derive(Debug, Default)]
struct Touched {
    /// The last turn that changed it, and the hash of that.
    changed: Option<usize>,
    version: Option<u64>,
    /// The last of the turns since then that touched it, as an index into [`Causality::reads`].
    read: Option<usize>,
}

/// A turn that touched an object without a change, and the one before it.
#[derive(Debug)]
struct Read {
    turn: usize,
    before: Option<usize>,
}

/// The turns of a schedule, with their causal order.
#[derive(Debug, Default)]
pub(super) struct Causality {
    /// The turns that have run. Behind them are those that an earlier schedule has run after the
    /// same begin, and that this one repeats.
    turns: Vec<Turn>,
    ran: usize,
    /// By tid.
    lanes: Vec<Lane>,
    /// What comes before every turn from now on: all turns before the last barrier.
    floor: Clock,
    barriers: u64,
    barred: usize,
    queues: FxHashMap<QueueId, Known>,
    sent: FxHashMap<(QueueId, u64), usize>,
    exits: FxHashMap<Tid, usize>,
    objects: FxHashMap<Name, Touched>,
    reads: Vec<Read>,
    /// The last turn that touched everything.
    of_all: Option<usize>,
    /// What is chosen in the turn under way.
    picks: Vec<Pick>,
}

impl Causality {
    /// Begins anew, in the same memory. The first turns will be these.
    pub(super) fn reset(&mut self, known: Vec<Turn>) {
        self.turns = known;
        self.ran = 0;
        self.lanes.clear();
        self.floor = Clock::default();
        (self.barriers, self.barred) = (0, 0);
        self.queues.clear();
        self.sent.clear();
        self.exits.clear();
        self.objects.clear();
        self.reads.clear();
        self.of_all = None;
        self.picks.clear();
    }

    /// Adds a choice to the turn under way.
    pub(super) fn pick(&mut self, pick: Pick) {
        self.picks.push(pick);
    }

    fn lane(&mut self, task: Tid) -> &mut Lane {
        let at = index(task);
        if self.lanes.len() <= at {
            self.lanes.resize_with(at + 1, Lane::default);
        }
        &mut self.lanes[at]
    }

    pub(super) fn len(&self) -> usize {
        self.ran
    }

    pub(super) fn turn(&self, at: usize) -> &Turn {
        &self.turns[at]
    }

    pub(super) fn take_turns(&mut self) -> Vec<Turn> {
        self.turns.truncate(self.ran);
        std::mem::take(&mut self.turns)
    }

    /// Returns the name of an object, of this kernel if it has no number.
    fn name(&self, object: Object, own: Own) -> Name {
        let made = |queue: QueueId| {
            let known = self.queues.get(&queue).and_then(|known| known.name);
            known.unwrap_or((Tid::KERNEL, queue.number()))
        };
        match object {
            Object::All => Name::All,
            Object::Life(task) => Name::Life(task),
            Object::Exit(task) => Name::Exit(task),
            Object::Waits(task) => Name::Waits(task),
            Object::Family(task) => Name::Family(task),
            Object::Lasting => Name::Lasting(own),
            Object::Tids => Name::Tids(own),
            Object::Random => Name::Random(own),
            Object::World => Name::World(own),
            Object::Devices => Name::Devices(own),
            Object::Connection(number) => Name::Connection(own, number),
            Object::Clock => Name::Clock(own),
            Object::Calls(number) => Name::Calls(own, number),
            Object::PutEnd(queue) => Name::PutEnd(made(queue)),
            Object::GetEnd(queue) => Name::GetEnd(made(queue)),
            Object::Beside(queue) => Name::Beside(made(queue)),
            Object::Handles(device) => Name::Handles(device),
            Object::Cycles => Name::Cycles(own),
            Object::Scopes => Name::Scopes(own),
            Object::Budget(task) => Name::Budget(task),
            Object::Wakes(task) => Name::Wakes(task),
            Object::Mailbox(maker, number) => Name::Mailbox((maker, number)),
            Object::Home(maker, number) => Name::Home((maker, number)),
            Object::Senders(maker, number) => Name::Senders((maker, number)),
            Object::Takers(maker, number) => Name::Takers((maker, number)),
            Object::Poll(kernel) => Name::Poll(kernel),
        }
    }

    /// Returns what a turn of this task has touched, by its notes.
    pub(super) fn foot(&mut self, task: Tid, notes: &[Note], shared: &[(Made, bool)]) -> Foot {
        self.name_queues(task, notes);
        let mut foot = Foot::default();
        foot.names.reserve(8);
        foot.add(Name::Life(task), false);
        let mut own = foot::own(task.kernel());
        for note in notes {
            match *note {
                Note::Of(kernel) => own = foot::own(Some(kernel)),
                Note::Touched { object, writes } => foot.add(self.name(object, own), writes),
                // A kill after this turn finds the task elsewhere than a kill before it.
                Note::Woken(woken) => foot.add(Name::Life(woken), false),
                Note::Counted {
                    object,
                    before,
                    left,
                } => foot.count(self.name(object, own), before, left),
                Note::Closes {
                    task,
                    object,
                    handed,
                } => foot.closes.push(Closes {
                    task,
                    name: self.name(object, own),
                    handed: handed.map(|lock| self.name(lock, own)),
                }),
                _ => {}
            }
        }
        for (made, writes) in shared {
            foot.add(Name::Shared(*made), *writes);
        }
        foot
    }

    fn name_queues(&mut self, task: Tid, notes: &[Note]) {
        for note in notes {
            if let Note::NewQueue(queue, capacity) = *note {
                let lane = self.lane(task);
                lane.made += 1;
                let name = Some((task, lane.made));
                let known = self.queues.entry(queue).or_default();
                (known.name, known.capacity) = (name, capacity);
            }
        }
    }

    /// Adds a turn that is known from an earlier schedule. Returns whether it is.
    pub(super) fn repeat(&mut self, task: Tid, notes: &[Note]) -> bool {
        let here = self.ran;
        if self.turns.get(here).is_none_or(|known| known.task != task) {
            self.turns.truncate(here);
            return false;
        }
        self.name_queues(task, notes);
        let foot = std::mem::take(&mut self.turns[here].foot);
        self.hash(task, &foot);
        self.picks.clear();
        self.touch(task, here, &foot);
        self.turns[here].foot = foot;
        let clock = self.turns[here].clock.clone();
        let lane = self.lane(task);
        lane.clock = clock;
        lane.before.clear();
        self.ran += 1;
        self.follow(task, here, notes);
        true
    }

    /// Adds a turn to the hash of the causal order, and not to the order.
    pub(super) fn add_to_hash(&mut self, task: Tid, foot: &Foot) {
        self.ran += 1;
        self.hash(task, foot);
        self.picks.clear();
    }

    /// Adds a turn. Returns the turns with which it races, the latest first.
    pub(super) fn add(&mut self, task: Tid, foot: Foot, notes: &[Note]) -> Vec<usize> {
        let here = self.ran;
        let lane = self.lane(task);
        let mut clock = std::mem::take(&mut lane.clock);
        let mut before = std::mem::take(&mut lane.before);
        clock.join(&self.floor);
        let number = clock.of(task) + 1;
        let mut races = self.touch(task, here, &foot);
        races.retain(|at| {
            let turn = &self.turns[*at];
            let is_race = !turn.is_before(&clock);
            if is_race {
                clock.join(&turn.clock);
            }
            is_race
        });
        before.extend(&races);
        clock.set(task, number);
        self.hash(task, &foot);
        self.lane(task).clock = clock.clone();
        self.turns.push(Turn {
            task,
            number,
            foot,
            clock,
            before,
            barriers: self.barriers,
            picks: std::mem::take(&mut self.picks),
        });
        self.ran += 1;
        self.follow(task, here, notes);
        races
    }

    /// Returns the turns with which a turn of a task would race that does not run, the latest first.
    pub(super) fn races(&mut self, task: Tid, foot: &Foot) -> Vec<usize> {
        let mut clock = self.lane(task).clock.clone();
        clock.join(&self.floor);
        let mut races = Vec::new();
        for at in (0..self.ran).rev() {
            let turn = &self.turns[at];
            if turn.task != task && !turn.is_before(&clock) && conflict(&turn.foot, foot) {
                clock.join(&turn.clock);
                races.push(at);
            }
        }
        races
    }

    /// Notes what a turn touches. Returns the turns that conflict with it, the latest first, without
    /// some that come before one of the others.
    fn touch(&mut self, task: Tid, here: usize, foot: &Foot) -> Vec<usize> {
        let mut found = Vec::new();
        if foot.has_all() {
            found.extend(self.lanes.iter().filter_map(|lane| lane.last));
            self.of_all = Some(here);
        } else {
            found.extend(self.of_all);
            for (name, writes) in &foot.names {
                self.touch_object(task, here, *name, *writes, &mut found);
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.dedup();
        self.lane(task).last = Some(here);
        found
    }

    fn touch_object(
        &mut self,
        task: Tid,
        here: usize,
        name: Name,
        writes: bool,
        found: &mut Vec<usize>,
    ) {
        let object = self.objects.entry(name).or_default();
        found.extend(object.changed);
        let last = object.read.map(|read| &mut self.reads[read]);
        match last {
            _ if writes => {
                let mut next = object.read.take();
                while let Some(read) = next {
                    found.push(self.reads[read].turn);
                    next = self.reads[read].before;
                }
                object.changed = Some(here);
            }
            // The task's turns are ordered: what is after the later one is after both.
            Some(last) if self.turns[last.turn].task == task => last.turn = here,
            _ => {
                let before = object.read.replace(self.reads.len());
                self.reads.push(Read { turn: here, before });
            }
        }
    }

    /// Orders what follows from a turn without a conflict: see [`Note`].
    fn follow(&mut self, task: Tid, here: usize, notes: &[Note]) {
        for note in notes {
            let before = match *note {
                Note::Woken(woken) if !woken.is_daemon() => {
                    self.follows(woken, here);
                    None
                }
                Note::Sent(queue, message) => {
                    self.sent.insert((queue, message), here);
                    None
                }
                Note::Taken(queue, message) => self.sent.get(&(queue, message)).copied(),
                Note::Removed(queue, by) => {
                    // A daemon of the host has no turns, and its number is no place in a list.
                    let last = (!by.is_daemon()).then(|| self.lane(by).last).flatten();
                    let removed = &mut self.queues.entry(queue).or_default().removed;
                    removed.push(last.unwrap_or(here));
                    None
                }
                Note::Stored(queue) => {
                    let known = self.queues.entry(queue).or_default();
                    known.stored += 1;
                    let room = usize::try_from(known.capacity).ok();
                    let at = room.and_then(|room| (known.stored - 1).checked_sub(room));
                    at.and_then(|at| known.removed.get(at).copied())
                }
                Note::Joined(ended) => self.exits.get(&ended).copied(),
                // Its end, or a kill that came too late. A wait after this conflicts with it.
                Note::Touched {
                    object: Object::Life(ended),
                    writes: true,
                } => {
                    self.exits.insert(ended, here);
                    None
                }
                _ => None,
            };
            if let Some(before) = before.filter(|before| *before != here) {
                self.follows(task, before);
            }
        }
    }

    /// Orders a turn before the next one of this task.
    fn follows(&mut self, task: Tid, before: usize) {
        let clock = self.turns[before].clock.clone();
        let lane = self.lane(task);
        lane.clock.join(&clock);
        lane.before.push(before);
    }

    /// Orders all turns before all that follow.
    pub(super) fn barrier(&mut self) {
        self.barriers += 1;
        let ran = self.turns.iter().take(self.ran);
        for turn in ran.skip(self.barred) {
            self.floor.set(turn.task, turn.number);
        }
        self.barred = self.ran;
    }

    /// Returns the tasks that can begin what `later` and the turns not after `race` do, if the turn
    /// `race` is left out: none of these turns comes before their first.
    pub(super) fn initials(&self, race: usize, later: usize) -> Vec<Tid> {
        let raced = &self.turns[race];
        let mut initials: Vec<Tid> = Vec::new();
        // The first turn of each task. What is after a later one is after the first.
        let mut firsts: Vec<&Turn> = Vec::new();
        for (at, turn) in self.turns.iter().enumerate().take(later + 1).skip(race + 1) {
            let is_left_out = at != later && raced.is_before(&turn.clock);
            if is_left_out || firsts.iter().any(|first| first.task == turn.task) {
                continue;
            }
            if !firsts.iter().any(|first| first.is_before(&turn.clock)) {
                initials.push(turn.task);
            }
            firsts.push(turn);
        }
        initials
    }

    /// Adds a turn to the hash of the causal order: what its task did before, and what the turns did
    /// that changed what it touches.
    fn hash(&mut self, task: Tid, foot: &Foot) {
        let mut hasher = FxHasher::default();
        (task, self.lane(task).hash, self.barriers).hash(&mut hasher);
        let taken = self.picks.iter().filter(|pick| pick.answer > 0);
        taken.for_each(|pick| (pick.is_fault, pick.answer).hash(&mut hasher));
        self.version(Name::All).hash(&mut hasher);
        if foot.has_all() {
            self.class().hash(&mut hasher);
        }
        for (name, writes) in &foot.names {
            // Of two turns that commute, the later one wakes the task: not a difference.
            if !matches!(name, Name::Life(_)) || *writes {
                (name, writes, self.version(*name)).hash(&mut hasher);
            }
        }
        let hash = hasher.finish();
        for (name, writes) in &foot.names {
            if *writes {
                self.objects.entry(*name).or_default().version = Some(hash);
            }
        }
        self.lane(task).hash = hash;
    }

    fn version(&self, name: Name) -> Option<u64> {
        self.objects.get(&name).and_then(|object| object.version)
    }

    /// Returns a hash of the causal order, the same for each schedule of that order.
    pub(super) fn class(&self) -> u64 {
        let mut hasher = FxHasher::default();
        // A task without a turn has a lane in some of these schedules alone.
        let ran = self.lanes.iter().enumerate();
        for (task, lane) in ran.filter(|(_, lane)| lane.hash != 0) {
            (task, lane.hash).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Returns an order of the same turns with the same causal order: the latest possible turn
    /// first. `None` if there is no other.
    pub(super) fn other_order(&self) -> Option<Vec<Move>> {
        self.order_by(|at| at as u64)
    }

    /// Returns more of them, each once: some that are drawn, and some in which a task rests after one
    /// of its turns until no other task has a turn left. There is one of these for each turn, up to
    /// `rests`.
    pub(super) fn more_orders(&self, drawn: usize, rests: usize) -> Vec<Vec<Move>> {
        let mut draws = Draws::new(0);
        let mut orders: Vec<Vec<Move>> = Vec::new();
        let mut add = |order: Option<Vec<Move>>| {
            let new = order.filter(|order| !orders.contains(order));
            orders.extend(new);
        };
        for _ in 0..drawn {
            add(self.order_by(|_| draws.draw()));
        }
        let rests = rests.min(self.ran);
        for rest in (0..rests).map(|at| at * self.ran / rests) {
            let task = self.turns[rest].task;
            let is_later = |at: usize| at > rest && self.turns[at].task == task;
            let last = u64::MAX;
            add(self.order_by(|at| if is_later(at) { 0 } else { last - at as u64 }));
        }
        orders
    }

    /// Returns an order that takes, of the turns that are possible, the one with the greatest key.
    fn order_by(&self, mut key: impl FnMut(usize) -> u64) -> Option<Vec<Move>> {
        let turns = self.turns.get(..self.ran)?;
        // For each turn, the number of turns for which it waits, and a list of those that wait for it.
        let mut waits = vec![0_u32; turns.len()];
        let mut waiting: Vec<Option<usize>> = vec![None; turns.len()];
        let mut pairs = Vec::new();
        let mut lasts: Vec<Option<usize>> = vec![None; self.lanes.len()];
        for (at, turn) in turns.iter().enumerate() {
            let last = lasts[index(turn.task)].replace(at);
            for before in turn.before.iter().copied().chain(last) {
                if turns[before].barriers == turn.barriers {
                    waits[at] += 1;
                    let next = waiting[before].replace(pairs.len());
                    pairs.push((at, next));
                }
            }
        }
        let mut order = Vec::with_capacity(turns.len());
        for pass in turns.chunk_by(|a, b| a.barriers == b.barriers) {
            let here = order.len()..order.len() + pass.len();
            let free = here.filter(|at| waits[*at] == 0);
            let mut free: BinaryHeap<(u64, usize)> = free.map(|at| (key(at), at)).collect();
            while let Some((_, at)) = free.pop() {
                order.push(at);
                let mut next = waiting[at];
                while let Some((waiter, after)) = next.map(|pair| pairs[pair]) {
                    next = after;
                    waits[waiter] -= 1;
                    if waits[waiter] == 0 {
                        free.push((key(waiter), waiter));
                    }
                }
            }
        }
        let tasks = order.iter().map(|at| turns[*at].task);
        let is_same = tasks.eq(turns.iter().map(|turn| turn.task));
        let order = order.iter().map(|at| turns[*at].again());
        (!is_same).then(|| order.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_order_has_only_the_turns_that_have_run() {
        let [one, two] = [1, 2].map(Tid::from);
        let mut causality = Causality::default();
        for task in [one, two] {
            causality.add(task, Foot::default(), &[]);
        }
        let again = [two, one].map(Move::of);
        assert_eq!(causality.other_order(), Some(again.to_vec()));
        let known = causality.take_turns();
        causality.reset(known);
        assert!(causality.repeat(one, &[]));
        assert_eq!(causality.other_order(), None);
    }

    /// A kill touches the exit for which its victim waited, even if that wait was cut.
    #[test]
    fn a_wait_follows_the_end_of_its_task_and_no_kill_that_touches_the_exit() {
        let [child, victim, killer, waiter] = [1, 2, 3, 4].map(Tid::from);
        let touched = |object| Note::Touched {
            object,
            writes: true,
        };
        let end = [Object::Life(child), Object::Exit(child)].map(touched);
        let kill = [Object::Life(victim), Object::Exit(child)].map(touched);
        let value = (Tid::KERNEL, 1);
        let mut causality = Causality::default();
        let mut turn = |task, notes: &[Note], shared: &[(Made, bool)]| {
            let foot = causality.foot(task, notes, shared);
            causality.add(task, foot, notes)
        };
        assert!(turn(child, &end, &[]).is_empty());
        assert_eq!(turn(killer, &kill, &[(value, true)]), [0]);
        assert!(turn(waiter, &[Note::Joined(child)], &[]).is_empty());
        assert_eq!(turn(waiter, &[], &[(value, false)]), [1]);
    }
}
