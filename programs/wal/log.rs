//! A write-ahead log: a crash loses no record for which an append has returned.
//!
//! A record is its length, a checksum of that and of its bytes, and the bytes. A crash tears at most the
//! last record. The log is a file in the root of the disk; a compaction makes another one, and gives it the
//! name of the first. Each of the syncs here is needed: a test takes them away, one at a time.

use std::io;

use trapline::{Mode, Os};

use super::disk::{Disk, File};

/// The length of what is before a record's bytes.
const HEAD: usize = 8;

pub(crate) struct Log {
    disk: Disk,
    name: String,
    file: File,
    /// A call has failed or was cut, so what is on the disk is not known.
    is_in_doubt: bool,
}

impl Log {
    /// Opens a log, which is made if there is none, and returns its records: all that were appended, and
    /// maybe one more, whose append did not return.
    pub(crate) async fn open(
        os: &mut Os,
        disk: Disk,
        name: &str,
    ) -> io::Result<(Self, Vec<Vec<u8>>)> {
        let file = disk.open(os, name, Mode::Write).await?;
        let bytes = read(os, &file).await?;
        let (mut records, mut last, mut end) = (Vec::new(), 0, 0);
        while let Some(record) = first(&bytes[end..]) {
            records.push(record.to_vec());
            (last, end) = (end, end + HEAD + record.len());
        }
        // What is appended behind a torn record would never be read.
        file.truncate(os, end as u64).await?;
        // The last record may be in memory alone, since its writer was killed. If its sync has failed, only
        // another write makes it durable. Then it is told.
        file.write_at(os, &bytes[last..end], last as u64).await?;
        file.sync(os).await?;
        disk.sync_dir(os, ".").await?;
        let log = Self {
            disk,
            name: name.into(),
            file,
            is_in_doubt: false,
        };
        Ok((log, records))
    }

    /// Appends a record. Once this returns, no crash loses it.
    pub(crate) async fn append(&mut self, os: &mut Os, record: &[u8]) -> io::Result<()> {
        self.begin()?;
        self.file.append(os, &framed(record)).await?;
        self.file.sync(os).await?;
        self.is_in_doubt = false;
        Ok(())
    }

    /// Replaces all records by these. A crash leaves the old ones or the new ones.
    pub(crate) async fn replace(&mut self, os: &mut Os, records: &[Vec<u8>]) -> io::Result<()> {
        self.begin()?;
        let new = format!("{}.new", self.name);
        let file = self.disk.open(os, &new, Mode::Write).await?;
        // A crash may have left one.
        file.truncate(os, 0).await?;
        let bytes: Vec<u8> = records.iter().flat_map(|record| framed(record)).collect();
        file.append(os, &bytes).await?;
        file.sync(os).await?;
        self.disk.rename(os, &new, &self.name).await?;
        self.disk.sync_dir(os, ".").await?;
        self.file = file;
        self.is_in_doubt = false;
        Ok(())
    }

    fn begin(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.is_in_doubt, true) {
            false => Ok(()),
            true => Err(io::Error::other(format!(
                "an earlier call on the log {} has failed: open it again",
                self.name
            ))),
        }
    }
}

async fn read(os: &mut Os, file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.len(os).await? as usize];
    let mut end = 0;
    while end < bytes.len() {
        end += match file.read_at(os, &mut bytes[end..], end as u64).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => n,
        };
    }
    Ok(bytes)
}

/// The first record, if it is whole.
fn first(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let record = rest.get(..u32::from_le_bytes(*len) as usize)?;
    (checksum(*len, record) == *sum).then_some(record)
}

fn framed(record: &[u8]) -> Vec<u8> {
    let len = u32::try_from(record.len()).expect("a record has less than 4 GiB");
    let len = len.to_le_bytes();
    [&len, &checksum(len, record), record].concat()
}

/// Of the length, too: a record of zeros is none.
fn checksum(len: [u8; 4], record: &[u8]) -> [u8; 4] {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&len);
    sum.update(record);
    sum.finalize().to_le_bytes()
}
