//! Two readers and a writer of a page. A reader never sees half a change, and readers may read at once.

use trapline::{
    Error, Kernel, Os, Shared,
    sync::{Condition, Mutex, Semaphore},
};

use super::{
    Peak, Wrong, all, all_right, all_wrong, locked, locked_when, programs, put, run, take, tokens,
};

#[derive(Clone, Default)]
struct Page {
    left: Shared<u32>,
    right: Shared<u32>,
    readers: Peak,
}

impl Page {
    async fn read(&self, os: &mut Os) {
        self.readers.enter();
        let left = self.left.get();
        os.yield_now().await;
        let right = self.right.get();
        self.readers.leave();
        writeln!(os, "{left} {right}");
    }

    async fn write(&self, os: &mut Os) {
        self.left.set(1);
        os.yield_now().await;
        self.right.set(1);
    }
}

/// Runs three tasks: the last writes. `make` makes what each does.
fn sharing<A: AsyncFn(&mut Os, &Page, usize) + 'static>(
    kernel: &mut Kernel,
    make: impl AsyncFnOnce(&mut Os) -> A + 'static,
) -> Result<(), Error> {
    run(kernel, async move |os: &mut Os| {
        let page = Page::default();
        let (access, theirs) = (make(os).await, page.clone());
        let each = async move |os: &mut Os, task| access(os, &theirs, task).await;
        all(os, 3, each).await?;
        writeln!(os, "at most {} at once", page.readers.most());
        Ok::<(), trapline::Errno>(())
    })
}

const WRITER: usize = 2;

fn all_permits(kernel: &mut Kernel) -> Result<(), Error> {
    permits(kernel, 2)
}

fn permits(kernel: &mut Kernel, to_write: usize) -> Result<(), Error> {
    sharing(kernel, async move |os: &mut Os| {
        let permits = Semaphore::new(os, 2).await;
        async move |os: &mut Os, page: &Page, task| {
            if task == WRITER {
                let _all = permits.acquire_many(os, to_write).await;
                page.write(os).await;
            } else {
                let _one = permits.acquire(os).await;
                page.read(os).await;
            }
        }
    })
}

fn monitor(kernel: &mut Kernel) -> Result<(), Error> {
    sharing(kernel, async |os: &mut Os| {
        let (readers, changed) = (Mutex::new(os, 0).await, Condition::new(os).await);
        async move |os: &mut Os, page: &Page, task| {
            if task == WRITER {
                let _guard = locked_when(os, &readers, &changed, |count| *count == 0).await;
                return page.write(os).await;
            }
            *locked(os, &readers).await += 1;
            page.read(os).await;
            let mut count = locked(os, &readers).await;
            *count -= 1;
            changed.notify_one(os).await;
        }
    })
}

fn light_switch(kernel: &mut Kernel) -> Result<(), Error> {
    switched(kernel, true)
}

/// The first reader takes the room from the writer, and the last one returns it.
fn switched(kernel: &mut Kernel, is_returned: bool) -> Result<(), Error> {
    sharing(kernel, async move |os: &mut Os| {
        let (readers, room) = (Mutex::new(os, 0).await, tokens(os, 1).await);
        async move |os: &mut Os, page: &Page, task| {
            if task == WRITER {
                take(os, &room).await;
                page.write(os).await;
                return put(os, &room, ()).await;
            }
            let mut count = locked(os, &readers).await;
            *count += 1;
            if *count == 1 {
                take(os, &room).await;
            }
            drop(count);
            page.read(os).await;
            let mut count = locked(os, &readers).await;
            *count -= 1;
            if *count == 0 && is_returned {
                put(os, &room, ()).await;
            }
        }
    })
}

fn lock_for_each_reader(kernel: &mut Kernel) -> Result<(), Error> {
    sharing(kernel, async |os: &mut Os| {
        let locks = [Mutex::new(os, ()).await, Mutex::new(os, ()).await];
        async move |os: &mut Os, page: &Page, task| {
            if task == WRITER {
                let _first = locked(os, &locks[0]).await;
                let _second = locked(os, &locks[1]).await;
                page.write(os).await;
            } else {
                let _mine = locked(os, &locks[task]).await;
                page.read(os).await;
            }
        }
    })
}

fn tokens_one_by_one(kernel: &mut Kernel) -> Result<(), Error> {
    sharing(kernel, async |os: &mut Os| {
        let room = tokens(os, 2).await;
        async move |os: &mut Os, page: &Page, task| {
            take(os, &room).await;
            if task == WRITER {
                take(os, &room).await;
                page.write(os).await;
                put(os, &room, ()).await;
            } else {
                page.read(os).await;
            }
            put(os, &room, ()).await;
        }
    })
}

fn monitor_with_a_flag(kernel: &mut Kernel) -> Result<(), Error> {
    sharing(kernel, async |os: &mut Os| {
        let (state, changed) = (Mutex::new(os, (0, false)).await, Condition::new(os).await);
        async move |os: &mut Os, page: &Page, task| {
            if task == WRITER {
                let is_free = |state: &(u32, bool)| state.0 == 0;
                locked_when(os, &state, &changed, is_free).await.1 = true;
                page.write(os).await;
                locked(os, &state).await.1 = false;
            } else {
                let is_free = |state: &(u32, bool)| !state.1;
                locked_when(os, &state, &changed, is_free).await.0 += 1;
                page.read(os).await;
                locked(os, &state).await.0 -= 1;
            }
            changed.notify_all(os).await;
        }
    })
}

fn readers_without_a_lock(kernel: &mut Kernel) -> Result<(), Error> {
    sharing(kernel, async |os: &mut Os| {
        let lock = Mutex::new(os, ()).await;
        async move |os: &mut Os, page: &Page, task| {
            if task == WRITER {
                let _guard = locked(os, &lock).await;
                page.write(os).await;
            } else {
                page.read(os).await;
            }
        }
    })
}

fn one_at_a_time(kernel: &mut Kernel) -> Result<(), Error> {
    sharing(kernel, async |os: &mut Os| {
        let lock = Mutex::new(os, ()).await;
        async move |os: &mut Os, page: &Page, task| {
            let _guard = locked(os, &lock).await;
            match task {
                WRITER => page.write(os).await,
                _ => page.read(os).await,
            }
        }
    })
}

fn writer_takes_one_permit(kernel: &mut Kernel) -> Result<(), Error> {
    permits(kernel, 1)
}

fn upgrade(kernel: &mut Kernel) -> Result<(), Error> {
    sharing(kernel, async |os: &mut Os| {
        let permits = Semaphore::new(os, 2).await;
        async move |os: &mut Os, page: &Page, task| {
            let _one = permits.acquire(os).await;
            if task == WRITER {
                let _all = permits.acquire_many(os, 2).await;
                page.write(os).await;
            } else {
                page.read(os).await;
            }
        }
    })
}

fn room_is_kept(kernel: &mut Kernel) -> Result<(), Error> {
    switched(kernel, false)
}

#[test]
fn the_programs_of_readers_and_writers_are_judged_right() {
    all_right(
        all_permits,
        programs![
            monitor,
            light_switch,
            lock_for_each_reader,
            tokens_one_by_one,
            monitor_with_a_flag
        ],
    );
}

#[test]
fn the_wrong_programs_of_readers_and_writers_are_found() {
    let [torn, strict, one, upgrade, kept] = programs![
        readers_without_a_lock,
        one_at_a_time,
        writer_takes_one_permit,
        upgrade,
        room_is_kept
    ];
    all_wrong(
        all_permits,
        &[
            (Wrong::Race, torn),
            (Wrong::TooStrict, strict),
            (Wrong::Race, one),
            (Wrong::Deadlock, upgrade),
            (Wrong::Deadlock, kept),
        ],
    );
}
