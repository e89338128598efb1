//! A flood of hostile tasks beside an innocent one, which must finish with the right result.

use std::{
    cell::RefCell, collections::BTreeMap, fs::File, os::unix::process::ExitStatusExt,
    process::Command, rc::Rc, time::Duration,
};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use trapline::{
    Builder, Closed, DeviceId, Error, Event, Exit, Fact, Kernel, Limit, Os, Queue, QueueId,
    SystemCall, Tid,
};

use crate::support::*;

/// What the innocent task works out.
const PRIMES: u64 = 303;

/// Tasks that must not be harmed: the innocent one and its helpers know one another's tids, and
/// the killers leave the lowest tids alone.
const SPARED: u64 = 2;

/// Counts the primes below 2000, a trap or two for each candidate, with a helper for each hundred.
async fn innocent(os: &mut Os) {
    let mut found = 0;
    for hundred in 0..20u64 {
        for candidate in hundred * 100..(hundred + 1) * 100 {
            let divides = |divisor| candidate % divisor == 0;
            let prime = candidate > 1
                && !(2..candidate)
                    .take_while(|d| d * d <= candidate)
                    .any(divides);
            found += u64::from(prime);
            assert_eq!(os.get_tid().await, tid(1));
        }
        os.sleep(Duration::from_micros(10)).await;
    }
    assert_eq!(found, PRIMES);
    writeln!(os, "{found} primes");
}

/// Does one bad thing after another, chosen by the world's seed.
async fn villain(os: &mut Os) {
    loop {
        match os.random().await % 12 {
            0 => panic!("a villain panics"),
            1 => {
                let _bad = PanicOnDrop;
                passes(os, 3).await;
            }
            2 => foreign().await,
            3..=5 => {
                let program = async |os: &mut Os| Box::pin(villain(os)).await;
                // Refused at the limit, which is where this flood lives.
                let _ = os.spawn_detached("villain", program).await;
            }
            6..=7 => {
                let victim = SPARED + 1 + os.random().await % 3000;
                os.kill(tid(victim)).await;
            }
            8 => {
                let target = SPARED + 1 + os.random().await % 3000;
                let _ = os.wait(tid(target)).await;
            }
            9 => {
                let span = os.random().await % 50;
                os.sleep(Duration::from_micros(span)).await;
            }

            10 => std::panic::panic_any(PanicOnDrop),
            _ => {
                let owned = PanicOnDrop;
                let _ = os.spawn("doomed", async move |_| drop(owned)).await;
            }
        }
    }
}

/// Keeps the flood going.
async fn recruiter(os: &mut Os) {
    loop {
        while os.spawn_detached("villain", villain).await.is_ok() {}
        os.sleep(Duration::from_micros(5)).await;
    }
}

fn flood(builder: Builder) {
    let born = Rc::new(RefCell::new(BTreeMap::<Tid, u32>::new()));
    let register = Rc::clone(&born);
    let tracer = move |event: &Event<'_>| match event.fact {
        Fact::Spawned { .. } => drop(register.borrow_mut().insert(event.tid, 0)),
        Fact::Exited { .. } => *register.borrow_mut().get_mut(&event.tid).unwrap() += 1,
        _ => {}
    };
    let mut kernel = builder
        .max_tasks(200)
        .max_ticks(2_000_000)
        .tracer(tracer)
        .build()
        .unwrap();
    let main = kernel.spawn("innocent", innocent).unwrap();
    kernel.spawn("recruiter", recruiter).unwrap();
    // Villains have no end: the host stops when the innocent task is done.
    while kernel.tasks().any(|task| task.tid == main) {
        for _ in 0..500 {
            kernel.step().unwrap();
        }
        kernel.audit();
    }
    kernel.remote().shutdown();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&main], Exit::Done);
    assert_eq!(report.exits()[&tid(2)], Exit::Killed);
    assert_eq!(report.peak_tasks, 200);
    assert!(report.failures > 100, "{} bad ends", report.failures);
    assert!(kernel.take_console().contains("303 primes\n"));
    assert!(
        born.borrow().values().all(|exits| *exits == 1),
        "each ends once"
    );
}

#[test]
fn a_flood_of_hostile_tasks_does_not_harm_an_innocent_one() {
    let test = "hostile::a_flood_of_hostile_tasks_does_not_harm_an_innocent_one";
    alone(test, || {
        for seed in 0..3 {
            flood(sim().seed(seed));
        }
    });
}

#[test]
fn nor_does_it_with_a_long_quantum() {
    let test = "hostile::nor_does_it_with_a_long_quantum";
    alone(test, || flood(sim().seed(9).quantum(7)));
}

#[test]
fn a_fork_bomb_stops_at_the_limit() {
    async fn bomb(os: &mut Os) {
        loop {
            let program = async |os: &mut Os| Box::pin(bomb(os)).await;
            let _ = os.spawn("bomb", program).await;
        }
    }
    let mut kernel = sim().max_tasks(100).max_ticks(10_000).build().unwrap();
    kernel.spawn("bomb", bomb).unwrap();
    assert!(matches!(
        kernel.run(),
        Err(Error::Limit(Limit::Ticks(_), _))
    ));
    assert_eq!(kernel.tasks().count(), 100);
    kernel.remote().shutdown();
    assert_eq!(kernel.run().unwrap().peak_tasks, 100);
}

#[test]
fn calls_half_made_or_without_their_arguments_harm_nobody() {
    use trapline::SystemCall as Call;
    let mut kernel = Kernel::simulated(0);
    let other = kernel
        .spawn("other", async |os| {
            for _ in 0..50 {
                assert_eq!(os.get_tid().await, tid(1));
                let child = os.spawn("child", async |_| Err("fine")).await?;
                let exit = os.wait(child).await?;
                assert_eq!(exit, Exit::Failed("fine".into()));
            }
            Ok::<(), trapline::Errno>(())
        })
        .unwrap();
    let rude = kernel
        .spawn("rude", async |os| {
            for call in [
                Call::NewTask,
                Call::NewDetachedTask,
                Call::Exit,
                Call::Attach,
                Call::Listen,
                Call::Connect,
                Call::NewQueue(1),
                Call::SendFile(DeviceId::from_raw(7)),
                Call::Submit,
                Call::Timeout(Duration::ZERO.into()),
            ] {
                assert_eq!(raw(os, call).await, "Err(Invalid)", "{call:?}");
            }
            for call in [
                Call::ReadWait(DeviceId::from_raw(7)),
                Call::WriteWait(DeviceId::from_raw(7)),
                Call::Connected(DeviceId::from_raw(7)),
                Call::Accept(DeviceId::from_raw(7)),
                Call::Recv(DeviceId::from_raw(7)),
                Call::Send(DeviceId::from_raw(7)),
                Call::ShutdownWrite(DeviceId::from_raw(7)),
                Call::ShutdownRead(DeviceId::from_raw(7)),
                Call::Close(DeviceId::from_raw(7)),
            ] {
                assert_eq!(raw(os, call).await, "Err(BadFd)", "{call:?}");
            }
            for _ in 0..3 {
                ignore_answer(os.tasks()).await;
                ignore_answer(os.spawn("orphan", async |_| {})).await;
                ignore_answer(os.listen(([127, 0, 0, 1], 0).into())).await;
                ignore_answer(os.wait(tid(4))).await;
            }
            // A future that was made and never awaited is no trap.
            drop(os.kill(tid(1)));
            assert_eq!(os.get_tid().await, tid(2));
        })
        .unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&other], Exit::Done);
    assert_eq!(report.exits()[&rude], Exit::Done);
}

#[test]
fn an_answer_that_nobody_took_is_nobody_elses() {
    let transcript = console(async |os| {
        let failed = os.spawn("failed", async |_| Err("no")).await?;
        let done = os.spawn("done", async |os| passes(os, 9).await).await?;
        let waiter = async move |os: &mut Os| {
            let exit = os.wait(done).await;
            writeln!(os, "{exit:?}");
        };
        let waiter = os.spawn("waiter", waiter).await?;
        ignore_answer(os.wait(failed)).await;
        passes(os, 9).await;
        ignore_answer(os.tasks()).await;
        let exit = os.wait(waiter).await?;
        writeln!(os, "{exit}");
        Ok::<(), trapline::Errno>(())
    });
    assert_eq!(transcript, "Ok(Done)\ndone\n");
}

#[test]
fn two_calls_at_once_by_trickery_end_the_trickster_at_worst() {
    let mut kernel = Kernel::simulated(0);
    kernel
        .spawn("trickster", async |os| {
            abandon(os.get_tid());
            abandon(os.random());
            os.now().await;
        })
        .unwrap();
    let other = kernel
        .spawn("other", async |os| {
            os.sleep(Duration::from_secs(1)).await;
            assert_eq!(os.get_tid().await, tid(2));
        })
        .unwrap();
    assert_eq!(kernel.run().unwrap().exits()[&other], Exit::Done);
}

/// A destructor that begins a trap of its own, which is never made.
struct Bye<'a>(&'a mut Os);

impl Drop for Bye<'_> {
    fn drop(&mut self) {
        let mut call = std::pin::pin!(self.0.trap(SystemCall::GetTid));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
}

#[test]
fn s17_a_destructor_that_begins_a_trap_does_not_touch_the_one_under_way() {
    let mut kernel = Kernel::simulated(0);
    kernel
        .spawn("owner", async |os: &mut Os| {
            let mut group = trapline::sync::Group::new(os).await;
            let member = group.spawn(os, "member", async |os: &mut Os| {
                let bye = Bye(os);
                bye.0.sleep(Duration::from_secs(1)).await;
            });
            member.await.unwrap();
            os.yield_now().await;
        })
        .unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&1.into()], Exit::Done);
}

#[test]
fn a_raw_call_reaches_what_another_task_of_its_kernel_holds() {
    let mut kernel = Kernel::simulated(0);
    let owner = kernel
        .spawn("owner", async |os: &mut Os| {
            let queue = Queue::<u8>::unbounded(os).await;
            assert_eq!(queue.get(os).await, Err(Closed(())));
        })
        .unwrap();
    let stranger = kernel
        .spawn("stranger", async |os: &mut Os| {
            let queue = QueueId::from_raw(1, 0).unwrap();
            assert_eq!(raw(os, SystemCall::CloseQueue(queue)).await, "Done");
        })
        .unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&owner], Exit::Done);
    assert_eq!(report.exits()[&stranger], Exit::Done);
}

/// Where a task lends its `Os`, as safe crates lend a reference to another program.
#[derive(Clone, Copy)]
struct Lent(*mut Os);

impl Lent {
    #[expect(unsafe_code, reason = "the lender does not use its `Os` meanwhile")]
    fn get<'a>(self) -> &'a mut Os {
        // SAFETY: the lender is in a run of the kernel with the tasks that use this.
        unsafe { &mut *self.0 }
    }
}

/// Runs the programs of a second kernel within the turn of a task, which lends them its `Os`. They exchange it,
/// and the process is to end before the run does.
fn within_a_turn(spawn: fn(&mut Kernel, Lent)) {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none).unwrap();
    let outer = async move |os: &mut Os| {
        let mut kernel = Kernel::simulated(1);
        spawn(&mut kernel, Lent(os));
        drop(kernel.run());
        std::process::exit(0);
    };
    let mut kernel = Kernel::simulated(1);
    kernel.spawn("outer", outer).unwrap();
    kernel.run().unwrap();
}

/// A task exchanges its `Os`, and ends first.
fn exchange() {
    within_a_turn(|kernel, lent| {
        let inner = async move |os: &mut Os| std::mem::swap(os, lent.get());
        kernel.spawn("inner", inner).unwrap();
    });
}

/// The same in code before its future, which panics.
fn exchange_early() {
    within_a_turn(|kernel, lent| {
        let inner = move |os: &mut Os| {
            std::mem::swap(os, lent.get());
            assert!(lent.0.is_null(), "this task faults");
            std::future::ready(())
        };
        kernel.spawn("inner", inner).unwrap();
    });
}

/// Three tasks exchange theirs. The one that ends first has the `Os` of another task of its kernel, which has
/// that of the first.
fn exchange_in_a_ring() {
    within_a_turn(|kernel, lent| {
        let inner = async move |os: &mut Os| {
            std::mem::swap(os, lent.get());
            lent.get().yield_now().await;
            std::mem::swap(os, lent.get());
        };
        let other = async move |os: &mut Os| {
            std::mem::swap(os, lent.get());
            lent.get().yield_now().await;
            std::process::exit(0);
        };
        kernel.spawn("inner", inner).unwrap();
        kernel.spawn("other", other).unwrap();
    });
}

#[track_caller]
fn ends_the_process(test: &str, inside: fn()) {
    let Some(end) = end_of_own_process(test, |_| {}, inside) else {
        return;
    };
    let err = String::from_utf8_lossy(&end.stderr);
    assert_eq!(end.status.signal(), Some(Signal::ABORT.as_raw()), "{err}");
    let why = "trapline: a program has exchanged its Os for that of another program\n";
    assert!(err.ends_with(why), "{err}");
}

/// The program that goes on would write to the memory of the one that has ended.
#[test]
fn an_os_that_leaves_its_program_ends_the_process() {
    let test = "hostile::an_os_that_leaves_its_program_ends_the_process";
    ends_the_process(test, exchange);
}

#[test]
#[cfg(target_os = "linux")]
fn an_os_that_leaves_its_program_ends_the_process_that_cannot_say_so() {
    let test = "hostile::an_os_that_leaves_its_program_ends_the_process_that_cannot_say_so";
    let full = |command: &mut Command| {
        let full = File::options().write(true).open("/dev/full");
        command.stderr(full.expect("Linux has a full device"));
    };
    if let Some(end) = end_of_own_process(test, full, exchange) {
        assert_eq!(end.status.signal(), Some(Signal::ABORT.as_raw()));
    }
}

#[test]
fn an_os_that_leaves_a_program_which_does_not_begin_ends_the_process() {
    let test = "hostile::an_os_that_leaves_a_program_which_does_not_begin_ends_the_process";
    ends_the_process(test, exchange_early);
}

#[test]
fn an_os_that_moves_to_another_program_of_its_kernel_ends_the_process() {
    let test = "hostile::an_os_that_moves_to_another_program_of_its_kernel_ends_the_process";
    ends_the_process(test, exchange_in_a_ring);
}

/// More tasks than a debug build audits at its polls.
const CROWD: u64 = 5_000;

#[test]
fn each_task_of_a_crowd_is_in_exactly_one_place() {
    let mut kernel = unscripted().max_ticks(2_000).build().unwrap();
    kernel
        .spawn("main", async |os| {
            let empty = Queue::<u64>::bounded(os, 1).await;
            let full = Queue::<u64>::bounded(os, 0).await;
            let mut sleeper = os.get_tid().await;
            for n in 0..CROWD {
                let (empty, full, target) = (empty.clone(), full.clone(), sleeper);
                let span = Duration::from_millis(n % 40);
                let program = async move |os: &mut Os| match n % 5 {
                    0 => drop(os.timeout(span, async |os| empty.get(os).await).await),
                    1 => drop(os.timeout(span, async |os| full.put(os, n).await).await),
                    2 => drop(os.timeout(span, async |os| os.wait(target).await).await),
                    3 => os.sleep(span).await,
                    _ => passes(os, 50).await,
                };
                let last = os.spawn_detached("one", program).await.unwrap();
                match n {
                    n if n % 7 == 0 => drop(os.kill(last).await),
                    n if n % 5 == 3 => sleeper = last,
                    _ => {}
                }
            }
        })
        .unwrap();
    let mut most = 0;
    while let Err(error) = kernel.run() {
        assert!(matches!(error, Error::Limit(Limit::Ticks(_), _)), "{error}");
        most = most.max(kernel.tasks().count());
        kernel.audit_all();
    }
    assert!(most > 3_000, "{most} tasks at once");
}
