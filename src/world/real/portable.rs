//! Systems other than Linux: `polling`, as it comes. Its tests run on Linux too.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    time::Duration,
};

use polling::{Event, Events, PollMode, Poller};

use super::poller::{Readiness, System};

pub(super) struct Portable {
    events: Events,
}

impl System for Portable {
    fn new(_: &Poller) -> io::Result<Self> {
        Ok(Self {
            events: Events::new(),
        })
    }

    fn watch(&self, poller: &Poller, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        let key = usize::try_from(key).map_err(|_| io::ErrorKind::Unsupported)?;
        #[expect(
            unsafe_code,
            reason = "polling cannot know that its sources outlive their registration"
        )]
        // SAFETY: what has lent the descriptor goes to the `Poller` of `poller.rs` or to the world's
        // `sources`, which keep it open and never lend another in its place: a `Socket` and a pipe
        // own it, and a `Descriptor` was told of it once. It leaves them after its registration was
        // deleted, or after the poller, which is dropped first.
        unsafe {
            poller.add_with_mode(fd.as_raw_fd(), Event::all(key), PollMode::Edge)
        }
    }

    fn wait(
        &mut self,
        poller: &Poller,
        _deadline: Option<Duration>,
        span: Option<Duration>,
        mut tell: impl FnMut(u64, &Readiness),
    ) -> io::Result<()> {
        self.events.clear();
        poller.wait(&mut self.events, span)?;
        for event in self.events.iter() {
            let readiness = Readiness {
                readable: event.readable,
                writable: event.writable,
                unclear: true,
            };
            tell(event.key as u64, &readiness);
        }
        Ok(())
    }
}
