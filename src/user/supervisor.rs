//! Supervisors: tasks that start their children again. The model is the supervisor of Erlang/OTP.
//!
//! The kernel puts the end of each child into a queue, as for a group. Each child is in a
//! [scope](Scope) of its own, so that a cancel ends any child. The supervisor is in a
//! [shield](Os::shield): what is to end it closes a flag, and it ends its children first.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    ops::Range,
    panic::Location,
    rc::Rc,
    time::Duration,
};

use super::{
    messages::Side,
    os::Os,
    program::{self, IntoExit},
    queue::Queue,
    scope::{Cancelled, Scope},
    select::Source,
    sync::Flag,
};
use crate::{
    abi::{Exit, Kind, QueueId, SystemCall, Tid},
    trap::{Caller, Keeper, NewTask, Options, Program, TrapFrame},
};

/// Which children a [`Supervisor`] starts again when one is to be: first it ends those that live, the
/// youngest first, then it starts them, the oldest first. A child is younger than those given before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Strategy {
    /// That one.
    #[default]
    OneForOne,
    /// All. Those that had ended before start too, except temporary ones.
    OneForAll,
    /// That one and the younger ones, as for all.
    RestForOne,
}

/// Whether a [`Supervisor`] starts a child again that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Restart {
    /// Always, even if it ended well.
    #[default]
    Permanent,
    /// If it failed, faulted or was killed.
    Transient,
    /// Never, and not with others either.
    Temporary,
}

/// A [`Supervisor`] gave up: a child ended once more than its limit allows.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("child {child:?} {exit} (limit: {} within {within:?})", restarts_of(*restarts))]
pub struct Gone {
    /// The name of the child.
    pub child: String,
    /// Its last exit.
    pub exit: Exit,
    restarts: u32,
    within: Duration,
}

fn restarts_of(number: u32) -> String {
    match number {
        1 => "1 restart".into(),
        number => format!("{number} restarts"),
    }
}

/// Starts tasks, and starts them again when they end. (The supervisor of Erlang/OTP.)
///
/// A child is a closure that makes a program; it is called in the child, at each start. A child that
/// cannot be started, at the limit of tasks, counts as one that failed. A child that was cancelled
/// ends as [`Exit::Done`].
///
/// Children count in no report ([`Report::check`](crate::Report::check)), not even their faults. A
/// supervisor that gives up returns [`Gone`]: the program that returns this fails in their place. So
/// supervisors nest: a child may run one, and its own supervisor starts it again.
///
/// ```
/// # use std::time::Duration;
/// use trapline::{Kernel, Os, Restart, Strategy, Supervisor};
///
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let worker = || async |os: &mut Os| {
///         os.sleep(Duration::from_secs(1)).await;
///         Err::<(), _>("no luck")
///     };
///     let supervisor = Supervisor::new(Strategy::OneForOne)
///         .restarts(3, Duration::from_secs(5))
///         .child("worker", Restart::Permanent, worker);
///     let gone = supervisor.run(os).await.unwrap_err();
///     let limit = "limit: 3 restarts within 5s";
///     assert_eq!(gone.to_string(), format!("child \"worker\" failed: no luck ({limit})"));
///     assert_eq!(os.now().await, Duration::from_secs(4));
/// })?;
/// # kernel.run()?.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a supervisor starts nothing until it is run"]
pub struct Supervisor {
    strategy: Strategy,
    restarts: u32,
    within: Duration,
    backoff: Range<Duration>,
    shutdown: Option<Duration>,
    seats: Vec<Seat>,
}

/// Makes the program of a child, in this scope.
type Make = Box<dyn FnMut(&Rc<TrapFrame>, Scope) -> Program>;

/// A child, whether it lives or not.
struct Seat {
    name: String,
    restart: Restart,
    /// The time from a cancel to a kill. That of the next call of [`Supervisor::shutdown`], if there was
    /// none before.
    shutdown: Option<Duration>,
    make: Make,
    /// The place where the child was given.
    place: Caller,
    state: State,
    /// The task, until the supervisor has taken its end.
    tid: Rc<Cell<Option<Tid>>>,
    /// The instant of its last start.
    since: Duration,
    /// The number of its starts.
    starts: u32,
    /// The restarts in a row.
    attempts: u32,
}

enum State {
    /// To be started at this instant.
    Due(Duration),
    /// In this scope, until the supervisor has taken its end.
    Alive(Scope),
    Ended,
}

/// What the kernel keeps for a child.
struct Link {
    child: usize,
    tid: Rc<Cell<Option<Tid>>>,
    queue: QueueId,
    ends: Rc<Side<(usize, Exit)>>,
}

impl Keeper for Link {
    fn spawned(&self, tid: Tid) {
        self.tid.set(Some(tid));
    }

    fn ended(&self, _: Tid, exit: &Exit) -> Option<(QueueId, u64)> {
        Some((self.queue, self.ends.push((self.child, exit.clone()))))
    }

    fn judges(&self) -> bool {
        true
    }
}

/// The exit of a child that its scope has not cut; otherwise [`Exit::Done`].
struct Left<T>(Result<T, Cancelled>);

impl<T: IntoExit> IntoExit for Left<T> {
    fn into_exit(self) -> Exit {
        self.0.map_or(Exit::Done, IntoExit::into_exit)
    }
}

impl Supervisor {
    /// Makes a supervisor without children. It allows one restart in 5 seconds, and waits before none,
    /// as that of Erlang/OTP.
    pub fn new(strategy: Strategy) -> Self {
        Self {
            strategy,
            restarts: 1,
            within: Duration::from_secs(5),
            backoff: Duration::ZERO..Duration::ZERO,
            shutdown: None,
            seats: Vec::new(),
        }
    }

    /// Allows this number of restarts within a span of this length, its ends included, of all children
    /// together. One more ends the supervisor. A restart counts once, however many children start.
    /// [`u32::MAX`] is no limit.
    pub fn restarts(self, restarts: u32, within: Duration) -> Self {
        Self {
            restarts,
            within,
            ..self
        }
    }

    /// Waits before a restart: `span.start` before the first one for a child, then twice as long each
    /// time, and at most `span.end`. A child that has lived for longer than the span of
    /// [`Supervisor::restarts`] begins anew. Waits that are so long that fewer restarts fit into that span
    /// than are allowed let it go on for ever. Meanwhile the children that the strategy does not concern go
    /// on.
    pub fn backoff(self, span: Range<Duration>) -> Self {
        Self {
            backoff: span,
            ..self
        }
    }

    /// Gives a child this long to end once it is cancelled; then it is killed. For the children
    /// given from here on, and for those before the first such call. Without it, a child has 5
    /// seconds, as in Erlang/OTP. A child needs time only for what it has [shielded](Os::shield).
    pub fn shutdown(mut self, span: Duration) -> Self {
        for seat in &mut self.seats {
            seat.shutdown.get_or_insert(span);
        }
        self.shutdown = Some(span);
        self
    }

    /// Adds a child: `make` makes its program, for each start anew.
    #[track_caller]
    pub fn child<T: IntoExit, P>(
        mut self,
        name: impl Into<String>,
        restart: Restart,
        make: impl FnMut() -> P + 'static,
    ) -> Self
    where
        P: AsyncFnOnce(&mut Os) -> T + 'static,
    {
        let make = Rc::new(RefCell::new(make));
        let make = move |frame: &Rc<TrapFrame>, scope: Scope| {
            let make = Rc::clone(&make);
            program::program(frame, async move |os: &mut Os| {
                let program = (make.borrow_mut())();
                Left(scope.run(os, program).await)
            })
        };
        self.seats.push(Seat {
            name: name.into(),
            restart,
            shutdown: self.shutdown,
            make: Box::new(make),
            place: Location::caller(),
            state: State::Due(Duration::ZERO),
            tid: Rc::default(),
            since: Duration::ZERO,
            starts: 0,
            attempts: 0,
        });
        self
    }

    /// Starts the children, in order, and supervises them. *Blocks* until no child is left: none lives,
    /// and none is to be started.
    ///
    /// If a timeout or a scope around it is due, this ends its children before it is cut: one after
    /// the other, the youngest first, each by a cancel, and after the span of [`Supervisor::shutdown`] by
    /// a kill. A task that is killed kills its children, the youngest first. They end before other tasks
    /// learn of its exit.
    ///
    /// *Errors:* [`Gone`], if a restart would be one too many. All children have ended. Faults the
    /// caller at the limit of queues ([`Builder::max_queues`](crate::Builder::max_queues)).
    #[track_caller]
    pub fn run(self, os: &mut Os) -> impl Future<Output = Result<(), Gone>> {
        let place = os.note_caller();
        async move {
            let ends = Queue::required(os, Kind::Supervisor, None).await;
            let stop = Flag::named(os, "stop").await;
            let closes = stop.gate().id();
            let mut running = Running {
                spec: self,
                ends,
                stop,
                past: VecDeque::new(),
                aside: VecDeque::new(),
                place,
            };
            let body = async |os: &mut Os| running.supervise(os).await;
            match os.shield_and_close(closes, body).await {
                Some(result) => result,
                None => {
                    // It is cut here.
                    os.yield_now().await;
                    Ok(())
                }
            }
        }
    }
}

/// A supervisor that is run. Dropping it kills its children, at the next trap of its task.
struct Running {
    spec: Supervisor,
    /// The ends of children.
    ends: Queue<(usize, Exit)>,
    /// Set when a timeout or a scope around the supervisor is due.
    stop: Flag,
    /// The instants of the last restarts.
    past: VecDeque<Duration>,
    /// The ends that it took while it ended other children.
    aside: VecDeque<(usize, Exit)>,
    place: Caller,
}

impl Running {
    /// Supervises the children, and ends them. Returns `None` if the supervisor is to be cut.
    async fn supervise(&mut self, os: &mut Os) -> Option<Result<(), Gone>> {
        let result = self.watch(os).await;
        self.end(os, 0..self.spec.seats.len()).await;
        result
    }

    async fn watch(&mut self, os: &mut Os) -> Option<Result<(), Gone>> {
        while !self.stop.is_set() {
            let mut heard = self.aside.pop_front();
            if heard.is_none() {
                heard = self.start(os).await;
            }
            if heard.is_none() {
                let is_over = |seat: &Seat| matches!(seat.state, State::Ended);
                if self.spec.seats.iter().all(is_over) {
                    return Some(Ok(()));
                }
                heard = self.hear(os, self.next_start(), true).await;
            }
            if let Some((child, exit)) = heard
                && let Err(gone) = self.ended(os, child, exit).await
            {
                return Some(Err(gone));
            }
        }
        None
    }

    fn next_start(&self) -> Duration {
        let due = self.spec.seats.iter().filter_map(|seat| match seat.state {
            State::Due(at) => Some(at),
            _ => None,
        });
        due.min().unwrap_or(Duration::MAX)
    }

    /// Starts the children that are due, the oldest first, up to one that cannot be started: that has
    /// ended.
    async fn start(&mut self, os: &mut Os) -> Option<(usize, Exit)> {
        if self.next_start() == Duration::MAX {
            return None;
        }
        let now = os.now().await;
        for child in 0..self.spec.seats.len() {
            match self.spec.seats[child].state {
                State::Due(at) if at <= now => {}
                _ => continue,
            }
            let new = self.new_task(os, child);
            self.spec.seats[child].since = now;
            if let Err(errno) = os.start(SystemCall::NewTask, new).await {
                self.spec.seats[child].state = State::Ended;
                return Some((child, Exit::Failed(errno.to_string())));
            }
        }
        None
    }

    fn new_task(&mut self, os: &Os, child: usize) -> NewTask {
        let seat = &mut self.spec.seats[child];
        let scope = Scope::new();
        seat.state = State::Alive(scope.clone());
        let link = Link {
            child,
            tid: Rc::clone(&seat.tid),
            queue: self.ends.id(),
            ends: self.ends.side(),
        };
        os.frame().set_place(seat.place);
        let restart = seat.starts;
        seat.starts = restart.saturating_add(1);
        NewTask {
            birth: os.frame().birth(&seat.name),
            program: (seat.make)(os.frame(), scope),
            options: Some(Box::new(Options {
                keeper: Some(Rc::new(link)),
                restart,
                ..Options::default()
            })),
        }
    }

    /// Waits for the end of a child until an instant, and until the supervisor is to end if it
    /// `may_stop`.
    async fn hear(
        &mut self,
        os: &mut Os,
        until: Duration,
        may_stop: bool,
    ) -> Option<(usize, Exit)> {
        let stop = Source::flag(&self.stop);
        let sources = [stop, Source::message(&self.ends), Source::at(until)];
        let first = usize::from(!may_stop);
        let last = if until == Duration::MAX { 2 } else { 3 };
        let selecting = os.select(&sources[first..last]);
        self.ends.frame().set_place(self.place);
        if first + selecting.await != 1 {
            return None;
        }
        let (child, exit) = self.ends.take(os).await.ok()?;
        let seat = &mut self.spec.seats[child];
        seat.state = State::Ended;
        if let Some(tid) = seat.tid.take() {
            self.ends.frame().defer_word(SystemCall::Disown(tid), 1);
        }
        Some((child, exit))
    }

    /// Starts a child that has ended again, and others with it, or not. Ends those that live.
    async fn ended(&mut self, os: &mut Os, child: usize, exit: Exit) -> Result<(), Gone> {
        let spec = &mut self.spec;
        let seat = &mut spec.seats[child];
        let is_again = match seat.restart {
            Restart::Permanent => true,
            Restart::Transient => exit != Exit::Done,
            Restart::Temporary => false,
        };
        // The restart of another child may already concern it.
        if !is_again || !matches!(seat.state, State::Ended) {
            return Ok(());
        }
        let now = os.now().await;
        let within = spec.within;
        self.past.retain(|at| at.saturating_add(within) >= now);
        if self.past.len() >= spec.restarts as usize {
            return Err(Gone {
                child: seat.name.clone(),
                exit,
                restarts: spec.restarts,
                within,
            });
        }
        if spec.restarts != u32::MAX {
            self.past.push_back(now);
        }
        let Range { start, end } = spec.backoff;
        if now.saturating_sub(seat.since) > within {
            seat.attempts = 0;
        }
        let wait = start.saturating_mul(2u32.saturating_pow(seat.attempts));
        let due = now.saturating_add(wait.min(end));
        seat.attempts = seat.attempts.saturating_add(1);
        tracing::info!(
            target: "trapline::kernel",
            "child {:?} of a supervisor {exit}: it starts again in {:?}",
            seat.name,
            due.saturating_sub(now)
        );
        let concerned = match spec.strategy {
            Strategy::OneForOne => child..child + 1,
            Strategy::OneForAll => 0..spec.seats.len(),
            Strategy::RestForOne => child..spec.seats.len(),
        };
        self.end(os, concerned.clone()).await;
        for seat in &mut self.spec.seats[concerned] {
            let is_over = matches!(seat.state, State::Ended);
            if seat.restart != Restart::Temporary || !is_over {
                seat.state = State::Due(due);
            }
        }
        Ok(())
    }

    /// Ends those of these children that live, the youngest first.
    async fn end(&mut self, os: &mut Os, children: Range<usize>) {
        for child in children.clone().rev() {
            let seat = &self.spec.seats[child];
            let State::Alive(scope) = &seat.state else {
                continue;
            };
            let (scope, span) = (scope.clone(), seat.shutdown.unwrap_or(Self::SHUTDOWN));
            scope.cancel(os).await;
            let until = os.now().await.saturating_add(span);
            while matches!(self.spec.seats[child].state, State::Alive(..)) {
                match self.hear(os, until, false).await {
                    Some((other, _)) if children.contains(&other) => {}
                    Some(heard) => self.aside.push_back(heard),
                    None => {
                        if let Some(tid) = self.spec.seats[child].tid.get() {
                            os.kill(tid).await;
                        }
                    }
                }
            }
        }
    }

    /// As in Erlang/OTP.
    const SHUTDOWN: Duration = Duration::from_secs(5);
}

impl Drop for Running {
    fn drop(&mut self) {
        for seat in self.spec.seats.iter().rev() {
            if let Some(tid) = seat.tid.get() {
                self.ends.frame().defer(SystemCall::Release(tid));
            }
        }
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let children = self.seats.iter().map(|seat| (&seat.name, seat.restart));
        f.debug_struct("Supervisor")
            .field("strategy", &self.strategy)
            .field("restarts", &self.restarts)
            .field("within", &self.within)
            .field("backoff", &self.backoff)
            .field("children", &children.collect::<Vec<_>>())
            .finish()
    }
}
