//! Reading a recording back.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

use super::{
    Context, Header, MAGIC, MAX_CHUNK, OwnedEvent, VERSION,
    decode::{Bytes, Record},
};

/// A recording that is read: its [`Header`], and then an iterator over its events.
///
/// The iterator ends after the first error. A recording whose end is missing, because the process
/// was killed or is still writing, gives all events of its complete chunks, and then
/// [`Error::Truncated`].
pub struct Recording {
    input: Box<dyn Read>,
    header: Header,
    context: Context,
    /// The chunk under way.
    payload: Vec<u8>,
    /// How much of it has been read.
    done: usize,
    /// Where in the input the chunk begins, and where the one after it does.
    begin: u64,
    end: u64,
    missing: u64,
    is_over: bool,
}

/// Why a recording could not be read, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It could not be read at all.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("this is no recording of trapline: it does not begin like one")]
    Foreign,
    /// A later version of trapline wrote it.
    #[error(
        "the recording has version {0} of the format, and this trapline reads version {VERSION}: \
         read it with a later one"
    )]
    TooNew(u16),
    /// The rest was never written: the process that wrote it was killed, or still runs.
    #[error(
        "the recording ends at byte {offset}, before its end: whoever wrote it was killed, or is \
         still at it"
    )]
    Truncated {
        /// The first byte of what is not complete.
        offset: u64,
    },
    /// It was damaged, or never was in order.
    #[error("the recording is damaged at byte {offset}: {what}")]
    Corrupt {
        /// The first byte of what makes no sense.
        offset: u64,
        /// The defect.
        what: &'static str,
    },
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
        let mut recording = Self {
            input: Box::new(input),
            header: Header::default(),
            context: Context::default(),
            payload: Vec::new(),
            done: 0,
            begin: 0,
            end: 0,
            missing: 0,
            is_over: false,
        };
        let magic = recording.read(MAGIC.len())?;
        if !MAGIC.starts_with(&magic) {
            return Err(Error::Foreign);
        }
        let version = recording.read(2)?;
        let Ok(version) = <[u8; 2]>::try_from(version).map(u16::from_le_bytes) else {
            return Err(Error::Truncated { offset: 0 });
        };
        match version {
            VERSION => {}
            0 => return Err(recording.corrupt(MAGIC.len() as u64, "version 0 of the format")),
            later => return Err(Error::TooNew(later)),
        }
        if !recording.next_chunk()? {
            return Err(Error::Truncated {
                offset: recording.begin,
            });
        }
        recording.header = Header::decode(Bytes(&recording.payload))
            .map_err(|what| recording.corrupt(recording.begin, what))?;
        recording.done = recording.payload.len();
        Ok(recording)
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

    /// The next event, or `None` at the end.
    fn record(&mut self) -> Result<Option<OwnedEvent>, Error> {
        loop {
            while self.done == self.payload.len() {
                if !self.next_chunk()? {
                    return Err(Error::Truncated { offset: self.begin });
                }
            }
            let mut bytes = Bytes(&self.payload[self.done..]);
            let record = self.context.record(&mut bytes);
            let left = bytes.0.len();
            // After the frame of the chunk.
            let offset = self.begin + 8 + self.done as u64;
            self.done = self.payload.len() - left;
            match record {
                Ok(Record::Event(event)) => return Ok(Some(event)),
                Ok(Record::Gap(missing)) => self.missing = self.missing.saturating_add(missing),
                Ok(Record::End) if left == 0 && self.read(1)?.is_empty() => return Ok(None),
                Ok(Record::End) => return Err(self.corrupt(offset, "there is more after its end")),
                Err(what) => return Err(self.corrupt(offset, what)),
            }
        }
    }

    /// Reads a chunk. Returns whether it was complete.
    fn next_chunk(&mut self) -> Result<bool, Error> {
        self.begin = self.end;
        let frame = self.read(8)?;
        let Ok(frame) = <[u8; 8]>::try_from(frame) else {
            return Ok(false);
        };
        let [a, b, c, d, e, f, g, h] = frame;
        let (len, sum) = (
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        );
        if len > MAX_CHUNK {
            return Err(self.corrupt(self.begin, "a chunk that is too long"));
        }
        self.payload = self.read(len as usize)?;
        self.done = 0;
        if self.payload.len() < len as usize {
            return Ok(false);
        }
        if crc32fast::hash(&self.payload) != sum {
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

    fn corrupt(&self, offset: u64, what: &'static str) -> Error {
        Error::Corrupt { offset, what }
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
            .field("offset", &(self.begin + self.done as u64))
            .finish_non_exhaustive()
    }
}
