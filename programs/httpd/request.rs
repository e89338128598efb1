//! The request that a head describes.

use std::{ops::Range, time::SystemTime};

use super::status::{BAD_REQUEST, BODY_TOO_LONG, NO_LENGTH, Status};

/// The longest body of a request. Bodies are dropped.
const BODY: u64 = 64 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Get,
    Head,
    Other,
}

pub(super) struct Request {
    pub(super) method: Method,
    /// As received, without host and query.
    pub(super) path: String,
    /// Whether it is HTTP/1.0, where connections end unless a header keeps them open.
    pub(super) old: bool,
    pub(super) close: bool,
    /// The length of its body.
    pub(super) body: u64,
    /// The requested bytes of a file, if not all.
    range: Option<Part>,
    /// The range applies only to the file of this time; `None` inside is no valid time.
    if_range: Option<Option<SystemTime>>,
    /// The file is sent only if it has changed since.
    if_modified_since: Option<SystemTime>,
}

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    From(u64),
    /// Both ends included.
    Within(u64, u64),
    Last(u64),
}

impl Request {
    /// The answer to a request that is malformed or not supported.
    pub(super) const REFUSED: Self = Self {
        method: Method::Other,
        path: String::new(),
        old: false,
        close: true,
        body: 0,
        range: None,
        if_range: None,
        if_modified_since: None,
    };

    /// A body's length that can be read in two ways is refused. Otherwise one server could take for
    /// a body what another takes for the next request.
    pub(super) fn new(head: &httparse::Request<'_, '_>) -> Result<Self, Status> {
        let old = head.version == Some(0);
        let mut request = Self {
            method: match head.method {
                Some("GET") => Method::Get,
                Some("HEAD") => Method::Head,
                _ => Method::Other,
            },
            path: String::new(),
            old,
            close: false,
            ..Self::REFUSED
        };
        let (mut hosts, mut length, mut coded) = (0, None, false);
        let (mut stay, mut expects, mut is_tagged) = (false, false, false);
        for header in &*head.headers {
            match &*header.name.to_ascii_lowercase() {
                "host" => hosts += 1,
                "content-length" => {
                    let value = number(header.value).ok_or(BAD_REQUEST)?;
                    if length.replace(value).is_some_and(|other| other != value) {
                        return Err(BAD_REQUEST);
                    }
                }
                "transfer-encoding" => coded = true,
                "range" => request.range = part(header.value),
                "if-range" => request.if_range = Some(date(header.value)),
                "if-modified-since" => request.if_modified_since = date(header.value),
                "if-none-match" => is_tagged = true,
                "expect" => expects = true,
                "connection" => {
                    for option in header.value.split(|byte| *byte == b',') {
                        let option = option.trim_ascii();
                        request.close |= option.eq_ignore_ascii_case(b"close");
                        stay |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                _ => {}
            }
        }
        request.body = length.unwrap_or(0);
        match (coded, length) {
            _ if hosts > 1 || (hosts == 0 && !old) => return Err(BAD_REQUEST),
            (true, Some(_)) => return Err(BAD_REQUEST),
            (true, None) => return Err(NO_LENGTH),
            (false, _) if request.body > BODY => return Err(BODY_TOO_LONG),
            (false, _) => {}
        }
        request.close |= old && !stay;
        if expects && request.body > 0 {
            // The client waits for leave to send its body, but may send it unasked.
            (request.close, request.body) = (true, 0);
        }
        if is_tagged {
            // A tag takes precedence, and no file has a tag.
            request.if_modified_since = None;
        }
        request.path = path(head.path.unwrap_or_default()).ok_or(BAD_REQUEST)?;
        Ok(request)
    }

    /// Whether the client already has the file of this time.
    pub(super) fn has(&self, modified: SystemTime) -> bool {
        self.if_modified_since
            .is_some_and(|since| modified <= since)
    }

    /// The requested bytes of a file of this length and time, if not all. It is an error if the
    /// file has none of them.
    pub(super) fn range(&self, len: u64, modified: SystemTime) -> Option<Result<Range<u64>, ()>> {
        let is_same = self.if_range.is_none_or(|of| of == Some(modified));
        let part = self
            .range
            .filter(|_| is_same && self.method == Method::Get)?;
        let range = match part {
            Part::From(first) => first..len,
            Part::Within(first, last) => first..len.min(last.saturating_add(1)),
            Part::Last(count) => len.saturating_sub(count)..len,
        };
        Some(if range.is_empty() { Err(()) } else { Ok(range) })
    }
}

fn date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(str::from_utf8(value).ok()?).ok()
}

/// A single range of bytes. Others are ignored, which HTTP allows: the answer is the whole file.
fn part(value: &[u8]) -> Option<Part> {
    let (unit, range) = str::from_utf8(value).ok()?.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    // A number that overflows is past the end of every file.
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let part = match (first, last) {
        ("", count) => Part::Last(number(count)?),
        (first, "") => Part::From(number(first)?),
        (first, last) => Part::Within(number(first)?, number(last)?),
    };
    let is_valid = !matches!(part, Part::Within(first, last) if first > last);
    (unit.trim().eq_ignore_ascii_case("bytes") && is_valid).then_some(part)
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(digits).ok()?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// The path in a request's target, which may be a whole URL.
fn path(target: &str) -> Option<String> {
    let is_web = |scheme: &str| matches!(&*scheme.to_ascii_lowercase(), "http" | "https");
    let path = match target.split_once("://") {
        Some((scheme, rest)) if is_web(scheme) => {
            rest.find(['/', '?']).map_or("/", |at| &rest[at..])
        }
        _ => target,
    };
    match path.split('?').next().unwrap_or_default() {
        "" if target.contains("://") => Some("/".to_string()),
        // The target of OPTIONS.
        "*" => Some("*".to_string()),
        path => path.starts_with('/').then(|| path.to_string()),
    }
}
