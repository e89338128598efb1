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
    static NOTED: RefCell<Noted> = const { RefCell::new(Noted::new()) };
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

/// The accesses since a turn began.
struct Noted {
    kernel: u64,
    task: Tid,
    /// The number of the turn, among those of this thread that are observed.
    turn: u64,
    /// How many values the log of the kernel has shown.
    shown: u64,
    accesses: Vec<Access>,
}

impl Noted {
    const fn new() -> Self {
        Self {
            kernel: 0,
            task: Tid::KERNEL,
            turn: 0,
            shown: 0,
            accesses: Vec::new(),
        }
    }

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
        let is_first = std::mem::replace(last, self.turn) != self.turn;
        label.seen.set(seen);
        if is_first {
            self.accesses.push(Access {
                number: seen.number,
                name: label.name.clone(),
                writes,
                place,
            });
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
            NOTED.with_borrow_mut(|noted| noted.note(self, writes, place));
        }
    }
}

/// Begins to note the accesses of a turn. The log of its kernel has shown so many values.
pub(crate) fn open(kernel: u64, task: Tid, shown: u64) {
    IS_OPEN.set(true);
    NOTED.with_borrow_mut(|noted| {
        noted.accesses.clear();
        (noted.kernel, noted.task, noted.shown) = (kernel, task, shown);
        noted.turn += 1;
    });
}

/// Takes the accesses since the last call, with the task of the turn, and how many values the log has
/// then shown. `None` if there are none of this kernel.
pub(crate) fn take(kernel: u64) -> Option<(Tid, u64, Vec<Access>)> {
    NOTED.with_borrow_mut(|noted| {
        let is_any = noted.kernel == kernel && !noted.accesses.is_empty();
        let take = || (noted.task, noted.shown, std::mem::take(&mut noted.accesses));
        is_any.then(take)
    })
}

/// Ends the notes.
pub(crate) fn close() {
    IS_OPEN.set(false);
}
