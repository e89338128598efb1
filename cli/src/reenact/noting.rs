//! The world that notes, during a replay, what the peers of the run did.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    net::{IpAddr, SocketAddr},
    os::unix::fs::FileExt,
    rc::Rc,
    time::Duration,
};

use trapline::{
    Answer, DeviceId, Direction, External, Happening, Interrupt, Report, Request, World,
    forward_world, tape::Playing,
};

use super::{
    answers::{self, Heard},
    script::{Act, Listener, Mark, Outcome, Peer, Script, Step, Way},
};

/// What is noted so far.
#[derive(Default)]
pub(super) struct Notes {
    script: Script,
    devices: BTreeMap<DeviceId, Device>,
    /// The peers with something new since the last connection.
    changed: BTreeSet<usize>,
    /// Why there is no script for this tape.
    wrong: Option<String>,
    /// The time of the replay.
    now: Duration,
}

/// What a device of the program is.
enum Device {
    Listener(usize),
    Connection(Connection),
}

struct Connection {
    peer: usize,
    /// How many bytes the program has sent.
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

    /// The answer to a request: `bytes` are what was received, or sent.
    fn answered(
        &mut self,
        device: DeviceId,
        asked: &Asked,
        result: &io::Result<Answer>,
        bytes: &[u8],
    ) {
        match (asked, result) {
            (Asked::Attach, Ok(_)) => {
                self.refuse(format!(
                    "device {device} is no socket, and a simulated run has no other"
                ));
            }
            (Asked::Listen { has_any_port }, Ok(Answer::Addr(addr))) => {
                let number = self.script.listeners.len();
                self.devices.insert(device, Device::Listener(number));
                self.script.listeners.push(Listener {
                    addr: *addr,
                    has_any_port: *has_any_port,
                    task: String::new(),
                });
            }
            // Until the tape says otherwise.
            (Asked::Connect(addr), Ok(_)) => {
                self.begin(device, Way::ToPeer(*addr), Outcome::Pending);
            }
            (Asked::Connect(addr), Err(error)) => {
                self.begin(device, Way::ToPeer(*addr), Outcome::Pending);
                self.fail_to_connect(device, error);
            }
            (Asked::Connected, Ok(_)) => self.connected(device),
            (Asked::Connected, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                self.fail_to_connect(device, error);
            }
            (Asked::Accept(connection), Ok(Answer::Addr(from))) => {
                if let Some(Device::Listener(number)) = self.devices.get(&device) {
                    let (number, from) = (*number, *from);
                    let way = Way::ToListener { number, from };
                    self.begin(*connection, way, Outcome::Established);
                }
            }
            (Asked::Recv(room), Ok(_)) if *room > 0 => self.received(device, bytes, *room),
            (Asked::Send, Ok(Answer::Bytes(n))) => self.sent(device, *n, bytes),
            (Asked::Recv(_) | Asked::Send, Err(error))
                if error.kind() != io::ErrorKind::WouldBlock =>
            {
                self.end(device, Act::Break);
            }
            (Asked::Close, _) => self.closed(device),
            (Asked::Resolve(name, first), Ok(Answer::Ready(is_known))) => match (is_known, first) {
                (true, Some(ip)) => self.script.names.push((name.clone(), *ip)),
                _ => self.refuse(format!(
                    "a thread looked up the name {name:?}: give the address instead"
                )),
            },
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
        self.script.peers.push(Peer {
            way,
            steps: Vec::new(),
            gets: 0,
            heard: Heard::default(),
            is_closed: false,
            before,
            outcome,
            is_own: false,
        });
        self.devices.insert(device, Device::Connection(connection));
    }

    /// How far those peers are that have done something since the last call.
    fn marks(&mut self) -> Vec<Mark> {
        let changed = std::mem::take(&mut self.changed);
        let peers = &self.script.peers;
        let mark = |peer: usize| match peers[peer].is_closed {
            true => Mark::over(peer),
            false => Mark {
                peer,
                steps: peers[peer].steps.len(),
                bytes: peers[peer].gets,
            },
        };
        changed.into_iter().map(mark).collect()
    }

    /// Notes that a connection is established.
    fn connected(&mut self, device: DeviceId) {
        if let Some(Device::Connection(connection)) = self.devices.get(&device) {
            self.script.peers[connection.peer].outcome = Outcome::Established;
        }
    }

    fn fail_to_connect(&mut self, device: DeviceId, error: &io::Error) {
        let Some(Device::Connection(connection)) = self.devices.remove(&device) else {
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
        let Some(Device::Connection(connection)) = self.devices.get_mut(&device) else {
            return None;
        };
        self.changed.insert(connection.peer);
        let peer = &mut self.script.peers[connection.peer];
        Some((connection, peer))
    }

    fn received(&mut self, device: DeviceId, bytes: &[u8], room: usize) {
        if bytes.is_empty() {
            return self.end(device, Act::Finish);
        }
        let now = self.now;
        let Some((connection, peer)) = self.connection(device) else {
            return;
        };
        let pause = connection.pause(now);
        let after = connection.sent_at_report.unwrap_or(connection.sent);
        if bytes.len() < room {
            // What comes next is reported anew, or is an answer to what is sent next.
            connection.sent_at_report = None;
        }
        let act = Act::Send(bytes.to_vec());
        peer.steps.push(Step { after, pause, act });
    }

    fn sent(&mut self, device: DeviceId, n: usize, bytes: &[u8]) {
        if let Some((connection, peer)) = self.connection(device) {
            connection.sent += n as u64;
            peer.heard.take(bytes);
            if !connection.is_over {
                peer.gets = connection.sent;
            }
        }
    }

    /// Notes the end of what the peer sends.
    fn end(&mut self, device: DeviceId, act: Act) {
        let now = self.now;
        if let Some((connection, peer)) = self.connection(device)
            && !connection.is_over
        {
            connection.is_over = true;
            let pause = connection.pause(now);
            let after = connection.sent_at_report.unwrap_or(connection.sent);
            peer.gets = after;
            peer.steps.push(Step { after, pause, act });
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
        self.devices.remove(&device);
    }

    fn reported(&mut self, happened: &[Happening]) {
        for report in happened {
            match report {
                Happening::Ready(device, Direction::Read) => {
                    if let Some(Device::Connection(connection)) = self.devices.get_mut(device) {
                        connection.sent_at_report = Some(connection.sent);
                    }
                }
                Happening::Interrupt(Interrupt::Shutdown) => self.stop(),
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
        for (listener, opened) in self.script.listeners.iter_mut().zip(opened) {
            listener.task = opened.task;
        }
        (self.script.took, self.script.ticks) = (report.elapsed, report.ticks);
        self.script.judged()
    }
}

impl Connection {
    /// The time since the step of the peer before.
    fn pause(&mut self, now: Duration) -> Duration {
        now.saturating_sub(std::mem::replace(&mut self.stepped, now))
    }
}

/// A request without what it lends.
enum Asked {
    Attach,
    /// With whether the world chooses the port.
    Listen {
        has_any_port: bool,
    },
    Connect(SocketAddr),
    Connected,
    Accept(DeviceId),
    /// With how many bytes it has room for.
    Recv(usize),
    Send,
    Close,
    /// With the first address of the name.
    Resolve(String, Option<IpAddr>),
    Other,
}

impl Asked {
    fn of(request: &Request<'_>) -> Self {
        match request {
            Request::Attach { descriptor, .. } if descriptor.is_carrier() => Self::Other,
            Request::Attach { .. } => Self::Attach,
            Request::Listen { addr, .. } => Self::Listen {
                has_any_port: addr.port() == 0,
            },
            Request::Connect { addr, .. } => Self::Connect(*addr),
            Request::Connected => Self::Connected,
            Request::Accept { connection, .. } => Self::Accept(*connection),
            Request::Recv(buf) => Self::Recv(buf.len()),
            Request::Send(_) | Request::SendFile { .. } => Self::Send,
            Request::Close => Self::Close,
            Request::Resolve { name, addresses } => {
                Self::Resolve((*name).to_string(), addresses.first().copied())
            }
            Request::Drained | Request::Shutdown | Request::Ready(_) => Self::Other,
        }
    }
}

/// A world around a replay.
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
    forward_world!(inner: is_idle, remote, submit, spins, spin);

    fn io(&mut self, device: DeviceId, mut request: Request<'_>) -> io::Result<Answer> {
        let mut asked = Asked::of(&request);
        let file;
        let (result, bytes) = match &mut request {
            Request::Recv(buf) => {
                let result = self.inner.io(device, Request::Recv(buf));
                let n = moved(&result);
                (result, &buf[..n])
            }
            Request::Resolve { name, addresses } => {
                let request = Request::Resolve { name, addresses };
                let result = self.inner.io(device, request);
                asked = Asked::Resolve(name.to_string(), addresses.first().copied());
                (result, &[][..])
            }
            Request::Send(bytes) => {
                let bytes = *bytes;
                let result = self.inner.io(device, request);
                let n = moved(&result);
                (result, &bytes[..n])
            }
            Request::SendFile {
                file: source,
                offset,
                ..
            } => {
                let (source, offset) = (*source, *offset);
                let result = self.inner.io(device, request);
                file = read_at(source, offset, moved(&result));
                (result, &file[..])
            }
            _ => (self.inner.io(device, request), &[][..]),
        };
        let mut notes = self.notes.borrow_mut();
        notes.now = self.inner.now_for_log();
        notes.answered(device, &asked, &result, bytes);
        drop(notes);
        result
    }

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        let before = happened.len();
        let result = self.inner.wait(deadline, happened);
        self.notes.borrow_mut().reported(&happened[before..]);
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
        self.notes.borrow_mut().reported(&happened[before..]);
        result
    }
}

/// How many bytes a request has moved.
fn moved(result: &io::Result<Answer>) -> usize {
    let bytes = result.as_ref().ok().and_then(|answer| answer.bytes().ok());
    bytes.unwrap_or_default()
}

/// Reads what `send_file` has sent. The file may have changed since.
fn read_at(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.min(answers::MOST)];
    let read = file.read_at(&mut bytes, offset).unwrap_or_default();
    bytes.truncate(read);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interrupt_closes_what_the_program_has_left_open() {
        let mut notes = Notes::default();
        let [listener, first, second] = [1, 2, 3].map(DeviceId::from_raw);
        let addr = SocketAddr::from(([127, 0, 0, 1], 80));
        let listen = Asked::Listen {
            has_any_port: false,
        };
        notes.answered(listener, &listen, &Ok(Answer::Addr(addr)), &[]);
        for client in [first, second] {
            let accept = Asked::Accept(client);
            notes.answered(listener, &accept, &Ok(Answer::Addr(addr)), &[]);
        }
        notes.answered(first, &Asked::Close, &Ok(Answer::Done), &[]);
        notes.reported(&[Happening::Interrupt(Interrupt::Shutdown)]);
        notes.answered(second, &Asked::Close, &Ok(Answer::Done), &[]);
        let script = notes.script(&Report::default(), Vec::new()).unwrap();
        let closed: Vec<bool> = script.peers.iter().map(|peer| peer.is_closed).collect();
        assert_eq!((closed, script.is_stopped), (vec![true, false], true));
    }
}
