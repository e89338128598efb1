//! A file that its module names with a detour, as a package names a file of a folder beside it.

use trapline::{Error, Kernel};

/// Fails with a panic of the closure itself.
pub(super) fn panics(_: &mut Kernel) -> Result<(), Error> {
    panic!("a panic")
}
