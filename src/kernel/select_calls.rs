//! Select: a task waits for the first of several sources.
//!
//! A select that finds no source ready is listed with each of them. The first that becomes ready puts
//! the task on the ready queue. At its turn the kernel looks at the sources again, in order, and
//! answers with the first that is ready; if another task was faster, the select goes on waiting. The
//! task's next call is in the same turn. So no other task can take what the answer has promised.

use super::{
    Kernel,
    outcome::Outcome,
    queues::MessageQueue,
    selects::Watchers,
    task::{Pending, State, WaitingOn},
    timers::Timer,
};
use crate::{
    abi::{Direction, End, Errno, Interest, Nanos, QueueId, Reply, Tid},
    log::{Detail, Wake},
    sched::Runnable,
    trap::{Object, Payload},
    world::{self, Request},
};

impl Kernel {
    #[cold]
    #[inline(never)]
    pub(super) fn select(&mut self, me: Runnable) -> Outcome {
        let first = self.frame.take_word().unwrap_or(0);
        let Some(Payload::Interests(sources)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        let is_timed = |source: &Interest| matches!(source, Interest::After(_));
        let now = match sources.iter().any(is_timed) {
            true => self.world.now().into(),
            false => Nanos::ZERO,
        };
        let key = self.selects.begin(me, &sources, first, now);
        if self.first_ready(me, key).is_some() {
            return Outcome::Ready(Pending::Select(key).into());
        }
        self.list(me, key);
        let on = WaitingOn::Select(key, self.selects.len(key) as u32);
        match self.is_bound(key) {
            true => Outcome::BlockOnTask(on),
            false => Outcome::Block(on),
        }
    }

    /// Answers a select at its task's turn; `None` if the task goes on waiting. A due timeout cuts it
    /// instead.
    #[cold]
    #[inline(never)]
    pub(super) fn select_now(&mut self, me: Runnable, key: u32) -> Option<Reply> {
        let reply = match (self.first_ready(me, key), self.tasks[me].due()) {
            (Some(index), _) => Reply::Ready(index as u64),
            (None, Some(due)) => {
                self.tasks[me].set_due(None);
                Reply::Elapsed(due.number)
            }
            (None, None) => {
                self.list(me, key);
                let on = WaitingOn::Select(key, self.selects.len(key) as u32);
                self.block(me, on);
                self.note_bound(key);
                if self.is_bound(key) {
                    self.follow_again(me, on);
                }
                return None;
            }
        };
        self.leave_select(me, key);
        if self.tasks[me].let_through(true) {
            self.frame.set_due();
        }
        self.emit_reply(me.tid, reply, || Detail::None);
        Some(reply)
    }

    /// Returns the index of the first source that is ready.
    fn first_ready(&mut self, me: Runnable, key: u32) -> Option<usize> {
        let mut all = self.selects.in_turn(key);
        all.find(|at| self.is_source_ready(me, key, self.selects.source(key, *at)))
    }

    /// Returns whether the call for this source would not block. It may fail.
    fn is_source_ready(&mut self, me: Runnable, key: u32, source: Interest) -> bool {
        match source {
            Interest::Exit(tid) => {
                self.frame.touch(Object::Exit(tid), false);
                self.frame.touch(Object::Waits(tid), false);
                if !self.tasks.was_made(tid) {
                    self.frame.touch(Object::Tids, false);
                }
                tid == me.tid || self.tasks.find_live(tid).is_none()
            }
            Interest::After(_) | Interest::At(_) => {
                self.touch_clock();
                let now = self.world.now().into();
                let instant = self.selects.instant(key, source);
                instant.is_some_and(|instant| instant <= now)
            }
            Interest::Device(device, direction) => {
                self.touch_device(device);
                match self.devices.check_for(me, device, direction) {
                    Err(_) => true,
                    Ok(())
                        if direction == Direction::Read
                            && self.devices.has_unread(device, &self.frame) =>
                    {
                        true
                    }
                    Ok(()) => {
                        let ready = self.world.io(device, Request::Ready(direction));
                        // What is wrong with it shows when it is used.
                        !matches!(ready.and_then(world::Answer::ready), Ok(false))
                    }
                }
            }
            Interest::Queue(queue, end) => {
                self.frame.touch_queue(queue, false);
                let found = self.queues.get(queue);
                found.is_none_or(|found| found.is_ready(end))
            }
            Interest::Permits(queue, count) => {
                self.frame.touch_queue(queue, false);
                let found = self.queues.get(queue);
                found.is_none_or(|found| found.has_permits(count.into()))
            }
        }
    }

    /// Puts a select on the lists of its sources, unless it is there.
    fn list(&mut self, me: Runnable, key: u32) {
        if !self.selects.set_listed(key, true) {
            for at in 0..self.selects.len(key) {
                match self.selects.source(key, at) {
                    Interest::Exit(tid) => {
                        let target = self.tasks.find_live(tid);
                        let target = target.expect("it is not ready, so it lives");
                        let list = &mut self.tasks.waiters_of(target).selects;
                        self.selects.watch(key, at, list);
                    }
                    Interest::Device(device, direction) => {
                        self.devices.claim(device, direction, me);
                        self.devices.begin_wait(me);
                    }
                    Interest::Queue(queue, end) => {
                        let found = self.queues.get_mut(queue);
                        let found = found.expect("it is not ready, so it exists");
                        self.selects.watch(key, at, found.watchers_mut(end));
                    }
                    Interest::Permits(queue, _) => {
                        let found = self.queues.get_mut(queue);
                        let found = found.expect("it is not ready, so it exists");
                        self.selects.watch(key, at, found.watchers_mut(End::Get));
                    }
                    Interest::After(_) | Interest::At(_) => {}
                }
            }
        }
        if self.selects.timer(key).is_none()
            && let Some(deadline) = self.selects.deadline(key)
        {
            let timer = self.timers.of(me).arm(deadline, me.slot);
            self.selects.set_timer(key, Some(timer));
        }
    }

    /// Takes a select off all lists, and forgets it.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_select(&mut self, me: Runnable, key: u32) {
        if self.frame.is_noted() {
            self.note_leaving(key);
        }
        if let Some(timer) = self.selects.set_timer(key, None) {
            self.touch_clock();
            self.timers.of(me).disarm(timer);
        }
        if self.selects.set_listed(key, false) {
            for at in 0..self.selects.len(key) {
                match self.selects.source(key, at) {
                    Interest::Exit(tid) => {
                        let target = self.tasks.find(tid);
                        let list = target.and_then(|target| self.tasks[target].selects_mut());
                        self.selects.unwatch(key, at, list);
                    }
                    Interest::Device(device, direction) => {
                        self.touch_device(device);
                        self.devices.leave(device, direction, me);
                    }
                    Interest::Queue(queue, end) => {
                        let found = self.queues.get_mut(queue);
                        let list = found.map(|found| found.watchers_mut(end));
                        self.selects.unwatch(key, at, list);
                    }
                    Interest::Permits(queue, _) => {
                        let found = self.queues.get_mut(queue);
                        let list = found.map(|found| found.watchers_mut(End::Get));
                        self.selects.unwatch(key, at, list);
                    }
                    Interest::After(_) | Interest::At(_) => {}
                }
            }
        }
        self.selects.end(key);
    }

    /// Notes for a search that a select leaves the lists of its sources: a turn that readies one of them
    /// later wakes it no more.
    #[cold]
    #[inline(never)]
    fn note_leaving(&self, key: u32) {
        if self.is_bound(key) {
            self.touch(Object::All);
        }
        for source in self.selects.sources(key) {
            match source {
                Interest::Exit(tid) => self.frame.touch(Object::Exit(tid), false),
                Interest::Queue(queue, _) | Interest::Permits(queue, _) => {
                    self.frame.touch_queue(queue, false);
                }
                Interest::Device(..) | Interest::After(_) | Interest::At(_) => {}
            }
        }
    }

    /// Makes a task ready if it is blocked in a select. Returns whether it is in a select.
    pub(super) fn wake_select(&mut self, me: Runnable, by: Wake) -> bool {
        match *self.tasks[me].state() {
            State::Blocked(WaitingOn::Select(key, _)) => {
                self.note_bound(key);
                self.wake(me, by, Pending::Select(key));
                true
            }
            State::Pending(Pending::Select(key)) => {
                // In another order, this turn would have woken it.
                self.note_bound(key);
                true
            }
            _ => false,
        }
    }

    /// Wakes the tasks on a list.
    #[cold]
    #[inline(never)]
    pub(super) fn wake_selects(&mut self, list: Watchers, by: Wake) {
        let mut place = list.begin();
        while let Some((task, next)) = self.selects.walk(place) {
            self.wake_select(task, by);
            place = next;
        }
    }

    /// Wakes the selects at the ends of a queue that are ready now.
    #[inline(always)]
    pub(super) fn notify_selects(&mut self, queue: QueueId) {
        if self.queues.get(queue).is_some_and(MessageQueue::is_watched) {
            self.notify_watched(queue);
        }
    }

    #[cold]
    #[inline(never)]
    fn notify_watched(&mut self, queue: QueueId) {
        for end in [End::Get, End::Put] {
            let found = self.queues.get(queue).filter(|found| found.is_ready(end));
            if let Some(list) = found.map(|found| found.watchers(end)) {
                self.wake_selects(list, Wake::Queue(queue));
            }
        }
    }

    /// Handles a timer that has fired, if it is of a select of the task. Returns whether it is.
    #[cold]
    #[inline(never)]
    pub(super) fn alarm_select(&mut self, me: Runnable, timer: Timer) -> bool {
        let (State::Blocked(WaitingOn::Select(key, _)) | State::Pending(Pending::Select(key))) =
            *self.tasks[me].state()
        else {
            return false;
        };
        if self.selects.timer(key) != Some(timer) {
            return false;
        }
        self.selects.set_timer(key, None);
        self.wake_select(me, Wake::Timer)
    }

    /// Returns whether only tasks can end a select: each source is a lock or the end of a task. Such a
    /// select may be on a cycle of waits.
    fn is_bound(&self, key: u32) -> bool {
        self.selects.len(key) > 0
            && self
                .selects
                .sources(key)
                .all(|source| match source.taken() {
                    Some((queue, _)) => self.queues.get(queue).is_some_and(MessageQueue::is_lock),
                    None => matches!(source, Interest::Exit(_)),
                })
    }

    /// Notes for a search that such a select begins to wait, or waits no more.
    pub(super) fn note_bound(&self, key: u32) {
        if self.frame.is_noted() && self.is_bound(key) {
            self.touch(Object::Cycles);
        }
    }

    /// Returns whether a task waits in such a select.
    pub(super) fn has_bound_selects(&self) -> bool {
        !self.selects.are_none()
            && self.tasks.iter().any(|task| match *task.state() {
                State::Blocked(WaitingOn::Select(key, _)) => self.is_bound(key),
                _ => false,
            })
    }

    /// Returns the tasks that alone can end a select, one for each source; `None` if anything else
    /// can.
    pub(super) fn enders(&self, me: Runnable, key: u32) -> Option<Vec<Tid>> {
        let is_free = self.tasks[me].is_timed() || self.selects.len(key) == 0;
        let ender = |source: Interest| {
            let taken = source.taken();
            source.ender(taken.and_then(|(queue, count)| self.holder(queue, count, None)))
        };
        (!is_free)
            .then(|| self.selects.sources(key).map(ender).collect())
            .flatten()
    }

    /// Returns the devices of a select that is listed, with their directions.
    pub(super) fn devices_of(
        &self,
        key: u32,
    ) -> impl Iterator<Item = (crate::abi::DeviceId, Direction)> {
        let is_listed = self.selects.is_listed(key);
        let sources = self.selects.sources(key).filter(move |_| is_listed);
        sources.filter_map(|source| match source {
            Interest::Device(device, direction) => Some((device, direction)),
            _ => None,
        })
    }
}
