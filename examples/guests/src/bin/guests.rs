//! The programs, under the command line of trapline.

use std::process::ExitCode;

use trapline_cli::program;
use trapline_guests::{
    fetch::Fetch,
    ledger::{Ledger, LedgerAsk},
    notes::Notes,
};

fn main() -> ExitCode {
    trapline_cli::main([
        program::<Notes>("notes"),
        program::<Fetch>("fetch"),
        program::<Ledger>("ledger"),
        program::<LedgerAsk>("ledger-ask"),
    ])
}
