//! All orders of a small history, one by one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) task: usize,
    pub(super) input: String,
    /// Without a return, it means nothing.
    pub(super) answer: String,
    pub(super) called: usize,
    pub(super) returned: Option<usize>,
}

/// The state of any of the models.
#[derive(Clone, Default)]
pub(super) struct State {
    values: BTreeMap<String, String>,
    queue: VecDeque<String>,
}

impl State {
    pub(super) fn step(&mut self, model: usize, input: &str) -> String {
        let words: Vec<&str> = input.split(' ').collect();
        if model == 3 {
            return match words[0] {
                "put" => {
                    self.queue.push_back(words[1].into());
                    "ok".into()
                }
                _ => self.queue.pop_front().unwrap_or("none".into()),
            };
        }
        let (key, rest) = match model {
            2 => (words[1], &words[2..]),
            _ => ("", &words[1..]),
        };
        let old = self.values.get(key).cloned();
        let mut set = |value: &str| self.values.insert(key.into(), value.into());
        match words[0] {
            "put" => {
                set(rest[0]);
                "ok".into()
            }
            "get" if model == 1 => old.unwrap_or("0".into()),
            "get" => old.unwrap_or("none".into()),
            "remove" => self.values.remove(key).is_some().to_string(),
            "cas" => {
                let is_old = old.as_deref() == Some(rest[0]);
                if is_old {
                    set(rest[1]);
                }
                is_old.to_string()
            }
            _ => {
                let old: i64 = old.map_or(0, |old| old.parse().unwrap());
                let new = old + rest[0].parse::<i64>().unwrap();
                set(&new.to_string());
                new.to_string()
            }
        }
    }
}

/// Whether some order explains all answers. Of the operations without a return, any may be left out.
pub(super) fn explains(operations: &[Op], model: usize) -> bool {
    let all: Vec<&Op> = operations.iter().collect();
    fits(&all, &State::default(), model)
}

/// The answers of the operation called then with which some order explains all.
pub(super) fn right_answers(operations: &[Op], model: usize, called: usize) -> BTreeSet<String> {
    let mut other = operations.to_vec();
    let at = other.iter().position(|op| op.called == called).unwrap();
    let numbers = (-40..40).map(|number| number.to_string());
    let words = ["ok", "none", "true", "false"].map(String::from);
    let mut is_right = |answer: &String| {
        other[at].answer.clone_from(answer);
        explains(&other, model)
    };
    numbers
        .chain(words)
        .filter(|answer| is_right(answer))
        .collect()
}

/// Tries each operation as the next one.
fn fits(left: &[&Op], state: &State, model: usize) -> bool {
    if left.iter().all(|op| op.returned.is_none()) {
        return true;
    }
    (0..left.len()).any(|at| {
        let op = left[at];
        let is_late = |other: &&Op| other.returned.is_some_and(|end| end < op.called);
        if left.iter().any(is_late) {
            return false;
        }
        let mut after = state.clone();
        let answer = after.step(model, &op.input);
        let mut rest = left.to_vec();
        rest.remove(at);
        (op.returned.is_none() || answer == op.answer) && fits(&rest, &after, model)
    })
}
