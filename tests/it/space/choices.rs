//! `Os::choose`: the seed answers in a plain run, and the search in a schedule.

use std::collections::BTreeSet;

use trapline::{
    Check, Errno, Error, Explored, Kernel, Os, Reply, Shared, SystemCall, World, check,
    forward_world,
};

use crate::support::{sim, tid};

/// What one task draws with this seed: choices, and a random number after them.
fn drawn(seed: u64) -> (Vec<usize>, u64) {
    let mut kernel = Kernel::simulated(seed);
    let told = Shared::new((Vec::new(), 0));
    let tells = told.clone();
    let task = async move |os: &mut Os| {
        let mut all = Vec::new();
        for of in [1, 2, 10, 1000] {
            all.push(os.choose(of).await);
        }
        tells.set((all, os.random().await));
    };
    kernel.spawn("task", task).unwrap();
    kernel.run().unwrap();
    told.get()
}

#[test]
fn s97_choose_draws_from_the_seed_and_leaves_the_random_numbers_alone() {
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let (all, random) = drawn(seed);
        assert_eq!((all.clone(), random), drawn(seed));
        assert!(all[0] == 0 && all[1] < 2 && all[2] < 10 && all[3] < 1000);
        let mut plain = Kernel::simulated(seed);
        let told = Shared::new(0);
        let tells = told.clone();
        let task = async move |os: &mut Os| tells.set(os.random().await);
        plain.spawn("task", task).unwrap();
        plain.run().unwrap();
        assert_eq!(random, told.get(), "the first random number of seed {seed}");
        seen.insert(all);
    }
    assert!(seen.len() > 40, "{}", seen.len());
}

/// A choice of nothing is the fault of its task, with the place of the call.
#[test]
fn s97_a_choice_of_nothing_faults_its_task() {
    let mut kernel = Kernel::simulated(0);
    let nothing = async |os: &mut Os| {
        os.choose(0).await;
    };
    kernel.spawn("nothing", nothing).unwrap();
    let raw = async |os: &mut Os| {
        let refused = os.trap(SystemCall::Choose(0)).await;
        assert_eq!(refused, Reply::Err(Errno::Invalid));
    };
    kernel.spawn("raw", raw).unwrap();
    let exits = kernel.run().unwrap().exits().clone();
    let why = exits[&tid(1)].to_string();
    assert!(why.contains("there is nothing to choose"), "{why}");
    assert_eq!(exits[&tid(2)].to_string(), "done");
}

/// A world may decide, too.
#[test]
fn s97_a_world_can_answer_choices() {
    struct Last<W>(W);
    impl<W: World> World for Last<W> {
        forward_world!(0: now, random, reseed, seed, print, take_console, remote, wait);
        forward_world!(0: is_idle, submit, io, spins, spin, net);

        fn choose(&mut self, of: u64, _drawn: u64) -> u64 {
            of - 1
        }
    }
    let world = Last(trapline::SimWorld::new(3));
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    let task = async |os: &mut Os| {
        let last = os.choose_named("the last", 7).await;
        writeln!(os, "{last}");
    };
    kernel.spawn("task", task).unwrap();
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "6\n");
}

#[test]
fn a_log_has_the_text_and_the_answer_of_a_choice() {
    let (mut kernel, diary) = crate::support::logged(sim());
    let task = async |os: &mut Os| {
        os.choose_named("how it crashes", 1).await;
    };
    kernel.spawn("task", task).unwrap();
    kernel.run().unwrap();
    let lines = diary.lines().join("\n");
    assert!(lines.contains("choose(1, \"how it crashes\")"), "{lines}");
}

// ---- searches

/// Fails where the second of two choices is a certain one.
fn behind_a_choice(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn("task", async |os: &mut Os| {
        let first = os.choose(2).await;
        let second = os.choose_named("which one", 10).await;
        assert!(second < 7 || first == 0, "{second} is chosen");
    })?;
    kernel.run()?.check()
}

#[test]
fn every_strategy_finds_a_failure_behind_a_choice() {
    type Set = fn(
        Check<fn(&mut Kernel) -> Result<(), Error>>,
    ) -> Check<fn(&mut Kernel) -> Result<(), Error>>;
    let strategies: [(&str, Set); 6] = [
        ("random", |check| check.random()),
        ("pct", |check| check.pct(2)),
        ("fifo", |check| check.fifo()),
        ("no preemptions", |check| check.preemptions(0)),
        ("exhaustive", |check| check.exhaustive()),
        ("in parts", |check| check.exhaustive().threads(2)),
    ];
    for (name, set) in strategies {
        let body: fn(&mut Kernel) -> Result<(), Error> = behind_a_choice;
        let explored = set(check(body)).explore();
        let failure = explored.failure.unwrap_or_else(|| panic!("{name}"));
        // The least answers with which it fails, and no preemption.
        assert!(failure.why.contains("7 is chosen"), "{name}: {failure}");
        assert!(failure.replay.contains(".c1=1-c2=7."), "{name}: {failure}");
        assert!(
            failure.details.contains("choose(10, \"which one\")"),
            "{failure}"
        );
        let again = check(body).replay(&failure.replay).unwrap().explore();
        assert!(again.failure.unwrap().why.contains("7 is chosen"), "{name}");
        assert_eq!(again.changed, None, "{name}");
    }
}

/// Three tasks that choose, and note what they chose; the second one waits for nothing of the others.
fn three(kernel: &mut Kernel, tells: bool) -> Result<(), Error> {
    let told = Shared::new(Vec::new());
    let apart = [Shared::new(0), Shared::new(0), Shared::new(0)];
    for (of, apart) in [2, 3, 2].into_iter().zip(&apart) {
        let (told, apart) = (told.clone(), apart.clone());
        kernel.spawn("chooses", async move |os: &mut Os| {
            let chosen = os.choose(of).await;
            match tells {
                true => told.update(|told| told.push((of, chosen))),
                false => apart.set(chosen),
            }
        })?;
    }
    kernel.run()?;
    let apart: Vec<usize> = apart.iter().map(Shared::get).collect();
    kernel.outcome(format!("{:?} {apart:?}", told.get()));
    Ok(())
}

fn whole(explored: Explored) -> Explored {
    assert_eq!(explored.failure, None);
    assert!(explored.proved, "{explored}");
    explored
}

#[test]
fn an_exhaustive_search_runs_each_answer_once() {
    // The tasks share nothing: one order of turns, with 2 x 3 x 2 answers.
    let apart = whole(check(|kernel| three(kernel, false)).exhaustive().explore());
    assert_eq!((apart.schedules, apart.outcomes.len()), (12, 12));
    // They share a list, in one of six orders.
    let told = whole(check(|kernel| three(kernel, true)).exhaustive().explore());
    assert_eq!((told.schedules, told.outcomes.len()), (72, 36));
    for search in [apart, told] {
        assert_eq!(
            search.schedules, search.classes,
            "no causal order runs twice"
        );
    }
    let all = check(|kernel| three(kernel, true)).preemptions(usize::MAX);
    assert_eq!(all.explore().outcomes.len(), 36);
}

#[test]
fn the_parts_of_a_search_have_each_answer_once() {
    let body = |kernel: &mut Kernel| three(kernel, true);
    let all = whole(check(body).exhaustive().explore());
    let (mut schedules, mut outcomes) = (0, BTreeSet::new());
    for part in 1..=3 {
        let part = whole(check(body).exhaustive().shard(part, 3).explore());
        schedules += part.schedules;
        outcomes.extend(part.outcomes);
    }
    assert_eq!((schedules, &outcomes), (all.schedules, &all.outcomes));
    let threads = whole(check(body).exhaustive().threads(2).explore());
    assert_eq!(
        (threads.schedules, threads.outcomes),
        (all.schedules, outcomes)
    );
    let alone = check(body).preemptions(0).explore();
    let divided = check(body).preemptions(0).threads(2).explore();
    assert_eq!(alone.schedules, divided.schedules);
    assert_eq!(alone.outcomes, divided.outcomes);
    assert!(!alone.complete && !divided.complete);
}

/// A choice decides what the task does next, and so which other choices there are.
#[test]
fn a_choice_can_lead_to_others() {
    let body = |kernel: &mut Kernel| {
        let told = Shared::new(String::new());
        let tells = told.clone();
        kernel.spawn("tree", async move |os: &mut Os| {
            let depth = os.choose(4).await;
            for _ in 0..depth {
                let turn = ["l", "r"][os.choose(2).await];
                tells.update(|way| way.push_str(turn));
            }
        })?;
        kernel.run()?;
        kernel.outcome(told.get());
        Ok(())
    };
    let explored = whole(check(body).exhaustive().explore());
    assert_eq!((explored.schedules, explored.outcomes.len()), (15, 15));
    assert!(explored.outcomes.contains("") && explored.outcomes.contains("rlr"));
}

/// In a search by seeds, a schedule has the answers of its seed, as a plain run has.
#[test]
fn a_search_by_seeds_answers_as_a_plain_run_does() {
    let body = |kernel: &mut Kernel| {
        let told = Shared::new(0);
        let tells = told.clone();
        let task = async move |os: &mut Os| tells.set(os.choose(1 << 40).await);
        kernel.spawn("task", task)?;
        kernel.run()?;
        kernel.outcome(told.get().to_string());
        Ok(())
    };
    let searched = check(body).random().schedules(5).explore().outcomes;
    let plain = (0..5).map(|seed| {
        let mut kernel = Kernel::simulated(seed);
        let told = Shared::new(0);
        let tells = told.clone();
        let task = async move |os: &mut Os| tells.set(os.choose(1 << 40).await);
        kernel.spawn("task", task).unwrap();
        kernel.run().unwrap();
        told.get().to_string()
    });
    assert_eq!(searched, plain.collect());
    let audited = check(|kernel| three(kernel, true)).audit().schedules(20);
    assert_eq!(audited.explore().failure, None);
}
