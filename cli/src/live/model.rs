//! The model of a running kernel: its tasks at an instant, and what it answers about them.
//! It is the same for the screen, the socket, the commands and the debugger.

use std::{
    cell::RefCell,
    iter, mem,
    rc::{Rc, Weak},
    time::Duration,
};

use rustc_hash::{FxHashMap, FxHashSet};
use trapline::{
    CallInfo, Deadlock, End, KernelId, Ledger, On, Os, QueueId, Remote, Reply, SystemCall,
    TaskInfo, TaskState, Tid, record::Handle,
};

use super::{
    entry::{Entry, Line, shown},
    feed,
    protocol::{Answer, Answers, Request},
    row::{Row, Totals},
    sampler::Sampler,
};

/// The longest chain that goes on at a queue, since each such step looks at the calls of all tasks.
const LINKS: usize = 12;

/// The longest time between two snapshots.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// What the daemons of a kernel share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) recent: Rc<RefCell<Ledger>>,
    /// Where the run is recorded, if it is.
    pub(super) recorded: Option<Handle>,
    /// Why no task may be killed, if so.
    pub(super) no_kill: Option<&'static str>,
    /// The kernel's number, if others run beside it.
    pub(super) number: Option<KernelId>,
    pub(super) kernel: Remote,
    pub(super) sampler: Rc<RefCell<Weak<Sampler>>>,
}

impl Shared {
    /// Kills a task.
    ///
    /// *Errors:* a text that says why the task is not killed.
    pub(super) async fn kill(&self, os: &mut Os, tid: Tid) -> Result<(), String> {
        if let Some(why) = self.no_kill {
            return Err(why.into());
        }
        let victim = own(self.number, tid).filter(|victim| !victim.is_daemon());
        let is_killed = match victim {
            Some(victim) => os.kill(victim).await,
            None => false,
        };
        is_killed.then_some(()).ok_or_else(|| missing(tid))
    }

    /// The tasks as they are now.
    pub(super) async fn snapshot(&self, os: &mut Os) -> Snapshot {
        Snapshot {
            now: os.now().await,
            tasks: os.tasks().await,
            recent: Rc::clone(&self.recent),
            kernel: self.number,
        }
    }

    /// A gauge with the sampling thread, which lives while a gauge exists; without, if it cannot be
    /// started.
    pub(super) fn gauge(&self) -> Gauge {
        let start = || Sampler::start(self.kernel.clone()).ok().map(Rc::new);
        let mut shared = self.sampler.borrow_mut();
        let sampler = shared.upgrade().or_else(start);
        *shared = sampler.as_ref().map(Rc::downgrade).unwrap_or_default();
        Gauge {
            sampler,
            before: None,
        }
    }
}

/// The error of a request about a task that does not exist.
pub(super) fn missing(tid: Tid) -> String {
    format!("there is no live task {tid}")
}

/// The number of a task in its kernel, if that is this one.
fn own(kernel: Option<KernelId>, tid: Tid) -> Option<Tid> {
    let is_here = tid.kernel().is_none() || tid.kernel() == kernel;
    is_here.then(|| tid.alone())
}

/// Measures what tasks do from one snapshot to the next.
pub(super) struct Gauge {
    sampler: Option<Rc<Sampler>>,
    /// The instant of the last snapshot, and how many traps each task had made.
    before: Option<(Duration, FxHashMap<Tid, u64>)>,
}

impl Gauge {
    fn measure(&mut self, now: Duration, tasks: &mut [Entry<'_>], totals: &mut Totals) {
        if let Some((then, before)) = &self.before {
            let seconds = now.saturating_sub(*then).as_secs_f64().max(1e-9);
            for entry in &mut *tasks {
                let before = before.get(&entry.task.tid).copied().unwrap_or(0);
                let traps = entry.task.traps.saturating_sub(before);
                entry.rate = Some(traps as f64 / seconds);
            }
            totals.rate = Some(tasks.iter().filter_map(|entry| entry.rate).sum());
        }
        if let Some(shares) = self.sampler.as_ref().and_then(|sampler| sampler.shares()) {
            for entry in &mut *tasks {
                entry.share = Some(shares.of(entry.task.tid));
            }
            totals.idle = Some(shares.of(Tid::KERNEL));
            totals.watching = Some(shares.daemons());
        }
        let traps = tasks.iter().map(|entry| (entry.task.tid, entry.task.traps));
        self.before = Some((now, traps.collect()));
    }
}

/// The tasks of a kernel at an instant.
pub(crate) struct Snapshot {
    pub(crate) now: Duration,
    /// By tid.
    pub(crate) tasks: Vec<TaskInfo>,
    /// The last calls of each task.
    pub(crate) recent: Rc<RefCell<Ledger>>,
    /// The kernel's number, if others run beside it. It is before those of its tasks then.
    pub(crate) kernel: Option<KernelId>,
}

impl Snapshot {
    /// The answers for a request about tasks, and the totals that end them; none for other requests. Each
    /// is made when it is asked for, since there may be many.
    ///
    /// *Errors:* a text that says why there is no answer.
    pub(super) fn answers(
        &mut self,
        request: &Request,
        gauge: Option<&mut Gauge>,
    ) -> Result<(Box<dyn Iterator<Item = Answer> + '_>, Totals), String> {
        let mut totals = Totals::of(&self.tasks, self.now);
        let answers: Box<dyn Iterator<Item = Answer>> = match request {
            Request::Ps(query) | Request::Top(query) => {
                let entries = self.tasks.iter().map(|task| Entry::of(self.kernel, task));
                let mut entries: Vec<Entry<'_>> = entries.collect();
                if let Some(gauge) = gauge {
                    gauge.measure(self.now, &mut entries, &mut totals);
                }
                let lines = query.arrange(entries, &self.recent.borrow(), &mut totals);
                let row = |line: Line<'_>| Answer::Task(line.row(&self.recent.borrow()));
                Box::new(lines.into_iter().map(row))
            }
            Request::Waits {} => {
                let Deadlock {
                    blocked,
                    cycles,
                    tails,
                    ..
                } = Deadlock::among(mem::take(&mut self.tasks));
                let kernel = self.kernel;
                let rows = blocked.into_iter();
                let rows =
                    rows.map(move |task| Answer::Task(row(kernel, &task, &self.recent.borrow())));
                let numbers =
                    move |tids: Vec<Tid>| tids.into_iter().map(|tid| shown(kernel, tid)).collect();
                let cycles = cycles.into_iter().map(move |tids| Answer::Cycle {
                    tids: numbers(tids),
                });
                let tails = tails.into_iter().map(move |tids| Answer::Behind {
                    tids: numbers(tids),
                });
                Box::new(rows.chain(cycles).chain(tails))
            }
            Request::Where { tid } => {
                let own = own(self.kernel, *tid).ok_or_else(|| missing(*tid))?;
                let chain = self.chain(own);
                if chain.is_empty() {
                    return Err(missing(*tid));
                }
                let calls = feed::calls(self.kernel, &self.recent.borrow(), own);
                let calls = calls.into_iter().map(Answer::Trap);
                Box::new(chain.into_iter().map(Answer::Task).chain(calls))
            }
            Request::Kill { .. } | Request::Trace(_) | Request::Dump {} => Box::new(iter::empty()),
        };
        Ok((answers, totals))
    }

    /// The same, at once.
    pub(super) fn measured(
        mut self,
        request: &Request,
        gauge: Option<&mut Gauge>,
    ) -> Result<Answers, String> {
        let (answers, totals) = self.answers(request, gauge)?;
        let mut all = Answers {
            totals,
            ..Answers::default()
        };
        answers.for_each(|answer| all.take(answer));
        Ok(all)
    }

    /// The same without rates and shares.
    pub(crate) fn answer(self, request: &Request) -> Result<Answers, String> {
        self.measured(request, None)
    }

    /// A task and the chain of tasks that it waits for. In a cycle, the last row repeats an earlier
    /// one. Empty if the task does not exist.
    fn chain(&self, tid: Tid) -> Vec<Row> {
        let find = |tid: Tid| self.tasks.binary_search_by_key(&tid, |task| task.tid).ok();
        let recent = self.recent.borrow();
        let mut chain = Vec::new();
        let mut seen = FxHashSet::default();
        let mut next = find(tid);
        while let Some(at) = next {
            let (task, is_first) = (&self.tasks[at], seen.insert(at));
            let (target, link) = match task.waits_for() {
                _ if !is_first => (None, None),
                Some(target) => (Some(target), None),
                None if chain.len() >= LINKS => (None, Some("The chain goes on.".into())),
                None => self.behind(task, &recent),
            };
            let row = row(self.kernel, task, &recent);
            chain.push(Row { link, ..row });
            next = target.and_then(find);
        }
        chain
    }

    /// The task behind a wait at a queue, as far as the last calls of all tasks tell, and a sentence
    /// about it, or about where the chain ends. A message queue has no owner, and the kernel does not
    /// know which task will put a message into it.
    fn behind(&self, task: &TaskInfo, recent: &Ledger) -> (Option<Tid>, Option<String>) {
        let TaskState::Blocked { on, .. } = task.state else {
            return (None, None);
        };
        // The live task that was the last to put a message into a queue, or to get one.
        let last = |queue: QueueId, end: End| {
            let others = self.tasks.iter().filter(|other| other.tid != task.tid);
            let last = |other: &&TaskInfo| {
                let mut calls = recent.calls(other.tid).rev();
                Some(calls.find(|call| moved(call, end) == Some(queue))?.at)
            };
            others
                .filter(|other| last(other).is_some())
                .max_by_key(last)
        };
        let (found, what, deed) = match on {
            On::Queue(..) if task.wait.holder.is_some() => return (None, None),
            On::Device(..) if !task.wait.is_accept => {
                let why = "Only a recording links the ends of a connection: boot with --record FILE, and ask trace why.";
                return (None, Some(why.to_string()));
            }
            On::Queue(queue, End::Put) => {
                let what = "The last to get a message from it".to_string();
                (last(queue, End::Get), what, "got a message from it")
            }
            On::Queue(queue, End::Get) => {
                let mut own = recent.calls(task.tid).rev();
                let (found, what) = if let Some(putter) = last(queue, End::Put) {
                    (
                        Some(putter),
                        "The last to put a message into it".to_string(),
                    )
                } else if let Some(asked) = own.find_map(|call| moved(call, End::Put)) {
                    let what = format!(
                        "No task has put a message into it lately. This task has put one into queue {asked}. \
                         The last to get one from there"
                    );
                    (last(asked, End::Get), what)
                } else {
                    (None, String::new())
                };
                (found, what, "put a message into it")
            }
            _ => return (None, None),
        };
        let link = match found {
            Some(found) => {
                let tid = shown(self.kernel, found.tid);
                format!("{what} was {tid} {:?}.", found.name)
            }
            None => format!("No task has {deed} in its last calls."),
        };
        (found.map(|task| task.tid), Some(link))
    }
}

fn row(kernel: Option<KernelId>, task: &TaskInfo, recent: &Ledger) -> Row {
    Line::of(Entry::of(kernel, task)).row(recent)
}

/// The queue into which a call has put a message, or from which it has gotten one.
fn moved(call: &CallInfo, end: End) -> Option<QueueId> {
    match (end, call.call, call.reply()?.0) {
        (End::Put, SystemCall::Put(queue) | SystemCall::TryPut(queue), Reply::Done)
        | (End::Get, SystemCall::Get(queue) | SystemCall::TryGet(queue), Reply::Message(_))
        | (End::Get, SystemCall::Take(queue) | SystemCall::TryTake(queue), Reply::Permits(_)) => {
            Some(queue)
        }
        _ => None,
    }
}

/// How long to wait after listing so many tasks: about forty times the time of the listing. A few
/// tasks have a minimum, since each answer takes time.
pub(super) fn pause(tasks: usize) -> Duration {
    Duration::from_micros(4 * tasks as u64).clamp(Duration::from_millis(1), LONGEST)
}
