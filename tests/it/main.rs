//! The kernel's tests: one binary, a module per topic. Tests named `sNN_...` test that rule of the
//! semantics; everything that needs no device runs in the simulated world.

mod boundary;
mod bridge;
mod callbacks;
mod calls;
mod chains;
mod children;
mod console;
mod daemons;
mod devices;
mod ends;
mod equivalence;
mod fairness;
mod follow;
mod hostile;
mod inject;
mod layers;
mod locks;
mod log;
mod net;
mod promises;
mod properties;
mod queues;
mod record;
mod send_file;
mod sockets;
mod stepping;
mod support;
mod sync;
mod tasks;
mod threads;
mod time;
mod timeouts;
mod words;
mod worlds;
