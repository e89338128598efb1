//! What a search says of a test: where its tasks can be cut, and which calls it does not need.

use std::{collections::BTreeSet, fmt};

/// What a search has found by [`Check::cut`](crate::Check::cut). Its `Display` is a table, with a line for
/// each call in the source.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Cuts {
    /// The calls that were cut, by their places.
    pub places: Vec<CutPlace>,
    /// The number of cuts that were not made: there are more than 10,000, or the time was over.
    pub left: u64,
}

/// A call in the source at which tasks were cut.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CutPlace {
    /// Its place, such as `src/main.rs:14`. It is empty if the binary has no line tables.
    pub place: String,
    /// Its name in traces.
    pub call: String,
    /// Whether a timeout or scope was cut there. Otherwise the task was killed.
    pub by_timeout: bool,
    /// The number of cuts.
    pub cuts: u64,
    /// How many of them the test did not pass.
    pub failed: u64,
    /// The first line of the first failure.
    pub why: Option<String>,
}

impl Cuts {
    /// Returns the number of cuts that were made.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.places.iter().map(|place| place.cuts).sum()
    }

    /// Returns whether no cut was made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |text: fn(&CutPlace) -> &str| {
            let widths = self.places.iter().map(|place| text(place).chars().count());
            widths.max().unwrap_or(0).max(5)
        };
        let (place, call) = (width(|it| &it.place), width(|it| &it.call));
        write!(
            f,
            "{:place$}  {:call$}  {:7}  {:>5}  {:>5}",
            "place", "call", "by", "cuts", "fail"
        )?;
        for it in &self.places {
            let by = if it.by_timeout { "timeout" } else { "kill" };
            let verdict = it.why.as_deref().unwrap_or("safe");
            write!(
                f,
                "\n{:place$}  {:call$}  {by:7}  {:>5}  {:>5}  {verdict}",
                it.place, it.call, it.cuts, it.failed
            )?;
        }
        match self.left {
            0 => Ok(()),
            left => write!(f, "\n{left} cuts were not made: the search was over before"),
        }
    }
}

/// What the searches of mutations have found ([`Check::mutate`](crate::Check::mutate)). Its `Display` is a
/// part of the report.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Mutants {
    /// The number of calls without which the test fails.
    pub killed: u64,
    /// The calls without which it passes.
    pub survivors: Vec<Survivor>,
    /// The waits, such as `wait at src/main.rs:14`, whose caller does not check its condition again: a
    /// wake without a signal breaks the test.
    pub unchecked: Vec<String>,
    /// The calls whose search ran no schedule before the search was interrupted, or its time was over.
    pub left: Vec<String>,
}

/// A call in the source that may do nothing, and the test passes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Survivor {
    /// The call, such as `lock at src/main.rs:14`.
    pub call: String,
    /// The number of schedules without the call. All pass.
    pub schedules: u64,
    /// Whether the search without the call [proves](crate::Explored::proved) its result: no order of turns
    /// fails without it.
    pub proved: bool,
    /// The [outcomes](crate::Explored::outcomes) that only the program without the call has. Known if the
    /// search with it was [complete](crate::Explored::complete).
    pub outcomes: BTreeSet<String>,
}

impl fmt::Display for Mutants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (killed, all) = (self.killed, self.killed + self.survivors.len() as u64);
        match (all, self.left.is_empty()) {
            (0, true) => write!(f, "mutations: there is no call to leave out")?,
            (0, false) => write!(f, "mutations: no call was left out")?,
            _ => write!(
                f,
                "mutations: {killed} of {all} calls are needed, since the test fails without them"
            )?,
        }
        for survivor in &self.survivors {
            write!(f, "\n  {survivor}")?;
        }
        for call in &self.unchecked {
            write!(
                f,
                "\n  {call} does not check its condition again: a wake without a signal breaks the test"
            )?;
        }
        for call in &self.left {
            write!(f, "\n  {call} was not tried: the search was over before")?;
        }
        Ok(())
    }
}

impl fmt::Display for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} survives: ", self.call)?;
        match (self.outcomes.first(), self.proved) {
            (Some(outcome), _) => write!(
                f,
                "the test does not notice a new outcome, such as {outcome:?}"
            ),
            (None, true) => write!(f, "proved redundant in this test"),
            (None, false) => write!(f, "not killed in {} schedules", self.schedules),
        }
    }
}
