//! The laboratory of a search: a kernel whose schedule can be recorded and repeated.

use std::{cell::Cell, rc::Rc, thread};

use super::{
    explored::{Explored, Failure},
    guide::Guide,
    plan::{Decisions, Plan, Replay},
    settings::Settings,
    strategy::Strategy,
    trial::{self, Body, Trial},
};
use crate::{Error, Event, Fact};

/// The most departures in the text of a replay.
const LONGEST: usize = 100;

pub(super) struct Lab<'a> {
    body: Body<'a>,
    settings: &'a Settings,
}

/// A trial that can be repeated.
pub(super) struct Recorded {
    trial: Trial,
    seed: u64,
    strategy: Strategy,
    plan: Plan,
    hash: u32,
    /// The number of turns.
    turns: u32,
}

impl Recorded {
    /// Returns what runs the schedule again.
    fn replay(&self) -> Replay {
        let decisions = if self.plan.0.len() > LONGEST {
            Decisions::Strategy(self.strategy)
        } else {
            Decisions::Plan(self.plan.clone())
        };
        let Self { seed, hash, .. } = *self;
        Replay {
            seed,
            decisions,
            hash,
        }
    }

    /// Describes a schedule that has failed.
    fn describe(&self, why: String) -> Failure {
        let preemptions = self.plan.0.len();
        let replay = self.replay().to_string();
        let thread = thread::current();
        let test = thread.name().filter(|name| *name != "main").unwrap_or("");
        let details = format!(
            "{preemptions} of its {} turns are preempted\n\
             to see it again:  TRAPLINE_REPLAY={replay} cargo test {test}",
            self.turns,
        );
        Failure {
            why,
            preemptions,
            replay,
            details: details.trim_end().to_string(),
        }
    }
}

impl<'a> Lab<'a> {
    pub(super) fn new(body: Body<'a>, settings: &'a Settings) -> Self {
        Self { body, settings }
    }

    /// Runs the schedule of an earlier report.
    pub(super) fn replay(&self, replay: &Replay) -> Result<Explored, Error> {
        let run = self.run(replay.seed, &replay.decisions)?;
        let changed = (run.hash != replay.hash).then(|| {
            format!(
                "the program has changed since {replay}: its traps are others in this schedule\n"
            )
        });
        let changed = changed.unwrap_or_default();
        let failure = run.trial.failure.clone().map(|why| {
            let failure = run.describe(why);
            let details = changed.clone() + &failure.details;
            Failure { details, ..failure }
        });
        if failure.is_none() {
            println!("{changed}the schedule {replay} passes");
        }
        Ok(Explored {
            schedules: 1,
            outcomes: run.trial.notes.outcomes.into_iter().collect(),
            failure,
            ..Explored::default()
        })
    }

    /// Describes a schedule that has failed.
    pub(super) fn explain(&self, schedule: u64, why: String) -> Result<Failure, Error> {
        let seed = self.settings.seed_of(schedule);
        let run = self.run(seed, &Decisions::Strategy(self.settings.strategy))?;
        let failure = run.describe(run.trial.failure.clone().unwrap_or(why));
        let details = &failure.details;
        let details = format!("schedule {schedule} fails, seed {seed}; {details}");
        Ok(Failure { details, ..failure })
    }

    /// Runs a schedule, and records its decisions and its traps.
    fn run(&self, seed: u64, decisions: &Decisions) -> Result<Recorded, Error> {
        let guide = Guide::default();
        let strategy = match decisions {
            Decisions::Plan(plan) => {
                guide.follow(plan);
                self.settings.strategy
            }
            Decisions::Strategy(strategy) => {
                guide.record(strategy.policy(seed));
                *strategy
            }
        };
        let hash = Rc::new(Cell::new(Fnv::default()));
        let traps = Rc::clone(&hash);
        let builder = self.settings.builder(seed).policy(guide.clone());
        let builder = builder.tracer(move |event: &Event<'_>| {
            if let Fact::Trapped { call, .. } = event.fact {
                let hash = traps.get().with(event.tid.into());
                traps.set(hash.with(call.number().into()));
            }
        });
        let trial = trial::run(&mut builder.build()?, self.body);
        Ok(Recorded {
            trial,
            seed,
            strategy,
            plan: guide.made(),
            hash: hash.get().folded(),
            turns: guide.turns(),
        })
    }
}

/// A hash that is the same in every build. (FNV-1a, by words.)
#[derive(Clone, Copy)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn with(self, word: u64) -> Self {
        let bytes = word.to_le_bytes().into_iter();
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(bytes.fold(self.0, step))
    }

    fn folded(self) -> u32 {
        (self.0 >> 32) as u32 ^ self.0 as u32
    }
}
