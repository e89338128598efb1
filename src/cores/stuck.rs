//! Which tasks of several kernels wait for one another, once none of them can go on.
//!
//! A mailbox does not know which tasks hold its ends: a program captures them. So the messages that no task
//! has taken are dropped, and then the tasks are ended one by one. Each is found to hold the ends that go with
//! it, and so are those that end because of it. All kernels end then in any case.
//!
//! A wait is on a cycle only if all that could end it is known. A select with a source of another kind, such as
//! a connection, is on none. Neither is a wait at a mailbox of which no task holds the other end, or of which a
//! message of a queue holds it.

use std::collections::BTreeSet;

use crate::{
    abi::{KernelId, QueueId, TaskInfo, Tid},
    kernel::{Deadlock, Ender, Kernel, Known, Stuck},
};

/// A queue of a kernel.
type Place = (KernelId, QueueId);

/// A mailbox.
struct Found {
    mailbox: Known,
    /// The queue at which tasks wait for mail, if it belongs to a kernel.
    home: Option<Place>,
    /// The queues at which tasks wait for room in it.
    rooms: Vec<Place>,
    /// How many handles put into it, and how many take from it.
    ends: [usize; 2],
    /// The tasks that hold such handles.
    holders: [BTreeSet<Tid>; 2],
    /// The mailboxes with messages that hold such handles, by their places in the list.
    within: [BTreeSet<usize>; 2],
    /// Whether anything else holds such handles: a message of a queue.
    is_open: [bool; 2],
}

/// The sides of a mailbox: the end that puts, and the end that takes.
const PUTS: usize = 0;
const TAKES: usize = 1;

impl Found {
    /// Returns of which sides there are fewer handles than before.
    fn lost(&mut self) -> impl Iterator<Item = usize> + use<> {
        let ends = self.mailbox.ends();
        let before = std::mem::replace(&mut self.ends, ends);
        [PUTS, TAKES]
            .into_iter()
            .filter(move |side| ends[*side] < before[*side])
    }
}

/// Ends the tasks of kernels of which none can go on. Returns the report of each, by its place.
pub(super) fn reports(kernels: &mut [(KernelId, &mut Kernel)]) -> Vec<Deadlock> {
    let mut found = mailboxes(kernels);
    let stuck: Vec<(KernelId, Vec<Stuck>)> = kernels
        .iter()
        .map(|(id, kernel)| (*id, kernel.stuck_beside()))
        .collect();
    find_holders(kernels, &mut found);
    let mut all = Vec::new();
    for (kernel, tasks) in &stuck {
        for Stuck { task, enders } in tasks {
            let mut task = task.clone();
            if task.wait.enders.is_empty() {
                task.wait.enders = tasks_of(*kernel, enders, &found);
            }
            all.push(task);
        }
    }
    let all = Deadlock::of(all);
    let is_of = |id: KernelId| move |task: &&TaskInfo| task.tid.kernel() == Some(id);
    let of_kernel = |(id, _): &(KernelId, _)| Deadlock {
        blocked: all.blocked.iter().filter(is_of(*id)).cloned().collect(),
        ..all.clone()
    };
    stuck.iter().map(of_kernel).collect()
}

fn mailboxes(kernels: &[(KernelId, &mut Kernel)]) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for (id, kernel) in kernels {
        for mailbox in kernel.mailboxes() {
            if all.iter().any(|one| one.mailbox.is(&mailbox)) {
                continue;
            }
            let rooms = mailbox.rooms().into_iter().filter_map(|(remote, room)| {
                let mut of_remote = kernels
                    .iter()
                    .filter(|(_, kernel)| kernel.remote().is(&remote));
                of_remote.next().map(|(id, _)| (*id, room))
            });
            all.push(Found {
                home: mailbox.queue.map(|queue| (*id, queue)),
                rooms: rooms.collect(),
                ends: mailbox.ends(),
                holders: Default::default(),
                within: Default::default(),
                is_open: Default::default(),
                mailbox,
            });
        }
    }
    all
}

/// Drops the messages and ends the tasks, and notes the ends that go with each.
fn find_holders(kernels: &mut [(KernelId, &mut Kernel)], found: &mut [Found]) {
    for at in 0..found.len() {
        found[at].mailbox.discard();
        for one in &mut *found {
            for side in one.lost() {
                one.within[side].insert(at);
            }
        }
    }
    for (_, kernel) in &mut *kernels {
        kernel.discard_messages();
    }
    for one in &mut *found {
        for side in one.lost() {
            one.is_open[side] = true;
        }
    }
    for (id, kernel) in kernels {
        kernel.end_each(|ended| {
            for one in &mut *found {
                for side in one.lost() {
                    one.holders[side].extend(ended.iter().map(|tid| tid.beside(*id)));
                }
            }
        });
    }
}

/// The tasks of which each could end a wait that one of these can end; none if anything else could.
fn tasks_of(kernel: KernelId, enders: &[Ender], found: &[Found]) -> Vec<Tid> {
    let mut all = Vec::new();
    for ender in enders {
        let tasks = match ender {
            Ender::Task(tid) => [*tid].into(),
            Ender::Queue(queue) => tasks_at((kernel, *queue), found),
            Ender::Other => BTreeSet::new(),
        };
        if tasks.is_empty() {
            return Vec::new();
        }
        all.extend(tasks);
    }
    all
}

/// The tasks of which each could end a wait at a mailbox: for mail those that can put, for room those that can
/// take.
fn tasks_at(here: Place, found: &[Found]) -> BTreeSet<Tid> {
    let waits = |one: &Found| match one.rooms.contains(&here) {
        true => Some(TAKES),
        false => (one.home == Some(here)).then_some(PUTS),
    };
    let mut sides = found.iter().enumerate();
    let side = sides.find_map(|(at, one)| Some((at, waits(one)?)));
    side.map_or_else(BTreeSet::new, |side| holders(side, found))
}

/// The tasks that hold an end of a mailbox, and those that can take a message which holds one; none if anything
/// else may. Only the kernel to which a mailbox belongs can take from it.
fn holders(end: (usize, usize), found: &[Found]) -> BTreeSet<Tid> {
    let (mut seen, mut ahead) = (BTreeSet::new(), vec![end]);
    let mut all = BTreeSet::new();
    while let Some((at, side)) = ahead.pop() {
        if !seen.insert((at, side)) {
            continue;
        }
        let one = &found[at];
        if one.is_open[side] {
            return BTreeSet::new();
        }
        let taker = one.home.filter(|_| side == TAKES).map(|(kernel, _)| kernel);
        let can = |tid: &&Tid| taker.is_none() || tid.kernel() == taker;
        all.extend(one.holders[side].iter().filter(can));
        ahead.extend(one.within[side].iter().map(|at| (*at, TAKES)));
    }
    all
}
