//! The ledger: at every instant it says of each task what the kernel says.

use std::{cell::RefCell, rc::Rc, time::Duration};

use proptest::prelude::*;
use trapline::{
    Deadlock, Detail, Error, Event, Fact, Kernel, Ledger, On, Os, Promise, Queue, Reply, Scope,
    SimWorld, Source, Step, SystemCall, TaskInfo, Tid, Tracer,
    sync::{Condition, Flag, Mutex, Once, Semaphore, Watch},
};

use crate::support::*;

/// Hands facts about a task to a ledger.
fn follow(ledger: &mut Ledger, tid: u64, facts: impl IntoIterator<Item = Fact<'static>>) {
    for (at, fact) in facts.into_iter().enumerate() {
        let at = Duration::from_secs(at as u64);
        let tid = tid.into();
        ledger.event(&Event {
            at,
            tid,
            fact,
            place: None,
        });
    }
}

#[test]
fn the_ledger_knows_which_call_a_task_is_at() {
    let trapped = |call| Fact::Trapped {
        call,
        detail: Detail::None,
    };
    let replied = |reply| Fact::Replied {
        reply,
        detail: Detail::None,
    };
    let on = On::Exit(3.into());
    let mut ledger = Ledger::new();
    let (parent, name) = (Tid::KERNEL, "waiter".into());
    follow(&mut ledger, 1, [Fact::Spawned { parent, name }]);
    assert!(ledger.last(1.into()).is_none());
    let wait = trapped(SystemCall::WaitTask(3.into()));
    follow(&mut ledger, 1, [trapped(SystemCall::Now), wait]);
    let unseen = ledger.unseen(1.into()).expect("it has no answer");
    assert_eq!(unseen.to_string(), "wait_task(3)");
    let blocked = Fact::Blocked { on };
    follow(&mut ledger, 1, [blocked]);
    assert!(ledger.unseen(1.into()).is_none(), "a trace has shown it");
    let pending = ledger.pending(1.into()).expect("it has no answer");
    assert_eq!(pending.blocked, Some((on, Duration::ZERO)));
    let reply = Reply::Done;
    follow(&mut ledger, 1, [replied(reply)]);
    let told = |ledger: &Ledger, reply| {
        let fact = replied(reply);
        ledger.line(&fact, 1.into()).to_string()
    };
    assert_eq!(told(&ledger, reply), "... wait_task(3) = ok");
    assert!(ledger.pending(1.into()).is_none());
    let late = Reply::Elapsed(1);
    follow(&mut ledger, 1, [replied(late)]);
    assert!(ledger.last(1.into()).is_some_and(|call| call.is_late));
    assert_eq!(told(&ledger, late), "... wait_task(3) = timeout 1 elapsed");
    follow(&mut ledger, 1, [Fact::Reaped]);
    assert_eq!((ledger.comm(1.into()), ledger.len()), ("waiter", 0));
    follow(&mut ledger, 2, [Fact::Reaped]);
    assert_eq!(ledger.comm(1.into()), "?", "another was reaped since");
}

/// Where a wait ends well with the close of its queue, its answer is no error.
#[test]
fn the_answer_of_a_wait_that_ends_well_is_in_the_words_of_its_object() {
    let ledger = Rc::new(RefCell::new(Ledger::new()));
    let told = Rc::new(RefCell::new(Vec::new()));
    let (lines, known) = (Rc::clone(&told), Rc::clone(&ledger));
    let tracer = move |event: &Event<'_>| {
        known.borrow_mut().event(event);
        if let Fact::Replied { .. } = event.fact {
            let line = known.borrow().line(&event.fact, event.tid).to_string();
            lines.borrow_mut().push(line);
        }
    };
    let mut kernel = sim().tracer(tracer).build().unwrap();
    let main = async |os: &mut Os| {
        let flag = Flag::new(os).await;
        flag.set(os).await;
        flag.wait(os).await;
        let (setter, promise) = Promise::new(os).await;
        setter.set(os, 1).await.unwrap();
        assert_eq!(promise.wait(os).await, Ok(1));
        let watch = Watch::new(os, 0).await;
        let other = watch.clone();
        watch.set(os, 1).await;
        other.changed(os).await;
        let once = Once::new(os).await;
        for _ in 0..2 {
            once.get_or_init(os, async |_: &mut Os| 1).await;
        }
        let queue = Queue::<u8>::unbounded(os).await;
        queue.close(os).await;
        queue.get(os).await.unwrap_err();
    };
    kernel.spawn("main", main).unwrap();
    kernel.run().unwrap().check().unwrap();
    let told = told.borrow();
    for expected in [
        "wait(flag 1) = set",
        "wait(promise 2) = decided",
        "changed(watch 3) = changed",
        "get_or_init(once 5) = made",
        "get(queue 6) = Closed (it is closed)",
    ] {
        assert!(
            told.iter().any(|line| line == expected),
            "{expected}: {told:?}"
        );
    }
}

#[test]
fn the_ledger_keeps_as_many_calls_and_tasks_as_it_is_told_to() {
    let mut ledger = Ledger::keeping(2).at_most(1);
    let calls = [SystemCall::Now, SystemCall::Yield, SystemCall::Random];
    for tid in [1, 2] {
        let trapped = calls.map(|call| Fact::Trapped {
            call,
            detail: Detail::None,
        });
        follow(&mut ledger, tid, trapped);
    }
    let kept = |tid: u64| {
        let calls = ledger.calls(tid.into());
        calls.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(kept(1), ["yield()", "random()"]);
    assert!(kept(2).is_empty(), "there was no room");
    assert_eq!(ledger.comm(1.into()), "?", "its name was not told");
}

#[test]
fn the_ledger_knows_the_addresses_of_open_devices() {
    let ledger = Rc::new(RefCell::new(Ledger::new()));
    let opened = Rc::new(RefCell::new(Vec::new()));
    let (tracer, devices) = (Rc::clone(&ledger), Rc::clone(&opened));
    let builder = unscripted().tracer(move |event: &Event<'_>| {
        tracer.borrow_mut().event(event);
        if let Fact::Replied {
            reply: Reply::Device(device),
            ..
        } = event.fact
        {
            devices.borrow_mut().push(device);
        }
    });
    let mut kernel = builder.build().unwrap();
    let addrs = move || -> Vec<_> {
        let opened = opened.borrow();
        let addrs = opened.iter().map(|device| ledger.borrow().addr(*device));
        addrs.collect()
    };
    let seen = addrs.clone();
    let main = async move |os: &mut Os| {
        let listener = os.listen("127.0.0.1:80".parse().unwrap()).await?;
        let here = listener.local_addr()?;
        let client = os.connect(here).await?;
        let (server, peer) = listener.accept(os).await?;
        os.yield_now().await;
        assert_eq!(seen(), [Some(here), Some(here), Some(peer)]);
        drop((client, server));
        os.yield_now().await;
        assert_eq!(seen(), [Some(here), None, None]);
        Ok::<(), std::io::Error>(())
    };
    kernel.spawn("main", main).unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(addrs(), [None; 3], "all are closed");
}

/// What a task of a random program does.
#[derive(Clone, Debug)]
enum Op {
    Lock(usize),
    Unlock,
    Acquire,
    TryAcquire,
    Release,
    Get(usize),
    Put(usize),
    TryGet(usize),
    Notify,
    WaitFor(usize),
    Raise,
    AwaitFlag,
    Join(u64),
    Yield,
    Sleep(u64),
    Compute(u64),
    Kill(u64),
    Fail,
    /// A child, which is an orphan if this task ends before it.
    Spawn(Vec<Op>),
    Later(Vec<Op>),
    /// The rest of the task, within a timeout.
    Within(u64),
    /// The rest of the task, within a scope with this deadline.
    Scoped(u64),
    /// The rest of the task, within a shield.
    Shielded,
    Cancel(u64),
    /// Moves the deadline of every scope.
    Move(u64),
    /// The sources of these bits; the end of a task; and a span.
    Select(usize, u64, u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0..3_usize).prop_map(Op::Lock),
        2 => Just(Op::Unlock),
        3 => Just(Op::Acquire),
        1 => Just(Op::TryAcquire),
        2 => Just(Op::Release),
        2 => (0..2_usize).prop_map(Op::Get),
        2 => (0..2_usize).prop_map(Op::Put),
        1 => (0..2_usize).prop_map(Op::TryGet),
        1 => Just(Op::Notify),
        1 => (0..3_usize).prop_map(Op::WaitFor),
        1 => Just(Op::Raise),
        2 => Just(Op::AwaitFlag),
        3 => (1..8_u64).prop_map(Op::Join),
        2 => Just(Op::Yield),
        2 => prop_oneof![0..4_u64, Just(u64::MAX)].prop_map(Op::Sleep),
        1 => (0..4_u64).prop_map(Op::Compute),
        1 => (1..8_u64).prop_map(Op::Kill),
        1 => Just(Op::Fail),
        2 => prop_oneof![0..6_u64, Just(u64::MAX)].prop_map(Op::Within),
        2 => prop_oneof![0..6_u64, Just(u64::MAX)].prop_map(Op::Scoped),
        1 => Just(Op::Shielded),
        1 => (1..8_u64).prop_map(Op::Cancel),
        1 => prop_oneof![0..9_u64, Just(u64::MAX)].prop_map(Op::Move),
        5 => (0..512_usize, 1..8_u64, prop_oneof![0..6_u64, Just(u64::MAX)])
            .prop_map(|(bits, tid, span)| Op::Select(bits, tid, span)),
    ];
    let op = op.prop_recursive(2, 12, 4, |inner| {
        let ops = prop::collection::vec(inner, 0..5);
        prop_oneof![ops.clone().prop_map(Op::Spawn), ops.prop_map(Op::Later)]
    });
    prop::collection::vec(op, 0..9)
}

/// What the tasks share.
struct Things {
    locks: Vec<Mutex<()>>,
    permits: Semaphore,
    queues: Vec<Queue<()>>,
    condition: Condition,
    flag: Flag,
    scopes: RefCell<Vec<Scope>>,
}

impl Things {
    fn sources(&self, bits: usize, tid: u64, span: u64) -> Vec<Source> {
        let all = [
            Source::lock(&self.locks[0]),
            Source::lock(&self.locks[3]),
            Source::message(&self.queues[0]),
            Source::room(&self.queues[1]),
            Source::permit(&self.permits),
            Source::flag(&self.flag),
            Source::exit(tid.into()),
            Source::after(Duration::from_millis(span)),
            Source::at(Duration::from_millis(3)),
        ];
        let some = all.into_iter().enumerate();
        let some = some.filter(|(at, _)| bits >> at & 1 == 1);
        some.map(|(_, source)| source).collect()
    }
}

async fn perform(os: &mut Os, ops: &[Op], things: &Rc<Things>) -> Result<(), &'static str> {
    let (mut guards, mut permits) = (Vec::new(), Vec::new());
    let millis = Duration::from_millis;
    for (at, op) in ops.iter().enumerate() {
        match op {
            Op::Lock(at) => guards.push(match things.locks[*at].lock(os).await {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.0,
            }),
            Op::Unlock => drop(guards.pop()),
            Op::Acquire => permits.extend(things.permits.acquire(os).await),
            Op::TryAcquire => permits.extend(things.permits.try_acquire(os).await),
            Op::Release => drop(permits.pop()),
            Op::Get(at) => drop(things.queues[*at].get(os).await),
            Op::Put(at) => drop(things.queues[*at].put(os, ()).await),
            Op::TryGet(at) => drop(things.queues[*at].try_get(os).await),
            Op::Notify => drop(things.condition.notify_one(os).await),
            Op::WaitFor(at) => {
                if let Ok(guard) = things.locks[*at].lock(os).await {
                    guards.extend(things.condition.wait(os, guard).await);
                }
            }
            Op::Raise => things.flag.set(os).await,
            Op::AwaitFlag => things.flag.wait(os).await,
            Op::Join(tid) => drop(os.wait((*tid).into()).await),
            Op::Yield => os.yield_now().await,
            Op::Sleep(span) => os.sleep(millis(*span)).await,
            Op::Compute(span) => os.compute(millis(*span)).await,
            Op::Kill(tid) => drop(os.kill((*tid).into()).await),
            Op::Fail => return Err("as it was told to"),
            Op::Spawn(ops) => {
                let (ops, things) = (ops.clone(), Rc::clone(things));
                let child = async move |os: &mut Os| Box::pin(perform(os, &ops, &things)).await;
                let _ = os.spawn("child", child).await;
            }
            Op::Later(ops) => {
                let (ops, things) = (ops.clone(), Rc::clone(things));
                let child = async move |os: &mut Os| Box::pin(perform(os, &ops, &things)).await;
                let _ = os.spawn_later("later", millis(2), child).await;
            }
            Op::Within(span) => {
                let rest = async |os: &mut Os| Box::pin(perform(os, &ops[at + 1..], things)).await;
                return os.timeout(millis(*span), rest).await.unwrap_or(Ok(()));
            }
            Op::Scoped(deadline) => {
                let scope = Scope::new();
                if *deadline < u64::MAX {
                    scope.deadline(os, millis(*deadline)).await;
                }
                things.scopes.borrow_mut().push(scope.clone());
                let rest = async |os: &mut Os| Box::pin(perform(os, &ops[at + 1..], things)).await;
                return scope.run(os, rest).await.unwrap_or(Ok(()));
            }
            Op::Shielded => {
                let rest = async |os: &mut Os| Box::pin(perform(os, &ops[at + 1..], things)).await;
                return os.shield(rest).await;
            }
            Op::Cancel(tid) => drop(os.cancel((*tid).into()).await),
            Op::Move(deadline) => {
                let scopes = things.scopes.borrow().clone();
                for scope in scopes {
                    scope.deadline(os, millis(*deadline)).await;
                }
            }
            Op::Select(bits, tid, span) => {
                os.select(&things.sources(*bits, *tid, *span)).await;
            }
        }
    }
    Ok(())
}

/// Runs tasks turn by turn, and compares the ledger with the kernel after each. Returns the report of a
/// run that gets stuck.
fn compare(tasks: Vec<Vec<Op>>) -> Option<Deadlock> {
    let ledger = Rc::new(RefCell::new(Ledger::new()));
    let shared = Rc::clone(&ledger);
    let tracer = move |event: &Event<'_>| shared.borrow_mut().event(event);
    let builder = Kernel::builder().world(SimWorld::new(1)).tracer(tracer);
    let mut kernel = builder.build().unwrap();
    let main = async move |os: &mut Os| {
        let mut things = Things {
            locks: Vec::new(),
            permits: Semaphore::new(os, 2).await,
            queues: Vec::new(),
            condition: Condition::named(os, "signal").await,
            flag: Flag::new(os).await,
            scopes: RefCell::default(),
        };
        for _ in 0..3 {
            things.locks.push(Mutex::new(os, ()).await);
            things.queues.push(Queue::bounded(os, 1).await);
        }
        things.locks.push(Mutex::named(os, "purse", ()).await);
        let things = Rc::new(things);
        for ops in tasks {
            let things = Rc::clone(&things);
            let task = async move |os: &mut Os| perform(os, &ops, &things).await;
            os.spawn_detached("task", task).await.unwrap();
        }
    };
    kernel.spawn("main", main).unwrap();
    for _ in 0..2000 {
        let step = kernel.step();
        let ledger = ledger.borrow();
        let (theirs, ours): (Vec<_>, _) = (kernel.tasks().collect(), ledger.tasks());
        assert_eq!(ours, theirs);
        let waits: Vec<_> = theirs.iter().map(TaskInfo::waits_for).collect();
        assert!(ours.iter().map(TaskInfo::waits_for).eq(waits));
        let among = [theirs, ours].map(|tasks| Deadlock::among(tasks).to_string());
        assert_eq!(among[0], among[1]);
        match step {
            // A run that is stuck is found to be at its next step.
            Ok(Step::Ran(_) | Step::Idle) => {}
            Ok(Step::Finished) => {
                assert!(ledger.is_empty() && !ledger.is_stuck());
                return None;
            }
            Err(Error::Deadlock(deadlock)) => {
                assert!(ledger.is_stuck());
                let ours = Deadlock::of(ledger.tasks());
                assert_eq!(ours.to_string(), deadlock.to_string());
                return Some(deadlock);
            }
            Err(error) => panic!("{error}"),
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn after_each_turn_the_ledger_and_the_kernel_say_the_same(
        tasks in prop::collection::vec(ops(), 1..6),
    ) {
        compare(tasks);
    }
}

#[test]
fn two_plain_queues_crosswise_are_no_cycle() {
    // Each has got the last message of the queue at which the other waits.
    let deadlock = compare(vec![
        vec![Op::Put(0), Op::Get(0), Op::Yield, Op::Get(1)],
        vec![Op::Put(1), Op::Get(1), Op::Yield, Op::Get(0)],
    ]);
    let deadlock = deadlock.expect("both wait for ever");
    assert!(deadlock.cycles.is_empty() && deadlock.blocked.len() == 2);
}
