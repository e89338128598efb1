//! Decisions: the cost of a turn among 100,000 ready tasks, under each policy.
//!
//! A turn begins with the policy's decision and ends with the task back on the ready queue. The
//! figure includes the resume of the task and its call, so it is an upper bound for the decision.
//!
//! Either the tasks yield, or they ask for a computation at each turn, in the simulated world. The
//! lengths of the computations differ, and most are longer than a slice.

use std::{cell::Cell, rc::Rc, time::Duration};

use trapline::{
    Kernel, Os, Policy, SimWorld,
    sched::{Fair, Fifo, Lottery, Mlfq, Priority, Random, RoundRobin, Sjf, Stcf, Stride},
};

use crate::{
    Plan,
    contest::Contest,
    meter::{cpu_time, ns_each},
};

const TASKS: usize = 100_000;
const TURNS: usize = 1_000_000;
const SLICE: Duration = Duration::from_millis(10);
const SEED: u64 = 1;

type Make = fn() -> Box<dyn Policy>;

const POLICIES: [(&str, Make); 10] = [
    ("fifo", || Box::new(Fifo::default())),
    ("rr", || Box::new(RoundRobin::new(SLICE))),
    ("sjf", || Box::new(Sjf::default())),
    ("stcf", || Box::new(Stcf::default())),
    ("priority", || Box::new(Priority::new(SLICE))),
    ("mlfq", || Box::new(Mlfq::new([1, 2, 4].map(|n| n * SLICE)))),
    ("lottery", || Box::new(Lottery::new(SLICE, SEED))),
    ("stride", || Box::new(Stride::new(SLICE))),
    ("fair", || Box::new(Fair::default())),
    ("random", || Box::new(Random::new(SEED))),
];

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let contest = |what: &str, computes: bool| {
        let turns = plan.times(TURNS);
        let name = format!("a decision among {TASKS} tasks that {what}");
        let contest = Contest::new(name, plan.rounds.min(5), &["ns per turn"]);
        POLICIES.into_iter().fold(contest, |contest, (name, make)| {
            contest.enter(name, move || {
                ns_each(trapline(make(), computes, turns), turns)
            })
        })
    };
    vec![contest("yield", false), contest("compute", true)]
}

/// Counts the turns of all tasks. The clock is read when each task could have had its first turn,
/// and again so many turns later.
#[derive(Default)]
struct Count {
    turns: Cell<usize>,
    start: Cell<Duration>,
    time: Cell<Duration>,
}

impl Count {
    /// Counts a turn. Returns whether it is the last.
    fn turn(&self, measured: usize) -> bool {
        let turns = self.turns.get() + 1;
        self.turns.set(turns);
        if turns == TASKS {
            self.start.set(cpu_time());
        }
        let is_last = turns == TASKS + measured;
        if is_last {
            self.time.set(cpu_time() - self.start.get());
        }
        is_last
    }
}

fn trapline(policy: Box<dyn Policy>, computes: bool, turns: usize) -> Duration {
    let mut kernel = Kernel::builder()
        .world(SimWorld::new(SEED))
        .policy(policy)
        .build()
        .expect("a simulated kernel needs nothing");
    let count = Rc::new(Count::default());
    for n in 0..TASKS {
        let count = Rc::clone(&count);
        let length = Duration::from_micros(n as u64 * 7919 % 40_009);
        let task = async move |os: &mut Os| {
            while !count.turn(turns) {
                match computes {
                    true => os.compute(length).await,
                    false => os.yield_now().await,
                }
            }
            os.shutdown().await
        };
        kernel
            .spawn("task", task)
            .expect("there is room for a task");
    }
    kernel.run().expect("it is shut down");
    count.time.get()
}
