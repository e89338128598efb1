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
//! | `args.rs` | the commands and options, and what is said about wrong ones |
//! | `boot.rs` | `boot`: the kernel's settings, exit codes |
//! | `held.rs` | the standard streams while a screen has the terminal |
//! | `interrupts.rs` | signals that end a run |
//! | `live/` | looking at a kernel while it runs |
//! | `log.rs` | what goes to standard error, as text or JSON; the layer under `--trace` |
//! | `new.rs`, `template/` | `new`: the crate that it makes |
//! | `record.rs` | `--record` |
//! | `summary.rs` | the tables of `--summary` |
//! | `trace/` | `trace`: what recordings show |
//! | `words.rs` | the splitting of `--with` |

mod args;
mod boot;
mod held;
mod interrupts;
mod live;
mod log;
mod new;
mod record;
mod summary;
mod trace;
mod words;

use std::{
    borrow::Cow,
    env,
    error::Error,
    ffi::OsString,
    fmt,
    io::{self, Write},
    net::SocketAddr,
    path::Path,
    process::ExitCode,
    time::Duration,
};

use clap::{ArgMatches, Command};

use crate::{Errno, Kernel, Os, Tid};
use args::Order;

/// Something went wrong: a task failed, or the kernel met an I/O error.
const FAILURE: u8 = 1;
/// The command line makes no sense.
const USAGE: u8 = 2;

/// A program that can be booted from the command line.
///
/// The arguments are its fields; the struct's doc comment is its `--help`, whose first line
/// `list` shows.
pub trait Program: clap::Args + 'static {
    /// Runs it. An error is the end of its task as [`Exit::Failed`](crate::Exit::Failed).
    #[expect(
        async_fn_in_trait,
        reason = "a kernel and its tasks live on one thread"
    )]
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>>;
}

/// A [`Program`] under its name, of [`program`].
#[derive(Clone, Copy)]
pub struct Entry {
    name: &'static str,
    command: fn(Command) -> Command,
    load: fn(&'static str, &ArgMatches) -> Result<Image, clap::Error>,
}

/// A program with its arguments, ready to be started.
type Image = Box<dyn FnOnce(&mut Kernel) -> Result<Tid, Errno>>;

/// Names a program, for [`main`].
#[must_use]
pub fn program<P: Program>(name: &'static str) -> Entry {
    Entry {
        name,
        command: P::augment_args,
        load: |name, matches| {
            let program = P::from_arg_matches(matches)?;
            Ok(Box::new(move |kernel| {
                kernel.spawn(name, async move |os| program.main(os).await)
            }))
        },
    }
}

/// The command line of a binary with these programs, for its `main` to return. The binary's name
/// is that under which it was started.
pub fn main(programs: impl IntoIterator<Item = Entry>) -> ExitCode {
    let programs: Vec<Entry> = programs.into_iter().collect();
    let args: Vec<OsString> = env::args_os().collect();
    match run(&programs, &args) {
        Ok(code) => code,
        Err(error) => {
            // There is nobody to tell that nobody listens.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
        }
    }
}

/// Reads a duration such as `500ms`, `10s` or `1h 30m`: a `value_parser` for arguments.
///
/// *Errors:* a text that says what a duration looks like.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "it takes a number and a unit, such as 500ms, 10s or 2m".to_string())
}

/// Reads an address such as `127.0.0.1:45000` or `[::1]:0`: a `value_parser` for arguments.
///
/// *Errors:* a text that says what an address looks like.
pub fn addr(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "it takes an IP address and a port, such as 127.0.0.1:8080 or [::1]:0".into())
}

fn run(programs: &[Entry], args: &[OsString]) -> Result<ExitCode, clap::Error> {
    let path = args.first().map(Path::new);
    let name = path
        .and_then(Path::file_stem)
        .map_or_else(|| "trapline".into(), |name| name.to_string_lossy());
    let mut command = args::command(&name, programs);
    let (cli, matches) = args::parse(&command, programs, args)?;
    match &cli.order {
        Order::Boot(options) => {
            let images = args::images(programs, options, &matches)?;
            boot::boot(&cli.tone, options, images, &words(&name, args))
        }
        Order::Trace(order) => Ok(trace::run(order, &cli.tone)),
        Order::Live(order) => Ok(live::run(order, &cli.tone)),
        Order::New(order) => Ok(new::new(order, cli.tone.quiet)),
        Order::List => Ok(print(list(programs).as_bytes())),
        Order::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, name, &mut script);
            Ok(print(&script))
        }
        Order::Man { of } => {
            let mut page = Vec::new();
            clap_mangen::Man::new(args::find(command, of)?).render(&mut page)?;
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

/// Writes data.
fn print(data: &[u8]) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(data).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match unwritten(&error) {
            None => ExitCode::SUCCESS,
            Some(message) => {
                log::tell(&format!("error: {message}\n"));
                ExitCode::from(FAILURE)
            }
        },
    }
}

/// What is to be said when standard output cannot be written to. That nobody reads it to its end is
/// no error.
fn unwritten(error: &io::Error) -> Option<String> {
    let is_unread = error.kind() == io::ErrorKind::BrokenPipe;
    (!is_unread).then(|| format!("cannot write to standard output: {error}"))
}

impl Entry {
    fn command(&self) -> Command {
        (self.command)(Command::new(self.name))
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.name).finish()
    }
}
