//! `replay --explore`: the inputs of a taped run under other schedules.
//!
//! A replay of the tape notes what came over each connection. Then the programs run in the simulated
//! world, under many schedules, and each connection has a peer that does what the one of the run did.
//!
//! | file | owns |
//! |---|---|
//! | `mod.rs` | the command, and a run of the programs with their peers |
//! | `script.rs` | [`Script`]: what the peers did, and the hosts that they need |
//! | `noting.rs` | the world that notes it during a replay |
//! | `peers.rs` | the peers, as tasks |

mod noting;
mod peers;
mod script;
#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    io::{self, IsTerminal},
    path::Path,
    process::ExitCode,
    rc::Rc,
    sync::Arc,
};

use clap::error::ErrorKind;

use super::{
    args::{self, Boot},
    attached::Attached,
    boot, explore,
    inject::Rules,
    interrupts,
    output::{FAILURE, Log, print, tell},
    panics::Panics,
    program::Named,
    replay::{self, Outside},
};
use crate::{
    Check, Error, Kernel, SimNet, check,
    tape::{self, Playing},
};
use noting::{Notes, Noting};
use peers::Tally;
use script::{Host, Script};

/// What the command asks for.
pub(super) struct Wanted<'a> {
    pub(super) schedules: u64,
    /// One schedule of an earlier report, and no other.
    pub(super) schedule: Option<&'a str>,
    /// Where a failing schedule is recorded.
    pub(super) record: Option<&'a Path>,
    /// The command line that runs a schedule again.
    pub(super) again: String,
}

/// Searches the schedules of a taped run. An error is a usage error.
pub(super) fn run(
    playing: Playing,
    options: &Boot,
    programs: &[(String, Named)],
    wanted: &Wanted<'_>,
    log: Log,
) -> Result<ExitCode, clap::Error> {
    let _guard = Panics::hide();
    let script = match note(playing, options, programs, log) {
        Ok(script) => Arc::new(script),
        Err(error) => {
            log.error(&error);
            return Ok(ExitCode::from(FAILURE));
        }
    };
    let body = |kernel: &mut Kernel| trial(kernel, programs, &script);
    let search = search(body, &script, options, wanted);
    let search = search.map_err(|error| clap::Error::raw(ErrorKind::InvalidValue, error + "\n"))?;
    if let Err(error) = interrupts::note(interrupts::END) {
        log.error(&format!("cannot listen for interrupts: {error}"));
        return Ok(ExitCode::from(FAILURE));
    }
    let explored = search.explore();
    if io::stderr().is_terminal() {
        tell("\r\x1b[K");
    }
    print(explore::report(&explored).as_bytes());
    let good = interrupts::signal().map_or(ExitCode::SUCCESS, ExitCode::from);
    Ok(match explored.failure {
        None => good,
        Some(_) => ExitCode::from(FAILURE),
    })
}

/// Replays the tape, and notes what the peers did. An error says what cannot be scripted.
fn note(
    playing: Playing,
    options: &Boot,
    programs: &[(String, Named)],
    log: Log,
) -> Result<Script, String> {
    let seed = playing.header().seed;
    let notes: Rc<RefCell<Notes>> = Rc::default();
    let world = Noting::new(playing, Rc::clone(&notes));
    let rules = Rules::new(&options.inject);
    // Of its warnings, only that of a task that waits.
    let world = Attached::replayed(world, Log::SILENT, io::sink()).watched(log)?;
    let builder = boot::settings(options, seed, &rules, Outside::of(world));
    let mut kernel = builder
        .build()
        .map_err(|error| format!("cannot boot: {error}"))?;
    boot::load(&mut kernel, options, &args::loaded(programs), Log::SILENT)?;
    if let Err(error) = kernel.run() {
        match tape::Error::of(&error) {
            Some(tape::Error::Left(left)) => {
                let culprit = replay::culprit(&kernel, left).unwrap_or_default();
                return Err(format!("the replay leaves the tape: {left}\n{culprit}"));
            }
            Some(ended) if ended.is_short() => {
                log.warn(&ended.to_string());
                // The programs had not ended, and what is open now was open then.
                notes.borrow_mut().stop();
            }
            Some(other) => return Err(other.to_string()),
            None if matches!(error, Error::Limit(..)) => notes.borrow_mut().stop(),
            // So ended the run.
            None => {}
        }
    }
    let report = kernel.report();
    drop(kernel);
    let notes = Rc::into_inner(notes).expect("the kernel is gone");
    let script = notes.into_inner().script(&report);
    script.map_err(|why| format!("this tape has no script: {why}"))
}

/// The limit on the turns of a schedule, if the run had so many. The peers have turns too, and another
/// schedule may need more; only a schedule that never ends reaches the limit.
fn most_turns(ticks: u64) -> u64 {
    ticks.saturating_mul(16).max(1_000_000)
}

fn search<F>(
    body: F,
    script: &Arc<Script>,
    options: &Boot,
    wanted: &Wanted<'_>,
) -> Result<Check<F>, String>
where
    F: Fn(&mut Kernel) -> Result<(), Error> + Sync,
{
    // For its errors.
    network(script)?;
    let shared = Arc::clone(script);
    let mut search = check(body)
        .without_environment()
        .random()
        .schedules(wanted.schedules)
        .steps(most_turns(script.ticks))
        .stop_when(interrupts::is_raised)
        .threads(0)
        .command(wanted.again.clone())
        .net(move || network(&shared).expect("it was right before"));
    if !options.inject.is_empty() {
        search = search.inject(Rules::new(&options.inject).injection());
    }
    if let Some(tasks) = options.max_tasks {
        search = search.max_tasks(tasks.saturating_add(peers::most_tasks(script)));
    }
    if let Some(folder) = wanted.record {
        search = search.record(folder);
    }
    if io::stderr().is_terminal() {
        search = search.progress(explore::show);
    }
    match wanted.schedule {
        Some(schedule) => search.replay(schedule),
        None => Ok(search),
    }
}

/// A network with the hosts of the script.
fn network(script: &Script) -> Result<SimNet, String> {
    let net = SimNet::new();
    for Host {
        name,
        address,
        is_cut,
    } in script.hosts()
    {
        let mut placed = net.host_at(&name, address);
        if is_cut {
            placed = placed.and_then(|()| net.cut(script.home(), &name));
        }
        placed.map_err(|error| format!("cannot place a host at {address}: {error}"))?;
    }
    Ok(net)
}

/// Runs the programs once, with the peers of the script.
fn trial(
    kernel: &mut Kernel,
    programs: &[(String, Named)],
    script: &Arc<Script>,
) -> Result<(), Error> {
    let tally = Tally::new(script, kernel.net());
    peers::listen(kernel, script, &tally)?;
    for (_, named) in programs {
        named.image()(kernel, script.home())?;
    }
    peers::connect(kernel, script, &tally)?;
    let report = match kernel.run() {
        Err(Error::Deadlock(deadlock)) if deadlock.is_at_rest() && tally.is_over() => {
            kernel.report()
        }
        ran => ran?,
    };
    let text = kernel.take_console();
    explore::note_outcome(kernel, text);
    report.check()
}
