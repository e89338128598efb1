//! Trapline and its peers at the same work, in turns, in one run.
//!
//! `cargo run --release -p trapline-bench -- [OPTION]... [WORKLOAD]...`
//!
//! | file | owns |
//! |---|---|
//! | `contest.rs` | a contest: contenders, rounds, medians, the table |
//! | `picture.rs`, `page.rs` | the table as a picture; the tables of `docs/benchmarks.md` |
//! | `meter.rs` | the measurements: CPU time, memory |
//! | `peers.rs`, `peers/` | peers in other languages, or with flags of the compiler |
//! | `switch.rs`, `spawn.rs`, ... | a workload each: ours first, then its peers |
//! | `echo/` | the workload over sockets: its servers, its client |
//! | `instructions/` | another program: counts the instructions of the hot paths |
//!
//! A new workload is a file with a `contests` function, and a line in [`WORKLOADS`].

mod contest;
mod decisions;
mod disk;
mod echo;
mod files;
mod kv;
mod mailboxes;
mod memory;
mod meter;
mod net;
mod observation;
mod page;
mod peers;
mod picture;
mod queues;
mod ring;
mod schedules;
mod sleepers;
mod spawn;
mod start;
mod switch;
mod timeouts;
mod watched;

use std::{fs, io, path::PathBuf, process::ExitCode};

use contest::{Contest, Results};
use peers::Peer;
use serde_json::{Value, json};

type Contests = fn(&Plan) -> Vec<Contest>;

const WORKLOADS: [(&str, Contests); 17] = [
    ("switch", switch::contests),
    ("decisions", decisions::contests),
    ("spawn", spawn::contests),
    ("queues", queues::contests),
    ("mailboxes", mailboxes::contests),
    ("schedules", schedules::contests),
    ("sleepers", sleepers::contests),
    ("timeouts", timeouts::contests),
    ("memory", memory::contests),
    ("echo", echo::contests),
    ("datagrams", echo::datagrams::contests),
    ("net", net::contests),
    ("files", files::contests),
    ("kv", kv::contests),
    ("disk", disk::contests),
    ("start", start::contests),
    ("observation", observation::contests),
];

const USAGE: &str = "\
usage: trapline-bench [OPTION]... [WORKLOAD]...

workloads, all of them unless some are named:
  switch decisions spawn queues mailboxes schedules sleepers timeouts memory echo datagrams net
  files kv disk start observation
--quick      less work, fewer rounds, no millions
--rounds N   how often each contender runs; 7 unless it is given, 3 with --quick
--json       the table as JSON, on standard output
--svg FILE   the table as a picture besides
--page FILE  writes the tables between the marks of a page, which is docs/benchmarks.md
--contest TEXT, --contender TEXT
             only those whose name contains it: to profile one, for example";

/// The amount of work, and the contenders.
struct Plan {
    rounds: usize,
    quick: bool,
    /// Part of the name of each contender that takes part.
    contender: String,
    /// Include the peers in other languages.
    peers: Vec<Peer>,
}

impl Plan {
    /// A million tasks.
    fn million(&self) -> usize {
        self.times(1_000_000)
    }

    /// The number of repetitions.
    fn times(&self, count: usize) -> usize {
        if self.quick { count / 10 } else { count }
    }
}

#[derive(Default)]
struct Options {
    json: bool,
    svg: Option<PathBuf>,
    page: Option<PathBuf>,
    quick: bool,
    rounds: Option<usize>,
    contest: String,
    contender: String,
    workloads: Vec<String>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Some contenders need a process of their own, which runs this binary again.
    if let Some((role, args)) = args.split_first()
        && let Some(role) = role.strip_prefix("--child=")
    {
        return exit_code(match role {
            "memory" => memory::child(args),
            "net" => net::child(args),
            "echo-server" => echo::serve(args),
            "server-core" => echo::exec(echo::SERVER_CORE, args),
            "client-core" => echo::exec(echo::CLIENT_CORE, args),
            "echo-client" => echo::call(args),
            "udp-server" => echo::datagrams::serve(args),
            "udp-client" => echo::datagrams::call(args),
            other => Err(io::Error::other(format!(
                "there is no child role {other:?}"
            ))),
        });
    }
    let options = match parse(args) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    exit_code(run(&options))
}

fn exit_code(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trapline-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: Vec<String>) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-h" | "--help" => return Err(USAGE.into()),
            "--json" => options.json = true,
            "--quick" => options.quick = true,
            "--svg" => options.svg = Some(args.next().ok_or("--svg: give a file")?.into()),
            "--page" => options.page = Some(args.next().ok_or("--page: give a file")?.into()),
            "--contest" => options.contest = args.next().ok_or("--contest: give its name")?,
            "--contender" => options.contender = args.next().ok_or("--contender: give its name")?,
            "--rounds" => {
                let given = args.next().unwrap_or_default();
                options.rounds = match given.parse() {
                    Ok(rounds @ 1..) => Some(rounds),
                    _ => return Err(format!("--rounds {given:?}: give a number from 1 on")),
                };
            }
            name if WORKLOADS.iter().any(|(known, _)| *known == name) => {
                options.workloads.push(arg);
            }
            other => return Err(format!("{other:?} is no workload and no option\n\n{USAGE}")),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> io::Result<()> {
    let plan = Plan {
        rounds: options.rounds.unwrap_or(if options.quick { 3 } else { 7 }),
        quick: options.quick,
        contender: options.contender.clone(),
        peers: peers::find(|name| name.contains(&options.contender))?,
    };
    let mut table = Vec::new();
    let mut measured = Vec::new();
    let mut failed = None;
    for (name, contests) in WORKLOADS {
        if !options.workloads.is_empty() && !options.workloads.iter().any(|wanted| wanted == name) {
            continue;
        }
        let first = table.len();
        for contest in contests(&plan) {
            let Some(contest) = contest.only(&options.contest, &options.contender) else {
                continue;
            };
            let results = match contest.run() {
                Ok(results) => results,
                Err(error) => {
                    // The others are measured all the same.
                    eprintln!("{error}");
                    failed = Some(error);
                    continue;
                }
            };
            if !options.json {
                print!("{results}");
            }
            table.push(results);
        }
        measured.push((name, first..table.len()));
    }
    if let (true, Some(error)) = (table.is_empty(), &failed) {
        return Err(io::Error::other(error.to_string()));
    }
    if table.is_empty() {
        return Err(io::Error::other(format!(
            "no contest is called like {:?} with a contender like {:?}: run without --contest and \
             --contender to see their names",
            options.contest, options.contender
        )));
    }
    if options.json {
        println!("{:#}", to_json(&table));
    }
    if let Some(path) = &options.svg {
        fs::write(path, picture::draw(&table))
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    }
    if let Some(path) = &options.page {
        let tables: Vec<page::Measured<'_>> = measured
            .into_iter()
            .map(|(name, at)| (name, table[at].iter().collect()))
            .collect();
        page::write(path, &page::machine(plan.rounds, plan.quick), &tables)?;
    }
    failed.map_or(Ok(()), Err)
}

fn to_json(table: &[Results]) -> Value {
    json!({ "contests": table.iter().map(Results::to_json).collect::<Vec<_>>() })
}
