//! A request to an HTTP server, and the response, which is read in pieces.

use std::time::Duration;

use httparse::{EMPTY_HEADER, Header, Status};
use trapline::{Elapsed, Endpoint, Os, Reader, Stream, TcpStream};

use super::Url;

/// The longest head, and the longest size line or trailer of a chunked body, in bytes.
const HEAD: usize = 64 * 1024;
/// The most fields in a head or trailer.
const FIELDS: usize = 128;

const NOT_CHUNKS: &str = "answers in chunks that are not HTTP";
const NO_LAST_CHUNK: &str = "closes the connection before the last chunk";

/// A response with a complete head.
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The status line and the fields, as they were sent.
    pub(crate) head: String,
    body: Body,
    input: Input,
    timeout: Duration,
}

/// The rest of a body, by the framing that marks its end.
enum Body {
    /// This many bytes of a known length.
    Length {
        left: u64,
        of: u64,
    },
    /// This many bytes of a chunk, and then other chunks. The first one begins without a line end.
    Chunks {
        left: u64,
        is_first: bool,
    },
    /// Everything until the server closes the connection.
    ToEnd,
    Over,
}

impl Response {
    /// Requests a page. *Blocks* until the head of the response has arrived, or until `timeout`
    /// ends.
    pub(crate) async fn to(os: &mut Os, url: &Url, timeout: Duration) -> Result<Self, String> {
        let Url { host, path } = url;
        let ask = async |os: &mut Os| {
            let server = connect(os, host).await?;
            let mut input = Input {
                host: host.clone(),
                reader: Reader::new(&server, HEAD),
            };
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let sent = server.send_all(os, request.as_bytes()).await;
            sent.map_err(|error| format!("cannot ask {host}: {error}"))?;
            let too_long = format!("sends a head of more than {HEAD} bytes");
            let too_short = "ends the connection without an answer";
            loop {
                let (head, found) = input.part(os, &too_long, too_short, parse).await?;
                let (status, body) = found;
                // An interim response comes before the requested one.
                if (100..200).contains(&status) && status != 101 {
                    continue;
                }
                return Ok(Self {
                    status,
                    head: String::from_utf8_lossy(&head).trim_end().to_string(),
                    body,
                    input,
                    timeout,
                });
            }
        };
        let late = |Elapsed| format!("{host} has not answered within {timeout:?}: raise --timeout");
        os.timeout(timeout, ask).await.map_err(late)?
    }

    /// The next bytes of the body; `None` at its end. *Blocks* until there are some.
    ///
    /// *Errors:* the server ends the connection before the body, sends what is not HTTP, or is
    /// silent for longer than the timeout.
    pub(crate) async fn piece(&mut self, os: &mut Os) -> Result<Option<Vec<u8>>, String> {
        let timeout = self.timeout;
        let next = os.timeout(timeout, async |os| self.next(os).await).await;
        let host = &self.input.host;
        let silent = |Elapsed| format!("{host} has sent nothing for {timeout:?}: raise --timeout");
        next.map_err(silent)?
    }

    async fn next(&mut self, os: &mut Os) -> Result<Option<Vec<u8>>, String> {
        if let Body::Chunks { left: 0, is_first } = self.body {
            let size = |bytes: &[u8]| chunk_size(bytes, is_first);
            let (_, left) = self.input.part(os, NOT_CHUNKS, NO_LAST_CHUNK, size).await?;
            let is_first = false;
            self.body = Body::Chunks { left, is_first };
            if left == 0 {
                let fields = |bytes: &[u8]| {
                    complete(httparse::parse_headers(bytes, &mut [EMPTY_HEADER; FIELDS]))
                        .map(|fields| fields.map(|(len, _)| (len, ())))
                        .map_err(|_| NOT_CHUNKS.to_string())
                };
                let trailer = self.input.part(os, NOT_CHUNKS, NO_LAST_CHUNK, fields);
                trailer.await?;
                self.body = Body::Over;
            }
        }
        let mut all = u64::MAX;
        let left = match &mut self.body {
            Body::Over | Body::Length { left: 0, .. } => return Ok(None),
            Body::ToEnd => &mut all,
            Body::Length { left, .. } | Body::Chunks { left, .. } => left,
        };
        if self.input.bytes().is_empty() && !self.input.more(os).await? {
            let host = &self.input.host;
            return match self.body {
                Body::ToEnd | Body::Over => Ok(None),
                Body::Length { left, of } => {
                    let n = of - left;
                    let what = "closes the connection after";
                    Err(format!("{host} {what} {n} of {of} bytes"))
                }
                Body::Chunks { .. } => Err(format!("{host} {NO_LAST_CHUNK}")),
            };
        }
        let arrived = self.input.bytes().len();
        let n = usize::try_from(*left).map_or(arrived, |left| left.min(arrived));
        *left -= n as u64;
        let mut piece = self.input.take(n);
        self.take_chunks(&mut piece);
        Ok(Some(piece))
    }

    /// Adds what has arrived of the next chunks. They may be small, and each piece takes calls.
    fn take_chunks(&mut self, piece: &mut Vec<u8>) {
        let mut end = 0;
        while let Body::Chunks { left, .. } = &mut self.body
            && *left == 0
            && let Ok(Some((len, size @ 1..))) = chunk_size(&self.input.bytes()[end..], false)
        {
            let data = &self.input.bytes()[end + len..];
            let n = usize::try_from(size).map_or(data.len(), |size| size.min(data.len()));
            piece.extend_from_slice(&data[..n]);
            end += len + n;
            *left = size - n as u64;
        }
        self.input.reader.consume(end);
    }
}

/// The bytes from the server.
struct Input {
    host: String,
    reader: Reader<Stream>,
}

impl Input {
    /// What has arrived and is not taken yet.
    fn bytes(&self) -> &[u8] {
        self.reader.buffer()
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        let bytes = self.bytes()[..n].to_vec();
        self.reader.consume(n);
        bytes
    }

    /// Receives more. Returns `false` at the end of the stream.
    async fn more(&mut self, os: &mut Os) -> Result<bool, String> {
        let failed = |error| format!("the connection to {} failed: {error}", self.host);
        self.reader.fill(os).await.map(|n| n > 0).map_err(failed)
    }

    /// Takes the bytes whose length and meaning `parse` returns, once they have arrived.
    async fn part<T>(
        &mut self,
        os: &mut Os,
        too_long: &str,
        too_short: &str,
        parse: impl Fn(&[u8]) -> Parsed<T>,
    ) -> Result<(Vec<u8>, T), String> {
        let what = loop {
            match parse(self.bytes()) {
                Ok(Some((len, value))) => return Ok((self.take(len), value)),
                Ok(None) if self.bytes().len() >= HEAD => break too_long.to_string(),
                Ok(None) if self.more(os).await? => {}
                Ok(None) => break too_short.to_string(),
                Err(what) => break what,
            }
        };
        Err(format!("{} {what}", self.host))
    }
}

/// A length and what so many bytes mean; `None` if more bytes are needed.
type Parsed<T> = Result<Option<(usize, T)>, String>;

/// What is parsed, or `None` if more bytes are needed.
fn complete<T, E>(parsed: Result<Status<T>, E>) -> Result<Option<T>, E> {
    parsed.map(|status| match status {
        Status::Complete(found) => Some(found),
        Status::Partial => None,
    })
}

/// The length of a head, and the status and the body's framing that are in it.
fn parse(bytes: &[u8]) -> Parsed<(u16, Body)> {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    let len = complete(head.parse(bytes));
    let Some(len) = len.map_err(|error| format!("does not answer in HTTP: {error}"))? else {
        return Ok(None);
    };
    let status = head.code.unwrap_or_default();
    Ok(Some((len, (status, body(status, head.headers)?))))
}

/// The length of a chunk's size line, with the line end of the chunk before, and the size.
fn chunk_size(bytes: &[u8], is_first: bool) -> Parsed<u64> {
    let line = match bytes {
        line if is_first => line,
        [b'\r', b'\n', line @ ..] => line,
        [] | [b'\r'] => return Ok(None),
        _ => return Err(NOT_CHUNKS.to_string()),
    };
    let size = complete(httparse::parse_chunk_size(line)).map_err(|_| NOT_CHUNKS)?;
    Ok(size.map(|(len, size)| (bytes.len() - line.len() + len, size)))
}

/// The framing of a body.
fn body(status: u16, fields: &[Header<'_>]) -> Result<Body, String> {
    if status < 200 || status == 204 || status == 304 {
        return Ok(Body::Over);
    }
    let values = |name: &str| -> Vec<String> {
        let fields = fields.iter();
        let named = fields.filter(|field| field.name.eq_ignore_ascii_case(name));
        let values = named.map(|field| String::from_utf8_lossy(field.value));
        values.map(|value| value.trim().to_string()).collect()
    };
    let codings = values("transfer-encoding").join(", ");
    if codings.eq_ignore_ascii_case("chunked") {
        let (left, is_first) = (0, true);
        return Ok(Body::Chunks { left, is_first });
    }
    if !codings.is_empty() {
        let what = format!("answers in the coding {codings:?}, which is not supported");
        return Err(what);
    }
    let lengths = values("content-length");
    let Some(length) = lengths.first() else {
        return Ok(Body::ToEnd);
    };
    let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
    match length.parse() {
        Ok(of) if is_number && lengths.iter().all(|other| other == length) => {
            Ok(Body::Length { left: of, of })
        }
        _ => Err("does not say clearly how long the body is: see its Content-Length".to_string()),
    }
}

/// Connects to the first address of a host that accepts.
async fn connect(os: &mut Os, host: &str) -> Result<TcpStream, String> {
    // The colons of an IPv6 address are in brackets; a colon after them starts the port.
    let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    let addr = format!("{host}{}", if has_port { "" } else { ":80" });
    let to: Result<Endpoint, _> = addr.parse();
    let to = to.map_err(|error| format!("cannot find {host}: {error}"))?;
    os.connect(to).await.map_err(|error| error.to_string())
}
