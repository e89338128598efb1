//! Timeouts: a timer is armed around a call, and cancelled when the call returns.
//!
//! The call is a yield, since some runtimes arm a timer only for a call that waits. One task does
//! it alone, or beside a million tasks that sleep for a long time. The clock is the real one, and
//! is read for each timeout.

use std::{cell::Cell, rc::Rc, time::Duration};

use futures_lite::{FutureExt, future};
use trapline::{Kernel, Os};

use crate::{
    Plan,
    contest::Contest,
    meter::{cpu_time, ns_each, process_time},
};

const TIMEOUTS: usize = 500_000;
const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let contest = |others: usize| {
        let count = plan.times(TIMEOUTS);
        let each = move |time| ns_each(time, count);
        let name = match others {
            0 => "timeout armed and cancelled".into(),
            others => format!("timeout armed and cancelled, beside {others} sleepers"),
        };
        Contest::new(name, plan.rounds.min(5), &["ns per timeout"])
            .enter("trapline", move || {
                let kernel = Kernel::real().expect("there are descriptors left");
                each(trapline(kernel, others, count))
            })
            .enter("trapline, virtual clock", move || {
                each(trapline(Kernel::simulated(0), others, count))
            })
            .enter("tokio", move || each(tokio(others, count)))
            .enter("async-io", move || each(async_io(others, count)))
            .enter("monoio", move || each(monoio(others, count)))
            .enter_peers(plan, others, |peer| {
                let [others, count] = [others, peer.share(count)].map(|n| n.to_string());
                (peer.name != "pyos").then(|| vec!["timeouts".into(), others, count])
            })
    };
    vec![contest(0), contest(plan.million())]
}

/// Deadlines in random order, as real ones are, and later than any that is cancelled.
fn span(n: usize) -> Duration {
    2 * HOUR + Duration::from_millis(n as u64 * 7919 % 1_000_003)
}

fn trapline(mut kernel: Kernel, others: usize, count: usize) -> Duration {
    let time = Rc::new(Cell::new(Duration::ZERO));
    let told = Rc::clone(&time);
    kernel
        .spawn("task", async move |os: &mut Os| {
            for n in 0..others {
                os.spawn_detached("sleeper", async move |os| os.sleep(span(n)).await)
                    .await
                    .expect("there is room for the tasks");
            }
            os.yield_now().await;
            let start = cpu_time();
            for _ in 0..count {
                let body = os.timeout(HOUR, async |os| os.yield_now().await).await;
                assert_eq!(body, Ok(()));
            }
            told.set(cpu_time() - start);
            os.shutdown().await;
        })
        .expect("there is room for a task");
    kernel.run().expect("it is shut down");
    time.get()
}

fn tokio(others: usize, count: usize) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime needs no more than a kernel");
    runtime.block_on(async {
        for n in 0..others {
            tokio::spawn(tokio::time::sleep(span(n)));
        }
        let task = tokio::spawn(async move {
            let start = cpu_time();
            for _ in 0..count {
                let body = tokio::time::timeout(HOUR, tokio::task::yield_now()).await;
                assert_eq!(body, Ok(()));
            }
            cpu_time() - start
        });
        task.await.expect("the task ends well")
    })
}

/// Keeps its timers in a process-wide reactor with a thread, and that thread's time counts.
fn async_io(others: usize, count: usize) -> Duration {
    let executor = async_executor::LocalExecutor::new();
    for n in 0..others {
        executor.spawn(async_io::Timer::after(span(n))).detach();
    }
    let task = executor.spawn(async move {
        let start = process_time();
        for _ in 0..count {
            let timer = async {
                async_io::Timer::after(HOUR).await;
                false
            };
            let body = async {
                future::yield_now().await;
                true
            };
            assert!(timer.or(body).await);
        }
        process_time() - start
    });
    async_io::block_on(executor.run(task))
}

fn monoio(others: usize, count: usize) -> Duration {
    let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new()
        .enable_timer()
        .build()
        .expect("a runtime needs no more than a kernel");
    runtime.block_on(async move {
        for n in 0..others {
            monoio::spawn(monoio::time::sleep(span(n)));
        }
        let task = monoio::spawn(async move {
            let start = cpu_time();
            for _ in 0..count {
                let body = monoio::time::timeout(HOUR, future::yield_now()).await;
                assert!(body.is_ok());
            }
            cpu_time() - start
        });
        task.await
    })
}
