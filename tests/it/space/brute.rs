//! Random programs with choices, sleeps and faults: a search against an enumeration of every sequence of
//! decisions, by a policy, a world and an injection of the test's own.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, VecDeque},
    fmt,
    io::ErrorKind,
    rc::Rc,
    time::Duration,
};

use trapline::{
    BeforeTurn, Cause, Error, Inject, Kernel, OnDeadlock, Os, Policy, Queue, Runnable, Shared,
    SimWorld, SystemCall, World, check, forward_world, sched::Draws, sync::Mutex,
};

use crate::exhaustive::every::wanted;

const MS: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Yield,
    Choose(usize),
    Sleep(u32),
    Compute(u32),
    Now,
    Read(usize),
    Write(usize),
    Put,
    TryGet,
    /// Waits for a message for so many milliseconds at most.
    Get(u32),
    Lock,
    Resolve,
    Spawn,
    Kill,
}

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) tasks: Vec<Vec<Op>>,
    pub(super) space: Space,
}

impl Program {
    pub(super) fn drawn(self) -> Drawn {
        let (space, text) = (self.space, format!("{self:?}"));
        (
            space,
            text,
            Box::new(move |kernel: &mut Kernel| run(&self, kernel)),
        )
    }
}

/// What a search varies beside the order of turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub(crate) turn: Option<Duration>,
    /// How many faults there may be, and which.
    pub(crate) faults: usize,
    pub(crate) list: &'static [Fault],
}

/// In words, and the name of its call.
pub(crate) type Fault = (&'static str, &'static str, Inject);

const FAULTS: [Fault; 3] = [
    (
        "resolve:error=Other",
        "resolve",
        Inject::Fail(ErrorKind::Other),
    ),
    ("yield:kill", "yield", Inject::Kill),
    ("now:delay=1ms", "now", Inject::Delay(MS)),
];

fn op(draws: &mut Draws, has_time: bool) -> Op {
    let below = |draws: &mut Draws, n| draws.below(n) as usize;
    match draws.below(if has_time { 17 } else { 14 }) {
        0 | 1 => Op::Yield,
        2 => Op::Choose(2 + below(draws, 2)),
        3 | 4 => Op::Read(below(draws, 2)),
        5 | 6 => Op::Write(below(draws, 2)),
        7 => Op::Put,
        8 => Op::TryGet,
        9 => Op::Lock,
        10 => Op::Resolve,
        11 => Op::Spawn,
        12 => Op::Kill,
        13 => Op::Now,
        14 | 15 => Op::Sleep(1 + draws.below(3) as u32),
        _ => Op::Get(1 + draws.below(2) as u32),
    }
}

fn program(seed: u64) -> Program {
    let mut draws = Draws::new(seed);
    let has_time = draws.below(3) > 0;
    let tasks = 2 + draws.below(2);
    let most = if tasks == 2 { 4 } else { 2 };
    let tasks = (0..tasks).map(|_| {
        let len = 1 + draws.below(most);
        (0..len).map(|_| op(&mut draws, has_time)).collect()
    });
    let tasks = tasks.collect();
    let turns = [MS / 4, MS / 2, MS, 2 * MS, 10 * MS];
    let space = Space {
        turn: has_time.then(|| turns[draws.below(5) as usize]),
        faults: draws.below(3) as usize,
        list: &FAULTS,
    };
    Program { tasks, space }
}

/// Runs a program. The outcome is what its tasks have seen.
fn run(program: &Program, kernel: &mut Kernel) -> Result<String, Error> {
    let told = Shared::new(vec![String::new(); program.tasks.len()]);
    let values = [Shared::new(0), Shared::new(0)];
    let made = Rc::new(RefCell::new(None));
    let makes = Rc::clone(&made);
    kernel.spawn("main", async move |os: &mut Os| {
        let queue = Queue::<usize>::unbounded(os).await;
        *makes.borrow_mut() = Some((queue, Mutex::new(os, 0).await));
    })?;
    kernel.run()?;
    let (queue, mutex) = made.take().expect("it makes them");
    for (me, ops) in program.tasks.clone().into_iter().enumerate() {
        let (told, values) = (told.clone(), values.clone());
        let (queue, mutex) = (queue.clone(), mutex.clone());
        kernel.spawn("task", async move |os: &mut Os| {
            for op in ops {
                let seen = act(os, me, op, &values, &queue, &mutex).await;
                told.update(|told| told[me] += &seen);
            }
            told.update(|told| told[me] += ".");
        })?;
    }
    let ended = match kernel.run() {
        Ok(_) => "",
        Err(Error::Deadlock(_)) => "deadlock ",
        Err(error) => return Err(error),
    };
    Ok(format!("{ended}{}", told.get().join(" ")))
}

async fn act(
    os: &mut Os,
    me: usize,
    op: Op,
    values: &[Shared<usize>; 2],
    queue: &Queue<usize>,
    mutex: &Mutex<usize>,
) -> String {
    match op {
        Op::Yield => os.yield_now().await,
        Op::Choose(of) => return os.choose(of).await.to_string(),
        Op::Sleep(n) => os.sleep(n * MS).await,
        Op::Compute(n) => os.compute(n * MS).await,
        Op::Now => return format!("@{}", os.now().await.as_millis()),
        Op::Read(at) => return values[at].get().to_string(),
        Op::Write(at) => values[at].update(|value| *value = *value * 3 + me + 1),
        Op::Put => drop(queue.put(os, me).await),
        Op::TryGet => {
            let got = queue.try_get(os).await;
            return got.map_or("-".into(), |got| got.to_string());
        }
        Op::Get(n) => {
            let got = os.timeout(n * MS, async |os| queue.get(os).await).await;
            return got.map_or("late".into(), |got| {
                got.map_or("?".into(), |got| got.to_string())
            });
        }
        Op::Lock => {
            let Ok(mut guard) = mutex.lock(os).await else {
                return "poisoned".into();
            };
            os.yield_now().await;
            *guard = *guard * 3 + me + 1;
            return format!("[{}]", *guard);
        }
        Op::Resolve => {
            let found = os.resolve("localhost").await;
            return found.map_or("x".into(), |_| "r".into());
        }
        Op::Spawn => {
            let value = values[0].clone();
            let child = async move |os: &mut Os| {
                os.yield_now().await;
                value.update(|value| *value = *value * 3 + 7);
            };
            let _ = os.spawn("child", child).await;
        }
        Op::Kill => return (os.kill((3 - me as u64).into()).await as u8).to_string(),
    }
    String::new()
}

// ---- the enumeration

/// The decisions of a run, each with the number of its alternatives.
#[derive(Default)]
struct Way {
    decided: Vec<(usize, usize)>,
    at: usize,
}

impl Way {
    fn pick(&mut self, of: usize) -> usize {
        if of < 2 {
            return 0;
        }
        if self.at == self.decided.len() {
            self.decided.push((0, of));
        }
        let (pick, known) = self.decided[self.at];
        assert_eq!(known, of, "the program does not repeat");
        self.at += 1;
        pick
    }

    fn advance(&mut self) -> bool {
        self.decided.truncate(self.at);
        self.at = 0;
        while let Some((pick, of)) = self.decided.pop() {
            if pick + 1 < of {
                self.decided.push((pick + 1, of));
                return true;
            }
        }
        false
    }
}

type Ways = Rc<RefCell<Way>>;

struct Any {
    ready: VecDeque<Runnable>,
    ways: Ways,
}

impl Policy for Any {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.ready.push_back(task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        let at = self.ways.borrow_mut().pick(self.ready.len());
        self.ready.remove(at)
    }

    fn remove(&mut self, task: Runnable) {
        self.ready.retain(|other| *other != task);
    }

    fn len(&self) -> usize {
        self.ready.len()
    }
}

/// Its clock may go on while tasks are ready.
struct Hasty {
    inner: SimWorld,
    ways: Ways,
    turn: Option<Duration>,
    taken: Duration,
}

impl World for Hasty {
    forward_world!(inner: now, now_for_log, random, reseed, seed, reset, print, take_console, wait);
    forward_world!(inner: wait_for_threads, holds_tasks, is_idle, remote, submit, io, spins, spin);
    forward_world!(inner: net);

    fn choose(&mut self, of: u64, _drawn: u64) -> u64 {
        self.ways.borrow_mut().pick(of as usize) as u64
    }

    fn is_asked(&self) -> bool {
        self.turn.is_some()
    }

    fn before_turn(&mut self, at: BeforeTurn) -> Option<Duration> {
        let (now, deadline) = (self.inner.now(), at.deadline?);
        let most = self.turn? * u32::try_from(at.turns).unwrap();
        if at.waits || deadline <= now || self.taken + (deadline - now) > most {
            return None;
        }
        if self.ways.borrow_mut().pick(2) == 0 {
            return None;
        }
        self.taken += deadline - now;
        Some(deadline)
    }
}

type Run<'a> = &'a (dyn Fn(&mut Kernel) -> Result<String, Error> + Sync);

/// Runs every sequence of decisions, up to a number. Returns the outcomes, and whether that is all.
fn every(space: Space, run: Run<'_>, most: usize) -> (BTreeSet<String>, usize, bool) {
    let ways = Ways::default();
    let mut outcomes = BTreeSet::new();
    for run_number in 1..=most {
        let used = Rc::new(Cell::new(0));
        let world = Hasty {
            inner: SimWorld::new(0),
            ways: Rc::clone(&ways),
            turn: space.turn,
            taken: Duration::ZERO,
        };
        let policy = Any {
            ready: VecDeque::new(),
            ways: Rc::clone(&ways),
        };
        let builder = Kernel::builder().world(world).policy(policy);
        let decides = Rc::clone(&ways);
        let builder = builder.inject(move |_, call: SystemCall, _| {
            let mut list = space.list.iter();
            let &(_, _, inject) = list.find(|(_, name, _)| call.name() == *name)?;
            if used.get() >= space.faults || decides.borrow_mut().pick(2) == 0 {
                return None;
            }
            used.set(used.get() + 1);
            Some(inject)
        });
        let mut kernel = builder.on_deadlock(OnDeadlock::Stop).build().unwrap();
        outcomes.insert(run(&mut kernel).unwrap());
        drop(kernel);
        if !ways.borrow_mut().advance() {
            return (outcomes, run_number, true);
        }
    }
    (outcomes, most, false)
}

/// What an exhaustive search finds; an error says why it is none.
fn searched(space: Space, run: Run<'_>) -> Result<(BTreeSet<String>, u64), String> {
    let body = |kernel: &mut Kernel| {
        let outcome = run(kernel)?;
        kernel.outcome(outcome);
        Ok(())
    };
    let mut check = check(body).without_environment().exhaustive();
    if let Some(turn) = space.turn {
        check = check.turns_take(Duration::ZERO..=turn);
    }
    if space.faults > 0 {
        check = check.faults(space.faults, space.list.iter().map(|(words, ..)| *words));
    }
    let explored = check.explore();
    match &explored.failure {
        Some(failure) => Err(failure.to_string()),
        None if !explored.complete => Err(format!("it is not complete: {explored}")),
        None => Ok((explored.outcomes, explored.schedules)),
    }
}

struct Difference<'a>(&'a BTreeSet<String>, &'a BTreeSet<String>);

impl fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing: Vec<_> = self.0.difference(self.1).collect();
        let more: Vec<_> = self.1.difference(self.0).collect();
        write!(f, "the search misses {missing:?}, and has besides {more:?}")
    }
}

/// `TRAPLINE_PROGRAMS` sets the number of programs, and `TRAPLINE_FIRST` the first.
#[test]
fn a_search_has_the_outcomes_of_every_sequence_of_decisions() {
    compare(40, |seed| program(seed).drawn());
}

/// What it varies, its text, and how it runs.
pub(crate) type Drawn = (
    Space,
    String,
    Box<dyn Fn(&mut Kernel) -> Result<String, Error> + Sync>,
);

/// Compares the searches of so many programs, or of as many as the environment wants, with all sequences of
/// their decisions.
pub(crate) fn compare(count: u64, drawn: impl Fn(u64) -> Drawn) {
    let first = wanted("TRAPLINE_FIRST", 0);
    let count = wanted("TRAPLINE_PROGRAMS", count);
    let (mut compared, mut runs, mut schedules, mut wrong) = (0, 0, 0, Vec::new());
    for seed in first..first + count {
        let (space, text, run) = drawn(seed);
        let (all, ran, is_complete) = every(space, &*run, 800);
        if !is_complete {
            continue;
        }
        compared += 1;
        runs += ran;
        match searched(space, &*run) {
            Err(why) => wrong.push(format!("{seed}: {text}: {why}")),
            Ok((found, searched)) => {
                schedules += searched;
                if found != all {
                    wrong.push(format!("{seed}: {text}: {}", Difference(&all, &found)));
                }
            }
        }
    }
    println!("{compared} of {count} programs: {schedules} schedules for {runs} sequences");
    assert!(
        wrong.is_empty(),
        "{} of {compared}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(
        compared * 2 > count,
        "{compared} of {count} are small enough"
    );
}
