//! A row of `ps`, `top` and `tree`, and the totals of all tasks.

use std::{cmp::Reverse, collections::BTreeMap, fmt, ops::Add, time::Duration};

use serde::{Deserialize, Serialize};
use trapline::{TaskInfo, TaskState, Tid};

use crate::units::number;

/// The longest text in an answer. An answer has few texts, and JSON takes at most six bytes for a
/// letter. So no answer is longer than a client's buffer.
const TEXT: usize = 32 << 10;

/// One task; or all tasks of a name, of which `tid` is the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    #[serde(with = "number")]
    pub(crate) tid: Tid,
    pub(crate) comm: String,
    /// 0 for the host's tasks and for orphans.
    #[serde(with = "number")]
    pub(crate) parent: Tid,
    pub(crate) state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocked_on: Option<String>,
    /// The task that it waits for in `wait_task`, or the holder of the lock that it waits for.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "number::some"
    )]
    pub(crate) waits_for: Option<Tid>,
    /// The places in the source of its call, if it is blocked, and of its spawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) places: Option<String>,
    /// The instant at which it blocked, in seconds since boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<f64>,
    /// Why the next task of a chain follows, or why none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<String>,
    /// Its exit, if it is a zombie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit: Option<String>,
    pub(crate) traps: u64,
    /// Whether it is a daemon of a program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) daemon: bool,
    /// Its limits, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limits: Option<String>,
    /// Traps per second, since the last snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f64>,
    /// Its share of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<f64>,
    /// The branch of a tree before it, or the indent below the row of a name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) branch: String,
    /// The tasks of the name, if this is no single task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<Group>,
}

/// The tasks of a name. Its `Display` is how many are in which state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) tasks: usize,
    /// Whether their parents differ. The parent of their row is 0 then.
    #[serde(default)]
    pub(super) has_parents: bool,
    /// The number of tasks by what they wait for, in a word, or by their state.
    pub(super) kinds: BTreeMap<String, usize>,
}

impl Group {
    /// The number of tasks in each state, the largest first.
    pub(super) fn sorted(&self) -> Vec<(&String, &usize)> {
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by_key(|(_, count)| Reverse(**count));
        kinds
    }

    /// What most of the tasks wait for, or their state.
    pub(super) fn most(&self) -> &str {
        self.sorted().first().map_or("", |(kind, _)| kind)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.sorted();
        let kind = |(kind, count): &(&String, &usize)| format!("{} {kind}", number(**count));
        let kinds: Vec<String> = kinds.iter().map(kind).collect();
        f.write_str(&kinds.join(", "))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    #[default]
    Ready,
    Running,
    Blocked,
    Zombie,
    /// The kernel works for it. Only recordings tell.
    #[serde(rename = "in call")]
    InCall,
    /// Events of it are missing. Only recordings tell.
    Unknown,
}

/// The totals of all tasks, listed or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// The instant, in seconds since boot.
    pub(crate) at: f64,
    pub(crate) tasks: usize,
    pub(super) ready: usize,
    pub(super) blocked: usize,
    pub(super) zombies: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<f64>,
    /// The share of the time in which the kernel waited for the world.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idle: Option<f64>,
    /// The share of the time that the observation itself takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) watching: Option<f64>,
    /// The number of tasks that the filter lets through, if there is a filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) matching: Option<usize>,
    /// The number of rows for which the query has no room, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left_out: Option<usize>,
    /// The number of seconds until the monitor reads the client's next request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pause: Option<f64>,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Zombie => "zombie",
            Self::InCall => "in call",
            Self::Unknown => "unknown",
        }
    }
}

impl Row {
    /// Whether its number, its name, its state or what it is blocked on contains the text.
    pub(super) fn lets_through(&self, filter: &str) -> bool {
        let on = self.blocked_on.as_deref().unwrap_or_default();
        [&self.tid.to_string(), &*self.comm, self.state.name(), on]
            .iter()
            .any(|text| text.contains(filter))
    }
}

impl Totals {
    /// Those of several kernels, of which the lists had no room for so many more rows together. Shares are
    /// of the time of all.
    pub(super) fn together(all: &[Self], left_out: usize) -> Self {
        fn sum<T: std::iter::Sum>(all: &[Totals], of: impl Fn(&Totals) -> T) -> T {
            all.iter().map(of).sum()
        }
        let some = |of: fn(&Self) -> Option<f64>| all.iter().filter_map(of).reduce(f64::add);
        let share = |of| some(of).map(|sum| sum / all.len() as f64);
        let most = |of: fn(&Self) -> Option<f64>| all.iter().filter_map(of).reduce(f64::max);
        let left_out = left_out + sum(all, |one| one.left_out.unwrap_or(0));
        Self {
            at: most(|one| Some(one.at)).unwrap_or_default(),
            tasks: sum(all, |one| one.tasks),
            ready: sum(all, |one| one.ready),
            blocked: sum(all, |one| one.blocked),
            zombies: sum(all, |one| one.zombies),
            rate: some(|one| one.rate),
            idle: share(|one| one.idle),
            watching: share(|one| one.watching),
            matching: all.iter().filter_map(|one| one.matching).reduce(usize::add),
            left_out: Some(left_out).filter(|rows| *rows > 0),
            pause: most(|one| one.pause),
        }
    }

    pub(crate) fn of(tasks: &[TaskInfo], now: Duration) -> Self {
        let mut totals = Self {
            at: now.as_secs_f64(),
            tasks: tasks.len(),
            ..Self::default()
        };
        for task in tasks {
            match task.state {
                TaskState::Ready | TaskState::Running => totals.ready += 1,
                TaskState::Blocked { .. } => totals.blocked += 1,
                TaskState::Zombie(_) => totals.zombies += 1,
            }
        }
        totals
    }
}

/// The text as it is sent: truncated if it is long.
pub(super) fn brief(mut text: String) -> String {
    if text.len() > TEXT {
        let len = text.len();
        let cut = (0..=TEXT).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(cut.unwrap_or(0));
        text += &format!("... ({len} bytes)");
    }
    text
}

/// The number of a task as JSON: a number; where several kernels are shown, a text such as `2:17`.
pub(super) mod number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use trapline::Tid;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Number {
        Plain(u64),
        Text(String),
    }

    impl From<&Tid> for Number {
        fn from(tid: &Tid) -> Self {
            match tid.kernel() {
                Some(_) => Self::Text(tid.to_string()),
                None => Self::Plain((*tid).into()),
            }
        }
    }

    fn tid<E: Error>(number: Number) -> Result<Tid, E> {
        match number {
            Number::Plain(number) => Ok(number.into()),
            Number::Text(text) => text.parse().map_err(E::custom),
        }
    }

    pub(in crate::live) fn serialize<S: Serializer>(tid: &Tid, to: S) -> Result<S::Ok, S::Error> {
        Number::from(tid).serialize(to)
    }

    pub(in crate::live) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Tid, D::Error> {
        tid(Number::deserialize(from)?)
    }

    pub(in crate::live) mod some {
        use super::*;

        pub(in crate::live) fn serialize<S: Serializer>(
            tid: &Option<Tid>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            tid.as_ref().map(Number::from).serialize(to)
        }

        pub(in crate::live) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Tid>, D::Error> {
            Option::<Number>::deserialize(from)?.map(tid).transpose()
        }
    }

    pub(in crate::live) mod all {
        use super::*;

        pub(in crate::live) fn serialize<S: Serializer>(
            tids: &[Tid],
            to: S,
        ) -> Result<S::Ok, S::Error> {
            let numbers: Vec<Number> = tids.iter().map(Number::from).collect();
            numbers.serialize(to)
        }

        pub(in crate::live) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Vec<Tid>, D::Error> {
            Vec::<Number>::deserialize(from)?
                .into_iter()
                .map(tid)
                .collect()
        }
    }
}
