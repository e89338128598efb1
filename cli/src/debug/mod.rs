//! `debug`: a run under a debugger that steps forward and back.
//!
//! | file | owns |
//! |---|---|
//! | `condition.rs` | what a motion waits for |
//! | `witness.rs` | the tracer that finds it |
//! | `engine.rs` | the run, and its motions |
//! | `command.rs` | the commands and their answers |
//! | `screen.rs` | the screen |

mod command;
mod condition;
mod engine;
mod screen;
mod witness;

use std::{
    ffi::OsString,
    io::{self, BufRead, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{
    Arg, Args, Command, ValueHint,
    error::{ContextKind, ErrorKind},
};
use trapline::Nanos;

use super::{
    args::{self, CliCommand},
    boot, interrupts,
    live::leave,
    net::hosts,
    output::{FAILURE, Format, Log, USAGE, Verbosity, tell, unwritten},
    panics::Panics,
    program::Entry,
    replay::{self, Run},
    stdio,
};
use command::{Answer, perform};
use engine::{Engine, Source};

/// Step through a run, forward and back
///
/// The run is one on a tape, or one of programs in the simulated world. Either is the same each
/// time. So a step back is a run from the start that ends a step earlier.
///
/// On a terminal it shows a screen. Otherwise, and with --plain or --command, it reads commands and
/// prints their answers.
#[derive(Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
The command `help` of the debugger lists its commands.

A run may have no end: then `continue` goes on until ^C. The options --max-ticks and --max-time of \
`boot` bound a run. Without a screen, a motion that takes long says where it is.

Exit codes: 0, 1 if the run cannot be booted, and 2 if a command of a script is wrong. A wrong \
command ends the script.

Examples:
  debug run.tape                               a tape of `boot --tape`, on a screen
  debug --seed 7 chat                          a program in the simulated world
  debug -c 'break fault' -c continue run.tape  a script
  debug run.tape < script                      the same from a file"
)]
pub(super) struct Debug {
    #[command(flatten)]
    verbosity: Verbosity,
    /// Perform this command, then those that follow, and leave; can be repeated
    #[arg(long = "command", short = 'c', value_name = "COMMAND")]
    commands: Vec<String>,
    /// Read commands from standard input, a line each, instead of showing a screen
    #[arg(long)]
    plain: bool,
    /// A tape; or a program with its arguments, after options of `boot`
    #[arg(value_name = "FILE|PROGRAM", value_hint = ValueHint::FilePath, required = true,
          trailing_var_arg = true, allow_hyphen_values = true)]
    what: Vec<OsString>,
}

/// Debugs a run. An error is a usage error.
pub(super) fn run(
    programs: &[Entry],
    command: &Command,
    debug: &Debug,
    verbosity: &Verbosity,
) -> Result<ExitCode, clap::Error> {
    let log = Log::new(verbosity, &debug.verbosity, Format::Text);
    let source = match source(programs, command, &debug.what, log)? {
        Ok(source) => source,
        Err(error) => return Ok(fail(&error)),
    };
    let _guard = Panics::hide();
    let engine = match Engine::new(source) {
        Ok(engine) => engine,
        Err(error) => return Ok(fail(&error)),
    };
    let is_script = debug.plain || !debug.commands.is_empty() || !io::stdin().is_terminal();
    if is_script {
        return Ok(plain(engine, &debug.commands));
    }
    interrupts::at_end(|| drop(interrupts::soon(leave)));
    Ok(match screen::show(engine, log.is_colored()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    })
}

fn fail(error: &str) -> ExitCode {
    tell(&format!("error: {error}\n"));
    ExitCode::from(FAILURE)
}

/// The run that the arguments name. The outer error is one of the command line, the inner one of
/// the file.
fn source(
    programs: &[Entry],
    command: &Command,
    what: &[OsString],
    log: Log,
) -> Result<Result<Source, String>, clap::Error> {
    let is_program = |word: &OsString| programs.iter().any(|entry| *word == entry.name);
    if let [file] = what
        && !is_program(file)
        && !file.to_string_lossy().starts_with('-')
    {
        let path = PathBuf::from(file);
        if !path.exists() {
            let why = "there is neither a program nor a tape of this name";
            return Ok(Err(format!("{}: {why}", path.display())));
        }
        if !path.is_file() {
            let why = "it is no file, and each motion back reads the tape again";
            return Ok(Err(format!("{}: {why}", path.display())));
        }
        let run = replay::open(programs, command, &path)?;
        return Ok(run.map(|run| {
            let Run {
                options, programs, ..
            } = run;
            Source {
                seed: options.seed.unwrap_or_default(),
                options,
                programs: args::loaded(&programs),
                tape: Some(path),
                log,
            }
        }));
    }
    if let [file, _, ..] = what
        && !is_program(file)
        && Path::new(file).is_file()
    {
        let file = Path::new(file).display();
        let why = format!("nothing follows the tape {file}: options of debug go before it\n");
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
    }
    if let [option, .., file] = what
        && option.to_string_lossy().starts_with('-')
        && !what.iter().any(is_program)
        && Path::new(file).is_file()
    {
        let file = Path::new(file).display();
        let why = format!("the tape {file} holds the options of its run: leave out the others\n");
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
    }
    let words = [command.get_name(), "boot", "--virtual"].map(OsString::from);
    let words: Vec<OsString> = words.into_iter().chain(what.iter().cloned()).collect();
    // The user may say it too.
    let command = &command.clone().mut_subcommand("boot", |boot| {
        boot.mut_arg("simulated", |arg| arg.overrides_with("simulated"))
    });
    let parsed = args::parse(command, programs, &words);
    let (cli, matches) = parsed.map_err(|error| misplaced(error, command))?;
    let CliCommand::Boot(options) = cli.command else {
        unreachable!("the command is boot");
    };
    if options.watching.is_any() {
        let why = "the debugger shows the run itself: leave out the options for watching one\n";
        return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
    }
    let images = args::images(programs, &options, &matches, command)?;
    options.net.network(&hosts(&images), options.max_time)?;
    Ok(Ok(Source {
        seed: options.seed.unwrap_or_else(boot::random_seed),
        options,
        programs: images,
        tape: None,
        log,
    }))
}

/// Explains an error about an option of `debug` that follows those of `boot`.
fn misplaced(error: clap::Error, command: &Command) -> clap::Error {
    let debug = command.find_subcommand("debug");
    let mut options = debug.into_iter().flat_map(Command::get_arguments);
    let name = args::text(&error, ContextKind::InvalidArg);
    let is_ours = |arg: &Arg| {
        let short = arg.get_short().map(|short| format!("-{short}"));
        let long = arg.get_long().map(|long| format!("--{long}"));
        [short, long].contains(&Some(name.clone()))
    };
    if error.kind() != ErrorKind::UnknownArgument || !options.any(is_ours) {
        return error;
    }
    let why = format!("{name} is an option of debug, and goes before the options of boot\n");
    clap::Error::raw(ErrorKind::UnknownArgument, why)
}

/// After so many steps, some seconds, a motion says where it is.
const LONG: u64 = 1 << 22;

/// Performs the commands, or those on standard input.
fn plain(mut engine: Engine, commands: &[String]) -> ExitCode {
    let stdin = io::stdin();
    let is_typed = commands.is_empty() && stdin.is_terminal();
    engine.report_from(LONG, |calls, now| {
        let now = Nanos::from(now);
        tell(&format!(
            "note: at #{calls}, {now:.6}, and going on: ^C ends it, as --max-ticks and --max-time do\n"
        ));
    });
    if is_typed && let Err(error) = interrupts::note(interrupts::INTERRUPT) {
        return fail(&format!("cannot listen for interrupts: {error}"));
    }
    let mut given = commands.iter().cloned();
    let mut typed = stdin.lock().lines();
    loop {
        if is_typed && let Err(code) = print("> ") {
            return code;
        }
        let line = match commands.is_empty() {
            false => given.next().map(Ok),
            true => typed.next(),
        };
        let line = match line {
            None => return ExitCode::SUCCESS,
            Some(Err(error)) => return fail(&format!("cannot read the commands: {error}")),
            Some(Ok(line)) => line,
        };
        let echo = if is_typed {
            String::new()
        } else {
            format!("> {line}\n")
        };
        // An older interrupt was not for this command.
        interrupts::take();
        let answer = match perform(&mut engine, &line) {
            Ok(Answer::Quit) => return ExitCode::SUCCESS,
            Ok(Answer::Moved(text) | Answer::Text(text)) => echo + &text,
            Err(why) if is_typed => format!("{why}\n"),
            Err(why) => {
                tell(&format!("error: in the command {line:?}: {why}\n"));
                return ExitCode::from(USAGE);
            }
        };
        if let Err(code) = print(&answer) {
            return code;
        }
    }
}

/// Prints to standard output. An error is the exit code: its reader may have left.
fn print(text: &str) -> Result<(), ExitCode> {
    stdio::print(text.as_bytes()).map_err(|error| match unwritten(&error) {
        None => ExitCode::SUCCESS,
        Some(message) => fail(&message),
    })
}
