//! What a guest asks its task for: the ends of devices, timers, and calls.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use super::{call::Call, port::Port, sleep::Timers, wakes::Wakes};
use crate::{
    abi::Direction,
    trap::{Caller, Object, TrapFrame},
    user::{os::Os, select::Source},
};

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
    /// Where the program has called `run_future`.
    pub(super) place: Caller,
}

struct Want {
    port: Port,
    direction: Direction,
    /// Whether an attempt would block, as far as is known.
    is_blocked: bool,
}

thread_local! {
    /// The guest that is polled.
    static CURRENT: RefCell<Option<Rc<Hub>>> = const { RefCell::new(None) };
}

/// Returns the guest that is polled on this thread.
pub(super) fn current() -> Option<Rc<Hub>> {
    CURRENT.with_borrow(Option::clone)
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
    before: Option<Rc<Hub>>,
    hub: &'a Hub,
    frame: &'a TrapFrame,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
        if !self.hub.is_unshared() {
            // What the guest shares with other tasks is in no note.
            self.frame.touch(Object::World, true);
        }
        self.hub
            .calling
            .update(|calling| calling - self.hub.answered.take());
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
            place,
        })
    }

    /// Polls the guest of this hub.
    pub(super) fn enter<T>(self: &Rc<Self>, frame: &TrapFrame, poll: impl FnOnce() -> T) -> T {
        let _entered = Entered {
            before: CURRENT.replace(Some(Rc::clone(self))),
            hub: self,
            frame,
        };
        poll()
    }

    fn is_unshared(&self) -> bool {
        self.is_unshared.get() && self.calling.get() == 0
    }

    /// Notes that the guest waits for this end of a device, or has left bytes for it.
    pub(super) fn want(&self, port: Port, direction: Direction) {
        self.wants.borrow_mut().push(Want {
            port,
            direction,
            // A read that is tried at once mostly finds nothing.
            is_blocked: direction == Direction::Read,
        });
    }

    /// Does what the guest has left to write, as far as there is room. Returns whether a byte was moved.
    pub(super) async fn write(self: &Rc<Self>, os: &mut Os) -> bool {
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
                Some(Some(port)) if port.is_wanted(Direction::Write, self) => {
                    let is_blocked = !port.write(os, self.place).await;
                    has_written |= !is_blocked;
                    self.wants.borrow_mut()[at].is_blocked = is_blocked;
                }
                Some(_) => at += 1,
            }
        }
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
    pub(super) async fn begin_calls(&self, os: &mut Os) {
        while !self.calls.borrow().is_empty() {
            for call in self.calls.take() {
                os.frame().set_place(self.place);
                call(os).await;
            }
        }
    }

    /// Returns the sources of what the guest waits for. One that is over waits only for room.
    pub(super) fn sources(self: &Rc<Self>, is_over: bool, into: &mut Vec<Source>) {
        let mut wants = self.wants.borrow_mut();
        wants.retain(|want| {
            let is_read = want.direction == Direction::Read;
            let is_wanted = want.port.is_wanted(want.direction, self) && !(is_over && is_read);
            if !is_wanted {
                want.port.end(want.direction).unlist(self);
            }
            is_wanted
        });
        into.extend(wants.iter().map(|want| want.port.source(want.direction)));
    }

    /// Does what the source of this index was for. What is still wanted is behind the others then.
    pub(super) async fn serve(self: &Rc<Self>, os: &mut Os, index: usize) {
        let mut want = self.wants.borrow_mut().remove(index);
        let direction = want.direction;
        let is_moved = match direction {
            Direction::Read => want.port.read(os, self.place).await,
            Direction::Write => want.port.write(os, self.place).await,
        };
        if is_moved && direction == Direction::Read {
            want.port.end(direction).unlist(self);
        } else {
            want.is_blocked = !is_moved;
            self.wants.borrow_mut().push(want);
        }
    }
}
