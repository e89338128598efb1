//! The calls about tasks.

use std::{rc::Rc, time::Duration};

use super::{
    os::{Os, answer, carrying, mismatch},
    program::{self, IntoExit},
};
use crate::{
    abi::{Errno, Exit, Limits, Reply, SystemCall, TaskInfo, Tid},
    trap::{NewTask, Options, Payload, Start, TrapFrame},
};

impl Os {
    /// Returns this task's own number. Never blocks. (Beazley's `GetTid`.)
    pub fn get_tid(&mut self) -> impl Future<Output = Tid> {
        self.call(|_| SystemCall::GetTid, answer!(Reply::Tid(tid) => tid))
    }

    /// Ends the turn: every other ready task has a turn first. Never blocks.
    pub fn yield_now(&mut self) -> impl Future<Output = ()> {
        self.call(|_| SystemCall::Yield, answer!(Reply::Done => ()))
    }

    /// Starts `program` as a child of this task, and returns its number. The child is on the ready
    /// queue before its parent is put back. Never blocks. (Beazley's `NewTask`.)
    ///
    /// An ended child stays a zombie until a task [waits](Self::wait) for it or its parent ends. A
    /// task of [`Os::spawn_detached`] leaves no zombie. If the parent ends first, the child
    /// continues as an orphan.
    ///
    /// *Errors:* [`Errno::TooManyTasks`] at the kernel's limit of live tasks. The program and what
    /// it owns are dropped.
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
    #[track_caller]
    pub fn spawn<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        self.note_caller();
        self.new_task(SystemCall::NewTask, name.as_ref(), program, None)
    }

    /// Like [`Os::spawn`], for a task that leaves no zombie, because no task will wait for it.
    #[track_caller]
    pub fn spawn_detached<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        self.note_caller();
        self.new_task(SystemCall::NewDetachedTask, name.as_ref(), program, None)
    }

    /// Like [`Os::spawn`], for a daemon of the program: it serves other tasks, and keeps no run alive.
    /// (The daemon threads of Java and Python.)
    ///
    /// When the last task that is no daemon has ended, the daemons are killed before any has another
    /// turn, the youngest first, and their destructors run. Then [`Kernel::run`](crate::Kernel::run)
    /// returns. Until then a daemon is a task like any other. Lists and traces show it, it counts
    /// towards limits, and other tasks may wait for it or kill it. The tasks that it starts with
    /// [`Os::spawn`] are no daemons: they keep the run alive.
    ///
    /// A daemon that is ready, or waits for a timer or a device, may yet wake other tasks. So a
    /// deadlock is reported only when the daemons are stuck as well, and the report lists them.
    ///
    /// The daemons of the host ([`Kernel::spawn_daemon`](crate::Kernel::spawn_daemon)) are something
    /// else: no task sees them.
    ///
    /// *Errors:* as [`Os::spawn`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use trapline::{Errno, Kernel, Os};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     os.spawn_daemon("ticker", async |os: &mut Os| loop {
    ///         os.sleep(Duration::from_secs(1)).await;
    ///         writeln!(os, "tick");
    ///     }).await?;
    ///     os.sleep(Duration::from_millis(2500)).await;
    ///     Ok::<(), Errno>(())
    /// })?;
    /// let report = kernel.run()?;
    /// assert_eq!(kernel.take_console(), "tick\ntick\n");
    /// assert_eq!(report.elapsed, Duration::from_millis(2500));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn spawn_daemon<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        self.note_caller();
        self.new_task(SystemCall::NewDaemon, name.as_ref(), program, None)
    }

    /// Like [`Os::spawn`], with limits. They hold for the child and all its descendants, and the
    /// limits of this task hold as well.
    ///
    /// A call that they do not allow has no effect. It fails with [`Errno::Denied`], or with
    /// [`PermissionDenied`](std::io::ErrorKind::PermissionDenied) where it returns an
    /// [`io::Error`](std::io::Error). Every other denied call faults its task, as seccomp does. What
    /// destructors do is never denied.
    ///
    /// *Errors:* as [`Os::spawn`]; [`Errno::TooManyTasks`] if the limits have no room for it.
    ///
    /// ```
    /// # use trapline::{Calls, Errno, Exit, Kernel, Limits, Os};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let limits = Limits::new().allow([Calls::TIME]).max_traps(100);
    ///     let guest = os.spawn_with(limits, "guest", async |os: &mut Os| {
    ///         os.now().await;
    ///         assert_eq!(os.spawn("child", async |_: &mut Os| ()).await, Err(Errno::Denied));
    ///         loop {
    ///             os.yield_now().await;
    ///         }
    ///     }).await?;
    ///     let why = "the limit of 100 traps is used up";
    ///     assert_eq!(os.wait(guest).await?, Exit::Faulted(why.into()));
    ///     Ok::<(), Errno>(())
    /// })?;
    /// # assert_eq!(kernel.run()?.exits()[&1.into()], Exit::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn spawn_with<T: IntoExit>(
        &mut self,
        limits: Limits,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        self.note_caller();
        let options = Options {
            limits: Some(Box::new(limits)),
            ..Options::default()
        };
        self.new_task(SystemCall::NewTask, name.as_ref(), program, Some(options))
    }

    /// Like [`Os::spawn`], on a host of the simulated network, which is made if it does not exist.
    ///
    /// *Errors:* as [`Kernel::spawn_on`](crate::Kernel::spawn_on).
    #[track_caller]
    pub fn spawn_on<T: IntoExit>(
        &mut self,
        host: impl AsRef<str>,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        self.note_caller();
        let options = Options {
            host: Some(host.as_ref().into()),
            ..Options::default()
        };
        self.new_task(SystemCall::NewTask, name.as_ref(), program, Some(options))
    }

    /// Like [`Os::spawn`], when `delay` has passed. Until then the task waits for its timer, even with
    /// a delay of zero. Tasks with equal delays start in the order of these calls.
    ///
    /// *Errors:* as [`Os::spawn`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use trapline::{Errno, Kernel, Os};
    /// # let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("parent", async |os: &mut Os| {
    ///     let child = os.spawn_later("child", Duration::from_secs(2), async |os| {
    ///         let now = os.now().await;
    ///         writeln!(os, "it is {now:?}");
    ///     }).await?;
    ///     os.wait(child).await.map(drop)
    /// })?;
    /// # kernel.run()?;
    /// # assert_eq!(kernel.take_console(), "it is 2s\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn spawn_later<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        delay: Duration,
        program: impl AsyncFnOnce(&mut Self) -> T + 'static,
    ) -> impl Future<Output = Result<Tid, Errno>> {
        self.note_caller();
        let options = Options {
            start: Start::After(delay.into()),
            ..Options::default()
        };
        self.new_task(SystemCall::NewTask, name.as_ref(), program, Some(options))
    }

    /// For a caller that has noted its own caller.
    #[inline(always)]
    pub(crate) fn new_task<'a, T: IntoExit, P>(
        &'a mut self,
        call: SystemCall,
        name: &str,
        program: P,
        options: Option<Options>,
    ) -> impl Future<Output = Result<Tid, Errno>> + use<'a, T, P>
    where
        P: AsyncFnOnce(&mut Self) -> T + 'static,
    {
        let birth = self.frame().birth(name);
        let program = program::program(self.frame(), program);
        self.start(
            call,
            NewTask {
                birth,
                program,
                options: options.map(Box::new),
            },
        )
    }

    /// The same, for a program that is made.
    #[inline(always)]
    pub(crate) fn start(
        &mut self,
        call: SystemCall,
        new: NewTask,
    ) -> impl Future<Output = Result<Tid, Errno>> + use<'_> {
        self.call(
            carrying(call, Payload::Program(new)),
            answer!(Reply::Tid(tid) => Ok(tid), Reply::Err(errno) => Err(errno)),
        )
    }

    /// Ends a task at once. When this returns, the victim has left every queue, and its destructors
    /// have run, innermost call first. Returns whether it was alive. A task that kills itself does not
    /// continue. Never blocks. (Beazley's `KillTask`.)
    pub fn kill(&mut self, tid: Tid) -> impl Future<Output = bool> {
        self.call(
            move |_| SystemCall::KillTask(tid),
            answer!(Reply::Yes => true, Reply::No => false),
        )
    }

    /// Returns the exit of another task, and reaps that task. (Beazley's `WaitTask`; the zombies
    /// are those of Unix.)
    ///
    /// *Blocks* while the other task is alive. Any number of tasks may wait for the same one; they
    /// wake in the order in which they began to wait.
    ///
    /// *Errors:* [`Errno::NoSuchTask`] if there is no such task, or it was reaped.
    /// [`Errno::WouldDeadlock`] if the task waits for itself.
    #[track_caller]
    pub fn wait(&mut self, tid: Tid) -> impl Future<Output = Result<Exit, Errno>> {
        self.note_caller();
        self.wait_noted(tid)
    }

    /// For a caller that has noted its own caller.
    pub(crate) fn wait_noted(
        &mut self,
        tid: Tid,
    ) -> impl Future<Output = Result<Exit, Errno>> + use<'_> {
        self.call(
            move |_| SystemCall::WaitTask(tid),
            |reply, frame| match reply {
                // Apart: a payload that may be there is moved as a whole.
                Reply::Exit if !frame.has_payload() => Ok(Exit::Done),
                _ => exit_beside(reply, frame),
            },
        )
    }

    /// Ends this task with `exit`. Its destructors run. The call does not return.
    pub async fn exit(&mut self, exit: Exit) -> ! {
        let call = self.call(
            carrying(SystemCall::Exit, Payload::Exit(exit)),
            |reply, _| reply,
        );
        mismatch(call.await)
    }

    /// Ends every task, this one included, the youngest first. Then the kernel's `run` returns.
    pub async fn shutdown(&mut self) -> ! {
        mismatch(self.trap(SystemCall::Shutdown).await)
    }

    /// Lists the tasks by tid, zombies included, as `ps` does. Never blocks.
    pub fn tasks(&mut self) -> impl Future<Output = Vec<TaskInfo>> {
        self.call(
            |_| SystemCall::Tasks,
            |reply, frame| match (reply, frame.take()) {
                (Reply::Tasks, Some(Payload::Tasks(tasks))) => tasks,
                (other, _) => mismatch(other),
            },
        )
    }

    /// Returns a random number of 64 bits from the world's seed. It is not for secrets. Never
    /// blocks.
    pub fn random(&mut self) -> impl Future<Output = u64> {
        self.call(
            |_| SystemCall::Random,
            answer!(Reply::Random(number) => number),
        )
    }

    /// Returns one of `0..of`: the world's choice. A plain run draws it from the world's seed, and
    /// leaves the sequence of [`Os::random`] as it is. A search ([`check`](crate::check)) decides it:
    /// an exhaustive one runs every answer. Never blocks.
    ///
    /// *Panics*, and so ends its task, if there is nothing to choose: `of` is 0.
    ///
    /// ```
    /// use trapline::{Os, Shared, check};
    ///
    /// let explored = check(|kernel| {
    ///     let coin = Shared::new(0);
    ///     let tossed = coin.clone();
    ///     kernel.spawn("toss", async move |os: &mut Os| tossed.set(os.choose(2).await))?;
    ///     kernel.run()?;
    ///     kernel.outcome(["heads", "tails"][coin.get()]);
    ///     Ok(())
    /// })
    /// .exhaustive()
    /// .explore();
    /// assert!(explored.outcomes.iter().eq(["heads", "tails"]));
    /// ```
    #[track_caller]
    pub fn choose(&mut self, of: usize) -> impl Future<Output = usize> {
        self.choose_beside(of, None)
    }

    /// Chooses as [`Os::choose`] does. Logs and reports show the text.
    ///
    /// *Panics* as [`Os::choose`].
    #[track_caller]
    pub fn choose_named(&mut self, text: &str, of: usize) -> impl Future<Output = usize> {
        self.choose_beside(of, Some(text.into()))
    }

    #[track_caller]
    fn choose_beside(&mut self, of: usize, text: Option<Rc<str>>) -> impl Future<Output = usize> {
        assert!(
            of > 0,
            "there is nothing to choose: a choice takes one alternative at least"
        );
        self.note_caller();
        self.call(
            move |frame| {
                if let Some(text) = text {
                    frame.put(Payload::Name(text));
                }
                SystemCall::Choose(of as u64)
            },
            answer!(Reply::Random(number) => number as usize),
        )
    }
}

/// Takes an exit that has a text, or the error of a wait.
#[cold]
#[inline(never)]
fn exit_beside(reply: Reply, frame: &TrapFrame) -> Result<Exit, Errno> {
    match (reply, frame.take()) {
        (Reply::Exit, Some(Payload::Exit(exit))) => Ok(exit),
        (Reply::Err(errno), _) => Err(errno),
        (other, _) => mismatch(other),
    }
}
