//! A task: its program, its state and its family. `table.rs` is the table of all tasks.
//!
//! The states of a task, with the functions that change them:
//!
//! ```text
//!  admit ──> Ready ──turn──> Running ──dispatch──> Ready
//!              ^                │
//!              │ wake           ├──block──> Blocked
//!              └────────────────┼──────────────┘
//!                               └──end (from any state)──> Ending ──> Zombie ──> reaped
//! ```

use std::{ptr, rc::Rc};

use super::{
    answer::{Answer, Beside},
    deadlines::{Due, Timeouts},
    held::Ticket,
    selects::Watchers,
    timers::Timer,
    waiters::Waiters,
};
use crate::{
    abi::{DeviceId, Direction, End, Exit, HostId, Nanos, Place, QueueId, Reply, SystemCall, Tid},
    panic::Panic,
    sched::{Runnable, Slot},
    trap::{Birth, Caller, Program, TrapFrame, ended, resume},
};

/// The place of a live task: exactly one.
#[derive(Debug)]
pub(super) enum State {
    /// On the ready queue; the task is resumed with this answer.
    Ready(Answer),
    /// The same, with a due timeout around it, which cuts the next call.
    Late(Box<Answer>),
    /// On the ready queue; work at its turn determines the answer.
    Pending(Pending),
    /// The current task.
    Running,
    /// On a processor, which `processors.rs` keeps.
    Computing,
    /// In the queue of what the task waits for.
    Blocked(WaitingOn),
    /// Off every queue; its program is being dropped.
    Ending,
    /// Ended; a task that waits takes the exit. [`Exit::Done`] needs no memory.
    Zombie(Option<Box<Exit>>),
}

impl State {
    pub(super) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_) | Self::Late(_) | Self::Pending(_))
    }

    fn zombie(exit: &Exit) -> Self {
        let is_done = matches!(exit, Exit::Done);
        Self::Zombie((!is_done).then(|| Box::new(exit.clone())))
    }

    /// Returns the reply of a ready task, unless its turn begins with other work.
    #[inline(always)]
    pub(super) fn plain(&self) -> Option<Reply> {
        match self {
            Self::Ready(Answer { reply, beside }) if !matches!(beside, Beside::Payload(_)) => {
                Some(*reply)
            }
            _ => None,
        }
    }

    /// Returns the reply of a task that has sent bytes and does not know it. They are sent though it dies,
    /// so its writer counts them: another task may flush that later.
    pub(super) fn sent(&self) -> Option<Reply> {
        let reply = match self {
            Self::Ready(answer) => answer.reply,
            Self::Late(answer) => answer.reply,
            _ => return None,
        };
        matches!(reply, Reply::Bytes(_)).then_some(reply)
    }
}

impl<A: Into<Answer>> From<A> for State {
    #[inline(always)]
    fn from(answer: A) -> Self {
        Self::Ready(answer.into())
    }
}

/// Work at the begin of a turn, which determines the answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// A read from a device. At the turn, so that a task killed before it consumes no input.
    Read(DeviceId, ReadOp),
    /// The start of a timeout. At the turn, so that it cannot fire before its body begins.
    StartTimeout(Timer),
    /// A call or an end that was held back.
    Held(Ticket),
    /// What is left of a computation. The turn gives it a processor.
    Compute(Nanos),
    /// A select. At the turn, so that the task's next call finds what the answer promises.
    Select(u32),
}

impl From<Pending> for State {
    fn from(pending: Pending) -> Self {
        Self::Pending(pending)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ReadOp {
    /// At most this number of bytes.
    Bytes(u32),
    /// A datagram, of which at most this number of bytes is kept.
    Datagram(u32),
    Connection,
    /// The result of an operation on a disk: the number of its call. As wide as the others, so that a copy of the
    /// whole is one of two words.
    Disk(u32),
    /// A line of standard input.
    Line,
}

/// The queue in which a blocked task waits, and its position there.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitingOn {
    Exit(Runnable),
    Timer(Timer),
    Device(DeviceId, Direction, Then),
    Queue(QueueId, End),
    /// Room at the console. The call is held back under this number.
    Console(u64),
    /// Room in the queue that gets what the task prints. The call is held back under this number.
    Room(QueueId, u64),
    /// The end of a delay. The call is held back.
    Delay(Timer),
    /// The first of several sources: the key of the select, and their number.
    Select(u32, u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    /// The caller asked only for readiness.
    Done,
    /// The caller makes its call again.
    Again,
    Read(ReadOp),
}

/// What remains of a task that ends while no task waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OnExit {
    /// A line in the host's report.
    Report,
    /// A zombie.
    Zombie,
    Nothing,
}

/// The places of a task in its family. The children of a task are a list, the youngest first.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Family {
    /// The parent, while it is alive.
    pub(super) parent: Option<Slot>,
    pub(super) first_child: Option<Slot>,
    /// The next older sibling.
    pub(super) next: Option<Slot>,
    pub(super) previous: Option<Slot>,
}

pub(super) enum Fired {
    /// It cuts this wait.
    Wait(WaitingOn),
    /// It cuts the computation.
    Computation,
    /// It has replaced the empty answer of the task.
    Answer,
    /// It cuts the next call.
    Next,
}

/// A task. The fields that a turn touches come first and fill one cache line.
#[repr(C, align(64))]
pub(super) struct Task {
    tid: Tid,
    program: Program,
    traps: u64,
    state: State,
    /// The time at which it last blocked.
    since: Nanos,
    birth: Rc<Birth>,
    /// Where it made its last call that took the plain lane, as each that blocks does. Before that, where it was
    /// spawned.
    called: Option<Caller>,
    /// What waits for the end of this task; `None`, without memory, for most tasks.
    waiters: Option<Box<Waiters>>,
    timeouts: Option<Box<Timeouts>>,
    family: Family,
    pub(super) on_exit: OnExit,
    /// Whether it is a daemon of a program: it keeps no run alive. (The daemons of the host have tids
    /// of their own, [`Tid::is_daemon`].)
    pub(super) is_attendant: bool,
    /// The machine on which it runs.
    pub(super) host: HostId,
}

/// Birth and end.
impl Task {
    /// The task of a slot that is free. It owns nothing but its birth.
    pub(super) fn vacant(birth: Rc<Birth>) -> Self {
        Self {
            tid: Tid::KERNEL,
            program: ended(),
            traps: 0,
            state: State::Ending,
            since: Nanos::ZERO,
            birth,
            called: None,
            waiters: None,
            timeouts: None,
            family: Family::default(),
            on_exit: OnExit::Nothing,
            is_attendant: false,
            host: HostId::LOCAL,
        }
    }

    /// Begins a task in a free slot, on the host of its parent. Field by field: a copy of the whole
    /// would wait for the stores of its parts.
    #[inline(always)]
    pub(super) fn begin(&mut self, tid: Tid, birth: Rc<Birth>, program: Program, on_exit: OnExit) {
        debug_assert!(self.has_returned(), "no task has a free slot");
        self.tid = tid;
        // That of the last task is gone: not to drop it saves a branch, as in `change`.
        std::mem::forget(std::mem::replace(&mut self.program, program));
        self.traps = 0;
        self.change(State::Ready(Answer::SLEPT));
        self.since = Nanos::ZERO;
        self.called = birth.spawned;
        self.birth = birth;
        self.on_exit = on_exit;
        self.is_attendant = false;
    }

    pub(super) fn vacate(&mut self) -> State {
        self.tid = Tid::KERNEL;
        std::mem::replace(&mut self.state, State::Ending)
    }

    /// Begins the end of the task. Returns the state that it has left.
    #[inline(always)]
    pub(super) fn end(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Ending)
    }

    /// Makes the task a zombie. Returns what has waited for its end.
    pub(super) fn bury(&mut self, exit: &Exit) -> Option<Box<Waiters>> {
        self.change(State::zombie(exit));
        self.waiters.take()
    }

    /// Returns whether its program has returned, or was dropped.
    pub(super) fn has_returned(&self) -> bool {
        size_of_val(&*self.program) == 0
    }

    /// Takes the program of a task that ends, unless it has returned and is gone.
    #[inline(always)]
    pub(super) fn take_program(&mut self) -> Option<Program> {
        (!self.has_returned()).then(|| std::mem::replace(&mut self.program, ended()))
    }
}

/// The changes of state.
impl Task {
    #[inline(always)]
    pub(super) fn resume(
        &mut self,
        frame: &TrapFrame,
        reply: Option<Reply>,
    ) -> Result<Option<SystemCall>, Panic> {
        let call = resume(frame, &mut self.program, reply)?;
        if call.is_some() {
            self.traps += 1;
        }
        Ok(call)
    }

    /// Makes a ready task the current one, and returns the state that it has left.
    pub(super) fn take_turn(&mut self) -> Option<State> {
        let is_ready = self.state.is_ready();
        is_ready.then(|| std::mem::replace(&mut self.state, State::Running))
    }

    /// Marks that the task has taken its reply, and that its call is handled now.
    pub(super) fn run(&mut self) {
        self.change(State::Running);
    }

    /// Notes the place of its call.
    pub(super) fn called(&mut self, at: Option<Caller>) {
        self.called = at;
    }

    #[inline(always)]
    pub(super) fn answer(&mut self, answer: impl Into<State>) {
        self.change(answer.into());
        debug_assert!(self.state.is_ready(), "an answer makes a task ready");
    }

    /// Makes a blocked task ready. The state is written where it is made: a copy would wait for the
    /// stores of its parts.
    #[inline(always)]
    pub(super) fn wake(&mut self, answer: impl Into<State>) {
        debug_assert!(
            matches!(self.state, State::Blocked(_)),
            "only a blocked task is in a queue of waiters"
        );
        self.answer(answer);
    }

    #[inline(always)]
    pub(super) fn block(&mut self, on: WaitingOn, now: Nanos) {
        self.since = now;
        self.change(State::Blocked(on));
    }

    pub(super) fn compute(&mut self) {
        self.change(State::Computing);
    }

    /// Replaces a state that owns nothing: the task is running, or its reply was taken. The old
    /// state is not dropped, which saves the hot path a branch.
    #[inline(always)]
    fn change(&mut self, state: State) {
        std::mem::forget(std::mem::replace(&mut self.state, state));
    }
}

/// The timeouts around its calls.
impl Task {
    /// Adds a timeout within the others.
    pub(super) fn arm(&mut self, timer: Timer) {
        self.timeouts.get_or_insert_default().armed.push(timer);
    }

    /// Takes an armed timeout of the task, and then those within it.
    #[inline(always)]
    pub(super) fn take_timeouts(&mut self, number: u64) -> Option<impl Iterator<Item = Timer>> {
        Some(self.timeouts.as_deref_mut()?.take(number))
    }

    /// Returns whether a scope or a shield may be around its calls.
    #[inline(always)]
    pub(super) fn is_guarded(&self) -> bool {
        self.timeouts.as_ref().is_some_and(|all| all.is_guarded())
    }

    /// Returns what is around its calls, if anything ever was.
    pub(super) fn guards(&self) -> Option<&Timeouts> {
        self.timeouts.as_deref()
    }

    #[inline(always)]
    pub(super) fn timeouts_mut(&mut self) -> Option<&mut Timeouts> {
        self.timeouts.as_deref_mut()
    }

    pub(super) fn guards_mut(&mut self) -> &mut Timeouts {
        self.timeouts.get_or_insert_default()
    }

    #[inline(always)]
    pub(super) fn take_all_timeouts(&mut self) -> Option<Box<Timeouts>> {
        self.timeouts.take()
    }

    /// Gives an armed timeout another deadline.
    pub(super) fn move_timeout(&mut self, from: Timer, to: Timer) {
        let mut armed = self.guards_mut().armed.iter_mut();
        if let Some(timer) = armed.find(|timer| **timer == from) {
            *timer = to;
        }
    }

    pub(super) fn timeouts(&self) -> impl Iterator<Item = &Timer> {
        self.timeouts.iter().flat_map(|timeouts| &timeouts.armed)
    }

    /// Returns whether a timeout can end a wait of the task.
    pub(super) fn is_timed(&self) -> bool {
        self.timeouts.as_ref().is_some_and(|all| all.is_timed())
    }

    pub(super) fn due(&self) -> Option<Due> {
        self.timeouts.as_ref()?.due
    }

    pub(super) fn set_due(&mut self, due: Option<Due>) {
        self.timeouts.get_or_insert_default().due = due;
    }

    pub(super) fn fire(&mut self, number: u64) -> Fired {
        let mut due = Due::new(number, false);
        match &mut self.state {
            State::Computing | State::Pending(Pending::Compute(_)) => return Fired::Computation,
            State::Blocked(on) => return Fired::Wait(*on),
            State::Ready(answer) if answer.is_slept() => {
                self.answer(Reply::Elapsed(number));
                return Fired::Answer;
            }
            State::Ready(answer) => {
                let answer = std::mem::replace(answer, Reply::Done.into());
                self.state = State::Late(Box::new(answer));
                due.spent = true;
            }
            State::Late(_) | State::Pending(Pending::StartTimeout(_)) => due.spent = true,
            // Or it has cancelled its own scope.
            State::Pending(_) | State::Running => {}
            State::Ending | State::Zombie(_) => {
                unreachable!("a task has timeouts while it lives and waits")
            }
        }
        self.set_due(Some(due));
        Fired::Next
    }

    /// Marks that a due timeout lets an answer through. Returns whether there is a due timeout.
    pub(super) fn let_through(&mut self, only_asks: bool) -> bool {
        let Some(mut due) = self.due() else {
            return false;
        };
        due.let_through(only_asks);
        self.set_due(Some(due));
        true
    }

    /// Returns the state of a task whose call is answered. A due timeout lets this answer through.
    pub(super) fn late(&mut self, answer: Answer, only_asks: bool) -> State {
        match self.let_through(only_asks) {
            true => State::Late(Box::new(answer)),
            false => answer.into(),
        }
    }
}

/// What waits for its end, and its family. `table.rs` keeps the links of a family consistent.
impl Task {
    pub(super) fn waiters(&self) -> Option<&Waiters> {
        self.waiters.as_deref()
    }

    /// Returns what waits for its end. A task that has none yet gets `new`.
    pub(super) fn waiters_or(&mut self, new: impl FnOnce() -> Box<Waiters>) -> &mut Waiters {
        self.waiters.get_or_insert_with(new)
    }

    pub(super) fn leave_waiters(&mut self, waiter: Slot) {
        if let Some(waiters) = &mut self.waiters {
            waiters.remove(waiter);
        }
    }

    pub(super) fn drop_keeper(&mut self) {
        if let Some(waiters) = &mut self.waiters {
            waiters.keeper = None;
        }
    }

    pub(super) fn family(&self) -> &Family {
        &self.family
    }

    /// Joins a family as the youngest child, before its siblings.
    pub(super) fn join_family(&mut self, parent: Option<Slot>, next: Option<Slot>) {
        (self.family.parent, self.family.next) = (parent, next);
    }

    /// Leaves the family of its parent, if it has one, and returns the links to it. The children stay.
    #[inline(always)]
    pub(super) fn leave_family(&mut self) -> Option<(Slot, Option<Slot>, Option<Slot>)> {
        let parent = self.family.parent.take()?;
        Some((parent, self.family.next.take(), self.family.previous.take()))
    }

    pub(super) fn set_first_child(&mut self, child: Option<Slot>) {
        self.family.first_child = child;
    }

    pub(super) fn set_next(&mut self, sibling: Option<Slot>) {
        self.family.next = sibling;
    }

    pub(super) fn set_previous(&mut self, sibling: Option<Slot>) {
        self.family.previous = sibling;
    }
}

/// What others may read, and the settings.
impl Task {
    #[inline(always)]
    pub(super) fn tid(&self) -> Tid {
        self.tid
    }

    pub(super) fn name(&self) -> &Rc<str> {
        &self.birth.name
    }

    pub(super) fn spawned(&self) -> Option<Caller> {
        self.birth.spawned
    }

    pub(super) fn last_call(&self) -> Option<Caller> {
        self.called
    }

    /// Returns the place of the call in which the task is blocked.
    pub(super) fn place_of_wait(&self, on: WaitingOn) -> Option<Place> {
        match on {
            // The kernel holds back any call, also one that notes no caller.
            WaitingOn::Console(_) | WaitingOn::Room(..) | WaitingOn::Delay(_) => None,
            _ => self.called.map(Place::from),
        }
    }

    #[inline(always)]
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn traps(&self) -> u64 {
        self.traps
    }

    /// The time at which it last blocked.
    pub(super) fn since(&self) -> Nanos {
        self.since
    }

    pub(super) fn is_live(&self) -> bool {
        !matches!(self.state, State::Ending | State::Zombie(_))
    }

    pub(super) fn is_zombie(&self) -> bool {
        matches!(self.state, State::Zombie(_))
    }

    /// Returns the selects on its end, if it has a list of what waits for that.
    pub(super) fn selects_mut(&mut self) -> Option<&mut Watchers> {
        Some(&mut self.waiters.as_mut()?.selects)
    }

    /// The address of the program, to be prefetched.
    pub(super) fn program_start(&self) -> *const u8 {
        ptr::from_ref(&*self.program).cast()
    }
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(std::mem::offset_of!(Task, since) == 64 && size_of::<Task>() == 128);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Kernel, Os, user::program::program};

    #[test]
    fn what_a_program_captures_is_in_its_memory_once() {
        let kernel = Kernel::simulated(0);
        let spans = [1; 8];
        let bare = async |os: &mut Os| os.sleep(Duration::from_secs(1)).await;
        let capturing = async move |os: &mut Os| os.sleep(Duration::from_secs(spans[7])).await;
        let bare = size_of_val(&*program(&kernel.frame, bare));
        let capturing = size_of_val(&*program(&kernel.frame, capturing));
        assert_eq!(capturing, bare + size_of_val(&spans));
        assert!(bare <= 104, "{bare} bytes: more than a chunk of 112 has");
    }
}
