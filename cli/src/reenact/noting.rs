//! The world that notes, during a replay, what the peers of the run did.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io, mem,
    os::unix::fs::FileExt,
    rc::Rc,
    time::Duration,
};

use trapline::{
    Answer, DeviceId, Direction, External, Happening, Interrupt, Report, Request, World,
    forward_world, tape::Playing,
};

use super::{
    answers,
    script::{Act, Listener, Mark, Outcome, Peer, Script, Sent, Step, Way},
};

/// What is noted so far.
#[derive(Default)]
pub(super) struct Notes {
    script: Script,
    /// The listeners by their places in the script, also those that are closed.
    listeners: BTreeMap<DeviceId, usize>,
    connections: BTreeMap<DeviceId, Connection>,
    /// The peers with something new since the last connection.
    changed: BTreeSet<usize>,
    wrong: Option<String>,
    now: Duration,
}

struct Connection {
    peer: usize,
    sent: u64,
    /// How many it had sent when the bytes that come next were reported.
    sent_at_report: Option<u64>,
    /// Whether the peer has ended its part.
    is_over: bool,
    /// When the peer made its last step.
    stepped: Duration,
}

impl Notes {
    /// Notes the first thing that cannot be scripted.
    fn refuse(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    fn answered(&mut self, device: DeviceId, request: &Request<'_>, result: &io::Result<Answer>) {
        match (request, result) {
            (_, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            (Request::Attach { descriptor, .. }, Ok(_)) if !descriptor.is_carrier() => {
                self.refuse(format!(
                    "device {device} is no socket, and a simulated run has no other"
                ));
            }
            (Request::Bind { .. }, Ok(_)) => {
                self.refuse(format!(
                    "device {device} is a UDP socket, which is not scripted"
                ));
            }
            (
                Request::ListenUnix { .. } | Request::ConnectUnix { .. } | Request::Pair { .. },
                Ok(_),
            ) => {
                self.refuse(format!(
                    "device {device} is a Unix socket, which is not scripted"
                ));
            }
            (Request::Disk { .. }, _) => {
                self.refuse("it uses a disk, whose files are not on the tape".into());
            }
            (Request::Listen { .. }, Ok(_)) => {
                self.listeners.insert(device, self.listeners.len());
            }
            (Request::Connect { addr, .. }, _) => {
                // Until the tape says otherwise.
                self.begin(device, Way::ToPeer(*addr), Outcome::Pending);
                if let Err(error) = result {
                    self.fail_to_connect(device, error);
                }
            }
            (Request::Connected, Ok(_)) => {
                if let Some((_, peer)) = self.connection(device) {
                    peer.outcome = Outcome::Established;
                }
            }
            (Request::Connected, Err(error)) => self.fail_to_connect(device, error),
            (Request::Accept { connection, .. }, Ok(Answer::Addr(from))) => {
                if let Some(number) = self.listeners.get(&device).copied() {
                    let way = Way::ToListener {
                        number,
                        from: *from,
                    };
                    self.begin(*connection, way, Outcome::Established);
                }
            }
            (Request::Recv(buf), Ok(Answer::Bytes(n))) if !buf.is_empty() => {
                self.received(device, &buf[..*n], buf.len());
            }
            (Request::Send(bytes), Ok(Answer::Bytes(n))) => self.sent(device, &bytes[..*n], *n),
            (Request::SendFile { file, offset, .. }, Ok(Answer::Bytes(n))) => {
                self.sent(device, &read_at(file, *offset, *n), *n);
            }
            (Request::Recv(_) | Request::Send(_) | Request::SendFile { .. }, Err(_)) => {
                self.end(device, Act::Break);
            }
            (Request::Close, _) => self.closed(device),
            (Request::Resolve { name, addresses }, Ok(Answer::Ready(is_known))) => {
                match (is_known, addresses.first()) {
                    (true, Some(ip)) => self.script.names.push((name.to_string(), *ip)),
                    _ => self.refuse(format!(
                        "a thread looked up the name {name:?}: give the address instead"
                    )),
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, device: DeviceId, way: Way, outcome: Outcome) {
        let before = match way {
            Way::ToListener { .. } => self.marks(),
            // The program connects of its own accord.
            Way::ToPeer(_) => Vec::new(),
        };
        let connection = Connection {
            peer: self.script.peers.len(),
            sent: 0,
            sent_at_report: None,
            is_over: false,
            stepped: self.now,
        };
        self.script.peers.push(Peer::new(way, outcome, before));
        self.connections.insert(device, connection);
    }

    /// How far those peers are that have done something since the last call.
    fn marks(&mut self) -> Vec<Mark> {
        let changed = mem::take(&mut self.changed);
        let peers = &self.script.peers;
        let mark = |peer: usize| match peers[peer].is_closed {
            true => Mark {
                peer,
                steps: usize::MAX,
                bytes: u64::MAX,
            },
            false => peers[peer].mark(peer),
        };
        changed.into_iter().map(mark).collect()
    }

    fn fail_to_connect(&mut self, device: DeviceId, error: &io::Error) {
        let Some(connection) = self.connections.remove(&device) else {
            return;
        };
        let peer = &mut self.script.peers[connection.peer];
        let way = peer.way;
        match Outcome::of(error) {
            Some(outcome) => peer.outcome = outcome,
            None => self.refuse(format!(
                "the connection {way} failed as none does in a simulated network: {error}"
            )),
        }
    }

    fn connection(&mut self, device: DeviceId) -> Option<(&mut Connection, &mut Peer)> {
        let connection = self.connections.get_mut(&device)?;
        self.changed.insert(connection.peer);
        let peer = &mut self.script.peers[connection.peer];
        Some((connection, peer))
    }

    /// Notes a step of the peer.
    fn step(&mut self, device: DeviceId, act: Act) -> Option<&mut Connection> {
        let now = self.now;
        let (connection, peer) = self.connection(device)?;
        let pause = now.saturating_sub(mem::replace(&mut connection.stepped, now));
        let after = connection.sent_at_report.unwrap_or(connection.sent);
        peer.steps.push(Step { after, pause, act });
        Some(connection)
    }

    fn received(&mut self, device: DeviceId, bytes: &[u8], room: usize) {
        if bytes.is_empty() {
            return self.end(device, Act::Finish);
        }
        if let Some(connection) = self.step(device, Act::Send(bytes.to_vec()))
            && bytes.len() < room
        {
            // What comes next is reported anew, or is an answer to what is sent next.
            connection.sent_at_report = None;
        }
    }

    /// Notes that the program has sent `n` bytes, of which these are kept.
    fn sent(&mut self, device: DeviceId, bytes: &[u8], n: usize) {
        if let Some((connection, peer)) = self.connection(device) {
            connection.sent += n as u64;
            peer.heard.take(bytes);
            if !connection.is_over {
                peer.gets = connection.sent;
            }
        }
    }

    fn end(&mut self, device: DeviceId, act: Act) {
        if let Some((connection, peer)) = self.connection(device)
            && !mem::replace(&mut connection.is_over, true)
        {
            peer.gets = connection.sent_at_report.unwrap_or(connection.sent);
            self.step(device, act);
        }
    }

    fn closed(&mut self, device: DeviceId) {
        let is_stopped = self.script.is_stopped;
        if let Some((_, peer)) = self.connection(device) {
            peer.is_closed = !is_stopped;
            if peer.outcome == Outcome::Pending && !is_stopped {
                peer.outcome = Outcome::Unanswered;
            }
        }
        self.connections.remove(&device);
    }

    fn reported(&mut self, now: Duration, happened: &[Happening]) {
        for report in happened {
            match report {
                Happening::Ready(device, Direction::Read) => {
                    if let Some(connection) = self.connections.get_mut(device) {
                        connection.sent_at_report = Some(connection.sent);
                    }
                }
                Happening::Interrupt(Interrupt::Shutdown) => self.stop(),
                Happening::Interrupt(Interrupt::Signal(signal)) => {
                    let before = self.marks();
                    let last = self.script.signals.last();
                    self.script.signals.push(Sent {
                        signal: *signal,
                        at: now,
                        pause: now - last.map_or(Duration::ZERO, |last| last.at),
                        peers: self.script.peers.len(),
                        before,
                    });
                }
                Happening::Interrupt(Interrupt::Over(External::Setter)) => {
                    self.refuse("a thread of the program set a promise".into());
                }
                _ => {}
            }
        }
    }

    /// Notes that the run ended before its programs.
    pub(super) fn stop(&mut self) {
        self.script.is_stopped = true;
    }

    /// The script of the run, which took so long and had these listeners. An error says what cannot be
    /// scripted.
    pub(super) fn script(
        mut self,
        report: &Report,
        opened: Vec<Listener>,
    ) -> Result<Script, String> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        self.script.listeners = opened;
        (self.script.took, self.script.ticks) = (report.elapsed, report.ticks);
        self.script.judged()
    }
}

pub(super) struct Noting {
    inner: Playing,
    notes: Rc<RefCell<Notes>>,
}

impl Noting {
    pub(super) fn new(inner: Playing, notes: Rc<RefCell<Notes>>) -> Self {
        Self { inner, notes }
    }
}

impl World for Noting {
    forward_world!(inner: now, now_for_log, random, reseed, seed, print, take_console);
    forward_world!(inner: is_idle, remote, submit, mail, spins, spin, choose);

    fn io(&mut self, device: DeviceId, mut request: Request<'_>) -> io::Result<Answer> {
        let result = self.inner.io(device, lent(&mut request));
        let mut notes = self.notes.borrow_mut();
        notes.now = self.inner.now_for_log();
        notes.answered(device, &request, &result);
        result
    }

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        let before = happened.len();
        let result = self.inner.wait(deadline, happened);
        let now = self.inner.now_for_log();
        self.notes.borrow_mut().reported(now, &happened[before..]);
        result
    }

    fn wait_for_threads(
        &mut self,
        deadline: Option<Duration>,
        patience: Duration,
        happened: &mut Vec<Happening>,
    ) -> io::Result<Duration> {
        let before = happened.len();
        let result = self.inner.wait_for_threads(deadline, patience, happened);
        let now = self.inner.now_for_log();
        self.notes.borrow_mut().reported(now, &happened[before..]);
        result
    }
}

/// The request, to be asked and looked at afterwards.
fn lent<'a>(request: &'a mut Request<'_>) -> Request<'a> {
    match *request {
        Request::Attach {
            host,
            ref descriptor,
        } => Request::Attach {
            host,
            descriptor: descriptor.clone(),
        },
        Request::Listen {
            host,
            addr,
            options,
        } => Request::Listen {
            host,
            addr,
            options,
        },
        Request::Connect {
            host,
            addr,
            options,
        } => Request::Connect {
            host,
            addr,
            options,
        },
        Request::Bind { host, addr } => Request::Bind { host, addr },
        Request::RecvFrom {
            ref mut buf,
            ref mut from,
        } => Request::RecvFrom { buf, from },
        Request::SendTo { bytes, to } => Request::SendTo { bytes, to },
        Request::ConnectTo(peer) => Request::ConnectTo(peer),
        Request::ListenUnix { host, path } => Request::ListenUnix { host, path },
        Request::ConnectUnix { host, path } => Request::ConnectUnix { host, path },
        Request::Pair { host, other } => Request::Pair { host, other },
        Request::SetOptions(options) => Request::SetOptions(options),
        Request::Connected => Request::Connected,
        Request::Accept { host, connection } => Request::Accept { host, connection },
        Request::Recv(ref mut buf) => Request::Recv(buf),
        Request::Drained => Request::Drained,
        Request::Send(bytes) => Request::Send(bytes),
        Request::SendFile { file, offset, len } => Request::SendFile { file, offset, len },
        Request::Shutdown => Request::Shutdown,
        Request::Ready(direction) => Request::Ready(direction),
        Request::Resolve {
            name,
            ref mut addresses,
        } => Request::Resolve { name, addresses },
        Request::Catch(signals) => Request::Catch(signals),
        Request::ShutdownRead => Request::ShutdownRead,
        Request::Disk { host, ref op } => Request::Disk {
            host,
            op: op.clone(),
        },
        Request::File(ref op) => Request::File(op.clone()),
        Request::Finish(ref mut into) => Request::Finish(into),
        Request::Input => Request::Input,
        Request::Feed(text) => Request::Feed(text),
        Request::WallClock { host } => Request::WallClock { host },
        Request::Close => Request::Close,
    }
}

/// Reads what `send_file` has sent. The file may have changed since.
fn read_at(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.min(answers::MOST)];
    let read = file.read_at(&mut bytes, offset).unwrap_or_default();
    bytes.truncate(read);
    bytes
}
