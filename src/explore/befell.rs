//! The faults of a schedule, and what felt them first.

use std::collections::BTreeMap;

use crate::{Calls, Event, Exit, Fact, Fault, Inject, Reply, SystemCall, Tid};

/// A fault that has happened.
#[derive(Debug)]
pub(super) struct Befell {
    /// In the words of `--may`.
    text: String,
    at: String,
    felt: Option<Felt>,
}

/// What has felt a fault: a call, with the row of its turn, or a task.
#[derive(Clone, Debug)]
pub(super) struct Felt {
    by: String,
    row: Option<usize>,
}

impl Felt {
    /// A call that failed or that a timeout has cut, by its text.
    pub(super) fn call(text: &str, row: usize) -> Self {
        let by = text.split('(').next().unwrap_or_default().to_string();
        Self { by, row: Some(row) }
    }

    /// A task that was killed.
    pub(super) fn task(name: &str, tid: Tid) -> Self {
        Self {
            by: format!("the task {name} {tid}"),
            row: None,
        }
    }
}

/// Tells which faults tasks feel. Each fault is felt once.
#[derive(Default)]
pub(super) struct Feelings<K> {
    /// What has happened and was not felt yet.
    pending: Vec<(K, Fault)>,
    /// The hosts of tasks, and the last call of each.
    tasks: BTreeMap<Tid, (String, Option<SystemCall>)>,
    /// The task whose call an injection has changed: its answer is the injection's.
    injected: Option<Tid>,
    is_in_turn: bool,
}

impl<K> Feelings<K> {
    /// A fault has happened, between turns.
    pub(super) fn add(&mut self, key: K, fault: Fault) {
        self.pending.push((key, fault));
    }

    /// Returns the faults that the task of this event feels by it.
    pub(super) fn observe(&mut self, event: &Event<'_>) -> Vec<K> {
        let (fact, tid) = (&event.fact, event.tid);
        match fact {
            Fact::Resumed => self.is_in_turn = true,
            Fact::Fault { .. } if tid == Tid::KERNEL => self.is_in_turn = false,
            Fact::ClockJumped { .. } => self.is_in_turn = false,
            Fact::Spawned { name, .. } => {
                let host = name.rsplit_once('@').map_or("localhost", |(_, host)| host);
                self.tasks.insert(tid, (host.to_string(), None));
            }
            Fact::Trapped { call, .. } => {
                if let Some(task) = self.tasks.get_mut(&tid) {
                    task.1 = Some(*call);
                }
            }
            Fact::Injected {
                inject: Inject::Fail(_) | Inject::Cut | Inject::CutIn,
            } => self.injected = Some(tid),
            Fact::Replied { reply, .. } => {
                let is_injected = self.injected == Some(tid);
                self.injected = self.injected.filter(|_| !is_injected);
                let is_bad = matches!(reply, Reply::Io | Reply::Elapsed(_));
                if is_bad && !is_injected {
                    return self.feel(tid, is_error_of);
                }
            }
            Fact::Exited { exit } => {
                let felt = match exit {
                    Exit::Killed if !self.is_in_turn => {
                        self.feel(tid, |fault, host, _| is_kill_of(fault, host))
                    }
                    _ => Vec::new(),
                };
                self.tasks.remove(&tid);
                return felt;
            }
            _ => {}
        }
        Vec::new()
    }

    fn feel(&mut self, tid: Tid, is_of: fn(&Fault, &str, SystemCall) -> bool) -> Vec<K> {
        let Some((host, call)) = self.tasks.get(&tid) else {
            return Vec::new();
        };
        let call = call.unwrap_or(SystemCall::GetTid);
        let pending = self
            .pending
            .extract_if(.., |(_, fault)| is_of(fault, host, call));
        pending.map(|(key, _)| key).collect()
    }
}

/// Reads the fault of an event. Behind its words is what a crash may lose.
pub(super) fn fault_of(text: &str) -> Option<Fault> {
    text.split(": ").next()?.parse().ok()
}

/// Whether a call of a task on this host can fail, or last too long, because of a fault.
fn is_error_of(fault: &Fault, host: &str, call: SystemCall) -> bool {
    let is_of_disk = Calls::FILES.contains(call);
    let is_of_net = Calls::NETWORK.contains(call) || Calls::DEVICES.contains(call);
    match fault {
        Fault::Cut(..)
        | Fault::CutOneWay(..)
        | Fault::Heal(..)
        | Fault::Hold(..)
        | Fault::Release(..)
        | Fault::Reset(..) => is_of_net && fault.hosts().contains(&host),
        // Its peers may be on any host.
        Fault::Slow(..)
        | Fault::Crash(_)
        | Fault::Restart(_)
        | Fault::Power(_)
        | Fault::Fragment(_)
        | Fault::Loss(_)
        | Fault::Duplicate(_)
        | Fault::Reorder(_) => is_of_net,
        Fault::DiskEio(_) | Fault::DiskRot(_) | Fault::DiskFull(_) | Fault::DiskHeal(_) => {
            is_of_disk && fault.hosts().contains(&host)
        }
        Fault::ClockStep(..) | Fault::ClockLeap(..) => false,
    }
}

/// Whether a fault kills the tasks of this host.
fn is_kill_of(fault: &Fault, host: &str) -> bool {
    matches!(fault, Fault::Crash(of) | Fault::Power(of) if of == host)
}

impl Befell {
    /// A fault before the turn of this number.
    pub(super) fn before(text: &str, turn: u32) -> Self {
        Self {
            text: text.to_string(),
            at: format!("before turn {turn}"),
            felt: None,
        }
    }

    /// What befalls a call in the turn of this number.
    pub(super) fn call(call: &str, inject: Inject, turn: u32, felt: Felt) -> Self {
        let call = call.split('(').next().unwrap_or_default();
        let what = match inject {
            Inject::Fail(kind) => format!("error={kind:?}"),
            Inject::Delay(span) => format!("delay={span:?}"),
            Inject::Kill => "kill".to_string(),
            Inject::KillIn => "kill within it".to_string(),
            Inject::Cut => "timeout".to_string(),
            Inject::CutIn => "timeout within it".to_string(),
        };
        Self {
            text: format!("{call}:{what}"),
            at: format!("at turn {turn}"),
            felt: Some(felt),
        }
    }

    pub(super) fn feel(&mut self, felt: &Felt) {
        self.felt.get_or_insert_with(|| felt.clone());
    }

    /// Describes the fault; `place` is that of the call of a row.
    pub(super) fn describe(&self, place: impl Fn(usize) -> String) -> String {
        let Self { text, at, felt } = self;
        let Some(Felt { by, row }) = felt else {
            return format!("{text} {at}, felt by no task");
        };
        let place = row.map(place).filter(|place| !place.is_empty());
        let place = place.map_or(String::new(), |place| format!(" at {place}"));
        format!("{text} {at}, felt by {by}{place}")
    }
}

#[cfg(test)]
mod tests {
    use super::fault_of;
    use crate::Fault;

    #[test]
    fn a_fault_is_read_whatever_it_may_lose() {
        for text in ["crash server", "crash server: its disk may lose 1 write"] {
            assert_eq!(fault_of(text), Some(Fault::Crash("server".into())));
        }
        assert_eq!(fault_of("a word"), None);
    }
}
