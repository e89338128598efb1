//! The answers of a world as bytes, and back.

use std::{
    fmt,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::kind;
use crate::{
    abi::{DeviceId, Direction, QueueId},
    interrupt::{External, Interrupt},
    log::recording::{
        decode::{Bytes, Wrong},
        encode::{Out, nanos, number, text},
        errors,
        wire::{get_addr, put_addr},
    },
    world::{Answer, Happening, Request},
};

/// What the kernel asked of a device. The number of each is its place in [`ASKED`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    Attach,
    Listen,
    Connect,
    Connected,
    Accept,
    Recv,
    Drained,
    Send,
    SendFile,
    Shutdown,
    Readable,
    Writable,
    Close,
    Resolve,
}

/// By number, with their names and what belongs to them as their answer. What is added goes to the
/// end: the numbers are part of the format.
const ASKED: [(Asked, &str, Shape); 14] = [
    (Asked::Attach, "attach", Shape::Done),
    (Asked::Listen, "listen", Shape::Addr),
    (Asked::Connect, "connect", Shape::Done),
    (Asked::Connected, "connected", Shape::Done),
    (Asked::Accept, "accept", Shape::Addr),
    (Asked::Recv, "recv", Shape::Read),
    (Asked::Drained, "the begin of a recv", Shape::Ready),
    (Asked::Send, "send", Shape::Sent),
    (Asked::SendFile, "send_file", Shape::Sent),
    (Asked::Shutdown, "shutdown_write", Shape::Done),
    (Asked::Readable, "read_wait", Shape::Ready),
    (Asked::Writable, "write_wait", Shape::Ready),
    (Asked::Close, "close", Shape::Done),
    (Asked::Resolve, "resolve", Shape::Resolved),
];

impl Asked {
    /// What a request asks, and how many bytes it offers.
    pub(super) fn of(request: &Request<'_>) -> (Self, Option<usize>) {
        match request {
            Request::Attach { .. } => (Self::Attach, None),
            Request::Listen { .. } => (Self::Listen, None),
            Request::Connect { .. } => (Self::Connect, None),
            Request::Connected => (Self::Connected, None),
            Request::Accept { .. } => (Self::Accept, None),
            Request::Recv(_) => (Self::Recv, None),
            Request::Drained => (Self::Drained, None),
            Request::Send(buf) => (Self::Send, Some(buf.len())),
            Request::SendFile { len, .. } => (Self::SendFile, Some(*len)),
            Request::Shutdown => (Self::Shutdown, None),
            Request::Ready(Direction::Read) => (Self::Readable, None),
            Request::Ready(Direction::Write) => (Self::Writable, None),
            Request::Close => (Self::Close, None),
            Request::Resolve { .. } => (Self::Resolve, None),
        }
    }

    fn kind(self) -> u8 {
        kind::REQUEST + self as u8
    }

    fn from_kind(kind: u8) -> Option<Self> {
        let place = kind.checked_sub(kind::REQUEST)?;
        ASKED.get(usize::from(place)).map(|(asked, ..)| *asked)
    }

    fn shape(self) -> Shape {
        ASKED[self as usize].2
    }
}

/// What belongs to a request as its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Done,
    Addr,
    Read,
    Sent,
    Ready,
    Resolved,
}

/// The codes of a result that is not the usual success.
mod code {
    pub(super) const OTHER: u8 = 0;
    pub(super) const WOULD_BLOCK: u8 = 1;
    pub(super) const SYSTEM: u8 = 2;
    pub(super) const KIND: u8 = 3;
    pub(super) const TEXT: u8 = 4;
}

/// The values that an entry omits because the entry before implies them.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Context {
    /// The last reading of the clock, in nanoseconds.
    at: u64,
    device: u64,
}

/// Each of these appends an entry.
impl Context {
    /// Whether this instant is after the last reading of the clock.
    pub(super) fn is_to_come(&self, instant: Duration) -> bool {
        nanos(instant) > self.at
    }

    pub(super) fn now(&mut self, out: &mut Vec<u8>, now: Duration) {
        let now = nanos(now);
        let since = now.wrapping_sub(self.at);
        self.at = now;
        let low = kind::NOW | since as u8 & 0x3f;
        match since >> 6 {
            0 => out.push(low),
            high => {
                out.push(low | kind::SECOND_FLAG);
                number(out, high);
            }
        }
    }

    /// A request, and its answer. `read` is what was received, or the addresses of a name.
    pub(super) fn io(
        &mut self,
        out: &mut Vec<u8>,
        (asked, offered): (Asked, Option<usize>),
        device: DeviceId,
        result: &io::Result<Answer>,
        read: &[u8],
    ) {
        let usual = match *result {
            Ok(Answer::Bytes(n)) => offered.is_none_or(|offered| offered == n),
            Ok(Answer::Ready(ready)) => ready,
            Ok(Answer::Done | Answer::Addr(_)) => true,
            Err(_) => false,
        };
        let device = u64::from(device);
        let is_other = device != self.device;
        self.device = device;
        let other = u8::from(is_other) * kind::FIRST_FLAG;
        let unusual = u8::from(!usual) * kind::SECOND_FLAG;
        out.push(asked.kind() | other | unusual);
        if is_other {
            number(out, device);
        }
        if let Some(offered) = offered {
            number(out, offered as u64);
        }
        match result {
            Err(error) => put_error(out, error),
            Ok(answer) => {
                if !usual {
                    out.push(code::OTHER);
                }
                match *answer {
                    Answer::Bytes(_) if asked == Asked::Recv => slice(out, read),
                    Answer::Ready(true) if asked == Asked::Resolve => slice(out, read),
                    Answer::Bytes(n) if !usual => number(out, n as u64),
                    // Tapes have no room for the own address of a connection.
                    Answer::Addr(_) if asked == Asked::Connected => {}
                    Answer::Addr(addr) => put_addr(out, addr),
                    Answer::Bytes(_) | Answer::Done | Answer::Ready(_) => {}
                }
            }
        }
    }
}

fn slice(out: &mut Vec<u8>, slice: &[u8]) {
    number(out, slice.len() as u64);
    out.put(slice);
}

/// The addresses of a name.
pub(super) fn addresses(addresses: &[IpAddr]) -> Vec<u8> {
    let mut out = Vec::new();
    for ip in addresses {
        put_addr(&mut out, SocketAddr::new(*ip, 0));
    }
    out
}

/// Appends a wait: what was reported, and how long it took if it was for threads.
pub(super) fn wait(
    out: &mut Vec<u8>,
    happened: &[Happening],
    result: io::Result<Option<Duration>>,
) -> io::Result<Option<Duration>> {
    let kind = match &result {
        Ok(None) => kind::WAIT,
        Ok(Some(_)) => kind::WAIT_FOR_THREADS,
        Err(_) => kind::WAIT_FAILED,
    };
    // What daemons wait for is no part of the run.
    let of_daemons = happened
        .iter()
        .filter(|report| is_of_daemon(report))
        .count();
    let count = happened.len() - of_daemons;
    out.push(kind | (count.min(3) as u8) << 5);
    if count >= 3 {
        number(out, count as u64);
    }
    for report in happened {
        if of_daemons == 0 || !is_of_daemon(report) {
            put_report(out, *report);
        }
    }
    match &result {
        Ok(None) => {}
        Ok(Some(waited)) => number(out, nanos(*waited)),
        Err(error) => put_error(out, error),
    }
    result
}

/// Whether a report is for a daemon.
pub(super) fn is_of_daemon(report: &Happening) -> bool {
    match report {
        Happening::Ready(device, _) => device.is_of_daemon(),
        Happening::Interrupt(Interrupt::Close(queue)) => queue.is_of_daemon(),
        Happening::Console | Happening::Interrupt(Interrupt::Over(_) | Interrupt::Shutdown) => {
            false
        }
    }
}

fn put_report(out: &mut Vec<u8>, report: Happening) {
    let other = |what: u64| what << 2 | 3;
    match report {
        Happening::Ready(device, direction) => {
            number(out, u64::from(device) << 2 | direction as u64);
        }
        Happening::Interrupt(Interrupt::Close(queue)) => {
            number(out, queue.number() << 2 | 2);
            number(out, queue.slot() as u64);
        }
        Happening::Console => number(out, other(0)),
        Happening::Interrupt(Interrupt::Shutdown) => number(out, other(1)),
        Happening::Interrupt(Interrupt::Over(External::Setter)) => number(out, other(2)),
        Happening::Interrupt(Interrupt::Over(External::Job)) => number(out, other(3)),
    }
}

pub(super) fn random(out: &mut Vec<u8>, number_drawn: u64, is_as_seeded: bool) {
    if is_as_seeded {
        return out.push(kind::RANDOM);
    }
    out.push(kind::RANDOM | kind::FIRST_FLAG);
    number(out, number_drawn);
}

pub(super) fn seed(out: &mut Vec<u8>, seed: u64) {
    out.push(kind::SEED);
    number(out, seed);
}

/// Appends an entry that is no more than a bit.
pub(super) fn flag(out: &mut Vec<u8>, kind: u8, is_set: bool) {
    out.push(kind | (u8::from(is_set) * kind::FIRST_FLAG));
}

pub(super) fn print(out: &mut Vec<u8>, len: usize, result: &io::Result<usize>) {
    let usual = matches!(result, Ok(n) if *n == len);
    out.push(kind::PRINT | (u8::from(!usual) * kind::SECOND_FLAG));
    number(out, len as u64);
    match result {
        Ok(_) if usual => {}
        Ok(n) => {
            out.push(code::OTHER);
            number(out, *n as u64);
        }
        Err(error) => put_error(out, error),
    }
}

#[cold]
fn put_error(out: &mut Vec<u8>, error: &io::Error) {
    let kind = error.kind();
    if kind == ErrorKind::WouldBlock {
        return out.push(code::WOULD_BLOCK);
    }
    if let Some(errno) = error.raw_os_error() {
        out.push(code::SYSTEM);
        return number(out, errno as u32 as u64);
    }
    let what = error.to_string();
    if what == kind.to_string() {
        out.push(code::KIND);
        return out.push(errors::number(kind));
    }
    out.push(code::TEXT);
    out.push(errors::number(kind));
    text(out, &what);
}

/// An entry of a tape that is read.
#[derive(Debug)]
pub(super) enum Entry<'a> {
    Now(Duration),
    End,
    Full,
    Seed(u64),
    /// A wait, with how long one for threads took. Its reports are apart.
    Wait(io::Result<Option<Duration>>),
    /// A random number, if it is another than the seed gives.
    Random(Option<u64>),
    Idle(bool),
    Print {
        len: usize,
        result: io::Result<usize>,
    },
    Submit {
        in_place: bool,
    },
    Io {
        asked: Asked,
        device: DeviceId,
        offered: Option<usize>,
        result: io::Result<Given<'a>>,
    },
}

/// Passes over an entry.
pub(super) fn skip(bytes: &mut Bytes<'_>) -> Result<(), Wrong> {
    Context::default().entry(bytes, &mut Vec::new()).map(drop)
}

/// Gives a request what was received, or the addresses of its name. `None` if it has no room.
pub(super) fn give(request: &mut Request<'_>, read: &[u8]) -> Option<Answer> {
    match request {
        Request::Recv(buf) => {
            buf.get_mut(..read.len())?.copy_from_slice(read);
            Some(Answer::Bytes(read.len()))
        }
        Request::Resolve { addresses, .. } => {
            let mut bytes = Bytes(read);
            while let Ok(kind) = bytes.byte() {
                addresses.push(get_addr(kind, &mut bytes).ok()?.ip());
            }
            Some(Answer::Ready(true))
        }
        _ => None,
    }
}

/// A successful answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Given<'a> {
    Answer(Answer),
    Read(&'a [u8]),
}

impl Context {
    /// Reads an entry. The reports of a wait go to `happened`.
    pub(super) fn entry<'a>(
        &mut self,
        bytes: &mut Bytes<'a>,
        happened: &mut Vec<Happening>,
    ) -> Result<Entry<'a>, Wrong> {
        let first = bytes.byte()?;
        if first & kind::NOW != 0 {
            let mut since = u64::from(first & 0x3f);
            if first & kind::SECOND_FLAG != 0 {
                since |= bytes.number()? << 6;
            }
            self.at = self.at.wrapping_add(since);
            return Ok(Entry::Now(Duration::from_nanos(self.at)));
        }
        let flags = first & !kind::KIND;
        let (is_first, is_second) = (
            flags & kind::FIRST_FLAG != 0,
            flags & kind::SECOND_FLAG != 0,
        );
        Ok(match first & kind::KIND {
            kind::END => Entry::End,
            kind::FULL => Entry::Full,
            kind::SEED => Entry::Seed(bytes.number()?),
            kind @ (kind::WAIT | kind::WAIT_FOR_THREADS | kind::WAIT_FAILED) => {
                let count = match flags >> 5 {
                    3 => bytes.number()?,
                    few => few.into(),
                };
                happened.clear();
                for _ in 0..count {
                    happened.push(report(bytes)?);
                }
                Entry::Wait(match kind {
                    kind::WAIT => Ok(None),
                    kind::WAIT_FOR_THREADS => Ok(Some(Duration::from_nanos(bytes.number()?))),
                    _ => match bytes.byte()? {
                        code::OTHER => return Err("a wait that failed without an error"),
                        code => Err(error(bytes, code)?),
                    },
                })
            }
            kind::RANDOM => Entry::Random(match is_first {
                true => Some(bytes.number()?),
                false => None,
            }),
            kind::IDLE => Entry::Idle(is_first),
            kind::PRINT => {
                let len = bytes.size()?;
                let result = match is_second {
                    false => Ok(len),
                    true => match bytes.byte()? {
                        code::OTHER => Ok(bytes.size()?),
                        code => Err(error(bytes, code)?),
                    },
                };
                if matches!(result, Ok(n) if n > len) {
                    return Err("more was printed than there was");
                }
                Entry::Print { len, result }
            }
            kind::SUBMIT => Entry::Submit { in_place: is_first },
            kind => self.request(bytes, kind, is_first, !is_second)?,
        })
    }

    fn request<'a>(
        &mut self,
        bytes: &mut Bytes<'a>,
        kind: u8,
        is_other: bool,
        usual: bool,
    ) -> Result<Entry<'a>, Wrong> {
        let asked = Asked::from_kind(kind).ok_or("an entry of an unknown kind")?;
        if is_other {
            self.device = bytes.number()?;
        }
        let shape = asked.shape();
        let offered = match shape {
            Shape::Sent => Some(bytes.size()?),
            _ => None,
        };
        let result = match usual {
            true => Ok(given(bytes, shape, offered, true)?),
            false => match bytes.byte()? {
                code::OTHER => Ok(given(bytes, shape, offered, false)?),
                code => Err(error(bytes, code)?),
            },
        };
        Ok(Entry::Io {
            asked,
            device: DeviceId::from_raw(self.device),
            offered,
            result,
        })
    }
}

fn given<'a>(
    bytes: &mut Bytes<'a>,
    shape: Shape,
    offered: Option<usize>,
    usual: bool,
) -> Result<Given<'a>, Wrong> {
    Ok(Given::Answer(match shape {
        Shape::Done => Answer::Done,
        Shape::Resolved if usual => return Ok(Given::Read(bytes.slice()?)),
        Shape::Ready | Shape::Resolved => Answer::Ready(usual),
        Shape::Addr => {
            let kind = bytes.byte()?;
            Answer::Addr(get_addr(kind, bytes)?)
        }
        Shape::Read => return Ok(Given::Read(bytes.slice()?)),
        Shape::Sent => {
            let offered = offered.unwrap_or_default();
            let n = if usual { offered } else { bytes.size()? };
            if n > offered {
                return Err("more was sent than there was");
            }
            Answer::Bytes(n)
        }
    }))
}

fn report(bytes: &mut Bytes<'_>) -> Result<Happening, Wrong> {
    let word = bytes.number()?;
    let what = word >> 2;
    let device = DeviceId::from_raw(what);
    Ok(match word & 3 {
        0 => Happening::Ready(device, Direction::Read),
        1 => Happening::Ready(device, Direction::Write),
        2 => {
            let queue = QueueId::from_raw(what, bytes.size()?);
            Happening::Interrupt(Interrupt::Close(queue.ok_or("a queue that cannot be")?))
        }
        _ => match what {
            0 => Happening::Console,
            1 => Happening::Interrupt(Interrupt::Shutdown),
            2 => Happening::Interrupt(Interrupt::Over(External::Setter)),
            3 => Happening::Interrupt(Interrupt::Over(External::Job)),
            _ => return Err("a report of an unknown kind"),
        },
    })
}

fn error(bytes: &mut Bytes<'_>, code: u8) -> Result<io::Error, Wrong> {
    Ok(match code {
        code::WOULD_BLOCK => ErrorKind::WouldBlock.into(),
        code::SYSTEM => {
            let errno = u32::try_from(bytes.number()?).map_err(|_| "an error too large")?;
            io::Error::from_raw_os_error(errno as i32)
        }
        code::KIND => bytes.error_kind()?.into(),
        code::TEXT => {
            let kind = bytes.error_kind()?;
            io::Error::new(kind, bytes.text()?)
        }
        _ => return Err("a result of an unknown kind"),
    })
}

/// What the kernel asks, in words.
pub(super) fn in_words(asked: Asked, device: DeviceId, offered: Option<usize>) -> String {
    let name = ASKED[asked as usize].1;
    match offered {
        Some(len) => format!("{name} of {len} bytes on device {device}"),
        None => format!("{name} on device {device}"),
    }
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(_) => f.write_str("the time"),
            Self::End => f.write_str("its end"),
            Self::Full => f.write_str("its limit"),
            Self::Seed(seed) => write!(f, "the seed {seed}"),
            Self::Wait(_) => f.write_str("a wait"),
            Self::Random(_) => f.write_str("a random number"),
            Self::Idle(_) => f.write_str("whether anything can report"),
            Self::Print { len, .. } => write!(f, "{len} bytes of text for the console"),
            Self::Submit { .. } => f.write_str("work for a thread"),
            Self::Io {
                asked,
                device,
                offered,
                ..
            } => f.write_str(&in_words(*asked, *device, *offered)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_its_place_in_the_table() {
        for (place, (asked, ..)) in ASKED.iter().enumerate() {
            assert_eq!(*asked as usize, place);
            assert_eq!(Asked::from_kind(asked.kind()), Some(*asked));
        }
        assert!(ASKED.len() <= usize::from(kind::KIND - kind::REQUEST) + 1);
    }
}
