//! S92 by a second implementation.
