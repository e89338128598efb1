//! Worlds of the tests' own: one that counts what the kernel asks of it, and one with devices that
//! are ready when a test says so.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};

use trapline::{Answer, DeviceId, Direction, Happening, Remote, Request, SimWorld, Tid, World};

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
    fn now(&mut self) -> Duration {
        self.inner.now()
    }

    fn random(&mut self) -> u64 {
        self.inner.random()
    }

    fn reseed(&mut self, seed: u64) {
        self.inner.reseed(seed);
    }

    fn seed(&self) -> u64 {
        self.inner.seed()
    }

    fn print(&mut self, text: &[u8]) -> io::Result<usize> {
        self.inner.print(text)
    }

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        self.waits.set(self.waits.get() + 1);
        self.inner.wait(deadline, happened)
    }

    fn is_idle(&self) -> bool {
        self.inner.is_idle()
    }

    fn remote(&self) -> Remote {
        self.inner.remote()
    }

    fn submit(&mut self, task: Tid, job: Box<dyn FnOnce() + Send>) {
        self.inner.submit(task, job);
    }

    fn io(&mut self, device: DeviceId, request: Request<'_>) -> io::Result<Answer> {
        self.inner.io(device, request)
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
    fn now(&mut self) -> Duration {
        self.sim.now()
    }

    fn random(&mut self) -> u64 {
        self.sim.random()
    }

    fn reseed(&mut self, seed: u64) {
        self.sim.reseed(seed);
    }

    fn seed(&self) -> u64 {
        self.sim.seed()
    }

    fn print(&mut self, text: &[u8]) -> io::Result<usize> {
        self.sim.print(text)
    }

    fn take_console(&mut self) -> String {
        self.sim.take_console()
    }

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

    fn remote(&self) -> Remote {
        self.sim.remote()
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

/// A world of one's own without devices.
pub(crate) struct Bare(pub(crate) SimWorld);

impl World for Bare {
    fn now(&mut self) -> Duration {
        self.0.now()
    }

    fn random(&mut self) -> u64 {
        self.0.random()
    }

    fn reseed(&mut self, seed: u64) {
        self.0.reseed(seed);
    }

    fn seed(&self) -> u64 {
        self.0.seed()
    }

    fn print(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.print(text)
    }

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        self.0.wait(deadline, happened)
    }

    fn remote(&self) -> Remote {
        self.0.remote()
    }
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
