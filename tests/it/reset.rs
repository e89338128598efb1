//! A kernel for one more run: it does what a new one does, whatever the last run has left.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use trapline::{
    Cause, Error, Event, Foreign, Inject, Kernel, Os, Policy, Promise, Queue, Runnable, SimWorld,
    SystemCall, Tid, Tracer,
};

use crate::support::{Diary, logged, run_main, sim};

/// Leaves nothing out: queues, timers, children, randomness, text.
fn everything(kernel: &mut Kernel) {
    let main = async |os: &mut Os| {
        let queue = Queue::bounded(os, 1).await;
        let (source, held) = (queue.clone(), queue.clone());
        os.spawn("source", async move |os| {
            for _ in 0..3 {
                let number = os.random().await;
                os.sleep(Duration::from_millis(number % 5)).await;
                let _ = source.put(os, number).await;
            }
        })
        .await?;
        os.spawn_detached("stuck", async move |os| {
            let _held = held;
            os.sleep(Duration::MAX).await;
        })
        .await?;
        for _ in 0..3 {
            let _ = queue.get(os).await;
        }
        writeln!(os, "done");
        Ok::<(), trapline::Errno>(())
    };
    kernel.spawn("main", main).expect("there is room");
}

/// The log of a run with this seed, on that kernel.
fn log(kernel: &mut Kernel, diary: &Diary, seed: u64) -> (Vec<String>, String) {
    let before = diary.lines().len();
    kernel.reset(seed).expect("a simulated world begins anew");
    let ended = diary.lines().len();
    everything(kernel);
    assert!(matches!(kernel.run(), Err(Error::Deadlock(_))));
    kernel.audit();
    assert!(before <= ended);
    (diary.lines()[ended..].to_vec(), kernel.take_console())
}

#[test]
fn a_reset_kernel_does_what_a_new_one_does() {
    let build = || logged(Kernel::builder().world(SimWorld::new(0)));
    let (mut reused, diary) = build();
    for seed in 0..5 {
        let (mut new, new_diary) = build();
        assert_eq!(
            log(&mut reused, &diary, seed),
            log(&mut new, &new_diary, seed)
        );
        assert_eq!(reused.seed(), seed);
    }
}

#[test]
fn a_reset_ends_the_tasks_and_counts_from_zero() {
    let mut kernel = Kernel::simulated(1);
    let ended = Diary::default();
    let mark = ended.on_drop("ended");
    let stuck = async move |os: &mut Os| {
        let _mark = mark;
        writeln!(os, "lost");
        os.sleep(Duration::from_secs(1)).await;
        os.wait(9.into()).await.map(drop)
    };
    kernel.spawn("stuck", stuck).expect("there is room");
    kernel.spawn_daemon("daemon", async |os: &mut Os| {
        loop {
            os.sleep(Duration::from_secs(1)).await;
        }
    });
    for _ in 0..5 {
        kernel.step().expect("it goes on");
    }
    kernel.reset(2).expect("a simulated world begins anew");
    assert_eq!(ended.lines(), ["ended"]);
    assert_eq!(kernel.now(), Duration::ZERO);
    assert_eq!(
        (kernel.tasks().count(), kernel.take_console().len()),
        (0, 0)
    );
    let report = kernel.report();
    assert_eq!((report.ticks, report.traps, report.failures), (0, 0, 0));
    assert!(report.exits().is_empty());
    let tid = kernel
        .spawn("first", async |_: &mut Os| {})
        .expect("there is room");
    assert_eq!(tid, Tid::from(1));
}

#[test]
fn a_handle_of_an_earlier_run_reaches_nothing_of_this_one() {
    let mut kernel = Kernel::simulated(1);
    let kept: Rc<Cell<Option<Queue<u8>>>> = Rc::default();
    let keeper = Rc::clone(&kept);
    let main = async move |os: &mut Os| keeper.set(Some(Queue::unbounded(os).await));
    kernel.spawn("main", main).expect("there is room");
    kernel.run().expect("it ends");
    kernel.reset(1).expect("a simulated world begins anew");
    let main = async move |os: &mut Os| {
        let queue = Queue::unbounded(os).await;
        // The old queue has the same number.
        drop(kept.take());
        os.yield_now().await;
        queue.put(os, 1).await.expect("it is open");
        assert_eq!(queue.get(os).await, Ok(1));
    };
    kernel.spawn("main", main).expect("there is room");
    kernel
        .run()
        .and_then(|report| report.check())
        .expect("all is well");
}

#[test]
fn a_thread_of_an_earlier_run_reaches_nothing_of_this_one() {
    let mut kernel = Kernel::simulated(1);
    let kept = Rc::new(Cell::new(None));
    let keeper = Rc::clone(&kept);
    let main = async move |os: &mut Os| {
        let (setter, _promise) = Promise::<u8>::new(os).await;
        keeper.set(Some(setter.remote()));
    };
    kernel.spawn("main", main).expect("there is room");
    kernel.run().expect("it ends");
    kernel.reset(1).expect("a simulated world begins anew");
    let waits = async |os: &mut Os| {
        let queue = Queue::<()>::unbounded(os).await;
        queue.get(os).await.map(drop)
    };
    kernel.spawn("waits", waits).expect("there is room");
    drop(kept.take());
    assert!(
        matches!(kernel.run(), Err(Error::Deadlock(_))),
        "no thread counts"
    );
}

/// Keeps something of a run, and checks that it closes no queue of the next run.
fn outlives<T: 'static>(
    make: impl AsyncFnOnce(&mut Os) -> T + 'static,
    use_late: impl AsyncFnOnce(&mut Os, T) + 'static,
) {
    let mut kernel = Kernel::simulated(1);
    let kept = Rc::new(Cell::new(None));
    let keeper = Rc::clone(&kept);
    let main = async move |os: &mut Os| keeper.set(Some(make(os).await));
    kernel.spawn("main", main).expect("there is room");
    kernel.run().expect("it ends");
    kernel.reset(1).expect("a simulated world begins anew");
    let main = async move |os: &mut Os| {
        let mut queues = Vec::new();
        for _ in 0..3 {
            queues.push(Queue::unbounded(os).await);
        }
        use_late(os, kept.take().expect("it was kept")).await;
        os.sleep(Duration::from_secs(1)).await;
        for queue in queues {
            queue.put(os, 1).await.expect("it is open");
        }
    };
    kernel.spawn("main", main).expect("there is room");
    let report = kernel.run().expect("it ends");
    report.check().expect("all is well");
}

#[test]
fn a_setter_of_an_earlier_run_closes_nothing_of_this_one() {
    let setter = async |os: &mut Os| Promise::new(os).await.0;
    outlives(setter, async |os, setter| {
        setter.set(os, 1).await.expect("it is the first");
    });
}

#[test]
fn a_waker_of_an_earlier_run_closes_nothing_of_this_one() {
    let waker = async |os: &mut Os| {
        let kept = RefCell::new(None);
        let guest = async |os: &mut Os| {
            let waits = async |_: &Foreign| {
                poll_fn(|cx| {
                    kept.replace(Some(cx.waker().clone()));
                    Poll::<()>::Pending
                })
                .await;
            };
            os.run_future(waits).await;
        };
        let _ = os.timeout(Duration::from_millis(1), guest).await;
        kept.into_inner().expect("it was polled")
    };
    outlives(waker, async |_, waker: Waker| {
        thread::spawn(move || waker.wake())
            .join()
            .expect("it wakes");
    });
}

#[test]
fn a_real_world_does_not_begin_anew() {
    let mut kernel = Kernel::real().expect("it boots");
    let error = kernel.reset(1).expect_err("the real clock goes on");
    assert!(
        error.to_string().contains("this world cannot begin anew"),
        "{error}"
    );
}

/// Returns a task for ever.
struct Rogue(Option<Runnable>);

impl Policy for Rogue {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.0 = Some(task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        self.0
    }

    fn remove(&mut self, _: Runnable) {}

    fn len(&self) -> usize {
        1
    }
}

#[test]
fn a_policy_that_returns_tasks_for_ever_does_not_stop_a_reset() {
    let builder = Kernel::builder()
        .world(SimWorld::new(1))
        .policy(Rogue(None));
    let mut kernel = builder.build().expect("it boots");
    kernel
        .spawn("one", async |_: &mut Os| {})
        .expect("there is room");
    kernel.reset(1).expect("a simulated world begins anew");
    kernel
        .spawn("two", async |_: &mut Os| {})
        .expect("there is room");
    kernel.reset(1).expect("a simulated world begins anew");
}

#[test]
fn an_injection_counts_from_zero_after_a_reset() {
    let builder = Kernel::builder().world(SimWorld::new(1));
    let builder = builder.inject(|_, call, nth| {
        (matches!(call, SystemCall::Yield) && nth == 2).then_some(Inject::Kill)
    });
    let mut kernel = builder.build().expect("it boots");
    for _ in 0..3 {
        let yields = async |os: &mut Os| loop {
            os.yield_now().await;
        };
        kernel.spawn("yields", yields).expect("there is room");
        assert_eq!(kernel.run().expect("it is killed").traps, 2);
        kernel.reset(1).expect("a simulated world begins anew");
    }
}

#[test]
fn a_reset_kernel_numbers_the_tracers_of_tasks_anew() {
    let (mut kernel, log) = logged(sim());
    let mut logs = Vec::new();
    for _ in 0..2 {
        kernel.reset(1).unwrap();
        let before = log.lines().len();
        run_main(&mut kernel, async |os: &mut Os| {
            let _observer = os.observe(|_: &Event<'_>| ());
            os.yield_now().await;
        });
        logs.push(log.lines().split_off(before));
    }
    assert_eq!(logs[0], logs[1]);
}

/// A tracer that takes the times of the polls.
struct Coarse(Diary);

impl Tracer for Coarse {
    fn event(&mut self, event: &Event<'_>) {
        self.0.note(event.to_string());
    }

    fn is_exact(&self) -> bool {
        false
    }
}

#[test]
fn the_log_of_a_kernel_that_is_as_new_begins_at_zero() {
    let diary = Diary::default();
    let mut kernel = sim().tracer(Coarse(diary.clone())).build().unwrap();
    for _ in 0..2 {
        kernel.reset(1).unwrap();
        let before = diary.lines().len();
        let main = async |os: &mut Os| os.sleep(Duration::from_secs(1)).await;
        kernel.spawn("main", main).unwrap();
        let first = &diary.lines()[before];
        assert!(first.starts_with("00:00.000000000"), "{first}");
        kernel.run().unwrap().check().unwrap();
    }
}
