//! A request to an HTTP server, and the response, which is read in pieces.

use std::{mem, time::Duration};

use httparse::{
    EMPTY_HEADER,
    Status::{Complete, Partial},
};
use trapline::{Elapsed, Endpoint, Os, TcpStream};

use super::Url;

/// The longest head, and the longest size line or trailer of a chunked body, in bytes.
const HEAD: usize = 64 * 1024;
/// The most fields in a head or trailer.
const FIELDS: usize = 128;
/// The size of a read.
const PIECE: usize = 64 * 1024;

/// A response with a complete head.
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The status line and the fields, as they were sent.
    pub(crate) head: String,
    body: Body,
    input: Input,
}

/// The rest of a body, by the framing that marks its end.
enum Body {
    /// This many bytes of a known length.
    Length {
        left: u64,
        of: u64,
    },
    /// A chunk's size line comes next.
    Size,
    /// This many bytes of a chunk.
    Chunk(u64),
    /// The end of a chunk's line.
    ChunkEnd,
    /// The fields after the last chunk.
    Trailer,
    /// Everything until the server closes the connection.
    ToEnd,
    Over,
}

/// The next part of the received bytes.
enum Step {
    /// This many bytes of the body.
    Data(usize),
    /// Framing between the parts of the body, already handled.
    Framing,
    NeedsMore,
    Over,
}

impl Response {
    /// Requests a page. *Blocks* until the head of the response has arrived, or until `timeout`
    /// ends.
    pub(crate) async fn to(os: &mut Os, url: &Url, timeout: Duration) -> Result<Self, String> {
        let host = &url.host;
        let ask = async |os: &mut Os| {
            let server = connect(os, host).await?;
            let request = format!(
                "GET {} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n",
                url.path
            );
            let sent = server.send_all(os, request.as_bytes()).await;
            sent.map_err(|error| format!("cannot ask {host}: {error}"))?;
            let host = host.clone();
            let (bytes, buf) = (Vec::new(), vec![0; PIECE]);
            Input {
                host,
                server,
                timeout,
                bytes,
                taken: 0,
                buf,
            }
            .head(os)
            .await
        };
        let late = |Elapsed| format!("{host} has not answered within {timeout:?}: raise --timeout");
        os.timeout(timeout, ask).await.map_err(late)?
    }

    /// The next bytes of the body; `None` at its end. *Blocks* until there are some.
    ///
    /// *Errors:* the server ends the connection before the body, sends what is not HTTP, or is
    /// silent for longer than the timeout.
    pub(crate) async fn piece(&mut self, os: &mut Os) -> Result<Option<Vec<u8>>, String> {
        let mut piece = Vec::new();
        loop {
            match self.step() {
                Ok(Step::Data(n)) => piece.extend_from_slice(self.input.take(n)),
                Ok(Step::Framing) => {}
                // The error is permanent, and returns after this piece.
                _ if !piece.is_empty() => return Ok(Some(piece)),
                Ok(Step::Over) => return Ok(None),
                Ok(Step::NeedsMore) => self.receive(os).await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn receive(&mut self, os: &mut Os) -> Result<(), String> {
        let timeout = self.input.timeout;
        let receive = async |os: &mut Os| self.input.more(os).await;
        let more = os.timeout(timeout, receive).await;
        let host = &self.input.host;
        let silent = |Elapsed| format!("{host} has sent nothing for {timeout:?}: raise --timeout");
        if more.map_err(silent)?? {
            Ok(())
        } else {
            self.end()
        }
    }

    /// Parses the received bytes, and skips the framing.
    fn step(&mut self) -> Result<Step, String> {
        let bytes = self.input.rest();
        // The length of the framing, and the state after it.
        let (n, next) = match &mut self.body {
            Body::Over => return Ok(Step::Over),
            Body::Length { left: 0, .. } => (0, Body::Over),
            Body::Chunk(0) => (0, Body::ChunkEnd),
            Body::ToEnd | Body::Length { .. } | Body::Chunk(_) if bytes.is_empty() => {
                return Ok(Step::NeedsMore);
            }
            Body::ToEnd => return Ok(Step::Data(bytes.len())),
            Body::Length { left, .. } | Body::Chunk(left) => {
                let n = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= n as u64;
                return Ok(Step::Data(n));
            }
            Body::ChunkEnd => match bytes {
                [b'\r', b'\n', ..] => (2, Body::Size),
                [] | [b'\r'] => return Ok(Step::NeedsMore),
                _ => return Err(self.input.broken_chunks()),
            },
            Body::Size => match httparse::parse_chunk_size(bytes) {
                Ok(Complete((n, 0))) => (n, Body::Trailer),
                Ok(Complete((n, size))) => (n, Body::Chunk(size)),
                Ok(Partial) if bytes.len() < HEAD => return Ok(Step::NeedsMore),
                Ok(Partial) | Err(_) => return Err(self.input.broken_chunks()),
            },
            Body::Trailer => match httparse::parse_headers(bytes, &mut [EMPTY_HEADER; FIELDS]) {
                Ok(Complete((n, _))) => (n, Body::Over),
                Ok(Partial) if bytes.len() < HEAD => return Ok(Step::NeedsMore),
                Ok(Partial) | Err(_) => return Err(self.input.broken_chunks()),
            },
        };
        self.input.take(n);
        self.body = next;
        Ok(Step::Framing)
    }

    /// Handles the end of the stream, which is an error unless it ends the body.
    fn end(&mut self) -> Result<(), String> {
        let host = &self.input.host;
        match mem::replace(&mut self.body, Body::Over) {
            Body::ToEnd | Body::Over => Ok(()),
            Body::Length { left, of } => {
                let n = of - left;
                Err(format!(
                    "{host} closes the connection after {n} of {of} bytes"
                ))
            }
            Body::Size | Body::Chunk(_) | Body::ChunkEnd | Body::Trailer => Err(format!(
                "{host} closes the connection before the last chunk"
            )),
        }
    }
}

/// The bytes from the server.
struct Input {
    host: String,
    server: TcpStream,
    timeout: Duration,
    /// The received bytes, and the number of those consumed.
    bytes: Vec<u8>,
    taken: usize,
    buf: Vec<u8>,
}

impl Input {
    /// The bytes not consumed yet.
    fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn take(&mut self, n: usize) -> &[u8] {
        let start = self.taken;
        self.taken += n;
        &self.bytes[start..self.taken]
    }

    /// Receives more. Returns `false` at the end of the stream.
    async fn more(&mut self, os: &mut Os) -> Result<bool, String> {
        let received = self.server.recv(os, &mut self.buf).await;
        let n =
            received.map_err(|error| format!("the connection to {} failed: {error}", self.host))?;
        self.bytes.drain(..mem::take(&mut self.taken));
        self.bytes.extend_from_slice(&self.buf[..n]);
        Ok(n > 0)
    }

    /// Receives the head of a response.
    async fn head(mut self, os: &mut Os) -> Result<Response, String> {
        loop {
            if let Some((len, status, body)) = parse(self.rest(), &self.host)? {
                let head = String::from_utf8_lossy(self.take(len));
                let head = head.trim_end().to_string();
                // An interim response comes before the requested one.
                if (100..200).contains(&status) && status != 101 {
                    continue;
                }
                return Ok(Response {
                    status,
                    head,
                    body,
                    input: self,
                });
            }
            let host = &self.host;
            if self.rest().len() >= HEAD {
                return Err(format!("{host} sends a head of more than {HEAD} bytes"));
            }
            if !self.more(os).await? {
                return Err(format!(
                    "{} ends the connection without an answer",
                    self.host
                ));
            }
        }
    }

    fn broken_chunks(&self) -> String {
        format!("{} answers in chunks that are not HTTP", self.host)
    }
}

/// The head's length, its status and the body's framing; `None` if the head is incomplete.
fn parse(bytes: &[u8], host: &str) -> Result<Option<(usize, u16, Body)>, String> {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    match head.parse(bytes) {
        Ok(Complete(len)) => {
            let status = head.code.unwrap_or_default();
            let body = body(status, head.headers).map_err(|why| format!("{host} {why}"))?;
            Ok(Some((len, status, body)))
        }
        Ok(Partial) => Ok(None),
        Err(error) => Err(format!("{host} does not answer in HTTP: {error}")),
    }
}

/// The framing of a body.
fn body(status: u16, fields: &[httparse::Header<'_>]) -> Result<Body, String> {
    if status < 200 || status == 204 || status == 304 {
        return Ok(Body::Over);
    }
    let values = |name: &'static str| {
        let fields = fields.iter();
        let named = fields.filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| String::from_utf8_lossy(field.value).trim().to_string())
    };
    let codings: Vec<_> = values("transfer-encoding").collect();
    let codings = codings.join(", ");
    if codings.eq_ignore_ascii_case("chunked") {
        return Ok(Body::Size);
    }
    if !codings.is_empty() {
        return Err(format!(
            "answers in the coding {codings:?}, which is not supported"
        ));
    }
    let mut lengths = values("content-length");
    let Some(length) = lengths.next() else {
        return Ok(Body::ToEnd);
    };
    let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
    match length.parse() {
        Ok(of) if is_number && lengths.all(|other| other == length) => {
            Ok(Body::Length { left: of, of })
        }
        _ => Err("does not say clearly how long the body is: see its Content-Length".to_string()),
    }
}

/// Connects to the first address of a host that accepts.
async fn connect(os: &mut Os, host: &str) -> Result<TcpStream, String> {
    // The colons of an IPv6 address are in brackets; a colon after them starts the port.
    let addr = if host.rsplit(']').next().is_some_and(|end| end.contains(':')) {
        host.to_string()
    } else {
        format!("{host}:80")
    };
    let to: Endpoint = addr
        .parse()
        .map_err(|error| format!("cannot find {host}: {error}"))?;
    os.connect(to).await.map_err(|error| error.to_string())
}
