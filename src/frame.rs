//! What travels beside a call: arguments and answers too big for a word.
//!
//! One [`Frame`] per kernel, shared by it and by every task's [`Os`](crate::Os). Its contents are
//! valid for the length of one trap: a stub fills it just before it yields and the kernel empties
//! it before any other task runs; the kernel fills it just before it resumes and the stub empties
//! it before the task goes on. Only the mail outlives a trap: what a task leaves for the kernel
//! without asking for anything.

use std::{
    any::Any,
    cell::{Cell, RefCell, RefMut},
    collections::VecDeque,
    fmt,
    fs::File,
    io,
    net::SocketAddr,
    os::fd::AsFd,
    rc::Rc,
    sync::Arc,
};

use crate::{
    abi::{DeviceId, Exit, Nanos, QueueId, TaskInfo, Tid},
    device::Handle,
    event::Tracer,
    interrupt::Remote,
    task::Program,
};

/// The most bytes that one `recv` or `send` moves: what a frame's buffer grows to.
pub(crate) const MAX_IO: usize = 64 * 1024;

/// An argument or an answer that is bigger than a word.
pub(crate) enum Payload {
    Program {
        name: Rc<str>,
        program: Program,
        /// Where the new task's number is wanted besides in the reply.
        newborn: Option<Rc<Cell<Tid>>>,
        /// How long the new task sleeps before its first turn.
        delay: Nanos,
    },
    Exit(Exit),
    Tasks(Vec<TaskInfo>),
    Addr(SocketAddr),
    Source(Rc<dyn AsFd>),
    /// A file, and where in it to begin.
    File(Arc<File>, u64),
    /// A device that was opened, and the address that came of it. Whoever drops it closes the
    /// device.
    Opened(Handle, Option<SocketAddr>),
    Io(io::Error),
    Queue(Rc<dyn Store>, Rc<Gauge>),
    Job(Job),
}

/// Work for a thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Where a queue's messages are kept: on the task's side, since the kernel knows no types. The
/// kernel decides on numbers alone.
pub(crate) trait Store {
    /// Drops a message that nobody will get.
    fn discard(&self, message: u64);
}

/// What a queue's handles can read off without asking the kernel, which writes it.
#[derive(Default)]
pub(crate) struct Gauge {
    /// How many messages are to be had.
    pub(crate) len: Cell<usize>,
    /// How many are on their way to the kernel.
    pub(crate) posted: Cell<usize>,
    pub(crate) closed: Cell<bool>,
}

/// What a task leaves for the kernel without a trap, mostly from destructors. The kernel sees to
/// it as soon as the task stops, before it handles its call.
pub(crate) enum Mail {
    CloseDevice(DeviceId),
    FreeQueue(QueueId),
    Put(QueueId, u64),
    Disarm(u64),
    /// The task ends, and leaves no zombie: nobody will wait for it.
    Kill(Tid),
    Observe(u64, Box<dyn Tracer>),
    Unobserve(u64),
}

const MAIL: u8 = 1;
const PAYLOAD: u8 = 2;

pub(crate) struct Frame {
    /// The one big argument or answer of the trap under way.
    payload: Cell<Option<Payload>>,
    /// The bytes of a `send` on their way in, or of a `recv` on their way out. It only grows.
    bytes: RefCell<Vec<u8>>,
    /// How many bytes a `send` or a `send_file` offers, or a `recv` has room for.
    pub(crate) len: Cell<usize>,
    /// The number of the message that is put.
    pub(crate) message: Cell<Option<u64>>,
    /// Whether there is a body that a timeout can cut short.
    pub(crate) body: Cell<bool>,
    /// The timeout that has come for the task that runs, until it has found its way there.
    pub(crate) elapsed: Cell<Option<u64>>,
    /// Whether a program is being dropped because its task was killed, or faulted.
    pub(crate) killing: Cell<bool>,
    /// Whether [`Frame::drop_flat`] is at work.
    dropping: Cell<bool>,
    /// What it is to drop besides.
    rest: RefCell<VecDeque<Box<dyn Any>>>,
    /// How many tracers tasks have attached.
    pub(crate) observers: Cell<u64>,
    /// A line to the kernel for other threads.
    pub(crate) remote: Remote,
    /// Whether a panic has unwound through a program (see [`crate::task::fault`]).
    pub(crate) unwound: Cell<bool>,
    /// What there is besides the call: [`MAIL`], [`PAYLOAD`]. Looked at after every resume, so it
    /// stands apart from both.
    flags: Cell<u8>,
    /// Mail: what was printed.
    console: RefCell<String>,
    /// Mail: the rest of it.
    post: RefCell<Vec<Mail>>,
    /// The name of the task spawned last: tasks that share a name share its memory.
    name: RefCell<Rc<str>>,
}

impl Frame {
    pub(crate) fn new(remote: Remote) -> Self {
        Self {
            payload: Cell::default(),
            bytes: RefCell::default(),
            len: Cell::default(),
            message: Cell::default(),
            body: Cell::default(),
            elapsed: Cell::default(),
            killing: Cell::default(),
            dropping: Cell::default(),
            rest: RefCell::default(),
            observers: Cell::default(),
            remote,
            unwound: Cell::default(),
            flags: Cell::default(),
            console: RefCell::default(),
            post: RefCell::default(),
            name: RefCell::default(),
        }
    }

    pub(crate) fn put(&self, payload: Payload) {
        self.put_back(Some(payload));
    }

    pub(crate) fn put_back(&self, payload: Option<Payload>) {
        self.flag(PAYLOAD, payload.is_some());
        self.payload.set(payload);
    }

    pub(crate) fn take(&self) -> Option<Payload> {
        self.flag(PAYLOAD, false);
        self.payload.take()
    }

    pub(crate) fn has_payload(&self) -> bool {
        self.flags.get() & PAYLOAD != 0
    }

    /// Whether there is nothing besides the call.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.flags.get() == 0
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
        self.len.set(len);
    }

    pub(crate) fn print(&self, text: fmt::Arguments<'_>) {
        // First of all: a Display of the caller's may panic half way.
        self.flag(MAIL, true);
        // Writing to a String fails only where a Display of the caller's does.
        let _ = fmt::write(&mut *self.console.borrow_mut(), text);
    }

    pub(crate) fn post(&self, mail: Mail) {
        self.post.borrow_mut().push(mail);
        self.flag(MAIL, true);
    }

    pub(crate) fn has_mail(&self) -> bool {
        self.flags.get() & MAIL != 0
    }

    /// Empties the mail box.
    pub(crate) fn take_mail(&self) -> (String, Vec<Mail>) {
        self.flag(MAIL, false);
        (self.console.take(), self.post.take())
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

/// What [`Frame::drop_flat`] is to drop besides, even if a destructor panics.
struct Rest<'a>(&'a Frame);

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
