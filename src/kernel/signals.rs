//! Signals: each is a message for every task that has caught it. One that none has caught ends the
//! run.

use std::{collections::VecDeque, io, time::Duration};

use super::{Kernel, outcome::Outcome, task::State, timers::Timer};
use crate::{
    abi::{DeviceId, Errno, Exit, Nanos, QueueId, Reply, Signal, SignalSet, Tid},
    log::Fact,
    sched::{Runnable, Slot},
    trap::Note,
    world::{self, Request},
};

#[derive(Debug, Default)]
pub(super) struct Signals {
    /// The queues of the holders with their signals, in the order in which they were caught.
    holders: Vec<(QueueId, SignalSet)>,
    /// How many signals were messages.
    count: u64,
    /// The signals that are to come.
    armed: Vec<(Timer, Signal)>,
    /// Those whose timers have fired.
    due: VecDeque<Signal>,
    /// The signal that has ended a run.
    ended_by: Option<Signal>,
}

impl Signals {
    pub(super) fn reset(&mut self) {
        self.holders.clear();
        self.armed.clear();
        self.due.clear();
        (self.count, self.ended_by) = (0, None);
    }

    fn caught(&self) -> SignalSet {
        let sets = self.holders.iter().map(|(_, signals)| *signals);
        sets.fold(SignalSet::default(), SignalSet::with)
    }

    fn holders_of(&self, signal: Signal) -> Vec<QueueId> {
        let holders = self.holders.iter();
        let holders = holders.filter(|(_, signals)| signals.contains(signal));
        holders.map(|(queue, _)| *queue).collect()
    }

    pub(super) fn is_holder(&self, queue: QueueId) -> bool {
        self.holders.iter().any(|(other, _)| *other == queue)
    }

    /// Handles a timer that has fired.
    #[cold]
    pub(super) fn fire(&mut self, timer: Timer) {
        if let Some(at) = self.armed.iter().position(|(other, _)| *other == timer) {
            self.due.push_back(self.armed.remove(at).1);
        }
    }

    pub(super) fn ended_by(&self) -> Option<Signal> {
        self.ended_by
    }

    /// Returns the next signal whose timer has fired.
    #[inline(always)]
    pub(super) fn next_due(&mut self) -> Option<Signal> {
        self.due.pop_front()
    }

    /// Returns the timers of the signals that are to come.
    pub(super) fn timers(&self) -> impl Iterator<Item = Timer> {
        self.armed.iter().map(|(timer, _)| *timer)
    }
}

impl Kernel {
    /// Sends a signal at that instant, counted from boot, or at once if that has passed. It comes as
    /// by [`Remote::signal`](crate::Remote::signal). It does not keep a run alive. Until it has come,
    /// tasks that wait are in no deadlock.
    ///
    /// In the simulated world a signal comes at the same point of each run.
    ///
    /// ```
    /// use std::{collections::VecDeque, io, time::Duration};
    /// use trapline::{Kernel, Os, Signal};
    ///
    /// let mut kernel = Kernel::simulated(0);
    /// kernel.signal_at(Duration::from_secs(3), Signal::Terminate);
    /// kernel.spawn("server", async |os: &mut Os| {
    ///     let signals = os.catch(&[Signal::Terminate]).await;
    ///     let signal = signals.next(os).await;
    ///     let now = os.now().await;
    ///     writeln!(os, "{signal} at {now:?}");
    /// })?;
    /// kernel.run()?.check()?;
    /// assert_eq!(kernel.take_console(), "SIGTERM at 3s\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn signal_at(&mut self, instant: Duration, signal: Signal) {
        let timer = self.timers.tasks.arm(instant.into(), Slot::LAST);
        if timer.0 != Nanos::FOREVER {
            self.signals.armed.push((timer, signal));
        }
    }

    /// Returns the signal that has ended a run because no task had caught it, or has taken it; the
    /// last one since boot.
    ///
    /// ```
    /// use std::{future::pending, time::Duration};
    /// use trapline::{Kernel, Os, Signal};
    ///
    /// let mut kernel = Kernel::simulated(0);
    /// kernel.signal_at(Duration::from_secs(3), Signal::Terminate);
    /// kernel.spawn("server", async |os: &mut Os| os.sleep(Duration::MAX).await)?;
    /// kernel.run()?;
    /// assert_eq!(kernel.ended_by(), Some(Signal::Terminate));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn ended_by(&self) -> Option<Signal> {
        self.signals.ended_by
    }

    // ---- the calls

    #[cold]
    pub(super) fn catch(&mut self, me: Runnable) -> Outcome {
        let Some(word) = self.frame.take_word() else {
            return Errno::Invalid.into();
        };
        let signals = SignalSet::from_raw(word);
        let all: Vec<Signal> = signals.iter().collect();
        let asked = self.world.io(DeviceId::NONE, Request::Catch(&all));
        match asked.and_then(world::Answer::done) {
            // Such a world has no signals of its own.
            Err(error) if error.kind() != io::ErrorKind::Unsupported => {
                self.frame.clear();
                let why = format!("cannot catch {signals}: {error}");
                return Outcome::Die(Exit::Faulted(why));
            }
            Ok(()) | Err(_) => {}
        }
        let outcome = self.new_queue(me, u64::MAX);
        if let Outcome::Ready(State::Ready(answer)) = &outcome
            && let Reply::Queue(queue) = answer.reply
        {
            self.signals.holders.push((queue, signals));
            self.remote.set_caught(self.signals.caught());
        }
        outcome
    }

    /// Forgets a holder. Returns whether a signal has its default action now: no task has taken it,
    /// it has no other holder, and a task is left whose end it would be.
    #[cold]
    pub(super) fn uncatch(&mut self, me: Runnable, queue: QueueId) -> bool {
        self.signals.holders.retain(|(other, _)| *other != queue);
        let left = self.remote.set_caught(self.signals.caught());
        let left = left.filter(|_| !self.is_last(me));
        if let Some(signal) = left {
            self.ends_by(signal);
        }
        left.is_some()
    }

    /// Returns whether this task has returned or died, and no other keeps the run alive.
    fn is_last(&mut self, me: Runnable) -> bool {
        let is_live = self.tasks.is_live(me);
        let has_ended = !is_live || self.tasks[me].has_returned();
        let keeps = is_live && !me.tid.is_daemon() && !self.tasks[me].is_attendant;
        has_ended && self.tasks.lasting() == usize::from(keeps)
    }

    // ---- what comes

    /// Puts a signal into the queue of each task that has caught it. Returns whether it has its
    /// default action instead.
    #[cold]
    pub(super) fn deliver_signal(&mut self, signal: Signal) -> bool {
        self.frame.note(Note::Barrier);
        self.emit(Tid::KERNEL, || Fact::Signalled { signal });
        let holders = self.signals.holders_of(signal);
        let message = signal.message(self.signals.count);
        if holders.is_empty() || !self.remote.deliver(message, signal) {
            self.ends_by(signal);
            return true;
        }
        self.signals.count += 1;
        for queue in holders {
            self.put_message(queue, message);
        }
        false
    }

    fn ends_by(&mut self, signal: Signal) {
        self.signals.ended_by = Some(signal);
        self.console.hurry();
    }

    /// Returns whether a task waits for a signal, which the world outside can always send.
    pub(super) fn awaits_signal(&self) -> bool {
        let holders = self.signals.holders.iter();
        let holders = holders.filter(|(_, signals)| signals.iter().next().is_some());
        let mut queues = holders.filter_map(|(queue, _)| self.queues.get(*queue));
        queues.any(|queue| !queue.id().is_of_daemon() && queue.is_awaited())
    }
}
