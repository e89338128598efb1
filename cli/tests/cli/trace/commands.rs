//! The commands that read a recording.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    process::Stdio,
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde_json::Value;
use trapline::{
    DeviceId, Direction, Errno, Event, Fact, On, Reply, SystemCall, Tracer, Wake,
    record::{Header, Recorder},
};

use super::*;

// ---- show

#[test]
fn show_prints_what_trace_prints_while_it_runs() {
    for program in [&["wait"][..], &["countdown"], &["kill"], &QUEUES] {
        let place = Place::with("show-all", program);
        let shown = place.print(&["trace", "show", "run.trap"]);
        let boot = ["boot", "-q", "--virtual", "--seed", "1", "--trace"];
        let (code, _, traced) = place.run(&[&boot, program].concat());
        assert_eq!((code, shown), (0, traced), "{program:?}");
    }
}

#[test]
fn show_selects_by_task_time_and_kind() {
    let place = Place::with("show-some", &["countdown"]);
    let show = [
        "trace",
        "show",
        "--task",
        "up",
        "--to",
        "00:02.000",
        "--relative",
        "run.trap",
    ];
    let expected = "\
+00:00.000000    3 up           spawned by 1
+00:00.000000    3 up           sleep(1s) ...
+00:01.000000    3 up           ... sleep(1s)                = ok
+00:00.000000    3 up           sleep(1s) ...
+00:01.000000    3 up           ... sleep(1s)                = ok
+00:00.000000    3 up           sleep(1s) ...
";
    assert_eq!(place.print(&show), expected);
    let by_number = [
        "trace",
        "show",
        "--task",
        "3",
        "--to",
        "2s",
        "--relative",
        "run.trap",
    ];
    assert_eq!(place.print(&by_number), expected);
    let all = [
        "trace",
        "show",
        "--sched",
        "--console",
        "--from",
        "19s",
        "run.trap",
    ];
    assert_golden("show-sched.txt", &place.print(&all));
    let (code, out, err) = place.run(&["trace", "show", "--task", "nobody", "run.trap"]);
    assert_eq!((code, &*out), (0, ""));
    assert_eq!(
        err,
        "warning: there is no task nobody (`trace summary run.trap` lists them)\n"
    );
    let early = ["--task", "nobody", "--to", "0s"];
    let (code, out, err) = place.run(&[&["trace", "show", "run.trap"], &early[..]].concat());
    let expected = "warning: no task nobody was spawned up to --to\n";
    assert_eq!((code, &*out, &*err), (0, "", expected));
    let two = [
        "trace", "show", "--task", "1", "--task", "down", "--call", "new_task", "run.trap",
    ];
    let expected = "\
00:00.000000    1 countdown    new_task(\"down\")             = 2
00:00.000000    1 countdown    new_task(\"up\")               = 3
";
    assert_eq!(place.print(&two), expected);
}

#[test]
fn show_follows_a_queue() {
    let place = Place::with("show-queue", &QUEUES);
    let show = ["trace", "show", "--queue", "1", "--sched", "run.trap"];
    assert_golden("show-queue.txt", &place.print(&show));
}

#[test]
fn show_follows_calls_without_a_trap() {
    let place = Place::new("show-deferred");
    let record = [
        "shell",
        "-q",
        "--virtual",
        "--seed",
        "1",
        "--record",
        "run.trap",
        "-c",
    ];
    place.print(&[&record[..], &["seq 2 | wc"]].concat());
    for (about, name, expected) in [
        ("--device", "1", &["close(1) deferred"][..]),
        (
            "--queue",
            "2",
            &["try_put(queue 2) deferred", "free(queue 2) deferred"],
        ),
    ] {
        let shown = place.print(&["trace", "show", about, name, "run.trap"]);
        for line in expected {
            assert!(shown.contains(line), "{line}: {shown}");
        }
    }
}

/// A recording of what happens nowhere in a simulated world.
pub(super) fn devices(place: &Place) {
    let path = place.0.join("run.trap");
    let mut recorder = Recorder::create(path, &Header::default()).unwrap();
    let device = DeviceId::from_raw;
    let (call, reply) = (SystemCall::Recv(device(2)), Reply::Err(Errno::Closed));
    const NONE: trapline::Detail<'_> = trapline::Detail::None;
    let facts = [
        Fact::Spawned {
            parent: 0.into(),
            name: "a\u{202e}\x1b[31m client".into(),
        },
        Fact::Trapped {
            call: SystemCall::Accept(device(1)),
            detail: NONE,
        },
        Fact::Replied {
            reply: Reply::Device(device(2)),
            detail: NONE,
        },
        Fact::Trapped {
            call,
            detail: trapline::Detail::Len(4096),
        },
        Fact::Blocked {
            on: On::Device(device(2), Direction::Read),
        },
        Fact::Woken {
            by: Wake::Closed(device(2)),
        },
        Fact::Replied {
            reply,
            detail: NONE,
        },
        Fact::Trapped {
            call: SystemCall::Send(device(3)),
            detail: trapline::Detail::Len(1),
        },
        Fact::DeviceIo {
            device: device(3),
            direction: Direction::Write,
            result: Err(io::ErrorKind::BrokenPipe),
        },
        Fact::Exited {
            exit: trapline::Exit::Faulted("oh\nno".into()),
        },
        Fact::Reaped,
    ];
    for (at, fact) in facts.into_iter().enumerate() {
        let at = Duration::from_micros(at as u64);
        recorder.event(&Event {
            at,
            tid: 7.into(),
            fact,
            place: None,
        });
    }
}

#[test]
fn show_follows_a_device_and_finds_errors() {
    let place = Place::new("show-device");
    devices(&place);
    let device = ["trace", "show", "--device", "2", "--sched", "run.trap"];
    let expected = "\
00:00.000002    7 a\\u{202e}\\u{1b}[31m client accept(1)                    = device 2
00:00.000004    7 a\\u{202e}\\u{1b}[31m client recv(2, 4096) ...
00:00.000005    7 a\\u{202e}\\u{1b}[31m client woken by the closing of device 2
00:00.000006    7 a\\u{202e}\\u{1b}[31m client ... recv(2, 4096)            = Closed (it is closed)
";
    assert_eq!(place.print(&device), expected);
    let errors = ["trace", "show", "--errors", "run.trap"];
    let expected = "\
00:00.000006    7 a\\u{202e}\\u{1b}[31m client ... recv(2, 4096)            = Closed (it is closed)
00:00.000008    7 a\\u{202e}\\u{1b}[31m client device 3 write failed: broken pipe
00:00.000009    7 a\\u{202e}\\u{1b}[31m client send(3, 1) = ?
00:00.000009    7 a\\u{202e}\\u{1b}[31m client exited: faulted: oh\\nno
";
    assert_eq!(place.print(&errors), expected);
}

#[test]
fn a_timeout_that_comes_after_the_answer_is_told_with_its_call() {
    let place = Place::new("show-late");
    let mut recorder = Recorder::create(place.0.join("run.trap"), &Header::default()).unwrap();
    const NONE: trapline::Detail<'_> = trapline::Detail::None;
    let facts = [
        Fact::Spawned {
            parent: 0.into(),
            name: "late".into(),
        },
        Fact::Trapped {
            call: SystemCall::Yield,
            detail: NONE,
        },
        Fact::Replied {
            reply: Reply::Done,
            detail: NONE,
        },
        Fact::Replied {
            reply: Reply::Elapsed(1),
            detail: NONE,
        },
        Fact::Exited {
            exit: trapline::Exit::Done,
        },
    ];
    for fact in facts {
        recorder.event(&Event {
            at: Duration::ZERO,
            tid: 7.into(),
            fact,
            place: None,
        });
    }
    drop(recorder);
    let expected = "\
00:00.000000    7 late         yield()                      = ok
00:00.000000    7 late         ... yield()                  = timeout 1 elapsed
";
    let show = ["trace", "show", "--call", "yield", "run.trap"];
    assert_eq!(place.print(&show), expected);
    let rows = place.print(&["trace", "export", "--format", "csv", "run.trap"]);
    assert!(
        rows.contains("replied,yield,timeout 1 elapsed"),
        "the call has its name: {rows}"
    );
}

#[test]
fn show_says_where_events_are_missing() {
    let place = Place::with("show-gap", &["--record-last", "4", "countdown"]);
    let expected = "\
00:00.000000    1 countdown    spawned by the host
";
    let shown = place.print(&["trace", "show", "run.trap"]);
    assert_golden("show-gap.txt", &shown);
    assert!(!shown.contains(expected), "it is long gone");
    let gap = "... 171 events are missing here ...\n";
    let (before, last) = shown.split_once(gap).expect("it is the last gap");
    let show = |window: &[&str]| place.print(&[&["trace", "show", "run.trap"], window].concat());
    assert_eq!(show(&["--from", "1ns"]), format!("{gap}{last}"));
    assert_eq!(show(&["--to", "19s"]), format!("{before}{gap}"));
    assert_eq!(show(&["--from", "21s"]), "", "all gaps are before");
}

#[test]
fn all_commands_say_that_events_are_missing() {
    let place = Place::with("missing", &["--record-last", "4", "countdown"]);
    let warning = "warning: run.trap: 181 events missing: what is shown is about the others\n";
    for command in [
        &["why", "2"][..],
        &["path"],
        &["ps"],
        &["tree"],
        &["waits"],
        &["diff", "run.trap"],
        &["export", "--format", "csv"],
        &["export", "--format", "folded"],
    ] {
        let (code, _, err) = place.run(&[&["trace"], command, &["run.trap"]].concat());
        assert_eq!(code, 0);
        assert!(err.starts_with(warning), "{command:?}: {err}");
    }
    let why = |at: &[&str]| {
        place
            .run(&[&["trace", "why", "2", "run.trap"], at].concat())
            .1
    };
    let never = "No wait of 2 \"down\" is recorded: events are missing.\n";
    assert_eq!(why(&[]), never);
    let then = "What 2 \"down\" did at 00:03.000 is not known: events are missing.\n";
    assert_eq!(why(&["--at", "3s"]), then);
    let (_, out, _) = place.run(&["trace", "ps", "--at", "19s", "run.trap"]);
    let rows: Vec<&str> = out.lines().skip(1).map(str::trim_end).collect();
    let expected = [
        "   2  down       1  unknown                         0",
        "   3  up         1  unknown                         0",
    ];
    assert_eq!(rows, expected, "{out}");
    let summary = place.print(&["trace", "summary", "run.trap"]);
    begins(
        &summary,
        "events are missing, and the others took no time\n",
    );
}

#[test]
fn a_window_that_ends_before_it_begins_is_refused() {
    let place = Place::with("window", &["wait"]);
    let show = ["trace", "show", "--from", "5s", "--to", "4s", "run.trap"];
    let expected = "error: --from 00:05.000 is after --to 00:04.000: nothing is in between\n";
    assert_eq!(place.run(&show), (1, String::new(), expected.to_string()));
    let draw = [
        "trace", "timeline", "--from", "5t", "--to", "4t", "run.trap",
    ];
    let expected = "error: --from 5t is after --to 4t: nothing is in between\n";
    assert_eq!(place.run(&draw), (1, String::new(), expected.to_string()));
}

#[test]
fn colours_are_for_those_who_want_them() {
    let place = Place::with("show-colour", &["wait"]);
    let plain = place.print(&["trace", "show", "run.trap"]);
    let colored = place.print(&["--color", "always", "trace", "show", "run.trap"]);
    assert!(!plain.contains('\x1b') && colored.contains('\x1b'));
}

// ---- export

#[test]
fn export_writes_a_row_for_each_event() {
    let place = Place::with("csv", &["wait"]);
    let csv = place.print(&["trace", "export", "--format", "csv", "run.trap"]);
    assert_golden("wait.csv", &csv);
}

#[test]
fn a_row_holds_no_formula_and_no_control_character() {
    let place = Place::new("csv-hostile");
    let mut recorder = Recorder::create(place.0.join("run.trap"), &Header::default()).unwrap();
    let (parent, at, tid) = (0.into(), Duration::ZERO, 7.into());
    for fact in [
        Fact::Spawned {
            parent,
            name: "=cmd|' /C calc'!A0".into(),
        },
        Fact::Console {
            text: " \u{ff0b}1\x1b[31m\r\n".into(),
        },
        Fact::Exited {
            exit: trapline::Exit::Failed("\u{202e}-1".into()),
        },
    ] {
        recorder.event(&Event {
            at,
            tid,
            fact,
            place: None,
        });
    }
    drop(recorder);
    let expected = "\
seconds,tid,task,event,call,detail,error
0.000000000,7,'=cmd|' /C calc'!A0,spawned,,0,0
0.000000000,7,'=cmd|' /C calc'!A0,console,,' \u{ff0b}1\\u{1b}[31m\\r\\n,0
0.000000000,7,'=cmd|' /C calc'!A0,exited,,failed: \\u{202e}-1,1
";
    let csv = ["trace", "export", "--format", "csv", "run.trap"];
    assert_eq!(place.print(&csv), expected);
}

#[test]
fn export_writes_traces_of_chrome() {
    let place = Place::with("chrome", &QUEUES);
    let world = place.print(&["trace", "export", "--format", "chrome", "run.trap"]);
    assert_golden("chrome.json", &world);
    let turns = place.print(&[
        "trace", "export", "--format", "chrome", "--turns", "run.trap",
    ]);
    for text in [&world, &turns] {
        assert_chrome(text);
    }
}

/// What the hosts of a recording are in the other format: each a process, whose tasks have no host in
/// their names.
#[test]
fn a_host_is_a_process_of_a_chrome_trace_and_says_what_each_call_came_to() {
    let hosts = [
        "--on",
        "a:echo --addr 0.0.0.0:80",
        "--on",
        "b:swarm --addr a:80",
    ];
    let place = Place::with("chrome-hosts", &hosts);
    let text = place.print(&["trace", "export", "--format", "chrome", "run.trap"]);
    assert_chrome(&text);
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let names = events
        .iter()
        .filter(|event| event["name"] == "process_name");
    let name = |event: &Value| (event["pid"].as_u64(), event["args"]["name"].to_string());
    let mut processes: Vec<_> = names.map(name).collect();
    processes.sort();
    let expected = [(2, "\"trapline\""), (3, "\"a\""), (4, "\"b\"")];
    assert_eq!(
        processes,
        expected.map(|(pid, name)| (Some(pid), name.to_string()))
    );
    let last = |pid: u64| {
        let place = |event: &&Value| event["pid"] == pid && event["name"] == "process_sort_index";
        events.iter().find(place).unwrap()["args"]["sort_index"].as_u64()
    };
    assert!(last(3) < last(4) && last(4) < last(2));
    let threads = events.iter().filter(|event| event["name"] == "thread_name");
    assert!(
        threads
            .clone()
            .all(|event| !event["args"].to_string().contains('@'))
    );
    assert!(
        threads
            .clone()
            .any(|event| event["pid"] == 3 && event["args"]["name"] == "client")
    );
    // Nothing of what the calls came to is left out.
    let shown = place.print(&["trace", "show", "run.trap"]);
    for call in ["connect(", "accept(", "send(", "recv("] {
        let answered = |line: &&str| line.contains(call) && line.contains(" = ");
        let calls = shown.lines().filter(answered).count();
        assert!(calls > 900, "{call}");
        assert!(text.matches(call).count() >= calls, "{call}");
    }
    // It has 48,000 events. The file had 5,901,740 bytes with an object for each.
    assert!(text.len() < 5_901_740 / 3, "{} bytes", text.len());
}

/// Checks what the description of the format asks for, and Perfetto and speedscope rely on.
///
/// Besides, a slice has a length, and ends before the next one of its task begins: speedscope sorts what
/// begins and ends by instants, and complains about what does not nest.
fn assert_chrome(text: &str) {
    let trace: Value = serde_json::from_str(text).expect("it is JSON");
    let events = trace["traceEvents"].as_array().expect("there are events");
    let mut firsts: BTreeMap<u64, f64> = BTreeMap::new();
    let mut slices: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    let mut arrows: BTreeMap<u64, Vec<(&str, u64, f64)>> = BTreeMap::new();
    let (mut named, mut used) = (BTreeSet::new(), BTreeSet::new());
    for event in events {
        let (phase, name) = (
            event["ph"].as_str().unwrap(),
            event["name"].as_str().unwrap(),
        );
        if name.starts_with("process_") {
            continue;
        }
        // The kernel is a process of its own, and so is each host.
        let pid = event["pid"].as_u64().unwrap();
        assert_eq!(pid == 2, event["tid"] == 0, "{event}");
        assert!(
            phase != "X" || !name.contains(['(', '"']),
            "no arguments: {name}"
        );
        // Speedscope takes these for a part of the name.
        assert!(phase != "X" || event["args"].is_null());
        let tid = event["tid"].as_u64().unwrap();
        // Names have no instant.
        let at = event["ts"].as_f64();
        assert_eq!(at.is_none(), phase == "M", "{event}");
        let at = at.unwrap_or_default();
        let of = if phase == "M" { &mut named } else { &mut used };
        of.insert((pid, tid));
        match phase {
            "M" => {}
            "i" => assert!(["g", ""].contains(&event["s"].as_str().unwrap_or_default())),
            "X" => {
                let length = event["dur"].as_f64().unwrap();
                let first = *firsts.entry(tid).or_insert(at);
                let slices = slices.entry(tid).or_default();
                if let Some(&(from, length)) = slices.last() {
                    assert!(from + length <= at, "slices of a task follow one another");
                    // As speedscope counts.
                    assert!((from - first) + length <= at - first, "also from its first");
                }
                assert!(length > 0.0, "speedscope cannot place {event}");
                slices.push((at, length));
            }
            "s" | "f" => {
                let id = event["id"].as_u64().unwrap();
                arrows.entry(id).or_default().push((phase, tid, at));
            }
            other => panic!("{other}"),
        }
    }
    assert!(!slices.is_empty());
    let unnamed: Vec<_> = used.difference(&named).collect();
    assert!(unnamed.is_empty(), "without a name: {unnamed:?}");
    assert!(!arrows.is_empty());
    for ends in arrows.values() {
        let [("s", waker, from), ("f", woken, to)] = ends[..] else {
            panic!("{ends:?}")
        };
        assert!(from <= to);
        for (tid, at) in [(waker, from), (woken, to)] {
            let lies_within = |&(from, length): &(f64, f64)| from <= at && at <= from + length;
            assert!(slices[&tid].iter().any(lies_within), "{ends:?}");
        }
    }
}

#[test]
fn export_wants_to_know_the_format() {
    let place = Place::with("export", &["parts"]);
    let (code, out, err) = place.run(&["trace", "export", "run.trap"]);
    assert_eq!((code, &*out), (2, ""));
    assert!(err.contains("--format <FORMAT>"), "{err}");
    let turns = ["trace", "export", "--turns", "--format", "csv", "run.trap"];
    let expected = (
        2,
        String::new(),
        "error: --turns is for --format chrome\n".to_string(),
    );
    assert_eq!(place.run(&turns), expected);
}

#[test]
fn export_folds_stacks_for_flame_graphs() {
    let place = Place::with("folded", &["convoy"]);
    let folded = place.print(&["trace", "export", "--format", "folded", "run.trap"]);
    // Three waits of worker-1: none, 13 ms and 13 ms.
    has(&folded, "worker-1;blocked;get;mutex 1 26000000\n");
    let of_worker = folded.lines().filter(|line| line.starts_with("worker-1;"));
    let nanos = of_worker.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(nanos.sum::<u64>(), 47_000_000, "its whole life");
}

// ---- the tasks at an instant

#[test]
fn waits_are_shown_at_an_instant() {
    let place = Place::with("waits-at", &["convoy"]);
    let waits = place.print(&["trace", "waits", "--at", "8ms", "run.trap"]);
    begins(&waits, "at 00:00.008000: these tasks waited\n");
    has(
        &waits,
        "tid 2 \"worker-1\" waits for mutex 1, held by task 3, since ",
    );
    let end = place.print(&["trace", "waits", "--at", "1h", "run.trap"]);
    assert_eq!(
        end,
        "at 00:00.062000, the end of the recording: no task waited\n"
    );
}

#[test]
fn a_picture_of_many_waits_fits_a_page() {
    let place = Place::with("page", &["sleepers", "--count", "40"]);
    let dot = [
        "trace", "waits", "--format", "dot", "--at", "300ms", "run.trap",
    ];
    let dot = place.print(&dot);
    assert!(dot.contains("label=\"29 x sleeper\""), "{dot}");
    // The task that another waits for has a node of its own.
    assert!(dot.contains("label=\"2 sleeper\\nsince"), "{dot}");
    assert_eq!(dot.matches("shape=box").count(), 3, "{dot}");
}

#[test]
fn ps_and_tree_show_the_tasks_at_an_instant() {
    let place = Place::with("ps-at", &["convoy"]);
    let ps = place.print(&["trace", "ps", "--at", "8ms", "run.trap"]);
    assert_eq!(
        ps,
        "\u{20}tid  task      parent  state    blocked on               since      traps
   1  convoy         0  blocked  group 2                  00:00.000      8
   2  worker-1       1  blocked  mutex 1, held by task 3  00:00.007      8
   3  worker-2       1  blocked  the timer at 00:00.010   00:00.005      3
   4  worker-3       1  blocked  mutex 1, held by task 3  00:00.000      2
   5  worker-4       1  blocked  mutex 1, held by task 3  00:00.000      2
"
    );
    let sorted = [
        "--sort",
        "since",
        "--reverse",
        "--filter",
        "mutex",
        "--most",
        "1",
    ];
    let ps = ["trace", "ps", "--at", "8ms", "run.trap"];
    let one = place.print(&[&ps[..], &["--filter", "mutex", "--most", "2"]].concat());
    has(&one, "\nand 1 more row\n");
    assert_eq!(
        place.print(&[&ps[..], &sorted].concat()),
        "\u{20}tid  task      parent  state    blocked on               since      traps
   2  worker-1       1  blocked  mutex 1, held by task 3  00:00.007      8
and 2 more rows
3 of 5 match
"
    );
    place.record("many.trap", &["sleepers", "--count", "40"]);
    let tree = place.print(&["trace", "tree", "--at", "300ms", "many.trap"]);
    assert_eq!(
        tree,
        "1 sleepers: waits for the end of task 2, since 00:00.000
└─ sleeper x30: 30 timer
"
    );
    let all = place.print(&["trace", "tree", "--all", "--at", "300ms", "many.trap"]);
    assert_eq!(all.lines().count(), 31, "{all}");
}

#[test]
fn ps_after_the_end_says_when_that_was() {
    let place = Place::with("ps-end", &["convoy"]);
    for args in [&["--at", "1h"][..], &[]] {
        let (code, out, err) = place.run(&[&["trace", "ps", "run.trap"], args].concat());
        assert_eq!((code, &*out), (0, ""));
        let ended = "no task was alive: the last one ended at 00:00.062000\n";
        assert_eq!(err, ended, "{args:?}");
    }
    place.record("cut.trap", &["--max-time", "8ms", "convoy"]);
    let (code, out, err) = place.run(&["trace", "ps", "--at", "1h", "cut.trap"]);
    assert_eq!((code, out.is_empty()), (0, false));
    assert!(err.starts_with("the recording ends at 00:00.0"), "{err}");
}

// ---- files of all kinds

const READERS: [&[&str]; 6] = [
    &["show"],
    &["summary"],
    &["summary", "--json"],
    &["export", "--format", "chrome"],
    &["export", "--format", "csv"],
    &["waits"],
];

#[test]
fn what_is_no_recording_is_refused_with_the_reason() {
    let place = Place::with("refused", &["parts"]);
    fs::write(place.0.join("text.trap"), "no recording\n").unwrap();
    let mut later = fs::read(place.0.join("run.trap")).unwrap();
    later[8] = 9;
    fs::write(place.0.join("later.trap"), later).unwrap();
    let missing = "error: cannot read no.trap: No such file or directory (os error 2) \
                   (`boot --record FILE PROGRAM` makes one)\n";
    let foreign = "error: cannot read text.trap: this is no recording of trapline: it does not \
                   begin like one\n";
    let later = "error: cannot read later.trap: the recording has version 9 of the format, and \
                 this trapline reads version 1: read it with a later one\n";
    let taped = place.run(&["boot", "-q", "--tape", "run.tape", "parts"]);
    assert_eq!(taped.0, 0);
    let tape = "error: cannot read run.tape: this is no recording of trapline: it does not begin \
                like one (it is a tape, for `replay`)\n";
    let directory = "error: cannot read .: Is a directory (os error 21)\n";
    let empty = "error: cannot read standard input: the file is empty: its process wrote nothing, or it is no \
                 recording\n";
    let files = [
        ("no.trap", missing),
        ("text.trap", foreign),
        ("later.trap", later),
        ("run.tape", tape),
        (".", directory),
        ("-", empty),
    ];
    for (file, expected) in files {
        for reader in READERS {
            let outcome = place.run(&[&["trace"], reader, &[file]].concat());
            assert_eq!(outcome, (1, String::new(), expected.to_string()));
        }
        let (code, _, err) = place.run(&["trace", "diff", "run.trap", file]);
        assert_eq!((code, &*err), (2, expected));
    }
    let both = place.run(&["trace", "diff", "-", "-"]);
    let expected = "error: standard input holds one recording: name a file for the other\n";
    assert_eq!(both, (2, String::new(), expected.to_string()));
}

#[test]
fn a_recording_that_is_cut_off_is_shown_and_is_an_error() {
    let place = Place::with("cut", &["wait"]);
    let path = place.0.join("run.trap");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    let at = whole.len() - 9;
    for reader in READERS {
        let (code, out, err) = place.run(&[&["trace"], reader, &["run.trap"]].concat());
        assert_eq!(code, 1);
        assert!(out.contains("wait"), "{out}");
        assert_eq!(
            err,
            format!(
                "error: run.trap: the recording ends at byte {at}, before its end: its \
                 process was killed, or still runs\n"
            )
        );
    }
}

#[test]
fn a_damaged_recording_is_shown_up_to_there_and_is_an_error() {
    let place = Place::with("damaged", &["wait"]);
    let path = place.0.join("run.trap");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    let at = bytes.len() - 9;
    for reader in READERS {
        let (code, out, err) = place.run(&[&["trace"], reader, &["run.trap"]].concat());
        assert_eq!(code, 1);
        assert!(out.contains("wait"), "{out}");
        assert_eq!(
            err,
            format!(
                "error: run.trap: the recording is damaged at byte {at}: a chunk that does not \
                 match its checksum\n"
            )
        );
    }
}

#[test]
fn a_recording_can_come_on_standard_input() {
    let place = Place::with("stdin", &["wait"]);
    let bytes = fs::read(place.0.join("run.trap")).unwrap();
    let mut command = trapline(&["trace", "show", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(texts(out).1, place.print(&["trace", "show", "run.trap"]));
}

#[test]
fn an_output_that_nobody_reads_is_no_error() {
    let place = Place::with("unread", &["alive", "--count", "3000"]);
    place.record("other.trap", &["wait"]);
    let diff = ["diff", "other.trap"];
    for reader in READERS.into_iter().chain([&diff[..]]) {
        let (reader_end, writer) = io::pipe().unwrap();
        drop(reader_end);
        let mut command = trapline(&[&["trace"], reader, &["run.trap"]].concat());
        let output = command
            .current_dir(&place.0)
            .stdout(writer)
            .output()
            .unwrap();
        let (code, _, err) = texts(output);
        assert_eq!((code, &*err), (0, ""), "{reader:?}");
    }
}

#[test]
fn every_command_has_help_with_examples() {
    let of_trace = "show summary timeline open export diff waits live".split(' ');
    let others = "ps tree where kill top new list completions man".split(' ');
    let of_trace = of_trace.map(|command| vec!["trace", command, "--help"]);
    for args in of_trace.chain(others.map(|command| vec![command, "--help"])) {
        let (code, out, _) = run(&args);
        assert_eq!(code, 0);
        assert!(out.contains("Examples:"), "{out}");
    }
}

/// The line of a text that begins with the command.
fn pasted<'a>(text: &'a str, command: &str) -> &'a str {
    let at = text.find(command).unwrap_or_else(|| panic!("{text}"));
    text[at..].lines().next().unwrap()
}

#[test]
fn a_command_that_is_shown_runs_again_when_it_is_pasted() {
    let place = Place::with("pasted", &["--with", "alive --count 2", "countdown"]);
    let command = "boot -q --virtual --seed 1 --record run.trap --with 'alive --count 2' countdown";
    place.record("other.trap", &["--with", "alive --count 3", "countdown"]);
    let other = command.replace("2'", "3'").replace("run", "other");
    let summary = place.print(&["trace", "summary", "run.trap"]);
    let line = pasted(&summary, "trapline boot");
    assert_eq!(line, format!("trapline {command}"));
    let recorded = fs::read(place.0.join("run.trap")).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_trapline"));
    let mut shell = command_of_shell(line);
    let ran = shell
        .current_dir(&place.0)
        .env("PATH", binary.parent().unwrap());
    assert!(ran.output().unwrap().status.success(), "{line}");
    assert_eq!(
        fs::read(place.0.join("run.trap")).unwrap(),
        recorded,
        "{line}"
    );

    let svg = place.print(&["trace", "timeline", "--format", "svg", "run.trap"]);
    let page = place.print(&["trace", "timeline", "--format", "html", "run.trap"]);
    let (_, diff, _) = place.run(&["trace", "diff", "run.trap", "other.trap"]);
    let (_, pair, _) = place.run(&["trace", "diff", "--html", "-", "run.trap", "other.trap"]);
    let chrome = place.print(&["trace", "export", "--format", "chrome", "run.trap"]);
    for (text, places) in [(&svg, 2), (&page, 2), (&diff, 1), (&pair, 1), (&chrome, 2)] {
        assert!(text.matches(command).count() >= places, "{text}");
    }
    for text in [&diff, &pair] {
        assert!(text.contains(&other), "{text}");
    }
}

fn command_of_shell(line: &str) -> Command {
    command("/bin/sh", &["-c", line])
}

/// A pipe that is full, and that another process has made non-blocking. Returns its ends, and how many
/// bytes are in it.
fn full_pipe() -> (io::PipeReader, io::PipeWriter, usize) {
    let (reader, mut writer) = io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    let mut full = 0;
    while let Ok(n) = writer.write(&[b'x'; 512]) {
        full += n;
    }
    (reader, writer, full)
}

#[test]
fn a_pipe_that_does_not_block_gets_all() {
    let place = Place::with("non-blocking", &["convoy"]);
    let show = ["trace", "show", "--sched", "run.trap"];
    let export = ["trace", "export", "--format", "csv", "run.trap"];
    let help = ["boot", "--help"];
    for args in [&["list"][..], &show, &export, &help, &["man"]] {
        let whole = place.print(args);
        let (mut reader, writer, full) = full_pipe();
        let mut command = trapline(args);
        command.current_dir(&place.0).stdout(writer);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        // The command has its own copy of the end that is written to.
        drop(command);
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        assert_eq!(exit_of(&mut child), Some(0), "{args:?}");
        assert!(text[full..] == *whole.as_bytes(), "{args:?}");
    }
}
