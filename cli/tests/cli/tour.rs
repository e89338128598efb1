//! `tour`: five real runs, on a terminal one after the other.

use std::{io::Read, process::Stdio};

use rustix::process::Signal;

use crate::{
    screen::{Screen, trapline as on_terminal},
    support::{example, has, texts, trapline},
};

/// What a terminal would show of it: both streams.
fn shown(mut command: std::process::Command) -> String {
    let (mut reader, writer) = std::io::pipe().unwrap();
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().unwrap())
        .stderr(writer);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    text
}

/// The stops: the command of each, as a line for a shell, and what follows it.
fn stops(tour: &str) -> Vec<(String, String)> {
    let parts = (1..).zip(tour.split("\n$ ").skip(1));
    let stop = |(at, part): (u32, &str)| {
        let ends = part.match_indices('\n').map(|(end, _)| end);
        let mut ends = ends.filter(|end| !part[..*end].ends_with('\\'));
        let (line, output) = part.split_at(ends.next().unwrap());
        let next = [
            format!("\n\n{}/5 ", at + 1),
            "\n\nThat was the tour.".into(),
        ];
        let end = next.iter().find_map(|next| output.find(next.as_str()));
        (line.to_string(), output[1..=end.unwrap()].to_string())
    };
    parts.map(stop).collect()
}

#[test]
fn without_a_terminal_it_prints_five_stops_that_are_what_their_commands_print() {
    let tour = shown(trapline(&["tour"]));
    let stops = stops(&tour);
    assert_eq!(stops.len(), 5, "{tour}");
    for (at, (line, output)) in (1..).zip(&stops) {
        has(&tour, &format!("{at}/5 "));
        let words = line.strip_prefix(env!("CARGO_BIN_EXE_trapline")).unwrap();
        let mut shell = crate::support::command("sh", &["-c", &format!("exec \"$0\"{words}")]);
        shell.arg(env!("CARGO_BIN_EXE_trapline"));
        assert_eq!(*output, shown(shell), "{line}");
    }
    for (at, part) in [
        (0, "wait_task(2) ...\n"),
        (1, "  cycle: 2 -> 3 -> 2\n"),
        (2, " fails, seed "),
        (3, "most 2.0"),
        (4, "> back wake tid 2\n"),
    ] {
        has(&stops[at].1, part);
    }
    assert!(tour.lines().all(|line| !line.contains("Enter goes on")));
    let (code, out, err) = texts(trapline(&["tour"]).output().unwrap());
    assert_eq!(err, "", "a pager gets all of it");
    assert_eq!(
        code, 0,
        "two stops show a failure, and the tour has none: {err}"
    );
    has(&out, "That was the tour.");
}

#[test]
fn a_terminal_goes_on_by_enter_or_after_the_pause_and_ends_at_q() {
    let tour = |pause: &str, width| {
        let mut command = on_terminal();
        command.args(["tour", "--pause", pause]);
        Screen::start(command, width, 200)
    };
    let mut screen = tour("1h", 120);
    let text = screen.shows("the next stop comes in 1h");
    has(&text, "1/5 Two tasks");
    assert!(!text.contains("2/5"), "{text}");
    screen.press("\n");
    let text = screen.shows("cycle: 2 -> 3 -> 2");
    assert!(!text.contains("3/5"), "{text}");
    screen.press("q\n");
    let (code, text) = screen.end();
    assert_eq!(code, Some(0));
    assert!(!text.contains("3/5"), "{text}");

    let (code, text) = tour("0s", 120).end();
    assert_eq!(code, Some(0));
    has(&text, "5/5 A step back in the debugger");
    has(&text, "That was the tour.");

    let screen = tour("1h", 120);
    screen.shows("the next stop");
    screen.signal(Signal::INT);
    assert_ne!(screen.end().0, Some(0));
}

#[test]
fn a_binary_without_its_programs_hides_it_and_says_what_is_missing() {
    let (_, help, _) = texts(example("rude", &["--help"]).output().unwrap());
    assert!(!help.contains("tour"), "{help}");
    let (code, out, err) = texts(example("rude", &["tour"]).output().unwrap());
    assert_eq!((code, &*out), (1, ""));
    has(
        &err,
        "the tour needs the program 'wait', which this binary has not",
    );
    let (_, help, _) = texts(trapline(&["--help"]).output().unwrap());
    has(&help, "See what this is, in five stops of 20 seconds");
    let (code, _, err) = texts(trapline(&["tour", "--pause", "soon"]).output().unwrap());
    assert_eq!(code, 2, "{err}");
}
