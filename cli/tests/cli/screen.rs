//! The screen of `--top` and `top --attach`, on a terminal of its own: a pseudo-terminal, with an
//! emulator that reads what is drawn.

use std::{
    env,
    fs::File,
    io::{Read, Write},
    net::TcpStream,
    num::NonZero,
    os::fd::OwnedFd,
    path::PathBuf,
    process::{Child, Command},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};

use crate::support::{PATIENCE, at_once, exit_of, has, interrupt_to_the_end, pty};

// ---- tools

/// A process at a terminal of its own.
pub(crate) struct Screen {
    child: Child,
    keys: File,
    /// The other end: what the process has.
    tty: Option<OwnedFd>,
    reader: Option<JoinHandle<()>>,
    emulator: Arc<Emulator>,
    before: Termios,
}

/// What a terminal shows.
struct Emulator {
    parser: Mutex<vt100::Parser>,
    /// Something was drawn.
    drawn: Condvar,
    /// Whether the terminal is to go.
    is_closed: AtomicBool,
}

pub(crate) fn trapline() -> Command {
    clean(crate::support::trapline(&[]))
}

fn clean(mut command: Command) -> Command {
    for variable in [
        "RUST_LOG",
        "NO_COLOR",
        "CLICOLOR_FORCE",
        "CLICOLOR",
        "RUST_BACKTRACE",
    ] {
        command.env_remove(variable);
    }
    command.env("TERM", "xterm-256color");
    command
}

fn size(width: u16, height: u16) -> Winsize {
    Winsize {
        ws_col: width,
        ws_row: height,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn cells(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap()
}

/// The length of what a terminal shows at once: a synchronized update that has begun is shown at its
/// end.
fn whole_frames(text: &[u8]) -> usize {
    let (begin, end): (&[u8], &[u8]) = (b"\x1b[?2026h", b"\x1b[?2026l");
    let ended = text.windows(end.len()).rposition(|part| part == end);
    let from = ended.map_or(0, |at| at + end.len());
    let next = &text[from..];
    let is_start = |at: &usize| begin.starts_with(&next[*at..next.len().min(at + begin.len())]);
    from + (0..next.len()).find(is_start).unwrap_or(next.len())
}

impl Screen {
    pub(crate) fn start(mut command: Command, width: u16, height: u16) -> Self {
        let (master, tty) = pty();
        tcsetwinsize(&master, size(width, height)).unwrap();
        let before = tcgetattr(&tty).unwrap();
        let stream = || tty.try_clone().unwrap();
        command.stdin(stream()).stdout(stream()).stderr(stream());
        let child = command.spawn().unwrap();
        drop(command);
        let keys = master;
        let parser = vt100::Parser::new(cells(height), cells(width), 0);
        let emulator = Arc::new(Emulator {
            parser: Mutex::new(parser),
            drawn: Condvar::new(),
            is_closed: AtomicBool::new(false),
        });
        let (mut drawn, shown) = (keys.try_clone().unwrap(), Arc::clone(&emulator));
        let reader = thread::spawn(move || {
            let (mut buf, mut rest) = ([0; 4096], Vec::new());
            while let Ok(n @ 1..) = drawn.read(&mut buf) {
                rest.extend_from_slice(&buf[..n]);
                let whole = whole_frames(&rest);
                shown.parser.lock().unwrap().process(&rest[..whole]);
                shown.drawn.notify_all();
                rest.drain(..whole);
                if shown.is_closed.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        Self {
            child,
            keys,
            tty: Some(tty),
            reader: Some(reader),
            emulator,
            before,
        }
    }

    fn boot(args: &[&str], width: u16, height: u16) -> Self {
        let mut command = trapline();
        command
            .args(["boot", "--seed", "1", "--top=100ms"])
            .args(args);
        Self::start(command, width, height)
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&self, width: u16, height: u16) {
        self.emulator
            .parser
            .lock()
            .unwrap()
            .screen_mut()
            .set_size(cells(height), cells(width));
        tcsetwinsize(&self.keys, size(width, height)).unwrap();
    }

    /// Waits until the screen is such, and answers what it shows then.
    pub(crate) fn until(&self, what: impl Fn(&str) -> bool) -> String {
        let Emulator { parser, drawn, .. } = &*self.emulator;
        let is_other = |parser: &mut vt100::Parser| !what(&parser.screen().contents());
        let waited = drawn.wait_timeout_while(parser.lock().unwrap(), PATIENCE, is_other);
        let (parser, waited) = waited.unwrap();
        let text = parser.screen().contents();
        assert!(!waited.timed_out(), "it never came:\n{text}");
        text
    }

    pub(crate) fn shows(&self, text: &str) -> String {
        self.until(|screen| screen.contains(text))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Closes the terminal of a screen that redraws itself, and waits for the end. Answers the exit
    /// code.
    pub(crate) fn hang_up(mut self) -> Option<i32> {
        self.emulator.is_closed.store(true, Ordering::Relaxed);
        self.reader.take().unwrap().join().unwrap();
        self.keys = File::open("/dev/null").unwrap();
        exit_of(&mut self.child)
    }

    /// Waits for the end, after which the terminal must be as it was. Answers the exit code and what
    /// is left on the terminal.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let tty = self.tty.take().unwrap();
        let after = tcgetattr(&tty).unwrap();
        assert_eq!(format!("{after:?}"), format!("{:?}", self.before));
        // Nobody else has it: what is on its way is read to its end.
        drop(tty);
        self.reader.take().unwrap().join().unwrap();
        let emulator = self.emulator.parser.lock().unwrap();
        assert!(!emulator.screen().alternate_screen());
        assert!(!emulator.screen().hide_cursor());
        (code, emulator.screen().contents())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in what an echo server prints.
fn connect(screen: &str) -> TcpStream {
    let addr = screen
        .lines()
        .find_map(|line| line.split_once("starting at "));
    let (_, addr) = addr.expect("it says where it listens");
    TcpStream::connect(addr.trim()).unwrap()
}

fn line<'a>(screen: &'a str, word: &str) -> &'a str {
    let mut lines = screen.lines();
    lines
        .find(|line| line.split_whitespace().any(|other| other == word))
        .unwrap_or_else(|| panic!("no line with {word}:\n{screen}"))
}

// ---- tests

#[test]
fn the_screen_fits_at_any_width_and_leaves_nothing_behind() {
    let mut screen = Screen::boot(&["echo", "--addr", "127.0.0.1:0"], 40, 20);
    let text = screen.shows("starting at");
    let text = screen.until(|text| text.contains("1 echo") && text.contains("idle")) + &text;
    assert!(text.contains("tid task"), "{text}");
    assert!(
        !text.contains("blocked on"),
        "there is no room for that:\n{text}"
    );
    let hints = text.lines().last().unwrap_or_default();
    assert_eq!(
        hints, "q quit  ? help  s sort: time  k kill",
        "those that fit"
    );
    screen.resize(200, 50);
    let text = screen.until(|text| {
        let last = text.lines().last().unwrap_or_default();
        text.contains("history") && last.starts_with("q quit  ? help")
    });
    assert!(
        line(&text, "echo").contains("blocked the first of: signals 1"),
        "{text}"
    );
    screen.resize(40, 5);
    screen.until(|text| !text.contains("history") && text.contains("echo"));
    screen.resize(20, 12);
    let text = screen.until(|text| text.contains("task") && !text.contains("state"));
    assert!(text.contains("1 echo"), "a row has its name:\n{text}");
    screen.resize(80, 24);
    screen.shows("blocked on");
    screen.press("?");
    let text = screen.shows("reverse the order");
    assert!(text.contains("repaint"), "{text}");
    screen.press(" ");
    screen.until(|text| !text.contains("repaint"));
    screen.press("q");
    let (code, text) = screen.end();
    assert_eq!(code, Some(130));
    assert!(text.contains("Server starting at 127.0.0.1:"), "{text}");
    assert!(text.contains("interrupted: shutting down"), "{text}");
    assert!(!text.contains("tid task"), "{text}");
}

#[test]
fn what_a_column_has_no_room_for_is_cut_where_one_sees_it() {
    let with = ["--with", "alive --every 9h"];
    let screen = Screen::boot(&[&with[..], &["fake-io", "--delay", "9h"]].concat(), 64, 20);
    screen.until(|text| {
        let mut rows = text.lines();
        rows.any(|row| row.contains(" alive ") && row.contains("blocked") && row.contains('…'))
    });
}

#[test]
fn tasks_are_chosen_looked_at_and_killed() {
    let mut screen = Screen::boot(&["echo", "--addr", "127.0.0.1:0"], 100, 30);
    let text = screen.shows("starting at");
    let mut client = connect(&text);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"hello").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    screen.shows("2 client");
    screen.press("t");
    screen.shows("└─ client");
    screen.press("\x1b[B\r");
    screen.until(|text| {
        text.contains("task 2 \"client\" waits for device ")
            && text.contains(", 5)                   = 5")
            && text.contains("4096) ...")
    });
    screen.press("k");
    screen.shows("kill task 2 client? y/n");
    screen.press("n");
    screen.shows("q quit");
    screen.press("ky");
    screen.shows("task 2 is killed");
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    screen.until(|text| !text.contains("2 └─ client"));
    screen.press("\x1b");
    screen.until(|text| !text.contains("details──"));
    screen.press("q");
    assert_eq!(screen.end().0, Some(130));
}

#[test]
fn tasks_are_sorted_and_filtered() {
    let mut screen = Screen::boot(
        &[
            "--with",
            "alive --every 20ms",
            "--with",
            "sleepers",
            "echo",
            "--addr",
            "127.0.0.1:0",
        ],
        120,
        20,
    );
    screen.shows("1 echo");
    screen.press("/echo");
    screen.until(|text| text.contains("filter: echo_  1 of ") && !text.contains("2 alive"));
    screen.press("\r");
    screen.shows("filter \"echo\"  1 of ");
    screen.press("/zzz\r");
    screen.shows("filter \"echozzz\"  0 of ");
    screen.press("\x1b");
    screen.until(|text| !text.contains("filter \""));
    screen.press("sss");
    screen.shows("sort: name");
    screen.press("/alive\n");
    let text = screen.shows("2 alive");
    assert!(line(&text, "alive").contains("the timer at"), "{text}");
    // Wait for a rate: so many traps a second, or so.
    screen.until(|text| {
        let words: Vec<&str> = line(text, "alive").split_whitespace().collect();
        let share = words.iter().position(|word| *word == "%");
        let rate = share.and_then(|at| words[at - 2].parse::<f64>().ok());
        rate.is_some_and(|rate| (10.0..=60.0).contains(&rate))
    });
    screen.press("q");
    assert_eq!(screen.end().0, Some(130));
}

#[test]
fn thousands_of_tasks_are_a_row_that_unfolds() {
    at_once([(80, 24), (200, 50), (40, 20)], |(width, height)| {
        let mut command = clean(crate::support::rude(&[]));
        command.args(["boot", "--top=100ms", "rings", "--tasks", "3000"]);
        let mut screen = Screen::start(command, width, height);
        let text = screen.until(|text| {
            text.contains("waits x3000") && (width < 64 || text.contains("3,000 task"))
        });
        assert_eq!(text.matches(" waits ").count(), 1, "one row:\n{text}");
        // Some of the tasks are not among the first thousand in any order.
        screen.press("/1500\r");
        // One of them waits for the other.
        let text = screen.shows("filter \"1500\"  2 of 3,001 match");
        for tid in ["1499", "1500"] {
            assert!(line(&text, tid).contains("waits"), "{text}");
        }
        screen.press("\x1b");
        screen.shows("waits x3000");
        screen.press("ss");
        // The rows follow a moment after the words.
        screen.until(|text| {
            let rows = (text.find("1 rings"), text.find("waits x3000"));
            text.contains("sort: tid") && rows.0.is_some() && rows.0 < rows.1
        });
        screen.press("\x1b[F\r");
        screen.until(|text| {
            let tasks = text.lines().filter(|line| line.contains("   waits "));
            text.contains("waits x3000") && tasks.count() > 4
        });
        screen.press("\x1b[A\r\x1b[B");
        screen.shows("enter shows or hides");
        screen.press("\r\r\x1b");
        // An escape that the next key follows at once would be a key with Alt.
        screen.until(|text| !text.contains("details─"));
        screen.press("r");
        screen.shows("3001 ");
        screen.press("r\x1b[H");
        screen.press("n");
        screen.until(|text| !text.contains("waits x3000") && text.contains(" waits "));
        screen.press("t");
        screen.until(|text| text.contains("├─ waits"));
        screen.press("n");
        screen.shows("└─ waits x3000");
        screen.press("q");
        assert_eq!(screen.end().0, Some(130));
    });
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    let signals = [(Signal::INT, 130), (Signal::TERM, 0), (Signal::HUP, 129)];
    at_once(signals, |(signal, code)| {
        let screen = Screen::boot(&["echo", "--addr", "127.0.0.1:0"], 80, 24);
        screen.shows("1 echo");
        screen.signal(signal);
        let (end, text) = screen.end();
        assert_eq!(end, Some(code));
        assert!(text.contains("Server starting"), "{text}");
    });
}

#[test]
fn a_terminal_that_goes_ends_the_run() {
    let screen = Screen::boot(&["alive", "--every", "20ms"], 80, 24);
    screen.shows("1 alive");
    assert_eq!(screen.hang_up(), Some(129), "as SIGHUP does");
}

#[test]
fn a_run_that_ends_by_itself_leaves_its_output_and_its_exit_code() {
    let screen = Screen::boot(&["parts"], 80, 24);
    let (code, text) = screen.end();
    assert_eq!((code, text.trim()), (Some(0), "Part 1\nPart 2"));
    let screen = Screen::boot(&["--summary", "alive", "--every", "1000years"], 80, 40);
    let (code, text) = screen.end();
    assert_eq!(code, Some(3));
    assert!(text.contains("I'm alive\nerror: deadlock"), "{text}");
    assert!(text.contains("ticks"), "{text}");
    let screen = Screen::boot(
        &["--max-time", "300ms", "echo", "--addr", "127.0.0.1:0"],
        80,
        24,
    );
    let (code, text) = screen.end();
    assert_eq!(code, Some(4), "{text}");
}

#[test]
fn a_task_that_panics_is_told_of_on_the_screen_and_after_it() {
    let mut command = clean(crate::support::rude(&[]));
    command.args(["boot", "--top=100ms", "panics", "--after", "200ms"]);
    let mut screen = Screen::start(command, 100, 24);
    screen.shows("the child is faulted: as it was told to");
    screen.shows("warning: task 2 \"child\" faulted");
    screen.press("q");
    let (code, text) = screen.end();
    assert_eq!(code, Some(130));
    assert!(text.contains("as it was told to"), "{text}");
}

#[test]
fn a_panic_that_ends_the_process_gives_the_terminal_back_first() {
    let mut command = clean(crate::support::rude(&[]));
    command.args(["boot", "--top", "panics", "--after", "1s", "--twice"]);
    let screen = Screen::start(command, 100, 30);
    screen.shows("1 panics");
    let (code, text) = screen.end();
    assert_eq!(code, None, "a signal has ended it");
    has(&text, "panic in a destructor during cleanup");
}

#[test]
fn an_interrupt_ends_a_process_whose_task_makes_no_trap() {
    let mut command = clean(crate::support::rude(&[]));
    command.args(["boot", "--top", "hogs"]);
    let mut screen = Screen::start(command, 80, 24);
    screen.shows("hogging now");
    assert_eq!(interrupt_to_the_end(&mut screen.child), Some(130));
    let (_, text) = screen.end();
    assert!(text.contains("again to end at once"), "{text}");
}

#[test]
fn top_attaches_to_a_kernel_that_runs() {
    let socket = place("attached");
    let mut kernel = trapline();
    let path = socket.to_str().unwrap();
    kernel.args([
        "boot",
        "-q",
        "--monitor",
        path,
        "echo",
        "--addr",
        "127.0.0.1:0",
    ]);
    let mut kernel = Screen::start(kernel, 80, 24);
    let mut client = connect(&kernel.shows("starting at"));
    client.write_all(b"hello").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    let top = || {
        let mut top = trapline();
        top.args(["top", "--attach", path, "--every", "100ms"]);
        Screen::start(top, 120, 24)
    };
    let mut first = top();
    first.shows("2 client");
    first.press("t\x1b[B\r");
    first.shows("4096) ...");
    first.press("ky");
    first.shows("task 2 is killed");
    first.press("q");
    let (code, text) = first.end();
    assert_eq!((code, text.trim()), (Some(0), ""));
    let interrupted = top();
    interrupted.shows("1 echo");
    interrupted.signal(Signal::INT);
    let (code, text) = interrupted.end();
    assert_eq!((code, text.trim()), (Some(130), ""));
    let closed = top();
    closed.shows("1 echo");
    assert_eq!(closed.hang_up(), Some(1));
    let second = top();
    second.shows("1 echo");
    kernel.signal(Signal::INT);
    assert_eq!(kernel.child.wait().unwrap().code(), Some(130));
    let (code, text) = second.end();
    assert_eq!((code, text.trim()), (Some(0), "the kernel has ended"));
}

#[test]
fn an_interrupted_search_says_what_it_has_covered() {
    for (json, signal, expected) in [
        (&[][..], Signal::INT, 130),
        (&["--json"], Signal::TERM, 143),
    ] {
        let mut search = trapline();
        search.args(["explore", "--schedules", "1000000000000", "parts"]);
        search.args(json);
        let search = Screen::start(search, 120, 24);
        search.shows(" a second, at most ");
        // `timeout` signals the process and its group.
        search.signal(signal);
        search.signal(signal);
        let (code, text) = search.end();
        assert_eq!(code, Some(expected), "{text}");
        assert!(text.contains("it was interrupted"), "{text}");
        let covered = if json.is_empty() {
            " schedules pass; "
        } else {
            "\"complete\":false"
        };
        assert!(text.contains(covered), "{text}");
    }
}

#[test]
fn a_replay_at_speed_is_drawn_within_the_pauses_of_its_run() {
    let tape = place("at-speed");
    let path = tape.to_str().unwrap();
    // Seconds of the clock, in a fraction of one.
    let mut run = clean(crate::support::example("extended", &[]));
    run.args(["boot", "-q", "--world", "lapse:100", "--tape", path]);
    let run = run.args(["greet", "--count", "10"]).output().unwrap();
    assert_eq!(run.status.code(), Some(0));
    let mut replay = clean(crate::support::example("extended", &[]));
    replay.args(["replay", "--at-speed", "--top=50ms", path]);
    let mut screen = Screen::start(replay, 120, 24);
    // The tasks of the run act once a second.
    let (mut at, mut in_a_second) = ("never".to_string(), 0);
    while in_a_second < 4 {
        let text = screen.until(|text| text.contains(" tasks ") && !text.starts_with(&at));
        let now = text.split(' ').next().unwrap().to_string();
        let is_same = now.split('.').next() == at.split('.').next();
        in_a_second = if is_same { in_a_second + 1 } else { 1 };
        at = now;
    }
    screen.press("q");
    assert_eq!(screen.end().0, Some(130));
    std::fs::remove_file(tape).unwrap();
}

#[test]
fn what_is_no_terminal_is_said() {
    let output = trapline()
        .args(["boot", "--top", "parts"])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"");
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        err,
        "error: a screen needs a terminal, and standard input is none\n"
    );
}

fn place(test: &str) -> PathBuf {
    env::temp_dir().join(format!("trapline-screen-{}-{test}", std::process::id()))
}
