//! After a deadlock, a fault, or the end of the process: what the report says, and what is left.

use std::os::unix::process::ExitStatusExt;

use super::*;

const DEADLOCK: &str = "\
error: deadlock: no task is ready, and nothing can make one ready
  tid 1 \"deadlock\" waits for the end of task 2, since 00:00.000
    wait at programs/cases/deadlock.rs:29
  tid 2 \"save\" waits for mutex 2, held by task 3, since 00:00.001
    lock at programs/cases/deadlock.rs:42, spawned at programs/cases/deadlock.rs:20
  tid 3 \"spend\" waits for mutex 1, held by task 2, since 00:00.001
    lock at programs/cases/deadlock.rs:42, spawned at programs/cases/deadlock.rs:28
  cycle: 2 -> 3 -> 2
  waits on a cycle: 1 -> 2
";
const LAST_TRAPS: &str = "\
the last traps of task 1 deadlock:
00:00.000000    1 deadlock     new_queue(unbounded, mutex)  = mutex 1
00:00.000000    1 deadlock     new_queue(unbounded, mutex)  = mutex 2
00:00.000000    1 deadlock     new_task(\"save\")             = 2
00:00.000000    1 deadlock     new_task(\"spend\")            = 3
00:00.000000    1 deadlock     wait_task(2) ...
the last traps of task 2 save:
00:00.000000    2 save         lock(mutex 1)                = message 0
00:00.000000    2 save         sleep(1ms)                   = ok
00:00.001000    2 save         lock(mutex 2) ...
the last traps of task 3 spend:
00:00.000000    3 spend        lock(mutex 2)                = message 0
00:00.000000    3 spend        sleep(1ms)                   = ok
00:00.001000    3 spend        lock(mutex 1) ...
";

#[test]
fn a_deadlock_shows_the_last_traps_of_those_who_wait() {
    let place = Place::new("post-mortem");
    let boot = ["boot", "-q", "--virtual", "--seed", "1"];
    let (code, _, err) = place.run(&[&boot[..], &["deadlock"]].concat());
    assert_eq!((code, &*err), (3, DEADLOCK));
    for option in [
        &["--post-mortem"][..],
        &["--record", "run.trap"],
        &["--record-last", "500", "--record", "run.trap"],
    ] {
        let (code, _, err) = place.run(&[&boot, option, &["deadlock"]].concat());
        assert_eq!(
            (code, err),
            (3, format!("{DEADLOCK}{LAST_TRAPS}")),
            "{option:?}"
        );
    }
    let json = ["--post-mortem", "--log-format", "json", "deadlock"];
    let (_, _, err) = place.run(&[&boot[..], &json].concat());
    let lines: Vec<serde_json::Value> = err
        .lines()
        .map(|line| serde_json::from_str(line).expect("it is JSON"))
        .collect();
    assert_eq!(lines.len(), 1 + 5 + 3 + 3);
    assert_eq!(lines[8]["message"], "lock(mutex 2) ...");
    assert_eq!(lines[8]["post_mortem"], true);
}

#[test]
fn a_fault_shows_the_last_traps_of_the_task() {
    let boot = ["boot", "-q", "--virtual", "--post-mortem", "panics"];
    let (code, out, err) = texts(rude(&boot).output().unwrap());
    assert_eq!(
        (code, &*out),
        (1, "the child is faulted: as it was told to\n")
    );
    let expected = "\
warning: task 2 \"child\" faulted: as it was told to, at cli/examples/rude.rs:38
the last traps of task 2 child:
00:00.000000    2 child        sleep(1s)                    = ok
00:01.000000    2 child        exited: faulted: as it was told to, at cli/examples/rude.rs:38
";
    assert!(err.ends_with(expected), "{err}");
    let (_, _, err) = texts(
        rude(&[
            "boot",
            "-q",
            "--post-mortem",
            "--virtual",
            "hogs",
            "--span",
            "0s",
        ])
        .output()
        .unwrap(),
    );
    assert_eq!(err, "", "a run that ends well is not examined");
}

#[test]
fn a_fault_names_its_line_in_the_recording_and_the_chain_where_asked_to() {
    let place = Place::new("fault-line");
    let boot = ["boot", "-q", "--virtual", "--record", "run.trap", "panics"];
    let mut command = rude(&boot);
    command.current_dir(&place.0).env("RUST_BACKTRACE", "1");
    let (code, _, err) = texts(command.output().unwrap());
    assert_eq!(code, 1, "{err}");
    let warning = err.lines().find(|line| line.starts_with("warning: "));
    let warning = warning.expect("a fault is a warning");
    let line = "faulted: as it was told to, at cli/examples/rude.rs:38, in ";
    assert!(warning.contains(line), "{warning}");
    assert!(
        warning.ends_with("cli/examples/rude.rs:38"),
        "a chain of one: {warning}"
    );
    let page = place.print(&["trace", "timeline", "--format", "html", "run.trap"]);
    assert!(
        page.contains("at cli/examples/rude.rs:"),
        "the page has the line"
    );
    let line = "exited: faulted: as it was told to, at cli/examples/rude.rs:38, in ";
    assert!(err.contains(line), "the post-mortem has it: {err}");
}

#[test]
fn what_a_program_logs_is_not_taken_for_the_kernels_columns() {
    let trace = "--trace=info,trapline::kernel=info";
    let boot = ["boot", "-q", "--virtual", trace, "boasts"];
    let (code, _, err) = texts(rude(&boot).output().unwrap());
    assert_eq!(code, 0, "{err}");
    let lines: Vec<&str> = err.lines().collect();
    assert!(
        lines[0].ends_with("info: rude: late fields.at=-1.0 fields.comm=\"kernel\" fields.tid=7"),
        "{err}"
    );
    assert!(lines[1].ends_with("info: later"), "{err}");
    assert!(
        lines[2].ends_with("info: rude: latest fields.level=\"none\" text=\"\\u{9b}2J\\u{202e}\""),
        "{err}"
    );
    let json = ["boot", "-q", "--virtual", "--trace", "--log-format", "json"];
    let mut command = rude(&[&json[..], &["boasts"]].concat());
    let (_, _, err) = texts(command.env("RUST_LOG", "info").output().unwrap());
    let line = err.lines().find(|line| line.contains("\"late\""));
    let line: serde_json::Value = serde_json::from_str(line.unwrap()).unwrap();
    assert_eq!((&line["at"], &line["tid"]), (&0.0.into(), &1.into()));
    assert_eq!(line["fields.at"], -1.0);
}

#[test]
fn what_led_to_the_end_of_the_process_is_in_the_recording() {
    let file = Scratch::new("abort");
    let boot = [
        "boot",
        "-q",
        "--virtual",
        "--record",
        file.path(),
        "panics",
        "--twice",
    ];
    let output = rude(&boot).output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::ABORT.as_raw()));
    let (events, error) = file.read();
    assert!(matches!(error, Some(Error::Truncated { .. })));
    // A panic in a destructor, while the task unwinds, is the end of all.
    let last = events.last().unwrap().to_string();
    assert_eq!(last, "00:01.000000000 2 resumed");
}

#[test]
fn a_task_that_makes_no_trap_is_seen_in_the_recording() {
    for ring in [false, true] {
        let file = Scratch::new("hog");
        let last: &[&str] = if ring { &["--record-last", "50"] } else { &[] };
        let record = ["boot", "--record", file.path()];
        let hogs = ["hogs", "--after", "1ms", "--span", "1day"];
        let mut command = rude(&[&record, last, &hogs].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "hogging now\n");
        // The second one ends it at once.
        assert_eq!(interrupt_to_the_end(&mut child), Some(130));
        let (events, error) = file.read();
        assert!(error.is_none(), "{error:?}");
        let last = events.last().unwrap().to_string();
        assert!(last.ends_with("1 resumed"), "{last}");
    }
}

// ---- trace waits

#[test]
fn waits_shows_who_waits_for_whom() {
    let place = Place::with("waits", &["deadlock"]);
    let expected = "\
at 00:00.001000, the end of the recording: deadlock: no task was ready, and nothing could make one ready
  tid 1 \"deadlock\" waits for the end of task 2, since 00:00.000, in wait_task(2)
    wait at programs/cases/deadlock.rs:29
  tid 2 \"save\" waits for mutex 2, held by task 3, since 00:00.001, in lock(mutex 2)
    lock at programs/cases/deadlock.rs:42, spawned at programs/cases/deadlock.rs:20
  tid 3 \"spend\" waits for mutex 1, held by task 2, since 00:00.001, in lock(mutex 1)
    lock at programs/cases/deadlock.rs:42, spawned at programs/cases/deadlock.rs:28
  cycle: 2 -> 3 -> 2
";
    assert_eq!(place.print(&["trace", "waits", "run.trap"]), expected);
    let dot = place.print(&["trace", "waits", "--format", "dot", "run.trap"]);
    assert_golden("waits.dot", &dot);
}

#[test]
fn waits_knows_of_long_waits_from_a_ring() {
    let place = Place::new("waits-ring");
    let boot = ["boot", "-q", "--virtual", "--max-time", "1s"];
    let record = ["--record-last", "3", "--record", "run.trap", "countdown"];
    let boot = [&boot[..], &record].concat();
    assert_eq!(place.run(&boot).0, 4);
    let expected = "\
at 00:01.000000, the end of the recording: these tasks waited
  tid 2 \"down\" waits for the timer at 00:04.000, since 00:00.000, in sleep(4s)
";
    let (_, shown, _) = place.run(&["trace", "waits", "run.trap"]);
    assert!(shown.starts_with(expected), "{shown}");
    place.record("done.trap", &["parts"]);
    assert_eq!(
        place.print(&["trace", "waits", "done.trap"]),
        "at 00:00.000000, the end of the recording: no task waited\n"
    );
}
