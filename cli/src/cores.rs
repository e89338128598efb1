//! `boot --kernels`: the same programs in several kernels, each on a thread.
//!
//! A kernel of several has no socket, no recording and no tape: an option for these is a usage error.

use std::{
    io::{self, ErrorKind},
    process::ExitCode,
};

use tracing::Level;
use trapline::{Error, Kernel, KernelId, Kernels, RealWorld, Report, SharedPorts, record::Header};

use super::{
    app::Extend,
    boot::{desk, explain, load, random_seed, settings},
    inject::Rules,
    log,
    options::{Boot, BootLine},
    output::{Failure, Log, Verbosity},
    outside::Outside,
    panics,
    policy::check_shares,
    program::hosts,
    signals, stdio,
    values::{given, text_of, usage},
};

/// Boots the programs in each kernel, and runs them to their end. An error is a usage error.
pub(super) fn boot(
    verbosity: &Verbosity,
    line: &BootLine,
    tracers: &[Extend],
) -> Result<ExitCode, clap::Error> {
    let options = &line.options;
    check(line, tracers)?;
    // For its errors: there is no simulated network.
    options
        .net
        .network(&hosts(&line.programs), options.max_time)?;
    let log = Log::new(verbosity, &options.verbosity, options.watching.log_format);
    stdio::watch_errors(false, move |message| log.message(Level::WARN, message));
    log::install(log, options.watching.trace.as_deref())?;
    panics::hook(log);
    log.end(run(log, line))
}

/// Checks that several kernels can honour the options.
fn check(line: &BootLine, tracers: &[Extend]) -> Result<(), clap::Error> {
    let options = &line.options;
    let Boot { watching, net, .. } = &**options;
    let refused = [
        ("--virtual", options.simulated),
        ("--world", options.world.is_some()),
        ("--on", !net.on.is_empty()),
        ("--signal", !options.signal.is_empty()),
        ("--tape", options.tape.is_some()),
        ("--disk", options.disk.is_some()),
        ("--processors", options.processors > 1),
        ("--inject", !options.inject.is_empty()),
        ("--summary", watching.summary),
        ("--record", watching.record.is_some()),
        ("--post-mortem", watching.post_mortem),
        ("--exits", watching.exits),
        ("--monitor and --top", watching.live.is_any()),
    ];
    if let Some((option, _)) = refused.iter().find(|(_, is_given)| *is_given) {
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
    check_shares(std::slice::from_ref(&options.policy), &options.share)
}

fn run(log: Log, line: &BootLine) -> Result<ExitCode, Failure> {
    let options = &line.options;
    signals::survive_large_files()?;
    let seed = options.seed.unwrap_or_else(random_seed);
    if options.seed.is_none() {
        let text =
            format!("seed {seed} (--seed {seed} repeats the random numbers, not the timing)");
        log.note(&text);
    }
    let input = text_of(options.stdin.as_deref())?;
    let running = signals::Kernels::default();
    let say = move || log.note("interrupted: shutting down (again to end at once)");
    signals::listen_for(running.clone(), true, say)?;
    let ports = SharedPorts::new();
    let results = Kernels::new(options.kernels).run(|id| {
        let seed = seed.wrapping_add(id.index() as u64);
        let kernel = make(log, line, id, seed, &ports, input.clone())?;
        running.add(id, kernel.remote());
        Ok(kernel)
    });
    Ok(ExitCode::from(report(log, &results)))
}

fn make(
    log: Log,
    line: &BootLine,
    id: KernelId,
    seed: u64,
    ports: &SharedPorts,
    input: Option<Vec<u8>>,
) -> Result<Kernel, Error> {
    let world = RealWorld::new()?.share_ports(ports);
    let rules = Rules::new(&[]);
    let builder = settings(line, seed, &rules, Outside::of(world)).number(id);
    let mut kernel = given(builder, input, trapline::Builder::input).build()?;
    let mut desk = desk(line, &rules);
    desk.header = Header::default();
    desk.shown = Some(log);
    load(&mut kernel, line, desk, log).map_err(io::Error::other)?;
    Ok(kernel)
}

/// Says how the kernels have ended. Returns the exit code: of a signal, or of the first that has failed by
/// itself.
fn report(log: Log, results: &[Result<Report, Error>]) -> u8 {
    let mut code = 0;
    let mut ended_by = None;
    for (index, result) in results.iter().enumerate() {
        match result {
            // It is shown for the kernel that it is about.
            Err(Error::Peer { .. }) => continue,
            // The reader closed the output early.
            Err(Error::Io(error)) if error.kind() == ErrorKind::BrokenPipe => continue,
            Err(_) => log.error(&format!("kernel {} has failed:", KernelId::at(index))),
            Ok(report) => ended_by = ended_by.or(report.ended_by),
        }
        let of_kernel = explain(log, result);
        code = if code == 0 { of_kernel } else { code };
    }
    let ended_by = ended_by.filter(|_| signals::signal().is_none());
    if let Some(signal) = ended_by {
        log.note(&format!("{signal} has ended the run: no task has taken it"));
    }
    let ended_by = ended_by.map(signals::exit_code_of);
    signals::signal().or(ended_by).unwrap_or(code)
}
