//! Accesses to shared values, as events. A turn notes them while it runs. They are emitted when it has
//! stopped; those of the destructors that its call runs, before the next turn.

use std::borrow::Cow;

use super::Kernel;
use crate::{
    abi::{Place, Tid},
    log::{Fact, Log},
    trap::accesses,
};

impl Kernel {
    /// Emits the accesses of the turn so far.
    #[inline(always)]
    pub(super) fn emit_accesses(&mut self) {
        if accesses::is_any() {
            self.emit_noted();
        }
    }

    #[cold]
    #[inline(never)]
    fn emit_noted(&mut self) {
        if self.log.is_observed() {
            emit(&mut self.log, self.number, &mut self.shown);
        }
    }

    /// Emits the accesses since the last turn, and notes no more of them: the host acts.
    pub(super) fn end_accesses(&mut self) {
        self.emit_accesses();
        accesses::close();
    }
}

/// Emits the accesses since the last turn, and begins to note those of the next. Apart from the kernel,
/// whose task is at hand.
#[inline(always)]
pub(super) fn begin_accesses(log: &mut Log, kernel: u64, task: Tid, shown: &mut u64) {
    if accesses::is_any() {
        emit(log, kernel, shown);
    }
    match task.is_daemon() {
        true => accesses::close(),
        false => accesses::open(kernel, task, *shown),
    }
}

#[cold]
#[inline(never)]
fn emit(log: &mut Log, kernel: u64, shown: &mut u64) {
    let Some((task, now_shown, accesses)) = accesses::take(kernel) else {
        return;
    };
    *shown = now_shown;
    for access in accesses {
        let name = access.name.as_deref().unwrap_or_default();
        let fact = Fact::Accessed {
            value: access.number,
            name: Cow::Borrowed(name),
            writes: access.writes,
        };
        log.emit_at(task, fact, Some(Place::from(access.place)));
    }
}
