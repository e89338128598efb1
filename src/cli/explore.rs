//! `explore`: a program under many schedules, and the joining of several such searches.

use std::{
    collections::BTreeSet,
    env, fmt, fs,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    io::{self, IsTerminal},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    time::Duration,
};

use clap::{ArgMatches, Args, Command, FromArgMatches, ValueHint, error::ErrorKind};
use serde_json::{Value, json};

use super::{
    args, cluster,
    inject::{self, Rule},
    net::{self, Placed},
    output::{FAILURE, Log, USAGE, Verbosity, json, print, tell},
    program::{Entry, Named},
    values::{duration, whole},
};
use crate::{Check, Error, Explored, Kernel, Progress, check};

/// Longer texts of a run are replaced by a hash.
const LONGEST: usize = 200;

/// Run a program under many schedules, to find one that breaks it
#[derive(Args)]
#[command(
    arg_required_else_help = true,
    disable_help_subcommand = true,
    subcommand_help_heading = "Programs",
    subcommand_value_name = "PROGRAM"
)]
pub(super) struct Explore {
    #[command(flatten)]
    options: Options,
}

#[derive(Args)]
struct Options {
    /// How schedules are chosen: random draws each turn; pct:D gives tasks random priorities, of
    /// which D change; round-robin changes only the random numbers; exhaustive runs each causal
    /// order of turns once. The order in which different tasks print lines does not count then
    #[arg(long, value_name = "NAME")]
    strategy: Option<Strategy>,
    /// How many schedules [default: 1000; no limit for exhaustive]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    schedules: Option<u64>,
    /// The seed of the first schedule; the next has the next seed [default: 0]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
    /// Run all schedules with at most N preemptions: turns at which the task that is next, first in
    /// first out, is not resumed
    #[arg(long, value_name = "N", value_parser = whole::<usize>, conflicts_with = "strategy")]
    preemptions: Option<usize>,
    /// Limit the turns of a schedule. A longer one fails; an exhaustive search cuts it [default:
    /// 1000000; 10000 for exhaustive]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    steps: Option<u64>,
    /// End the search after this time, such as 30s or 2m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// How many threads search [default: one per processor]
    #[arg(long, value_name = "N", value_parser = whole::<NonZeroUsize>)]
    jobs: Option<NonZeroUsize>,
    /// Run part I of N, from 1/N to N/N; 0/N is the same as N/N. A Slurm array sets both by default
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Divide the search into N parts and run one. Its number comes from a Slurm array, an indexed
    /// Job of Kubernetes (JOB_COMPLETION_INDEX), or GNU parallel (PARALLEL_SEQ)
    #[arg(long, value_name = "N", value_parser = whole::<u64>, conflicts_with = "shard")]
    shards: Option<u64>,
    /// Run another program, with its arguments, beside PROGRAM; can be repeated
    #[arg(long, value_name = "PROGRAM ARGS")]
    with: Vec<String>,
    #[command(flatten)]
    net: net::Options,
    /// Change what some calls do, as boot does: CALL:error=KIND, CALL:delay=TIME or CALL:kill, and
    /// :when=RANGE; can be repeated
    #[arg(long, value_name = "RULE", value_parser = inject::rule)]
    inject: Vec<Rule>,
    /// Run this schedule of an earlier report, and no other
    #[arg(long, value_name = "SEED.DELAYS.HASH")]
    replay: Option<String>,
    /// Record a failing schedule in this folder, and the nearest that passes
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    record: Option<PathBuf>,
    /// Print the result as a JSON object
    #[arg(long, num_args = 0, default_missing_value = "true")]
    json: Option<bool>,
}

#[derive(Clone, Copy)]
enum Strategy {
    Random,
    Pct(u32),
    RoundRobin,
    Exhaustive,
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("pct:").map(str::parse)) {
            ("random", _) => Ok(Self::Random),
            ("round-robin", _) => Ok(Self::RoundRobin),
            ("exhaustive", _) => Ok(Self::Exhaustive),
            ("pct", _) => Ok(Self::Pct(3)),
            (_, Some(Ok(changes @ 0..=1000))) => Ok(Self::Pct(changes)),
            _ => Err(
                "there are random, pct, pct:CHANGES (from 0 to 1000), round-robin and exhaustive"
                    .into(),
            ),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::Pct(changes) => write!(f, "pct:{changes}"),
            Self::RoundRobin => f.write_str("round-robin"),
            Self::Exhaustive => f.write_str("exhaustive"),
        }
    }
}

/// Part `number` of `of`.
#[derive(Clone, Copy)]
struct Shard {
    number: u64,
    of: u64,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = || {
            let (number, of) = text.split_once('/')?;
            Some((number.parse().ok()?, of.parse().ok()?))
        };
        match numbers() {
            Some((number, of)) if of > 0 && number <= of => Ok(Self { number, of }),
            _ => Err("it takes I/N, such as 3/8, with I at most N".into()),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// The commands below `explore`: the programs, and `merge`. After a program's name the options of
/// the search may follow too, unless the program has an option of the same name.
pub(super) fn subcommands(programs: &[Entry]) -> impl Iterator<Item = Command> {
    let merge = Merge::augment_args(Command::new("merge"));
    let programs = programs.iter().map(|entry| {
        let command = entry.command();
        let options = options();
        let is_free = |option: &clap::Arg| {
            let mut others = command.get_arguments();
            others.all(|other| {
                other.get_long() != option.get_long() && other.get_id() != option.get_id()
            })
        };
        if options.iter().all(is_free) {
            command.args(options.into_iter().map(|option| option.hide(true)))
        } else {
            command
        }
    });
    programs.chain([merge])
}

/// Whether options of the search can follow this program's name.
fn takes_options(program: &ArgMatches) -> bool {
    let has = |id: &str| program.try_contains_id(id).is_ok();
    has("schedules") && has("strategy")
}

fn options() -> Vec<clap::Arg> {
    let command = Options::augment_args(Command::new(""));
    command.get_arguments().cloned().collect()
}

/// Join the results of several parts of a search, printed by --json
#[derive(Args)]
struct Merge {
    /// Files with a JSON object each
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
}

/// Runs the command. An error is a usage error.
pub(super) fn run(
    binary: &str,
    programs: &[Entry],
    command: &Command,
    explore: &ArgMatches,
    verbosity: &Verbosity,
    words: &[String],
) -> Result<ExitCode, clap::Error> {
    let named = explore.subcommand();
    if let Some(("merge", matches)) = named {
        return Ok(merge(&Merge::from_arg_matches(matches)?, verbosity));
    }
    let mut options = Options::from_arg_matches(explore)?;
    if let Some((_, matches)) = named
        && takes_options(matches)
    {
        options.update_from_arg_matches(matches)?;
    }
    if named.is_none() && options.net.on.is_empty() {
        let error = clap::Error::new(ErrorKind::MissingSubcommand);
        return Err(args::explain_program(
            error,
            args::child(command, "explore"),
        ));
    }
    let placed = options.programs(programs, named)?;
    let hosts: Vec<String> = placed.iter().map(|(host, _)| host.clone()).collect();
    // For its errors.
    options.net.network(&hosts, None)?;
    let usage = |error: String| clap::Error::raw(ErrorKind::InvalidValue, error + "\n");
    let shard = options.shard().map_err(usage)?;
    let body = |kernel: &mut Kernel| trial(kernel, &placed, &options);
    let search = options.search(body, shard, hosts).map_err(usage)?;
    let search = search.command(again(binary, words));
    let explored = search.explore();
    if io::stderr().is_terminal() {
        tell("\r\x1b[K");
    }
    let is_json = options.json == Some(true);
    let text = if is_json {
        let identity = identity(programs, explore, named);
        let name = named.map(|(name, _)| name);
        let object = options.object(&explored, name, shard, &identity);
        json(object.as_object().expect("it is an object")) + "\n"
    } else {
        report(&explored)
    };
    print(text.as_bytes());
    let is_good = explored.failure.is_none() && explored.never.is_empty();
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILURE)
    })
}

/// Sorts the lines. Schedules of one causal order differ in the order of lines of different tasks.
fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Runs the programs once. The outcome is what they print. Servers that are left are no failure.
fn trial(
    kernel: &mut Kernel,
    programs: &[(String, Named)],
    options: &Options,
) -> Result<(), Error> {
    let placed = args::loaded(programs);
    for Placed { host, image } in &placed {
        image(kernel, host)?;
    }
    options.net.arrange(kernel, &placed, Log::SILENT)?;
    let report = match kernel.run() {
        Err(Error::Deadlock(deadlock)) if deadlock.is_at_rest() => kernel.report(),
        ran => ran?,
    };
    let text = kernel.take_console();
    let text = match options.is_by_causal_order() {
        true => sorted(&text),
        false => text,
    };
    note_outcome(kernel, text);
    report.check()
}

/// Notes what the programs have printed as the outcome of a schedule.
pub(super) fn note_outcome(kernel: &mut Kernel, text: String) {
    if text.len() <= LONGEST {
        kernel.outcome(text);
    } else {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&text);
        kernel.outcome(format!("{} bytes, hash {hash:016x}", text.len()));
    }
}

/// The result of a search, for people.
pub(super) fn report(explored: &Explored) -> String {
    format!("{explored}\n{}", outcomes(&explored.outcomes))
}

impl Options {
    /// Returns the programs with their hosts: those of `--on`, the named one, if any, and those of
    /// `--with`.
    fn programs(
        &self,
        programs: &[Entry],
        named: Option<(&str, &ArgMatches)>,
    ) -> Result<Vec<(String, Named)>, clap::Error> {
        let mut all = Vec::new();
        for place in &self.net.on {
            let named = args::line(programs, "--on", &place.text, &place.line)?;
            all.push((place.host.clone(), named));
        }
        let host = self.net.main_host();
        if let Some(named) = named {
            all.push((host.to_string(), args::load(programs, named)?));
        }
        for with in &self.with {
            let named = args::line(programs, "--with", with, with)?;
            all.push((host.to_string(), named));
        }
        Ok(all)
    }

    fn search<F>(
        &self,
        body: F,
        shard: Option<Shard>,
        hosts: Vec<String>,
    ) -> Result<Check<F>, String>
    where
        F: Fn(&mut Kernel) -> Result<(), Error> + Sync,
    {
        let mut search = check(body).without_environment();
        search = match self.strategy.unwrap_or(Strategy::Random) {
            Strategy::Random => search.random(),
            Strategy::Pct(changes) => search.pct(changes),
            Strategy::RoundRobin => search.round_robin(),
            Strategy::Exhaustive => search.exhaustive(),
        };
        if let Some(preemptions) = self.preemptions {
            search = search.preemptions(preemptions);
        }
        if let Some(steps) = self.steps {
            search = search.steps(steps);
        }
        let net = self.net.clone();
        search = search.net(move || net.network(&hosts, None).expect("it was right before"));
        if !self.inject.is_empty() {
            let rules = self.inject.clone();
            search = search
                .inject(move |_, call, nth| rules.iter().find_map(|rule| rule.apply(call, nth)));
        }
        search = search.threads(self.jobs.map_or(0, usize::from));
        if let Some(schedules) = self.schedules {
            search = search.schedules(schedules);
        }
        if let Some(seed) = self.seed {
            search = search.seed(seed);
        }
        if let Some(time) = self.time {
            search = search.time(time);
        }
        if let Some(Shard { number, of }) = shard {
            search = search.shard(number, of);
        }
        if let Some(folder) = &self.record {
            search = search.record(folder);
        }
        if io::stderr().is_terminal() {
            search = search.progress(show);
        }
        match &self.replay {
            Some(replay) => search.replay(replay),
            None => Ok(search),
        }
    }

    /// Returns the part to run: as told, or by what a cluster tells this process.
    fn shard(&self) -> Result<Option<Shard>, String> {
        if self.shard.is_some() {
            return Ok(self.shard);
        }
        let shard = cluster::shard(self.shards, |name| env::var(name).ok())?;
        Ok(shard.map(|(number, of)| Shard { number, of }))
    }

    fn is_by_causal_order(&self) -> bool {
        matches!(self.strategy, Some(Strategy::Exhaustive))
    }

    fn strategy(&self) -> String {
        match self.preemptions {
            Some(preemptions) => format!("preemptions:{preemptions}"),
            None => self.strategy.unwrap_or(Strategy::Random).to_string(),
        }
    }

    fn object(
        &self,
        explored: &Explored,
        program: Option<&str>,
        shard: Option<Shard>,
        search: &Value,
    ) -> Value {
        json!({
            "program": program,
            "search": search,
            "strategy": self.strategy(),
            "seed": self.seed.unwrap_or(0),
            "shard": shard.map(|shard| shard.to_string()),
            "schedules": explored.schedules,
            "classes": explored.classes,
            "complete": explored.complete,
            "bound": explored.bound,
            "never": explored.never,
            "outcomes": explored.outcomes,
            "failure": explored.failure.as_ref().map(|failure| json!({
                "why": failure.why,
                "preemptions": failure.preemptions,
                "replay": failure.replay,
                "details": failure.details,
            })),
        })
    }
}

/// The options that distinguish a search from others, besides its program, strategy and seed.
const IDENTITY: [&str; 9] = [
    "with",
    "on",
    "net",
    "fault",
    "chaos",
    "inject",
    "steps",
    "preemptions",
    "schedules",
];

/// Returns what distinguishes a search from others, as given: the arguments of the program, and
/// options of the search. An option after the program replaces the same option before it.
fn identity(programs: &[Entry], explore: &ArgMatches, named: Option<(&str, &ArgMatches)>) -> Value {
    let raw = |matches: &ArgMatches, id: &str| -> Option<Vec<String>> {
        let values = matches.try_get_raw(id).ok()??;
        Some(
            values
                .map(|value| value.to_string_lossy().into_owned())
                .collect(),
        )
    };
    let option = |id: &str| {
        let after = named.filter(|(_, matches)| takes_options(matches));
        let after = after.and_then(|(_, matches)| raw(matches, id));
        let values = after.or_else(|| raw(explore, id));
        (format!("--{id}"), json!(values.unwrap_or_default()))
    };
    let is_named = |entry: &&Entry| named.is_some_and(|(name, _)| entry.name == name);
    let entry = programs.iter().find(is_named);
    let command = entry.map(Entry::command).unwrap_or_default();
    let argument = |argument: &clap::Arg| {
        let id = argument.get_id().as_str();
        raw(named?.1, id).map(|values| (id.to_string(), json!(values)))
    };
    let arguments: serde_json::Map<String, Value> =
        command.get_arguments().filter_map(argument).collect();
    let mut all: serde_json::Map<String, Value> = IDENTITY.into_iter().map(option).collect();
    all.insert("arguments".into(), arguments.into());
    all.into()
}

/// Shows the progress on a line that the next one overwrites.
pub(super) fn show(progress: &Progress) {
    let Progress {
        schedules,
        of,
        classes,
        elapsed,
        left,
        ..
    } = *progress;
    let rate = schedules as f64 / elapsed.as_secs_f64();
    let of = match of {
        u64::MAX => String::new(),
        of => format!(" of {of}"),
    };
    let classes = match classes {
        0 => String::new(),
        classes => format!(", {classes} causal orders"),
    };
    let left = left.map(|left| humantime::format_duration(Duration::from_secs(left.as_secs())));
    let left = left.map_or(String::new(), |left| format!(", {left} left"));
    tell(&format!(
        "\r\x1b[K{schedules}{of} schedules{classes}, {rate:.0} a second{left}"
    ));
}

/// The first outcomes, a line each.
fn outcomes(all: &BTreeSet<String>) -> String {
    const SHOWN: usize = 10;
    if all.is_empty() {
        return String::new();
    }
    let mut text = format!("outcomes: {}\n", all.len());
    for outcome in all.iter().take(SHOWN) {
        text += &format!("  {:?}\n", outcome.trim_end());
    }
    if all.len() > SHOWN {
        text += "  ...\n";
    }
    text
}

/// The command line that runs a schedule again.
fn again(binary: &str, words: &[String]) -> String {
    let mut again = format!("{binary} explore --replay {{replay}}");
    let mut words = words.iter().skip(2).peekable();
    while let Some(word) = words.next() {
        if word == "--replay" {
            words.next();
        } else if !word.starts_with("--replay=") {
            again += &format!(" {word}");
        }
    }
    again
}

/// Prints the union of several results.
fn merge(options: &Merge, verbosity: &Verbosity) -> ExitCode {
    let log = Log::of_output(verbosity);
    let parts: Result<Vec<Value>, String> = options.files.iter().map(|file| part(file)).collect();
    let all = match parts.and_then(|parts| union(&parts, &options.files)) {
        Ok(all) => all,
        Err(error) => {
            log.error(&error);
            return ExitCode::from(USAGE);
        }
    };
    print((json(all.as_object().expect("it is an object")) + "\n").as_bytes());
    if all["failure"].is_null() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILURE)
    }
}

fn part(file: &Path) -> Result<Value, String> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    let part: Value = serde_json::from_str(&text)
        .map_err(|error| format!("{name} is not the JSON object of a search: {error}"))?;
    let is_search = part["schedules"].is_u64() && part["outcomes"].is_array();
    is_search
        .then_some(part)
        .ok_or_else(|| format!("{name} is not the JSON object of a search"))
}

fn union(parts: &[Value], files: &[PathBuf]) -> Result<Value, String> {
    let mut all = parts[0].clone();
    let (mut outcomes, mut never) = (texts(&all, "outcomes"), texts(&all, "never"));
    let mut shards = BTreeSet::new();
    for (part, file) in parts.iter().zip(files) {
        let name = file.display();
        for key in ["program", "strategy", "seed"] {
            if part[key] != all[key] {
                let first = files[0].display();
                return Err(format!(
                    "{name} is of another search than {first}: the {key} differs"
                ));
            }
        }
        if let Some(difference) = difference(&part["search"], &all["search"]) {
            let first = files[0].display();
            return Err(format!(
                "{name} is of another search than {first}: {difference}"
            ));
        }
        let shard = part["shard"].as_str().map(str::parse::<Shard>);
        if let (Some(Ok(shard)), Some((of, _))) = (&shard, shards.first())
            && shard.of != *of
        {
            return Err(format!(
                "{name} is part {shard}, and other files are parts of {of}"
            ));
        }
        if let Some(Ok(shard)) = shard
            && !shards.insert((shard.of, shard.number % shard.of))
        {
            return Err(format!(
                "{name} is part {shard}, which another file is, too"
            ));
        }
        outcomes.append(&mut texts(part, "outcomes"));
        never = &never & &texts(part, "never");
    }
    let sum = |key: &str| {
        parts
            .iter()
            .filter_map(|part| part[key].as_u64())
            .sum::<u64>()
    };
    let first = |key: &str| {
        parts
            .iter()
            .map(|part| &part[key])
            .find(|value| !value.is_null())
    };
    let is_whole = match shards.first() {
        Some((of, _)) => {
            shards.len() as u64 == *of && shards.last().is_some_and(|last| last.0 == *of)
        }
        None => true,
    };
    all["schedules"] = sum("schedules").into();
    all["classes"] = sum("classes").into();
    all["complete"] = (is_whole && parts.iter().all(|part| part["complete"] == true)).into();
    all["bound"] = match first("bound") {
        None if !is_whole => "not all parts are among the files".into(),
        bound => json!(bound),
    };
    all["failure"] = json!(first("failure"));
    all["outcomes"] = json!(outcomes);
    all["never"] = json!(never);
    all["shard"] = Value::Null;
    Ok(all)
}

/// Says what distinguishes one search from the first.
fn difference(one: &Value, first: &Value) -> Option<String> {
    let keys = IDENTITY.map(|id| format!("--{id}"));
    let keys = keys.into_iter().chain(["arguments".into()]);
    let mut differing = keys.filter(|key| one[key] != first[key]);
    differing
        .next()
        .map(|key| format!("{key} is {}, not {}", one[&key], first[&key]))
}

fn texts(part: &Value, key: &str) -> BTreeSet<String> {
    let texts = part[key].as_array().into_iter().flatten();
    texts
        .filter_map(Value::as_str)
        .map(str::to_string)
        .collect()
}
