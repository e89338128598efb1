//! `boot --kernels`: the same programs in several kernels, each on a thread.
//!
//! Each has a socket of its own for `--monitor`, and a recording of its own for `--record`: the number of
//! the kernel is behind the name. What several kernels cannot honour is a usage error.

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::{self, ErrorKind},
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tracing::Level;
use trapline::{
    Builder, Error, Kernel, KernelId, Kernels, RealWorld, Report, SharedPorts,
    record::{Header, Recorder},
};

use super::{
    app::Extend,
    boot::{desk, explain, load, random_seed, settings},
    crash,
    inject::Rules,
    live::watch::Observation,
    log,
    options::{Boot, BootLine},
    outfile,
    output::{Failure, Log, Verbosity},
    outside::Outside,
    panics,
    policy::check_shares,
    program::hosts,
    record::{self, Recorded},
    signals, stdio,
    values::{given, text_of, usage},
};

/// Boots the programs in each kernel, and runs them to their end. An error is a usage error.
pub(super) fn boot(
    verbosity: &Verbosity,
    line: &BootLine,
    command: &[String],
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
    log.end(run(log, line, command))
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
        ("--tape", options.tape.is_some()),
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
    check_shares(std::slice::from_ref(&options.policy), &options.share)
}

fn run(log: Log, line: &BootLine, command: &[String]) -> Result<ExitCode, Failure> {
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
    let recorded = Arc::new(Mutex::default());
    if options.watching.record.is_some() {
        flush_at_crash(&recorded).map_err(|error| format!("cannot handle signals: {error}"))?;
    }
    let booting = Booting {
        log,
        line,
        command,
        seed,
        ports: &ports,
        input: input.as_deref(),
        recorded: &recorded,
    };
    let results = Kernels::new(options.kernels).run(|id| {
        let kernel = booting.boot(id).map_err(io::Error::other)?;
        running.add(id, &kernel.remote());
        Ok(kernel)
    });
    let mut code = report(log, &results);
    for recorded in lock(&recorded).values() {
        code = recorded.end(log, code);
    }
    Ok(ExitCode::from(code))
}

/// The recordings of the kernels.
type AllRecorded = Mutex<BTreeMap<KernelId, Recorded>>;

/// From now on a signal that kills the process leaves the recordings complete up to there.
fn flush_at_crash(recorded: &Arc<AllRecorded>) -> io::Result<()> {
    let recorded = Arc::clone(recorded);
    crash::at_crash(move || {
        // No run is left to report an error.
        let all = lock(&recorded);
        all.values()
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
    input: Option<&'a [u8]>,
    recorded: &'a AllRecorded,
}

impl Booting<'_> {
    /// Boots one of the kernels. An error says why it cannot.
    fn boot(&self, id: KernelId) -> Result<Kernel, String> {
        let (log, line) = (self.log, self.line);
        let options = &line.options;
        let cannot = |error: &dyn Display| format!("cannot boot: {error}");
        let seed = self.seed.wrapping_add(id.index() as u64);
        let watch = Observation::new(&options.watching.live.of_kernel(id), log)?;
        let header = record::header(options, self.command, seed);
        let recorder = self.record(id, &header)?;
        let world = RealWorld::new().map_err(|error| cannot(&error))?;
        let world = Outside::of(world.share_ports(self.ports));
        let rules = Rules::new(&[]);
        let mut builder = settings(line, seed, &rules, world).number(id);
        builder = match id.index() {
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
            let recorded = lock(self.recorded);
            let handle = recorded.get(&id).map(|recorded| &recorded.handle);
            watch.start(&mut kernel, handle, None);
        }
        Ok(kernel)
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
        lock(self.recorded).insert(id, recorded);
        Ok(Some(recorder))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
