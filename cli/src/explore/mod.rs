//! `explore`: a program under many schedules, and the joining of several such searches.

mod options;
pub(super) mod report;
mod results;

use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use trapline::{Check, Error, Explored, Kernel};

use super::{
    commands::{Commands, with_negative_numbers},
    examples::{Example, examples},
    inject::Rules,
    output::{FAILURE, Failure, Log, print_verdict, tell},
    program::{Entry, Placed, hosts, run_to_rest},
    signals,
    values::{given, text_of, usage},
    words::{self, quoted},
};
pub(super) use options::Explore;
use options::takes_options;
pub(super) use options::{span, turns};
use report::{code, report, searched, set_outcome};
use results::Merge;

const EXAMPLES: [Example; 10] = [
    Example::Any("explore {}", "lost-wakeup"),
    Example::Any(
        "explore --strategy pct:3 --schedules 100 {}",
        "deadlock --cured",
    ),
    Example::Any("explore --strategy exhaustive {}", "deadlock --cured"),
    Example::Of(
        &["echo", "swarm"],
        "explore --on server:\"echo --addr 0.0.0.0:80\" --chaos 1 \\\n    \
         --schedules 20 swarm --addr server:80 --clients 2 --requests 3",
    ),
    Example::Any(
        "explore --strategy exhaustive --turns-take 0..5ms \\\n    --schedules 100 {}",
        "timers",
    ),
    Example::Of(
        &["gossip"],
        "explore --faults 1 --may send:error=ConnectionReset gossip --cured",
    ),
    Example::Any(
        "explore --strategy exhaustive --mutate {}",
        "deadlock --cured",
    ),
    Example::Of(
        &["lost-wakeup"],
        "explore --cut reader --table lost-wakeup --cured",
    ),
    Example::Any(
        "explore --shard 1/2 --json --schedules 100 {} \\\n    > part-1.json",
        "deadlock --cured",
    ),
    Example::Of(&[], "explore merge part-*.json"),
];

pub(super) fn help(name: &str, programs: &[Entry]) -> String {
    let examples = examples(name, programs, &EXAMPLES);
    format!(
        "The program runs in the simulated world. A schedule fails with a deadlock, with a \
         client without an answer, or if a task fails or faults. Schedule i has the seed N + i of --seed N, as in \
         `boot --virtual --policy random --seed`.\n\n\
         Exit codes: 0 all schedules pass, 1 one fails, --replay meets another program than that \
         of the report, or none ends within --max-time and --max-ticks, 2 wrong command line, 130 \
         interrupted (^C): what ran until then is printed.\n\n{examples}"
    )
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
        let (long, id) = (option.get_long(), option.get_id());
        others.all(|other| other.get_long() != long && other.get_id() != id)
    };
    if !options.iter().all(is_free) {
        return command;
    }
    let options = options.into_iter().map(|option| option.hide(true));
    with_negative_numbers(command.args(options))
}

pub(super) fn run(
    commands: Commands<'_>,
    mut options: Explore,
    explore: &ArgMatches,
    log: Log,
    words: &[String],
) -> Result<ExitCode, Failure> {
    let named = explore.subcommand();
    if let Some(("merge", matches)) = named {
        return results::merge(&Merge::from_arg_matches(matches)?);
    }
    if let Some((_, matches)) = named
        && takes_options(matches)
    {
        options.update_from_arg_matches(matches)?;
    }
    let placed = commands.placed("explore", &options.net, &options.with, named)?;
    let hosts = hosts(&placed);
    // For its errors.
    options.net.network(&hosts, None)?;
    options.check().map_err(usage)?;
    let rules = Rules::new(&options.inject);
    let shard = options.shard().map_err(usage)?;
    let input = text_of(options.stdin.as_deref()).map_err(usage)?;
    let body = |kernel: &mut Kernel| {
        if let Some(text) = &input {
            kernel.input(text)?;
        }
        trial(kernel, &placed, &options)
    };
    let search = options.search(body, shard, hosts, &rules).map_err(usage)?;
    let search = given(search, placed.first().map(Placed::name), Check::named);
    signals::catch(signals::END)?;
    let explored = searched(search, again(words));
    let text = if options.json == Some(true) {
        let identity = results::identity(commands.programs, explore, named);
        let name = named.map(|(name, _)| name);
        let object = results::object(&options, &explored, name, shard, &identity);
        format!("{object}\n")
    } else {
        let table = explored
            .cuts
            .as_ref()
            .filter(|_| options.table == Some(true));
        let table = table.map_or(String::new(), |cuts| format!("{cuts}\n"));
        report(&explored) + &table
    };
    print_verdict(text.as_bytes())?;
    rules.report(log);
    if let Some(unfelt) = &explored.unfelt {
        tell(&format!("{unfelt}\n"));
    }
    if let Some(why) = none_ended(&explored, &options) {
        return Err(why.into());
    }
    Ok(match !explored.is_idle() || signals::is_raised() {
        true => code(&explored),
        false => ExitCode::from(FAILURE),
    })
}

/// Runs the programs once. The outcome is what they print. Servers that are left are no failure.
fn trial(kernel: &mut Kernel, programs: &[Placed], options: &Explore) -> Result<(), Error> {
    for placed in programs {
        placed.spawn(kernel, None)?;
    }
    options.net.arrange(kernel, programs, None, Log::SILENT)?;
    for (at, signal) in &options.signal {
        kernel.signal_at(*at, *signal);
    }
    let report = run_to_rest(kernel)?;
    let mut text = kernel.take_console();
    if options.is_by_causal_order() {
        // Schedules of one causal order differ in the order of lines of different tasks.
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        text = lines.join("\n");
    }
    set_outcome(kernel, text);
    report.check()
}

/// Returns which limit no schedule has kept, if none ran to its end. A part need not have one that is short
/// enough.
fn none_ended(explored: &Explored, options: &Explore) -> Option<String> {
    let has_result = explored.schedules > 0 || explored.failure.is_some();
    if has_result || signals::is_raised() {
        return None;
    }
    let within = match (explored.cut_at, &explored.bound) {
        (Some(_), _) if explored.part.is_some() => return None,
        (Some(most), _) => format!(" within --max-ticks {most}: allow more turns"),
        (None, Some(_)) if options.max_time.is_some() => {
            " within --max-time: give the search more time".to_string()
        }
        (None, Some(bound)) => format!(": {bound}"),
        (None, None) => return None,
    };
    Some(format!("no schedule ran to its end{within}"))
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
