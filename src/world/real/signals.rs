//! The signals of the process. One thread hands each to the kernels whose tasks have caught it.
//!
//! Handlers belong to the process, and so does what is static here. A handler stays installed when
//! no task holds its signal any more: then the thread has the default action happen.

use std::{io, sync::Mutex, thread};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{Handle, Signals},
    low_level,
};

use crate::{
    abi::{Signal, SignalSet},
    interrupt::Remote,
    panic::lock,
};

static PROCESS: Mutex<Process> = Mutex::new(Process {
    handle: None,
    installed: Vec::new(),
    kernels: Vec::new(),
});

struct Process {
    /// Adds signals to those that the thread receives.
    handle: Option<Handle>,
    installed: Vec<Signal>,
    /// The kernels, with the signals that their tasks have caught at any time.
    kernels: Vec<(Remote, SignalSet)>,
}

/// What the tasks of one kernel have caught.
#[derive(Default)]
pub(super) struct Caught(Option<Remote>);

impl Caught {
    /// Has these signals sent to the kernel, apart from those that its host handles.
    pub(super) fn catch(&mut self, remote: &Remote, signals: &[Signal]) -> io::Result<()> {
        let signals = remote.unhandled(signals);
        let mut process = lock(&PROCESS);
        for signal in signals.iter() {
            process.install(signal)?;
        }
        let kernels = &mut process.kernels;
        match kernels.iter_mut().find(|(other, _)| other.is(remote)) {
            Some((_, caught)) => *caught = caught.with(signals),
            None => kernels.push((remote.clone(), signals)),
        }
        self.0 = Some(remote.clone());
        Ok(())
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        if let Some(remote) = &self.0 {
            let kernels = &mut lock(&PROCESS).kernels;
            kernels.retain(|(other, _)| !other.is(remote));
        }
    }
}

impl Process {
    /// Installs the handler of a signal, if there is none. An ignored hangup stays ignored.
    fn install(&mut self, signal: Signal) -> io::Result<()> {
        let is_left = signal == Signal::Hangup && is_ignored(SIGHUP);
        if is_left || self.installed.contains(&signal) {
            return Ok(());
        }
        let handle = match &self.handle {
            Some(handle) => handle,
            None => self.handle.insert(listen()?),
        };
        handle.add_signal(number(signal))?;
        self.installed.push(signal);
        Ok(())
    }
}

/// Starts the thread.
fn listen() -> io::Result<Handle> {
    let mut signals = Signals::new::<_, i32>([])?;
    let handle = signals.handle();
    let receive = move || signals.forever().for_each(receive);
    thread::Builder::new()
        .name("signals".into())
        .spawn(receive)?;
    Ok(handle)
}

/// Sends a signal to the kernels whose tasks hold it. If there is none, it ends the runs of the
/// kernels that have caught it before; if one of them has not yet come to that, or there is none
/// either, it ends the process.
fn receive(raw: i32) {
    let mut all = Signal::ALL.into_iter();
    let Some(signal) = all.find(|signal| number(*signal) == raw) else {
        return;
    };
    let process = lock(&PROCESS);
    let kernels = process.kernels.iter();
    let kernels = kernels.filter(|(_, caught)| caught.contains(signal));
    let (holders, others): (Vec<Remote>, Vec<Remote>) = kernels
        .map(|(remote, _)| remote.clone())
        .partition(|remote| remote.untaken(signal).is_some());
    drop(process);
    let is_for_process = others.is_empty() || others.iter().any(|other| other.expects(signal));
    let to = match &holders[..] {
        [] if is_for_process => return drop(low_level::emulate_default_handler(raw)),
        [] => &others,
        _ => &holders,
    };
    // Of kernels side by side, one without a holder ends.
    for remote in Remote::with_fellows(to) {
        remote.signal(signal);
    }
}

fn number(signal: Signal) -> i32 {
    match signal {
        Signal::Interrupt => SIGINT,
        Signal::Terminate => SIGTERM,
        Signal::Hangup => SIGHUP,
        Signal::User1 => SIGUSR1,
        Signal::User2 => SIGUSR2,
    }
}

/// Returns whether the process ignores a signal, as `nohup` makes it.
#[expect(unsafe_code, reason = "the actions of signals have no safe interface")]
fn is_ignored(signal: i32) -> bool {
    // SAFETY: zeros are a value of this structure: no handler, no flags, no masked signals. The call
    // only fills it in.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        action
    };
    action.sa_sigaction == libc::SIG_IGN
}
