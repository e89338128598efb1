//! The state of a disk, without time: files, names, and what a crash may leave of them.

use std::{collections::BTreeMap, io::Result, mem};

use rustix::io::Errno;

use super::{
    content::Content,
    tree::{Dirs, Entry, Node, ROOT, Tree},
};
use crate::{
    abi::{Mode, Nanos},
    trap::disk::in_use,
};

/// The files and directories of a disk by their paths; a directory has no content.
pub(super) type Listing = BTreeMap<String, Option<Vec<u8>>>;

#[derive(Clone)]
pub(super) struct Model {
    tree: Tree,
    files: BTreeMap<Node, File>,
    /// The bytes of all files that have a name or are open.
    used: u64,
}

#[derive(Clone, Default)]
pub(super) struct File {
    content: Content,
    /// Whether it has a name.
    is_named: bool,
    /// Whether it may have a name after a crash.
    may_be_named: bool,
    /// How many devices have it open.
    open: usize,
    /// Whether one of them does by [`Mode::Exclusive`].
    is_owned: bool,
    /// When its last operation is over.
    pub(super) busy_until: Nanos,
}

impl File {
    /// Whether a task can reach it.
    fn is_used(&self) -> bool {
        self.is_named || self.open > 0
    }
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            tree: Tree::new(),
            files: BTreeMap::new(),
            used: 0,
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn file(&mut self, node: Node) -> &mut File {
        self.files.get_mut(&node).expect("it has a name or is open")
    }

    // ---- names

    /// Opens a file. Creates it where it is not there.
    pub(super) fn open(&mut self, path: &str, mode: Mode) -> Result<Node> {
        let creates = mode != Mode::Read;
        let node = match self.tree.find(path) {
            Ok(Entry::File(node)) => node,
            Ok(Entry::Dir(_)) => return Err(Errno::ISDIR.into()),
            Err(error) if !creates || error.raw_os_error() != Some(Errno::NOENT.raw_os_error()) => {
                return Err(error);
            }
            Err(_) => {
                let node = self.tree.create(path)?;
                let file = self.files.entry(node).or_default();
                (file.is_named, file.may_be_named) = (true, true);
                node
            }
        };
        let file = self.file(node);
        if mode == Mode::Exclusive && mem::replace(&mut file.is_owned, true) {
            return Err(in_use());
        }
        file.open += 1;
        Ok(node)
    }

    pub(super) fn close(&mut self, node: Node, mode: Mode) {
        let file = self.file(node);
        file.is_owned &= mode != Mode::Exclusive;
        file.open -= 1;
        if file.open == 0 {
            self.free(node);
        }
    }

    pub(super) fn create_dir(&mut self, path: &str) -> Result<()> {
        self.tree.create_dir(path)
    }

    pub(super) fn remove(&mut self, path: &str) -> Result<()> {
        let removed = self.tree.remove(path)?;
        self.unname(removed);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let replaced = self.tree.rename(from, to)?;
        self.unname(replaced);
        Ok(())
    }

    pub(super) fn list(&self, path: &str) -> Result<Vec<String>> {
        let dir = self.tree.find_dir(path)?;
        Ok(self.tree.dirs()[&dir].keys().cloned().collect())
    }

    pub(super) fn dir(&self, path: &str) -> Result<Node> {
        self.tree.find_dir(path)
    }

    /// The number that all changes of names until now are below.
    pub(super) fn names_mark(&self) -> u64 {
        self.tree.mark()
    }

    pub(super) fn sync_dir(&mut self, dir: Node, mark: u64) {
        for node in self.tree.sync(dir, mark) {
            let file = self.file(node);
            file.may_be_named = false;
            if !file.is_used() {
                self.files.remove(&node);
            }
        }
    }

    /// A file has lost its name.
    fn unname(&mut self, node: Option<Node>) {
        if let Some(node) = node {
            self.file(node).is_named = false;
            self.free(node);
        }
    }

    /// Frees the space of a file if no task can reach it. Forgets it if no crash brings it back.
    fn free(&mut self, node: Node) {
        let file = &self.files[&node];
        if file.is_used() {
            return;
        }
        self.used -= file.content.now().len() as u64;
        if !file.may_be_named {
            self.files.remove(&node);
        }
    }

    /// A world begins with this disk: no file is open.
    pub(super) fn begin(&mut self) {
        let nodes: Vec<Node> = self.files.keys().copied().collect();
        for node in nodes {
            let file = self.file(node);
            file.busy_until = Nanos::ZERO;
            file.is_owned = false;
            if mem::take(&mut file.open) > 0 {
                self.free(node);
            }
        }
    }

    // ---- files

    pub(super) fn len(&self, node: Node) -> usize {
        self.files[&node].content.now().len()
    }

    pub(super) fn read(&self, node: Node, offset: u64, len: usize) -> &[u8] {
        let bytes = self.files[&node].content.now();
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        &bytes[from..from.saturating_add(len).min(bytes.len())]
    }

    /// Writes what fits below this length of the file.
    pub(super) fn write(&mut self, node: Node, offset: usize, bytes: Vec<u8>) {
        self.change(node, |content| content.write(offset, bytes));
    }

    pub(super) fn truncate(&mut self, node: Node, len: usize) {
        self.change(node, |content| content.truncate(len));
    }

    fn change(&mut self, node: Node, change: impl FnOnce(&mut Content)) {
        let content = &mut self.file(node).content;
        let before = content.now().len() as u64;
        change(content);
        let after = content.now().len() as u64;
        self.used = self.used - before + after;
    }

    /// The number that all writes to a file until now are below.
    pub(super) fn mark(&self, node: Node) -> u64 {
        self.files[&node].content.mark()
    }

    /// Makes the writes below the mark durable. The file may be gone.
    pub(super) fn sync(&mut self, node: Node, mark: u64) {
        if let Some(file) = self.files.get_mut(&node) {
            file.content.sync(mark);
        }
    }

    /// A sync has failed: it makes nothing durable.
    pub(super) fn fail_sync(&mut self, node: Node, mark: u64) {
        if let Some(file) = self.files.get_mut(&node) {
            file.content.fail(mark);
        }
    }

    // ---- crashes

    /// How many writes, and how many changes of names, a crash may undo.
    pub(super) fn unsynced(&self) -> (usize, usize) {
        let writes = self.files.values().map(|file| file.content.unsynced());
        (writes.sum(), self.tree.pending())
    }

    /// Returns what a crash leaves. `choose` returns a number below that which it is given: whether a
    /// change of names has happened, and how many bytes of a write are kept. A search could branch
    /// here.
    pub(super) fn image(&self, choose: &mut dyn FnMut(u64) -> u64) -> Self {
        let dirs = self.tree.image(choose);
        let mut image = Self::new();
        let mut next = ROOT + 1;
        let mut names = Dirs::new();
        image.take(self, &dirs, (ROOT, ROOT), &mut next, &mut names, choose);
        image.tree = Tree::durable(names, next);
        image
    }

    /// Takes on a directory of another disk, and all below it.
    fn take(
        &mut self,
        from: &Self,
        dirs: &Dirs,
        (dir, own): (Node, Node),
        next: &mut Node,
        names: &mut Dirs,
        choose: &mut dyn FnMut(u64) -> u64,
    ) {
        names.insert(own, BTreeMap::new());
        for (name, entry) in dirs.get(&dir).into_iter().flatten() {
            let node = *next;
            *next += 1;
            let entry = match *entry {
                Entry::Dir(dir) => {
                    self.take(from, dirs, (dir, node), next, names, choose);
                    Entry::Dir(node)
                }
                Entry::File(file) => {
                    let bytes = from.files[&file].content.image(choose);
                    self.add(node, bytes);
                    Entry::File(node)
                }
            };
            names.entry(own).or_default().insert(name.clone(), entry);
        }
    }

    fn add(&mut self, node: Node, bytes: Vec<u8>) {
        self.used += bytes.len() as u64;
        let file = File {
            content: Content::durable(bytes),
            is_named: true,
            may_be_named: true,
            ..File::default()
        };
        self.files.insert(node, file);
    }

    /// All that a program can find now.
    pub(super) fn listing(&self) -> Listing {
        let mut listing = Listing::new();
        self.list_below(ROOT, "", &mut listing);
        listing
    }

    fn list_below(&self, dir: Node, path: &str, listing: &mut Listing) {
        for (name, entry) in &self.tree.dirs()[&dir] {
            let path = match path {
                "" => name.clone(),
                path => format!("{path}/{name}"),
            };
            match *entry {
                Entry::Dir(dir) => {
                    self.list_below(dir, &path, listing);
                    listing.insert(path, None);
                }
                Entry::File(file) => {
                    let bytes = self.files[&file].content.now().to_vec();
                    listing.insert(path, Some(bytes));
                }
            }
        }
    }

    /// Puts a durable file there, with its directories.
    pub(super) fn put(&mut self, path: &str, bytes: Vec<u8>) -> Result<()> {
        for (at, _) in path.match_indices('/') {
            if self.tree.find(&path[..at]).is_err() {
                self.tree.create_dir(&path[..at])?;
            }
        }
        let node = self.open(path, Mode::Write)?;
        self.truncate(node, 0);
        self.write(node, 0, bytes);
        self.sync(node, u64::MAX);
        self.close(node, Mode::Write);
        self.sync_all_names();
        Ok(())
    }

    fn sync_all_names(&mut self) {
        let dirs: Vec<Node> = self.tree.dirs().keys().copied().collect();
        for dir in dirs {
            self.sync_dir(dir, u64::MAX);
        }
    }
}
