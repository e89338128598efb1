//! Signals that end a run. An error of this file is a message.

use std::{
    io, process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ},
    iterator::Signals,
};
use trapline::{KernelId, Remote, Remotes, Signal};

use super::crash;

/// The longest time that the end of the process waits for a reader of its last output.
const PATIENCE: Duration = Duration::from_millis(500);

/// What interrupts a session of the debugger.
pub(super) const INTERRUPT: &[i32] = &[SIGINT];

/// What ends a search, which then prints what it has done: schedulers of jobs send the second.
pub(super) const END: &[i32] = &[SIGINT, SIGTERM];

/// Signals that are closer are one. `timeout` sends its signal to the process and to its group.
const SAME: Duration = Duration::from_millis(50);

/// Returns the last signal, or 0. Signals belong to the process, and so does this value.
#[cfg(not(test))]
fn last_signal() -> &'static AtomicI32 {
    static LAST: AtomicI32 = AtomicI32::new(0);
    &LAST
}

/// Tests of units have threads of one process: one of them must not take what another one raises.
#[cfg(test)]
fn last_signal() -> &'static AtomicI32 {
    thread_local!(static LAST: &'static AtomicI32 = Box::leak(Box::default()));
    LAST.with(|last| *last)
}

/// The last signal, if any, as a shell's exit code for it.
pub(super) fn signal() -> Option<u8> {
    match last_signal().load(Ordering::Acquire) {
        0 => None,
        signal => Some(exit_code(signal)),
    }
}

pub(super) fn is_raised() -> bool {
    signal().is_some()
}

/// Makes a write beyond the largest file size fail instead of ending the process.
pub(super) fn survive_large_files() -> Result<(), String> {
    match signal_hook::flag::register(SIGXFSZ, Arc::default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("cannot listen for signals: {error}")),
    }
}

/// Takes the interrupt since the last call, if there is one: see [`catch`].
pub(super) fn take() -> bool {
    last_signal().swap(0, Ordering::AcqRel) != 0
}

/// The signals that ask a process to end. A hang-up that was ignored at the start, as `nohup` does,
/// stays ignored.
fn signals() -> io::Result<Signals> {
    let is_heard = |signal: &i32| *signal != SIGHUP || !crash::is_ignored(SIGHUP);
    Signals::new([SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_heard))
}

/// Catches these signals for [`take`] and [`signal`]. One that comes before the last is taken ends the
/// process, and so does any other signal that asks for it. Cleanup runs first.
pub(super) fn catch(caught: &'static [i32]) -> Result<(), String> {
    let mut last: Option<Instant> = None;
    on_thread(move |signal| {
        let is_new = !is_raised() || last.is_some_and(|last| last.elapsed() < SAME);
        if !caught.contains(&signal) || !is_new {
            end(exit_code(signal).into());
        }
        last_signal().store(signal, Ordering::Release);
        last = Some(Instant::now());
    })
}

/// From now on, an interrupt ends the process, and so does any other signal that asks for it. Cleanup
/// runs first.
pub(super) fn end_at_once() -> Result<(), String> {
    on_thread(|signal| end(exit_code(signal).into()))
}

/// Calls this on a thread with each signal that asks the process to end.
fn on_thread(mut call: impl FnMut(i32) + Send + 'static) -> Result<(), String> {
    let listen = || {
        let mut signals = signals()?;
        let thread = thread::Builder::new().name("interrupts".into());
        thread.spawn(move || signals.forever().for_each(&mut call))
    };
    let listens = listen().map(drop);
    listens.map_err(|error| format!("cannot listen for interrupts: {error}"))
}

/// Raises an interrupt, as a signal does.
#[cfg(test)]
pub(super) fn raise() {
    last_signal().store(SIGINT, Ordering::Release);
}

/// The exit code of a run that this signal has ended.
pub(super) fn exit_code_of(signal: Signal) -> u8 {
    exit_code(match signal {
        Signal::Interrupt => SIGINT,
        Signal::Terminate => SIGTERM,
        Signal::Hangup => SIGHUP,
        Signal::User1 => SIGUSR1,
        Signal::User2 => SIGUSR2,
    })
}

pub(super) fn exit_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// The cleanup to run before the process ends at once. It belongs to the process.
static LAST_WORDS: Mutex<Vec<Box<dyn Fn() + Send>>> = Mutex::new(Vec::new());

pub(super) fn at_end(say: impl Fn() + Send + 'static) {
    lock().push(Box::new(say));
}

/// Ends the process at once. Other threads that call this wait.
pub(super) fn end(code: i32) -> ! {
    let last_words = lock();
    for say in &*last_words {
        say();
    }
    process::exit(code)
}

/// Returns `true` until an interrupt is [`PATIENCE`] old: so long the end of a run waits for readers.
pub(super) fn patience() -> impl FnMut() -> bool {
    let mut since = None;
    move || !is_raised() || since.get_or_insert_with(Instant::now).elapsed() < PATIENCE
}

/// Runs the work on a thread and waits for it briefly, since its output may have no reader.
///
/// *Errors:* `TimedOut` if the work is not done in time; otherwise the work's own error.
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

const HANDLED: [Signal; 3] = [Signal::Interrupt, Signal::Terminate, Signal::Hangup];

/// The kernels that a signal is for.
#[derive(Clone, Default)]
pub(super) struct Kernels(Arc<Remotes>);

impl Kernels {
    /// Adds a kernel that is about to run. A signal that has come before shuts it down.
    pub(super) fn add(&self, id: KernelId, kernel: &Remote) {
        kernel.handles(&HANDLED);
        self.0.add(id, kernel);
        // A signal that comes from now on finds the kernel.
        if is_raised() {
            kernel.shutdown();
        }
    }

    fn all(&self) -> Vec<Remote> {
        self.0.all()
    }
}

/// As [`listen_for`], for one kernel.
pub(super) fn listen(
    kernel: &Remote,
    takes: bool,
    say: impl Fn() + Clone + Send + 'static,
) -> Result<(), String> {
    let kernels = Kernels::default();
    kernels.add(KernelId::default(), kernel);
    listen_for(kernels, takes, say)
}

/// Hands signals to the tasks that have caught them, unless the kernels `take` none. A kernel without such
/// a task ends, if another one has any. A second interrupt ends the process if a task has not taken the
/// first.
///
/// Without such a task in any kernel, the first interrupt shuts the kernels down; the second ends the
/// process. The second is needed because a task that makes no trap cannot be ended. Cleanup, if any is
/// registered, runs before that end. A hang-up counts as an interrupt. `say` tells the user of the first.
pub(super) fn listen_for(
    kernels: Kernels,
    takes: bool,
    say: impl Fn() + Clone + Send + 'static,
) -> Result<(), String> {
    on_thread(move |signal| {
        let mut handled = HANDLED.into_iter().filter(|_| takes && !is_raised());
        let named = handled.find(|named| exit_code_of(*named) == exit_code(signal));
        let untaken = |named| {
            let all = kernels.all();
            all.iter().filter_map(|kernel| kernel.untaken(named)).max()
        };
        let caught = named.and_then(|named| Some((named, untaken(named)?)));
        match caught {
            Some((Signal::Interrupt, 1..)) => end(exit_code(signal).into()),
            Some((named, _)) => {
                let all = kernels.all();
                return all.iter().for_each(|kernel| kernel.signal(named));
            }
            None => {}
        }
        if last_signal().swap(signal, Ordering::AcqRel) != 0 {
            end(exit_code(signal).into());
        }
        // Before the shutdown, since the process may end at once and lose this line.
        let _ = soon(say.clone());
        kernels.all().iter().for_each(Remote::shutdown);
    })
}
