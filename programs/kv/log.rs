//! The entries for the append-only file that are not in it yet.

use std::mem;

use super::resp;

#[derive(Clone, Copy, PartialEq, Debug, clap::ValueEnum)]
pub(crate) enum Fsync {
    /// A reply to a change comes when the change is on the disk
    Always,
    /// A crash of the machine may lose the changes of the last second
    Everysec,
    /// The system decides when it writes to the disk
    No,
}

impl std::fmt::Display for Fsync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Always => "always",
            Self::Everysec => "everysec",
            Self::No => "no",
        })
    }
}

/// The entries that are not in the file yet.
#[derive(Default)]
pub(super) struct Log {
    fsync: Option<Fsync>,
    pending: Vec<u8>,
    /// The bytes of all entries so far.
    queued: u64,
    /// Entries since the begin of a rewrite, if one is under way.
    pub(super) since: Option<Vec<u8>>,
    pub(super) is_rewrite_asked: bool,
    /// Why no change is taken.
    pub(super) refused: Option<String>,
}

impl Log {
    pub(super) fn new(fsync: Option<Fsync>) -> Self {
        Self {
            fsync,
            ..Self::default()
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.fsync.is_some()
    }

    pub(super) fn fsync(&self) -> Fsync {
        self.fsync.unwrap_or(Fsync::No)
    }

    pub(super) fn queued(&self) -> u64 {
        self.queued
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    pub(super) fn set(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) {
        match expires {
            None => self.entry(&[b"SET", key, value]),
            Some(at) => self.entry(&[b"SET", key, value, b"PXAT", at.to_string().as_bytes()]),
        }
    }

    pub(super) fn entry(&mut self, words: &[&[u8]]) {
        if self.is_on() {
            let before = self.pending.len();
            resp::texts(&mut self.pending, words);
            self.queued += (self.pending.len() - before) as u64;
        }
    }

    pub(super) fn ask_for_rewrite(&mut self) -> Result<(), &'static str> {
        match (self.is_on(), &self.since) {
            (false, _) => Err("ERR there is no append-only file: see --aof"),
            (true, Some(_)) => Err("ERR Background append only file rewriting already in progress"),
            (true, None) => {
                self.is_rewrite_asked = true;
                Ok(())
            }
        }
    }

    /// Takes the entries for a write, with their sum behind them.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut bytes = mem::take(&mut self.pending);
        if !bytes.is_empty() {
            let sum = crc32fast::hash(&bytes);
            resp::texts(&mut bytes, &[b"SUM", format!("{sum:08x}").as_bytes()]);
            if let Some(since) = &mut self.since {
                since.extend_from_slice(&bytes);
            }
        }
        bytes
    }
}

/// How far the file has come: bytes of entries.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    /// In the file, and with `always` on the disk.
    pub(super) done: u64,
    /// With these an error was met.
    pub(super) failed: u64,
}
