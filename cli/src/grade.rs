//! `grade`: a program beside a reference, by all that both can come to.

use std::{
    io::{self, IsTerminal},
    num::NonZeroU64,
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use serde_json::{Value, json};
use trapline::{Difference, Error, Grade, Graded, Kernel, RunEnd, Verdict, grade};

use super::{
    commands::Commands,
    examples::{Example, examples},
    explore::{
        report::{show, shown},
        span, turns,
    },
    net,
    output::{FAILURE, Failure, LIMIT, print_verdict},
    program::{Entry, Placed},
    signals, stdio,
    values::{given, whole, within},
    words::{self, quoted},
};

/// Compare all outcomes of a program with those of a reference
///
/// Both are searched completely, within the limits: each causal order of turns runs once. An outcome is what each task prints, and
/// how the run ends. The order of the lines of different tasks does not count, and neither do names.
#[derive(Args)]
pub(super) struct GradeLine {
    /// The program to grade, with its arguments
    #[arg(value_name = "PROGRAM ARGS")]
    task: String,
    /// The program that is right, with its arguments
    #[arg(long, value_name = "PROGRAM ARGS")]
    reference: String,
    /// Limit the schedules of each search
    #[arg(long, value_name = "N", value_parser = whole::<NonZeroU64>, default_value = "100000")]
    schedules: NonZeroU64,
    /// Limit the turns of a schedule: a longer one is cut, and the search is not complete
    #[arg(long, value_name = "N", value_parser = whole::<NonZeroU64>, default_value = "10000")]
    max_ticks: NonZeroU64,
    /// Let a turn take from no time to TIME: a timer may fire while tasks are ready
    #[arg(long, value_name = "0..TIME", value_parser = turns)]
    turns_take: Option<Duration>,
    /// End each search after this time on the machine's clock
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "1m")]
    max_time: Duration,
    /// The seed of the random numbers
    #[arg(long, value_name = "N", value_parser = whole::<u64>, default_value_t = 0)]
    seed: u64,
    /// How many threads search, from 1 to 1024 [default: one per processor]
    #[arg(long, value_name = "N", value_parser = within("a whole number", 1..=1024))]
    jobs: Option<usize>,
    /// Print the result as a JSON object, as Gradescope reads it
    #[arg(long)]
    json: bool,
}

const EXAMPLES: [Example; 3] = [
    Example::Of(
        &["lost-wakeup"],
        "grade lost-wakeup --reference \"lost-wakeup --cured\"",
    ),
    Example::Of(
        &["deadlock"],
        "grade \"deadlock --cured\" --reference \"deadlock --cured\"",
    ),
    Example::Of(
        &["lost-wakeup"],
        "grade --json lost-wakeup --reference \"lost-wakeup --cured\" \\\n    | jq .tests",
    ),
];

pub(super) fn help(name: &str, programs: &[Entry]) -> String {
    let examples = examples(name, programs, &EXAMPLES);
    format!(
        "An outcome that only PROGRAM has is a race, a deadlock, a leak or a fault. One that only the \
         reference has is an overlap that PROGRAM does not allow. The first eight of each kind have a \
         schedule.\n\n\
         Exit codes: 0 the outcomes are equal, 1 they differ or PROGRAM is refused, 2 wrong command line, 4 a search was not \
         complete and no difference was found, 130 the same after an interrupt (^C).\n\n{examples}"
    )
}

pub(super) fn run(commands: Commands<'_>, line: &GradeLine) -> Result<ExitCode, Failure> {
    let host = net::LOCALHOST;
    let task = commands.line(host, "PROGRAM", &line.task, &line.task)?;
    let reference = &line.reference;
    let reference = commands.line(host, "--reference", reference, reference)?;
    signals::catch(signals::END)?;
    let body = |placed: Placed| {
        move |kernel: &mut Kernel| -> Result<(), Error> {
            placed.spawn(kernel, None)?;
            kernel.run().map(drop)
        }
    };
    let grade = grade(body(task), body(reference))
        .schedules(line.schedules.get())
        .steps(line.max_ticks.get())
        .time(line.max_time)
        .seed(line.seed)
        .stop_when(signals::is_raised)
        .commands(again(line, &line.task), again(line, &line.reference));
    let grade = given(grade, line.turns_take, |grade, most| {
        grade.turns_take(Duration::ZERO..=most)
    });
    let grade = given(grade, line.jobs, Grade::threads);
    let graded = match io::stderr().is_terminal() {
        true => grade.progress(show).run(),
        false => grade.run(),
    };
    stdio::clear();
    let text = match line.json {
        true => format!("{}\n", object(line, &graded)),
        false => shown(&graded.to_string()) + "\n",
    };
    print_verdict(text.as_bytes())?;
    Ok(match (signals::signal(), graded.verdict()) {
        (_, Verdict::Different | Verdict::Refused) => ExitCode::from(FAILURE),
        (Some(signal), _) => ExitCode::from(signal),
        (None, Verdict::Unknown) => ExitCode::from(LIMIT),
        (None, Verdict::Equal) => ExitCode::SUCCESS,
    })
}

/// The command line that runs a schedule of a program again.
fn again(line: &GradeLine, program: &str) -> String {
    let binary = words::binary();
    let (seed, ticks) = (line.seed, line.max_ticks);
    format!(
        "{binary} explore --strategy exhaustive --seed {seed} --max-ticks {ticks} --replay {{replay}} {program}"
    )
}

/// The tests of a grade. Each is a question that a difference answers.
const TESTS: [(&str, Asks); 4] = [
    ("no deadlock, and no task left behind", |it| {
        it.outcome.end != RunEnd::Over
    }),
    ("no task faults or fails", |it| {
        it.outcome.faults || it.outcome.fails
    }),
    ("no race: nothing is printed that must not be", |it| {
        let outcome = &it.outcome;
        outcome.end == RunEnd::Over && !outcome.faults && !outcome.fails
    }),
    ("all overlaps of the reference can happen", |_| true),
];
type Asks = fn(&Difference) -> bool;

/// Returns the result as the autograder of Gradescope reads it: a test for each question.
fn object(line: &GradeLine, graded: &Graded) -> Value {
    let is_known = [graded.reference.complete, graded.submission.complete];
    let tests = TESTS.iter().enumerate().map(|(at, (name, asks))| {
        let is_last = at + 1 == TESTS.len();
        let found = if is_last {
            &graded.missing
        } else {
            &graded.races
        };
        let found: Vec<String> = found
            .iter()
            .filter(|it| asks(it))
            .map(ToString::to_string)
            .collect();
        // What is not known earns nothing.
        let is_known = is_known.iter().all(|known| *known) && graded.refused.is_none();
        let passes = found.is_empty() && is_known;
        let output = match (found.is_empty(), passes) {
            _ if graded.refused.is_some() => graded.refused.clone().unwrap_or_default(),
            (false, _) => found.join("\n\n"),
            (true, true) => String::new(),
            (true, false) => "not known: a search was not complete".to_string(),
        };
        json!({
            "name": name,
            "score": u8::from(passes),
            "max_score": 1,
            "status": if passes { "passed" } else { "failed" },
            "output": output,
        })
    });
    let verdict = match graded.verdict() {
        Verdict::Equal => "equal",
        Verdict::Different => "different",
        Verdict::Unknown => "unknown",
        Verdict::Refused => "refused",
    };
    json!({
        "output": format!(
            "{} against {}\nsubmission: {}\nreference: {}\nverdict: {verdict}",
            quoted(&line.task), quoted(&line.reference), graded.submission, graded.reference
        ),
        "tests": tests.collect::<Vec<Value>>(),
        "extra_data": {
            "verdict": verdict,
            "schedules": graded.submission.schedules,
            "complete": graded.is_complete(),
        },
    })
}
