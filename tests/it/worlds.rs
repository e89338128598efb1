//! Worlds of the tests' own: one that counts what the kernel asks of it, and one with devices that
//! are ready when a test says so.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};

use trapline::{Answer, DeviceId, Direction, Happening, Request, SimWorld, World, forward_world};

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
