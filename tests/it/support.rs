//! What every topic uses: kernels that keep their event log, and programs with their transcript.

use std::{
    cell::{Cell, RefCell},
    future::{pending, poll_fn},
    path::PathBuf,
    pin::Pin,
    process::{Command, Output},
    rc::Rc,
    task::Poll,
    time::Duration,
};

mod modes;

pub(crate) use modes::*;
use trapline::{
    Builder, Cause, Error, Event, Exit, IntoExit, Kernel, Os, Policy, Report, Runnable, Shared,
    SimWorld, SystemCall, Tid,
};

/// The folder of the repository.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Lines that several tasks, destructors or tracers write to and a test reads.
#[derive(Clone, Default)]
pub(crate) struct Diary(Rc<RefCell<Vec<String>>>);

impl Diary {
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.0.borrow_mut().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// All of it, in one line.
    pub(crate) fn text(&self) -> String {
        self.lines().join(", ")
    }

    /// Something that notes `line` when it is dropped.
    pub(crate) fn on_drop(&self, line: &'static str) -> OnDrop {
        OnDrop(self.clone(), line)
    }
}

pub(crate) struct OnDrop(Diary, &'static str);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.note(self.1);
    }
}

/// A destructor that panics.
pub(crate) struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("the destructor panics");
    }
}

/// The youngest task first, always.
#[derive(Default)]
pub(crate) struct Youngest(Vec<Runnable>);

impl Policy for Youngest {
    fn push(&mut self, task: Runnable, _: Cause) {
        self.0.push(task);
        self.0.sort_by_key(|task| task.tid);
    }
    fn pop(&mut self) -> Option<Runnable> {
        self.0.pop()
    }
    fn remove(&mut self, task: Runnable) {
        self.0.retain(|other| *other != task);
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// A file of a test's own, that goes with it.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("{test}-{}.scratch", std::process::id());
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).expect("it was written")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A report without its lines of places in the source.
pub(crate) fn unplaced(report: &str) -> String {
    let lines: Vec<&str> = report
        .lines()
        .filter(|line| !line.starts_with("    "))
        .collect();
    lines.join("\n")
}

/// A builder of simulated kernels. The limit is for programs that fail while others spin.
pub(crate) fn sim() -> Builder {
    scripted(unscripted())
}

/// The same, whatever the mode of this process is.
pub(crate) fn unscripted() -> Builder {
    Kernel::builder()
        .world(SimWorld::new(1))
        .max_ticks(1_000_000)
}

/// A kernel whose event log the diary keeps, a line per fact.
pub(crate) fn logged(builder: Builder) -> (Kernel, Diary) {
    let diary = Diary::default();
    let lines = diary.clone();
    let tracer = move |event: &Event<'_>| lines.note(event.to_string());
    let kernel = builder.tracer(tracer).build().expect("a kernel boots");
    (kernel, diary)
}

/// Runs a program in the simulated world, where it must end well, and answers what was printed.
pub(crate) fn console<T: IntoExit>(program: impl AsyncFnOnce(&mut Os) -> T + 'static) -> String {
    let builder = scripted_in_slices(unscripted());
    let mut kernel = builder.build().expect("a kernel boots");
    run_main(&mut kernel, program);
    let console = kernel.take_console();
    tell("console", &console);
    console
}

/// Runs a program in the real world, where it must end well. The limit is for programs that fail
/// while others wait for a device.
pub(crate) fn real<T: IntoExit>(program: impl AsyncFnOnce(&mut Os) -> T + 'static) -> Report {
    let builder = Kernel::builder().max_time(Duration::from_secs(30));
    run_main(&mut builder.build().expect("a kernel boots"), program)
}

/// Runs a program as a task of that kernel; it must end well, and so must the run.
pub(crate) fn run_main<T: IntoExit>(
    kernel: &mut Kernel,
    program: impl AsyncFnOnce(&mut Os) -> T + 'static,
) -> Report {
    let main = kernel.spawn("main", program).expect("there is room");
    let ended = run_scripted(kernel).unwrap_or_else(|| kernel.run());
    let report = ended.expect("the run ends well");
    kernel.audit();
    assert_eq!(report.exits()[&main], Exit::Done, "how main ended");
    report
}

/// The part of a log that is about one task, without times and tid.
pub(crate) fn about(log: &Diary, tid: u64) -> Vec<String> {
    let tid = format!(" {tid} ");
    let fact = |line: &String| Some(line.split_once(&tid)?.1.to_string());
    log.lines()
        .iter()
        .filter(|line| {
            line.split_once(' ')
                .is_some_and(|(_, rest)| rest.starts_with(tid.trim_start()))
        })
        .filter_map(fact)
        .collect()
}

pub(crate) fn tid(number: u64) -> Tid {
    Tid::from(number)
}

/// A program that lives until somebody ends it, and uses no timer and no device.
pub(crate) async fn spin(os: &mut Os) {
    loop {
        os.yield_now().await;
    }
}

/// Lets so many passes go by.
pub(crate) async fn passes(os: &mut Os, n: usize) {
    for _ in 0..n {
        os.yield_now().await;
    }
}

/// Never ready, and no trap.
pub(crate) async fn foreign() {
    pending::<()>().await;
}

/// Makes a trap and loses interest in its answer: drops the future once it was polled, and goes
/// on in the same turn.
pub(crate) fn abandon<F: Future>(future: F) {
    let mut future = Box::pin(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
}

/// The same, but goes on only when the kernel has answered.
pub(crate) async fn ignore_answer<F: Future>(future: F) {
    let mut future: Option<Pin<Box<F>>> = Some(Box::pin(future));
    poll_fn(move |context| match future.take() {
        Some(mut future) => future.as_mut().poll(context).map(drop),
        None => Poll::Ready(()),
    })
    .await;
}

/// Makes a trap, and drops the future when the kernel has answered, without taking the answer.
pub(crate) async fn leave_answer<F: Future>(future: F) {
    leave_answer_before(future, || ()).await;
}

/// The same; in between, with the answer there, it does something else.
pub(crate) async fn leave_answer_before<F: Future>(future: F, meanwhile: impl FnOnce()) {
    let mut future = Box::pin(future);
    let mut polled = false;
    poll_fn(|context| match std::mem::replace(&mut polled, true) {
        false => future.as_mut().poll(context).map(drop),
        true => Poll::Ready(()),
    })
    .await;
    meanwhile();
}

/// A raw trap's reply as text.
pub(crate) async fn raw(os: &mut Os, call: SystemCall) -> String {
    format!("{:?}", os.trap(call).await)
}

/// How much CPU time this thread takes to do something.
pub(crate) fn cpu(work: impl FnOnce()) -> Duration {
    let clock = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let before = clock();
    work();
    clock() - before
}

/// Runs `inside` in a process of its own, since what it changes belongs to the whole process: the
/// test of that name runs again, as a child of this one. Answers what the child printed.
pub(crate) fn in_own_process(
    test: &str,
    command: impl FnOnce(&mut Command),
    inside: fn(),
) -> String {
    let Some(output) = end_of_own_process(test, command, inside) else {
        return String::new();
    };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{stdout}\n{stderr}",
        output.status
    );
    assert!(
        stdout.contains("1 passed"),
        "no test is called {test}:\n{stdout}"
    );
    stdout
}

/// The same, without more to say of the process.
pub(crate) fn alone(test: &str, inside: fn()) -> String {
    in_own_process(test, |_| {}, inside)
}

/// The same for a process that may not end well. Answers its end; nothing in the child. Its panics have
/// no backtraces, whatever the environment says: they take most of the time of tests that panic often.
pub(crate) fn end_of_own_process(
    test: &str,
    command: impl FnOnce(&mut Command),
    inside: fn(),
) -> Option<Output> {
    const MARK: &str = "TRAPLINE_TEST_INSIDE";
    if std::env::var(MARK).is_ok_and(|inner| inner == test) {
        inside();
        return None;
    }
    let mut child = Command::new(std::env::current_exe().expect("a test binary has a path"));
    child
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(MARK, test)
        .env("RUST_BACKTRACE", "0");
    command(&mut child);
    Some(child.output().expect("a test binary can be run"))
}

/// A number that tasks share: one that a search sees, or not.
pub(crate) trait Number: Clone + Default + 'static {
    fn read(&self) -> u32;
    fn write(&self, value: u32);
}

impl Number for Shared<u32> {
    fn read(&self) -> u32 {
        self.get()
    }

    fn write(&self, value: u32) {
        self.set(value);
    }
}

impl Number for Rc<Cell<u32>> {
    fn read(&self) -> u32 {
        self.get()
    }

    fn write(&self, value: u32) {
        self.set(value);
    }
}

/// Two tasks that read a number, trap and write it: an increment may be lost. The outcome is the sum,
/// which is returned.
pub(crate) fn two_counters<N: Number>(kernel: &mut Kernel) -> Result<u32, Error> {
    let sum = N::default();
    for name in ["left", "right"] {
        let sum = sum.clone();
        kernel.spawn(name, async move |os: &mut Os| {
            let read = sum.read();
            os.yield_now().await;
            sum.write(read + 1);
        })?;
    }
    kernel.run()?;
    kernel.outcome(sum.read().to_string());
    Ok(sum.read())
}
