//! The loop over the schedules of a search by seeds.

use std::{
    cell::Cell,
    rc::Rc,
    sync::{Mutex, PoisonError},
};

use super::{
    audit::Runs,
    crew::{Claims, Crew},
    meter::Meter,
    node::{Decider, Part},
    settings::Settings,
    space::Drawn,
    strategy::SearchStrategy,
    tally::{Found, Tally},
    timed::Timed,
    trial::{Test, Trials},
    twice::Logged,
};
use crate::{
    Error, Policy,
    panic::lock,
    sched::{Counting, Pct, TurnCounts},
};

/// One in so many schedules runs twice, beginning with the first.
const REPEATED: u64 = 100;

/// The runs that count the turns of a schedule.
const MEASURED: u64 = 8;

/// After so many turns of such a run, a task that yields lets the others run: it may wait for them.
const CALM: u64 = 64;

/// Tells the strategy how long a schedule is, if it has to know: as long as the longest of some runs.
/// So the length is the same for each thread and each part of the search. Returns a tally of the runs as
/// well if one of them ends the search.
pub(super) fn measured(test: Test<'_>) -> Result<(Settings, Option<Tally>), Error> {
    let settings = test.settings;
    let mut measured = settings.clone();
    if settings.schedules() == 0 {
        return Ok((measured, None));
    }
    let counts = Rc::new(Cell::new(TurnCounts::default()));
    let mut length = 1;
    // A run that fails is one of the strategy that is set meanwhile.
    let ended = match settings.strategy {
        SearchStrategy::Pct(_, None) => {
            measured.strategy = SearchStrategy::Pct(0, Some(CALM));
            let policy = |seed| Pct::of(0, Some(CALM), seed);
            measure(test, measured.strategy, policy, |turns| {
                length = length.max(turns);
            })?
        }
        SearchStrategy::Surw(None) => {
            measured.strategy = SearchStrategy::Random;
            let policy = |seed| Counting::new(seed, &counts);
            measure(test, measured.strategy, policy, |_| {})?
        }
        _ => None,
    };
    if ended.is_none() {
        measured.strategy = match settings.strategy {
            SearchStrategy::Pct(changes, None) => SearchStrategy::Pct(changes, Some(length)),
            SearchStrategy::Surw(None) => SearchStrategy::Surw(Some(counts.get())),
            known => known,
        };
    }
    Ok((measured, ended))
}

/// Runs a few schedules of a policy, which decides as this strategy does, and reports the turns of each.
fn measure<P: Policy + 'static>(
    Test { body, settings }: Test<'_>,
    strategy: SearchStrategy,
    policy: impl Fn(u64) -> P,
    mut report: impl FnMut(u64),
) -> Result<Option<Tally>, Error> {
    let watch = settings.watch();
    let mut trials = Trials::new(Test { body, settings }, watch.clone());
    trials.watch.decide(&strategy);
    let mut tally = Tally::default();
    for schedule in 0..MEASURED {
        if settings.deadline.is_over() {
            tally.bound = Some(settings.end());
            return Ok(Some(tally));
        }
        let seed = settings.seed_of(schedule);
        trials.prepare(seed, |builder, watch| {
            builder.policy(Timed::new(policy(seed), watch))
        })?;
        trials.draw(seed);
        let mut trial = trials.run();
        tally.bound = settings.end_within(&watch);
        if tally.bound.is_none() {
            report(trials.kernel().report().ticks);
            tally.add(&mut trial);
            let name = || format!("run {} of the {MEASURED} that count turns", schedule + 1);
            tally.failure = trial.failure.map(|why| Found {
                name: Some(name()),
                ..Found::new(schedule, why)
            });
        }
        if tally.bound.is_some() || tally.failure.is_some() {
            return Ok(Some(tally));
        }
    }
    Ok(None)
}

pub(super) fn by_seeds(crew: Crew<'_>, settings: &Settings) -> Result<Tally, Error> {
    let claims = Claims::new(settings, settings.schedules());
    let meter = Meter::new(settings);
    let all = Mutex::new(Tally::default());
    crew(&|body| {
        let tally = work(Test { body, settings }, &claims, &meter)?;
        let mut all = lock(&all);
        all.merge(tally);
        if let Some(found) = &all.failure {
            found.tell(settings);
        }
        Ok(())
    })?;
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    if all.schedules == 0 && settings.deadline.is_over() {
        all.bound.get_or_insert_with(|| settings.end());
    }
    Ok(all)
}

fn work(test: Test<'_>, claims: &Claims, meter: &Meter<'_>) -> Result<Tally, Error> {
    let settings = test.settings;
    let mut tally = Tally::default();
    let watch = settings.watch();
    let mut logged = Logged::new(Trials::new(test, watch.clone()));
    let audits = settings.audits;
    let counts = audits || settings.estimates;
    let mut counted = counts.then(|| Runs::new(test, Part::default(), &watch.beside()));
    while !settings.deadline.is_over()
        && let Some(schedule) = claims.take()
    {
        let seed = settings.seed_of(schedule);
        let is_repeated = schedule % REPEATED == 0;
        let mut found = None;
        let mut trial = match &mut counted {
            Some(runs) => {
                let decider = Decider::Policy(settings.strategy.policy(seed), Drawn::new(seed));
                let (trial, ran) = runs.run(seed, decider)?;
                if audits {
                    found = runs.audit(seed, schedule, &trial, &ran)?;
                }
                tally.add_class(ran.class);
                trial
            }
            None if is_repeated => logged.first(seed)?,
            None => {
                logged.trials.by_seed(seed)?;
                logged.trials.run()
            }
        };
        if let Some(cut) = settings.end_within(&watch) {
            tally.bound = Some(cut);
            break;
        }
        if is_repeated && trial.failure.is_none() && found.is_none() {
            if counted.is_some() {
                logged.first(seed)?;
            }
            found = logged.repeat(seed, schedule, &trial)?;
        }
        tally.add(&mut trial);
        meter.count(false);
        if let Some(why) = trial.failure {
            found = Some(Found::new(schedule, why));
        }
        if found.is_some() {
            claims.end_at(schedule);
            tally.failure = found;
            break;
        }
        // The time may end within the repetition.
        if is_repeated && let Some(cut) = settings.end_within(&watch) {
            tally.bound = Some(cut);
            break;
        }
    }
    if tally.failure.is_none() && settings.deadline.is_stopped() {
        tally.bound.get_or_insert_with(|| settings.end());
    }
    Ok(tally)
}
