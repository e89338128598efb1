//! The log of the program, on a disk that may leave out a call at one place of the source.

use std::{cell::RefCell, collections::BTreeSet, io, panic::Location, rc::Rc};

use trapline::{Mode, Os};

mod disk {
    pub(super) use super::{Disk, File};
}

#[allow(
    clippy::duplicate_mod,
    reason = "the log is compiled for two kinds of disks"
)]
#[path = "../../../../programs/wal/log.rs"]
pub(super) mod log;

/// A line of `log.rs`.
pub(super) type Line = u32;

#[derive(Clone, Default)]
pub(super) struct Forgetful {
    /// The line whose call is left out.
    pub(super) omitted: Option<Line>,
    /// The lines with a call that can be left out.
    pub(super) lines: Rc<RefCell<BTreeSet<Line>>>,
}

impl Forgetful {
    fn omits(&self, place: &Location<'_>) -> bool {
        self.lines.borrow_mut().insert(place.line());
        self.omitted == Some(place.line())
    }
}

#[derive(Clone)]
pub(super) struct Disk(pub(super) trapline::Disk, pub(super) Forgetful);

pub(super) struct File(trapline::File, Forgetful);

impl Disk {
    pub(super) async fn open(&self, os: &mut Os, name: &str, mode: Mode) -> io::Result<File> {
        let file = self.0.open(os, name, mode).await?;
        Ok(File(file, self.1.clone()))
    }

    pub(super) async fn rename(&self, os: &mut Os, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(os, from, to).await
    }

    #[track_caller]
    pub(super) fn sync_dir(&self, os: &mut Os, name: &str) -> impl Future<Output = io::Result<()>> {
        let is_omitted = self.1.omits(Location::caller());
        async move {
            match is_omitted {
                true => Ok(()),
                false => self.0.sync_dir(os, name).await,
            }
        }
    }
}

impl File {
    pub(super) async fn len(&self, os: &mut Os) -> io::Result<u64> {
        self.0.len(os).await
    }

    pub(super) async fn read_at(
        &self,
        os: &mut Os,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        self.0.read_at(os, buf, offset).await
    }

    pub(super) async fn append(&self, os: &mut Os, bytes: &[u8]) -> io::Result<()> {
        self.0.append(os, bytes).await
    }

    #[track_caller]
    pub(super) fn write_at(
        &self,
        os: &mut Os,
        bytes: &[u8],
        offset: u64,
    ) -> impl Future<Output = io::Result<()>> {
        let is_omitted = self.1.omits(Location::caller());
        async move {
            match is_omitted {
                true => Ok(()),
                false => self.0.write_at(os, bytes, offset).await,
            }
        }
    }

    #[track_caller]
    pub(super) fn truncate(&self, os: &mut Os, len: u64) -> impl Future<Output = io::Result<()>> {
        let is_omitted = self.1.omits(Location::caller());
        async move {
            match is_omitted {
                true => Ok(()),
                false => self.0.truncate(os, len).await,
            }
        }
    }

    #[track_caller]
    pub(super) fn sync(&self, os: &mut Os) -> impl Future<Output = io::Result<()>> {
        let is_omitted = self.1.omits(Location::caller());
        async move {
            match is_omitted {
                true => Ok(()),
                false => self.0.sync(os).await,
            }
        }
    }
}
