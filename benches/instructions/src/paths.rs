//! The hot paths. Each does its work `laps` times, on the public API, in the simulated world.

use std::{cell::Cell, rc::Rc, time::Duration};

use trapline::{
    Calls, Error, Fifo, Kernel, Limits, Mailbox, Os, Queue, SimWorld, Source, check,
    sync::{Condition, Flag, Mutex, Semaphore},
};

use crate::{guests, lines, ring::Ring, sockets};

pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) run: fn(laps: u64),
    /// The number of operations in a lap.
    pub(crate) operations: u64,
    /// The number of measured laps; as many before them are not measured.
    pub(crate) laps: u64,
}

pub(crate) const PATHS: [Path; 29] = [
    Path {
        name: "get_tid",
        run: get_tid,
        operations: 1,
        laps: 20_000,
    },
    Path {
        name: "get_tid-with-ring",
        run: get_tid_with_ring,
        operations: 1,
        laps: 20_000,
    },
    Path {
        name: "get_tid-beside-limits",
        run: get_tid_beside_limits,
        operations: 1,
        laps: 20_000,
    },
    Path {
        name: "get_tid-among-100",
        run: get_tid_among_100,
        operations: 100,
        laps: 500,
    },
    Path {
        name: "get_tid-under-a-policy",
        run: get_tid_under_a_policy,
        operations: 100,
        laps: 500,
    },
    Path {
        name: "spawn-exit-wait",
        run: spawn_exit_wait,
        operations: 1,
        laps: 5_000,
    },
    Path {
        name: "queue-of-1-round-trip",
        run: queue_of_1,
        operations: 1,
        laps: 5_000,
    },
    Path {
        name: "queue-of-64-message",
        run: queue_of_64,
        operations: 1,
        laps: 20_000,
    },
    Path {
        name: "get-that-blocks",
        run: |laps| message(0, laps),
        operations: 1,
        laps: 5_000,
    },
    Path {
        name: "select-of-2-and-get",
        run: |laps| message(2, laps),
        operations: 1,
        laps: 5_000,
    },
    Path {
        name: "select-of-10-and-get",
        run: |laps| message(10, laps),
        operations: 1,
        laps: 1_000,
    },
    Path {
        name: "message-to-10-selecting-tasks",
        run: |laps| selecting_tasks(10, laps),
        operations: 1,
        laps: 10_000,
    },
    Path {
        name: "message-to-10000-selecting-tasks",
        run: |laps| selecting_tasks(10_000, laps),
        operations: 1,
        laps: 10_000,
    },
    Path {
        name: "select-of-1000-and-get",
        run: |laps| message(1000, laps),
        operations: 1,
        laps: 50,
    },
    Path {
        name: "permit",
        run: permit,
        operations: 1,
        laps: 20_000,
    },
    Path {
        name: "permit-that-blocks",
        run: permit_that_blocks,
        operations: 2,
        laps: 5_000,
    },
    Path {
        name: "sleep-alone",
        run: |laps| sleep_among(1, laps),
        operations: 1,
        laps: 20_000,
    },
    Path {
        name: "sleep-among-10000",
        run: |laps| sleep_among(10_000, laps),
        operations: 10_000,
        laps: 4,
    },
    Path {
        name: "timeout-armed-cancelled",
        run: timeout,
        operations: 1,
        laps: 20_000,
    },
    Path {
        name: "recv-that-blocks-among-100",
        run: |laps| sockets::read_among(100, laps, None),
        operations: 100,
        laps: 200,
    },
    Path {
        name: "recv-within-a-timeout",
        run: |laps| sockets::read_among(100, laps, Some(Duration::from_secs(60))),
        operations: 100,
        laps: 200,
    },
    Path {
        name: "mailbox-of-64-message",
        run: mailbox_of_64,
        operations: 1,
        laps: 20_000,
    },
    Path {
        name: "line-by-hand",
        run: |laps| lines::run(laps, lines::by_hand),
        operations: 1,
        laps: 20_000,
    },
    Path {
        name: "line-of-a-reader",
        run: |laps| lines::run(laps, lines::by_reader),
        operations: 1,
        laps: 20_000,
    },
    Path {
        name: "guest-wakes-itself",
        run: guests::wakes_itself,
        operations: 1,
        laps: 20_000,
    },
    Path {
        name: "guest-wakes-another",
        run: guests::wake_each_other,
        operations: 2,
        laps: 5_000,
    },
    Path {
        name: "schedule-of-a-counter",
        run: |laps| schedules(laps, counter),
        operations: 1,
        laps: 1_000,
    },
    Path {
        name: "schedule-of-two-locks",
        run: |laps| schedules(laps, locks),
        operations: 1,
        laps: 1_000,
    },
    Path {
        name: "schedule-of-a-buffer",
        run: |laps| schedules(laps, buffer),
        operations: 1,
        laps: 1_000,
    },
];

fn run(mut kernel: Kernel, name: &str, program: impl AsyncFnOnce(&mut Os) + 'static) {
    kernel
        .spawn(name, program)
        .expect("there is room for a task");
    kernel.run().expect("the tasks come to an end");
}

fn get_tid(laps: u64) {
    run(Kernel::simulated(0), "task", async move |os| {
        for _ in 0..laps {
            os.get_tid().await;
        }
    });
}

fn get_tid_with_ring(laps: u64) {
    let kernel = Kernel::builder()
        .world(SimWorld::new(0))
        .tracer(Ring::new());
    let kernel = kernel.build().expect("a simulated world needs nothing");
    run(kernel, "task", async move |os| {
        for _ in 0..laps {
            os.get_tid().await;
        }
    });
}

/// A task without limits, while one with limits lives and has made calls.
fn get_tid_beside_limits(laps: u64) {
    let mut kernel = Kernel::simulated(0);
    let limits = Limits::new().deny([Calls::NETWORK]);
    let guest = kernel.spawn_with(limits, "guest", async |os: &mut Os| {
        os.get_tid().await;
        os.sleep(Duration::from_secs(1)).await;
    });
    guest.expect("there is room");
    run(kernel, "task", async move |os| {
        for _ in 0..laps {
            os.get_tid().await;
        }
    });
}

fn get_tid_among_100(laps: u64) {
    get_tid_of_100(Kernel::simulated(0), laps);
}

fn get_tid_under_a_policy(laps: u64) {
    let kernel = Kernel::builder()
        .world(SimWorld::new(0))
        .policy(Fifo::default());
    let kernel = kernel.build().expect("a simulated world needs nothing");
    get_tid_of_100(kernel, laps);
}

fn get_tid_of_100(kernel: Kernel, laps: u64) {
    run(kernel, "parent", async move |os| {
        for _ in 0..100 {
            os.spawn_detached("task", async move |os| {
                for _ in 0..laps {
                    os.get_tid().await;
                }
            })
            .await
            .expect("there is room for the tasks");
        }
    });
}

fn spawn_exit_wait(laps: u64) {
    run(Kernel::simulated(0), "parent", async move |os| {
        for _ in 0..laps {
            let child = os.spawn("child", async |_| ()).await;
            let child = child.expect("there is room for a task");
            os.wait(child).await.expect("no other task waits");
        }
    });
}

fn queue_of_1(laps: u64) {
    run(Kernel::simulated(0), "ping", async move |os| {
        let there = Queue::bounded(os, 1).await;
        let back = Queue::bounded(os, 1).await;
        let (inbox, outbox) = (there.clone(), back.clone());
        os.spawn_detached("pong", async move |os| {
            while let Ok(n) = inbox.get(os).await {
                outbox.put(os, n).await.expect("it is open");
            }
        })
        .await
        .expect("there is room for a task");
        for n in 0..laps {
            there.put(os, n).await.expect("it is open");
            assert_eq!(back.get(os).await, Ok(n));
        }
        there.close(os).await;
    });
}

fn queue_of_64(laps: u64) {
    run(Kernel::simulated(0), "consumer", async move |os| {
        let queue = Queue::bounded(os, 64).await;
        let source = queue.clone();
        os.spawn_detached("producer", async move |os| {
            for n in 0..laps {
                source.put(os, n).await.expect("it is open");
            }
        })
        .await
        .expect("there is room for a task");
        for n in 0..laps {
            assert_eq!(queue.get(os).await, Ok(n));
        }
    });
}

/// A producer and a consumer in one kernel: what a mailbox takes without another core.
fn mailbox_of_64(laps: u64) {
    let (sender, mailbox) = Mailbox::bounded(64);
    let mut kernel = Kernel::simulated(0);
    let producer = async move |os: &mut Os| {
        for n in 0..laps {
            sender.put(os, n).await.expect("it is open");
        }
    };
    kernel.spawn("producer", producer).expect("there is room");
    run(kernel, "consumer", async move |os| {
        for n in 0..laps {
            assert_eq!(mailbox.get(os).await, Ok(n));
        }
    });
}

/// A message for a task that waits for it: in a get, or in a select of so many queues before it.
fn message(sources: usize, laps: u64) {
    run(Kernel::simulated(0), "putter", async move |os| {
        let mut queues = Vec::new();
        for _ in 0..sources.max(1) {
            queues.push(Queue::bounded(os, 1).await);
        }
        let queue = queues[0].clone();
        os.spawn_detached("getter", async move |os| {
            loop {
                if sources > 0 {
                    let sources: Vec<Source> = queues.iter().map(Source::message).collect();
                    os.select(&sources).await;
                }
                if queues[0].get(os).await.is_err() {
                    return;
                }
            }
        })
        .await
        .expect("there is room for a task");
        for n in 0..laps {
            queue.put(os, n).await.expect("it is open");
            os.yield_now().await;
            os.yield_now().await;
        }
        queue.close(os).await;
    });
}

fn sleep_among(tasks: u64, laps: u64) {
    run(Kernel::simulated(0), "parent", async move |os| {
        for task in 0..tasks {
            os.spawn_detached("sleeper", async move |os| {
                for lap in 0..laps {
                    // Deadlines in random order, as real ones are.
                    let span = 1 + (task * 7919 + lap * 104_729) % 1_000_003;
                    os.sleep(Duration::from_micros(span)).await;
                }
            })
            .await
            .expect("there is room for the tasks");
        }
    });
}

fn timeout(laps: u64) {
    run(Kernel::simulated(0), "task", async move |os| {
        for n in 0..laps {
            let body = os.timeout(Duration::from_secs(1), async |_| n).await;
            assert_eq!(body, Ok(n));
        }
    });
}

/// One permit of two, taken and given back.
fn permit(laps: u64) {
    run(Kernel::simulated(0), "task", async move |os| {
        let permits = Semaphore::new(os, 2).await;
        for _ in 0..laps {
            drop(permits.acquire(os).await);
        }
    });
}

/// Two tasks take turns with one permit: each waits for it.
fn permit_that_blocks(laps: u64) {
    run(Kernel::simulated(0), "main", async move |os| {
        let permits = Semaphore::new(os, 1).await;
        for _ in 0..2 {
            let permits = permits.clone();
            let task = async move |os: &mut Os| {
                for _ in 0..laps {
                    let _permit = permits.acquire(os).await;
                    os.yield_now().await;
                }
            };
            os.spawn("task", task).await.expect("there is room");
        }
    });
}

/// Messages for tasks that each select one flag and a queue of their own.
fn selecting_tasks(tasks: usize, laps: u64) {
    run(Kernel::simulated(0), "putter", async move |os: &mut Os| {
        let stop = Flag::new(os).await;
        let mut queues = Vec::new();
        for _ in 0..tasks {
            let (stop, own) = (stop.clone(), Queue::<u64>::bounded(os, 1).await);
            queues.push(own.clone());
            let worker = async move |os: &mut Os| {
                while os
                    .select(&[Source::flag(&stop), Source::message(&own)])
                    .await
                    == 1
                {
                    own.get(os).await.expect("it is open");
                }
            };
            os.spawn_detached("worker", worker)
                .await
                .expect("there is room for a task");
        }
        for lap in 0..laps {
            let queue = &queues[lap as usize % tasks];
            queue.put(os, lap).await.expect("it is open");
            os.yield_now().await;
        }
        stop.set(os).await;
    });
}

/// Random schedules of a program: one is a kernel as new, and a run.
fn schedules(laps: u64, program: fn(&mut Kernel) -> Result<(), Error>) {
    check(program).without_environment().schedules(laps).run();
}

/// Two tasks that each add to a number, with a turn of the other between the read and the write.
fn counter(kernel: &mut Kernel) -> Result<(), Error> {
    let sum = Rc::new(Cell::new(0));
    let main = async move |os: &mut Os| {
        let add = || {
            let sum = Rc::clone(&sum);
            async move |os: &mut Os| {
                let read = sum.get();
                os.yield_now().await;
                sum.set(read + 1);
            }
        };
        wait_all(os, [add(), add()]).await;
    };
    kernel.spawn("main", main)?;
    kernel.run().map(drop)
}

/// Two tasks that each take two locks.
fn locks(kernel: &mut Kernel) -> Result<(), Error> {
    let main = async |os: &mut Os| {
        let (a, b) = (Mutex::new(os, 0).await, Mutex::new(os, 0).await);
        let both = || {
            let (a, b) = (a.clone(), b.clone());
            async move |os: &mut Os| {
                let mut a = a.lock(os).await.expect("no task dies");
                let mut b = b.lock(os).await.expect("no task dies");
                *a += 1;
                *b += 1;
            }
        };
        wait_all(os, [both(), both()]).await;
    };
    kernel.spawn("main", main)?;
    kernel.run().map(drop)
}

/// Cargill's bounded buffer: two readers and a writer at one condition.
fn buffer(kernel: &mut Kernel) -> Result<(), Error> {
    let main = async |os: &mut Os| {
        let (full, changed) = (Mutex::new(os, false).await, Condition::new(os).await);
        let turns = |when: bool, times: usize| {
            let (full, changed) = (full.clone(), changed.clone());
            async move |os: &mut Os| {
                for _ in 0..times {
                    let mut is_full = full.lock(os).await.expect("no task dies");
                    while *is_full != when {
                        is_full = changed.wait(os, is_full).await.expect("no task dies");
                    }
                    *is_full = !when;
                    changed.notify_all(os).await;
                }
            }
        };
        wait_all(os, [turns(true, 2), turns(true, 2), turns(false, 4)]).await;
    };
    kernel.spawn("main", main)?;
    kernel.run().map(drop)
}

async fn wait_all<const N: usize>(os: &mut Os, tasks: [impl AsyncFnOnce(&mut Os) + 'static; N]) {
    let mut all = Vec::new();
    for task in tasks {
        all.push(os.spawn("task", task).await.expect("there is room"));
    }
    for task in all {
        os.wait(task).await.expect("no other task waits");
    }
}
