//! A task that is cut at each of its awaits.

use std::{io, time::Duration};

use trapline::{
    Check, CutPlace, Errno, Error, Exit, Inject, Kernel, Os, Queue, Scope, Shared, SimWorld, Tid,
    check, sync::Flag,
};

const HOUR: Duration = Duration::from_secs(3600);

/// A worker takes a message, and counts it two traps later. Then the message is counted or in the queue.
fn takes(kernel: &mut Kernel, by_timeout: bool) -> Result<(), Error> {
    let counted = Shared::new(0);
    let count = counted.clone();
    kernel.spawn("main", async move |os: &mut Os| {
        let queue = Queue::unbounded(os).await;
        let theirs = queue.clone();
        let worker = os
            .spawn("worker", async move |os: &mut Os| {
                let take = async |os: &mut Os| {
                    let got = theirs.get(os).await;
                    os.yield_now().await;
                    count.update(|count| *count += usize::from(got.is_ok()));
                };
                match by_timeout {
                    true => drop(os.timeout(HOUR, take).await),
                    false => take(os).await,
                }
            })
            .await?;
        os.yield_now().await;
        let _ = queue.put(os, 7).await;
        let _ = os.wait(worker).await;
        assert_eq!(queue.len() + counted.get(), 1, "a message is lost");
        Ok::<(), Errno>(())
    })?;
    kernel.run()?.check()
}

/// The lines of the table, without the file.
fn rows<F>(check: Check<F>) -> Vec<(String, u64, u64)>
where
    F: Fn(&mut Kernel) -> Result<(), Error>,
{
    let cuts = check.explore().cuts.expect("the search itself passes");
    assert_eq!(cuts.left, 0);
    let row = |it: CutPlace| {
        assert!(it.place.starts_with("it/worth/cuts.rs:"), "{it:?}");
        (it.call, it.cuts, it.failed)
    };
    cuts.places.into_iter().map(row).collect()
}

#[test]
fn a_kill_within_a_get_loses_nothing_and_one_behind_it_does() {
    let killed = check(|kernel| takes(kernel, false)).fifo().schedules(3);
    assert_eq!(
        rows(killed.cut("worker")),
        [("get".into(), 2, 0), ("yield".into(), 2, 2)]
    );
}

#[test]
fn a_timeout_leaves_an_answer_and_cuts_the_next_call() {
    let cut = check(|kernel| takes(kernel, true)).fifo().schedules(3);
    // Nothing is around the call that arms the timeout.
    assert_eq!(
        rows(cut.cut_by_timeout("worker")),
        [("get".into(), 2, 0), ("yield".into(), 1, 1)]
    );
}

#[test]
fn a_cut_that_fails_is_named_and_its_replay_repeats_it() {
    let search = || {
        check(|kernel| takes(kernel, false))
            .schedules(20)
            .cut("worker")
    };
    let failure = search().explore().failure.expect("a message is lost");
    assert!(failure.why.contains("a message is lost"), "{failure}");
    let first = failure.details.lines().next().unwrap();
    assert!(
        first.starts_with("a kill of worker 2 before its trap 2, yield() at it/worth/cuts.rs:"),
        "{first}"
    );
    assert!(
        first.contains(", fails, seed 0; one fails with none of its "),
        "{first}"
    );
    assert!(
        failure.replay.ends_with("+killed-at:2:2"),
        "{}",
        failure.replay
    );
    assert!(failure.details.contains(&failure.replay), "{failure}");
    assert!(failure.details.contains("exits: killed"), "{failure}");
    let again = search().replay(&failure.replay).unwrap().explore();
    assert_eq!(again.changed, None);
    let again = again.failure.expect("it fails again");
    assert_eq!(
        (again.why, again.replay),
        (failure.why, failure.replay.clone())
    );
    // Without the cut the same schedule passes.
    let (schedule, _) = failure.replay.split_once('+').unwrap();
    let without = search().replay(schedule).unwrap().explore();
    assert_eq!(without.failure, None);
}

#[test]
fn a_cut_of_nothing_fails() {
    type Body = fn(&mut Kernel) -> Result<(), Error>;
    let why = |search: Check<Body>| {
        let failure = search.schedules(2).explore().failure;
        let failure = failure.expect("nothing is cut");
        assert!(!failure.details.contains("besides the world"), "{failure}");
        let schedule = "the schedule that was to be cut, seed 0\n";
        assert!(failure.details.starts_with(schedule), "{failure}");
        failure.why
    };
    let body: Body = |kernel| takes(kernel, false);
    assert_eq!(
        why(check(body).cut("wroker")),
        "the search cuts nothing: no task \"wroker\" makes a call; there are main, worker"
    );
    assert_eq!(
        why(check(body).cut_by_timeout("worker")),
        "the search cuts nothing by timeout: no call of a task \"worker\" is within a timeout or scope"
    );
}

#[test]
fn a_mutation_may_be_killed_by_a_cut() {
    // The flag is set early, so that a worker that is killed later does no harm.
    let body = |kernel: &mut Kernel| {
        kernel.spawn("main", async |os: &mut Os| {
            let done = Flag::new(os).await;
            let theirs = done.clone();
            let worker = os.spawn("worker", async move |os: &mut Os| theirs.set(os).await);
            let worker = worker.await?;
            if os.wait(worker).await? == Exit::Done {
                assert!(done.is_set());
            }
            Ok::<(), Errno>(())
        })?;
        kernel.run()?.check()
    };
    let explored = check(body).exhaustive().cut("worker").mutate().explore();
    assert_eq!(explored.failure, None);
    assert_eq!(explored.mutants.unwrap().killed, 1);
    assert_eq!(explored.cuts.unwrap().len(), 2);
}

// ---- the injections themselves

fn run(inject: Inject, trap: u64, body: impl AsyncFnOnce(&mut Os) + 'static) -> Exit {
    let kernel = Kernel::builder().world(SimWorld::new(0));
    let kernel = kernel.inject_into(Tid::from(1), trap, inject);
    let mut kernel = kernel.build().unwrap();
    let task = kernel.spawn("task", body).unwrap();
    kernel.run().unwrap().exits()[&task].clone()
}

#[test]
fn an_injected_kill_is_before_a_call_or_within_it() {
    for (inject, is_put) in [(Inject::Kill, 0), (Inject::KillIn, 1)] {
        let kernel = Kernel::builder().world(SimWorld::new(0));
        let mut kernel = kernel.inject_into(Tid::from(2), 1, inject).build().unwrap();
        kernel
            .spawn("main", async move |os: &mut Os| {
                let queue = Queue::unbounded(os).await;
                let theirs = queue.clone();
                let put = async move |os: &mut Os| theirs.put(os, 1).await;
                let task = os.spawn("puts", put).await?;
                assert_eq!(os.wait(task).await?, Exit::Killed);
                assert_eq!(queue.len(), is_put);
                Ok::<(), Errno>(())
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
    }
}

#[test]
fn an_injected_cut_is_that_of_the_innermost_timeout_or_scope() {
    for inject in [Inject::Cut, Inject::CutIn] {
        // Two timeouts are armed, then it sleeps.
        let exit = run(inject, 3, async |os: &mut Os| {
            let outer = os.timeout(HOUR, async |os| {
                let inner = os.timeout(HOUR, async |os| os.sleep(HOUR / 2).await).await;
                (inner.is_err(), os.now().await)
            });
            assert_eq!(outer.await, Ok((true, Duration::ZERO)));
        });
        assert_eq!(exit, Exit::Done);
        let exit = run(inject, 2, async |os: &mut Os| {
            let scope = Scope::new();
            let ran = scope.run(os, async |os| os.sleep(HOUR).await).await;
            assert!(ran.is_err() && scope.is_cancelled());
        });
        assert_eq!(exit, Exit::Done);
        // A shield holds it back, and it is due when that is left.
        let exit = run(inject, 3, async |os: &mut Os| {
            let cut = os.timeout(HOUR, async |os| {
                os.shield(async |os| os.sleep(HOUR / 2).await).await;
                os.sleep(HOUR / 4).await;
            });
            assert!(cut.await.is_err());
            assert_eq!(os.now().await, HOUR / 2);
        });
        assert_eq!(exit, Exit::Done);
        // Without a timeout nothing changes.
        let exit = run(inject, 1, async |os: &mut Os| os.sleep(HOUR).await);
        assert_eq!(exit, Exit::Done);
    }
}

/// What was ready before may be ready still, so a second call finds only in its next turn that it has to wait.
#[test]
fn a_call_whose_wait_begins_in_a_later_turn_is_cut_while_it_waits() {
    for yields in [0, 9] {
        let accepts = move |kernel: &mut Kernel| {
            let accept = async move |os: &mut Os| -> io::Result<()> {
                let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
                let _first = listener.accept(os).await?;
                os.spawn("beside", async move |os: &mut Os| {
                    for _ in 0..yields {
                        os.yield_now().await;
                    }
                })
                .await?;
                let second = async |os: &mut Os| listener.accept(os).await;
                let second = os.timeout(HOUR, second).await;
                assert!(second.is_err(), "there is one client");
                Ok(())
            };
            kernel.spawn_on("server", "worker", accept)?;
            kernel.spawn_on("client", "client", async |os: &mut Os| -> io::Result<()> {
                let _held = os.connect(("server", 80)).await?;
                os.sleep(2 * HOUR).await;
                Ok(())
            })?;
            kernel.run()?.check()
        };
        let search = check(accepts).fifo().schedules(3);
        assert_eq!(
            rows(search.cut_by_timeout("worker")),
            [("accept".into(), 2, 0)],
            "{yields}"
        );
    }
}

#[test]
fn a_cut_that_the_search_makes_is_no_effect_of_a_fault_before() {
    let reads = |kernel: &mut Kernel| {
        kernel.spawn_on("server", "worker", async |os: &mut Os| -> io::Result<()> {
            let socket = os.bind_udp(([0, 0, 0, 0], 80).into()).await?;
            let read = async |os: &mut Os| socket.recv_from(os, &mut [0; 1]).await;
            os.timeout(HOUR, read).await.expect("one has come")?;
            Ok(())
        })?;
        kernel.spawn_on("client", "client", async |os: &mut Os| -> io::Result<()> {
            let socket = os.bind_udp(([0, 0, 0, 0], 0).into()).await?;
            os.sleep(Duration::from_secs(1)).await;
            let server = (os.resolve("server").await?[0], 80).into();
            socket.send_to(os, b"q", server).await.map(drop)
        })?;
        kernel.net().fragment(true);
        kernel.run()?.check()
    };
    let search = check(reads).fifo().schedules(3).cut_by_timeout("worker");
    let failure = search
        .explore()
        .failure
        .expect("a cut fails it")
        .to_string();
    let felt = "fault: fragment on before turn 1, felt by no task";
    assert!(failure.contains(felt), "{failure}");
}
