//! `boot --disk`: files beneath a directory, on a tape and under limits.

use std::{fs, process::Command};

use crate::{replay::Folder, support::*};

fn note(args: &[&str]) -> (i32, String, String) {
    texts(example("extended", args).output().expect("it runs"))
}

#[test]
fn the_disk_of_a_run_is_the_directory_of_the_option() {
    let folder = Folder::new("disk");
    let root = folder.path("");
    let boot = ["boot", "-q", "--disk", &root, "note"];
    let (code, out, err) = note(&[&boot[..], &["one"]].concat());
    assert_eq!((code, &*out), (0, "one\n"), "{err}");
    let (code, out, err) = note(&[&boot[..], &["two"]].concat());
    assert_eq!((code, &*out), (0, "one\ntwo\n"), "{err}");
    assert_eq!(
        fs::read_to_string(folder.path("notes")).unwrap(),
        "one\ntwo\n"
    );
}

#[test]
fn a_run_without_a_disk_or_with_a_missing_one_says_what_to_do() {
    let (code, _, err) = note(&["boot", "-q", "note", "one"]);
    assert_eq!(code, 1);
    has(
        &err,
        "cannot open notes on the disk: this world has no disk: give it one by --disk DIR\n",
    );
    let (_, _, err) = run(&["boot", "-q", "--kernels", "2", "cat", "f"]);
    has(&err, "give it one by --disk DIR, without --kernels\n");
    let (code, _, err) = note(&["boot", "--disk", "/nowhere/at/all", "note", "one"]);
    assert_ne!(code, 0);
    has(&err, "cannot have a disk in /nowhere/at/all: ");
    has(&err, "make the directory first");
    for other in [&["--virtual"][..], &["--world", "lapse"]] {
        let (code, _, err) = note(&[&["boot", "--disk", "."], other, &["note", "x"]].concat());
        assert_eq!(code, 2);
        has(&err, "cannot be used with");
    }
}

#[test]
fn the_disk_of_a_simulated_host_is_set_and_broken_by_options() {
    let virtually = |options: &[&str]| {
        let boot = ["boot", "--virtual", "--seed", "1"];
        note(&[&boot[..], options, &["note", "one"]].concat())
    };
    let (code, out, err) = virtually(&[]);
    assert_eq!((code, &*out), (0, "one\n"), "{err}");
    let (code, _, err) = virtually(&["--net", "disk-eio=100%"]);
    assert_eq!(code, 1);
    has(&err, "cannot open notes on the disk: Input/output error");
    let (code, _, err) = virtually(&["--net", "disk-capacity=3"]);
    assert_eq!(code, 1);
    has(&err, "cannot append to notes on the disk: No space left");
    let (code, out, err) = virtually(&["--net", "disk-rot=100%"]);
    assert_eq!(code, 0, "{err}");
    assert_ne!(out, "one\n");
    let slow = ["--net", "disk-latency=2s,disk-bandwidth=1", "--summary"];
    let (code, _, err) = virtually(&slow);
    assert_eq!(code, 0);
    // Six operations of 2 s, and 4 bytes both ways.
    has(&err, "20.000");
    let fault = ["--fault", "150us:disk:eio localhost", "--trace"];
    let (code, _, err) = virtually(&fault);
    assert_eq!(code, 1);
    has(&err, "disk:eio localhost");
    has(&err, "cannot sync notes on the disk: Input/output error");
    for (options, why) in [
        (["--net", "disk-eio=2"], "it takes a share from 0% to 100%"),
        (
            ["--net", "disk-rot=101%"],
            "it takes a share from 0% to 100%",
        ),
        (["--net", "disk-capacity=0"], "it takes a number of bytes"),
        (
            ["--fault", "1s:disk:eoi localhost"],
            "did you mean 'disk:eio'?",
        ),
        (
            ["--fault", "1s:disk:eio nowhere"],
            "there is no host 'nowhere'",
        ),
    ] {
        let (code, _, err) = virtually(&options);
        assert_eq!(code, 2, "{options:?}");
        has(&err, why);
    }
}

#[test]
fn a_taped_run_on_a_disk_is_replayed_without_it() {
    let folder = Folder::new("disk-taped");
    let (tape, root) = (folder.path("run.tape"), folder.path("root"));
    fs::create_dir(&root).unwrap();
    fs::write(folder.path("root/notes"), "zero\n").unwrap();
    let taped = [
        "boot", "-q", "--disk", &root, "--tape", &tape, "note", "one",
    ];
    let (code, out, err) = note(&taped);
    assert_eq!((code, &*out), (0, "zero\none\n"), "{err}");
    fs::remove_dir_all(&root).unwrap();
    let (code, again, err) = note(&["replay", "-q", &tape]);
    assert_eq!((code, again), (0, out), "{err}");
}

#[test]
fn limits_injections_and_traces_know_the_calls_by_their_names() {
    let folder = Folder::new("disk-named");
    let root = folder.path("");
    let run =
        |args: &[&str]| note(&[&["boot", "-q", "--disk", &root], args, &["note", "x"]].concat());
    let (code, _, err) = run(&["--inject", "append:error=StorageFull"]);
    assert_eq!(code, 1);
    has(&err, "cannot append to notes on the disk: no storage space");
    let (code, _, err) = run(&["--deny", "files"]);
    assert_eq!(code, 1);
    has(
        &err,
        "open is denied: the limits of the task lack open, of Calls::FILES",
    );
    let (code, _, err) = run(&["--deny", "sync"]);
    assert_eq!(code, 1);
    has(&err, "cannot sync notes on the disk");
    let (code, _, err) = run(&["--trace"]);
    assert_eq!(code, 0);
    for part in [
        "open(\"notes\", append) ...",
        " = device 1\n",
        "append(1, 2) ...",
        "device 1 write 2\n",
        "sync(1) ...",
        "sync_dir(\".\") ...",
    ] {
        has(&err, part);
    }
}

/// S93, for a whole process: `ulimit` takes the place of a full disk.
#[test]
fn an_append_beyond_the_limit_of_a_file_is_an_error_and_leaves_the_file_as_it_was() {
    let folder = Folder::new("disk-limit");
    let root = folder.path("");
    let binary = example("extended", &[]);
    let long = "x".repeat(3000);
    let script = "ulimit -f 4; exec \"$0\" boot -q --disk \"$1\" note \"$2\"";
    let boot = || {
        let mut shell = Command::new("bash");
        let shell = shell.args(["-c", script]).arg(binary.get_program());
        texts(shell.args([&root, &long]).output().unwrap())
    };
    let (code, out, err) = boot();
    assert_eq!((code, out.len()), (0, 3001), "{err}");
    let (code, _, err) = boot();
    assert_eq!(code, 1);
    has(&err, "cannot append to notes on the disk: File too large");
    assert_eq!(fs::read(folder.path("notes")).unwrap().len(), 3001);
}
