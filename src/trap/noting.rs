//! What a search notes of a turn.

use super::{
    footprint::{Footprints, Note, Object},
    frame::{NOTED, TrapFrame},
};
use crate::abi::{QueueId, Reply};

impl TrapFrame {
    pub(crate) fn set_footprints(&self, footprints: Footprints) {
        self.footprints.replace(Some(footprints));
        self.flag(NOTED, true);
    }

    pub(crate) fn locate(&self) {
        self.is_locating.set(true);
    }

    pub(crate) fn is_located(&self) -> bool {
        self.is_locating.get()
    }

    /// Puts a reply aside, if the place where the task continues is to be noted. The stub looks here
    /// when it finds no reply, so that a reply in its usual place costs nothing more.
    pub(crate) fn put_located_reply(&self, reply: &mut Option<Reply>) {
        if self.is_locating.get() {
            self.located_reply.set(reply.take());
        }
    }

    /// Takes a reply that was put aside, and notes that its task continues here.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_located_reply(&self) -> Option<Reply> {
        let reply = self.located_reply.take()?;
        if let Some(footprints) = &*self.footprints.borrow() {
            footprints.note_continued();
        }
        Some(reply)
    }

    pub(crate) fn footprints(&self) -> Option<Footprints> {
        self.footprints.borrow().clone()
    }

    #[inline(always)]
    pub(crate) fn is_noted(&self) -> bool {
        self.flags.get() & NOTED != 0
    }

    #[inline(always)]
    pub(crate) fn note(&self, note: Note) {
        if self.is_noted() {
            self.note_in_full(note);
        }
    }

    #[cold]
    fn note_in_full(&self, note: Note) {
        if let Some(footprints) = &*self.footprints.borrow() {
            footprints.note(note);
        }
    }

    #[inline(always)]
    pub(crate) fn touch(&self, object: Object, writes: bool) {
        // Not by `note`: the note would be made before the question.
        if self.is_noted() {
            self.note_in_full(Note::Touched { object, writes });
        }
    }

    #[inline(always)]
    pub(crate) fn note_clone(&self, object: Object, before: usize) {
        self.note(Note::cloned(object, before));
    }

    #[inline(always)]
    pub(crate) fn note_drop(&self, object: Object, left: usize) {
        for note in Note::dropped(object, left) {
            self.note(note);
        }
    }

    #[inline(always)]
    pub(crate) fn touch_queue(&self, queue: QueueId, writes: bool) {
        self.touch(Object::PutEnd(queue), writes);
        self.touch(Object::GetEnd(queue), writes);
    }
}
