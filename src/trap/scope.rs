//! The state of a scope.

use std::cell::Cell;

use crate::abi::{Nanos, Tid};

/// What a scope shares with its handles. Only the kernel changes it.
#[derive(Debug)]
pub(crate) struct ScopeState {
    pub(crate) is_cancelled: Cell<bool>,
    /// The task that runs it, and the number of its timeout.
    pub(crate) under_way: Cell<Option<(Tid, u64)>>,
    pub(crate) deadline: Cell<Nanos>,
}

impl Default for ScopeState {
    fn default() -> Self {
        Self {
            is_cancelled: Cell::default(),
            under_way: Cell::default(),
            deadline: Cell::new(Nanos::FOREVER),
        }
    }
}
