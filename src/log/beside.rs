//! Events of a kernel that are shown beside those of others: the number of the kernel is before the
//! numbers of its tasks, queues and devices.

use super::{Detail, Event, Fact, Wake};
use crate::abi::{
    Argument, Interest, KernelId, On, Reply, SystemCall, Tid, beside as number_beside,
};

impl Event<'_> {
    /// Returns the event with the number of its kernel before those of the tasks, queues and devices that it
    /// names: what reads several recordings together tells them apart.
    ///
    /// ```
    /// use trapline::{Event, Fact, KernelId, On};
    ///
    /// let event = Event {
    ///     at: Default::default(),
    ///     tid: 17.into(),
    ///     fact: Fact::Blocked { on: On::Exit(3.into()) },
    ///     place: None,
    /// };
    /// let shown = event.beside(KernelId::at(1)).to_string();
    /// assert_eq!(shown, "00:00.000000000 2:17 blocked on the end of task 2:3");
    /// ```
    #[must_use]
    pub fn beside(mut self, kernel: KernelId) -> Self {
        self.tid = self.tid.beside(kernel);
        self.fact.put_beside(kernel);
        self
    }
}

/// The host is no task.
fn parent(tid: Tid, kernel: KernelId) -> Tid {
    match tid {
        Tid::KERNEL => tid,
        tid => tid.beside(kernel),
    }
}

impl Fact<'_> {
    fn put_beside(&mut self, kernel: KernelId) {
        match self {
            Self::Spawned { parent: tid, .. } => *tid = parent(*tid, kernel),
            Self::Trapped { call, detail } => {
                *call = call_beside(*call, kernel);
                detail.put_beside(kernel);
            }
            Self::Deferred { call } => *call = call_beside(*call, kernel),
            Self::Replied { reply, detail } => {
                *reply = reply_beside(*reply, kernel);
                detail.put_beside(kernel);
            }
            Self::Blocked { on } => match on {
                On::Exit(tid) => *tid = tid.beside(kernel),
                On::Device(device, _) => *device = device.beside(kernel),
                On::Queue(queue, _) => *queue = queue.beside(kernel),
                On::Timer(_) | On::First(_) => {}
            },
            Self::Woken { by } => match by {
                Wake::Exit(tid) => *tid = tid.beside(kernel),
                Wake::Device(device, _) | Wake::Closed(device) => *device = device.beside(kernel),
                Wake::Queue(queue) => *queue = queue.beside(kernel),
                Wake::Timer | Wake::Timeout => {}
            },
            Self::DeviceIo { device, .. } => *device = device.beside(kernel),
            Self::Accessed { value, .. } => *value = number_beside(*value, kernel),
            Self::Deadlocked { cycle } => {
                for tid in cycle.to_mut() {
                    *tid = tid.beside(kernel);
                }
            }
            Self::Limited { .. }
            | Self::Fault { .. }
            | Self::Resumed
            | Self::Injected { .. }
            | Self::Console { .. }
            | Self::Exited { .. }
            | Self::Reaped
            | Self::Computing { .. }
            | Self::Preempted { .. }
            | Self::Signalled { .. }
            | Self::ClockJumped { .. } => {}
        }
    }
}

impl Detail<'_> {
    fn put_beside(&mut self, kernel: KernelId) {
        if let Self::Sources(sources) = self {
            for source in sources.to_mut() {
                match source {
                    Interest::Exit(tid) => *tid = tid.beside(kernel),
                    Interest::Device(device, _) => *device = device.beside(kernel),
                    Interest::Queue(queue, _) | Interest::Permits(queue, _) => {
                        *queue = queue.beside(kernel);
                    }
                    Interest::After(_) | Interest::At(_) => {}
                }
            }
        }
    }
}

fn call_beside(call: SystemCall, kernel: KernelId) -> SystemCall {
    let argument = argument_beside(call.argument(), kernel);
    call.with_argument(argument).unwrap_or(call)
}

fn reply_beside(reply: Reply, kernel: KernelId) -> Reply {
    let argument = argument_beside(reply.argument(), kernel);
    reply.with_argument(argument).unwrap_or(reply)
}

fn argument_beside(argument: Argument, kernel: KernelId) -> Argument {
    match argument {
        Argument::Task(tid) => Argument::Task(tid.beside(kernel)),
        Argument::Device(device) => Argument::Device(device.beside(kernel)),
        Argument::Queue(queue) => Argument::Queue(queue.beside(kernel)),
        argument => argument,
    }
}
