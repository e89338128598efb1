//! A file of chunks that grows. After each write it can be read to its last entry, on a full disk
//! too.
//!
//! A write that stays in the page in which the last chunk begins writes that chunk again, longer, in
//! one system call. So many small writes take no more room than one, and a process that is killed
//! leaves the old chunk or the new one. The file ends with zeros while it is written: a full disk has
//! no other room for the mark of its end.

use std::{io, os::unix::fs::FileExt};

use crc32fast::Hasher;

use super::{
    chunks::{FRAME, cut_frame, frame},
    decode::{Bytes, Wrong},
    place,
};

/// What a kill leaves as a whole.
const PAGE: u64 = 4096;
/// The zeros at the end: a chunk of one byte fits, and so does the mark of an error.
const ZEROS: usize = 2 * FRAME;

/// Passes over an entry of a payload.
pub(crate) type Skip = fn(&mut Bytes<'_>) -> Result<(), Wrong>;

#[derive(Debug)]
pub(crate) struct Growing {
    file: place::Locked,
    /// Where the last chunk begins.
    begin: u64,
    /// The last chunk, with its frame. Empty if there is none that may grow.
    last: Vec<u8>,
    sum: Hasher,
    skip: Skip,
}

impl Growing {
    /// Replaces what the file contains by this beginning.
    pub(crate) fn new(file: place::Locked, head: &[u8], skip: Skip) -> io::Result<Self> {
        file.set_len(0)?;
        let zeros = [0; ZEROS];
        for (bytes, at) in [(head, 0), (&zeros, head.len() as u64)] {
            write_at(&file, bytes, at).1?;
        }
        Ok(Self {
            file,
            begin: head.len() as u64,
            last: Vec::new(),
            sum: Hasher::new(),
            skip,
        })
    }

    /// The length of the file, without the zeros.
    pub(crate) fn len(&self) -> u64 {
        self.begin + self.last.len() as u64
    }

    /// Appends entries.
    ///
    /// *Errors:* the operating system's. Then the file has the entries that fitted, and the mark of
    /// the error as its end.
    pub(crate) fn append(&mut self, entries: &[u8]) -> io::Result<()> {
        let page = |at: u64| at / PAGE;
        let is_same = page(self.len() + entries.len() as u64 - 1) == page(self.begin);
        if self.last.is_empty() || !is_same {
            self.begin = self.len();
            self.last.clear();
            self.last.shrink_to(PAGE as usize);
            self.last.extend([0; FRAME]);
            self.sum = Hasher::new();
        }
        // The zeros of the last write are there already.
        let held = ZEROS + self.last.len() - FRAME;
        self.last.extend_from_slice(entries);
        self.sum.update(entries);
        let frame = frame(self.last.len() - FRAME, self.sum.clone().finalize());
        self.last[..FRAME].copy_from_slice(&frame);
        self.last.extend([0; ZEROS]);
        let (written, result) = write_at(&self.file, &self.last, self.begin);
        self.last.truncate(self.last.len() - ZEROS);
        if let Err(error) = &result {
            self.cut(written.max(held), error);
        }
        result
    }

    /// Ends the file with a chunk of this byte, for which there is room.
    pub(crate) fn end(self, byte: u8) -> io::Result<()> {
        let mut end = frame(1, crc32fast::hash(&[byte])).to_vec();
        end.push(byte);
        write_at(&self.file, &end, self.len()).1?;
        self.file.set_len(self.len() + end.len() as u64)
    }

    /// Keeps the whole entries of the last chunk that fit into so many bytes of the file, and marks
    /// the error behind them. The file is on disk as far as that.
    fn cut(&mut self, room: usize, error: &io::Error) {
        let payload = &self.last[FRAME..];
        let (mut bytes, mut kept) = (Bytes(payload), 0);
        while (self.skip)(&mut bytes).is_ok() {
            let len = payload.len() - bytes.0.len();
            if 2 * FRAME + len > room {
                break;
            }
            kept = len;
        }
        let sum = crc32fast::hash(&payload[..kept]);
        self.last.truncate(if kept > 0 { FRAME + kept } else { 0 });
        if kept > 0 {
            self.last[..FRAME].copy_from_slice(&frame(kept, sum));
        }
        self.last.extend(cut_frame(error.kind()));
        // The error that is told is the first.
        let _ = write_at(&self.file, &self.last, self.begin);
        let _ = self.file.set_len(self.len());
    }
}

/// Writes all of the bytes. Returns how many were written.
fn write_at(file: &place::Locked, bytes: &[u8], at: u64) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write_at(&bytes[written..], at + written as u64) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => written += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}
