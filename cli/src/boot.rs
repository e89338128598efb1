//! `boot`: sets up the kernel and the interrupts, and turns the result into an exit code.

use std::{
    cell::RefCell,
    hash::{BuildHasher, RandomState},
    io,
    process::{self, ExitCode},
    rc::Rc,
    slice,
    time::Duration,
};

use clap::error::ErrorKind;
use trapline::{Blocked, Builder, Deadlock, Error, Kernel, Limit, Report, TaskInfo, tape::Playing};

use super::{
    Extend,
    args::Boot,
    crash,
    exits::Exits,
    inject::Rules,
    interrupts,
    live::{self, Watch},
    log,
    net::{Placed, hosts},
    outfile,
    output::{DEADLOCK, FAILURE, LIMIT, Log, Verbosity},
    policy::{NamedShare, check_shares, warn_of_unused},
    record::{self, Recorded},
    replay::{Ending, Outside, Tape},
    stdio,
    summary::Summary,
    world::NamedWorld,
};

/// Boots the programs and runs them to their end: in the world that the options ask for, or again
/// from a tape. An error is a usage error.
pub(super) fn boot<'a>(
    verbosity: &Verbosity,
    options: &Boot,
    programs: &[Placed],
    command: &[String],
    playing: Option<Playing>,
    tracers: impl IntoIterator<Item = &'a Extend>,
) -> Result<ExitCode, clap::Error> {
    let own = options.world.as_ref().filter(|_| playing.is_none());
    let own = own.map(NamedWorld::make).transpose()?;
    let is_virtual = options.simulated || own.as_ref().is_some_and(|world| !world.spins());
    if options.processors > 1 && !is_virtual && playing.is_none() {
        let why = "--processors needs --virtual: in the real world there is one processor\n";
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
    }
    if playing.is_none() {
        check_shares(slice::from_ref(&options.policy), &options.share)?;
    }
    if let (Some(tape), Some(record)) = (&options.tape, &options.watching.record)
        && outfile::is_same(tape, record)
    {
        let tape = tape.display();
        let why = format!("--record would replace the tape {tape}: name another file\n");
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
    }
    let net = options.net.network(&hosts(programs), options.max_time)?;
    let watching = &options.watching;
    let log = Log::new(verbosity, &options.verbosity, watching.log_format);
    // A virtual clock does not move while a reader is waited for.
    stdio::watch_errors(log, is_virtual || playing.is_some());
    log::install(log, watching.trace.as_deref())
        .map_err(|error| clap::Error::raw(ErrorKind::InvalidValue, error + "\n"))?;
    log::hook_panics(log, live::leave);
    let summary = Rc::new(RefCell::new(Summary::new(watching.by_name)));
    let _screen = live::Taken;
    let watch = match Watch::new(&watching.live, log) {
        Ok(watch) => watch,
        Err(error) => {
            log.error(&error);
            return Ok(ExitCode::from(FAILURE));
        }
    };
    if let Err(error) = interrupts::survive_large_files() {
        log.error(&format!("cannot listen for signals: {error}"));
        return Ok(ExitCode::from(FAILURE));
    }
    let seed = options.seed.unwrap_or_else(random_seed);
    let (recorder, recorded) = match record::begin(options, command, seed, log) {
        Ok(recording) => recording.unzip(),
        Err(error) => {
            log.error(&error);
            return Ok(ExitCode::from(FAILURE));
        }
    };
    let rules = Rules::new(&options.inject);
    let header = record::header(options, command, seed);
    let outside = Outside::new(options, &header, &net, watch.as_ref(), own, playing, log);
    let (world, tape) = match outside {
        Ok(outside) => outside,
        Err(error) => {
            log.error(&error);
            return Ok(ExitCode::from(FAILURE));
        }
    };
    let exits = Rc::new(RefCell::new(Exits::default()));
    let copies = world.copies(watch.as_ref());
    let mut builder = settings(options, seed, &rules, world);
    if copies {
        builder = builder.tracer(stdio::copy);
    }
    if let Some(watch) = &watch {
        builder = builder.tracer(watch.tracer());
    }
    if let Some(recorder) = recorder {
        builder = builder.tracer(recorder);
    }
    if watching.summary {
        builder = builder.tracer(Summary::tracer(&summary));
    }
    if watching.exits {
        builder = builder.tracer(Exits::tracer(&exits));
    }
    builder = tracers
        .into_iter()
        .fold(builder, |builder, extend| extend(builder));
    let mut kernel = match builder.build() {
        Ok(kernel) => kernel,
        Err(error) => {
            log.error(&format!("cannot boot: {error}"));
            return Ok(ExitCode::from(FAILURE));
        }
    };
    if let Some(watch) = &watch {
        interrupts::at_end(watch.last_words());
    }
    if let Some(recorded) = recorded.clone() {
        interrupts::at_end(move || recorded.end_soon(log));
    }
    if let Some(last_words) = tape.last_words() {
        interrupts::at_end(last_words);
    }
    if let Err(error) = flush_at_crash(&tape, recorded.as_ref()) {
        log.error(&format!("cannot handle signals: {error}"));
        return Ok(ExitCode::from(FAILURE));
    }
    if let Err(error) = interrupts::listen(log, kernel.remote()) {
        log.error(&format!("cannot listen for interrupts: {error}"));
        return Ok(ExitCode::from(FAILURE));
    }
    if options.seed.is_none() {
        let seed = kernel.seed();
        log.note(&if options.simulated {
            format!("seed {seed} (repeat the run with --seed {seed})")
        } else {
            format!("seed {seed} (--seed {seed} repeats the random numbers, not the timing)")
        });
    }
    if let Err(error) = load(&mut kernel, options, programs, log) {
        log.error(&error);
        return Ok(ExitCode::from(LIMIT));
    }
    if let Some(watch) = watch {
        let recording = recorded.as_ref().map(Recorded::tape);
        watch.start(&mut kernel, recording, tape.no_kill());
    }
    let result = kernel.run();
    live::leave();
    let now = kernel.now();
    let report = match result {
        Err(Error::Deadlock(deadlock)) if deadlock.is_at_rest() => {
            log.note(&at_rest(&deadlock, now));
            Ok(kernel.report())
        }
        result => result,
    };
    let ending = tape.explain(log, &kernel, &report);
    let mut code = match ending {
        Some(Ending::Failed) => FAILURE,
        Some(Ending::Short) => explain(log, &Ok(kernel.report())),
        None => explain(log, &report),
    };
    code = tape.end(log, code);
    if let Some(signal) = interrupts::signal() {
        code = signal;
    }
    rules.report(log);
    warn_of_unused(log, kernel.unused_shares());
    if watching.summary {
        summary.borrow_mut().show(log, now);
    }
    if watching.exits && ending != Some(Ending::Failed) {
        exits.borrow().show(log);
    }
    // Taken before the kernel is dropped: ending the last tasks is no part of the run.
    if let Some(recorded) = recorded {
        code = recorded.end(log, code);
        recorded.post_mortem(log, &report);
    }
    Ok(ExitCode::from(code))
}

/// From now on a signal that kills the process leaves the tape and the recording complete up to there.
fn flush_at_crash(tape: &Tape, recorded: Option<&Recorded>) -> io::Result<()> {
    let tape = tape.last_words();
    let recording = recorded.map(|recorded| recorded.tape().clone());
    if tape.is_none() && recording.is_none() {
        return Ok(());
    }
    crash::at_crash(move || {
        if let Some(flush) = &tape {
            flush();
        }
        if let Some(recording) = &recording {
            // No run is left to report the error.
            let _ = recording.flush();
        }
    })
}

/// Starts the programs on their hosts. An error says what is wrong.
pub(super) fn load(
    kernel: &mut Kernel,
    options: &Boot,
    programs: &[Placed],
    log: Log,
) -> Result<(), String> {
    let mut booted = programs
        .iter()
        .try_for_each(|Placed { host, image }| image(kernel, host).map(drop));
    if options.simulated {
        booted = booted.and_then(|()| options.net.arrange(kernel, programs, log));
    }
    booted.map_err(|errno| format!("cannot boot: {errno}: raise --max-tasks"))
}

/// The settings of a kernel that the options ask for, without tracers.
pub(super) fn settings(options: &Boot, seed: u64, rules: &Rules, world: Outside) -> Builder {
    let builder = Kernel::builder()
        .seed(seed)
        .quantum(options.quantum.get())
        .processors(options.processors)
        .on_deadlock(options.on_deadlock.into());
    let mut builder = options.policy.set(world.set(builder), seed);
    for NamedShare { name, share } in &options.share {
        builder = builder.share(name, *share);
    }
    if !options.inject.is_empty() {
        builder = builder.inject(rules.injection());
    }
    if let Some(tasks) = options.max_tasks {
        builder = builder.max_tasks(tasks);
    }
    if let Some(ticks) = options.max_ticks {
        builder = builder.max_ticks(ticks);
    }
    if let Some(time) = options.max_time {
        builder = builder.max_time(time);
    }
    if let Some(span) = options.max_stall {
        builder = builder.max_stall(span);
    }
    builder
}

/// A random seed, short enough to be typed again.
pub(super) fn random_seed() -> u64 {
    RandomState::new().hash_one(process::id()) % 1_000_000_000
}

/// Says that the servers are left, and nothing for them to do. Lists the other tasks that wait, such as
/// a client without an answer.
pub(super) fn at_rest(deadlock: &Deadlock, now: Duration) -> String {
    let accepts = |task: &TaskInfo| task.wait.is_accept;
    let (servers, others): (Vec<_>, Vec<_>) = deadlock.blocked.iter().cloned().partition(accepts);
    let servers: Vec<String> = servers
        .iter()
        .map(|task| format!("{} {:?}", task.tid, task.name))
        .collect();
    let others = match others.len() {
        0 => String::new(),
        _ => format!("; these tasks wait, too:{}", Blocked(others)),
    };
    format!(
        "the run ends at {now:.3?}: nothing can come any more for the servers, task {}{others}",
        servers.join(", task ")
    )
}

/// Says that a limit is reached, and which tasks are blocked.
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
fn explain(log: Log, result: &Result<Report, Error>) -> u8 {
    match result {
        Ok(report) if report.failures == 0 && report.lost == 0 => 0,
        // Each failure was reported when it happened, and so were lost lines.
        Ok(_) => FAILURE,
        Err(Error::Deadlock(deadlock)) => {
            log.error(&deadlock.to_string());
            DEADLOCK
        }
        Err(Error::Limit(limit, blocked)) => {
            log.error(&at_limit(limit, blocked));
            LIMIT
        }
        Err(Error::Stalled(stalled)) => {
            log.error(&stalled.to_string());
            DEADLOCK
        }
        // The reader closed the output early.
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            log.error(&error.to_string());
            FAILURE
        }
    }
}
