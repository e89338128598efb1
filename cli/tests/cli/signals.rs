//! Signals that programs catch: S73.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::{replay::Folder, support::*};

/// Boots the program that catches all signals, and waits until it has.
fn catches(options: &[&str], args: &[&str]) -> Running {
    let mut command = rude(&[&["boot"], options, &["catches"], args].concat());
    let mut run = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(run.out_line(), "ready\n");
    run
}

#[test]
fn s73_a_program_that_catches_signals_ends_well_under_every_option() {
    let folder = Folder::new("catches");
    let [tape, trap, socket] = ["run.tape", "run.trap", "run.sock"].map(|name| folder.path(name));
    let options: [&[&str]; 5] = [
        &[],
        &["--record", &trap],
        &["--tape", &tape],
        &["--summary", "--exits", "--trace"],
        &["--monitor", &socket],
    ];
    for options in options {
        let mut run = catches(options, &[]);
        for (signal, name) in [
            (Signal::HUP, "SIGHUP\n"),
            (Signal::USR1, "SIGUSR1\n"),
            (Signal::INT, "SIGINT\n"),
            (Signal::INT, "SIGINT\n"),
            (Signal::TERM, "SIGTERM\n"),
        ] {
            run.signal(signal);
            assert_eq!(run.out_line(), name, "{options:?}");
        }
        let (code, err) = run.end();
        assert_eq!(code, Some(0), "{options:?}: {err}");
        assert!(!err.contains("interrupted"), "{options:?}: {err}");
        if options.contains(&"--summary") {
            has(&err, "signal SIGTERM");
            has(
                &err,
                "next(signals 1 \"SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2\") = SIGTERM",
            );
            has(&err, "catch");
            has(&err, "exited: done");
        }
    }
    let shown = texts(rude(&["trace", "show", &trap]).output().unwrap()).1;
    has(&shown, "signal SIGUSR1");
    has(&shown, "= SIGTERM");
    has(&shown, "exited: done");
    let all = "ready\nSIGHUP\nSIGUSR1\nSIGINT\nSIGINT\nSIGTERM\n";
    let again = texts(rude(&["replay", "-q", &tape]).output().unwrap());
    assert_eq!(again, (0, all.into(), String::new()));
    let again = rude(&["replay", "--trace", &tape]).output().unwrap();
    has(&texts(again).2, "signal SIGTERM");
}

#[test]
fn s73_a_second_interrupt_ends_a_program_that_does_not_take_the_first() {
    let folder = Folder::new("deaf");
    let trap = folder.path("run.trap");
    let mut run = catches(&["--record", &trap], &["--deaf"]);
    // These are messages.
    run.signal(Signal::TERM);
    run.signal(Signal::TERM);
    assert_eq!(interrupt_to_the_end(&mut run.child), Some(130));
    let shown = texts(rude(&["trace", "show", &trap]).output().unwrap()).1;
    has(&shown, "catch(");
}

#[test]
fn s73_a_signal_that_the_program_has_given_up_has_its_default_action() {
    for (signal, code, said) in [
        (Signal::INT, 130, "interrupted: shutting down"),
        (Signal::TERM, 143, "interrupted: shutting down"),
        (Signal::HUP, 129, "interrupted: shutting down"),
        (
            Signal::USR1,
            128 + Signal::USR1.as_raw(),
            "SIGUSR1 has ended the run",
        ),
    ] {
        let mut run = catches(&["--summary"], &[]);
        run.signal(Signal::USR2);
        assert_eq!(run.out_line(), "SIGUSR2\n");
        assert_eq!(run.out_line(), "given up\n");
        run.signal(signal);
        let (ended, err) = run.end();
        assert_eq!(ended, Some(code), "{err}");
        has(&err, said);
        has(&err, "killed");
    }
}

#[test]
fn s73_a_hangup_that_was_ignored_at_the_start_stays_ignored() {
    let mut command = Command::new("sh");
    let rude = rude(&[]);
    let script = "trap '' HUP; exec \"$0\" boot -q catches";
    command.args(["-c", script]).arg(rude.get_program());
    let mut run = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(run.out_line(), "ready\n");
    run.signal(Signal::HUP);
    run.signal(Signal::USR1);
    assert_eq!(run.out_line(), "SIGUSR1\n");
    run.signal(Signal::TERM);
    assert_eq!(run.out_line(), "SIGTERM\n");
    assert_eq!(run.end(), (Some(0), String::new()));
}

#[test]
fn s73_signals_of_the_command_line_come_at_their_times_in_the_simulated_world() {
    let boot = |args: &[&str]| {
        let all = [&["boot", "--virtual", "--seed", "1"], args].concat();
        texts(rude(&all).output().unwrap())
    };
    let (code, out, err) = boot(&["--signal", "2s:TERM", "--signal", "1s:SIGHUP", "catches"]);
    assert_eq!((code, &*out), (0, "ready\nSIGHUP\nSIGTERM\n"), "{err}");
    // It is there when the task takes it, an hour later.
    let (code, out, err) = boot(&["--signal", "3s:TERM", "catches", "--deaf"]);
    assert_eq!((code, &*out), (0, "ready\nSIGTERM\n"), "{err}");
    let (code, out, err) = boot(&["--signal", "00:03.000:HUP", "hogs", "--after", "1day"]);
    assert_eq!((code, &*out), (129, ""));
    has(&err, "SIGHUP has ended the run");
    let (code, _, err) = boot(&[
        "--signal", "1s:INT", "--signal", "2s:INT", "catches", "--deaf",
    ]);
    assert_eq!(code, 130);
    has(&err, "SIGINT has ended the run");
    // Nothing is outside.
    let (code, _, err) = boot(&["catches"]);
    assert_eq!(code, 3);
    has(
        &err,
        "waits for signals 1 \"SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2\"",
    );
}

#[test]
fn a_search_has_signals() {
    let explore = [
        "explore",
        "--schedules",
        "20",
        "--signal",
        "1s:TERM",
        "catches",
    ];
    let (code, out, err) = texts(rude(&explore).output().unwrap());
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn a_wrong_signal_is_explained() {
    for (args, why) in [
        (
            &["--virtual", "--signal", "3s"][..],
            "it takes a time and a signal, such as 3s:TERM",
        ),
        (
            &["--virtual", "--signal", "3s:KILL"],
            "these are INT, TERM, HUP, USR1 and USR2",
        ),
        (
            &["--virtual", "--signal", "soon:TERM"],
            "it takes a time since boot",
        ),
        (
            &["--signal", "3s:TERM"],
            "--signal needs --virtual: in the real world, send signals to",
        ),
        (
            &["--virtual", "--signal", "3s:TERM", "--max-time", "2s"],
            "--signal: SIGTERM at 3s is after --max-time, and would not come",
        ),
    ] {
        let (code, out, err) = run(&[&["boot"], args, &["parts"]].concat());
        assert_eq!((code, &*out), (2, ""), "{args:?}");
        has(&err, why);
    }
    // The run of `parts` takes no time. One that waits for a signal goes on until it comes.
    for (program, why) in [
        (
            "parts",
            "--signal did nothing: the run ended before SIGTERM came, at 3s\n",
        ),
        (
            "deadlock",
            "SIGTERM has ended the run: no task has taken it\n",
        ),
    ] {
        let (_, _, err) = run(&[
            "boot",
            "--virtual",
            "--seed",
            "1",
            "--signal",
            "3s:TERM",
            program,
        ]);
        assert!(err.ends_with(why), "{err}");
        assert_eq!(err.matches("SIGTERM").count(), 1, "{err}");
    }
}
