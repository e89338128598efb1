//! Opens files beneath a directory and nothing else. Links do not lead out, even if a path is
//! exchanged during the call.

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags, openat, readlinkat},
    io::{Errno, Result},
};

/// A name may belong to a pipe or a terminal: opening it must neither block nor make it the
/// controlling terminal.
const FLAGS: OFlags = OFlags::CLOEXEC
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);
/// The largest number of links in a path, as in Linux.
const LINKS: usize = 40;

/// Opens a path for reading. The path is relative and has no `..`; links in it may have. A link
/// that leads out of the root, or is absolute, is [`Errno::XDEV`].
pub(super) fn open(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    if let Some(result) = open_at_once(root, path) {
        return result;
    }
    walk(root, path)
}

/// Lets the system resolve the path; `None` where it cannot.
#[cfg(target_os = "linux")]
fn open_at_once(root: &OwnedFd, path: &Path) -> Option<Result<OwnedFd>> {
    use rustix::fs::{ResolveFlags, openat2};

    const ATTEMPTS: usize = 8;
    let path = Path::new(".").join(path);
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS {
        match openat2(root, &path, FLAGS, Mode::empty(), how) {
            // A rename during the call may have changed the target of a `..`.
            Err(Errno::AGAIN) => {}
            // An old system, or a sandbox that rejects the call.
            Err(Errno::NOSYS | Errno::PERM) => break,
            result => return Some(result),
        }
    }
    None
}

/// Opens one component after the other, each beneath the one before. A `..` goes back to the
/// directory that was opened before, which a rename may have moved meanwhile.
fn walk(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    let mut opened: Vec<OwnedFd> = Vec::new();
    let mut left = Vec::new();
    push(&mut left, path.as_os_str().as_bytes());
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == b".." {
            opened.pop().ok_or(Errno::XDEV)?;
            continue;
        }
        let here = opened.last().unwrap_or(root).as_fd();
        let kind = match left.is_empty() {
            true => OFlags::empty(),
            false => OFlags::DIRECTORY,
        };
        match openat(here, &*name, FLAGS | OFlags::NOFOLLOW | kind, Mode::empty()) {
            Ok(fd) => opened.push(fd),
            Err(error @ (Errno::LOOP | Errno::MLINK | Errno::NOTDIR)) => {
                let target = readlinkat(here, &*name, Vec::new()).map_err(|_| error)?;
                links += 1;
                if links > LINKS {
                    return Err(Errno::LOOP);
                } else if target.to_bytes().starts_with(b"/") {
                    return Err(Errno::XDEV);
                }
                push(&mut left, target.to_bytes());
            }
            Err(error) => return Err(error),
        }
    }
    match opened.pop() {
        Some(fd) => Ok(fd),
        None => openat(root, ".", FLAGS, Mode::empty()),
    }
}

/// Pushes a path's components onto the stack, the first on top.
fn push(stack: &mut Vec<Vec<u8>>, path: &[u8]) {
    let parts = path.split(|byte| *byte == b'/');
    let parts = parts.filter(|part| !matches!(*part, b"" | b"."));
    stack.extend(parts.rev().map(<[u8]>::to_vec));
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Read,
        os::unix::fs::symlink,
        path::PathBuf,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::*;

    /// A directory with a root in it, and files beside the root.
    fn tree(test: &str) -> (PathBuf, OwnedFd) {
        let top = std::env::temp_dir().join(format!("trapline-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&top);
        let root = top.join("root");
        for directory in ["root/a/b", "outside/b"] {
            fs::create_dir_all(top.join(directory)).unwrap();
        }
        for (path, text) in [("root/a/b/file", "inside"), ("outside/b/file", "outside")] {
            fs::write(top.join(path), text).unwrap();
        }
        for (target, link) in [
            ("a/b/file", "link"),
            ("../../a/./b//file", "a/b/around"),
            ("../root/a", "out-and-in"),
            ("../outside", "out"),
            ("loop", "loop"),
            ("a/b/file/..", "through-a-file"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        symlink(root.join("a"), root.join("absolute")).unwrap();
        let fd = File::open(&root).unwrap().into();
        (top, fd)
    }

    fn read(opened: OwnedFd) -> String {
        let mut text = String::new();
        File::from(opened).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn links_are_followed_as_far_as_they_stay_beneath() {
        let (top, root) = tree("beneath");
        type Open = fn(&OwnedFd, &Path) -> Result<OwnedFd>;
        for (name, open) in [("open", open as Open), ("walk", walk)] {
            for path in ["a/b/file", "link", "a/b/around"] {
                let opened = open(&root, Path::new(path)).unwrap();
                assert_eq!(read(opened), "inside", "{name} {path}");
            }
            for path in ["", "a", "a/b"] {
                open(&root, Path::new(path)).unwrap();
            }
            for (path, expected) in [
                ("out-and-in/b/file", Errno::XDEV),
                ("out/b/file", Errno::XDEV),
                ("out", Errno::XDEV),
                ("absolute/b/file", Errno::XDEV),
                ("loop", Errno::LOOP),
                ("none", Errno::NOENT),
                ("a/none/file", Errno::NOENT),
                ("a/b/file/x", Errno::NOTDIR),
                ("through-a-file", Errno::NOTDIR),
            ] {
                let error = open(&root, Path::new(path)).unwrap_err();
                assert_eq!(error, expected, "{name} {path}");
            }
        }
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_directory_exchanged_for_a_link_lets_nothing_out() {
        let (top, root) = tree("exchanged");
        let (path, aside) = (top.join("root/a"), top.join("aside"));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    fs::rename(&path, &aside).unwrap();
                    symlink("../outside", &path).unwrap();
                    fs::remove_file(&path).unwrap();
                    fs::rename(&aside, &path).unwrap();
                }
            });
            let mut opened = (0..5000).filter_map(|_| walk(&root, Path::new("a/b/file")).ok());
            let leaks = opened.any(|file| read(file) == "outside");
            is_over.store(true, Ordering::Relaxed);
            assert!(!leaks);
        });
        fs::remove_dir_all(top).unwrap();
    }
}
