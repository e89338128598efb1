//! What `boot` needs to observe its kernel: the monitor of `--monitor`, and the screen of `--top`.

use std::{
    cell::RefCell,
    error::Error,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT};
use trapline::{Kernel, Ledger, Os, Tracer, record::Handle};

use super::{
    model::{LONGEST, Model},
    monitor, recent,
    screen::{self, End, Source},
    shared::{self, Shared},
    socket::{self, SocketFile},
    terminal::{self, Terminal, leave},
};
use crate::{outfile, output::Log, signals, values::duration};

/// The options of `boot` for observing it.
#[derive(Args)]
pub(crate) struct Options {
    /// Listen on this socket for the commands with --attach: ps, tree, waits, where, why, kill, top,
    /// trace live, trace dump
    #[arg(long, value_name = "SOCKET")]
    monitor: Option<PathBuf>,
    /// Show the tasks on a screen that refreshes itself every second, or every TIME. The screen
    /// shows the programs' output, and the terminal keeps it at the end
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        value_parser = interval,
    )]
    top: Option<Duration>,
}

impl Options {
    /// Whether any of them is given.
    pub(crate) fn is_any(&self) -> bool {
        self.monitor.is_some() || self.top.is_some()
    }
}

/// Reads the time between two snapshots. It has a limit, since a monitor hangs up on silent
/// clients.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let span = duration(text)?;
    if (Duration::from_millis(50)..=LONGEST).contains(&span) {
        Ok(span)
    } else {
        Err(format!("it takes 50ms to {}s", LONGEST.as_secs()))
    }
}

/// What observing a kernel needs. It is made before the kernel, so that a failure comes before any
/// program runs.
pub(crate) struct Observation {
    recent: Rc<RefCell<Ledger>>,
    socket: Option<(UnixListener, Arc<SocketFile>)>,
    screen: Option<(Terminal, Duration)>,
    colored: bool,
}

impl Observation {
    /// Prepares the observation; `None` if no option asks for it.
    pub(crate) fn new(options: &Options, log: Log) -> Result<Option<Self>, String> {
        if options.monitor.is_none() && options.top.is_none() {
            return Ok(None);
        }
        let socket = options.monitor.as_deref().map(listen).transpose()?;
        let screen = options
            .top
            .map(|every| Ok::<_, String>((terminal::find()?, every)));
        Ok(Some(Self {
            recent: Rc::new(RefCell::new(recent::ledger())),
            socket,
            screen: screen.transpose()?,
            colored: log.colored,
        }))
    }

    pub(crate) fn has_screen(&self) -> bool {
        self.screen.is_some()
    }

    /// Configures a kernel before its first tick.
    pub(crate) fn tracer(&self) -> impl Tracer + use<> {
        shared::tracer(&self.recent)
    }

    /// Cleans up where the process ends with the kernel still running.
    pub(crate) fn last_words(&self) -> impl Fn() + Send + use<> {
        let file = self.socket.as_ref().map(|(_, file)| Arc::downgrade(file));
        move || {
            // The terminal may have no reader.
            let _ = signals::soon(leave);
            if let Some(file) = file.as_ref().and_then(std::sync::Weak::upgrade) {
                file.remove();
            }
        }
    }

    /// Starts the observation. `no_kill` says why it may kill no task, if so.
    pub(crate) fn start(
        self,
        kernel: &mut Kernel,
        recorded: Option<&Handle>,
        no_kill: Option<&'static str>,
    ) {
        let shared = Shared::new(self.recent, kernel.remote(), recorded, no_kill);
        if let Some((terminal, every)) = self.screen {
            let shared = shared.clone();
            let colored = self.colored;
            kernel.spawn_daemon("top", async move |os: &mut Os| {
                let model = Model::new(&shared);
                let source = Source::Here { shared, model };
                let signal = match screen::show(os, source, terminal, every, colored).await? {
                    End::Quit => SIGINT,
                    End::Gone => SIGHUP,
                };
                // As that signal does without a screen. A second one would end the process at once.
                if !signals::is_raised() {
                    signal_hook::low_level::raise(signal)?;
                }
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
            "cannot listen on {}: {} (see --monitor)",
            path.display(),
            outfile::why(path, &error)
        )),
    }
}
