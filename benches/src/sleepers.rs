//! Sleepers: a million tasks that each sleep once, on a virtual clock, with deadlines in no order.
//!
//! The first task takes the time when all have started; the sleeps are measured with the ends of
//! the tasks.

use std::{cell::Cell, rc::Rc, time::Duration};

use trapline::{Kernel, Os};

use crate::{
    contest::Contest,
    meter::{cpu_time, ns_each},
};

const TASKS: usize = 1_000_000;

pub(crate) fn contests(rounds: usize) -> Vec<Contest> {
    let each = |time| ns_each(time, TASKS);
    vec![
        Contest::new(
            format!("sleepers, {TASKS}"),
            rounds.min(5),
            &["ns of CPU per sleep"],
        )
        .enter("trapline, simulated", move || each(trapline()))
        .enter("tokio, start_paused", move || each(tokio())),
    ]
}

/// Whole milliseconds, up to a second: tokio's timers know nothing finer.
fn span(n: usize) -> Duration {
    Duration::from_millis(1 + n as u64 * 7919 % 1000)
}

fn trapline() -> Duration {
    let mut kernel = Kernel::simulated(0);
    let start = Rc::new(Cell::new(Duration::ZERO));
    let opened = Rc::clone(&start);
    kernel
        .spawn("parent", async move |os: &mut Os| {
            // Opens when everybody waits at it.
            let gate = os.spawn("gate", async move |os| {
                os.sleep(Duration::from_secs(1)).await;
                opened.set(cpu_time());
            });
            let gate = gate.await.expect("there is room for a task");
            for n in 0..TASKS {
                os.spawn_detached("sleeper", async move |os| {
                    os.wait(gate).await.expect("the gate opens");
                    os.sleep(span(n)).await;
                })
                .await
                .expect("there is room for the tasks");
            }
        })
        .expect("there is room for a task");
    kernel.run().expect("every sleep comes to an end");
    cpu_time() - start.get()
}

fn tokio() -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime needs no more than a kernel");
    runtime.block_on(async {
        let first = tokio::spawn(async {
            tokio::task::yield_now().await;
            cpu_time()
        });
        let sleepers: Vec<_> = (0..TASKS)
            .map(|n| {
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    tokio::time::sleep(span(n)).await;
                })
            })
            .collect();
        let start = first.await.expect("the task ends well");
        for sleeper in sleepers {
            sleeper.await.expect("the sleeper ends well");
        }
        cpu_time() - start
    })
}
