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
//! // A register whose writer answers before the readers' cache has the value.
//! let stale = trapline::check(|kernel| {
//!     let history = History::new(Model::register());
//!     let (theirs, cache) = (history.clone(), Shared::new(0));
//!     kernel.spawn("writer", async move |os: &mut Os| {
//!         history.op(os, "put 0", async |_| "ok").await;
//!         let (reads, from) = (history.clone(), cache.clone());
//!         os.spawn("reader", async move |os: &mut Os| {
//!             reads.op(os, "get", async |_| from.get()).await;
//!         }).await?;
//!         history.op(os, "put 1", async |_| "ok").await;
//!         os.yield_now().await;
//!         cache.set(1);
//!         Ok::<(), trapline::Errno>(())
//!     })?;
//!     kernel.run()?;
//!     assert!(theirs.check().is_ok(), "no order of the operations explains their answers");
//!     Ok(())
//! });
//! assert!(stale.schedules(100).explore().failure.is_some());
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
