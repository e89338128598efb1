//! Two tasks meet, and each gives the other its number. None goes on before both are there.

use trapline::{
    Errno, Error, Kernel, Os, Promise, Queue, Shared,
    sync::{Barrier, Condition, Flag, Mutex},
};

use super::{Wrong, all, all_right, all_wrong, locked, locked_when, programs, put, run, take};

const NUMBERS: [u32; 2] = [10, 20];

#[derive(Clone, Default)]
struct Log(Shared<String>);

impl Log {
    async fn note(&self, os: &mut Os, task: usize, text: &str) {
        os.yield_now().await;
        let name = ["a", "b"][task];
        self.0.update(|log| *log += &format!("{name} {text} "));
    }
}

/// Runs two tasks. `make` makes what each does to get the other's number.
fn swapping<S: AsyncFn(&mut Os, usize) -> u32 + 'static>(
    kernel: &mut Kernel,
    make: impl AsyncFnOnce(&mut Os) -> S + 'static,
) -> Result<(), Error> {
    meeting(kernel, async |os: &mut Os| {
        let swap = make(os).await;
        async move |os: &mut Os, log: &Log, task| {
            log.note(os, task, "is here").await;
            let number = swap(os, task).await;
            log.note(os, task, &format!("has {number}")).await;
        }
    })
}

fn meeting<M: AsyncFn(&mut Os, &Log, usize) + 'static>(
    kernel: &mut Kernel,
    make: impl AsyncFnOnce(&mut Os) -> M + 'static,
) -> Result<(), Error> {
    run(kernel, async move |os: &mut Os| {
        let log = Log::default();
        let (meet, theirs) = (make(os).await, log.clone());
        let each = async move |os: &mut Os, task| meet(os, &theirs, task).await;
        all(os, 2, each).await?;
        writeln!(os, "{}", log.0.get());
        Ok::<(), Errno>(())
    })
}

async fn two_queues(os: &mut Os, room: usize) -> [Queue<u32>; 2] {
    [
        Queue::bounded(os, room).await,
        Queue::bounded(os, room).await,
    ]
}

fn queues(kernel: &mut Kernel) -> Result<(), Error> {
    with_room(kernel, 1)
}

fn with_room(kernel: &mut Kernel, room: usize) -> Result<(), Error> {
    swapping(kernel, async move |os: &mut Os| {
        let sent = two_queues(os, room).await;
        async move |os: &mut Os, task: usize| {
            put(os, &sent[task], NUMBERS[task]).await;
            take(os, &sent[1 - task]).await
        }
    })
}

fn promises(kernel: &mut Kernel) -> Result<(), Error> {
    swapping(kernel, async |os: &mut Os| {
        let pairs = [Promise::new(os).await, Promise::new(os).await];
        async move |os: &mut Os, task: usize| {
            let set = pairs[task].0.set(os, NUMBERS[task]).await;
            assert_eq!(set, Ok(()));
            let got = pairs[1 - task].1.wait(os).await;
            got.expect("the other sets it")
        }
    })
}

fn barrier(kernel: &mut Kernel) -> Result<(), Error> {
    with_slots(kernel, 2)
}

fn with_slots(kernel: &mut Kernel, count: usize) -> Result<(), Error> {
    swapping(kernel, async move |os: &mut Os| {
        let barrier = Barrier::new(os, 2).await;
        let slots = [Shared::new(0), Shared::new(0)];
        async move |os: &mut Os, task: usize| {
            slots[task % count].set(NUMBERS[task]);
            barrier.wait(os).await;
            slots[(1 - task) % count].get()
        }
    })
}

fn monitor(kernel: &mut Kernel) -> Result<(), Error> {
    swapping(kernel, async |os: &mut Os| {
        let (slots, changed) = (Mutex::new(os, [None; 2]).await, Condition::new(os).await);
        async move |os: &mut Os, task: usize| {
            let mut guard = locked(os, &slots).await;
            guard[task] = Some(NUMBERS[task]);
            changed.notify_one(os).await;
            drop(guard);
            let is_there = |slots: &[Option<u32>; 2]| slots[1 - task].is_some();
            let guard = locked_when(os, &slots, &changed, is_there).await;
            guard[1 - task].expect("it is there")
        }
    })
}

fn flags(kernel: &mut Kernel) -> Result<(), Error> {
    swapping(kernel, async |os: &mut Os| {
        let flags = [Flag::new(os).await, Flag::new(os).await];
        async move |os: &mut Os, task: usize| {
            flags[task].set(os).await;
            flags[1 - task].wait(os).await;
            NUMBERS[1 - task]
        }
    })
}

fn both_get_first(kernel: &mut Kernel) -> Result<(), Error> {
    swapping(kernel, async |os: &mut Os| {
        let sent = two_queues(os, 1).await;
        async move |os: &mut Os, task: usize| {
            let got = take(os, &sent[1 - task]).await;
            put(os, &sent[task], NUMBERS[task]).await;
            got
        }
    })
}

fn no_room(kernel: &mut Kernel) -> Result<(), Error> {
    with_room(kernel, 0)
}

fn one_slot(kernel: &mut Kernel) -> Result<(), Error> {
    with_slots(kernel, 1)
}

fn does_not_wait(kernel: &mut Kernel) -> Result<(), Error> {
    swapping(kernel, async |_: &mut Os| {
        let slots = [Shared::default(), Shared::default()];
        async move |os: &mut Os, task: usize| {
            slots[task].set(Some(NUMBERS[task]));
            os.yield_now().await;
            slots[1 - task].get().expect("the other is there")
        }
    })
}

/// The second task goes on only when the first has.
fn one_after_the_other(kernel: &mut Kernel) -> Result<(), Error> {
    meeting(kernel, async |os: &mut Os| {
        let sent = two_queues(os, 1).await;
        async move |os: &mut Os, log: &Log, task| {
            log.note(os, task, "is here").await;
            put(os, &sent[task], NUMBERS[task]).await;
            let number = take(os, &sent[1 - task]).await;
            if task == 1 {
                take(os, &sent[0]).await;
            }
            log.note(os, task, &format!("has {number}")).await;
            if task == 0 {
                put(os, &sent[0], 0).await;
            }
        }
    })
}

#[test]
fn the_programs_of_the_rendezvous_are_judged_right() {
    let programs = programs![promises, barrier, monitor, flags, queues];
    all_right(queues, programs);
}

#[test]
fn the_wrong_programs_of_the_rendezvous_are_found() {
    let [get, room, slot, early, strict] = programs![
        both_get_first,
        no_room,
        one_slot,
        does_not_wait,
        one_after_the_other
    ];
    all_wrong(
        queues,
        &[
            (Wrong::Deadlock, get),
            (Wrong::Deadlock, room),
            (Wrong::Race, slot),
            (Wrong::Fault, early),
            (Wrong::TooStrict, strict),
        ],
    );
}
