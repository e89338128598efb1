//! Tapes of several kernels, and their replays.

use super::*;

#[test]
fn tapes_of_kernels_are_replayed_together_and_alone() {
    let folder = Folder::new("cores-tape");
    let [tape, values] = ["run.tape", "values.tape"].map(|name| folder.path(name));
    let printed = couriers(&["--tape", &tape], &[]);
    couriers(&["--tape", &values], &["--recorded"]);
    let replay = |file: &str| texts(rude(&["replay", "-q", file]).output().unwrap());
    for tape in [&tape, &values] {
        assert_eq!(replay(tape), (0, printed.clone(), String::new()));
    }
    // The first prints, and the second does not.
    assert_eq!(
        replay(&format!("{values}.1")),
        (0, printed.clone(), String::new())
    );
    assert_eq!(
        replay(&format!("{values}.2")),
        (0, String::new(), String::new())
    );
    // A recording of the replay is of both.
    let trap = folder.path("again.trap");
    let again = rude(&["replay", "-q", "--record", &trap, &tape])
        .output()
        .unwrap();
    assert_eq!(texts(again).0, 0);
    has(
        &texts(trapline(&["trace", "show", &trap]).output().unwrap()).1,
        " 2:1 couriers",
    );
    let one = format!("{tape}.1");
    for args in [
        &["replay", "--explore", "3", &tape][..],
        &["replay", "--task", "1", &tape],
        &["replay", "--as-test", "two", &tape],
        &["debug", "-c", "continue", &tape],
    ] {
        let (code, _, err) = texts(rude(args).output().unwrap());
        assert_eq!(code, 2, "{err}");
        has(&err, "is the tapes of several kernels");
        has(&err, &format!(": name its file, such as {one}\n"));
    }
    let (code, _, err) = texts(rude(&["replay", "--explore", "3", &one]).output().unwrap());
    assert_eq!(code, 2, "{err}");
    has(&err, "--explore is for a kernel alone");
    // A tape in the place of another.
    let wrong = folder.path("wrong.tape");
    for kernel in 1..=2 {
        fs::copy(&one, format!("{wrong}.{kernel}")).unwrap();
    }
    // Each of these waits for mail for ten seconds.
    let alone = [1, 2].map(|kernel| {
        (
            format!("{tape}.{kernel}"),
            "a message that is not put again",
        )
    });
    let cases = alone.into_iter().chain([(wrong, "is no tape of kernel 2")]);
    at_once(cases, |(file, why)| {
        let (code, _, err) = replay(&file);
        assert_eq!(code, 1, "{err}");
        has(&err, why);
    });
}

#[test]
fn a_server_that_a_signal_ends_replays_in_all_kernels() {
    let folder = Folder::new("cores-served");
    let tape = folder.path("run.tape");
    let options = ["--tape", &tape];
    let (run, addr) = serve(&options, &["echo", "--addr", "127.0.0.1:0"]);
    talk(addr, 32);
    run.signal(Signal::TERM);
    let (code, err) = run.end();
    assert_eq!(code, Some(0), "{err}");
    for kernel in 1..=2 {
        has(&err, &format!("taped to {tape}.{kernel}"));
    }
    let replay = |file: &str| texts(trapline(&["replay", "-q", file]).output().unwrap());
    let (code, out, err) = replay(&tape);
    assert_eq!((code, &*err), (0, ""));
    // Each says where it listens, as it did, and has the clients that it had.
    let listens = |line: &&str| line.contains(&addr.to_string());
    assert_eq!(out.lines().filter(listens).count(), 2, "{out}");
    assert_eq!(out.matches("Client closed").count(), 32, "{out}");
    for kernel in 1..=2 {
        let (code, _, err) = replay(&format!("{tape}.{kernel}"));
        assert_eq!((code, &*err), (0, ""));
    }
}

#[test]
fn a_replay_of_a_limited_run_is_the_same_each_time() {
    let folder = Folder::new("cores-limited");
    let (tape, again) = (folder.path("run.tape"), folder.path("again.trap"));
    let boot = [
        "boot",
        "-q",
        "--kernels",
        "2",
        "--seed",
        "5",
        "--tape",
        &tape,
    ];
    let program = ["--max-ticks", "40", "alive", "--every", "1ms"];
    let (code, _, err) = run(&[&boot[..], &program].concat());
    assert_eq!(code, 4, "{err}");
    let replayed = || {
        let outcome = run(&["replay", "-q", "--record", &again, &tape]);
        let files = [1, 2].map(|kernel| fs::read(format!("{again}.{kernel}")).unwrap());
        (outcome, files)
    };
    let first = replayed();
    assert_eq!(first.0.0, 4, "{}", first.0.2);
    // One of them has come to its limit, with a line for each two ticks.
    assert!(first.0.1.lines().count() > 10, "{}", first.0.1);
    for _ in 0..19 {
        assert_eq!(replayed(), first);
    }
}

#[test]
fn a_replay_of_kernels_begins_only_with_all_tapes() {
    let folder = Folder::new("cores-missing");
    let tape = folder.path("run.tape");
    couriers(&["--tape", &tape], &[]);
    let other = format!("{tape}.2");
    let whole = fs::read(&other).unwrap();
    let replay = || texts(rude(&["replay", "-q", &tape]).output().unwrap());
    // One of the two lost its end, which has no mail.
    fs::write(&other, &whole[..whole.len() - 1]).unwrap();
    let (code, _, err) = replay();
    assert_eq!(code, 1, "{err}");
    has(&err, "error: kernel 2: the tape ends at byte");
    assert!(!err.contains(LACKS), "{err}");
    for (bytes, why) in [
        (&b""[..], "the file is empty"),
        (b"abc", "does not begin like one"),
    ] {
        fs::write(&other, bytes).unwrap();
        let (code, out, err) = replay();
        assert_eq!((code, &*out), (1, ""), "{err}");
        has(&err, &format!("{other}: "));
        has(&err, why);
    }
    fs::remove_file(&other).unwrap();
    let (code, out, err) = replay();
    assert_eq!((code, &*out), (1, ""), "{err}");
    has(&err, "No such file");
}

const LACKS: &str = "kernel 1: its tape needs a message that another kernel would have put later";

/// It is no change of the program, and an error only if the tape was not meant to end there.
#[test]
fn mail_from_behind_the_end_of_a_tape_is_told_as_that() {
    let folder = Folder::new("cores-short");
    let [tape, limited] = ["run.tape", "limited.tape"].map(|name| folder.path(name));
    couriers(&["--seed", "1", "--tape", &tape], &[]);
    couriers(
        &["--seed", "1", "--tape-max", "300", "--tape", &limited],
        &[],
    );
    let whole = fs::read(format!("{tape}.2")).unwrap();
    let half = whole.len() / 2;
    let mut flipped = whole.clone();
    flipped[half] ^= 4;
    let limited = fs::read(format!("{limited}.2")).unwrap();
    // Each waits for the mail for ten seconds.
    let cases = [
        (
            "half",
            &whole[..half],
            1,
            "error: kernel 2: the tape ends at byte",
        ),
        (
            "flipped",
            &flipped,
            1,
            "error: kernel 2: the tape is damaged at byte",
        ),
        ("short", &limited, 0, "it had reached its limit"),
    ];
    at_once(cases, |(name, bytes, expected, why)| {
        let file = folder.path(name);
        fs::copy(format!("{tape}.1"), format!("{file}.1")).unwrap();
        fs::write(format!("{file}.2"), bytes).unwrap();
        let (level, options) = match expected {
            0 => ("warning", &["replay"][..]),
            _ => ("error", &["replay", "-q"][..]),
        };
        let replay = rude(&[options, &[&*file]].concat()).output();
        let (code, _, err) = texts(replay.unwrap());
        assert_eq!(code, expected, "{err}");
        has(&err, &format!("{level}: {LACKS}"));
        has(&err, why);
    });
}
