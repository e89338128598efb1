//! Which tasks of several kernels wait for one another, once none of them can go on.
//!
//! A mailbox does not know which tasks hold its ends: a program captures them. So the tasks are ended one by
//! one, and each is found to hold the ends that go with it. All kernels end then in any case.

use std::collections::BTreeSet;

use crate::{
    abi::{End, KernelId, On, QueueId, TaskInfo, TaskState, Tid},
    kernel::{Deadlock, Kernel, OwnMailbox},
};

/// The mailbox of a kernel.
struct Found {
    kernel: KernelId,
    mailbox: OwnMailbox,
    /// The queues at which tasks wait for room in it.
    rooms: Vec<(KernelId, QueueId)>,
    /// How many handles put into it, and how many take from it.
    ends: [usize; 2],
    /// The tasks that hold such handles.
    holders: [BTreeSet<Tid>; 2],
}

/// Ends the tasks of kernels of which none can go on. Returns the report of each, by its place.
pub(super) fn reports(kernels: &mut [(KernelId, &mut Kernel)]) -> Vec<Deadlock> {
    let mut found = mailboxes(kernels);
    let stuck: Vec<(KernelId, Vec<TaskInfo>)> = kernels
        .iter()
        .map(|(id, kernel)| (*id, kernel.stuck_beside()))
        .collect();
    for (id, kernel) in &mut *kernels {
        kernel.end_each(|tid| {
            for one in &mut found {
                let ends = one.mailbox.ends();
                for side in (0..2).filter(|side| ends[*side] < one.ends[*side]) {
                    one.holders[side].insert(tid.beside(*id));
                }
                one.ends = ends;
            }
        });
    }
    let mut all = Vec::new();
    for (kernel, tasks) in &stuck {
        for mut task in tasks.iter().cloned() {
            task.wait.enders.extend(enders(*kernel, &task, &found));
            all.push(task);
        }
    }
    let all = Deadlock::of(all);
    let of_kernel = |(id, _): &(KernelId, _)| Deadlock {
        blocked: all
            .blocked
            .iter()
            .filter(|task| task.tid.kernel() == Some(*id))
            .cloned()
            .collect(),
        ..all.clone()
    };
    stuck.iter().map(of_kernel).collect()
}

fn mailboxes(kernels: &[(KernelId, &mut Kernel)]) -> Vec<Found> {
    let mut found = Vec::new();
    for (id, kernel) in kernels {
        for mailbox in kernel.mailboxes() {
            let rooms = mailbox.rooms().into_iter().filter_map(|(remote, room)| {
                let mut of_remote = kernels
                    .iter()
                    .filter(|(_, kernel)| kernel.remote().is(&remote));
                of_remote.next().map(|(id, _)| (*id, room))
            });
            found.push(Found {
                kernel: *id,
                rooms: rooms.collect(),
                ends: mailbox.ends(),
                holders: Default::default(),
                mailbox,
            });
        }
    }
    found
}

/// The tasks of which each could end a wait at a mailbox: for mail those that can put, for room those that can
/// take.
fn enders(kernel: KernelId, task: &TaskInfo, found: &[Found]) -> Vec<Tid> {
    let TaskState::Blocked {
        on: On::Queue(queue, End::Get),
        ..
    } = task.state
    else {
        return Vec::new();
    };
    let here = (kernel, queue);
    let waits = |one: &&Found| (one.kernel, one.mailbox.queue) == here || one.rooms.contains(&here);
    let Some(one) = found.iter().find(waits) else {
        return Vec::new();
    };
    let side = usize::from(one.rooms.contains(&here));
    one.holders[side].iter().copied().collect()
}
