//! Which tasks wait for which: chains of waits, cycles, and the paths that lead to them.
//!
//! [`TaskInfo::waits_for`](crate::TaskInfo::waits_for) is the step from a task to the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use crate::abi::Tid;

/// The longest chain of waits that the kernel follows when a task blocks. It bounds the price of
/// blocking. The report of a total deadlock includes longer cycles.
pub(crate) const LONGEST: usize = 1024;

/// Walks from a task to the one that it waits for, and on, over [`LONGEST`] steps at most. Begins with
/// the task itself.
pub(crate) fn chain<T: Copy>(first: T, next: impl Fn(T) -> Option<T>) -> impl Iterator<Item = T> {
    iter::successors(Some(first), move |task| next(*task)).take(LONGEST + 1)
}

/// Chooses one task for each that waits for any of several. A task goes on when one of these does, so
/// it is left out if a way leads from it to a task that does not wait. What is left is stuck, and has
/// a cycle. Where ways lead to the task `toward`, the next one of a shortest way is chosen: a cycle of that task
/// stays one.
pub(crate) fn choose(
    mut waits: BTreeMap<Tid, Vec<Tid>>,
    toward: Option<Tid>,
) -> BTreeMap<Tid, Tid> {
    waits.retain(|_, enders| !enders.is_empty());
    let selects = waits.values().any(|enders| enders.len() > 1);
    let mut freed: Vec<Tid> = Vec::new();
    let mut waiting_for: BTreeMap<Tid, Vec<Tid>> = BTreeMap::new();
    for (tid, enders) in waits.iter().filter(|_| selects) {
        for ender in enders {
            waiting_for.entry(*ender).or_default().push(*tid);
        }
    }
    freed.extend(waiting_for.keys().filter(|tid| !waits.contains_key(tid)));
    while let Some(tid) = freed.pop() {
        for waiting in waiting_for.remove(&tid).into_iter().flatten() {
            freed.extend(waits.remove(&waiting).map(|_| waiting));
        }
    }
    let mut chosen = BTreeMap::new();
    let mut found: Vec<Tid> = toward.filter(|_| selects).into_iter().collect();
    let mut at = 0;
    while let Some(ender) = found.get(at).copied() {
        for waiting in waiting_for.get(&ender).into_iter().flatten() {
            if waits.contains_key(waiting) && !chosen.contains_key(waiting) {
                chosen.insert(*waiting, ender);
                found.push(*waiting);
            }
        }
        at += 1;
    }
    for (tid, enders) in waits {
        if let Some(first) = enders.first() {
            chosen.entry(tid).or_insert(*first);
        }
    }
    chosen
}

/// Finds the cycles of a graph in which each task waits for at most one other. A task that one walk
/// meets twice is on a cycle. Each cycle begins with its lowest tid; they are ordered by that.
pub(crate) fn cycles(waits: &BTreeMap<Tid, Tid>) -> Vec<Vec<Tid>> {
    let mut walk_of: BTreeMap<Tid, Tid> = BTreeMap::new();
    let mut cycles = Vec::new();
    for &start in waits.keys() {
        let mut tid = start;
        while !walk_of.contains_key(&tid) {
            walk_of.insert(tid, start);
            let Some(&next) = waits.get(&tid) else { break };
            tid = next;
        }
        if walk_of[&tid] == start && waits.contains_key(&tid) {
            let mut ring = vec![tid];
            let mut next = waits[&tid];
            while next != tid {
                ring.push(next);
                next = waits[&next];
            }
            let lowest = (0..ring.len()).min_by_key(|&at| ring[at]).unwrap_or(0);
            ring.rotate_left(lowest);
            cycles.push(ring);
        }
    }
    cycles.sort();
    cycles
}

/// Finds the paths to the cycles. A path ends at a task that was visited before: its continuation
/// is known.
pub(crate) fn tails(waits: &BTreeMap<Tid, Tid>, cycles: &[Vec<Tid>]) -> Vec<Vec<Tid>> {
    let mut is_stuck: BTreeMap<Tid, bool> =
        cycles.iter().flatten().map(|tid| (*tid, true)).collect();
    let waited_for: BTreeSet<Tid> = waits.values().copied().collect();
    let mut tails = Vec::new();
    for &start in waits.keys().filter(|tid| !waited_for.contains(tid)) {
        let (mut path, mut last) = (vec![start], start);
        while !is_stuck.contains_key(&last)
            && let Some(&next) = waits.get(&last)
        {
            path.push(next);
            last = next;
        }
        let stuck = is_stuck.get(&last) == Some(&true);
        is_stuck.extend(path.iter().map(|tid| (*tid, stuck)));
        if stuck {
            tails.push(path);
        }
    }
    tails
}
