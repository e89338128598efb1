//! A simulated network: hosts, the links between them, and TCP as its users see it.
//!
//! | file | owns |
//! |---|---|
//! | `handle.rs` | [`SimNet`]: the handle of tests and tasks; hosts, links and limits |
//! | `state.rs` | the state of a net, and its clock |
//! | `calls.rs` | what the kernel asks of it |
//! | `packets.rs` | packets: how they are sent, arrive and get lost |
//! | `connection.rs` | a connection: two ends, and a pipe from each to the other |
//! | `hosts.rs` | the machines: names, addresses, ports, listeners |
//! | `links.rs` | latency, bandwidth, cuts |
//! | `fault.rs`, `faults.rs` | [`Fault`]; what faults do |
//! | `chaos.rs`, `breakage.rs` | faults at random: when, and which |
//! | `agenda.rs` | what is under way, in order of time |

mod agenda;
mod breakage;
mod calls;
mod chaos;
mod connection;
mod fault;
mod faults;
mod handle;
mod hosts;
mod links;
mod packets;
mod state;

pub use fault::{BadFault, Fault};
pub use handle::SimNet;
