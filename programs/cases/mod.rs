//! Programs that go wrong in ways that a trace shows: `docs/reading-traces.md` looks at each.

pub(crate) mod convoy;
pub(crate) mod deadlock;
pub(crate) mod lost_wakeup;
pub(crate) mod slow_reader;
pub(crate) mod starved;
