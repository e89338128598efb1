//! The blocks of a journal: their bytes, and how they are read.

use std::io;

use super::{disk::File, os::Os};

/// How much is read, or copied to a new file, at once.
pub(super) const PIECE: usize = 256 << 10;

pub(super) fn framed(entries: &[u8]) -> Vec<u8> {
    let size = (entries.len() as u64).to_le_bytes();
    [&size[..], &checksum(size, entries), entries].concat()
}

/// Of the length, too: a block of zeros is none.
pub(super) fn checksum(size: [u8; 8], entries: &[u8]) -> [u8; 4] {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&size);
    sum.update(entries);
    sum.finalize().to_le_bytes()
}

/// Returns whether a whole block begins somewhere in these bytes.
pub(super) fn has_block(bytes: &[u8]) -> bool {
    // Bytes that look like the heads of long blocks would take time; they are kept then.
    let mut work = bytes.len().saturating_mul(16);
    (0..bytes.len()).any(|at| {
        let Some((size, rest)) = bytes[at..].split_first_chunk() else {
            return false;
        };
        let Some((sum, rest)) = rest.split_first_chunk() else {
            return false;
        };
        match u64::from_le_bytes(*size) {
            0 => false,
            count if count > rest.len() as u64 => false,
            count if count > work as u64 => true,
            count => {
                work -= count as usize;
                *sum == checksum(*size, &rest[..count as usize])
            }
        }
    })
}

/// What is to be read of a file.
pub(super) struct Unread<'a> {
    file: &'a File,
    /// Where the next piece begins.
    at: u64,
    /// Of these, so many bytes are taken.
    bytes: Vec<u8>,
    taken: usize,
    piece: Vec<u8>,
}

impl<'a> Unread<'a> {
    pub(super) fn new(file: &'a File, at: u64) -> Self {
        Self {
            file,
            at,
            bytes: Vec::new(),
            taken: 0,
            piece: vec![0; PIECE],
        }
    }

    /// Takes so many bytes, if the file has them.
    pub(super) async fn take(&mut self, os: &mut Os, count: usize) -> io::Result<Option<&[u8]>> {
        while self.bytes.len() - self.taken < count {
            self.bytes.drain(..self.taken);
            self.taken = 0;
            let read = self.file.read_at(os, &mut self.piece, self.at).await?;
            if read == 0 {
                return Ok(None);
            }
            self.bytes.extend_from_slice(&self.piece[..read]);
            self.at += read as u64;
        }
        let from = self.taken;
        self.taken += count;
        Ok(Some(&self.bytes[from..self.taken]))
    }
}
