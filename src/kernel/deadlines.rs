//! The timeouts around the calls of one task.

use super::timers::Timer;

/// The timeouts around a task's calls.
#[derive(Default, Debug)]
pub(super) struct Timeouts {
    /// The timeouts that have not fired, the outermost first.
    pub(super) armed: Vec<Timer>,
    /// The outermost timeout that has fired and not cut yet. Those within it are disarmed.
    pub(super) due: Option<Due>,
}

/// A timeout that has fired.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) number: u64,
    /// Whether it has let one answer through. Then it cuts the next call before its effect.
    pub(super) spent: bool,
}
