//! Waits for the first of several things: [`Os::select`], and [`Os::first`], which also makes the call.

use std::{io, net::SocketAddr, rc::Rc, time::Duration};

use super::{
    child::Child,
    device::Device,
    net::{TcpListener, TcpStream},
    os::{Os, mismatch},
    promise::{Abandoned, Promise},
    queue::{Closed, Queue},
    signals::Signals,
    sync::{
        Flag, Group, Guard, Missed, Mutex, Once, Permit, Poisoned, READERS, Read, Receiver, RwLock,
        Semaphore, Watch, Write,
    },
    udp::UdpSocket,
    unix::{UnixListener, UnixStream},
};
use crate::{
    abi::{DeviceId, Direction, End, Exit, Interest, QueueId, Reply, Signal, SystemCall, Tid},
    trap::{Payload, TrapFrame},
};

/// Something that [`Os::select`] waits for. It names the thing, and does not keep it alive.
///
/// A source is ready when its call would not block. So it is also ready if that call
/// would fail: the queue is closed, the promise abandoned, the task gone, the device closed or taken by
/// another task, or the thing belongs to another kernel.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    interest: Interest,
    /// The kernel of the thing; null if every kernel has it.
    home: *const TrapFrame,
}

impl Source {
    fn device<S>(device: &Device<S>, direction: Direction) -> Self {
        Self {
            interest: Interest::Device(device.id(), direction),
            home: device.frame(),
        }
    }

    fn queue<T: 'static>(queue: &Queue<T>, end: End) -> Self {
        Self {
            interest: Interest::Queue(queue.id(), end),
            home: queue.frame(),
        }
    }

    fn of_permits(queue: &Queue<()>, count: u32) -> Self {
        Self {
            interest: Interest::Permits(queue.id(), count),
            home: queue.frame(),
        }
    }

    fn anywhere(interest: Interest) -> Self {
        let home = std::ptr::null();
        Self { interest, home }
    }

    /// Bytes, a connection or the end of a stream: for [`Device::recv`] and [`TcpListener::accept`].
    /// It is the readiness that the world has reported last, so these calls may block all the same.
    #[must_use]
    pub fn readable<S>(device: &Device<S>) -> Self {
        Self::device(device, Direction::Read)
    }

    /// Room for bytes: for [`Device::send`].
    #[must_use]
    pub fn writable<S>(device: &Device<S>) -> Self {
        Self::device(device, Direction::Write)
    }

    /// A message: for [`Queue::get`]. A queue without room has one only while a task waits to put.
    #[must_use]
    pub fn message<T: 'static>(queue: &Queue<T>) -> Self {
        Self::queue(queue, End::Get)
    }

    /// Room for a message: for [`Queue::put`]. A queue of capacity 0 has room only while a task waits
    /// to get. A task that selects does not count: two selects never meet.
    #[must_use]
    pub fn room<T: 'static>(queue: &Queue<T>) -> Self {
        Self::queue(queue, End::Put)
    }

    /// A permit: for [`Semaphore::acquire`].
    #[must_use]
    pub fn permit(semaphore: &Semaphore) -> Self {
        Self::queue(semaphore.permits(), End::Get)
    }

    /// So many permits at once, of at most 4,294,967,295: for [`Semaphore::acquire_many`].
    #[must_use]
    pub fn permits(semaphore: &Semaphore, count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Self::of_permits(semaphore.permits(), count)
    }

    /// The lock: for [`Mutex::lock`].
    #[must_use]
    pub fn lock<T: 'static>(mutex: &Mutex<T>) -> Self {
        Self::queue(mutex.token(), End::Get)
    }

    /// A share of the lock: for [`RwLock::read`].
    #[must_use]
    pub fn read<T: 'static>(lock: &RwLock<T>) -> Self {
        Self::queue(lock.permits(), End::Get)
    }

    /// The whole lock: for [`RwLock::write`]. It does not hold back readers as a waiting writer does.
    #[must_use]
    pub fn write<T: 'static>(lock: &RwLock<T>) -> Self {
        Self::of_permits(lock.permits(), READERS)
    }

    /// A value that the handle has not seen: for [`Watch::changed`]. It names the next change, and stays
    /// ready after it: each select needs a new one.
    #[must_use]
    pub fn changed<T: 'static>(watch: &Watch<T>) -> Self {
        Self::queue(&watch.seen(), End::Get)
    }

    /// A message, how many were missed, or the end: for [`Receiver::get`]. It names the next message, and
    /// stays ready after it: each select needs a new one.
    #[must_use]
    pub fn broadcast<T: Clone + 'static>(receiver: &Receiver<T>) -> Self {
        Self::queue(&receiver.gate(), End::Get)
    }

    /// The value is made, or no task makes it: for [`Once::get_or_init`], which may make it then.
    #[must_use]
    pub fn once<T: 'static>(once: &Once<T>) -> Self {
        Self::queue(once.token(), End::Get)
    }

    /// The flag is set: for [`Flag::wait`]. A flag that was set and cleared before the task's turn is
    /// not ready.
    #[must_use]
    pub fn flag(flag: &Flag) -> Self {
        Self::queue(flag.gate(), End::Get)
    }

    /// The promise is set or abandoned: for [`Promise::wait`].
    #[must_use]
    pub fn promise<T: Clone + 'static>(promise: &Promise<T>) -> Self {
        Self::queue(promise.decided(), End::Get)
    }

    /// The end of a task: for [`Os::wait`]. The zombie stays.
    #[must_use]
    pub fn exit(tid: Tid) -> Self {
        Self::anywhere(Interest::Exit(tid))
    }

    /// The end of a child: for [`Child::wait`].
    #[must_use]
    pub fn child<T: 'static>(child: &Child<T>) -> Self {
        Self {
            home: child.frame(),
            ..Self::exit(child.tid())
        }
    }

    /// The end of a member of a group: for [`Group::next`]. A group without members is not ready.
    #[must_use]
    pub fn member(group: &Group) -> Self {
        Self::queue(group.ended(), End::Get)
    }

    /// A signal: for [`Signals::next`].
    #[must_use]
    pub fn signal(signals: &Signals) -> Self {
        Self::queue(signals.queue(), End::Get)
    }

    /// A span from the call on. One of more than 584 years never ends.
    #[must_use]
    pub fn after(span: Duration) -> Self {
        Self::anywhere(Interest::After(span.into()))
    }

    /// An instant, counted from boot as by [`Os::now`].
    #[must_use]
    pub fn at(instant: Duration) -> Self {
        Self::anywhere(Interest::At(instant.into()))
    }

    /// Returns what the kernel of `os` is asked for. It has no part of another kernel.
    fn interest_in(&self, os: &Os) -> Interest {
        let is_home = self.home.is_null() || std::ptr::eq(self.home, Rc::as_ptr(os.frame()));
        match self.interest {
            interest if is_home => interest,
            Interest::Device(_, direction) => Interest::Device(DeviceId::NONE, direction),
            Interest::Queue(_, end) => Interest::Queue(QueueId::NONE, end),
            Interest::Permits(_, count) => Interest::Permits(QueueId::NONE, count),
            _ => Interest::Exit(Tid::KERNEL),
        }
    }
}

impl Os {
    /// Waits for the first of several sources, and returns its index: the lowest, if several are ready.
    /// *Blocks* until one is ready; without sources for ever.
    ///
    /// Nothing is taken. The kernel decides at the task's turn, and the task's next call is in the same
    /// turn. So the call for the source finds what was promised: no other task can come between. A task
    /// that waits in a call for the thing comes first; a select has no place among them. All selects on
    /// a thing wake when it becomes ready, in order of arrival, and one that finds nothing left goes on
    /// waiting. (Plan 9's `alt` and Go's `select` take; `epoll` and Beazley's curio leave.)
    ///
    /// ```
    /// # use std::time::Duration;
    /// use trapline::{Kernel, Os, Queue, Source};
    ///
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let orders = Queue::<u32>::unbounded(os).await;
    ///     orders.put(os, 7).await.ok();
    ///     let idle = Duration::from_secs(5);
    ///     let first = os.select(&[Source::message(&orders), Source::after(idle)]).await;
    ///     assert_eq!((first, orders.get(os).await), (0, Ok(7)));
    ///     let first = os.select(&[Source::message(&orders), Source::after(idle)]).await;
    ///     assert_eq!((first, os.now().await), (1, idle));
    /// })?;
    /// # kernel.run()?.check()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn select(&mut self, sources: &[Source]) -> impl Future<Output = usize> + use<'_> {
        self.select_from(0, sources)
    }

    /// The same, and looks at the source of index `first` before the others, and at those before it
    /// last. A loop that passes the last index plus one is fair to its sources.
    #[track_caller]
    pub fn select_from(
        &mut self,
        first: usize,
        sources: &[Source],
    ) -> impl Future<Output = usize> + use<'_> {
        self.note_caller();
        self.select_noted(first, sources)
    }

    /// For a caller that has noted its own caller.
    pub(super) fn select_noted(
        &mut self,
        first: usize,
        sources: &[Source],
    ) -> impl Future<Output = usize> + use<'_> {
        let sources = sources.iter().map(|source| source.interest_in(self));
        let sources = Payload::Interests(sources.collect());
        self.call(
            move |frame| {
                frame.put(sources);
                frame.put_word(first as u64);
                SystemCall::Select
            },
            |reply, _| match reply {
                Reply::Ready(index) => index as usize,
                other => mismatch(other),
            },
        )
    }

    /// Waits for the first of several calls that need not block, makes that call, and returns its result.
    /// The other calls are not made. *Blocks* until one can be made. (The `select!` of tokio, which begins
    /// all of them and drops the others.)
    ///
    /// ```
    /// # use std::time::Duration;
    /// use trapline::{Either3, Kernel, Os, Queue, after, sync::Flag};
    ///
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let (orders, stop) = (Queue::<u32>::unbounded(os).await, Flag::new(os).await);
    ///     orders.put(os, 7).await.ok();
    ///     let mut sum = 0;
    ///     loop {
    ///         let idle = after(Duration::from_secs(5));
    ///         match os.first((stop.wait_arm(), orders.get_arm(), idle)).await {
    ///             Either3::Second(Ok(order)) => sum += order,
    ///             Either3::First(()) | Either3::Second(Err(_)) | Either3::Third(()) => break,
    ///         }
    ///     }
    ///     assert_eq!(sum, 7);
    /// })?;
    /// # kernel.run()?.check()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn first<A: Arms>(&mut self, arms: A) -> impl Future<Output = A::Output> {
        let place = self.note_caller();
        async move {
            let index = self.select_noted(0, arms.sources().as_ref()).await;
            self.frame().set_place(place);
            arms.call(self, index).await
        }
    }
}

/// A call that [`Os::first`] makes if its source is ready first.
#[derive(Clone, Copy, Debug)]
pub struct Arm<F> {
    source: Source,
    call: F,
}

impl<T, F: AsyncFnOnce(&mut Os) -> T> Arm<F> {
    /// Makes an arm of a source and the call for it.
    pub fn new(source: Source, call: F) -> Self {
        Self { source, call }
    }
}

/// An arm for a span of time from the call on.
pub fn after(span: Duration) -> Arm<impl AsyncFnOnce(&mut Os)> {
    Arm::new(Source::after(span), async |_: &mut Os| ())
}

/// Arms of [`Os::first`]: a tuple of two to six.
pub trait Arms {
    /// The result of the call that is made.
    type Output;

    /// Returns their sources, in order.
    fn sources(&self) -> impl AsRef<[Source]>;

    /// Makes the call of this index.
    fn call(self, os: &mut Os, index: usize) -> impl Future<Output = Self::Output>;
}

macro_rules! arms {
    ($Either:ident, $number:literal: $($Variant:ident $T:ident $F:ident $arm:ident $index:literal),+) => {
        #[doc = concat!("The result of ", $number, " arms of [`Os::first`]: of the one that came first.")]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $Either<$($T),+> {
            $(
                #[doc = concat!("Of the ", stringify!($arm), " arm.")]
                $Variant($T),
            )+
        }

        impl<$($T, $F: AsyncFnOnce(&mut Os) -> $T),+> Arms for ($(Arm<$F>,)+) {
            type Output = $Either<$($T),+>;

            fn sources(&self) -> impl AsRef<[Source]> {
                let ($($arm,)+) = self;
                [$($arm.source),+]
            }

            async fn call(self, os: &mut Os, index: usize) -> Self::Output {
                let ($($arm,)+) = self;
                match index {
                    $($index => $Either::$Variant(($arm.call)(os).await),)+
                    _ => unreachable!("a select answers with one of its sources"),
                }
            }
        }
    };
}

arms!(Either2, "two": First A F first 0, Second B G second 1);
arms!(Either3, "three": First A F first 0, Second B G second 1, Third C H third 2);
arms!(Either4, "four": First A F first 0, Second B G second 1, Third C H third 2, Fourth D I fourth 3);
arms!(Either5, "five": First A F first 0, Second B G second 1, Third C H third 2, Fourth D I fourth 3,
    Fifth E J fifth 4);
arms!(Either6, "six": First A F first 0, Second B G second 1, Third C H third 2, Fourth D I fourth 3,
    Fifth E J fifth 4, Sixth K L sixth 5);

impl<T: 'static> Queue<T> {
    /// An arm of [`Os::first`] that makes the call [`Queue::get`].
    pub fn get_arm(&self) -> Arm<impl AsyncFnOnce(&mut Os) -> Result<T, Closed>> {
        Arm::new(Source::message(self), async |os: &mut Os| {
            self.take(os).await
        })
    }

    /// An arm of [`Os::first`] that makes the call [`Queue::put`]. If another arm comes first, the
    /// message is dropped.
    pub fn put_arm(&self, message: T) -> Arm<impl AsyncFnOnce(&mut Os) -> Result<(), Closed<T>>> {
        Arm::new(Source::room(self), async |os: &mut Os| {
            self.put(os, message).await
        })
    }
}

impl<S> Device<S> {
    /// An arm of [`Os::first`] that makes the call [`Device::recv`].
    pub fn recv_arm(&self, buf: &mut [u8]) -> Arm<impl AsyncFnOnce(&mut Os) -> io::Result<usize>> {
        Arm::new(Source::readable(self), async |os: &mut Os| {
            self.recv(os, buf).await
        })
    }

    /// An arm of [`Os::first`] that makes the call [`Device::send`].
    pub fn send_arm(&self, buf: &[u8]) -> Arm<impl AsyncFnOnce(&mut Os) -> io::Result<usize>> {
        Arm::new(Source::writable(self), async |os: &mut Os| {
            self.send(os, buf).await
        })
    }
}

impl TcpListener {
    /// An arm of [`Os::first`] that makes the call [`TcpListener::accept`].
    pub fn accept_arm(
        &self,
    ) -> Arm<impl AsyncFnOnce(&mut Os) -> io::Result<(TcpStream, SocketAddr)>> {
        Arm::new(Source::readable(self), async |os: &mut Os| {
            self.accept(os).await
        })
    }
}

impl UnixListener {
    /// An arm of [`Os::first`] that makes the call [`UnixListener::accept`].
    pub fn accept_arm(&self) -> Arm<impl AsyncFnOnce(&mut Os) -> io::Result<UnixStream>> {
        Arm::new(Source::readable(self), async |os: &mut Os| {
            self.accept(os).await
        })
    }
}

impl UdpSocket {
    /// An arm of [`Os::first`] that makes the call [`UdpSocket::recv_from`].
    pub fn recv_from_arm(
        &self,
        buf: &mut [u8],
    ) -> Arm<impl AsyncFnOnce(&mut Os) -> io::Result<(usize, SocketAddr)>> {
        Arm::new(Source::readable(self), async |os: &mut Os| {
            self.recv_from(os, buf).await
        })
    }
}

impl Flag {
    /// An arm of [`Os::first`] that makes the call [`Flag::wait`].
    pub fn wait_arm(&self) -> Arm<impl AsyncFnOnce(&mut Os)> {
        Arm::new(Source::flag(self), async |os: &mut Os| self.wait(os).await)
    }
}

impl Semaphore {
    /// An arm of [`Os::first`] that makes the call [`Semaphore::acquire`].
    pub fn acquire_arm(&self) -> Arm<impl AsyncFnOnce(&mut Os) -> Result<Permit, Closed>> {
        Arm::new(Source::permit(self), async |os: &mut Os| {
            self.acquire(os).await
        })
    }

    /// An arm of [`Os::first`] that makes the call [`Semaphore::acquire_many`].
    pub fn acquire_many_arm(
        &self,
        permits: usize,
    ) -> Arm<impl AsyncFnOnce(&mut Os) -> Result<Permit, Closed>> {
        Arm::new(Source::permits(self, permits), async move |os: &mut Os| {
            self.acquire_many(os, permits).await
        })
    }
}

impl<T: 'static> Mutex<T> {
    /// An arm of [`Os::first`] that makes the call [`Mutex::lock`].
    pub fn lock_arm(&self) -> Arm<impl AsyncFnOnce(&mut Os) -> Result<Guard<T>, Poisoned<T>>> {
        Arm::new(Source::lock(self), async |os: &mut Os| self.lock(os).await)
    }
}

impl<T: 'static> RwLock<T> {
    /// An arm of [`Os::first`] that makes the call [`RwLock::read`].
    pub fn read_arm(&self) -> Arm<impl AsyncFnOnce(&mut Os) -> Read<T>> {
        Arm::new(Source::read(self), async |os: &mut Os| self.read(os).await)
    }

    /// An arm of [`Os::first`] that makes the call [`RwLock::write`].
    pub fn write_arm(&self) -> Arm<impl AsyncFnOnce(&mut Os) -> Write<T>> {
        Arm::new(Source::write(self), async |os: &mut Os| {
            self.write(os).await
        })
    }
}

impl<T: 'static> Watch<T> {
    /// An arm of [`Os::first`] that makes the call [`Watch::changed`].
    pub fn changed_arm(&self) -> Arm<impl AsyncFnOnce(&mut Os)> {
        Arm::new(Source::changed(self), async |os: &mut Os| {
            self.changed(os).await;
        })
    }
}

impl<T: Clone + 'static> Receiver<T> {
    /// An arm of [`Os::first`] that makes the call [`Receiver::get`].
    pub fn get_arm(&self) -> Arm<impl AsyncFnOnce(&mut Os) -> Result<T, Missed>> {
        Arm::new(Source::broadcast(self), async |os: &mut Os| {
            self.get(os).await
        })
    }
}

impl<T: 'static> Once<T> {
    /// An arm of [`Os::first`] that makes the call [`Once::get_or_init`].
    pub fn get_or_init_arm<'a, F: AsyncFnOnce(&mut Os) -> T>(
        &'a self,
        init: F,
    ) -> Arm<impl AsyncFnOnce(&mut Os) -> &'a T> {
        Arm::new(Source::once(self), async |os: &mut Os| {
            self.get_or_init(os, init).await
        })
    }
}

impl<T: Clone + 'static> Promise<T> {
    /// An arm of [`Os::first`] that makes the call [`Promise::wait`].
    pub fn wait_arm(&self) -> Arm<impl AsyncFnOnce(&mut Os) -> Result<T, Abandoned>> {
        Arm::new(Source::promise(self), async |os: &mut Os| {
            self.wait(os).await
        })
    }
}

impl<T: 'static> Child<T> {
    /// An arm of [`Os::first`] that makes the call [`Child::wait`].
    pub fn wait_arm(&mut self) -> Arm<impl AsyncFnOnce(&mut Os) -> Result<T, Exit>> {
        Arm::new(Source::child(self), async |os: &mut Os| self.wait(os).await)
    }
}

impl Group {
    /// An arm of [`Os::first`] that makes the call [`Group::next`].
    pub fn next_arm(&mut self) -> Arm<impl AsyncFnOnce(&mut Os) -> Option<(Tid, Exit)>> {
        Arm::new(Source::member(self), async |os: &mut Os| {
            self.next(os).await
        })
    }
}

impl Signals {
    /// An arm of [`Os::first`] that makes the call [`Signals::next`].
    pub fn next_arm(&self) -> Arm<impl AsyncFnOnce(&mut Os) -> Signal> {
        Arm::new(Source::signal(self), async |os: &mut Os| {
            self.take(os).await
        })
    }
}
