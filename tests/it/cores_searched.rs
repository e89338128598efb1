//! The search over several kernels: against runs of the same programs that no search decides, and against all
//! schedules.

use std::{cell::OnceCell, collections::BTreeSet, rc::Rc, sync::Arc, time::Duration};

use trapline::{
    Either2, Error, Kernel, Kernels, Mailbox, Os, Report, Sender, SimWorld, TryPutError, after,
    check_kernels, sched::Random, sometimes, sync::Mutex,
};

use crate::exhaustive::{every::wanted, random::draw};

/// A call of a random program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(usize),
    TryPut(usize),
    Get,
    /// For a millisecond at most.
    TimedGet,
    /// Puts a new sender into a mailbox, and waits for an answer.
    Ask(usize),
    Drop(usize),
    Yield,
    Sleep,
    Spawn,
    Random,
    /// With a yield while it has the lock of its kernel.
    Lock,
    Compute,
    /// Waits for mail without a handle of the mailbox, for a millisecond at most.
    Arm,
    Exit,
}

/// What is put: a number, or where to answer.
enum Mail {
    Number(u64),
    Ask(Sender<u64>),
}

/// The tasks of each kernel, with their steps.
type Program = Vec<Vec<Vec<Step>>>;

fn program(seed: u64) -> Program {
    let mut state = seed;
    let kernels = 2 + draw(&mut state, 2);
    let step = |state: &mut u64| match draw(state, 16) {
        0..5 => Step::Put(draw(state, kernels)),
        5 => Step::TryPut(draw(state, kernels)),
        6..10 => Step::Get,
        10 => Step::TimedGet,
        11 => Step::Ask(draw(state, kernels)),
        12 => Step::Drop(draw(state, kernels)),
        13 => Step::Yield,
        14 => [
            Step::Sleep,
            Step::Spawn,
            Step::Random,
            Step::Lock,
            Step::Compute,
            Step::Arm,
        ][draw(state, 6)],
        _ => Step::Exit,
    };
    let task = |state: &mut u64| (0..1 + draw(state, 3)).map(|_| step(state)).collect();
    let kernel = |state: &mut u64| (0..1 + draw(state, 2)).map(|_| task(state)).collect();
    (0..kernels).map(|_| kernel(&mut state)).collect()
}

type Log = Arc<std::sync::Mutex<String>>;

/// The ends of all mailboxes that a task has.
struct Ends {
    senders: Vec<Option<Sender<Mail>>>,
    own: Mailbox<Mail>,
    lock: Rc<OnceCell<Mutex<()>>>,
}

fn answer(number: u64, mail: Mail, log: &Log) {
    let line = match mail {
        Mail::Number(number) => format!("got {number},"),
        Mail::Ask(back) => match back.try_put(number) {
            Ok(()) => "answered,".into(),
            Err(_) => "in vain,".into(),
        },
    };
    *log.lock().unwrap() += &line;
}

async fn steps(os: &mut Os, number: u64, steps: Vec<Step>, mut ends: Ends, log: Log) {
    let say = |text: &str| *log.lock().unwrap() += text;
    for (at, step) in (number * 100..).zip(steps) {
        match step {
            Step::Put(to) => {
                if let Some(sender) = &ends.senders[to] {
                    let put = sender.put(os, Mail::Number(at)).await;
                    say(if put.is_ok() { "put," } else { "closed," });
                }
            }
            Step::TryPut(to) => {
                if let Some(sender) = &ends.senders[to] {
                    say(match sender.try_put(Mail::Number(at)) {
                        Ok(()) => "tried,",
                        Err(TryPutError::Full(_)) => "full,",
                        Err(TryPutError::Closed(_)) => "shut,",
                    });
                }
            }
            Step::Get => match ends.own.get(os).await {
                Ok(mail) => answer(number, mail, &log),
                Err(_) => say("end,"),
            },
            Step::TimedGet => {
                let own = &ends.own;
                let get = async |os: &mut Os| own.get(os).await;
                match os.timeout(Duration::from_millis(1), get).await {
                    Ok(Ok(mail)) => answer(number, mail, &log),
                    Ok(Err(_)) => say("end,"),
                    Err(_) => say("late,"),
                }
            }
            Step::Ask(whom) => {
                if let Some(sender) = &ends.senders[whom] {
                    let (back, answer) = Mailbox::bounded(1);
                    if sender.put(os, Mail::Ask(back)).await.is_err() {
                        say("closed,");
                    } else {
                        let answer = answer.get(os).await;
                        say(&answer.map_or("none,".into(), |from| format!("from {from},")));
                    }
                }
            }
            Step::Drop(which) => drop(ends.senders[which].take()),
            Step::Yield => os.yield_now().await,
            Step::Sleep => os.sleep(Duration::from_millis(1)).await,
            Step::Spawn => {
                let child = async |os: &mut Os| os.yield_now().await;
                let child = os.spawn("child", child).await.expect("there is room");
                os.wait(child).await.expect("it is a child");
            }
            Step::Random => {
                // Its value is another with each seed.
                os.random().await;
                say("drawn,");
            }
            Step::Lock => {
                if ends.lock.get().is_none() {
                    let lock = Mutex::new(os, ()).await;
                    let _ = ends.lock.set(lock);
                }
                let lock = ends.lock.get().expect("it is set").clone();
                let _guard = lock.lock(os).await;
                os.yield_now().await;
                say("locked,");
            }
            Step::Compute => os.compute(Duration::from_millis(1)).await,
            Step::Arm => {
                let mail = ends.own.get_arm(os).await;
                match os.first((mail, after(Duration::from_millis(1)))).await {
                    Either2::First(Ok(mail)) => answer(number, mail, &log),
                    Either2::First(Err(_)) => say("end,"),
                    Either2::Second(()) => say("late,"),
                }
            }
            Step::Exit => return,
        }
    }
}

/// Runs a program on these kernels, each made so. Returns what it came to.
fn run(
    program: &Program,
    kernels: &Kernels,
    make: impl Fn() -> Result<Kernel, Error> + Send + Sync,
) -> String {
    let logs: Vec<Vec<Log>> = program
        .iter()
        .map(|tasks| tasks.iter().map(|_| Log::default()).collect())
        .collect();
    let mailboxes: Vec<_> = program
        .iter()
        .map(|_| Mailbox::<Mail>::bounded(1))
        .collect();
    let own = logs.clone();
    let results = kernels.run(move |id| {
        let mut kernel = make()?;
        let lock = Rc::default();
        for (at, tasks) in program[id.index()].iter().enumerate() {
            let ends = Ends {
                senders: mailboxes.iter().map(|(it, _)| Some(it.clone())).collect(),
                own: mailboxes[id.index()].1.clone(),
                lock: Rc::clone(&lock),
            };
            let (number, log) = (
                u64::from(id) * 10 + at as u64,
                Arc::clone(&own[id.index()][at]),
            );
            let tasks = tasks.clone();
            kernel.spawn("task", async move |os: &mut Os| {
                steps(os, number, tasks, ends, log).await;
            })?;
        }
        Ok(kernel)
    });
    let ended = |result: &Result<Report, Error>| match result {
        Ok(_) => "well".to_string(),
        Err(Error::Deadlock(_)) => "stuck".to_string(),
        Err(error) => error.to_string(),
    };
    let ends: Vec<_> = results.iter().map(ended).collect();
    let logs = logs.iter().flatten().map(|log| log.lock().unwrap().clone());
    format!(
        "{} {}",
        ends.join(" "),
        logs.collect::<Vec<_>>().join(" | ")
    )
}

fn own_policy(seed: u64) -> impl Fn() -> Result<Kernel, Error> {
    move || {
        let builder = Kernel::builder().world(SimWorld::new(0));
        Ok(builder.policy(Random::new(seed)).build()?)
    }
}

#[test]
fn a_search_of_kernels_finds_what_runs_come_to_that_it_does_not_decide() {
    let first = wanted("TRAPLINE_FUZZ_FIRST", 0);
    let programs = wanted("TRAPLINE_FUZZ_PROGRAMS", 15);
    let schedules = wanted("TRAPLINE_FUZZ_SCHEDULES", 150);
    let (mut complete, mut whole) = (0, 0);
    for number in first..first + programs {
        let program = program(number);
        let searched = |kernels: &mut Kernels| {
            let outcome = run(&program, kernels, || Ok(Kernel::simulated(0)));
            kernels.outcome(outcome);
            Ok(())
        };
        let count = program.len();
        let search = || check_kernels(count, searched).exhaustive();
        let explored = search().schedules(schedules).explore();
        assert_eq!(explored.failure, None, "program {number}: {program:?}");
        assert_eq!(
            explored.schedules, explored.classes,
            "program {number}: {program:?}"
        );
        if !explored.complete {
            continue;
        }
        complete += 1;
        let by_seed = |seed: u64| {
            let kernels = Kernels::simulated(count, seed);
            run(&program, &kernels, own_policy(seed))
        };
        let drawn: BTreeSet<String> = (0..schedules).map(by_seed).collect();
        let missed: Vec<_> = drawn.difference(&explored.outcomes).collect();
        assert!(
            missed.is_empty(),
            "program {number}: {program:?}: {missed:?}"
        );
        // Every schedule that there is.
        let all = search()
            .preemptions(100)
            .schedules(10 * schedules)
            .explore();
        assert_eq!(all.failure, None, "program {number}: {program:?}");
        if all.bound.is_none() {
            assert_eq!(
                all.outcomes, explored.outcomes,
                "program {number}: {program:?}"
            );
            assert!(explored.schedules <= all.schedules, "program {number}");
            whole += 1;
        }
    }
    println!("{programs} programs: {complete} searches complete, {whole} with all schedules");
}

/// Two kernels send numbers to the first, which takes all.
fn senders(
    kernels: &mut Kernels,
    each: u64,
    make: impl Fn() -> (Sender<u64>, Mailbox<u64>),
) -> Result<(), Error> {
    let (sender, mailbox) = make();
    let taken = Log::default();
    let log = Arc::clone(&taken);
    let results = kernels.run(move |id| {
        let mut kernel = Kernel::simulated(0);
        let (sender, mailbox, log) = (sender.clone(), mailbox.clone(), Arc::clone(&log));
        if id.index() > 0 {
            kernel.spawn("sends", async move |os: &mut Os| {
                for _ in 0..each {
                    sender.put(os, id.into()).await.unwrap();
                }
            })?;
        } else {
            drop(sender);
            kernel.spawn("takes", async move |os: &mut Os| {
                while let Ok(number) = mailbox.get(os).await {
                    *log.lock().unwrap() += &number.to_string();
                }
            })?;
        }
        Ok(kernel)
    });
    for result in results {
        result?.check()?;
    }
    kernels.outcome(taken.lock().unwrap().clone());
    Ok(())
}

#[test]
fn a_search_of_kernels_runs_each_order_of_mail() {
    let unbounded = |kernels: &mut Kernels| senders(kernels, 2, Mailbox::unbounded);
    let explored = check_kernels(3, unbounded).exhaustive().explore();
    assert!(explored.proved, "{explored}");
    let orders = ["2233", "2323", "2332", "3223", "3232", "3322"];
    assert!(explored.outcomes.iter().eq(orders), "{explored}");
    assert!(explored.schedules < 150, "{explored}");
    // A put that finds no room makes more traps, so the orders are more.
    let bounded = |kernels: &mut Kernels| senders(kernels, 1, || Mailbox::bounded(1));
    let explored = check_kernels(3, bounded).exhaustive().explore();
    assert!(explored.proved, "{explored}");
    assert!(explored.outcomes.iter().eq(["23", "32"]), "{explored}");
    assert!(explored.schedules < 1_000, "{explored}");
}

#[test]
fn every_strategy_searches_kernels() {
    let last = |kernels: &mut Kernels| {
        senders(kernels, 2, Mailbox::unbounded)?;
        kernels.outcome("it ends");
        sometimes!("a schedule passes");
        Ok(())
    };
    for strategy in ["fifo", "random", "pct:2", "surw", "rff", "exhaustive"] {
        let strategy = strategy.parse().unwrap();
        let explored = check_kernels(3, last)
            .strategy(strategy)
            .schedules(60)
            .threads(2)
            .explore();
        assert_eq!(explored.failure, None, "{strategy}");
        assert!(explored.never.is_empty(), "{strategy}");
        assert!(explored.outcomes.contains("it ends"), "{strategy}");
        let orders = explored.outcomes.len();
        assert!(
            orders > 3 || strategy.to_string() == "fifo",
            "{strategy}: {explored}"
        );
    }
    let estimated = check_kernels(3, last).schedules(100).estimate().explore();
    assert!(
        estimated.unseen.is_some() && estimated.classes > 3,
        "{estimated}"
    );
    check_kernels(3, last).audit().schedules(20).run();
}

#[test]
fn a_failure_of_kernels_is_minimised_and_told_by_their_turns() {
    let test = |kernels: &mut Kernels| {
        senders(kernels, 1, Mailbox::unbounded)?;
        Ok(())
    };
    let failing = |kernels: &mut Kernels| {
        let (sender, mailbox) = Mailbox::<u64>::unbounded();
        let results = kernels.run(move |id| {
            let mut kernel = Kernel::simulated(0);
            let (sender, mailbox) = (sender.clone(), mailbox.clone());
            if id.index() > 0 {
                kernel.spawn("sends", async move |os: &mut Os| {
                    for _ in 0..5 {
                        os.yield_now().await;
                    }
                    sender.put(os, id.into()).await
                })?;
            } else {
                kernel.spawn("takes", async move |os: &mut Os| {
                    assert_eq!(mailbox.get(os).await, Ok(2), "the third was first");
                })?;
            }
            Ok(kernel)
        });
        results.into_iter().try_for_each(|result| result?.check())
    };
    check_kernels(3, test).run();
    let failure = check_kernels(3, failing).explore().failure.unwrap();
    assert_eq!(failure.preemptions, 1, "{failure}");
    let text = failure.to_string();
    for part in [
        "takes 1:1 is preempted",
        "sends 3:1",
        "takes 1:1",
        "cores_searched.rs:",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A task that fails ends its kernel and so all kernels. All of that is part of its turn.
#[test]
fn a_search_of_kernels_sees_what_the_failure_of_one_does_to_the_others() {
    let test = |kernels: &mut Kernels| {
        let (sender, mailbox) = Mailbox::<u64>::unbounded();
        let said = Log::default();
        let log = Arc::clone(&said);
        let results = kernels.run(move |id| {
            let mut kernel = Kernel::builder()
                .world(SimWorld::new(0))
                .max_ticks(2)
                .build()?;
            let (sender, mailbox, log) = (sender.clone(), mailbox.clone(), Arc::clone(&log));
            match id.index() {
                0 => kernel.spawn("fails", async move |os: &mut Os| {
                    for _ in 0..3 {
                        os.yield_now().await;
                    }
                })?,
                1 => kernel.spawn("sends", async move |os: &mut Os| sender.put(os, 7).await)?,
                _ => kernel.spawn("takes", async move |os: &mut Os| {
                    drop(sender);
                    let got = mailbox.get(os).await;
                    *log.lock().unwrap() += &format!("{got:?}");
                })?,
            };
            Ok(kernel)
        });
        let ends = results.iter().map(|result| match result {
            Ok(_) => "ends",
            Err(Error::Peer { .. }) => "is ended",
            Err(_) => "fails",
        });
        let ends: Vec<_> = ends.collect();
        kernels.outcome(format!("{} {}", ends.join(", "), said.lock().unwrap()));
        Ok(())
    };
    let explored = check_kernels(3, test).exhaustive().explore();
    assert!(explored.proved, "{explored}");
    let drawn = check_kernels(3, test).schedules(2_000).explore();
    assert_eq!(explored.outcomes, drawn.outcomes);
    assert!(explored.outcomes.len() > 3, "{explored}");
}

#[test]
fn what_is_for_one_kernel_is_refused() {
    let test = |kernels: &mut Kernels| senders(kernels, 1, Mailbox::unbounded);
    let panics = |check: Box<dyn FnOnce()>| {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    };
    let faults = move || {
        check_kernels(3, test)
            .faults(1, ["send:error=ConnectionReset"])
            .run()
    };
    let time = move || {
        check_kernels(3, test)
            .turns_take(Duration::ZERO..=Duration::from_secs(1))
            .run()
    };
    for (check, what) in [
        (Box::new(faults) as Box<dyn FnOnce()>, "`faults`"),
        (Box::new(time), "`turns_take`"),
        (
            Box::new(move || check_kernels(3, test).mutate().run()),
            "`mutate`",
        ),
        (
            Box::new(move || check_kernels(3, test).cut("takes").run()),
            "`cut`",
        ),
        (
            Box::new(move || check_kernels(3, test).chaos(1).run()),
            "`chaos`",
        ),
        (
            Box::new(move || check_kernels(3, test).max_tasks(1).run()),
            "`max_tasks`",
        ),
    ] {
        let why = panics(check);
        assert!(
            why.contains(&format!(
                "{what} is for a search of one kernel: leave it out"
            )),
            "{why}"
        );
    }
    let why = panics(Box::new(move || check_kernels(33, test).run()));
    assert_eq!(why, "a search takes at most 32 kernels, and not 33");
}

/// Searches kernels of one task or more, and compares with what runs come to that it does not decide.
fn compare(count: usize, make: impl Fn(&Kernels, u64) -> String + Sync) -> BTreeSet<String> {
    let searched = |kernels: &mut Kernels| {
        let outcome = make(kernels, 0);
        kernels.outcome(outcome);
        Ok(())
    };
    let explored = check_kernels(count, searched).exhaustive().explore();
    assert_eq!(explored.failure, None, "{explored}");
    assert!(explored.complete, "{explored}");
    let by_seed = |seed| make(&Kernels::simulated(count, seed), seed);
    let drawn: BTreeSet<String> = (0..500).map(by_seed).collect();
    assert_eq!(drawn, explored.outcomes);
    explored.outcomes
}

fn told(results: &[Result<Report, Error>], log: &Log) -> String {
    let ends = results.iter().map(|result| match result {
        Ok(_) => "ends",
        Err(Error::Peer { .. }) => "is ended",
        Err(_) => "fails",
    });
    let ends: Vec<_> = ends.collect();
    format!("{}: {}", ends.join(", "), log.lock().unwrap())
}

#[test]
fn a_computation_that_ends_alone_and_one_beside_ready_tasks_are_searched() {
    for processors in [1, 2] {
        let make = |kernels: &Kernels, seed| {
            let (sender, mailbox) = Mailbox::<u64>::unbounded();
            let said = Log::default();
            let log = Arc::clone(&said);
            let results = kernels.run(move |id| {
                let builder = Kernel::builder()
                    .world(SimWorld::new(0))
                    .processors(processors);
                let mut kernel = builder.policy(Random::new(seed)).build()?;
                let (sender, mailbox, log) = (sender.clone(), mailbox.clone(), Arc::clone(&log));
                if id.index() > 0 {
                    kernel.spawn("takes", async move |os: &mut Os| {
                        drop(sender);
                        let get = async |os: &mut Os| mailbox.get(os).await;
                        let got = os.timeout(Duration::from_micros(500), get).await;
                        *log.lock().unwrap() += &format!("{got:?}");
                    })?;
                    return Ok(kernel);
                }
                kernel.spawn("computes", async |os: &mut Os| {
                    os.compute(Duration::from_millis(1)).await;
                })?;
                kernel.spawn("sends", async move |os: &mut Os| {
                    os.yield_now().await;
                    let _ = sender.put(os, 7).await;
                })?;
                Ok(kernel)
            });
            told(&results, &said)
        };
        let outcomes = compare(2, make);
        // With one processor, the mail may have to wait for the computation.
        assert_eq!(outcomes.len(), 3 - processors, "{outcomes:?}");
    }
}

#[test]
fn the_limit_of_a_kernel_that_comes_with_mail_is_searched() {
    let make = |kernels: &Kernels, seed| {
        let (sender, mailbox) = Mailbox::<u64>::unbounded();
        let said = [Log::default(), Log::default()];
        let logs = said.clone();
        let results = kernels.run(move |id| {
            let second = Duration::from_secs(1);
            let builder = Kernel::builder()
                .world(SimWorld::new(0))
                .policy(Random::new(seed));
            let (sender, mailbox) = (sender.clone(), mailbox.clone());
            let log = Arc::clone(&logs[id.index()]);
            if id.index() > 0 {
                let mut kernel = builder.max_time(second).build()?;
                kernel.spawn("takes", async move |os: &mut Os| {
                    let got = mailbox.get(os).await;
                    *log.lock().unwrap() += &format!("{got:?}");
                })?;
                return Ok(kernel);
            }
            let mut kernel = builder.build()?;
            kernel.spawn("says", async move |os: &mut Os| {
                os.sleep(second).await;
                *log.lock().unwrap() += "x";
            })?;
            kernel.spawn("sends", async move |os: &mut Os| {
                os.sleep(second).await;
                let _ = sender.try_put(7);
            })?;
            Ok(kernel)
        });
        told(&results, &said[0]) + &said[1].lock().unwrap()
    };
    let outcomes = compare(2, make);
    assert!(outcomes.len() > 2, "{outcomes:?}");
}

#[test]
fn daemons_of_kernels_run_in_a_search() {
    let make = |kernels: &Kernels, _| {
        let (sender, mailbox) = Mailbox::<u64>::unbounded();
        let said = Log::default();
        let log = Arc::clone(&said);
        let results = kernels.run(move |id| {
            let mut kernel = Kernel::simulated(0);
            let (sender, mailbox, log) = (sender.clone(), mailbox.clone(), Arc::clone(&log));
            if id.index() > 0 {
                drop(sender);
                kernel.spawn("takes", async move |os: &mut Os| {
                    let got = mailbox.get(os).await;
                    *log.lock().unwrap() += &format!("{got:?}");
                })?;
            } else {
                kernel.spawn_daemon("sends", async move |os: &mut Os| {
                    let _ = sender.put(os, 7).await;
                });
                kernel.spawn("sleeps", async |os: &mut Os| {
                    os.sleep(Duration::from_secs(1)).await
                })?;
            }
            Ok(kernel)
        });
        told(&results, &said)
    };
    assert!(compare(2, make).iter().eq(["ends, ends: Ok(7)"]));
}

#[test]
fn a_closure_may_run_kernels_twice() {
    let test = |kernels: &mut Kernels| {
        senders(kernels, 1, Mailbox::unbounded)?;
        senders(kernels, 1, Mailbox::unbounded)
    };
    let explored = check_kernels(3, test).exhaustive().explore();
    assert!(explored.proved, "{explored}");
    assert!(explored.outcomes.iter().eq(["23", "32"]), "{explored}");
}

#[test]
fn a_search_of_kernels_within_another_is_refused() {
    let test = |_: &mut Kernels| {
        check_kernels(1, |_| Ok(())).schedules(1).run();
        Ok(())
    };
    let failure = check_kernels(1, test)
        .schedules(1)
        .explore()
        .failure
        .unwrap();
    assert!(
        failure.why.contains("besides those that it is given"),
        "{failure}"
    );
    let other = |_: &mut Kernels| Kernel::simulated(0).run().map(drop);
    let failure = check_kernels(1, other)
        .schedules(1)
        .explore()
        .failure
        .unwrap();
    assert!(
        failure.why.contains("besides those that it is given"),
        "{failure}"
    );
}
