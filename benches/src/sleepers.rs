//! Sleepers: a million tasks that each sleep once, with deadlines in random order.
//!
//! All tasks have started when the clock is read. The sleeps and the ends of the tasks are
//! measured. The figure is CPU time, since on a real clock the sleeps take up to a second.

use std::{cell::Cell, rc::Rc, time::Duration};

use tokio::sync::watch;
use trapline::{Kernel, Os};

use crate::{
    Plan,
    contest::Contest,
    meter::{ns_each, process_time},
};

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let tasks = plan.million();
    let each = move |time| ns_each(time, tasks);
    let contest = |clock| {
        let name = format!("sleepers, {tasks}, {clock} clock");
        Contest::new(name, plan.rounds.min(5), &["ns of CPU per sleep"])
    };
    vec![
        contest("virtual")
            .enter("trapline", move || {
                each(trapline(Kernel::simulated(0), tasks))
            })
            .enter("tokio", move || each(tokio(true, tasks))),
        contest("real")
            .enter("trapline", move || {
                let kernel = Kernel::real().expect("there are descriptors left");
                each(trapline(kernel, tasks))
            })
            .enter("tokio", move || each(tokio(false, tasks)))
            .enter("async-io", move || each(async_io(tasks)))
            .enter("monoio", move || each(monoio(tasks)))
            .enter_peers(plan, tasks, |_| {
                Some(vec!["sleepers".into(), tasks.to_string()])
            }),
    ]
}

/// Whole milliseconds, up to a second: tokio's timers have no finer unit.
fn span(n: usize) -> Duration {
    Duration::from_millis(1 + n as u64 * 7919 % 1000)
}

fn trapline(mut kernel: Kernel, tasks: usize) -> Duration {
    let start = Rc::new(Cell::new(Duration::ZERO));
    let opened = Rc::clone(&start);
    kernel
        .spawn("parent", async move |os: &mut Os| {
            // Opens when all tasks wait at it.
            let gate = os.spawn("gate", async move |os| {
                os.sleep(Duration::from_secs(2)).await;
                opened.set(process_time());
            });
            let gate = gate.await.expect("there is room for a task");
            for n in 0..tasks {
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
    process_time() - start.get()
}

/// A future that waits for the gate and sleeps.
async fn sleeper<S: Future>(mut gate: watch::Receiver<()>, sleep: impl FnOnce() -> S) {
    gate.changed().await.expect("the gate opens");
    sleep().await;
}

fn tokio(is_virtual: bool, tasks: usize) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(is_virtual)
        .build()
        .expect("a runtime needs no more than a kernel");
    runtime.block_on(async {
        let (opener, gate) = watch::channel(());
        let sleeper = |n| sleeper(gate.clone(), move || tokio::time::sleep(span(n)));
        let sleepers: Vec<_> = (0..tasks).map(|n| tokio::spawn(sleeper(n))).collect();
        // After all others.
        tokio::spawn(async {}).await.expect("the task ends well");
        let start = process_time();
        opener.send_replace(());
        for sleeper in sleepers {
            sleeper.await.expect("the sleeper ends well");
        }
        process_time() - start
    })
}

fn async_io(tasks: usize) -> Duration {
    let executor = async_executor::LocalExecutor::new();
    async_io::block_on(executor.run(async {
        let (opener, gate) = watch::channel(());
        let sleeper = |n| sleeper(gate.clone(), move || async_io::Timer::after(span(n)));
        let sleepers: Vec<_> = (0..tasks).map(|n| executor.spawn(sleeper(n))).collect();
        executor.spawn(async {}).await;
        let start = process_time();
        opener.send_replace(());
        for sleeper in sleepers {
            sleeper.await;
        }
        process_time() - start
    }))
}

fn monoio(tasks: usize) -> Duration {
    let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new()
        .enable_timer()
        .build()
        .expect("a runtime needs no more than a kernel");
    runtime.block_on(async {
        let (opener, gate) = watch::channel(());
        let sleeper = |n| sleeper(gate.clone(), move || monoio::time::sleep(span(n)));
        let sleepers: Vec<_> = (0..tasks).map(|n| monoio::spawn(sleeper(n))).collect();
        monoio::spawn(async {}).await;
        let start = process_time();
        opener.send_replace(());
        for sleeper in sleepers {
            sleeper.await;
        }
        process_time() - start
    })
}
