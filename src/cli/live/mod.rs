//! Looking at a kernel while it runs: the monitor behind `--monitor`, the commands that attach to
//! it, and the screen of `--top`.
//!
//! The monitor and the screen are daemons of the kernel they look at, written with its public API.
//!
//! | file | owns |
//! |---|---|
//! | `model.rs` | what is shown: a snapshot of the tasks |
//! | `recent.rs` | the last traps of each task |
//! | `sampler.rs` | who uses the time |
//! | `feed.rs` | the live trace |
//! | `protocol.rs` | what goes through the socket |
//! | `socket.rs` | its file |
//! | `monitor.rs` | the task behind it |
//! | `client.rs` | the commands |

mod client;
mod feed;
mod model;
mod monitor;
mod protocol;
mod recent;
mod sampler;
mod socket;

use std::{
    cell::RefCell,
    os::unix::net::UnixListener,
    path::PathBuf,
    process::ExitCode,
    rc::{Rc, Weak},
    sync::Arc,
};

use clap::{Args, Subcommand};

use super::{
    FAILURE,
    args::{Tone, whole},
    log::{self, Log},
};
use crate::{Event, Kernel, Os, Remote, Tracer};
use client::{Connection, Failure};
use protocol::{Filter, Request};
use recent::Recent;
use sampler::Sampler;
use socket::SocketFile;

/// The options of `boot` to be looked at.
#[derive(Args)]
pub(super) struct Options {
    /// Answer the commands that --attach to this socket: ps, tree, where, kill, top, trace live
    #[arg(
        long,
        value_name = "SOCKET",
        conflicts_with = "simulated",
        help_heading = "Watching"
    )]
    monitor: Option<PathBuf>,
}

/// The commands for a kernel that already runs.
#[derive(Subcommand)]
pub(super) enum Order {
    /// List the tasks of a running kernel
    Ps(Attach),
    /// Show the tasks of a running kernel as a tree of parents
    Tree(Attach),
    /// Show what a task of a running kernel is blocked on, and its last traps
    Where {
        /// The task's number
        #[arg(value_parser = whole::<u64>, allow_negative_numbers = true)]
        tid: u64,
        #[command(flatten)]
        attach: Attach,
    },
    /// Kill a task of a running kernel
    Kill {
        /// The task's number
        #[arg(value_parser = whole::<u64>, allow_negative_numbers = true)]
        tid: u64,
        #[command(flatten)]
        attach: Attach,
    },
}

/// Which kernel.
#[derive(Args)]
pub(super) struct Attach {
    /// The socket of a kernel that was booted with --monitor
    #[arg(long = "attach", value_name = "SOCKET")]
    socket: PathBuf,
    /// Show what the kernel sends, a JSON object a line
    #[arg(long)]
    json: bool,
}

/// Show what the tasks of a running kernel do, a line per trap
#[derive(Args)]
pub(super) struct TraceLive {
    #[command(flatten)]
    attach: Attach,
    /// Only this task; can be repeated
    #[arg(long = "task", value_name = "TID", value_parser = whole::<u64>, allow_negative_numbers = true)]
    tids: Vec<u64>,
    /// Only tasks of this name; can be repeated
    #[arg(long = "name", value_name = "NAME")]
    comms: Vec<String>,
    /// Only this call, such as recv or new_task; can be repeated
    #[arg(long = "call", value_name = "CALL")]
    calls: Vec<String>,
    /// Also whose turn it is, who woke whom, and when the clock moved
    #[arg(long)]
    sched: bool,
    /// Also what is printed
    #[arg(long)]
    console: bool,
}

/// Does what one of the commands asks for.
pub(super) fn run(order: &Order, tone: &Tone) -> ExitCode {
    exit_code(ask(order, Log::of_output(tone)))
}

/// Shows a live trace.
pub(super) fn trace(order: &TraceLive, tone: &Tone) -> ExitCode {
    let request = Request::Trace(Filter {
        tids: order.tids.clone(),
        comms: order.comms.clone(),
        calls: order.calls.clone(),
        sched: order.sched,
        console: order.console,
    });
    let connection = Connection::open(&order.attach.socket, order.attach.json);
    let log = Log::of_output(tone);
    exit_code(connection.and_then(|mut connection| connection.trace(&request, log)))
}

fn exit_code(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) | Err(Failure::Unread) => ExitCode::SUCCESS,
        Err(Failure::Said(message)) => {
            log::tell(&format!("error: {message}\n"));
            ExitCode::from(FAILURE)
        }
    }
}

fn ask(order: &Order, log: Log) -> Result<(), Failure> {
    let open = |attach: &Attach| Connection::open(&attach.socket, attach.json);
    match order {
        Order::Ps(attach) => open(attach)?.ps(),
        Order::Tree(attach) => open(attach)?.tree(),
        Order::Where { tid, attach } => open(attach)?.whereabouts(*tid, log),
        Order::Kill { tid, attach } => open(attach)?.kill(*tid),
    }
}

/// What it takes to look at a kernel: made before the kernel is, so that nothing has run in vain if
/// it cannot be had.
pub(super) struct Watch {
    recent: Rc<RefCell<Recent>>,
    socket: Option<(UnixListener, Arc<SocketFile>)>,
}

/// What the daemons share.
#[derive(Clone)]
struct Shared {
    recent: Rc<RefCell<Recent>>,
    kernel: Remote,
    sampler: Rc<RefCell<Weak<Sampler>>>,
}

impl Watch {
    /// Gets ready to look; `None` if nobody wants to.
    pub(super) fn new(options: &Options) -> Result<Option<Self>, String> {
        let Some(path) = &options.monitor else {
            return Ok(None);
        };
        let (listener, file) = socket::bind(path).map_err(|error| {
            format!(
                "cannot listen at {}: {error} (see --monitor)",
                path.display()
            )
        })?;
        Ok(Some(Self {
            recent: Rc::default(),
            socket: Some((listener, Arc::new(file))),
        }))
    }

    /// What the kernel is to have from the beginning.
    pub(super) fn tracer(&self) -> impl Tracer + use<> {
        Shared::tracer(&self.recent)
    }

    /// What is left to do where the process ends with the kernel still running.
    pub(super) fn last_words(&self) -> impl Fn() + Send + use<> {
        let file = self.socket.as_ref().map(|(_, file)| Arc::downgrade(file));
        move || {
            if let Some(file) = file.as_ref().and_then(std::sync::Weak::upgrade) {
                file.remove();
            }
        }
    }

    /// Begins to look.
    pub(super) fn start(self, kernel: &mut Kernel) {
        let shared = Shared {
            recent: self.recent,
            kernel: kernel.remote(),
            sampler: Rc::default(),
        };
        if let Some((listener, file)) = self.socket {
            kernel.spawn_daemon("monitor", async move |os: &mut Os| {
                monitor::serve(os, listener, file, shared).await
            });
        }
    }
}

impl Shared {
    fn tracer(recent: &Rc<RefCell<Recent>>) -> impl Tracer + use<> {
        Recording(Rc::clone(recent))
    }

    /// The thread that samples, as long as anybody holds on to it; none where there can be none.
    fn sampler(&self) -> Option<Rc<Sampler>> {
        if let Some(sampler) = self.sampler.borrow().upgrade() {
            return Some(sampler);
        }
        let sampler = Rc::new(Sampler::start(self.kernel.clone()).ok()?);
        *self.sampler.borrow_mut() = Rc::downgrade(&sampler);
        Some(sampler)
    }
}

struct Recording(Rc<RefCell<Recent>>);

impl Tracer for Recording {
    fn event(&mut self, event: &Event<'_>) {
        self.0.borrow_mut().event(event);
    }

    fn is_exact(&self) -> bool {
        false
    }
}
