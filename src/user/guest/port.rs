//! The ends of devices that guests wait for.

use std::{
    cell::RefCell,
    io, mem, ptr,
    rc::{Rc, Weak},
    task::{Context, Wake, Waker},
    time::Duration,
};

use super::{
    hub::{self, Hub},
    listener::Accepting,
    stream::StreamPort,
    udp::UdpPort,
};
use crate::{
    abi::Direction,
    trap::Caller,
    user::{device::Device, os::Os, select::Source},
};

/// A device that a guest uses.
#[derive(Clone)]
pub(super) enum Port {
    Stream(Rc<StreamPort>),
    Accepting(Rc<dyn Accepting>),
    Udp(Rc<UdpPort>),
}

impl Port {
    pub(super) fn end(&self, direction: Direction) -> &End {
        match (self, direction) {
            (Self::Stream(port), Direction::Read) => &port.reads,
            (Self::Stream(port), Direction::Write) => &port.writes,
            (Self::Accepting(port), _) => port.end(),
            (Self::Udp(port), Direction::Read) => &port.reads,
            (Self::Udp(port), Direction::Write) => &port.writes,
        }
    }

    /// Returns whether the guest of this hub still waits for this end.
    pub(super) fn is_wanted(&self, direction: Direction, hub: &Rc<Hub>) -> bool {
        self.end(direction).is_of(hub)
            && match (self, direction) {
                (Self::Stream(port), Direction::Write) => port.has_unsent(),
                (Self::Udp(port), Direction::Write) => port.has_unsent(),
                (_, Direction::Read) => self.end(direction).is_awaited(),
                (Self::Accepting(_), Direction::Write) => false,
            }
    }

    pub(super) fn source(&self, direction: Direction) -> Source {
        fn of<S>(device: &Device<S>, direction: Direction) -> Source {
            match direction {
                Direction::Read => Source::readable(device),
                Direction::Write => Source::writable(device),
            }
        }
        match self {
            Self::Stream(port) => port.source(direction),
            Self::Accepting(port) => port.source(),
            Self::Udp(port) => of(&port.socket, direction),
        }
    }

    /// Reads what is there. Returns whether there was something.
    pub(super) async fn read(&self, os: &mut Os, place: Caller) -> bool {
        match self {
            Self::Stream(port) => port.read(os, place).await,
            Self::Accepting(port) => port.accept(os, place).await,
            Self::Udp(port) => port.read(os, place).await,
        }
    }

    /// Writes what the guest has left. Returns whether there was room.
    pub(super) async fn write(&self, os: &mut Os, place: Caller) -> bool {
        match self {
            Self::Stream(port) => port.write(os, place).await,
            Self::Accepting(_) => true,
            Self::Udp(port) => port.write(os, place).await,
        }
    }
}

/// One direction of a device: the guest whose task does the calls, and the waker of what waits.
#[derive(Default)]
pub(super) struct End(RefCell<EndState>);

#[derive(Default)]
struct EndState {
    hub: Weak<Hub>,
    /// Whether that guest has it on its list.
    is_listed: bool,
    waker: Option<Waker>,
    /// Whether the task that did the calls before may still have the device.
    has_moved: bool,
}

impl End {
    fn is_of(&self, hub: &Rc<Hub>) -> bool {
        ptr::eq(self.0.borrow().hub.as_ptr(), Rc::as_ptr(hub))
    }

    fn is_awaited(&self) -> bool {
        self.0.borrow().waker.is_some()
    }

    pub(super) fn set_waker(&self, cx: &Context<'_>) {
        let before = self.0.borrow_mut().waker.replace(cx.waker().clone());
        drop(before);
    }

    /// Has the task of the guest that is polled make the calls for this end.
    pub(super) fn list(&self, port: Port, direction: Direction) -> io::Result<()> {
        let hub = hub::current().ok_or_else(outside)?;
        let is_here = self.is_of(&hub);
        let mut state = self.0.borrow_mut();
        if is_here && state.is_listed {
            return Ok(());
        }
        state.is_listed = true;
        let before = mem::replace(&mut state.hub, Rc::downgrade(&hub));
        let before = before.upgrade().filter(|_| !is_here);
        state.has_moved |= before.is_some();
        drop(state);
        if let Some(before) = before {
            // Its select may have the device. What two guests use is shared.
            before.is_unshared.set(false);
            hub.is_unshared.set(false);
            before.wakes.wake_by_ref();
        }
        hub.want(port, direction);
        Ok(())
    }

    /// Notes that a guest has taken it off its list.
    pub(super) fn unlist(&self, hub: &Rc<Hub>) {
        if self.is_of(hub) {
            self.0.borrow_mut().is_listed = false;
        }
    }

    /// Ends the wait of a handle that is gone.
    pub(super) fn forget(&self) {
        let mut state = self.0.borrow_mut();
        let (waker, hub) = (state.waker.take(), state.hub.upgrade());
        drop(state);
        drop(waker);
        // The device closes once that guest's list does not have it.
        if let Some(hub) = hub
            && !hub::current().is_some_and(|current| Rc::ptr_eq(&current, &hub))
        {
            hub.wakes.wake_by_ref();
        }
    }

    pub(super) fn wake(&self) {
        let waker = self.0.borrow_mut().waker.take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Makes sense of the result of an attempt; `None` if it is to be made again later.
    pub(super) async fn outcome<T>(
        &self,
        os: &mut Os,
        result: Option<io::Result<T>>,
    ) -> Option<io::Result<T>> {
        match result {
            Some(Err(error))
                if error.kind() == io::ErrorKind::ResourceBusy && self.0.borrow().has_moved =>
            {
                // The task that had it before leaves it at its next turn.
                os.yield_now().await;
                None
            }
            None => None,
            other => {
                self.0.borrow_mut().has_moved = false;
                other
            }
        }
    }
}

/// The error of a device that is used where no guest is polled.
pub(super) fn outside() -> io::Error {
    io::Error::other(
        "it is polled outside of Os::run_future: a guest must poll it, on its kernel's thread",
    )
}

/// Makes a call if it does not block.
pub(super) async fn attempt<T>(
    os: &mut Os,
    place: Caller,
    call: impl AsyncFnOnce(&mut Os) -> T,
) -> Option<T> {
    let tried = os.timeout(Duration::ZERO, async |os: &mut Os| {
        os.frame().set_place(place);
        call(os).await
    });
    tried.await.ok()
}
