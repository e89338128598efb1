//! S79: which failures a report, a search and an exit code count.

use std::time::Duration;

use trapline::{Errno, Exit, Kernel, Os, Report, check, sync::Group};

use crate::{
    stepping::settle,
    support::{run_main, tid},
};

const S: Duration = Duration::from_secs(1);

async fn fails(_: &mut Os) -> Result<(), &'static str> {
    Err("no luck")
}

/// Ends with a failure in a second.
async fn fails_later(os: &mut Os) -> Result<(), &'static str> {
    os.sleep(S).await;
    Err("no luck")
}

fn run(program: impl AsyncFnOnce(&mut Os) + 'static) -> Report {
    run_main(&mut Kernel::simulated(1), program)
}

/// What the check of a report says.
fn verdict(report: &Report) -> String {
    let text = report
        .check()
        .map_or_else(|error| error.to_string(), |()| String::new());
    assert_eq!(report.failures == 0, text.is_empty());
    text
}

fn failed(number: u64) -> String {
    format!("task {number} \"child\" failed: no luck")
}

#[test]
fn s79_a_failure_that_a_task_has_waited_for_is_none_of_the_run() {
    // The wait comes before the end, and after it.
    let report = run(async |os| {
        for program in [0, 1] {
            let child = match program {
                0 => os.spawn("child", fails_later).await.unwrap(),
                _ => os.spawn("child", fails).await.unwrap(),
            };
            settle(os).await;
            assert_eq!(os.wait(child).await, Ok(Exit::Failed("no luck".into())));
        }
        // A detached task, too.
        let child = os.spawn_detached("child", fails_later).await.unwrap();
        assert_eq!(os.wait(child).await, Ok(Exit::Failed("no luck".into())));
    });
    assert_eq!(verdict(&report), "");
}

#[test]
fn s79_a_failure_of_the_hosts_own_task_counts_unless_a_task_has_waited_for_it() {
    for waits in [true, false] {
        let mut kernel = Kernel::simulated(1);
        let child = kernel.spawn("child", fails_later).unwrap();
        let waiter = async move |os: &mut Os| match waits {
            true => os.wait(child).await.map(drop),
            false => Ok(()),
        };
        kernel.spawn("waiter", waiter).unwrap();
        let report = kernel.run().unwrap();
        let expected = if waits { String::new() } else { failed(1) };
        assert_eq!(verdict(&report), expected);
        assert_eq!(report.exits()[&child], Exit::Failed("no luck".into()));
    }
}

#[test]
fn s79_a_failure_that_no_task_has_waited_for_counts() {
    // Its parent ends, or the wait ends before the task does, or is made too late.
    let report = run(async |os| _ = os.spawn("child", fails).await);
    assert_eq!(verdict(&report), failed(2));
    let report = run(async |os| {
        let child = os.spawn("child", fails_later).await.unwrap();
        let cut = os.timeout(S / 2, async |os| os.wait(child).await).await;
        assert!(cut.is_err());
    });
    assert_eq!(verdict(&report), failed(2));
    let report = run(async |os| {
        let child = os.spawn_detached("child", fails).await.unwrap();
        settle(os).await;
        assert_eq!(os.wait(child).await, Err(Errno::NoSuchTask));
    });
    assert_eq!(verdict(&report), failed(2));
    // A waiter that was killed before the end.
    let report = run(async |os| {
        let child = os.spawn("child", fails_later).await.unwrap();
        let waiter = os.spawn("waiter", async move |os: &mut Os| {
            os.wait(child).await.map(drop)
        });
        let waiter = waiter.await.unwrap();
        settle(os).await;
        os.kill(waiter).await;
        os.sleep(2 * S).await;
    });
    assert_eq!(verdict(&report), failed(2));
}

#[test]
fn s79_a_zombie_counts_until_a_task_has_waited_for_it() {
    let mut kernel = Kernel::simulated(1);
    let main = async |os: &mut Os| {
        for _ in 0..40 {
            os.spawn("child", fails).await.unwrap();
        }
        os.sleep(S).await;
        for child in 2..42 {
            if child != 21 {
                os.wait(tid(child)).await.unwrap();
            }
        }
        os.sleep(S).await;
    };
    let main = kernel.spawn("main", main).unwrap();
    while kernel.now() == Duration::ZERO {
        kernel.step().unwrap();
    }
    let text = verdict(&kernel.report());
    assert!(text.ends_with("\nand 24 more"), "{text}");
    // The last of all is named, though 16 came before it.
    let report = kernel.run_until(&[main]).unwrap();
    assert_eq!(verdict(&report), failed(21));
    assert_eq!(report.failures, 1);
}

#[test]
fn s79_a_daemon_of_the_host_is_no_task_that_waits() {
    let mut kernel = Kernel::simulated(1);
    let child = kernel.spawn("child", fails_later).unwrap();
    kernel.spawn_daemon("watch", async move |os: &mut Os| {
        os.wait(child).await.map(drop)
    });
    assert_eq!(verdict(&kernel.run().unwrap()), failed(1));
}

#[test]
fn s79_a_child_that_was_waited_for_through_its_handle() {
    let exits = async |os: &mut Os| os.exit(Exit::Failed("no luck".into())).await;
    let report = run(async move |os| {
        let mut child = os.spawn_child("child", exits).await.unwrap();
        assert_eq!(child.wait(os).await, Err(Exit::Failed("no luck".into())));
        assert_eq!(child.wait(os).await, Err(Exit::Failed("no luck".into())));
    });
    assert_eq!(verdict(&report), "");
    // The task that spawned it has ended before, and so it is no zombie.
    for waits in [true, false] {
        let report = run(async move |os| {
            let queue = trapline::Queue::unbounded(os).await;
            let theirs = queue.clone();
            let parent = async move |os: &mut Os| {
                let child = os.spawn_child("child", exits).await.unwrap();
                settle(os).await;
                let _ = theirs.put(os, child).await;
            };
            os.spawn("parent", parent).await.unwrap();
            let mut child = queue.get(os).await.unwrap();
            settle(os).await;
            if waits {
                assert!(child.wait(os).await.is_err());
                assert!(child.wait(os).await.is_err());
            }
        });
        let expected = if waits { String::new() } else { failed(3) };
        assert_eq!(verdict(&report), expected);
    }
    // The handle is dropped before the task ends.
    let report = run(async move |os| {
        let child = os.spawn_child("child", async move |os: &mut Os| {
            os.sleep(S).await;
            exits(os).await
        });
        drop(child.await);
    });
    assert_eq!(verdict(&report), failed(2));
}

#[test]
fn s79_members_of_a_group_that_was_waited_for() {
    // All that have ended when `join` or `first` answers were waited for.
    for program in 0..4 {
        let report = run(async move |os| {
            let mut group = Group::new(os).await;
            for _ in 0..3 {
                group.spawn(os, "child", fails).await.unwrap();
            }
            settle(os).await;
            match program {
                0 => assert!(group.join(os).await.is_err()),
                1 => assert!(group.first(os).await.is_some()),
                2 => while group.next(os).await.is_some() {},
                _ => drop(group.next(os).await),
            }
        });
        let expected = match program {
            3 => format!("{}\n{}", failed(3), failed(4)),
            _ => String::new(),
        };
        assert_eq!(verdict(&report), expected, "{program}");
    }
    // Also where the group has moved to another task than that which has spawned its members.
    let report = run(async |os| {
        let mut group = Group::new(os).await;
        group.spawn(os, "child", fails).await.unwrap();
        settle(os).await;
        let join = async move |os: &mut Os| assert!(group.join(os).await.is_err());
        os.spawn("join", join).await.unwrap();
    });
    assert_eq!(verdict(&report), "");
}

#[test]
fn s79_a_fault_counts_whether_a_task_has_waited_for_it_or_not() {
    let line = line!() + 2;
    let report = run(async |os| {
        let child = os.spawn("child", async |_: &mut Os| panic!("boom"));
        let child = child.await.unwrap();
        let _ = os.wait(child).await;
    });
    let expected = format!("task 2 \"child\" faulted: boom, at {}:{line}", file!());
    assert_eq!(verdict(&report), expected);
}

#[test]
fn s79_a_search_counts_as_a_report_does() {
    let search = |waits: bool| {
        let body = move |kernel: &mut Kernel| {
            kernel.spawn("main", async move |os: &mut Os| {
                let child = os.spawn("child", fails).await?;
                if waits {
                    os.wait(child).await?;
                }
                Ok::<(), Errno>(())
            })?;
            kernel.run().map(drop)
        };
        check(body).schedules(20).explore().failure
    };
    assert!(search(true).is_none());
    let failure = search(false).expect("no task waits for it");
    assert_eq!(failure.why, failed(2));
}

#[test]
fn the_debug_text_of_a_report_has_the_exits_as_its_method_returns_them() {
    let report = Report::default();
    assert!(format!("{report:?}").contains(", exits: {}"), "{report:?}");
    let report = run(async |_| ());
    let exits = format!(", exits: {:?}", report.exits());
    assert!(format!("{report:?}").contains(&exits), "{report:?}");
}
