//! Four philosophers and four forks. Each eats once, with both of its forks; two that do not sit side by
//! side may eat at once.

use trapline::{Error, Kernel, Os, Queue, Shared, sync::Mutex};

use super::{Peak, Wrong, all, all_right, all_wrong, locked, programs, put, run, take};

const SEATS: usize = 4;

#[derive(Clone, Default)]
struct Table {
    in_use: [Shared<bool>; SEATS],
    meals: Shared<u32>,
    eating: Peak,
}

/// The forks of a seat: its left one, and its right one.
fn forks(seat: usize) -> [usize; 2] {
    [seat, (seat + 1) % SEATS]
}

impl Table {
    async fn eat(&self, os: &mut Os, seat: usize) {
        for fork in forks(seat) {
            let was_in_use = self.in_use[fork].update(|in_use| std::mem::replace(in_use, true));
            assert!(!was_in_use, "another philosopher has the fork");
        }
        self.eating.pass(os).await;
        for fork in forks(seat) {
            self.in_use[fork].set(false);
        }
        self.meals.update(|meals| *meals += 1);
    }
}

/// Runs the philosophers. `make` makes what each does.
fn dining<D: AsyncFn(&mut Os, &Table, usize) + 'static>(
    kernel: &mut Kernel,
    make: impl AsyncFnOnce(&mut Os) -> D + 'static,
) -> Result<(), Error> {
    run(kernel, async move |os: &mut Os| {
        let table = Table::default();
        let (dine, theirs) = (make(os).await, table.clone());
        let each = async move |os: &mut Os, seat| dine(os, &theirs, seat).await;
        all(os, SEATS, each).await?;
        let (meals, most) = (table.meals.get(), table.eating.most());
        writeln!(os, "{meals} meals, at most {most} at once");
        Ok::<(), trapline::Errno>(())
    })
}

async fn locks(os: &mut Os) -> Vec<Mutex<()>> {
    let mut locks = Vec::new();
    for _ in 0..SEATS {
        locks.push(Mutex::new(os, ()).await);
    }
    locks
}

/// Takes the two forks in the order that `order` returns for a seat.
fn with_mutexes(kernel: &mut Kernel, order: fn(usize) -> [usize; 2]) -> Result<(), Error> {
    dining(kernel, async move |os: &mut Os| {
        let locks = locks(os).await;
        async move |os: &mut Os, table: &Table, seat| {
            let [first, second] = order(seat);
            let _first = locked(os, &locks[first]).await;
            let _second = locked(os, &locks[second]).await;
            table.eat(os, seat).await;
        }
    })
}

fn lowest_first(kernel: &mut Kernel) -> Result<(), Error> {
    with_mutexes(kernel, |seat| {
        let mut order = forks(seat);
        order.sort_unstable();
        order
    })
}

fn odd_seats_right_first(kernel: &mut Kernel) -> Result<(), Error> {
    with_mutexes(kernel, |seat| {
        let [left, right] = forks(seat);
        if seat % 2 == 1 {
            [right, left]
        } else {
            [left, right]
        }
    })
}

/// One philosopher at a time takes forks.
fn taken_one_by_one(kernel: &mut Kernel) -> Result<(), Error> {
    dining(kernel, async move |os: &mut Os| {
        let (gate, locks) = (Mutex::new(os, ()).await, locks(os).await);
        async move |os: &mut Os, table: &Table, seat| {
            let taking = locked(os, &gate).await;
            let [left, right] = forks(seat);
            let _left = locked(os, &locks[left]).await;
            let _right = locked(os, &locks[right]).await;
            drop(taking);
            table.eat(os, seat).await;
        }
    })
}

fn one_seat_right_first(kernel: &mut Kernel) -> Result<(), Error> {
    with_mutexes(kernel, |seat| {
        let [left, right] = forks(seat);
        if seat == 0 {
            [right, left]
        } else {
            [left, right]
        }
    })
}

/// Those in the even seats eat, and hand their forks on.
fn even_seats_first(kernel: &mut Kernel) -> Result<(), Error> {
    dining(kernel, async |os: &mut Os| {
        let mut handed = Vec::new();
        for _ in 0..SEATS {
            handed.push(Queue::unbounded(os).await);
        }
        async move |os: &mut Os, table: &Table, seat| {
            if seat % 2 == 0 {
                table.eat(os, seat).await;
                for fork in forks(seat) {
                    put(os, &handed[fork], ()).await;
                }
            } else {
                for fork in forks(seat) {
                    take(os, &handed[fork]).await;
                }
                table.eat(os, seat).await;
            }
        }
    })
}

fn left_first(kernel: &mut Kernel) -> Result<(), Error> {
    with_mutexes(kernel, forks)
}

fn one_at_a_time(kernel: &mut Kernel) -> Result<(), Error> {
    dining(kernel, async |os: &mut Os| {
        let lock = Mutex::new(os, ()).await;
        async move |os: &mut Os, table: &Table, seat| {
            let _guard = locked(os, &lock).await;
            table.eat(os, seat).await;
        }
    })
}

fn with_the_left_fork_only(kernel: &mut Kernel) -> Result<(), Error> {
    dining(kernel, async |os: &mut Os| {
        let locks = locks(os).await;
        async move |os: &mut Os, table: &Table, seat| {
            let _left = locked(os, &locks[seat]).await;
            table.eat(os, seat).await;
        }
    })
}

fn fork_is_kept(kernel: &mut Kernel) -> Result<(), Error> {
    dining(kernel, async |os: &mut Os| {
        let locks = locks(os).await;
        async move |os: &mut Os, table: &Table, seat| {
            let mut order = forks(seat);
            order.sort_unstable();
            let _first = locked(os, &locks[order[0]]).await;
            let second = locked(os, &locks[order[1]]).await;
            table.eat(os, seat).await;
            std::mem::forget(second);
        }
    })
}

fn goes_hungry(kernel: &mut Kernel) -> Result<(), Error> {
    dining(kernel, async |_: &mut Os| {
        let free = Shared::new([true; SEATS]);
        async move |os: &mut Os, table: &Table, seat| {
            let set = |to| free.update(|free| forks(seat).map(|fork| free[fork] = to));
            if free.with(|free| forks(seat).iter().all(|fork| free[*fork])) {
                set(false);
                table.eat(os, seat).await;
                set(true);
            }
        }
    })
}

#[test]
fn the_programs_of_the_philosophers_are_judged_right() {
    all_right(
        lowest_first,
        programs![
            odd_seats_right_first,
            taken_one_by_one,
            one_seat_right_first,
            even_seats_first,
            lowest_first
        ],
    );
}

#[test]
fn the_wrong_programs_of_the_philosophers_are_found() {
    let [left, strict, alone, kept, hungry] = programs![
        left_first,
        one_at_a_time,
        with_the_left_fork_only,
        fork_is_kept,
        goes_hungry
    ];
    all_wrong(
        lowest_first,
        &[
            (Wrong::Deadlock, left),
            (Wrong::TooStrict, strict),
            (Wrong::Fault, alone),
            (Wrong::Deadlock, kept),
            (Wrong::Race, hungry),
        ],
    );
}
