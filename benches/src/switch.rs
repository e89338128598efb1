//! Switch: the cost of stopping a task, giving the others their turns, and continuing.
//!
//! Every task yields in a loop. The first one reads the clock from its second turn on, when all
//! have started. Queues are first in, first out, so it returns once per round of all tasks. Neither
//! spawning nor ending is measured. `get_tid` has an answer, `yield` has none.
//!
//! For shuffled turns, tasks are made in the order of their memory. Then they are stopped, and
//! woken in random order. From then on their turns keep that order.
//!
//! The lower bounds have no scheduler. They are generators in a row, either of one type, or each in
//! its own box behind `dyn`, as a kernel of many programs must keep them. State machines by hand,
//! boxed as well, are the last one.

use std::{
    cell::Cell,
    future::poll_fn,
    hint::black_box,
    iter::zip,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Poll, Waker},
    time::Duration,
};

use corosensei::{Coroutine as Stackful, CoroutineResult, stack::DefaultStack};
use genawaiter::{
    Coroutine,
    rc::{Co, Gen},
};
use trapline::{Kernel, Os};

use crate::{
    Plan,
    contest::Contest,
    meter::{cpu_time, ns_each, shuffled},
};

/// The least number of switches that a run measures.
const SWITCHES: usize = 4_000_000;

/// A stack for each task: a million are more mappings than a process may have.
const MOST_STACKS: usize = 10_000;

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let in_order = [1, 100, 10_000, plan.million()].map(|tasks| (tasks, false));
    let shuffled = [10_000, plan.million()].map(|tasks| (tasks, true));
    let all = in_order.into_iter().chain(shuffled);
    all.map(|(tasks, shuffled)| contest(plan, tasks, shuffled))
        .collect()
}

fn contest(plan: &Plan, tasks: usize, shuffled: bool) -> Contest {
    let laps = plan.times(SWITCHES).div_ceil(tasks);
    let order = VisitOrder { tasks, shuffled };
    let each = move |time| ns_each(time, tasks * laps);
    let plural = if tasks == 1 { "" } else { "s" };
    let title = if shuffled { ", shuffled" } else { "" };
    let name = format!("switch, {tasks} task{plural}{title}");
    let mut contest = Contest::new(name, plan.rounds, &["ns per switch"])
        .enter("trapline get_tid", move || {
            each(trapline(order, laps, Os::get_tid))
        })
        .enter("trapline yield", move || {
            each(trapline(order, laps, Os::yield_now))
        })
        .enter("raw state machine, boxed", move || {
            each(machines(order, laps))
        })
        .enter("raw Gen", move || each(raw(order, laps)))
        .enter("raw Gen, boxed as dyn", move || each(raw_dyn(order, laps)))
        .enter("tokio", move || tokio(order, laps))
        .enter("async-executor", move || async_executor(order, laps))
        .enter("monoio", move || monoio(order, laps));
    if tasks <= MOST_STACKS {
        contest = contest.enter("corosensei", move || each(stackful(order, laps)));
    }
    contest.enter_peers(plan, tasks, |peer| {
        let work = if shuffled {
            "switch_shuffled"
        } else {
            "switch"
        };
        let laps = peer.share(laps);
        Some(vec![work.into(), tasks.to_string(), laps.to_string()])
    })
}

/// The number of tasks, and the order of their turns.
#[derive(Clone, Copy)]
struct VisitOrder {
    tasks: usize,
    shuffled: bool,
}

impl VisitOrder {
    /// The task at each place of the order.
    fn turns(self) -> Vec<usize> {
        if self.shuffled {
            shuffled(self.tasks)
        } else {
            (0..self.tasks).collect()
        }
    }
}

/// The number of yields of each task except the first: one before the clock is read, and more than
/// enough after it.
fn turns(laps: usize) -> usize {
    laps + 2 + laps / 8
}

/// `trap` is passed as a function, since a closure around it would add a state machine.
fn trapline<T>(
    order: VisitOrder,
    laps: usize,
    trap: impl AsyncFn(&mut Os) -> T + Copy + 'static,
) -> Duration {
    const ROOM: &str = "there is room for the tasks";
    let mut kernel = Kernel::simulated(0);
    let time = Rc::new(Cell::new(Duration::ZERO));
    let first = Rc::clone(&time);
    // Opens when all tasks wait at it.
    let gate = kernel
        .spawn("gate", async |os: &mut Os| {
            os.sleep(Duration::from_secs(100)).await;
        })
        .expect(ROOM);
    kernel
        .spawn("first", async move |os: &mut Os| {
            if order.shuffled {
                os.wait(gate).await.expect("the gate opens");
            }
            trap(os).await;
            let start = cpu_time();
            for _ in 0..laps {
                trap(os).await;
            }
            first.set(cpu_time() - start);
        })
        .expect(ROOM);
    for turn in &order.turns()[1..] {
        // Waiters wake in the order in which they blocked.
        let come_at = order
            .shuffled
            .then(|| Duration::from_micros(1 + *turn as u64));
        kernel
            .spawn("other", async move |os: &mut Os| {
                if let Some(come_at) = come_at {
                    os.sleep_until(come_at).await;
                    os.wait(gate).await.expect("the gate opens");
                }
                for _ in 0..turns(laps) {
                    trap(os).await;
                }
            })
            .expect(ROOM);
    }
    kernel.run().expect("tasks that only yield come to an end");
    time.get()
}

/// The code that the compiler generates for [`count`], by hand.
trait Machine {
    fn resume(&mut self, value: u64) -> u64;
}

enum Counter {
    Unstarted,
    Counting { n: u64 },
}

impl Machine for Counter {
    fn resume(&mut self, value: u64) -> u64 {
        match self {
            Self::Unstarted => {
                *self = Self::Counting { n: 0 };
                0
            }
            Self::Counting { n } => {
                *n = value;
                *n
            }
        }
    }
}

fn machines(order: VisitOrder, laps: usize) -> Duration {
    let machines = (0..order.tasks).map(|_| Box::new(Counter::Unstarted) as Box<dyn Machine>);
    rounds(order, laps, machines, |machine, n| {
        black_box(machine.resume(n));
    })
}

async fn count(co: Co<u64, u64>) {
    let mut n = 0;
    loop {
        n = co.yield_(n).await;
    }
}

fn raw(order: VisitOrder, laps: usize) -> Duration {
    let gens = (0..order.tasks).map(|_| Gen::new(count));
    rounds(order, laps, gens, |g, n| {
        black_box(g.resume_with(n));
    })
}

fn raw_dyn(order: VisitOrder, laps: usize) -> Duration {
    type Boxed = Pin<Box<dyn Coroutine<Yield = u64, Resume = u64, Return = ()>>>;
    let gens = (0..order.tasks).map(|_| Box::pin(Gen::new(count)) as Boxed);
    rounds(order, laps, gens, |g, n| {
        black_box(g.as_mut().resume_with(n));
    })
}

/// Resumes all in turn, once before the clock is read. Their boxes stay where they were made.
fn rounds<T>(
    order: VisitOrder,
    laps: usize,
    tasks: impl Iterator<Item = T>,
    mut resume: impl FnMut(&mut T, u64),
) -> Duration {
    let mut placed: Vec<(usize, T)> = zip(order.turns(), tasks).collect();
    placed.sort_by_key(|(turn, _)| *turn);
    let mut tasks: Vec<T> = placed.into_iter().map(|(_, task)| task).collect();
    for task in &mut tasks {
        resume(task, 0);
    }
    let start = cpu_time();
    for n in 0..laps {
        for task in &mut tasks {
            resume(task, n as u64);
        }
    }
    cpu_time() - start
}

fn stackful(order: VisitOrder, laps: usize) -> Duration {
    let tasks = (0..order.tasks).map(|_| {
        let stack = DefaultStack::new(16 * 1024).expect("there is room for the stacks");
        Stackful::with_stack(stack, move |yielder, mut n: u64| {
            for _ in 0..turns(laps) {
                n = yielder.suspend(n);
            }
        })
    });
    let mut tasks: Vec<_> = tasks.collect();
    let time = rounds(order, laps, tasks.iter_mut(), |task, n| {
        let CoroutineResult::Yield(_) = black_box(task.resume(n)) else {
            unreachable!("a task has more turns than laps are run");
        };
    });
    // They end here: dropping a suspended one would unwind its stack.
    for task in &mut tasks {
        while let CoroutineResult::Yield(_) = task.resume(0) {}
    }
    time
}

/// The gate at which futures wait, so that they can be woken in another order.
#[derive(Clone)]
struct Parking(Arc<Mutex<Vec<Option<Waker>>>>);

impl Parking {
    fn new(order: VisitOrder) -> Self {
        Self(Arc::new(Mutex::new(vec![None; order.tasks])))
    }

    async fn park(&self, place: usize) {
        let mut parked = false;
        poll_fn(|cx| {
            if parked {
                return Poll::Ready(());
            }
            parked = true;
            self.0.lock().expect(NO_PANIC)[place] = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn wake_all(&self, order: VisitOrder) {
        let mut places = std::mem::take(&mut *self.0.lock().expect(NO_PANIC));
        for turn in order.turns() {
            if let Some(waker) = places[turn].take() {
                waker.wake();
            }
        }
    }
}

const NO_PANIC: &str = "no task panics";

/// The number of turns of the other tasks, since tokio's order is not exactly round robin. No other
/// thread writes it, so it need not be an atomic addition.
static TURNS: AtomicUsize = AtomicUsize::new(0);

/// A future's task that yields in a loop; `yields` is the runtime's way to yield.
async fn other<Y: Future>(
    order: VisitOrder,
    place: usize,
    laps: usize,
    parking: Parking,
    yields: impl Fn() -> Y,
) {
    if order.shuffled {
        parking.park(place).await;
    }
    for _ in 0..turns(laps) {
        TURNS.store(TURNS.load(Relaxed) + 1, Relaxed);
        yields().await;
    }
}

/// The first task; for shuffled turns it is made last, when the others have stopped. Returns the
/// nanoseconds for each turn of any task.
async fn first<Y: Future>(
    order: VisitOrder,
    laps: usize,
    parking: Parking,
    yields: impl Fn() -> Y,
) -> f64 {
    if order.shuffled {
        parking.wake_all(order);
    }
    yields().await;
    TURNS.store(0, Relaxed);
    let start = cpu_time();
    for _ in 0..laps {
        yields().await;
    }
    ns_each(cpu_time() - start, laps + TURNS.load(Relaxed))
}

fn tokio(order: VisitOrder, laps: usize) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime needs no more than a kernel");
    let yields = tokio::task::yield_now;
    let parking = Parking::new(order);
    runtime.block_on(async {
        let first = || tokio::spawn(first(order, laps, parking.clone(), yields));
        let made = (!order.shuffled).then(first);
        for place in 1..order.tasks {
            tokio::spawn(other(order, place, laps, parking.clone(), yields));
        }
        let first = made.unwrap_or_else(first);
        first.await.expect("the task ends well")
    })
}

fn async_executor(order: VisitOrder, laps: usize) -> f64 {
    let executor = async_executor::LocalExecutor::new();
    let yields = futures_lite::future::yield_now;
    let parking = Parking::new(order);
    let first = || executor.spawn(first(order, laps, parking.clone(), yields));
    let made = (!order.shuffled).then(first);
    for place in 1..order.tasks {
        let other = executor.spawn(other(order, place, laps, parking.clone(), yields));
        other.detach();
    }
    let first = made.unwrap_or_else(first);
    futures_lite::future::block_on(executor.run(first))
}

/// A task that wakes itself goes to the front of its queue here, and would have the next turn as
/// well. So each task wakes the task that yielded before it.
fn monoio(order: VisitOrder, laps: usize) -> f64 {
    let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new()
        .build()
        .expect("a runtime needs no more than a kernel");
    let before = Rc::new(Cell::new(None::<Waker>));
    let yields = move || {
        let before = Rc::clone(&before);
        let mut yielded = false;
        poll_fn(move |cx| {
            if yielded {
                return Poll::Ready(());
            }
            yielded = true;
            if order.tasks == 1 {
                cx.waker().wake_by_ref();
            } else if let Some(waker) = before.replace(Some(cx.waker().clone())) {
                waker.wake();
            }
            Poll::Pending
        })
    };
    let parking = Parking::new(order);
    runtime.block_on(async {
        let first = || monoio::spawn(first(order, laps, parking.clone(), yields.clone()));
        let made = (!order.shuffled).then(first);
        for place in 1..order.tasks {
            monoio::spawn(other(order, place, laps, parking.clone(), yields.clone()));
        }
        made.unwrap_or_else(first).await
    })
}
