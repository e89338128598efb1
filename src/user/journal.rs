//! A file of entries that no crash loses: [`Journal`].
//!
//! The file begins with a mark. The entries that wait are written together, as a block: its length, a
//! checksum of that and of the entries, and the entries. A crash damages only what is behind the last
//! sync: one block with [`Durability::Always`]. Otherwise these may be several, and a loss of power may
//! keep a later one without an earlier one, as if a byte had become wrong.
//!
//! Another file may take the file's name, so the lock is on a file of its own: `NAME.lock`.

use std::{
    cell::{RefCell, RefMut},
    fmt, io, mem,
    ops::Range,
    rc::{Rc, Weak},
    time::Duration,
};

use super::{
    blocks::{PIECE, Unread, checksum, framed, has_block},
    disk::File,
    os::Os,
    select::Source,
    sync::{Flag, Watch},
};
use crate::{abi::Mode, trap::Object};

/// The longest end of a file that is searched for whole blocks. A longer one is kept.
const TAIL: u64 = 64 << 20;
/// The most bytes that wait while [`Journal::commit`] returns at once, if it waits for no sync.
const ROOM: u64 = 16 << 20;
/// The least length of a file that is replaced because it has grown to twice its length.
const GROWN: u64 = 1 << 20;
/// How long entries gather for one block, unless their tasks wait for a sync.
const GATHERING: Duration = Duration::from_millis(10);
/// How many times, and after which pause, an open tries again while the journal is open elsewhere: the
/// program that has it may be about to end.
const RETRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// When the entries of a [`Journal`] become durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Durability {
    /// Before [`Journal::commit`] returns.
    Always,
    /// At most so long after they were written.
    Every(Duration),
    /// When the operating system writes them to the disk.
    Never,
}

/// A file of entries that no crash loses. Any task adds entries, and one task writes them. (The
/// append-only file of redis.) Clones are handles to the same journal.
///
/// An entry is bytes that say all about a part of the program's state. Entries are added without a trap,
/// and those that wait are written, and synced, together: one sync is for the entries of many tasks. After
/// a crash, entries that were added in one turn of a task are in the file together or not at all.
///
/// When the file has grown to twice its length, the journal makes a new one beside it, `NAME.new`, from a
/// walk over the state, and meanwhile writes new entries to both. So an entry may be replayed behind a later
/// state of its part. The entries that led to that state follow it.
///
/// An empty file, `NAME.lock`, is locked while the journal is open. It stays when the journal is closed.
///
/// ```
/// use std::{cell::Cell, io, rc::Rc};
/// use trapline::{Durability, Journal, Kernel, Os};
///
/// let mut kernel = Kernel::simulated(1);
/// kernel.spawn("main", async |os: &mut Os| {
///     for life in 1..=3 {
///         // The state is a number, and each entry is the number as a byte.
///         let number = Rc::new(Cell::new(0));
///         let replay = |entries: &[u8]| {
///             number.set(entries[entries.len() - 1]);
///             Ok(())
///         };
///         let journal = Journal::open(os, "number", Durability::Always, replay).await?;
///         let (ours, theirs) = (journal.clone(), Rc::clone(&number));
///         let write = async move |os: &mut Os| {
///             let all = || {
///                 |entries: &mut Vec<u8>| {
///                     entries.push(theirs.get());
///                     false // there is no more
///                 }
///             };
///             ours.work(os, all).await
///         };
///         let writer = os.spawn("writer", write).await?;
///
///         number.set(number.get() + 1);
///         journal.add(|entries| entries.push(number.get()));
///         journal.commit(os).await?; // from now on, no crash loses it
///         assert_eq!(number.get(), life);
///         journal.close(os).await;
///         os.wait(writer).await?;
///     }
///     io::Result::Ok(())
/// })?;
/// kernel.run()?.check()?;
/// # Ok::<(), trapline::Error>(())
/// ```
#[derive(Clone)]
pub struct Journal(Rc<Inner>);

struct Inner {
    name: String,
    durability: Durability,
    state: RefCell<State>,
    /// How many bytes of entries are in the file, and durable with [`Durability::Always`].
    written: Watch<u64>,
    /// Set when the writer has something to do.
    nudge: Flag,
    closed: Flag,
    /// While it is open, no other open of the journal succeeds.
    _lock: File,
}

#[derive(Default)]
struct State {
    /// The entries that wait.
    waiting: Vec<u8>,
    /// The bytes of all entries so far.
    added: u64,
    is_rewrite_asked: bool,
    error: Option<String>,
    /// For the next writer. `None` if it is not known what of the file is on the disk.
    file: Option<Blocks>,
    /// The life of the writer.
    writer: Weak<()>,
}

impl Journal {
    /// Opens a journal; its file is made if there is none. No other open of it succeeds until the last
    /// handle is dropped. `replay` gets the entries of each block, in their order, up to the first block that
    /// is not whole. What is behind is cut, with a warning. All that was replayed is durable when this
    /// returns.
    ///
    /// If there are whole blocks in what is cut, it is appended to `NAME.cut` first, and the warning names
    /// that file, which is yours to remove. A wrong byte has that effect, and without
    /// [`Durability::Always`] a loss of power: it may keep a block and lose one before it.
    ///
    /// *Blocks* as [`Disk::open`](crate::Disk::open); up to a second longer while the journal is open
    /// elsewhere.
    ///
    /// *Errors:* those of the disk, and of `replay`; `ResourceBusy` if another process or task has the
    /// journal open; `InvalidData` if the file is no journal. The file is as it was then.
    pub async fn open(
        os: &mut Os,
        name: &str,
        durability: Durability,
        mut replay: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        let lock = lock(os, name).await?;
        let file = Blocks::recover(os, name, &mut replay).await?;
        let state = State {
            file: Some(file),
            ..State::default()
        };
        Ok(Self(Rc::new(Inner {
            name: name.into(),
            durability,
            state: state.into(),
            written: Watch::new(os, 0).await,
            nudge: Flag::new(os).await,
            closed: Flag::new(os).await,
            _lock: lock,
        })))
    }

    /// Adds an entry: `write` appends its bytes. It makes no trap: [`Journal::commit`] has it written.
    ///
    /// *Panics* if `write` uses the same journal.
    pub fn add(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state(true);
        let before = state.waiting.len();
        write(&mut state.waiting);
        state.added += state.waiting.len().saturating_sub(before) as u64;
    }

    /// Returns how many bytes of entries wait to be written.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state(false).waiting.len()
    }

    /// Returns why the last entries may not be in the file. [`Journal::commit`] fails with it until the
    /// file is whole again.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        self.state(false).error.clone()
    }

    /// Has the journal make a new file, as if it had grown. It makes no trap: the next [`Journal::commit`]
    /// has it begin.
    pub fn rewrite(&self) {
        self.state(true).is_rewrite_asked = true;
    }

    /// Has the entries so far written, and waits until they are durable. Without
    /// [`Durability::Always`] it waits only while more than 16 MiB of entries wait.
    ///
    /// *Blocks* until then.
    ///
    /// *Errors:* [`Journal::error`], if the entries may not be in the file.
    pub async fn commit(&self, os: &mut Os) -> io::Result<()> {
        let Inner { written, nudge, .. } = &*self.0;
        let (added, has_work) = {
            let state = self.state(false);
            let has_work = !state.waiting.is_empty() || state.is_rewrite_asked;
            (state.added, has_work)
        };
        if has_work && !nudge.is_set() {
            nudge.set(os).await;
        }
        let needed = match self.0.durability {
            Durability::Always => added,
            Durability::Every(_) | Durability::Never => added.saturating_sub(ROOM),
        };
        if written.get() >= needed {
            return Ok(());
        }
        // A handle of its own: each one has seen other values.
        let written = written.clone();
        while written.get() < needed {
            if let Some(error) = self.error() {
                return Err(io::Error::other(error));
            }
            written.changed(os).await;
        }
        Ok(())
    }

    /// Ends the writer when it has written, and synced, all entries. Never blocks.
    pub async fn close(&self, os: &mut Os) {
        self.0.closed.set(os).await;
    }

    /// Writes what the tasks add, up to [`Journal::close`]. For a new file `walk` begins a walk over the
    /// state of the program: each call of what it returns appends the next entries, and returns whether
    /// there are more. Between pieces of 256 KiB other tasks go on.
    ///
    /// *Blocks* until the journal is closed.
    ///
    /// *Errors:* those of the disk. A [`Supervisor`](crate::Supervisor) that calls this again makes a new
    /// file then, since it is not known what the old one has. Behind a close there is nothing to repeat:
    /// this returns, and [`Journal::error`] has the error. `ResourceBusy` if another task is in this call.
    pub async fn work<W: FnMut(&mut Vec<u8>) -> bool>(
        &self,
        os: &mut Os,
        walk: impl FnMut() -> W,
    ) -> io::Result<()> {
        let alive = Rc::new(());
        let file = {
            let mut state = self.state(true);
            if state.writer.strong_count() > 0 {
                let why = format!("another task writes the journal {}", self.0.name);
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
            state.writer = Rc::downgrade(&alive);
            state.file.take()
        };
        let mut writer = Writer {
            journal: self,
            walk,
            file,
            next: None,
            unsynced: None,
        };
        let Err(error) = writer.run(os).await else {
            return Ok(());
        };
        tracing::warn!("{error}; the journal {} is not whole", self.0.name);
        self.state(true).error = Some(error.to_string());
        // The tasks that wait look again.
        self.0.written.set(os, self.0.written.get()).await;
        match self.0.closed.is_set() {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// Borrows the state, and notes that for a search.
    fn state(&self, writes: bool) -> RefMut<'_, State> {
        let gate = self.0.nudge.gate();
        gate.frame().touch(Object::Beside(gate.id()), writes);
        self.0.state.borrow_mut()
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Journal({:?}, {:?})", self.0.name, self.0.durability)
    }
}

/// The task that writes.
struct Writer<'a, F, W> {
    journal: &'a Journal,
    walk: F,
    file: Option<Blocks>,
    next: Option<Next<W>>,
    /// When the first block was written that is not synced.
    unsynced: Option<Duration>,
}

/// A new file, with the walk whose entries are written to it.
struct Next<W> {
    file: Option<Blocks>,
    walk: W,
    has_all: bool,
}

impl<W: FnMut(&mut Vec<u8>) -> bool, F: FnMut() -> W> Writer<'_, F, W> {
    async fn run(&mut self, os: &mut Os) -> io::Result<()> {
        let Inner {
            written, closed, ..
        } = &*self.journal.0;
        loop {
            let is_last = closed.is_set();
            if !is_last && self.next.is_none() && self.file.is_some() {
                self.wait(os).await;
            }
            let (added, block, piece) = self.turn();
            self.append(os, &block, is_last).await?;
            if let Some(piece) = piece {
                self.copy(os, &[block, piece].concat()).await?;
            }
            if self.file.is_some() {
                self.journal.state(true).error = None;
                if written.get() != added {
                    written.set(os, added).await;
                }
                if is_last {
                    return Ok(());
                }
            }
        }
    }

    /// Waits for entries, for a sync that is due, or for the end.
    async fn wait(&self, os: &mut Os) {
        let Inner { nudge, closed, .. } = &*self.journal.0;
        let due = match (self.unsynced, self.journal.0.durability) {
            (Some(since), Durability::Every(span)) => since.saturating_add(span),
            _ => Duration::MAX,
        };
        let sources = [Source::flag(closed), Source::flag(nudge), Source::at(due)];
        if os.select(&sources).await == 1 {
            nudge.clear(os).await;
            if self.journal.0.durability != Durability::Always {
                os.sleep(GATHERING).await;
            }
        }
    }

    /// Takes the entries that wait, and a piece of the walk for a new file. All are of one instant.
    fn turn(&mut self) -> (u64, Vec<u8>, Option<Vec<u8>>) {
        let mut state = self.journal.state(true);
        let block = mem::take(&mut state.waiting);
        let is_asked = mem::take(&mut state.is_rewrite_asked);
        let added = state.added;
        drop(state);
        if is_asked || self.file.as_ref().is_none_or(Blocks::has_grown) {
            self.next.get_or_insert_with(|| Next {
                file: None,
                walk: (self.walk)(),
                has_all: false,
            });
        }
        let piece = self.next.as_mut().map(|next| {
            let mut piece = Vec::new();
            while piece.len() < PIECE && !next.has_all {
                next.has_all = !(next.walk)(&mut piece);
            }
            piece
        });
        (added, block, piece)
    }

    /// Appends a block, and syncs what is due.
    async fn append(&mut self, os: &mut Os, block: &[u8], is_last: bool) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let now = os.now().await;
        if !block.is_empty() {
            file.append(os, block).await?;
            self.unsynced.get_or_insert(now);
        }
        let is_due = |since: Duration| match self.journal.0.durability {
            Durability::Always => true,
            Durability::Every(span) => is_last || since.saturating_add(span) <= now,
            Durability::Never => is_last,
        };
        if self.unsynced.is_some_and(is_due) {
            file.file.sync(os).await?;
            self.unsynced = None;
        }
        Ok(())
    }

    /// Writes a block to the new file, which takes the place of the old one when it has all.
    async fn copy(&mut self, os: &mut Os, block: &[u8]) -> io::Result<()> {
        let Some(next) = &mut self.next else {
            return Ok(());
        };
        let name = &self.journal.0.name;
        let new = format!("{name}.new");
        let copied = next.append(os, &new, block).await;
        if let (Err(error), Some(file)) = (&copied, &mut self.file) {
            // The old one may have room for what comes, if this one has none.
            tracing::warn!("cannot make the journal {name} shorter: {error}");
            self.next = None;
            file.base = file.len;
            return os.disk().remove(os, &new).await;
        }
        copied?;
        if next.has_all {
            os.disk().rename(os, &new, name).await?;
            os.disk().sync_dir(os, parent(name)).await?;
            self.file = self.next.take().and_then(|next| next.file);
            self.unsynced = None;
        }
        Ok(())
    }
}

impl<W> Next<W> {
    /// Appends a block, and syncs the last one.
    async fn append(&mut self, os: &mut Os, name: &str, block: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(Blocks::create(os, name).await?),
        };
        file.append(os, block).await?;
        file.base = file.len;
        if self.has_all {
            file.file.sync(os).await?;
        }
        Ok(())
    }
}

/// A file of blocks.
struct Blocks {
    file: File,
    len: u64,
    /// Its length when it was new.
    base: u64,
}

/// How a journal begins. It is durable before the first block is written.
const MARK: &[u8; 8] = b"journal\n";

/// The length of what is before the entries of a block: their length, and the checksum.
const HEAD: usize = 12;

impl Blocks {
    async fn create(os: &mut Os, name: &str) -> io::Result<Self> {
        let file = os.disk().open(os, name, Mode::Write).await?;
        // A crash may have left one.
        file.truncate(os, 0).await?;
        file.append(os, MARK).await?;
        let len = MARK.len() as u64;
        Ok(Self {
            file,
            len,
            base: len,
        })
    }

    /// Replays the blocks of a file, and cuts what is behind them.
    async fn recover(
        os: &mut Os,
        name: &str,
        replay: &mut impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Self> {
        let file = os.disk().open(os, name, Mode::Write).await?;
        let mut mark = [0; MARK.len()];
        let read = file.read_at(os, &mut mark, 0).await?;
        let mark = &mark[..read];
        // Or a crash has come amid its first open.
        let is_new =
            mark.iter().all(|byte| *byte == 0) || read < MARK.len() && MARK.starts_with(mark);
        if is_new {
            file.truncate(os, 0).await?;
            file.append(os, MARK).await?;
        } else if mark != MARK {
            let why = format!("{name} is no journal: name another file, or move this one away");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let len = file.len(os).await?;
        let (mut at, mut last) = (MARK.len() as u64, None);
        let mut unread = Unread::new(&file, at);
        while let Some(head) = unread.take(os, HEAD).await?
            && let Some((size, sum)) = head.split_first_chunk()
        {
            let (size, sum) = (*size, sum.to_vec());
            let (begin, count) = (at + HEAD as u64, u64::from_le_bytes(size));
            if count > len.saturating_sub(begin) {
                break;
            }
            let Some(entries) = unread.take(os, count as usize).await? else {
                break;
            };
            if sum != checksum(size, entries) {
                break;
            }
            replay(entries)?;
            last = Some(framed(entries));
            at = begin + count;
        }
        if at < len {
            cut(os, &file, at..len).await?;
        }
        // If its sync has failed, only another write makes the last block durable.
        if let Some(block) = last {
            file.write_at(os, &block, at - block.len() as u64).await?;
        }
        // What was read may be in memory alone, and the file's name as well.
        file.sync(os).await?;
        os.disk().sync_dir(os, parent(name)).await?;
        let (len, base) = (at, at);
        Ok(Self { file, len, base })
    }

    async fn append(&mut self, os: &mut Os, entries: &[u8]) -> io::Result<()> {
        if !entries.is_empty() {
            let block = framed(entries);
            self.file.append(os, &block).await?;
            self.len += block.len() as u64;
        }
        Ok(())
    }

    fn has_grown(&self) -> bool {
        self.len >= GROWN.max(self.base.saturating_mul(2))
    }
}

/// Cuts the end of a journal, which begins with a block that is not whole. It is kept beside it if there
/// is a whole block in it: with [`Durability::Always`] a crash tears the last block alone.
async fn cut(os: &mut Os, file: &File, end: Range<u64>) -> io::Result<()> {
    let (name, len) = (file.path(), end.end - end.start);
    let is_torn = len <= TAIL
        && match Unread::new(file, end.start).take(os, len as usize).await? {
            Some(bytes) => !has_block(bytes),
            None => false,
        };
    if is_torn {
        tracing::warn!("{name}: the last {len} bytes are no whole entries, and are cut");
    } else {
        let kept = format!("{name}.cut");
        let kept = os.disk().open(os, &kept, Mode::Append).await?;
        let mut unread = Unread::new(file, end.start);
        for at in end.clone().step_by(PIECE) {
            let piece = (end.end - at).min(PIECE as u64);
            let Some(bytes) = unread.take(os, piece as usize).await? else {
                let why = format!("{name} has become shorter while it was read");
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            };
            kept.append(os, bytes).await?;
        }
        // Before it is cut here.
        kept.sync(os).await?;
        os.disk().sync_dir(os, parent(name)).await?;
        tracing::warn!(
            "{name} is damaged at byte {}, by a wrong byte, or without Durability::Always by a loss of power: \
             the {len} bytes from there on are cut, and appended to {}, which is yours to remove",
            end.start,
            kept.path()
        );
    }
    file.truncate(os, end.start).await
}

/// Locks a journal, up to the close of the file that this returns.
async fn lock(os: &mut Os, name: &str) -> io::Result<File> {
    let file = format!("{name}.lock");
    for trial in 0..=RETRIES {
        if trial > 0 {
            os.sleep(PAUSE).await;
        }
        match os.disk().open(os, &file, Mode::Exclusive).await {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            opened => return opened,
        }
    }
    let why = format!(
        "another process or task has the journal {name} open: end that one, or name another file"
    );
    Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or(".", |(parent, _)| parent)
}
