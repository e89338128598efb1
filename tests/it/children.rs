//! Tasks that return a value: rule S59.

use std::{rc::Rc, time::Duration};

use trapline::{Child, Elapsed, Errno, Error, Exit, Kernel, Os, SimWorld, TaskState};

use crate::{
    stepping::{Dropped, Place, boot, finish, noting, settle, spin},
    support::leave_answer,
};

const S: Duration = Duration::from_secs(1);

#[test]
fn s59_a_value_is_handed_over_exactly_once() {
    boot(async |os| {
        // A type that is neither Clone nor an exit.
        let value = async |os: &mut Os| {
            os.sleep(S).await;
            Rc::new(7)
        };
        let mut child = os.spawn_child("child", value).await.unwrap();
        assert_eq!(child.wait(os).await, Ok(Rc::new(7)));
        assert_eq!(os.now().await, S);
        assert_eq!(child.wait(os).await, Err(Exit::Done));
        assert_eq!(child.wait(os).await, Err(Exit::Done));
        // One that has ended before it is waited for.
        let mut child = os.spawn_child("early", async |_| "v").await.unwrap();
        settle(os).await;
        assert_eq!(child.wait(os).await, Ok("v"));
    });
}

#[test]
fn s59_any_value_counts_as_done() {
    boot(async |os| {
        let failed = async |_: &mut Os| Err::<u32, &str>("no");
        let mut child = os.spawn_child("child", failed).await.unwrap();
        settle(os).await;
        assert_eq!(os.tasks().await[1].state, TaskState::Zombie(Exit::Done));
        assert_eq!(child.wait(os).await, Ok(Err("no")));
    });
}

#[test]
fn s59_without_a_value_the_exit_is_answered() {
    for how in 0..6 {
        boot(async move |os| {
            let program = async move |os: &mut Os| {
                os.yield_now().await;
                match how {
                    0 => panic!("boom"),
                    1 => std::future::pending().await,
                    2 => os.exit(Exit::Failed("no".into())).await,
                    3 => os.exit(Exit::Done).await,
                    4 => {
                        let me = os.get_tid().await;
                        os.kill(me).await;
                    }
                    _ => os.sleep(S).await,
                }
                1
            };
            let mut child = os.spawn_child("child", program).await.unwrap();
            settle(os).await;
            assert_eq!(child.kill(os).await, how == 5);
            assert!(!child.kill(os).await);
            let exit = child.wait(os).await.unwrap_err();
            match how {
                0 => assert_eq!(exit, Exit::Faulted("boom".into())),
                1 => assert!(matches!(exit, Exit::Faulted(_))),
                2 => assert_eq!(exit, Exit::Failed("no".into())),
                3 => assert_eq!(exit, Exit::Done),
                _ => assert_eq!(exit, Exit::Killed),
            }
            assert_eq!(child.wait(os).await, Err(exit));
        });
    }
}

#[test]
fn s59_a_wait_that_is_cut_loses_neither_value_nor_exit() {
    // Whatever the alignment of turns and looks, and with the answer in the air.
    for (before, fails) in (240..262).flat_map(|n| [(n, false), (n, true)]) {
        boot(async move |os| {
            let program = async move |_: &mut Os| {
                assert!(!fails, "boom");
                1
            };
            let expected = if fails {
                Err(Exit::Faulted("boom".into()))
            } else {
                Ok(1)
            };
            let mut child = os.spawn_child("child", program).await.unwrap();
            spin(os, before).await;
            for _ in 0..3 {
                let cut = os.timeout(Duration::ZERO, async |os| {
                    spin(os, 5).await;
                    leave_answer(os.wait(child.tid())).await;
                    child.wait(os).await
                });
                if let Ok(value) = cut.await {
                    assert_eq!(value, expected);
                    return;
                }
            }
            assert_eq!(child.wait(os).await, expected, "{before}");
        });
    }
}

#[test]
fn s59_the_value_is_its_childs_whatever_task_waits_for_the_task() {
    boot(async |os| {
        let value = async |os: &mut Os| {
            os.sleep(S).await;
            1
        };
        let mut child = os.spawn_child("child", value).await.unwrap();
        let tid = child.tid();
        let waiter = async move |os: &mut Os| {
            assert_eq!(os.wait(tid).await, Ok(Exit::Done));
        };
        let waiter = os.spawn("waiter", waiter).await.unwrap();
        assert_eq!(os.wait(waiter).await, Ok(Exit::Done));
        assert_eq!(os.wait(tid).await, Err(Errno::NoSuchTask));
        assert_eq!(child.wait(os).await, Ok(1));
    });
}

#[test]
fn s59_a_child_outlives_the_task_that_has_spawned_it() {
    boot(async |os| {
        let place = Place::default();
        let theirs = place.clone();
        let parent = async move |os: &mut Os| {
            let value = async |os: &mut Os| {
                os.sleep(S).await;
                1
            };
            theirs.put(os.spawn_child("child", value).await.unwrap());
        };
        let parent = os.spawn("parent", parent).await.unwrap();
        os.wait(parent).await.unwrap();
        let mut child = place.take().unwrap();
        assert_eq!(child.wait(os).await, Ok(1));
    });
}

#[test]
fn s59_to_drop_a_child_reaps_the_task_and_drops_the_value() {
    for (ended, waited) in [(true, false), (false, false), (true, true)] {
        let seen = noting(async move |os, notes| {
            let value = Dropped(notes.clone(), "value");
            let theirs = notes.clone();
            let program = async move |os: &mut Os| {
                if !ended {
                    os.sleep(S).await;
                }
                theirs.note("returned");
                value
            };
            let mut child = os.spawn_child("child", program).await.unwrap();
            settle(os).await;
            if waited {
                assert!(child.wait(os).await.is_ok());
            } else {
                assert_eq!(os.tasks().await.len(), 2);
            }
            drop(child);
            notes.note("dropped");
            // One that lives goes on.
            assert_eq!(os.tasks().await.len(), if ended { 1 } else { 2 });
            os.sleep(S * 2).await;
            assert_eq!(os.tasks().await.len(), 1);
        });
        let expected = if ended {
            ["returned", "value", "dropped"]
        } else {
            ["dropped", "returned", "value"]
        };
        assert_eq!(seen.take(), expected);
    }
}

#[test]
fn s59_a_task_that_waits_for_its_own_value_faults() {
    boot(async |os| {
        let place = Place::<Child<()>>::default();
        let theirs = place.clone();
        let narcissus = async move |os: &mut Os| {
            os.yield_now().await;
            let mut me = theirs.take().unwrap();
            let _ = me.wait(os).await;
        };
        let child = os.spawn_child("narcissus", narcissus).await.unwrap();
        let tid = child.tid();
        place.put(child);
        let Ok(Exit::Faulted(why)) = os.wait(tid).await else {
            panic!("it did not fault");
        };
        assert!(why.contains("waits for its own value"), "{why}");
    });
}

#[test]
fn s59_a_child_of_another_kernel_faults_its_caller() {
    for kills in [false, true] {
        let (place, mut one) = (Place::default(), Kernel::simulated(0));
        let theirs = place.clone();
        let parent = async move |os: &mut Os| {
            let value = async |os: &mut Os| os.sleep(Duration::MAX).await;
            theirs.put(os.spawn_child("child", value).await.unwrap());
        };
        one.spawn("parent", parent).unwrap();
        assert!(matches!(one.run(), Err(Error::Deadlock(_))));
        let mut child = place.take().unwrap();
        let mut other = Kernel::simulated(0);
        let stray = async move |os: &mut Os| {
            if kills {
                child.kill(os).await;
            } else {
                let _ = child.wait(os).await;
            }
        };
        let stray = other.spawn("stray", stray).unwrap();
        let report = other.run().unwrap();
        let exit = &report.exits()[&stray];
        let is_said = matches!(exit, Exit::Faulted(why) if why.contains("another kernel"));
        assert!(is_said, "{exit}");
    }
}

#[test]
fn s59_at_the_limit_of_tasks_there_is_no_child() {
    let builder = Kernel::builder().world(SimWorld::new(0)).max_tasks(1);
    let mut kernel = builder.build().unwrap();
    let main = async |os: &mut Os| {
        let refused = os.spawn_child("child", async |_| 1).await;
        assert_eq!(refused.map(|child| child.tid()), Err(Errno::TooManyTasks));
    };
    let main = kernel.spawn("main", main).unwrap();
    assert_eq!(finish(&mut kernel).exits()[&main], Exit::Done);
}

#[test]
fn a_chain_of_values_that_hold_children_is_dropped_flat() {
    struct Link {
        _next: Option<Child<Link>>,
    }
    boot(async |os| {
        let mut head = None;
        // A hundred bytes of stack for each are what a test's thread has.
        for _ in 0..20_000 {
            let next = head.take();
            let link = async move |_: &mut Os| Link { _next: next };
            head = Some(os.spawn_child("link", link).await.unwrap());
        }
        let cut = os.timeout(S, async |os| os.sleep(S * 2).await).await;
        assert_eq!(cut, Err(Elapsed));
        drop(head);
        os.yield_now().await;
        assert_eq!(os.tasks().await.len(), 1);
    });
}
