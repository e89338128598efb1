//! The search over several kernels: against runs of the same programs that no search decides, and against all
//! schedules.

mod random;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use trapline::{
    Closed, Error, Kernel, Kernels, Mailbox, Os, Report, Sender, SimWorld, check_kernels,
    sched::Random, sometimes,
};

type Log = Arc<Mutex<String>>;

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

/// A kernel that fails ends all kernels.
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
            .run();
    };
    let time = move || {
        check_kernels(3, test)
            .turns_take(Duration::ZERO..=Duration::from_secs(1))
            .run();
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
                    os.sleep(Duration::from_secs(1)).await;
                })?;
            }
            Ok(kernel)
        });
        told(&results, &said)
    };
    assert!(compare(2, make).iter().eq(["ends, ends: Ok(7)"]));
}

#[test]
fn a_daemon_of_the_host_may_wait_at_a_mailbox() {
    let make = |kernels: &Kernels, _| {
        let (sender, mailbox) = Mailbox::<u64>::unbounded();
        let said = Log::default();
        let log = Arc::clone(&said);
        let results = kernels.run(move |id| {
            let mut kernel = Kernel::simulated(0);
            let (sender, mailbox, log) = (sender.clone(), mailbox.clone(), Arc::clone(&log));
            if id.index() > 0 {
                kernel.spawn("sends", async move |os: &mut Os| {
                    for number in 0..3 {
                        let _ = sender.put(os, number).await;
                    }
                })?;
            } else {
                drop(sender);
                kernel.spawn_daemon("takes", async move |os: &mut Os| {
                    while let Ok(number) = mailbox.get(os).await {
                        *log.lock().unwrap() += &number.to_string();
                    }
                });
                kernel.spawn("yields", async |os: &mut Os| os.yield_now().await)?;
            }
            Ok(kernel)
        });
        told(&results, &said)
    };
    let test = |kernels: &mut Kernels| {
        let outcome = make(kernels, 0);
        kernels.outcome(outcome);
        Ok(())
    };
    let explored = check_kernels(2, test).exhaustive().explore();
    assert!(explored.proved, "{explored}");
    for seed in 0..500 {
        let outcome = make(&Kernels::simulated(2, seed), seed);
        assert!(explored.outcomes.contains(&outcome), "{outcome}");
    }
    // Mail arrives with the turn that sends it, so the daemon takes more than by seed.
    assert!(explored.outcomes.len() > 2, "{explored}");
}

#[test]
fn a_kernel_of_several_tasks_that_comes_to_its_limit_of_turns_is_proved() {
    for count in 1..3 {
        let test = |kernels: &mut Kernels| {
            let results = kernels.run(move |id| {
                let builder = Kernel::builder().world(SimWorld::new(0));
                let mut kernel = match id.index() + 1 == count {
                    true => builder.max_ticks(3).build()?,
                    false => builder.build()?,
                };
                for _ in 0..3 {
                    kernel.spawn("sleeps", async |os: &mut Os| {
                        os.sleep(Duration::from_millis(1)).await;
                    })?;
                }
                Ok(kernel)
            });
            kernels.outcome(told(&results, &Log::default()));
            Ok(())
        };
        let explored = check_kernels(count, test).exhaustive().explore();
        assert!(explored.proved, "{explored}");
    }
}

#[test]
fn what_a_kernel_does_in_its_own_turn_has_a_row_of_its_own() {
    let test = |kernels: &mut Kernels| {
        let (sender, mailbox) = Mailbox::<u64>::unbounded();
        let results = kernels.run(move |id| {
            let builder = Kernel::builder().world(SimWorld::new(0));
            let (sender, mailbox) = (sender.clone(), mailbox.clone());
            if id.index() == 0 {
                let mut kernel = builder.max_ticks(3).build()?;
                for _ in 0..2 {
                    kernel.spawn("yields", async |os: &mut Os| {
                        for _ in 0..4 {
                            os.yield_now().await;
                        }
                    })?;
                }
                kernel.spawn("gets", async move |os: &mut Os| {
                    drop(sender);
                    let _ = mailbox.get(os).await;
                })?;
                return Ok(kernel);
            }
            let mut kernel = builder.build()?;
            kernel.spawn("puts", async move |os: &mut Os| {
                for number in 0..2 {
                    sender.put(os, number).await?;
                }
                Ok::<(), Closed<u64>>(())
            })?;
            Ok(kernel)
        });
        assert!(results[1].is_ok(), "it was shut down");
        Ok(())
    };
    let text = match check_kernels(3, test).explore().failure {
        Some(failure) => failure.to_string(),
        None => panic!("the first kernel ends the others"),
    };
    let ended: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("exits: killed]"))
        .collect();
    assert!(!ended.is_empty(), "{text}");
    for line in ended {
        let (_, name) = line.split_at(7);
        let (kernel, exits) = name.trim().split_once(" itself").expect(line);
        let number = kernel.strip_prefix("kernel ").expect(line);
        let tasks = exits.split('[').filter(|exit| exit.contains("exits"));
        for task in tasks {
            assert!(task.contains(&format!(" {number}:")), "{line}");
        }
    }
}

#[test]
fn kernels_that_a_search_gives_up_name_their_tasks_with_their_numbers() {
    let test = |kernels: &mut Kernels| {
        let results = kernels.run(|id| {
            let limit = if id.index() == 0 { 2 } else { u64::MAX };
            let world = SimWorld::new(0);
            let mut kernel = Kernel::builder().world(world).max_ticks(limit).build()?;
            kernel.spawn("sleeps", async |os: &mut Os| {
                os.sleep(Duration::from_secs(1)).await;
            })?;
            kernel.spawn("yields", async |os: &mut Os| {
                loop {
                    os.yield_now().await;
                }
            })?;
            Ok(kernel)
        });
        results.into_iter().try_for_each(|result| result?.check())
    };
    for steps in 3..7 {
        let failure = check_kernels(2, test).steps(steps).explore().failure;
        let text = failure.expect("no task ends").to_string();
        assert!(
            text.contains("tid 1:1 ") || text.contains("tid 2:1 "),
            "{text}"
        );
        assert!(!text.contains("tid 1 "), "{text}");
    }
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
    // Those of the second run could not come before the end of the first.
    let test = |kernels: &mut Kernels| {
        for _ in 0..2 {
            let results = kernels.run(|_| {
                let mut kernel = Kernel::simulated(0);
                kernel.spawn("ends", async |_: &mut Os| {})?;
                Ok(kernel)
            });
            results.into_iter().try_for_each(|result| result?.check())?;
        }
        Ok(())
    };
    let explored = check_kernels(3, test).exhaustive().explore();
    assert_eq!(explored.schedules, 1, "{explored}");
    assert_eq!(explored.unaudited, None);
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

/// The turn after the put has it arrive, and may come before the mailbox belongs to a kernel.
#[test]
fn a_put_and_a_get_and_the_ends_of_both_kernels_are_searched() {
    let test = |kernels: &mut Kernels| {
        let mailbox = Mailbox::<u32>::bounded(2);
        let results = kernels.run(move |id| {
            let mut kernel = Kernel::simulated(0);
            let (sender, mailbox) = mailbox.clone();
            if id.index() == 0 {
                drop(sender);
                kernel.spawn("gets", async move |os: &mut Os| {
                    let _ = mailbox.get(os).await;
                    os.yield_now().await;
                })?;
            } else {
                drop(mailbox);
                kernel.spawn("puts", async move |os: &mut Os| {
                    let _ = sender.put(os, 1).await;
                    os.yield_now().await;
                })?;
            }
            Ok(kernel)
        });
        results.into_iter().try_for_each(|result| result?.check())
    };
    let explored = check_kernels(2, test).exhaustive().explore();
    assert!(explored.proved, "{explored}");
}

#[test]
fn a_choice_of_a_task_of_a_kernel_is_a_branch() {
    let test = |kernels: &mut Kernels| {
        let said = Log::default();
        let log = Arc::clone(&said);
        let results = kernels.run(move |_| {
            let (mut kernel, log) = (Kernel::simulated(0), Arc::clone(&log));
            kernel.spawn("tosses", async move |os: &mut Os| {
                let side = os.choose(3).await;
                *log.lock().unwrap() += &side.to_string();
            })?;
            Ok(kernel)
        });
        kernels.outcome(said.lock().unwrap().clone());
        results.into_iter().try_for_each(|result| result?.check())
    };
    for check in [
        check_kernels(1, test).exhaustive(),
        check_kernels(1, test).schedules(100),
    ] {
        let explored = check.explore();
        assert!(explored.outcomes.iter().eq(["0", "1", "2"]), "{explored}");
    }
}

#[test]
fn a_kill_in_a_kernel_is_searched_first_in_first_out_too() {
    let test = |kernels: &mut Kernels| {
        let results = kernels.run(|id| {
            let mut kernel = Kernel::simulated(0);
            if id.index() == 0 {
                let victim = kernel.spawn("victim", async |os: &mut Os| os.yield_now().await)?;
                kernel.spawn("killer", async move |os: &mut Os| {
                    os.kill(victim).await;
                })?;
            } else {
                kernel.spawn("other", async |os: &mut Os| os.yield_now().await)?;
            }
            Ok(kernel)
        });
        results.into_iter().try_for_each(|result| result?.check())
    };
    check_kernels(2, test).fifo().schedules(1).run();
    assert!(check_kernels(2, test).exhaustive().explore().proved);
}

/// A kernel that fails shuts the others down, and each learns of it in its own time.
#[test]
fn what_comes_between_a_failure_and_its_effects_is_searched() {
    let make = |kernels: &Kernels, seed: u64| {
        let logs = [Log::default(), Log::default()];
        let (mailbox, own) = (Mailbox::<u32>::bounded(1), logs.clone());
        let results = kernels.run(move |id| {
            let (sender, mailbox) = mailbox.clone();
            let log = own.get(id.index()).map(Arc::clone);
            let builder = Kernel::builder()
                .world(SimWorld::new(0))
                .policy(Random::new(seed));
            let Some(log) = log else {
                let mut kernel = builder.max_ticks(2).build()?;
                kernel.spawn("bad", async move |os: &mut Os| {
                    let _sender = sender;
                    loop {
                        os.yield_now().await;
                    }
                })?;
                return Ok(kernel);
            };
            let mut kernel = builder.build()?;
            if id.index() == 0 {
                drop(sender);
                kernel.spawn("takes", async move |os: &mut Os| {
                    while let Ok(number) = mailbox.get(os).await {
                        *log.lock().unwrap() += &format!("{number},");
                    }
                })?;
            } else {
                drop(mailbox);
                kernel.spawn("puts", async move |os: &mut Os| {
                    for number in 0..2 {
                        let put = sender.put(os, number).await.is_ok();
                        *log.lock().unwrap() += &format!("{put},");
                    }
                })?;
            }
            Ok(kernel)
        });
        told(&results, &logs[0]) + " put " + &logs[1].lock().unwrap()
    };
    let searched = |kernels: &mut Kernels| {
        let outcome = make(kernels, 0);
        kernels.outcome(outcome);
        Ok(())
    };
    let explored = check_kernels(3, searched).exhaustive().explore();
    assert!(explored.proved, "{explored}");
    let by_seed = |seed| make(&Kernels::simulated(3, seed), seed);
    let drawn: BTreeSet<String> = (0..2_000).map(by_seed).collect();
    let missed: Vec<_> = drawn.difference(&explored.outcomes).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

/// A kernel has asked when it reaches its limit: the other answers before its end, or in vain.
#[test]
fn what_comes_between_the_last_turn_of_a_kernel_and_its_end_is_searched() {
    let make = |kernels: &Kernels, _| {
        let (sender, mailbox) = Mailbox::<Sender<u32>>::bounded(1);
        let said = Log::default();
        let log = Arc::clone(&said);
        let results = kernels.run(move |id| {
            let (sender, mailbox, log) = (sender.clone(), mailbox.clone(), Arc::clone(&log));
            let limit = if id.index() == 0 { 2 } else { u64::MAX };
            let builder = Kernel::builder().world(SimWorld::new(0));
            let mut kernel = builder.max_ticks(limit).build()?;
            if id.index() == 0 {
                kernel.spawn("asks", async move |os: &mut Os| {
                    let (back, answer) = Mailbox::bounded(1);
                    let _ = sender.put(os, back).await;
                    let _ = answer.get(os).await;
                })?;
            } else {
                drop(sender);
                kernel.spawn("answers", async move |os: &mut Os| {
                    let Ok(back) = mailbox.get(os).await else {
                        return;
                    };
                    let is_answered = back.try_put(7).is_ok();
                    *log.lock().unwrap() += &format!("{is_answered}");
                })?;
            }
            Ok(kernel)
        });
        told(&results, &said)
    };
    let outcomes = compare(2, make);
    let wanted = [
        "fails, ends: true",
        "fails, is ended: ",
        "fails, is ended: false",
        "fails, is ended: true",
    ];
    assert!(outcomes.iter().eq(wanted), "{outcomes:?}");
}

/// A kernel whose last task has ended may yet be ended by the failure of another.
#[test]
fn a_kernel_that_ends_well_commutes_with_all_but_a_failure() {
    let make = |kernels: &Kernels, limit: u64| {
        let results = kernels.run(move |id| {
            let builder = Kernel::builder().world(SimWorld::new(0));
            let limit = if id.index() == 0 { limit } else { u64::MAX };
            let mut kernel = builder.max_ticks(limit).build()?;
            kernel.spawn("yields", async |os: &mut Os| os.yield_now().await)?;
            Ok(kernel)
        });
        told(&results, &Log::default())
    };
    let searched = |limit| {
        move |kernels: &mut Kernels| {
            let outcome = make(kernels, limit);
            kernels.outcome(outcome);
            Ok(())
        }
    };
    let well = check_kernels(3, searched(2)).exhaustive().explore();
    assert!(well.complete, "{well}");
    assert_eq!(well.schedules, 1, "{well}");
    assert!(well.outcomes.iter().eq(["ends, ends, ends: "]), "{well}");
    assert_eq!(compare(3, |kernels, _| make(kernels, 1)).len(), 4);
}

/// A mailbox ends with its kernel, although a task of another one has a handle of it.
#[test]
fn the_end_of_a_kernel_with_a_mailbox_that_another_holds_is_searched() {
    let make = |kernels: &Kernels, seed: u64| {
        let said = [Log::default(), Log::default()];
        let logs = said.clone();
        let (sender, mailbox) = Mailbox::<u64>::bounded(1);
        let (idle_sender, idle) = Mailbox::<u64>::bounded(1);
        let results = kernels.run(move |id| {
            let builder = Kernel::builder().world(SimWorld::new(0));
            let mut kernel = builder.policy(Random::new(seed)).build()?;
            let log = Arc::clone(&logs[id.index()]);
            let (sender, mailbox) = (sender.clone(), mailbox.clone());
            let (idle_sender, idle) = (idle_sender.clone(), idle.clone());
            if id.index() == 0 {
                kernel.spawn("arm", async move |os: &mut Os| {
                    let _held = (sender, idle_sender, idle);
                    let get = async |os: &mut Os| mailbox.get(os).await;
                    let got = os.timeout(Duration::from_millis(1), get).await;
                    *log.lock().unwrap() += if got.is_ok() { "got" } else { "late" };
                })?;
            } else {
                kernel.spawn("puts", async move |os: &mut Os| {
                    let _held = (mailbox, idle_sender);
                    let get = async |os: &mut Os| idle.get(os).await;
                    let _ = os.timeout(Duration::from_millis(1), get).await;
                    os.yield_now().await;
                    let put = sender.put(os, 1).await.is_ok();
                    *log.lock().unwrap() += if put { "put" } else { "closed" };
                })?;
            }
            Ok(kernel)
        });
        told(&results, &said[0]) + &said[1].lock().unwrap()
    };
    let outcomes = compare(2, make);
    assert!(outcomes.contains("ends, ends: lateput"), "{outcomes:?}");
    assert!(outcomes.contains("ends, ends: lateclosed"), "{outcomes:?}");
}
