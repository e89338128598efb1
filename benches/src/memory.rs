//! Memory: what a million blocked tasks take, everything included. Each figure comes from a
//! process of its own, which spawns them, measures when all are blocked, and ends.

use std::{
    io,
    process::{Command, exit},
    sync::Arc,
    time::Duration,
};

use genawaiter::rc::{Co, Gen};
use trapline::{Kernel, Os, Tid};

use crate::{
    contest::Contest,
    meter::{Memory, memory},
};

const TASKS: usize = 1_000_000;
const LONG: Duration = Duration::from_secs(1_000_000);

type Child = fn() -> io::Result<()>;

const CHILDREN: [(&str, Child); 5] = [
    ("trapline-wait", trapline_wait),
    ("trapline-sleep", trapline_sleep),
    ("tokio-wait", tokio_wait),
    ("tokio-sleep", tokio_sleep),
    ("raw", raw),
];

pub(crate) fn contests(rounds: usize) -> Vec<Contest> {
    // Nothing in it varies but a page or two.
    let contest = |name| Contest::new(name, rounds.min(3), &["bytes of heap", "bytes resident"]);
    vec![
        contest("memory per task, 1000000 wait for another")
            .enter_many("trapline wait", || ask("trapline-wait"))
            .enter_many("tokio watch", || ask("tokio-wait"))
            .enter_many("raw Gen", || ask("raw")),
        contest("memory per task, 1000000 sleep")
            .enter_many("trapline sleep", || ask("trapline-sleep"))
            .enter_many("tokio sleep", || ask("tokio-sleep"))
            .enter_many("raw Gen", || ask("raw")),
    ]
}

fn ask(child: &str) -> io::Result<Vec<f64>> {
    let out = Command::new(std::env::current_exe()?)
        .args(["--child=memory", child])
        .output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let figures: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
    match figures {
        Ok(figures) if figures.len() == 2 => Ok(figures),
        _ => {
            let told = String::from_utf8_lossy(&out.stderr);
            Err(io::Error::other(format!(
                "the child {child} printed {text:?} instead of two figures; it said: {told}"
            )))
        }
    }
}

pub(crate) fn child(args: &[String]) -> io::Result<()> {
    let found = CHILDREN.iter().find(|(name, _)| args == [*name]);
    let (_, child) =
        found.ok_or_else(|| io::Error::other(format!("there is no memory child {args:?}")))?;
    child()
}

/// Prints what each task takes, and ends the process with all of them blocked.
fn tell(before: &Memory) -> ! {
    let now = memory().expect("it was measured before");
    let each = |bytes: f64| bytes / TASKS as f64;
    println!(
        "{} {}",
        each(now.heap - before.heap),
        each(now.resident - before.resident)
    );
    exit(0)
}

fn trapline_wait() -> io::Result<()> {
    let mut kernel = Kernel::simulated(0);
    let before = memory()?;
    let sleeper = kernel.spawn("sleeper", async |os: &mut Os| os.sleep(LONG).await)?;
    spawn_all(&mut kernel, async move |os: &mut Os| {
        drop(os.wait(sleeper).await);
    })?;
    tell_last(kernel, before)
}

fn trapline_sleep() -> io::Result<()> {
    let mut kernel = Kernel::simulated(0);
    let before = memory()?;
    spawn_all(&mut kernel, async |os: &mut Os| {
        let me = os.get_tid().await;
        os.sleep(LONG + scattered(me)).await;
    })?;
    tell_last(kernel, before)
}

/// Deadlines in no order, as real ones are.
fn scattered(tid: Tid) -> Duration {
    Duration::from_micros(u64::from(tid) * 7919 % TASKS as u64)
}

fn spawn_all(
    kernel: &mut Kernel,
    program: impl AsyncFnOnce(&mut Os) + Clone + 'static,
) -> io::Result<()> {
    for _ in 0..TASKS {
        kernel.spawn("task", program.clone())?;
    }
    Ok(())
}

/// Measures in a task that runs when the others have been blocked for a while.
fn tell_last(mut kernel: Kernel, before: Memory) -> io::Result<()> {
    kernel.spawn("meter", async move |os: &mut Os| {
        os.sleep(Duration::from_secs(1)).await;
        tell(&before)
    })?;
    kernel.run().map_err(io::Error::other)?;
    Err(io::Error::other("the meter never ran"))
}

fn paused_tokio() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
}

fn tokio_wait() -> io::Result<()> {
    let runtime = paused_tokio()?;
    let before = memory()?;
    runtime.block_on(async {
        let (sender, receiver) = tokio::sync::watch::channel(());
        let sender = Arc::new(sender);
        for _ in 0..TASKS {
            let mut receiver = receiver.clone();
            tokio::spawn(async move { drop(receiver.changed().await) });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let _alive = sender;
        tell(&before)
    })
}

fn tokio_sleep() -> io::Result<()> {
    let runtime = paused_tokio()?;
    let before = memory()?;
    runtime.block_on(async {
        for n in 0..TASKS as u64 {
            let span = LONG + Duration::from_micros(n * 7919 % TASKS as u64);
            tokio::spawn(tokio::time::sleep(span));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        tell(&before)
    })
}

/// The floor: a generator of a word, with nobody to schedule it.
fn raw() -> io::Result<()> {
    let before = memory()?;
    let mut gens: Vec<_> = (0..TASKS)
        .map(|_| {
            // An async closure would be a generator within a generator, and bigger.
            Gen::new(|co: Co<u64, u64>| async move {
                co.yield_(0).await;
            })
        })
        .collect();
    for g in &mut gens {
        g.resume_with(0);
    }
    std::hint::black_box(&mut gens);
    tell(&before)
}
