//! Cycles of waits through locks that readers share, and through selects: found when they close, and reported
//! once.

use std::time::Duration;

use trapline::{Deadlock, Error, OnDeadlock, Os, Scope, Source, Tid, sync::RwLock};

use crate::support::{logged, tid, unscripted};

const MS: Duration = Duration::from_millis(1);

async fn spawn(os: &mut Os, program: impl AsyncFnOnce(&mut Os) + 'static) -> Tid {
    os.spawn("task", program).await.unwrap()
}

/// Runs a program as task 2 beside a task that lives on, and returns the deadlock that stops it, with the instant.
fn stopped(program: impl AsyncFnOnce(&mut Os) + 'static) -> (Deadlock, Duration) {
    let builder = unscripted().on_deadlock(OnDeadlock::Stop);
    let mut kernel = builder.max_ticks(1000).build().unwrap();
    let alive = async |os: &mut Os| loop {
        os.sleep(MS).await;
    };
    kernel.spawn("alive", alive).unwrap();
    kernel.spawn("main", program).unwrap();
    match kernel.run() {
        Err(Error::Deadlock(deadlock)) => (deadlock, kernel.now()),
        other => panic!("a deadlock: {other:?}"),
    }
}

/// Writes, unless that takes longer than this.
async fn writes(os: &mut Os, lock: &RwLock<()>, span: Duration) {
    let write = async |os: &mut Os| drop(lock.write(os).await);
    let _ = os.timeout(span, write).await;
}

#[test]
fn a_reader_behind_a_writer_that_gives_up_and_one_that_does_not_is_stuck() {
    for first_gives_up in [true, false] {
        let (deadlock, at) = stopped(async move |os: &mut Os| {
            let lock = RwLock::new(os, ()).await;
            let _share = lock.read(os).await;
            for gives_up in [first_gives_up, !first_gives_up] {
                let (lock, span) = (lock.clone(), if gives_up { 9 * MS } else { Duration::MAX });
                spawn(os, async move |os: &mut Os| writes(os, &lock, span).await).await;
            }
            os.sleep(MS).await;
            let _again = lock.read(os).await;
        });
        assert_eq!((deadlock.cycles, at), (vec![vec![tid(2)]], MS));
    }
}

#[test]
fn a_select_that_finds_nothing_at_its_turn_closes_a_cycle() {
    let (deadlock, _) = stopped(async |os: &mut Os| {
        let lock = RwLock::new(os, ()).await;
        let _share = lock.read(os).await;
        let theirs = lock.clone();
        spawn(os, async move |os: &mut Os| {
            os.yield_now().await;
            drop(theirs.write(os).await);
        })
        .await;
        // It is ready when it is called. Then the other task asks to write.
        os.select(&[Source::read(&lock)]).await;
    });
    assert_eq!(deadlock.cycles, [[tid(2)]]);
    assert_eq!(deadlock.tails, [[tid(3), tid(2)]]);
}

#[test]
fn a_cycle_is_that_of_the_task_that_closed_it_whatever_else_a_select_waits_for() {
    // Task 2 waits for itself, or for task 3.
    let (deadlock, _) = stopped(async |os: &mut Os| {
        let lock = RwLock::new(os, ()).await;
        let _share = lock.read(os).await;
        let theirs = lock.clone();
        let writer = async move |os: &mut Os| {
            os.sleep(MS).await;
            drop(theirs.write(os).await);
        };
        let writer = spawn(os, writer).await;
        let sources = [Source::write(&lock), Source::exit(writer)];
        os.select(&sources).await;
    });
    assert_eq!(deadlock.cycles, [[tid(2), tid(3)]]);
}

#[test]
fn a_reader_that_leaves_may_close_a_longer_cycle_than_one_that_was_open() {
    // Task 3 waits for task 2, which waits for that one or for the writer. Task 5 reads beside task 2.
    let (_, at) = stopped(async |os: &mut Os| {
        let lock = RwLock::new(os, ()).await;
        let _share = lock.read(os).await;
        let me = os.get_tid().await;
        let waits = spawn(os, async move |os: &mut Os| drop(os.wait(me).await)).await;
        let (theirs, others) = (lock.clone(), lock.clone());
        let writer = async move |os: &mut Os| {
            os.sleep(MS).await;
            drop(theirs.write(os).await);
        };
        let writer = spawn(os, writer).await;
        spawn(os, async move |os: &mut Os| {
            let _share = others.read(os).await;
            os.sleep(5 * MS).await;
        })
        .await;
        let sources = [Source::exit(waits), Source::exit(writer)];
        os.select(&sources).await;
    });
    assert_eq!(at, 5 * MS);
}

#[test]
fn a_deadline_that_is_lifted_may_close_a_cycle() {
    let (deadlock, at) = stopped(async |os: &mut Os| {
        let (lock, scope) = (RwLock::new(os, ()).await, Scope::new());
        let _share = lock.read(os).await;
        scope.deadline(os, 9 * MS).await;
        let theirs = scope.clone();
        spawn(os, async move |os: &mut Os| {
            os.sleep(MS).await;
            theirs.deadline(os, Duration::MAX).await;
        })
        .await;
        let write = async |os: &mut Os| drop(lock.write(os).await);
        let _ = scope.run(os, write).await;
    });
    assert_eq!((deadlock.cycles, at), (vec![vec![tid(2)]], MS));
}

#[test]
fn a_cycle_that_a_select_finds_again_is_reported_once() {
    let (mut kernel, log) = logged(unscripted().on_deadlock(OnDeadlock::Warn));
    let main = async |os: &mut Os| {
        let lock = RwLock::new(os, ()).await;
        let _share = lock.read(os).await;
        for after in 1..4 {
            let lock = lock.clone();
            spawn(os, async move |os: &mut Os| {
                os.sleep(after * MS).await;
                // Its end wakes the select, which still finds a reader.
                drop(lock.read(os).await);
            })
            .await;
        }
        os.select(&[Source::write(&lock)]).await;
    };
    kernel.spawn("main", main).unwrap();
    assert!(kernel.run().is_err(), "it waits for itself");
    let lines = log.lines();
    let found = lines.iter().filter(|line| line.contains("deadlock"));
    assert_eq!(found.count(), 1, "{lines:?}");
    kernel.audit_all();
}
