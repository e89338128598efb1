//! The way back: tasks that a guest starts.

use std::{
    fmt,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use super::{
    hub::{self, Hub},
    wakes::{self, Listed},
};
use crate::{panic::lock, user::os::Os};

/// A task that a guest has started, by [`Foreign::spawn`](super::Foreign::spawn). As a future it is the
/// task's value; `None` if the task was killed or has panicked, or there was no room for it.
///
/// Dropping this leaves the task alone. Any guest may poll it.
pub struct ForeignTask<T> {
    slot: Arc<Slot<T>>,
}

struct Slot<T> {
    number: u64,
    state: Mutex<State<T>>,
}

struct State<T> {
    value: Option<T>,
    is_over: bool,
    is_given_up: bool,
    waker: Option<Waker>,
}

/// Held by the task. Its drop tells that the task has ended, in any way.
struct Ending<T> {
    slot: Arc<Slot<T>>,
    hub: Rc<Hub>,
}

impl<T> Drop for Ending<T> {
    fn drop(&mut self) {
        self.hub.answered.update(|answered| answered + 1);
        let mut state = lock(&self.slot.state);
        state.is_over = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T: 'static> ForeignTask<T> {
    /// Has the task of the guest that is polled start another one.
    pub(super) fn begin(name: Box<str>, body: impl AsyncFnOnce(&mut Os) -> T + 'static) -> Self {
        let hub = hub::required("Foreign::spawn or Foreign::call");
        let slot = Arc::new(Slot {
            number: wakes::next_number(),
            state: Mutex::new(State {
                value: None,
                is_over: false,
                is_given_up: false,
                waker: None,
            }),
        });
        hub.calling.update(|calling| calling + 1);
        let ending = Ending {
            slot: Arc::clone(&slot),
            hub: Rc::clone(&hub),
        };
        hub.calls.borrow_mut().push(Box::new(move |os| {
            Box::pin(async move {
                let program = async move |os: &mut Os| {
                    if lock(&ending.slot.state).is_given_up {
                        return;
                    }
                    let tid = os.frame().remote.running();
                    let listed = Listed::call(ending.slot.number, os.frame(), tid);
                    let value = body(os).await;
                    drop(listed);
                    lock(&ending.slot.state).value = Some(value);
                };
                if let Err(errno) = os.spawn_detached(&*name, program).await {
                    tracing::warn!(target: "trapline::kernel", "a task {name} of a guest is dropped: {errno}");
                }
            })
        }));
        Self { slot }
    }

    /// Kills the task, unless it has ended.
    pub(super) fn give_up(&self) {
        let mut state = lock(&self.slot.state);
        state.is_given_up = true;
        if !state.is_over {
            drop(state);
            wakes::kill(self.slot.number);
        }
    }
}

impl<T> Future for ForeignTask<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.slot.state);
        if state.is_over {
            return Poll::Ready(state.value.take());
        }
        let before = state.waker.replace(cx.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl<T> fmt::Debug for ForeignTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignTask").finish_non_exhaustive()
    }
}

/// Kills the task of a call whose future is dropped.
pub(super) struct Awaited<T: 'static>(pub(super) ForeignTask<T>);

impl<T: 'static> Drop for Awaited<T> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
