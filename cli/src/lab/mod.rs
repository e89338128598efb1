//! `lab`: a program under several policies, with the textbook's measures.

mod chart;
mod page;
mod trial;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{ArgMatches, Args, ValueHint};
use serde_json::{Value, json};
use trapline::Kernel;

use super::{
    examples::{Example, examples},
    net::LOCALHOST,
    outfile::{OutFile, is_stdout},
    output::{FAILURE, Failure, Log, print_verdict},
    policy::{NamedShare, Policy, check_shares, named_share, warn_of_unused},
    program::{Entry, Placed},
    progress::Meter,
    signals,
    table::{table, width},
    units::{number, percent, span_of},
    values::{duration, usage, whole, within},
};
use trial::{FIGURES, Run, Settings, Spread, Trial};

/// Run a program under several scheduling policies, and compare them
#[derive(Args)]
pub(super) struct Lab {
    /// A policy, as of `boot --policy`; can be repeated [default: fifo, rr, sjf, stcf, mlfq, stride,
    /// fair]
    #[arg(long = "policy", value_name = "NAME[:PARAMS]")]
    policies: Vec<Policy>,
    /// How many tasks compute at once, from 1 to 1024
    #[arg(long, value_name = "N", value_parser = within("a number of processors", 1..=1024), default_value = "1")]
    processors: usize,
    /// Run each policy with K seeds, and pool the measures
    #[arg(long, value_name = "K", value_parser = within("a number of seeds", 1..=10_000), default_value = "1")]
    seeds: usize,
    /// The first seed
    #[arg(long, value_name = "N", value_parser = whole::<u64>, default_value = "0")]
    seed: u64,
    /// Give the tasks of a name a share, such as batch:nice=5. Can be repeated
    #[arg(long, value_name = "NAME:SHARE", value_parser = named_share)]
    share: Vec<NamedShare>,
    /// Stop each run after this time on its virtual clock
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1h")]
    max_time: Duration,
    /// Print a JSON object per policy, a line each
    #[arg(long)]
    json: bool,
    /// Write the charts and tables to a page; - for standard output, instead of the tables
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Write the charts to a picture; - for standard output, instead of the tables
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<PathBuf>,
}

/// The policies of a laboratory without `--policy`.
const USUAL: [&str; 7] = ["fifo", "rr", "sjf", "stcf", "mlfq", "stride", "fair"];

const EXAMPLES: [Example; 4] = [
    Example::Any("lab {}", "jobs"),
    Example::Any(
        "lab --policy fifo --policy rr:10ms --policy mlfq {}",
        "jobs --random 5",
    ),
    Example::Any("lab --processors 2 --html lab.html {}", "interactive"),
    Example::Any("lab --policy lottery --seeds 10 --json {}", "jobs"),
];

pub(super) fn help(name: &str, programs: &[Entry]) -> String {
    let examples = examples(name, programs, &EXAMPLES);
    format!(
        "The program runs in the simulated world, once under each policy. The table \
         shows response, turnaround and waiting over the tasks that computed: the \
         mean, the median and the 99th percentile; the switches between tasks; the part \
         of their time in which the processors were busy; Jain's index of fairness; and \
         the end. A chart has a line for each task: █ is computing, ▓, ▒ and ░ are \
         computing for a part of the column, and · is waiting for a processor.\n\n\
         Exit codes: 0 all runs ended well, 1 one did not, 2 wrong command line, 130 \
         interrupted (^C): the policies that were done are printed.\n\n{examples}"
    )
}

pub(super) fn run(
    programs: &[Entry],
    options: &Lab,
    matches: &ArgMatches,
    log: Log,
) -> Result<ExitCode, Failure> {
    let named = matches.subcommand().expect("clap requires a program");
    let placed = Placed::new(programs, LOCALHOST, named)?;
    let image = |kernel: &mut Kernel| placed.spawn(kernel, None).map(drop);
    let settings = Settings {
        processors: options.processors,
        seed: options.seed,
        seeds: options.seeds as u64,
        shares: &options.share,
        max_time: options.max_time,
    };
    let usual = USUAL.map(|name| name.parse().expect("it is a policy"));
    let policies = match &options.policies[..] {
        [] => &usual,
        policies => policies,
    };
    check_shares(policies, &options.share)?;
    let [page, picture] = options.files()?;
    signals::catch(signals::END)?;
    let mut trials = Vec::new();
    let meter = Meter::new("run", Some(policies.len() as u64 * settings.seeds));
    for policy in policies {
        match Trial::run(policy, &image, &settings, &meter) {
            _ if signals::is_raised() => break,
            Ok(trial) => trials.push(trial),
            Err(error) => log.error(&format!("under {policy}: {error}")),
        }
    }
    drop(meter);
    if signals::is_raised() {
        let (done, all) = (trials.len(), policies.len());
        log.warn(&format!(
            "interrupted: what follows is about the first {done} of {all} policies"
        ));
    }
    let is_complete = trials.len() == policies.len();
    if is_complete && trials.iter().all(|trial| trial.runs[0].tasks.is_empty()) {
        log.note("no task computed: the measures are of tasks that call os.compute");
    }
    if is_complete {
        let names = options.share.iter().map(|share| share.name.as_str());
        let is_unused = |name: &&str| trials.iter().all(|trial| trial.has_unused(name));
        warn_of_unused(log, names.filter(is_unused));
    }
    let written = [
        page.map(|file| file.write(page::page(&trials, named.0).as_bytes())),
        picture.map(|file| file.write(chart::picture(&trials).as_bytes())),
    ];
    let written = written.into_iter().flatten();
    let failures: Vec<String> = written.filter_map(Result::err).collect();
    failures.iter().for_each(|error| log.error(error));
    let text = if options.has_stdout() {
        String::new()
    } else if options.json {
        let line = |trial: &Trial| format!("{}\n", object(trial, options));
        trials.iter().map(line).collect()
    } else {
        text(&trials)
    };
    print_verdict(text.as_bytes())?;
    Ok(
        match (signals::signal(), is_complete && failures.is_empty()) {
            (Some(code), _) => code.into(),
            (None, true) => ExitCode::SUCCESS,
            (None, false) => ExitCode::from(FAILURE),
        },
    )
}

impl Lab {
    fn has_stdout(&self) -> bool {
        let mut files = self.html.iter().chain(&self.svg);
        files.any(|file| is_stdout(file))
    }

    fn files(&self) -> Result<[Option<OutFile>; 2], clap::Error> {
        let open = |option, file: &Option<PathBuf>, others: &[&Path]| {
            let open = |file: &PathBuf| OutFile::open(option, file, others);
            file.as_ref().map(open).transpose()
        };
        if self.json && self.has_stdout() {
            let why = "--json prints to standard output: name a file instead of -";
            return Err(usage(why));
        }
        let html: Vec<&Path> = self.html.iter().map(PathBuf::as_path).collect();
        let page = open("--html", &self.html, &[]).map_err(usage)?;
        Ok([page, open("--svg", &self.svg, &html).map_err(usage)?])
    }
}

fn text(trials: &[Trial]) -> String {
    if trials.is_empty() {
        return String::new();
    }
    let (means, spreads) = (means(trials), spreads(trials));
    let mut text = format!("{}\n\n{}\n", table(MEANS, &means), table(SPREADS, &spreads));
    let width = width();
    let end = chart::end(trials);
    for trial in trials {
        text += &format!("\n{}", chart::lines(trial, width, end));
    }
    text
}

/// The first table: the means of three measures, and the totals.
const MEANS: [&str; 8] = [
    "policy",
    "response",
    "turnaround",
    "waiting",
    "switches",
    "busy",
    "fairness",
    "end",
];

/// The second table: the median and the 99th percentile of the measures.
const SPREADS: [&str; 7] = [
    "policy",
    "response p50",
    "p99",
    "turnaround p50",
    "p99",
    "waiting p50",
    "p99",
];

fn means(trials: &[Trial]) -> Vec<[Value; 8]> {
    let row = |trial: &Trial| {
        let [a, b, c] = trial.measures().map(|spread| span_of(spread.mean));
        [
            trial.policy.clone(),
            a,
            b,
            c,
            number(trial.mean(|run| run.switches as f64).round()),
            percent(trial.mean(Run::utilisation), 1.0),
            format!("{:.3}", trial.mean(Run::fairness)),
            span_of(trial.mean(|run| run.end.as_secs_f64())),
        ]
        .map(Value::from)
    };
    trials.iter().map(row).collect()
}

fn spreads(trials: &[Trial]) -> Vec<[Value; 7]> {
    let row = |trial: &Trial| {
        let pair = |spread: Spread| [spread.median, spread.most].map(span_of);
        let [[a, b], [c, d], [e, f]] = trial.measures().map(pair);
        [trial.policy.clone(), a, b, c, d, e, f].map(Value::from)
    };
    trials.iter().map(row).collect()
}

fn object(trial: &Trial, options: &Lab) -> Value {
    let tasks = trial.runs[0].tasks.iter().map(|task| {
        let mut object = json!({ "name": task.measured.name });
        for (name, figure) in FIGURES.into_iter().zip(task.figures()) {
            object[name] = figure.into();
        }
        object
    });
    let spread = |figure: fn(&Spread) -> f64| {
        let [response, turnaround, waiting] = trial.measures().map(|spread| figure(&spread));
        json!({ "response": response, "turnaround": turnaround, "waiting": waiting })
    };
    json!({
        "policy": trial.policy,
        "processors": options.processors,
        "seeds": options.seeds,
        "tasks": tasks.collect::<Vec<_>>(),
        "mean": spread(|spread| spread.mean),
        "p50": spread(|spread| spread.median),
        "p99": spread(|spread| spread.most),
        "switches": trial.mean(|run| run.switches as f64),
        "utilisation": trial.mean(Run::utilisation),
        "fairness": trial.mean(Run::fairness),
        "end": trial.mean(|run| run.end.as_secs_f64()),
    })
}
