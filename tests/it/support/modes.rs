//! Every way to run a kernel: with `run`, `step` or in slices, with a tracer or without, with the
//! built-in ready queue or the same order as a policy, with daemons beside or alone. What programs
//! do must not depend on any of it.
//!
//! [`in_every_mode`] runs one population of a kernel in each. The helpers of the scripted programs
//! take the mode from the environment instead, so that whole topics run again in a child process.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    env, fmt,
    hash::{DefaultHasher, Hasher},
    io::Write,
    rc::Rc,
    sync::OnceLock,
    thread,
    time::Duration,
};

use proptest::prelude::*;
use trapline::{Builder, Error, Event, Exit, Fifo, Kernel, Limit, Os, Queue, Report, Step};

use super::Diary;

/// How the host drives a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drive {
    Run,
    /// A resume at a time.
    Step,
    /// So many ticks at a time.
    Slices(u64),
}

/// A way to run a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mode {
    pub(crate) drive: Drive,
    pub(crate) traced: bool,
    /// Whether first in, first out comes as a policy.
    pub(crate) policy: bool,
    pub(crate) daemons: bool,
}

impl Mode {
    /// The mode that others are compared with.
    const PLAIN: Self = Self {
        drive: Drive::Run,
        traced: true,
        policy: false,
        daemons: false,
    };

    /// Every combination.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let drives = [Drive::Run, Drive::Step, Drive::Slices(1), Drive::Slices(7)];
        (0..drives.len() * 8).map(move |n| Self {
            drive: drives[n / 8],
            traced: n & 1 == 0,
            policy: n & 2 != 0,
            daemons: n & 4 != 0,
        })
    }

    /// A few in which any two settings of any two kinds occur together.
    pub(crate) fn pairs() -> [Self; 6] {
        let mode = |drive, traced, policy, daemons| Self {
            drive,
            traced,
            policy,
            daemons,
        };
        [
            mode(Drive::Run, false, false, false),
            mode(Drive::Run, true, true, true),
            mode(Drive::Step, false, true, true),
            mode(Drive::Step, true, false, false),
            mode(Drive::Slices(7), false, false, true),
            mode(Drive::Slices(7), true, true, false),
        ]
    }

    /// Any of them.
    pub(crate) fn any() -> impl Strategy<Value = Self> {
        prop::sample::select(Self::all().collect::<Vec<_>>())
    }

    /// The mode of this process, if it is to run scripted programs in one.
    fn of_process() -> Option<Self> {
        static MODE: OnceLock<Option<Mode>> = OnceLock::new();
        *MODE.get_or_init(|| {
            let name = env::var(MODE_VARIABLE).ok()?;
            let mode = Self::pairs()
                .into_iter()
                .find(|mode| mode.to_string() == name);
            Some(mode.expect("a mode's name"))
        })
    }

    /// Sets what is to be set before the kernel boots, slices apart.
    pub(crate) fn configure(
        self,
        builder: Builder,
        tracer: impl Fn(&Event<'_>) + 'static,
    ) -> Builder {
        let builder = if self.traced {
            builder.tracer(tracer)
        } else {
            builder
        };
        if self.policy {
            builder.policy(Fifo::default())
        } else {
            builder
        }
    }

    /// Has a run end after a slice, where the mode has slices.
    pub(crate) fn slice(self, builder: Builder) -> Builder {
        match self.drive {
            Drive::Slices(ticks) => builder.max_ticks(ticks),
            Drive::Run | Drive::Step => builder,
        }
    }

    /// Goes on by a run, a step or a slice. Answers whether no task is left.
    pub(crate) fn advance(self, kernel: &mut Kernel) -> Result<bool, Error> {
        match self.drive {
            Drive::Run => kernel.run().map(|_| true),
            Drive::Step => Ok(kernel.step()? == Step::Finished),
            Drive::Slices(slice) => match kernel.run() {
                Err(Error::Limit(Limit::Ticks(ticks), _)) if ticks == slice => Ok(false),
                ended => ended.map(|_| true),
            },
        }
    }

    /// Drives a kernel until no task is left or it fails.
    fn drive(self, kernel: &mut Kernel) -> Result<Report, Error> {
        while !self.advance(kernel)? {}
        kernel.run()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.drive {
            Drive::Run => f.write_str("run")?,
            Drive::Step => f.write_str("step")?,
            Drive::Slices(ticks) => write!(f, "slices of {ticks}")?,
        }
        f.write_str(if self.traced {
            ", traced"
        } else {
            ", not traced"
        })?;
        f.write_str(if self.policy {
            ", policy(Fifo)"
        } else {
            ", built-in"
        })?;
        f.write_str(if self.daemons {
            ", with daemons"
        } else {
            ", alone"
        })
    }
}

/// Starts daemons of every kind: each makes other traps. Their naps get longer and longer, so that
/// a year of virtual time is a few dozen of them.
pub(crate) fn spawn_daemons(kernel: &mut Kernel) {
    kernel.spawn_daemon("sleeper", async |os: &mut Os| {
        for nap in naps() {
            os.sleep(nap).await;
        }
    });
    kernel.spawn_daemon("parent", async |os: &mut Os| {
        for nap in naps() {
            let child = os.spawn("child of a daemon", async |os: &mut Os| {
                os.yield_now().await;
            });
            let child = child.await.expect("daemons are under no limit");
            assert_eq!(os.wait(child).await, Ok(Exit::Done));
            os.sleep(nap).await;
        }
    });
    kernel.spawn_daemon("gambler", async |os: &mut Os| {
        for nap in naps() {
            os.random().await;
            os.tasks().await;
            os.sleep(nap).await;
        }
    });
    kernel.spawn_daemon("postman", async |os: &mut Os| {
        for nap in naps() {
            let queue = Queue::bounded(os, 1).await;
            queue.put(os, ()).await.expect("it is open");
            let put = os.timeout(nap, async |os| queue.put(os, ()).await);
            put.await.expect_err("there is no room");
        }
    });
    kernel.spawn_daemon("observer", async |os: &mut Os| {
        for nap in naps() {
            let _observer = os.observe(|_: &Event<'_>| ());
            os.sleep(nap).await;
        }
    });
    kernel.spawn_daemon("spinner", async |os: &mut Os| {
        for nap in naps() {
            super::passes(os, 10).await;
            os.sleep(nap).await;
        }
    });
}

/// From a nanosecond on, each as long as all before it.
fn naps() -> impl Iterator<Item = Duration> {
    (0..64).map(|power| Duration::from_nanos(1 << power))
}

/// What can be told of a run from outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    /// The error that it ended with; empty if there was none.
    pub(crate) error: String,
    pub(crate) console: String,
    /// What the tasks have noted.
    pub(crate) seen: Vec<String>,
    /// Ticks, traps, peak, failures and elapsed time, and every exit.
    pub(crate) report: String,
    /// The whole log, if there was a tracer.
    pub(crate) log: Option<Vec<String>>,
}

/// Runs a population of a simulated kernel in one mode. A deadlock is followed by a shutdown.
/// `populate` answers what tells, afterwards, what its tasks have seen.
fn in_mode<S: Fn() -> Vec<String>>(
    mode: Mode,
    builder: Builder,
    populate: impl Fn(&mut Kernel) -> S,
) -> Outcome {
    let log = Diary::default();
    let lines = log.clone();
    let tracer = move |event: &Event<'_>| lines.note(event.to_string());
    let builder = mode.slice(mode.configure(builder, tracer));
    let mut kernel = builder.build().expect("a kernel boots");
    if mode.daemons {
        spawn_daemons(&mut kernel);
    }
    let seen = populate(&mut kernel);
    let first = mode.drive(&mut kernel);
    let error = first
        .as_ref()
        .err()
        .map(ToString::to_string)
        .unwrap_or_default();
    let report = first.or_else(|_| {
        kernel.remote().shutdown();
        mode.drive(&mut kernel)
    });
    kernel.audit();
    Outcome {
        error,
        console: kernel.take_console(),
        seen: seen(),
        report: summary(&report.expect("a shutdown ends well")),
        log: mode.traced.then(|| log.lines()),
    }
}

/// Runs a population in every mode, and answers the first difference, in words.
pub(crate) fn in_every_mode<S: Fn() -> Vec<String>>(
    builder: impl Fn() -> Builder,
    populate: impl Fn(&mut Kernel) -> S,
) -> Result<Outcome, String> {
    let plain = in_mode(Mode::PLAIN, builder(), &populate);
    for mode in Mode::all() {
        let outcome = in_mode(mode, builder(), &populate);
        difference(&plain, &outcome).map_or(Ok(()), |what| Err(format!("{mode}: {what}")))?;
    }
    Ok(plain)
}

fn difference(plain: &Outcome, other: &Outcome) -> Option<String> {
    let log = |outcome: &Outcome| outcome.log.clone().unwrap_or_default();
    if other.log.is_some() && plain.log != other.log {
        return Some(first_difference("log", &log(plain), &log(other)));
    }
    if plain.seen != other.seen {
        return Some(first_difference("what tasks saw", &plain.seen, &other.seen));
    }
    let texts = [
        ("error", &plain.error, &other.error),
        ("console", &plain.console, &other.console),
        ("report", &plain.report, &other.report),
    ];
    let different = texts.into_iter().find(|(_, plain, other)| plain != other)?;
    let (name, plain, other) = different;
    Some(format!("{name}\n  expected {plain:?}\n  found {other:?}"))
}

/// The first line in which two texts differ, with what comes before it.
fn first_difference(name: &str, plain: &[String], other: &[String]) -> String {
    let same = plain.iter().zip(other).take_while(|(a, b)| a == b).count();
    let before = plain[same.saturating_sub(6)..same].join("\n    ");
    let line = |lines: &[String]| lines.get(same).map_or("the end", |line| line).to_string();
    format!(
        "{name}, line {}\n    {before}\n  expected {}\n  found {}",
        same + 1,
        line(plain),
        line(other)
    )
}

/// A report in words: whatever does not depend on how the kernel was driven.
fn summary(report: &Report) -> String {
    let Report {
        ticks,
        traps,
        elapsed,
        peak_tasks,
        failures,
        ..
    } = report;
    format!(
        "{ticks} ticks, {traps} traps, {elapsed:?}, at most {peak_tasks} tasks, {failures} failures, {:?}",
        report.exits()
    )
}

// ---- scripted programs

/// Names the mode in which a process is to run its scripted programs.
pub(crate) const MODE_VARIABLE: &str = "TRAPLINE_TEST_MODE";

/// What begins a line about a scripted program, on standard error.
pub(crate) const FINDING: &str = "in its mode: ";

/// What is known of the scripted programs of a test.
#[derive(Default)]
struct Journal {
    /// How many findings of each name were told.
    told: BTreeMap<&'static str, usize>,
    /// A hash of the log of the kernel that was built last.
    log: Rc<RefCell<DefaultHasher>>,
}

thread_local! {
    static JOURNAL: RefCell<Journal> = RefCell::default();
}

/// Whether this process runs its scripted programs in a mode.
pub(crate) fn in_a_mode() -> bool {
    Mode::of_process().is_some()
}

/// How many of something a test takes, of `plain` when its process has no mode. In a mode a tenth is
/// enough: each slice of a few ticks lists the tasks that are left, and the daemons run beside each
/// kernel.
pub(crate) fn tenth_in_a_mode(plain: usize) -> usize {
    if in_a_mode() {
        plain.div_ceil(10)
    } else {
        plain
    }
}

/// The settings of a scripted program in the mode of this process, slices apart.
pub(crate) fn scripted(builder: Builder) -> Builder {
    let Some(mode) = Mode::of_process() else {
        return builder;
    };
    let log = Rc::<RefCell<DefaultHasher>>::default();
    JOURNAL.with_borrow_mut(|journal| journal.log = Rc::clone(&log));
    mode.configure(builder, move |event: &Event<'_>| {
        log.borrow_mut().write(event.to_string().as_bytes());
    })
}

/// The same, for a kernel that is only driven by [`run_scripted`].
pub(crate) fn scripted_in_slices(builder: Builder) -> Builder {
    let builder = scripted(builder);
    match Mode::of_process() {
        Some(mode) => mode.slice(builder),
        None => builder,
    }
}

/// Runs a kernel in the mode of this process; `None` if it has none.
pub(crate) fn run_scripted(kernel: &mut Kernel) -> Option<Result<Report, Error>> {
    let mode = Mode::of_process()?;
    if mode.daemons {
        spawn_daemons(kernel);
    }
    let ended = mode.drive(kernel);
    match &ended {
        Ok(report) => tell("report", &summary(report)),
        Err(error) => tell("error", &error.to_string()),
    }
    if mode.traced {
        let log = JOURNAL.with_borrow(|journal| journal.log.borrow().finish());
        tell("log", &format!("{log:x}"));
    }
    Some(ended)
}

/// Tells the parent of this process what came of a scripted program, if it wants to know.
pub(crate) fn tell(name: &'static str, what: &str) {
    if in_a_mode() {
        let number = JOURNAL.with_borrow_mut(|journal| {
            let told = journal.told.entry(name).or_default();
            *told += 1;
            *told
        });
        let thread = thread::current();
        let test = thread.name().unwrap_or("a test");
        let line = format!("{FINDING}{test}, {name} {number} = {what:?}\n");
        let told = std::io::stderr().write_all(line.as_bytes());
        told.expect("the parent reads");
    }
}
