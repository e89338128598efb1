//! Random programs: the exhaustive search against all schedules that there are.

use std::{cell::RefCell, io, rc::Rc, time::Duration};

use trapline::{
    Error, Kernel, Os, Promise, Queue, Scope, Setter, Shared, Source, TcpListener, TcpStream,
    TryGetError, TryPutError,
    sync::{Barrier, Condition, Flag, Mutex, Semaphore},
};

use super::{
    HERE,
    every::{compare_programs, wanted},
};

/// A call of a random program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(usize),
    Get(usize),
    TryPut(usize),
    TryGet(usize),
    Close(usize),
    Len(usize),
    Read,
    Write,
    Yield,
    Kill(usize),
    Wait(usize),
    Lock,
    Random,
    Sleep(u64),
    Compute,
    TimedGet(usize),
    Spawn,
    Child,
    Permit,
    TryPermit,
    SetFlag,
    ClearFlag,
    WaitFlag,
    Barrier,
    SetPromise,
    WaitPromise,
    WaitCondition,
    /// For a millisecond at most.
    TimedCondition,
    Notify,
    NotifyAll,
    /// Cut before its effect, which it has afterwards.
    CutNotifyAll,
    Tasks,
    Exit,
    Shutdown,
    Locks(usize),
    Accept,
    ReadWait,
    Connect,
    CloseListener,
    DropListener,
    Send(usize),
    Recv(usize),
    ShutdownWrite(usize),
    CloseStream(usize),
    DropStream(usize),
    /// Selects among the sources of these bits, and makes the call.
    Select(usize),
    /// A get within the scope of the task.
    ScopedGet(usize),
    /// A get within a shield and a timeout.
    ShieldedGet(usize),
    Cancel(usize),
    CancelTask(usize),
}

/// Draws a number below `end`. (A linear congruential generator.)
pub(crate) fn draw(state: &mut u64, end: usize) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) % end as u64) as usize
}

/// Draws a step of any kind, or one of a program of locks, of sockets, of choices or of conditions.
fn step(state: &mut u64, kind: u64, tasks: usize) -> Step {
    match kind {
        0 => any_step(state, tasks),
        1 => lock_step(state, tasks),
        2 => socket_step(state, tasks),
        3 => choice_step(state, tasks),
        _ => condition_step(state, tasks),
    }
}

fn condition_step(state: &mut u64, tasks: usize) -> Step {
    let task = draw(state, tasks);
    match draw(state, 16) {
        0..5 => Step::WaitCondition,
        5..7 => Step::TimedCondition,
        7..9 => Step::Notify,
        9..11 => Step::NotifyAll,
        11 => Step::CutNotifyAll,
        12 => Step::Kill(task),
        13 => Step::Lock,
        14 => Step::Write,
        _ => Step::Yield,
    }
}

fn choice_step(state: &mut u64, tasks: usize) -> Step {
    let (queue, task) = (draw(state, 2), draw(state, tasks));
    match draw(state, 26) {
        0..7 => Step::Select(1 + draw(state, 255)),
        7..9 => Step::ScopedGet(queue),
        9 => Step::ShieldedGet(queue),
        10..12 => Step::Cancel(task),
        12 => Step::CancelTask(task),
        13..15 => Step::Put(queue),
        15 => Step::TryPut(queue),
        16 => Step::Get(queue),
        17 => Step::TryGet(queue),
        18 => Step::Close(queue),
        19 => Step::Kill(task),
        20 => Step::SetFlag,
        21 => Step::ClearFlag,
        22 => Step::Lock,
        23 => Step::Permit,
        24 => Step::SetPromise,
        _ => Step::Exit,
    }
}

fn lock_step(state: &mut u64, tasks: usize) -> Step {
    let (one, task) = (draw(state, 2), draw(state, tasks));
    match draw(state, 17) {
        0..5 => Step::Locks(one),
        5..8 => Step::Wait(task),
        8..10 => Step::Kill(task),
        10 => Step::Lock,
        11 => Step::Put(1),
        12 => Step::Get(1),
        13 => Step::Write,
        14 => Step::TimedGet(1),
        15 => Step::Compute,
        _ => Step::Yield,
    }
}

fn socket_step(state: &mut u64, tasks: usize) -> Step {
    let (end, task) = (draw(state, 2), draw(state, tasks));
    match draw(state, 22) {
        0..3 => Step::Accept,
        3 => Step::ReadWait,
        4..6 => Step::Connect,
        6 => Step::CloseListener,
        7..10 => Step::DropListener,
        10..12 => Step::Send(end),
        12..15 => Step::Recv(end),
        15 => Step::ShutdownWrite(end),
        16 => Step::CloseStream(end),
        17..19 => Step::DropStream(end),
        19 => Step::Kill(task),
        20 => Step::Wait(task),
        _ => Step::Compute,
    }
}

fn any_step(state: &mut u64, tasks: usize) -> Step {
    let (queue, task) = (draw(state, 2), draw(state, tasks));
    match draw(state, 45) {
        0..3 => Step::Put(queue),
        3..6 => Step::Get(queue),
        6 => Step::TryPut(queue),
        7 => Step::TryGet(queue),
        8 => Step::Close(queue),
        9 => Step::Len(queue),
        10 | 11 => Step::Read,
        12 | 13 => Step::Write,
        14 => Step::Yield,
        15..18 => Step::Kill(task),
        18..21 => Step::Wait(task),
        21 | 22 => Step::Lock,
        23 => Step::Random,
        24 => Step::Sleep(1 + queue as u64),
        25 => Step::TimedGet(queue),
        26 | 27 => Step::Spawn,
        28 | 29 => Step::Child,
        30 => Step::Permit,
        31 => Step::TryPermit,
        32 => Step::SetFlag,
        33 => Step::ClearFlag,
        34 => Step::WaitFlag,
        35 => Step::Barrier,
        36 => Step::SetPromise,
        37 => Step::WaitPromise,
        38 => Step::WaitCondition,
        39 => Step::Notify,
        40 => Step::NotifyAll,
        41 => Step::Tasks,
        42 => Step::Exit,
        43 => Step::Compute,
        _ => Step::Shutdown,
    }
}

/// What the tasks of a random program share.
#[derive(Clone)]
struct World {
    queues: Vec<Queue<usize>>,
    lock: Mutex<usize>,
    locks: [Mutex<()>; 2],
    listener: RefCell<Option<TcpListener>>,
    /// The two ends of a connection.
    ends: [RefCell<Option<TcpStream>>; 2],
    told: Condition,
    permits: Semaphore,
    flag: Flag,
    barrier: Barrier,
    setter: Setter<usize>,
    promise: Promise<usize>,
    number: Shared<usize>,
    tids: Shared<Vec<trapline::Tid>>,
    scopes: Vec<Scope>,
    logs: Rc<RefCell<Vec<String>>>,
}

impl World {
    async fn new(os: &mut Os, logs: Rc<RefCell<Vec<String>>>) -> io::Result<Self> {
        let listener = os.listen(HERE).await?;
        let client = os.connect(HERE).await?;
        let (server, _) = listener.accept(os).await?;
        let (setter, promise) = Promise::new(os).await;
        // Main has the number 1, and its children those after it.
        let tids = (0..logs.borrow().len() as u64).map(|at| (at + 2).into());
        Ok(Self {
            queues: vec![Queue::bounded(os, 1).await, Queue::unbounded(os).await],
            lock: Mutex::new(os, 0).await,
            locks: [Mutex::new(os, ()).await, Mutex::new(os, ()).await],
            listener: RefCell::new(Some(listener)),
            ends: [client, server].map(|end| RefCell::new(Some(end))),
            told: Condition::new(os).await,
            permits: Semaphore::new(os, 1).await,
            flag: Flag::new(os).await,
            barrier: Barrier::new(os, 2).await,
            setter,
            promise,
            number: Shared::new(0),
            scopes: tids.clone().map(|_: trapline::Tid| Scope::new()).collect(),
            tids: Shared::new(tids.collect()),
            logs,
        })
    }

    /// Runs the steps of a task. What each call returns goes to the task's own log.
    async fn run(&self, os: &mut Os, me: usize, steps: &[Step]) {
        for (at, step) in steps.iter().enumerate() {
            let text = match *step {
                Step::Put(_)
                | Step::Get(_)
                | Step::TryPut(_)
                | Step::TryGet(_)
                | Step::Close(_)
                | Step::Len(_)
                | Step::TimedGet(_) => self.at_queue(os, 10 * me + at, *step).await,
                Step::Lock
                | Step::Permit
                | Step::TryPermit
                | Step::SetFlag
                | Step::ClearFlag
                | Step::WaitFlag
                | Step::Barrier
                | Step::SetPromise
                | Step::WaitPromise
                | Step::WaitCondition
                | Step::TimedCondition
                | Step::Notify
                | Step::NotifyAll
                | Step::CutNotifyAll => self.at_lock(os, 10 * me + at, *step).await,
                Step::Exit => return,
                Step::Locks(first) => {
                    let _one = self.locks[first].lock(os).await;
                    // In the turn that waits for the other one.
                    self.number.set(10 * me + at);
                    let _other = self.locks[1 - first].lock(os).await;
                    "locks".to_string()
                }
                Step::Accept
                | Step::ReadWait
                | Step::Connect
                | Step::CloseListener
                | Step::DropListener
                | Step::Send(_)
                | Step::Recv(_)
                | Step::ShutdownWrite(_)
                | Step::CloseStream(_)
                | Step::DropStream(_) => match self.at_socket(os, *step).await {
                    Ok(text) => text,
                    Err(error) => error.kind().to_string(),
                },
                Step::Select(bits) => self.select(os, bits).await,
                Step::ScopedGet(_)
                | Step::ShieldedGet(_)
                | Step::Cancel(_)
                | Step::CancelTask(_) => self.with_scopes(os, me, *step).await,
                _ => self.with_tasks(os, 10 * me + at, *step).await,
            };
            self.logs.borrow_mut()[me] += &format!("{text} ");
        }
    }

    async fn at_queue(&self, os: &mut Os, message: usize, step: Step) -> String {
        match step {
            Step::Put(queue) => format!("{}", self.queues[queue].put(os, message).await.is_ok()),
            Step::Get(queue) => format!("{:?}", self.queues[queue].get(os).await),
            Step::TryPut(queue) => {
                format!("{}", self.queues[queue].try_put(os, message).await.is_ok())
            }
            Step::TryGet(queue) => format!("{:?}", self.queues[queue].try_get(os).await),
            Step::Len(queue) => format!("{}", self.queues[queue].len()),
            Step::TimedGet(queue) => {
                let get = async |os: &mut Os| self.queues[queue].get(os).await;
                format!("{:?}", os.timeout(Duration::from_millis(1), get).await)
            }
            Step::Close(queue) => {
                self.queues[queue].close(os).await;
                String::new()
            }
            _ => unreachable!("it is for a queue"),
        }
    }

    async fn at_socket(&self, os: &mut Os, step: Step) -> io::Result<String> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        // Clones, too, are dropped by the task that drops its handle or ends.
        let listener = || self.listener.borrow().clone().ok_or_else(gone);
        let stream = |end: usize| self.ends[end].borrow().clone().ok_or_else(gone);
        Ok(match step {
            Step::Accept => {
                let (_stream, peer) = listener()?.accept(os).await?;
                format!("{peer}")
            }
            Step::ReadWait => format!("{:?}", os.read_wait(&listener()?).await),
            Step::Connect => format!("{}", os.connect(HERE).await?.peer_addr()?),
            Step::CloseListener => format!("{:?}", listener()?.close(os).await),
            Step::DropListener => format!("{}", self.listener.take().is_some()),
            Step::Send(end) => format!("{}", stream(end)?.send(os, b"12").await?),
            Step::Recv(end) => format!("{}", stream(end)?.recv(os, &mut [0; 3]).await?),
            Step::ShutdownWrite(end) => {
                stream(end)?.shutdown_write(os).await?;
                "shut".to_string()
            }
            Step::CloseStream(end) => format!("{:?}", stream(end)?.close(os).await),
            Step::DropStream(end) => format!("{}", self.ends[end].take().is_some()),
            _ => unreachable!("it is for a socket"),
        })
    }

    async fn at_lock(&self, os: &mut Os, message: usize, step: Step) -> String {
        match step {
            Step::Lock => {
                let mut held = self
                    .lock
                    .lock(os)
                    .await
                    .unwrap_or_else(|poisoned| poisoned.0);
                os.yield_now().await;
                *held += 1;
                format!("{}", *held)
            }
            Step::WaitCondition => {
                let held = self
                    .lock
                    .lock(os)
                    .await
                    .unwrap_or_else(|poisoned| poisoned.0);
                format!("{}", self.told.wait(os, held).await.is_ok())
            }
            Step::TimedCondition => {
                let held = self
                    .lock
                    .lock(os)
                    .await
                    .unwrap_or_else(|poisoned| poisoned.0);
                let waited = self.told.wait_for(os, held, Duration::from_millis(1)).await;
                format!("{:?}", waited.map(|(_, signalled)| signalled.is_ok()).ok())
            }
            Step::Permit => {
                let _permit = self.permits.acquire(os).await;
                format!("{}", os.now().await.as_millis())
            }
            Step::TryPermit => format!("{}", self.permits.try_acquire(os).await.is_some()),
            Step::Barrier => format!("{}", self.barrier.wait(os).await),
            Step::SetPromise => format!("{}", self.setter.set(os, message).await.is_ok()),
            Step::WaitPromise => format!("{:?}", self.promise.wait(os).await),
            Step::Notify => {
                self.told.notify_one(os).await;
                String::new()
            }
            Step::NotifyAll => {
                self.told.notify_all(os).await;
                String::new()
            }
            Step::CutNotifyAll => {
                let cut = os.timeout(Duration::ZERO, async |os: &mut Os| {
                    // Its answer is the one that a timeout that is due lets through.
                    self.flag.set(os).await;
                    self.told.notify_all(os).await;
                });
                format!("{:?}", cut.await)
            }
            Step::SetFlag => {
                self.flag.set(os).await;
                String::new()
            }
            Step::ClearFlag => {
                self.flag.clear(os).await;
                String::new()
            }
            Step::WaitFlag => {
                let is_set = self.flag.is_set();
                self.flag.wait(os).await;
                format!("{is_set}")
            }
            _ => unreachable!("it is for a lock"),
        }
    }

    /// Selects among some sources. The call that was promised does not block.
    async fn select(&self, os: &mut Os, bits: usize) -> String {
        let all = [
            Source::message(&self.queues[0]),
            Source::room(&self.queues[0]),
            Source::message(&self.queues[1]),
            Source::flag(&self.flag),
            Source::lock(&self.lock),
            Source::permit(&self.permits),
            Source::promise(&self.promise),
            Source::exit(self.tids.get()[0]),
        ];
        let some: Vec<usize> = (0..all.len()).filter(|at| bits >> at & 1 == 1).collect();
        let sources: Vec<Source> = some.iter().map(|at| all[*at]).collect();
        let at = some[os.select(&sources).await];
        const BROKEN: &str = "what was promised is there";
        match at {
            0 | 2 => match self.queues[at / 2].try_get(os).await {
                Err(TryGetError::Empty) => panic!("{BROKEN}"),
                got => format!("{at}: {got:?}"),
            },
            1 => match self.queues[0].try_put(os, 99).await {
                Err(TryPutError::Full(_)) => panic!("{BROKEN}"),
                put => format!("{at}: {put:?}"),
            },
            3 => {
                assert!(self.flag.is_set(), "{BROKEN}");
                self.flag.wait(os).await;
                "3".into()
            }
            // A timeout around the call would be a call between.
            4 => {
                drop(self.lock.lock(os).await);
                "4".into()
            }
            5 => {
                assert!(self.permits.try_acquire(os).await.is_some(), "{BROKEN}");
                "5".into()
            }
            6 => format!("6: {:?}", self.promise.get().expect(BROKEN)),
            _ => format!("7: {:?}", os.wait(self.tids.get()[0]).await),
        }
    }

    async fn with_scopes(&self, os: &mut Os, me: usize, step: Step) -> String {
        match step {
            Step::ScopedGet(queue) => {
                let get = async |os: &mut Os| self.queues[queue].get(os).await;
                format!("{:?}", self.scopes[me].run(os, get).await)
            }
            Step::ShieldedGet(queue) => {
                let get = async |os: &mut Os| self.queues[queue].get(os).await;
                let shielded = async |os: &mut Os| os.shield(get).await;
                format!("{:?}", os.timeout(Duration::from_millis(1), shielded).await)
            }
            Step::Cancel(scope) => {
                self.scopes[scope].cancel(os).await;
                String::new()
            }
            Step::CancelTask(task) => format!("{}", os.cancel(self.tids.get()[task]).await),
            _ => unreachable!("it is for a scope"),
        }
    }

    async fn with_tasks(&self, os: &mut Os, message: usize, step: Step) -> String {
        match step {
            Step::Read => format!("{}", self.number.get()),
            Step::Write => {
                self.number.set(message);
                String::new()
            }
            Step::Kill(task) => format!("{}", os.kill(self.tids.get()[task]).await),
            Step::Wait(task) => format!("{:?}", os.wait(self.tids.get()[task]).await),
            Step::Random => format!("{}", os.random().await % 100),
            Step::Sleep(millis) => {
                os.sleep(Duration::from_millis(millis)).await;
                format!("{}", os.now().await.as_millis())
            }
            Step::Compute => {
                os.compute(Duration::from_millis(1)).await;
                format!("{}", os.now().await.as_millis())
            }
            Step::Spawn => {
                let number = self.number.clone();
                let write = async move |os: &mut Os| {
                    os.yield_now().await;
                    number.set(message);
                };
                format!("{:?}", os.spawn_detached("detached", write).await)
            }
            Step::Child => {
                let number = self.number.clone();
                let read = async move |_: &mut Os| number.get();
                match os.spawn_child("child", read).await {
                    Ok(mut child) => format!("{:?}", child.wait(os).await),
                    Err(error) => format!("{error}"),
                }
            }
            Step::Tasks => format!("{}", os.tasks().await.len()),
            Step::Shutdown => os.shutdown().await,
            _ => {
                os.yield_now().await;
                String::new()
            }
        }
    }
}

/// Runs a program of these tasks, as children of one task. Returns what each call returned, and what
/// the test finds then. A deadlock is an end like another.
fn program(tasks: &[Vec<Step>], kernel: &mut Kernel) -> Result<String, Error> {
    let logs = Rc::new(RefCell::new(vec![String::new(); tasks.len()]));
    let (all, tasks) = (Rc::clone(&logs), tasks.to_vec());
    let found = Rc::new(RefCell::new(None));
    let left = Rc::clone(&found);
    kernel.spawn("main", async move |os: &mut Os| {
        let world = World::new(os, all).await?;
        left.replace(Some((world.number.clone(), world.queues[1].clone())));
        for (me, steps) in tasks.into_iter().enumerate() {
            let world = world.clone();
            let run = async move |os: &mut Os| world.run(os, me, &steps).await;
            os.spawn(format!("{me}"), run).await?;
        }
        io::Result::Ok(())
    })?;
    let end = match kernel.run() {
        Ok(report) => format!("{} failures", report.failures),
        Err(Error::Deadlock(deadlock)) => format!("deadlock {:?}", deadlock.cycles),
        Err(error) => return Err(error),
    };
    let left = found
        .take()
        .map(|(number, queue)| (number.get(), queue.len()));
    Ok(format!("{:?} {end} {left:?}", logs.borrow()))
}

/// The number of the first program of choices.
const CHOICES: u64 = 1_000_000;
/// That of conditions.
const CONDITIONS: u64 = 2_000_000;

fn kind(seed: u64) -> u64 {
    match seed {
        ..CHOICES => seed / 2 % 3,
        CHOICES..CONDITIONS => 3,
        _ => 4,
    }
}

/// Draws a program: two or three tasks, of at most three or two steps.
fn drawn(seed: u64) -> Vec<Vec<Step>> {
    let mut state = seed.wrapping_mul(7919) + 1;
    let tasks = 2 + seed as usize % 2;
    let most = if tasks == 2 { 3 } else { 2 };
    let count = |state: &mut u64| 1 + draw(state, most);
    (0..tasks)
        .map(|_| {
            (0..count(&mut state))
                .map(|_| step(&mut state, kind(seed), tasks))
                .collect()
        })
        .collect()
}

#[test]
fn random_programs_have_no_other_outcome() {
    compare(wanted("TRAPLINE_FUZZ_FIRST", 0));
}

#[test]
fn random_programs_of_choices_have_no_other_outcome() {
    compare(CHOICES + wanted("TRAPLINE_FUZZ_FIRST", 0));
}

#[test]
fn random_programs_of_conditions_have_no_other_outcome() {
    compare(CONDITIONS + wanted("TRAPLINE_FUZZ_FIRST", 0));
}

fn compare(first: u64) {
    compare_programs(first, drawn, program);
}
