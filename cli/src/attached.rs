//! Descriptors that programs attach, in a run with a tape.
//!
//! The kernel's I/O on them is on the tape. What a program does to the value itself is not.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    os::fd::{AsFd, AsRawFd, RawFd},
    time::Duration,
};

use trapline::{Answer, DeviceId, Happening, Request, World, forward_world};

use super::{
    output::Log,
    stuck::{self, Steps},
};

/// A world around one with a tape. It warns of the first descriptor that is attached, unless that is a
/// standard stream.
pub(super) struct Attached<W> {
    inner: W,
    log: Log,
    has_warned: bool,
    /// What only a replay has; `None` in a run.
    replayed: Option<Replayed>,
}

struct Replayed {
    console: Box<dyn Write>,
    outputs: BTreeSet<DeviceId>,
    steps: Steps,
}

impl<W> Attached<W> {
    pub(super) fn taped(inner: W, log: Log) -> Self {
        Self {
            inner,
            log,
            has_warned: false,
            replayed: None,
        }
    }

    /// Around the world that answers from a tape. What a program sends to standard output goes to
    /// the console. `waits` is told of a task that keeps the replay from going on.
    ///
    /// *Errors:* a text that names the operating system's, which may have no thread left.
    pub(super) fn replayed(
        inner: W,
        log: Log,
        console: impl Write + 'static,
        waits: Log,
    ) -> Result<Self, String>
    where
        W: World,
    {
        let mut steps = Steps::default();
        let watch = steps.watch(inner.remote(), stuck::EVERY, move |task| {
            waits.warn(&format!(
                "task {task} makes no system call, and the replay waits for it: if it waits for \
                 I/O of its own, which is not on the tape, serve it or interrupt twice"
            ));
        });
        watch.map_err(|error| format!("cannot boot: {error}"))?;
        let mut attached = Self::taped(inner, log);
        attached.replayed = Some(Replayed {
            console: Box::new(console),
            outputs: BTreeSet::new(),
            steps,
        });
        Ok(attached)
    }

    fn step(&self) {
        if let Some(replayed) = &self.replayed {
            replayed.steps.step();
        }
    }

    fn attached(&mut self, device: DeviceId, fd: RawFd) {
        if let Some(replayed) = &mut self.replayed
            && fd == io::stdout().as_raw_fd()
        {
            replayed.outputs.insert(device);
        }
        if fd <= io::stderr().as_raw_fd() || std::mem::replace(&mut self.has_warned, true) {
            return;
        }
        self.log.warn(match self.replayed {
            None => {
                "a task attaches a descriptor: the tape holds the kernel's I/O on it, not the \
                 program's own, which a replay does again"
            }
            Some(_) => {
                "a task attaches a descriptor: the program's own I/O on it is not on the tape, and \
                 happens again now"
            }
        });
    }
}

impl Replayed {
    /// Writes what was sent to standard output. The task gets the answer of the tape, whatever
    /// happens to the bytes now.
    fn sent(&mut self, device: DeviceId, bytes: &[u8], result: &io::Result<Answer>) {
        if let Ok(Answer::Bytes(n)) = result
            && self.outputs.contains(&device)
        {
            let _ = self.console.write_all(&bytes[..bytes.len().min(*n)]);
        }
    }
}

impl<W: World> World for Attached<W> {
    forward_world!(inner: now, now_for_log, random, reseed, seed, print, take_console);
    forward_world!(inner: holds_tasks, is_idle, remote, submit, mail, spins, spin, choose);

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        self.step();
        self.inner.wait(deadline, happened)
    }

    fn wait_for_threads(
        &mut self,
        deadline: Option<Duration>,
        patience: Duration,
        happened: &mut Vec<Happening>,
    ) -> io::Result<Duration> {
        self.step();
        self.inner.wait_for_threads(deadline, patience, happened)
    }

    fn io(&mut self, device: DeviceId, request: Request<'_>) -> io::Result<Answer> {
        self.step();
        match request {
            Request::Attach { host, descriptor } => {
                let fd = descriptor.as_fd().as_raw_fd();
                let is_own = !descriptor.is_carrier();
                let request = Request::Attach { host, descriptor };
                let answer = self.inner.io(device, request)?;
                if is_own && !self.inner.remote().running().is_daemon() {
                    self.attached(device, fd);
                }
                Ok(answer)
            }
            Request::Send(bytes) => {
                let result = self.inner.io(device, Request::Send(bytes));
                if let Some(replayed) = &mut self.replayed {
                    replayed.sent(device, bytes, &result);
                }
                result
            }
            request => self.inner.io(device, request),
        }
    }
}
