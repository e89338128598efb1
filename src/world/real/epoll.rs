//! Linux: the epoll of `polling`, waited on with fewer system calls, and asked for the end of a
//! stream, which is not among the interests of `polling`. `mod.rs` has the figures.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

use polling::Poller;
use rustix::{
    buffer::spare_capacity,
    event::{
        Timespec,
        epoll::{self, Event, EventData, EventFlags as Flags},
    },
    io::retry_on_intr,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create},
};

use super::poller::{Readiness, System};

/// The key of the alarm, which no device has. `polling` keeps the highest one for itself.
const ALARM: u64 = u64::MAX - 1;

/// What epoll reports, asked for or not, after a failure or after both ends have closed.
const WRONG: Flags = Flags::HUP.union(Flags::ERR);

pub(super) struct Epoll {
    events: Vec<Event>,
    /// Ends a wait at the deadline.
    alarm: OwnedFd,
    /// What the alarm is set for, counted from boot; at or before the deadline of every wait.
    set_for: Option<Duration>,
}

impl System for Epoll {
    fn new(poller: &Poller) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let alarm = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // By its edges, so that it need not be read.
        let edges = Flags::IN | Flags::ET;
        epoll::add(poller, &alarm, EventData::new_u64(ALARM), edges)?;
        Ok(Self {
            events: Vec::with_capacity(1024),
            alarm,
            set_for: None,
        })
    }

    /// Asks for everything that epoll can report.
    fn watch(&self, poller: &Poller, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        let all = Flags::IN | Flags::PRI | Flags::RDHUP | Flags::OUT | Flags::ET;
        Ok(epoll::add(poller, fd, EventData::new_u64(key), all)?)
    }

    /// One system call, or two if the deadline comes before the alarm. An alarm that is too early ends
    /// a wait early: so timeouts that are armed and disarmed all the time need not set it.
    fn wait(
        &mut self,
        poller: &Poller,
        deadline: Option<Duration>,
        span: Option<Duration>,
        mut tell: impl FnMut(u64, &Readiness),
    ) -> io::Result<()> {
        let polls = span == Some(Duration::ZERO);
        let comes_first = |deadline| self.set_for.is_none_or(|set_for| deadline < set_for);
        if !polls && deadline.is_some_and(comes_first) {
            self.set_alarm(span)?;
            self.set_for = deadline;
        }
        self.events.clear();
        retry_on_intr(|| {
            let room = spare_capacity(&mut self.events);
            epoll::wait(poller, room, polls.then_some(&Timespec::default()))
        })?;
        for event in &self.events {
            let (key, flags) = (event.data.u64(), event.flags);
            if key == ALARM {
                // It has to be set again, for any deadline.
                self.set_for = None;
                continue;
            }
            let readiness = Readiness {
                readable: flags.intersects(Flags::IN | Flags::PRI | WRONG),
                writable: flags.intersects(Flags::OUT | WRONG),
                unclear: flags.intersects(Flags::RDHUP | Flags::PRI),
            };
            tell(key, &readiness);
        }
        Ok(())
    }
}

impl Epoll {
    /// Has a wait end after so long.
    fn set_alarm(&self, span: Option<Duration>) -> io::Result<()> {
        // More than the clock can count means never.
        let span = span.and_then(|span| span.try_into().ok());
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: span.unwrap_or_default(),
        };
        rustix::time::timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn an_alarm_that_is_too_early_ends_one_wait() {
        let poller = Poller::new().unwrap();
        let mut epoll = Epoll::new(&poller).unwrap();
        let milli = |n| Some(Duration::from_millis(n));
        // A wait for this deadline was ended by something else, and a later one follows.
        epoll.set_alarm(milli(5)).unwrap();
        epoll.set_for = milli(5);
        let begin = Instant::now();
        epoll.wait(&poller, None, None, |_, _| {}).unwrap();
        assert_eq!(epoll.set_for, None);
        epoll
            .wait(&poller, milli(30), milli(25), |_, _| {})
            .unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(25));
        // One that comes before the alarm has an alarm of its own.
        epoll.set_alarm(milli(1_000_000)).unwrap();
        epoll.set_for = milli(1_000_000);
        epoll.wait(&poller, milli(50), milli(1), |_, _| {}).unwrap();
        assert_eq!(epoll.set_for, None);
    }
}
