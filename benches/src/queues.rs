//! Queues: two tasks and the messages between them, a word each.
//!
//! A round trip goes through two queues of 1, and both tasks block at each message. Through a queue
//! of 64 messages flow one way. The task that measures begins after a first message, so neither
//! spawning nor ending is measured.
//!
//! Async-channel belongs to no runtime, and is measured on two.

use std::{cell::Cell, rc::Rc, time::Duration};

use trapline::{Kernel, Os, Queue, SimWorld};

use crate::{
    Plan,
    contest::Contest,
    meter::{cpu_time, ns_each},
};

const TRIPS: usize = 500_000;
const MESSAGES: usize = 2_000_000;

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let (trips, messages) = (plan.times(TRIPS), plan.times(MESSAGES));
    let trip = move |time| ns_each(time, trips);
    let message = move |time| ns_each(time, messages);
    vec![
        Contest::new(
            "queue of 1, round trip",
            plan.rounds,
            &["ns per round trip"],
        )
        .enter("trapline", move || trip(trapline_trips(trips)))
        .enter("tokio mpsc", move || trip(on_tokio(mpsc_trips(trips))))
        .enter("async-channel on tokio", move || {
            trip(on_tokio(async_channel_trips(trips)))
        })
        .enter("async-channel on async-executor", move || {
            trip(on_async_executor(async_channel_trips(trips)))
        })
        .enter_peers(plan, 2, |peer| {
            Some(vec!["trips".into(), peer.share(trips).to_string()])
        }),
        Contest::new("queue of 64, one way", plan.rounds, &["ns per message"])
            .enter("trapline", move || message(trapline_flow(messages, 1)))
            .enter("trapline, quantum 64", move || {
                message(trapline_flow(messages, 64))
            })
            .enter("tokio mpsc", move || message(on_tokio(mpsc_flow(messages))))
            .enter("async-channel on tokio", move || {
                message(on_tokio(async_channel_flow(messages)))
            })
            .enter("async-channel on async-executor", move || {
                message(on_async_executor(async_channel_flow(messages)))
            })
            .enter_peers(plan, 2, |peer| {
                Some(vec!["flow".into(), peer.share(messages).to_string()])
            }),
    ]
}

const OPEN: &str = "the other end is open as long as there are messages";

fn trapline_trips(trips: usize) -> Duration {
    let mut kernel = Kernel::simulated(0);
    let time = Rc::new(Cell::new(Duration::ZERO));
    let told = Rc::clone(&time);
    kernel
        .spawn("ping", async move |os: &mut Os| {
            let there = Queue::bounded(os, 1).await;
            let back = Queue::bounded(os, 1).await;
            let (inbox, outbox) = (there.clone(), back.clone());
            os.spawn_detached("pong", async move |os| {
                while let Ok(n) = inbox.get(os).await {
                    outbox.put(os, n).await.expect(OPEN);
                }
            })
            .await
            .expect("there is room for a task");
            let mut start = Duration::ZERO;
            for n in 0..=trips {
                if n == 1 {
                    start = cpu_time();
                }
                there.put(os, n).await.expect(OPEN);
                assert_eq!(back.get(os).await, Ok(n));
            }
            told.set(cpu_time() - start);
            there.close(os).await;
        })
        .expect("there is room for a task");
    kernel.run().expect("both tasks come to an end");
    time.get()
}

fn trapline_flow(messages: usize, quantum: u32) -> Duration {
    let mut kernel = Kernel::builder()
        .world(SimWorld::new(0))
        .quantum(quantum)
        .build()
        .expect("a simulated world needs nothing");
    let time = Rc::new(Cell::new(Duration::ZERO));
    let told = Rc::clone(&time);
    kernel
        .spawn("consumer", async move |os: &mut Os| {
            let queue = Queue::bounded(os, 64).await;
            let source = queue.clone();
            os.spawn_detached("producer", async move |os| {
                for n in 0..=messages {
                    source.put(os, n).await.expect(OPEN);
                }
            })
            .await
            .expect("there is room for a task");
            queue.get(os).await.expect(OPEN);
            let start = cpu_time();
            for n in 1..=messages {
                assert_eq!(queue.get(os).await, Ok(n));
            }
            told.set(cpu_time() - start);
        })
        .expect("there is room for a task");
    kernel.run().expect("both tasks come to an end");
    time.get()
}

fn mpsc_trips(trips: usize) -> (impl Future<Output = Duration>, impl Future<Output = ()>) {
    let (there, mut inbox) = tokio::sync::mpsc::channel(1);
    let (outbox, mut back) = tokio::sync::mpsc::channel(1);
    let ping = async move {
        let mut start = Duration::ZERO;
        for n in 0..=trips {
            if n == 1 {
                start = cpu_time();
            }
            there.send(n).await.expect(OPEN);
            assert_eq!(back.recv().await, Some(n));
        }
        cpu_time() - start
    };
    let pong = async move {
        while let Some(n) = inbox.recv().await {
            outbox.send(n).await.expect(OPEN);
        }
    };
    (ping, pong)
}

fn mpsc_flow(messages: usize) -> (impl Future<Output = Duration>, impl Future<Output = ()>) {
    let (source, mut queue) = tokio::sync::mpsc::channel(64);
    let consumer = async move {
        queue.recv().await.expect(OPEN);
        let start = cpu_time();
        for n in 1..=messages {
            assert_eq!(queue.recv().await, Some(n));
        }
        cpu_time() - start
    };
    let producer = async move {
        for n in 0..=messages {
            source.send(n).await.expect(OPEN);
        }
    };
    (consumer, producer)
}

fn async_channel_trips(trips: usize) -> (impl Future<Output = Duration>, impl Future<Output = ()>) {
    let (there, inbox) = async_channel::bounded(1);
    let (outbox, back) = async_channel::bounded(1);
    let ping = async move {
        let mut start = Duration::ZERO;
        for n in 0..=trips {
            if n == 1 {
                start = cpu_time();
            }
            there.send(n).await.expect(OPEN);
            assert_eq!(back.recv().await, Ok(n));
        }
        cpu_time() - start
    };
    let pong = async move {
        while let Ok(n) = inbox.recv().await {
            outbox.send(n).await.expect(OPEN);
        }
    };
    (ping, pong)
}

fn async_channel_flow(
    messages: usize,
) -> (impl Future<Output = Duration>, impl Future<Output = ()>) {
    let (source, queue) = async_channel::bounded(64);
    let consumer = async move {
        queue.recv().await.expect(OPEN);
        let start = cpu_time();
        for n in 1..=messages {
            assert_eq!(queue.recv().await, Ok(n));
        }
        cpu_time() - start
    };
    let producer = async move {
        for n in 0..=messages {
            source.send(n).await.expect(OPEN);
        }
    };
    (consumer, producer)
}

fn on_tokio<T: Send + 'static>(
    (meter, other): (
        impl Future<Output = T> + Send + 'static,
        impl Future<Output = ()> + Send + 'static,
    ),
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime needs no more than a kernel");
    runtime.block_on(async {
        let meter = tokio::spawn(meter);
        tokio::spawn(other);
        meter.await.expect("the task ends well")
    })
}

fn on_async_executor<T>((meter, other): (impl Future<Output = T>, impl Future<Output = ()>)) -> T {
    let executor = async_executor::LocalExecutor::new();
    let meter = executor.spawn(meter);
    executor.spawn(other).detach();
    futures_lite::future::block_on(executor.run(meter))
}
