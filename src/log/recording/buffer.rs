//! Bytes that one thread appends and any thread may read meanwhile.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::encode::Out;

const WORD: usize = size_of::<u64>();
const BITS: usize = 8 * WORD;
/// The words in a buffer. A constant, so that one comparison checks both indices of an append.
const WORDS: usize = 8 * 1024;

/// The bytes that its one writer has appended. A word holds eight, the first one lowest, so that
/// most records need one or two stores.
#[derive(Debug)]
pub(super) struct Buffer {
    words: Box<[AtomicU64; WORDS]>,
    /// The bits that may be read: whole records.
    bits: AtomicUsize,
}

/// The end of a buffer, where its writer goes on.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct End {
    bits: usize,
    /// The bytes of the last word, which is not full.
    word: u64,
}

/// A record of up to eight bytes, in a register. Of a longer one, only the length is right.
#[derive(Default)]
pub(super) struct Word {
    bytes: u64,
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
    /// The size in bytes. There is room for almost as many.
    pub(super) const BYTES: usize = WORDS * WORD;

    pub(super) fn new() -> Self {
        Self {
            words: Box::new([const { AtomicU64::new(0) }; WORDS]),
            bits: AtomicUsize::new(0),
        }
    }

    /// Appends a short record. Returns whether it is short and there was room.
    #[inline(always)]
    pub(super) fn append_word(&self, end: &mut End, record: &Word) -> bool {
        let is_put = record.bits <= BITS && self.append(end, record.bytes, record.bits);
        if is_put {
            self.bits.store(end.bits, Ordering::Release);
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
        self.bits.store(end.bits, Ordering::Release);
        true
    }

    /// Writes up to eight bytes beyond what may be read. Returns whether there is room.
    #[inline(always)]
    fn append(&self, end: &mut End, bytes: u64, bits: usize) -> bool {
        let (at, shift) = (end.bits / BITS, end.bits % BITS);
        if at >= WORDS - 1 {
            return false;
        }
        end.bits += bits;
        end.word |= bytes << shift;
        // In two steps: all 64 bits at once are no shift at all.
        let rest = bytes >> 1 >> (BITS - 1 - shift);
        // Both words, because a store costs less than a choice.
        self.words[at].store(end.word, Ordering::Relaxed);
        self.words[at + 1].store(rest, Ordering::Relaxed);
        if shift + bits >= BITS {
            end.word = rest;
        }
        true
    }

    /// The bytes that may be read.
    pub(super) fn len(&self) -> usize {
        self.bits.load(Ordering::Acquire) / 8
    }

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

    pub(super) fn clear(&self) {
        self.bits.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends a record of so many bytes. Returns whether there was room.
    fn append(buffer: &Buffer, end: &mut End, all: &mut Vec<u8>, len: u8) -> bool {
        let record: Vec<u8> = (0..len).map(|byte| byte ^ len).collect();
        let mut word = Word::default();
        word.put(&record);
        let is_put = buffer.append_word(end, &word) || buffer.append_all(end, &record);
        if is_put {
            all.extend_from_slice(&record);
        }
        assert_eq!(buffer.len(), all.len());
        is_put
    }

    #[test]
    fn what_is_appended_can_be_read_from_and_to_anywhere() {
        let buffer = Buffer::new();
        let (mut end, mut all) = (End::default(), Vec::new());
        for n in 0u8..21 {
            append(&buffer, &mut end, &mut all, n);
            for from in 0..=all.len() {
                assert_eq!(buffer.bytes(from, all.len()), all[from..]);
            }
        }
        let rest = (0..21).cycle();
        let count = rest.take_while(|n| append(&buffer, &mut end, &mut all, *n));
        assert!(count.count() > 6000);
        assert!(all.len() > Buffer::BYTES - 30, "{} bytes", all.len());
        assert_eq!(buffer.bytes(3, all.len()), all[3..]);
        buffer.clear();
        assert!(buffer.append_all(&mut End::default(), b"anew"));
        assert_eq!(buffer.bytes(0, 4), b"anew");
    }
}
