//! The ready queue: first in, first out without indirection, or a policy and a quantum.

use std::{
    cell::OnceCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{
    abi::{Nanos, SystemCall},
    panic::{Panic, contain, panic_message},
    sched::{Cause, Facts, Fifo, Policy, Runnable},
};

/// The number of ticks between two polls of the world, if a pass is not longer.
pub(super) const POLL_AFTER: u64 = 256;

/// From this number on, tasks and their programs exceed the nearer caches.
const CROWD: usize = 4096;

pub(super) struct Ready {
    /// First in, first out, with turns of one tick: the default, without indirection.
    plain: Fifo,
    /// Used instead, if the builder sets a policy or a quantum.
    turns: Option<Box<Turns>>,
    /// Daemons, which no policy sees.
    daemons: Fifo,
    /// Whether there is a policy, or was a crowd at the last poll.
    is_special: bool,
    /// What replaces the policy before the next pass.
    next: Option<Named>,
}

/// A policy, and the name of its type.
pub(super) type Named = (&'static str, Box<dyn Policy>);

/// A policy, and turns of more than a tick.
struct Turns {
    name: &'static str,
    policy: Box<dyn Policy>,
    /// The number of tasks that the policy has received and not returned. It may have dropped ended
    /// ones.
    handed: usize,
    /// Whether it has claimed to have none of them, and the kernel has not looked yet.
    is_doubted: bool,
    /// Why the policy failed. It is not called again.
    failure: OnceCell<String>,
    /// The ticks of a turn.
    quantum: u32,
    /// The ticks left of the turn under way.
    left: u32,
    /// The task whose turn continues.
    holder: Option<Runnable>,
    /// The next instant at which the policy wants to be called.
    alarm: Nanos,
    /// Whether the policy inherits priorities.
    inherits: bool,
    /// Whether the policy gets the facts of a task.
    wants_facts: bool,
}

/// Tasks that come and go.
impl Ready {
    pub(super) fn new(policy: Option<Named>, quantum: u32) -> Self {
        let turns = (policy.is_some() || quantum > 1)
            .then(|| Box::new(Turns::new(policy.unwrap_or_else(fifo), quantum)));
        Self {
            plain: Fifo::default(),
            is_special: turns.is_some(),
            turns,
            daemons: Fifo::default(),
            next: None,
        }
    }

    /// Has this policy replace any other before the next pass, with turns of one tick.
    pub(super) fn obey(&mut self, policy: Named) {
        self.turns = None;
        self.next = Some(policy);
    }

    /// Has the policy replaced before the next pass, unless it stays. Returns whether it will be.
    pub(super) fn set_next(&mut self, policy: Named) -> bool {
        let turns = self.turns.as_ref();
        let stays = turns.and_then(|turns| turns.view("stays", |policy| policy.stays()));
        if stays != Some(true) {
            self.next = Some(policy);
        }
        stays != Some(true)
    }

    /// Returns whether the policy is to be replaced.
    #[inline(always)]
    pub(super) fn has_next(&self) -> bool {
        self.next.is_some()
    }

    /// Replaces the policy. The new one has no task yet.
    pub(super) fn replace(&mut self) {
        if let Some(policy) = self.next.take() {
            let quantum = self.turns.as_ref().map_or(1, |turns| turns.quantum);
            self.plain.clear();
            self.turns = Some(Box::new(Turns::new(policy, quantum)));
        }
    }

    /// Adds a task. Returns whether it did: a policy that wants facts gets it by
    /// [`Ready::push_with`].
    #[inline(always)]
    pub(super) fn push(&mut self, task: Runnable, cause: Cause) -> bool {
        match &mut self.turns {
            _ if task.tid.is_daemon() => self.daemons.push(task, cause),
            None => self.plain.push(task, cause),
            Some(turns) if turns.wants_facts => return false,
            Some(turns) => {
                turns.handed += 1;
                turns.ask("push", |policy| policy.push(task, cause));
            }
        }
        true
    }

    /// Gives the policy a task, with what the kernel knows of it.
    pub(super) fn push_with(&mut self, cause: Cause, facts: &Facts<'_>) {
        if let Some(turns) = &mut self.turns {
            turns.handed += 1;
            turns.ask("push", |policy| policy.push_with(cause, facts));
        }
    }

    /// Puts a task back after a call that does not block, unless its turn continues. Returns the
    /// cause with which it goes back to a policy that wants facts.
    #[inline(always)]
    pub(super) fn requeue(&mut self, task: Runnable, call: SystemCall) -> Option<Cause> {
        let cause = match &mut self.turns {
            _ if task.tid.is_daemon() => Cause::Preempted,
            None => {
                self.plain.push(task, Cause::Preempted);
                return None;
            }
            Some(turns) => turns.requeue(task, call)?,
        };
        (!self.push(task, cause)).then_some(cause)
    }

    /// Returns the task that has the next turn: the next of the list, or the one that the policy
    /// chooses and gives away.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<Runnable> {
        if self.is_special
            && let Some(turns) = &mut self.turns
        {
            return turns.pop();
        }
        self.plain.peek().or_else(|| {
            self.plain.rewind();
            self.plain.peek()
        })
    }

    /// Takes the next task of the list. It keeps its place until [`Ready::leave`], and must leave
    /// before another task becomes ready. Returns the task after it in this pass.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<Runnable> {
        self.plain.take();
        self.plain.peek()
    }

    /// Removes the task that was popped last, if it keeps its place.
    #[inline(always)]
    pub(super) fn leave(&mut self) {
        self.plain.leave();
    }

    pub(super) fn remove(&mut self, task: Runnable) {
        match &mut self.turns {
            _ if task.tid.is_daemon() => self.daemons.remove(task),
            None => self.plain.remove(task),
            Some(turns) if turns.holder == Some(task) => turns.holder = None,
            Some(turns) => drop(turns.ask("remove", |policy| policy.remove(task))),
        }
    }

    /// Adds a task of another kernel. The policy gets no facts of it.
    pub(super) fn push_apart(&mut self, task: Runnable, cause: Cause) {
        match &mut self.turns {
            None => self.plain.push(task, cause),
            Some(turns) => {
                turns.handed += 1;
                turns.ask("push", |policy| policy.push(task, cause));
            }
        }
    }

    /// Takes the task of another kernel that has the next turn.
    pub(super) fn pop_apart(&mut self) -> Option<Runnable> {
        match &mut self.turns {
            None => self.plain.pop(),
            Some(turns) => turns.pop(),
        }
    }

    pub(super) fn pop_daemon(&mut self) -> Option<Runnable> {
        self.daemons.pop()
    }

    /// Returns the number of ready daemons.
    pub(super) fn daemons(&self) -> usize {
        self.daemons.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of ready tasks, daemons apart.
    pub(super) fn len(&self) -> usize {
        match &self.turns {
            None => self.plain.len(),
            Some(turns) => turns.len() + usize::from(turns.holder.is_some()),
        }
    }

    /// Removes all entries, which are of ended tasks, and reseeds the policy.
    pub(super) fn reset(&mut self, seed: u64) {
        self.plain.clear();
        self.daemons.clear();
        self.next = None;
        if let Some(turns) = &mut self.turns {
            turns.reset(seed);
        }
    }
}

/// Passes of turns.
impl Ready {
    /// Prepares for the turns up to the next poll, and gives back memory that a crowd has left.
    pub(super) fn begin(&mut self) {
        self.plain.shrink();
        self.is_special = self.turns.is_some() || self.plain.exceeds(CROWD);
    }

    /// Ends a pass. The tasks that have kept their places are last in the order.
    pub(super) fn end_pass(&mut self) {
        self.plain.end_pass();
    }

    /// Returns the number of ticks up to the next poll of the world.
    #[inline]
    pub(super) fn pass(&self) -> u64 {
        POLL_AFTER.max(self.len() as u64)
    }

    pub(super) fn is_plain(&self) -> bool {
        self.turns.is_none()
    }

    /// Returns whether there is a policy, or a crowd of tasks, for which prefetching pays.
    #[inline(always)]
    pub(super) fn is_special(&self) -> bool {
        self.is_special
    }

    /// Returns the task of the list that comes after so many others.
    pub(super) fn ahead(&self, turns: usize) -> Option<Runnable> {
        self.plain.ahead(turns)
    }
}

/// What a policy is told and asked.
impl Ready {
    fn ask<T>(&mut self, method: &str, ask: impl FnOnce(&mut dyn Policy) -> T) -> Option<T> {
        self.turns.as_mut()?.ask(method, ask)
    }

    pub(super) fn charge(&mut self, facts: &Facts<'_>) {
        self.ask("charge", |policy| policy.charge(facts));
    }

    /// Returns how long a task may compute, at least a nanosecond.
    pub(super) fn slice(&mut self, facts: &Facts<'_>) -> Nanos {
        let slice = self.ask("slice", |policy| policy.slice(facts));
        slice.unwrap_or(Nanos::FOREVER).max(Nanos(1))
    }

    /// Returns whether a task that becomes ready interrupts one that computes.
    pub(super) fn preempts(&self, ready: &Facts<'_>, running: &Facts<'_>) -> bool {
        let turns = self.turns.as_ref();
        let preempts = turns
            .and_then(|turns| turns.view("preempts", |policy| policy.preempts(ready, running)));
        preempts == Some(true)
    }

    pub(super) fn changed(&mut self, facts: &Facts<'_>) {
        if let Some(turns) = &mut self.turns
            && turns.holder != Some(facts.task)
        {
            turns.ask("changed", |policy| policy.changed(facts));
        }
    }

    #[inline(always)]
    pub(super) fn ended(&mut self, task: Runnable) {
        if !task.tid.is_daemon() {
            self.ask("ended", |policy| policy.ended(task));
        }
    }

    pub(super) fn next_alarm(&self) -> Nanos {
        let turns = self.turns.as_ref();
        turns.map_or(Nanos::FOREVER, |turns| turns.alarm)
    }

    /// Calls the policy at its instant.
    pub(super) fn alarm(&mut self, now: Nanos) {
        if let Some(turns) = &mut self.turns {
            let next = turns.ask("alarm", |policy| policy.alarm(now));
            turns.alarm = next.filter(|next| *next > now).unwrap_or(Nanos::FOREVER);
        }
    }

    pub(super) fn inherits(&self) -> bool {
        self.turns.as_ref().is_some_and(|turns| turns.inherits)
    }

    /// Returns whether the policy may withhold a task: it has not returned all.
    pub(super) fn is_doubtful(&self) -> bool {
        let turns = self.turns.as_ref();
        turns.is_some_and(|turns| turns.is_doubted || turns.handed > 0)
    }

    /// Ends the doubt: the policy fails if it withholds a task.
    pub(super) fn decide(&mut self, is_any_ready: bool) {
        if let Some(turns) = &mut self.turns {
            if is_any_ready {
                turns.fail("withholds a task that is ready");
            }
            turns.is_doubted = false;
        }
    }

    /// Replaces a failed policy by an empty [`Fifo`], and returns why it failed.
    #[inline(always)]
    pub(super) fn take_failure(&mut self) -> Option<String> {
        let turns = self.turns.as_mut()?;
        turns.failure.get()?;
        turns.take_failure()
    }
}

impl Turns {
    fn new((name, policy): Named, quantum: u32) -> Self {
        let mut turns = Self {
            name,
            policy,
            handed: 0,
            is_doubted: false,
            failure: OnceCell::new(),
            quantum: quantum.max(1),
            left: 0,
            holder: None,
            alarm: Nanos::ZERO,
            inherits: false,
            wants_facts: true,
        };
        turns.inherits = turns.view("inherits", |policy| policy.inherits()) == Some(true);
        let wants = turns.view("wants_facts", |policy| policy.wants_facts());
        turns.wants_facts = wants == Some(true);
        turns
    }

    fn requeue(&mut self, task: Runnable, call: SystemCall) -> Option<Cause> {
        match call {
            SystemCall::Yield
            | SystemCall::Sleep(Nanos::ZERO)
            | SystemCall::Compute(Nanos::ZERO) => Some(Cause::Yielded),
            _ if self.left > 0 => {
                self.holder = Some(task);
                None
            }
            _ => Some(Cause::Preempted),
        }
    }

    /// Takes the next task: the one whose turn continues, or the one that the policy chooses.
    #[inline(always)]
    fn pop(&mut self) -> Option<Runnable> {
        if self.holder.is_some() {
            self.left -= 1;
            return self.holder.take();
        }
        self.left = self.quantum - 1;
        let task = self.ask("pop", |policy| policy.pop())?;
        let rest = self.handed.checked_sub(1);
        let (Some(_), Some(rest)) = (task, rest) else {
            self.check_chosen(task);
            return None;
        };
        self.handed = rest;
        task
    }

    /// Checks the answer of a policy that gives no task, or was handed none.
    #[cold]
    #[inline(never)]
    fn check_chosen(&mut self, task: Option<Runnable>) {
        match task {
            Some(_) => self.fail("gives more tasks than it was handed"),
            None if self.len() > 0 => self.fail("gives no task, though its `len` counts some"),
            None => {
                self.is_doubted = self.handed > 0;
                self.handed = 0;
            }
        }
    }

    fn reset(&mut self, seed: u64) {
        (self.left, self.holder) = (0, None);
        // Not until the policy is empty: it may return tasks for ever.
        for _ in 0..self.handed {
            if self.ask("pop", |policy| policy.pop()).flatten().is_none() {
                break;
            }
        }
        (self.handed, self.is_doubted, self.alarm) = (0, false, Nanos::ZERO);
        self.ask("reseed", |policy| policy.reseed(seed));
    }

    /// Returns the length that the policy claims, but at most the number of tasks it has.
    fn len(&self) -> usize {
        let len = self.view("len", |policy| policy.len());
        len.unwrap_or(0).min(self.handed)
    }

    /// Calls a method that does not change the policy; returns `None` if it has failed.
    fn view<T>(&self, method: &str, view: impl FnOnce(&dyn Policy) -> T) -> Option<T> {
        guarded(&self.failure, &self.name, method, || view(&*self.policy))
    }

    /// Calls a method of the policy; returns `None` if it has failed.
    #[inline(always)]
    fn ask<T>(&mut self, method: &str, ask: impl FnOnce(&mut dyn Policy) -> T) -> Option<T> {
        let policy = &mut *self.policy;
        guarded(&self.failure, &self.name, method, || ask(policy))
    }

    fn fail(&self, why: &str) {
        fail(&self.failure, self.name, why);
    }

    #[cold]
    fn take_failure(&mut self) -> Option<String> {
        let failure = self.failure.take()?;
        (self.handed, self.is_doubted) = (0, false);
        (self.left, self.holder) = (0, None);
        self.replace();
        Some(failure)
    }

    /// Replaces the policy, whose destructor may panic.
    fn replace(&mut self) {
        let (name, policy) = fifo();
        self.name = name;
        (self.alarm, self.inherits) = (Nanos::FOREVER, false);
        self.wants_facts = true;
        let old = std::mem::replace(&mut self.policy, policy);
        contain(|| drop(old));
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.replace();
    }
}

/// Calls a method, unless the policy has failed. A panic is its failure, and only that reads the name: the reference to
/// it takes one register where the text takes two.
#[inline(always)]
fn guarded<T>(
    failure: &OnceCell<String>,
    name: &&'static str,
    method: &str,
    call: impl FnOnce() -> T,
) -> Option<T> {
    if failure.get().is_some() {
        return None;
    }
    let called = catch_unwind(AssertUnwindSafe(call));
    called
        .map_err(|panic| panicked(failure, name, method, panic))
        .ok()
}

#[cold]
#[inline(never)]
fn panicked(failure: &OnceCell<String>, name: &str, method: &str, panic: Panic) {
    let message = panic_message(panic);
    fail(failure, name, &format!("panicked in `{method}`: {message}"));
}

/// Marks the policy as failed. The first failure is reported.
#[cold]
fn fail(failure: &OnceCell<String>, name: &str, why: &str) {
    let _ = failure.set(format!("the policy {name} {why}"));
}

fn fifo() -> Named {
    (std::any::type_name::<Fifo>(), Box::<Fifo>::default())
}
