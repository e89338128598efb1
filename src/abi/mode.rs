//! For what a file is opened.

use std::fmt;

/// For what a file is opened: [`Disk::open`](crate::Disk::open).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// To read an existing file.
    Read,
    /// To read and to write anywhere. A file that does not exist is created.
    Write,
    /// To read, to append and to truncate, as a log. A file that does not exist is created. A write at
    /// an offset fails, so what was appended is not overwritten.
    Append,
    /// As [`Mode::Write`], by one task or process at a time: while the file is open in this mode, another
    /// open in it fails with `ResourceBusy`. Opens in other modes succeed. The operating system frees the
    /// file when its process ends, however that ends.
    Exclusive,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Append => "append",
            Self::Exclusive => "exclusive",
        })
    }
}
