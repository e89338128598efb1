//! What the trial under way notes, on its thread.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use crate::{Kernel, Tid};

/// The notes of a trial.
#[derive(Debug)]
pub(super) struct Notes {
    /// What the schedule came to, by [`Kernel::outcome`].
    pub(super) outcomes: Vec<String>,
    /// The texts of [`sometimes!`](crate::sometimes) that held.
    pub(super) held: BTreeSet<&'static str>,
}

impl Notes {
    const fn new() -> Self {
        Self {
            outcomes: Vec::new(),
            held: BTreeSet::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.outcomes.is_empty() && self.held.is_empty()
    }
}

/// What a task makes: the task, and its count.
pub(super) type Made = (Tid, u64);

/// The accesses to shared values of the turn under way.
#[derive(Debug)]
struct Accesses {
    /// The task whose turn it is; the host before the first turn.
    task: Tid,
    /// The shared values that each task has made.
    made: BTreeMap<Tid, u64>,
    /// The values, and whether the turn changes them.
    touched: Vec<(Made, bool)>,
}

impl Accesses {
    const fn new() -> Self {
        Self {
            task: Tid::KERNEL,
            made: BTreeMap::new(),
            touched: Vec::new(),
        }
    }
}

thread_local! {
    static ACCESSES: RefCell<Accesses> = const { RefCell::new(Accesses::new()) };
    static NOTES: RefCell<Notes> = const { RefCell::new(Notes::new()) };
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
}

/// Begins the notes of a trial.
pub(super) fn open() {
    NOTES.with_borrow_mut(|notes| {
        if !notes.is_empty() {
            *notes = Notes::new();
        }
    });
    ACCESSES.with_borrow_mut(|accesses| {
        accesses.task = Tid::KERNEL;
        accesses.touched.clear();
        if !accesses.made.is_empty() {
            accesses.made.clear();
        }
    });
    IS_OPEN.set(true);
}

/// Ends the notes of a trial. Returns them, if there are any.
pub(super) fn close() -> Option<Box<Notes>> {
    IS_OPEN.set(false);
    NOTES.with_borrow_mut(|notes| {
        (!notes.is_empty()).then(|| Box::new(std::mem::replace(notes, Notes::new())))
    })
}

/// Notes something, if a trial is under way on this thread.
pub(super) fn note(note: impl FnOnce(&mut Notes)) {
    if IS_OPEN.get() {
        NOTES.with_borrow_mut(note);
    }
}

/// Begins a turn of this task.
pub(super) fn set_task(task: Tid) {
    ACCESSES.with_borrow_mut(|accesses| accesses.task = task);
}

/// Names a shared value that the running task makes.
pub(super) fn name_shared() -> Made {
    ACCESSES.with_borrow_mut(|accesses| {
        let made = accesses.made.entry(accesses.task).or_default();
        *made += 1;
        (accesses.task, *made)
    })
}

/// Notes an access to a shared value.
pub(super) fn touch_shared(made: Made, writes: bool) {
    if IS_OPEN.get() {
        ACCESSES.with_borrow_mut(|accesses| match accesses.touched.last_mut() {
            Some((last, last_writes)) if *last == made => *last_writes |= writes,
            _ => accesses.touched.push((made, writes)),
        });
    }
}

/// Takes the accesses of the turn that ends.
pub(super) fn take_shared() -> Vec<(Made, bool)> {
    ACCESSES.with_borrow_mut(|accesses| std::mem::take(&mut accesses.touched))
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
