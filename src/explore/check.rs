//! The search for a schedule that breaks a test: `trapline::check`.

use std::{fmt, thread, time::Duration};

use super::{
    explored::Explored,
    lab::Lab,
    search::{self, Tally},
    settings::Settings,
    sometimes::claims_in,
    strategy::Strategy,
    trial::Body,
};
use crate::{Error, Kernel};

/// Runs a test under many schedules. Each runs the closure on a kernel of its own in the simulated
/// world. The closure spawns tasks, runs the kernel, and checks the result.
///
/// A schedule fails if the closure returns an error or panics, or if a task faults. A deadlock is
/// an error of [`Kernel::run`]. A task that returns an error fails the schedule by
/// [`Report::check`](crate::Report::check).
///
/// ```should_panic
/// use std::{cell::Cell, rc::Rc};
/// use trapline::Os;
///
/// trapline::check(|kernel| {
///     let sum = Rc::new(Cell::new(0));
///     for name in ["left", "right"] {
///         let sum = Rc::clone(&sum);
///         kernel.spawn(name, async move |os: &mut Os| {
///             let read = sum.get();
///             os.yield_now().await; // the other task may run here
///             sum.set(read + 1);
///         })?;
///     }
///     kernel.run()?;
///     assert_eq!(sum.get(), 2, "an increment is lost");
///     Ok(())
/// })
/// .schedules(10_000)
/// .run();
/// ```
///
/// The closure must do the same in every run of a schedule. Everything that it shares between its
/// tasks belongs inside. One in a hundred schedules runs twice, beginning with the first, and the
/// event logs are compared. A difference fails the check and is named.
///
/// # The environment
///
/// These variables replace the settings in the source:
///
/// | variable | example | setting |
/// |---|---|---|
/// | `TRAPLINE_SCHEDULES` | `100000` | [`Check::schedules`] |
/// | `TRAPLINE_SEED` | `7` | [`Check::seed`] |
/// | `TRAPLINE_STRATEGY` | `random`, `pct:3`, `round_robin` | [`Check::random`] and its neighbours |
/// | `TRAPLINE_TIME` | `30s` | [`Check::time`] |
/// | `TRAPLINE_THREADS` | `8` | [`Check::threads`], where the source calls it |
/// | `TRAPLINE_SHARD` | `3/8` | runs one of 8 parts of the schedules; the parts are disjoint |
/// | `TRAPLINE_REPLAY` | `7.3-9x2.0123abcd` | runs this one schedule of an earlier report |
pub fn check<F>(body: F) -> Check<F>
where
    F: Fn(&mut Kernel) -> Result<(), Error>,
{
    Check {
        body,
        settings: Settings::default(),
        in_threads: None,
    }
}

/// A search that is about to begin, made by [`check`].
#[must_use = "a check does nothing until `run` or `explore`"]
pub struct Check<F> {
    body: F,
    settings: Settings,
    /// Set if the closure is `Sync`.
    in_threads: Option<InThreads<F>>,
}

type InThreads<F> = fn(&F, &Settings, usize) -> Result<Tally, Error>;

impl<F> Check<F>
where
    F: Fn(&mut Kernel) -> Result<(), Error>,
{
    /// Sets the number of schedules. Default: 1,000.
    pub fn schedules(mut self, schedules: u64) -> Self {
        self.settings.schedules = schedules;
        self
    }

    /// Sets the seed of the first schedule. Default: 0. Schedule `i`, counted from 0, has the seed
    /// `seed + i`. The seed determines the random numbers of the world and the decisions of the
    /// strategy. So `boot --virtual --policy random --seed N` runs the same schedule.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Draws each turn with equal probability ([`Random`](crate::sched::Random)). The default.
    pub fn random(mut self) -> Self {
        self.settings.strategy = Strategy::Random;
        self
    }

    /// Gives tasks random priorities, of which `changes` change during the schedule
    /// ([`Pct`](crate::sched::Pct)). Finds a defect that needs few preemptions at certain points of
    /// a long run.
    pub fn pct(mut self, changes: u32) -> Self {
        self.settings.strategy = Strategy::Pct(changes);
        self
    }

    /// Runs every schedule first in, first out ([`Fifo`](crate::Fifo)). Only the random numbers of
    /// the world change.
    pub fn round_robin(mut self) -> Self {
        self.settings.strategy = Strategy::RoundRobin;
        self
    }

    /// Limits the turns of each run in a schedule. Default: 1,000,000. At the limit,
    /// [`Kernel::run`] fails with [`Error::Limit`]: some schedule never ends.
    pub fn steps(mut self, steps: u64) -> Self {
        self.settings.steps = steps;
        self
    }

    /// Ends the search after this time. Default: no limit.
    pub fn time(mut self, time: Duration) -> Self {
        self.settings.time = Some(time);
        self
    }

    /// Searches on several threads, each with a kernel of its own; with 0, as many as the
    /// machine has processors. Default: the calling thread. The result is the same for any number of threads,
    /// unless the time ends the search.
    pub fn threads(mut self, threads: usize) -> Self
    where
        F: Sync,
    {
        self.settings.threads = Some(threads);
        self.in_threads = Some(search::in_threads);
        self
    }

    /// Searches, and panics with the report if a schedule fails, or if a claim of
    /// [`sometimes!`](crate::sometimes) held in none.
    #[track_caller]
    pub fn run(self) {
        let explored = self.explore();
        if explored.failure.is_some() || !explored.never.is_empty() {
            panic!("{explored}");
        }
    }

    /// Searches, and returns what was found.
    ///
    /// *Panics* if a variable of the environment has a wrong value. A search without a schedule
    /// would prove nothing.
    #[track_caller]
    pub fn explore(mut self) -> Explored {
        if let Err(error) = self.settings.read_environment() {
            panic!("{error}");
        }
        match self.search() {
            Ok(explored) => explored,
            Err(error) => panic!("the search cannot begin: {error}"),
        }
    }

    fn search(&self) -> Result<Explored, Error> {
        let body: Body<'_> = &self.body;
        let lab = Lab::new(body, &self.settings);
        if let Some(replay) = &self.settings.replay {
            return lab.replay(replay);
        }
        let tally = match (self.settings.threads, self.in_threads) {
            (Some(threads), Some(run)) => run(&self.body, &self.settings, count(threads))?,
            _ => search::alone(body, &self.settings)?,
        };
        let failure = tally
            .failure
            .map(|(schedule, why)| lab.explain(schedule, why));
        let claims = claims_in(std::any::type_name::<F>());
        let never = claims.filter(|claim| !tally.held.contains(claim));
        Ok(Explored {
            schedules: tally.schedules,
            never: never.map(str::to_string).collect(),
            outcomes: tally.outcomes,
            failure: failure.transpose()?,
            ..Explored::default()
        })
    }
}

/// Returns the number of threads to start.
fn count(threads: usize) -> usize {
    match threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

impl<F> fmt::Debug for Check<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
