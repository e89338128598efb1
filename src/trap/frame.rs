//! The frame: what travels beside one trap, and what a task defers.

use std::{
    cell::{Cell, RefCell, RefMut},
    collections::VecDeque,
    fmt,
    fs::File,
    io,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::Arc,
};

use slab::Slab;

use super::{
    deferred::Deferred,
    descriptor::Descriptor,
    disk::{DiskOp, FileOp},
    drops::Drops,
    footprint::{Footprints, Object},
    mailboxes::{Mail, Mailboxes},
    mutation::Mutated,
    new_task::{Birth, Caller, Fate, NewTask, Store},
    scope::ScopeState,
    status::{Kept, QueueStatus},
    unread::AllUnread,
};
use crate::{
    abi::{
        Beside, DeviceId, Exit, HostId, Interest, KernelId, Kind, ListenOptions, Reply,
        StreamOptions, SystemCall, TaskInfo, Tid,
    },
    interrupt::{Job, Remote},
    log::{Detail, Tracer},
    panic::contain,
    sched::Policy,
};

/// The most bytes that one `recv` or `send` moves: the limit of a frame's buffer.
pub(crate) const MAX_IO: usize = 64 * 1024;

/// At this number of kept bytes, a task that prints blocks. The text of one trap may exceed it.
pub(crate) const CONSOLE_ROOM: usize = 64 * 1024;

/// An argument or an answer that does not fit in a word.
pub(crate) enum Payload {
    Program(NewTask),
    Exit(Exit),
    Tasks(Vec<TaskInfo>),
    Addr(SocketAddr),
    /// Where to listen, with options.
    Listen(SocketAddr, Box<ListenOptions>),
    /// Where to connect to, with options.
    Connect(SocketAddr, Box<StreamOptions>),
    Options(Box<StreamOptions>),
    /// Of a host, or a path.
    Name(Rc<str>),
    Addresses(Vec<IpAddr>),
    /// A fault of the network, and what becomes of a host.
    Fault {
        text: String,
        fate: Option<(HostId, Fate)>,
    },
    Source(Descriptor),
    /// A file, and an offset in it.
    File(Arc<File>, u64),
    /// An opened device, and its address. Dropping it closes the device.
    Opened(DeviceRef, Option<SocketAddr>),
    /// Two opened devices. Dropping them closes both.
    Pair(DeviceRef, DeviceRef),
    Io(io::Error),
    Queue(Rc<dyn Store>, Rc<QueueStatus>),
    Job(Job),
    Tracer(Box<dyn Tracer>),
    Policy(Box<dyn Policy>),
    /// The sources of a select.
    Interests(Vec<Interest>),
    Scope(Rc<ScopeState>),
    /// Boxed: a payload is moved as a whole.
    Disk(Box<DiskOp>),
    FileOp(Box<FileOp>),
    /// What was read, or the names in a directory.
    Bytes(Vec<u8>),
    /// A put into a mailbox, whose answer is on the tape.
    Post(Box<dyn Mail>),
}

impl Payload {
    pub(crate) fn detail(&self) -> Detail<'_> {
        match self {
            Self::Program(new) => match new.options.as_ref().map_or(0, |all| all.restart) {
                0 => named(&new.birth.name),
                restart => Detail::Name(format!("{} (restart {restart})", new.birth.name).into()),
            },
            Self::Name(name) => named(name),
            Self::Fault { text, .. } => named(text),
            Self::Addresses(addresses) => Detail::Count(addresses.len()),
            Self::Exit(exit) => Detail::Exit(exit.clone()),
            Self::Tasks(tasks) => Detail::Count(tasks.len()),
            Self::Addr(addr)
            | Self::Listen(addr, _)
            | Self::Connect(addr, _)
            | Self::Opened(_, Some(addr)) => Detail::Addr(*addr),
            Self::Options(options) => Detail::Name(options.to_string().into()),
            Self::Pair(_, other) => Detail::Count(u64::from(other.id()) as usize),
            Self::Io(error) => Detail::Io(error.kind(), error.to_string().into()),
            Self::Queue(_, status) => match (status.kind, status.name.as_deref()) {
                (Kind::Queue, None) => Detail::None,
                (Kind::Queue, Some(name)) => named(name),
                (kind, name) => Detail::Object(kind.name().into(), name.unwrap_or_default().into()),
            },
            Self::Interests(sources) => Detail::Sources(sources.into()),
            Self::Scope(scope) => match scope.under_way.get() {
                Some((_, number)) => Detail::Count(number as usize),
                None => Detail::None,
            },
            Self::Disk(op) => op.detail(),
            Self::FileOp(op) => op.detail(),
            Self::File(..)
            | Self::Bytes(_)
            | Self::Source(_)
            | Self::Opened(..)
            | Self::Job(_)
            | Self::Post(_)
            | Self::Tracer(_)
            | Self::Policy(_) => Detail::None,
        }
    }
}

fn named(name: &str) -> Detail<'_> {
    Detail::Name(name.into())
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({:?})", self.detail())
    }
}

#[derive(Default)]
pub(crate) struct Parcel {
    /// A message's number, or a number of bytes.
    pub(crate) word: Option<u64>,
    addr: Option<SocketAddr>,
    pub(crate) payload: Option<Payload>,
}

impl Parcel {
    pub(crate) fn detail(&self, call: SystemCall) -> Detail<'_> {
        match &self.payload {
            Some(payload) if !call.has_length() => payload.detail(),
            _ => Self::detail_of_words(call, self.word, self.addr),
        }
    }

    /// The same, for a call without a payload.
    fn detail_of_words(
        call: SystemCall,
        word: Option<u64>,
        addr: Option<SocketAddr>,
    ) -> Detail<'static> {
        match call.beside() {
            Beside::Datagram => addr.map_or(Detail::None, Detail::Addr),
            Beside::Bytes | Beside::File => Detail::Len(word.unwrap_or(0) as usize),
            Beside::Count => Detail::Count(word.unwrap_or(0) as usize),
            _ => Detail::None,
        }
    }
}

/// The flags that send a trap to the plain lane. Two of them leave it in a fast lane if they are alone:
/// `REQUEUED` and `OBSERVED`. `PUBLISHED` may join the first. This one: deferred calls are pending.
pub(super) const DEFERRED: u8 = 1;
pub(super) const PAYLOAD: u8 = 2;
pub(super) const OBSERVED: u8 = 4;
pub(super) const DUE: u8 = 8;
/// An injection or the limits of the task may decide on a trap. The kernel lowers it with each trap that
/// it screens, unless there is an injection.
pub(super) const SCREENED: u8 = 16;
/// A task that stays ready goes back to a policy, or to the queue of daemons.
pub(super) const REQUEUED: u8 = 32;
pub(super) const NOTED: u8 = 64;
/// Other threads see which task runs.
pub(super) const PUBLISHED: u8 = 128;

pub(crate) struct TrapFrame {
    /// The argument or answer of the trap under way that does not fit in a word.
    payload: Cell<Option<Payload>>,
    /// The second argument word of the trap under way.
    word: Cell<Option<u64>>,
    /// The address of a datagram. A payload would cost each of them 3 % of its time. It stays while
    /// deferred calls are handled: only a datagram's own call sets it and takes it.
    addr: Cell<Option<SocketAddr>>,
    /// The bytes of a `send` or a `recv`. The buffer only grows.
    bytes: RefCell<Vec<u8>>,
    /// The timeout that has cut the running task, until the task's code has dropped the body.
    pub(crate) elapsed: Cell<Option<u64>>,
    /// Whether the program of a killed or faulted task, or a timed-out body, is being dropped. The
    /// drop poisons the locks that it holds.
    pub(crate) killing: Cell<bool>,
    /// The reply to the trap under way, until its stub takes it. Here and not in the generator's
    /// airlock: `docs/price.md` has the figures.
    pub(super) reply: Cell<Option<Reply>>,
    /// Whether the place of each call is noted when its task continues.
    pub(super) is_locating: Cell<bool>,
    pub(super) located_reply: Cell<Option<Reply>>,
    drops: Drops,
    /// The number of the last tracer that a task has attached, and that of the last of a daemon.
    observers: [Cell<u64>; 2],
    pub(crate) remote: Remote,
    /// The kernel's number among those that run side by side.
    pub(crate) kernel: Cell<KernelId>,
    /// Whether a panic has unwound through a program (see [`fault`]).
    pub(crate) unwound: Cell<bool>,
    /// The flags above. One byte, read after every resume.
    pub(super) flags: Cell<u8>,
    pub(crate) kept_text: Cell<usize>,
    pub(super) footprints: RefCell<Option<Footprints>>,
    /// The printed text, which is deferred.
    pub(super) console: RefCell<String>,
    pub(super) deferred: RefCell<VecDeque<Deferred>>,
    /// Those of deferred calls. Few have one.
    pub(super) payloads: RefCell<Slab<Payload>>,
    /// What is kept of queues that are gone, and of names.
    pub(crate) kept: Kept,
    /// The caller of the last stub that may block, or makes a task. A stub borrows its `Os`, so no
    /// other call of the task comes between the call of the stub and the trap.
    place: Cell<Option<Caller>>,
    /// Whether the limits of the running task deny faults of the network.
    pub(crate) denies_faults: Cell<bool>,
    pub(crate) unread: RefCell<AllUnread>,
    /// Whether a task had a queue in place of the console.
    pub(crate) pipes: Cell<bool>,
    pub(crate) mutated: Mutated,
    pub(crate) mailboxes: Mailboxes,
    /// How many messages its tasks have put into mailboxes, and its daemons.
    posted: [Cell<u64>; 2],
}

impl TrapFrame {
    pub(crate) fn new(remote: Remote) -> Self {
        Self {
            payload: Cell::default(),
            word: Cell::default(),
            addr: Cell::default(),
            bytes: RefCell::default(),
            elapsed: Cell::default(),
            killing: Cell::default(),
            reply: Cell::default(),
            is_locating: Cell::default(),
            located_reply: Cell::default(),
            drops: Drops::default(),
            observers: [Cell::new(0), Cell::new(Tid::DAEMONS)],
            remote,
            kernel: Cell::default(),
            unwound: Cell::default(),
            flags: Cell::default(),
            kept_text: Cell::default(),
            footprints: RefCell::default(),
            console: RefCell::default(),
            deferred: RefCell::default(),
            payloads: RefCell::default(),
            kept: Kept::default(),
            place: Cell::default(),
            denies_faults: Cell::default(),
            unread: RefCell::default(),
            pipes: Cell::default(),
            mutated: Mutated::default(),
            mailboxes: Mailboxes::default(),
            posted: Default::default(),
        }
    }

    /// Makes the frame as new. It keeps its memory, and the names.
    pub(crate) fn reset(&self) {
        self.clear();
        self.take_addr();
        self.elapsed.take();
        self.killing.take();
        self.forget_reply();
        self.is_locating.take();
        self.observers[0].set(0);
        self.observers[1].set(Tid::DAEMONS);
        self.unwound.take();
        self.kept_text.take();
        self.footprints.take();
        self.console.borrow_mut().clear();
        self.deferred.borrow_mut().clear();
        if !self.payloads.borrow().is_empty() {
            // Their destructors may defer calls.
            let payloads = self.payloads.take();
            drop(payloads);
        }
        self.flags.take();
        self.forget_place();
        self.unread.borrow_mut().clear();
        self.pipes.take();
        self.mutated.reset();
    }

    pub(crate) fn place(&self) -> Option<Caller> {
        self.place.get()
    }

    /// Returns the birth of a task of this name that is spawned at the place of the call.
    #[inline(always)]
    pub(crate) fn birth(&self, name: &str) -> Rc<Birth> {
        self.kept.birth(name, self.place())
    }

    #[inline(always)]
    pub(crate) fn set_place(&self, place: Caller) {
        self.place.set(Some(place));
    }

    /// Of a spawn of the host.
    pub(crate) fn set_place_of_spawn(&self, place: Option<Caller>) {
        self.place.set(place);
    }

    /// There is none before the kernel has handled the call. While it drops a program, there is at most
    /// how many bytes that has sent.
    #[inline(always)]
    pub(crate) fn take_reply(&self) -> Option<Reply> {
        self.reply.take()
    }

    pub(crate) fn put_reply(&self, reply: Option<Reply>) {
        self.reply.set(reply);
    }

    pub(crate) fn forget_reply(&self) {
        self.reply.take();
        self.located_reply.take();
    }

    pub(crate) fn forget_place(&self) {
        self.place.set(None);
    }

    /// Returns the kernel and the number of a put into a mailbox: a replay finds the message by these. A
    /// replay may have other daemons: their puts have numbers of their own.
    pub(crate) fn next_post(&self) -> (u64, u64) {
        const DAEMONS: u64 = 1 << 62;
        let is_daemon = self.remote.running().is_daemon();
        let posted = &self.posted[usize::from(is_daemon)];
        posted.set(posted.get() + 1);
        let base = if is_daemon { DAEMONS } else { 0 };
        (self.kernel.get().into(), base + posted.get())
    }

    /// Whether what reaches the running task is on a tape.
    pub(crate) fn is_taped(&self) -> bool {
        self.remote.is_taped() && !self.remote.running().is_daemon()
    }

    pub(crate) fn put(&self, payload: Payload) {
        self.flag(PAYLOAD, true);
        self.payload.set(Some(payload));
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<Payload> {
        // A look at the flag saves most calls the move of a payload.
        if !self.has_payload() {
            return None;
        }
        self.flag(PAYLOAD, false);
        self.payload.take()
    }

    pub(crate) fn put_exit(&self, exit: Exit) {
        match exit {
            Exit::Done => drop(self.take()),
            other => self.put(Payload::Exit(other)),
        }
    }

    pub(crate) fn take_exit(&self) -> Exit {
        match self.take() {
            None => Exit::Done,
            Some(Payload::Exit(exit)) => exit,
            Some(_) => unreachable!("a program that returns leaves its exit in the frame"),
        }
    }

    pub(crate) fn put_word(&self, word: u64) {
        self.word.set(Some(word));
    }

    pub(crate) fn word(&self) -> Option<u64> {
        self.word.get()
    }

    pub(crate) fn take_word(&self) -> Option<u64> {
        self.word.take()
    }

    /// What travels with a call without a payload, for the log.
    pub(crate) fn detail(&self, call: SystemCall) -> Detail<'static> {
        Parcel::detail_of_words(call, self.word(), self.addr())
    }

    pub(crate) fn put_addr(&self, addr: SocketAddr) {
        self.addr.set(Some(addr));
    }

    pub(crate) fn addr(&self) -> Option<SocketAddr> {
        self.addr.get()
    }

    pub(crate) fn take_addr(&self) -> Option<SocketAddr> {
        self.addr.take()
    }

    pub(crate) fn take_parcel(&self) -> Parcel {
        Parcel {
            word: self.take_word(),
            addr: self.take_addr(),
            payload: self.take(),
        }
    }

    pub(crate) fn put_parcel(&self, parcel: Parcel) {
        match parcel.payload {
            Some(payload) => self.put(payload),
            None => drop(self.take()),
        }
        self.word.set(parcel.word);
        self.addr.set(parcel.addr);
    }

    pub(crate) fn clear(&self) {
        self.take_word();
        self.drop_payload();
    }

    pub(crate) fn drop_payload(&self) {
        if let Some(payload) = self.take() {
            contain(|| drop(payload));
        }
    }

    /// Returns the task whose turn it is.
    pub(crate) fn running(&self) -> Tid {
        self.remote.running()
    }

    pub(crate) fn has_payload(&self) -> bool {
        self.flags.get() & PAYLOAD != 0
    }

    pub(super) fn flag(&self, flag: u8, up: bool) {
        let others = self.flags.get() & !flag;
        self.flags.set(if up { others | flag } else { others });
    }

    #[inline]
    pub(crate) fn buffer(&self, len: usize) -> RefMut<'_, [u8]> {
        #[cold]
        fn grow(bytes: &mut Vec<u8>, len: usize) {
            bytes.resize(len, 0);
        }

        RefMut::map(self.bytes.borrow_mut(), |bytes| {
            if bytes.len() < len {
                grow(bytes, len);
            }
            &mut bytes[..len]
        })
    }

    /// Fills the buffer with the bytes of a `send`, up to [`MAX_IO`].
    pub(crate) fn offer(&self, bytes: &[u8]) {
        let len = bytes.len().min(MAX_IO);
        self.buffer(len).copy_from_slice(&bytes[..len]);
        self.put_word(len as u64);
    }

    pub(crate) fn offered(&self) -> RefMut<'_, [u8]> {
        self.buffer(self.word().unwrap_or(0) as usize)
    }

    /// Drops a value that may own others like it, in a chain of any length. A message may own the
    /// last handle of another queue.
    pub(crate) fn drop_iteratively<T: 'static>(&self, value: T) {
        self.drops.drop_all([value]);
    }

    /// The same, for a value that has its own memory.
    pub(crate) fn drop_box_iteratively<T: 'static>(&self, value: Box<T>) {
        self.drops.drop_box(value);
    }

    /// The same, for values that are dropped one by one. In a collection, the panics of two
    /// destructors would end the process.
    pub(crate) fn drop_all_iteratively<T: 'static>(&self, values: impl IntoIterator<Item = T>) {
        self.drops.drop_all(values);
    }

    /// Returns a number for a tracer of the running task. Those of daemons are apart: they change
    /// no other tracer's number.
    pub(crate) fn next_observer(&self) -> u64 {
        let is_daemon = self.remote.running().is_daemon();
        let last = &self.observers[usize::from(is_daemon)];
        last.set(last.get() + 1);
        last.get()
    }
}

/// A counted reference that keeps a device open. Dropping the last one closes the device.
pub(crate) struct DeviceRef(Rc<DeviceGuard>);

struct DeviceGuard {
    id: DeviceId,
    frame: Rc<TrapFrame>,
    /// Whether the kernel keeps the device open.
    is_shared: bool,
}

impl DeviceRef {
    pub(crate) fn new(id: DeviceId, frame: &Rc<TrapFrame>) -> Self {
        Self::with(id, frame, false)
    }

    /// A reference to a device that the kernel keeps open.
    pub(crate) fn shared(id: DeviceId, frame: &Rc<TrapFrame>) -> Self {
        Self::with(id, frame, true)
    }

    fn with(id: DeviceId, frame: &Rc<TrapFrame>, is_shared: bool) -> Self {
        Self(Rc::new(DeviceGuard {
            id,
            frame: Rc::clone(frame),
            is_shared,
        }))
    }

    pub(crate) fn frame(&self) -> &TrapFrame {
        &self.0.frame
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.0.id
    }

    pub(crate) fn is_of(&self, frame: &Rc<TrapFrame>) -> bool {
        Rc::ptr_eq(&self.0.frame, frame)
    }

    /// Drops the reference and leaves the device open, for raw calls with its number.
    pub(crate) fn leave_open(mut self) {
        if let Some(guard) = Rc::get_mut(&mut self.0) {
            guard.id = DeviceId::NONE;
        }
    }
}

impl Drop for DeviceRef {
    fn drop(&mut self) {
        let left = Rc::strong_count(&self.0) - 1;
        let DeviceGuard {
            id,
            frame,
            is_shared,
        } = &*self.0;
        if *id == DeviceId::NONE || *is_shared {
            return;
        }
        frame.note_drop(Object::Handles(*id), left);
        if left == 0 {
            frame.defer(SystemCall::Close(*id));
        }
    }
}

impl Clone for DeviceRef {
    fn clone(&self) -> Self {
        let DeviceGuard { id, frame, .. } = &*self.0;
        frame.note_clone(Object::Handles(*id), Rc::strong_count(&self.0));
        Self(Rc::clone(&self.0))
    }
}
