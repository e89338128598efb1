//! The reasons that a search gives: the limit that was met, the call that there is none of, what a part
//! cannot prove.

use std::fs;

use serde_json::Value;

use super::{folder, merge, object, run};
use crate::support::has;

/// `alive` never ends.
#[test]
fn a_search_in_which_no_schedule_ends_names_the_limit() {
    let ticks = |most: &str| {
        format!("error: no schedule ran to its end within --max-ticks {most}: allow more turns")
    };
    for (options, most) in [
        (&["--strategy", "exhaustive"][..], "10000"),
        (&["--strategy", "exhaustive", "--max-ticks", "5"], "5"),
        (
            &["--strategy", "exhaustive", "--max-ticks=5", "--max-time=1h"],
            "5",
        ),
        (&["--preemptions", "1", "--max-ticks", "5"], "5"),
        (
            &["--strategy", "exhaustive", "--max-ticks=5", "--json"],
            "5",
        ),
    ] {
        let (code, out, err) = run(&[options, &["alive"]].concat(), &[]);
        assert_eq!(code, 1, "{out}{err}");
        has(&err, &ticks(most));
        has(
            &out,
            &format!("schedules of more than {most} turns were cut"),
        );
    }
    // A part need not have a schedule of its own.
    let search = ["--schedules", "1", "--max-time", "1h", "--shard", "2/2"];
    let (code, out, err) = run(&[&search[..], &["wait"]].concat(), &[]);
    assert_eq!((code, &*err), (0, ""), "{out}");
}

#[test]
fn a_merge_of_parts_in_which_no_schedule_ends_fails() {
    let folder = folder("endless");
    let part = |shard: &str| {
        let search = ["--strategy=exhaustive", "--max-ticks=5", "--json", "alive"];
        let (code, out, err) = run(&[&["--shard", shard], &search[..]].concat(), &[]);
        assert_eq!((code, &*err), (0, ""), "{out}");
        let path = folder.join(shard.replace('/', "-"));
        fs::write(&path, out).expect("it can be written");
        path.to_str().expect("it is text").to_string()
    };
    let (code, _, err) = merge(&["1/2", "2/2"].map(part));
    assert_eq!(code, 1, "{err}");
    has(
        &err,
        "no schedule ran to its end in any part: schedules of more than 5 turns were cut",
    );
    fs::remove_dir_all(folder).expect("it is there");
}

#[test]
fn a_call_that_there_is_none_of_is_named_as_boot_does() {
    for (fault, why) in [
        (
            "lock:kill",
            "there is no call 'lock': a lock is a 'get' of a mutex",
        ),
        ("nosuchcall:kill", "there is no call 'nosuchcall'"),
        (
            "recvv:kill",
            "there is no call 'recvv': did you mean 'recv'?",
        ),
        ("yield:eror=Other", "say what to do: 'error=KIND'"),
    ] {
        let (code, _, err) = run(&["--faults", "1", "--may", fault, "wait"], &[]);
        assert_eq!(code, 2, "{err}");
        has(&err, why);
        assert!(!err.contains("disk"), "{err}");
    }
    let (_, _, err) = run(&["--faults", "1", "--may", "disk:ful a", "wait"], &[]);
    has(&err, "disk:full");
}

#[test]
fn a_part_with_one_causal_order_does_not_speak_of_the_others() {
    let search = ["--strategy", "exhaustive", "deadlock", "--cured"];
    let (code, out, _) = run(&[&["--shard", "1/2"], &search[..]].concat(), &[]);
    assert_eq!(code, 0, "{out}");
    has(
        &out,
        "nothing is proved: the orders of turns of this part have one causal order, so it cannot tell alone",
    );
    assert!(!out.contains("all orders"), "{out}");
}

/// Both parts draw the two causal orders that there are.
#[test]
fn a_merge_does_not_add_causal_orders_that_were_drawn() {
    let folder = folder("drawn");
    let part = |shard: &str| {
        let part = object(&["--estimate", "--json", "--shard", shard, "multitask"]);
        assert_eq!(part["classes"], 2);
        let path = folder.join(shard.replace('/', "-"));
        fs::write(&path, part.to_string()).expect("it can be written");
        path.to_str().expect("it is text").to_string()
    };
    let (code, out, err) = merge(&["1/2", "2/2"].map(part));
    assert_eq!((code, &*err), (0, ""), "{out}");
    let all: Value = serde_json::from_str(&out).expect("it is an object");
    assert_eq!(all["schedules"], 1000);
    assert!(all["classes"].is_null() && all["unseen"].is_null(), "{all}");
    fs::remove_dir_all(folder).expect("it is there");
}

#[test]
fn a_fault_of_hosts_that_are_missing_names_all_of_them() {
    for program in [&["deadlock", "--cured"][..], &["wait"]] {
        let may = ["--faults", "1", "--may", "reset a b", "--schedules", "50"];
        let (code, out, err) = run(&[&may[..], program].concat(), &[]);
        assert_eq!((code, &*err), (1, ""), "{out}");
        has(
            &out,
            "the fault \"reset a b\" never could happen: the test has no host \"a\" and no host \"b\": its \
             only host is localhost\n",
        );
    }
    let may = [
        "--faults",
        "1",
        "--may",
        "cut server a",
        "--schedules",
        "50",
    ];
    let (_, out, _) = run(&[&may[..], &["--on", "server:wait"]].concat(), &[]);
    has(
        &out,
        "the test has no host \"a\": its hosts are localhost, server\n",
    );
}

#[test]
fn an_estimate_goes_with_strategies_that_draw() {
    for (options, why) in [
        (&["--strategy", "fifo"][..], "fifo draws no turns: "),
        (&["--strategy", "rff"], "rff learns from each schedule, "),
        (
            &["--strategy", "exhaustive"],
            "an exhaustive search draws nothing: ",
        ),
    ] {
        let (code, out, err) = run(&[&["--estimate"], options, &["wait"]].concat(), &[]);
        assert_eq!((code, &*out), (2, ""));
        has(&err, why);
        has(&err, "--estimate goes with random, pct or surw");
    }
}

#[test]
fn rff_searches_on_one_thread_and_refuses_more() {
    let search = |jobs: &str| {
        let options = ["--strategy", "rff", "--schedules", "4"];
        run(&[&options[..], &["wait", "--jobs", jobs]].concat(), &[])
    };
    let (code, out, err) = search("2");
    assert_eq!((code, &*out), (2, ""));
    has(
        &err,
        "rff learns from each schedule, so it searches on one thread: leave --jobs out",
    );
    let (code, _, err) = search("1");
    assert_eq!((code, &*err), (0, ""));
}
