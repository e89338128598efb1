//! The messages of a queue: the part of it that is on the tasks' side.
//!
//! The kernel knows messages by their numbers. So they can be of any type, and are never copied
//! through the kernel.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    ops::Range,
    rc::Rc,
};

use crate::{
    abi::{QueueId, SystemCall},
    panic::contain,
    trap::{Charge, QueueStatus, Store, TextQueue, TrapFrame},
};

pub(crate) struct Side<T> {
    /// [`QueueId::NONE`] until the kernel has made the queue.
    pub(super) id: Cell<QueueId>,
    /// The number of handles. The kernel's reference is none.
    pub(super) handles: Cell<usize>,
    pub(super) frame: Rc<TrapFrame>,
    pub(super) status: Rc<QueueStatus>,
    pub(super) messages: Messages<T>,
    /// Drops the messages. `Drop` needs it, because there `T` is not known to be `'static`.
    drop: fn(&TrapFrame, Untaken<T>),
}

impl<T: 'static> Side<T> {
    #[inline(always)]
    pub(super) fn new(frame: Rc<TrapFrame>, status: Rc<QueueStatus>) -> Self {
        Self {
            id: Cell::new(QueueId::NONE),
            handles: Cell::new(0),
            frame,
            status,
            messages: Messages::default(),
            drop: |frame, messages| frame.drop_all_iteratively(in_order(messages)),
        }
    }
}

impl<T> Side<T> {
    /// For a message that the kernel puts.
    pub(crate) fn push(&self, message: T) -> u64 {
        self.messages.push(message)
    }

    /// The same for several, which get the numbers returned.
    pub(super) fn push_all(&self, messages: impl Iterator<Item = T>) -> Range<u64> {
        self.messages.push_all(messages)
    }

    pub(super) fn take(&self, number: u64) -> T {
        self.messages.take(number)
    }

    /// Reads a message that no task has taken.
    pub(super) fn read<R>(&self, number: u64, read: impl FnOnce(&T) -> R) -> Option<R> {
        self.messages.read(number, read)
    }

    pub(super) fn free(&self) {
        self.frame.defer(SystemCall::FreeQueue(self.id.get()));
        // Dropped here, because these destructors belong to the task.
        if !self.messages.is_empty() {
            (self.drop)(&self.frame, self.messages.take_all());
        }
    }
}

impl<T> Store for Side<T> {
    fn discard(&self, number: u64) {
        // Dropped outside the borrow: its destructor may use the queue.
        drop(self.messages.remove(number));
    }

    fn size(&self) -> usize {
        size_of::<T>()
    }

    fn charge(&self, number: u64, charge: Charge) {
        self.messages.charge(number, charge);
    }

    fn clear(&self) {
        for message in in_order(self.messages.take_all()) {
            contain(|| drop(message));
        }
    }
}

impl TextQueue for Side<String> {
    fn id(&self) -> QueueId {
        self.id.get()
    }

    fn push(&self, text: String) -> u64 {
        self.messages.push(text)
    }
}

/// The messages that no task has taken, in the order in which they were put.
type Untaken<T> = (Aside<T>, VecDeque<Option<T>>);

/// With what is dropped after some of them.
type Aside<T> = BTreeMap<u64, (T, Option<Charge>)>;

fn in_order<T>((aside, kept): Untaken<T>) -> impl Iterator<Item = T> {
    let aside = aside.into_values().map(|(message, _)| message);
    aside.chain(kept.into_iter().flatten())
}

/// A queue's messages by number, with those of tasks that wait to put, and those that are matched with
/// a task before its turn.
pub(super) struct Messages<T> {
    /// The latest messages in order; `None` is a gap, left by a message that was removed early.
    kept: RefCell<VecDeque<Option<T>>>,
    /// The number of the first message in `kept`.
    first: Cell<u64>,
    /// The number of gaps in `kept`; never many more than messages.
    gaps: Cell<usize>,
    /// Older messages. Kept in order, they would leave too many gaps behind them. Few queues have any.
    /// Those that a task with limits has put are here, too, so that others pay nothing for them.
    aside: RefCell<Option<Aside<T>>>,
    /// The messages of a type without content, which take no memory.
    units: RefCell<VecDeque<T>>,
}

impl<T> Default for Messages<T> {
    fn default() -> Self {
        Self {
            kept: RefCell::default(),
            first: Cell::default(),
            gaps: Cell::default(),
            aside: RefCell::default(),
            units: RefCell::default(),
        }
    }
}

impl<T> Messages<T> {
    const ARE_UNITS: bool = size_of::<T>() == 0 && !std::mem::needs_drop::<T>();

    /// Stores a message, and returns its number, which is never reused.
    pub(super) fn push(&self, message: T) -> u64 {
        if Self::ARE_UNITS {
            self.units.borrow_mut().push_back(message);
            return self.first.replace(self.first.get() + 1);
        }
        let mut kept = self.kept.borrow_mut();
        kept.push_back(Some(message));
        self.first.get() + kept.len() as u64 - 1
    }

    fn push_all(&self, messages: impl Iterator<Item = T>) -> Range<u64> {
        debug_assert!(!Self::ARE_UNITS, "those are not in `kept`");
        let mut kept = self.kept.borrow_mut();
        let next = self.first.get() + kept.len() as u64;
        kept.extend(messages.map(Some));
        next..self.first.get() + kept.len() as u64
    }

    fn is_empty(&self) -> bool {
        let aside = self.aside.borrow();
        self.kept.borrow().is_empty() && aside.as_ref().is_none_or(BTreeMap::is_empty)
    }

    fn take_all(&self) -> Untaken<T> {
        (self.aside.take().unwrap_or_default(), self.kept.take())
    }

    pub(super) fn take(&self, number: u64) -> T {
        self.remove(number)
            .expect("the kernel gives out a message once")
    }

    fn read<R>(&self, number: u64, read: impl FnOnce(&T) -> R) -> Option<R> {
        let Some(at) = number.checked_sub(self.first.get()) else {
            let aside = self.aside.borrow();
            return aside
                .as_ref()?
                .get(&number)
                .map(|(message, _)| read(message));
        };
        let kept = self.kept.borrow();
        kept.get(usize::try_from(at).ok()?)?.as_ref().map(read)
    }

    fn remove(&self, number: u64) -> Option<T> {
        if Self::ARE_UNITS {
            return self.units.borrow_mut().pop_front();
        }
        if number != self.first.get() {
            return self.remove_other(number);
        }
        let mut kept = self.kept.borrow_mut();
        let message = kept.pop_front()?;
        self.first.set(number + 1);
        while let Some(None) = kept.front() {
            kept.pop_front();
            self.first.set(self.first.get() + 1);
            self.gaps.set(self.gaps.get() - 1);
        }
        message
    }

    /// Removes a message that is not the first: its put was refused, its task was killed, or tasks
    /// run in another order than messages were put.
    #[inline(never)]
    fn remove_other(&self, number: u64) -> Option<T> {
        let Some(at) = number.checked_sub(self.first.get()) else {
            let found = self.aside.borrow_mut().as_mut()?.remove(&number);
            return found.map(|(message, _)| message);
        };
        let mut kept = self.kept.borrow_mut();
        let message = kept.get_mut(usize::try_from(at).ok()?)?.take()?;
        self.gaps.set(self.gaps.get() + 1);
        if self.gaps.get() > 16 + kept.len() / 2 {
            self.put_aside(&mut kept);
        }
        Some(message)
    }

    #[cold]
    fn put_aside(&self, kept: &mut VecDeque<Option<T>>) {
        let (first, len) = (self.first.get(), kept.len() as u64);
        let numbered = (first..).zip(kept.drain(..));
        let messages = numbered.filter_map(|(number, message)| Some((number, (message?, None))));
        let mut aside = self.aside.borrow_mut();
        aside.get_or_insert_default().extend(messages);
        self.first.set(first + len);
        self.gaps.set(0);
    }

    /// Drops the charge when the message has left.
    #[cold]
    fn charge(&self, number: u64, charge: Charge) {
        if Self::ARE_UNITS {
            return;
        }
        self.put_aside(&mut self.kept.borrow_mut());
        let mut aside = self.aside.borrow_mut();
        if let Some((_, charged)) = aside.as_mut().and_then(|aside| aside.get_mut(&number)) {
            *charged = Some(charge);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused(messages: &Messages<u64>, live: usize) -> usize {
        let aside = messages.aside.borrow();
        let kept = messages.kept.borrow();
        let gaps = kept.iter().filter(|message| message.is_none());
        assert_eq!(gaps.count(), messages.gaps.get());
        kept.len() + aside.as_ref().map_or(0, BTreeMap::len) - live
    }

    #[test]
    fn one_that_stays_does_not_keep_the_room_of_those_behind_it() {
        // With none between them, each is refused at once.
        for between in [0, 1, 5, 100] {
            let messages = Messages::default();
            for number in 0..1001 {
                assert_eq!(messages.push(number), number);
                if number > between {
                    let gone = number - between;
                    assert_eq!(messages.remove(gone), Some(gone));
                    assert_eq!(messages.remove(gone), None);
                }
                let live = 1 + number.min(between) as usize;
                assert!(unused(&messages, live) < 40 + live);
            }
            assert_eq!(messages.remove(0), Some(0));
        }
    }

    #[test]
    fn in_whatever_order_they_leave_nothing_stays() {
        for stride in [1, 2, 3, 50, 97, 100] {
            let messages = Messages::default();
            for number in 0..101 {
                messages.push(number);
            }
            for n in 0..101 {
                let number = n * stride % 101;
                assert_eq!(messages.remove(number), Some(number));
            }
            assert_eq!(unused(&messages, 0), 0);
        }
    }
}
