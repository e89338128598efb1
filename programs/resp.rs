//! Redis' protocol: requests in arrays of texts or as plain lines, and the replies of RESP2. `kv` reads
//! requests and writes replies; `ask` writes requests and reads replies.

/// The longest request, the longest text of one, and the most texts.
pub(crate) const MAX_REQUEST: usize = 64 << 20;
const MAX_TEXTS: usize = 1 << 20;
/// The longest line of a request or a reply, and of a length.
const MAX_LINE: usize = 64 << 10;
const MAX_HEADER: usize = 32;
/// The fewest bytes of a text: `$0`, and the ends of two lines.
const LEAST: usize = 6;
/// The most bytes of replies that may wait to be sent.
pub(crate) const MAX_REPLY: usize = 256 << 20;

/// The most arrays in each other that a reply has.
const MAX_DEPTH: usize = 32;
const QUOTES: Unread = Wrong(
    "ERR Protocol error: quotes in a plain line go around a whole word, which has no escapes: send an array",
);
const STRANGE: Unread = Wrong("this is no reply of redis' protocol: is another server there?");

/// Why there is no request, or no reply, to read.
pub(crate) enum Unread {
    /// A part of it is still to come: it has so many bytes at least. Until these are there, it need not be
    /// read again. So the work for a request grows with its bytes and not with the pieces in which they
    /// come. An array of replies may be read again for each of them.
    Part(usize),
    /// Nothing more can be read. This is the reply.
    Wrong(&'static str),
}
use Unread::{Part, Wrong};

/// Reads the first request into `words`. Returns its length.
pub(crate) fn request<'a>(bytes: &'a [u8], words: &mut Vec<&'a [u8]>) -> Result<usize, Unread> {
    words.clear();
    if bytes.first() != Some(&b'*') {
        let (line, end) = line(bytes, 0, MAX_LINE)?;
        plain(line, words)?;
        return Ok(end);
    }
    let (count, mut at) = header(bytes, 0, b'*', MAX_TEXTS)?;
    for behind in (0..count).rev() {
        let behind = behind * LEAST;
        let (len, begin) = match header(bytes, at, b'$', MAX_REQUEST) {
            Err(Part(least)) => return Err(Part(least + behind)),
            header => header?,
        };
        at = begin + len + 2;
        match bytes.get(begin + len..at) {
            None => return Err(Part(at + behind)),
            Some(b"\r\n") => words.push(&bytes[begin..begin + len]),
            Some(_) => {
                return Err(Wrong(
                    "ERR Protocol error: a text is longer than its length",
                ));
            }
        }
    }
    Ok(at)
}

/// Reads the words of a plain line. One in quotes may have blanks.
fn plain<'a>(line: &'a [u8], words: &mut Vec<&'a [u8]>) -> Result<(), Unread> {
    let mut rest = line.trim_ascii_start();
    while let [first, others @ ..] = rest {
        let is_quoted = matches!(first, b'"' | b'\'');
        let (word, behind) = if is_quoted {
            let len = others.iter().position(|byte| byte == first).ok_or(QUOTES)?;
            (&others[..len], &others[len + 1..])
        } else {
            let len = rest.iter().position(u8::is_ascii_whitespace);
            rest.split_at(len.unwrap_or(rest.len()))
        };
        let strange: &[u8] = if is_quoted { b"\\" } else { b"\"'" };
        let is_strange = word.iter().any(|byte| strange.contains(byte));
        if is_strange
            || behind
                .first()
                .is_some_and(|byte| !byte.is_ascii_whitespace())
        {
            return Err(QUOTES);
        }
        words.push(word);
        rest = behind.trim_ascii_start();
    }
    Ok(())
}

/// Reads the line that begins here. Returns it without its end, and where the next one begins.
fn line(bytes: &[u8], from: usize, most: usize) -> Result<(&[u8], usize), Unread> {
    let rest = &bytes[from..];
    match rest.iter().take(most).position(|byte| *byte == b'\n') {
        Some(len) => {
            let line = rest[..len].strip_suffix(b"\r");
            Ok((line.unwrap_or(&rest[..len]), from + len + 1))
        }
        None if rest.len() < most => Err(Part(bytes.len() + 1)),
        None => Err(Wrong("ERR Protocol error: too big inline request")),
    }
}

/// Reads the line of a length. Returns it, and where the next line begins.
fn header(bytes: &[u8], from: usize, kind: u8, most: usize) -> Result<(usize, usize), Unread> {
    // Most lengths have one digit, and a request has a length for each text.
    if let Some(&[first, digit @ b'0'..=b'9', b'\r', b'\n']) = bytes.get(from..from + 4)
        && first == kind
    {
        return Ok((usize::from(digit - b'0'), from + 4));
    }
    let (line, end) = line(bytes, from, MAX_HEADER)?;
    let digits = line.strip_prefix(&[kind]).and_then(number);
    match digits.map(usize::try_from) {
        Some(Ok(len)) if len <= most => Ok((len, end)),
        // As redis has it: a request of fewer than no words is none.
        Some(Err(_)) if kind == b'*' => Ok((0, end)),
        _ => Err(Wrong(
            "ERR Protocol error: invalid length: a request has at most 64 MiB and 1048576 words",
        )),
    }
}

/// Reads the first reply, as redis-cli shows it. Returns it, and its length.
pub(crate) fn reply(bytes: &[u8]) -> Result<(String, usize), Unread> {
    shown(bytes, 0, MAX_DEPTH)
}

/// Reads the reply that begins here, with so many arrays in each other at most. Returns it, and where the
/// next one begins.
fn shown(bytes: &[u8], from: usize, depth: usize) -> Result<(String, usize), Unread> {
    let (line, at) = match line(bytes, from, MAX_LINE) {
        Err(Wrong(_)) => return Err(STRANGE),
        line => line?,
    };
    let (kind, line) = line.split_first().ok_or(STRANGE)?;
    let text = String::from_utf8_lossy(line);
    let shown = match (kind, number(line).map(usize::try_from)) {
        (b'+', _) => text.into(),
        (b'-', _) => format!("(error) {text}"),
        (b':', Some(_)) => format!("(integer) {text}"),
        (b'$' | b'*', Some(Err(_))) => "(nil)".into(),
        (b'$', Some(Ok(len))) if len <= MAX_REPLY => {
            let end = at + len;
            let text = bytes.get(at..end + 2).ok_or(Part(end + 2))?;
            return Ok((quoted(&text[..len]), end + 2));
        }
        (b'*', Some(Ok(0))) => "(empty array)".into(),
        (b'*', Some(Ok(count))) if depth > 0 => return items(bytes, at, count, depth - 1),
        _ => return Err(STRANGE),
    };
    Ok((shown, at))
}

/// Reads the replies of an array, each with its number.
fn items(
    bytes: &[u8],
    mut at: usize,
    count: usize,
    depth: usize,
) -> Result<(String, usize), Unread> {
    let (mut all, digits) = (Vec::new(), count.to_string().len());
    let indent = format!("\n{}", " ".repeat(digits + 2));
    for number in 1..=count {
        let (item, end) = shown(bytes, at, depth)?;
        all.push(format!(
            "{number:>digits$}) {}",
            item.replace('\n', &indent)
        ));
        at = end;
    }
    Ok((all.join("\n"), at))
}

fn quoted(text: &[u8]) -> String {
    let escaped = text.iter().map(|byte| match byte {
        b'\'' => "'".into(),
        b'\x07' => "\\a".into(),
        b'\x08' => "\\b".into(),
        byte => byte.escape_ascii().to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// Reads a number, not by the standard library: a request has one for each text.
pub(crate) fn number(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let sign = if digits.len() < text.len() { -1 } else { 1 };
    let all = digits.iter().try_fold(0_i64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(sign * digit)
    });
    all.filter(|_| !digits.is_empty())
}

pub(crate) fn status(out: &mut Vec<u8>, text: &str) {
    head(out, b'+', text.as_bytes());
}

pub(crate) fn error(out: &mut Vec<u8>, text: &str) {
    head(out, b'-', text.replace(['\r', '\n'], " ").as_bytes());
}

pub(crate) fn integer(out: &mut Vec<u8>, number: impl itoa::Integer) {
    head(out, b':', itoa::Buffer::new().format(number).as_bytes());
}

/// The head of an array of so many replies.
pub(crate) fn array(out: &mut Vec<u8>, count: usize) {
    head(out, b'*', itoa::Buffer::new().format(count).as_bytes());
}

pub(crate) fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = bytes.len();
    head(out, b'$', itoa::Buffer::new().format(len).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// An array of texts: a message to a subscriber, or an entry of the log.
pub(crate) fn texts(out: &mut Vec<u8>, all: &[&[u8]]) {
    array(out, all.len());
    all.iter().for_each(|one| text(out, one));
}

/// A value, or that there is none. It is left out if the replies are too long already: they are not
/// sent then.
pub(crate) fn value(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
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
