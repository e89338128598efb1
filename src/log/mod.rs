//! The event log: typed facts, their text, and the tracers that receive them.
//!
//! | file | owns |
//! |---|---|
//! | `event.rs` | [`Event`], [`Fact`], [`Tracer`], and the lines of the canonical log |
//! | `text.rs` | what they hold, and its text: [`Detail`], [`Call`], [`Answered`] |
//! | `ledger.rs` | [`Ledger`]: what the events do to the books of tasks |
//! | `describe.rs` | what the ledger says of the tasks |
//! | `spans.rs` | the books of a task, and its spans: [`Span`], [`Moment`] |
//! | `calls.rs` | calls in words, and the lines of a trace |
//! | `beside.rs` | events that are shown beside those of other kernels |
//! | `waits.rs` | chains and cycles of tasks that wait for each other |
//! | `dispatch.rs` | the tracers of a kernel, and the span of `tracing` that is entered |
//! | `tracing.rs` | the bridge to `tracing` |
//! | `recording/` | the event log in a file |

mod beside;
mod calls;
mod describe;
mod dispatch;
mod event;
mod ledger;
pub mod recording;
mod spans;
mod text;
pub(crate) mod tracing;
pub(crate) mod waits;

pub use calls::{CallInfo, TraceLine};
pub(crate) use describe::{disk_words, file_words};
pub(crate) use dispatch::Log;
pub use event::{Event, Fact, Topic, Tracer};
pub use ledger::{Follower, Ledger};
pub use spans::{Doing, Ending, Moment, Span};
pub use text::{Answered, Call, Cycle, Detail, Wake};
