//! `explore --mutate`, `--cut` and `--table`.

use super::{has, object, run};

#[test]
fn a_lock_that_another_one_makes_superfluous_survives() {
    let args = [
        "--strategy",
        "exhaustive",
        "--mutate",
        "deadlock",
        "--cured",
    ];
    let (code, out, err) = run(&args, &[]);
    assert_eq!((code, &*err), (0, ""), "{out}");
    has(
        &out,
        "mutations: 1 of 2 calls are needed, since the test fails without them\n",
    );
    let survives =
        "\n  lock at programs/cases/deadlock.rs:42 survives: proved redundant in this test\n";
    has(&out, survives);
    let object = object(&[&["--json"], &args[..]].concat());
    let mutants = &object["mutants"];
    assert_eq!(mutants["killed"], 1);
    assert_eq!(
        mutants["survivors"][0]["call"],
        "lock at programs/cases/deadlock.rs:42"
    );
    assert_eq!(mutants["survivors"][0]["proved"], true);
    // A program that fails has none.
    let (code, out, _) = run(&["--mutate", "deadlock"], &[]);
    assert!(code == 1 && !out.contains("mutations: "), "{out}");
}

#[test]
fn a_table_says_which_calls_are_safe_to_cut() {
    let cured = ["lost-wakeup", "--cured"];
    let (code, out, err) = run(&[&["--cut", "reader", "--table"], &cured[..]].concat(), &[]);
    assert_eq!((code, &*err), (0, ""), "{out}");
    has(&out, " cuts at ");
    let mut table = out.lines().skip_while(|line| !line.starts_with("place "));
    let head: Vec<&str> = table.next().expect(&out).split_whitespace().collect();
    assert_eq!(head, ["place", "call", "by", "cuts", "fail"]);
    let rows: Vec<&str> = table.collect();
    assert!(!rows.is_empty(), "{out}");
    for row in rows {
        // From the folder of the tests.
        let row = row.trim_start_matches("../");
        assert!(row.starts_with("programs/cases/lost_wakeup.rs:"), "{row}");
        assert!(
            row.contains("  kill     ") && row.ends_with("  safe"),
            "{row}"
        );
    }
    let json = object(&[&["--json", "--cut", "reader"], &cured[..]].concat());
    assert_eq!(json["cuts"]["places"][0]["by"], "kill");
    assert_eq!(json["cuts"]["left"], 0);
}

#[test]
fn what_cuts_nothing_and_what_clashes_is_an_error() {
    let (code, out, _) = run(&["--cut", "raeder", "lost-wakeup", "--cured"], &[]);
    assert_eq!(code, 1);
    has(
        &out,
        "the search cuts nothing: no task \"raeder\" makes a call; there are lost-wakeup, reader",
    );
    for (args, why) in [
        (
            &["--table", "deadlock"][..],
            "--table needs --cut TASK or --cut-by-timeout TASK",
        ),
        (
            &["--mutate", "--shard", "1/2", "deadlock"],
            "--mutate cannot be used with --shard",
        ),
        (
            &["--mutate", "--shards", "2", "deadlock"],
            "--mutate cannot be used with --shards",
        ),
    ] {
        let (code, _, err) = run(args, &[]);
        assert_eq!(code, 2, "{args:?}");
        has(&err, why);
    }
}

/// The replay of a cut on the command line is the cut.
#[test]
fn a_cut_that_fails_is_replayed() {
    // The writer of the letter is the program itself: without it the reader waits for ever.
    let args = ["--cut", "lost-wakeup", "lost-wakeup", "--cured"];
    let (code, out, _) = run(&args, &[]);
    assert_eq!(code, 1, "{out}");
    has(&out, "a kill of lost-wakeup 1 ");
    let (_, replay) = out.split_once("--replay ").expect(&out);
    let replay = replay.split(' ').next().unwrap();
    assert!(replay.contains("+killed-"), "{replay}");
    let (code, again, _) = run(&[&["--replay", replay], &args[..]].concat(), &[]);
    assert_eq!(code, 1, "{again}");
    assert_eq!(out.lines().next(), again.lines().next());
}
