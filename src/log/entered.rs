//! The span of `tracing` that the kernel has entered for a task.

use std::cell::RefCell;

use tracing::{Span, dispatcher, span::Id};

use crate::abi::Tid;

/// The task whose span is entered.
#[derive(Default)]
pub(crate) struct Entered(RefCell<Option<(Tid, Id)>>);

impl Entered {
    pub(super) fn is(&self, tid: Tid) -> bool {
        self.0.borrow().as_ref().is_some_and(|(of, _)| *of == tid)
    }

    /// Enters the span of a task, unless one is entered.
    pub(super) fn enter(&self, tid: Tid, span: &Span) {
        if self.0.borrow().is_none()
            && let Some(id) = span.id()
        {
            dispatcher::get_default(|dispatch| dispatch.enter(&id));
            self.0.replace(Some((tid, id)));
        }
    }

    pub(super) fn leave(&self) {
        if let Some((_, id)) = self.0.take() {
            dispatcher::get_default(|dispatch| dispatch.exit(&id));
        }
    }
}
