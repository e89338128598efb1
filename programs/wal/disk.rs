//! What the log writes to. Its tests have a disk here that leaves out calls.

pub(super) use trapline::{Disk, File};
