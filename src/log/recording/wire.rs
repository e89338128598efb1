//! The records, each described once: a row says how a variant is written and how it is read back.
//!
//! Nothing here trusts what it reads. Every number is checked.

use std::{
    borrow::Cow,
    io,
    net::{SocketAddr, SocketAddrV4, SocketAddrV6},
    time::Duration,
};

use super::{
    MAX_PLACE,
    decode::{Bytes, Wrong},
    encode::{Out, cut_text, nanos, number, text},
    errors,
};
use crate::{
    abi::{
        Argument, DeviceId, Direction, End, Errno, Exit, Inject, Interest, KernelId, Nanos, On,
        Place, QueueId, Reply, Share, Signal, SystemCall, Tid,
    },
    log::{Detail, Event, Fact, Wake},
};

/// The kinds of records that are no facts.
const GAP: u8 = 11;
pub(super) const END: u8 = 12;
const PLACE: u8 = 16;

/// The kinds of the most common facts.
const RESUMED: u8 = 1;
const TRAPPED: u8 = 2;
const REPLIED: u8 = 3;

/// The flags in a record's first byte: the task follows, and the time does.
const TID: u8 = 0x40;
const TIME: u8 = 0x80;
/// The flag in the byte of a call or a reply: a detail follows.
const DETAIL: u8 = 0x80;

/// The values that a record omits because the record before implies them.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Context {
    pub(super) tid: u64,
    /// Nanoseconds since boot.
    pub(super) at: u64,
}

pub(super) enum Record {
    Event(Event<'static>),
    Gap(u64),
    End,
}

impl Context {
    /// Appends an event, if it is one of the three most common ones. Returns whether it is.
    #[inline(always)]
    pub(super) fn common_event(&mut self, out: &mut impl Out, event: &Event<'_>) -> bool {
        if event.place.is_some() {
            return false;
        }
        match &event.fact {
            Fact::Resumed => self.begin(out, RESUMED, event),
            Fact::Trapped {
                call,
                detail: detail @ Detail::None,
            } => {
                self.begin(out, TRAPPED, event);
                (call, detail).put(out);
            }
            Fact::Replied {
                reply,
                detail: detail @ Detail::None,
            } => {
                self.begin(out, REPLIED, event);
                (reply, detail).put(out);
            }
            _ => return false,
        }
        true
    }

    pub(super) fn event(&mut self, out: &mut impl Out, event: &Event<'_>) {
        if let Some(Place { file, line, chain }) = &event.place {
            out.push(PLACE);
            cut_text(out, file, MAX_PLACE);
            number(out, (*line).into());
            cut_text(out, chain, MAX_PLACE);
        }
        self.begin(out, event.fact.tag(), event);
        event.fact.put_content(out);
    }

    /// Appends the kind of a record, its task and its time.
    #[inline(always)]
    fn begin(&mut self, out: &mut impl Out, kind: u8, event: &Event<'_>) {
        let (tid, at) = (u64::from(event.tid), nanos(event.at));
        let whom = if tid == self.tid { 0 } else { TID };
        let when = if at == self.at { 0 } else { TIME };
        out.push(kind | whom | when);
        if tid != self.tid {
            number(out, tid);
            self.tid = tid;
        }
        if at != self.at {
            number(out, at.wrapping_sub(self.at));
            self.at = at;
        }
    }

    pub(super) fn record(&mut self, bytes: &mut Bytes<'_>) -> Result<Record, Wrong> {
        let mut first = bytes.byte()?;
        let mut place = None;
        if first == PLACE {
            place = Some(Place {
                file: Cow::get(bytes)?,
                line: u32::try_from(bytes.number()?).map_err(|_| "a line too large")?,
                chain: Box::get(bytes)?,
            });
            first = bytes.byte()?;
        }
        if first & TID != 0 {
            self.tid = bytes.number()?;
        }
        if first & TIME != 0 {
            self.at = self.at.wrapping_add(bytes.number()?);
        }
        Ok(match first & !(TID | TIME) {
            GAP => Record::Gap(bytes.number()?),
            END => Record::End,
            kind => Record::Event(Event {
                fact: Fact::get_content(kind, bytes)?,
                at: Duration::from_nanos(self.at),
                tid: self.tid.into(),
                place,
            }),
        })
    }
}

/// A record that says how many events are missing here.
pub(super) fn gap(out: &mut impl Out, missing: u64) {
    out.push(GAP);
    number(out, missing);
}

trait Put {
    fn put(self, out: &mut impl Out);
}

trait Get: Sized {
    fn get(bytes: &mut Bytes<'_>) -> Result<Self, Wrong>;
}

/// An enum whose variants have numbers. The number is a byte of its own, or part of another one.
trait Tagged: Sized {
    fn tag(&self) -> u8;
    fn put_content(&self, out: &mut impl Out);
    fn get_content(tag: u8, bytes: &mut Bytes<'_>) -> Result<Self, Wrong>;
}

impl<T: Tagged> Put for &T {
    fn put(self, out: &mut impl Out) {
        out.push(self.tag());
        self.put_content(out);
    }
}

impl<T: Tagged> Get for T {
    fn get(bytes: &mut Bytes<'_>) -> Result<Self, Wrong> {
        Self::get_content(bytes.byte()?, bytes)
    }
}

/// Describes an enum: the defect of an unknown number, and a row for each variant. A row has the
/// number, the variant as a pattern and an expression, and the fields in their order. Those of a
/// tuple are written together.
macro_rules! tagged {
    ($unknown:literal, $Type:ty {
        $($number:tt $Variant:ident $(($($tuple:tt)*))? $({$($named:tt)*})? $([$field:tt])*,)+
    }) => {
        #[allow(unused_variables, reason = "not every enum has fields")]
        impl Tagged for $Type {
            fn tag(&self) -> u8 {
                match self {
                    $(Self::$Variant $(($($tuple)*))? $({$($named)*})? => {
                        $(let _ = $field;)*
                        $number
                    })+
                }
            }

            fn put_content(&self, out: &mut impl Out) {
                match self {
                    $(Self::$Variant $(($($tuple)*))? $({$($named)*})? => {
                        $($field.put(out);)*
                    })+
                }
            }

            fn get_content(tag: u8, bytes: &mut Bytes<'_>) -> Result<Self, Wrong> {
                Ok(match tag {
                    $($number => {
                        $(let $field = Get::get(bytes)?;)*
                        Self::$Variant $(($($tuple)*))? $({$($named)*})?
                    })+
                    _ => return Err($unknown),
                })
            }
        }
    };
}

tagged!("a record of an unknown kind", Fact<'_> {
    0 Spawned { parent, name } [parent] [name],
    RESUMED Resumed,
    TRAPPED Trapped { call, detail } [(call, detail)],
    REPLIED Replied { reply, detail } [(reply, detail)],
    4 Blocked { on } [on],
    5 Woken { by } [by],
    6 DeviceIo { device, direction, result } [(device, direction, result)],
    7 Console { text } [text],
    8 Exited { exit } [exit],
    9 Reaped,
    10 ClockJumped { from } [from],
    13 Deferred { call } [call],
    14 Deadlocked { cycle } [cycle],
    15 Injected { inject } [inject],
    17 Fault { text } [text],
    18 Computing { processor } [processor],
    19 Preempted { left } [left],
    20 Signalled { signal } [signal],
    22 Limited { limits } [limits],
    23 Accessed { value, name, writes } [value] [name] [writes],
});

tagged!("a task blocked on something unknown", On {
    0 Exit(tid) [tid],
    1 Timer(deadline) [deadline],
    2 Device(device, Direction::Read) [device],
    3 Device(device, Direction::Write) [device],
    4 Queue(queue, End::Put) [queue],
    5 Queue(queue, End::Get) [queue],
    6 First(sources) [sources],
});

tagged!("a select of something unknown", Interest {
    0 Exit(tid) [tid],
    1 At(instant) [instant],
    2 Device(device, Direction::Read) [device],
    3 Device(device, Direction::Write) [device],
    4 Queue(queue, End::Put) [queue],
    5 Queue(queue, End::Get) [queue],
    6 After(span) [span],
    7 Permits(queue, count) [queue] [count],
});

tagged!("a task woken by something unknown", Wake {
    0 Exit(tid) [tid],
    1 Timer,
    2 Device(device, Direction::Read) [device],
    3 Device(device, Direction::Write) [device],
    4 Closed(device) [device],
    5 Queue(queue) [queue],
    6 Timeout,
});

tagged!("an injection of an unknown kind", Inject {
    0 Fail(error) [error],
    1 Delay(span) [span],
    2 Kill,
    3 KillIn,
    4 Cut,
    5 CutIn,
});

tagged!("an unknown signal", Signal {
    0 Interrupt,
    1 Terminate,
    2 Hangup,
    3 User1,
    4 User2,
});

tagged!("an exit of an unknown kind", Exit {
    0 Done,
    1 Failed(why) [why],
    2 Faulted(why) [why],
    3 Killed,
});

tagged!("a detail of an unknown kind", Detail<'_> {
    0 None,
    1 Name(name) [name],
    2 Addr(SocketAddr::V4(addr)) [addr],
    3 Addr(SocketAddr::V6(addr)) [addr],
    4 Len(n) [n],
    5 Exit(exit) [exit],
    6 Count(n) [n],
    7 Io(kind, text) [kind] [text],
    8 Object(kind, name) [kind] [name],
    9 Sources(sources) [sources],
    10 At(n, offset) [n] [offset],
    11 Path(path, beside) [path] [beside],
    12 Mail(kernel, number) [kernel] [number],
});

tagged!("an unknown errno", Errno {
    0 NoSuchTask,
    1 WouldDeadlock,
    2 TooManyTasks,
    3 BadFd,
    4 Busy,
    5 Closed,
    6 Invalid,
    7 NoSuchHost,
    8 HostDown,
    9 Denied,
});

tagged!("an address of an unknown kind", SocketAddr {
    2 V4(addr) [addr],
    3 V6(addr) [addr],
});

/// Appends an address, behind a byte that says of which kind.
pub(crate) fn put_addr(out: &mut impl Out, addr: SocketAddr) {
    addr.put(out);
}

pub(crate) fn get_addr(kind: u8, bytes: &mut Bytes<'_>) -> Result<SocketAddr, Wrong> {
    SocketAddr::get_content(kind, bytes)
}

/// Describes a type by an expression that makes its number, or its text, and one for the way back.
macro_rules! values {
    ($($Type:ty: |$this:ident, $out:ident| $put:expr, |$bytes:ident| $get:expr;)+) => {
        $(
            impl Put for &$Type {
                #[inline(always)]
                fn put(self, $out: &mut impl Out) {
                    let $this = self;
                    $put;
                }
            }

            impl Get for $Type {
                fn get($bytes: &mut Bytes<'_>) -> Result<Self, Wrong> {
                    Ok($get)
                }
            }
        )+
    };
}

values! {
    u64: |n, out| number(out, *n), |bytes| bytes.number()?;
    u32: |n, out| number(out, (*n).into()),
        |bytes| bytes.number()?.try_into().map_err(|_| "a number of permits beyond 32 bits")?;
    bool: |is, out| out.push(u8::from(*is)), |bytes| match bytes.byte()? {
        0 => false,
        1 => true,
        _ => return Err("a flag that is neither 0 nor 1"),
    };
    usize: |n, out| number(out, *n as u64), |bytes| bytes.size()?;
    Tid: |tid, out| number(out, (*tid).into()), |bytes| bytes.number()?.into();
    KernelId: |kernel, out| number(out, (*kernel).into()),
        |bytes| KernelId::from_number(bytes.number()?).ok_or("the number of no kernel")?;
    DeviceId: |device, out| number(out, (*device).into()), |bytes| bytes.device()?;
    Duration: |span, out| number(out, nanos(*span)), |bytes| Duration::from_nanos(bytes.number()?);
    Nanos: |span, out| number(out, nanos((*span).into())), |bytes| Duration::get(bytes)?.into();
    Share: |share, out| number(out, share.to_raw()),
        |bytes| Share::from_raw(bytes.number()?).ok_or("an unknown share")?;
    io::ErrorKind: |kind, out| out.push(errors::number(*kind)), |bytes| bytes.error_kind()?;
    String: |why, out| text(out, why), |bytes| bytes.text()?.to_string();
    Box<str>: |name, out| text(out, name), |bytes| bytes.text()?.into();
    Cow<'_, str>: |name, out| text(out, name), |bytes| bytes.text()?.to_string().into();
    QueueId: |queue, out| {
        number(out, queue.number());
        number(out, queue.slot() as u64);
    }, |bytes| bytes.queue()?;
    Cow<'_, [Tid]>: |cycle, out| {
        number(out, cycle.len() as u64);
        cycle.iter().for_each(|tid| tid.put(out));
    }, |bytes| (0..bytes.size()?).map(|_| Tid::get(bytes)).collect::<Result<_, _>>()?;
    Cow<'_, [Interest]>: |sources, out| {
        number(out, sources.len() as u64);
        sources.iter().for_each(|source| source.put(out));
    }, |bytes| (0..bytes.size()?).map(|_| Interest::get(bytes)).collect::<Result<_, _>>()?;
    SocketAddrV4: |addr, out| {
        out.put(&addr.ip().octets());
        out.put(&addr.port().to_le_bytes());
    }, |bytes| {
        let ip = bytes.array::<4>()?;
        SocketAddrV4::new(ip.into(), u16::from_le_bytes(bytes.array()?))
    };
    SocketAddrV6: |addr, out| {
        out.put(&addr.ip().octets());
        out.put(&addr.port().to_le_bytes());
        out.put(&addr.flowinfo().to_le_bytes());
        out.put(&addr.scope_id().to_le_bytes());
    }, |bytes| {
        let ip = bytes.array::<16>()?;
        let port = u16::from_le_bytes(bytes.array()?);
        let flow = u32::from_le_bytes(bytes.array()?);
        SocketAddrV6::new(ip.into(), port, flow, u32::from_le_bytes(bytes.array()?))
    };
    SystemCall: |call, out| (call, &Detail::None).put(out), |bytes| {
        let (call, _): (_, Detail<'_>) = Get::get(bytes)?;
        call
    };
}

/// What went through a device: a byte says which way, and whether it failed.
impl Put for (&DeviceId, &Direction, &Result<usize, io::ErrorKind>) {
    fn put(self, out: &mut impl Out) {
        let (device, direction, result) = self;
        let failed = u8::from(result.is_err()) << 1;
        out.push(u8::from(*direction == Direction::Write) | failed);
        device.put(out);
        match result {
            Ok(n) => n.put(out),
            Err(error) => error.put(out),
        }
    }
}

impl Get for (DeviceId, Direction, Result<usize, io::ErrorKind>) {
    fn get(bytes: &mut Bytes<'_>) -> Result<Self, Wrong> {
        let how = bytes.byte()?;
        let direction = match how {
            0 | 2 => Direction::Read,
            1 | 3 => Direction::Write,
            _ => return Err("device I/O of an unknown kind"),
        };
        let device = DeviceId::get(bytes)?;
        let result = match how {
            0 | 1 => Ok(usize::get(bytes)?),
            _ => Err(io::ErrorKind::get(bytes)?),
        };
        Ok((device, direction, result))
    }
}

/// Describes a call or a reply, with what travelled beside it.
///
/// Inlined, so that a record of a few bytes is built in registers.
macro_rules! words {
    ($($Type:ty, $unknown:literal;)+) => {
        $(
            impl Put for (&$Type, &Detail<'_>) {
                #[inline(always)]
                fn put(self, out: &mut impl Out) {
                    let (word, beside) = self;
                    let is_alone = matches!(beside, Detail::None);
                    out.push(word.number() | if is_alone { 0 } else { DETAIL });
                    put_argument(out, word.argument());
                    if !is_alone {
                        beside.put(out);
                    }
                }
            }

            impl<'a> Get for ($Type, Detail<'a>) {
                fn get(bytes: &mut Bytes<'_>) -> Result<Self, Wrong> {
                    let first = bytes.byte()?;
                    let word = <$Type>::from_number(first & !DETAIL).ok_or($unknown)?;
                    let argument = get_argument(word.argument(), bytes)?;
                    let word = word.with_argument(argument).ok_or("an argument of the wrong kind")?;
                    let detail = match first & DETAIL {
                        0 => Detail::None,
                        _ => Detail::get(bytes)?,
                    };
                    Ok((word, detail))
                }
            }
        )+
    };
}

words! {
    SystemCall, "an unknown system call";
    Reply, "an unknown reply";
}

/// Describes an argument, whose kind follows from the call or the reply.
macro_rules! arguments {
    ($($Kind:ident)+) => {
        #[inline(always)]
        fn put_argument(out: &mut impl Out, argument: Argument) {
            match argument {
                Argument::None => {}
                $(Argument::$Kind(value) => value.put(out),)+
            }
        }

        /// Reads an argument of the same kind as the one given.
        fn get_argument(kind: Argument, bytes: &mut Bytes<'_>) -> Result<Argument, Wrong> {
            Ok(match kind {
                Argument::None => Argument::None,
                $(Argument::$Kind(_) => Argument::$Kind(Get::get(bytes)?),)+
            })
        }
    };
}

arguments!(Task Span Instant Device Queue Capacity Number Errno Share);
