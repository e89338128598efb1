//! The kinds of queues, and their words for calls.

use super::{End, QueueId, SystemCall};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Kind {
    #[default]
    Queue,
    Semaphore,
    Mutex,
    Flag,
    Barrier,
    Condition,
    Promise,
    Callback,
    Group,
    Supervisor,
    Job,
    Signals,
    Watch,
    Broadcast,
    RwLock,
    Once,
    Wake,
    Mailbox,
    Room,
}

impl Kind {
    const ALL: [Self; 19] = [
        Self::Queue,
        Self::Semaphore,
        Self::Mutex,
        Self::Flag,
        Self::Barrier,
        Self::Condition,
        Self::Promise,
        Self::Callback,
        Self::Group,
        Self::Supervisor,
        Self::Job,
        Self::Signals,
        Self::Watch,
        Self::Broadcast,
        Self::RwLock,
        Self::Once,
        Self::Wake,
        Self::Mailbox,
        Self::Room,
    ];

    /// The name of the kind, and the words for the calls `get`, `try_get`, `put`, `try_put` and
    /// `close_queue`. A word is the method that makes the call, where there is one.
    fn words(self) -> &'static str {
        match self {
            Self::Queue => "queue get try_get put try_put close",
            Self::Semaphore => "semaphore acquire try_acquire put release close",
            Self::Mutex => "mutex lock try_lock put unlock close",
            Self::Flag => "flag wait try_get put try_put set",
            Self::Barrier => "barrier wait try_get put try_put open",
            Self::Condition => "condition wait try_get put notify_one notify_all",
            Self::Promise => "promise wait try_get put try_put set",
            Self::Callback => "callback on_done try_get put call close",
            Self::Group => "group next try_get put try_put close",
            Self::Supervisor => "supervisor next try_get put try_put close",
            Self::Job => "job run_blocking try_get put try_put close",
            Self::Signals => "signals next try_get put try_put close",
            Self::Watch => "watch changed try_get put try_put set",
            Self::Broadcast => "broadcast get try_get put try_put put",
            // With the word of those that take all.
            Self::RwLock => "rwlock read try_read put unlock close write",
            Self::Once => "once get_or_init try_get put try_put set",
            Self::Wake => "wake hear try_get put wake close",
            Self::Mailbox => "mailbox get try_get put try_put close",
            // Where a task waits to put a message into the mailbox of another kernel.
            Self::Room => "room put try_get put try_put close",
        }
    }

    fn word(self, place: usize) -> &'static str {
        self.words()
            .split(' ')
            .nth(place)
            .expect("each kind has them")
    }

    /// Returns the kind of that name; a queue if there is none.
    pub(crate) fn of(name: &str) -> Self {
        let named = Self::ALL.into_iter().find(|kind| kind.name() == name);
        named.unwrap_or_default()
    }

    pub(crate) fn name(self) -> &'static str {
        self.word(0)
    }

    /// Returns the word for a call on a queue of this kind, such as `lock` for the `get` of a mutex.
    pub(crate) fn verb(self, call: SystemCall) -> &'static str {
        match call {
            SystemCall::Get(_) | SystemCall::Take(_) => self.word(1),
            SystemCall::TryGet(_) | SystemCall::TryTake(_) => self.word(2),
            SystemCall::Put(_) => self.word(3),
            SystemCall::TryPut(_) | SystemCall::Give(_) => self.word(4),
            SystemCall::CloseQueue(_) => self.word(5),
            SystemCall::FreeQueue(_) => "free",
            SystemCall::OpenQueue(_) => "clear",
            other => other.name(),
        }
    }

    /// The same, for a call that takes so many permits.
    pub(crate) fn verb_of(self, call: SystemCall, count: u64) -> &'static str {
        match (self, call) {
            (Self::RwLock, SystemCall::Take(_)) if count > 1 => self.word(6),
            _ => self.verb(call),
        }
    }

    /// Returns whether its queue contains no messages, and counts permits.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Self::Semaphore | Self::RwLock)
    }

    /// Returns whether its queue contains a message from the begin, the token of a lock.
    pub(crate) fn has_token(self) -> bool {
        matches!(self, Self::Mutex | Self::Once)
    }

    /// Returns what a wait has found that ends well with the close of its queue; `None` where that is an error.
    pub(crate) fn found_closed(self) -> Option<&'static str> {
        match self {
            Self::Flag => Some("set"),
            Self::Promise => Some("decided"),
            Self::Barrier => Some("passed"),
            Self::Watch => Some("changed"),
            Self::Once => Some("made"),
            _ => None,
        }
    }

    /// Returns whether only the task that holds it can end a wait for it.
    pub(crate) fn is_lock(self) -> bool {
        matches!(self, Self::Mutex | Self::RwLock | Self::Once)
    }

    /// Returns the word for what a task gets from a queue of this kind, as the source of a select.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Queue | Self::Condition | Self::Callback | Self::Mailbox => "message",
            Self::Semaphore => "permit",
            Self::Mutex => "lock",
            Self::Group => "a member of group",
            Self::Watch => "changed",
            Self::RwLock => "read",
            Self::Flag
            | Self::Barrier
            | Self::Promise
            | Self::Job
            | Self::Signals
            | Self::Broadcast
            | Self::Once
            | Self::Room => self.name(),
            Self::Supervisor => "a child of supervisor",
            Self::Wake => "a wake",
        }
    }

    /// Returns the kind, number and name of a queue, such as `mutex 2 "savings"`.
    pub(crate) fn title(self, queue: QueueId, name: &str) -> String {
        match (self.name(), name) {
            (kind, "") => format!("{kind} {queue}"),
            (kind, name) => format!("{kind} {queue} {name:?}"),
        }
    }

    /// Returns in words what a task waits for at this end of a queue; `None` for a queue without a
    /// name.
    pub(crate) fn thing(self, queue: QueueId, end: End, name: &str) -> Option<String> {
        match (self, name) {
            (Self::Queue, "") => None,
            (Self::Queue, name) => Some(format!("{} ({end})", self.title(queue, name))),
            (_, name) => Some(self.title(queue, name)),
        }
    }
}
