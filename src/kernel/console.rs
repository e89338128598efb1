//! The console: the device that every task prints to.
//!
//! Text that the world does not take at once is kept, up to a bound. A task that prints beyond the
//! bound blocks at its trap until there is room. Its call is held back.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
};

use super::{
    Kernel,
    held::Ticket,
    task::{Pending, WaitingOn},
};
use crate::{
    abi::{DeviceId, Direction, Nanos, SystemCall, Tid},
    log::Wake,
    panic::contain,
    sched::Runnable,
    trap::CONSOLE_ROOM,
};

/// The time that a run waits at its end for a console that takes nothing.
pub(super) const PATIENCE: Nanos = Nanos::from_millis(500);

/// The text that the world has not taken yet, and the tasks that wait for room.
#[derive(Default)]
pub(super) struct Console {
    text: VecDeque<u8>,
    /// The number for the next call that is held back.
    next: u64,
    /// The first number whose task has not been woken.
    waiting: u64,
    /// Whether the end of the run waits only for [`PATIENCE`].
    hurries: bool,
    is_reported: bool,
    /// What each task has printed, if it is kept.
    texts: Option<BTreeMap<Tid, String>>,
    /// The number of bytes that are lost, and how many of them have been reported.
    lost: u64,
    reported_lost: u64,
}

impl Console {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.text.len() >= CONSOLE_ROOM
    }

    /// Keeps the text of a task, if texts are kept.
    pub(super) fn keep(&mut self, task: Tid, text: &str) {
        if let Some(texts) = &mut self.texts {
            texts.entry(task).or_default().push_str(text);
        }
    }

    pub(super) fn begin(&mut self) {
        self.hurries = false;
    }

    pub(super) fn hurry(&mut self) {
        self.hurries = true;
    }

    /// Returns until when the end of the run waits, if it is to wait until this instant.
    pub(super) fn patience(&mut self, until: Nanos, now: Nanos) -> Nanos {
        if std::mem::take(&mut self.hurries) {
            return until.min(now.saturating_add(PATIENCE));
        }
        until
    }

    /// Drops the kept text, which is lost.
    pub(super) fn drop_text(&mut self) {
        self.lost += self.text.len() as u64;
        self.text.clear();
    }

    /// The same, because the console has failed. Warns once.
    pub(super) fn lose(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_reported, true) {
            tracing::warn!(
                target: "trapline::kernel",
                "cannot write to the console: {error}; the text of tasks is lost until the console works again"
            );
        }
        self.drop_text();
    }

    /// The number of bytes that are lost since boot.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Warns of the bytes that were lost since the last such warning.
    pub(super) fn report_lost(&mut self) {
        let new = self.lost - std::mem::replace(&mut self.reported_lost, self.lost);
        if new > 0 {
            tracing::warn!(
                target: "trapline::kernel",
                "the console did not take {new} bytes that tasks printed: they are lost"
            );
        }
    }
}

/// What gets the printed text instead of the world.
pub(super) enum Captured {
    Kept(String),
    Hook(Box<dyn FnMut(&str)>),
}

impl Captured {
    fn print(&mut self, text: &str) {
        match self {
            Self::Kept(kept) => kept.push_str(text),
            Self::Hook(hook) => contain(|| hook(text)),
        }
    }

    pub(super) fn take(&mut self) -> String {
        match self {
            Self::Kept(kept) => std::mem::take(kept),
            Self::Hook(_) => String::new(),
        }
    }
}

impl Kernel {
    /// Keeps what each task prints on the console from now on, apart from the texts of others.
    pub(crate) fn keep_texts(&mut self) {
        self.console.texts = Some(BTreeMap::new());
    }

    /// Takes the texts, those of older tasks first.
    pub(crate) fn take_texts(&mut self) -> Vec<String> {
        let texts = self.console.texts.take();
        texts.unwrap_or_default().into_values().collect()
    }

    pub(super) fn print(&mut self, text: &str) {
        if let Some(captured) = &mut self.captured {
            return captured.print(text);
        }
        let is_first = self.console.is_empty();
        self.console.text.extend(text.as_bytes());
        // Otherwise the console is full, and the world reports when it is ready again.
        if is_first {
            self.write_out();
        } else {
            self.frame.kept_text.set(self.console.text.len());
        }
    }

    /// Writes as much as the console takes. When half of the room is free, wakes the waiting tasks.
    pub(super) fn write_out(&mut self) {
        while !self.console.is_empty() {
            match self.world.print(self.console.text.as_slices().0) {
                Ok(0) => self.console.lose(&io::ErrorKind::WriteZero.into()),
                Ok(n) => drop(self.console.text.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.console.text.clear();
                    self.trouble.get_or_insert(error);
                    self.poll_soon();
                }
                Err(error) => self.console.lose(&error),
            }
        }
        self.frame.kept_text.set(self.console.text.len());
        if self.console.text.len() <= CONSOLE_ROOM / 2 {
            self.wake_printers();
        }
    }

    fn wake_printers(&mut self) {
        while let Some((number, task)) = self.held.next_printer(self.console.waiting) {
            self.console.waiting = number + 1;
            self.devices.end_wait(task);
            let by = Wake::Device(DeviceId::CONSOLE, Direction::Write);
            self.wake(task, by, Pending::Held(Ticket::Console(number)));
        }
    }

    /// Blocks a task that has printed more than the console takes, at its call or its end.
    #[cold]
    pub(super) fn hold(&mut self, me: Runnable, call: Option<SystemCall>) {
        let number = self.hold_call(me, Ticket::Console, call);
        self.devices.begin_wait(me);
        self.block(me, WaitingOn::Console(number));
    }

    /// Holds a call or an end back. Returns its number.
    pub(super) fn hold_call(
        &mut self,
        me: Runnable,
        ticket: fn(u64) -> Ticket,
        call: Option<SystemCall>,
    ) -> u64 {
        if call.is_none() {
            // No body is left that a timeout could cut.
            self.disarm_all(me);
        }
        let number = self.console.next;
        self.console.next += 1;
        self.held.hold(ticket(number), me, call, &self.frame);
        number
    }

    #[inline]
    pub(super) fn check_console(&mut self) -> io::Result<()> {
        self.trouble.take().map_or(Ok(()), Err)
    }
}
