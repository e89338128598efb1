//! `trace diff`: where two runs part.

use trapline::{
    Tracer,
    record::{Header, Recorder},
};

use super::*;

#[cfg(target_os = "linux")]
#[test]
fn a_comparison_that_cannot_be_written_says_so_once() {
    let place = Place::with("diff-full", &QUEUES);
    place.record("other.trap", &["--quantum", "2", "countdown"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = trapline(&["trace", "diff", "run.trap", "other.trap"]);
    let output = command.current_dir(&place.0).stdout(full).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), err.lines().count()),
        (Some(2), 1),
        "{err}"
    );
}

#[test]
fn diff_finds_where_two_runs_part() {
    let place = Place::with("diff", &QUEUES);
    place.record("same.trap", &QUEUES);
    let (code, out, err) = place.run(&["trace", "diff", "run.trap", "same.trap"]);
    assert_eq!((code, &*out), (0, ""));
    assert!(err.starts_with("the runs are the same: "), "{err}");
    place.record("other.trap", &["--quantum", "2", "countdown"]);
    place.record("fewer.trap", &[&QUEUES[..], &["--producers", "2"]].concat());
    for other in ["other", "fewer"] {
        let file = format!("{other}.trap");
        let (code, out, err) = place.run(&["trace", "diff", "run.trap", &file]);
        assert_eq!((code, &*err), (1, ""));
        assert_golden(&format!("diff-{other}.txt"), &out);
    }
}

#[test]
fn diff_can_leave_times_aside() {
    let place = Place::with("diff-times", &["alive", "--count", "3", "--every", "4s"]);
    place.record(
        "slow.trap",
        &["--quantum", "9", "alive", "--count", "3", "--every", "5s"],
    );
    let (code, out, _) = place.run(&["trace", "diff", "run.trap", "slow.trap"]);
    assert_eq!(code, 1);
    assert_golden("diff-times.txt", &out);
    let (code, out, _) = place.run(&["trace", "diff", "--ignore-times", "run.trap", "slow.trap"]);
    // The call says how long it is to sleep: that is no time of the world's.
    assert_eq!(code, 1);
    has(&out, "- 00:00.000000    1 alive        trapped sleep(4s)");
    place.record("countdown.trap", &["countdown"]);
    let shifted = place.0.join("shifted.trap");
    let mut recorder = Recorder::create(&shifted, &Header::default()).unwrap();
    for event in Recording::open(place.0.join("countdown.trap")).unwrap() {
        let mut event = event.unwrap();
        event.at += Duration::from_millis(7);
        recorder.event(&event);
    }
    drop(recorder);
    let (code, ..) = place.run(&["trace", "diff", "countdown.trap", "shifted.trap"]);
    assert_eq!(code, 0, "one of them is real, so times do not count");
}

#[test]
fn diff_writes_a_page_with_both_runs_on_one_axis() {
    let place = Place::with("diff-page", &["convoy"]);
    place.record("cured.trap", &["convoy", "--cured"]);
    let diff = ["trace", "diff", "run.trap", "cured.trap"];
    let (code, text, _) = place.run(&diff);
    let (same, out, err) = place.run(&[&diff[..], &["--html", "both.html"]].concat());
    assert_eq!((same, &*out, &*err), (code, &*text, ""));
    let page = fs::read_to_string(place.0.join("both.html")).unwrap();
    assert_eq!(page.matches("<iframe ").count(), 2);
    let axis = "&quot;axis&quot;:{&quot;time&quot;:[0.0,62000000.0],";
    assert_eq!(page.matches(axis).count(), 2, "the axis of the longer run");
    for (letter, file) in [("A", "run.trap"), ("B", "cured.trap")] {
        assert!(page.contains(&format!("<h2>{letter}: {file} · ")), "{file}");
    }
    assert!(page.contains("B - A\n"), "the text about the differences");
    let (code, _, err) = place.run(&["trace", "diff", "--html", "both.html", "-", "run.trap"]);
    let expected = "error: --html reads both recordings twice: name files\n";
    assert_eq!((code, &*err), (2, expected));
    let (code, _, err) = place.run(&[&diff[..], &["--html", "no/where.html"]].concat());
    assert_eq!(code, 2);
    begins(&err, "error: cannot write no/where.html: ");
    let before = fs::read(place.0.join("run.trap")).unwrap();
    let (code, out, err) = place.run(&[&diff[..], &["--html", "./run.trap"]].concat());
    let expected = "error: --html would replace run.trap: name another file\n";
    assert_eq!((code, &*out, &*err), (2, "", expected));
    assert!(fs::read(place.0.join("run.trap")).unwrap() == before);
    let (_, out, _) = place.run(&[&diff[..], &["--html", "no/where.html"]].concat());
    assert_eq!(out, "", "a bad path is found before the work");
    let absent = [
        "trace",
        "diff",
        "run.trap",
        "none.trap",
        "--html",
        "new.html",
    ];
    assert_eq!(place.run(&absent).0, 2);
    assert!(!place.0.join("new.html").exists(), "nothing is left");
}

#[test]
fn diff_shows_where_one_run_ends() {
    let place = Place::with("diff-end", &["alive", "--count", "2"]);
    place.record("limit.trap", &["--max-ticks", "2", "alive", "--count", "2"]);
    let (code, out, _) = place.run(&["trace", "diff", "run.trap", "limit.trap"]);
    assert_eq!(code, 1);
    assert_golden("diff-end.txt", &out);
}
