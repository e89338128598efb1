//! Runs a program of the book, by its page and line: `trapline-book 08-subroutines-51`.
//!
//! All programs are one binary, since to link each of them would take most of the time of the tests.
#![deny(warnings)]

use std::{env, process::ExitCode};

type Start = fn() -> ExitCode;

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

fn main() -> ExitCode {
    let name = env::args().nth(1);
    match PROGRAMS
        .iter()
        .find(|(known, _)| name.as_deref() == Some(known))
    {
        Some((_, start)) => start(),
        None => {
            eprintln!("error: give the name of one of these programs:");
            for (name, _) in PROGRAMS {
                eprintln!("  {name}");
            }
            ExitCode::from(2)
        }
    }
}
