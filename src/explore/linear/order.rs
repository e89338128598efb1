//! The search for an order of operations that explains their answers.
//!
//! The calls and returns are a list. An operation whose call is before the first return in the list
//! may come next. If its answer is what the model gives, both are taken out, and the search goes on with
//! the rest. At a return whose operation fits nowhere, the last choice is taken back. A set of operations
//! with the state after them is tried once: what follows does not depend on their order.

use std::{collections::BTreeSet, hash::Hash, iter};

use rustc_hash::FxHashSet;

use super::operation::Operation;

/// What a check has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Ordered,
    /// No order explains the answer of this operation, the first that returns of those. Where it can
    /// be, the model would give one of these answers. Without any it is not known to be the first.
    Unordered(usize, BTreeSet<String>),
    /// The model does not know this operation.
    NoOperation(usize),
    /// So many steps were not enough.
    Undecided(u64),
}

/// The list of calls and returns. Its ends are one entry, the last of the arrays.
struct Entries {
    next: Vec<usize>,
    before: Vec<usize>,
    /// The operation of each, and whether it is a return.
    events: Vec<(usize, bool)>,
    /// By operation: its call and its return.
    places: Vec<(usize, Option<usize>)>,
}

impl Entries {
    fn new(operations: &[Operation]) -> Self {
        let mut events = Vec::new();
        for (at, operation) in operations.iter().enumerate() {
            events.push((operation.called, at, false));
            events.extend(operation.returned.map(|event| (event, at, true)));
        }
        events.sort_unstable();
        let mut places = vec![(0, None); operations.len()];
        for (entry, (_, at, is_return)) in events.iter().enumerate() {
            match is_return {
                true => places[*at].1 = Some(entry),
                false => places[*at].0 = entry,
            }
        }
        let end = events.len();
        Self {
            next: (1..=end).chain([0]).collect(),
            before: iter::once(end).chain(0..end).collect(),
            events: events.into_iter().map(|(_, at, is)| (at, is)).collect(),
            places,
        }
    }

    fn end(&self) -> usize {
        self.events.len()
    }

    fn first(&self) -> usize {
        self.next[self.end()]
    }

    fn take_out(&mut self, operation: usize) {
        let (call, back) = self.places[operation];
        for entry in iter::once(call).chain(back) {
            let (before, next) = (self.before[entry], self.next[entry]);
            self.next[before] = next;
            self.before[next] = before;
        }
    }

    /// Puts in again what was taken out last.
    fn put_in(&mut self, operation: usize) {
        let (call, back) = self.places[operation];
        for entry in back.into_iter().chain([call]) {
            let (before, next) = (self.before[entry], self.next[entry]);
            self.next[before] = entry;
            self.before[next] = entry;
        }
    }
}

/// Operations, as a bit for each.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Set(Vec<u64>);

impl Set {
    fn flip(&mut self, at: usize) {
        self.0[at / 64] ^= 1 << (at % 64);
    }
}

/// How a search has ended.
enum Ended {
    /// With an order, and the answer that it has for the operation whose answer is free.
    Ordered(Option<String>),
    /// No way got beyond the return of this operation.
    Stopped(usize),
    NoOperation(usize),
    Undecided,
}

/// An operation whose answer may be any but these.
type Free<'a> = (usize, &'a BTreeSet<String>);

/// The most answers that are kept for a report.
const ANSWERS: usize = 8;

/// The most steps in which a part of a history is searched for the first return without an order. Its later answers
/// are open, so it may take more than the whole. A search checks a history that fails many times.
const MOST: u64 = 200_000;

/// Looks for an order, beginning with this state.
pub(super) fn explain<S: Clone + Eq + Hash>(
    operations: &[Operation],
    state: &S,
    step: &impl Fn(&mut S, &str) -> Option<String>,
    most: u64,
) -> Verdict {
    let search = |operations: &[Operation], free: Option<Free<'_>>, most: u64| {
        search(operations, state.clone(), step, most, free)
    };
    match search(operations, None, most) {
        Ended::Ordered(_) => Verdict::Ordered,
        Ended::Stopped(at) => first_unexplained(operations, at, |operations, free| {
            search(operations, free, MOST)
        }),
        Ended::NoOperation(at) => Verdict::NoOperation(at),
        Ended::Undecided => Verdict::Undecided(most),
    }
}

/// Finds the first return that no order explains, and the answers that would be right there. No order explains the
/// whole, and none of its returns before that of `at` is it: a way has got as far.
fn first_unexplained(
    operations: &[Operation],
    at: usize,
    search: impl Fn(&[Operation], Option<Free<'_>>) -> Ended,
) -> Verdict {
    let is_later = |other: &usize| operations[*other].returned >= operations[at].returned;
    let mut ends: Vec<usize> = (0..operations.len()).filter(is_later).collect();
    ends.retain(|other| operations[*other].returned.is_some());
    ends.sort_unstable_by_key(|other| operations[*other].returned);
    let is_unexplained =
        |at: &usize| matches!(search(&until(operations, *at).0, None), Ended::Stopped(_));
    // No order explains the whole, so none explains it up to the last return.
    let first = ends.partition_point(|at| !is_unexplained(at));
    let first = ends.get(first).or(ends.last()).copied().unwrap_or(at);
    let (part, place) = until(operations, first);
    let mut answers = BTreeSet::new();
    while answers.len() < ANSWERS
        && let Ended::Ordered(Some(answer)) = search(&part, Some((place, &answers)))
    {
        answers.insert(answer);
    }
    Verdict::Unordered(first, answers)
}

/// Returns what has happened up to the return of an operation, and the place of that: what returns later is open.
fn until(operations: &[Operation], last: usize) -> (Vec<Operation>, usize) {
    let end = operations[last].returned;
    let is_there = |operation: &&Operation| Some(operation.called) < end;
    let part = operations.iter().filter(is_there).map(|operation| {
        let mut operation = operation.clone();
        if operation.returned > end {
            (operation.returned, operation.answer) = (None, None);
        }
        operation
    });
    let place = operations[..last].iter().filter(is_there).count();
    (part.collect(), place)
}

/// Looks for an order in which an operation may have any answer but some.
fn search<S: Clone + Eq + Hash>(
    operations: &[Operation],
    mut state: S,
    step: &impl Fn(&mut S, &str) -> Option<String>,
    most: u64,
    free: Option<Free<'_>>,
) -> Ended {
    let mut entries = Entries::new(operations);
    let mut tried: FxHashSet<(Set, S)> = FxHashSet::default();
    let mut taken = Set(vec![0; operations.len().div_ceil(64)]);
    let mut choices: Vec<(usize, S)> = Vec::new();
    let mut furthest = 0;
    let mut freely = None;
    let mut returns = operations.iter().filter(|it| it.returned.is_some()).count();
    let mut steps = 0;
    let mut entry = entries.first();
    while returns > 0 {
        let (at, is_return) = entries.events[entry];
        let operation = &operations[at];
        if is_return {
            furthest = furthest.max(entry);
            let Some((last, before)) = choices.pop() else {
                return Ended::Stopped(entries.events[furthest].0);
            };
            state = before;
            taken.flip(last);
            entries.put_in(last);
            returns += usize::from(operations[last].returned.is_some());
            entry = entries.next[entries.places[last].0];
            continue;
        }
        steps += 1;
        if steps > most {
            return Ended::Undecided;
        }
        let mut after = state.clone();
        let Some(answer) = step(&mut after, &operation.input) else {
            return Ended::NoOperation(at);
        };
        let others = free.filter(|(place, _)| *place == at);
        let fits = match others {
            Some((_, others)) => !others.contains(&answer),
            None => operation.answer.as_ref().is_none_or(|seen| *seen == answer),
        };
        taken.flip(at);
        if fits && tried.insert((taken.clone(), after.clone())) {
            if others.is_some() {
                freely = Some(answer);
            }
            choices.push((at, std::mem::replace(&mut state, after)));
            entries.take_out(at);
            returns -= usize::from(operation.returned.is_some());
            entry = entries.first();
        } else {
            taken.flip(at);
            entry = entries.next[entry];
        }
    }
    Ended::Ordered(freely)
}
