//! How other threads reach a kernel: they raise an interrupt, and the world hands it to the kernel
//! with the other things that happened.
//!
//! Uses the ABI.

mod board;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::Waker,
};

use board::Board;

use crate::abi::{KernelId, QueueId, Signal, SignalSet, Tid};

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// What another thread has told a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Interrupt {
    /// A thread has closed this queue: a job is done, or a promise is set.
    Close(QueueId),
    /// Messages have been put into the mailbox of this queue.
    Mail(QueueId),
    /// A thread that the kernel counts on has nothing more to say.
    Over(External),
    /// A thread asks for a shutdown, as [`Remote::shutdown`] does.
    Shutdown,
    /// A thread has sent a signal, by [`Remote::signal`].
    Signal(Signal),
}

/// What a kernel can wait for outside of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum External {
    /// A [`RemoteSetter`](crate::RemoteSetter), with its clones.
    Setter,
    /// A job of [`Os::run_blocking`](crate::Os::run_blocking).
    Job,
    /// A mailbox that has senders, or the room in one for a message of this kernel.
    Mail,
}

impl External {
    pub(crate) const ALL: [Self; 3] = [Self::Setter, Self::Job, Self::Mail];
}

/// The world's end of the line on which other threads reach its kernel. The kernel's end, and that of
/// the threads, is a [`Remote`].
///
/// A world owns one. It hands the interrupts to the kernel in [`World::wait`](crate::World::wait), in
/// the order in which they were raised.
#[derive(Debug)]
pub struct Interrupts(pub(crate) Remote);

impl Interrupts {
    /// A line. The first interrupt after [`Interrupts::take`] calls `waker`, which must end the
    /// world's wait, or the next one if none is under way.
    #[must_use]
    pub fn new(waker: Waker) -> Self {
        Self(Remote(Arc::new(Line {
            waker,
            raised: AtomicBool::new(false),
            interrupts: Mutex::default(),
            started: Default::default(),
            is_lent: AtomicBool::new(false),
            running: AtomicU64::new(0),
            mail: AtomicUsize::new(0),
            board: Mutex::default(),
            has_signals: AtomicBool::new(false),
            fellows: OnceLock::new(),
            tape: OnceLock::new(),
        })))
    }

    /// The other end: what [`World::remote`](crate::World::remote) returns.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.0.clone()
    }

    /// Whether an interrupt was raised since the last [`Interrupts::take`]. Reads one word.
    #[inline]
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.0.raised.load(Ordering::Relaxed)
    }

    /// Returns whether a thread may yet send mail. Reads one word.
    #[inline]
    pub(crate) fn expects_mail(&self) -> bool {
        self.0.0.mail.load(Ordering::Relaxed) > 0
    }

    /// Takes the interrupts that were raised since the last call, in order.
    pub fn take(&self) -> impl Iterator<Item = Interrupt> + use<> {
        let Remote(line) = &self.0;
        // First the mark, then the list: an interrupt that comes between the two is taken now, and
        // its mark costs one more look.
        line.raised.swap(false, Ordering::AcqRel);
        std::mem::take(&mut *line.lock()).into_iter()
    }
}

/// A line into a kernel from any thread, of [`Kernel::remote`](crate::Kernel::remote).
#[derive(Clone)]
pub struct Remote(Arc<Line>);

struct Line {
    waker: Waker,
    /// Whether an interrupt was raised since the world last took them.
    raised: AtomicBool,
    interrupts: Mutex<Vec<Interrupt>>,
    /// How many threads the kernel has counted on so far, by [`External`]. Its own thread counts.
    started: [AtomicUsize; External::ALL.len()],
    /// Whether something that may outlive its run can raise an interrupt, and the kernel does not count
    /// on it.
    is_lent: AtomicBool,
    /// How much of [`External::Mail`] is under way.
    mail: AtomicUsize,
    /// The task that was resumed last, or the kernel while it waits.
    running: AtomicU64,
    board: Mutex<Board>,
    /// Whether the board may have changed since boot.
    has_signals: AtomicBool,
    /// The kernels that run side by side with this one.
    fellows: OnceLock<Weak<Remotes>>,
    /// Whether the world is on a tape, and if so whether it comes from there.
    tape: OnceLock<bool>,
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, Vec<Interrupt>> {
        let locked = self.interrupts.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.has_signals.store(true, Ordering::Relaxed);
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remote {
    /// Shuts the kernel down as [`Os::shutdown`](crate::Os::shutdown) does, when it next polls
    /// the world. That is at once if it sleeps: it is woken. Otherwise it is after the pass under way,
    /// or after 256 turns if the pass is shorter. A task that does not come to a trap delays it.
    ///
    /// This is for the run under way, whose last task may just have ended by itself; the tasks of a
    /// later one are spared. Between two runs it is for the next.
    pub fn shutdown(&self) {
        self.raise(Interrupt::Shutdown);
    }

    /// Returns the task that runs at this moment, or has its call handled; [`Tid::KERNEL`] while the kernel
    /// waits for the world, and outside of its runs. A thread that asks now and then learns which
    /// task uses the time, and which has not trapped for long.
    #[must_use]
    pub fn running(&self) -> Tid {
        self.0.running.load(Ordering::Relaxed).into()
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::Relaxed)
    }

    /// Returns how many interrupts the world has not taken yet.
    pub(crate) fn pending(&self) -> usize {
        self.0.lock().len()
    }

    /// Notes that the world is on a tape, or `plays` one.
    pub(crate) fn note_tape(&self, plays: bool) {
        let _ = self.0.tape.set(plays);
    }

    pub(crate) fn is_taped(&self) -> bool {
        self.0.tape.get().is_some()
    }

    /// Whether the world answers from a tape.
    pub(crate) fn plays(&self) -> bool {
        self.0.tape.get() == Some(&true)
    }

    /// Notes that something of this run may raise an interrupt after its end. Such an interrupt names a
    /// queue by a number that a later run uses anew.
    pub(crate) fn lend(&self) {
        self.0.is_lent.store(true, Ordering::Relaxed);
    }

    /// Whether an interrupt is waiting or may yet be raised by something of the run.
    pub(crate) fn is_used(&self) -> bool {
        let has_started = External::ALL.iter().any(|what| self.started(*what) > 0);
        has_started
            || self.0.is_lent.load(Ordering::Relaxed)
            || self.0.raised.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn runs(&self, tid: Tid) {
        self.0.running.store(tid.into(), Ordering::Relaxed);
    }

    /// Has the kernel close a queue.
    pub(crate) fn ring(&self, queue: QueueId) {
        self.raise(Interrupt::Close(queue));
    }

    /// Tells the kernel of messages in the mailbox of this queue.
    pub(crate) fn mail(&self, queue: QueueId) {
        self.raise(Interrupt::Mail(queue));
    }

    fn raise(&self, interrupt: Interrupt) {
        self.0.lock().push(interrupt);
        // The thread that sets the mark wakes the world; the others need not.
        if !self.0.raised.swap(true, Ordering::AcqRel) {
            self.0.waker.wake_by_ref();
        }
    }

    /// How many threads of this kind the kernel has counted on so far. [`Interrupt::Over`] tells of
    /// the end of each.
    pub(crate) fn started(&self, what: External) -> usize {
        self.0.started[what as usize].load(Ordering::Relaxed)
    }
}

impl Remote {
    // ---- signals

    /// Sends a signal to the kernel, as the operating system sends it to a process. Every task that
    /// has [caught](crate::Os::catch) it gets it when the kernel next polls the world. If none has,
    /// it ends the run as [`Remote::shutdown`] does, and [`Kernel::ended_by`](crate::Kernel::ended_by)
    /// tells.
    ///
    /// A [`Signal::Interrupt`] that comes before any task has taken the last one ends the run, too.
    ///
    /// ```
    /// use trapline::{Kernel, Os, Signal};
    ///
    /// let mut kernel = Kernel::simulated(0);
    /// let remote = kernel.remote();
    /// kernel.spawn("main", async move |os: &mut Os| {
    ///     let signals = os.catch(&[Signal::User1]).await;
    ///     std::thread::spawn(move || remote.signal(Signal::User1)).join().unwrap();
    ///     assert_eq!(signals.next(os).await, Signal::User1);
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn signal(&self, signal: Signal) {
        self.0.board().coming[signal as usize] += 1;
        self.raise(Interrupt::Signal(signal));
    }

    /// Returns how many signals of this kind no task has taken yet; `None` if no task has caught it.
    /// For a host that handles the signals of its process: what it sends then would end the run.
    #[must_use]
    pub fn untaken(&self, signal: Signal) -> Option<usize> {
        let board = self.0.board();
        let count = board.coming[signal as usize] + board.untaken(signal);
        board.caught.contains(signal).then_some(count)
    }

    /// Says that the host handles these signals of its process, and sends them by
    /// [`Remote::signal`]. [`Os::catch`](crate::Os::catch) installs no handlers for them from now on.
    pub fn handles(&self, signals: &[Signal]) {
        let mut board = self.0.board();
        board.of_host = board.of_host.with(signals.into());
    }

    /// Returns the signals among these that the host does not handle.
    pub(crate) fn unhandled(&self, signals: &[Signal]) -> SignalSet {
        SignalSet::from(signals).without(self.0.board().of_host)
    }

    /// Returns whether a signal was sent and has not reached the kernel yet.
    pub(crate) fn expects(&self, signal: Signal) -> bool {
        self.0.board().coming[signal as usize] > 0
    }

    /// Returns whether this is a line to the same kernel.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    // ---- for the kernel

    /// Forgets the signals of an earlier run.
    pub(crate) fn reset_signals(&self) {
        if self.0.has_signals.load(Ordering::Relaxed) {
            self.0.board().reset();
            self.0.has_signals.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that a signal has reached the kernel.
    pub(crate) fn has_come(&self, signal: Signal) {
        let coming = &mut self.0.board().coming[signal as usize];
        // In a replay, it comes from the tape.
        *coming = coming.saturating_sub(1);
    }

    /// Notes that the holders of a signal get it as this message. Returns `false` if it must not be
    /// one: it is an interrupt, and no task has taken the last one.
    pub(crate) fn deliver(&self, message: u64, signal: Signal) -> bool {
        self.0.board().deliver(message, signal)
    }

    /// Notes that a task has taken this message.
    pub(crate) fn take_signal(&self, message: u64) {
        self.0.board().take(message);
    }

    /// Notes which signals have a holder. Forgets those that are left without one and were not taken,
    /// and returns the first of them.
    pub(crate) fn set_caught(&self, caught: SignalSet) -> Option<Signal> {
        self.0.board().set_caught(caught)
    }
}

/// The lines into kernels that run side by side, in the order of their numbers.
///
/// ```
/// use trapline::{Kernel, KernelId, Remotes};
///
/// let (kernel, all) = (Kernel::simulated(0), Remotes::default());
/// all.add(KernelId::at(0), &kernel.remote());
/// assert_eq!(all.all().len(), 1);
/// all.remove(KernelId::at(0));
/// assert!(all.all().is_empty());
/// ```
#[derive(Debug, Default)]
pub struct Remotes(Mutex<Vec<(KernelId, Remote)>>);

impl Remotes {
    /// Adds a kernel.
    pub fn add(&self, id: KernelId, remote: &Remote) {
        let mut all = self.lock();
        let at = all.partition_point(|(other, _)| *other < id);
        all.insert(at, (id, remote.clone()));
    }

    /// Removes a kernel that has ended.
    pub fn remove(&self, id: KernelId) {
        self.lock().retain(|(other, _)| *other != id);
    }

    /// Returns the kernels that are there now.
    #[must_use]
    pub fn all(&self) -> Vec<Remote> {
        let all = self.lock();
        all.iter().map(|(_, remote)| remote.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(KernelId, Remote)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remote {
    /// This kernel also gets the signals of the process that a task of one of these has caught.
    pub(crate) fn join(&self, fellows: &Arc<Remotes>) {
        let _ = self.0.fellows.set(Arc::downgrade(fellows));
    }

    /// Returns these with the kernels that run side by side with them, in their order.
    pub(crate) fn with_fellows(these: &[Self]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for remote in these {
            let fellows = remote.0.fellows.get().and_then(Weak::upgrade);
            let fellows = fellows.map(|fellows| fellows.all()).unwrap_or_default();
            for one in fellows.into_iter().chain([remote.clone()]) {
                if !all.iter().any(|other| other.is(&one)) {
                    all.push(one);
                }
            }
        }
        all
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

/// A thread may yet raise an interrupt. While this or a clone exists, the kernel reports no deadlock.
/// A thread that a daemon has started does not count.
#[derive(Clone)]
pub(crate) struct ExternalWork {
    _counted: Option<Arc<Counted>>,
}

struct Counted {
    remote: Remote,
    what: External,
}

impl ExternalWork {
    /// To be made in the turn of the task that starts the thread, or by the host.
    pub(crate) fn new(remote: &Remote, what: External) -> Self {
        let counts = !remote.running().is_daemon();
        if !counts {
            remote.lend();
        }
        let _counted = counts.then(|| {
            remote.0.started[what as usize].fetch_add(1, Ordering::Relaxed);
            if what == External::Mail {
                remote.0.mail.fetch_add(1, Ordering::Relaxed);
            }
            let remote = remote.clone();
            Arc::new(Counted { remote, what })
        });
        Self { _counted }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.what == External::Mail {
            self.remote.0.mail.fetch_sub(1, Ordering::Relaxed);
        }
        // A kernel that waits for this alone must find out.
        self.remote.raise(Interrupt::Over(self.what));
    }
}
