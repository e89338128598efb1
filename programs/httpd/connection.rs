//! A client's connection: requests come in, answers go out.

use std::{
    fs::File,
    io::{self, Read, Write},
    mem,
    net::SocketAddr,
    ops::Range,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use trapline::{Elapsed, Os, TcpStream};

use super::{
    BAD_REQUEST, HEAD_TOO_LONG, MOVED, OK, PIECE, Status, TARGET_TOO_LONG, TEXT, TOO_SLOW,
    WRONG_METHOD, WRONG_VERSION,
    files::{Found, Page, Site, find, keep},
    request::{Method, Request},
};

/// The longest head of a request, in bytes and in lines.
const HEAD: usize = 8192;
const HEADERS: usize = 64;
/// How long a client may take to take note that its connection ends.
const FAREWELL: Duration = Duration::from_secs(2);

pub(super) struct Connection {
    site: Rc<Site>,
    client: TcpStream,
    peer: SocketAddr,
    /// What has come in, and the part of it that was not taken yet.
    input: Box<[u8]>,
    unread: Range<usize>,
    /// What is to go out.
    output: Vec<u8>,
}

/// Why there is no (further) answer to a request.
enum Trouble {
    /// It is answered with this, and the connection ends.
    Refused(Status),
    /// There is nobody to answer.
    Lost(io::Error),
}

impl From<Status> for Trouble {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl Connection {
    pub(super) fn new(site: &Rc<Site>, client: TcpStream, peer: SocketAddr) -> Self {
        Self {
            site: Rc::clone(site),
            client,
            peer,
            input: vec![0; HEAD].into(),
            unread: 0..0,
            output: Vec::new(),
        }
    }

    pub(super) async fn serve(mut self, os: &mut Os) -> io::Result<()> {
        loop {
            match self.exchange(os).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(Trouble::Refused(status)) => {
                    self.respond(&Request::REFUSED, status, "");
                    break;
                }
                Err(Trouble::Lost(error)) => return Err(error),
            }
        }
        self.flush(os).await?;
        // To close a connection on which more comes in may take our answer away from the client.
        self.client.shutdown_write(os).await?;
        let rest = os.timeout(FAREWELL, async |os| {
            while let Ok(1..) = self.client.recv(os, &mut self.input).await {}
        });
        // Either way, it has had its time.
        let (Ok(()) | Err(Elapsed)) = rest.await;
        Ok(())
    }

    /// Takes a request and answers it. Whether there may be another.
    async fn exchange(&mut self, os: &mut Os) -> Result<bool, Trouble> {
        let Some(request) = self.request(os).await? else {
            return Ok(false);
        };
        self.discard(os, request.body).await?;
        if request.method == Method::Other {
            self.respond(&request, WRONG_METHOD, "Allow: GET, HEAD\r\n");
        } else {
            self.answer(os, &request).await?;
        }
        Ok(!request.close)
    }

    /// The next request; `None` when the client has no more, or makes none.
    async fn request(&mut self, os: &mut Os) -> Result<Option<Request>, Trouble> {
        // Requests that were sent ahead are answered together.
        if self.output.len() < PIECE
            && let Some(request) = self.parse()?
        {
            return Ok(Some(request));
        }
        self.flush(os).await?;
        // Clients that idle after a long answer need not keep the room it took.
        self.output.shrink_to(HEAD);
        let head = os.timeout(self.site.timeout, async |os| self.head(os).await);
        match head.await {
            Ok(result) => result,
            Err(Elapsed) if self.unread.is_empty() => Ok(None),
            Err(Elapsed) => Err(TOO_SLOW.into()),
        }
    }

    async fn head(&mut self, os: &mut Os) -> Result<Option<Request>, Trouble> {
        loop {
            if let Some(request) = self.parse()? {
                return Ok(Some(request));
            }
            // Only the end of a line can change that.
            loop {
                let new = self.fill(os).await?;
                if new.is_empty() && self.unread.is_empty() {
                    return Ok(None);
                } else if new.is_empty() {
                    return Err(BAD_REQUEST.into());
                } else if self.input[new].contains(&b'\n') {
                    break;
                }
            }
        }
    }

    fn parse(&mut self) -> Result<Option<Request>, Status> {
        if self.unread.is_empty() {
            return Ok(None);
        }
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut head = httparse::Request::new(&mut headers);
        match head.parse(&self.input[self.unread.clone()]) {
            Ok(httparse::Status::Partial) => Ok(None),
            Ok(httparse::Status::Complete(len)) => {
                let request = Request::new(&head)?;
                self.unread.start += len;
                Ok(Some(request))
            }
            Err(httparse::Error::TooManyHeaders) => Err(HEAD_TOO_LONG),
            Err(httparse::Error::Version) => Err(WRONG_VERSION),
            Err(_) => Err(BAD_REQUEST),
        }
    }

    /// Reads more, and answers where it is in `input`; nothing at the end of the stream.
    async fn fill(&mut self, os: &mut Os) -> Result<Range<usize>, Trouble> {
        if self.unread.len() == self.input.len() {
            let is_target = !self.input.contains(&b'\n');
            let what = if is_target {
                TARGET_TOO_LONG
            } else {
                HEAD_TOO_LONG
            };
            return Err(what.into());
        }
        if self.unread.end == self.input.len() || self.unread.is_empty() {
            self.input.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        let end = self.unread.end;
        let n = self.client.recv(os, &mut self.input[end..]).await?;
        self.unread.end += n;
        Ok(end..self.unread.end)
    }

    /// Throws a request's body away.
    async fn discard(&mut self, os: &mut Os, body: u64) -> Result<(), Trouble> {
        if body == 0 {
            return Ok(());
        }
        self.flush(os).await?;
        let all = os.timeout(self.site.timeout, async |os| {
            let mut left = body as usize;
            loop {
                let n = left.min(self.unread.len());
                self.unread.start += n;
                left -= n;
                if left == 0 {
                    return Ok(());
                }
                if self.fill(os).await?.is_empty() {
                    return Err(BAD_REQUEST.into());
                }
            }
        });
        all.await.unwrap_or(Err(TOO_SLOW.into()))
    }

    /// Answers with what there is at the path of the request.
    async fn answer(&mut self, os: &mut Os, request: &Request) -> Result<(), Trouble> {
        if let Some(page) = self.site.kept(&request.path) {
            self.send_page(request, &page);
            return Ok(());
        }
        match find(os, &self.site, &request.path).await {
            Ok(Found::Page(page)) => {
                let page = Rc::new(page);
                self.send_page(request, &page);
                keep(os, &self.site, &request.path, page).await;
            }
            Ok(Found::Long { kind, file, len }) => {
                self.start(request, OK, kind, len, "");
                if request.method == Method::Get {
                    self.send_file(os, file, len).await?;
                }
            }
            Ok(Found::Moved(to)) => {
                self.respond(request, MOVED, &format!("Location: {to}\r\n"));
            }
            Err(status) => self.respond(request, status, ""),
        }
        Ok(())
    }

    fn send_page(&mut self, request: &Request, page: &Page) {
        self.start(request, OK, page.kind, page.body.len() as u64, "");
        if request.method != Method::Head {
            self.output.extend(&page.body);
        }
    }

    /// Sends a long file piece by piece, each of them read on a thread.
    async fn send_file(&mut self, os: &mut Os, file: File, len: u64) -> io::Result<()> {
        let mut left = len;
        let file = Arc::new(file);
        while left > 0 {
            let mut output = mem::take(&mut self.output);
            let from = Arc::clone(&file);
            let read = move || {
                let mut piece = (&*from).take(left.min(PIECE as u64));
                let n = piece.read_to_end(&mut output)?;
                Ok::<_, io::Error>((output, n))
            };
            let read = os.run_blocking(read).await.map_err(io::Error::other)?;
            let n;
            (self.output, n) = read?;
            if n == 0 {
                // It has become shorter, and its length is told: only the end can say so.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= n as u64;
            self.flush(os).await?;
        }
        Ok(())
    }

    /// Answers with a status and the same as text.
    fn respond(&mut self, request: &Request, status: Status, headers: &str) {
        self.start(request, status, TEXT, status.len() as u64 + 1, headers);
        if request.method != Method::Head {
            self.output.extend(status.as_bytes());
            self.output.push(b'\n');
        }
    }

    /// The head of an answer.
    fn start(&mut self, request: &Request, status: Status, kind: &str, len: u64, headers: &str) {
        tracing::info!(
            "{} {:?} {} {status}",
            self.peer,
            request.method,
            request.path
        );
        let connection = match (request.close, request.old) {
            (true, _) => "Connection: close\r\n",
            (false, true) => "Connection: keep-alive\r\n",
            (false, false) => "",
        };
        let head = write!(
            self.output,
            "HTTP/1.1 {status}\r\nContent-Length: {len}\r\nContent-Type: {kind}\r\n\
             {headers}{connection}\r\n"
        );
        head.expect("a vector takes everything");
    }

    /// Sends what is to go out. A client may be as slow as it likes, but must not stand still.
    async fn flush(&mut self, os: &mut Os) -> io::Result<()> {
        let mut rest = &*self.output;
        while !rest.is_empty() {
            let sent = os.timeout(self.site.timeout, async |os| {
                self.client.send(os, rest).await
            });
            let sent = sent.await.map_err(|Elapsed| io::ErrorKind::TimedOut)??;
            rest = &rest[sent..];
        }
        self.output.clear();
        Ok(())
    }
}
