use std::{
    cell::RefCell,
    collections::BTreeMap,
    error::Error,
    ffi::OsStr,
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write as _},
    mem,
    net::SocketAddr,
    num::NonZeroUsize,
    ops::Range,
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use rustix::{fs::OFlags, io::Errno};
use trapline::{Elapsed, Os, Program, TcpStream, cli, sync::Semaphore};

/// A web server for the files of a directory, with a task per client
///
/// It speaks HTTP/1.1 and 1.0: GET and HEAD, connections that stay, requests sent ahead. A
/// directory is shown as its index.html, or as a list. Links are followed as far as they do not
/// lead out of the root.
///
/// Files are read on threads, so that a slow disk holds up nobody else. Those of up to 64 KiB are
/// kept in memory for a second, and for so long a change of them may go unseen.
#[derive(clap::Args)]
pub(crate) struct Httpd {
    /// The address to listen at; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8000")]
    addr: SocketAddr,
    /// The directory to serve
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    root: PathBuf,
    /// How long a client may take to send a request or to read anything of an answer, and how long
    /// its connection may idle
    #[arg(long, value_name = "TIME", value_parser = cli::duration, default_value = "30s")]
    timeout: Duration,
    /// How many connections are served at once; more wait until one of them ends
    #[arg(long, value_name = "N", default_value = "1000")]
    max_connections: NonZeroUsize,
}

/// The longest head of a request, in bytes and in lines.
const HEAD: usize = 8192;
const HEADERS: usize = 64;
/// The longest body of a request. Bodies are thrown away.
const BODY: u64 = 64 * 1024;
/// Files up to this size are sent whole and kept, longer ones read and sent in pieces of it.
const PIECE: usize = 64 * 1024;
/// How many files are kept, and for how long.
const PAGES: usize = 256;
const KEEP: Duration = Duration::from_secs(1);
/// How long a client may take to take note that its connection ends.
const FAREWELL: Duration = Duration::from_secs(2);

type Status = &'static str;

const OK: Status = "200 OK";
const MOVED: Status = "301 Moved Permanently";
const BAD_REQUEST: Status = "400 Bad Request";
const FORBIDDEN: Status = "403 Forbidden";
const NOT_FOUND: Status = "404 Not Found";
const WRONG_METHOD: Status = "405 Method Not Allowed";
const TOO_SLOW: Status = "408 Request Timeout";
const NO_LENGTH: Status = "411 Length Required";
const BODY_TOO_LONG: Status = "413 Content Too Large";
const TARGET_TOO_LONG: Status = "414 URI Too Long";
const HEAD_TOO_LONG: Status = "431 Request Header Fields Too Large";
const FAILED: Status = "500 Internal Server Error";
const BUSY: Status = "503 Service Unavailable";
const WRONG_VERSION: Status = "505 HTTP Version Not Supported";

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

impl Program for Httpd {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let addr = self.addr;
        let root = directory(&self.root).map_err(|error| {
            let root = self.root.display();
            format!("cannot serve {root}: {error} (see --root)")
        })?;
        let listener = os.listen(addr).await;
        let listener =
            listener.map_err(|error| format!("cannot listen at {addr}: {error} (see --addr)"))?;
        let addr = listener.local_addr()?;
        writeln!(os, "Serving {} at http://{addr}/", root.display());
        let site = Rc::new(Site {
            root,
            timeout: self.timeout,
            pages: RefCell::default(),
        });
        let free = Semaphore::new(os, self.max_connections.get()).await;
        loop {
            // Those beyond the limit wait with the operating system, until it has no room either.
            let permit = free.acquire(os).await?;
            let (client, peer) = match listener.accept(os).await {
                Ok(accepted) => accepted,
                // Out of descriptors, most likely: the clients that are there must end first.
                Err(error) => {
                    writeln!(os, "Cannot accept: {error}");
                    os.sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let connection = Connection::new(&site, client, peer);
            let handler = async move |os: &mut Os| {
                let _permit = permit;
                // Clients may go as they please.
                if let Err(error) = connection.serve(os).await {
                    tracing::info!("{peer}: {error}");
                }
            };
            if let Err(errno) = os.spawn_detached("client", handler).await {
                writeln!(os, "Client rejected {peer}: {errno}");
            }
        }
    }
}

fn directory(root: &Path) -> io::Result<PathBuf> {
    let root = root.canonicalize()?;
    fs::read_dir(&root)?;
    Ok(root)
}

// ---- a connection

struct Connection {
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
    fn new(site: &Rc<Site>, client: TcpStream, peer: SocketAddr) -> Self {
        Self {
            site: Rc::clone(site),
            client,
            peer,
            input: vec![0; HEAD].into(),
            unread: 0..0,
            output: Vec::new(),
        }
    }

    async fn serve(mut self, os: &mut Os) -> io::Result<()> {
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
        let kept = self.site.pages.borrow().get(&request.path).cloned();
        if let Some(page) = kept {
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

// ---- a request

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    Get,
    Head,
    Other,
}

struct Request {
    method: Method,
    /// As it was sent, without host and query.
    path: String,
    /// Whether it is HTTP/1.0, where connections end unless they are said to stay.
    old: bool,
    close: bool,
    /// The length of its body.
    body: u64,
}

impl Request {
    /// In place of one that is not understood, or not accepted.
    const REFUSED: Self = Self {
        method: Method::Other,
        path: String::new(),
        old: false,
        close: true,
        body: 0,
    };

    /// Anything about a body's length that could be read in two ways is refused: what one takes for
    /// a body another might take for the next request.
    fn new(head: &httparse::Request<'_, '_>) -> Result<Self, Status> {
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

// ---- the files

struct Site {
    /// Without links.
    root: PathBuf,
    timeout: Duration,
    /// What was sent in the last second, by the path of the request.
    pages: RefCell<BTreeMap<String, Rc<Page>>>,
}

struct Page {
    kind: &'static str,
    body: Vec<u8>,
}

/// What there is at a path.
enum Found {
    Page(Page),
    Long {
        kind: &'static str,
        file: File,
        len: u64,
    },
    /// A directory, whose path ends with a slash.
    Moved(String),
}

async fn find(os: &mut Os, site: &Site, path: &str) -> Result<Found, Status> {
    let (root, owned) = (site.root.clone(), path.to_string());
    let found = os.run_blocking(move || look(&root, &owned)).await;
    found.unwrap_or_else(|panicked| {
        tracing::error!("cannot look up {path}: {panicked}");
        Err(FAILED)
    })
}

/// Keeps a page for the requests of the next second.
async fn keep(os: &mut Os, site: &Rc<Site>, path: &str, page: Rc<Page>) {
    if page.body.len() > PIECE || site.pages.borrow().len() >= PAGES {
        return;
    }
    let (pages, key) = (Rc::clone(site), path.to_string());
    let forget = async move |os: &mut Os| {
        os.sleep(KEEP).await;
        pages.pages.borrow_mut().remove(&key);
    };
    if os.spawn_detached("forget", forget).await.is_ok() {
        site.pages.borrow_mut().insert(path.to_string(), page);
    }
}

/// Looks up what there is at a path. Runs on a thread.
fn look(root: &Path, path: &str) -> Result<Found, Status> {
    let decoded = decode(path).ok_or(BAD_REQUEST)?;
    let relative = relative(&decoded)?;
    let (file, len) = match open(root, &relative)? {
        Opened::File(_, _) if decoded.ends_with(b"/") => return Err(NOT_FOUND),
        Opened::File(file, len) => (file, len),
        Opened::Directory(_) if !decoded.ends_with(b"/") => {
            // Not the path as it came: //host would lead there.
            let to = encode(relative.as_os_str().as_bytes(), b"/");
            return Ok(Found::Moved(format!("/{to}/")));
        }
        Opened::Directory(real) => match open(root, &relative.join("index.html")) {
            Ok(Opened::File(file, len)) => return content(HTML, file, len),
            Ok(Opened::Directory(_)) | Err(NOT_FOUND) => return list(&real, &relative),
            Err(status) => return Err(status),
        },
    };
    content(kind(&relative), file, len)
}

/// The path under the root. It never leads up, whatever there is on the disk.
fn relative(decoded: &[u8]) -> Result<PathBuf, Status> {
    let mut relative = PathBuf::new();
    for part in decoded.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(FORBIDDEN),
            _ if part.contains(&0) => return Err(BAD_REQUEST),
            _ => relative.push(OsStr::from_bytes(part)),
        }
    }
    Ok(relative)
}

enum Opened {
    File(File, u64),
    Directory(PathBuf),
}

/// Opens what is at a path, unless a link led out of the root to get there. Whoever can change the
/// directory while it is served might get round this, but they could as well put a copy there.
fn open(root: &Path, relative: &Path) -> Result<Opened, Status> {
    let real = root.join(relative).canonicalize().map_err(status)?;
    if !real.starts_with(root) {
        return Err(FORBIDDEN);
    }
    // Nobody may ever write to what looks like a file and is a pipe.
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags as i32)
        .open(&real);
    let file = file.map_err(status)?;
    let about = file.metadata().map_err(status)?;
    if about.is_dir() {
        Ok(Opened::Directory(real))
    } else if about.is_file() {
        Ok(Opened::File(file, about.len()))
    } else {
        Err(FORBIDDEN)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "so it comes from map_err")]
fn status(error: io::Error) -> Status {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP) => NOT_FOUND,
        Some(Errno::ACCESS | Errno::PERM | Errno::NXIO) => FORBIDDEN,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => BUSY,
        _ => {
            tracing::error!("cannot read a file: {error}");
            FAILED
        }
    }
}

fn content(kind: &'static str, file: File, len: u64) -> Result<Found, Status> {
    if len > PIECE as u64 {
        return Ok(Found::Long { kind, file, len });
    }
    let mut body = Vec::with_capacity(len as usize);
    file.take(PIECE as u64)
        .read_to_end(&mut body)
        .map_err(status)?;
    Ok(Found::Page(Page { kind, body }))
}

/// A directory as a page of links.
fn list(real: &Path, relative: &Path) -> Result<Found, Status> {
    let mut names = Vec::new();
    for entry in fs::read_dir(real).map_err(status)? {
        let entry = entry.map_err(status)?;
        let mut name = entry.file_name().as_bytes().to_vec();
        if entry.path().is_dir() {
            name.push(b'/');
        }
        names.push(name);
    }
    names.sort();
    if !relative.as_os_str().is_empty() {
        names.insert(0, b"../".to_vec());
    }
    let title = escape(&format!("/{}", relative.display()));
    let mut page = format!(
        "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<h1>{title}</h1>\n<ul>\n"
    );
    for name in names {
        let (link, text) = (encode(&name, b"/"), escape(&String::from_utf8_lossy(&name)));
        // A string takes everything.
        let _ = writeln!(page, "<li><a href=\"{link}\">{text}</a>");
    }
    page.push_str("</ul>\n");
    let (kind, body) = (HTML, page.into_bytes());
    Ok(Found::Page(Page { kind, body }))
}

fn kind(path: &Path) -> &'static str {
    let extension = path.extension().map(OsStr::to_ascii_lowercase);
    match extension
        .as_deref()
        .and_then(OsStr::to_str)
        .unwrap_or_default()
    {
        "html" | "htm" => HTML,
        "txt" | "md" | "log" | "rs" | "toml" => TEXT,
        "css" => "text/css; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" | "map" => "application/json",
        "xml" => "application/xml",
        "pdf" => "application/pdf",
        "wasm" => "application/wasm",
        "gz" => "application/gzip",
        "zip" => "application/zip",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "mp3" => "audio/mpeg",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        _ => "application/octet-stream",
    }
}

/// Undoes the %20 and the like of a URL.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            _ => byte,
        });
    }
    Some(decoded)
}

/// Writes bytes as they stand in a URL.
fn encode(bytes: &[u8], plain: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || plain.contains(&byte) {
            text.push(byte.into());
        } else {
            // A string takes everything.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
