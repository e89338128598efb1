//! The faults of a search: how often each was drawn, has happened, and was felt.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    befell::{Feelings, fault_of},
    may::MayFault,
};
use crate::{Event, Fact, Fault, SimNet, Tid};

/// How often a fault came in the schedules of a search ([`Explored::faults`](crate::Explored::faults)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FaultCounts {
    /// How often the search, or chaos, has chosen it.
    pub drawn: u64,
    /// How often it happened. A host that it names may not be there, or there is nothing to break.
    pub applied: u64,
    /// How often a task felt it: the call that it befalls; or a call that failed after it, or a task that was
    /// killed. Of a link and of a disk these are on a host of the fault. What else breaks the network is felt
    /// by any call of the network. A call that an injection makes fail feels no other fault.
    pub felt: u64,
}

/// The faults of schedules, by their texts, or by the kinds of chaos.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) listed: BTreeMap<String, FaultCounts>,
    pub(super) chaos: BTreeMap<String, FaultCounts>,
    /// The faults of the list that could have happened.
    pub(super) possible: BTreeSet<String>,
    /// Why those of the list did not happen when they were drawn.
    pub(super) refused: BTreeMap<String, String>,
    /// The hosts of all schedules.
    pub(super) hosts: BTreeSet<String>,
}

impl Faults {
    pub(super) fn merge(&mut self, other: Self) {
        add(&mut self.listed, other.listed);
        add(&mut self.chaos, other.chaos);
        self.possible.extend(other.possible);
        for (text, why) in other.refused {
            self.refuse(text, why);
        }
        self.hosts.extend(other.hosts);
    }

    /// Keeps what was seen of the same schedules before: of two counts of a fault, the greater.
    pub(super) fn keep(&mut self, first: Self) {
        for (counts, before) in [
            (&mut self.listed, &first.listed),
            (&mut self.chaos, &first.chaos),
        ] {
            for (text, before) in before {
                let counts = counts.entry(text.clone()).or_default();
                counts.drawn = counts.drawn.max(before.drawn);
                counts.applied = counts.applied.max(before.applied);
                counts.felt = counts.felt.max(before.felt);
            }
        }
        let sets = Self {
            listed: BTreeMap::new(),
            chaos: BTreeMap::new(),
            ..first
        };
        self.merge(sets);
    }

    /// Keeps the least of the reasons: threads meet them in any order.
    fn refuse(&mut self, text: String, why: String) {
        let kept = self.refused.entry(text).or_insert_with(|| why.clone());
        if why < *kept {
            *kept = why;
        }
    }

    /// Returns the counts of all, under the texts of a report.
    pub(super) fn by_text(&self) -> BTreeMap<String, FaultCounts> {
        let chaos = self.chaos.iter();
        let chaos = chaos.map(|(kind, counts)| (format!("chaos {kind}"), *counts));
        let mut all: BTreeMap<_, _> = chaos.collect();
        all.extend(self.listed.clone());
        all
    }

    /// Returns why each fault of the list that never could happen could not, and what to do.
    pub(super) fn idle(&self, list: &[MayFault]) -> BTreeMap<String, String> {
        let idle = list.iter().filter(|it| !self.possible.contains(&it.text));
        let why = |fault: &MayFault| match (fault.between(), self.refused.get(&fault.text)) {
            (Some(between), _) if is_of_one_host(between) => {
                "a link has two hosts: name two that differ".to_string()
            }
            (Some(between), refused) => match (self.missing(between), refused) {
                (Some(missing), _) => missing,
                (None, Some(refused)) => format!("{refused}: name what the test makes"),
                (None, None) => "no schedule has all the hosts that it names".to_string(),
            },
            (None, _) => format!(
                "no task makes the call {} in any schedule: leave it out, or name a call of the test",
                fault.call_name().unwrap_or_default()
            ),
        };
        idle.map(|fault| (fault.text.clone(), why(fault))).collect()
    }

    /// Names the hosts of a fault that no schedule has, if there are any.
    fn missing(&self, fault: &Fault) -> Option<String> {
        let hosts = fault.hosts();
        let missing = hosts.iter().filter(|host| !self.hosts.contains(**host));
        let missing: Vec<String> = missing.map(|host| format!("no host {host:?}")).collect();
        let known: Vec<&str> = self.hosts.iter().map(String::as_str).collect();
        let known = match known[..] {
            [only] => format!("its only host is {only}"),
            _ => format!("its hosts are {}", known.join(", ")),
        };
        (!missing.is_empty()).then(|| format!("the test has {}: {known}", missing.join(" and ")))
    }
}

fn add(all: &mut BTreeMap<String, FaultCounts>, more: BTreeMap<String, FaultCounts>) {
    for (text, more) in more {
        let counts = all.entry(text).or_default();
        counts.drawn += more.drawn;
        counts.applied += more.applied;
        counts.felt += more.felt;
    }
}

/// The faults of the schedule under way.
#[derive(Default)]
pub(super) struct Counted {
    faults: Faults,
    /// Of the list by their texts, and of chaos by their kinds.
    feelings: Feelings<(String, bool)>,
}

impl Counted {
    fn of(&mut self, text: &str) -> &mut FaultCounts {
        self.faults.listed.entry(text.to_string()).or_default()
    }

    /// A call of a task could be befallen by this fault.
    pub(super) fn met(&mut self, text: &str) {
        if !self.faults.possible.contains(text) {
            self.faults.possible.insert(text.to_string());
        }
    }

    /// A fault befalls a call, which feels it.
    pub(super) fn befalls(&mut self, text: &str) {
        let counts = self.of(text);
        counts.drawn += 1;
        counts.applied += 1;
        counts.felt += 1;
    }

    /// A fault was drawn before a turn, and happened or was refused.
    pub(super) fn between(
        &mut self,
        text: &str,
        fault: &Fault,
        happened: Result<(), std::io::Error>,
    ) {
        let counts = self.of(text);
        counts.drawn += 1;
        match happened {
            Ok(()) => {
                counts.applied += 1;
                self.met(text);
                self.feelings.add((text.to_string(), true), fault.clone());
            }
            Err(error) => {
                self.faults.refuse(text.to_string(), error.to_string());
            }
        }
    }

    pub(super) fn observe(&mut self, event: &Event<'_>) {
        if let Fact::Fault { text } = &event.fact
            && event.tid == Tid::KERNEL
            && let Some(fault) = fault_of(text)
        {
            let kind = text.split(' ').next().unwrap_or_default();
            self.feelings.add((kind.to_string(), false), fault);
        }
        for (text, is_listed) in self.feelings.observe(event) {
            let of = match is_listed {
                true => &mut self.faults.listed,
                false => &mut self.faults.chaos,
            };
            of.entry(text).or_default().felt += 1;
        }
    }

    /// Returns the counts of all faults of the schedule, which has ended.
    pub(super) fn end(&mut self, list: &[MayFault], net: &SimNet) -> Faults {
        let mut faults = std::mem::take(&mut self.faults);
        // Of what happened, only the kinds that chaos has drawn are its faults.
        let felt = std::mem::take(&mut faults.chaos);
        for (kind, drawn, applied) in net.chaos_counts() {
            let felt = felt.get(kind).map_or(0, |counts| counts.felt);
            let counts = FaultCounts {
                drawn,
                applied,
                felt: felt.min(applied),
            };
            faults.chaos.insert(kind.to_string(), counts);
        }
        faults.hosts = net.hosts().into_iter().collect();
        for fault in list {
            faults.listed.entry(fault.text.clone()).or_default();
            let is_known = |host: &&str| faults.hosts.contains(*host);
            let may_happen =
                |between: &Fault| !is_of_one_host(between) && between.hosts().iter().all(is_known);
            if fault.between().is_some_and(may_happen) {
                faults.possible.insert(fault.text.clone());
            }
        }
        faults
    }
}

/// Whether a fault is of a link from a host to itself: it can never happen.
fn is_of_one_host(fault: &Fault) -> bool {
    matches!(fault.hosts()[..], [a, b] if a == b)
}
