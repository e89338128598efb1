//! How many schedules each strategy of a search needs until it finds a defect: the table of the book.
//!
//! Ten programs, each with one defect. For each strategy the number is the median of 100 seeds. A search of
//! at most 5,000 schedules that finds nothing counts as 5,000. The schedules in which `pct` and `surw` count
//! turns count as well. `cargo run --example strategies` prints the table, with a number of seeds if one
//! is given.

use std::{
    cell::Cell,
    env,
    rc::Rc,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use trapline::{
    Errno, Error, Kernel, Os, Queue, check,
    sync::{Condition, Mutex},
};

type Shared = trapline::Shared<u32>;

/// Returns whether the defect showed.
type Program = fn(&mut Kernel) -> Result<bool, Error>;

const PROGRAMS: [(&str, Program); 10] = [
    ("lost update", |kernel| lost_update(kernel, 0)),
    ("lost update, late", |kernel| lost_update(kernel, 12)),
    ("two locks", |kernel| locks(kernel, 2)),
    ("five philosophers", |kernel| locks(kernel, 5)),
    ("Cargill's buffer", cargill),
    ("lost wake-up", lost_wakeup),
    ("first of ten", first_of_ten),
    ("five stages", |kernel| stages(kernel, 5)),
    ("checked, then used", checked_then_used),
    ("closed twice", closed_twice),
];

const STRATEGIES: [&str; 5] = ["random", "pct:1", "pct:3", "surw", "rff"];

const MOST: u64 = 5_000;

async fn pause(os: &mut Os, turns: u32) {
    for _ in 0..turns {
        os.yield_now().await;
    }
}

/// Two tasks read, and write one more. One is late by some turns.
fn lost_update(kernel: &mut Kernel, late: u32) -> Result<bool, Error> {
    let sum = Shared::new(0);
    for rest in [0, late] {
        let sum = sum.clone();
        kernel.spawn("adds", async move |os: &mut Os| {
            pause(os, rest).await;
            let read = sum.get();
            os.yield_now().await;
            sum.set(read + 1);
        })?;
    }
    kernel.run()?;
    Ok(sum.get() < 2)
}

/// Each task takes a lock and the next one, in a circle.
fn locks(kernel: &mut Kernel, count: usize) -> Result<bool, Error> {
    kernel.spawn("main", async move |os: &mut Os| {
        let mut locks = Vec::new();
        for _ in 0..count {
            locks.push(Mutex::new(os, ()).await);
        }
        for at in 0..count {
            let (one, other) = (locks[at].clone(), locks[(at + 1) % count].clone());
            let takes = async move |os: &mut Os| {
                let _one = one.lock(os).await;
                let _other = other.lock(os).await;
            };
            os.spawn("takes", takes).await?;
        }
        Ok::<(), Errno>(())
    })?;
    Ok(kernel.run().is_err())
}

/// A buffer of one place, whose tasks wake one other: it may be the wrong one.
fn cargill(kernel: &mut Kernel) -> Result<bool, Error> {
    kernel.spawn("main", async |os: &mut Os| {
        let (full, changed) = (Mutex::new(os, false).await, Condition::new(os).await);
        for (when, times) in [(true, 1), (true, 1), (false, 2)] {
            let (full, changed) = (full.clone(), changed.clone());
            let turns = async move |os: &mut Os| {
                for _ in 0..times {
                    let mut is_full = full.lock(os).await.expect("no task dies");
                    while *is_full != when {
                        is_full = changed.wait(os, is_full).await.expect("no task dies");
                    }
                    *is_full = !when;
                    changed.notify_one(os).await;
                }
            };
            os.spawn("uses", turns).await?;
        }
        Ok::<(), Errno>(())
    })?;
    Ok(kernel.run().is_err())
}

/// A reader looks for a letter and then waits; the writer wakes it only if it waits.
fn lost_wakeup(kernel: &mut Kernel) -> Result<bool, Error> {
    kernel.spawn("main", async |os: &mut Os| {
        let wakes = Queue::<()>::unbounded(os).await;
        let (letter, waits) = (Shared::new(0), Shared::new(0));
        let (theirs, is_waiting, woken) = (letter.clone(), waits.clone(), wakes.clone());
        let reader = async move |os: &mut Os| {
            pause(os, 3).await;
            if theirs.get() == 0 {
                os.yield_now().await;
                is_waiting.set(1);
                let _ = woken.get(os).await;
            }
        };
        os.spawn("reader", reader).await?;
        pause(os, 3).await;
        letter.set(1);
        if waits.get() == 1 {
            let _ = wakes.put(os, ()).await;
        }
        Ok::<(), Errno>(())
    })?;
    Ok(kernel.run().is_err())
}

/// A task of one turn must be late: after the ninth turn of a task of ten.
fn first_of_ten(kernel: &mut Kernel) -> Result<bool, Error> {
    let (turns, seen) = (Shared::new(0), Shared::new(0));
    let (counts, looks, at) = (turns.clone(), turns.clone(), seen.clone());
    kernel.spawn("long", async move |os: &mut Os| {
        for _ in 0..10 {
            counts.update(|turns| *turns += 1);
            os.yield_now().await;
        }
    })?;
    kernel.spawn("short", async move |_: &mut Os| at.set(looks.get()))?;
    kernel.run()?;
    Ok(seen.get() == 10)
}

/// Each task does its stage if the one before is done. They begin in the reverse order.
fn stages(kernel: &mut Kernel, count: u32) -> Result<bool, Error> {
    let done = Shared::new(0);
    for stage in (0..count).rev() {
        let done = done.clone();
        kernel.spawn("stage", async move |os: &mut Os| {
            os.yield_now().await;
            if done.get() == stage {
                done.set(stage + 1);
            }
        })?;
    }
    kernel.run()?;
    Ok(done.get() == count)
}

/// A reader checks an entry and uses it three turns later, among five tasks that do something else.
fn checked_then_used(kernel: &mut Kernel) -> Result<bool, Error> {
    let entry = Shared::new(1);
    let is_torn = Rc::new(Cell::new(false));
    for _ in 0..5 {
        kernel.spawn("other", async |os: &mut Os| pause(os, 6).await)?;
    }
    let (uses, breaks) = (entry.clone(), Rc::clone(&is_torn));
    kernel.spawn("uses", async move |os: &mut Os| {
        pause(os, 4).await;
        if uses.get() == 1 {
            os.yield_now().await;
            breaks.set(uses.get() == 0);
        }
    })?;
    kernel.spawn("drops", async move |os: &mut Os| {
        pause(os, 1).await;
        entry.set(0);
    })?;
    kernel.run()?;
    Ok(is_torn.get())
}

/// Three tasks look whether a thing is open, and close it: two of them may.
fn closed_twice(kernel: &mut Kernel) -> Result<bool, Error> {
    let (is_open, closed) = (Shared::new(1), Shared::new(0));
    for rest in [0, 5, 10] {
        let (is_open, closed) = (is_open.clone(), closed.clone());
        kernel.spawn("closes", async move |os: &mut Os| {
            pause(os, rest).await;
            if is_open.get() == 1 {
                os.yield_now().await;
                is_open.set(0);
                closed.update(|times| *times += 1);
            }
        })?;
    }
    kernel.run()?;
    Ok(closed.get() == 3)
}

static HAS_FOUND: AtomicBool = AtomicBool::new(false);
static FOUND_AT: AtomicU64 = AtomicU64::new(0);

/// Returns how many schedules a search runs until the defect shows. The schedule of number i has the seed
/// S + i, and the search ends with it: a failure would be explained, which takes longer than to find it.
fn needed(program: Program, strategy: &str, seed: u64) -> u64 {
    HAS_FOUND.store(false, Ordering::Relaxed);
    let body = move |kernel: &mut Kernel| {
        let is_first = || !HAS_FOUND.swap(true, Ordering::Relaxed);
        if program(kernel)? && is_first() {
            FOUND_AT.store(kernel.seed() - seed + 1, Ordering::Relaxed);
        }
        Ok(())
    };
    let search = check(body).strategy(strategy.parse().expect("it is a strategy"));
    let search = search.seed(seed).schedules(MOST).without_environment();
    search
        .stop_when(|| HAS_FOUND.load(Ordering::Relaxed))
        .explore();
    match HAS_FOUND.load(Ordering::Relaxed) {
        true => FOUND_AT.load(Ordering::Relaxed),
        false => MOST,
    }
}

fn main() {
    let seeds = env::args().nth(1).and_then(|seeds| seeds.parse().ok());
    let seeds = seeds.unwrap_or(100).max(1);
    println!("| program | {} |", STRATEGIES.join(" | "));
    println!("|---{}|", "|---".repeat(STRATEGIES.len()));
    for (name, program) in PROGRAMS {
        let median = |strategy: &str| {
            let runs = (0..seeds).map(|seed: u64| needed(program, strategy, seed * 10_000));
            let mut runs: Vec<u64> = runs.collect();
            runs.sort_unstable();
            match runs[runs.len() / 2] {
                MOST => format!("over {MOST}"),
                median => median.to_string(),
            }
        };
        println!("| {name} | {} |", STRATEGIES.map(median).join(" | "));
    }
}
