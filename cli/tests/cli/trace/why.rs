//! `trace why` and `trace path`: each of the cases of the guide is solved by them alone.

use super::*;

/// What `trace why` says about a task of a program.
fn why(program: &[&str], task: &str) -> String {
    let place = Place::with(&format!("why-{}", program[0]), program);
    place.print(&["trace", "why", task, "run.trap"])
}

#[test]
fn a_starved_task_is_told_who_polls() {
    assert_eq!(
        why(&["starved"], "worker"),
        "7 \"worker\" was ready for 85 turns, and waited for its turn. Meanwhile others ran: \
         6 \"client-5\" for 26 turns, 5 \"client-4\" for 21 turns, 4 \"client-3\" for 16 turns, \
         3 \"client-2\" for 11 turns, 2 more tasks. Of their 85 turns, 74 ended with yield, as those \
         of tasks that poll.\n"
    );
}

#[test]
fn a_deadlock_is_followed_around_its_cycle() {
    assert_eq!(
        why(&["deadlock"], "deadlock"),
        "\
1 \"deadlock\" waits for the end of 2 \"save\" since 00:00.000, to its end (programs/cases/deadlock.rs:29).
2 \"save\" waits for mutex 2, held by task 3, since 00:00.001, to its end (programs/cases/deadlock.rs:42).
3 \"spend\" waits for mutex 1, held by task 2, since 00:00.001, to its end (programs/cases/deadlock.rs:42).
So they wait for one another: 2 -> 3 -> 2.
"
    );
}

#[test]
fn a_lost_wake_up_is_found_in_the_turn_before_the_wait() {
    assert_eq!(
        why(&["lost-wakeup"], "reader"),
        "\
2 \"reader\" waits for a message of queue 1 since 00:00.000, to its end (programs/cases/lost_wakeup.rs:49).
No other task has ever put a message into it.
After its now(), and before this wait, 1 \"lost-wakeup\" had a turn, up to wait_task(2): a wake-up in that turn would have come too early.
"
    );
}

#[test]
fn a_slow_reader_is_named() {
    assert_eq!(
        why(&["slow-reader"], "source"),
        "\
3 \"source\" waited 8ms for room in queue 1, from 00:00.014 (programs/cases/slow_reader.rs:48).
2 \"reader\" got a message from it at 00:00.022, which ended the wait.
Meanwhile 2 \"reader\" was asleep.
"
    );
}

#[test]
fn a_convoy_is_shown_in_its_order() {
    assert_eq!(
        why(&["convoy"], "worker-1"),
        "\
2 \"worker-1\" waited 13ms for mutex 1, from 00:00.007 (programs/cases/convoy.rs:57).
Meanwhile 3 \"worker-2\" held it for 3ms (asleep), then 4 \"worker-3\" held it for 5ms (asleep), \
then 5 \"worker-4\" held it for 5ms (asleep).
"
    );
}

#[test]
fn a_partial_deadlock_is_found_from_a_client_of_the_server() {
    assert_eq!(
        why(&["stuck-server"], "payer"),
        "\
3 \"payer\" waits for bytes from device 2 (127.0.0.1:49152) since 00:00.000, to its end (programs/cases/stuck_server.rs:71).
5 \"session\" has the other end, device 5.
5 \"session\" waits for mutex 2 \"journal\", held by task 6, since 00:00.002, to its end (programs/cases/stuck_server.rs:102).
6 \"session\" waits for mutex 1 \"accounts\", held by task 5, since 00:00.002, to its end (programs/cases/stuck_server.rs:111).
So they wait for one another: 5 -> 6 -> 5.
"
    );
    let place = Place::with("why-cured", &["stuck-server", "--cured"]);
    let said = place.print(&["trace", "why", "payer", "run.trap"]);
    assert!(
        !said.contains("to its end") && !said.contains("one another"),
        "{said}"
    );
}

#[test]
fn an_interrupted_run_is_explained_up_to_the_interrupt() {
    let place = Place::new("why-interrupt");
    let file = place.0.join("run.trap");
    let file = file.to_str().expect("it is text");
    let mut command = rude(&["boot", "-q", "--record", file, "pools"]);
    let mut run = Running::start(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    while !run.err_line().contains("cycle: ") {}
    run.signal(Signal::INT);
    assert_eq!(run.end().0, Some(130));
    let said = place.print(&["trace", "why", "client", "run.trap"]);
    for part in [
        "5 \"session\" has the other end, device 3.\n",
        "No other task has ever put a message into it.\nIt put a message into queue 3 before, at ",
        "2 \"worker\" got it, at ",
        "2 \"worker\" waits for mutex 2 \"b\", held by task 3, since ",
        "\nSo they wait for one another: 2 -> 3 -> 2.\n",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert!(!said.contains("too early"), "{said}");
}

#[test]
fn a_slow_upstream_is_found_from_a_client_of_the_proxy() {
    assert_eq!(
        why(&["slow-upstream"], "client"),
        "\
4 \"client\" waited 40.06ms for bytes from device 3 (127.0.0.1:49153), from 00:00.000 (programs/cases/slow_upstream.rs:77).
3 \"proxy\" has the other end, device 4.
Meanwhile 3 \"proxy\" was waiting for bytes from device 5 (127.0.0.1:49152) for 40.02ms.
3 \"proxy\" waited 40.02ms for bytes from device 5 (127.0.0.1:49152), from 00:00.000 (programs/cases/slow_upstream.rs:77).
2 \"upstream\" has the other end, device 6.
Meanwhile 2 \"upstream\" was asleep for 40ms.
"
    );
}

#[test]
fn a_wait_for_a_connection_is_ended_by_the_task_that_connects() {
    let place = Place::with("why-accept", &["slow-upstream"]);
    let at = |task: &str| place.print(&["trace", "why", task, "--at", "0", "run.trap"]);
    let said = at("upstream");
    assert!(
        said.contains("3 \"proxy\" connected at 00:00.000, which ended the wait.\n")
            && said.contains("4 \"client\" connected at 00:00.000, which ended the wait.\n"),
        "{said}"
    );
    assert!(!said.contains("No task connected"), "{said}");
}

#[test]
fn the_critical_path_leads_from_a_server_to_the_client_that_connects_late() {
    let swarm = "--clients 1 --requests 3 --think 50ms";
    let place = Place::of_network("path-accept", swarm, &[]);
    let path = place.print(&["trace", "path", "run.trap"]);
    assert!(!path.contains("waiting for a connection"), "{path}");
    assert!(path.contains("client@clients  asleep"), "{path}");
    assert!((sum_of_shares(&path) - 100.0).abs() < 0.3, "{path}");
}

#[test]
fn the_latency_of_a_packet_is_no_work() {
    let swarm = "--clients 2 --requests 3 --keep-alive";
    let place = Place::of_network("path-latency", swarm, &["--net", "latency=10ms"]);
    let path = place.print(&["trace", "path", "run.trap"]);
    assert!(path.contains("waiting for the network"), "{path}");
    assert!(!path.contains("running"), "{path}");
    assert!((sum_of_shares(&path) - 100.0).abs() < 0.3, "{path}");
}

#[test]
fn the_shares_of_a_path_add_up_to_all_of_a_run() {
    let place = Place::new("path-sums");
    // A server of the real world that is interrupted after its only client has left.
    let file = place.0.join("echo.trap");
    let mut server = Running::with_stdout(&[
        "boot",
        "--record",
        file.to_str().expect("it is text"),
        "echo",
        "--addr",
        "127.0.0.1:0",
    ]);
    let line = server.out_line();
    let addr = line.trim().rsplit(' ').next().expect("it ends with it");
    let client = std::net::TcpStream::connect(addr).expect("it listens");
    server.out_line();
    drop(client);
    server.out_line();
    server.signal(Signal::INT);
    server.end();
    let runs = [
        vec!["deadlock"],
        vec!["lost-wakeup"],
        vec!["starved"],
        vec!["slow-upstream"],
        vec!["stuck-server"],
        vec!["--record-last", "40", "convoy"],
    ];
    let mut files = vec!["echo.trap".to_string()];
    for (at, run) in runs.iter().enumerate() {
        files.push(format!("{at}.trap"));
        place.record(&files[at + 1], run);
    }
    for file in files {
        let (_, path, _) = place.run(&["trace", "path", &file]);
        assert!((sum_of_shares(&path) - 100.0).abs() < 0.5, "{file}: {path}");
    }
}

/// The sum of the shares of a critical path, in percent.
fn sum_of_shares(path: &str) -> f64 {
    path.lines()
        .filter_map(|line| line.split_once(" %  ")?.0.trim().parse::<f64>().ok())
        .sum()
}

#[test]
fn the_other_end_is_found_where_connections_overtake_each_other() {
    let swarm = "--clients 3 --requests 1 --keep-alive";
    let place = Place::of_network("why-net", swarm, &["--net", "latency=1ms..10ms"]);
    // The second client is connected before the first, and is accepted after it.
    let show = place.print(&["trace", "show", "run.trap"]);
    let order = |texts: [&str; 2]| show.find(texts[0]).unwrap() < show.find(texts[1]).unwrap();
    assert!(order(["connected(3)", "connected(2)"]), "{show}");
    assert!(order(["(10.0.0.2:49152)", "(10.0.0.2:49153)"]), "{show}");
    let said = place.print(&["trace", "why", "3", "run.trap"]);
    let peer = "6 \"client@server\" has the other end, device 5.";
    assert!(said.contains(peer), "{said}");
}

/// An echo server and a client with three requests, 10 ms away.
const FAR: [&str; 6] = [
    "--on",
    "server:echo --addr 0.0.0.0:45000",
    "--on",
    "clients:swarm --addr server:45000 --clients 1 --requests 3 --keep-alive",
    "--net",
    "latency=10ms",
];

#[test]
fn bytes_that_are_under_way_explain_a_request_and_its_reply() {
    let place = Place::with("why-latency", &FAR);
    assert_eq!(
        place.print(&["trace", "why", "3", "--at", "45ms", "run.trap"]),
        "\
3 \"client@clients\" waited 20ms for bytes from device 2 (10.0.0.1:45000), from 00:00.040 (programs/swarm.rs:177).
4 \"client@server\" has the other end, device 3.
It sent the bytes at 00:00.050: they were under way for 10ms.
Meanwhile 4 \"client@server\" was waiting for bytes from device 3 (10.0.0.2:49152).
4 \"client@server\" waited 20ms for bytes from device 3 (10.0.0.2:49152), from 00:00.030 (programs/echo.rs:98).
3 \"client@clients\" has the other end, device 2.
It sent the bytes at 00:00.040: they were under way for 10ms.
"
    );
    for task in ["1", "2", "3", "4"] {
        let said = place.print(&["trace", "why", task, "run.trap"]);
        assert!(!said.contains("one another"), "{said}");
    }
}

#[test]
fn bytes_that_have_not_arrived_at_the_end_are_no_cycle() {
    let place = Place::new("why-under-way");
    let boot = [
        "boot",
        "-q",
        "--virtual",
        "--seed",
        "1",
        "--max-time",
        "45ms",
    ];
    let boot = [&boot[..], &["--record", "run.trap"], &FAR].concat();
    assert_eq!(place.run(&boot).0, 4);
    let said = place.print(&["trace", "why", "3", "run.trap"]);
    let end = "\
4 \"client@server\" waits for bytes from device 3 (10.0.0.2:49152) since 00:00.030, to its end (programs/echo.rs:98).
3 \"client@clients\" has the other end, device 2.
It sent bytes at 00:00.040, which have not arrived.
";
    assert!(said.ends_with(end), "{said}");
}

#[test]
fn two_plain_queues_crosswise_are_no_cycle_of_waits() {
    let place = Place::new("waits-crosswise");
    let file = place.0.join("run.trap");
    let file = file.to_str().expect("it is text");
    let boot = ["boot", "-q", "--virtual", "--record", file, "crosswise"];
    let ended = rude(&boot).output().expect("it runs");
    assert_eq!(ended.status.code(), Some(3));
    let waits = place.print(&["trace", "waits", "run.trap"]);
    has(&waits, " waits for queue 2 (get), since ");
    assert!(
        !waits.contains("cycle") && !waits.contains("held by"),
        "{waits}"
    );
}

#[test]
fn why_looks_at_an_instant_and_refuses_what_is_not_there() {
    let place = Place::with("why-at", &["convoy"]);
    let at = |at: &str| place.run(&["trace", "why", "5", "--at", at, "run.trap"]);
    let (code, out, _) = at("10ms");
    assert_eq!(code, 0);
    begins(
        &out,
        "5 \"worker-4\" waited 15ms for mutex 1, from 00:00.000 ",
    );
    let (_, out, _) = at("18ms");
    begins(
        &out,
        "5 \"worker-4\" slept for 5ms, from 00:00.015: sleep(5ms)",
    );
    let (code, _, err) = at("1h");
    assert_eq!(code, 1);
    assert_eq!(
        err,
        "error: --at 60:00.000 is after the end of the recording, 00:00.062\n"
    );
    let (code, _, err) = place.run(&["trace", "why", "worker", "run.trap"]);
    assert_eq!(code, 1);
    let names = "convoy, worker-1, worker-2, worker-3, worker-4";
    assert_eq!(
        err,
        format!("error: there is no task worker: the names are {names}\n")
    );
}

#[test]
fn what_missing_events_hide_is_not_claimed() {
    let why = |last: &str, program: &[&str], task: &str| {
        let place = Place::with("why-gap", &[&["--record-last", last], program].concat());
        let (code, said, _) = place.run(&["trace", "why", task, "run.trap"]);
        assert_eq!(code, 0);
        said.lines().last().map(str::to_string).unwrap_or_default()
    };
    assert_eq!(
        why("4", &["stuck-server"], "payer"),
        "Its other end is not known: events are missing."
    );
    assert_eq!(
        why("1", &["lost-wakeup"], "reader"),
        "No task has put a message into it in what is recorded: events are missing."
    );
    // The events that made the queue a lock are missing, too.
    assert_eq!(
        why("1", &["deadlock"], "save"),
        "No task has put a message into it in what is recorded: events are missing."
    );
}

#[test]
fn missing_events_are_a_share_of_the_critical_path() {
    let place = Place::with("path-gap", &["--record-last", "40", "convoy"]);
    let (code, out, _) = place.run(&["trace", "path", "run.trap"]);
    assert_eq!(code, 0);
    assert_eq!(
        out,
        "\
tasks 10 %, kernel 0 %, idle 90 % of the known 5ms
critical path of 62ms

  share   time  task      was
 96.8 %   60ms  worker-4  unknown: events are missing
  2.4 %  1.5ms  worker-4  asleep, convoy.rs:64
  0.8 %  500µs  worker-4  running

 from           time  task          was
 00:00.000000   60ms  5 \"worker-4\"  unknown: events are missing
 00:00.060000  500µs  5 \"worker-4\"  running
 00:00.060500  1.5ms  5 \"worker-4\"  asleep, convoy.rs:64
"
    );
}

/// A run of the program that selects a span, the end of a child, a flag and a signal.
fn selects(test: &str) -> Place {
    let place = Place::new(test);
    let boot = ["boot", "-q", "--virtual", "--signal", "40ms:USR1"];
    let mut boot = rude(&[&boot[..], &["--record", "run.trap", "selects"]].concat());
    let ended = boot.current_dir(&place.0).output().expect("it runs");
    assert_eq!(ended.status.code(), Some(3));
    place
}

/// What `trace why` says, without the places in the source.
fn without_places(said: &str) -> String {
    let lines = said.lines().map(|line| match line.find(" (cli/") {
        Some(at) => &line[..at],
        None => line.split(" (programs/").next().expect("split gives one"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_select_is_explained_by_the_source_that_ended_it() {
    let place = selects("why-selects");
    let why = |at: &[&str]| {
        let why = [&["trace", "why", "selects", "run.trap"], at].concat();
        without_places(&place.print(&why))
    };
    assert_eq!(
        why(&["--at", "5ms"]),
        "\
1 \"selects\" waited 10ms for the first of flag 1 \"stop\", after 10ms, from 00:00.000
Its span of time had passed."
    );
    assert_eq!(
        why(&["--at", "15ms"]),
        "\
1 \"selects\" waited 10ms for the first of flag 1 \"stop\", exit 2, from 00:00.010
The end of 2 \"child\" ended it.
Meanwhile 2 \"child\" was asleep."
    );
    assert_eq!(
        why(&["--at", "25ms"]),
        "\
1 \"selects\" waited 10ms for the first of flag 1 \"stop\", after 60ms, from 00:00.020
3 \"setter\" made flag 1 \"stop\" ready at 00:00.030, which ended it.
Meanwhile 3 \"setter\" was asleep."
    );
    assert_eq!(
        why(&["--at", "35ms"]),
        "\
1 \"selects\" waited 10ms for the first of flag 1 \"stop\", signals 3 \"SIGUSR1\", from 00:00.030
It was woken by signals 3 \"SIGUSR1\", from outside of all tasks."
    );
    assert_eq!(
        why(&[]),
        "1 \"selects\" waits for the first of flag 1 \"stop\", flag 2 \"go\" since 00:00.040, to its end"
    );
}

#[test]
fn the_sources_of_a_select_are_what_a_task_waits_for() {
    let place = selects("waits-selects");
    let waits = place.print(&["trace", "waits", "run.trap"]);
    let line = "  tid 1 \"selects\" waits for the first of: flag 1 \"stop\"; flag 2 \"go\", since \
                00:00.040, in select(flag 1 \"stop\", flag 2 \"go\")\n";
    assert!(waits.contains(line) && !waits.contains("cycle"), "{waits}");
    let at = ["--at", "5ms", "run.trap"];
    let dot = place.print(&[&["trace", "waits", "--format", "dot"], &at[..]].concat());
    let sources = r#""the first of: flag 1 \"stop\"; after 10ms""#;
    for line in [
        format!("  task1 -> {sources} [label=\"select\", color=black]\n"),
        format!("  {sources} [label={sources}]\n"),
    ] {
        assert!(dot.contains(&line), "{dot}");
    }
    assert_eq!(
        place.print(&["trace", "export", "--format", "folded", "run.trap"]),
        "\
child;blocked;sleep;a timer 20000000
selects;blocked;select;the first of 2 sources 40000000
setter;blocked;sleep;a timer 30000000
"
    );
}

#[test]
fn a_supervisor_is_explained_up_to_the_client_of_its_server() {
    let server = "server:supervised --addr 0.0.0.0:80 --every 3 --restarts 1 --backoff 500ms";
    let client = "client:swarm --addr server:80 --clients 1 --requests 7 --think 1s";
    let place = Place::with("why-supervised", &["--on", server, "--on", client]);
    let why = [
        "trace",
        "why",
        "supervised@server",
        "--at",
        "1s",
        "run.trap",
    ];
    assert_eq!(
        without_places(&place.print(&why)),
        "\
1 \"supervised@server\" waited 2.011s for the first of flag 3 \"stop\", a child of supervisor 2, from 00:00.000
4 \"server@server\" made supervisor 2 ready at 00:02.011, which ended it.
Meanwhile 4 \"server@server\" was waiting for the first of 3 sources.
4 \"server@server\" waited 1.002s for the first of message 4, a member of group 5, readable device 1, from 00:01.009
What ended it was a connection to device 1 (0.0.0.0:80).
3 \"client@client\" connected at 00:02.008, which ended the wait.
Meanwhile 3 \"client@client\" was asleep for 999ms."
    );
}

#[test]
fn the_critical_path_is_what_decided_the_end() {
    let place = Place::with("path", &["slow-reader"]);
    assert_eq!(
        place.print(&["trace", "path", "run.trap"]),
        "\
tasks 0 %, kernel 0 %, idle 100 % of 122ms
critical path of 122ms

  share   time  task    was
 98.4 %  120ms  reader  asleep, slow_reader.rs:56
  1.6 %    2ms  source  asleep, slow_reader.rs:47

 from           time  task        was
 00:00.000000    2ms  3 \"source\"  asleep, slow_reader.rs:47
 00:00.002000  120ms  2 \"reader\"  asleep, slow_reader.rs:56
"
    );
    place.record("convoy.trap", &["convoy"]);
    let path = place.print(&["trace", "path", "convoy.trap"]);
    let total = sum_of_shares(&path);
    assert!((total - 100.0).abs() < 0.3, "{path}");
    // Each worker sleeps with the lock in its hands, in the same line; at the end one has given it back.
    let asleep = place_of("programs/cases/convoy.rs", "os.sleep(FETCH)");
    let asleep = asleep.rsplit('/').next().unwrap();
    has(&path, &format!("asleep, holding mutex 1, {asleep}"));
    assert!(
        !path.contains("waiting"),
        "each wait leads to the task that ended it: {path}"
    );
}
