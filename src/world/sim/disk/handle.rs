//! [`SimDisk`], the handle through which tests and tasks set up a simulated disk, and its crash images.

use std::{
    cell::{RefCell, RefMut},
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    io::{Error, ErrorKind, Result},
    ops::RangeInclusive,
    rc::Rc,
    time::Duration,
};

use super::{
    chooser::{All, Chooser},
    model::{Listing, Model},
    state::{Settings, State},
};
use crate::{
    abi::SystemCall,
    trap::{DiskOp, Object, Payload},
    world::sequence::Sequence,
};

/// The random numbers of [`SimDisk::image`].
const OF_IMAGES: u64 = 0x0069_6d61_6765;

/// A simulated disk: files and directories, of which a crash loses what was not synced.
///
/// It is a handle: a clone is the same disk. A test keeps one beside its kernel, and a task can own
/// one. Give it to a host with [`SimWorld::disk`](crate::SimWorld::disk). A host without one has a
/// disk of its own, which [`SimNet::disk`](crate::SimNet::disk) returns. Programs use it through
/// [`Os::disk`](crate::Os::disk). A disk belongs to one world at a time: the next one finds the files,
/// and none of them open.
///
/// An operation takes 0.1 ms ([`SimDisk::latency`]), so the virtual clock advances. It takes effect at
/// its call, and a sync when it is over.
///
/// # What a crash leaves
///
/// [`SimNet::crash`](crate::SimNet::crash), `--fault "2s:crash HOST"` and `power HOST` crash the
/// disk of the host.
///
/// - A file holds everything up to its last successful sync, and any subset of the later writes. Each
///   of these is whole, torn (its first bytes only) or lost. They are made in the order of their
///   calls. A gap before a write reads as zeros. A truncate is a write of the length: whole or lost.
/// - Of the creations, renames and removals in a directory since its last
///   [`sync_dir`](crate::Disk::sync_dir) the first few have happened, in their order; all or none, as
///   well. A rename leaves one of its two names, also from one directory to another. A directory is
///   removed after all earlier changes in it.
/// - A file whose removal is undone has its own content, by the same rules. A file whose creation is
///   undone is gone, however often it was synced.
/// - A failed sync makes nothing durable. What was written before it may be lost until it is written
///   again, and that is synced. A later `sync_dir` makes all earlier changes of names durable.
///
/// So the disk promises as little as POSIX does. ext4 and its relatives promise more.
///
/// ```
/// use std::io;
/// use trapline::{Kernel, Mode, Os, SimDisk, SimWorld};
///
/// let disk = SimDisk::new();
/// let world = SimWorld::new(1).disk("localhost", &disk);
/// let mut kernel = Kernel::builder().world(world).build()?;
/// kernel.spawn("writer", async |os: &mut Os| {
///     let log = os.disk().open(os, "log", Mode::Append).await?;
///     os.disk().sync_dir(os, ".").await?;
///     log.append(os, b"ab").await?;
///     log.sync(os).await?;
///     log.append(os, b"cd").await
/// })?;
/// kernel.run()?.check()?;
///
/// // The second append was not synced: it is lost, torn or whole.
/// let left: Vec<_> = disk.images().map(|image| image.files()["log"].clone()).collect();
/// assert_eq!(left, [b"ab".to_vec(), b"abc".to_vec(), b"abcd".to_vec()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SimDisk(Rc<RefCell<State>>);

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Model::new(), Settings::new())
    }

    fn with(model: Model, settings: Settings) -> Self {
        Self(Rc::new(RefCell::new(State::new(model, settings))))
    }

    #[inline]
    pub(super) fn state(&self) -> RefMut<'_, State> {
        self.0.borrow_mut()
    }

    /// Whether both are the same disk.
    pub(super) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// The state, for a test or a task. A search over schedules is told of the access.
    fn touch(&self, writes: bool) -> RefMut<'_, State> {
        let mut state = self.state();
        state.is_used |= writes;
        if let Some(frame) = state.kernel.upgrade() {
            frame.touch(Object::World, writes);
        }
        state
    }

    // ---- settings

    /// Sets how many bytes the files may have together, those without a name that are open included.
    /// A gap in a file counts. Default: 1 GiB. Returns the disk.
    ///
    /// On a full disk a write fails with `StorageFull`: [`File::append`](crate::File::append) writes
    /// nothing then, and [`File::write_at`](crate::File::write_at) as much as fits. Reading and
    /// removing go on.
    pub fn capacity(&self, bytes: u64) -> Self {
        self.touch(true).settings.capacity = bytes.min(1 << 40);
        self.clone()
    }

    /// Sets how long an operation takes: a random time within the range, drawn for each. Operations on
    /// one file, and those on names, stay in order. Default: 0.1 ms. Zero counts as 1 ns. A range that
    /// ends before it begins counts as its begin. Returns the disk.
    pub fn latency(&self, range: RangeInclusive<Duration>) -> Self {
        self.touch(true).settings.set_latency(range);
        self.clone()
    }

    /// Sets how many bytes a second the disk reads and writes, for all files together. 0 is no limit,
    /// the default. Returns the disk.
    pub fn bandwidth(&self, bytes_per_second: u64) -> Self {
        self.touch(true).settings.bandwidth = bytes_per_second;
        self.clone()
    }

    // ---- faults

    /// Sets the share of operations that fail with an I/O error (`EIO`), and do nothing. 0 is none, the
    /// default; 1 is all. After a sync that fails, what was not synced is lost by a crash unless it is
    /// written again; as on Linux. Returns the disk.
    ///
    /// ```
    /// use std::io;
    /// use trapline::{Kernel, Mode, Os};
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// let disk = kernel.net().disk("localhost")?;
    /// let own = disk.clone();
    /// kernel.spawn("writer", async move |os: &mut Os| {
    ///     let log = os.disk().open(os, "log", Mode::Append).await?;
    ///     os.disk().sync_dir(os, ".").await?;
    ///     log.append(os, b"a").await?;
    ///     own.eio(1.0);
    ///     log.sync(os).await.unwrap_err();
    ///     own.eio(0.0);
    ///     log.sync(os).await
    /// })?;
    /// kernel.run()?.check()?;
    /// // The second sync does not make up for the first.
    /// assert_eq!(disk.images().count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn eio(&self, share: f64) -> Self {
        self.touch(true).settings.eio = share;
        self.tell(&format!("disk:eio at a share of {share}"));
        self.clone()
    }

    /// Sets the share of reads that return one flipped bit. What is on the disk stays as it is. 0 is
    /// none, the default; 1 is all. Returns the disk.
    pub fn rot(&self, share: f64) -> Self {
        self.touch(true).settings.rot = share;
        self.tell(&format!("disk:rot at a share of {share}"));
        self.clone()
    }

    /// Has the disk be full, whatever its capacity, or no longer. Returns the disk.
    pub fn full(&self, is_full: bool) -> Self {
        self.touch(true).settings.is_full = is_full;
        let full = if is_full { "full" } else { "no longer full" };
        self.tell(&format!("disk: {full}"));
        self.clone()
    }

    /// Changes what fails.
    pub(in crate::world::sim) fn apply(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.touch(true).settings);
    }

    /// Tells the kernel of a fault.
    fn tell(&self, what: &str) {
        let state = self.state();
        let (kernel, host) = (state.kernel.upgrade(), state.host.clone());
        drop(state);
        if let Some(frame) = kernel {
            let text = format!("{host}: {what}");
            frame.defer_payload(SystemCall::Fault, Payload::Fault { text, fate: None });
        }
    }

    // ---- files

    /// Puts a file there, with its directories, or replaces its content. It is durable.
    ///
    /// *Errors:* `InvalidInput` for a name that leads out of the root; `IsADirectory`, `NotADirectory`.
    ///
    /// ```
    /// let disk = trapline::SimDisk::new();
    /// disk.put("logs/1", "hello")?;
    /// assert_eq!(disk.files()["logs/1"], b"hello");
    /// assert_eq!(disk.images().count(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn put(&self, name: impl AsRef<str>, content: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref().to_string();
        let DiskOp::Remove(name) = DiskOp::Remove(name).checked()? else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let put = self.touch(true).model.put(&name, content.as_ref().to_vec());
        put.map_err(|error| {
            let why = format!("cannot put {name:?} on the simulated disk: {error}");
            Error::new(error.kind(), why)
        })
    }

    /// Returns all files by their names, with what a program would read in them now.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let listing = self.touch(false).model.listing();
        let files = listing.into_iter();
        files
            .filter_map(|(name, bytes)| Some((name, bytes?)))
            .collect()
    }

    // ---- crashes

    /// Returns the distinct images that a crash of now may leave, each as a disk of its own with the
    /// settings of this one, without its faults. This disk stays as it is.
    ///
    /// They are made one at a time, since there may be many: a write of n bytes that was not synced
    /// gives n + 1, and two such writes give (n + 1)². The first is that which keeps nothing, and the
    /// last one keeps all.
    #[must_use]
    pub fn images(&self) -> Images {
        let state = self.touch(false);
        Images {
            model: state.model.clone(),
            settings: state.settings.healthy(),
            all: All::new(),
            seen: BTreeSet::new(),
        }
    }

    /// Returns one of [`SimDisk::images`], drawn by a seed as a crash in a run draws it.
    ///
    /// That all is lost, that all is kept, and that all is kept up to a point come more often than their
    /// share of the images.
    #[must_use]
    pub fn image(&self, seed: u64) -> Self {
        let state = self.touch(false);
        let mut random = Sequence::new(seed ^ OF_IMAGES);
        let mut choose = Chooser::new(random.generator()).of_crash();
        Self::with(state.model.image(&mut choose), state.settings.healthy())
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.borrow();
        let (writes, names) = state.model.unsynced();
        f.debug_struct("SimDisk")
            .field("bytes", &state.model.used())
            .field("unsynced_writes", &writes)
            .field("unsynced_names", &names)
            .finish_non_exhaustive()
    }
}

/// The images that a crash may leave: [`SimDisk::images`].
pub struct Images {
    model: Model,
    settings: Settings,
    all: All,
    /// The images that were returned, by their hashes.
    seen: BTreeSet<[u64; 2]>,
}

impl Iterator for Images {
    type Item = SimDisk;

    fn next(&mut self) -> Option<SimDisk> {
        loop {
            let image = self.all.next(|choose| self.model.image(choose))?;
            if self.seen.insert(hash(&image.listing())) {
                return Some(SimDisk::with(image, self.settings.clone()));
            }
        }
    }
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Images").finish_non_exhaustive()
    }
}

/// A number of 128 bits for what is on a disk.
fn hash(listing: &Listing) -> [u64; 2] {
    [0, 1].map(|salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, listing).hash(&mut hasher);
        hasher.finish()
    })
}
