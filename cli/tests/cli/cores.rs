//! `boot --kernels`: real processes with real clients.

mod tapes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::process::Signal;
use serde_json::Value;
use trapline::{Answered, Call, Detail, SystemCall, record::Recording};

use crate::{replay::Folder, support::*};

/// Starts a server in two kernels, and returns the address on which both listen.
pub(crate) fn serve(options: &[&str], program: &[&str]) -> (Running, SocketAddr) {
    let args = [&["boot", "--kernels", "2"], options, program].concat();
    let mut run = Running::with_pipes(&args);
    let [one, other] = [0; 2].map(|_| {
        let line = run.out_line();
        let words = line
            .split_whitespace()
            .map(|word| word.trim_start_matches("http://"));
        let word = words
            .filter_map(|word| word.trim_end_matches('/').parse().ok())
            .next();
        word.unwrap_or_else(|| panic!("it names an address: {line}"))
    });
    assert_eq!(one, other);
    (run, one)
}

/// Has so many clients send a line at the same time, and get it back.
fn talk(addr: SocketAddr, clients: usize) {
    let mut all: Vec<TcpStream> = (0..clients)
        .map(|_| TcpStream::connect(addr).unwrap())
        .collect();
    for round in 0..3 {
        for (n, client) in all.iter_mut().enumerate() {
            client
                .write_all(format!("{round} {n}\n").as_bytes())
                .unwrap();
        }
        for (n, client) in all.iter_mut().enumerate() {
            let expected = format!("{round} {n}\n");
            let mut answer = vec![0; expected.len()];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, expected.as_bytes());
        }
    }
}

#[test]
fn all_kernels_serve_and_a_trace_shows_which() {
    let (mut run, addr) = serve(&["--trace"], &["echo", "--addr", "127.0.0.1:0"]);
    let err = run.err.take().unwrap();
    let shown = thread::spawn(move || std::io::read_to_string(err).unwrap());
    talk(addr, 64);
    run.signal(Signal::INT);
    assert_eq!(exit_of(&mut run.child), Some(130));
    let shown = shown.join().unwrap();
    for kernel in 1..=2 {
        // The server is the first task of each.
        let accepts = |line: &&str| {
            line.contains(&format!(" {kernel}:1 "))
                && line.contains("accept(")
                && line.contains(" = ")
        };
        let count = shown.lines().filter(accepts).count();
        assert!(count > 0, "kernel {kernel} of {shown}");
    }
}

#[test]
fn a_signal_ends_all_kernels_with_the_code_of_one() {
    for (signal, code) in [(Signal::INT, 130), (Signal::HUP, 129)] {
        let (run, addr) = serve(&[], &["echo", "--addr", "127.0.0.1:0"]);
        talk(addr, 4);
        run.signal(signal);
        let (ended, err) = run.end();
        assert_eq!(ended, Some(code), "{err}");
        has(&err, "interrupted: shutting down");
    }
    // This program catches none.
    let mut run = Running::with_pipes(&["boot", "--kernels", "2", "alive"]);
    let [one, other] = [0; 2].map(|_| run.out_line());
    assert_eq!(one, other);
    run.signal(Signal::TERM);
    assert_eq!(run.end().0, Some(143));
}

#[test]
fn s73_a_signal_that_the_programs_catch_reaches_each_kernel() {
    let mut command = rude(&["boot", "--kernels", "2", "catches"]);
    let mut run = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let lines = |text: &str, run: &mut Running| {
        for _ in 0..2 {
            assert_eq!(run.out_line(), text);
        }
    };
    lines("ready\n", &mut run);
    for (signal, name) in [
        (Signal::HUP, "SIGHUP\n"),
        (Signal::USR1, "SIGUSR1\n"),
        (Signal::INT, "SIGINT\n"),
        (Signal::TERM, "SIGTERM\n"),
    ] {
        run.signal(signal);
        lines(name, &mut run);
    }
    let (code, err) = run.end();
    assert_eq!(code, Some(0), "{err}");
    // The second interrupt comes while no task has taken the first.
    let mut command = rude(&["boot", "--kernels", "2", "catches", "--deaf"]);
    let mut run = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    lines("ready\n", &mut run);
    assert_eq!(interrupt_to_the_end(&mut run.child), Some(130));
}

#[test]
fn a_server_with_a_drain_ends_well_in_every_kernel() {
    let (run, addr) = serve(&["-q"], &["httpd", "--addr", "127.0.0.1:0", "--root", "."]);
    for _ in 0..16 {
        let mut client = TcpStream::connect(addr).unwrap();
        let request = "GET /Cargo.toml HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        begins(&answer, "HTTP/1.1 200 OK\r\n");
    }
    run.signal(Signal::TERM);
    let (code, err) = run.end();
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn a_failure_of_a_program_is_told_with_its_kernel() {
    let addr = "203.0.113.1:1";
    let args = ["boot", "-q", "--kernels", "2", "echo", "--addr", addr];
    let (code, _, err) = run(&args);
    assert_eq!(code, 1, "{err}");
    for kernel in 1..=2 {
        has(&err, &format!("task {kernel}:1 \"echo\" failed: "));
    }
    // Another process listens there already.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = other.local_addr().unwrap().to_string();
    let args = ["boot", "-q", "--kernels", "2", "echo", "--addr", &addr];
    let (code, _, err) = run(&args);
    assert_eq!(code, 1, "{err}");
    has(&err, "in use");
}

#[test]
fn a_limit_in_one_kernel_ends_all_with_its_code() {
    let args = [
        "boot",
        "-q",
        "--kernels",
        "3",
        "--max-time",
        "50ms",
        "echo",
        "--addr",
        "127.0.0.1:0",
    ];
    let (code, _, err) = run(&args);
    assert_eq!(code, 4, "{err}");
    has(&err, "kernel ");
    has(&err, "has failed:");
    has(&err, "raise --max-time");
}

#[test]
fn each_kernel_has_random_numbers_of_its_own_and_a_seed_repeats_them() {
    let drawn = || {
        let args = [
            "boot",
            "-q",
            "--kernels",
            "3",
            "--seed",
            "7",
            "sleepers",
            "--count",
            "1",
        ];
        let (code, out, err) = run(&args);
        assert_eq!(code, 0, "{err}");
        out.lines().count()
    };
    // Each kernel runs its own instance.
    let alone = run(&["boot", "-q", "--seed", "7", "sleepers", "--count", "1"])
        .1
        .lines()
        .count();
    assert_eq!(drawn(), 3 * alone);
}

#[test]
fn what_several_kernels_cannot_honour_is_a_usage_error() {
    let refused: [&[&str]; 10] = [
        &["--chaos", "1"],
        &["--net", "latency=1ms"],
        &["--fault", "1s:cut main server"],
        &["--virtual"],
        &["--virtual", "--processors", "2"],
        &["--summary"],
        &["--exits"],
        &["--post-mortem"],
        &["--top"],
        &["--inject", "send:kill"],
    ];
    for options in refused {
        let args = [&["boot", "--kernels", "2"], options, &["parts"]].concat();
        let (code, out, err) = run(&args);
        assert_eq!((code, &*out), (2, ""), "{options:?}: {err}");
        has(&err, "--kernels runs kernels side by side");
        has(&err, &format!("which {} is not for", options[0]));
    }
    for count in ["0", "1025", "many", "-1"] {
        let (code, _, err) = run(&["boot", "--kernels", count, "parts"]);
        assert_eq!(code, 2, "{err}");
        has(&err, "it takes a number of kernels from 1 to 1024, or all");
    }
    // One kernel is as without the option.
    for count in ["1", "all"] {
        assert_eq!(run(&["boot", "-q", "--kernels", count, "parts"]).0, 0);
    }
    assert_eq!(
        run(&["boot", "-q", "--kernels", "1", "--virtual", "parts"]).0,
        0
    );
}

#[test]
fn each_kernel_has_a_recording_and_a_socket_of_its_own() {
    let folder = Folder::new("cores");
    let [trap, sock] = ["run.trap", "run.sock"].map(|name| folder.path(name));
    let options = ["--record", &trap, "--monitor", &sock];
    let (run, addr) = serve(&options, &["echo", "--addr", "127.0.0.1:0"]);
    talk(addr, 64);
    for kernel in 1..=2 {
        let socket = format!("{sock}.{kernel}");
        let (code, shown, err) = texts(trapline(&["ps", "--attach", &socket]).output().unwrap());
        assert_eq!(code, 0, "{err}");
        has(&shown, "echo");
    }
    run.signal(Signal::INT);
    let (code, err) = run.end();
    assert_eq!(code, Some(130), "{err}");
    for kernel in 1..=2 {
        let file = format!("{trap}.{kernel}");
        has(&err, &format!("recorded to {file}"));
        let (code, shown, err) = texts(trapline(&["trace", "show", &file]).output().unwrap());
        assert_eq!(code, 0, "{err}");
        has(&shown, "accept(");
        assert!(!std::path::Path::new(&format!("{sock}.{kernel}")).exists());
    }
    // A file that cannot be written is told before any program runs.
    let nowhere = folder.path("missing/run.trap");
    let args = [
        "boot",
        "-q",
        "--kernels",
        "2",
        "--record",
        &nowhere,
        "parts",
    ];
    let (code, out, err) = texts(trapline(&args).output().unwrap());
    assert_eq!((code, &*out), (1, ""), "{err}");
    has(&err, "cannot record to");
}

/// A line is for one kernel. The others find the end of the input.
#[test]
fn the_first_kernel_reads_standard_input() {
    let boot = ["boot", "-q", "--kernels", "3"];
    let mut command = trapline(&[&boot[..], &["upper"]].concat());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let lines: String = (0..200).map(|n| format!("line {n}\n")).collect();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = child.wait_with_output().expect("it ends");
    let out = String::from_utf8(output.stdout).expect("it is text");
    assert_eq!(out, lines.to_uppercase());
}

// ---- all kernels together

/// A command attached to that socket: its exit code, standard output and standard error.
fn ask(socket: &str, args: &[&str]) -> (i32, String, String) {
    let args = [args, &["--attach", socket]].concat();
    texts(trapline(&args).output().unwrap())
}

fn shown(socket: &str, args: &[&str]) -> String {
    let (code, out, err) = ask(socket, args);
    assert_eq!((code, &*err), (0, ""), "{args:?}: {out}");
    out
}

/// The numbers of the tasks in a table.
fn tids(table: &str) -> Vec<&str> {
    let words = table
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    words.filter(|word| word.contains(':')).collect()
}

#[test]
fn the_monitor_shows_the_tasks_of_all_kernels_and_kills_one_in_its_own() {
    let folder = Folder::new("cores-monitor");
    let sock = folder.path("run.sock");
    let (run, addr) = serve(&["--monitor", &sock], &["echo", "--addr", "127.0.0.1:0"]);
    let mut clients: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(addr).unwrap()).collect();
    for client in &mut clients {
        client.write_all(b"x\n").unwrap();
        client.read_exact(&mut [0; 2]).unwrap();
    }
    let ps = shown(&sock, &["ps"]);
    let all = tids(&ps);
    // Two servers, and a task per client.
    assert_eq!(all.len(), 42, "{ps}");
    for kernel in 1..=2 {
        let own = format!("{kernel}:");
        let its = all.iter().filter(|tid| tid.starts_with(&own)).count();
        let alone = shown(&format!("{sock}.{kernel}"), &["ps"]);
        assert_eq!(tids(&alone).len(), its, "{alone}");
        assert!(its > 1, "{ps}");
        has(&ps, &format!("client  {kernel}:1"));
    }
    let few = shown(&sock, &["ps", "--most", "3", "--sort", "traps"]);
    assert_eq!(
        tids(&few)[..2]
            .iter()
            .filter(|tid| tid.ends_with(":1"))
            .count(),
        2,
        "{few}"
    );
    has(&few, "and 39 more rows");
    let filtered = shown(&sock, &["ps", "--filter", "2:1"]);
    assert!(
        tids(&filtered).iter().all(|tid| tid.starts_with("2:1")),
        "{filtered}"
    );
    let tree = shown(&sock, &["tree"]);
    has(&tree, "1:1 echo: waits for");
    has(&tree, "2:1 echo: waits for");
    has(&shown(&sock, &["waits"]), "task 2:1 \"echo\" waits for");
    has(&shown(&sock, &["why", "2:1"]), "2:1 \"echo\" has waited");
    has(&shown(&sock, &["where", "1:2"]), " 1:2 client ");
    let json = shown(&sock, &["ps", "--json"]);
    for line in json.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["is"] == "task" {
            assert!(line["tid"].as_str().unwrap().contains(':'), "{line}");
        }
    }
    for (args, why) in [
        (
            ["kill", "1"],
            "there are several kernels: give the task's number",
        ),
        (["kill", "3:1"], "there is no live task 3:1"),
        (["kill", "2:9999"], "there is no live task 2:9999"),
        (["why", "1:9999"], "there is no live task 1:9999"),
    ] {
        let (code, out, err) = ask(&sock, &args);
        assert_eq!((code, &*out), (1, ""), "{err}");
        has(&err, why);
    }
    for wrong in ["2:", ":2", "0:x", "9999:1", "-1:1", "1:2:3"] {
        let (code, _, err) = ask(&sock, &["kill", "--", wrong]);
        assert_eq!(code, 2, "{wrong}: {err}");
    }
    // The task of that number in the other kernel goes on.
    let victim = *all
        .iter()
        .find(|tid| tid.starts_with("2:") && **tid != "2:1")
        .unwrap();
    let twin = victim.replacen('2', "1", 1);
    assert!(all.contains(&&*twin), "{ps}");
    shown(&sock, &["kill", victim]);
    let left = shown(&sock, &["ps"]);
    assert!(
        !tids(&left).contains(&victim) && tids(&left).contains(&&*twin),
        "{left}"
    );
    assert_eq!(tids(&left).len(), 41);
    // With its server the second kernel ends, and the first goes on.
    shown(&sock, &["kill", "2:1"]);
    let end = |socket: &str| UnixStream::connect(socket).is_err().then_some(());
    eventually("the end of a kernel", || end(&format!("{sock}.2")));
    let left = shown(&sock, &["ps"]);
    assert!(
        tids(&left).iter().all(|tid| tid.starts_with("1:")),
        "{left}"
    );
    let (code, _, err) = ask(&sock, &["kill", "2:1"]);
    assert_eq!(code, 1);
    has(&err, "kernel 2 has ended");
    talk(addr, 8);
    run.signal(Signal::INT);
    let (code, err) = run.end();
    assert_eq!(code, Some(130), "{err}");
    assert_eq!(fs::read_dir(folder.path("")).unwrap().count(), 0);
}

#[test]
fn a_live_trace_has_the_events_of_all_kernels() {
    let folder = Folder::new("cores-live");
    let sock = folder.path("run.sock");
    let (run, addr) = serve(&["--monitor", &sock], &["echo", "--addr", "127.0.0.1:0"]);
    let args = ["trace", "live", "--attach", &sock, "--call", "accept"];
    let mut live = Running::start(trapline(&args).stdout(Stdio::piped()));
    let (seen, is_over) = (&mut BTreeSet::new(), &AtomicBool::new(false));
    thread::scope(|scope| {
        // The trace begins at any of them.
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let mut client = TcpStream::connect(addr).unwrap();
                client.write_all(b"x\n").unwrap();
                client.read_exact(&mut [0; 2]).unwrap();
            }
        });
        while !["1:1", "2:1"].iter().all(|tid| seen.contains(*tid)) {
            let line = live.out_line();
            seen.insert(
                line.split_whitespace()
                    .nth(1)
                    .unwrap_or_default()
                    .to_string(),
            );
        }
        is_over.store(true, Ordering::Relaxed);
    });
    run.signal(Signal::INT);
    assert_eq!(run.end().0, Some(130));
    // It may have more to print than a pipe has room for.
    assert_eq!(live.end().0, Some(0));
}

#[test]
fn a_kernel_that_does_not_answer_hides_none_of_the_others() {
    let folder = Folder::new("cores-silent");
    let sock = folder.path("run.sock");
    let args = [
        "boot",
        "-q",
        "--kernels",
        "2",
        "--monitor",
        &sock,
        "couriers",
        "--spin",
    ];
    let mut run = Running::start(rude(&args).stdout(Stdio::piped()));
    assert_eq!(run.out_line(), "spins\n");
    // Both wait three seconds for an answer.
    at_once([true, false], |is_ps| {
        if is_ps {
            let ps = shown(&sock, &["ps"]);
            assert_eq!(tids(&ps), ["1:1"], "{ps}");
            let why = "kernel 2 does not answer: does a task run without making a trap?";
            has(&ps, why);
        } else {
            let (code, _, err) = ask(&sock, &["kill", "2:1"]);
            assert_eq!(code, 1);
            has(&err, "kernel 2 does not answer");
        }
    });
    run.child.kill().unwrap();
    run.child.wait().unwrap();
}

/// Couriers in two kernels, with files. Returns what they have printed.
fn couriers(options: &[&str], program: &[&str]) -> String {
    let args = [
        &["boot", "-q", "--kernels", "2"],
        options,
        &["couriers"],
        program,
    ]
    .concat();
    let (code, out, err) = texts(rude(&args).output().unwrap());
    assert_eq!(code, 0, "{err}");
    assert_eq!(out, "0: 0\n1: 1\n2: 4\n3: 9\n4: 16\n");
    out
}

#[test]
fn recordings_of_all_kernels_are_read_as_one_and_mail_is_joined() {
    let folder = Folder::new("cores-recording");
    let trap = folder.path("run.trap");
    couriers(&["--record", &trap], &[]);
    // Each message that is taken is a put of the other kernel, before it.
    let (mut puts, mut gets) = (BTreeMap::new(), Vec::new());
    for kernel in 1..=2u64 {
        let mut count = 0;
        for event in Recording::open(format!("{trap}.{kernel}")).unwrap() {
            let event = event.unwrap();
            if let Some(Call(SystemCall::Post, _)) = event.fact.call() {
                count += 1;
                puts.insert((kernel, count), event.at);
            }
            if let Some(Answered(_, Detail::Mail(from, put))) = event.fact.answer() {
                assert_ne!(u64::from(*from), kernel);
                gets.push(((u64::from(*from), *put), event.at));
            }
        }
    }
    assert_eq!((puts.len(), gets.len()), (10, 10));
    for (put, at) in &gets {
        assert!(puts[put] <= *at, "{put:?}");
    }
    let trace = |args: &[&str]| texts(trapline(&[&["trace"], args].concat()).output().unwrap());
    let shows = |args: &[&str]| {
        let (code, out, err) = trace(args);
        assert_eq!((code, &*err), (0, ""), "{args:?}");
        out
    };
    let show = shows(&["show", &trap]);
    let is_of_task = |line: &str| {
        let word = line.split_whitespace().nth(1).unwrap();
        ["1:0", "1:1", "2:0", "2:1"].contains(&word)
    };
    assert!(show.lines().all(is_of_task), "{show}");
    for part in [
        "mailbox 1:1 \"answers\"",
        "mailbox 2:1 \"asks\"",
        "post 5 of kernel 2",
    ] {
        has(&show, part);
    }
    let times: Vec<&str> = show.lines().map(|line| &line[..12]).collect();
    assert!(times.is_sorted(), "{show}");
    assert!(
        shows(&["show", "--task", "2:1", &trap])
            .lines()
            .all(|line| line.contains(" 2:1 "))
    );
    for line in shows(&["show", "--json", &trap]).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(
            line["tid"].as_u64() <= Some(1) && [1, 2].contains(&line["kernel"].as_u64().unwrap()),
            "{line}"
        );
    }
    let summary = shows(&["summary", &trap]);
    begins(&summary, "tasks ");
    has(summary.lines().next().unwrap(), " of 2 kernels");
    has(&summary, " 2:1  couriers");
    has(
        &shows(&["why", "1:1", &trap]),
        "2:1 \"couriers\" put the message that ended the wait",
    );
    has(&shows(&["waits", &trap]), "no task waited");
    has(
        &shows(&["export", "--format", "chrome", &trap]),
        "\"kernel 2\"",
    );
    for args in [&["path", &trap][..], &["diff", &trap, &trap]] {
        let (code, out, err) = trace(args);
        assert!(code != 0 && out.is_empty(), "{args:?}");
        has(&err, "is of 2 kernels");
        has(&err, &format!("name its file, such as {trap}.1"));
    }
    let (svg, html) = (folder.path("run.svg"), folder.path("run.html"));
    shows(&["timeline", &trap, "-o", &svg]);
    shows(&["timeline", &trap, "-o", &html]);
    let svg = fs::read_to_string(svg).unwrap();
    let (kernels, arrows) = (
        "class=\"kernel\"",
        "class=\"message\" fill=\"none\" stroke=\"var(--message)\" stroke-width=\"1.2\" d=\"",
    );
    assert_eq!(svg.matches(kernels).count(), 1);
    let path = svg
        .split(arrows)
        .nth(1)
        .expect("it has arrows")
        .split('"')
        .next()
        .unwrap();
    // A line and the two of its head for each message.
    assert_eq!(path.matches('M').count(), 30, "{path}");
    for label in [
        ">kernel 1<",
        ">1:1 couriers<",
        ">kernel 2<",
        ">2:1 couriers<",
    ] {
        has(&svg, label);
    }
    assert!(svg.find(">1:1 couriers<") < svg.find(">kernel 2<"));
    // One alone is as before.
    let alone = shows(&["show", &format!("{trap}.2")]);
    assert!(!alone.contains("2:1"), "{alone}");
}

#[test]
fn recordings_that_do_not_belong_together_are_refused() {
    let folder = Folder::new("cores-mixed");
    let trap = folder.path("run.trap");
    couriers(&["--record", &trap], &[]);
    let show = || texts(trapline(&["trace", "show", &trap]).output().unwrap());
    let second = format!("{trap}.2");
    let kept = fs::read(&second).unwrap();
    fs::copy(format!("{trap}.1"), &second).unwrap();
    let (code, out, err) = show();
    assert_eq!((code, &*out), (1, ""));
    has(&err, &format!("{second} is no recording of kernel 2 of 2"));
    fs::remove_file(&second).unwrap();
    has(&show().2, &format!("cannot read {second}"));
    // What is cut off is told, and the rest is shown.
    fs::write(&second, &kept[..kept.len() - 20]).unwrap();
    let (code, out, err) = show();
    assert_eq!(code, 1);
    has(&out, " 1:1 couriers");
    has(&err, &format!("{second}: "));
    // A file of the plain name would hide those of the kernels.
    fs::write(&trap, "").unwrap();
    for option in ["--record", "--tape"] {
        let args = ["boot", "--kernels", "2", option, &trap, "parts"];
        let (code, out, err) = run(&args);
        assert_eq!((code, &*out), (2, ""), "{err}");
        has(&err, &format!("{trap} stands for all of them"));
    }
    let both = folder.path("both");
    let (code, _, err) = run(&[
        "boot",
        "--kernels",
        "2",
        "--record",
        &both,
        "--tape",
        &both,
        "parts",
    ]);
    assert_eq!(code, 2);
    has(&err, "--record would replace the tape");
}

#[test]
fn the_report_of_a_kernel_among_others_names_its_tasks_with_its_number() {
    let (code, _, err) = run(&["boot", "-q", "--kernels", "2", "deadlock"]);
    assert_eq!(code, 3, "{err}");
    let kernel = err.lines().next().unwrap_or_default();
    let kernel = kernel.trim_matches(|letter: char| !letter.is_ascii_digit());
    for line in [
        format!("\n  tid {kernel}:1 \"deadlock\" waits for the end of task {kernel}:2, since"),
        format!("\n  cycle: {kernel}:2 -> {kernel}:3 -> {kernel}:2"),
        format!("\n  waits on a cycle: {kernel}:1 -> {kernel}:2"),
    ] {
        has(&err, &line);
    }
}
