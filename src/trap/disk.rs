//! Operations on a disk: what a task asks for, and what every disk has in common.
//!
//! | operation | what it does, on every disk |
//! |---|---|
//! | [`DiskOp::Open`] | opens a file: not a directory |
//! | [`DiskOp::Rename`] | gives a file or directory another name; replaces a file of that name |
//! | [`DiskOp::Remove`] | removes a file, or an empty directory |
//! | [`DiskOp::List`] | lists the names in a directory, sorted |
//! | [`DiskOp::CreateDir`] | makes one directory, in one that exists |
//! | [`DiskOp::SyncDir`] | makes the names in a directory durable |
//!
//! A name is that of a path beneath the root, which is `.`, with `/` between its parts. No disk follows
//! links.

use std::io::{self, ErrorKind};

use crate::{abi::Mode, log::Detail};

/// The most bytes that one read of a file moves.
pub(crate) const MAX_READ: usize = 1024 * 1024;

/// An operation on names of a disk: what [`Request::Disk`](crate::Request::Disk) begins. The kernel
/// has checked its names: they are plain ones as `wal` or `logs/1`, or `.` for the root.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum DiskOp {
    /// Opens a file.
    Open {
        /// Its name.
        path: String,
        /// For what.
        mode: Mode,
    },
    /// Gives a file or directory another name. A file of that name is replaced.
    Rename {
        /// Its name.
        from: String,
        /// Its name from then on.
        to: String,
    },
    /// Removes a file, or an empty directory.
    Remove(String),
    /// Lists the names in a directory.
    List(String),
    /// Makes a directory.
    CreateDir(String),
    /// Makes all earlier creations, renames and removals in this directory durable.
    SyncDir(String),
}

/// An operation on an open file: what [`Request::File`](crate::Request::File) begins.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FileOp {
    /// Reads. Fewer bytes than asked for are there only at the end of the file.
    ReadAt {
        /// Where to begin, in bytes.
        offset: u64,
        /// How many bytes.
        len: usize,
    },
    /// Writes all the bytes. An error may leave a part of them written.
    WriteAt {
        /// Where to begin, in bytes. A gap behind the end of the file reads as zeros.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Writes all the bytes at the end of the file. An error leaves the old length.
    Append(Vec<u8>),
    /// Asks for the length of the file.
    Len,
    /// Sets the length of the file. A longer file is filled with zeros.
    Truncate(u64),
    /// Makes all earlier writes to the file durable.
    Sync,
}

impl DiskOp {
    /// Checks the names, and makes them plain: `./a//b/` is `a/b`, and the root is `.`.
    ///
    /// *Errors:* `InvalidInput` for a name that is no path beneath the root; its text has the name.
    pub(crate) fn checked(self) -> io::Result<Self> {
        Ok(match self {
            Self::Open { path, mode } => Self::Open {
                path: plain(&path)?,
                mode,
            },
            Self::Rename { from, to } => Self::Rename {
                from: not_root(plain(&from)?)?,
                to: not_root(plain(&to)?)?,
            },
            Self::Remove(path) => Self::Remove(not_root(plain(&path)?)?),
            Self::List(path) => Self::List(plain(&path)?),
            Self::CreateDir(path) => Self::CreateDir(plain(&path)?),
            Self::SyncDir(path) => Self::SyncDir(plain(&path)?),
        })
    }

    pub(crate) fn detail(&self) -> Detail<'_> {
        let (path, beside) = match self {
            Self::Open { path, mode } => (path, mode.to_string()),
            Self::Rename { from, to } => (from, format!("{to:?}")),
            Self::Remove(path) | Self::List(path) | Self::CreateDir(path) | Self::SyncDir(path) => {
                return Detail::Name(path.into());
            }
        };
        Detail::Path(path.into(), beside.into())
    }
}

impl FileOp {
    /// Checks that a file that was opened in this mode allows the operation, and that one may be that
    /// long.
    ///
    /// *Errors:* `PermissionDenied`, with what to do about it; `InvalidInput` for a place that no file
    /// has: a length is a signed number of 64 bits.
    pub(crate) fn check(&self, mode: Mode) -> io::Result<()> {
        let changes = matches!(
            self,
            Self::WriteAt { .. } | Self::Append(_) | Self::Truncate(_)
        );
        let why = match (mode, self) {
            (Mode::Read, _) if changes => "it is open for reading: open it with Mode::Write",
            (Mode::Append, Self::WriteAt { .. }) => {
                "it is open for appending: open it with Mode::Write"
            }
            _ => return self.check_place(),
        };
        Err(io::Error::new(ErrorKind::PermissionDenied, why))
    }

    fn check_place(&self) -> io::Result<()> {
        let (offset, len) = match self {
            Self::ReadAt { offset, len } => (*offset, *len),
            Self::WriteAt { offset, bytes } => (*offset, bytes.len()),
            Self::Truncate(len) => (*len, 0),
            Self::Append(_) | Self::Len | Self::Sync => return Ok(()),
        };
        match offset.checked_add(len as u64) {
            Some(end) if end <= i64::MAX as u64 => Ok(()),
            _ => {
                let why = "no file is that long: its bytes have numbers below 2^63";
                Err(io::Error::new(ErrorKind::InvalidInput, why))
            }
        }
    }

    pub(crate) fn detail(&self) -> Detail<'_> {
        match self {
            Self::ReadAt { offset, len } => Detail::At(*len, *offset),
            Self::WriteAt { offset, bytes } => Detail::At(bytes.len(), *offset),
            Self::Append(bytes) => Detail::Len(bytes.len()),
            Self::Truncate(len) => Detail::Len(usize::try_from(*len).unwrap_or(usize::MAX)),
            Self::Len | Self::Sync => Detail::None,
        }
    }
}

/// The longest name of a file or directory in bytes, and the longest path. File systems have these limits,
/// so a simulated disk has them, too.
const MAX_PART: usize = 255;
const MAX_PATH: usize = 4095;

/// Checks a name, and makes it plain.
fn plain(path: &str) -> io::Result<String> {
    let why = if path.is_empty() {
        "it is empty: the root is \".\""
    } else if path.contains('\0') {
        "it has a NUL character"
    } else if path.starts_with('/') {
        "it begins with \"/\": name it from the root of the disk"
    } else if path.split('/').any(|part| part == "..") {
        "it has \"..\": name it from the root of the disk"
    } else {
        let parts = path
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".");
        let parts: Vec<_> = parts.collect();
        let path = parts.join("/");
        if path.is_empty() {
            return Ok(".".into());
        } else if path.len() <= MAX_PATH && parts.iter().all(|part| part.len() <= MAX_PART) {
            return Ok(path);
        }
        "it is too long: a file or directory has at most 255 bytes, all of it 4,095"
    };
    Err(bad_name(path, why))
}

fn not_root(path: String) -> io::Result<String> {
    match &*path {
        "." => Err(bad_name(&path, "it is the root of the disk")),
        _ => Ok(path),
    }
}

fn bad_name(path: &str, why: &str) -> io::Error {
    let text = format!("{path:?} is no name for this: {why}");
    io::Error::new(ErrorKind::InvalidInput, text)
}

/// The error of an open by [`Mode::Exclusive`] of a file that is open in this mode already.
pub(crate) fn in_use() -> io::Error {
    let why = "another process or task has it open exclusively: end that one, or name another file";
    io::Error::new(ErrorKind::ResourceBusy, why)
}

/// Appends the names of a directory, sorted, as the answer to [`DiskOp::List`].
pub(crate) fn put_names(mut names: Vec<String>, into: &mut Vec<u8>) {
    names.sort_unstable();
    for name in names {
        into.extend_from_slice(name.as_bytes());
        into.push(0);
    }
}

/// Reads the names that [`put_names`] has written.
pub(crate) fn names(bytes: &[u8]) -> Vec<String> {
    let names = bytes.split_inclusive(|byte| *byte == 0);
    names
        .map(|name| String::from_utf8_lossy(&name[..name.len() - 1]).into_owned())
        .collect()
}
