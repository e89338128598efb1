//! Random programs of several kernels.

use std::{cell::OnceCell, collections::BTreeSet, rc::Rc, sync::Arc, time::Duration};

use trapline::{
    Either2, Error, Kernel, Kernels, Mailbox, Os, Report, Sender, SimWorld, TryPutError, after,
    check_kernels, sched::Random, sync::Mutex,
};

use super::Log;
use crate::exhaustive::{every::wanted, random::draw};

/// A call of a random program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(usize),
    TryPut(usize),
    Get,
    /// For a millisecond at most.
    TimedGet,
    /// Puts a new sender into a mailbox, and waits for an answer.
    Ask(usize),
    Drop(usize),
    Yield,
    Sleep,
    Spawn,
    Random,
    /// With a yield while it has the lock of its kernel.
    Lock,
    Compute,
    /// Waits for mail without a handle of the mailbox, for a millisecond at most.
    Arm,
    Exit,
}

/// What is put: a number, or where to answer.
enum Mail {
    Number(u64),
    Ask(Sender<u64>),
}

/// The tasks of each kernel, with their steps.
type Program = Vec<Vec<Vec<Step>>>;

fn program(seed: u64) -> Program {
    let mut state = seed;
    let kernels = 2 + draw(&mut state, 2);
    let step = |state: &mut u64| match draw(state, 16) {
        0..5 => Step::Put(draw(state, kernels)),
        5 => Step::TryPut(draw(state, kernels)),
        6..10 => Step::Get,
        10 => Step::TimedGet,
        11 => Step::Ask(draw(state, kernels)),
        12 => Step::Drop(draw(state, kernels)),
        13 => Step::Yield,
        14 => [
            Step::Sleep,
            Step::Spawn,
            Step::Random,
            Step::Lock,
            Step::Compute,
            Step::Arm,
        ][draw(state, 6)],
        _ => Step::Exit,
    };
    let task = |state: &mut u64| (0..1 + draw(state, 3)).map(|_| step(state)).collect();
    let kernel = |state: &mut u64| (0..1 + draw(state, 2)).map(|_| task(state)).collect();
    (0..kernels).map(|_| kernel(&mut state)).collect()
}

/// The ends of all mailboxes that a task has.
struct Ends {
    senders: Vec<Option<Sender<Mail>>>,
    own: Mailbox<Mail>,
    lock: Rc<OnceCell<Mutex<()>>>,
}

fn answer(number: u64, mail: Mail, log: &Log) {
    let line = match mail {
        Mail::Number(number) => format!("got {number},"),
        Mail::Ask(back) => match back.try_put(number) {
            Ok(()) => "answered,".into(),
            Err(_) => "in vain,".into(),
        },
    };
    *log.lock().unwrap() += &line;
}

async fn steps(os: &mut Os, number: u64, steps: Vec<Step>, mut ends: Ends, log: Log) {
    let say = |text: &str| *log.lock().unwrap() += text;
    for (at, step) in (number * 100..).zip(steps) {
        match step {
            Step::Put(to) => {
                if let Some(sender) = &ends.senders[to] {
                    let put = sender.put(os, Mail::Number(at)).await;
                    say(if put.is_ok() { "put," } else { "closed," });
                }
            }
            Step::TryPut(to) => {
                if let Some(sender) = &ends.senders[to] {
                    say(match sender.try_put(Mail::Number(at)) {
                        Ok(()) => "tried,",
                        Err(TryPutError::Full(_)) => "full,",
                        Err(TryPutError::Closed(_)) => "shut,",
                    });
                }
            }
            Step::Get => match ends.own.get(os).await {
                Ok(mail) => answer(number, mail, &log),
                Err(_) => say("end,"),
            },
            Step::TimedGet => {
                let own = &ends.own;
                let get = async |os: &mut Os| own.get(os).await;
                match os.timeout(Duration::from_millis(1), get).await {
                    Ok(Ok(mail)) => answer(number, mail, &log),
                    Ok(Err(_)) => say("end,"),
                    Err(_) => say("late,"),
                }
            }
            Step::Ask(whom) => {
                if let Some(sender) = &ends.senders[whom] {
                    let (back, answer) = Mailbox::bounded(1);
                    if sender.put(os, Mail::Ask(back)).await.is_err() {
                        say("closed,");
                    } else {
                        let answer = answer.get(os).await;
                        say(&answer.map_or("none,".into(), |from| format!("from {from},")));
                    }
                }
            }
            Step::Drop(which) => drop(ends.senders[which].take()),
            Step::Yield => os.yield_now().await,
            Step::Sleep => os.sleep(Duration::from_millis(1)).await,
            Step::Spawn => {
                let child = async |os: &mut Os| os.yield_now().await;
                let child = os.spawn("child", child).await.expect("there is room");
                os.wait(child).await.expect("it is a child");
            }
            Step::Random => {
                // Its value is another with each seed.
                os.random().await;
                say("drawn,");
            }
            Step::Lock => {
                if ends.lock.get().is_none() {
                    let lock = Mutex::new(os, ()).await;
                    let _ = ends.lock.set(lock);
                }
                let lock = ends.lock.get().expect("it is set").clone();
                let _guard = lock.lock(os).await;
                os.yield_now().await;
                say("locked,");
            }
            Step::Compute => os.compute(Duration::from_millis(1)).await,
            Step::Arm => {
                let mail = ends.own.get_arm(os).await;
                match os.first((mail, after(Duration::from_millis(1)))).await {
                    Either2::First(Ok(mail)) => answer(number, mail, &log),
                    Either2::First(Err(_)) => say("end,"),
                    Either2::Second(()) => say("late,"),
                }
            }
            Step::Exit => return,
        }
    }
}

/// Runs a program on these kernels, each made so. Returns what it came to.
fn run(
    program: &Program,
    kernels: &Kernels,
    limit: u64,
    make: impl Fn(u64) -> Result<Kernel, Error> + Send + Sync,
) -> String {
    let logs: Vec<Vec<Log>> = program
        .iter()
        .map(|tasks| tasks.iter().map(|_| Log::default()).collect())
        .collect();
    let mailboxes: Vec<_> = program
        .iter()
        .map(|_| Mailbox::<Mail>::bounded(1))
        .collect();
    let own = logs.clone();
    let results = kernels.run(move |id| {
        // The first kernel may fail, which ends the others.
        let mut kernel = make(if id.index() == 0 { limit } else { u64::MAX })?;
        let lock = Rc::default();
        for (at, tasks) in program[id.index()].iter().enumerate() {
            let ends = Ends {
                senders: mailboxes.iter().map(|(it, _)| Some(it.clone())).collect(),
                own: mailboxes[id.index()].1.clone(),
                lock: Rc::clone(&lock),
            };
            let (number, log) = (
                u64::from(id) * 10 + at as u64,
                Arc::clone(&own[id.index()][at]),
            );
            let tasks = tasks.clone();
            kernel.spawn("task", async move |os: &mut Os| {
                steps(os, number, tasks, ends, log).await;
            })?;
        }
        Ok(kernel)
    });
    let ended = |result: &Result<Report, Error>| match result {
        Ok(_) => "well".to_string(),
        Err(Error::Peer { .. }) => "with another".to_string(),
        Err(Error::Deadlock(_)) => "stuck".to_string(),
        // Its text has the numbers of queues, which orders tell apart.
        Err(_) => "fails".to_string(),
    };
    let ends: Vec<_> = results.iter().map(ended).collect();
    let logs = logs.iter().flatten().map(|log| log.lock().unwrap().clone());
    format!(
        "{} {}",
        ends.join(" "),
        logs.collect::<Vec<_>>().join(" | ")
    )
}

fn own_policy(seed: u64) -> impl Fn(u64) -> Result<Kernel, Error> {
    move |limit| {
        let builder = Kernel::builder().world(SimWorld::new(0));
        builder.max_ticks(limit).policy(Random::new(seed)).build()
    }
}

#[test]
fn a_search_of_kernels_finds_what_runs_come_to_that_it_does_not_decide() {
    let first = wanted("TRAPLINE_FUZZ_FIRST", 0);
    let programs = wanted("TRAPLINE_FUZZ_PROGRAMS", 15);
    let schedules = wanted("TRAPLINE_FUZZ_SCHEDULES", 150);
    let (mut complete, mut whole) = (0, 0);
    for number in first..first + programs {
        let program = program(number);
        let limit = if number % 5 == 0 { 3 } else { u64::MAX };
        let searched = |kernels: &mut Kernels| {
            let outcome = run(&program, kernels, limit, |limit| {
                Kernel::builder()
                    .world(SimWorld::new(0))
                    .max_ticks(limit)
                    .build()
            });
            kernels.outcome(outcome);
            Ok(())
        };
        let count = program.len();
        let search = || check_kernels(count, searched).exhaustive();
        let explored = search().schedules(schedules).explore();
        assert_eq!(explored.failure, None, "program {number}: {program:?}");
        assert_eq!(
            explored.schedules, explored.classes,
            "program {number}: {program:?}"
        );
        if !explored.complete {
            continue;
        }
        complete += 1;
        let by_seed = |seed: u64| {
            let kernels = Kernels::simulated(count, seed);
            run(&program, &kernels, limit, own_policy(seed))
        };
        let drawn: BTreeSet<String> = (0..schedules).map(by_seed).collect();
        let missed: Vec<_> = drawn.difference(&explored.outcomes).collect();
        assert!(
            missed.is_empty(),
            "program {number}: {program:?}: {missed:?}"
        );
        // Every schedule that there is.
        let all = search()
            .preemptions(100)
            .schedules(10 * schedules)
            .explore();
        assert_eq!(all.failure, None, "program {number}: {program:?}");
        if all.bound.is_none() {
            assert_eq!(
                all.outcomes, explored.outcomes,
                "program {number}: {program:?}"
            );
            assert!(explored.schedules <= all.schedules, "program {number}");
            whole += 1;
        }
    }
    println!("{programs} programs: {complete} searches complete, {whole} with all schedules");
}
