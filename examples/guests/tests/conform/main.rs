//! hyper's own cases that need only the traits for bytes, in the simulated network and over real sockets.

mod client;
mod client1;
mod handed;
mod message;
mod pairs;
mod scripted;
mod server1;
mod tunnels;
mod world;
