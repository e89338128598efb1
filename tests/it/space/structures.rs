//! Random programs of shared structures, families and sockets, with faults and turns that take time.

use std::{io::ErrorKind, time::Duration};

use trapline::{Inject, Kernel};

use super::brute::{Drawn, Fault, Space, compare};
use crate::exhaustive::{
    random::draw,
    rest::{Step, program, step},
};

const RESET: Inject = Inject::Fail(ErrorKind::ConnectionReset);
const LATE: Inject = Inject::Delay(Duration::from_millis(1));

const LISTS: [&[Fault]; 6] = [
    &[
        ("get:kill", "get", Inject::Kill),
        ("put:kill", "put", Inject::Kill),
        ("yield:kill", "yield", Inject::Kill),
    ],
    &[
        ("take:kill", "take", Inject::Kill),
        ("close_queue:kill", "close_queue", Inject::Kill),
    ],
    &[
        ("select:kill", "select", Inject::Kill),
        ("new_queue:kill", "new_queue", Inject::Kill),
        ("kill_task:kill", "kill_task", Inject::Kill),
    ],
    &[
        ("wait_task:kill", "wait_task", Inject::Kill),
        ("new_task:kill", "new_task", Inject::Kill),
        ("yield:delay=1ms", "yield", LATE),
    ],
    &[
        ("recv:kill", "recv", Inject::Kill),
        ("send:error=ConnectionReset", "send", RESET),
        ("send_to:error=ConnectionReset", "send_to", RESET),
    ],
    &[
        ("recv_from:kill", "recv_from", Inject::Kill),
        ("recv:error=ConnectionReset", "recv", RESET),
        ("get:delay=1ms", "get", LATE),
    ],
];

#[test]
fn a_search_of_structures_has_the_outcomes_of_every_sequence_of_decisions() {
    compare(30, |seed| {
        let mut state = seed.wrapping_mul(7919) + 5;
        let kind = draw(&mut state, 3) as u64;
        let mut task = || -> Vec<_> {
            let count = 1 + draw(&mut state, 2);
            (0..count).map(|_| step(&mut state, kind, 2)).collect()
        };
        let tasks = vec![task(), task()];
        let turns = [None, None, Some(250), Some(1000)];
        let turn = turns[draw(&mut state, 4)].map(Duration::from_micros);
        let space = Space {
            // The enumeration cannot have bytes arrive while tasks are ready: no timer says when that is.
            turn: turn.filter(|_| kind < 2),
            faults: draw(&mut state, 3),
            list: LISTS[draw(&mut state, LISTS.len())],
        };
        beside(tasks, space)
    });
}

fn beside(tasks: Vec<Vec<Step>>, space: Space) -> Drawn {
    let text = format!("{tasks:?} {space:?}");
    let run = move |kernel: &mut Kernel| program(&tasks, kernel);
    (space, text, Box::new(run))
}

/// The end of the connection that the last task closes arrives before its last turn, or not at all.
#[test]
fn no_step_of_the_clock_comes_after_the_end_of_the_last_task() {
    compare(1, |_| {
        let tasks = vec![vec![Step::Kill(0)], vec![Step::OnDone, Step::Kill(1)]];
        let space = Space {
            turn: Some(Duration::from_millis(1)),
            faults: 1,
            list: LISTS[5],
        };
        beside(tasks, space)
    });
}
