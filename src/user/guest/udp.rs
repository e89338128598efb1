//! UDP for guests.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    future::poll_fn,
    io,
    net::SocketAddr,
    rc::Rc,
    task::{Context, Poll},
};

use super::hub::{End, Moves, Port, attempt};
use crate::{
    abi::Direction,
    trap::{Caller, MAX_IO},
    user::{os::Os, select::Source, udp::UdpSocket},
};

/// The most datagrams that wait to be sent.
const ROOM: usize = 64;

/// A UDP socket for a guest, by [`Foreign::udp`](super::Foreign::udp).
///
/// What is sent leaves when the guest is pending, or at its end. A sender waits while 64 datagrams have
/// not left. An error of a send is told by the next one.
pub struct ForeignUdp {
    port: Rc<UdpPort>,
}

/// Its bytes, and where it is from or goes to.
type Datagram = (Vec<u8>, SocketAddr);

struct UdpPort {
    socket: UdpSocket,
    reads: End,
    writes: End,
    arrived: RefCell<VecDeque<io::Result<Datagram>>>,
    outgoing: RefCell<VecDeque<Datagram>>,
    write_error: RefCell<Option<io::Error>>,
}

impl Port for UdpPort {
    fn end(&self, direction: Direction) -> &End {
        match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        }
    }

    fn source(&self, direction: Direction) -> Source {
        match direction {
            Direction::Read => Source::readable(&self.socket),
            Direction::Write => Source::writable(&self.socket),
        }
    }

    fn has_unsent(&self) -> bool {
        !self.outgoing.borrow().is_empty()
    }

    fn read<'a>(&'a self, os: &'a mut Os, place: Caller) -> Moves<'a> {
        Box::pin(self.recv(os, place))
    }

    fn write<'a>(&'a self, os: &'a mut Os, place: Caller) -> Moves<'a> {
        Box::pin(self.send(os, place))
    }
}

impl UdpPort {
    async fn recv(&self, os: &mut Os, place: Caller) -> bool {
        let mut buf = vec![0; MAX_IO];
        let recv = async |os: &mut Os| self.socket.recv_from(os, &mut buf).await;
        let result = attempt(os, place, recv).await;
        let Some(result) = self.reads.outcome(os, result).await else {
            return false;
        };
        let arrived = result.map(|(n, from)| {
            buf.truncate(n);
            (buf, from)
        });
        self.arrived.borrow_mut().push_back(arrived);
        self.reads.wake();
        true
    }

    async fn send(&self, os: &mut Os, place: Caller) -> bool {
        let next = self.outgoing.borrow().front().cloned();
        let Some((bytes, to)) = next else {
            return true;
        };
        let send = async |os: &mut Os| self.socket.send_to(os, &bytes, to).await;
        let result = attempt(os, place, send).await;
        let Some(result) = self.writes.outcome(os, result).await else {
            return false;
        };
        self.outgoing.borrow_mut().pop_front();
        if let Err(error) = result {
            self.write_error.replace(Some(error));
        }
        self.writes.wake();
        true
    }
}

impl ForeignUdp {
    pub(super) fn new(socket: UdpSocket) -> Self {
        Self {
            port: Rc::new(UdpPort {
                socket,
                reads: End::default(),
                writes: End::default(),
                arrived: RefCell::default(),
                outgoing: RefCell::default(),
                write_error: RefCell::default(),
            }),
        }
    }

    /// Returns the address that the socket is bound to.
    ///
    /// *Errors:* none; it is a `Result` like those of the standard library.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.port.socket.local_addr()
    }

    /// Takes the next datagram, as [`UdpSocket::recv_from`] does. Dropping the future loses none. Any
    /// number of futures and guests may wait.
    ///
    /// *Errors:* those of that call.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let waiter = self.port.reads.waiter();
        poll_fn(|cx| self.poll_arrived(cx, buf, |cx| waiter.set_waker(cx))).await
    }

    /// The same, as a poll. Only the last one is woken.
    pub fn poll_recv_from(
        &self,
        cx: &Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.poll_arrived(cx, buf, |cx| self.port.reads.set_waker(cx))
    }

    fn poll_arrived(
        &self,
        cx: &Context<'_>,
        buf: &mut [u8],
        set_waker: impl FnOnce(&Context<'_>),
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        if let Some(arrived) = self.port.arrived.borrow_mut().pop_front() {
            return Poll::Ready(arrived.map(|(bytes, from)| {
                let n = bytes.len().min(buf.len());
                buf[..n].copy_from_slice(&bytes[..n]);
                (n, from)
            }));
        }
        self.list(Direction::Read)?;
        set_waker(cx);
        Poll::Pending
    }

    /// Takes a datagram to send, and returns its length.
    ///
    /// *Errors:* that of an earlier datagram, as of [`UdpSocket::send_to`].
    pub async fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        let waiter = self.port.writes.waiter();
        poll_fn(|cx| self.poll_room(cx, bytes, to, |cx| waiter.set_waker(cx))).await
    }

    /// The same, as a poll. Only the last one is woken.
    pub fn poll_send_to(
        &self,
        cx: &Context<'_>,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.poll_room(cx, bytes, to, |cx| self.port.writes.set_waker(cx))
    }

    fn poll_room(
        &self,
        cx: &Context<'_>,
        bytes: &[u8],
        to: SocketAddr,
        set_waker: impl FnOnce(&Context<'_>),
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.port.write_error.take() {
            return Poll::Ready(Err(error));
        }
        self.list(Direction::Write)?;
        let mut outgoing = self.port.outgoing.borrow_mut();
        if outgoing.len() >= ROOM {
            drop(outgoing);
            set_waker(cx);
            return Poll::Pending;
        }
        outgoing.push_back((bytes.to_vec(), to));
        Poll::Ready(Ok(bytes.len()))
    }

    fn list(&self, direction: Direction) -> io::Result<()> {
        let port = Rc::<UdpPort>::clone(&self.port);
        self.port.end(direction).list(port, direction)
    }
}

impl Drop for ForeignUdp {
    fn drop(&mut self) {
        self.port.reads.forget();
    }
}

impl fmt::Debug for ForeignUdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignUdp({})", self.port.socket.id())
    }
}
