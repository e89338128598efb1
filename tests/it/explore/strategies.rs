//! Strategies that count, and the estimate of what a search has not seen.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use trapline::{Error, Kernel, Os, SearchStrategy, Shared, check, sched::Draws};

/// Tasks with so many turns each. Each turn adds its task's name to the outcome.
fn walk(kernel: &mut Kernel, lengths: &[u32]) -> Result<(), Error> {
    let order = Shared::new(String::new());
    for (name, length) in ('a'..).zip(lengths.iter().copied()) {
        let order = order.clone();
        kernel.spawn(name.to_string(), async move |os: &mut Os| {
            for turn in 1..=length {
                order.update(|order| order.push(name));
                if turn < length {
                    os.yield_now().await;
                }
            }
        })?;
    }
    kernel.run()?;
    kernel.outcome(order.get());
    Ok(())
}

/// How often each order comes in 2,800 schedules of a strategy. There are 28 orders.
fn counts(strategy: &str) -> BTreeMap<String, u32> {
    let counts = Rc::new(RefCell::new(BTreeMap::new()));
    let noted = Rc::clone(&counts);
    check(move |kernel| {
        let order = Rc::new(RefCell::new(String::new()));
        for (name, length) in [('a', 2), ('b', 6)] {
            let order = Rc::clone(&order);
            kernel.spawn("task", async move |os: &mut Os| {
                for turn in 1..=length {
                    order.borrow_mut().push(name);
                    if turn < length {
                        os.yield_now().await;
                    }
                }
            })?;
        }
        kernel.run()?;
        *noted
            .borrow_mut()
            .entry(order.borrow().clone())
            .or_default() += 1;
        Ok(())
    })
    .strategy(strategy.parse().unwrap())
    .schedules(2800)
    .run();
    counts.take()
}

#[test]
fn surw_draws_each_interleaving_with_equal_probability_and_random_does_not() {
    for strategy in ["surw", "surw:2/6"] {
        let counts = counts(strategy);
        assert_eq!(counts.len(), 28, "{counts:?}");
        assert!(
            counts.values().all(|count| (60..150).contains(count)),
            "{counts:?}"
        );
    }
    let counts = counts("random");
    assert!(counts["aabbbbbb"] > 500, "{counts:?}");
    let rarest = counts.get("bbbbbbaa").copied().unwrap_or_default();
    assert!(rarest < 60, "{counts:?}");
}

/// The turns of a task that is yet to be spawned are those of its parent.
#[test]
fn surw_gives_a_parent_the_turns_of_its_children() {
    let mut firsts = [0; 2];
    let first = Rc::new(RefCell::new(String::new()));
    let seen = Rc::clone(&first);
    for seed in 0..1000 {
        let (seen, other) = (Rc::clone(&seen), Rc::clone(&seen));
        check(move |kernel| {
            seen.borrow_mut().clear();
            let (seen, other) = (Rc::clone(&seen), Rc::clone(&other));
            kernel.spawn("parent", async move |os: &mut Os| {
                seen.borrow_mut().push('p');
                let child = async |os: &mut Os| {
                    for _ in 0..9 {
                        os.yield_now().await;
                    }
                };
                os.spawn_detached("child", child).await.map(drop)
            })?;
            kernel.spawn("other", async move |_: &mut Os| {
                other.borrow_mut().push('o');
            })?;
            kernel.run().map(drop)
        })
        .strategy("surw:2/1/10<1".parse().unwrap())
        .seed(seed)
        .schedules(1)
        .run();
        firsts[usize::from(first.borrow().starts_with('o'))] += 1;
    }
    // Twelve of thirteen turns are the parent's and its child's.
    assert!((40..=120).contains(&firsts[1]), "{firsts:?}");
}

#[test]
fn surw_finds_a_lost_update_and_its_replay_is_the_same() {
    let lost = |kernel: &mut Kernel| {
        let sum = Shared::new(0);
        for _ in 0..2 {
            let sum = sum.clone();
            kernel.spawn("adder", async move |os: &mut Os| {
                let read = sum.get();
                os.yield_now().await;
                sum.set(read + 1);
            })?;
        }
        kernel.run()?;
        assert_eq!(sum.get(), 2, "lost");
        Ok(())
    };
    let failure = check(lost).surw().explore().failure.expect("it is lost");
    let again = check(lost).replay(&failure.replay).expect("it is one");
    let again = again.explore().failure.expect("it fails again");
    assert_eq!((&again.why, &again.replay), (&failure.why, &failure.replay));
}

#[test]
fn surw_has_a_text() {
    for text in ["surw", "surw:12/30<1/8<1"] {
        assert_eq!(text.parse::<SearchStrategy>().unwrap().to_string(), text);
    }
    for text in ["surw:", "surw:x", "surw:1<1", "surw:1/"] {
        let error = text.parse::<SearchStrategy>().unwrap_err();
        assert!(error.contains("surw:TURNS/TURNS<PARENT"), "{error}");
    }
}

/// The estimate, beside the share of later schedules whose order is new. The outcome names the causal
/// order, as the exhaustive search shows.
#[test]
fn the_estimate_of_what_is_unseen_is_calibrated() {
    const LENGTHS: [u32; 3] = [2, 3, 3];
    let all = check(|kernel| walk(kernel, &LENGTHS))
        .exhaustive()
        .explore();
    assert!(all.proved, "{all}");
    // 8! / (2! 3! 3!)
    assert_eq!((all.classes, all.outcomes.len()), (560, 560));
    let mut draws = Draws::new(3);
    for schedules in [100, 400, 1600] {
        let seen = check(|kernel| walk(kernel, &LENGTHS))
            .estimate()
            .schedules(schedules)
            .explore();
        assert_eq!(seen.classes, seen.outcomes.len() as u64);
        let estimate = seen.unseen.expect("orders are counted");
        let later = (0..1000).filter(|_| {
            let next = check(|kernel| walk(kernel, &LENGTHS));
            let next = next
                .seed(1_000_000 + draws.below(1 << 40))
                .schedules(1)
                .explore();
            !next.outcomes.is_subset(&seen.outcomes)
        });
        let share = later.count() as f64 / 1000.0;
        assert!(
            (estimate - share).abs() < 0.08,
            "{schedules}: {estimate} and {share}"
        );
    }
}

#[test]
fn the_estimate_is_the_same_on_any_number_of_threads_and_only_where_it_is_asked_for() {
    let search = |kernel: &mut Kernel| walk(kernel, &[2, 2, 2]);
    let one = check(search).estimate().schedules(200).explore();
    let four = check(search).estimate().threads(4).schedules(200).explore();
    assert_eq!((one.classes, one.unseen), (four.classes, four.unseen));
    let audited = check(search).audit().schedules(200).explore();
    assert_eq!((one.classes, one.unseen), (audited.classes, audited.unseen));
    assert_eq!(check(search).schedules(200).explore().unseen, None);
    assert_eq!(check(search).exhaustive().explore().unseen, None);
    let text = one.to_string();
    assert!(
        text.contains("of the probability is in orders not yet seen"),
        "{text}"
    );
}

#[test]
#[should_panic(expected = "`estimate` is for a search that draws its schedules")]
fn an_exhaustive_search_estimates_nothing() {
    check(|kernel| kernel.run().map(drop))
        .exhaustive()
        .estimate()
        .run();
}

// ---- reads-from feedback

/// Each task does its stage if the one before is done. They are spawned, and run, in the reverse order.
fn reverse(kernel: &mut Kernel, stages: u32) -> Result<(), Error> {
    let done = Shared::new(0);
    for stage in (0..stages).rev() {
        let done = done.clone();
        kernel.spawn("stage", async move |os: &mut Os| {
            os.yield_now().await;
            if done.get() == stage {
                done.set(stage + 1);
            }
        })?;
    }
    kernel.run()?;
    assert!(done.get() < stages, "all stages are done");
    Ok(())
}

/// Returns the median of the schedules that a search of seeds needs up to the failure.
fn needed(strategy: &str, stages: u32) -> u64 {
    let run = |seed: u64| {
        let search = check(move |kernel| reverse(kernel, stages));
        let search = search
            .strategy(strategy.parse().unwrap())
            .seed(seed * 10_000);
        let explored = search.schedules(5_000).explore();
        explored.failure.map_or(5_001, |_| explored.schedules)
    };
    let mut needed: Vec<u64> = (0..9).map(run).collect();
    needed.sort_unstable();
    needed[4]
}

#[test]
fn feedback_finds_a_rare_order_in_fewer_schedules_than_draws() {
    let (draws, feedback) = (needed("random", 6), needed("rff", 6));
    assert!(feedback * 2 < draws, "{feedback} schedules, and {draws}");
}

#[test]
fn feedback_is_the_same_again_and_on_threads_and_its_replay_fails() {
    let search = || check(|kernel: &mut Kernel| reverse(kernel, 4)).rff();
    let first = search().explore();
    let failure = first.failure.as_ref().expect("it is found");
    let again = search().threads(2).explore();
    assert_eq!(again.failure.as_ref(), Some(failure));
    assert_eq!(again.schedules, first.schedules);
    let replayed = search().replay(&failure.replay).unwrap().explore();
    assert_eq!(replayed.changed, None);
    assert_eq!(replayed.failure.unwrap().why, failure.why);
    let audited = search().audit().explore();
    assert_eq!(audited.failure.unwrap().why, failure.why);
    assert_eq!("rff".parse(), Ok(SearchStrategy::Rff));
    assert_eq!(SearchStrategy::Rff.to_string(), "rff");
}

#[test]
fn feedback_has_no_estimate() {
    let search = check(|kernel: &mut Kernel| reverse(kernel, 2))
        .rff()
        .estimate();
    let panic = catch_unwind(AssertUnwindSafe(|| search.explore())).unwrap_err();
    let panic = panic.downcast_ref::<String>().unwrap();
    assert!(
        panic.contains("`estimate` does not go with `rff`, which learns from each schedule"),
        "{panic}"
    );
    let audited = check(|kernel: &mut Kernel| reverse(kernel, 2))
        .rff()
        .audit();
    let audited = audited.schedules(4).explore();
    assert!(audited.classes > 0 && audited.unseen.is_none(), "{audited}");
}
