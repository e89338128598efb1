//! Memory that tasks share, and of which a search knows.

use std::{cell::RefCell, fmt, panic::Location, rc::Rc};

use super::notes::{self, Made};
use crate::Label;

/// A value that the tasks of a kernel share. Clones are handles to the same value. No access is a
/// trap: a task that reads and then writes without a trap between cannot be interrupted.
///
/// An exhaustive search ([`Check::exhaustive`](crate::Check::exhaustive)) sees each access, and runs
/// every order of those that conflict. It does not see accesses to an `Rc<Cell>`. The report of a
/// failing schedule shows what each turn reads and writes, and so do a trace, a recording and its
/// timeline.
///
/// ```
/// use trapline::{Kernel, Os, Shared};
///
/// let mut kernel = Kernel::simulated(0);
/// let sum = Shared::new(0);
/// for n in 1..=3 {
///     let sum = sum.clone();
///     kernel.spawn("adder", async move |_: &mut Os| sum.update(|sum| *sum += n))?;
/// }
/// kernel.run()?;
/// assert_eq!(sum.get(), 6);
/// # Ok::<(), trapline::Error>(())
/// ```
pub struct Shared<T>(Rc<Inner<T>>);

struct Inner<T> {
    made: Made,
    label: Label,
    value: RefCell<T>,
}

impl<T> Shared<T> {
    /// Shares a value.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self::named("", value)
    }

    /// Shares a value under a name, for reports, traces and timelines.
    ///
    /// ```
    /// use std::{cell::RefCell, rc::Rc};
    /// use trapline::{Event, Kernel, Os, Shared};
    ///
    /// let trace = Rc::new(RefCell::new(Vec::new()));
    /// let lines = Rc::clone(&trace);
    /// let tracer = move |event: &Event<'_>| {
    ///     if event.fact.accessed().is_some() {
    ///         lines.borrow_mut().push(format!("{} {}", event.tid, event.fact));
    ///     }
    /// };
    /// let mut kernel = Kernel::builder().tracer(tracer).build()?;
    /// let total = Shared::named("total", 1);
    /// kernel.spawn("adder", async move |_: &mut Os| total.set(total.get() + 1))?;
    /// kernel.run()?;
    /// assert_eq!(*trace.borrow(), ["1 reads shared 1 \"total\"", "1 writes shared 1 \"total\""]);
    /// # Ok::<(), trapline::Error>(())
    /// ```
    #[must_use]
    pub fn named(name: impl AsRef<str>, value: T) -> Self {
        let label = Label::new(name.as_ref());
        Self(Rc::new(Inner {
            made: notes::name_shared(label.name()),
            label,
            value: RefCell::new(value),
        }))
    }

    /// Returns a copy of the value.
    ///
    /// *Panics* within a closure that [changes](Self::update) the same value.
    #[must_use]
    #[track_caller]
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// Looks at the value in place, and returns what the closure returns. It is a read.
    ///
    /// *Panics* within a closure that [changes](Self::update) the same value.
    ///
    /// ```
    /// let names = trapline::Shared::new(vec!["left", "right"]);
    /// assert_eq!(names.with(|names| names.len()), 2);
    /// ```
    #[track_caller]
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        self.touch(false, Location::caller());
        match self.0.value.try_borrow() {
            Ok(value) => look(&value),
            Err(_) => self.within_another(),
        }
    }

    /// Replaces the value.
    #[track_caller]
    pub fn set(&self, value: T) {
        // Dropped after the borrow: its destructor may use this handle.
        let old = self.update(|shared| std::mem::replace(shared, value));
        drop(old);
    }

    /// Changes the value in place, and returns what the closure returns.
    ///
    /// *Panics* if the closure uses the same value through another handle.
    #[track_caller]
    pub fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        self.touch(true, Location::caller());
        match self.0.value.try_borrow_mut() {
            Ok(mut value) => change(&mut value),
            Err(_) => self.within_another(),
        }
    }

    /// Says which value a closure uses while another one does.
    #[cold]
    #[track_caller]
    fn within_another(&self) -> ! {
        let name = self.0.label.name();
        let name = name.map_or(String::new(), |name| format!(" {name:?}"));
        panic!(
            "a closure uses the shared value{name} within another closure that uses it: end that one first"
        )
    }

    fn touch(&self, writes: bool, place: &'static Location<'static>) {
        notes::touch_shared(self.0.made, writes);
        self.0.label.touch(writes, place);
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.value.try_borrow() {
            Ok(value) => f.debug_tuple("Shared").field(&value).finish(),
            Err(_) => f.write_str("Shared(..)"),
        }
    }
}
