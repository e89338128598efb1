//! Programs with a defect that a trace shows: `docs/reading-traces.md` explains each, and
//! `docs/16-it-happened-once.md` the one of `gossip.rs`.

use std::time::Duration;

use trapline::Os;

pub(crate) mod convoy;
pub(crate) mod deadlock;
pub(crate) mod gossip;
pub(crate) mod lost_wakeup;
pub(crate) mod slow_reader;
pub(crate) mod slow_upstream;
pub(crate) mod starved;
pub(crate) mod stuck_server;

/// Prints at the end of a run what went wrong in it, and which command shows it.
fn conclude(os: &mut Os, name: &str, what: &str) {
    writeln!(
        os,
        "{what}. To see it: trapline boot --virtual --record run.trap {name} && \
         trapline trace timeline run.trap -o run.html"
    );
}

/// The same for a run that took much longer than its work needs.
fn conclude_slow(os: &mut Os, name: &str, took: Duration, needed: Duration, why: &str) {
    // A small delay is caused by the machine.
    if took > needed * 3 / 2 {
        conclude(
            os,
            name,
            &format!("{took:.0?} instead of {needed:?}: {why}"),
        );
    }
}
