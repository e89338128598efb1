//! What ends a replay before its tape does, or a tape before its run.

use std::io::{self, ErrorKind};

use super::VERSION;
use crate::{
    abi::Tid,
    log::recording::{self, errors::unwritten},
    trap::Lack,
};

/// Why a tape could not be read, or a replay could not go on.
///
/// [`Kernel::run`](crate::Kernel::run) returns it as the source of an
/// [`Error::Io`](crate::Error::Io): [`Error::of`] finds it there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read at all.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is something else.
    #[error("this is no tape of trapline: it does not begin like one")]
    Foreign,
    /// The file is empty.
    #[error("the file is empty: its process wrote nothing, or it is no tape")]
    Empty,
    /// A later version of trapline wrote it.
    #[error(
        "the tape has version {0} of the format, and this trapline reads version {VERSION}: \
         replay it with a later one"
    )]
    TooNew(u16),
    /// The rest was never written: the process that wrote it was killed, or still runs.
    #[error("the tape ends at byte {offset}: its process was killed, or still runs")]
    Truncated {
        /// The first byte of what is not complete.
        offset: u64,
    },
    /// The rest could not be written, because the disk was full, for example.
    #[error("the tape ends at byte {offset}: {}", unwritten(*.error))]
    Unwritten {
        /// The first byte of what is missing.
        offset: u64,
        /// The error of the write.
        error: ErrorKind,
    },
    /// The tape reached the limit of its size.
    #[error("the tape ends at byte {offset}: it had reached its limit")]
    Full {
        /// Where the mark of the end is.
        offset: u64,
    },
    /// The file was damaged, or never was in order.
    #[error("the tape is damaged at byte {offset}: {what}")]
    Corrupt {
        /// The first byte of what makes no sense.
        offset: u64,
        /// The defect.
        what: &'static str,
    },
    /// The program did something else than during the run on the tape.
    #[error(transparent)]
    Left(#[from] Box<Left>),
}

/// Where a replay left its tape: the program is another one, or it used something that the tape
/// does not hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the replay leaves its tape at byte {offset}: {} asks for {asked}, and the tape has {found}",
    at(*.task))]
#[non_exhaustive]
pub struct Left {
    /// The byte of the tape.
    pub offset: u64,
    /// The task that ran; [`Tid::KERNEL`] for the kernel's own questions.
    pub task: Tid,
    /// What the program asked for.
    pub asked: String,
    /// What the tape has.
    pub found: String,
}

fn at(task: Tid) -> String {
    match task {
        Tid::KERNEL => "the kernel".to_string(),
        task => format!("task {task}"),
    }
}

impl Left {
    /// Whether the replay needs a message of another kernel or thread, which has not put it again.
    #[must_use]
    pub fn lacks_mail(&self) -> bool {
        [Lack::NOT_PUT, Lack::NOT_PUT_OR_HELD].contains(&&*self.found)
    }
}

impl Error {
    /// The error behind that of a run, if a tape has ended the run.
    ///
    /// ```
    /// use trapline::{Error, tape};
    ///
    /// fn explain(error: &Error) {
    ///     if let Some(tape::Error::Left(left)) = tape::Error::of(error) {
    ///         println!("task {} did something else", left.task);
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<io::Error>() {
                return found.get_ref()?.downcast_ref();
            }
            next = error.source();
        }
        None
    }

    /// Returns whether the tape ended before its run: what it has was played.
    #[must_use]
    pub fn is_short(&self) -> bool {
        match self {
            Self::Truncated { .. } | Self::Unwritten { .. } | Self::Full { .. } => true,
            Self::Io(_)
            | Self::Foreign
            | Self::Empty
            | Self::TooNew(_)
            | Self::Corrupt { .. }
            | Self::Left(_) => false,
        }
    }

    pub(super) fn left(offset: u64, task: Tid, asked: String, found: String) -> Self {
        Self::Left(Box::new(Left {
            offset,
            task,
            asked,
            found,
        }))
    }

    /// As an error of a world.
    pub(super) fn into_io(self) -> io::Error {
        match self {
            Self::Io(error) => error,
            short if short.is_short() => io::Error::new(ErrorKind::UnexpectedEof, short),
            other => io::Error::new(ErrorKind::InvalidData, other),
        }
    }
}

impl From<recording::Error> for Error {
    fn from(broken: recording::Error) -> Self {
        match broken {
            recording::Error::Io(error) => Self::Io(error),
            recording::Error::Foreign => Self::Foreign,
            recording::Error::Empty => Self::Empty,
            recording::Error::TooNew(version) => Self::TooNew(version),
            recording::Error::Truncated { offset } => Self::Truncated { offset },
            recording::Error::Unwritten { offset, error } => Self::Unwritten { offset, error },
            recording::Error::Corrupt { offset, what } => Self::Corrupt { offset, what },
        }
    }
}
