//! `grade`: the outcomes of a program beside those of a reference.

#[path = "../../src/exercises/barber/solution.rs"]
mod barber_solution;
#[path = "../../src/exercises/barber/task.rs"]
mod barber_task;
#[path = "../../src/exercises/barrier/solution.rs"]
mod barrier_solution;
#[path = "../../src/exercises/barrier/task.rs"]
mod barrier_task;
#[path = "../../src/exercises/bounded-buffer/solution.rs"]
mod bounded_buffer_solution;
#[path = "../../src/exercises/bounded-buffer/task.rs"]
mod bounded_buffer_task;
#[path = "../../src/exercises/cache/solution.rs"]
mod cache_solution;
#[path = "../../src/exercises/cache/task.rs"]
mod cache_task;
#[path = "../../src/exercises/counter/solution.rs"]
mod counter_solution;
#[path = "../../src/exercises/counter/task.rs"]
mod counter_task;
#[path = "../../src/exercises/lock-order/solution.rs"]
mod lock_order_solution;
#[path = "../../src/exercises/lock-order/task.rs"]
mod lock_order_task;
#[path = "../../src/exercises/philosophers/solution.rs"]
mod philosophers_solution;
#[path = "../../src/exercises/philosophers/task.rs"]
mod philosophers_task;
#[path = "../../src/exercises/protocol/solution.rs"]
mod protocol_solution;
#[path = "../../src/exercises/protocol/task.rs"]
mod protocol_task;
#[path = "../../src/exercises/readers-writers/solution.rs"]
mod readers_writers_solution;
#[path = "../../src/exercises/readers-writers/task.rs"]
mod readers_writers_task;
#[path = "../../src/exercises/rendezvous/solution.rs"]
mod rendezvous_solution;
#[path = "../../src/exercises/rendezvous/task.rs"]
mod rendezvous_task;

use std::collections::BTreeSet;

use clap::Command;
use serde_json::Value;
use trapline::{Error, Kernel, Os};
use trapline_cli::Program;

use crate::support::{at_once, has, run};

const CURED: [&str; 2] = ["--reference", "lost-wakeup --cured"];

fn graded(words: &[&str]) -> (i32, String, String) {
    run(&[&["grade"], words].concat())
}

#[test]
fn programs_with_the_same_outcomes_are_equal() {
    let (code, out, err) = graded(&["lost-wakeup --cured", CURED[0], CURED[1]]);
    assert_eq!((code, &*err), (0, ""), "{out}");
    has(
        &out,
        "submission: 3 schedules, 2 outcomes; there are no others if turns take no time and the seed is 0\n",
    );
    has(&out, "verdict: equal: both have the same outcomes\n");
}

#[test]
fn a_deadlock_is_named_with_a_schedule_that_can_be_run_again() {
    let (code, out, err) = graded(&["lost-wakeup", CURED[0], CURED[1]]);
    assert_eq!((code, &*err), (1, ""), "{out}");
    has(
        &out,
        "DEADLOCK: the reference never comes to this\n  a deadlock, and prints\n",
    );
    let again = out
        .lines()
        .find_map(|line| line.strip_prefix("to see it again:"));
    let again = again.expect("it has a command").split_whitespace();
    let (code, out, err) = run(&again.skip(1).collect::<Vec<_>>());
    assert_eq!((code, &*err), (1, ""), "{out}");
    has(&out, "deadlock: no task is ready");
}

#[test]
fn what_only_the_reference_comes_to_is_missing() {
    let (code, out, _) = graded(&["lost-wakeup --cured", "--reference", "lost-wakeup"]);
    assert_eq!(code, 1, "{out}");
    has(
        &out,
        "TOO MUCH SYNCHRONISATION: only the reference comes to this\n  a deadlock",
    );
    assert!(!out.contains("doomed"), "{out}");
    assert!(!out.contains("DEADLOCK: "), "{out}");
}

#[test]
fn a_search_that_is_not_complete_gives_no_verdict() {
    for limit in [
        ["--schedules", "1"],
        ["--max-ticks", "3"],
        ["--max-time", "1ns"],
    ] {
        let words = [
            "lost-wakeup --cured",
            CURED[0],
            CURED[1],
            limit[0],
            limit[1],
        ];
        let (code, out, _) = graded(&words);
        assert_eq!(code, 4, "{limit:?}: {out}");
        has(&out, "verdict: unknown: a search was not complete");
    }
    // A program without an end.
    let (code, out, _) = graded(&["alive", "--reference", "alive", "--max-ticks", "50"]);
    assert_eq!(code, 4, "{out}");
    has(&out, "schedules of more than 50 turns were cut");
}

#[test]
fn a_wrong_line_says_where_it_is_wrong() {
    let cases = [
        (
            &["nope", "--reference", "wait"][..],
            "in PROGRAM \"nope\": there is no program 'nope'",
        ),
        (
            &["wait", "--reference", "nope"],
            "in --reference \"nope\": there is no program 'nope'",
        ),
        (&["wait"], "--reference"),
        (
            &["wait --x", "--reference", "wait"],
            "unexpected argument '--x'",
        ),
        (&["wait", "--reference", "\"wait"], "in --reference"),
        (
            &["wait", "--reference", "wait", "--max-time", "0s"],
            "no schedule runs in no time",
        ),
    ];
    for (words, why) in cases {
        let (code, out, err) = graded(words);
        assert_eq!((code, &*out), (2, ""), "{words:?}: {err}");
        has(&err, why);
    }
}

#[test]
fn the_object_is_one_that_gradescope_reads() {
    let tests = |words: &[&str]| -> (i32, Vec<(String, u64, String)>) {
        let (code, out, err) = graded(&[words, &["--json"]].concat());
        assert_eq!(err, "");
        let object: Value = serde_json::from_str(&out).expect("it is an object");
        assert!(object["output"].is_string());
        let tests = object["tests"].as_array().expect("it has tests").iter();
        let test = |test: &Value| {
            assert_eq!(test["max_score"], 1);
            assert!(test["output"].is_string());
            let text = |key: &str| test[key].as_str().expect("it is a text").to_string();
            let score = test["score"].as_u64().expect("it is a number");
            (text("name"), score, text("status"))
        };
        (code, tests.map(test).collect())
    };
    let scores = |tests: &[(String, u64, String)]| -> Vec<u64> {
        tests.iter().map(|(_, score, _)| *score).collect()
    };
    let (code, right) = tests(&["lost-wakeup --cured", CURED[0], CURED[1]]);
    assert_eq!((code, scores(&right)), (0, vec![1, 1, 1, 1]));
    let names: BTreeSet<&String> = right.iter().map(|(name, ..)| name).collect();
    assert_eq!(names.len(), 4);
    let (code, wrong) = tests(&["lost-wakeup", CURED[0], CURED[1]]);
    assert_eq!((code, scores(&wrong)), (1, vec![0, 1, 1, 1]));
    assert_eq!(wrong[0].2, "failed");
    let (code, unknown) = tests(&["lost-wakeup", CURED[0], CURED[1], "--schedules", "1"]);
    assert_eq!((code, scores(&unknown)), (4, vec![0; 4]));
}

type Body = fn(&mut Kernel) -> Result<(), Error>;

/// What is handed out of each exercise, and its solution.
const EXERCISES: [(&str, Body, Body); 10] = [
    (
        "barber",
        run_once::<barber_task::Task>,
        run_once::<barber_solution::Solution>,
    ),
    (
        "barrier",
        run_once::<barrier_task::Task>,
        run_once::<barrier_solution::Solution>,
    ),
    (
        "bounded-buffer",
        run_once::<bounded_buffer_task::Task>,
        run_once::<bounded_buffer_solution::Solution>,
    ),
    (
        "cache",
        run_once::<cache_task::Task>,
        run_once::<cache_solution::Solution>,
    ),
    (
        "counter",
        run_once::<counter_task::Task>,
        run_once::<counter_solution::Solution>,
    ),
    (
        "lock-order",
        run_once::<lock_order_task::Task>,
        run_once::<lock_order_solution::Solution>,
    ),
    (
        "philosophers",
        run_once::<philosophers_task::Task>,
        run_once::<philosophers_solution::Solution>,
    ),
    (
        "protocol",
        run_once::<protocol_task::Task>,
        run_once::<protocol_solution::Solution>,
    ),
    (
        "readers-writers",
        run_once::<readers_writers_task::Task>,
        run_once::<readers_writers_solution::Solution>,
    ),
    (
        "rendezvous",
        run_once::<rendezvous_task::Task>,
        run_once::<rendezvous_solution::Solution>,
    ),
];

fn run_once<P: Program>(kernel: &mut Kernel) -> Result<(), Error> {
    let command = P::augment_args(Command::new("exercise").no_binary_name(true));
    let program = P::from_arg_matches(&command.get_matches_from([""; 0]));
    let program = program.expect("it needs no arguments");
    kernel.spawn("exercise", async move |os: &mut Os| program.main(os).await)?;
    kernel.run().map(drop)
}

/// Neither does an exercise hand out what solves it, nor does its solution go wrong.
#[test]
fn each_exercise_is_wrong_and_its_solution_is_right() {
    at_once(EXERCISES, |(name, task, solution)| {
        let graded = trapline::grade(task, solution).threads(1).run();
        assert!(
            graded.is_complete() && !graded.is_equal(),
            "{name}: {graded}"
        );
        let searched = &graded.reference;
        assert!(searched.schedules < 1_000, "{name}: {searched}");
        for outcome in &searched.outcomes {
            assert_eq!(outcome.ends(), "it ends", "{name}: {graded}");
        }
    });
}

#[test]
fn the_exercises_are_those_of_the_command_new() {
    let (code, help, _) = run(&["new", "--help"]);
    assert_eq!(code, 0);
    for (name, ..) in EXERCISES {
        has(&help, name);
    }
    let (code, _, err) = run(&["new", "fresh", "--exercise", "nope"]);
    assert_eq!(code, 2);
    has(&err, "invalid value 'nope' for '--exercise <EXERCISE>'");
}
