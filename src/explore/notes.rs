//! What the trial under way notes, on its thread.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::{Kernel, Kernels, Remote, Tid};

#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) outcomes: Vec<String>,
    /// The texts of [`sometimes!`](crate::sometimes) that held.
    pub(super) held: BTreeSet<&'static str>,
}

impl Notes {
    fn is_empty(&self) -> bool {
        self.outcomes.is_empty() && self.held.is_empty()
    }
}

/// What a task makes: the task, and its count.
pub(super) type Made = (Tid, u64);

#[derive(Debug, Default)]
struct Accesses {
    /// Tells which task runs, or that the host does.
    remote: Option<Remote>,
    made: BTreeMap<Tid, u64>,
    /// The values of the trial that have names.
    names: BTreeMap<Made, Rc<str>>,
    /// The values that the turn under way touches, and whether it changes them.
    of_turn: Vec<(Made, bool)>,
    of_host: Vec<(Made, bool)>,
}

impl Accesses {
    fn begin(&mut self, remote: &Remote) {
        // A clone is a locked instruction.
        if !self.remote.as_ref().is_some_and(|known| known.is(remote)) {
            self.remote = Some(remote.clone());
        }
        self.of_turn.clear();
        self.of_host.clear();
        if !self.made.is_empty() {
            self.made.clear();
        }
        if !self.names.is_empty() {
            self.names.clear();
        }
    }

    fn running(&self) -> Tid {
        self.remote.as_ref().map_or(Tid::KERNEL, Remote::running)
    }

    fn touch(&mut self, made: Made, writes: bool) {
        let touched = match self.running() {
            Tid::KERNEL => &mut self.of_host,
            _ => &mut self.of_turn,
        };
        match touched.last_mut() {
            Some((last, last_writes)) if *last == made => *last_writes |= writes,
            _ => touched.push((made, writes)),
        }
    }
}

thread_local! {
    static ACCESSES: RefCell<Accesses> = RefCell::default();
    static NOTES: RefCell<Notes> = RefCell::default();
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
}

/// Begins the notes of a trial, on this kernel.
pub(super) fn open(remote: &Remote) {
    NOTES.with_borrow_mut(|notes| {
        if !notes.is_empty() {
            *notes = Notes::default();
        }
    });
    ACCESSES.with_borrow_mut(|accesses| accesses.begin(remote));
    IS_OPEN.set(true);
}

/// Ends the notes of a trial. Returns them, if there are any.
pub(super) fn close() -> Option<Box<Notes>> {
    IS_OPEN.set(false);
    NOTES.with_borrow_mut(|notes| (!notes.is_empty()).then(|| Box::new(std::mem::take(notes))))
}

/// Notes something, if a trial is under way on this thread.
pub(super) fn note(note: impl FnOnce(&mut Notes)) {
    if IS_OPEN.get() {
        NOTES.with_borrow_mut(note);
    }
}

/// Names a shared value that the running task makes, or the host.
pub(super) fn name_shared(name: Option<&Rc<str>>) -> Made {
    ACCESSES.with_borrow_mut(|accesses| {
        let maker = accesses.running();
        let made = accesses.made.entry(maker).or_default();
        *made += 1;
        let made = (maker, *made);
        if let Some(name) = name
            && IS_OPEN.get()
        {
            accesses.names.insert(made, Rc::clone(name));
        }
        made
    })
}

/// Names something that tasks share, and that a report does not name: its name is empty.
pub(super) fn name_mark() -> Made {
    name_shared(Some(&Rc::from("")))
}

/// Returns the name that a shared value has from its maker.
pub(super) fn name_of_shared(made: Made) -> Option<Rc<str>> {
    ACCESSES.with_borrow(|accesses| accesses.names.get(&made).cloned())
}

pub(super) fn touch_shared(made: Made, writes: bool) {
    if IS_OPEN.get() {
        ACCESSES.with_borrow_mut(|accesses| accesses.touch(made, writes));
    }
}

pub(super) fn take_shared() -> Vec<(Made, bool)> {
    ACCESSES.with_borrow_mut(|accesses| std::mem::take(&mut accesses.of_turn))
}

pub(super) fn take_shared_by_host() -> Vec<(Made, bool)> {
    ACCESSES.with_borrow_mut(|accesses| std::mem::take(&mut accesses.of_host))
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

impl Kernels {
    /// Names what a schedule came to, inside the closure of a [`check_kernels`](crate::check_kernels), as
    /// [`Kernel::outcome`] does for one kernel.
    pub fn outcome(&mut self, text: impl Into<String>) {
        let text = text.into();
        note(|notes| notes.outcomes.push(text));
    }
}
