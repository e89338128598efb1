//! A pipe or a device that takes a recording. Its reader may be slow, and may stall.
//!
//! The kernel must not wait for an observer. So writes do not block, and what the reader has not
//! taken yet is kept, up to a bound. There the recorder waits for a second of silence. Then the
//! reader counts as stalled: until it takes bytes again, events are not kept, and a gap in the
//! recording has their number.

use std::{collections::VecDeque, io};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::{Errno, retry_on_intr},
};

use super::{
    chunks::chunk,
    decode::Bytes,
    place,
    wire::{self, Context, Record},
};

/// How many bytes are kept for the reader.
const ROOM: usize = 1 << 20;
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// After how many polls without a sign the reader counts as stalled.
const SILENCES: u32 = 10;

/// The task of a record that names none and follows records that were not kept.
const SAME_TASK: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Stream {
    file: place::Locked,
    kept: VecDeque<u8>,
    is_stalled: bool,
    /// The number of events that were not kept since the last that was.
    lost: u64,
    /// What the records that were not kept say about those that follow.
    lost_context: Context,
}

impl Stream {
    pub(super) fn new(file: place::Locked) -> io::Result<Self> {
        let flags = fcntl_getfl(&*file)?;
        fcntl_setfl(&*file, flags | OFlags::NONBLOCK)?;
        Ok(Self {
            file,
            kept: VecDeque::new(),
            is_stalled: false,
            lost: 0,
            lost_context: FRESH,
        })
    }

    /// Writes bytes as they are, or keeps them, however many they are.
    pub(super) fn put_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.kept.extend(bytes);
        self.push()
    }

    /// Writes whole records as a chunk, or keeps it. A stalled reader loses them.
    pub(super) fn put(&mut self, records: &[u8]) -> io::Result<()> {
        self.push()?;
        self.wait_for_room(records.len())?;
        if !self.has_room(records.len()) {
            self.lose(records);
            return Ok(());
        }
        let chunked = chunked(&self.after_lost(records));
        self.put_bytes(&chunked)
    }

    /// Writes the end, and waits until the reader has all of it, or `goes_on` returns `false`. It is
    /// asked every 100 ms, and whenever the reader has taken bytes.
    ///
    /// *Errors:* `TimedOut` if the wait was given up; the operating system's.
    pub(super) fn end(&mut self, goes_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
        let mut records = Vec::new();
        if self.lost > 0 {
            wire::gap(&mut records, self.lost);
            records = chunked(&records);
        }
        records.extend(chunked(&[wire::END]));
        self.put_bytes(&records)?;
        self.drain(goes_on)
    }

    /// Waits until the reader has taken everything, as [`Stream::end`] does.
    pub(super) fn drain(&mut self, goes_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
        while !self.kept.is_empty() {
            let takes = self.poll()?;
            self.push()?;
            if !self.kept.is_empty() && !goes_on() {
                let why = match takes {
                    true => "its reader is too slow",
                    false => "no process reads it",
                };
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
        Ok(())
    }

    fn has_room(&self, len: usize) -> bool {
        self.kept.is_empty() || self.kept.len() + len <= ROOM
    }

    fn wait_for_room(&mut self, len: usize) -> io::Result<()> {
        let mut silences = 0;
        while !self.has_room(len) && !self.is_stalled {
            silences += u32::from(!self.poll()?);
            self.is_stalled = silences == SILENCES;
            self.push()?;
        }
        Ok(())
    }

    /// Waits for the reader, briefly. Returns whether it takes bytes.
    fn poll(&self) -> io::Result<bool> {
        let mut asked = [PollFd::new(&*self.file, PollFlags::OUT)];
        Ok(retry_on_intr(|| poll(&mut asked, Some(&PATIENCE)))? > 0)
    }

    fn push(&mut self) -> io::Result<()> {
        while !self.kept.is_empty() {
            match retry_on_intr(|| rustix::io::write(&*self.file, self.kept.as_slices().0)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.kept.drain(..n);
                    self.is_stalled = false;
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn lose(&mut self, records: &[u8]) {
        let mut bytes = Bytes(records);
        while !bytes.0.is_empty() && self.lost_context.record(&mut bytes).is_ok() {
            self.lost += 1;
        }
    }

    /// The records, behind a gap for those that were not kept. The first of them gets the time and the
    /// task that they imply.
    fn after_lost(&mut self, records: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut bytes = Bytes(records);
        if self.lost > 0 {
            wire::gap(&mut out, self.lost);
            if let Ok(Record::Event(first)) = self.lost_context.record(&mut bytes) {
                { FRESH }.event(&mut out, &first);
            }
            (self.lost, self.lost_context) = (0, FRESH);
        }
        out.extend_from_slice(bytes.0);
        out
    }
}

/// The context of records of which none before is known.
const FRESH: Context = Context {
    tid: SAME_TASK,
    at: 0,
};

fn chunked(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    chunk(&mut out, payload);
    out
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{File, OpenOptions},
        io::{Cursor, Read},
        sync::mpsc,
        thread,
        time::Duration,
    };

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::{
        abi::Tid,
        log::{
            Event, Fact,
            recording::{Header, Recording, encode},
        },
    };

    /// A pipe, with a stream into it.
    fn pipe(test: &str) -> (File, Stream) {
        let path = std::env::temp_dir().join(format!("trapline-{test}-{}", std::process::id()));
        mknodat(CWD, &path, FileType::Fifo, Mode::from(0o600), 0).unwrap();
        let reader = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let stream = Stream::new(place::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        (reader, stream)
    }

    #[test]
    fn a_stalled_reader_loses_events_and_is_told_their_number() {
        let (mut reader, mut stream) = pipe("stalled");
        let head = encode::preamble(&Header::default()).unwrap();
        stream.put_bytes(&head).unwrap();
        let (mut context, mut put) = (Context::default(), 0);
        let mut events = |stream: &mut Stream, tid: u64, count: u64| {
            let mut records = Vec::new();
            for _ in 0..count {
                put += 1;
                let event = Event {
                    at: Duration::from_micros(put),
                    tid: Tid::from(tid),
                    fact: Fact::Reaped,
                    place: None,
                };
                context.event(&mut records, &event);
            }
            stream.put(&records).unwrap();
        };
        while !stream.is_stalled {
            events(&mut stream, 7, 10_000);
        }
        events(&mut stream, 7, 10_000);
        events(&mut stream, 8, 10_000);
        let lost = stream.lost;
        assert_eq!(lost, 30_000);
        // It reads again.
        let mut bytes = vec![0; stream.kept.len() + (1 << 16)];
        let mut read = 0;
        while !stream.kept.is_empty() {
            read += reader.read(&mut bytes[read..]).unwrap();
            stream.push().unwrap();
        }
        events(&mut stream, 8, 2);
        stream.end(&mut || true).unwrap();
        read += reader.read(&mut bytes[read..]).unwrap();
        bytes.truncate(read);
        let mut recording = Recording::from_reader(Cursor::new(bytes)).unwrap();
        let events: Vec<_> = recording.by_ref().map(Result::unwrap).collect();
        assert_eq!(recording.missing(), lost);
        assert_eq!(events.len() as u64 + lost, put);
        let of = |place: usize| (u64::from(events[place].tid), events[place].at.as_micros());
        let last = events.len() - 1;
        assert_eq!(of(last - 2), (7, u128::from(put - 2 - lost)));
        assert_eq!(of(last - 1), (8, u128::from(put - 1)), "behind the gap");
        assert_eq!(of(last), (8, u128::from(put)));
    }

    #[test]
    fn an_end_with_a_slow_reader_can_be_given_up() {
        let (mut reader, mut stream) = pipe("slow");
        stream.put_bytes(&vec![0; 1 << 25]).unwrap();
        let (end, ended) = mpsc::channel::<()>();
        // It takes a page as soon as the pipe is full.
        let drip = thread::spawn(move || {
            while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                let mut asked = [PollFd::new(&reader, PollFlags::OUT)];
                if poll(&mut asked, Some(&Timespec::default())).unwrap() == 0 {
                    reader.read_exact(&mut [0; 1 << 12]).unwrap();
                }
            }
        });
        let error = stream.end(&mut || false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(end);
        drip.join().unwrap();
    }

    #[test]
    fn an_end_without_a_reader_can_be_given_up() {
        let (_reader, mut stream) = pipe("unread");
        stream.put_bytes(&vec![0; 1 << 20]).unwrap();
        let mut asked = 0;
        let mut goes_on = || {
            asked += 1;
            asked < 3
        };
        let error = stream.end(&mut goes_on).unwrap_err();
        assert_eq!((error.kind(), asked), (io::ErrorKind::TimedOut, 3));
    }
}
