//! Trapline and its peers at the same work, in turn, in one run.
//!
//! `cargo run --release -p trapline-bench -- [OPTION]... [WORKLOAD]...`
//!
//! | file | owns |
//! |---|---|
//! | `contest.rs` | a contest: who takes part, rounds, medians, the table |
//! | `meter.rs` | what is measured: CPU time, memory |
//! | `switch.rs`, `spawn.rs`, ... | a workload each: ours first, its peers beside it |
//! | `echo/` | the workload over sockets: its servers, its client |
//!
//! A new workload is a file with a `contests` function, and a line in [`WORKLOADS`].

mod contest;
mod echo;
mod memory;
mod meter;
mod queues;
mod sleepers;
mod spawn;
mod switch;

use std::{io, process::ExitCode};

use contest::{Contest, Table};

type Contests = fn(rounds: usize) -> Vec<Contest>;

const WORKLOADS: [(&str, Contests); 6] = [
    ("switch", switch::contests),
    ("spawn", spawn::contests),
    ("queues", queues::contests),
    ("memory", memory::contests),
    ("echo", echo::contests),
    ("sleepers", sleepers::contests),
];

const USAGE: &str = "\
usage: trapline-bench [--json] [--rounds N] [--contest TEXT] [--contender TEXT] [WORKLOAD]...

workloads, all of them unless some are named: switch spawn queues memory echo sleepers
--rounds N   how often each contender runs; 7 unless it is given
--json       the table as JSON, on standard output
--contest TEXT, --contender TEXT
             only those whose name contains it: to profile one, for example";

struct Options {
    json: bool,
    rounds: usize,
    contest: String,
    contender: String,
    workloads: Vec<String>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Some contenders need a process of their own: this binary again.
    if let Some((role, args)) = args.split_first()
        && let Some(role) = role.strip_prefix("--child=")
    {
        return exit_code(match role {
            "memory" => memory::child(args),
            "echo-server" => echo::serve(args),
            "echo-client" => echo::call(args),
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
    let mut options = Options {
        json: false,
        rounds: 7,
        contest: String::new(),
        contender: String::new(),
        workloads: Vec::new(),
    };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-h" | "--help" => return Err(USAGE.into()),
            "--json" => options.json = true,
            "--contest" => options.contest = args.next().ok_or("--contest: give its name")?,
            "--contender" => options.contender = args.next().ok_or("--contender: give its name")?,
            "--rounds" => {
                let given = args.next().unwrap_or_default();
                options.rounds = match given.parse() {
                    Ok(rounds @ 1..) => rounds,
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
    let mut table = Table::default();
    for (name, contests) in WORKLOADS {
        if !options.workloads.is_empty() && !options.workloads.iter().any(|wanted| wanted == name) {
            continue;
        }
        for contest in contests(options.rounds) {
            let Some(contest) = contest.only(&options.contest, &options.contender) else {
                continue;
            };
            let results = contest.run()?;
            if !options.json {
                print!("{results}");
            }
            table.add(results);
        }
    }
    if table.is_empty() {
        return Err(io::Error::other(format!(
            "no contest is called like {:?} with a contender like {:?}: run without --contest and \
             --contender to see their names",
            options.contest, options.contender
        )));
    }
    if options.json {
        println!("{:#}", table.to_json());
    }
    Ok(())
}
