//! Turns that take time beside tasks that compute.

use std::time::Duration;

use trapline::{Error, Inject, Kernel, Os, check, sched::Draws};

use super::brute::{Op, Program, Space, compare};

const MS: Duration = Duration::from_millis(1);

/// A parent starts tasks that compute, and waits for them.
fn jobs(kernel: &mut Kernel, count: usize) -> Result<(), Error> {
    kernel.spawn("main", async move |os: &mut Os| {
        let mut all = Vec::new();
        for millis in [3, 2, 1].into_iter().take(count) {
            let job = async move |os: &mut Os| os.compute(millis * MS).await;
            all.push(os.spawn("job", job).await.unwrap());
        }
        for job in all {
            os.wait(job).await.unwrap();
        }
    })?;
    kernel.run()?.check()
}

/// A task sleeps beside one that computes.
fn beside_a_sleeper(kernel: &mut Kernel) -> Result<(), Error> {
    for millis in [1, 10] {
        kernel.spawn("task", async move |os: &mut Os| match millis {
            1 => os.sleep(MS).await,
            _ => os.compute(millis * MS).await,
        })?;
    }
    kernel.run()?.check()
}

#[test]
fn programs_that_compute_are_proved_though_turns_take_time() {
    for span in [1, 20] {
        for count in 1..3 {
            let search = check(|kernel: &mut Kernel| jobs(kernel, count)).exhaustive();
            let explored = search.turns_take(Duration::ZERO..=span * MS).explore();
            assert!(
                explored.failure.is_none() && explored.proved,
                "{count} {span}: {explored}"
            );
        }
        let search = check(beside_a_sleeper).exhaustive();
        let explored = search.turns_take(Duration::ZERO..=span * MS).explore();
        assert!(
            explored.failure.is_none() && explored.proved,
            "{span}: {explored}"
        );
    }
}

fn op(draws: &mut Draws) -> Op {
    let at = draws.below(2) as usize;
    match draws.below(12) {
        0..5 => Op::Compute(1 + draws.below(3) as u32),
        5 => Op::Yield,
        6 => Op::Sleep(1 + draws.below(3) as u32),
        7 => Op::Now,
        8 => Op::Read(at),
        9 => Op::Write(at),
        10 => Op::Lock,
        _ => Op::Put,
    }
}

#[test]
fn a_search_of_programs_that_compute_has_the_outcomes_of_every_sequence_of_decisions() {
    compare(40, |seed| {
        let mut draws = Draws::new(seed);
        let tasks = (0..2 + draws.below(2)).map(|_| {
            let count = 1 + draws.below(2);
            (0..count).map(|_| op(&mut draws)).collect()
        });
        let tasks = tasks.collect();
        let turns = [None, Some(250), Some(1000), Some(2000), Some(10_000)];
        let turn = turns[draws.below(5) as usize].map(Duration::from_micros);
        let space = Space {
            turn,
            faults: draws.below(2) as usize,
            list: &[
                ("compute:kill", "compute", Inject::Kill),
                ("now:delay=1ms", "now", Inject::Delay(MS)),
            ],
        };
        Program { tasks, space }.drawn()
    });
}
