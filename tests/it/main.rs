//! The kernel's tests: one binary, a module per topic. Tests named `sNN_...` test that rule of the
//! semantics; everything that needs no device runs in the simulated world.

mod devices;
mod ends;
mod fairness;
mod hostile;
mod log;
mod properties;
mod sockets;
mod support;
mod tasks;
mod time;
mod worlds;
