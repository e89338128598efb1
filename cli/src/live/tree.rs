//! The lines of a tree of tasks.

use std::collections::{BTreeMap, BTreeSet};

use trapline::Tid;

use super::{
    entry::{Entry, Line},
    query::Query,
};

impl Query {
    /// The lines of a tree.
    ///
    /// A cycle of parents does not occur in a kernel. If one is received, one of its tasks is shown
    /// as a marked root.
    pub(super) fn tree<'a>(&self, tasks: &[Entry<'a>]) -> Vec<Line<'a>> {
        let find = |tid: Tid| {
            let found = tasks.binary_search_by_key(&tid, Entry::tid);
            found.ok().map(|at| tasks[at])
        };
        let mut tree = Tree {
            query: self,
            children: BTreeMap::new(),
            lines: Vec::with_capacity(tasks.len()),
        };
        for entry in tasks {
            let parent = find(entry.parent).map_or(Tid::KERNEL, |parent| parent.tid());
            tree.children.entry(parent).or_default().push(*entry);
        }
        let roots = tree.children.remove(&Tid::KERNEL);
        tree.grow(roots.unwrap_or_default(), "");
        // The remaining tasks are on a cycle or below one.
        for entry in tasks {
            if !tree.children.contains_key(&entry.parent) {
                continue;
            }
            let (mut root, mut seen) = (*entry, BTreeSet::new());
            while seen.insert(root.tid())
                && let Some(parent) = find(root.parent)
            {
                root = parent;
            }
            if let Some(family) = tree.children.get_mut(&root.parent) {
                family.retain(|other| other.tid() != root.tid());
            }
            tree.grow(vec![root], "↻ ");
        }
        tree.lines
    }
}

/// Tasks below their parents.
struct Tree<'q, 'a> {
    query: &'q Query,
    /// Those without a line, by the parent's tid; 0 is the parent of roots.
    children: BTreeMap<Tid, Vec<Entry<'a>>>,
    lines: Vec<Line<'a>>,
}

impl<'a> Tree<'_, 'a> {
    /// Appends tasks and their descendants. Siblings without children may be a line.
    fn grow(&mut self, roots: Vec<Entry<'a>>, mark: &str) {
        let fold = |tree: &Self, siblings| {
            let is_leaf = |entry: &Entry<'a>| !tree.children.contains_key(&entry.tid());
            tree.query.fold(siblings, is_leaf)
        };
        // The work list: a deep tree must not need a deep stack. Each line is with the branch before
        // its children.
        let mut ahead: Vec<(Line<'a>, String)> = Vec::new();
        for line in fold(self, roots).into_iter().rev() {
            let branch = mark.to_string();
            ahead.push((Line { branch, ..line }, String::new()));
        }
        while let Some((line, below)) = ahead.pop() {
            let family = if line.many.is_empty() {
                let family = self.children.remove(&line.entry.tid());
                fold(self, family.unwrap_or_default())
            } else {
                self.query.members(&line)
            };
            self.lines.push(line);
            for (at, line) in family.into_iter().rev().enumerate() {
                let (branch, bar) = match at {
                    0 => ("└─ ", "   "),
                    _ => ("├─ ", "│  "),
                };
                // At greater depth the lines are unreadable.
                let bar = if below.len() < 256 { bar } else { "" };
                let branch = format!("{below}{branch}");
                ahead.push((Line { branch, ..line }, format!("{below}{bar}")));
            }
        }
    }
}
