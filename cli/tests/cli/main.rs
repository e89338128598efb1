//! The tests of the binary: one test binary, a module per topic. Each starts `trapline` as a process,
//! as its users do. Those of `simulated.rs` and `planted.rs` run the programs in this process.

mod book;
mod boot;
mod cores;
mod crash;
mod damaged;
mod debug;
mod disk;
mod examples;
mod explore;
mod extended;
mod filters;
mod grade;
mod input;
mod lab;
mod live;
mod network;
mod observers;
mod options;
mod planted;
mod programs;
mod progress;
mod reenact;
mod replay;
mod screen;
mod servers;
mod shell;
mod signals;
mod simulated;
mod soak;
mod support;
mod tables;
mod tour;
mod trace;
mod wal;

/// The planted bugs.
#[path = "../../../programs/cases/mod.rs"]
mod cases;

/// The programs with sockets.
#[path = "../../../programs"]
mod networked {
    /// Programs with a bug each, which a test finds.
    #[path = "cases"]
    pub(crate) mod bugs {
        pub(crate) mod leaky_server;
        pub(crate) mod lost_line;
        pub(crate) mod torn_reply;
    }
    pub(crate) mod chat;
    pub(crate) mod echo;
    pub(crate) mod http_get;
    pub(crate) mod httpd;
    pub(crate) mod kv;
    pub(crate) mod proxy;
    pub(crate) mod resp;
    pub(crate) mod serve;
}

/// Where the programs look for them.
use networked::{resp, serve};
