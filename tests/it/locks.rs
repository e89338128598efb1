//! Locks and their holders: cycles of tasks that wait for one another, found when they close.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use trapline::{
    Builder, Deadlock, Error, Event, Exit, Fact, Kernel, On, OnDeadlock, Os, Reply, SimWorld,
    SystemCall, Tid,
    sync::{Guard, Mutex, Poisoned, Semaphore},
};

use crate::support::{logged, passes, tid, unplaced, unscripted};

/// Lives on, as a task of each server does.
async fn alive(os: &mut Os) {
    loop {
        os.sleep(Duration::from_millis(3)).await;
    }
}

/// A kernel with a task that lives on beside others.
fn beside_a_live_task(builder: Builder) -> Kernel {
    let mut kernel = builder.build().expect("a kernel boots");
    kernel.spawn("alive", alive).expect("there is room");
    kernel
}

fn stopping() -> Builder {
    unscripted().on_deadlock(OnDeadlock::Stop)
}

/// Why a run was stopped.
fn stopped(kernel: &mut Kernel) -> Deadlock {
    match kernel.run() {
        Err(Error::Deadlock(deadlock)) => deadlock,
        other => panic!("the run ends with a deadlock: {other:?}"),
    }
}

/// Two tasks that take two locks, each in its own order: tasks 3 and 4 of the kernel.
fn cross(kernel: &mut Kernel) {
    let main = async |os: &mut Os| {
        let (one, two) = (Mutex::new(os, ()).await, Mutex::new(os, ()).await);
        let orders = [(one.clone(), two.clone()), (two, one)];
        for (first, second) in orders {
            let both = async move |os: &mut Os| {
                let _first = first.lock(os).await;
                os.sleep(Duration::from_millis(1)).await;
                match second.lock(os).await {
                    Ok(_) => Ok(()),
                    Err(poisoned) => Err(poisoned.to_string()),
                }
            };
            os.spawn("both", both).await.expect("there is room");
        }
        // Its children would be orphans.
        for child in [3, 4] {
            let _ = os.wait(tid(child)).await;
        }
    };
    kernel.spawn("main", main).expect("there is room");
}

#[test]
fn a_cycle_is_found_when_it_closes_whatever_else_runs() {
    let mut kernel = beside_a_live_task(stopping());
    cross(&mut kernel);
    let deadlock = stopped(&mut kernel);
    assert!(deadlock.is_partial);
    assert_eq!(deadlock.cycles, [[tid(3), tid(4)]]);
    assert_eq!(deadlock.tails, [[tid(2), tid(3)]]);
    assert_eq!(
        unplaced(&deadlock.to_string()),
        "deadlock: tasks wait for one another, and no other can end that\n  \
         tid 2 \"main\" waits for the end of task 3, since 00:00.000\n  \
         tid 3 \"both\" waits for mutex 2, held by task 4, since 00:00.001\n  \
         tid 4 \"both\" waits for mutex 1, held by task 3, since 00:00.001\n  \
         cycle: 3 -> 4 -> 3\n  \
         waits on a cycle: 2 -> 3"
    );
}

#[test]
fn a_warned_run_goes_on_and_its_log_has_the_cycle() {
    let (mut kernel, log) = logged(unscripted().max_ticks(100));
    kernel.spawn("alive", alive).expect("there is room");
    cross(&mut kernel);
    assert!(matches!(kernel.run(), Err(Error::Limit(..))));
    let found: Vec<String> = log.lines();
    let found: Vec<&String> = found
        .iter()
        .filter(|line| line.contains("deadlocked"))
        .collect();
    assert_eq!(found, ["00:00.001000000 4 deadlocked 4 -> 3 -> 4"]);
}

#[test]
fn a_kill_ends_the_youngest_and_poisons_its_lock() {
    let mut kernel = unscripted().on_deadlock(OnDeadlock::Kill).build().unwrap();
    let main = async |os: &mut Os| {
        let (one, two) = (Mutex::new(os, ()).await, Mutex::new(os, ()).await);
        let (mine, theirs) = (one.clone(), two.clone());
        let old = async move |os: &mut Os| {
            let _mine = mine.lock(os).await;
            passes(os, 3).await;
            // The kernel kills the other when this one blocks, or when the other does.
            assert!(matches!(theirs.lock(os).await, Err(Poisoned(_))));
        };
        let old = os.spawn("old", old).await.expect("there is room");
        let young = async move |os: &mut Os| {
            let _two = two.lock(os).await;
            let _one = one.lock(os).await;
            unreachable!("it is killed");
        };
        let young = os.spawn("young", young).await.expect("there is room");
        assert_eq!(os.wait(young).await, Ok(Exit::Killed));
        assert_eq!(os.wait(old).await, Ok(Exit::Done));
    };
    kernel.spawn("main", main).expect("there is room");
    kernel
        .run()
        .expect("nothing is left")
        .check()
        .expect("all ended well");
}

#[test]
fn a_kill_may_end_the_task_whose_call_closed_the_cycle() {
    let mut kernel = unscripted().on_deadlock(OnDeadlock::Kill).build().unwrap();
    cross(&mut kernel);
    kernel
        .run()
        .expect("nothing is left")
        .check()
        .expect_err("a lock was poisoned");
    kernel.audit();
    assert_eq!(kernel.tasks().count(), 0);
}

#[test]
fn five_philosophers_are_one_cycle() {
    let mut kernel = beside_a_live_task(stopping());
    let host = async |os: &mut Os| {
        let mut forks = Vec::new();
        for _ in 0..5 {
            forks.push(Mutex::new(os, ()).await);
        }
        for at in 0..5 {
            let (left, right) = (forks[at].clone(), forks[(at + 1) % 5].clone());
            let philosopher = async move |os: &mut Os| {
                let _left = left.lock(os).await;
                os.sleep(Duration::from_millis(1)).await;
                let _right = right.lock(os).await;
            };
            os.spawn_detached("philosopher", philosopher)
                .await
                .expect("there is room");
        }
    };
    kernel.spawn("host", host).expect("there is room");
    let deadlock = stopped(&mut kernel);
    assert_eq!(deadlock.cycles, [[3, 4, 5, 6, 7].map(tid)]);
    assert!(deadlock.tails.is_empty());
}

#[test]
fn waiters_behind_a_cycle_are_named_with_their_way_there() {
    let mut kernel = beside_a_live_task(stopping());
    let main = async |os: &mut Os| {
        let lock = Mutex::new(os, ()).await;
        let (theirs, late) = (lock.clone(), lock.clone());
        let twice = async move |os: &mut Os| {
            let _held = theirs.lock(os).await;
            passes(os, 20).await;
            let _again = theirs.lock(os).await;
        };
        let twice = os.spawn("twice", twice).await.expect("there is room");
        let late = async move |os: &mut Os| drop(late.lock(os).await);
        let late = os.spawn("late", late).await.expect("there is room");
        let child = async move |os: &mut Os| os.wait(late).await.map(drop);
        os.spawn("behind", child).await.expect("there is room");
        os.wait(twice).await.map(drop)
    };
    kernel.spawn("main", main).expect("there is room");
    let deadlock = stopped(&mut kernel);
    assert_eq!(deadlock.cycles, [[tid(3)]]);
    assert_eq!(
        deadlock.tails,
        [[2, 3].map(tid).to_vec(), [5, 4, 3].map(tid).to_vec()]
    );
}

#[test]
fn a_wait_for_an_end_and_a_lock_are_a_cycle() {
    let mut kernel = beside_a_live_task(stopping());
    let main = async |os: &mut Os| {
        let lock = Mutex::new(os, ()).await;
        let _held = lock.lock(os).await;
        let theirs = lock.clone();
        let child = async move |os: &mut Os| drop(theirs.lock(os).await);
        let child = os.spawn("child", child).await.expect("there is room");
        os.yield_now().await;
        os.wait(child).await.map(drop)
    };
    kernel.spawn("main", main).expect("there is room");
    assert_eq!(stopped(&mut kernel).cycles, [[tid(2), tid(3)]]);
}

#[test]
fn a_wait_that_a_timeout_ends_is_part_of_no_cycle() {
    let mut kernel = stopping().build().unwrap();
    let main = async |os: &mut Os| {
        let lock = Mutex::new(os, ()).await;
        let _held = lock.lock(os).await;
        let again = async |os: &mut Os| drop(lock.lock(os).await);
        assert!(os.timeout(Duration::from_secs(1), again).await.is_err());
    };
    kernel.spawn("main", main).expect("there is room");
    kernel
        .run()
        .expect("nothing is left")
        .check()
        .expect("all ended well");
}

#[test]
fn a_guard_that_another_task_adopts_is_its_own() {
    let mut kernel = stopping().build().unwrap();
    let main = async |os: &mut Os| {
        let lock = Mutex::new(os, ()).await;
        let mut guard = lock.lock(os).await.expect("it is whole");
        let release = async move |os: &mut Os| {
            guard.adopt(os);
            os.sleep(Duration::from_secs(1)).await;
        };
        os.spawn_detached("release", release)
            .await
            .expect("there is room");
        os.yield_now().await;
        drop(lock.lock(os).await);
    };
    kernel.spawn("main", main).expect("there is room");
    kernel
        .run()
        .expect("nothing is left")
        .check()
        .expect("all ended well");
}

#[test]
fn a_total_deadlock_names_the_cycle_of_its_locks() {
    let mut kernel = unscripted().build().unwrap();
    cross(&mut kernel);
    let deadlock = stopped(&mut kernel);
    assert!(!deadlock.is_partial);
    assert_eq!(deadlock.cycles, [[tid(2), tid(3)]]);
}

#[test]
fn a_total_deadlock_names_the_cycle_of_its_permits() {
    let mut kernel = unscripted().build().expect("a kernel boots");
    let main = async |os: &mut Os| {
        let (one, two) = (Semaphore::new(os, 1).await, Semaphore::new(os, 1).await);
        for (first, second) in [(one.clone(), two.clone()), (two, one)] {
            let both = async move |os: &mut Os| {
                let _first = first.acquire(os).await;
                os.sleep(Duration::from_millis(1)).await;
                let _second = second.acquire(os).await;
            };
            os.spawn_detached("both", both)
                .await
                .expect("there is room");
        }
    };
    kernel.spawn("main", main).expect("there is room");
    let deadlock = stopped(&mut kernel);
    assert_eq!(deadlock.cycles, [[tid(2), tid(3)]]);
    let report = deadlock.to_string();
    let line = "tid 2 \"both\" waits for semaphore 2, last taken by task 3, since 00:00.001";
    assert!(report.contains(line), "{report}");
}

#[test]
fn a_lock_of_a_killed_task_and_one_that_a_timeout_gives_up_leave_no_cycle() {
    let mut kernel = beside_a_live_task(stopping().max_ticks(200));
    let main = async |os: &mut Os| {
        let (one, two) = (Mutex::new(os, ()).await, Mutex::new(os, ()).await);
        let mine = one.clone();
        let victim = async move |os: &mut Os| {
            let _mine = mine.lock(os).await;
            os.sleep(Duration::from_secs(9)).await;
        };
        let victim = os.spawn("victim", victim).await.expect("there is room");
        let _held = two.lock(os).await;
        passes(os, 3).await;
        assert!(os.kill(victim).await);
        let cut = async |os: &mut Os| {
            let _one = one.lock(os).await;
            os.sleep(Duration::from_secs(9)).await;
        };
        assert!(os.timeout(Duration::from_millis(1), cut).await.is_err());
        let (first, second) = (one.clone(), two.clone());
        let late = async move |os: &mut Os| {
            let _first = first.lock(os).await;
            let _second = second.lock(os).await;
            os.sleep(Duration::from_millis(1)).await;
        };
        let late = os.spawn("late", late).await.expect("there is room");
        passes(os, 3).await;
        drop(_held);
        // The other has both now, and neither the victim nor this task counts as a holder.
        assert_eq!(os.wait(late).await, Ok(Exit::Done));
    };
    kernel.spawn("main", main).expect("there is room");
    assert!(
        matches!(kernel.run(), Err(Error::Limit(..))),
        "only the live task is left"
    );
}

// ---- random programs

const LOCKS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Op {
    Lock(usize),
    /// Tries to lock for so many milliseconds.
    TimedLock(usize, u64),
    Unlock(usize),
    Wait(u64),
    Kill(u64),
    Sleep(u64),
    Yield,
}

/// Numbers from a seed. (SplitMix64.)
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % bound
    }

    fn op(&mut self, tasks: u64) -> Op {
        let lock = self.below(LOCKS as u64) as usize;
        let task = 2 + self.below(tasks);
        let millis = 1 + self.below(4);
        match self.below(16) {
            0..=5 => Op::Lock(lock),
            6 | 7 => Op::TimedLock(lock, millis),
            8 | 9 => Op::Unlock(lock),
            10 | 11 => Op::Wait(task),
            12 => Op::Kill(task),
            13 => Op::Sleep(millis),
            _ => Op::Yield,
        }
    }
}

async fn perform(os: &mut Os, ops: Vec<Op>, locks: Vec<Mutex<()>>) {
    let mut held: [Option<Guard<()>>; LOCKS] = Default::default();
    let whole =
        |locked: Result<Guard<()>, Poisoned<()>>| locked.unwrap_or_else(|Poisoned(guard)| guard);
    for op in ops {
        match op {
            Op::Lock(at) => {
                let guard = whole(locks[at].lock(os).await);
                held[at] = Some(guard);
            }
            Op::TimedLock(at, millis) => {
                let span = Duration::from_millis(millis);
                let body = async |os: &mut Os| locks[at].lock(os).await;
                if let Ok(guard) = os.timeout(span, body).await {
                    held[at] = Some(whole(guard));
                }
            }
            Op::Unlock(at) => held[at] = None,
            Op::Wait(task) => drop(os.wait(tid(task)).await),
            Op::Kill(task) => drop(os.kill(tid(task)).await),
            Op::Sleep(millis) => os.sleep(Duration::from_millis(millis)).await,
            Op::Yield => os.yield_now().await,
        }
    }
}

/// Computes the cycles from the log alone: who waits for what, and who holds what.
#[derive(Default)]
struct Clerk {
    blocked: BTreeMap<Tid, On>,
    holders: BTreeMap<u64, Tid>,
    /// The lock that a task will hold when it goes on.
    answered: BTreeMap<Tid, u64>,
    calls: BTreeMap<Tid, SystemCall>,
    /// The tasks in the body of a timeout. There is one at most around a call.
    timed: BTreeSet<Tid>,
    /// The cycles that have closed, and those that the kernel has reported, as sets.
    expected: Vec<BTreeSet<Tid>>,
    reported: Vec<BTreeSet<Tid>>,
}

impl Clerk {
    fn event(&mut self, event: &Event<'_>) {
        let tid = event.tid;
        match &event.fact {
            Fact::Trapped { call, .. } => {
                self.calls.insert(tid, *call);
                if let SystemCall::Timeout(_) = call {
                    self.timed.insert(tid);
                }
            }
            Fact::Blocked { on } => {
                self.blocked.insert(tid, *on);
                self.expected.extend(self.cycle_at(tid));
            }
            Fact::Woken { .. } => drop(self.blocked.remove(&tid)),
            Fact::Replied { reply, .. } => self.replied(tid, *reply),
            Fact::Resumed => {
                if let Some(lock) = self.answered.remove(&tid) {
                    self.holders.insert(lock, tid);
                }
            }
            Fact::Deferred { call } => match call {
                SystemCall::TryPut(queue) => drop(self.holders.remove(&queue.number())),
                SystemCall::Disarm(_) => drop(self.timed.remove(&tid)),
                _ => {}
            },
            Fact::Exited { .. } => {
                self.blocked.remove(&tid);
                self.answered.remove(&tid);
            }
            Fact::Deadlocked { cycle } => self.reported.push(cycle.iter().copied().collect()),
            _ => {}
        }
    }

    fn replied(&mut self, tid: Tid, reply: Reply) {
        self.answered.remove(&tid);
        match (reply, self.calls.get(&tid)) {
            (Reply::Message(_), Some(SystemCall::Get(queue))) => {
                self.answered.insert(tid, queue.number());
            }
            (Reply::Elapsed(_), _) => drop(self.timed.remove(&tid)),
            _ => {}
        }
    }

    fn next(&self, tid: Tid) -> Option<Tid> {
        if self.timed.contains(&tid) {
            return None;
        }
        match self.blocked.get(&tid)? {
            On::Exit(target) => Some(*target),
            On::Queue(queue, _) => self.holders.get(&queue.number()).copied(),
            _ => None,
        }
    }

    /// The cycle that this task is on: the tasks that can be reached from it, if it is one.
    fn cycle_at(&self, tid: Tid) -> Option<BTreeSet<Tid>> {
        let (mut reached, mut at) = (BTreeSet::new(), self.next(tid));
        while let Some(next) = at.filter(|next| reached.insert(*next)) {
            at = self.next(next);
        }
        reached.contains(&tid).then_some(reached)
    }
}

/// Runs a random program. Returns whether a cycle has closed in it.
fn check_random_program(seed: u64) -> bool {
    let mut numbers = Numbers(seed);
    let action = [OnDeadlock::Warn, OnDeadlock::Kill, OnDeadlock::Stop][seed as usize % 3];
    let clerk = Rc::new(RefCell::new(Clerk::default()));
    let tracer = Rc::clone(&clerk);
    let mut kernel = Kernel::builder()
        .world(SimWorld::new(seed))
        .on_deadlock(action)
        .tracer(move |event: &Event<'_>| tracer.borrow_mut().event(event))
        .build()
        .expect("a kernel boots");
    let tasks = 2 + numbers.below(4);
    let mut script = || {
        let len = 2 + numbers.below(8);
        (0..len).map(|_| numbers.op(tasks)).collect::<Vec<Op>>()
    };
    let scripts: Vec<Vec<Op>> = (0..tasks).map(|_| script()).collect();
    let program = format!("{scripts:?}");
    let main = async move |os: &mut Os| {
        let mut locks = Vec::new();
        for _ in 0..LOCKS {
            locks.push(Mutex::new(os, ()).await);
        }
        for ops in scripts {
            let locks = locks.clone();
            os.spawn_detached("task", async move |os| perform(os, ops, locks).await)
                .await
                .expect("there is room");
        }
    };
    kernel.spawn("main", main).expect("there is room");
    let ended = kernel.run();
    kernel.audit();
    let clerk = clerk.borrow();
    assert_eq!(clerk.reported, clerk.expected, "seed {seed}: {program}");
    let has_cycle = !clerk.expected.is_empty();
    match (action, ended) {
        (OnDeadlock::Kill, ended) => {
            // The others wait for locks or ends of tasks, and all of these come.
            assert!(ended.is_ok(), "seed {seed}: {program}");
        }
        (_, Err(Error::Deadlock(deadlock))) => {
            let is_stopped = action == OnDeadlock::Stop;
            assert_eq!(deadlock.is_partial, is_stopped, "seed {seed}: {program}");
            assert!(
                has_cycle && !deadlock.cycles.is_empty(),
                "seed {seed}: {program}"
            );
        }
        (OnDeadlock::Stop, ended) => assert!(ended.is_ok() && !has_cycle, "seed {seed}: {program}"),
        // A cycle that a kill from a live task has ended.
        (_, ended) => assert!(ended.is_ok(), "seed {seed}: {program}"),
    }
    has_cycle
}

/// `TRAPLINE_PROGRAMS` sets how many programs run: 100,000 in a release build otherwise.
#[test]
fn the_cycles_of_random_programs_are_those_of_their_logs() {
    let programs = std::env::var("TRAPLINE_PROGRAMS");
    let usual = if cfg!(debug_assertions) {
        3_000
    } else {
        100_000
    };
    let programs = programs.map_or(usual, |text| text.parse().expect("it is a number"));
    let with_cycle = (0..programs)
        .filter(|seed| check_random_program(*seed))
        .count();
    assert!(
        with_cycle as u64 > programs / 20,
        "{with_cycle} programs had a cycle"
    );
}
