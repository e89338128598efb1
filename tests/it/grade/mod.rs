//! Grading: ten problems, each with five right programs and five wrong ones.

mod accounts;
mod barber;
mod barrier;
mod buffer;
mod cache;
mod counter;
mod philosophers;
mod readers;
mod rendezvous;
mod stop_and_wait;

use std::{
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

use trapline::{
    Errno, Error, Graded, IntoExit, Kernel, Os, Outcome, Queue, Reply, RunEnd, Shared, SystemCall,
    Verdict, grade,
    sync::{Condition, Guard, Mutex, Watch},
};

type Body = fn(&mut Kernel) -> Result<(), Error>;

/// What a wrong program has that the reference does not have, or what it lacks.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wrong {
    Race,
    Deadlock,
    Leak,
    Fault,
    Failure,
    /// It never comes to an outcome of the reference.
    TooStrict,
}

/// The programs of these names.
macro_rules! programs {
    ($($program:ident),+ $(,)?) => {
        &[$((stringify!($program), $program as $crate::grade::Body)),+]
    };
}
use programs;

/// Grades five right programs.
fn all_right(reference: Body, programs: &[(&str, Body); 5]) {
    for (name, program) in programs {
        let graded = graded(*program, reference);
        assert!(graded.is_complete(), "{name}\n{graded}");
        assert!(graded.is_equal(), "{name}\n{graded}");
    }
}

/// Grades five wrong programs.
fn all_wrong(reference: Body, programs: &[(Wrong, &(&str, Body)); 5]) {
    for (wrong, (name, program)) in programs {
        let graded = graded(*program, reference);
        assert!(graded.is_complete(), "{name}\n{graded}");
        assert!(!graded.is_equal(), "{name}\n{graded}");
        let is_found = match wrong {
            Wrong::TooStrict => graded.races.is_empty() && !graded.missing.is_empty(),
            _ => graded.races.iter().any(|race| is(&race.outcome, *wrong)),
        };
        assert!(is_found, "{name} is not {wrong:?}\n{graded}");
    }
}

fn is(outcome: &Outcome, wrong: Wrong) -> bool {
    match wrong {
        Wrong::Race => outcome.end == RunEnd::Over && !outcome.faults && !outcome.fails,
        Wrong::Deadlock => outcome.end == RunEnd::Deadlock,
        Wrong::Leak => outcome.end == RunEnd::Leak,
        Wrong::Fault => outcome.faults,
        Wrong::Failure => outcome.fails,
        Wrong::TooStrict => false,
    }
}

fn graded(program: Body, reference: Body) -> Graded {
    grade(program, reference).schedules(5_000).threads(1).run()
}

/// What a search decides besides the order of turns belongs to the exercise.
#[test]
fn a_submission_that_makes_a_choice_of_its_own_is_refused() {
    /// The exercise makes one choice, which all programs share.
    async fn coin(os: &mut Os) -> usize {
        os.choose_named("coin", 2).await
    }
    fn races(kernel: &mut Kernel) -> Result<(), Error> {
        run(kernel, async |os: &mut Os| {
            let (last, coin) = (Shared::new(0), coin(os).await);
            let theirs = last.clone();
            all(os, 2, async move |_: &mut Os, task| theirs.set(task)).await?;
            writeln!(os, "{coin} {}", last.get());
            Ok::<_, Errno>(())
        })
    }
    fn forges(kernel: &mut Kernel) -> Result<(), Error> {
        run(kernel, async |os: &mut Os| {
            let coin = coin(os).await;
            let last = os.choose(2).await;
            writeln!(os, "{coin} {last}");
        })
    }
    fn forges_by_name(kernel: &mut Kernel) -> Result<(), Error> {
        run(kernel, async |os: &mut Os| {
            let coin = coin(os).await;
            let last = os.choose_named("coin", 2).await;
            writeln!(os, "{coin} {last}");
        })
    }
    fn forges_by_a_raw_trap(kernel: &mut Kernel) -> Result<(), Error> {
        run(kernel, async |os: &mut Os| {
            let coin = coin(os).await;
            let Reply::Random(last) = os.trap(SystemCall::Choose(2)).await else {
                panic!("it is a number");
            };
            writeln!(os, "{coin} {last}");
        })
    }
    let fair = graded(races, races);
    assert!(
        fair.is_equal() && fair.submission.outcomes.len() == 4,
        "{fair}"
    );
    for (forger, call, known) in [
        (
            forges as Body,
            "it calls os.choose(2) at tests/it/grade/mod.rs:",
            0,
        ),
        (
            forges_by_name,
            "it calls os.choose_named(\"coin\", 2) at tests/it/grade/mod.rs:",
            1,
        ),
        (
            forges_by_a_raw_trap,
            "it calls os.choose(2) at tests/it/grade/mod.rs:",
            0,
        ),
    ] {
        let graded = graded(forger, races);
        // Without the refusal they would be equal.
        assert_eq!(graded.submission.outcomes, graded.reference.outcomes);
        assert_eq!(graded.verdict(), Verdict::Refused, "{graded}");
        let why = graded.refused.as_ref().expect("it is refused");
        assert!(why.starts_with(call), "{why}");
        assert!(why.contains(&format!("at {known} place")), "{why}");
        assert!(
            graded.to_string().contains("\nverdict: refused: "),
            "{graded}"
        );
    }
    // The reference may choose what the submission does not.
    assert_eq!(graded(races, forges_by_name).verdict(), Verdict::Equal);
}

/// A difference is shown by the schedule that the search has met. Another search would be stopped here.
#[test]
fn a_difference_needs_no_search_of_its_own() {
    static SUBMITTED: AtomicU64 = AtomicU64::new(0);
    static SEARCHED: AtomicU64 = AtomicU64::new(u64::MAX);
    let wrong = |kernel: &mut Kernel| {
        SUBMITTED.fetch_add(1, Ordering::Relaxed);
        adding(kernel, false)
    };
    let right = |kernel: &mut Kernel| {
        SEARCHED.fetch_min(SUBMITTED.load(Ordering::Relaxed), Ordering::Relaxed);
        adding(kernel, true)
    };
    let is_searched = || SUBMITTED.load(Ordering::Relaxed) > SEARCHED.load(Ordering::Relaxed);
    let graded = grade(wrong, right).threads(1).stop_when(is_searched).run();
    assert!(graded.is_complete() && graded.races.len() == 2, "{graded}");
    for race in &graded.races {
        let schedule = race.schedule.as_ref().expect("it is known");
        // The search stops with its first schedule, which loses nothing.
        assert!(!schedule.details.starts_with("schedule 0 "), "{graded}");
        assert!(
            schedule.details.contains(" comes to this, seed 0"),
            "{graded}"
        );
        let replayed = trapline::check(|kernel| adding(kernel, false));
        let replayed = replayed.replay(&schedule.replay).unwrap().explore();
        assert!(replayed.changed.is_none() && replayed.failure.is_none());
        // An outcome is no failure. Its turns are shown.
        let text = replayed.to_string();
        assert!(text.starts_with("1 schedule passes\n"), "{text}");
        assert!(
            text.contains("  task 0 2 ") && text.contains(" writes shared 1"),
            "{text}"
        );
        assert!(text.contains("it/grade/mod.rs:"), "{text}");
    }
}

/// Three tasks add one.
fn adding(kernel: &mut Kernel, is_right: bool) -> Result<(), Error> {
    run(kernel, async move |os: &mut Os| {
        let sum = Shared::new(0);
        let theirs = sum.clone();
        let add = async move |os: &mut Os, _| match is_right {
            true => theirs.update(|sum| *sum += 1),
            false => {
                let read = theirs.get();
                os.yield_now().await;
                theirs.set(read + 1);
            }
        };
        all(os, 3, add).await?;
        writeln!(os, "{}", sum.get());
        Ok::<_, Errno>(())
    })
}

/// Runs this task, which the host spawns, and its children.
fn run<T: IntoExit>(
    kernel: &mut Kernel,
    main: impl AsyncFnOnce(&mut Os) -> T + 'static,
) -> Result<(), Error> {
    kernel.spawn("main", main)?;
    kernel.run().map(drop)
}

/// Starts a task for each number below `tasks`, and waits for all.
async fn all(
    os: &mut Os,
    tasks: usize,
    program: impl AsyncFn(&mut Os, usize) + 'static,
) -> Result<(), Errno> {
    let program = Rc::new(program);
    let mut spawned = Vec::new();
    for number in 0..tasks {
        let program = Rc::clone(&program);
        let task = async move |os: &mut Os| program(os, number).await;
        spawned.push(os.spawn(format!("task {number}"), task).await?);
    }
    for task in spawned {
        os.wait(task).await?;
    }
    Ok(())
}

/// Counts tasks that are inside, and the most that were at once.
#[derive(Clone, Default)]
struct Peak(Shared<(u32, u32)>);

impl Peak {
    /// Is inside for a while.
    async fn pass(&self, os: &mut Os) {
        self.enter();
        os.yield_now().await;
        self.leave();
    }

    fn enter(&self) {
        self.0.update(|(inside, most)| {
            *inside += 1;
            *most = (*most).max(*inside);
        });
    }

    fn leave(&self) {
        self.0.update(|(inside, _)| *inside -= 1);
    }

    fn most(&self) -> u32 {
        self.0.with(|(_, most)| *most)
    }
}

/// A queue with so many tokens.
async fn tokens(os: &mut Os, count: usize) -> Queue<()> {
    let queue = Queue::unbounded(os).await;
    for _ in 0..count {
        put(os, &queue, ()).await;
    }
    queue
}

async fn put<T: 'static>(os: &mut Os, queue: &Queue<T>, message: T) {
    let put = queue.put(os, message).await;
    assert!(put.is_ok(), "the queue is open");
}

async fn take<T: 'static>(os: &mut Os, queue: &Queue<T>) -> T {
    queue.get(os).await.expect("the queue is open")
}

async fn locked<T: 'static>(os: &mut Os, lock: &Mutex<T>) -> Guard<T> {
    let guard = lock.lock(os).await;
    guard.unwrap_or_else(|poisoned| poisoned.0)
}

/// Takes a lock, and waits until its value is as wanted.
async fn locked_when<T: 'static>(
    os: &mut Os,
    lock: &Mutex<T>,
    changed: &Condition,
    is_wanted: impl Fn(&T) -> bool,
) -> Guard<T> {
    let mut guard = locked(os, lock).await;
    while !is_wanted(&guard) {
        let again = changed.wait(os, guard).await;
        guard = again.unwrap_or_else(|poisoned| poisoned.0);
    }
    guard
}

/// Waits until the value of a watch is as wanted.
async fn seen<T: Clone + 'static>(os: &mut Os, watch: &Watch<T>, is_wanted: impl Fn(T) -> bool) {
    let watch = watch.clone();
    while !is_wanted(watch.get()) {
        watch.changed(os).await;
    }
}
