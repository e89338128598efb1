//! One kernel in every mode: programs do the same under `run`, under `step` and in slices, with a
//! tracer or without, with the built-in ready queue or the same policy, with daemons beside or
//! alone.

use std::{
    collections::BTreeMap,
    env,
    pin::Pin,
    process::{Command, Output},
    rc::Rc,
    time::Duration,
};

use proptest::prelude::*;
use trapline::{
    Kernel, Os, Promise, Queue, Setter,
    sync::{Barrier, Group, Mutex, Semaphore},
};

use crate::support::*;

// ---- scripted programs

/// The topics whose programs live in the simulated world.
const TOPICS: [&str; 9] = [
    "callbacks::",
    "chains::",
    "children::",
    "promises::",
    "queues::",
    "sync::",
    "tasks::",
    "time::",
    "timeouts::",
];

/// The tests that are not run again: those with modes, policies or clocks of their own, searches, long
/// chains, figures, and those on the real clock.
const APART: [&str; 8] = [
    "model",
    "whatever_is_cut",
    "every_policy",
    "keeps_its_answer",
    "dropped_flat",
    "price",
    "each_cycle_is_reported",
    "real",
];

/// Runs the tests of the topics in a process of its own, in that mode.
fn rerun(mode: Mode) -> Output {
    let mut child = Command::new(env::current_exe().expect("a test binary has a path"));
    child.args(TOPICS).env(MODE_VARIABLE, mode.to_string());
    // With one thread a test has no name of its own.
    child.arg("--test-threads=2");
    child.env("RUST_BACKTRACE", "0");
    for apart in APART {
        child.args(["--skip", apart]);
    }
    child.output().expect("a test binary can be run")
}

#[test]
fn s58_scripted_programs_do_the_same_in_every_mode() {
    let mut known = BTreeMap::<String, (String, Mode)>::new();
    let mut different = String::new();
    for mode in Mode::pairs() {
        let output = rerun(mode);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{mode}:\n{stdout}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        for finding in stderr.lines().filter_map(|line| line.strip_prefix(FINDING)) {
            let (name, what) = finding.split_once(" = ").expect("a name and a text");
            let (expected, first) = known
                .entry(name.to_string())
                .or_insert_with(|| (what.to_string(), mode));
            if what != expected {
                let lines = [
                    format!(
                        "{name}
  {first}: {expected}
"
                    ),
                    format!(
                        "  {mode}: {what}
"
                    ),
                ];
                different.extend(lines);
            }
        }
    }
    assert!(different.is_empty(), "{different}");
    assert!(known.len() > 300, "only {} findings", known.len());
}

// ---- random programs

/// What a random program does, one after another. Tids and queues are small numbers.
#[derive(Clone, Debug)]
enum Op {
    Yield(usize),
    Ask,
    Say,
    Sleep(u64),
    Put(usize),
    Get(usize),
    TryPut(usize),
    TryGet(usize),
    Close(usize),
    Kill(u64),
    Wait(u64),
    Set(u32),
    Await,
    Meet,
    Panic,
    CallLater(u64),
    Timeout(u64, Vec<Op>),
    Lock(Vec<Op>),
    Acquire(Vec<Op>),
    Spawn(Vec<Op>),
    Group(Vec<Vec<Op>>, End),
}

/// What becomes of a group.
#[derive(Clone, Copy, Debug)]
enum End {
    Join,
    First,
    Drop,
}

fn op() -> impl Strategy<Value = Op> {
    let queue = || 0..4usize;
    let leaf = prop_oneof![
        5 => (1..6usize).prop_map(Op::Yield),
        1 => (200..300usize).prop_map(Op::Yield),
        3 => Just(Op::Ask),
        2 => Just(Op::Say),
        5 => (0..6u64).prop_map(Op::Sleep),
        6 => queue().prop_map(Op::Put),
        6 => queue().prop_map(Op::Get),
        2 => queue().prop_map(Op::TryPut),
        2 => queue().prop_map(Op::TryGet),
        1 => queue().prop_map(Op::Close),
        2 => (2..16u64).prop_map(Op::Kill),
        3 => (1..16u64).prop_map(Op::Wait),
        1 => any::<u32>().prop_map(Op::Set),
        2 => Just(Op::Await),
        1 => Just(Op::Meet),
        1 => Just(Op::Panic),
        1 => (0..4u64).prop_map(Op::CallLater),
    ];
    leaf.prop_recursive(3, 40, 6, |inner| {
        let script = prop::collection::vec(inner, 0..6);
        let end = prop::sample::select(&[End::Join, End::First, End::Drop][..]);
        prop_oneof![
            4 => (0..6u64, script.clone()).prop_map(|(span, ops)| Op::Timeout(span, ops)),
            1 => script.clone().prop_map(Op::Lock),
            1 => script.clone().prop_map(Op::Acquire),
            2 => script.clone().prop_map(Op::Spawn),
            1 => (prop::collection::vec(script, 0..4), end).prop_map(|(all, end)| Op::Group(all, end)),
        ]
    })
}

/// What the tasks of a random program have in common.
struct House {
    queues: [Queue<String>; 4],
    setter: Setter<u32>,
    promise: Promise<u32>,
    lock: Mutex<u32>,
    permits: Semaphore,
    barrier: Barrier,
    diary: Diary,
}

impl House {
    async fn new(os: &mut Os, diary: Diary) -> Rc<Self> {
        let (setter, promise) = Promise::new(os).await;
        let queues = [
            Queue::bounded(os, 0).await,
            Queue::bounded(os, 1).await,
            Queue::bounded(os, 3).await,
            Queue::unbounded(os).await,
        ];
        Rc::new(Self {
            queues,
            setter,
            promise,
            lock: Mutex::new(os, 0).await,
            permits: Semaphore::new(os, 2).await,
            barrier: Barrier::new(os, 2).await,
            diary,
        })
    }
}

type Done<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A task that does all of a script.
async fn perform(os: &mut Os, ops: Vec<Op>, house: Rc<House>) {
    let me = os.get_tid().await.into();
    perform_all(os, me, &ops, &house).await;
}

fn perform_all<'a>(os: &'a mut Os, me: u64, ops: &'a [Op], house: &'a Rc<House>) -> Done<'a> {
    Box::pin(async move {
        for (at, op) in ops.iter().enumerate() {
            let answer = match op {
                Op::Timeout(..) | Op::Lock(_) | Op::Acquire(_) => around(os, me, op, house).await,
                Op::Spawn(_) | Op::Group(..) => beside(os, op, house).await,
                leaf => call(os, me, leaf, house).await,
            };
            house.diary.note(format!("{me}, {at}: {answer}"));
        }
    })
}

/// A call with nothing inside it.
async fn call(os: &mut Os, me: u64, op: &Op, house: &Rc<House>) -> String {
    let message = || format!("of {me}");
    match *op {
        Op::Yield(times) => format!("{:?}", passes(os, times).await),
        Op::Ask => format!("{:?} {}", os.now().await, os.random().await),
        Op::Say => {
            writeln!(os, "{me} says so");
            String::new()
        }
        Op::Sleep(span) => format!("{:?}", os.sleep(Duration::from_micros(span)).await),
        Op::Put(queue) => format!("{:?}", house.queues[queue].put(os, message()).await),
        Op::Get(queue) => format!("{:?}", house.queues[queue].get(os).await),
        Op::TryPut(queue) => format!("{:?}", house.queues[queue].try_put(os, message()).await),
        Op::TryGet(queue) => format!("{:?}", house.queues[queue].try_get(os).await),
        Op::Close(queue) => format!("{:?}", house.queues[queue].close(os).await),
        Op::Kill(victim) => format!("{}", os.kill(tid(victim)).await),
        Op::Wait(target) => format!("{:?}", os.wait(tid(target)).await),
        Op::Set(value) => format!("{:?}", house.setter.set(os, value).await),
        Op::Await => format!("{:?}", house.promise.wait(os).await),
        Op::Meet => format!("{}", house.barrier.wait(os).await),
        Op::Panic => panic!("panicked"),
        Op::CallLater(span) => {
            let diary = house.diary.clone();
            let callback = async move |_: &mut Os| diary.note(format!("callback of {me}"));
            let callback = os.call_later(Duration::from_micros(span), callback);
            format!("{:?}", callback.await)
        }
        _ => unreachable!("it has something inside"),
    }
}

/// A script inside a timeout, or with a lock or a permit.
async fn around(os: &mut Os, me: u64, op: &Op, house: &Rc<House>) -> String {
    match op {
        Op::Timeout(span, ops) => {
            let body = async |os: &mut Os| perform_all(os, me, ops, house).await;
            format!("{:?}", os.timeout(Duration::from_micros(*span), body).await)
        }
        Op::Lock(ops) => {
            let (mut guard, broken) = match house.lock.lock(os).await {
                Ok(guard) => (guard, false),
                Err(broken) => (broken.0, true),
            };
            *guard += 1;
            let count = *guard;
            perform_all(os, me, ops, house).await;
            format!("lock {count}, broken: {broken}")
        }
        Op::Acquire(ops) => {
            let permit = house.permits.acquire(os).await;
            perform_all(os, me, ops, house).await;
            format!("{}", permit.is_ok())
        }
        _ => unreachable!("it has nothing around it"),
    }
}

/// Scripts of other tasks.
async fn beside(os: &mut Os, op: &Op, house: &Rc<House>) -> String {
    let task = |ops: &Vec<Op>| {
        let (ops, house) = (ops.clone(), Rc::clone(house));
        async move |os: &mut Os| perform(os, ops, house).await
    };
    match op {
        Op::Spawn(ops) => format!("{:?}", os.spawn("child", task(ops)).await.map(drop)),
        Op::Group(scripts, end) => {
            let mut group = Group::new(os).await;
            for ops in scripts {
                let member = group.spawn(os, "member", task(ops)).await;
                assert!(member.is_ok(), "there is room");
            }
            match end {
                End::Join => format!("{}", group.join(os).await.is_ok()),
                End::First => format!("{:?}", group.first(os).await),
                End::Drop => String::new(),
            }
        }
        _ => unreachable!("it is of one task"),
    }
}

fn spawn_main(kernel: &mut Kernel, scripts: &[Vec<Op>]) -> impl Fn() -> Vec<String> + use<> {
    let (scripts, diary) = (scripts.to_vec(), Diary::default());
    let notes = diary.clone();
    let main = async move |os: &mut Os| {
        let house = House::new(os, diary).await;
        for ops in scripts {
            let house = Rc::clone(&house);
            let program = async move |os: &mut Os| perform(os, ops, house).await;
            assert!(os.spawn("program", program).await.is_ok());
        }
    };
    kernel.spawn("main", main).expect("there is room");
    move || notes.lines()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s58_random_programs_do_the_same_in_every_mode(
        scripts in prop::collection::vec(prop::collection::vec(op(), 0..10), 1..6),
        quantum in prop_oneof![3 => Just(1u32), 1 => 2..5u32],
    ) {
        let builder = || unscripted().quantum(quantum);
        let populate = |kernel: &mut Kernel| spawn_main(kernel, &scripts);
        in_every_mode(builder, populate).map_err(TestCaseError::fail)?;
    }
}
