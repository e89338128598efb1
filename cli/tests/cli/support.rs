//! What the tests of the binary share: its commands, and a process while it runs.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    path::Path,
    process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio},
    sync::{
        Once,
        atomic::{AtomicU16, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

/// The folder of all packages.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until there is an answer. Only for the state of another process, of which no
/// descriptor tells a change.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} takes too long");
        thread::sleep(Duration::from_millis(1));
    }
}

/// An address of which nothing listens now, for a test whose server cannot say where it listens. The
/// port is below those that the system gives out: no other socket takes it by chance.
pub(crate) fn free_addr() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 12_000 + (std::process::id() % 1000) as u16 * 20;
    loop {
        let addr = SocketAddr::from(([127, 0, 0, 1], first + NEXT.fetch_add(1, Relaxed)));
        if TcpListener::bind(addr).is_ok() {
            return addr;
        }
    }
}

/// The exit code of a process that is about to end. One that does not end is killed.
pub(crate) fn exit_of(child: &mut Child) -> Option<i32> {
    let (ended, end) = mpsc::channel::<()>();
    let pid = Pid::from_child(child);
    let watchdog = thread::spawn(move || {
        if end.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    let code = child.wait().expect("it ends").code();
    drop(ended);
    watchdog.join().expect("the watchdog ends");
    code
}

/// Interrupts a process until it ends, since two signals that come together are one. Returns its exit
/// code.
pub(crate) fn interrupt_to_the_end(child: &mut Child) -> Option<i32> {
    eventually("the end", || {
        let ended = child.try_wait().expect("it can be asked");
        if ended.is_none() {
            kill_process(Pid::from_child(child), Signal::INT).expect("it can be reached");
        }
        ended.map(|status| status.code())
    })
}

/// Checks that a text has a part.
#[track_caller]
pub(crate) fn has(text: &str, part: &str) {
    assert!(text.contains(part), "no {part:?} in: {text}");
}

/// Checks how a text begins.
#[track_caller]
pub(crate) fn begins(text: &str, start: &str) {
    assert!(
        text.starts_with(start),
        "not at the start, {start:?}: {text}"
    );
}

/// Checks all cases at the same time, each on a thread of its own: they wait more than they compute.
pub(crate) fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    let check = &check;
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || check(case));
        }
    });
}

/// Both ends of a terminal: the window, and what a process has.
pub(crate) fn pty() -> (File, OwnedFd) {
    let window = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&window).unwrap();
    unlockpt(&window).unwrap();
    let name = ptsname(&window, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let tty = rustix::fs::open(name, flags, Mode::empty()).unwrap();
    (window.into(), tty)
}

/// A command at the root, that the environment of the tests does not change.
pub(crate) fn command(program: impl AsRef<OsStr>, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(ROOT).stdin(Stdio::null());
    for variable in ["RUST_LOG", "NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"] {
        command.env_remove(variable);
    }
    command.env("RUST_BACKTRACE", "0");
    command
}

/// The binary under test.
pub(crate) fn trapline(args: &[&str]) -> Command {
    command(env!("CARGO_BIN_EXE_trapline"), args)
}

/// The example whose programs misbehave.
pub(crate) fn rude(args: &[&str]) -> Command {
    example("rude", args)
}

/// An example, built at the first use of any.
pub(crate) fn example(name: &str, args: &[&str]) -> Command {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args([
            "build",
            "--quiet",
            "--example",
            "rude",
            "--example",
            "extended",
        ]);
        let built = build.current_dir(ROOT).status();
        assert!(built.unwrap().success());
    });
    let path = Path::new(env!("CARGO_BIN_EXE_trapline")).with_file_name("examples");
    command(path.join(name), args)
}

/// Runs the binary to its end: the exit code, standard output and standard error.
pub(crate) fn run(args: &[&str]) -> (i32, String, String) {
    texts(trapline(args).output().expect("it runs"))
}

pub(crate) fn texts(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    (
        output.status.code().expect("no signal ended it"),
        text(output.stdout),
        text(output.stderr),
    )
}

/// The output of a program that ends well in the simulated world.
pub(crate) fn transcript(args: &[&str]) -> String {
    let boot = ["boot", "--virtual", "--seed", "1"];
    let (code, out, err) = run(&[&boot, args].concat());
    assert_eq!((code, &*err), (0, ""));
    out
}

pub(crate) fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("it is text");
    assert!(line.ends_with('\n'), "it ended early: {line:?}");
    line
}

/// A process that is still running. One that does not end is killed after a minute.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) out: Option<BufReader<ChildStdout>>,
    pub(crate) err: Option<BufReader<ChildStderr>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("it runs");
        let out = child.stdout.take().map(BufReader::new);
        let err = child.stderr.take().map(BufReader::new);
        Self { child, out, err }
    }

    pub(crate) fn with_pipes(args: &[&str]) -> Self {
        let mut command = trapline(args);
        Self::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    pub(crate) fn with_stdout(args: &[&str]) -> Self {
        let mut command = trapline(args);
        Self::start(command.stdout(Stdio::piped()).stderr(Stdio::null()))
    }

    pub(crate) fn with_stderr(args: &[&str]) -> Self {
        let mut command = trapline(args);
        Self::start(command.stdout(Stdio::null()).stderr(Stdio::piped()))
    }

    pub(crate) fn out_line(&mut self) -> String {
        line(self.out.as_mut().expect("it is piped"))
    }

    pub(crate) fn err_line(&mut self) -> String {
        line(self.err.as_mut().expect("it is piped"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it can be reached");
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Its exit code, and the rest of what it writes to standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let drain = self
            .out
            .take()
            .map(|mut out| thread::spawn(move || io::copy(&mut out, &mut io::sink())));
        let rest = self
            .err
            .take()
            .map(|err| thread::spawn(move || io::read_to_string(err)));
        let code = exit_of(&mut self.child);
        let rest = rest.map(|rest| rest.join().expect("the pipe ends").expect("it is text"));
        if let Some(drain) = drain {
            drain
                .join()
                .expect("the pipe ends")
                .expect("it can be read");
        }
        (code, rest.unwrap_or_default())
    }
}

/// The place of the first line of a source that contains a text, as reports name it.
pub(crate) fn place_of(file: &str, text: &str) -> String {
    let path = Path::new(ROOT).join(file);
    let source = std::fs::read_to_string(path).expect("it can be read");
    let line = source.lines().position(|line| line.contains(text));
    let line = line.unwrap_or_else(|| panic!("{file} has no {text}"));
    format!("{file}:{}", line + 1)
}
