//! The policies, against the figures of OSTEP (Operating Systems: Three Easy Pieces) and against
//! models of its simulators. A second here is a tick of a simulator.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use proptest::prelude::*;
use trapline::{
    Builder, Cause, Errno, Event, Fact, Kernel, Os, Policy, Runnable, SimWorld,
    sched::{Allotment, Fair, Lottery, Mlfq, Priority, RoundRobin, Sjf, Stcf, Stride},
    sync::Mutex,
};

use crate::support::*;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A job: it computes for a length. After each `io_every` of that it waits for `io_time`.
#[derive(Clone, Copy, Debug)]
struct Job {
    arrival: u64,
    length: u64,
    io_every: u64,
    io_time: u64,
}

fn job(arrival: u64, length: u64) -> Job {
    Job {
        arrival,
        length,
        io_every: 0,
        io_time: 0,
    }
}

fn with_io(arrival: u64, length: u64, io_every: u64, io_time: u64) -> Job {
    Job {
        io_every,
        io_time,
        ..job(arrival, length)
    }
}

impl Job {
    async fn main(self, os: &mut Os) {
        let mut left = self.length;
        while left > 0 {
            let burst = if self.io_every == 0 {
                left
            } else {
                left.min(self.io_every)
            };
            os.compute(seconds(burst)).await;
            left -= burst;
            if left > 0 {
                os.sleep(seconds(self.io_time)).await;
            }
        }
    }
}

/// What a simulator prints for a job: its response and its turnaround.
type Figures = (u64, u64);

/// Runs jobs under a policy. Returns the figures of each, and who computed when.
fn run_with(
    policy: impl Policy + 'static,
    jobs: &[Job],
    mut share: impl AsyncFnMut(&mut Os, usize) + 'static,
) -> (Vec<Figures>, Vec<(u64, u64)>) {
    let begun = Rc::new(RefCell::new(BTreeMap::new()));
    let ended = Rc::new(RefCell::new(BTreeMap::new()));
    let order = Rc::new(RefCell::new(Vec::new()));
    let (first, last, switches) = (Rc::clone(&begun), Rc::clone(&ended), Rc::clone(&order));
    let tracer = move |event: &Event<'_>| match event.fact {
        Fact::Computing { .. } => {
            let (tid, at) = (u64::from(event.tid) - 2, event.at.as_secs());
            first.borrow_mut().entry(tid).or_insert(at);
            switches.borrow_mut().push((tid, at));
        }
        Fact::Exited { .. } => drop(
            last.borrow_mut()
                .insert(u64::from(event.tid), event.at.as_secs()),
        ),
        _ => {}
    };
    let builder = Kernel::builder().world(SimWorld::new(7)).policy(policy);
    let mut kernel = builder.tracer(tracer).build().unwrap();
    let of_jobs = jobs.to_vec();
    run_main(&mut kernel, async move |os: &mut Os| {
        for (at, job) in of_jobs.into_iter().enumerate() {
            share(os, at).await;
            let main = async move |os: &mut Os| job.main(os).await;
            os.spawn_later("job", seconds(job.arrival), main).await?;
        }
        Ok::<(), Errno>(())
    });
    let figures = jobs.iter().enumerate().map(|(at, job)| {
        let response = begun.borrow()[&(at as u64)] - job.arrival;
        (response, ended.borrow()[&(at as u64 + 2)] - job.arrival)
    });
    let figures = figures.collect();
    (figures, order.take())
}

fn run(policy: impl Policy + 'static, jobs: &[Job]) -> Vec<Figures> {
    run_with(policy, jobs, async |_, _| {}).0
}

/// The average turnaround in the book's figures.
fn turnaround(figures: &[Figures]) -> f64 {
    figures
        .iter()
        .map(|(_, turnaround)| *turnaround as f64)
        .sum::<f64>()
        / figures.len() as f64
}

#[test]
fn ostep_7_first_in_first_out() {
    let fifo = trapline::Fifo::default;
    assert_eq!(run(fifo(), &[job(0, 10); 3]), [(0, 10), (10, 20), (20, 30)]);
    let convoy = run(fifo(), &[job(0, 100), job(0, 10), job(0, 10)]);
    assert_eq!(convoy, [(0, 100), (100, 110), (110, 120)]);
    assert!((turnaround(&convoy) - 110.0).abs() < 1e-9);
}

#[test]
fn ostep_7_shortest_job_first() {
    let figures = run(Sjf::default(), &[job(0, 100), job(0, 10), job(0, 10)]);
    assert_eq!(figures, [(20, 120), (0, 10), (10, 20)]);
    assert!((turnaround(&figures) - 50.0).abs() < 1e-9);
    let late = run(Sjf::default(), &[job(0, 100), job(10, 10), job(10, 10)]);
    assert_eq!(late, [(0, 100), (90, 100), (100, 110)]);
    assert!((turnaround(&late) - 103.333).abs() < 1e-3);
}

#[test]
fn ostep_7_shortest_time_to_completion_first() {
    let figures = run(Stcf::default(), &[job(0, 100), job(10, 10), job(10, 10)]);
    assert_eq!(figures, [(0, 120), (0, 10), (10, 20)]);
    assert!((turnaround(&figures) - 50.0).abs() < 1e-9);
}

#[test]
fn ostep_7_round_robin() {
    let figures = run(RoundRobin::new(seconds(1)), &[job(0, 5); 3]);
    assert_eq!(figures, [(0, 13), (1, 14), (2, 15)]);
    // scheduler.py -p RR -q 1 -l 1,2,3: waits of 0, 2 and 3 seconds.
    let figures = run(
        RoundRobin::new(seconds(1)),
        &[job(0, 1), job(0, 2), job(0, 3)],
    );
    assert_eq!(figures, [(0, 1), (1, 4), (2, 6)]);
}

#[test]
fn ostep_7_stcf_treats_each_burst_as_a_job() {
    let jobs = [with_io(0, 50, 10, 10), job(0, 50)];
    assert_eq!(run(Stcf::default(), &jobs), [(0, 90), (10, 100)]);
}

fn three_levels() -> Mlfq {
    Mlfq::new([seconds(10); 3])
}

#[test]
fn ostep_8_a_long_job_sinks() {
    let (figures, order) = run_with(three_levels(), &[job(0, 200)], async |_, _| {});
    assert_eq!((figures, order), (vec![(0, 200)], vec![(0, 0)]));
}

#[test]
fn ostep_8_a_short_job_comes_along() {
    let (figures, order) = run_with(
        three_levels(),
        &[job(0, 180), job(100, 20)],
        async |_, _| {},
    );
    assert_eq!(figures, [(0, 200), (0, 20)]);
    assert_eq!(order, [(0, 0), (1, 100), (0, 120)]);
}

#[test]
fn ostep_8_an_interactive_job_keeps_its_level() {
    let jobs = [job(0, 175), with_io(50, 25, 1, 5)];
    let figures = run(three_levels().stay(), &jobs);
    assert_eq!(figures, [(0, 200), (0, 25 + 24 * 5)]);
}

#[test]
fn ostep_8_a_boost_ends_starvation() {
    let jobs = [job(0, 120), with_io(100, 50, 5, 5), with_io(100, 50, 5, 5)];
    let starved = run(three_levels().stay(), &jobs);
    let boosted = run(three_levels().stay().boost(seconds(50)), &jobs);
    assert_eq!(starved[0].1, 220);
    assert!(boosted[0].1 < starved[0].1, "{boosted:?}");
}

/// A multi-level feedback queue by ticks, after the rules of OSTEP's simulator `mlfq.py`.
struct Model {
    quanta: Vec<u64>,
    allotments: Vec<u64>,
    boost: u64,
    stay: bool,
    bump: bool,
}

#[derive(Clone)]
struct Modelled {
    level: usize,
    ticks: u64,
    slices: u64,
    left: u64,
    waits: bool,
    begun: Option<u64>,
    ended: u64,
}

impl Model {
    fn fresh(&self, job: &mut Modelled, level: usize) {
        (job.level, job.ticks, job.slices) = (level, self.quanta[level], self.allotments[level]);
    }

    fn run(&self, jobs: &[Job]) -> Vec<Figures> {
        let mut state: Vec<Modelled> = jobs
            .iter()
            .map(|job| Modelled {
                level: 0,
                ticks: self.quanta[0],
                slices: self.allotments[0],
                left: job.length,
                waits: false,
                begun: None,
                ended: 0,
            })
            .collect();
        // What becomes ready at an instant, in order, and whether it comes back from a wait.
        let mut coming: BTreeMap<u64, Vec<(usize, bool)>> = BTreeMap::new();
        for (at, job) in jobs.iter().enumerate() {
            coming.entry(job.arrival).or_default().push((at, false));
        }
        let mut levels: Vec<Vec<usize>> = vec![Vec::new(); self.quanta.len()];
        let (mut now, mut open) = (0, jobs.len());
        while open > 0 {
            if self.boost > 0 && now > 0 && now % self.boost == 0 {
                for level in (1..levels.len()).rev() {
                    let lower = std::mem::take(&mut levels[level]);
                    levels[0].extend(lower);
                }
                for job in state.iter_mut().filter(|job| job.left > 0) {
                    self.fresh(job, 0);
                }
            }
            for (at, is_back) in coming.remove(&now).unwrap_or_default() {
                state[at].waits = false;
                let level = &mut levels[state[at].level];
                level.insert(if is_back && self.bump { 0 } else { level.len() }, at);
            }
            let Some(level) = levels.iter().position(|level| !level.is_empty()) else {
                now += 1;
                continue;
            };
            let at = levels[level][0];
            let (job, of) = (&mut state[at], jobs[at]);
            job.begun.get_or_insert(now);
            job.left -= 1;
            job.ticks -= 1;
            now += 1;
            if job.left == 0 {
                (job.ended, open) = (now, open - 1);
                levels[level].remove(0);
                continue;
            }
            let is_slice_over = job.ticks == 0;
            if of.io_every > 0 && (of.length - job.left) % of.io_every == 0 {
                levels[level].remove(0);
                job.waits = true;
                if self.stay {
                    self.fresh(job, level);
                }
                coming.entry(now + of.io_time).or_default().push((at, true));
            }
            if is_slice_over {
                job.slices -= 1;
                if job.slices == 0 {
                    self.fresh(job, (level + 1).min(self.quanta.len() - 1));
                } else {
                    job.ticks = self.quanta[level];
                }
                if !job.waits {
                    levels[level].remove(0);
                    levels[job.level].push(at);
                }
            }
        }
        let figures = state.iter().zip(jobs);
        figures
            .map(|(job, of)| (job.begun.unwrap() - of.arrival, job.ended - of.arrival))
            .collect()
    }

    fn policy(&self) -> Mlfq {
        let slices = self
            .allotments
            .iter()
            .map(|slices| Allotment::Slices(*slices as u32));
        let mut policy = Mlfq::new(self.quanta.iter().map(|quantum| seconds(*quantum)))
            .allotments(&slices.collect::<Vec<_>>())
            .boost(seconds(self.boost));
        if self.stay {
            policy = policy.stay();
        }
        if self.bump {
            policy = policy.bump();
        }
        policy
    }
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (0..20_u64, 1..40_u64, 0..8_u64, 1..10_u64);
    let job = job.prop_map(|(arrival, length, io_every, io_time)| {
        with_io(arrival, length, io_every, io_time)
    });
    prop::collection::vec(job, 1..6)
}

proptest! {
    #[test]
    fn mlfq_has_the_figures_of_the_simulator(
        jobs in jobs(),
        levels in prop::collection::vec((1..6_u64, 1..4_u64), 1..4),
        boost in prop_oneof![Just(0), 5..40_u64],
        stay: bool,
        bump: bool,
    ) {
        let (quanta, allotments) = levels.into_iter().unzip();
        let model = Model { quanta, allotments, boost, stay, bump };
        prop_assert_eq!(run(model.policy(), &jobs), model.run(&jobs));
    }

    #[test]
    fn round_robin_has_the_figures_of_the_simulator(
        lengths in prop::collection::vec(1..30_u64, 1..6),
        quantum in 1..8_u64,
    ) {
        let jobs: Vec<Job> = lengths.iter().map(|length| job(0, *length)).collect();
        let mut ready: std::collections::VecDeque<_> = lengths.iter().copied().enumerate().collect();
        let mut figures = vec![(None, 0); lengths.len()];
        let mut now = 0;
        while let Some((at, left)) = ready.pop_front() {
            figures[at].0.get_or_insert(now);
            now += left.min(quantum);
            figures[at].1 = now;
            if left > quantum {
                ready.push_back((at, left - quantum));
            }
        }
        let figures: Vec<Figures> = figures.into_iter().map(|(r, t)| (r.unwrap(), t)).collect();
        prop_assert_eq!(run(RoundRobin::new(seconds(quantum)), &jobs), figures);
    }
}

#[test]
fn ostep_9_stride_has_the_order_of_the_book() {
    let tickets = [100, 50, 250];
    let share = async move |os: &mut Os, at: usize| os.set_tickets(tickets[at]).await;
    let jobs = [job(0, 20), job(0, 20), job(0, 20)];
    let (_, order) = run_with(Stride::new(seconds(1)), &jobs, share);
    let mut slices = Vec::new();
    for pair in order.windows(2) {
        slices.extend((pair[0].1..pair[1].1).map(|_| pair[0].0));
    }
    // The book's table: A B C C C A C C, and then all three have a pass of 200.
    assert_eq!(
        slices[..16],
        [0, 1, 2, 2, 2, 0, 2, 2, 0, 1, 2, 2, 2, 0, 2, 2]
    );
}

#[test]
fn ostep_9_the_shares_of_a_lottery() {
    const DRAWS: u64 = 10_000;
    let tickets = [75, 25];
    let share = async move |os: &mut Os, at: usize| os.set_tickets(tickets[at]).await;
    let jobs = [job(0, DRAWS), job(0, DRAWS)];
    let (_, order) = run_with(Lottery::new(seconds(1), 3), &jobs, share);
    let mut won = [0_u64; 2];
    for pair in order.windows(2) {
        let end = pair[1].1.min(DRAWS);
        won[pair[0].0 as usize] += end.saturating_sub(pair[0].1);
    }
    let expected = DRAWS as f64 * 0.75;
    let deviation = (DRAWS as f64 * 0.75 * 0.25).sqrt();
    assert!(
        (won[0] as f64 - expected).abs() < 3.0 * deviation,
        "{won:?}"
    );
    assert_eq!(won[0] + won[1], DRAWS);
}

/// A slice: the job, when the slice began and how long it was, in milliseconds.
type FairSlice = (u64, f64, f64);

/// Runs jobs under `fair`: each arrives, computes for a span, sleeps and computes for another, all in
/// milliseconds. Returns their slices.
fn fair_slices(jobs: &'static [FairJob]) -> Vec<FairSlice> {
    let order = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&order);
    let tracer = move |event: &Event<'_>| {
        let begins = match event.fact {
            Fact::Computing { .. } => true,
            Fact::Blocked { .. } | Fact::Exited { .. } => false,
            _ => return,
        };
        let job = u64::from(event.tid).saturating_sub(2);
        noted
            .borrow_mut()
            .push((job, event.at.as_secs_f64() * 1000.0, begins));
    };
    let builder = Kernel::builder()
        .world(SimWorld::new(7))
        .policy(Fair::default());
    let mut kernel = builder.tracer(tracer).build().unwrap();
    run_main(&mut kernel, async move |os: &mut Os| {
        let millis = Duration::from_millis;
        for job in jobs {
            os.set_nice(job.nice).await;
            let main = async move |os: &mut Os| {
                os.compute(millis(job.first)).await;
                if job.then > 0 {
                    os.sleep(millis(job.sleeps)).await;
                    os.compute(millis(job.then)).await;
                }
            };
            os.spawn_later("job", millis(job.arrival), main).await?;
        }
        Ok::<(), Errno>(())
    });
    let order = order.take();
    let slices = order.windows(2).filter(|pair| pair[0].2);
    slices
        .map(|pair| (pair[0].0, pair[0].1, pair[1].1 - pair[0].1))
        .collect()
}

#[derive(Clone, Copy)]
struct FairJob {
    nice: i32,
    arrival: u64,
    first: u64,
    sleeps: u64,
    then: u64,
}

const fn fair_job(first: u64) -> FairJob {
    FairJob {
        nice: 0,
        arrival: 0,
        first,
        sleeps: 0,
        then: 0,
    }
}

fn is_near(slices: &[FairSlice], expected: &[(u64, f64)]) {
    assert_eq!(slices.len(), expected.len(), "{slices:?}");
    for (slice, expected) in slices.iter().zip(expected) {
        assert_eq!(slice.0, expected.0, "{slices:?}");
        assert!((slice.2 - expected.1).abs() < 1e-5, "{slices:?}");
    }
}

/// Figure 9.4: four jobs run for two slices of 12 ms each. Then C and D are over, and A and B run for
/// 24 ms each.
#[test]
fn ostep_9_figure_4_cfs_shares_the_latency() {
    static JOBS: [FairJob; 4] = [fair_job(96), fair_job(96), fair_job(24), fair_job(24)];
    let four = (0..8).map(|at| (at % 4, 12.0));
    let two = (0..6).map(|at| (at % 2, 24.0));
    let expected: Vec<(u64, f64)> = four.chain(two).collect();
    is_near(&fair_slices(&JOBS), &expected);
}

/// "If there are ten processes running ... CFS will set the time slice of each process to 6 ms."
#[test]
fn ostep_9_cfs_has_no_slice_below_the_granularity() {
    static JOBS: [FairJob; 10] = [fair_job(24); 10];
    let slices = fair_slices(&JOBS);
    let expected: Vec<(u64, f64)> = (0..40).map(|at| (at % 10, 6.0)).collect();
    is_near(&slices, &expected);
}

/// A has the nice value -5 and B has 0: three quarters of the latency and one quarter, and a virtual
/// runtime that rises a third as fast. So they take turns.
#[test]
fn ostep_9_cfs_weights_the_slices() {
    const A: FairJob = FairJob {
        nice: -5,
        ..fair_job(400)
    };
    static JOBS: [FairJob; 2] = [A, fair_job(400)];
    let slices = fair_slices(&JOBS);
    let both = [(0, 48.0 * 3121.0 / 4145.0), (1, 48.0 * 1024.0 / 4145.0)];
    let expected: Vec<(u64, f64)> = both.into_iter().cycle().take(20).collect();
    is_near(&slices[..20], &expected);
}

/// The slice of a task that runs is divided again when another arrives: a slice is the latency over
/// the number of tasks.
#[test]
fn ostep_9_cfs_divides_the_latency_again_when_a_task_arrives() {
    const LATE: FairJob = FairJob {
        arrival: 10,
        ..fair_job(48)
    };
    const LATER: FairJob = FairJob {
        arrival: 40,
        ..fair_job(48)
    };
    static TWO: [FairJob; 2] = [fair_job(72), LATE];
    let turns = [(0, 24.0), (1, 24.0), (0, 24.0), (1, 24.0), (0, 24.0)];
    is_near(&fair_slices(&TWO), &turns);
    // A has had more than its new share: it makes room at once.
    static LONG: [FairJob; 2] = [fair_job(64), LATER];
    let turns = [(0, 40.0), (1, 24.0), (0, 24.0), (1, 24.0)];
    is_near(&fair_slices(&LONG), &turns);
}

/// "B has gone to sleep for a long period of time (say, 10 seconds)": it does not take the processor
/// for as long while it catches up.
#[test]
fn ostep_9_cfs_gives_a_task_that_wakes_the_lowest_runtime() {
    const SLEEPER: FairJob = FairJob {
        sleeps: 10_000,
        then: 96,
        ..fair_job(1)
    };
    static JOBS: [FairJob; 2] = [fair_job(20_000), SLEEPER];
    let slices = fair_slices(&JOBS);
    let woken: Vec<f64> = slices
        .iter()
        .filter(|(job, at, _)| *job == 1 && *at > 5_000.0)
        .map(|(_, _, span)| *span)
        .collect();
    assert!(
        woken.len() == 4 && woken.iter().all(|span| (span - 24.0).abs() < 1e-5),
        "{woken:?}"
    );
}

/// A low task holds a lock for which a high one waits, while one in the middle computes. Returns
/// when the high one has the lock.
fn inversion(policy: Priority, processors: usize) -> Duration {
    let builder = Kernel::builder().world(SimWorld::new(7));
    let builder = builder.policy(policy).processors(processors);
    let mut kernel = builder.build().unwrap();
    let at = Rc::new(RefCell::new(Duration::ZERO));
    let locked = Rc::clone(&at);
    run_main(&mut kernel, async move |os: &mut Os| {
        let lock = Mutex::new(os, ()).await;
        let held = lock.clone();
        os.set_priority(1).await;
        os.spawn_later("low", seconds(0), async move |os: &mut Os| {
            let guard = held.lock(os).await.expect("no holder has died");
            os.compute(seconds(3)).await;
            drop(guard);
        })
        .await?;
        os.set_priority(2).await;
        let middle = async |os: &mut Os| os.compute(seconds(100)).await;
        os.spawn_later("middle", seconds(2), middle).await?;
        os.set_priority(3).await;
        os.spawn_later("high", seconds(1), async move |os: &mut Os| {
            let _guard = lock.lock(os).await.expect("no holder has died");
            *locked.borrow_mut() = os.now().await;
        })
        .await?;
        Ok::<(), Errno>(())
    });
    at.take()
}

#[test]
fn priority_inheritance_ends_an_inversion() {
    let fixed = || Priority::new(seconds(1));
    assert_eq!(inversion(fixed(), 1), seconds(103));
    assert_eq!(inversion(fixed().inherit(), 1), seconds(3));
    assert_eq!(inversion(fixed().inherit(), 2), seconds(3));
}

#[test]
fn a_zero_in_a_policy_does_no_harm() {
    let zero = Duration::ZERO;
    let jobs = [with_io(0, 2, 1, 1), job(1, 1)];
    let slow = |policy: Box<dyn Policy>| {
        let builder = Kernel::builder().world(SimWorld::new(7)).policy(policy);
        let mut kernel = builder.build().unwrap();
        for _ in 0..2 {
            let main = async |os: &mut Os| os.compute(Duration::from_nanos(20)).await;
            kernel.spawn("job", main).unwrap();
        }
        assert_eq!(kernel.run().unwrap().elapsed, Duration::from_nanos(40));
    };
    slow(Box::new(RoundRobin::new(zero)));
    slow(Box::new(Lottery::new(zero, 1)));
    slow(Box::new(Stride::new(zero)));
    slow(Box::new(Priority::new(zero)));
    slow(Box::new(
        Mlfq::new([zero])
            .boost(zero)
            .allotments(&[Allotment::Time(zero)]),
    ));
    slow(Box::new(Fair::default().latency(zero).granularity(zero)));
    assert_eq!(run(Mlfq::new([]), &jobs), [(0, 3), (0, 1)]);
}

/// Every policy, with the number of its kind.
fn policies() -> Vec<Box<dyn Policy>> {
    let second = seconds(1);
    vec![
        Box::new(trapline::Fifo::default()),
        Box::new(RoundRobin::new(second)),
        Box::new(Sjf::default()),
        Box::new(Stcf::default()),
        Box::new(Priority::new(second)),
        Box::new(Priority::new(second).inherit()),
        Box::new(three_levels().boost(seconds(7))),
        Box::new(three_levels().stay().bump()),
        Box::new(Lottery::new(second, 5)),
        Box::new(Stride::new(second)),
        Box::new(Fair::default()),
        Box::new(trapline::sched::Random::new(5)),
    ]
}

#[test]
fn whatever_happens_no_policy_loses_a_task_or_time() {
    for (at, policy) in policies().into_iter().enumerate() {
        let builder = Kernel::builder().world(SimWorld::new(7)).policy(policy);
        let mut kernel = builder.processors(3).build().unwrap();
        let main = async |os: &mut Os| {
            for n in 0..30_u64 {
                os.set_nice(n as i32 % 7).await;
                os.set_tickets(1 + n as u32).await;
                os.set_priority(n as i32 % 3).await;
                let job = with_io(n % 5, 6, 2, 1);
                let main = async move |os: &mut Os| {
                    let _cut = os.timeout(seconds(40), async |os| job.main(os).await).await;
                    if n % 4 == 0 {
                        os.compute(seconds(1)).await;
                    }
                };
                let tid = os.spawn_later("job", seconds(job.arrival), main).await?;
                if n % 6 == 5 {
                    os.spawn_later("killer", seconds(9 + n), async move |os: &mut Os| {
                        os.kill(tid).await;
                    })
                    .await?;
                }
            }
            Ok::<(), Errno>(())
        };
        kernel.spawn("main", main).unwrap();
        while !matches!(kernel.step().unwrap(), trapline::Step::Finished) {
            kernel.audit();
        }
        let report = kernel.report();
        assert!(
            report.elapsed <= seconds(100),
            "policy {at}: {:?}",
            report.elapsed
        );
        report.check_faults().unwrap();
    }
}

/// Returns no task after some turns, and says that it has none.
struct Withholding(Vec<Runnable>, u32);

impl Policy for Withholding {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.0.push(task);
    }

    fn pop(&mut self) -> Option<Runnable> {
        self.1 = self.1.checked_sub(1)?;
        self.0.pop()
    }

    fn remove(&mut self, task: Runnable) {
        self.0.retain(|other| *other != task);
    }

    fn len(&self) -> usize {
        if self.1 == 0 { 0 } else { self.0.len() }
    }
}

#[test]
fn a_policy_that_withholds_a_task_after_some_turns_is_no_deadlock() {
    let builder = sim().policy(Withholding(Vec::new(), 3));
    let mut kernel = builder.build().unwrap();
    let forever = async |os: &mut Os| loop {
        os.yield_now().await;
    };
    kernel.spawn("forever", forever).unwrap();
    let error = kernel.run().unwrap_err();
    assert!(error.to_string().contains("withholds a task"), "{error}");
}

// ---- a policy that is set

/// Runs three jobs of 9, 1 and 3 seconds. Another task sets Sjf: before them or behind them, and some
/// seconds later. Returns who ended when.
fn set_sjf(builder: Builder, is_first: bool, later: u64) -> String {
    let mut kernel = builder.build().unwrap();
    let sets = async move |os: &mut Os| {
        if later > 0 {
            os.sleep(seconds(later)).await;
        }
        os.set_policy(Sjf::default()).await
    };
    if is_first {
        kernel.spawn("sets", sets).unwrap();
    }
    for length in [9, 1, 3] {
        let job = async move |os: &mut Os| {
            os.compute(seconds(length)).await;
            let now = os.now().await.as_secs();
            write!(os, "{length} at {now}, ");
        };
        kernel.spawn("job", job).unwrap();
    }
    if !is_first {
        kernel.spawn("sets", sets).unwrap();
    }
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
    kernel.take_console()
}

/// The job of 9 seconds has the only processor before the call can be made: no turn has one.
#[test]
fn s60_a_policy_is_set_when_a_processor_is_free() {
    let plain = unscripted;
    assert_eq!(set_sjf(plain(), true, 0), "1 at 1, 3 at 4, 9 at 13, ");
    assert_eq!(set_sjf(plain(), false, 0), "9 at 9, 1 at 10, 3 at 13, ");
    // A task that is ready again waits for a processor as any other.
    assert_eq!(set_sjf(plain(), true, 1), "9 at 9, 1 at 10, 3 at 13, ");
    // Slices give the processor back.
    let slices = || plain().policy(RoundRobin::new(seconds(1)));
    assert_eq!(set_sjf(slices(), false, 0), "1 at 2, 3 at 5, 9 at 13, ");
    let quick = || plain().policy(RoundRobin::new(Duration::from_millis(100)));
    assert_eq!(set_sjf(quick(), true, 1), "1 at 1, 3 at 4, 9 at 13, ");
}

/// At 4 s the job of 9 seconds computes, another wakes, and the task that sets the policy has the second
/// processor. Sjf prefers both to what is left of the long job.
#[test]
fn a_policy_that_is_set_interrupts_the_computations_and_orders_them() {
    let run = |sets: bool| {
        let builder = unscripted().processors(2);
        let mut kernel = builder
            .policy(RoundRobin::new(seconds(100)))
            .build()
            .unwrap();
        for (name, length, begins) in [("long", 9, 0), ("sets", 1, 4), ("other", 3, 4)] {
            let job = async move |os: &mut Os| {
                os.sleep(seconds(begins)).await;
                if sets && name == "sets" {
                    os.set_policy(Sjf::default()).await?;
                }
                os.compute(seconds(length)).await;
                let now = os.now().await.as_secs();
                write!(os, "{name} at {now}, ");
                Ok::<(), Errno>(())
            };
            kernel.spawn(name, job).unwrap();
        }
        kernel.run().unwrap().check().unwrap();
        kernel.audit_all();
        kernel.take_console()
    };
    assert_eq!(run(false), "sets at 5, other at 8, long at 9, ");
    assert_eq!(run(true), "sets at 5, other at 7, long at 10, ");
}

/// A computation that is over at the instant of the call keeps its processor for its turn.
#[test]
fn s61_a_policy_that_is_set_leaves_the_turn_after_a_computation_alone() {
    let mut kernel = unscripted().processors(2).build().unwrap();
    kernel
        .spawn("sets", async |os: &mut Os| {
            os.compute(seconds(1)).await;
            os.set_policy(Sjf::default()).await
        })
        .unwrap();
    for name in ["ends", "waits"] {
        let job = async move |os: &mut Os| {
            os.compute(seconds(1)).await;
            write!(os, "{name}, ");
        };
        kernel.spawn(name, job).unwrap();
    }
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
    assert_eq!(kernel.take_console(), "ends, waits, ");
}

/// Sets two policies one after the other, and has them order two jobs.
fn set_twice(ends_with_sjf: bool) -> String {
    let mut kernel = unscripted().build().unwrap();
    run_main(&mut kernel, async move |os: &mut Os| {
        if ends_with_sjf {
            os.set_policy(Priority::new(seconds(100))).await?;
            os.set_policy(Sjf::default()).await?;
        } else {
            os.set_policy(Sjf::default()).await?;
            os.set_policy(Priority::new(seconds(100))).await?;
        }
        for length in [9, 1] {
            let job = async move |os: &mut Os| {
                os.compute(seconds(length)).await;
                write!(os, "{length}, ");
            };
            os.spawn("job", job).await?;
        }
        Ok::<(), Errno>(())
    });
    kernel.take_console()
}

#[test]
fn a_policy_that_is_set_twice_is_the_last_one() {
    assert_eq!(set_twice(false), "9, 1, ");
    assert_eq!(set_twice(true), "1, 9, ");
}

/// Its tasks go to a policy that is first in, first out, and none is lost.
#[test]
fn a_policy_that_is_set_and_fails_ends_the_run_with_an_error() {
    let mut kernel = unscripted().build().unwrap();
    kernel
        .spawn("sets", async |os: &mut Os| {
            os.set_policy(Withholding(Vec::new(), 1)).await?;
            os.yield_now().await;
            write!(os, "sets, ");
            Ok::<(), Errno>(())
        })
        .unwrap();
    let other = async |os: &mut Os| {
        os.compute(seconds(1)).await;
        write!(os, "other, ");
    };
    kernel.spawn("other", other).unwrap();
    let error = kernel.run().unwrap_err().to_string();
    assert_eq!(
        error,
        "the policy of Os::set_policy withholds a task that is ready"
    );
    kernel.audit_all();
    kernel.run().unwrap().check().unwrap();
    let console = kernel.take_console();
    assert_eq!(console, "other, sets, ");
}
