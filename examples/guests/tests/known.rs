//! Two bugs of `tokio::sync` are gone in the version of this example. `old/tests/known.rs` finds them.

#[path = "known/mod.rs"]
mod programs;

fn passes(program: fn(&mut trapline::Kernel) -> Result<(), trapline::Error>) -> trapline::Explored {
    let all = trapline::check(program).exhaustive().explore();
    println!("{all}");
    assert!(all.failure.is_none(), "{all}");
    assert!(all.complete, "{all}");
    all
}

#[test]
fn a_receiver_that_drains_ends_in_every_schedule() {
    let all = passes(programs::a_receiver_that_drains);
    let outcomes: Vec<_> = all.outcomes.iter().map(String::as_str).collect();
    assert_eq!(outcomes, ["[1, 2]", "[1]", "[2, 1]", "[2]"]);
}

#[test]
fn a_permit_that_is_released_wakes_the_receiver_in_every_schedule() {
    let all = passes(programs::a_permit_that_is_released);
    let outcomes: Vec<_> = all.outcomes.iter().map(String::as_str).collect();
    assert_eq!(outcomes, ["closed first", "released"]);
}
