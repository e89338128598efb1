//! `debug`: runs under a debugger that steps forward and back.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    process::Stdio,
    thread,
};

use rustix::process::Signal;

use crate::{
    replay::Folder,
    screen::{self, Screen},
    support::*,
};

/// What a debugger prints for these commands, about the run that the words name.
fn debug(commands: &[&str], run_of: &[&str]) -> String {
    let (code, out, err) = try_debug(commands, run_of);
    assert_eq!((code, &*err), (0, ""), "{out}");
    out
}

fn try_debug(commands: &[&str], run_of: &[&str]) -> (i32, String, String) {
    let commands = commands.iter().flat_map(|command| ["-c", command]);
    let args: Vec<&str> = ["debug"]
        .into_iter()
        .chain(commands)
        .chain(run_of.iter().copied())
        .collect();
    run(&args)
}

/// The place of the last line that has one.
fn place(out: &str) -> &str {
    let last = out.lines().rfind(|line| line.starts_with('#'));
    last.unwrap_or_else(|| panic!("no place in {out}"))
}

/// The tape of an echo server that one client has asked three times.
fn echo(folder: &Folder) -> String {
    let tape = folder.path("run.tape");
    let args = ["boot", "-q", "--tape", &tape, "echo", "--addr"];
    let mut server = Running::with_stdout(&[&args[..], &["127.0.0.1:0"]].concat());
    let line = server.out_line();
    let addr = line.split_whitespace().last().unwrap();
    let mut client = TcpStream::connect(addr).unwrap();
    for text in [&b"one"[..], b"two", b"three"] {
        client.write_all(text).unwrap();
        client.read_exact(&mut vec![0; text.len()]).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    server.signal(Signal::INT);
    assert_eq!(server.end().0, Some(130));
    tape
}

#[test]
fn a_deadlock_is_gone_back_from_to_its_cause() {
    let commands = [
        "continue",
        "waits",
        "back wake tid 2",
        "where",
        "back spawn",
        "here",
    ];
    let out = debug(&commands, &["--seed", "1", "deadlock"]);
    let expected = [
        "the run is over: deadlock: no task is ready",
        "cycle: 2 -> 3 -> 2",
        "> back wake tid 2\n00:00.001000 2 save: woken by its timer\n",
        "> where\ntask 2 \"save\" ready, parent 1, 2 traps\n",
        "its last call is at programs/cases/deadlock.rs:",
        "00:00.000000 2 save: spawned by 1\n",
    ];
    for text in expected {
        assert!(out.contains(text), "{text:?} is not in\n{out}");
    }
    assert!(place(&out).contains("new_task(\"save\")"), "{out}");
}

#[test]
fn a_place_is_the_same_from_either_side() {
    let run_of = ["--seed", "1", "producer-consumer"];
    let views = [
        "here", "ps", "tree", "waits", "where 2", "queues", "console",
    ];
    let from_before = debug(&[&["step 20"][..], &views].concat(), &run_of);
    let from_behind = debug(&[&["continue", "back 22"][..], &views].concat(), &run_of);
    let (_, before) = from_before.split_once("> here").unwrap();
    let (_, behind) = from_behind.split_once("> here").unwrap();
    assert_eq!(before, behind);
    assert!(before.contains("queue 1"), "{before}");
    assert!(before.contains("Producing"), "{before}");
}

#[test]
fn each_motion_ends_where_it_says() {
    let run_of = ["--seed", "1", "producer-consumer"];
    let at = |commands: &[&str]| place(&debug(commands, &run_of)).to_string();
    let first = at(&["step"]);
    assert!(first.starts_with("#1 "), "{first}");
    assert_eq!(at(&["turn"]), first);
    assert_eq!(at(&["step 9", "back 8"]), first);
    assert_eq!(at(&["continue", "goto #1"]), first);
    let put = at(&["until put"]);
    assert!(put.contains("put(queue 1)"), "{put}");
    assert_eq!(at(&["break put tid 2", "continue"]), put);
    let later = at(&["until at 2.5s"]);
    assert!(later.contains("00:0"), "{later}");
    assert_eq!(at(&["continue", "back at 2500ms"]), later);
    assert_eq!(
        at(&["step 9", "back spawn tid 1"]),
        "#0 before the first call"
    );
    let next = at(&["until put", "next"]);
    assert!(next.contains(" 2 producer "), "{next}");
    let printed = at(&["until print Consuming 3"]);
    assert_eq!(at(&["continue", "back print Consuming 3"]), printed);
    let over = at(&["continue"]);
    assert!(over.contains("exited: done"), "{over}");
    assert_eq!(
        at(&["break end tid 1", "continue", "delete 1", "break"]),
        over
    );
}

#[test]
fn a_call_without_a_place_shows_none_of_another_task() {
    let out = debug(
        &["step 5", "where 2", "back wait_task", "here"],
        &["--seed", "1", "wait"],
    );
    let (before, after) = out.split_once("> back wait_task").unwrap();
    assert!(before.contains("yield()"), "{before}");
    assert!(!before.contains("last call is at"), "{before}");
    assert!(!place(before).contains(" at "), "{before}");
    assert!(place(after).contains("  at programs/"), "{after}");
}

/// The task has the line of its spawn until it makes a call.
#[test]
fn the_first_call_of_a_task_does_not_show_the_line_of_its_spawn() {
    let out = debug(&["step 3", "where 2"], &["--seed", "1", "wait"]);
    assert!(
        place(&out).ends_with(" 2 foo          get_tid()                    = 2"),
        "{out}"
    );
    assert!(!out.contains("last call is at"), "{out}");
}

#[test]
fn a_task_that_has_ended_is_shown_with_its_end() {
    for program in ["wait", "kill", "promise", "producer-consumer"] {
        let out = debug(&["continue", "where 1"], &["--seed", "1", program]);
        assert!(place(&out).contains(": exited: "), "{out}");
        assert!(!out.contains(" ?"), "{out}");
        let (_, said) = out.split_once("> where 1\n00:").unwrap();
        assert!(
            said.contains(&format!(" 1 {program}: exited: done\n")),
            "{out}"
        );
        assert!(said.ends_with("back end tid 1 goes there\n"), "{out}");
        let there = debug(&["continue", "back end tid 1"], &["--seed", "1", program]);
        assert!(place(&there).contains(" exited: done"), "{there}");
    }
    // While others go on, as well.
    let commands = [
        "until end tid 2",
        "step",
        "where 2",
        "back end tid 2",
        "where 99",
    ];
    let args = commands.map(|command| ["-c", command]).concat();
    let (code, out, err) = run(&[&["debug"], &args[..], &["--seed", "1", "kill"]].concat());
    has(&out, "> where 2\n00:00.000000 2 foo: exited: killed\n");
    assert_eq!(code, 2);
    has(&err, "there is no task 99; ps lists the tasks");
}

#[test]
fn the_simulated_world_may_be_asked_for() {
    let said = debug(&["step"], &["--virtual", "--seed", "1", "tids"]);
    assert_eq!(said, debug(&["step"], &["--seed", "1", "tids"]));
}

#[test]
fn the_usage_names_the_binary() {
    let (_, help, _) = run(&["debug", "--help"]);
    for line in [
        "Usage: trapline debug [OPTIONS] FILE",
        "       trapline debug [OPTIONS] [OPTIONS OF BOOT]",
    ] {
        assert!(help.contains(line), "{help}");
    }
}

#[test]
fn a_turn_has_as_many_calls_as_the_quantum() {
    let of = ["--seed", "1", "--quantum", "3", "tids"];
    let calls = |commands: &[&str]| {
        let out = debug(commands, &of);
        let number = place(&out).split_whitespace().next().map(str::to_string);
        number.unwrap()[1..].parse::<u32>().unwrap()
    };
    let (one, two) = (calls(&["turn"]), calls(&["turn 2"]));
    assert!(
        (1..=3).contains(&one) && (1..=3).contains(&(two - one)),
        "{one} {two}"
    );
}

#[test]
fn a_panic_that_ends_the_process_is_printed() {
    let mut command = rude(&["debug", "-c", "continue", "panics", "--twice"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), None, "a signal has ended it");
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("and again"), "{err}");
    has(&err, "panic in a destructor during cleanup");
}

#[test]
fn a_fault_of_a_task_is_silent_and_stopped_at() {
    let args = ["debug", "-c", "break fault", "-c", "continue", "panics"];
    let (code, out, err) = texts(rude(&args).output().unwrap());
    assert_eq!((code, &*err), (0, ""));
    assert!(out.contains("exited: faulted: as it was told to"), "{out}");
    assert!(out.contains("at cli/examples/rude.rs:"), "{out}");
}

#[test]
fn a_tape_is_stepped_through_without_its_clients() {
    let folder = Folder::new("debug-echo");
    let tape = echo(&folder);
    let (code, printed, _) = run(&["replay", "-q", &tape]);
    assert_eq!(code, 0);
    let commands = [
        "break recv tid 2",
        "continue",
        "ps",
        "delete 1",
        "continue",
        "console",
    ];
    let out = debug(&commands, &[&tape]);
    assert!(out.contains("breakpoint 1: "), "{out}");
    assert!(out.contains("2  client"), "{out}");
    has(&out, "the run is over: all tasks have ended");
    // The interrupt has ended the server.
    assert!(place(&out).contains(" 1 echo: exited: "), "{out}");
    let (_, console) = out.split_once("> console\n").unwrap();
    assert_eq!(console, printed);
    let out = debug(&["continue", "back send", "back 2", "where 2"], &[&tape]);
    assert!(out.contains("send(2, 5)"), "{out}");
    assert!(out.contains("programs/echo.rs:"), "{out}");
}

#[test]
fn what_is_sent_to_an_attached_standard_output_is_on_the_console() {
    let folder = Folder::new("debug-attached");
    let tape = folder.path("run.tape");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut request = BufReader::new(client.try_clone().unwrap()).lines();
        while request.next().is_some_and(|line| !line.unwrap().is_empty()) {}
        let page = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nthe page\n";
        client.write_all(page).unwrap();
    });
    let (code, page, err) = run(&["boot", "-q", "--tape", &tape, "http-get", &url]);
    server.join().unwrap();
    assert_eq!((code, &*page), (0, "the page\n"), "{err}");
    let out = debug(&["continue", "console", "goto 1", "console"], &[&tape]);
    let (_, console) = out.split_once("> console\n").unwrap();
    assert!(console.starts_with("the page\n> goto 1\n"), "{out}");
    assert!(console.ends_with("> console\n"), "{out}");
}

#[test]
fn commands_come_from_standard_input_too() {
    let mut child = trapline(&["debug", "--seed", "1", "tids"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"s\n\nquit\nstep\n").unwrap();
    drop(stdin);
    let (code, out, _) = texts(child.wait_with_output().unwrap());
    assert_eq!(code, 0);
    assert!(
        out.starts_with("> s\n#1 ") && out.ends_with("> \n"),
        "{out}"
    );
}

#[test]
fn a_motion_to_what_never_comes_says_so() {
    for (command, missed) in [
        ("next 99", "call tid 99"),
        ("until get tid 99", "get tid 99"),
        ("until at 1h", "at 60:00.000"),
    ] {
        let out = debug(&[command], &["--seed", "1", "tids"]);
        let text = format!("> {command}\n{missed} was not met\n#");
        assert!(out.starts_with(&text), "{out}");
        assert!(out.contains("the run is over"), "{out}");
    }
}

#[test]
fn a_limit_names_the_blocked_tasks() {
    let of = ["--max-ticks", "20", "--seed", "1", "producer-consumer"];
    let out = debug(&["continue"], &of);
    let (_, over) = out
        .split_once("the run is over: the limit of 20 ticks is reached: ")
        .unwrap();
    assert!(over.starts_with("raise --max-ticks\n  tid "), "{out}");
    assert!(over.contains("producer"), "{out}");
    let (_, help, _) = run(&["debug", "--help"]);
    assert!(help.contains("--max-ticks and --max-time"), "{help}");
    let slow = "Without a screen, a motion that takes long says where it is";
    let words: Vec<&str> = help.split_whitespace().collect();
    assert!(words.join(" ").contains(slow), "{help}");
}

#[test]
fn a_run_ends_where_boot_ends_it() {
    let cases: [(&[&str], i32); 5] = [
        (&["--max-ticks", "15", "kill"], 0),
        (&["--max-ticks", "0", "tids"], 4),
        (&["--max-time", "1s", "alive"], 4),
        (&["--max-time", "10ms", "jobs", "--job", "0,10ms"], 0),
        (&["--max-time", "0s", "alive"], 4),
    ];
    for (run_of, ends) in cases {
        let boot = [&["boot", "-q", "--virtual", "--seed", "1"], run_of].concat();
        let (code, printed, err) = run(&boot);
        assert_eq!(code, ends, "{run_of:?}: {err}");
        let commands = ["continue", "console"];
        let out = debug(&commands, &[&["--seed", "1"], run_of].concat());
        let (over, console) = out.split_once("> console\n").unwrap();
        assert_eq!(console, printed, "{run_of:?}");
        let (_, over) = over.split_once("the run is over: ").unwrap();
        match err.strip_prefix("error: ") {
            Some(why) => assert_eq!(over, why, "{run_of:?}"),
            None => assert_eq!(over, "all tasks have ended\n", "{run_of:?}"),
        }
    }
}

#[test]
fn a_tape_that_a_limit_has_ended_ends_with_it() {
    let folder = Folder::new("debug-limit");
    let tape = folder.path("run.tape");
    let boot = ["boot", "-q", "--max-time", "30ms", "--tape", &tape];
    let (code, _, err) = run(&[&boot[..], &["echo", "--addr", "127.0.0.1:0"]].concat());
    assert_eq!(code, 4, "{err}");
    let out = debug(&["continue"], &[&tape]);
    let why = "the run is over: the limit of 30ms is reached: raise --max-time\n  tid 1";
    assert!(out.contains(why), "{out}");
}

#[test]
fn what_is_wrong_with_a_command_is_said() {
    let cases = [
        ("bakc", "there is no command 'bakc': did you mean 'back'?"),
        ("step x", "it takes a whole number"),
        ("step 1 2", "it takes one number"),
        ("back", "only 0 calls were made before"),
        ("back fault", "fault was not met before"),
        ("break at", "it takes one time"),
        ("break at 1s tid 2", "leave out tid"),
        ("break recvv", "did you mean 'recv'?"),
        (
            "break nonsense",
            "there is no call or condition 'nonsense'\n",
        ),
        ("break recv 3", "only tid N can follow"),
        ("until print", "it takes a text"),
        ("delete 7", "there is no breakpoint 7"),
        ("where", "no task has made a call: give a TID"),
        ("where 99", "there is no task 99"),
        ("where 0", "0 is the kernel"),
        ("next 0", "0 is the kernel"),
        ("until get tid 0", "0 is the kernel"),
        ("until at 0s", "the run begins at 0s: goto 0 goes there"),
        ("back at 0s", "the run begins at 0s: goto 0 goes there"),
        ("ps all", "it takes no 'all'"),
        ("goto here", "it takes a whole number"),
    ];
    for (command, expected) in cases {
        let (code, _, err) = try_debug(&[command], &["--seed", "1", "tids"]);
        assert_eq!(code, 2, "{command}");
        has(&err, &format!("in the command {command:?}: "));
        assert!(err.contains(expected), "{err}");
    }
    let of = ["--seed", "1", "producer-consumer"];
    let (code, _, err) = try_debug(&["until at 3s", "until at 2s"], &of);
    assert_eq!(code, 2);
    let why = "it is 00:03.000000 already: back at 00:02.000 goes there";
    assert!(err.contains(why), "{err}");
    for command in ["next 2", "until yield tid 2"] {
        let (code, _, err) = try_debug(&["until end tid 2", command], &["--seed", "1", "kill"]);
        assert_eq!(code, 2);
        let why = "the task has ended (00:00.000000 2 foo: exited: killed): back ";
        assert!(err.contains(why), "{err}");
    }
    let (code, _, err) = try_debug(&["continue", "step"], &["tids"]);
    assert_eq!(code, 2);
    assert!(err.contains("the run is over: only back, goto"), "{err}");
}

#[test]
fn what_cannot_be_debugged_is_refused() {
    let (code, out, err) = run(&["debug", "wiat"]);
    assert_eq!((code, &*out), (1, ""));
    assert_eq!(
        err,
        "error: there is no program 'wiat': did you mean 'wait'?\n"
    );
    let refused = |args: &[&str], code: i32, expected: &str| {
        let (is, out, err) = run(&[&["debug"], args].concat());
        assert_eq!((is, &*out), (code, ""), "{err}");
        assert!(err.contains(expected), "{err}");
    };
    refused(
        &["nothing"],
        1,
        "there is neither a program nor a tape of this name",
    );
    refused(&["Cargo.toml"], 1, "this is no tape of trapline");
    refused(
        &["/dev/null"],
        1,
        "it is no file, and each motion back reads",
    );
    refused(
        &["--seed", "1", "Cargo.toml"],
        2,
        "the tape Cargo.toml holds the options of its run: leave out the others",
    );
    refused(
        &["Cargo.toml", "--plain", "-c", "next"],
        2,
        "nothing follows the tape Cargo.toml: options of debug go before it",
    );
    refused(
        &["--trace", "tids"],
        2,
        "leave out the options for watching one",
    );
    refused(&["--seed", "x", "tids"], 2, "it takes a whole number");
    refused(
        &["--kernels", "2", "tids"],
        2,
        "the debugger steps through one kernel: leave --kernels out",
    );
    refused(
        &["--share", "tids:nice=5", "tids"],
        2,
        "--share tids:nice=5 does nothing under fifo",
    );
    refused(
        &["tids", "--nonsense"],
        2,
        "unexpected argument '--nonsense'",
    );
    for option in ["-c", "--command", "--plain"] {
        let why = format!("error: {option} is an option of debug, and goes before");
        refused(&["--seed", "1", option, "tids"], 2, &why);
        refused(&["tids", option], 2, &why);
    }
}

#[test]
fn the_screen_shows_a_run_that_keys_move() {
    let mut command = screen::trapline();
    command.args(["debug", "--seed", "1", "producer-consumer"]);
    let mut screen = Screen::start(command, 120, 30);
    screen.shows("#0 before the first call");
    screen.press("s");
    screen.shows("#1 ");
    screen.press(":until put\n");
    screen.until(|text| {
        text.contains("put(queue 1)") && text.contains("2  producer") || text.contains("2 producer")
    });
    screen.press("q");
    screen.until(|text| text.contains("answer (esc)") && text.contains("room for"));
    screen.press("\x1b");
    screen.until(|text| text.contains("details") && !text.contains("room for"));
    screen.press(":nonsense\r");
    screen.shows("there is no command 'nonsense'");
    screen.press("c");
    let text = screen.shows("the run is over: all tasks have ended");
    assert!(text.contains("Producing 9"), "the console: {text}");
    let ends = text.matches(": exited: done").count();
    assert_eq!(ends, 2, "the details, too: {text}");
    screen.press("b");
    // An interrupt before the motion is over would only stop that.
    let is_still = |text: &str| text.contains('#') && !text.contains("(^C stops it)");
    screen.until(|text| is_still(text) && !text.contains("the run is over"));
    screen.signal(Signal::INT);
    let (code, text) = screen.end();
    assert_eq!((code, text.trim()), (Some(0), ""));
}

#[test]
fn the_screen_shows_the_lines_around_a_call_and_always_its_number() {
    for (width, height) in [(120, 50), (44, 50)] {
        let mut command = screen::trapline();
        command.current_dir(ROOT);
        command.args(["debug", "--seed", "1", "convoy"]);
        let mut screen = Screen::start(command, width, height);
        screen.shows("#0 before the first call");
        screen.press(":until sleep\n");
        // The place of the call is in the line of the motion, and in the title of the pane.
        let place = |text: &str| {
            let places = text.split(".rs:").skip(1).map(|rest| {
                let digits = rest.split(|letter: char| !letter.is_ascii_digit());
                digits.map(str::to_string).next().unwrap_or_default()
            });
            places.collect::<Vec<String>>()
        };
        let text = screen.until(|text| text.contains("sleep(5ms)") && place(text).len() > 2);
        let source = fs::read_to_string(format!("{ROOT}/programs/cases/convoy.rs")).unwrap();
        let at = place(&text)[0].parse::<usize>().unwrap();
        let line = source.lines().nth(at - 1).unwrap();
        assert!(line.contains("sleep("), "{line}");
        let pane = format!(">{at:4} {line}");
        let pane: String = pane.chars().take(usize::from(width).min(44)).collect();
        assert!(text.contains(pane.trim_end()), "{pane}\n{text}");
        let before = format!(" {:4} ", at - 1);
        has(&text, &before);
        screen.press(":quit\n");
        assert_eq!(screen.end().0, Some(0));
    }
}

#[test]
fn a_small_screen_scrolls_a_long_answer() {
    let mut command = screen::trapline();
    command.args(["debug", "--seed", "1", "tids"]);
    let mut screen = Screen::start(command, 80, 24);
    let text = screen.shows("#0 before the first call");
    assert!(text.contains("? help  ^C end"), "{text}");
    screen.press("?");
    screen.until(|text| text.contains("scroll it") && text.contains("step [N]"));
    screen.press("\x1b[6~");
    screen.until(|text| text.contains("scroll it") && !text.contains("step [N]"));
    screen.press("\x1b[F");
    screen.shows("has no reply so far");
    screen.press("\x1b[H");
    screen.shows("step [N]");
    screen.press("\x1b[B");
    screen.until(|text| text.contains("turn [N]") && !text.contains("step [N]"));
    screen.press("\x1b");
    screen.until(|text| text.contains("details"));
    assert_eq!(screen.hang_up(), Some(1), "the terminal has gone");
}
