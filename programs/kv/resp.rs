//! Redis' protocol: requests in arrays of texts or as plain lines, and the replies of RESP2.

use std::ops::Range;

/// The longest text of a request, and the most texts.
const MAX_TEXT: i64 = 64 << 20;
const MAX_TEXTS: i64 = 1 << 20;
/// The longest line.
const MAX_LINE: usize = 64 << 10;

/// Reads the first request. Returns its length, and puts the place of each of its words into `words`;
/// `None` if a part is still to come. An error is a reply after which nothing more can be read.
pub(super) fn request(
    bytes: &[u8],
    words: &mut Vec<Range<usize>>,
) -> Result<Option<usize>, &'static str> {
    words.clear();
    if bytes.first() != Some(&b'*') {
        return plain(bytes, words);
    }
    let Some((count, mut at)) = header(bytes, 1)? else {
        return Ok(None);
    };
    if !(-1..=MAX_TEXTS).contains(&count) {
        return Err("ERR Protocol error: invalid multibulk length");
    }
    for _ in 0..count.max(0) {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err("ERR Protocol error: expected '$'"),
        }
        let Some((len, begin)) = header(bytes, at + 1)? else {
            return Ok(None);
        };
        if !(0..=MAX_TEXT).contains(&len) {
            return Err("ERR Protocol error: invalid bulk length");
        }
        let end = begin + len as usize;
        match bytes.get(end..end + 2) {
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(_) => return Err("ERR Protocol error: a text is longer than its length"),
        }
        words.push(begin..end);
        at = end + 2;
    }
    Ok(Some(at))
}

/// A line whose words are between blanks.
fn plain(bytes: &[u8], words: &mut Vec<Range<usize>>) -> Result<Option<usize>, &'static str> {
    let Some(end) = line(bytes, 0)? else {
        return Ok(None);
    };
    let mut begin = None;
    for (at, byte) in bytes[..=end].iter().enumerate() {
        match (byte.is_ascii_whitespace(), begin) {
            (false, None) => begin = Some(at),
            (true, Some(from)) => {
                words.push(from..at);
                begin = None;
            }
            _ => {}
        }
    }
    Ok(Some(end + 1))
}

/// Returns the place of the next end of a line.
fn line(bytes: &[u8], from: usize) -> Result<Option<usize>, &'static str> {
    let rest = &bytes[from..];
    match rest.iter().take(MAX_LINE).position(|byte| *byte == b'\n') {
        Some(at) => Ok(Some(from + at)),
        None if rest.len() < MAX_LINE => Ok(None),
        None => Err("ERR Protocol error: too big inline request"),
    }
}

/// Reads the number of a line. Returns it, and where the next line begins.
fn header(bytes: &[u8], from: usize) -> Result<Option<(i64, usize)>, &'static str> {
    let Some(end) = line(bytes, from)? else {
        return Ok(None);
    };
    let digits = &bytes[from..end];
    match number(digits.strip_suffix(b"\r").unwrap_or(digits)) {
        Some(number) => Ok(Some((number, end + 1))),
        None => Err("ERR Protocol error: invalid length"),
    }
}

pub(super) fn number(text: &[u8]) -> Option<i64> {
    let is_plain = text.first().is_some_and(|first| *first != b'+');
    is_plain
        .then(|| str::from_utf8(text).ok()?.parse().ok())
        .flatten()
}

pub(super) fn status(out: &mut Vec<u8>, text: &str) {
    head(out, b'+', text);
}

pub(super) fn error(out: &mut Vec<u8>, text: &str) {
    head(out, b'-', text);
}

pub(super) fn integer(out: &mut Vec<u8>, number: i64) {
    if number < 0 {
        return head(out, b':', &number.to_string());
    }
    counted(out, b':', number.unsigned_abs());
}

/// The head of an array of so many replies.
pub(super) fn array(out: &mut Vec<u8>, count: usize) {
    counted(out, b'*', count as u64);
}

pub(super) fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    counted(out, b'$', bytes.len() as u64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn text_or_nil(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => text(out, bytes),
        None => out.extend_from_slice(b"$-1\r\n"),
    }
}

/// An array of texts: a message to a subscriber, or an entry of the log.
pub(super) fn texts(out: &mut Vec<u8>, all: &[&[u8]]) {
    array(out, all.len());
    for one in all {
        text(out, one);
    }
}

/// A line of a number. The formatting of the standard library would take most of the time of a reply.
fn counted(out: &mut Vec<u8>, kind: u8, mut number: u64) {
    let (mut line, mut at) = (*b"                    \r\n", 20);
    loop {
        at -= 1;
        line[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.push(kind);
    out.extend_from_slice(&line[at..]);
}

fn head(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}
