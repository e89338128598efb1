//! `--tape`: a run that is taped; `replay`: the run again, from its tape.

use std::{
    cell::Cell,
    ffi::OsString,
    io::{self, IsTerminal},
    num::NonZeroU64,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::ExitCode,
    rc::Rc,
};

use clap::{Args, Command, ValueHint, error::ErrorKind};
use trapline::{
    Builder, Error, Event, Kernel, RealWorld, Report, SimNet, SimWorld, Tid, World,
    record::Recording,
    tape::{self, Header, Left, Playing, Progress, Taping, Writer},
};

use super::{
    Extend,
    args::{self, Boot, CliCommand, Watching},
    as_test,
    attached::Attached,
    boot, interrupts,
    live::Watch,
    outfile,
    output::{FAILURE, Log, Verbosity, clean},
    program::{Entry, Named},
    record,
    reenact::{self, Expect, Wanted},
    stdio,
    values::whole,
    words::{self, quoted},
};

/// Run a taped run again
///
/// The tape holds the command line, and everything that came from outside. So the programs do the
/// same again, without a network and at full speed. A program that does something else is told so.
#[derive(Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
A tape holds no files, no environment and no clock of a program's own: run it in the same folder. \
A program's own I/O on an attached value (`echo --ready`) is not on it and happens again; a warning \
says so, and another one names a task that waits for it. What was sent to an attached standard output (`http-get`) is written again, except for \
`send_file`. \
Events have the times at which the kernel last read its clock, a little earlier than those \
that the run showed. \
A tape whose process was killed, or whose disk was full, runs to its end.

Exit codes: as of `boot` without a signal, and 1 if the programs do something else than on \
the tape.

Examples:
  boot --tape run.tape echo               tape a run; end it with ^C
  replay run.tape                         run it again
  replay --trace run.tape                 with every trap shown
  replay --only 3 run.tape                with those of task 3
  replay --record run.trap run.tape       then: trace timeline run.trap > run.html
  replay --at-speed --top run.tape        as it was
  replay --as-test loses_a_line run.tape  a test of the crate in this folder
  replay --explore 1000 run.tape          under other schedules, with scripted peers"
)]
pub(super) struct Replay {
    #[command(flatten)]
    verbosity: Verbosity,
    /// The tape, which `boot --tape` has written
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Wait as long as the run waited, instead of running at full speed
    #[arg(long)]
    at_speed: bool,
    /// Show the traps of this task alone, with every answer that it got
    #[arg(long, value_name = "TID", value_parser = whole::<u64>,
          conflicts_with = "trace", help_heading = "Watching")]
    only: Option<u64>,
    /// Write a test of this name that replays the tape and compares what it prints and how its tasks
    /// end: tests/NAME.rs, with a copy of the tape as tests/NAME.tape
    #[arg(long, value_name = "NAME", value_parser = as_test::test_name,
          conflicts_with_all = ["at_speed", "only"])]
    as_test: Option<String>,
    /// Run the programs under N other schedules, in the simulated world. Each connection of the tape
    /// has a peer there. It sends what came over the connection, after as many bytes as then, or a
    /// second later than then. A schedule fails if a task fails, in a deadlock, or if a peer does not
    /// get what it has to: see --expect. --record DIR records it. The run's --inject and --max-tasks
    /// apply. Its --policy, --quantum, --share and --processors do not: the search chooses the schedule
    #[arg(long, value_name = "N", value_parser = whole::<NonZeroU64>,
          conflicts_with_all = ["at_speed", "only", "as_test"], help_heading = "Search")]
    explore: Option<NonZeroU64>,
    /// Run this schedule of an earlier report, and no other
    #[arg(
        long,
        value_name = "SEED.DELAYS.HASH",
        requires = "explore",
        help_heading = "Search"
    )]
    schedule: Option<String>,
    /// What each peer of a search has to get
    #[arg(
        long,
        value_name = "WHAT",
        requires = "explore",
        default_value = "answers",
        help_heading = "Search"
    )]
    expect: Expect,
    #[command(flatten)]
    watching: Watching,
}

/// Checks that a tape can hold the command line of its run, which is text there. The files that a
/// replay has no use for need not be text.
pub(super) fn check_words(options: &Boot, args: &[OsString]) -> Result<(), clap::Error> {
    let files = [&options.tape, &options.watching.record];
    let is_file = |word: &OsString| {
        let value = |option: &[u8]| word.as_bytes().strip_prefix(option);
        let values = [b"".as_slice(), b"--tape=", b"--record="].map(value);
        let is_value = |file: &PathBuf| values.contains(&Some(file.as_os_str().as_bytes()));
        files.into_iter().flatten().any(is_value)
    };
    let is_lost = |word: &&OsString| word.to_str().is_none() && !is_file(word);
    match args.iter().skip(1).find(is_lost) {
        Some(word) if options.tape.is_some() => {
            let why = format!("--tape keeps the command line as UTF-8, which {word:?} is not\n");
            Err(clap::Error::raw(ErrorKind::InvalidUtf8, why))
        }
        _ => Ok(()),
    }
}

/// Replays a tape. An error is a usage error.
pub(super) fn run(
    programs: &[Entry],
    command: &Command,
    replay: Replay,
    verbosity: &Verbosity,
    tracers: &[Extend],
) -> Result<ExitCode, clap::Error> {
    let log = Log::new(verbosity, &replay.verbosity, replay.watching.log_format);
    if let Some(name) = &replay.as_test {
        if replay.watching.is_any() {
            let why = "--as-test shows no run: leave out the options for watching\n";
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
        }
        return Ok(as_test::write(&replay.file, command.get_name(), name, log));
    }
    if let Some(record) = &replay.watching.record
        && outfile::is_same(&replay.file, record)
    {
        let tape = replay.file.display();
        let why = format!("--record would replace the tape {tape}\n");
        return Err(clap::Error::raw(ErrorKind::ValueValidation, why));
    }
    let Run {
        playing,
        mut options,
        programs: named,
    } = match open(programs, command, &replay.file)? {
        Ok(run) => run,
        Err(error) => {
            log.error(&error);
            return Ok(ExitCode::from(FAILURE));
        }
    };
    if let Some(schedules) = replay.explore {
        return explore(&replay, schedules, playing, &options, &named, log);
    }
    let header = playing.header();
    options.verbosity = replay.verbosity;
    options.watching = replay.watching;
    if let Some(tid) = replay.only {
        options.watching.trace = Some(format!("[task{{tid={tid}}}]=trace"));
    }
    let playing = match replay.at_speed {
        true => playing.at_speed(),
        false => playing,
    };
    let is_met = Rc::new(Cell::new(false));
    let meets = replay.only.map(|tid| meets(tid, &is_met));
    let code = boot::boot(
        verbosity,
        &options,
        &args::loaded(&named),
        &header.command,
        Some(playing),
        tracers.iter().chain(&meets),
    )?;
    if let Some(tid) = replay.only
        && !is_met.get()
    {
        log.warn(&format!(
            "there was no task {tid}: replay --trace shows the tasks of the run"
        ));
    }
    Ok(code)
}

/// Searches the schedules of a taped run.
fn explore(
    replay: &Replay,
    schedules: NonZeroU64,
    playing: Playing,
    options: &Boot,
    programs: &[(String, Named)],
    log: Log,
) -> Result<ExitCode, clap::Error> {
    if replay.watching.is_any_but_record() {
        let why = "--explore shows no run, and --record takes a folder there: leave out the other \
                   options for watching\n";
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
    }
    let (binary, file) = (words::binary(), replay.file.to_string_lossy());
    let expect = match replay.expect {
        Expect::Answers => "",
        Expect::Ends => "--expect ends ",
        Expect::Bytes => "--expect bytes ",
    };
    let wanted = Wanted {
        schedules: schedules.get(),
        schedule: replay.schedule.as_deref(),
        expect: replay.expect,
        record: replay.watching.record.as_deref(),
        again: format!(
            "{binary} replay --explore 1 {expect}--schedule {{replay}} {}",
            quoted(&file)
        ),
    };
    reenact::run(playing, options, programs, &wanted, log)
}

/// Adds a tracer that notes whether there is a task of this number.
fn meets(tid: u64, is_met: &Rc<Cell<bool>>) -> Extend {
    let (tid, is_met) = (Tid::from(tid), Rc::clone(is_met));
    Box::new(move |builder| {
        let is_met = Rc::clone(&is_met);
        builder.tracer(move |event: &Event<'_>| is_met.set(is_met.get() || event.tid == tid))
    })
}

/// A run on a tape: its answers, and what its command line says.
pub(super) struct Run {
    pub(super) playing: Playing,
    pub(super) options: Box<Boot>,
    pub(super) programs: Vec<(String, Named)>,
}

/// Opens a tape. The outer error is one of the command line on it, the inner one of the file.
pub(super) fn open(
    programs: &[Entry],
    command: &Command,
    file: &Path,
) -> Result<Result<Run, String>, clap::Error> {
    let playing = match Playing::open(file) {
        Ok(playing) => playing,
        Err(error) => {
            let hint = match &error {
                tape::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                    " (`boot --tape FILE PROGRAM` makes one)"
                }
                tape::Error::Foreign if file.is_file() && Recording::open(file).is_ok() => {
                    " (it is a recording, for `trace show`)"
                }
                _ => "",
            };
            return Ok(Err(format!("{}: {error}{hint}", file.display())));
        }
    };
    let header = playing.header();
    let args: Vec<OsString> = header.command.iter().map(OsString::from).collect();
    let foreign = |why: &str| {
        let (file, line) = (file.display(), clean(&words::command_line(&header.command)));
        let message = format!("in the command line of {file}, `{line}`: {why}\n");
        clap::Error::raw(ErrorKind::InvalidValue, message)
    };
    let (cli, matches) = args::parse(command, programs, &args)
        .map_err(|error| foreign(error.to_string().trim_start_matches("error: ").trim_end()))?;
    let CliCommand::Boot(mut options) = cli.command else {
        return Err(foreign("only a run of `boot` can be replayed"));
    };
    let named = args::named(programs, &options, &matches, command)?;
    options.seed = Some(header.seed);
    options.tape = None;
    Ok(Ok(Run {
        playing,
        options,
        programs: named,
    }))
}

/// What is outside of the kernel.
pub(super) struct Outside {
    set: Box<dyn FnOnce(Builder) -> Builder>,
    /// Whether it is the real world, taped or not.
    is_real: bool,
}

/// What a run has to do with a tape.
pub(super) enum Tape {
    No,
    To { writer: Writer, path: PathBuf },
    From(Progress),
}

/// How a tape has ended its replay.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// With an error.
    Failed,
    /// It holds no more of the run.
    Short,
}

impl Outside {
    /// This world, other than the real one.
    pub(super) fn of(world: impl World + 'static) -> Self {
        Self {
            set: Box::new(|builder| builder.world(world)),
            is_real: false,
        }
    }

    /// The world that the options ask for, or the one that is on a tape. `own` is that of `--world`.
    /// An error says what is wrong.
    pub(super) fn new(
        options: &Boot,
        header: &Header,
        net: &SimNet,
        watch: Option<&Watch>,
        own: Option<Box<dyn World>>,
        playing: Option<Playing>,
        log: Log,
    ) -> Result<(Self, Tape), String> {
        if let Some(playing) = playing {
            let tape = Tape::From(playing.progress());
            let playing = playing
                .print_to(stdio::Console::default())
                .stop_when(interrupts::is_raised);
            let console = stdio::Console::default();
            let attached = Attached::replayed(playing, log, console).watched(log)?;
            return Ok((Self::of(attached), tape));
        }
        if options.simulated {
            let world = SimWorld::new(header.seed).net(net);
            let world = world.print_to(stdio::Console::default());
            return Ok((Self::of(world), Tape::No));
        }
        if let Some(own) = own {
            return Self::maybe_taped(own, options, header, log);
        }
        let world = RealWorld::new().map_err(|error| format!("cannot boot: {error}"))?;
        let world = match has_screen(watch) && io::stdout().is_terminal() {
            true => world.print_to(stdio::Console::default()),
            false => world,
        };
        let (mut outside, tape) = Self::maybe_taped(world, options, header, log)?;
        outside.is_real = true;
        Ok((outside, tape))
    }

    /// This world, with a tape around it if the options ask for one.
    fn maybe_taped(
        world: impl World + 'static,
        options: &Boot,
        header: &Header,
        log: Log,
    ) -> Result<(Self, Tape), String> {
        let Some(path) = &options.tape else {
            return Ok((Self::of(world), Tape::No));
        };
        record::refuse_output("--tape", path)?;
        let world = Taping::create(world, path, header, options.tape_max).map_err(|error| {
            let why = outfile::why(path, &error);
            format!("cannot tape to {}: {why}", path.display())
        })?;
        let writer = world.writer();
        let path = path.clone();
        let world = Attached::taped(world, log);
        Ok((Self::of(world), Tape::To { writer, path }))
    }

    /// Whether the screen has to copy what the world prints to a file or a pipe.
    pub(super) fn copies(&self, watch: Option<&Watch>) -> bool {
        self.is_real && has_screen(watch) && !io::stdout().is_terminal()
    }

    /// Sets the world of a kernel.
    pub(super) fn set(self, builder: Builder) -> Builder {
        (self.set)(builder)
    }
}

fn has_screen(watch: Option<&Watch>) -> bool {
    watch.is_some_and(Watch::has_screen)
}

impl Tape {
    /// Why a monitor and a screen may kill no task, if so.
    pub(super) fn no_kill(&self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::To { .. } => {
                Some("the tape would not hold the kill: boot without --tape to kill tasks")
            }
            Self::From(_) => Some("a replay repeats its tape, so it takes no other kill"),
        }
    }

    /// What is to be done where the process ends with the kernel still running.
    pub(super) fn last_words(&self) -> Option<impl Fn() + Send + use<>> {
        let Self::To { writer, .. } = self else {
            return None;
        };
        let writer = writer.clone();
        Some(move || drop(writer.flush()))
    }

    /// Says how a replay ended, if its tape has ended it.
    pub(super) fn explain(
        &self,
        log: Log,
        kernel: &Kernel,
        result: &Result<Report, Error>,
    ) -> Option<Ending> {
        let Self::From(progress) = self else {
            return None;
        };
        let left = |left: &Left| {
            log.error(&left.to_string());
            if let Some(culprit) = culprit(kernel, left) {
                log.note(&culprit);
            }
            log.note(
                "the programs are others than those on the tape, or use what a tape does not hold, \
                 such as files and clocks",
            );
            Ending::Failed
        };
        let unfinished;
        let error = match result {
            Err(error) => tape::Error::of(error)?,
            Ok(_) if interrupts::is_raised() => return None,
            Ok(_) => {
                unfinished = progress.finish().err()?;
                &unfinished
            }
        };
        Some(match error {
            tape::Error::Left(at) => left(at),
            // As much as there is of it has run again.
            ended if ended.is_short() => {
                log.warn(&ended.to_string());
                Ending::Short
            }
            other => {
                log.error(&other.to_string());
                Ending::Failed
            }
        })
    }

    /// Ends the tape of a run that would have ended with `code`. Returns the exit code.
    pub(super) fn end(&self, log: Log, code: u8) -> u8 {
        let Self::To { writer, path } = self else {
            return code;
        };
        let path = path.display();
        match writer.close() {
            Ok(()) if writer.is_full() => {
                log.warn(&format!(
                    "the tape {path} has reached its limit: the end of the run is not on it"
                ));
                code
            }
            Ok(()) => {
                log.note(&format!("taped to {path}"));
                code
            }
            Err(error) => {
                log.error(&format!("the tape {path} is not complete: {error}"));
                if code == 0 { FAILURE } else { code }
            }
        }
    }
}

/// Names the task that left the tape, and its place in the source.
pub(super) fn culprit(kernel: &Kernel, left: &Left) -> Option<String> {
    let task = kernel.tasks().find(|task| task.tid == left.task)?;
    let mut text = format!("task {} is {:?}", task.tid, task.name);
    if let Some(place) = &task.wait.place {
        text += &format!(", in {} at {place}", task.wait.call);
    }
    if let Some(place) = &task.spawned {
        text += &format!(", spawned at {place}");
    }
    Some(text)
}
