//! A barber, a waiting room with one seat, and three customers. A customer that finds the seat taken leaves.
//! Each sits down first, though the barber is free.

use trapline::{
    Errno, Error, Kernel, Os, Promise, Queue, Setter, Shared,
    sync::{Mutex, Semaphore},
};

use super::{Wrong, all, all_right, all_wrong, locked, programs, put, run, take};

const CUSTOMERS: usize = 3;

#[derive(Clone, Default)]
struct Shop {
    is_cutting: Shared<bool>,
    served: Shared<u32>,
}

impl Shop {
    async fn cut(&self, os: &mut Os) {
        let was_cutting = self
            .is_cutting
            .update(|cutting| std::mem::replace(cutting, true));
        assert!(!was_cutting, "two customers are in the chair");
        os.yield_now().await;
        self.is_cutting.set(false);
        self.served.update(|served| *served += 1);
    }
}

fn opening(
    kernel: &mut Kernel,
    work: impl AsyncFnOnce(&mut Os, Shop) -> Result<(), Errno> + 'static,
) -> Result<(), Error> {
    run(kernel, async move |os: &mut Os| {
        let shop = Shop::default();
        work(os, shop.clone()).await?;
        writeln!(
            os,
            "{} of {CUSTOMERS} customers are served",
            shop.served.get()
        );
        Ok::<(), Errno>(())
    })
}

/// The customers, without a task for the barber.
fn customers<C: AsyncFn(&mut Os, &Shop) + 'static>(
    kernel: &mut Kernel,
    make: impl AsyncFnOnce(&mut Os) -> C + 'static,
) -> Result<(), Error> {
    opening(kernel, async |os: &mut Os, shop: Shop| {
        let visit = make(os).await;
        all(os, CUSTOMERS, async move |os: &mut Os, _| {
            visit(os, &shop).await
        })
        .await
    })
}

/// What a shop with a barber does otherwise than it should.
#[derive(Clone, Copy, PartialEq)]
enum Habit {
    None,
    WaitsOutside,
    NeverCloses,
    ForgetsToTell,
}

fn barber(kernel: &mut Kernel, habit: Habit) -> Result<(), Error> {
    opening(kernel, async move |os: &mut Os, shop: Shop| {
        let seat = Queue::<Setter<()>>::bounded(os, 1).await;
        let next = seat.clone();
        let work = async move |os: &mut Os| {
            let mut untold = Vec::new();
            while let Ok(done) = next.get(os).await {
                shop.cut(os).await;
                match habit {
                    Habit::ForgetsToTell => untold.push(done),
                    _ => assert_eq!(done.set(os, ()).await, Ok(())),
                }
            }
        };
        let barber = os.spawn("barber", work).await?;
        let room = seat.clone();
        all(os, CUSTOMERS, async move |os: &mut Os, _| {
            let (done, is_done) = Promise::new(os).await;
            let sits = match habit {
                Habit::WaitsOutside => room.put(os, done).await.is_ok(),
                _ => room.try_put(os, done).await.is_ok(),
            };
            if sits {
                assert_eq!(is_done.wait(os).await, Ok(()));
            }
        })
        .await?;
        if habit != Habit::NeverCloses {
            seat.close(os).await;
            os.wait(barber).await?;
        }
        Ok(())
    })
}

fn queue(kernel: &mut Kernel) -> Result<(), Error> {
    barber(kernel, Habit::None)
}

fn seat_and_chair(kernel: &mut Kernel) -> Result<(), Error> {
    customers(kernel, async |os: &mut Os| {
        let (seat, chair) = (Semaphore::new(os, 1).await, Mutex::new(os, ()).await);
        async move |os: &mut Os, shop: &Shop| {
            let Some(sitting) = seat.try_acquire(os).await else {
                return;
            };
            let _chair = locked(os, &chair).await;
            drop(sitting);
            shop.cut(os).await;
        }
    })
}

fn shared_seat(kernel: &mut Kernel) -> Result<(), Error> {
    customers(kernel, async |os: &mut Os| {
        let (is_taken, chair) = (Shared::new(false), Semaphore::new(os, 1).await);
        async move |os: &mut Os, shop: &Shop| {
            if is_taken.update(|taken| std::mem::replace(taken, true)) {
                return;
            }
            let _chair = chair.acquire(os).await;
            is_taken.set(false);
            shop.cut(os).await;
        }
    })
}

fn token_of_the_chair(kernel: &mut Kernel) -> Result<(), Error> {
    customers(kernel, async |os: &mut Os| {
        let (seat, chair) = (Queue::bounded(os, 1).await, Queue::bounded(os, 1).await);
        put(os, &chair, ()).await;
        async move |os: &mut Os, shop: &Shop| {
            if seat.try_put(os, ()).await.is_err() {
                return;
            }
            take(os, &chair).await;
            take(os, &seat).await;
            shop.cut(os).await;
            put(os, &chair, ()).await;
        }
    })
}

fn counted_seat(kernel: &mut Kernel) -> Result<(), Error> {
    customers(kernel, async |os: &mut Os| {
        let (sitting, chair) = (Mutex::new(os, 0).await, Mutex::new(os, ()).await);
        async move |os: &mut Os, shop: &Shop| {
            let mut count = locked(os, &sitting).await;
            if *count == 1 {
                return;
            }
            *count += 1;
            drop(count);
            let _chair = locked(os, &chair).await;
            *locked(os, &sitting).await -= 1;
            shop.cut(os).await;
        }
    })
}

fn waits_outside(kernel: &mut Kernel) -> Result<(), Error> {
    barber(kernel, Habit::WaitsOutside)
}

fn never_closes(kernel: &mut Kernel) -> Result<(), Error> {
    barber(kernel, Habit::NeverCloses)
}

fn forgets_to_tell(kernel: &mut Kernel) -> Result<(), Error> {
    barber(kernel, Habit::ForgetsToTell)
}

fn two_in_the_chair(kernel: &mut Kernel) -> Result<(), Error> {
    customers(kernel, async |os: &mut Os| {
        let seat = Semaphore::new(os, 1).await;
        async move |os: &mut Os, shop: &Shop| {
            if let Some(sitting) = seat.try_acquire(os).await {
                drop(sitting);
                os.yield_now().await;
                shop.cut(os).await;
            }
        }
    })
}

/// Sees whether the seat is free, and sits down a turn later: two may then wait, and one gives up.
fn seat_is_checked_before(kernel: &mut Kernel) -> Result<(), Error> {
    customers(kernel, async |os: &mut Os| {
        let (is_taken, chair) = (Shared::new(false), Semaphore::new(os, 1).await);
        async move |os: &mut Os, shop: &Shop| {
            if is_taken.get() {
                return;
            }
            os.yield_now().await;
            is_taken.set(true);
            if let Some(_chair) = chair.try_acquire(os).await {
                is_taken.set(false);
                shop.cut(os).await;
            } else {
                panic!("the chair is not free");
            }
        }
    })
}

#[test]
fn the_programs_of_the_barber_are_judged_right() {
    all_right(
        seat_and_chair,
        programs![
            queue,
            shared_seat,
            token_of_the_chair,
            counted_seat,
            seat_and_chair
        ],
    );
}

#[test]
fn the_wrong_programs_of_the_barber_are_found() {
    let [outside, open, untold, two, checked] = programs![
        waits_outside,
        never_closes,
        forgets_to_tell,
        two_in_the_chair,
        seat_is_checked_before
    ];
    all_wrong(
        seat_and_chair,
        &[
            (Wrong::TooStrict, outside),
            (Wrong::Leak, open),
            (Wrong::Deadlock, untold),
            (Wrong::Fault, two),
            (Wrong::Fault, checked),
        ],
    );
}
