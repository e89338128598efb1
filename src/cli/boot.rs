//! `boot`: the kernel's settings, interrupts, and how it ended as an exit code.

use std::{
    cell::RefCell,
    hash::{BuildHasher, RandomState},
    io, panic,
    process::{self, ExitCode},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    thread,
};

use clap::error::ErrorKind;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{
    FAILURE, Image,
    args::{Boot, Policy, Tone},
    live::Watch,
    log::{self, Log},
    record::{self, Recorded},
    summary::Summary,
};
use crate::{Error, Kernel, Limit, Remote, Report, SimWorld, record::Recorder};

const DEADLOCK: u8 = 3;
const LIMIT: u8 = 4;

/// Boots the programs and runs them to their end. An error is one of usage.
pub(super) fn boot(
    tone: &Tone,
    options: &Boot,
    images: Vec<Image>,
    command: &[String],
) -> Result<ExitCode, clap::Error> {
    let log = Log::new(tone, options);
    log::install(log, options)
        .map_err(|error| clap::Error::raw(ErrorKind::InvalidValue, error + "\n"))?;
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let file = panic.location().map_or("", panic::Location::file);
        // A generator's own panic says that a task awaited what is no trap; the kernel says it in
        // plain words.
        if file.contains("genawaiter") {
            return;
        }
        if log.is_json() {
            log.error(&panic.to_string());
        } else {
            hook(panic);
        }
    }));
    let summary = Rc::new(RefCell::new(Summary::default()));
    let watch = match Watch::new(&options.live) {
        Ok(watch) => watch,
        Err(error) => {
            log.error(&error);
            return Ok(ExitCode::from(FAILURE));
        }
    };
    let seed = options.seed.unwrap_or_else(random_seed);
    let (recorder, recorded) = match record::begin(options, command, seed) {
        Ok(recording) => recording.unzip(),
        Err(error) => {
            log.error(&error);
            return Ok(ExitCode::from(FAILURE));
        }
    };
    let mut kernel = match kernel(options, seed, &summary, watch.as_ref(), recorder) {
        Ok(kernel) => kernel,
        Err(error) => {
            log.error(&format!("cannot boot: {error}"));
            return Ok(ExitCode::from(FAILURE));
        }
    };
    let interrupted = Arc::new(AtomicI32::new(0));
    let listening = listen(
        log,
        kernel.remote(),
        Arc::clone(&interrupted),
        watch.as_ref(),
        recorded.clone(),
    );
    if let Err(error) = listening {
        log.error(&format!("cannot listen for interrupts: {error}"));
        return Ok(ExitCode::from(FAILURE));
    }
    if options.seed.is_none() {
        let seed = kernel.seed();
        log.note(&format!("seed {seed} (repeat with --seed {seed})"));
    }
    for image in images {
        if let Err(errno) = image(&mut kernel) {
            log.error(&format!("cannot boot: {errno}: raise --max-tasks"));
            return Ok(ExitCode::from(LIMIT));
        }
    }
    if let Some(watch) = watch {
        watch.start(&mut kernel);
    }
    let result = kernel.run();
    let now = kernel.now();
    let mut code = explain(log, &result);
    if let signal @ 1.. = interrupted.load(Ordering::Acquire) {
        code = ended_by(signal);
    }
    if options.summary {
        summary.borrow_mut().show(log, now);
    }
    // Before the kernel is dropped: how the last tasks are ended then is not what happened.
    if let Some(recorded) = recorded {
        code = recorded.end(log, code);
    }
    Ok(ExitCode::from(code))
}

fn kernel(
    options: &Boot,
    seed: u64,
    summary: &Rc<RefCell<Summary>>,
    watch: Option<&Watch>,
    recorder: Option<Recorder>,
) -> Result<Kernel, Error> {
    let mut builder = Kernel::builder().seed(seed).quantum(options.quantum.get());
    if options.simulated {
        builder = builder.world(SimWorld::new(seed).print_to(io::stdout()));
    }
    match options.policy {
        Policy::Fifo => {}
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
    if let Some(watch) = watch {
        builder = builder.tracer(watch.tracer());
    }
    if let Some(recorder) = recorder {
        builder = builder.tracer(recorder);
    }
    if options.summary {
        builder = builder.tracer(Summary::tracer(summary));
    }
    builder.build()
}

/// A seed of its own for each run, short enough to be typed again.
fn random_seed() -> u64 {
    RandomState::new().hash_one(process::id()) % 1_000_000_000
}

/// The exit code of who is ended by a signal, as shells have it.
fn ended_by(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(FAILURE)
}

/// Shuts the kernel down at the first interrupt, and ends the process at the second: a task that
/// makes no trap hears of nothing.
fn listen(
    log: Log,
    kernel: Remote,
    interrupted: Arc<AtomicI32>,
    watch: Option<&Watch>,
    recorded: Option<Recorded>,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT])?;
    if watch.is_some() {
        // Otherwise they may end the process at once; here something has to be put right first.
        signals.add_signal(SIGTERM)?;
        signals.add_signal(SIGHUP)?;
    }
    let last_words = watch.map(Watch::last_words);
    thread::Builder::new()
        .name("interrupts".into())
        .spawn(move || {
            for signal in signals.forever() {
                if interrupted.swap(signal, Ordering::AcqRel) != 0 {
                    if let Some(last_words) = &last_words {
                        last_words();
                    }
                    if let Some(recorded) = &recorded {
                        recorded.end(log, FAILURE);
                    }
                    process::exit(ended_by(signal).into());
                }
                log.note("interrupted: shutting down (again to end at once)");
                kernel.shutdown();
            }
        })?;
    Ok(())
}

/// Says why the kernel stopped, where that needs to be said, and answers the exit code.
fn explain(log: Log, result: &Result<Report, Error>) -> u8 {
    match result {
        Ok(report) if report.failures == 0 => 0,
        // Each has been warned of when it happened.
        Ok(_) => FAILURE,
        Err(Error::Deadlock(deadlock)) => {
            log.error(&deadlock.to_string());
            DEADLOCK
        }
        Err(Error::Limit(limit)) => {
            let option = match limit {
                Limit::Ticks(_) => "--max-ticks",
                Limit::Time(_) => "--max-time",
            };
            log.error(&format!("{limit}: raise {option}"));
            LIMIT
        }
        // Nobody reads the output to its end.
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error @ Error::Io(_)) => {
            log.error(&error.to_string());
            FAILURE
        }
    }
}
