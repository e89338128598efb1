//! Two tasks work, and add one to a number. They may work at once, and no addition is lost.

use trapline::{
    Errno, Error, Kernel, Os, Queue, Shared,
    sync::{Mutex, Semaphore},
};

use super::{Peak, Wrong, all, all_right, all_wrong, locked, programs, put, run, take, tokens};

#[derive(Clone, Default)]
struct Desk {
    sum: Shared<u32>,
    at_work: Peak,
}

impl Desk {
    /// Adds in two steps.
    async fn add(&self, os: &mut Os) {
        let read = self.sum.get();
        os.yield_now().await;
        self.sum.set(read + 1);
    }
}

fn counting(
    kernel: &mut Kernel,
    count: impl AsyncFnOnce(&mut Os, Desk) -> Result<(), Errno> + 'static,
) -> Result<(), Error> {
    run(kernel, async move |os: &mut Os| {
        let desk = Desk::default();
        count(os, desk.clone()).await?;
        let (sum, most) = (desk.sum.get(), desk.at_work.most());
        writeln!(os, "{sum}, at most {most} at work");
        Ok::<(), Errno>(())
    })
}

fn mutex(kernel: &mut Kernel) -> Result<(), Error> {
    counting(kernel, async |os: &mut Os, desk: Desk| {
        let lock = Mutex::new(os, ()).await;
        all(os, 2, async move |os: &mut Os, _| {
            desk.at_work.pass(os).await;
            let _guard = locked(os, &lock).await;
            desk.add(os).await;
        })
        .await
    })
}

fn semaphore(kernel: &mut Kernel) -> Result<(), Error> {
    counting(kernel, async |os: &mut Os, desk: Desk| {
        let permits = Semaphore::new(os, 1).await;
        all(os, 2, async move |os: &mut Os, _| {
            desk.at_work.pass(os).await;
            let _permit = permits.acquire(os).await;
            desk.add(os).await;
        })
        .await
    })
}

fn in_one_turn(kernel: &mut Kernel) -> Result<(), Error> {
    counting(kernel, async |os: &mut Os, desk: Desk| {
        all(os, 2, async move |os: &mut Os, _| {
            desk.at_work.pass(os).await;
            desk.sum.update(|sum| *sum += 1);
        })
        .await
    })
}

fn token(kernel: &mut Kernel) -> Result<(), Error> {
    counting(kernel, async |os: &mut Os, desk: Desk| {
        let token = tokens(os, 1).await;
        all(os, 2, async move |os: &mut Os, _| {
            desk.at_work.pass(os).await;
            take(os, &token).await;
            desk.add(os).await;
            put(os, &token, ()).await;
        })
        .await
    })
}

fn server(kernel: &mut Kernel) -> Result<(), Error> {
    served(kernel, true)
}

fn served(kernel: &mut Kernel, is_closed: bool) -> Result<(), Error> {
    counting(kernel, async move |os: &mut Os, desk: Desk| {
        let (orders, work) = (Queue::unbounded(os).await, desk.at_work.clone());
        let (incoming, done) = (orders.clone(), Queue::unbounded(os).await);
        let each = done.clone();
        let serve = async move |os: &mut Os| {
            while let Ok(()) = incoming.get(os).await {
                desk.add(os).await;
                put(os, &each, ()).await;
            }
        };
        os.spawn("server", serve).await?;
        let order = orders.clone();
        all(os, 2, async move |os: &mut Os, _| {
            work.pass(os).await;
            put(os, &order, ()).await;
            take(os, &done).await;
        })
        .await?;
        if is_closed {
            orders.close(os).await;
        }
        Ok(())
    })
}

fn lost_update(kernel: &mut Kernel) -> Result<(), Error> {
    counting(kernel, async |os: &mut Os, desk: Desk| {
        all(os, 2, async move |os: &mut Os, _| {
            desk.at_work.pass(os).await;
            desk.add(os).await;
        })
        .await
    })
}

fn work_in_the_lock(kernel: &mut Kernel) -> Result<(), Error> {
    counting(kernel, async |os: &mut Os, desk: Desk| {
        let lock = Mutex::new(os, ()).await;
        all(os, 2, async move |os: &mut Os, _| {
            let _guard = locked(os, &lock).await;
            desk.at_work.pass(os).await;
            desk.add(os).await;
        })
        .await
    })
}

fn gives_up(kernel: &mut Kernel) -> Result<(), Error> {
    counting(kernel, async |os: &mut Os, desk: Desk| {
        let permits = Semaphore::new(os, 1).await;
        all(os, 2, async move |os: &mut Os, _| {
            desk.at_work.pass(os).await;
            if let Some(_permit) = permits.try_acquire(os).await {
                desk.add(os).await;
            }
        })
        .await
    })
}

fn server_is_left(kernel: &mut Kernel) -> Result<(), Error> {
    served(kernel, false)
}

fn asserts(kernel: &mut Kernel) -> Result<(), Error> {
    counting(kernel, async |os: &mut Os, desk: Desk| {
        all(os, 2, async move |os: &mut Os, _| {
            desk.at_work.pass(os).await;
            let before = desk.sum.get();
            desk.add(os).await;
            os.yield_now().await;
            assert_eq!(desk.sum.get(), before + 1, "another task has added");
        })
        .await
    })
}

#[test]
fn the_programs_of_the_counter_are_judged_right() {
    all_right(
        mutex,
        programs![semaphore, in_one_turn, token, server, mutex],
    );
}

#[test]
fn the_wrong_programs_of_the_counter_are_found() {
    let [lost, strict, gives_up, left, asserts] = programs![
        lost_update,
        work_in_the_lock,
        gives_up,
        server_is_left,
        asserts
    ];
    all_wrong(
        mutex,
        &[
            (Wrong::Race, lost),
            (Wrong::TooStrict, strict),
            (Wrong::Race, gives_up),
            (Wrong::Leak, left),
            (Wrong::Fault, asserts),
        ],
    );
}
