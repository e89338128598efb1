//! The files of the directory that is served.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustix::io::Errno;
use trapline::{Os, Queue};

use super::{
    beneath,
    listing::{Listing, encode},
    status::{BAD_REQUEST, BUSY, FAILED, FORBIDDEN, HTML, NOT_FOUND, Status, TEXT},
};

/// Files up to this size are kept in memory.
pub(super) const PIECE: usize = 64 * 1024;
/// The number of cached files, and how long they are kept.
const PAGES: usize = 256;
const KEEP: Duration = Duration::from_secs(1);
/// The size of the read-ahead of a long file.
pub(super) const AHEAD: u64 = 1024 * 1024;

pub(super) struct Site {
    root: Arc<OwnedFd>,
    pub(super) timeout: Duration,
    /// The files sent in the last second, by the path of the request.
    pub(super) pages: RefCell<BTreeMap<String, Rc<Page>>>,
    /// When to drop each of them.
    kept: Queue<(Duration, String)>,
}

impl Site {
    pub(super) async fn new(
        os: &mut Os,
        root: OwnedFd,
        timeout: Duration,
    ) -> Result<Rc<Self>, trapline::Errno> {
        let site = Rc::new(Self {
            root: Arc::new(root),
            timeout,
            pages: RefCell::default(),
            kept: Queue::unbounded(os).await,
        });
        let theirs = Rc::clone(&site);
        // A daemon, so that the server need not wait for it at its end.
        let forget = async move |os: &mut Os| {
            while let Ok((instant, path)) = theirs.kept.get(os).await {
                os.sleep_until(instant).await;
                theirs.pages.borrow_mut().remove(&path);
            }
        };
        os.spawn_daemon("forget", forget).await?;
        Ok(site)
    }
}

pub(super) struct Page {
    pub(super) kind: &'static str,
    /// None for a list.
    pub(super) modified: Option<SystemTime>,
    pub(super) body: Body,
}

pub(super) enum Body {
    Bytes(Vec<u8>),
    /// A file too long to be kept in memory, and its length.
    File(Arc<File>, u64),
}

impl Body {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, len) => *len,
        }
    }
}

/// What exists at a path.
pub(super) enum Found {
    Page(Page),
    /// A directory with many entries.
    Long(Listing),
    /// A directory, whose path ends with a slash.
    Moved(String),
}

pub(super) async fn find(os: &mut Os, site: &Site, path: &str) -> Result<Found, Status> {
    let (root, owned) = (Arc::clone(&site.root), path.to_string());
    let found = os.run_blocking(move || look(&root, &owned)).await;
    found.unwrap_or_else(|panicked| {
        tracing::error!("cannot look up {path}: {panicked}");
        Err(FAILED)
    })
}

/// Keeps a page for the requests of the next second.
pub(super) async fn keep(os: &mut Os, site: &Rc<Site>, path: &str, page: Rc<Page>) {
    let is_large = matches!(&page.body, Body::Bytes(bytes) if bytes.len() > PIECE);
    if is_large || site.pages.borrow().len() >= PAGES {
        return;
    }
    let until = os.now().await + KEEP;
    if site.kept.put(os, (until, path.to_string())).await.is_ok() {
        site.pages.borrow_mut().insert(path.to_string(), page);
    }
}

/// Looks up a path. Runs on a thread.
fn look(root: &OwnedFd, path: &str) -> Result<Found, Status> {
    let decoded = decode(path).ok_or(BAD_REQUEST)?;
    let relative = relative(&decoded)?;
    match open(root, &relative)? {
        Opened::File(_) if decoded.ends_with(b"/") => Err(NOT_FOUND),
        Opened::File(file) => content(kind(&relative), file),
        Opened::Directory(_) if !decoded.ends_with(b"/") => {
            // The path is rebuilt, since the received //host would lead to a host.
            let to = encode(relative.as_os_str().as_bytes());
            Ok(Found::Moved(format!("/{to}/")))
        }
        Opened::Directory(directory) => match open(root, &relative.join("index.html")) {
            Ok(Opened::File(file)) => content(HTML, file),
            Ok(Opened::Directory(_)) | Err(NOT_FOUND) => list(directory, &relative),
            Err(status) => Err(status),
        },
    }
}

/// The path under the root. It never leads up, for any contents of the disk.
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
    File(File),
    Directory(OwnedFd),
}

fn open(root: &OwnedFd, relative: &Path) -> Result<Opened, Status> {
    let opened = beneath::open(root, relative).map_err(|errno| status(errno.into()))?;
    let file = File::from(opened);
    let about = file.metadata().map_err(status)?;
    if about.is_dir() {
        Ok(Opened::Directory(file.into()))
    } else if about.is_file() {
        Ok(Opened::File(file))
    } else {
        Err(FORBIDDEN)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "so it comes from map_err")]
fn status(error: io::Error) -> Status {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP) => NOT_FOUND,
        Some(Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::XDEV) => FORBIDDEN,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN) => BUSY,
        _ => {
            tracing::error!("cannot read a file: {error}");
            FAILED
        }
    }
}

fn content(kind: &'static str, file: File) -> Result<Found, Status> {
    let about = file.metadata().map_err(status)?;
    let body = if about.len() > PIECE as u64 {
        ahead(&file, 0).map_err(status)?;
        Body::File(Arc::new(file), about.len())
    } else {
        let mut bytes = Vec::with_capacity(about.len() as usize);
        let read = file.take(PIECE as u64).read_to_end(&mut bytes);
        read.map_err(status)?;
        Body::Bytes(bytes)
    };
    let modified = about.modified().ok();
    Ok(Found::Page(Page {
        kind,
        modified,
        body,
    }))
}

/// Reads the next part of a file into the page cache, so that sending it waits for no disk. Runs on
/// a thread.
pub(super) fn ahead(file: &File, from: u64) -> io::Result<()> {
    let (mut at, mut buf) = (from, vec![0; PIECE]);
    while at < from + AHEAD {
        match file.read_at(&mut buf, at)? {
            0 => break,
            n => at += n as u64,
        }
    }
    Ok(())
}

fn list(directory: OwnedFd, path: &Path) -> Result<Found, Status> {
    let listing = Listing::new(directory, path);
    let mut listing = listing.map_err(|errno| status(errno.into()))?;
    Ok(match listing.whole() {
        None => Found::Long(listing),
        Some(page) => Found::Page(Page {
            kind: HTML,
            modified: None,
            body: Body::Bytes(page),
        }),
    })
}

fn kind(path: &Path) -> &'static str {
    let extension = path.extension().map(OsStr::to_ascii_lowercase);
    let extension = extension.as_deref().and_then(OsStr::to_str);
    match extension.unwrap_or_default() {
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

/// Decodes the percent escapes of a URL.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        decoded.push(match byte {
            b'%' => (digit()? * 16 + digit()?) as u8,
            _ => byte,
        });
    }
    Some(decoded)
}
