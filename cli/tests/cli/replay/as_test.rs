//! `replay --as-test`: a tape becomes a test.

use std::{fs, process::Command};

use super::*;
use crate::support::*;

/// Compiles a written test as Cargo does, runs it, and answers what it says.
fn outcome(folder: &Folder, test: &str) -> (bool, String) {
    let [source, program] = [folder.path(test), folder.path("program")];
    let compiled = Command::new("rustc")
        .args(["--edition", "2024", "--test", "-o", &program, &source])
        .args(["-D", "warnings"])
        .env("CARGO_MANIFEST_DIR", folder.path(""))
        .env("CARGO_BIN_EXE_trapline", env!("CARGO_BIN_EXE_trapline"))
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{err}");
    let output = Command::new(program).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), out)
}

#[test]
fn a_tape_becomes_a_test_that_holds_on_to_its_run() {
    let folder = Folder::new("as-test");
    let tape = folder.path("run.tape");
    let boot = ["boot", "--tape", &tape, "--with", "kill", "promise"];
    let (code, out, _) = run(&boot);
    assert_eq!(code, 0);
    let write_from = |tape: &str, name: &str| {
        let mut command = trapline(&["replay", "--as-test", name, tape]);
        texts(command.current_dir(folder.path("")).output().unwrap())
    };
    let write = |name: &str| write_from("run.tape", name);
    let (code, _, err) = write("it_keeps_its_promise");
    assert_eq!(code, 1);
    assert!(err.contains("there is no Cargo.toml here"), "{err}");
    fs::write(folder.path("Cargo.toml"), "").unwrap();
    fs::create_dir(folder.path("src")).unwrap();
    fs::write(folder.path("src/lib.rs"), "").unwrap();
    let (code, _, err) = write("it_keeps_its_promise");
    assert!(code == 1 && err.contains("the test runs trapline, and the crate here has no binary"));
    fs::write(folder.path("Cargo.toml"), "[[bin]]\n").unwrap();
    let (code, printed, err) = write("it_keeps_its_promise");
    assert_eq!((code, &*printed), (0, ""), "{err}");
    has(&err, "next: cargo test it_keeps_its_promise");
    let (code, _, err) = write("it_keeps_its_promise");
    assert_eq!(code, 1);
    assert!(err.contains("exists: give another name"), "{err}");
    let mut watched = trapline(&["replay", "--as-test", "it_is_seen", "--trace", "run.tape"]);
    let (code, _, err) = texts(watched.current_dir(folder.path("")).output().unwrap());
    assert_eq!(code, 2);
    let why = "--as-test shows no run: leave out the options for watching";
    assert!(err.contains(why), "{err}");
    let (code, _, err) = write_from("/dev/null", "it_has_no_tape");
    assert_eq!(code, 1);
    let why = "/dev/null is no file, and the test takes a copy of it";
    assert!(err.contains(why), "{err}");
    // It is formatted, it passes, and it fails if the program does something else.
    let test = "tests/it_keeps_its_promise.rs";
    let text = fs::read_to_string(folder.path(test)).unwrap();
    assert!(text.contains(&format!(
        "{:?}",
        out.lines().next().unwrap().to_string() + "\n"
    )));
    assert!(text.contains(": killed\\n\""), "the exits: {text}");
    let (passes, said) = outcome(&folder, test);
    assert!(passes, "{said}");
    let (first, _) = out.split_at(5);
    fs::write(folder.path(test), text.replacen(first, "Other", 1)).unwrap();
    let (passes, said) = outcome(&folder, test);
    assert!(!passes && said.contains("Other"), "{said}");
    for name in ["no-name", "9", "_", "Name", ""] {
        let (code, _, err) = write(name);
        assert_eq!(code, 2, "{name}");
        assert!(err.contains("it takes the name of a function"), "{err}");
    }
    for name in ["fn", "gen"] {
        let (code, _, err) = write(name);
        assert_eq!(code, 2, "{name}");
        assert!(err.contains("is a keyword of Rust"), "{err}");
    }
}
