//! The contract between a task and the kernel: what crosses at a trap.
//!
//! Everything here is plain data. [`SystemCall`] and [`Reply`] are `Copy` and exactly two words
//! wide: tag and payload. A narrower payload would be copied in pieces, and a trap would cost three
//! times as much. What does not fit travels beside them, in the kernel's frame.
//!
//! | file | owns |
//! |---|---|
//! | `abi.rs` | the tables of calls and replies |
//! | `columns.rs` | what the columns of the table of calls hold |
//! | `kind.rs` | the kinds of queues, and their words for calls |
//! | `mode.rs` | for what a file is opened |
//! | `limits.rs` | sets of calls, and what a task is limited to |
//! | `values.rs` | what they hold: ids, times, shares, errors |
//! | `task.rs` | the types that describe a task and its wait, and a queue |
//! | `signal.rs` | signals |
//! | `options.rs` | the options of sockets |

mod columns;
mod kind;
mod limits;
mod mode;
mod options;
mod signal;
mod task;
mod values;

use std::{fmt, io, time::Duration};

use columns::Mark;
pub(crate) use columns::{Beside, Class, Touches};
pub(crate) use kind::Kind;
pub use limits::{Calls, Limits};
pub use mode::Mode;
pub use options::{ListenOptions, StreamOptions};
pub(crate) use signal::SignalSet;
pub use signal::{Signal, UnknownSignal};
pub(crate) use task::first_of;
pub use task::{Exit, Interest, On, Place, QueueInfo, TaskInfo, TaskState, Wait};
pub use values::{
    Argument, DeviceId, Direction, End, Errno, HostId, KernelId, Nanos, QueueId, Share, Tid,
};
pub(crate) use values::{ShareOf, beside};

/// Names a variant, or `None` if the row of a table below has none.
macro_rules! or_none {
    ($Enum:ident) => { $Enum::None };
    ($Enum:ident $($variant:tt)+) => { $Enum::$($variant)+ };
}

/// Makes an enum of two words, number and argument, from a table with a row for each variant:
///
/// ```text
/// number Variant(argument: Kind(Type)),
/// ```
///
/// The kind is a variant of [`Argument`]. Recordings contain the number, so it never changes and is
/// never reused. A new row takes the next number.
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $Enum:ident {
            $(
                $(#[$docs:meta])*
                $number:literal $Row:ident $(($argument:ident: $Kind:ident($Type:ty)))?,
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u64)]
        #[non_exhaustive]
        pub enum $Enum {
            $($(#[$docs])* $Row $(($Type))? = $number,)*
        }

        impl $Enum {
            /// Returns its number in the table of `src/abi.rs`. Recordings contain it.
            #[must_use]
            pub fn number(self) -> u8 {
                match self {
                    $(Self::$Row { .. } => const {
                        assert!($number < 0x80, "recordings have seven bits for a number");
                        $number
                    },)*
                }
            }

            /// Returns the variant of this number, with an argument of zero; `None` if there is
            /// none.
            #[must_use]
            pub fn from_number(number: u8) -> Option<Self> {
                Some(match number {
                    $($number => Self::$Row $((<$Type>::default()))?,)*
                    _ => return None,
                })
            }

            /// Returns its argument.
            #[must_use]
            #[inline]
            pub fn argument(self) -> Argument {
                match self {
                    $(Self::$Row $(($argument))? => or_none!(Argument $($Kind($argument))?),)*
                }
            }

            /// Returns the same variant with another argument; `None` if the kind is wrong.
            #[must_use]
            pub fn with_argument(self, argument: Argument) -> Option<Self> {
                match (self, argument) {
                    $((Self::$Row { .. }, or_none!(Argument $($Kind($argument))?)) => {
                        Some(Self::$Row $(($argument))?)
                    })*
                    _ => None,
                }
            }
        }
    };
}

/// Makes [`SystemCall`] and its methods from the table of all calls:
///
/// ```text
/// number "name" Call(argument: Kind(Type)) + Beside => Touches(argument), Class; Mark Mark,
/// ```
///
/// The first columns are those of [`words`]. `+` names what travels beside the call, `=>` what it
/// [touches](Touches). Then comes its [`Class`]. The last column has its [`Mark`]s. A call also needs an arm in the kernel's
/// match, a stub on the task's side, and a row in the table of `docs/calls.md`, which a test checks.
macro_rules! calls {
    (
        $(#[$about:meta])*
        pub enum $Enum:ident {
            $(
                $(#[$docs:meta])*
                $number:literal $name:literal $Call:ident $(($argument:ident: $Kind:ident($Type:ty)))?
                $(+ $Beside:ident)? => $Touches:ident $(($touched:ident))?, $Class:ident
                $(; $($Mark:ident)+)?,
            )*
        }
    ) => {
        words! {
            $(#[$about])*
            pub enum $Enum {
                $($(#[$docs])* $number $Call $(($argument: $Kind($Type)))?,)*
            }
        }

        impl $Enum {
            /// The names of all calls.
            pub const NAMES: [&'static str; [$($name),*].len()] = [$($name),*];

            pub(crate) const CLASSES: [(u8, Class); Self::NAMES.len()] = [$(($number, Class::$Class)),*];

            /// Returns the call's name in traces, in the manner of `strace`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Call { .. } => $name,)*
                }
            }

            #[inline]
            pub(crate) fn beside(self) -> Beside {
                match self {
                    $(Self::$Call { .. } => or_none!(Beside $($Beside)?),)*
                }
            }

            #[allow(unused_variables, reason = "not every argument is touched")]
            pub(crate) fn touches(self) -> Touches {
                match self {
                    $(Self::$Call $(($argument))? => Touches::$Touches $(($touched))?,)*
                }
            }

            pub(crate) fn class(self) -> Class {
                match self {
                    $(Self::$Call { .. } => Class::$Class,)*
                }
            }

            fn marks(self) -> &'static [Mark] {
                match self {
                    $(Self::$Call { .. } => &[$($(Mark::$Mark),+)?],)*
                }
            }
        }
    };
}

calls! {
    /// A request to the kernel. A task makes it by yielding it; a task has no other exit to the
    /// kernel.
    ///
    /// Each call has a stub on [`Os`](crate::Os), whose documentation is the manual of the call.
    /// Arguments that are not part of the variant (a program, an address, bytes) travel in the
    /// kernel's frame, where only the stub can put them. Without it, such a call fails with
    /// [`Errno::Invalid`]; `Recv` and `Send` move no bytes.
    ///
    /// ```
    /// use trapline::SystemCall;
    ///
    /// let calls = (0..=u8::MAX).filter_map(SystemCall::from_number);
    /// assert!(calls.map(SystemCall::name).eq(SystemCall::NAMES));
    /// ```
    pub enum SystemCall {
        /// [`Os::get_tid`](crate::Os::get_tid). Returns [`Reply::Tid`].
        0 "get_tid" GetTid => Nothing, Free; Asks,
        /// [`Os::yield_now`](crate::Os::yield_now). Returns [`Reply::Done`].
        1 "yield" Yield => Nothing, Free,
        /// [`Os::spawn`](crate::Os::spawn). Returns [`Reply::Tid`] or [`Reply::Err`].
        2 "new_task" NewTask + Program => Tids, Tasks; Fails Refuses,
        /// [`Os::spawn_detached`](crate::Os::spawn_detached). Returns the same as
        /// [`SystemCall::NewTask`].
        3 "new_detached_task" NewDetachedTask + Program => Tids, Tasks; Fails Refuses,
        /// [`Os::kill`](crate::Os::kill). Returns [`Reply::Yes`] or [`Reply::No`].
        4 "kill_task" KillTask(tid: Task(Tid)) => Life(tid), Tasks,
        /// [`Os::wait`](crate::Os::wait). Returns [`Reply::Exit`] or [`Reply::Err`].
        5 "wait_task" WaitTask(tid: Task(Tid)) => Exit(tid), Tasks; Fails Refuses,
        /// [`Os::exit`](crate::Os::exit). Never returns.
        6 "exit" Exit + Exit => Nothing, Free,
        /// [`Os::shutdown`](crate::Os::shutdown). Never returns.
        7 "shutdown" Shutdown => All, Admin,
        /// [`Os::sleep`](crate::Os::sleep). Returns [`Reply::Done`].
        8 "sleep" Sleep(span: Span(Nanos)) => Clock, Time,
        /// [`Os::sleep_until`](crate::Os::sleep_until). Returns [`Reply::Done`].
        9 "sleep_until" SleepUntil(instant: Instant(Nanos)) => Clock, Time,
        /// [`Os::now`](crate::Os::now). Returns [`Reply::Time`].
        10 "now" Now => Clock, Time; Asks,
        /// [`Os::random`](crate::Os::random). Returns [`Reply::Random`].
        11 "random" Random => Random, World; Asks,
        /// [`Os::tasks`](crate::Os::tasks). Returns [`Reply::Tasks`].
        12 "tasks" Tasks => All, Tasks,
        /// [`Os::read_wait`](crate::Os::read_wait). Returns [`Reply::Done`] or [`Reply::Err`].
        13 "read_wait" ReadWait(device: Device(DeviceId)) => Device(device), Devices; Fails Refuses,
        /// [`Os::write_wait`](crate::Os::write_wait). Returns [`Reply::Done`] or [`Reply::Err`].
        14 "write_wait" WriteWait(device: Device(DeviceId)) => Device(device), Devices; Fails Refuses,
        /// [`Os::timeout`](crate::Os::timeout): arms it. Returns [`Reply::Timeout`], or
        /// [`Errno::Invalid`] without a body that it could cut short.
        15 "timeout" Timeout(span: Span(Nanos)) + Body => Clock, Time; Asks Fails,
        /// [`Os::run_blocking`](crate::Os::run_blocking): hands the work over. Returns
        /// [`Reply::Done`].
        16 "submit" Submit + Job => World, World,
        /// [`Queue::bounded`](crate::Queue::bounded), with its capacity. Returns [`Reply::Queue`]
        /// or [`Reply::Err`].
        17 "new_queue" NewQueue(capacity: Capacity(u64)) + Store => Nothing, Queues; Fails,
        /// [`Queue::put`](crate::Queue::put). Returns [`Reply::Done`], or [`Reply::Refused`] if it
        /// is closed.
        18 "put" Put(queue: Queue(QueueId)) + Message => Put(queue), Queues,
        /// [`Queue::get`](crate::Queue::get). Returns [`Reply::Message`] or [`Reply::Err`].
        19 "get" Get(queue: Queue(QueueId)) => Get(queue), Queues; Fails,
        /// [`Queue::try_put`](crate::Queue::try_put). Returns the same as [`SystemCall::Put`], or
        /// [`Reply::Full`].
        20 "try_put" TryPut(queue: Queue(QueueId)) + Message => TryPut(queue), Queues,
        /// [`Queue::try_get`](crate::Queue::try_get). Returns the same as [`SystemCall::Get`], or
        /// [`Reply::Again`].
        21 "try_get" TryGet(queue: Queue(QueueId)) => Ends(queue), Queues; Fails,
        /// [`Queue::close`](crate::Queue::close). Returns [`Reply::Done`] or [`Reply::Err`]. The queue of a
        /// condition stays open: this wakes the tasks that wait ([`Condition::notify_all`](crate::sync::Condition::notify_all)).
        22 "close_queue" CloseQueue(queue: Queue(QueueId)) => Ends(queue), Queues; Fails,
        /// [`Os::attach`](crate::Os::attach). Returns [`Reply::Device`] or [`Reply::Io`].
        23 "attach" Attach + Source => World, Devices; Io,
        /// [`Os::listen`](crate::Os::listen). Returns [`Reply::Device`] or [`Reply::Io`].
        24 "listen" Listen + Addr => World, Network; Io,
        /// [`Os::connect`](crate::Os::connect): starts it. Returns [`Reply::Device`] or
        /// [`Reply::Io`].
        25 "connect" Connect + Addr => Opens, Network; Io,
        /// Takes the result of a started connection, once it is writable. Returns [`Reply::Done`]
        /// or an error.
        26 "connected" Connected(device: Device(DeviceId)) => Device(device), Network; Io,
        /// [`TcpListener::accept`](crate::TcpListener::accept). Returns [`Reply::Device`] or an
        /// error.
        27 "accept" Accept(device: Device(DeviceId)) => Device(device), Network; Io,
        /// [`Device::recv`](crate::Device::recv). Returns [`Reply::Bytes`] or an error.
        28 "recv" Recv(device: Device(DeviceId)) + Bytes => Device(device), Devices; Io,
        /// [`Device::send`](crate::Device::send). Returns [`Reply::Bytes`], [`Reply::Again`] or an
        /// error.
        29 "send" Send(device: Device(DeviceId)) + Bytes => Device(device), Devices; Io,
        /// [`TcpStream::shutdown_write`](crate::TcpStream::shutdown_write). Returns [`Reply::Done`]
        /// or an error.
        30 "shutdown_write" ShutdownWrite(device: Device(DeviceId)) => Device(device), Network; Io,
        /// [`Device::close`](crate::Device::close). Returns [`Reply::Done`] or [`Reply::Err`].
        31 "close" Close(device: Device(DeviceId)) => Close(device), Devices; Fails Refuses,
        /// [`Device::send_file`](crate::Device::send_file). Returns [`Reply::Bytes`],
        /// [`Reply::Again`] or an error.
        32 "send_file" SendFile(device: Device(DeviceId)) + File => Device(device), Files; Io,
        /// Ends a task, which leaves no zombie. Returns the same as
        /// [`SystemCall::KillTask`]. Deferred, by handles of tasks that are dropped.
        33 "release" Release(tid: Task(Tid)) + Waited => Life(tid), Tasks,
        /// Makes a task leave no zombie: reaps it when it ends, or now if it has ended. Returns
        /// [`Reply::Done`]. Deferred, by a [`Child`](crate::Child) that is dropped.
        34 "disown" Disown(tid: Task(Tid)) + Waited => Zombie(tid), Tasks,
        /// Disarms the caller's timeout of that number and those within it. Returns
        /// [`Reply::Done`]. Deferred, when the body of a timeout has ended.
        35 "disarm" Disarm(timeout: Number(u64)) => Clock, Time; Asks,
        /// Gives back a message that the caller has received and not taken. Returns
        /// [`Reply::Done`]. Deferred.
        36 "give_back" GiveBack(queue: Queue(QueueId)) + Message => Ends(queue), Queues,
        /// Closes and frees a queue. Returns [`Reply::Done`]. Deferred, by the last handle.
        37 "free_queue" FreeQueue(queue: Queue(QueueId)) => Waiters(queue), Queues,
        /// [`Os::observe`](crate::Os::observe), with the tracer's number. Returns [`Reply::Done`].
        /// Deferred.
        38 "observe" Observe(tracer: Number(u64)) + Tracer => All, Admin,
        /// Detaches the tracer of that number. Returns [`Reply::Done`]. Deferred, by
        /// [`Observer`](crate::Observer).
        39 "unobserve" Unobserve(tracer: Number(u64)) => All, Admin,
        /// [`Os::host`](crate::Os::host). Returns [`Reply::Host`].
        40 "host" Host => Nothing, Network; Asks,
        /// [`Os::resolve`](crate::Os::resolve). Returns [`Reply::Addresses`], [`Reply::Io`], or
        /// [`Reply::Again`] where a thread has to ask the operating system.
        41 "resolve" Resolve + Name => Net, Network; Io,
        /// A fault of the simulated network; a crash ends the tasks of its host. Returns
        /// [`Reply::Done`]. Deferred, by [`SimNet`](crate::SimNet).
        42 "fault" Fault + Fault => All, Admin,
        /// [`Os::compute`](crate::Os::compute). Returns [`Reply::Done`].
        43 "compute" Compute(span: Span(Nanos)) => Processor(span), World,
        /// [`Os::set_tickets`](crate::Os::set_tickets), [`Os::set_nice`](crate::Os::set_nice) and
        /// [`Os::set_priority`](crate::Os::set_priority). Returns [`Reply::Done`].
        44 "set_share" SetShare(share: Share(Share)) => Nothing, Admin,
        /// [`Os::select`](crate::Os::select). Returns [`Reply::Ready`].
        45 "select" Select + Interests => Nothing, Free; Asks,
        /// Opens the queue of a flag again. Returns [`Reply::Done`] or [`Reply::Err`].
        46 "open_queue" OpenQueue(queue: Queue(QueueId)) => Ends(queue), Queues; Fails,
        /// [`Scope::run`](crate::Scope::run), with its deadline: begins it. Returns
        /// [`Reply::Timeout`], or [`Errno::Invalid`] without a scope.
        47 "scope" Scope(deadline: Instant(Nanos)) + Scope => Clock, Time; Asks Fails,
        /// [`Scope::cancel`](crate::Scope::cancel), with the task that runs it, and
        /// [`Os::cancel`](crate::Os::cancel). Returns [`Reply::Yes`] or [`Reply::No`].
        48 "cancel" Cancel(tid: Task(Tid)) + Scope => All, Tasks,
        /// [`Scope::deadline`](crate::Scope::deadline). Returns [`Reply::Done`], or
        /// [`Errno::Invalid`] without a scope.
        49 "set_deadline" SetDeadline(deadline: Instant(Nanos)) + Scope => All, Time; Fails,
        /// [`Os::shield`](crate::Os::shield): enters it. Returns [`Reply::Timeout`].
        50 "shield" Shield + Closes => Nothing, Time; Asks,
        /// Leaves the shield of that number. Returns [`Reply::Done`]. Deferred.
        51 "unshield" Unshield(shield: Number(u64)) => Nothing, Time; Asks,
        /// [`Os::catch`](crate::Os::catch). Returns [`Reply::Queue`] or [`Reply::Err`].
        52 "catch" Catch + Signals => All, World; Fails,
        /// Gives up the signals that come to this queue. Returns [`Reply::Done`]. Deferred, by
        /// [`Signals`](crate::Signals).
        53 "uncatch" Uncatch(queue: Queue(QueueId)) => All, World,
        /// [`TcpStream::shutdown_read`](crate::TcpStream::shutdown_read). Returns [`Reply::Done`]
        /// or an error.
        54 "shutdown_read" ShutdownRead(device: Device(DeviceId)) => Device(device), Network; Io,
        /// [`Semaphore::acquire_many`](crate::sync::Semaphore::acquire_many), and what takes permits as
        /// it does. Returns [`Reply::Permits`] or [`Reply::Err`].
        55 "take" Take(queue: Queue(QueueId)) + Count => Ends(queue), Queues; Fails,
        /// [`Semaphore::try_acquire_many`](crate::sync::Semaphore::try_acquire_many). Returns the same
        /// as [`SystemCall::Take`], or [`Reply::Again`].
        56 "try_take" TryTake(queue: Queue(QueueId)) + Count => Ends(queue), Queues; Fails,
        /// Gives permits back. Returns [`Reply::Done`]. Deferred, by
        /// [`Permit`](crate::sync::Permit) and the guards of locks.
        57 "give" Give(queue: Queue(QueueId)) + Count => Ends(queue), Queues; Fails,
        /// [`Os::spawn_daemon`](crate::Os::spawn_daemon). Returns the same as
        /// [`SystemCall::NewTask`].
        58 "new_daemon" NewDaemon + Program => Tids, Tasks; Fails Refuses,
        /// [`Disk::open`](crate::Disk::open). Returns [`Reply::Device`] or an error.
        59 "open" Open + Disk => World, Files; Io,
        /// [`Disk::rename`](crate::Disk::rename). Returns [`Reply::Done`] or an error.
        60 "rename" Rename + Disk => World, Files; Io,
        /// [`Disk::remove`](crate::Disk::remove). Returns [`Reply::Done`] or an error.
        61 "remove" Remove + Disk => World, Files; Io,
        /// [`Disk::list`](crate::Disk::list). Returns [`Reply::Done`] or an error.
        62 "list" List + Disk => World, Files; Io,
        /// [`Disk::create_dir`](crate::Disk::create_dir). Returns [`Reply::Done`] or an error.
        63 "create_dir" CreateDir + Disk => World, Files; Io,
        /// [`Disk::sync_dir`](crate::Disk::sync_dir). Returns [`Reply::Done`] or an error.
        64 "sync_dir" SyncDir + Disk => World, Files; Io,
        /// [`File::read_at`](crate::File::read_at). Returns [`Reply::Bytes`] or an error.
        65 "read_at" ReadAt(device: Device(DeviceId)) + FileOp => World, Files; Io,
        /// [`File::write_at`](crate::File::write_at). Returns [`Reply::Bytes`] or an error.
        66 "write_at" WriteAt(device: Device(DeviceId)) + FileOp => World, Files; Io,
        /// [`File::append`](crate::File::append). Returns [`Reply::Bytes`] or an error.
        67 "append" Append(device: Device(DeviceId)) + FileOp => World, Files; Io,
        /// [`File::len`](crate::File::len). Returns [`Reply::Bytes`] or an error.
        68 "len" Len(device: Device(DeviceId)) + FileOp => World, Files; Io,
        /// [`File::truncate`](crate::File::truncate). Returns [`Reply::Done`] or an error.
        69 "truncate" Truncate(device: Device(DeviceId)) + FileOp => World, Files; Io,
        /// [`File::sync`](crate::File::sync). Returns [`Reply::Done`] or an error.
        70 "sync" Sync(device: Device(DeviceId)) + FileOp => World, Files; Io,
        /// [`Os::input`](crate::Os::input). Returns [`Reply::Device`] or an error.
        71 "input" Input => World, Devices; Io,
        /// [`Os::read_line`](crate::Os::read_line). Returns [`Reply::Bytes`], with the end of the line,
        /// or an error.
        72 "read_line" ReadLine => World, Devices; Io,
        /// [`Os::wall_clock`](crate::Os::wall_clock). Returns [`Reply::Time`], counted from 1970.
        73 "wall_clock" WallClock => Net, Time; Asks,
        /// [`Os::bind_udp`](crate::Os::bind_udp). Returns [`Reply::Device`] or [`Reply::Io`].
        74 "bind_udp" BindUdp + Addr => World, Network; Io,
        /// [`UdpSocket::recv_from`](crate::UdpSocket::recv_from). Returns [`Reply::Bytes`] or an error.
        75 "recv_from" RecvFrom(device: Device(DeviceId)) + Bytes => World, Network; Io,
        /// [`UdpSocket::send_to`](crate::UdpSocket::send_to). Returns [`Reply::Bytes`],
        /// [`Reply::Again`] or an error.
        76 "send_to" SendTo(device: Device(DeviceId)) + Datagram => World, Network; Io,
        /// [`UdpSocket::connect`](crate::UdpSocket::connect). Returns [`Reply::Done`] or an error.
        77 "connect_udp" ConnectUdp(device: Device(DeviceId)) + Addr => World, Network; Io,
        /// [`Os::listen_unix`](crate::Os::listen_unix). Returns [`Reply::Device`] or [`Reply::Io`].
        78 "listen_unix" ListenUnix + Name => World, Network; Io,
        /// [`Os::connect_unix`](crate::Os::connect_unix). Returns [`Reply::Device`] or [`Reply::Io`].
        79 "connect_unix" ConnectUnix + Name => World, Network; Io,
        /// [`Os::socketpair`](crate::Os::socketpair). Returns [`Reply::Device`] or [`Reply::Io`].
        80 "socketpair" SocketPair => World, Devices; Io,
        /// [`Device::set_options`](crate::Device::set_options). Returns [`Reply::Done`] or an error.
        81 "set_options" SetOptions(device: Device(DeviceId)) + Options => Device(device), Network; Io,
        /// [`Os::set_policy`](crate::Os::set_policy). Returns [`Reply::Done`], or
        /// [`Errno::Invalid`] where the policy stays.
        82 "set_policy" SetPolicy + Policy => All, Admin; Fails,
        /// [`Os::choose`](crate::Os::choose), with the number of alternatives. Returns
        /// [`Reply::Random`], below that number, or [`Errno::Invalid`] if it is 0.
        83 "choose" Choose(of: Number(u64)) + Text => Nothing, World; Asks Fails,
        /// [`Sender::put`](crate::Sender::put). Returns [`Reply::Done`]: the message is put then.
        84 "post" Post + Mail => Mail, Queues,
    }
}

impl SystemCall {
    /// Returns the device that the call names, if any.
    #[must_use]
    #[inline]
    pub fn device(self) -> Option<DeviceId> {
        match self.argument() {
            Argument::Device(device) => Some(device),
            _ => None,
        }
    }

    /// Returns the message queue that the call names, if any.
    #[must_use]
    #[inline]
    pub fn queue(self) -> Option<QueueId> {
        match self.argument() {
            Argument::Queue(queue) => Some(queue),
            _ => None,
        }
    }

    /// Returns whether the call returns an [`io::Result`]. Only such a call can be failed by an
    /// injection ([`Inject::Fail`]).
    ///
    /// ```
    /// use trapline::SystemCall;
    ///
    /// assert!(SystemCall::Connect.is_io());
    /// assert!(!SystemCall::Yield.is_io());
    /// ```
    #[must_use]
    pub fn is_io(self) -> bool {
        self.marks().contains(&Mark::Io)
    }

    /// Returns whether the answer may be an error: [`Reply::Err`] or [`Reply::Io`]. A raw call that
    /// lacks what its stub puts beside it fails, whichever it is.
    ///
    /// ```
    /// use trapline::{SystemCall, Tid};
    ///
    /// assert!(SystemCall::WaitTask(Tid::from(7)).can_fail());
    /// assert!(!SystemCall::Now.can_fail());
    /// ```
    #[must_use]
    pub fn can_fail(self) -> bool {
        let marks = self.marks();
        marks.contains(&Mark::Io) || marks.contains(&Mark::Fails)
    }

    /// Returns whether the call fails with [`Errno::Denied`] if the limits of its task lack it. Any other
    /// call faults its task.
    ///
    /// ```
    /// use trapline::SystemCall;
    ///
    /// assert!(SystemCall::Connect.can_be_denied());
    /// assert!(!SystemCall::Now.can_be_denied());
    /// ```
    #[must_use]
    pub fn can_be_denied(self) -> bool {
        self.is_io() || self.marks().contains(&Mark::Refuses)
    }

    /// Returns whether the call only asks or arms. A due timeout lets some of these through before
    /// the one answer.
    pub(crate) fn only_asks(self) -> bool {
        self.marks().contains(&Mark::Asks)
    }

    pub(crate) fn has_length(self) -> bool {
        matches!(self.beside(), Beside::Bytes | Beside::File)
    }

    #[inline(always)]
    pub(crate) fn has_payload(self) -> bool {
        !matches!(
            self.beside(),
            Beside::None
                | Beside::Bytes
                | Beside::Datagram
                | Beside::Message
                | Beside::Count
                | Beside::Body
                | Beside::Waited
                | Beside::Closes
        )
    }
}

words! {
    /// The kernel's answer to a [`SystemCall`]. What does not fit in a word is in the kernel's
    /// frame, and the stub of the call takes it from there.
    pub enum Reply {
        /// The call is done, without a result.
        0 Done,
        /// Yes.
        1 Yes,
        /// No.
        2 No,
        /// The call would block; it can be tried again.
        3 Again,
        /// A task's number.
        4 Tid(tid: Task(Tid)),
        /// The time since boot.
        5 Time(now: Instant(Nanos)),
        /// A random number from the world's seed.
        6 Random(number: Number(u64)),
        /// The number of bytes that were moved.
        7 Bytes(count: Number(u64)),
        /// A newly attached device.
        8 Device(device: Device(DeviceId)),
        /// A new message queue.
        9 Queue(queue: Queue(QueueId)),
        /// The caller receives the message of this number.
        10 Message(message: Number(u64)),
        /// The queue is full; the caller gets back the message of this number.
        11 Full(message: Number(u64)),
        /// The timeout of this number is armed.
        12 Timeout(timeout: Number(u64)),
        /// The timeout of this number has fired and cut the call.
        13 Elapsed(timeout: Number(u64)),
        /// An [`Exit`](enum@Exit), in the frame; an empty frame means [`Exit::Done`](enum@Exit).
        14 Exit,
        /// A list of [`TaskInfo`], in the frame.
        15 Tasks,
        /// An [`io::Error`], in the frame.
        16 Io,
        /// A refusal that the caller may handle.
        17 Err(errno: Errno(Errno)),
        /// The queue is closed; the caller gets back the message of this number.
        18 Refused(message: Number(u64)),
        /// The name of a host, in the frame.
        19 Host,
        /// The addresses of a host, in the frame.
        20 Addresses,
        /// The source with this index is ready.
        21 Ready(index: Number(u64)),
        /// The caller receives so many permits.
        22 Permits(count: Number(u64)),
    }
}

impl From<Errno> for Reply {
    fn from(errno: Errno) -> Self {
        Self::Err(errno)
    }
}

/// What an injection does to a call ([`Builder::inject`](crate::Builder::inject)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inject {
    /// The call fails with an error of this kind and has no effect. Only for calls that return an
    /// [`io::Result`] ([`SystemCall::is_io`]).
    Fail(io::ErrorKind),
    /// The task waits for this time before the kernel handles the call. The wait of a
    /// [`Condition`](crate::sync::Condition) ends then, as if a signal had come: one may have come since it
    /// released the lock.
    Delay(Duration),
    /// The task is killed at the call, which has no effect.
    Kill,
    /// The task is killed once its call is made. The call waits then, or it had its effect and its answer
    /// is lost.
    KillIn,
    /// The innermost timeout or scope around the call drops its body at the call, which has no effect.
    /// Without one, and if a shield holds it back, nothing changes.
    Cut,
    /// The same once the call is made. A call that is answered keeps its answer, and the next one is cut.
    CutIn,
}

impl fmt::Display for Inject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(kind) => kind.fmt(f),
            Self::Delay(span) => write!(f, "a delay of {span:?}"),
            Self::Kill => f.write_str("a kill"),
            Self::KillIn => f.write_str("a kill within it"),
            Self::Cut => f.write_str("a cut"),
            Self::CutIn => f.write_str("a cut within it"),
        }
    }
}
