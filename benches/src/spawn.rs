//! Spawn, exit, wait: a parent starts a child that ends at once, and waits for it.

use std::{cell::Cell, rc::Rc, time::Duration};

use trapline::{Kernel, Os};

use crate::{
    contest::Contest,
    meter::{cpu_time, ns_each},
};

const CHILDREN: usize = 500_000;

pub(crate) fn contests(rounds: usize) -> Vec<Contest> {
    let each = |time| ns_each(time, CHILDREN);
    vec![
        Contest::new("spawn, exit, wait", rounds, &["ns per child"])
            .enter("trapline", move || each(trapline()))
            .enter("tokio", move || each(tokio()))
            .enter("async-executor", move || each(async_executor()))
            .enter("monoio", move || each(monoio())),
    ]
}

fn trapline() -> Duration {
    let mut kernel = Kernel::simulated(0);
    let time = Rc::new(Cell::new(Duration::ZERO));
    let parent = Rc::clone(&time);
    kernel
        .spawn("parent", async move |os: &mut Os| {
            let start = cpu_time();
            for _ in 0..CHILDREN {
                let child = os
                    .spawn("child", async |_| ())
                    .await
                    .expect("there is room");
                os.wait(child).await.expect("nobody else waits");
            }
            parent.set(cpu_time() - start);
        })
        .expect("there is room for a task");
    kernel.run().expect("the parent comes to an end");
    time.get()
}

fn tokio() -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime needs no more than a kernel");
    runtime.block_on(async {
        let parent = tokio::spawn(async {
            let start = cpu_time();
            for _ in 0..CHILDREN {
                tokio::spawn(async {}).await.expect("the child ends well");
            }
            cpu_time() - start
        });
        parent.await.expect("the parent ends well")
    })
}

fn async_executor() -> Duration {
    let executor = async_executor::LocalExecutor::new();
    futures_lite::future::block_on(executor.run(async {
        let start = cpu_time();
        for _ in 0..CHILDREN {
            executor.spawn(async {}).await;
        }
        cpu_time() - start
    }))
}

fn monoio() -> Duration {
    let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new()
        .build()
        .expect("a runtime needs no more than a kernel");
    runtime.block_on(async {
        let start = cpu_time();
        for _ in 0..CHILDREN {
            monoio::spawn(async {}).await;
        }
        cpu_time() - start
    })
}
