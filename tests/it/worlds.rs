//! Worlds of the tests' own: one that counts what the kernel asks of it, and one with devices that
//! are ready when a test says so.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};

use trapline::{Answer, DeviceId, Direction, Happening, Request, SimWorld, World};

/// Passes the named methods of a [`World`] on to the world in a field.
macro_rules! forward {
    ($to:tt: $($method:ident),+) => {
        $($crate::worlds::forward!(@ $method $to);)+
    };
    (@ now $to:tt) => {
        fn now(&mut self) -> std::time::Duration {
            self.$to.now()
        }
    };
    (@ random $to:tt) => {
        fn random(&mut self) -> u64 {
            self.$to.random()
        }
    };
    (@ seeds $to:tt) => {
        fn reseed(&mut self, seed: u64) {
            self.$to.reseed(seed);
        }
        fn seed(&self) -> u64 {
            self.$to.seed()
        }
    };
    (@ print $to:tt) => {
        fn print(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.$to.print(text)
        }
    };
    (@ take_console $to:tt) => {
        fn take_console(&mut self) -> String {
            self.$to.take_console()
        }
    };
    (@ remote $to:tt) => {
        fn remote(&self) -> trapline::Remote {
            self.$to.remote()
        }
    };
    (@ wait $to:tt) => {
        fn wait(
            &mut self,
            deadline: Option<std::time::Duration>,
            happened: &mut Vec<trapline::Happening>,
        ) -> std::io::Result<()> {
            self.$to.wait(deadline, happened)
        }
    };
    (@ is_idle $to:tt) => {
        fn is_idle(&self) -> bool {
            self.$to.is_idle()
        }
    };
    (@ submit $to:tt) => {
        fn submit(&mut self, task: trapline::Tid, job: Box<dyn FnOnce() + Send>) {
            self.$to.submit(task, job);
        }
    };
    (@ io $to:tt) => {
        fn io(
            &mut self,
            device: trapline::DeviceId,
            request: trapline::Request<'_>,
        ) -> std::io::Result<trapline::Answer> {
            self.$to.io(device, request)
        }
    };
}
pub(crate) use forward;

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
    forward!(inner: now, random, seeds, print, remote, is_idle, submit, io);

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
    forward!(sim: now, random, seeds, print, take_console, remote);

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
    forward!(0: now, random, seeds, print, remote, wait);
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
