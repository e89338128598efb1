//! The files of the directory that is served.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::OsStr,
    fmt::Write,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use rustix::{fs::OFlags, io::Errno};
use trapline::Os;

use super::{BAD_REQUEST, BUSY, FAILED, FORBIDDEN, HTML, NOT_FOUND, PIECE, Status, TEXT};

/// How many files are kept, and for how long.
const PAGES: usize = 256;
const KEEP: Duration = Duration::from_secs(1);

pub(super) struct Site {
    /// Without links.
    root: PathBuf,
    pub(super) timeout: Duration,
    /// What was sent in the last second, by the path of the request.
    pages: RefCell<BTreeMap<String, Rc<Page>>>,
}

impl Site {
    pub(super) fn new(root: PathBuf, timeout: Duration) -> Self {
        Self {
            root,
            timeout,
            pages: RefCell::default(),
        }
    }

    /// What was sent for this path in the last second.
    pub(super) fn kept(&self, path: &str) -> Option<Rc<Page>> {
        self.pages.borrow().get(path).cloned()
    }
}

pub(super) struct Page {
    pub(super) kind: &'static str,
    pub(super) body: Vec<u8>,
}

/// What there is at a path.
pub(super) enum Found {
    Page(Page),
    Long {
        kind: &'static str,
        file: File,
        len: u64,
    },
    /// A directory, whose path ends with a slash.
    Moved(String),
}

pub(super) async fn find(os: &mut Os, site: &Site, path: &str) -> Result<Found, Status> {
    let (root, owned) = (site.root.clone(), path.to_string());
    let found = os.run_blocking(move || look(&root, &owned)).await;
    found.unwrap_or_else(|panicked| {
        tracing::error!("cannot look up {path}: {panicked}");
        Err(FAILED)
    })
}

/// Keeps a page for the requests of the next second.
pub(super) async fn keep(os: &mut Os, site: &Rc<Site>, path: &str, page: Rc<Page>) {
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
