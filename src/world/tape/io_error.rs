//! The results that are not the usual success: errors of a world as bytes, and back.

use std::io::{self, ErrorKind};

use crate::log::recording::{
    decode::{Bytes, Wrong},
    encode::{number, text},
    errors,
};

/// The codes of a result that is not the usual success.
pub(super) mod code {
    pub(in crate::world::tape) const OTHER: u8 = 0;
    pub(in crate::world::tape) const WOULD_BLOCK: u8 = 1;
    pub(in crate::world::tape) const SYSTEM: u8 = 2;
    pub(in crate::world::tape) const KIND: u8 = 3;
    pub(in crate::world::tape) const TEXT: u8 = 4;
}

#[cold]
pub(super) fn put_error(out: &mut Vec<u8>, error: &io::Error) {
    let kind = error.kind();
    if kind == ErrorKind::WouldBlock {
        return out.push(code::WOULD_BLOCK);
    }
    if let Some(errno) = error.raw_os_error() {
        out.push(code::SYSTEM);
        return number(out, errno as u32 as u64);
    }
    let what = error.to_string();
    if what == kind.to_string() {
        out.push(code::KIND);
        return out.push(errors::number(kind));
    }
    out.push(code::TEXT);
    out.push(errors::number(kind));
    text(out, &what);
}

/// Reads a result that is not the usual success: an error, or `None` for another success.
pub(super) fn error(bytes: &mut Bytes<'_>) -> Result<Option<io::Error>, Wrong> {
    Ok(Some(match bytes.byte()? {
        code::OTHER => return Ok(None),
        code::WOULD_BLOCK => ErrorKind::WouldBlock.into(),
        code::SYSTEM => {
            let errno = u32::try_from(bytes.number()?).map_err(|_| "an error too large")?;
            io::Error::from_raw_os_error(errno as i32)
        }
        code::KIND => bytes.error_kind()?.into(),
        code::TEXT => {
            let kind = bytes.error_kind()?;
            io::Error::new(kind, bytes.text()?)
        }
        _ => return Err("a result of an unknown kind"),
    }))
}
