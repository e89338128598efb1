//! The search for a schedule that breaks a program. Uses the crate's public API only.
//!
//! | file | owns |
//! |---|---|
//! | `check.rs` | [`check`]: the settings of a search, in the manner of a builder |
//! | `settings.rs` | their values; those of the environment |
//! | `strategy.rs` | the strategies, and the policy of each |
//! | `search.rs` | the loop over schedules, on one thread or more |
//! | `trial.rs` | one schedule: the body runs, and its result |
//! | `complete.rs`, `exhaustive.rs` | the exhaustive search, its audit; the tree of schedules |
//! | `causal.rs` | which turns come before which in every equivalent schedule |
//! | `bounded.rs` | all schedules with few preemptions |
//! | `twice.rs` | the same schedule again: hidden nondeterminism |
//! | `plan.rs` | a schedule as its departures from first in, first out; its text |
//! | `guide.rs` | the policy that follows or records such a plan |
//! | `minimise.rs` | the fewest preemptions with which a schedule fails |
//! | `story.rs` | a schedule as text |
//! | `lab.rs` | a failing schedule, recorded, replayed and explained |
//! | `explored.rs` | what a search returns |
//! | `shared.rs`, `sometimes.rs` | [`Shared`]; [`sometimes!`](crate::sometimes) |
//! | `deadline.rs` | the end of a search's time |
//! | `notes.rs` | what the trial under way has noted, per thread |
//! | `quiet.rs` | panics of a trial, which print nothing |
//!
//! Thread locals are in `notes.rs` and `quiet.rs` alone. A trial runs on one thread from its begin
//! to its end, and clears them.

mod bounded;
mod causal;
mod check;
mod complete;
mod deadline;
mod exhaustive;
mod explored;
mod guide;
mod lab;
mod minimise;
mod notes;
mod plan;
mod quiet;
mod search;
mod settings;
mod shared;
mod sometimes;
mod story;
mod strategy;
mod trial;
mod twice;

pub use check::{Check, check};
pub use explored::{Explored, Failure, Progress};
pub use shared::Shared;
#[doc(hidden)]
pub use sometimes::{SITES, Site, held, name_of};
