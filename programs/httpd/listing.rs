//! A directory as a page of links.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{AtFlags, Dir, FileType, statat},
    io,
};

/// Up to this many entries are sorted. A longer list keeps the directory's order, and is sent in
/// pieces.
const SORTED: usize = 1000;
/// The size of a piece.
const PIECE: usize = 16 * 1024;

/// A list that is being read.
pub(super) struct Listing {
    entries: Dir,
    html: String,
    is_over: bool,
}

impl Listing {
    /// Starts a list.
    pub(super) fn new(directory: OwnedFd, path: &Path) -> io::Result<Self> {
        let mut listing = Self {
            entries: Dir::new(directory)?,
            html: String::new(),
            is_over: false,
        };
        let mut names = Vec::new();
        while names.len() <= SORTED && !listing.is_over {
            names.extend(listing.name()?);
        }
        if listing.is_over {
            names.sort();
        }
        let title = escape(&format!("/{}", path.display()));
        listing.html = format!(
            "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
             <h1>{title}</h1>\n<ul>\n"
        );
        if !path.as_os_str().is_empty() {
            listing.link(b"../");
        }
        for name in names {
            listing.link(&name);
        }
        Ok(listing)
    }

    /// The whole list, if all of it has been read.
    pub(super) fn whole(&mut self) -> Option<Vec<u8>> {
        self.is_over.then(|| self.take())
    }

    /// The next piece; an empty one after the last. Runs on a thread.
    pub(super) fn piece(&mut self) -> io::Result<Vec<u8>> {
        if self.is_over && self.html.is_empty() {
            return Ok(Vec::new());
        }
        while self.html.len() < PIECE && !self.is_over {
            if let Some(name) = self.name()? {
                self.link(&name);
            }
        }
        Ok(self.take())
    }

    fn take(&mut self) -> Vec<u8> {
        if self.is_over {
            self.html.push_str("</ul>\n");
        }
        std::mem::take(&mut self.html).into_bytes()
    }

    /// The next name, with a slash if it is a directory; `None` at the end. The entries `.` and
    /// `..` are skipped.
    fn name(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(entry) = self.entries.read() else {
            self.is_over = true;
            return Ok(None);
        };
        let entry = entry?;
        let mut name = entry.file_name().to_bytes().to_vec();
        if matches!(&*name, b"." | b"..") {
            return Ok(None);
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            // Of the link itself, since its target may be outside.
            let (here, flags) = (self.entries.fd()?, AtFlags::SYMLINK_NOFOLLOW);
            if let Ok(about) = statat(here, entry.file_name(), flags) {
                kind = FileType::from_raw_mode(about.st_mode);
            }
        }
        if kind.is_dir() {
            name.push(b'/');
        }
        Ok(Some(name))
    }

    fn link(&mut self, name: &[u8]) {
        let (link, text) = (encode(name), escape(&String::from_utf8_lossy(name)));
        self.html += &format!("<li><a href=\"{link}\">{text}</a>\n");
    }
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// Encodes the bytes of a path for a URL.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        match byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            true => text.push(byte.into()),
            false => text += &format!("%{byte:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn a_list_is_sorted_up_to_its_limit() {
        let process = std::process::id();
        let directory = std::env::temp_dir().join(format!("trapline-listing-{process}"));
        fs::create_dir(&directory).unwrap();
        let read = || {
            let opened = OwnedFd::from(File::open(&directory).unwrap());
            Listing::new(opened, Path::new("")).unwrap().whole()
        };
        for number in 0..SORTED {
            File::create(directory.join(format!("{number:04}"))).unwrap();
        }
        let page = String::from_utf8(read().expect("it is whole")).unwrap();
        let names: Vec<&str> = page.split("href=").skip(1).collect();
        assert!(names.len() == SORTED && names.is_sorted(), "{page}");
        File::create(directory.join("more")).unwrap();
        assert!(read().is_none(), "it is sent in pieces");
        fs::remove_dir_all(directory).unwrap();
    }
}
