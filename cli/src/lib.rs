//! The command line of [`trapline`], for any set of programs.
//!
//! A program is a `clap` argument struct with an async body. A binary lists its programs and has
//! the whole command line under its own name:
//!
//! ```no_run
//! use std::{error::Error, process::ExitCode, time::Duration};
//! use trapline::Os;
//! use trapline_cli::{Program, duration};
//!
//! /// Says hello, again and again.
//! #[derive(clap::Args)]
//! struct Hello {
//!     /// How often
//!     #[arg(long, default_value_t = 3)]
//!     count: u32,
//!     /// The time between two greetings
//!     #[arg(long, value_parser = duration, default_value = "1s")]
//!     every: Duration,
//! }
//!
//! impl Program for Hello {
//!     async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
//!         for _ in 0..self.count {
//!             writeln!(os, "hello");
//!             os.sleep(self.every).await;
//!         }
//!         Ok(())
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     trapline_cli::main([trapline_cli::program::<Hello>("hello")])
//! }
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `amounts.rs` | percentiles of many amounts |
//! | `args.rs` | the commands and options, and the messages about wrong ones |
//! | `as_test.rs` | `replay --as-test`: a taped run as a test |
//! | `attached.rs` | descriptors that programs attach, in a run with a tape |
//! | `boot.rs` | `boot`: the kernel's settings, exit codes |
//! | `crash.rs` | signals that kill the process |
//! | `debug/` | `debug`: a run forward and back |
//! | `inject.rs` | `--inject` |
//! | `exits.rs` | `--exits` |
//! | `explore/`, `cluster.rs` | `explore`: the search for a schedule that breaks a program; its part in a cluster |
//! | `interrupts.rs` | signals that end a run |
//! | `lab/` | `lab`: a program under several policies |
//! | `live/` | looking at a kernel while it runs |
//! | `log.rs` | `--trace`: the layer under it, and what it shows |
//! | `measures.rs` | response, turnaround and waiting of a task |
//! | `net.rs` | the simulated network: `--on`, `--net`, `--fault` |
//! | `new.rs`, `template/` | `new`: the crate that it makes |
//! | `outfile.rs` | a file that a command writes at its end |
//! | `output.rs` | messages on standard error, data on standard output, exit codes |
//! | `panics.rs` | panics of tasks whose run is repeated |
//! | `policy.rs` | `--policy`: the policies by name |
//! | `program.rs` | a program under its name |
//! | `record.rs` | `--record` |
//! | `reenact/` | `replay --explore`: the inputs of a taped run under other schedules |
//! | `replay.rs` | `--tape`, and `replay`: a taped run again |
//! | `stdio.rs` | the standard streams: while a screen has the terminal, and with a reader that stalls |
//! | `summary.rs` | the tables of `--summary` |
//! | `table.rs` | tables for people |
//! | `trace/` | `trace`: what recordings show |
//! | `values.rs` | values of arguments |
//! | `words.rs` | the splitting of `--with` |
//! | `world.rs` | `--world`: the worlds of a binary by name |
//!
//! `measures`, `output`, `policy`, `program`, `stdio`, `table`, `values`, `words` and `world` are at
//! the bottom: they use no command.
//! A file in `live/`, `trace/` or `debug/` uses files below it and never its folder's `mod.rs`;
//! `trace/` and `debug/` use `live/`, and not the other way round.

/// The README's programs, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

mod amounts;
mod args;
mod as_test;
mod attached;
mod boot;
mod cluster;
mod crash;
mod debug;
mod exits;
mod explore;
mod inject;
mod interrupts;
mod lab;
mod live;
mod log;
mod measures;
mod net;
mod new;
mod outfile;
mod output;
mod panics;
mod policy;
mod program;
mod record;
mod reenact;
mod replay;
mod stdio;
mod stuck;
mod summary;
mod table;
mod trace;
mod values;
mod words;
mod world;

use std::{
    borrow::Cow, env, error::Error, ffi::OsString, fmt, path::Path, process::ExitCode, sync::Arc,
};

use args::CliCommand;
use output::{USAGE, print};
use policy::Register;
pub use program::{Entry, Program, program};
use trapline::{Builder, Policy, Tracer, World};
pub use values::{addr, duration};
use world::MakeWorld;

/// The command line of a binary with these programs, for its `main` to return. The binary's name is
/// the name that started it.
pub fn main(programs: impl IntoIterator<Item = Entry>) -> ExitCode {
    App::new(programs).main()
}

/// The command line of a binary, with what the binary adds to it.
///
/// ```no_run
/// use std::process::ExitCode;
/// use trapline::{Cause, Event, Fact, Policy, Runnable, SimWorld};
/// use trapline_cli::App;
///
/// /// The youngest first.
/// #[derive(Default)]
/// struct Lifo(Vec<Runnable>);
///
/// impl Policy for Lifo {
///     fn push(&mut self, task: Runnable, _: Cause) { self.0.push(task) }
///     fn pop(&mut self) -> Option<Runnable> { self.0.pop() }
///     fn remove(&mut self, task: Runnable) { self.0.retain(|other| *other != task) }
///     fn len(&self) -> usize { self.0.len() }
/// }
///
/// fn main() -> ExitCode {
///     App::new([])
///         .policy("lifo", |params: &str| match params {
///             "" => Ok(Box::new(Lifo::default())),
///             _ => Err("lifo takes no parameters".into()),
///         })
///         .world("fixed", |params: &str| Ok(Box::new(SimWorld::new(params.parse()?))))
///         .tracer(|| |event: &Event<'_>| if let Fact::Exited { .. } = event.fact {
///             eprintln!("{event}");
///         })
///         .main()
/// }
/// ```
#[must_use]
pub struct App {
    programs: Vec<Entry>,
    policies: Vec<(String, Register)>,
    worlds: Vec<(String, MakeWorld)>,
    tracers: Vec<Extend>,
}

/// Adds a tracer to the settings of a kernel.
type Extend = Box<dyn Fn(Builder) -> Builder>;

impl App {
    /// Returns the command line with these programs.
    pub fn new(programs: impl IntoIterator<Item = Entry>) -> Self {
        Self {
            programs: programs.into_iter().collect(),
            policies: Vec::new(),
            worlds: Vec::new(),
            tracers: Vec::new(),
        }
    }

    /// Adds a policy for `boot --policy` and `lab --policy`. `make` gets the parameters, which
    /// follow the name and a colon; without them an empty text. A policy with the name of one of
    /// the library's replaces it.
    ///
    /// *Errors:* a text of `make` is shown as the error of the option.
    pub fn policy(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&str) -> Result<Box<dyn Policy>, String> + Send + Sync + 'static,
    ) -> Self {
        self.policies.push((name.into(), Arc::new(make)));
        self
    }

    /// Adds a world for `boot --world`. `make` gets the parameters, which follow the name and a
    /// colon; without them an empty text. `boot --tape` tapes such a world too. `replay` does not
    /// make it, because the tape answers in its place. It prints for itself: a world around
    /// [`RealWorld`](trapline::RealWorld) prints to standard output.
    ///
    /// *Errors:* an error of `make` is shown as the error of the option.
    pub fn world(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&str) -> Result<Box<dyn World>, Box<dyn Error>> + Send + Sync + 'static,
    ) -> Self {
        self.worlds.push((name.into(), Arc::new(make)));
        self
    }

    /// Adds a tracer to each kernel that `boot` boots.
    pub fn tracer<T: Tracer + 'static>(mut self, make: impl Fn() -> T + 'static) -> Self {
        let extend = move |builder: Builder| builder.tracer(make());
        self.tracers.push(Box::new(extend));
        self
    }

    /// Runs the command line of the process, for a binary's `main` to return the result.
    pub fn main(self) -> ExitCode {
        let args: Vec<OsString> = env::args_os().collect();
        let code = match run(&self, &args) {
            Ok(code) => code,
            Err(error) if !error.use_stderr() => output::print_help(&error.render()),
            Err(error) => {
                // No stream is left on which this failure could be reported.
                let _ = error.print();
                ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
            }
        };
        stdio::finish();
        code
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies: Vec<&str> = self.policies.iter().map(|(name, _)| &**name).collect();
        let worlds: Vec<&str> = self.worlds.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("App")
            .field("programs", &self.programs)
            .field("policies", &policies)
            .field("worlds", &worlds)
            .finish_non_exhaustive()
    }
}

fn run(app: &App, args: &[OsString]) -> Result<ExitCode, clap::Error> {
    let programs = &app.programs;
    let path = args.first().map(Path::new);
    let name = path
        .and_then(Path::file_stem)
        .map_or_else(|| "trapline".into(), |name| name.to_string_lossy());
    let mut command = args::command(&name, app);
    let (cli, matches) = args::parse(&command, programs, args)?;
    match cli.command {
        CliCommand::Boot(options) => {
            replay::check_words(&options, args)?;
            let images = args::images(programs, &options, &matches, &command)?;
            let words = words(&name, args);
            let tracers = &app.tracers;
            boot::boot(&cli.verbosity, &options, &images, &words, None, tracers)
        }
        CliCommand::Replay(options) => {
            replay::run(programs, &command, options, &cli.verbosity, &app.tracers)
        }
        CliCommand::Debug(debug) => debug::run(programs, &command, &debug, &cli.verbosity),
        CliCommand::Explore(_) => {
            let matches = matches.subcommand_matches("explore");
            let matches = matches.expect("this is the command");
            explore::run(
                programs,
                &command,
                matches,
                &cli.verbosity,
                &words(&name, args),
            )
        }
        CliCommand::Lab(_) => {
            let matches = matches.subcommand_matches("lab");
            let matches = matches.expect("this is the command");
            lab::run(programs, matches, &cli.verbosity)
        }
        CliCommand::Trace(command) => Ok(trace::run(&command, &cli.verbosity)),
        CliCommand::Live(command) => Ok(live::run(&command, &cli.verbosity)),
        CliCommand::New(command) => Ok(new::new(&command, cli.verbosity.quiet)),
        CliCommand::List => Ok(print(list(programs).as_bytes())),
        CliCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, name, &mut script);
            Ok(print(&script))
        }
        CliCommand::Man { of } => {
            let mut page = Vec::new();
            clap_mangen::Man::new(args::find(command, &of)?).render(&mut page)?;
            Ok(print(&page))
        }
    }
}

/// The command line as text, under the binary's name.
fn words(name: &str, args: &[OsString]) -> Vec<String> {
    let words = args.iter().skip(1).map(|word| word.to_string_lossy());
    [name.into()]
        .into_iter()
        .chain(words)
        .map(Cow::into_owned)
        .collect()
}

/// A line per program: its name, and the first line of its help.
fn list(programs: &[Entry]) -> String {
    let width = programs.iter().map(|entry| entry.name.len()).max();
    let width = width.unwrap_or(0);
    let line = |entry: &Entry| {
        let command = entry.command();
        let about = command.get_about().cloned().unwrap_or_default().to_string();
        let line = format!("{:width$}  {}", entry.name, about);
        format!("{}\n", line.trim_end())
    };
    programs.iter().map(line).collect()
}
