//! The standard streams of tasks that have others than the process: what they print goes to a queue, and
//! their input comes from a device. A child has those of its parent.
//!
//! A text is a message that the kernel puts for its task, at the trap after it was printed. A task whose
//! text finds no room waits as a task that puts, and its call is held back. No text is lost with a task
//! that ends or is cut meanwhile: it is stored beyond the room.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use super::{Kernel, held::Ticket, task::WaitingOn};
use crate::{
    abi::{DeviceId, QueueId, Reply, SystemCall, Tid},
    log::Fact,
    sched::Runnable,
    trap::{Note, Streams, TextQueue},
};

#[derive(Default)]
pub(super) struct Stdio {
    /// Of the live tasks that have any.
    of: BTreeMap<Tid, Streams>,
    /// For a search: the queues that a task has printed to, or could. The end of the last handle does not
    /// commute with that.
    outputs: BTreeSet<QueueId>,
    /// The text of the task under way that has found no room: its queue and its number.
    waiting: Option<(QueueId, u64)>,
}

impl Stdio {
    pub(super) fn reset(&mut self) {
        if self.are_used() {
            self.of.clear();
        }
        if !self.outputs.is_empty() {
            self.outputs.clear();
        }
        self.waiting = None;
    }

    pub(super) fn are_used(&self) -> bool {
        !self.of.is_empty()
    }

    /// Replaces those streams of a task that are given.
    fn set(&mut self, task: Tid, streams: Streams) {
        let own = self.of.entry(task).or_default();
        own.input = streams.input.or(own.input.take());
        own.output = streams.output.or(own.output.take());
    }

    #[cold]
    #[inline(never)]
    pub(super) fn inherit(&mut self, task: Tid, parent: Tid) {
        if let Some(streams) = self.of.get(&parent).cloned() {
            self.of.insert(task, streams);
        }
    }

    pub(super) fn input(&self, task: Tid) -> Option<DeviceId> {
        Some(self.of.get(&task)?.input.as_ref()?.0)
    }

    pub(super) fn prints_apart(&self, task: Tid) -> bool {
        self.output(task).is_some()
    }

    fn output(&self, task: Tid) -> Option<&Rc<dyn TextQueue>> {
        self.of.get(&task)?.output.as_ref()
    }

    /// Drops the input of a task that ends. Its device closes with the last of its tasks.
    pub(super) fn leave_input(&mut self, task: Tid) {
        drop(
            self.of
                .get_mut(&task)
                .and_then(|streams| streams.input.take()),
        );
    }

    /// Forgets a task. Returns the queue of its output.
    fn ended(&mut self, task: Tid) -> Option<QueueId> {
        Some(self.of.remove(&task)?.output?.id())
    }

    /// Returns whether a task prints to this queue, or has.
    pub(super) fn was_output(&self, queue: QueueId) -> bool {
        self.outputs.contains(&queue)
    }

    /// Returns whether a task prints to this queue.
    fn is_output(&self, queue: QueueId) -> bool {
        let mut outputs = self
            .of
            .values()
            .filter_map(|streams| streams.output.as_ref());
        outputs.any(|output| output.id() == queue)
    }
}

impl Kernel {
    /// Gives a new task streams other than those of its parent.
    #[cold]
    pub(super) fn set_streams(&mut self, task: Runnable, streams: Streams) {
        if streams.input.is_none() && streams.output.is_none() {
            return;
        }
        if let Some(output) = &streams.output {
            // It may be closed with the task that is the last to print there so far.
            self.touch_queue(output.id());
            if self.frame.is_noted() {
                self.stdio.outputs.insert(output.id());
            }
        }
        self.stdio.set(task.tid, streams);
        self.frame.pipes.set(true);
    }

    /// Puts what the task has printed since its last trap, if it goes to a queue. Returns whether the task
    /// is to be held.
    #[cold]
    #[inline(never)]
    pub(super) fn put_printed(&mut self, me: Runnable) -> bool {
        match self.stdio.output(me.tid).cloned() {
            Some(output) if self.frame.prints() => {
                let text = self.frame.take_text();
                self.put_text(me, &*output, text)
            }
            _ => false,
        }
    }

    /// Prints for a task that cannot be held.
    pub(super) fn print_for(&mut self, me: Runnable, text: String) {
        if let Some(output) = self.stdio.output(me.tid).cloned() {
            self.put_text(me, &*output, text);
            return self.store_waiting();
        }
        self.emit(me.tid, || Fact::Console {
            text: (&text).into(),
        });
        self.console.keep(me.tid, &text);
        self.print(&text);
    }

    /// Puts a text for its task. Returns whether the task is to be held: there is no room, or there is no
    /// reader any more.
    fn put_text(&mut self, me: Runnable, output: &dyn TextQueue, text: String) -> bool {
        let queue = output.id();
        self.emit(me.tid, || Fact::Deferred {
            call: SystemCall::TryPut(queue),
        });
        if self.frame.is_noted() {
            self.note_try_put(queue);
        }
        let text = output.push(text);
        match self.put_message(queue, text).reply {
            Reply::Full(_) => self.stdio.waiting = Some((queue, text)),
            Reply::Refused(_) => output.discard(text),
            _ => return false,
        }
        true
    }

    /// Stores the text that has found no room.
    pub(super) fn store_waiting(&mut self) {
        if let Some((queue, text)) = self.stdio.waiting.take() {
            self.store_text(queue, text);
        }
    }

    fn discard_text(&self, me: Runnable, text: u64) {
        // The queue may be freed already.
        if let Some(output) = self.stdio.output(me.tid) {
            output.discard(text);
        }
    }

    /// Blocks a task whose text has found no room, at its call or its end. Returns `false` if there is no
    /// reader any more.
    #[cold]
    pub(super) fn hold_piped(&mut self, me: Runnable, call: Option<SystemCall>) -> bool {
        let Some((queue, text)) = self.stdio.waiting.take() else {
            return false;
        };
        if self.is_broken(me) {
            // A deferred call has closed it since.
            self.discard_text(me, text);
            return false;
        }
        let number = self.hold_call(me, Ticket::Text, call);
        if let Some(found) = self.queues.get_mut(queue) {
            found.add_putter(me, text);
        }
        self.frame.note(Note::Sent(queue, text));
        self.notify_selects(queue);
        self.block(me, WaitingOn::Room(queue, number));
        true
    }

    /// Returns whether the task prints to a queue that has no reader.
    pub(super) fn is_broken(&self, me: Runnable) -> bool {
        let Some(output) = self.stdio.output(me.tid).map(|output| output.id()) else {
            return false;
        };
        self.touch_queue(output);
        let queue = self.queues.get(output);
        queue.is_none_or(|queue| queue.status().closed.get())
    }

    /// Closes the output of a task that has ended, if it was the last that prints there.
    #[cold]
    pub(super) fn end_output(&mut self, me: Runnable) {
        if let Some(queue) = self.stdio.ended(me.tid) {
            // Which one is the last depends on their order.
            self.touch_queue(queue);
            if !self.stdio.is_output(queue) {
                self.close_queue(queue);
            }
        }
    }
}
