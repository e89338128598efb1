//! Cuts: one more schedule for each trap of a task, which is killed there, or whose innermost timeout or
//! scope ends there.
//!
//! All of them are the same schedule, first in, first out, up to the cut. A task is cut at two moments of
//! each trap: before the call has an effect, and while it is under way. Then it waits, or its answer is
//! lost. A timeout leaves an answer (S56), so it cuts a call that is under way only where that waits.

use std::collections::BTreeMap;

use super::{
    cut::{Await, Cut, NOTHING, Victims},
    plan::{Decisions, Plan},
    reruns::Reruns,
    tally::Found,
    trial::Test,
    worth::{CutPlace, Cuts},
};
use crate::{Error, Inject};

/// The most cuts of a search.
const MOST: usize = 10_000;

/// By file, line, call and kind of cut.
type Table = BTreeMap<(String, u32, String, bool), CutPlace>;

/// Runs all cuts. Returns what they have found, and the first failure.
pub(super) fn search(test: Test<'_>) -> Result<(Cuts, Option<Found>), Error> {
    let settings = test.settings;
    let (awaits, failure) = Reruns(test).awaits(settings.seed)?;
    if let Some(why) = failure {
        let name = Some("the schedule that was to be cut".to_string());
        let found = Found::new(0, why).with(Plan::default());
        return Ok((Cuts::default(), Some(Found { name, ..found })));
    }
    let (mut cuts, mut table, mut first) = (Cuts::default(), Table::new(), None);
    for victims in &settings.cuts {
        let mut made = 0;
        for at in awaits.iter().filter(|at| victims.are(&at.name)) {
            for inject in moments(victims.by_timeout, at.waits) {
                if made >= MOST || settings.deadline.is_over() {
                    cuts.left += 1;
                    continue;
                }
                let (is_made, found) = cut(test, at, inject)?;
                made += usize::from(is_made);
                if is_made {
                    note(&mut table, at, victims, found.as_ref());
                }
                first = first.or(found);
            }
        }
        if made == 0 && cuts.left == 0 {
            first = first.or_else(|| Some(nothing(victims, &awaits)));
        }
    }
    cuts.places = table.into_values().collect();
    Ok((cuts, first))
}

fn moments(by_timeout: bool, waits: bool) -> impl Iterator<Item = Inject> {
    let (before, within) = match by_timeout {
        true => (Inject::Cut, waits.then_some(Inject::CutIn)),
        false => (Inject::Kill, Some(Inject::KillIn)),
    };
    [Some(before), within].into_iter().flatten()
}

/// Runs the schedule with one cut. Returns whether it was made, and the failure if there is one.
fn cut(test: Test<'_>, at: &Await, inject: Inject) -> Result<(bool, Option<Found>), Error> {
    let cut = Cut {
        tid: at.tid,
        trap: at.trap,
        inject,
    };
    let settings = test.settings.with_cut(Some(cut));
    let test = Test {
        settings: &settings,
        ..test
    };
    let decisions = Decisions::Plan(Plan::default());
    let (is_made, failure) = Reruns(test).result(settings.seed, &decisions)?;
    let found = failure.map(|why| Found {
        name: Some(at.named(inject)),
        cut: Some(cut),
        ..Found::new(0, why).with(Plan::default())
    });
    Ok((is_made, found.filter(|_| is_made)))
}

fn note(table: &mut Table, at: &Await, victims: &Victims, found: Option<&Found>) {
    let (file, line) = at.place.rsplit_once(':').unwrap_or((&at.place, ""));
    let key = (
        file.to_string(),
        line.parse().unwrap_or(0),
        at.verb.clone(),
        victims.by_timeout,
    );
    let place = table.entry(key).or_insert_with(|| CutPlace {
        place: at.place.clone(),
        call: at.verb.clone(),
        by_timeout: victims.by_timeout,
        ..CutPlace::default()
    });
    place.cuts += 1;
    if let Some(found) = found {
        place.failed += 1;
        let line = || found.why.lines().next().unwrap_or_default().to_string();
        place.why.get_or_insert_with(line);
    }
}

/// A cut that cuts nothing is no test.
fn nothing(victims: &Victims, awaits: &[Await]) -> Found {
    let name = &victims.name;
    let why = if awaits.iter().any(|at| victims.are(&at.name)) {
        format!("{NOTHING} by timeout: no call of a task {name:?} is within a timeout or scope")
    } else {
        let mut names: Vec<&str> = awaits.iter().map(|at| &*at.name).collect();
        names.sort_unstable();
        names.dedup();
        let names = names.join(", ");
        format!("{NOTHING}: no task {name:?} makes a call; there are {names}")
    };
    let found = Found::new(0, why).with(Plan::default());
    let name = Some("the schedule that was to be cut".to_string());
    Found { name, ..found }
}
