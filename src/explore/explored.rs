//! What a search returns.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use super::{
    felt::FaultCounts,
    worth::{Cuts, Mutants},
};

/// The result of a search: [`Check::explore`](crate::Check::explore). Its `Display` is the report
/// with which [`Check::run`](crate::Check::run) panics, or a line with what was covered.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// The number of schedules that ran, without repeats and those of the audit. The runs with which
    /// [`Check::pct`](crate::Check::pct) counts turns count only if the search ends among them.
    pub schedules: u64,
    /// The number of causal orders among them, in an exhaustive search or one with
    /// [`Check::audit`](crate::Check::audit) or [`Check::estimate`](crate::Check::estimate). Two schedules have the same causal order if they differ
    /// only in the order of turns that do not affect each other.
    pub classes: u64,
    /// An estimate of how likely the next schedule of a search that draws has a causal order that none
    /// has had: the share of schedules whose causal order no other one has (Good-Turing). With 0, read it
    /// as less than 1 / [`schedules`](Self::schedules). It is about the schedules that the strategy draws,
    /// and says nothing of those that it cannot draw. Only [`Check::estimate`](crate::Check::estimate) and
    /// [`Check::audit`](crate::Check::audit) count causal orders. An exhaustive search draws nothing, and
    /// has none, and neither has one by [`Check::rff`](crate::Check::rff) or
    /// [`Check::fifo`](crate::Check::fifo).
    pub unseen: Option<f64>,
    /// Whether the search was complete: it ran each causal order of turns, for its
    /// [`premise`](Self::premise). With a shard, each of its part. If tasks share memory that the search does not see,
    /// another order of turns may have another outcome: see [`proved`](Self::proved).
    pub complete: bool,
    /// Whether the search was complete, and its audit agrees: no order of turns has another outcome, for
    /// its [`premise`](Self::premise). With a shard, none of its part.
    ///
    /// The audit runs other orders of turns that should not differ, and draws schedules. If all orders
    /// of turns have one causal order, it cannot tell whether tasks share undeclared memory, and nothing
    /// is proved. Nothing is claimed about memory besides the kernel, its types and
    /// [`Shared`](crate::Shared) that shows neither in a failure nor in an
    /// [outcome](crate::Kernel::outcome) of the orders that the audit has run.
    pub proved: bool,
    /// What the search takes for granted, such as `turns take no time and the seed is 0`.
    pub premise: String,
    /// What a complete search has left out of its audit, in words.
    pub unaudited: Option<String>,
    /// What kept an exhaustive search from being complete, in words.
    pub bound: Option<String>,
    /// The number of turns after which the search has cut schedules ([`Check::steps`](crate::Check::steps)), if it
    /// is exhaustive and has cut one.
    pub cut_at: Option<u64>,
    /// The part of the search that ran, such as `3/8`, if it was a shard.
    pub part: Option<String>,
    /// What the schedules came to, as named by [`Kernel::outcome`](crate::Kernel::outcome).
    pub outcomes: BTreeSet<String>,
    /// The texts of [`sometimes!`](crate::sometimes) that held in no schedule. A schedule that is
    /// replayed alone counts none.
    pub never: BTreeSet<String>,
    /// How often each fault was drawn, happened and was felt: those of [`Check::faults`](crate::Check::faults)
    /// by their texts, and those of chaos by their kinds, as in `chaos cut`. A chaos that the closure begins
    /// itself, and faults that it makes, are not counted.
    pub faults: BTreeMap<String, FaultCounts>,
    /// The faults of [`Check::faults`](crate::Check::faults) that never could happen, by their texts, with the
    /// reason in words: no task made the call that they befall, or there is no such host. Those of a shard
    /// could not happen in its part, and may have happened in another.
    pub idle: BTreeMap<String, String>,
    /// What a search under chaos has not tested, in words: no task felt a fault. `None` if one did, if a
    /// schedule failed or none ran, and without
    /// [`Check::chaos`](crate::Check::chaos) and a chaos of [`Check::net`](crate::Check::net).
    pub unfelt: Option<String>,
    /// Why a schedule that is replayed alone made other traps than in its report, in words.
    pub changed: Option<String>,
    /// The turns of a schedule that is replayed alone and passes, as text.
    pub turns: Option<String>,
    /// What the cuts of tasks have found ([`Check::cut`](crate::Check::cut)). `None` if a schedule fails without
    /// any.
    pub cuts: Option<Cuts>,
    /// What the searches of mutations have found ([`Check::mutate`](crate::Check::mutate)). `None` if a
    /// schedule has failed without any.
    pub mutants: Option<Mutants>,
    /// The first schedule that failed. The search ends with it.
    pub failure: Option<Failure>,
}

/// How far a search is: what [`Check::progress`](crate::Check::progress) receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// The number of schedules that have run.
    pub schedules: u64,
    /// The number of schedules to run, at most.
    pub of: u64,
    /// The causal orders among those that have run. Only an exhaustive search counts them.
    pub classes: u64,
    /// The time since the begin.
    pub elapsed: Duration,
    /// The most time that the rest will take: up to the last of [`of`](Self::of) at the rate so far,
    /// or up to [`Check::time`](crate::Check::time). `None` without such a limit.
    pub left: Option<Duration>,
}

/// A schedule that failed. Its `Display` is the report.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Failure {
    /// The error of the closure, its panic, or the tasks that faulted.
    pub why: String,
    /// The number of turns at which the schedule departs from first in, first out: the task that is
    /// next is not resumed.
    pub preemptions: usize,
    /// The faults of the schedule, in the words of [`Check::faults`](crate::Check::faults), with the turn
    /// of each and what felt it first: `reset server client before turn 41, felt by recv at echo.rs:52`.
    pub faults: Vec<String>,
    /// The value of `TRAPLINE_REPLAY` that repeats the schedule.
    pub replay: String,
    /// Where it failed, and how to see it again.
    pub details: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n\n{}", self.why, self.details)
    }
}

/// Why no schedule ran, if nothing else has kept the search from it.
const NO_SCHEDULES: &str = "the limit is 0 schedules";

/// Why a complete search whose audit left out nothing has proved nothing.
const ONE_ORDER: &str = "all orders of turns have one causal order, so the search cannot tell whether \
     tasks share what it does not see";

/// The same of a part of a search. The others may have other causal orders.
const ONE_ORDER_HERE: &str = "the orders of turns of this part have one causal order, so it cannot tell alone \
     whether tasks share what it does not see";

impl Explored {
    /// Returns whether the search has left out what it was to test: a claim of
    /// [`sometimes!`](crate::sometimes) held in no schedule, or a fault never could happen. A
    /// [shard](crate::Check::shard) need not meet each fault.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.never.is_empty() || self.part.is_none() && !self.idle.is_empty()
    }

    /// Returns why a complete search has proved nothing, if so.
    pub(super) fn unproved(&self) -> Option<&str> {
        let is_it = self.complete && !self.proved;
        let one_order = match self.part {
            None => ONE_ORDER,
            Some(_) => ONE_ORDER_HERE,
        };
        is_it.then(|| self.unaudited.as_deref().unwrap_or(one_order))
    }
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(failure) = &self.failure {
            return failure.fmt(f);
        }
        if self.schedules == 0 && self.part.is_none() {
            let why = self.bound.as_deref().unwrap_or(NO_SCHEDULES);
            return write!(f, "no schedule ran to its end: {why}");
        }
        let part = self.part.as_ref();
        let part = part.map_or(String::new(), |part| format!(" of part {part}"));
        match self.schedules {
            1 => write!(f, "1 schedule{part} passes")?,
            n => write!(f, "{n} schedules{part} pass")?,
        }
        if self.proved {
            let (premise, of) = (&self.premise, self.part.as_ref());
            let of = of.map_or("", |_| " of this part");
            write!(
                f,
                "; proved: no other order of turns{of}, if {premise}, has another outcome"
            )?;
        } else if let Some(why) = self.unproved() {
            write!(f, "; the search is complete, and nothing is proved: {why}")?;
        } else if let Some(bound) = &self.bound {
            write!(f, "; the search is not complete: {bound}")?;
        }
        if let Some(unseen) = self.unseen {
            let orders = match self.classes {
                1 => "1 causal order".to_string(),
                n => format!("{n} causal orders"),
            };
            let share = share(unseen, self.schedules);
            write!(
                f,
                "; {orders}, and {share} of the probability is in orders not yet seen"
            )?;
        }
        if let Some(turns) = &self.turns {
            write!(f, "\n{turns}")?;
        }
        for text in &self.never {
            write!(f, "\nsometimes!({text:?}) held in none of them")?;
        }
        for (
            fault,
            FaultCounts {
                drawn,
                applied,
                felt,
            },
        ) in &self.faults
        {
            write!(
                f,
                "\nfault {fault}: drawn {drawn} times, happened {applied}, felt {felt}"
            )?;
        }
        for (fault, why) in self.idle.iter().filter(|_| self.part.is_none()) {
            write!(f, "\nthe fault {fault:?} never could happen: {why}")?;
        }
        // A search that has ended before has made none.
        if let Some(cuts) = self.cuts.as_ref().filter(|cuts| !cuts.is_empty()) {
            let s = |count: u64| if count == 1 { "" } else { "s" };
            let (all, places) = (cuts.len(), cuts.places.len() as u64);
            let (cuts, calls) = (s(all), s(places));
            let pass = if all == 1 { "passes" } else { "pass" };
            write!(
                f,
                "\n{all} cut{cuts} at {places} call{calls} of the source {pass}"
            )?;
        }
        match &self.mutants {
            Some(mutants) => write!(f, "\n{mutants}"),
            None => Ok(()),
        }
    }
}

/// Says an estimated share. Nothing below one schedule is known.
fn share(share: f64, schedules: u64) -> String {
    let percent = 100.0 * share;
    if share == 0.0 {
        let least = 100.0 / schedules.max(1) as f64;
        return format!("less than {least:.2} %");
    }
    match percent {
        10.0.. => format!("about {percent:.0} %"),
        1.0.. => format!("about {percent:.1} %"),
        _ => format!("about {percent:.2} %"),
    }
}
