//! Destructors that run one after another, on a stack that does not grow.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::VecDeque,
};

use crate::panic::contain;

/// Values that are dropped next. A value whose drop reaches another one only adds it here.
#[derive(Default)]
pub(super) struct Drops {
    is_running: Cell<bool>,
    pending: RefCell<VecDeque<Box<dyn Any>>>,
}

impl Drops {
    pub(super) fn drop_all<T: 'static>(&self, values: impl IntoIterator<Item = T>) {
        if !std::mem::needs_drop::<T>() {
            return;
        }
        let values = values.into_iter();
        let values = values.map(|value| Box::new(value) as Box<dyn Any>);
        self.pending.borrow_mut().extend(values);
        self.run();
    }

    /// The same for a value in its own memory. One without a destructor is dropped at once.
    pub(super) fn drop_box<T: 'static>(&self, value: Box<T>) {
        if std::mem::needs_drop::<T>() {
            self.pending.borrow_mut().push_back(value);
            self.run();
        }
    }

    fn run(&self) {
        if !self.is_running.replace(true) {
            Running(self).drop_pending();
        }
    }
}

/// Drops what is pending, even if a destructor panics.
struct Running<'a>(&'a Drops);

impl Running<'_> {
    fn drop_pending(&self) {
        let next = || self.0.pending.borrow_mut().pop_front();
        while let Some(value) = next() {
            if std::thread::panicking() {
                contain(|| drop(value));
            } else {
                drop(value);
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.drop_pending();
        self.0.is_running.set(false);
    }
}
