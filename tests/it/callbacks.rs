//! Callbacks: `call_soon`, `call_later`, `call_every`.

use std::{cell::Cell, time::Duration};

use trapline::{Errno, Exit, Kernel, On, Os, SimWorld, TaskState, Tid};

use crate::stepping::{Dropped, Moving, Notes, finish, noting, printed, settle};

const S: Duration = Duration::from_secs(1);

#[test]
fn call_soon_runs_in_order_and_after_the_caller_has_given_way() {
    let printed = printed(async |os| {
        for n in 1..=3 {
            os.call_soon(async move |os| writeln!(os, "soon {n}")).await;
        }
    });
    assert_eq!(printed, "soon 1\nsoon 2\nsoon 3\n");
}

#[test]
fn s54_what_follows_call_soon_runs_first() {
    for delay in [None, Some(Duration::ZERO)] {
        let printed = printed(async move |os| {
            os.spawn("other", async |os| {
                writeln!(os, "spawned before its parent");
            })
            .await?;
            let callback = async |os: &mut Os| writeln!(os, "1");
            match delay {
                None => os.call_soon(callback).await,
                Some(delay) => os.call_later(delay, callback).await,
            };
            writeln!(os, "2");
            os.yield_now().await;
            writeln!(os, "3");
            Ok::<(), Errno>(())
        });
        assert_eq!(printed, "spawned before its parent\n2\n1\n3\n");
    }
}

#[test]
fn s54_a_second_call_soon_is_a_trap_too() {
    let printed = printed(async |os| {
        os.call_soon(async |os| writeln!(os, "first")).await;
        writeln!(os, "between");
        os.call_soon(async |os| writeln!(os, "second")).await;
        writeln!(os, "after");
    });
    assert_eq!(printed, "between\nfirst\nafter\nsecond\n");
}

#[test]
fn s54_a_callback_of_a_daemon_goes_behind_it_too() {
    let mut kernel = Kernel::simulated(0);
    kernel.spawn_daemon("daemon", async |os: &mut Os| {
        os.call_soon(async |os| writeln!(os, "1")).await;
        writeln!(os, "2");
        os.yield_now().await;
    });
    kernel
        .spawn("main", async |os: &mut Os| os.sleep(S).await)
        .unwrap();
    finish(&mut kernel);
    assert_eq!(kernel.take_console(), "2\n1\n");
}

#[test]
fn call_later_runs_at_its_deadline_and_equal_ones_in_order() {
    let printed = printed(async |os| {
        for (n, delay) in [(1, 2), (2, 1), (3, 2), (4, 0), (5, 1)] {
            let callback = async move |os: &mut Os| {
                let now = os.now().await;
                writeln!(os, "{n} at {now:?}");
            };
            os.call_later(S * delay, callback).await;
        }
    });
    assert_eq!(printed, "4 at 0ns\n2 at 1s\n5 at 1s\n1 at 2s\n3 at 2s\n");
}

#[test]
fn call_later_is_one_trap_and_its_timer_is_armed_by_it() {
    let printed = printed(async |os| {
        os.call_later(S, async |os: &mut Os| writeln!(os, "first"))
            .await;
        let tasks = os.tasks().await;
        // The call and this one.
        assert_eq!(tasks[0].traps, 2);
        assert_eq!(tasks[1].traps, 0);
        let on = On::Timer(S.into());
        let since = Duration::ZERO;
        assert_eq!(tasks[1].state, TaskState::Blocked { on, since });
        os.sleep(S).await;
        writeln!(os, "second");
    });
    assert_eq!(printed, "first\nsecond\n");
}

#[test]
fn call_later_counts_from_the_call_however_busy_the_others_are() {
    let (world, passed) = Moving::new();
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    let main = async move |os: &mut Os| {
        os.spawn("busy", async move |os| {
            os.yield_now().await;
            // Between the call and the first turn that its task could have had.
            passed.set(S * 5);
        })
        .await?;
        os.call_later(S, async |os: &mut Os| {
            let now = os.now().await;
            writeln!(os, "at {now:?}");
        })
        .await;
        Ok::<(), Errno>(())
    };
    kernel.spawn("main", main).unwrap();
    assert_eq!(finish(&mut kernel).elapsed, S * 5);
    assert_eq!(kernel.take_console(), "at 5s\n");
}

#[test]
fn call_every_nothing_counts_as_a_millisecond() {
    let seen = noting(async move |os, notes| {
        let theirs = notes.clone();
        let every = async move |os: &mut Os| theirs.note(format!("{:?}", os.now().await));
        let every = os.call_every(Duration::ZERO, every).await;
        os.sleep(Duration::from_micros(3500)).await;
        assert!(os.kill(every).await);
    });
    assert_eq!(seen.take(), ["1ms", "2ms", "3ms"]);
}

#[test]
fn call_every_keeps_to_the_beat_until_it_is_killed() {
    let seen = noting(async move |os, notes| {
        let (count, theirs) = (Cell::new(0), notes.clone());
        let every = os
            .call_every(S, async move |os: &mut Os| {
                count.set(count.get() + 1);
                theirs.note(format!("{} at {:?}", count.get(), os.now().await));
                // The second call is late for the third and does not delay the fourth.
                if count.get() == 2 {
                    os.sleep(S * 3 / 2).await;
                }
            })
            .await;
        os.sleep_until(S * 9 / 2).await;
        assert!(os.kill(every).await);
        os.sleep(S * 9).await;
    });
    let expected = ["1 at 1s", "2 at 2s", "3 at 3.5s", "4 at 4s"];
    assert_eq!(seen.take(), expected);
}

#[test]
fn a_callback_is_cancelled_by_killing_it() {
    let notes = Notes::default();
    let seen = notes.clone();
    let mut kernel = Kernel::simulated(0);
    let main = async move |os: &mut Os| {
        let owned = Dropped(notes.clone(), "dropped");
        let soon = os.call_soon(async move |os| {
            drop(owned);
            os.sleep(S).await;
        });
        let soon = soon.await;
        let owned = Dropped(notes.clone(), "dropped too");
        let later = os.call_later(S * 9, async move |_: &mut Os| drop(owned));
        let later = later.await;
        settle(os).await;
        assert!(os.kill(later).await && os.kill(soon).await);
        assert!(!os.kill(later).await);
        notes.note("killed");
        // They leave no zombies.
        assert_eq!(os.tasks().await.len(), 1);
    };
    kernel.spawn("main", main).unwrap();
    let report = finish(&mut kernel);
    assert_eq!(report.exits()[&1.into()], Exit::Done);
    assert_eq!(report.elapsed, Duration::ZERO);
    assert_eq!(seen.take(), ["dropped", "dropped too", "killed"]);
}

#[test]
fn a_callback_that_panics_or_fails_is_its_own_end() {
    let printed = printed(async |os| {
        let panics = async |os: &mut Os| {
            os.yield_now().await;
            panic!("boom")
        };
        os.call_soon(async move |os| {
            let () = panics(os).await;
        })
        .await;
        os.call_later(S, async |_: &mut Os| Err("no")).await;
        os.call_later(S * 2, async |os| writeln!(os, "the last"))
            .await;
        os.call_every(S / 2, async |_: &mut Os| panic!("boom"))
            .await;
    });
    assert_eq!(printed, "the last\n");
}

#[test]
fn a_callback_at_the_limit_of_tasks_is_dropped() {
    let notes = Notes::default();
    let theirs = notes.clone();
    let builder = Kernel::builder().world(SimWorld::new(0)).max_tasks(1);
    let mut kernel = builder.build().unwrap();
    let main = async move |os: &mut Os| {
        let owned = Dropped(theirs.clone(), "dropped");
        let callback = async move |_: &mut Os| drop(owned);
        assert_eq!(os.call_soon(callback).await, Tid::KERNEL);
        theirs.note("goes on");
    };
    kernel.spawn("main", main).unwrap();
    assert_eq!(finish(&mut kernel).exits()[&1.into()], Exit::Done);
    assert_eq!(notes.take(), ["dropped", "goes on"]);
}

#[test]
fn callbacks_outlive_who_asked_for_them_and_call_back_themselves() {
    let printed = printed(async |os| {
        os.call_later(S, async |os| {
            os.call_later(S, async |os| {
                let now = os.now().await;
                writeln!(os, "at {now:?}");
            })
            .await;
        })
        .await;
    });
    assert_eq!(printed, "at 2s\n");
}
