//! The calls of the host, apart from those that run the kernel.

use std::{
    io,
    panic::{Location, PanicHookInfo},
    time::Duration,
};

use super::{Kernel, task::OnExit};
use crate::{
    abi::{DeviceId, Errno, HostId, Limits, Place, QueueInfo, Share, Tid},
    interrupt::{External, Remote},
    log::{Log, Tracer},
    panic::note_origin,
    sched::Runnable,
    trap::Start,
    user::{
        os::Os,
        program::{self, IntoExit},
    },
    world::{self, Request},
};

impl Kernel {
    /// Starts a program as a task of the host, and returns its number. The [`Report`](crate::Report)
    /// contains its exit.
    ///
    /// *Errors:* [`Errno::TooManyTasks`] at the limit of live tasks.
    #[track_caller]
    pub fn spawn<T: IntoExit>(
        &mut self,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> Result<Tid, Errno> {
        self.spawn_from(Some(Location::caller()), None, None, name, program)
    }

    /// Starts a program as [`Kernel::spawn`] does, with limits, which its descendants share.
    ///
    /// *Errors:* as [`Kernel::spawn`]; [`Errno::TooManyTasks`] if the limits have no room for one task.
    ///
    /// ```
    /// use trapline::{Calls, Exit, Kernel, Limits, Os};
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// let limits = Limits::new().deny([Calls::WORLD]);
    /// let dice = kernel.spawn_with(limits, "dice", async |os: &mut Os| {
    ///     os.random().await;
    /// })?;
    /// let why = "random is denied: the limits of the task lack random, of Calls::WORLD";
    /// assert_eq!(kernel.run()?.exits()[&dice], Exit::Faulted(why.into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn spawn_with<T: IntoExit>(
        &mut self,
        limits: Limits,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> Result<Tid, Errno> {
        self.spawn_from(Some(Location::caller()), None, Some(limits), name, program)
    }

    /// Starts a program as a task of the host that boots this kernel, as [`Kernel::spawn`] does, on
    /// a machine of the simulated network. The machine is made if there is none of that name.
    ///
    /// *Errors:* [`Errno::NoSuchHost`] if the name cannot be that of a host; in the real world, of
    /// any other than `localhost`. [`Errno::HostDown`] if the host has crashed. Otherwise as
    /// [`Kernel::spawn`].
    ///
    /// Logs and lists show the task as `name@host`.
    ///
    /// ```
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// kernel.spawn_on("server", "main", async |os: &mut Os| {
    ///     let host = os.host().await;
    ///     writeln!(os, "I run on {host}");
    /// })?;
    /// kernel.run()?;
    /// assert_eq!(kernel.take_console(), "I run on server\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn spawn_on<T: IntoExit>(
        &mut self,
        host: impl AsRef<str>,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> Result<Tid, Errno> {
        self.spawn_from(
            Some(Location::caller()),
            Some(host.as_ref()),
            None,
            name,
            program,
        )
    }

    /// Starts a program as [`Kernel::spawn`] does, [`Kernel::spawn_on`] if a machine is given, and
    /// [`Kernel::spawn_with`] if limits are, for a host that starts programs for others. Reports show this place in the source as that of the
    /// spawn, or none.
    ///
    /// *Errors:* as [`Kernel::spawn_on`].
    pub fn spawn_from<T: IntoExit>(
        &mut self,
        place: Option<&'static Location<'static>>,
        host: Option<&str>,
        limits: Option<Limits>,
        name: impl AsRef<str>,
        program: impl AsyncFnOnce(&mut Os) -> T + 'static,
    ) -> Result<Tid, Errno> {
        self.log.observe_by_tracing();
        let host = host.map_or(Ok(HostId::LOCAL), |host| self.host_named(host))?;
        self.frame.set_place_of_spawn(place);
        let birth = self.birth_on(host, self.frame.birth(name.as_ref()));
        let program = program::program(&self.frame, program);
        let program = self.confine(Runnable::HOST, limits.map(Box::new), program)?;
        let task = self.admit(birth, program, None, OnExit::Report, false, Start::First);
        self.confined(task);
        let task = task?;
        self.tasks[task].host = host;
        self.log.leave_span();
        Ok(task.tid)
    }

    /// Lists the message queues, in order of their numbers.
    ///
    /// ```
    /// use trapline::{Kernel, Os, Queue};
    ///
    /// let mut kernel = Kernel::simulated(0);
    /// kernel.spawn("writer", async |os: &mut Os| {
    ///     let letters = Queue::bounded(os, 4).await;
    ///     let _ = letters.put(os, "a letter").await;
    ///     os.yield_now().await;
    ///     letters.close(os).await;
    /// })?;
    /// for _ in 0..2 {
    ///     kernel.step()?;
    /// }
    /// let queues: Vec<_> = kernel.queues().collect();
    /// assert_eq!((queues[0].len, queues[0].capacity), (1, Some(4)));
    /// # Ok::<(), trapline::Error>(())
    /// ```
    pub fn queues(&self) -> impl Iterator<Item = QueueInfo> {
        self.queues.infos().into_iter()
    }

    /// Sets a share of a task: its tickets, its nice value or its priority. Tasks that it spawns
    /// from then on inherit it.
    ///
    /// *Errors:* [`Errno::NoSuchTask`] if no live task has this number.
    ///
    /// ```
    /// use trapline::{Errno, Kernel, Os, Share};
    ///
    /// let mut kernel = Kernel::simulated(0);
    /// let tid = kernel.spawn("batch", async |os: &mut Os| os.yield_now().await)?;
    /// kernel.set_share(tid, Share::nice(10))?;
    /// assert_eq!(kernel.set_share(7.into(), Share::nice(10)), Err(Errno::NoSuchTask));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_share(&mut self, tid: Tid, share: Share) -> Result<(), Errno> {
        let task = self.tasks.find_live(tid).ok_or(Errno::NoSuchTask)?;
        self.shares.set(task, share);
        self.policy_learns(task);
        Ok(())
    }

    /// Returns the names of [`Builder::share`](crate::Builder::share) that no task has had so far,
    /// in the order of the calls.
    ///
    /// ```
    /// use trapline::{Kernel, Os, Share};
    ///
    /// let builder = Kernel::builder().share("batch", Share::nice(10));
    /// let mut kernel = builder.share("bach", Share::tickets(5)).build()?;
    /// kernel.spawn("batch", async |os: &mut Os| os.yield_now().await)?;
    /// assert!(kernel.unused_shares().eq(["bach"]));
    /// # Ok::<(), trapline::Error>(())
    /// ```
    pub fn unused_shares(&self) -> impl Iterator<Item = &str> {
        self.shares.unused()
    }

    /// Returns the place in the source of a task's last call, or of its spawn if it has made none;
    /// `None` for a task that has ended, and for a call that notes no caller, such as `yield_now`.
    /// It is exact for a blocked task. For others the kernel needs a tracer and an
    /// [injection](crate::Builder::inject): without these, a call that is answered at once may have the
    /// place of an earlier one.
    pub fn place_of_call(&self, task: Tid) -> Option<Place> {
        let task = self.tasks.find_live(task)?;
        self.tasks[task].last_call().map(Place::from)
    }

    /// Returns the time since boot.
    pub fn now(&mut self) -> Duration {
        self.world.now_for_log()
    }

    /// Returns the seed of the world's random numbers.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.world.seed()
    }

    /// Takes the text that tasks have printed. It is kept in the simulated world, and after
    /// [`Builder::capture_console`](crate::Builder::capture_console). Otherwise it went to standard
    /// output, and this returns nothing.
    pub fn take_console(&mut self) -> String {
        match &mut self.captured {
            Some(captured) => captured.take(),
            None => self.world.take_console(),
        }
    }

    /// Has this text be the standard input of the tasks from now on, in every world: see
    /// [`Builder::input`](crate::Builder::input). A task that reads meanwhile gets
    /// [`Errno::Closed`].
    ///
    /// *Errors:* `Unsupported` in a world of another kind that has no input.
    ///
    /// ```
    /// use trapline::{Error, Kernel, Os, check};
    ///
    /// check(|kernel: &mut Kernel| -> Result<(), Error> {
    ///     kernel.input("yes\n")?;
    ///     kernel.spawn("main", async |os: &mut Os| {
    ///         assert_eq!(os.read_line().await.unwrap().as_deref(), Some("yes"));
    ///     })?;
    ///     kernel.run()?.check()
    /// })
    /// .run();
    /// ```
    pub fn input(&mut self, text: impl AsRef<[u8]>) -> io::Result<()> {
        if let Some(device) = self.devices.input() {
            self.close_device(device);
        }
        let fed = self.world.io(DeviceId::NONE, Request::Feed(text.as_ref()));
        self.frame.unread.borrow_mut().remove(DeviceId::NONE);
        fed.and_then(world::Answer::done)
    }

    /// Returns whether any task has made a [`RemoteSetter`](crate::RemoteSetter) since boot, or has taken
    /// from a [`Mailbox`](crate::Mailbox). Then another thread may decide what happens, which no seed and
    /// no policy can repeat.
    #[must_use]
    pub fn counts_on_threads(&self) -> bool {
        self.remote.started(External::Setter) + self.remote.started(External::Mail) > 0
    }

    /// Runs this with a log of its own, which has this tracer alone.
    #[doc(hidden)]
    pub fn with_tracer<T>(
        &mut self,
        tracer: impl Tracer + 'static,
        run: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let mut log = Log::default();
        log.add(Box::new(tracer));
        std::mem::swap(&mut self.log, &mut log);
        let ran = run(self);
        self.log = log;
        ran
    }

    /// Returns a handle through which other threads and signal handlers interrupt this kernel.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// Returns the line of [`Kernel::remote`].
    pub(crate) fn own_remote(&self) -> &Remote {
        &self.remote
    }

    /// Notes the place of a panic, for a panic hook that does not call the one before it. Then reports
    /// have the places of faults.
    #[doc(hidden)]
    pub fn note_panic(panic: &PanicHookInfo<'_>) {
        note_origin(panic);
    }
}
