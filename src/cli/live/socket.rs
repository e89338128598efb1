//! The file of a monitor's socket: for its owner alone, and gone when the kernel is.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use rustix::fs::Mode;

/// The file of a socket that was opened here. It is removed with this, unless somebody has put
/// another in its place.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Its device and inode.
    identity: Option<(u64, u64)>,
}

/// Opens a socket that nobody but its owner can reach, in the place of one that nobody listens at
/// any more.
pub(super) fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    make_room(path)?;
    // Not a moment with more permissions: they are given with the file. The mask is the process's,
    // which has no other thread yet that makes files.
    let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = listener?;
    let file = SocketFile {
        path: path.to_path_buf(),
        identity: identity(path),
    };
    Ok((listener, file))
}

fn make_room(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let taken = |what| Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    if !found.file_type().is_socket() {
        return taken("there is a file of that name, and it is no socket");
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(_) => taken("somebody listens there already"),
        Err(error) => Err(error),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

impl SocketFile {
    /// Removes it, if it is still the one that was made here.
    pub(super) fn remove(&self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // It can be in nobody's way but the next monitor's, which replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}
