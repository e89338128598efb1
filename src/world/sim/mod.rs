//! The simulated world: a virtual clock, a seeded sequence of random numbers, a console that is
//! kept, and a simulated network with disks.

mod disk;
mod net;

use std::{
    fmt,
    io::{Result, Write},
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Wake, Waker},
    time::Duration,
};

pub use disk::{Images, SimDisk};
pub use net::{BadFault, Fault, SimNet};

use super::{Answer, Happening, Request, World, console::Console, hand_on, sequence::Sequence};
use crate::{
    abi::DeviceId,
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
        self
    }

    /// Gives a host this disk; programs without a host have that of `localhost`. A disk belongs to one
    /// world at a time: the next one that takes it finds the files, and none of them open.
    ///
    /// [`Kernel::reset`](crate::Kernel::reset) makes the disk as it was at this call.
    #[must_use]
    pub fn disk(self, host: impl AsRef<str>, disk: &SimDisk) -> Self {
        self.net.state().disks.give(host.as_ref(), disk);
        self
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
        self.net.state().io(device, request)
    }

    fn net(&self) -> Option<SimNet> {
        Some(self.net.clone())
    }

    fn remote(&self) -> Remote {
        self.interrupts.remote()
    }
}
