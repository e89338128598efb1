//! Listeners for guests.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    future::poll_fn,
    io,
    rc::Rc,
    task::{Context, Poll},
};

use super::{
    hub::{End, Moves, Port, attempt},
    stream::{ForeignStream, IntoForeign},
};
use crate::{
    abi::Direction,
    trap::Caller,
    user::{
        device::Device,
        net::{Listener, ListenerKind},
        os::Os,
        select::Source,
    },
};

/// A listener for a guest, by [`Foreign::listener`](super::Foreign::listener).
pub struct ForeignListener<L: ListenerKind = Listener> {
    port: Rc<ListenerPort<L>>,
}

struct ListenerPort<L: ListenerKind> {
    listener: Device<L>,
    reads: End,
    accepted: RefCell<VecDeque<io::Result<Accepted<L>>>>,
}

/// A connection and its peer.
type Accepted<L> = (
    Device<<L as ListenerKind>::Stream>,
    <L as ListenerKind>::Peer,
);

impl<L: ListenerKind> Port for ListenerPort<L> {
    fn end(&self, _: Direction) -> &End {
        &self.reads
    }

    fn source(&self, _: Direction) -> Source {
        Source::readable(&self.listener)
    }

    fn read<'a>(&'a self, os: &'a mut Os, place: Caller) -> Moves<'a> {
        Box::pin(async move {
            let accept = async |os: &mut Os| L::accept(&self.listener, os).await;
            let result = attempt(os, place, accept).await;
            let Some(result) = self.reads.outcome(os, result).await else {
                return false;
            };
            self.accepted.borrow_mut().push_back(result);
            self.reads.wake();
            true
        })
    }
}

impl<L: ListenerKind> ForeignListener<L>
where
    Device<L::Stream>: IntoForeign,
{
    pub(super) fn new(listener: Device<L>) -> Self {
        Self {
            port: Rc::new(ListenerPort {
                listener,
                reads: End::default(),
                accepted: RefCell::default(),
            }),
        }
    }

    /// Accepts the next connection, and returns it with its peer's address. Dropping the future loses no
    /// connection. Any number of futures and guests may wait.
    ///
    /// *Errors:* as [`TcpListener::accept`](crate::TcpListener::accept).
    pub async fn accept(&self) -> io::Result<(ForeignStream, L::Peer)> {
        let waiter = self.port.reads.waiter();
        poll_fn(|cx| self.poll_accepted(cx, |cx| waiter.set_waker(cx))).await
    }

    /// The same, as a poll. Only the last one is woken.
    pub fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<(ForeignStream, L::Peer)>> {
        self.poll_accepted(cx, |cx| self.port.reads.set_waker(cx))
    }

    fn poll_accepted(
        &self,
        cx: &Context<'_>,
        set_waker: impl FnOnce(&Context<'_>),
    ) -> Poll<io::Result<(ForeignStream, L::Peer)>> {
        if let Some(accepted) = self.port.accepted.borrow_mut().pop_front() {
            return Poll::Ready(accepted.map(|(stream, peer)| (ForeignStream::new(stream), peer)));
        }
        let port = Rc::<ListenerPort<L>>::clone(&self.port);
        self.port.reads.list(port, Direction::Read)?;
        set_waker(cx);
        Poll::Pending
    }
}

impl<L: ListenerKind> Drop for ForeignListener<L> {
    fn drop(&mut self) {
        self.port.reads.forget();
    }
}

impl<L: ListenerKind> fmt::Debug for ForeignListener<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignListener({})", self.port.listener.id())
    }
}
