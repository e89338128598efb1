//! What the world reports: interrupts of other threads, and devices that are ready.

use std::{ops::Range, time::Duration};

use super::{
    Kernel,
    console::PATIENCE,
    report::Error,
    task::{Pending, State, Then, WaitingOn},
};
use crate::{
    abi::{DeviceId, Direction, Nanos, QueueId, Reply, Signal},
    interrupt::Interrupt,
    log::Wake,
    panic::contain,
    trap::{Mail as _, Note, Object, Received, Receiving},
    world::Happening,
};

impl Kernel {
    /// Handles what the world has reported, where no timer comes in between.
    fn take_reports(&mut self) {
        self.take_interrupts();
        self.take_readiness();
    }

    pub(super) fn take_interrupts(&mut self) {
        let happened = std::mem::take(&mut self.happened);
        for happening in &happened {
            let Happening::Interrupt(interrupt) = *happening else {
                continue;
            };
            match interrupt {
                Interrupt::Close(queue) => {
                    self.touch_queue(queue);
                    self.close_queue(queue);
                }
                Interrupt::Mail(queue) => self.take_mail(queue),
                Interrupt::Over(what) => self.over[what as usize] += 1,
                Interrupt::Shutdown => {
                    self.touch(Object::All);
                    self.console.hurry();
                    self.end_all(|_| true);
                }
                Interrupt::Signal(signal) => {
                    self.touch(Object::All);
                    self.remote.has_come(signal);
                    self.signal(signal);
                }
            }
        }
        self.happened = happened;
    }

    /// Moves the messages of a mailbox into its queue.
    fn take_mail(&mut self, queue: QueueId) {
        self.frame.note(Note::Barrier);
        let Some(from) = self.frame.mailboxes.get(queue) else {
            return;
        };
        let received = Received::default();
        let mut mail = Receiving { from, received };
        match queue.is_of_daemon() {
            // What daemons get is not on tapes.
            true => mail.take(None),
            false => self.pass_mail(&mut mail),
        }
        if self.frame.is_noted() {
            self.note_try_put(queue);
        }
        let mut numbers = mail.received.numbers.clone();
        while !self.store_all(queue, &numbers)
            && let Some(number) = numbers.next()
        {
            self.put_message(queue, number);
        }
        if mail.received.closes || mail.received.is_gone {
            self.touch_queue(queue);
            self.close_queue(queue);
        }
        if mail.received.is_gone {
            let gone = self.frame.mailboxes.forget(queue);
            contain(|| drop((mail, gone)));
        }
    }

    /// Stores messages that no task waits for, where no search takes notes of each. Returns whether they were
    /// stored.
    fn store_all(&mut self, queue: QueueId, messages: &Range<u64>) -> bool {
        let found = self.queues.get_mut(queue);
        !self.frame.is_noted() && found.is_some_and(|found| found.store_all(messages.clone()))
    }

    /// Takes the signals whose timers have fired.
    #[inline(always)]
    pub(super) fn take_signals(&mut self) {
        while let Some(signal) = self.signals.next_due() {
            self.signal(signal);
        }
    }

    #[cold]
    #[inline(never)]
    fn signal(&mut self, signal: Signal) {
        if self.deliver_signal(signal) {
            self.end_all(|_| true);
        }
    }

    /// Wakes the tasks that wait for the devices that the world has reported.
    pub(super) fn take_readiness(&mut self) {
        let mut happened = std::mem::take(&mut self.happened);
        for happening in &happened {
            match *happening {
                Happening::Ready(device, direction) => self.wake_at(device, direction),
                Happening::Console => self.write_out(),
                Happening::Interrupt(_) => {}
            }
        }
        happened.clear();
        self.happened = happened;
    }

    /// Reports a device without the world.
    #[cold]
    #[inline(never)]
    pub(super) fn report_ready(&mut self, device: DeviceId, direction: Direction) {
        self.wake_at(device, direction);
    }

    /// Wakes the task that waits for this direction of a device.
    #[inline(always)]
    fn wake_at(&mut self, device: DeviceId, direction: Direction) {
        let Some(task) = self.devices.reported(device, direction) else {
            return;
        };
        let waiter = &mut self.tasks[task];
        let &State::Blocked(WaitingOn::Device(_, _, then)) = waiter.state() else {
            // It selects, or it is to read anyway.
            self.wake_select(task, Wake::Device(device, direction));
            return;
        };
        self.devices.end_wait(task);
        if let Then::Done | Then::Again = then {
            self.devices.release(device, direction);
        }
        if let (Then::Again, Some(injection)) = (then, &mut self.injection) {
            injection.pass_again(task.tid, waiter.traps() + 1);
        }
        match then {
            Then::Done => waiter.wake(Reply::Done),
            Then::Again => waiter.wake(Reply::Again),
            Then::Read(op) => waiter.wake(Pending::Read(device, op)),
        }
        self.woken(task, Wake::Device(device, direction));
    }

    /// Handles interrupts that arrived after the last poll of a run. A shutdown also ends the
    /// daemons, and must not reach the next run.
    pub(super) fn wind_up(&mut self) -> Result<(), Error> {
        if !self.is_still() {
            self.world.wait(Some(Duration::ZERO), &mut self.happened)?;
            self.take_reports();
        }
        Ok(self.check_console()?)
    }

    /// Waits until the console has taken everything, and warns of lost bytes. After a shutdown from
    /// outside, or after the limit, waits only for [`PATIENCE`]; the remaining text is lost then.
    pub(super) fn finish_printing(&mut self, limit: Nanos) {
        let mut until = limit.saturating_add(PATIENCE);
        while !self.console.is_empty() {
            let now = Nanos::from(self.world.now());
            until = self.console.patience(until, now);
            if now >= until {
                self.console.drop_text();
                break;
            }
            let deadline = (until != Nanos::FOREVER).then(|| until.into());
            if let Err(error) = self.world.wait(deadline, &mut self.happened) {
                self.console.lose(&error);
            }
            self.take_reports();
        }
        self.console.report_lost();
    }

    fn is_still(&self) -> bool {
        !self.remote.is_used() && self.world.is_idle()
    }

    /// Leaves out the poll before the first turn, where it would do nothing: it is 6% of a short
    /// schedule of a search. The next poll comes when it would come after that one.
    pub(super) fn skip_first_poll(&mut self, ends: Nanos) {
        let is_first = self.stats.ticks == 0 && self.clock < ends;
        if is_first && !self.is_asked && self.ready.daemons() == 0 && self.is_still() {
            self.ready.alarm(self.clock);
            self.next_poll = self.ready.pass();
        }
    }
}
