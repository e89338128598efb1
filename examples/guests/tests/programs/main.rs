//! The programs: on real sockets with curl, in the simulated network under chaos, on tapes, killed, drained,
//! and searched for a planted race.

mod ledger;
mod notes;
mod processes;
mod support;
mod tapes;
