//! Tapes: what a world answered during a run, in a file. A kernel that gets the same answers runs
//! the same way again.
//!
//! [`Taping`] is a world around another one. It writes down every answer. [`Playing`] is a world
//! that answers from the file. This file has the format.
//!
//! ```
//! use trapline::{Kernel, Os, RealWorld, tape::{Header, Playing, Taping}};
//!
//! async fn dice(os: &mut Os) {
//!     let (number, now) = (os.random().await, os.now().await);
//!     writeln!(os, "{number} at {now:?}");
//! }
//!
//! let path = std::env::temp_dir().join(format!("trapline-doc-{}.tape", std::process::id()));
//! let world = Taping::create(RealWorld::new()?, &path, &Header::default(), None)?;
//! let writer = world.writer();
//! let mut kernel = Kernel::builder().world(world).capture_console().build()?;
//! kernel.spawn("dice", dice)?;
//! kernel.run()?;
//! writer.close()?;
//! let printed = kernel.take_console();
//!
//! let world = Playing::open(&path)?;
//! let progress = world.progress();
//! let mut kernel = Kernel::builder().world(world).capture_console().build()?;
//! kernel.spawn("dice", dice)?;
//! kernel.run()?;
//! assert_eq!(kernel.take_console(), printed);
//! progress.finish()?; // nothing is left on the tape
//! # std::fs::remove_file(path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a tape holds
//!
//! Readings of the clock, reports of devices, accepted peers, received bytes, the results of sends,
//! interrupts, signals, completed jobs, mail of other kernels, the results of operations on the disk with the bytes that were
//! read, and the seed. It does not hold what a program sends, prints or writes to the disk: the
//! replay computes that again. Of what is written it holds a checksum.
//!
//! # What a tape does not see
//!
//! - What a program does behind the kernel: its own clock (`SystemTime::now`), its own randomness,
//!   a file that it reads, an environment variable, a static, I/O on the value behind a
//!   [`Device`](crate::Device). A replay does these things again, with whatever they give then.
//! - The work of [`Os::run_blocking`](crate::Os::run_blocking). A replay does it again, on the
//!   kernel's thread, when the tape reports its completion. Its [`pause`](crate::pause())s take no
//!   time. With the feature `serde`, `Os::run_recorded` puts the value of the work on the tape
//!   instead.
//! - The values of mail. A tape has which put of which kernel each message was. So kernels that are
//!   replayed together take the same mail, and a thread of the program sends its own again. With the
//!   feature `serde`, `Mailbox::recorded` puts the values on the tape, and its kernel is replayed alone.
//!   The results of [`Sender::try_put`](crate::Sender::try_put) are not on it.
//! - What the host does between two runs, and the readings of [`Kernel::now`](crate::Kernel::now).
//! - The exact times of events, which a tracer can ask for
//!   ([`Tracer::is_exact`](crate::Tracer::is_exact)). In a replay an event has the time at which
//!   the kernel last read the clock.
//! - Daemons and tracers. They may differ between the two runs. A daemon of a replay reaches the
//!   real world. A daemon must not kill a task of a taped run: the tape does not hold the kill. So
//!   `boot --tape` and `replay` refuse the kills of a monitor and of a screen.
//!
//! A replay whose program asks for something else than the tape has ends with [`Left`]. It says at
//! which task and call that was.
//!
//! # The format
//!
//! The frame is that of a recording ([`mod@crate::record`]): a magic number
//! (`89 54 54 41 50 45 4E 0A`, `\x89TTAPEN\n`), a version (u16: 1), and chunks with checksums. The
//! first chunk is the header of a recording. The others hold entries, in the order in which the
//! kernel asked. Numbers, texts and addresses are those of a recording.
//!
//! An entry begins with a byte. If bit 7 is set, it is a reading of the clock: the low six bits of
//! the nanoseconds since the reading before, and if bit 6 is set a number with the bits above them
//! (modulo 2^64). Otherwise the low five bits are its kind.
//!
//! | kind | entry | bits 5 and 6 | content |
//! |---|---|---|---|
//! | 0 | the end | | |
//! | 1 | the end at the limit of the tape | | |
//! | 2 | the seed, from here on | | number |
//! | 3 | a wait | how many reports; 3: their number follows | reports |
//! | 4 | a wait for threads | the same | reports; how long it took, in nanoseconds |
//! | 5 | a wait that failed | the same | reports; error |
//! | 6 | a random number or a choice | 1: another than the seed gives | that number |
//! | 7 | whether nothing outside can report | 1: true | |
//! | 8 | text for the console | 2: not as a whole | how many bytes; result |
//! | 9 | work for a thread | 1: it was done in place | |
//! | 10 to 30 | a request, in the order of a table in `entry.rs` | 1: a device follows, otherwise it is that of the request before; 2: a result follows | see below |
//! | 31 | a later request of the table: a byte has its place there | the same | see below |
//!
//! A report is a number. Its low two bits are 0 for a device that can be read and 1 for one that
//! can be written, with the device above them; 2 for a queue that a thread has closed, with its
//! number above them and its slot as another number; 3 for the others: 0 the console, 1 a shutdown,
//! 2 and 3 a remote setter or a job that is over, 4 to 8 a signal: SIGINT, SIGTERM, SIGHUP, SIGUSR1 or
//! SIGUSR2, 9 a mailbox that is over, 63 mail, with a queue as for 2 in two more numbers.
//!
//! A request that begins an operation on the disk has its place in a table of `on_disk.rs` (a byte), the
//! bytes that it moves, and a checksum (CRC-32) of its names, its offset and its bytes, each behind its
//! length in eight bytes. The result of one has a number and bytes as numbers of their own; a result
//! without a number is another success than usual.
//!
//! Mail is a request that receives bytes. For a put they are one: 0 for done, 1 for full, 2 for closed; for
//! the end of a wait for room 0 or 2. For messages they are a byte, 1 if no more come, and of each message
//! three words of eight bytes, the low byte first: the kernel that has put it (0 for a thread), the number
//! of its put, and the length of its value and one more, or 0 without a value. The value follows.
//!
//! A request to send has the length of what is sent before its result. A result is a byte: 0 is
//! another success than usual (fewer bytes than were sent, `false`, or a peer without an address); 1 is `WouldBlock`; 2 is an
//! error of the operating system, with its number; 3 is an error's kind (a byte); 4 is an error's
//! kind and its text. After a success follow the bytes that were received (their number first), the
//! address of a listener or a peer, or the addresses of a name (the number of their bytes first). A
//! datagram has the address of its sender before its bytes; their number counts both.

mod entry;
mod error;
mod io_error;
mod on_disk;
mod playing;
mod received;
mod reel;
mod taping;
mod writer;

pub use error::{Error, Left};
pub use playing::Playing;
pub use reel::Progress;
pub use taping::Taping;
pub use writer::Writer;

pub use crate::log::recording::Header;

/// How a tape begins.
const MAGIC: [u8; 8] = *b"\x89TTAPEN\n";
/// The version of the format that is written, and the latest that is read.
const VERSION: u16 = 1;

/// The kinds of entries that are no requests, and the flags in an entry's first byte.
mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const FULL: u8 = 1;
    pub(super) const SEED: u8 = 2;
    pub(super) const WAIT: u8 = 3;
    pub(super) const WAIT_FOR_THREADS: u8 = 4;
    pub(super) const WAIT_FAILED: u8 = 5;
    pub(super) const RANDOM: u8 = 6;
    pub(super) const IDLE: u8 = 7;
    pub(super) const PRINT: u8 = 8;
    pub(super) const SUBMIT: u8 = 9;
    /// The first kind of a request.
    pub(super) const REQUEST: u8 = 10;

    /// A request whose place in the table follows as a byte: that of its kind would be this one or a
    /// later one.
    pub(super) const ESCAPE: u8 = 31;

    /// The bits of the kind.
    pub(super) const KIND: u8 = 0x1f;
    pub(super) const FIRST_FLAG: u8 = 0x20;
    pub(super) const SECOND_FLAG: u8 = 0x40;
    /// A reading of the clock.
    pub(super) const NOW: u8 = 0x80;
}
