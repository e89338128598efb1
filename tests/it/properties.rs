//! Random programs: whatever they do to one another, a live task is in exactly one place, and
//! nothing is lost.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    rc::Rc,
    time::Duration,
};

use proptest::prelude::*;
use trapline::{
    Builder, Cause, Error, Event, Exit, Fact, Kernel, Os, Policy, Reply, Runnable, SystemCall, Tid,
};

use crate::support::*;

/// What a random program does, one after another. Tids are small numbers: most exist at some time.
#[derive(Clone, Debug)]
enum Op {
    Yield,
    Sleep(u64),
    SleepUntil(u64),
    Spawn(Vec<Op>),
    SpawnDetached(Vec<Op>),
    Kill(u64),
    KillMe,
    Wait(u64),
    WaitForLastChild,
    Print,
    List,
    Abandon,
    Fail,
    Panic,
    PanicWhenDropped,
    Foreign,
    Exit,
}

fn op() -> impl Strategy<Value = Op> {
    let leaf = prop_oneof![
        6 => Just(Op::Yield),
        6 => (0..20u64).prop_map(Op::Sleep),
        3 => (0..60u64).prop_map(Op::SleepUntil),
        5 => (0..14u64).prop_map(Op::Kill),
        6 => (0..14u64).prop_map(Op::Wait),
        4 => Just(Op::WaitForLastChild),
        2 => Just(Op::Print),
        1 => Just(Op::List),
        1 => Just(Op::Abandon),
        1 => Just(Op::KillMe),
        1 => Just(Op::Fail),
        1 => Just(Op::Panic),
        1 => Just(Op::PanicWhenDropped),
        1 => Just(Op::Foreign),
        1 => Just(Op::Exit),
    ];
    leaf.prop_recursive(3, 40, 8, |inner| {
        let script = prop::collection::vec(inner, 0..8);
        prop_oneof![
            3 => script.clone().prop_map(Op::Spawn),
            1 => script.prop_map(Op::SpawnDetached),
        ]
    })
}

/// The programs of the host.
fn scripts() -> impl Strategy<Value = Vec<Vec<Op>>> {
    prop::collection::vec(prop::collection::vec(op(), 0..12), 1..5)
}

/// What tasks saw, to be compared with the log.
type Seen = Rc<RefCell<Vec<(Tid, Exit)>>>;

fn perform<'a>(
    os: &'a mut Os,
    ops: Vec<Op>,
    seen: &'a Seen,
) -> Pin<Box<dyn Future<Output = Result<(), String>> + 'a>> {
    Box::pin(async move {
        let (mut traps, mut child) = (Vec::new(), Tid::KERNEL);
        for op in ops {
            match op {
                Op::Yield => os.yield_now().await,
                Op::Sleep(span) => os.sleep(Duration::from_micros(span)).await,
                Op::SleepUntil(instant) => os.sleep_until(Duration::from_micros(instant)).await,
                Op::Spawn(ops) => {
                    let seen = Rc::clone(seen);
                    let program = async move |os: &mut Os| perform(os, ops, &seen).await;
                    child = os.spawn("child", program).await.unwrap_or(child);
                }
                Op::SpawnDetached(ops) => {
                    let seen = Rc::clone(seen);
                    let program = async move |os: &mut Os| perform(os, ops, &seen).await;
                    child = os
                        .spawn_detached("detached", program)
                        .await
                        .unwrap_or(child);
                }
                Op::Kill(victim) => drop(os.kill(tid(victim)).await),
                Op::KillMe => {
                    let me = os.get_tid().await;
                    os.kill(me).await;
                    unreachable!("no answer to that");
                }
                Op::Wait(target) => wait(os, tid(target), seen).await,
                Op::WaitForLastChild => wait(os, child, seen).await,
                Op::Print => writeln!(os, "text"),
                Op::List => drop(os.tasks().await),
                Op::Abandon => ignore_answer(os.tasks()).await,
                Op::Fail => return Err("failed".into()),
                Op::Panic => {
                    // It would panic while this one unwinds, which ends the process.
                    std::mem::forget(traps);
                    panic!("panicked")
                }
                Op::PanicWhenDropped => traps.push(PanicOnDrop),
                Op::Foreign => foreign().await,
                Op::Exit => os.exit(Exit::Done).await,
            }
            if traps.len() > 1 {
                // One panics while the other unwinds, which ends the process.
                std::mem::forget(traps.pop());
            }
        }
        // It is for those who are killed; a panic of its own would hide how this one ends.
        std::mem::forget(traps);
        Ok(())
    })
}

async fn wait(os: &mut Os, target: Tid, seen: &Seen) {
    if let Ok(exit) = os.wait(target).await {
        seen.borrow_mut().push((target, exit));
    }
}

/// Where a task is, by the log alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Ready,
    Running,
    Trapped,
    Blocked,
    Woken,
    Ended,
    Reaped,
}

/// Follows the log, and complains of an event that cannot be. (It may not panic: a tracer that does
/// is switched off.)
#[derive(Default)]
struct Ledger {
    phases: BTreeMap<Tid, Phase>,
    exits: BTreeMap<Tid, Exit>,
    hosts: BTreeSet<Tid>,
    /// The last call of each task.
    calls: BTreeMap<Tid, SystemCall>,
    /// The tasks whose exit was answered to a task.
    waited_for: BTreeSet<Tid>,
    at: Duration,
    complaints: Vec<String>,
}

impl Ledger {
    fn enter(&mut self, event: &Event<'_>) {
        if event.at < self.at {
            self.complaints.push(format!("time goes back: {event}"));
        }
        self.at = event.at;
        match self.next_phase(event) {
            Ok(Some(phase)) => drop(self.phases.insert(event.tid, phase)),
            Ok(None) => {}
            Err(complaint) => self.complaints.push(format!("{complaint}: {event}")),
        }
    }

    fn next_phase(&mut self, event: &Event<'_>) -> Result<Option<Phase>, String> {
        use Phase::{Blocked, Ended, Ready, Reaped, Running, Trapped, Woken};
        let idle = |phase: &Phase| matches!(phase, Blocked | Ended | Reaped);
        let busy = |phase: &Phase| matches!(phase, Running | Trapped);
        let (legal, after): (&[Phase], _) = match &event.fact {
            Fact::ClockJumped { .. } => {
                let all_idle = self.phases.values().all(idle);
                return all_idle.then_some(None).ok_or("a task is ready".into());
            }
            Fact::Spawned { parent, .. } => {
                if *parent == Tid::KERNEL {
                    self.hosts.insert(event.tid);
                }
                let new = !self.phases.contains_key(&event.tid);
                return new
                    .then_some(Some(Ready))
                    .ok_or("a tid is used twice".into());
            }
            Fact::Resumed if self.phases.values().any(busy) => {
                return Err("two tasks run at once".into());
            }
            Fact::Resumed => (&[Ready], Some(Running)),
            Fact::Trapped { call, .. } => {
                self.calls.insert(event.tid, *call);
                (&[Running], Some(Trapped))
            }
            Fact::Blocked { .. } => (&[Trapped], Some(Blocked)),
            Fact::Deadlocked { .. } => (&[Blocked], None),
            Fact::Woken { .. } => (&[Blocked], Some(Woken)),
            Fact::Replied { reply, .. } => {
                let call = self.calls[&event.tid];
                if let (SystemCall::WaitTask(target), Reply::Exit) = (call, reply) {
                    self.waited_for.insert(target);
                }
                if event.fact.is_error() && !call.can_fail() {
                    return Err(format!("{} cannot fail", call.name()));
                }
                (&[Trapped, Woken], Some(Ready))
            }
            Fact::Exited { exit } => {
                self.exits.insert(event.tid, (*exit).clone());
                (&[Ready, Running, Trapped, Blocked], Some(Ended))
            }
            Fact::Reaped => (&[Ended], Some(Reaped)),
            Fact::Console { .. } => (&[Running], None),
            _ => return Err("there are no devices here".into()),
        };
        match self.phases.get(&event.tid) {
            Some(phase) if legal.contains(phase) => Ok(after),
            phase => Err(format!("its task is {phase:?}")),
        }
    }
}

/// Takes any task, by numbers of its own: what a search over schedules does.
struct Whimsical {
    queue: Vec<Runnable>,
    state: u64,
}

impl Policy for Whimsical {
    fn push(&mut self, task: Runnable, _: Cause) {
        assert!(!self.queue.contains(&task), "handed over once");
        self.queue.push(task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        if self.queue.is_empty() {
            return None;
        }
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let at = (self.state >> 33) as usize % self.queue.len();
        Some(self.queue.swap_remove(at))
    }

    fn remove(&mut self, task: Runnable) {
        self.queue.retain(|other| *other != task);
    }

    fn len(&self) -> usize {
        self.queue.len()
    }
}

fn spawn_all(kernel: &mut Kernel, scripts: &[Vec<Op>]) -> Seen {
    let seen = Seen::default();
    for ops in scripts {
        let (ops, seen) = (ops.clone(), Rc::clone(&seen));
        let program = async move |os: &mut Os| perform(os, ops, &seen).await;
        kernel.spawn("host's", program).unwrap();
    }
    seen
}

fn boot(builder: Builder, scripts: &[Vec<Op>]) -> (Kernel, Rc<RefCell<Ledger>>, Seen) {
    let ledger = Rc::new(RefCell::new(Ledger::default()));
    let clerk = Rc::clone(&ledger);
    let mut kernel = builder
        .max_tasks(12)
        .tracer(move |event: &Event<'_>| clerk.borrow_mut().enter(event))
        .build()
        .unwrap();
    let seen = spawn_all(&mut kernel, scripts);
    (kernel, ledger, seen)
}

/// Runs to the end, with an audit after each step or slice, and checks the accounts.
fn run_audited(mode: Mode, builder: Builder, scripts: &[Vec<Op>]) -> Result<(), TestCaseError> {
    let (mut kernel, ledger, seen) = boot(mode.slice(builder), scripts);
    if mode.daemons {
        spawn_daemons(&mut kernel);
    }
    let mut finished = false;
    for _ in 0..20_000 {
        let advance = mode.advance(&mut kernel);
        kernel.audit();
        match advance {
            Ok(ended) => finished = ended,
            Err(Error::Deadlock(deadlock)) => {
                let live = kernel.tasks().filter(is_blocked).count();
                prop_assert_eq!(deadlock.blocked.len(), live);
                prop_assert!(
                    !deadlock.cycles.is_empty(),
                    "only waiting for one another: {}",
                    deadlock
                );
                let on_cycles: usize = deadlock.cycles.iter().map(Vec::len).sum();
                let on_tails: usize = deadlock.tails.iter().map(|way| way.len() - 1).sum();
                prop_assert_eq!(on_cycles + on_tails, live, "{}", deadlock);
                kernel.remote().shutdown();
                while !mode.advance(&mut kernel).expect("a shutdown ends well") {}
                finished = true;
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
        if finished {
            break;
        }
    }
    prop_assert!(finished, "it comes to an end");
    let report = kernel.run().expect("an empty kernel ends at once");
    let ledger = ledger.borrow();
    prop_assert_eq!(&ledger.complaints, &Vec::<String>::new());
    prop_assert_eq!(kernel.tasks().count(), 0);
    prop_assert!(report.peak_tasks <= 12);
    // Every task that was spawned has ended once, is reaped, and left no tid out.
    prop_assert!(ledger.phases.values().all(|phase| *phase == Phase::Reaped));
    prop_assert!(
        ledger
            .phases
            .keys()
            .copied()
            .map(u64::from)
            .eq(1..=ledger.phases.len() as u64)
    );
    prop_assert_eq!(ledger.exits.len(), ledger.phases.len());
    let hosts = ledger
        .exits
        .iter()
        .filter(|(tid, _)| ledger.hosts.contains(tid));
    prop_assert!(
        report.exits().iter().eq(hosts),
        "the report has the host's tasks"
    );
    let counts = |(tid, exit): &(&Tid, &Exit)| match exit {
        Exit::Faulted(_) => true,
        Exit::Failed(_) => !ledger.waited_for.contains(tid),
        Exit::Done | Exit::Killed => false,
    };
    prop_assert_eq!(
        report.failures,
        ledger.exits.iter().filter(counts).count() as u64
    );
    for (tid, exit) in seen.borrow().iter() {
        prop_assert_eq!(
            exit,
            &ledger.exits[tid],
            "what the waiters of task {} saw",
            tid
        );
    }
    Ok(())
}

fn is_blocked(task: &trapline::TaskInfo) -> bool {
    matches!(task.state, trapline::TaskState::Blocked { .. })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_live_task_is_in_one_place_and_nothing_is_lost(
        scripts in scripts(),
        quantum in 1..4u32,
        mode in Mode::any(),
    ) {
        let builder = mode.configure(unscripted(), |_: &Event<'_>| {});
        run_audited(mode, builder.quantum(quantum), &scripts)?;
    }

    #[test]
    fn nor_under_any_other_policy(
        scripts in scripts(),
        quantum in 1..4u32,
        state: u64,
        mode in Mode::any(),
    ) {
        let policy = Whimsical { queue: Vec::new(), state };
        run_audited(mode, unscripted().quantum(quantum).policy(policy), &scripts)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s51_s58_random_programs_write_the_same_log_in_every_mode(
        scripts in scripts(),
        quantum in 1..4u32,
    ) {
        let builder = || unscripted().max_tasks(12).quantum(quantum);
        let populate = |kernel: &mut Kernel| {
            let seen = spawn_all(kernel, &scripts);
            move || seen.borrow().iter().map(|(tid, exit)| format!("{tid} {exit}")).collect()
        };
        in_every_mode(builder, populate).map_err(TestCaseError::fail)?;
    }
}
