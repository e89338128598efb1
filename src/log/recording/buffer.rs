//! Bytes that one thread appends and any thread may read meanwhile.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::encode::Out;

/// The bytes in a word.
const WORD: usize = size_of::<u64>();

/// The bytes that its one writer has appended. A word holds eight, the first one lowest, so that
/// most records need one or two stores.
#[derive(Debug)]
pub(super) struct Buffer {
    words: Box<[AtomicU64]>,
    /// The bytes that may be read: whole records.
    len: AtomicUsize,
}

/// The end of a buffer, where its writer goes on.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct End {
    len: usize,
    /// The bytes of the last word, which is not full.
    word: u64,
}

/// A record of up to eight bytes, in a register. Of a longer one, only the length is right.
#[derive(Default)]
pub(super) struct Word {
    bytes: u64,
    /// The length in bits.
    bits: usize,
}

impl Out for Word {
    #[inline(always)]
    fn push(&mut self, byte: u8) {
        self.bytes |= u64::from(byte).wrapping_shl(self.bits as u32);
        self.bits += 8;
    }

    fn put(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().take(WORD) {
            self.push(*byte);
        }
        self.bits += 8 * bytes.len().saturating_sub(WORD);
    }
}

impl Buffer {
    /// An empty one, with room for almost so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            words: (0..bytes / WORD).map(|_| AtomicU64::new(0)).collect(),
            len: AtomicUsize::new(0),
        }
    }

    /// Appends a short record. Returns whether it is short and there was room.
    #[inline(always)]
    pub(super) fn append_word(&self, end: &mut End, record: &Word) -> bool {
        let is_put = record.bits <= 8 * WORD && self.append(end, record.bytes, record.bits);
        if is_put {
            self.len.store(end.len, Ordering::Release);
        }
        is_put
    }

    /// Appends a record. Returns whether there was room.
    pub(super) fn append_all(&self, end: &mut End, record: &[u8]) -> bool {
        let mut next = *end;
        for part in record.chunks(WORD) {
            let mut word = [0; WORD];
            word[..part.len()].copy_from_slice(part);
            if !self.append(&mut next, u64::from_le_bytes(word), 8 * part.len()) {
                return false;
            }
        }
        *end = next;
        self.len.store(end.len, Ordering::Release);
        true
    }

    /// Writes up to eight bytes beyond what may be read. Returns whether there is room.
    #[inline(always)]
    fn append(&self, end: &mut End, bytes: u64, bits: usize) -> bool {
        let (at, shift) = (end.len / WORD, end.len % WORD * 8);
        let Some([this, next, ..]) = self.words.get(at..) else {
            return false;
        };
        end.len += bits / 8;
        end.word |= bytes << shift;
        this.store(end.word, Ordering::Relaxed);
        if shift + bits >= u64::BITS as usize {
            // In two steps: all 64 bits at once are no shift at all.
            end.word = bytes >> 1 >> (63 - shift);
            next.store(end.word, Ordering::Relaxed);
        }
        true
    }

    /// The bytes that may be read.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// These bytes, which may be read.
    pub(super) fn bytes(&self, from: usize, to: usize) -> Vec<u8> {
        let words = &self.words[from / WORD..to.div_ceil(WORD)];
        let mut bytes = Vec::with_capacity(words.len() * WORD);
        for word in words {
            bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes.truncate(to - from / WORD * WORD);
        bytes.drain(..from % WORD);
        bytes
    }

    /// Empties it: its writer begins anew.
    pub(super) fn clear(&self) {
        self.len.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_can_be_read_from_and_to_anywhere() {
        let buffer = Buffer::new(256);
        let (mut end, mut all) = (End::default(), Vec::new());
        for n in 0u8.. {
            let record: Vec<u8> = (0..n % 21).map(|byte| byte ^ n).collect();
            let mut word = Word::default();
            word.put(&record);
            if !buffer.append_word(&mut end, &word) && !buffer.append_all(&mut end, &record) {
                break;
            }
            all.extend_from_slice(&record);
            assert_eq!(buffer.len(), all.len());
            for from in all.len().saturating_sub(20)..=all.len() {
                assert_eq!(buffer.bytes(from, all.len()), all[from..]);
            }
        }
        assert!(all.len() > 230, "{} bytes", all.len());
        buffer.clear();
        assert!(buffer.append_all(&mut End::default(), b"anew"));
        assert_eq!(buffer.bytes(0, 4), b"anew");
    }
}
