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
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::output::Log;
use crate::Remote;

/// How long the end of the process waits for whoever reads what it says.
const PATIENCE: Duration = Duration::from_millis(500);

/// The signal that came last, if any has.
pub(super) struct Interrupted(Arc<AtomicI32>);

impl Interrupted {
    /// As the exit code that shells have for it.
    pub(super) fn signal(&self) -> Option<u8> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            signal => Some(exit_code(signal)),
        }
    }
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
/// before, and signals that would end the process at once are interrupts, too.
pub(super) fn listen(log: Log, kernel: Remote) -> io::Result<Interrupted> {
    let mut signals = Signals::new([SIGINT])?;
    if !lock().is_empty() {
        signals.add_signal(SIGTERM)?;
        signals.add_signal(SIGHUP)?;
    }
    let interrupted = Arc::new(AtomicI32::new(0));
    let last = Arc::clone(&interrupted);
    thread::Builder::new()
        .name("interrupts".into())
        .spawn(move || {
            for signal in signals.forever() {
                if last.swap(signal, Ordering::AcqRel) != 0 {
                    end(exit_code(signal).into());
                }
                // Before the end, which may come at once and would leave it out.
                let _ = soon(move || log.note("interrupted: shutting down (again to end at once)"));
                kernel.shutdown();
            }
        })?;
    Ok(Interrupted(interrupted))
}
