//! Footprints: the objects that each call touches, and the notes that the handlers take.
//!
//! The kernel takes notes only for a search. Then every trap goes to the plain lane. What a call
//! touches in each case is in the table of calls; the handlers note what depends on the state.
//! [`crate::trap`] says what commutes.

use std::collections::BTreeSet;

use super::{Kernel, builder::Limits, queues::MessageQueue, task::OnExit};
use crate::{
    abi::{Beside, DeviceId, Nanos, QueueId, SystemCall, Tid, Touches},
    sched::Runnable,
    trap::{Footprints, Note, Object, Payload},
};

impl Kernel {
    /// Takes notes of what each turn touches from now on, and returns them. A search uses them to
    /// find the turns that commute. Every trap is slower from then on. A second call returns the
    /// same notes.
    pub fn footprints(&mut self) -> Footprints {
        self.frame.footprints().unwrap_or_else(|| {
            let footprints = Footprints::default();
            self.frame.set_footprints(footprints.clone());
            footprints
        })
    }

    /// The same, and notes where in the source each turn continues
    /// ([`Footprints::take_continued`]). Every turn is slower again: it takes a backtrace.
    pub fn located_footprints(&mut self) -> Footprints {
        let footprints = self.footprints();
        self.frame.locate();
        footprints
    }

    /// Notes the objects that a call touches in every state. An end of a queue is the object of
    /// the calls that block there in order; any other call touches both ends.
    #[cold]
    #[inline(never)]
    pub(super) fn note_call(&mut self, me: Runnable, call: SystemCall) {
        let touches = call.touches();
        if let Some(footprints) = self.frame.footprints() {
            footprints.set_answer(me.tid, answered_by(touches));
        }
        match touches {
            Touches::Nothing | Touches::Processor(Nanos::ZERO) => {}
            // Mailboxes have notes of their own then.
            Touches::Mail if self.is_conducted => {}
            Touches::All | Touches::Mail => self.touch(Object::All),
            // Each turn of another task may have to wait for the processor.
            Touches::Processor(_) => self.touch(Object::All),
            Touches::World => self.touch(Object::World),
            Touches::Net => self.frame.touch(Object::World, false),
            Touches::Device(device) => self.touch_device(device),
            Touches::Close(device) => {
                self.touch_device(device);
                self.frame.touch(Object::Devices, false);
            }
            Touches::Opens => self.note_opens(),
            Touches::Clock => self.touch_clock(),
            Touches::Random => self.touch(Object::Random),
            Touches::Tids => self.touch(Object::Tids),
            Touches::Life(tid) => self.note_kill(tid),
            Touches::Exit(tid) => self.note_wait(me, tid),
            Touches::Zombie(tid) => {
                self.touch(Object::Exit(tid));
                self.touch(Object::Waits(tid));
            }
            Touches::Put(queue) => self.note_one_end(queue, Object::PutEnd(queue)),
            Touches::TryPut(queue) => self.note_try_put(queue),
            Touches::Get(queue) => self.note_get(queue),
            Touches::Ends(queue) => {
                self.touch_queue(queue);
                self.note_shared(queue);
            }
            Touches::Waiters(queue) => self.note_free(queue),
        }
    }

    /// Notes the place of a call, and forgets it: not every stub notes its own. The birth of a task
    /// forgets that of its spawn. An injection counts the call.
    #[cold]
    #[inline(never)]
    pub(super) fn note_trap(&mut self, call: SystemCall) {
        if self.injection.as_ref().is_some_and(|it| it.counts) {
            self.touch(Object::Calls(call.number()));
        }
        if let Some(place) = self.frame.place() {
            self.frame.note(Note::Called(place));
        }
        if let (SystemCall::Choose(of), true) = (call, self.chosen.is_some()) {
            self.keep_choice(of);
        }
        if call.beside() != Beside::Program {
            self.frame.forget_place();
        }
    }

    /// Keeps which choices tasks make from now on, and where. For a kernel that takes notes.
    pub(crate) fn keep_choices(&mut self) {
        self.chosen = Some(BTreeSet::new());
    }

    /// Takes the choices, each with its place.
    pub(crate) fn take_choices(&mut self) -> BTreeSet<(String, String)> {
        self.chosen.take().unwrap_or_default()
    }

    fn keep_choice(&mut self, of: u64) {
        let choice = match self.frame.take() {
            Some(Payload::Name(text)) => {
                let choice = format!("choose_named({text:?}, {of})");
                self.frame.put(Payload::Name(text));
                choice
            }
            Some(other) => {
                self.frame.put(other);
                format!("choose({of})")
            }
            None => format!("choose({of})"),
        };
        let place = self.frame.place();
        let place = place.map_or("a raw trap".to_string(), ToString::to_string);
        self.chosen.get_or_insert_default().insert((choice, place));
    }

    #[inline]
    pub(super) fn touch(&self, object: Object) {
        self.frame.touch(object, true);
    }

    /// Notes that the turn changes what a device is, or waits for it.
    #[inline(always)]
    pub(super) fn touch_device(&self, device: DeviceId) {
        if self.frame.is_noted() {
            self.touch_device_in_full(device);
        }
    }

    #[cold]
    #[inline(never)]
    fn touch_device_in_full(&self, device: DeviceId) {
        let net = self.world.net();
        let object = net.and_then(|net| net.object_of(device));
        self.frame.touch(Object::World, object.is_none());
        if let Some(object) = object {
            self.touch(object);
        }
    }

    fn note_opens(&self) {
        let commutes = self.world.net().is_some_and(|net| net.is_calm());
        self.frame.touch(Object::World, !commutes);
        self.touch(Object::Devices);
    }

    /// Notes that the turn reads the clock, or arms or disarms a timer. No clock advances between turns,
    /// unless turns take time.
    #[inline]
    pub(super) fn touch_clock(&self) {
        if self.is_asked {
            self.frame.touch(Object::Clock, false);
        }
    }

    /// Notes that the turn changes a queue in a way that does not commute with a call at either end.
    pub(super) fn touch_queue(&self, queue: QueueId) {
        self.frame.touch_queue(queue, true);
    }

    /// A deferred put finds no unbounded queue full: it commutes with a get, as a put does.
    pub(super) fn note_try_put(&mut self, queue: QueueId) {
        match self.queues.get(queue) {
            Some(found) if found.is_unbounded() => self.note_one_end(queue, Object::PutEnd(queue)),
            _ => self.touch_queue(queue),
        }
    }

    /// Notes a call at one end of a queue. It commutes with one at the other end, unless a task selects
    /// an end: whether that is woken depends on their order.
    fn note_one_end(&self, queue: QueueId, end: Object) {
        if self.queues.get(queue).is_some_and(MessageQueue::is_watched) {
            return self.touch_queue(queue);
        }
        self.touch(end);
    }

    fn note_get(&mut self, queue: QueueId) {
        self.note_one_end(queue, Object::GetEnd(queue));
        if self.queues.get(queue).is_some_and(MessageQueue::is_lock) {
            self.frame.touch(Object::Cycles, false);
            if self.has_bound_selects() {
                // To wait touches more then, so it does not commute with the release.
                self.touch_queue(queue);
            }
        }
    }

    /// A lock that readers share has several holders. A change of these, or of the tasks that wait, does not
    /// commute with a wait that may close a cycle.
    fn note_shared(&self, queue: QueueId) {
        let found = self.queues.get(queue);
        if found.is_some_and(|found| found.is_lock() && found.permits().is_some()) {
            self.touch(Object::Cycles);
        }
    }

    /// No handle is left. Only a raw trap waits there, or a task prints there, which is killed for that.
    fn note_free(&mut self, queue: QueueId) {
        let found = self.queues.get(queue);
        let has_waiters = found.is_some_and(|found| found.waiters().next().is_some());
        if has_waiters || self.stdio.was_output(queue) {
            self.touch_queue(queue);
        }
    }

    fn note_kill(&mut self, tid: Tid) {
        self.touch(Object::Life(tid));
        self.touch(Object::Exit(tid));
        self.touch(Object::Waits(tid));
        if !self.tasks.was_made(tid) {
            self.frame.touch(Object::Tids, false);
        }
    }

    /// The first wait for a task commutes with its exit: in both orders the caller is answered. A
    /// second wait finds the task gone, if the exit has answered the first one.
    fn note_wait(&mut self, me: Runnable, tid: Tid) {
        self.touch(Object::Waits(tid));
        self.frame.touch(Object::Cycles, false);
        if let Some(parent) = self.parent_of(tid).filter(|parent| *parent != me.tid) {
            self.frame.touch(Object::Family(parent), false);
        }
        if self.has_bound_selects() {
            // To wait touches more then.
            self.touch(Object::Exit(tid));
        }
        let Some(target) = self.tasks.find(tid) else {
            self.touch(Object::Exit(tid));
            if !self.tasks.was_made(tid) {
                self.frame.touch(Object::Tids, false);
            }
            return;
        };
        let target = &self.tasks[target];
        if !target.is_live() {
            self.frame.note(Note::Joined(tid));
        } else if target.waiters().is_some_and(|waiters| !waiters.is_empty()) {
            self.touch(Object::Exit(tid));
        }
    }

    fn parent_of(&self, tid: Tid) -> Option<Tid> {
        self.frame.footprints()?.parent(tid)
    }

    /// Notes that a task is killed before it receives its answer. The turn that gave the answer does
    /// not commute with that. For a message that goes back to its queue, `give_back` notes it.
    #[inline]
    pub(super) fn note_answer_lost(&self, me: Runnable) {
        if self.frame.is_noted()
            && let Some(object) = self
                .frame
                .footprints()
                .and_then(|notes| notes.answer(me.tid))
        {
            self.touch(object);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn note_birth(&self, child: Tid, parent: Option<Runnable>, on_exit: OnExit) {
        self.frame.note(Note::Woken(child));
        self.frame.forget_place();
        // For a wait by its number, which a task may guess.
        self.touch(Object::Waits(child));
        if parent.is_some_and(|parent| self.tasks[parent].is_attendant) {
            // The last other task may end before, and the daemon with it.
            self.touch(Object::Lasting);
        }
        if let (Some(footprints), Some(parent), OnExit::Zombie) =
            (self.frame.footprints(), parent, on_exit)
        {
            footprints.set_parent(child, parent.tid);
        }
    }

    /// Notes the end of a task. It reaches the zombies that it leaves to its children and those of
    /// its children, whether they live or not.
    #[cold]
    #[inline(never)]
    pub(super) fn note_end(&self, me: Runnable, on_exit: OnExit) {
        self.touch(Object::Exit(me.tid));
        self.touch(Object::Family(me.tid));
        // An end that is not the last one only counts. It is no read all the same: it decides whether the next
        // end is the last, and so what that touches.
        let is_counted = self.tasks[me].is_attendant || self.tasks.attendants() > 0;
        self.frame.touch(Object::Lasting, is_counted);
        if self.limits.tasks < Limits::MANY_TASKS {
            // It makes room for another task.
            self.frame.touch(Object::Tids, false);
        }
        if let Some(parent) = self.parent_of(me.tid) {
            self.frame.touch(Object::Family(parent), false);
        }
        if on_exit != OnExit::Zombie {
            self.touch(Object::Waits(me.tid));
        }
    }
}

/// Returns what the turn touches that answers a call, if the call's own footprint does not have it.
fn answered_by(touches: Touches) -> Option<Object> {
    match touches {
        Touches::Exit(tid) => Some(Object::Exit(tid)),
        Touches::Put(queue) => Some(Object::GetEnd(queue)),
        _ => None,
    }
}
