//! What is known of the schedules under way, and the thread that ends the process when a search is
//! over and a task does not come to a trap, or the test itself does not go on: no other thread can.

use std::{
    cell::Cell,
    fmt::{Display, Write as _},
    io::{self, Write as _},
    mem, process,
    rc::Rc,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use super::deadline::Deadline;
use crate::{CurrentTurn, Kernel, panic::lock};

const EVERY: Duration = Duration::from_millis(100);

/// A turn that lasts so many looks has a task that does not come to a trap.
const LOOKS: u32 = 3;

/// The time after the end of a search in which its schedules end by themselves. With the time between
/// two looks it is the second that [`Check::time`](crate::Check::time) promises.
const GRACE: Duration = Duration::from_millis(900);

/// The looks after which a warning names a turn that goes on.
const LONG: u32 = 50;

/// The schedules that are under way, on all threads of a search. Clones are handles to the same.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay(Arc<Everything>);

#[derive(Debug, Default)]
struct Everything {
    runs: Mutex<Vec<Weak<TrialRun>>>,
    is_over: AtomicBool,
    /// The failure that the search has found, and of which there is no report yet.
    failure: Mutex<String>,
}

/// A schedule that is under way on one thread, or the next there.
#[derive(Debug, Default)]
struct TrialRun {
    all: UnderWay,
    /// Odd while a schedule runs.
    begins_and_ends: AtomicU64,
    seed: AtomicU64,
    /// The decisions of the schedule, as the text of a replay.
    decisions: Mutex<String>,
    /// The turn, if the kernel publishes it.
    turn: Mutex<Option<CurrentTurn>>,
}

impl UnderWay {
    fn add(&self) -> Arc<TrialRun> {
        let run = Arc::new(TrialRun {
            all: self.clone(),
            ..TrialRun::default()
        });
        let mut runs = lock(&self.0.runs);
        runs.retain(|run| run.strong_count() > 0);
        runs.push(Arc::downgrade(&run));
        run
    }

    /// Notes the failure that the search has found, before it is explained.
    pub(super) fn set_failure(&self, why: &str, replay: &str, command: &str) {
        let again = again(command, replay);
        *lock(&self.0.failure) = format!("error: a schedule fails: {why}\n{again}\n");
    }
}

impl TrialRun {
    /// Returns the turn that is under way, if a schedule is: the numbers of both.
    fn progress(&self) -> Option<(u64, u64)> {
        let runs = self.begins_and_ends.load(Ordering::Relaxed);
        let turn = lock(&self.turn).as_ref().map(CurrentTurn::number)?;
        (runs % 2 == 1).then_some((runs, turn))
    }

    /// Names the task that has the turn, and how to see the schedule again.
    fn describe(&self, command: &str) -> String {
        let turn = lock(&self.turn).clone();
        let text = match turn.and_then(|turn| turn.task()) {
            None => "no task has a turn: the test itself does not go on".to_string(),
            Some(task) => {
                let since = match (task.call, task.place) {
                    (Some(call), Some(place)) => {
                        format!("since, or is still in, its call {call}, at or after {place}")
                    }
                    (Some(call), None) => format!("since, or is still in, its call {call}"),
                    (None, Some(place)) => format!("in its first turn, spawned at {place}"),
                    (None, None) => "in its first turn".to_string(),
                };
                format!("task {} {:?} makes no trap {since}", task.tid, task.name)
            }
        };
        let seed = self.seed.load(Ordering::Relaxed);
        let decisions = lock(&self.decisions).clone();
        // No hash: it is of a schedule that has ended.
        let replay = format!("{seed}.{decisions}.00000000");
        format!("{text}\n{}", again(command, &replay))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CutAt {
    Turn,
    /// In a wait that only other threads can end.
    Wait,
}

/// The schedules of a thread on one kernel: what the watchdog knows of them, and the end of their
/// time, which cuts the one under way. Clones are handles to the same watch.
#[derive(Clone, Debug, Default)]
pub(super) struct TrialWatch {
    deadline: Deadline,
    cut: Rc<Cell<Option<CutAt>>>,
    run: Arc<TrialRun>,
    publishes: bool,
}

impl TrialWatch {
    /// Returns the watch over schedules of a thread. Without a deadline none is cut.
    pub(super) fn new(deadline: Deadline, all: &UnderWay, publishes: bool) -> Self {
        Self {
            deadline,
            run: all.add(),
            publishes,
            ..Self::default()
        }
    }

    /// Returns the same for schedules on another kernel.
    pub(super) fn beside(&self) -> Self {
        Self {
            run: self.run.all.add(),
            ..self.clone()
        }
    }

    pub(super) fn is_set(&self) -> bool {
        self.deadline.is_set()
    }

    /// Whether a schedule was cut. Its result is none.
    pub(super) fn has_cut(&self) -> bool {
        self.cut.get().is_some()
    }

    pub(super) fn waits(&self) -> bool {
        self.cut.get() == Some(CutAt::Wait)
    }

    pub(super) fn within(&self) -> Option<&'static str> {
        Some(match self.cut.get()? {
            CutAt::Turn => "within a schedule",
            CutAt::Wait => "within a schedule that waits for another thread (Setter::remote)",
        })
    }

    /// Whether the watchdog has seen the end of the search.
    #[inline]
    pub(super) fn is_ended(&self) -> bool {
        self.run.all.0.is_over.load(Ordering::Relaxed)
    }

    /// Returns whether the time is over, which cuts the schedule here.
    pub(super) fn is_over(&self, here: CutAt) -> bool {
        let is_over = self.deadline.is_over();
        if is_over {
            self.cut.set(Some(here));
        }
        is_over
    }

    /// Notes the decisions of the schedules from now on, as a replay has them.
    pub(super) fn decide(&self, decisions: &impl Display) {
        if self.publishes {
            *lock(&self.run.decisions) = decisions.to_string();
        }
    }

    pub(super) fn decide_also(&self, decision: &impl Display) {
        if self.publishes {
            let mut decisions = lock(&self.run.decisions);
            let dash = if decisions.is_empty() { "" } else { "-" };
            let _ = write!(decisions, "{dash}{decision}");
        }
    }

    pub(super) fn seed(&self, seed: u64) {
        self.run.seed.store(seed, Ordering::Relaxed);
    }

    pub(super) fn begin(&self, kernel: &mut Kernel) {
        if self.publishes {
            let turn = kernel.current_turn();
            let mut known = lock(&self.run.turn);
            if known.as_ref().is_none_or(|known| !known.is_same(turn)) {
                *known = Some(turn.clone());
            }
        }
        self.begin_or_end();
    }

    /// Notes that a schedule begins, or ends. One thread does.
    pub(super) fn begin_or_end(&self) {
        let count = &self.run.begins_and_ends;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// The thread. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Watchdog {
    _thread: Option<Sender<()>>,
}

impl Watchdog {
    /// Starts it, if the search has an end. `command` runs a schedule again.
    pub(super) fn start(
        all: &UnderWay,
        deadline: Deadline,
        time: Option<Duration>,
        command: String,
    ) -> Self {
        let (sender, dropped) = mpsc::channel();
        let mut looks = Looks {
            all: all.clone(),
            deadline,
            time,
            command,
            grace: None,
            seen: Vec::new(),
        };
        let thread = thread::Builder::new().name("watchdog".into());
        // A search without a thread for it goes on unwatched.
        let is_watched = deadline.is_set() && thread.spawn(move || looks.go_on(&dropped)).is_ok();
        Self {
            _thread: is_watched.then_some(sender),
        }
    }
}

struct Looks {
    all: UnderWay,
    deadline: Deadline,
    time: Option<Duration>,
    command: String,
    /// The end of the grace, once the search is over.
    grace: Option<Deadline>,
    seen: Vec<Seen>,
}

struct Seen {
    run: Arc<TrialRun>,
    progress: Option<(u64, u64)>,
    /// The looks before it that have seen the same.
    looks: u32,
}

impl Looks {
    fn go_on(&mut self, dropped: &Receiver<()>) {
        while dropped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            if self.grace.is_none() && self.deadline.is_over() {
                self.grace = Some(self.deadline.later(GRACE));
                self.all.0.is_over.store(true, Ordering::Relaxed);
            }
            self.look();
        }
    }

    /// Ends the process, in the manner of a search that has found a failure.
    fn end(&self, run: &TrialRun) -> ! {
        let why = match self.time {
            Some(time) if !self.deadline.is_stopped() => format!("the time of {time:?} is over"),
            _ => "the search was interrupted".to_string(),
        };
        let found = lock(&self.all.0.failure).clone();
        let turn = run.describe(&self.command);
        tell(&format!("{found}error: {why}, and {turn}"));
        process::exit(1)
    }

    fn look(&mut self) {
        let before = mem::take(&mut self.seen);
        let runs: Vec<_> = lock(&self.all.0.runs)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for run in runs {
            let progress = run.progress();
            let is_same = |seen: &&Seen| {
                progress.is_some() && seen.progress == progress && Arc::ptr_eq(&seen.run, &run)
            };
            let looks = before.iter().find(is_same).map_or(0, |seen| seen.looks + 1);
            if looks >= LOOKS && self.grace.is_some_and(Deadline::is_over) {
                self.end(&run);
            }
            if looks == LONG {
                let (span, turn) = (EVERY * LONG, run.describe(&self.command));
                tell(&format!("warning: for {span:?}, {turn}"));
            }
            self.seen.push(Seen {
                run,
                progress,
                looks,
            });
        }
    }
}

fn again(command: &str, replay: &str) -> String {
    let command = command.replacen("{replay}", replay, 1);
    format!("to see it again:  {command}")
}

/// Writes past the test harness, which shows no output of a test that goes on.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
