//! A client's connection: it receives requests and sends answers.

use std::{
    fs::File,
    io,
    net::SocketAddr,
    ops::Range,
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use httpdate::HttpDate;

use trapline::{Elapsed, Os, Reader, Stream, TcpStream, Writer};

use crate::serve::flush;

use super::{
    clients::Seat,
    files::{AHEAD, Body, Found, PIECE, Page, Site, ahead, find, keep},
    listing::Listing,
    request::{Method, Request},
    status::{
        BAD_REQUEST, HEAD_TOO_LONG, HTML, MOVED, NOT_MODIFIED, OK, PART, PAST_THE_END, Status,
        TARGET_TOO_LONG, TEXT, TOO_SLOW, WRONG_METHOD, WRONG_VERSION,
    },
};

/// The longest head of a request, in bytes and in lines.
const HEAD: usize = 8192;
const HEADERS: usize = 64;
/// The time for a client to notice the end of its connection.
const FAREWELL: Duration = Duration::from_secs(2);
/// The same while the server stops.
const LAST: Duration = Duration::from_millis(500);

pub(super) struct Connection {
    site: Rc<Site>,
    client: TcpStream,
    peer: SocketAddr,
    seat: Seat,
    input: Reader<Stream>,
    output: Writer<Stream>,
}

/// Why a connection gets no further answer.
enum Trouble {
    /// This status is the answer, and the connection ends.
    Refused(Status),
    /// The client has left, so no answer is sent.
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
    pub(super) fn new(site: &Rc<Site>, client: TcpStream, peer: SocketAddr, seat: Seat) -> Self {
        Self {
            site: Rc::clone(site),
            input: Reader::new(&client, HEAD),
            // A send needs a timeout, so a write that fits makes none.
            output: Writer::new(&client, usize::MAX),
            client,
            peer,
            seat,
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
        // Closing a connection with unread bytes may discard the answer before the client reads it.
        self.client.shutdown_write(os).await?;
        let idle = self.seat.idle(&self.client);
        let span = if self.seat.is_last() { LAST } else { FAREWELL };
        let rest = os.timeout(span, async |os| {
            let mut rest = Vec::new();
            while let Ok(1..) = self.client.recv_into(os, &mut rest).await {
                rest.clear();
            }
        });
        // A timeout and an end of the stream are treated alike.
        let (Ok(()) | Err(Elapsed)) = rest.await;
        drop(idle);
        Ok(())
    }

    /// Reads a request and answers it. Returns whether another may follow.
    async fn exchange(&mut self, os: &mut Os) -> Result<bool, Trouble> {
        let Some(mut request) = self.request(os).await? else {
            return Ok(false);
        };
        self.discard(os, request.body).await?;
        request.close |= self.seat.is_last() && self.input.buffer().is_empty();
        if request.method == Method::Other {
            self.respond(&request, WRONG_METHOD, "Allow: GET, HEAD\r\n");
        } else {
            self.answer(os, &mut request).await?;
        }
        Ok(!request.close)
    }

    /// The next request; `None` at the end of the stream or after an idle timeout.
    async fn request(&mut self, os: &mut Os) -> Result<Option<Request>, Trouble> {
        // Pipelined requests are answered together.
        if self.output.unsent() < PIECE
            && let Some(request) = self.parse()?
        {
            return Ok(Some(request));
        }
        self.flush(os).await?;
        if self.input.buffer().is_empty() && self.seat.is_last() {
            return Ok(None);
        }
        let head = os.timeout(self.site.timeout, async |os| self.head(os).await);
        match head.await {
            Ok(result) => result,
            Err(Elapsed) if self.input.buffer().is_empty() => Ok(None),
            Err(Elapsed) => Err(TOO_SLOW.into()),
        }
    }

    async fn head(&mut self, os: &mut Os) -> Result<Option<Request>, Trouble> {
        loop {
            if let Some(request) = self.parse()? {
                return Ok(Some(request));
            }
            // Between two requests the connection may be closed meanwhile, which is an error.
            let is_idle = self.input.buffer().is_empty();
            let idle = is_idle.then(|| self.seat.idle(&self.client));
            let is_end = self.fill(os).await?;
            drop(idle);
            if is_end && self.input.buffer().is_empty() {
                return Ok(None);
            } else if is_end {
                return Err(BAD_REQUEST.into());
            }
        }
    }

    fn parse(&mut self) -> Result<Option<Request>, Status> {
        if self.input.buffer().is_empty() {
            return Ok(None);
        }
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut head = httparse::Request::new(&mut headers);
        match head.parse(self.input.buffer()) {
            Ok(httparse::Status::Partial) => Ok(None),
            Ok(httparse::Status::Complete(len)) => {
                let request = Request::new(&head)?;
                self.input.consume(len);
                Ok(Some(request))
            }
            Err(httparse::Error::TooManyHeaders) => Err(HEAD_TOO_LONG),
            Err(httparse::Error::Version) => Err(WRONG_VERSION),
            Err(_) => Err(BAD_REQUEST),
        }
    }

    /// Reads more. Returns whether the stream is at its end.
    async fn fill(&mut self, os: &mut Os) -> Result<bool, Trouble> {
        match self.input.fill(os).await {
            Ok(n) => Ok(n == 0),
            Err(error) if error.kind() != io::ErrorKind::InvalidData => Err(error.into()),
            Err(_) if self.input.buffer().contains(&b'\n') => Err(HEAD_TOO_LONG.into()),
            Err(_) => Err(TARGET_TOO_LONG.into()),
        }
    }

    /// Reads and drops a request's body.
    async fn discard(&mut self, os: &mut Os, body: u64) -> Result<(), Trouble> {
        if body == 0 {
            return Ok(());
        }
        self.flush(os).await?;
        let all = os.timeout(self.site.timeout, async |os| {
            let mut left = body as usize;
            loop {
                let n = left.min(self.input.buffer().len());
                self.input.consume(n);
                left -= n;
                if left == 0 {
                    return Ok(());
                }
                if self.fill(os).await? {
                    return Err(BAD_REQUEST.into());
                }
            }
        });
        all.await.unwrap_or(Err(TOO_SLOW.into()))
    }

    /// Answers with the file or directory at the path of the request.
    async fn answer(&mut self, os: &mut Os, request: &mut Request) -> Result<(), Trouble> {
        let kept = self.site.pages.borrow().get(&request.path).cloned();
        if let Some(page) = kept {
            return Ok(self.send_page(os, request, &page).await?);
        }
        match find(os, &self.site, &request.path).await {
            Ok(Found::Page(page)) => {
                let page = Rc::new(page);
                keep(os, &self.site, &request.path, Rc::clone(&page)).await;
                self.send_page(os, request, &page).await?;
            }
            Ok(Found::Long(listing)) => self.send_listing(os, request, listing).await?,
            Ok(Found::Moved(to)) => self.respond(request, MOVED, &format!("Location: {to}\r\n")),
            Err(status) => self.respond(request, status, ""),
        }
        Ok(())
    }

    /// Answers with a page, a part of it, or 304 if the client has it already.
    async fn send_page(&mut self, os: &mut Os, request: &Request, page: &Page) -> io::Result<()> {
        let len = page.body.len();
        let (mut status, mut range, mut about) = (OK, 0..len, String::new());
        if let Some(modified) = page.modified.map(told) {
            let date = HttpDate::from(modified);
            about = format!("Last-Modified: {date}\r\n");
            if request.has(modified) {
                self.start(request, NOT_MODIFIED, &about);
                return Ok(());
            }
            about += "Accept-Ranges: bytes\r\n";
            match request.range(len, modified) {
                None => {}
                Some(Ok(part)) => {
                    let (first, last) = (part.start, part.end - 1);
                    about += &format!("Content-Range: bytes {first}-{last}/{len}\r\n");
                    (status, range) = (PART, part);
                }
                Some(Err(())) => {
                    let whole = format!("Content-Range: bytes */{len}\r\n");
                    self.respond(request, PAST_THE_END, &whole);
                    return Ok(());
                }
            }
        }
        let content = content(page.kind, range.end - range.start);
        self.start(request, status, &(content + &about));
        match &page.body {
            _ if request.method == Method::Head => {}
            Body::Bytes(bytes) => {
                let part = &bytes[range.start as usize..range.end as usize];
                self.output.write(os, part).await?;
            }
            Body::File(file, _) => self.send_file(os, file, range).await?,
        }
        Ok(())
    }

    /// Sends a part of a file. A part that is not in memory is read on a thread first, so that a
    /// slow disk delays no other task.
    async fn send_file(
        &mut self,
        os: &mut Os,
        file: &Arc<File>,
        range: Range<u64>,
    ) -> io::Result<()> {
        self.flush(os).await?;
        let mut at = range.start;
        let mut read = if at < AHEAD { AHEAD } else { at };
        while at < range.end {
            if at >= read {
                let file = Arc::clone(file);
                let more = os.run_blocking(move || ahead(&file, at)).await;
                more.map_err(io::Error::other)??;
                read = at + AHEAD;
            }
            let len = (read.min(range.end) - at) as usize;
            let sent = os.timeout(self.site.timeout, async |os| {
                self.client.send_file(os, file, at, len).await
            });
            match sent.await.map_err(|Elapsed| io::ErrorKind::TimedOut)?? {
                // The file is now shorter than the length in the head. Only ending the connection
                // can say so.
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => at += n as u64,
            }
        }
        Ok(())
    }

    /// Sends a long list in pieces, each of them read on a thread.
    async fn send_listing(
        &mut self,
        os: &mut Os,
        request: &mut Request,
        mut listing: Listing,
    ) -> io::Result<()> {
        let coding = match request.old {
            // In HTTP/1.0 the end of the connection is the end of the list.
            true => "",
            false => "Transfer-Encoding: chunked\r\n",
        };
        request.close |= request.old;
        let headers = format!("{coding}Content-Type: {HTML}\r\n");
        self.start(request, OK, &headers);
        if request.method == Method::Head {
            return Ok(());
        }
        loop {
            let piece;
            let read = os.run_blocking(move || (listing.piece(), listing));
            (piece, listing) = read.await.map_err(io::Error::other)?;
            let piece = piece?;
            if !request.old {
                write!(self.output, "{:x}\r\n", piece.len());
            }
            self.output.write(os, &piece).await?;
            if !request.old {
                write!(self.output, "\r\n");
            }
            if piece.is_empty() {
                return Ok(());
            }
            self.flush(os).await?;
        }
    }

    /// Answers with a status, and its text as the body.
    fn respond(&mut self, request: &Request, status: Status, headers: &str) {
        let content = content(TEXT, status.len() as u64 + 1);
        self.start(request, status, &(content + headers));
        if request.method != Method::Head {
            writeln!(self.output, "{status}");
        }
    }

    /// The head of an answer.
    fn start(&mut self, request: &Request, status: Status, headers: &str) {
        let Request { method, path, .. } = request;
        tracing::info!("{} {method:?} {path} {status}", self.peer);
        let connection = match (request.close, request.old) {
            (true, _) => "Connection: close\r\n",
            (false, true) => "Connection: keep-alive\r\n",
            (false, false) => "",
        };
        let date = HttpDate::from(told(SystemTime::now()));
        write!(
            self.output,
            "HTTP/1.1 {status}\r\nDate: {date}\r\n{headers}{connection}\r\n"
        );
    }

    async fn flush(&mut self, os: &mut Os) -> io::Result<()> {
        flush(os, &mut self.output, self.site.timeout).await
    }
}

/// The headers about a body.
fn content(kind: &str, len: u64) -> String {
    format!("Content-Length: {len}\r\nContent-Type: {kind}\r\n")
}

/// A time as HTTP can express it: in whole seconds, and not in the future.
fn told(time: SystemTime) -> SystemTime {
    let since = time.min(SystemTime::now()).duration_since(UNIX_EPOCH);
    UNIX_EPOCH + Duration::from_secs(since.unwrap_or_default().as_secs())
}
