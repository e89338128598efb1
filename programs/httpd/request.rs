//! What is asked for in the head of a request.

use super::{BAD_REQUEST, BODY_TOO_LONG, NO_LENGTH, Status};

/// The longest body of a request. Bodies are thrown away.
const BODY: u64 = 64 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Get,
    Head,
    Other,
}

pub(super) struct Request {
    pub(super) method: Method,
    /// As it was sent, without host and query.
    pub(super) path: String,
    /// Whether it is HTTP/1.0, where connections end unless they are said to stay.
    pub(super) old: bool,
    pub(super) close: bool,
    /// The length of its body.
    pub(super) body: u64,
}

impl Request {
    /// In place of one that is not understood, or not accepted.
    pub(super) const REFUSED: Self = Self {
        method: Method::Other,
        path: String::new(),
        old: false,
        close: true,
        body: 0,
    };

    /// Anything about a body's length that could be read in two ways is refused: what one takes for
    /// a body another might take for the next request.
    pub(super) fn new(head: &httparse::Request<'_, '_>) -> Result<Self, Status> {
        let old = head.version == Some(0);
        let (mut hosts, mut length, mut coded) = (0, None, false);
        let (mut close, mut stay, mut expects) = (false, false, false);
        for header in &*head.headers {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            if is("host") {
                hosts += 1;
            } else if is("content-length") {
                let value = number(header.value).ok_or(BAD_REQUEST)?;
                if length.replace(value).is_some_and(|other| other != value) {
                    return Err(BAD_REQUEST);
                }
            } else if is("transfer-encoding") {
                coded = true;
            } else if is("expect") {
                expects = true;
            } else if is("connection") {
                for option in header.value.split(|byte| *byte == b',') {
                    let option = option.trim_ascii();
                    close |= option.eq_ignore_ascii_case(b"close");
                    stay |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
        }
        let mut body = length.unwrap_or(0);
        match (coded, length) {
            _ if hosts > 1 || (hosts == 0 && !old) => return Err(BAD_REQUEST),
            (true, Some(_)) => return Err(BAD_REQUEST),
            (true, None) => return Err(NO_LENGTH),
            (false, _) if body > BODY => return Err(BODY_TOO_LONG),
            (false, _) => {}
        }
        close |= old && !stay;
        if expects && body > 0 {
            // It waits to be told to send its body, and may yet do so unasked.
            (close, body) = (true, 0);
        }
        Ok(Self {
            method: match head.method {
                Some("GET") => Method::Get,
                Some("HEAD") => Method::Head,
                _ => Method::Other,
            },
            path: path(head.path.unwrap_or_default()).ok_or(BAD_REQUEST)?,
            old,
            close,
            body,
        })
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(digits).ok()?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// The path in a request's target, which may be a whole URL.
fn path(target: &str) -> Option<String> {
    let path = match target.split_once("://") {
        Some(("http" | "https", rest)) => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
        _ => target,
    };
    let path = path.split('?').next().unwrap_or_default();
    match path {
        "" if target.contains("://") => Some("/".to_string()),
        // OPTIONS has it.
        "*" => Some("*".to_string()),
        _ => path.starts_with('/').then(|| path.to_string()),
    }
}
