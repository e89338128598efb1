//! The event log: typed facts, what they say in words, and where they go.
//!
//! Uses the ABI and containment.
//!
//! | file | owns |
//! |---|---|
//! | `event.rs` | [`Event`], [`Fact`], [`Tracer`] |
//! | `text.rs` | their text: [`Call`], [`Answered`], the lines of the canonical log |
//! | `follow.rs` | [`Follower`]: which call each task is at |
//! | `dispatch.rs` | the tracers of a kernel |
//! | `tracing.rs` | the bridge to `tracing` |
//! | `recording/` | the event log in a file |

mod dispatch;
mod event;
mod follow;
pub mod recording;
mod text;
pub(crate) mod tracing;

pub(crate) use dispatch::Log;
pub use event::{Detail, Event, Fact, Tracer, Wake};
pub use follow::{CallInfo, Follower, Told};
pub use text::{Answered, Call, Cycle};
