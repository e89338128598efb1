//! The file of a monitor's socket. Only its owner can open it, and it is removed with the kernel.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock},
    io::Errno,
};

/// The files of a socket that was opened here.
#[derive(Debug)]
pub(super) struct SocketFile {
    socket: Own,
    /// With the suffix `.lock`. Removed before it is unlocked; until then no other kernel can take it.
    lock: Own,
    _locked: File,
}

/// A file that was made here. Dropping this removes the file, unless another file has replaced it.
#[derive(Debug)]
struct Own {
    path: PathBuf,
    identity: Identity,
}

/// The device and the inode of a file.
type Identity = Option<(u64, u64)>;

/// The number of attempts to take a lock whose file was removed meanwhile.
const ATTEMPTS: usize = 8;

/// Opens a socket that only its owner can reach. It replaces a file on which no kernel listens any
/// more. A lock file decides between kernels that find the same file.
pub(super) fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let (lock, file) = lock(path)?;
    make_room(path)?;
    // The mask sets the permissions at creation, so that they are never wider. The mask is the
    // process's, and no other thread that creates files runs yet, apart from those of other kernels.
    static MASK: Mutex<()> = Mutex::new(());
    let _masked = MASK.lock().unwrap_or_else(PoisonError::into_inner);
    let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = listener?;
    let files = SocketFile {
        socket: Own {
            path: path.to_path_buf(),
            identity: identity(fs::symlink_metadata(path)),
        },
        lock,
        _locked: file,
    };
    Ok((listener, files))
}

/// *Errors:* `AlreadyExists` while another kernel has the lock.
fn lock(socket: &Path) -> io::Result<(Own, File)> {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
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
        let found = identity(file.metadata());
        if found == identity(fs::symlink_metadata(&path)) {
            let identity = found;
            return Ok((Own { path, identity }, file));
        }
    }
    taken("its lock file is being replaced: try again")
}

fn taken<T>(what: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::AlreadyExists, what))
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

fn identity(found: io::Result<Metadata>) -> Identity {
    found.ok().map(|found| (found.dev(), found.ino()))
}

impl SocketFile {
    pub(super) fn remove(&self) {
        self.socket.remove();
        self.lock.remove();
    }
}

impl Own {
    fn remove(&self) {
        let found = identity(fs::symlink_metadata(&self.path));
        if found.is_some() && found == self.identity {
            // A remaining file does no harm: the next kernel replaces or locks it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.remove();
    }
}
