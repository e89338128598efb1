//! What travels beside a call: the reply, and arguments and answers too big for a word.
//!
//! A kernel has one [`TrapFrame`], shared with the [`Os`](crate::Os) of every task. Its contents
//! are valid for one trap. A stub fills it and yields; the kernel empties it before another task
//! runs. The kernel fills it and resumes; the stub empties it before the task continues. Only
//! deferred calls outlive a trap: the task does not wait for their answers.
//!
//! | file | owns |
//! |---|---|
//! | `trap.rs` | [`TrapFrame`], [`Payload`], programs, references to devices |
//! | `descriptor.rs` | [`Descriptor`]: an open descriptor and what keeps it open |
//! | `footprint.rs` | what a turn touches: [`Footprints`] |
//! | `pause.rs` | how blocking work pauses |
//! | `status.rs` | the status of a queue, which its handles read without a trap |

mod descriptor;
mod footprint;
pub(crate) mod pause;
mod status;

use std::{
    any::Any,
    cell::{Cell, RefCell, RefMut},
    collections::VecDeque,
    fmt,
    fs::File,
    io,
    net::{IpAddr, SocketAddr},
    panic::{AssertUnwindSafe, Location, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::Arc,
};

use genawaiter::{Coroutine, GeneratorState};
use slab::Slab;

use crate::{
    abi::{
        DeviceId, Exit, HostId, Interest, Nanos, Place, QueueId, Reply, SystemCall, TaskInfo, Tid,
    },
    interrupt::{Job, Remote},
    log::{Detail, Tracer},
    panic::{Panic, contain, panic_message, take_origin},
};

pub(crate) use crate::abi::Kind;
#[cfg(feature = "serde")]
pub(crate) use descriptor::Carrier;
pub use descriptor::Descriptor;
pub use footprint::{Continued, Footprints, Note, Object};
pub(crate) use status::QueueStatus;

/// The most bytes that one `recv` or `send` moves: the limit of a frame's buffer.
pub(crate) const MAX_IO: usize = 64 * 1024;

/// At this number of kept bytes, a task that prints blocks. The text of one trap may exceed it.
pub(crate) const CONSOLE_ROOM: usize = 64 * 1024;

/// The place of the call that a program makes.
pub(crate) type Caller = &'static Location<'static>;

/// An argument or an answer that does not fit in a word.
pub(crate) enum Payload {
    Program(NewTask),
    Exit(Exit),
    Tasks(Vec<TaskInfo>),
    Addr(SocketAddr),
    /// The name of a host.
    Name(Rc<str>),
    /// The addresses of a host.
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
    Io(io::Error),
    Queue(Rc<dyn Store>, Rc<QueueStatus>),
    Job(Job),
    Tracer(Box<dyn Tracer>),
    /// The sources of a select.
    Interests(Vec<Interest>),
    Scope(Rc<ScopeState>),
}

impl Payload {
    /// Returns what the log shows of it.
    pub(crate) fn detail(&self) -> Detail<'_> {
        match self {
            Self::Program(NewTask { name, .. }) | Self::Name(name) => named(name),
            Self::Fault { text, .. } => named(text),
            Self::Addresses(addresses) => Detail::Count(addresses.len()),
            Self::Exit(exit) => Detail::Exit(exit.clone()),
            Self::Tasks(tasks) => Detail::Count(tasks.len()),
            Self::Addr(addr) | Self::Opened(_, Some(addr)) => Detail::Addr(*addr),
            Self::Io(error) => Detail::Io(error.kind(), error.to_string().into()),
            Self::Queue(_, status) => match (status.kind, status.name.as_deref()) {
                (Kind::Queue, None) => Detail::None,
                (Kind::Queue, Some(name)) => named(name),
                (kind, name) => Detail::Object(kind.name().into(), name.unwrap_or_default().into()),
            },
            Self::File(..) | Self::Source(_) | Self::Opened(..) | Self::Job(_) => Detail::None,
            Self::Tracer(_) => Detail::None,
            Self::Scope(scope) => match scope.under_way.get() {
                Some((_, number)) => Detail::Count(number as usize),
                None => Detail::None,
            },
            Self::Interests(sources) => Detail::Sources(sources.into()),
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

/// What a scope shares with its handles. Only the kernel changes it.
#[derive(Debug)]
pub(crate) struct ScopeState {
    pub(crate) is_cancelled: Cell<bool>,
    /// The task that runs it, and the number of its timeout.
    pub(crate) under_way: Cell<Option<(Tid, u64)>>,
    pub(crate) deadline: Cell<Nanos>,
}

impl Default for ScopeState {
    fn default() -> Self {
        Self {
            is_cancelled: Cell::default(),
            under_way: Cell::default(),
            deadline: Cell::new(Nanos::FOREVER),
        }
    }
}

/// A task that is to be made.
pub(crate) struct NewTask {
    pub(crate) name: Rc<str>,
    pub(crate) program: Program,
    /// Apart: few tasks have any, and a payload is moved as a whole.
    pub(crate) options: Option<Box<Options>>,
}

/// What a new task has besides a name and a program.
#[derive(Default)]
pub(crate) struct Options {
    /// Receives the number and the exit of the task.
    pub(crate) keeper: Option<Rc<dyn Keeper>>,
    pub(crate) start: Start,
    /// The host, unless it is that of the parent.
    pub(crate) host: Option<Rc<str>>,
}

/// What becomes of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Its tasks end.
    Crash,
    /// Its programs start again.
    Restart,
}

/// The store of a queue's messages. It is on the task's side, because the kernel knows no types.
/// The kernel uses only the numbers of messages.
pub(crate) trait Store {
    /// Drops a message that no task receives.
    fn discard(&self, message: u64);

    /// Drops all messages, whose destructors may panic; the kernel is being dropped.
    fn clear(&self);
}

/// The time of a new task's first turn.
#[derive(Clone, Copy, Default)]
pub(crate) enum Start {
    /// Before its parent continues.
    #[default]
    First,
    /// After its parent has continued.
    Behind,
    /// After a sleep of this span.
    After(Nanos),
}

/// Keeps the exit of a task for a [`Child`](crate::Child) or a [`Group`](crate::sync::Group). The
/// kernel delivers the exit. A call that fetched it could be cut by a timeout.
pub(crate) trait Keeper {
    /// Called when the task is made, before its first turn.
    fn spawned(&self, tid: Tid);

    /// Called when the task has ended and its destructors have run. The kernel puts the returned
    /// message into the queue.
    fn ended(&self, tid: Tid, exit: &Exit) -> Option<(QueueId, u64)>;
}

/// A call that a task makes without a trap, mostly in a destructor. The kernel handles it when the
/// task stops, before the task's next call. The answer is dropped.
#[derive(Clone, Copy)]
pub(crate) struct Deferred {
    pub(crate) call: SystemCall,
    /// A word beside it. If the call has a payload, the number of this in
    /// [`TrapFrame::take_deferred_payload`].
    pub(crate) word: Option<u64>,
}

impl Deferred {
    /// Returns whether it is one of the most frequent calls. These end no task.
    fn is_frequent(&self) -> bool {
        matches!(
            self.call,
            SystemCall::TryPut(_)
                | SystemCall::FreeQueue(_)
                | SystemCall::GiveBack(_)
                | SystemCall::Disarm(_)
                | SystemCall::Disown(_)
                | SystemCall::Close(_)
        )
    }
}

/// What travels beside one call.
#[derive(Default)]
pub(crate) struct Parcel {
    /// A second argument word: a message's number, a number of bytes.
    pub(crate) word: Option<u64>,
    pub(crate) payload: Option<Payload>,
}

impl Parcel {
    /// Returns what the log shows of it.
    pub(crate) fn detail(&self, call: SystemCall) -> Detail<'_> {
        match &self.payload {
            Some(payload) if !call.has_length() => payload.detail(),
            _ => Self::detail_of_word(call, self.word),
        }
    }

    /// The same, for a call without a payload.
    pub(crate) fn detail_of_word(call: SystemCall, word: Option<u64>) -> Detail<'static> {
        if call.has_length() {
            Detail::Len(word.unwrap_or(0) as usize)
        } else {
            Detail::None
        }
    }
}

/// The flags that send a trap to the plain lane. Two of them leave it in a fast lane if they are alone:
/// `REQUEUED` and `OBSERVED`. `PUBLISHED` may join the first. This one: deferred calls are pending.
const DEFERRED: u8 = 1;
/// A payload travels beside the call.
const PAYLOAD: u8 = 2;
/// A tracer is attached.
const OBSERVED: u8 = 4;
/// A timeout around the call is due.
const DUE: u8 = 8;
/// An injection looks at every call.
const INJECTED: u8 = 16;
/// A task that stays ready goes back to a policy, or to the queue of daemons.
const REQUEUED: u8 = 32;
/// A search takes notes of what each turn touches.
const NOTED: u8 = 64;
/// Other threads see which task runs.
const PUBLISHED: u8 = 128;

/// The most deferred calls whose memory is kept for the next.
const REUSED: usize = 64;

/// The number of queues whose memory a frame keeps.
const STATUSES: usize = 16;

/// The number of names that a frame keeps.
const NAMES: usize = 4;

pub(crate) struct TrapFrame {
    /// The argument or answer of the trap under way that does not fit in a word.
    payload: Cell<Option<Payload>>,
    /// The second argument word of the trap under way.
    word: Cell<Option<u64>>,
    /// The bytes of a `send` or a `recv`. The buffer only grows.
    bytes: RefCell<Vec<u8>>,
    /// The timeout that has cut the running task, until the task's code has dropped the body.
    pub(crate) elapsed: Cell<Option<u64>>,
    /// Whether the program of a killed or faulted task, or a timed-out body, is being dropped. The
    /// drop poisons the locks that it holds.
    pub(crate) killing: Cell<bool>,
    /// The reply to the trap under way, until its stub takes it. Here and not in the generator's
    /// airlock: `docs/price.md` has the figures.
    reply: Cell<Option<Reply>>,
    /// The place of each call is noted when its task continues.
    is_locating: Cell<bool>,
    /// The reply to a trap whose place is to be noted.
    located_reply: Cell<Option<Reply>>,
    /// Whether [`TrapFrame::drop_iteratively`] is running.
    is_dropping: Cell<bool>,
    /// The values that it drops next.
    pending_drops: RefCell<VecDeque<Box<dyn Any>>>,
    /// The number of the last tracer that a task has attached, and that of the last of a daemon.
    observers: [Cell<u64>; 2],
    /// The interrupt handle of the kernel, for other threads.
    pub(crate) remote: Remote,
    /// Whether a panic has unwound through a program (see [`fault`]).
    pub(crate) unwound: Cell<bool>,
    /// The flags above. One byte, read after every resume.
    flags: Cell<u8>,
    /// The number of bytes that the kernel keeps for the console.
    pub(crate) kept_text: Cell<usize>,
    /// The notes of a search.
    footprints: RefCell<Option<Footprints>>,
    /// Deferred: the printed text.
    console: RefCell<String>,
    /// Deferred: the calls.
    deferred: RefCell<VecDeque<Deferred>>,
    /// The payloads of deferred calls. Few calls have one.
    payloads: RefCell<Slab<Payload>>,
    /// The memory of queues that are gone, at most [`STATUSES`] of them, for the next ones.
    statuses: RefCell<Vec<Rc<QueueStatus>>>,
    /// The names of the last new tasks, at most [`NAMES`]. Tasks with the same name share its memory.
    names: RefCell<Vec<Rc<str>>>,
    /// The caller of the last stub that may block, or makes a task. A stub borrows its `Os`, so no
    /// other call of the task comes between the call of the stub and the trap.
    place: Cell<Option<&'static Location<'static>>>,
}

impl TrapFrame {
    pub(crate) fn new(remote: Remote) -> Self {
        Self {
            payload: Cell::default(),
            word: Cell::default(),
            bytes: RefCell::default(),
            elapsed: Cell::default(),
            killing: Cell::default(),
            reply: Cell::default(),
            is_locating: Cell::default(),
            located_reply: Cell::default(),
            is_dropping: Cell::default(),
            pending_drops: RefCell::default(),
            observers: [Cell::new(0), Cell::new(Tid::DAEMONS)],
            remote,
            unwound: Cell::default(),
            flags: Cell::default(),
            kept_text: Cell::default(),
            footprints: RefCell::default(),
            console: RefCell::default(),
            deferred: RefCell::default(),
            payloads: RefCell::default(),
            statuses: RefCell::default(),
            names: RefCell::default(),
            place: Cell::default(),
        }
    }

    /// Makes the frame as new. It keeps its memory, and the names.
    pub(crate) fn reset(&self) {
        self.clear();
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
    }

    pub(crate) fn place(&self) -> Option<&'static Location<'static>> {
        self.place.get()
    }

    #[inline(always)]
    pub(crate) fn set_place(&self, place: &'static Location<'static>) {
        self.place.set(Some(place));
    }

    /// Sets the place of a spawn of the host, if it has one.
    pub(crate) fn set_place_of_spawn(&self, place: Option<&'static Location<'static>>) {
        self.place.set(place);
    }

    /// Takes the reply to the trap under way. There is none before the kernel has handled the call,
    /// and none while the kernel drops a program.
    #[inline(always)]
    pub(crate) fn take_reply(&self) -> Option<Reply> {
        self.reply.take()
    }

    /// Forgets the reply to a trap whose program is dropped.
    pub(crate) fn forget_reply(&self) {
        self.reply.take();
        self.located_reply.take();
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

    /// Puts the exit of a program that returns. [`Exit::Done`] needs no payload.
    pub(crate) fn put_exit(&self, exit: Exit) {
        match exit {
            Exit::Done => drop(self.take()),
            other => self.put(Payload::Exit(other)),
        }
    }

    /// Takes the exit of a program that has returned.
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

    /// Takes everything that travels beside the trap under way.
    pub(crate) fn take_parcel(&self) -> Parcel {
        Parcel {
            word: self.take_word(),
            payload: self.take(),
        }
    }

    pub(crate) fn put_parcel(&self, parcel: Parcel) {
        match parcel.payload {
            Some(payload) => self.put(payload),
            None => drop(self.take()),
        }
        self.word.set(parcel.word);
    }

    /// Drops everything that travels beside a cancelled trap.
    pub(crate) fn clear(&self) {
        self.take_word();
        self.drop_payload();
    }

    pub(crate) fn drop_payload(&self) {
        if let Some(payload) = self.take() {
            contain(|| drop(payload));
        }
        // The drop may unwind through a program that was never spawned; the mark is not for the
        // next task.
        self.unwound.set(false);
    }

    pub(crate) fn has_payload(&self) -> bool {
        self.flags.get() & PAYLOAD != 0
    }

    /// Returns whether the fast lane may answer the call, and the task keeps its place: no flag is
    /// set.
    #[inline(always)]
    pub(crate) fn is_in_lane(&self) -> bool {
        self.flags.get() == 0
    }

    /// Returns whether the fast lane may answer the call, and the task is put back.
    pub(crate) fn is_in_requeued_lane(&self) -> bool {
        self.flags.get() == REQUEUED
    }

    /// The same, and turns are published.
    pub(crate) fn is_in_published_lane(&self) -> bool {
        self.flags.get() == REQUEUED | PUBLISHED
    }

    /// Returns whether the fast lane may answer the call, the task keeps its place, and tracers get
    /// events.
    pub(crate) fn is_in_observed_lane(&self) -> bool {
        self.flags.get() == OBSERVED
    }

    /// Makes tasks that stay ready leave their places, to be put back.
    pub(crate) fn set_requeued(&self, requeued: bool) {
        self.flag(REQUEUED, requeued);
    }

    /// Has the traps of all tasks emitted to tracers.
    pub(crate) fn set_observed(&self, observed: bool) {
        self.flag(OBSERVED, observed);
    }

    /// Has the turns of all tasks published.
    pub(crate) fn set_published(&self, published: bool) {
        self.flag(PUBLISHED, published);
    }

    /// Sends the traps of all tasks to the plain lane, which asks the injection.
    pub(crate) fn set_injected(&self) {
        self.flag(INJECTED, true);
    }

    /// Sends the traps of all tasks to the plain lane, which takes these notes.
    pub(crate) fn set_footprints(&self, footprints: Footprints) {
        self.footprints.replace(Some(footprints));
        self.flag(NOTED, true);
    }

    /// Notes where each turn continues.
    pub(crate) fn locate(&self) {
        self.is_locating.set(true);
    }

    /// Puts a reply aside, if the place where the task continues is to be noted. The stub looks here
    /// when it finds no reply, so that a reply in its usual place costs nothing more.
    pub(crate) fn put_located_reply(&self, reply: &mut Option<Reply>) {
        if self.is_locating.get() {
            self.located_reply.set(reply.take());
        }
    }

    /// Takes a reply that was put aside, and notes that its task continues here.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_located_reply(&self) -> Option<Reply> {
        let reply = self.located_reply.take()?;
        if let Some(footprints) = &*self.footprints.borrow() {
            footprints.note_continued();
        }
        Some(reply)
    }

    /// Forgets the place of the last call.
    pub(crate) fn forget_place(&self) {
        self.place.set(None);
    }

    pub(crate) fn footprints(&self) -> Option<Footprints> {
        self.footprints.borrow().clone()
    }

    #[inline(always)]
    pub(crate) fn is_noted(&self) -> bool {
        self.flags.get() & NOTED != 0
    }

    /// Adds a line to the notes of a search, if there is one.
    #[inline(always)]
    pub(crate) fn note(&self, note: Note) {
        if self.is_noted() {
            self.note_in_full(note);
        }
    }

    #[cold]
    fn note_in_full(&self, note: Note) {
        if let Some(footprints) = &*self.footprints.borrow() {
            footprints.note(note);
        }
    }

    /// Notes that the turn under way touches an object.
    #[inline(always)]
    pub(crate) fn touch(&self, object: Object, writes: bool) {
        self.note(Note::Touched { object, writes });
    }

    /// Notes that the turn under way makes a handle of an object that has so many.
    #[inline(always)]
    pub(crate) fn note_clone(&self, object: Object, before: usize) {
        self.note(Note::Counted {
            object,
            before: before as u64,
            left: before as u64 + 1,
        });
    }

    /// Notes that the turn under way drops a handle of an object, of which so many are left.
    #[inline(always)]
    pub(crate) fn note_drop(&self, object: Object, left: usize) {
        // The order of the drops decides which is the last. All others commute.
        self.touch(object, left == 0);
        self.note(Note::Counted {
            object,
            before: left as u64 + 1,
            left: left as u64,
        });
    }

    /// Notes that the turn under way touches both ends of a queue.
    #[inline(always)]
    pub(crate) fn touch_queue(&self, queue: QueueId, writes: bool) {
        self.touch(Object::PutEnd(queue), writes);
        self.touch(Object::GetEnd(queue), writes);
    }

    /// Sends the next trap to the plain lane, which cuts it.
    pub(crate) fn set_due(&self) {
        self.flag(DUE, true);
    }

    /// Returns whether a timeout around this trap is due, and clears the flag.
    pub(crate) fn take_due(&self) -> bool {
        let due = self.flags.get() & DUE != 0;
        self.flag(DUE, false);
        due
    }

    fn flag(&self, flag: u8, up: bool) {
        let others = self.flags.get() & !flag;
        self.flags.set(if up { others | flag } else { others });
    }

    /// Borrows the first `len` bytes of the buffer.
    pub(crate) fn buffer(&self, len: usize) -> RefMut<'_, [u8]> {
        RefMut::map(self.bytes.borrow_mut(), |bytes| {
            if bytes.len() < len {
                bytes.resize(len, 0);
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

    /// Borrows the bytes of the `send` under way.
    pub(crate) fn offered(&self) -> RefMut<'_, [u8]> {
        self.buffer(self.word().unwrap_or(0) as usize)
    }

    pub(crate) fn print(&self, text: fmt::Arguments<'_>) {
        // First, because a `Display` of the caller may panic half way.
        self.flag(DEFERRED, true);
        // Writing to a `String` fails only if a `Display` of the caller does.
        let _ = fmt::write(&mut *self.console.borrow_mut(), text);
    }

    /// Defers a call.
    pub(crate) fn defer(&self, call: SystemCall) {
        self.defer_with(call, None);
    }

    /// Defers a call with a word beside it.
    pub(crate) fn defer_word(&self, call: SystemCall, word: u64) {
        self.defer_with(call, Some(word));
    }

    /// Defers a call with a payload beside it.
    pub(crate) fn defer_payload(&self, call: SystemCall, payload: Payload) {
        let number = self.payloads.borrow_mut().insert(payload);
        self.defer_with(call, Some(number as u64));
    }

    /// Takes the payload of a deferred call.
    pub(crate) fn take_deferred_payload(&self, number: u64) -> Option<Payload> {
        self.payloads.borrow_mut().try_remove(number as usize)
    }

    fn defer_with(&self, call: SystemCall, word: Option<u64>) {
        self.deferred
            .borrow_mut()
            .push_back(Deferred { call, word });
        self.flag(DEFERRED, true);
    }

    /// Returns whether there is deferred text.
    pub(crate) fn prints(&self) -> bool {
        !self.console.borrow().is_empty()
    }

    /// Returns whether the next trap may wait for the console.
    pub(crate) fn may_wait_to_print(&self) -> bool {
        self.prints() && self.kept_text.get() + self.console.borrow().len() >= CONSOLE_ROOM
    }

    pub(crate) fn has_deferred(&self) -> bool {
        self.flags.get() & DEFERRED != 0
    }

    /// Takes the deferred text.
    pub(crate) fn take_text(&self) -> String {
        self.console.take()
    }

    /// Takes the next deferred call if it is a frequent one, and no text comes before it.
    #[inline(always)]
    pub(crate) fn next_frequent_deferred(&self) -> Option<Deferred> {
        if self.prints() {
            return None;
        }
        let mut calls = self.deferred.borrow_mut();
        let next = calls.front().copied().filter(Deferred::is_frequent)?;
        calls.pop_front();
        if calls.is_empty() {
            self.flag(DEFERRED, false);
            if calls.capacity() > REUSED {
                *calls = VecDeque::new();
            }
        }
        Some(next)
    }

    /// Takes all deferred calls.
    pub(crate) fn take_deferred(&self) -> VecDeque<Deferred> {
        self.flag(DEFERRED, false);
        self.deferred.take()
    }

    /// Gives back the memory of deferred calls, all of which are handled.
    pub(crate) fn reuse_deferred(&self, handled: VecDeque<Deferred>) {
        debug_assert!(handled.is_empty(), "the calls that are left would be lost");
        if handled.capacity() <= REUSED {
            self.deferred.replace(handled);
        }
    }

    /// Drops a value that may own others like it, in a chain of any length. A message may own the
    /// last handle of another queue. The inner values go to a list, so that the stack does not
    /// overflow.
    pub(crate) fn drop_iteratively<T: 'static>(&self, value: T) {
        self.drop_all_iteratively([value]);
    }

    /// The same, for values that are dropped one by one. In a collection, the panics of two
    /// destructors would end the process.
    pub(crate) fn drop_all_iteratively<T: 'static>(&self, values: impl IntoIterator<Item = T>) {
        if !std::mem::needs_drop::<T>() {
            return;
        }
        let values = values
            .into_iter()
            .map(|value| Box::new(value) as Box<dyn Any>);
        self.pending_drops.borrow_mut().extend(values);
        if !self.is_dropping.replace(true) {
            PendingDrops(self).drop_all();
        }
    }

    /// Returns a number for a tracer of the running task. Those of daemons are apart: they change
    /// no other tracer's number.
    pub(crate) fn next_observer(&self) -> u64 {
        let is_daemon = self.remote.running().is_daemon();
        let last = &self.observers[usize::from(is_daemon)];
        last.set(last.get() + 1);
        last.get()
    }

    /// Makes the status of a new queue. Field by field: a copy of the whole would wait for the stores
    /// of its parts.
    pub(crate) fn new_status(&self, kind: Kind, name: Option<Rc<str>>) -> Rc<QueueStatus> {
        let mut status = self.statuses.borrow_mut().pop().unwrap_or_default();
        let new = Rc::get_mut(&mut status).expect("it has no handle yet");
        (new.kind, new.name) = (kind, name);
        status
    }

    /// Keeps the memory of the status of a queue that is gone, if no handle looks at it.
    pub(crate) fn keep_status(&self, mut status: Rc<QueueStatus>) {
        let mut kept = self.statuses.borrow_mut();
        if kept.len() < STATUSES
            && let Some(gone) = Rc::get_mut(&mut status)
        {
            gone.name = None;
            gone.len.take();
            gone.posted.take();
            gone.waiting.take();
            gone.closed.take();
            gone.holder.take();
            kept.push(status);
        }
    }

    pub(crate) fn intern(&self, name: &str) -> Rc<str> {
        let mut names = self.names.borrow_mut();
        if let Some(known) = names.iter().find(|known| ***known == *name) {
            return Rc::clone(known);
        }
        let new = Rc::from(name);
        names.truncate(NAMES - 1);
        names.insert(0, Rc::clone(&new));
        new
    }
}

/// Drops the inner values of [`TrapFrame::drop_iteratively`], even if a destructor panics.
struct PendingDrops<'a>(&'a TrapFrame);

impl PendingDrops<'_> {
    fn drop_all(&self) {
        let next = || self.0.pending_drops.borrow_mut().pop_front();
        while let Some(value) = next() {
            if std::thread::panicking() {
                contain(|| drop(value));
            } else {
                drop(value);
            }
        }
    }
}

impl Drop for PendingDrops<'_> {
    fn drop(&mut self) {
        self.drop_all();
        self.0.is_dropping.set(false);
    }
}

/// A counted reference that keeps a device open. Dropping the last one closes the device.
pub(crate) struct DeviceRef(Rc<DeviceGuard>);

struct DeviceGuard {
    id: DeviceId,
    frame: Rc<TrapFrame>,
}

impl DeviceRef {
    pub(crate) fn new(id: DeviceId, frame: &Rc<TrapFrame>) -> Self {
        let frame = Rc::clone(frame);
        Self(Rc::new(DeviceGuard { id, frame }))
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.0.id
    }

    pub(crate) fn frame(&self) -> &TrapFrame {
        &self.0.frame
    }

    /// Returns whether the device belongs to the kernel of this frame.
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
        let DeviceGuard { id, frame } = &*self.0;
        if *id == DeviceId::NONE {
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
        let DeviceGuard { id, frame } = &*self.0;
        frame.note_clone(Object::Handles(*id), Rc::strong_count(&self.0));
        Self(Rc::clone(&self.0))
    }
}

/// A suspended program: a generator that yields calls, and finds the replies in the frame. It puts
/// its exit into the frame when it completes.
pub(crate) type Program = Pin<Box<dyn Coroutine<Yield = SystemCall, Resume = (), Return = ()>>>;

/// Returns the program of a task that has ended. It takes no memory.
pub(crate) fn ended() -> Program {
    struct Ended;

    impl Coroutine for Ended {
        type Yield = SystemCall;
        type Resume = ();
        type Return = ();

        fn resume_with(self: Pin<&mut Self>, (): ()) -> GeneratorState<SystemCall, ()> {
            unreachable!("a task that has ended has no turn")
        }
    }

    Box::pin(Ended)
}

/// Continues a program with this reply, until it makes a call. A reply that was put aside is `None`.
/// Returns `None` if the program ends, with its exit in the frame.
#[inline(always)]
pub(crate) fn resume(
    frame: &TrapFrame,
    program: &mut Program,
    reply: Option<Reply>,
) -> Result<Option<SystemCall>, Panic> {
    frame.reply.set(reply);
    match catch_unwind(AssertUnwindSafe(|| program.as_mut().resume_with(()))) {
        Ok(GeneratorState::Yielded(call)) => Ok(Some(call)),
        Ok(GeneratorState::Complete(())) => Ok(None),
        Err(panic) => Err(panic),
    }
}

const NOT_A_TRAP: &str = "awaited a future that is pending and is not a trap: a task can await \
                          only the calls of its Os, and what is built on them";

/// The begin of genawaiter's panic message for two values in one resume.
const TWO_YIELDS: &str = "Multiple values were yielded";

const TWO_TRAPS: &str = "made two traps in one resume: a call that has been polled must be awaited \
                         to its end before the next call";

/// Returns the exit of a task whose resume panicked, and the place of the panic in the program. A
/// panic of the program unwinds through its
/// `Os`. A panic of the generator does not: the program was pending without a yield.
#[cold]
pub(crate) fn fault(frame: &TrapFrame, panic: Panic) -> (Exit, Option<Place>) {
    let origin = take_origin();
    // First, because `clear` may drop a program that was never spawned, with an `Os`.
    let unwound = frame.unwound.take();
    frame.clear();
    let message = panic_message(panic);
    let why = match unwound {
        true if message.starts_with(TWO_YIELDS) => TWO_TRAPS,
        true => {
            let place = origin.map(|origin| Place {
                file: origin.file.into(),
                line: origin.line,
                chain: origin.chain.into(),
            });
            return (Exit::Faulted(message), place);
        }
        false => NOT_A_TRAP,
    };
    // The panic is within the generator.
    (Exit::Faulted(why.into()), None)
}
