//! Deadlocks over simulated kernels: which cycles are named.

use trapline::{Error, Kernel, KernelId, Kernels, Mailbox, Os, Sender, Tid, sync};

/// The deadlocks of kernels, each as its tasks and its cycles.
fn stuck(
    count: usize,
    boot: impl Fn(KernelId) -> Result<Kernel, Error> + Send + Sync,
) -> Vec<(String, String)> {
    let results = Kernels::simulated(count, 3).run(boot);
    let text = |tids: &[Tid]| {
        tids.iter()
            .map(Tid::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let of_each = results.iter().map(|result| {
        let Err(Error::Deadlock(deadlock)) = result else {
            panic!("{results:?}");
        };
        let tids: Vec<Tid> = deadlock.blocked.iter().map(|task| task.tid).collect();
        let cycles: Vec<String> = deadlock.cycles.iter().map(|cycle| text(cycle)).collect();
        (text(&tids), cycles.join(", "))
    });
    of_each.collect()
}

#[test]
fn a_cycle_over_kernels_leads_through_the_tasks_that_hold_the_senders() {
    let (a, b) = (Mailbox::<u32>::unbounded(), Mailbox::<u32>::unbounded());
    let all = stuck(2, move |id| {
        let mut kernel = Kernel::simulated(0);
        let (sender, mailbox) = match id.index() {
            0 => (a.0.clone(), b.1.clone()),
            _ => (b.0.clone(), a.1.clone()),
        };
        let count = 2 + id.index();
        // They have nothing to do with it, and come first.
        for _ in 0..count {
            kernel.spawn("other", async |os: &mut Os| {
                let _ = trapline::Queue::<()>::bounded(os, 1).await.get(os).await;
            })?;
        }
        // The child waits for mail, and the parent, which can send, for the child.
        kernel.spawn("parent", async move |os: &mut Os| {
            let child = os.spawn("child", async move |os: &mut Os| {
                let _ = mailbox.get(os).await;
            });
            let child = child.await.unwrap();
            let _ = os.wait(child).await;
            let _ = sender.put(os, 1).await;
        })?;
        Ok(kernel)
    });
    let cycle = "1:3 1:4 2:4 2:5";
    let expected = [("1:1 1:2 1:3 1:4", cycle), ("2:1 2:2 2:3 2:4 2:5", cycle)];
    assert_eq!(
        all,
        expected.map(|(tids, cycle)| (tids.to_string(), cycle.to_string()))
    );
}

#[test]
fn a_task_that_waits_for_its_own_sender_is_a_cycle() {
    let (sender, mailbox) = Mailbox::<u32>::unbounded();
    let results = Kernels::simulated(2, 3).run(move |id| {
        let mut kernel = Kernel::simulated(0);
        let (sender, mailbox) = (sender.clone(), mailbox.clone());
        kernel.spawn("main", async move |os: &mut Os| {
            if id.index() == 0 {
                return sender.put(os, 1).await.unwrap();
            }
            while let Ok(1) = mailbox.get(os).await {}
            drop(sender);
        })?;
        Ok(kernel)
    });
    results[0].as_ref().unwrap().check().unwrap();
    let text = results[1].as_ref().unwrap_err().to_string();
    assert!(text.ends_with("\n  cycle: 2:1 -> 2:1"), "{text}");
}

#[test]
fn kernels_that_wait_for_room_in_each_other_are_a_cycle() {
    let (a, b) = (Mailbox::<u32>::bounded(1), Mailbox::<u32>::bounded(1));
    let all = stuck(2, move |id| {
        let mut kernel = Kernel::simulated(0);
        let (sender, mailbox) = match id.index() {
            0 => (a.0.clone(), b.1.clone()),
            _ => (b.0.clone(), a.1.clone()),
        };
        kernel.spawn("main", async move |os: &mut Os| {
            sender.put(os, 0).await.unwrap();
            // The first of both is taken, so that each mailbox belongs to a kernel.
            mailbox.get(os).await.unwrap();
            for n in 1.. {
                sender.put(os, n).await.unwrap();
            }
        })?;
        Ok(kernel)
    });
    assert_eq!(
        all,
        [
            ("1:1".into(), "1:1 2:1".into()),
            ("2:1".into(), "1:1 2:1".into())
        ]
    );
}

#[test]
fn a_wait_that_no_task_of_a_kernel_can_end_is_on_no_cycle() {
    // The test holds a sender of the one, and no task one of the other.
    let (held, kept) = (Mailbox::<u32>::unbounded(), Mailbox::<u32>::unbounded());
    let (sender, other) = (held.0.clone(), kept.0.clone());
    let all = stuck(2, move |id| {
        let mut kernel = Kernel::simulated(0);
        let mailbox = [&held.1, &kept.1][id.index()].clone();
        kernel.spawn("waits", async move |os: &mut Os| {
            let _ = mailbox.get(os).await;
        })?;
        Ok(kernel)
    });
    assert_eq!(
        all,
        [("1:1".into(), String::new()), ("2:1".into(), String::new())]
    );
    drop((sender, other));
}

/// Boots two kernels whose tasks are called with the sender to the other one, and the mailbox for its mail.
fn facing<F, P>(program: F) -> Vec<(String, String)>
where
    F: Fn(usize, Sender<u32>, Mailbox<u32>) -> P + Send + Sync,
    P: AsyncFnOnce(&mut Os) + 'static,
{
    let (a, b) = (Mailbox::<u32>::bounded(1), Mailbox::<u32>::bounded(1));
    stuck(2, move |id| {
        let mut kernel = Kernel::simulated(0);
        let (sender, mailbox) = match id.index() {
            0 => (a.0.clone(), b.1.clone()),
            _ => (b.0.clone(), a.1.clone()),
        };
        kernel.spawn("main", program(id.index(), sender, mailbox))?;
        Ok(kernel)
    })
}

/// Starts a task that holds this, and waits for what any task may do, as far as is known.
async fn hold<T: 'static>(os: &mut Os, held: T) {
    let waits = async move |os: &mut Os| {
        let queue = trapline::Queue::<()>::bounded(os, 1).await;
        let _ = queue.get(os).await;
        drop(held);
    };
    os.spawn("waits", waits).await.unwrap();
}

/// The reports of two kernels with these tasks.
fn of_both(tids: [&str; 2], cycle: &str) -> Vec<(String, String)> {
    tids.map(|tids| (tids.to_string(), cycle.to_string()))
        .into()
}

#[test]
fn a_cycle_leads_through_a_select_whose_sources_are_all_stuck() {
    // For mail, the lock of a child, and its end. The child waits for the task itself.
    let all = facing(|_, sender, mailbox| {
        async move |os: &mut Os| {
            let lock = sync::Mutex::new(os, ()).await;
            let (parent, theirs) = (os.get_tid().await, lock.clone());
            let waits = async move |os: &mut Os| {
                let _held = theirs.lock(os).await;
                let _ = os.wait(parent).await;
            };
            let mut child = os.spawn_child("waits", waits).await.unwrap();
            let mail = mailbox.get_arm(os).await;
            os.first((mail, lock.lock_arm(), child.wait_arm())).await;
            drop(sender);
        }
    });
    assert_eq!(all, of_both(["1:1 1:2", "2:1 2:2"], "1:1 2:1"));
}

#[test]
fn a_select_with_a_source_that_anything_may_end_is_on_no_cycle() {
    let all = facing(|_, sender, mailbox| {
        async move |os: &mut Os| {
            let queue = trapline::Queue::<()>::bounded(os, 1).await;
            let mail = mailbox.get_arm(os).await;
            os.first((mail, queue.get_arm())).await;
            drop(sender);
        }
    });
    assert_eq!(all, of_both(["1:1", "2:1"], ""));
    // One of the tasks that can send may go on, as far as is known.
    let all = facing(|kernel, sender, mailbox| {
        async move |os: &mut Os| {
            let other = sender.clone();
            if kernel == 0 {
                hold(os, other).await;
            }
            let lock = sync::Mutex::new(os, ()).await;
            let _held = lock.lock(os).await;
            let mail = mailbox.get_arm(os).await;
            os.first((mail, lock.lock_arm())).await;
            drop(sender);
        }
    });
    assert_eq!(all, of_both(["1:1 1:2", "2:1"], ""));
}

#[test]
fn a_mailbox_from_which_no_task_has_taken_is_waited_for_with_those_that_can() {
    // Both fill a mailbox, and none has taken a message of the other.
    let all = facing(|_, sender, mailbox| {
        async move |os: &mut Os| {
            for n in 0.. {
                sender.put(os, n).await.unwrap();
            }
            drop(mailbox);
        }
    });
    assert_eq!(all, of_both(["1:1", "2:1"], "1:1 2:1"));
    // Of two that can take, one waits for what is not known to be stuck.
    let all = facing(|kernel, sender, mailbox| {
        async move |os: &mut Os| {
            let other = mailbox.clone();
            if kernel == 0 {
                hold(os, other).await;
            }
            for n in 0.. {
                sender.put(os, n).await.unwrap();
            }
            drop(mailbox);
        }
    });
    assert_eq!(all, of_both(["1:1 1:2", "2:1"], ""));
}

/// A request has the sender of its answer, and waits in the mailbox of a task that waits for other mail first.
#[test]
fn a_sender_in_a_message_is_with_those_that_can_take_the_message() {
    // A task has taken from the mailbox before, or none has.
    for has_taken in [false, true] {
        let (requests, other) = (
            Mailbox::<Option<Sender<u32>>>::unbounded(),
            Mailbox::<u32>::unbounded(),
        );
        let all = stuck(2, move |id| {
            let mut kernel = Kernel::simulated(0);
            if id.index() == 0 {
                let (asks, gate) = (requests.0.clone(), other.0.clone());
                kernel.spawn("client", async move |os: &mut Os| {
                    asks.put(os, None).await.unwrap();
                    let (sender, answer) = Mailbox::unbounded();
                    asks.put(os, Some(sender)).await.unwrap();
                    let _ = answer.get(os).await;
                    drop(gate);
                })?;
            } else {
                let (requests, gate) = (requests.1.clone(), other.1.clone());
                kernel.spawn("server", async move |os: &mut Os| {
                    if has_taken {
                        assert!(requests.get(os).await.unwrap().is_none());
                    }
                    let _ = gate.get(os).await;
                    drop(requests);
                })?;
            }
            Ok(kernel)
        });
        assert_eq!(all, of_both(["1:1", "2:1"], "1:1 2:1"), "{has_taken}");
    }
}

#[test]
fn a_sender_in_a_message_of_a_queue_may_be_taken_by_any_task() {
    // The last holder of the queue ends last, and waits for mail: it is not the one that holds the sender.
    let all = facing(|kernel, sender, mailbox| {
        async move |os: &mut Os| {
            if kernel == 1 {
                let queue = trapline::Queue::bounded(os, 1).await;
                let theirs = queue.clone();
                let waits = async move |os: &mut Os| {
                    let other = trapline::Queue::<()>::bounded(os, 1).await;
                    let _ = other.get(os).await;
                    let _ = theirs.get(os).await;
                };
                os.spawn("waits", waits).await.unwrap();
                queue.put(os, sender).await.unwrap();
                let _ = mailbox.get(os).await;
                drop(queue);
                return;
            }
            let _ = mailbox.get(os).await;
            drop(sender);
        }
    });
    assert_eq!(all, of_both(["1:1", "2:1 2:2"], ""));
}

#[test]
fn room_is_made_only_by_the_kernel_of_a_mailbox() {
    let (a, b) = (Mailbox::<u32>::bounded(1), Mailbox::<u32>::unbounded());
    let all = stuck(2, move |id| {
        let mut kernel = Kernel::simulated(0);
        let (puts, takes, other, mail) = (a.0.clone(), a.1.clone(), b.0.clone(), b.1.clone());
        let first = id.index() == 0;
        kernel.spawn("main", async move |os: &mut Os| {
            if first {
                // It has captured the end that takes, too.
                for n in 0.. {
                    puts.put(os, n).await.unwrap();
                }
                drop((takes, other));
            } else {
                takes.get(os).await.unwrap();
                drop((puts, other));
                let _ = mail.get(os).await;
            }
        })?;
        Ok(kernel)
    });
    assert_eq!(all, of_both(["1:1", "2:1"], "1:1 2:1"));
}
