//! The search for a schedule that breaks a program.

#[path = "explore/../explore/detour.rs"]
mod detour;
mod excerpt;
mod rates;
mod report;
mod strategies;
mod watchdog;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    env, io,
    panic::catch_unwind,
    process::{Command, Output},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use trapline::{
    Check, Error, Event, Exit, Fact, Inject, Kernel, Os, Promise, Queue, Shared, SimNet, SimWorld,
    SystemCall, check,
    sched::{Pct, Random},
    sometimes,
    sync::Mutex,
};

use crate::support::two_counters;

/// Two tasks that read, trap and write: an increment may be lost.
fn lost_update(kernel: &mut Kernel) -> Result<(), Error> {
    let sum = two_counters::<Shared<u32>>(kernel)?;
    assert_eq!(sum, 2, "an increment is lost");
    Ok(())
}

/// Three tasks that take a few turns; the outcome is their order.
fn order(kernel: &mut Kernel) -> Result<(), Error> {
    let order = Rc::new(RefCell::new(String::new()));
    for name in ["a", "b", "c"] {
        let order = Rc::clone(&order);
        kernel.spawn(name, async move |os: &mut Os| {
            for _ in 0..2 {
                os.yield_now().await;
                order.borrow_mut().push_str(name);
            }
        })?;
    }
    kernel.run()?;
    kernel.outcome(&*order.borrow());
    Ok(())
}

/// The message with which a search panics.
fn report<F>(check: Check<F>) -> String
where
    F: Fn(&mut Kernel) -> Result<(), Error>,
{
    let check = std::panic::AssertUnwindSafe(check);
    let panic = catch_unwind(|| { check }.0.run()).expect_err("a schedule fails");
    match panic.downcast::<String>() {
        Ok(report) => *report,
        Err(panic) => panic
            .downcast::<&str>()
            .expect("the report is text")
            .to_string(),
    }
}

#[test]
fn a_random_search_finds_a_lost_update() {
    let explored = check(lost_update).explore();
    let failure = explored.failure.expect("some schedule loses it");
    assert!(
        failure.why.contains("an increment is lost"),
        "{}",
        failure.why
    );
    assert!(
        failure.why.contains("tests/it/explore.rs:"),
        "{}",
        failure.why
    );
    assert!(!explored.complete);
    assert!(explored.schedules < 100);
}

#[test]
fn a_search_by_priorities_finds_it_too() {
    assert!(check(lost_update).pct(1).explore().failure.is_some());
}

#[test]
fn fifo_runs_first_in_first_out() {
    let explored = check(order).fifo().schedules(10).explore();
    assert_eq!(explored.outcomes, BTreeSet::from(["abcabc".into()]));
    assert_eq!(explored.schedules, 10);
}

#[test]
fn a_random_search_reaches_every_order() {
    let explored = check(order).schedules(5_000).explore();
    assert_eq!(explored.outcomes.len(), 90);
}

#[test]
fn the_report_says_how_to_see_the_failure_again() {
    let report = report(check(lost_update).seed(5));
    assert!(report.contains("an increment is lost"), "{report}");
    let line = "cargo test explore::the_report_says_how_to_see_the_failure_again";
    assert!(report.contains(line), "{report}");
    assert!(report.contains("TRAPLINE_REPLAY="), "{report}");
}

#[test]
fn a_deadlock_a_fault_and_a_failure_fail_a_schedule() {
    let deadlock = check(|kernel| {
        kernel.spawn("one", async |os: &mut Os| os.wait(2.into()).await.map(drop))?;
        kernel.spawn("two", async |os: &mut Os| os.wait(1.into()).await.map(drop))?;
        kernel.run().map(drop)
    });
    let why = deadlock
        .schedules(1)
        .explore()
        .failure
        .expect("it is stuck")
        .why;
    assert!(why.contains("deadlock"), "{why}");
    let fault = check(|kernel| {
        kernel.spawn("sore", async |_: &mut Os| panic!("ouch"))?;
        kernel.run().map(drop)
    });
    let why = fault.schedules(1).explore().failure.expect("it faults").why;
    assert!(why.contains("task 1 \"sore\" faulted: ouch"), "{why}");
    fn failing(kernel: &mut Kernel) -> Result<trapline::Report, Error> {
        kernel.spawn("poor", async |_: &mut Os| Err("no luck"))?;
        kernel.run()
    }
    // S79: a failure that no task has waited for, whether the closure checks the report or not.
    for checks in [true, false] {
        let search = check(|kernel| {
            let report = failing(kernel)?;
            if checks { report.check() } else { Ok(()) }
        });
        let why = search.schedules(1).explore().failure.expect("it fails").why;
        assert_eq!(why, "task 1 \"poor\" failed: no luck");
    }
}

/// Asserts that every kind of search finds a deadlock.
fn is_found_by_all(body: fn(&mut Kernel) -> Result<(), Error>) {
    for search in [
        check(body).schedules(100),
        check(body).exhaustive().steps(50),
        check(body).preemptions(1).steps(50),
    ] {
        let failure = search.explore().failure.expect("two are stuck");
        assert!(failure.why.contains("deadlock"), "{failure}");
    }
}

/// Two tasks that may lock each other out.
async fn lock_crosswise(os: &mut Os) {
    let (a, b) = (Mutex::new(os, ()).await, Mutex::new(os, ()).await);
    for (a, b) in [(a.clone(), b.clone()), (b, a)] {
        let lock = async move |os: &mut Os| {
            let _a = a.lock(os).await;
            let _b = b.lock(os).await;
        };
        let locker = os.spawn_detached("locker", lock).await;
        locker.expect("there is room");
    }
}

#[test]
fn a_cycle_beside_a_task_that_lives_on_fails_a_schedule() {
    is_found_by_all(|kernel| {
        kernel.spawn("one", async |os: &mut Os| os.wait(2.into()).await.map(drop))?;
        kernel.spawn("two", async |os: &mut Os| os.wait(1.into()).await.map(drop))?;
        kernel.spawn("server", async |os: &mut Os| {
            loop {
                os.sleep(Duration::from_secs(1)).await;
            }
        })?;
        kernel.run().map(drop)
    });
}

#[test]
fn a_cycle_fails_a_schedule_whose_end_is_a_shutdown() {
    is_found_by_all(|kernel| {
        kernel.spawn("main", lock_crosswise)?;
        kernel.spawn("end", async |os: &mut Os| {
            os.sleep(Duration::from_millis(5)).await;
            os.shutdown().await;
        })?;
        kernel.run().map(drop)
    });
}

#[test]
fn a_cycle_fails_a_schedule_that_runs_until_others_end() {
    is_found_by_all(|kernel| {
        kernel.spawn("main", lock_crosswise)?;
        let nap = kernel.spawn("nap", async |os: &mut Os| {
            os.sleep(Duration::from_millis(5)).await;
        })?;
        kernel.run_until(&[nap]).map(drop)
    });
}

#[test]
fn a_schedule_that_never_ends_fails() {
    let endless = check(|kernel| {
        kernel.spawn("endless", async |os: &mut Os| {
            loop {
                os.yield_now().await;
            }
        })?;
        kernel.run().map(drop)
    });
    let explored = endless.schedules(1).steps(100).explore();
    let why = explored.failure.expect("it reaches the limit").why;
    assert_eq!(why, "the limit of 100 ticks is reached");
}

#[test]
fn a_refused_spawn_is_an_error_of_the_body() {
    let error = Error::from(trapline::Errno::TooManyTasks);
    assert_eq!(
        error.to_string(),
        "the kernel refused a call: too many live tasks"
    );
}

#[test]
fn a_schedule_is_that_of_a_kernel_with_its_seed() {
    // Schedule i of a seed S has the policy and the world of seed S + i.
    let text = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&text);
    let body = move |kernel: &mut Kernel| {
        let printing = async |os: &mut Os| {
            for _ in 0..3 {
                let number = os.random().await % 100;
                writeln!(os, "{number}");
            }
        };
        for name in ["a", "b", "c"] {
            kernel.spawn(name, printing)?;
        }
        kernel.run()?;
        log.borrow_mut().push(kernel.take_console());
        Ok(())
    };
    check(&body).seed(7).schedules(3).run();
    check(&body).pct(2).seed(7).schedules(3).run();
    let found = text.take();
    // The first of each search has run twice: its log was compared. Eight runs counted turns.
    let (random, pct) = found.split_at(4);
    let pct = &pct[8..];
    // Three tasks make three calls each, and are resumed once more after the last.
    let turns = 12;
    for seed in 7..10 {
        let builder = || Kernel::builder().world(SimWorld::new(seed));
        for (found, builder) in [
            (random, builder().policy(Random::new(seed))),
            (pct, builder().policy(Pct::new(2, seed).length(turns))),
        ] {
            let mut kernel = builder.build().expect("it boots");
            body(&mut kernel).expect("it ends well");
            let expected = text.take().remove(0);
            let place = if seed == 7 {
                0..2
            } else {
                seed as usize - 6..seed as usize - 5
            };
            for found in &found[place] {
                assert_eq!(*found, expected, "seed {seed}");
            }
        }
    }
}

#[test]
fn a_run_that_counts_turns_and_fails_is_named_and_counted() {
    let runs = Cell::new(0);
    let body = |kernel: &mut Kernel| {
        runs.set(runs.get() + 1);
        let seed = kernel.seed();
        kernel.outcome(format!("seed {seed}"));
        kernel.spawn("fails", async move |_: &mut Os| {
            assert!(seed < 4, "too many");
        })?;
        kernel.run()?.check()
    };
    let explored = check(body).pct(2).schedules(3).explore();
    assert_eq!(explored.schedules, 5);
    let outcomes: Vec<_> = explored.outcomes.iter().collect();
    assert_eq!(outcomes, ["seed 0", "seed 1", "seed 2", "seed 3", "seed 4"]);
    let failure = explored.failure.expect("the fifth fails");
    let name = "run 5 of the 8 that count turns fails, seed 4;";
    assert!(failure.details.starts_with(name), "{failure}");
    runs.set(0);
    let again = check(body).replay(&failure.replay).expect("it is one");
    let again = again.explore().failure.expect("it fails again");
    assert_eq!((again.why, again.replay), (failure.why, failure.replay));
    assert!(!again.details.contains("has changed"), "{}", again.details);
    assert_eq!(runs.get(), 1);
}

#[test]
fn threads_find_what_one_thread_finds() {
    let alone = check(order).schedules(500).explore();
    for threads in [1, 3, 0] {
        let together = check(order).schedules(500).threads(threads).explore();
        assert_eq!(together.outcomes, alone.outcomes);
        assert_eq!(together.schedules, 500);
    }
    let alone = check(lost_update).seed(3).explore().failure;
    let together = check(lost_update).seed(3).threads(2).explore().failure;
    assert_eq!(alone, together);
}

#[test]
fn a_search_ends_when_its_time_is_over() {
    let explored = check(order)
        .schedules(u64::MAX)
        .time(Duration::ZERO)
        .explore();
    assert_eq!((explored.schedules, explored.failure), (0, None));
}

#[test]
fn the_time_ends_a_schedule_that_never_ends() {
    let endless = || {
        let endless = check(|kernel: &mut Kernel| {
            for name in ["a", "b"] {
                kernel.spawn(name, async |os: &mut Os| -> ! {
                    loop {
                        os.yield_now().await;
                    }
                })?;
            }
            kernel.run().map(drop)
        });
        endless.steps(u64::MAX).time(Duration::from_millis(20))
    };
    let searches = [
        endless().random(),
        endless().pct(2),
        endless().fifo(),
        endless().audit(),
        endless().exhaustive(),
        endless().preemptions(1),
    ];
    for search in searches {
        let explored = search.explore();
        assert_eq!((explored.schedules, &explored.failure), (0, &None));
        assert!(!explored.complete);
        let bound = explored.bound.expect("the time has ended it");
        assert!(bound.starts_with("it ended after 20ms"), "{bound}");
    }
}

#[test]
fn a_program_that_counts_on_threads_is_named() {
    let runs = Cell::new(0);
    let order = |kernel: &mut Kernel| {
        // What a thread that is late would change.
        runs.set(runs.get() + 1);
        let is_late = runs.get() > 3 && runs.get() % 2 == 1;
        let value = Rc::new(Cell::new(0));
        let read = Rc::clone(&value);
        kernel.spawn("main", async move |os: &mut Os| {
            let (setter, promise) = Promise::<u32>::new(os).await;
            let setter = setter.remote();
            let thread = thread::spawn(move || setter.set(u32::from(is_late)));
            value.set(promise.wait(os).await.expect("the thread sets it"));
            let _ = thread.join();
        })?;
        kernel.spawn("other", async |os: &mut Os| os.yield_now().await)?;
        kernel.run()?;
        kernel.outcome(read.get().to_string());
        Ok(())
    };
    let explored = check(order).exhaustive().explore();
    assert!(!explored.complete);
    let failure = explored.failure.map(|failure| failure.why);
    let text = failure.or(explored.bound).unwrap_or_default();
    let named = "the program counts on threads of the operating system (Setter::remote)";
    assert!(text.contains(named), "{text}");
    assert!(!text.contains("share something"), "{text}");
}

#[test]
fn hidden_nondeterminism_is_named() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let hidden = check(|kernel| {
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        kernel.spawn("main", async move |os: &mut Os| {
            os.yield_now().await;
            if run.is_multiple_of(2) {
                os.random().await;
            }
            os.get_tid().await;
        })?;
        kernel.run().map(drop)
    });
    let why = hidden.explore().failure.expect("the two runs differ").why;
    assert!(why.contains("hidden nondeterminism"), "{why}");
    assert!(
        why.contains("trapped random()") && why.contains("trapped get_tid()"),
        "{why}"
    );
}

#[test]
fn a_hidden_outcome_is_named_although_the_events_are_the_same() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let counts = |kernel: &mut Kernel| {
        kernel.spawn("main", async |os: &mut Os| os.yield_now().await)?;
        kernel.run()?;
        kernel.outcome(RUNS.fetch_add(1, Ordering::Relaxed).to_string());
        Ok(())
    };
    for explored in [
        check(counts).explore(),
        check(counts).exhaustive().explore(),
    ] {
        let why = explored.failure.expect("the two runs differ").why;
        assert!(
            why.contains("its outcomes differ\n  first:  passes: "),
            "{why}"
        );
        assert!(why.starts_with("hidden nondeterminism"), "{why}");
    }
}

#[test]
fn a_failure_that_passes_when_it_runs_again_is_called_hidden() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let explored = check(|kernel| {
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        kernel.spawn("main", async move |_: &mut Os| {
            assert_ne!(run, 35, "unlucky");
        })?;
        kernel.run().map(drop)
    });
    let details = explored.explore().failure.expect("a run fails").details;
    assert!(
        details.contains("it passes when it runs again\nSomething besides"),
        "{details}"
    );
}

#[test]
fn a_closure_that_does_not_run_its_tasks_fails() {
    let explored = check(|kernel| {
        kernel.spawn("main", async |_: &mut Os| panic!("never"))?;
        Ok(())
    });
    let why = explored.explore().failure.expect("nothing has run").why;
    assert!(why.contains("call kernel.run()"), "{why}");
}

#[test]
fn one_causal_order_is_told_as_one_that_proves_nothing() {
    let apart = check(|kernel| {
        for name in ["left", "right"] {
            kernel.spawn(name, async |os: &mut Os| os.yield_now().await)?;
        }
        kernel.run().map(drop)
    });
    assert_eq!(
        apart.exhaustive().explore().to_string(),
        "1 schedule passes; the search is complete, and nothing is proved: all orders of turns have \
         one causal order, so the search cannot tell whether tasks share what it does not see"
    );
}

#[test]
fn a_claim_holds_in_some_schedule_or_is_reported() {
    let waits = check(|kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            let queue = Queue::unbounded(os).await;
            let source = queue.clone();
            os.spawn("source", async move |os| source.put(os, 7).await)
                .await
                .expect("there is room");
            if queue.is_empty() {
                sometimes!("the reader waits");
            }
            if queue.len() > 1 {
                sometimes!("two messages are there");
            }
            let _ = queue.get(os).await;
        })?;
        kernel.run().map(drop)
    });
    let report = report(waits);
    assert_eq!(
        report,
        "1000 schedules pass\nsometimes!(\"two messages are there\") held in none of them"
    );
}

#[test]
fn a_failed_body_can_leave_tasks_and_handles_behind() {
    let kept = RefCell::new(Vec::new());
    let explored = check(|kernel| {
        let queue = Rc::new(RefCell::new(None));
        let maker = Rc::clone(&queue);
        kernel.spawn("maker", async move |os: &mut Os| {
            *maker.borrow_mut() = Some(Queue::<u8>::unbounded(os).await);
            os.sleep(Duration::MAX).await;
        })?;
        kernel.step()?;
        kept.borrow_mut().push(queue);
        Ok(())
    });
    assert_eq!(explored.schedules(50).explore().failure, None);
}

#[test]
fn a_panic_outside_of_a_trial_reaches_the_hook() {
    // The search installs a hook of its own, which must pass on what is not its own.
    check(order).schedules(1).run();
    let panics = catch_unwind(|| panic!("expected in the output of this test"));
    assert!(panics.is_err());
}

#[test]
fn the_policies_do_not_lose_a_killed_task() {
    for seed in 0..50 {
        let body = |kernel: &mut Kernel| {
            kernel.spawn("main", async |os: &mut Os| {
                let mut all = Vec::new();
                for _ in 0..4 {
                    let child = async |os: &mut Os| loop {
                        os.yield_now().await;
                    };
                    all.push(os.spawn("child", child).await.expect("there is room"));
                }
                for tid in all {
                    assert!(os.kill(tid).await);
                }
            })?;
            kernel.run()?.check()
        };
        check(body).seed(seed).schedules(2).run();
        check(body).pct(3).seed(seed).schedules(2).run();
    }
}

#[test]
fn a_task_that_yields_lets_the_others_run_under_priorities() {
    let spin = |kernel: &mut Kernel| {
        let done = Shared::new(false);
        let flag = done.clone();
        kernel.spawn("spin", async move |os: &mut Os| {
            while !flag.get() {
                os.yield_now().await;
            }
        })?;
        kernel.spawn("set", async move |os: &mut Os| {
            os.get_tid().await;
            done.set(true);
        })?;
        kernel.run().map(drop)
    };
    check(spin).pct(3).steps(1000).run();
}

#[test]
fn a_schedule_with_many_preemptions_is_replayed_by_its_strategy_or_by_itself() {
    let late = |kernel: &mut Kernel| {
        let is_over = Shared::new(false);
        let flag = is_over.clone();
        kernel.spawn("long", async move |os: &mut Os| {
            for _ in 0..150 {
                os.get_tid().await;
            }
            flag.set(true);
        })?;
        kernel.spawn("late", async move |_: &mut Os| {
            assert!(!is_over.get(), "too late");
        })?;
        // Its preemptions can be left out, so that another schedule fails with fewer.
        kernel.spawn("noise", async |os: &mut Os| {
            for _ in 0..60 {
                os.get_tid().await;
            }
        })?;
        kernel.run().map(drop)
    };
    // An exhaustive search draws no schedules, so that no strategy names one of its own.
    for (search, is_named) in [
        (check(late).pct(0), true),
        (check(late).exhaustive(), false),
    ] {
        let failure = search.explore().failure.expect("it may be late");
        assert!(failure.preemptions > 100, "{failure}");
        let replay = &failure.replay;
        assert_eq!(replay.contains(".pct:0,length=64."), is_named, "{replay}");
        let again = check(late).replay(replay).expect("it is one").explore();
        let again = again.failure.expect("it fails again");
        assert_eq!(again.replay, *replay);
        assert_eq!(again.preemptions, failure.preemptions);
        assert!(!again.details.contains("has changed"), "{}", again.details);
    }
}

#[test]
fn priorities_keep_a_task_running_until_a_change() {
    let mut changes = BTreeSet::new();
    for seed in 0..300 {
        let turns = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&turns);
        let tracer = move |event: &Event<'_>| {
            if let Fact::Resumed = event.fact {
                log.borrow_mut().push(event.tid);
            }
        };
        let builder = Kernel::builder().world(SimWorld::new(0)).tracer(tracer);
        let policy = Pct::new(1, seed).length(8);
        let mut kernel = builder.policy(policy).build().expect("it boots");
        for name in ["a", "b"] {
            let program = async |os: &mut Os| {
                for _ in 0..3 {
                    os.get_tid().await;
                }
            };
            kernel.spawn(name, program).expect("there is room");
        }
        kernel.run().expect("it ends");
        let turns = turns.take();
        changes.insert(turns.windows(2).filter(|pair| pair[0] != pair[1]).count());
    }
    // The end of the first task, and at most one change before it.
    assert_eq!(changes, BTreeSet::from([1, 2]));
}

// ---- the environment, in a process of its own

/// Runs one of the tests below in a process with these variables.
fn process(test: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let mut command = Command::new(env::current_exe().expect("it has a path"));
    command.args([
        "--exact",
        &format!("explore::{test}"),
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env("TRAPLINE_TEST_PROCESS", "1");
    for (name, value) in variables {
        command.env(format!("TRAPLINE_{name}"), value);
    }
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it runs");
    let text = [stdout, stderr].concat();
    (
        status.success(),
        String::from_utf8(text).expect("it is text"),
    )
}

/// Run by the test below in a process of its own.
#[test]
fn process_cut() {
    if is_process() {
        // Some schedules never end.
        let spins = |kernel: &mut Kernel| {
            let flag = Shared::new(false);
            let set = flag.clone();
            kernel.spawn("spins", async move |os: &mut Os| {
                while !flag.get() {
                    os.yield_now().await;
                }
            })?;
            kernel.spawn("sets", async move |_: &mut Os| set.set(true))?;
            kernel.run().map(drop)
        };
        check(spins).exhaustive().steps(20).run();
    }
}

#[test]
fn a_search_that_a_limit_has_cut_says_so_when_it_passes() {
    let (passes, text) = process("process_cut", &[]);
    assert!(passes, "{text}");
    let line = text
        .lines()
        .find(|line| line.contains("explore::process_cut: "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("; the search is not complete: "), "{line}");
}

/// Run by the test below in a process of its own.
#[test]
fn process_apart() {
    if is_process() {
        let apart = |kernel: &mut Kernel| {
            for name in ["left", "right"] {
                kernel.spawn(name, async |os: &mut Os| os.yield_now().await)?;
            }
            kernel.run().map(drop)
        };
        check(apart).exhaustive().run();
    }
}

#[test]
fn a_search_that_proves_nothing_says_so_when_it_passes() {
    let (passes, text) = process("process_apart", &[]);
    assert!(passes, "{text}");
    let mut lines = text.lines();
    let line = lines.find(|line| line.contains("explore::process_apart: "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let why =
        "1 schedule passes; the search is complete, and nothing is proved: all orders of turns";
    assert!(line.contains(why), "{line}");
}

fn is_process() -> bool {
    env::var_os("TRAPLINE_TEST_PROCESS").is_some()
}

/// What the processes below run.
#[test]
fn process_lost_update() {
    if is_process() {
        check(lost_update).fifo().schedules(1).threads(1).run();
    }
}

#[test]
fn process_order() {
    if is_process() {
        let explored = check(order).schedules(1).explore();
        println!("{} schedules: {:?}", explored.schedules, explored.outcomes);
    }
}

#[test]
fn a_replay_runs_the_schedule_of_the_report() {
    let (passes, text) = process(
        "process_lost_update",
        &[("STRATEGY", "random"), ("SCHEDULES", "100")],
    );
    assert!(!passes, "{text}");
    let (_, replay) = text
        .split_once("TRAPLINE_REPLAY=")
        .expect("the report has a replay");
    let (replay, _) = replay.split_once(' ').expect("a command follows");
    let (passes, again) = process("process_lost_update", &[("REPLAY", replay)]);
    assert!(!passes, "{again}");
    assert!(again.contains("an increment is lost"), "{again}");
    assert!(
        again.contains(&format!("TRAPLINE_REPLAY={replay} ")),
        "{again}"
    );
    assert!(!again.contains("has changed"), "{again}");
    let (_, again) = process("process_order", &[("REPLAY", replay)]);
    assert!(again.contains("the program has changed since"), "{again}");
}

#[test]
fn a_replay_that_is_cut_is_not_taken_for_a_changed_program() {
    let replayed = |replay: &str, steps| {
        let again = check(lost_update).steps(steps).replay(replay).unwrap();
        again.explore().failure.unwrap().details
    };
    let cut = "is cut at turn 1: a higher limit shows its end\n";
    // A decision after the limit is not reached.
    let details = replayed("0.2.00000001", 1);
    assert!(
        details.starts_with(&format!("0.2.00000001 {cut}")),
        "{details}"
    );
    // Without one, each may be the reason.
    let both = format!("the program has changed since 0.1.00000001, or 0.1.00000001 {cut}");
    let details = replayed("0.1.00000001", 1);
    assert!(details.starts_with(&both), "{details}");
    let details = replayed("0..00000001", 1_000);
    let changed = "the program has changed since 0..00000001, or that is mistyped: the traps";
    assert!(details.starts_with(changed), "{details}");
}

#[test]
fn a_replay_without_a_hash_claims_no_change() {
    let again = check(lost_update).replay("0..00000000").unwrap();
    let details = again.explore().failure.unwrap().details;
    assert!(details.starts_with("it fails with"), "{details}");
}

#[test]
fn a_check_without_a_schedule_panics() {
    let none = report(check(order).schedules(0));
    assert!(none.contains("proves nothing with 0 schedules"), "{none}");
    for search in [
        || check(order),
        || check(order).exhaustive(),
        || check(order).rff(),
        || check(order).pct(1),
    ] {
        let none = search().schedules(0).explore().to_string();
        let why = none.strip_prefix("no schedule ran to its end: ");
        assert!(why.is_some_and(|why| why.contains("0 schedules")), "{none}");
    }
    let part = check(order).schedules(1).shard(1, 2).explore().to_string();
    assert_eq!(part, "0 schedules of part 1/2 pass");
    let short = check(order).time(Duration::from_nanos(1));
    let expected = "no schedule ran to its end within 1ns: give the search more time";
    assert_eq!(report(short), expected);
    let short = check(order).exhaustive().time(Duration::from_nanos(1));
    assert_eq!(report(short), expected);
    // The other shard has the only schedule.
    check(order).schedules(1).shard(1, 2).run();
}

#[test]
fn the_environment_replaces_the_settings() {
    let (passes, text) = process("process_order", &[("SCHEDULES", "5000"), ("SHARD", "1/2")]);
    assert!(
        passes && text.contains("2500 schedules: {\"aabbcc\""),
        "{text}"
    );
    let (passes, text) = process("process_order", &[("STRATEGY", "fifo"), ("TIME", "1h")]);
    assert!(
        passes && text.contains("1 schedules: {\"abcabc\"}"),
        "{text}"
    );
    let (passes, _) = process("process_lost_update", &[("SEED", "3"), ("THREADS", "2")]);
    assert!(!passes, "first in, first out loses it with every seed");
}

#[test]
fn a_wrong_variable_is_explained() {
    for (name, value, explanation) in [
        (
            "SCHEDULES",
            "many",
            "TRAPLINE_SCHEDULES=many: it takes a whole number",
        ),
        (
            "STRATEGY",
            "luck",
            "TRAPLINE_STRATEGY=luck: there are random, pct, pct:CHANGES",
        ),
        (
            "TIME",
            "30",
            "TRAPLINE_TIME=30: it takes a number and a unit: 500ms, 30s, 2m or 1h",
        ),
        (
            "SCHEDULES",
            "0",
            "TRAPLINE_SCHEDULES=0: it takes a whole number above zero",
        ),
        (
            "TIME",
            "0s",
            "TRAPLINE_TIME=0s: no schedule runs in no time",
        ),
        ("TIME", "999999999999999999h", "h: it takes a number"),
        ("SHARD", "9/8", "TRAPLINE_SHARD=9/8: it takes I/N"),
        ("SHARD", "0/0", "TRAPLINE_SHARD=0/0: it takes I/N"),
        ("REPLAY", "7", "TRAPLINE_REPLAY=7: \"7\" is no replay"),
    ] {
        let (passes, text) = process("process_order", &[(name, value)]);
        assert!(!passes && text.contains(explanation), "{text}");
    }
}

#[test]
fn eight_shards_together_are_the_whole_search() {
    let whole = check(order).schedules(400).explore().outcomes;
    let mut union = BTreeSet::new();
    for shard in 1..=8 {
        let shard = format!("{shard}/8");
        let (_, text) = process("process_order", &[("SCHEDULES", "400"), ("SHARD", &shard)]);
        let (_, outcomes) = text
            .split_once("50 schedules: {")
            .expect("each has its part");
        let (outcomes, _) = outcomes.split_once('}').expect("the set ends");
        union.extend(
            outcomes
                .split(", ")
                .map(|name| name.trim_matches('"').to_string()),
        );
    }
    assert_eq!(union, whole);
}

#[test]
fn threads_are_asked_for_in_the_source() {
    // The body is not `Sync`, and so has no threads: the variable is not looked at.
    let runs = Cell::new(0);
    let explored = check(|kernel| {
        runs.set(runs.get() + 1);
        order(kernel)
    });
    assert_eq!(explored.schedules(3).explore().schedules, 3);
    // The first schedule has run twice.
    assert_eq!(runs.get(), 4);
}

#[test]
fn progress_is_reported() {
    let reports = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reports);
    let search = check(order)
        .schedules(u64::MAX)
        .time(Duration::from_millis(450));
    let search = search.progress(move |progress| {
        assert!(progress.schedules > 0 && progress.of == u64::MAX);
        count.fetch_add(1, Ordering::Relaxed);
    });
    search.run();
    assert!(reports.load(Ordering::Relaxed) > 0);
}

#[test]
fn an_audit_finds_memory_that_is_not_seen() {
    let hidden = |kernel: &mut Kernel| two_counters::<Rc<Cell<u32>>>(kernel).map(drop);
    type Search = fn(
        Check<fn(&mut Kernel) -> Result<(), Error>>,
    ) -> Check<fn(&mut Kernel) -> Result<(), Error>>;
    let strategies: [Search; 3] = [Check::random, |check| check.pct(3), Check::fifo];
    for set in strategies {
        let failure = set(check(hidden)).audit().explore().failure;
        let why = failure.expect("two orders differ").why;
        assert!(
            why.contains("share something that the search does not see"),
            "{why}"
        );
        // A number that the search sees is no finding, and causal orders are counted.
        let seen = set(check(seen_sum)).audit().schedules(200).explore();
        assert_eq!(seen.failure, None);
        assert!(seen.classes >= 1 && seen.classes < 20, "{}", seen.classes);
    }
    let seen = check(seen_sum as fn(&mut Kernel) -> _);
    let threads = seen.audit().schedules(200).threads(2).explore();
    let alone = check(seen_sum).audit().schedules(200).explore();
    assert_eq!(threads.classes, alone.classes);
}

/// Two counters with a number that the search sees.
fn seen_sum(kernel: &mut Kernel) -> Result<(), Error> {
    two_counters::<Shared<u32>>(kernel).map(drop)
}

/// Asks a server ten times, a second apart. The outcome is the number of answers and the time of
/// the last.
fn ten_requests(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn_on("server", "server", async |os: &mut Os| -> io::Result<()> {
        let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
        loop {
            let (stream, _) = listener.accept(os).await?;
            let _ = stream.send_all(os, b"!").await;
        }
    })?;
    let answers = Rc::new(Cell::new((0, Duration::ZERO)));
    let told = Rc::clone(&answers);
    let client = kernel.spawn_on("client", "client", async move |os: &mut Os| {
        for _ in 0..10 {
            let ask = async |os: &mut Os| {
                let stream = os.connect(("server", 80)).await?;
                stream.recv(os, &mut [0; 1]).await
            };
            if let Ok(Ok(1)) = os.timeout(Duration::from_secs(1), ask).await {
                told.set((told.get().0 + 1, os.now().await));
            }
            os.sleep(Duration::from_secs(1)).await;
        }
    })?;
    kernel.run_until(&[client])?;
    kernel.outcome(format!("{:?}", answers.get()));
    Ok(())
}

#[test]
fn each_schedule_has_a_new_network() {
    let (a, b) = (Duration::from_millis(1), Duration::from_millis(20));
    let search = || {
        check(ten_requests)
            .net(move || SimNet::new().latency(a..=b))
            .schedules(20)
    };
    let alone = search().explore();
    assert!(alone.outcomes.len() > 10, "each seed has its latencies");
    assert!(
        alone
            .outcomes
            .iter()
            .all(|outcome| outcome.starts_with("(10,"))
    );
    assert_eq!(search().threads(2).explore().outcomes, alone.outcomes);
    let chaos = search().chaos(3).explore();
    assert!(
        chaos
            .outcomes
            .iter()
            .any(|outcome| !outcome.starts_with("(10,"))
    );
    assert_eq!(
        search().chaos(3).threads(2).explore().outcomes,
        chaos.outcomes
    );
}

#[test]
fn an_injection_counts_anew_in_each_schedule() {
    let search = check(|kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            for _ in 0..3 {
                os.yield_now().await;
            }
        })?;
        let report = kernel.run()?;
        assert_eq!(report.exits()[&1.into()], Exit::Killed);
        Ok(())
    });
    let search = search.inject(|_, call, nth| {
        (matches!(call, SystemCall::Yield) && nth == 3).then_some(Inject::Kill)
    });
    search.schedules(10).run();
}

/// Which task makes the first call of a kind depends on the order of turns.
#[test]
fn a_search_sees_that_an_injection_counts_calls() {
    for inject in [Inject::Kill, Inject::Delay(Duration::from_millis(1))] {
        let search = check(|kernel| {
            let order: Rc<RefCell<Vec<u64>>> = Rc::default();
            for _ in 0..2 {
                let order = Rc::clone(&order);
                kernel.spawn("asks", async move |os: &mut Os| {
                    os.now().await;
                    let tid = os.get_tid().await;
                    order.borrow_mut().push(tid.into());
                })?;
            }
            kernel.run()?;
            kernel.outcome(format!("{:?}", order.borrow()));
            Ok(())
        });
        let search = search.exhaustive().inject(move |_, call, nth| {
            (matches!(call, SystemCall::Now) && nth == 1).then_some(inject)
        });
        let explored = search.explore();
        assert!(explored.proved, "{inject:?}");
        assert_eq!(explored.outcomes.len(), 2, "{:?}", explored.outcomes);
    }
}

#[test]
fn a_search_runs_inside_a_property_test() {
    use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
    let config = ProptestConfig {
        cases: 10,
        failure_persistence: None,
        ..Default::default()
    };
    let strategy = (vec(0..9_u8, 0..6), 0..3_usize);
    let property = TestRunner::new(config).run(&strategy, |(messages, room)| {
        check(|kernel| {
            let got: Rc<RefCell<Vec<u8>>> = Rc::default();
            let (all, sent) = (Rc::clone(&got), messages.clone());
            kernel.spawn("main", async move |os: &mut Os| {
                let queue = Queue::bounded(os, room).await;
                let source = queue.clone();
                let put = async move |os: &mut Os| {
                    for message in sent {
                        let _ = source.put(os, message).await;
                    }
                    source.close(os).await;
                };
                os.spawn_detached("source", put)
                    .await
                    .expect("there is room");
                while let Ok(message) = queue.get(os).await {
                    all.borrow_mut().push(message);
                }
            })?;
            kernel.run()?;
            assert_eq!(*got.borrow(), messages);
            Ok(())
        })
        .schedules(50)
        .run();
        Ok(())
    });
    property.expect("a queue keeps the order under every schedule");
}

#[test]
fn an_audited_fifo_may_kill_a_ready_task() {
    let body = |kernel: &mut Kernel| {
        let main = async |os: &mut Os| {
            let forever = async |os: &mut Os| loop {
                os.yield_now().await;
            };
            let victim = os.spawn("victim", forever).await.unwrap();
            os.yield_now().await;
            os.kill(victim).await;
            os.yield_now().await;
        };
        kernel.spawn("main", main)?;
        kernel.run().map(drop)
    };
    let audited = check(body).fifo().audit().schedules(3);
    let failure = audited.without_environment().explore().failure;
    assert!(failure.is_none(), "{failure:?}");
}

#[test]
fn a_search_sees_what_a_task_does_to_its_network() {
    let body = |kernel: &mut Kernel| {
        let net = kernel.net();
        net.host("s")?;
        let server = async |os: &mut Os| {
            os.sleep(Duration::from_millis(10)).await;
            let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
            listener.accept(os).await.map(drop)
        };
        kernel.spawn_on("s", "server", server)?;
        let looked = net.clone();
        let look = async move |os: &mut Os| {
            os.sleep(Duration::from_millis(10)).await;
            writeln!(os, "{} listen", looked.listeners("s").len());
            let latency = Duration::from_millis(50);
            looked.latency(latency..=latency);
        };
        kernel.spawn_on("c", "look", look)?;
        let client = async |os: &mut Os| {
            os.sleep(Duration::from_millis(100)).await;
            os.connect(("s", 80)).await.map(drop)
        };
        kernel.spawn_on("c", "client", client)?;
        kernel.run()?;
        let text = kernel.take_console();
        kernel.outcome(text);
        Ok(())
    };
    let found = check(body).exhaustive().without_environment().explore();
    assert!(found.failure.is_none(), "{:?}", found.failure);
    assert!(found.complete);
    let outcomes = ["0 listen\n", "1 listen\n"].map(String::from);
    assert_eq!(found.outcomes, BTreeSet::from(outcomes));
}

// ---- the settings of the network

/// Connects to another host for a minute. The outcome says whether it always could.
fn connects(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn_on("server", "server", async |os: &mut Os| -> io::Result<()> {
        let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
        loop {
            listener.accept(os).await?;
        }
    })?;
    let is_broken = Rc::new(Cell::new(false));
    let told = Rc::clone(&is_broken);
    let client = kernel.spawn_on("client", "client", async move |os: &mut Os| {
        for _ in 0..60 {
            told.set(told.get() || os.connect(("server", 80)).await.is_err());
            os.sleep(Duration::from_secs(1)).await;
        }
    })?;
    kernel.run_until(&[client])?;
    kernel.outcome(if is_broken.get() { "broken" } else { "whole" });
    Ok(())
}

#[test]
fn the_chaos_of_a_network_stays_unless_the_search_has_its_own() {
    let chaotic = || {
        SimNet::new()
            .connect_timeout(Duration::from_secs(1))
            .chaos(3)
    };
    let calm = || SimNet::new().connect_timeout(Duration::from_secs(1));
    for (search, expected) in [
        (check(connects).net(calm), "whole"),
        (check(connects).net(chaotic), "broken"),
        (check(connects).net(calm).chaos(3), "broken"),
        (check(connects).chaos(3).net(calm), "broken"),
        (check(connects).net(chaotic).chaos(0), "whole"),
    ] {
        // Some seeds lack the kinds of faults that break it.
        let explored = search.schedules(10).explore();
        let is_broken = explored.outcomes.contains("broken");
        assert_eq!(is_broken, expected == "broken", "{explored:?}");
    }
}

/// Asks by datagrams, again after a second.
fn asks_again(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn_on("server", "server", async |os: &mut Os| -> io::Result<()> {
        let socket = os.bind_udp(([0, 0, 0, 0], 80).into()).await?;
        loop {
            let (_, from) = socket.recv_from(os, &mut [0; 1]).await?;
            socket.send_to(os, b"k", from).await?;
        }
    })?;
    let client = kernel.spawn_on("client", "client", async |os: &mut Os| -> io::Result<()> {
        let socket = os.bind_udp(([0, 0, 0, 0], 0).into()).await?;
        let server = (os.resolve("server").await?[0], 80).into();
        for _ in 0..20 {
            loop {
                socket.send_to(os, b"q", server).await?;
                let answer = async |os: &mut Os| socket.recv_from(os, &mut [0; 1]).await;
                if os.timeout(Duration::from_secs(1), answer).await.is_ok() {
                    break;
                }
            }
            os.sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    })?;
    kernel.run_until(&[client])?.check()
}

/// No call of such a client fails, and no task is killed.
#[test]
fn a_timeout_feels_that_a_datagram_is_lost() {
    let explored = check(asks_again).chaos(3).schedules(20).explore();
    assert_eq!((&explored.failure, &explored.unfelt), (&None, &None));
    assert!(explored.faults["chaos loss"].felt > 0, "{explored}");
}

// ---- settings that replace each other, and such that do not go together

/// The outcome is the sum, in which an increment may be lost.
fn sum(kernel: &mut Kernel) -> Result<(), Error> {
    let sum = two_counters::<Shared<u32>>(kernel)?;
    kernel.outcome(sum.to_string());
    Ok(())
}

#[test]
fn a_strategy_replaces_one_that_was_set_before() {
    let all = check(sum).preemptions(0).exhaustive().explore();
    assert!(all.complete && all.outcomes.len() == 2, "{all}");
    let drawn = check(sum).preemptions(0).random().explore();
    assert!(drawn.schedules == 1000 && drawn.bound.is_none(), "{drawn}");
    let one = check(sum).random().preemptions(0).explore();
    assert_eq!(one.schedules, 1, "{one}");
}

#[test]
fn process_few_preemptions() {
    if is_process() {
        let explored = check(sum).preemptions(0).explore();
        println!("complete: {}", explored.complete);
    }
}

#[test]
fn process_chaos_of_one_host() {
    if is_process() {
        check(order).chaos(1).schedules(3).run();
    }
}

#[test]
fn a_search_says_that_chaos_has_nothing_to_break() {
    let why = "no task felt a fault of chaos: none happened in 3 schedules, since chaos breaks what is \
               between hosts, and the test has one";
    for search in [
        || check(sum),
        || check(sum).exhaustive(),
        || check(sum).preemptions(1),
    ] {
        let explored = search().chaos(1).schedules(3).explore();
        assert_eq!(explored.unfelt.as_deref(), Some(why));
        assert_eq!(search().schedules(3).explore().unfelt, None);
    }
    let (passes, text) = process("process_chaos_of_one_host", &[]);
    assert!(passes && text.contains(why), "{text}");
}

#[test]
fn the_place_of_a_panic_has_no_detour() {
    let why = check(detour::panics).explore().failure.unwrap().why;
    assert_eq!(why, "a panic\n  at tests/it/explore/detour.rs:7:5");
}

#[test]
fn the_strategy_of_the_environment_replaces_a_limit_on_preemptions() {
    let (passes, text) = process("process_few_preemptions", &[("STRATEGY", "exhaustive")]);
    assert!(passes && text.contains("complete: true"), "{text}");
}

#[test]
fn what_a_search_cannot_honour_is_refused() {
    let search = || check(order).audit().preemptions(1).explore();
    let panic = catch_unwind(search).expect_err("it cannot be audited");
    let why = panic.downcast_ref::<String>().expect("it is text");
    assert_eq!(
        why,
        "the search cannot begin: `audit` does not go with `preemptions`: leave one of them out"
    );
    let search = || check(order).faults(2, [""; 0]).explore();
    let panic = catch_unwind(search).expect_err("no fault can happen");
    let why = panic.downcast_ref::<String>().expect("it is text");
    let expected = "the search cannot begin: `faults` lets up to 2 happen, and the list is empty: ";
    assert!(why.starts_with(expected), "{why}");
    check(order).faults(0, [""; 0]).schedules(1).run();
    let panic = catch_unwind(|| check(order).pct(1001)).expect_err("no replay names so many");
    let why = panic.downcast_ref::<String>().expect("it is text");
    assert_eq!(why, "pct takes at most 1000 changes");
}
