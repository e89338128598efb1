//! What travels beside a call: the reply, and arguments and answers too big for a word.
//!
//! A kernel has one [`TrapFrame`], shared with the [`Os`](crate::Os) of every task. Its contents
//! are valid for one trap. A stub fills it and yields; the kernel empties it before another task
//! runs. The kernel fills it and resumes; the stub empties it before the task continues. Only
//! deferred calls outlive a trap: the task does not wait for their answers.
//!
//! | file | owns |
//! |---|---|
//! | `frame.rs` | [`TrapFrame`], [`Payload`], references to devices |
//! | `lanes.rs` | which lane a trap takes |
//! | `deferred.rs`, `scope.rs` | calls without a trap; the state of a scope |
//! | `new_task.rs` | programs, and the options of a new task |
//! | `resume.rs` | the resume of a program, its panics, and the screen around some |
//! | `descriptor.rs` | [`Descriptor`]: an open descriptor and what keeps it open |
//! | `disk.rs` | operations on a disk, and the rules for its names |
//! | `drops.rs` | destructors that run one after another |
//! | `footprint.rs` | what a turn touches: [`Footprints`] |
//! | `mutation.rs` | calls that are left out: [`Mutation`] |
//! | `noting.rs`, `deferring.rs` | the notes of a search; what a task leaves without a trap |
//! | `accesses.rs` | accesses to shared values, for the event log |
//! | `mailboxes.rs`, `mail_notes.rs` | the mailboxes that belong to a kernel; what tasks do to all of them, for a search |
//! | `pause.rs` | how blocking work pauses |
//! | `unread.rs` | what was read of standard input ahead |
//! | `status.rs` | the status of a queue, which its handles read without a trap |

pub(crate) mod accesses;
mod deferred;
mod deferring;
mod descriptor;
pub(crate) mod disk;
mod drops;
mod footprint;
mod frame;
mod lanes;
pub(crate) mod mail_notes;
mod mailboxes;
mod mutation;
mod new_task;
mod noting;
pub(crate) mod pause;
mod resume;
mod scope;
mod status;
pub(crate) mod unread;

pub(crate) use crate::abi::Kind;
pub use accesses::Label;
pub(crate) use deferred::{Deferred, GivenBack};
#[cfg(feature = "serde")]
pub(crate) use descriptor::Carrier;
pub use descriptor::Descriptor;
pub use disk::{DiskOp, FileOp};
pub use footprint::{Continued, Footprints, Note, Object};
pub(crate) use frame::{CONSOLE_ROOM, DeviceRef, MAX_IO, Parcel, Payload, TrapFrame};
pub(crate) use mailboxes::{BoundMailbox, Received, Receiving, SharedMailbox};
pub use mailboxes::{Lack, Mail};
pub use mutation::{CallSite, Effect, Mutation};
pub(crate) use new_task::{
    Birth, Caller, Charge, Fate, Keeper, NewTask, Options, Program, Start, Store, Streams,
    TextQueue, ended,
};
pub(crate) use resume::{fault, resume, screened};
pub(crate) use scope::ScopeState;
pub(crate) use status::QueueStatus;
pub(crate) use unread::MAX_LINE;
