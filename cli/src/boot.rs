//! `boot`: a session is a run from its options to its exit code.

use std::{
    cell::{Cell, RefCell},
    hash::{BuildHasher, RandomState},
    io::{self, IsTerminal},
    path::Path,
    process::{self, ExitCode},
    rc::Rc,
    slice,
    sync::Arc,
    time::Duration,
};

use tracing::Level;
use trapline::{
    Blocked, Builder, Deadlock, Error, Kernel, Limit, Report, TaskInfo, record::Header,
    tape::Playing,
};

use super::{
    app::Extend,
    crash,
    desk::Desk,
    exits::Exits,
    inject::Rules,
    live::{
        terminal::{Taken, leave},
        watch::Observation,
    },
    log,
    options::{Boot, BootLine},
    outfile,
    output::{DEADLOCK, FAILURE, Failure, LIMIT, Log, Verbosity},
    outside::{Outside, Place, Screen},
    panics,
    policy::{NamedShare, check_shares, warn_of_unused},
    program::hosts,
    progress,
    record::{self, Recorded},
    signals, stdio,
    summary::Summary,
    tape::{Ending, Tape},
    units,
    values::{given, text_of, usage},
    world::NamedWorld,
};

/// Boots the programs and runs them to their end: in the world that the options ask for, or again
/// from a tape. An error is a usage error.
pub(super) fn boot<'a>(
    verbosity: &Verbosity,
    line: &BootLine,
    command: &[String],
    playing: Option<(Playing, u64)>,
    tracers: impl IntoIterator<Item = &'a Extend>,
) -> Result<ExitCode, clap::Error> {
    let BootLine {
        options, programs, ..
    } = line;
    let own = options.world.as_ref().filter(|_| playing.is_none());
    let own = own.map(NamedWorld::make).transpose()?;
    let is_virtual = options.simulated || own.as_ref().is_some_and(|world| !world.spins());
    check(line, is_virtual, playing.is_some())?;
    let net = options.net.network(&hosts(programs), options.max_time)?;
    let log = Log::new(verbosity, &options.verbosity, options.watching.log_format);
    // A virtual clock does not move while a reader is waited for.
    let waits = is_virtual || playing.is_some();
    stdio::watch_errors(waits, move |message| log.message(Level::WARN, message));
    log::install(log, options.watching.trace.as_deref())?;
    panics::hook(log);
    let _screen = Taken;
    let place = Place { net, own, playing };
    log.end(run(log, line, command, place, tracers))
}

/// Checks options that `clap` cannot check alone.
pub(super) fn check(line: &BootLine, is_virtual: bool, is_replay: bool) -> Result<(), clap::Error> {
    let options = &line.options;
    if !is_replay {
        if options.processors > 1 && !is_virtual {
            let why = "--processors needs --virtual: in the real world there is one processor";
            return Err(usage(why));
        }
        if !options.signal.is_empty() && !is_virtual {
            let why = "--signal needs --virtual: in the real world, send signals to the process, as \
                       by kill -TERM";
            return Err(usage(why));
        }
        let limit = options.max_time;
        let is_late = |at: Duration| limit.is_some_and(|limit| at > limit);
        if let Some((at, signal)) = options.signal.iter().find(|(at, _)| is_late(*at)) {
            let why =
                format!("--signal: {signal} at {at:?} is after --max-time, and would not come");
            return Err(usage(why));
        }
        check_shares(slice::from_ref(&options.policy), &options.share)?;
    }
    check_files(line, is_replay)
}

/// Checks that no file which the run makes takes the place of one that another option names.
pub(super) fn check_files(line: &BootLine, is_replay: bool) -> Result<(), clap::Error> {
    let options = &line.options;
    let tape = options.tape.as_deref();
    let record = options.watching.record.as_deref();
    if let (Some(tape), Some(record)) = (tape, record)
        && outfile::is_same(tape, record)
    {
        let tape = tape.display();
        let why = format!("--record would replace the tape {tape}: name another file");
        return Err(usage(why));
    }
    let socket = options.watching.live.socket();
    // What a replay reads is on its tape.
    let input = options.stdin.as_deref().filter(|_| !is_replay);
    let scripts = line.scripts().map(|path| ("--script", path));
    let read = input.map(|path| ("--stdin", path)).into_iter();
    let read: Vec<_> = read.chain(scripts).collect();
    for (option, path) in [("--tape", tape), ("--record", record)] {
        let Some(path) = path else { continue };
        let is_it = |other: &Path| outfile::is_same(path, other);
        let shown = path.display();
        if socket.is_some_and(is_it) {
            let why = format!("{option} and --monitor are both {shown}: name another file");
            return Err(usage(why));
        }
        // A pipe and a device are not replaced.
        let mut replaced = read.iter().filter(|_| path.is_file());
        if let Some((other, _)) = replaced.find(|(_, other)| is_it(other)) {
            let why =
                format!("{option} would replace {shown}, which {other} reads: name another file");
            return Err(usage(why));
        }
    }
    Ok(())
}

fn run<'a>(
    log: Log,
    line: &BootLine,
    command: &[String],
    place: Place,
    tracers: impl IntoIterator<Item = &'a Extend>,
) -> Result<ExitCode, Failure> {
    let (mut session, mut kernel) = Session::open(log, line, command, place, tracers)?;
    session.guard(&kernel)?;
    session.start(&mut kernel)?;
    let result = kernel.run();
    leave();
    Ok(ExitCode::from(session.report(&mut kernel, result)))
}

struct Session<'a> {
    log: Log,
    line: &'a BootLine,
    command: &'a [String],
    /// Whether a shell edits lines on the terminal.
    is_typed_at: bool,
    /// Whether the run does not wait for time to pass.
    is_metered: bool,
    rules: Rules,
    watch: Option<Observation>,
    recorded: Option<Recorded>,
    tape: Tape,
    summary: Rc<RefCell<Summary>>,
    exits: Rc<RefCell<Exits>>,
    /// That of the shells.
    code: Rc<Cell<u8>>,
}

impl<'a> Session<'a> {
    /// Opens what the options name: the socket, the screen, the recording, the tape and the world.
    /// Makes the kernel, with the tracers that the options ask for and those of the binary.
    fn open<'t>(
        log: Log,
        line: &'a BootLine,
        command: &'a [String],
        place: Place,
        tracers: impl IntoIterator<Item = &'t Extend>,
    ) -> Result<(Self, Kernel), String> {
        let options = &line.options;
        let watching = &options.watching;
        let watch = Observation::new(&watching.live, log)?;
        signals::survive_large_files()?;
        let seed = options.seed.unwrap_or_else(random_seed);
        let header = record::header(options, command, seed);
        let (recorder, recorded) =
            record::begin(watching, watching.record.clone(), &header, log)?.unzip();
        let has_screen = watch.as_ref().is_some_and(Observation::has_screen);
        // What a replay reads is on its tape.
        let input = options.stdin.as_deref().filter(|_| place.playing.is_none());
        let input = text_of(input)?;
        // A replay has what was typed on its tape.
        let is_typed_at = place.playing.is_none()
            && !has_screen
            && options.stdin.is_none()
            && line.has_shell()
            && io::stdin().is_terminal()
            && io::stdout().is_terminal();
        let screen = Screen {
            is_drawn: has_screen,
            is_typed_at,
        };
        let is_replay = place.playing.is_some();
        let taped = place.playing.as_ref();
        let taped = taped.and_then(|(playing, _)| playing.header().kernel);
        let own = place.own.as_ref();
        let is_virtual = options.simulated || own.is_some_and(|world| !world.spins());
        let (outside, tape) = Outside::new(place, options, &header, screen, log)?;
        let rules = Rules::new(&options.inject);
        let summary = Rc::new(RefCell::new(Summary::new(watching.by_name)));
        let exits = Rc::default();
        let copy = outside.copies.then_some(stdio::copy);
        let mut builder = settings(line, seed, &rules, outside);
        builder = given(builder, taped.map(|(kernel, _)| kernel), Builder::number);
        builder = given(builder, input, Builder::input);
        builder = given(builder, copy, Builder::tracer);
        let live = watch.as_ref().map(Observation::tracer);
        builder = given(builder, live, Builder::tracer);
        builder = given(builder, recorder, Builder::tracer);
        let meter = (is_virtual || is_replay) && !has_screen && io::stderr().is_terminal();
        let meter = meter.then(|| progress::of_run(share(options, &tape)));
        builder = given(builder, meter, Builder::tracer);
        let counts = watching.summary.then(|| Summary::tracer(&summary));
        builder = given(builder, counts, Builder::tracer);
        let ends = watching.exits.then(|| Exits::tracer(&exits));
        builder = given(builder, ends, Builder::tracer);
        let tracers = tracers.into_iter();
        let builder = tracers.fold(builder, |builder, extend| extend(builder));
        let kernel = builder.build();
        let kernel = kernel.map_err(|error| format!("cannot boot: {error}"))?;
        let session = Self {
            log,
            line,
            command,
            is_typed_at,
            is_metered: is_virtual || is_replay,
            rules,
            watch,
            recorded,
            tape,
            summary,
            exits,
            code: Rc::default(),
        };
        Ok((session, kernel))
    }

    /// Has an interrupt end the run, and a signal that ends the process leave whole files.
    fn guard(&self, kernel: &Kernel) -> Result<(), String> {
        let log = self.log;
        if let Some(watch) = &self.watch {
            signals::at_end(watch.last_words());
        }
        if let Some(recorded) = self.recorded.clone() {
            signals::at_end(move || recorded.end_soon(log));
        }
        if let Some(last_words) = self.tape.last_words() {
            signals::at_end(last_words);
        }
        self.flush_at_crash()
            .map_err(|error| format!("cannot handle signals: {error}"))?;
        let say = move || log.note("interrupted: shutting down (again to end at once)");
        let takes = !matches!(self.tape, Tape::From { .. });
        signals::listen(&kernel.remote(), takes, say)
    }

    /// From now on a signal that kills the process leaves the tape and the recording complete up to
    /// there.
    fn flush_at_crash(&self) -> io::Result<()> {
        let tape = self.tape.last_words();
        let recording = self.recorded.as_ref();
        let recording = recording.map(|recorded| recorded.handle.clone());
        if tape.is_none() && recording.is_none() {
            return Ok(());
        }
        crash::at_crash(move || {
            tape.iter().for_each(|flush| flush());
            // No run is left to report the error.
            recording
                .iter()
                .for_each(|recording| drop(recording.flush()));
        })
    }

    fn start(&mut self, kernel: &mut Kernel) -> Result<(), Failure> {
        let (log, options) = (self.log, &self.line.options);
        if options.seed.is_none() {
            let seed = kernel.seed();
            log.note(&if options.simulated {
                format!("seed {seed} (repeat the run with --seed {seed})")
            } else {
                format!("seed {seed} (--seed {seed} repeats the random numbers, not the timing)")
            });
        }
        let mut desk = desk(self.line, &self.rules);
        desk.header = record::header(options, self.command, kernel.seed());
        (desk.shown, desk.is_typed_at) = (Some(log), self.is_typed_at);
        desk.has_no_input = options.simulated && options.stdin.is_none();
        desk.code = Some(Rc::clone(&self.code));
        load(kernel, self.line, desk, log).map_err(Failure::Limit)?;
        if let Some(watch) = self.watch.take() {
            let recording = self.recorded.as_ref().map(|recorded| &recorded.handle);
            watch.start(kernel, recording, self.tape.no_kill(), None);
        }
        Ok(())
    }

    /// Says how the run has ended, and ends the tape and the recording. Returns the exit code.
    fn report(&self, kernel: &mut Kernel, result: Result<Report, Error>) -> u8 {
        let (log, watching, now) = (self.log, &self.line.options.watching, kernel.now());
        let result = match result {
            Err(Error::Deadlock(deadlock)) if deadlock.is_at_rest() => {
                log.note(&at_rest(&deadlock, now));
                Ok(kernel.report())
            }
            result => result,
        };
        let ending = self.tape.explain(log, "", Some(kernel), &result);
        let code = match ending {
            Some(Ending::Failed | Ending::Cut) => FAILURE,
            Some(Ending::Short) => explain(log, &Ok(kernel.report())),
            None => explain(log, &result),
        };
        let of_shells = self.code.get();
        let code = match (ending, &result) {
            (None, Ok(report)) if report.lost == 0 && of_shells != 0 => of_shells,
            // The shells have nothing to do with such an end.
            _ => code,
        };
        let code = self.tape.end(log, code);
        // A signal from outside that no task has caught ends the run itself.
        let ended_by = kernel.ended_by().filter(|_| signals::signal().is_none());
        if let Some(signal) = ended_by {
            log.note(&format!("{signal} has ended the run: no task has taken it"));
        }
        let ended_by = ended_by.map(signals::exit_code_of);
        let mut code = signals::signal().or(ended_by).unwrap_or(code);
        if signals::is_raised() && self.is_metered {
            let Report { ticks, traps, .. } = kernel.report();
            let (ticks, traps) = (units::count(ticks, "tick"), units::count(traps, "trap"));
            log.note(&format!("it came to {now:.3?} in {ticks} and {traps}"));
        }
        self.rules.report(log);
        warn_of_unused(log, kernel.unused_shares());
        let ended = signals::signal().is_none() && ended_by.is_none();
        for (at, signal) in self.line.options.signal.iter().filter(|_| ended) {
            if *at > now {
                log.warn(&format!(
                    "--signal did nothing: the run ended before {signal} came, at {at:?}"
                ));
            }
        }
        if watching.summary {
            // What the kernel's end tells is no part of the run.
            self.summary.take().show(log, now);
        }
        if watching.exits && ending != Some(Ending::Failed) {
            self.exits.borrow().show(log);
        }
        // Taken before the kernel is dropped: ending the last tasks is no part of the run.
        if let Some(recorded) = &self.recorded {
            code = recorded.end(log, code);
            recorded.post_mortem(log, &result);
        }
        code
    }
}

/// The part of a run that is done, where a tape or a limit tells it.
fn share(options: &Boot, tape: &Tape) -> impl Fn(Duration, u64) -> Option<f64> + use<> {
    let (time, ticks, tape) = (options.max_time, options.max_ticks, tape.share());
    move |now, done| {
        let time = time.map(|most| now.as_secs_f64() / most.as_secs_f64());
        let ticks = ticks.map(|most| done as f64 / most as f64);
        let tape = tape.as_ref().map(|share| share());
        // The limit that is reached first.
        tape.or(time).into_iter().chain(ticks).reduce(f64::max)
    }
}

/// What the programs can change of a run with these rules.
pub(super) fn desk(line: &BootLine, rules: &Rules) -> Desk {
    Desk {
        rules: rules.clone(),
        net: None,
        policies: Arc::clone(&line.policies),
        header: Header::default(),
        shown: None,
        is_typed_at: false,
        has_no_input: false,
        code: Some(Rc::default()),
        disk: line.options.disk.clone().map(Arc::new),
    }
}

pub(super) fn load(
    kernel: &mut Kernel,
    line: &BootLine,
    mut desk: Desk,
    log: Log,
) -> Result<(), String> {
    let BootLine {
        options, programs, ..
    } = line;
    desk.net = options.simulated.then(|| kernel.net());
    let mut booted = programs
        .iter()
        .try_for_each(|placed| placed.spawn(kernel, Some(&desk)).map(drop));
    if options.simulated {
        booted = booted.and_then(|()| options.net.arrange(kernel, programs, Some(&desk), log));
    }
    for (at, signal) in &options.signal {
        kernel.signal_at(*at, *signal);
    }
    booted.map_err(|errno| format!("cannot boot: {errno}: raise --max-tasks"))
}

pub(super) fn settings(line: &BootLine, seed: u64, rules: &Rules, world: Outside) -> Builder {
    let options = &line.options;
    let builder = Kernel::builder()
        .seed(seed)
        .quantum(options.quantum.get())
        .processors(options.processors)
        .on_deadlock(options.on_deadlock);
    let mut builder = options.policy.set(world.set(builder), seed);
    for NamedShare { name, share } in &options.share {
        builder = builder.share(name, *share);
    }
    // A shell may add rules.
    if !options.inject.is_empty() || line.has_shell() {
        builder = builder.inject(rules.injection());
    }
    builder = given(builder, options.max_tasks, Builder::max_tasks);
    builder = given(builder, options.max_ticks, Builder::max_ticks);
    builder = given(builder, options.max_time, Builder::max_time);
    given(builder, options.max_stall, Builder::max_stall)
}

/// A random seed, short enough to be typed again.
pub(super) fn random_seed() -> u64 {
    RandomState::new().hash_one(process::id()) % 1_000_000_000
}

/// Says that the servers are left, and nothing for them to do. Lists the other tasks that wait, such as
/// a client without an answer, but no daemons: these wait as long as they live.
pub(super) fn at_rest(deadlock: &Deadlock, now: Duration) -> String {
    let accepts = |task: &TaskInfo| task.wait.is_accept;
    let tasks = deadlock.blocked.iter().filter(|task| !task.is_daemon);
    let (servers, others): (Vec<_>, Vec<_>) = tasks.cloned().partition(accepts);
    let named = |task: &TaskInfo| format!("{} {:?}", task.tid, task.name);
    let servers: Vec<String> = servers.iter().map(named).collect();
    let others = match &others[..] {
        [] => String::new(),
        _ => format!("; these tasks wait, too:{}", Blocked(others)),
    };
    format!(
        "the run ends at {now:.3?}: nothing can come any more for the servers, task {}{others}",
        servers.join(", task ")
    )
}

pub(super) fn at_limit(limit: &Limit, blocked: &Blocked) -> String {
    match limit {
        Limit::Ticks(_) => format!("{limit}: raise --max-ticks{blocked}"),
        // In the unit of the option.
        Limit::Time(span) => {
            let span = humantime::format_duration(*span);
            format!("the limit of {span} is reached: raise --max-time{blocked}")
        }
        _ => format!("{limit}{blocked}"),
    }
}

/// Says why the kernel stopped, if needed, and returns the exit code.
pub(super) fn explain(log: Log, result: &Result<Report, Error>) -> u8 {
    let (message, code) = match result {
        Ok(report) if report.failures == 0 && report.lost == 0 => return 0,
        // Each failure was reported when it happened, and so were lost lines.
        Ok(_) => return FAILURE,
        // The reader closed the output early.
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => return 0,
        Err(Error::Limit(limit, blocked)) => (at_limit(limit, blocked), LIMIT),
        Err(error @ (Error::Deadlock(_) | Error::Stalled(_))) => (error.to_string(), DEADLOCK),
        Err(error) => (error.to_string(), FAILURE),
    };
    log.error(&message);
    code
}
