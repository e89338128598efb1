//! S28 and S29: who runs when, and how often the world is looked at.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    rc::Rc,
    time::Duration,
};

use trapline::{
    Cause, DeviceId, Direction, Errno, Error, Event, Exit, Fact, Fifo, Kernel, Os, Policy,
    Runnable, SimWorld, Step,
};

use crate::{
    support::*,
    worlds::{Bells, Counted},
};

// ---- S28

#[test]
fn s28_a_pass_resumes_the_tasks_that_were_ready_at_its_start() {
    let (mut kernel, _) = logged(sim());
    let main = kernel
        .spawn("main", async |os| {
            os.sleep(Duration::from_secs(1)).await;
            // In one turn each: a new task, and one that is woken by an end.
            os.spawn_detached("new", async |os| writeln!(os, "new"))
                .await?;
            writeln!(os, "main");
            Ok::<(), Errno>(())
        })
        .unwrap();
    kernel
        .spawn("waiter", async move |os| {
            os.wait(main).await?;
            writeln!(os, "waiter");
            Ok::<(), Errno>(())
        })
        .unwrap();
    for _ in 0..2 {
        kernel
            .spawn("steady", async |os| {
                os.sleep(Duration::from_secs(1)).await;
                for turn in 0..3 {
                    let me = os.get_tid().await;
                    writeln!(os, "steady {me} turn {turn}");
                }
            })
            .unwrap();
    }
    kernel.run().unwrap();
    assert_eq!(
        kernel.take_console(),
        "new\nmain\n\
         steady 3 turn 0\nsteady 4 turn 0\nwaiter\n\
         steady 3 turn 1\nsteady 4 turn 1\n\
         steady 3 turn 2\nsteady 4 turn 2\n"
    );
}

#[test]
fn s28_a_task_that_spawns_without_end_does_not_hold_up_those_who_are_ready() {
    let mut kernel = sim().max_tasks(1000).build().unwrap();
    kernel
        .spawn("breeder", async |os| {
            while os.spawn_detached("young", spin).await.is_ok() {}
            os.shutdown().await
        })
        .unwrap();
    let turns = Rc::new(Cell::new(0));
    let counter = Rc::clone(&turns);
    kernel
        .spawn("steady", async move |os| {
            loop {
                counter.set(counter.get() + 1);
                os.yield_now().await;
            }
        })
        .unwrap();
    kernel.run().unwrap();
    assert_eq!(turns.get(), 999);
}

// ---- S29

/// Counts resumes, and keeps how many there were at a time.
fn ticks() -> (Rc<Cell<u64>>, impl FnMut(&Event<'_>)) {
    let ticks = Rc::new(Cell::new(0));
    let counter = Rc::clone(&ticks);
    let tracer = move |event: &Event<'_>| {
        if let Fact::Resumed = event.fact {
            counter.set(counter.get() + 1);
        }
    };
    (ticks, tracer)
}

#[test]
fn s29_a_device_is_served_after_256_resumes_at_most_where_passes_are_short() {
    let (world, ringing) = Bells::new();
    let (ticks, tracer) = ticks();
    let mut kernel = Kernel::builder()
        .world(world)
        .tracer(tracer)
        .build()
        .unwrap();
    let (rung, late) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (then, answer, now) = (Rc::clone(&rung), Rc::clone(&late), Rc::clone(&ticks));
    kernel
        .spawn("waiter", async move |os| {
            let file = File::open("/dev/null").unwrap();
            let device = os.attach(file).await.unwrap();
            for _ in 0..256 {
                os.read_wait(&device).await.unwrap();
                answer.set(answer.get().max(now.get() - then.get()));
            }
            os.shutdown().await
        })
        .unwrap();
    kernel
        .spawn("ringer", async move |os| {
            for pause in 0.. {
                passes(os, pause).await;
                rung.set(ticks.get());
                ringing
                    .borrow_mut()
                    .push((DeviceId::from_raw(1), Direction::Read));
                passes(os, 256).await;
            }
        })
        .unwrap();
    kernel.spawn("spinner", spin).unwrap();
    kernel.run().unwrap();
    // 256 resumes before the poll at the most, and its own.
    assert_eq!(late.get(), 257);
}

#[test]
fn s29_the_world_is_looked_at_after_every_pass_where_passes_are_long() {
    const TASKS: u64 = 1000;
    const PASSES: u64 = 20;
    let (bells, _) = Bells::new();
    let (world, looks) = Counted::new(bells);
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    kernel
        .spawn("waiter", async |os| {
            let device = os.attach(File::open("/dev/null")?).await?;
            os.read_wait(&device).await.map_err(std::io::Error::from)
        })
        .unwrap();
    for _ in 0..TASKS {
        kernel.spawn("spinner", spin).unwrap();
    }
    for _ in 0..TASKS * PASSES {
        assert!(matches!(kernel.step(), Ok(Step::Ran(_))));
    }
    let looks = u64::from(looks.get());
    assert_eq!(looks, PASSES);
}

#[test]
fn s29_ready_tasks_do_not_starve_timers() {
    let report = real(async |os| {
        let mut spinners = Vec::new();
        for _ in 0..10 {
            spinners.push(os.spawn("spinner", spin).await?);
        }
        os.sleep(Duration::from_millis(5)).await;
        for spinner in spinners {
            os.kill(spinner).await;
        }
        Ok::<(), Errno>(())
    });
    assert!(report.ticks > 300, "they did spin: {} ticks", report.ticks);
}

#[test]
fn s29_ready_tasks_do_not_starve_interrupts() {
    let mut kernel = Kernel::simulated(0);
    let turns = Rc::new(Cell::new(0));
    let (counter, remote) = (Rc::clone(&turns), kernel.remote());
    kernel
        .spawn("spinner", async move |os| {
            remote.shutdown();
            loop {
                counter.set(counter.get() + 1);
                os.yield_now().await;
            }
        })
        .unwrap();
    kernel.run().unwrap();
    assert_eq!(turns.get(), 256);
}

#[test]
fn s29_tasks_that_hold_the_turn_for_a_long_quantum_starve_nobody() {
    let mut kernel = sim().quantum(u32::MAX).build().unwrap();
    let remote = kernel.remote();
    kernel
        .spawn("greedy", async move |os| {
            remote.shutdown();
            loop {
                os.get_tid().await;
            }
        })
        .unwrap();
    assert_eq!(kernel.run().unwrap().ticks, 256);
}

// ---- turns and policies

#[test]
fn a_quantum_is_so_many_ticks_or_until_a_yield() {
    let mut kernel = sim().quantum(3).build().unwrap();
    for name in ["a", "b"] {
        kernel
            .spawn(name, async move |os| {
                for turn in 0..5 {
                    write!(os, "{name}{turn} ");
                    if turn == 3 {
                        os.yield_now().await;
                    } else {
                        os.get_tid().await;
                    }
                }
            })
            .unwrap();
    }
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "a0 a1 a2 b0 b1 b2 a3 b3 a4 b4 ");
}

/// First in, first out, with a note of what it is told.
struct Recorder(Vec<Runnable>, Rc<RefCell<Vec<(u64, Cause)>>>);

impl Policy for Recorder {
    fn push(&mut self, task: Runnable, cause: Cause) {
        self.1.borrow_mut().push((task.tid.into(), cause));
        self.0.push(task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    fn remove(&mut self, task: Runnable) {
        self.0.retain(|other| *other != task);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[test]
fn a_policy_is_told_why_a_task_is_ready() {
    let causes = Rc::new(RefCell::new(Vec::new()));
    let policy = Recorder(Vec::new(), Rc::clone(&causes));
    let mut kernel = sim().quantum(2).policy(policy).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        os.yield_now().await;
        os.sleep(Duration::ZERO).await;
        os.get_tid().await;
        os.get_tid().await;
        os.sleep(Duration::from_secs(1)).await;
        let child = os.spawn("child", async |_| {}).await?;
        os.wait(child).await?;
        Ok::<(), Errno>(())
    });
    let expected = [
        (1, Cause::Spawned),
        (1, Cause::Yielded),
        (1, Cause::Yielded),
        (1, Cause::Preempted),
        (1, Cause::Woken), // by its timer
        (2, Cause::Spawned),
        (1, Cause::Woken), // by the child's end
    ];
    assert_eq!(*causes.borrow(), expected);
}

#[test]
fn a_policy_decides_who_runs() {
    let mut kernel = Kernel::builder()
        .world(SimWorld::new(1))
        .policy(Youngest::default())
        .build()
        .unwrap();
    for _ in 0..3 {
        kernel
            .spawn("task", async |os| {
                for _ in 0..2 {
                    let me = os.get_tid().await;
                    write!(os, "{me} ");
                }
            })
            .unwrap();
    }
    let exits: Vec<_> = kernel.run().unwrap().exits().values().cloned().collect();
    assert_eq!(exits, [Exit::Done, Exit::Done, Exit::Done]);
    assert_eq!(kernel.take_console(), "3 3 2 2 1 1 ");
}

// ---- policies that fail

/// First in, first out, until it goes wrong in its way.
#[derive(Default)]
struct Wrong {
    fifo: Fifo,
    /// The method that panics, after so many calls of it.
    panics: Option<(&'static str, Cell<u32>)>,
    /// What its `len` is said to be.
    len: Option<usize>,
    withholds: bool,
    /// Whether it gives the first task again and again.
    repeats: bool,
    first: Option<Runnable>,
}

impl Wrong {
    fn panics_in(method: &'static str, after: u32) -> Self {
        let panics = Some((method, Cell::new(after)));
        Self {
            panics,
            ..Self::default()
        }
    }

    fn called(&self, method: &str) {
        if let Some((culprit, left)) = &self.panics
            && *culprit == method
        {
            assert!(left.get() > 0, "out of order");
            left.set(left.get() - 1);
        }
    }
}

impl Policy for Wrong {
    fn push(&mut self, task: Runnable, cause: Cause) {
        self.called("push");
        self.fifo.push(task, cause);
    }

    fn pop(&mut self) -> Option<Runnable> {
        self.called("pop");
        if self.withholds {
            return None;
        }
        if self.repeats && self.first.is_some() {
            return self.first;
        }
        self.first = self.fifo.pop();
        self.first
    }

    fn remove(&mut self, task: Runnable) {
        self.called("remove");
        self.fifo.remove(task);
    }

    fn len(&self) -> usize {
        self.called("len");
        self.len.unwrap_or_else(|| self.fifo.len())
    }
}

/// Spawns, kills, blocks and wakes.
async fn busy(os: &mut Os) -> Result<(), Errno> {
    for _ in 0..5 {
        let sleeper = async |os: &mut Os| os.sleep(Duration::from_secs(1)).await;
        let child = os.spawn("sleeper", sleeper).await?;
        let victim = os.spawn_detached("victim", spin).await?;
        passes(os, 3).await;
        assert!(os.kill(victim).await);
        assert_eq!(os.wait(child).await?, Exit::Done);
    }
    writeln!(os, "through");
    Ok(())
}

/// Runs a kernel with such a policy until it has failed, and then to its end.
fn fail(policy: Wrong) -> String {
    let mut kernel = sim().policy(policy).build().unwrap();
    let main = kernel.spawn("busy", busy).unwrap();
    let why = match kernel.run() {
        Err(Error::Policy(why)) => why,
        other => panic!("not a failure of the policy: {other:?}"),
    };
    // First in, first out, and no task is lost.
    assert_eq!(kernel.run().unwrap().exits()[&main], Exit::Done, "{why}");
    kernel.audit();
    assert_eq!(kernel.take_console(), "through\n");
    why
}

#[test]
fn a_policy_that_panics_ends_the_run_with_an_error_that_names_it() {
    for (method, times) in [("push", 7), ("pop", 9), ("remove", 2), ("len", 2)] {
        for after in 0..times {
            let why = fail(Wrong::panics_in(method, after));
            assert!(why.starts_with("the policy it::fairness::Wrong "), "{why}");
            let what = format!("panicked in `{method}`: out of order");
            assert!(why.ends_with(&what), "{why}");
        }
    }
}

#[test]
fn a_policy_that_lies_ends_the_run_with_an_error() {
    let withholds = Wrong {
        withholds: true,
        ..Wrong::default()
    };
    let overstates = "gives no task, though its `len` counts some";
    assert!(fail(withholds).ends_with(overstates));
    let silent = Wrong {
        withholds: true,
        len: Some(0),
        ..Wrong::default()
    };
    assert!(fail(silent).ends_with("withholds a task that is ready"));
    let repeats = Wrong {
        repeats: true,
        ..Wrong::default()
    };
    assert!(fail(repeats).ends_with("gives more tasks than it was handed"));
}

#[test]
fn s29_a_len_that_understates_does_not_let_the_kernel_wait_while_a_task_is_ready() {
    let policy = Wrong {
        len: Some(0),
        ..Wrong::default()
    };
    let mut kernel = sim().policy(policy).build().unwrap();
    let sleeper = async |os: &mut Os| os.sleep(Duration::from_secs(60)).await;
    kernel.spawn("sleeper", sleeper).unwrap();
    kernel.spawn("spinner", spin).unwrap();
    match kernel.run() {
        Err(Error::Policy(why)) => {
            assert!(why.ends_with("withholds a task that is ready"), "{why}");
        }
        other => panic!("not a failure of the policy: {other:?}"),
    }
    assert_eq!(kernel.now(), Duration::ZERO);
}

#[test]
fn s29_a_len_that_overstates_does_not_keep_the_kernel_from_looking_at_the_world() {
    let len = Some(usize::MAX);
    let policy = Wrong {
        len,
        ..Wrong::default()
    };
    let mut kernel = sim().policy(policy).build().unwrap();
    let remote = kernel.remote();
    kernel
        .spawn("greedy", async move |os: &mut Os| {
            passes(os, 300).await;
            remote.shutdown();
            spin(os).await;
        })
        .unwrap();
    assert!(kernel.run().unwrap().ticks <= 300 + 256);
}

#[test]
fn s17_a_policy_whose_destructor_panics_does_not_unwind_the_kernels() {
    struct Bad(Fifo, PanicOnDrop);
    impl Policy for Bad {
        fn push(&mut self, task: Runnable, cause: Cause) {
            self.0.push(task, cause);
        }
        fn pop(&mut self) -> Option<Runnable> {
            self.0.pop()
        }
        fn remove(&mut self, task: Runnable) {
            self.0.remove(task);
        }
        fn len(&self) -> usize {
            self.0.len()
        }
    }
    let policy = Bad(Fifo::default(), PanicOnDrop);
    let mut kernel = sim().policy(policy).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| passes(os, 3).await);
    drop(kernel);
}
