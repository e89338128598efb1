//! The commands of a binary and its programs: reading a command line, and the messages about a wrong
//! one.

use std::{
    error::Error,
    ffi::OsString,
    num::{IntErrorKind, ParseFloatError, ParseIntError},
};

use clap::{
    Arg, ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use trapline::MayFault;

use super::{
    net,
    policy::Register,
    program::{Entry, Placed},
    values::usage,
    words,
};

/// The commands of a binary, and the programs that they run.
#[derive(Clone, Copy)]
pub(super) struct Commands<'a> {
    pub(super) command: &'a Command,
    pub(super) programs: &'a [Entry],
    pub(super) policies: &'a [(String, Register)],
}

impl Commands<'_> {
    pub(super) fn parse(self, args: &[OsString]) -> Result<ArgMatches, clap::Error> {
        let matches = self.command.clone().try_get_matches_from(args);
        matches.map_err(|error| explain(error, self.command.clone(), self.programs))
    }

    /// The programs of the command `name` on their hosts: those of `--on`, the named one, and those of
    /// `--with`.
    pub(super) fn placed(
        self,
        name: &str,
        net: &net::Options,
        with: &[String],
        named: Option<(&str, &ArgMatches)>,
    ) -> Result<Vec<Placed>, clap::Error> {
        if named.is_none() && net.on.is_empty() {
            let error = clap::Error::new(ErrorKind::MissingSubcommand);
            return Err(explain_program(error, child(self.command, name)));
        }
        let mut all = Vec::new();
        for place in &net.on {
            all.push(self.line(&place.host, "--on", &place.text, &place.line)?);
        }
        let host = net.main_host();
        if let Some(named) = named {
            all.push(Placed::new(self.programs, host, named)?);
        }
        for with in with {
            all.push(self.line(host, "--with", with, with)?);
        }
        Ok(all)
    }

    /// The program of an option such as `--with`, whose value is `text`. Its errors name the option.
    pub(super) fn line(
        self,
        host: &str,
        option: &'static str,
        text: &str,
        line: &str,
    ) -> Result<Placed, clap::Error> {
        let locate = |kind, message: &str| {
            let message = format!("in {option} {text:?}: {}\n", message.trim_end());
            clap::Error::raw(kind, message)
        };
        let words = words::split(line).map_err(|error| locate(ErrorKind::InvalidValue, error))?;
        let command = Command::new(option)
            .no_binary_name(true)
            .disable_help_subcommand(true)
            .subcommand_required(true)
            .override_usage(format!("{option} \"PROGRAM [ARGS]...\""))
            .subcommands(self.programs.iter().map(Entry::command));
        let matches = command.clone().try_get_matches_from(words);
        let placed = matches.and_then(|matches| {
            let named = matches.subcommand().expect("clap requires a program");
            Placed::new(self.programs, host, named)
        });
        placed.map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp => error,
            ErrorKind::MissingSubcommand => locate(error.kind(), "it names no program"),
            kind => locate(kind, &message(explain_program(error, command))),
        })
    }
}

/// Lets the values of a command be negative numbers, so that their parsers explain what they take.
pub(super) fn with_negative_numbers(command: Command) -> Command {
    let is_digit = |arg: &Arg| arg.get_short().is_some_and(|name| name.is_ascii_digit());
    // `-1` is an option there.
    let has_digit = command.get_arguments().any(is_digit);
    let allow = |arg: Arg| {
        let numbers = arg.get_num_args();
        let has_value = numbers.is_none_or(|numbers| numbers.takes_values());
        match has_value && arg.get_action().takes_values() && !has_digit {
            true => arg.allow_negative_numbers(true),
            false => arg,
        }
    };
    let command = command.mut_args(allow);
    command.mut_subcommands(with_negative_numbers)
}

/// A command of the binary `name` that takes a program.
pub(super) fn of_programs(command: Command, name: &str) -> Command {
    let usage = format!("{name} {} [OPTIONS] PROGRAM [ARGS]...", command.get_name());
    command
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand_help_heading("Programs")
        .subcommand_value_name("PROGRAM")
        .override_usage(usage)
}

/// Adds a hint to an error of `clap`'s where this crate knows more than `clap`.
fn explain(error: clap::Error, mut command: Command, programs: &[Entry]) -> clap::Error {
    // A help needs no hint.
    if !error.use_stderr() {
        return error;
    }
    let mut error = plain(error);
    command.build();
    // Only the usages of boot, explore and lab have a PROGRAM.
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let of_boot = usage.contains("PROGRAM");
    let hint = match error.kind() {
        ErrorKind::InvalidSubcommand | ErrorKind::MissingSubcommand if of_boot => {
            let is_of = |name: &&str| usage.contains(&format!(" {name} [OPTIONS] PROGRAM"));
            let name = ["explore", "lab"].into_iter().find(is_of);
            return explain_program(error, child(&command, name.unwrap_or("boot")));
        }
        ErrorKind::InvalidSubcommand => {
            let name = text(&error, ContextKind::InvalidSubcommand);
            if programs.iter().any(|entry| entry.name == name) {
                let order = ContextValue::String(format!("boot {name}"));
                error.insert(ContextKind::SuggestedSubcommand, order);
            }
            None
        }
        ErrorKind::ArgumentConflict if of_boot => conflict(&error).map(str::to_string),
        ErrorKind::UnknownArgument if !of_boot => elsewhere(&error, &command, &usage),
        // Options of the programs are in no list.
        ErrorKind::UnknownArgument => before_the_command(&error, &command, &usage),
        ErrorKind::MissingRequiredArgument if names_socket(&error) => {
            let name = command.get_name();
            Some(format!(
                "a kernel has a socket if it was booted with one: {name} boot --monitor SOCKET PROGRAM"
            ))
        }
        // Other options have no calls as their values.
        ErrorKind::InvalidValue if text(&error, ContextKind::InvalidArg).starts_with("--call ") => {
            let name = text(&error, ContextKind::InvalidValue);
            let why = MayFault::call(&name).err().unwrap_or_default();
            why.split_once(": ").map(|(_, hint)| hint.to_string())
        }
        _ => None,
    };
    if let Some(hint) = hint {
        let hint = ContextValue::StyledStrs(vec![hint.into()]);
        error.insert(ContextKind::Suggested, hint);
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

/// Says what a number is where `clap` has the words of Rust's parsers.
fn plain(error: clap::Error) -> clap::Error {
    let source = error.source();
    let number = source.and_then(|source| source.downcast_ref::<ParseIntError>());
    let fraction = source.and_then(|source| source.downcast_ref::<ParseFloatError>());
    let why = match number.map(ParseIntError::kind) {
        None if fraction.is_some() => "it takes a number, such as 0.5",
        None => return error,
        Some(IntErrorKind::PosOverflow) => "the number is too large",
        Some(IntErrorKind::NegOverflow) => "the number is too small",
        Some(IntErrorKind::Zero) => "it takes a whole number that is not 0",
        Some(_) => "it takes a whole number, such as 10",
    };
    let (value, arg) = (ContextKind::InvalidValue, ContextKind::InvalidArg);
    let (value, arg) = (text(&error, value), text(&error, arg));
    usage(format!(
        "invalid value '{value}' for '{arg}': {why}\n\nFor more information, try '--help'."
    ))
}

/// What an error says, for a line that names its kind.
pub(super) fn message(error: clap::Error) -> String {
    let text = plain(error).to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    text.trim_end().into()
}

/// Options of `boot` that exclude each other, and what to do instead.
const CONFLICTS: [(&str, &str, &str); 6] = [
    (
        "--virtual",
        "--tape",
        "a virtual run needs no tape: --seed repeats it",
    ),
    (
        "--world",
        "--top",
        "the screen shows what the real world prints: use --monitor SOCKET, and \
         `top --attach SOCKET`",
    ),
    ("--virtual", "--top", OVER_AT_ONCE),
    ("--virtual", "--monitor", OVER_AT_ONCE),
    (
        "--virtual",
        "--disk",
        "each host of the simulated network has a disk of its own",
    ),
    (
        "--virtual",
        "--world",
        "the network is that of the simulated world, and of no other",
    ),
];

const OVER_AT_ONCE: &str =
    "a virtual run is over at once: --record it, and read the recording with `trace`";

fn conflict(error: &clap::Error) -> Option<&'static str> {
    let named = [ContextKind::InvalidArg, ContextKind::PriorArg].map(|kind| error.get(kind));
    let named = named.into_iter().flatten().flat_map(|named| match named {
        ContextValue::String(name) => vec![name.clone()],
        ContextValue::Strings(names) => names.clone(),
        _ => Vec::new(),
    });
    let named: Vec<String> = named.collect();
    // The options of the network imply it.
    let is_virtual = |name: &String| {
        let option = name.split(' ').next().unwrap_or_default();
        ["--on", "--net", "--fault", "--chaos"].contains(&option)
    };
    let has = |option: &str| {
        let is_it = |name: &String| name.starts_with(option);
        named.iter().any(is_it) || (option == "--virtual" && named.iter().any(is_virtual))
    };
    let both = |(one, other, why)| (has(one) && has(other)).then_some(why);
    CONFLICTS.into_iter().find_map(both)
}

/// Whether what is missing is the socket of a running kernel.
fn names_socket(error: &clap::Error) -> bool {
    let missing = error.get(ContextKind::InvalidArg);
    matches!(missing, Some(ContextValue::Strings(names)) if names.iter().any(|name| name.starts_with("--attach")))
}

/// Where an option of all commands belongs, which a command does not know behind its name.
fn before_the_command(error: &clap::Error, command: &Command, usage: &str) -> Option<String> {
    let name = text(error, ContextKind::InvalidArg);
    let words = usage
        .split(' ')
        .skip_while(|word| *word != command.get_name());
    let is_name = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_lowercase());
    let words: Vec<&str> = words.skip(1).take_while(is_name).collect();
    let option = command.get_arguments().find(|arg| is_named(arg, &name))?;
    let value = option
        .get_value_names()
        .filter(|_| option.get_action().takes_values());
    let value = value.map_or(String::new(), |names| format!(" {}", names.join(" ")));
    let (binary, words) = (command.get_name(), words.join(" "));
    let line = format!("{binary} {name}{value} {words}");
    Some(format!(
        "{name} goes before the command: {}",
        line.trim_end()
    ))
}

/// Where an option belongs that a command does not know.
fn elsewhere(error: &clap::Error, command: &Command, usage: &str) -> Option<String> {
    let name = text(error, ContextKind::InvalidArg);
    let option = name.split('=').next()?;
    let of_boot = has(&child(command, "boot"), option);
    if !usage.contains(" boot ")
        && let Some(before) = before_the_command(error, command, usage)
    {
        return Some(before);
    }
    if of_boot && usage.contains(" replay ") {
        return Some(format!(
            "the tape holds the options of its run: boot with {name} and --tape FILE, and replay \
             that tape"
        ));
    }
    let others = observers(command).filter(|(_, other)| has(other, option));
    let others: Vec<String> = others.map(|(name, _)| name).collect();
    match &others[..] {
        [] => of_boot.then(|| format!("{name} is an option of boot, and goes before the program")),
        others => Some(format!("{name} is an option of {}", others.join(", "))),
    }
}

/// The commands that look at a running kernel or a trace, by their whole names.
fn observers(command: &Command) -> impl Iterator<Item = (String, &Command)> {
    let live = command.get_subcommands();
    let live = live.filter(|live| has(live, "--attach"));
    let trace = command.find_subcommand("trace").into_iter();
    let trace = trace.flat_map(Command::get_subcommands);
    live.map(|live| (live.get_name().to_string(), live))
        .chain(trace.map(|trace| (format!("trace {}", trace.get_name()), trace)))
}

fn has(command: &Command, option: &str) -> bool {
    command.get_arguments().any(|arg| is_named(arg, option))
}

/// Whether an option has this name, such as `--quiet` or `-q`.
fn is_named(arg: &Arg, option: &str) -> bool {
    match option.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => {
            let mut short = arg.get_short().into_iter();
            short.any(|name| option == format!("-{name}"))
        }
    }
}

fn child(command: &Command, name: &str) -> Command {
    let child = command.find_subcommand(name);
    child.expect("there is one").clone()
}

/// Turns an error about a program's name into one that says so.
fn explain_program(error: clap::Error, mut command: Command) -> clap::Error {
    let message = match error.kind() {
        ErrorKind::MissingSubcommand => "name a program to boot".to_string(),
        ErrorKind::InvalidSubcommand => {
            let name = text(&error, ContextKind::InvalidSubcommand);
            let near = match error.get(ContextKind::SuggestedSubcommand) {
                Some(ContextValue::Strings(names)) => names.last(),
                Some(ContextValue::String(name)) => Some(name),
                _ => None,
            };
            let near = near.map_or(String::new(), |near| format!(": did you mean '{near}'?"));
            format!("there is no program '{name}'{near}")
        }
        _ => return error,
    };
    command.error(
        error.kind(),
        format!("{message}\n\nThe command `list` shows them all."),
    )
}

/// What an error of `clap`'s says of this kind; empty if it says nothing.
pub(super) fn text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    #[test]
    fn a_flag_that_is_a_digit_is_no_negative_number() {
        let flag = Arg::new("one").short('1').action(ArgAction::SetTrue);
        let count = Arg::new("count").long("count");
        let head = Command::new("head").args([flag, count, Arg::new("file")]);
        let head = with_negative_numbers(head);
        let matches = head.try_get_matches_from(["head", "-1", "file"]);
        let matches = matches.expect("both are known");
        assert!(matches.get_flag("one"));
        assert_eq!(matches.get_one("file"), Some(&"file".to_string()));
    }
}
