//! Reading a recording back.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use super::{
    Error, Header, MAGIC, OwnedEvent, VERSION,
    chunks::Chunks,
    decode::Bytes,
    wire::{Context, Record},
};

/// A recording that is read: its [`Header`], and then an iterator over its events.
///
/// The iterator ends after the first error. If the process was killed or is still writing, it gives
/// all events of the complete chunks, and then [`Error::Truncated`]; [`Error::Unwritten`] where the
/// disk was full.
pub struct Recording {
    chunks: Chunks,
    header: Header,
    context: Context,
    missing: u64,
    is_over: bool,
}

impl Recording {
    /// Opens a file.
    ///
    /// *Errors:* as [`Recording::from_reader`]; and the operating system's.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::from_reader(BufReader::new(File::open(path)?))
    }

    /// Begins to read.
    ///
    /// *Errors:* [`Error::Foreign`] and [`Error::TooNew`] for what it cannot read;
    /// [`Error::Truncated`] and [`Error::Corrupt`] where the header is incomplete or damaged.
    pub fn from_reader(input: impl Read + 'static) -> Result<Self, Error> {
        let mut chunks = Chunks::open(input, MAGIC, VERSION)?;
        let header = Header::decode(Bytes(chunks.rest()));
        let header = header.map_err(|what| chunks.corrupt(chunks.begin(), what))?;
        chunks.skip();
        Ok(Self {
            chunks,
            header,
            context: Context::default(),
            missing: 0,
            is_over: false,
        })
    }

    /// The header, which describes the run.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The number of events that are missing before the last one that was read. A
    /// [`Recorder::last`](super::Recorder::last) keeps only the end of a run.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing
    }

    fn record(&mut self) -> Result<Option<OwnedEvent>, Error> {
        loop {
            self.chunks.fill()?;
            let mut bytes = Bytes(self.chunks.rest());
            let record = self.context.record(&mut bytes);
            let left = bytes.0.len();
            let offset = self.chunks.offset();
            self.chunks.leave(left);
            let what = match record {
                Ok(Record::Event(event)) => return Ok(Some(event)),
                Ok(Record::Gap(missing)) => {
                    self.missing = self.missing.saturating_add(missing);
                    continue;
                }
                Ok(Record::End) if left == 0 && self.chunks.is_over()? => return Ok(None),
                Ok(Record::End) => "there is more after its end",
                Err(what) => what,
            };
            return Err(self.chunks.corrupt(offset, what));
        }
    }
}

impl Iterator for Recording {
    type Item = Result<OwnedEvent, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.record().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording")
            .field("header", &self.header)
            .field("offset", &self.chunks.offset())
            .finish_non_exhaustive()
    }
}
