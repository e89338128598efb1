//! A task that is to be made, and the task's side of what the kernel keeps for it.

use std::{any::Any, panic::Location, pin::Pin, rc::Rc};

use genawaiter::{Coroutine, GeneratorState};

use crate::abi::{DeviceId, Exit, Limits, Nanos, QueueId, SystemCall, Tid};

/// The place of the call that a program makes.
pub(crate) type Caller = &'static Location<'static>;

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

/// The name of a task, and where it is spawned. Tasks with the same share its memory.
#[derive(Debug, Default)]
pub(crate) struct Birth {
    pub(crate) name: Rc<str>,
    /// `None` for a program of the command line.
    pub(crate) spawned: Option<Caller>,
}

pub(crate) struct NewTask {
    pub(crate) birth: Rc<Birth>,
    pub(crate) program: Program,
    /// Boxed: few tasks have any, and a payload is moved as a whole.
    pub(crate) options: Option<Box<Options>>,
}

#[derive(Default)]
pub(crate) struct Options {
    /// Receives the number and the exit of the task.
    pub(crate) keeper: Option<Rc<dyn Keeper>>,
    pub(crate) start: Start,
    /// The host, unless it is that of the parent.
    pub(crate) host: Option<Rc<str>>,
    /// Within those of the parent.
    pub(crate) limits: Option<Box<Limits>>,
    /// What replaces the standard streams of the parent.
    pub(crate) streams: Option<Streams>,
    /// The number of earlier tasks in its place, under a supervisor. For the trace.
    pub(crate) restart: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Its tasks end.
    Crash,
    /// Its programs start again.
    Restart,
}

/// What is to be dropped with a message: it gives back what the message has taken of a budget.
pub(crate) type Charge = Box<dyn Any>;

/// The store of a queue's messages, on the task's side: the kernel knows only their numbers.
pub(crate) trait Store {
    fn discard(&self, message: u64);

    /// The bytes of a message.
    fn size(&self) -> usize;

    /// Keeps this until the message is taken or dropped.
    fn charge(&self, message: u64, charge: Charge);

    /// Drops all messages, whose destructors may panic; the kernel is being dropped.
    fn clear(&self);
}

/// What a task has in place of the console and of standard input.
#[derive(Clone, Default)]
pub(crate) struct Streams {
    /// With what keeps it open.
    pub(crate) input: Option<(DeviceId, Rc<dyn Any>)>,
    pub(crate) output: Option<Rc<dyn TextQueue>>,
}

/// The store of a queue that gets what tasks print.
pub(crate) trait TextQueue: Store {
    fn id(&self) -> QueueId;

    /// Stores a text. Returns the number of its message.
    fn push(&self, text: String) -> u64;
}

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

/// Keeps the exit of a task for a [`Child`](crate::Child), a [`Group`](crate::sync::Group) or a
/// [`Supervisor`](crate::Supervisor). The kernel delivers the exit. A call that fetched it could be cut by a timeout.
pub(crate) trait Keeper {
    /// Called when the task is made, before its first turn.
    fn spawned(&self, tid: Tid);

    /// Called when its destructors have run. The kernel puts the returned message into the queue.
    fn ended(&self, tid: Tid, exit: &Exit) -> Option<(QueueId, u64)>;

    /// Returns whether the failures and faults of its tasks are its own to judge: no report counts them.
    fn judges(&self) -> bool {
        false
    }
}
