//! Bytes and lines: buffers above any [`Device`](super::device::Device). They make no calls of their
//! own but `recv`, `send` and `shutdown_write`.
//!
//! | file | owns |
//! |---|---|
//! | `reader.rs` | [`Reader`], [`Lines`] |
//! | `writer.rs` | [`Writer`] |
//! | `copy.rs` | `Os::copy` |

mod copy;
mod reader;
mod writer;

pub use reader::{Lines, Reader};
pub use writer::Writer;

/// The room of a buffer that is always kept.
const PIECE: usize = 8 * 1024;
