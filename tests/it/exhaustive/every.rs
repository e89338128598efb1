//! All schedules of a program, by a policy of the test's own, and the search beside them.

use std::{
    cell::RefCell,
    collections::{BTreeSet, VecDeque},
    fmt,
    rc::Rc,
};

use trapline::{Cause, Error, Kernel, OnDeadlock, Policy, Runnable, SimWorld, check};

/// What the schedules came to.
#[derive(Default)]
pub(super) struct All {
    pub(super) schedules: u64,
    pub(super) outcomes: BTreeSet<String>,
    /// Whether there are no more schedules.
    pub(super) is_complete: bool,
}

/// Runs every schedule, depth first, up to a number. A kernel of its own runs each.
pub(super) fn every(most: u64, program: impl Fn(&mut Kernel) -> Result<String, Error>) -> All {
    let way = Rc::new(RefCell::new(Way::default()));
    let mut all = All::default();
    while all.schedules < most && !all.is_complete {
        let builder = Kernel::builder().world(SimWorld::new(0));
        let builder = builder.on_deadlock(OnDeadlock::Stop);
        let built = builder.policy(Every(Rc::clone(&way))).build();
        let mut kernel = built.expect("the simulated world needs nothing");
        let outcome = program(&mut kernel).expect("it ends, or in a deadlock");
        all.outcomes.insert(outcome);
        all.schedules += 1;
        drop(kernel);
        all.is_complete = !way.borrow_mut().advance();
    }
    all
}

/// The choices of a schedule.
#[derive(Default)]
struct Way {
    ready: VecDeque<Runnable>,
    turn: usize,
    /// Of each turn: the place of the task in the ready queue, and the length of that.
    chosen: Vec<(usize, usize)>,
}

impl Way {
    /// Moves to the next schedule. Returns whether there is one.
    fn advance(&mut self) -> bool {
        self.ready.clear();
        self.chosen.truncate(self.turn);
        self.turn = 0;
        while let Some((at, of)) = self.chosen.pop() {
            if at + 1 < of {
                self.chosen.push((at + 1, of));
                return true;
            }
        }
        false
    }
}

struct Every(Rc<RefCell<Way>>);

impl Policy for Every {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.0.borrow_mut().ready.push_back(task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        let way = &mut *self.0.borrow_mut();
        let of = way.ready.len();
        if of == 0 {
            return None;
        }
        if way.turn == way.chosen.len() {
            way.chosen.push((0, of));
        }
        let (at, known) = way.chosen[way.turn];
        assert_eq!(known, of, "the program repeats what it did");
        way.turn += 1;
        way.ready.remove(at)
    }

    fn remove(&mut self, task: Runnable) {
        self.0.borrow_mut().ready.retain(|other| *other != task);
    }

    fn len(&self) -> usize {
        self.0.borrow().ready.len()
    }
}

impl fmt::Debug for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Every")
    }
}

/// Returns a number of the environment, for longer runs of the tests.
pub(crate) fn wanted(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Compares the searches of programs with all schedules that there are, up to a number.
pub(super) fn compare_programs<S: fmt::Debug + Sync>(
    first: u64,
    drawn: impl Fn(u64) -> Vec<Vec<S>>,
    program: impl Fn(&[Vec<S>], &mut Kernel) -> Result<String, Error> + Sync,
) {
    let programs = wanted("TRAPLINE_FUZZ_PROGRAMS", 30);
    let schedules = wanted("TRAPLINE_FUZZ_SCHEDULES", 300);
    let (mut complete, mut whole) = (0, 0);
    for seed in first..first + programs {
        let (is_complete, is_whole) =
            compare_program(&seed.to_string(), &drawn(seed), schedules, &program);
        complete += u64::from(is_complete);
        whole += u64::from(is_whole);
    }
    println!("{programs} programs: {complete} searches complete, {whole} with all schedules");
}

/// The same for one. Returns whether the search is complete, and whether all schedules were run beside.
pub(super) fn compare_program<S: fmt::Debug + Sync>(
    name: &str,
    tasks: &[Vec<S>],
    schedules: u64,
    program: impl Fn(&[Vec<S>], &mut Kernel) -> Result<String, Error> + Sync,
) -> (bool, bool) {
    let searched = |kernel: &mut Kernel| {
        let outcome = program(tasks, kernel)?;
        kernel.outcome(outcome);
        Ok(())
    };
    let search = check(searched).exhaustive();
    let explored = search.schedules(schedules).explore();
    assert_eq!(explored.failure, None, "program {name}: {tasks:?}");
    assert_eq!(
        explored.schedules, explored.classes,
        "program {name}: {tasks:?}"
    );
    let audited = check(searched).audit().schedules(5).explore();
    assert_eq!(audited.failure, None, "program {name}: {tasks:?}");
    if !explored.complete {
        return (false, false);
    }
    let is_one = explored.classes == 1;
    assert!(
        is_one || explored.proved,
        "program {name}: {tasks:?}: {explored}"
    );
    let parts = check(searched).exhaustive().threads(1).explore();
    assert_eq!(
        (parts.schedules, parts.classes, &parts.outcomes),
        (explored.schedules, explored.classes, &explored.outcomes),
        "program {name}, in parts: {tasks:?}"
    );
    let all = every(schedules, |kernel| program(tasks, kernel));
    assert!(!all.is_complete || all.schedules >= explored.schedules);
    let missed: Vec<_> = all.outcomes.difference(&explored.outcomes).collect();
    assert!(missed.is_empty(), "program {name}: {tasks:?}: {missed:?}");
    let invented: Vec<_> = explored.outcomes.difference(&all.outcomes).collect();
    let invented = invented.into_iter().filter(|_| all.is_complete);
    assert_eq!(invented.count(), 0, "program {name}: {tasks:?}");
    (true, all.is_complete)
}
