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
//!    [`Reply`]. A program holds no kernel and no other task: it is lent its [`Os`] as `&mut Os`.
//! 2. **One owner.** The [`Kernel`] owns tasks, queues, timers and devices as plain fields.
//! 3. **One source of surprise.** Whatever the programs do not determine themselves comes from the
//!    [`World`], and neither the kernel nor a program can tell which world that is.
//!
//! # Where to read
//!
//! | room | owns | may use |
//! |---|---|---|
//! | `abi.rs` | what crosses at a trap: [`SystemCall`], [`Reply`], [`Exit`], [`Errno`] | nothing |
//! | `panic.rs` | containment of panics | nothing |
//! | `descriptor.rs` | [`Descriptor`]: an open descriptor and what keeps it open | nothing |
//! | `pause.rs` | how blocking work pauses: [`pause()`] | nothing |
//! | `sched/` | the order of turns: [`Policy`], [`Fifo`] | `abi` |
//! | `interrupt.rs` | lines into a kernel for other threads: [`Remote`] | `abi` |
//! | `log/` | the event log: [`Event`], [`Tracer`], [`mod@record`], the bridge to `tracing` | `abi`, `panic` |
//! | `trap.rs` | what travels beside a call | all above |
//! | `user/` | the task's side: [`Os`], [`Queue`], [`Device`], [`Promise`], [`sync`] | `trap.rs` and above |
//! | `world/` | everything outside: [`World`], [`RealWorld`], [`SimWorld`] | `trap.rs` and above |
//! | `kernel/` | [`Kernel`]: the loop, the handlers of the calls, the life of tasks | all above |
//! | `cli/` (feature `cli`) | the command line, for any set of programs | the public API |
//!
//! The `mod.rs` of each folder opens with a table of its files. A test holds the imports against
//! this table.
//!
//! # What is isolated, and what is not
//!
//! The tasks of a kernel share one protection domain, as the threads of a process do. What is
//! contained are failures: a panic, a kill or a fault ends one task, runs its destructors and frees
//! what it held. Nothing guards a task against the intentions of another:
//!
//! - A call names tasks, devices and queues by their numbers, and the kernel cannot know which task
//!   holds which handle. [`Os::kill`] takes any [`Tid`]. A raw [`Os::trap`] can close or use every
//!   device and queue of its kernel.
//! - [`Os::shutdown`] and [`Os::observe`] are for every task.
//! - Tasks run on one thread and share its memory. A task that makes no trap stops all of them.
//!
//! Code that is not trusted needs a process of its own. Two kernels share no task, device or
//! queue.
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
#[cfg(feature = "cli")]
pub mod cli;
mod descriptor;
mod interrupt;
mod kernel;
mod log;
mod panic;
mod pause;
mod sched;
mod trap;
mod user;
mod world;

pub use abi::{
    Argument, DeviceId, Direction, End, Errno, Exit, Nanos, On, QueueId, Reply, SystemCall,
    TaskInfo, TaskState, Tid, Wait,
};
#[cfg(feature = "cli")]
pub use cli::Program;
pub use descriptor::Descriptor;
pub use interrupt::Remote;
pub use kernel::{
    Builder, Deadlock, Error, Failures, Kernel, Limit, OnDeadlock, Report, Stalled, Step,
};
pub use log::{
    Answered, Call, CallInfo, Cycle, Detail, Event, Fact, Follower, Told, Tracer, Wake,
    recording as record,
};
pub use pause::pause;
pub use sched::{Cause, Fifo, Policy, Runnable};
pub use user::{
    blocking::Panicked,
    child::Child,
    device::{AsDevice, Device},
    net::{Listener, Stream, TcpListener, TcpStream},
    observe::Observer,
    os::Os,
    program::IntoExit,
    promise::{Abandoned, AlreadySet, Promise, RemoteSetter, Setter},
    queue::{Closed, Queue, TryGetError, TryPutError},
    sync,
    time::Elapsed,
};
pub use world::{RealWorld, SimWorld, World};
