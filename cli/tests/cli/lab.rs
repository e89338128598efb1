//! `lab`, the programs that it is for, and the options of `boot` about scheduling.

use std::{fs, path::Path};

use serde_json::Value;

use crate::support::*;

/// Every policy of the library.
const POLICIES: [&str; 12] = [
    "fifo",
    "rr",
    "sjf",
    "stcf",
    "priority",
    "priority:inherit",
    "mlfq:boost=1s,stay,bump",
    "lottery",
    "stride",
    "fair",
    "random",
    "pct",
];

/// The objects that `lab --json` prints, by policy.
fn objects(args: &[&str]) -> Vec<Value> {
    let args = [&["lab", "--json"], args].concat();
    let (code, out, err) = run(&args);
    assert_eq!((code, err.as_str()), (0, ""));
    let lines = out.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("a line is an object"))
        .collect()
}

/// A figure of each task, in milliseconds.
fn figures(object: &Value, key: &str) -> Vec<u64> {
    let tasks = object["tasks"].as_array().expect("there are tasks").iter();
    let millis = |task: &Value| (task[key].as_f64().expect("a figure") * 1000.0).round() as u64;
    tasks.map(millis).collect()
}

#[test]
fn the_figures_of_the_textbook() {
    let jobs = [
        "jobs",
        "--job",
        "0,100ms",
        "--job",
        "10ms,10ms",
        "--job",
        "10ms,10ms",
    ];
    let policies = [
        "--policy", "fifo", "--policy", "stcf", "--policy", "rr:10ms",
    ];
    let all = objects(&[&policies[..], &jobs].concat());
    let of = |at: usize, key| figures(&all[at], key);
    assert_eq!(all[0]["policy"], "fifo");
    assert_eq!(of(0, "turnaround"), [100, 100, 110]);
    assert_eq!(of(1, "turnaround"), [120, 10, 20]);
    assert_eq!(of(1, "response"), [0, 0, 10]);
    assert_eq!(of(1, "waiting"), [20, 0, 10]);
    assert_eq!(of(2, "turnaround"), [120, 20, 30]);
    assert_eq!(of(2, "computed"), [100, 10, 10]);
    assert_eq!(of(2, "arrival"), [0, 10, 10]);
    assert_eq!(all[1]["mean"]["turnaround"], 0.05);
    assert_eq!(
        (&all[1]["switches"], &all[1]["end"]),
        (&3.0.into(), &0.12.into())
    );
    assert_eq!(all[1]["utilisation"], 1.0);
    assert_eq!(all[1]["tasks"][0]["name"], "A");
}

#[test]
fn several_processors_and_seeds() {
    let jobs = [
        "jobs", "--job", "0,10ms", "--job", "0,10ms", "--job", "0,10ms", "--job", "0,10ms",
    ];
    let all = objects(
        &[
            &[
                "--policy",
                "lottery:1ms",
                "--processors",
                "4",
                "--seeds",
                "5",
            ],
            &jobs[..],
        ]
        .concat(),
    );
    assert_eq!(
        (&all[0]["end"], &all[0]["seeds"]),
        (&0.01.into(), &5.into())
    );
    assert_eq!(
        (&all[0]["utilisation"], &all[0]["fairness"]),
        (&1.0.into(), &1.0.into())
    );
}

#[test]
fn a_table_a_chart_and_a_page() {
    let folder = tempfile();
    let page = format!("{folder}.html");
    let picture = format!("{folder}.svg");
    let (code, out, _) = run(&[
        "lab", "--policy", "fifo", "--policy", "rr:10ms", "--html", &page, "--svg", &picture,
        "jobs", "--job", "0,30ms", "--job", "0,10ms",
    ]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].trim_start().starts_with("policy"), "{out}");
    assert!(
        lines[1].trim_start().starts_with("fifo") && lines[1].contains("35ms"),
        "{out}"
    );
    // Three quarters of 77 columns: 57 and most of the next.
    let chart = format!("A  {}▓\nB  {}░", "█".repeat(57), "·".repeat(57));
    assert!(out.contains(&chart), "{out}");
    assert!(
        lines.iter().all(|line| line.chars().count() <= 100),
        "{out}"
    );
    let (html, svg) = (
        fs::read_to_string(&page).unwrap(),
        fs::read_to_string(&picture).unwrap(),
    );
    fs::remove_file(page).unwrap();
    fs::remove_file(picture).unwrap();
    assert!(html.contains("<svg") && html.contains("rr:10ms") && html.contains(">35ms</td>"));
    // A computes in the first 540 of 720 columns under first in, first out.
    has(&svg, "<rect x=\"120\" y=\"47\" width=\"540\"");
}

/// A name for files of this test.
fn tempfile() -> String {
    let folder = std::env::temp_dir();
    format!("{}/trapline-lab-{}", folder.display(), std::process::id())
}

/// The number of an attribute of a tag.
fn number(tag: &str, name: &str) -> f64 {
    let (_, rest) = tag.split_once(&format!(" {name}=\"")).expect(tag);
    rest.split_once('"').unwrap().0.parse().expect(tag)
}

/// The contents of the elements of a name: the tag, and the text up to the next one.
fn elements<'a>(svg: &'a str, name: &str) -> Vec<(&'a str, &'a str)> {
    let tags = svg.split('<').filter_map(|part| part.split_once('>'));
    tags.filter(|(tag, _)| tag.split(' ').next() == Some(name))
        .collect()
}

#[test]
fn all_charts_have_one_axis_and_no_tick_is_cut_off() {
    let args = [
        "--policy",
        "fifo",
        "--policy",
        "stcf",
        "jobs",
        "--job",
        "0s,50.123ms,10ms,10ms",
        "--job",
        "0s,50ms",
    ];
    let ends: Vec<f64> = objects(&args)
        .iter()
        .map(|object| object["end"].as_f64().unwrap())
        .collect();
    let longest = ends.iter().copied().fold(0.0, f64::max);
    assert!(ends[0] > ends[1], "they end at different times: {ends:?}");
    let (code, svg, err) = run(&[&["lab", "--svg", "-"], &args[..]].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    let charts: Vec<&str> = svg.split("<g ").skip(1).collect();
    assert_eq!(charts.len(), ends.len());
    for (chart, end) in charts.iter().zip(&ends) {
        let bars = elements(chart, "rect")
            .into_iter()
            .filter(|(tag, _)| number(tag, "height") == 14.0);
        let right = bars.map(|(tag, _)| number(tag, "x") + number(tag, "width"));
        let expected = 120.0 + 720.0 * end / longest;
        let right = right.fold(0.0, f64::max);
        assert!(
            (right - expected).abs() <= 1.0,
            "{right} instead of {expected}"
        );
        assert!(
            chart.contains(&format!(">{}ms</text>", longest * 1e3)),
            "{chart}"
        );
    }
    // Letters of 12 pixels are at most 8 pixels wide.
    for (tag, text) in elements(&svg, "text") {
        let (x, width) = (number(tag, "x"), 8.0 * text.len() as f64);
        let right = match tag {
            _ if tag.contains("\"middle\"") => x + width / 2.0,
            _ if tag.contains("\"end\"") => x,
            _ => x + width,
        };
        assert!(right <= 860.0, "{text} ends at {right}");
    }
    let (_, text, _) = run(&[&["lab"], &args[..]].concat());
    let heads = text.lines().filter(|line| line.contains(": 0 "));
    let last = format!(" {}ms", longest * 1e3);
    assert_eq!(
        heads.filter(|head| head.ends_with(&last)).count(),
        2,
        "{text}"
    );
}

#[test]
fn wrong_values_are_explained() {
    let of = |args: &[&str]| {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        err
    };
    let boot = |policy: &str| of(&["boot", "--virtual", "--policy", policy, "parts"]);
    for (policy, expected) in [
        ("stfc", "did you mean 'stcf'? There are fifo, rr,"),
        ("unknown", "there are fifo, rr, sjf, stcf"),
        (
            "rr:0ms",
            "the quantum of rr is zero: give a time such as 10ms",
        ),
        (
            "rr:1ns",
            "the quantum of rr is 1ns: give at least 1us, such as 10ms",
        ),
        (
            "mlfq:boost=999ns",
            "the boost of mlfq is 999ns: give at least 1us, such as 10ms",
        ),
        (
            "rr:10",
            "'10' is no quantum of rr: give a number and a unit, such as 10ms",
        ),
        ("fifo:3", "fifo takes no parameters"),
        ("rr:", "after 'rr:' there is no parameter"),
        (
            "mlfq:quantum=3ms",
            "mlfq has no parameter 'quantum=3ms': there are quanta=",
        ),
        ("mlfq:allotment=0", "an allotment of mlfq is zero"),
        ("mlfq:quanta=1ms,allotment=1/2", "2 allotments for 1 levels"),
        ("fair:nice=3", "fair has no parameter 'nice=3'"),
        ("pct:x", "pct takes a number of changes from 0 to 1000"),
        ("pct:3,7", "pct takes a number of changes from 0 to 1000"),
        ("pct:length=5,length=9", "pct takes a number of changes"),
    ] {
        let error = boot(policy);
        assert!(
            error.contains("--policy") && error.contains(expected),
            "{policy}: {error}"
        );
    }
    for count in ["0", "1025", "-1", "two"] {
        let error = of(&["boot", "--virtual", "--processors", count, "parts"]);
        assert!(error.contains("from 1 to 1024"), "{error}");
    }
    let error = of(&["boot", "--processors", "2", "parts"]);
    assert!(error.contains("--processors needs --virtual"), "{error}");
    for (share, expected) in [
        ("x", "the name of a task and a share"),
        ("x:nice=20", "from -20 to 19"),
        ("x:tickets=0", "from 1"),
        ("x:speed=3", "there is no share 'speed'"),
    ] {
        let error = of(&["boot", "--share", share, "parts"]);
        assert!(
            error.contains("--share") && error.contains(expected),
            "{share}: {error}"
        );
    }
    let error = of(&["lab", "--seeds", "0", "parts"]);
    has(&error, "a number of seeds from 1 to 10000");
    for (job, expected) in [
        ("0s,-5ms", "'-5ms' is negative"),
        ("0s", "it takes ARRIVAL,LENGTH"),
        ("0s,0s", "its length is zero"),
        ("0s,1x", "'1x' is no time"),
        ("0s,1s;nice=99", "'99' is no nice value"),
    ] {
        let error = of(&["boot", "jobs", "--job", job]);
        assert!(
            error.contains("--job") && error.contains(expected),
            "{job}: {error}"
        );
    }
}

#[test]
fn without_jobs_there_are_three_and_a_file_without_any_is_an_error() {
    let all = objects(&["--policy", "fifo", "jobs"]);
    let three = [
        "--job",
        "0,60ms",
        "--job",
        "10ms,10ms",
        "--job",
        "10ms,20ms",
    ];
    let given = [&["--policy", "fifo", "jobs"][..], &three].concat();
    assert_eq!(all, objects(&given));
    assert_eq!(run(&["boot", "-q", "--virtual", "jobs"]).0, 0);
    let path = format!("{}-no-jobs", tempfile());
    fs::write(&path, "# none\n").unwrap();
    let (code, _, err) = run(&["lab", "--policy", "fifo", "jobs", "--jobs-from", &path]);
    assert_eq!(code, 1);
    assert!(err.contains("there are no jobs: give --job"), "{err}");
}

#[test]
fn jobs_come_from_a_file_and_at_random() {
    let path = format!("{}-jobs", tempfile());
    fs::write(&path, "# two jobs\n0s,10ms\n\n5ms,10ms;nice=5 # late\n").unwrap();
    let all = objects(&["--policy", "fifo", "jobs", "--jobs-from", &path]);
    assert_eq!(figures(&all[0], "arrival"), [0, 5]);
    fs::write(&path, "0s,10ms\nnonsense\n").unwrap();
    let (code, _, err) = run(&["lab", "--policy", "fifo", "jobs", "--jobs-from", &path]);
    fs::remove_file(&path).unwrap();
    assert!(code == 1 && err.contains("line 2"), "{err}");
    let random = |seed| objects(&["--policy", "rr", "jobs", "--random", "500", "--seed", seed]);
    let one = random("1");
    assert_eq!(one, random("1"));
    assert_ne!(one, random("2"));
    assert_eq!(one[0]["tasks"].as_array().unwrap().len(), 500);
}

#[test]
fn an_inversion_is_cured_by_inheritance() {
    let waits = |policy| transcript(&["--policy", policy, "inversion"]);
    assert_eq!(waits("priority"), "high waited 120ms for the mutex\n");
    assert_eq!(
        waits("priority:inherit"),
        "high waited 20ms for the mutex\n"
    );
}

#[test]
fn an_editor_is_quick_under_mlfq() {
    let waits = |policy| transcript(&["--policy", policy, "interactive"]);
    assert_eq!(waits("stcf"), "a key waited 0ns on average, 0ns at most\n");
    assert!(waits("fifo").contains("502ms at most"), "{}", waits("fifo"));
    assert_eq!(waits("mlfq"), "a key waited 0ns on average, 0ns at most\n");
}

#[test]
fn no_policy_cures_a_convoy() {
    let policies = POLICIES.map(|policy| ["--policy", policy]).concat();
    let all = objects(&[&policies[..], &["convoy"]].concat());
    let cured = objects(&[&policies[..], &["convoy", "--cured"]].concat());
    assert_eq!(all.len(), POLICIES.len());
    for (convoy, cured) in all.iter().zip(cured) {
        // A millisecond and a half each, rounded.
        assert_eq!(figures(convoy, "computed"), [2; 4]);
        let figure = |of: &Value, key: &str| of[key].as_f64().expect("it is a number");
        let [idle, ended] = ["utilisation", "end"].map(|key| figure(convoy, key));
        assert!(idle < 0.1 && ended >= 0.062, "{convoy}");
        let [busy, ended] = ["utilisation", "end"].map(|key| figure(&cured, key));
        assert!(busy > 0.2 && ended < 0.030, "{cured}");
    }
}

#[test]
fn the_classics_run_under_every_policy() {
    for policy in POLICIES {
        for program in ["inversion", "interactive", "convoy"] {
            let (code, _, err) = run(&[
                "boot",
                "--virtual",
                "--seed",
                "1",
                "--policy",
                policy,
                program,
            ]);
            assert_eq!((code, err.as_str()), (0, ""), "{program} under {policy}");
        }
    }
}

#[test]
fn a_summary_begins_with_the_task_that_took_the_most_time() {
    let boot = ["boot", "-q", "--virtual", "--seed", "1", "--summary"];
    let jobs = ["jobs", "--job", "0,10ms", "--job", "0,30ms"];
    for (by_name, expected) in [(false, ["3", "2", "1"]), (true, ["1 B", "1 A", "1 jobs"])] {
        let option: &[&str] = if by_name { &["--by-name"] } else { &[] };
        let (_, _, err) = run(&[&boot[..], option, &jobs].concat());
        let rows = err.lines().filter(|line| line.ends_with("done"));
        let rows: Vec<String> = rows
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(rows.len(), 3, "{err}");
        for (row, begin) in rows.iter().zip(expected) {
            assert!(row.starts_with(&format!("{begin} ")), "{err}");
        }
        assert!(rows[0].contains(" 30ms "), "{err}");
    }
}

#[test]
fn a_page_goes_to_standard_output_instead_of_the_tables() {
    let lab = |options: &[&str]| {
        run(&[
            &["lab", "--policy", "fifo"],
            options,
            &["jobs", "--job", "0,10ms"],
        ]
        .concat())
    };
    let (code, page, err) = lab(&["--html", "-"]);
    assert_eq!((code, &*err), (0, ""));
    assert!(
        page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"),
        "{page}"
    );
    let (code, picture, err) = lab(&["--svg", "-"]);
    assert_eq!((code, &*err), (0, ""));
    assert!(
        picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"),
        "{picture}"
    );
    let (code, _, err) = lab(&["--svg", "-", "--html", "-"]);
    assert_eq!(code, 2);
    has(&err, "--svg would replace -: name another file");
    let (code, _, err) = lab(&["--json", "--html", "-"]);
    assert_eq!(code, 2);
    assert!(err.contains("--json prints to standard output"), "{err}");
    assert!(!Path::new("-").exists());
}

#[test]
fn a_job_beyond_the_range_of_the_clock_reaches_the_limit_of_time() {
    let jobs = ["jobs", "--job", "0,99999999d", "--job", "1ms,1ms"];
    let (code, _, err) = run(&[&["lab", "--policy", "fifo"][..], &jobs].concat());
    assert_eq!(code, 1);
    let limit = "error: under fifo: the limit of 3600s is reached\n";
    assert!(err.starts_with(limit), "{err}");
}

#[test]
fn the_page_and_the_picture_are_two_files_that_can_be_written() {
    let file = format!("{}-both", tempfile());
    let lab = ["lab", "--policy", "fifo", "--html", &file, "--svg"];
    let jobs = ["jobs", "--job", "0,10ms"];
    let (code, out, err) = run(&[&lab[..], &[&file], &jobs].concat());
    let said = format!("error: --svg would replace {file}: name another file\n");
    assert_eq!((code, &*out, err), (2, "", said));
    let (code, out, err) = run(&[&lab[..], &["/nowhere/a.svg"], &jobs].concat());
    assert_eq!((code, &*out), (2, ""));
    begins(&err, "error: cannot write /nowhere/a.svg: ");
    assert!(!Path::new(&file).exists(), "nothing is left");
}

#[test]
fn no_default_in_the_help_is_on_a_line_of_its_own() {
    for command in ["lab", "boot", "explore"] {
        let (_, help, _) = run(&[command, "--help"]);
        let broken: Vec<&str> = help
            .lines()
            .filter(|line| line.ends_with("[default:"))
            .collect();
        assert!(broken.is_empty(), "{command}: {broken:#?}");
    }
}

#[test]
fn a_summary_shows_the_measures_of_tasks_that_computed() {
    let boot = ["boot", "--virtual", "--seed", "1", "--summary"];
    let jobs = ["jobs", "--job", "0,10ms", "--job", "0,10ms"];
    let (code, _, err) = run(&[&boot[..], &jobs].concat());
    assert_eq!(code, 0);
    let header = "tid  task  arrival    response   turnaround  waiting    computed";
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(squeezed(&err).contains(&squeezed(header)), "{err}");
    assert!(
        squeezed(&err).contains("3 B 0 10ms 20ms 10ms 10ms"),
        "{err}"
    );
    let (_, _, err) = run(&["boot", "--virtual", "--seed", "1", "--summary", "parts"]);
    assert!(!err.contains("turnaround"), "{err}");
}

#[test]
fn a_share_is_that_of_a_task_of_the_name() {
    let jobs = ["jobs", "--job", "0,40ms", "--job", "0,40ms"];
    let all = objects(
        &[
            &["--policy", "priority", "--share", "B:priority=1"],
            &jobs[..],
        ]
        .concat(),
    );
    assert_eq!(figures(&all[0], "response"), [40, 0]);
}

#[test]
fn a_share_of_no_task_is_told_at_the_end() {
    let share = ["--share", "b:nice=5", "--share", "A:nice=1"];
    let jobs = ["jobs", "--job", "0,1ms", "--job", "0,1ms"];
    let told = "warning: --share b:.. did nothing: there was no task \"b\"\n";
    let boot = ["boot", "--virtual", "--seed", "1", "--policy", "fair"];
    for command in [&boot[..], &["lab", "--policy", "fair", "--policy", "rr"]] {
        let (code, _, err) = run(&[command, &share, &jobs].concat());
        assert_eq!((code, &*err), (0, told));
    }
}

#[test]
fn help_flows_at_any_width() {
    let commands = [
        "lab",
        "explore",
        "boot",
        "replay",
        "debug",
        "trace why",
        "trace diff",
    ];
    for (command, width) in commands.into_iter().flat_map(|of| [(of, 80), (of, 100)]) {
        let args: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let mut trapline = trapline(&args);
        let (code, out, _) = texts(trapline.env("COLUMNS", width.to_string()).output().unwrap());
        assert_eq!(code, 0);
        let prose = |line: &&str| !line.starts_with(' ') && !line.is_empty();
        let lines: Vec<&str> = out.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair.iter().all(prose)) {
            let first = pair[1].split(' ').next().unwrap_or_default();
            let joined = pair[0].chars().count() + 1 + first.chars().count();
            assert!(joined > width, "{command}: {:?} ends early", pair[0]);
        }
    }
}

#[test]
fn the_time_of_computations_is_that_of_tasks() {
    let boot = ["boot", "-q", "--virtual", "--seed", "1", "--summary"];
    let one = ["1", "jobs", "--job", "10ms,60ms", "--job", "10ms,30ms"];
    let two = ["2", "jobs", "--job", "10ms,60ms", "--job", "30ms,60ms"];
    for (jobs, shares) in [
        (one, "tasks 90 %, kernel 0 %, idle 10 % of 100ms\n"),
        (two, "tasks 89 %, kernel 0 %, idle 11 % of 90ms\n"),
    ] {
        let (code, _, err) = run(&[&boot[..], &["--processors"], &jobs].concat());
        assert_eq!(code, 0, "{err}");
        assert!(err.starts_with(shares), "{err}");
    }
}

#[test]
fn a_task_that_begins_later_waits_for_its_start() {
    let boot = ["boot", "-q", "--virtual", "--trace", "jobs"];
    let (_, _, err) = run(&[&boot[..], &["--job", "10ms,10ms"]].concat());
    assert!(err.contains("2 A            start ...\n"), "{err}");
    let answered = "00:00.010000    2 A            ... start                    = ok\n";
    assert!(err.contains(answered), "{err}");
}

#[test]
fn the_largest_seed_is_a_seed() {
    let seeds = ["--seed", "18446744073709551615", "--seeds", "2"];
    let of = ["--policy", "fifo", "jobs", "--job", "0,10ms"];
    let [object] = &objects(&[&seeds[..], &of].concat())[..] else {
        panic!("there is one policy");
    };
    assert_eq!(object["seeds"], 2);
    assert_eq!(figures(object, "computed"), [10]);
}
