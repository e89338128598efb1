//! Signals for tasks.

use std::{fmt, rc::Rc};

use super::{
    os::{Decode, Os, mismatch},
    queue::{Making, Queue},
};
use crate::{
    abi::{Kind, Reply, Signal, SignalSet, SystemCall},
    trap::TrapFrame,
};

/// Signals that a task has caught, by [`Os::catch`]. While it exists, they do not have their default
/// action. Dropping it gives them up.
pub struct Signals {
    /// The numbers of its messages name the signals.
    queue: Queue<()>,
}

impl Os {
    /// Catches signals. Until the returned [`Signals`] is dropped, each of them is a message for it.
    /// Every holder gets every signal, in order. Never blocks. (The `signalfd` of Linux, and the
    /// signal queue of curio.)
    ///
    /// A signal that no task has caught has its default action: it ends the run, as
    /// [`Os::shutdown`] does. When the last holder is dropped, that is so again, and signals that no
    /// task has taken end the run then. A [`Signal::Interrupt`] that comes before any task has taken
    /// the last one ends the run, too. Under the command line, the process ends with 128 plus the
    /// number of the signal.
    ///
    /// In the real world this installs a handler in the process, the first time. From then on the
    /// signal is for the kernels that have caught it. A hangup that was ignored when the process
    /// began, as under `nohup`, stays ignored. Faults the caller if the operating system refuses.
    /// The simulated world installs none: there [`Kernel::signal_at`](crate::Kernel::signal_at) and
    /// [`Remote::signal`](crate::Remote::signal) send signals.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use trapline::{Either2, Kernel, Os, Queue, Signal};
    ///
    /// # let mut kernel = Kernel::simulated(0);
    /// # kernel.signal_at(Duration::from_secs(1), Signal::Terminate);
    /// kernel.spawn("server", async |os: &mut Os| {
    ///     let orders = Queue::<u32>::unbounded(os).await;
    ///     let signals = os.catch(&[Signal::Terminate, Signal::Interrupt]).await;
    ///     while let Either2::First(order) = os.first((orders.get_arm(), signals.next_arm())).await {
    ///         writeln!(os, "{order:?}");
    ///     }
    ///     writeln!(os, "closing");
    /// })?;
    /// # kernel.run()?.check()?;
    /// # assert_eq!(kernel.take_console(), "closing\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn catch(&mut self, signals: &[Signal]) -> Signals {
        let signals = SignalSet::from(signals);
        let name = Some(signals.to_string().into());
        let (prepare, making) = Queue::making(self, SystemCall::Catch, Kind::Signals, name, |_| {
            panic!(
                "there is no room for signals: the limit of message queues is reached; raise \
                 Builder::max_queues"
            )
        });
        let prepare = move |frame: &TrapFrame| {
            frame.put_word(signals.to_raw());
            prepare(frame)
        };
        self.call_undoing(prepare, Catching(making)).await
    }
}

impl Signals {
    /// Takes the next signal. *Blocks* until one comes. Faults the caller in a kernel other than its
    /// own.
    #[track_caller]
    pub fn next<'a>(&'a self, os: &'a mut Os) -> impl Future<Output = Signal> + 'a {
        os.note_caller();
        self.take(os)
    }

    /// For a caller that has noted its own caller.
    pub(super) fn take<'a>(&'a self, os: &'a mut Os) -> impl Future<Output = Signal> + 'a {
        self.queue.require_home(os, "the signals");
        let get = SystemCall::Get(self.queue.id());
        os.call_undoing(move |_| get, Taking(&self.queue))
    }

    pub(super) fn queue(&self) -> &Queue<()> {
        &self.queue
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let uncatch = SystemCall::Uncatch(self.queue.id());
        self.queue.frame().defer(uncatch);
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signals({})", self.queue.id())
    }
}

struct Catching(Making<()>);

impl Decode for Catching {
    type Output = Signals;

    fn decode(&mut self, reply: Reply, frame: &Rc<TrapFrame>) -> Signals {
        let queue = self.0.decode(reply, frame);
        Signals { queue }
    }

    fn undo(&mut self, reply: Reply, frame: &Rc<TrapFrame>) {
        if let Reply::Queue(_) = reply {
            drop(self.decode(reply, frame));
        }
    }
}

struct Taking<'a>(&'a Queue<()>);

impl Decode for Taking<'_> {
    type Output = Signal;

    fn decode(&mut self, reply: Reply, frame: &Rc<TrapFrame>) -> Signal {
        let signal = match reply {
            Reply::Message(message) => {
                frame.remote.take_signal(message);
                Signal::of_message(message)
            }
            Reply::Err(_) => panic!("a raw call has closed the queue of these signals"),
            _ => None,
        };
        signal.unwrap_or_else(|| mismatch(reply))
    }

    fn undo(&mut self, reply: Reply, frame: &Rc<TrapFrame>) {
        if let Reply::Message(message) = reply {
            frame.defer_word(SystemCall::GiveBack(self.0.id()), message);
        }
    }
}
