//! The table of calls, and what is written of it elsewhere.

use std::{collections::BTreeSet, time::Duration};

use trapline::{Argument, Call, Detail, SystemCall, Tid};

/// The rows of the book's table of calls, in cells.
fn rows() -> Vec<[&'static str; 4]> {
    let page = include_str!("../../docs/calls.md");
    let mut parts = page.split("\n\n");
    let table = parts.find(|part| part.starts_with('|')).unwrap();
    let cells = |line: &'static str| -> [&str; 4] {
        let line = line.trim_matches('|');
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let found = cells.len();
        cells
            .try_into()
            .unwrap_or_else(|_| panic!("a row of 4 cells, not {found}: {line}"))
    };
    table.lines().skip(2).map(cells).collect()
}

/// The names in back quotes.
fn names(cell: &'static str) -> impl Iterator<Item = &'static str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn the_book_has_a_row_for_every_call_and_no_other() {
    let shown: BTreeSet<_> = rows().iter().flat_map(|row| names(row[1])).collect();
    let calls = BTreeSet::from(SystemCall::NAMES);
    let difference: Vec<_> = shown.symmetric_difference(&calls).collect();
    assert_eq!(
        difference, [&""; 0],
        "each of these is in one of docs/calls.md and src/abi.rs only"
    );
}

#[test]
fn each_row_of_the_book_says_what_its_call_does_and_when_it_blocks() {
    for row in rows() {
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
    }
}

#[test]
fn a_call_has_a_name_and_a_number_of_its_own() {
    let calls: Vec<_> = (0..=u8::MAX).filter_map(SystemCall::from_number).collect();
    assert!(calls.iter().map(|call| call.name()).eq(SystemCall::NAMES));
    for (place, call) in calls.iter().enumerate() {
        assert_eq!(usize::from(call.number()), place, "{call:?}");
    }
    let names = BTreeSet::from(SystemCall::NAMES);
    assert_eq!(names.len(), SystemCall::NAMES.len());
}

#[test]
fn a_call_takes_only_an_argument_of_its_kind() {
    let span = Argument::Span(Duration::from_secs(1).into());
    let instant = Argument::Instant(Duration::from_secs(1).into());
    let sleep = SystemCall::Sleep(Duration::ZERO.into());
    let longer = sleep.with_argument(span).unwrap();
    assert_eq!(longer, SystemCall::Sleep(Duration::from_secs(1).into()));
    assert_eq!(longer.argument(), span);
    assert_eq!(sleep.with_argument(instant), None);
    assert_eq!(SystemCall::Yield.with_argument(span), None);
    assert_eq!(sleep.with_argument(Argument::None), None);
}

#[test]
fn a_call_shows_its_argument_then_what_travels_beside_it() {
    let show = |call, detail: Detail<'_>| Call(call, &detail).to_string();
    let device = SystemCall::Recv(trapline::DeviceId::from_raw(3));
    assert_eq!(show(SystemCall::Yield, Detail::None), "yield()");
    assert_eq!(
        show(SystemCall::NewTask, Detail::Name("foo".into())),
        "new_task(\"foo\")"
    );
    assert_eq!(
        show(SystemCall::KillTask(Tid::from(7)), Detail::None),
        "kill_task(7)"
    );
    assert_eq!(show(device, Detail::Len(64)), "recv(3, 64)");
    assert_eq!(
        show(SystemCall::NewQueue(u64::MAX), Detail::None),
        "new_queue(unbounded)"
    );
}
