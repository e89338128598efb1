//! Each example of a help runs, and prints what one expects of it.

use std::{fs, path::Path, process::Command};

use crate::support::{at_once, command, example, has, run, texts};

/// An example without the binary, and a part of what it prints; or of a file, whose name is before a colon.
type Row = (&'static str, &'static str);

const FIRST: &[Row] = &[
    ("list", "Scheduling:\n  jobs"),
    ("boot wait", "Child done"),
    ("boot --virtual --seed 1 --trace wait", "wait_task(2) ..."),
    ("explore lost-wakeup", "one fails with none of its 5 turns"),
    ("boot echo --help", "with a task per client"),
];

const LIST: &[Row] = &[
    ("list", "What goes wrong:\n  starved"),
    ("list --json | jq -r .name", "parts\nmultitask\n"),
    ("boot multitask --help", "Two tasks that take turns"),
];

const BOOT: &[Row] = &[
    ("boot wait", "Child done"),
    (
        "boot --virtual --seed 7 --summary producer-consumer",
        "tasks 3, ticks 42",
    ),
    ("boot --with \"wait\" multitask", "Task 3 terminated"),
    (
        "boot --virtual --trace --inject listen:error=AddrInUse echo",
        "injected into listen(127.0.0.1:45000): address in use",
    ),
    (
        "boot --deny network,admin echo",
        "listen is denied: the limits of the task lack listen",
    ),
    (
        "boot --virtual --on a:\"echo --addr 0.0.0.0:80\" --on b:\"swarm --addr a:80 --clients 2 \
         --think 50ms\" --fault \"1s:cut a b\" --fault \"2s:heal a b\"",
        "answers in",
    ),
    (
        "boot --virtual --record run.trap convoy; trapline trace summary run.trap",
        "tasks 5, turns 89",
    ),
    (
        "boot --tape run.tape gossip; trapline replay run.tape",
        "taped to run.tape",
    ),
    (
        "boot --trace --log-format json wait 2>&1 >/dev/null | jq -c 'select(.tid==1)'",
        "\"op\":\"get_tid\"",
    ),
];

const GRADE: &[Row] = &[
    (
        "grade lost-wakeup --reference \"lost-wakeup --cured\"",
        "DEADLOCK: the reference never comes to this",
    ),
    (
        "grade \"deadlock --cured\" --reference \"deadlock --cured\"",
        "verdict: equal",
    ),
    (
        "grade --json lost-wakeup --reference \"lost-wakeup --cured\" | jq .tests",
        "\"status\": \"failed\"",
    ),
];

const EXPLORE: &[Row] = &[
    ("explore lost-wakeup", "one fails with none of its 5 turns"),
    (
        "explore --strategy pct:3 --schedules 100 deadlock --cured",
        "100 schedules pass",
    ),
    (
        "explore --strategy exhaustive deadlock --cured",
        "2 schedules pass; proved",
    ),
    (
        "explore --on server:\"echo --addr 0.0.0.0:80\" --chaos 1 --schedules 20 swarm --addr server:80 \
         --clients 2 --requests 3",
        "20 schedules pass",
    ),
    (
        "explore --strategy exhaustive --turns-take 0..5ms --schedules 100 timers",
        "if turns take at most 5ms on average",
    ),
    (
        "explore --faults 1 --may send:error=ConnectionReset gossip --cured",
        "fault: send:error=ConnectionReset at turn",
    ),
    (
        "explore --strategy exhaustive --mutate deadlock --cured",
        "mutations: 1 of 2 calls are needed",
    ),
    (
        "explore --cut reader --table lost-wakeup --cured",
        "4 cuts at 2 calls of the source pass",
    ),
    (
        "explore --shard 1/2 --json --schedules 100 deadlock --cured > part-1.json",
        "part-1.json:\"program\":\"deadlock\"",
    ),
    (
        "explore merge part-*.json",
        "not all parts are among the files",
    ),
];

const LAB: &[Row] = &[
    ("lab jobs", "36.667ms"),
    (
        "lab --policy fifo --policy rr:10ms --policy mlfq jobs --random 5",
        "E  ",
    ),
    (
        "lab --processors 2 --html lab.html interactive",
        "lab.html:cruncher-1",
    ),
    (
        "lab --policy lottery --seeds 10 --json jobs",
        "\"policy\":\"lottery\"",
    ),
];

const DEBUG: &[Row] = &[
    ("boot --tape run.tape --seed 3 gossip", "bob reads: welcome"),
    ("debug run.tape", ""),
    ("debug --seed 7 deadlock", ""),
    (
        "debug -c continue -c 'back wake tid 2' deadlock",
        "2 save: woken by its timer",
    ),
    (
        "debug -c 'until print line 6' -c tree run.tape",
        "1 gossip: ",
    ),
    ("debug run.tape < script", "the run is over: "),
];

const REPLAY: &[Row] = &[
    ("boot --tape run.tape gossip", "bob reads: welcome"),
    ("replay run.tape", "bob reads: welcome"),
    ("replay --trace run.tape", "listen(127.0.0.1:0)"),
    ("replay --task 3 run.tape", "3 host"),
    ("replay --record run.trap run.tape", "recorded to run.trap"),
    // The tests have neither.
    (
        "replay --at-speed --top run.tape",
        "a screen needs a terminal",
    ),
    (
        "replay --as-test loses_a_line run.tape",
        "there is no Cargo.toml here",
    ),
    ("replay --explore 1000 run.tape", "compared: the answers to"),
];

const TRACE: &[Row] = &[
    (
        "boot --virtual --record run.trap convoy",
        "62ms instead of 21ms",
    ),
    ("trace show run.trap | less", "exited: done"),
    (
        "trace show --task worker-1 --relative run.trap",
        "+00:00.000000    2 worker-1     spawned by 1",
    ),
    ("trace show --call sleep --from 10ms run.trap", "sleep(5ms)"),
    (
        "trace show --from 00:00.010 --to 20ms --sched run.trap",
        "slept from 00:00.007000",
    ),
    (
        "boot --virtual --record run.trap convoy",
        "62ms instead of 21ms",
    ),
    (
        "trace timeline run.trap -o run.html",
        "run.html:<!DOCTYPE html>",
    ),
    ("trace timeline run.trap -o run.svg", "run.svg:worker-4"),
    (
        "trace timeline --from 10ms --to 40ms --task worker-1 --task worker-2 run.trap -o part.svg",
        "part.svg:worker-2",
    ),
    (
        "trace timeline --scale turns --to 30t run.trap -o order.svg",
        "order.svg:worker-4",
    ),
    (
        "trace why 2 run.trap",
        "2 \"worker-1\" waited 13ms for mutex 1",
    ),
    (
        "trace why worker-1 --at 00:00.010 run.trap",
        "Meanwhile 3 \"worker-2\" held it",
    ),
    ("trace path run.trap", "critical path of 62ms"),
    ("trace summary run.trap", "tasks 5, turns 89"),
    ("trace summary --by-name run.trap", "tasks 5, turns 89"),
    (
        "trace summary --json run.trap | jq 'select(.summary == \"call\" and .errors > 0)'",
        "",
    ),
];

/// With a recording of a deadlock, in which tasks are alive at the end.
const AT_THE_END: &[Row] = &[
    (
        "trace ps --at 00:00.010 run.trap",
        "mutex 2, held by task 3",
    ),
    ("trace ps run.trap", "mutex 2, held by task 3"),
    ("trace ps --sort since run.trap", "mutex 2, held by task 3"),
    ("trace ps --by-name run.trap", "spend"),
    ("trace tree --at 00:00.010 run.trap", "└─ 3 spend: waits"),
    ("trace tree run.trap", "└─ 3 spend: waits"),
    ("trace tree --all run.trap", "└─ 3 spend: waits"),
    ("trace waits run.trap", "cycle: 2 -> 3 -> 2"),
    ("trace waits --at 00:00.010 run.trap", "cycle: 2 -> 3 -> 2"),
    (
        "trace waits --format dot run.trap | dot -Tsvg > waits.svg",
        "waits.svg:spend",
    ),
];

/// The examples of a help, without the binary and what is said of each.
fn examples_of(help: &str) -> Vec<String> {
    let (_, examples) = help.split_once("Examples:\n").expect("it has examples");
    let parts: Vec<&str> = examples.split(" \\\n").collect();
    let starts = parts.iter().skip(1).map(|part| part.trim_start());
    let examples = starts.fold(parts[0].to_string(), |all, part| all + " " + part);
    let lines = examples.lines().take_while(|line| line.starts_with("  "));
    let line = |line: &str| {
        let line = line.trim_start().trim_start_matches("trapline ");
        let end = line.find("  ").unwrap_or(line.len());
        line[..end].to_string()
    };
    lines.map(line).collect()
}

fn there_are_tools(line: &str) -> bool {
    let parts = line.split(" | ").skip(1);
    let mut tools = parts.filter_map(|part| part.split(' ').next());
    tools.all(|tool| {
        let found = command("sh", &["-c", &format!("command -v {tool}")]).output();
        found.expect("there is a shell").status.success()
    })
}

fn shell(line: &str, folder: &Path) -> Command {
    let mut shell = command("sh", &["-c", line]);
    let ours = Path::new(env!("CARGO_BIN_EXE_trapline")).parent();
    let theirs = std::env::var_os("PATH").unwrap_or_default();
    let paths = ours.map(Path::to_path_buf).into_iter();
    let paths = std::env::join_paths(paths.chain(std::env::split_paths(&theirs)));
    shell.env("PATH", paths.expect("they are paths"));
    shell.current_dir(folder);
    shell
}

fn check(commands: &[&str], rows: &[Row], first: &str) {
    let name = format!("examples-{}", commands.join("-").replace(' ', "-"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("script"), "continue\nwhere\n").unwrap();
    let _ = shell(first, &folder).output().unwrap();
    let helps = commands.iter().flat_map(|of| {
        let args: Vec<&str> = of.split_whitespace().chain(["--help"]).collect();
        examples_of(&run(&args).1)
    });
    let helps: Vec<String> = helps.collect();
    let known: Vec<&str> = rows.iter().map(|(line, _)| *line).collect();
    assert_eq!(helps, known, "the examples of {commands:?}, and their rows");
    for (line, shown) in rows.iter().filter(|(line, _)| there_are_tools(line)) {
        let (_, out, err) = texts(
            shell(&format!("trapline {line}"), &folder)
                .output()
                .unwrap(),
        );
        assert!(!err.contains("Usage: "), "{line}: {err}");
        match shown
            .split_once(':')
            .filter(|(file, _)| folder.join(file).is_file())
        {
            Some((file, text)) => has(&fs::read_to_string(folder.join(file)).unwrap(), text),
            None => has(&format!("{line}\n{out}{err}"), shown),
        }
    }
}

#[test]
fn each_example_of_a_help_runs_and_prints_what_one_expects_of_it() {
    let record = "trapline boot -q --virtual --seed 1 --record run.trap";
    let deadlock = format!("{record} deadlock");
    let traces = [
        "trace show",
        "trace timeline",
        "trace why",
        "trace path",
        "trace summary",
    ];
    at_once(
        [
            (&[""][..], FIRST, ""),
            (&["list"], LIST, ""),
            (&["boot"], BOOT, ""),
            (&["explore"], EXPLORE, ""),
            (&["grade"], GRADE, ""),
            (&["lab"], LAB, ""),
            (&["debug"], DEBUG, ""),
            (&["replay"], REPLAY, ""),
            (&traces, TRACE, ""),
            (
                &["trace ps", "trace tree", "trace waits"],
                AT_THE_END,
                &deadlock,
            ),
        ],
        |(commands, rows, first)| check(commands, rows, first),
    );
}

/// A wider line would be wrapped in a terminal of 80 columns, and could not be copied.
#[test]
fn no_example_of_a_help_is_wider_than_a_terminal() {
    let (_, listed, _) = run(&["list", "--json"]);
    let programs = listed.lines().map(|line| {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        format!("boot {}", entry["name"].as_str().unwrap())
    });
    let commands = |of: &str| -> Vec<String> {
        let args: Vec<&str> = of.split_whitespace().chain(["--help"]).collect();
        let (_, help, _) = run(&args);
        let (_, commands) = help.split_once("\nCommands:\n").expect("it has commands");
        let lines = commands.lines().take_while(|line| !line.is_empty());
        let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        let names = names.filter(|name| !name.is_empty() && *name != "help");
        names.map(|name| format!("{of} {name}")).collect()
    };
    let all: Vec<String> = [String::new()].into_iter().chain(commands("")).collect();
    let all: Vec<String> = all
        .into_iter()
        .chain(commands("trace"))
        .chain(programs)
        .collect();
    assert!(all.len() > 60, "{all:?}");
    for of in all {
        let args: Vec<&str> = of.split_whitespace().chain(["--help"]).collect();
        let (code, help, _) = run(&args);
        assert_eq!(code, 0, "{of}");
        let examples = help
            .split_once("Examples:\n")
            .map_or("", |(_, examples)| examples);
        for line in examples.lines() {
            assert!(line.chars().count() <= 80, "{of}: {line}");
        }
    }
}

#[test]
fn a_binary_with_other_programs_shows_examples_of_its_own() {
    for of in ["boot", "explore", "lab"] {
        let (code, help, _) = texts(example("rude", &[of, "--help"]).output().unwrap());
        assert_eq!(code, 0);
        let examples = examples_of(&help).join("\n");
        has(&examples, " panics");
        for other in [
            "wait", "echo", "gossip", "deadlock", "jobs", "{}", "PROGRAM",
        ] {
            assert!(!examples.contains(&format!(" {other}")), "{of}: {examples}");
        }
    }
}
