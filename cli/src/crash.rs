//! Signals that kill the process: what a recording or a tape still holds in memory goes to its file
//! first.
//!
//! A handler may neither lock nor allocate. So a thread does the work. The handler wakes it through
//! a pipe, and waits for its answer, but not for long: the thread may need a lock that the
//! interrupted code holds. Then the process ends by the signal, as it would without a handler.
//!
//! A signal that another process sends need not be waited for: the thread raises it again.

use std::{
    io::{self, PipeReader, PipeWriter, Read, Write},
    sync::OnceLock,
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::retry_on_intr,
};
use signal_hook::low_level;

/// The signals: those of a fault, of `abort`, and of ^\.
const SIGNALS: [i32; 6] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGQUIT,
    libc::SIGSEGV,
];

/// How long a handler waits for the thread.
const PATIENCE: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The flag in a byte to the thread: the process goes on meanwhile, and the thread ends it.
const RAISE: u8 = 0x80;

/// What the handlers use. Handlers belong to the process, and so does this.
static LINE: OnceLock<Line> = OnceLock::new();

struct Line {
    to_thread: PipeWriter,
    from_thread: PipeReader,
    /// What the signals did before.
    before: [libc::sigaction; SIGNALS.len()],
}

/// Runs `flush` when a signal is about to kill the process. Called once.
pub(super) fn at_crash(flush: impl Fn() + Send + 'static) -> io::Result<()> {
    let (mut asked, to_thread) = io::pipe()?;
    let (from_thread, mut done) = io::pipe()?;
    thread::Builder::new().name("crash".into()).spawn(move || {
        let mut byte = [0];
        while asked.read_exact(&mut byte).is_ok() {
            flush();
            let _ = done.write_all(&byte);
            if byte[0] & RAISE != 0 {
                let _ = low_level::emulate_default_handler(i32::from(byte[0] & !RAISE));
            }
        }
    })?;
    let line = Line {
        to_thread,
        from_thread,
        before: SIGNALS.map(action),
    };
    if LINE.set(line).is_ok() {
        for signal in SIGNALS.into_iter().filter(|signal| !is_ignored(*signal)) {
            install(signal)?;
        }
    }
    Ok(())
}

/// Whether the process ignores a signal, as `nohup` and a shell without job control make it.
pub(super) fn is_ignored(signal: i32) -> bool {
    action(signal).sa_sigaction == libc::SIG_IGN
}

/// What a signal does at present.
#[expect(unsafe_code, reason = "the actions of signals have no safe interface")]
fn action(signal: i32) -> libc::sigaction {
    // SAFETY: zeros are a value of this structure: no handler, no flags, no masked signals. The call
    // only fills it in.
    unsafe {
        let mut action = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        action
    }
}

/// Installs the handler of a signal.
#[expect(unsafe_code, reason = "a handler runs amid any code")]
fn install(signal: i32) -> io::Result<()> {
    let mut action = action(signal);
    action.sa_sigaction = on_signal as *const () as usize;
    // The stack may have overflowed: the handler needs another one.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler has the type that the flags ask for. It makes system calls only, and reads
    // a static that is set before it is installed.
    match unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The handler.
#[expect(unsafe_code, reason = "a handler is called with a pointer")]
extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let Some(line) = LINE.get() else {
        return;
    };
    // SAFETY: the system passes a valid pointer to a handler with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    // A terminal sends ^\ with a code of the system's own.
    if code == libc::SI_USER || signal == libc::SIGQUIT {
        let _ = rustix::io::write(&line.to_thread, &[signal as u8 | RAISE]);
        return;
    }
    let _ = rustix::io::write(&line.to_thread, &[signal as u8]);
    let mut asked = [PollFd::new(&line.from_thread, PollFlags::IN)];
    if let Ok(1..) = retry_on_intr(|| poll(&mut asked, Some(&PATIENCE))) {
        let _ = rustix::io::read(&line.from_thread, &mut [0; 1]);
    }
    let mut before = SIGNALS.iter().zip(&line.before);
    if let Some((_, before)) = before.find(|(known, _)| **known == signal) {
        // SAFETY: this is what the system gave for the signal.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    }
    // A fault happens again when the handler returns. What was raised has to be raised again.
    if code <= 0 {
        let _ = low_level::raise(signal);
    }
}
