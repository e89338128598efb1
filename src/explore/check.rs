//! The search for a schedule that breaks a test: `trapline::check`.

use std::{fmt, path::PathBuf, sync::Arc, thread, time::Duration};

use super::{
    crew::{self, Job},
    cut::Victims,
    explored::Progress,
    settings::{Settings, Shard},
    strategy::SearchStrategy,
};
use crate::{Effect, Error, Inject, Kernel, Mutation, SimNet, SystemCall, Tid, sched::Pct};

/// Runs a test under many schedules. Each runs the closure on a kernel of its own in the simulated
/// world. The closure spawns tasks, runs the kernel, and checks the result.
///
/// A schedule fails if the closure returns an error or panics, or if
/// [`Report::check`](crate::Report::check) fails: a task has faulted, or has returned an error and no
/// task has waited for it. A deadlock is an error of [`Kernel::run`].
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
/// A schedule also fails if the closure replaces or resets the kernel that it is given, or runs
/// another one on the same thread: a search decides nothing there. The closure must do the same in
/// every run of a schedule, so everything that its tasks share belongs inside. One in a hundred
/// schedules runs twice, beginning with the first, and the event logs are compared. A difference
/// fails the check and is named.
///
/// # The environment
///
/// These variables replace the settings in the source:
///
/// | variable | example | setting |
/// |---|---|---|
/// | `TRAPLINE_SCHEDULES` | `100000` | [`Check::schedules`] |
/// | `TRAPLINE_SEED` | `7` | [`Check::seed`] |
/// | `TRAPLINE_STRATEGY` | `random`, `pct:3`, `surw`, `rff`, `fifo`, `exhaustive` | [`Check::random`] and its neighbours |
/// | `TRAPLINE_TIME` | `30s` | [`Check::time`] |
/// | `TRAPLINE_THREADS` | `8` | [`Check::threads`], where the source calls it |
/// | `TRAPLINE_SHARD` | `3/8` | runs one of 8 parts of the schedules; the parts are disjoint |
/// | `TRAPLINE_REPLAY` | `7.3-9x2.0123abcd` | runs this one schedule of an earlier report, and shows all its turns |
/// | `TRAPLINE_RECORD` | `target/runs` | records a failing schedule in this folder, and the nearest that passes |
pub fn check<F>(body: F) -> Check<F>
where
    F: Fn(&mut Kernel) -> Result<(), Error>,
{
    let thread = thread::current();
    let test = thread.name().filter(|name| *name != "main");
    let test = test.map_or(String::new(), |name| format!(" {name} -- --exact"));
    let settings = Settings {
        command: format!("TRAPLINE_REPLAY={{replay}} cargo test{test}"),
        ..Settings::default()
    };
    Check {
        body,
        settings,
        in_threads: None,
    }
}

/// A search that is about to begin, made by [`check`].
#[must_use = "a check does nothing until `run` or `explore`"]
pub struct Check<F> {
    pub(super) body: F,
    pub(super) settings: Settings,
    /// Set if the closure is `Sync`.
    pub(super) in_threads: Option<InThreads<F>>,
}

type InThreads<F> = fn(&F, usize, Job<'_>) -> Result<(), Error>;

impl<F> Check<F>
where
    F: Fn(&mut Kernel) -> Result<(), Error>,
{
    /// Limits the number of schedules. Default: 1,000; without a limit in an exhaustive search.
    pub fn schedules(mut self, schedules: u64) -> Self {
        self.settings.schedules = Some(schedules);
        self
    }

    /// Sets the seed of the first schedule. Default: 0. Schedule `i`, counted from 0, has the seed
    /// `seed + i`. The seed determines the random numbers of the world and the decisions of the
    /// strategy. So `boot --virtual --policy random --seed N` runs the same schedule.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Draws each turn with equal probability ([`Random`](crate::sched::Random)). The default. A
    /// strategy replaces one that was set before.
    pub fn random(self) -> Self {
        self.strategy(SearchStrategy::Random)
    }

    /// Sets the strategy by its value, which a text may name.
    ///
    /// *Panics* if it is [`SearchStrategy::Pct`] with more than 1,000 changes.
    pub fn strategy(mut self, strategy: SearchStrategy) -> Self {
        if let SearchStrategy::Pct(changes, _) = strategy {
            let most = Pct::MOST;
            assert!(changes <= most, "pct takes at most {most} changes");
        }
        self.settings.set_strategy(strategy);
        self
    }

    /// Gives tasks random priorities, of which `changes` change during the schedule
    /// ([`Pct`](crate::sched::Pct)). Finds a defect that needs few preemptions at certain points of
    /// a long run.
    ///
    /// With d changes, each schedule finds a defect of the paper's depth d + 1 with a probability of
    /// at least 1 / (n k^d), where n is the number of tasks and k that of all their turns. The depth
    /// of a defect is the number of pairs of turns whose order must be a certain one.
    ///
    /// Before its first schedule the search counts k, in eight runs whose priorities do not change: the
    /// longest has k turns. A run that fails ends the search. The bound covers the first k turns of a
    /// schedule. `boot --virtual --policy pct:d,length=k --seed N` runs the same schedule.
    ///
    /// *Panics* if there are more than 1,000 changes.
    pub fn pct(self, changes: u32) -> Self {
        self.strategy(SearchStrategy::Pct(changes, None))
    }

    /// Draws each turn in proportion to the turns that tasks have left
    /// ([`Surw`](crate::sched::Surw)), so that long tasks do not run their last turns alone. Finds a
    /// defect that needs a short task to be late. Before its first schedule the search counts the turns of
    /// tasks in eight runs that are drawn. A run that fails ends the search. Of more than 32 tasks, those
    /// with the least numbers are counted.
    pub fn surw(self) -> Self {
        self.strategy(SearchStrategy::Surw(None))
    }

    /// Learns from each schedule: which turn reads what another one has changed. A schedule that has shown a
    /// new pair of such turns is the begin of later ones, which make a turn wait for another, or let it come
    /// first. Each fourth schedule is drawn. Finds a defect that needs several turns in a rare order, each of
    /// which shows something new. (RFF: Wolff and others, "Greybox fuzzing for concurrency testing", ASPLOS
    /// 2024.) A search runs on one thread, whatever [`Check::threads`] says, since each schedule needs those
    /// before it. So its schedules are not independent, and [`Check::estimate`] panics.
    ///
    /// ```
    /// use trapline::{Os, Shared};
    ///
    /// let torn = trapline::check(|kernel| {
    ///     let stages = Shared::new(0);
    ///     for stage in 0..4 {
    ///         let stages = stages.clone();
    ///         kernel.spawn("stage", async move |_: &mut Os| {
    ///             if stages.get() == 3 - stage {
    ///                 stages.set(4 - stage);
    ///             }
    ///         })?;
    ///     }
    ///     kernel.run()?;
    ///     assert!(stages.get() < 4, "the stages came in the reverse order");
    ///     Ok(())
    /// });
    /// assert!(torn.rff().explore().failure.is_some());
    /// ```
    pub fn rff(self) -> Self {
        self.strategy(SearchStrategy::Rff)
    }

    /// Runs one schedule of each causal order, all with one seed. Two schedules have the same causal
    /// order, and the same outcome, if they differ only in the order of turns that touch nothing in
    /// common. If the search ends without a limit, it is [complete](crate::Explored::complete), and
    /// mostly [proved](crate::Explored::proved).
    ///
    /// It replaces a strategy that was set before, and its limit of [`Check::preemptions`] too: set after
    /// `preemptions`, it runs each causal order, however many preemptions that takes.
    ///
    /// The search sees what tasks share through the kernel, its types such as
    /// [`Queue`](crate::Queue) and [`sync`](crate::sync), and [`Shared`](crate::Shared), and not what
    /// they share otherwise, such as an `Rc<Cell>`. So it audits itself. Each causal order runs twice,
    /// in two orders of its turns, and the first in about as many as it has turns. After a complete
    /// search, schedules are drawn. If one has an outcome that it should not have, the check fails. A
    /// program with a [`RemoteSetter`](crate::RemoteSetter) counts on another thread: its search is
    /// never complete.
    ///
    /// ```
    /// use trapline::{Os, Shared};
    ///
    /// let explored = trapline::check(|kernel| {
    ///     let sum = Shared::new(0);
    ///     for name in ["left", "right"] {
    ///         let sum = sum.clone();
    ///         kernel.spawn(name, async move |os: &mut Os| {
    ///             let read = sum.get();
    ///             os.yield_now().await;
    ///             sum.set(read + 1);
    ///         })?;
    ///     }
    ///     kernel.run()?;
    ///     kernel.outcome(sum.get().to_string());
    ///     Ok(())
    /// })
    /// .exhaustive()
    /// .explore();
    /// assert!(explored.proved);
    /// assert!(explored.outcomes.iter().eq(["1", "2"]));
    /// assert_eq!(explored.schedules, explored.classes);
    /// ```
    pub fn exhaustive(self) -> Self {
        self.strategy(SearchStrategy::Exhaustive)
    }

    /// Makes the search exhaustive, and runs every schedule with at most so many preemptions: turns
    /// at which the task that is next, first in first out, is not resumed. Many defects need one or
    /// two. This search looks at no causal orders. It is complete if no schedule has more.
    ///
    /// It replaces a strategy that was set before, [`Check::exhaustive`] too. A strategy that is set after it
    /// removes the limit. So of `preemptions` and `exhaustive` the one that is called last holds.
    pub fn preemptions(mut self, preemptions: usize) -> Self {
        self = self.exhaustive();
        self.settings.preemptions = Some(preemptions);
        self
    }

    /// Runs every schedule first in, first out ([`Fifo`](crate::Fifo)). Only the random numbers of
    /// the world change.
    pub fn fifo(self) -> Self {
        self.strategy(SearchStrategy::Fifo)
    }

    /// Limits the turns of each run in a schedule. Default: 1,000,000. At the limit,
    /// [`Kernel::run`] fails with [`Error::Limit`]: some schedule never ends.
    ///
    /// An exhaustive search limits the turns of a schedule, by default to 10,000. It cuts a longer
    /// one, which counts for [`Check::schedules`], and is not complete then. A task that spins, with a yield in
    /// a loop until another one has written, has a schedule of each length up to this limit: a limit of a few
    /// hundred turns, or a flag in place of the loop, saves most of such a search.
    pub fn steps(mut self, steps: u64) -> Self {
        self.settings.steps = Some(steps);
        self
    }

    /// Limits the tasks that are alive at once: [`Builder::max_tasks`](crate::Builder::max_tasks).
    ///
    /// ```
    /// use trapline::{Os, check};
    ///
    /// let crowd = check(|kernel| {
    ///     kernel.spawn("parent", async |os: &mut Os| {
    ///         os.spawn("child", async |_| {}).await.map(drop)
    ///     })?;
    ///     kernel.run()?.check()
    /// });
    /// assert!(crowd.max_tasks(1).explore().failure.is_some());
    /// ```
    pub fn max_tasks(mut self, tasks: usize) -> Self {
        self.settings.tasks = Some(tasks);
        self
    }

    /// Ends the search after this time, its audit included. A schedule that is under way then is cut,
    /// and does not count. Default: no limit.
    ///
    /// Without a limit, too, a schedule fails with [`Error::Stalled`] once it has waited four seconds
    /// for other threads: a [`RemoteSetter`](crate::RemoteSetter) may have been leaked.
    ///
    /// A turn cannot be cut, and neither can the closure while it runs no kernel. If one goes on for
    /// 0.9 seconds after the end, such as a task that makes no trap, a thread ends the process within
    /// the second, with exit code 1. That ends the other tests of the binary, too. On standard error
    /// the thread names the failure that the search has found, if any, then the task, its last call,
    /// the last place of a call that notes its place, and the command that runs the schedule again. A
    /// turn of more than 5 seconds is named before that, with a warning. A search that has neither a
    /// time nor [`Check::stop_when`] is not watched.
    pub fn time(mut self, time: Duration) -> Self {
        self.settings.time = Some(time);
        self
    }

    /// Searches on several threads; with 0, as many as the machine has processors. Default: the calling
    /// thread. The result is the same for any number of threads, unless a limit ends the search. An
    /// exhaustive search is divided into parts then: of two schedules that fail, it may report another
    /// than without threads.
    pub fn threads(mut self, threads: usize) -> Self
    where
        F: Sync,
    {
        self.settings.threads = Some(match threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        });
        self.in_threads = Some(crew::in_threads);
        self
    }

    /// Audits each schedule of a search by seeds: runs it again, in another order of its turns that
    /// only independent turns tell apart. If the two differ, the check fails: the tasks share memory
    /// that an exhaustive search, which audits itself, does not see. A search with
    /// [`Check::preemptions`] panics.
    ///
    /// ```
    /// use std::{cell::Cell, rc::Rc};
    /// use trapline::Os;
    ///
    /// let hidden = trapline::check(|kernel| {
    ///     let last = Rc::new(Cell::new("")); // trapline::Shared would be seen
    ///     for name in ["left", "right"] {
    ///         let last = Rc::clone(&last);
    ///         kernel.spawn(name, async move |_: &mut Os| last.set(name))?;
    ///     }
    ///     kernel.run()?;
    ///     kernel.outcome(last.get());
    ///     Ok(())
    /// });
    /// let failure = hidden.audit().explore().failure.expect("two orders differ");
    /// assert!(failure.why.contains("the tasks share something"));
    /// ```
    pub fn audit(mut self) -> Self {
        self.settings.audits = true;
        self
    }

    /// Counts the causal orders of a search that draws its schedules, and estimates how likely the next
    /// schedule has one that none has had: [`Explored::unseen`](crate::Explored::unseen). Each schedule takes longer.
    /// A search that is exhaustive panics, and so does one by [`Check::rff`] or [`Check::fifo`].
    ///
    /// ```
    /// use trapline::{Os, Shared, check};
    ///
    /// let explored = check(|kernel| {
    ///     let sum = Shared::new(0);
    ///     for name in ["left", "right"] {
    ///         let sum = sum.clone();
    ///         kernel.spawn(name, async move |_: &mut Os| sum.update(|sum| *sum += 1))?;
    ///     }
    ///     kernel.run()?.check()
    /// }).estimate().schedules(100).explore();
    /// assert_eq!((explored.classes, explored.unseen), (2, Some(0.0)));
    /// assert!(explored.to_string().contains("less than 1.00 % of the probability"));
    /// ```
    pub fn estimate(mut self) -> Self {
        self.settings.estimates = true;
        self
    }

    /// Makes the network of each schedule's kernel: [`Kernel::net`] returns it. Default:
    /// [`SimNet::new`]. A schedule finds the hosts and links that the closure makes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trapline::{SimNet, check};
    ///
    /// let slow = || SimNet::new().latency(Duration::from_millis(1)..=Duration::from_millis(9));
    /// check(|kernel| kernel.run()?.check()).net(slow).schedules(20).run();
    /// ```
    pub fn net(mut self, make: impl Fn() -> SimNet + Send + Sync + 'static) -> Self {
        self.settings.net = Some(Arc::new(make));
        self
    }

    /// Breaks the network at random during the first 60 seconds of each schedule, at a level from 1
    /// to 3 ([`SimNet::chaos`]). The seed determines the faults. The level replaces that of the
    /// network that [`Check::net`] makes, which is the default; 0 is no chaos.
    pub fn chaos(mut self, level: u8) -> Self {
        self.settings.chaos = Some(level);
        self
    }

    /// Asks this closure at each call of a task what to do to it, as
    /// [`Builder::inject`](crate::Builder::inject) does. The calls count anew in each schedule.
    ///
    /// ```
    /// use std::time::Duration;
    /// use trapline::{Inject, Os, SystemCall, check};
    ///
    /// let delayed = |_, call, nth| match call {
    ///     SystemCall::Random => Some(Inject::Delay(Duration::from_millis(nth))),
    ///     _ => None,
    /// };
    /// check(|kernel| {
    ///     kernel.spawn("dice", async |os: &mut Os| drop(os.random().await))?;
    ///     kernel.run()?;
    ///     assert_eq!(kernel.now(), Duration::from_millis(1));
    ///     Ok(())
    /// })
    /// .inject(delayed)
    /// .schedules(10)
    /// .run();
    /// ```
    pub fn inject(
        mut self,
        injector: impl Fn(Tid, SystemCall, u64) -> Option<Inject> + Send + Sync + 'static,
    ) -> Self {
        self.settings.inject = Some(Arc::new(injector));
        self
    }

    /// Kills each task of this name at each of its traps, in one more schedule for each: the closure's own
    /// assertions then hold or not. A task `name@host` is meant by its name alone, too.
    ///
    /// The schedules begin as the one that is first in, first out, with the first seed. A task is killed at
    /// two moments of each trap: before the call has an effect, and within it, when the task waits, or its
    /// answer is lost. A schedule that fails is named by its task, its trap and the place, and its replay
    /// has the cut. [`Explored::cuts`](crate::Explored::cuts) has a line for each call in the source.
    ///
    /// The search ends first. If a schedule fails without a cut, none is made. A name of no task fails.
    ///
    /// ```
    /// use trapline::{Os, Shared};
    ///
    /// let torn = trapline::check(|kernel| {
    ///     let both = Shared::new((0, 0));
    ///     let theirs = both.clone();
    ///     kernel.spawn("worker", async move |os: &mut Os| {
    ///         theirs.update(|both| both.0 += 1);
    ///         os.yield_now().await;
    ///         theirs.update(|both| both.1 += 1);
    ///     })?;
    ///     kernel.run()?;
    ///     let (one, other) = both.get();
    ///     assert_eq!(one, other, "it is torn");
    ///     Ok(())
    /// });
    /// let failure = torn.cut("worker").explore().failure.expect("it is not safe to cut");
    /// assert!(failure.details.starts_with("a kill of worker 1 before its trap 1, yield()"));
    /// ```
    pub fn cut(self, name: impl Into<String>) -> Self {
        self.cut_by(name, false)
    }

    /// The same with the innermost timeout or scope around each trap, whose body is dropped as if it had
    /// ended there. A trap outside of all of them is not cut. A timeout leaves the answer of a call that is
    /// answered and cuts the next one, so a call is cut before its effect, or while it waits.
    pub fn cut_by_timeout(self, name: impl Into<String>) -> Self {
        self.cut_by(name, true)
    }

    fn cut_by(mut self, name: impl Into<String>, by_timeout: bool) -> Self {
        let name = name.into();
        self.settings.cuts.push(Victims { name, by_timeout });
        self
    }

    /// Asks what the test notices: searches again for each call in the source that takes a lock or permits,
    /// notifies, sets, syncs or arms a timeout ([`Effect`](crate::Effect)), as if this call did nothing. A
    /// search without the call is expected to fail. [`Explored::mutants`](crate::Explored::mutants) has those that do not.
    ///
    /// Each search has the settings of the first one, its time included. If an exhaustive search has no
    /// limit, those of the mutations end after ten times as many schedules. None begins if a schedule
    /// fails without a mutation, or one alone is replayed. A check of a [shard](Self::shard) panics: a
    /// part knows only a part of what a mutation breaks.
    ///
    /// A wait for a [`Condition`](crate::sync::Condition) is made to end without a signal once in each
    /// schedule. If a schedule fails then, the caller does not check its condition again, and the report
    /// says so. The search sees no check that reads a [`Shared`](crate::Shared) twice: no call does it.
    ///
    /// ```
    /// use trapline::{Os, sync::Mutex};
    ///
    /// let explored = trapline::check(|kernel| {
    ///     kernel.spawn("main", async |os: &mut Os| {
    ///         let sum = Mutex::new(os, 0).await;
    ///         *sum.lock(os).await.unwrap() += 1; // no other task uses it
    ///     })?;
    ///     kernel.run()?.check()
    /// })
    /// .exhaustive()
    /// .mutate()
    /// .explore();
    /// let survivors = explored.mutants.unwrap().survivors;
    /// assert!(survivors[0].proved && survivors[0].call.starts_with("lock at "));
    /// ```
    pub fn mutate(mut self) -> Self {
        self.settings.mutation = Some(Mutation::default());
        self
    }

    /// The same, for calls with one of these effects only.
    pub fn mutate_only(mut self, effects: impl IntoIterator<Item = Effect>) -> Self {
        self.settings.mutates = effects.into_iter().collect();
        self.mutate()
    }

    /// Ends the search once this returns true, within a schedule too. [`Explored`](crate::Explored) has what ran before
    /// then. The command line ends a search like this at an interrupt. The function is called from
    /// other threads, too.
    ///
    /// ```
    /// let explored = trapline::check(|kernel| kernel.run()?.check())
    ///     .stop_when(|| true)
    ///     .explore();
    /// assert_eq!(explored.schedules, 0);
    /// assert_eq!(explored.bound.as_deref(), Some("it was interrupted"));
    /// ```
    pub fn stop_when(mut self, stop: fn() -> bool) -> Self {
        self.settings.stop = Some(stop);
        self
    }

    /// Reports the progress to this closure, about five times a second.
    pub fn progress(mut self, report: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.settings.progress = Some(Arc::new(report));
        self
    }

    /// Records a failing schedule in this folder, and the nearest schedule that passes, for
    /// `trapline trace timeline` and `trapline trace diff`. `TRAPLINE_RECORD` does the same. The files are named
    /// after the thread, which is the test, or as [`Check::named`] says: `NAME-fails.trap`, `NAME-passes.trap`.
    pub fn record(mut self, folder: impl Into<PathBuf>) -> Self {
        self.settings.record = Some(folder.into());
        self
    }

    /// Sets the name of the files of [`Check::record`].
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("trapline-named-{}", std::process::id()));
    /// let explored = trapline::check(|_| Err(trapline::Errno::Invalid.into()))
    ///     .record(&folder)
    ///     .named("mine")
    ///     .explore();
    /// assert!(folder.join("mine-fails.trap").exists());
    /// # std::fs::remove_dir_all(folder).unwrap();
    /// ```
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Sets the command that a report names to run its schedule again. The first `{replay}` in it
    /// becomes the replay. Default: `TRAPLINE_REPLAY={replay} cargo test NAME -- --exact`, with the name
    /// of the test.
    pub fn command(mut self, command: impl Into<String>) -> Self {
        self.settings.command = command.into();
        self
    }

    /// Ignores the environment.
    pub fn without_environment(mut self) -> Self {
        self.settings.ignores_environment = true;
        self
    }

    /// Runs one schedule of an earlier report, and no other. If it fails, the report shows all its
    /// turns, up to 2,000. If it passes, a line on standard error says so. `TRAPLINE_REPLAY` does the
    /// same.
    ///
    /// *Errors:* a text that says what a replay looks like.
    pub fn replay(mut self, replay: &str) -> Result<Self, String> {
        self.settings.replay = Some(replay.parse()?);
        Ok(self)
    }

    /// Runs one of several disjoint parts of the schedules. `number` counts from 1 to `of`;
    /// 0 is the same part as `of`. `TRAPLINE_SHARD` does the same.
    ///
    /// *Panics* if `of` is 0 or `number` is greater.
    pub fn shard(mut self, number: u64, of: u64) -> Self {
        let shard = Shard::new(number, of);
        self.settings.shard = shard.expect("a shard's number is at most the number of shards");
        self
    }
}

impl<F> fmt::Debug for Check<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").finish_non_exhaustive()
    }
}
