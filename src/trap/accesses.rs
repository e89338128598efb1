//! Accesses to shared values, while a tracer observes the kernel. An access is no trap, and a shared
//! value knows no kernel, so a thread-local variable leads from the value to the turn under way.

use std::{
    cell::{Cell, RefCell},
    panic::Location,
    rc::Rc,
};

use crate::abi::Tid;

thread_local! {
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
    static UNDER_WAY: Cell<Turn> = const { Cell::new(Turn::NONE) };
    /// Whether there are accesses: a variable that has no destructor is read in two instructions.
    static IS_ANY: Cell<bool> = const { Cell::new(false) };
    static ACCESSES: RefCell<Vec<Access>> = const { RefCell::new(Vec::new()) };
}

/// What a shared value keeps for the event log.
#[derive(Debug, Default)]
pub struct Label {
    name: Option<Rc<str>>,
    seen: Cell<Seen>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    /// The kernel whose log has last shown the value, and the value's number there.
    kernel: u64,
    number: u64,
    /// The last turns that have read it, and changed it.
    read: u64,
    written: u64,
}

/// An access of a turn.
pub(crate) struct Access {
    pub(crate) number: u64,
    pub(crate) name: Option<Rc<str>>,
    pub(crate) writes: bool,
    pub(crate) place: &'static Location<'static>,
}

/// The turn under way, or the last.
#[derive(Clone, Copy)]
struct Turn {
    kernel: u64,
    task: Tid,
    /// The number of the turn, among those of this thread that are observed.
    number: u64,
    /// How many values the log of the kernel has shown.
    shown: u64,
}

impl Turn {
    const NONE: Self = Self {
        kernel: 0,
        task: Tid::KERNEL,
        number: 0,
        shown: 0,
    };

    fn note(&mut self, label: &Label, writes: bool, place: &'static Location<'static>) {
        let mut seen = label.seen.get();
        if seen.kernel != self.kernel {
            self.shown += 1;
            (seen.kernel, seen.number) = (self.kernel, self.shown);
        }
        let last = if writes {
            &mut seen.written
        } else {
            &mut seen.read
        };
        // No other task can run between two accesses of a turn.
        let is_first = std::mem::replace(last, self.number) != self.number;
        label.seen.set(seen);
        if is_first {
            let access = Access {
                number: seen.number,
                name: label.name.clone(),
                writes,
                place,
            };
            ACCESSES.with_borrow_mut(|accesses| accesses.push(access));
            IS_ANY.set(true);
        }
    }
}

impl Label {
    /// Labels a value with a name, which may be empty.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: (!name.is_empty()).then(|| name.into()),
            seen: Cell::default(),
        }
    }

    /// Returns the name, if there is one.
    #[must_use]
    pub fn name(&self) -> Option<&Rc<str>> {
        self.name.as_ref()
    }

    /// Notes an access by the turn under way, if it is observed. Of the accesses of one turn to a value,
    /// the first read and the first write count.
    #[inline]
    pub fn touch(&self, writes: bool, place: &'static Location<'static>) {
        if IS_OPEN.get() {
            let mut turn = UNDER_WAY.get();
            turn.note(self, writes, place);
            UNDER_WAY.set(turn);
        }
    }
}

/// Begins to note the accesses of a turn. The log of its kernel has shown so many values.
pub(crate) fn open(kernel: u64, task: Tid, shown: u64) {
    if is_any() {
        discard();
    }
    IS_OPEN.set(true);
    UNDER_WAY.set(Turn {
        kernel,
        task,
        number: UNDER_WAY.get().number + 1,
        shown,
    });
}

#[cold]
#[inline(never)]
fn discard() {
    ACCESSES.with_borrow_mut(Vec::clear);
    IS_ANY.set(false);
}

/// Returns whether a turn has noted accesses that were not taken.
#[inline]
pub(crate) fn is_any() -> bool {
    IS_ANY.get()
}

/// Takes the accesses since the last call, with the task of the turn, and how many values the log has
/// then shown. `None` if there are none of this kernel.
pub(crate) fn take(kernel: u64) -> Option<(Tid, u64, Vec<Access>)> {
    let turn = UNDER_WAY.get();
    if !is_any() || turn.kernel != kernel {
        return None;
    }
    IS_ANY.set(false);
    Some((turn.task, turn.shown, ACCESSES.take()))
}

/// Ends the notes.
pub(crate) fn close() {
    IS_OPEN.set(false);
}
