//! What a task leaves for the kernel without a trap: printed text, and deferred calls.

use std::{collections::VecDeque, fmt};

use super::{
    deferred::Deferred,
    frame::{CONSOLE_ROOM, DEFERRED, Payload, TrapFrame},
};
use crate::abi::SystemCall;

/// The most deferred calls whose memory is kept for the next.
const REUSED: usize = 64;

impl TrapFrame {
    pub(crate) fn print(&self, text: fmt::Arguments<'_>) {
        // First, because a `Display` of the caller may panic half way.
        self.flag(DEFERRED, true);
        // Writing to a `String` fails only if a `Display` of the caller does.
        let _ = fmt::write(&mut *self.console.borrow_mut(), text);
    }

    pub(crate) fn defer(&self, call: SystemCall) {
        self.defer_with(call, None);
    }

    pub(crate) fn defer_word(&self, call: SystemCall, word: u64) {
        self.defer_with(call, Some(word));
    }

    pub(crate) fn defer_payload(&self, call: SystemCall, payload: Payload) {
        let number = self.payloads.borrow_mut().insert(payload);
        self.defer_with(call, Some(number as u64));
    }

    pub(crate) fn take_deferred_payload(&self, number: u64) -> Option<Payload> {
        self.payloads.borrow_mut().try_remove(number as usize)
    }

    fn defer_with(&self, call: SystemCall, word: Option<u64>) {
        self.deferred
            .borrow_mut()
            .push_back(Deferred { call, word });
        self.flag(DEFERRED, true);
    }

    pub(crate) fn prints(&self) -> bool {
        !self.console.borrow().is_empty()
    }

    pub(crate) fn may_wait_to_print(&self) -> bool {
        let waits = || self.kept_text.get() + self.console.borrow().len() >= CONSOLE_ROOM;
        self.prints() && (self.pipes.get() || waits())
    }

    pub(crate) fn has_deferred(&self) -> bool {
        self.flags.get() & DEFERRED != 0
    }

    pub(crate) fn take_text(&self) -> String {
        self.console.take()
    }

    /// Takes the next deferred call if `is_it` says what it is, and no text comes before it.
    #[inline(always)]
    pub(crate) fn next_deferred<T>(
        &self,
        is_it: impl FnOnce(&Deferred) -> Option<T>,
    ) -> Option<(Deferred, T)> {
        if self.prints() {
            return None;
        }
        let mut calls = self.deferred.borrow_mut();
        let next = *calls.front()?;
        let what = is_it(&next)?;
        calls.pop_front();
        if calls.is_empty() {
            self.flag(DEFERRED, false);
            if calls.capacity() > REUSED {
                *calls = VecDeque::new();
            }
        }
        Some((next, what))
    }

    /// Returns the timeout that has ended, if that is all that comes with a call.
    #[inline(always)]
    pub(crate) fn lone_disarm(&self) -> Option<u64> {
        if !self.has_only_deferred() {
            return None;
        }
        let calls = self.deferred.borrow();
        match calls.front()?.call {
            SystemCall::Disarm(timeout) if calls.len() == 1 && !self.prints() => Some(timeout),
            _ => None,
        }
    }

    pub(crate) fn forget_lone_disarm(&self) {
        self.deferred.borrow_mut().clear();
        self.flag(DEFERRED, false);
    }

    pub(crate) fn take_deferred(&self) -> VecDeque<Deferred> {
        self.flag(DEFERRED, false);
        self.deferred.take()
    }

    pub(crate) fn reuse_deferred(&self, handled: VecDeque<Deferred>) {
        debug_assert!(handled.is_empty(), "the calls that are left would be lost");
        if handled.capacity() <= REUSED {
            self.deferred.replace(handled);
        }
    }
}
