//! Memory: the cost of a million blocked tasks, everything included. Each figure is from a process
//! of its own. It spawns the tasks, measures when all are blocked, and ends.
//!
//! Corosensei's tasks are as many as possible: each has a stack of its own, in mappings, of which a
//! process has 65,530.

use std::{io, process::exit, time::Duration};

use corosensei::{Coroutine, stack::DefaultStack};
use genawaiter::rc::{Co, Gen};
use tokio::sync::watch;
use trapline::{Kernel, Os};

use crate::{
    Plan,
    contest::Contest,
    meter::{Memory, memory},
    peers::{figures, this},
};

const STACKS: usize = 20_000;
const LONG: Duration = Duration::from_secs(1_000_000);

type Child = fn(tasks: usize) -> io::Result<()>;

/// The task waits for another, or it sleeps.
const WAITING: [(&str, Child); 6] = [
    ("trapline", trapline_wait),
    ("raw Gen", raw),
    ("tokio", tokio_wait),
    ("async-executor", async_executor_wait),
    ("monoio", monoio_wait),
    ("corosensei", corosensei_wait),
];
const SLEEPING: [(&str, Child); 5] = [
    ("trapline", trapline_sleep),
    ("raw Gen", raw),
    ("tokio", tokio_sleep),
    ("async-io", async_io_sleep),
    ("monoio", monoio_sleep),
];

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    vec![
        contest(plan, "wait", &WAITING),
        contest(plan, "sleep", &SLEEPING),
    ]
}

fn contest(plan: &Plan, what: &'static str, children: &'static [(&'static str, Child)]) -> Contest {
    let tasks = plan.million();
    // It varies by a page or two only.
    let rounds = plan.rounds.min(3);
    let name = format!("memory per task, {tasks} {what}");
    let mut contest = Contest::new(name, rounds, &["bytes of heap", "bytes resident"]);
    for (name, _) in children {
        contest = contest.enter_many(name, move || {
            figures(
                &this(&["--child=memory", what, name, &tasks.to_string()])?,
                2,
            )
        });
    }
    contest.enter_peers(plan, tasks, |_| {
        Some(vec![format!("memory_{what}"), tasks.to_string()])
    })
}

pub(crate) fn child(args: &[String]) -> io::Result<()> {
    let found = match args {
        [what, name, tasks] => {
            let children: &[(&str, Child)] = if what == "wait" { &WAITING } else { &SLEEPING };
            let child = children.iter().find(|(known, _)| known == name);
            child.zip(tasks.parse().ok())
        }
        _ => None,
    };
    let ((_, child), tasks) =
        found.ok_or_else(|| io::Error::other(format!("there is no memory child {args:?}")))?;
    child(tasks)
}

/// Prints the memory of each task, and ends the process with all of them blocked.
fn tell(before: &Memory, tasks: usize) -> ! {
    let now = memory().expect("it was measured before");
    let each = |bytes: f64| bytes / tasks as f64;
    println!(
        "{} {}",
        each(now.heap - before.heap),
        each(now.resident - before.resident)
    );
    exit(0)
}

fn trapline_wait(tasks: usize) -> io::Result<()> {
    let mut kernel = Kernel::simulated(0);
    let before = memory()?;
    let sleeper = kernel.spawn("sleeper", async |os: &mut Os| os.sleep(LONG).await)?;
    let program = async move |os: &mut Os| drop(os.wait(sleeper).await);
    trapline(kernel, before, tasks, program)
}

fn trapline_sleep(tasks: usize) -> io::Result<()> {
    let kernel = Kernel::simulated(0);
    let before = memory()?;
    trapline(kernel, before, tasks, async move |os: &mut Os| {
        let me = os.get_tid().await;
        os.sleep(LONG + scattered(u64::from(me) as usize)).await;
    })
}

/// Deadlines in random order, as real ones are.
fn scattered(n: usize) -> Duration {
    Duration::from_micros(n as u64 * 7919 % 1_000_003)
}

/// Measures in a task that runs when the others have been blocked for a while.
fn trapline(
    mut kernel: Kernel,
    before: Memory,
    tasks: usize,
    program: impl AsyncFnOnce(&mut Os) + Clone + 'static,
) -> io::Result<()> {
    for _ in 0..tasks {
        kernel.spawn("task", program.clone())?;
    }
    kernel.spawn("meter", async move |os: &mut Os| {
        os.sleep(Duration::from_secs(1)).await;
        tell(&before, tasks)
    })?;
    kernel.run().map_err(io::Error::other)?;
    Err(io::Error::other("the meter never ran"))
}

/// A future that waits for an event that never comes, as long as the other end exists.
async fn wait(mut receiver: watch::Receiver<()>) {
    drop(receiver.changed().await);
}

fn paused_tokio() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
}

fn tokio_wait(tasks: usize) -> io::Result<()> {
    let runtime = paused_tokio()?;
    let before = memory()?;
    runtime.block_on(async {
        let (_sender, receiver) = watch::channel(());
        for _ in 0..tasks {
            tokio::spawn(wait(receiver.clone()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        tell(&before, tasks)
    })
}

fn tokio_sleep(tasks: usize) -> io::Result<()> {
    let runtime = paused_tokio()?;
    let before = memory()?;
    runtime.block_on(async {
        for n in 0..tasks {
            tokio::spawn(tokio::time::sleep(LONG + scattered(n)));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        tell(&before, tasks)
    })
}

fn async_executor_wait(tasks: usize) -> io::Result<()> {
    let executor = async_executor::LocalExecutor::new();
    let before = memory()?;
    let (_sender, receiver) = watch::channel(());
    for _ in 0..tasks {
        executor.spawn(wait(receiver.clone())).detach();
    }
    let meter = executor.spawn(async move { tell(&before, tasks) });
    futures_lite::future::block_on(executor.run(meter))
}

fn async_io_sleep(tasks: usize) -> io::Result<()> {
    let executor = async_executor::LocalExecutor::new();
    let before = memory()?;
    for n in 0..tasks {
        executor
            .spawn(async_io::Timer::after(LONG + scattered(n)))
            .detach();
    }
    async_io::block_on(executor.run(async {
        async_io::Timer::after(Duration::from_secs(1)).await;
        tell(&before, tasks)
    }))
}

fn timed_monoio() -> io::Result<monoio::Runtime<monoio::time::TimeDriver<monoio::LegacyDriver>>> {
    monoio::RuntimeBuilder::<monoio::LegacyDriver>::new()
        .enable_timer()
        .build()
}

fn monoio_wait(tasks: usize) -> io::Result<()> {
    let mut runtime = timed_monoio()?;
    let before = memory()?;
    runtime.block_on(async {
        let (_sender, receiver) = watch::channel(());
        for _ in 0..tasks {
            monoio::spawn(wait(receiver.clone()));
        }
        monoio::time::sleep(Duration::from_secs(1)).await;
        tell(&before, tasks)
    })
}

fn monoio_sleep(tasks: usize) -> io::Result<()> {
    let mut runtime = timed_monoio()?;
    let before = memory()?;
    runtime.block_on(async {
        for n in 0..tasks {
            monoio::spawn(monoio::time::sleep(LONG + scattered(n)));
        }
        monoio::time::sleep(Duration::from_secs(1)).await;
        tell(&before, tasks)
    })
}

fn corosensei_wait(tasks: usize) -> io::Result<()> {
    let tasks = tasks.min(STACKS);
    let before = memory()?;
    let mut stopped = Vec::new();
    for _ in 0..tasks {
        let stack = DefaultStack::new(16 * 1024)?;
        let mut task = Coroutine::with_stack(stack, |yielder, n: u64| {
            yielder.suspend(n);
        });
        task.resume(0);
        stopped.push(task);
    }
    tell(&before, tasks)
}

/// The floor: a generator of a word, without a scheduler.
fn raw(tasks: usize) -> io::Result<()> {
    let before = memory()?;
    let mut gens: Vec<_> = (0..tasks)
        .map(|_| {
            // An async closure would be a generator within a generator, and larger.
            Gen::new(|co: Co<u64, u64>| async move {
                co.yield_(0).await;
            })
        })
        .collect();
    for g in &mut gens {
        g.resume_with(0);
    }
    std::hint::black_box(&mut gens);
    tell(&before, tasks)
}
