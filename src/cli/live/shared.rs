//! What the daemons of a kernel share.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
};

use super::sampler::Sampler;
use crate::{Event, Follower, Remote, Tracer, record::Tape};

/// What the daemons share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) recent: Rc<RefCell<Follower>>,
    /// Where the run is recorded, if it is.
    pub(super) tape: Option<Tape>,
    kernel: Remote,
    sampler: Rc<RefCell<Weak<Sampler>>>,
}

/// A tracer that keeps `recent` up to date.
pub(super) fn tracer(recent: &Rc<RefCell<Follower>>) -> impl Tracer + use<> {
    Recording(Rc::clone(recent))
}

impl Shared {
    pub(super) fn new(recent: Rc<RefCell<Follower>>, kernel: Remote, tape: Option<&Tape>) -> Self {
        Self {
            recent,
            tape: tape.cloned(),
            kernel,
            sampler: Rc::default(),
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

struct Recording(Rc<RefCell<Follower>>);

impl Tracer for Recording {
    fn event(&mut self, event: &Event<'_>) {
        self.0.borrow_mut().event(event);
    }

    fn is_exact(&self) -> bool {
        false
    }
}
