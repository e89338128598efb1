//! The database of the notes: a file to which each change is appended, and a table in memory.

use std::{collections::BTreeMap, io};

use trapline::{File, Mode, Os};

/// The length of what is before a record's text: its own length, and a checksum.
const HEAD: usize = 8;

pub(super) struct Log {
    file: File,
    pub(super) notes: BTreeMap<u64, String>,
}

/// A change of a note.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Put(u64, String),
    Delete(u64),
}

impl Log {
    /// Reads what was appended. A loss of power tears the last record at most, which is cut off.
    pub(super) async fn open(os: &mut Os) -> io::Result<Self> {
        let disk = os.disk();
        let file = disk.open(os, "notes.log", Mode::Write).await?;
        let bytes = read(os, &file).await?;
        let (mut notes, mut last, mut end) = (BTreeMap::new(), 0, 0);
        while let Some(record) = first(&bytes[end..]) {
            apply(&mut notes, decoded(record)?);
            (last, end) = (end, end + HEAD + record.len());
        }
        file.truncate(os, end as u64).await?;
        // A record whose sync has failed is in memory alone until it is written again.
        file.write_at(os, &bytes[last..end], last as u64).await?;
        file.sync(os).await?;
        disk.sync_dir(os, ".").await?;
        Ok(Self { file, notes })
    }

    /// Makes changes. They are durable once this returns. After an error the log must be opened again,
    /// since what is on the disk is not known.
    pub(super) async fn append(&mut self, os: &mut Os, changes: &[Change]) -> io::Result<()> {
        let bytes: Vec<u8> = changes.iter().flat_map(encoded).collect();
        self.file.append(os, &bytes).await?;
        self.file.sync(os).await
    }
}

pub(super) fn apply(notes: &mut BTreeMap<u64, String>, change: Change) {
    match change {
        Change::Put(id, text) => drop(notes.insert(id, text)),
        Change::Delete(id) => drop(notes.remove(&id)),
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

fn encoded(change: &Change) -> Vec<u8> {
    let (kind, id, text) = match change {
        Change::Put(id, text) => (b'+', id, text.as_str()),
        Change::Delete(id) => (b'-', id, ""),
    };
    let record = [&[kind][..], &id.to_le_bytes(), text.as_bytes()].concat();
    let len = (record.len() as u32).to_le_bytes();
    [&len[..], &checksum(len, &record), &record].concat()
}

fn decoded(record: &[u8]) -> io::Result<Change> {
    let parts = record.split_first_chunk::<9>();
    let (head, text) = parts.ok_or(io::ErrorKind::InvalidData)?;
    let (kind, id) = (head[0], &head[1..]);
    let id = u64::from_le_bytes(id.try_into().expect("eight bytes are left"));
    match kind {
        b'-' => Ok(Change::Delete(id)),
        _ => Ok(Change::Put(id, String::from_utf8_lossy(text).into())),
    }
}

/// Of the length, too: a record of zeros is none.
fn checksum(len: [u8; 4], record: &[u8]) -> [u8; 4] {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&len);
    sum.update(record);
    sum.finalize().to_le_bytes()
}
