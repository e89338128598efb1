//! The shell at a terminal: that of `tmux`, which has a screen, and a pseudoterminal.

use std::{
    fs,
    io::{Read, Write},
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
};

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
        let mut screen = Vec::new();
        let mut is_there = || {
            screen = self.screen();
            screen.ends_with(&lines.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        for _ in 0..400 {
            if is_there() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!(
            "the screen does not end with {lines:?}:\n{}",
            screen.join("\n")
        );
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
        let begun = |screen: &[String]| screen.iter().any(|line| line == "[1] task 6");
        eventually("the job", || begun(&window.screen()).then_some(()));
        window.ends(&["I'm alive", PROMPT]);
        for letter in "seq 777 | head -n 1".chars() {
            window.text(&letter.to_string());
        }
        window.key("Enter");
        let seen = |screen: &[String]| screen.iter().any(|line| line == "1");
        eventually("its text", || seen(&window.screen()).then_some(()));
        window.line("fg");
        window.key("C-c");
        eventually("its end", || {
            let screen = window.screen();
            screen
                .iter()
                .any(|line| line.ends_with(": killed"))
                .then_some(())
        });
        // No line is a mix of two.
        for line in window.screen() {
            let is_whole = line.ends_with("I'm alive")
                || line.starts_with(PROMPT)
                || line.ends_with(": killed")
                || ["", "1", "2", "3", "fg", "^C", "^Calive --every 3ms: killed"].contains(&&*line)
                || line.starts_with('[');
            assert!(is_whole, "{line:?} in {:#?}", window.screen());
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
        window.ends(&["Jobs run: end the input again to end them", PROMPT]);
        window.line("nothing");
        let unknown = "nothing: there is no such program or command: see help";
        window.ends(&[unknown, PROMPT]);
        window.key("C-d");
        window.ends(&["Jobs run: end the input again to end them", PROMPT]);
        window.key("C-d");
        let end = |line: &String| line == "ended: 1";
        eventually("the end", || window.screen().iter().any(end).then_some(()));
    });
}

/// Reads a terminal until its text ends so.
fn read_to(window: &mut fs::File, seen: &mut String, end: &str) {
    let mut piece = [0; 1000];
    while !seen.contains(end) {
        let n = window.read(&mut piece).expect("more comes");
        *seen += &String::from_utf8_lossy(&piece[..n]);
    }
    let rest = seen.find(end).expect("it is there") + end.len();
    seen.drain(..rest);
}

#[test]
fn a_session_that_is_typed_is_taped_and_replayed() {
    let folder = Folder::new("shell-typed");
    let tape = folder.path("tape");
    let (mut window, tty) = pty();
    let mut command = trapline(&["shell", "-q", "--seed=1", "--tape", &tape]);
    let command = command.env("TERM", "xterm").stdin(tty.try_clone().unwrap());
    let mut child = Running::start(command.stdout(tty));
    let mut seen = String::new();
    read_to(&mut window, &mut seen, PROMPT);
    for (typed, told) in [
        ("se\t2 | wc\r", "2 2 4\r\n"),
        ("sleep 20ms &\r", "[1] done: sleep 20ms\r\n"),
        ("nothing\x03", PROMPT),
        ("inject yield:delay=5ms\r", "delay=5ms"),
        ("time seq 1\r", "ms\r\n"),
        ("policy fair\r", "policy fair"),
        ("why 1\r", "\"shell\" is running"),
        ("host b\r", "boot with --virtual"),
    ] {
        window.write_all(typed.as_bytes()).unwrap();
        read_to(&mut window, &mut seen, told);
        read_to(&mut window, &mut seen, PROMPT);
    }
    window.write_all(b"\x04").unwrap();
    assert_eq!(exit_of(&mut child.child), Some(1));
    let (code, out, err) = run(&["replay", &tape]);
    assert_eq!(code, 1, "{err}");
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("2 2 4"));
    assert_eq!(lines.next(), Some("[1] task 6"));
    assert_eq!(lines.next(), Some("[1] done: sleep 20ms"));
    assert_eq!(lines.next(), Some("1"));
    let last = "host: this world has no simulated network: boot with --virtual";
    assert_eq!(lines.next_back(), Some(last), "{out}");
}
