//! `boot`: sets up the kernel and the interrupts, and turns the result into an exit code.

use std::{
    cell::RefCell,
    hash::{BuildHasher, RandomState},
    io::{self, IsTerminal},
    process::{self, ExitCode},
    rc::Rc,
    time::Duration,
};

use clap::error::ErrorKind;

use super::{
    args::Boot,
    inject::Rules,
    interrupts,
    live::{self, Watch},
    log,
    net::Placed,
    output::{DEADLOCK, FAILURE, LIMIT, Log, Verbosity},
    record, stdio,
    summary::Summary,
};
use crate::{
    Deadlock, Error, Kernel, Limit, RealWorld, Report, SimNet, SimWorld, TaskInfo, record::Recorder,
};

/// Boots the programs and runs them to their end. An error is a usage error.
pub(super) fn boot(
    verbosity: &Verbosity,
    options: &Boot,
    programs: &[Placed],
    command: &[String],
) -> Result<ExitCode, clap::Error> {
    let hosts: Vec<String> = programs.iter().map(|placed| placed.host.clone()).collect();
    let net = options.net.network(&hosts, options.max_time)?;
    let log = Log::new(verbosity, &options.verbosity, options.log_format);
    log::install(log, options.trace.as_deref())
        .map_err(|error| clap::Error::raw(ErrorKind::InvalidValue, error + "\n"))?;
    log::hook_panics(log, live::leave);
    let summary = Rc::new(RefCell::new(Summary::default()));
    let _screen = live::Taken;
    let watch = match Watch::new(&options.live, log) {
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
    let mut kernel = match kernel(
        options,
        seed,
        &net,
        &rules,
        &summary,
        watch.as_ref(),
        recorder,
    ) {
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
    let mut booted = programs
        .iter()
        .try_for_each(|Placed { host, image }| image(&mut kernel, host).map(drop));
    if options.simulated {
        booted = booted.and_then(|()| options.net.arrange(&mut kernel, programs, log));
    }
    if let Err(errno) = booted {
        log.error(&format!("cannot boot: {errno}: raise --max-tasks"));
        return Ok(ExitCode::from(LIMIT));
    }
    if let Some(watch) = watch {
        watch.start(&mut kernel);
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
    let mut code = explain(log, &report);
    if let Some(signal) = interrupts::signal() {
        code = signal;
    }
    rules.report(log);
    if options.summary {
        summary.borrow_mut().show(log, now);
    }
    // Taken before the kernel is dropped: ending the last tasks is no part of the run.
    if let Some(recorded) = recorded {
        code = recorded.end(log, code);
        recorded.post_mortem(log, &report);
    }
    Ok(ExitCode::from(code))
}

fn kernel(
    options: &Boot,
    seed: u64,
    net: &SimNet,
    rules: &Rules,
    summary: &Rc<RefCell<Summary>>,
    watch: Option<&Watch>,
    recorder: Option<Recorder>,
) -> Result<Kernel, Error> {
    let mut builder = Kernel::builder()
        .seed(seed)
        .quantum(options.quantum.get())
        .on_deadlock(options.on_deadlock.into());
    if options.simulated {
        let world = SimWorld::new(seed).net(net);
        builder = builder.world(world.print_to(stdio::Console::default()));
    } else if watch.is_some_and(Watch::has_screen) {
        builder = if io::stdout().is_terminal() {
            builder.world(RealWorld::new()?.print_to(stdio::Console::default()))
        } else {
            builder.tracer(stdio::copy)
        };
    }
    builder = options.policy.set(builder, seed);
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

/// A random seed, short enough to be typed again.
fn random_seed() -> u64 {
    RandomState::new().hash_one(process::id()) % 1_000_000_000
}

/// Says that the servers are left, and nothing for them to do.
fn at_rest(deadlock: &Deadlock, now: Duration) -> String {
    let waits = |task: &&TaskInfo| task.wait.is_accept;
    let tasks: Vec<String> = deadlock
        .blocked
        .iter()
        .filter(waits)
        .map(|task| format!("{} {:?}", task.tid, task.name))
        .collect();
    format!(
        "the run ends at {now:.3?}: nothing can come any more for the servers, task {}",
        tasks.join(", task ")
    )
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
            log.error(&match limit {
                Limit::Ticks(_) => format!("{limit}: raise --max-ticks{blocked}"),
                // In the unit of the option.
                Limit::Time(span) => {
                    let span = humantime::format_duration(*span);
                    format!("the limit of {span} is reached: raise --max-time{blocked}")
                }
            });
            LIMIT
        }
        Err(Error::Stalled(stalled)) => {
            log.error(&stalled.to_string());
            DEADLOCK
        }
        // The reader closed the output early.
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error @ (Error::Policy(_) | Error::Failed(_) | Error::Refused(_) | Error::Io(_))) => {
            log.error(&error.to_string());
            FAILURE
        }
    }
}
