//! [`Playing`]: a world that answers from a tape.

use std::{
    cell::RefCell,
    collections::{BTreeSet, VecDeque},
    fmt,
    io::{self, Read, Write},
    path::Path,
    thread,
    time::Duration,
};

use super::{
    Error, Header, Progress,
    entry::{self, is_of_daemon},
    reel::{Over, Reel},
};
use crate::{
    abi::{DeviceId, QueueId, Tid},
    interrupt::{External, Interrupt, Job, Remote},
    panic::contain,
    trap::{
        Lack, Mail,
        pause::{again, in_place},
    },
    world::{Answer, Happening, RealWorld, Request, World, console::Console},
};

/// How long a replay waits for a thread of the program that has yet to do what the tape reports.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it looks for a message that another kernel has to put again.
const GLANCE: Duration = Duration::from_millis(1);

/// A world that answers from a tape. See [`mod@crate::tape`].
///
/// A run ends with [`Error`] where the tape ends before it, or where the program asks for something
/// else than the tape has: [`Error::of`] finds it in the error of
/// [`Kernel::run`](crate::Kernel::run). Nothing that tasks do there reaches the real world, except
/// what they print.
///
/// The kernel needs the same settings and tasks as during the run on the tape. Tracers and daemons
/// may differ: devices of daemons are of the real world.
pub struct Playing {
    reel: RefCell<Reel>,
    /// Serves the daemons, and reports what threads of the program do.
    beneath: RealWorld,
    remote: Remote,
    /// What the world beneath has reported; kept to reuse its memory.
    reported: Vec<Happening>,
    /// Work that the tape has not reported as done yet.
    jobs: VecDeque<Job>,
    /// Queues that threads of this run have closed. A tape of an earlier version has the close of a
    /// promise that a thread has set a second time.
    closed: BTreeSet<QueueId>,
    /// How many threads of this run that the kernel counts on have nothing more to say.
    over: usize,
    console: Console,
    at_speed: bool,
    /// The time, if the last wait was for a daemon, so that the next one is the same on the tape.
    held: Option<Duration>,
    interrupted: Box<dyn Fn() -> bool>,
    is_stopped: bool,
}

impl Playing {
    /// Opens a tape.
    ///
    /// *Errors:* [`Error::Foreign`], [`Error::Empty`] and [`Error::TooNew`] for what it cannot read;
    /// [`Error::Truncated`] and [`Error::Corrupt`] where the header is incomplete or damaged; the
    /// operating system's.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::new(Reel::open(path.as_ref())?)
    }

    /// Plays a tape from any source.
    ///
    /// *Errors:* as [`Playing::open`].
    pub fn from_reader(input: impl Read + 'static) -> Result<Self, Error> {
        Self::new(Reel::from_reader(input)?)
    }

    fn new(reel: Reel) -> Result<Self, Error> {
        let beneath = RealWorld::new()?;
        beneath.remote().note_tape(true);
        Ok(Self {
            reel: RefCell::new(reel),
            remote: beneath.remote(),
            beneath,
            reported: Vec::new(),
            jobs: VecDeque::new(),
            closed: BTreeSet::new(),
            over: 0,
            console: Console::Kept(Vec::new()),
            at_speed: false,
            held: None,
            interrupted: Box::new(|| false),
            is_stopped: false,
        })
    }

    /// The description of the run on the tape.
    #[must_use]
    pub fn header(&self) -> Header {
        self.reel.borrow().header.clone()
    }

    /// A view of how far the replay has come. The kernel owns the world, so keep this to check that
    /// the tape was used to its end.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.reel.borrow().progress.clone()
    }

    /// Prints there, rather than keep what is printed for
    /// [`Kernel::take_console`](crate::Kernel::take_console).
    #[must_use]
    pub fn print_to(mut self, console: impl Write + 'static) -> Self {
        self.console = Console::Sink(Box::new(console));
        self
    }

    /// Waits as long as the run on the tape waited. By default a wait takes no time.
    #[must_use]
    pub fn at_speed(mut self) -> Self {
        self.at_speed = true;
        self
    }

    /// Asks `interrupted` when a thread calls [`Remote::shutdown`]. If it returns `true`, the replay
    /// shuts down. By default the call has no effect: a shutdown during the run is on the tape.
    #[must_use]
    pub fn stop_when(mut self, interrupted: impl Fn() -> bool + 'static) -> Self {
        self.interrupted = Box::new(interrupted);
        self
    }

    /// Takes what daemons wait for, and what threads of the program have done. Waits for so long if
    /// there is nothing.
    fn listen(&mut self, patience: Duration, happened: &mut Vec<Happening>) -> io::Result<()> {
        let until = match patience {
            Duration::ZERO => Duration::ZERO,
            patience => self.beneath.now().saturating_add(patience),
        };
        self.beneath.wait(Some(until), &mut self.reported)?;
        for report in self.reported.drain(..) {
            if is_of_daemon(&report) {
                happened.push(report);
                continue;
            }
            match report {
                Happening::Interrupt(Interrupt::Close(queue)) => {
                    self.closed.insert(queue);
                }
                Happening::Interrupt(Interrupt::Shutdown) => {
                    self.is_stopped |= (self.interrupted)();
                }
                Happening::Interrupt(Interrupt::Over(_)) => self.over += 1,
                // What is put again is told of when the tape says so.
                Happening::Interrupt(Interrupt::Mail(..)) => {}
                // Those of the run are on the tape.
                Happening::Interrupt(Interrupt::Signal(_)) => {}
                // No task has a device or the console of the world beneath.
                Happening::Console | Happening::Ready(..) => {}
            }
        }
        Ok(())
    }

    /// Waits until the wait on the tape is over, at the speed of its run. Returns the time if
    /// something for a daemon came first: a report, or the deadline.
    fn keep_pace(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<Option<Duration>> {
        let Some(end) = self.reel.get_mut().end_of_wait() else {
            return Ok(None);
        };
        // No daemon has a timer up to the time at which it was held. Such a deadline is a task's, and
        // the tape says when its wait is over.
        let held = self.held.unwrap_or_default();
        let deadline = deadline.filter(|deadline| held < *deadline && *deadline < end);
        let before = happened.len();
        while !self.is_stopped {
            let now = self.beneath.now();
            if now >= end {
                break;
            }
            let is_due = deadline.is_some_and(|deadline| now >= deadline);
            if is_due || happened.len() > before {
                return Ok(Some(now.max(self.reel.get_mut().now)));
            }
            self.listen(deadline.unwrap_or(end).saturating_sub(now), happened)?;
        }
        Ok(None)
    }

    /// Does the work, or waits for the thread, that closes this queue. The tape says that it is
    /// closed now.
    fn await_close(&mut self, queue: QueueId, happened: &mut Vec<Happening>) -> io::Result<()> {
        let until = self.beneath.now() + PATIENCE;
        loop {
            self.listen(Duration::ZERO, happened)?;
            if self.closed.contains(&queue) || self.is_stopped {
                return Ok(());
            }
            if let Some(job) = self.jobs.pop_front() {
                contain(|| again(job));
                continue;
            }
            let started = External::ALL.map(|what| self.remote.started(what));
            let left = until.saturating_sub(self.beneath.now());
            if left == Duration::ZERO || self.over >= started.iter().sum() {
                let asked = "a wait in which no thread closes a queue".to_string();
                let found = format!("the close of queue {}", queue.number());
                let reel = self.reel.get_mut();
                let Over = reel.leave(Tid::KERNEL, asked, found);
                return Err(reel.error());
            }
            self.listen(left, happened)?;
        }
    }
}

impl World for Playing {
    fn now(&mut self) -> Duration {
        let task = self.remote.running();
        let reel = self.reel.get_mut();
        if task.is_daemon() || self.held.is_some() {
            return self.held.unwrap_or(reel.now);
        }
        reel.now(task).unwrap_or(reel.now)
    }

    fn now_for_log(&mut self) -> Duration {
        self.reel.get_mut().now
    }

    /// As the world of the run, but without the time.
    fn spins(&self) -> bool {
        !self.reel.borrow().header.is_simulated
    }

    fn spin(&mut self, _until: Duration) {}

    fn random(&mut self) -> u64 {
        let task = self.remote.running();
        self.reel.get_mut().random(task).unwrap_or_default()
    }

    fn choose(&mut self, _of: u64, drawn: u64) -> u64 {
        let task = self.remote.running();
        self.reel.get_mut().choose(task, drawn).unwrap_or_default()
    }

    /// The seed is on the tape.
    fn reseed(&mut self, _seed: u64) {}

    fn seed(&self) -> u64 {
        self.reel.borrow().random.seed
    }

    fn print(&mut self, text: &[u8]) -> io::Result<usize> {
        let task = self.remote.running();
        let printed = match self.reel.get_mut().print(task, text.len()) {
            Ok(result) => result?,
            // Nothing that the run on the tape did not print.
            Err(Over) => return Ok(text.len()),
        };
        self.console.print(&text[..printed])
    }

    fn take_console(&mut self) -> String {
        self.console.take()
    }

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        let waited = self.wait_for_threads(deadline, Duration::MAX, happened);
        waited.map(drop)
    }

    fn wait_for_threads(
        &mut self,
        deadline: Option<Duration>,
        _patience: Duration,
        happened: &mut Vec<Happening>,
    ) -> io::Result<Duration> {
        self.listen(Duration::ZERO, happened)?;
        self.held = match self.at_speed && deadline != Some(Duration::ZERO) {
            true => self.keep_pace(deadline, happened)?,
            false => None,
        };
        if self.held.is_some() {
            return Ok(Duration::ZERO);
        }
        if self.is_stopped {
            self.reel.get_mut().stop(None);
            happened.push(Happening::Interrupt(Interrupt::Shutdown));
            return Ok(Duration::ZERO);
        }
        let reel = self.reel.get_mut();
        let Ok(result) = reel.wait() else {
            return Err(reel.error());
        };
        for report in std::mem::take(&mut reel.happened) {
            if let Happening::Interrupt(Interrupt::Close(queue)) = report {
                self.await_close(queue, happened)?;
            }
            happened.push(report);
        }
        Ok(result?.unwrap_or_default())
    }

    fn holds_tasks(&self) -> bool {
        self.held.is_some()
    }

    fn is_idle(&self) -> bool {
        self.reel.borrow_mut().is_idle()
    }

    fn remote(&self) -> Remote {
        self.remote.clone()
    }

    fn submit(&mut self, task: Tid, job: Job) {
        if task.is_daemon() {
            return self.beneath.submit(task, job);
        }
        match self.reel.get_mut().submit(task) {
            Ok(true) => in_place(job),
            Ok(false) | Err(Over) => self.jobs.push_back(job),
        }
    }

    /// Takes what the tape has. Waits where a thread or another kernel has to put it again.
    fn mail(&mut self, mail: &mut dyn Mail) -> io::Result<()> {
        let task = self.remote.running();
        let reel = self.reel.get_mut();
        let Ok(taken) = reel.mail(task) else {
            return Err(reel.error());
        };
        let until = self.beneath.now() + PATIENCE;
        loop {
            let what = match mail.again(&taken) {
                Ok(()) => return Ok(()),
                Err(Lack::Yet) if self.beneath.now() >= until => Lack::NOT_PUT,
                Err(Lack::Wrong(what)) => what,
                Err(Lack::Yet) => {
                    match self.jobs.pop_front() {
                        Some(job) => {
                            contain(|| again(job));
                        }
                        None => thread::sleep(GLANCE),
                    }
                    continue;
                }
            };
            let reel = self.reel.get_mut();
            let Over = reel.leave(task, "mail".into(), what.into());
            return Err(reel.error());
        }
    }

    fn io(&mut self, device: DeviceId, mut request: Request<'_>) -> io::Result<Answer> {
        if entry::is_apart(device, &self.remote) {
            return self.beneath.io(device, request);
        }
        if let Request::Feed(_) = &request {
            // What was read of it is on the tape.
            return Ok(Answer::Done);
        }
        if let Request::Attach { descriptor, .. } = &request {
            // As in the run: the program's own I/O would block for ever on what does not come again.
            let _ = descriptor.set_nonblocking();
        }
        let task = self.remote.running();
        let answer = self.reel.get_mut().io(task, device, &mut request);
        answer.unwrap_or_else(|Over| refuse(&request))
    }
}

/// The answer to a request after the end of the replay. The task blocks if it can; the next wait
/// ends the run.
fn refuse(request: &Request<'_>) -> io::Result<Answer> {
    match request {
        Request::Close | Request::Shutdown | Request::ShutdownRead => Ok(Answer::Done),
        Request::Attach { .. } | Request::Connect { .. } | Request::Catch(_) => Ok(Answer::Done),
        Request::ConnectTo(_) | Request::SetOptions(_) => Ok(Answer::Done),
        Request::Input | Request::Feed(_) => Ok(Answer::Done),
        Request::Drained => Ok(Answer::Ready(true)),
        Request::Disk { .. } | Request::File(_) => Ok(Answer::Done),
        Request::Ready(_) | Request::Resolve { .. } => Ok(Answer::Ready(false)),
        Request::Accept { .. }
        | Request::Recv(_)
        | Request::Send(_)
        | Request::SendFile { .. }
        | Request::Finish(_) => Err(io::ErrorKind::WouldBlock.into()),
        Request::RecvFrom { .. } | Request::SendTo { .. } => Err(io::ErrorKind::WouldBlock.into()),
        Request::Listen { .. }
        | Request::Connected
        | Request::WallClock { .. }
        | Request::Bind { .. }
        | Request::ListenUnix { .. }
        | Request::ConnectUnix { .. }
        | Request::Pair { .. } => Err(io::Error::other("the replay is over")),
    }
}

impl fmt::Debug for Playing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Playing")
            .field("offset", &self.reel.borrow().progress.offset())
            .finish_non_exhaustive()
    }
}
