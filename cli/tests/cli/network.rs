//! The simulated network on the command line: `--on`, `--net`, `--fault` and `--chaos`.

use std::process::{Command, Stdio};

use crate::support::{ROOT, has};

/// Boots in the simulated world: the exit code, standard output and standard error.
fn boot(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
    command.current_dir(ROOT).args(["boot", "--virtual"]);
    if !args.contains(&"--seed") {
        command.args(["--seed", "1"]);
    }
    let output = command.args(args).stdin(Stdio::null()).output();
    let output = output.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    let code = output.status.code().expect("no signal ended it");
    (code, text(output.stdout), text(output.stderr))
}

const SERVER: &str = "server:echo --addr 0.0.0.0:45000";

/// The lines of a swarm, among those of its server.
fn report(out: &str) -> Vec<&str> {
    let of_server = |line: &&str| line.starts_with("Client") || line.starts_with("Server");
    out.lines().filter(|line| !of_server(line)).collect()
}

#[test]
fn programs_on_hosts_meet_in_the_simulated_network() {
    let clients = "clients:swarm --addr server:45000 --clients 3 --requests 2 --keep-alive";
    let (code, out, err) = boot(&["--on", SERVER, "--on", clients]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        report(&out),
        [
            "6 answers in 6.000ms, 1000 a second",
            "latency p50 2ms, p90 4ms, p99 4ms, most 4.000ms",
            "  up to    2ms        3 ########################################",
            "  up to    5ms        3 ########################################",
        ]
    );
    assert!(out.contains("Client connected 10.0.0.2:49152\n"), "{out}");
    let rest = "the run ends at 8.000ms: nothing can come any more for the servers, task 1 \"echo@server\"\n";
    assert_eq!(err, rest);
}

#[test]
fn a_program_without_a_host_runs_on_main() {
    let swarm = [
        "swarm",
        "--addr",
        "server:45000",
        "--clients",
        "1",
        "--requests",
        "1",
    ];
    let with = ["--on", SERVER, "--with", "echo --addr main:45000"];
    let (code, _, err) = boot(&[&with[..], &swarm].concat());
    assert_eq!(code, 2, "an address to listen on is no name: {err}");
    let with = [
        "--on",
        "server@10.1.2.3:echo --addr 10.1.2.3:45000",
        "--with",
        "sleepers",
    ];
    let (code, out, err) = boot(&[&with[..], &swarm].concat());
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("Server starting at 10.1.2.3:45000\n"), "{out}");
    assert!(out.contains("Client connected 10.0.0.1:49152\n"), "{out}");
    assert!(out.contains("1000 tasks slept for "), "{out}");
    // Without --on there is one machine.
    let (code, out, _) = boot(&["--with", "echo", "swarm", "--clients", "1"]);
    assert_eq!(code, 0);
    assert!(out.contains("Client connected 127.0.0.1:49152\n"), "{out}");
    assert!(out.contains("100 answers in 4.000ms"), "{out}");
    let (code, out, _) = boot(&[
        "--net",
        "loopback=1ms",
        "--with",
        "echo",
        "swarm",
        "--clients=1",
    ]);
    assert_eq!(code, 0);
    assert!(out.contains("100 answers in 400.000ms"), "{out}");
}

#[test]
fn a_cut_stalls_what_a_heal_lets_go_on() {
    let clients = "clients:swarm --addr server:45000 --clients 5 --think 100ms --keep-alive";
    let run = |seed: &str| {
        boot(&[
            "--seed",
            seed,
            "--on",
            SERVER,
            "--on",
            clients,
            "--net",
            "latency=1ms..10ms",
            "--fault",
            "4s:heal server clients",
            "--fault",
            "2s:cut server clients",
        ])
    };
    let (code, out, err) = run("7");
    assert_eq!(code, 0, "{err}");
    let lines = report(&out);
    assert!(lines[0].starts_with("500 answers in "), "{out}");
    let slowest = lines.last().unwrap();
    assert!(
        slowest.starts_with("  up to     5s ") || slowest.starts_with("  up to     2s "),
        "{out}"
    );
    assert_eq!(
        run("7"),
        (code, out.clone(), err),
        "the same seed, the same run"
    );
    assert_ne!(run("8").1, out);
}

#[test]
fn a_good_end_lists_the_tasks_that_wait_beside_the_servers() {
    let server = "server:chat --addr 0.0.0.0:45000";
    let (code, _, err) = boot(&["--on", server]);
    assert_eq!(code, 0, "{err}");
    let (rest, others) = err.split_once("; these tasks wait, too:\n").expect(&err);
    assert!(
        rest.ends_with("for the servers, task 1 \"chat@server\""),
        "{err}"
    );
    assert!(
        others.starts_with("  tid 2 \"room@server\" waits for queue 1 (get)"),
        "{err}"
    );
}

#[test]
fn a_host_that_restarts_boots_its_programs_again() {
    let clients = "clients:swarm --addr server:45000 --clients 2 --requests 20 --think 100ms \
                   --patience 5s";
    let (code, out, err) = boot(&[
        "--on",
        SERVER,
        "--on",
        clients,
        "--fault",
        "1s:crash server",
        "--fault",
        "2s:restart server",
    ]);
    assert_eq!(code, 0, "{out}{err}");
    let starts = "Server starting at 0.0.0.0:45000\n";
    assert_eq!(out.matches(starts).count(), 2, "{out}");
    assert!(report(&out)[0].starts_with("40 answers in "), "{out}");
    // What it did before the crash is killed, and no failure.
    assert!(err.contains("nothing can come any more"), "{err}");
}

#[test]
fn a_swarm_that_fails_is_exit_code_1_though_its_server_is_left() {
    let clients = "clients:swarm --addr server:45000 --clients 1 --requests 3 --timeout 1s";
    let fault = "0s:cut server clients";
    let (code, out, err) = boot(&["--on", SERVER, "--on", clients, "--fault", fault]);
    assert_eq!(code, 1, "{err}");
    assert_eq!(
        report(&out),
        ["0 answers in 3.000s", "3 failed: no answer within 1s"]
    );
    has(&err, "\"swarm@clients\" failed: 3 of 3 requests failed\n");
    let nowhere = "clients:swarm --addr sever:45000 --clients 1 --requests 1";
    let (code, out, _) = boot(&["--on", SERVER, "--on", nowhere]);
    assert_eq!(code, 1);
    has(
        &out,
        "1 failed: cannot connect to sever:45000: the simulated net has no host \"sever\"",
    );
}

#[test]
fn tasks_that_wait_for_each_other_are_a_deadlock_beside_a_server() {
    let (code, _, err) = boot(&["--with", "echo", "deadlock"]);
    assert_eq!(code, 3, "{err}");
}

#[test]
fn what_cannot_be_is_an_error() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["--on", "server:ecko"],
            "in --on \"server:ecko\": there is no program 'ecko': did you mean 'echo'?",
        ),
        (
            &["--on", "server:echo --adr x"],
            "in --on \"server:echo --adr x\": unexpected argument '--adr'",
        ),
        (
            &["--on", "server:"],
            "in --on \"server:\": it names no program",
        ),
        (
            &["--on", "server"],
            "it takes a host and a program, such as",
        ),
        (&["--on", ":echo"], "it takes a host and a program, such as"),
        (&["--on", "a b:echo"], "\"a b\" is no name of a host"),
        (&["--on", "a@10.0.0:echo"], "'10.0.0' is no IP address"),
        (
            &["--on", "a@10.0.0.1:echo", "--on", "b@10.0.0.1:echo"],
            "in --on \"b@10.0.0.1:echo\": the host \"a\" has the address 10.0.0.1 already",
        ),
        (
            &["--on", "a@10.0.0.1:echo", "--on", "a@10.0.0.2:echo"],
            "there is a host \"a\" already, with the address 10.0.0.1",
        ),
        (
            &["--net", "latncy=1ms", "parts"],
            "there is no setting 'latncy': did you mean 'latency'? There are latency, loopback, ",
        ),
        (
            &["--net", "latency", "parts"],
            "'latency' takes a value, as in latency=1ms..10ms",
        ),
        (
            &["--net", "latency=1", "parts"],
            "such as 500ms, 10s or 2m, as in latency=1ms..10ms",
        ),
        (
            &["--net", "latency=2s..1s", "parts"],
            "the range ends before it begins",
        ),
        (
            &["--net", "latency=0s", "parts"],
            "it takes a time above zero, as in latency=1ms..10ms",
        ),
        (
            &["--net", "loopback=0s", "parts"],
            "it takes a time above zero, as in loopback=10us",
        ),
        (
            &["--net", "bandwidth=0", "parts"],
            "it takes a number of bytes from 1 upward",
        ),
        (&["--net", "buffer=x", "parts"], "as in buffer=65536"),
        (
            &["--net", "connect-timeout=0s", "parts"],
            "it takes a time above zero, as in connect-timeout=10s",
        ),
        (
            &["--net", "fragment=1", "parts"],
            "'fragment' takes no value",
        ),
        (
            &["--fault", "2s:cut server sever", "--on", SERVER],
            "in --fault \"2s:cut server sever\": there is no host 'sever': did you mean 'server'? \
             There are localhost, server",
        ),
        (
            &["--fault", "2s:crash x", "--on", SERVER],
            "in --fault \"2s:crash x\": there is no host 'x': there are localhost, server",
        ),
        (
            &["--fault", "2s:cut server server", "--on", SERVER],
            "in --fault \"2s:cut server server\": \"server\" is one host",
        ),
        (
            &["--fault", "2s:cutt a b", "--on", SERVER],
            "there is no fault 'cutt': did you mean 'cut'?",
        ),
        (
            &["--fault", "2s:cut server", "--on", SERVER],
            "write cut A B, ",
        ),
        (
            &["--fault", "-2s:crash server", "--on", SERVER],
            "'-2s' is in the past",
        ),
        (
            &["--fault", "crash server", "--on", SERVER],
            "it takes a time and a fault",
        ),
        (
            &["--fault", "2:crash server", "--on", SERVER],
            "such as 500ms, 10s or 2m",
        ),
        (
            &["--fault", "2s:restart server", "--on", SERVER],
            "the host \"server\" is up: crash it first",
        ),
        (
            &[
                "--max-time",
                "1s",
                "--fault",
                "2s:crash server",
                "--on",
                SERVER,
            ],
            "it is after --max-time, and would not happen",
        ),
        (&[], "name a program to boot"),
    ];
    for (args, message) in cases {
        let (code, out, err) = boot(args);
        assert_eq!((code, &*out), (2, ""), "{args:?}: {err}");
        assert!(err.contains(message), "{args:?}: {err}");
    }
}

#[test]
fn programs_recover_from_chaos_and_a_fault_that_it_forestalls_is_a_warning() {
    let clients = "clients:swarm --addr server:45000 --clients 3 --requests 100 --think 1s \
                   --patience 10s --keep-alive";
    let mut warned = 0;
    for seed in 0..20 {
        let seed = seed.to_string();
        let args = [
            "--seed",
            &seed,
            "--on",
            SERVER,
            "--on",
            clients,
            "--chaos",
            "3",
            "--fault",
            "9s:crash server",
            "--fault",
            "10s:restart server",
        ];
        let (code, out, err) = boot(&args);
        assert!(code < 2, "{err}");
        let last = report(&out)
            .iter()
            .rposition(|line| line.contains(" answers in "));
        assert!(last.is_some(), "seed {seed}: {out}{err}");
        let warning =
            "warning: --fault \"9s:crash server\" did nothing: the host \"server\" has crashed";
        warned += usize::from(err.contains(warning));
        if seed == "7" {
            assert_eq!(boot(&args), (code, out, err));
        }
    }
    assert!(warned > 0);
}

#[test]
fn idle_connections_and_programs_without_clients_are_a_good_end() {
    let proxy = "proxy:proxy --listen 0.0.0.0:45001 --to 10.0.0.1:45000";
    let swarm =
        "clients:swarm --addr proxy:45001 --clients 3 --requests 20 --think 2500ms --keep-alive";
    // The client of the proxy crashes after an answer, and the proxy learns nothing of it.
    for seed in ["3", "4", "6"] {
        let on = ["--on", SERVER, "--on", proxy, "--on", swarm];
        let (code, out, err) = boot(&[&["--seed", seed, "--chaos", "2"], &on[..]].concat());
        // The proxy has waited for the failures of its halves; only requests that fail count.
        let failed = err.contains("requests failed");
        assert_eq!(code, i32::from(failed), "{out}{err}");
        assert!(err.contains("nothing can come any more"), "{err}");
    }
    let page = "client:http-get http://server:8000/README.md";
    let on = ["--on", "server:httpd --addr 0.0.0.0:8000", "--on", page];
    for programs in [&on[..], &["chat"], &["echo"], &["slow-upstream"]] {
        let (code, _, err) = boot(programs);
        assert_eq!(code, 0, "{programs:?}: {err}");
    }
}

#[test]
fn supervised_starts_its_server_again_until_it_gives_up() {
    let swarm = [
        "--with",
        "swarm --clients 3 --requests 12 --timeout 1s --keep-alive",
    ];
    let every = ["supervised", "--every", "10", "--backoff", "50ms"];
    let supervised = |restarts| {
        let (code, out, err) = boot(&[&swarm[..], &every, &["--restarts", restarts]].concat());
        let of_server = |line: &&str| line.starts_with("Server") || line.starts_with("Listening");
        let lines: Vec<String> = out.lines().filter(of_server).map(String::from).collect();
        (code, lines, err)
    };
    // The failed requests are those of the swarm, whose own failure counts.
    let (code, lines, err) = supervised("9");
    let expected = [
        "Listening at 127.0.0.1:45000",
        "Server 1 starts",
        "Server 2 starts",
    ];
    assert_eq!(
        lines,
        [&expected[..], &["Server 3 starts", "Server 4 starts"]].concat()
    );
    assert_eq!(code, 1, "{err}");
    has(
        &err,
        "warning: task 6 \"server\" faulted: server 1 crashes: request 10",
    );
    has(
        &err,
        "the run ends at 350.170ms: nothing can come any more for the servers",
    );
    let (code, lines, err) = supervised("1");
    assert_eq!((code, &lines[..]), (1, &expected.map(String::from)[..]));
    has(
        &err,
        "task 1 \"supervised\" failed: child \"server\" faulted: server 2 crashes: request 20 \
         (limit: 1 restart within 5s)\n",
    );
}

#[test]
fn datagrams_are_lost_doubled_and_reordered_by_shares() {
    let hosts = [
        "--on",
        "server:udp-echo --addr 0.0.0.0:45000",
        "--on",
        "client:udp-echo --ask server:45000 --count 100",
    ];
    let (code, out, err) = boot(&hosts);
    assert_eq!(code, 0, "{err}");
    assert!(out.ends_with("100 of 100 came back\n"), "{out}");
    assert!(
        err.contains("nothing can come any more for the servers"),
        "{err}"
    );
    let shares = ["--net", "loss=20%,duplicate=0.2,reorder=20%"];
    let (code, out, err) = boot(&[&hosts[..], &shares].concat());
    assert_eq!(code, 0, "{err}");
    assert!(out.ends_with("65 of 100 came back\n"), "{out}");
    let lost = boot(&[&hosts[..], &["--fault", "10ms:loss 100%"]].concat());
    assert!(lost.1.ends_with("5 of 100 came back\n"), "{}", lost.1);
    for (bad, why) in [
        (
            "loss=101%",
            "it takes a share from 0% to 100%, as in loss=1%",
        ),
        ("reorder", "'reorder' takes a value, as in reorder=1%"),
    ] {
        let (code, _, err) = boot(&[&hosts[..], &["--net", bad]].concat());
        assert!(code == 2 && err.contains(why), "{err}");
    }
}
