//! The settings of a search: their values, and those of the environment.

use std::{
    env, fmt,
    num::{NonZeroU64, NonZeroUsize},
    path::PathBuf,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use super::{
    cut::{Cut, Victims},
    deadline::Deadline,
    explored::Progress,
    outcome::Judge,
    plan::{Plan, Replay, Step},
    space::{Limits, Space},
    strategy::SearchStrategy,
    timed::TimedWorld,
    watchdog::{TrialWatch, UnderWay, Watchdog},
};
use crate::{
    Builder, Effect, Inject, Kernel, Mutation, OnDeadlock, SimNet, SimWorld, SystemCall, Tid,
};

/// The longest wait of a schedule that only other threads can end.
const STALL: Duration = Duration::from_secs(4);

#[derive(Clone, Default)]
pub(super) struct Settings {
    /// Over all shards. Without a number, the strategy has its own.
    pub(super) schedules: Option<u64>,
    pub(super) seed: u64,
    pub(super) strategy: SearchStrategy,
    /// The turns of a schedule. Without a number, the strategy has its own.
    pub(super) steps: Option<u64>,
    pub(super) tasks: Option<usize>,
    /// The most preemptions of a schedule in an exhaustive search.
    pub(super) preemptions: Option<usize>,
    pub(super) time: Option<Duration>,
    pub(super) stop: Option<fn() -> bool>,
    /// The end of both. Set when the search begins.
    pub(super) deadline: Deadline,
    pub(super) under_way: UnderWay,
    pub(super) threads: Option<usize>,
    pub(super) shard: Shard,
    /// Runs this schedule, and no other.
    pub(super) replay: Option<Replay>,
    /// The command that runs a schedule again, with `{replay}` in it.
    pub(super) command: String,
    /// The folder for recordings of a failing schedule.
    pub(super) record: Option<PathBuf>,
    /// How these are named, if not after the thread.
    pub(super) name: Option<String>,
    pub(super) ignores_environment: bool,
    /// Whether a search by seeds runs each schedule in a second order, too.
    pub(super) audits: bool,
    /// Whether it counts their causal orders.
    pub(super) estimates: bool,
    pub(super) net: Option<Arc<dyn Fn() -> SimNet + Send + Sync>>,
    /// The level of chaos in the network. Without one, the network has its own.
    pub(super) chaos: Option<u8>,
    /// Whether the network of each schedule has chaos. Set when the search begins.
    pub(super) is_chaotic: bool,
    pub(super) inject: Option<Arc<Ask>>,
    /// The tasks that are cut after the search, and the cut of the schedules under way.
    pub(super) cuts: Vec<Victims>,
    pub(super) cut: Option<Cut>,
    /// Of the program, or what notes its calls for the searches of mutations.
    pub(super) mutation: Option<Mutation>,
    /// The effects that mutations leave out; all of them if this is empty.
    pub(super) mutates: Vec<Effect>,
    pub(super) progress: Option<Arc<Report>>,
    /// What is varied besides the order of turns.
    pub(super) space: Limits,
    /// Set in a search that takes every end of a run as an outcome.
    pub(super) judge: Option<Judge>,
    /// The type of the closure, if the schedules are of several kernels.
    pub(super) kernels: Option<&'static str>,
}

type Report = dyn Fn(&Progress) + Send + Sync;
type Ask = dyn Fn(Tid, SystemCall, u64) -> Option<Inject> + Send + Sync;

impl Settings {
    pub(super) fn end(&self) -> String {
        match self.time {
            Some(time) if !self.deadline.is_stopped() => format!("it ended after {time:?}"),
            _ => "it was interrupted".to_string(),
        }
    }

    /// Sets the strategy in the place of an earlier one, with a limit on its preemptions.
    pub(super) fn set_strategy(&mut self, strategy: SearchStrategy) {
        self.strategy = strategy;
        self.preemptions = None;
    }

    /// Replaces what the environment sets.
    ///
    /// *Errors:* a text that names the variable, and what it takes.
    pub(super) fn read_environment(&mut self) -> Result<(), String> {
        if self.ignores_environment {
            return Ok(());
        }
        let schedules = read("SCHEDULES", whole::<NonZeroU64>)?;
        self.schedules = schedules.map(NonZeroU64::get).or(self.schedules);
        self.seed = read("SEED", whole)?.unwrap_or(self.seed);
        if let Some(strategy) = read("STRATEGY", str::parse)? {
            self.set_strategy(strategy);
        }
        self.time = read("TIME", span)?.or(self.time);
        self.shard = read("SHARD", str::parse)?.unwrap_or(self.shard);
        self.replay = read("REPLAY", str::parse)?.or(self.replay.take());
        self.record = read("RECORD", |text| Ok(text.into()))?.or(self.record.take());
        // Without threads, the body need not be `Sync`.
        if self.threads.is_some() {
            let threads = read("THREADS", whole::<NonZeroUsize>)?;
            self.threads = threads.map(NonZeroUsize::get).or(self.threads);
        }
        Ok(())
    }

    /// Starts the thread that ends the process if the search does not end.
    pub(super) fn watchdog(&self) -> Watchdog {
        let command = self.command.clone();
        Watchdog::start(&self.under_way, self.deadline, self.time, command)
    }

    /// Returns what ends a schedule when the time is over, on one thread.
    pub(super) fn watch(&self) -> TrialWatch {
        TrialWatch::new(self.deadline, &self.under_way, self.deadline.is_set())
    }

    /// Returns the same for schedules that no end of the time cuts.
    pub(super) fn watch_without_end(&self) -> TrialWatch {
        TrialWatch::new(Deadline::default(), &self.under_way, self.deadline.is_set())
    }

    /// Says that the end of the search has cut a schedule, which counts nowhere.
    pub(super) fn end_within(&self, watch: &TrialWatch) -> Option<String> {
        let within = watch.within()?;
        Some(format!("{}, {within}", self.end()))
    }

    /// Returns the settings of schedules with this cut.
    pub(super) fn with_cut(&self, cut: Option<Cut>) -> Self {
        Self {
            cut,
            ..self.clone()
        }
    }

    pub(super) fn tell(&self, why: &str, replay: &str) {
        self.under_way.set_failure(why, replay, &self.command);
    }

    /// What a proof takes for granted, in words.
    pub(super) fn premise(&self) -> String {
        let turns = match self.space.turn {
            None => "turns take no time".to_string(),
            Some(most) => format!("turns take at most {most:?} on average"),
        };
        let seed = format!("the seed is {}", self.seed);
        if self.space.most == 0 {
            return format!("{turns} and {seed}");
        }
        let faults: Vec<String> = self
            .space
            .faults
            .iter()
            .map(|it| format!("{:?}", it.text))
            .collect();
        let (most, faults) = (self.space.most, faults.join(", "));
        format!("{turns}, {seed} and at most {most} of these faults happen: {faults}")
    }

    /// Makes the network of a kernel.
    pub(super) fn make_net(&self) -> SimNet {
        let net = self.net.as_ref();
        let net = net.map_or_else(SimNet::default, |make| make());
        match self.chaos {
            Some(level) => net.chaos(level),
            None => net,
        }
    }

    /// Returns the settings of the kernel of a trial. The watch ends its waits for other threads.
    pub(super) fn builder(&self, seed: u64, watch: &TrialWatch, space: &Space) -> Builder {
        let net = self.make_net();
        let world = TimedWorld::new(SimWorld::new(seed).net(&net), watch, space);
        let builder = Kernel::builder().world(world).max_stall(STALL);
        // A task that lives on must not hide that others lock each other out.
        let builder = builder.on_deadlock(OnDeadlock::Stop);
        // An exhaustive search cuts long schedules. The kernel's limit is one turn behind the cut. It
        // ends the runs that the search's tree does not decide.
        let behind = u64::from(self.is_exhaustive());
        let mut builder = builder.max_ticks(self.steps().saturating_add(behind));
        if let Some(tasks) = self.tasks {
            builder = builder.max_tasks(tasks);
        }
        if let Some(mutation) = &self.mutation {
            builder = builder.mutation(mutation);
        }
        if let Some(Cut { tid, trap, inject }) = self.cut {
            builder = builder.inject_into(tid, trap, inject);
        }
        if self.has_faults() {
            builder = builder.tracer(space.tracer());
        }
        let asks_space = self.space.most > 0;
        match (self.inject.clone(), space.clone()) {
            (Some(ask), space) => builder
                .inject(move |tid, call, nth| ask(tid, call, nth).or_else(|| space.at_call(call))),
            (None, space) if asks_space => builder.inject_each(move |_, call| space.at_call(call)),
            _ => builder,
        }
    }

    /// Returns which setting there is that no search of several kernels takes.
    pub(super) fn for_one_kernel(&self) -> Option<&'static str> {
        let settings = [
            ("`turns_take`", self.space.turn.is_some()),
            ("`faults`", self.space.most > 0),
            ("`chaos`", self.chaos.is_some()),
            ("`net`", self.net.is_some()),
            ("`inject`", self.inject.is_some()),
            ("`cut`", !self.cuts.is_empty()),
            ("`mutate`", self.mutation.is_some()),
            ("`max_tasks`", self.tasks.is_some()),
        ];
        let set = settings.iter().find(|(_, is_set)| *is_set);
        set.map(|(name, _)| *name)
    }

    /// Whether there may be faults in a schedule, of the list or of chaos.
    pub(super) fn has_faults(&self) -> bool {
        self.space.most > 0 || self.is_chaotic
    }

    /// Returns the options without which the faults of a schedule cannot happen; `None` if they can.
    pub(super) fn lacks(&self, plan: &Plan) -> Option<&'static str> {
        if self.space.most == 0 && plan.0.iter().any(Step::is_fault) {
            return Some("those of the report (`--faults` and `--may`, `Check::faults`)");
        }
        let is_missed = !self.is_chaotic && plan.0.iter().any(Step::keeps);
        is_missed.then_some("the chaos of the report (`--chaos`, `Check::chaos`)")
    }

    pub(super) fn is_exhaustive(&self) -> bool {
        self.strategy == SearchStrategy::Exhaustive
    }

    /// Whether it draws the turns of each schedule, and independently of those before.
    pub(super) fn draws(&self) -> bool {
        match self.strategy {
            SearchStrategy::Random | SearchStrategy::Pct(..) | SearchStrategy::Surw(_) => true,
            SearchStrategy::Fifo | SearchStrategy::Rff | SearchStrategy::Exhaustive => false,
        }
    }

    /// Whether an exhaustive search is divided into parts: for threads, or for shards.
    pub(super) fn is_divided(&self) -> bool {
        self.threads.is_some() || self.shard.of > 1
    }

    pub(super) fn schedules(&self) -> u64 {
        let own = if self.is_exhaustive() { u64::MAX } else { 1000 };
        self.schedules.unwrap_or(own)
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.unwrap_or(match self.is_exhaustive() {
            true => 10_000,
            false => 1_000_000,
        })
    }

    /// What a schedule does that the search looks for.
    pub(super) fn fails(&self) -> &'static str {
        match self.judge {
            None => "fails",
            Some(_) => "comes to this",
        }
    }

    /// Whether it is to be avoided.
    pub(super) fn dooms(&self) -> bool {
        self.judge.as_ref().is_none_or(|judge| judge.is_wrong)
    }

    /// Says that an exhaustive search has cut a schedule.
    pub(super) fn cut(&self) -> String {
        format!("schedules of more than {} turns were cut", self.steps())
    }

    pub(super) fn seed_of(&self, schedule: u64) -> u64 {
        self.seed.wrapping_add(schedule)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, of } = *self;
        write!(f, "{}/{of}", if number == 0 { of } else { number })
    }
}

/// A part of a search: of so many parts, the one of this number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shard {
    pub(super) number: u64,
    pub(super) of: u64,
}

impl Default for Shard {
    fn default() -> Self {
        Self { number: 0, of: 1 }
    }
}

impl Shard {
    pub(super) fn new(number: u64, of: u64) -> Option<Self> {
        let is_part = of > 0 && number <= of;
        is_part.then(|| Self {
            number: number % of,
            of,
        })
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shard = || {
            let (number, of) = text.split_once('/')?;
            Self::new(number.parse().ok()?, of.parse().ok()?)
        };
        shard().ok_or("it takes I/N, such as 3/8: part 3 of 8. Part 8 is also part 0".into())
    }
}

pub(super) fn read<T>(
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let name = format!("TRAPLINE_{name}");
    let Some(text) = env::var_os(&name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    let read = parse(&text).map_err(|error| format!("{name}={text}: {error}"))?;
    Ok(Some(read))
}

fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    let above = if "0".parse::<T>().is_ok() {
        ""
    } else {
        " above zero"
    };
    let wrong = |_| format!("it takes a whole number{above}");
    text.parse().map_err(wrong)
}

/// Reads a time such as `500ms`, `30s`, `2m` or `1h`.
fn span(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let number = number.parse::<u64>().ok();
    match number.zip(unit).and_then(|(a, b)| a.checked_mul(b)) {
        None => Err("it takes a number and a unit: 500ms, 30s, 2m or 1h".into()),
        Some(0) => Err("no schedule runs in no time: it takes a time above zero".into()),
        Some(millis) => Ok(Duration::from_millis(millis)),
    }
}
