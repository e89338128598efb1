//! What a guest asks its task for: the ends of devices, timers, and calls.

use std::{
    cell::{Cell, RefCell},
    io,
    mem::{self, ManuallyDrop},
    pin::Pin,
    ptr,
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Wake, Waker},
    time::Duration,
};

use super::{timers::Timers, wakes::Wakes};
use crate::{
    abi::Direction,
    trap::{Caller, Object, TrapFrame},
    user::{os::Os, select::Source},
};

/// A device that guests use. Its handle leaves what it wants here, and the task does it.
pub(super) trait Port {
    fn end(&self, direction: Direction) -> &End;

    fn source(&self, direction: Direction) -> Source;

    /// Returns whether something is left to write.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Reads what is there. Returns whether there was something.
    fn read<'a>(&'a self, os: &'a mut Os, place: Caller) -> Moves<'a>;

    /// Writes what is left. Returns whether there was room.
    fn write<'a>(&'a self, _: &'a mut Os, _: Caller) -> Moves<'a> {
        Box::pin(async { true })
    }
}

pub(super) type Moves<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// Starts a task, in the turn of the guest's task.
pub(super) type Call = Box<dyn for<'a> FnOnce(&'a mut Os) -> Starts<'a>>;

type Starts<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The guest's side of a task. The task does what is asked for between two polls.
pub(super) struct Hub {
    pub(super) wakes: Arc<Wakes>,
    pub(super) timers: Arc<Timers>,
    /// In the order in which they were asked for. One may be over.
    wants: RefCell<Vec<Want>>,
    pub(super) calls: RefCell<Vec<Call>>,
    /// How many calls have not answered, as of the last poll, and how many have answered since.
    pub(super) calling: Cell<usize>,
    pub(super) answered: Cell<usize>,
    /// Whether the guest shares nothing with others.
    pub(super) is_unshared: Cell<bool>,
    /// Whether its task is woken only because another guest has taken a device over.
    has_lost_device: Cell<bool>,
    /// Where the program has called `run_future`.
    pub(super) place: Caller,
}

struct Want {
    port: Rc<dyn Port>,
    direction: Direction,
    /// Whether an attempt would block, as far as is known.
    is_blocked: bool,
}

thread_local! {
    /// The guest that is polled. [`Entered`] takes it out again, so the end of the thread drops nothing.
    static CURRENT: Cell<Option<ManuallyDrop<Rc<Hub>>>> = const { Cell::new(None) };
}

/// Returns the guest that is polled on this thread.
pub(super) fn current() -> Option<Rc<Hub>> {
    let current = CURRENT.take();
    let hub = current.as_deref().cloned();
    CURRENT.set(current);
    hub
}

/// The same, for something that works nowhere else.
#[track_caller]
pub(super) fn required(what: &str) -> Rc<Hub> {
    current().unwrap_or_else(|| {
        panic!(
            "{what} is used outside of Os::run_future: a guest must poll it, on its kernel's thread"
        )
    })
}

/// A poll under way. Its end notes what the poll may have touched, also if it panics.
struct Entered<'a> {
    before: Option<ManuallyDrop<Rc<Hub>>>,
    hub: &'a Hub,
    frame: &'a TrapFrame,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let entered = CURRENT.replace(self.before.take());
        drop(entered.map(ManuallyDrop::into_inner));
        // What the guest shares with other tasks is in no note.
        self.hub.note_change(self.frame);
        let answered = self.hub.answered.take();
        self.hub.calling.update(|calling| calling - answered);
    }
}

impl Hub {
    pub(super) fn new(wakes: Arc<Wakes>, now: Duration, place: Caller) -> Rc<Self> {
        Rc::new(Self {
            wakes,
            timers: Arc::new(Timers::new(now)),
            wants: RefCell::default(),
            calls: RefCell::default(),
            calling: Cell::new(0),
            answered: Cell::new(0),
            is_unshared: Cell::new(false),
            has_lost_device: Cell::new(false),
            place,
        })
    }

    /// Polls the guest of this hub.
    pub(super) fn enter<T>(self: &Rc<Self>, frame: &TrapFrame, poll: impl FnOnce() -> T) -> T {
        let _entered = Entered {
            before: CURRENT.replace(Some(ManuallyDrop::new(Rc::clone(self)))),
            hub: self,
            frame,
        };
        poll()
    }

    /// Notes for a search that a turn looks for what others have done to this guest. A poll is noted
    /// by its end.
    pub(super) fn note_look(&self, frame: &TrapFrame) {
        if frame.is_noted() && !self.is_unshared() {
            self.wakes.note_look(frame);
        }
    }

    /// Notes for a search that a turn changes what the polls of others may see.
    fn note_change(&self, frame: &TrapFrame) {
        if frame.is_noted() && !self.is_unshared() {
            frame.touch(Object::World, true);
        }
    }

    fn is_unshared(&self) -> bool {
        self.is_unshared.get() && self.calling.get() == 0
    }

    /// Notes that the guest waits for this end of a device, or has left bytes for it.
    fn want(&self, port: Rc<dyn Port>, direction: Direction, is_new: bool) {
        let mut wants = self.wants.borrow_mut();
        if !is_new {
            // It may be left from before another guest took the device over.
            wants.retain(|want| want.direction != direction || !want.is_for(&port));
        }
        wants.push(Want {
            port,
            direction,
            // A read that is tried at once mostly finds nothing.
            is_blocked: direction == Direction::Read,
        });
    }

    /// Returns whether its task was woken only to leave a device to another guest. Forgets it.
    pub(super) fn takes_loss(&self) -> bool {
        self.has_lost_device.take() && !self.wakes.is_woken()
    }

    /// Returns whether the guest still waits for this end of a device.
    fn is_wanted(self: &Rc<Self>, port: &dyn Port, direction: Direction) -> bool {
        let end = port.end(direction);
        end.is_of(self)
            && match direction {
                Direction::Read => end.is_awaited(),
                Direction::Write => port.has_unsent(),
            }
    }

    /// Returns whether there is work for its task between two polls.
    pub(super) fn has_asked(&self) -> bool {
        !self.calls.borrow().is_empty() || !self.wants.borrow().is_empty()
    }

    /// Returns whether the guest may wait for anything but its waker.
    pub(super) fn has_sources(&self) -> bool {
        !self.wants.borrow().is_empty() || self.timers.deadline().is_some()
    }

    /// Starts what the guest has asked for, and writes. Returns whether a byte was moved.
    pub(super) async fn work(self: &Rc<Self>, os: &mut Os) -> bool {
        self.begin_calls(os).await;
        self.write(os).await
    }

    /// Does what the guest has left to write, as far as there is room. Returns whether a byte was moved.
    async fn write(self: &Rc<Self>, os: &mut Os) -> bool {
        let mut has_written = false;
        let mut at = 0;
        loop {
            let next = self
                .wants
                .borrow()
                .get(at)
                .map(|want| match want.is_blocked {
                    true => None,
                    false => Some(want.port.clone()),
                });
            match next {
                None => return has_written,
                Some(Some(port)) if self.is_wanted(&*port, Direction::Write) => {
                    let is_blocked = !self.moves(os, &*port, Direction::Write).await;
                    has_written |= !is_blocked;
                    self.wants.borrow_mut()[at].is_blocked = is_blocked;
                }
                Some(_) => at += 1,
            }
        }
    }

    /// Makes the call of a device's end. Returns whether it has moved something.
    async fn moves(&self, os: &mut Os, port: &dyn Port, direction: Direction) -> bool {
        let Some(_under_way) = port.end(direction).begin() else {
            // The task that had it before has bytes in its hands, and gives them back at its next turn.
            os.yield_now().await;
            return false;
        };
        self.note_change(os.frame());
        let is_moved = match direction {
            Direction::Read => port.read(os, self.place).await,
            Direction::Write => port.write(os, self.place).await,
        };
        self.note_change(os.frame());
        is_moved
    }

    /// Checks what has woken the guest since its last poll, and forgets it.
    pub(super) fn check_wakes(&self, frame: &TrapFrame) {
        self.wakes.take();
        if frame.is_noted() && self.wakes.by_thread() {
            panic!(
                "another thread has woken this guest, and no search can repeat that: have it use what \
                 Foreign gives, or search without it"
            );
        }
        if let Some(tid) = self.wakes.take_waker()
            && self.is_unshared()
        {
            panic!(
                "this guest is declared unshared, and task {tid} has woken it: what they share must be \
                 seen, so leave out Foreign::unshared"
            );
        }
    }

    /// Starts the tasks that the guest has asked for.
    async fn begin_calls(&self, os: &mut Os) {
        while !self.calls.borrow().is_empty() {
            for call in self.calls.take() {
                os.frame().set_place(self.place);
                call(os).await;
            }
        }
    }

    /// Returns the sources of what the guest waits for. One that is over waits only for room.
    pub(super) fn sources(
        self: &Rc<Self>,
        frame: &TrapFrame,
        is_over: bool,
        into: &mut Vec<Source>,
    ) {
        self.note_look(frame);
        let mut wants = self.wants.borrow_mut();
        wants.retain(|want| {
            let is_read = want.direction == Direction::Read;
            let is_wanted = self.is_wanted(&*want.port, want.direction) && !(is_over && is_read);
            if !is_wanted {
                self.note_change(frame);
                want.port.end(want.direction).leave(self);
            }
            is_wanted
        });
        into.extend(wants.iter().map(|want| want.port.source(want.direction)));
    }

    /// Does what the source of this index was for. What is still wanted is behind the others then.
    pub(super) async fn serve(self: &Rc<Self>, os: &mut Os, index: usize) {
        let mut want = self.wants.borrow_mut().remove(index);
        let direction = want.direction;
        let is_moved = self.moves(os, &*want.port, direction).await;
        if is_moved && direction == Direction::Read {
            want.port.end(direction).leave(self);
        } else {
            want.is_blocked = !is_moved;
            self.wants.borrow_mut().push(want);
        }
    }
}

impl Want {
    fn is_for(&self, port: &Rc<dyn Port>) -> bool {
        ptr::addr_eq(Rc::as_ptr(&self.port), Rc::as_ptr(port))
    }
}

/// The end of a guest, also by a kill. Its drop leaves the devices to the other guests that wait for them.
pub(super) struct Leaving<'a>(pub(super) &'a Rc<Hub>);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        for want in self.0.wants.take() {
            want.port.end(want.direction).leave(self.0);
        }
    }
}

/// One direction of a device: the guest whose task does the calls, and the wakers of what waits.
#[derive(Default)]
pub(super) struct End {
    state: RefCell<EndState>,
    /// Whether a task makes a call.
    is_under_way: Cell<bool>,
}

/// A call of an end, by one task. Bytes would change places if two made one at a time.
struct UnderWay<'a>(&'a Cell<bool>);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[derive(Default)]
struct EndState {
    hub: Weak<Hub>,
    /// Whether that guest has it on its list.
    is_listed: bool,
    /// Of the last poll that no [`Waiter`] has made.
    waker: Option<Waker>,
    /// Those of the waiters, by their numbers.
    waiters: Vec<(u64, Waker)>,
    last_waiter: u64,
    /// Whether the task that did the calls before may still have the device.
    has_moved: bool,
}

impl End {
    fn is_of(&self, hub: &Rc<Hub>) -> bool {
        ptr::eq(self.state.borrow().hub.as_ptr(), Rc::as_ptr(hub))
    }

    /// Begins a call, unless one is under way.
    fn begin(&self) -> Option<UnderWay<'_>> {
        (!self.is_under_way.replace(true)).then(|| UnderWay(&self.is_under_way))
    }

    /// Returns whether a task makes a call.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way.get()
    }

    fn is_awaited(&self) -> bool {
        let state = self.state.borrow();
        state.waker.is_some() || !state.waiters.is_empty()
    }

    pub(super) fn set_waker(&self, cx: &Context<'_>) {
        let before = self.state.borrow_mut().waker.replace(cx.waker().clone());
        drop(before);
    }

    /// Returns a wait beside those of other futures. A waker takes the place of none of theirs.
    pub(super) fn waiter(&self) -> Waiter<'_> {
        let mut state = self.state.borrow_mut();
        state.last_waiter += 1;
        let number = state.last_waiter;
        drop(state);
        Waiter { end: self, number }
    }

    /// Has the task of the guest that is polled make the calls for this end.
    pub(super) fn list(&self, port: Rc<dyn Port>, direction: Direction) -> io::Result<()> {
        let hub = current().ok_or_else(outside)?;
        let is_here = self.is_of(&hub);
        let mut state = self.state.borrow_mut();
        if is_here && state.is_listed {
            return Ok(());
        }
        state.is_listed = true;
        let before = mem::replace(&mut state.hub, Rc::downgrade(&hub));
        let before = before.upgrade().filter(|_| !is_here);
        state.has_moved |= before.is_some();
        drop(state);
        if let Some(before) = before {
            // Its select may have the device. What two guests use is shared.
            before.is_unshared.set(false);
            hub.is_unshared.set(false);
            // A poll would take the device back, if that guest waits for it too.
            before.has_lost_device.set(true);
            before.wakes.ring();
        }
        hub.want(port, direction, is_here);
        Ok(())
    }

    /// Notes that a guest has taken it off its list. Another one that waits for it takes it over.
    fn leave(&self, hub: &Rc<Hub>) {
        if self.is_of(hub) {
            self.state.borrow_mut().is_listed = false;
            self.wake();
        }
    }

    /// Ends the wait of a handle that is gone.
    pub(super) fn forget(&self) {
        let mut state = self.state.borrow_mut();
        let wakers = (state.waker.take(), mem::take(&mut state.waiters));
        let hub = state.hub.upgrade();
        drop(state);
        drop(wakers);
        // The device closes once that guest's list does not have it.
        if let Some(hub) = hub
            && !current().is_some_and(|current| Rc::ptr_eq(&current, &hub))
        {
            hub.wakes.wake_by_ref();
        }
    }

    pub(super) fn wake(&self) {
        let mut state = self.state.borrow_mut();
        let (waker, waiters) = (state.waker.take(), mem::take(&mut state.waiters));
        drop(state);
        let waiters = waiters.into_iter().map(|(_, waker)| waker);
        waker.into_iter().chain(waiters).for_each(Waker::wake);
    }

    /// Makes sense of the result of an attempt; `None` if it is to be made again later.
    pub(super) async fn outcome<T>(
        &self,
        os: &mut Os,
        result: Option<io::Result<T>>,
    ) -> Option<io::Result<T>> {
        match result {
            Some(Err(error))
                if error.kind() == io::ErrorKind::ResourceBusy && self.state.borrow().has_moved =>
            {
                // The task that had it before leaves it at its next turn.
                os.yield_now().await;
                None
            }
            None => None,
            other => {
                self.state.borrow_mut().has_moved = false;
                other
            }
        }
    }
}

/// The wait of a future for an end. Its drop ends the wait.
pub(super) struct Waiter<'a> {
    end: &'a End,
    number: u64,
}

impl Waiter<'_> {
    pub(super) fn set_waker(&self, cx: &Context<'_>) {
        let waker = cx.waker().clone();
        let mut state = self.end.state.borrow_mut();
        let mine = state.waiters.iter_mut().find(|(of, _)| *of == self.number);
        let before = match mine {
            Some((_, before)) => Some(mem::replace(before, waker)),
            None => {
                state.waiters.push((self.number, waker));
                None
            }
        };
        drop(state);
        drop(before);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut state = self.end.state.borrow_mut();
        let mine = |(of, _): &(u64, Waker)| *of == self.number;
        let at = state.waiters.iter().position(mine);
        let waker = at.map(|at| state.waiters.remove(at));
        drop(state);
        drop(waker);
    }
}

/// The error of a device that is used where no guest is polled.
pub(super) fn outside() -> io::Error {
    io::Error::other(
        "it is polled outside of Os::run_future: a guest must poll it, on its kernel's thread",
    )
}

/// Makes a call if it does not block.
pub(super) async fn attempt<T>(
    os: &mut Os,
    place: Caller,
    call: impl AsyncFnOnce(&mut Os) -> T,
) -> Option<T> {
    let tried = os.timeout(Duration::ZERO, async |os: &mut Os| {
        os.frame().set_place(place);
        call(os).await
    });
    tried.await.ok()
}
