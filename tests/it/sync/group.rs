//! Groups of tasks.

use std::{cell::RefCell, rc::Rc, time::Duration};

use trapline::{Errno, Exit, Kernel, Os, Queue, SimWorld, Tid, sync::Group};

use super::*;
use crate::{
    stepping::{Dropped, Notes, boot, finish, noting, settle, spin},
    support::leave_answer,
};

/// Adds a task to a group that notes its end, however it comes.
async fn member(os: &mut Os, group: &mut Group, name: &'static str, notes: &Notes) -> Tid {
    let noted = Dropped(notes.clone(), name);
    let program = async move |os: &mut Os| {
        let _noted = noted;
        os.sleep(Duration::MAX).await;
    };
    group.spawn(os, name, program).await.unwrap()
}

#[test]
fn a_group_joins_all_its_members() {
    boot(async |os| {
        let mut group = Group::new(os).await;
        let mut tids = Vec::new();
        for n in [3, 1, 2] {
            let program = async move |os: &mut Os| os.sleep(S * n).await;
            tids.push(group.spawn(os, "member", program).await.unwrap());
        }
        assert_eq!(group.next(os).await, Some((tids[1], Exit::Done)));
        assert_eq!(group.join(os).await, Ok(()));
        assert_eq!(os.now().await, S * 3);
        // They leave no zombies.
        assert_eq!(os.tasks().await.len(), 1);
        let mut nobody = Group::new(os).await;
        assert_eq!(nobody.next(os).await, None);
        assert_eq!(nobody.first(os).await, None);
        let nobody = Group::new(os).await;
        assert_eq!(nobody.join(os).await, Ok(()));
    });
}

#[test]
fn the_first_of_a_group_ends_the_rest() {
    let seen = noting(async move |os, notes| {
        let mut group = Group::new(os).await;
        member(os, &mut group, "slow", &notes).await;
        let program = async |os: &mut Os| os.sleep(S).await;
        let fast = group.spawn(os, "fast", program).await.unwrap();
        assert_eq!(group.first(os).await, Some((fast, Exit::Done)));
        os.yield_now().await;
        assert_eq!(notes.take(), ["slow"]);
    });
    assert!(seen.take().is_empty());
}

#[test]
fn a_failure_in_a_group_ends_the_rest() {
    for how in 0..3 {
        let notes = Notes::default();
        boot(async move |os| {
            let mut group = Group::new(os).await;
            member(os, &mut group, "elder", &notes).await;
            let bad = async move |os: &mut Os| {
                os.sleep(S).await;
                match how {
                    0 => return Err("no"),
                    1 => panic!("boom"),
                    _ => {
                        let tid = os.get_tid().await;
                        os.kill(tid).await;
                    }
                }
                Ok(())
            };
            let bad = group.spawn(os, "bad", bad).await.unwrap();
            member(os, &mut group, "younger", &notes).await;
            let failure = group.join(os).await.unwrap_err();
            let exits = [
                Exit::Failed("no".into()),
                Exit::Faulted("boom".into()),
                Exit::Killed,
            ];
            assert_eq!((failure.tid, &failure.exit), (bad, &exits[how]));
            os.yield_now().await;
            assert_eq!(notes.take(), ["elder", "younger"]);
        });
    }
}

#[test]
fn a_group_that_is_dropped_kills_its_members() {
    let notes = Notes::default();
    boot(async move |os| {
        let mut group = Group::new(os).await;
        let tid = member(os, &mut group, "member", &notes).await;
        settle(os).await;
        drop(group);
        // By the next trap it is done.
        assert!(!os.kill(tid).await);
        assert_eq!(notes.take(), ["member"]);
    });
}

/// An owner with a group of two, which it holds while it sleeps.
async fn owner(os: &mut Os, notes: &Notes) -> Tid {
    let notes = notes.clone();
    let owner = async move |os: &mut Os| {
        let mut group = Group::new(os).await;
        member(os, &mut group, "first", &notes).await;
        member(os, &mut group, "second", &notes).await;
        os.sleep(Duration::MAX).await;
    };
    let owner = os.spawn("owner", owner).await.unwrap();
    spin(os, 20).await;
    owner
}

#[test]
fn an_owner_that_is_killed_takes_its_group_with_it() {
    let notes = Notes::default();
    boot(async move |os| {
        let owner = owner(os, &notes).await;
        assert!(os.kill(owner).await);
        assert_eq!(notes.take(), ["first", "second"]);
        assert_eq!(os.tasks().await.len(), 2); // with the owner's zombie
    });
}

#[test]
fn an_owner_that_is_killed_the_moment_it_has_spawned_takes_that_one_too() {
    let seen = noting(async move |os, notes| {
        let owner = async move |os: &mut Os| {
            let me = os.get_tid().await;
            let mut group = Group::new(os).await;
            // It has its first turn before its owner hears of it, and uses it.
            let parricide = async move |os: &mut Os| {
                let _noted = Dropped(notes, "parricide");
                os.kill(me).await;
                os.sleep(Duration::MAX).await;
            };
            group.spawn(os, "parricide", parricide).await.unwrap();
            panic!("it went on");
        };
        let owner = os.spawn("owner", owner).await.unwrap();
        assert_eq!(os.wait(owner).await, Ok(Exit::Killed));
    });
    assert_eq!(seen.take(), ["parricide"]);
}

#[test]
fn a_spawn_into_a_group_that_times_out_leaves_nobody_outside_it() {
    let seen = noting(async move |os, notes| {
        for before in 245..260 {
            let notes = notes.clone();
            let run = async move |os: &mut Os| {
                let mut group = Group::new(os).await;
                spin(os, before).await;
                for _ in 0..20 {
                    let spawn = async |os: &mut Os| member(os, &mut group, "m", &notes).await;
                    if os.timeout(Duration::ZERO, spawn).await.is_err() {
                        break;
                    }
                }
                drop(group);
                os.yield_now().await;
                notes.take();
                os.tasks().await.len()
            };
            assert_eq!(run(os).await, 1);
        }
    });
    assert!(seen.take().is_empty());
}

#[test]
fn a_member_that_kills_its_owner_dies_with_the_group() {
    let seen = noting(async move |os, notes| {
        let theirs = notes.clone();
        let owner = async move |os: &mut Os| {
            let me = os.get_tid().await;
            let mut group = Group::new(os).await;
            let rebel = async move |os: &mut Os| {
                let _noted = Dropped(theirs.clone(), "rebel");
                os.sleep(S).await;
                os.kill(me).await;
                theirs.note("it went on");
            };
            group.spawn(os, "rebel", rebel).await.unwrap();
            member(os, &mut group, "other", &notes).await;
            os.sleep(Duration::MAX).await;
        };
        let owner = os.spawn("owner", owner).await.unwrap();
        assert_eq!(os.wait(owner).await, Ok(Exit::Killed));
    });
    assert_eq!(seen.take(), ["rebel", "other"]);
}

#[test]
fn a_member_that_waits_for_its_owner_dies_with_it() {
    for detached in [true, false] {
        let notes = Notes::default();
        let theirs = notes.clone();
        boot(async move |os| {
            let owner = async move |os: &mut Os| {
                let me = os.get_tid().await;
                let mut group = Group::new(os).await;
                let waits = async move |os: &mut Os| {
                    let _noted = Dropped(theirs.clone(), "member");
                    let exit = os.wait(me).await;
                    theirs.note(format!("it saw {exit:?}"));
                };
                group.spawn(os, "member", waits).await.unwrap();
                os.sleep(Duration::MAX).await;
            };
            let owner = if detached {
                os.spawn_detached("owner", owner).await.unwrap()
            } else {
                os.spawn("owner", owner).await.unwrap()
            };
            settle(os).await;
            assert!(os.kill(owner).await);
            os.yield_now().await;
            // Its only waiter was killed: it has left a zombie.
            let expected = if detached {
                Err(Errno::NoSuchTask)
            } else {
                Ok(Exit::Killed)
            };
            assert_eq!(os.wait(owner).await, expected);
            assert_eq!(notes.take(), ["member"]);
        });
    }
}

#[test]
fn a_group_may_hold_the_parent_of_the_task_that_holds_it() {
    boot(async |os| {
        let groups = Queue::<Group>::unbounded(os).await;
        let mut group = Group::new(os).await;
        let theirs = groups.clone();
        let parent = async move |os: &mut Os| {
            let child = async move |os: &mut Os| {
                let _group = theirs.get(os).await;
                os.sleep(Duration::MAX).await;
            };
            os.spawn("child", child).await.unwrap();
            os.sleep(Duration::MAX).await;
        };
        let parent = group.spawn(os, "parent", parent).await.unwrap();
        settle(os).await;
        assert!(groups.put(os, group).await.is_ok());
        settle(os).await;
        let child = u64::from(parent) + 1;
        assert!(os.kill(child.into()).await);
        assert!(!os.kill(parent).await);
        settle(os).await;
    });
}

#[test]
fn a_shutdown_meets_a_group_that_is_younger_than_its_members() {
    let notes = Notes::default();
    let theirs = notes.clone();
    let mut kernel = Kernel::simulated(0);
    let main = async move |os: &mut Os| {
        let mut group = Group::new(os).await;
        member(os, &mut group, "first", &theirs).await;
        member(os, &mut group, "second", &theirs).await;
        let keeper = async move |os: &mut Os| {
            let _group = group;
            os.sleep(Duration::MAX).await;
        };
        os.spawn("keeper", keeper).await.unwrap();
        settle(os).await;
        os.shutdown().await;
    };
    kernel.spawn("main", main).unwrap();
    let report = finish(&mut kernel);
    assert_eq!(report.exits()[&1.into()], Exit::Killed);
    assert_eq!(notes.take(), ["first", "second"]);
}

#[test]
fn a_task_that_drops_the_group_it_is_in_is_killed_at_its_next_trap() {
    let seen = noting(async move |os, notes| {
        let groups = Queue::<Group>::unbounded(os).await;
        let mut group = Group::new(os).await;
        let theirs = groups.clone();
        let suicide = async move |os: &mut Os| {
            drop(theirs.get(os).await);
            let owned = Dropped(notes.clone(), "what the spawn carried");
            notes.note("dropped");
            let child = async move |_: &mut Os| drop(owned);
            os.spawn("child", child).await.unwrap();
            panic!("it went on");
        };
        let suicide = group.spawn(os, "suicide", suicide).await.unwrap();
        groups
            .put(os, group)
            .await
            .unwrap_or_else(|_| panic!("it is open"));
        settle(os).await;
        assert!(!os.kill(suicide).await);
        assert_eq!(os.tasks().await.len(), 1); // no child, and no zombie
    });
    assert_eq!(seen.take(), ["dropped", "what the spawn carried"]);
}

/// A member that borrows what the owner of the group uses next.
#[expect(
    clippy::await_holding_refcell_ref,
    reason = "the borrow is what is tested"
)]
async fn borrower(os: &mut Os, group: &mut Group, shared: &Rc<RefCell<Vec<&'static str>>>) {
    let shared = Rc::clone(shared);
    let borrower = async move |os: &mut Os| {
        let mut mine = shared.borrow_mut();
        mine.push("borrowed");
        os.sleep(Duration::MAX).await;
    };
    group.spawn(os, "borrower", borrower).await.unwrap();
}

#[test]
fn s55_when_join_or_first_answers_the_members_are_gone() {
    for first in [false, true] {
        boot(async move |os| {
            let shared = Rc::<RefCell<Vec<&str>>>::default();
            let mut group = Group::new(os).await;
            borrower(os, &mut group, &shared).await;
            let bad = async |os: &mut Os| {
                os.sleep(S).await;
                Err("no")
            };
            let bad = group.spawn(os, "bad", bad).await.unwrap();
            let exit = Exit::Failed("no".into());
            if first {
                assert_eq!(group.first(os).await, Some((bad, exit)));
            } else {
                let failure = group.join(os).await.unwrap_err();
                assert_eq!((failure.tid, failure.exit), (bad, exit));
            }
            // Without a trap in between: what the member had borrowed is free.
            assert_eq!(*shared.borrow_mut(), ["borrowed"]);
            assert_eq!(os.tasks().await.len(), 1);
        });
    }
}

#[test]
fn s55_the_members_of_a_dropped_group_end_before_the_next_trap_has_an_effect() {
    let notes = Notes::default();
    boot(async move |os| {
        let queue = Queue::unbounded(os).await;
        let mut group = Group::new(os).await;
        let (theirs, noted) = (queue.clone(), Dropped(notes.clone(), "ended"));
        let eager = async move |os: &mut Os| {
            let _noted = noted;
            let _ = theirs.get(os).await;
            panic!("it has had a message");
        };
        group.spawn(os, "eager", eager).await.unwrap();
        settle(os).await;
        drop(group);
        assert!(notes.take().is_empty());
        // It waits for this message, and is gone before the put.
        queue.put(os, 1).await.unwrap();
        assert_eq!(notes.take(), ["ended"]);
        assert_eq!(queue.try_get(os).await, Ok(1));
    });
}

#[test]
fn s55_a_members_exit_reaches_the_group_wherever_it_has_moved() {
    for outlives in [false, true] {
        boot(async move |os| {
            let groups = Queue::<Group>::unbounded(os).await;
            let theirs = groups.clone();
            let owner = async move |os: &mut Os| {
                let mut group = Group::new(os).await;
                let bad = async move |os: &mut Os| {
                    if outlives {
                        os.sleep(S).await;
                    }
                    Err("no")
                };
                group.spawn(os, "bad", bad).await.unwrap();
                assert!(theirs.put(os, group).await.is_ok());
            };
            os.spawn_detached("first owner", owner).await.unwrap();
            let group = groups.get(os).await.unwrap();
            settle(os).await;
            let failure = group.join(os).await.unwrap_err();
            assert_eq!(failure.exit, Exit::Failed("no".into()));
            assert_eq!(os.tasks().await.len(), 1);
        });
    }
}

#[test]
fn s55_a_members_exit_reaches_the_group_whatever_task_has_waited_for_it() {
    for early in [true, false] {
        boot(async move |os| {
            let mut group = Group::new(os).await;
            let bad = async |os: &mut Os| {
                os.sleep(S).await;
                Err("no")
            };
            let bad = group.spawn(os, "bad", bad).await.unwrap();
            let waiter = async move |os: &mut Os| {
                if !early {
                    os.sleep(S * 2).await;
                }
                assert_eq!(os.wait(bad).await, Ok(Exit::Failed("no".into())));
            };
            let waiter = os.spawn("waiter", waiter).await.unwrap();
            assert_eq!(os.wait(waiter).await, Ok(Exit::Done));
            let failure = group.join(os).await.unwrap_err();
            assert_eq!(
                (failure.tid, failure.exit),
                (bad, Exit::Failed("no".into()))
            );
        });
    }
}

#[test]
fn s55_a_next_that_is_cut_loses_no_exit() {
    // Whatever the alignment of turns and looks.
    for before in 240..262 {
        boot(async move |os| {
            let mut group = Group::new(os).await;
            let bad = async |_: &mut Os| Err("no");
            let bad = group.spawn(os, "bad", bad).await.unwrap();
            spin(os, before).await;
            for _ in 0..3 {
                let cut = os.timeout(Duration::ZERO, async |os| {
                    spin(os, 5).await;
                    leave_answer(group.next(os)).await;
                    os.sleep(S).await;
                });
                let _ = cut.await;
            }
            let failure = group.join(os).await.expect_err("the failure was lost");
            assert_eq!(failure.tid, bad, "{before}");
        });
    }
}

#[test]
fn a_group_at_the_limit_of_tasks() {
    let builder = Kernel::builder().world(SimWorld::new(0));
    let mut kernel = builder.max_tasks(2).build().unwrap();
    let main = async |os: &mut Os| {
        let mut group = Group::new(os).await;
        let program = async |os: &mut Os| os.sleep(S).await;
        let tid = group.spawn(os, "one", program).await.unwrap();
        let refused = group.spawn(os, "two", program).await;
        assert_eq!(refused, Err(Errno::TooManyTasks));
        assert_eq!(group.next(os).await, Some((tid, Exit::Done)));
        assert_eq!(group.next(os).await, None);
        group.spawn(os, "three", program).await.unwrap();
        assert_eq!(group.join(os).await, Ok(()));
    };
    kernel.spawn("main", main).unwrap();
    assert_eq!(finish(&mut kernel).exits()[&1.into()], Exit::Done);
}

#[test]
fn a_next_that_times_out_loses_no_member() {
    // Whatever the alignment of turns and looks: the members that ended are counted once each.
    for before in 240..262 {
        boot(async move |os| {
            let mut group = Group::new(os).await;
            for _ in 0..5 {
                let program = async |_: &mut Os| {};
                group.spawn(os, "member", program).await.unwrap();
            }
            spin(os, before).await;
            let cut = os.timeout(
                Duration::ZERO,
                async |os| {
                    while group.next(os).await.is_some() {}
                },
            );
            let _ = cut.await;
            let rest = os.timeout(S, async |os| while group.next(os).await.is_some() {});
            assert_eq!(rest.await, Ok(()), "a member never ended");
        });
    }
}
