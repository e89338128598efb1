//! Each option of `explore`, `grade`, `lab`, `boot` and `replay` changes something that it says it changes, or
//! is refused. The options are those of the help, so one without a row here fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
};

use crate::support::{at_once, rude, run, texts, trapline};

/// What shows that an option has an effect.
enum Shows {
    /// The text is in what the command prints, with the option alone. The exit code and the files
    /// that it makes belong to that.
    Text(&'static str),
    /// The text is there without the option alone.
    NoText(&'static str),
    /// What it prints is different.
    Change,
    /// A test of this file has this name.
    Test(&'static str, &'static str),
}
use Shows::{Change, NoText, Test, Text};

/// An option with its value, the rest of the command line, and what shows its effect. The rest begins
/// with variables of the environment, if any. `{}` stands for a folder with a tape, `run.tape`.
type Row = (&'static [&'static str], &'static str, Shows);

const SERVER: &str = "--seed 1 --on server:echo|--addr|0.0.0.0:80 swarm --addr server:80 --clients 2 \
                      --requests 3";

const EXPLORE: &[Row] = &[
    (
        &["--strategy", "exhaustive"],
        "--json wait",
        Text("\"complete\":true"),
    ),
    (&["--schedules", "7"], "wait", Text("7 schedules pass")),
    (&["--seed", "7"], "deadlock", Text(" fails, seed 7;")),
    (&["--preemptions", "0"], "wait", Text("1 schedule passes;")),
    (
        &["--max-ticks", "3"],
        "wait",
        Text("the limit of 3 ticks is reached"),
    ),
    (
        &["--max-time", "1ns"],
        "wait",
        Text("no schedule ran to its end within --max-time"),
    ),
    (
        &["--jobs", "1"],
        "",
        Test("options.rs", "as_many_threads_search_as_the_option_says"),
    ),
    (
        &["--shard", "1/2"],
        "--schedules 4 wait",
        Text("2 schedules of part 1/2 pass"),
    ),
    (
        &["--shards", "2"],
        "PARALLEL_SEQ=1 --schedules 4 wait",
        Text("2 schedules of part 1/2"),
    ),
    (&["--with", "deadlock"], "wait", Text("cycle: ")),
    (&["--on", "a:deadlock"], "wait", Text("cycle: ")),
    (&["--net", "latency=1s"], SERVER, Change),
    (&["--fault", "0s:cut main server"], SERVER, Text("exit 1")),
    (&["--chaos", "3"], SERVER, Text("requests failed")),
    (
        &["--inject", "recv:error=ConnectionReset"],
        SERVER,
        Text("connection reset"),
    ),
    (
        &["--turns-take", "0..5ms"],
        "--strategy exhaustive timers",
        Text("if turns take at most 5ms on average"),
    ),
    (
        &["--faults", "1"],
        "--may get_tid:kill wait",
        Text("outcomes: 9"),
    ),
    (
        &["--may", "get_tid:kill"],
        "--faults 1 wait",
        Text("outcomes: 9"),
    ),
    (&["--cut", "foo"], "wait", Text("12 cuts at 2 calls")),
    (
        &["--cut-by-timeout", "foo"],
        "wait",
        Text("no call of a task \"foo\" is within a timeout"),
    ),
    (&["--table"], "--cut foo wait", Text("  safe")),
    (
        &["--estimate"],
        "--schedules 20 wait",
        Text("of the probability is in orders not yet seen"),
    ),
    (
        &["--mutate"],
        "wait",
        Text("mutations: there is no call to leave out"),
    ),
    (
        &["--signal", "0s:TERM"],
        "deadlock",
        Text("1000 schedules pass"),
    ),
    (&["--stdin", "Cargo.toml"], "upper", Change),
    (
        &["--replay", "7.1.00000000"],
        "deadlock",
        Text("\nit fails with "),
    ),
    (
        &["--record", "{}"],
        "deadlock",
        Text("file deadlock-fails.trap"),
    ),
    (&["--json"], "wait", Text("{\"bound\":")),
];

const JOBS: &str = "jobs --job 0,40ms --job 0,40ms";
const LOTTERY: &str = "--policy lottery jobs --job 0,40ms --job 0,40ms";

const GRADE: &[Row] = &[
    (
        &["--reference", "lost-wakeup --cured"],
        "lost-wakeup",
        Text("DEADLOCK: the reference never comes to this"),
    ),
    (
        &["--schedules", "1"],
        "lost-wakeup --reference lost-wakeup",
        Text("it ended after 1 schedules"),
    ),
    (
        &["--max-ticks", "3"],
        "wait --reference wait",
        Text("schedules of more than 3 turns were cut"),
    ),
    (
        &["--turns-take", "0..5ms"],
        "lost-wakeup --reference lost-wakeup",
        Text("if turns take at most 5ms on average"),
    ),
    (
        &["--max-time", "1ns"],
        "wait --reference wait",
        Text("it ended after 1ns"),
    ),
    (
        &["--seed", "7"],
        "lost-wakeup --reference lost-wakeup|--cured",
        Text("the seed is 7"),
    ),
    (
        &["--jobs", "1"],
        "",
        Test("options.rs", "as_many_threads_search_as_the_option_says"),
    ),
    (
        &["--json"],
        "wait --reference wait",
        Text("\"verdict\":\"equal\""),
    ),
];

const LAB: &[Row] = &[
    (&["--policy", "rr:7ms"], JOBS, Text("rr:7ms")),
    (&["--processors", "2"], JOBS, NoText("80ms")),
    (&["--seeds", "3"], LOTTERY, Change),
    (&["--seed", "3"], LOTTERY, Change),
    (
        &["--share", "B:priority=1"],
        "--policy priority jobs --job 0,40ms --job 0,40ms",
        Change,
    ),
    (&["--max-time", "5ms"], JOBS, Text("exit 1")),
    (&["--json"], JOBS, Text("{\"end\":")),
    (&["--html", "{}/lab.html"], JOBS, Text("file lab.html")),
    (&["--svg", "{}/lab.svg"], JOBS, Text("file lab.svg")),
];

const BOOT: &[Row] = &[
    (&["--color", "always"], "--trace parts", Text("\u{1b}[")),
    (&["--quiet"], "parts", NoText("repeats the random numbers")),
    (
        &["--verbose"],
        "",
        Test(
            "options.rs",
            "the_log_lines_of_programs_are_shown_if_asked_for",
        ),
    ),
    (&["--with", "tids"], "parts", Text("I'm bar")),
    (&["--virtual"], "parts", Text("repeat the run with --seed")),
    (
        &["--seed", "7"],
        "parts",
        NoText("repeats the random numbers"),
    ),
    (
        &["--inject", "get_tid:kill"],
        "--virtual --seed 1 wait",
        NoText("Child done"),
    ),
    (&["--stdin", "Cargo.toml"], "upper", Text("[WORKSPACE]")),
    (
        &["--signal", "500ms:TERM"],
        "--virtual sleepers",
        Text("SIGTERM has ended the run"),
    ),
    (&["--kernels", "2"], "--trace parts", Text(" 2:1 parts ")),
    (&["--trace"], "parts", Text("yield()")),
    (&["--log-format", "json"], "--trace parts", Text("{\"")),
    (&["--summary"], "parts", Text("tasks 1, ticks ")),
    (
        &["--by-name"],
        "--virtual --seed 1 --summary sleepers",
        NoText("more task: --by-name"),
    ),
    (&["--record", "{}/run.trap"], "parts", Text("file run.trap")),
    (
        &["--record-last", "1"],
        "",
        Test("trace/record.rs", "a_ring_has_the_end_of_a_run"),
    ),
    (
        &["--post-mortem"],
        "--virtual --seed 1 deadlock",
        Text("the last traps of task 3"),
    ),
    (
        &["--exits"],
        "--virtual --seed 1 kill",
        Text("exit: task 2 \"foo\": killed"),
    ),
    (
        &["--monitor"],
        "",
        Test("live.rs", "ps_lists_the_tasks_and_not_the_monitor"),
    ),
    (&["--top"], "parts", Text("a screen needs a terminal")),
    (
        &["--disk", "{}"],
        "",
        Test(
            "disk.rs",
            "the_disk_of_a_run_is_the_directory_of_the_option",
        ),
    ),
    (&["--tape", "{}/new.tape"], "parts", Text("file new.tape")),
    (
        &["--tape-max", "1k"],
        "--tape {}/new.tape fake-io --delay 100ms",
        Text("has reached its limit"),
    ),
    (&["--max-tasks", "1"], "wait", Text("too many live tasks")),
    (&["--max-ticks", "3"], "wait", Text("raise --max-ticks")),
    (
        &["--max-time", "1ms"],
        "--virtual sleepers",
        Text("raise --max-time"),
    ),
    (
        &["--deny", "time"],
        "--virtual sleepers",
        Text("lack now, of Calls::TIME"),
    ),
    (
        &["--max-stall", "1ms"],
        "fake-io --delay 100ms",
        Text("exit 3"),
    ),
    (
        &["--on-deadlock", "kill"],
        "--virtual deadlock",
        Text("task 3 is killed"),
    ),
    (&["--quantum", "2"], "--virtual --seed 1 multitask", Change),
    (
        &["--policy", "pct:0,length=9"],
        "--virtual --seed 1 multitask",
        Change,
    ),
    (
        &["--processors", "2"],
        "--virtual --seed 1 --summary jobs --job 0,40ms --job 0,40ms",
        Change,
    ),
    (
        &["--share", "B:priority=1"],
        "--virtual --seed 1 --summary --policy priority jobs --job 0,40ms --job 0,40ms",
        Change,
    ),
    (&["--on", "a:tids"], "--virtual parts", Text("I'm bar")),
    (
        &["--net", "latency=1s"],
        "--virtual --seed 1 --on server:echo|--addr|0.0.0.0:80 swarm --addr server:80",
        Change,
    ),
    (
        &["--fault", "1s:crash localhost"],
        "--virtual --seed 1 --max-time 9s alive",
        Change,
    ),
    (
        &["--chaos", "3"],
        "--virtual --seed 1 --on server:echo|--addr|0.0.0.0:80 swarm --addr server:80 --think 1s",
        Change,
    ),
];

const REPLAY: &[Row] = &[
    (
        &["--color", "always"],
        "--trace {}/run.tape",
        Text("\u{1b}["),
    ),
    (
        &["--quiet"],
        "--task 77 {}/run.tape",
        NoText("there was no task 77"),
    ),
    (
        &["--verbose"],
        "",
        Test(
            "options.rs",
            "the_log_lines_of_programs_are_shown_if_asked_for",
        ),
    ),
    (
        &["--at-speed"],
        "",
        Test("replay.rs", "a_replay_can_take_as_long_as_its_run"),
    ),
    (&["--task", "2"], "{}/run.tape", Text("get_tid()")),
    (
        &["--as-test", "it"],
        "",
        Test(
            "replay/as_test.rs",
            "a_tape_becomes_a_test_that_holds_on_to_its_run",
        ),
    ),
    (
        &["--explore", "5"],
        "",
        Test("reenact.rs", "a_cured_chat_passes_all_schedules"),
    ),
    (
        &["--replay", "0..00000000"],
        "",
        Test(
            "reenact.rs",
            "a_chat_that_loses_a_line_under_one_schedule_is_found_from_a_tape_of_a_good_run",
        ),
    ),
    (
        &["--expect", "bytes"],
        "",
        Test(
            "reenact.rs",
            "a_wrong_or_cut_answer_a_failure_and_a_deadlock_are_found",
        ),
    ),
    (&["--trace"], "{}/run.tape", Text("get_tid()")),
    (
        &["--log-format", "json"],
        "--trace {}/run.tape",
        Text("{\""),
    ),
    (&["--summary"], "{}/run.tape", Text("tasks 2, ticks ")),
    (&["--by-name"], "--summary {}/run.tape", Change),
    (
        &["--record", "{}/run.trap"],
        "{}/run.tape",
        Text("file run.trap"),
    ),
    (
        &["--record-last", "1"],
        "",
        Test("trace/record.rs", "a_ring_has_the_end_of_a_run"),
    ),
    (
        &["--post-mortem"],
        "{}/deadlock.tape",
        Text("the last traps of task 3"),
    ),
    (&["--exits"], "{}/run.tape", Text("exit: tasks done: 2")),
    (
        &["--monitor"],
        "",
        Test("live.rs", "ps_lists_the_tasks_and_not_the_monitor"),
    ),
    (&["--top"], "{}/run.tape", Text("a screen needs a terminal")),
];

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("trapline-options-{}-{name}", std::process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir(&folder).expect("it can be made");
        Self(folder)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("it is text")
    }

    /// The files, a line each with the size.
    fn files(&self) -> String {
        let files = fs::read_dir(&self.0).expect("it is there");
        let files = files.map(|file| {
            let file = file.expect("it can be read");
            let size = file.metadata().expect("it is there").len();
            format!("file {} of {size} bytes\n", file.file_name().display())
        });
        files.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a command in a folder of its own. Returns its exit code, what it prints and the files that it
/// makes.
fn shown(name: &str, of: &str, tapes: &Path, option: &[&str], rest: &str) -> String {
    let folder = Folder::new(name);
    for tape in fs::read_dir(tapes).expect("it is there") {
        let tape = tape.expect("it can be read");
        fs::copy(tape.path(), folder.0.join(tape.file_name())).expect("it can be copied");
    }
    let is_variable = |word: &&str| word.starts_with("PARALLEL_SEQ=");
    let (variables, rest): (Vec<&str>, Vec<&str>) = rest.split(' ').partition(is_variable);
    let rest: Vec<String> = rest.iter().map(|word| word.replace('|', " ")).collect();
    let words = option.iter().map(ToString::to_string).chain(rest);
    let words: Vec<String> = words
        .map(|word| word.replace("{}", folder.path()))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = trapline(&[&[of], &words[..]].concat());
    command.envs(variables.iter().filter_map(|word| word.split_once('=')));
    let (code, out, err) = texts(command.output().expect("it runs"));
    let text = format!("exit {code}\n{out}{err}").replace(folder.path(), "{}");
    text + &folder.files()
}

/// The options of a command, as its help lists them.
fn listed(of: &str) -> BTreeSet<String> {
    let (code, help, err) = run(&[of, "--help"]);
    assert_eq!((code, &*err), (0, ""));
    let long = |line: &str| {
        let option = line.trim_start();
        let is_head = option.starts_with('-') && (2..=6).contains(&(line.len() - option.len()));
        let at = option.find("--").filter(|_| is_head)?;
        let is_end = |c: char| !c.is_ascii_alphabetic() && c != '-';
        Some(option[at..].split(is_end).next()?.to_string())
    };
    help.lines()
        .filter_map(long)
        .filter(|option| option != "--help")
        .collect()
}

#[test]
fn each_option_changes_something_that_it_says_it_changes() {
    let tapes = Folder::new("tapes");
    for (name, program) in [("run.tape", "multitask"), ("deadlock.tape", "deadlock")] {
        let tape = tapes.0.join(name);
        run(&[
            "boot",
            "--tape",
            tape.to_str().expect("it is text"),
            program,
        ]);
    }
    let tables = [
        ("explore", EXPLORE),
        ("grade", GRADE),
        ("lab", LAB),
        ("boot", BOOT),
        ("replay", REPLAY),
    ];
    for (of, rows) in tables {
        let rows_of: BTreeSet<String> = rows.iter().map(|(option, ..)| option[0].into()).collect();
        assert_eq!(
            rows_of,
            listed(of),
            "{of}: a row for each option, and no other"
        );
    }
    let all = tables
        .iter()
        .flat_map(|(of, rows)| rows.iter().map(move |row| (*of, row)));
    let all: Vec<_> = all.enumerate().collect();
    let (wrong, plain) = (Mutex::new(Vec::new()), Plain::default());
    // A few at a time: each is a process or three.
    for some in all.chunks(8) {
        at_once(some, |(number, (of, row))| {
            let why = unshown(&number.to_string(), of, &tapes.0, &plain, row);
            wrong.lock().expect("no other has failed").extend(why);
        });
    }
    let wrong = wrong.into_inner().expect("none has failed");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A command, and the rest of its line.
type Bare = (String, &'static str);

/// What lines print without an option, which many rows share.
#[derive(Default)]
struct Plain(Mutex<BTreeMap<Bare, Arc<OnceLock<String>>>>);

impl Plain {
    fn get(&self, of: &str, rest: &'static str, run: impl FnOnce() -> String) -> String {
        let mut all = self.0.lock().expect("no other has failed");
        let shared = Arc::clone(all.entry((of.to_string(), rest)).or_default());
        drop(all);
        shared.get_or_init(run).clone()
    }
}

/// Says why an option does not show its effect, if so.
fn unshown(
    name: &str,
    of: &str,
    tapes: &Path,
    plain: &Plain,
    (option, rest, shows): &Row,
) -> Option<String> {
    let shown =
        |kind: &str, option: &[&str]| shown(&format!("{name}-{kind}"), of, tapes, option, rest);
    let plain = || plain.get(of, rest, || shown("none", &[]));
    let what = format!("{of} {} {rest}", option.join(" "));
    let (expected, lacks, has) = match shows {
        Text(text) => (text, plain(), shown("with", option)),
        NoText(text) => (text, shown("with", option), plain()),
        Change => {
            let (without, again) = (plain(), shown("same", &[]));
            let is_shown = shown("with", option) != without && again == without;
            return (!is_shown).then(|| format!("{what}: the same, or never the same:\n{without}"));
        }
        Test(file, name) => {
            let file = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/cli")
                .join(file);
            let tests = fs::read_to_string(file).expect("it is there");
            let has_test = tests.contains(&format!("fn {name}()"));
            return (!has_test).then(|| format!("{what}: there is no test {name}"));
        }
    };
    let is_shown = has.contains(expected) && !lacks.contains(expected);
    (!is_shown).then(|| format!("{what}: {expected:?} in\n{has}\nand not in\n{lacks}"))
}

#[test]
fn an_idea_has_one_option_and_its_other_names_are_hidden() {
    let folder = Folder::new("names");
    let tape = folder.0.join("run.tape");
    let tape = tape.to_str().expect("it is text");
    run(&["boot", "--tape", tape, "gossip"]);
    let failing = ["replay", "--explore", "1", "--replay", "x", tape];
    for (now, before) in [
        (&["explore", "--max-ticks", "3", "wait"][..], "--steps"),
        (&["explore", "--max-time", "1ns", "wait"], "--time"),
        (&["replay", "-q", "--task", "2", tape], "--only"),
        (&failing, "--schedule"),
    ] {
        let option = now
            .iter()
            .rfind(|word| word.starts_with("--"))
            .expect("there is one");
        let old: Vec<&str> = now
            .iter()
            .map(|word| if word == option { before } else { word })
            .collect();
        let (code, out, err) = run(now);
        assert!(!out.is_empty() || code == 2, "{now:?}: {err}");
        // Reports repeat the words.
        let (old_code, old_out, old_err) = run(&old);
        let renamed = |text: String| text.replace(before, option);
        let old = (old_code, renamed(old_out), renamed(old_err));
        assert_eq!(old, (code, out, err), "{now:?}");
        assert!(!listed(now[0]).contains(before), "{before} is hidden");
    }
}

#[test]
fn an_option_of_the_network_implies_the_simulated_world() {
    let on = ["--on", "a:wait", "--fault", "0s:crash a"];
    let boot = |more: &[&str]| run(&[&["boot", "--seed", "1"], &on[..], more, &["tids"]].concat());
    assert_eq!(boot(&[]), boot(&["--virtual"]));
    assert_eq!(boot(&[]).0, 0);
    let (code, _, err) = run(&["boot", "--chaos", "1", "--on", "a:wait", "tids"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("repeat the run with --seed"), "{err}");
    for (real, why) in [
        (&["--tape", "x"][..], "a virtual run needs no tape"),
        (&["--top"], "a virtual run is over at once"),
        (&["--monitor", "x"], "a virtual run is over at once"),
        (
            &["--disk", "."],
            "each host of the simulated network has a disk",
        ),
    ] {
        let (code, _, err) = boot(real);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(why), "{err}");
    }
}

#[test]
fn as_many_threads_search_as_the_option_says() {
    // Each thread has a schedule whose task prints a line, and then makes no trap.
    at_once([("1", 1), ("5", 5)], |(jobs, threads)| {
        let search = ["explore", "hogs", "--after", "0s", "--max-time", "1s"];
        let search = [&search[..], &["--jobs", jobs]].concat();
        let (code, out, _) = texts(rude(&search).output().expect("it runs"));
        assert_eq!(code, 1);
        let lines = out.lines().filter(|line| *line == "hogging now");
        assert_eq!(lines.count(), threads);
    });
}

#[test]
fn the_log_lines_of_programs_are_shown_if_asked_for() {
    let folder = Folder::new("verbose");
    let tape = format!("{}/run.tape", folder.path());
    let shows = |args: &[&str]| {
        texts(rude(args).output().expect("it runs"))
            .2
            .contains("info: rude: late")
    };
    assert!(!shows(&["boot", "--tape", &tape, "boasts"]));
    assert!(shows(&["boot", "--verbose", "boasts"]));
    assert!(!shows(&["replay", &tape]));
    assert!(shows(&["replay", "--verbose", &tape]));
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    for (args, why) in [
        (
            &[
                "explore",
                "--strategy",
                "random",
                "wait",
                "--preemptions",
                "1",
            ][..],
            "--preemptions cannot be used with --strategy",
        ),
        (
            &["explore", "--shard", "1/2", "wait", "--shards", "2"],
            "--shards cannot be used with --shard",
        ),
        (
            &["explore", "--chaos", "3", "wait"],
            "--chaos breaks what is between hosts",
        ),
        (
            &["boot", "--virtual", "--chaos", "3", "wait"],
            "--chaos breaks what is between hosts",
        ),
        (
            &["boot", "--share", "a:nice=1", "parts"],
            "--share a:nice=1 does nothing under fifo",
        ),
        (
            &[
                "lab",
                "--policy",
                "rr",
                "--policy",
                "fair",
                "--share",
                "a:tickets=1",
                "jobs",
            ],
            "--share a:tickets=1 does nothing under rr, fair",
        ),
    ] {
        let (code, out, err) = run(args);
        assert_eq!((code, &*out), (2, ""), "{args:?}: {err}");
        assert!(err.contains(why), "{args:?}: {err}");
    }
}

#[test]
fn a_rule_that_no_schedule_has_used_is_told() {
    let (code, out, err) = run(&[
        "explore",
        "--schedules",
        "3",
        "--inject",
        "recv:kill",
        "wait",
    ]);
    let told = "warning: --inject 'recv:kill' did nothing: no task made that call\n";
    assert_eq!((code, &*err), (0, told), "{out}");
}
