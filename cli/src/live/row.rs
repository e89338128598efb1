//! A row of `ps`, `top` and `tree`, and the totals of all tasks.

use std::{cmp::Reverse, collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use trapline::{TaskInfo, TaskState};

use crate::units::number;

/// The longest text in an answer. An answer has few texts, and JSON takes at most six bytes for a
/// letter. So no answer is longer than a client's buffer.
const TEXT: usize = 32 << 10;

/// One task; or all tasks of a name, of which `tid` is the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) tid: u64,
    pub(crate) comm: String,
    /// 0 for the host's tasks and for orphans.
    pub(crate) parent: u64,
    pub(crate) state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocked_on: Option<String>,
    /// The task that it waits for in `wait_task`, or the holder of the lock that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits_for: Option<u64>,
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
