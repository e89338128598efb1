//! A simulated network: hosts, the links between them, and TCP, UDP and Unix sockets as
//! their users see them.
//!
//! `handle.rs` has [`SimNet`], the handle of tests and tasks. `state.rs` has the state behind it, which
//! `calls.rs` changes for the kernel, `packets.rs` as packets arrive or get lost, and `faults.rs` when
//! something breaks. `datagrams.rs` has UDP, and `unix.rs` the sockets of Unix. `disk.rs` lets what is
//! under way on the disks of the hosts happen.

mod agenda;
mod calls;
mod chaos;
mod clock;
mod connection;
mod datagrams;
mod disk;
mod fault;
mod faults;
mod handle;
mod hosts;
mod links;
mod packets;
mod port;
mod state;
mod unix;

pub use fault::{BadFault, Fault, Leap};
pub use handle::SimNet;
