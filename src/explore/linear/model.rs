//! What an object does, one operation at a time.

use std::{collections::VecDeque, fmt, hash::Hash, rc::Rc};

use super::{
    operation::Operation,
    order::{self, Verdict},
};

/// The steps after which a check gives up.
const STEPS: u64 = 2_000_000;

/// What an object answers if its operations come one after another. Operations and answers are texts.
#[derive(Clone)]
pub struct Model {
    object: Rc<dyn Object>,
    key: Option<Rc<Key>>,
    steps: u64,
    /// What operations look like.
    usage: &'static str,
}

type Key = dyn Fn(&str) -> String;

trait Object {
    fn explain(&self, operations: &[Operation], steps: u64) -> Verdict;
}

struct Typed<S, F> {
    state: S,
    step: F,
}

impl<S, F> Object for Typed<S, F>
where
    S: Clone + Eq + Hash,
    F: Fn(&mut S, &str) -> Option<String>,
{
    fn explain(&self, operations: &[Operation], steps: u64) -> Verdict {
        order::explain(operations, &self.state, &self.step, steps)
    }
}

impl Model {
    /// Describes an object by its first state, and by a step: it does an operation to the state, and
    /// returns the answer. It returns `None` for a text that is no operation.
    ///
    /// ```
    /// use trapline::{Tid, linear::{History, Model}};
    ///
    /// // Hands out numbers, each once.
    /// let history = History::new(Model::new(0, |last: &mut u64, input: &str| match input {
    ///     "next" => {
    ///         *last += 1;
    ///         Some(last.to_string())
    ///     }
    ///     _ => None,
    /// }));
    /// for task in [1, 2] {
    ///     let next = history.called(Tid::from(task), "next");
    ///     history.returned(next, 1);
    /// }
    /// let window = history.check().unwrap_err().to_string();
    /// assert!(window.contains("next = 1"), "{window}");
    /// ```
    pub fn new<S>(state: S, step: impl Fn(&mut S, &str) -> Option<String> + 'static) -> Self
    where
        S: Clone + Eq + Hash + 'static,
    {
        Self {
            object: Rc::new(Typed { state, step }),
            key: None,
            steps: STEPS,
            usage: "its step returns None for it",
        }
    }

    /// Divides a history: operations with different keys are on different objects of this kind. The
    /// check of each is apart, which takes much less time than of all together.
    #[must_use]
    pub fn by_key(mut self, key: impl Fn(&str) -> String + 'static) -> Self {
        self.key = Some(Rc::new(key));
        self
    }

    /// Limits the steps of a check of one object. Default: 2 million. In the worst case a check takes
    /// exponentially many.
    #[must_use]
    pub fn steps(mut self, steps: u64) -> Self {
        self.steps = steps;
        self
    }

    /// A value. `put V` answers `ok`. `get` answers the value, or `none` before the first put.
    /// `cas A B` puts B in the place of A, and answers `true` if A was the value, or else `false`.
    #[must_use]
    pub fn register() -> Self {
        let usage = "a register takes put V, get and cas A B";
        Self {
            usage,
            ..Self::new(None, register)
        }
    }

    /// A number, at first 0. `add N` answers the new number, and `get` the number. N is a whole number
    /// of 64 bits, which may be negative. A sum beyond them answers `overflow`, and changes nothing.
    #[must_use]
    pub fn counter() -> Self {
        let usage = "a counter takes add N and get";
        Self {
            usage,
            ..Self::new(0, counter)
        }
    }

    /// Values with keys of one word. `put K V` answers `ok`. `get K` answers the value, or `none`.
    /// `remove K` answers `true` if there was a value, or else `false`. `cas K A B` is that of a
    /// [register](Self::register). `add K N` is that of a [counter](Self::counter); without a value it
    /// begins at 0, and of a value that is no number it answers `error`. Each key is checked apart.
    #[must_use]
    pub fn map() -> Self {
        let key = |input: &str| word(word(input).1).0.to_string();
        let usage = "a map takes put KEY VALUE, get KEY, remove KEY, cas KEY VALUE VALUE and add KEY NUMBER";
        Self {
            usage,
            ..Self::new(None, entry).by_key(key)
        }
    }

    /// A queue, first in, first out. `put V` answers `ok`. `get` answers the first value, which it
    /// removes, or `none`.
    #[must_use]
    pub fn queue() -> Self {
        let usage = "a queue takes put V and get";
        Self {
            usage,
            ..Self::new(VecDeque::new(), queue)
        }
    }

    pub(super) fn usage(&self) -> &'static str {
        self.usage
    }

    pub(super) fn key_of(&self, input: &str) -> Option<String> {
        self.key.as_ref().map(|key| key(input))
    }

    pub(super) fn most_steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn explain(&self, operations: &[Operation], steps: u64) -> Verdict {
        self.object.explain(operations, steps)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").finish_non_exhaustive()
    }
}

type Value = Option<String>;

fn ok() -> Option<String> {
    Some("ok".into())
}

/// Returns the first word, and the rest.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

fn register(value: &mut Value, input: &str) -> Option<String> {
    match word(input) {
        ("put", new) if !new.is_empty() => {
            *value = Some(new.to_string());
            ok()
        }
        ("get", "") => Some(value.clone().unwrap_or_else(|| "none".into())),
        ("cas", values) => swap(value, values),
        _ => None,
    }
}

fn swap(value: &mut Value, values: &str) -> Option<String> {
    let (old, new) = word(values);
    if new.is_empty() {
        return None;
    }
    let is_old = value.as_deref() == Some(old);
    if is_old {
        *value = Some(new.to_string());
    }
    Some(is_old.to_string())
}

fn counter(sum: &mut i64, input: &str) -> Option<String> {
    match word(input) {
        ("get", "") => Some(sum.to_string()),
        ("add", number) => Some(added(sum, number.parse().ok()?)),
        _ => None,
    }
}

fn added(sum: &mut i64, number: i64) -> String {
    match sum.checked_add(number) {
        None => "overflow".into(),
        Some(new) => {
            *sum = new;
            new.to_string()
        }
    }
}

/// One entry of a map.
fn entry(value: &mut Value, input: &str) -> Option<String> {
    let (verb, rest) = word(input);
    let (key, rest) = word(rest);
    match (verb, rest) {
        _ if key.is_empty() => None,
        ("put", new) if !new.is_empty() => {
            *value = Some(new.to_string());
            ok()
        }
        ("get", "") => Some(value.clone().unwrap_or_else(|| "none".into())),
        ("remove", "") => Some(value.take().is_some().to_string()),
        ("cas", values) => swap(value, values),
        ("add", number) => {
            let number = number.parse().ok()?;
            let Ok(mut sum) = value.as_deref().unwrap_or("0").parse() else {
                return Some("error".into());
            };
            let answer = added(&mut sum, number);
            *value = Some(sum.to_string());
            Some(answer)
        }
        _ => None,
    }
}

fn queue(values: &mut VecDeque<String>, input: &str) -> Option<String> {
    match word(input) {
        ("put", value) if !value.is_empty() => {
            values.push_back(value.to_string());
            ok()
        }
        ("get", "") => Some(values.pop_front().unwrap_or_else(|| "none".into())),
        _ => None,
    }
}
