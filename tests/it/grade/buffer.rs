//! A producer and a consumer with a buffer of two slots. It never overflows, and may be full.

use trapline::{
    Errno, Error, Kernel, Os, Queue, Shared, Source,
    sync::{Condition, Mutex, Semaphore, Watch},
};

use super::{
    Wrong, all, all_right, all_wrong, locked, locked_when, programs, put, run, seen, take, tokens,
};

const ROOM: usize = 2;

#[derive(Clone, Default)]
struct Slots {
    items: Shared<Vec<u32>>,
    most: Shared<usize>,
    taken: Shared<Vec<u32>>,
}

impl Slots {
    fn put(&self, item: u32) {
        let len = self.items.update(|items| {
            items.push(item);
            items.len()
        });
        assert!(len <= ROOM, "the buffer overflows");
        self.most.update(|most| *most = (*most).max(len));
    }

    fn take(&self) {
        self.take_at(0);
    }

    fn take_at(&self, at: usize) {
        let item = self.items.update(|items| items.remove(at));
        self.taken.update(|taken| taken.push(item));
    }

    fn len(&self) -> usize {
        self.items.with(Vec::len)
    }
}

fn buffering(
    kernel: &mut Kernel,
    both: impl AsyncFnOnce(&mut Os, Slots) -> Result<(), Errno> + 'static,
) -> Result<(), Error> {
    run(kernel, async move |os: &mut Os| {
        let slots = Slots::default();
        both(os, slots.clone()).await?;
        let (taken, most) = (slots.taken.get(), slots.most.get());
        writeln!(os, "{taken:?}, at most {most} in the buffer");
        Ok::<(), Errno>(())
    })
}

fn token_queues(kernel: &mut Kernel) -> Result<(), Error> {
    with_tokens(kernel, ROOM, Slots::take)
}

fn with_tokens(
    kernel: &mut Kernel,
    room: usize,
    take_one: impl Fn(&Slots) + 'static,
) -> Result<(), Error> {
    buffering(kernel, async move |os: &mut Os, slots: Slots| {
        let (room, filled) = (tokens(os, room).await, tokens(os, 0).await);
        all(os, 2, async move |os: &mut Os, task| {
            for item in 1..=3 {
                if task == 0 {
                    take(os, &room).await;
                    slots.put(item);
                    put(os, &filled, ()).await;
                } else {
                    take(os, &filled).await;
                    take_one(&slots);
                    put(os, &room, ()).await;
                }
            }
        })
        .await
    })
}

fn permits_that_travel(kernel: &mut Kernel) -> Result<(), Error> {
    buffering(kernel, async |os: &mut Os, slots: Slots| {
        let (room, filled) = (Semaphore::new(os, ROOM).await, Queue::unbounded(os).await);
        all(os, 2, async move |os: &mut Os, task| {
            for item in 1..=3 {
                if task == 0 {
                    let permit = room.acquire(os).await.expect("it is open");
                    slots.put(item);
                    put(os, &filled, permit).await;
                } else {
                    let _permit = take(os, &filled).await;
                    slots.take();
                }
            }
        })
        .await
    })
}

fn monitor(kernel: &mut Kernel) -> Result<(), Error> {
    buffering(kernel, async |os: &mut Os, slots: Slots| {
        let (lock, changed) = (Mutex::new(os, ()).await, Condition::new(os).await);
        all(os, 2, async move |os: &mut Os, task| {
            for item in 1..=3 {
                let has_turn = |(): &()| match task {
                    0 => slots.len() < ROOM,
                    _ => slots.len() > 0,
                };
                let _guard = locked_when(os, &lock, &changed, has_turn).await;
                match task {
                    0 => slots.put(item),
                    _ => slots.take(),
                }
                changed.notify_one(os).await;
            }
        })
        .await
    })
}

fn watches(kernel: &mut Kernel) -> Result<(), Error> {
    buffering(kernel, async |os: &mut Os, slots: Slots| {
        let (made, taken) = (Watch::new(os, 0).await, Watch::new(os, 0).await);
        all(os, 2, async move |os: &mut Os, task| {
            for item in 1..=3 {
                if task == 0 {
                    seen(os, &taken, |taken| item <= taken + 2).await;
                    slots.put(item);
                    made.set(os, item).await;
                } else {
                    seen(os, &made, |made| item <= made).await;
                    slots.take();
                    taken.set(os, item).await;
                }
            }
        })
        .await
    })
}

fn server(kernel: &mut Kernel) -> Result<(), Error> {
    buffering(kernel, async |os: &mut Os, slots: Slots| {
        let (puts, takes) = (Queue::bounded(os, 0).await, Queue::bounded(os, 0).await);
        all(os, 3, async move |os: &mut Os, task| match task {
            0 => {
                for item in 1..=3 {
                    put(os, &puts, item).await;
                }
            }
            1 => {
                for _ in 1..=3 {
                    put(os, &takes, ()).await;
                }
            }
            _ => {
                for _ in 1..=6 {
                    serve(os, &slots, &puts, &takes).await;
                }
            }
        })
        .await
    })
}

async fn serve(os: &mut Os, slots: &Slots, puts: &Queue<u32>, takes: &Queue<()>) {
    let next = match slots.len() {
        0 => 0,
        ROOM => 1,
        _ => {
            let sources = [Source::message(puts), Source::message(takes)];
            os.select(&sources).await
        }
    };
    if next == 0 {
        slots.put(take(os, puts).await);
    } else {
        take(os, takes).await;
        slots.take();
    }
}

fn too_much_room(kernel: &mut Kernel) -> Result<(), Error> {
    with_tokens(kernel, ROOM + 1, Slots::take)
}

fn one_slot(kernel: &mut Kernel) -> Result<(), Error> {
    with_tokens(kernel, 1, Slots::take)
}

fn last_in_first_out(kernel: &mut Kernel) -> Result<(), Error> {
    with_tokens(kernel, ROOM, |slots| slots.take_at(slots.len() - 1))
}

fn waits_with_the_lock(kernel: &mut Kernel) -> Result<(), Error> {
    buffering(kernel, async |os: &mut Os, slots: Slots| {
        let lock = Mutex::new(os, ()).await;
        let (room, filled) = (tokens(os, ROOM).await, tokens(os, 0).await);
        all(os, 2, async move |os: &mut Os, task| {
            for item in 1..=3 {
                let _guard = locked(os, &lock).await;
                if task == 0 {
                    take(os, &room).await;
                    slots.put(item);
                    put(os, &filled, ()).await;
                } else {
                    take(os, &filled).await;
                    slots.take();
                    put(os, &room, ()).await;
                }
            }
        })
        .await
    })
}

fn missed_signal(kernel: &mut Kernel) -> Result<(), Error> {
    buffering(kernel, async |os: &mut Os, slots: Slots| {
        let (lock, changed) = (Mutex::new(os, ()).await, Condition::new(os).await);
        all(os, 2, async move |os: &mut Os, task| {
            for item in 1..=3 {
                let must_wait = slots.len() == if task == 0 { ROOM } else { 0 };
                let guard = locked(os, &lock).await;
                if must_wait {
                    drop(changed.wait(os, guard).await);
                }
                match task {
                    0 => slots.put(item),
                    _ => slots.take(),
                }
                changed.notify_one(os).await;
            }
        })
        .await
    })
}

#[test]
fn the_programs_of_the_buffer_are_judged_right() {
    let reference = token_queues;
    all_right(
        reference,
        programs![permits_that_travel, monitor, watches, server, token_queues],
    );
}

#[test]
fn the_wrong_programs_of_the_buffer_are_found() {
    let [room, slot, last, waits, missed] = programs![
        too_much_room,
        one_slot,
        last_in_first_out,
        waits_with_the_lock,
        missed_signal
    ];
    all_wrong(
        token_queues,
        &[
            (Wrong::Fault, room),
            (Wrong::TooStrict, slot),
            (Wrong::Race, last),
            (Wrong::Deadlock, waits),
            (Wrong::Deadlock, missed),
        ],
    );
}
