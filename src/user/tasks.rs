//! The calls about tasks.

use std::{cell::Cell, rc::Rc, time::Duration};

use super::{
    os::{Os, done, mismatch},
    program::{self, IntoExit},
};
use crate::{
    abi::{Errno, Exit, Nanos, Reply, SystemCall, TaskInfo, Tid},
    trap::{Payload, TrapFrame},
};

impl Os {
    /// Answers this task's own number. Never blocks. (Beazley's `GetTid`.)
    pub fn get_tid(&mut self) -> impl Future<Output = Tid> {
        self.call(
            |_| SystemCall::GetTid,
            |reply, _| match reply {
                Reply::Tid(tid) => tid,
                other => mismatch(other),
            },
        )
    }

    /// Lets every other ready task have its turn. Never blocks. Answers nothing.
    pub fn yield_now(&mut self) -> impl Future<Output = ()> {
        self.call(|_| SystemCall::Yield, done)
    }

    /// Starts `program` as a new task, a child of this one, and answers its number. The child is
    /// on the ready queue before its parent is put back. Never blocks. (Beazley's `NewTask`.)
    ///
    /// A child that has ended stays a zombie until somebody [waits](Self::wait) for it or its
    /// parent ends; where nobody will wait, [`Os::spawn_detached`] leaves none. When the parent
    /// ends first, the child runs on as an orphan.
    ///
    /// *Errors:* [`Errno::TooManyTasks`] at the kernel's limit of live tasks; the program and
    /// what it owned are dropped.
    ///
    /// ```
    /// # use trapline::{Exit, Kernel, Os};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("parent", async |os: &mut Os| {
    ///     let child = os.spawn("child", async |os| writeln!(os, "at work")).await?;
    ///     assert_eq!(os.wait(child).await?, Exit::Done);
    ///     Ok::<(), trapline::Errno>(())
    /// })?;
    /// # kernel.run()?;
    /// # assert_eq!(kernel.take_console(), "at work\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        let name = self.frame().intern(name.as_ref());
        self.new_task(SystemCall::NewTask, name, program, None, Nanos::ZERO)
    }

    /// Like [`Os::spawn`], for a task that nobody will wait for: it leaves no zombie.
    pub fn spawn_detached<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        let name = self.frame().intern(name.as_ref());
        self.new_task(
            SystemCall::NewDetachedTask,
            name,
            program,
            None,
            Nanos::ZERO,
        )
    }

    /// Like [`Os::spawn_detached`], for a task that is born asleep: its first turn comes when
    /// `delay` has passed.
    pub(crate) fn spawn_later<T: IntoExit>(
        &mut self,
        name: &str,
        delay: Duration,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        let name = self.frame().intern(name);
        let delay = Nanos::from(delay);
        self.new_task(SystemCall::NewDetachedTask, name, program, None, delay)
    }

    /// Like [`Os::spawn`], and leaves the new task's number in `newborn` before anybody else runs.
    pub(crate) fn spawn_into<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
        newborn: Rc<Cell<Tid>>,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        let name = self.frame().intern(name.as_ref());
        self.new_task(
            SystemCall::NewTask,
            name,
            program,
            Some(newborn),
            Nanos::ZERO,
        )
    }

    fn new_task<T: IntoExit>(
        &mut self,
        call: SystemCall,
        name: Rc<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
        newborn: Option<Rc<Cell<Tid>>>,
        delay: Nanos,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        let program = program::program(self.frame(), program);
        self.call(
            move |frame| {
                frame.put(Payload::Program {
                    name,
                    program,
                    newborn,
                    delay,
                });
                call
            },
            |reply, _| match reply {
                Reply::Tid(tid) => Ok(tid),
                Reply::Err(errno) => Err(errno),
                other => mismatch(other),
            },
        )
    }

    /// Ends a task, from outside and at once: when this answers, the victim has left every queue
    /// and its destructors have run, innermost call first. Answers whether there was a live task
    /// of that number. A task that kills itself gets no answer. Never blocks. (Beazley's
    /// `KillTask`.)
    pub fn kill(&mut self, tid: Tid) -> impl Future<Output = bool> {
        self.call(
            move |_| SystemCall::KillTask(tid),
            |reply, _| match reply {
                Reply::Yes => true,
                Reply::No => false,
                other => mismatch(other),
            },
        )
    }

    /// Answers how another task ended, and reaps it. (Beazley's `WaitTask`; the zombies are
    /// Unix's.)
    ///
    /// *Blocks* until the other has ended, if it is alive. Any number of tasks may wait for the
    /// same one; they wake in the order in which they began to wait.
    ///
    /// *Errors:* [`Errno::NoSuchTask`] at once, if there never was such a task or somebody has
    /// waited for it before; [`Errno::WouldDeadlock`] at once, for a task that waits for itself.
    pub fn wait(&mut self, tid: Tid) -> impl Future<Output = Result<Exit, Errno>> {
        self.call(
            move |_| SystemCall::WaitTask(tid),
            |reply, frame| match (reply, frame.take()) {
                (Reply::Exit, None) => Ok(Exit::Done),
                (Reply::Exit, Some(Payload::Exit(exit))) => Ok(exit),
                (Reply::Err(errno), _) => Err(errno),
                (other, _) => mismatch(other),
            },
        )
    }

    /// Ends this task with the exit of its choice. Its destructors run; nothing after the call
    /// does.
    pub async fn exit(&mut self, exit: Exit) -> ! {
        let prepare = |frame: &TrapFrame| {
            frame.put(Payload::Exit(exit));
            SystemCall::Exit
        };
        mismatch(self.call(prepare, |reply, _| reply).await)
    }

    /// Ends every task, this one included, the youngest first; then the kernel's `run` answers.
    pub async fn shutdown(&mut self) -> ! {
        mismatch(self.trap(SystemCall::Shutdown).await)
    }

    /// Answers a line per task, zombies included, by tid: `ps`. Never blocks.
    pub fn tasks(&mut self) -> impl Future<Output = Vec<TaskInfo>> {
        self.call(
            |_| SystemCall::Tasks,
            |reply, frame| match (reply, frame.take()) {
                (Reply::Tasks, Some(Payload::Tasks(tasks))) => tasks,
                (other, _) => mismatch(other),
            },
        )
    }

    /// Answers a random number: all 64 bits, from the world's seed, not for secrets. Never blocks.
    pub fn random(&mut self) -> impl Future<Output = u64> {
        self.call(
            |_| SystemCall::Random,
            |reply, _| match reply {
                Reply::Random(number) => number,
                other => mismatch(other),
            },
        )
    }
}
