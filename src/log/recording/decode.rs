//! Bytes as events. Nothing here trusts what it reads: every number is checked, and no memory is
//! taken for a length before as many bytes are there.

use std::{
    borrow::Cow,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    time::Duration,
};

use super::{Context, Header, MAX_WORDS, errors, kind};
use crate::{
    abi::{
        Argument, DeviceId, Direction, End, Errno, Exit, Inject, Interest, Nanos, On, Place,
        QueueId, Reply, Share, SystemCall, Tid,
    },
    log::{Detail, Event, Fact, Wake},
};

/// The defect of the bytes.
pub(crate) type Wrong = &'static str;

/// The bytes of a payload that are left.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// So many bytes as the number before them says.
    pub(crate) fn slice(&mut self) -> Result<&'a [u8], Wrong> {
        let len = self.size()?;
        let (slice, rest) = self.0.split_at_checked(len).ok_or(CUT)?;
        self.0 = rest;
        Ok(slice)
    }
}

/// The kind of a record.
pub(super) enum Record {
    Event(Event<'static>),
    Gap(u64),
    End,
}

impl Header {
    pub(crate) fn decode(mut bytes: Bytes<'_>) -> Result<Self, Wrong> {
        let words = bytes.number()?;
        if words > MAX_WORDS as u64 {
            return Err("a command line of too many words");
        }
        let mut command = Vec::new();
        for _ in 0..words {
            command.push(bytes.text()?.to_string());
        }
        Ok(Self {
            command,
            seed: bytes.number()?,
            policy: bytes.text()?.to_string(),
            quantum: u32::try_from(bytes.number()?).map_err(|_| "a quantum too large")?,
            is_simulated: match bytes.byte()? {
                0 => false,
                1 => true,
                _ => return Err("a world of an unknown kind"),
            },
            version: bytes.text()?.to_string(),
        })
    }
}

impl Context {
    /// Reads a record.
    pub(super) fn record(&mut self, bytes: &mut Bytes<'_>) -> Result<Record, Wrong> {
        let mut first = bytes.byte()?;
        let mut place = None;
        if first == kind::PLACE {
            place = Some(bytes.place()?);
            first = bytes.byte()?;
        }
        if first & kind::TID != 0 {
            self.tid = bytes.number()?;
        }
        if first & kind::TIME != 0 {
            self.at = self.at.wrapping_add(bytes.number()?);
        }
        let fact = match first & !(kind::TID | kind::TIME) {
            kind::SPAWNED => Fact::Spawned {
                parent: bytes.tid()?,
                name: bytes.owned()?,
            },
            kind::FAULT => Fact::Fault {
                text: bytes.owned()?,
            },
            kind::RESUMED => Fact::Resumed,
            kind::TRAPPED => {
                let (call, detail) = bytes.call()?;
                Fact::Trapped { call, detail }
            }
            kind::DEFERRED => {
                let (call, _) = bytes.call()?;
                Fact::Deferred { call }
            }
            kind::INJECTED => Fact::Injected {
                inject: bytes.inject()?,
            },
            kind::REPLIED => bytes.replied()?,
            kind::BLOCKED => Fact::Blocked { on: bytes.on()? },
            kind::WOKEN => Fact::Woken { by: bytes.wake()? },
            kind::DEVICE_IO => bytes.device_io()?,
            kind::CONSOLE => Fact::Console {
                text: bytes.owned()?,
            },
            kind::EXITED => Fact::Exited {
                exit: bytes.exit()?,
            },
            kind::REAPED => Fact::Reaped,
            kind::DEADLOCKED => Fact::Deadlocked {
                cycle: (0..bytes.size()?)
                    .map(|_| bytes.tid())
                    .collect::<Result<_, _>>()?,
            },
            kind::CLOCK_JUMPED => Fact::ClockJumped {
                from: Duration::from_nanos(bytes.number()?),
            },
            kind::COMPUTING => Fact::Computing {
                processor: bytes.size()?,
            },
            kind::PREEMPTED => Fact::Preempted {
                left: Duration::from_nanos(bytes.number()?),
            },
            kind::GAP => return Ok(Record::Gap(bytes.number()?)),
            kind::END => return Ok(Record::End),
            _ => return Err("a record of an unknown kind"),
        };
        Ok(Record::Event(Event {
            at: Duration::from_nanos(self.at),
            tid: self.tid.into(),
            fact,
            place,
        }))
    }
}

impl Bytes<'_> {
    fn call(&mut self) -> Result<(SystemCall, Detail<'static>), Wrong> {
        let place = self.byte()?;
        let call =
            SystemCall::from_number(place & !kind::DETAIL).ok_or("an unknown system call")?;
        let argument = self.argument(call.argument())?;
        let call = call.with_argument(argument).ok_or(WRONG_KIND)?;
        let detail = self.detail(place)?;
        Ok((call, detail))
    }

    fn replied(&mut self) -> Result<Fact<'static>, Wrong> {
        let place = self.byte()?;
        let reply = Reply::from_number(place & !kind::DETAIL).ok_or("an unknown reply")?;
        let argument = self.argument(reply.argument())?;
        let reply = reply.with_argument(argument).ok_or(WRONG_KIND)?;
        let detail = self.detail(place)?;
        Ok(Fact::Replied { reply, detail })
    }

    /// An argument of the same kind as the one given.
    fn argument(&mut self, kind: Argument) -> Result<Argument, Wrong> {
        Ok(match kind {
            Argument::None => Argument::None,
            Argument::Task(_) => Argument::Task(self.tid()?),
            Argument::Span(_) => Argument::Span(self.nanos()?),
            Argument::Instant(_) => Argument::Instant(self.nanos()?),
            Argument::Device(_) => Argument::Device(self.device()?),
            Argument::Queue(_) => Argument::Queue(self.queue()?),
            Argument::Capacity(_) => Argument::Capacity(self.number()?),
            Argument::Number(_) => Argument::Number(self.number()?),
            Argument::Errno(_) => Argument::Errno(self.errno()?),
            Argument::Share(_) => {
                let share = Share::from_raw(self.number()?);
                Argument::Share(share.ok_or("an unknown share")?)
            }
        })
    }

    fn errno(&mut self) -> Result<Errno, Wrong> {
        Ok(match self.number()? {
            0 => Errno::NoSuchTask,
            1 => Errno::WouldDeadlock,
            2 => Errno::TooManyTasks,
            3 => Errno::BadFd,
            4 => Errno::Busy,
            5 => Errno::Closed,
            6 => Errno::Invalid,
            7 => Errno::NoSuchHost,
            8 => Errno::HostDown,
            _ => return Err("an unknown errno"),
        })
    }

    fn detail(&mut self, place: u8) -> Result<Detail<'static>, Wrong> {
        if place & kind::DETAIL == 0 {
            return Ok(Detail::None);
        }
        Ok(match self.byte()? {
            0 => Detail::None,
            1 => Detail::Name(self.owned()?),
            kind @ (2 | 3) => Detail::Addr(self.socket_addr(kind)?),
            4 => Detail::Len(self.size()?),
            5 => Detail::Exit(self.exit()?),
            6 => Detail::Count(self.size()?),
            7 => Detail::Io(self.error_kind()?, self.owned()?),
            9 => Detail::Sources(
                (0..self.size()?)
                    .map(|_| self.interest())
                    .collect::<Result<_, _>>()?,
            ),
            8 => Detail::Object(self.owned()?, self.text()?.into()),
            _ => return Err("a detail of an unknown kind"),
        })
    }

    /// An address; the byte before it says of which kind.
    pub(crate) fn socket_addr(&mut self, kind: u8) -> Result<SocketAddr, Wrong> {
        Ok(match kind {
            2 => {
                let ip = Ipv4Addr::from(self.array::<4>()?);
                SocketAddrV4::new(ip, u16::from_le_bytes(self.array()?)).into()
            }
            3 => {
                let ip = Ipv6Addr::from(self.array::<16>()?);
                let port = u16::from_le_bytes(self.array()?);
                let flow = u32::from_le_bytes(self.array()?);
                let scope = u32::from_le_bytes(self.array()?);
                SocketAddrV6::new(ip, port, flow, scope).into()
            }
            _ => return Err("an address of an unknown kind"),
        })
    }

    fn on(&mut self) -> Result<On, Wrong> {
        Ok(match self.byte()? {
            0 => On::Exit(self.tid()?),
            1 => On::Timer(self.nanos()?),
            2 => On::Device(self.device()?, Direction::Read),
            3 => On::Device(self.device()?, Direction::Write),
            4 => On::Queue(self.queue()?, End::Put),
            5 => On::Queue(self.queue()?, End::Get),
            6 => On::First(self.number()?),
            _ => return Err("a task blocked on something unknown"),
        })
    }

    fn interest(&mut self) -> Result<Interest, Wrong> {
        if let Some((7, rest)) = self.0.split_first() {
            self.0 = rest;
            return self.nanos().map(Interest::After);
        }
        Ok(match self.on()? {
            On::Exit(tid) => Interest::Exit(tid),
            On::Timer(instant) => Interest::At(instant),
            On::Device(device, direction) => Interest::Device(device, direction),
            On::Queue(queue, end) => Interest::Queue(queue, end),
            On::First(_) => return Err("a source of a select that is a select"),
        })
    }

    fn wake(&mut self) -> Result<Wake, Wrong> {
        Ok(match self.byte()? {
            0 => Wake::Exit(self.tid()?),
            1 => Wake::Timer,
            2 => Wake::Device(self.device()?, Direction::Read),
            3 => Wake::Device(self.device()?, Direction::Write),
            4 => Wake::Closed(self.device()?),
            5 => Wake::Queue(self.queue()?),
            6 => Wake::Timeout,
            _ => return Err("a task woken by something unknown"),
        })
    }

    fn device_io(&mut self) -> Result<Fact<'static>, Wrong> {
        let how = self.byte()?;
        if how > 3 {
            return Err("device I/O of an unknown kind");
        }
        let device = self.device()?;
        let result = if how & 2 == 0 {
            Ok(self.size()?)
        } else {
            Err(self.error_kind()?)
        };
        let direction = if how & 1 == 0 {
            Direction::Read
        } else {
            Direction::Write
        };
        Ok(Fact::DeviceIo {
            device,
            direction,
            result,
        })
    }

    fn inject(&mut self) -> Result<Inject, Wrong> {
        Ok(match self.byte()? {
            0 => Inject::Fail(self.error_kind()?),
            1 => Inject::Delay(Duration::from_nanos(self.number()?)),
            2 => Inject::Kill,
            _ => return Err("an injection of an unknown kind"),
        })
    }

    fn exit(&mut self) -> Result<Exit, Wrong> {
        Ok(match self.byte()? {
            0 => Exit::Done,
            1 => Exit::Failed(self.text()?.to_string()),
            2 => Exit::Faulted(self.text()?.to_string()),
            3 => Exit::Killed,
            _ => return Err("an exit of an unknown kind"),
        })
    }

    fn place(&mut self) -> Result<Place, Wrong> {
        Ok(Place {
            file: self.text()?.to_string().into(),
            line: u32::try_from(self.number()?).map_err(|_| "a line too large")?,
            chain: self.text()?.into(),
        })
    }

    pub(crate) fn error_kind(&mut self) -> Result<io::ErrorKind, Wrong> {
        errors::kind(self.byte()?).ok_or("an I/O error of an unknown kind")
    }

    pub(crate) fn queue(&mut self) -> Result<QueueId, Wrong> {
        let (number, slot) = (self.number()?, self.size()?);
        QueueId::from_raw(number, slot).ok_or("a queue that cannot be")
    }

    fn tid(&mut self) -> Result<Tid, Wrong> {
        self.number().map(Tid::from)
    }

    pub(crate) fn device(&mut self) -> Result<DeviceId, Wrong> {
        self.number().map(DeviceId::from_raw)
    }

    fn nanos(&mut self) -> Result<Nanos, Wrong> {
        self.number().map(|n| Duration::from_nanos(n).into())
    }

    pub(crate) fn size(&mut self) -> Result<usize, Wrong> {
        usize::try_from(self.number()?).map_err(|_| "a length too large")
    }

    pub(crate) fn text(&mut self) -> Result<&str, Wrong> {
        str::from_utf8(self.slice()?).map_err(|_| "a text that is not UTF-8")
    }

    fn owned(&mut self) -> Result<Cow<'static, str>, Wrong> {
        self.text().map(|text| Cow::Owned(text.to_string()))
    }

    pub(crate) fn number(&mut self) -> Result<u64, Wrong> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a number too large")
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Wrong> {
        let (&first, rest) = self.0.split_first().ok_or(CUT)?;
        self.0 = rest;
        Ok(first)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Wrong> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(CUT)?;
        self.0 = rest;
        Ok(*first)
    }
}

const CUT: Wrong = "a record that is cut off";
const WRONG_KIND: Wrong = "an argument of the wrong kind";
