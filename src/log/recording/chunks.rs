//! The frame of a file: a magic number, the version of its format, and chunks with checksums.

use std::io::{ErrorKind, Read};

use super::{Error, errors};

/// The longest payload of a chunk that is read.
pub(crate) const MAX_CHUNK: u32 = 32 << 20;

pub(crate) const FRAME: usize = 8;

/// Appends a chunk. Its payload is shorter than 4 GiB.
pub(super) fn chunk(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend(frame(payload.len(), crc32fast::hash(payload)));
    out.extend_from_slice(payload);
}

/// What comes before the payload of a chunk: its length and its checksum.
pub(super) fn frame(len: usize, sum: u32) -> [u8; FRAME] {
    (u64::from(sum) << 32 | u64::from(len as u32)).to_le_bytes()
}

/// The frame that ends a file because of an error.
pub(super) fn cut_frame(error: ErrorKind) -> [u8; FRAME] {
    frame(0, 1 + u32::from(errors::number(error)))
}

pub(crate) struct Chunks {
    input: Box<dyn Read>,
    payload: Vec<u8>,
    done: usize,
    /// Where in the input the chunk begins, and where the one after it does.
    begin: u64,
    end: u64,
}

impl Chunks {
    /// Checks the magic number and the version, and reads the first chunk.
    pub(crate) fn open(
        input: impl Read + 'static,
        magic: [u8; 8],
        version: u16,
    ) -> Result<Self, Error> {
        let mut chunks = Self {
            input: Box::new(input),
            payload: Vec::new(),
            done: 0,
            begin: 0,
            end: 0,
        };
        match &chunks.read(magic.len())?[..] {
            [] => return Err(Error::Empty),
            begin if !magic.starts_with(begin) => return Err(Error::Foreign),
            _ => {}
        }
        let found = chunks.read(2)?;
        let Ok(found) = <[u8; 2]>::try_from(found).map(u16::from_le_bytes) else {
            return Err(Error::Truncated { offset: 0 });
        };
        match found {
            0 => return Err(chunks.corrupt(magic.len() as u64, "version 0 of the format")),
            later if later > version => return Err(Error::TooNew(later)),
            _ => {}
        }
        if !chunks.next_chunk()? {
            return Err(Error::Truncated {
                offset: chunks.begin,
            });
        }
        Ok(chunks)
    }

    pub(crate) fn rest(&self) -> &[u8] {
        &self.payload[self.done..]
    }

    /// Notes how many bytes of the chunk are left to be read.
    pub(crate) fn leave(&mut self, left: usize) {
        self.done = self.payload.len() - left;
    }

    pub(crate) fn skip(&mut self) {
        self.leave(0);
    }

    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    /// Where the next byte is that [`Chunks::rest`] gives.
    pub(crate) fn offset(&self) -> u64 {
        self.begin + (FRAME + self.done) as u64
    }

    /// Reads chunks until one has something left to be read.
    pub(crate) fn fill(&mut self) -> Result<(), Error> {
        while self.done == self.payload.len() {
            if !self.next_chunk()? {
                return Err(Error::Truncated { offset: self.begin });
            }
        }
        Ok(())
    }

    /// Whether nothing follows the chunk under way.
    pub(crate) fn is_over(&mut self) -> Result<bool, Error> {
        Ok(self.read(1)?.is_empty())
    }

    pub(crate) fn corrupt(&self, offset: u64, what: &'static str) -> Error {
        Error::Corrupt { offset, what }
    }

    /// Why the file ends here, as its writer has noted.
    fn unwritten(&self, number: u32) -> Error {
        let error = u8::try_from(number).ok().and_then(errors::kind);
        let offset = self.begin;
        error.map_or_else(
            || self.corrupt(offset, "an error of an unknown kind"),
            |error| Error::Unwritten { offset, error },
        )
    }

    /// Reads a chunk. Returns whether it was complete.
    fn next_chunk(&mut self) -> Result<bool, Error> {
        self.begin = self.end;
        let frame = self.read(FRAME)?;
        let Ok(frame) = <[u8; FRAME]>::try_from(frame) else {
            return Ok(false);
        };
        let frame = u64::from_le_bytes(frame);
        let (len, sum) = (frame as u32, (frame >> 32) as u32);
        if len == 0 {
            self.payload.clear();
            self.done = 0;
            // Zeros end a file that is still written.
            let number = sum.checked_sub(1);
            return number.map_or(Ok(false), |number| Err(self.unwritten(number)));
        }
        if len > MAX_CHUNK {
            return Err(self.corrupt(self.begin, "a chunk that is too long"));
        }
        self.payload = self.read(len as usize)?;
        self.done = 0;
        if self.payload.len() < len as usize {
            // What is there of it is not checked.
            self.payload.clear();
            return Ok(false);
        }
        if crc32fast::hash(&self.payload) != sum {
            self.payload.clear();
            return Err(self.corrupt(self.begin, "a chunk that does not match its checksum"));
        }
        Ok(true)
    }

    /// Reads this number of bytes, or fewer at the end of the input.
    fn read(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        (&mut self.input).take(len as u64).read_to_end(&mut bytes)?;
        self.end += bytes.len() as u64;
        Ok(bytes)
    }
}
