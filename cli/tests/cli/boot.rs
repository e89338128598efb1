//! The command line, as its users meet it: the built binary, run as a process.

mod console;
mod sockets;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, PipeWriter},
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Signal, kill_process},
};
use serde_json::Value;

use crate::support::*;

// ---- tools

fn lines(times: usize, text: &str) -> String {
    text.repeat(times)
}

/// Comes back once the pipe takes no more.
fn fill(writer: &PipeWriter) {
    let mut pipe = [PollFd::new(writer, PollFlags::OUT)];
    eventually("a full pipe", || {
        (poll(&mut pipe, Some(&Timespec::default())).unwrap() == 0).then_some(())
    });
}

// ---- transcripts

#[test]
fn parts() {
    assert_eq!(transcript(&["parts"]), "Part 1\nPart 2\n");
}

#[test]
fn multitask_takes_turns() {
    let out = transcript(&["multitask", "--foo", "2", "--bar", "2"]);
    assert_eq!(
        out,
        "I'm foo\nI'm bar\nI'm foo\nI'm bar\nTask 1 terminated\nTask 2 terminated\n"
    );
}

#[test]
fn multitask_ends_one_task_before_the_other() {
    let out = transcript(&["multitask", "--foo", "10", "--bar", "5"]);
    let both = lines(5, "I'm foo\nI'm bar\n");
    let foo = lines(4, "I'm foo\n");
    assert_eq!(
        out,
        format!("{both}I'm foo\nTask 2 terminated\n{foo}Task 1 terminated\n")
    );
}

#[test]
fn tids() {
    let both = lines(5, "I'm foo 1\nI'm bar 2\n");
    let bar = lines(5, "I'm bar 2\n");
    assert_eq!(
        transcript(&["tids"]),
        format!("{both}Task 1 terminated\n{bar}Task 2 terminated\n")
    );
}

#[test]
fn kill() {
    let foo = lines(5, "I'm foo 2\n");
    assert_eq!(
        transcript(&["kill"]),
        format!("{foo}Task 2 terminated\nmain done\nTask 1 terminated\n")
    );
}

#[test]
fn wait() {
    let foo = lines(5, "I'm foo 2\n");
    assert_eq!(
        transcript(&["wait"]),
        format!("Waiting for child\n{foo}Task 2 terminated\nChild done\nTask 1 terminated\n")
    );
}

#[test]
fn alive() {
    assert_eq!(
        transcript(&["alive", "--count", "3"]),
        lines(3, "I'm alive\n")
    );
}

#[test]
fn countdown() {
    let mut expected = String::new();
    for n in 0..20 {
        if n % 4 == 0 {
            expected += &format!("Down {}\n", 5 - n / 4);
        }
        expected += &format!("Up {n}\n");
    }
    assert_eq!(transcript(&["countdown"]), expected);
}

#[test]
fn countdown_counts_down_and_then_up_in_one_task() {
    let down = (1..=5).rev().map(|n| format!("Down {n}\n"));
    let up = (0..5).map(|n| format!("Up {n}\n"));
    let expected: String = down.chain(up).collect();
    assert_eq!(transcript(&["countdown", "--synchronous"]), expected);
}

#[test]
fn subroutines() {
    assert_eq!(
        transcript(&["subroutines"]),
        "\
TASK BEGIN...
     MainStep...
         SmallStep(s)...
             I'm doing the small step...
             I'm finished
         SmallStep(s) Finished with result 123
     MainStep Finished with result 12300
TASK END
"
    );
    // The innermost really sleeps.
    let boot = ["boot", "-q", "--virtual", "--max-time"];
    let (code, out, _) = run(&[&boot[..], &["1999ms", "subroutines"]].concat());
    assert_eq!((code, out.lines().count()), (4, 4), "{out}");
    let (code, ..) = run(&[&boot[..], &["2s", "subroutines"]].concat());
    assert_eq!(code, 0);
}

#[test]
fn sleepers_sleep_at_the_same_time() {
    let out = transcript(&["sleepers"]);
    let words: Vec<&str> = out.split_whitespace().collect();
    assert_eq!(words[..4], ["1000", "tasks", "slept", "for"]);
    let sum: f64 = words[4].trim_end_matches('s').parse().unwrap();
    let took: f64 = words[6].trim_end_matches("ms").parse().unwrap();
    assert!((400.0..600.0).contains(&sum), "{out}");
    assert!((900.0..1000.0).contains(&took), "{out}");
    assert_eq!(out, transcript(&["sleepers"]), "a seed is a run");
}

// ---- commands

#[test]
fn list_shows_the_first_line_of_each_help() {
    let (code, out, err) = run(&["list"]);
    assert_eq!((code, &*err), (0, ""));
    let groups = out.trim_end().split("\n\n");
    let groups = groups.map(|group| group.split_once(":\n").unwrap());
    let groups: BTreeMap<&str, &str> = groups.collect();
    for (group, line) in [
        ("The course", "  parts              A task in two parts"),
        ("Servers and clients", "  echo               A server that"),
        ("Scheduling", "  jobs               Jobs that arrive"),
        (
            "What goes wrong",
            "  starved            Goes wrong: a worker",
        ),
    ] {
        assert!(groups[group].starts_with(line), "{out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let lines = groups.values().flat_map(|lines| lines.lines());
    // What is too long goes on below itself.
    let lines = lines.filter(|line| !line.starts_with("   "));
    let (count, shown) = (lines.clone().count(), |line: &str| {
        line.starts_with("  ") && line[2..].contains("  ") && line.trim_end() == line
    });
    assert!(lines.clone().all(shown), "{out}");

    let (code, out, err) = run(&["list", "--json"]);
    assert_eq!((code, &*err), (0, ""));
    let objects: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects.len(), count);
    let echo = objects.iter().find(|object| object["name"] == "echo");
    assert_eq!(echo.unwrap()["group"], "Servers and clients");
    assert!(objects.iter().all(|object| object["about"] != ""), "{out}");
}

#[test]
fn a_list_without_groups_has_no_headings() {
    let (code, out, _) = texts(rude(&["list"]).output().unwrap());
    assert_eq!(code, 0);
    assert!(out.starts_with("panics  "), "{out}");
    assert!(out.lines().all(|line| !line.ends_with(':')), "{out}");
    let (_, out, _) = texts(rude(&["list", "--json"]).output().unwrap());
    let first: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!(first["group"], Value::Null);
}

#[test]
fn help_has_examples() {
    for args in [["--help"].as_slice(), &["boot", "--help"]] {
        let (code, out, _) = run(args);
        assert_eq!(code, 0);
        assert!(out.contains("Examples:\n  trapline "), "{out}");
    }
    let (code, out, _) = run(&["boot", "echo", "--help"]);
    assert_eq!(code, 0);
    assert!(out.contains("Usage: trapline boot echo [OPTIONS]"), "{out}");
}

#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, out, _) = run(&["completions", shell]);
        assert_eq!(code, 0);
        assert!(out.contains("multitask"), "{shell} knows the programs");
        let knows = |words: &str| assert!(out.contains(words), "{shell}: {words}");
        // Other shells get no words for the value of an option.
        if ["bash", "zsh", "fish"].contains(&shell) {
            let gap = if shell == "fish" { "\\t''\n" } else { " " };
            knows(&["fifo", "rr", "sjf", "stcf"].join(gap));
            knows(&["random", "pct", "surw", "rff", "fifo", "exhaustive"].join(gap));
            let mark = if shell == "zsh" { "\\:" } else { ":" };
            knows(
                &["get_tid", "yield"]
                    .map(|call| format!("{call}{mark}"))
                    .join(gap),
            );
        }
    }
    // Behind a program's name as well.
    let (_, fish, _) = run(&["completions", "fish"]);
    let behind = "using_subcommand explore; and __fish_seen_subcommand_from multitask\" -l ";
    for (option, word) in [
        ("strategy", "exhaustive\\t"),
        ("inject", "yield:\\t"),
        ("table", ""),
    ] {
        let of_option = format!("{behind}{option} ");
        let line = fish
            .split("\ncomplete ")
            .find(|line| line.contains(&of_option));
        let line = line.unwrap_or_else(|| panic!("no --{option}"));
        assert!(line.contains(word), "{line}");
    }
    let (code, out, _) = run(&["man"]);
    assert_eq!(code, 0);
    assert!(out.contains(".TH trapline 1"), "{out}");
    let (code, out, _) = run(&["man", "boot", "echo"]);
    assert_eq!(code, 0);
    assert!(out.contains("\\-\\-prefix"), "{out}");
}

#[test]
fn with_boots_other_programs_beside_the_first() {
    let (code, out, err) = run(&[
        "boot",
        "--virtual",
        "-q",
        "--with",
        "alive --count 2 --every '1s'",
        "--with",
        "parts",
        "alive",
        "--count",
        "1",
    ]);
    assert_eq!((code, &*err), (0, ""));
    assert_eq!(out, "I'm alive\nI'm alive\nPart 1\nPart 2\nI'm alive\n");
}

#[test]
fn a_random_seed_is_printed_and_repeats_the_run() {
    let (_, first, err) = run(&["boot", "--virtual", "sleepers", "--count", "10"]);
    let seed = err
        .strip_prefix("seed ")
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let again = format!("seed {seed} (repeat the run with --seed {seed})\n");
    assert_eq!(err, again);
    let (_, second, err) = run(&[
        "boot",
        "--virtual",
        "--seed",
        seed,
        "sleepers",
        "--count",
        "10",
    ]);
    assert_eq!((first, &*err), (second, ""));
    // The real world repeats no more than its random numbers, and promises no more.
    let (_, _, err) = run(&["boot", "parts"]);
    assert!(
        err.ends_with("repeats the random numbers, not the timing)\n"),
        "{err}"
    );
    assert!(!err.contains("run"), "{err}");
}

// ---- exit codes and messages

#[test]
fn a_failed_task_is_exit_code_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let args = ["boot", "--seed", "1", "echo", "--addr", &addr];
    let (code, out, err) = run(&args);
    assert_eq!((code, &*out), (1, ""));
    assert!(
        err.starts_with(&format!(
            "warning: task 1 \"echo\" failed: cannot listen on {addr}: Address"
        )) && err.ends_with("(see --addr)\n"),
        "{err}"
    );
    // Why it failed is said all the same.
    let quiet = run(&[["boot", "-q"].as_slice(), &args[1..]].concat());
    assert_eq!(quiet, (1, String::new(), err));
}

#[test]
fn a_console_that_is_full_is_exit_code_1_and_does_not_end_the_run() {
    for world in [&[][..], &["--virtual"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let args = [
            &["boot", "-q"],
            world,
            &["--with", "alive --count 2 --every 1ms", "parts"],
        ];
        let output = trapline(&args.concat()).stdout(full).output().unwrap();
        let (code, _, err) = texts(output);
        assert_eq!(code, 1);
        let lines: Vec<_> = err.lines().collect();
        assert_eq!(lines.len(), 2, "it is said once: {err}");
        assert!(
            lines[0].starts_with("warning: cannot write to the console: No space left on device"),
            "{err}"
        );
        assert_eq!(
            lines[1],
            "warning: the console did not take 34 bytes that tasks printed: they are lost"
        );
    }
}

#[test]
fn a_file_that_is_as_large_as_files_may_be_does_not_end_the_run() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("large.txt");
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "ulimit -f 1; exec \"$0\" boot -q multitask --foo 5000 --bar 9 > \"$1\"",
    ]);
    shell.arg(env!("CARGO_BIN_EXE_trapline")).arg(&file);
    let (code, _, err) = texts(shell.output().unwrap());
    assert_eq!(code, 1);
    begins(&err, "warning: cannot write to the console: File too large");
    let _ = fs::remove_file(file);
}

#[test]
fn a_seed_decides_the_turns_under_a_random_policy() {
    let run = |policy: &str, seed: &str| {
        let boot = [
            "boot",
            "-q",
            "--virtual",
            "--policy",
            policy,
            "--seed",
            seed,
        ];
        let (code, out, err) = run(&[&boot[..], &["multitask"]].concat());
        assert_eq!((code, &*err), (0, ""));
        out
    };
    let fifo = run("fifo", "1");
    for policy in ["random", "pct", "pct:2"] {
        assert_eq!(run(policy, "1"), run(policy, "1"));
        let seeds = ["1", "2", "3", "4"];
        assert!(
            seeds.iter().any(|seed| run(policy, seed) != fifo),
            "{policy}"
        );
    }
}

#[test]
fn usage_is_exit_code_2_and_says_what_to_do() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "Examples:"),
        (&["boot"], "Programs:"),
        (&["bot"], "'boot'"),
        (&["echo"], "'boot echo'"),
        (
            &["boot", "ehco"],
            "there is no program 'ehco': did you mean 'echo'?",
        ),
        (
            &["boot", "xyzzy"],
            "there is no program 'xyzzy'\n\nThe command `list`",
        ),
        (&["boot", "--virtual"], "name a program to boot"),
        (
            &["boot", "--record", "-", "parts"],
            "standard output is for what the programs print: give a file",
        ),
        (
            &["boot", "parts", "--virtual"],
            "--virtual is an option of boot, and goes before the program",
        ),
        (
            &["boot", "parts", "--color", "never"],
            "--color is an option of boot, and goes before the program",
        ),
        (
            &["trace", "show", "--color", "always", "x"],
            "tip: --color goes before the command",
        ),
        (
            &["trace", "show", "--call", "recieve", "x"],
            "invalid value 'recieve' for '--call <CALL>'\n  [possible values: get_tid, yield,",
        ),
        (
            &["trace", "live", "--attach", "x", "--call", "slep"],
            "a similar value exists: 'sleep'",
        ),
        (
            &["top", "--attach", "x", "--every", "70s"],
            "'70s' for '--every <TIME>': it takes 50ms to 30s",
        ),
        (
            &["boot", "--top=18446744073709551615s", "parts"],
            "it takes 50ms to 30s",
        ),
        (&["ps", "--quiet"], "tip: --quiet goes before the command"),
        (
            &["boot", "parts", "-q"],
            "tip: -q is an option of boot, and goes before the program",
        ),
        (
            &["explore", "-q", "parts"],
            "tip: -q goes before the command: trapline -q explore\n",
        ),
        (
            &["explore", "--color", "never", "parts"],
            "tip: --color goes before the command: trapline --color WHEN explore\n",
        ),
        (
            &["explore", "parts", "-q"],
            "tip: -q goes before the command: trapline -q explore parts\n",
        ),
        (
            &["trace", "summary", "-q", "x"],
            "tip: -q goes before the command: trapline -q trace summary\n",
        ),
        (
            &["ps"],
            "tip: a kernel has a socket if it was booted with one: trapline boot --monitor SOCKET PROGRAM",
        ),
        (&["why", "2"], "boot --monitor SOCKET PROGRAM"),
        (&["trace", "live"], "boot --monitor SOCKET PROGRAM"),
        (
            &["trace", "show", "--max-ticks", "3", "x"],
            "--max-ticks is an option of boot, and goes before the program",
        ),
        (
            &["tree", "--by-name"],
            "tip: --by-name is an option of ps, trace summary, trace ps\n",
        ),
        (
            &["explore", "--max-time", "0s", "parts"],
            "'0s' for '--max-time <TIME>': no schedule runs in no time",
        ),
        (
            &["explore", "--schedules", "0", "parts"],
            "'0' for '--schedules <N>': it takes a whole number from 1 to",
        ),
        (&["boot", "multitask", "--fo", "3"], "'--foo'"),
        (
            &["boot", "--seed", "abc", "parts"],
            "'abc' for '--seed <N>': it takes a whole number",
        ),
        (
            &["boot", "multitask", "--foo", "-1"],
            "invalid value '-1' for '--foo <",
        ),
        (
            &["boot", "--virtual", "--chaos", "-1", "parts"],
            "invalid value '-1' for '--chaos <LEVEL>'",
        ),
        (
            &["boot", "--seed", "-1", "parts"],
            "'-1' for '--seed <N>': it takes a whole number",
        ),
        (
            &["boot", "--max-time", "10", "parts"],
            "such as 500ms, 10s or 2m",
        ),
        (
            &["boot", "--policy", "lifo", "parts"],
            "did you mean 'fifo'? There are fifo, rr, sjf,",
        ),
        (
            &["boot", "--policy", "pct:x", "parts"],
            "pct takes a number of changes from 0 to 1000, and the turns of a run, such as pct:3 or",
        ),
        (
            &["boot", "--policy", "fifo:3", "parts"],
            "fifo takes no parameters",
        ),
        (
            &["boot", "--trace=a=b", "parts"],
            "--trace=a=b is not a filter",
        ),
        (
            &["boot", "--with", "ehco", "parts"],
            "in --with \"ehco\": there is no program 'ehco': did you mean 'echo'?",
        ),
        (
            &["boot", "--with", "alive --evry 1s", "parts"],
            "in --with \"alive --evry 1s\": unexpected argument '--evry'",
        ),
        (
            &["boot", "--with", "alive 'x", "parts"],
            "in --with \"alive 'x\": a quote is not closed",
        ),
        (
            &["boot", "--with", "", "parts"],
            "in --with \"\": it names no program",
        ),
        (
            &["boot", "--inject", "recvv:kill", "parts"],
            "'recvv:kill' for '--inject <RULE>': there is no call 'recvv': did you mean 'recv'?",
        ),
        (
            &["boot", "--inject", "sleep:error=Other", "parts"],
            "'sleep' cannot fail: only calls that return an io::Result can",
        ),
        (
            &["boot", "--inject", "recv:error=Foo", "parts"],
            "there is no kind of error 'Foo': there are AddrInUse, AddrNotAvailable, BrokenPipe, ",
        ),
        (
            &["boot", "--deny", "connect,lissten", "parts"],
            "'lissten' for '--deny <CALL,..>': there is no call 'lissten': did you mean 'listen'?",
        ),
        (
            &["boot", "--deny", "everything", "parts"],
            "there is no call 'everything': there are tasks, time, queues, devices, network, files, \
             world, admin, new_task, ",
        ),
        (
            &["boot", "--policy", "rr:1ms,2ms", "parts"],
            "rr takes one time, such as 10ms: '2ms' is a second",
        ),
        (
            &["trace", "show", "--call", "lock", "x.trap"],
            "a lock is a 'get' of a mutex",
        ),
        (&["boot", "http-get", "https://a/"], "use http://"),
        (&["boot", "http-get", "a b"], "it must begin with http://"),
        (&["man", "boot", "nothing"], "no command 'nothing'"),
        (
            &["boot", "--virtual", "--top", "parts"],
            "a virtual run is over at once: --record it",
        ),
        (
            &["boot", "--monitor", "x.sock", "--virtual", "parts"],
            "a virtual run is over at once: --record it",
        ),
    ];
    for (args, message) in cases {
        let (code, out, err) = run(args);
        assert_eq!((code, &*out), (2, ""), "{args:?}");
        assert!(err.contains(message), "{args:?}: {err}");
    }
    let (_, _, err) = run(&["boot", "--on-deadlock", "lock", "parts"]);
    assert!(!err.contains("a lock is"), "it takes no call: {err}");
    let output = trapline(&["boot", "parts"]).env("RUST_LOG", "a=b").output();
    let (code, _, err) = texts(output.unwrap());
    assert_eq!(code, 2);
    assert!(err.contains("RUST_LOG=a=b is not a filter"), "{err}");
}

#[test]
fn a_target_without_its_crate_is_a_warning() {
    for filter in ["kernel", "info,kernel=trace"] {
        let (code, out, err) = run(&["boot", "--virtual", &format!("--trace={filter}"), "parts"]);
        assert_eq!(code, 0);
        assert!(!out.is_empty());
        assert!(err.contains("did you mean trapline::kernel?"), "{err}");
    }
    let (_, _, err) = run(&["boot", "--virtual", "--trace=trapline::shed=trace", "parts"]);
    let told = "nothing by trapline::shed: the targets are trapline::kernel, trapline::sched,";
    assert!(err.contains(told), "{err}");
    let mut command = trapline(&["boot", "--virtual", "parts"]);
    let output = command
        .env("RUST_LOG", "info,trapline::shed=trace")
        .output();
    let (_, _, err) = texts(output.unwrap());
    has(&err, "RUST_LOG=info,trapline::shed=trace selects");
    assert!(err.contains(told), "{err}");
}

#[test]
fn a_filter_for_the_crate_shows_all_targets_also_to_the_quiet() {
    for quiet in [&["-q"][..], &[]] {
        let boot = ["boot", "--virtual", "--seed", "1", "--trace=trapline=trace"];
        let (_, _, err) = run(&[&boot[..], quiet, &["parts"]].concat());
        for what in ["resumed\n", "console \"Part 1\\n\"\n", "exited: done\n"] {
            assert!(err.contains(what), "{quiet:?}: no {what} in {err}");
        }
    }
}

#[test]
fn a_filter_by_name_matches_whole_names_and_events_have_fields() {
    let shown = |filter: &str| {
        let trace = format!("--trace={filter}");
        let json = ["boot", "-q", "--virtual", &trace, "--log-format", "json"];
        let (code, _, err) = run(&[&json[..], &["producer-consumer", "--count", "2"]].concat());
        assert_eq!(code, 0);
        let lines = err
            .lines()
            .map(|line| serde_json::from_str(line).expect("it is JSON"));
        lines.collect::<Vec<Value>>()
    };
    let lines = shown("[task{comm=consumer}]=trace");
    assert!(!lines.is_empty());
    assert!(
        lines.iter().all(|line| line["comm"] == "consumer"),
        "{lines:?}"
    );
    assert!(
        shown("[task{comm=consume}]=trace").is_empty(),
        "a part of a name is no name"
    );
    let lines = shown("trapline::kernel=trace,trapline::sched=trace");
    let get = lines
        .iter()
        .find(|line| line["op"] == "get")
        .expect("a call");
    assert_eq!(
        (&get["queue"], &get["call"]),
        (&1.into(), &"get(queue 1)".into())
    );
    let woken = lines
        .iter()
        .find(|line| line["woken_by"] == "queue 1")
        .expect("a wake-up");
    assert_eq!(woken["op"], "get");
}

#[test]
fn inject_fails_delays_and_kills_calls() {
    let inject = |rules: &[&str]| {
        let mut args = vec!["boot", "--virtual", "--seed", "1"];
        for rule in rules {
            args.extend(["--inject", rule]);
        }
        args.extend(["multitask", "--foo", "3", "--bar", "3"]);
        run(&args)
    };
    let (code, out, err) = inject(&["yield:kill:when=4"]);
    assert_eq!(
        (code, &*out, &*err),
        (
            0,
            "I'm foo\nI'm bar\nI'm foo\nI'm bar\nI'm foo\nTask 1 terminated\n",
            ""
        )
    );
    // The first rule that selects a call applies, and one that does nothing says so.
    let (code, out, err) = inject(&[
        "yield:delay=1s:when=1",
        "yield:kill:when=1..1",
        "recv:error=ConnectionReset:when=3+2",
        "yield:kill:when=99",
    ]);
    let printed = "I'm foo\nI'm bar\nI'm bar\nI'm bar\nTask 2 terminated\n\
                   I'm foo\nI'm foo\nTask 1 terminated\n";
    assert_eq!((code, &*out), (0, printed));
    assert_eq!(
        err,
        "warning: --inject 'yield:kill:when=1..1' did nothing: tasks made 6 calls of 'yield'\n\
         warning: --inject 'recv:error=ConnectionReset:when=3+2' did nothing: no task made that \
         call\n\
         warning: --inject 'yield:kill:when=99' did nothing: tasks made 6 calls of 'yield'\n"
    );
}

#[test]
fn inject_shows_in_traces_and_recordings() {
    let file = std::env::temp_dir().join(format!("trapline-inject-{}.trap", std::process::id()));
    let name = file.to_str().expect("it is text");
    let boot = [
        "boot",
        "--virtual",
        "--seed",
        "1",
        "--trace",
        "--record",
        name,
        "--inject",
        "listen:error=AddrInUse",
        "echo",
    ];
    let (code, _, err) = run(&boot);
    assert_eq!(code, 1);
    let line = "injected into listen(127.0.0.1:45000): address in use\n";
    assert!(err.contains(line), "{err}");
    let (code, out, _) = run(&["trace", "show", "--errors", name]);
    assert_eq!(code, 0);
    assert!(out.contains(line), "{out}");
    let (_, out, _) = run(&["trace", "export", "--format", "csv", name]);
    assert!(out.contains(",injected,listen,address in use,1\n"), "{out}");
    let (code, out, _) = run(&["trace", "timeline", "--format", "html", name]);
    assert_eq!(code, 0);
    assert!(out.contains("injected address in use"));
    fs::remove_file(file).unwrap();
}

#[test]
fn s77_deny_holds_for_all_programs_of_the_boot_and_shows_in_traces_and_recordings() {
    let file = std::env::temp_dir().join(format!("trapline-deny-{}.trap", std::process::id()));
    let name = file.to_str().expect("it is text");
    let boot = [
        "boot",
        "--virtual",
        "--seed",
        "1",
        "--trace",
        "--record",
        name,
    ];
    let deny = ["--deny", "network,random", "--with", "parts", "echo"];
    let (code, _, err) = run(&[&boot[..], &deny].concat());
    assert_eq!(code, 1);
    assert_eq!(err.matches("limited: all but network, random").count(), 2);
    let denied = "= Denied (the limits of this task do not allow the call)";
    assert!(err.contains(denied), "{err}");
    let (_, out, _) = run(&["trace", "show", "--errors", name]);
    assert!(out.contains(denied), "{out}");
    let alive = ["--max-time", "1s", "--deny", "network", "alive"];
    let (code, _, _) = run(&[&boot[..], &alive].concat());
    assert_eq!(code, 4);
    for view in ["ps", "tree"] {
        let (_, out, _) = run(&["trace", view, "--at", "500ms", name]);
        assert!(out.contains("alive (limited)"), "{out}");
    }
    fs::remove_file(file).unwrap();
}

#[test]
fn a_deadlock_is_exit_code_3() {
    let (code, out, err) = run(&["boot", "-q", "--virtual", "alive", "--every", "1000years"]);
    assert_eq!((code, &*out), (3, "I'm alive\n"));
    assert_eq!(
        err,
        "error: deadlock: no task is ready, and nothing can make one ready\n  \
         tid 1 \"alive\" waits for nothing: it sleeps for ever, since 00:00.000\n    \
         sleep at programs/alive.rs:21\n"
    );
}

#[test]
fn tasks_that_lock_each_other_out_beside_a_live_one_are_exit_code_3() {
    let stop = ["boot", "-q", "--virtual", "--on-deadlock", "stop"];
    let (code, _, err) = run(&[&stop[..], &["--with", "alive", "deadlock"]].concat());
    assert_eq!(code, 3);
    assert_eq!(
        err,
        "error: deadlock: tasks wait for one another, and no other can end that\n  \
         tid 1 \"deadlock\" waits for the end of task 3, since 00:00.000\n    \
         wait at programs/cases/deadlock.rs:29\n  \
         tid 3 \"save\" waits for mutex 2, held by task 4, since 00:00.001\n    \
         lock at programs/cases/deadlock.rs:42, spawned at programs/cases/deadlock.rs:20\n  \
         tid 4 \"spend\" waits for mutex 1, held by task 3, since 00:00.001\n    \
         lock at programs/cases/deadlock.rs:42, spawned at programs/cases/deadlock.rs:28\n  \
         cycle: 3 -> 4 -> 3\n  waits on a cycle: 1 -> 3\n"
    );
}

#[test]
fn s87_a_task_that_stops_the_virtual_clock_is_a_warning_once() {
    let boot = ["boot", "-q", "--virtual", "--with", "alive"];
    let spins = ["multitask", "--foo", "2100000", "--bar", "0"];
    let args = [&boot[..], &["--max-ticks", "2100000"], &spins].concat();
    // A line of each turn goes nowhere: through a pipe it would take most of the time.
    let out = trapline(&args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output();
    let (code, _, err) = texts(out.expect("it runs"));
    assert_eq!(code, 4, "{err}");
    let said = "warning: task 1 \"multitask\" has had a million turns at 00:00.000: the virtual clock \
                stops while a task is ready, and other tasks wait for the clock\n";
    assert!(err.starts_with(said), "{err}");
    assert_eq!(err.matches("a million turns").count(), 1, "{err}");
}

#[test]
fn a_limit_is_exit_code_4() {
    let (code, _, err) = run(&["boot", "-q", "--virtual", "--max-ticks", "3", "alive"]);
    assert_eq!(code, 4);
    assert_eq!(
        err,
        "error: the limit of 3 ticks is reached: raise --max-ticks\n  \
         tid 1 \"alive\" waits for the timer at 00:03.000, since 00:02.000\n    \
         sleep at programs/alive.rs:21\n"
    );
    let (code, _, err) = run(&["boot", "-q", "--virtual", "--max-time", "1m", "alive"]);
    assert_eq!(code, 4);
    let first = err.lines().next();
    assert_eq!(
        first,
        Some("error: the limit of 1m is reached: raise --max-time")
    );
    let (code, _, err) = run(&["boot", "-q", "--virtual", "--max-time", "90m", "alive"]);
    assert_eq!(code, 4);
    let first = err.lines().next();
    assert_eq!(
        first,
        Some("error: the limit of 1h 30m is reached: raise --max-time")
    );
    let (code, _, err) = run(&["boot", "-q", "--max-tasks", "1", "--with", "parts", "parts"]);
    assert_eq!(code, 4);
    assert_eq!(
        err,
        "error: cannot boot: too many live tasks: raise --max-tasks\n"
    );
}

// ---- watching

#[test]
fn a_wait_for_threads_alone_ends_at_its_limit() {
    let stall = ["boot", "-q", "--max-stall", "50ms"];
    let reads = ["fake-io", "--count", "2", "--delay", "10m"];
    let (code, _, err) = run(&[&stall[..], &reads].concat());
    assert_eq!(code, 3);
    assert!(err.starts_with("error: stalled: no task is ready"), "{err}");
    has(&err, "\n  jobs under way: 2\n  tid 1 \"fake-io\"");
}

#[test]
fn trace_reads_like_strace() {
    let (code, _, err) = run(&["boot", "--virtual", "--seed", "1", "--trace", "tids"]);
    assert_eq!(code, 0);
    let tids = "00:00.000000    1 tids         yield()                      = ok\n";
    let bar = "00:00.000000    2 bar          yield()                      = ok\n";
    let expected = [
        "00:00.000000    1 tids         spawned by the host\n",
        "00:00.000000    1 tids         get_tid()                    = 1\n",
        "00:00.000000    2 bar          spawned by 1\n",
        "00:00.000000    1 tids         new_task(\"bar\")              = 2\n",
        "00:00.000000    2 bar          get_tid()                    = 2\n",
        &lines(5, &[tids, bar].concat()),
        "00:00.000000    1 tids         exited: done\n",
        "00:00.000000    1 tids         reaped\n",
        &lines(5, bar),
        "00:00.000000    2 bar          exited: done\n",
        "00:00.000000    2 bar          reaped\n",
    ];
    assert_eq!(err, expected.concat());
}

#[test]
fn trace_shows_when_a_call_blocks_and_when_it_is_answered() {
    let (_, _, err) = run(&[
        "boot",
        "--virtual",
        "--seed",
        "1",
        "--trace",
        "alive",
        "--count",
        "1",
    ]);
    let expected = "\
00:00.000000    1 alive        spawned by the host
00:00.000000    1 alive        sleep(1s) ...
00:01.000000    1 alive        ... sleep(1s)                = ok
00:01.000000    1 alive        exited: done
00:01.000000    1 alive        reaped
";
    assert_eq!(err, expected);
}

#[test]
fn trace_takes_a_filter_and_so_does_the_environment() {
    let (_, _, err) = run(&[
        "boot",
        "-q",
        "--virtual",
        "--trace=trapline::sched=trace",
        "parts",
    ]);
    let turn = "00:00.000000    1 parts        resumed\n";
    assert_eq!(err, lines(2, turn));
    let mut command = trapline(&["boot", "-q", "--virtual", "parts"]);
    let output = command.env("RUST_LOG", "trapline::sched=trace").output();
    assert_eq!(texts(output.unwrap()).2, lines(2, turn));
}

#[test]
fn a_target_of_a_trace_that_no_event_has_is_named() {
    let boot = |filter: &str| {
        let trace = format!("--trace={filter}");
        run(&["boot", "--virtual", "--seed", "1", &trace, "parts"]).2
    };
    let unseen = "has shown nothing: no event had the target foo; those of the kernel have \
                  trapline::kernel, trapline::sched";
    has(&boot("foo=trace"), &format!("--trace=foo=trace {unseen}"));
    has(
        &boot("trapline::sched=trace,foo"),
        &format!("--trace=foo {unseen}"),
    );
    // What a level leaves out may be there.
    for known in [
        "trapline::sched=trace",
        "foo=info",
        "trace",
        "[task{tid=1}]=trace",
    ] {
        let err = boot(known);
        assert!(!err.contains("has shown nothing"), "{known}: {err}");
    }
}

#[test]
fn json_is_an_object_a_line() {
    let (code, _, err) = run(&[
        "boot",
        "--virtual",
        "--trace",
        "--log-format",
        "json",
        "--summary",
        "wait",
    ]);
    assert_eq!(code, 0);
    let mut of_two = 0;
    for line in err.lines() {
        let object: Value = serde_json::from_str(line).expect("each line is JSON");
        assert!(object.is_object(), "{line}");
        assert!(line.matches("\"tid\":").count() <= 1, "{line}");
        of_two += usize::from(object["tid"] == 2 && object["comm"] == "foo");
    }
    assert_eq!(of_two, 9, "{err}");
    assert!(err.contains(r#""call":"wait_task(2)","#), "{err}");
    assert!(
        err.contains(r#""call":"yield","count":5,"errors":0,"median":0.0,"summary":"call""#),
        "{err}"
    );
}

#[test]
fn colours_are_for_terminals_unless_they_are_wanted() {
    let colored = |args: &[&str], environment: &[&str]| {
        let mut command = trapline(&[args, &["boot", "--virtual", "--trace", "parts"]].concat());
        command.envs(environment.iter().map(|name| (name, "1")));
        texts(command.output().unwrap()).2.contains('\x1b')
    };
    assert!(!colored(&[], &[]));
    assert!(colored(&["--color", "always"], &[]));
    assert!(colored(&["--color", "always"], &["NO_COLOR"]));
    assert!(colored(&[], &["CLICOLOR_FORCE"]));
    assert!(!colored(&["--color", "never"], &["CLICOLOR_FORCE"]));
    assert!(!colored(&[], &["CLICOLOR_FORCE", "NO_COLOR"]));
}

#[test]
fn summary_is_a_table_of_tasks_and_one_of_calls() {
    let (_, out, err) = run(&["boot", "-q", "--virtual", "--summary", "countdown"]);
    assert!(!out.contains("tid"));
    let calls = "\
tasks 0 %, kernel 0 %, idle 100 % of 20s

 call      count  errors  blocked  median  99th
 sleep        25       0      40s      1s    4s
 new_task      2       0        0       0     0
";
    let expected = "
 tid  task       ticks  traps  busy  blocked  exit
   1  countdown      3      2     0        0  done
   2  down           6      5     0      20s  done
   3  up            21     20     0      20s  done

tasks 3, ticks 30, traps 27, time 00:20.000000
";
    assert_eq!(err, [calls, expected].concat());
    let boot = ["boot", "-q", "--virtual", "--summary", "--by-name"];
    let (_, _, err) = run(&[&boot[..], &["sleepers", "--count", "5000"]].concat());
    let rows: Vec<_> = err.lines().filter(|line| line.ends_with("done")).collect();
    assert!(rows[1].trim().starts_with("5,000  sleeper "), "{err}");
    assert!(rows[1].ends_with("  5000 done") && rows.len() == 2, "{err}");
    let (code, _, err) = run(&["boot", "--virtual", "--by-name", "wait"]);
    assert!(code == 2 && err.contains("--summary"), "{err}");
}

#[test]
fn summary_has_a_thousand_tasks_at_most() {
    let boot = ["boot", "-q", "--virtual", "--seed", "1", "--summary"];
    let sleepers = ["sleepers", "--count", "5000"];
    let (_, _, err) = run(&[&boot[..], &sleepers].concat());
    let rows: Vec<_> = err.lines().filter(|line| line.ends_with("done")).collect();
    assert_eq!(rows.len(), 1000);
    // The one with the most traps ends last, and the others have as many as each other.
    assert!(rows[0].starts_with("    1  sleepers  "), "{}", rows[0]);
    assert!(rows[999].starts_with(" 1000  sleeper   "), "{}", rows[999]);
    assert!(err.contains("\nand 4,001 more tasks: --by-name"), "{err}");
    assert!(err.contains("\ntasks 5,001, ticks 25,003, "), "{err}");
    let (_, _, err) = run(&[&boot[..], &["--log-format", "json"], &sleepers].concat());
    has(&err, "{\"summary\":\"left_out\",\"tasks\":4001}\n");
}

#[test]
fn warnings_and_exits_are_json_too() {
    let boot = ["boot", "--virtual", "--seed", "1", "--log-format", "json"];
    let share = ["--policy", "fair", "--share", "none:nice=3"];
    let rules = [&share[..], &["--inject", "recv:kill"]].concat();
    let (code, _, err) = run(&[&boot[..], &rules, &["--exits", "tids"]].concat());
    assert_eq!(code, 0);
    let line = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    let lines: Vec<Value> = err.lines().map(line).collect();
    let warnings = lines.iter().filter(|line| line["level"] == "WARN");
    assert_eq!(warnings.count(), 2, "{err}");
    let last = lines.last().unwrap();
    assert_eq!((&last["exits"], &last["live"]), (&"all".into(), &0.into()));
    let (_, _, err) = run(&[&boot[..], &["--exits", "kill"]].concat());
    let line = err.lines().map(line).find(|line| line["exits"] == "task");
    let line: Value = line.expect("a task is killed");
    assert_eq!((&line["tid"], &line["exit"]), (&2.into(), &"killed".into()));
}

#[test]
fn summary_is_shown_after_a_deadlock_and_a_limit() {
    let (code, _, err) = run(&["boot", "--summary", "alive", "--every", "1000years"]);
    assert_eq!(code, 3);
    assert!(err.contains("none: it was alive"), "{err}");
    let boot = ["boot", "--virtual", "--summary", "--max-time", "9s"];
    let computing = ["--with", "jobs --job 0,60s", "alive"];
    let (code, _, err) = run(&[&boot[..], &computing].concat());
    assert_eq!(code, 4);
    assert!(err.contains("  9s  "), "{err}");
    assert!(!err.contains("panicked"), "{err}");
}

// ---- interrupts

#[test]
fn s53_sigint_ends_a_server_that_waits_for_a_device() {
    let mut run = Running::with_pipes(&["boot", "--summary", "echo", "--addr", "127.0.0.1:0"]);
    run.out_line();
    run.signal(Signal::INT);
    let (code, err) = run.end();
    assert_eq!(code, Some(130));
    assert!(err.contains("interrupted: shutting down"), "{err}");
    assert!(err.contains("select"), "the summary is shown: {err}");
}

#[test]
fn s53_sigint_ends_a_kernel_that_sleeps() {
    let mut run = Running::with_pipes(&["boot", "alive", "--every", "1day"]);
    run.out_line();
    run.signal(Signal::INT);
    assert_eq!(run.end().0, Some(130));
}

#[test]
fn s53_sigint_ends_a_busy_kernel_in_either_world() {
    for world in [["boot"].as_slice(), &["boot", "--virtual"]] {
        for program in [
            ["multitask", "--foo", "4294967295"].as_slice(),
            &["alive", "--every", "0s"],
        ] {
            let mut run = Running::with_stderr(&[world, program].concat());
            assert!(run.err_line().starts_with("seed "));
            run.signal(Signal::INT);
            assert_eq!(run.end().0, Some(130), "{world:?} {program:?}");
        }
    }
}

#[test]
fn s53_a_second_sigint_ends_what_nobody_reads() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unread.trap");
    let record = ["--record-last", "10", "--record", file.to_str().unwrap()];
    for options in [
        &[][..],
        &["--virtual"],
        &record,
        &[&record[..], &["--virtual"]].concat(),
    ] {
        let (_reader, writer) = io::pipe().unwrap();
        let args = [&["boot"], options, &["alive", "--every", "1ns"]].concat();
        let mut command = trapline(&args);
        // Messages go to a stream without a reader, too.
        command.stderr(writer.try_clone().unwrap());
        command.stdout(writer.try_clone().unwrap());
        let mut run = Running::start(&mut command);
        fill(&writer);
        let code = interrupt_to_the_end(&mut run.child);
        assert_eq!(code, Some(130), "{options:?}");
        assert_eq!(
            fs::remove_file(&file).is_ok(),
            options.contains(&"--record")
        );
    }
}

#[test]
fn s53_a_second_sigint_ends_it_at_once() {
    // A task that makes no trap hears of nothing.
    let mut command = rude(&["boot", "hogs", "--after", "1ms"]);
    let mut run = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(run.out_line(), "hogging now\n");
    assert!(run.err_line().starts_with("seed "));
    run.signal(Signal::INT);
    assert!(run.err_line().starts_with("interrupted"));
    run.signal(Signal::INT);
    assert_eq!(run.end().0, Some(130));
}

#[test]
fn sigterm_ends_a_run_in_order() {
    let mut run = Running::with_pipes(&["boot", "--summary", "alive", "--every", "1day"]);
    run.out_line();
    kill_process(run.pid(), Signal::TERM).unwrap();
    let (code, err) = run.end();
    assert_eq!(code, Some(143));
    assert!(err.contains("interrupted: shutting down"), "{err}");
    assert!(err.contains("killed"), "the summary is shown: {err}");
}

#[test]
fn a_quantum_of_no_ticks_is_a_wrong_command_line() {
    let (code, _, err) = run(&["boot", "--quantum", "0", "parts"]);
    assert_eq!(code, 2);
    assert!(err.contains("a whole number from 1 to"), "{err}");
}
