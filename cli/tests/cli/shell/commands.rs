//! The commands that ask about the run and change it.

use super::{fails, prints, shell};
use crate::{replay::Folder, support::*};

/// The same words as those of a kernel with a monitor, from the same functions.
#[test]
fn a_wait_is_explained_as_by_a_monitor() {
    let waits = "task 2 \"sleep\" waits for the timer at 00:05.000, since 00:00.000\n  sleep at ";
    let (code, out, err) = shell("sleep 5 & sleep 1; waits; where 2; why 2; why 2 | wc -l");
    assert_eq!(code, 0, "{err}");
    has(&out, waits);
    has(
        &out,
        "task 2 \"sleep\" waits for the timer at 00:05.000, since 00:00.000 (for 1s), parent 1, 1 trap\n",
    );
    has(&out, "00:00.000000    2 sleep        sleep(5s) ...\n");
    has(
        &out,
        "2 \"sleep\" has waited 1s for the timer at 00:05.000 (sleep at ",
    );
    assert!(out.ends_with("\n1\n"), "{out}");
    let (_, out, _) = shell("sleep 5 & sleep 6 & ps --filter 00:06 --sort traps; tree --filter 6");
    has(&out, "1 of 3 match\n");
    fails("why 9", "why: there is no live task 9: see ps");
}

#[test]
fn a_policy_replaces_the_one_before() {
    fails("policy lifo", POLICIES);
    prints("policy rr:1ms && policy fifo && seq 1 | cat", (0, "1\n"));
    let (_, first, _) = shell("policy random; seq 4 & seq 4 & seq 4 & wait");
    let (_, again, _) = shell("policy random; seq 4 & seq 4 & seq 4 & wait");
    let (_, fifo, _) = shell("seq 4 & seq 4 & seq 4 & wait");
    assert_eq!(first, again);
    assert_ne!(first, fifo);
}

const POLICIES: &str = "policy: there is no policy 'lifo': did you mean 'fifo'? There are fifo, rr, sjf, \
                        stcf, priority, mlfq, lottery, stride, fair, random, pct";

#[test]
fn a_rule_injects_from_then_on() {
    // The first `sleep` after the rule, not the first of the run.
    prints(
        "sleep 1; inject sleep:delay=2s:when=1; time sleep 1; time sleep 1",
        (0, "3.000s\n1.000s\n"),
    );
    let (code, out, err) = shell("inject sleep:kill; sleep 1; inject foo");
    assert_eq!((code, &*out), (1, ""));
    has(&err, "error: sleep 1: killed\n");
    has(&err, "there is no call 'foo'");
    let (_, _, err) = run(&["shell", "--virtual", "-c", "inject recv:kill"]);
    has(&err, "'recv:kill' did nothing: no task made that call");
}

#[test]
fn a_trace_goes_on_and_off() {
    let (code, out, err) =
        shell("trace on --call sleep; sleep 1; trace off; sleep 2; trace on --nam x");
    assert_eq!((code, &*out), (1, ""));
    has(&err, "a similar argument exists: '--name'");
    begins(
        &err,
        "00:00.000000    2 sleep        sleep(1s) ...\n\
         00:01.000000    2 sleep        ... sleep(1s)                = ok\n",
    );
    assert!(!err.contains("sleep(2s)"), "{err}");
    // What a task does without a trap is not of its last call.
    let deferred = |call: &str| shell(&format!("trace on --call {call}; seq 2 | wc")).2;
    assert_eq!(deferred("sleep"), "");
    assert!(
        deferred("close")
            .lines()
            .all(|line| line.contains("close(")),
        "{}",
        deferred("close")
    );
    has(&deferred("close"), " deferred\n");
}

#[test]
fn a_recording_begins_and_ends() {
    let folder = Folder::new("shell-record");
    let (first, second) = (folder.path("first"), folder.path("second"));
    let (code, out, err) = shell(&format!(
        "sleep 9 & seq 1; record {first}; seq 2; sleep 1; record {second}; seq 3"
    ));
    assert_eq!(
        (code, &*out),
        (0, "[1] task 2\n1\n1\n2\n1\n2\n3\n"),
        "{err}"
    );
    let shown = |file: &str| run(&["trace", "show", file]).1;
    let (first, second) = (shown(&first), shown(&second));
    has(&first, "4 seq          exited: done");
    assert!(!first.contains("    3 seq "), "{first}");
    // A task that was there before has its name, and its wait.
    has(&second, "    2 sleep ");
    has(&second, "6 seq          exited: done");
    assert!(!second.contains("    4 seq "), "{second}");
    // It would replace what is recorded so far, which goes on instead.
    let third = folder.path("third");
    let (code, out, err) = shell(&format!("record {third}; seq 1; record {third} || seq 2"));
    assert_eq!((code, &*out), (0, "1\n1\n2\n"));
    has(
        &err,
        &format!("error: record: {third} is being recorded to: name another file\n"),
    );
    let third = shown(&third);
    has(&third, "2 seq          exited: done");
    has(&third, "3 seq          exited: done");
    let (code, out, err) = shell("record /nowhere/x");
    assert_eq!((code, &*out), (1, ""));
    has(
        &err,
        "cannot record to /nowhere/x: there is no folder /nowhere",
    );
}

#[test]
fn no_shell_is_killed_and_one_that_a_crash_has_ended_is_none() {
    let line = "host b; kill 2; kill 3; fault crash b; seq 1\nkill 3";
    let (code, out, err) = run(&[
        "shell",
        "--virtual",
        "--seed=1",
        "--on",
        "b:cat",
        "-c",
        line,
    ]);
    assert_eq!((code, &*out), (1, ""), "{err}");
    let shell = |tid: u64| format!("error: kill: task {tid} is a shell: exit leaves it\n");
    has(&err, &(shell(2) + &shell(3)));
    has(
        &err,
        "error: host b: killed\nerror: kill: there is no task 3: see ps\n",
    );
}

#[test]
fn a_shell_on_a_host_goes_on_when_that_of_another_host_has_crashed() {
    let among = |hosts: &[char], line: &str| {
        let server = |host| ["--on".into(), format!("{host}:kv --addr 0.0.0.0:6000")];
        let on: Vec<String> = hosts.iter().flat_map(server).collect();
        let on: Vec<&str> = on.iter().map(String::as_str).collect();
        let args = ["shell", "-q", "--virtual", "--seed=1", "-c", line];
        run(&[&args[..], &on].concat())
    };
    let line = |line: &str| among(&['b', 'c'], line);
    // One at a time takes the next command.
    let (code, out, err) = line("host b; host c; fault crash b; ps; exit; seq 1");
    assert_eq!(code, 0, "{err}");
    has(&err, "error: host b: killed");
    has(&out, "shell@c");
    assert!(out.ends_with("\n1\n"), "{out}");
    let (_, _, err) = line("host b; host c; fault crash b; kill 7; kill 5; exit; kill 7");
    has(&err, "error: kill: task 7 is a shell: exit leaves it");
    has(&err, "error: kill: there is no task 5: see ps");
    has(&err, "error: kill: there is no task 7: see ps");
    // One that has begun behind a crash has the prompt, too.
    let behind = "host b; host c; fault crash b; host d; fault crash c; sleep 1; ps; exit; seq 1";
    let (code, out, err) = among(&['b', 'c', 'd'], behind);
    assert_eq!((code, out.lines().last()), (0, Some("1")), "{err}");
    let last = out.lines().find(|line| line.contains("shell@d"));
    assert!(last.is_some_and(|line| line.contains("running")), "{out}");
    // The first one is gone, and its number is that of no shell.
    let (code, out, err) = line("host b; fault crash main; kill 3; seq 1");
    assert_eq!((code, out.lines().last()), (0, Some("1")), "{err}");
    has(&err, "error: kill: there is no task 3: see ps");
}

#[test]
fn a_network_is_changed_and_broken() {
    let on = |line: &str| {
        let args = [
            "shell",
            "--virtual",
            "--seed=1",
            "--on",
            "b:kv --addr 0.0.0.0:60",
            "-c",
        ];
        run(&[&args[..], &[line]].concat())
    };
    let (_, out, err) = on("tree; fault crash b; tree; fault restart b; sleep 1; tree | grep kv");
    let ready = "Ready at 0.0.0.0:60\n";
    // The shell has its turn before the daemon has made a call.
    let server = "1 kv@b: ready\n└─ 3 signals@b (daemon): ready\n";
    let expected = format!("{ready}{server}2 shell@main: running\n2 shell@main: running\n{ready}");
    begins(&out, &expected);
    has(&out, " kv@b: waits for the first of: ");
    assert!(!err.contains("panicked"), "{err}");
    let (_, _, err) =
        on("fault crash c; fault brake b; net latncy=1; net disk-capacity=1; seq 9 > f");
    has(
        &err,
        "fault: there is no host 'c': there are localhost, b, main\n",
    );
    has(&err, "did you mean 'latency'?");
    // A host of its own, with its disk, up to its end.
    let (_, out, err) =
        on("seq 2 > f; host b; cat f; seq 1 > f; wc f; tree | head -n 1; exit; wc f; host x");
    has(&err, "\"cat@b\" failed: cannot open f on the disk");
    has(&out, "1 1 2\n");
    has(&out, "2 2 4\n");
    has(
        &err,
        "host: there is no host 'x': there are localhost, b, main\n",
    );
    // A crash of that host ends the shell there, and not the first one.
    let (code, _, err) = on("host b; fault crash b");
    assert_eq!(code, 1);
    has(&err, "host b: killed\n");
    let (code, _, err) = on("host b; exit 5");
    assert_eq!(code, 5, "{err}");
    assert_eq!(on("host b; exit 5; seq 1 > f").0, 0);
    for command in ["net latency=1ms", "fault cut a b", "host b"] {
        let (code, out, err) = run(&["shell", "-q", "-c", command]);
        assert_eq!((code, &*out), (1, ""));
        has(
            &err,
            "this world has no simulated network: boot with --virtual\n",
        );
    }
}

/// A search chooses the order and breaks what it wants to itself.
#[test]
fn a_search_has_options_for_what_changes_a_run() {
    for command in [
        "policy rr",
        "inject recv:kill",
        "net fragment",
        "record x",
        "trace on",
    ] {
        let (_, out, err) = run(&["explore", "shell", "-c", command]);
        let name = command.split(' ').next().unwrap();
        has(
            &(out + &err),
            &format!("{name}: a search has an option for this"),
        );
    }
}

#[test]
fn the_same_script_prints_the_same_bytes() {
    let line = "trace on; policy lottery; seq 30 | cat | wc & inject get:delay=1ms; \
                tree; ps; waits; where 1; wait; seq 3 > f; cat f | grep 2; time sleep 1";
    let first = shell(line);
    assert_eq!(shell(line), first);
    has(&first.2, "seq");
}
