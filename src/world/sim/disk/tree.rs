//! The names on a disk: what they are now, what is durable, and the changes in between.
//!
//! A change of a directory has happened after a crash only if all earlier ones of that directory have.
//! A rename from one directory to another belongs to both, so it has happened in both or in neither.
//! [`Op::after`] has these rules as one: the changes that happen first.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Result,
};

use rustix::io::Errno;

/// The number of a file or directory.
pub(super) type Node = u64;

/// The root directory.
pub(super) const ROOT: Node = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    File(Node),
    Dir(Node),
}

/// Directories by their numbers, with the names in each.
pub(super) type Dirs = BTreeMap<Node, BTreeMap<String, Entry>>;

/// A name: its directory, and its last part.
type Name = (Node, String);

#[derive(Clone)]
pub(super) struct Tree {
    now: Dirs,
    durable: Dirs,
    /// The changes that a crash may undo, by their numbers.
    pending: BTreeMap<u64, Op>,
    next_op: u64,
    next_node: Node,
}

#[derive(Clone)]
struct Op {
    /// The directories that it changes.
    dirs: Vec<Node>,
    /// The changes that have happened if this one has.
    after: Vec<u64>,
    /// Whether it moves a directory to another one.
    moves_dir: bool,
    edit: Edit,
}

#[derive(Clone)]
enum Edit {
    Link(Name, Entry),
    Unlink(Name),
    Rename(Name, Name),
}

impl Tree {
    pub(super) fn new() -> Self {
        let root = Dirs::from([(ROOT, BTreeMap::new())]);
        Self {
            now: root.clone(),
            durable: root,
            pending: BTreeMap::new(),
            next_op: 0,
            next_node: ROOT + 1,
        }
    }

    /// A tree in which all is durable.
    pub(super) fn durable(dirs: Dirs, next_node: Node) -> Self {
        Self {
            now: dirs.clone(),
            durable: dirs,
            next_node,
            ..Self::new()
        }
    }

    pub(super) fn dirs(&self) -> &Dirs {
        &self.now
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn find(&self, path: &str) -> Result<Entry> {
        let mut at = Entry::Dir(ROOT);
        for part in path.split('/').filter(|part| *part != ".") {
            let Entry::Dir(dir) = at else {
                return Err(Errno::NOTDIR.into());
            };
            at = *self.now[&dir].get(part).ok_or(Errno::NOENT)?;
        }
        Ok(at)
    }

    pub(super) fn find_dir(&self, path: &str) -> Result<Node> {
        match self.find(path)? {
            Entry::Dir(dir) => Ok(dir),
            Entry::File(_) => Err(Errno::NOTDIR.into()),
        }
    }

    /// The directory of a path that is not the root, and the path's last part.
    fn name_of(&self, path: &str) -> Result<Name> {
        let (dir, last) = path.rsplit_once('/').unwrap_or((".", path));
        Ok((self.find_dir(dir)?, last.into()))
    }

    /// Creates an empty file that is not there.
    pub(super) fn create(&mut self, path: &str) -> Result<Node> {
        let name = self.name_of(path)?;
        let node = self.new_node();
        self.change(vec![name.0], [], Edit::Link(name, Entry::File(node)));
        Ok(node)
    }

    pub(super) fn create_dir(&mut self, path: &str) -> Result<()> {
        if self.find(path).is_ok() {
            return Err(Errno::EXIST.into());
        }
        let name = self.name_of(path)?;
        let node = self.new_node();
        self.change(vec![name.0], [], Edit::Link(name, Entry::Dir(node)));
        Ok(())
    }

    /// Removes a file or an empty directory. Returns the file.
    pub(super) fn remove(&mut self, path: &str) -> Result<Option<Node>> {
        let entry = self.find(path)?;
        let emptied = self.emptied(entry)?;
        let name = self.name_of(path)?;
        self.change(vec![name.0], emptied, Edit::Unlink(name));
        Ok(file(entry))
    }

    /// Renames a file or directory. Returns the file that it replaces.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<Option<Node>> {
        let (from, to) = (self.name_of(from)?, self.name_of(to)?);
        let named = |name: &Name| self.now[&name.0].get(&name.1).copied();
        let (entry, replaced) = (named(&from).ok_or(Errno::NOENT)?, named(&to));
        // Errors come in the order in which Linux looks for them.
        match (entry, replaced) {
            (Entry::Dir(moved), _) if self.lineage(to.0).contains(&moved) => {
                return Err(Errno::INVAL.into());
            }
            (_, Some(Entry::Dir(replaced))) if self.lineage(from.0).contains(&replaced) => {
                return Err(Errno::NOTEMPTY.into());
            }
            (_, Some(replaced)) if replaced == entry => return Ok(None),
            (Entry::File(_), Some(Entry::Dir(_))) => return Err(Errno::ISDIR.into()),
            (Entry::Dir(_), Some(Entry::File(_))) => return Err(Errno::NOTDIR.into()),
            (_, _) => {}
        }
        let mut after = match replaced {
            Some(replaced) => self.emptied(replaced)?,
            None => Vec::new(),
        };
        let mut dirs = vec![from.0];
        let mut moves_dir = false;
        if from.0 != to.0 {
            dirs.push(to.0);
            // The new name is there only if its directories are.
            let lineage = self.lineage(to.0);
            let made = |op: &Op| matches!(op.edit, Edit::Link(_, Entry::Dir(dir)) if lineage.contains(&dir));
            moves_dir = matches!(entry, Entry::Dir(_));
            // Directories move in one order: none gets into itself.
            let first = |op: &Op| made(op) || moves_dir && op.moves_dir;
            after.extend(
                self.pending
                    .iter()
                    .filter(|(_, op)| first(op))
                    .map(|(n, _)| *n),
            );
        }
        let number = self.change(dirs, after, Edit::Rename(from, to));
        self.pending.get_mut(&number).expect("it is new").moves_dir = moves_dir;
        Ok(replaced.and_then(file))
    }

    /// The changes by which a directory became empty. They have happened before it is gone.
    fn emptied(&self, entry: Entry) -> Result<Vec<u64>> {
        match entry {
            Entry::File(_) => Ok(Vec::new()),
            Entry::Dir(dir) if self.now[&dir].is_empty() => Ok(self.last_of(dir).collect()),
            Entry::Dir(_) => Err(Errno::NOTEMPTY.into()),
        }
    }

    /// A directory and those that it is in.
    fn lineage(&self, dir: Node) -> BTreeSet<Node> {
        let mut lineage = BTreeSet::from([dir]);
        let mut at = dir;
        let holds = |(_, names): &(&Node, &BTreeMap<_, _>), dir| {
            names.values().any(|entry| *entry == Entry::Dir(dir))
        };
        while let Some((parent, _)) = self.now.iter().find(|dirs| holds(dirs, at)) {
            at = *parent;
            lineage.insert(at);
        }
        lineage
    }

    fn last_of(&self, dir: Node) -> impl Iterator<Item = u64> {
        let mut last = self.pending.iter().rev();
        let last = last.find(|(_, op)| op.dirs.contains(&dir));
        last.map(|(number, _)| *number).into_iter()
    }

    fn new_node(&mut self) -> Node {
        self.next_node += 1;
        self.next_node - 1
    }

    fn change(&mut self, dirs: Vec<Node>, after: impl IntoIterator<Item = u64>, edit: Edit) -> u64 {
        let mut after: Vec<u64> = after.into_iter().collect();
        after.extend(dirs.iter().flat_map(|dir| self.last_of(*dir)));
        edit.apply(&mut self.now);
        let number = self.next_op;
        self.next_op += 1;
        let moves_dir = false;
        self.pending.insert(
            number,
            Op {
                dirs,
                after,
                moves_dir,
                edit,
            },
        );
        number
    }

    /// The number that all changes until now are below.
    pub(super) fn mark(&self) -> u64 {
        self.next_op
    }

    /// Makes the changes of a directory below the mark durable, with those that come first. Returns
    /// the files that have lost their last name by that.
    pub(super) fn sync(&mut self, dir: Node, mark: u64) -> Vec<Node> {
        let mut durable = BTreeSet::new();
        for (number, op) in self.pending.iter().rev() {
            if durable.contains(number) || *number < mark && op.dirs.contains(&dir) {
                durable.insert(*number);
                durable.extend(op.after.iter().filter(|at| self.pending.contains_key(at)));
            }
        }
        let ops = durable
            .iter()
            .filter_map(|number| self.pending.remove(number));
        let removed = ops.filter_map(|op| op.edit.apply(&mut self.durable));
        removed.collect()
    }

    /// Returns the names that a crash leaves. `choose` returns a number below that which it is given:
    /// whether a change has happened.
    pub(super) fn image(&self, choose: &mut dyn FnMut(u64) -> u64) -> Dirs {
        let mut image = self.durable.clone();
        let mut lost = BTreeSet::new();
        for (number, op) in &self.pending {
            let is_possible = !op.after.iter().any(|first| lost.contains(first));
            if is_possible && choose(2) == 1 {
                op.edit.apply(&mut image);
            } else {
                lost.insert(*number);
            }
        }
        image
    }
}

impl Edit {
    /// Makes the change. Returns the file that has lost its name.
    fn apply(&self, dirs: &mut Dirs) -> Option<Node> {
        let gone = match self {
            Self::Link((dir, name), entry) => {
                if let Entry::Dir(made) = entry {
                    dirs.entry(*made).or_default();
                }
                dirs.entry(*dir).or_default().insert(name.clone(), *entry)
            }
            Self::Unlink((dir, name)) => dirs.entry(*dir).or_default().remove(name),
            Self::Rename(from, to) => {
                let moved = dirs.entry(from.0).or_default().remove(&from.1)?;
                dirs.entry(to.0).or_default().insert(to.1.clone(), moved)
            }
        };
        match gone {
            Some(Entry::Dir(dir)) => _ = dirs.remove(&dir),
            Some(Entry::File(file)) => return Some(file),
            None => {}
        }
        None
    }
}

fn file(entry: Entry) -> Option<Node> {
    match entry {
        Entry::File(node) => Some(node),
        Entry::Dir(_) => None,
    }
}
