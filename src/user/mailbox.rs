//! Messages between kernels.
//!
//! In the kernel that takes from it, a mailbox is a message queue that interrupts fill. So waits, traces,
//! kills and timeouts treat it as any queue. The messages are in a list under a lock until the kernel
//! has the interrupt.

mod shared;
mod taped;

use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    fmt,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, OnceLock},
    task::{Context, Poll},
};

pub(super) use shared::Codec;
use shared::{Apart, Home, Key, OF_THREAD, PuttingEnd, Shared, State, TakingEnd, Ticket};

use super::{
    os::{Decode, Os, mismatch},
    queue::{Closed, Queue, TryPutError},
    select::{Arm, Source},
};
use crate::{
    abi::{Kind, QueueId, Reply, SystemCall},
    interrupt::{External, ExternalWork},
    panic::lock,
    trap::{
        BoundMailbox, Caller, Lack, Object, Received, SharedMailbox, Store, TrapFrame, mail_notes,
    },
};

/// The end of a mailbox that takes messages, which tasks of any kernel and other threads put. Clones are
/// ends of the same mailbox.
///
/// It is made outside of every kernel, and belongs to the kernel whose task first calls
/// [`Mailbox::get`]. Each message is taken exactly once, and those of one [`Sender`] in order. A
/// message that is matched with a task which is killed or cut before its turn goes to the next task,
/// or back to its place.
///
/// While it has senders, its kernel waits for mail and reports no deadlock, unless a daemon took first.
/// If nothing else is left to wait for, the kernel warns after 10 seconds;
/// [`Builder::max_stall`](crate::Builder::max_stall) limits the wait.
///
/// ```
/// use trapline::{Closed, Kernel, Kernels, Mailbox, Os};
///
/// let (sender, mailbox) = Mailbox::<u32>::bounded(2);
/// let reports = Kernels::new(2).run(move |id| {
///     let (sender, mailbox) = (sender.clone(), mailbox.clone());
///     let mut kernel = Kernel::real()?;
///     if id.index() == 0 {
///         kernel.spawn("counts", async move |os: &mut Os| {
///             for n in 0..10 {
///                 sender.put(os, n).await?;
///             }
///             Ok::<(), Closed<u32>>(())
///         })?;
///     } else {
///         drop(sender);
///         kernel.spawn("adds", async move |os: &mut Os| {
///             let mut sum = 0;
///             while let Ok(n) = mailbox.get(os).await {
///                 sum += n;
///             }
///             assert_eq!(sum, 45);
///         })?;
///     }
///     Ok(kernel)
/// });
/// for report in reports {
///     report?.check()?;
/// }
/// # Ok::<(), trapline::Error>(())
/// ```
pub struct Mailbox<T>(Arc<TakingEnd<T>>);

/// The end of a mailbox that puts messages, from tasks of any kernel and from other threads. Clones are
/// ends of the same mailbox. When the last is dropped, the mailbox is closed.
pub struct Sender<T>(Arc<PuttingEnd<T>>);

const THERE: &str = "a kernel has the mailboxes that its tasks take from";

/// The most messages whose memory is kept for the next.
const REUSED: usize = 1024;

impl<T: Send + 'static> Mailbox<T> {
    /// A mailbox with room for so many messages; 0 counts as 1. Messages that are put and not taken
    /// count. Returns its two ends.
    #[must_use]
    pub fn bounded(capacity: usize) -> (Sender<T>, Self) {
        Self::make(None, capacity.max(1), None)
    }

    /// A mailbox with room for any number of messages.
    #[must_use]
    pub fn unbounded() -> (Sender<T>, Self) {
        Self::make(None, usize::MAX, None)
    }

    /// A mailbox as [`Mailbox::bounded`] makes it, with a name, which reports and traces show.
    #[must_use]
    pub fn named(name: &str, capacity: usize) -> (Sender<T>, Self) {
        Self::make(Some(name.into()), capacity.max(1), None)
    }

    pub(super) fn make(
        name: Option<Box<str>>,
        capacity: usize,
        codec: Option<Codec<T>>,
    ) -> (Sender<T>, Self) {
        let shared = Arc::new(Shared {
            name,
            made: mail_notes::name(),
            capacity,
            codec,
            home: OnceLock::new(),
            taken: Apart::default(),
            ends: OnceLock::new(),
            state: Apart(Mutex::new(State {
                coming: VecDeque::new(),
                is_told: false,
                put: 0,
                seen: 0,
                waiting: VecDeque::new(),
                refused: BTreeMap::new(),
                putters: Vec::new(),
                twins: None,
                last_ticket: 0,
                has_senders: true,
                is_gone: false,
                external: None,
            })),
        });
        let putting = Arc::new(PuttingEnd(Arc::clone(&shared)));
        let taking = Arc::new(TakingEnd(Arc::clone(&shared)));
        let _ = shared
            .ends
            .set((Arc::downgrade(&putting), Arc::downgrade(&taking)));
        (Sender(putting), Self(taking))
    }

    /// Takes the first message. *Blocks* while there is none.
    ///
    /// The first call makes the mailbox belong to the kernel of its task. In any other kernel this
    /// faults the caller.
    ///
    /// *Errors:* [`Closed`] if every sender is gone and no message is left, before or during the call.
    #[track_caller]
    pub fn get<'a>(&'a self, os: &'a mut Os) -> impl Future<Output = Result<T, Closed>> + 'a {
        let place = os.note_caller();
        if self.0.0.home.get().is_some() {
            return Lane::Plain(self.take(os));
        }
        Lane::Seldom(Box::pin(async move {
            self.bind(os).await;
            os.frame().set_place(place);
            self.take(os).await
        }))
    }

    /// Returns an arm of [`Os::first`] that makes the call [`Mailbox::get`]. Makes the mailbox belong to the
    /// kernel of the caller, as the first get does. Never blocks.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use trapline::{Either2, Kernel, Mailbox, Os, after};
    ///
    /// # let mut kernel = Kernel::simulated(0);
    /// let (sender, mailbox) = Mailbox::<u32>::unbounded();
    /// sender.try_put(7).unwrap();
    /// kernel.spawn("main", async move |os: &mut Os| {
    ///     for expected in [Either2::First(Ok(7)), Either2::Second(())] {
    ///         let mail = mailbox.get_arm(os).await;
    ///         assert_eq!(os.first((mail, after(Duration::from_secs(1)))).await, expected);
    ///     }
    /// })?;
    /// # kernel.run()?.check()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn get_arm<'a>(
        &'a self,
        os: &'a mut Os,
    ) -> impl Future<Output = Arm<impl AsyncFnOnce(&mut Os) -> Result<T, Closed> + use<T>>> + 'a
    {
        os.note_caller();
        async move {
            self.bind(os).await;
            let home = self.0.0.home.get().expect("it belongs to a kernel");
            self.meet(home, os.frame());
            let queue = home.queue;
            // Held, because the arm may outlive the mailbox.
            let bound = os.frame().mailboxes.get(queue).expect(THERE);
            let source = Source::message(&Bound::<T>::of(&*bound).queue);
            Arm::new(source, async move |os: &mut Os| {
                let take = |number, frame: &TrapFrame| Bound::of(&*bound).take(number, frame);
                os.call_undoing(move |_| SystemCall::Get(queue), Getting { queue, take })
                    .await
            })
        }
    }

    /// For a caller that has noted its own caller. The mailbox belongs to a kernel.
    fn take<'a>(&'a self, os: &'a mut Os) -> impl Future<Output = Result<T, Closed>> + Unpin + 'a {
        let home = self.0.0.home.get().expect("it belongs to a kernel");
        let get = move |frame: &TrapFrame| {
            self.meet(home, frame);
            SystemCall::Get(home.queue)
        };
        // A look-up takes less than a handle for each get.
        let take = |number, frame: &TrapFrame| {
            let take = |bound: &dyn BoundMailbox| Bound::of(bound).take(number, frame);
            frame.mailboxes.with(home.queue, take).expect(THERE)
        };
        let queue = home.queue;
        os.call_undoing(get, Getting { queue, take })
    }

    /// Notes that a task takes.
    ///
    /// *Panics* if it is not of the kernel that the mailbox belongs to.
    #[inline(always)]
    fn meet(&self, home: &Home, frame: &TrapFrame) {
        mail_notes::touch(Object::Home, self.0.0.made, false);
        if !home.remote.is(&frame.remote) || home.run != frame.mailboxes.run() {
            panic!(
                "the mailbox belongs to kernel {}: only tasks of the kernel that first took from it can \
                 take from it",
                home.kernel
            )
        }
    }

    /// Makes the mailbox belong to the kernel of the caller, unless it belongs to one.
    async fn bind(&self, os: &mut Os) {
        let shared = &self.0.0;
        mail_notes::touch(Object::Home, shared.made, false);
        if shared.home.get().is_some() {
            return;
        }
        let queue = Queue::required(os, Kind::Mailbox, shared.name.as_deref()).await;
        let (remote, id) = (os.frame().remote.clone(), queue.id());
        mail_notes::touch(Object::Senders, shared.made, false);
        let mut state = shared.change();
        if shared.home.get().is_some() {
            // Another task was faster.
            return;
        }
        if !state.coming.is_empty() {
            state.is_told = true;
            remote.mail(id);
        }
        let external = ExternalWork::new(&remote, External::Mail);
        match state.has_senders {
            true => state.external = Some(external),
            false => remote.mail(id),
        }
        let mailboxes = &os.frame().mailboxes;
        let home = Home {
            kernel: os.kernel(),
            remote,
            run: mailboxes.run(),
            queue: id,
        };
        let _ = shared.home.set(home);
        mail_notes::touch(Object::Home, shared.made, true);
        drop(state);
        shared.tell_apart();
        let bound = Bound {
            queue,
            shared: Arc::clone(shared),
            spare: RefCell::default(),
            room: Cell::default(),
        };
        mailboxes.bind(id, Rc::new(bound));
    }
}

impl<T: Send + 'static> Sender<T> {
    /// Puts a message. *Blocks* while the mailbox is full. Tasks that wait for room get it in the order
    /// in which they began to wait.
    ///
    /// A put that is cut while it waits has put nothing, or its message is taken as any other.
    ///
    /// If the mailbox belongs to a kernel on a [tape](mod@crate::tape), two kernels with the same number that
    /// put into it fault the caller: [`Kernels`](crate::Kernels) gives each a number of its own.
    ///
    /// *Errors:* [`Closed`], with the message, if no task can take it any more: every [`Mailbox`] is
    /// dropped, or its kernel has ended.
    #[track_caller]
    pub fn put<'a>(
        &'a self,
        os: &'a mut Os,
        message: T,
    ) -> impl Future<Output = Result<(), Closed<T>>> + 'a {
        let place = os.note_caller();
        async move {
            let (shared, key) = (&self.0.0, os.frame().next_post());
            shared.meet(key.0, &os.frame().remote);
            if shared.home.get().is_none() {
                os.frame().mailboxes.note_unbound(shared);
            }
            let put = match os.frame().is_taped() {
                true => taped::put(os, shared, key, message).await,
                false => {
                    let message = Some(message);
                    let posting = Posting {
                        shared,
                        key,
                        message,
                    };
                    os.call_undoing(|_| SystemCall::Post, posting).await
                }
            };
            match put {
                Ok(()) => Ok(()),
                Err(TryPutError::Closed(message)) => Err(Closed(message)),
                Err(TryPutError::Full(message)) => {
                    self.wait_for_room(os, place, key, message).await
                }
            }
        }
    }

    /// Puts a message if there is room, from any thread, without a trap. Never blocks. A
    /// [tape](mod@crate::tape) does not hold the result.
    ///
    /// *Errors:* [`TryPutError`], with the message.
    pub fn try_put(&self, message: T) -> Result<(), TryPutError<T>> {
        self.0.0.try_put(OF_THREAD, message)
    }

    async fn wait_for_room(
        &self,
        os: &mut Os,
        place: Caller,
        key: Key,
        message: T,
    ) -> Result<(), Closed<T>> {
        let shared = &self.0.0;
        let room = Queue::<()>::required(os, Kind::Room, shared.name.as_deref()).await;
        let remote = os.frame().remote.clone();
        let _external = ExternalWork::new(&remote, External::Mail);
        let ticket = shared.wait(key, message, remote, room.id());
        let _room = os
            .frame()
            .is_taped()
            .then(|| taped::Room::bind(os, shared, ticket, room.id()));
        let ticket = Ticket { shared, ticket };
        os.frame().set_place(place);
        // Nothing is ever put: this returns when the queue is closed.
        let _ = room.take(os).await;
        ticket.result()
    }
}

/// Puts a message when the kernel has let the call pass.
struct Posting<'a, T> {
    shared: &'a Shared<T>,
    key: Key,
    message: Option<T>,
}

impl<T> Decode for Posting<'_, T> {
    type Output = Result<(), TryPutError<T>>;

    fn decode(&mut self, reply: Reply, _: &Rc<TrapFrame>) -> Self::Output {
        match (reply, self.message.take()) {
            (Reply::Done, Some(message)) => self.shared.try_put(self.key, message),
            (other, _) => mismatch(other),
        }
    }

    /// A call that is cut has no effect.
    fn undo(&mut self, _: Reply, _: &Rc<TrapFrame>) {}
}

/// Gets a message, and takes it from the store of the queue.
struct Getting<F> {
    queue: QueueId,
    take: F,
}

impl<T, F: FnMut(u64, &TrapFrame) -> T> Decode for Getting<F> {
    type Output = Result<T, Closed>;

    #[inline(always)]
    fn decode(&mut self, reply: Reply, frame: &Rc<TrapFrame>) -> Self::Output {
        match reply {
            Reply::Message(number) => Ok((self.take)(number, frame)),
            Reply::Err(_) => Err(Closed(())),
            other => mismatch(other),
        }
    }

    fn undo(&mut self, reply: Reply, frame: &Rc<TrapFrame>) {
        if let Reply::Message(number) = reply {
            frame.defer_word(SystemCall::GiveBack(self.queue), number);
        }
    }
}

/// A call that makes one trap if all is ready for it, which is how it is nearly always.
enum Lane<'a, F: Future> {
    Plain(F),
    Seldom(Pin<Box<dyn Future<Output = F::Output> + 'a>>),
}

impl<F: Future + Unpin> Future for Lane<'_, F> {
    type Output = F::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.get_mut() {
            Self::Plain(trap) => Pin::new(trap).poll(context),
            Self::Seldom(traps) => traps.as_mut().poll(context),
        }
    }
}

/// A mailbox in the kernel that takes from it.
struct Bound<T: Send + 'static> {
    /// Each message is with its key, which logs show.
    queue: Queue<(Key, T)>,
    shared: Arc<Shared<T>>,
    /// The memory of the last messages that came, for the next.
    spare: RefCell<VecDeque<(Key, T)>>,
    /// How much room was made that tasks may wait for, and were not told of.
    room: Cell<usize>,
}

impl<T: Send + 'static> BoundMailbox for Bound<T> {
    fn receive(&self, tape: Option<&mut Vec<u8>>) -> Received {
        let spare = self.spare.take();
        let mut state = lock(&self.shared.state.0);
        state.is_told = false;
        let coming = std::mem::replace(&mut state.coming, spare);
        let ends = [!state.has_senders, state.is_gone];
        drop(state);
        if let Some(tape) = tape {
            taped::write(tape, ends, &coming, self.shared.codec.as_ref());
        }
        self.store(coming, ends)
    }

    fn receive_again(&self, tape: &[u8]) -> Result<Received, Lack> {
        let (coming, ends) = taped::read(tape, &self.shared)?;
        Ok(self.store(coming, ends))
    }

    fn post_of(&self, message: u64) -> Option<Key> {
        self.queue.side().read(message, |(key, _)| *key)
    }

    fn shared(&self) -> Option<Arc<dyn SharedMailbox>> {
        Some(Arc::clone(&self.shared) as _)
    }

    fn discard(&self) {
        self.shared.discard();
        self.queue.side().clear();
    }

    fn admit(&self) {
        self.room.set(0);
        self.shared.admit();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<T: Send + 'static> Bound<T> {
    fn is_gone(&self) -> bool {
        lock(&self.shared.state.0).is_gone
    }

    fn of(mailbox: &dyn BoundMailbox) -> &Self {
        let of_type = mailbox.as_any().downcast_ref();
        of_type.expect("the queue of a mailbox has its messages")
    }

    /// Takes a message that a task got.
    #[inline(always)]
    fn take(&self, number: u64, frame: &TrapFrame) -> T {
        let (_, message) = self.queue.side().take(number);
        if self.shared.capacity < usize::MAX && self.shared.take_one() {
            self.make_room(frame);
        }
        message
    }

    /// Notes room for a message that a task may wait for. In the real world that task is told when half of
    /// the mailbox is free, or at the next poll, which comes before the kernel sleeps: to wake a kernel for
    /// each message would take ten times as long as the message.
    #[cold]
    #[inline(never)]
    fn make_room(&self, frame: &TrapFrame) {
        let room = self.room.get() + 1;
        self.room.set(room);
        if room >= self.shared.capacity.div_ceil(2) || frame.mailboxes.is_prompt() {
            self.admit();
        } else if room == 1 {
            frame.mailboxes.admit_soon(self.queue.id());
        }
    }

    /// Moves messages into the store of the queue. The ends tell whether there are no senders, and whether no task
    /// can take any more.
    fn store(&self, mut coming: VecDeque<(Key, T)>, [closes, is_gone]: [bool; 2]) -> Received {
        let numbers = self.queue.side().push_all(coming.drain(..));
        if coming.capacity() <= REUSED {
            self.spare.replace(coming);
        }
        Received {
            numbers,
            closes,
            is_gone,
        }
    }
}

impl<T: Send + 'static> Drop for Bound<T> {
    fn drop(&mut self) {
        // Whether the last handle went before decides what follows.
        mail_notes::touch(Object::Takers, self.shared.made, false);
        if !self.is_gone() {
            self.shared.refuse();
        }
    }
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        mail_notes::cloned(Object::Takers, self.0.0.made, || Arc::strong_count(&self.0));
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        mail_notes::dropped(Object::Takers, self.0.0.made, || Arc::strong_count(&self.0));
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        mail_notes::cloned(Object::Senders, self.0.0.made, || {
            Arc::strong_count(&self.0)
        });
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        mail_notes::dropped(Object::Senders, self.0.0.made, || {
            Arc::strong_count(&self.0)
        });
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mailbox").field(&self.0.0.name).finish()
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.0.0.name).finish()
    }
}
