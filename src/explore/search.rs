//! The loop over the schedules of a search, on one thread or more.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use super::{
    deadline::{Deadline, Ticker},
    explored::Progress,
    plan::Plan,
    settings::Settings,
    trial::{self, Body},
    twice,
};
use crate::{Error, Kernel};

/// One in so many schedules runs twice, beginning with the first.
const REPEATED: u64 = 100;

/// What the threads of a search have found.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) schedules: u64,
    pub(super) outcomes: BTreeSet<String>,
    /// The claims that held.
    pub(super) held: BTreeSet<&'static str>,
    /// The first schedule that failed.
    pub(super) failure: Option<Found>,
    /// The number of causal orders; 0 if they are not counted.
    pub(super) classes: u64,
    /// Whether no other schedule can have another outcome.
    pub(super) complete: bool,
}

/// A schedule that failed.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) schedule: u64,
    pub(super) why: String,
    /// Its decisions, where the seed does not determine them.
    pub(super) plan: Option<Plan>,
    /// A schedule that should have the same outcome, and has not.
    pub(super) beside: Option<Plan>,
}

impl Found {
    pub(super) fn new(schedule: u64, why: String) -> Self {
        Self {
            schedule,
            why,
            plan: None,
            beside: None,
        }
    }

    pub(super) fn with(self, plan: Plan) -> Self {
        let plan = Some(plan);
        Self { plan, ..self }
    }

    pub(super) fn beside(self, plan: Plan) -> Self {
        let beside = Some(plan);
        Self { beside, ..self }
    }
}

impl Tally {
    fn merge(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.outcomes.extend(other.outcomes);
        self.held.extend(other.held);
        let failures = self.failure.take().into_iter().chain(other.failure);
        self.failure = failures.min_by_key(|found| found.schedule);
    }
}

/// Runs the schedules on this thread.
pub(super) fn alone(body: Body<'_>, settings: &Settings) -> Result<Tally, Error> {
    work(body, settings, &Claims::new(settings))
}

/// Runs the schedules on several threads, each with a kernel of its own.
pub(super) fn in_threads<F>(body: &F, settings: &Settings, threads: usize) -> Result<Tally, Error>
where
    F: Fn(&mut Kernel) -> Result<(), Error> + Sync,
{
    let claims = Claims::new(settings);
    let name = thread::current().name().unwrap_or("search").to_string();
    thread::scope(|scope| {
        let start = |_| {
            let thread = thread::Builder::new().name(name.clone());
            thread.spawn_scoped(scope, || work(body, settings, &claims))
        };
        let workers: Result<Vec<_>, _> = (0..threads).map(start).collect();
        let mut all = Tally::default();
        for worker in workers? {
            let tally = worker.join().expect("panics of a trial are contained");
            all.merge(tally?);
        }
        Ok(all)
    })
}

/// The schedules that no thread has taken yet. They are taken in order. So once a schedule has
/// failed, all those before it are under way, and the first failure is the same on any number of
/// threads.
struct Claims {
    next: AtomicU64,
    step: u64,
    /// No schedule from this one on is taken.
    end: AtomicU64,
    deadline: Deadline,
    /// The schedules that have run.
    done: AtomicU64,
    ticker: Ticker,
}

impl Claims {
    fn new(settings: &Settings) -> Self {
        Self {
            next: AtomicU64::new(settings.shard.number),
            step: settings.shard.of,
            end: AtomicU64::new(settings.schedules()),
            deadline: Deadline::after(settings.time),
            done: AtomicU64::new(0),
            ticker: Ticker::new(),
        }
    }

    fn take(&self) -> Option<u64> {
        if self.deadline.is_over() {
            return None;
        }
        let schedule = self.next.fetch_add(self.step, Ordering::Relaxed);
        (schedule < self.end.load(Ordering::Relaxed)).then_some(schedule)
    }

    /// Counts a schedule, and reports the progress if that is due.
    fn done(&self, settings: &Settings) {
        let Some(report) = &settings.progress else {
            return;
        };
        let schedules = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(elapsed) = self.ticker.due() {
            let of = settings.schedules() / settings.shard.of;
            (report.0)(&Progress {
                schedules,
                of,
                elapsed,
            });
        }
    }

    fn end_at(&self, schedule: u64) {
        self.end.fetch_min(schedule, Ordering::Relaxed);
    }
}

fn work(body: Body<'_>, settings: &Settings, claims: &Claims) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let mut kernel = None;
    while let Some(schedule) = claims.take() {
        let seed = settings.seed_of(schedule);
        let kernel = fresh(&mut kernel, settings, seed)?;
        let trial = trial::run(kernel, body);
        tally.schedules += 1;
        claims.done(settings);
        tally.outcomes.extend(trial.notes.outcomes);
        tally.held.extend(trial.notes.held);
        let failure = trial.failure.or_else(|| {
            let is_repeated = schedule % REPEATED == 0;
            is_repeated
                .then(|| twice::differ(body, settings, seed))
                .flatten()
        });
        if let Some(why) = failure {
            claims.end_at(schedule);
            tally.failure = Some(Found::new(schedule, why));
            break;
        }
    }
    Ok(tally)
}

/// Makes the kernel as new, or makes a new one.
fn fresh<'a>(
    kernel: &'a mut Option<Kernel>,
    settings: &Settings,
    seed: u64,
) -> Result<&'a mut Kernel, Error> {
    let is_reset = kernel
        .as_mut()
        .is_some_and(|kernel| kernel.reset(seed).is_ok());
    if !is_reset {
        let builder = settings.strategy.set(settings.builder(seed), seed);
        *kernel = Some(builder.build()?);
    }
    Ok(kernel.as_mut().expect("it was just made"))
}
