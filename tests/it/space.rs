//! What a search decides besides the order of turns: choices, the time of turns, faults.

mod brute;
mod choices;
mod computing;
mod faults;
mod felt;
mod late;
mod structures;
mod time;
