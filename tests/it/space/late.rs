//! A fault behind a wait for the clock: its replay has it there, and not before the wait.

use std::{io, net::Ipv4Addr, time::Duration};

use trapline::{Check, Error, Exit, Kernel, Os, Shared, check};

type Body = fn(&mut Kernel) -> Result<(), Error>;
type Set = fn(Check<Body>) -> Check<Body>;

const STRATEGIES: [(&str, Set); 8] = [
    ("random", |check| check.random()),
    ("pct", |check| check.pct(2)),
    ("surw", |check| check.surw()),
    ("fifo", |check| check.fifo()),
    ("rff", |check| check.rff()),
    ("preemptions", |check| check.preemptions(0)),
    ("exhaustive", |check| check.exhaustive()),
    ("in parts", |check| check.exhaustive().threads(2)),
];

const SEEDS: u64 = 4;

const SECOND: Duration = Duration::from_secs(1);

/// A task that sleeps for a second. It must not die at the end of that.
fn sleeps(kernel: &mut Kernel) -> Result<(), Error> {
    let a = kernel.spawn_on("a", "a", async |os: &mut Os| os.sleep(SECOND).await)?;
    kernel.run_until(&[a])?;
    let (now, exit) = (kernel.now(), kernel.report().exits()[&a].clone());
    assert!(
        now < SECOND || matches!(exit, Exit::Done),
        "{exit} at {now:?}"
    );
    Ok(())
}

/// Both ends of a connection. The end that sends after a second must not be the first to see it break.
fn sends(kernel: &mut Kernel) -> Result<(), Error> {
    let known = Shared::new(false);
    let knows = known.clone();
    kernel.spawn_on("b", "b", async move |os: &mut Os| {
        let listener = os.listen((Ipv4Addr::UNSPECIFIED, 80).into()).await.unwrap();
        if let Ok((stream, _)) = listener.accept(os).await {
            let _ = stream.recv(os, &mut [0; 1]).await;
        }
        knows.update(|known| *known = true);
    })?;
    let a = kernel.spawn_on("a", "a", async move |os: &mut Os| {
        let Ok(stream) = os.connect(("b", 80)).await else {
            return;
        };
        os.sleep(SECOND).await;
        let sent = stream.send_all(os, b"1").await;
        assert!(sent.is_ok() || known.get(), "a is the first to see it");
    })?;
    kernel.run_until(&[a]).map(drop)
}

/// A datagram, and the answer to it. If the one arrives, the other must.
fn answers(kernel: &mut Kernel) -> Result<(), Error> {
    let arrived = Shared::new(false);
    let arrives = arrived.clone();
    kernel.spawn_on("b", "b", async move |os: &mut Os| {
        let socket = os.bind_udp((Ipv4Addr::UNSPECIFIED, 9).into()).await?;
        let (_, from) = socket.recv_from(os, &mut [0; 1]).await?;
        arrives.update(|arrived| *arrived = true);
        socket.send_to(os, b"2", from).await.map(drop)
    })?;
    let a = kernel.spawn_on("a", "a", async move |os: &mut Os| {
        let socket = os.bind_udp((Ipv4Addr::UNSPECIFIED, 9).into()).await?;
        let b = os.resolve("b").await?[0];
        socket.send_to(os, b"1", (b, 9).into()).await?;
        let mut buf = [0; 1];
        let answer = os.timeout(SECOND, async |os| socket.recv_from(os, &mut buf).await);
        assert!(answer.await.is_ok() || !arrived.get(), "no answer");
        io::Result::Ok(())
    })?;
    kernel.run_until(&[a]).map(drop)
}

const CASES: [(Body, &str); 4] = [
    (sleeps, "crash a"),
    (sends, "reset a b"),
    (answers, "hold a b"),
    (answers, "cut a b"),
];

#[test]
fn a_fault_behind_a_wait_is_replayed_behind_it() {
    for (body, fault) in CASES {
        let mut behind = 0;
        for (name, set) in STRATEGIES {
            for seed in (0..SEEDS).map(|seed| 1000 * seed) {
                let search = || check(body).faults(1, [fault]).seed(seed);
                let failure = set(search()).explore().failure;
                let failure = failure.unwrap_or_else(|| panic!("{name}: {fault}"));
                let again = search().replay(&failure.replay).unwrap().explore();
                let why = again.failure.map(|again| again.why);
                assert_eq!(why.as_ref(), Some(&failure.why), "{name}: {failure}");
                assert_eq!(again.changed, None, "{name}: {failure}");
                behind += u64::from(failure.replay.contains("w1=0"));
            }
        }
        assert!(behind > 0, "{fault}");
    }
}

#[test]
fn a_crash_comes_before_each_turn_though_none_touches_the_world() {
    let body = |kernel: &mut Kernel| {
        let told = Shared::new(0);
        for name in ["one", "two"] {
            let tell = told.clone();
            kernel.spawn_on("a", name, async move |os: &mut Os| {
                for _ in 0..2 {
                    tell.update(|told| *told += 1);
                    os.yield_now().await;
                }
            })?;
        }
        kernel.run()?;
        kernel.outcome(told.get().to_string());
        Ok(())
    };
    let search = || check(body).faults(1, ["crash a"]);
    let explored = search().exhaustive().explore();
    assert!(explored.proved, "{explored}");
    let outcomes: Vec<&str> = explored.outcomes.iter().map(String::as_str).collect();
    assert_eq!(outcomes, ["0", "1", "2", "3", "4"]);
    let drawn = search().schedules(2_000).explore();
    assert_eq!(drawn.outcomes, explored.outcomes);
}
