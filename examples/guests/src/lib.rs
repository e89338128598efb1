//! Programs made of crates that were written for other runtimes, as guests of trapline.
//!
//! | module | what it is |
//! |---|---|
//! | `tls` | rustls under hyper, with a provider whose random numbers come from a seed |
//! | `serve` | a server for any service of tower: HTTP/1 and HTTP/2, drained on a signal |
//! | `notes` | an axum service with a database of its own on the disk |
//! | `fetch` | a client by the pool of hyper-util, and a cache |
//! | `ledger` | a gRPC pair by tonic |

pub mod fetch;
pub mod ledger;
pub mod notes;
pub mod serve;
pub mod tls;
