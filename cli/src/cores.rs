//! `boot --kernels`: the same programs in several kernels, each on a thread.
//!
//! Each has a socket of its own for `--monitor`, and a recording of its own for `--record`: the number of
//! the kernel is behind the name. A socket without a number is for all of them. What several kernels cannot
//! honour is a usage error. A tape is a file for each kernel, too, and all of them are replayed together.

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs,
    io::{self, ErrorKind},
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tracing::Level;
use trapline::{
    Builder, Error, Kernel, KernelId, Kernels, RealWorld, Report, SharedPorts,
    record::{Header, Recorder},
    tape::{self, Playing},
};

use super::{
    app::Extend,
    boot::{check_files, desk, explain, load, random_seed, settings},
    crash,
    inject::Rules,
    live::{front::Front, watch::Observation},
    log,
    options::{Boot, BootLine},
    outfile,
    output::{FAILURE, Failure, Log, Verbosity},
    outside::Outside,
    panics,
    policy::check_shares,
    program::hosts,
    record::{self, Recorded},
    signals, stdio,
    tape::{Ending, Tape},
    together::Together,
    values::{given, text_of, usage},
};

/// The tapes of kernels that are replayed together.
pub(super) struct Replayed {
    /// Their names without the numbers of the kernels.
    pub(super) file: PathBuf,
    /// Their texts in order; `None` at the speed of the run.
    pub(super) together: Option<Together>,
}

/// Boots the programs in each kernel, and runs them to their end: in the real world, or again from tapes. An
/// error is a usage error.
pub(super) fn boot(
    verbosity: &Verbosity,
    line: &BootLine,
    command: &[String],
    replayed: Option<&Replayed>,
    tracers: &[Extend],
) -> Result<ExitCode, clap::Error> {
    let options = &line.options;
    check(line, tracers)?;
    check_files(line, replayed.is_some())?;
    // For its errors: there is no simulated network.
    options
        .net
        .network(&hosts(&line.programs), options.max_time)?;
    let log = Log::new(verbosity, &options.verbosity, options.watching.log_format);
    stdio::watch_errors(false, move |message| log.message(Level::WARN, message));
    log::install(log, options.watching.trace.as_deref())?;
    panics::hook(log);
    log.end(run(log, line, command, replayed))
}

/// Checks that several kernels can honour the options.
fn check(line: &BootLine, tracers: &[Extend]) -> Result<(), clap::Error> {
    let options = &line.options;
    let Boot { watching, net, .. } = &**options;
    // The network implies --virtual, so its options are named first.
    let others = [
        ("--world", options.world.is_some()),
        ("--virtual", options.simulated),
        ("--signal", !options.signal.is_empty()),
        ("--disk", options.disk.is_some()),
        ("--processors", options.processors > 1),
        ("--inject", !options.inject.is_empty()),
        ("--summary", watching.summary),
        ("--post-mortem", watching.post_mortem),
        ("--exits", watching.exits),
        ("--top", watching.live.has_top()),
    ];
    let mut refused = net.given().into_iter().chain(others);
    if let Some((option, _)) = refused.find(|(_, is_given)| *is_given) {
        let why = format!(
            "--kernels runs kernels side by side, which {option} is not for: leave one out"
        );
        return Err(usage(why));
    }
    if line.has_shell() {
        return Err(usage("--kernels is not for a shell, which has one kernel"));
    }
    if !tracers.is_empty() {
        let why = "--kernels is not for this binary: its tracers belong to one kernel";
        return Err(usage(why));
    }
    // The commands for all kernels would find this file instead of those of the kernels.
    for (option, path) in [("--record", &watching.record), ("--tape", &options.tape)] {
        let Some(path) = path.as_deref().filter(|path| path.exists()) else {
            continue;
        };
        let (first, path) = (outfile::of_kernel(path, KernelId::at(0)), path.display());
        let why = format!(
            "{option} {path}: with --kernels each kernel writes a file with its number, such as {}, and \
             {path} stands for all of them: remove that file, or name another",
            first.display()
        );
        return Err(usage(why));
    }
    check_shares(std::slice::from_ref(&options.policy), &options.share)
}

fn run(
    log: Log,
    line: &BootLine,
    command: &[String],
    replayed: Option<&Replayed>,
) -> Result<ExitCode, Failure> {
    let options = &line.options;
    signals::survive_large_files()?;
    let seed = options.seed.unwrap_or_else(random_seed);
    if options.seed.is_none() {
        let text =
            format!("seed {seed} (--seed {seed} repeats the random numbers, not the timing)");
        log.note(&text);
    }
    // What a replay reads is on its tape.
    let input = options.stdin.as_deref().filter(|_| replayed.is_none());
    let input = text_of(input)?;
    let running = signals::Kernels::default();
    let say = move || log.note("interrupted: shutting down (again to end at once)");
    signals::listen_for(running.clone(), replayed.is_none(), say)?;
    let front = Front::open(&options.watching.live, options.kernels)?;
    let ports = SharedPorts::new();
    let written = Arc::new(Written::default());
    if options.watching.record.is_some() || options.tape.is_some() {
        flush_at_crash(&written).map_err(|error| format!("cannot handle signals: {error}"))?;
    }
    let booting = Booting {
        log,
        line,
        command,
        seed,
        ports: &ports,
        begin: Instant::now(),
        input: input.as_deref(),
        written: &written,
        replayed,
    };
    let results = Kernels::new(options.kernels).run(|id| {
        let kernel = booting.boot(id).inspect_err(|_| booting.has_failed(id));
        let kernel = kernel.map_err(io::Error::other)?;
        running.add(id, &kernel.remote());
        front.as_ref().map_or(Ok(()), Front::booted)?;
        Ok(kernel)
    });
    if let Some(front) = front {
        front.end();
    }
    if let Some(Replayed {
        together: Some(together),
        ..
    }) = replayed
    {
        together.end();
    }
    let mut code = report(log, &results, &lock(&written.tapes));
    for tape in lock(&written.tapes).values() {
        code = tape.end(log, code);
    }
    for recorded in lock(&written.recordings).values() {
        code = recorded.end(log, code);
    }
    Ok(ExitCode::from(code))
}

/// The files of the kernels.
#[derive(Default)]
struct Written {
    recordings: Mutex<BTreeMap<KernelId, Recorded>>,
    tapes: Mutex<BTreeMap<KernelId, Tape>>,
}

/// From now on a signal that kills the process leaves the tapes and the recordings complete up to there.
fn flush_at_crash(written: &Arc<Written>) -> io::Result<()> {
    let written = Arc::clone(written);
    crash::at_crash(move || {
        let tapes = lock(&written.tapes);
        tapes
            .values()
            .filter_map(Tape::last_words)
            .for_each(|flush| flush());
        // No run is left to report an error.
        let recordings = lock(&written.recordings);
        recordings
            .values()
            .for_each(|recorded| drop(recorded.handle.flush()));
    })
}

/// What each kernel is made from.
struct Booting<'a> {
    log: Log,
    line: &'a BootLine,
    command: &'a [String],
    seed: u64,
    ports: &'a SharedPorts,
    /// When the clocks of all begin.
    begin: Instant,
    input: Option<&'a [u8]>,
    written: &'a Written,
    replayed: Option<&'a Replayed>,
}

impl Booting<'_> {
    /// Boots one of the kernels. An error says why it cannot.
    fn boot(&self, id: KernelId) -> Result<Kernel, String> {
        let (log, line) = (self.log, self.line);
        let options = &line.options;
        let cannot = |error: &dyn Display| format!("cannot boot: {error}");
        let seed = self.seed.wrapping_add(id.index() as u64);
        let watch = Observation::new(&options.watching.live.of_kernel(id), log)?;
        let mut header = record::header(options, self.command, seed);
        header.kernel = Some((id, options.kernels));
        let recorder = self.record(id, &header)?;
        let (world, tape) = match self.replayed {
            Some(replayed) => Self::played(replayed, id, log)?,
            None => {
                let world = RealWorld::new().map_err(|error| cannot(&error))?;
                let world = world.share_ports(self.ports).since(self.begin);
                let world = world.disk_advice("give it one by --disk DIR, without --kernels");
                let path = options.tape.as_deref();
                let path = path.map(|path| outfile::of_kernel(path, id));
                Outside::maybe_taped(world, path.as_deref(), options, &header, log)?
            }
        };
        let no_kill = tape.no_kill();
        if let Some(last_words) = tape.last_words() {
            signals::at_end(last_words);
        }
        lock(&self.written.tapes).insert(id, tape);
        let rules = Rules::new(&[]);
        let mut builder = settings(line, seed, &rules, world).number(id);
        builder = match id.index() {
            _ if self.replayed.is_some() => builder,
            0 => given(builder, self.input, Builder::input),
            // Each line is for one of them.
            _ => builder.input(""),
        };
        builder = given(
            builder,
            watch.as_ref().map(Observation::tracer),
            Builder::tracer,
        );
        builder = given(builder, recorder, Builder::tracer);
        let mut kernel = builder.build().map_err(|error| cannot(&error))?;
        let mut desk = desk(line, &rules);
        (desk.header, desk.shown) = (header, Some(log));
        load(&mut kernel, line, desk, log)?;
        if let Some(watch) = watch {
            signals::at_end(watch.last_words());
            let recorded = lock(&self.written.recordings);
            let handle = recorded.get(&id).map(|recorded| &recorded.handle);
            watch.start(&mut kernel, handle, no_kill, Some(id));
        }
        Ok(kernel)
    }

    /// The others do not wait for the lines of a kernel that did not boot.
    fn has_failed(&self, id: KernelId) {
        let together = self
            .replayed
            .and_then(|replayed| replayed.together.as_ref());
        if let Some(together) = together {
            together.is_over(id);
        }
    }

    /// The world on the tape of a kernel.
    fn played(replayed: &Replayed, id: KernelId, log: Log) -> Result<(Outside, Tape), String> {
        let file = outfile::of_kernel(&replayed.file, id);
        let bytes = fs::metadata(&file).map_or(0, |file| file.len());
        let playing = Playing::open(&file);
        let playing = playing.map_err(|error| format!("{}: {error}", file.display()))?;
        let taped = playing.header().kernel.map(|(kernel, _)| kernel);
        if taped != Some(id) {
            return Err(format!("{} is no tape of kernel {id}", file.display()));
        }
        match &replayed.together {
            Some(together) => {
                let console = together.console(id, playing.progress());
                Outside::played(playing, bytes, move || console.clone(), log)
            }
            None => Outside::played(playing.at_speed(), bytes, stdio::Console::default, log),
        }
    }

    /// Begins the recording of a kernel, if the options ask for it.
    fn record(&self, id: KernelId, header: &Header) -> Result<Option<Recorder>, String> {
        let watching = &self.line.options.watching;
        let path = watching.record.as_deref();
        let path = path.map(|path| outfile::of_kernel(path, id));
        let Some((recorder, recorded)) = record::begin(watching, path, header, self.log)? else {
            return Ok(None);
        };
        let (log, last) = (self.log, recorded.clone());
        signals::at_end(move || last.end_soon(log));
        lock(&self.written.recordings).insert(id, recorded);
        Ok(Some(recorder))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says how the kernels have ended. Returns the exit code: of a signal, or of the first that has ended by an error
/// of its own, or that of a failed task. Errors come first: a kernel that another has shut down may have failed
/// tasks, too, and its replay does not tell why it was shut down.
fn report(log: Log, results: &[Result<Report, Error>], tapes: &BTreeMap<KernelId, Tape>) -> u8 {
    let (mut of_errors, mut of_tasks) = (0, 0);
    let mut ended_by = None;
    let early = ends_early(results);
    for (index, result) in results.iter().enumerate() {
        let id = KernelId::at(index);
        match result {
            // It is shown for the kernel that it is about.
            Err(Error::Peer { .. }) => continue,
            // The reader closed the output early.
            Err(Error::Io(error)) if error.kind() == ErrorKind::BrokenPipe => continue,
            Err(_) => {}
            Ok(report) => ended_by = ended_by.or(report.ended_by),
        }
        let name = format!("kernel {id}: ");
        let ending = match early.filter(|_| lacks_mail(result)) {
            Some(early) => {
                let why = format!(
                    "{name}its tape needs a message that another kernel would have put later than its own \
                     tape ends"
                );
                match early {
                    Ending::Short => log.warn(&why),
                    Ending::Failed | Ending::Cut => log.error(&why),
                }
                Some(early)
            }
            None => tapes
                .get(&id)
                .and_then(|tape| tape.explain(log, &name, None, result)),
        };
        let of_kernel = match ending {
            Some(Ending::Failed | Ending::Cut) => FAILURE,
            Some(Ending::Short) => 0,
            None => {
                if result.is_err() {
                    log.error(&format!("kernel {id} has failed:"));
                }
                explain(log, result)
            }
        };
        let code = match ending.is_some() || result.is_err() {
            true => &mut of_errors,
            false => &mut of_tasks,
        };
        *code = if *code == 0 { of_kernel } else { *code };
    }
    let ended_by = ended_by.filter(|_| signals::signal().is_none());
    if let Some(signal) = ended_by {
        log.note(&format!("{signal} has ended the run: no task has taken it"));
    }
    let ended_by = ended_by.map(signals::exit_code_of);
    let code = if of_errors == 0 { of_tasks } else { of_errors };
    signals::signal().or(ended_by).unwrap_or(code)
}

/// How the tapes end that end before the run does, if any. All must have reached the limit of their size for that
/// to be no error.
fn ends_early(results: &[Result<Report, Error>]) -> Option<Ending> {
    let ending = |error: &tape::Error| match error {
        tape::Error::Full { .. } => Some(Ending::Short),
        tape::Error::Corrupt { .. } => Some(Ending::Cut),
        error => error.is_short().then_some(Ending::Cut),
    };
    let endings = results.iter().filter_map(of_tape).filter_map(ending);
    endings.reduce(|one, other| match one {
        Ending::Short => other,
        one => one,
    })
}

/// The error of a tape that has ended the replay.
fn of_tape(result: &Result<Report, Error>) -> Option<&tape::Error> {
    let error = result.as_ref().err()?;
    tape::Error::of(error)
}

fn lacks_mail(result: &Result<Report, Error>) -> bool {
    matches!(of_tape(result), Some(tape::Error::Left(left)) if left.lacks_mail())
}
