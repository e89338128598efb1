//! What the daemons of a kernel share.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
};

use trapline::{Event, Ledger, Os, Remote, Tid, Tracer, record::Handle};

use super::sampler::Sampler;

/// What the daemons share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) recent: Rc<RefCell<Ledger>>,
    /// Where the run is recorded, if it is.
    pub(super) recorded: Option<Handle>,
    /// Why no task may be killed, if so.
    no_kill: Option<&'static str>,
    kernel: Remote,
    sampler: Rc<RefCell<Weak<Sampler>>>,
}

/// A tracer that keeps `recent` up to date.
pub(super) fn tracer(recent: &Rc<RefCell<Ledger>>) -> impl Tracer + use<> {
    Recording(Rc::clone(recent))
}

impl Shared {
    pub(super) fn new(
        recent: Rc<RefCell<Ledger>>,
        kernel: Remote,
        recorded: Option<&Handle>,
        no_kill: Option<&'static str>,
    ) -> Self {
        Self {
            recent,
            recorded: recorded.cloned(),
            no_kill,
            kernel,
            sampler: Rc::default(),
        }
    }

    /// Kills a task.
    ///
    /// *Errors:* a text that says why the task is not killed.
    pub(super) async fn kill(&self, os: &mut Os, tid: u64) -> Result<(), String> {
        if let Some(why) = self.no_kill {
            return Err(why.into());
        }
        let victim = Tid::from(tid);
        match !victim.is_daemon() && os.kill(victim).await {
            true => Ok(()),
            false => Err(missing(tid)),
        }
    }

    /// The sampling thread, which lives while a handle exists; none if it cannot be started.
    pub(super) fn sampler(&self) -> Option<Rc<Sampler>> {
        if let Some(sampler) = self.sampler.borrow().upgrade() {
            return Some(sampler);
        }
        let sampler = Rc::new(Sampler::start(self.kernel.clone()).ok()?);
        *self.sampler.borrow_mut() = Rc::downgrade(&sampler);
        Some(sampler)
    }
}

/// The error of a request about a task that does not exist.
pub(super) fn missing(tid: u64) -> String {
    format!("there is no live task {tid}")
}

struct Recording(Rc<RefCell<Ledger>>);

impl Tracer for Recording {
    fn event(&mut self, event: &Event<'_>) {
        self.0.borrow_mut().event(event);
    }

    fn is_exact(&self) -> bool {
        false
    }
}
