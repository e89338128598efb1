//! The event log: typed facts, their text, and the tracers that receive them.
//!
//! Uses the ABI and containment.
//!
//! | file | owns |
//! |---|---|
//! | `event.rs` | [`Event`], [`Fact`], [`Tracer`], and the lines of the canonical log |
//! | `text.rs` | what they hold, and its text: [`Detail`], [`Call`], [`Answered`] |
//! | `follow.rs` | [`Follower`]: the current call of each task |
//! | `dispatch.rs` | the tracers of a kernel |
//! | `entered.rs` | the span of `tracing` that is entered |
//! | `tracing.rs` | the bridge to `tracing` |
//! | `recording/` | the event log in a file |

mod dispatch;
mod entered;
mod event;
mod follow;
pub mod recording;
mod text;
pub(crate) mod tracing;

pub(crate) use dispatch::Log;
pub use event::{Event, Fact, Topic, Tracer};
pub use follow::{CallInfo, Follower, TraceLine};
pub use text::{Answered, Call, Cycle, Detail, Wake};
