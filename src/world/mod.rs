//! The world: what the programs themselves do not determine. Time, randomness, the console, what
//! devices deliver and when, and what other threads say.
//!
//! [`World`] is the boundary, with a [`Request`] for each thing that the kernel asks of a device.
//! [`RealWorld`] is the operating system. [`SimWorld`] has a virtual clock, a seed and a [`SimNet`].
//! [`mod@tape`] writes a run down, and plays it again.
//!
//! Uses the ABI, the interrupts, and what travels beside a call.

mod console;
mod devices;
mod forward;
mod io;
mod real;
mod sequence;
mod sim;
pub mod tape;
mod text;

use std::{
    io::{Error, ErrorKind, Result},
    time::Duration,
};

pub(crate) use devices::DeviceMap;
pub(crate) use forward::forward_world;
pub use io::{Answer, Request};
pub(crate) use real::affinity;
pub use real::{RealWorld, SharedPorts, open_again};
pub use sim::{BadFault, Fault, Images, Leap, SimDisk, SimNet, SimWorld};
pub(crate) use sim::{InStep, Pace};

use crate::{
    abi::{DeviceId, Direction, Tid},
    interrupt::{Interrupt, Interrupts, Remote},
    trap::{Mail, pause::in_place},
};

/// What lies outside a kernel. Kernel and programs are a pure function of what it answers.
///
/// The world answers a question at once: the time, a random number, a [`Request`] to a device. All
/// that the kernel does not ask for comes out of [`World::wait`], as a stream of [`Happening`]s. So a
/// wrapper that writes down both has a complete record of a run.
///
/// No method except [`World::wait`] and [`World::wait_for_threads`] may block.
///
/// # A wrapper
///
/// A world around another one forwards what it does not change, with [`forward_world!`]. This one
/// refuses connections to a port. [`Request`] has a kind for each thing a device can do, so a wrapper
/// that records, delays or fails requests changes one method.
///
/// ```
/// use std::{io, net::SocketAddr};
/// use trapline::{Answer, DeviceId, Kernel, Os, RealWorld, Request, World, forward_world};
///
/// struct Firewall<W> {
///     inner: W,
///     closed: u16,
/// }
///
/// impl<W: World> World for Firewall<W> {
///     fn io(&mut self, device: DeviceId, request: Request<'_>) -> io::Result<Answer> {
///         match request {
///             Request::Connect { addr, .. } if addr.port() == self.closed => {
///                 Err(io::ErrorKind::ConnectionRefused.into())
///             }
///             other => self.inner.io(device, other),
///         }
///     }
///
///     forward_world!(inner: now, now_for_log, random, reseed, seed, reset, print, take_console);
///     forward_world!(inner: wait, wait_for_threads, holds_tasks, is_idle, remote, submit);
///     forward_world!(inner: spins, spin, net, choose, mail);
/// }
///
/// let world = Firewall { inner: RealWorld::new()?, closed: 6000 };
/// let mut kernel = Kernel::builder().world(world).capture_console().build()?;
/// kernel.spawn("main", async |os: &mut Os| {
///     let addr: SocketAddr = ([127, 0, 0, 1], 6000).into();
///     let refused = os.connect(addr).await.unwrap_err();
///     writeln!(os, "{}", refused.kind());
/// })?;
/// kernel.run()?;
/// assert_eq!(kernel.take_console(), "connection refused\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait World {
    /// The time since boot. It never goes back.
    fn now(&mut self) -> Duration;

    /// The time since boot, for a tracer that asks for exact times and for the host. The run does
    /// not depend on it, so a [tape](mod@crate::tape) does not hold it. A wrapper of a world that
    /// tapes forwards this call.
    fn now_for_log(&mut self) -> Duration {
        self.now()
    }

    /// The next random number.
    fn random(&mut self) -> u64;

    /// Answers [`Os::choose`](crate::Os::choose), below `of`. `drawn` is the answer that follows from the
    /// seed.
    fn choose(&mut self, _of: u64, drawn: u64) -> u64 {
        drawn
    }

    /// Starts the sequence of random numbers anew.
    fn reseed(&mut self, seed: u64);

    /// The seed that the sequence of random numbers began with.
    fn seed(&self) -> u64;

    /// Makes the world as new, with another seed: no device, no printed text, the clock at zero.
    /// Returns whether it did. A world that cannot do so returns `false`, and does nothing. An
    /// interrupt that a thread raised before must not come later.
    /// [`Kernel::reset`](crate::Kernel::reset) calls this after all tasks have ended.
    fn reset(&mut self, _seed: u64) -> bool {
        false
    }

    /// Writes to the console, as much as it takes without waiting. Returns how many bytes that is.
    ///
    /// *Errors:* `WouldBlock` where the console takes nothing; [`Happening::Console`] says when it
    /// does. `BrokenPipe` ends the run. After any other error the text is lost and the run goes on.
    fn print(&mut self, text: &[u8]) -> Result<usize>;

    /// Takes what was printed, where the world keeps it. Otherwise returns an empty text.
    fn take_console(&mut self) -> String {
        String::new()
    }

    /// Waits until `deadline`, or until something happens, and appends all that has happened.
    ///
    /// The deadline counts from boot; `None` means for ever. With a deadline that has passed the
    /// call returns at once. The kernel makes such a call about every 256 turns. A world that
    /// promised no report, and has no interrupt, has nothing to ask then: it makes no system call.
    ///
    /// A wait may also end early with nothing. Interrupts keep their order. A device that is ready
    /// both ways is reported for reading first. A report for a device that no task waits for does no
    /// harm.
    ///
    /// *Errors:* the run ends with [`Error::Io`](crate::Error::Io).
    fn wait(&mut self, deadline: Option<Duration>, happened: &mut Vec<Happening>) -> Result<()>;

    /// Waits as [`World::wait`] does, for `patience` at most. The kernel calls it when only other
    /// threads can make a task ready.
    ///
    /// Returns how long it waited, on a clock that advances while other threads work; a virtual
    /// clock does not. A world that cannot tell returns zero and may wait for longer. Then a stall
    /// is never reported.
    ///
    /// *Errors:* as [`World::wait`].
    fn wait_for_threads(
        &mut self,
        deadline: Option<Duration>,
        _patience: Duration,
        happened: &mut Vec<Happening>,
    ) -> Result<Duration> {
        self.wait(deadline, happened)?;
        Ok(Duration::ZERO)
    }

    /// Whether the last wait ended for daemons alone. Their timers are due by the clock, and those
    /// of tasks are not yet. Such is a replay in a pause of its run, which a screen watches. A wrapper
    /// forwards this call.
    fn holds_tasks(&self) -> bool {
        false
    }

    /// Whether no device and no console will ever report anything, however long the kernel waits.
    /// Then the kernel returns [`Error::Deadlock`](crate::Error::Deadlock) when all tasks wait for
    /// devices, where it would otherwise wait for ever. Timers, jobs and remote setters do not count:
    /// the kernel knows of them. A world that cannot tell returns `false`.
    fn is_idle(&self) -> bool {
        false
    }

    /// The line on which other threads reach this world's kernel; always the same one. A world hands
    /// what comes over it to the kernel in [`World::wait`]. See
    /// [`Interrupts`](crate::Interrupts), of which a world owns one; a wrapper forwards this call.
    fn remote(&self) -> Remote;

    /// Has a piece of a task's work done: on another thread, or here and now. A
    /// [`pause`](crate::pause()) of the latter delays its result on this world's clock. A world may
    /// bound how many pieces of one task are under way at once; the others wait.
    fn submit(&mut self, _task: Tid, job: Box<dyn FnOnce() + Send>) {
        in_place(job);
    }

    /// Asks a device for something, and returns the answer at once. [`Request`] says for each request
    /// which [`Answer`] belongs to it.
    ///
    /// Devices are named by tokens. The kernel chooses them and never uses one again. A request that
    /// opens a device carries the host of its task.
    ///
    /// *Errors:* `WouldBlock` is a promise to report the device when it is ready. Any other error
    /// is the calling task's. A world without devices keeps this method as it is: every request fails
    /// with `Unsupported`.
    fn io(&mut self, _device: DeviceId, _request: Request<'_>) -> Result<Answer> {
        io::unsupported()
    }

    /// Reads, as [`Request::Recv`] does. Returns how many bytes there were, and whether it is known that no more are
    /// left: the promise of [`Request::Drained`], which the kernel need not ask for then. A world around
    /// another one keeps this method as it is, so that its `io` has each request.
    #[doc(hidden)]
    fn recv(&mut self, device: DeviceId, buf: &mut [u8]) -> Result<(usize, bool)> {
        let n = self.io(device, Request::Recv(buf))?.bytes()?;
        Ok((n, false))
    }

    /// Takes mail of other kernels and threads. A tape holds it. A world around another one forwards this.
    ///
    /// *Errors:* those of a tape; `Unsupported` for a world around a tape that does not forward this.
    #[doc(hidden)]
    fn mail(&mut self, mail: &mut dyn Mail) -> Result<()> {
        if self.remote().is_taped() {
            let why = "the world around a tape does not forward `mail`: add it to forward_world!";
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        mail.take(None);
        Ok(())
    }

    /// Whether a computation needs the time of the kernel's thread, as in the real world. The kernel
    /// then spins for the task that computes, in pieces of at most a millisecond, and has one
    /// processor. Otherwise it waits until the computation is over: a virtual clock advances.
    fn spins(&self) -> bool {
        false
    }

    /// Returns at that instant, if computations need the time of the thread. The readings of the clock
    /// in between are not of the run: a tape does not hold them. A wrapper forwards this call.
    fn spin(&mut self, until: Duration) {
        while self.spins() && self.now() < until {
            std::hint::spin_loop();
        }
    }

    /// Whether the kernel asks [`World::before_turn`] before each turn. The kernel asks this once, when it
    /// is built. A wrapper forwards both calls.
    fn is_asked(&self) -> bool {
        false
    }

    /// Decides what happens before the next turn. With an instant, the clock goes on up to there while
    /// tasks are ready, and the kernel asks again. An instant that has passed lets happen what the world
    /// has to report now. With `None` the next task has its turn, or the kernel waits if none is ready.
    fn before_turn(&mut self, _at: BeforeTurn) -> Option<Duration> {
        None
    }

    /// The simulated network of this world, if it has one. A wrapper forwards this call. A world
    /// without one has a single host.
    fn net(&self) -> Option<SimNet> {
        None
    }
}

impl<W: World + ?Sized> World for Box<W> {
    forward_world!(@all this, **this; now, now_for_log, random, reseed, seed, reset, print, take_console,
        wait, wait_for_threads, holds_tasks, is_idle, remote, submit, io, recv, spins, spin, net, choose,
        is_asked, before_turn, mail);
}

/// Where a run is before a turn: what [`World::before_turn`] is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BeforeTurn {
    /// The turns since boot.
    pub turns: u64,
    /// Whether no task can have a turn before the clock goes on.
    pub waits: bool,
    /// Whether that is because every processor computes: a task can be ready.
    pub is_full: bool,
    /// When the next timer fires, since boot.
    pub deadline: Option<Duration>,
}

/// What a world reports, unasked, from [`World::wait`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Happening {
    /// A device is ready: an attempt in this direction may succeed.
    Ready(DeviceId, Direction),
    /// The console takes text again.
    Console,
    /// Another thread has something to say.
    Interrupt(Interrupt),
}

/// Appends the interrupts that threads have raised. Returns whether there was one.
#[inline(always)]
fn hand_on(interrupts: &Interrupts, happened: &mut Vec<Happening>) -> bool {
    let is_raised = interrupts.is_raised();
    if is_raised {
        happened.extend(interrupts.take().map(Happening::Interrupt));
    }
    is_raised
}
