//! `trace summary`: tables of the tasks and of the calls.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{commands::devices, *};

#[test]
fn summary_shows_tasks_calls_and_waits() {
    let place = Place::with("summary", &QUEUES);
    assert_golden(
        "summary.txt",
        &place.print(&["trace", "summary", "run.trap"]),
    );
    let by_name = place.print(&["trace", "summary", "--by-name", "run.trap"]);
    assert_golden("summary-by-name.txt", &by_name);
    let json = place.print(&["trace", "summary", "--json", "run.trap"]);
    assert_golden("summary.json", &json);
    for line in json.lines() {
        serde_json::from_str::<Value>(line).expect("it is JSON");
    }
}

#[test]
fn summary_of_many_tasks_has_a_thousand_and_counts_the_others() {
    let place = Place::with("summary-many", &["sleepers", "--count", "1005"]);
    let text = place.print(&["trace", "summary", "run.trap"]);
    let rows = text.lines().filter(|line| line.contains("  sleeper  "));
    assert_eq!(
        rows.count(),
        3 * 999,
        "beside their parent, in three tables"
    );
    let others = "\nand 6 more tasks: --by-name takes them together, --json has all\n";
    assert!(text.contains(others), "{text}");
    let total = text.lines().last().unwrap();
    assert!(total.starts_with("tasks 1,006, "), "{total}");
    let json = place.print(&["trace", "summary", "--json", "run.trap"]);
    let tasks = json.lines().filter(|line| line.contains("\"sleeper\""));
    assert_eq!(tasks.count(), 1005);
}

#[test]
fn summary_tells_of_tasks_that_were_alive_and_of_devices() {
    let place = Place::with(
        "summary-alive",
        &["--max-time", "10s", "alive", "--every", "4s"],
    );
    assert_golden(
        "summary-alive.txt",
        &place.print(&["trace", "summary", "run.trap"]),
    );
    devices(&place);
    assert_golden(
        "summary-device.txt",
        &place.print(&["trace", "summary", "run.trap"]),
    );
}

#[test]
fn both_summaries_have_a_task_of_few_traps_that_took_the_most_time() {
    let place = Place::new("most-time");
    let boot = [
        "boot",
        "-q",
        "--virtual",
        "--record",
        "run.trap",
        "--summary",
    ];
    let job = ["--with", "jobs --job 0,10ms"];
    let many = [
        "producer-consumer",
        "--producers",
        "2100",
        "--count",
        "4200",
    ];
    let (_, _, err) = place.run(&[&boot[..], &job, &many].concat());
    has(&err, "  exit\n    3  A ");
    let summary = place.print(&["trace", "summary", "run.trap"]);
    has(&summary, "\n    3  A ");
}

/// What the events of a table come to, computed without the code of the summary.
#[derive(Default)]
struct Sums {
    /// By task: the seconds in each state, turns, and traps.
    tasks: BTreeMap<u64, (BTreeMap<&'static str, f64>, u64, u64)>,
    /// By call: its number, its errors, and the seconds from trap to answer.
    calls: BTreeMap<String, (u64, u64, f64)>,
}

impl Sums {
    fn of(csv: &str) -> Self {
        let mut sums = Self::default();
        // By task: its state and when that began; its call, and when that trapped.
        let mut states: BTreeMap<u64, (&'static str, f64)> = BTreeMap::new();
        let mut calls: BTreeMap<u64, (String, f64)> = BTreeMap::new();
        let mut end = 0.0;
        for line in csv.lines().skip(1) {
            let cells: Vec<&str> = line.split(',').collect();
            let (at, tid): (f64, u64) = (cells[0].parse().unwrap(), cells[1].parse().unwrap());
            let (event, call) = (cells[3], cells[4]);
            end = at;
            let state = match event {
                "spawned" | "woken" | "replied" => "ready",
                "resumed" | "computing" => "running",
                "trapped" => "in_call",
                "blocked" => "blocked",
                "exited" => "over",
                _ => continue,
            };
            if tid == 0 {
                continue;
            }
            let (_, turns, traps) = sums.tasks.entry(tid).or_default();
            *turns += u64::from(event == "resumed");
            *traps += u64::from(event == "trapped");
            match event {
                "trapped" => {
                    calls.insert(tid, (call.to_string(), at));
                    sums.calls.entry(call.to_string()).or_default().0 += 1;
                }
                "replied" => {
                    let (name, from) = calls.remove(&tid).expect("a call that is answered");
                    let (_, errors, total) = sums.calls.entry(name).or_default();
                    *errors += u64::from(line.ends_with(",1"));
                    *total += at - from;
                }
                // A call that ends with its task.
                "exited" => {
                    if let Some((name, from)) = calls.remove(&tid) {
                        sums.calls.entry(name).or_default().2 += at - from;
                    }
                }
                _ => {}
            }
            if let Some((before, from)) = states.insert(tid, (state, at)) {
                sums.add(tid, before, at - from);
            }
        }
        for (tid, (state, from)) in states {
            sums.add(tid, state, end - from);
        }
        sums
    }

    fn add(&mut self, tid: u64, state: &'static str, seconds: f64) {
        let (states, ..) = self.tasks.entry(tid).or_default();
        *states.entry(state).or_default() += seconds;
    }
}

#[test]
fn the_summary_agrees_with_sums_over_the_events() {
    let place = Place::with("sums", &["convoy"]);
    place.record("upstream.trap", &["slow-upstream"]);
    let (code, ..) = place.run(&["boot", "-q", "--record", "real.trap", "lists"]);
    assert_eq!(code, 0);
    for file in ["run.trap", "upstream.trap", "real.trap"] {
        let sums = Sums::of(&place.print(&["trace", "export", "--format", "csv", file]));
        let summary = place.print(&["trace", "summary", "--json", file]);
        let (mut tasks, mut calls) = (0, 0);
        for line in summary.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let near = |key: &str, sum: f64| {
                let told = row[key]
                    .as_f64()
                    .unwrap_or_else(|| panic!("no {key} in {line}"));
                assert!(
                    (told - sum).abs() < 1e-6,
                    "{file}: {key} is {sum} in {line}"
                );
            };
            if row["summary"] == "task" {
                let (states, turns, traps) = &sums.tasks[&row["tid"].as_u64().unwrap()];
                for state in ["running", "in_call", "ready", "blocked"] {
                    near(state, states.get(state).copied().unwrap_or(0.0));
                }
                near("turns", *turns as f64);
                near("traps", *traps as f64);
                tasks += 1;
            } else if row["summary"] == "call" {
                let (count, errors, total) = sums.calls[row["call"].as_str().unwrap()];
                near("count", count as f64);
                near("errors", errors as f64);
                near("total", total);
                calls += 1;
            } else {
                let running = sums
                    .tasks
                    .values()
                    .map(|(states, ..)| states.get("running").copied().unwrap_or(0.0));
                near("tasks", running.sum());
            }
        }
        assert_eq!(
            (tasks, calls),
            (sums.tasks.len(), sums.calls.len()),
            "{file}"
        );
    }
}

#[test]
fn a_summary_of_a_run_without_time_says_so() {
    let place = Place::with("timeless", &["parts"]);
    let summary = place.print(&["trace", "summary", "run.trap"]);
    begins(&summary, "the run took no virtual time\n");
}
