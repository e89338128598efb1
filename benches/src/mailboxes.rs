//! Mailboxes: messages of a word, one way from a thread to another. Both threads run on the same machine's
//! cores, wherever the system places them, and each has a kernel or a runtime of its own.
//!
//! The consumer measures from its first message to its last.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use tokio::sync::mpsc as tokio_mpsc;
use trapline::{Kernel, Kernels, Mailbox, Os, Sender};

use crate::{
    Plan,
    contest::Contest,
    meter::{ns_each, process_time},
};

const MESSAGES: usize = 2_000_000;
const OPEN: &str = "the other end is open as long as there are messages";

/// The time on the clock, and that of the process's CPUs.
type Times = (Duration, Duration);

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let messages = plan.times(MESSAGES);
    let contest = |name: &str| {
        let units = &["ns per message", "ns of CPU per message"];
        Contest::new(name, plan.rounds, units)
    };
    let each = move |(wall, cpu)| Ok(vec![ns_each(wall, messages), ns_each(cpu, messages)]);
    vec![
        contest("mailbox of 64 between threads")
            .enter_many("trapline", move || {
                each(kernels(Mailbox::bounded(64), messages))
            })
            .enter_many("tokio mpsc", move || {
                let (sender, mut receiver) = tokio_mpsc::channel(64);
                let put = async move |n| sender.send(n).await.expect(OPEN);
                let get = async move || receiver.recv().await;
                each(runtimes(messages, put, get))
            }),
        contest("mailbox without a bound between threads")
            .enter_many("trapline", move || {
                each(kernels(Mailbox::unbounded(), messages))
            })
            .enter_many("tokio mpsc", move || {
                let (sender, mut receiver) = tokio_mpsc::unbounded_channel();
                let put = async move |n| sender.send(n).expect(OPEN);
                let get = async move || receiver.recv().await;
                each(runtimes(messages, put, get))
            }),
    ]
}

fn kernels((sender, mailbox): (Sender<usize>, Mailbox<usize>), messages: usize) -> Times {
    let (told, times) = mpsc::channel();
    let reports = Kernels::new(2).unpinned().run(move |id| {
        let mut kernel = Kernel::real()?;
        if id.index() == 0 {
            let sender = sender.clone();
            kernel.spawn("producer", async move |os: &mut Os| {
                for n in 0..=messages {
                    sender.put(os, n).await.expect(OPEN);
                }
            })?;
        } else {
            let (mailbox, told) = (mailbox.clone(), told.clone());
            kernel.spawn("consumer", async move |os: &mut Os| {
                mailbox.get(os).await.expect(OPEN);
                let (start, cpu) = (Instant::now(), process_time());
                for n in 1..=messages {
                    assert_eq!(mailbox.get(os).await, Ok(n));
                }
                let _ = told.send((start.elapsed(), process_time() - cpu));
            })?;
        }
        Ok(kernel)
    });
    for report in reports {
        report.expect("both tasks come to an end");
    }
    times.recv().expect("the consumer has told them")
}

fn runtimes(
    messages: usize,
    put: impl AsyncFn(usize) + Send + 'static,
    mut get: impl AsyncFnMut() -> Option<usize>,
) -> Times {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime needs no more than a kernel")
    };
    let producer = thread::spawn(move || {
        runtime().block_on(async {
            for n in 0..=messages {
                put(n).await;
            }
        });
    });
    let times = runtime().block_on(async {
        get().await.expect(OPEN);
        let (start, cpu) = (Instant::now(), process_time());
        for n in 1..=messages {
            assert_eq!(get().await, Some(n));
        }
        (start.elapsed(), process_time() - cpu)
    });
    producer.join().expect("the producer comes to an end");
    times
}
