//! The search over kernels side by side.

use super::{
    explored::{Explored, Failure},
    quiet::contain,
    settings::read,
};
use crate::{Error, Kernels};

/// The schedules of a search that says nothing else.
const SCHEDULES: u64 = 1_000;

/// What the value of `TRAPLINE_REPLAY` begins with here.
const MARK: &str = "kernels:";

/// Runs a test of several simulated kernels under many schedules: [`check_kernels`].
#[derive(Clone, Debug)]
#[must_use = "a search runs with `run` or `explore`"]
pub struct CheckKernels<F> {
    count: usize,
    test: F,
    schedules: u64,
    seed: u64,
}

/// Searches for an order of turns and of mail that breaks a program of several kernels, as
/// [`check`](crate::check()) does for one kernel.
///
/// The closure is called once for each schedule, with kernels that are
/// [simulated](Kernels::simulated) with a seed of their own. The seed decides which kernel has each turn,
/// and so in which order mail of different senders arrives. A kernel without a policy of its own
/// resumes its tasks in a random order, too. A schedule fails by an error or a panic of the closure, so a
/// test checks the results that [`Kernels::run`] returns.
///
/// The schedules are drawn at random. There is no other strategy, no minimised report, and nothing is
/// proved. Faults, cuts and the times of turns are not varied.
///
/// ```
/// use trapline::{Closed, Error, Kernel, Kernels, Mailbox, Os, check_kernels};
///
/// let explored = check_kernels(3, |kernels: &mut Kernels| -> Result<(), Error> {
///     let (sender, mailbox) = Mailbox::<u64>::unbounded();
///     let results = kernels.run(move |id| {
///         let mut kernel = Kernel::simulated(0);
///         let (sender, mailbox) = (sender.clone(), mailbox.clone());
///         if id.index() > 0 {
///             kernel.spawn("sends", async move |os: &mut Os| sender.put(os, id.into()).await)?;
///             return Ok(kernel);
///         }
///         drop(sender);
///         kernel.spawn("takes", async move |os: &mut Os| {
///             // Wrong: the mail of the other kernel can arrive first.
///             assert_eq!(mailbox.get(os).await, Ok(2));
///             assert_eq!(mailbox.get(os).await, Ok(3));
///         })?;
///         Ok(kernel)
///     });
///     results.into_iter().try_for_each(|result| result?.check())
/// })
/// .explore();
/// let failure = explored.failure.unwrap();
/// assert!(failure.why.contains("task 1 \"takes\" faulted"), "{failure}");
/// ```
pub fn check_kernels<F>(count: usize, test: F) -> CheckKernels<F>
where
    F: Fn(&mut Kernels) -> Result<(), Error>,
{
    CheckKernels {
        count,
        test,
        schedules: SCHEDULES,
        seed: 0,
    }
}

impl<F> CheckKernels<F>
where
    F: Fn(&mut Kernels) -> Result<(), Error>,
{
    /// Sets the number of schedules. Default: 1,000.
    pub fn schedules(mut self, schedules: u64) -> Self {
        self.schedules = schedules;
        self
    }

    /// Sets the seed of the first schedule. Default: 0. Schedule `i`, counted from 0, has the seed
    /// `seed + i`.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Runs the search.
    ///
    /// *Panics* with the report of the first schedule that fails; if there is no schedule; and if the value of
    /// `TRAPLINE_REPLAY` is not a schedule of several kernels.
    #[track_caller]
    pub fn run(self) {
        let explored = self.explore();
        if explored.failure.is_some() {
            panic!("{explored}");
        }
        assert!(
            explored.schedules > 0,
            "no schedule ran: ask for one, at least"
        );
    }

    /// Runs the search, and returns what it found. If the environment has `TRAPLINE_REPLAY`, runs that
    /// schedule alone.
    ///
    /// *Panics* if the value of `TRAPLINE_REPLAY` is not a schedule of several kernels.
    #[track_caller]
    pub fn explore(self) -> Explored {
        let seed = read("REPLAY", replayed).unwrap_or_else(|error| panic!("{error}"));
        let (first, schedules) = match seed {
            Some(seed) => (seed, 1),
            None => (self.seed, self.schedules),
        };
        let mut explored = Explored::default();
        for n in 0..schedules {
            let seed = first.wrapping_add(n);
            explored.schedules += 1;
            let mut kernels = Kernels::searched(self.count, seed);
            let ran = contain(|| (self.test)(&mut kernels));
            let why = match ran {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic,
            };
            let details = format!(
                "schedule {} of {}, with the seed {seed}; to run it again: TRAPLINE_REPLAY={MARK}{seed}",
                n + 1,
                schedules
            );
            explored.failure = Some(Failure {
                why,
                replay: format!("{MARK}{seed}"),
                details,
                ..Failure::default()
            });
            break;
        }
        explored
    }
}

fn replayed(text: &str) -> Result<u64, String> {
    let seed = text.strip_prefix(MARK).and_then(|seed| seed.parse().ok());
    seed.ok_or_else(|| {
        let what =
            "this is not a schedule of several kernels, as a report of check_kernels shows it";
        format!("{what}: {MARK} and a number")
    })
}
