//! What the tests of queues, promises, timeouts and of what stands on them share.

use std::{
    cell::{Cell, RefCell},
    fmt::Display,
    io,
    rc::Rc,
    time::Duration,
};

use trapline::{
    Exit, Happening, IntoExit, Kernel, Os, Report, SimWorld, Step, World, forward_world,
};

use crate::support::{run_scripted, scripted_in_slices, tell, unscripted};

/// Runs a kernel to its end, step by step, with an audit after each.
pub(crate) fn finish(kernel: &mut Kernel) -> Report {
    if let Some(ended) = run_scripted(kernel) {
        return ended.expect("nothing goes wrong");
    }
    while kernel.step().expect("nothing goes wrong") != Step::Finished {
        kernel.audit();
    }
    kernel.audit();
    kernel.run().expect("nobody is left")
}

/// Runs one program in the simulated world and answers what was printed. It must end well.
pub(crate) fn printed<T: IntoExit>(program: impl AsyncFnOnce(&mut Os) -> T + 'static) -> String {
    let builder = scripted_in_slices(unscripted());
    let mut kernel = builder.build().expect("a kernel boots");
    let tid = kernel.spawn("main", program).expect("there is room");
    let report = finish(&mut kernel);
    assert_eq!(report.exits()[&tid], Exit::Done);
    let console = kernel.take_console();
    tell("console", &console);
    console
}

/// Runs one program in the simulated world; what is wrong shows as its panic.
pub(crate) fn boot<T: IntoExit>(program: impl AsyncFnOnce(&mut Os) -> T + 'static) {
    printed(program);
}

/// The same, for a program that notes what happens. Answers its notes.
pub(crate) fn noting<T: IntoExit>(
    program: impl AsyncFnOnce(&mut Os, Notes) -> T + 'static,
) -> Notes {
    let notes = Notes::default();
    let theirs = notes.clone();
    boot(async move |os| program(os, theirs).await);
    notes
}

/// Keeps the ready queue moving for so many ticks, in which the clock stands still and timers that
/// are due fire at the kernel's looks at the world.
pub(crate) async fn spin(os: &mut Os, ticks: usize) {
    for _ in 0..ticks {
        os.yield_now().await;
    }
}

/// More ticks than pass between two looks at the world.
pub(crate) const A_LOOK: usize = 300;

/// Yields until the others have nothing left to do at this instant.
pub(crate) async fn settle(os: &mut Os) {
    spin(os, 8).await;
}

/// A list of what happened, shared by the tasks of a test.
#[derive(Clone, Default)]
pub(crate) struct Notes(Rc<RefCell<Vec<String>>>);

impl Notes {
    pub(crate) fn note(&self, what: impl Display) {
        self.0.borrow_mut().push(format!("{what}"));
    }

    pub(crate) fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

/// Notes when it is dropped.
pub(crate) struct Dropped(pub(crate) Notes, pub(crate) &'static str);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.note(self.1);
    }
}

/// A place where tasks and the host leave things for each other without a trap.
pub(crate) struct Place<T>(Rc<RefCell<Option<T>>>);

impl<T> Place<T> {
    pub(crate) fn put(&self, thing: T) {
        *self.0.borrow_mut() = Some(thing);
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.0.borrow_mut().take()
    }
}

impl<T> Default for Place<T> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

/// The simulated world with a clock that the test moves while a task runs, as the real one does.
pub(crate) struct Moving {
    sim: SimWorld,
    passed: Rc<Cell<Duration>>,
}

impl Moving {
    /// The world, and by how much its clock was moved.
    pub(crate) fn new() -> (Self, Rc<Cell<Duration>>) {
        let passed = Rc::<Cell<Duration>>::default();
        let world = Self {
            sim: SimWorld::new(0),
            passed: Rc::clone(&passed),
        };
        (world, passed)
    }
}

impl World for Moving {
    forward_world!(sim: random, reseed, seed, print, take_console, remote);

    fn now(&mut self) -> Duration {
        self.sim.now() + self.passed.get()
    }
    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        let deadline = deadline.map(|deadline| deadline.saturating_sub(self.passed.get()));
        self.sim.wait(deadline, happened)
    }
}
