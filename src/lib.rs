//! A tiny operating system inside one process.
//!
//! Programs are generators; every yield is a trap. A task reaches the world only by yielding a
//! [`SystemCall`]; one kernel loop handles it before it picks the next task, and everything that a
//! call can touch belongs to that kernel.
//!
//! ```
//! use std::time::Duration;
//! use trapline::{Errno, Kernel, Os};
//!
//! let mut kernel = Kernel::simulated(1); // a virtual clock: the sleep takes no time
//! kernel.spawn("main", async |os: &mut Os| {
//!     let child = os.spawn("child", async |os| {
//!         os.sleep(Duration::from_secs(4)).await;
//!         let now = os.now().await;
//!         writeln!(os, "done at {now:?}");
//!     }).await?;
//!     let exit = os.wait(child).await?;
//!     writeln!(os, "task {child} is {exit}");
//!     Ok::<(), Errno>(())
//! })?;
//! kernel.run()?;
//! assert_eq!(kernel.take_console(), "done at 4s\ntask 2 is done\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Three rules
//!
//! 1. **One door.** A task reaches the world only by yielding a call; the kernel answers with a
//!    [`Reply`]. A task holds nothing but its [`Os`], lent to it as `&mut Os`.
//! 2. **One owner.** The [`Kernel`] owns tasks, queues, timers and devices as plain fields.
//! 3. **One source of surprise.** Whatever the programs do not determine themselves comes from the
//!    [`World`], and neither the kernel nor a program can tell which world that is.
//!
//! # Where to read
//!
//! | file | owns |
//! |---|---|
//! | `abi.rs` | what crosses at a trap: [`SystemCall`], [`Reply`], [`Exit`], [`Errno`] |
//! | `frame.rs` | what travels beside it |
//! | `os.rs` | [`Os`], the task's side; the crate's only yield |
//! | `device.rs`, `net.rs` | [`Device`], [`TcpListener`], [`TcpStream`] |
//! | `queue.rs`, `promise.rs`, `sync.rs` | [`Queue`], and what stands on it: [`Promise`], [`sync`] |
//! | `timeout.rs`, `callback.rs`, `blocking.rs` | [`Os::timeout`], [`Os::call_later`], [`Os::run_blocking`] |
//! | `observe.rs` | how a task attaches a tracer: [`Os::observe`] |
//! | `interrupt.rs` | how other threads reach a kernel: [`Remote`] |
//! | `task.rs`, `task/table.rs` | a task and its states; the task map |
//! | `time.rs` | the timers |
//! | `sched/` | who runs next: [`Policy`], [`Fifo`] |
//! | `event.rs`, `trace.rs` | the event log, [`Tracer`], the bridge to `tracing` |
//! | `follow.rs` | which call each task is at: [`Follower`] |
//! | `record.rs`, `record/` | the event log in a file: [`record`] |
//! | `world/` | [`World`], [`RealWorld`], [`SimWorld`] |
//! | `kernel.rs`, `kernel/` | [`Kernel`]: the loop; the life of tasks, and the handlers of the calls |
//! | `cli/` (feature `cli`) | the command line, for any set of programs |
//!
//! # What panics do
//!
//! A panic ends its own task, as [`Exit::Faulted`]; so the crate must be built with
//! `panic = "unwind"`, the default. Nobody can contain a destructor that panics while its task is
//! already unwinding from another panic: Rust ends the process then.
//!
//! Nor can a task await a future that is pending and is no trap, such as one of another runtime: it
//! ends as `Faulted`, with a message that says so. The panic hook hears of that as a panic inside
//! the generator crate; the command line keeps it from showing.

#[cfg(not(unix))]
compile_error!("trapline's devices are Unix descriptors: it builds on Unix systems only");

/// The README's programs, compiled and run as tests.
#[cfg(all(doctest, feature = "cli"))]
#[doc = include_str!("../README.md")]
mod readme {}

mod abi;
mod blocking;
mod callback;
#[cfg(feature = "cli")]
pub mod cli;
mod device;
mod event;
mod follow;
mod frame;
mod interrupt;
mod kernel;
mod net;
mod observe;
mod os;
mod promise;
mod queue;
pub mod record;
mod sched;
pub mod sync;
mod task;
mod time;
mod timeout;
mod trace;
mod world;

pub use abi::{
    DeviceId, Direction, End, Errno, Exit, Nanos, On, QueueId, Reply, SystemCall, TaskInfo,
    TaskState, Tid,
};
pub use blocking::Panicked;
#[cfg(feature = "cli")]
pub use cli::Program;
pub use device::{AsDevice, Device};
pub use event::{Answered, Call, Detail, Event, Fact, Tracer, Wake};
pub use follow::{CallInfo, Follower, Told};
pub use interrupt::Remote;
pub use kernel::{Builder, Deadlock, Error, Kernel, Limit, Report, Step};
pub use net::{Listener, Stream, TcpListener, TcpStream};
pub use observe::Observer;
pub use os::Os;
pub use promise::{Abandoned, AlreadySet, Promise, RemoteSetter, Setter};
pub use queue::{Closed, Queue, TryGetError, TryPutError};
pub use sched::{Cause, Fifo, Policy, Runnable};
pub use task::IntoExit;
pub use timeout::Elapsed;
pub use world::{RealWorld, SimWorld, World};
