//! Tables fit 80 columns, whatever the names in them, and have one format for numbers.

use crate::{replay::Folder, support::*};

/// The names of hosts end those of tasks.
const HOST: &str = "a-host-whose-name-is-longer-than-any-column-of-a-table-has-room-for-it";
const OTHER: &str = "another-host-whose-name-is-longer-than-any-column-of-a-table-has-room-for";

/// The lines of a text that are in tables: aligned below a line of titles, up to an empty line.
fn rows<'a>(text: &'a str, titles: &str) -> Vec<&'a str> {
    let (mut rows, mut is_in) = (Vec::new(), false);
    for line in text.lines() {
        is_in = line.contains(titles) || is_in && !line.is_empty();
        rows.extend(is_in.then_some(line));
    }
    rows
}

#[test]
fn no_table_is_wider_than_80_columns_though_names_are_long() {
    let folder = Folder::new("wide-tables");
    let [a, b] = ["a.trap", "b.trap"].map(|name| folder.path(name));
    let (server, client) = (
        format!("{HOST}:echo --addr 0.0.0.0:80"),
        format!("{OTHER}:swarm --addr {HOST}:80 --clients 9 --requests 40 --keep-alive"),
    );
    let network = ["--virtual", "--seed", "1", "--on", &server, "--on", &client];
    let boot = |options: &[&str]| run(&[&["boot", "-q"], options, &network].concat());
    let (code, ..) = boot(&["--record", &a]);
    assert_eq!(code, 0);
    // One of its tasks is killed.
    let (code, ..) = boot(&[
        "--record",
        &b,
        "--net",
        "latency=7ms",
        "--inject",
        "send:kill:when=40",
    ]);
    assert_ne!(code, 2);
    let trace = |args: &[&str]| run(&[&["trace"], args].concat()).1;
    let shown = [
        ("tid  task", trace(&["summary", &a])),
        ("was blocked", trace(&["summary", &a])),
        ("waited for a turn", trace(&["summary", &a])),
        ("call   ", trace(&["summary", &a])),
        ("tasks  task", trace(&["summary", "--by-name", &a])),
        ("share", trace(&["path", &a])),
        ("from  ", trace(&["path", &a])),
        ("tid  task", trace(&["ps", "--at", "20ms", &a])),
        ("task  ", trace(&["ps", "--by-name", "--at", "20ms", &a])),
        ("of its name", trace(&["diff", &a, &b])),
        ("task  ", trace(&["diff", &a, &b])),
        ("tid  task", boot(&["--summary"]).2),
        ("tasks  task", boot(&["--summary", "--by-name"]).2),
        ("policy", run(&["lab", "jobs", "--random", "30"]).1),
    ];
    for (titles, text) in &shown {
        let rows = rows(text, titles);
        assert!(rows.len() > 2, "no rows below {titles}: {text}");
        for row in rows {
            assert!(row.chars().count() <= 80, "{row}\n{text}");
        }
    }
    // What is cut says so, and the end of a name is kept.
    let first = rows(&shown[0].1, "tid  task").concat();
    has(&first, "…");
    assert!(!first.contains(HOST), "{first}");
    // A wider terminal has all of it.
    let wide = trapline(&["trace", "summary", &a])
        .env("COLUMNS", "400")
        .output();
    let wide = texts(wide.unwrap()).1;
    has(&rows(&wide, "tid  task").concat(), HOST);
}

#[test]
fn all_tables_have_the_same_thousands_and_times_and_ids_have_none() {
    let folder = Folder::new("numbers");
    let trap = folder.path("run.trap");
    let boot = [
        "boot",
        "-q",
        "--virtual",
        "--seed",
        "1",
        "--record",
        &trap,
        "--summary",
    ];
    let (code, out, err) = run(&[&boot[..], &["sleepers", "--count", "1200"]].concat());
    assert_eq!(code, 0);
    let (_, summary, _) = run(&["trace", "summary", &trap]);
    let (_, ps, _) = run(&["trace", "ps", "--at", "500ms", &trap]);
    for text in [&err, &summary] {
        has(text, "  1,200  ");
        // No time has six digits behind the point, and no number four without a comma.
        let digits = |word: &str| word.len() > 3 && word.bytes().all(|byte| byte.is_ascii_digit());
        let is_row = |line: &&str| line.trim_start().starts_with("sleep ");
        assert!(text.lines().any(|line| is_row(&line)), "{text}");
        for line in text.lines().filter(is_row) {
            assert!(!line.split_whitespace().any(digits), "{line}");
            assert!(!line.contains("000s"), "{line}");
        }
    }
    // A number that is typed again is as it is typed.
    assert!(
        ps.lines().any(|line| line.starts_with(" 1201  ")),
        "{out}{ps}"
    );
}
