//! The small programs that read text and print text.

use std::{
    fs,
    io::{BufReader, Write},
    process::{Child, Stdio},
};

use crate::{replay::Folder, support::*};

/// Runs a line of words with this text as its standard input and this directory as its disk.
fn filter(root: &str, line: &str, input: &str) -> (i32, String, String) {
    let words: Vec<&str> = line.split(' ').collect();
    let mut child = piped(&[&["boot", "-q", "--disk", root], &words[..]].concat());
    let mut stdin = child.stdin.take().expect("it is a pipe");
    // A program may end without reading it.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    texts(child.wait_with_output().expect("it runs"))
}

fn piped(args: &[&str]) -> Child {
    let mut command = trapline(args);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().expect("it starts")
}

#[test]
fn each_filter_prints_what_its_arguments_say() {
    let folder = Folder::new("filters");
    let root = folder.path("");
    fs::write(folder.path("a"), "one\ntwo\nthree").unwrap();
    let cases = [
        ("cat", "in é\n\r\n", "in é\n\r\n"),
        ("cat a", "in", "one\ntwo\nthree"),
        ("cat a - a", "in", "one\ntwo\nthreeinone\ntwo\nthree"),
        ("wc", "a  bc\n\nd é", "2 4 11\n"),
        ("wc", "", "0 0 0\n"),
        ("wc --lines a a", "in", "4\n"),
        ("grep t a", "in", "two\nthree\n"),
        ("grep -v t a", "in", "one\n"),
        ("grep n", "in\nout\n", "in\n"),
        ("head a", "", "one\ntwo\nthree"),
        ("head -n 2 a a", "", "one\ntwo\n"),
        ("head -n 0", "in\n", ""),
        ("seq 3", "", "1\n2\n3\n"),
        ("seq 2 4", "", "2\n3\n4\n"),
        ("seq 1 -3 -6", "", "1\n-2\n-5\n"),
        ("seq 2 1", "", ""),
        (
            "seq 9223372036854775806 9223372036854775807",
            "",
            "9223372036854775806\n9223372036854775807\n",
        ),
        ("tee b c", "in\n", "in\n"),
        ("tee -a b", "more", "more"),
        ("tee c", "new", "new"),
        ("cat b c", "", "in\nmorenew"),
        ("say", "", "\n"),
        ("say a  b -n", "", "a  b -n\n"),
        ("say -n --x", "", "-n --x\n"),
        ("ls", "", "a\nb\nc\nd\n"),
        ("ls d", "", "e\n"),
        ("rm b d/e", "", ""),
        ("rm -f b d", "", ""),
        ("ls .", "", "a\nc\n"),
    ];
    fs::create_dir(folder.path("d")).unwrap();
    fs::write(folder.path("d/e"), "").unwrap();
    for (line, input, expected) in cases {
        let (code, out, err) = filter(&root, line, input);
        assert_eq!((code, &*out), (0, expected), "{line}: {err}");
    }
}

#[test]
fn a_filter_says_what_is_wrong_and_where() {
    let folder = Folder::new("filters-wrong");
    let root = folder.path("");
    fs::write(folder.path("a"), "one\ntwo\nthree").unwrap();
    let long = "x".repeat(2 << 20);
    let errors = [
        ("grep zzz a", "", "no line is found"),
        ("seq 1 0 2", "", "the step is 0"),
        (
            "rm none a",
            "",
            "cannot remove none on the disk: No such file",
        ),
        ("rm ..", "", "cannot remove .. on the disk"),
        ("ls none", "", "cannot list none on the disk: No such file"),
        ("cat none", "", "cannot open none on the disk: No such file"),
        ("cat ../a", "", "cannot open ../a on the disk"),
        ("wc", &*long, "standard input: a line has more than 1 MiB"),
    ];
    for (line, input, expected) in errors {
        let (code, out, err) = filter(&root, line, input);
        assert_eq!((code, &*out), (1, ""), "{line}");
        has(&err, expected);
    }
    // What can be done is done, and the end names what could not.
    for (line, input, expected, missing) in [
        ("cat none a no", "", "one\ntwo\nthree", &["none", "no"][..]),
        ("grep two a none", "", "two\n", &["none"]),
        ("wc -l none a a", "", "4\n", &["none"]),
        ("head -n 1 none a", "", "one\n", &["none"]),
        ("tee no/file copy", "in\n", "in\n", &["no/file"]),
    ] {
        let (code, out, err) = filter(&root, line, input);
        assert_eq!((code, &*out), (1, expected), "{line}: {err}");
        for name in missing {
            has(
                &err,
                &format!("cannot open {name} on the disk: No such file"),
            );
        }
    }
    assert_eq!(fs::read(folder.path("copy")).unwrap(), b"in\n");
    assert!(
        fs::exists(folder.path("a")).unwrap(),
        "what comes behind an error stays"
    );
    fs::write(folder.path("bytes"), b"a\xff\n").unwrap();
    let (code, _, err) = filter(&root, "cat bytes", "");
    assert_eq!(code, 1);
    has(&err, "bytes: a line is not UTF-8");
}

#[test]
fn filters_are_parts_of_a_pipe() {
    let mut yes = piped(&["boot", "-q", "yes", "so", "be"]);
    let out = yes.stdout.take().expect("it is a pipe");
    let mut out = BufReader::new(out);
    for _ in 0..3 {
        assert_eq!(line(&mut out), "so be\n");
    }
    drop(out);
    let (code, _, err) = texts(yes.wait_with_output().expect("it ends"));
    assert_eq!((code, &*err), (0, ""), "its reader has gone");
    let mut seq = piped(&["boot", "-q", "seq", "5000"]);
    let numbers = seq.stdout.take().expect("it is a pipe");
    let mut wc = trapline(&["boot", "-q", "wc"]);
    let (code, out, err) = texts(wc.stdin(numbers).output().expect("it runs"));
    assert_eq!((code, &*out), (0, "5000 5000 23893\n"), "{err}");
    assert_eq!(exit_of(&mut seq), Some(0));
}

#[test]
fn filters_run_in_the_simulated_world() {
    let folder = Folder::new("filters-simulated");
    fs::write(folder.path("a"), "one\ntwo\n").unwrap();
    let boot = ["boot", "--virtual", "--seed=1", "--stdin"];
    let (code, out, err) = run(&[&boot[..], &[&folder.path("a"), "grep", "w"]].concat());
    assert_eq!((code, &*out), (0, "two\n"), "{err}");
}
