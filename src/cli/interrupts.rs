//! Signals that end a run.

use std::{
    io, process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    iterator::Signals,
};

use super::output::Log;
use crate::Remote;

/// How long the end of the process waits for whoever reads what it says.
const PATIENCE: Duration = Duration::from_millis(500);

/// The signal that came last, or 0. Signals belong to the process, and so does this.
static LAST: AtomicI32 = AtomicI32::new(0);

/// The signal that came last, if any has, as the exit code that shells have for it.
pub(super) fn signal() -> Option<u8> {
    match LAST.load(Ordering::Acquire) {
        0 => None,
        signal => Some(exit_code(signal)),
    }
}

/// Whether a signal has come.
pub(super) fn is_raised() -> bool {
    signal().is_some()
}

/// Has a write beyond the largest file fail, and not end the process.
pub(super) fn survive_large_files() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

fn exit_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// What is to be put right before the process ends at once. It belongs to the process, and so does
/// this.
static LAST_WORDS: Mutex<Vec<Box<dyn Fn() + Send>>> = Mutex::new(Vec::new());

/// Has this done before the process ends at once.
pub(super) fn at_end(say: impl Fn() + Send + 'static) {
    lock().push(Box::new(say));
}

/// Ends the process at once. Whoever else wants that waits meanwhile.
pub(super) fn end(code: i32) -> ! {
    let last_words = lock();
    for say in &*last_words {
        say();
    }
    process::exit(code)
}

/// Has this done, and waits for it no longer than a moment: it may be that nobody reads what it
/// writes.
///
/// *Errors:* it has not been done in time (`TimedOut`), or not at all.
pub(super) fn soon(what: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let (done, wait) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        what();
        let _ = done.send(());
    })?;
    wait.recv_timeout(PATIENCE).map_err(|error| match error {
        RecvTimeoutError::Timeout => io::ErrorKind::TimedOut.into(),
        RecvTimeoutError::Disconnected => io::Error::other("it panicked"),
    })
}

fn lock() -> MutexGuard<'static, Vec<Box<dyn Fn() + Send>>> {
    LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shuts the kernel down at the first interrupt, and ends the process at the second: a task that
/// makes no trap hears of nothing. Where something has to be put right at the end, that is done
/// before, and a hang-up is an interrupt, too.
pub(super) fn listen(log: Log, kernel: Remote) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    if !lock().is_empty() {
        signals.add_signal(SIGHUP)?;
    }
    thread::Builder::new()
        .name("interrupts".into())
        .spawn(move || {
            for signal in signals.forever() {
                if LAST.swap(signal, Ordering::AcqRel) != 0 {
                    end(exit_code(signal).into());
                }
                // Before the end, which may come at once and would leave it out.
                let _ = soon(move || log.note("interrupted: shutting down (again to end at once)"));
                kernel.shutdown();
            }
        })?;
    Ok(())
}
