//! The command line, for any set of programs. Uses the crate's public API only.
//!
//! A program is a `clap` argument struct with an async body. A binary lists its programs and has
//! the whole command line under its own name:
//!
//! ```no_run
//! use std::{error::Error, process::ExitCode, time::Duration};
//! use trapline::{Os, Program, cli};
//!
//! /// Says hello, again and again.
//! #[derive(clap::Args)]
//! struct Hello {
//!     /// How often
//!     #[arg(long, default_value_t = 3)]
//!     count: u32,
//!     /// The time between two greetings
//!     #[arg(long, value_parser = cli::duration, default_value = "1s")]
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
//!     cli::main([cli::program::<Hello>("hello")])
//! }
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `args.rs` | the commands and options, and the messages about wrong ones |
//! | `boot.rs` | `boot`: the kernel's settings, exit codes |
//! | `inject.rs` | `--inject` |
//! | `explore.rs`, `cluster.rs` | `explore`: the search for a schedule that breaks a program; its part in a cluster |
//! | `interrupts.rs` | signals that end a run |
//! | `live/` | looking at a kernel while it runs |
//! | `log.rs` | `--trace`: the layer under it, and what it shows |
//! | `net.rs` | the simulated network: `--on`, `--net`, `--fault` |
//! | `new.rs`, `template/` | `new`: the crate that it makes |
//! | `output.rs` | messages on standard error, data on standard output, exit codes |
//! | `policy.rs` | `--policy`: the policies by name |
//! | `program.rs` | a program under its name |
//! | `record.rs` | `--record` |
//! | `replay.rs` | `--tape`, and `replay`: a taped run again |
//! | `stdio.rs` | the standard streams while a screen has the terminal |
//! | `summary.rs` | the tables of `--summary` |
//! | `table.rs` | tables for people |
//! | `trace/` | `trace`: what recordings show |
//! | `values.rs` | values of arguments |
//! | `words.rs` | the splitting of `--with` |
//!
//! `output`, `policy`, `program`, `stdio`, `table`, `values` and `words` are at the bottom: they use no command.
//! A file in `live/` or `trace/` uses files below it and never its folder's `mod.rs`; `trace/` uses
//! `live/`, and not the other way round.

mod args;
mod boot;
mod cluster;
mod explore;
mod inject;
mod interrupts;
mod live;
mod log;
mod net;
mod new;
mod output;
mod policy;
mod program;
mod record;
mod replay;
mod stdio;
mod summary;
mod table;
mod trace;
mod values;
mod words;

use std::{borrow::Cow, env, ffi::OsString, path::Path, process::ExitCode};

use args::CliCommand;
use output::{USAGE, print};
pub use program::{Entry, Program, program};
pub use values::{addr, duration};

/// The command line of a binary with these programs, for its `main` to return. The binary's name is
/// the name that started it.
pub fn main(programs: impl IntoIterator<Item = Entry>) -> ExitCode {
    let programs: Vec<Entry> = programs.into_iter().collect();
    let args: Vec<OsString> = env::args_os().collect();
    match run(&programs, &args) {
        Ok(code) => code,
        Err(error) => {
            // No stream is left on which this failure could be reported.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
        }
    }
}

fn run(programs: &[Entry], args: &[OsString]) -> Result<ExitCode, clap::Error> {
    let path = args.first().map(Path::new);
    let name = path
        .and_then(Path::file_stem)
        .map_or_else(|| "trapline".into(), |name| name.to_string_lossy());
    let mut command = args::command(&name, programs);
    let (cli, matches) = args::parse(&command, programs, args)?;
    match cli.command {
        CliCommand::Boot(options) => {
            let images = args::images(programs, &options, &matches, &command)?;
            let words = words(&name, args);
            boot::boot(&cli.verbosity, &options, &images, &words, None)
        }
        CliCommand::Replay(replay) => replay::run(programs, &command, replay, &cli.verbosity),
        CliCommand::Explore(_) => {
            let matches = matches.subcommand_matches("explore");
            let matches = matches.expect("this is the command");
            explore::run(
                &name,
                programs,
                matches,
                &cli.verbosity,
                &words(&name, args),
            )
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
