//! Simulated disks: files whose unsynced writes a crash loses.
//!
//! `model.rs` has the state without time, of `content.rs` (the bytes of a file) and `tree.rs` (the
//! names): each says what a crash may leave, by a sequence of choices. `chooser.rs` draws the choices,
//! or makes them all. `state.rs` adds the settings, the time of operations and the errors. `disks.rs`
//! has the disks of a world and their open files, and `handle.rs` [`SimDisk`], the handle of tests.

mod chooser;
mod content;
mod disks;
mod handle;
mod model;
mod state;
mod tree;

pub(crate) use disks::Leaves;
pub(in crate::world::sim) use disks::{Disks, Over};
pub use handle::{Images, SimDisk};
