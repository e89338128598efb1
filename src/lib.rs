//! A tiny operating system inside one process.
//!
//! Programs are generators; every yield is a trap. A task reaches the world only by yielding a
//! [`SystemCall`]. One kernel loop handles the call before it picks the next task. Everything that
//! a call can touch belongs to that kernel.
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
//! 1. **One entry point.** A task reaches the world only by yielding a call. The kernel answers with a
//!    [`Reply`]. A program holds no kernel and no other task; it borrows its [`Os`] as `&mut Os`.
//! 2. **One owner.** The [`Kernel`] owns tasks, queues, timers and devices as plain fields.
//! 3. **One source of nondeterminism.** Everything that programs do not determine comes from the
//!    [`World`]. Neither the kernel nor a program can tell which world it is.
//!
//! # Where to read
//!
//! | module | owns | may use |
//! |---|---|---|
//! | `abi.rs`, `abi/` | what crosses at a trap: [`SystemCall`], [`Reply`], [`Exit`], [`Errno`] | nothing |
//! | `panic.rs` | containment of panics | nothing |
//! | `sched/` | the order of turns, and slices of computations: [`Policy`], [`Fifo`], [`sched::Mlfq`] | `abi` |
//! | `interrupt.rs` | interrupts from other threads: [`Remote`], [`Interrupts`] | `abi` |
//! | `log/` | the event log: [`Event`], [`Tracer`], [`mod@record`], the bridge to `tracing` | `abi`, `panic` |
//! | `trap.rs`, `trap/` | what travels beside a call: [`Descriptor`], [`Footprints`], [`pause()`] | all above |
//! | `user/` | the task's side: [`Os`], [`Queue`], [`Device`], [`Promise`], [`sync`] | `trap.rs` and above |
//! | `world/` | everything outside: [`World`], [`RealWorld`], [`SimWorld`], [`mod@tape`] | `trap.rs` and above |
//! | `kernel/` | [`Kernel`]: the loop, the handlers of the calls, the life of tasks | all above |
//! | `cores/` | [`Kernels`]: several kernels, each on a thread | `kernel/` and above |
//! | `explore/` | [`check()`]: the search for a schedule that breaks a program | the public API, `panic` |
//!
//! The `mod.rs` of each folder opens with a table of its files. A test holds the imports against
//! this table. The command line is a crate of its own above this one: `trapline-cli`.
//!
//! # Features
//!
//! There are no default features, so `default-features = false` changes nothing. The feature `serde`
//! adds `Os::run_recorded`; `trapline-cli` needs it. The features `hyper`, `futures-io` and `tokio-io` add the
//! traits of these for guests ([`Os::run_future`]).
//!
//! # What is isolated, and what is not
//!
//! The tasks of a kernel share one protection domain, as the threads of a process do. Failures are
//! contained: a panic, a kill or a fault ends one task, runs its destructors and frees its
//! resources. A task is not protected against malicious tasks:
//!
//! - A call names tasks, devices and queues by their numbers, and the kernel does not know which
//!   task holds which handle. [`Os::kill`] takes any [`Tid`]. A raw [`Os::trap`] can close or use
//!   every device and queue of its kernel.
//! - Every task can call [`Os::shutdown`] and [`Os::observe`].
//! - A task that makes no trap stops all others: they run on one thread, and share its memory.
//! - A task can end the process, from safe code: by [`std::process::exit`], by a panic in a destructor
//!   during another panic (Rust aborts), or by the exchange of its [`Os`] for that of another task,
//!   through a scoped thread-local variable (the kernel aborts).
//!
//! Untrusted code needs a separate process. Two kernels share no task, device or queue.
//!
//! # What panics do
//!
//! A panic ends its own task, as [`Exit::Faulted`]. The crate must therefore be built with
//! `panic = "unwind"`, the default. A task that awaits a pending future of another runtime ends as
//! `Faulted`, too. The panic hook then receives a panic inside the generator crate; the command line
//! hides it.

#[cfg(not(unix))]
compile_error!("trapline's devices are Unix descriptors: it builds on Unix systems only");

mod abi;
mod cores;
#[doc(hidden)]
pub mod explore;
mod interrupt;
mod kernel;
mod log;
mod panic;
pub mod sched;
mod trap;
mod user;
mod world;

// For the macro `sometimes`.
#[doc(hidden)]
pub use linkme;

pub use abi::{
    Argument, Calls, DeviceId, Direction, End, Errno, Exit, HostId, Inject, Interest, KernelId,
    Limits, ListenOptions, Mode, Nanos, On, Place, QueueId, QueueInfo, Reply, Share, Signal,
    StreamOptions, SystemCall, TaskInfo, TaskState, Tid, UnknownSignal, Wait,
};
pub use cores::Kernels;
pub use explore::linear;
pub use explore::{
    Check, CutPlace, Cuts, Difference, Explored, Failure, FaultCounts, Grade, Graded, MayFault,
    Mutants, Outcome, Progress, RunEnd, SearchStrategy, Searched, Shared, Survivor, Verdict, check,
    check_kernels, grade,
};
pub use interrupt::{External, Interrupt, Interrupts, Remote, Remotes};
pub use kernel::{
    Blocked, Builder, CurrentTurn, Deadlock, Error, Failures, Kernel, Limit, OnDeadlock, Report,
    Stalled, Step, TaskTurn,
};
pub use log::{
    Answered, Call, CallInfo, Cycle, Detail, Doing, Ending, Event, Fact, Follower, Ledger, Moment,
    Span, Topic, TraceLine, Tracer, Wake, recording as record,
};
pub use sched::{Cause, Facts, Fifo, Policy, Runnable};
pub use trap::{
    CallSite, Continued, Descriptor, DiskOp, Effect, FileOp, Footprints, Mutation, Note, Object,
    pause::pause,
};
#[doc(hidden)]
pub use trap::{Label, Lack, Mail};
#[cfg(feature = "hyper")]
pub use user::guest::ForeignTimer;
pub use user::{
    blocking::Panicked,
    child::Child,
    device::{AsDevice, Device},
    disk::{Disk, File},
    guest::{
        Foreign, ForeignFile, ForeignListener, ForeignStream, ForeignTask, ForeignUdp, IntoForeign,
        Sleep,
    },
    input::{Input, StandardInput},
    journal::{Durability, Journal},
    mailbox::{Mailbox, Sender},
    net::{
        BadEndpoint, Endpoint, Listener, ListenerKind, SocketKind, Stream, StreamKind, TcpListener,
        TcpStream,
    },
    observe::Observer,
    os::Os,
    program::IntoExit,
    promise::{Abandoned, AlreadySet, Promise, RemoteSetter, Setter},
    queue::{Closed, Queue, TryGetError, TryPutError},
    scope::{Cancelled, Scope},
    select::{Arm, Arms, Either2, Either3, Either4, Either5, Either6, Source, after},
    signals::Signals,
    stdio::Stdio,
    stream::{Lines, Reader, Writer},
    supervisor::{Gone, Restart, Strategy, Supervisor},
    sync,
    time::Elapsed,
    udp::{Udp, UdpSocket},
    unix::{UnixListener, UnixListening, UnixPeer, UnixStream},
};
pub use world::{
    Answer, BadFault, BeforeTurn, Fault, Happening, Images, Leap, RealWorld, Request, SharedPorts,
    SimDisk, SimNet, SimWorld, World, open_again, tape,
};
