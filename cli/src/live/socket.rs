//! The file of a monitor's socket. Only its owner can open it, and it is removed with the kernel.

use std::{
    fs::{self, File},
    io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock},
    io::Errno,
};

/// The file of a socket that was opened here. Dropping this removes the file, unless another file
/// has replaced it.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Its device and inode.
    identity: Option<(u64, u64)>,
    lock: Lock,
}

/// The lock of a socket's file: a file with the suffix `.lock`. Dropping this removes it.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: File,
}

/// The number of attempts to take a lock whose file was removed meanwhile.
const ATTEMPTS: usize = 8;

impl Lock {
    /// *Errors:* `AlreadyExists` while another kernel has it.
    fn take(socket: &Path) -> io::Result<Self> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let mut path = PathBuf::from(path);
        for _ in 0..ATTEMPTS {
            let mut options = File::options();
            options.create(true).write(true).truncate(false).mode(0o600);
            options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
            let file = options.open(&path)?;
            // A file system without locks still allows listening.
            if let Err(Errno::WOULDBLOCK) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
                return taken("a kernel listens there already");
            }
            // The previous owner may have removed its file, and another kernel made a new one.
            let lock = Self { path, file };
            if lock.is_there() {
                return Ok(lock);
            }
            path = lock.path.clone();
        }
        taken("its lock file is being replaced: try again")
    }

    fn is_there(&self) -> bool {
        let found = self.file.metadata().ok();
        found.map(|found| (found.dev(), found.ino())) == identity(&self.path)
    }

    /// Removes the file if it is still this one. A file of another kernel stays.
    fn remove(&self) {
        if self.is_there() {
            // A remaining file does no harm: the next kernel locks it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed before it is unlocked; until then no other kernel can take it.
        self.remove();
    }
}

fn taken<T>(what: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::AlreadyExists, what))
}

/// Opens a socket that only its owner can reach. It replaces a file on which no kernel listens any
/// more. A lock file decides between kernels that find the same file.
pub(super) fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let lock = Lock::take(path)?;
    make_room(path)?;
    // The mask sets the permissions at creation, so that they are never wider. The mask is the
    // process's, and no other thread that creates files runs yet.
    let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = listener?;
    let file = SocketFile {
        path: path.to_path_buf(),
        identity: identity(path),
        lock,
    };
    Ok((listener, file))
}

fn make_room(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return taken("there is a file of that name, and it is no socket");
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(_) => taken("a kernel listens there already"),
        Err(error) => Err(error),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

impl SocketFile {
    /// Removes the file, if it is still the one that was made here.
    pub(super) fn remove(&self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // A remaining file does no harm: the next monitor replaces it.
            let _ = fs::remove_file(&self.path);
        }
        self.lock.remove();
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}
