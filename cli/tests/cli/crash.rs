//! What a process leaves that does not come to its end: one that a signal kills, that crashes, or
//! whose disk is full.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::process::ExitStatusExt,
    process::{Command, Output, Stdio},
};

use rustix::process::Signal;
use trapline::{
    Fact,
    record::{OwnedEvent, Recording},
};

use crate::{replay::Folder, support::*};

/// A server that is taped and recorded.
struct Server {
    run: Running,
    addr: SocketAddr,
    folder: Folder,
}

impl Server {
    fn start(test: &str, binary: fn(&[&str]) -> Command, program: &[&str]) -> Self {
        let folder = Folder::new(test);
        let [tape, record] = ["run.tape", "run.trap"].map(|name| folder.path(name));
        let boot = ["boot", "-q", "--tape", &tape, "--record", &record];
        let mut command = binary(&[&boot, program].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = Running::start(&mut command);
        let line = run.out_line();
        let addr = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        Self { run, addr, folder }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.addr).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    /// The signal that ended it.
    fn ended_by(&mut self) -> Option<i32> {
        exit_of(&mut self.run.child);
        self.run.child.wait().unwrap().signal()
    }

    /// The facts of the recording of one kind.
    fn count(&self, is_one: impl Fn(&Fact<'_>) -> bool) -> usize {
        let events = Recording::open(self.folder.path("run.trap")).unwrap();
        let events: Vec<OwnedEvent> = events.map_while(Result::ok).collect();
        events.iter().filter(|event| is_one(&event.fact)).count()
    }
}

fn ping(client: &mut TcpStream) {
    client.write_all(b"ping").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
}

const CLIENTS: usize = 200;

/// All that was received before the kernel slept last is there. A kill comes between two answers; the
/// other signals come at any time.
#[test]
fn a_signal_that_kills_a_server_leaves_its_tape_and_its_recording() {
    let signals = [
        Signal::KILL,
        Signal::ABORT,
        Signal::QUIT,
        Signal::BUS,
        Signal::ILL,
        Signal::FPE,
        Signal::SEGV,
    ];
    at_once(signals, |signal| {
        let test = format!("crash-{}", signal.as_raw());
        let echo = ["echo", "--addr", "127.0.0.1:0"];
        let mut server = Server::start(&test, trapline, &echo);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(ping);
        if signal == Signal::KILL {
            // The kernel sleeps between these answers, and so after all those before.
            (0..10).for_each(|_| ping(&mut clients[0]));
        }
        server.run.signal(signal);
        assert_eq!(server.ended_by(), Some(signal.as_raw()), "{signal:?}");
        let (code, out, err) = run(&["replay", &server.folder.path("run.tape")]);
        assert_eq!(code, 1, "{signal:?}: {err}");
        assert!(err.contains("its process was killed"), "{signal:?}: {err}");
        let connected = out.matches("Client connected").count();
        assert_eq!(connected, CLIENTS, "{signal:?}");
        let received = server.count(|fact| matches!(fact, Fact::DeviceIo { .. }));
        assert!(received >= 2 * CLIENTS, "{signal:?}: {received}");
    });
}

/// ^\\ on a terminal is no signal of another process.
#[test]
#[cfg(target_os = "linux")]
fn the_first_quit_of_a_terminal_ends_a_run_that_is_taped() {
    let folder = Folder::new("crash-quit");
    let tape = folder.path("run.tape");
    let (mut terminal, tty) = pty();
    let binary = env!("CARGO_BIN_EXE_trapline");
    let echo = ["echo", "--addr", "127.0.0.1:0"];
    let boot = [&["--ctty", binary, "boot", "--tape", &tape], &echo[..]].concat();
    let mut command = command("setsid", &boot);
    command.stdin(tty).stdout(Stdio::piped());
    let mut run = Running::start(&mut command);
    assert!(run.out_line().starts_with("Server starting at"));
    terminal.write_all(b"\x1c").unwrap();
    exit_of(&mut run.child);
    let ended = run.child.wait().unwrap().signal();
    assert_eq!(ended, Some(Signal::QUIT.as_raw()));
}

/// The request that crashes it is on the tape, though the kernel has not slept since: the replay
/// crashes as the run did.
#[test]
fn a_crash_is_on_its_tape() {
    at_once(["abort", "overflow", "twice"], |by| {
        let mut server = Server::start(&format!("crash-{by}"), rude, &["crashes", "--by", by]);
        let mut client = server.connect();
        (0..3).for_each(|_| ping(&mut client));
        client.write_all(b"crash").unwrap();
        assert_eq!(server.ended_by(), Some(Signal::ABORT.as_raw()), "{by}");
        let err = std::io::read_to_string(server.run.err.take().unwrap()).unwrap();
        let is_told = match by {
            "overflow" => err.contains("has overflowed its stack"),
            "twice" => err.contains("as it was told to"),
            _ => err.is_empty(),
        };
        assert!(is_told, "{by}: {err}");
        let tape = server.folder.path("run.tape");
        let again = rude(&["replay", "-q", &tape]).output().unwrap();
        let signal = again.status.signal();
        assert_eq!(signal, Some(Signal::ABORT.as_raw()), "{by}: {again:?}");
        let turns = server.count(|fact| matches!(fact, Fact::Resumed));
        let traps = server.count(|fact| matches!(fact, Fact::Trapped { .. }));
        assert_eq!(
            turns,
            traps + 1,
            "{by}: the last turn is there, and has no end"
        );
    });
}

/// What a ring keeps is in the file as well.
#[test]
fn a_crash_leaves_the_last_events() {
    let folder = Folder::new("crash-ring");
    let file = folder.path("run.trap");
    let ring = ["boot", "-q", "--record-last", "100", "--record", &file];
    let mut server = Running::with_stdout(&[&ring[..], &["alive", "--every", "1day"]].concat());
    server.out_line();
    server.signal(Signal::QUIT);
    assert_eq!(exit_of(&mut server.child), None);
    let events: Vec<_> = Recording::open(&file).unwrap().collect();
    assert!(events.len() >= 3, "{events:?}");
    assert!(events.iter().all(Result::is_ok), "it is whole: {events:?}");
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let folder = Folder::new("crash-ignored");
    let file = folder.path("run.tape");
    let script = "trap '' QUIT; exec \"$0\" boot -q --tape \"$1\" alive --every 1day";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_trapline"), &file]);
    let mut run = Running::start(shell.stdout(Stdio::piped()).stderr(Stdio::piped()));
    run.out_line();
    run.signal(Signal::QUIT);
    run.signal(Signal::TERM);
    assert_eq!(run.end().0, Some(143));
}

/// Runs a script with the binary as `$0` and these arguments.
fn script(script: &str, args: &[&str]) -> Output {
    let mut shell = Command::new("bash");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_trapline")]);
    shell.args(args).output().unwrap()
}

/// A program that never sleeps, so that each write has many entries.
const BUSY: &str = "multitask --foo 50000 --bar 1";

#[test]
fn a_file_that_may_not_grow_keeps_what_fitted_and_says_why_it_ends() {
    let folder = Folder::new("crash-limit");
    let [tape, record, out] = ["run.tape", "run.trap", "out"].map(|name| folder.path(name));
    let boot = format!(
        "(ulimit -f 16; exec \"$0\" boot -q --tape \"$1\" --record \"$2\" {BUSY}) | cat > \"$3\"; \
         exit ${{PIPESTATUS[0]}}"
    );
    let output = script(&boot, &[&tape, &record, &out]);
    let (code, _, err) = texts(output);
    assert_eq!(code, 1, "{err}");
    has(&err, "run.tape is not complete: File too large");
    let why = "it had reached the largest size of a file";
    keeps(&tape, &record, &out, why);
    for file in [&tape, &record] {
        let len = fs::metadata(file).unwrap().len();
        assert!((15 * 1024..=16 * 1024).contains(&len), "{file}: {len}");
    }
}

/// The replay and the recording go as far as there was room, and say why they end.
fn keeps(tape: &str, record: &str, out: &str, why: &str) {
    let (code, again, err) = run(&["replay", tape]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains(why) && !err.contains("was killed"), "{err}");
    let printed = fs::read_to_string(out).unwrap();
    assert!(printed.starts_with(&again), "it is the same run");
    assert!(
        again.lines().count() > 1000,
        "{} lines",
        again.lines().count()
    );
    let (code, shown, err) = run(&["trace", "show", record]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains(why) && !err.contains("was killed"), "{err}");
    let events = shown.lines().count();
    assert!(events > 500, "{events}");
}

/// A disk of a test's own, which is a matter of a namespace. Where the system gives none, the test
/// says so and ends.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_keeps_what_fitted_and_says_so() {
    let space = "unshare --user --map-root-user --mount";
    let probe = format!("{space} mount -t tmpfs -o size=64k tmpfs /mnt");
    if !script(&probe, &[]).status.success() {
        eprintln!("SKIPPED: a_full_disk_keeps_what_fitted_and_says_so: no mount in a namespace");
        return;
    }
    let folder = Folder::new("crash-full");
    let [tape, record, out, disk] =
        ["run.tape", "run.trap", "out", "disk"].map(|name| folder.path(name));
    fs::create_dir(&disk).unwrap();
    let inner = format!(
        "mount -t tmpfs -o size=128k tmpfs \"$4\" || exit 9
         \"$0\" boot -q --tape \"$4/run.tape\" --record \"$4/run.trap\" {BUSY} > \"$3\"
         echo $?
         cp \"$4/run.tape\" \"$1\"
         cp \"$4/run.trap\" \"$2\""
    );
    let outer = format!("{space} bash -c \"$5\" \"$0\" \"$@\"");
    let (code, codes, err) = texts(script(&outer, &[&tape, &record, &out, &disk, &inner]));
    assert_eq!((code, &*codes), (0, "1\n"), "{err}");
    assert!(err.contains("No space left on device"), "{err}");
    let why = "the disk was full";
    keeps(&tape, &record, &out, why);
    let sizes = [&tape, &record].map(|file| fs::metadata(file).unwrap().len());
    assert!(sizes.iter().sum::<u64>() > 120 * 1024, "{sizes:?}");
}
