//! Damage to recordings and tapes, which have the same frame: by accident and by intent.

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};

use super::payloads;

/// Where the chunks begin, after the magic and the version.
const CHUNKS: usize = 10;
/// What is longer is not made longer still.
const LONG: usize = 1 << 14;

/// Numbers at which something may change, or which are one too many.
const EDGES: [u64; 16] = [
    0,
    1,
    0x7f,
    0x80,
    0x3fff,
    u16::MAX as u64,
    (1 << 20) - 1,
    1 << 20,
    32 << 20,
    (32 << 20) + 1,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 32,
    1 << 44,
    i64::MAX as u64,
    u64::MAX,
];

/// A source of damage.
pub(crate) struct Mutator(Pcg64);

impl Mutator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    /// What becomes of one of these recordings. Half of them have lost nothing but the sense of
    /// their records: their frames and checksums are in order.
    pub(crate) fn recording(&mut self, recordings: &[Vec<u8>]) -> Vec<u8> {
        let bytes = &recordings[self.below(recordings.len())];
        let other = &recordings[self.below(recordings.len())];
        if self.below(2) == 0 {
            self.damaged(bytes, other)
        } else {
            self.repaired(bytes, other)
        }
    }

    fn damaged(&mut self, bytes: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            match self.below(4) {
                0 => self.reframe(&mut bytes),
                _ => self.mutate(&mut bytes, other),
            }
        }
        bytes
    }

    fn repaired(&mut self, bytes: &[u8], other: &[u8]) -> Vec<u8> {
        let cut = |bytes: &[u8]| -> Vec<Vec<u8>> {
            let payloads = payloads(bytes).into_iter();
            payloads.map(|payload| bytes[payload].to_vec()).collect()
        };
        let (mut chunks, others) = (cut(bytes), cut(other));
        // Without a header nothing else is looked at.
        let first = usize::from(self.below(8) > 0);
        if self.below(4) == 0 {
            let mut rest = chunks.split_off(first);
            self.rearrange(&mut rest, &others[1..]);
            chunks.append(&mut rest);
        }
        for _ in 0..self.below(5) {
            if chunks.len() > first {
                let at = first + self.below(chunks.len() - first);
                let other = self.below(others.len());
                self.mutate(&mut chunks[at], &others[other]);
            }
        }
        let mut bytes = bytes[..CHUNKS].to_vec();
        for payload in chunks {
            bytes.extend((payload.len() as u32).to_le_bytes());
            bytes.extend(crc32fast::hash(&payload).to_le_bytes());
            bytes.extend(payload);
        }
        bytes
    }

    /// Damages bytes in any way.
    fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        match self.below(7) {
            0 => self.flip(bytes),
            1 => self.overwrite(bytes),
            2 => self.insert(bytes),
            3 => self.edge(bytes),
            4 => self.overlong(bytes),
            _ => self.rearrange(bytes, other),
        }
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        let (at, bit) = (self.below(bytes.len()), self.below(8));
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    /// Bytes of any kind, somewhere between.
    fn insert(&mut self, bytes: &mut Vec<u8>) {
        let new = self.0.next_u64().to_le_bytes();
        let (at, len) = (self.place(bytes), self.below(new.len() + 1));
        bytes.splice(at..at, new[..len].iter().copied());
    }

    /// A byte that may be the kind of something.
    fn overwrite(&mut self, bytes: &mut [u8]) {
        let (at, kind) = (self.below(bytes.len()), self.below(40) as u8);
        let bits = [0, 0x40, 0x80, 0xc0][self.below(4)];
        if let Some(byte) = bytes.get_mut(at) {
            *byte = kind | bits;
        }
    }

    /// A number at the edge, between bytes or in the place of some.
    fn edge(&mut self, bytes: &mut Vec<u8>) {
        let mut number = EDGES[self.below(EDGES.len())];
        let mut varint = Vec::new();
        while number >= 0x80 {
            varint.push(number as u8 | 0x80);
            number >>= 7;
        }
        varint.push(number as u8);
        let at = self.place(bytes);
        let end = bytes.len().min(at + self.below(3));
        bytes.splice(at..end, varint);
    }

    /// A number with more digits than it needs, or than any has.
    fn overlong(&mut self, bytes: &mut Vec<u8>) {
        let (at, len) = (self.place(bytes), 1 + self.below(11));
        let digit = [0x80, 0xff][self.below(2)];
        bytes.splice(at..at, std::iter::repeat_n(digit, len));
    }

    /// A frame that says something else of its length.
    fn reframe(&mut self, bytes: &mut [u8]) {
        let frames = payloads(bytes);
        let at = self.below(frames.len());
        let Some(begin) = frames.get(at).map(|payload| payload.start - 8) else {
            return;
        };
        let Some(len) = bytes[begin..].first_chunk_mut::<4>() else {
            return;
        };
        let old = u32::from_le_bytes(*len);
        let new = match self.below(4) {
            0 => old.wrapping_add(1),
            1 => old.wrapping_sub(1),
            _ => EDGES[self.below(EDGES.len())] as u32,
        };
        *len = new.to_le_bytes();
    }

    /// Cuts off, leaves out, repeats, or goes on as another does: bytes or chunks.
    fn rearrange<T: Clone>(&mut self, parts: &mut Vec<T>, other: &[T]) {
        let (a, b) = (self.place(parts), self.place(parts));
        let range = a.min(b)..a.max(b);
        match self.below(4) {
            0 => parts.truncate(a),
            1 => drop(parts.drain(range)),
            2 if parts.len() <= LONG => {
                let (again, at) = (parts[range].to_vec(), self.place(parts));
                parts.splice(at..at, again);
            }
            _ => {
                parts.truncate(a);
                parts.extend_from_slice(&other[self.place(other)..]);
            }
        }
    }

    /// Before one of them, or after the last.
    fn place<T>(&mut self, parts: &[T]) -> usize {
        self.below(parts.len() + 1)
    }

    /// A number below this one; 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end.max(1) as u64) as usize
    }
}
