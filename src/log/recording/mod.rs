//! Recordings: an event log in a file, which outlives the process that wrote it.
//!
//! A [`Recorder`] is a tracer that writes; a [`Recording`] reads the same events.
//!
//! | file | owns |
//! |---|---|
//! | `mod.rs` | [`Header`], and the format |
//! | `recorder.rs` | [`Recorder`], [`Handle`] |
//! | `ring.rs` | the last events, in memory |
//! | `chunks.rs` | the frame of a file: its version, chunks and checksums |
//! | `growing.rs` | a file of chunks that is written |
//! | `stream.rs` | a pipe that is written, whose reader may stall |
//! | `buffer.rs` | bytes that one thread appends and any thread reads |
//! | `place.rs` | the file: its lock and its mode |
//! | `wire.rs` | events as bytes, and back |
//! | `encode.rs`, `decode.rs` | numbers, texts and headers as bytes, and back |
//! | `errors.rs` | [`Error`], and numbers for the kinds of I/O errors |
//! | `reader.rs` | [`Recording`] |
//!
//! ```
//! use trapline::{Kernel, Os, record::{Header, Recorder, Recording}};
//!
//! let path = std::env::temp_dir().join(format!("trapline-doc-{}.trap", std::process::id()));
//! let recorder = Recorder::create(&path, &Header::default())?;
//! let handle = recorder.handle();
//! let mut kernel = Kernel::builder().tracer(recorder).build()?;
//! kernel.spawn("quiet", async |os: &mut Os| os.yield_now().await)?;
//! kernel.run()?;
//! handle.close()?;
//!
//! let facts: Vec<String> = Recording::open(&path)?
//!     .map(|event| Ok(event?.fact.to_string()))
//!     .collect::<Result<_, trapline::record::Error>>()?;
//! assert_eq!(facts[2], "trapped yield()");
//! assert_eq!(facts.last().unwrap(), "reaped");
//! # std::fs::remove_file(path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The format
//!
//! Numbers are LEB128 varints of 64 bits unless their width is given; those are little-endian. A
//! text is its length in bytes, then UTF-8; one of more than 16 MiB is cut.
//!
//! | part | bytes |
//! |---|---|
//! | magic | `89 54 52 41 50 4C 4E 0A` (`\x89TRAPLN\n`) |
//! | version | u16: 1 |
//! | chunk, again and again | length of the payload: u32, at most 32 MiB; CRC-32 (IEEE) of the payload: u32; the payload |
//!
//! A chunk of length 0 says that there is no more. Its checksum is 0 if the file was not ended: its
//! process was killed, or still runs. Otherwise the rest could not be written, and it is one more
//! than the number of the error's kind.
//!
//! The payload of the first chunk is the header: the number of words in the command line (2^20 at
//! most) and each as a text, the seed, the policy as a text, the quantum, the world (a byte: 0
//! real, 1 simulated), trapline's version as a text. The number of the kernel and how many there are follow,
//! if several run side by side. What may follow is for later versions, and to be passed over.
//!
//! The payload of every other chunk is whole records. A record begins with a byte: its kind in the
//! low six bits, 0x40 if the number of its task follows (otherwise it is that of the record
//! before, at first 0), 0x80 if after that the nanoseconds since the record before follow
//! (otherwise it is the same instant, at first 0; modulo 2^64). Then, by kind:
//!
//! | kind | record | content |
//! |---|---|---|
//! | 0 | spawned | parent, name |
//! | 1 | resumed | |
//! | 2 | trapped | call, a byte: its [number][call], 0x80 if a detail follows; argument; detail |
//! | 3 | replied | reply, a byte: its [number][reply], 0x80 if a detail follows; argument; detail |
//! | 4 | blocked | on, a byte: 0 exit, 1 timer, 2 to be read, 3 to be written, 4 put, 5 get, 6 a select; task, instant, device, queue or how many sources |
//! | 5 | woken | by, a byte: 0 exit, 1 timer, 2 to be read, 3 to be written, 4 closed, 5 queue, 6 timeout; task, device, queue or nothing |
//! | 6 | device I/O | a byte: 1 for writing, 2 for an error; device; how many bytes, or the error's kind |
//! | 7 | console | text |
//! | 8 | exited | exit |
//! | 9 | reaped | |
//! | 10 | clock jumped | from when, in nanoseconds |
//! | 11 | gap | how many events were not kept at this place |
//! | 12 | end | nothing may follow |
//! | 13 | deferred | call, as of kind 2 |
//! | 14 | deadlocked | the number of tasks in the cycle, and each of them |
//! | 15 | injected | a byte: 0 an error, 1 a delay, 2 a kill; the error's kind or the nanoseconds |
//! | 16 | place | of the next record: the file, the line, the functions under way (all but the line are texts) |
//! | 17 | fault | text |
//! | 18 | computing | the processor |
//! | 19 | preempted | what is left of the computation, in nanoseconds |
//! | 20 | signalled | a byte: 0 SIGINT, 1 SIGTERM, 2 SIGHUP, 3 SIGUSR1, 4 SIGUSR2 |
//! | 22 | limited | text |
//! | 23 | accessed | the number of the shared value; its name; a byte: 1 if it was changed |
//!
//! Calls and replies have their numbers from the tables in `src/abi.rs`. A number never changes and
//! is never used again. A reader refuses a number that it does not know.
//!
//! A queue is its number and its place. An exit is a byte (0 done, 1 failed, 2 faulted, 3 killed)
//! and, for 1 and 2, a text. A detail is a byte and its content: 0 nothing, 1 a name, 2 an IPv4
//! address (4 bytes, port: u16), 3 an IPv6 address (16 bytes, port: u16, flow information: u32,
//! scope: u32), 4 a length, 5 an exit, 6 a count, 7 an I/O error (its kind, a byte; text), 8 a
//! kind of object and its name (two texts), 9 the sources of a select (how many; each is a byte as of kind
//! 4, or 6 for a span and 7 for permits of a queue and how many), 10 a length and an offset, 11 two texts of a
//! disk, 12 a message of a mailbox (the number of the kernel that put it, and of the post there). The kinds of I/O errors are numbered in the order of a table in `src/log/recording/errors.rs`.
//!
//! This module uses the ABI and the event log.
//!
//! [call]: crate::SystemCall::number
//! [reply]: crate::Reply::number

mod buffer;
pub(crate) mod chunks;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod errors;
pub(crate) mod growing;
pub(crate) mod place;
mod reader;
mod recorder;
mod ring;
mod stream;
pub(crate) mod wire;

use crate::abi::KernelId;

pub use super::event::OwnedEvent;
pub use errors::Error;
pub use reader::Recording;
pub use recorder::{Handle, Recorder};

const MAGIC: [u8; 8] = *b"\x89TRAPLN\n";
/// The version of the format that is written, and the latest that is read.
const VERSION: u16 = 1;
/// The longest text that is written. A record has two at most, apart from those of its place, and
/// must fit in a chunk.
const MAX_TEXT: usize = chunks::MAX_CHUNK as usize / 2 - 1024 - MAX_PLACE;
const MAX_PLACE: usize = 16 * 1024;

/// The longest command line that is written and read, in words: more than any system passes on.
const MAX_WORDS: usize = 1 << 20;

/// The description of a run, at the start of its recording.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Header {
    /// The command line: the program and its arguments.
    pub command: Vec<String>,
    /// The seed of the world's random numbers.
    pub seed: u64,
    /// The scheduling policy.
    pub policy: String,
    /// The quantum: the most ticks in a turn.
    pub quantum: u32,
    /// True if the world was simulated.
    pub is_simulated: bool,
    /// The version of trapline that wrote it.
    pub version: String,
    /// The number of the kernel among those that run side by side, and how many there are; `None` for a
    /// kernel alone.
    pub kernel: Option<(KernelId, usize)>,
}

/// A run of an unknown program by this version of trapline: first in, first out, turns of one tick,
/// in the real world, with seed 0.
impl Default for Header {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            seed: 0,
            policy: "fifo".to_string(),
            quantum: 1,
            is_simulated: false,
            version: env!("CARGO_PKG_VERSION").to_string(),
            kernel: None,
        }
    }
}
