//! Worlds of the tests' own: one that counts what the kernel asks of it, and one with devices that
//! are ready when a test says so.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    io,
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use trapline::{
    Answer, DeviceId, Direction, Happening, Request, SimWorld, Tid, World, forward_world,
};

/// Any world, with a count of the looks and waits of the kernel.
pub(crate) struct Counted<W> {
    inner: W,
    waits: Rc<Cell<u32>>,
}

impl<W> Counted<W> {
    pub(crate) fn new(inner: W) -> (Self, Rc<Cell<u32>>) {
        let waits = Rc::default();
        let counter = Rc::clone(&waits);
        (Self { inner, waits }, counter)
    }
}

impl<W: World> World for Counted<W> {
    forward_world!(inner: now, random, reseed, seed, print, remote, is_idle, submit, io);

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        self.waits.set(self.waits.get() + 1);
        self.inner.wait(deadline, happened)
    }
}

/// The simulated world with devices that hold no bytes and are ready when a test says so.
pub(crate) struct Bells {
    sim: SimWorld,
    ringing: Ringing,
}

/// Which devices are ready at the next look.
pub(crate) type Ringing = Rc<RefCell<Vec<(DeviceId, Direction)>>>;

impl Bells {
    pub(crate) fn new() -> (Self, Ringing) {
        let ringing = Ringing::default();
        let sim = SimWorld::new(1);
        let bells = Self {
            sim,
            ringing: Rc::clone(&ringing),
        };
        (bells, ringing)
    }
}

impl World for Bells {
    forward_world!(sim: now, random, reseed, seed, print, take_console, remote);

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        happened.extend(self.ringing.borrow_mut().drain(..).map(ready));
        match happened.is_empty() {
            true => self.sim.wait(deadline, happened),
            false => Ok(()),
        }
    }

    fn io(&mut self, _: DeviceId, request: Request<'_>) -> io::Result<Answer> {
        match request {
            Request::Attach { .. } | Request::Close => Ok(Answer::Done),
            Request::Recv(_) => Err(io::ErrorKind::WouldBlock.into()),
            Request::Ready(_) => Ok(Answer::Ready(false)),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// The simulated world with devices of which each request takes time. Each direction of a device is
/// full, or empty, at the first attempt.
pub(crate) struct Slow {
    sim: SimWorld,
    spent: Duration,
    tried: BTreeSet<(DeviceId, Direction)>,
    owed: Vec<(DeviceId, Direction)>,
}

impl Slow {
    /// The time that a request takes.
    pub(crate) const COST: Duration = Duration::from_micros(20);

    pub(crate) fn new() -> Self {
        Self {
            sim: SimWorld::new(1),
            spent: Duration::ZERO,
            tried: BTreeSet::new(),
            owed: Vec::new(),
        }
    }

    fn attempt(
        &mut self,
        device: DeviceId,
        direction: Direction,
        answer: Answer,
    ) -> io::Result<Answer> {
        if self.tried.insert((device, direction)) {
            self.owed.push((device, direction));
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(answer)
    }
}

impl World for Slow {
    forward_world!(sim: random, reseed, seed, print, take_console, remote);

    fn now(&mut self) -> Duration {
        self.sim.now() + self.spent
    }

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        happened.extend(self.owed.drain(..).map(ready));
        let deadline = deadline.map(|deadline| deadline.saturating_sub(self.spent));
        match happened.is_empty() {
            true => self.sim.wait(deadline, happened),
            false => Ok(()),
        }
    }

    fn submit(&mut self, task: Tid, job: Box<dyn FnOnce() + Send>) {
        self.spent += Self::COST;
        self.sim.submit(task, job);
    }

    fn io(&mut self, device: DeviceId, request: Request<'_>) -> io::Result<Answer> {
        self.spent += Self::COST;
        let addr = SocketAddr::from(([127, 0, 0, 1], 80));
        match request {
            Request::Listen { .. } => Ok(Answer::Addr(addr)),
            Request::Accept { .. } => self.attempt(device, Direction::Read, Answer::Addr(addr)),
            Request::Recv(_) => self.attempt(device, Direction::Read, Answer::Bytes(1)),
            Request::Send(_) => self.attempt(device, Direction::Write, Answer::Bytes(1)),
            Request::Ready(_) => Ok(Answer::Ready(true)),
            Request::Drained => {
                // It is known without a request.
                self.spent -= Self::COST;
                Ok(Answer::Ready(false))
            }
            Request::Resolve { addresses, .. } => {
                addresses.push(addr.ip());
                Ok(Answer::Ready(true))
            }
            _ => Ok(Answer::Done),
        }
    }
}

/// A world of one's own without devices.
pub(crate) struct Bare(pub(crate) SimWorld);

impl World for Bare {
    forward_world!(0: now, random, reseed, seed, print, remote, wait);
}

fn ready((device, direction): (DeviceId, Direction)) -> Happening {
    Happening::Ready(device, direction)
}

/// A console that is gone.
pub(crate) struct NoConsole;

impl io::Write for NoConsole {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
