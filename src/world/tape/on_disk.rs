//! Operations on a disk, as entries of a tape.
//!
//! An entry has a checksum of what the operation names and writes, not the bytes: a replay that would
//! write something else is told, and the disk's content takes no room.

use std::fmt;

use crc32fast::Hasher;

use crate::{
    log::recording::{
        decode::{Bytes, Wrong},
        encode::number,
    },
    trap::{DiskOp, FileOp},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OnDisk {
    /// The place of its name in [`OPERATIONS`].
    operation: u8,
    /// How many bytes it reads or writes.
    len: usize,
    sum: u32,
}

/// What is added goes to the end: the places are part of the format.
const OPERATIONS: [&str; 12] = [
    "open",
    "rename",
    "remove",
    "list",
    "create_dir",
    "sync_dir",
    "read_at",
    "write_at",
    "append",
    "len",
    "truncate",
    "sync",
];

impl OnDisk {
    fn new(operation: u8, len: usize, parts: [&[u8]; 2]) -> Self {
        let mut sum = Hasher::new();
        for part in parts {
            sum.update(&(part.len() as u64).to_le_bytes());
            sum.update(part);
        }
        let sum = sum.finalize();
        Self {
            operation,
            len,
            sum,
        }
    }

    pub(super) fn names(op: &DiskOp) -> Self {
        let (operation, path, beside) = match op {
            DiskOp::Open { path, mode } => {
                return Self::new(0, 0, [path.as_bytes(), &[*mode as u8]]);
            }
            DiskOp::Rename { from, to } => (1, from, &**to),
            DiskOp::Remove(path) => (2, path, ""),
            DiskOp::List(path) => (3, path, ""),
            DiskOp::CreateDir(path) => (4, path, ""),
            DiskOp::SyncDir(path) => (5, path, ""),
        };
        Self::new(operation, 0, [path.as_bytes(), beside.as_bytes()])
    }

    pub(super) fn file(op: &FileOp) -> Self {
        match op {
            FileOp::ReadAt { offset, len } => Self::new(6, *len, [&offset.to_le_bytes(), &[]]),
            FileOp::WriteAt { offset, bytes } => {
                Self::new(7, bytes.len(), [&offset.to_le_bytes(), bytes])
            }
            FileOp::Append(bytes) => Self::new(8, bytes.len(), [bytes, &[]]),
            FileOp::Len => Self::new(9, 0, [&[], &[]]),
            FileOp::Truncate(len) => Self::new(10, 0, [&len.to_le_bytes(), &[]]),
            FileOp::Sync => Self::new(11, 0, [&[], &[]]),
        }
    }

    pub(super) fn put(self, out: &mut Vec<u8>) {
        out.push(self.operation);
        number(out, self.len as u64);
        number(out, self.sum.into());
    }

    pub(super) fn get(bytes: &mut Bytes<'_>) -> Result<Self, Wrong> {
        let operation = bytes.byte()?;
        if usize::from(operation) >= OPERATIONS.len() {
            return Err("an unknown operation on a disk");
        }
        let (len, sum) = (bytes.size()?, bytes.number()?);
        let sum = u32::try_from(sum).map_err(|_| "a checksum too large")?;
        Ok(Self {
            operation,
            len,
            sum,
        })
    }
}

impl fmt::Display for OnDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operation,
            len,
            sum,
        } = *self;
        f.write_str(OPERATIONS[usize::from(operation)])?;
        if len > 0 {
            write!(f, " of {len} bytes")?;
        }
        write!(f, " with checksum {sum:08x}")
    }
}
