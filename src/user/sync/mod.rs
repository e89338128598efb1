//! Synchronization of tasks: semaphore, locks, flag, barrier, condition, task group, and values that are
//! watched, broadcast or made once, each in a file. They consist of message queues, which contain tokens,
//! count permits, or are closed as a signal.
//!
//! Each belongs to the kernel that made it. In another kernel its calls fault the caller, except
//! for calls with an error for that case. Making one also faults the caller at the limit of queues
//! ([`Builder::max_queues`](crate::Builder::max_queues)).

mod barrier;
mod broadcast;
mod condition;
mod flag;
mod group;
mod mutex;
mod once;
mod rwlock;
mod semaphore;
mod watch;

pub use barrier::Barrier;
pub use broadcast::{Broadcast, Missed, Receiver};
pub use condition::Condition;
pub use flag::Flag;
pub use group::{Failure, Group};
pub use mutex::{Guard, Mutex, Poisoned};
pub use once::Once;
pub use rwlock::{PoisonedBy, ReadGuard, RwLock, WriteGuard};
pub(crate) use rwlock::{READERS, Read, Write};
pub use semaphore::{Permit, Semaphore};
pub use watch::Watch;
