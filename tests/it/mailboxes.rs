//! Mailboxes: S95. Most of these run in the simulated world, where a kernel sends mail to itself or a
//! thread sends it; those about several kernels are in the real one.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use trapline::{
    Calls, Closed, Either2, Elapsed, Error, Event, Exit, Kernel, Kernels, Limits, Mailbox, Os,
    Report, Sender, SimWorld, Step, TryPutError, after,
};

fn milli(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn well(results: Vec<Result<Report, Error>>) {
    for result in results {
        result.unwrap().check().unwrap();
    }
}

/// Runs a program in the simulated world to a good end.
fn sim(program: impl AsyncFnOnce(&mut Os) + 'static) -> Kernel {
    let mut kernel = Kernel::simulated(1);
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel
}

#[test]
fn s58_a_run_in_steps_finds_room_in_a_mailbox_when_the_whole_run_does() {
    let run = |steps: bool| {
        let found = Rc::new(RefCell::new(Vec::new()));
        let (sender, mailbox) = Mailbox::bounded(5);
        let mut kernel = Kernel::simulated(1);
        let waits = sender.clone();
        kernel
            .spawn("waits", async move |os: &mut Os| {
                for n in 0..6 {
                    waits.put(os, n).await?;
                }
                Ok::<(), Closed<_>>(())
            })
            .unwrap();
        kernel
            .spawn("takes", async move |os: &mut Os| {
                os.yield_now().await;
                while mailbox.get(os).await.is_ok() {
                    os.yield_now().await;
                }
            })
            .unwrap();
        let told = Rc::clone(&found);
        kernel
            .spawn("tries", async move |os: &mut Os| {
                for n in 10..30 {
                    let room = sender.try_put(n).is_ok();
                    told.borrow_mut().push(room);
                    os.yield_now().await;
                }
            })
            .unwrap();
        match steps {
            true => while kernel.step().unwrap() != Step::Finished {},
            false => drop(kernel.run().unwrap()),
        }
        found.take()
    };
    let whole = run(false);
    assert!(whole.contains(&true) && whole.contains(&false), "{whole:?}");
    assert_eq!(run(true), whole);
}

#[test]
fn a_task_of_another_kernel_is_told_of_room_that_a_daemon_makes_before_it_sleeps() {
    let (sender, mailbox) = Mailbox::bounded(4);
    let (done, answers) = Mailbox::unbounded();
    well(Kernels::new(2).run(move |id| {
        let (sender, mailbox) = (sender.clone(), mailbox.clone());
        let (done, answers) = (done.clone(), answers.clone());
        // A wake-up that is lost is an error, and hangs no test.
        let mut kernel = Kernel::builder()
            .world(trapline::RealWorld::new()?)
            .max_stall(Duration::from_secs(20))
            .build()?;
        if id.index() == 0 {
            drop((sender, done));
            kernel.spawn_daemon("takes one", async move |os: &mut Os| {
                while mailbox.get(os).await != Ok(4) {
                    os.sleep(milli(20)).await;
                }
                os.sleep(Duration::from_secs(3600)).await;
            });
            kernel.spawn("waits", async move |os: &mut Os| {
                assert_eq!(answers.get(os).await, Ok(()));
            })?;
        } else {
            kernel.spawn("puts", async move |os: &mut Os| {
                for n in 0..9 {
                    sender.put(os, n).await.unwrap();
                }
                done.put(os, ()).await.unwrap();
            })?;
        }
        Ok(kernel)
    }));
}

#[test]
fn s95_each_message_comes_exactly_once_and_those_of_one_sender_in_order() {
    const EACH: u64 = 2000;
    for capacity in [1, 3, 100, usize::MAX] {
        let (sender, mailbox) = Mailbox::<(u64, u64)>::bounded(capacity);
        well(Kernels::new(3).run(move |id| {
            let (sender, mailbox) = (sender.clone(), mailbox.clone());
            let mut kernel = Kernel::real()?;
            if id.index() > 0 {
                drop(mailbox);
                // Two tasks with a sender each, by kernel.
                for half in 0..2 {
                    let (from, sender) = (2 * u64::from(id) + half, sender.clone());
                    kernel.spawn("sender", async move |os: &mut Os| {
                        for n in 0..EACH {
                            sender.put(os, (from, n)).await?;
                            if n % 64 == from {
                                os.sleep(Duration::from_micros(50)).await;
                            }
                        }
                        Ok::<(), Closed<_>>(())
                    })?;
                }
                return Ok(kernel);
            }
            // Two tasks of one kernel share what comes.
            let taken = Rc::new(RefCell::new(Vec::new()));
            let [one, other] = [0; 2].map(|_| (mailbox.clone(), Rc::clone(&taken)));
            for (mailbox, taken) in [one, other] {
                kernel.spawn("taker", async move |os: &mut Os| {
                    while let Ok(message) = mailbox.get(os).await {
                        taken.borrow_mut().push(message);
                    }
                    // Neither has run ahead of the end.
                    let taken = taken.borrow();
                    assert_eq!(taken.len() as u64, 4 * EACH);
                    for from in 4..8 {
                        let numbers = taken.iter().filter(|(sender, _)| *sender == from);
                        assert!(numbers.map(|(_, n)| *n).eq(0..EACH), "of sender {from}");
                    }
                })?;
            }
            Ok(kernel)
        }));
    }
}

#[test]
fn s95_when_every_sender_is_gone_what_is_left_comes_and_then_closed() {
    sim(async |os: &mut Os| {
        let (sender, mailbox) = Mailbox::unbounded();
        sender.try_put(1).unwrap();
        let other = sender.clone();
        sender.put(os, 2).await.unwrap();
        drop(sender);
        other.put(os, 3).await.unwrap();
        drop(other);
        for n in 1..=3 {
            assert_eq!(mailbox.get(os).await, Ok(n));
        }
        assert_eq!(mailbox.get(os).await, Err(Closed(())));
        assert_eq!(mailbox.get(os).await, Err(Closed(())));
    });
}

#[test]
fn s95_a_kernel_that_waits_is_told_that_every_sender_is_gone() {
    let (sender, mailbox) = Mailbox::<u32>::unbounded();
    well(Kernels::new(2).run(move |id| {
        let (sender, mailbox) = (sender.clone(), mailbox.clone());
        let mut kernel = Kernel::real()?;
        if id.index() == 0 {
            kernel.spawn("waits", async move |os: &mut Os| {
                drop(sender);
                assert_eq!(mailbox.get(os).await, Err(Closed(())));
            })?;
        } else {
            // It ends with its task, and the sender with it.
            kernel.spawn("holds", async move |os: &mut Os| {
                let _sender = sender;
                os.sleep(milli(20)).await;
            })?;
        }
        Ok(kernel)
    }));
}

#[test]
fn a_put_blocks_while_the_mailbox_is_full_and_those_that_wait_are_in_order() {
    let kernel = sim(async |os: &mut Os| {
        let (sender, mailbox) = Mailbox::bounded(2);
        for n in 0..5 {
            let sender = sender.clone();
            let put = async move |os: &mut Os| {
                sender.put(os, n).await.unwrap();
                let at = os.now().await;
                writeln!(os, "put {n} at {at:?}");
            };
            os.spawn_detached("puts", put).await.unwrap();
        }
        os.sleep(milli(1)).await;
        assert_eq!(sender.try_put(9), Err(TryPutError::Full(9)));
        drop(sender);
        for n in 0..5 {
            assert_eq!(mailbox.get(os).await, Ok(n));
            os.sleep(milli(1)).await;
        }
        assert_eq!(mailbox.get(os).await, Err(Closed(())));
    });
    let mut kernel = kernel;
    let console = kernel.take_console();
    let expected = ["0ns", "0ns", "1ms", "2ms", "3ms"];
    let expected = (0..)
        .zip(expected)
        .map(|(n, at)| format!("put {n} at {at}\n"));
    assert_eq!(console, expected.collect::<String>());
}

/// One of four messages is taken, which is less than half: the task that waits for its room must not wait
/// for the next get, since that comes after it.
#[test]
fn a_task_that_waits_for_room_goes_on_though_no_more_is_taken() {
    for capacity in [1, 4, 100] {
        sim(async move |os: &mut Os| {
            let (sender, mailbox) = Mailbox::bounded(capacity);
            for n in 0..capacity {
                sender.try_put(n).unwrap();
            }
            let put = async move |os: &mut Os| sender.put(os, capacity).await;
            let putter = os.spawn("puts", put).await.unwrap();
            os.sleep(milli(1)).await;
            assert_eq!(mailbox.get(os).await, Ok(0));
            let before = os.now().await;
            assert_eq!(os.wait(putter).await, Ok(Exit::Done));
            assert_eq!(os.now().await, before);
            for n in 1..=capacity {
                assert_eq!(mailbox.get(os).await, Ok(n));
            }
            assert_eq!(mailbox.get(os).await, Err(Closed(())));
        });
    }
}

/// The same between two kernels, of which the one that takes sleeps.
#[test]
fn a_kernel_that_waits_for_room_goes_on_though_no_more_is_taken() {
    let (sender, mailbox) = Mailbox::bounded(4);
    let (back, answers) = Mailbox::bounded(1);
    well(Kernels::new(2).run(move |id| {
        let (sender, mailbox) = (sender.clone(), mailbox.clone());
        let (back, answers) = (back.clone(), answers.clone());
        let mut kernel = Kernel::real()?;
        if id.index() == 0 {
            drop((mailbox, answers));
            kernel.spawn("puts", async move |os: &mut Os| {
                for n in 0..5 {
                    sender.put(os, n).await.unwrap();
                }
                back.put(os, ()).await.unwrap();
            })?;
        } else {
            drop((sender, back));
            kernel.spawn("takes one", async move |os: &mut Os| {
                // The other waits for room by then.
                os.sleep(milli(20)).await;
                assert_eq!(mailbox.get(os).await, Ok(0));
                assert_eq!(answers.get(os).await, Ok(()));
                for n in 1..5 {
                    assert_eq!(mailbox.get(os).await, Ok(n));
                }
            })?;
        }
        Ok(kernel)
    }));
}

#[test]
fn no_room_counts_as_room_for_one() {
    sim(async |os: &mut Os| {
        let (sender, mailbox) = Mailbox::bounded(0);
        sender.try_put('a').unwrap();
        assert_eq!(sender.try_put('b'), Err(TryPutError::Full('b')));
        assert_eq!(mailbox.get(os).await, Ok('a'));
        sender.try_put('c').unwrap();
        assert_eq!(mailbox.get(os).await, Ok('c'));
    });
}

#[test]
fn a_thread_puts_and_a_sleeping_kernel_wakes() {
    let mut kernel = Kernel::real().unwrap();
    let (sender, mailbox) = Mailbox::bounded(1);
    let (go, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        // The second is put when the first was taken: the mailbox has room for one.
        for message in [7, 8] {
            wait.recv().unwrap();
            sender.try_put(message).unwrap();
        }
    });
    kernel
        .spawn("main", async move |os: &mut Os| {
            for message in [7, 8] {
                go.send(()).unwrap();
                assert_eq!(mailbox.get(os).await, Ok(message));
            }
            assert_eq!(mailbox.get(os).await, Err(Closed(())));
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    thread.join().unwrap();
}

#[test]
fn a_mailbox_belongs_to_the_kernel_that_first_takes_from_it() {
    let (sender, mailbox) = Mailbox::unbounded();
    sender.try_put(1).unwrap();
    let mut first = Kernel::simulated(1);
    let taker = mailbox.clone();
    let take = async move |os: &mut Os| assert_eq!(taker.get(os).await, Ok(1));
    first.spawn("takes", take).unwrap();
    first.run().unwrap().check().unwrap();
    let mut second = Kernel::simulated(1);
    let taker = mailbox.clone();
    let take = async move |os: &mut Os| taker.get(os).await.map(drop);
    let task = second.spawn("too late", take).unwrap();
    let Exit::Faulted(why) = second.run().unwrap().exits()[&task].clone() else {
        panic!("it takes what is another's");
    };
    assert!(why.contains("the mailbox belongs to kernel 1"), "{why}");
    // The first can still take.
    sender.try_put(2).unwrap();
    let take = async move |os: &mut Os| assert_eq!(mailbox.get(os).await, Ok(2));
    first.spawn("takes", take).unwrap();
    first.run().unwrap().check().unwrap();
}

/// Its queue has the number of another mailbox's after the reset.
#[test]
fn a_mailbox_of_an_earlier_run_takes_no_message_of_another() {
    let (_sender, mailbox) = Mailbox::<u32>::unbounded();
    let mut kernel = Kernel::simulated(1);
    let early = mailbox.clone();
    let take = async move |os: &mut Os| {
        let take = async |os: &mut Os| early.get(os).await;
        assert_eq!(os.timeout(milli(1), take).await, Err(Elapsed));
    };
    kernel.spawn("early", take).unwrap();
    kernel.run().unwrap();
    kernel.reset(1).unwrap();
    let (sender, other) = Mailbox::<u32>::unbounded();
    let take = async move |os: &mut Os| assert_eq!(other.get(os).await, Ok(7));
    kernel.spawn("takes", take).unwrap();
    let take = async move |os: &mut Os| mailbox.get(os).await.map(drop);
    let late = kernel.spawn("late", take).unwrap();
    let put = async move |os: &mut Os| sender.put(os, 7).await;
    kernel.spawn("puts", put).unwrap();
    let report = kernel.run().unwrap();
    assert!(
        matches!(report.exits()[&late], Exit::Faulted(_)),
        "{report:?}"
    );
    assert_eq!(report.exits().len(), 3, "{report:?}");
}

#[test]
fn a_sender_that_waits_learns_that_the_mailbox_is_gone() {
    // Dropped by its task, or with its kernel.
    for is_dropped in [true, false] {
        let (sender, mailbox) = Mailbox::bounded(1);
        sender.try_put(0).unwrap();
        well(Kernels::simulated(2, 1).run(move |id| {
            let (sender, mailbox) = (sender.clone(), mailbox.clone());
            let mut kernel = Kernel::simulated(0);
            if id.index() == 0 {
                drop(mailbox);
                kernel.spawn("puts", async move |os: &mut Os| {
                    assert_eq!(sender.put(os, 1).await, Ok(()));
                    assert_eq!(sender.put(os, 2).await, Err(Closed(2)));
                    assert_eq!(sender.put(os, 3).await, Err(Closed(3)));
                    assert_eq!(sender.try_put(4), Err(TryPutError::Closed(4)));
                })?;
            } else {
                kernel.spawn("takes one", async move |os: &mut Os| {
                    // The other waits for room by then.
                    os.sleep(milli(20)).await;
                    assert_eq!(mailbox.get(os).await, Ok(0));
                    os.sleep(milli(20)).await;
                    if is_dropped {
                        drop(mailbox);
                    } else {
                        std::mem::forget(mailbox);
                    }
                })?;
            }
            Ok(kernel)
        }));
    }
}

/// Else a task that waits for an answer to such a message would wait as long as the kernel runs.
#[test]
fn s95_the_messages_that_no_task_has_taken_are_dropped_with_the_mailbox() {
    sim(async |os: &mut Os| {
        let (sender, mailbox) = Mailbox::<Sender<u32>>::unbounded();
        let (first, _) = Mailbox::unbounded();
        let (second, answer) = Mailbox::<u32>::unbounded();
        sender.try_put(first).unwrap();
        sender.try_put(second).unwrap();
        let server = async move |os: &mut Os| drop(mailbox.get(os).await);
        os.spawn("server", server).await.unwrap();
        let answer = async |os: &mut Os| answer.get(os).await;
        let answer = os.timeout(milli(1), answer).await;
        assert_eq!(answer, Ok(Err(Closed(()))));
    });
}

#[test]
fn an_arm_of_a_mailbox_without_another_handle_ends() {
    sim(async |os: &mut Os| {
        let (sender, mailbox) = Mailbox::<u32>::unbounded();
        let arm = mailbox.get_arm(os).await;
        drop(mailbox);
        os.sleep(milli(1)).await;
        assert!(sender.try_put(7).is_err());
        let first = os.first((arm, after(milli(1)))).await;
        assert_eq!(first, Either2::First(Err(Closed(()))));
    });
}

#[test]
fn a_mailbox_that_no_kernel_has_taken_from_is_gone_with_its_last_handle() {
    let (sender, mailbox) = Mailbox::bounded(1);
    let message = Arc::new(());
    sender.try_put(Arc::clone(&message)).unwrap();
    let clone = mailbox.clone();
    drop(mailbox);
    assert_eq!(Arc::strong_count(&message), 2);
    drop(clone);
    assert_eq!(Arc::strong_count(&message), 1);
    assert!(matches!(
        sender.try_put(message),
        Err(TryPutError::Closed(_))
    ));
}

#[test]
fn a_message_of_a_task_that_is_killed_before_its_turn_goes_to_the_next() {
    sim(async |os: &mut Os| {
        let (sender, mailbox) = Mailbox::unbounded();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for name in ["first", "second"] {
            let (mailbox, taken) = (mailbox.clone(), Arc::clone(&taken));
            let take = async move |os: &mut Os| {
                let message = mailbox.get(os).await.unwrap();
                taken.lock().unwrap().push((name, message));
            };
            tasks.push(os.spawn(name, take).await.unwrap());
        }
        os.yield_now().await;
        sender.try_put(1).unwrap();
        // A thread's interrupt comes with the next poll: the first is matched then.
        os.sleep(milli(1)).await;
        assert_eq!(*taken.lock().unwrap(), [("first", 1)]);
        let (mailbox, sender) = (mailbox.clone(), sender.clone());
        let killer = async move |os: &mut Os| {
            sender.try_put(2).unwrap();
            assert!(os.kill(tasks[1]).await);
            assert_eq!(mailbox.get(os).await, Ok(2));
        };
        let killer = os.spawn("killer", killer).await.unwrap();
        assert_eq!(os.wait(killer).await, Ok(Exit::Done));
        assert_eq!(taken.lock().unwrap().len(), 1);
    });
}

#[test]
fn a_put_that_is_cut_while_it_waits_is_withdrawn() {
    sim(async |os: &mut Os| {
        let (sender, mailbox) = Mailbox::bounded(1);
        sender.put(os, 1).await.unwrap();
        let put = async |os: &mut Os| sender.put(os, 2).await;
        assert_eq!(os.timeout(milli(5), put).await, Err(Elapsed));
        assert_eq!(os.now().await, milli(5));
        // A due timeout cuts before the effect.
        let put = async |os: &mut Os| {
            os.yield_now().await;
            sender.put(os, 3).await
        };
        assert_eq!(os.timeout(Duration::ZERO, put).await, Err(Elapsed));
        assert_eq!(mailbox.get(os).await, Ok(1));
        drop(sender);
        assert_eq!(mailbox.get(os).await, Err(Closed(())));
    });
}

#[test]
fn a_kill_withdraws_a_put_and_the_next_in_line_gets_the_room() {
    sim(async |os: &mut Os| {
        let (sender, mailbox) = Mailbox::bounded(1);
        sender.put(os, 0).await.unwrap();
        let mut tasks = Vec::new();
        for n in 1..=2 {
            let sender = sender.clone();
            let put = async move |os: &mut Os| sender.put(os, n).await.unwrap();
            tasks.push(os.spawn("puts", put).await.unwrap());
        }
        os.sleep(milli(1)).await;
        assert!(os.kill(tasks[0]).await);
        assert_eq!(mailbox.get(os).await, Ok(0));
        assert_eq!(mailbox.get(os).await, Ok(2));
        assert_eq!(os.wait(tasks[1]).await, Ok(Exit::Done));
        drop(sender);
        assert_eq!(mailbox.get(os).await, Err(Closed(())));
    });
}

/// The event log of a run, a line each, and its kernel.
fn logged(program: impl AsyncFnOnce(&mut Os) + 'static) -> (Kernel, String) {
    let log = Rc::new(RefCell::new(String::new()));
    let lines = Rc::clone(&log);
    let tracer = move |event: &Event<'_>| *lines.borrow_mut() += &format!("{event}\n");
    let mut kernel = Kernel::builder()
        .world(SimWorld::new(1))
        .tracer(tracer)
        .build()
        .unwrap();
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    let text = log.borrow().clone();
    (kernel, text)
}

#[test]
fn traces_and_ps_show_what_a_task_waits_for_and_the_same_run_has_the_same_log() {
    let run = || {
        logged(async |os: &mut Os| {
            let (sender, mailbox) = Mailbox::named("orders", 1);
            let taker = async move |os: &mut Os| {
                while mailbox.get(os).await.is_ok() {
                    os.sleep(milli(2)).await;
                }
            };
            let taker = os.spawn("taker", taker).await.unwrap();
            os.sleep(milli(1)).await;
            let list = os.tasks().await;
            let shown = list
                .iter()
                .find(|task| task.tid == taker)
                .unwrap()
                .to_string();
            assert!(shown.contains("mailbox 1 \"orders\""), "{shown}");
            let putter = async move |os: &mut Os| {
                for n in 0..3 {
                    sender.put(os, n).await.unwrap();
                }
            };
            let putter = os.spawn("putter", putter).await.unwrap();
            os.sleep(milli(1)).await;
            let list = os.tasks().await;
            let shown = list
                .iter()
                .find(|task| task.tid == putter)
                .unwrap()
                .to_string();
            assert!(shown.contains("room 3 \"orders\""), "{shown}");
        })
        .1
    };
    let log = run();
    for word in [
        "trapped new_queue(unbounded, mailbox \"orders\")",
        "trapped post",
        "trapped new_queue(unbounded, room \"orders\")",
        "blocked on queue 1 (get)",
    ] {
        assert!(log.contains(word), "{word} in {log}");
    }
    assert_eq!(log, run());
}

#[test]
fn a_run_that_only_waits_for_mail_is_no_deadlock_and_a_stall_names_it() {
    let mut kernel = Kernel::builder().max_stall(milli(2)).build().unwrap();
    let (sender, mailbox) = Mailbox::<u32>::named("orders", 1);
    let take = async move |os: &mut Os| mailbox.get(os).await.map(drop);
    kernel.spawn("waits", take).unwrap();
    let Err(Error::Stalled(stalled)) = kernel.run() else {
        panic!("it ends by itself");
    };
    assert_eq!(
        (stalled.mail, stalled.jobs, stalled.remote_setters),
        (1, 0, 0)
    );
    let text = stalled.to_string();
    assert!(
        text.contains("mailboxes with senders, and messages that wait for room: 1"),
        "{text}"
    );
    assert!(text.contains("mailbox 1 \"orders\""), "{text}");
    drop(sender);
    // Closed: the task fails with it.
    assert_eq!(kernel.run().unwrap().failures, 1);
}

#[test]
fn without_senders_there_is_nothing_to_wait_for() {
    // The only sender is the waiting task's own: that is no deadlock, and it is told as a stall.
    let mut kernel = Kernel::builder().max_stall(milli(1)).build().unwrap();
    let (sender, mailbox) = Mailbox::<u32>::unbounded();
    kernel
        .spawn("waits for itself", async move |os: &mut Os| {
            let _sender: Sender<u32> = sender;
            mailbox.get(os).await.map(drop)
        })
        .unwrap();
    assert!(matches!(kernel.run(), Err(Error::Stalled(_))));
}

#[test]
fn a_task_without_the_calls_of_queues_can_put_nothing() {
    let mut kernel = Kernel::simulated(1);
    let (sender, mailbox) = Mailbox::unbounded();
    let (child, rest) = (sender.clone(), sender);
    kernel
        .spawn("main", async move |os: &mut Os| {
            let limits = Limits::new().allow([Calls::TIME]);
            let put = async move |os: &mut Os| child.put(os, 1).await.map_err(|_| "closed");
            let child = os.spawn_with(limits, "denied", put).await.unwrap();
            let exit = os.wait(child).await.unwrap();
            assert!(
                matches!(&exit, Exit::Faulted(why) if why.contains("post")),
                "{exit}"
            );
            drop(rest);
            assert_eq!(mailbox.get(os).await, Err(Closed(())));
        })
        .unwrap();
    kernel.run().unwrap();
}

#[test]
fn mailboxes_that_are_gone_leave_nothing_behind() {
    let kernel = sim(async |os: &mut Os| {
        for n in 0..100 {
            let (sender, mailbox) = Mailbox::bounded(1);
            sender.try_put(n).unwrap();
            assert_eq!(mailbox.get(os).await, Ok(n));
        }
    });
    // The last is still there: it goes when the next is made, or with the kernel.
    assert!(
        kernel.queues().count() <= 1,
        "{:?}",
        kernel.queues().collect::<Vec<_>>()
    );
    let held = Arc::new(());
    let message = Arc::clone(&held);
    let kernel = sim(async move |os: &mut Os| {
        // The message holds a sender of its own mailbox.
        struct Letter(
            #[expect(dead_code)] Sender<Option<Letter>>,
            #[expect(dead_code)] Arc<()>,
        );
        let (sender, mailbox) = Mailbox::unbounded();
        let letter = Letter(sender.clone(), message);
        sender.put(os, None).await.unwrap();
        sender.put(os, Some(letter)).await.unwrap();
        assert!(mailbox.get(os).await.unwrap().is_none());
    });
    drop(kernel);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn two_kernels_that_send_to_each_other_end_with_their_senders() {
    let (a, b) = (Mailbox::<u32>::bounded(4), Mailbox::<u32>::bounded(4));
    well(Kernels::new(2).run(move |id| {
        let mut kernel = Kernel::real()?;
        let (sender, mailbox) = match id.index() {
            0 => (a.0.clone(), b.1.clone()),
            _ => (b.0.clone(), a.1.clone()),
        };
        kernel.spawn("ping", async move |os: &mut Os| {
            if id.index() == 0 {
                sender.put(os, 0).await.unwrap();
            }
            while let Ok(n) = mailbox.get(os).await {
                if n == 1000 {
                    break;
                }
                sender.put(os, n + 1).await.unwrap();
            }
        })?;
        Ok(kernel)
    }));
}
