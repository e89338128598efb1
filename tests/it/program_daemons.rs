//! Daemons of programs: S78. Those of the host are in `daemons.rs`.

use std::{cell::RefCell, collections::BTreeSet, time::Duration};

use trapline::{Errno, Error, Exit, Kernel, Os, Queue, Step, Tid, check};

use crate::support::{Diary, logged, sim, spin};

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

async fn ticks(os: &mut Os) {
    loop {
        os.sleep(millis(1)).await;
    }
}

#[test]
fn s78_a_daemon_keeps_no_run_alive_and_its_destructors_run() {
    let (mut kernel, diary) = (Kernel::simulated(1), Diary::default());
    let dropped = diary.on_drop("dropped");
    let main = kernel.spawn("main", async |os: &mut Os| {
        let ticker = async move |os: &mut Os| {
            let _dropped = dropped;
            ticks(os).await;
        };
        assert_eq!(os.spawn_daemon("ticker", ticker).await, Ok(Tid::from(2)));
        os.sleep(millis(5)).await;
    });
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&main.unwrap()], Exit::Done);
    assert_eq!(diary.lines(), ["dropped"]);
    assert_eq!(report.elapsed, millis(5));
    assert_eq!((report.peak_tasks, kernel.tasks().count()), (2, 0));
    report.check().unwrap();
    kernel.audit_all();
}

#[test]
fn s78_it_has_no_turn_after_the_last_other_task_and_ends_before_the_run_answers() {
    let (mut kernel, log) = logged(sim());
    kernel
        .spawn("main", async |os: &mut Os| {
            os.spawn_daemon("one", spin).await.unwrap();
            os.spawn_daemon("two", spin).await.unwrap();
        })
        .unwrap();
    kernel.run().unwrap();
    let lines = log.lines().into_iter();
    let last = lines.skip_while(|line| !line.contains(" 1 exited"));
    let last: Vec<String> = last
        .map(|line| line[line.find(' ').unwrap() + 1..].into())
        .collect();
    let expected = [
        "1 exited done",
        "1 reaped",
        "3 exited killed",
        "3 reaped",
        "2 exited killed",
        "2 reaped",
    ];
    assert_eq!(last, expected);
}

#[test]
fn s78_steps_and_runs_agree() {
    let boot = || {
        let mut kernel = Kernel::simulated(1);
        let main = kernel.spawn("main", async |os: &mut Os| {
            os.spawn_daemon("ticker", ticks).await.unwrap();
            os.sleep(millis(3)).await;
        });
        (kernel, main.unwrap())
    };
    let (mut kernel, _) = boot();
    let ran = kernel.run().unwrap();
    let (mut kernel, _) = boot();
    while kernel.step().unwrap() != Step::Finished {}
    let stepped = kernel.report();
    assert_eq!(stepped.ticks, ran.ticks);
    assert_eq!(stepped.elapsed, ran.elapsed);
    assert_eq!(kernel.tasks().count(), 0);
    let (mut kernel, main) = boot();
    kernel.run_until(&[main]).unwrap();
    assert_eq!(kernel.tasks().count(), 0);
    // A step that ends the last other task leaves the end of the daemons to what follows.
    let (mut kernel, _) = boot();
    while kernel.tasks().any(|task| task.tid == Tid::from(1)) {
        kernel.step().unwrap();
    }
    assert_eq!(kernel.run().unwrap().ticks, ran.ticks);
    assert_eq!(kernel.tasks().count(), 0);
}

#[test]
fn s78_it_can_be_waited_for_and_killed_as_any_task() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let short = async |os: &mut Os| {
                os.sleep(millis(1)).await;
                Err("over")
            };
            let short = os.spawn_daemon("short", short).await.unwrap();
            let long = os.spawn_daemon("long", ticks).await.unwrap();
            assert_eq!(os.wait(short).await, Ok(Exit::Failed("over".into())));
            assert!(os.kill(long).await);
            assert!(!os.kill(long).await);
            assert_eq!(os.wait(long).await, Ok(Exit::Killed));
            assert_eq!(os.wait(long).await, Err(Errno::NoSuchTask));
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn s78_what_a_daemon_spawns_keeps_the_run_alive_unless_it_is_a_daemon_too() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let server = async |os: &mut Os| {
                os.spawn_daemon("inner", ticks).await.unwrap();
                let client = async |os: &mut Os| os.sleep(millis(7)).await;
                os.spawn("client", client).await.unwrap();
                ticks(os).await;
            };
            os.spawn_daemon("server", server).await.unwrap();
            os.sleep(millis(1)).await;
        })
        .unwrap();
    assert_eq!(kernel.run().unwrap().elapsed, millis(7));
    assert_eq!(kernel.tasks().count(), 0);
}

#[test]
fn s78_it_counts_towards_the_limit_of_tasks() {
    let mut kernel = sim().max_tasks(2).build().unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            os.spawn_daemon("one", ticks).await.unwrap();
            let two = os.spawn_daemon("two", ticks).await;
            assert_eq!(two, Err(Errno::TooManyTasks));
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn s78_s46_a_daemon_that_may_run_may_wake_others() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let queue = Queue::bounded(os, 1).await;
            let theirs = queue.clone();
            let waker = async move |os: &mut Os| {
                os.sleep(millis(9)).await;
                theirs.put(os, ()).await.unwrap();
                ticks(os).await;
            };
            os.spawn_daemon("waker", waker).await.unwrap();
            queue.get(os).await.unwrap();
        })
        .unwrap();
    assert_eq!(kernel.run().unwrap().elapsed, millis(9));
}

#[test]
fn s78_s46_a_deadlock_that_daemons_cannot_end_is_reported_with_them() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let queue = Queue::<()>::bounded(os, 1).await;
            let theirs = queue.clone();
            let echo = async move |os: &mut Os| theirs.get(os).await.map(drop);
            let echo = os.spawn_daemon("echo", echo).await.unwrap();
            let _held = queue;
            let _ = os.wait(echo).await;
        })
        .unwrap();
    let Err(Error::Deadlock(deadlock)) = kernel.run() else {
        panic!("no deadlock");
    };
    let lines: Vec<String> = deadlock.blocked.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines[0],
        "tid 1 \"main\" waits for the end of task 2, since 00:00.000"
    );
    assert_eq!(
        lines[1],
        "tid 2 \"echo\" (daemon) waits for queue 1 (get), since 00:00.000"
    );
    // It is as any other deadlock: a daemon ends with the last other task, which has not ended.
    assert_eq!(kernel.tasks().count(), 2);
    assert!(kernel.run().is_err());
}

#[test]
fn s78_the_end_of_daemons_loses_nothing_in_any_order() {
    let explored = check(|kernel: &mut Kernel| {
        let diary = Diary::default();
        let (mine, theirs) = (diary.clone(), diary.clone());
        kernel.spawn("main", async move |os: &mut Os| {
            let dropped = theirs.on_drop("daemon");
            let daemon = async move |os: &mut Os| {
                let _dropped = dropped;
                let worker = async |os: &mut Os| os.yield_now().await;
                os.spawn_detached("worker", worker).await.unwrap();
                os.sleep(millis(1)).await;
            };
            let daemon = os.spawn_daemon("daemon", daemon).await.unwrap();
            let killer = async move |os: &mut Os| {
                os.kill(daemon).await;
            };
            os.spawn_detached("killer", killer).await.unwrap();
            os.timeout(millis(1), ticks).await.unwrap_err();
        })?;
        let report = kernel.run()?;
        assert_eq!(mine.lines(), ["daemon"]);
        assert_eq!(kernel.tasks().count(), 0);
        kernel.audit_all();
        report.check()
    });
    let explored = explored.exhaustive().explore();
    assert_eq!(explored.failure, None);
    assert!(explored.complete);
}

#[test]
fn s78_a_search_sees_that_the_last_end_takes_the_turns_of_daemons() {
    // A daemon that may or may not have its turn before the last other task ends.
    let seen = RefCell::new(BTreeSet::new());
    let explored = check(|kernel: &mut Kernel| {
        let diary = Diary::default();
        let theirs = diary.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let daemon = async move |os: &mut Os| {
                theirs.note("begun");
                os.yield_now().await;
                theirs.note("went on");
            };
            os.spawn_daemon("daemon", daemon).await.unwrap();
        })?;
        kernel.run()?;
        seen.borrow_mut().insert(diary.text());
        Ok(())
    });
    let explored = explored.exhaustive().explore();
    assert_eq!(explored.failure, None);
    assert!(explored.complete);
    assert_eq!(
        Vec::from_iter(seen.into_inner()),
        ["", "begun", "begun, went on"]
    );
}

#[test]
fn s78_the_log_tells_a_daemon() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let daemon = os.spawn_daemon("ticker", ticks).await.unwrap();
            let other = os.spawn("other", async |_: &mut Os| ()).await.unwrap();
            let marked = os.tasks().await.into_iter().filter(|task| task.is_daemon);
            assert!(marked.map(|task| task.tid).eq([daemon]));
            os.wait(other).await.unwrap();
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}
