//! What the columns of the table of calls hold, beside arguments.

use super::{DeviceId, Nanos, QueueId, Tid};

/// The class of a call: what limits allow or deny together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Tasks,
    Time,
    Queues,
    Devices,
    Network,
    Files,
    World,
    Admin,
    /// Always allowed.
    Free,
}

#[derive(PartialEq, Eq)]
pub(super) enum Mark {
    /// The call only asks or arms.
    Asks,
    /// It returns an [`io::Result`](std::io::Result).
    Io,
    /// It may be refused with an [`Errno`](super::Errno), even by its stub.
    Fails,
    /// Its stub returns that [`Errno`](super::Errno).
    Refuses,
}

/// What a call touches whatever the state is: its footprint, for the search.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Touches {
    /// Only the caller.
    Nothing,
    All,
    World,
    /// It reads what only faults and settings of the network change.
    Net,
    /// A device. The network tells which calls on it commute with those on other devices.
    Device(DeviceId),
    /// The same, and the call closes it.
    Close(DeviceId),
    /// The call opens a connection, which gets the next number of a device.
    Opens,
    /// The call reads the clock, or arms or disarms a timer.
    Clock,
    Random,
    Tids,
    /// The call ends the task.
    Life(Tid),
    /// The call waits for the end of the task.
    Exit(Tid),
    Zombie(Tid),
    /// The end of a queue where the caller waits to put.
    Put(QueueId),
    /// The same end; it does not wait.
    TryPut(QueueId),
    /// The end of a queue where the caller waits to get.
    Get(QueueId),
    /// Both ends of a queue, and its permits.
    Ends(QueueId),
    /// The tasks that wait at a queue without handles.
    Waiters(QueueId),
    /// A mailbox. The call itself touches only its caller, but what another thread does is unknown.
    Mail,
    Processor(Nanos),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beside {
    None,
    /// With its name and the options of a new task.
    Program,
    Exit,
    Job,
    /// Of a mailbox, on a tape alone.
    Mail,
    Store,
    Source,
    Addr,
    Name,
    /// What a choice is about, or nothing.
    Text,
    Fault,
    /// In the buffer, or only their number.
    Bytes,
    Message,
    /// Of permits.
    Count,
    /// Whether a timeout has a body.
    Body,
    /// Whether a task has waited for the end of that task.
    Waited,
    /// And an offset, and a number of bytes.
    File,
    Tracer,
    /// A scheduling policy.
    Policy,
    /// An operation on names of a disk.
    Disk,
    /// An operation on an open file.
    FileOp,
    /// The sources of a select, and the number of the first to look at.
    Interests,
    Scope,
    /// A store, and the set of signals as a word.
    Signals,
    /// In the buffer, and the address of the receiver in a cell of its own.
    Datagram,
    /// The options of a socket.
    Options,
    /// The queue that a shield closes when it holds a timeout back.
    Closes,
}
