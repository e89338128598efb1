//! The disk of the real world: operations on a few threads, in order for each file.
//!
//! An operation has a lane: that of its file, whichever device of it the operation is on, or the one of
//! all names. The operations of a lane are done one after the other, those of several lanes at once. The
//! kernel's thread only begins operations and takes results. While an operation is under way it looks
//! for the result before it sleeps, and a thread looks for the next operation before it leaves.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Result},
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Waker,
    time::{Duration, Instant},
};

use super::{
    files::{Done, OpenFile, Root},
    look::{LONG_LOOK, LOOK, News, look},
    pool::Pool,
};
use crate::{
    abi::{DeviceId, Direction, Tid},
    panic::{contain, lock},
    trap::{DiskOp, FileOp, disk::put_names},
    world::{Answer, DeviceMap, Happening, io::no_disk},
};

/// How many operations are done at once. Each has up to three descriptors for directories.
const MAX_THREADS: usize = 8;

pub(super) struct Disk {
    root: Option<Arc<Root>>,
    /// How to get a root, in the error of a disk that has none.
    advice: &'static str,
    files: DeviceMap<Arc<OpenFile>>,
    shared: Arc<Shared>,
    /// The number of the last operation.
    last: u64,
    /// How many operations are begun, and not handed on.
    awaited: usize,
    /// When the last one was begun.
    begun_at: Instant,
    /// Whether it is worth to look longer: so the last operation has shown that took longer.
    looks_long: bool,
}

struct Shared {
    work: Mutex<Work>,
    /// Of operations that are over.
    news: News,
    /// Whether there is an operation for the thread that looks for one.
    has_next: AtomicBool,
    /// The last lane has no operation under way.
    is_quiet: Condvar,
}

#[derive(Default)]
struct Work {
    /// A lane is here while it has an operation, which may be under way.
    lanes: BTreeMap<Lane, VecDeque<Operation>>,
    /// The lanes that have an operation and none under way, in turn.
    next: VecDeque<Lane>,
    threads: usize,
    /// Whether one of the threads has nothing to do and looks for the next operation.
    is_looking: bool,
    /// What was begun on each device, until the kernel takes its result.
    begun: BTreeMap<DeviceId, Begun>,
    over: Vec<DeviceId>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Names,
    /// The numbers of a file system, and of a file on it.
    File(u64, u64),
}

struct Operation {
    number: u64,
    device: DeviceId,
    what: What,
}

enum What {
    Names(Arc<Root>, DiskOp),
    File(Arc<OpenFile>, FileOp),
}

struct Begun {
    number: u64,
    lane: Lane,
    result: Option<Result<Done>>,
}

impl Disk {
    /// A disk without a root. `waker` ends a wait of the kernel.
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            root: None,
            advice: "give it one by Builder::disk(dir)",
            files: DeviceMap::default(),
            shared: Arc::new(Shared {
                work: Mutex::default(),
                news: News::new(waker),
                has_next: AtomicBool::new(false),
                is_quiet: Condvar::new(),
            }),
            last: 0,
            awaited: 0,
            begun_at: Instant::now(),
            looks_long: false,
        }
    }

    pub(super) fn set_root(&mut self, dir: &Path) -> Result<()> {
        self.root = Some(Arc::new(Root::open(dir)?));
        Ok(())
    }

    pub(super) fn advise(&mut self, advice: &'static str) {
        self.advice = advice;
    }

    pub(super) fn begin_on_names(
        &mut self,
        pool: &Pool,
        device: DeviceId,
        op: DiskOp,
    ) -> Result<Answer> {
        let Some(root) = &self.root else {
            return no_disk(self.advice);
        };
        // A host may ask the world itself, with a name that no kernel has checked.
        let what = What::Names(Arc::clone(root), op.checked()?);
        Ok(self.begin(pool, device, Lane::Names, what))
    }

    pub(super) fn begin_on_file(
        &mut self,
        pool: &Pool,
        device: DeviceId,
        op: FileOp,
    ) -> Result<Answer> {
        let file = self.files.get(&device).ok_or(io::ErrorKind::NotFound)?;
        op.check(file.mode)?;
        let (lane, file) = (Lane::File(file.system, file.number), Arc::clone(file));
        Ok(self.begin(pool, device, lane, What::File(file, op)))
    }

    fn begin(&mut self, pool: &Pool, device: DeviceId, lane: Lane, what: What) -> Answer {
        self.last += 1;
        let operation = Operation {
            number: self.last,
            device,
            what,
        };
        let mut work = lock(&self.shared.work);
        let given_up = work.give_up(device);
        work.push(lane, operation);
        let looking = usize::from(work.is_looking);
        let needs_thread = work.next.len() > looking && work.threads < MAX_THREADS;
        work.threads += usize::from(needs_thread);
        self.shared.has_next.store(!work.next.is_empty(), Relaxed);
        drop(work);
        self.awaited += 1;
        self.begun_at = Instant::now();
        self.forget(given_up);
        if needs_thread {
            let shared = Arc::clone(&self.shared);
            pool.submit(Tid::KERNEL, Box::new(move || shared.serve()));
        }
        Answer::Done
    }

    pub(super) fn finish(&mut self, device: DeviceId, into: &mut Vec<u8>) -> Result<Answer> {
        let mut work = lock(&self.shared.work);
        let begun = work.begun.get_mut(&device).ok_or(io::ErrorKind::NotFound)?;
        let result = begun.result.take().ok_or(io::ErrorKind::WouldBlock)?;
        work.begun.remove(&device);
        drop(work);
        Ok(match result? {
            Done::Opened(file) => {
                self.files.insert(device, Arc::new(file));
                Answer::Done
            }
            Done::Listed(names) => {
                put_names(names, into);
                Answer::Done
            }
            Done::Read(bytes) => {
                *into = bytes;
                Answer::Bytes(into.len())
            }
            Done::Number(n) => Answer::Bytes(n),
            Done::Nothing => Answer::Done,
        })
    }

    /// Closes a file, once no operation on it is under way, or ends the device of an operation on names.
    pub(super) fn close(&mut self, device: DeviceId) {
        if self.last == 0 {
            return;
        }
        let file = self.files.remove(&device);
        let given_up = lock(&self.shared.work).give_up(device);
        self.forget(given_up);
        drop(file);
    }

    /// Without the lock: this may close a file.
    fn forget(&mut self, given_up: Option<(Begun, Option<Operation>)>) {
        // With a result, the kernel was told of it, or will be.
        let is_awaited = given_up.is_some_and(|(begun, _)| begun.result.is_none());
        self.awaited -= usize::from(is_awaited);
    }

    /// Whether the kernel is to be told of an operation that is begun. Reads one word.
    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// For how long the kernel looks before it sleeps. Counted from the begin of an operation, so that
    /// one that takes long costs one look, and not one for each wait meanwhile.
    pub(super) fn time_to_look(&self) -> Duration {
        let time = if self.looks_long { LONG_LOOK } else { LOOK };
        time.saturating_sub(self.begun_at.elapsed())
    }

    pub(super) fn news(&self) -> &News {
        &self.shared.news
    }

    /// Reports the devices whose operations are over. Returns whether there was one. Otherwise it reads
    /// one word.
    #[inline]
    pub(super) fn hand_on(&mut self, happened: &mut Vec<Happening>) -> bool {
        let is_over = self.shared.news.is_told();
        if is_over {
            self.shared.news.take();
            let took = self.begun_at.elapsed();
            if took > LOOK {
                self.looks_long = took <= LONG_LOOK;
            }
            let over = std::mem::take(&mut lock(&self.shared.work).over);
            self.awaited -= over.len();
            let over = over.into_iter();
            happened.extend(over.map(|device| Happening::Ready(device, Direction::Read)));
        }
        is_over
    }
}

/// What is under way ends first, and the rest is not done: the next disk in this directory comes after
/// this one.
impl Drop for Disk {
    fn drop(&mut self) {
        if self.last == 0 {
            return;
        }
        let mut work = lock(&self.shared.work);
        let given_up = work.give_up_all();
        let is_busy = |work: &mut Work| !work.lanes.is_empty();
        let quiet = self.shared.is_quiet.wait_while(work, is_busy);
        drop(quiet.unwrap_or_else(PoisonError::into_inner));
        drop(given_up);
    }
}

impl Shared {
    /// The work of a thread: one operation after the other, while there is one.
    fn serve(&self) {
        loop {
            let mut work = lock(&self.work);
            let mut next = work.take();
            if next.is_none() && !work.is_looking {
                work = self.look(work);
                next = work.take();
            }
            let Some((lane, operation)) = next else {
                work.threads -= 1;
                return;
            };
            drop(work);
            self.perform(lane, operation);
        }
    }

    /// Looks for the next operation for a while, without the lock. What has come meanwhile is there
    /// afterwards, whether it was seen or not.
    fn look<'a>(&'a self, mut work: MutexGuard<'a, Work>) -> MutexGuard<'a, Work> {
        work.is_looking = true;
        self.has_next.store(false, Relaxed);
        drop(work);
        look(|| self.has_next.load(Relaxed));
        let mut work = lock(&self.work);
        work.is_looking = false;
        work
    }

    fn perform(&self, lane: Lane, operation: Operation) {
        let Operation {
            number,
            device,
            what,
        } = operation;
        let mut result = Some(Err(io::Error::other("the operation panicked")));
        contain(|| {
            result = Some(match what {
                What::Names(root, op) => root.perform(op),
                What::File(file, op) => file.perform(op),
            });
        });
        let mut work = lock(&self.work);
        work.leave(lane);
        if work.lanes.is_empty() {
            self.is_quiet.notify_all();
        }
        if let Some(begun) = work.begun.get_mut(&device)
            && begun.number == number
        {
            begun.result = result.take();
            work.over.push(device);
            drop(work);
            self.news.tell();
        } else {
            // Without the lock: to drop a result that no task takes may close a file.
            drop(work);
            drop(result);
        }
    }
}

impl Work {
    fn push(&mut self, lane: Lane, operation: Operation) {
        let begun = Begun {
            number: operation.number,
            lane,
            result: None,
        };
        self.begun.insert(operation.device, begun);
        let queue = self.lanes.entry(lane).or_insert_with(|| {
            self.next.push_back(lane);
            VecDeque::new()
        });
        queue.push_back(operation);
    }

    /// Takes the next operation. Its lane waits until [`Work::leave`].
    fn take(&mut self) -> Option<(Lane, Operation)> {
        while let Some(lane) = self.next.pop_front() {
            match self.lanes.get_mut(&lane).and_then(VecDeque::pop_front) {
                Some(operation) => return Some((lane, operation)),
                // Its operations were given up.
                None => drop(self.lanes.remove(&lane)),
            }
        }
        None
    }

    /// An operation of this lane is over.
    fn leave(&mut self, lane: Lane) {
        match self.lanes.get(&lane) {
            Some(queue) if !queue.is_empty() => self.next.push_back(lane),
            _ => drop(self.lanes.remove(&lane)),
        }
    }

    /// Forgets all that is not under way. Afterwards a lane is there only while an operation of it is
    /// under way. The caller drops what this returns without the lock.
    fn give_up_all(&mut self) -> Vec<Operation> {
        let waiting = self.next.drain(..).filter_map(|at| self.lanes.remove(&at));
        let mut given_up: Vec<_> = waiting.flatten().collect();
        given_up.extend(self.lanes.values_mut().flat_map(std::mem::take));
        given_up
    }

    /// Forgets what was begun on a device: its task was killed or cut. An operation that is not under way
    /// is not done at all, so what tasks give up takes no memory and no descriptor. The caller drops what
    /// this returns without the lock, since that may close a file.
    fn give_up(&mut self, device: DeviceId) -> Option<(Begun, Option<Operation>)> {
        let begun = self.begun.remove(&device)?;
        let queue = self.lanes.get_mut(&begun.lane);
        let operation = queue.and_then(|queue| {
            let place = queue
                .iter()
                .position(|waiting| waiting.number == begun.number);
            queue.remove(place?)
        });
        Some((begun, operation))
    }
}
