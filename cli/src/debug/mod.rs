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
    path::Path,
    process::ExitCode,
    rc::Rc,
};

use clap::{
    Arg, Args, Command, ValueHint,
    error::{ContextKind, ErrorKind},
};
use trapline::Nanos;

use super::{
    boot,
    commands::{Commands, text},
    live::terminal::leave,
    options::BootLine,
    output::{Failure, Format, Log, USAGE, Verbosity, tell},
    panics::Panics,
    program::hosts,
    replay, signals, stdio,
    values::{among, usage},
};
use command::{Done, perform};
use engine::{Engine, Origin};

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

Exit codes: 0, 1 if the run cannot be booted or a command has come to where a tape is cut or damaged, and 2 if \
a command of a script is wrong. A wrong command ends the script.

Examples:
  boot --tape run.tape --seed 3 gossip           a tape
  debug run.tape                                 its run, on a screen
  debug --seed 7 deadlock                        a program, simulated
  debug -c continue -c 'back wake tid 2' deadlock
  debug -c 'until print line 6' -c tree run.tape
  debug run.tape < script                        commands from a file"
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

/// The usage of the command.
pub(super) fn usage_of(name: &str) -> String {
    format!(
        "{name} debug [OPTIONS] FILE\n       \
         {name} debug [OPTIONS] [OPTIONS OF BOOT] PROGRAM [ARGS]..."
    )
}

/// Debugs a run. An error is a usage error.
pub(super) fn run(
    commands: Commands<'_>,
    debug: &Debug,
    verbosity: &Verbosity,
) -> Result<ExitCode, clap::Error> {
    let log = Log::new(verbosity, &debug.verbosity, Format::Text);
    log.end(debugged(commands, debug, log))
}

fn debugged(commands: Commands<'_>, debug: &Debug, log: Log) -> Result<ExitCode, Failure> {
    let origin = origin(commands, &debug.what, log)?;
    let _guard = Panics::hide();
    let engine = Engine::new(origin)?;
    if debug.plain || !debug.commands.is_empty() || !io::stdin().is_terminal() {
        return plain(engine, &debug.commands, log);
    }
    signals::at_end(|| drop(signals::soon(leave)));
    screen::show(engine, log.colored)?;
    Ok(ExitCode::SUCCESS)
}

/// The run that the arguments name.
fn origin(commands: Commands<'_>, what: &[OsString], log: Log) -> Result<Origin, Failure> {
    let is_program = |word: &OsString| commands.programs.iter().any(|entry| *word == entry.name);
    let is_option = |word: &OsString| word.to_string_lossy().starts_with('-');
    let is_file = |word: &OsString| Path::new(word).is_file();
    let why = match what {
        [word] if !is_program(word) && !is_option(word) => {
            return taped(commands, Path::new(word), log);
        }
        [word, _, ..] if !is_program(word) && is_file(word) => format!(
            "nothing follows the tape {}: options of debug go before it",
            word.display()
        ),
        [option, .., word]
            if is_option(option) && !what.iter().any(is_program) && is_file(word) =>
        {
            format!(
                "the tape {} holds the options of its run: leave out the others",
                word.display()
            )
        }
        _ => return Ok(simulated(commands, what, log)?),
    };
    Err(usage(why).into())
}

/// The run on a tape.
fn taped(commands: Commands<'_>, path: &Path, log: Log) -> Result<Origin, Failure> {
    if let Some(first) = replay::first_of_several(path) {
        let why = replay::of_several(path, "the debugger steps through one", &first);
        return Err(usage(why).into());
    }
    let why = match path {
        path if !path.exists() => {
            let (name, programs) = (path.to_string_lossy(), commands.programs);
            let names: Vec<&str> = programs.iter().map(|entry| entry.name).collect();
            match among("program", &name, &names, ToString::to_string) {
                Err(near) if near.ends_with('?') => return Err(near.into()),
                _ => "there is neither a program nor a tape of this name",
            }
        }
        path if !path.is_file() => "it is no file, and each motion back reads the tape again",
        _ => {
            let line = replay::open(commands, path)?.1;
            return Ok(Origin {
                seed: line.options.seed.unwrap_or_default(),
                line,
                tape: Some(path.to_path_buf()),
                log,
                broken: Rc::default(),
            });
        }
    };
    Err(format!("{}: {why}", path.display()).into())
}

/// The run of a program in the simulated world.
fn simulated(commands: Commands<'_>, what: &[OsString], log: Log) -> Result<Origin, clap::Error> {
    let words = [commands.command.get_name(), "boot", "--virtual"].map(OsString::from);
    let words: Vec<OsString> = words.into_iter().chain(what.iter().cloned()).collect();
    let line = BootLine::parse(commands, &words);
    let line = line.map_err(|error| misplaced(error, commands.command))?;
    let line = line.expect("the command is boot");
    let options = &line.options;
    if options.watching.is_any() {
        let why = "the debugger shows the run itself: leave out the options for watching one";
        return Err(usage(why));
    }
    if options.kernels > 1 {
        return Err(usage(
            "the debugger steps through one kernel: leave --kernels out",
        ));
    }
    boot::check(&line, true, false)?;
    options
        .net
        .network(&hosts(&line.programs), options.max_time)?;
    Ok(Origin {
        seed: options.seed.unwrap_or_else(boot::random_seed),
        line,
        tape: None,
        log,
        broken: Rc::default(),
    })
}

/// Explains an error about an option of `debug` that follows those of `boot`.
fn misplaced(error: clap::Error, command: &Command) -> clap::Error {
    let debug = command.find_subcommand("debug");
    let mut options = debug.into_iter().flat_map(Command::get_arguments);
    let name = text(&error, ContextKind::InvalidArg);
    let is_ours = |arg: &Arg| {
        let short = arg.get_short().map(|short| format!("-{short}"));
        let long = arg.get_long().map(|long| format!("--{long}"));
        [short, long].contains(&Some(name.clone()))
    };
    match error.kind() == ErrorKind::UnknownArgument && options.any(is_ours) {
        true => usage(format!(
            "{name} is an option of debug, and goes before the options of boot"
        )),
        false => error,
    }
}

/// A tape that is cut or damaged is a failure, as for every reader, if the commands have come to that.
fn end(engine: &Engine) -> Result<ExitCode, Failure> {
    match engine.broken() {
        Some(why) => Err(why.into()),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// After so many steps, some seconds, a motion says where it is.
const LONG: u64 = 1 << 22;

/// Performs the commands, or those on standard input.
fn plain(mut engine: Engine, commands: &[String], log: Log) -> Result<ExitCode, Failure> {
    let stdin = io::stdin();
    let is_typed = commands.is_empty() && stdin.is_terminal();
    engine.report_from(LONG, |calls, now| {
        let now = Nanos::from(now);
        tell(&format!(
            "note: at #{calls}, {now:.6}, and going on: ^C ends it, as --max-ticks and --max-time do\n"
        ));
    });
    if is_typed {
        signals::catch(signals::INTERRUPT)?;
    }
    let mut lines: Box<dyn Iterator<Item = io::Result<String>>> = match commands.is_empty() {
        true => Box::new(stdin.lock().lines()),
        false => Box::new(commands.iter().cloned().map(Ok)),
    };
    loop {
        if is_typed {
            stdio::print(b"> ")?;
        }
        let Some(line) = lines.next() else {
            return end(&engine);
        };
        let line = line.map_err(|error| format!("cannot read the commands: {error}"))?;
        // An older interrupt was not for this command.
        signals::take();
        let answer = match perform(&mut engine, &line) {
            Ok(Done::Quit) => return end(&engine),
            Ok(Done::Moved(text) | Done::Text(text)) if is_typed => text,
            Ok(Done::Moved(text) | Done::Text(text)) => format!("> {line}\n{text}"),
            Err(why) if is_typed => format!("{why}\n"),
            Err(why) => {
                log.error(&format!("in the command {line:?}: {why}"));
                return Ok(ExitCode::from(USAGE));
            }
        };
        stdio::print(answer.as_bytes())?;
    }
}
