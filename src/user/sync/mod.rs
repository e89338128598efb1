//! Synchronization of tasks: semaphore, mutex, flag, barrier, condition and task group, each in a
//! file. They consist of message queues, which contain tokens or are closed as a signal.
//!
//! Each belongs to the kernel that made it. In another kernel its calls fault the caller, except
//! for calls with an error for that case. Making one also faults the caller at the limit of queues
//! ([`Builder::max_queues`](crate::Builder::max_queues)).

mod barrier;
mod condition;
mod flag;
mod group;
mod mutex;
mod semaphore;

pub use barrier::Barrier;
pub use condition::Condition;
pub use flag::Flag;
pub use group::{Failure, Group};
pub use mutex::{Guard, Mutex, Poisoned};
pub use semaphore::{Permit, Semaphore};
