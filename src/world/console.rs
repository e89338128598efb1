//! The console of a world that does not print to standard output.

use std::io::{Result, Write};

/// Where what is printed goes.
pub(super) enum Console {
    Kept(Vec<u8>),
    /// Somewhere else, which may block.
    Sink(Box<dyn Write>),
}

impl Console {
    pub(super) fn print(&mut self, text: &[u8]) -> Result<usize> {
        match self {
            Self::Kept(kept) => kept.extend_from_slice(text),
            Self::Sink(sink) => {
                sink.write_all(text)?;
                sink.flush()?;
            }
        }
        Ok(text.len())
    }

    /// Takes what was kept. A replay may have printed a part of a letter.
    pub(super) fn take(&mut self) -> String {
        match self {
            Self::Kept(kept) => String::from_utf8(std::mem::take(kept))
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
            Self::Sink(_) => String::new(),
        }
    }
}
