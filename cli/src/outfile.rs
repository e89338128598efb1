//! A file that a command writes at its end. It is opened at the start, so that a bad path is found
//! before the work. A new file goes again at once, so that an interrupt leaves none.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use trapline::KernelId;

use super::{output::unwritten, stdio};

/// A file to write, or standard output for `-`.
pub(super) struct OutFile {
    path: PathBuf,
    /// `None` for standard output, and for a file that did not exist: it appears when it is written.
    file: Option<File>,
}

impl OutFile {
    /// Opens the file of an option, and leaves what it contains.
    ///
    /// *Errors:* the file is also one of `others`, which it would replace; or it cannot be written.
    pub(super) fn open(option: &str, path: &Path, others: &[&Path]) -> Result<Self, String> {
        if let Some(other) = others.iter().find(|other| is_same(path, other)) {
            return Err(format!(
                "{option} would replace {}: name another file",
                other.display()
            ));
        }
        let mut options = OpenOptions::new();
        options.write(true);
        let file = match is_stdout(path) {
            true => Ok(None),
            false if options.create_new(true).open(path).is_ok() => {
                fs::remove_file(path).map(|()| None)
            }
            false => {
                let old = options.create_new(false).create(true).open(path);
                old.map(Some)
            }
        };
        Ok(Self {
            file: file.map_err(|error| cannot_write(path, &error))?,
            path: path.to_path_buf(),
        })
    }

    /// Replaces what the file contains.
    pub(super) fn write(self, text: &[u8]) -> Result<(), String> {
        if is_stdout(&self.path) {
            let message = stdio::print(text).err().and_then(|error| unwritten(&error));
            return message.map_or(Ok(()), Err);
        }
        let put = || {
            let mut file = match self.file {
                Some(file) => file,
                None => File::create(&self.path)?,
            };
            // A pipe and a device have no length.
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            file.write_all(text)
        };
        put().map_err(|error| cannot_write(&self.path, &error))
    }
}

pub(super) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

pub(super) fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {}", path.display(), why(path, error))
}

/// Explains why a file cannot be made. Names the first folder of its path that is missing, or what is
/// in its place.
pub(super) fn why(path: &Path, error: &io::Error) -> String {
    let is_of_folder = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    let folders = path.ancestors().skip(1);
    let missing = folders
        .filter(|folder| is_of_folder && *folder != Path::new("") && !folder.is_dir())
        .last();
    match missing {
        Some(found) if found.exists() => format!("{} is no folder", found.display()),
        Some(folder) => format!("there is no folder {}: make it first", folder.display()),
        None => error.to_string(),
    }
}

/// Whether two names are of one file, which may not exist yet.
pub(super) fn is_same(a: &Path, b: &Path) -> bool {
    if let (Ok(a), Ok(b)) = (fs::metadata(a), fs::metadata(b)) {
        // Its names may be hard links.
        return (a.dev(), a.ino()) == (b.dev(), b.ino());
    }
    place(a).is_some_and(|a| Some(a) == place(b))
}

/// The folder of a file, without links, and its name there.
fn place(path: &Path) -> Option<(PathBuf, OsString)> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let name = real.file_name()?.to_os_string();
    let folder = match real.parent()? {
        folder if folder == Path::new("") => Path::new("."),
        folder => folder,
    };
    Some((folder.canonicalize().ok()?, name))
}

/// The file of one of several kernels: its number is behind the name.
pub(super) fn of_kernel(path: &Path, kernel: KernelId) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{kernel}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_appears_when_it_is_written() {
        let path = std::env::temp_dir().join(format!("trapline-outfile-{}", std::process::id()));
        for (before, text) in [(None, "a long text"), (Some("a long text"), "a text")] {
            let file = OutFile::open("--output", &path, &[]).unwrap();
            // An interrupt leaves no empty file, and what an old one contains.
            assert_eq!(fs::read_to_string(&path).ok().as_deref(), before);
            file.write(text.as_bytes()).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(text, "a text");
    }
}
