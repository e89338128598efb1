//! The servers among the programs, as their clients meet them: the built binary, and real sockets.

mod ask;
mod drain;
mod httpd;
mod kv;

use std::{
    collections::HashSet,
    io::{self, BufRead, BufReader, Read, Write},
    iter,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use socket2::{Domain, SockRef, Socket, Type};

use crate::support::{PATIENCE, free_addr, trapline};

// ---- tools

/// A server that runs until it is dropped.
struct Server {
    child: Child,
    addr: SocketAddr,
    /// What it prints after its first line.
    lines: Receiver<String>,
    /// What it warns of, for the case that the test fails.
    warnings: Option<JoinHandle<String>>,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        Self::run(trapline(&[&["boot", "-q"], args].concat()))
    }

    /// Starts it with so many descriptors.
    fn with_descriptors(limit: u32, args: &[&str]) -> Self {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$0\" boot -q \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_trapline")]);
        command.args(args);
        Self::run(command)
    }

    fn run(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let err = child.stderr.take().expect("it is piped");
        let warnings = thread::spawn(|| io::read_to_string(err).unwrap_or_default());
        let mut out = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let addr = out.by_ref().map_while(Result::ok).find_map(|line| {
            let mut words = line.split([' ', '/', ',']);
            words.find_map(|word| word.parse().ok())
        });
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            out.map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self {
            child,
            addr: addr.expect("it says where it listens"),
            lines,
            warnings: Some(warnings),
        }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.addr).expect("it accepts");
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    /// The answer to what is sent on a connection of its own, which the server must end.
    fn ask(&self, request: &str) -> String {
        let mut client = self.connect();
        client.write_all(request.as_bytes()).unwrap();
        String::from_utf8_lossy(&rest(&mut client)).into_owned()
    }

    /// Waits for a line that contains this.
    fn says(&self, text: &str) {
        let line = || self.lines.recv_timeout(PATIENCE);
        while !line().expect("it goes on").contains(text) {}
    }

    /// Ends it as a user does, and checks that it was alive and well.
    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(130));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It fails if the server has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let warnings = self
            .warnings
            .take()
            .and_then(|warnings| warnings.join().ok());
        if thread::panicking() {
            eprintln!("{}", warnings.unwrap_or_default());
        }
    }
}

fn rest(client: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("it ends in order");
    all
}

/// Ends a connection as a crash would.
fn reset(client: TcpStream) {
    SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(client);
}

/// Whether the other end has ended the connection, one way or the other.
fn is_over(result: io::Result<usize>) -> bool {
    match result {
        Ok(n) => n == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    // No buffer is that long, so bytes that are lost or come twice are noticed.
    const PERIOD: usize = 65_537;
    let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
    let period: Vec<u8> = (seed..seed + PERIOD.min(len)).map(byte).collect();
    let mut all = period.repeat(len.div_ceil(PERIOD));
    all.truncate(len);
    all
}

fn allow_descriptors(n: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < n) {
        let maximum = limit.maximum;
        let current = Some(maximum.map_or(n, |maximum| maximum.min(n)));
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("it may be raised");
    }
}

// ---- proxy

/// A server that does the same with each of its clients, and a proxy to it.
fn behind_proxy(args: &[&str], serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(client));
        }
    });
    let own = ["proxy", "--listen", "127.0.0.1:0", "--to", &to];
    Server::start(&[&own, args].concat())
}

#[test]
fn proxy_passes_everything_on_and_the_end_of_each_direction() {
    // The answer begins when the question has ended, and the question when the answer's first part
    // has come: neither is possible if an end is passed on wrongly, or to both sides.
    let proxy = behind_proxy(&[], |mut client| {
        client.write_all(&bytes(3_000_000, 1)).unwrap();
        let question = rest(&mut client);
        assert!(question == bytes(5_000_000, 2));
        client.write_all(&question).unwrap();
    });
    let mut client = proxy.connect();
    let mut first = vec![0; 3_000_000];
    client.read_exact(&mut first).unwrap();
    assert!(first == bytes(3_000_000, 1));
    client.write_all(&bytes(5_000_000, 2)).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(rest(&mut client) == bytes(5_000_000, 2));
    proxy.says(&format!(
        "Connection of {} ended",
        client.local_addr().unwrap()
    ));

    // The other way round.
    let proxy = behind_proxy(&[], |mut client| {
        client.shutdown(Shutdown::Write).unwrap();
        assert!(rest(&mut client) == bytes(1_000_000, 3));
        reset(client);
    });
    let mut client = proxy.connect();
    assert_eq!(rest(&mut client), b"");
    client.write_all(&bytes(1_000_000, 3)).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    proxy.says("Connection of");
    proxy.end();
}

#[test]
fn proxy_ends_both_directions_when_one_fails() {
    let (sender, ended) = mpsc::channel();
    let proxy = behind_proxy(&[], move |mut server| {
        let mut order = [0];
        server.read_exact(&mut order).unwrap();
        if order == *b"r" {
            reset(server);
        } else {
            server.write_all(b"!").unwrap();
            sender.send(is_over(server.read(&mut order))).unwrap();
        }
    });
    let mut client = proxy.connect();
    client.write_all(b"r").unwrap();
    assert!(is_over(client.read(&mut [0])));
    proxy.says("lost: failed: Connection reset");

    let mut client = proxy.connect();
    client.write_all(b"w").unwrap();
    client.read_exact(&mut [0]).unwrap();
    reset(client);
    assert!(ended.recv().unwrap());
    proxy.says("lost: failed: Connection reset");
    proxy.end();
}

#[test]
fn proxy_says_that_it_cannot_connect_and_goes_on() {
    let to = free_addr();
    let proxy = Server::start(&["proxy", "--addr", "127.0.0.1:0", "--to", &to.to_string()]);
    for _ in 0..3 {
        let mut client = proxy.connect();
        assert!(is_over(client.read(&mut [0])));
        proxy.says(&format!("cannot connect to {to}: Connection refused"));
    }
    proxy.end();
}

#[test]
fn proxy_survives_clients_that_vanish() {
    allow_descriptors(8192);
    let proxy = behind_proxy(&[], |mut server| {
        // Clients that vanish are an error here.
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = server.read(&mut buf) {
            if server.write_all(&buf[..n]).is_err() {
                break;
            }
        }
    });
    let mut clients: Vec<_> = (0..500).map(|_| proxy.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.write_all(&bytes(n * 10, n)).unwrap();
    }
    for (n, mut client) in clients.into_iter().enumerate() {
        match n % 4 {
            0 => reset(client),
            1 => drop(client),
            _ => {
                client.shutdown(Shutdown::Write).unwrap();
                assert!(rest(&mut client) == bytes(n * 10, n), "client {n}");
            }
        }
    }
    proxy.end();
}

#[test]
fn proxy_notices_a_reset_after_the_end_of_the_stream() {
    // Neither end has anything more to say, so that only the reset can end the connection.
    let (sender, ended) = mpsc::channel();
    let to_client = behind_proxy(&[], move |mut server| {
        assert_eq!(rest(&mut server), b"");
        sender.send(server).unwrap();
    });
    let client = to_client.connect();
    client.shutdown(Shutdown::Write).unwrap();
    let _server = ended.recv_timeout(PATIENCE).unwrap();
    reset(client);

    // The other way round.
    let (sender, orders) = mpsc::channel();
    let orders = Arc::new(Mutex::new(orders));
    let to_server = behind_proxy(&[], move |server| {
        server.shutdown(Shutdown::Write).unwrap();
        orders.lock().unwrap().recv().unwrap();
        reset(server);
    });
    let mut client = to_server.connect();
    assert_eq!(rest(&mut client), b"");
    sender.send(()).unwrap();

    // Each checks its half every second.
    for proxy in [to_client, to_server] {
        proxy.says("lost: failed: ");
        proxy.end();
    }
}

#[test]
fn proxy_lets_clients_go_that_reset_while_it_connects() {
    // A listener whose queue is full answers no more.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    full.listen(0).unwrap();
    let to = full.local_addr().unwrap().as_socket().unwrap();
    let _first = TcpStream::connect(to).unwrap();
    let to = to.to_string();
    let args = [
        "proxy",
        "--listen",
        "127.0.0.1:0",
        "--connect-timeout",
        "1h",
        "--to",
        &to,
    ];
    let proxy = Server::start(&args);
    let client = proxy.connect();
    reset(client);
    proxy.says(&format!(
        "lost: while connecting to {to}: failed: Connection reset"
    ));
    proxy.end();
}

#[test]
fn proxy_refuses_to_be_its_own_server() {
    let port = free_addr().port();
    for (listen, to) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "0.0.0.0"),
        ("0.0.0.0", "127.0.0.1"),
        ("0.0.0.0", "[::ffff:127.0.0.1]"),
    ] {
        let (listen, to) = (format!("{listen}:{port}"), format!("{to}:{port}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
        let output = command.args(["boot", "-q", "proxy", "--listen", &listen, "--to", &to]);
        let output = output.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{listen} {to}: {err}");
        assert!(
            err.contains("is the proxy's own address"),
            "{listen} {to}: {err}"
        );
    }
    // Another address of the same port is another server.
    let args = ["proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1"];
    Server::start(&args).end();
}

// ---- echo

#[test]
fn echo_sends_its_prefix_and_the_data_in_one_piece() {
    for way in [[].as_slice(), &["--ready"]] {
        let args = ["echo", "--addr", "127.0.0.1:0", "--prefix", "Got:"];
        let server = Server::start(&[&args, way].concat());
        let mut client = server.connect();
        for _ in 0..200 {
            client.write_all(b"hello").unwrap();
            let mut buf = [0; 100];
            let n = client.read(&mut buf).unwrap();
            assert_eq!(&buf[..n], b"Got:hello", "{way:?}");
        }
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut client), b"");
        server.says("Connection closed");
        server.end();
    }
}

#[test]
fn echo_with_readiness_serves_clients_at_the_same_time() {
    let server = Server::start(&["echo", "--ready", "--addr", "127.0.0.1:0"]);
    let mut clients: Vec<_> = (0..50).map(|_| server.connect()).collect();
    let mut senders = Vec::new();
    for (n, client) in clients.iter().enumerate() {
        let mut client = client.try_clone().unwrap();
        senders.push(thread::spawn(move || {
            // More than the buffers of a connection have room for.
            client.write_all(&bytes(300_000, n)).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        }));
    }
    for (n, client) in clients.iter_mut().enumerate() {
        assert!(rest(client) == bytes(300_000, n), "client {n}");
    }
    for sender in senders {
        sender.join().unwrap();
    }
    server.end();
}

#[test]
fn echo_with_blocking_sockets_freezes_every_task_and_says_so() {
    let alive = ["--with", "alive --every 0s"];
    let args = [
        "echo",
        "--blocking",
        "--prefix",
        "Got:",
        "--addr",
        "127.0.0.1:0",
    ];
    let server = Server::start(&[&alive[..], &args].concat());
    server.says("Every task freezes until a client connects");
    // `alive` has a last turn. It would have thousands if it were not frozen.
    let alive = |_| server.lines.recv_timeout(Duration::from_millis(200)).ok();
    assert!((0..100).map_while(alive).count() <= 1);
    // A client that comes and sends is answered, and the others go on for a moment.
    let mut client = server.connect();
    server.says("I'm alive");
    client.write_all(b"hello").unwrap();
    let mut buf = [0; 9];
    client.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"Got:hello");
    // Now the server waits for another client, and this one is not served until then.
    server.says("Every task freezes until");
    client.write_all(b"again").unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let silence = client.read(&mut buf).expect_err("it is frozen");
    assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
    let _other = server.connect();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"Got:again");
}

#[test]
fn sockets_of_a_programs_own_need_the_real_world() {
    for option in ["--ready", "--blocking"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
        let output = command.args(["boot", "-q", "--virtual", "echo", option]);
        let output = output.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{option}: {err}");
        let advice = "the simulated world has no descriptors: run it in the real one\n";
        assert!(err.ends_with(advice), "{option}: {err}");
    }
}

// ---- chat

struct Talker {
    client: TcpStream,
    lines: BufReader<TcpStream>,
}

impl Talker {
    /// More lines than the connection and the queue of a narrow talker have room for.
    const MANY: usize = 1000;

    fn new(server: &Server, name: &str) -> Self {
        Self::at(server.connect(), name)
    }

    /// One who is in the room, and whose connection has room for few lines.
    fn narrow(server: &Server, name: &str) -> Self {
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // The server's buffer is as small as the segments are.
        client.set_tcp_mss(1000).unwrap();
        client.set_recv_buffer_size(10_000).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.connect(&server.addr.into()).unwrap();
        let mut talker = Self::at(client.into(), name);
        talker.hears(&format!("* {name} joins"));
        talker
    }

    fn at(client: TcpStream, name: &str) -> Self {
        let lines = BufReader::new(client.try_clone().unwrap());
        let mut talker = Self { client, lines };
        talker.hears("* your name?");
        talker.says(name);
        talker
    }

    /// One who is in the room.
    fn inside(server: &Server, name: &str) -> Self {
        let mut talker = Self::new(server, name);
        talker.hears(&format!("* {name} joins"));
        talker
    }

    fn says(&mut self, line: &str) {
        self.client
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    fn hears(&mut self, line: &str) {
        assert_eq!(self.line().trim_end_matches('\n'), line);
    }
}

#[test]
fn chat_passes_lines_to_everybody() {
    let server = Server::start(&["chat", "--addr", "127.0.0.1:0"]);
    let mut ann = Talker::inside(&server, "ann");
    let mut bob = Talker::new(&server, "ann");
    bob.hears("* ann is here already: your name?");
    for bad in ["", "a b", "<script>", "\u{1b}[2J", &"x".repeat(21)] {
        bob.says(bad);
        bob.hears("* a name has 1 to 20 letters, digits, - or _: your name?");
    }
    bob.says("bob\r");
    for talker in [&mut ann, &mut bob] {
        talker.hears("* bob joins");
    }
    bob.says("hello\r\n\n  \nthere \u{7}\u{1b}[1m\u{202e}\u{2068}ä\u{2028}\u{200f}");
    // What is not shown keeps nothing from being a command.
    ann.says("\u{2067}\u{1b} /who");
    for line in ["bob: hello", "bob: there [1mä"] {
        bob.hears(line);
    }
    let mut heard = [ann.line(), ann.line(), ann.line()];
    heard.sort();
    assert_eq!(
        heard,
        ["* here: ann, bob\n", "bob: hello\n", "bob: there [1mä\n"]
    );
    ann.says("/nonsense");
    ann.hears("* commands: /who lists the names, /quit leaves");
    ann.says(&"x".repeat(1001));
    ann.hears("* not sent: a line is text of at most 1000 bytes");
    ann.says(&"x".repeat(1_000_000));
    ann.hears("* not sent: a line is text of at most 1000 bytes");
    ann.client.write_all(b"\xff\n").unwrap();
    ann.hears("* not sent: a line is text of at most 1000 bytes");
    ann.says(&"y".repeat(1000));
    bob.hears(&format!("ann: {}", "y".repeat(1000)));
    ann.hears(&format!("ann: {}", "y".repeat(1000)));
    // A line may lack its end if nothing follows.
    ann.client.write_all(b"bye").unwrap();
    ann.client.shutdown(Shutdown::Write).unwrap();
    ann.hears("ann: bye");
    ann.hears("");
    bob.hears("ann: bye");
    bob.hears("* ann leaves");
    // All that was said before one left is heard, even if it was said in one breath.
    bob.says(&((0..200).map(|n| format!("{n}\n")).collect::<String>() + "/quit"));
    for n in 0..200 {
        bob.hears(&format!("bob: {n}"));
    }
    bob.hears("");
    // The name is free again.
    Talker::inside(&server, "ann");
    server.end();
}

#[test]
fn chat_waits_for_nobody() {
    let server = Server::start(&["chat", "--addr", "127.0.0.1:0", "--timeout", "500ms"]);
    let mut nameless = server.connect();
    let mut ann = Talker::inside(&server, "ann");
    let mut deaf = Talker::narrow(&server, "deaf");
    ann.hears("* deaf joins");
    let text = "x".repeat(900);
    for _ in 0..Talker::MANY {
        ann.says(&text);
        ann.hears(&format!("ann: {text}"));
    }
    ann.hears("* deaf leaves");
    ann.says("/who");
    ann.hears("* here: ann");
    // What was sent can still be read, and then it is over.
    while !matches!(deaf.lines.read_line(&mut String::new()), Ok(0) | Err(_)) {}
    assert_eq!(rest(&mut nameless), b"* your name?\n* too late\n");
    server.end();
}

#[test]
fn chat_tells_a_slow_reader_what_it_has_lost() {
    let server = Server::start(&["chat", "--addr", "127.0.0.1:0", "--timeout", "60s"]);
    let mut ann = Talker::inside(&server, "ann");
    let mut slow = Talker::narrow(&server, "slow");
    ann.hears("* slow joins");
    let numbers = (0..).map(|n| format!("{n} {}", "x".repeat(900)));
    let mut numbers = numbers.into_iter();
    let mut speak = |times| {
        for line in numbers.by_ref().take(times) {
            ann.says(&line);
            ann.hears(&format!("ann: {line}"));
        }
    };
    speak(Talker::MANY);
    let mut lost = 0;
    for n in 0..2 * Talker::MANY {
        // Once there is room, it hears more.
        speak(1);
        let line = slow.line();
        if let Some(count) = line.strip_prefix("* lines lost: ") {
            lost = count.trim_end().parse().unwrap();
            let next = slow.line();
            let next = next.split(' ').nth(1).unwrap();
            assert_eq!(next, (n + lost).to_string());
            break;
        }
        assert_eq!(line.split(' ').nth(1), Some(&*n.to_string()));
    }
    assert!(lost > 0);
    server.end();
}

#[test]
fn chat_survives_clients_that_vanish() {
    // Each is told of each other.
    const GUESTS: usize = 400;
    allow_descriptors(4096);
    let server = Server::start(&["chat", "--addr", "127.0.0.1:0"]);
    let mut ann = Talker::inside(&server, "ann");
    let mut names = HashSet::new();
    let mut guests = Vec::new();
    for n in 0..GUESTS {
        let mut guest = server.connect();
        guest
            .write_all(format!("guest{n}\nhello\n").as_bytes())
            .unwrap();
        guests.push(guest);
        names.insert(format!("guest{n}"));
    }
    let (mut joined, mut left) = (HashSet::new(), HashSet::new());
    while joined.len() < GUESTS {
        let line = ann.line();
        if let Some(name) = line.strip_suffix(" joins\n") {
            joined.insert(name[2..].to_string());
        }
    }
    for (n, guest) in guests.into_iter().enumerate() {
        if n % 2 == 0 {
            reset(guest);
        } else {
            drop(guest);
        }
    }
    while left.len() < GUESTS {
        let line = ann.line();
        if let Some(name) = line.strip_suffix(" leaves\n") {
            left.insert(name[2..].to_string());
        }
    }
    assert_eq!((&joined, &left), (&names, &names));
    ann.says("/who");
    ann.hears("* here: ann");
    server.end();
}

// ---- wrong arguments

#[test]
fn servers_say_what_is_wrong_with_their_arguments() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let file = file!();
    for (args, code, expected) in [
        (vec!["httpd", "--addr", &taken], 1, "(see --addr)"),
        (
            vec!["httpd", "--root", "/no/such"],
            1,
            "cannot serve /no/such: No such file",
        ),
        (vec!["httpd", "--root", file], 1, "Not a directory"),
        (
            vec!["httpd", "--max-connections", "0"],
            2,
            "--max-connections",
        ),
        (vec!["proxy"], 2, "--to <IP:PORT>"),
        (
            vec!["proxy", "--to", "x", "--listen", &taken],
            2,
            "'--to <IP:PORT>': it takes an IP address and a port, such as 127.0.0.1:8080",
        ),
        (
            vec!["proxy", "--to", &taken, "--listen", &taken],
            1,
            "(see --listen)",
        ),
        (
            vec!["httpd", "--max-per-address", "0"],
            2,
            "--max-per-address",
        ),
        (vec!["chat", "--addr", &taken], 1, "(see --addr)"),
        (vec!["swarm", "--size", "65537"], 2, "1..=65536"),
        (vec!["swarm", "--addr", "x"], 2, "'--addr <HOST:PORT>'"),
        (vec!["chat", "--timeout", "soon"], 2, "such as 500ms"),
    ] {
        let output = trapline(&["boot"]).args(&args).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?}: {err}");
    }
}

// ---- swarm

/// Runs a swarm to its end: the exit code, what it prints and what it warns of.
fn swarm(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trapline"));
    let output = command.args(["boot", "-q", "swarm"]).args(args).output();
    let output = output.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    let code = output.status.code().expect("no signal ended it");
    (code, text(output.stdout), text(output.stderr))
}

#[test]
fn a_swarm_measures_a_server() {
    let server = Server::start(&["echo", "--addr", "127.0.0.1:0"]);
    let addr = server.addr.to_string();
    let args = ["--addr", &addr, "--clients", "5", "--requests", "20"];
    for size in ["1", "65536"] {
        let (code, out, err) = swarm(&[&args[..], &["--size", size, "--keep-alive"]].concat());
        assert_eq!((code, &*err), (0, ""), "{out}");
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[0].starts_with("100 answers in "), "{out}");
        assert!(lines[0].ends_with(" a second"), "{out}");
        assert!(lines[1].starts_with("latency p50 "), "{out}");
        let counts = lines[2..].iter().map(|line| {
            let count = line.split_whitespace().nth(3).expect("a row has a count");
            count.parse::<u64>().expect("it is a number")
        });
        assert_eq!(counts.sum::<u64>(), 100, "{out}");
    }
    let connected = |line: &String| line.starts_with("Client connected");
    let kept = server.lines.try_iter().filter(connected).count();
    assert_eq!(kept, 10);
    let (code, out, _) = swarm(&[&args[..], &["--think", "1ms"]].concat());
    assert_eq!(code, 0, "{out}");
    let anew = iter::repeat_with(|| server.lines.recv_timeout(PATIENCE).unwrap());
    assert_eq!(anew.filter(connected).take(100).count(), 100);
    server.end();
}

#[test]
fn a_swarm_tells_why_requests_fail() {
    let prefixed = Server::start(&["echo", "--addr", "127.0.0.1:0", "--prefix", "x"]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hasty = TcpListener::bind("127.0.0.1:0").unwrap();
    let hasty_addr = hasty.local_addr().unwrap();
    // Each is ended after its request has come, so that the end is no reset.
    let ends = thread::spawn(move || {
        for client in hasty.incoming().take(2) {
            let mut request = [0; 64];
            client.unwrap().read_exact(&mut request).unwrap();
        }
    });
    for (addr, why) in [
        (prefixed.addr, "the answer is not the request"),
        (silent.local_addr().unwrap(), "no answer within 50ms"),
        (hasty_addr, "the server ended the connection"),
    ] {
        let addr = addr.to_string();
        let args = ["--clients", "1", "--requests", "2", "--timeout"];
        let patience = if why.contains("50ms") { "50ms" } else { "30s" };
        let (code, out, err) = swarm(&[&["--addr", &addr], &args[..], &[patience]].concat());
        assert_eq!(code, 1, "{out}");
        assert!(out.starts_with("0 answers in "), "{out}");
        assert!(out.ends_with(&format!("\n2 failed: {why}\n")), "{out}");
        assert!(err.contains("failed: 2 of 2 requests failed"), "{err}");
    }
    ends.join().unwrap();
    // Nothing listens there any more.
    let addr = hasty_addr.to_string();
    let (code, out, _) = swarm(&["--addr", &addr, "--clients", "2", "--patience", "30ms"]);
    assert_eq!(code, 1);
    let refused = format!("\n200 failed: cannot connect to {addr}: Connection refused");
    assert!(out.contains(&refused), "{out}");
}
