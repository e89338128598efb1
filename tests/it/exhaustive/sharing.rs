//! Random programs of what `trapline::sync` has for several tasks at once: permits in batches, locks that
//! readers share, values that are watched, broadcast or made once.

use std::{cell::RefCell, rc::Rc, time::Duration};

use trapline::{
    Error, Kernel, Os, Source, Tid,
    sync::{Broadcast, Once, Receiver, RwLock, Semaphore, Watch},
};

use super::{
    every::{compare_programs, wanted},
    random::draw,
};

#[derive(Clone, Copy, Debug)]
enum Step {
    Read,
    Write,
    /// Reads, and reads again meanwhile.
    ReadTwice,
    Take(usize),
    TryTake(usize),
    Available,
    Set,
    Get,
    Changed,
    /// Of a handle that the tasks share.
    SharedChanged,
    Put,
    Receive,
    DropReceiver,
    DropSender,
    Init,
    Made,
    Select(usize),
    /// The step before again, within a timeout.
    Timed,
    Yield,
    Kill(usize),
    Wait(usize),
    Exit,
}

fn step(state: &mut u64, tasks: usize) -> Step {
    let (count, task) = (1 + draw(state, 3), draw(state, tasks));
    match draw(state, 32) {
        0..3 => Step::Read,
        3..6 => Step::Write,
        6 => Step::ReadTwice,
        7..10 => Step::Take(count),
        10 => Step::TryTake(count),
        11 => Step::Available,
        12 | 13 => Step::Set,
        14 => Step::Get,
        15 | 16 => Step::Changed,
        17 => Step::SharedChanged,
        18 | 19 => Step::Put,
        20 | 21 => Step::Receive,
        22 => Step::DropReceiver,
        23 => Step::DropSender,
        24 | 25 => Step::Init,
        26 => Step::Made,
        27 | 28 => Step::Select(1 + draw(state, 63)),
        29 => Step::Timed,
        30 => match draw(state, 3) {
            0 => Step::Yield,
            1 => Step::Wait(task),
            _ => Step::Exit,
        },
        _ => Step::Kill(task),
    }
}

struct World {
    lock: RwLock<usize>,
    permits: Semaphore,
    watch: Watch<usize>,
    once: Once<usize>,
    logs: Rc<RefCell<Vec<String>>>,
}

/// What a task has of its own.
struct Own {
    me: usize,
    watch: Watch<usize>,
    sender: Option<Broadcast<usize>>,
    receiver: Option<Receiver<usize>>,
}

impl World {
    async fn run(&self, os: &mut Os, mut own: Own, steps: &[Step]) {
        let mut last = Step::Yield;
        for (at, step) in steps.iter().enumerate() {
            let number = 10 * own.me + at;
            let text = match *step {
                Step::Exit => return,
                Step::Timed => {
                    let body = async |os: &mut Os| self.take(os, &mut own, number, last).await;
                    format!("{:?}", os.timeout(Duration::from_millis(1), body).await)
                }
                step => self.take(os, &mut own, number, step).await,
            };
            last = *step;
            self.logs.borrow_mut()[own.me] += &format!("{text} ");
        }
    }

    async fn take(&self, os: &mut Os, own: &mut Own, number: usize, step: Step) -> String {
        match step {
            Step::Read | Step::ReadTwice => {
                let guard = self.lock.read(os).await;
                let is_poisoned = guard.is_err();
                let guard = guard.unwrap_or_else(|poisoned| poisoned.0);
                os.yield_now().await;
                if let Step::ReadTwice = step {
                    drop(self.lock.read(os).await);
                }
                format!("{}{is_poisoned}", *guard)
            }
            Step::Write => {
                let guard = self.lock.write(os).await;
                let mut guard = guard.unwrap_or_else(|poisoned| poisoned.0);
                os.yield_now().await;
                *guard += 1;
                format!("{}", *guard)
            }
            Step::Take(count) => {
                let permit = self.permits.acquire_many(os, count).await.unwrap();
                os.yield_now().await;
                format!("{}", permit.count())
            }
            Step::TryTake(count) => {
                let permit = self.permits.try_acquire_many(os, count).await;
                os.yield_now().await;
                format!("{}", permit.is_some())
            }
            Step::Available => format!("{}", self.permits.available()),
            Step::Set => {
                own.watch.set(os, number).await;
                String::new()
            }
            Step::Get => format!("{}", own.watch.get()),
            Step::Changed => {
                own.watch.changed(os).await;
                format!("{}", own.watch.get())
            }
            Step::SharedChanged => {
                self.watch.changed(os).await;
                format!("{}", self.watch.get())
            }
            Step::Put => match &own.sender {
                Some(sender) => format!("{}", sender.put(os, number).await),
                None => String::new(),
            },
            Step::Receive => match &own.receiver {
                Some(receiver) => format!("{:?}", receiver.get(os).await),
                None => String::new(),
            },
            Step::DropReceiver => format!("{}", own.receiver.take().is_some()),
            Step::DropSender => format!("{}", own.sender.take().is_some()),
            Step::Init => {
                let init = async |os: &mut Os| {
                    os.yield_now().await;
                    number
                };
                format!("{}", self.once.get_or_init(os, init).await)
            }
            Step::Made => format!("{:?}", self.once.get()),
            Step::Select(bits) => self.select(os, own, number, bits).await,
            Step::Kill(task) => format!("{}", os.kill(tid(task)).await),
            Step::Wait(task) => format!("{:?}", os.wait(tid(task)).await),
            Step::Yield | Step::Timed | Step::Exit => {
                os.yield_now().await;
                String::new()
            }
        }
    }

    /// Selects among some sources. The call that was promised does not block: no time passes, and a
    /// schedule in which another task is faster would show as another state of the call.
    async fn select(&self, os: &mut Os, own: &Own, number: usize, bits: usize) -> String {
        let all = [
            Some(Source::read(&self.lock)),
            Some(Source::write(&self.lock)),
            Some(Source::permits(&self.permits, 2)),
            Some(Source::changed(&own.watch)),
            own.receiver.as_ref().map(Source::broadcast),
            Some(Source::once(&self.once)),
        ];
        let some = (0..all.len()).filter(|at| bits >> at & 1 == 1);
        let some: Vec<usize> = some.filter(|at| all[*at].is_some()).collect();
        let sources: Vec<Source> = some.iter().filter_map(|at| all[*at]).collect();
        let at = some[os.select(&sources).await];
        match at {
            0 => drop(self.lock.read(os).await),
            1 => drop(self.lock.write(os).await),
            2 => assert!(
                self.permits.try_acquire_many(os, 2).await.is_some(),
                "what was promised is there"
            ),
            3 => own.watch.changed(os).await,
            4 => {
                let receiver = own.receiver.as_ref().expect("it was a source");
                return format!("{at}: {:?}", receiver.get(os).await);
            }
            _ => {
                let init = async |_: &mut Os| number;
                return format!("{at}: {}", self.once.get_or_init(os, init).await);
            }
        }
        format!("{at}")
    }
}

/// Main has the number 1, and its children those after it.
fn tid(task: usize) -> Tid {
    Tid::from(task as u64 + 2)
}

fn program(tasks: &[Vec<Step>], kernel: &mut Kernel) -> Result<String, Error> {
    let logs = Rc::new(RefCell::new(vec![String::new(); tasks.len()]));
    let (all, tasks) = (Rc::clone(&logs), tasks.to_vec());
    let left = Rc::new(RefCell::new(None));
    let kept = Rc::clone(&left);
    kernel.spawn("main", async move |os: &mut Os| {
        let sender = Broadcast::new(os, 1).await;
        let mut receivers = Vec::new();
        for _ in &tasks {
            receivers.push(sender.subscribe(os).await);
        }
        let world = Rc::new(World {
            lock: RwLock::new(os, 0).await,
            permits: Semaphore::new(os, 3).await,
            watch: Watch::new(os, 0).await,
            once: Once::new(os).await,
            logs: all,
        });
        // The last task to end would drop it otherwise, and the search does not see which one that is.
        kept.replace(Some(Rc::clone(&world)));
        for ((me, steps), receiver) in tasks.into_iter().enumerate().zip(receivers) {
            let world = Rc::clone(&world);
            let own = Own {
                me,
                watch: world.watch.clone(),
                sender: Some(sender.clone()),
                receiver: Some(receiver),
            };
            let run = async move |os: &mut Os| world.run(os, own, &steps).await;
            os.spawn(format!("{me}"), run).await.expect("there is room");
        }
    })?;
    let end = match kernel.run() {
        Ok(report) => {
            let permits = left
                .borrow()
                .as_ref()
                .map(|world| world.permits.available());
            assert_eq!(permits, Some(3), "no permit is lost");
            format!("{} failures", report.failures)
        }
        Err(Error::Deadlock(deadlock)) => format!("deadlock {:?}", deadlock.cycles),
        Err(error) => return Err(error),
    };
    Ok(format!("{:?} {end}", logs.borrow()))
}

/// Draws a program: two or three tasks, of at most three or two steps.
fn drawn(seed: u64) -> Vec<Vec<Step>> {
    let mut state = seed.wrapping_mul(7919) + 3;
    let tasks = 2 + seed as usize % 2;
    let most = if tasks == 2 { 3 } else { 2 };
    let count = |state: &mut u64| 1 + draw(state, most);
    (0..tasks)
        .map(|_| {
            (0..count(&mut state))
                .map(|_| step(&mut state, tasks))
                .collect()
        })
        .collect()
}

#[test]
fn random_programs_that_share_have_no_other_outcome() {
    compare_programs(wanted("TRAPLINE_FUZZ_FIRST", 0), drawn, program);
}
