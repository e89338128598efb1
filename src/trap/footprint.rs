//! Footprints: what each turn touches. A search derives from them which turns commute.
//!
//! Two turns of different tasks commute if no object is in both footprints, or if both only read it.
//! A blocking put and a blocking get of one queue commute, because messages and waiters are first in,
//! first out, without barging. So do a wait and the exit for which it waits. What remains of them is
//! an order of the turns after: see [`Note`].

use std::{
    backtrace::Backtrace, cell::RefCell, collections::BTreeMap, fmt, panic::Location, rc::Rc,
};

use crate::{
    abi::{DeviceId, KernelId, QueueId, Tid},
    panic::awaiting,
};

/// Something that two turns may both touch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Object {
    /// Everything there is.
    All,
    /// Whether a task lives, and the answer that it has not received. Each of its turns reads it; a
    /// kill writes it, and so does the close of a device that it is about to read.
    Life(Tid),
    /// The end of a task, and its exit.
    Exit(Tid),
    /// The tasks that wait for a task, and its zombie.
    Waits(Tid),
    /// Whether the parent of some tasks lives: this is the parent.
    Family(Tid),
    /// Which tasks are left that keep the run alive: the daemons of a program end with the last of these. Beside
    /// daemons each end changes it, and otherwise reads it. The birth of a daemon changes it, and that of its child.
    Lasting,
    /// The numbers of tasks, and the room for another one if the host limits them.
    Tids,
    /// The sequence of random numbers.
    Random,
    /// Everything outside of the kernel: devices, jobs. A call on a connection whose packets no draw
    /// and no limit delays only reads it, and changes the [`Connection`](Self::Connection).
    World,
    /// The numbers of devices and ports, and the listeners. A close of a connection reads it.
    Devices,
    /// Both ends of a connection of the simulated network, by its number: what is under way, and the
    /// tasks that wait at one of them.
    Connection(u32),
    /// The clock and the timers, where turns take time. The clock changes it when it goes on.
    Clock,
    /// How often a call of this kind was made: an injection counts them.
    Calls(u8),
    /// The end of a queue where messages are put.
    PutEnd(QueueId),
    /// The end of a queue where messages are taken.
    GetEnd(QueueId),
    /// The state that the tasks' side keeps beside a queue.
    Beside(QueueId),
    /// The handles of a device: dropping the last one closes it.
    Handles(DeviceId),
    /// The waits for locks and for the ends of tasks. A wait may close a cycle of them, and reads this;
    /// a kill that ends another task's wait changes it.
    Cycles,
    /// Which scopes are run and which are cancelled.
    Scopes,
    /// What is left of the budgets of this task, whose limits it shares with what it spawns.
    Budget(Tid),
    /// Whether the guest of this task was woken since its last poll, and which devices are its own.
    Wakes(Tid),
    /// What is put into a mailbox and was not taken. Its maker names it, and the maker's count of them.
    Mailbox(Tid, u64),
    /// The kernel to which that mailbox belongs, if it does.
    Home(Tid, u64),
    /// The handles that put into that mailbox: dropping the last one closes it.
    Senders(Tid, u64),
    /// The handles that take from it: without one, no message is put.
    Takers(Tid, u64),
    /// That a kernel, of which this is the number with no task, takes what has come at an instant.
    Poll(Tid),
}

impl Object {
    /// Returns the object as one of several kernels. [`Note::Of`] tells those apart that have no number.
    fn beside(self, kernel: KernelId) -> Self {
        match self {
            Self::Life(tid) => Self::Life(tid.beside(kernel)),
            Self::Exit(tid) => Self::Exit(tid.beside(kernel)),
            Self::Waits(tid) => Self::Waits(tid.beside(kernel)),
            Self::Family(tid) => Self::Family(tid.beside(kernel)),
            Self::Budget(tid) => Self::Budget(tid.beside(kernel)),
            Self::Wakes(tid) => Self::Wakes(tid.beside(kernel)),
            Self::Poll(tid) => Self::Poll(tid.beside(kernel)),
            Self::PutEnd(queue) => Self::PutEnd(queue.beside(kernel)),
            Self::GetEnd(queue) => Self::GetEnd(queue.beside(kernel)),
            Self::Beside(queue) => Self::Beside(queue.beside(kernel)),
            Self::Handles(device) => Self::Handles(device.beside(kernel)),
            Self::All
            | Self::Lasting
            | Self::Tids
            | Self::Random
            | Self::World
            | Self::Devices
            | Self::Connection(_)
            | Self::Clock
            | Self::Calls(_)
            | Self::Cycles
            | Self::Scopes
            | Self::Mailbox(..)
            | Self::Home(..)
            | Self::Senders(..)
            | Self::Takers(..) => self,
        }
    }
}

/// A line of the notes that a kernel takes of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Note {
    /// The turn touches an object.
    Touched {
        /// The object.
        object: Object,
        /// Whether the turn changes it.
        writes: bool,
    },
    /// The turn makes or drops a handle of an object. The drop of the last one changes the object,
    /// and any other only reads it. Two drops commute unless none is left after both.
    Counted {
        /// The object.
        object: Object,
        /// How many handles there were.
        before: u64,
        /// How many there are now.
        left: u64,
    },
    /// The turn begins a wait. A wait of this task at this object now closes a cycle of waits, and did
    /// not before.
    Closes {
        /// The task for which all on the chain of waits wait.
        task: Tid,
        /// The end of a lock, or the tasks that wait for a task.
        object: Object,
        /// The lock at which the chain ends, if it was handed to the task, which has not run since.
        handed: Option<Object>,
    },
    /// The turn makes a queue with this capacity.
    NewQueue(QueueId, u64),
    /// The turn makes a task ready, or creates it. All turns of that task from now on come after
    /// this one.
    Woken(Tid),
    /// The turn sends a message of this number: it is in the queue, or its put waits.
    Sent(QueueId, u64),
    /// The turn receives a message of this number without a wait. The next turn of the task comes
    /// after the one that sent it.
    Taken(QueueId, u64),
    /// A message enters a queue by this turn. If there is room for n, the next turn of the task
    /// comes after the one that removed the nth message before this one.
    Stored(QueueId),
    /// A message leaves a queue, for this task.
    Removed(QueueId, Tid),
    /// The turn learns of the end of a task without a wait. The next turn of its task comes after
    /// that end.
    Joined(Tid),
    /// The turn makes a call at this place of the source. Calls that never block have none.
    Called(&'static Location<'static>),
    /// What follows is of this kernel, one of several.
    Of(KernelId),
    /// The world reports something, the clock jumps, or the host acts: it commutes with no turn. It
    /// ends the notes of a turn.
    Barrier,
}

impl Note {
    /// A handle of an object is cloned, of which there were so many.
    #[inline(always)]
    pub(super) fn cloned(object: Object, before: usize) -> Self {
        let (before, left) = (before as u64, before as u64 + 1);
        Self::Counted {
            object,
            before,
            left,
        }
    }

    /// A handle of an object is dropped, and so many are left. The order of the drops decides which is the last.
    /// All others commute.
    #[inline(always)]
    pub(super) fn dropped(object: Object, left: usize) -> [Self; 2] {
        let writes = left == 0;
        let (before, left) = (left as u64 + 1, left as u64);
        [
            Self::Touched { object, writes },
            Self::Counted {
                object,
                before,
                left,
            },
        ]
    }

    /// Returns the note with the number of its kernel before those of the tasks, queues and devices.
    pub(crate) fn beside(self, kernel: KernelId) -> Self {
        match self {
            Self::Touched { object, writes } => Self::Touched {
                object: object.beside(kernel),
                writes,
            },
            Self::Counted {
                object,
                before,
                left,
            } => Self::Counted {
                object: object.beside(kernel),
                before,
                left,
            },
            Self::Closes {
                task,
                object,
                handed,
            } => Self::Closes {
                task: task.beside(kernel),
                object: object.beside(kernel),
                handed: handed.map(|object| object.beside(kernel)),
            },
            Self::NewQueue(queue, room) => Self::NewQueue(queue.beside(kernel), room),
            Self::Woken(tid) => Self::Woken(tid.beside(kernel)),
            Self::Sent(queue, number) => Self::Sent(queue.beside(kernel), number),
            Self::Taken(queue, number) => Self::Taken(queue.beside(kernel), number),
            Self::Stored(queue) => Self::Stored(queue.beside(kernel)),
            Self::Removed(queue, tid) => Self::Removed(queue.beside(kernel), tid.beside(kernel)),
            Self::Joined(tid) => Self::Joined(tid.beside(kernel)),
            Self::Called(_) | Self::Of(_) | Self::Barrier => self,
        }
    }
}

/// The notes of a kernel: what its turns touch. Clones are handles to the same notes.
///
/// ```
/// use trapline::{Kernel, Note, Object, Os};
///
/// let mut kernel = Kernel::simulated(0);
/// let footprints = kernel.footprints();
/// kernel.spawn("dice", async |os: &mut Os| {
///     os.random().await;
/// })?;
/// let mut notes = Vec::new();
/// kernel.run()?;
/// footprints.take(&mut notes);
/// assert!(notes.contains(&Note::Touched { object: Object::Random, writes: true }));
/// # Ok::<(), trapline::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Footprints(Rc<RefCell<Notes>>);

#[derive(Default)]
struct Notes {
    notes: Vec<Note>,
    continued: Option<Continued>,
    /// The parents of tasks that may become zombies, whether the parents live or not.
    parents: BTreeMap<Tid, Tid>,
    /// By task: an object that is touched by each turn that can answer its last call.
    answers: BTreeMap<Tid, Object>,
}

impl Footprints {
    /// Moves the notes since the last call to `into`, which is cleared before.
    pub fn take(&self, into: &mut Vec<Note>) {
        into.clear();
        into.append(&mut self.0.borrow_mut().notes);
    }

    /// Returns where the turn since the last call of this method continued: the place of its task's
    /// call before. Only [`Kernel::located_footprints`](crate::Kernel::located_footprints) has it.
    pub fn take_continued(&self) -> Option<Continued> {
        self.0.borrow_mut().continued.take()
    }

    pub(crate) fn note_continued(&self) {
        let continued = Continued(Backtrace::force_capture());
        self.0.borrow_mut().continued = Some(continued);
    }

    pub(crate) fn note(&self, note: Note) {
        self.0.borrow_mut().notes.push(note);
    }

    /// Moves the notes of a kernel among several to these. Its barriers are none for the others.
    pub(crate) fn take_beside(&self, other: &Self, kernel: KernelId) {
        let (mut this, mut other) = (self.0.borrow_mut(), other.0.borrow_mut());
        if let Some(continued) = other.continued.take() {
            this.continued = Some(continued);
        }
        if !other.notes.is_empty() {
            this.notes.push(Note::Of(kernel));
            let notes = other.notes.drain(..).filter(|note| *note != Note::Barrier);
            this.notes.extend(notes.map(|note| note.beside(kernel)));
        }
    }

    pub(crate) fn reset(&self) {
        let mut this = self.0.borrow_mut();
        this.notes.clear();
        this.continued = None;
        this.parents.clear();
        this.answers.clear();
    }

    pub(crate) fn set_parent(&self, child: Tid, parent: Tid) {
        self.0.borrow_mut().parents.insert(child, parent);
    }

    /// Returns the parent of a task that may become, or has been, a zombie.
    pub(crate) fn parent(&self, child: Tid) -> Option<Tid> {
        self.0.borrow().parents.get(&child).copied()
    }

    /// Notes an object that is touched by each turn that can answer the last call of a task.
    pub(crate) fn set_answer(&self, task: Tid, object: Option<Object>) {
        let answers = &mut self.0.borrow_mut().answers;
        match object {
            Some(object) => drop(answers.insert(task, object)),
            None => drop(answers.remove(&task)),
        }
    }

    /// Returns that object.
    pub(crate) fn answer(&self, task: Tid) -> Option<Object> {
        self.0.borrow().answers.get(&task).copied()
    }
}

/// The place at which a task continued, such as `src/main.rs:7`. Its `Display` looks it up, which
/// takes a while. It is empty if the binary has no line tables.
#[derive(Debug)]
pub struct Continued(Backtrace);

impl fmt::Display for Continued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&awaiting(&self.0.to_string()).unwrap_or_default())
    }
}

impl fmt::Debug for Footprints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Footprints({} notes)", self.0.borrow().notes.len())
    }
}
