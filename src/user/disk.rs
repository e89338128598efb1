//! The disk of a host: [`Disk`] and its [`File`]s.

use std::{fmt, io, rc::Rc};

use rustix::io::Errno;

use super::{
    device::opened,
    os::{Os, carrying, io_checked, io_error},
};
use crate::{
    abi::{DeviceId, Mode, Reply, SystemCall},
    trap::{
        DeviceRef, DiskOp, Effect, FileOp, Payload, TrapFrame,
        disk::{MAX_READ, names},
    },
};

/// The disk of the host on which a task runs. [`Os::disk`] returns it.
///
/// A name is a path beneath the root of the disk, which is `.`: `wal`, or `logs/1`. A name that begins
/// with `/` or has a `..` is refused, and links are not followed: nothing outside of the root can be
/// named.
///
/// In the real world the root is a directory: `Builder::disk` and `boot --disk` set it. The
/// operations run on threads, so other tasks go on.
///
/// In the simulated world it is a [`SimDisk`](crate::SimDisk), of which a crash loses what was not
/// synced.
///
/// A file that was written is not durable before [`File::sync`], and its name is not before
/// [`Disk::sync_dir`] of its directory.
///
/// Operations on names take effect in the order of their calls. If a task is killed or cut in such a
/// call, the operation may happen or not.
#[derive(Clone, Copy, Debug)]
pub struct Disk(());

/// An open file on a [`Disk`].
///
/// Clones are handles to the same open file, for any task. Dropping the last handle closes it. It has no
/// position: each read and write names its offset, or appends.
///
/// One call at a time is under way on an open file: a second task's call fails with
/// [`Errno::Busy`](crate::Errno::Busy). A file that was opened twice takes a call of each. All
/// operations on one file take effect in the order of their calls. If a task is killed or cut in a
/// call, its operation may happen or not, and a later one comes after it.
///
/// The text of an error has the operation and the name; its source is the world's own error.
#[derive(Clone)]
pub struct File {
    handle: DeviceRef,
    path: Rc<str>,
    mode: Mode,
}

impl Os {
    /// Returns the disk of this task's host. This makes no trap.
    #[must_use]
    pub fn disk(&self) -> Disk {
        Disk(())
    }
}

impl Disk {
    /// Opens a file. All modes but [`Mode::Read`] create it if it does not exist; what is in the file
    /// stays there.
    ///
    /// *Blocks* until the disk has done it.
    ///
    /// *Errors:* `NotFound`, `IsADirectory`, `InvalidInput` for a name that leads out of the root or
    /// is too long; `ResourceBusy` by [`Mode::Exclusive`]; `Unsupported` in a world without a disk; those
    /// of the operating system.
    #[track_caller]
    pub fn open(
        self,
        os: &mut Os,
        name: &str,
        mode: Mode,
    ) -> impl Future<Output = io::Result<File>> {
        os.note_caller();
        async move {
            let op = DiskOp::Open {
                path: name.into(),
                mode,
            };
            let call = carrying(SystemCall::Open, Payload::Disk(op.into()));
            match os.call(call, opened).await {
                Ok((handle, _)) => Ok(File {
                    handle,
                    path: name.into(),
                    mode,
                }),
                Err(error) => Err(cannot("open", name, error)),
            }
        }
    }

    /// Gives a file or directory another name. A file of that name is replaced: no other task finds
    /// neither. [`Disk::sync_dir`] of both directories makes it durable.
    ///
    /// *Blocks* and *errors:* as [`Disk::open`].
    #[track_caller]
    pub fn rename(self, os: &mut Os, from: &str, to: &str) -> impl Future<Output = io::Result<()>> {
        os.note_caller();
        async move {
            let op = DiskOp::Rename {
                from: from.into(),
                to: to.into(),
            };
            let done = change(os, SystemCall::Rename, op).await;
            done.map_err(|error| cannot("rename", &format!("{from} to {to}"), error))
        }
    }

    /// Removes a file, or an empty directory. An open file can still be used.
    ///
    /// *Blocks* as [`Disk::open`]. *Errors:* `NotFound`, `DirectoryNotEmpty`, and as [`Disk::open`].
    #[track_caller]
    pub fn remove(self, os: &mut Os, name: &str) -> impl Future<Output = io::Result<()>> {
        os.note_caller();
        async move {
            let op = DiskOp::Remove(name.into());
            let done = change(os, SystemCall::Remove, op).await;
            done.map_err(|error| cannot("remove", name, error))
        }
    }

    /// Returns the names in a directory, sorted by their bytes; `.` lists the root. A name that is not
    /// UTF-8 has a replacement character, and cannot be opened.
    ///
    /// *Blocks* and *errors:* as [`Disk::open`].
    #[track_caller]
    pub fn list(self, os: &mut Os, name: &str) -> impl Future<Output = io::Result<Vec<String>>> {
        os.note_caller();
        async move {
            let op = DiskOp::List(name.into());
            let call = carrying(SystemCall::List, Payload::Disk(op.into()));
            let listed = |reply, frame: &Rc<TrapFrame>| match (reply, frame.take()) {
                (Reply::Done, Some(Payload::Bytes(bytes))) => Ok(names(&bytes)),
                (other, beside) => Err(given_back(other, beside, frame)),
            };
            let list = os.call(call, listed).await;
            list.map_err(|error| cannot("list", name, error))
        }
    }

    /// Makes a directory, in one that exists.
    ///
    /// *Blocks* as [`Disk::open`]. *Errors:* `AlreadyExists`, and as [`Disk::open`].
    #[track_caller]
    pub fn create_dir(self, os: &mut Os, name: &str) -> impl Future<Output = io::Result<()>> {
        os.note_caller();
        async move {
            let op = DiskOp::CreateDir(name.into());
            let done = change(os, SystemCall::CreateDir, op).await;
            done.map_err(|error| cannot("create the directory", name, error))
        }
    }

    /// Makes the names in a directory durable: all earlier creations, renames and removals in it.
    ///
    /// *Blocks* and *errors:* as [`Disk::open`].
    #[track_caller]
    pub fn sync_dir(self, os: &mut Os, name: &str) -> impl Future<Output = io::Result<()>> {
        os.note_caller();
        let is_left_out = os.leaves_out(Effect::Sync);
        async move {
            if is_left_out {
                os.nothing().await;
                return Ok(());
            }
            let op = DiskOp::SyncDir(name.into());
            let done = change(os, SystemCall::SyncDir, op).await;
            done.map_err(|error| cannot("sync the directory", name, error))
        }
    }
}

impl File {
    /// Returns the name by which it was opened.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the token of its device, which traces show.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.handle.id()
    }

    /// Reads from `offset` on, up to the buffer's length and 1 MiB. Returns how many bytes; fewer
    /// than that only at the end of the file.
    ///
    /// *Blocks* until the disk has done it, after all earlier operations on the file.
    ///
    /// *Errors:* [`Errno`](crate::Errno)s as [`Os::read_wait`] returns; those of the operating system.
    #[track_caller]
    pub fn read_at<'a>(
        &'a self,
        os: &'a mut Os,
        buf: &'a mut [u8],
        offset: u64,
    ) -> impl Future<Output = io::Result<usize>> + 'a {
        os.note_caller();
        async move {
            let len = buf.len().min(MAX_READ);
            let op = FileOp::ReadAt { offset, len };
            let read = |reply, frame: &Rc<TrapFrame>| match (reply, frame.take()) {
                (Reply::Bytes(_), Some(Payload::Bytes(bytes))) => Ok(bytes),
                (other, beside) => Err(given_back(other, beside, frame)),
            };
            let call = self.carrying(os, SystemCall::ReadAt, op);
            let bytes = os.call(call, read).await;
            let bytes = bytes.map_err(|error| cannot("read", &self.path, error))?;
            buf[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }
    }

    /// Writes all the bytes at `offset`. A gap behind the end of the file reads as zeros.
    ///
    /// *Blocks* as [`File::read_at`].
    ///
    /// *Errors:* as [`File::read_at`]; `StorageFull`. A part may have been written then.
    /// `PermissionDenied` if the file is not open for that.
    #[track_caller]
    pub fn write_at(
        &self,
        os: &mut Os,
        bytes: &[u8],
        offset: u64,
    ) -> impl Future<Output = io::Result<()>> {
        os.note_caller();
        async move {
            let bytes = bytes.to_vec();
            let op = FileOp::WriteAt { offset, bytes };
            let written = self.ask(os, SystemCall::WriteAt, op).await;
            written
                .map(drop)
                .map_err(|error| cannot("write to", &self.path, error))
        }
    }

    /// Writes all the bytes at the end of the file.
    ///
    /// *Blocks* as [`File::read_at`].
    ///
    /// *Errors:* as [`File::write_at`], but nothing is written then: the file has its old length.
    #[track_caller]
    pub fn append(&self, os: &mut Os, bytes: &[u8]) -> impl Future<Output = io::Result<()>> {
        os.note_caller();
        async move {
            let op = FileOp::Append(bytes.to_vec());
            let written = self.ask(os, SystemCall::Append, op).await;
            written
                .map(drop)
                .map_err(|error| cannot("append to", &self.path, error))
        }
    }

    /// Returns the length of the file, in bytes.
    ///
    /// *Blocks* and *errors:* as [`File::read_at`].
    #[track_caller]
    pub fn len(&self, os: &mut Os) -> impl Future<Output = io::Result<u64>> {
        os.note_caller();
        async move {
            let len = self.ask(os, SystemCall::Len, FileOp::Len).await;
            len.map_err(|error| cannot("ask for the length of", &self.path, error))
        }
    }

    /// Sets the length of the file. A longer file is filled with zeros.
    ///
    /// *Blocks* and *errors:* as [`File::write_at`].
    #[track_caller]
    pub fn truncate(&self, os: &mut Os, len: u64) -> impl Future<Output = io::Result<()>> {
        os.note_caller();
        async move {
            let op = FileOp::Truncate(len);
            let done = self.ask(os, SystemCall::Truncate, op).await;
            done.map(drop)
                .map_err(|error| cannot("truncate", &self.path, error))
        }
    }

    /// Makes all earlier writes to the file durable, with its length. Its name is not made durable:
    /// [`Disk::sync_dir`] does that.
    ///
    /// *Blocks* as [`File::read_at`]. *Errors:* as [`File::read_at`]. After an error, what was written
    /// since the last `sync` may be lost, and a second `sync` does not make it durable: write it again.
    #[track_caller]
    pub fn sync(&self, os: &mut Os) -> impl Future<Output = io::Result<()>> {
        os.note_caller();
        let is_left_out = os.leaves_out(Effect::Sync);
        async move {
            if is_left_out {
                os.nothing().await;
                return Ok(());
            }
            let done = self.ask(os, SystemCall::Sync, FileOp::Sync).await;
            done.map(drop)
                .map_err(|error| cannot("sync", &self.path, error))
        }
    }

    /// Prepares a call on this file.
    fn carrying(
        &self,
        os: &Os,
        call: fn(DeviceId) -> SystemCall,
        op: FileOp,
    ) -> impl FnOnce(&TrapFrame) -> SystemCall + Unpin + use<> {
        let is_here = self.handle.is_of(os.frame());
        let device = if is_here { self.id() } else { DeviceId::NONE };
        carrying(call(device), Payload::FileOp(op.into()))
    }

    /// Makes a call on this file. Returns the number of its reply.
    async fn ask(
        &self,
        os: &mut Os,
        call: fn(DeviceId) -> SystemCall,
        op: FileOp,
    ) -> io::Result<u64> {
        let call = self.carrying(os, call, op);
        let number = |reply, frame: &Rc<TrapFrame>| match reply {
            Reply::Bytes(number) => Ok(number),
            Reply::Done => Ok(0),
            other => Err(io_error(other, frame)),
        };
        os.call(call, number).await
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({}, {:?})", self.id(), self.path)
    }
}

async fn change(os: &mut Os, call: SystemCall, op: DiskOp) -> io::Result<()> {
    os.call(carrying(call, Payload::Disk(op.into())), io_checked)
        .await
}

/// The error of a reply whose payload was taken already.
fn given_back(reply: Reply, beside: Option<Payload>, frame: &TrapFrame) -> io::Error {
    if let Some(beside) = beside {
        frame.put(beside);
    }
    io_error(reply, frame)
}

#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {path} on the disk: {source}{advice}")]
struct OnDisk {
    what: &'static str,
    path: String,
    source: io::Error,
    advice: &'static str,
}

fn cannot(what: &'static str, path: &str, source: io::Error) -> io::Error {
    let advice = match Errno::from_io_error(&source) {
        Some(Errno::LOOP) => "; a disk follows no links",
        _ => "",
    };
    let error = OnDisk {
        what,
        path: if path.is_empty() { "\"\"" } else { path }.into(),
        source,
        advice,
    };
    io::Error::new(error.source.kind(), error)
}
