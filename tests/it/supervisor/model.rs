//! The intensity of restarts against a model: random lives, limits and spans.

use std::{cell::RefCell, rc::Rc, time::Duration};

use proptest::prelude::*;
use trapline::{Exit, Kernel, Os, Restart, Supervisor};

const MS: Duration = Duration::from_millis(1);

/// A supervisor of some children, each with the lengths of its lives in milliseconds. It lives for ever
/// after these.
#[derive(Clone, Debug)]
struct Case {
    restarts: u32,
    within: u64,
    backoff: (u64, u64),
    children: Vec<Vec<u64>>,
}

fn cases() -> impl Strategy<Value = Case> {
    let lives = prop::collection::vec(prop_oneof![Just(0), 0..30u64], 0..8);
    let children = prop::collection::vec(lives, 1..4);
    let spans = (0..60u64, 0..8u64, 0..40u64);
    (0..5u32, spans, children).prop_map(|(restarts, (within, first, last), mut children)| {
        // The ends of a child are all multiples of 4 and its number: no two end at one instant.
        for (child, lives) in children.iter_mut().enumerate() {
            lives.iter_mut().for_each(|life| *life *= 4);
            if let Some(life) = lives.first_mut() {
                *life += child as u64;
            }
        }
        Case {
            restarts,
            within: within * 4,
            backoff: (first * 4, last * 4),
            children,
        }
    })
}

/// When each child starts, and which one is the last straw, as the rules say.
fn expected(case: &Case) -> (Vec<Vec<u64>>, Option<usize>) {
    let mut starts = vec![vec![0]; case.children.len()];
    let mut waits = vec![case.backoff.0; case.children.len()];
    let mut past: Vec<u64> = Vec::new();
    loop {
        let ends = case.children.iter().zip(&starts).enumerate();
        let ends = ends.filter_map(|(child, (lives, starts))| {
            let life = lives.get(starts.len() - 1)?;
            Some((starts.last()? + life, child))
        });
        let Some((at, child)) = ends.min() else {
            return (starts, None);
        };
        past.retain(|restart| restart + case.within >= at);
        if past.len() >= case.restarts as usize {
            let begun = |start: &u64| *start <= at;
            let starts = starts.into_iter();
            let starts = starts.map(|all| all.into_iter().filter(begun).collect());
            return (starts.collect(), Some(child));
        }
        past.push(at);
        if at - starts[child].last().unwrap() > case.within {
            waits[child] = case.backoff.0;
        }
        starts[child].push(at + waits[child].min(case.backoff.1));
        waits[child] *= 2;
    }
}

fn seen(case: &Case) -> (Vec<Vec<u64>>, Option<usize>) {
    let starts = Rc::new(RefCell::new(vec![Vec::new(); case.children.len()]));
    let noted = starts.clone();
    let case = case.clone();
    let gone = Rc::new(RefCell::new(None));
    let result = gone.clone();
    let main = async move |os: &mut Os| {
        let backoff = MS * case.backoff.0 as u32..MS * case.backoff.1 as u32;
        let mut supervisor = Supervisor::new(trapline::Strategy::OneForOne)
            .restarts(case.restarts, MS * case.within as u32)
            .backoff(backoff);
        for (child, lives) in case.children.into_iter().enumerate() {
            let noted = noted.clone();
            let mut lives = lives.into_iter();
            supervisor = supervisor.child(child.to_string(), Restart::Permanent, move || {
                let (noted, life) = (noted.clone(), lives.next());
                async move |os: &mut Os| {
                    let now = os.now().await.as_millis() as u64;
                    noted.borrow_mut()[child].push(now);
                    os.sleep(life.map_or(Duration::MAX, |life| MS * life as u32))
                        .await;
                }
            });
        }
        let run = async |os: &mut Os| supervisor.run(os).await;
        if let Ok(ended) = os.timeout(Duration::from_secs(100), run).await {
            let gone = ended.unwrap_err();
            assert_eq!(gone.exit, Exit::Done);
            result.replace(gone.child.parse().ok());
        }
    };
    let mut kernel = Kernel::simulated(1);
    kernel.spawn("main", main).unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
    (starts.take(), gone.take())
}

proptest! {
    #[test]
    fn s76_restarts_are_as_many_as_the_model_allows(case in cases()) {
        let seen = seen(&case);
        prop_assert_eq!(seen, expected(&case));
    }
}
