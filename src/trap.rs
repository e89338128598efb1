//! What travels beside a call: arguments and answers too big for a word.
//!
//! A kernel has one [`TrapFrame`], shared with the [`Os`](crate::Os) of every task. Its contents are
//! valid for one trap. A stub fills it and yields; the kernel empties it before another task runs.
//! The kernel fills it and resumes; the stub empties it before the task goes on. Only deferred
//! calls outlive a trap: what a task leaves for the kernel without waiting for an answer.

use std::{
    any::Any,
    cell::{Cell, RefCell, RefMut},
    collections::VecDeque,
    fmt,
    fs::File,
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::Arc,
};

use genawaiter::{Coroutine, GeneratorState};

use crate::{
    abi::{Beside, DeviceId, End, Exit, Nanos, QueueId, Reply, SystemCall, TaskInfo, Tid},
    descriptor::Descriptor,
    interrupt::{Job, Remote},
    log::{Detail, Tracer},
    panic::{Panic, contain, panic_message},
};

/// The most bytes that one `recv` or `send` moves: what a frame's buffer grows to.
pub(crate) const MAX_IO: usize = 64 * 1024;

/// An argument or an answer that is bigger than a word.
pub(crate) enum Payload {
    Program {
        name: Rc<str>,
        program: Program,
        /// Is told of the new task besides the caller.
        keeper: Option<Rc<dyn Keeper>>,
        start: Start,
    },
    Exit(Exit),
    Tasks(Vec<TaskInfo>),
    Addr(SocketAddr),
    Source(Descriptor),
    /// A file, and where in it to begin.
    File(Arc<File>, u64),
    /// A device that was opened, and the address that came of it. Whoever drops it closes the
    /// device.
    Opened(DeviceRef, Option<SocketAddr>),
    Io(io::Error),
    Queue(Rc<dyn Store>, Rc<QueueStatus>),
    Job(Job),
    Tracer(Box<dyn Tracer>),
}

impl Payload {
    /// What the log tells of it.
    pub(crate) fn detail(&self) -> Detail<'_> {
        match self {
            Self::Program { name, .. } => Detail::Name(name),
            Self::Exit(exit) => Detail::Exit(exit),
            Self::Tasks(tasks) => Detail::Count(tasks.len()),
            Self::Addr(addr) | Self::Opened(_, Some(addr)) => Detail::Addr(*addr),
            Self::Io(error) => Detail::Io(error),
            Self::Queue(_, status) => status.name.as_deref().map_or(Detail::None, Detail::Name),
            Self::File(..) | Self::Source(_) | Self::Opened(..) | Self::Job(_) => Detail::None,
            Self::Tracer(_) => Detail::None,
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({:?})", self.detail())
    }
}

/// Where a queue's messages are kept: on the task's side, since the kernel knows no types. The
/// kernel decides on numbers alone.
pub(crate) trait Store {
    /// Drops a message that nobody will get.
    fn discard(&self, message: u64);

    /// Drops all messages, with the kernel.
    fn clear(&self);
}

/// When a new task has its first turn.
#[derive(Clone, Copy)]
pub(crate) enum Start {
    /// Before the task that makes it goes on.
    First,
    /// After the task that makes it has gone on.
    Behind,
    /// When it has slept for so long.
    After(Nanos),
}

/// Keeps the exit of a task until it is asked for: a [`Child`](crate::Child) or a
/// [`Group`](crate::sync::Group). The kernel tells it, so that no second call is needed, which might
/// be cut.
pub(crate) trait Keeper {
    /// The task is made. Its first turn is still to come.
    fn born(&self, tid: Tid);

    /// The task is gone, destructors included. Returns the message to be put into a queue for it.
    fn ended(&self, tid: Tid, exit: &Exit) -> Option<(QueueId, u64)>;
}

/// What a queue's handles can read without a trap. The kernel writes it.
#[derive(Default)]
pub(crate) struct QueueStatus {
    /// How many messages can be got at once.
    pub(crate) len: Cell<usize>,
    /// How many more are in deferred puts.
    pub(crate) posted: Cell<usize>,
    /// How many tasks wait for one.
    pub(crate) waiting: Cell<usize>,
    pub(crate) closed: Cell<bool>,
    /// Of a lock: the task that holds it, or [`Tid::KERNEL`]. Its handles write it, and the kernel
    /// reads it when a task blocks.
    pub(crate) holder: Cell<Tid>,
    /// What the queue is part of: a word of the user's.
    pub(crate) kind: &'static str,
    pub(crate) name: Option<Box<str>>,
}

impl QueueStatus {
    pub(crate) fn new(kind: &'static str, name: Option<Box<str>>) -> Self {
        Self {
            kind,
            name,
            ..Self::default()
        }
    }

    /// What a task waits for at this end, in words; `None` for a queue without a name.
    pub(crate) fn thing(&self, queue: QueueId, end: End) -> Option<String> {
        let Self { kind, name, .. } = self;
        match (name, *kind) {
            (None, "queue") => None,
            (None, kind) => Some(format!("{kind} {queue}")),
            (Some(name), "queue") => Some(format!("queue {queue} {name:?} ({end})")),
            (Some(name), kind) => Some(format!("{kind} {queue} {name:?}")),
        }
    }

    pub(crate) fn is_lock(&self) -> bool {
        self.kind == "mutex"
    }

    /// The task that holds the lock.
    pub(crate) fn holder(&self) -> Option<Tid> {
        Some(self.holder.get()).filter(|holder| *holder != Tid::KERNEL)
    }
}

/// A call that a task leaves for the kernel without a trap, mostly from a destructor. The kernel
/// handles it when the task stops, before the task's next call. Its answer is dropped.
pub(crate) struct Deferred {
    pub(crate) call: SystemCall,
    pub(crate) beside: Parcel,
}

/// What travels beside one call.
#[derive(Default)]
pub(crate) struct Parcel {
    /// A second argument word: a message's number, a number of bytes.
    pub(crate) word: Option<u64>,
    pub(crate) payload: Option<Payload>,
}

impl Parcel {
    pub(crate) fn word(word: u64) -> Self {
        Self {
            word: Some(word),
            payload: None,
        }
    }

    pub(crate) fn payload(payload: Payload) -> Self {
        Self {
            word: None,
            payload: Some(payload),
        }
    }

    /// What the log tells of it.
    pub(crate) fn detail(&self, call: SystemCall) -> Detail<'_> {
        match (call.beside(), &self.payload) {
            (Beside::Bytes | Beside::File, _) => Detail::Len(self.word.unwrap_or(0) as usize),
            (_, Some(payload)) => payload.detail(),
            (_, None) => Detail::None,
        }
    }
}

/// Why the plain lane has to look at a trap: deferred calls are due.
const DEFERRED: u8 = 1;
/// A payload travels beside the call.
const PAYLOAD: u8 = 2;
/// A tracer is attached.
const OBSERVED: u8 = 4;
/// A timeout around the call is due.
const DUE: u8 = 8;

pub(crate) struct TrapFrame {
    /// The one big argument or answer of the trap under way.
    payload: Cell<Option<Payload>>,
    /// The second argument word of the trap under way.
    word: Cell<Option<u64>>,
    /// The bytes of a `send` on their way in, or of a `recv` on their way out. It only grows.
    bytes: RefCell<Vec<u8>>,
    /// The timeout that has fired for the running task, until it has reached the task's code.
    pub(crate) elapsed: Cell<Option<u64>>,
    /// Whether a program is being dropped because its task was killed or faulted, or a body because
    /// it timed out: the locks that it holds are poisoned.
    pub(crate) killing: Cell<bool>,
    /// Whether the kernel is dropping a program. It has no turn then: no reply can be on its way.
    pub(crate) dropping_program: Cell<bool>,
    /// Whether [`TrapFrame::drop_flat`] is at work.
    dropping: Cell<bool>,
    /// What it drops next.
    rest: RefCell<VecDeque<Box<dyn Any>>>,
    /// How many tracers tasks have attached.
    pub(crate) observers: Cell<u64>,
    /// A line to the kernel for other threads.
    pub(crate) remote: Remote,
    /// Whether a panic has unwound through a program (see [`fault`]).
    pub(crate) unwound: Cell<bool>,
    /// What the plain lane has to see to. One byte, read after every resume.
    flags: Cell<u8>,
    /// Deferred: what was printed.
    console: RefCell<String>,
    /// Deferred: the calls.
    deferred: RefCell<Vec<Deferred>>,
    /// The name of the task spawned last: tasks that share a name share its memory.
    name: RefCell<Rc<str>>,
}

impl TrapFrame {
    pub(crate) fn new(remote: Remote) -> Self {
        Self {
            payload: Cell::default(),
            word: Cell::default(),
            bytes: RefCell::default(),
            elapsed: Cell::default(),
            killing: Cell::default(),
            dropping_program: Cell::default(),
            dropping: Cell::default(),
            rest: RefCell::default(),
            observers: Cell::default(),
            remote,
            unwound: Cell::default(),
            flags: Cell::default(),
            console: RefCell::default(),
            deferred: RefCell::default(),
            name: RefCell::default(),
        }
    }

    pub(crate) fn put(&self, payload: Payload) {
        self.flag(PAYLOAD, true);
        self.payload.set(Some(payload));
    }

    pub(crate) fn take(&self) -> Option<Payload> {
        self.flag(PAYLOAD, false);
        self.payload.take()
    }

    pub(crate) fn put_word(&self, word: u64) {
        self.word.set(Some(word));
    }

    pub(crate) fn take_word(&self) -> Option<u64> {
        self.word.take()
    }

    /// Takes all that travels beside the trap under way.
    pub(crate) fn take_parcel(&self) -> Parcel {
        Parcel {
            word: self.take_word(),
            payload: self.take(),
        }
    }

    pub(crate) fn put_parcel(&self, parcel: Parcel) {
        self.flag(PAYLOAD, parcel.payload.is_some());
        self.payload.set(parcel.payload);
        self.word.set(parcel.word);
    }

    /// Drops all that travels beside a trap which was given up.
    pub(crate) fn clear(&self) {
        self.take_word();
        self.drop_payload();
    }

    pub(crate) fn drop_payload(&self) {
        let payload = self.take();
        contain(|| drop(payload));
        // A panic that has unwound through an unborn program is not that of the next task.
        self.unwound.set(false);
    }

    pub(crate) fn has_payload(&self) -> bool {
        self.flags.get() & PAYLOAD != 0
    }

    /// Whether the call can be answered in the fast lane: nothing goes with it but its word, and
    /// no tracer is attached.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.flags.get() == 0
    }

    /// Has the traps of all tasks handled in the plain lane, where they are told to tracers.
    pub(crate) fn set_observed(&self, observed: bool) {
        self.flag(OBSERVED, observed);
    }

    /// Has the next trap handled in the plain lane, which cuts it.
    pub(crate) fn set_due(&self) {
        self.flag(DUE, true);
    }

    /// Whether a timeout around this trap is due.
    pub(crate) fn take_due(&self) -> bool {
        let due = self.flags.get() & DUE != 0;
        self.flag(DUE, false);
        due
    }

    fn flag(&self, flag: u8, up: bool) {
        let others = self.flags.get() & !flag;
        self.flags.set(if up { others | flag } else { others });
    }

    /// The first `len` bytes of the buffer.
    pub(crate) fn buffer(&self, len: usize) -> RefMut<'_, [u8]> {
        RefMut::map(self.bytes.borrow_mut(), |bytes| {
            if bytes.len() < len {
                bytes.resize(len, 0);
            }
            &mut bytes[..len]
        })
    }

    /// Fills the buffer with what a `send` offers, up to [`MAX_IO`] bytes.
    pub(crate) fn offer(&self, bytes: &[u8]) {
        let len = bytes.len().min(MAX_IO);
        self.buffer(len).copy_from_slice(&bytes[..len]);
        self.put_word(len as u64);
    }

    /// The bytes that the `send` under way offers.
    pub(crate) fn offered(&self) -> RefMut<'_, [u8]> {
        self.buffer(self.word.get().unwrap_or(0) as usize)
    }

    pub(crate) fn print(&self, text: fmt::Arguments<'_>) {
        // First, since a Display of the caller's may panic half way.
        self.flag(DEFERRED, true);
        // Writing to a String fails only where a Display of the caller's does.
        let _ = fmt::write(&mut *self.console.borrow_mut(), text);
    }

    /// Leaves a call for the kernel.
    pub(crate) fn defer(&self, call: SystemCall) {
        self.defer_with(call, Parcel::default());
    }

    /// The same, with what travels beside it.
    pub(crate) fn defer_with(&self, call: SystemCall, beside: Parcel) {
        self.deferred.borrow_mut().push(Deferred { call, beside });
        self.flag(DEFERRED, true);
    }

    /// Whether there is anything to be printed.
    pub(crate) fn prints(&self) -> bool {
        !self.console.borrow().is_empty()
    }

    pub(crate) fn has_deferred(&self) -> bool {
        self.flags.get() & DEFERRED != 0
    }

    /// Takes what was printed, and the deferred calls.
    pub(crate) fn take_deferred(&self) -> (String, Vec<Deferred>) {
        self.flag(DEFERRED, false);
        (self.console.take(), self.deferred.take())
    }

    /// Drops a value that may hold others like it, in a chain of any length: messages with the last
    /// handle of a queue among them. Those within wait in a list, and not on the stack.
    pub(crate) fn drop_flat<T: 'static>(&self, value: T) {
        if self.dropping.get() {
            self.rest.borrow_mut().push_back(Box::new(value));
            return;
        }
        self.dropping.set(true);
        let rest = Rest(self);
        drop(value);
        rest.drop_all();
    }

    pub(crate) fn intern(&self, name: &str) -> Rc<str> {
        let mut last = self.name.borrow_mut();
        if **last != *name {
            *last = name.into();
        }
        Rc::clone(&last)
    }
}

/// What [`TrapFrame::drop_flat`] is to drop besides, even if a destructor panics.
struct Rest<'a>(&'a TrapFrame);

impl Rest<'_> {
    fn drop_all(&self) {
        let next = || self.0.rest.borrow_mut().pop_front();
        while let Some(value) = next() {
            drop(value);
        }
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.drop_all();
        self.0.dropping.set(false);
    }
}

/// What keeps a device open: the last one to go tells the kernel.
#[derive(Clone)]
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

    /// Whether the device belongs to the kernel of this frame.
    pub(crate) fn is_of(&self, frame: &Rc<TrapFrame>) -> bool {
        Rc::ptr_eq(&self.0.frame, frame)
    }

    /// Leaves the device open, for whoever knows its number.
    pub(crate) fn let_go(mut self) {
        if let Some(guard) = Rc::get_mut(&mut self.0) {
            guard.id = DeviceId::NONE;
        }
    }
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        if self.id != DeviceId::NONE {
            self.frame.defer(SystemCall::Close(self.id));
        }
    }
}

/// A suspended program: a generator that yields calls, is resumed with replies, and leaves its
/// exit in the frame when it completes.
pub(crate) type Program = Pin<Box<dyn Coroutine<Yield = SystemCall, Resume = Reply, Return = ()>>>;

/// The program of a task that has ended. Takes no memory.
pub(crate) fn ended() -> Program {
    struct Ended;

    impl Coroutine for Ended {
        type Yield = SystemCall;
        type Resume = Reply;
        type Return = ();

        fn resume_with(self: Pin<&mut Self>, _: Reply) -> GeneratorState<SystemCall, ()> {
            unreachable!("a task that has ended has no turn")
        }
    }

    Box::pin(Ended)
}

/// Runs a program until it makes a call, or, with `None`, until it ends with its exit in the frame.
#[inline(always)]
pub(crate) fn resume(program: &mut Program, reply: Reply) -> Result<Option<SystemCall>, Panic> {
    match catch_unwind(AssertUnwindSafe(|| program.as_mut().resume_with(reply))) {
        Ok(GeneratorState::Yielded(call)) => Ok(Some(call)),
        Ok(GeneratorState::Complete(())) => Ok(None),
        Err(panic) => Err(panic),
    }
}

const NOT_A_TRAP: &str = "awaited a future that is pending and is not a trap: a task can await \
                          only the calls of its Os, and what is built on them";

/// The exit of a task whose resume panicked. A panic of the program has unwound through its `Os`;
/// one of the generator, which was left pending without having yielded, has not.
#[cold]
pub(crate) fn fault(frame: &TrapFrame, panic: Panic) -> Exit {
    // First, since what is dropped here may be a program that was not spawned, with an `Os`.
    let unwound = frame.unwound.take();
    frame.clear();
    let message = panic_message(panic);
    Exit::Faulted(if unwound { message } else { NOT_A_TRAP.into() })
}
