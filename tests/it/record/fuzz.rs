//! The reader under a fuzzer: whatever becomes of a recording, it gives events and then an end or
//! an error.
//!
//! A few cases, always the same, unless `TRAPLINE_FUZZ_SECONDS` says for how long. Then they begin
//! at a seed that is printed. Each case has a seed of its own, one more than that of the case
//! before, so `TRAPLINE_FUZZ_SEED` can begin with one that failed.

use std::{
    collections::{BTreeSet, HashSet},
    env,
    hash::{BuildHasher, RandomState},
    io::{self, Cursor, Read},
    iter,
    mem::discriminant,
    panic::{self, AssertUnwindSafe},
    time::{Duration, Instant},
};

use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::TestRunner,
};
use trapline::{
    Tracer,
    record::{Error, Header, OwnedEvent, Recorder, Recording},
};

use super::{Scratch, anything, mutator::Mutator, recorded};
use crate::log::everything;

/// How many cases there are, if it is not said for how long.
const CASES: u64 = 1000;
/// How many recordings they are made of, besides that of a run.
const RECORDINGS: usize = 12;
/// How many events each of these has.
const EVENTS: usize = 40;

#[test]
fn no_mutation_confuses_the_reader() {
    let recordings = recordings();
    let mut found = Found::default();
    let is_short = fuzz(CASES, |seed| {
        found.read(Mutator::new(seed).recording(&recordings));
    });
    println!("{found:#?}");
    assert!(
        !is_short || found.wrong.contains("an unknown reply") && found.whole > 0,
        "what is behind the checksums is not reached"
    );
}

/// Runs cases, each with its seed: so many, or those of the environment. Returns whether the number
/// decided.
pub(crate) fn fuzz(cases: u64, mut case: impl FnMut(u64)) -> bool {
    let time = number("TRAPLINE_FUZZ_SECONDS").map(Duration::from_secs);
    let any = || RandomState::new().hash_one(()) >> 32;
    let first = number("TRAPLINE_FUZZ_SEED").unwrap_or_else(|| time.map_or(0, |_| any()));
    println!("fuzzing from seed {first} on");
    let (mut seed, begin) = (first, Instant::now());
    while time.map_or(seed - first < cases, |time| begin.elapsed() < time) {
        if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| case(seed))) {
            println!("to begin with what failed: TRAPLINE_FUZZ_SEED={seed}");
            panic::resume_unwind(panic);
        }
        seed += 1;
    }
    println!("{} cases", seed - first);
    time.is_none()
}

/// A number in the environment, if it is there.
fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().expect("it is a whole number"))
}

/// Recordings with every kind of event: of a run, and of what can happen at all. All are the same
/// every time, as those are that are written at once.
fn recordings() -> Vec<Vec<u8>> {
    let file = Scratch::new("fuzz");
    let begin = |size| Recorder::last(size, &file.0, &Header::default()).unwrap();
    let mut recordings = Vec::new();
    // The second has a gap, and a chunk for what led to the first fault.
    for size in [1_000, 5] {
        recorded(begin(size), async |os| {
            let _ = everything(os).await;
        });
        recordings.push(file.bytes());
    }
    let mut random = TestRunner::deterministic();
    let event = || anything::event().new_tree(&mut random).unwrap().current();
    let events: Vec<_> = iter::repeat_with(event).take(RECORDINGS * EVENTS).collect();
    let kinds = events.iter().map(|event| discriminant(&event.fact));
    assert_eq!(kinds.collect::<HashSet<_>>().len(), 17, "all there are");
    for events in events.chunks(EVENTS) {
        let mut recorder = begin(EVENTS);
        for event in events {
            recorder.event(event);
        }
        recorder.handle().close().unwrap();
        recordings.push(file.bytes());
    }
    recordings
}

/// What the cases came to.
#[derive(Default, Debug)]
struct Found {
    /// How many recordings were read to their end.
    whole: u64,
    events: u64,
    gaps: u64,
    foreign: u64,
    too_new: u64,
    truncated: u64,
    corrupt: u64,
    /// All that was wrong with those.
    wrong: BTreeSet<&'static str>,
}

impl Found {
    /// Reads any bytes, and checks what is promised of that.
    fn read(&mut self, bytes: Vec<u8>) {
        let len = bytes.len();
        let input = Input {
            bytes: Cursor::new(bytes),
            ends: 0,
        };
        let mut recording = match Recording::from_reader(input) {
            Ok(recording) => recording,
            Err(error) => return self.note(&error, len),
        };
        let (mut events, mut error) = (Vec::new(), None);
        for event in &mut recording {
            assert!(error.is_none(), "there is more after an error");
            match event {
                Ok(event) => events.push(event),
                Err(e) => error = Some(e),
            }
            assert!(events.len() <= len, "each takes a byte at least");
        }
        assert!(recording.next().is_none(), "there is more after the end");
        match error {
            Some(error) => self.note(&error, len),
            None => self.whole += 1,
        }
        self.events += events.len() as u64;
        self.gaps += u64::from(recording.missing() > 0);
        again(recording.header(), &events);
    }

    fn note(&mut self, error: &Error, len: usize) {
        let offset = match error {
            Error::Foreign => return self.foreign += 1,
            Error::TooNew(_) => return self.too_new += 1,
            Error::Truncated { offset } => {
                self.truncated += 1;
                *offset
            }
            Error::Corrupt { offset, what } => {
                self.corrupt += 1;
                self.wrong.insert(what);
                *offset
            }
            error => panic!("there is no other error in memory: {error}"),
        };
        assert!(offset <= len as u64, "of {len} bytes: {error}");
    }
}

/// What was read can be shown, recorded, and read again.
fn again(header: &Header, events: &[OwnedEvent]) {
    for size in [events.len(), 3] {
        let mut recorder = Recorder::in_memory(size, header).unwrap();
        for event in events {
            assert!(!event.to_string().is_empty());
            recorder.event(event);
        }
        let mut recording = recorder.handle().recording().expect("it is in memory");
        assert_eq!(recording.header(), header);
        let read: Vec<OwnedEvent> = (&mut recording).map(Result::unwrap).collect();
        let last = size.min(events.len());
        assert_eq!(read[read.len() - last..], events[events.len() - last..]);
        let all = events.len() as u64;
        assert_eq!(read.len() as u64 + recording.missing(), all);
    }
}

/// Bytes that are not asked for again and again once there are no more: that would be for ever.
struct Input {
    bytes: Cursor<Vec<u8>>,
    ends: u32,
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.bytes.read(buf)?;
        self.ends += u32::from(n == 0 && !buf.is_empty());
        assert!(self.ends < 10, "it is over");
        Ok(n)
    }
}
