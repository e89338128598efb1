//! Connections for guests.

use std::{
    cell::{Cell, RefCell},
    fmt, io, mem,
    rc::Rc,
    task::{Context, Poll},
};

use super::hub::{End, Moves, Port, attempt};
use crate::{
    abi::Direction,
    trap::{Caller, unread::Unread},
    user::{net::TcpStream, os::Os, select::Source, unix::UnixStream},
};

/// At this number of bytes that are not sent, a writer waits.
const ROOM: usize = 64 * 1024;

/// The most bytes that one call reads.
const PIECE: usize = 16 * 1024;

/// A connection for a guest, by [`Foreign::stream`](super::Foreign::stream). It has the traits of hyper,
/// futures and tokio for bytes, with the features `hyper`, `futures-io` and `tokio-io`.
///
/// The task of the guest that polls it makes the calls. What is written is sent when that guest is
/// pending, or at its end: [`Os::run_future`] returns once all of it is sent. A writer waits while 64 KiB
/// are not sent. What a kill or a timeout leaves unsent is lost.
///
/// One guest may read while another writes. An error of a write is told by the next write, flush or
/// shutdown. The drop closes the connection.
pub struct ForeignStream {
    port: Rc<StreamPort>,
}

/// The end of a connection, of TCP or of a Unix socket.
#[derive(Clone, Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What a guest can make a [`ForeignStream`] of.
pub trait IntoForeign: Sealed {}

use sealed::Sealed;

mod sealed {
    pub trait Sealed {
        #[doc(hidden)]
        fn into_socket(self) -> super::Opaque;
    }
}

/// Either kind of connection.
#[doc(hidden)]
#[derive(Debug)]
pub struct Opaque(Socket);

impl Sealed for TcpStream {
    fn into_socket(self) -> Opaque {
        Opaque(Socket::Tcp(self))
    }
}
impl IntoForeign for TcpStream {}

impl Sealed for UnixStream {
    fn into_socket(self) -> Opaque {
        Opaque(Socket::Unix(self))
    }
}
impl IntoForeign for UnixStream {}

struct StreamPort {
    socket: Socket,
    reads: End,
    writes: End,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    arrived: Unread,
    is_over: bool,
    read_error: Option<io::Error>,
    /// What is not sent begins at `sent`.
    outgoing: Vec<u8>,
    sent: usize,
    write_error: Option<WriteError>,
    is_closing: bool,
    is_shut: bool,
}

/// The first to ask gets the whole.
struct WriteError(io::ErrorKind, Option<io::Error>);

impl State {
    fn unsent(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    fn has_unsent(&self) -> bool {
        self.write_error.is_none() && (self.unsent() > 0 || (self.is_closing && !self.is_shut))
    }

    fn check_writes(&mut self) -> io::Result<()> {
        match &mut self.write_error {
            None => Ok(()),
            Some(WriteError(kind, whole)) => Err(whole.take().unwrap_or_else(|| (*kind).into())),
        }
    }
}

impl Port for StreamPort {
    fn end(&self, direction: Direction) -> &End {
        match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        }
    }

    fn source(&self, direction: Direction) -> Source {
        match (&self.socket, direction) {
            (Socket::Tcp(stream), Direction::Read) => Source::readable(stream),
            (Socket::Tcp(stream), Direction::Write) => Source::writable(stream),
            (Socket::Unix(stream), Direction::Read) => Source::readable(stream),
            (Socket::Unix(stream), Direction::Write) => Source::writable(stream),
        }
    }

    fn has_unsent(&self) -> bool {
        let state = self.state.borrow();
        // What another task is sending may come back.
        state.has_unsent() || (state.write_error.is_none() && self.writes.is_under_way())
    }

    fn read<'a>(&'a self, os: &'a mut Os, place: Caller) -> Moves<'a> {
        Box::pin(self.recv(os, place))
    }

    fn write<'a>(&'a self, os: &'a mut Os, place: Caller) -> Moves<'a> {
        Box::pin(self.send(os, place))
    }
}

impl StreamPort {
    async fn recv(&self, os: &mut Os, place: Caller) -> bool {
        let take = |bytes: &[u8]| self.state.borrow_mut().arrived.push(bytes);
        os.frame().set_place(place);
        // It does not block: the select has found bytes, and no other task has this end.
        let result = match &self.socket {
            Socket::Tcp(stream) => stream.recv_noted(os, PIECE, take).await,
            Socket::Unix(stream) => stream.recv_noted(os, PIECE, take).await,
        };
        let Some(result) = self.reads.outcome(os, Some(result)).await else {
            return false;
        };
        let mut state = self.state.borrow_mut();
        match result {
            Ok(0) => state.is_over = true,
            Ok(_) => {}
            Err(error) => state.read_error = Some(error),
        }
        drop(state);
        self.reads.wake();
        true
    }

    async fn send(&self, os: &mut Os, place: Caller) -> bool {
        if !self.state.borrow().has_unsent() {
            // Another task has sent it meanwhile.
            return true;
        }
        let outgoing = Outgoing::of(self);
        let shuts = outgoing.bytes.len() == outgoing.sent.get();
        let result = match shuts {
            true => Some(self.shut_down(os).await),
            false => {
                attempt(os, place, async |os: &mut Os| {
                    outgoing.send(os, place).await
                })
                .await
            }
        };
        let result = self.writes.outcome(os, result).await;
        drop(outgoing);
        let mut state = self.state.borrow_mut();
        match result {
            None => return false,
            Some(Ok(())) => state.is_shut |= shuts,
            // The peer has gone, so nothing is left to shut down.
            Some(Err(error)) if shuts && error.kind() == io::ErrorKind::NotConnected => {
                state.is_shut = true;
            }
            Some(Err(error)) => state.write_error = Some(WriteError(error.kind(), Some(error))),
        }
        drop(state);
        self.writes.wake();
        true
    }

    async fn shut_down(&self, os: &mut Os) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(stream) => stream.shutdown_write(os).await,
            Socket::Unix(stream) => stream.shutdown_write(os).await,
        }
    }
}

/// What is being sent. Its drop puts back what is left, also when the call is cut.
struct Outgoing<'a> {
    port: &'a StreamPort,
    bytes: Vec<u8>,
    sent: Cell<usize>,
}

impl<'a> Outgoing<'a> {
    fn of(port: &'a StreamPort) -> Self {
        let mut state = port.state.borrow_mut();
        let (bytes, sent) = (mem::take(&mut state.outgoing), mem::take(&mut state.sent));
        let sent = Cell::new(sent);
        Self { port, bytes, sent }
    }

    async fn send(&self, os: &mut Os, place: Caller) -> io::Result<()> {
        let bytes = &self.bytes[self.sent.get()..];
        let note = |n| self.sent.set(self.sent.get() + n);
        let sent = match &self.port.socket {
            Socket::Tcp(stream) => stream.send_at(place, os, bytes, note).await,
            Socket::Unix(stream) => stream.send_at(place, os, bytes, note).await,
        };
        sent.map(drop)
    }
}

impl Drop for Outgoing<'_> {
    fn drop(&mut self) {
        let mut state = self.port.state.borrow_mut();
        let (mut bytes, mut sent) = (mem::take(&mut self.bytes), self.sent.get());
        if sent == bytes.len() {
            bytes.clear();
            sent = 0;
        }
        // Another guest may have written meanwhile.
        bytes.extend_from_slice(&state.outgoing);
        (state.outgoing, state.sent) = (bytes, sent);
    }
}

impl ForeignStream {
    pub(super) fn new(stream: impl IntoForeign) -> Self {
        let Opaque(socket) = stream.into_socket();
        Self {
            port: Rc::new(StreamPort {
                socket,
                reads: End::default(),
                writes: End::default(),
                state: RefCell::default(),
            }),
        }
    }

    fn as_port(&self) -> Rc<dyn Port> {
        Rc::<StreamPort>::clone(&self.port)
    }

    /// Reads bytes that have arrived; 0 at the end of the stream.
    pub fn poll_read(&self, cx: &Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_with(cx, buf.len(), |bytes, n| bytes.read(&mut buf[..n]))
    }

    /// The same, for a buffer of any kind: `read` takes so many bytes.
    pub(super) fn poll_read_with(
        &self,
        cx: &Context<'_>,
        room: usize,
        read: impl FnOnce(&mut Unread, usize) -> usize,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.port.state.borrow_mut();
        if !state.arrived.is_empty() || room == 0 {
            let n = room.min(state.arrived.len());
            return Poll::Ready(Ok(read(&mut state.arrived, n)));
        }
        if let Some(error) = state.read_error.take() {
            return Poll::Ready(Err(error));
        }
        if state.is_over {
            return Poll::Ready(Ok(0));
        }
        drop(state);
        self.port.reads.list(self.as_port(), Direction::Read)?;
        self.port.reads.set_waker(cx);
        Poll::Pending
    }

    /// Takes bytes to send. Is pending while 64 KiB are not sent.
    pub fn poll_write(&self, cx: &Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.port.state.borrow_mut();
        state.check_writes()?;
        if state.is_closing {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = ROOM.saturating_sub(state.unsent());
        let n = room.min(buf.len());
        drop(state);
        match (room, n) {
            (0, _) => self.poll_sent(cx),
            (_, 0) => Poll::Ready(Ok(0)),
            (_, n) => {
                self.port.writes.list(self.as_port(), Direction::Write)?;
                let mut state = self.port.state.borrow_mut();
                state.outgoing.extend_from_slice(&buf[..n]);
                Poll::Ready(Ok(n))
            }
        }
    }

    /// Is ready once all bytes are sent.
    pub fn poll_flush(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.port.state.borrow_mut();
        state.check_writes()?;
        drop(state);
        if !self.port.has_unsent() {
            return Poll::Ready(Ok(()));
        }
        self.poll_sent(cx).map_ok(|_| ())
    }

    /// Shuts down the outgoing half after all bytes. Is ready then.
    pub fn poll_close(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.port.state.borrow_mut();
        state.check_writes()?;
        if state.is_shut {
            return Poll::Ready(Ok(()));
        }
        drop(state);
        let sent = self.poll_sent(cx);
        if sent.is_pending() {
            self.port.state.borrow_mut().is_closing = true;
        }
        sent.map_ok(drop)
    }

    /// Waits for the end of a write.
    fn poll_sent(&self, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        // The guest that waits makes the calls from now on.
        self.port.writes.list(self.as_port(), Direction::Write)?;
        self.port.writes.set_waker(cx);
        Poll::Pending
    }
}

/// What is not sent keeps the connection open until it is.
impl Drop for ForeignStream {
    fn drop(&mut self) {
        self.port.reads.forget();
    }
}

impl fmt::Debug for ForeignStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignStream({:?})", self.port.socket)
    }
}
