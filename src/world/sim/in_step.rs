//! A simulated world among several on one clock.

use std::{cell::Cell, io::Result, rc::Rc, time::Duration};

use crate::world::{Happening, World, forward_world};

/// Where the kernel of a world is on the common clock. The world and the loop over all kernels share it.
pub(crate) struct Pace {
    /// The time of all kernels.
    clock: Rc<Cell<Duration>>,
    /// Since when the kernel waits, and until when; for ever without an instant.
    asleep: Cell<Option<Option<Duration>>>,
    /// Decides the choices of tasks, if not the seed.
    choose: Option<Box<Choose>>,
}

type Choose = dyn Fn(u64, u64) -> u64;

impl Pace {
    pub(crate) fn new(clock: &Rc<Cell<Duration>>, choose: Option<Box<Choose>>) -> Self {
        Self {
            clock: Rc::clone(clock),
            asleep: Cell::new(None),
            choose,
        }
    }

    /// Until when the kernel waits, if it does: for ever without an instant.
    pub(crate) fn asleep(&self) -> Option<Option<Duration>> {
        self.asleep.get()
    }

    pub(crate) fn wake(&self) {
        self.asleep.set(None);
    }
}

/// A world whose waits return at once. The clock advances when every kernel waits, for all of them.
pub(crate) struct InStep {
    inner: Box<dyn World>,
    pace: Rc<Pace>,
}

impl InStep {
    pub(crate) fn new(inner: Box<dyn World>, pace: &Rc<Pace>) -> Self {
        let pace = Rc::clone(pace);
        Self { inner, pace }
    }

    /// Sets the clock of this world to the common one. Nothing of its own happens before that.
    fn catch_up(&mut self, happened: &mut Vec<Happening>) -> Result<()> {
        let clock = self.pace.clock.get();
        while self.inner.now() < clock {
            // Interrupts come first, and leave the clock as it is.
            self.inner.wait(Some(clock), happened)?;
        }
        Ok(())
    }
}

impl World for InStep {
    forward_world!(inner: now, now_for_log, random, reseed, seed, reset, print, take_console);
    forward_world!(inner: holds_tasks, is_idle, remote, submit, io, spins, spin, net);
    forward_world!(inner: is_asked, before_turn, mail);

    fn choose(&mut self, of: u64, drawn: u64) -> u64 {
        match &self.pace.choose {
            Some(choose) => choose(of, drawn),
            None => self.inner.choose(of, drawn),
        }
    }

    fn wait(&mut self, deadline: Option<Duration>, happened: &mut Vec<Happening>) -> Result<()> {
        let before = happened.len();
        self.catch_up(happened)?;
        let clock = self.pace.clock.get();
        let report = self.inner.net().and_then(|net| net.state().next());
        let next = deadline.into_iter().chain(report.map(Duration::from)).min();
        let is_raised = self.inner.remote().is_raised();
        if is_raised || happened.len() > before || next.is_some_and(|next| next <= clock) {
            return self.inner.wait(Some(clock), happened);
        }
        self.pace.asleep.set(Some(next));
        Ok(())
    }

    /// The kernels do not wait for threads: what they send is there, or comes when another has its turn.
    fn wait_for_threads(
        &mut self,
        deadline: Option<Duration>,
        _patience: Duration,
        happened: &mut Vec<Happening>,
    ) -> Result<Duration> {
        self.wait(deadline, happened)?;
        Ok(Duration::ZERO)
    }
}
