//! The commands and options, and the messages about wrong ones.

use std::{
    ffi::OsString,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use clap::{
    Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    ValueHint,
    builder::{OsStringValueParser, TypedValueParser},
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::Shell;

use super::{
    App,
    debug::Debug,
    explore::{self, Explore},
    inject,
    lab::{self, Lab},
    live,
    net::{self, Placed},
    new::New,
    output::{Format, Verbosity},
    policy::{NamedShare, Policy, help, named_share},
    program::{Entry, Named},
    replay::Replay,
    trace,
    values::{duration, processors, size, whole},
    words,
    world::NamedWorld,
};

/// Boots programs on trapline, a tiny operating system inside one process
#[derive(Parser)]
#[command(arg_required_else_help = true)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) verbosity: Verbosity,
    #[command(subcommand)]
    pub(super) command: CliCommand,
}

#[derive(Subcommand)]
pub(super) enum CliCommand {
    /// Show the programs, a line each
    #[command(after_help = "\
Examples:
  list                   the programs that can be booted
  boot multitask --help  the options of one")]
    List,
    Boot(Box<Boot>),
    Replay(Replay),
    Debug(Debug),
    Explore(Explore),
    Lab(Lab),
    New(New),
    /// Look at traces: of a recording or of a running kernel
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    #[command(flatten)]
    Live(live::LiveCommand),
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  completions bash > ~/.local/share/bash-completion/completions/trapline
  completions fish > ~/.config/fish/completions/trapline.fish
  completions zsh > ~/.zfunc/_trapline")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a manual page, for `man -l -`
    #[command(after_help = "\
Examples:
  man | man -l -               the first page
  man boot | man -l -          the page of a command
  man boot echo > echo.1")]
    Man {
        /// The command of the page, such as `boot` or `boot echo`; none for the first page
        #[arg(value_name = "COMMAND")]
        of: Vec<String>,
    },
}

/// Boot a program and run until no task is left
#[derive(Args)]
pub(super) struct Boot {
    #[command(flatten)]
    pub(super) verbosity: Verbosity,
    /// Boot this program too, beside the first; can be repeated
    #[arg(long, value_name = "PROGRAM ARGS")]
    pub(super) with: Vec<String>,

    /// Run in the simulated world: a virtual clock that never waits, and a simulated network
    #[arg(long = "virtual", conflicts_with_all = ["monitor", "top"], help_heading = "World")]
    pub(super) simulated: bool,
    /// Run in a world that this binary has registered
    #[arg(long, value_name = "NAME[:PARAMS]",
          conflicts_with_all = ["simulated", "top"], help_heading = "World")]
    pub(super) world: Option<NamedWorld>,
    /// The seed of all random numbers. Without it, boot draws one and prints it. With --virtual it
    /// repeats the whole run
    #[arg(long, value_name = "N", value_parser = whole::<u64>, help_heading = "World")]
    pub(super) seed: Option<u64>,

    /// Inject a fault into calls, in the words of strace: CALL:error=KIND, CALL:delay=TIME or
    /// CALL:kill. :when=N selects the Nth call of that name; N+ selects all from the Nth on, N+STEP
    /// every STEPth of those, N..M those from the Nth to the Mth. Can be repeated: the first rule
    /// that selects a call applies
    #[arg(long, value_name = "RULE", value_parser = inject::rule, help_heading = "World")]
    pub(super) inject: Vec<inject::Rule>,

    #[command(flatten)]
    pub(super) net: net::Options,

    #[command(flatten)]
    pub(super) watching: Watching,
    /// Tape the run to FILE: what the world answers. The command `replay` runs it again. An existing
    /// FILE is replaced, and stays locked during the run. A killed process leaves what happened before it
    /// last slept; a crash leaves all of it; a full disk keeps what fitted
    #[arg(long, value_name = "FILE", conflicts_with = "simulated", value_hint = ValueHint::FilePath,
          help_heading = "Watching", value_parser = OsStringValueParser::new().try_map(recording))]
    pub(super) tape: Option<PathBuf>,
    /// End the tape at this size, such as 500k, 64M or 2G. The run goes on
    #[arg(long, value_name = "SIZE", requires = "tape", value_parser = size, help_heading = "Watching")]
    pub(super) tape_max: Option<u64>,

    /// How many tasks may live at once
    #[arg(long, value_name = "N", value_parser = whole::<usize>, help_heading = "Limits")]
    pub(super) max_tasks: Option<usize>,
    /// Stop after this many resumes
    #[arg(long, value_name = "N", value_parser = whole::<u64>, help_heading = "Limits")]
    pub(super) max_ticks: Option<u64>,
    /// Stop after this time on the world's clock, such as 500ms, 10s or 2m
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Limits")]
    pub(super) max_time: Option<Duration>,
    /// Stop after waiting this long for other threads alone, such as those of blocking work
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Limits")]
    pub(super) max_stall: Option<Duration>,

    /// Action when tasks lock each other out, even while others run: warn, kill the youngest of
    /// them, or stop with exit code 3
    #[arg(
        long,
        value_name = "ACTION",
        default_value = "warn",
        help_heading = "Limits"
    )]
    pub(super) on_deadlock: OnDeadlock,

    /// How many ticks a turn may have
    #[arg(long, value_name = "N", value_parser = whole::<NonZeroU32>, default_value = "1",
        help_heading = "Scheduling")]
    pub(super) quantum: NonZeroU32,
    /// The scheduling policy
    #[arg(
        long,
        value_name = "NAME[:PARAMS]",
        default_value = "fifo",
        help_heading = "Scheduling"
    )]
    pub(super) policy: Policy,
    /// How many tasks compute at once, from 1 to 1024. More than one needs --virtual
    #[arg(long, value_name = "N", value_parser = processors, default_value = "1", help_heading = "Scheduling")]
    pub(super) processors: usize,
    /// Give the tasks of a name a share: NAME:tickets=100, NAME:nice=5 or NAME:priority=3, of a kind
    /// that the policy looks at. Can be repeated
    #[arg(long, value_name = "NAME:SHARE", value_parser = named_share, help_heading = "Scheduling")]
    pub(super) share: Vec<NamedShare>,
}

/// The options of `boot` and `replay` for watching a run.
#[derive(Args)]
pub(super) struct Watching {
    /// Show every trap as a line on standard error, and the programs' own log lines of level info. A
    /// pipe or a terminal that takes nothing for a second does not stop a run in the real world: lines
    /// are lost, and a warning has their number. A virtual clock waits. FILTER selects other events;
    /// its syntax is that of RUST_LOG, which also works. trapline::sched=trace shows the turns
    #[arg(long, value_name = "FILTER", num_args = 0..=1, require_equals = true,
        default_missing_value = "", help_heading = "Watching")]
    pub(super) trace: Option<String>,
    /// The format of lines on standard error: text for people, or a JSON object each
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Watching"
    )]
    pub(super) log_format: Format,
    /// At the end, show on standard error how the time was used, and two tables: the calls, and the
    /// tasks (the 1,000 with the most time). A task is busy in its program and in its calls. What took
    /// the most time comes first
    #[arg(long, help_heading = "Watching")]
    pub(super) summary: bool,
    /// Merge the tasks of a name in the summary
    #[arg(long, requires = "summary", help_heading = "Watching")]
    pub(super) by_name: bool,
    /// Record every event to FILE. An existing FILE is replaced, and stays locked during the run. A
    /// killed process leaves what happened before it last slept, and a full disk keeps what fitted.
    /// The reader of a pipe that takes nothing for a second loses events, and the recording has their
    /// number. The command `trace` reads it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Watching",
          value_parser = OsStringValueParser::new().try_map(recording))]
    pub(super) record: Option<PathBuf>,
    /// Record the last N events only. They are written at the end, an interrupt, a deadlock, a crash or
    /// the first fault. A SIGKILL before that leaves a recording without events
    #[arg(long, value_name = "N", requires = "record", value_parser = whole::<NonZeroUsize>,
        help_heading = "Watching")]
    pub(super) record_last: Option<NonZeroUsize>,
    /// After a fault or a deadlock, show the last traps of the tasks involved. --record does so
    /// too, unless the recording is over 64 MiB or goes into a pipe
    #[arg(long, help_heading = "Watching")]
    pub(super) post_mortem: bool,
    /// At the end, show on standard error how each task ended that did not end well
    #[arg(long, help_heading = "Watching")]
    pub(super) exits: bool,
    #[command(flatten)]
    pub(super) live: live::Options,
}

impl Watching {
    /// Whether any option for watching is given.
    pub(super) fn is_any(&self) -> bool {
        self.record.is_some() || self.is_any_but_record()
    }

    /// Whether any option for watching is given, apart from `--record FILE`.
    pub(super) fn is_any_but_record(&self) -> bool {
        let Self {
            trace,
            log_format: _,
            summary,
            by_name: _,
            record: _,
            record_last,
            post_mortem,
            exits,
            live,
        } = self;
        let is_told = *summary || *post_mortem || *exits;
        trace.is_some() || record_last.is_some() || is_told || live.is_any()
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum OnDeadlock {
    Warn,
    Kill,
    Stop,
}

impl From<OnDeadlock> for trapline::OnDeadlock {
    fn from(action: OnDeadlock) -> Self {
        match action {
            OnDeadlock::Warn => Self::Warn,
            OnDeadlock::Kill => Self::Kill,
            OnDeadlock::Stop => Self::Stop,
        }
    }
}

/// The whole command line of a binary called `name`.
pub(super) fn command(name: &str, app: &App) -> Command {
    let programs = &app.programs;
    let policies = app.policies.clone();
    let policy = move |text: &str| Policy::parse(text, &policies);
    let policy_of_lab = policy.clone();
    let worlds = app.worlds.clone();
    let has_worlds = !worlds.is_empty();
    let world = move |text: &str| NamedWorld::parse(text, &worlds);
    let first = programs.first().map_or("PROGRAM", |entry| entry.name);
    let last = programs.last().map_or("PROGRAM", |entry| entry.name);
    let version = if name == "trapline" {
        env!("CARGO_PKG_VERSION")
    } else {
        concat!("on trapline ", env!("CARGO_PKG_VERSION"))
    };
    let command = Cli::command()
        .name(name.to_string())
        .version(version)
        .after_help(format!(
            "Examples:\n  \
             {name} list                           the programs\n  \
             {name} boot {first}                     run it\n  \
             {name} boot --virtual --trace {first}   on a virtual clock, with every trap shown\n  \
             {name} boot {first} --help              its options"
        ))
        .mut_subcommand("explore", |command| {
            of_programs(command)
                .subcommands(explore::subcommands(programs))
                .override_usage(format!("{name} explore [OPTIONS] PROGRAM [ARGS]..."))
                .after_help(format!(
                    "The program runs in the simulated world. A schedule fails with a deadlock, with a \
                     client without an answer, or if a task fails or faults. Schedule i has the seed N + i of --seed N, as in \
                     `boot --virtual --policy random --seed`.\n\n\
                     Exit codes: 0 all schedules pass, 1 one fails or --time is over before one has run, \
                     2 wrong command line, 130 interrupted (^C): what ran until then is printed.\n\n\
                     Examples:\n  \
                     {name} explore {first}\n  \
                     {name} explore --strategy pct:3 --schedules 100000 {first}\n  \
                     {name} explore --strategy exhaustive {first}\n  \
                     {name} explore --on server:{first} --chaos 1 {last}\n  \
                     {name} explore --shard 3/8 --json {first} > part-3.json\n  \
                     {name} explore merge part-*.json"
                ))
        })
        .mut_subcommand("debug", |debug| {
            debug.override_usage(format!(
                "{name} debug [OPTIONS] FILE\n       \
                 {name} debug [OPTIONS] [OPTIONS OF BOOT] PROGRAM [ARGS]..."
            ))
        })
        .mut_subcommand("lab", |lab| {
            of_programs(lab)
                .subcommand_required(true)
                .mut_arg("policies", |arg| arg.value_parser(policy_of_lab))
                .subcommands(lab::subcommands(programs))
                .override_usage(format!("{name} lab [OPTIONS] PROGRAM [ARGS]..."))
                .after_help(format!(
                    "The program runs in the simulated world, once under each policy. The table \
                     shows response, turnaround and waiting over the tasks that computed: the \
                     mean, the median and the 99th percentile; the switches between tasks; the part \
                     of their time in which the processors were busy; Jain's index of fairness; and \
                     the end. A chart has a line for each task: █ is computing, ▓, ▒ and ░ are \
                     computing for a part of the column, and · is waiting for a processor.\n\n\
                     Exit codes: 0 all runs ended well, 1 one did not, 2 wrong command line.\n\n\
                     Examples:\n  \
                     {name} lab --policy fifo --policy rr:10ms --policy mlfq {first}\n  \
                     {name} lab --processors 2 --html lab.html {first}\n  \
                     {name} lab --policy lottery --seeds 100 --json {first}"
                ))
        })
        .mut_subcommand("boot", |boot| {
            let network = ["on", "net", "fault", "chaos"].into_iter();
            let simulated = |boot: Command, id| boot.mut_arg(id, |arg| arg.requires("simulated"));
            let boot = network.fold(of_programs(boot), simulated);
            boot.mut_arg("policy", |arg| arg.help(help()).value_parser(policy))
                .mut_arg("world", |arg| arg.value_parser(world).hide(!has_worlds))
                .subcommands(programs.iter().map(Entry::command))
                .override_usage(format!("{name} boot [OPTIONS] PROGRAM [ARGS]..."))
                .after_help(format!(
                    "Options go before the program; arguments after its name belong to the program.\n\n\
                     Programs write to standard output; everything else goes to standard error.\n\n\
                     Exit codes: 0 all tasks ended well, or only servers are left and nothing can \
                     come for them, 1 a task faulted, a task failed and none waited for it, output \
                     was lost or the kernel met an I/O error, 2 wrong command line, 3 deadlock or a \
                     client without an answer, 4 a limit was reached, 129 hung up (SIGHUP, unless it was \
                     ignored at the start), 130 interrupted (^C), 143 terminated (SIGTERM).\n\n\
                     Examples:\n  \
                     {name} boot {first}\n  \
                     {name} boot --virtual --seed 7 --summary {first}\n  \
                     {name} boot --with {last} {first}\n  \
                     {name} boot --inject send:error=BrokenPipe:when=3+ {first}\n  \
                     {name} boot --virtual --on a:{first} --on b:{last} --fault \"1s:cut a b\"\n  \
                     {name} boot --record run.trap {first}     then: {name} trace show run.trap\n  \
                     {name} boot --tape run.tape {first}       then: {name} replay run.tape\n  \
                     {name} boot --trace --log-format json {first} 2>&1 >/dev/null | jq 'select(.tid==1)'"
                ))
        });
    with_negative_numbers(command)
}

/// Lets the values of a command be negative numbers, so that their parsers explain what they take.
pub(super) fn with_negative_numbers(command: Command) -> Command {
    let allow = |arg: Arg| {
        let numbers = arg.get_num_args();
        let has_value = numbers.is_none_or(|numbers| numbers.takes_values());
        match has_value && arg.get_action().takes_values() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        }
    };
    let is_digit = |arg: &Arg| arg.get_short().is_some_and(|name| name.is_ascii_digit());
    // `-1` is an option there.
    let has_digit = command.get_arguments().any(is_digit);
    let command = match has_digit {
        true => command,
        false => command.mut_args(allow),
    };
    command.mut_subcommands(with_negative_numbers)
}

/// A command that takes a program.
fn of_programs(command: Command) -> Command {
    command
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand_help_heading("Programs")
        .subcommand_value_name("PROGRAM")
}

/// Parses a command line, or explains what is wrong with it.
pub(super) fn parse(
    command: &Command,
    programs: &[Entry],
    args: &[OsString],
) -> Result<(Cli, ArgMatches), clap::Error> {
    let matches = command
        .clone()
        .try_get_matches_from(args)
        .map_err(|error| explain(error, command.clone(), programs))?;
    Ok((Cli::from_arg_matches(&matches)?, matches))
}

/// The programs to boot, with their arguments and hosts: those of `--on`, the named one, and those
/// of `--with`.
pub(super) fn images(
    programs: &[Entry],
    options: &Boot,
    matches: &ArgMatches,
    command: &Command,
) -> Result<Vec<Placed>, clap::Error> {
    named(programs, options, matches, command).map(|all| loaded(&all))
}

/// These programs with their arguments, on their hosts.
pub(super) fn loaded(named: &[(String, Named)]) -> Vec<Placed> {
    let place = |(host, named): &(String, Named)| Placed {
        host: host.clone(),
        image: named.image(),
    };
    named.iter().map(place).collect()
}

/// The same programs, before they are loaded.
pub(super) fn named(
    programs: &[Entry],
    options: &Boot,
    matches: &ArgMatches,
    command: &Command,
) -> Result<Vec<(String, Named)>, clap::Error> {
    let mut all = Vec::new();
    for place in &options.net.on {
        let named = line(programs, "--on", &place.text, &place.line)?;
        all.push((place.host.clone(), named));
    }
    let host = options.net.main_host();
    let boot = matches.subcommand_matches("boot");
    match boot.and_then(ArgMatches::subcommand) {
        Some(program) => all.push((host.to_string(), load(programs, program)?)),
        None if all.is_empty() => {
            return Err(explain_program(
                clap::Error::new(ErrorKind::MissingSubcommand),
                child(command, "boot"),
            ));
        }
        None => {}
    }
    for with in &options.with {
        all.push((host.to_string(), line(programs, "--with", with, with)?));
    }
    Ok(all)
}

pub(super) fn load(
    programs: &[Entry],
    (name, matches): (&str, &ArgMatches),
) -> Result<Named, clap::Error> {
    let entry = programs.iter().find(|entry| entry.name == name);
    Named::new(entry.expect("clap knows these programs only"), matches)
}

/// The program of an option such as `--with`, whose value is `text`. Its errors name the option.
pub(super) fn line(
    programs: &[Entry],
    option: &'static str,
    text: &str,
    line: &str,
) -> Result<Named, clap::Error> {
    let locate = |kind, message: &str| {
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let message = format!("in {option} {text:?}: {}\n", message.trim_end());
        clap::Error::raw(kind, message)
    };
    let words = words::split(line).map_err(|error| locate(ErrorKind::InvalidValue, error))?;
    let command = Command::new(option)
        .no_binary_name(true)
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .override_usage(format!("{option} \"PROGRAM [ARGS]...\""))
        .subcommands(programs.iter().map(Entry::command));
    let result = command.clone().try_get_matches_from(words);
    let named = |matches: &ArgMatches| {
        let (name, matches) = matches.subcommand().expect("clap requires a program");
        load(programs, (name, matches))
    };
    let named = result.and_then(|matches| named(&matches));
    named.map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp => error,
        ErrorKind::MissingSubcommand => locate(error.kind(), "it names no program"),
        kind => locate(kind, &explain_program(error, command).to_string()),
    })
}

/// The command whose manual page is asked for.
pub(super) fn find(mut command: Command, of: &[String]) -> Result<Command, clap::Error> {
    command.build();
    for name in of {
        let Some(next) = command.find_subcommand(name).cloned() else {
            let message = format!("there is no command '{name}', and so no page");
            return Err(command.error(ErrorKind::InvalidValue, message));
        };
        command = next;
    }
    Ok(command)
}

/// Adds a hint to an error of `clap`'s where this crate knows more than `clap`.
fn explain(mut error: clap::Error, mut command: Command, programs: &[Entry]) -> clap::Error {
    command.build();
    let boot = child(&command, "boot");
    // Only the usages of boot, explore and lab have a PROGRAM.
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let of_boot = usage.contains("PROGRAM");
    match error.kind() {
        ErrorKind::InvalidSubcommand | ErrorKind::MissingSubcommand if of_boot => {
            let is_of = |name: &&str| usage.contains(&format!(" {name} [OPTIONS] PROGRAM"));
            let name = ["explore", "lab"].into_iter().find(is_of);
            return explain_program(error, child(&command, name.unwrap_or("boot")));
        }
        ErrorKind::InvalidSubcommand => {
            let name = text(&error, ContextKind::InvalidSubcommand);
            if programs.iter().any(|entry| entry.name == name) {
                let order = ContextValue::String(format!("boot {name}"));
                error.insert(ContextKind::SuggestedSubcommand, order);
            }
        }
        ErrorKind::ArgumentConflict if of_boot => {
            let named = [ContextKind::InvalidArg, ContextKind::PriorArg];
            let named = named.map(|kind| text(&error, kind));
            let has = |option: &str| named.iter().any(|name| name.starts_with(option));
            if has("--virtual") && has("--tape") {
                let why = "a virtual run needs no tape: --seed repeats it";
                let why = ContextValue::StyledStrs(vec![why.into()]);
                error.insert(ContextKind::Suggested, why);
            }
            if has("--world") && has("--top") {
                let why = "the screen shows what the real world prints: use --monitor SOCKET, and \
                           `top --attach SOCKET`";
                let why = ContextValue::StyledStrs(vec![why.into()]);
                error.insert(ContextKind::Suggested, why);
            }
            if has("--virtual") && (has("--top") || has("--monitor")) {
                let why = "a virtual run is over at once: --record it, and read the recording with \
                           `trace`";
                let why = ContextValue::StyledStrs(vec![why.into()]);
                error.insert(ContextKind::Suggested, why);
            }
        }
        ErrorKind::UnknownArgument => {
            let name = text(&error, ContextKind::InvalidArg);
            let long = name
                .strip_prefix("--")
                .and_then(|name| name.split('=').next());
            let has = |command: &Command| {
                let mut longs = command.get_arguments().filter_map(Arg::get_long);
                longs.any(|other| Some(other) == long)
            };
            let tip = if of_boot {
                None
            } else if has(&command) && !usage.contains(" boot ") {
                Some(format!("{name} goes before the command"))
            } else if has(&boot) && usage.contains(" replay ") {
                Some(format!(
                    "the tape holds the options of its run: boot with {name} and --tape FILE, and \
                     replay that tape"
                ))
            } else {
                let others = observers(&command).filter(|(_, other)| has(other));
                let others: Vec<String> = others.map(|(name, _)| name).collect();
                let of_boot =
                    || format!("{name} is an option of boot, and goes before the program");
                match others.is_empty() {
                    true => has(&boot).then(of_boot),
                    false => Some(format!("{name} is an option of {}", others.join(", "))),
                }
            };
            if let Some(tip) = tip {
                let tip = ContextValue::StyledStrs(vec![tip.into()]);
                error.insert(ContextKind::Suggested, tip);
                error.remove(ContextKind::SuggestedArg);
            }
        }
        _ => {}
    }
    error
}

/// The commands that look at a running kernel or a trace, by their whole names.
fn observers(command: &Command) -> impl Iterator<Item = (String, &Command)> {
    let is_live = |live: &&Command| {
        let mut longs = live.get_arguments().filter_map(Arg::get_long);
        longs.any(|long| long == "attach")
    };
    let live = command.get_subcommands().filter(is_live);
    let trace = command.find_subcommand("trace").into_iter();
    let trace = trace.flat_map(Command::get_subcommands);
    live.map(|live| (live.get_name().to_string(), live))
        .chain(trace.map(|trace| (format!("trace {}", trace.get_name()), trace)))
}

/// The command of this name below another.
pub(super) fn child(command: &Command, name: &str) -> Command {
    let child = command.find_subcommand(name);
    child.expect("there is one").clone()
}

/// Turns an error about a program's name into one that says so.
pub(super) fn explain_program(error: clap::Error, mut command: Command) -> clap::Error {
    let message = match error.kind() {
        ErrorKind::MissingSubcommand => "name a program to boot".to_string(),
        ErrorKind::InvalidSubcommand => {
            let name = text(&error, ContextKind::InvalidSubcommand);
            let near = match error.get(ContextKind::SuggestedSubcommand) {
                Some(ContextValue::Strings(names)) => names.last(),
                Some(ContextValue::String(name)) => Some(name),
                _ => None,
            };
            let near = near.map(|near| format!(": did you mean '{near}'?"));
            format!("there is no program '{name}'{}", near.unwrap_or_default())
        }
        _ => return error,
    };
    command.error(
        error.kind(),
        format!("{message}\n\nThe command `list` shows them all."),
    )
}

/// What an error of `clap`'s says of this kind; empty if it says nothing.
pub(super) fn text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Rejects standard output, which belongs to the programs.
fn recording(file: OsString) -> Result<PathBuf, &'static str> {
    if file == "-" {
        Err("standard output is for what the programs print: give a file, or a pipe by its name")
    } else {
        Ok(file.into())
    }
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    #[test]
    fn a_flag_that_is_a_digit_is_no_negative_number() {
        let flag = Arg::new("one").short('1').action(ArgAction::SetTrue);
        let count = Arg::new("count").long("count");
        let head = Command::new("head").args([flag, count, Arg::new("file")]);
        let head = with_negative_numbers(head);
        let matches = head.try_get_matches_from(["head", "-1", "file"]);
        let matches = matches.expect("both are known");
        assert!(matches.get_flag("one"));
        assert_eq!(matches.get_one("file"), Some(&"file".to_string()));
    }
}
