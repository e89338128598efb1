//! A task that makes no trap, in a search whose time ends.

use std::{
    env, fs, hint, io,
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use trapline::{Error, Kernel, Os, Shared, check};

/// A task that makes no trap any more, if another had its second turn before.
fn spins(kernel: &mut Kernel) -> Result<(), Error> {
    let flag = Shared::new(false);
    let is_set = flag.clone();
    kernel.spawn("sets", async move |os: &mut Os| {
        os.yield_now().await;
        flag.set(true);
    })?;
    kernel.spawn("spins", async move |os: &mut Os| {
        os.sleep(Duration::ZERO).await;
        while is_set.get() {
            thread::park();
        }
    })?;
    kernel.run()?.check()
}

/// A task whose call does not end: the simulated world does the work within it.
fn works(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn("works", async |os: &mut Os| {
        os.sleep(Duration::ZERO).await;
        let work = || {
            loop {
                thread::park();
            }
        };
        let _ = os.run_blocking::<()>(work).await;
    })?;
    kernel.run()?.check()
}

/// Run by the tests below in a process of its own.
#[test]
fn process_spins() {
    if super::is_process() {
        check(spins).time(Duration::from_millis(300)).run();
    }
}

#[test]
fn process_works() {
    if super::is_process() {
        check(works).time(Duration::from_millis(300)).run();
    }
}

#[test]
fn process_spins_on_threads() {
    if super::is_process() {
        let search = check(spins).threads(2).time(Duration::from_millis(300));
        search.run();
    }
}

#[test]
fn process_does_not_go_on() {
    if super::is_process() {
        let search = check(|kernel| {
            kernel.spawn("none", async |os: &mut Os| os.yield_now().await)?;
            kernel.run()?;
            loop {
                thread::park();
            }
        });
        search.time(Duration::from_millis(300)).run();
    }
}

#[test]
fn process_checks_for_long() {
    if super::is_process() {
        let search = check(|kernel| {
            kernel.spawn("none", async |os: &mut Os| os.yield_now().await)?;
            kernel.run()?;
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(700) {
                hint::spin_loop();
            }
            Ok(())
        });
        // No schedule of this part runs twice.
        let search = search.shard(1, 2).time(Duration::from_millis(100));
        search.run();
    }
}

/// Fails when it runs for the first time, and does not go on then.
fn is_lost_once(kernel: &mut Kernel) -> Result<(), Error> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    kernel.spawn("none", async |os: &mut Os| os.yield_now().await)?;
    kernel.run()?;
    if RUNS.fetch_add(1, Ordering::Relaxed) == 0 {
        return Err(Error::Io(io::Error::other("an order is lost")));
    }
    loop {
        thread::park();
    }
}

#[test]
fn process_fails_and_does_not_go_on() {
    if super::is_process() {
        let search = check(is_lost_once);
        search.time(Duration::from_millis(300)).run();
    }
}

#[test]
fn process_fails_and_does_not_go_on_on_threads() {
    if super::is_process() {
        let search = check(is_lost_once).threads(2);
        search.time(Duration::from_millis(300)).run();
    }
}

/// Prints the names of the threads of the process.
#[cfg(target_os = "linux")]
#[test]
fn process_names_its_threads() {
    if super::is_process() {
        let search = check(|kernel| {
            for thread in fs::read_dir("/proc/self/task").map_err(Error::Io)? {
                let comm = thread.map_err(Error::Io)?.path().join("comm");
                eprint!("{}", fs::read_to_string(comm).map_err(Error::Io)?);
            }
            kernel.spawn("none", async |os: &mut Os| os.yield_now().await)?;
            kernel.run()?.check()
        });
        search.schedules(100).run();
    }
}

/// Runs a test in a process of its own: its exit code, and what it prints to standard error.
fn process(test: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env::current_exe().expect("it has a path"));
    let test = format!("explore::watchdog::{test}");
    command.args(["--exact", &test, "--nocapture", "--test-threads=1"]);
    command.env("TRAPLINE_TEST_PROCESS", "1");
    command.envs(variables.iter().copied());
    let Output { status, stderr, .. } = command.output().expect("it runs");
    (
        status.code(),
        String::from_utf8(stderr).expect("it is text"),
    )
}

/// Checks all cases at the same time, each on a thread of its own: their processes wait for the clock.
fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    let check = &check;
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || check(case));
        }
    });
}

#[test]
fn a_task_that_makes_no_trap_ends_the_process_with_the_time_of_the_search() {
    let mut lines = include_str!("watchdog.rs").lines();
    let line = lines.position(|line| line.contains("os.sleep(Duration::ZERO)"));
    let place = format!("{}:{}", file!(), line.expect("it is there") + 1);
    at_once(
        [
            ("process_spins", "random"),
            ("process_spins", "pct:1"),
            ("process_spins", "fifo"),
            ("process_spins", "exhaustive"),
            ("process_spins_on_threads", "random"),
            ("process_spins_on_threads", "exhaustive"),
        ],
        |(test, strategy)| {
            let (code, text) = process(test, &[("TRAPLINE_STRATEGY", strategy)]);
            assert_eq!(code, Some(1), "{strategy}: {text}");
            let why = format!(
                "error: the time of 300ms is over, and task 2 \"spins\" makes no trap since, or is \
                 still in, its call sleep, at or after {place}\nto see it again:  TRAPLINE_REPLAY="
            );
            let (_, again) = text
                .split_once(&why)
                .unwrap_or_else(|| panic!("{strategy}: {text}"));
            assert!(again.contains(" cargo test explore::watchdog::process_spins"));
            let (replay, _) = again.split_once(' ').expect("the command follows");
            let (code, text) = process("process_spins", &[("TRAPLINE_REPLAY", replay)]);
            assert!(
                code == Some(1) && text.contains(&why),
                "{strategy}, {replay}: {text}"
            );
        },
    );
}

#[test]
fn a_call_that_does_not_end_is_named() {
    let mut lines = include_str!("watchdog.rs").lines();
    let line = lines.position(|line| line.contains("os.run_blocking::<()>"));
    let place = format!("{}:{}", file!(), line.expect("it is there") + 1);
    let (code, text) = process("process_works", &[]);
    let why = format!(
        "task 1 \"works\" makes no trap since, or is still in, its call submit, at or after {place}\n"
    );
    assert!(code == Some(1) && text.contains(&why), "{text}");
}

#[test]
fn a_body_that_does_not_go_on_ends_the_process_with_the_time_of_the_search() {
    let (code, text) = process("process_does_not_go_on", &[]);
    let why = "error: the time of 300ms is over, and no task has a turn: the test itself does not \
               go on\nto see it again:  TRAPLINE_REPLAY=0.random.00000000 cargo test";
    assert!(code == Some(1) && text.contains(why), "{text}");
}

#[test]
fn a_body_that_goes_on_for_less_than_a_second_after_the_end_passes() {
    let (code, text) = process("process_checks_for_long", &[]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_failure_that_was_found_comes_before_the_task_that_does_not_go_on() {
    at_once(
        [
            ("process_fails_and_does_not_go_on", "random"),
            ("process_fails_and_does_not_go_on", "pct:1"),
            ("process_fails_and_does_not_go_on", "exhaustive"),
            ("process_fails_and_does_not_go_on_on_threads", "random"),
            ("process_fails_and_does_not_go_on_on_threads", "exhaustive"),
        ],
        |(test, strategy)| {
            let (code, text) = process(test, &[("TRAPLINE_STRATEGY", strategy)]);
            let found = "error: a schedule fails: the world failed: an order is lost\nto see it again:  TRAPLINE_REPLAY=";
            let (_, found) = text
                .split_once(found)
                .unwrap_or_else(|| panic!("{test}, {strategy}: {text}"));
            let (again, end) = found.split_once('\n').expect("a line follows");
            let command = format!(".00000000 cargo test explore::watchdog::{test}");
            assert!(again.contains(&command), "{test}, {strategy}: {text}");
            let why = "error: the time of 300ms is over, and no task has a turn";
            assert!(
                code == Some(1) && end.starts_with(why),
                "{test}, {strategy}: {text}"
            );
        },
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_search_without_an_end_is_not_watched() {
    let (code, text) = process("process_names_its_threads", &[]);
    let is_watched = |text: &str| text.lines().any(|name| name == "watchdog");
    assert!(code == Some(0) && !is_watched(&text), "{text}");
    let (code, text) = process("process_names_its_threads", &[("TRAPLINE_TIME", "1m")]);
    assert!(code == Some(0) && is_watched(&text), "{text}");
}
