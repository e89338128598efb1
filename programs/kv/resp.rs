//! Redis' protocol: requests in arrays of texts or as plain lines, and the replies of RESP2.

/// The longest request, the longest text of one, and the most texts.
pub(super) const MAX_REQUEST: usize = 64 << 20;
const MAX_TEXTS: i64 = 1 << 20;
/// The longest line.
const MAX_LINE: usize = 64 << 10;
/// The most bytes of replies that may wait to be sent.
pub(super) const MAX_REPLY: usize = 256 << 20;

type Parsed<T> = Result<Option<T>, &'static str>;

/// Reads the first request into `words`. Returns its length, and `None` if a part is still to come.
/// An error is a reply after which nothing more can be read.
pub(super) fn request<'a>(bytes: &'a [u8], words: &mut Vec<&'a [u8]>) -> Parsed<usize> {
    words.clear();
    if bytes.first() != Some(&b'*') {
        return Ok(line(bytes, 0)?.map(|(line, end)| {
            let all = line.split(u8::is_ascii_whitespace);
            words.extend(all.filter(|word| !word.is_empty()));
            end
        }));
    }
    let Some((count, mut at)) = header(bytes, 1)? else {
        return Ok(None);
    };
    if !(-1..=MAX_TEXTS).contains(&count) {
        return Err("ERR Protocol error: invalid multibulk length");
    }
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err("ERR Protocol error: expected '$'"),
        }
        let Some((len, begin)) = header(bytes, at + 1)? else {
            return Ok(None);
        };
        if !(0..=MAX_REQUEST as i64).contains(&len) {
            return Err("ERR Protocol error: invalid bulk length");
        }
        let end = begin + len as usize;
        match bytes.get(end..end + 2) {
            None => return Ok(None),
            Some(b"\r\n") => words.push(&bytes[begin..end]),
            Some(_) => return Err("ERR Protocol error: a text is longer than its length"),
        }
        at = end + 2;
    }
    Ok(Some(at))
}

/// Returns the line that begins here, without its end, and where the next one begins.
fn line(bytes: &[u8], from: usize) -> Parsed<(&[u8], usize)> {
    let rest = &bytes[from..];
    match rest.iter().take(MAX_LINE).position(|byte| *byte == b'\n') {
        Some(len) => {
            let line = &rest[..len];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            Ok(Some((line, from + len + 1)))
        }
        None if rest.len() < MAX_LINE => Ok(None),
        None => Err("ERR Protocol error: too big inline request"),
    }
}

/// Reads the number of a line. Returns it, and where the next line begins.
fn header(bytes: &[u8], from: usize) -> Parsed<(i64, usize)> {
    match line(bytes, from)? {
        None => Ok(None),
        Some((digits, end)) => match number(digits) {
            Some(number) => Ok(Some((number, end))),
            None => Err("ERR Protocol error: invalid length"),
        },
    }
}

pub(super) fn number(text: &[u8]) -> Option<i64> {
    let text = text.strip_prefix(b"+").map_or(text, |_| b"");
    str::from_utf8(text).ok()?.parse().ok()
}

pub(super) fn status(out: &mut Vec<u8>, text: &str) {
    head(out, b'+', text.as_bytes());
}

pub(super) fn error(out: &mut Vec<u8>, text: &str) {
    head(out, b'-', text.replace(['\r', '\n'], " ").as_bytes());
}

pub(super) fn integer(out: &mut Vec<u8>, number: i64) {
    digits(number, |digits| head(out, b':', digits));
}

/// The head of an array of so many replies.
pub(super) fn array(out: &mut Vec<u8>, count: usize) {
    digits(count as i64, |digits| head(out, b'*', digits));
}

pub(super) fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    digits(bytes.len() as i64, |digits| head(out, b'$', digits));
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// An array of texts: a message to a subscriber, or an entry of the log.
pub(super) fn texts(out: &mut Vec<u8>, all: &[&[u8]]) {
    array(out, all.len());
    all.iter().for_each(|one| text(out, one));
}

/// A value, or that there is none. It leaves the value out if the replies are too long already: they
/// are not sent then.
pub(super) fn value(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => out.extend_from_slice(b"$-1\r\n"),
        Some(bytes) if out.len() <= MAX_REPLY => text(out, bytes),
        Some(_) => {}
    }
}

fn head(out: &mut Vec<u8>, kind: u8, line: &[u8]) {
    out.push(kind);
    out.extend_from_slice(line);
    out.extend_from_slice(b"\r\n");
}

/// Calls `take` with the digits of a number. The formatting of the standard library would take most
/// of the time of a reply.
pub(super) fn digits<T>(number: i64, take: impl FnOnce(&[u8]) -> T) -> T {
    let (mut line, mut at, mut rest) = ([b'-'; 20], 20, number.unsigned_abs());
    loop {
        at -= 1;
        line[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return take(&line[at - usize::from(number < 0)..]);
        }
    }
}
