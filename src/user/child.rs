//! Tasks that return a value.
//!
//! The program stores the value in the handle when it returns, and the kernel stores the exit there
//! when the task ends. So a wait that is cut loses neither.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
};

use super::os::Os;
use crate::{
    abi::{Errno, Exit, QueueId, SystemCall, Tid},
    trap::{Keeper, Options, TrapFrame},
};

/// The handle of a task of [`Os::spawn_child`], through which another task waits for its value.
/// (The `JoinHandle` of threads, the `Task` of asyncio.)
///
/// Dropping the handle drops the value. An ended task is reaped; a live task continues and leaves
/// no zombie. In a kernel other than its own, the calls of a handle fault the caller.
pub struct Child<T: 'static> {
    tid: Tid,
    value: Rc<Cell<Option<T>>>,
    end: Rc<ChildEnd>,
    frame: Rc<TrapFrame>,
}

#[derive(Default)]
struct ChildEnd(RefCell<Option<Exit>>);

impl Keeper for ChildEnd {
    fn spawned(&self, _: Tid) {}

    fn ended(&self, _: Tid, exit: &Exit) -> Option<(QueueId, u64)> {
        self.0.replace(Some(exit.clone()));
        None
    }
}

impl Os {
    /// Like [`Os::spawn`], for a program that returns a value of any type: the handle waits for it. A
    /// program that returns ends with [`Exit::Done`].
    ///
    /// *Errors:* as [`Os::spawn`].
    ///
    /// ```
    /// # use trapline::{Errno, Exit, Kernel, Os};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let mut child = os.spawn_child("sum", async |_| (1..=4).sum::<u32>()).await?;
    ///     assert_eq!(child.wait(os).await, Ok(10));
    ///     Ok::<(), Errno>(())
    /// })?;
    /// # assert_eq!(kernel.run()?.exits()[&1.into()], Exit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn spawn_child<T: 'static>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Child<T>, Errno>> {
        self.note_caller();
        let (value, end) = (Rc::new(Cell::new(None)), Rc::<ChildEnd>::default());
        let result = Rc::clone(&value);
        let program = async move |os: &mut Self| {
            let value = program(os).await;
            result.set(Some(value));
        };
        let options = Options {
            keeper: Some(end.clone()),
            ..Options::default()
        };
        let frame = Rc::clone(self.frame());
        let spawned = self.new_task(SystemCall::NewTask, name.as_ref(), program, Some(options));
        async move {
            let tid = spawned.await?;
            Ok(Child {
                tid,
                value,
                end,
                frame,
            })
        }
    }
}

impl<T: 'static> Child<T> {
    /// Returns the task's number.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Waits for the task, and takes its value. *Blocks* until the task has ended. A call that a timeout
    /// cuts does not take the value.
    ///
    /// *Errors:* the task's exit, if it was killed, faulted or called [`Os::exit`]; [`Exit::Done`] if
    /// the value was taken before. A task that waits for itself faults.
    #[track_caller]
    pub fn wait(&mut self, os: &mut Os) -> impl Future<Output = Result<T, Exit>> {
        os.note_caller();
        async {
            self.require_home(os);
            let waited = os.wait_noted(self.tid).await;
            let exit = self.end.0.borrow().clone();
            if waited.is_err() && exit.is_some() {
                // It was reaped with the task that spawned it.
                self.frame.defer_word(SystemCall::Disown(self.tid), 1);
            }
            match exit {
                Some(Exit::Done) => self.value.take().ok_or(Exit::Done),
                Some(exit) => Err(exit),
                None => panic!("task {} waits for its own value: {waited:?}", self.tid),
            }
        }
    }

    /// Ends the task, as [`Os::kill`] does. Returns whether it was alive.
    pub async fn kill(&self, os: &mut Os) -> bool {
        self.require_home(os);
        os.kill(self.tid).await
    }

    pub(crate) fn frame(&self) -> &TrapFrame {
        &self.frame
    }

    fn require_home(&self, os: &Os) {
        assert!(
            Rc::ptr_eq(&self.frame, os.frame()),
            "child {} belongs to another kernel: only tasks of the kernel that made it can use it",
            self.tid
        );
    }
}

impl<T: 'static> Drop for Child<T> {
    fn drop(&mut self) {
        self.frame.defer(SystemCall::Disown(self.tid));
        if let Some(value) = self.value.take() {
            self.frame.drop_iteratively(value);
        }
    }
}

impl<T: 'static> fmt::Debug for Child<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Child({})", self.tid)
    }
}
