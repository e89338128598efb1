//! Daemons of programs: the last other task ends them, before or after each of their turns.

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use trapline::{Closed, Errno, Error, Kernel, Os, Queue, check};

use super::{
    every::{compare_programs, wanted},
    random::draw,
};

#[derive(Clone, Copy, Debug)]
enum Step {
    Put,
    Get,
    Yield,
    /// Starts a task that keeps the run alive, and makes a trap.
    Start,
    /// The same for a daemon.
    Daemon,
}

/// The first of two tasks is a daemon, and the first two of three.
fn drawn(seed: u64) -> Vec<Vec<Step>> {
    let mut state = seed.wrapping_mul(7919) + 1;
    let tasks = 2 + seed as usize % 2;
    let most = if tasks == 2 { 3 } else { 2 };
    let step = |state: &mut u64| match draw(state, 9) {
        0..2 => Step::Put,
        2..4 => Step::Get,
        4..6 => Step::Yield,
        6..8 => Step::Start,
        _ => Step::Daemon,
    };
    (0..tasks)
        .map(|_| {
            let count = 1 + draw(&mut state, most);
            (0..count).map(|_| step(&mut state)).collect()
        })
        .collect()
}

/// What each task has come to: by its place in the program, and by the step of its parent that has started it.
type Logs = Rc<RefCell<BTreeMap<(usize, usize), String>>>;

fn note(logs: &Logs, task: (usize, usize), text: &str) {
    *logs.borrow_mut().entry(task).or_default() += text;
}

fn program(tasks: &[Vec<Step>], kernel: &mut Kernel) -> Result<String, Error> {
    let logs = Logs::default();
    let (all, noted) = (tasks.to_vec(), Rc::clone(&logs));
    kernel.spawn("main", async move |os: &mut Os| {
        let queue = Queue::<usize>::unbounded(os).await;
        let daemons = 1 + all.len() % 2;
        for (at, steps) in all.into_iter().enumerate() {
            let (queue, noted) = (queue.clone(), Rc::clone(&noted));
            let task = async move |os: &mut Os| {
                for (nth, step) in steps.into_iter().enumerate() {
                    let text = take(os, step, &queue, (at, 1 + nth), &noted).await;
                    note(&noted, (at, 0), &text);
                }
            };
            match at < daemons {
                true => os.spawn_daemon("daemon", task).await?,
                false => os.spawn_detached("task", task).await?,
            };
        }
        Ok::<(), Errno>(())
    })?;
    let end = match kernel.run() {
        Ok(_) => "done",
        Err(Error::Deadlock(_)) => "deadlock",
        Err(error) => return Err(error),
    };
    Ok(format!("{:?} {end}", logs.borrow()))
}

async fn take(
    os: &mut Os,
    step: Step,
    queue: &Queue<usize>,
    own: (usize, usize),
    logs: &Logs,
) -> String {
    let logs = Rc::clone(logs);
    let child = async move |os: &mut Os| {
        os.yield_now().await;
        note(&logs, own, "child; ");
    };
    match step {
        Step::Put => format!("{:?}; ", queue.put(os, own.0).await.is_ok()),
        Step::Get => format!("{:?}; ", queue.get(os).await),
        Step::Yield => {
            os.yield_now().await;
            "yield; ".into()
        }
        Step::Start => format!("{:?}; ", os.spawn_detached("child", child).await.is_ok()),
        Step::Daemon => format!("{:?}; ", os.spawn_daemon("child", child).await.is_ok()),
    }
}

#[test]
fn random_programs_with_daemons_have_no_other_outcome() {
    let first = wanted("TRAPLINE_FUZZ_FIRST", 0);
    compare_programs(first, drawn, program);
}

#[test]
fn a_daemon_whose_children_keep_the_run_alive_is_searched_whole() {
    let program = |kernel: &mut Kernel| {
        let told = Rc::new(RefCell::new(BTreeSet::new()));
        let tell = Rc::clone(&told);
        kernel.spawn("main", async move |os: &mut Os| {
            let queue = Queue::<u32>::unbounded(os).await;
            let door = queue.clone();
            let daemon = async move |os: &mut Os| {
                while let Ok(n) = door.get(os).await {
                    let told = Rc::clone(&tell);
                    told.borrow_mut().insert(format!("got {n}"));
                    let teller = async move |_: &mut Os| {
                        told.borrow_mut().insert(format!("told {n}"));
                    };
                    os.spawn_detached("teller", teller).await.unwrap();
                }
            };
            os.spawn_daemon("door", daemon).await?;
            for n in 0..2 {
                let queue = queue.clone();
                let client = async move |os: &mut Os| queue.put(os, n).await.unwrap();
                os.spawn_detached("client", client).await?;
            }
            Ok::<(), Errno>(())
        })?;
        kernel.run()?.check()?;
        kernel.outcome(format!("{:?}", told.borrow()));
        Ok(())
    };
    let explored = check(program).exhaustive().explore();
    assert!(explored.proved, "{explored}");
    let drawn = check(program).schedules(2_000).explore();
    let missed: Vec<_> = drawn.outcomes.difference(&explored.outcomes).collect();
    assert!(
        missed.is_empty() && drawn.outcomes.contains("{}"),
        "{missed:?}"
    );
}

/// Its number is above those of all tasks, and it makes room when all of them wait.
#[test]
fn a_daemon_of_the_host_may_take_from_a_bounded_queue() {
    for (putters, each) in [(1, 3), (2, 1), (2, 2), (3, 1)] {
        let test = move |kernel: &mut Kernel| {
            let (shared, taken) = (Rc::new(OnceCell::new()), Rc::new(RefCell::default()));
            let (known, noted) = (Rc::clone(&shared), Rc::clone(&taken));
            kernel.spawn_daemon("takes", async move |os: &mut Os| {
                let queue = Queue::bounded(os, 1).await;
                known.set(queue.clone()).expect("no other task sets it");
                while let Ok(number) = queue.get(os).await {
                    RefCell::<String>::borrow_mut(&noted).push_str(number);
                }
            });
            for name in ["a", "b", "c"].into_iter().take(putters) {
                let shared = Rc::clone(&shared);
                kernel.spawn(name, async move |os: &mut Os| {
                    os.sleep(Duration::from_millis(3)).await;
                    for _ in 0..each {
                        let queue: &Queue<&str> = shared.get().expect("the daemon has had a turn");
                        queue.put(os, name).await?;
                    }
                    Ok::<(), Closed<&str>>(())
                })?;
            }
            let ended = kernel.run()?.check();
            kernel.outcome(&*taken.borrow());
            ended
        };
        let explored = check(test).exhaustive().explore();
        assert!(explored.proved, "{putters} {each}: {explored}");
        assert_eq!(explored.failure, None, "{putters} {each}");
        let all = check(test).preemptions(6).explore();
        assert_eq!(explored.outcomes, all.outcomes, "{putters} {each}");
    }
}
