//! Spawn, exit, wait: a parent starts a child that ends at once, and waits for it.
//!
//! The lower bound is a generator in a box that is made, resumed to its end, and dropped.

use std::{cell::Cell, hint::black_box, pin::Pin, rc::Rc, time::Duration};

use genawaiter::{
    Coroutine,
    rc::{Co, Gen},
};
use trapline::{Kernel, Os};

use crate::{
    Plan,
    contest::Contest,
    meter::{cpu_time, ns_each},
};

const CHILDREN: usize = 500_000;

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let children = plan.times(CHILDREN);
    let each = move |time| ns_each(time, children);
    vec![
        Contest::new("spawn, exit, wait", plan.rounds, &["ns per child"])
            .enter("trapline", move || each(trapline(children)))
            .enter("raw Gen, boxed as dyn", move || each(raw_dyn(children)))
            .enter("tokio", move || each(tokio(children)))
            .enter("async-executor", move || each(async_executor(children)))
            .enter("monoio", move || each(monoio(children)))
            .enter_peers(plan, 2, |peer| {
                Some(vec!["spawn".into(), peer.share(children).to_string()])
            }),
    ]
}

fn trapline(children: usize) -> Duration {
    let mut kernel = Kernel::simulated(0);
    let time = Rc::new(Cell::new(Duration::ZERO));
    let parent = Rc::clone(&time);
    kernel
        .spawn("parent", async move |os: &mut Os| {
            let start = cpu_time();
            for _ in 0..children {
                let child = os
                    .spawn("child", async |_| ())
                    .await
                    .expect("there is room");
                os.wait(child).await.expect("no other task waits");
            }
            parent.set(cpu_time() - start);
        })
        .expect("there is room for a task");
    kernel.run().expect("the parent comes to an end");
    time.get()
}

fn raw_dyn(children: usize) -> Duration {
    type Boxed = Pin<Box<dyn Coroutine<Yield = u64, Resume = u64, Return = ()>>>;
    let start = cpu_time();
    for _ in 0..children {
        let child = |_: Co<u64, u64>| async {};
        let mut child: Boxed = black_box(Box::pin(Gen::new(child)));
        black_box(child.as_mut().resume_with(0));
    }
    cpu_time() - start
}

fn tokio(children: usize) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime needs no more than a kernel");
    runtime.block_on(async {
        let parent = tokio::spawn(async move {
            let start = cpu_time();
            for _ in 0..children {
                tokio::spawn(async {}).await.expect("the child ends well");
            }
            cpu_time() - start
        });
        parent.await.expect("the parent ends well")
    })
}

fn async_executor(children: usize) -> Duration {
    let executor = async_executor::LocalExecutor::new();
    futures_lite::future::block_on(executor.run(async {
        let start = cpu_time();
        for _ in 0..children {
            executor.spawn(async {}).await;
        }
        cpu_time() - start
    }))
}

fn monoio(children: usize) -> Duration {
    let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new()
        .build()
        .expect("a runtime needs no more than a kernel");
    runtime.block_on(async {
        let start = cpu_time();
        for _ in 0..children {
            monoio::spawn(async {}).await;
        }
        cpu_time() - start
    })
}
