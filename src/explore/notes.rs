//! What the trial under way notes, on its thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use crate::Kernel;

/// The notes of a trial.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// What the schedule came to, by [`Kernel::outcome`].
    pub(super) outcomes: Vec<String>,
    /// The texts of [`sometimes!`](crate::sometimes) that held.
    pub(super) held: BTreeSet<&'static str>,
}

thread_local! {
    static NOTES: RefCell<Notes> = RefCell::default();
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
}

/// Begins the notes of a trial.
pub(super) fn open() {
    NOTES.take();
    IS_OPEN.set(true);
}

/// Ends the notes of a trial.
pub(super) fn close() -> Notes {
    IS_OPEN.set(false);
    NOTES.take()
}

/// Notes something, if a trial is under way on this thread.
pub(super) fn note(note: impl FnOnce(&mut Notes)) {
    if IS_OPEN.get() {
        NOTES.with_borrow_mut(note);
    }
}

impl Kernel {
    /// Names what a schedule came to, inside the closure of a [`check`](crate::check). The set of
    /// these names is [`Explored::outcomes`](crate::Explored::outcomes). Elsewhere it does nothing.
    ///
    /// ```
    /// use std::{cell::RefCell, rc::Rc};
    /// use trapline::Os;
    ///
    /// let explored = trapline::check(|kernel| {
    ///     let order = Rc::new(RefCell::new(String::new()));
    ///     for name in ["a", "b"] {
    ///         let order = Rc::clone(&order);
    ///         kernel.spawn(name, async move |_: &mut Os| order.borrow_mut().push_str(name))?;
    ///     }
    ///     kernel.run()?;
    ///     kernel.outcome(&*order.borrow());
    ///     Ok(())
    /// }).schedules(100).explore();
    /// assert!(explored.outcomes.iter().eq(["ab", "ba"]));
    /// ```
    pub fn outcome(&mut self, text: impl Into<String>) {
        let text = text.into();
        note(|notes| notes.outcomes.push(text));
    }
}
