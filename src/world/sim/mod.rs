//! The simulated world: a virtual clock, a seeded sequence of random numbers, a console that is
//! kept, and a simulated network with disks.

mod disk;
mod in_step;
mod net;

use std::{
    fmt,
    io::{Result, Write},
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Wake, Waker},
    time::{Duration, SystemTime},
};

pub use disk::{Images, SimDisk};
pub(crate) use in_step::{InStep, Pace};
pub use net::{BadFault, Fault, Leap, SimNet};

use super::{
    Answer, Happening, Request, World, console::Console, hand_on, sequence::Sequence, text::Text,
};
use crate::{
    abi::{DeviceId, Nanos},
    interrupt::{Interrupts, Remote},
    panic::lock,
};

/// The simulated world. Its clock stops until the kernel waits, and then jumps to the
/// deadline: a day of sleep takes no time. Everything that happens in it follows from its seed.
///
/// Its network is a [`SimNet`]: one machine with 127.0.0.1 and ::1, unless hosts are made.
/// Each host has a [`SimDisk`].
pub struct SimWorld {
    now: Duration,
    random: Sequence,
    console: Console,
    bell: Arc<Bell>,
    interrupts: Interrupts,
    net: SimNet,
    input: Text,
    /// The time of day at the begin, if it is set.
    dawn: Option<Nanos>,
}

/// What a thread rings to end a wait without a deadline.
#[derive(Debug, Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Waits until it is rung, or for so long. Answers whether it was rung.
    fn wait(&self, patience: Duration) -> bool {
        let (rung, is_silent) = (lock(&self.rung), |rung: &mut bool| !*rung);
        let waited = self.changed.wait_timeout_while(rung, patience, is_silent);
        let (mut rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *rung)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *lock(&self.rung) = true;
        self.changed.notify_one();
    }
}

impl SimWorld {
    /// A world at time zero.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let bell = Arc::<Bell>::default();
        Self {
            now: Duration::ZERO,
            random: Sequence::new(seed),
            console: Console::Kept(Vec::new()),
            interrupts: Interrupts::new(Waker::from(Arc::clone(&bell))),
            bell,
            net: SimNet::new(),
            input: Text::new(&[]),
            dawn: None,
        }
        .net(&SimNet::new())
    }

    /// Has this network in the world. A network belongs to one world at a time: the next one that
    /// takes it finds the hosts and the links, and no connection.
    #[must_use]
    pub fn net(mut self, net: &SimNet) -> Self {
        let disks = self.net.state().disks.take();
        net.state().begin(self.random.seed);
        for (host, disk) in disks {
            net.state().disks.give(&host, &disk);
        }
        self.net = net.clone();
        self.set_dawn();
        self
    }

    /// Gives a host this disk; programs without a host have that of `localhost`. A disk belongs to one
    /// host of one world at a time: the next one that takes it finds the files, and none of them open.
    ///
    /// [`Kernel::reset`](crate::Kernel::reset) makes the disk as it was at this call.
    #[must_use]
    pub fn disk(self, host: impl AsRef<str>, disk: &SimDisk) -> Self {
        self.net.state().disks.give(host.as_ref(), disk);
        self
    }

    /// Sets the time of day at the begin. Default: 2000-01-01T00:00:00Z. It advances with the virtual
    /// clock. [`Fault::ClockStep`] makes it step, and [`Fault::ClockLeap`] repeats or skips a second.
    /// From 1970 to 2554; other times count as the nearest one.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use trapline::{Kernel, Os, SimWorld};
    ///
    /// let eve = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_599);
    /// let mut kernel = Kernel::builder().world(SimWorld::new(1).wall_clock(eve)).build()?;
    /// kernel.spawn("party", async move |os: &mut Os| {
    ///     assert_eq!(os.wall_clock().await, eve);
    ///     os.sleep(Duration::from_secs(1)).await;
    ///     assert_eq!(os.wall_clock().await, eve + Duration::from_secs(1));
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    #[must_use]
    pub fn wall_clock(mut self, time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        self.dawn = Some(since.unwrap_or_default().into());
        self.set_dawn();
        self
    }

    fn set_dawn(&self) {
        if let Some(dawn) = self.dawn {
            self.net.state().dawn = dawn;
        }
    }

    /// Returns the next instant, since boot, at which the network has something to report, if it knows.
    #[must_use]
    pub fn next_report(&self) -> Option<Duration> {
        self.net.state().next().map(Duration::from)
    }

    /// Has what is printed go there at once, rather than be kept for
    /// [`Kernel::take_console`](crate::Kernel::take_console).
    #[must_use]
    pub fn print_to(mut self, console: impl Write + 'static) -> Self {
        self.console = Console::Sink(Box::new(console));
        self
    }
}

impl fmt::Debug for SimWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimWorld")
            .field("now", &self.now)
            .field("seed", &self.random.seed)
            .finish_non_exhaustive()
    }
}

impl World for SimWorld {
    fn now(&mut self) -> Duration {
        self.now
    }

    fn random(&mut self) -> u64 {
        self.random.next()
    }

    fn reseed(&mut self, seed: u64) {
        self.random = Sequence::new(seed);
        self.net.state().reseed(seed);
    }

    fn seed(&self) -> u64 {
        self.random.seed
    }

    fn reset(&mut self, seed: u64) -> bool {
        self.now = Duration::ZERO;
        self.random = Sequence::new(seed);
        self.net.state().renew(seed);
        self.input.rewind();
        if let Console::Kept(kept) = &mut self.console {
            kept.clear();
        }
        // A thread of the last run may yet raise an interrupt, on a line of its own.
        if self.interrupts.0.is_used() {
            self.bell = Arc::default();
            self.interrupts = Interrupts::new(Waker::from(Arc::clone(&self.bell)));
        }
        true
    }

    fn print(&mut self, text: &[u8]) -> Result<usize> {
        self.console.print(text)
    }

    fn take_console(&mut self) -> String {
        self.console.take()
    }

    fn wait(&mut self, deadline: Option<Duration>, happened: &mut Vec<Happening>) -> Result<()> {
        // An interrupt happens now: the clock does not move.
        if hand_on(&self.interrupts, happened) {
            return Ok(());
        }
        let next = self.net.state().next().map(Duration::from);
        match deadline.into_iter().chain(next).min() {
            Some(until) => self.now = self.now.max(until),
            // Only a thread can end this wait: real time, of which the virtual clock knows nothing.
            None => {
                self.bell.wait(Duration::MAX);
                hand_on(&self.interrupts, happened);
            }
        }
        match next {
            Some(next) if next <= self.now => self.net.advance(self.now, happened),
            _ => self.net.state().now = self.now.into(),
        }
        Ok(())
    }

    fn wait_for_threads(
        &mut self,
        deadline: Option<Duration>,
        patience: Duration,
        happened: &mut Vec<Happening>,
    ) -> Result<Duration> {
        if deadline.is_some() {
            self.wait(deadline, happened)?;
            return Ok(Duration::ZERO);
        }
        if hand_on(&self.interrupts, happened) {
            return Ok(Duration::ZERO);
        }
        let is_rung = self.bell.wait(patience);
        hand_on(&self.interrupts, happened);
        Ok(if is_rung { Duration::ZERO } else { patience })
    }

    /// Nothing is outside, and nothing is under way.
    fn is_idle(&self) -> bool {
        self.net.state().is_idle()
    }

    fn io(&mut self, device: DeviceId, request: Request<'_>) -> Result<Answer> {
        if self.input.is(device, &request) {
            return self.input.io(request);
        }
        match request {
            Request::Input => {
                self.input.device = Some(device);
                Ok(Answer::Done)
            }
            Request::Feed(text) => {
                self.input = Text::new(text);
                Ok(Answer::Done)
            }
            request => self.net.state().io(device, request),
        }
    }

    fn net(&self) -> Option<SimNet> {
        Some(self.net.clone())
    }

    fn remote(&self) -> Remote {
        self.interrupts.remote()
    }
}
