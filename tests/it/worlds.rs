//! Worlds of the tests' own: one that counts what the kernel asks of it, and one with devices that
//! are ready when a test says so.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io,
    net::SocketAddr,
    rc::Rc,
    task::Waker,
    time::Duration,
};

use trapline::{Descriptor, DeviceId, Direction, SimWorld, World};

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
        ready: &mut Vec<(DeviceId, Direction)>,
    ) -> io::Result<()> {
        self.waits.set(self.waits.get() + 1);
        self.inner.wait(deadline, ready)
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn attach(&mut self, id: DeviceId, descriptor: Descriptor) -> io::Result<()> {
        self.inner.attach(id, descriptor)
    }

    fn listen(&mut self, id: DeviceId, addr: SocketAddr) -> io::Result<SocketAddr> {
        self.inner.listen(id, addr)
    }

    fn connect(&mut self, id: DeviceId, addr: SocketAddr) -> io::Result<()> {
        self.inner.connect(id, addr)
    }

    fn connected(&mut self, id: DeviceId) -> io::Result<()> {
        self.inner.connected(id)
    }

    fn accept(&mut self, listener: DeviceId, id: DeviceId) -> io::Result<SocketAddr> {
        self.inner.accept(listener, id)
    }

    fn recv(&mut self, id: DeviceId, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.recv(id, buf)
    }

    fn is_drained(&mut self, id: DeviceId) -> bool {
        self.inner.is_drained(id)
    }

    fn send(&mut self, id: DeviceId, buf: &[u8]) -> io::Result<usize> {
        self.inner.send(id, buf)
    }

    fn send_file(
        &mut self,
        id: DeviceId,
        file: &File,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        self.inner.send_file(id, file, offset, len)
    }

    fn shutdown_write(&mut self, id: DeviceId) -> io::Result<()> {
        self.inner.shutdown_write(id)
    }

    fn ready(&mut self, id: DeviceId, direction: Direction) -> io::Result<bool> {
        self.inner.ready(id, direction)
    }

    fn close(&mut self, id: DeviceId) {
        self.inner.close(id);
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
        ready: &mut Vec<(DeviceId, Direction)>,
    ) -> io::Result<()> {
        ready.append(&mut self.ringing.borrow_mut());
        match ready.is_empty() {
            true => self.sim.wait(deadline, ready),
            false => Ok(()),
        }
    }

    fn attach(&mut self, _: DeviceId, _: Descriptor) -> io::Result<()> {
        Ok(())
    }

    fn recv(&mut self, _: DeviceId, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn ready(&mut self, _: DeviceId, _: Direction) -> io::Result<bool> {
        Ok(false)
    }
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
