//! Numbers, texts and headers as bytes. `decode.rs` is the other direction.

use std::{io, time::Duration};

use super::{
    Header, MAGIC, MAX_TEXT, MAX_WORDS, VERSION,
    chunks::{MAX_CHUNK, chunk},
};

pub(crate) trait Out {
    fn push(&mut self, byte: u8);
    fn put(&mut self, bytes: &[u8]);
}

impl Out for Vec<u8> {
    fn push(&mut self, byte: u8) {
        Vec::push(self, byte);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// How a recording begins: everything up to its first record.
///
/// *Errors:* as [`framed`].
pub(super) fn preamble(header: &Header) -> io::Result<Vec<u8>> {
    framed(MAGIC, VERSION, &body(header))
}

/// How a file begins: the magic number, the version, and the chunk of the header.
///
/// *Errors:* the header is longer than any that is read.
pub(crate) fn framed(magic: [u8; 8], version: u16, header: &[u8]) -> io::Result<Vec<u8>> {
    if header.len() > MAX_CHUNK as usize {
        let message = format!(
            "the command line is too long: the header takes {} bytes, and has room for {MAX_CHUNK}",
            header.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut out = magic.to_vec();
    out.extend(version.to_le_bytes());
    chunk(&mut out, header);
    Ok(out)
}

pub(crate) fn body(header: &Header) -> Vec<u8> {
    let mut payload = Vec::new();
    let words = header.command.len().min(MAX_WORDS);
    number(&mut payload, words as u64);
    for word in &header.command[..words] {
        text(&mut payload, word);
    }
    number(&mut payload, header.seed);
    text(&mut payload, &header.policy);
    number(&mut payload, header.quantum.into());
    payload.push(header.is_simulated.into());
    text(&mut payload, &header.version);
    if let Some((kernel, kernels)) = header.kernel {
        number(&mut payload, kernel.into());
        number(&mut payload, kernels as u64);
    }
    payload
}

pub(crate) fn text(out: &mut impl Out, text: &str) {
    cut_text(out, text, MAX_TEXT);
}

pub(super) fn cut_text(out: &mut impl Out, text: &str, most: usize) {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    number(out, end as u64);
    out.put(&text.as_bytes()[..end]);
}

#[inline(always)]
pub(crate) fn number(out: &mut impl Out, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[inline(always)]
pub(crate) fn nanos(instant: Duration) -> u64 {
    let seconds = instant.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(instant.subsec_nanos().into())
}
