//! A TCP connection: two ends, and a pipe from each end to the other.
//!
//! The life of an end:
//!
//! ```text
//!  client  Connecting ── SYN-ACK ──> Open ──┐
//!  server  Absent ── SYN ──> Handshake ── ACK ──> Queued ── accept ──> Open ──┤
//!                                                     reset, timeout, crash ──┴──> Gone
//! ```
//!
//! An end that is reset while it waits to be accepted keeps its place in the listener's queue.
//! An end that its program has closed stays `Open`, without a device, until both ends are closed.

use std::{collections::VecDeque, io, net::SocketAddr, rc::Rc};

use super::agenda::Place;
use crate::abi::{DeviceId, HostId, Nanos, StreamOptions};

/// The side that has connected.
pub(super) const CLIENT: usize = 0;
/// The side that has listened.
pub(super) const SERVER: usize = 1;

/// The larger buffers give their memory back when they are empty.
const KEPT: usize = 16 * 1024;

/// Names an end of a connection, and the pipe that leads away from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EndId {
    /// The connection's place in the slab.
    pub(super) slot: u32,
    /// The connection's number, which sets it apart from others in the same place.
    pub(super) serial: u32,
    pub(super) side: usize,
}

impl EndId {
    pub(super) fn peer(self) -> Self {
        let side = 1 - self.side;
        Self { side, ..self }
    }

    pub(super) fn client(self) -> Self {
        let side = CLIENT;
        Self { side, ..self }
    }
}

pub(super) struct Connection {
    pub(super) serial: u32,
    pub(super) ends: [End; 2],
    /// Each pipe leads away from the end of the same index.
    pub(super) pipes: [Pipe; 2],
    /// When the client has asked for it.
    pub(super) begun: Nanos,
    /// How often the client has asked again.
    pub(super) attempts: u32,
    /// When the client asks again or gives up, if its request was lost.
    pub(super) retry: Option<Place>,
    /// The path of a Unix socket; empty for a pair without one. `None` for TCP.
    pub(super) path: Option<Rc<str>>,
}

/// How far an end has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The server does not know of the connection.
    Absent,
    Connecting,
    /// The server has answered, and waits for the client's acknowledgement.
    Handshake,
    /// It waits in the listener's queue to be accepted.
    Queued,
    Open,
    /// Reset, timed out, or lost with its host. It sends nothing any more.
    Gone,
}

pub(super) struct End {
    /// Its device; [`DeviceId::NONE`] before it is accepted and after it is closed.
    pub(super) device: DeviceId,
    pub(super) host: HostId,
    pub(super) addr: SocketAddr,
    pub(super) stage: Stage,
    /// Whether it is in a listener's queue.
    pub(super) is_queued: bool,
    /// What went wrong, until a call has returned it.
    pub(super) error: Option<io::ErrorKind>,
    /// Whether a report was promised, by direction.
    pub(super) owed: [bool; 2],
    /// Whether it has sent something and has read nothing since.
    pub(super) asks: bool,
    /// Whether it has ended its outgoing half.
    pub(super) sent_end: bool,
    /// Whether the end of the stream has arrived.
    pub(super) got_end: bool,
    /// How many bytes may yet be read, once its incoming half was ended.
    pub(super) left: Option<usize>,
    /// Whether a close resets the connection.
    pub(super) resets: bool,
}

/// What was sent in one direction and not yet read.
#[derive(Default)]
pub(super) struct Pipe {
    /// The bytes: first those that have arrived, then those that are under way.
    pub(super) bytes: VecDeque<u8>,
    pub(super) arrived: usize,
    /// Packets of earlier epochs are lost.
    pub(super) epoch: u32,
    /// Whether packets were lost that have to be sent again. What is sent meanwhile waits for that.
    pub(super) is_stalled: bool,
    /// Whether no acknowledgement comes; then the sender gives up at that time.
    pub(super) give_up: Option<Place>,
    /// No packet arrives before this one.
    pub(super) last_arrival: Nanos,
    /// Whether the sender has reset the connection, and the receiver does not know yet.
    pub(super) is_reset_under_way: bool,
    /// Whether that packet was lost. It is sent again with what else was lost.
    pub(super) is_reset_lost: bool,
    /// Whether the sender waits for room.
    pub(super) wants_room: bool,
    /// Whether the receiver has told the sender of room, and the sender does not know yet.
    pub(super) is_room_under_way: bool,
    /// The sizes of buffers that the sender and the receiver have asked for.
    pub(super) asked: [Option<usize>; 2],
}

impl Connection {
    pub(super) fn new(serial: u32, client: End, server: End, begun: Nanos) -> Self {
        Self {
            serial,
            ends: [client, server],
            pipes: Default::default(),
            begun,
            attempts: 0,
            retry: None,
            path: None,
        }
    }

    /// How many bytes an end has not read. Those for a Unix socket are there as soon as they are sent.
    pub(super) fn unread(&self, side: usize) -> usize {
        let pipe = &self.pipes[1 - side];
        match self.path {
            Some(_) => pipe.bytes.len(),
            None => pipe.arrived,
        }
    }

    /// Whether this side has sent something that the other one has to acknowledge.
    pub(super) fn is_unacknowledged(&self, side: usize) -> bool {
        let (end, peer) = (&self.ends[side], &self.ends[1 - side]);
        self.pipes[side].under_way() > 0
            || end.sent_end && !peer.got_end
            || side == CLIENT && peer.stage == Stage::Handshake
    }

    /// Applies the options of one end.
    pub(super) fn set_options(&mut self, side: usize, options: &StreamOptions) {
        if let Some(bytes) = options.send_buffer {
            self.pipes[side].asked[0] = Some(bytes.max(1));
        }
        if let Some(bytes) = options.recv_buffer {
            self.pipes[1 - side].asked[1] = Some(bytes.max(1));
        }
        if let Some(span) = options.linger {
            self.ends[side].resets = span.is_some();
        }
    }

    /// Whether no task can reach either end any more.
    pub(super) fn is_forgotten(&self) -> bool {
        // A reset comes behind the end of the handshake.
        let is_over = self.ends[CLIENT].stage == Stage::Gone && !self.pipes[CLIENT].will_reset();
        self.ends.iter().all(|end| {
            let is_pending = end.is_queued || end.stage == Stage::Handshake && !is_over;
            end.device == DeviceId::NONE && !is_pending
        })
    }
}

impl End {
    pub(super) fn new(device: DeviceId, host: HostId, addr: SocketAddr, stage: Stage) -> Self {
        Self {
            device,
            host,
            addr,
            stage,
            is_queued: false,
            error: None,
            owed: [false; 2],
            asks: false,
            sent_end: false,
            got_end: false,
            left: None,
            resets: false,
        }
    }
}

impl Pipe {
    /// How many bytes it keeps: the smaller of the two sizes that were asked for, or that of the net.
    #[inline]
    pub(super) fn most(&self, of_net: usize) -> usize {
        match self.asked {
            [None, None] => of_net,
            [one, other] => one.into_iter().chain(other).min().unwrap_or(of_net),
        }
    }

    pub(super) fn under_way(&self) -> usize {
        self.bytes.len() - self.arrived
    }

    /// Moves bytes that have arrived: as many as the buffer has room for.
    pub(super) fn read(&mut self, buf: &mut [u8]) {
        let n = buf.len();
        let (one, other) = self.bytes.as_slices();
        let first = one.len().min(n);
        buf[..first].copy_from_slice(&one[..first]);
        buf[first..].copy_from_slice(&other[..n - first]);
        self.bytes.drain(..n);
        self.arrived -= n;
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT {
            self.bytes = VecDeque::new();
        }
    }

    /// Whether the receiver has yet to learn of a reset.
    fn will_reset(&self) -> bool {
        self.is_reset_under_way || self.is_reset_lost
    }

    /// What is under way does not arrive, and holds nothing back that is sent later.
    pub(super) fn lose_under_way(&mut self) {
        self.epoch += 1;
        self.last_arrival = Nanos::ZERO;
    }

    pub(super) fn drop_under_way(&mut self) {
        self.epoch += 1;
        self.bytes.truncate(self.arrived);
        self.is_stalled = false;
    }

    pub(super) fn clear(&mut self) {
        self.arrived = 0;
        self.drop_under_way();
    }
}
