//! A descriptor of a program's, as a world takes it on.
//!
//! Uses nothing of the crate.

use std::{
    any::Any,
    fmt,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    rc::Rc,
};

/// A descriptor and the value that keeps it open, of [`Os::attach`](crate::Os::attach): what
/// [`Request::Attach`](crate::Request::Attach) carries.
///
/// The value is asked for its descriptor once, when this is made. A value that panics at a later
/// question, or answers with another descriptor, changes nothing. Clones share the value.
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
    _owner: Rc<dyn Any>,
}

impl Descriptor {
    /// Asks `owner` for its descriptor, and keeps both.
    ///
    /// *Panics* if `owner` does when it is asked.
    #[must_use]
    pub fn new<S: AsFd + 'static>(owner: Rc<S>) -> Self {
        let fd = owner.as_fd().as_raw_fd();
        #[expect(
            unsafe_code,
            reason = "a borrow of what the same structure owns has no lifetime to name"
        )]
        // SAFETY: the owner has lent the descriptor for as long as it is borrowed. It is borrowed
        // until `_owner` is dropped: it stays where it is, and `Rc` lends it as shared only, since
        // we never ask for more. Each descriptor that leaves us is bound to a borrow of ours.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        Self { fd, _owner: owner }
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
