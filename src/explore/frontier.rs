//! The division of an exhaustive search: parts of the tree that no other part needs to know.
//!
//! Every ready task is tried at the nodes above the parts, so no race of a part can add a choice
//! there. Sleep sets go down with the parts. So each causal order is run in one part alone.

use std::collections::VecDeque;

use super::{
    audit::Runs,
    exhaustive::{Decider, Part, Tree},
    trial::Test,
};
use crate::{Error, Tid};

/// The least number of parts, where the tree has so many; and the least of each shard.
const PARTS: u64 = 64;
const EACH: u64 = 8;

/// Divides the tree, from its root, breadth first.
pub(super) fn divide(test: Test<'_>) -> Result<Vec<Part>, Error> {
    let settings = test.settings;
    let most = PARTS.max(EACH.saturating_mul(settings.shard.of));
    let watch = settings.watch();
    let probe = |turns: &[Tid]| {
        let turns = turns.to_vec();
        let part = Part {
            turns,
            ..Part::default()
        };
        let tree = Tree::new(settings, part);
        Runs::new(test, tree.clone(), &watch).run(settings.seed, Decider::Probe)?;
        Ok::<_, Error>(tree.probed())
    };
    let mut ended = Vec::new();
    let mut open = VecDeque::from([(Part::default(), probe(&[])?.ready)]);
    // A program with few choices has a long way to the first of them.
    let mut probes = 16 * most;
    let is_coarse = |parts: usize| (parts as u64) < most && !settings.deadline.is_over();
    while is_coarse(ended.len() + open.len()) && probes > 0 {
        let Some((part, ready)) = open.pop_front() else {
            break;
        };
        if ready.is_empty() {
            ended.push(part);
            continue;
        }
        let mut asleep = part.sleep;
        for task in ready {
            if asleep.iter().any(|(other, _)| *other == task) {
                continue;
            }
            let mut turns = part.turns.clone();
            turns.push(task);
            let probe = probe(&turns)?;
            probes = probes.saturating_sub(1);
            let sleep = asleep.iter();
            let sleep = sleep.filter(|(other, foot)| !probe.last.wakes(*other, foot));
            let sleep = sleep.cloned().collect();
            let part = Part {
                turns,
                sleep,
                ..Part::default()
            };
            open.push_back((part, probe.ready));
            asleep.push((task, probe.last));
        }
    }
    ended.extend(open.into_iter().map(|(part, _)| part));
    Ok(ended)
}
