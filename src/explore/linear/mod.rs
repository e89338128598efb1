//! Linearizability: whether the answers of concurrent operations are those that some order of them
//! gives, one at a time, in which each lies between its call and its return.
//!
//! A [`History`] notes what clients do and see. Its [check](History::check) looks for such an order. It
//! is the search of Wing and Gong ("Testing and verifying concurrent objects", 1993) with Lowe's memory of
//! what was tried ("Testing for linearizability", 2017). A history of several objects is divided by
//! object, as in P-compositionality (Horn and Kroening, FORTE 2015). The same three make up Porcupine
//! (Athalye, 2017).
//!
//! ```
//! use trapline::{Os, Shared, linear::{History, Model}};
//!
//! // A register with a cache that the writer does not clear in the same turn.
//! let stale = trapline::check(|kernel| {
//!     let history = History::new(Model::register());
//!     let (value, cache) = (Shared::new(0), Shared::new(0));
//!     let (mine, theirs) = (history.clone(), cache.clone());
//!     kernel.spawn("writer", async move |os: &mut Os| {
//!         mine.op(os, "put 1", async |os| {
//!             value.set(1);
//!             os.yield_now().await;
//!             cache.set(1);
//!             "ok"
//!         }).await;
//!     })?;
//!     for name in ["one", "two"] {
//!         let (cache, mine) = (theirs.clone(), history.clone());
//!         kernel.spawn(name, async move |os: &mut Os| {
//!             mine.op(os, "get", async |os| {
//!                 os.yield_now().await;
//!                 cache.get()
//!             }).await;
//!         })?;
//!     }
//!     kernel.run()?;
//!     assert!(history.check().is_err(), "the first value is 0, and no put has written it");
//!     Ok(())
//! });
//! stale.schedules(100).run();
//! ```

mod history;
mod model;
mod operation;
mod order;
mod picture;
mod window;

pub use history::History;
pub use model::Model;
pub use operation::Operation;
pub use window::Window;
