//! `explore`: the search for a schedule that breaks a program.

use std::{
    collections::BTreeSet,
    env, fs,
    process::{Command, Stdio},
};

use serde_json::Value;

/// Runs it to its end: the exit code, standard output and standard error.
fn run(args: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
    command.arg("explore").args(args).stdin(Stdio::null());
    command.envs(variables.iter().copied());
    let output = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    let code = output.status.code().expect("no signal ended it");
    (code, text(output.stdout), text(output.stderr))
}

fn object(args: &[&str]) -> Value {
    let (_, out, err) = run(args, &[]);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
}

#[test]
fn the_planted_bugs_are_found() {
    for strategy in ["random", "pct", "pct:1", "round-robin"] {
        let (code, out, err) = run(&["--strategy", strategy, "deadlock"], &[]);
        assert_eq!((code, &*err), (1, ""), "{strategy}: {out}");
        assert!(out.contains("cycle: 2 -> 3 -> 2"), "{out}");
        let (code, out, _) = run(&["--strategy", strategy, "lost-wakeup"], &[]);
        assert_eq!(code, 1, "{strategy}: {out}");
        assert!(out.contains("waits for"), "{out}");
    }
    let (code, out, _) = run(&["--strategy", "exhaustive", "deadlock"], &[]);
    assert!(code == 1 && out.contains("cycle: 2 -> 3 -> 2"), "{out}");
    let (code, out, _) = run(&["--strategy", "exhaustive", "deadlock", "--cured"], &[]);
    assert_eq!(code, 0, "{out}");
    assert!(
        out.contains("no other schedule has another outcome"),
        "{out}"
    );
    for program in ["deadlock", "lost-wakeup"] {
        let (code, out, _) = run(&[program, "--cured"], &[]);
        assert_eq!(code, 0, "{out}");
        assert!(out.starts_with("1000 schedules pass\n"), "{out}");
    }
}

#[test]
fn the_command_of_a_report_repeats_the_schedule() {
    let (_, out, _) = run(&["--seed", "7", "deadlock"], &[]);
    let (_, again) = out
        .split_once("to see it again:  trapline explore ")
        .expect("it has one");
    let again: Vec<&str> = again.split_whitespace().collect();
    let (code, repeated, err) = run(&again, &[]);
    assert_eq!((code, &*err), (1, ""));
    assert!(repeated.contains("cycle: 2 -> 3 -> 2"), "{repeated}");
    assert!(repeated.contains(again[1]), "{repeated}");
    let (code, out, err) = run(&["--replay", "7.1.00000000", "deadlock", "--cured"], &[]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(
        err.contains("the program has changed since 7.1.00000000"),
        "{err}"
    );
}

#[test]
fn options_are_read_before_the_program_and_after_it() {
    let before = object(&["--schedules", "30", "--seed", "5", "--json", "multitask"]);
    let after = object(&["multitask", "--schedules", "30", "--seed", "5", "--json"]);
    assert_eq!(before, after);
    assert_eq!(before["schedules"], 30);
    let mixed = object(&[
        "--schedules",
        "9",
        "--json",
        "multitask",
        "--schedules",
        "30",
    ]);
    assert_eq!(mixed["schedules"], 30);
}

#[test]
fn shards_are_joined_to_the_whole_search() {
    let folder = env::temp_dir().join(format!("trapline-shards-{}", std::process::id()));
    fs::create_dir(&folder).expect("it can be made");
    let search = ["--json", "--schedules", "60", "multitask"];
    let mut files = Vec::new();
    for number in 1..=8 {
        let shard = format!("{number}/8");
        let (code, out, _) = run(&[&["--shard", &shard], &search[..]].concat(), &[]);
        assert_eq!(code, 0);
        let file = folder.join(format!("{number}.json"));
        fs::write(&file, out).expect("it can be written");
        files.push(file.to_str().expect("it is text").to_string());
    }
    let merge: Vec<&str> = ["merge"]
        .into_iter()
        .chain(files.iter().map(|file| &**file))
        .collect();
    let (union, whole) = (object(&merge), object(&search));
    assert_eq!(union, whole);
    let outcomes: BTreeSet<String> = whole["outcomes"]
        .as_array()
        .expect("it is a list")
        .iter()
        .map(Value::to_string)
        .collect();
    assert!(outcomes.len() > 50);
    // A part of another search does not fit.
    let (_, out, _) = run(&["--json", "--seed", "9", "multitask"], &[]);
    fs::write(&files[1], out).expect("it can be written");
    let (code, _, err) = run(&merge, &[]);
    assert_eq!(code, 1);
    assert!(
        err.contains("is of another search than") && err.contains("the seed differs"),
        "{err}"
    );
    fs::write(&files[1], "{}").expect("it can be written");
    let (_, _, err) = run(&merge, &[]);
    assert!(
        err.contains("2.json is not the JSON object of a search"),
        "{err}"
    );
    fs::remove_dir_all(folder).expect("it is there");
}

#[test]
fn a_cluster_numbers_the_shards() {
    let search = ["--json", "--schedules", "60", "multitask"];
    let parts = [&["--shards", "8"], &search[..]].concat();
    for variable in [
        "SLURM_ARRAY_TASK_ID",
        "JOB_COMPLETION_INDEX",
        "PARALLEL_SEQ",
    ] {
        let (code, out, _) = run(&parts, &[(variable, "3")]);
        assert_eq!(code, 0);
        let part: Value = serde_json::from_str(&out).expect("it is an object");
        assert_eq!(
            (&part["shard"], &part["schedules"]),
            (&"3/8".into(), &8.into())
        );
    }
    let (code, _, err) = run(&parts, &[("PARALLEL_SEQ", "9")]);
    assert_eq!(code, 2);
    assert!(err.contains("PARALLEL_SEQ=9: it takes I/N"), "{err}");
    let (code, _, err) = run(&parts, &[]);
    assert_eq!(code, 2);
    assert!(
        err.contains("--shards needs one of SLURM_ARRAY_TASK_ID"),
        "{err}"
    );
}

#[test]
fn wrong_options_are_explained() {
    for (args, explanation) in [
        (
            &["--strategy", "luck", "wait"][..],
            "there are random, pct, pct:CHANGES",
        ),
        (&["--shard", "9/8", "wait"], "it takes I/N, such as 3/8"),
        (&["--replay", "x", "wait"], "\"x\" is no replay"),
        (&["--jobs", "0", "wait"], "it takes a whole number from 1"),
        (&["nothing"], "nothing"),
    ] {
        let (code, _, err) = run(args, &[]);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(explanation), "{err}");
    }
}

#[test]
fn servers_that_are_left_are_no_failure() {
    let (code, out, err) = run(&["echo", "--schedules", "5"], &[]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("Server starting at 127.0.0.1:45000"), "{out}");
}
