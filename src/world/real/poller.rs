//! The poller: descriptors that are watched, and the wake-up by which other threads end its wait.
//!
//! The wake-up is a descriptor of ours, watched like any other: an eventfd on Linux, a pipe elsewhere.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::abi::Direction;

/// The key of the wake-up, which no device has.
const WAKE_UP: u64 = u64::MAX - 2;

/// What a poller says of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readiness {
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Whether it has told of the end of the stream or of urgent data, or cannot.
    pub(super) unclear: bool,
}

/// Asks the operating system about one descriptor.
pub(super) fn is_ready(fd: BorrowedFd<'_>, direction: Direction) -> io::Result<bool> {
    let flags = match direction {
        Direction::Read => PollFlags::IN,
        Direction::Write => PollFlags::OUT,
    };
    let mut asked = [PollFd::from_borrowed_fd(fd, flags)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut asked, Some(&Timespec::default())))?;
    Ok(!asked[0].revents().is_empty())
}

/// How a system watches descriptors by the poller of `polling`, and waits for them.
pub(super) trait System: Sized {
    fn new(poller: &polling::Poller) -> io::Result<Self>;

    /// Watches a descriptor by its edges, both ways. It stays open until its registration was deleted,
    /// or until the poller is gone.
    fn watch(&self, poller: &polling::Poller, fd: BorrowedFd<'_>, key: u64) -> io::Result<()>;

    /// Waits until the deadline, which is `span` from now; a span of zero makes it a poll. Tells the
    /// keys of the descriptors that have become ready.
    fn wait(
        &mut self,
        poller: &polling::Poller,
        deadline: Option<Duration>,
        span: Option<Duration>,
        tell: impl FnMut(u64, &Readiness),
    ) -> io::Result<()>;
}

pub(super) struct Poller<S> {
    // In this order: a descriptor that is watched must stay open until the poller is gone.
    poller: polling::Poller,
    system: S,
    wake_up: Arc<WakeUp>,
}

/// A descriptor that becomes readable when it is written to. Wakers keep it open: a write to a pipe
/// without a reader would raise a signal.
struct WakeUp {
    reader: OwnedFd,
    /// `None` for an eventfd, which is both ends.
    writer: Option<OwnedFd>,
    /// Whether the poller sleeps, or is woken and must not: a write and a read are saved otherwise.
    state: AtomicU8,
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const WOKEN: u8 = 2;

impl Wake for WakeUp {
    fn wake(self: Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) != ASLEEP {
            return;
        }
        let end = self.writer.as_ref().unwrap_or(&self.reader);
        // It fails only where there is no room, and then the poller is woken anyway.
        let _ = rustix::io::write(end, &1_u64.to_ne_bytes());
    }
}

impl WakeUp {
    /// An eventfd: one descriptor where a pipe has two.
    #[cfg(target_os = "linux")]
    fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};

        let reader = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            reader,
            writer: None,
            state: AtomicU8::new(AWAKE),
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn new() -> io::Result<Self> {
        Self::pipe()
    }

    #[cfg(any(not(target_os = "linux"), test))]
    fn pipe() -> io::Result<Self> {
        use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

        let (reader, writer) = io::pipe()?;
        let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
        for end in [&reader, &writer] {
            fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
        }
        Ok(Self {
            reader,
            writer: Some(writer),
            state: AtomicU8::new(AWAKE),
        })
    }

    /// The poller is about to sleep. Returns `false` if it has been woken since it last slept.
    fn sleep(&self) -> bool {
        let from = self
            .state
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        from.is_ok()
    }

    /// The poller does not sleep any more. Its caller looks next for what it was woken for.
    fn awake(&self) {
        self.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Makes room. What is written later is another edge.
    fn empty(&self) {
        while rustix::io::read(&self.reader, &mut [0; 64]) == Ok(64) {}
    }
}

impl<S: System> Poller<S> {
    pub(super) fn new() -> io::Result<Self> {
        Self::woken_by(WakeUp::new()?)
    }

    fn woken_by(wake_up: WakeUp) -> io::Result<Self> {
        let poller = polling::Poller::new()?;
        let system = S::new(&poller)?;
        let wake_up = Arc::new(wake_up);
        system.watch(&poller, wake_up.reader.as_fd(), WAKE_UP)?;
        Ok(Self {
            poller,
            system,
            wake_up,
        })
    }

    /// Ends a wait from another thread, or the next one if none is under way.
    pub(super) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.wake_up))
    }

    /// Watches a descriptor under a key. The caller keeps it open until it has called
    /// [`Poller::unwatch`], or has dropped the poller.
    pub(super) fn watch(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        self.system.watch(&self.poller, fd, key)
    }

    pub(super) fn unwatch(&self, fd: BorrowedFd<'_>) {
        // It fails only where the descriptor is closed already, and so not watched any more.
        let _ = self.poller.delete(fd);
    }

    /// Forgets a wake-up. Its caller looks next for what it was woken for.
    pub(super) fn awake(&self) {
        self.wake_up.awake();
    }

    /// Waits as [`System::wait`] does, or until the waker ends it.
    pub(super) fn wait(
        &mut self,
        deadline: Option<Duration>,
        span: Option<Duration>,
        mut tell: impl FnMut(u64, &Readiness),
    ) -> io::Result<()> {
        let wake_up = &self.wake_up;
        let span = match span {
            Some(Duration::ZERO) => span,
            _ if wake_up.sleep() => span,
            _ => Some(Duration::ZERO),
        };
        let waited = self
            .system
            .wait(&self.poller, deadline, span, |key, readiness| match key {
                WAKE_UP => wake_up.empty(),
                _ => tell(key, readiness),
            });
        wake_up.awake();
        waited
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        thread,
    };

    use super::{super::portable::Portable, *};

    /// Reads and writes over a pipe, and a thread that wakes the poller.
    fn is_told_of_edges_and_woken<S: System>(wake_up: WakeUp) {
        let mut poller = Poller::<S>::woken_by(wake_up).unwrap();
        let (mut reader, mut writer) = io::pipe().unwrap();
        poller.watch(reader.as_fd(), 7).unwrap();
        let mut poll = |span| {
            let mut told = Vec::new();
            let deadline = Some(Duration::from_secs(3600));
            let tell = |key, readiness: &Readiness| told.push((key, readiness.readable));
            poller.wait(deadline, span, tell).unwrap();
            told
        };
        let now = Some(Duration::ZERO);
        assert_eq!(poll(now), []);
        for _ in 0..3 {
            writer.write_all(b"x").unwrap();
            assert_eq!(poll(None), [(7, true)]);
            // By its edges: the byte is still there.
            assert_eq!(poll(now), []);
        }
        reader.read_exact(&mut [0; 3]).unwrap();
        drop(writer);
        assert_eq!(poll(None).len(), 1);

        for times in [1, 1000] {
            let waker = poller.waker();
            let thread = thread::spawn(move || (0..times).for_each(|_| waker.wake_by_ref()));
            poller.wait(None, None, |_, _| {}).unwrap();
            thread.join().unwrap();
            poller.wait(None, now, |_, _| {}).unwrap();
        }
        poller.unwatch(reader.as_fd());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_fast_poller_is_told_of_edges_and_woken() {
        is_told_of_edges_and_woken::<super::super::epoll::Epoll>(WakeUp::new().unwrap());
    }

    #[test]
    fn the_portable_poller_is_told_of_edges_and_woken() {
        is_told_of_edges_and_woken::<Portable>(WakeUp::pipe().unwrap());
    }
}
