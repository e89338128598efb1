//! Synchronization of tasks: semaphore, mutex, flag, barrier, condition and task group. All of them
//! consist of message queues, which contain tokens or are closed as a signal.
//!
//! Each belongs to the kernel that made it. In another kernel its calls fault the caller, except
//! for calls with an error for that case. Making one also faults the caller at the limit of queues
//! ([`Builder::max_queues`](crate::Builder::max_queues)).
//!
//! | file | owns |
//! |---|---|
//! | `semaphore.rs` | a number of permits |
//! | `mutex.rs` | a lock around a value, and poison |
//! | `flag.rs` | a flag for which tasks wait |
//! | `barrier.rs` | a number of tasks that wait for each other |
//! | `condition.rs` | a wait for a change of what a mutex protects |
//! | `group.rs` | tasks that end together |

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
