//! Tasks that return a value.
//!
//! The kernel leaves the exit with the handle when it buries the task, and the program leaves the
//! value there when it returns: so a wait that is cut loses neither.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
};

use super::os::Os;
use crate::{
    abi::{Errno, Exit, QueueId, SystemCall, Tid},
    trap::{Keeper, TrapFrame},
};

/// The handle of a task of [`Os::spawn_child`], which waits for the value that the task returns. (The
/// `JoinHandle` of threads, the `Task` of asyncio.)
///
/// To drop it gives up the value, and nothing else: a task that has ended is reaped, and one that
/// lives goes on and leaves no zombie. It belongs to its kernel: in another one its calls fault the
/// caller.
pub struct Child<T: 'static> {
    tid: Tid,
    value: Rc<Cell<Option<T>>>,
    end: Rc<End>,
    frame: Rc<TrapFrame>,
}

/// How the task ended, once it has.
#[derive(Default)]
struct End(RefCell<Option<Exit>>);

impl Keeper for End {
    fn born(&self, _: Tid) {}

    fn ended(&self, _: Tid, exit: &Exit) -> Option<(QueueId, u64)> {
        self.0.replace(Some(exit.clone()));
        None
    }
}

impl<T: 'static> Child<T> {
    pub(crate) async fn spawn(
        os: &mut Os,
        name: &str,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> Result<Self, Errno> {
        let (value, end) = (Rc::new(Cell::new(None)), Rc::<End>::default());
        let result = Rc::clone(&value);
        let program = async move |os: &mut Os| {
            let value = program(os).await;
            result.set(Some(value));
        };
        let keeper = Rc::clone(&end);
        let tid = os.spawn_kept(name, program, keeper).await?;
        Ok(Self {
            tid,
            value,
            end,
            frame: Rc::clone(os.frame()),
        })
    }

    /// The task's number.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Waits for the task and answers the value that it returned. That is answered once, however
    /// many other tasks [wait](Os::wait) for the same task; a wait that is cut by a timeout has not
    /// had it. *Blocks* until the task has ended.
    ///
    /// *Errors:* the task's exit, if it has no value: it was killed, it faulted, it ended by
    /// [`Os::exit`], or the value was answered before, which is [`Exit::Done`]. A task that waits
    /// for itself faults.
    pub async fn wait(&mut self, os: &mut Os) -> Result<T, Exit> {
        self.require_home(os);
        let waited = os.wait(self.tid).await;
        let exit = self.end.0.borrow().clone();
        match exit {
            Some(Exit::Done) => self.value.take().ok_or(Exit::Done),
            Some(exit) => Err(exit),
            None => panic!("task {} waits for its own value: {waited:?}", self.tid),
        }
    }

    /// Ends the task, as [`Os::kill`] does. Answers whether it was alive.
    pub async fn kill(&self, os: &mut Os) -> bool {
        self.require_home(os);
        os.kill(self.tid).await
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
