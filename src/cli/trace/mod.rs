//! `trace`: what a recording shows.

mod spans;
