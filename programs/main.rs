//! The binary `trapline`: its programs, under the library's command line.
//!
//! It uses the public API only, and a binary with programs of your own looks just like it.

mod alive;
mod chat;
mod countdown;
mod echo;
mod http_get;
mod httpd;
mod kill;
mod multitask;
mod parts;
mod proxy;
mod sleepers;
mod subroutines;
mod tids;
mod wait;

use std::process::ExitCode;

use trapline::cli::{self, program};

fn main() -> ExitCode {
    cli::main([
        program::<parts::Parts>("parts"),
        program::<multitask::Multitask>("multitask"),
        program::<tids::Tids>("tids"),
        program::<kill::Kill>("kill"),
        program::<wait::Wait>("wait"),
        program::<echo::Echo>("echo"),
        program::<alive::Alive>("alive"),
        program::<countdown::Countdown>("countdown"),
        program::<sleepers::Sleepers>("sleepers"),
        program::<subroutines::Subroutines>("subroutines"),
        program::<http_get::HttpGet>("http-get"),
        program::<httpd::Httpd>("httpd"),
        program::<proxy::Proxy>("proxy"),
        program::<chat::Chat>("chat"),
    ])
}
