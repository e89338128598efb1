//! Scopes: work that another task can cancel, and shields against that.

use std::{
    cell::{OnceCell, RefCell},
    rc::Rc,
    time::Duration,
};

use super::{
    os::{Os, checked, mismatch},
    sync::Flag,
};
use crate::{
    abi::{Nanos, QueueId, Reply, SystemCall, Tid},
    trap::{Object, Payload, ScopeState, TrapFrame},
};

/// The body of a [`Scope`] was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

/// Work that another task can cancel, as a timeout would. (The cancel scope of trio.) Clones are handles
/// of the same scope.
///
/// [`Scope::cancel`] cuts: the body is dropped at the call that it is in, or at its next call. What
/// needs traps to clean up comes after [`Scope::run`] has returned, or is [shielded](Os::shield).
/// [`Scope::ask`] only asks: the body sees a flag, and ends itself.
///
/// ```
/// # use std::time::Duration;
/// use trapline::{Cancelled, Kernel, Os, Scope};
///
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let scope = Scope::new();
///     let theirs = scope.clone();
///     let worker = os.spawn("worker", async move |os: &mut Os| {
///         let work = theirs.run(os, async |os| os.sleep(Duration::from_secs(100)).await);
///         assert_eq!(work.await, Err(Cancelled));
///         os.shield(async |os| writeln!(os, "tidied up")).await;
///     }).await?;
///     os.sleep(Duration::from_secs(1)).await;
///     scope.cancel(os).await;
///     os.wait(worker).await.map(drop)
/// })?;
/// # kernel.run()?.check()?;
/// # assert_eq!(kernel.take_console(), "tidied up\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Scope {
    state: Rc<ScopeState>,
    /// Set by [`Scope::ask`].
    asked: Rc<RefCell<Option<Flag>>>,
    /// The frame of the kernel that it is used in.
    home: Rc<OnceCell<Rc<TrapFrame>>>,
}

impl Scope {
    /// Makes a scope without a deadline.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `body`. *Blocks* as the body does. A scope that was cancelled before treats the body as a
    /// timeout of zero does ([`Os::timeout`]). It may be run again when the run is over. A task that
    /// runs it meanwhile faults.
    ///
    /// *Errors:* [`Cancelled`], after dropping the body: the scope was cancelled, or its deadline has
    /// passed.
    pub async fn run<T>(
        &self,
        os: &mut Os,
        body: impl AsyncFnOnce(&mut Os) -> T,
    ) -> Result<T, Cancelled> {
        self.touch(os);
        let state = Rc::clone(&self.state);
        let begin = move |frame: &TrapFrame| {
            let deadline = match state.is_cancelled.get() {
                true => Nanos::ZERO,
                false => state.deadline.get(),
            };
            frame.put(Payload::Scope(state));
            SystemCall::Scope(deadline)
        };
        let result = os.cuttable(begin, body).await;
        self.touch(os);
        result.map_err(|_| Cancelled)
    }

    /// Cancels the body, now or when it begins. The scope stays cancelled. Never blocks.
    pub async fn cancel(&self, os: &mut Os) {
        self.touch(os);
        let state = Rc::clone(&self.state);
        let cancel = move |frame: &TrapFrame| {
            let task = state.under_way.get().map(|(tid, _)| tid);
            frame.put(Payload::Scope(state));
            SystemCall::Cancel(task.unwrap_or_default())
        };
        os.call(cancel, |_, _| ()).await;
    }

    /// Sets the instant, counted from boot as by [`Os::now`], at which the scope is cancelled: for the
    /// body under way, and for later ones. The last one set counts. Never blocks.
    pub async fn deadline(&self, os: &mut Os, instant: Duration) {
        self.touch(os);
        let state = Rc::clone(&self.state);
        let set = move |frame: &TrapFrame| {
            frame.put(Payload::Scope(state));
            SystemCall::SetDeadline(instant.into())
        };
        let set = os.call(set, checked).await;
        debug_assert!(set.is_ok(), "the call came with its scope");
    }

    /// Returns whether the scope was cancelled, or its deadline has passed during a body.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        if let Some(frame) = self.home.get() {
            frame.touch(Object::Scopes, false);
        }
        self.state.is_cancelled.get()
    }

    /// Asks the body to come to an end: sets the flag that [`Scope::asked`] returns. Never blocks.
    pub async fn ask(&self, os: &mut Os) {
        self.asked(os).await.set(os).await;
    }

    /// Returns the flag that [`Scope::ask`] sets, for a body to look at, or to select on
    /// ([`Source::flag`](crate::Source::flag)). Never blocks.
    pub async fn asked(&self, os: &mut Os) -> Flag {
        self.touch(os);
        if self.asked.borrow().is_none() {
            let new = Flag::new(os).await;
            self.touch(os);
            self.asked.borrow_mut().get_or_insert(new);
        }
        let asked = self.asked.borrow();
        asked.clone().expect("it was made")
    }

    /// Notes for a search that the state of the scope is read or changed, which is in no queue.
    fn touch(&self, os: &Os) {
        let frame = self.home.get_or_init(|| Rc::clone(os.frame()));
        if Rc::ptr_eq(frame, os.frame()) {
            frame.touch(Object::Scopes, true);
        }
    }
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope")
            .field("is_cancelled", &self.state.is_cancelled.get())
            .finish_non_exhaustive()
    }
}

/// A shield that the task is in. Dropping it leaves it.
struct Shielded {
    frame: Rc<TrapFrame>,
    number: u64,
}

impl Drop for Shielded {
    fn drop(&mut self) {
        self.frame.defer(SystemCall::Unshield(self.number));
    }
}

impl Os {
    /// Cancels the outermost scope of a task that is not cancelled yet. Returns whether it has one.
    /// Never blocks.
    pub fn cancel(&mut self, tid: Tid) -> impl Future<Output = bool> {
        self.call(
            move |_| SystemCall::Cancel(tid),
            |reply, _| match reply {
                Reply::Yes => true,
                Reply::No => false,
                other => mismatch(other),
            },
        )
    }

    /// Runs `body` to its end, whatever the timeouts and scopes around it do: they wait until it is
    /// left, and are due at that instant. Those within it work. Kill and shutdown ignore it. *Blocks* as
    /// the body does. (Trio's shield.)
    pub async fn shield<T>(&mut self, body: impl AsyncFnOnce(&mut Self) -> T) -> T {
        self.shield_and_close(QueueId::NONE, body).await
    }

    /// The same, and closes a queue when the shield holds back a timeout or a scope: the body may come
    /// to its end.
    pub(crate) async fn shield_and_close<T>(
        &mut self,
        queue: QueueId,
        body: impl AsyncFnOnce(&mut Self) -> T,
    ) -> T {
        let enter = self.call(
            move |frame| {
                frame.put_word(queue.0);
                SystemCall::Shield
            },
            |reply, frame| match reply {
                Reply::Timeout(number) => Shielded {
                    frame: Rc::clone(frame),
                    number,
                },
                other => mismatch(other),
            },
        );
        let _shielded = enter.await;
        body(self).await
    }
}
