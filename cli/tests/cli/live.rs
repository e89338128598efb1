//! Looking at a kernel that already runs: the built binary, its monitor's socket, and the commands
//! that attach to it.

mod protocol;

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    ops::Deref,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::*;

// ---- tools

/// A place for a socket that no other test uses, and short enough for one.
fn place(test: &str) -> Place {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = format!("trapline-{}-{number}", std::process::id());
    let dir = std::env::temp_dir().join(dir);
    fs::create_dir(&dir).expect("it can be made");
    Place(dir.join(test))
}

/// Goes with what is in it.
struct Place(PathBuf);

impl Deref for Place {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.parent().expect("it is in a directory"));
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("it is text")
}

/// A command attached to that socket: its exit code, standard output and standard error.
fn ask(socket: &Path, args: &[&str]) -> (i32, String, String) {
    let output = trapline(args).args(["--attach", text(socket)]).output();
    let output = output.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    (
        output.status.code().expect("no signal ended it"),
        text(output.stdout),
        text(output.stderr),
    )
}

/// The same, where it must go well.
fn show(socket: &Path, args: &[&str]) -> String {
    let (code, out, err) = ask(socket, args);
    assert_eq!((code, &*err), (0, ""), "{args:?}: {out}");
    out
}

/// A kernel that is monitored, until it is dropped.
struct Kernel {
    child: Child,
    socket: Place,
    /// Where its first program listens, if it says so.
    addr: Option<SocketAddr>,
    /// What it printed after that.
    _lines: Receiver<String>,
}

impl Kernel {
    fn boot(test: &str, args: &[&str]) -> Self {
        Self::boot_at(place(test), trapline(&[]), args)
    }

    fn boot_at(socket: Place, mut command: Command, args: &[&str]) -> Self {
        command.args(["boot", "-q", "--monitor", text(&socket)]);
        let mut child = command.args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut addr = None;
        while args.contains(&"echo") && addr.is_none() {
            let line = out.next().expect("it says where it listens").unwrap();
            addr = line.split(' ').find_map(|word| word.parse().ok());
        }
        if addr.is_none() {
            eventually("a monitor", || UnixStream::connect(&*socket).ok());
        }
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            out.map_while(Result::ok)
                .for_each(|line| drop(sender.send(line)));
        });
        Self {
            child,
            socket,
            addr,
            _lines: lines,
        }
    }

    fn echo(test: &str) -> Self {
        Self::boot(test, &["echo", "--addr", "127.0.0.1:0"])
    }

    /// A client of the echo server that has had its first answer.
    fn tcp(&self) -> TcpStream {
        let client = TcpStream::connect(self.addr.expect("it listens")).unwrap();
        client.set_nodelay(true).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        echo(&client);
        client
    }

    fn attach(&self) -> Client {
        Client::new(UnixStream::connect(&*self.socket).expect("it listens"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn end(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // It fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn echo(mut client: &TcpStream) {
    client.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
}

/// Somebody at the socket who speaks for himself.
struct Client(BufReader<UnixStream>);

impl Client {
    fn new(stream: UnixStream) -> Self {
        // Nothing here takes that long: a test that would hang fails.
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Self(BufReader::new(stream))
    }

    fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line:?}"))
    }

    /// All that is answered to a request.
    fn ask(&mut self, request: &str) -> Vec<Value> {
        self.say(format!("{request}\n"));
        let mut answers = Vec::new();
        loop {
            let answer = self.hear();
            let last = answer["is"] == "end" || answer["is"] == "error";
            answers.push(answer);
            if last {
                return answers;
            }
        }
    }

    fn error(&mut self, request: &str) -> String {
        let answers = self.ask(request);
        assert_eq!(answers.len(), 1, "{answers:?}");
        let message = answers[0]["message"].as_str();
        message.expect("it is an error").to_string()
    }

    /// What comes until the other end closes.
    fn rest(mut self) -> String {
        let mut rest = String::new();
        match self.0.read_to_string(&mut rest) {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
            _ => rest,
        }
    }
}

/// The lines without what differs from run to run: times and ports.
fn steady(text: &str) -> String {
    let word = |word: &str| match word {
        time if time.contains(':') && time.starts_with(|c: char| c.is_ascii_digit()) => {
            if time.ends_with(',') { "TIME," } else { "TIME" }.to_string()
        }
        other => other.to_string(),
    };
    let line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().map(word).collect();
        words.join(" ") + "\n"
    };
    text.lines().map(line).collect()
}

// ---- the commands

#[test]
fn ps_lists_the_tasks_and_not_the_monitor() {
    let kernel = Kernel::echo("ps");
    let client = kernel.tcp();
    let out = show(&kernel.socket, &["ps"]);
    assert_eq!(
        steady(&out),
        "tid task parent state blocked on since traps\n\
         1 echo 0 blocked the first of: signals 1 \"SIGTE… TIME 8\n\
         2 client 1 blocked device 2 (read), TIME TIME 3\n"
    );
    let json = show(&kernel.socket, &["ps", "--json"]);
    let lines: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1]["comm"], "client");
    let peer = client.local_addr().unwrap();
    assert_eq!(
        lines[1]["blocked_on"],
        format!("device 2 (read), {peer}"),
        "the address of the peer"
    );
    assert_eq!(
        (&lines[2]["is"], &lines[2]["tasks"]),
        (&"end".into(), &2.into())
    );
}

#[test]
fn tree_shows_parents() {
    let kernel = Kernel::echo("tree");
    let _clients = [kernel.tcp(), kernel.tcp()];
    let out = steady(&show(&kernel.socket, &["tree"]));
    assert_eq!(
        out,
        "1 echo: waits for the first of: signals 1 \"SIGTERM\"; a member of group 2; readable device 1, since TIME\n\
         ├─ 2 client: waits for device 2 (read), TIME, since TIME\n\
         └─ 3 client: waits for device 3 (read), TIME, since TIME\n"
    );
}

#[test]
fn many_tasks_of_a_name_are_sorted_filtered_and_folded() {
    let kernel = Kernel::echo("many");
    let clients: Vec<TcpStream> = (0..12).map(|_| kernel.tcp()).collect();
    for _ in 0..3 {
        echo(&clients[4]);
    }
    let tree = steady(&show(&kernel.socket, &["tree"]));
    assert_eq!(
        tree,
        "1 echo: waits for the first of: signals 1 \"SIGTERM\"; a member of group 2; readable device 1, since TIME\n\
         └─ client x12: 12 device\n"
    );
    let all = show(&kernel.socket, &["tree", "--all"]);
    assert_eq!(all.lines().count(), 13, "{all}");
    let busiest = ["ps", "--sort", "traps", "--most", "2"];
    let out = show(&kernel.socket, &busiest);
    let tids: Vec<_> = out
        .lines()
        .map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(
        tids,
        [Some("tid"), Some("1"), Some("6"), Some("and")],
        "{out}"
    );
    let out = steady(&show(&kernel.socket, &["ps", "--by-name", "--reverse"]));
    assert!(out.contains("\nclient x12 1 12 device TIME "), "{out}");
    // A task is found by its peer.
    let peer = clients[9].local_addr().unwrap().to_string();
    let out = show(&kernel.socket, &["ps", "--filter", &peer]);
    assert!(out.ends_with("\n1 of 13 match\n"), "{out}");
    assert!(
        out.lines().nth(1).unwrap().trim_start().starts_with("11 "),
        "{out}"
    );
    let out = show(&kernel.socket, &["ps", "--filter", "nothing"]);
    assert!(out.ends_with("\n0 of 13 match\n"), "{out}");
    let (code, _, err) = ask(&kernel.socket, &["ps", "--sort", "age"]);
    assert_eq!(code, 2);
    has(&err, "possible values: tid, name, state, since, traps");
}

#[test]
fn where_shows_what_a_task_waits_for_in_turn_and_its_last_traps() {
    let kernel = Kernel::echo("where");
    let _client = kernel.tcp();
    let out = steady(&show(&kernel.socket, &["where", "2"]));
    let (first, rest) = out.split_once('\n').unwrap();
    let (places, traps) = rest.split_once('\n').unwrap();
    assert!(
        first.starts_with("task 2 \"client\" waits for device 2 (read), TIME, since TIME (for "),
        "{out}"
    );
    assert!(first.ends_with("s), parent 1, 3 traps"), "{out}");
    assert_eq!(
        places,
        format!(
            "recv at {}, spawned at {}",
            place_of("programs/echo.rs", "client.recv("),
            place_of("programs/serve.rs", "os.serve_until("),
        )
    );
    assert_eq!(
        traps,
        "TIME 2 client recv(2, 4096) = 5\n\
         TIME 2 client send(2, 5) = 5\n\
         TIME 2 client recv(2, 4096) ...\n"
    );
}

#[test]
fn waits_shows_a_cycle_in_a_server_that_waits_for_clients() {
    let args = ["--with", "deadlock", "echo", "--addr", "127.0.0.1:0"];
    let kernel = Kernel::boot("waits", &args);
    let out = eventually("a cycle", || {
        Some(steady(&show(&kernel.socket, &["waits"]))).filter(|out| out.contains("cycle"))
    });
    let locks = "programs/cases/deadlock.rs";
    let serve = place_of("programs/serve.rs", "os.serve_until(");
    assert_eq!(
        out,
        format!(
            "task 1 \"echo\" waits for the first of: signals 2 \"SIGTERM\"; a member of group 4; readable device 1, since TIME\n\
             select at {serve}\n\
             task 2 \"deadlock\" waits for the end of task 3, since TIME\n\
             wait at {locks}:29\n\
             task 3 \"save\" waits for mutex 3, held by task 4, since TIME\n\
             lock at {locks}:42, spawned at {locks}:20\n\
             task 4 \"spend\" waits for mutex 1, held by task 3, since TIME\n\
             lock at {locks}:42, spawned at {locks}:28\n\
             cycle: 3 -> 4 -> 3\n\
             waits on a cycle: 2 -> 3\n"
        )
    );
    let why = show(&kernel.socket, &["why", "2"]);
    let lines: Vec<&str> = why.lines().collect();
    assert!(
        lines[0].starts_with("2 \"deadlock\" has waited ") && lines.len() == 4,
        "{why}"
    );
    assert!(
        lines[1].contains("s for mutex 3, held by task 4 (lock at "),
        "{why}"
    );
    assert_eq!(lines[3], "So they wait for one another: 3 -> 4 -> 3.");
    let json = show(&kernel.socket, &["waits", "--json"]);
    assert!(json.contains("{\"is\":\"cycle\",\"tids\":[3,4]}"), "{json}");
}

#[test]
fn why_leads_from_a_queue_to_the_task_that_got_the_job() {
    let kernel = Kernel::boot_at(place("pool"), rude(&[]), &["pools"]);
    let said = eventually("a deadlock", || {
        let (code, out, _) = ask(&kernel.socket, &["why", "5"]);
        (code == 0 && out.contains("So they wait")).then_some(out)
    });
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("5 \"session\" has waited "), "{said}");
    assert_eq!(
        lines[1],
        "No task has put a message into it lately. This task has put one into queue 3. \
         The last to get one from there was 2 \"worker\"."
    );
    assert_eq!(lines[4], "So they wait for one another: 2 -> 3 -> 2.");
    let out = show(&kernel.socket, &["why", "4"]);
    let end = "Only a recording links the ends of a connection: boot with --record FILE, and ask trace why.\n";
    assert!(out.ends_with(end), "{out}");
}

#[test]
fn where_follows_a_ring_of_waits_once_around() {
    let kernel = Kernel::boot_at(place("ring"), rude(&[]), &["rings", "--tasks", "2000"]);
    // They begin to wait for one another when all are there.
    let out = eventually("a ring", || {
        let (code, out, _) = ask(&kernel.socket, &["where", "2"]);
        (code == 0 && out.contains(": a cycle")).then_some(out)
    });
    let (first, rest) = out.split_once('\n').unwrap();
    begins(first, "task 2 \"waits\" waits for the end of task 3");
    assert_eq!(rest.matches(": a cycle").count(), 1);
    let mut tasks = rest.lines().filter(|line| line.contains("task "));
    let again = tasks.nth(1999).unwrap();
    assert_eq!(again.trim_start(), "task 2 \"waits\", again: a cycle");
}

#[test]
fn kill_ends_a_task_at_once() {
    let mut kernel = Kernel::echo("kill");
    let mut client = kernel.tcp();
    assert_eq!(show(&kernel.socket, &["kill", "2"]), "");
    assert_eq!(
        client.read(&mut [0]).unwrap(),
        0,
        "the connection is closed"
    );
    for (args, message) in [
        (["kill", "2"], "error: there is no live task 2\n"),
        (["where", "2"], "error: there is no live task 2\n"),
        (
            ["kill", "9223372036854775809"],
            "error: there is no live task 9223372036854775809\n",
        ),
    ] {
        let (code, out, err) = ask(&kernel.socket, &args);
        assert_eq!((code, &*out, &*err), (1, "", message), "{args:?}");
    }
    show(&kernel.socket, &["kill", "1"]);
    assert_eq!(kernel.end(), Some(0), "the monitor keeps no kernel alive");
    assert!(!kernel.socket.exists());
}

#[test]
fn a_taped_run_refuses_a_kill_that_its_tape_would_not_hold() {
    let files = place("taped");
    let tape = files.with_extension("tape");
    let args = ["--tape", text(&tape), "echo", "--addr", "127.0.0.1:0"];
    let mut kernel = Kernel::boot("kill-taped", &args);
    let client = kernel.tcp();
    let (code, out, err) = ask(&kernel.socket, &["kill", "2"]);
    let why = "error: the tape would not hold the kill: boot without --tape to kill tasks\n";
    assert_eq!((code, &*out, &*err), (1, "", why));
    echo(&client);
    kernel.signal(Signal::INT);
    assert_eq!(kernel.end(), Some(130));
    let (_, _, err) = run(&["replay", text(&tape)]);
    assert!(!err.contains("error:"), "{err}");
}

/// Starts a live trace, and waits until it has begun.
fn live(kernel: &Kernel, args: &[&str]) -> (Child, BufReader<impl Read + use<>>) {
    let mut command = trapline(&["trace", "live", "--attach", text(&kernel.socket)]);
    let mut child = command.args(args).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().expect("it is piped"));
    (child, out)
}

#[test]
fn trace_live_shows_the_lines_of_trace_to_the_very_end() {
    let socket = place("trace");
    let mut command = trapline(&["boot", "-q", "--trace", "--monitor", text(&socket)]);
    command.args(["echo", "--addr", "127.0.0.1:0"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    let stderr = child.stderr.take().unwrap();
    let all = thread::spawn(move || io::read_to_string(stderr).unwrap());
    let mut kernel = Kernel {
        child,
        socket,
        addr: first.split_whitespace().find_map(|word| word.parse().ok()),
        _lines: mpsc::channel().1,
    };
    let _before = kernel.tcp();
    let (mut viewer, mut lines) = live(&kernel, &["--task", "3"]);
    // A viewer that has begun shows the next line; until then nobody knows.
    let mut seen = String::new();
    let client = kernel.tcp();
    let (begun, begin) = mpsc::channel();
    let reader = thread::spawn(move || {
        lines.read_line(&mut seen).unwrap();
        begun.send(()).unwrap();
        lines.read_to_string(&mut seen).unwrap();
        seen
    });
    while begin.recv_timeout(Duration::from_millis(10)).is_err() {
        echo(&client);
    }
    drop(client);
    show(&kernel.socket, &["kill", "1"]);
    assert_eq!(kernel.end(), Some(0));
    assert_eq!(viewer.wait().unwrap().code(), Some(0));
    let seen = reader.join().unwrap();
    let all = all.join().unwrap();
    let of_task: String = all
        .lines()
        .filter(|line| line.split_whitespace().nth(1) == Some("3"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(of_task.ends_with(&seen), "{seen}\n--- of\n{of_task}");
    assert!(
        seen.contains("exited: done\n") && seen.ends_with("reaped\n"),
        "{seen}"
    );
    assert!(!all.contains("monitor"), "{all}");
}

#[test]
fn trace_live_filters_by_call_and_name() {
    let kernel = Kernel::boot(
        "filter",
        &[
            "--with",
            "alive --every 5ms",
            "echo",
            "--addr",
            "127.0.0.1:0",
        ],
    );
    let mut client = kernel.attach();
    client.say("{\"do\":\"trace\",\"calls\":[\"sleep\"]}\n");
    assert_eq!(client.hear()["is"], "tracing");
    for _ in 0..4 {
        let line = client.hear();
        let call = line["call"].as_str().unwrap_or_default();
        assert!(call.starts_with("sleep("), "{line}");
    }
    // Another request ends the trace.
    client.say("{\"do\":\"ps\"}\n");
    while client.hear()["is"] != "end" {}
    client.say("{\"do\":\"trace\",\"tasks\":[\"echo\"]}\n");
    assert_eq!(client.hear()["is"], "tracing");
    let _client = kernel.tcp();
    let line = client.hear();
    assert_eq!(
        (&line["comm"], &line["tid"]),
        (&"echo".into(), &1.into()),
        "{line}"
    );
    client.say("{\"do\":\"trace\",\"sched\":true,\"console\":true,\"tasks\":[\"2\"]}\n");
    while client.hear()["is"] != "tracing" {}
    let mut targets =
        [client.hear(), client.hear(), client.hear()].map(|line| line["target"].clone());
    targets.sort_by_key(ToString::to_string);
    assert!(targets.contains(&"trapline::sched".into()), "{targets:?}");
}

#[test]
fn what_is_printed_is_cut_where_it_is_long() {
    let kernel = Kernel::boot_at(place("flood"), rude(&[]), &["floods"]);
    let (mut viewer, mut lines) = live(&kernel, &["--console"]);
    let mut line = String::new();
    while !line.contains("console") {
        line.clear();
        assert!(
            lines.read_line(&mut line).unwrap() > 0,
            "the viewer has ended"
        );
    }
    assert!(line.len() < 40_000, "{} bytes", line.len());
    assert!(line.contains("flood flood") && line.ends_with(" bytes)\n"));
    let _ = viewer.kill();
    let _ = viewer.wait();
}

#[test]
fn a_slow_reader_loses_events_and_is_told_how_many() {
    const ROUNDS: u64 = 12_000;
    let kernel = Kernel::echo("slow");
    let client = kernel.tcp();
    let mut reader = kernel.attach();
    reader.say("{\"do\":\"trace\",\"calls\":[\"send\"]}\n");
    assert_eq!(reader.hear()["is"], "tracing");
    for _ in 0..ROUNDS {
        echo(&client);
    }
    let (mut events, mut lost) = (0, 0);
    while events + lost < ROUNDS {
        let line = reader.hear();
        match line["is"].as_str() {
            Some("event") => events += 1,
            Some("lost") => lost += line["count"].as_u64().unwrap(),
            _ => panic!("{line}"),
        }
    }
    assert_eq!(events + lost, ROUNDS);
    assert!(events > 1000 && lost > 1000, "{events} {lost}");
}

// ---- what it does not change

#[test]
fn dump_writes_the_last_events_of_a_kernel_that_runs_on() {
    let files = place("files");
    let (end, now) = (files.with_extension("end"), files.with_extension("now"));
    let last = ["--record", text(&end), "--record-last", "100"];
    let echo_at = ["echo", "--addr", "127.0.0.1:0"];
    let kernel = Kernel::boot("dump", &[&last[..], &echo_at].concat());
    let client = kernel.tcp();
    for _ in 0..500 {
        echo(&client);
    }
    let dump = ["trace", "dump", "-o", text(&now)];
    let (code, out, err) = ask(&kernel.socket, &dump);
    let written = format!("written to {}\n", now.display());
    assert_eq!((code, &*out, &*err), (0, "", &*written));
    let mode = fs::metadata(&now).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for its owner alone");
    let events = trapline::record::Recording::open(&now).unwrap();
    let events: Vec<_> = events.collect::<Result<_, _>>().unwrap();
    let lately = events.iter().filter(|event| event.at > Duration::ZERO);
    assert!((100..110).contains(&events.len()), "{}", events.len());
    assert!(lately.count() >= 100);
    let (code, shown, err) = run(&["trace", "ps", text(&now)]);
    assert_eq!(code, 0);
    assert!(err.contains(" events missing: "), "{err}");
    assert!(shown.contains(" client  "), "{shown}");
    // It is not replaced.
    let (code, out, err) = ask(&kernel.socket, &dump);
    assert_eq!((code, &*out), (1, ""));
    has(&err, "it exists already: give another file");
    let piped = trapline(&["trace", "dump", "-o", "-", "--attach"])
        .arg(&*kernel.socket)
        .output();
    assert!(
        piped
            .unwrap()
            .stdout
            .starts_with(&fs::read(&now).unwrap()[..8])
    );
    // The run goes on, and its own recording has no event yet.
    echo(&client);
    let own = trapline::record::Recording::open(&end).unwrap();
    assert_eq!(own.filter(Result::is_ok).count(), 0);
}

#[test]
fn dump_leaves_no_file_before_the_kernel_answers() {
    let socket = place("mute");
    let now = socket.with_extension("now");
    let listener = UnixListener::bind(&*socket).unwrap();
    let dump = ["trace", "dump", "-o", text(&now), "--attach", text(&socket)];
    let mut child = trapline(&dump).spawn().unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut request = String::new();
    BufReader::new(&stream).read_line(&mut request).unwrap();
    let exists = now.exists();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!exists && !now.exists(), "{request}");
}

#[test]
fn an_interrupted_dump_removes_the_part_that_it_has_written() {
    let socket = place("slow");
    let now = socket.with_extension("now");
    let listener = UnixListener::bind(&*socket).unwrap();
    let dump = ["trace", "dump", "-o", text(&now), "--attach", text(&socket)];
    let running = Running::with_stderr(&dump);
    let (mut stream, _) = listener.accept().unwrap();
    stream
        .write_all(b"{\"is\":\"piece\",\"base64\":\"AAAA\"}\n")
        .unwrap();
    eventually("the part", || {
        fs::metadata(&now).ok().filter(|found| found.len() > 0)
    });
    running.signal(Signal::INT);
    let (code, err) = running.end();
    let why = format!(
        "error: interrupted: the part of the recording in {} is removed\n",
        now.display()
    );
    assert_eq!((code, err), (Some(130), why));
    assert!(!now.exists());
}

#[test]
fn dump_says_what_a_kernel_without_last_events_needs() {
    let files = place("undumped");
    let now = files.with_extension("now");
    let dump = ["trace", "dump", "-o", text(&now)];
    let kernel = Kernel::echo("unrecorded");
    let (code, out, err) = ask(&kernel.socket, &dump);
    let expected =
        "error: the kernel keeps no events: boot it with --record FILE --record-last N\n";
    assert_eq!((code, &*out, &*err), (1, "", expected));
    assert!(!now.exists(), "nothing is left");
    let all = files.with_extension("all");
    let args = ["--record", text(&all), "echo", "--addr", "127.0.0.1:0"];
    let kernel = Kernel::boot("recorded", &args);
    let (code, _, err) = ask(&kernel.socket, &dump);
    let expected = "error: the kernel records all events to a file: \
                    read that, or boot with --record-last N\n";
    assert_eq!((code, &*err), (1, expected));
    let nowhere = ["trace", "dump", "-o", "/nowhere/now.trap"];
    let (code, _, err) = ask(&kernel.socket, &nowhere);
    assert_eq!(code, 1);
    begins(&err, "error: cannot write /nowhere/now.trap: ");
}

#[test]
fn a_monitor_hides_no_deadlock_and_changes_no_run() {
    let socket = place("deadlock");
    let run = |monitor: bool, args: &[&str]| {
        let mut command = trapline(&["boot", "-q", "--seed", "1"]);
        if monitor {
            command.args(["--monitor", text(&socket)]);
        }
        let output = command.args(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let asleep = ["alive", "--every", "1000years"];
    let (code, _, err) = run(true, &asleep);
    assert_eq!(code, Some(3), "{err}");
    for args in [
        &asleep[..],
        &["wait"],
        &["--max-tasks", "2", "wait"],
        &["--trace", "tids"],
        &["--summary", "tids"],
    ] {
        let (code, out, err) = run(true, args);
        let other = run(false, args);
        assert_eq!((code, out), (other.0, other.1));
        let without_times = |text: &str| {
            // The shares of the time are measured, too.
            let lines = text.lines().filter(|line| !line.contains(" %, kernel "));
            let words = |line: &str| {
                let words = line.split_whitespace();
                let words = words.filter(|word| !word.contains('.'));
                words.collect::<Vec<_>>().join(" ")
            };
            let mut lines: Vec<_> = lines.map(words).collect();
            if args.contains(&"--summary") {
                // Its rows are sorted by their times.
                lines.sort();
            }
            lines
        };
        assert_eq!(without_times(&err), without_times(&other.2));
    }
    assert!(!socket.exists());
}
