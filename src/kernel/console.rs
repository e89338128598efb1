//! The console: the device that every task prints to. What it does not take at once is kept, up to
//! a bound; a task that prints beyond the bound waits at its trap until there is room.
//!
//! A task that waits has its call held back here, with what travels beside it. Once it is woken, its
//! call is handled when its turn comes.

use std::{collections::BTreeMap, io};

use super::{
    Kernel,
    task::{Pending, WaitingOn},
};
use crate::{
    abi::{DeviceId, Direction, Nanos, SystemCall},
    log::Wake,
    sched::Runnable,
    trap::{Parcel, Payload},
};

/// How many bytes are kept: at so many, a task that prints waits. One trap's text may exceed it.
const ROOM: usize = 64 * 1024;

/// How long the end of a run that is to end waits for a console that takes nothing.
const PATIENCE: Nanos = Nanos::from_millis(500);

/// What the world has not taken yet, and the tasks that wait until it has.
#[derive(Default)]
pub(super) struct Console {
    text: Vec<u8>,
    /// By number, in the order in which they printed.
    held: BTreeMap<u64, Held>,
    /// The number of the next call that is held back.
    next: u64,
    /// The first number whose task was not woken yet.
    waiting: u64,
    /// Whether the end of the run is to wait for no more than a moment.
    hurries: bool,
    /// Whether a failure has been told of.
    is_told: bool,
    /// How many lost bytes have been told of.
    told: u64,
}

/// A call that is held back.
struct Held {
    task: Runnable,
    /// `None` for a program that has ended: its exit is the payload.
    call: Option<SystemCall>,
    beside: Parcel,
    /// What a `send` offers.
    bytes: Vec<u8>,
}

impl Console {
    /// Whether everything has been taken.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether a task that prints has to wait.
    pub(super) fn is_full(&self) -> bool {
        self.text.len() >= ROOM
    }

    /// Whether the call of this task is held back under this number.
    pub(super) fn holds(&self, ticket: u64, task: Runnable) -> bool {
        self.held.get(&ticket).is_some_and(|held| held.task == task)
    }

    /// A run begins.
    pub(super) fn begin(&mut self) {
        self.hurries = false;
    }

    /// The end of the run is to wait for no more than a moment.
    pub(super) fn hurry(&mut self) {
        self.hurries = true;
    }
}

impl Kernel {
    /// Prints, after what is kept.
    pub(super) fn print(&mut self, text: &str) {
        if let Some(captured) = &mut self.captured {
            return captured.push_str(text);
        }
        let is_first = self.console.is_empty();
        self.console.text.extend_from_slice(text.as_bytes());
        // Otherwise the console takes nothing at this moment, and is reported when it does.
        if is_first {
            self.write_out();
        }
    }

    /// Writes as much as the console takes, and wakes the tasks that wait once half of the room is
    /// free.
    pub(super) fn write_out(&mut self) {
        while !self.console.is_empty() {
            match self.world.print(&self.console.text) {
                Ok(0) => self.lose(&io::ErrorKind::WriteZero.into()),
                Ok(n) => drop(self.console.text.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.console.text.clear();
                    self.trouble.get_or_insert(error);
                    self.next_poll = 0;
                }
                Err(error) => self.lose(&error),
            }
        }
        if self.console.text.len() <= ROOM / 2 {
            self.wake_printers();
        }
    }

    fn wake_printers(&mut self) {
        while let Some((&ticket, held)) = self.console.held.range(self.console.waiting..).next() {
            let task = held.task;
            self.console.waiting = ticket + 1;
            *self.devices.waiting_like(task) -= 1;
            let by = Wake::Device(DeviceId::CONSOLE, Direction::Write);
            self.wake(task, by, Pending::Held(ticket));
        }
    }

    /// Gives up what is kept, and counts it.
    fn give_up(&mut self) {
        self.stats.lost += self.console.text.len() as u64;
        self.console.text.clear();
    }

    /// Gives up what is kept since the console has failed, and says so once.
    fn lose(&mut self, error: &io::Error) {
        self.give_up();
        if !std::mem::replace(&mut self.console.is_told, true) {
            tracing::warn!(
                target: "trapline::kernel",
                "cannot write to the console: {error}; what tasks print is lost until it takes more"
            );
        }
    }

    /// Blocks a task that has printed more than the console takes, at its call or at its end.
    #[cold]
    pub(super) fn hold(&mut self, me: Runnable, call: Option<SystemCall>) {
        if call.is_none() {
            // There is no body left that a timeout could cut.
            let timeouts = self.tasks[me].timeouts.take();
            for timer in timeouts.into_iter().flat_map(|timeouts| timeouts.armed) {
                self.timers.of(me).disarm(timer);
            }
        }
        let bytes = match call {
            Some(SystemCall::Send(_)) => self.frame.offered().to_vec(),
            _ => Vec::new(),
        };
        let ticket = self.console.next;
        self.console.next += 1;
        let held = Held {
            task: me,
            call,
            beside: self.frame.take_parcel(),
            bytes,
        };
        self.console.held.insert(ticket, held);
        *self.devices.waiting_like(me) += 1;
        let _ = self.block(me, WaitingOn::Console(ticket));
    }

    /// Does what a call asks for that was held back. It is its task's turn.
    #[cold]
    pub(super) fn go_on(&mut self, me: Runnable, ticket: u64) {
        let held = self.console.held.remove(&ticket);
        let held = held.expect("a call that is held back is in the table");
        self.frame.put_parcel(held.beside);
        self.frame
            .buffer(held.bytes.len())
            .copy_from_slice(&held.bytes);
        match held.call {
            Some(call) => self.carry_out(me, call),
            None => match self.frame.take() {
                Some(Payload::Exit(exit)) => self.end(me, exit),
                _ => unreachable!("a program that returns leaves its exit in the frame"),
            },
        }
    }

    /// Forgets a call that was held back: its task was killed, or its call was cut.
    pub(super) fn drop_held(&mut self, ticket: u64) {
        let held = self.console.held.remove(&ticket);
        let held = held.expect("a call that is held back is in the table");
        let outer = self.frame.take_parcel();
        self.frame.put_parcel(held.beside);
        match held.call {
            Some(call) => self.abandon(call),
            None => self.frame.clear(),
        }
        self.frame.put_parcel(outer);
    }

    /// Waits until the console has taken everything, and tells how much was lost. A shutdown from
    /// outside, or the limit, ends the wait a moment later; what is left is lost then.
    pub(super) fn finish_printing(&mut self, limit: Nanos) {
        let mut until = limit.saturating_add(PATIENCE);
        while !self.console.is_empty() {
            let now = Nanos::from(self.world.now());
            if std::mem::take(&mut self.console.hurries) {
                until = until.min(now.saturating_add(PATIENCE));
            }
            if now >= until {
                self.give_up();
                break;
            }
            let deadline = (until != Nanos::FOREVER).then(|| until.into());
            if let Err(error) = self.world.wait(deadline, &mut self.happened) {
                self.lose(&error);
            }
            self.take_reports();
        }
        let new = self.stats.lost - self.console.told;
        self.console.told = self.stats.lost;
        if new > 0 {
            tracing::warn!(
                target: "trapline::kernel",
                "the console did not take {new} bytes that tasks printed: they are lost"
            );
        }
    }
}
