//! Bytes as numbers, texts and headers. No memory is taken for a length before as many bytes are
//! there.

use std::io;

use super::{Header, MAX_WORDS, errors};
use crate::abi::{DeviceId, KernelId, QueueId};

pub(crate) type Wrong = &'static str;

const CUT: Wrong = "a record that is cut off";

/// The bytes of a payload that are left.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Header {
    pub(crate) fn decode(mut bytes: Bytes<'_>) -> Result<Self, Wrong> {
        let words = bytes.number()?;
        if words > MAX_WORDS as u64 {
            return Err("a command line of too many words");
        }
        let command = (0..words).map(|_| bytes.text().map(String::from));
        Ok(Self {
            command: command.collect::<Result<_, _>>()?,
            seed: bytes.number()?,
            policy: bytes.text()?.to_string(),
            quantum: u32::try_from(bytes.number()?).map_err(|_| "a quantum too large")?,
            is_simulated: match bytes.byte()? {
                0 => false,
                1 => true,
                _ => return Err("a world of an unknown kind"),
            },
            version: bytes.text()?.to_string(),
            kernel: match bytes.0 {
                [] => None,
                _ => {
                    let kernel = KernelId::from_number(bytes.number()?);
                    Some((kernel.ok_or("the number of no kernel")?, bytes.size()?))
                }
            },
        })
    }
}

impl<'a> Bytes<'a> {
    pub(crate) fn byte(&mut self) -> Result<u8, Wrong> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Wrong> {
        let (first, rest) = self.0.split_first_chunk().ok_or(CUT)?;
        self.0 = rest;
        Ok(*first)
    }

    /// So many bytes as the number before them says.
    pub(crate) fn slice(&mut self) -> Result<&'a [u8], Wrong> {
        let len = self.size()?;
        let (slice, rest) = self.0.split_at_checked(len).ok_or(CUT)?;
        self.0 = rest;
        Ok(slice)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Wrong> {
        str::from_utf8(self.slice()?).map_err(|_| "a text that is not UTF-8")
    }

    pub(crate) fn number(&mut self) -> Result<u64, Wrong> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a number too large")
    }

    pub(crate) fn size(&mut self) -> Result<usize, Wrong> {
        usize::try_from(self.number()?).map_err(|_| "a length too large")
    }

    pub(crate) fn device(&mut self) -> Result<DeviceId, Wrong> {
        self.number().map(DeviceId::from_raw)
    }

    pub(crate) fn queue(&mut self) -> Result<QueueId, Wrong> {
        let (number, slot) = (self.number()?, self.size()?);
        QueueId::from_raw(number, slot).ok_or("a queue that cannot be")
    }

    pub(crate) fn error_kind(&mut self) -> Result<io::ErrorKind, Wrong> {
        errors::kind(self.byte()?).ok_or("an I/O error of an unknown kind")
    }
}
