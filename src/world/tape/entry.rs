//! The answers of a world as bytes, and back.

use std::{fmt, io, time::Duration};

use super::{
    io_error::{code, error, put_error},
    kind,
    on_disk::OnDisk,
};
use crate::{
    abi::{DeviceId, Direction, QueueId, Signal},
    interrupt::{External, Interrupt, Remote},
    log::recording::{
        decode::{Bytes, Wrong},
        encode::{Out, nanos, number},
        wire::{get_addr, put_addr},
    },
    world::{Answer, Happening, Request},
};

/// What the kernel asked of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    /// The place of the request in [`ASKED`].
    number: u8,
    device: DeviceId,
    /// How many bytes a request to send has.
    offered: Option<usize>,
    /// What a request does to a disk.
    disk: Option<OnDisk>,
}

/// The names of the requests, and what belongs to them as their answer. What is added goes to the
/// end: the places are part of the format.
const ASKED: [(&str, Shape); 30] = [
    ("attach", Shape::Done),
    ("listen", Shape::Addr),
    ("connect", Shape::Done),
    ("connected", Shape::Done),
    ("accept", Shape::Addr),
    ("recv", Shape::Read),
    ("the begin of a recv", Shape::Ready),
    ("send", Shape::Sent),
    ("send_file", Shape::Sent),
    ("shutdown_write", Shape::Done),
    ("read_wait", Shape::Ready),
    ("write_wait", Shape::Ready),
    ("close", Shape::Done),
    ("resolve", Shape::Resolved),
    ("catch", Shape::Done),
    ("shutdown_read", Shape::Done),
    ("the disk", Shape::Begun),
    ("a file", Shape::Begun),
    ("the result of the disk", Shape::Finished),
    ("input", Shape::Done),
    ("wall_clock", Shape::Time),
    ("bind_udp", Shape::Addr),
    ("recv_from", Shape::Datagram),
    ("send_to", Shape::Sent),
    ("connect_udp", Shape::Done),
    ("listen_unix", Shape::Done),
    ("connect_unix", Shape::Done),
    ("socketpair", Shape::Done),
    ("set_options", Shape::Done),
    ("mail", Shape::Read),
];

impl Asked {
    /// Messages of other kernels, or the answer to a put.
    pub(super) const MAIL: Self = Self {
        number: 29,
        device: DeviceId::NONE,
        offered: None,
        disk: None,
    };

    pub(super) fn of(device: DeviceId, request: &Request<'_>) -> Self {
        let (number, offered) = match request {
            Request::Attach { .. } => (0, None),
            Request::Listen { .. } => (1, None),
            Request::Connect { .. } => (2, None),
            Request::Connected => (3, None),
            Request::Accept { .. } => (4, None),
            Request::Recv(_) => (5, None),
            Request::Drained => (6, None),
            Request::Send(buf) => (7, Some(buf.len())),
            Request::SendFile { len, .. } => (8, Some(*len)),
            Request::Shutdown => (9, None),
            Request::Ready(Direction::Read) => (10, None),
            Request::Ready(Direction::Write) => (11, None),
            Request::Close => (12, None),
            Request::Resolve { .. } => (13, None),
            Request::Catch(_) => (14, None),
            Request::ShutdownRead => (15, None),
            Request::Disk { .. } => (16, None),
            Request::File(_) => (17, None),
            Request::Finish(_) => (18, None),
            // That of a text is not on tapes, nor asked for.
            Request::Input | Request::Feed(_) => (19, None),
            Request::WallClock { .. } => (20, None),
            Request::Bind { .. } => (21, None),
            Request::RecvFrom { .. } => (22, None),
            Request::SendTo { bytes, .. } => (23, Some(bytes.len())),
            Request::ConnectTo(_) => (24, None),
            Request::ListenUnix { .. } => (25, None),
            Request::ConnectUnix { .. } => (26, None),
            Request::Pair { .. } => (27, None),
            Request::SetOptions(_) => (28, None),
        };
        let disk = match request {
            Request::Disk { op, .. } => Some(OnDisk::names(op)),
            Request::File(op) => Some(OnDisk::file(op)),
            _ => None,
        };
        Self {
            number,
            device,
            offered,
            disk,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Done,
    /// Done is another success than usual.
    Addr,
    Read,
    /// The sender's address, and the bytes.
    Datagram,
    Sent,
    Ready,
    Resolved,
    /// An operation on a disk was begun.
    Begun,
    /// The result of an operation on a disk: a number or none, and bytes.
    Finished,
    Time,
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

    /// A request, and its answer. `read` is what was received, or the addresses of a name; for a
    /// datagram, its sender's address comes first.
    pub(super) fn io(
        &mut self,
        out: &mut Vec<u8>,
        asked: Asked,
        result: &io::Result<Answer>,
        read: &[u8],
    ) {
        let shape = ASKED[usize::from(asked.number)].1;
        let usual = match *result {
            Ok(Answer::Bytes(n)) => asked.offered.is_none_or(|offered| offered == n),
            Ok(Answer::Ready(ready)) => ready,
            Ok(Answer::Done) => !matches!(shape, Shape::Finished | Shape::Addr),
            Ok(Answer::Addr(_) | Answer::Time(_)) => true,
            Err(_) => false,
        };
        let device = u64::from(asked.device);
        let is_other = std::mem::replace(&mut self.device, device) != device;
        let other = u8::from(is_other) * kind::FIRST_FLAG;
        let unusual = u8::from(!usual) * kind::SECOND_FLAG;
        let kind = kind::REQUEST + asked.number;
        out.push(kind.min(kind::ESCAPE) | other | unusual);
        if kind >= kind::ESCAPE {
            out.push(asked.number);
        }
        if is_other {
            number(out, device);
        }
        if let Some(offered) = asked.offered {
            number(out, offered as u64);
        }
        if let Some(operation) = asked.disk {
            operation.put(out);
        }
        let answer = match result {
            Err(error) => return put_error(out, error),
            Ok(answer) => *answer,
        };
        if !usual {
            out.push(code::OTHER);
        }
        match (shape, answer) {
            (Shape::Read | Shape::Datagram, Answer::Bytes(_)) => slice(out, read),
            (Shape::Resolved, Answer::Ready(true)) => slice(out, read),
            (Shape::Finished, Answer::Bytes(n)) => {
                number(out, n as u64);
                slice(out, read);
            }
            (Shape::Finished, Answer::Done) => slice(out, read),
            (_, Answer::Bytes(n)) if !usual => number(out, n as u64),
            (Shape::Addr, Answer::Addr(addr)) => put_addr(out, addr),
            (Shape::Time, Answer::Time(time)) => number(out, nanos(time)),
            // Tapes have no room for the own address of a connection.
            _ => {}
        }
    }
}

fn slice(out: &mut Vec<u8>, slice: &[u8]) {
    number(out, slice.len() as u64);
    out.put(slice);
}

/// Appends a wait: what was reported, and how long it took if it was for threads. What daemons wait
/// for is no part of the run.
pub(super) fn wait(
    out: &mut Vec<u8>,
    happened: &[Happening],
    result: &io::Result<Option<Duration>>,
) {
    let kind = match result {
        Ok(None) => kind::WAIT,
        Ok(Some(_)) => kind::WAIT_FOR_THREADS,
        Err(_) => kind::WAIT_FAILED,
    };
    let reports = happened.iter().filter(|report| !is_of_daemon(report));
    let count = reports.clone().count();
    out.push(kind | (count.min(3) as u8) << 5);
    if count >= 3 {
        number(out, count as u64);
    }
    reports.for_each(|report| put_report(out, *report));
    match result {
        Ok(None) => {}
        Ok(Some(waited)) => number(out, nanos(*waited)),
        Err(error) => put_error(out, error),
    }
}

/// Whether a request is a daemon's: one of its devices, or without a device while it runs.
pub(super) fn is_apart(device: DeviceId, remote: &Remote) -> bool {
    device.is_of_daemon() || device == DeviceId::NONE && remote.running().is_daemon()
}

/// Whether a report is for a daemon.
pub(super) fn is_of_daemon(report: &Happening) -> bool {
    match report {
        Happening::Ready(device, _) => device.is_of_daemon(),
        Happening::Interrupt(Interrupt::Close(queue) | Interrupt::Mail(queue)) => {
            queue.is_of_daemon()
        }
        Happening::Console
        | Happening::Interrupt(Interrupt::Over(_) | Interrupt::Shutdown | Interrupt::Signal(_)) => {
            false
        }
    }
}

/// The reports without a number of their own, in the order of the format.
const OTHERS: [Happening; 10] = [
    Happening::Console,
    Happening::Interrupt(Interrupt::Shutdown),
    Happening::Interrupt(Interrupt::Over(External::Setter)),
    Happening::Interrupt(Interrupt::Over(External::Job)),
    Happening::Interrupt(Interrupt::Signal(Signal::Interrupt)),
    Happening::Interrupt(Interrupt::Signal(Signal::Terminate)),
    Happening::Interrupt(Interrupt::Signal(Signal::Hangup)),
    Happening::Interrupt(Interrupt::Signal(Signal::User1)),
    Happening::Interrupt(Interrupt::Signal(Signal::User2)),
    Happening::Interrupt(Interrupt::Over(External::Mail)),
];

/// The place of mail, behind those of all others.
const MAIL: u64 = 63;

fn put_report(out: &mut Vec<u8>, report: Happening) {
    match report {
        Happening::Ready(device, direction) => {
            number(out, u64::from(device) << 2 | direction as u64);
        }
        Happening::Interrupt(Interrupt::Close(queue)) => {
            number(out, queue.number() << 2 | 2);
            number(out, queue.slot() as u64);
        }
        Happening::Interrupt(Interrupt::Mail(queue)) => {
            number(out, MAIL << 2 | 3);
            number(out, queue.number());
            number(out, queue.slot() as u64);
        }
        other => {
            let place = OTHERS.iter().position(|one| *one == other);
            let place = place.expect("all others are in the table");
            number(out, (place as u64) << 2 | 3);
        }
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
    /// How many bytes there were to print, and how many were printed.
    Print(usize, io::Result<usize>),
    /// Work for a thread, and whether it was done in place.
    Submit(bool),
    /// What was asked, and its answer, with what was received.
    Io(Asked, io::Result<(Answer, &'a [u8])>),
}

pub(super) fn skip(bytes: &mut Bytes<'_>) -> Result<(), Wrong> {
    Context::default().entry(bytes, &mut Vec::new()).map(drop)
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
        let (is_first, is_second) = (
            first & kind::FIRST_FLAG != 0,
            first & kind::SECOND_FLAG != 0,
        );
        Ok(match first & kind::KIND {
            kind::END => Entry::End,
            kind::FULL => Entry::Full,
            kind::SEED => Entry::Seed(bytes.number()?),
            kind @ (kind::WAIT | kind::WAIT_FOR_THREADS | kind::WAIT_FAILED) => {
                let count = match first >> 5 {
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
                    _ => Err(error(bytes)?.ok_or("a wait that failed without an error")?),
                })
            }
            kind::RANDOM if is_first => Entry::Random(Some(bytes.number()?)),
            kind::RANDOM => Entry::Random(None),
            kind::IDLE => Entry::Idle(is_first),
            kind::PRINT => {
                let len = bytes.size()?;
                let result = match is_second {
                    false => Ok(len),
                    true => match error(bytes)? {
                        None => Ok(bytes.size()?),
                        Some(error) => Err(error),
                    },
                };
                if matches!(result, Ok(n) if n > len) {
                    return Err("more was printed than there was");
                }
                Entry::Print(len, result)
            }
            kind::SUBMIT => Entry::Submit(is_first),
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
        let number = match kind {
            kind::ESCAPE => bytes.byte()?,
            kind => kind - kind::REQUEST,
        };
        let known = ASKED.get(usize::from(number));
        let (_, shape) = known.ok_or("an entry of an unknown kind")?;
        if is_other {
            self.device = bytes.number()?;
        }
        let asked = Asked {
            number,
            device: DeviceId::from_raw(self.device),
            offered: match shape {
                Shape::Sent => Some(bytes.size()?),
                _ => None,
            },
            disk: match shape {
                Shape::Begun => Some(OnDisk::get(bytes)?),
                _ => None,
            },
        };
        let error = if usual { None } else { error(bytes)? };
        Ok(Entry::Io(
            asked,
            match error {
                Some(error) => Err(error),
                None => Ok(asked.answer(bytes, *shape, usual)?),
            },
        ))
    }
}

impl Asked {
    fn answer<'a>(
        self,
        bytes: &mut Bytes<'a>,
        shape: Shape,
        usual: bool,
    ) -> Result<(Answer, &'a [u8]), Wrong> {
        let answer = match shape {
            Shape::Done | Shape::Begun => Answer::Done,
            Shape::Resolved if usual => return Ok((Answer::Ready(true), bytes.slice()?)),
            Shape::Ready | Shape::Resolved => Answer::Ready(usual),
            Shape::Addr if !usual => Answer::Done,
            Shape::Time => Answer::Time(Duration::from_nanos(bytes.number()?)),
            Shape::Addr => {
                let kind = bytes.byte()?;
                Answer::Addr(get_addr(kind, bytes)?)
            }
            Shape::Read => {
                let read = bytes.slice()?;
                return Ok((Answer::Bytes(read.len()), read));
            }
            Shape::Finished if usual => {
                let n = bytes.size()?;
                return Ok((Answer::Bytes(n), bytes.slice()?));
            }
            Shape::Finished => return Ok((Answer::Done, bytes.slice()?)),
            Shape::Datagram => {
                let read = bytes.slice()?;
                let mut rest = Bytes(read);
                let kind = rest.byte()?;
                get_addr(kind, &mut rest)?;
                return Ok((Answer::Bytes(rest.0.len()), read));
            }
            Shape::Sent => {
                let offered = self.offered.unwrap_or_default();
                let n = if usual { offered } else { bytes.size()? };
                if n > offered {
                    return Err("more was sent than there was");
                }
                Answer::Bytes(n)
            }
        };
        Ok((answer, &[]))
    }
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
        _ if what == MAIL => {
            let queue = QueueId::from_raw(bytes.number()?, bytes.size()?);
            let queue = queue.ok_or("a queue that cannot be")?;
            Happening::Interrupt(Interrupt::Mail(queue))
        }
        _ => {
            let other = usize::try_from(what).ok().and_then(|at| OTHERS.get(at));
            *other.ok_or("a report of an unknown kind")?
        }
    })
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = ASKED[usize::from(self.number)];
        if let Some(operation) = self.disk {
            return write!(f, "{operation} on {name}, device {}", self.device);
        }
        match self.offered {
            Some(len) => write!(f, "{name} of {len} bytes on device {}", self.device),
            None => write!(f, "{name} on device {}", self.device),
        }
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
            Self::Random(_) => f.write_str("a random number or a choice"),
            Self::Idle(_) => f.write_str("whether anything can report"),
            Self::Print(len, _) => write!(f, "{len} bytes of text for the console"),
            Self::Submit(_) => f.write_str("work for a thread"),
            Self::Io(asked, _) => asked.fmt(f),
        }
    }
}
