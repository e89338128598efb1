//! `explore`: a program under many schedules, and the joining of several such searches.
//!
//! | file | owns |
//! |---|---|
//! | `mod.rs` | the command: one run of the programs, and what it prints |
//! | `options.rs` | its options, and the search that they describe |
//! | `results.rs` | the JSON object of a search, and the union of several |

mod options;
mod results;

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};

use clap::{ArgMatches, Args, Command, FromArgMatches, error::ErrorKind};
use trapline::{Error, Explored, Kernel, Progress};

use super::{
    args,
    inject::Rules,
    interrupts,
    net::Placed,
    output::{FAILURE, Log, Verbosity, json, print, tell},
    program::{Entry, Named},
    words::{self, quoted},
};
use options::{Options, takes_options};
use results::Merge;

/// Longer texts of a run are replaced by a hash.
const LONGEST: usize = 200;

/// Run a program under many schedules, to find one that breaks it
#[derive(Args)]
pub(super) struct Explore {
    #[command(flatten)]
    options: Options,
}

/// The commands below `explore`: the programs, and `merge`. After a program's name the options of
/// the search may follow too, unless the program has an option of the same name.
pub(super) fn subcommands(programs: &[Entry]) -> impl Iterator<Item = Command> {
    let merge = Merge::augment_args(Command::new("merge"));
    // Other commands do not need the options, which are the greater part of the command line.
    let command = |entry: &Entry| entry.command().defer(with_options);
    let programs = programs.iter().map(command);
    programs.chain([merge])
}

/// Adds the options of the search to the command of a program, if it has none of their names.
fn with_options(command: Command) -> Command {
    let options = options::all();
    let is_free = |option: &clap::Arg| {
        let mut others = command.get_arguments();
        others
            .all(|other| other.get_long() != option.get_long() && other.get_id() != option.get_id())
    };
    if options.iter().all(is_free) {
        let options = options.into_iter().map(|option| option.hide(true));
        args::with_negative_numbers(command.args(options))
    } else {
        command
    }
}

/// Runs the command. An error is a usage error.
pub(super) fn run(
    programs: &[Entry],
    command: &Command,
    explore: &ArgMatches,
    verbosity: &Verbosity,
    words: &[String],
) -> Result<ExitCode, clap::Error> {
    let named = explore.subcommand();
    if let Some(("merge", matches)) = named {
        return Ok(results::merge(
            &Merge::from_arg_matches(matches)?,
            verbosity,
        ));
    }
    let mut options = Options::from_arg_matches(explore)?;
    if let Some((_, matches)) = named
        && takes_options(matches)
    {
        options.update_from_arg_matches(matches)?;
    }
    if named.is_none() && options.net.on.is_empty() {
        let error = clap::Error::new(ErrorKind::MissingSubcommand);
        return Err(args::explain_program(
            error,
            args::child(command, "explore"),
        ));
    }
    let placed = options.programs(programs, named)?;
    let hosts: Vec<String> = placed.iter().map(|(host, _)| host.clone()).collect();
    // For its errors.
    options.net.network(&hosts, None)?;
    let usage = |error: String| clap::Error::raw(ErrorKind::InvalidValue, error + "\n");
    options.check().map_err(usage)?;
    let rules = Rules::new(&options.inject);
    let shard = options.shard().map_err(usage)?;
    let body = |kernel: &mut Kernel| trial(kernel, &placed, &options);
    let search = options.search(body, shard, hosts, &rules).map_err(usage)?;
    let search = search.command(again(words));
    let log = Log::of_errors(verbosity);
    if let Err(error) = interrupts::note(interrupts::END) {
        log.error(&format!("cannot listen for interrupts: {error}"));
        return Ok(ExitCode::from(FAILURE));
    }
    let explored = search.explore();
    if io::stderr().is_terminal() {
        tell("\r\x1b[K");
    }
    let is_json = options.json == Some(true);
    let text = if is_json {
        let identity = results::identity(programs, explore, named);
        let name = named.map(|(name, _)| name);
        let object = results::object(&options, &explored, name, shard, &identity);
        json(object.as_object().expect("it is an object")) + "\n"
    } else {
        report(&explored)
    };
    print(text.as_bytes());
    rules.report(log);
    if let (None, Some(interrupted)) = (&explored.failure, interrupts::signal()) {
        return Ok(ExitCode::from(interrupted));
    }
    let is_empty = explored.schedules == 0 && explored.failure.is_none();
    let was_short = is_empty && options.time.is_some();
    if was_short {
        let why = "no schedule ran to its end within --time: give the search more time, or more \
                   --steps if it has cut schedules";
        log.error(why);
    }
    let is_good = explored.failure.is_none() && explored.never.is_empty() && !was_short;
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILURE)
    })
}

/// Sorts the lines. Schedules of one causal order differ in the order of lines of different tasks.
fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Runs the programs once. The outcome is what they print. Servers that are left are no failure.
fn trial(
    kernel: &mut Kernel,
    programs: &[(String, Named)],
    options: &Options,
) -> Result<(), Error> {
    let placed = args::loaded(programs);
    for Placed { host, image } in &placed {
        image(kernel, host)?;
    }
    options.net.arrange(kernel, &placed, Log::SILENT)?;
    let report = match kernel.run() {
        Err(Error::Deadlock(deadlock)) if deadlock.is_at_rest() => kernel.report(),
        ran => ran?,
    };
    let text = kernel.take_console();
    let text = match options.is_by_causal_order() {
        true => sorted(&text),
        false => text,
    };
    note_outcome(kernel, text);
    report.check()
}

/// Notes what the programs have printed as the outcome of a schedule.
pub(super) fn note_outcome(kernel: &mut Kernel, text: String) {
    if text.len() <= LONGEST {
        kernel.outcome(text);
    } else {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&text);
        kernel.outcome(format!("{} bytes, hash {hash:016x}", text.len()));
    }
}

/// The result of a search, for people.
pub(super) fn report(explored: &Explored) -> String {
    format!("{explored}\n{}", outcomes(&explored.outcomes))
}

/// Shows the progress on a line that the next one overwrites.
pub(super) fn show(progress: &Progress) {
    let Progress {
        schedules,
        of,
        classes,
        elapsed,
        left,
        ..
    } = *progress;
    let rate = schedules as f64 / elapsed.as_secs_f64();
    let of = match of {
        u64::MAX => String::new(),
        of => format!(" of {of}"),
    };
    let classes = match classes {
        0 => String::new(),
        classes => format!(", {classes} causal orders"),
    };
    let left = left.map(|left| humantime::format_duration(Duration::from_secs(left.as_secs())));
    let left = left.map_or(String::new(), |left| format!(", at most {left} left"));
    tell(&format!(
        "\r\x1b[K{schedules}{of} schedules{classes}, {rate:.0} a second{left}"
    ));
}

/// The first outcomes, a line each.
fn outcomes(all: &BTreeSet<String>) -> String {
    const SHOWN: usize = 10;
    if all.is_empty() {
        return String::new();
    }
    let mut text = format!("outcomes: {}\n", all.len());
    for outcome in all.iter().take(SHOWN) {
        text += &format!("  {:?}\n", outcome.trim_end());
    }
    if all.len() > SHOWN {
        text += "  ...\n";
    }
    text
}

/// The command line that runs a schedule again.
fn again(words: &[String]) -> String {
    let mut again = words::binary() + " explore --replay {replay}";
    let mut words = words.iter().skip(2).peekable();
    while let Some(word) = words.next() {
        if word == "--replay" {
            words.next();
        } else if !word.starts_with("--replay=") {
            again += &format!(" {}", quoted(word));
        }
    }
    again
}
