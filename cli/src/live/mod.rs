//! Observing a kernel while it runs: the monitor behind `--monitor`, the commands that attach to
//! it, and the screen of `--top`.
//!
//! The monitor and the screen are daemons of the kernel that they observe, written with its public
//! API.
//!
//! | file | owns |
//! |---|---|
//! | `row.rs` | a row of `ps` and `top` |
//! | `query.rs` | which tasks are listed, and which of them are one row |
//! | `entry.rs`, `sort.rs`, `tree.rs` | a task that is listed, the order of the rows, the lines of a tree |
//! | `feed.rs` | calls and events as lines; the live trace |
//! | `model.rs` | the tasks at an instant, and the answers about them |
//! | `sampler.rs` | the tasks' shares of the time |
//! | `protocol.rs` | the messages on the socket |
//! | `socket.rs` | the socket's file |
//! | `monitor.rs` | the task behind the socket |
//! | `front.rs` | the monitor of several kernels |
//! | `peers.rs` | the connections of its clients to the monitor of each kernel |
//! | `watch.rs` | what `boot` needs for its monitor and its screen |
//! | `client.rs`, `dump.rs` | the other end of the socket |
//! | `text.rs` | tasks as tables, trees and lines |
//! | `screen.rs` | the screen: its tasks |
//! | `view.rs`, `draw.rs` | its contents, its keys, its layout |
//! | `terminal.rs` | taking the terminal and giving it back |

mod client;
pub(super) mod draw;
pub(super) mod dump;
pub(super) mod entry;
pub(super) mod feed;
pub(super) mod front;
pub(super) mod model;
mod monitor;
mod peers;
pub(super) mod protocol;
pub(super) mod query;
pub(super) mod row;
mod sampler;
mod screen;
mod socket;
mod sort;
pub(super) mod terminal;
pub(super) mod text;
mod tree;
pub(super) mod view;
pub(super) mod watch;

use std::{
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Subcommand};
use trapline::{Exit, Kernel, Os, Tid};

use super::{
    output::{Failure, Log, Verbosity, clean},
    panics, signals, stdio,
    values::task,
};
use client::{Connection, Link};
use protocol::{Answers, Filter, Request};
use query::{CROWD, Query};
use screen::{End, Source};
use terminal::{Taken, leave};
use watch::interval;

/// The commands for a running kernel.
#[derive(Subcommand)]
pub(super) enum LiveCommand {
    /// List the tasks of a running kernel
    #[command(after_help = "\
Examples:
  boot --monitor run.sock echo                  a kernel with a monitor
  ps --attach run.sock                          its tasks
  ps --attach run.sock --sort since --most 10   those that have waited longest
  ps --attach run.sock --by-name                a row per name
  ps --attach run.sock --json | jq .blocked_on")]
    Ps {
        #[command(flatten)]
        list: Query,
        #[command(flatten)]
        attach: Attach,
    },
    /// Show the tasks of a running kernel as a tree of parents; many siblings of a name are one line
    #[command(after_help = "\
Examples:
  boot --monitor run.sock echo   a kernel with a monitor
  tree --attach run.sock         the parents and their children
  tree --attach run.sock --all   a line for each task")]
    Tree {
        #[command(flatten)]
        tree: TreeList,
        #[command(flatten)]
        attach: Attach,
    },
    /// Show what the tasks of a running kernel wait for, and their cycles
    #[command(after_help = "\
A cycle is of tasks that wait for mutexes and for each other's exits: only a kill can end it. For
recordings there is `trace waits`.

Examples:
  boot --monitor run.sock echo    a kernel with a monitor
  waits --attach run.sock         its blocked tasks
  waits --attach run.sock --json  an object per task and per cycle")]
    Waits(Attach),
    /// Show what a task of a running kernel is blocked on, and its last traps
    #[command(after_help = "\
Examples:
  boot --monitor run.sock echo   a kernel with a monitor
  ps --attach run.sock           the numbers of its tasks
  where 2 --attach run.sock      the state of task 2")]
    Where(OfTask),
    /// Say why a task of a running kernel waits, from task to task
    #[command(after_help = "\
It follows waits for a task's end and for a lock. At a queue it follows the last task to put a
message, or to get one, as far as the last 16 calls of each task tell. It does not follow a
connection. `trace why` explains every wait of a recording.

Examples:
  boot --monitor run.sock echo   a kernel with a monitor
  why 2 --attach run.sock        the chain of waits that begins with task 2")]
    Why(OfTask),
    /// Kill a task of a running kernel
    #[command(after_help = "\
Examples:
  boot --monitor run.sock echo   a kernel with a monitor
  ps --attach run.sock           the numbers of its tasks
  kill 2 --attach run.sock       end task 2")]
    Kill(OfTask),
    /// Show the tasks of a running kernel on a screen that refreshes itself
    #[command(after_help = "\
Examples:
  boot --monitor run.sock echo           a kernel with a monitor
  top --attach run.sock                  its tasks, each second
  top --attach run.sock --every 250ms    four times a second
  boot --top echo                        a kernel with a screen of its own")]
    Top {
        /// The socket of a kernel that was booted with --monitor
        #[arg(long = "attach", value_name = "SOCKET")]
        socket: PathBuf,
        /// The time between two snapshots
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
        every: Duration,
    },
}

/// What a tree of tasks lists.
#[derive(Args, Clone)]
pub(super) struct TreeList {
    /// Only tasks whose number, name, state or wait contains TEXT
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    filter: String,
    /// A line for each task, also for many siblings of a name
    #[arg(long)]
    all: bool,
}

impl TreeList {
    pub(super) fn query(&self) -> Query {
        Query {
            filter: self.filter.clone(),
            fold: (!self.all).then_some(CROWD),
            tree: true,
            ..Query::default()
        }
    }
}

/// The kernel to attach to.
#[derive(Args)]
pub(super) struct Attach {
    /// The socket of a kernel that was booted with --monitor
    #[arg(long = "attach", value_name = "SOCKET")]
    socket: PathBuf,
    /// Show the monitor's answers, a JSON object a line
    #[arg(long)]
    json: bool,
}

impl Attach {
    fn open(&self) -> Result<Connection, Failure> {
        Connection::open(&self.socket, self.json)
    }
}

/// A task of that kernel.
#[derive(Args)]
pub(super) struct OfTask {
    /// The task's number; where there are several kernels, such as 2:17 for task 17 of kernel 2
    #[arg(value_parser = task)]
    tid: Tid,
    #[command(flatten)]
    attach: Attach,
}

/// Show what the tasks of a running kernel do, a line per trap
#[derive(Args)]
#[command(after_help = "\
Examples:
  boot --monitor run.sock echo                             with a monitor
  trace live --attach run.sock                             every trap
  trace live --attach run.sock --task client --call recv   some of them
  trace live --attach run.sock --json | jq .message")]
pub(super) struct TraceLive {
    #[command(flatten)]
    attach: Attach,
    #[command(flatten)]
    filter: Filter,
}

/// Shows a live trace.
pub(super) fn trace(command: &TraceLive, log: Log) -> Result<ExitCode, Failure> {
    let request = Request::Trace(command.filter.clone());
    command.attach.open()?.trace(&request, log)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs one of the commands.
pub(super) fn run(command: &LiveCommand, verbosity: &Verbosity) -> Result<ExitCode, Failure> {
    let log = Log::of_output(verbosity);
    let (attach, view) = match command {
        LiveCommand::Ps { list, attach } => (attach, View::Ps(list.clone())),
        LiveCommand::Tree { tree, attach } => (attach, View::Tree(tree.clone())),
        LiveCommand::Waits(attach) => (attach, View::Waits),
        LiveCommand::Where(OfTask { tid, attach }) => (attach, View::Where { tid: *tid }),
        LiveCommand::Why(OfTask { tid, attach }) => (attach, View::Why { tid: *tid }),
        LiveCommand::Kill(OfTask { tid, attach }) => {
            attach.open()?.all(&Request::Kill { tid: *tid })?;
            return Ok(ExitCode::SUCCESS);
        }
        LiveCommand::Top { socket, every } => return top(socket, *every, log),
    };
    if let Some(all) = attach.open()?.all(&view.request())? {
        let text = view.text(&all, ": --json lists all", log);
        stdio::print(text.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is asked about the tasks of a kernel. A shell has it as commands.
#[derive(Subcommand)]
pub(super) enum View {
    /// List the tasks
    Ps(Query),
    /// Show the tasks as a tree of parents
    Tree(TreeList),
    /// Show what the tasks wait for, and their cycles
    Waits,
    /// Show what a task waits for, and its last traps
    Where {
        #[arg(value_parser = task)]
        tid: Tid,
    },
    /// Say why a task waits, from task to task
    Why {
        #[arg(value_parser = task)]
        tid: Tid,
    },
}

impl View {
    pub(super) fn request(&self) -> Request {
        match self {
            Self::Ps(query) => Request::Ps(query.clone()),
            Self::Tree(tree) => Request::Ps(tree.query()),
            Self::Waits => Request::Waits {},
            Self::Where { tid } | Self::Why { tid } => Request::Where { tid: *tid },
        }
    }

    /// The answers as text. `more` says how to see the tasks that it has no room for.
    pub(super) fn text(&self, all: &Answers, more: &str, log: Log) -> String {
        match self {
            Self::Ps(_) => text::ps(all, more),
            Self::Tree(_) => text::tree(all),
            Self::Waits => text::waits(all, text::ROWS),
            Self::Where { .. } => {
                let lines = text::where_lines(&all.tasks, all.totals.at).into_iter();
                let traps = all.traps.iter().map(|trap| text::event(log, trap));
                lines.chain(traps).map(|line| line + "\n").collect()
            }
            Self::Why { .. } => text::why_lines(&all.tasks, all.totals.at),
        }
    }
}

/// Runs the screen for another kernel, as a task of a kernel of its own.
fn top(socket: &Path, every: Duration, log: Log) -> Result<ExitCode, Failure> {
    let stream = client::connect(socket)?;
    let terminal = terminal::find()?;
    let _taken = Taken;
    panics::hook(log);
    let mut kernel = Kernel::real().map_err(|error| error.to_string())?;
    signals::at_end(|| drop(signals::soon(leave)));
    // An interrupt ends the screen alone, and the kernel here is of no interest.
    signals::listen(&kernel.remote(), false, || {})?;
    let main = kernel.spawn("top", async move |os: &mut Os| {
        let source = Source::There(Link::new(os, stream).await?);
        match screen::show(os, source, terminal, every, log.colored).await? {
            End::Quit => Ok::<(), Box<dyn Error>>(()),
            End::Gone => Err(terminal::GONE.into()),
        }
    });
    let main = main.map_err(|errno| errno.to_string())?;
    // Not for the task that fetches snapshots.
    let report = kernel.run_until(&[main]);
    leave();
    let report = report.map_err(|error| error.to_string())?;
    match &report.exits()[&main] {
        Exit::Failed(why) | Exit::Faulted(why) => Err(clean(why).into()),
        Exit::Done | Exit::Killed => {
            Ok(signals::signal().map_or(ExitCode::SUCCESS, ExitCode::from))
        }
    }
}
