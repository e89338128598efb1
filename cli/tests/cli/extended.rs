//! A binary with a policy, a world and a tracer of its own.

use crate::{replay::Folder, support::*};

fn extended(args: &[&str]) -> (i32, String, String) {
    texts(example("extended", args).output().expect("it runs"))
}

#[test]
fn a_policy_and_a_tracer_of_the_binary() {
    let boot = ["boot", "--virtual", "--seed", "1", "--policy"];
    let greet = ["greet", "--count", "1"];
    let (code, out, err) = extended(&[&boot[..], &["lifo"], &greet].concat());
    assert_eq!((code, &*out), (0, "hello from Bob\nhello from Ada\n"));
    let last = "00:01.000000000 3 exited done\n";
    assert!(err.ends_with(last), "{err}");
    let (code, out, _) = extended(&[&boot[..], &["fifo"], &greet].concat());
    assert_eq!((code, &*out), (0, "hello from Ada\nhello from Bob\n"));
    let (code, _, err) = extended(&[&boot[..], &["lifo:2"], &greet].concat());
    assert_eq!(code, 2);
    assert!(err.contains("lifo takes no parameters"), "{err}");
}

#[test]
fn a_world_of_the_binary() {
    let folder = Folder::new("extended");
    let tape = folder.path("run.tape");
    let greet = ["greet", "--count", "2"];
    let boot = ["boot", "-q", "--world", "lapse:1000", "--tape", &tape];
    // Two seconds of its clock, in two milliseconds.
    let (code, out, err) = extended(&[&boot[..], &greet].concat());
    assert_eq!(code, 0, "{err}");
    assert_eq!(out.lines().count(), 4);
    assert!(err.ends_with(" 3 exited done\n"), "{err}");
    let (code, again, err) = extended(&["replay", "-q", &tape]);
    assert_eq!((code, again), (0, out), "{err}");
    assert!(err.ends_with(" 3 exited done\n"), "{err}");
}

#[test]
fn a_wrong_world_is_explained() {
    let of = |args: &[&str]| {
        let (code, out, err) = extended(&[&["boot", "-q"], args, &["greet"]].concat());
        assert_eq!((code, &*out), (2, ""), "{args:?}");
        err
    };
    for (args, expected) in [
        (
            &["--world", "lapsed:3"][..],
            "there is no world 'lapsed': did you mean 'lapse'? There is lapse",
        ),
        (
            &["--world", "other"],
            "there is no world 'other': there is lapse",
        ),
        (
            &["--world", "lapse:0"],
            "error: cannot make the world of --world lapse:0: lapse takes how many times as fast",
        ),
        (
            &["--world", "lapse", "--virtual"],
            "the argument '--world <NAME[:PARAMS]>' cannot be used with '--virtual'",
        ),
        (
            &["--world", "lapse", "--top"],
            "use --monitor SOCKET, and `top --attach SOCKET`",
        ),
        (
            &["--world", "lapse", "--processors", "2"],
            "--processors needs --virtual",
        ),
    ] {
        let err = of(args);
        assert!(err.contains(expected), "{args:?}: {err}");
    }
    let (code, _, err) = run(&["boot", "--world", "lapse", "parts"]);
    assert_eq!(code, 2);
    has(&err, "this binary has no worlds of its own");
    let help = |args: &[&str]| run(args).1.contains("--world");
    assert!(!help(&["boot", "--help"]), "it would be of no use");
    assert!(
        extended(&["boot", "--help"])
            .1
            .contains("--world <NAME[:PARAMS]>")
    );
}
