//! Random programs of what the others leave out: shared structures, families of tasks, and sockets without
//! connections of the network.

mod bytes;
mod families;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    rc::Rc,
    time::Duration,
};

use trapline::{
    Child, Either2, Error, Exit, Kernel, Os, Promise, Scope, Setter, Shared, Source, Tid,
    UdpSocket, UnixStream, after,
    sync::{Broadcast, Flag, Once, PoisonedBy, Receiver, RwLock, Semaphore, Watch},
};

use super::{
    HERE,
    every::{compare_program, compare_programs, wanted},
    random::draw,
};

const THERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 81));

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    // Structures.
    Read,
    Write,
    /// Reads, and writes while it has read.
    Upgrade,
    SetWatch,
    Changed,
    Broadcast,
    Receive,
    DropReceiver,
    Subscribe,
    DropSender,
    Once,
    Permits(usize),
    Ask(usize),
    WaitAsked(usize),
    ScopedReceive,
    SelectStructure(usize),
    FirstOf(usize),
    // Families.
    Group(usize),
    GroupFirst,
    GroupDropped,
    Child(usize),
    ChildDropped,
    Grandchild,
    OnDone,
    Soon,
    Piped(usize),
    SetPromise,
    Wait(usize),
    Kill(usize),
    // Bytes.
    Send(usize),
    Recv(usize),
    ShutdownWrite(usize),
    ShutdownRead(usize),
    CloseEnd(usize),
    SendTo(usize),
    RecvFrom(usize),
    CloseUdp(usize),
    SelectBytes(usize),
    FirstBytes(usize),
    // All.
    Number,
    Yield,
}

pub(crate) fn step(state: &mut u64, kind: u64, tasks: usize) -> Step {
    let (one, task) = (draw(state, 2), draw(state, tasks));
    match kind {
        0 => structure(state, one, task),
        1 => family(state, one, task),
        _ => bytes(state, one, task),
    }
}

fn structure(state: &mut u64, one: usize, task: usize) -> Step {
    match draw(state, 26) {
        0..2 => Step::Read,
        2..4 => Step::Write,
        4 => Step::Upgrade,
        5..7 => Step::SetWatch,
        7..9 => Step::Changed,
        9..11 => Step::Broadcast,
        11..13 => Step::Receive,
        13 => Step::DropReceiver,
        14 => Step::Subscribe,
        15 => Step::DropSender,
        16 | 17 => Step::Once,
        18 => Step::Permits(1 + one),
        19 => Step::Ask(task),
        20 => Step::WaitAsked(task),
        21 => Step::ScopedReceive,
        22 => Step::SelectStructure(1 + draw(state, 255)),
        23 => Step::FirstOf(draw(state, 3)),
        24 => Step::Kill(task),
        _ => Step::Number,
    }
}

fn family(state: &mut u64, one: usize, task: usize) -> Step {
    match draw(state, 18) {
        0 => Step::Group(one),
        1 => Step::GroupFirst,
        2 => Step::GroupDropped,
        3 | 4 => Step::Child(one),
        5 => Step::ChildDropped,
        6 => Step::Grandchild,
        7 => Step::OnDone,
        8 => Step::Soon,
        9 | 10 => Step::Piped(1 + one),
        11 => Step::SetPromise,
        12 => Step::Wait(task),
        13..15 => Step::Kill(task),
        15 | 16 => Step::Yield,
        _ => Step::Number,
    }
}

fn bytes(state: &mut u64, one: usize, task: usize) -> Step {
    match draw(state, 20) {
        0..3 => Step::Send(one),
        3..6 => Step::Recv(one),
        6 => Step::ShutdownWrite(one),
        7 => Step::ShutdownRead(one),
        8 => Step::CloseEnd(one),
        9..11 => Step::SendTo(one),
        11..13 => Step::RecvFrom(one),
        13 => Step::CloseUdp(one),
        14 | 15 => Step::SelectBytes(1 + draw(state, 63)),
        16 | 17 => Step::FirstBytes(one),
        18 => Step::Kill(task),
        _ => Step::Number,
    }
}

fn drawn(seed: u64) -> Vec<Vec<Step>> {
    let mut state = seed.wrapping_mul(7919) + 1;
    let tasks = 2 + seed as usize % 2;
    let most = if tasks == 2 { 3 } else { 2 };
    (0..tasks)
        .map(|_| {
            let count = 1 + draw(&mut state, most);
            (0..count)
                .map(|_| step(&mut state, seed / 2 % 3, tasks))
                .collect()
        })
        .collect()
}

/// The guard, poisoned or not.
fn held<G>(locked: Result<G, PoisonedBy<G>>) -> G {
    locked.unwrap_or_else(|poisoned| poisoned.0)
}

type Logs = Rc<RefCell<BTreeMap<String, String>>>;

/// What a task says is in its own log: only what it has seen counts, not when it saw it.
fn note(logs: &Logs, task: &str, text: &str) {
    let mut logs = logs.borrow_mut();
    let log = logs.entry(task.into()).or_default();
    *log += text;
    *log += " ";
}

/// What the tasks share.
#[derive(Clone)]
struct World {
    lock: RwLock<usize>,
    watch: Watch<usize>,
    /// Each task has its own handle.
    sender: RefCell<Option<Broadcast<usize>>>,
    once: Once<usize>,
    permits: Semaphore,
    scopes: Vec<Scope>,
    setter: Setter<usize>,
    promise: Promise<usize>,
    ends: [UnixStream; 2],
    udp: [UdpSocket; 2],
    stop: Flag,
    number: Shared<usize>,
    tids: Vec<Tid>,
    logs: Logs,
}

impl World {
    async fn new(
        os: &mut Os,
        tasks: usize,
        logs: Logs,
    ) -> io::Result<(Self, Vec<Receiver<usize>>)> {
        let (setter, promise) = Promise::new(os).await;
        let (here, there) = os.socketpair().await?;
        let broadcast = Broadcast::new(os, 1).await;
        let mut receivers = Vec::new();
        for _ in 0..tasks {
            receivers.push(broadcast.subscribe(os).await);
        }
        let world = Self {
            lock: RwLock::new(os, 0).await,
            watch: Watch::new(os, 0).await,
            sender: RefCell::new(Some(broadcast)),
            once: Once::new(os).await,
            permits: Semaphore::new(os, 2).await,
            scopes: (0..tasks).map(|_| Scope::new()).collect(),
            setter,
            promise,
            ends: [here, there],
            udp: [os.bind_udp(HERE).await?, os.bind_udp(THERE).await?],
            stop: Flag::new(os).await,
            number: Shared::new(0),
            tids: (0..tasks as u64).map(|at| (at + 2).into()).collect(),
            logs,
        };
        Ok((world, receivers))
    }
}

/// A task of the program.
struct Actor {
    me: usize,
    at: usize,
    world: World,
    receiver: Option<Receiver<usize>>,
    child: Option<Child<usize>>,
}

impl Actor {
    async fn run(mut self, os: &mut Os, steps: &[Step]) {
        for (at, step) in steps.iter().enumerate() {
            self.at = 10 * (1 + self.me) + at;
            let text = match step {
                Step::Number => {
                    let before = self.world.number.get();
                    self.world.number.set(self.at);
                    before.to_string()
                }
                Step::Yield => {
                    os.yield_now().await;
                    String::new()
                }
                Step::Send(_)
                | Step::Recv(_)
                | Step::ShutdownWrite(_)
                | Step::ShutdownRead(_)
                | Step::CloseEnd(_)
                | Step::SendTo(_)
                | Step::RecvFrom(_)
                | Step::CloseUdp(_)
                | Step::SelectBytes(_)
                | Step::FirstBytes(_) => match self.bytes(os, *step).await {
                    Ok(text) => text,
                    Err(error) => error.kind().to_string(),
                },
                Step::Group(_)
                | Step::GroupFirst
                | Step::GroupDropped
                | Step::Child(_)
                | Step::ChildDropped
                | Step::Grandchild
                | Step::OnDone
                | Step::Soon
                | Step::Piped(_)
                | Step::SetPromise
                | Step::Wait(_)
                | Step::Kill(_) => self.family(os, *step).await,
                _ => self.structure(os, *step).await,
            };
            note(&self.world.logs, &self.me.to_string(), &text);
        }
    }

    async fn structure(&mut self, os: &mut Os, step: Step) -> String {
        let world = &self.world;
        match step {
            Step::Read => {
                let read = held(world.lock.read(os).await);
                os.yield_now().await;
                format!("{}", *read)
            }
            Step::Write => {
                let mut write = held(world.lock.write(os).await);
                os.yield_now().await;
                *write += 1;
                format!("{}", *write)
            }
            Step::Upgrade => {
                let read = held(world.lock.read(os).await);
                let within = async |os: &mut Os| drop(world.lock.write(os).await);
                let write = os.timeout(Duration::from_millis(1), within).await;
                format!("{}{}", *read, write.is_ok())
            }
            Step::SetWatch => {
                world.watch.set(os, self.at).await;
                String::new()
            }
            Step::Changed => {
                world.watch.clone().changed(os).await;
                world.watch.get().to_string()
            }
            Step::Once => {
                let at = self.at;
                let make = async move |os: &mut Os| {
                    os.yield_now().await;
                    at
                };
                world.once.get_or_init(os, make).await.to_string()
            }
            Step::Permits(count) => match world.permits.acquire_many(os, count).await {
                Ok(_permit) => {
                    os.yield_now().await;
                    world.permits.available().to_string()
                }
                Err(closed) => closed.to_string(),
            },
            Step::Ask(task) => {
                world.scopes[task].ask(os).await;
                String::new()
            }
            Step::WaitAsked(task) => {
                world.scopes[task].asked(os).await.wait(os).await;
                String::new()
            }
            Step::SelectStructure(bits) => self.select(os, bits).await,
            Step::FirstOf(way) => self.first(os, way).await,
            _ => self.broadcast(os, step).await,
        }
    }

    async fn broadcast(&mut self, os: &mut Os, step: Step) -> String {
        let world = &self.world;
        match step {
            Step::Broadcast => {
                let sender = world.sender.borrow().clone();
                match sender {
                    Some(sender) => sender.put(os, self.at).await.to_string(),
                    None => "gone".into(),
                }
            }
            Step::Receive => match &self.receiver {
                Some(receiver) => format!("{:?}", receiver.get(os).await),
                None => "none".into(),
            },
            Step::DropReceiver => self.receiver.take().is_some().to_string(),
            Step::Subscribe => {
                let sender = world.sender.borrow().clone();
                if let Some(sender) = sender {
                    self.receiver = Some(sender.subscribe(os).await);
                }
                String::new()
            }
            Step::DropSender => {
                let sender = world.sender.take();
                sender.is_some().to_string()
            }
            Step::ScopedReceive => {
                let asked = world.scopes[self.me].asked(os).await;
                let body = async |os: &mut Os| {
                    let receiver = self.receiver.as_ref();
                    match receiver {
                        Some(receiver) => {
                            let sources = [Source::broadcast(receiver), Source::flag(&asked)];
                            os.select(&sources).await
                        }
                        None => 9,
                    }
                };
                format!("{:?}", world.scopes[self.me].run(os, body).await)
            }
            _ => unreachable!("it is of another kind"),
        }
    }

    async fn select(&self, os: &mut Os, bits: usize) -> String {
        let world = &self.world;
        let all = [
            Source::read(&world.lock),
            Source::write(&world.lock),
            Source::changed(&world.watch),
            Source::once(&world.once),
            Source::permits(&world.permits, 2),
            Source::promise(&world.promise),
            Source::exit(world.tids[0]),
            Source::after(Duration::from_millis(1)),
        ];
        let some: Vec<usize> = (0..all.len()).filter(|at| bits >> at & 1 == 1).collect();
        let sources: Vec<Source> = some.iter().map(|at| all[*at]).collect();
        let at = some[os.select(&sources).await];
        let seen = match at {
            // Neither blocks.
            0 => *held(world.lock.read(os).await),
            1 => *held(world.lock.write(os).await),
            2 => world.watch.get(),
            _ => 0,
        };
        format!("{at}:{seen}")
    }

    async fn first(&self, os: &mut Os, way: usize) -> String {
        let (world, at) = (&self.world, self.at);
        match way {
            0 => {
                let arms = (world.lock.write_arm(), world.stop.wait_arm());
                let first = os.first(arms).await;
                format!("{}", matches!(first, Either2::First(_)))
            }
            1 => {
                let make = async move |os: &mut Os| {
                    os.yield_now().await;
                    at
                };
                let arms = (
                    world.once.get_or_init_arm(make),
                    world.permits.acquire_arm(),
                );
                let first = os.first(arms).await;
                format!("{}", matches!(first, Either2::First(_)))
            }
            _ => {
                let arms = (world.watch.changed_arm(), after(Duration::from_millis(1)));
                let first = os.first(arms).await;
                format!("{}", matches!(first, Either2::First(())))
            }
        }
    }
}

pub(crate) fn program(tasks: &[Vec<Step>], kernel: &mut Kernel) -> Result<String, Error> {
    let logs = Logs::default();
    let (all, tasks) = (Rc::clone(&logs), tasks.to_vec());
    let found = Rc::new(RefCell::new(None));
    let left = Rc::clone(&found);
    kernel.spawn("main", async move |os: &mut Os| {
        let (world, receivers) = World::new(os, tasks.len(), all).await?;
        left.replace(Some(world.number.clone()));
        for ((me, steps), receiver) in tasks.into_iter().enumerate().zip(receivers) {
            let actor = Actor {
                me,
                at: 0,
                world: world.clone(),
                receiver: Some(receiver),
                child: None,
            };
            let run = async move |os: &mut Os| actor.run(os, &steps).await;
            os.spawn(me.to_string(), run).await?;
        }
        io::Result::Ok(())
    })?;
    let end = match kernel.run() {
        Ok(report) => {
            let exits = report.exits().values();
            let failed = exits.filter(|exit| **exit != Exit::Done).count();
            format!("{} {failed} failures", report.failures)
        }
        Err(Error::Deadlock(deadlock)) => format!("deadlock {:?}", deadlock.cycles),
        Err(error) => return Err(error),
    };
    let left = found.take().map(|number| number.get());
    Ok(format!("{:?} {end} {left:?}", logs.borrow()))
}

#[test]
fn random_programs_of_the_rest_have_no_other_outcome() {
    compare_programs(wanted("TRAPLINE_FUZZ_FIRST", 0), drawn, program);
}

/// Programs of which a search has said something wrong: the reader of a pipe is gone before a task prints, or
/// while it waits for room; a task that ends first is ready in a select whose device is closed; a task that
/// has a turn of another kind once its socket is shut down.
#[test]
fn programs_that_were_wrong_once_have_no_other_outcome() {
    use Step::{
        ChildDropped, CloseUdp, Number, Piped, SelectBytes, SetPromise, ShutdownRead, Soon,
    };
    let known = [
        vec![vec![Piped(1)], vec![ChildDropped]],
        vec![vec![Number], vec![Piped(2), SetPromise, Soon]],
        vec![vec![], vec![SelectBytes(41)], vec![CloseUdp(0)]],
        vec![vec![SelectBytes(41)], vec![], vec![ShutdownRead(0)]],
    ];
    for tasks in known {
        let (is_complete, _) = compare_program("one of them", &tasks, 2000, program);
        assert!(is_complete, "{tasks:?}");
    }
}
