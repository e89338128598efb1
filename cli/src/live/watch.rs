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
use trapline::{Kernel, KernelId, Ledger, Os, Tracer, record::Handle};

use super::{
    feed,
    model::{LONGEST, Shared},
    monitor::{self, Live},
    screen::{self, End, Source},
    socket::{self, SocketFile},
    terminal::{self, Terminal, leave},
};
use crate::{outfile, output::Log, signals, values::duration};

/// The options of `boot` for observing it.
#[derive(Args)]
pub(crate) struct Options {
    /// Listen on this socket for the commands with --attach: ps, tree, waits, where, why, kill, top,
    /// trace live, trace dump. With --kernels it is for all kernels; the socket of each has its number
    /// behind the name
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
    /// The options for one of several kernels: the number of each is behind the name of its socket.
    pub(crate) fn of_kernel(&self, kernel: KernelId) -> Self {
        let monitor = self.monitor.as_deref();
        Self {
            monitor: monitor.map(|path| outfile::of_kernel(path, kernel)),
            top: None,
        }
    }

    pub(crate) fn socket(&self) -> Option<&Path> {
        self.monitor.as_deref()
    }

    pub(crate) fn has_top(&self) -> bool {
        self.top.is_some()
    }

    /// Whether any of them is given.
    pub(crate) fn is_any(&self) -> bool {
        self.monitor.is_some() || self.top.is_some()
    }
}

/// Reads the time between two snapshots. It has a limit, since a monitor hangs up on silent
/// clients.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        span if (Duration::from_millis(50)..=LONGEST).contains(&span) => Ok(span),
        _ => Err(format!("it takes 50ms to {}s", LONGEST.as_secs())),
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
        if !options.is_any() {
            return Ok(None);
        }
        let socket = options.monitor.as_deref().map(listen).transpose()?;
        let terminal = options.top.map(|_| terminal::find()).transpose()?;
        Ok(Some(Self {
            recent: feed::ledger(),
            socket,
            screen: terminal.zip(options.top),
            colored: log.colored,
        }))
    }

    pub(crate) fn has_screen(&self) -> bool {
        self.screen.is_some()
    }

    /// Configures a kernel before its first tick.
    pub(crate) fn tracer(&self) -> impl Tracer + use<> {
        feed::follow(&self.recent)
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

    /// Starts the observation. `no_kill` says why it may kill no task, if so. `number` is the kernel's, if
    /// others run beside it.
    pub(crate) fn start(
        self,
        kernel: &mut Kernel,
        recorded: Option<&Handle>,
        no_kill: Option<&'static str>,
        number: Option<KernelId>,
    ) {
        let shared = Shared {
            recent: self.recent,
            recorded: recorded.cloned(),
            no_kill,
            number,
            kernel: kernel.remote(),
            sampler: Rc::default(),
        };
        if let Some((terminal, every)) = self.screen {
            let shared = shared.clone();
            let colored = self.colored;
            kernel.spawn_daemon("top", async move |os: &mut Os| {
                let gauge = shared.gauge();
                let source = Source::Here { shared, gauge };
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
                monitor::serve(os, listener, file, Live::Kernel(shared)).await
            });
        }
    }
}

pub(super) fn listen(path: &Path) -> Result<(UnixListener, Arc<SocketFile>), String> {
    let bound = socket::bind(path).map_err(|error| {
        let why = outfile::why(path, &error);
        format!("cannot listen on {}: {why} (see --monitor)", path.display())
    });
    bound.map(|(listener, file)| (listener, Arc::new(file)))
}
