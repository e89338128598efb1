//! The search for a schedule that breaks a program. Uses the crate's public API, and the locks
//! of `panic.rs`.
//!
//! | files | own |
//! |---|---|
//! | `check.rs`, `settings.rs`, `strategy.rs` | [`check`]: the settings of a search |
//! | `run.rs` | a search, from its settings to what it has found |
//! | `search.rs`, `feedback.rs`, `bounded.rs`, `complete.rs` | the loops: by seeds, by what they show, by preemptions, over a tree |
//! | `exhaustive.rs`, `node.rs`, `causal.rs`, `foot.rs`, `clock.rs` | that tree: a schedule for each causal order |
//! | `crew.rs`, `meter.rs` | threads and parts; how far a search is |
//! | `tally.rs`, `explored.rs` | what a search finds; what it returns |
//! | `trial.rs`, `notes.rs`, `quiet.rs` | one schedule: its run, its notes, its panics |
//! | `audit.rs`, `twice.rs` | the same turns in another order; the same again |
//! | `mutate.rs` | searches of programs in which one call does nothing |
//! | `worth.rs` | what both of these find |
//! | `cut.rs`, `cuts.rs` | schedules in which a task is cut |
//! | `plan.rs`, `guide.rs`, `minimise.rs` | the decisions that are not the usual ones; the fewest |
//! | `space.rs`, `vary.rs`, `may.rs`, `felt.rs` | what a schedule decides besides the order of turns |
//! | `doom.rs` | the turn from which a schedule fails, however it goes on |
//! | `reruns.rs`, `story.rs`, `excerpt.rs`, `befell.rs` | a failing schedule, explained and recorded |
//! | `deadline.rs`, `timed.rs`, `watchdog.rs` | the end of a search's time, within turns too |
//! | `grade.rs` | [`grade`]: all outcomes of a program, beside those of a reference |
//! | `outcome.rs` | what a run of a graded program comes to |
//! | `kernels.rs` | [`check_kernels`]: schedules of several kernels |
//! | `linear/` | [`linear`]: histories of operations that some order explains |
//! | `shared.rs`, `sometimes.rs` | [`Shared`]; [`sometimes!`](crate::sometimes) |
//!
//! Thread locals are in `notes.rs` and `quiet.rs` alone. A trial runs on one thread from its begin
//! to its end, and clears them.

mod audit;
mod befell;
mod bounded;
mod causal;
mod check;
mod clock;
mod complete;
mod crew;
mod cut;
mod cuts;
mod deadline;
mod doom;
mod excerpt;
mod exhaustive;
mod explored;
mod feedback;
mod felt;
mod foot;
mod grade;
mod guide;
mod kernels;
pub mod linear;
mod may;
mod meter;
mod minimise;
mod mutate;
mod node;
mod notes;
mod outcome;
mod plan;
mod quiet;
mod reruns;
mod run;
mod search;
mod settings;
mod shared;
mod sometimes;
mod space;
mod story;
mod strategy;
mod tally;
mod timed;
mod trial;
mod twice;
mod vary;
mod watchdog;
mod worth;

pub use check::{Check, check};
pub use explored::{Explored, Failure, Progress};
pub use felt::FaultCounts;
pub use grade::{Difference, Grade, Graded, Searched, Verdict, grade};
pub use kernels::check_kernels;
pub use may::MayFault;
pub use outcome::{Outcome, RunEnd};
pub use shared::Shared;
#[doc(hidden)]
pub use sometimes::{SITES, Site, held, name_of};
pub use strategy::SearchStrategy;
pub use worth::{CutPlace, Cuts, Mutants, Survivor};
