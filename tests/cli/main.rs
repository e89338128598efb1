//! The tests of the binary: one test binary, a module per topic. Each starts `trapline` as a process,
//! as its users do.

mod book;
mod boot;
mod live;
mod programs;
mod screen;
mod servers;
mod support;
mod trace;
