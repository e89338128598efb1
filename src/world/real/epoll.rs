//! Linux: the poller's own epoll, waited on with fewer system calls, and asked for the end of a
//! stream, which is not among the poller's interests.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    buffer::spare_capacity,
    event::{
        Timespec,
        epoll::{self, Event, EventData, EventFlags as Flags},
    },
    io::retry_on_intr,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create},
};

use super::readiness::Readiness;

/// The key under which the poller tells itself that it was notified.
const NOTIFIED: u64 = usize::MAX as u64;

/// The key of the alarm.
const ALARM: u64 = NOTIFIED - 1;

/// What comes of a failure or of both ends' closing, asked for or not.
const WRONG: Flags = Flags::HUP.union(Flags::ERR);

/// What it takes to wait.
pub(super) struct Epoll {
    events: Vec<Event>,
    /// Ends a wait at the deadline.
    alarm: OwnedFd,
    /// What the alarm is set for, counted from boot.
    set_for: Option<Duration>,
}

impl Epoll {
    pub(super) fn new(poller: BorrowedFd<'_>) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let alarm = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // By its edges, so that nobody has to read it.
        let edges = Flags::IN | Flags::ET;
        epoll::add(poller, &alarm, EventData::new_u64(ALARM), edges)?;
        Ok(Self {
            events: Vec::with_capacity(1024),
            alarm,
            set_for: None,
        })
    }

    /// Waits until the deadline, or only looks: one system call, or two if the deadline is not that
    /// of the wait before. The poller's own wait makes five.
    ///
    /// Answers whether the poller was notified, which only its own wait can acknowledge.
    pub(super) fn wait(
        &mut self,
        poller: BorrowedFd<'_>,
        deadline: Option<Duration>,
        now: impl Fn() -> Duration,
        mut tell: impl FnMut(u64, Readiness),
    ) -> io::Result<bool> {
        let span = deadline.map(|deadline| deadline.saturating_sub(now()));
        let looks = span == Some(Duration::ZERO);
        if !looks && deadline != self.set_for {
            self.set_alarm(span)?;
            self.set_for = deadline;
        }
        self.events.clear();
        retry_on_intr(|| {
            let room = spare_capacity(&mut self.events);
            epoll::wait(poller, room, looks.then_some(&Timespec::default()))
        })?;
        let mut notified = false;
        for event in &self.events {
            let (key, flags) = (event.data.u64(), event.flags);
            match key {
                NOTIFIED => notified = true,
                // It has to be set again, whatever for.
                ALARM => self.set_for = None,
                _ => {}
            }
            let readiness = Readiness {
                readable: flags.intersects(Flags::IN | Flags::PRI | WRONG),
                writable: flags.intersects(Flags::OUT | WRONG),
                unclear: flags.intersects(Flags::RDHUP | Flags::PRI),
            };
            tell(key, readiness);
        }
        Ok(notified)
    }

    /// Has a wait end after so long, or not.
    fn set_alarm(&self, span: Option<Duration>) -> io::Result<()> {
        // Nothing means never, and so does more than the clock can count.
        let span = span.and_then(|span| span.try_into().ok());
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: span.unwrap_or_default(),
        };
        rustix::time::timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

/// Has the poller watch a descriptor by its edges, for everything there is to tell.
pub(super) fn watch(poller: BorrowedFd<'_>, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
    let all = Flags::IN | Flags::PRI | Flags::RDHUP | Flags::OUT | Flags::ET;
    Ok(epoll::add(poller, fd, EventData::new_u64(key), all)?)
}
