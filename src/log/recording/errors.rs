//! The errors of a file of chunks, and numbers for the kinds of I/O errors, which have none.

use std::io::{self, ErrorKind};

use super::VERSION;

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
    /// It is empty.
    #[error("the file is empty: its process wrote nothing, or it is no recording")]
    Empty,
    /// A later version of trapline wrote it.
    #[error(
        "the recording has version {0} of the format, and this trapline reads version {VERSION}: \
         read it with a later one"
    )]
    TooNew(u16),
    /// The rest was never written: the process that wrote it was killed, or still runs.
    #[error(
        "the recording ends at byte {offset}, before its end: its process was killed, or still runs"
    )]
    Truncated {
        /// The first byte of what is not complete.
        offset: u64,
    },
    /// The rest could not be written, because the disk was full, for example.
    #[error("the recording ends at byte {offset}, before its end: {}", unwritten(*.error))]
    Unwritten {
        /// The first byte of what is missing.
        offset: u64,
        /// The error of the write.
        error: ErrorKind,
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

/// Why the rest of a file was not written, in words.
pub(crate) fn unwritten(error: ErrorKind) -> String {
    match error {
        ErrorKind::StorageFull => "the disk was full".to_string(),
        ErrorKind::QuotaExceeded => "the quota of the disk was used up".to_string(),
        ErrorKind::FileTooLarge => "it had reached the largest size of a file".to_string(),
        other => format!("it could not be written: {other}"),
    }
}

/// By number. What is added goes to the end: the numbers are part of the format.
const KINDS: [ErrorKind; 39] = [
    ErrorKind::Other,
    ErrorKind::WouldBlock,
    ErrorKind::NotFound,
    ErrorKind::PermissionDenied,
    ErrorKind::ConnectionRefused,
    ErrorKind::ConnectionReset,
    ErrorKind::HostUnreachable,
    ErrorKind::NetworkUnreachable,
    ErrorKind::ConnectionAborted,
    ErrorKind::NotConnected,
    ErrorKind::AddrInUse,
    ErrorKind::AddrNotAvailable,
    ErrorKind::NetworkDown,
    ErrorKind::BrokenPipe,
    ErrorKind::AlreadyExists,
    ErrorKind::NotADirectory,
    ErrorKind::IsADirectory,
    ErrorKind::DirectoryNotEmpty,
    ErrorKind::ReadOnlyFilesystem,
    ErrorKind::StaleNetworkFileHandle,
    ErrorKind::InvalidInput,
    ErrorKind::InvalidData,
    ErrorKind::TimedOut,
    ErrorKind::WriteZero,
    ErrorKind::StorageFull,
    ErrorKind::NotSeekable,
    ErrorKind::QuotaExceeded,
    ErrorKind::FileTooLarge,
    ErrorKind::ResourceBusy,
    ErrorKind::ExecutableFileBusy,
    ErrorKind::Deadlock,
    ErrorKind::CrossesDevices,
    ErrorKind::TooManyLinks,
    ErrorKind::InvalidFilename,
    ErrorKind::ArgumentListTooLong,
    ErrorKind::Interrupted,
    ErrorKind::Unsupported,
    ErrorKind::UnexpectedEof,
    ErrorKind::OutOfMemory,
];

/// A kind's number; that of `Other` for a kind without a stable name.
pub(crate) fn number(kind: ErrorKind) -> u8 {
    let place = KINDS.iter().position(|&known| known == kind);
    place.unwrap_or(0) as u8
}

pub(super) fn kind(number: u8) -> Option<ErrorKind> {
    KINDS.get(usize::from(number)).copied()
}
