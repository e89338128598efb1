//! Looking at a kernel while it runs: the monitor behind `--monitor`, the commands that attach to
//! it, and the screen of `--top`.
//!
//! The monitor and the screen are daemons of the kernel they look at, written with its public API.
//!
//! | file | owns |
//! |---|---|
//! | `brief.rs` | long texts, cut |
//! | `shared.rs` | what the daemons share |
//! | `model.rs` | what is shown: a snapshot of the tasks |
//! | `recent.rs` | the last calls of each task |
//! | `sampler.rs` | who uses the time |
//! | `feed.rs` | the live trace |
//! | `protocol.rs` | what goes through the socket |
//! | `socket.rs` | its file |
//! | `monitor.rs` | the task behind it |
//! | `client.rs` | the commands |
//! | `screen.rs` | the screen: its tasks |
//! | `view.rs`, `draw.rs` | what it shows, what keys do, how it looks |
//! | `terminal.rs` | the terminal, before, while and after |

mod brief;
mod client;
mod draw;
mod feed;
mod model;
mod monitor;
mod protocol;
mod recent;
mod sampler;
mod screen;
mod shared;
mod socket;
mod terminal;
mod view;

use std::{
    cell::RefCell,
    error::Error,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::ExitCode,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use clap::{Args, Subcommand};
use signal_hook::consts::SIGINT;

use super::{
    interrupts, log,
    output::{self, FAILURE, Log, Verbosity, clean},
    values::{calls, duration, whole},
};
use crate::{Exit, Follower, Kernel, Os, Tracer};
use client::{Connection, Failure};
use model::{LONGEST, Model};
use protocol::{Filter, Request};
use screen::{Link, Source};
use shared::Shared;
use socket::SocketFile;
use terminal::Terminal;
pub(super) use terminal::{Taken, leave};

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
    /// Show the tasks on a screen that refreshes itself, each second or so often; what programs
    /// print is shown there, and left on the terminal at the end
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        value_parser = interval,
        conflicts_with = "simulated",
        help_heading = "Watching"
    )]
    top: Option<Duration>,
}

/// Reads the time between two snapshots. A monitor hangs up on clients that are silent for long.
fn interval(text: &str) -> Result<Duration, String> {
    let span = duration(text)?;
    if (Duration::from_millis(50)..=LONGEST).contains(&span) {
        Ok(span)
    } else {
        Err(format!("it takes 50ms to {}s", LONGEST.as_secs()))
    }
}

/// The commands for a kernel that already runs.
#[derive(Subcommand)]
pub(super) enum LiveCommand {
    /// List the tasks of a running kernel
    #[command(after_help = "\
Examples:
  boot --monitor run.sock echo                  a kernel that can be asked
  ps --attach run.sock                          its tasks
  ps --attach run.sock --json | jq .blocked_on")]
    Ps(Attach),
    /// Show the tasks of a running kernel as a tree of parents
    #[command(after_help = "\
Examples:
  boot --monitor run.sock echo   a kernel that can be asked
  tree --attach run.sock         who spawned whom; ↻ marks a cycle, which no kernel has")]
    Tree(Attach),
    /// Show what a task of a running kernel is blocked on, and its last traps
    #[command(after_help = "\
Examples:
  boot --monitor run.sock echo   a kernel that can be asked
  ps --attach run.sock           the numbers of its tasks
  where 2 --attach run.sock      what number 2 is at")]
    Where {
        /// The task's number
        #[arg(value_parser = whole::<u64>, allow_negative_numbers = true)]
        tid: u64,
        #[command(flatten)]
        attach: Attach,
    },
    /// Kill a task of a running kernel
    #[command(after_help = "\
Examples:
  boot --monitor run.sock echo   a kernel that can be asked
  ps --attach run.sock           the numbers of its tasks
  kill 2 --attach run.sock       the end of number 2")]
    Kill {
        /// The task's number
        #[arg(value_parser = whole::<u64>, allow_negative_numbers = true)]
        tid: u64,
        #[command(flatten)]
        attach: Attach,
    },
    /// Show the tasks of a running kernel on a screen that refreshes itself
    #[command(after_help = "\
Examples:
  boot --monitor run.sock echo           a kernel that can be asked
  top --attach run.sock                  its tasks, each second
  top --attach run.sock --every 250ms    four times a second
  boot --top echo                        a kernel with a screen of its own")]
    Top {
        /// The socket of a kernel that was booted with --monitor
        #[arg(long = "attach", value_name = "SOCKET")]
        socket: PathBuf,
        /// The time between two looks
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
        every: Duration,
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
#[command(after_help = "\
Examples:
  boot --monitor run.sock echo                             a kernel that can be asked
  trace live --attach run.sock                             every trap from now on
  trace live --attach run.sock --name client --call recv   some of them
  trace live --attach run.sock --json | jq .message")]
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
    #[arg(long = "call", value_name = "CALL", value_parser = calls(), hide_possible_values = true)]
    calls: Vec<String>,
    /// Also whose turn it is, who woke whom, and when the clock moved
    #[arg(long)]
    sched: bool,
    /// Also what is printed
    #[arg(long)]
    console: bool,
}

/// Does what one of the commands asks for.
pub(super) fn run(command: &LiveCommand, verbosity: &Verbosity) -> ExitCode {
    let log = Log::of_output(verbosity);
    exit_code(match command {
        LiveCommand::Top { socket, every } => top(socket, *every, log),
        command => ask(command, log).map(|()| ExitCode::SUCCESS),
    })
}

/// Shows a live trace.
pub(super) fn trace(command: &TraceLive, verbosity: &Verbosity) -> ExitCode {
    let request = Request::Trace(Filter {
        tids: command.tids.clone(),
        comms: command.comms.clone(),
        calls: command.calls.clone(),
        sched: command.sched,
        console: command.console,
    });
    let connection = Connection::open(&command.attach.socket, command.attach.json);
    let log = Log::of_output(verbosity);
    let done = connection.and_then(|mut connection| connection.trace(&request, log));
    exit_code(done.map(|()| ExitCode::SUCCESS))
}

fn exit_code(done: Result<ExitCode, Failure>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(Failure::Unread) => ExitCode::SUCCESS,
        Err(Failure::Said(message)) => {
            output::tell(&format!("error: {message}\n"));
            ExitCode::from(FAILURE)
        }
    }
}

fn ask(command: &LiveCommand, log: Log) -> Result<(), Failure> {
    let open = |attach: &Attach| Connection::open(&attach.socket, attach.json);
    match command {
        LiveCommand::Ps(attach) => open(attach)?.ps(),
        LiveCommand::Tree(attach) => open(attach)?.tree(),
        LiveCommand::Where { tid, attach } => open(attach)?.whereabouts(*tid, log),
        LiveCommand::Kill { tid, attach } => open(attach)?.kill(*tid),
        LiveCommand::Top { .. } => unreachable!("it asks more than once"),
    }
}

/// The screen for another kernel: a task of a kernel of its own.
fn top(socket: &Path, every: Duration, log: Log) -> Result<ExitCode, Failure> {
    let stream = client::connect(socket)?;
    let terminal = terminal::find()?;
    let _taken = Taken;
    log::hook_panics(log, leave);
    let kernel = Kernel::real().map_err(|error| error.to_string());
    let mut kernel = kernel?;
    interrupts::at_end(|| drop(interrupts::soon(leave)));
    interrupts::listen(log, kernel.remote()).map_err(|error| error.to_string())?;
    let main = kernel.spawn("top", async move |os: &mut Os| {
        let source = Source::There(Link::new(os, stream).await?);
        screen::show(os, source, terminal, every, log.is_colored()).await?;
        os.shutdown().await;
        #[expect(unreachable_code, reason = "it gives the errors above a type")]
        Ok::<(), Box<dyn Error>>(())
    });
    let main = main.map_err(|errno| errno.to_string())?;
    let report = kernel.run();
    leave();
    let report = report.map_err(|error| error.to_string())?;
    match &report.exits()[&main] {
        Exit::Failed(why) | Exit::Faulted(why) => Err(clean(why).into()),
        Exit::Done | Exit::Killed => {
            Ok(interrupts::signal().map_or(ExitCode::SUCCESS, ExitCode::from))
        }
    }
}

/// What it takes to look at a kernel: made before the kernel is, so that nothing has run in vain if
/// it cannot be had.
pub(super) struct Watch {
    recent: Rc<RefCell<Follower>>,
    socket: Option<(UnixListener, Arc<SocketFile>)>,
    screen: Option<(Terminal, Duration)>,
    colored: bool,
}

impl Watch {
    /// Gets ready to look; `None` if nobody wants to.
    pub(super) fn new(options: &Options, log: Log) -> Result<Option<Self>, String> {
        if options.monitor.is_none() && options.top.is_none() {
            return Ok(None);
        }
        let socket = options.monitor.as_deref().map(listen).transpose()?;
        let screen = options
            .top
            .map(|every| Ok::<_, String>((terminal::find()?, every)));
        Ok(Some(Self {
            recent: Rc::new(RefCell::new(recent::follower())),
            socket,
            screen: screen.transpose()?,
            colored: log.is_colored(),
        }))
    }

    pub(super) fn has_screen(&self) -> bool {
        self.screen.is_some()
    }

    /// What the kernel is to have from the beginning.
    pub(super) fn tracer(&self) -> impl Tracer + use<> {
        shared::tracer(&self.recent)
    }

    /// What is left to do where the process ends with the kernel still running.
    pub(super) fn last_words(&self) -> impl Fn() + Send + use<> {
        let file = self.socket.as_ref().map(|(_, file)| Arc::downgrade(file));
        move || {
            // Nobody may read what the terminal is to be told.
            let _ = interrupts::soon(leave);
            if let Some(file) = file.as_ref().and_then(std::sync::Weak::upgrade) {
                file.remove();
            }
        }
    }

    /// Begins to look.
    pub(super) fn start(self, kernel: &mut Kernel) {
        let shared = Shared::new(self.recent, kernel.remote());
        if let Some((terminal, every)) = self.screen {
            let shared = shared.clone();
            let colored = self.colored;
            kernel.spawn_daemon("top", async move |os: &mut Os| {
                let model = Model::new(&shared);
                let source = Source::Here { shared, model };
                screen::show(os, source, terminal, every, colored).await?;
                // As its user would do without a screen.
                signal_hook::low_level::raise(SIGINT)?;
                Ok::<(), Box<dyn Error>>(())
            });
        }
        if let Some((listener, file)) = self.socket {
            kernel.spawn_daemon("monitor", async move |os: &mut Os| {
                monitor::serve(os, listener, file, shared).await
            });
        }
    }
}

fn listen(path: &Path) -> Result<(UnixListener, Arc<SocketFile>), String> {
    match socket::bind(path) {
        Ok((listener, file)) => Ok((listener, Arc::new(file))),
        Err(error) => Err(format!(
            "cannot listen at {}: {error} (see --monitor)",
            path.display()
        )),
    }
}
