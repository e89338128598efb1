//! The shell at a terminal: that of `tmux`, which has a screen, and a pseudoterminal.

use std::{
    fs,
    io::{Read, Write},
    process::{self, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use rand_pcg::{Pcg64, rand_core::SeedableRng};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, Signal, kill_process},
    termios::{LocalModes, tcgetattr},
};

use super::{anything, descriptors};
use crate::{replay::Folder, support::*};

/// A server of `tmux` with one window. Dropping it ends both.
struct Window(String);

impl Window {
    /// Opens a window in which a command of the binary runs; `None` without a `tmux`.
    fn open((columns, rows): (u16, u16), folder: &Folder, args: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("SKIPPED: tmux is not installed");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let window = Self(format!("trapline-{}-{number}", process::id()));
        let binary = env!("CARGO_BIN_EXE_trapline");
        // The shell around it stays, so that its last words can be read.
        let line = format!("exec 2>&1; {binary} {args}; echo ended: $?; cat");
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let size = ["-x", &columns, "-y", &rows, "-c", &folder.path("")];
        let begin = ["-f", "/dev/null", "new-session", "-d"];
        window.tmux(&[&begin[..], &size, &[&line]].concat());
        Some(window)
    }

    fn tmux(&self, args: &[&str]) -> String {
        let mut command = command("tmux", &["-L", &self.0]);
        let output = command.args(args).output().expect("it runs");
        let (code, out, err) = texts(output);
        assert_eq!(code, 0, "{args:?}: {err}");
        out
    }

    fn text(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    fn key(&self, name: &str) {
        self.tmux(&["send-keys", name]);
    }

    fn line(&self, text: &str) {
        self.text(text);
        self.key("Enter");
    }

    /// The lines of the screen, without those below the last text.
    fn screen(&self) -> Vec<String> {
        let screen = self.tmux(&["capture-pane", "-p"]);
        let lines = screen.trim_end().lines();
        lines.map(|line| line.trim_end().to_string()).collect()
    }

    /// Waits until the screen ends with these lines.
    #[track_caller]
    fn ends(&self, lines: &[&str]) {
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        self.shows(|screen| screen.ends_with(&lines));
    }

    /// Waits until the screen is like this. Returns it.
    #[track_caller]
    fn shows(&self, is_there: impl Fn(&[String]) -> bool) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "{}", screen.join("\n"));
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .args(["-L", &self.0, "kill-server"])
            .output();
    }
}

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 50)];
const PROMPT: &str = "trapline>";
const ASKED: &str = "Jobs run: end the input or exit again to end them";

#[test]
fn words_are_completed_and_lines_come_back() {
    at_once(SIZES, |size| {
        let folder = Folder::new(&format!("shell-words-{}", size.0));
        fs::write(folder.path("greeting"), "hello\n").unwrap();
        fs::create_dir(folder.path("inner")).unwrap();
        fs::write(folder.path("inner/note"), "a\nb\n").unwrap();
        let Some(window) = Window::open(size, &folder, "shell -q --disk .") else {
            return;
        };
        window.ends(&[PROMPT]);
        // A program, a file, and one in a directory.
        window.text("wc -");
        window.key("Tab");
        window.key("Tab");
        window.ends(&["--lines  --help", "trapline> wc --"]);
        window.key("C-c");
        window.ends(&["trapline> wc --", PROMPT]);
        // Nothing within quotes.
        window.text("cat 'my se");
        window.key("Tab");
        window.text("c'");
        window.ends(&["trapline> cat 'my sec'"]);
        window.key("C-c");
        window.ends(&["trapline> cat 'my sec'", PROMPT]);
        window.text("cat gr");
        window.key("Tab");
        window.text("inn");
        window.key("Tab");
        window.key("Tab");
        window.key("Enter");
        window.ends(&[
            "trapline> cat greeting inner/note",
            "hello",
            "a",
            "b",
            PROMPT,
        ]);
        // A job, a task and a word of a choice.
        window.line("sleep 1000h &");
        window.ends(&["[1] task 4", PROMPT]);
        window.text("fg ");
        window.key("Tab");
        window.ends(&["trapline> fg 1"]);
        window.key("C-u");
        window.text("where 4");
        window.key("Tab");
        window.text("| he");
        window.key("Tab");
        window.ends(&["trapline> where 4 | he"]);
        window.key("C-u");
        window.text("trace of");
        window.key("Tab");
        window.ends(&["trapline> trace off"]);
        window.key("C-c");
        // What was typed before: the one before the last, and by a part of it.
        window.key("Up");
        window.key("Up");
        window.ends(&["trapline> cat greeting inner/note"]);
        window.key("C-u");
        window.key("C-r");
        window.text("1000");
        window.ends(&["(reverse-i-search)`1000': sleep 1000h &"]);
        window.key("C-a");
        window.key("C-d");
        window.ends(&["trapline> leep 1000h &"]);
        window.key("C-c");
        window.ends(&["trapline> leep 1000h &", PROMPT]);
        window.line("kill 4");
        window.ends(&["trapline> kill 4", "[1] killed: sleep 1000h", PROMPT]);
    });
}

impl Window {
    /// Pastes a text as a terminal does: marked, if the program in it asks for that.
    fn paste(&self, text: &str) {
        self.tmux(&["set-buffer", text]);
        self.tmux(&["paste-buffer", "-p"]);
    }
}

/// More lines than the screen has, too, and none is run before Enter.
#[test]
fn a_text_that_is_pasted_is_one_text_until_enter() {
    at_once(SIZES, |size| {
        let folder = Folder::new(&format!("shell-paste-{}", size.0));
        let Some(window) = Window::open(size, &folder, "shell -q") else {
            return;
        };
        window.ends(&[PROMPT]);
        window.line("sleep 1 &");
        window.ends(&["[1] task 3", PROMPT]);
        window.paste("seq 41 | grep 41 # one\nnothing |\nseq 42 | grep 42\n");
        let pasted = [
            "trapline> seq 41 | grep 41 # one",
            "nothing |",
            "seq 42 | grep 42",
        ];
        window.ends(&pasted);
        // A job prints above all of it.
        window.ends(&[&["[1] done: sleep 1"], &pasted[..]].concat());
        window.key("Enter");
        let error = "there is no command at the end of the line";
        let answers = ["41", error, "42", PROMPT];
        window.shows(|screen| {
            let lines: Vec<&String> = screen.iter().filter(|line| !line.is_empty()).collect();
            lines.ends_with(&answers.map(String::from).iter().collect::<Vec<_>>())
        });
        // It comes back as one entry, and can be edited.
        window.key("Up");
        window.ends(&pasted);
        window.key("BSpace");
        window.key("3");
        window.key("Enter");
        window.shows(|screen| screen.iter().any(|line| line == "seq 42 | grep 43"));
        window.ends(&[PROMPT]);
        window.paste("seq 51 | grep 51\nseq 52");
        window.ends(&["trapline> seq 51 | grep 51", "seq 52"]);
        window.key("C-c");
        window.ends(&["trapline> seq 51 | grep 51", "seq 52", PROMPT]);
        let many: Vec<String> = (100..200).map(|n| format!("seq {n} | grep {n}")).collect();
        window.paste(&many.join("\n"));
        window.shows(|screen| screen.last() == many.last());
        window.key("Enter");
        window.shows(|screen| {
            let printed = (180..200).map(|n| n.to_string());
            screen.ends_with(&printed.chain([PROMPT.into()]).collect::<Vec<_>>())
        });
    });
}

#[test]
fn a_job_prints_above_a_line_that_is_half_typed() {
    at_once(SIZES, |size| {
        let folder = Folder::new(&format!("shell-above-{}", size.0));
        let Some(window) = Window::open(size, &folder, "shell -q") else {
            return;
        };
        window.ends(&[PROMPT]);
        window.line("sleep 1 | seq 3 &");
        window.ends(&["3", PROMPT]);
        window.text("half-");
        window.ends(&["[1] done: sleep 1 | seq 3", "trapline> half-"]);
        window.text("typed");
        window.ends(&["trapline> half-typed"]);
        let screen = window.screen();
        for expected in ["1", "2", "3"] {
            assert!(screen.iter().any(|line| line == expected), "{screen:?}");
        }
        window.key("C-u");
        // A stream of lines, among which a line is typed letter by letter.
        window.line("alive --every 3ms &");
        let has =
            |text: &'static str| move |screen: &[String]| screen.iter().any(|line| line == text);
        window.shows(has("[1] task 6"));
        window.ends(&["I'm alive", PROMPT]);
        for letter in "seq 777 | grep 776".chars() {
            window.text(&letter.to_string());
        }
        window.key("Enter");
        window.shows(has("776"));
        // Before its prompt the terminal itself would show what is typed.
        window.ends(&[PROMPT]);
        // Two more lines of the job behind this text: it is in front, and has the interrupt.
        window.line("seq 1888 | grep 1888; fg; seq 1999 | grep 1999");
        window.shows(|screen| {
            let after = screen.iter().skip_while(|line| **line != "1888");
            let mut next = after.skip(1).map(String::as_str);
            next.next() == Some("I'm alive") && next.next() == Some("I'm alive")
        });
        window.key("C-c");
        let end = |line: &String| line.ends_with("alive --every 3ms: killed");
        let screen = window.shows(|screen| {
            screen.iter().any(end) && screen.last().is_some_and(|last| last == PROMPT)
        });
        // No line is a mix of two.
        for line in &screen {
            let text = line.strip_prefix("^C").unwrap_or(line);
            let is_whole = ["", "1", "2", "3", "776", "1888", "I'm alive"].contains(&text)
                || text.starts_with(PROMPT)
                || text.starts_with('[')
                || end(line);
            assert!(is_whole, "{line:?} in {screen:#?}");
        }
    });
}

#[test]
fn an_interrupt_and_the_end_of_the_input_have_their_meanings() {
    at_once(SIZES, |size| {
        let folder = Folder::new(&format!("shell-keys-{}", size.0));
        let Some(window) = Window::open(size, &folder, "shell -q") else {
            return;
        };
        window.ends(&[PROMPT]);
        window.text("nothing of this");
        window.key("C-c");
        window.ends(&["trapline> nothing of this", PROMPT]);
        // A program in front has the terminal, and the interrupt.
        window.line("seq 1; cat");
        window.ends(&["trapline> seq 1; cat", "1"]);
        window.line("echoed");
        window.ends(&["echoed", "echoed"]);
        window.key("C-c");
        window.ends(&["^Ccat: killed", PROMPT]);
        window.line("seq 1; cat | wc");
        window.ends(&["trapline> seq 1; cat | wc", "1"]);
        window.line("one");
        window.key("C-d");
        window.ends(&["one", "1 1 4", PROMPT]);
        // A text without an end of its line stays whole.
        window.line("sleep 1000h &");
        window.ends(&["[1] task 9", PROMPT]);
        window.key("C-d");
        window.ends(&[ASKED, PROMPT]);
        window.line("nothing");
        let unknown = "nothing: there is no such program or command: see help";
        window.ends(&[unknown, PROMPT]);
        // Its code is that of the second one as well.
        window.line("exit 7");
        window.ends(&[ASKED, PROMPT]);
        window.key("C-d");
        window.shows(|screen| screen.iter().any(|line| line == "ended: 7"));
    });
}

/// A shell at a pseudoterminal, and what it has shown that was not waited for.
struct Typed {
    shell: Running,
    window: fs::File,
    seen: String,
}

impl Typed {
    fn open(args: &[&str]) -> Self {
        let (window, tty) = pty();
        let mut command = trapline(&[&["shell", "-q"], args].concat());
        let command = command.env("TERM", "xterm").stdin(tty.try_clone().unwrap());
        let command = command.stderr(Stdio::null());
        let shell = Running::start(command.stdout(tty));
        let seen = String::new();
        let mut typed = Self {
            shell,
            window,
            seen,
        };
        typed.sees(PROMPT);
        typed
    }

    /// Types all of it at once.
    fn keys(&mut self, keys: &str) {
        self.window.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text.
    #[track_caller]
    fn sees(&mut self, text: &str) {
        let begun = Instant::now();
        let mut piece = [0; 1000];
        let at = loop {
            if let Some(at) = self.seen.find(text) {
                break at + text.len();
            }
            let mut readable = [PollFd::new(&self.window, PollFlags::IN)];
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let ready = poll(&mut readable, Some(&left.try_into().unwrap())).unwrap();
            assert!(ready > 0, "{text:?} does not come: {:?}", self.seen);
            let read = self.window.read(&mut piece);
            let n = read.unwrap_or_else(|error| panic!("{text:?}: {error}: {:?}", self.seen));
            self.seen += &String::from_utf8_lossy(&piece[..n]);
        };
        self.seen.drain(..at);
    }

    fn exit(mut self) -> Option<i32> {
        // What is not read stays in the terminal, and its settings are not restored before.
        let mut window = self.window;
        let rest = thread::spawn(move || while window.read(&mut [0; 1000]).is_ok_and(|n| n > 0) {});
        let code = exit_of(&mut self.shell.child);
        rest.join().unwrap();
        code
    }
}

/// Keys that come together are read together, whatever ends the lines among them.
#[test]
fn no_key_is_lost_behind_the_end_of_a_line() {
    let mut typed = Typed::open(&[]);
    typed.keys("seq 11 | grep 11\rseq 22 | grep 22\n");
    typed.sees("\n11\r\n");
    typed.sees("\n22\r\n");
    typed.sees(PROMPT);
    typed.keys("x\x03seq 33 | grep 33\r");
    typed.sees("\n33\r\n");
    typed.sees(PROMPT);
    typed.keys("sleep 1000h &\r\x04seq 44 | grep 44\rkill 99\r\x03y\x03se\t55 | gre\t55\r");
    for text in [ASKED, "\n44\r\n", "no task 99", "\n55\r\n"] {
        typed.sees(text);
    }
    // Many lines, and a job that prints among them.
    typed.keys("alive --every 1ms &\r");
    typed.sees("I'm alive\r\n");
    let lines: String = (100..190)
        .map(|n| format!("seq {n} | grep {n}\r"))
        .collect();
    typed.keys(&lines);
    for n in 100..190 {
        typed.sees(&format!("\n{n}\r\n"));
    }
    typed.keys("exit\r");
    typed.sees(ASKED);
    typed.keys("exit\r");
    assert_eq!(typed.exit(), Some(0));
}

/// As through a pipe. The mark is typed with the line, and some lines are given up.
#[test]
fn a_long_session_that_is_typed_leaks_nothing() {
    let folder = Folder::new("shell-typed-session");
    let mut typed = Typed::open(&["--disk", &folder.path("")]);
    typed.keys("seq 3 > f; cat < f | cat & wait; nothing\r");
    typed.sees("no such program or command");
    let pid = Pid::from_child(&typed.shell.child);
    let mut source = Pcg64::seed_from_u64(1);
    // The editor has some of its own while it waits for a line.
    typed.sees(PROMPT);
    let before = descriptors(&typed.shell.child);
    for n in 1..=200 {
        let (line, blocks) = anything(&mut source);
        match blocks {
            true => typed.keys(&format!("half\x03mark-{n}; {line}\r")),
            false => typed.keys(&format!("{line}\rmark-{n}\r")),
        }
        typed.sees(&format!("mark-{n}: there is no such program or command"));
        if blocks {
            kill_process(pid, Signal::INT).unwrap();
        }
    }
    typed.keys("wait; tree > p; wc -l p\r");
    // The carrier of this text is there as well.
    typed.sees("\n2\r\n");
    typed.sees(PROMPT);
    eventually("what it had before", || {
        (descriptors(&typed.shell.child) == before).then_some(())
    });
    typed.keys("exit\r");
    assert!(typed.exit().is_some());
}

#[test]
fn a_simulated_world_is_typed_at_as_well() {
    let mut typed = Typed::open(&["--virtual", "--seed=1", "--on", "b:kv --addr 0.0.0.0:60"]);
    typed.keys("time sleep 2h\r");
    typed.sees("7200.000s\r\n");
    // A space of several bytes ends a word as well.
    typed.keys("seq 3 | wc\u{a0}--li\t\r");
    typed.sees("\n3\r\n");
    // A file of a simulated disk, and a host.
    typed.keys("seq 2 > alpha\rcat al\t\rhost b\t\r");
    typed.sees("\n1\r\n2\r\n");
    typed.sees("trapline@b>");
    typed.keys("exit\rfault crash b\rhost b\r");
    typed.sees("host b: ");
    typed.keys("exit\r");
    assert_eq!(typed.exit(), Some(1));
}

/// However a run ends amid a line, the terminal has its settings back.
#[test]
fn the_terminal_is_as_before_after_an_end_amid_a_line() {
    let cases: [(&[&str], Option<Signal>); 3] = [
        (&[], Some(Signal::TERM)),
        (&[], Some(Signal::HUP)),
        (&["--max-time=1s"], None),
    ];
    at_once(cases, |(args, signal)| {
        let mut typed = Typed::open(args);
        let window = typed.window.try_clone().unwrap();
        let modes = || tcgetattr(&window).unwrap().local_modes;
        let is_edited = || !modes().contains(LocalModes::ICANON);
        typed.keys("half of a line");
        typed.sees("half of a line");
        assert!(is_edited());
        if let Some(signal) = signal {
            kill_process(Pid::from_child(&typed.shell.child), signal).unwrap();
        }
        // A text that is pasted is no longer marked.
        typed.sees("\x1b[?2004l");
        typed.exit();
        assert!(!is_edited(), "{args:?} {signal:?}");
    });
}

#[test]
fn a_session_that_is_typed_is_taped_and_replayed() {
    let folder = Folder::new("shell-typed");
    let tape = folder.path("tape");
    let mut typed = Typed::open(&["--seed=1", "--tape", &tape]);
    for (keys, told) in [
        ("se\t2 | wc\r", "2 2 4\r\n"),
        ("sleep 20ms &\r", "[1] done: sleep 20ms\r\n"),
        ("nothing\x03seq 1\r", "\n1\r\n"),
        ("inject yield:delay=5ms\rtime seq 1\r", "ms\r\n"),
        (
            "\x1b[200~seq 6 | grep 6\rseq 7\x1b[201~ | grep 7\r",
            "\n7\r\n",
        ),
        ("policy fair\rwhy 1\r", "\"shell\" is running"),
        ("host b\r", "boot with --virtual"),
    ] {
        typed.keys(keys);
        typed.sees(told);
    }
    // Without a prompt the terminal itself takes it.
    typed.sees(PROMPT);
    typed.keys("\x04");
    assert_eq!(typed.exit(), Some(1));
    let (code, out, err) = run(&["replay", &tape]);
    assert_eq!(code, 1, "{err}");
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("2 2 4"));
    assert_eq!(lines.next(), Some("[1] task 6"));
    assert_eq!(lines.next(), Some("[1] done: sleep 20ms"));
    assert_eq!(lines.next(), Some("1"));
    assert!(out.contains("\n6\n7\n"), "{out}");
    let last = "host: this world has no simulated network: boot with --virtual";
    assert_eq!(lines.next_back(), Some(last), "{out}");
}
