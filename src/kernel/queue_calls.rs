//! The calls on message queues.

use super::{
    Kernel,
    answer::Answer,
    held::Ticket,
    outcome::Outcome,
    queues::{Got, MessageQueue, Put, Took},
    task::{Pending, State, WaitingOn},
};
use crate::{
    abi::{End, Errno, QueueId, Reply},
    log::Wake,
    sched::Runnable,
    trap::{Mail, Note, Object, Payload},
};

impl Kernel {
    pub(super) fn new_queue(&mut self, me: Runnable, capacity: u64) -> Outcome {
        let Some(Payload::Queue(store, status)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        let has_token = status.kind.has_token();
        let of_daemon = me.tid.is_daemon();
        let has_room = self.queues.len(of_daemon) < self.limits.queues;
        let queue = has_room.then(|| self.queues.insert(of_daemon, capacity, store, status));
        match queue.flatten() {
            Some(queue) => {
                self.frame.note(Note::NewQueue(queue, capacity));
                if has_token {
                    self.frame.note(Note::Sent(queue, MessageQueue::TOKEN));
                    self.frame.note(Note::Stored(queue));
                }
                Reply::Queue(queue).into()
            }
            None => {
                // The queues of all tasks have used up the limit.
                self.touch(Object::All);
                Errno::Closed.into()
            }
        }
    }

    pub(super) fn put(&mut self, me: Runnable, queue: QueueId) -> Outcome {
        let Some(message) = self.frame.take_word() else {
            return Errno::Invalid.into();
        };
        let answer = self.put_message(queue, message);
        if let Reply::Full(message) = answer.reply
            && let Some(full) = self.queues.get_mut(queue)
        {
            full.add_putter(me, message);
            self.frame.note(Note::Sent(queue, message));
            self.notify_selects(queue);
            return Outcome::Block(WaitingOn::Queue(queue, End::Put));
        }
        answer.into()
    }

    pub(super) fn try_put(&mut self, queue: QueueId) -> Outcome {
        match self.frame.take_word() {
            Some(message) => self.put_message(queue, message).into(),
            None => Errno::Invalid.into(),
        }
    }

    pub(super) fn put_message(&mut self, queue: QueueId, message: u64) -> Answer {
        let put = self.queues.get_mut(queue).map(|queue| queue.put(message));
        match put {
            Some(Put::Stored) => {
                self.frame.note(Note::Sent(queue, message));
                self.frame.note(Note::Stored(queue));
                self.notify_selects(queue);
                Reply::Done.into()
            }
            Some(Put::Handed(getter)) => {
                self.frame.note(Note::Sent(queue, message));
                self.frame.note(Note::Removed(queue, getter.tid));
                self.frame.note(Note::Stored(queue));
                let message = Answer::message(Reply::Message(message), queue);
                self.wake(getter, Wake::Queue(queue), message);
                Reply::Done.into()
            }
            Some(Put::Full) => Answer::message(Reply::Full(message), queue),
            Some(Put::Closed) | None => Answer::message(Reply::Refused(message), queue),
        }
    }

    /// Puts the message that a keeper sends at the end of a task.
    pub(super) fn put_for_keeper(&mut self, queue: QueueId, message: u64) {
        if self.frame.is_noted() {
            self.note_try_put(queue);
        }
        if self.put_message(queue, message).reply != Reply::Done {
            self.discard(queue, message);
        }
    }

    pub(super) fn get(&mut self, me: Runnable, queue: QueueId) -> Outcome {
        let Some(found) = self.queues.get_mut(queue) else {
            return Errno::Closed.into();
        };
        match found.get() {
            Got::Empty => {
                found.add_getter(me);
                let is_lock = found.is_lock();
                self.notify_selects(queue);
                let on = WaitingOn::Queue(queue, End::Get);
                match is_lock {
                    true => Outcome::BlockOnTask(on),
                    false => Outcome::Block(on),
                }
            }
            got => self.got(me, queue, got),
        }
    }

    pub(super) fn try_get(&mut self, me: Runnable, queue: QueueId) -> Outcome {
        match self.queues.get_mut(queue).map(MessageQueue::get) {
            Some(got) => self.got(me, queue, got),
            None => Errno::Closed.into(),
        }
    }

    #[inline(always)]
    fn got(&mut self, me: Runnable, queue: QueueId, got: Got) -> Outcome {
        let (message, admitted) = match got {
            Got::Message(message, admitted) => (message, admitted),
            Got::Empty => return Reply::Again.into(),
            Got::Closed => return Errno::Closed.into(),
        };
        self.frame.note(Note::Taken(queue, message));
        let taker = self.remote.running();
        self.frame.note(Note::Removed(queue, taker));
        if let Some(putter) = admitted {
            self.frame.note(Note::Stored(queue));
            self.wake_putter(putter, queue, Reply::Done.into());
        }
        self.notify_selects(queue);
        self.answer(me, Answer::message(Reply::Message(message), queue))
    }

    /// Wakes a task whose message has found room, or was refused.
    fn wake_putter(&mut self, putter: Runnable, queue: QueueId, answer: Answer) {
        let by = Wake::Queue(queue);
        let &State::Blocked(WaitingOn::Room(_, number)) = self.tasks[putter].state() else {
            return self.wake(putter, by, answer);
        };
        if let Reply::Refused(text) = answer.reply {
            self.discard(queue, text);
        }
        self.wake(putter, by, Pending::Held(Ticket::Text(number)));
    }

    /// Stores a text beyond the room of its queue.
    pub(super) fn store_text(&mut self, queue: QueueId, text: u64) {
        let Some(found) = self.queues.get_mut(queue) else {
            return;
        };
        if found.status().closed.get() {
            found.discard(text);
        } else {
            found.store(text);
            self.frame.note(Note::Sent(queue, text));
            self.frame.note(Note::Stored(queue));
            self.notify_selects(queue);
        }
    }

    /// Takes mail as the world says: as it comes, or from a tape.
    pub(super) fn pass_mail(&mut self, mail: &mut dyn Mail) {
        if let Err(error) = self.world.mail(mail) {
            self.trouble.get_or_insert(error);
        }
    }

    /// Lets a put into a mailbox pass. The caller makes it, unless its answer belongs on a tape.
    pub(super) fn post(&mut self) -> Outcome {
        if let Some(Payload::Post(mut mail)) = self.frame.take() {
            self.pass_mail(&mut *mail);
        }
        Reply::Done.into()
    }

    /// Closes a queue, and wakes the tasks that wait at its ends. Returns whether it was open.
    pub(super) fn close_queue(&mut self, queue: QueueId) -> bool {
        let Some(found) = self.queues.get_mut(queue) else {
            return false;
        };
        if !found.close() {
            // No task waits at a closed queue.
            return false;
        }
        // One by one, which keeps the memory of the lists.
        let next = MessageQueue::next_getter;
        while let Some(getter) = self.queues.get_mut(queue).and_then(next) {
            self.wake(getter, Wake::Queue(queue), Errno::Closed);
        }
        let next = MessageQueue::pop_putter;
        while let Some((putter, message)) = self.queues.get_mut(queue).and_then(next) {
            let refused = Answer::message(Reply::Refused(message), queue);
            self.wake_putter(putter, queue, refused);
        }
        self.serve(queue);
        true
    }

    /// Opens the queue of a flag again. Returns whether it is one.
    pub(super) fn open_queue(&mut self, queue: QueueId) -> bool {
        self.queues.get_mut(queue).is_some_and(MessageQueue::open)
    }

    /// Frees a queue after its last handle. Only tasks with a raw number can still wait at it.
    pub(super) fn free_queue(&mut self, queue: QueueId) -> Outcome {
        let found = self.queues.get(queue);
        if found.is_some_and(MessageQueue::is_waited_at) {
            self.close_queue(queue);
        }
        if let Some((store, status)) = self.queues.remove(queue) {
            drop(store);
            self.frame.kept.keep_status(status);
        }
        Reply::Done.into()
    }

    pub(super) fn give_back_by_call(&mut self, queue: QueueId) -> Outcome {
        let Some(message) = self.frame.take_word() else {
            return Errno::Invalid.into();
        };
        self.give_back(queue, message);
        Reply::Done.into()
    }

    /// Gives a message to the next waiting task, or back to its queue: its task cannot receive it.
    pub(super) fn give_back(&mut self, queue: QueueId, message: u64) {
        self.touch_queue(queue);
        self.frame.note(Note::Stored(queue));
        let found = self.queues.get_mut(queue);
        if let Some(next) = found.and_then(|found| found.give_back(message)) {
            self.frame.note(Note::Removed(queue, next.tid));
            let message = Answer::message(Reply::Message(message), queue);
            self.wake(next, Wake::Queue(queue), message);
        } else {
            self.notify_selects(queue);
        }
    }

    // ---- permits

    /// Takes as many permits as the word beside the call says.
    pub(super) fn take(&mut self, me: Runnable, queue: QueueId, waits: bool) -> Outcome {
        let (Some(count), Some(found)) = (self.frame.take_word(), self.queues.get_mut(queue))
        else {
            return Errno::Closed.into();
        };
        match found.take_permits(count) {
            Took::All => Answer::message(Reply::Permits(count), queue).into(),
            Took::Closed => Errno::Closed.into(),
            Took::TooFew if !waits => Reply::Again.into(),
            Took::TooFew => {
                found.add_taker(me, count);
                let on = WaitingOn::Queue(queue, End::Get);
                match found.is_lock() {
                    true => Outcome::BlockOnTask(on),
                    false => Outcome::Block(on),
                }
            }
        }
    }

    pub(super) fn give_by_call(&mut self, queue: QueueId) -> Outcome {
        let Some(count) = self.frame.take_word() else {
            return Errno::Invalid.into();
        };
        self.give(queue, count);
        Reply::Done.into()
    }

    /// Gives permits back, to the tasks that wait for them.
    pub(super) fn give(&mut self, queue: QueueId, count: u64) {
        self.touch_queue(queue);
        let mut is_passed = false;
        if let Some(found) = self.queues.get_mut(queue) {
            found.give_permits(count);
            is_passed = found.status().is_passed.take();
        }
        self.serve(queue);
        if is_passed {
            self.follow_holder(queue);
        }
    }

    /// Grants the requests for permits that can be granted, in order. Then wakes the selects.
    pub(super) fn serve(&mut self, queue: QueueId) {
        while let Some(found) = self.queues.get_mut(queue) {
            let Some((task, granted)) = found.next_taker() else {
                if found.is_watched() {
                    self.notify_selects(queue);
                }
                break;
            };
            let answer = match granted {
                Some(count) => Answer::message(Reply::Permits(count), queue),
                None => Errno::Closed.into(),
            };
            self.wake(task, Wake::Queue(queue), answer);
        }
    }

    pub(super) fn discard(&mut self, queue: QueueId, message: u64) {
        if let Some(found) = self.queues.get(queue) {
            found.discard(message);
        }
    }
}
