//! Work on threads: rule S39. In the real world, where there are threads.

use std::{
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use trapline::{
    Elapsed, Error, Exit, Kernel, Os, Panicked, Promise, Queue, RealWorld, Stalled, Tid, World,
};

use crate::{
    stepping::{boot, noting},
    support::*,
};

/// Longer than any test takes: what must not be waited for.
const FOREVER: Duration = Duration::from_secs(3600);

/// After which a test gives up.
const LONG: Duration = Duration::from_secs(60);

fn run_real(program: impl AsyncFnOnce(&mut Os) + 'static) {
    let mut kernel = Kernel::real().unwrap();
    let main = kernel.spawn("main", program).unwrap();
    assert_eq!(kernel.run().unwrap().exits()[&main], Exit::Done);
}

#[test]
fn s39_work_on_a_thread_wakes_a_sleeping_kernel() {
    run_real(async |os| {
        // The kernel sleeps in its poller, for this deadline or for ever.
        let other = os.spawn("sleeper", async |os| os.sleep(FOREVER).await);
        let other = other.await.unwrap();
        let here = thread::current().id();
        let there = os.run_blocking(move || thread::current().id()).await;
        assert_ne!(there.unwrap(), here);
        os.kill(other).await;
        assert_eq!(os.run_blocking(|| 2).await, Ok(2));
        assert!(os.now().await < FOREVER);
    });
}

#[test]
fn s39_others_go_on_meanwhile() {
    run_real(async |os| {
        let (go, wait) = mpsc::channel();
        let child = os.spawn("child", async move |os| {
            os.yield_now().await;
            go.send("went on").unwrap();
        });
        child.await.unwrap();
        assert_eq!(
            os.run_blocking(move || wait.recv().unwrap()).await,
            Ok("went on")
        );
    });
}

#[test]
fn s39_a_panic_on_the_thread_is_an_error_to_the_task_that_waits() {
    for real in [true, false] {
        let program = async |os: &mut Os| {
            // No message of the panic hook's: it is of no use here.
            let quiet = |what: &'static str| -> u32 { std::panic::resume_unwind(Box::new(what)) };
            let work = os.run_blocking(move || quiet("boom")).await;
            assert_eq!(work, Err(Panicked("boom".into())));
            assert_eq!(work.unwrap_err().to_string(), "panicked: boom");
            // The task, the kernel and the threads go on.
            assert_eq!(os.run_blocking(|| 1).await, Ok(1));
        };
        if real {
            run_real(program);
        } else {
            boot(program);
        }
    }
}

#[test]
fn s39_many_at_once_and_all_of_them_under_way() {
    const WORKERS: usize = 40;
    run_real(async |os| {
        // None of them ends before all have begun.
        let all = Arc::new(Barrier::new(WORKERS));
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..WORKERS {
            let (all, done) = (Arc::clone(&all), Arc::clone(&done));
            let worker = async move |os: &mut Os| {
                let work = move || all.wait().is_leader();
                os.run_blocking(work).await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            };
            os.spawn("worker", worker).await.unwrap();
        }
        let ours = Arc::clone(&done);
        while ours.load(Ordering::Relaxed) < WORKERS {
            os.run_blocking(|| ()).await.unwrap();
        }
    });
}

#[test]
fn s39_work_whose_task_is_gone_runs_to_its_end_unheard() {
    run_real(async |os| {
        let (go, wait) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let victim = async move |os: &mut Os| {
            let work = move || {
                wait.recv().unwrap();
                tell.send("to its end").unwrap();
            };
            os.run_blocking(work).await
        };
        let killed = os.spawn("victim", async move |os| victim(os).await.map(drop));
        let killed = killed.await.unwrap();
        os.sleep(Duration::from_millis(1)).await;
        assert!(os.kill(killed).await);
        go.send(()).unwrap();
        assert_eq!(told.recv(), Ok("to its end"));

        let (go, wait) = mpsc::channel::<()>();
        let cut = os.timeout(Duration::from_millis(1), async move |os| {
            os.run_blocking(move || wait.recv().unwrap()).await
        });
        assert_eq!(cut.await, Err(Elapsed));
        go.send(()).unwrap();
    });
}

#[test]
fn s39_the_simulated_world_runs_it_in_place() {
    let seen = noting(async move |os, notes| {
        let theirs = notes.clone();
        let child = async move |_: &mut Os| theirs.note("child");
        os.spawn("child", child).await.unwrap();
        let here = thread::current().id();
        assert_eq!(
            os.run_blocking(move || thread::current().id()).await,
            Ok(here)
        );
        notes.note(format!("{:?}", os.now().await));
    });
    assert_eq!(seen.take(), ["child", "0ns"]);
}

#[test]
fn a_pause_of_work_in_place_delays_its_result_on_the_virtual_clock() {
    boot(async move |os| {
        let other = os.spawn("other", async |os| {
            os.sleep(FOREVER / 2).await;
        });
        let other = other.await.unwrap();
        let work = || {
            trapline::pause(FOREVER / 3);
            trapline::pause(FOREVER * 2 / 3);
            "done"
        };
        assert_eq!(os.run_blocking(work).await, Ok("done"));
        assert_eq!(os.now().await, FOREVER);
        // The others went on meanwhile.
        assert_eq!(os.wait(other).await, Ok(Exit::Done));
        // A panic comes no sooner than its pause.
        let work = || -> u32 {
            trapline::pause(FOREVER);
            std::panic::resume_unwind(Box::new("boom"))
        };
        assert_eq!(os.run_blocking(work).await, Err(Panicked("boom".into())));
        assert_eq!(os.now().await, FOREVER * 2);
        // A timeout cuts a pause, and the next piece of work knows nothing of it.
        let cut = os.timeout(FOREVER, async |os| {
            os.run_blocking(|| trapline::pause(Duration::MAX)).await
        });
        assert_eq!(cut.await, Err(Elapsed));
        assert_eq!(os.run_blocking(|| 1).await, Ok(1));
        assert_eq!(os.now().await, FOREVER * 3);
    });
}

#[test]
fn a_pause_within_a_kernel_within_work_in_place_is_its_own() {
    boot(async move |os| {
        let work = || {
            trapline::pause(Duration::from_secs(1));
            boot(async |os| {
                os.run_blocking(|| trapline::pause(FOREVER)).await.unwrap();
                assert_eq!(os.now().await, FOREVER);
            });
            trapline::pause(Duration::from_secs(1));
        };
        os.run_blocking(work).await.unwrap();
        assert_eq!(os.now().await, Duration::from_secs(2));
    });
}

#[test]
fn a_pause_on_a_thread_blocks_the_thread() {
    run_real(async |os| {
        let span = Duration::from_millis(2);
        let slept = os.run_blocking(move || {
            let start = Instant::now();
            trapline::pause(span);
            start.elapsed() >= span
        });
        assert_eq!(slept.await, Ok(true));
    });
}

#[test]
fn a_job_that_panics_costs_the_pool_no_thread() {
    // More of them than the pool ever has threads.
    const JOBS: usize = 1100;
    let mut world = RealWorld::new().unwrap();
    for _ in 0..JOBS {
        world.submit(
            Tid::KERNEL,
            Box::new(|| std::panic::resume_unwind(Box::new("boom"))),
        );
    }
    let (tell, told) = mpsc::channel();
    world.submit(Tid::KERNEL, Box::new(move || tell.send(()).unwrap()));
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(()));
}

#[test]
fn a_kernel_that_ends_first_leaves_the_threads_alone() {
    let (go, wait) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let mut kernel = Kernel::real().unwrap();
    let main = async move |os: &mut Os| {
        let work = move || {
            let _ = wait.recv();
            tell.send(()).unwrap();
        };
        os.run_blocking(work).await.map(drop)
    };
    kernel.spawn("main", main).unwrap();
    for _ in 0..3 {
        kernel.step().unwrap();
    }
    drop(kernel);
    drop(go);
    assert_eq!(told.recv(), Ok(()));
}

#[test]
fn s39_one_task_does_not_take_every_thread() {
    let mut world = RealWorld::new().unwrap();
    let (go, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let done = Arc::new(AtomicUsize::new(0));
    // More than the pool ever has threads, and none of them ends.
    const JOBS: usize = 1100;
    for _ in 0..JOBS {
        let (wait, done) = (Arc::clone(&wait), Arc::clone(&done));
        let long = move || {
            let _ = wait.lock().map(|wait| wait.recv());
            done.fetch_add(1, Ordering::Relaxed);
        };
        world.submit(1.into(), Box::new(long));
    }
    let (tell, told) = mpsc::channel();
    let other = tell.clone();
    world.submit(2.into(), Box::new(move || other.send(()).unwrap()));
    assert_eq!(told.recv_timeout(LONG), Ok(()));
    // What was held back is done when there is room, and in order.
    drop(go);
    world.submit(1.into(), Box::new(move || tell.send(()).unwrap()));
    assert_eq!(told.recv_timeout(LONG), Ok(()));
    assert!(done.load(Ordering::Relaxed) > JOBS - 16);
}

// ---- waiting for threads alone

const STALL: Duration = Duration::from_millis(20);

/// Runs a kernel that stalls, in the real world and in the simulated one.
fn stalled(program: impl AsyncFnOnce(&mut Os) + Clone + 'static) -> [Stalled; 2] {
    [Kernel::builder(), sim()].map(|builder| {
        let mut kernel = builder.max_stall(STALL).build().unwrap();
        kernel.spawn("main", program.clone()).unwrap();
        match kernel.run() {
            Err(Error::Stalled(stalled)) => stalled,
            other => panic!("no stall: {other:?}"),
        }
    })
}

#[test]
fn a_leaked_remote_setter_is_reported_after_a_time_without_progress() {
    let all = stalled(async |os: &mut Os| {
        let (setter, _promise) = Promise::<u32>::new(os).await;
        for _ in 0..2 {
            std::mem::forget(setter.remote());
        }
        // A deadlock that has nothing to do with them.
        let _ = Queue::<u8>::unbounded(os).await.get(os).await;
    });
    for stalled in all {
        assert!(stalled.waited >= STALL, "{stalled}");
        let text = stalled.to_string();
        let (first, rest) = text.split_once('\n').unwrap();
        let expected =
            "stalled: no task is ready, and only other threads could make one ready, for ";
        assert!(first.starts_with(expected), "{first}");
        let (setters, task) = rest.split_once('\n').unwrap();
        let leaked = "  remote setters alive: 2; one that is leaked keeps the run for ever";
        assert_eq!(setters, leaked);
        let blocked = "  tid 1 \"main\" waits for queue 2 (get), since ";
        assert!(task.starts_with(blocked), "{task}");
    }
}

#[test]
fn a_job_without_end_is_reported_and_the_run_can_go_on() {
    let (go, wait) = mpsc::channel::<()>();
    let mut kernel = Kernel::builder().max_stall(STALL).build().unwrap();
    let main = async move |os: &mut Os| os.run_blocking(move || wait.recv()).await.map(drop);
    let main = kernel.spawn("main", main).unwrap();
    for _ in 0..2 {
        match kernel.run() {
            Err(Error::Stalled(stalled)) => {
                assert_eq!((stalled.jobs, stalled.remote_setters), (1, 0));
            }
            other => panic!("no stall: {other:?}"),
        }
    }
    drop(go);
    // It may take longer than the limit until the thread has its turn.
    let report = loop {
        match kernel.run() {
            Err(Error::Stalled(_)) => {}
            other => break other.unwrap(),
        }
    };
    assert_eq!(report.exits()[&main], Exit::Done);
}

#[test]
fn a_timer_is_waited_for_without_a_stall() {
    let mut kernel = sim().max_stall(Duration::ZERO).build().unwrap();
    let report = run_main(&mut kernel, async |os: &mut Os| {
        let (setter, promise) = Promise::<u32>::new(os).await;
        let remote = setter.remote();
        let wait = os.timeout(FOREVER, async |os| promise.wait(os).await);
        assert_eq!(wait.await, Err(Elapsed));
        drop(remote);
    });
    assert_eq!(report.elapsed, FOREVER);
}
