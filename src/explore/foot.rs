//! What a turn touches, by names that are the same in every schedule; and which turns do not commute.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::notes::Made;
use crate::{DeviceId, KernelId, Object, Tid};

/// The number of the kernel that has an object, from 1 upward; 0 for a kernel alone.
pub(super) type Own = u16;

/// The name of an object, the same in every schedule. Queues and shared values are named by their
/// maker and its count of them. Devices have their numbers: turns that open one do not commute.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Name {
    All,
    Life(Tid),
    Exit(Tid),
    Waits(Tid),
    Family(Tid),
    Lasting(Own),
    Tids(Own),
    Random(Own),
    World(Own),
    Devices(Own),
    Connection(Own, u32),
    Clock(Own),
    Calls(Own, u8),
    PutEnd(Made),
    GetEnd(Made),
    Beside(Made),
    Handles(DeviceId),
    Cycles(Own),
    Scopes(Own),
    Budget(Tid),
    Wakes(Tid),
    Mailbox(Made),
    Home(Made),
    Senders(Made),
    Takers(Made),
    Poll(Tid),
    Shared(Made),
}

pub(super) fn own(kernel: Option<KernelId>) -> Own {
    kernel.map_or(0, |kernel| kernel.index() as Own + 1)
}

#[derive(Clone, Debug, Default)]
pub(super) struct Foot {
    /// The objects, and whether the turn changes them. In order, each object once.
    pub(super) names: Vec<(Name, bool)>,
    /// A bit for each object that it touches, by the object's hash, and for each that it changes.
    /// Most turns that commute have no bit in common.
    touched: u64,
    changed: u64,
    /// The objects of which it makes or drops handles.
    handles: Vec<Handles>,
    /// The tasks whose wait at an object closes a cycle since this turn.
    pub(super) closes: Vec<Closes>,
}

/// What a turn does to the handles of an object.
#[derive(Clone, Debug)]
struct Handles {
    name: Name,
    /// How many there were before the turn.
    before: u64,
    /// How many fewer there were at most, within the turn.
    dropped: u64,
    left: u64,
}

/// A wait that closes a cycle since a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closes {
    pub(super) task: Tid,
    pub(super) name: Name,
    /// What the task touches when it takes the lock that it was handed, if that is part of the cycle.
    pub(super) handed: Option<Name>,
}

impl Foot {
    /// Adds what another turn touches.
    pub(super) fn join(&mut self, other: &Self) {
        for (name, writes) in &other.names {
            self.add(*name, *writes);
        }
        self.handles.extend(other.handles.iter().cloned());
        self.closes.extend(&other.closes);
    }

    pub(super) fn add(&mut self, name: Name, writes: bool) {
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

    /// Whether it may disarm a timer, or keep a packet from its arrival.
    pub(super) fn changes_clock(&self) -> bool {
        self.has_all() || self.touches(Name::Clock(0)) || self.touches(Name::World(0))
    }

    /// Adds an object that has no number, and is changed.
    pub(super) fn touch(&mut self, object: Object) {
        match object {
            Object::Clock => self.add(Name::Clock(0), true),
            Object::World => self.add(Name::World(0), true),
            _ => self.touch_all(),
        }
    }

    pub(super) fn count(&mut self, name: Name, before: u64, left: u64) {
        match self.handles.iter_mut().find(|known| known.name == name) {
            Some(known) => {
                known.dropped = known.dropped.max(known.before.saturating_sub(left));
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

    pub(super) fn has_all(&self) -> bool {
        let first = self.names.first();
        first.is_some_and(|(name, _)| *name == Name::All)
    }

    pub(super) fn touch_all(&mut self) {
        self.add(Name::All, true);
    }

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
        let closes = |closes: &Closes| {
            closes.task == task
                && next.touches(Name::Cycles(own(task.kernel())))
                && next.touches(closes.name)
                && closes.handed.is_none_or(|lock| next.touches(lock))
        };
        conflict(next, self)
            || self.handles.iter().any(drops_last)
            || self.closes.iter().any(closes) && !next.releases(self)
    }

    /// Returns whether this turn releases a lock for which the other one waits. It does so before it
    /// waits itself, so that its own wait closes no cycle with that one.
    fn releases(&self, waiting: &Self) -> bool {
        waiting.names.iter().any(|(name, _)| match name {
            Name::GetEnd(lock) => self.touches(Name::PutEnd(*lock)),
            _ => false,
        })
    }

    fn touches(&self, name: Name) -> bool {
        let found = self.names.binary_search_by_key(&name, |(name, _)| *name);
        found.is_ok()
    }

    /// Returns the tasks that a turn of `task` ends, itself apart.
    pub(super) fn killed(&self, task: Tid) -> impl Iterator<Item = Tid> {
        let victim = move |(name, writes): &(Name, bool)| match name {
            Name::Life(victim) if *writes && *victim != task => Some(*victim),
            _ => None,
        };
        self.names.iter().filter_map(victim)
    }
}

/// Returns whether two turns of different tasks, which have run one after the other, do not commute.
pub(super) fn conflict(a: &Foot, b: &Foot) -> bool {
    if a.has_all() || b.has_all() {
        return true;
    }
    if a.changed & b.touched == 0 && a.touched & b.changed == 0 {
        return false;
    }
    let (mut left, mut right) = (a.names.iter().peekable(), b.names.iter().peekable());
    while let (Some((x, x_writes)), Some((y, y_writes))) = (left.peek(), right.peek()) {
        let order = x.cmp(y);
        if order.is_eq() && (*x_writes || *y_writes) {
            return true;
        }
        if order.is_le() {
            left.next();
        }
        if order.is_ge() {
            right.next();
        }
    }
    false
}
