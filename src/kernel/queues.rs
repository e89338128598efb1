//! The kernel's part of message queues: numbers of messages, and who waits at either end.
//!
//! This is the one primitive that blocks tasks on each other. A promise, a flag and a barrier
//! are queues that are closed; a semaphore and a mutex are queues of tokens.

use std::{collections::VecDeque, rc::Rc};

use slab::Slab;

use super::{Kernel, Outcome, contain};
use crate::{
    abi::{End, Errno, QueueId, Reply, SystemCall},
    event::Wake,
    frame::{Frame, Gauge, Payload, Store},
    sched::Runnable,
    task::{self, Answer, Place, State, Task},
};

pub(super) struct MessageQueue {
    id: QueueId,
    capacity: u64,
    closed: bool,
    /// The messages to be had, in order of their numbers.
    available: VecDeque<u64>,
    /// Who waits for a message. Nobody does while one is to be had.
    getters: VecDeque<Runnable>,
    /// Who waits for room, with the message.
    putters: VecDeque<(Runnable, u64)>,
    store: Rc<dyn Store>,
    gauge: Rc<Gauge>,
}

/// What came of a put.
enum Put {
    Stored,
    /// It is for this task, which waited for one.
    Handed(Runnable),
    Full,
    Closed,
}

/// What came of a get.
enum Got {
    Message(u64),
    /// The same, and this task's put, which waited for room, is done.
    Admitted(u64, Runnable),
    Empty,
    Closed,
}

impl MessageQueue {
    fn put(&mut self, message: u64) -> Put {
        if self.closed {
            return Put::Closed;
        }
        if let Some(getter) = self.next_getter() {
            return Put::Handed(getter);
        }
        if self.available.len() as u64 >= self.capacity {
            return Put::Full;
        }
        self.store(message);
        Put::Stored
    }

    /// Whether a message can be stored, and nobody waits for it.
    fn has_room(&self) -> bool {
        let is_full = self.available.len() as u64 >= self.capacity;
        !is_full && !self.closed && self.getters.is_empty()
    }

    fn store(&mut self, message: u64) {
        self.available.push_back(message);
        self.publish();
    }

    fn get(&mut self) -> Got {
        let first = self.available.pop_front();
        // A message that was given back may have left less room than none.
        let room = first.is_none() || (self.available.len() as u64) < self.capacity;
        let admitted = room.then(|| self.putters.pop_front()).flatten();
        let got = match (first, admitted) {
            (Some(message), None) => Got::Message(message),
            (Some(message), Some((putter, next))) => {
                self.available.push_back(next);
                Got::Admitted(message, putter)
            }
            (None, Some((putter, message))) => Got::Admitted(message, putter),
            (None, None) if self.closed => Got::Closed,
            (None, None) => Got::Empty,
        };
        self.publish();
        got
    }

    /// Takes a message back that was matched with a task which will not take it. Answers who gets
    /// it instead; otherwise it is in its old place.
    fn give_back(&mut self, message: u64) -> Option<Runnable> {
        let next = self.next_getter();
        if next.is_none() {
            let place = self.available.partition_point(|other| *other < message);
            self.available.insert(place, message);
            self.publish();
        }
        next
    }

    /// Closes it and answers who waited, with the messages of those that wanted to put one.
    fn close(&mut self) -> (VecDeque<Runnable>, VecDeque<(Runnable, u64)>) {
        self.closed = true;
        self.gauge.closed.set(true);
        self.gauge.waiting.set(0);
        (
            std::mem::take(&mut self.getters),
            std::mem::take(&mut self.putters),
        )
    }

    /// Forgets a task that waits to put, and answers its message.
    fn forget_putter(&mut self, task: Runnable) -> Option<u64> {
        let place = task::find_waiter(&self.putters, |(other, _)| *other == task)?;
        self.putters.remove(place).map(|(_, message)| message)
    }

    fn forget_getter(&mut self, task: Runnable) {
        if let Some(place) = task::find_waiter(&self.getters, |other| *other == task) {
            self.getters.remove(place);
            self.gauge.waiting.set(self.getters.len());
        }
    }

    fn add_getter(&mut self, task: Runnable) {
        self.getters.push_back(task);
        self.gauge.waiting.set(self.getters.len());
    }

    /// Takes the task that has waited longest for a message.
    fn next_getter(&mut self) -> Option<Runnable> {
        let next = self.getters.pop_front();
        self.gauge.waiting.set(self.getters.len());
        next
    }

    pub(super) fn id(&self) -> QueueId {
        self.id
    }

    pub(super) fn waiters(&self) -> impl Iterator<Item = Runnable> {
        self.getters
            .iter()
            .copied()
            .chain(self.putters.iter().map(|(task, _)| *task))
    }

    fn publish(&self) {
        self.gauge.len.set(self.available.len());
    }
}

/// The queues of a kernel, each found by the place in its name.
#[derive(Default)]
pub(super) struct Queues {
    slots: Slab<MessageQueue>,
    last: u64,
}

impl Queues {
    /// How many there are.
    fn len(&self) -> usize {
        self.slots.len()
    }

    /// Makes a queue; `None` where its table has no room for one more.
    pub(super) fn insert(
        &mut self,
        capacity: u64,
        store: Rc<dyn Store>,
        gauge: Rc<Gauge>,
    ) -> Option<QueueId> {
        let entry = self.slots.vacant_entry();
        let id = QueueId::new(self.last + 1, entry.key())?;
        self.last += 1;
        entry.insert(MessageQueue {
            id,
            capacity,
            closed: false,
            available: VecDeque::new(),
            getters: VecDeque::new(),
            putters: VecDeque::new(),
            store,
            gauge,
        });
        Some(id)
    }

    pub(super) fn get_mut(&mut self, id: QueueId) -> Option<&mut MessageQueue> {
        self.slots.get_mut(id.slot()).filter(|queue| queue.id == id)
    }

    pub(super) fn remove(&mut self, id: QueueId) -> Option<MessageQueue> {
        self.get_mut(id)?;
        self.slots.try_remove(id.slot())
    }

    /// Does a put for which there is room, or a get of what is there, if nobody else has to be
    /// told: most of what goes through a long queue. Answers whether it was one.
    #[inline(never)]
    pub(super) fn at_once(&mut self, call: SystemCall, frame: &Frame, task: &mut Task) -> bool {
        match call {
            SystemCall::Put(queue) | SystemCall::TryPut(queue) if frame.is_empty() => {
                if let Some(found) = self.get_mut(queue)
                    && found.has_room()
                    && let Some(message) = frame.message.take()
                {
                    found.store(message);
                    task.change(State::Ready(Reply::Done));
                    return true;
                }
            }
            SystemCall::Get(queue) | SystemCall::TryGet(queue) if frame.is_empty() => {
                if let Some(found) = self.get_mut(queue)
                    && found.putters.is_empty()
                    && let Some(message) = found.available.pop_front()
                {
                    found.publish();
                    task.change(State::Owed(Answer::Message(queue, message)));
                    return true;
                }
            }
            _ => {}
        }
        false
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &MessageQueue> {
        self.slots.iter().map(|(_, queue)| queue)
    }
}

/// The calls on queues.
impl Kernel {
    pub(super) fn new_queue(&mut self, capacity: u64) -> Outcome {
        let Some(Payload::Queue(store, gauge)) = self.frame.take() else {
            return Outcome::Reply(Reply::Err(Errno::Invalid));
        };
        let has_room = self.queues.len() < self.limits.queues;
        let queue = has_room.then(|| self.queues.insert(capacity, store, gauge));
        Outcome::Reply(match queue.flatten() {
            Some(queue) => Reply::Queue(queue),
            None => Reply::Err(Errno::Closed),
        })
    }

    pub(super) fn put(&mut self, me: Runnable, queue: QueueId) -> Outcome {
        let Some(message) = self.frame.message.take() else {
            return Outcome::Reply(Reply::Err(Errno::Invalid));
        };
        match self.put_message(queue, message) {
            Reply::Done => Outcome::Reply(Reply::Done),
            Reply::Full(message) => {
                let full = self.queues.get_mut(queue).expect("a full queue exists");
                full.putters.push_back((me, message));
                self.block(me, Place::Queue(queue, End::Put))
            }
            reply => self.answer_put(me, queue, reply),
        }
    }

    pub(super) fn try_put(&mut self, me: Runnable, queue: QueueId) -> Outcome {
        let Some(message) = self.frame.message.take() else {
            return Outcome::Reply(Reply::Err(Errno::Invalid));
        };
        let reply = self.put_message(queue, message);
        self.answer_put(me, queue, reply)
    }

    fn answer_put(&mut self, me: Runnable, queue: QueueId, reply: Reply) -> Outcome {
        match reply {
            Reply::Full(message) => self.answer(me, Answer::Full(queue, message)),
            Reply::Message(message) => self.answer(me, Answer::Refused(queue, message)),
            done => Outcome::Reply(done),
        }
    }

    pub(super) fn put_message(&mut self, queue: QueueId, message: u64) -> Reply {
        let Some(found) = self.queues.get_mut(queue) else {
            return Reply::Message(message);
        };
        match found.put(message) {
            Put::Stored => Reply::Done,
            Put::Handed(getter) => {
                self.wake(getter, Wake::Queue(queue), Answer::Message(queue, message));
                Reply::Done
            }
            Put::Full => Reply::Full(message),
            Put::Closed => Reply::Message(message),
        }
    }

    /// Puts a message that was posted from a destructor; one that cannot be put is dropped.
    pub(super) fn put_posted(&mut self, queue: QueueId, message: u64) {
        if let Some(found) = self.queues.get_mut(queue) {
            let posted = &found.gauge.posted;
            posted.set(posted.get() - 1);
        }
        if self.put_message(queue, message) != Reply::Done {
            self.discard(queue, message);
        }
    }

    /// Drops a message that nobody will get.
    pub(super) fn discard(&mut self, queue: QueueId, message: u64) {
        if let Some(found) = self.queues.get_mut(queue) {
            let store = Rc::clone(&found.store);
            contain(|| store.discard(message));
        }
    }

    pub(super) fn get(&mut self, me: Runnable, queue: QueueId) -> Outcome {
        match self.try_get(me, queue) {
            Outcome::Reply(Reply::Again) => {
                let empty = self.queues.get_mut(queue).expect("an empty queue exists");
                empty.add_getter(me);
                self.block(me, Place::Queue(queue, End::Get))
            }
            outcome => outcome,
        }
    }

    pub(super) fn try_get(&mut self, me: Runnable, queue: QueueId) -> Outcome {
        let Some(found) = self.queues.get_mut(queue) else {
            return Outcome::Reply(Reply::Err(Errno::Closed));
        };
        match found.get() {
            Got::Message(message) => self.hand_out(me, queue, message),
            Got::Admitted(message, putter) => {
                self.wake(putter, Wake::Queue(queue), Reply::Done);
                self.hand_out(me, queue, message)
            }
            Got::Empty => Outcome::Reply(Reply::Again),
            Got::Closed => Outcome::Reply(Reply::Err(Errno::Closed)),
        }
    }

    /// Answers the caller with a message. The answer is made in its place: one that is carried there
    /// has to be dropped if there should be no such task, and so cannot be carried in registers.
    fn hand_out(&mut self, me: Runnable, queue: QueueId, message: u64) -> Outcome {
        let task = &mut self.tasks[me];
        task.change(State::Owed(Answer::Message(queue, message)));
        self.tell_answer(me);
        Outcome::Answered
    }

    pub(super) fn close_queue_of(&mut self, queue: QueueId) -> Outcome {
        let open = self.close_queue(queue);
        Outcome::Reply(if open {
            Reply::Done
        } else {
            Reply::Err(Errno::Closed)
        })
    }

    /// Closes a queue and wakes who waits at its ends. Answers whether it was open.
    pub(super) fn close_queue(&mut self, queue: QueueId) -> bool {
        let Some(found) = self.queues.get_mut(queue).filter(|queue| !queue.closed) else {
            return false;
        };
        let (getters, putters) = found.close();
        for getter in getters {
            self.wake(getter, Wake::Queue(queue), Errno::Closed);
        }
        for (putter, message) in putters {
            self.wake(putter, Wake::Queue(queue), Answer::Refused(queue, message));
        }
        true
    }

    /// Frees a queue with its last handle. Who waits at it then has come by its number alone.
    pub(super) fn free_queue(&mut self, queue: QueueId) {
        self.close_queue(queue);
        self.queues.remove(queue);
    }

    /// Drops what is left in the queues: a message may hold a handle of its own queue, and the two
    /// would keep each other.
    pub(super) fn clear_queues(&mut self) {
        for queue in self.queues.slots.drain() {
            contain(|| queue.store.clear());
        }
    }

    /// Finds a new owner for a message that was matched with a task which will not take it.
    pub(super) fn give_back(&mut self, queue: QueueId, message: u64) {
        let next = self
            .queues
            .get_mut(queue)
            .and_then(|queue| queue.give_back(message));
        if let Some(next) = next {
            self.wake(next, Wake::Queue(queue), Answer::Message(queue, message));
        }
    }

    /// Takes a task out of the queue where it waits. The message that it wanted to put goes with
    /// it.
    pub(super) fn leave_queue(&mut self, me: Runnable, queue: QueueId, end: End) {
        let found = self
            .queues
            .get_mut(queue)
            .expect("a queue that is waited for exists");
        match end {
            End::Get => found.forget_getter(me),
            End::Put => {
                if let Some(message) = found.forget_putter(me) {
                    self.discard(queue, message);
                }
            }
        }
    }
}
