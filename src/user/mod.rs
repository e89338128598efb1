//! The task's side, as a libc: [`Os`](os::Os), and the types built on its calls.
//!
//! | file | owns |
//! |---|---|
//! | `os.rs` | [`Os`](os::Os), and the crate's only yield |
//! | `program.rs` | programs, and the types that they may return |
//! | `tasks.rs` | the calls about tasks: spawn, kill, wait, exit, ... |
//! | `child.rs` | tasks that return a value |
//! | `time.rs` | sleep, the clock, timeouts |
//! | `device.rs`, `net.rs` | descriptors; TCP |
//! | `udp.rs`, `unix.rs` | UDP; Unix sockets |
//! | `disk.rs` | the disk and its files |
//! | `journal.rs`, `blocks.rs` | entries on the disk that no crash loses; the blocks of their file |
//! | `stream/` | lines and records of any device; copies between two |
//! | `input.rs` | standard input, and the time of day |
//! | `stdio.rs` | standard streams other than those of the process |
//! | `queue.rs`, `messages.rs` | message queues; the store of their messages |
//! | `mailbox.rs` | messages between kernels |
//! | `promise.rs` | values that are set once |
//! | `sync/` | semaphore, mutex, flag, barrier, condition, group |
//! | `select.rs`, `scope.rs` | the first of several things; work that others cancel, and shields |
//! | `serve.rs` | servers that stop in order |
//! | `supervisor.rs` | tasks that start their children again |
//! | `callback.rs` | callbacks, each in a task |
//! | `blocking.rs` | blocking work on threads |
//! | `recorded.rs` | the same with a value that a tape holds: feature `serde` |
//! | `scope.rs`, `select.rs` | scopes and shields; the first of several things |
//! | `signals.rs` | signals that a task catches |
//! | `guest/` | futures of other libraries |
//! | `observe.rs` | tracers that a task attaches |

pub(crate) mod blocking;
mod blocks;
pub(crate) mod callback;
pub(crate) mod child;
pub(crate) mod device;
pub(crate) mod disk;
pub(crate) mod guest;
pub(crate) mod input;
pub(crate) mod journal;
pub(crate) mod mailbox;
mod messages;
pub(crate) mod net;
pub(crate) mod observe;
pub(crate) mod os;
pub(crate) mod program;
pub(crate) mod promise;
pub(crate) mod queue;
#[cfg(feature = "serde")]
pub(crate) mod recorded;
pub(crate) mod scope;
pub(crate) mod select;
mod serve;
pub(crate) mod signals;
pub(crate) mod stdio;
pub(crate) mod stream;
pub(crate) mod supervisor;
pub mod sync;
pub(crate) mod tasks;
pub(crate) mod time;
pub(crate) mod udp;
pub(crate) mod unix;
