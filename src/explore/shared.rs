//! Memory that tasks share, and of which a search knows.

use std::{cell::RefCell, fmt, rc::Rc};

use super::notes::{self, Made};

/// A value that the tasks of a kernel share. Clones are handles to the same value. No access is a
/// trap: a task that reads and then writes without a trap between cannot be interrupted.
///
/// An exhaustive search ([`Check::exhaustive`](crate::Check::exhaustive)) sees each access, and runs
/// every order of those that conflict. It does not see accesses to an `Rc<Cell>`. The report of a
/// failing schedule shows what each turn reads and writes.
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
    name: Made,
    value: RefCell<T>,
}

impl<T> Shared<T> {
    /// Shares a value.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Rc::new(Inner {
            name: notes::name_shared(),
            value: RefCell::new(value),
        }))
    }

    /// Returns a copy of the value.
    #[must_use]
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        notes::touch_shared(self.0.name, false);
        self.0.value.borrow().clone()
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        // Dropped after the borrow: its destructor may use this handle.
        let old = self.update(|shared| std::mem::replace(shared, value));
        drop(old);
    }

    /// Changes the value in place, and returns what the closure returns.
    ///
    /// *Panics* if the closure uses the same value through another handle.
    pub fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        notes::touch_shared(self.0.name, true);
        change(&mut self.0.value.borrow_mut())
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
