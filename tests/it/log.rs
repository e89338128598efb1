//! S51 and S52: the event log, and those who observe it.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    io,
    net::SocketAddr,
    os::unix::net::UnixStream,
    panic::panic_any,
    sync::{Arc, Mutex},
    time::Duration,
};

use tracing::{
    Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};
use trapline::{
    Errno, Error, Event, Exit, Fact, Happening, Kernel, Os, Promise, SimWorld, World, forward_world,
};

use crate::{support::*, worlds::Slow};

const SECOND: Duration = Duration::from_secs(1);

/// A bit of everything that needs no device.
pub(crate) async fn everything(os: &mut Os) -> Result<(), Errno> {
    let number = os.random().await;
    writeln!(os, "drew {number}");
    let sleeper = os
        .spawn("sleeper", async |os| os.sleep(SECOND).await)
        .await?;
    let failing = os.spawn("failing", async |_| Err("a reason")).await?;
    let faulty = os.spawn("faulty", async |_| panic!("a \"quote\"")).await?;
    os.spawn_detached("victim", spin).await?;
    os.kill(tid(5)).await;
    os.kill(tid(5)).await;
    for child in [failing, faulty, sleeper, sleeper] {
        let _ = os.wait(child).await;
    }
    os.sleep_until(2 * SECOND).await;
    os.now().await;
    os.tasks().await;
    os.yield_now().await;
    os.exit(Exit::Failed("enough".into())).await
}

/// Many tasks that decide by random numbers what they do.
pub(crate) async fn chaos(os: &mut Os) -> Result<(), Errno> {
    for _ in 0..20 {
        os.spawn("random", async |os| {
            for _ in 0..20 {
                match os.random().await % 5 {
                    0 => os.yield_now().await,
                    1 => {
                        let span = os.random().await % 1000;
                        os.sleep(Duration::from_micros(span)).await;
                    }
                    2 => {
                        let victim = os.random().await % 100;
                        os.kill(tid(victim)).await;
                    }
                    3 => {
                        let number = os.random().await;
                        writeln!(os, "{number}");
                    }
                    _ => drop(
                        os.spawn_detached("grandchild", async |os| passes(os, 2).await)
                            .await,
                    ),
                }
            }
        })
        .await?;
    }
    os.sleep(SECOND).await;
    Ok(())
}

fn log_of<T: trapline::IntoExit>(
    seed: u64,
    program: impl AsyncFnOnce(&mut Os) -> T + 'static,
) -> String {
    let (mut kernel, log) = logged(Kernel::builder().world(SimWorld::new(seed)));
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap();
    log.lines().join("\n")
}

// ---- S51

#[test]
fn s51_the_log_is_the_same_on_every_machine() {
    let expected = include_str!("everything.log");
    assert_eq!(log_of(7, everything), expected.trim_end());
}

#[test]
fn s51_two_kernels_with_one_seed_write_the_same_log_byte_for_byte() {
    let log = log_of(11, chaos);
    assert_eq!(log, log_of(11, chaos));
    assert!(log.lines().count() > 1000);
    assert_ne!(log, log_of(12, chaos), "another seed, another run");
}

#[test]
fn s51_two_processes_write_the_same_log() {
    let test = "log::s51_two_processes_write_the_same_log";
    let printed = alone(test, || println!("<{}>", log_of(13, chaos)));
    if !printed.is_empty() {
        let log = printed
            .split(['<', '>'])
            .nth(1)
            .expect("the child prints a log");
        assert_eq!(log, log_of(13, chaos));
    }
}

#[test]
fn s51_stepping_and_looking_on_change_nothing() {
    let (mut kernel, log) = logged(
        Kernel::builder()
            .world(SimWorld::new(11))
            .tracer(|_: &Event<'_>| {}),
    );
    kernel.spawn("main", chaos).unwrap();
    while kernel.step().unwrap() != trapline::Step::Finished {
        kernel.tasks().count();
        kernel.audit();
    }
    assert_eq!(log.lines().join("\n"), log_of(11, chaos));
}

#[test]
fn s51_a_seed_of_the_builder_is_the_worlds() {
    let draw = async |os: &mut Os| {
        let number = os.random().await;
        writeln!(os, "{number}");
    };
    let drawn = |mut kernel: Kernel| {
        run_main(&mut kernel, draw);
        (kernel.seed(), kernel.take_console())
    };
    let five = drawn(Kernel::simulated(5));
    assert_eq!(five, drawn(sim().seed(5).build().unwrap()));
    assert_ne!(five.1, drawn(Kernel::simulated(6)).1);
    let real = |seed| {
        let mut kernel = Kernel::builder().seed(seed).build().unwrap();
        let diary = Diary::default();
        let notes = diary.clone();
        run_main(&mut kernel, async move |os: &mut Os| {
            notes.note(os.random().await.to_string());
        });
        diary.text() + "\n"
    };
    assert_eq!(five.1, real(5), "the real world draws the same numbers");
}

// ---- S52

#[test]
fn s52_a_tracer_that_panics_is_switched_off_with_a_warning_and_the_kernel_goes_on() {
    let faulty = |diary: &Diary| {
        let notes = diary.clone();
        move |_: &Event<'_>| {
            notes.note("called");
            assert!(notes.lines().len() < 3, "no more");
        }
    };
    let warnings = Warnings::default();
    let [alone, beside] = [Diary::default(), Diary::default()];
    warnings.during(|| {
        let mut kernel = sim().tracer(faulty(&alone)).build().unwrap();
        run_main(&mut kernel, async |os: &mut Os| passes(os, 5).await);
        let (mut kernel, log) = logged(sim().tracer(faulty(&beside)));
        run_main(&mut kernel, async |os: &mut Os| passes(os, 5).await);
        assert_eq!(
            about(&log, 1).last().unwrap(),
            "reaped",
            "the others see everything"
        );
    });
    for diary in [alone, beside] {
        assert_eq!(diary.lines().len(), 3, "it is called no more");
    }
    let expected = ["a tracer panicked and is switched off: no more"; 2];
    assert_eq!(warnings.lines(), expected);
}

#[test]
fn s52_a_tracer_may_panic_with_anything_and_when_it_is_dropped() {
    struct Bad;
    impl trapline::Tracer for Bad {
        fn event(&mut self, _: &Event<'_>) {
            panic_any(PanicOnDrop)
        }
    }
    let mut kernel = sim().tracer(Bad).tracer(Bad).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| passes(os, 5).await);
}

#[test]
fn s52_a_tracer_whose_destructor_panics_does_not_end_the_kernel() {
    struct Bad(PanicOnDrop);
    impl trapline::Tracer for Bad {
        fn event(&mut self, _: &Event<'_>) {
            let _for_its_destructor = &self.0;
            panic!("at the first event")
        }
    }
    let (mut kernel, log) = logged(sim().tracer(Bad(PanicOnDrop)));
    run_main(&mut kernel, async |os: &mut Os| passes(os, 5).await);
    assert_eq!(about(&log, 1).last().unwrap(), "reaped");
}

#[test]
fn s52_tracers_whose_destructors_panic_do_not_unwind_the_end_of_a_kernel() {
    struct Bad(PanicOnDrop);
    impl trapline::Tracer for Bad {
        fn event(&mut self, _: &Event<'_>) {}
    }
    let builder = sim().tracer(Bad(PanicOnDrop)).tracer(Bad(PanicOnDrop));
    let mut kernel = builder.build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| os.yield_now().await);
    drop(kernel);
    drop(sim().tracer(Bad(PanicOnDrop)));
}

#[test]
fn s52_a_tracer_that_panics_when_it_is_asked_about_the_clock_is_switched_off() {
    struct Bad(PanicOnDrop);
    impl trapline::Tracer for Bad {
        fn event(&mut self, _: &Event<'_>) {
            unreachable!("{:p} is switched off", &self.0)
        }

        fn is_exact(&self) -> bool {
            panic!("no more")
        }
    }
    let warnings = Warnings::default();
    warnings.during(|| {
        let (mut kernel, log) = logged(sim().tracer(Bad(PanicOnDrop)));
        run_main(&mut kernel, async |os: &mut Os| {
            let _observer = os.observe(Bad(PanicOnDrop));
            passes(os, 5).await;
        });
        assert_eq!(about(&log, 1).last().unwrap(), "reaped");
    });
    let off = "a tracer panicked and is switched off: no more";
    let lines = warnings.lines();
    assert_eq!(lines.iter().filter(|line| *line == off).count(), 2);
}

// ---- what tracing is told

#[test]
fn bad_ends_and_bad_destructors_are_warnings() {
    let warnings = Warnings::default();
    let mut line = 0;
    warnings.during(|| {
        let mut kernel = Kernel::simulated(0);
        kernel.spawn("fine", async |_| {}).unwrap();
        kernel.spawn("failing", async |_| Err("why")).unwrap();
        kernel.spawn("faulty", async |_| panic!("ouch")).unwrap();
        line = line!() - 1;
        kernel
            .spawn("killer", async |os| {
                os.kill(tid(5)).await.then_some(()).ok_or("who")
            })
            .unwrap();
        kernel
            .spawn("killed", async |os| {
                let _bad = PanicOnDrop;
                spin(os).await;
            })
            .unwrap();
        kernel.step().unwrap();
        kernel.run().unwrap();
    });
    // The chain of functions follows where RUST_BACKTRACE is set.
    let faulted = format!("task 3 \"faulty\" faulted: ouch, at {}:{line}", file!());
    let are_expected = |lines: &[String], more: &[&str]| {
        assert_eq!(lines[0], "task 2 \"failing\" failed: why");
        assert!(lines[1].starts_with(&faulted), "{lines:?}");
        assert_eq!(lines[2..], *more);
    };
    // The killed task never ran, so its destructor has nothing to drop: no third warning.
    are_expected(&warnings.lines(), &[]);
    warnings.during(|| {
        let mut kernel = Kernel::simulated(0);
        let bad = PanicOnDrop;
        kernel
            .spawn("owner", async move |os| {
                let _bad = bad;
                spin(os).await;
            })
            .unwrap();
    });
    let third = "a destructor panicked: the destructor panics";
    are_expected(&warnings.lines(), &[third]);
}

/// A simulated world in which other threads take as long as the kernel has patience.
struct Patient(SimWorld);

impl World for Patient {
    forward_world!(0: now, random, reseed, seed, print, remote, wait);

    fn wait_for_threads(
        &mut self,
        _: Option<Duration>,
        patience: Duration,
        _: &mut Vec<Happening>,
    ) -> io::Result<Duration> {
        Ok(patience)
    }
}

#[test]
fn a_wait_for_threads_alone_is_a_warning_once_and_an_error_at_its_limit() {
    let warnings = Warnings::default();
    warnings.during(|| {
        let builder = Kernel::builder().world(Patient(SimWorld::new(1)));
        let mut kernel = builder.max_stall(Duration::from_secs(25)).build().unwrap();
        kernel
            .spawn("main", async |os: &mut Os| {
                let (setter, promise) = Promise::<u32>::new(os).await;
                std::mem::forget(setter.remote());
                let _ = promise.wait(os).await;
            })
            .unwrap();
        match kernel.run() {
            Err(Error::Stalled(stalled)) => {
                assert_eq!(stalled.waited, Duration::from_secs(25));
            }
            other => panic!("no stall: {other:?}"),
        }
    });
    let expected = "stalled: no task is ready, and only other threads could make one ready, for 10s
  remote setters alive: 1; one that is leaked keeps the run for ever
  tid 1 \"main\" waits for promise 1, since 00:00.000";
    let [warning] = &warnings.lines()[..] else {
        panic!("there is one warning");
    };
    assert_eq!(unplaced(warning), expected);
}

/// Runs tasks that have so many turns each, beside a sleeper or not, and returns the warnings.
fn warned_of(turns: &'static [u32], sleeps: bool) -> Vec<String> {
    let warnings = Warnings::default();
    warnings.during(|| {
        let mut kernel = Kernel::simulated(1);
        for turns in turns {
            let spin = async |os: &mut Os| {
                os.sleep(Duration::from_secs(1)).await;
                for _ in 0..*turns {
                    os.yield_now().await;
                }
            };
            kernel.spawn("spin", spin).unwrap();
        }
        if sleeps {
            let sleep = async |os: &mut Os| os.sleep(Duration::from_secs(9)).await;
            kernel.spawn("sleeper", sleep).unwrap();
        }
        kernel.run().unwrap();
    });
    warnings.lines()
}

#[test]
fn s87_a_million_turns_at_one_instant_beside_a_timer_are_a_warning_once() {
    let expected = "task 1 \"spin\" has had a million turns at 00:01.000: the virtual clock stops \
                    while a task is ready, and other tasks wait for the clock";
    assert_eq!(warned_of(&[3_100_000], true), [expected]);
    assert_eq!(warned_of(&[1_001_000, 10], true), [expected]);
    // No task waits for the clock, or no task has so many turns.
    assert_eq!(warned_of(&[1_500_000], false), [""; 0]);
    assert_eq!(warned_of(&[900_000; 3], true), [""; 0]);
}

#[test]
fn s87_turns_at_several_instants_are_no_warning() {
    let warnings = Warnings::default();
    warnings.during(|| {
        let mut kernel = Kernel::simulated(1);
        let spin = async |os: &mut Os| {
            for _ in 0..6 {
                for _ in 0..500_000 {
                    os.yield_now().await;
                }
                os.sleep(Duration::from_nanos(1)).await;
            }
        };
        kernel.spawn("spin", spin).unwrap();
        let sleep = async |os: &mut Os| os.sleep(Duration::from_secs(9)).await;
        kernel.spawn("sleeper", sleep).unwrap();
        kernel.run().unwrap();
    });
    assert_eq!(warnings.lines(), [""; 0]);
}

/// A subscriber that keeps the messages of warnings.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Collects what this thread is warned of meanwhile.
    pub(crate) fn during(&self, run: impl FnOnce()) {
        // With one subscriber alone, tracing lets the first thread that comes to an event decide for
        // all threads whether anybody wants it.
        let _second = tracing::Dispatch::new(Self::default());
        tracing::subscriber::with_default(self.clone(), run);
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        assert!(event.metadata().target().starts_with("trapline::"));
        event.record(&mut Message(&self.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Message<'a>(&'a Mutex<Vec<String>>);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

#[test]
fn a_task_cannot_detach_the_tracers_of_the_host() {
    let (mut kernel, log) = logged(sim());
    let program = async |os: &mut Os| {
        os.trap(trapline::SystemCall::Unobserve(0)).await;
        os.get_tid().await;
    };
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap();
    assert!(log.text().contains("get_tid"), "{}", log.text());
}

// ---- times

/// What the test below reads of the log: for each task, when its turn began; for each call, how long
/// it took up to its answer or its block.
#[derive(Default)]
struct Charged {
    now: Duration,
    begun: BTreeMap<u64, Duration>,
    trapped: BTreeMap<u64, (&'static str, Duration)>,
    /// By the name of the call.
    took: BTreeMap<&'static str, Vec<Duration>>,
    /// How long tasks ran.
    ran: Duration,
}

impl Charged {
    fn event(&mut self, event: &Event<'_>) {
        let tid = u64::from(event.tid);
        assert!(event.at >= self.now, "time goes back at {event:?}");
        self.now = event.at;
        match event.fact {
            Fact::Resumed => drop(self.begun.insert(tid, event.at)),
            Fact::Trapped { call, .. } => {
                self.ran += event.at - self.begun[&tid];
                self.trapped.insert(tid, (call.name(), event.at));
            }
            Fact::Exited { .. } => self.ran += event.at - self.begun[&tid],
            Fact::Replied { .. } | Fact::Blocked { .. } => {
                if let Some((name, at)) = self.trapped.remove(&tid) {
                    self.took.entry(name).or_default().push(event.at - at);
                }
            }
            _ => {}
        }
    }
}

/// Makes each call that asks the world for something, or that takes time otherwise.
async fn each_slow_call(os: &mut Os) -> io::Result<()> {
    let addr = SocketAddr::from(([127, 0, 0, 1], 80));
    let (source, _peer) = UnixStream::pair()?;
    os.attach(source).await?.close(os).await.unwrap();
    os.resolve("peer").await?;
    os.run_blocking(|| ()).await.unwrap();
    let listener = os.listen(addr).await?;
    let stream = os.connect(addr).await?;
    let (peer, _) = listener.accept(os).await?;
    stream.send_all(os, b"a").await?;
    peer.recv(os, &mut [0]).await?;
    stream.shutdown_write(os).await?;
    for device in [stream, peer] {
        device.close(os).await.unwrap();
    }
    listener.close(os).await.unwrap();
    Ok(())
}

#[test]
fn the_time_of_a_call_is_charged_to_the_task_that_makes_it() {
    let charged = Arc::new(Mutex::new(Charged::default()));
    let shared = Arc::clone(&charged);
    let builder = Kernel::builder().world(Slow::new());
    let tracer = move |event: &Event<'_>| shared.lock().unwrap().event(event);
    let mut kernel = builder.tracer(tracer).build().unwrap();
    kernel.spawn("caller", each_slow_call).unwrap();
    kernel
        .spawn("bystander", async |os: &mut Os| passes(os, 100).await)
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    let charged = charged.lock().unwrap();
    assert_eq!(charged.ran, Duration::ZERO, "no program takes time here");
    let calls = [
        "attach",
        "close",
        "resolve",
        "submit",
        "listen",
        "connect",
        "write_wait",
        "connected",
        "accept",
        "send",
        "recv",
        "shutdown_write",
    ];
    for call in calls {
        let took = charged.took.get(call).unwrap_or_else(|| panic!("{call}"));
        assert!(
            took.iter().all(|took| *took >= Slow::COST),
            "{call}: {took:?}"
        );
    }
}
