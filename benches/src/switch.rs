//! Switch: what it costs to stop a task, to let the others have their turns, and to go on.
//!
//! Every task yields in a loop. The first one takes the time from its second turn on, when all
//! have started; as queues are first in, first out, it comes back once per round of all tasks. So
//! neither spawning nor ending is measured.
//!
//! Monoio does not take part: it puts a task that yields back at the front of its queue, so the
//! others do not get their turns.

use std::{cell::Cell, pin::Pin, rc::Rc, time::Duration};

use corosensei::{Coroutine as Stackful, CoroutineResult, stack::DefaultStack};
use genawaiter::{
    Coroutine,
    rc::{Co, Gen},
};
use trapline::{Kernel, Os};

use crate::{
    contest::Contest,
    meter::{cpu_time, ns_each},
};

/// How many switches a run measures, at the least.
const SWITCHES: usize = 4_000_000;

pub(crate) fn contests(rounds: usize) -> Vec<Contest> {
    [1, 100, 10_000, 1_000_000]
        .map(|tasks| {
            let laps = SWITCHES / tasks;
            let each = move |time: Duration| ns_each(time, tasks * laps);
            let contest =
                Contest::new(format!("switch, {tasks} tasks"), rounds, &["ns per switch"])
                    .enter("trapline get_tid", move || each(trapline(tasks, laps)))
                    .enter("raw Gen", move || each(raw(tasks, laps)))
                    .enter("raw Gen, boxed as dyn", move || each(raw_dyn(tasks, laps)))
                    .enter("tokio", move || each(tokio(tasks, laps)))
                    .enter("async-executor", move || each(async_executor(tasks, laps)));
            // A stack each: a million are more mappings than a process may have.
            if tasks > 10_000 {
                return contest;
            }
            contest.enter("corosensei", move || each(stackful(tasks, laps)))
        })
        .into()
}

/// How many times the tasks other than the first yield: once before the time is taken, and after
/// it once more than they must.
fn turns(laps: usize) -> usize {
    laps + 2
}

fn trapline(tasks: usize, laps: usize) -> Duration {
    let mut kernel = Kernel::simulated(0);
    let time = Rc::new(Cell::new(Duration::ZERO));
    let first = Rc::clone(&time);
    kernel
        .spawn("first", async move |os: &mut Os| {
            os.get_tid().await;
            let start = cpu_time();
            for _ in 0..laps {
                os.get_tid().await;
            }
            first.set(cpu_time() - start);
        })
        .expect("there is room for a task");
    for _ in 1..tasks {
        kernel
            .spawn("other", async move |os: &mut Os| {
                for _ in 0..turns(laps) {
                    os.get_tid().await;
                }
            })
            .expect("there is room for the tasks");
    }
    kernel.run().expect("tasks that only yield come to an end");
    time.get()
}

async fn count(co: Co<u64, u64>) {
    let mut n = 0;
    loop {
        n = co.yield_(n).await;
    }
}

fn raw(tasks: usize, laps: usize) -> Duration {
    let mut gens: Vec<_> = (0..tasks).map(|_| Gen::new(count)).collect();
    for g in &mut gens {
        g.resume_with(0);
    }
    let start = cpu_time();
    for lap in 0..laps {
        for g in &mut gens {
            std::hint::black_box(g.resume_with(lap as u64));
        }
    }
    cpu_time() - start
}

fn raw_dyn(tasks: usize, laps: usize) -> Duration {
    type Boxed = Pin<Box<dyn Coroutine<Yield = u64, Resume = u64, Return = ()>>>;
    let mut gens: Vec<Boxed> = (0..tasks)
        .map(|_| Box::pin(Gen::new(count)) as Boxed)
        .collect();
    for g in &mut gens {
        g.as_mut().resume_with(0);
    }
    let start = cpu_time();
    for lap in 0..laps {
        for g in &mut gens {
            std::hint::black_box(g.as_mut().resume_with(lap as u64));
        }
    }
    cpu_time() - start
}

fn tokio(tasks: usize, laps: usize) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime needs no more than a kernel");
    runtime.block_on(async {
        let first = tokio::spawn(async move {
            tokio::task::yield_now().await;
            let start = cpu_time();
            for _ in 0..laps {
                tokio::task::yield_now().await;
            }
            cpu_time() - start
        });
        for _ in 1..tasks {
            tokio::spawn(async move {
                for _ in 0..turns(laps) {
                    tokio::task::yield_now().await;
                }
            });
        }
        first.await.expect("the task ends well")
    })
}

fn async_executor(tasks: usize, laps: usize) -> Duration {
    let executor = async_executor::LocalExecutor::new();
    let first = executor.spawn(async move {
        futures_lite::future::yield_now().await;
        let start = cpu_time();
        for _ in 0..laps {
            futures_lite::future::yield_now().await;
        }
        cpu_time() - start
    });
    for _ in 1..tasks {
        let other = executor.spawn(async move {
            for _ in 0..turns(laps) {
                futures_lite::future::yield_now().await;
            }
        });
        other.detach();
    }
    futures_lite::future::block_on(executor.run(first))
}

fn stackful(tasks: usize, laps: usize) -> Duration {
    let mut tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let stack = DefaultStack::new(16 * 1024).expect("there is room for the stacks");
            Stackful::with_stack(stack, move |yielder, mut n: u64| {
                for _ in 0..turns(laps) {
                    n = yielder.suspend(n);
                }
            })
        })
        .collect();
    let mut lap = |n| {
        for task in &mut tasks {
            let CoroutineResult::Yield(_) = std::hint::black_box(task.resume(n)) else {
                unreachable!("a task has more turns than laps are run");
            };
        }
    };
    lap(0);
    let start = cpu_time();
    for n in 0..laps {
        lap(n as u64);
    }
    let time = cpu_time() - start;
    // They end here: to drop one that is suspended would unwind its stack.
    lap(0);
    for task in &mut tasks {
        task.resume(0);
    }
    time
}
