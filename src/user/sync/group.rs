//! A group of tasks, which ends as a whole.

use std::{cell::RefCell, collections::BTreeSet, fmt, rc::Rc, time::Duration};

use crate::{
    abi::{Errno, Exit, QueueId, SystemCall, Tid},
    trap::{Caller, Keeper, Kind, Options, TrapFrame},
    user::{messages::Side, os::Os, program::IntoExit, queue::Queue, time::Elapsed},
};

/// A group of tasks. [`Group::join`] waits for all of them, and kills the rest when one fails.
/// Dropping the group kills its members, at the next trap of the task that drops it and before that
/// trap has an effect. (The nursery of trio, the `TaskGroup` of curio.)
///
/// An ended member is a zombie until [`Group::next`], [`Group::join`] or [`Group::first`] has
/// returned its exit, or the group is dropped. No zombie outlives the group.
///
/// ```
/// # use trapline::{Kernel, Os, sync::Group};
/// # let mut kernel = Kernel::simulated(0);
/// kernel.spawn("main", async |os: &mut Os| {
///     let mut group = Group::new(os).await;
///     for n in 1..=3 {
///         group.spawn(os, "worker", async move |os| writeln!(os, "{n}")).await?;
///     }
///     group.join(os).await.map_err(|failure| failure.to_string())?;
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # kernel.run()?;
/// # assert_eq!(kernel.take_console(), "1\n2\n3\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The group receives each member's exit, even if other tasks wait for the member or the group has
/// moved to another task. A member also stops being a zombie when the task that spawned it ends.
pub struct Group {
    /// The exits that the group has not returned yet.
    ended: Queue<(Tid, Exit)>,
    members: Rc<Members>,
    frame: Rc<TrapFrame>,
}

struct Members {
    ended: QueueId,
    exits: Rc<Side<(Tid, Exit)>>,
    /// The members whose exits the group has not returned. The kernel adds a member when it makes the
    /// task: the owner may be killed before it receives the tid.
    left: RefCell<BTreeSet<Tid>>,
}

impl Keeper for Members {
    fn spawned(&self, tid: Tid) {
        self.left.borrow_mut().insert(tid);
    }

    fn ended(&self, tid: Tid, exit: &Exit) -> Option<(QueueId, u64)> {
        Some((self.ended, self.exits.push((tid, exit.clone()))))
    }
}

/// A task of a [`Group`] failed, faulted or was killed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("task {tid} {exit}")]
pub struct Failure {
    /// The task.
    pub tid: Tid,
    /// Its exit.
    pub exit: Exit,
}

impl Group {
    /// Makes a group without tasks. Never blocks.
    pub async fn new(os: &mut Os) -> Self {
        Self::maybe_named(os, None).await
    }

    /// Makes a group with a name, which reports and traces show beside its number. Never blocks.
    pub async fn named(os: &mut Os, name: &str) -> Self {
        Self::maybe_named(os, Some(name)).await
    }

    async fn maybe_named(os: &mut Os, name: Option<&str>) -> Self {
        let ended = Queue::required(os, Kind::Group, name).await;
        let members = Rc::new(Members {
            ended: ended.id(),
            exits: ended.side(),
            left: RefCell::default(),
        });
        Self {
            ended,
            members,
            frame: Rc::clone(os.frame()),
        }
    }

    /// Starts a task in the group, as [`Os::spawn`] does.
    ///
    /// *Errors:* [`Errno::TooManyTasks`]; [`Errno::Invalid`] in a kernel other than its own.
    #[track_caller]
    pub fn spawn<T: IntoExit>(
        &mut self,
        os: &mut Os,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        os.note_caller();
        self.spawn_noted(os, name, program)
    }

    /// For a caller that has noted its own caller.
    pub(crate) async fn spawn_noted<T: IntoExit>(
        &mut self,
        os: &mut Os,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> Result<Tid, Errno> {
        if !Rc::ptr_eq(&self.frame, os.frame()) {
            return Err(Errno::Invalid);
        }
        let options = Options {
            keeper: Some(self.members.clone()),
            ..Options::default()
        };
        os.new_task(SystemCall::NewTask, name.as_ref(), program, Some(options))
            .await
    }

    /// Returns the queue of the exits that the group has not returned.
    pub(crate) fn ended(&self) -> &Queue<(Tid, Exit)> {
        &self.ended
    }

    /// Waits for the next member to end, and returns its exit; `None` when none is left. *Blocks*
    /// until one ends. Faults the caller in a kernel other than the group's own.
    #[track_caller]
    pub fn next(&mut self, os: &mut Os) -> impl Future<Output = Option<(Tid, Exit)>> {
        let place = os.note_caller();
        self.next_at(place, os)
    }

    async fn next_at(&mut self, place: Caller, os: &mut Os) -> Option<(Tid, Exit)> {
        self.ended.require_home(os, "the group");
        if self.members.left.borrow().is_empty() {
            return None;
        }
        os.frame().set_place(place);
        let (tid, exit) = self.ended.take(os).await.ok()?;
        self.members.left.borrow_mut().remove(&tid);
        self.frame.defer_word(SystemCall::Disown(tid), 1);
        Some((tid, exit))
    }

    /// Waits for all members, or kills the rest when one fails, faults or is killed. *Blocks* until
    /// then. When this returns, all have ended and their destructors have run.
    ///
    /// *Errors:* the first [`Failure`].
    #[track_caller]
    pub fn join(mut self, os: &mut Os) -> impl Future<Output = Result<(), Failure>> {
        let place = os.note_caller();
        async move {
            while let Some((tid, exit)) = self.next_at(place, os).await {
                if exit != Exit::Done {
                    self.end(os).await;
                    return Err(Failure { tid, exit });
                }
            }
            Ok(())
        }
    }

    /// Waits for the first member to end, kills the rest, and returns the first exit; `None` in an
    /// empty group. *Blocks* until one ends. When this returns, all have ended and their
    /// destructors have run.
    #[track_caller]
    pub fn first(mut self, os: &mut Os) -> impl Future<Output = Option<(Tid, Exit)>> {
        let place = os.note_caller();
        async move {
            let first = self.next_at(place, os).await?;
            self.end(os).await;
            Some(first)
        }
    }

    /// Waits for all members for at most `span`, and kills the rest. Returns how many it killed. *Blocks*
    /// until then. When this returns, all have ended and their destructors have run.
    #[track_caller]
    pub fn drain(self, os: &mut Os, span: Duration) -> impl Future<Output = usize> {
        let place = os.note_caller();
        self.drain_at(place, os, span)
    }

    pub(crate) async fn drain_at(mut self, place: Caller, os: &mut Os, span: Duration) -> usize {
        let all = os.timeout(
            span,
            async |os| while self.next_at(place, os).await.is_some() {},
        );
        let (Ok(()) | Err(Elapsed)) = all.await;
        // Some may have ended since the span was over.
        let killed = self.members.left.borrow().len() - self.ended.len();
        self.end(os).await;
        killed
    }

    /// Ends the remaining members. The caller has waited for all of them.
    async fn end(self, os: &mut Os) {
        for tid in self.members.left.take() {
            self.frame.defer_word(SystemCall::Release(tid), 1);
        }
        drop(self);
        // They end at this trap, before it has an effect.
        os.yield_now().await;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for tid in self.members.left.take() {
            self.frame.defer(SystemCall::Release(tid));
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.members.left.borrow().iter())
            .finish()
    }
}
