//! The outcome of a schedule, and the report of a search for people.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    io::{self, IsTerminal},
    process::ExitCode,
};

use trapline::{Check, Error, Explored, Kernel, Progress};

use crate::{
    output::FAILURE,
    progress::{self, line, time_left},
    signals, stdio,
    units::number,
};

/// Longer texts of a run are replaced by a hash.
const LONGEST: usize = 200;

/// Makes what the programs have printed the outcome of a schedule.
pub(crate) fn set_outcome(kernel: &mut Kernel, text: String) {
    if text.len() <= LONGEST {
        kernel.outcome(text);
    } else {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&text);
        kernel.outcome(format!("{} bytes, hash {hash:016x}", text.len()));
    }
}

/// Runs a search, and shows its progress on a terminal. A signal ends it. The command runs a schedule
/// of its report again.
pub(crate) fn searched<F>(search: Check<F>, command: String) -> Explored
where
    F: Fn(&mut Kernel) -> Result<(), Error> + Sync,
{
    let mut search = search.stop_when(signals::is_raised).command(command);
    if io::stderr().is_terminal() {
        search = search.progress(show);
    }
    let explored = search.explore();
    stdio::clear();
    explored
}

/// The exit code of a search. One that replays a schedule of another program is no success.
pub(crate) fn code(explored: &Explored) -> ExitCode {
    match explored.failure.is_some() || explored.changed.is_some() {
        true => ExitCode::from(FAILURE),
        false => signals::signal().map_or(ExitCode::SUCCESS, ExitCode::from),
    }
}

pub(crate) fn report(explored: &Explored) -> String {
    format!("{explored}\n{}", outcomes(&explored.outcomes))
}

/// Shows the progress on a line that the next one overwrites.
pub(crate) fn show(progress: &Progress) {
    let of = Some(progress.of).filter(|of| *of < u64::MAX);
    let classes = match progress.classes {
        0 => String::new(),
        classes => format!(", {} causal orders", number(classes)),
    };
    let far = line(progress.schedules, of, "schedule", progress.elapsed);
    progress::show(&(far + &classes + &time_left("at most ", progress.left)));
}

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
