//! A descriptor that a program hands to a world.

use std::{
    any::Any,
    fmt, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    rc::Rc,
};

use rustix::fs::OFlags;

/// A descriptor and the value that keeps it open. [`Os::attach`](crate::Os::attach) makes it, and
/// [`Request::Attach`](crate::Request::Attach) carries it to the world.
///
/// [`Descriptor::new`] calls `as_fd` of the value, and nothing else does. Clones share the value.
///
/// ```
/// use std::{fs::File, os::fd::{AsFd, AsRawFd}, rc::Rc};
/// use trapline::Descriptor;
///
/// let file = Rc::new(File::open("/dev/null")?);
/// let descriptor = Descriptor::new(Rc::clone(&file));
/// assert_eq!(descriptor.as_fd().as_raw_fd(), file.as_raw_fd());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Descriptor {
    fd: BorrowedFd<'static>,
    #[cfg_attr(
        not(feature = "serde"),
        expect(dead_code, reason = "it keeps the descriptor open")
    )]
    owner: Rc<dyn Any>,
}

/// The end of a socket through which a value of [`Os::run_recorded`](crate::Os::run_recorded) crosses
/// the world.
#[cfg(feature = "serde")]
pub(crate) struct Carrier(pub(crate) std::os::unix::net::UnixStream);

#[cfg(feature = "serde")]
impl AsFd for Carrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Descriptor {
    /// Keeps `owner` and its descriptor.
    ///
    /// *Panics* if `as_fd` of `owner` panics.
    #[must_use]
    pub fn new<S: AsFd + 'static>(owner: Rc<S>) -> Self {
        let fd = owner.as_fd().as_raw_fd();
        #[expect(
            unsafe_code,
            reason = "a borrow from a field of the same structure has no lifetime to name"
        )]
        // SAFETY: the descriptor stays open while `owner` is borrowed. It is borrowed until
        // `owner` is dropped: the `Rc` does not move it, and this type never borrows it mutably.
        // Each descriptor that `as_fd` returns is bound to a borrow of this structure.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        Self { fd, owner }
    }

    /// Returns whether it carries a value of `Os::run_recorded`, and belongs to no program.
    #[cfg(feature = "serde")]
    #[must_use]
    pub fn is_carrier(&self) -> bool {
        self.owner.is::<Carrier>()
    }

    /// Other processes may share these three.
    pub(crate) fn is_standard(&self) -> bool {
        self.fd.as_raw_fd() <= 2
    }

    /// Leaves a standard stream as it is.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        if !self.is_standard() {
            let flags = rustix::fs::fcntl_getfl(self.fd)?;
            rustix::fs::fcntl_setfl(self.fd, flags | OFlags::NONBLOCK)?;
        }
        Ok(())
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Descriptor({})", self.fd.as_raw_fd())
    }
}
