//! The planted bugs of `programs/cases`: every strategy of a search finds each of them.

use std::{cell::Cell, net::SocketAddr, rc::Rc, time::Duration};

use clap::Command;
use trapline::{Check, Error, Kernel, Os, SimNet, check};
use trapline_cli::Program;

use crate::{
    cases::{
        convoy::Convoy, deadlock::Deadlock, lost_wakeup::LostWakeup, slow_reader::SlowReader,
        starved::Starved,
    },
    networked::bugs::{leaky_server, lost_line, torn_reply},
};

type Body = fn(&mut Kernel) -> Result<(), Error>;

/// Runs a program. It goes wrong with an error, or with a line that says so.
fn run<P: Program>(kernel: &mut Kernel, args: &[&str]) -> Result<(), Error> {
    let command = P::augment_args(Command::new("case").no_binary_name(true));
    let program = P::from_arg_matches(&command.get_matches_from(args));
    let program = program.expect("clap has read the arguments");
    let main = async move |os: &mut Os| program.main(os).await;
    kernel.spawn("case", main)?;
    kernel.run()?.check()?;
    let text = kernel.take_console();
    assert!(!text.contains("To see it: "), "{text}");
    Ok(())
}

/// The programs, and their cures.
const PROGRAMS: [(&str, Body, Body); 5] = [
    (
        "convoy",
        |kernel| run::<Convoy>(kernel, &[]),
        |kernel| run::<Convoy>(kernel, &["--cured"]),
    ),
    (
        "deadlock",
        |kernel| run::<Deadlock>(kernel, &[]),
        |kernel| run::<Deadlock>(kernel, &["--cured"]),
    ),
    (
        "lost wakeup",
        |kernel| run::<LostWakeup>(kernel, &[]),
        |kernel| run::<LostWakeup>(kernel, &["--cured"]),
    ),
    (
        "slow reader",
        |kernel| run::<SlowReader>(kernel, &[]),
        |kernel| run::<SlowReader>(kernel, &["--readers", "6"]),
    ),
    (
        "starved",
        |kernel| run::<Starved>(kernel, &[]),
        |kernel| run::<Starved>(kernel, &["--cured"]),
    ),
];

type Strategy = fn(Check<Body>) -> Check<Body>;

const STRATEGIES: [(&str, Strategy); 5] = [
    ("random", Check::random),
    ("pct", |check| check.pct(3)),
    ("fifo", Check::fifo),
    ("exhaustive", Check::exhaustive),
    ("preemptions", |check| check.preemptions(1)),
];

#[test]
fn each_strategy_finds_each_planted_bug() {
    for (name, wrong, cured) in PROGRAMS {
        for (strategy, set) in STRATEGIES {
            let failure = set(check(wrong)).explore().failure;
            assert!(failure.is_some(), "{strategy} does not find {name}");
            let explored = set(check(cured)).schedules(30).explore();
            assert_eq!(explored.failure, None, "{strategy}: {name}, cured");
        }
    }
}

#[test]
fn the_cures_of_the_races_are_proved() {
    for (name, _, cured) in [PROGRAMS[1], PROGRAMS[2]] {
        let explored = check(cured).exhaustive().explore();
        assert_eq!(explored.failure, None, "{name}");
        assert!(explored.complete, "{name}: {explored}");
    }
}

/// The turn from which a schedule cannot be saved: the case of `lost_wakeup.rs` is lost when the writer goes on
/// to wait, behind the reader's look. The others go wrong in every order, if turns take no time.
#[test]
fn each_planted_bug_has_its_turning_point() {
    for (name, wrong, _) in PROGRAMS {
        let failure = check(wrong).explore().failure.expect("it is found");
        let (_, doomed) = failure
            .details
            .split_once("\ndoomed ")
            .unwrap_or_else(|| panic!("{name}: {failure}"));
        if name == "lost wakeup" {
            assert!(
                doomed.contains("at programs/cases/lost_wakeup.rs:32\n  before it, "),
                "{doomed}"
            );
            assert!(doomed.contains("\n  in its place, one that "), "{doomed}");
        } else {
            assert!(
                doomed.starts_with("from the start: none of "),
                "{name}: {doomed}"
            );
        }
    }
}

// ---- the bugs that a network shows

const SECOND: Duration = Duration::from_secs(1);

fn addr() -> SocketAddr {
    ([0, 0, 0, 0], 45000).into()
}

/// Starts the leaky server, which echoes. Returns its clients.
fn serve(kernel: &mut Kernel) -> Result<leaky_server::Clients, Error> {
    let clients = leaky_server::Clients::default();
    let list = Rc::clone(&clients);
    let server = async move |os: &mut Os| leaky_server::serve(os, addr(), list).await;
    kernel.spawn_on("server", "server", server)?;
    Ok(clients)
}

/// Fails if the server still lists a client long after all have gone.
fn leaks(kernel: &mut Kernel) -> Result<(), Error> {
    let clients = serve(kernel)?;
    let client = kernel.spawn_on("client", "client", async |os: &mut Os| {
        for _ in 0..60 {
            // What fails is of no interest.
            lost_line::send_lines(os, ("server", 45000).into(), 1).await;
        }
        // The server gives up a connection after 924 seconds.
        os.sleep(1000 * SECOND).await;
    })?;
    kernel.run_until(&[client])?;
    assert!(clients.borrow().is_empty(), "a client has leaked");
    Ok(())
}

fn loses_a_line(kernel: &mut Kernel) -> Result<(), Error> {
    serve(kernel)?;
    let answered = Rc::new(Cell::new(0));
    let told = Rc::clone(&answered);
    let client = kernel.spawn_on("client", "client", async move |os: &mut Os| {
        told.set(lost_line::send_lines(os, ("server", 45000).into(), 60).await);
    })?;
    kernel.run_until(&[client])?;
    assert_eq!(answered.get(), 60, "a line is lost");
    Ok(())
}

fn tears_a_reply(kernel: &mut Kernel) -> Result<(), Error> {
    serve(kernel)?;
    let is_right = Rc::new(Cell::new(true));
    let told = Rc::clone(&is_right);
    let client = kernel.spawn_on("client", "client", async move |os: &mut Os| {
        if let Ok(pairs) = torn_reply::ask_all(os, ("server", 45000).into(), 20).await {
            told.set(pairs.iter().all(|(request, reply)| request == reply));
        }
    })?;
    kernel.run_until(&[client])?;
    assert!(is_right.get(), "a reply is torn");
    Ok(())
}

#[test]
fn each_strategy_finds_the_bugs_that_a_network_shows() {
    let bugs: [(Body, &str); 3] = [
        (leaks, "a client has leaked"),
        (loses_a_line, "a line is lost"),
        (tears_a_reply, "a reply is torn"),
    ];
    for (body, why) in bugs {
        for (strategy, set) in STRATEGIES {
            // All schedules of an exhaustive search have one seed, and so the same faults.
            let found = (0..40).find_map(|seed| {
                let search = check(body).net(|| SimNet::new().fragment(true)).chaos(2);
                set(search.seed(seed).schedules(1)).explore().failure
            });
            let found = found.unwrap_or_else(|| panic!("{strategy} does not find: {why}"));
            assert!(found.why.contains(why), "{strategy}: {found}");
        }
    }
}
