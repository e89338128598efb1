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
//! A file has the name of its command or option. The others:
//!
//! | file | owns |
//! |---|---|
//! | `amounts.rs`, `measures.rs` | percentiles; response, turnaround and waiting of a task |
//! | `app.rs`, `program.rs` | what a binary adds to the command line; a program on its host |
//! | `args.rs`, `commands.rs` | the commands; reading a command line, and the messages about a wrong one |
//! | `attached.rs`, `stuck.rs` | what a tape does not hold: I/O of a program's own, and a wait for it |
//! | `cores.rs`, `together.rs` | `boot --kernels`: the programs in several kernels; what they print in a replay |
//! | `crash.rs`, `panics.rs`, `signals.rs` | signals that kill; panics of tasks; signals that end a run |
//! | `examples.rs` | the examples of a help |
//! | `excerpt.rs` | lines of a source file, around a place |
//! | `desk.rs` | what the shell can change of the run that it is in |
//! | `log.rs` | `--trace`: the layer under it, and what it shows |
//! | `options.rs` | the options of `boot`, which other commands share |
//! | `outfile.rs` | a file that a command writes at its end |
//! | `output.rs` | messages on standard error, data on standard output, exit codes |
//! | `outside.rs`, `tape.rs` | the world of a run; what the run has to do with a tape |
//! | `progress.rs` | the line on a terminal that says how far long work has come |
//! | `reenact/` | `replay --explore`: the inputs of a taped run under other schedules |
//! | `stdio.rs` | the standard streams: while a screen has the terminal, and with a reader that stalls |
//! | `table.rs`, `units.rs` | tables; numbers and times as text |
//! | `values.rs`, `words.rs` | values of arguments; the splitting and quoting of words |
//!
//! `excerpt`, `measures`, `output`, `policy`, `program`, `progress`, `signals`, `stdio`, `table`, `units`, `values`, `words`
//! and `world` are at the bottom: they use no command. No files import each other in a circle.
//! A file in `live/`, `trace/` or `debug/` uses files below it and never its folder's `mod.rs`;
//! `trace/` and `debug/` use `live/`, and not the other way round.

/// The README's programs, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

mod amounts;
mod app;
mod args;
mod as_test;
mod attached;
mod boot;
mod commands;
mod cores;
mod crash;
mod debug;
mod desk;
mod examples;
mod excerpt;
mod exits;
mod explore;
mod grade;
mod inject;
mod lab;
mod list;
mod live;
mod log;
mod measures;
mod net;
mod new;
mod options;
mod outfile;
mod output;
mod outside;
mod panics;
mod policy;
mod program;
mod progress;
mod record;
mod reenact;
mod replay;
mod shell;
mod signals;
mod stdio;
mod stuck;
mod summary;
mod table;
mod tape;
mod together;
mod tour;
mod trace;
mod units;
mod values;
mod words;
mod world;

use std::{
    env,
    ffi::{OsStr, OsString},
    iter,
    path::Path,
    process::ExitCode,
};

use clap::FromArgMatches;

pub use app::App;
use args::{Cli, CliCommand};
use commands::Commands;
use options::BootLine;
use output::{Log, USAGE, print};
pub use program::{Entry, Program, program};
pub use progress::Meter;
pub use shell::shell;
pub use values::{addr, duration};

/// The command line of a binary with these programs, for its `main` to return. The binary's name is
/// the name that started it.
pub fn main(programs: impl IntoIterator<Item = Entry>) -> ExitCode {
    App::new(programs).main()
}

impl App {
    /// Runs the command line of the process, for a binary's `main` to return the result.
    pub fn main(self) -> ExitCode {
        let args: Vec<OsString> = env::args_os().collect();
        let run = run(&self, &args).or_else(|error| match error.use_stderr() {
            true => Err(error),
            false => Log::PLAIN.end(output::print_help(&error.render())),
        });
        let code = run.unwrap_or_else(|error| {
            // No stream is left on which this failure could be reported.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
        });
        log::finish();
        stdio::finish();
        code
    }
}

fn run(app: &App, args: &[OsString]) -> Result<ExitCode, clap::Error> {
    let name = args.first().and_then(|path| Path::new(path).file_stem());
    let name = name.map_or_else(|| "trapline".into(), OsStr::to_string_lossy);
    let mut command = args::command(&name, app);
    let (programs, tracers) = (&app.programs, &app.tracers);
    let commands = Commands {
        command: &command,
        programs,
        policies: &app.policies,
    };
    let matches = commands.parse(args)?;
    let Cli {
        verbosity,
        command: chosen,
    } = Cli::from_arg_matches(&matches)?;
    let (_, matches) = matches.subcommand().expect("clap requires a command");
    let log = Log::of_errors(&verbosity);
    log.end(match chosen {
        CliCommand::Boot(options) => {
            tape::check_words(&options, args)?;
            let line = BootLine::new(commands, options, matches)?;
            if line.options.kernels > 1 {
                return cores::boot(&verbosity, &line, &words(&name, args), None, tracers);
            }
            return boot::boot(&verbosity, &line, &words(&name, args), None, tracers);
        }
        CliCommand::Shell(line) => {
            tape::check_words(&line.boot, args)?;
            let line = BootLine::of_shell(commands, line.boot, matches)?;
            return boot::boot(&verbosity, &line, &words(&name, args), None, tracers);
        }
        CliCommand::Replay(options) => return replay::run(commands, options, &verbosity, tracers),
        CliCommand::Debug(debug) => return debug::run(commands, &debug, &verbosity),
        CliCommand::Explore(options) => {
            explore::run(commands, *options, matches, log, &words(&name, args))
        }
        CliCommand::Grade(line) => grade::run(commands, &line),
        CliCommand::Lab(lab) => lab::run(programs, &lab, matches, log),
        CliCommand::Trace(command) => trace::run(&command, &verbosity),
        CliCommand::Live(command) => live::run(&command, &verbosity),
        CliCommand::New(command) => new::new(&command, log),
        CliCommand::Tour(command) => tour::run(&command, programs, log),
        CliCommand::List(list) => print(list.text(app).as_bytes()),
        CliCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, name, &mut script);
            print(&script)
        }
        CliCommand::Man { of } => {
            let mut page = Vec::new();
            clap_mangen::Man::new(args::find(command, &of)?).render(&mut page)?;
            print(&page)
        }
    })
}

fn words(name: &str, args: &[OsString]) -> Vec<String> {
    let words = args
        .iter()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned());
    iter::once(name.to_string()).chain(words).collect()
}
