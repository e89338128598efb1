//! Looking at a kernel that already runs: the built binary, its monitor's socket, and the commands
//! that attach to it.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    ops::Deref,
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
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
         1 echo 0 blocked device 1 (read), TIME TIME 4\n\
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
        "1 echo: waits for device 1 (read), TIME, since TIME\n\
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
        "1 echo: waits for device 1 (read), TIME, since TIME\n\
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
    assert!(
        err.contains("possible values: tid, name, state, since, traps"),
        "{err}"
    );
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
    assert!(first.ends_with(" s), parent 1, 3 traps"), "{out}");
    assert_eq!(
        places,
        format!(
            "recv at {}, spawned at {}",
            place_of("programs/echo.rs", "client.recv("),
            place_of("programs/echo.rs", "os.spawn_detached("),
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
    let accept = place_of("programs/serve.rs", "listener.accept(os)");
    assert_eq!(
        out,
        format!(
            "task 1 \"echo\" waits for device 1 (read), TIME, since TIME\n\
             accept at {accept}\n\
             task 2 \"deadlock\" waits for the end of task 3, since TIME\n\
             wait at {locks}:28\n\
             task 3 \"save\" waits for mutex 2, held by task 4, since TIME\n\
             lock at {locks}:41, spawned at {locks}:19\n\
             task 4 \"spend\" waits for mutex 1, held by task 3, since TIME\n\
             lock at {locks}:41, spawned at {locks}:27\n\
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
        lines[1].contains(" s for mutex 2, held by task 4 (lock at "),
        "{why}"
    );
    assert_eq!(lines[3], "So they wait for one another: 3 -> 4 -> 3.");
    let json = show(&kernel.socket, &["waits", "--json"]);
    assert!(json.contains("{\"is\":\"cycle\",\"tids\":[3,4]}"), "{json}");
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
    assert!(
        first.starts_with("task 2 \"waits\" waits for the end of task 3"),
        "{first}"
    );
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
    // The other client's task is still there.
    show(&kernel.socket, &["kill", "2"]);
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
    client.say("{\"do\":\"trace\",\"comms\":[\"echo\"]}\n");
    assert_eq!(client.hear()["is"], "tracing");
    let _client = kernel.tcp();
    let line = client.hear();
    assert_eq!(
        (&line["comm"], &line["tid"]),
        (&"echo".into(), &1.into()),
        "{line}"
    );
    client.say("{\"do\":\"trace\",\"sched\":true,\"console\":true,\"tids\":[2]}\n");
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

// ---- clients without manners

#[test]
fn requests_that_are_none_are_answered_and_no_more() {
    let kernel = Kernel::echo("garbage");
    let mut client = kernel.attach();
    for request in [
        "hello",
        "{\"do\":\"dance\"}",
        "{\"do\":\"kill\"}",
        "{\"do\":\"kill\",\"tid\":-1}",
        "{\"do\":\"ps\",\"loudly\":true}",
        "{\"do\":\"trace\",\"tasks\":[]}",
        "[[[[[[[[[[",
        "\0\u{1}\u{202e}",
    ] {
        let message = client.error(request);
        assert!(message.starts_with("this is no request: "), "{message}");
    }
    client.say(b"\xff\xfe\n\n\r\n");
    assert_eq!(client.hear()["is"], "error");
    for byte in b"{\"do\":\"ps\"" {
        client.say([*byte]);
    }
    assert_eq!(client.ask("}").len(), 2, "one that comes in parts is one");
    // Several at once are answered in turn.
    client.say("{\"do\":\"ps\"}\n".repeat(20));
    for _ in 0..20 {
        assert_eq!(client.hear()["tid"], 1);
        assert_eq!(client.hear()["is"], "end");
    }
}

/// However much is asked, a moment goes by after each answer.
#[test]
fn a_flood_of_requests_waits_for_its_turn() {
    for request in [
        "{\"do\":\"where\",\"tid\":99}\n",
        "{\"do\":\"kill\",\"tid\":99}\n",
        "nonsense\n",
    ] {
        let kernel = Kernel::echo("requests");
        let mut client = kernel.attach();
        let began = Instant::now();
        client.say(request.repeat(50));
        for _ in 0..50 {
            assert_eq!(client.hear()["is"], "error");
        }
        assert!(began.elapsed() >= Duration::from_millis(49), "{request}");
    }
}

#[test]
fn a_request_without_end_is_not_kept() {
    let kernel = Kernel::echo("long");
    let mut client = kernel.attach();
    // The other end closes before it has read everything.
    let _ = client.0.get_mut().write_all(&[b'x'; 1 << 20]);
    let rest = client.rest();
    assert!(
        rest.is_empty() || rest.contains("at most 4096 bytes"),
        "{rest}"
    );
    assert_eq!(kernel.attach().ask("{\"do\":\"ps\"}").len(), 2);
}

#[test]
fn clients_that_are_silent_vanish_or_do_not_read_disturb_nobody() {
    let mut kernel = Kernel::echo("rude");
    let client = kernel.tcp();
    let silent: Vec<_> = (0..10).map(|_| kernel.attach()).collect();
    for round in 0..50 {
        let mut vanishing = kernel.attach();
        let request = if round % 2 == 0 {
            "{\"do\":\"ps\"}\n"
        } else {
            "{\"do\":\"trace\"}\n"
        };
        vanishing.say(request);
    }
    let unread: Vec<_> = (0..5)
        .map(|_| {
            let mut unread = kernel.attach();
            unread.say("{\"do\":\"trace\",\"sched\":true}\n");
            // More answers than any buffer holds.
            let _ = unread.0.get_ref().set_nonblocking(true);
            let _ = unread
                .0
                .get_mut()
                .write_all("{\"do\":\"ps\"}\n".repeat(10_000).as_bytes());
            unread
        })
        .collect();
    for _ in 0..1000 {
        echo(&client);
    }
    let out = show(&kernel.socket, &["ps"]);
    assert_eq!(out.lines().count(), 3, "{out}");
    drop((silent, unread));
    assert_eq!(show(&kernel.socket, &["kill", "1"]), "");
    assert_eq!(show(&kernel.socket, &["kill", "2"]), "");
    assert_eq!(kernel.end(), Some(0));
}

#[test]
fn there_is_a_limit_on_clients_and_room_again_when_one_goes() {
    let kernel = Kernel::echo("crowd");
    let mut crowd: Vec<_> = (0..64).map(|_| kernel.attach()).collect();
    for client in &mut crowd {
        assert_eq!(client.ask("{\"do\":\"ps\"}").len(), 2);
    }
    let end = &crowd[0].ask("{\"do\":\"ps\"}")[1];
    assert_eq!(
        end["pause"], 0.064,
        "the more there are, the longer all wait"
    );
    let refused = kernel.attach().rest();
    assert!(refused.contains("there are too many clients"), "{refused}");
    let (code, _, err) = ask(&kernel.socket, &["ps"]);
    assert_eq!((code, &*err), (1, "error: there are too many clients\n"));
    crowd.pop();
    // The kernel hears of that in its own time.
    assert!((0..1000).any(|_| ask(&kernel.socket, &["ps"]).0 == 0));
}

#[test]
fn clients_that_are_gone_are_not_waited_for() {
    let tasks = ["rings", "--tasks", "5000"];
    let kernel = Kernel::boot_at(place("poll"), rude(&[]), &tasks);
    let began = Instant::now();
    for _ in 0..40 {
        let answers = kernel.attach().ask("{\"do\":\"top\",\"most\":1}");
        let end = answers.last().expect("it has an end");
        assert_eq!(end["is"], "end", "{end}");
        let pause = end["pause"].as_f64().expect("it says how long");
        assert!(pause < 0.5, "{end}");
    }
    // Who comes anew does not get around the wait.
    let took = began.elapsed();
    assert!(took > Duration::from_millis(500), "{took:?}");
    let mut both = kernel.attach();
    both.say("{\"do\":\"top\",\"most\":1}\n".repeat(2));
    both.0.get_ref().shutdown(Shutdown::Write).unwrap();
    let rest = both.rest();
    assert_eq!(rest.matches("\"end\"").count(), 2, "{rest}");
}

/// The end of a kernel has half a second for all that do not read.
#[test]
fn the_end_does_not_wait_for_each_client_that_does_not_read() {
    let mut kernel = Kernel::boot_at(place("stalled"), rude(&[]), &["floods"]);
    let stalled: Vec<_> = (0..10)
        .map(|_| {
            let mut client = kernel.attach();
            client.say("{\"do\":\"trace\",\"sched\":true,\"console\":true}\n");
            assert_eq!(client.hear()["is"], "tracing");
            client
        })
        .collect();
    // Each has more to read than any buffer holds.
    let mut reader = kernel.attach();
    reader.say("{\"do\":\"trace\",\"console\":true}\n");
    for _ in 0..50 {
        reader.hear();
    }
    drop(reader);
    let began = Instant::now();
    kernel.signal(Signal::INT);
    assert_eq!(kernel.end(), Some(130));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    drop(stalled);
}

// ---- the socket

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_kernel() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut kernel = Kernel::echo("owner");
        let file = fs::metadata(&*kernel.socket).unwrap();
        assert!(file.file_type().is_socket());
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        kernel.signal(signal);
        assert_eq!(kernel.end(), Some(code));
        assert!(!kernel.socket.exists());
    }
}

#[test]
fn a_stale_socket_is_replaced_and_nothing_else_is() {
    let socket = place("stale");
    drop(UnixListener::bind(&*socket).unwrap());
    let echo = ["echo", "--addr", "127.0.0.1:0"];
    let kernel = Kernel::boot_at(socket, trapline(&[]), &echo);
    assert_eq!(kernel.attach().ask("{\"do\":\"ps\"}").len(), 2);
    let boot = |path: &Path| {
        let mut command = trapline(&["boot", "-q", "--monitor", text(path), "parts"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(output.stdout, b"", "nothing has run");
        String::from_utf8(output.stderr).unwrap()
    };
    let err = boot(&kernel.socket);
    assert!(err.contains("a kernel listens there already"), "{err}");
    assert_eq!(kernel.attach().ask("{\"do\":\"ps\"}").len(), 2);
    let file = place("file");
    fs::write(&*file, "precious").unwrap();
    let err = boot(&file);
    assert!(err.contains("it is no socket"), "{err}");
    assert_eq!(fs::read(&*file).unwrap(), b"precious");
    let err = boot(Path::new("/no/such/directory/socket"));
    assert!(err.contains("No such file or directory"), "{err}");
    let err = boot(&place(&"long".repeat(50)));
    assert!(err.contains("cannot listen on"), "{err}");
}

#[test]
fn a_lock_decides_between_kernels_that_find_a_stale_socket() {
    use rustix::fs::{FlockOperation, flock};

    // Another kernel has it, and has not replaced the socket yet.
    let socket = place("contended");
    drop(UnixListener::bind(&*socket).unwrap());
    let lock = socket.with_extension("lock");
    let file = fs::File::create(&lock).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let boot = || {
        let args = ["boot", "-q", "--monitor", text(&socket), "parts"];
        trapline(&args).output().unwrap()
    };
    let output = boot();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("a kernel listens there already"), "{err}");
    assert!(socket.exists() && lock.exists());
    // That kernel was killed: its lock is free, and goes with the next one.
    drop(file);
    assert_eq!(boot().status.code(), Some(0));
    assert!(!socket.exists() && !lock.exists());
}

#[test]
fn a_socket_that_somebody_else_has_put_there_stays() {
    let mut kernel = Kernel::echo("taken");
    fs::remove_file(&*kernel.socket).unwrap();
    let _other = UnixListener::bind(&*kernel.socket).unwrap();
    kernel.signal(Signal::INT);
    assert_eq!(kernel.end(), Some(130));
    assert!(kernel.socket.exists());
}

#[test]
fn what_cannot_be_attached_to_is_said() {
    let nothing = place("nothing");
    let file = place("plain");
    fs::write(&*file, "").unwrap();
    let stale = place("dead");
    drop(UnixListener::bind(&*stale).unwrap());
    for (path, why) in [
        (&nothing, "there is no such socket: boot with --monitor"),
        (
            &file,
            "no kernel listens there: it has ended, or the file is no socket",
        ),
        (
            &stale,
            "no kernel listens there: it has ended, or the file is no socket",
        ),
    ] {
        let (code, out, err) = ask(path, &["ps"]);
        assert_eq!((code, &*out), (1, ""));
        let expected = format!("error: cannot attach to {}: {why}\n", path.display());
        assert_eq!(err, expected);
    }
    let stranger = place("stranger");
    let listener = UnixListener::bind(&*stranger).unwrap();
    thread::spawn(move || {
        listener
            .accept()
            .unwrap()
            .0
            .write_all(b"220 hello\r\n")
            .unwrap();
    });
    let (code, _, err) = ask(&stranger, &["ps"]);
    assert_eq!(
        (code, &*err),
        (1, "error: the server there is no monitor of a kernel\n")
    );
    let boot = trapline(&["boot", "--virtual", "--monitor", text(&nothing), "parts"]).output();
    let boot = boot.unwrap();
    assert_eq!(boot.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&boot.stderr).contains("cannot be used with"));
}

// ---- what it does not change

/// A socket at which something answers a request with these lines, as a monitor would.
fn impostor(test: &str, lines: impl IntoIterator<Item = String> + Send + 'static) -> Place {
    let socket = place(test);
    let listener = UnixListener::bind(&*socket).unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        BufReader::new(&stream).read_line(&mut String::new())?;
        // A client that has read enough hangs up.
        let mut out = io::BufWriter::new(&stream);
        lines
            .into_iter()
            .try_for_each(|line| writeln!(out, "{line}"))
    });
    socket
}

const HOSTILE: &str = r#"{"is":"task","tid":2,"comm":"a\u001b[31m\u202e","parent":3,"state":"blocked","blocked_on":"b\u001b]0;c\u0007","since":1,"traps":0}"#;

#[test]
fn what_a_hostile_socket_answers_is_cleaned() {
    let parent = HOSTILE
        .replace("\"tid\":2", "\"tid\":3")
        .replace("parent\":3", "parent\":2");
    let end = r#"{"is":"end","at":2,"tasks":2,"ready":0,"blocked":2,"zombies":0}"#;
    let error = r#"{"is":"error","message":"\u001b[2Jgone\u009b\u202e"}"#;
    let trap = r#"{"is":"trap","at":1,"tid":2,"comm":"\u009b","message":["\u009b31m\u202e"]}"#;
    for (command, json) in [
        (&["ps"][..], false),
        (&["tree"], false),
        (&["where", "2"], false),
        (&["ps", "--json"], true),
    ] {
        let raw = format!("{} ", HOSTILE.replace("\\u202e", "\u{202e}\u{9b}"));
        let lines = [raw, parent.clone(), trap.into(), end.into()];
        let socket = impostor("hostile", lines);
        let out = show(&socket, command);
        let plain = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
        assert!(out.chars().all(plain), "{command:?}: {out:?}");
        assert!(
            out.contains(if json { "\\u202e\\u009b" } else { "\\u{202e}" }),
            "{out}"
        );
    }
    let (code, out, err) = ask(&impostor("hostile", [error.into()]), &["ps"]);
    let expected = "error: \\u{1b}[2Jgone\\u{9b}\\u{202e}\n";
    assert_eq!((code, &*out, &*err), (1, "", expected));
}

#[test]
fn an_answer_without_end_is_not_kept() {
    let row = HOSTILE.replace("\"a", &format!("\"{}", "a".repeat(1 << 19)));
    let endless = std::iter::repeat_with(move || row.clone());
    let (code, out, err) = ask(&impostor("endless", endless), &["ps"]);
    let expected = "error: the answer is over 64 MiB: --json shows it as it comes\n";
    assert_eq!((code, &*out, &*err), (1, "", expected));
}

#[test]
fn a_table_of_many_tasks_ends_with_their_number() {
    let row = |tid| {
        format!(r#"{{"is":"task","tid":{tid},"comm":"t","parent":0,"state":"ready","traps":0}}"#)
    };
    let end = r#"{"is":"end","at":2,"tasks":2,"ready":0,"blocked":2,"zombies":0}"#;
    let lines = (1..=10_003).map(row).chain([end.into()]);
    let out = show(&impostor("many", lines), &["ps"]);
    assert!(out.ends_with("\nand 3 more tasks: --json lists all\n"));
    assert_eq!(out.lines().count(), 1 + 10_000 + 1);
}

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
    assert!(
        err.contains("it exists already: give another file"),
        "{err}"
    );
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
    assert!(
        err.starts_with("error: cannot write /nowhere/now.trap: "),
        "{err}"
    );
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
