//! Files that are empty, foreign, cut or damaged. Every reader tells by its exit code, and on standard error.

use std::fs;

use crate::{replay::Folder, support::*};

/// What reads a recording, with options of its own.
const READERS: [&[&str]; 12] = [
    &["show"],
    &["summary"],
    &["summary", "--json"],
    &["path"],
    &["waits"],
    &["ps"],
    &["tree"],
    &["why", "1"],
    &["export", "--format", "chrome"],
    &["export", "--format", "folded"],
    &["timeline", "--format", "svg"],
    &["timeline", "--format", "html"],
];

/// Runs each reader of recordings on this file.
fn each_reader(file: &str, mut check: impl FnMut(&str, (i32, String, String))) {
    for reader in READERS {
        let args = [&["trace"], reader, &[file]].concat();
        check(reader[0], run(&args));
    }
}

/// Runs each reader of tapes on this file.
fn each_player(file: &str, mut check: impl FnMut(&str, (i32, String, String))) {
    for player in [&["replay", "-q"][..], &["debug", "-c", "continue"]] {
        let args = [player, &[file]].concat();
        check(player[0], run(&args));
    }
}

/// A file with these bytes.
fn file(folder: &Folder, bytes: &[u8]) -> String {
    let path = folder.path("damaged");
    fs::write(&path, bytes).unwrap();
    path
}

fn recorded(folder: &Folder) -> (String, Vec<u8>) {
    let path = folder.path("run.trap");
    let options = ["boot", "-q", "--virtual", "--seed", "1", "--record", &path];
    assert_eq!(run(&[&options[..], &["deadlock"]].concat()).0, 3);
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

fn taped(folder: &Folder) -> Vec<u8> {
    let path = folder.path("run.tape");
    let options = ["boot", "-q", "--seed", "1", "--tape", &path];
    let program = ["alive", "--count", "20", "--every", "100us"];
    assert_eq!(run(&[&options[..], &program].concat()).0, 0);
    fs::read(&path).unwrap()
}

#[test]
fn a_file_that_is_empty_or_something_else_is_an_error() {
    let folder = Folder::new("damaged-none");
    let (whole, _) = recorded(&folder);
    for (bytes, why) in [
        (&b""[..], "the file is empty"),
        (b"abc", "does not begin like one"),
    ] {
        let path = file(&folder, bytes);
        let refused = |name: &str, (code, out, err): (i32, String, String)| {
            assert_eq!((code, &*out), (1, ""), "{name}: {err}");
            begins(&err, "error: ");
            has(&err, why);
        };
        each_reader(&path, refused);
        each_player(&path, refused);
        let (code, _, err) = run(&["trace", "diff", &whole, &path]);
        assert_eq!(code, 2, "{err}");
        has(&err, why);
    }
}

#[test]
fn what_there_is_of_a_recording_that_is_cut_is_shown_and_the_exit_code_tells() {
    let folder = Folder::new("damaged-cut");
    let (whole, bytes) = recorded(&folder);
    let end = bytes.len();
    for len in (1..end).filter(|len| len % 97 == 0 || end - len == 9) {
        let path = file(&folder, &bytes[..len]);
        each_reader(&path, |name, (code, out, err)| {
            assert_eq!(code, 1, "{name} of {len} bytes: {err}");
            has(&err, "ends at byte");
            assert!(end - len > 9 || !out.is_empty(), "{name} shows nothing");
        });
        let (code, _, err) = run(&["trace", "diff", &whole, &path]);
        assert_eq!(code, 2, "{err}");
        has(&err, "ends at byte");
    }
}

#[test]
fn a_flipped_byte_of_a_recording_is_an_error_of_every_reader() {
    let folder = Folder::new("damaged-flip");
    let (whole, bytes) = recorded(&folder);
    for at in [4, bytes.len() / 2, bytes.len() - 1] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 4;
        let path = file(&folder, &bytes);
        each_reader(&path, |name, (code, _, err)| {
            assert_eq!(code, 1, "{name}, byte {at}: {err}");
            has(&err, "error: ");
        });
        assert_eq!(run(&["trace", "diff", &path, &whole]).0, 2, "byte {at}");
    }
}

#[test]
fn what_there_is_of_a_tape_that_is_cut_or_damaged_is_played_and_the_exit_code_tells() {
    let folder = Folder::new("damaged-tape");
    let bytes = taped(&folder);
    let end = bytes.len();
    for len in (1..end).filter(|len| len % 97 == 0 || end - len == 1) {
        let path = file(&folder, &bytes[..len]);
        each_player(&path, |name, (code, out, err)| {
            assert_eq!(code, 1, "{name} of {len} bytes: {err}");
            has(&err, "the tape ends at byte");
            assert!(end - len > 1 || out.contains("alive"), "{name}: {out}");
        });
    }
    for at in [4, end / 2, end - 1] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 4;
        let path = file(&folder, &bytes);
        each_player(&path, |name, (code, _, err)| {
            assert_eq!(code, 1, "{name}, byte {at}: {err}");
            has(&err, "error: ");
        });
    }
}

/// It had left before, and the missing end is not its own.
#[test]
fn the_exit_code_of_a_shell_hides_no_cut() {
    let folder = Folder::new("damaged-shell");
    let tape = folder.path("tape");
    let args = ["shell", "-q", "--tape", &tape, "-c", "exit 7"];
    assert_eq!(run(&args).0, 7);
    let bytes = fs::read(&tape).unwrap();
    let path = file(&folder, &bytes[..bytes.len() - 1]);
    each_player(&path, |name, (code, _, err)| {
        assert_eq!(code, 1, "{name}: {err}");
        has(&err, "the tape ends at byte");
    });
}

/// The debugger's commands have not come to the place where the tape ends.
#[test]
fn a_cut_that_no_command_reaches_is_no_failure_of_a_script() {
    let folder = Folder::new("damaged-unreached");
    let bytes = taped(&folder);
    let path = file(&folder, &bytes[..bytes.len() - 1]);
    let (code, _, err) = run(&["debug", "-c", "step", &path]);
    assert_eq!((code, &*err), (0, ""));
    let back = ["debug", "-c", "continue", "-c", "back", &path];
    assert_eq!(run(&back).0, 1);
}
