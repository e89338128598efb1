//! What a test is worth: mutations, cuts, and the turn from which a schedule fails.

mod cuts;
mod doom;
mod mutations;
mod our_calls;
