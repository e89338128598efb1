//! What the two ends of a mailbox share: the messages under way, and those that wait for room.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use crate::{
    abi::{KernelId, QueueId},
    interrupt::{ExternalWork, Remote},
    panic::{contain, lock},
    trap::{
        Object, SharedMailbox,
        mail_notes::{self, MailboxName},
    },
    user::queue::{Closed, TryPutError},
};

/// What has put a message: its kernel, and the number of the put there.
pub(super) type Key = (u64, u64);

/// Threads are not told apart.
pub(super) const OF_THREAD: Key = (0, 0);

/// How values become bytes, and back.
pub(in crate::user) struct Codec<T> {
    pub(in crate::user) encode: fn(&T) -> Option<Vec<u8>>,
    pub(in crate::user) decode: fn(&[u8]) -> Option<T>,
}

pub(super) struct Shared<T> {
    pub(super) name: Option<Box<str>>,
    /// For the notes of a search.
    pub(super) made: MailboxName,
    /// How many messages may be put and not taken.
    pub(super) capacity: usize,
    /// Has their values on tapes.
    pub(super) codec: Option<Codec<T>>,
    /// The kernel that takes. Set once, with the lock held.
    pub(super) home: OnceLock<Home>,
    pub(super) taken: Apart<Taken>,
    /// Its two ends, for their numbers.
    pub(super) ends: OnceLock<Ends<T>>,
    pub(super) state: Apart<Mutex<State<T>>>,
}

/// A part that one end changes often. In cache lines of its own, two at a time as processors fetch them, or the
/// other end would fetch again what lies beside it.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);

/// What a get notes without the lock: a put rarely looks at it.
#[derive(Default)]
pub(super) struct Taken {
    /// How many messages were taken.
    count: AtomicUsize,
    /// Whether a task may wait for room. Set before the count is read, which rises before this is read:
    /// so a task that waits sees the room, or the get sees the task.
    is_awaited: AtomicBool,
}

/// The last handle that takes ends the mailbox.
pub(super) struct TakingEnd<T>(pub(super) Arc<Shared<T>>);

/// The last handle that puts closes it.
pub(super) struct PuttingEnd<T>(pub(super) Arc<Shared<T>>);

impl<T> Drop for TakingEnd<T> {
    fn drop(&mut self) {
        self.0.refuse();
        if let Some(home) = self.0.home.get() {
            // It forgets the mailbox, and with it the messages that no task has taken.
            home.remote.mail(home.queue);
        }
    }
}

impl<T> Drop for PuttingEnd<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

type Ends<T> = (Weak<PuttingEnd<T>>, Weak<TakingEnd<T>>);

pub(super) struct Home {
    pub(super) kernel: KernelId,
    pub(super) remote: Remote,
    /// The run of the kernel.
    pub(super) run: u64,
    pub(super) queue: QueueId,
}

pub(super) struct State<T> {
    /// The messages that the kernel has not taken over.
    pub(super) coming: VecDeque<(Key, T)>,
    /// Whether the kernel is told that there are some.
    pub(super) is_told: bool,
    /// How many were put.
    pub(super) put: usize,
    /// How many were taken when the mailbox last seemed full.
    pub(super) seen: usize,
    /// The tasks that wait for room, in order.
    pub(super) waiting: VecDeque<Waiting<T>>,
    /// The messages of those that have waited in vain, until their tasks take them back. In a replay, also
    /// those that the tape may yet admit.
    pub(super) refused: BTreeMap<u64, (Key, T)>,
    /// The kernels whose tasks put, by their numbers, until the mailbox belongs to a kernel without a tape.
    pub(super) putters: Vec<(u64, Remote)>,
    /// The number of two of them.
    pub(super) twins: Option<u64>,
    pub(super) last_ticket: u64,
    pub(super) has_senders: bool,
    pub(super) is_gone: bool,
    /// The kernel that takes waits for the senders.
    pub(super) external: Option<ExternalWork>,
}

/// A task that waits for room.
pub(super) struct Waiting<T> {
    pub(super) ticket: u64,
    pub(super) key: Key,
    pub(super) message: T,
    pub(super) remote: Remote,
    /// The queue in its kernel whose close wakes it.
    pub(super) room: QueueId,
}

impl<T> Shared<T> {
    /// Returns the state, for a call that may change it.
    pub(super) fn change(&self) -> MutexGuard<'_, State<T>> {
        mail_notes::touch(Object::Mailbox, self.made, true);
        lock(&self.state.0)
    }

    /// Notes that a task of this kernel puts.
    ///
    /// *Panics* as [`Self::tell_apart`] does.
    pub(super) fn meet(&self, kernel: u64, remote: &Remote) {
        if self.home.get().is_some_and(|home| !home.remote.is_taped()) {
            return;
        }
        let mut state = lock(&self.state.0);
        let mut known = state.putters.iter().filter(|(other, _)| *other == kernel);
        match known.next() {
            None => state.putters.push((kernel, remote.clone())),
            Some((_, other)) if !other.is(remote) => state.twins = Some(kernel),
            Some(_) => {}
        }
        drop(state);
        self.tell_apart();
    }

    /// A tape tells the kernels that put by their numbers.
    ///
    /// *Panics* if two have the same, and the kernel that takes is on a tape.
    pub(super) fn tell_apart(&self) {
        let is_taped = self.home.get().is_some_and(|home| home.remote.is_taped());
        let twins = lock(&self.state.0).twins.filter(|_| is_taped);
        if let Some(kernel) = twins {
            panic!(
                "two kernels with the number {kernel} put into one mailbox, and the tape of its kernel cannot \
                 tell them apart: boot them with Kernels, which gives each a number"
            );
        }
    }

    /// Whether fewer messages are put and not taken than there is room for.
    fn has_room(&self, state: &mut State<T>) -> bool {
        if state.put - state.seen >= self.capacity {
            state.seen = self.taken.0.count.load(SeqCst);
        }
        state.put - state.seen < self.capacity
    }

    pub(super) fn try_put(&self, key: Key, message: T) -> Result<(), TryPutError<T>> {
        let mut state = self.change();
        if state.is_gone {
            return Err(TryPutError::Closed(message));
        }
        if !state.waiting.is_empty() || !self.has_room(&mut state) {
            return Err(TryPutError::Full(message));
        }
        let told = self.push(&mut state, key, message);
        drop(state);
        if let Some(home) = told {
            home.remote.mail(home.queue);
        }
        Ok(())
    }

    /// Adds a message. Returns the kernel that takes, if it is still to be told. A kernel that is not bound
    /// yet finds what is there.
    pub(super) fn push(&self, state: &mut State<T>, key: Key, message: T) -> Option<&Home> {
        state.put += 1;
        state.coming.push_back((key, message));
        let home = self.home.get().filter(|_| !state.is_told)?;
        state.is_told = true;
        Some(home)
    }

    /// Puts a message that the tape says was put, whether there is room or not.
    pub(super) fn put_again(&self, key: Key, message: T) {
        let mut state = self.change();
        if state.is_gone {
            return;
        }
        let home = self.push(&mut state, key, message);
        drop(state);
        if let Some(home) = home {
            home.remote.mail(home.queue);
        }
    }

    /// Has a message wait for room. Returns its ticket.
    pub(super) fn wait(&self, key: Key, message: T, remote: Remote, room: QueueId) -> u64 {
        let mut state = self.change();
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        if remote.plays() && !room.is_of_daemon() {
            // The tape says whether there was room.
            state.refused.insert(ticket, (key, message));
            return ticket;
        }
        state.waiting.push_back(Waiting {
            ticket,
            key,
            message,
            remote,
            room,
        });
        self.taken.0.is_awaited.store(true, SeqCst);
        if state.is_gone {
            drop(state);
            self.refuse();
        } else if self.has_room(&mut state) {
            // Room was made meanwhile.
            drop(state);
            self.admit();
        }
        ticket
    }

    /// Notes that a message is taken, without the lock. Returns whether a task may wait for room.
    #[inline]
    pub(super) fn take_one(&self) -> bool {
        mail_notes::touch(Object::Mailbox, self.made, true);
        self.taken.0.count.fetch_add(1, SeqCst);
        self.taken.0.is_awaited.load(SeqCst)
    }

    /// Admits the messages that wait for room.
    #[cold]
    #[inline(never)]
    pub(super) fn admit(&self) {
        let mut state = self.change();
        // One that waits although the mailbox is gone is about to be refused.
        while !state.is_gone
            && self.has_room(&mut state)
            && let Some(next) = state.waiting.pop_front()
        {
            if let Some(home) = self.push(&mut state, next.key, next.message) {
                home.remote.mail(home.queue);
            }
            tell(&next.remote, next.room);
        }
        let is_awaited = !state.waiting.is_empty();
        self.taken.0.is_awaited.store(is_awaited, SeqCst);
    }

    /// Refuses all messages, because no task can take one any more.
    pub(super) fn refuse(&self) {
        mail_notes::touch(Object::Takers, self.made, true);
        let mut state = self.change();
        state.is_gone = true;
        let (coming, external) = (std::mem::take(&mut state.coming), state.external.take());
        let waiting = std::mem::take(&mut state.waiting);
        let woken: Vec<_> = waiting
            .into_iter()
            .map(|next| {
                state.refused.insert(next.ticket, (next.key, next.message));
                (next.remote, next.room)
            })
            .collect();
        drop(state);
        for (remote, room) in woken {
            tell(&remote, room);
        }
        drop((coming, external));
    }

    pub(super) fn close(&self) {
        mail_notes::touch(Object::Senders, self.made, true);
        // A kernel that takes no more learns nothing.
        mail_notes::touch(Object::Takers, self.made, false);
        let mut state = lock(&self.state.0);
        state.has_senders = false;
        let external = state.external.take();
        drop(state);
        if let Some(home) = self.home.get() {
            home.remote.mail(home.queue);
        }
        // The queue must be closed before the kernel stops waiting.
        drop(external);
    }
}

impl<T: Send + 'static> SharedMailbox for Shared<T> {
    fn ends(&self) -> [usize; 2] {
        let ends = self.ends.get();
        ends.map_or([0; 2], |(putting, taking)| {
            [putting.strong_count(), taking.strong_count()]
        })
    }

    fn rooms(&self) -> Vec<(Remote, QueueId)> {
        let state = lock(&self.state.0);
        let waiting = state.waiting.iter();
        waiting.map(|one| (one.remote.clone(), one.room)).collect()
    }

    fn is_bound(&self) -> bool {
        self.home.get().is_some()
    }

    fn discard(&self) {
        let coming = std::mem::take(&mut lock(&self.state.0).coming);
        for message in coming {
            contain(|| drop(message));
        }
    }
}

/// A message that waits for room, until its task has its result.
pub(super) struct Ticket<'a, T> {
    pub(super) shared: &'a Shared<T>,
    pub(super) ticket: u64,
}

impl<T> Ticket<'_, T> {
    pub(super) fn result(self) -> Result<(), Closed<T>> {
        let refused = self.shared.change().refused.remove(&self.ticket);
        refused.map_or(Ok(()), |(_, message)| Err(Closed(message)))
    }
}

impl<T> Drop for Ticket<'_, T> {
    /// A put that is cut is withdrawn.
    fn drop(&mut self) {
        let mut state = self.shared.change();
        let mut waiting = state.waiting.iter();
        let at = waiting.position(|waiting| waiting.ticket == self.ticket);
        let withdrawn = at.and_then(|at| state.waiting.remove(at));
        let refused = state.refused.remove(&self.ticket);
        drop(state);
        drop((withdrawn, refused));
    }
}

/// Tells a task that waits for room that its wait is over.
pub(super) fn tell(remote: &Remote, room: QueueId) {
    match remote.is_taped() && !room.is_of_daemon() {
        true => remote.mail(room),
        false => remote.ring(room),
    }
}
