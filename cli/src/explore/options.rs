//! The options of `explore`, and the search that they describe.

use std::{env, num::NonZeroU64, path::PathBuf, time::Duration};

use clap::{ArgMatches, Args, Command, ValueHint, builder::TypedValueParser};
use trapline::{Check, Error, Kernel, MayFault, SearchStrategy, Signal, check};

use crate::{
    inject::{self, Rule, Rules},
    net,
    values::{completed, duration, given, signal, whole, within},
};

/// Reads the most time of a search.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("no schedule runs in no time: it takes a time above zero".into()),
        span => Ok(span),
    }
}

/// Reads the time that turns may take.
pub(crate) fn turns(text: &str) -> Result<Duration, String> {
    let most = text
        .strip_prefix("0..")
        .ok_or("it takes a range from 0, such as 0..5ms")?;
    match duration(most)? {
        Duration::ZERO => Err("turns take no time by default: the range ends above zero".into()),
        most => Ok(most),
    }
}

/// The strategies that need no parameter.
const STRATEGIES: [&str; 6] = ["random", "pct", "surw", "rff", "fifo", "exhaustive"];

fn strategies() -> impl TypedValueParser<Value = SearchStrategy> {
    completed(|text: &str| text.parse::<SearchStrategy>(), STRATEGIES)
}

fn may(text: &str) -> Result<MayFault, String> {
    if let Some(name) = MayFault::call_of(text) {
        inject::call(name)?;
    }
    text.parse()
}

/// Run a program under many schedules, to find one that breaks it
#[derive(Args)]
pub(crate) struct Explore {
    /// How schedules are chosen: random draws each turn; pct:D gives tasks random priorities, of
    /// which D change; surw draws each turn by the turns that tasks have left; rff learns from what each
    /// schedule reads, on one thread; fifo changes only the random numbers; exhaustive runs each causal
    /// order of turns once. The order in which different tasks print lines does not count then
    #[arg(long, value_name = "NAME", value_parser = strategies(), hide_possible_values = true)]
    strategy: Option<SearchStrategy>,
    /// How many schedules [default: 1000; no limit for exhaustive]
    #[arg(long, value_name = "N", value_parser = whole::<NonZeroU64>)]
    schedules: Option<NonZeroU64>,
    /// The seed of the first schedule; the next has the next seed [default: 0]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub(super) seed: Option<u64>,
    /// Run all schedules with at most N preemptions: turns at which the task that is next, first in
    /// first out, is not resumed
    #[arg(long, value_name = "N", value_parser = whole::<usize>, conflicts_with = "strategy")]
    preemptions: Option<usize>,
    /// Count the causal orders of schedules that are drawn, and estimate how likely the next one is new
    // As the other flags here: a plain one, given before the program, would be reset after it.
    #[arg(
        long,
        conflicts_with = "preemptions",
        num_args = 0,
        default_missing_value = "true"
    )]
    estimate: Option<bool>,
    /// Limit the turns of a schedule. A longer one fails; an exhaustive search cuts it [default:
    /// 1000000; 10000 for exhaustive]
    #[arg(long, alias = "steps", value_name = "N", value_parser = whole::<u64>)]
    max_ticks: Option<u64>,
    /// End the search after this time on the machine's clock, such as 30s or 2m. A task that makes no trap
    /// is named, and the exit code is 1
    #[arg(long, alias = "time", value_name = "TIME", value_parser = span)]
    pub(super) max_time: Option<Duration>,
    /// How many threads search, from 1 to 1024 [default: one per processor]
    #[arg(long, value_name = "N", value_parser = within("a whole number", 1..=1024))]
    jobs: Option<usize>,
    /// Run part I of N, from 1/N to N/N; 0/N is the same as N/N. A Slurm array sets both by default
    #[arg(long, value_name = "I/N", value_parser = part)]
    shard: Option<Part>,
    /// Divide the search into N parts and run one. Its number comes from a Slurm array, an indexed
    /// Job of Kubernetes (JOB_COMPLETION_INDEX), or GNU parallel (PARALLEL_SEQ)
    #[arg(long, value_name = "N", value_parser = whole::<u64>, conflicts_with = "shard")]
    shards: Option<u64>,
    /// Run another program, with its arguments, beside PROGRAM; can be repeated
    #[arg(long, value_name = "PROGRAM ARGS")]
    pub(super) with: Vec<String>,
    #[command(flatten)]
    pub(super) net: net::Options,
    /// Change what some calls do, as boot does: CALL:error=KIND, CALL:delay=TIME or CALL:kill, and
    /// :when=RANGE; can be repeated
    #[arg(long, value_name = "RULE", value_parser = inject::rules(), hide_possible_values = true)]
    pub(super) inject: Vec<Rule>,
    /// Let a turn take from no time to TIME: a timer may fire while tasks are ready
    #[arg(long, value_name = "0..TIME", value_parser = turns)]
    turns_take: Option<Duration>,
    /// Let up to N faults of --may happen in each schedule, at any trap; the end of a lasting one does
    /// not count
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    faults: Option<usize>,
    /// A fault that may happen: one of --fault without a time, as in "reset server client", or one of
    /// --inject without :when, as in send:error=ConnectionReset; can be repeated
    #[arg(long, value_name = "FAULT", value_parser = may)]
    may: Vec<MayFault>,
    /// Send a signal at this time, as boot does, such as 3s:TERM; can be repeated
    #[arg(long, value_name = "TIME:SIGNAL", value_parser = signal)]
    pub(super) signal: Vec<(Duration, Signal)>,
    /// Have the programs read FILE as their standard input, as boot does
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) stdin: Option<PathBuf>,
    /// Run this schedule of an earlier report, and no other, and show all its turns. The options
    /// that choose schedules change nothing then: the report has them in its line
    #[arg(long, value_name = "SEED.DELAYS.HASH")]
    replay: Option<String>,
    /// Kill each task of this name at each of its traps, in one more schedule for each; can be repeated
    #[arg(long, value_name = "TASK")]
    cut: Vec<String>,
    /// The same, and let the innermost timeout or scope around the trap end there; can be repeated
    #[arg(long, value_name = "TASK")]
    cut_by_timeout: Vec<String>,
    /// Print a table of the calls that were cut: which of them are safe to cut
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub(super) table: Option<bool>,
    /// Search again for each call in the source that takes a lock or permits, notifies, sets, syncs or arms
    /// a timeout, as if that call did nothing, and print the calls without which nothing fails
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub(super) mutate: Option<bool>,
    /// Record a failing schedule in this folder, as PROGRAM-fails.trap, and the nearest that passes, as
    /// PROGRAM-passes.trap
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    record: Option<PathBuf>,
    /// Print the result as a JSON object
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub(super) json: Option<bool>,
}

/// The number of a part, and the number of parts.
pub(super) type Part = (u64, u64);

pub(super) fn part(text: &str) -> Result<Part, String> {
    let numbers = || -> Option<Part> {
        let (number, of) = text.split_once('/')?;
        Some((number.parse().ok()?, of.parse().ok()?))
    };
    let is_part = |(number, of): &Part| *of > 0 && number <= of;
    let part = numbers().filter(is_part);
    part.ok_or_else(|| "it takes I/N, such as 3/8, with I at most N".into())
}

impl Explore {
    /// Checks what `clap` cannot: options may be on both sides of the program's name.
    pub(super) fn check(&self) -> Result<(), String> {
        let clash = |one: &str, other: &str| Err(format!("{one} cannot be used with {other}"));
        if self.strategy.is_some() && self.preemptions.is_some() {
            return clash("--preemptions", "--strategy");
        }
        if self.estimates()
            && let Some(why) = self.draws_nothing()
        {
            return Err(format!("{why}: --estimate goes with random, pct or surw"));
        }
        if matches!(self.strategy, Some(SearchStrategy::Rff))
            && self.jobs.is_some_and(|jobs| jobs != 1)
        {
            let why = "rff learns from each schedule, so it searches on one thread";
            return Err(format!("{why}: leave --jobs out, or give --jobs 1"));
        }
        if self.shard.is_some() && self.shards.is_some() {
            return clash("--shards", "--shard");
        }
        match (self.faults, self.may.is_empty()) {
            (Some(1..), true) => return Err("--faults needs --may FAULT: which ones".into()),
            (None, false) => return Err("--may needs --faults N: how many at most".into()),
            _ => {}
        }
        if self.table == Some(true) && self.cut.is_empty() && self.cut_by_timeout.is_empty() {
            return Err("--table needs --cut TASK or --cut-by-timeout TASK".into());
        }
        if self.mutates() && self.shard.is_some() {
            return clash("--mutate", "--shard");
        }
        if self.mutates() && self.shards.is_some() {
            return clash("--mutate", "--shards");
        }
        Ok(())
    }

    pub(super) fn search<F>(
        &self,
        body: F,
        shard: Option<Part>,
        hosts: Vec<String>,
        rules: &Rules,
    ) -> Result<Check<F>, String>
    where
        F: Fn(&mut Kernel) -> Result<(), Error> + Sync,
    {
        let net = self.net.clone();
        let mut search = check(body)
            .without_environment()
            .strategy(self.strategy.unwrap_or_default())
            .net(move || net.network(&hosts, None).expect("it was right before"))
            .threads(self.jobs.unwrap_or(0));
        if self.estimates() {
            search = search.estimate();
        }
        if !self.inject.is_empty() {
            search = search.inject(rules.injection());
        }
        let schedules = self.schedules.map(NonZeroU64::get);
        search = given(search, self.preemptions, Check::preemptions);
        search = given(search, self.turns_take, |search, most| {
            search.turns_take(Duration::ZERO..=most)
        });
        search = given(search, self.faults, |search, most| {
            search.faults(most, &self.may)
        });
        search = given(search, self.max_ticks, Check::steps);
        search = given(search, schedules, Check::schedules);
        search = given(search, self.seed, Check::seed);
        search = given(search, self.max_time, Check::time);
        search = given(search, self.record.as_ref(), Check::record);
        search = given(search, shard, |search, (number, of)| {
            search.shard(number, of)
        });
        for task in &self.cut {
            search = search.cut(task);
        }
        for task in &self.cut_by_timeout {
            search = search.cut_by_timeout(task);
        }
        if self.mutates() {
            search = search.mutate();
        }
        match &self.replay {
            Some(replay) => search.replay(replay),
            None => Ok(search),
        }
    }

    /// Returns why its schedules are no independent draws, if so.
    fn draws_nothing(&self) -> Option<&'static str> {
        match self.strategy {
            Some(SearchStrategy::Rff) => {
                Some("rff learns from each schedule, so its schedules are not drawn independently")
            }
            Some(SearchStrategy::Fifo) => Some("fifo draws no turns"),
            Some(SearchStrategy::Exhaustive) => Some("an exhaustive search draws nothing"),
            _ if self.preemptions.is_some() => Some("a search by --preemptions draws nothing"),
            _ => None,
        }
    }

    fn estimates(&self) -> bool {
        self.estimate == Some(true)
    }

    fn mutates(&self) -> bool {
        self.mutate == Some(true)
    }

    /// Returns the part to run: as told, or by what a cluster tells this process. A search of mutations has
    /// no parts.
    pub(super) fn shard(&self) -> Result<Option<Part>, String> {
        match self.shard {
            _ if self.mutates() => Ok(None),
            Some(shard) => Ok(Some(shard)),
            None => of_cluster(self.shards),
        }
    }

    pub(super) fn is_by_causal_order(&self) -> bool {
        matches!(self.strategy, Some(SearchStrategy::Exhaustive))
    }

    pub(super) fn strategy(&self) -> String {
        match self.preemptions {
            Some(preemptions) => format!("preemptions:{preemptions}"),
            None => self.strategy.unwrap_or_default().to_string(),
        }
    }
}

/// Whether options of the search can follow this program's name.
pub(super) fn takes_options(program: &ArgMatches) -> bool {
    let has = |id: &str| program.try_contains_id(id).is_ok();
    has("schedules") && has("strategy")
}

/// Returns the options of the search, without the command.
pub(super) fn all() -> Vec<clap::Arg> {
    let command = Explore::augment_args(Command::new(""));
    command.get_arguments().cloned().collect()
}

/// Returns the number of this process's part and the number of parts. `of` is the number of parts
/// that was told; a Slurm array tells it, too.
fn of_cluster(of: Option<u64>) -> Result<Option<Part>, String> {
    let number = |name: &str| match env::var(name) {
        Err(_) => Ok(None),
        Ok(text) => match text.parse::<u64>() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(format!("{name}={text}: it takes a whole number")),
        },
    };
    // A job of an array has its own tasks and steps; the array's number is what counts.
    let slurm = number("SLURM_ARRAY_TASK_ID")?;
    let (index, count) = if let Some(task) = slurm {
        let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
        let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
        let index = task.saturating_sub(first) / step;
        (Some(index), number("SLURM_ARRAY_TASK_COUNT")?)
    } else if let Some(index) = number("JOB_COMPLETION_INDEX")? {
        (Some(index), None)
    } else {
        let sequence = number("PARALLEL_SEQ")?;
        (sequence.map(|sequence| sequence.saturating_sub(1)), None)
    };
    match (index, of.or(count)) {
        (_, None) => Ok(None),
        (Some(index), Some(of)) if index < of => Ok(Some((index + 1, of))),
        (Some(index), Some(of)) => Err(format!(
            "this process has number {} in its cluster, but there are {of} parts",
            index + 1
        )),
        (None, Some(_)) => Err(
            "--shards takes the number of the part from SLURM_ARRAY_TASK_ID, \
             JOB_COMPLETION_INDEX or PARALLEL_SEQ, and none is set; or give --shard I/N"
                .into(),
        ),
    }
}
