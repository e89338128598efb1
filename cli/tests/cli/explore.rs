//! `explore`: the search for a schedule that breaks a program.

mod reasons;
mod worth;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::support::{at_once, has, rude, texts};

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

/// As in `trapline explore deadlock | true`.
#[test]
fn a_verdict_is_the_exit_code_even_if_no_process_reads_it() {
    for args in [
        &["explore", "deadlock"][..],
        &["explore", "--json", "deadlock"],
    ] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
        let status = command.args(args).stdout(writer).status().expect("it runs");
        assert_eq!(status.code(), Some(1), "{args:?}");
    }
}

#[test]
fn the_planted_bugs_are_found() {
    for strategy in ["random", "pct", "pct:1", "fifo"] {
        let (code, out, err) = run(&["--strategy", strategy, "deadlock"], &[]);
        assert_eq!((code, &*err), (1, ""), "{strategy}: {out}");
        assert!(out.contains("cycle: 2 -> 3 -> 2"), "{out}");
        let (code, out, _) = run(&["--strategy", strategy, "lost-wakeup"], &[]);
        assert_eq!(code, 1, "{strategy}: {out}");
        assert!(out.contains("waits for"), "{out}");
    }
    let (code, out, _) = run(&["--strategy", "exhaustive", "deadlock"], &[]);
    assert!(code == 1 && out.contains("cycle: 2 -> 3 -> 2"), "{out}");
    for program in ["deadlock", "lost-wakeup"] {
        let (code, out, _) = run(&["--strategy", "exhaustive", program, "--cured"], &[]);
        assert_eq!(code, 0, "{out}");
        has(
            &out,
            "; proved: no other order of turns, if turns take no time and the seed is 0, has another outcome",
        );
    }
    for program in ["deadlock", "lost-wakeup"] {
        let (code, out, _) = run(&[program, "--cured"], &[]);
        assert_eq!(code, 0, "{out}");
        assert!(out.starts_with("1000 schedules pass\n"), "{out}");
    }
}

#[test]
fn a_server_that_forgets_an_answer_is_found() {
    let unanswered = "\n  a client without an answer: 2 \"client\"\n";
    let waits = "waits for device 2 (read), the connection of localhost 127.0.0.1:49152 with";
    for command in [
        &["explore", "forgets"][..],
        &["boot", "--virtual", "forgets"],
    ] {
        let (code, out, err) = texts(rude(command).output().expect("it runs"));
        let text = out + &err;
        assert!(code != 0 && text.contains(unanswered), "{text}");
        assert!(text.contains(waits), "{text}");
        assert!(text.contains("recv at cli/examples/rude.rs:"), "{text}");
    }
}

#[test]
fn a_task_that_makes_no_trap_ends_with_the_time_of_the_search() {
    let strategies = ["random", "pct:1", "fifo", "exhaustive"];
    at_once(strategies, |strategy| {
        let search = [
            "explore",
            "--strategy",
            strategy,
            "--max-time",
            "300ms",
            "hogs",
        ];
        let (code, out, err) = texts(rude(&search).output().expect("it runs"));
        assert_eq!(code, 1, "{strategy}: {out}{err}");
        let why = "error: the time of 300ms is over, and task 1 \"hogs\" makes no trap since, or \
                   is still in, its call sleep, at or after cli/examples/rude.rs:";
        assert!(err.contains(why), "{strategy}: {err}");
        let again: Vec<&str> = again_of(&err).split(' ').collect();
        assert_eq!(again[1..3], ["explore", "--replay"], "{strategy}");
        let (code, _, again) = texts(rude(&again[1..]).output().expect("it runs"));
        assert_eq!((code, again), (1, err), "{strategy}");
    });
}

#[test]
fn a_search_of_nothing_fails() {
    let (code, out, err) = run(&["--max-time", "1ns", "parts"], &[]);
    assert_eq!(code, 1);
    assert_eq!(out, "no schedule ran to its end: it ended after 1ns\n");
    let why = "error: no schedule ran to its end within --max-time: give the search more time\n";
    assert_eq!(err, why);
}

/// The command of a report. It begins with the word that has started the binary.
fn again_of(report: &str) -> &str {
    let found = report.split_once("to see it again:  ");
    let again = found.expect("it has a command").1;
    again.lines().next().expect("it is a line")
}

#[test]
fn the_command_of_a_report_can_be_pasted_into_a_shell() {
    let options = ["--seed", "7", "--on", "b:jobs --job 0,5ms", "deadlock"];
    let (code, out, err) = run(&options, &[]);
    assert_eq!((code, &*err), (1, ""), "{out}");
    let again = again_of(&out);
    assert!(again.contains(" --on 'b:jobs --job 0,5ms' "), "{again}");
    let output = Command::new("sh").args(["-c", again]).output();
    let output = output.expect("it runs");
    let repeated = String::from_utf8(output.stdout).expect("it is text");
    assert_eq!(output.status.code(), Some(1), "{again}: {repeated}");
    assert!(repeated.contains("cycle: "), "{repeated}");
}

#[test]
fn the_command_of_a_report_repeats_the_schedule() {
    let (_, out, _) = run(&["--seed", "7", "deadlock"], &[]);
    let again: Vec<&str> = again_of(&out).split(' ').collect();
    assert_eq!(again[..2], [env!("CARGO_BIN_EXE_trapline"), "explore"]);
    let (code, repeated, err) = run(&again[2..], &[]);
    assert_eq!((code, &*err), (1, ""));
    assert!(repeated.contains("cycle: 2 -> 3 -> 2"), "{repeated}");
    assert!(repeated.contains(again[3]), "{repeated}");
    let (code, out, err) = run(&["--replay", "7.1.00000001", "deadlock", "--cured"], &[]);
    assert_eq!(code, 1, "{out}{err}");
    has(&err, "the program has changed since 7.1.00000001");
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

/// Runs 8 shards of a search at once, as processes that a cluster has numbered. Returns the files
/// with their results.
fn eight_shards(folder: &Path, variable: &str, first: u64, search: &[&str]) -> Vec<String> {
    let start = |number: u64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
        command.args(["explore", "--shards", "8", "--jobs", "1"]);
        command.args(search).stdin(Stdio::null());
        command.env(variable, (first + number).to_string());
        let path = folder.join(format!("{}.json", number + 1));
        let file = fs::File::create(&path).expect("it can be made");
        let child = command.stdout(file).spawn().expect("it runs");
        (child, path.to_str().expect("it is text").to_string())
    };
    let shards: Vec<_> = (0..8).map(start).collect();
    let end = |(mut child, file): (Child, String)| {
        assert!(child.wait().expect("it ends").success(), "{file}");
        file
    };
    shards.into_iter().map(end).collect()
}

fn merge(files: &[String]) -> (i32, String, String) {
    let files = files.iter().map(|file| &**file);
    run(&["merge"].into_iter().chain(files).collect::<Vec<_>>(), &[])
}

fn folder(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("trapline-{name}-{}", std::process::id()));
    fs::create_dir(&folder).expect("it can be made");
    folder
}

#[test]
fn eight_processes_are_joined_to_the_whole_search() {
    let folder = folder("shards");
    for (at, (search, variable, first)) in [
        (
            &["--json", "--schedules", "60", "multitask"][..],
            "JOB_COMPLETION_INDEX",
            0,
        ),
        (
            &["--json", "--strategy", "exhaustive", "deadlock", "--cured"],
            "PARALLEL_SEQ",
            1,
        ),
        (
            &["--json", "--preemptions", "1", "wait"],
            "SLURM_ARRAY_TASK_ID",
            0,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = folder.join(at.to_string());
        fs::create_dir(&folder).expect("it can be made");
        let files = eight_shards(&folder, variable, first, search);
        let (code, text, err) = merge(&files);
        assert_eq!((code, &*err), (0, ""), "{text}");
        let union: Value = serde_json::from_str(&text).expect("it is an object");
        assert_eq!(union, object(search));
        assert_eq!(union["proved"], union["complete"], "{union}");
        assert!(union["schedules"].as_u64() > Some(1), "{union}");
    }
    fs::remove_dir_all(folder).expect("it is there");
}

#[test]
fn parts_that_do_not_fit_are_not_joined() {
    let folder = folder("parts");
    let search = ["--json", "--strategy", "exhaustive", "wait"];
    let files = eight_shards(&folder, "JOB_COMPLETION_INDEX", 0, &search);
    // Several tasks with one causal order.
    let (_, text, _) = merge(&files);
    let whole: Value = serde_json::from_str(&text).expect("it is an object");
    assert_eq!(whole["classes"], 1);
    assert_eq!(
        (&whole["complete"], &whole["proved"]),
        (&true.into(), &false.into())
    );
    assert_eq!(whole, object(&search));
    let (_, text, _) = merge(&files[1..]);
    let rest: Value = serde_json::from_str(&text).expect("it is an object");
    assert_eq!(rest["complete"], false);
    assert_eq!(rest["bound"], "not all parts are among the files");
    assert_eq!(rest["proved"], false);
    fs::copy(&files[0], &files[2]).expect("it is there");
    let (code, _, err) = merge(&files);
    assert_eq!(code, 2);
    has(&err, "3.json is part 1/8, which another file is, too");
    let (_, out, _) = run(
        &["--json", "--strategy", "exhaustive", "--seed", "9", "wait"],
        &[],
    );
    fs::write(&files[1], out).expect("it can be written");
    let (_, _, err) = merge(&files);
    assert!(
        err.contains("is of another search than") && err.contains("the seed differs"),
        "{err}"
    );
    fs::write(&files[1], "{}").expect("it can be written");
    let (code, _, err) = merge(&files);
    assert_eq!(code, 2);
    has(&err, "2.json is not the JSON object of a search");
    let (code, _, err) = run(&["merge", "missing.json"], &[]);
    assert_eq!(code, 2);
    assert!(err.contains("cannot read missing.json"), "{err}");
    fs::remove_dir_all(folder).expect("it is there");
}

#[test]
fn the_result_of_a_merge_is_no_part() {
    let folder = folder("merged");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("it can be written");
        path.to_str().expect("it is text").to_string()
    };
    let part = |shard: &str| {
        run(
            &["--json", "--schedules", "4", "--shard", shard, "wait"],
            &[],
        )
        .1
    };
    let parts = [file("1.json", &part("1/2")), file("2.json", &part("2/2"))];
    let (code, all, err) = merge(&parts);
    assert_eq!((code, &*err), (0, ""));
    let all = file("all.json", &all);
    let [first, second] = parts;
    for files in [
        [first, second, all.clone()].to_vec(),
        vec![all.clone(), all.clone()],
    ] {
        let (code, out, err) = merge(&files);
        assert_eq!((code, &*out), (2, ""));
        assert!(err.contains("all.json is no part of a search"), "{err}");
    }
    let (code, out, _) = merge(&[all]);
    assert_eq!(code, 0);
    assert!(out.contains("\"schedules\":4"), "{out}");
    fs::remove_dir_all(folder).expect("it is there");
}

#[test]
fn parts_of_different_searches_are_not_joined() {
    let folder = folder("searches");
    let part = |number: u64, options: &[&str]| {
        let shard = format!("{number}/2");
        let search = ["--json", "--schedules", "4", "--shard", &shard];
        let (_, out, err) = run(&[&search, options].concat(), &[]);
        let path = folder.join(format!("{number}.json"));
        fs::write(&path, out).unwrap_or_else(|error| panic!("{error}: {err}"));
        path.to_str().expect("it is text").to_string()
    };
    let first = part(1, &["lost-wakeup", "--cured"]);
    for (options, difference) in [
        (
            &["lost-wakeup"][..],
            r#"arguments is {"cured":["false"]}, not {"cured":["true"]}"#,
        ),
        (
            &["--max-ticks", "99", "lost-wakeup", "--cured"],
            r#"--max-ticks is ["99"], not []"#,
        ),
        (
            &["lost-wakeup", "--cured", "--with", "wait"],
            r#"--with is ["wait"], not []"#,
        ),
        (
            &["--net", "latency=1ms", "lost-wakeup", "--cured"],
            r#"--net is ["latency=1ms"], not []"#,
        ),
        (
            &["--inject", "yield:delay=1ms", "lost-wakeup", "--cured"],
            r#"--inject is ["yield:delay=1ms"], not []"#,
        ),
    ] {
        let (_, out, err) = merge(&[first.clone(), part(2, options)]);
        assert!(out.is_empty() && err.contains(difference), "{out}{err}");
    }
    let second = part(2, &["lost-wakeup", "--cured"]);
    let (code, _, err) = merge(&[first, second]);
    assert_eq!((code, &*err), (0, ""));
    fs::remove_dir_all(folder).expect("it is there");
}

#[test]
fn a_slurm_array_needs_no_option() {
    let array = [
        ("SLURM_ARRAY_TASK_ID", "5"),
        ("SLURM_ARRAY_TASK_MIN", "1"),
        ("SLURM_ARRAY_TASK_STEP", "2"),
        ("SLURM_ARRAY_TASK_COUNT", "8"),
    ];
    let search = ["--json", "--schedules", "60", "multitask"];
    let (code, out, _) = run(&search, &array);
    assert_eq!(code, 0);
    let part: Value = serde_json::from_str(&out).expect("it is an object");
    assert_eq!(
        (&part["shard"], &part["schedules"]),
        (&"3/8".into(), &8.into())
    );
    let (_, out, _) = run(&["--shards", "4", "multitask"], &array);
    assert!(out.contains("schedules of part 3/4 pass"), "{out}");
    for (set, why) in [
        (&[("PARALLEL_SEQ", "9")][..], "number 9 in its cluster"),
        (&[("PARALLEL_SEQ", "x")], "PARALLEL_SEQ=x: it takes"),
        (&[], "and none is set; or give --shard I/N"),
    ] {
        let (code, _, err) = run(&["--shards", "8", "multitask"], set);
        assert!(code == 2 && err.contains(why), "{err}");
    }
}

#[test]
fn hosts_faults_and_injections_are_those_of_boot() {
    let network = [
        "--on",
        "server:echo --addr 0.0.0.0:80",
        "--net",
        "latency=1ms..9ms",
        "--schedules",
        "20",
    ];
    let swarm = [
        "swarm",
        "--addr",
        "server:80",
        "--clients",
        "2",
        "--requests",
        "3",
    ];
    let explore = |options: &[&str]| run(&[&network, options, &swarm[..]].concat(), &[]);
    let (code, out, err) = explore(&[]);
    assert_eq!((code, &*err), (0, ""), "{out}");
    assert!(out.starts_with("20 schedules pass\noutcomes: "), "{out}");
    let (code, out, err) = explore(&["--inject", "recv:error=ConnectionReset:when=5+"]);
    assert_eq!((code, &*err), (1, ""), "{out}");
    assert!(out.contains("connection reset"), "{out}");
    let (code, out, _) = explore(&["--fault", "0s:cut main server"]);
    assert_eq!(code, 1, "{out}");
    let (code, _, err) = explore(&["--fault", "0s:cut main sever"]);
    assert_eq!(code, 2);
    has(
        &err,
        "did you mean 'server'? There are localhost, server, main",
    );
    let (_, out, _) = run(
        &["--with", "deadlock --cured", "--schedules", "5", "wait"],
        &[],
    );
    assert!(out.contains("Waiting for child"), "{out}");
}

#[test]
fn the_program_may_be_left_out_beside_those_of_hosts() {
    let (code, out, err) = run(&["--on", "a:wait", "--schedules", "3"], &[]);
    assert_eq!((code, &*err), (0, ""), "{out}");
    assert!(out.starts_with("3 schedules pass\n"), "{out}");
    let (code, out, err) = run(&["--schedules", "3"], &[]);
    assert_eq!((code, &*out), (2, ""));
    assert!(
        err.contains("name a program") && err.contains(" explore [OPTIONS] PROGRAM"),
        "{err}"
    );
}

#[test]
fn a_search_says_why_it_is_not_complete() {
    for (args, why) in [
        (
            &["--preemptions", "1", "wait"][..],
            "only schedules with at most 1 preemption ran",
        ),
        (
            &[
                "--strategy",
                "exhaustive",
                "--jobs",
                "2",
                "--schedules",
                "2",
                "lost-wakeup",
                "--cured",
            ],
            "it ended after 2 schedules",
        ),
    ] {
        let (code, out, err) = run(args, &[]);
        assert_eq!((code, &*err), (0, ""), "{out}");
        assert!(
            out.contains("; the search is not complete: ") && out.contains(why),
            "{out}"
        );
    }
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
        (
            &["--jobs", "0", "wait"],
            "it takes a whole number from 1 to 1024",
        ),
        (
            &["--jobs", "1000000", "wait"],
            "it takes a whole number from 1 to 1024",
        ),
        (
            &["--schedules", "-1", "wait"],
            "'-1' for '--schedules <N>': it takes a whole number from 1 to",
        ),
        (
            &["wait", "--max-ticks", "-1"],
            "'-1' for '--max-ticks <N>': it takes a whole number from 0 to",
        ),
        (
            &["--shards", "-1", "wait"],
            "'-1' for '--shards <N>': it takes a whole number from 0 to",
        ),
        (&["nothing"], "there is no program 'nothing'"),
        (&["nothing"], " explore [OPTIONS] PROGRAM"),
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

/// Two programs on two hosts that never use the network.
const APART: [&str; 4] = ["--on", "a:parts", "--on", "b:parts"];

#[test]
fn a_search_in_which_no_task_feels_chaos_says_so() {
    let (code, out, err) = run(
        &[&["--chaos", "3", "--schedules", "5"], &APART[..]].concat(),
        &[],
    );
    assert_eq!(code, 0, "{out}{err}");
    has(&err, "no task felt a fault of chaos: in 5 schedules ");
    let (code, _, err) = run(&[&["--schedules", "5"], &APART[..]].concat(), &[]);
    assert_eq!((code, &*err), (0, ""));
}

#[test]
fn a_fault_that_never_could_happen_is_no_success() {
    let faults = ["--faults", "1", "--may", "cut a c", "--may", "send:kill"];
    let search = [&["--schedules", "5", "--seed", "1"], &faults[..], &APART].concat();
    let (code, out, err) = run(&search, &[]);
    assert_eq!((code, &*err), (1, ""), "{out}");
    has(&out, "the fault \"cut a c\" never could happen: ");
    has(
        &out,
        "the fault \"send:kill\" never could happen: no task makes the call send in any schedule",
    );
    has(&out, "fault send:kill: drawn 0 times, happened 0, felt 0\n");
    let result = object(&[&["--json"], &search[..]].concat());
    assert_eq!(result["idle"].as_object().expect("they are named").len(), 2);
    assert_eq!(result["faults"]["send:kill"]["drawn"], 0);
}

/// A part need not meet each fault. What no part could meet fails the merge, as it fails the whole search.
#[test]
fn a_merge_names_the_faults_that_could_happen_in_no_part() {
    let folder = folder("idle");
    let faults = [
        "--faults",
        "1",
        "--may",
        "send:kill",
        "--may",
        "yield:delay=1ms",
    ];
    let search = [&["--json", "--schedules", "8"], &faults[..], &APART].concat();
    let part = |shard: &str| {
        let (code, out, err) = run(&[&["--shard", shard], &search[..]].concat(), &[]);
        assert_eq!((code, &*err), (0, ""), "{out}");
        out
    };
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("it can be written");
        path.to_str().expect("it is text").to_string()
    };
    let [first, second] = ["1/2", "2/2"].map(part);
    let files = [file("1.json", &first), file("2.json", &second)];
    let (code, out, err) = merge(&files);
    assert_eq!((code, &*err), (1, ""), "{out}");
    let union: Value = serde_json::from_str(&out).expect("it is an object");
    assert_eq!(union, object(&search));
    let idle = union["idle"].as_object().expect("they are named");
    assert!(idle.keys().eq(["send:kill"]), "{union}");
    let yielded = &union["faults"]["yield:delay=1ms"];
    assert!(yielded["drawn"].as_u64() > Some(0), "{union}");
    // It could happen in the other part, which may be missing.
    let (code, out, _) = merge(&files[..1]);
    assert_eq!(code, 0, "{out}");
    let mut met: Value = serde_json::from_str(&second).expect("it is an object");
    met["idle"] = serde_json::json!({});
    file("2.json", &met.to_string());
    let (code, out, _) = merge(&files);
    assert_eq!(code, 0, "{out}");
    // A part without a schedule knows nothing.
    met["schedules"] = 0.into();
    file("2.json", &met.to_string());
    assert_eq!(merge(&files).0, 1);
    fs::remove_dir_all(folder).expect("it is there");
}
