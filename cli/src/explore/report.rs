//! The outcome of a schedule, and the report of a search for people.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    time::Duration,
};

use trapline::{Explored, Kernel, Progress};

use crate::output::tell;

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

/// The result of a search, for people.
pub(crate) fn report(explored: &Explored) -> String {
    format!("{explored}\n{}", outcomes(&explored.outcomes))
}

/// Shows the progress on a line that the next one overwrites.
pub(crate) fn show(progress: &Progress) {
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
