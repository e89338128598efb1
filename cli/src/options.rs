//! The options of `boot`, which `replay`, `debug` and a search of a tape share; and a command line of
//! `boot` with its programs.

use std::{
    ffi::OsString,
    num::{NonZeroU32, NonZeroUsize},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{
    ArgMatches, Args, FromArgMatches, ValueHint,
    builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser},
};
use trapline::{Calls, Kernels, Limits, OnDeadlock, Signal, SystemCall};

use super::{
    commands::Commands,
    examples::{Example, examples},
    inject,
    live::watch,
    net,
    output::{Format, Verbosity},
    policy::{NamedShare, Policy, Registered, named_share},
    program::{Entry, Placed},
    shell,
    values::{duration, signal, size, unknown, whole, within},
    world::NamedWorld,
};

/// Boot a program and run until no task is left
#[derive(Args)]
pub(super) struct Boot {
    #[command(flatten)]
    pub(super) verbosity: Verbosity,
    /// Boot this program too, beside the first; can be repeated
    #[arg(long, value_name = "PROGRAM ARGS")]
    pub(super) with: Vec<String>,

    /// Run in the simulated world: a virtual clock that never waits, and a simulated network. --on, --net,
    /// --fault and --chaos imply it
    #[arg(long = "virtual", conflicts_with_all = ["monitor", "top"],
          overrides_with = "simulated", help_heading = "World")]
    pub(super) simulated: bool,
    /// Run in a world that this binary has registered
    #[arg(long, value_name = "NAME[:PARAMS]",
          conflicts_with_all = ["simulated", "top"], help_heading = "World")]
    pub(super) world: Option<NamedWorld>,
    /// Have the disk of the programs in this directory, which exists: what they open lies beneath it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["simulated", "world"],
          value_hint = ValueHint::DirPath, help_heading = "World")]
    pub(super) disk: Option<PathBuf>,
    /// The seed of all random numbers. Without it, boot draws one and prints it. With --virtual it
    /// repeats the whole run
    #[arg(long, value_name = "N", value_parser = whole::<u64>, help_heading = "World")]
    pub(super) seed: Option<u64>,

    /// Inject a fault into calls, in the words of strace: CALL:error=KIND, CALL:delay=TIME or
    /// CALL:kill. :when=N selects the Nth call of that name; N+ selects all from the Nth on, N+STEP
    /// every STEPth of those, N..M those from the Nth to the Mth. Can be repeated: the first rule
    /// that selects a call applies
    #[arg(long, value_name = "RULE", value_parser = inject::rules(), hide_possible_values = true,
          help_heading = "World")]
    pub(super) inject: Vec<inject::Rule>,

    /// Send a signal at this time, such as 3s:TERM: INT, TERM, HUP, USR1 or USR2. It ends the run
    /// unless a task catches it; can be repeated. Needs --virtual
    #[arg(long, value_name = "TIME:SIGNAL", value_parser = signal, help_heading = "World")]
    pub(super) signal: Vec<(Duration, Signal)>,

    /// Have the programs read FILE as their standard input. Without it a run in the real world reads its
    /// own, and one with --virtual has the end of the input at once
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "World")]
    pub(super) stdin: Option<PathBuf>,

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

    /// Deny the programs these calls, by their names in traces, or classes of calls: tasks, time,
    /// queues, devices, network, files, world or admin. A denied call fails with "permission denied"
    /// or "denied"; one that cannot fail faults its task. Can be repeated
    #[arg(long, value_name = "CALL,..", value_delimiter = ',', value_parser = denied,
          help_heading = "Limits")]
    pub(super) deny: Vec<Calls>,

    /// Action when tasks lock each other out, even while others run: warn, kill the youngest of
    /// them, or stop with exit code 3
    #[arg(long, value_name = "ACTION", default_value = "warn", value_parser = on_deadlock(),
          help_heading = "Limits")]
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
    /// Run so many kernels, each on a core with its own instance of the programs: a number from 1 to 1024, or
    /// `all` for one per core. They listen on the same addresses, and the system gives each connection to
    /// one of them. They share nothing else: standard output gets the lines of all, and --seed counts up.
    /// --record, --tape and --monitor have a file each, with the number of the kernel behind its name: the
    /// name alone is that of all kernels for `trace`, `replay` and the commands with --attach. For the real
    /// world, without the other options for watching except --trace
    #[arg(long, value_name = "N|all", value_parser = kernels, default_value = "1", help_heading = "Scheduling")]
    pub(super) kernels: usize,
    /// How many tasks compute at once, from 1 to 1024. More than one needs --virtual
    #[arg(long, value_name = "N", value_parser = within("a number of processors", 1..=1024), default_value = "1", help_heading = "Scheduling")]
    pub(super) processors: usize,
    /// Give the tasks of a name a share: NAME:tickets=100, NAME:nice=5 or NAME:priority=3, of a kind
    /// that the policy looks at. Can be repeated
    #[arg(long, value_name = "NAME:SHARE", value_parser = named_share, help_heading = "Scheduling")]
    pub(super) share: Vec<NamedShare>,
}

/// The options of `boot` and `replay` for watching a run.
#[derive(Args)]
#[command(next_help_heading = "Watching")]
pub(super) struct Watching {
    /// Show every trap as a line on standard error, and the programs' own log lines of level info. A
    /// pipe or a terminal that takes nothing for a second does not stop a run in the real world: lines
    /// are lost, and a warning has their number. A virtual clock waits. FILTER selects other events;
    /// its syntax is that of RUST_LOG, which also works. trapline::sched=trace shows the turns
    #[arg(long, value_name = "FILTER", num_args = 0..=1, require_equals = true,
        default_missing_value = "")]
    pub(super) trace: Option<String>,
    /// The format of lines on standard error: text for people, or a JSON object each
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(super) log_format: Format,
    /// At the end, show on standard error how the time was used, and two tables: the calls, and the
    /// tasks (the 1,000 with the most time). A task is busy in its program and in its calls. What took
    /// the most time comes first
    #[arg(long)]
    pub(super) summary: bool,
    /// Merge the tasks of a name in the summary
    #[arg(long, requires = "summary")]
    pub(super) by_name: bool,
    /// Record every event to FILE. An existing FILE is replaced, and stays locked during the run. A
    /// killed process leaves what happened before it last slept, and a full disk keeps what fitted.
    /// The reader of a pipe that takes nothing for a second loses events, and the recording has their
    /// number. The command `trace` reads it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          value_parser = OsStringValueParser::new().try_map(recording))]
    pub(super) record: Option<PathBuf>,
    /// Record the last N events only. They are written at the end, an interrupt, a deadlock, a crash or
    /// the first fault. A SIGKILL before that leaves a recording without events
    #[arg(long, value_name = "N", requires = "record", value_parser = whole::<NonZeroUsize>)]
    pub(super) record_last: Option<NonZeroUsize>,
    /// After a fault or a deadlock, show the last traps of the tasks involved. --record does so
    /// too, unless the recording is over 64 MiB or goes into a pipe
    #[arg(long)]
    pub(super) post_mortem: bool,
    /// At the end, show on standard error how each task ended that did not end well
    #[arg(long)]
    pub(super) exits: bool,
    #[command(flatten)]
    pub(super) live: watch::Options,
}

impl Watching {
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

const EXAMPLES: [Example; 9] = [
    Example::Any("boot {}", "wait"),
    Example::Any("boot --virtual --seed 7 --summary {}", "producer-consumer"),
    Example::Of(&["multitask", "wait"], "boot --with \"wait\" multitask"),
    Example::Of(
        &["echo"],
        "boot --virtual --trace --inject listen:error=AddrInUse echo",
    ),
    Example::Any("boot --deny network,admin {}", "echo"),
    Example::Of(
        &["echo", "swarm"],
        "boot --virtual --on a:\"echo --addr 0.0.0.0:80\" \\\n    \
         --on b:\"swarm --addr a:80 --clients 2 --think 50ms\" \\\n    \
         --fault \"1s:cut a b\" --fault \"2s:heal a b\"",
    ),
    Example::Any(
        "boot --virtual --record run.trap {}; \\\n    {name} trace summary run.trap",
        "convoy",
    ),
    Example::Any("boot --tape run.tape {}; {name} replay run.tape", "gossip"),
    Example::Any(
        "boot --trace --log-format json {} 2>&1 >/dev/null \\\n    | jq -c 'select(.tid==1)'",
        "wait",
    ),
];

/// The end of the help of `boot`.
pub(super) fn help(name: &str, programs: &[Entry]) -> String {
    let examples = examples(name, programs, &EXAMPLES);
    format!(
        "Options go before the program; arguments after its name belong to the program.\n\n\
         Programs write to standard output; everything else goes to standard error.\n\n\
         Exit codes: 0 all tasks ended well, or only servers are left and nothing can \
         come for them, 1 a task faulted, a task failed and none waited for it, output \
         was lost or the kernel met an I/O error, 2 wrong command line, 3 deadlock or a \
         client without an answer, 4 a limit was reached, 129 hung up (SIGHUP, unless it was \
         ignored at the start), 130 interrupted (^C), 143 terminated (SIGTERM). A \
         signal that a task catches is a message for it, and ends no run.\n\n{examples}"
    )
}

fn denied(name: &str) -> Result<Calls, String> {
    let names: Vec<&str> = Calls::names().collect();
    if SystemCall::NAMES.contains(&name) && !names.contains(&name) {
        let classes: Vec<&str> = Calls::CLASSES.iter().map(|(class, _)| *class).collect();
        let classes = classes.join(", ");
        return Err(format!(
            "'{name}' is always allowed: deny other calls, or a class of {classes}"
        ));
    }
    Calls::named(name).ok_or_else(|| unknown("call", name, &names))
}

fn kernels(text: &str) -> Result<usize, String> {
    match text {
        "all" => Ok(Kernels::available()),
        text => within("a number of kernels", 1..=1024)(text).map_err(|why| why + ", or all"),
    }
}

fn on_deadlock() -> impl TypedValueParser<Value = OnDeadlock> {
    PossibleValuesParser::new(["warn", "kill", "stop"]).map(|action| match &*action {
        "kill" => OnDeadlock::Kill,
        "stop" => OnDeadlock::Stop,
        _ => OnDeadlock::Warn,
    })
}

/// Rejects standard output, which belongs to the programs.
fn recording(file: OsString) -> Result<PathBuf, &'static str> {
    if file == "-" {
        Err("standard output is for what the programs print: give a file, or a pipe by its name")
    } else {
        Ok(file.into())
    }
}

/// A command line of `boot`: its options, and its programs on their hosts.
pub(super) struct BootLine {
    pub(super) options: Box<Boot>,
    pub(super) programs: Vec<Placed>,
    /// The policies of the binary.
    pub(super) policies: Registered,
}

impl BootLine {
    /// The options with the programs that follow them.
    pub(super) fn new(
        commands: Commands<'_>,
        options: Box<Boot>,
        boot: &ArgMatches,
    ) -> Result<Self, clap::Error> {
        let programs = commands.placed("boot", &options.net, &options.with, boot.subcommand())?;
        Ok(Self::with(commands, options, programs))
    }

    fn with(commands: Commands<'_>, mut options: Box<Boot>, mut programs: Vec<Placed>) -> Self {
        options.simulated |= options.net.is_any();
        if !options.deny.is_empty() {
            let limits = Limits::new().deny(options.deny.iter().copied());
            programs
                .iter_mut()
                .for_each(|placed| placed.limits = Some(limits));
        }
        Self {
            options,
            programs,
            policies: commands.policies.into(),
        }
    }

    /// Whether one of the programs is the shell.
    pub(super) fn has_shell(&self) -> bool {
        let is_shell = |placed: &Placed| placed.name() == shell::NAME;
        self.programs.iter().any(is_shell)
    }

    /// The files of lines that its shells run.
    pub(super) fn scripts(&self) -> impl Iterator<Item = &Path> {
        let shells = self.programs.iter();
        let shells = shells.filter(|placed| placed.name() == shell::NAME);
        shells.filter_map(|placed| placed.file("script"))
    }

    /// The options of a line of `shell`, with its program.
    pub(super) fn of_shell(
        commands: Commands<'_>,
        options: Box<Boot>,
        line: &ArgMatches,
    ) -> Result<Self, clap::Error> {
        let named = Some((shell::NAME, line));
        let programs = commands.placed("boot", &options.net, &options.with, named)?;
        Ok(Self::with(commands, options, programs))
    }

    /// Parses a command line. Returns `None` for another command than `boot` and `shell`.
    pub(super) fn parse(
        commands: Commands<'_>,
        words: &[OsString],
    ) -> Result<Option<Self>, clap::Error> {
        let matches = commands.parse(words)?;
        let Some((name @ ("boot" | shell::NAME), line)) = matches.subcommand() else {
            return Ok(None);
        };
        let options = Box::new(Boot::from_arg_matches(line)?);
        match name {
            "boot" => Self::new(commands, options, line),
            _ => Self::of_shell(commands, options, line),
        }
        .map(Some)
    }
}
