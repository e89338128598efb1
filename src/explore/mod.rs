//! The search for a schedule that breaks a program. Uses the crate's public API only.
//!
//! | file | owns |
//! |---|---|
//! | `check.rs` | [`check`]: the settings of a search, in the manner of a builder |
//! | `settings.rs` | their values; those of the environment |
//! | `strategy.rs` | the strategies, and the policy of each |
//! | `search.rs`, `tally.rs` | the loop over seeds; what a search finds |
//! | `crew.rs`, `meter.rs` | the threads and the parts of a search; how far it is |
//! | `trial.rs` | one schedule: the body runs, and its result |
//! | `complete.rs`, `exhaustive.rs` | the exhaustive search; the tree of schedules |
//! | `frontier.rs` | the division of that tree |
//! | `audit.rs` | the same turns in another order: memory that the search does not see |
//! | `causal.rs`, `clock.rs` | which turns come before which in every equivalent schedule; vector clocks |
//! | `bounded.rs` | all schedules with few preemptions |
//! | `twice.rs` | the same schedule again: hidden nondeterminism |
//! | `plan.rs` | a schedule as its departures from first in, first out; its text |
//! | `guide.rs`, `planned.rs` | the policy that follows or records such a plan; runs under plans |
//! | `minimise.rs` | the fewest preemptions with which a schedule fails |
//! | `story.rs`, `excerpt.rs` | a schedule as text; its turns that are shown |
//! | `reruns.rs` | a failing schedule, recorded, replayed and explained |
//! | `explored.rs` | what a search returns |
//! | `shared.rs`, `sometimes.rs` | [`Shared`]; [`sometimes!`](crate::sometimes) |
//! | `deadline.rs`, `timed.rs` | the end of a search's time, between schedules and within them |
//! | `watchdog.rs` | the thread that ends a search whose task makes no trap |
//! | `notes.rs` | what the trial under way has noted, per thread |
//! | `quiet.rs` | panics of a trial, which print nothing |
//!
//! Thread locals are in `notes.rs` and `quiet.rs` alone. A trial runs on one thread from its begin
//! to its end, and clears them.

mod audit;
mod bounded;
mod causal;
mod check;
mod clock;
mod complete;
mod crew;
mod deadline;
mod excerpt;
mod exhaustive;
mod explored;
mod frontier;
mod guide;
mod meter;
mod minimise;
mod notes;
mod plan;
mod planned;
mod quiet;
mod reruns;
mod search;
mod settings;
mod shared;
mod sometimes;
mod story;
mod strategy;
mod tally;
mod timed;
mod trial;
mod twice;
mod watchdog;

pub use check::{Check, check};
pub use explored::{Explored, Failure, Progress};
pub use shared::Shared;
#[doc(hidden)]
pub use sometimes::{SITES, Site, held, name_of};
pub use strategy::SearchStrategy;
