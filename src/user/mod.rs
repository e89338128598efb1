//! The task's side, as a libc: [`Os`](os::Os) and everything that is built on its calls.
//!
//! Uses the trap and what lies below it; never the kernel, never the world.
//!
//! | file | owns |
//! |---|---|
//! | `os.rs` | [`Os`](os::Os), the door; the crate's only yield |
//! | `program.rs` | what a program is and what it may return |
//! | `tasks.rs` | the calls about tasks: spawn, kill, wait, exit, ... |
//! | `child.rs` | tasks that return a value |
//! | `time.rs` | sleep, the clock, timeouts |
//! | `device.rs`, `net.rs` | descriptors; TCP |
//! | `queue.rs` | message queues |
//! | `promise.rs` | values that are set once |
//! | `sync.rs` | semaphore, mutex, event, barrier, condition, group |
//! | `callback.rs` | callbacks, which are tasks |
//! | `blocking.rs` | work on threads |
//! | `observe.rs` | tracers that a task attaches |

pub(crate) mod blocking;
pub(crate) mod callback;
pub(crate) mod child;
pub(crate) mod device;
pub(crate) mod net;
pub(crate) mod observe;
pub(crate) mod os;
pub(crate) mod program;
pub(crate) mod promise;
pub(crate) mod queue;
pub mod sync;
pub(crate) mod tasks;
pub(crate) mod time;
