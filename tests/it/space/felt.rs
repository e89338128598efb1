//! Counts of faults: drawn, happened, felt; those that never could happen; and those of chaos that
//! matter to a failure.

use std::{
    collections::BTreeSet,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use trapline::{Error, Kernel, Os, SimNet, check};

/// A server that answers each byte.
fn serve(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn_on("server", "server", async |os: &mut Os| {
        let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
        loop {
            let Ok((stream, _)) = listener.accept(os).await else {
                continue;
            };
            let answers = async move |os: &mut Os| {
                while let Ok(1) = stream.recv(os, &mut [0; 1]).await {
                    let _ = stream.send_all(os, b"!").await;
                }
            };
            os.spawn_detached("answers", answers).await?;
        }
        #[expect(unreachable_code, reason = "it names the type")]
        io::Result::Ok(())
    })?;
    Ok(())
}

/// A client that asks a server on another host, again and again for some seconds.
fn asks(kernel: &mut Kernel, retries: bool) -> Result<(), Error> {
    serve(kernel)?;
    let client = kernel.spawn_on("client", "client", async move |os: &mut Os| {
        let mut left = 10;
        while left > 0 {
            match asked(os, &mut left).await {
                Err(error) if !retries => return Err(error),
                _ => {}
            }
        }
        Ok(())
    })?;
    kernel.run_until(&[client])?;
    match &kernel.report().exits()[&client] {
        trapline::Exit::Failed(why) => panic!("the client gives up: {why}"),
        _ => Ok(()),
    }
}

async fn asked(os: &mut Os, left: &mut u32) -> io::Result<()> {
    let stream = os.connect(("server", 80)).await?;
    while *left > 0 {
        stream.send_all(os, b"?").await?;
        if stream.recv(os, &mut [0; 1]).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *left -= 1;
        os.sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

// ---- counts

#[test]
fn a_report_counts_what_was_drawn_and_happened_and_was_felt() {
    let faults = [
        "recv:error=TimedOut",
        "reset server client",
        "crash nowhere",
    ];
    let body = |kernel: &mut Kernel| asks(kernel, true);
    for strategy in ["random", "fifo", "pct:2"] {
        let search = check(body)
            .strategy(strategy.parse().unwrap())
            .schedules(60);
        let explored = search.faults(2, faults).explore();
        assert_eq!(explored.failure, None, "{strategy}");
        assert_eq!(explored.faults.len(), 3);
        let [call, reset, nowhere] = faults.map(|fault| explored.faults[fault]);
        assert!(call.drawn > 0 && call.drawn == call.applied && call.felt == call.drawn);
        assert!(
            reset.applied > 0 && reset.drawn == reset.applied,
            "{reset:?}"
        );
        assert!((1..=reset.applied).contains(&reset.felt), "{reset:?}");
        assert!(nowhere.drawn > 0 && nowhere.applied == 0 && nowhere.felt == 0);
        let line = format!(
            "\nfault recv:error=TimedOut: drawn {0} times, happened {0}, felt {0}\n",
            call.drawn
        );
        assert!(explored.to_string().contains(&line), "{explored}");
    }
    let threads = |count| {
        let search = check(body).schedules(60).threads(count);
        search.faults(2, faults).explore().faults
    };
    assert_eq!(threads(1), threads(2));
}

#[test]
fn a_search_without_faults_counts_none() {
    let explored = check(|kernel| asks(kernel, false)).schedules(3).explore();
    assert!(explored.faults.is_empty() && explored.idle.is_empty());
    assert_eq!(explored.to_string(), "3 schedules pass");
}

/// A call that fails on another host, or by an injection, is no effect of a reset of these two.
#[test]
fn a_fault_is_felt_on_its_hosts_and_by_its_own_effect() {
    let body = |kernel: &mut Kernel| {
        for host in ["server", "client", "other"] {
            kernel.net().host(host)?;
        }
        let fails = async |os: &mut Os| {
            for _ in 0..10 {
                // Refused, or reset before that.
                assert!(os.connect(("server", 9)).await.is_err());
                os.sleep(Duration::from_secs(1)).await;
            }
        };
        kernel.spawn_on("other", "fails", fails)?;
        let listens = async |os: &mut Os| {
            for _ in 0..10 {
                let _ = os.listen(([0, 0, 0, 0], 0).into()).await;
                os.sleep(Duration::from_secs(1)).await;
            }
        };
        kernel.spawn_on("client", "listens", listens)?;
        kernel.run()?.check()
    };
    let faults = [
        "reset server client",
        "listen:error=AddrInUse",
        "reset other server",
    ];
    let explored = check(body).schedules(60).faults(2, faults).explore();
    assert_eq!(explored.failure, None);
    let [reset, listen, other] = faults.map(|fault| explored.faults[fault]);
    assert!(reset.applied > 0 && reset.felt == 0, "{reset:?}");
    assert!(listen.felt > 0 && listen.felt == listen.drawn, "{listen:?}");
    assert!(other.felt > 0, "{other:?}");
}

// ---- faults that never could happen

#[test]
fn a_fault_that_never_could_happen_fails_the_test_and_says_why() {
    let body = |kernel: &mut Kernel| asks(kernel, true);
    for (fault, why) in [
        (
            "send_to:error=TimedOut",
            "no task makes the call send_to in any schedule: leave it out, or name a call of the test",
        ),
        ("cut server clint", "clint"),
        (
            "reset server server",
            "a link has two hosts: name two that differ",
        ),
        (
            "cut localhost localhost",
            "a link has two hosts: name two that differ",
        ),
        ("crash nowhere", "nowhere"),
        ("disk:full nowhere", "nowhere"),
    ] {
        for exhaustive in [false, true] {
            let search = || match exhaustive {
                false => check(body).schedules(20),
                true => check(body).preemptions(0).schedules(20),
            };
            let explored = search().faults(1, [fault, "recv:error=TimedOut"]).explore();
            assert_eq!(explored.failure, None);
            assert_eq!(explored.idle.len(), 1, "{:?}", explored.idle);
            let idle = &explored.idle[fault];
            assert!(idle.contains(why), "{idle}");
            let begin = format!("the fault {fault:?} never could happen: ");
            assert!(
                explored.to_string().contains(&(begin.clone() + idle)),
                "{explored}"
            );
            let run = || search().faults(1, [fault]).run();
            let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            let panic = panic.downcast_ref::<String>().unwrap();
            assert!(panic.contains(&begin), "{panic}");
        }
    }
}

/// A schedule may be too short for a fault to be drawn. That is no reason to complain.
#[test]
fn a_fault_that_was_not_drawn_could_happen() {
    let faults = [
        "reset server client",
        "recv:error=TimedOut",
        "slow client 10",
    ];
    let search = check(|kernel| asks(kernel, true)).fifo().schedules(1);
    search.faults(1, faults).run();
}

// ---- chaos

#[test]
fn chaos_has_half_of_its_kinds_in_each_schedule() {
    let body = |kernel: &mut Kernel| {
        kernel.on_restart("server", |kernel| serve(kernel).expect("it is up"))?;
        asks(kernel, true)
    };
    let mut all = BTreeSet::new();
    for seed in 0..12 {
        let search = check(body).seed(seed).schedules(1).chaos(3);
        let kinds: BTreeSet<String> = search.explore().faults.into_keys().collect();
        assert!(kinds.len() <= 4, "{kinds:?}");
        all.extend(kinds);
    }
    let hosts = ["crash", "cut", "cut-one-way", "reset", "slow"];
    assert!(
        all.iter().eq(&hosts.map(|kind| format!("chaos {kind}"))),
        "{all:?}"
    );
}

#[test]
fn a_failure_under_chaos_names_the_faults_that_matter() {
    let body = |kernel: &mut Kernel| asks(kernel, false);
    for set in [false, true] {
        // Chaos of the network itself is the same.
        let search = || match set {
            true => check(body).chaos(3),
            false => check(body).net(|| SimNet::new().chaos(3)),
        };
        let failure = search().explore().failure.expect("a connection breaks");
        let decisions = failure.replay.split('.').nth(1).unwrap();
        let kept: Vec<&str> = decisions
            .split('-')
            .filter(|it| it.starts_with('k'))
            .collect();
        assert!((2..=3).contains(&kept.len()), "{}", failure.replay);
        assert!(
            (1..=4).contains(&failure.faults.len()),
            "{:?}",
            failure.faults
        );
        assert!(
            failure
                .faults
                .iter()
                .any(|fault| fault.contains(", felt by ")),
            "{:?}",
            failure.faults
        );
        let again = search().replay(&failure.replay).unwrap().explore();
        assert_eq!(again.changed, None);
        assert_eq!(again.failure.unwrap().why, failure.why);
        // Without one of them it passes.
        for out in &kept[1..] {
            let left = kept.iter().filter(|it| it != &out).copied();
            let left: Vec<&str> = left.collect();
            let seed = failure.replay.split('.').next().unwrap();
            let replay = format!("{seed}.{}.00000000", left.join("-"));
            let without = search().replay(&replay).unwrap().explore();
            assert_eq!(without.failure, None, "{replay}");
        }
    }
}
