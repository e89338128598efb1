//! What the tasks of several kernels do to mailboxes, while a search takes notes. A mailbox belongs to no
//! kernel before the first get, and to put into it needs none, so thread-local variables have the notes.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use super::footprint::{Note, Object};
use crate::{abi::Tid, interrupt::Remote};

/// A mailbox: its maker, and the number of those that it had made before. Without notes, all are the same.
pub(crate) type MailboxName = (Tid, u64);

#[derive(Default)]
struct MailNotes {
    /// Tells which task runs, or that the host does.
    remote: Option<Remote>,
    made: BTreeMap<Tid, u64>,
    notes: Vec<Note>,
}

thread_local! {
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
    static NOTES: RefCell<MailNotes> = RefCell::default();
}

/// Begins to take notes.
pub(crate) fn open(remote: &Remote) {
    NOTES.set(MailNotes {
        remote: Some(remote.clone()),
        ..MailNotes::default()
    });
    IS_OPEN.set(true);
}

pub(crate) fn close() {
    IS_OPEN.set(false);
    NOTES.take();
}

/// Names a mailbox that the running task makes, or the host.
pub(crate) fn name() -> MailboxName {
    if !IS_OPEN.get() {
        return (Tid::KERNEL, 0);
    }
    NOTES.with_borrow_mut(|notes| {
        let maker = notes.remote.as_ref().map_or(Tid::KERNEL, Remote::running);
        let made = notes.made.entry(maker).or_default();
        *made += 1;
        (maker, *made)
    })
}

/// Notes that an object of a mailbox is touched, such as [`Object::Mailbox`].
#[inline]
pub(crate) fn touch(object: fn(Tid, u64) -> Object, (maker, number): MailboxName, writes: bool) {
    if IS_OPEN.get() {
        let object = object(maker, number);
        note(Note::Touched { object, writes });
    }
}

/// Notes that a handle of a mailbox is cloned, of which there were so many.
#[inline]
pub(crate) fn cloned(
    handles: fn(Tid, u64) -> Object,
    (maker, number): MailboxName,
    before: impl FnOnce() -> usize,
) {
    if IS_OPEN.get() {
        note(Note::cloned(handles(maker, number), before()));
    }
}

/// Notes that one is dropped, itself counted among so many.
#[inline]
pub(crate) fn dropped(
    handles: fn(Tid, u64) -> Object,
    (maker, number): MailboxName,
    before: impl FnOnce() -> usize,
) {
    if IS_OPEN.get() {
        let notes = Note::dropped(handles(maker, number), before() - 1);
        notes.into_iter().for_each(note);
    }
}

#[cold]
fn note(note: Note) {
    NOTES.with_borrow_mut(|notes| notes.notes.push(note));
}

/// Takes the notes since the last call.
pub(crate) fn take() -> Vec<Note> {
    NOTES.with_borrow_mut(|notes| std::mem::take(&mut notes.notes))
}
