//! The waker of a guest.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Wake,
};

use crate::{
    abi::{QueueId, SystemCall, Tid},
    interrupt::Remote,
    panic::lock,
    trap::{Kind, Object, TrapFrame},
    user::{os::Os, queue::Queue, select::Source},
};

/// The waker of a guest: a mark, and a message if its task waits.
pub(super) struct Wakes {
    number: u64,
    /// Whether it was woken since its last poll began.
    is_woken: AtomicBool,
    /// Whether its task waits, and no message was sent.
    is_parked: AtomicBool,
    /// Whether a thread has woken it.
    by_thread: AtomicBool,
    /// The task that woke it last, if that is another one; 0 if there is none.
    by_task: AtomicU64,
    /// The thread of its kernel, by [`here`].
    home: usize,
    /// Its task.
    tid: Tid,
    /// Whether a search takes notes.
    is_noted: bool,
    remote: Remote,
    /// The one that its task waits at.
    queue: Mutex<QueueId>,
}

/// What a handle that may be sent to other threads has on the thread of its kernel.
enum Line {
    Guest(Queue<()>),
    /// A guest that has not waited yet, while a search takes notes.
    Noted(Rc<TrapFrame>),
    Call(Rc<TrapFrame>, Tid),
}

thread_local! {
    static LINES: RefCell<BTreeMap<u64, Line>> = const { RefCell::new(BTreeMap::new()) };
    /// Without a value to drop: its address costs an instruction, also at the end of the thread.
    static HERE: u8 = const { 0 };
}

/// Tells this thread from the others.
fn here() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

static LAST: AtomicU64 = AtomicU64::new(0);

pub(super) fn next_number() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// A line of this thread, until this is dropped.
pub(super) struct Listed(u64);

impl Listed {
    pub(super) fn call(number: u64, frame: &Rc<TrapFrame>, tid: Tid) -> Self {
        Self::new(number, Line::Call(Rc::clone(frame), tid))
    }

    fn new(number: u64, line: Line) -> Self {
        LINES.with_borrow_mut(|lines| lines.insert(number, line));
        Self(number)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // What it drops may wake another guest.
        let line = LINES.try_with(|lines| lines.borrow_mut().remove(&self.0));
        drop(line);
    }
}

/// Kills the task of a call whose answer is no longer awaited.
pub(super) fn kill(number: u64) {
    let call = LINES.try_with(|lines| match lines.borrow().get(&number) {
        Some(Line::Call(frame, tid)) => Some((Rc::clone(frame), *tid)),
        _ => None,
    });
    if let Ok(Some((frame, tid))) = call {
        frame.defer(SystemCall::KillTask(tid));
    }
}

/// Where the task of a guest waits for a wake: a queue of its own.
pub(super) struct Bell {
    queue: Queue<()>,
    listed: Option<Listed>,
}

impl Bell {
    pub(super) async fn new(os: &mut Os, wakes: &Wakes) -> Self {
        let mut bell = Self {
            queue: Queue::required(os, Kind::Wake, None).await,
            listed: None,
        };
        bell.list(wakes);
        bell
    }

    /// Has the next wake find the queue.
    fn list(&mut self, wakes: &Wakes) {
        *lock(&wakes.queue) = self.queue.id();
        // Its end takes the number off the list.
        drop(self.listed.take());
        let line = Line::Guest(self.queue.clone());
        self.listed = Some(Listed::new(wakes.number, line));
    }

    pub(super) fn source(&self) -> Source {
        Source::message(&self.queue)
    }

    /// Takes the message of a wake.
    pub(super) async fn hear(&mut self, os: &mut Os, wakes: &Wakes) {
        if self.queue.take(os).await.is_err() {
            // A thread has rung it.
            self.queue = self.queue.successor(os).await;
            self.list(wakes);
        }
    }
}

impl Wakes {
    pub(super) fn new(frame: &TrapFrame) -> Arc<Self> {
        let remote = &frame.remote;
        // A thread may keep the waker for longer than the run.
        remote.lend();
        Arc::new(Self {
            number: next_number(),
            is_woken: AtomicBool::new(false),
            is_parked: AtomicBool::new(false),
            by_thread: AtomicBool::new(false),
            by_task: AtomicU64::new(0),
            home: here(),
            tid: remote.running(),
            is_noted: frame.is_noted(),
            remote: remote.clone(),
            queue: Mutex::new(QueueId::NONE),
        })
    }

    /// Has the notes of a search reach the frame, until this is dropped.
    pub(super) fn list(&self, frame: &Rc<TrapFrame>) -> Option<Listed> {
        let line = || Line::Noted(Rc::clone(frame));
        self.is_noted.then(|| Listed::new(self.number, line()))
    }

    /// Notes that the task looks for wakes.
    pub(super) fn note_look(&self, frame: &TrapFrame) {
        frame.touch(Object::Wakes(self.tid), false);
    }

    /// Notes that another task wakes the guest, or takes a device over.
    fn note_wake(&self) {
        let note = |frame: &TrapFrame| frame.touch(Object::Wakes(self.tid), true);
        let _ = LINES.try_with(|lines| match lines.borrow().get(&self.number) {
            Some(Line::Guest(bell)) => note(bell.frame()),
            Some(Line::Noted(frame)) => note(frame),
            _ => {}
        });
    }

    /// Forgets the wakes so far. Returns whether there was one.
    pub(super) fn take(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst) && self.is_woken.swap(false, Ordering::SeqCst)
    }

    /// Has the next wake send a message. Returns `false` if one has come meanwhile.
    pub(super) fn park(&self) -> bool {
        self.is_parked.store(true, Ordering::SeqCst);
        // A thread may have come between the last look and the mark.
        !self.is_woken.load(Ordering::SeqCst) || !self.is_parked.swap(false, Ordering::SeqCst)
    }

    /// Ends the wait of the task. Returns whether a wake has sent a message.
    pub(super) fn unpark(&self) -> bool {
        !self.is_parked.swap(false, Ordering::SeqCst)
    }

    /// Returns whether there was a wake since [`Wakes::take`].
    pub(super) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
    }

    /// Returns whether a thread has woken it.
    pub(super) fn by_thread(&self) -> bool {
        self.by_thread.load(Ordering::Relaxed)
    }

    /// Returns which other task has woken it since the last call of this.
    pub(super) fn take_waker(&self) -> Option<Tid> {
        let by = match self.by_task.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.by_task.swap(0, Ordering::Relaxed),
        };
        (by > 0).then(|| by.into())
    }

    /// Sends a message if its task waits.
    pub(super) fn ring(&self) {
        if self.is_noted && here() == self.home && self.remote.running() != self.tid {
            self.note_wake();
        }
        if !self.is_parked.load(Ordering::SeqCst) || !self.is_parked.swap(false, Ordering::SeqCst) {
            return;
        }
        if here() != self.home {
            // An interrupt closes the queue, and the task makes another one.
            self.by_thread.store(true, Ordering::Relaxed);
            self.remote.ring(*lock(&self.queue));
            return;
        }
        let bell = LINES.try_with(|lines| match lines.borrow().get(&self.number) {
            Some(Line::Guest(bell)) => Some(bell.clone()),
            _ => None,
        });
        if let Ok(Some(bell)) = bell {
            bell.set_held();
            bell.defer_put(());
        }
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        let by = self.remote.running();
        let is_here = || here() == self.home;
        if by != self.tid && is_here() {
            self.by_task.store(by.into(), Ordering::Relaxed);
        }
        self.ring();
    }
}
