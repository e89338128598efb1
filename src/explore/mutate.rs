//! Searches of mutations: what a test notices if one call of its program does nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    deadline::Deadline,
    settings::Settings,
    tally::Tally,
    watchdog::UnderWay,
    worth::{Mutants, Survivor},
};
use crate::{CallSite, Effect, Error, Mutation};

/// The most schedules of a mutation, as a multiple of those of a search without a limit, and the least.
const TIMES: u64 = 10;
const LEAST: u64 = 1000;

/// Searches again without each of these calls. `first` is what the search with all of them has found.
pub(super) fn search(
    settings: &Settings,
    sites: &BTreeSet<CallSite>,
    first: &Tally,
    search: impl Fn(&Settings) -> Result<Tally, Error>,
) -> Result<Mutants, Error> {
    let mut mutants = Mutants::default();
    let mut lines: BTreeMap<String, u32> = BTreeMap::new();
    for site in sites {
        *lines.entry(site.to_string()).or_default() += 1;
    }
    let is_asked =
        |site: &&CallSite| settings.mutates.is_empty() || settings.mutates.contains(&site.effect());
    for site in sites.iter().filter(is_asked) {
        let mut call = site.to_string();
        if lines[&call] > 1 {
            call += &format!(":{}", site.column());
        }
        if settings.deadline.is_stopped() {
            mutants.left.push(call);
            continue;
        }
        let settings = mutated(settings, *site, first);
        let _watchdog = settings.watchdog();
        let tally = search(&settings)?;
        add(&mut mutants, call, site.effect(), first, &tally);
    }
    Ok(mutants)
}

/// Returns the settings of the search without this call.
fn mutated(settings: &Settings, site: CallSite, first: &Tally) -> Settings {
    let most = first.schedules.saturating_mul(TIMES).max(LEAST);
    let is_endless = settings.schedules() == u64::MAX;
    Settings {
        mutation: Some(Mutation::of(site)),
        deadline: Deadline::after(settings.time, settings.stop),
        under_way: UnderWay::default(),
        schedules: if is_endless {
            Some(most)
        } else {
            settings.schedules
        },
        progress: None,
        ..settings.clone()
    }
}

fn add(mutants: &mut Mutants, call: String, effect: Effect, first: &Tally, tally: &Tally) {
    let is_killed = tally.failure.is_some() || !first.held.is_subset(&tally.held);
    if tally.schedules == 0 && tally.failure.is_none() {
        return mutants.left.push(call);
    }
    if effect == Effect::Wait {
        // The wait itself is there: the mutation is in what wakes it.
        mutants.unchecked.extend(is_killed.then_some(call));
        return;
    }
    if is_killed {
        mutants.killed += 1;
        return;
    }
    let mut new = tally.outcomes.clone();
    // Another search of the same program may have found them, unless this one has found all.
    new.retain(|outcome| first.complete && !first.outcomes.contains(outcome));
    mutants.survivors.push(Survivor {
        call,
        schedules: tally.schedules,
        proved: tally.is_proved(),
        outcomes: new,
    });
}
