//! What the threads of a disk ask the operating system for.
//!
//! A path is opened part by part beneath the root, and no part may be a link or `..`: so nothing leads
//! out, not even a link that another process makes meanwhile. (`openat2` would do the same in one call,
//! on Linux alone, and not in every container.)

use std::{
    fs::File,
    io::{self, ErrorKind, Result},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{FileExt, MetadataExt},
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, FlockOperation, Mode as Rights, OFlags},
    io::{Errno, retry_on_intr},
};

use crate::{
    abi::Mode,
    trap::{
        DiskOp, FileOp,
        disk::{MAX_READ, in_use},
    },
};

/// The directory beneath which everything is.
pub(super) struct Root(OwnedFd);

pub(super) struct OpenFile {
    file: File,
    pub(super) mode: Mode,
    /// The numbers of its file system, and of the file on it.
    pub(super) system: u64,
    pub(super) number: u64,
}

/// The result of an operation.
pub(super) enum Done {
    Opened(OpenFile),
    Listed(Vec<String>),
    Read(Vec<u8>),
    /// The bytes that were written, or the length of a file.
    Number(usize),
    Nothing,
}

impl Root {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = retry_on_intr(|| rustix::fs::open(dir, flags, Rights::empty()));
        opened.map(Self).map_err(|error| {
            let (dir, error) = (dir.display(), io::Error::from(error));
            let text = format!("cannot have a disk in {dir}: {error}; make the directory first");
            io::Error::new(error.kind(), text)
        })
    }

    pub(super) fn perform(&self, op: DiskOp) -> Result<Done> {
        match op {
            DiskOp::Open { path, mode } => self.open_file(&path, mode).map(Done::Opened),
            DiskOp::Rename { from, to } => self.rename(&from, &to).map(|()| Done::Nothing),
            DiskOp::Remove(path) => self.remove(&path).map(|()| Done::Nothing),
            DiskOp::List(path) => self.list(&path).map(Done::Listed),
            DiskOp::CreateDir(path) => self.create_dir(&path).map(|()| Done::Nothing),
            DiskOp::SyncDir(path) => {
                File::from(self.directory(&path)?).sync_all()?;
                Ok(Done::Nothing)
            }
        }
    }

    fn open_file(&self, path: &str, mode: Mode) -> Result<OpenFile> {
        let parent = self.parent(path)?;
        let (dir, name) = (parent.dir(self), parent.name);
        let mut file = OpenFile::open(dir, name, mode)?;
        if mode != Mode::Exclusive {
            return Ok(file);
        }
        loop {
            file.lock()?;
            // Its last owner may have replaced it before it was locked here.
            let named = OpenFile::open(dir, name, mode)?;
            if (named.system, named.number) == (file.system, file.number) {
                return Ok(file);
            }
            file = named;
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.parent(from)?, self.parent(to)?);
        let (old, new) = (from.dir(self), to.dir(self));
        Ok(rustix::fs::renameat(old, from.name, new, to.name)?)
    }

    fn remove(&self, path: &str) -> Result<()> {
        let parent = self.parent(path)?;
        let (dir, name) = (parent.dir(self), parent.name);
        let flags = match kind_at(dir, name)? {
            FileType::Directory => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        Ok(rustix::fs::unlinkat(dir, name, flags)?)
    }

    fn list(&self, path: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::new(self.directory(path)?)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        let parent = self.parent(path)?;
        let all = Rights::RWXU | Rights::RWXG | Rights::RWXO;
        Ok(rustix::fs::mkdirat(parent.dir(self), parent.name, all)?)
    }

    /// Opens the directory that a path is in.
    fn parent<'a>(&self, path: &'a str) -> Result<Parent<'a>> {
        Ok(match path.rsplit_once('/') {
            Some((parent, name)) => Parent {
                dir: Some(self.directory(parent)?),
                name,
            },
            None => Parent {
                dir: None,
                name: path,
            },
        })
    }

    fn directory(&self, path: &str) -> Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir: Option<OwnedFd> = None;
        for part in path.split('/') {
            let at = dir.as_ref().unwrap_or(&self.0).as_fd();
            dir = Some(match open_at(at, part, flags) {
                Err(Errno::NOTDIR) if kind_at(at, part) == Ok(FileType::Symlink) => {
                    return Err(Errno::LOOP.into());
                }
                opened => opened?,
            });
        }
        dir.ok_or(ErrorKind::InvalidInput.into())
    }
}

/// An opened directory, unless it is the root; and a name in it.
struct Parent<'a> {
    dir: Option<OwnedFd>,
    name: &'a str,
}

impl Parent<'_> {
    fn dir<'a>(&'a self, root: &'a Root) -> BorrowedFd<'a> {
        self.dir.as_ref().unwrap_or(&root.0).as_fd()
    }
}

fn open_at(dir: BorrowedFd<'_>, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let rights =
        Rights::RUSR | Rights::WUSR | Rights::RGRP | Rights::WGRP | Rights::ROTH | Rights::WOTH;
    retry_on_intr(|| rustix::fs::openat(dir, name, flags, rights))
}

/// What has this name, be it a link.
fn kind_at(dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<FileType> {
    let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(found.st_mode))
}

impl OpenFile {
    fn open(dir: BorrowedFd<'_>, name: &str, mode: Mode) -> Result<Self> {
        // A pipe or a terminal must neither block the thread nor become that of this process.
        let mut flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        flags |= match mode {
            Mode::Read => OFlags::RDONLY,
            Mode::Write | Mode::Append | Mode::Exclusive => OFlags::RDWR | OFlags::CREATE,
        };
        let file = File::from(open_at(dir, name, flags)?);
        let found = file.metadata()?;
        if found.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        if !found.is_file() {
            let why = "it is no regular file: Os::attach takes pipes and terminals";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        Ok(Self {
            file,
            mode,
            system: found.dev(),
            number: found.ino(),
        })
    }

    /// Locks it, up to the close: for other handles of this process, too.
    fn lock(&self) -> Result<()> {
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(in_use()),
            locked => Ok(locked?),
        }
    }

    pub(super) fn perform(&self, op: FileOp) -> Result<Done> {
        Ok(match op {
            FileOp::ReadAt { offset, len } => Done::Read(self.read_at(offset, len)?),
            FileOp::WriteAt { offset, bytes } => {
                self.file.write_all_at(&bytes, offset)?;
                Done::Number(bytes.len())
            }
            FileOp::Append(bytes) => {
                self.append(&bytes)?;
                Done::Number(bytes.len())
            }
            FileOp::Len => Done::Number(usize::try_from(self.len()?).map_err(io::Error::other)?),
            FileOp::Truncate(len) => {
                self.file.set_len(len)?;
                Done::Nothing
            }
            // With what is needed to read the bytes back: a length that has changed.
            FileOp::Sync => {
                self.file.sync_data()?;
                Done::Nothing
            }
        })
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len.min(MAX_READ)];
        let mut read = 0;
        while read < bytes.len() {
            match self
                .file
                .read_at(&mut bytes[read..], offset.saturating_add(read as u64))
            {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Writes behind the end, or leaves the file as it was. No other operation on the file is under way
    /// meanwhile.
    fn append(&self, bytes: &[u8]) -> Result<()> {
        let end = self.len()?;
        self.file.write_all_at(bytes, end).map_err(|error| {
            let Err(second) = self.file.set_len(end) else {
                return error;
            };
            let text = format!("{error}; a part stays behind byte {end}: {second}");
            io::Error::new(error.kind(), text)
        })
    }
}
