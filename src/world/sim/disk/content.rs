//! The bytes of one file: what a read returns now, and what a crash may leave of them.

use std::collections::VecDeque;

/// A file's bytes. The number of a write is its place among all writes to the file.
#[derive(Clone, Default)]
pub(super) struct Content {
    now: Vec<u8>,
    /// What is durable below the writes.
    base: Vec<u8>,
    /// The writes that a crash may undo, and those that lie above such a one.
    writes: VecDeque<Write>,
    /// The number of the next write.
    next: u64,
}

#[derive(Clone)]
struct Write {
    number: u64,
    change: Change,
    stage: Stage,
}

#[derive(Clone)]
enum Change {
    Bytes(usize, Vec<u8>),
    /// A truncate is a write of the length: it happens or not.
    Length(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unsynced,
    /// A sync of it has failed. No later sync makes it durable.
    Failed,
    /// It is durable, above one that has failed.
    Durable,
}

impl Content {
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self {
            now: bytes.clone(),
            base: bytes,
            ..Self::default()
        }
    }

    pub(super) fn now(&self) -> &[u8] {
        &self.now
    }

    pub(super) fn write(&mut self, offset: usize, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.change(Change::Bytes(offset, bytes));
        }
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.change(Change::Length(len));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.now, usize::MAX);
        let (number, stage) = (self.next, Stage::Unsynced);
        self.next += 1;
        self.writes.push_back(Write {
            number,
            change,
            stage,
        });
    }

    /// The number that all writes until now are below.
    pub(super) fn mark(&self) -> u64 {
        self.next
    }

    /// Makes the writes below the mark durable, apart from those whose sync has failed.
    pub(super) fn sync(&mut self, mark: u64) {
        self.settle(mark, Stage::Durable);
        self.forget_rewritten();
        let first_left = self.writes.iter().position(|w| w.stage != Stage::Durable);
        let below = self.writes.drain(..first_left.unwrap_or(self.writes.len()));
        for write in below {
            write.change.apply(&mut self.base, usize::MAX);
        }
    }

    /// The writes below the mark stay as they are until they are written again.
    pub(super) fn fail(&mut self, mark: u64) {
        self.settle(mark, Stage::Failed);
    }

    fn settle(&mut self, mark: u64, stage: Stage) {
        let earlier = self.writes.iter_mut().take_while(|w| w.number < mark);
        for write in earlier.filter(|w| w.stage == Stage::Unsynced) {
            write.stage = stage;
        }
    }

    /// Forgets a failed write where a durable one covers it.
    fn forget_rewritten(&mut self) {
        let rewritten = |(at, write): (usize, &Write)| {
            let mut later = self.writes.iter().skip(at + 1);
            let is_gone = write.stage == Stage::Failed
                && later.any(|w| w.stage == Stage::Durable && w.change.covers(&write.change));
            is_gone.then_some(write.number)
        };
        let gone: Vec<u64> = self
            .writes
            .iter()
            .enumerate()
            .filter_map(rewritten)
            .collect();
        if !gone.is_empty() {
            self.writes.retain(|w| !gone.contains(&w.number));
        }
    }

    /// How many writes a crash may undo.
    pub(super) fn unsynced(&self) -> usize {
        let is_durable = |w: &&Write| w.stage != Stage::Durable;
        self.writes.iter().filter(is_durable).count()
    }

    /// Returns what a crash leaves. `choose` returns a number below that which it is given: how many
    /// bytes of a write are kept, and whether a length is.
    pub(super) fn image(&self, choose: &mut dyn FnMut(u64) -> u64) -> Vec<u8> {
        let mut image = self.base.clone();
        for write in &self.writes {
            let all = write.change.len();
            let kept = match write.stage {
                Stage::Durable => all,
                Stage::Unsynced | Stage::Failed => choose(all as u64 + 1) as usize,
            };
            if kept > 0 {
                write.change.apply(&mut image, kept);
            }
        }
        image
    }
}

impl Change {
    /// In how many steps it is made.
    fn len(&self) -> usize {
        match self {
            Self::Bytes(_, bytes) => bytes.len(),
            Self::Length(_) => 1,
        }
    }

    /// Makes the first steps of the change.
    fn apply(&self, to: &mut Vec<u8>, steps: usize) {
        match self {
            Self::Bytes(offset, bytes) => {
                let bytes = &bytes[..steps.min(bytes.len())];
                let end = offset + bytes.len();
                if to.len() < end {
                    to.resize(end, 0);
                }
                to[*offset..end].copy_from_slice(bytes);
            }
            Self::Length(len) => to.resize(*len, 0),
        }
    }

    /// Whether nothing is left of an earlier change after this one.
    fn covers(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (Self::Bytes(from, bytes), Self::Bytes(start, covered)) => {
                from <= start && start + covered.len() <= from + bytes.len()
            }
            (Self::Length(len), Self::Bytes(start, _)) => len <= start,
            (Self::Length(_), Self::Length(_)) | (Self::Bytes(..), Self::Length(_)) => false,
        }
    }
}
