//! The causal order of a schedule's turns: which of them come before which in every schedule that
//! differs only in the order of independent turns.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use super::notes::Made;
use crate::{DeviceId, Note, Object, QueueId, Tid, sched::Draws};

/// The name of an object, the same in every schedule. Queues and shared values are named by their
/// maker and its count of them. Devices have their numbers: turns that open one do not commute.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Name {
    All,
    Life(Tid),
    Exit(Tid),
    Waits(Tid),
    Family(Tid),
    Tids,
    Random,
    World,
    Calls(u8),
    PutEnd(Made),
    GetEnd(Made),
    Beside(Made),
    Handles(DeviceId),
    Cycles,
    Shared(Made),
}

/// What a turn touches.
#[derive(Clone, Debug, Default)]
pub(super) struct Foot {
    /// The objects, and whether the turn changes them. In order, each object once.
    names: Vec<(Name, bool)>,
    /// A bit for each object that it touches, by the object's hash, and for each that it changes.
    /// Most turns that commute have no bit in common.
    touched: u64,
    changed: u64,
    /// The objects of which it makes or drops handles.
    handles: Vec<Handles>,
    /// The tasks whose wait at an object closes a cycle since this turn.
    closes: Vec<(Tid, Name)>,
}

/// What a turn does to the handles of an object.
#[derive(Clone, Debug)]
struct Handles {
    name: Name,
    /// How many there were before the turn.
    before: u64,
    /// How many fewer there were at most, within the turn.
    dropped: u64,
    /// How many are left after it.
    left: u64,
}

impl Foot {
    fn add(&mut self, name: Name, writes: bool) {
        match self.names.binary_search_by_key(&name, |(name, _)| *name) {
            Ok(at) => self.names[at].1 |= writes,
            Err(at) => self.names.insert(at, (name, writes)),
        }
        let mut hasher = FxHasher::default();
        name.hash(&mut hasher);
        let bit = 1 << (hasher.finish() % 64);
        self.touched |= bit;
        if writes {
            self.changed |= bit;
        }
    }

    fn count(&mut self, name: Name, before: u64, left: u64) {
        let dropped = |handles: &Handles| handles.before.saturating_sub(left);
        match self.handles.iter_mut().find(|known| known.name == name) {
            Some(known) => {
                known.dropped = known.dropped.max(dropped(known));
                known.left = left;
            }
            None => self.handles.push(Handles {
                name,
                before,
                dropped: before.saturating_sub(left),
                left,
            }),
        }
    }

    fn has_all(&self) -> bool {
        self.names
            .first()
            .is_some_and(|(name, _)| *name == Name::All)
    }

    /// Touches everything.
    pub(super) fn touch_all(&mut self) {
        self.add(Name::All, true);
    }

    /// Ends a task.
    pub(super) fn kill(&mut self, task: Tid) {
        self.add(Name::Life(task), true);
    }

    /// Returns whether the next turn of another task, which touched that before this one, does not
    /// commute with this one. Two turns that both drop handles of an object do not if none is left
    /// then: the second drops the last. Nor do two waits of which the second closes a cycle.
    pub(super) fn wakes(&self, task: Tid, next: &Self) -> bool {
        let drops_last = |handles: &Handles| {
            let mut theirs = next.handles.iter();
            theirs.any(|their| their.name == handles.name && their.dropped >= handles.left)
        };
        let closes = |(waiting, name): &(Tid, Name)| {
            *waiting == task && next.touches(Name::Cycles) && next.touches(*name)
        };
        conflict(next, self)
            || self.handles.iter().any(drops_last)
            || self.closes.iter().any(closes)
    }

    fn touches(&self, name: Name) -> bool {
        self.names
            .binary_search_by_key(&name, |(name, _)| *name)
            .is_ok()
    }

    /// Returns the tasks that a turn of `task` ends, itself apart.
    pub(super) fn killed(&self, task: Tid) -> impl Iterator<Item = Tid> {
        self.names
            .iter()
            .filter_map(move |(name, writes)| match name {
                Name::Life(victim) if *writes && *victim != task => Some(*victim),
                _ => None,
            })
    }
}

/// Returns whether two turns of different tasks, which have run one after the other, do not commute.
fn conflict(a: &Foot, b: &Foot) -> bool {
    if a.has_all() || b.has_all() {
        return true;
    }
    if a.changed & b.touched == 0 && a.touched & b.changed == 0 {
        return false;
    }
    let (mut left, mut right) = (a.names.iter().peekable(), b.names.iter().peekable());
    while let (Some((x, x_writes)), Some((y, y_writes))) = (left.peek(), right.peek()) {
        match x.cmp(y) {
            std::cmp::Ordering::Less => drop(left.next()),
            std::cmp::Ordering::Greater => drop(right.next()),
            std::cmp::Ordering::Equal if *x_writes || *y_writes => return true,
            std::cmp::Ordering::Equal => {
                left.next();
                right.next();
            }
        }
    }
    false
}

/// For each task, by tid, the number of its turns that come before (a vector clock).
#[derive(Clone, Debug, Default)]
struct Clock(Vec<u32>);

impl Clock {
    fn of(&self, task: Tid) -> u32 {
        self.0.get(index(task)).copied().unwrap_or(0)
    }

    fn set(&mut self, task: Tid, turns: u32) {
        let at = index(task);
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] = turns;
    }

    fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

/// Daemons have no turns here.
fn index(task: Tid) -> usize {
    u64::from(task) as usize
}

fn clock_of(clocks: &mut Vec<Clock>, task: Tid) -> &mut Clock {
    let at = index(task);
    if clocks.len() <= at {
        clocks.resize(at + 1, Clock::default());
    }
    &mut clocks[at]
}

/// A turn of a schedule.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) task: Tid,
    /// The number of this turn among those of its task, from 1.
    number: u32,
    pub(super) foot: Foot,
    /// The turns before this one, itself included.
    clock: Clock,
}

impl Turn {
    /// Returns whether this turn comes before one with that clock.
    fn is_before(&self, clock: &Clock) -> bool {
        self.number <= clock.of(self.task)
    }
}

/// What is known of a queue.
#[derive(Debug, Default)]
struct Known {
    capacity: u64,
    stored: usize,
    /// The turns that removed messages, in order.
    removed: Vec<usize>,
}

/// The turns of a schedule, with their causal order.
#[derive(Debug, Default)]
pub(super) struct Causality {
    /// The turns that have run. Behind them are those that an earlier schedule has run after the
    /// same begin, and that this one repeats.
    turns: Vec<Turn>,
    /// The number of turns that have run.
    ran: usize,
    /// By tid: what comes before the next turn of each task.
    clocks: Vec<Clock>,
    /// What comes before every turn from now on: all turns before the last barrier.
    floor: Clock,
    barriers: u64,
    names: FxHashMap<QueueId, Made>,
    /// The queues that each task has made.
    made: FxHashMap<Tid, u64>,
    queues: FxHashMap<QueueId, Known>,
    sent: FxHashMap<(QueueId, u64), usize>,
    exits: FxHashMap<Tid, usize>,
    /// The hash of the last turn that changed each object, and of the last turn of each task.
    versions: FxHashMap<Name, u64>,
    hashes: Vec<u64>,
}

impl Causality {
    /// Begins anew, in the same memory. The first turns will be these.
    pub(super) fn reset(&mut self, known: Vec<Turn>) {
        self.turns = known;
        self.ran = 0;
        self.clocks.iter_mut().for_each(|clock| clock.0.clear());
        self.floor.0.clear();
        self.barriers = 0;
        self.names.clear();
        self.made.clear();
        self.queues.clear();
        self.sent.clear();
        self.exits.clear();
        self.versions.clear();
        self.hashes.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.ran
    }

    pub(super) fn turn(&self, at: usize) -> &Turn {
        &self.turns[at]
    }

    /// Takes the turns that have run.
    pub(super) fn take_turns(&mut self) -> Vec<Turn> {
        self.turns.truncate(self.ran);
        std::mem::take(&mut self.turns)
    }

    fn name(&self, object: Object) -> Name {
        let made = |queue: QueueId| {
            let unknown = (Tid::KERNEL, queue.number());
            self.names.get(&queue).copied().unwrap_or(unknown)
        };
        match object {
            Object::All => Name::All,
            Object::Life(task) => Name::Life(task),
            Object::Exit(task) => Name::Exit(task),
            Object::Waits(task) => Name::Waits(task),
            Object::Family(task) => Name::Family(task),
            Object::Tids => Name::Tids,
            Object::Random => Name::Random,
            Object::World => Name::World,
            Object::Calls(number) => Name::Calls(number),
            Object::PutEnd(queue) => Name::PutEnd(made(queue)),
            Object::GetEnd(queue) => Name::GetEnd(made(queue)),
            Object::Beside(queue) => Name::Beside(made(queue)),
            Object::Handles(device) => Name::Handles(device),
            Object::Cycles => Name::Cycles,
        }
    }

    /// Returns what a turn of this task has touched, by its notes.
    pub(super) fn foot(&mut self, task: Tid, notes: &[Note], shared: &[(Made, bool)]) -> Foot {
        self.name_queues(task, notes);
        let mut foot = Foot::default();
        foot.names.reserve(8);
        foot.add(Name::Life(task), false);
        for note in notes {
            match *note {
                Note::Touched { object, writes } => foot.add(self.name(object), writes),
                // A kill after this turn finds the task elsewhere than a kill before it.
                Note::Woken(woken) => foot.add(Name::Life(woken), false),
                Note::Counted {
                    object,
                    before,
                    left,
                } => foot.count(self.name(object), before, left),
                Note::Closes { task, object } => foot.closes.push((task, self.name(object))),
                _ => {}
            }
        }
        for (made, writes) in shared {
            foot.add(Name::Shared(*made), *writes);
        }
        foot
    }

    /// Names the queues that a turn of this task makes.
    fn name_queues(&mut self, task: Tid, notes: &[Note]) {
        for note in notes {
            if let Note::NewQueue(queue, capacity) = *note {
                let count = self.made.entry(task).or_default();
                *count += 1;
                self.names.insert(queue, (task, *count));
                self.queues.entry(queue).or_default().capacity = capacity;
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
        self.turns[here].foot = foot;
        let clock = clock_of(&mut self.clocks, task);
        clock.0.clone_from(&self.turns[here].clock.0);
        self.ran += 1;
        self.follow(task, here, notes);
        true
    }

    /// Adds a turn to the hash of the causal order, and not to the order.
    pub(super) fn add_to_hash(&mut self, task: Tid, foot: &Foot) {
        self.ran += 1;
        self.hash(task, foot);
    }

    /// Adds a turn. Returns the turns with which it races, the latest first.
    pub(super) fn add(&mut self, task: Tid, foot: Foot, notes: &[Note]) -> Vec<usize> {
        let here = self.ran;
        let mut clock = std::mem::take(clock_of(&mut self.clocks, task));
        clock.join(&self.floor);
        let number = clock.of(task) + 1;
        let mut races = Vec::new();
        for (at, turn) in self.turns.iter().enumerate().rev() {
            if !turn.is_before(&clock) && conflict(&turn.foot, &foot) {
                races.push(at);
                clock.join(&turn.clock);
            }
        }
        clock.set(task, number);
        self.hash(task, &foot);
        self.turns.push(Turn {
            task,
            number,
            foot,
            clock: clock.clone(),
        });
        *clock_of(&mut self.clocks, task) = clock;
        self.ran += 1;
        self.follow(task, here, notes);
        races
    }

    /// Orders what follows from a turn without a conflict: see [`Note`].
    fn follow(&mut self, task: Tid, here: usize, notes: &[Note]) {
        for note in notes {
            let before = match *note {
                Note::Woken(woken) if !woken.is_daemon() => {
                    clock_of(&mut self.clocks, woken).join(&self.turns[here].clock);
                    None
                }
                Note::Sent(queue, message) => {
                    self.sent.insert((queue, message), here);
                    None
                }
                Note::Taken(queue, message) => self.sent.get(&(queue, message)).copied(),
                Note::Removed(queue, by) => {
                    let ran = &self.turns[..self.ran];
                    let last = ran.iter().rposition(|turn| turn.task == by);
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
                clock_of(&mut self.clocks, task).join(&self.turns[before].clock);
            }
        }
    }

    /// Notes the tasks that were woken outside of a turn.
    pub(super) fn wake(&mut self, notes: &[Note]) {
        for note in notes {
            if let Note::Woken(task) = *note
                && !task.is_daemon()
            {
                clock_of(&mut self.clocks, task).join(&self.floor);
            }
        }
    }

    /// Orders all turns before all that follow.
    pub(super) fn barrier(&mut self) {
        self.barriers += 1;
        for turn in self.turns.iter().take(self.ran) {
            self.floor.set(turn.task, turn.number);
        }
    }

    /// Returns the tasks that can begin what `later` and the turns not after `race` do, if the turn
    /// `race` is left out: none of these turns comes before their first.
    pub(super) fn initials(&self, race: usize, later: usize) -> Vec<Tid> {
        let raced = &self.turns[race];
        let mut initials: Vec<Tid> = Vec::new();
        let mut kept: Vec<&Turn> = Vec::new();
        for (at, turn) in self.turns.iter().enumerate().take(later + 1).skip(race + 1) {
            if at != later && raced.is_before(&turn.clock) {
                continue;
            }
            let is_later = kept.iter().any(|before| before.is_before(&turn.clock));
            if !is_later && !initials.contains(&turn.task) {
                initials.push(turn.task);
            }
            kept.push(turn);
        }
        initials
    }

    /// Adds a turn to the hash of the causal order: what its task did before, and what the turns did
    /// that changed what it touches.
    fn hash(&mut self, task: Tid, foot: &Foot) {
        let at = index(task);
        if self.hashes.len() <= at {
            self.hashes.resize(at + 1, 0);
        }
        let mut hasher = FxHasher::default();
        (task, self.hashes[at], self.barriers).hash(&mut hasher);
        self.versions.get(&Name::All).hash(&mut hasher);
        if foot.has_all() {
            self.hashes.hash(&mut hasher);
        }
        for (name, writes) in &foot.names {
            // Of two turns that commute, the later one wakes the task: not a difference.
            if !matches!(name, Name::Life(_)) || *writes {
                (name, writes, self.versions.get(name)).hash(&mut hasher);
            }
        }
        let hash = hasher.finish();
        for (name, writes) in &foot.names {
            if *writes {
                self.versions.insert(*name, hash);
            }
        }
        self.hashes[at] = hash;
    }

    /// Returns a hash of the causal order, the same for each schedule of that order.
    pub(super) fn class(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.hashes.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns an order of the same turns with the same causal order: the latest possible turn
    /// first. `None` if there is no other.
    pub(super) fn other_order(&self) -> Option<Vec<Tid>> {
        self.order_by(|free| free.iter().copied().max())
    }

    /// The same, with each turn drawn from those that are possible.
    pub(super) fn drawn_order(&self, draws: &mut Draws) -> Option<Vec<Tid>> {
        self.order_by(|free| free.get(draws.below(free.len() as u64) as usize).copied())
    }

    fn order_by(&self, mut pick: impl FnMut(&[usize]) -> Option<usize>) -> Option<Vec<Tid>> {
        let turns = self.turns.get(..self.ran)?;
        let tasks = turns.iter().map(|turn| index(turn.task)).max()? + 1;
        let mut left: Vec<std::collections::VecDeque<usize>> = vec![Default::default(); tasks];
        for (at, turn) in turns.iter().enumerate() {
            left[index(turn.task)].push_back(at);
        }
        let mut done = Clock::default();
        let (mut order, mut free) = (Vec::new(), Vec::new());
        for _ in turns {
            let firsts = left.iter().filter_map(|turns| turns.front().copied());
            let is_free = |at: &usize| {
                let turn = &turns[*at];
                let before = turn.clock.0.iter().enumerate();
                before
                    .filter(|(task, _)| *task != index(turn.task))
                    .all(|(task, turns)| *turns <= done.0.get(task).copied().unwrap_or(0))
            };
            free.clear();
            free.extend(firsts.filter(is_free));
            let next = pick(&free)?;
            let turn = &turns[next];
            left[index(turn.task)].pop_front();
            done.set(turn.task, turn.number);
            order.push(turn.task);
        }
        let is_same = order.iter().eq(turns.iter().map(|turn| &turn.task));
        (!is_same).then_some(order)
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
        assert_eq!(causality.other_order(), Some(vec![two, one]));
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
