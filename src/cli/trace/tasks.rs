//! Who the events of a recording are about, and at which call they are.

use std::{fmt, time::Duration};

use rustc_hash::FxHashMap;

use crate::{Call, Event, Fact, Tid, Told, record::OwnedEvent};

/// The tasks that live, as far as the events have told of them.
#[derive(Default)]
pub(super) struct Tasks(FxHashMap<Tid, Task>);

pub(super) struct Task {
    comm: String,
    /// Its last trap.
    trap: Option<OwnedEvent>,
    /// Whether it has been blocked in it.
    has_blocked: bool,
    /// Whether it has been answered. A timeout may come after that.
    has_reply: bool,
}

/// A task's last call.
pub(super) struct Trap<'a> {
    pub(super) at: Duration,
    pub(super) call: Call<'a>,
    /// Whether the task has been blocked in it.
    pub(super) has_blocked: bool,
    /// Whether it is over.
    has_reply: bool,
}

impl Tasks {
    /// Learns who somebody is; to be called before anything is asked about the event.
    pub(super) fn meet(&mut self, event: &Event<'_>) {
        if let Fact::Spawned { name, .. } = event.fact {
            let task = Task {
                comm: name.to_string(),
                trap: None,
                has_blocked: false,
                has_reply: false,
            };
            self.0.insert(event.tid, task);
        }
    }

    /// Learns what the event changes; to be called when all is said about it.
    pub(super) fn follow(&mut self, event: OwnedEvent) {
        let tid = event.tid;
        let Some(task) = self.0.get_mut(&tid) else {
            return;
        };
        match event.borrow().fact {
            Fact::Trapped { .. } => {
                task.trap = Some(event);
                (task.has_blocked, task.has_reply) = (false, false);
            }
            Fact::Blocked { .. } => task.has_blocked = true,
            Fact::Replied { .. } => task.has_reply = true,
            Fact::Reaped => drop(self.0.remove(&tid)),
            _ => {}
        }
    }

    /// A task's name, as it was given.
    pub(super) fn comm(&self, tid: Tid) -> &str {
        match tid {
            Tid::KERNEL => "kernel",
            tid => self.0.get(&tid).map_or("?", |task| &task.comm),
        }
    }

    /// What a task has last asked for, until it is answered.
    pub(super) fn trap(&self, tid: Tid) -> Option<Trap<'_>> {
        self.last(tid).filter(|trap| !trap.has_reply)
    }

    /// What a task has last asked for.
    pub(super) fn last(&self, tid: Tid) -> Option<Trap<'_>> {
        let task = self.0.get(&tid)?;
        let Event { at, fact, .. } = task.trap.as_ref()?.borrow();
        let Fact::Trapped { call, detail } = fact else {
            return None;
        };
        Some(Trap {
            at,
            call: Call(call, detail),
            has_blocked: task.has_blocked,
            has_reply: task.has_reply,
        })
    }

    /// The event in the words of a trace.
    pub(super) fn tell(&self, event: &Event<'_>) -> String {
        let trap = self.last(event.tid);
        let told = Told {
            fact: &event.fact,
            // A trap that was before the recording is not known.
            call: trap
                .as_ref()
                .map_or(&"?", |trap| &trap.call as &dyn fmt::Display),
            is_shown: trap
                .as_ref()
                .is_none_or(|trap| trap.has_blocked || trap.has_reply),
        };
        told.to_string()
    }
}
