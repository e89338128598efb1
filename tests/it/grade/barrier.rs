//! Two tasks with three phases. None begins a phase before both have ended the one before.

use trapline::{
    Errno, Error, Kernel, Os, Queue, Shared,
    sync::{Barrier, Condition, Flag, Mutex, Watch},
};

use super::{
    Wrong, all, all_right, all_wrong, locked, locked_when, programs, put, run, seen, take,
};

/// Runs two tasks. `make` makes what each does between two phases.
fn phases<M: AsyncFn(&mut Os, usize) + 'static>(
    kernel: &mut Kernel,
    make: impl AsyncFnOnce(&mut Os) -> M + 'static,
) -> Result<(), Error> {
    run(kernel, async move |os: &mut Os| {
        let log = Shared::new(String::new());
        let (meet, theirs) = (make(os).await, log.clone());
        all(os, 2, async move |os: &mut Os, task: usize| {
            for phase in 1..=3 {
                os.yield_now().await;
                let name = ["a", "b"][task];
                theirs.update(|log| *log += &format!("{name}{phase} "));
                if phase < 3 {
                    meet(os, task).await;
                }
            }
        })
        .await?;
        writeln!(os, "{}", log.get());
        Ok::<(), Errno>(())
    })
}

fn barrier(kernel: &mut Kernel) -> Result<(), Error> {
    barrier_for(kernel, 2)
}

fn barrier_for(kernel: &mut Kernel, tasks: usize) -> Result<(), Error> {
    phases(kernel, async move |os: &mut Os| {
        let barrier = Barrier::new(os, tasks).await;
        async move |os: &mut Os, _| drop(barrier.wait(os).await)
    })
}

fn messages(kernel: &mut Kernel) -> Result<(), Error> {
    phases(kernel, async |os: &mut Os| {
        let arrived = [Queue::unbounded(os).await, Queue::unbounded(os).await];
        async move |os: &mut Os, task: usize| {
            put(os, &arrived[task], ()).await;
            take(os, &arrived[1 - task]).await;
        }
    })
}

fn monitor(kernel: &mut Kernel) -> Result<(), Error> {
    phases(kernel, async |os: &mut Os| {
        let (arrivals, changed) = (Mutex::new(os, 0).await, Condition::new(os).await);
        async move |os: &mut Os, _| {
            let mut count = locked(os, &arrivals).await;
            *count += 1;
            let all = *count + *count % 2;
            changed.notify_all(os).await;
            drop(count);
            drop(locked_when(os, &arrivals, &changed, |count| *count >= all).await);
        }
    })
}

fn watches(kernel: &mut Kernel) -> Result<(), Error> {
    phases(kernel, async |os: &mut Os| {
        let arrivals = [Watch::new(os, 0).await, Watch::new(os, 0).await];
        async move |os: &mut Os, task: usize| {
            let mine = arrivals[task].get() + 1;
            arrivals[task].set(os, mine).await;
            seen(os, &arrivals[1 - task], |theirs| theirs >= mine).await;
        }
    })
}

fn coordinator(kernel: &mut Kernel) -> Result<(), Error> {
    phases(kernel, async |os: &mut Os| {
        let arrived = Queue::unbounded(os).await;
        let passes = [Queue::unbounded(os).await, Queue::unbounded(os).await];
        let (arrivals, each) = (arrived.clone(), passes.clone());
        let coordinate = async move |os: &mut Os| {
            for _ in 0..2 {
                take(os, &arrivals).await;
                take(os, &arrivals).await;
                put(os, &each[0], ()).await;
                put(os, &each[1], ()).await;
            }
        };
        let spawned = os.spawn("coordinator", coordinate).await;
        spawned.expect("there is room");
        async move |os: &mut Os, task: usize| {
            put(os, &arrived, ()).await;
            take(os, &passes[task]).await;
        }
    })
}

fn no_barrier(kernel: &mut Kernel) -> Result<(), Error> {
    phases(kernel, async |_: &mut Os| {
        async |os: &mut Os, _| os.yield_now().await
    })
}

fn only_once(kernel: &mut Kernel) -> Result<(), Error> {
    phases(kernel, async |os: &mut Os| {
        let (arrived, all_here) = (Shared::new(0), Flag::new(os).await);
        async move |os: &mut Os, _| {
            let count = arrived.update(|count| {
                *count += 1;
                *count
            });
            if count == 2 {
                all_here.set(os).await;
            }
            all_here.wait(os).await;
        }
    })
}

fn one_too_many(kernel: &mut Kernel) -> Result<(), Error> {
    barrier_for(kernel, 3)
}

/// The first task sends a second message at its second arrival, for which the other waits at its first.
fn in_turn(kernel: &mut Kernel) -> Result<(), Error> {
    phases(kernel, async |os: &mut Os| {
        let arrived = [Queue::unbounded(os).await, Queue::unbounded(os).await];
        let waits = Shared::new(2);
        async move |os: &mut Os, task: usize| {
            put(os, &arrived[task], ()).await;
            let count = if task == 0 { 1 } else { waits.get() };
            for _ in 0..count {
                take(os, &arrived[1 - task]).await;
            }
            if task == 1 {
                waits.set(0);
            }
        }
    })
}

fn lost_arrival(kernel: &mut Kernel) -> Result<(), Error> {
    phases(kernel, async |os: &mut Os| {
        let (arrivals, all_here) = (Shared::new(0), Queue::unbounded(os).await);
        async move |os: &mut Os, _| {
            let count = arrivals.get() + 1;
            os.yield_now().await;
            arrivals.set(count);
            if count % 2 == 0 {
                put(os, &all_here, ()).await;
            } else {
                take(os, &all_here).await;
            }
        }
    })
}

#[test]
fn the_programs_of_the_barrier_are_judged_right() {
    let programs = programs![messages, monitor, watches, coordinator, barrier];
    all_right(messages, programs);
}

#[test]
fn the_wrong_programs_of_the_barrier_are_found() {
    let [none, once, many, in_turn, lost] =
        programs![no_barrier, only_once, one_too_many, in_turn, lost_arrival];
    all_wrong(
        messages,
        &[
            (Wrong::Race, none),
            (Wrong::Race, once),
            (Wrong::Deadlock, many),
            (Wrong::TooStrict, in_turn),
            (Wrong::Deadlock, lost),
        ],
    );
}
