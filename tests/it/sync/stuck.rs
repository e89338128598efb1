//! Random programs that share locks, adopt guards and select, against a model of the tasks that are stuck. Each
//! cycle that the kernel reports is stuck. Beside a task that lives on, none stays blocked without a report.

use std::{cell::RefCell, collections::BTreeSet, rc::Rc, time::Duration};

use proptest::prelude::*;
use trapline::{
    Error, Kernel, On, OnDeadlock, Os, Source, TaskState, Tid,
    sync::{PoisonedBy, ReadGuard, RwLock, WriteGuard},
};

use crate::support::unscripted;

const MS: Duration = Duration::from_millis(1);

/// What a task waits for: one of two locks, or the end of one of the tasks.
#[derive(Clone, Copy, Debug)]
enum Thing {
    Read(usize),
    Write(usize),
    End(usize),
}

#[derive(Clone, Debug)]
enum Act {
    /// Takes it, or gives up after so many milliseconds.
    Take(Thing, Option<u32>),
    Select(Vec<Thing>),
    Drop(usize),
    /// Adopts the latest guard of a task.
    Adopt(usize),
    Sleep(u32),
}

enum Hold {
    Read(ReadGuard<()>),
    Write(WriteGuard<()>),
}

/// What a task waits for, and the place of its request among all.
#[derive(Clone, Debug)]
struct Wait {
    things: Vec<Thing>,
    place: Option<usize>,
    is_timed: bool,
}

#[derive(Default)]
struct Actor {
    tid: Tid,
    waits: Option<Wait>,
    holds: Vec<(Thing, Hold)>,
}

#[derive(Default)]
struct Stage {
    actors: Vec<Actor>,
    requests: usize,
}

type Shared = Rc<RefCell<Stage>>;

/// Drops the guards of a task with it, and ends its wait.
struct Leaves(Shared, usize);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.borrow_mut().actors[self.1].waits = None;
        let holds = std::mem::take(&mut self.0.borrow_mut().actors[self.1].holds);
        drop(holds);
    }
}

fn thing() -> impl Strategy<Value = Thing> {
    prop_oneof![
        3 => (0..2usize).prop_map(Thing::Read),
        3 => (0..2usize).prop_map(Thing::Write),
        1 => (0..4usize).prop_map(Thing::End),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let span = prop::option::weighted(0.2, 1..6u32);
    prop_oneof![
        5 => (thing(), span).prop_map(|(thing, span)| Act::Take(thing, span)),
        2 => prop::collection::vec(thing(), 1..4).prop_map(Act::Select),
        2 => (0..4usize).prop_map(Act::Drop),
        1 => (0..4usize).prop_map(Act::Adopt),
        3 => (0..5u32).prop_map(Act::Sleep),
    ]
}

async fn take(os: &mut Os, stage: &Shared, locks: &[RwLock<()>], thing: Thing) -> Option<Hold> {
    match thing {
        Thing::Read(at) => {
            let guard = locks[at].read(os).await;
            Some(Hold::Read(guard.unwrap_or_else(|PoisonedBy(guard)| guard)))
        }
        Thing::Write(at) => {
            let guard = locks[at].write(os).await;
            Some(Hold::Write(guard.unwrap_or_else(|PoisonedBy(guard)| guard)))
        }
        Thing::End(at) => {
            let tid = stage.borrow().actors[at].tid;
            let _ = os.wait(tid).await;
            None
        }
    }
}

async fn play(os: &mut Os, me: usize, stage: Shared, locks: Vec<RwLock<()>>, acts: Vec<Act>) {
    let _leaves = Leaves(Rc::clone(&stage), me);
    let begin = |things, is_timed, asks: bool| {
        let mut stage = stage.borrow_mut();
        stage.requests += 1;
        let place = asks.then_some(stage.requests);
        stage.actors[me].waits = Some(Wait {
            things,
            place,
            is_timed,
        });
    };
    for act in acts {
        match act {
            Act::Sleep(span) => os.sleep(span * MS).await,
            Act::Take(thing, span) => {
                begin(vec![thing], span.is_some(), true);
                let span = span.map_or(Duration::MAX, |span| span * MS);
                let body = async |os: &mut Os| take(os, &stage, &locks, thing).await;
                let hold = os.timeout(span, body).await.ok().flatten();
                let mut stage = stage.borrow_mut();
                stage.actors[me]
                    .holds
                    .extend(hold.map(|hold| (thing, hold)));
            }
            Act::Select(things) => {
                begin(things.clone(), false, false);
                let source = |thing: &Thing| match *thing {
                    Thing::Read(at) => Source::read(&locks[at]),
                    Thing::Write(at) => Source::write(&locks[at]),
                    Thing::End(at) => Source::exit(stage.borrow().actors[at].tid),
                };
                let sources: Vec<Source> = things.iter().map(source).collect();
                os.select(&sources).await;
            }
            Act::Drop(at) => {
                let mut stage = stage.borrow_mut();
                let holds = &mut stage.actors[me].holds;
                let hold = (at < holds.len()).then(|| holds.remove(at));
                drop(stage);
                drop(hold);
            }
            Act::Adopt(from) => {
                let hold = stage.borrow_mut().actors[from].holds.pop();
                if let Some((thing, mut hold)) = hold {
                    match &mut hold {
                        Hold::Read(guard) => guard.adopt(os),
                        Hold::Write(guard) => guard.adopt(os),
                    }
                    stage.borrow_mut().actors[me].holds.push((thing, hold));
                }
            }
        }
        stage.borrow_mut().actors[me].waits = None;
    }
}

/// Returns the tasks that wait for one of the scripts.
fn blocked(kernel: &Kernel) -> BTreeSet<Tid> {
    let waits = |state: &TaskState| match state {
        TaskState::Blocked { on, .. } => !matches!(on, On::Timer(_)),
        _ => false,
    };
    let tasks = kernel.tasks().filter(|task| waits(&task.state));
    tasks.map(|task| task.tid).collect()
}

impl Stage {
    /// Returns the tasks that go on only if one is killed. A task does if nothing that it waits for can come: a
    /// stuck task holds it, or has asked for it before.
    fn stuck(&self, blocked: &BTreeSet<Tid>) -> BTreeSet<Tid> {
        let mut stuck: Vec<&Actor> = self.actors.iter().collect();
        stuck.retain(|actor| {
            let is_timed = actor.waits.as_ref().is_none_or(|wait| wait.is_timed);
            blocked.contains(&actor.tid) && !is_timed
        });
        loop {
            let before = stuck.clone();
            stuck.retain(|actor| {
                let wait = actor.waits.as_ref().expect("it is blocked");
                wait.things
                    .iter()
                    .all(|thing| self.is_out_of_reach(&before, *thing, wait.place))
            });
            if stuck.len() == before.len() {
                return stuck.into_iter().map(|actor| actor.tid).collect();
            }
        }
    }

    fn is_out_of_reach(&self, stuck: &[&Actor], thing: Thing, place: Option<usize>) -> bool {
        let conflicts = |other: Thing| match (thing, other) {
            (Thing::Read(at) | Thing::Write(at), Thing::Write(lock))
            | (Thing::Write(at), Thing::Read(lock)) => at == lock,
            _ => false,
        };
        // A select has no place, and is behind all requests.
        let is_before = |wait: &Wait| {
            wait.place
                .is_some_and(|it| place.is_none_or(|place| it < place))
        };
        stuck.iter().any(|other| {
            let holds = other.holds.iter().any(|(held, _)| conflicts(*held));
            let asks = |wait: &Wait| is_before(wait) && conflicts(wait.things[0]);
            match thing {
                Thing::End(at) => self.actors[at].tid == other.tid,
                _ => holds || other.waits.as_ref().is_some_and(asks),
            }
        })
    }
}

fn check(scripts: &[Vec<Act>], action: OnDeadlock) -> Result<(), TestCaseError> {
    let builder = unscripted().on_deadlock(action);
    let mut kernel = builder.max_ticks(2000).build().unwrap();
    let alive = async |os: &mut Os| loop {
        os.sleep(MS).await;
    };
    kernel.spawn("alive", alive).unwrap();
    let stage = Shared::default();
    let (scripts, theirs) = (scripts.to_vec(), Rc::clone(&stage));
    let main = async move |os: &mut Os| {
        let locks = vec![RwLock::new(os, ()).await, RwLock::new(os, ()).await];
        theirs
            .borrow_mut()
            .actors
            .resize_with(scripts.len(), Actor::default);
        for (me, acts) in scripts.into_iter().enumerate() {
            let (stage, locks) = (Rc::clone(&theirs), locks.clone());
            let actor = async move |os: &mut Os| {
                os.sleep(MS).await;
                play(os, me, stage, locks, acts).await;
            };
            let tid = os.spawn_detached("actor", actor).await.unwrap();
            theirs.borrow_mut().actors[me].tid = tid;
        }
    };
    kernel.spawn("main", main).unwrap();
    let ended = kernel.run();
    let blocked = blocked(&kernel);
    let stuck = stage.borrow().stuck(&blocked);
    match ended {
        Err(Error::Deadlock(deadlock)) => {
            let cycle: BTreeSet<Tid> = deadlock.cycles.iter().flatten().copied().collect();
            prop_assert!(action == OnDeadlock::Stop && !cycle.is_empty());
            prop_assert!(cycle.is_subset(&stuck), "{stuck:?}: {deadlock}");
        }
        Err(Error::Limit(..)) => prop_assert!(blocked.is_empty(), "{blocked:?} {stuck:?}"),
        other => prop_assert!(false, "{other:?}"),
    }
    kernel.audit();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn each_cycle_is_reported_and_each_that_is_reported_is_one(
        scripts in prop::collection::vec(prop::collection::vec(act(), 1..7), 4),
    ) {
        for action in [OnDeadlock::Stop, OnDeadlock::Kill] {
            check(&scripts, action)?;
        }
    }
}

#[test]
fn cycles_that_were_missed_once_are_reported() {
    use Thing::{Read, Write};
    let take = |thing| Act::Take(thing, None);
    // A writer comes before the select of a reader, and is on no cycle itself.
    let behind_a_writer = [
        vec![take(Read(0))],
        vec![Act::Sleep(1), take(Write(0))],
        vec![take(Read(0)), Act::Select(vec![Read(0)])],
        vec![Act::Take(Write(0), Some(2))],
    ];
    let behind_a_chain = [
        vec![take(Read(0)), take(Write(1))],
        vec![take(Read(1)), Act::Select(vec![Read(1)])],
        vec![Act::Take(Write(1), Some(1))],
    ];
    // Another reader leaves both locks at once: the cycle closes, and then the select is woken in vain.
    let left = [
        vec![take(Read(1)), Act::Sleep(3), Act::Select(vec![Write(0)])],
        vec![take(Read(1)), Act::Sleep(3), take(Read(0))],
        vec![take(Read(0)), take(Write(1))],
        vec![take(Read(0))],
    ];
    let select = |thing| Act::Select(vec![thing]);
    let selects = [
        vec![
            take(Read(0)),
            select(Read(0)),
            take(Read(1)),
            Act::Sleep(0),
            select(Write(1)),
        ],
        vec![take(Read(0))],
        vec![take(Read(0)), select(Read(0)), take(Read(1)), take(Read(0))],
        vec![take(Read(0))],
    ];
    for scripts in [&behind_a_writer[..], &behind_a_chain, &left, &selects] {
        for action in [OnDeadlock::Stop, OnDeadlock::Kill] {
            check(scripts, action).unwrap();
        }
    }
}
