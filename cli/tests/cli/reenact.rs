//! `replay --explore`: what clients of a taped run did, under other schedules.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
    thread,
};

use rustix::process::Signal;

use crate::{replay::Folder, support::*};

/// A server whose run is taped, with the words of the last column of its first line as its address.
struct Taped {
    server: Running,
    addr: SocketAddr,
    folder: Folder,
}

impl Taped {
    fn start(test: &str, program: impl FnOnce(&[&str]) -> Command, args: &[&str]) -> Self {
        let folder = Folder::new(test);
        let tape = folder.path("run.tape");
        let boot = ["boot", "-q", "--tape", &tape];
        let mut command = program(&[&boot, args].concat());
        let mut server = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let line = server.out_line();
        let addr = line
            .trim()
            .split([' ', '/', ','])
            .find_map(|word| word.parse().ok());
        Self {
            server,
            addr: addr.expect("it says where it listens"),
            folder,
        }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.addr).unwrap();
        let patience = Some(PATIENCE);
        client.set_read_timeout(patience).unwrap();
        client
    }

    /// Interrupts the server. Returns the tape, and the folder that keeps it.
    fn end(self) -> (String, Folder) {
        self.server.signal(Signal::INT);
        let (code, err) = self.server.end();
        assert_eq!(code, Some(130), "{err}");
        (self.folder.path("run.tape"), self.folder)
    }
}

fn read(client: &mut TcpStream, text: &str) {
    let mut buf = vec![0; text.len()];
    client.read_exact(&mut buf).unwrap();
    assert_eq!(String::from_utf8_lossy(&buf), text);
}

/// Tapes a chat in which all goes well: ann's lines come one after the other.
fn chat(test: &str, options: &[&str]) -> (String, Folder) {
    let args = [&["mishears", "--addr", "127.0.0.1:0"], options].concat();
    let server = Taped::start(test, |args| example("rude", args), &args);
    let mut bob = server.connect();
    read(&mut bob, "welcome\n");
    let mut ann = server.connect();
    read(&mut ann, "welcome\n");
    for line in ["one\n", "two\n", "three\n"] {
        ann.write_all(line.as_bytes()).unwrap();
        read(&mut bob, line);
    }
    server.end()
}

fn explore(mut command: Command) -> (i32, String, String) {
    texts(command.output().expect("it runs"))
}

#[test]
fn a_chat_that_loses_a_line_under_one_schedule_is_found_from_a_tape_of_a_good_run() {
    let (tape, folder) = chat("mishears", &[]);
    let (code, out, err) = explore(example("rude", &["replay", "-q", &tape]));
    assert_eq!((code, &*err), (0, ""), "nothing is lost on the tape: {out}");
    let rude = |args: &[&str]| explore(example("rude", &[&["replay"], args].concat()));
    // Bob sends nothing, so nothing is the answer to what he sends.
    let (code, out, err) = rude(&["--explore", "300", &tape]);
    assert_eq!((code, &*err), (0, ""), "{out}");
    let runs = folder.path("runs");
    let bytes = ["--explore", "1000", "--expect", "bytes"];
    let (code, out, err) = rude(&[&bytes[..], &["--record", &runs, &tape]].concat());
    assert_eq!((code, &*err), (1, ""), "{out}");
    let lost = "\"peer-1\" failed: the program sends no more after ";
    has(&out, lost);
    has(&out, "; on the tape it sent 22");
    assert!(fs::read_dir(runs).unwrap().count() > 0, "it is recorded");
    // The report has the command for this very schedule.
    let again = out.lines().find_map(|line| line.split_once("rude replay "));
    let (_, again) = again.unwrap_or_else(|| panic!("no command: {out}"));
    let words: Vec<&str> = again.split(' ').collect();
    assert!(again.contains(" --expect bytes "), "{again}");
    let (code, out, _) = rude(&words);
    assert_eq!(code, 1);
    assert!(out.contains(lost), "{out}");
    let (code, out, _) = rude(&["--explore", "1", "--replay", "nonsense", &tape]);
    assert_eq!((code, &*out), (2, ""));
}

/// The whole of what a client gets.
fn read_all(client: &mut TcpStream) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_correct_chat_passes_though_a_client_that_joins_later_gets_less() {
    let server = Taped::start("chat", trapline, &["chat", "--addr", "127.0.0.1:0"]);
    let mut clients = [(); 3].map(|()| server.connect());
    for client in &mut clients {
        read(client, "* your name?\n");
    }
    let say = |client: &mut TcpStream, text: &str| client.write_all(text.as_bytes()).unwrap();
    let [ann, bob, carol] = &mut clients;
    say(bob, "bob\n");
    read(bob, "* bob joins\n");
    // In a schedule, bob may give his name after all this.
    say(ann, "ann\none\ntwo\n");
    for client in [&mut *ann, bob] {
        read(client, "* ann joins\nann: one\nann: two\n");
    }
    say(bob, "/who\n");
    read(bob, "* here: ann, bob\n");
    say(carol, "carol\nthree\n");
    for client in [&mut *ann, bob, carol] {
        read(client, "* carol joins\ncarol: three\n");
    }
    say(ann, "/quit\n");
    assert_eq!(read_all(ann), "");
    read(bob, "* ann leaves\n");
    let (tape, _folder) = server.end();
    let (code, out, err) = run(&["replay", "--explore", "1000", &tape]);
    assert_eq!((code, &*err), (0, ""), "{out}");
    assert!(out.contains("1000 schedules"), "{out}");
    // Bob has asked for the names, which depend on the others.
    has(&out, "compared: the answers to 2 of 3 clients\n");
    let (code, out, _) = run(&["replay", "--explore", "100", "--expect", "bytes", &tape]);
    assert_eq!(code, 1, "one gets less: {out}");
}

/// Tapes a server that greets two clients, one after the other.
fn greetings(how: &str) -> (String, Folder) {
    let test = format!("muddles-{how}");
    let args = ["muddles", "--how", how];
    let server = Taped::start(&test, |args| example("rude", args), &args);
    let mut clients = ["ann", "john"].map(|name| {
        let mut client = server.connect();
        read(&mut client, "welcome\n");
        (name, client)
    });
    for (name, client) in &mut clients {
        client.write_all(format!("{name}\n").as_bytes()).unwrap();
        read(client, &format!("hello {name}\n"));
    }
    server.end()
}

#[test]
fn a_wrong_or_cut_answer_a_failure_and_a_deadlock_are_found() {
    let rude = |args: &[&str]| explore(example("rude", &[&["replay"], args].concat()));
    let lacks = "a part of its answer does not come: \"hello ";
    for (how, why) in [
        ("nothing", None),
        ("swaps", Some(lacks)),
        ("cuts", Some(lacks)),
        ("tears", Some(lacks)),
        ("fails", Some("\"session\" failed: two at a time")),
        ("sticks", Some("cycle: ")),
    ] {
        let (tape, _folder) = greetings(how);
        let (code, out, err) = rude(&["--explore", "300", &tape]);
        let expected = (i32::from(why.is_some()), "");
        assert_eq!((code, &*err), expected, "{how}: {out}");
        has(&out, why.unwrap_or("300 schedules"));
        has(&out, "compared: the answers to 2 of 2 clients\n");
        let (code, out, _) = rude(&["--explore", "300", "--expect", "ends", &tape]);
        let by_tasks = matches!(how, "fails" | "sticks");
        assert_eq!(code, i32::from(by_tasks), "{how}: {out}");
        assert!(!out.contains("compared"), "{out}");
    }
}

#[test]
fn listeners_at_any_port_are_those_of_their_tasks_and_recorded_work_is_done_again() {
    let folder = Folder::new("twice");
    let tape = folder.path("run.tape");
    let mut command = example("rude", &["boot", "--tape", &tape, "twice"]);
    let mut server = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    for greeting in ["hi\n", "good afternoon\n"] {
        let line = server.out_line();
        let addr = line.trim().rsplit(' ').next().unwrap();
        read(&mut TcpStream::connect(addr).unwrap(), greeting);
    }
    server.signal(Signal::INT);
    let (code, err) = server.end();
    assert_eq!(code, Some(130));
    assert!(!err.contains("attaches"), "it is not the program's: {err}");
    for expect in ["answers", "bytes"] {
        let replay = ["replay", "--explore", "200", "--expect", expect, &tape];
        let (code, out, err) = explore(example("rude", &replay));
        assert_eq!((code, &*err), (0, ""), "{out}");
    }
}

#[test]
fn a_cured_chat_passes_all_schedules() {
    let (tape, _folder) = chat("hears", &["--cured"]);
    let (code, out, err) = explore(example("rude", &["replay", "--explore", "200", &tape]));
    assert_eq!((code, &*err), (0, ""), "{out}");
    assert!(out.contains("200 schedules"), "{out}");
}

#[test]
fn servers_of_many_kinds_pass_with_the_inputs_of_a_real_run() {
    let server = Taped::start("echoes", trapline, &["echo", "--addr", "127.0.0.1:0"]);
    let mut clients: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        let text = "x".repeat(1 + 500 * n);
        client.write_all(text.as_bytes()).unwrap();
        read(client, &text);
        if n % 2 == 0 {
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        }
    }
    drop(clients);
    let (tape, _folder) = server.end();
    let (code, out, err) = run(&["replay", "--explore", "30", &tape]);
    assert_eq!((code, &*err), (0, ""), "{out}");

    // Jobs that look a file up, and send_file.
    let files = Folder::new("files");
    fs::write(files.path("page"), "text ".repeat(10_000)).unwrap();
    let folder = files.path("");
    let args = ["httpd", "--addr", "127.0.0.1:0", "--root", &folder];
    let server = Taped::start("httpd-explored", trapline, &args);
    for _ in 0..3 {
        let mut client = server.connect();
        client.write_all(b"GET /page HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        client.read_to_string(&mut page).unwrap();
        assert!(page.ends_with("text "));
    }
    let (tape, _folder) = server.end();
    let (code, out, err) = run(&["replay", "--explore", "30", &tape]);
    assert_eq!((code, &*err), (0, ""), "{out}");
}

#[test]
fn the_program_connects_to_a_scripted_server() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = upstream.local_addr().unwrap().to_string();
    let serves = thread::spawn(move || {
        for _ in 0..2 {
            let (stream, _) = upstream.accept().unwrap();
            let mut lines = BufReader::new(&stream);
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            (&stream).write_all(line.to_uppercase().as_bytes()).unwrap();
        }
    });
    let args = ["proxy", "--listen", "127.0.0.1:0", "--to", &to];
    let server = Taped::start("proxy-explored", trapline, &args);
    for _ in 0..2 {
        let mut client = server.connect();
        client.write_all(b"hello\n").unwrap();
        read(&mut client, "HELLO\n");
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
    serves.join().unwrap();
    let (tape, _folder) = server.end();
    let (code, out, err) = run(&["replay", "--explore", "50", &tape]);
    assert_eq!((code, &*err), (0, ""), "{out}");
}

#[test]
fn panics_of_a_taped_run_are_told_as_the_failure_of_a_schedule_alone() {
    let args = [
        "--with",
        "panics --after 1ms",
        "mishears",
        "--addr",
        "127.0.0.1:0",
    ];
    let server = Taped::start("panics", |args| example("rude", args), &args);
    read(&mut server.connect(), "welcome\n");
    let (tape, _folder) = server.end();
    let (code, out, err) = explore(example("rude", &["replay", "--explore", "5", &tape]));
    assert_eq!((code, &*err), (1, ""), "{out}");
    has(&out, "\"child\" faulted: as it was told to");
}

#[test]
fn a_listener_can_close_and_open_again_at_another_port() {
    let folder = Folder::new("reopens");
    let tape = folder.path("run.tape");
    let mut command = example("rude", &["boot", "-q", "--tape", &tape, "reopens"]);
    let mut server = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    for _ in 0..3 {
        let line = server.out_line();
        let addr = line.trim().rsplit(' ').next().unwrap();
        read(&mut TcpStream::connect(addr).unwrap(), "welcome\n");
    }
    let (code, err) = server.end();
    assert_eq!(code, Some(0), "{err}");
    let (code, out, err) = explore(example("rude", &["replay", "--explore", "50", &tape]));
    assert_eq!((code, &*err), (0, ""), "{out}");
}

#[test]
fn connections_within_the_program_need_no_peer() {
    let folder = Folder::new("within");
    let tape = folder.path("run.tape");
    let taped = run(&["boot", "-q", "--tape", &tape, "gossip", "--cured"]);
    assert_eq!(taped.0, 0);
    let (code, out, err) = run(&["replay", "--explore", "50", &tape]);
    assert_eq!((code, &*err), (0, ""), "{out}");
}

#[test]
fn a_device_that_is_no_socket_cannot_be_scripted() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", upstream.local_addr().unwrap());
    let serves = thread::spawn(move || {
        let (mut stream, _) = upstream.accept().unwrap();
        let mut lines = BufReader::new(&stream).lines();
        while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
        let page = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        stream.write_all(page.as_bytes()).unwrap();
    });
    let folder = Folder::new("no-socket");
    let tape = folder.path("run.tape");
    // It attaches standard output.
    let (code, out, err) = run(&["boot", "-q", "--tape", &tape, "http-get", &url]);
    assert_eq!((code, &*out), (0, "hello"), "{err}");
    serves.join().unwrap();
    let (code, _, err) = run(&["replay", "--explore", "10", &tape]);
    assert_eq!(code, 1);
    has(&err, "is no socket, and a simulated run has no other");
}

#[test]
fn what_cannot_be_scripted_is_said() {
    let folder = Folder::new("no-script");
    let tape = folder.path("run.tape");
    let (code, _, err) = run(&["boot", "-q", "--tape", &tape, "tids"]);
    assert_eq!(code, 0, "{err}");
    let (code, out, err) = run(&["replay", "--explore", "10", &tape]);
    assert_eq!((code, &*out), (1, ""));
    let why = "error: this tape has no script: it has no connection, so no peers";
    assert!(err.starts_with(why), "{err}");
    let (code, _, err) = run(&["boot", "-q", "--tape", &tape, "promise"]);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = run(&["replay", "--explore", "10", &tape]);
    assert_eq!(code, 1);
    let why = "error: this tape has no script: a thread of the program set a promise\n";
    assert_eq!(err, why);
    for (args, expected) in [
        (&["--explore", "0"][..], "a whole number from 1"),
        (&["--explore", "5", "--trace"], "--explore shows no run"),
        (&["--explore", "5", "--at-speed"], "cannot be used with"),
        (&["--replay", "1.2.3"], "--explore <N>"),
        (
            &["--explore", "5", "--inject", "recv:kill"],
            "the tape holds the options of its run: boot with --inject and --tape FILE",
        ),
    ] {
        let (code, _, err) = run(&[&["replay"], args, &[&tape]].concat());
        assert_eq!(code, 2, "{args:?}");
        assert!(err.contains(expected), "{args:?}: {err}");
    }
}

/// Why it failed was on standard error in the run, which makes calls of its own.
#[test]
fn a_shell_with_a_command_that_failed_is_searched() {
    let line = "kill 99; echo --addr 127.0.0.1:0";
    let taped = Taped::start("explore-shell", trapline, &["shell", "-c", line]);
    let mut client = taped.connect();
    client.write_all(b"x\n").unwrap();
    read(&mut client, "x\n");
    drop(client);
    let Taped { server, folder, .. } = taped;
    server.signal(Signal::TERM);
    let (code, err) = server.end();
    assert_eq!(code, Some(0), "{err}");
    let tape = folder.path("run.tape");
    let (code, out, err) = run(&["replay", "--explore", "1", &tape]);
    assert_eq!(code, 0, "{out}{err}");
    has(&out, "1 schedule passes");
    // The signal follows it, as on the tape, though the clocks differ.
    has(&out, "Client connected");
}
