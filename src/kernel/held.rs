//! Calls that are handled later: the console was full, or an injection delays them.
//!
//! A call is kept with what travels beside it. The kernel handles it in the first turn after its
//! task wakes.

use std::collections::BTreeMap;

use crate::{
    abi::SystemCall,
    sched::Runnable,
    trap::{Parcel, TrapFrame},
};

/// The name of a call that is held back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ticket {
    /// By the console: a number in the order of printing.
    Console(u64),
    /// By a queue that gets what the task prints: a number of the same order.
    Text(u64),
    /// By an injection: the number of the delay's timer.
    Delay(u64),
}

#[derive(Default)]
pub(super) struct HeldCalls(BTreeMap<Ticket, Held>);

pub(super) struct Held {
    task: Runnable,
    /// `None` for a program that has ended: its exit is the payload.
    pub(super) call: Option<SystemCall>,
    pub(super) beside: Parcel,
    /// The bytes that a `send` offers.
    pub(super) bytes: Vec<u8>,
}

impl HeldCalls {
    /// Holds the call under way back, with what travels beside it.
    pub(super) fn hold(
        &mut self,
        ticket: Ticket,
        task: Runnable,
        call: Option<SystemCall>,
        frame: &TrapFrame,
    ) {
        let bytes = match call {
            Some(SystemCall::Send(_) | SystemCall::SendTo(_)) => frame.offered().to_vec(),
            _ => Vec::new(),
        };
        let held = Held {
            task,
            call,
            beside: frame.take_parcel(),
            bytes,
        };
        self.0.insert(ticket, held);
    }

    pub(super) fn reset(&mut self) {
        if !self.0.is_empty() {
            self.0.clear();
        }
    }

    pub(super) fn holds(&self, ticket: Ticket, task: Runnable) -> bool {
        self.0.get(&ticket).is_some_and(|held| held.task == task)
    }

    /// Returns the first call from `number` on that the console holds back: its number and task.
    pub(super) fn next_printer(&self, number: u64) -> Option<(u64, Runnable)> {
        match self.0.range(Ticket::Console(number)..).next()? {
            (&Ticket::Console(number), held) => Some((number, held.task)),
            (Ticket::Text(_) | Ticket::Delay(_), _) => None,
        }
    }

    pub(super) fn take(&mut self, ticket: Ticket) -> Held {
        let held = self.0.remove(&ticket);
        held.expect("a call that is held back is in the table")
    }
}
