//! The search for a schedule that breaks a program. Uses the crate's public API only.
//!
//! | files | own |
//! |---|---|
//! | `check.rs`, `settings.rs`, `strategy.rs` | [`check`]: the settings of a search; what each strategy decides |
//! | `search.rs`, `bounded.rs`, `complete.rs` | the loops: over seeds; over all schedules with few preemptions; over a tree |
//! | `exhaustive.rs`, `causal.rs`, `clock.rs` | that tree: one schedule for each causal order of turns |
//! | `crew.rs`, `meter.rs`, `tally.rs`, `explored.rs` | threads and parts; how far a search is; what it finds; what it returns |
//! | `trial.rs`, `notes.rs`, `quiet.rs` | one schedule: the body runs; what it notes; its panics |
//! | `audit.rs`, `twice.rs` | the same turns in another order, or again: memory that the search does not see, hidden nondeterminism |
//! | `plan.rs`, `guide.rs`, `minimise.rs` | a schedule as its departures from first in, first out; runs of such plans; the fewest departures |
//! | `reruns.rs`, `story.rs`, `excerpt.rs` | a failing schedule, recorded, replayed and explained; its turns as text |
//! | `deadline.rs`, `timed.rs`, `watchdog.rs` | the end of a search's time, between schedules, within them, and within a turn |
//! | `shared.rs`, `sometimes.rs` | [`Shared`]; [`sometimes!`](crate::sometimes) |
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
mod guide;
mod meter;
mod minimise;
mod notes;
mod plan;
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
