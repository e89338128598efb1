//! Events as bytes. `decode.rs` is the other direction.

use std::{io, net::SocketAddr, time::Duration};

use super::{
    Context, Header, MAGIC, MAX_PLACE, MAX_TEXT, MAX_WORDS, VERSION,
    chunks::{MAX_CHUNK, chunk},
    errors, kind,
};
use crate::{
    abi::{
        Argument, Direction, End, Errno, Exit, Inject, Interest, On, Place, QueueId, Reply,
        SystemCall, Tid,
    },
    log::{Detail, Event, Fact, Wake},
};

/// Where encoded bytes go.
pub(crate) trait Out {
    fn push(&mut self, byte: u8);
    fn put(&mut self, bytes: &[u8]);
}

impl Out for Vec<u8> {
    fn push(&mut self, byte: u8) {
        Vec::push(self, byte);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// How a recording begins: everything up to its first record.
///
/// *Errors:* the header is longer than any that is read.
pub(super) fn preamble(header: &Header) -> io::Result<Vec<u8>> {
    framed(MAGIC, VERSION, &body(header))
}

/// How a file begins: the magic number, the version, and the chunk of the header.
///
/// *Errors:* the header is longer than any that is read.
pub(crate) fn framed(magic: [u8; 8], version: u16, header: &[u8]) -> io::Result<Vec<u8>> {
    if header.len() > MAX_CHUNK as usize {
        let message = format!(
            "the command line is too long: the header takes {} bytes, and has room for {MAX_CHUNK}",
            header.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut out = magic.to_vec();
    out.extend(version.to_le_bytes());
    chunk(&mut out, header);
    Ok(out)
}

/// The bytes of a header.
pub(crate) fn body(header: &Header) -> Vec<u8> {
    let mut payload = Vec::new();
    let words = header.command.len().min(MAX_WORDS);
    number(&mut payload, words as u64);
    for word in &header.command[..words] {
        text(&mut payload, word);
    }
    number(&mut payload, header.seed);
    text(&mut payload, &header.policy);
    number(&mut payload, header.quantum.into());
    payload.push(header.is_simulated.into());
    text(&mut payload, &header.version);
    payload
}

impl Context {
    /// Appends an event, if it is one of the three most common ones. Returns whether it is.
    #[inline(always)]
    pub(super) fn common_event(&mut self, out: &mut impl Out, event: &Event<'_>) -> bool {
        if event.place.is_some() {
            return false;
        }
        match event.fact {
            Fact::Resumed => self.begin(out, kind::RESUMED, event.at, event.tid),
            Fact::Trapped {
                call,
                detail: Detail::None,
            } => self.call(out, event.at, event.tid, call, &Detail::None),
            Fact::Replied {
                reply,
                detail: Detail::None,
            } => self.reply(out, event.at, event.tid, reply, &Detail::None),
            _ => return false,
        }
        true
    }

    /// Appends a call.
    #[inline(always)]
    pub(super) fn call(
        &mut self,
        out: &mut impl Out,
        at: Duration,
        tid: Tid,
        call: SystemCall,
        beside: &Detail<'_>,
    ) {
        self.begin(out, kind::TRAPPED, at, tid);
        words(out, call.number(), call.argument(), beside);
    }

    /// Appends a reply.
    #[inline(always)]
    pub(super) fn reply(
        &mut self,
        out: &mut impl Out,
        at: Duration,
        tid: Tid,
        reply: Reply,
        beside: &Detail<'_>,
    ) {
        self.begin(out, kind::REPLIED, at, tid);
        words(out, reply.number(), reply.argument(), beside);
    }

    /// Appends an event.
    pub(super) fn event(&mut self, out: &mut impl Out, event: &Event<'_>) {
        let begin = |this: &mut Self, out: &mut _, kind| this.begin(out, kind, event.at, event.tid);
        if let Some(Place { file, line, chain }) = &event.place {
            out.push(kind::PLACE);
            cut_text(out, file, MAX_PLACE);
            number(out, (*line).into());
            cut_text(out, chain, MAX_PLACE);
        }
        match &event.fact {
            Fact::Spawned { parent, name } => {
                begin(self, out, kind::SPAWNED);
                number(out, (*parent).into());
                text(out, name);
            }
            Fact::Fault { text: what } => {
                begin(self, out, kind::FAULT);
                text(out, what);
            }
            Fact::Resumed => begin(self, out, kind::RESUMED),
            Fact::Trapped { call, detail } => {
                self.call(out, event.at, event.tid, *call, detail);
            }
            Fact::Deferred { call } => {
                begin(self, out, kind::DEFERRED);
                words(out, call.number(), call.argument(), &Detail::None);
            }
            Fact::Injected { inject: what } => {
                begin(self, out, kind::INJECTED);
                inject(out, *what);
            }
            Fact::Replied { reply, detail } => {
                self.reply(out, event.at, event.tid, *reply, detail);
            }
            Fact::Blocked { on } => {
                begin(self, out, kind::BLOCKED);
                blocked(out, *on);
            }
            Fact::Woken { by } => {
                begin(self, out, kind::WOKEN);
                woken(out, *by);
            }
            Fact::DeviceIo {
                device,
                direction,
                result,
            } => {
                begin(self, out, kind::DEVICE_IO);
                let failed = u8::from(result.is_err()) << 1;
                out.push(u8::from(*direction == Direction::Write) | failed);
                number(out, (*device).into());
                match result {
                    Ok(n) => number(out, *n as u64),
                    Err(error) => out.push(errors::number(*error)),
                }
            }
            Fact::Console { text: printed } => {
                begin(self, out, kind::CONSOLE);
                text(out, printed);
            }
            Fact::Exited { exit: how } => {
                begin(self, out, kind::EXITED);
                exit(out, how);
            }
            Fact::Reaped => begin(self, out, kind::REAPED),
            Fact::Deadlocked { cycle } => {
                begin(self, out, kind::DEADLOCKED);
                number(out, cycle.len() as u64);
                cycle.iter().for_each(|tid| number(out, (*tid).into()));
            }
            Fact::Computing { processor } => {
                begin(self, out, kind::COMPUTING);
                number(out, *processor as u64);
            }
            Fact::Preempted { left } => {
                begin(self, out, kind::PREEMPTED);
                number(out, nanos(*left));
            }
            Fact::ClockJumped { from } => {
                begin(self, out, kind::CLOCK_JUMPED);
                number(out, nanos(*from));
            }
        }
    }

    /// Appends the kind of a record, its task and its time.
    #[inline(always)]
    fn begin(&mut self, out: &mut impl Out, kind: u8, at: Duration, tid: Tid) {
        let (tid, at) = (u64::from(tid), nanos(at));
        let whom = if tid == self.tid { 0 } else { kind::TID };
        let when = if at == self.at { 0 } else { kind::TIME };
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
}

/// A record that says how many events are missing here.
pub(super) fn gap(out: &mut impl Out, missing: u64) {
    out.push(kind::GAP);
    number(out, missing);
}

/// A call or a reply: its number, its argument, and what travelled beside it.
///
/// Inlined, so that a record of a few bytes is built in registers.
#[inline(always)]
fn words(out: &mut impl Out, place: u8, argument: Argument, beside: &Detail<'_>) {
    out.push(place | detail_bit(beside));
    match argument {
        Argument::None => {}
        Argument::Task(tid) => number(out, tid.into()),
        Argument::Span(time) | Argument::Instant(time) => number(out, nanos(time.into())),
        Argument::Device(device) => number(out, device.into()),
        Argument::Queue(id) => queue(out, id),
        Argument::Capacity(n) | Argument::Number(n) => number(out, n),
        Argument::Errno(errno) => number(out, errno_number(errno)),
        Argument::Share(share) => number(out, share.to_raw()),
    }
    if let Detail::None = beside {
        return;
    }
    detail(out, beside);
}

fn errno_number(errno: Errno) -> u64 {
    match errno {
        Errno::NoSuchTask => 0,
        Errno::WouldDeadlock => 1,
        Errno::TooManyTasks => 2,
        Errno::BadFd => 3,
        Errno::Busy => 4,
        Errno::Closed => 5,
        Errno::Invalid => 6,
        Errno::NoSuchHost => 7,
        Errno::HostDown => 8,
    }
}

fn detail_bit(detail: &Detail<'_>) -> u8 {
    u8::from(!matches!(detail, Detail::None)) * kind::DETAIL
}

/// Encodes the payload of a call or its reply, if there is one.
fn detail(out: &mut impl Out, detail: &Detail<'_>) {
    match detail {
        Detail::None => {}
        Detail::Name(name) => {
            out.push(1);
            text(out, name);
        }
        Detail::Object(kind, name) => {
            out.push(8);
            text(out, kind);
            text(out, name);
        }
        Detail::Addr(addr) => socket_addr(out, *addr),
        Detail::Len(n) => {
            out.push(4);
            number(out, *n as u64);
        }
        Detail::Exit(how) => {
            out.push(5);
            exit(out, how);
        }
        Detail::Count(n) => {
            out.push(6);
            number(out, *n as u64);
        }
        Detail::Sources(sources) => {
            out.push(9);
            number(out, sources.len() as u64);
            sources.iter().for_each(|source| interest(out, *source));
        }
        Detail::Io(kind, why) => {
            out.push(7);
            out.push(errors::number(*kind));
            text(out, why);
        }
    }
}

/// An address, behind a byte that says of which kind.
pub(crate) fn socket_addr(out: &mut impl Out, addr: SocketAddr) {
    match addr {
        SocketAddr::V4(addr) => {
            out.push(2);
            out.put(&addr.ip().octets());
            out.put(&addr.port().to_le_bytes());
        }
        SocketAddr::V6(addr) => {
            out.push(3);
            out.put(&addr.ip().octets());
            out.put(&addr.port().to_le_bytes());
            out.put(&addr.flowinfo().to_le_bytes());
            out.put(&addr.scope_id().to_le_bytes());
        }
    }
}

fn blocked(out: &mut impl Out, on: On) {
    let (how, what) = match on {
        On::Exit(tid) => (0, tid.into()),
        On::Timer(deadline) => (1, nanos(deadline.into())),
        On::Device(device, Direction::Read) => (2, device.into()),
        On::Device(device, Direction::Write) => (3, device.into()),
        On::Queue(id, end) => {
            out.push(if end == End::Put { 4 } else { 5 });
            return queue(out, id);
        }
        On::First(sources) => (6, sources),
    };
    out.push(how);
    number(out, what);
}

/// The kinds of a wait, and one for a span.
fn interest(out: &mut impl Out, source: Interest) {
    match source {
        Interest::Exit(tid) => blocked(out, On::Exit(tid)),
        Interest::At(instant) => blocked(out, On::Timer(instant)),
        Interest::Device(device, direction) => blocked(out, On::Device(device, direction)),
        Interest::Queue(queue, end) => blocked(out, On::Queue(queue, end)),
        Interest::After(span) => {
            out.push(7);
            number(out, nanos(span.into()));
        }
    }
}

fn woken(out: &mut impl Out, by: Wake) {
    let (how, what) = match by {
        Wake::Exit(tid) => (0, tid.into()),
        Wake::Timer => return out.push(1),
        Wake::Device(device, Direction::Read) => (2, device.into()),
        Wake::Device(device, Direction::Write) => (3, device.into()),
        Wake::Closed(device) => (4, device.into()),
        Wake::Queue(id) => {
            out.push(5);
            return queue(out, id);
        }
        Wake::Timeout => return out.push(6),
    };
    out.push(how);
    number(out, what);
}

fn inject(out: &mut impl Out, inject: Inject) {
    match inject {
        Inject::Fail(error) => {
            out.push(0);
            out.push(errors::number(error));
        }
        Inject::Delay(span) => {
            out.push(1);
            number(out, nanos(span));
        }
        Inject::Kill => out.push(2),
    }
}

fn exit(out: &mut impl Out, exit: &Exit) {
    match exit {
        Exit::Done => out.push(0),
        Exit::Failed(why) => {
            out.push(1);
            text(out, why);
        }
        Exit::Faulted(why) => {
            out.push(2);
            text(out, why);
        }
        Exit::Killed => out.push(3),
    }
}

#[inline(always)]
fn queue(out: &mut impl Out, queue: QueueId) {
    number(out, queue.number());
    number(out, queue.slot() as u64);
}

pub(crate) fn text(out: &mut impl Out, text: &str) {
    cut_text(out, text, MAX_TEXT);
}

fn cut_text(out: &mut impl Out, text: &str, most: usize) {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    number(out, end as u64);
    out.put(&text.as_bytes()[..end]);
}

#[inline(always)]
pub(crate) fn number(out: &mut impl Out, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[inline(always)]
pub(crate) fn nanos(instant: Duration) -> u64 {
    let seconds = instant.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(instant.subsec_nanos().into())
}
