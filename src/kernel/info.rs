//! The description of a task, for lists and reports.

use super::{
    Kernel,
    queues::MessageQueue,
    task::{ReadOp, State, Task, Then, WaitingOn},
};
use crate::{
    abi::{
        DeviceId, Direction, End, Exit, Interest, Kind, On, Place, SystemCall, TaskInfo, TaskState,
        Tid, Wait, first_of,
    },
    sched::Runnable,
    trap::QueueStatus,
};

impl Task {
    /// Describes a task, apart from what the tables of queues, hosts and places say of it.
    pub(super) fn info(&self, parent: Tid) -> TaskInfo {
        let state = match self.state() {
            State::Ready(_) | State::Late(_) | State::Pending(_) => TaskState::Ready,
            State::Running | State::Computing | State::Ending => TaskState::Running,
            State::Blocked(on) => TaskState::Blocked {
                on: (*on).into(),
                since: self.since().into(),
            },
            State::Zombie(None) => TaskState::Zombie(Exit::Done),
            State::Zombie(Some(exit)) => TaskState::Zombie(Exit::clone(exit)),
        };
        TaskInfo {
            tid: self.tid(),
            name: self.name().to_string(),
            parent,
            state,
            traps: self.traps(),
            wait: Wait::default(),
            spawned: self.spawned().map(Place::from),
            is_daemon: self.is_attendant,
            limits: None,
        }
    }
}

impl From<WaitingOn> for On {
    fn from(on: WaitingOn) -> Self {
        match on {
            WaitingOn::Exit(target) => Self::Exit(target.tid),
            WaitingOn::Timer((deadline, _)) | WaitingOn::Delay((deadline, _)) => {
                Self::Timer(deadline)
            }
            WaitingOn::Device(device, direction, _) => Self::Device(device, direction),
            WaitingOn::Queue(queue, end) => Self::Queue(queue, end),
            WaitingOn::Room(queue, _) => Self::Queue(queue, End::Put),
            WaitingOn::Console(_) => Self::Device(DeviceId::CONSOLE, Direction::Write),
            WaitingOn::Select(_, sources) => Self::First(sources.into()),
        }
    }
}

impl Kernel {
    /// Lists the tasks, zombies included, in order of their numbers.
    pub fn tasks(&self) -> impl Iterator<Item = TaskInfo> {
        let tasks = self.tasks.infos();
        tasks.map(|(task, info)| self.complete(task, info))
    }

    fn complete(&self, task: Runnable, mut info: TaskInfo) -> TaskInfo {
        info.limits = self.bounds.of(task.tid).map(ToString::to_string);
        let &State::Blocked(on) = self.tasks[task].state() else {
            return info;
        };
        let (mut kind, mut count) = (Kind::Queue, None);
        if let WaitingOn::Queue(queue, end) = on
            && let Some(status) = self.queues.get(queue).map(MessageQueue::status)
        {
            kind = status.kind;
            count = self.queues.get(queue).and_then(|found| found.request(task));
            info.wait.thing = kind.thing(queue, end, status.name());
            info.wait.holder = status.holder();
            // A lock that readers share may be free for another reader when a writer gives up.
            let may_go = || {
                status.holder().is_some()
                    && self.holder(queue, count.unwrap_or(1), Some(task)).is_none()
            };
            info.wait.is_lock = kind.is_lock() && !may_go();
        }
        if let WaitingOn::Room(queue, _) = on
            && let Some(status) = self.queues.get(queue).map(MessageQueue::status)
        {
            let queue = status.kind.title(queue, status.name());
            info.wait.thing = Some(format!("room for its text in {queue}"));
        }
        if let WaitingOn::Select(key, _) = on {
            info.wait.thing = Some(self.describe_sources(key));
            info.wait.enders = self.enders(task, key).unwrap_or_default();
            for source in self.selects.sources(key) {
                if let Interest::Device(device, direction) = source {
                    info.wait.is_accept |= self.devices.is_listener(device);
                    let net = self.world.net();
                    info.wait.is_client |= net.is_some_and(|net| net.is_client(device, direction));
                }
            }
        }
        if let WaitingOn::Device(device, ..) = on {
            info.wait.thing = self.devices.describe(device);
        }
        if let WaitingOn::Device(device, direction, _) = on
            && let Some(net) = self.world.net()
            && let Some(what) = net.describe(device)
        {
            info.wait.thing = Some(format!("{}, {what}", On::from(on)));
            info.wait.is_client = net.is_client(device, direction);
        }
        info.wait.is_timed = self.tasks[task].is_timed();
        info.wait.is_accept |= match on {
            WaitingOn::Device(_, _, Then::Read(ReadOp::Connection)) => true,
            WaitingOn::Device(device, _, Then::Read(ReadOp::Datagram(_))) => {
                self.devices.is_listener(device)
            }
            _ => false,
        };
        info.wait.call = name(on, kind, count.unwrap_or(1));
        info.wait.place = self.tasks[task].place_of_wait(on);
        info
    }

    /// Says what a select waits for.
    fn describe_sources(&self, key: u32) -> String {
        let net = self.world.net();
        first_of(self.selects.sources(key).map(|source| {
            if let Interest::Device(device, _) = source
                && let Some(what) = net.as_ref().and_then(|net| net.describe(device))
            {
                return format!("{}, {what}", source.words(Kind::Queue, ""));
            }
            let status = match source {
                Interest::Queue(queue, _) | Interest::Permits(queue, _) => {
                    self.queues.get(queue).map(MessageQueue::status)
                }
                _ => None,
            };
            let (kind, name) =
                status.map_or((Kind::Queue, ""), |status| (status.kind, status.name()));
            source.words_with(kind, name, status.and_then(QueueStatus::holder))
        }))
    }
}

fn name(on: WaitingOn, kind: Kind, count: u64) -> &'static str {
    match on {
        WaitingOn::Exit(_) => "wait",
        WaitingOn::Timer(_) => "sleep",
        WaitingOn::Device(_, _, Then::Read(ReadOp::Bytes(_))) => "recv",
        WaitingOn::Device(_, _, Then::Read(ReadOp::Datagram(_))) => "recv_from",
        WaitingOn::Device(_, _, Then::Read(ReadOp::Connection)) => "accept",
        WaitingOn::Device(_, _, Then::Read(ReadOp::Disk(call))) => {
            SystemCall::from_number(call as u8).map_or("", SystemCall::name)
        }
        WaitingOn::Device(_, _, Then::Read(ReadOp::Line)) => "read_line",
        WaitingOn::Device(_, _, Then::Again) => "send",
        WaitingOn::Device(_, Direction::Read, Then::Done) => "read_wait",
        WaitingOn::Device(_, Direction::Write, Then::Done) => "write_wait",
        WaitingOn::Queue(queue, End::Put) => kind.verb(SystemCall::Put(queue)),
        WaitingOn::Queue(queue, End::Get) => kind.verb_of(SystemCall::Take(queue), count),
        WaitingOn::Select(..) => "select",
        WaitingOn::Console(_) | WaitingOn::Room(..) | WaitingOn::Delay(_) => "",
    }
}
