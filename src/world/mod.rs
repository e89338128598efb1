//! The world: whatever the programs themselves do not determine. Time, randomness, the console,
//! and what devices deliver and when.
//!
//! Uses the ABI, and the frame for its limit of bytes.

#[cfg(target_os = "linux")]
mod epoll;
mod pool;
mod real;
#[cfg(target_os = "linux")]
mod sendfile;
mod sim;

use std::{
    collections::HashMap,
    fs::File,
    hash::{BuildHasherDefault, Hasher},
    io,
    net::SocketAddr,
    os::{fd::AsFd, unix::fs::FileExt},
    rc::Rc,
    task::Waker,
    time::Duration,
};

pub use real::RealWorld;
pub use sim::SimWorld;

use crate::{
    abi::{DeviceId, Direction},
    frame::MAX_IO,
};

/// What lies outside a kernel. Kernel and programs are a pure function of what it answers.
///
/// No method but [`World::wait`] may block. Devices are named by tokens that the kernel gives out
/// and never uses again. A world without devices leaves those methods as they are: they answer
/// `Unsupported`.
pub trait World {
    /// The time since boot. It never goes back.
    fn now(&mut self) -> Duration;

    /// The next random number.
    fn random(&mut self) -> u64;

    /// Starts the sequence of random numbers anew.
    fn reseed(&mut self, seed: u64);

    /// The seed that the sequence of random numbers began with.
    fn seed(&self) -> u64;

    /// Writes to the console.
    fn print(&mut self, text: &str) -> io::Result<()>;

    /// Takes what was printed, where that is kept rather than shown.
    fn take_console(&mut self) -> String {
        String::new()
    }

    /// Waits until `deadline` (counted from boot; `None`: for ever), a device or the waker, and
    /// appends what has become ready. Of a device that is ready both ways, reading comes first. A
    /// deadline that has passed means a look, without waiting.
    fn wait(
        &mut self,
        deadline: Option<Duration>,
        ready: &mut Vec<(DeviceId, Direction)>,
    ) -> io::Result<()>;

    /// Ends a [`World::wait`] from another thread, or the next one if none is under way.
    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    /// Has a piece of work done: here and now, or on another thread.
    fn submit(&mut self, job: Box<dyn FnOnce() + Send>) {
        job();
    }

    /// Takes on a descriptor of the host's.
    fn attach(&mut self, _id: DeviceId, _source: Rc<dyn AsFd>) -> io::Result<()> {
        unsupported()
    }

    /// Opens a listening TCP socket and answers its address.
    fn listen(&mut self, _id: DeviceId, _addr: SocketAddr) -> io::Result<SocketAddr> {
        unsupported()
    }

    /// Begins a TCP connection. The device is writable once it stands or has failed.
    fn connect(&mut self, _id: DeviceId, _addr: SocketAddr) -> io::Result<()> {
        unsupported()
    }

    /// How a begun connection came out.
    fn connected(&mut self, _id: DeviceId) -> io::Result<()> {
        unsupported()
    }

    /// Takes a connection off `listener` as device `id` and answers its peer's address.
    fn accept(&mut self, _listener: DeviceId, _id: DeviceId) -> io::Result<SocketAddr> {
        unsupported()
    }

    /// Reads; answers `WouldBlock` where there is nothing, and reports the device when there is.
    fn recv(&mut self, _id: DeviceId, _buf: &mut [u8]) -> io::Result<usize> {
        unsupported()
    }

    /// Whether it is known that there is nothing to read, so that the device will be reported when
    /// there is. A world that cannot tell answers no, and is asked to read.
    fn is_drained(&mut self, _id: DeviceId) -> bool {
        false
    }

    /// Writes; answers `WouldBlock` where there is no room, and reports the device when there is.
    fn send(&mut self, _id: DeviceId, _buf: &[u8]) -> io::Result<usize> {
        unsupported()
    }

    /// Writes at most `len` bytes of a file from `offset` on, and answers how many; 0 at the end of
    /// the file. Answers `WouldBlock` as [`World::send`] does. A world that has no call for it reads
    /// a piece of the file and sends that.
    fn send_file(
        &mut self,
        id: DeviceId,
        file: &File,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        send_piece(self, id, file, offset, len)
    }

    /// Ends the outgoing half of a connection.
    fn shutdown_write(&mut self, _id: DeviceId) -> io::Result<()> {
        unsupported()
    }

    /// Whether the device is ready at this moment; if it is not, reports it when it is.
    fn ready(&mut self, _id: DeviceId, _direction: Direction) -> io::Result<bool> {
        unsupported()
    }

    /// Closes a device that was opened.
    fn close(&mut self, _id: DeviceId) {}
}

/// Reads a piece of a file and sends it.
fn send_piece(
    world: &mut (impl World + ?Sized),
    id: DeviceId,
    file: &File,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let mut piece = vec![0; len.min(MAX_IO)];
    let n = file.read_at(&mut piece, offset)?;
    if n == 0 && len > 0 {
        return Ok(0);
    }
    world.send(id, &piece[..n])
}

/// What is kept for each device. Those that were opened one after the other, and are likely to be
/// served so, are neighbours in memory.
pub(crate) type DeviceMap<T> = HashMap<DeviceId, T, BuildHasherDefault<InBlocks>>;

/// Hashes the numbers of devices block by block: in order within a block; one block anywhere, so that
/// nobody can have those devices stay that share a place.
#[derive(Default)]
pub(crate) struct InBlocks(u64);

impl Hasher for InBlocks {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a device is one word");
    }

    fn write_u64(&mut self, number: u64) {
        let (block, within) = (number / 64, number % 64);
        let anywhere = block.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let anywhere = anywhere ^ anywhere >> 32;
        // Each block begins elsewhere within itself.
        let place = (within + (anywhere >> 58)) % 64;
        // The map has the place from the low bits, and a mark that sets neighbours apart from the
        // seven highest.
        self.0 = (anywhere << 6 | place) ^ within << 57;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this world has no devices and no network, which the real one has",
    ))
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, hash::BuildHasher};

    use super::*;

    #[test]
    fn whichever_devices_stay_few_share_a_place() {
        const PLACES: u64 = 8192;
        for stride in [1, 3, 63, 64, 65, 1024, 4096, 16_384, 1 << 20, 1 << 40] {
            let mut at = HashMap::new();
            for n in 1..=4096 {
                let device = DeviceId::from(n * stride);
                let hash = DeviceMap::<()>::default().hasher().hash_one(device);
                *at.entry(hash % PLACES).or_insert(0) += 1;
            }
            let most = at.values().max();
            assert!(most <= Some(&16), "{most:?} at every {stride}th");
        }
    }
}
