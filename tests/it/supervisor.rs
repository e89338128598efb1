//! Supervisors: S76, and of S79 what is about them.

mod load;
mod model;
mod steps;

use std::{cell::Cell, rc::Rc, time::Duration};

use trapline::{
    Cancelled, Elapsed, Errno, Exit, Gone, Kernel, Os, Queue, Report, Restart, Scope, Strategy,
    Supervisor, Tid,
};

use crate::support::{Diary, logged, sim};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Runs a program alone, to a good end.
fn alone(program: impl AsyncFnOnce(&mut Os) + 'static) -> Report {
    let mut kernel = Kernel::simulated(1);
    kernel.spawn("main", program).unwrap();
    let report = kernel.run().unwrap();
    report.check().unwrap();
    kernel.audit_all();
    report
}

/// How a child ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Done,
    Failed,
    Faulted,
    Killed,
    Cancelled,
}

impl End {
    async fn come(self, os: &mut Os) -> Result<(), &'static str> {
        let me = os.get_tid().await;
        match self {
            Self::Done => {}
            Self::Failed => return Err("no luck"),
            Self::Faulted => panic!("boom"),
            Self::Killed => drop(os.kill(me).await),
            Self::Cancelled => {
                assert!(os.cancel(me).await);
                os.sleep(S).await;
                unreachable!("it is cut");
            }
        }
        Ok(())
    }
}

/// Adds a child that notes its starts and its ends, with their instants in seconds. It lives as long as
/// `lives` says, and then ends so; `None` is for ever.
fn noting(
    supervisor: Supervisor,
    diary: &Diary,
    name: &'static str,
    restart: Restart,
    lives: impl Fn(u32) -> Option<(Duration, End)> + 'static,
) -> Supervisor {
    let (diary, lives, life) = (diary.clone(), Rc::new(lives), Rc::new(Cell::new(0)));
    supervisor.child(name, restart, move || {
        let (diary, lives, life) = (diary.clone(), lives.clone(), life.clone());
        async move |os: &mut Os| {
            let now = os.now().await.as_secs_f64();
            diary.note(format!("{name} begins {now}"));
            let _over = Over(diary, name);
            match lives(life.replace(life.get() + 1)) {
                Some((span, end)) => {
                    os.sleep(span).await;
                    end.come(os).await
                }
                None => {
                    os.sleep(Duration::MAX).await;
                    Ok(())
                }
            }
        }
    })
}

struct Over(Diary, &'static str);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.note(format!("{} ends", self.1));
    }
}

/// Its first life ends so after a second; the second one never does.
fn once(end: End) -> impl Fn(u32) -> Option<(Duration, End)> {
    move |life| (life == 0).then_some((S, end))
}

fn forever(_: u32) -> Option<(Duration, End)> {
    None
}

fn begins(diary: &Diary, name: &str) -> usize {
    let begin = format!("{name} begins");
    let lines = diary.lines();
    lines.iter().filter(|line| line.starts_with(&begin)).count()
}

#[test]
fn s76_which_children_start_again_after_which_ends() {
    use Restart::{Permanent, Temporary, Transient};
    let ends = [
        (End::Done, [2, 1, 1]),
        (End::Cancelled, [2, 1, 1]),
        (End::Failed, [2, 2, 1]),
        (End::Faulted, [2, 2, 1]),
        (End::Killed, [2, 2, 1]),
    ];
    for (end, starts) in ends {
        for (restart, starts) in [Permanent, Transient, Temporary].into_iter().zip(starts) {
            for strategy in [
                Strategy::OneForOne,
                Strategy::OneForAll,
                Strategy::RestForOne,
            ] {
                alone(async move |os: &mut Os| {
                    let diary = Diary::default();
                    let supervisor = Supervisor::new(strategy);
                    let supervisor = noting(supervisor, &diary, "a", restart, once(end));
                    let run = os.timeout(3 * S, async |os| supervisor.run(os).await);
                    let run = run.await;
                    // Without a child it is over.
                    let over = if starts == 1 {
                        Ok(Ok(()))
                    } else {
                        Err(Elapsed)
                    };
                    let at = if starts == 1 { S } else { 3 * S };
                    assert_eq!((run, os.now().await), (over, at), "{restart:?} {end:?}");
                    assert_eq!(begins(&diary, "a"), starts, "{restart:?} {end:?}");
                    let again = if starts == 1 {
                        ""
                    } else {
                        ", a begins 1, a ends"
                    };
                    assert_eq!(diary.text(), format!("a begins 0, a ends{again}"));
                });
            }
        }
    }
}

#[test]
fn s76_a_supervisor_without_children_is_over() {
    alone(async |os: &mut Os| {
        for strategy in [Strategy::OneForOne, Strategy::OneForAll] {
            assert_eq!(Supervisor::new(strategy).run(os).await, Ok(()));
        }
        assert_eq!(os.now().await, Duration::ZERO);
        assert_eq!(os.tasks().await.len(), 1);
    });
}

/// Four children of which the second ends in a second, and what is noted within three.
fn four(strategy: Strategy, restart: Restart, end: End) -> String {
    let diary = Diary::default();
    let noted = diary.clone();
    alone(async move |os: &mut Os| {
        let mut supervisor = Supervisor::new(strategy);
        for name in ["a", "b", "c", "d"] {
            supervisor = match name {
                "b" => noting(supervisor, &noted, name, restart, once(end)),
                "d" => noting(supervisor, &noted, name, Restart::Temporary, forever),
                _ => noting(supervisor, &noted, name, Restart::Transient, forever),
            };
        }
        let run = os.timeout(3 * S, async |os| supervisor.run(os).await);
        assert_eq!(run.await, Err(Elapsed));
        noted.note("over");
        assert_eq!(os.now().await, 3 * S);
        assert_eq!(os.tasks().await.len(), 1);
    });
    let text = diary.text();
    let begun = "a begins 0, b begins 0, c begins 0, d begins 0, b ends, ";
    text.strip_prefix(begun).expect(&text).to_string()
}

#[test]
fn s76_the_youngest_end_first_and_the_oldest_start_first() {
    use Restart::{Permanent, Temporary, Transient};
    for (restart, end) in [(Permanent, End::Done), (Transient, End::Killed)] {
        assert_eq!(
            four(Strategy::OneForOne, restart, end),
            "b begins 1, d ends, c ends, b ends, a ends, over"
        );
        assert_eq!(
            four(Strategy::RestForOne, restart, end),
            "d ends, c ends, b begins 1, c begins 1, c ends, b ends, a ends, over"
        );
        assert_eq!(
            four(Strategy::OneForAll, restart, end),
            "d ends, c ends, a ends, a begins 1, b begins 1, c begins 1, c ends, b ends, a ends, over"
        );
    }
    // One that is not to start again concerns no other.
    for strategy in [Strategy::RestForOne, Strategy::OneForAll] {
        for (restart, end) in [(Transient, End::Done), (Temporary, End::Faulted)] {
            assert_eq!(
                four(strategy, restart, end),
                "d ends, c ends, a ends, over",
                "{restart:?}"
            );
        }
    }
}

#[test]
fn s76_with_all_a_transient_child_starts_again_that_had_ended_well() {
    alone(async |os: &mut Os| {
        let diary = Diary::default();
        let all = Supervisor::new(Strategy::OneForAll);
        let all = noting(all, &diary, "a", Restart::Transient, |_| {
            Some((S, End::Done))
        });
        let all = noting(all, &diary, "b", Restart::Permanent, |life| {
            (life == 0).then_some((2 * S, End::Failed))
        });
        let _ = os.timeout(4 * S, async |os| all.run(os).await).await;
        assert_eq!(
            diary.text(),
            "a begins 0, b begins 0, a ends, b ends, a begins 2, b begins 2, a ends, b ends"
        );
    });
}

/// Runs a child that ends at these instants after its starts, in milliseconds. Returns when the
/// supervisor gave up, and the number of starts.
fn spent(restarts: u32, within: u64, lives: &'static [u64]) -> (Option<Duration>, usize) {
    let seen = Rc::new(Cell::new((None, 0)));
    let result = seen.clone();
    alone(async move |os: &mut Os| {
        let diary = Diary::default();
        let ends = move |life: u32| Some((MS * *lives.get(life as usize)? as u32, End::Failed));
        let supervisor =
            Supervisor::new(Strategy::OneForOne).restarts(restarts, MS * within as u32);
        let supervisor = noting(supervisor, &diary, "a", Restart::Permanent, ends);
        let run = os.timeout(100 * S, async |os| supervisor.run(os).await);
        let is_gone = run.await == Err(Elapsed);
        let at = (!is_gone).then_some(os.now().await);
        result.set((at, begins(&diary, "a")));
    });
    seen.get()
}

#[test]
fn s76_the_restart_after_the_last_within_the_span_is_the_end() {
    // Two at once, and the third.
    assert_eq!(spent(2, 5000, &[0, 0, 0]), (Some(Duration::ZERO), 3));
    // The ends of the span belong to it.
    assert_eq!(spent(1, 1000, &[10, 1000]), (Some(1010 * MS), 2));
    assert_eq!(spent(1, 1000, &[10, 1001]), (None, 3));
    assert_eq!(spent(2, 1000, &[10, 500, 500]), (Some(1010 * MS), 3));
    assert_eq!(spent(2, 1000, &[10, 500, 501, 499]), (Some(1510 * MS), 4));
    assert_eq!(spent(2, 1000, &[10, 500, 501, 500]), (None, 5));
    assert_eq!(spent(0, 1000, &[3]), (Some(3 * MS), 1));
    // A span of nothing allows so many at one instant.
    assert_eq!(spent(1, 0, &[1, 1, 1, 1]), (None, 5));
    assert_eq!(spent(1, 0, &[1, 1, 0]), (Some(2 * MS), 3));
    assert_eq!(spent(u32::MAX, u64::MAX >> 40, &[0; 50]), (None, 51));
}

#[test]
fn s76_by_default_one_restart_in_five_seconds() {
    for (second, is_gone) in [(5000, true), (5001, false)] {
        let seen = Rc::new(Cell::new(false));
        let result = seen.clone();
        alone(async move |os: &mut Os| {
            let diary = Diary::default();
            let lives = move |life: u32| {
                let span = *[0, second].get(life as usize)?;
                Some((MS * span, End::Killed))
            };
            let supervisor = Supervisor::new(Strategy::default());
            let supervisor = noting(supervisor, &diary, "a", Restart::default(), lives);
            let run = os.timeout(9 * S, async |os| supervisor.run(os).await);
            result.set(run.await != Err(Elapsed));
        });
        assert_eq!(seen.get(), is_gone);
    }
}

#[test]
fn s76_gone_names_the_child_and_its_last_exit_and_the_others_have_ended() {
    alone(async |os: &mut Os| {
        let diary = Diary::default();
        let supervisor = Supervisor::new(Strategy::OneForOne).restarts(1, S);
        let supervisor = noting(supervisor, &diary, "other", Restart::Permanent, forever);
        let supervisor = noting(supervisor, &diary, "bad", Restart::Transient, |life| {
            Some((MS, [End::Failed, End::Faulted][life as usize]))
        });
        let supervisor = noting(supervisor, &diary, "young", Restart::Permanent, forever);
        let gone = supervisor.run(os).await.unwrap_err();
        assert_eq!(gone.child, "bad");
        assert_eq!(gone.exit, Exit::Faulted("boom".into()));
        assert_eq!(
            gone.to_string(),
            "child \"bad\" faulted: boom (limit: 1 restart within 1s)"
        );
        let lines = diary.lines();
        assert_eq!(
            lines[lines.len() - 3..],
            ["bad ends", "young ends", "other ends"]
        );
        assert_eq!(os.tasks().await.len(), 1);
    });
}

#[test]
fn s76_restarts_of_all_children_count_together_and_each_once() {
    alone(async |os: &mut Os| {
        let diary = Diary::default();
        let all = Supervisor::new(Strategy::OneForAll).restarts(2, 9 * S);
        let all = noting(all, &diary, "a", Restart::Permanent, |_| {
            Some((2 * S, End::Failed))
        });
        let all = noting(all, &diary, "b", Restart::Permanent, |_| {
            Some((S, End::Done))
        });
        let gone = all.run(os).await.unwrap_err();
        assert_eq!((gone.child.as_str(), gone.exit), ("b", Exit::Done));
        assert_eq!(os.now().await, 3 * S);
    });
    // Two that end at one instant with all: the second is ended already, and not counted.
    alone(async |os: &mut Os| {
        let diary = Diary::default();
        let all = Supervisor::new(Strategy::OneForAll).restarts(1, 9 * S);
        let all = noting(all, &diary, "a", Restart::Permanent, once(End::Failed));
        let all = noting(all, &diary, "b", Restart::Permanent, once(End::Failed));
        let run = os.timeout(3 * S, async |os| all.run(os).await).await;
        assert_eq!(run, Err(Elapsed));
    });
    // One for one they are two.
    alone(async |os: &mut Os| {
        let diary = Diary::default();
        let one = Supervisor::new(Strategy::OneForOne).restarts(1, 9 * S);
        let one = noting(one, &diary, "a", Restart::Permanent, once(End::Failed));
        let one = noting(one, &diary, "b", Restart::Permanent, once(End::Failed));
        assert_eq!(one.run(os).await.unwrap_err().child, "b");
    });
}

/// The instants in milliseconds at which a child starts that ends at once, or after `life`.
fn starts(backoff: std::ops::Range<Duration>, life: Duration, within: Duration) -> Vec<u128> {
    let seen = Rc::new(Cell::new(Vec::new()));
    let result = seen.clone();
    alone(async move |os: &mut Os| {
        let starts = Rc::new(Cell::new(Vec::new()));
        let noted = starts.clone();
        let supervisor = Supervisor::new(Strategy::OneForOne)
            .restarts(5, within)
            .backoff(backoff)
            .child("a", Restart::Permanent, move || {
                let noted = noted.clone();
                async move |os: &mut Os| {
                    let mut all = noted.take();
                    all.push(os.now().await.as_millis());
                    noted.set(all);
                    os.sleep(life).await;
                }
            });
        let _ = os
            .timeout(20 * S, async |os| supervisor.run(os).await)
            .await;
        result.set(starts.take());
    });
    seen.take()
}

#[test]
fn s76_a_backoff_doubles_up_to_its_end() {
    let (none, far) = (Duration::ZERO, 100 * S);
    assert_eq!(starts(none..none, none, far), [0; 6]);
    assert_eq!(
        starts(100 * MS..500 * MS, none, far),
        [0, 100, 300, 700, 1200, 1700]
    );
    assert_eq!(
        starts(100 * MS..500 * MS, 10 * MS, far),
        [0, 110, 320, 730, 1240, 1750]
    );
    assert_eq!(starts(S..100 * MS, none, far), [0, 100, 200, 300, 400, 500]);
    // A child that has lived for longer than the span of the restarts begins anew.
    let first = &starts(100 * MS..500 * MS, 1001 * MS, S)[..4];
    assert_eq!(first, [0, 1101, 2202, 3303]);
    let first = &starts(100 * MS..500 * MS, S, S)[..4];
    assert_eq!(first, [0, 1100, 2300, 3700]);
}

#[test]
fn s76_the_others_go_on_and_are_heard_during_a_backoff() {
    alone(async |os: &mut Os| {
        let diary = Diary::default();
        let one = Supervisor::new(Strategy::OneForOne)
            .restarts(9, 9 * S)
            .backoff(4 * S..4 * S);
        let one = noting(one, &diary, "a", Restart::Permanent, once(End::Failed));
        let one = noting(one, &diary, "b", Restart::Permanent, |life| {
            (life == 0).then_some((2 * S, End::Failed))
        });
        let one = noting(one, &diary, "c", Restart::Temporary, |_| {
            Some((3 * S, End::Failed))
        });
        let _ = os.timeout(9 * S, async |os| one.run(os).await).await;
        let text = diary.text();
        let text = text.strip_prefix("a begins 0, b begins 0, c begins 0, ");
        assert_eq!(
            text,
            Some("a ends, b ends, c ends, a begins 5, b begins 6, b ends, a ends")
        );
    });
    // The rest is ended at once, and the older child goes on.
    alone(async |os: &mut Os| {
        let diary = Diary::default();
        let rest = Supervisor::new(Strategy::RestForOne)
            .restarts(9, 9 * S)
            .backoff(4 * S..4 * S);
        let rest = noting(rest, &diary, "a", Restart::Permanent, |life| {
            (life == 0).then_some((2 * S, End::Failed))
        });
        let rest = noting(rest, &diary, "b", Restart::Permanent, once(End::Failed));
        let rest = noting(rest, &diary, "c", Restart::Permanent, forever);
        let _ = os.timeout(9 * S, async |os| rest.run(os).await).await;
        let text = diary.text();
        let text = text.strip_prefix("a begins 0, b begins 0, c begins 0, ");
        assert_eq!(
            text,
            Some(
                "b ends, c ends, a ends, a begins 6, b begins 6, c begins 6, c ends, b ends, a ends"
            )
        );
    });
}

/// A child that takes so long to tidy up, and notes it.
fn tidy(supervisor: Supervisor, diary: &Diary, name: &'static str, span: Duration) -> Supervisor {
    let diary = diary.clone();
    supervisor.child(name, Restart::Permanent, move || {
        let diary = diary.clone();
        async move |os: &mut Os| {
            let _over = Over(diary.clone(), name);
            let tidying = async |os: &mut Os| {
                os.sleep(span).await;
                diary.note(format!("{name} is tidy"));
            };
            os.shield(tidying).await;
            os.sleep(Duration::MAX).await;
        }
    })
}

#[test]
fn s76_a_child_is_cancelled_and_killed_after_its_span() {
    alone(async |os: &mut Os| {
        let diary = Diary::default();
        let all = Supervisor::new(Strategy::OneForAll);
        let all = tidy(all, &diary, "early", 4 * S);
        let all = tidy(all.shutdown(2 * S), &diary, "quick", 2 * S + S / 2);
        let all = tidy(all, &diary, "slow", 3 * S);
        let all = tidy(all.shutdown(Duration::ZERO), &diary, "brutal", 9 * S);
        let all = tidy(all.shutdown(Duration::MAX), &diary, "patient", 8 * S);
        let run = os.timeout(S, async |os| all.run(os).await).await;
        assert_eq!(run, Err(Elapsed));
        // patient until 8, brutal is killed at 8, the others have long been tidy.
        assert_eq!(os.now().await, 8 * S);
        assert_eq!(
            diary.text(),
            "quick is tidy, slow is tidy, early is tidy, patient is tidy, patient ends, brutal ends, \
             slow ends, quick ends, early ends"
        );
    });
    // By default five seconds.
    for (span, at) in [(6 * S, 6 * S), (6 * S + MS, 6 * S), (5 * S, 5 * S)] {
        alone(async move |os: &mut Os| {
            let diary = Diary::default();
            let one = tidy(Supervisor::new(Strategy::OneForOne), &diary, "a", span);
            let _ = os.timeout(S, async |os| one.run(os).await).await;
            assert_eq!(os.now().await, at);
            let is_tidy = diary.text().starts_with("a is tidy");
            assert_eq!(is_tidy, span <= at, "{span:?}");
        });
    }
}

#[test]
fn s76_a_supervisor_that_is_cancelled_ends_its_children_before_itself() {
    for how in 0..3 {
        alone(async move |os: &mut Os| {
            let diary = Diary::default();
            let noted = diary.clone();
            let scope = Scope::new();
            let theirs = scope.clone();
            let mut child = os
                .spawn_child("supervisor", async move |os: &mut Os| {
                    let body = async |os: &mut Os| {
                        let one = Supervisor::new(Strategy::OneForOne);
                        let one = tidy(one, &noted, "a", 3 * S);
                        let one = tidy(one, &noted, "b", 2 * S);
                        let result = one.run(os).await;
                        unreachable!("it is cut, and not {result:?}");
                    };
                    let result: Result<(), Cancelled> = theirs.run(os, body).await;
                    noted.note("cut");
                    result
                })
                .await
                .unwrap();
            if how == 0 {
                // Cancelled before it runs, it starts none.
                scope.cancel(os).await;
                assert_eq!(child.wait(os).await, Ok(Err(Cancelled)));
                assert_eq!(diary.text(), "cut");
                return;
            }
            os.sleep(S).await;
            match how {
                1 => scope.cancel(os).await,
                _ => assert!(os.cancel(child.tid()).await),
            }
            assert_eq!(child.wait(os).await, Ok(Err(Cancelled)));
            assert_eq!(diary.text(), "b is tidy, b ends, a is tidy, a ends, cut");
            assert_eq!(os.now().await, 3 * S);
        });
    }
}

#[test]
fn s76_a_supervisor_in_a_shield_is_not_cut() {
    alone(async |os: &mut Os| {
        let diary = Diary::default();
        let one = Supervisor::new(Strategy::OneForOne);
        let one = noting(one, &diary, "a", Restart::Temporary, |_| {
            Some((3 * S, End::Done))
        });
        let shielded = async |os: &mut Os| os.shield(async |os| one.run(os).await).await;
        assert_eq!(os.timeout(S, shielded).await, Ok(Ok(())));
        assert_eq!(os.now().await, 3 * S);
    });
}

/// Starts a supervisor of three children, and returns its task.
async fn three(os: &mut Os, diary: &Diary, supervisor: Supervisor, a: End) -> Tid {
    let supervisor = noting(supervisor, diary, "a", Restart::Permanent, once(a));
    let supervisor = tidy(supervisor, diary, "b", 2 * S);
    let supervisor = noting(supervisor, diary, "c", Restart::Permanent, forever);
    let noted = diary.clone();
    let run = async move |os: &mut Os| {
        let _over = Over(noted, "supervisor");
        supervisor.run(os).await
    };
    os.spawn("supervisor", run).await.unwrap()
}

#[test]
fn s76_the_children_of_a_killed_supervisor_end_before_its_exit_is_told() {
    // While all run; in a backoff; while it ends b for a restart of all; while it ends all.
    for (strategy, at, text) in [
        (Strategy::OneForOne, S / 2, "c ends, b ends, a ends"),
        (
            Strategy::OneForOne,
            3 * S / 2,
            "a ends, supervisor ends, c ends, b ends",
        ),
        (
            Strategy::OneForAll,
            3 * S / 2,
            "a ends, c ends, supervisor ends, b ends",
        ),
        (
            Strategy::OneForAll,
            5 * S,
            "a ends, c ends, b is tidy, b ends, supervisor ends",
        ),
    ] {
        alone(async move |os: &mut Os| {
            let diary = Diary::default();
            let spec = Supervisor::new(strategy).backoff(9 * S..9 * S);
            let supervisor = three(os, &diary, spec, End::Failed).await;
            let noted = diary.clone();
            os.spawn_detached("waiter", async move |os: &mut Os| {
                assert_eq!(os.wait(supervisor).await, Ok(Exit::Killed));
                noted.note("told");
            })
            .await
            .unwrap();
            os.sleep(at).await;
            assert!(os.kill(supervisor).await);
            os.yield_now().await;
            let lines = diary.text();
            let lines = lines.strip_prefix("a begins 0, c begins 0, ").unwrap();
            let expected = match at == S / 2 {
                true => format!("supervisor ends, {text}, told"),
                false => format!("{text}, told"),
            };
            assert_eq!(lines, expected);
            assert_eq!(os.tasks().await.len(), 1);
        });
    }
}

#[test]
fn s76_supervisors_nest() {
    // The inner one gives up, the outer one starts it again.
    let report = alone(async |os: &mut Os| {
        let diary = Diary::default();
        let noted = diary.clone();
        let inner = move || {
            let noted = noted.clone();
            async move |os: &mut Os| {
                noted.note("inner");
                let inner = Supervisor::new(Strategy::OneForOne).restarts(1, 9 * S);
                let inner = noting(inner, &noted, "a", Restart::Permanent, forever);
                let inner = noting(inner, &noted, "b", Restart::Permanent, |_| {
                    Some((S, End::Faulted))
                });
                inner.run(os).await
            }
        };
        let outer = Supervisor::new(Strategy::OneForOne).restarts(1, 9 * S);
        let outer = outer.child("inner", Restart::Permanent, inner);
        let gone = outer.run(os).await.unwrap_err();
        assert_eq!(
            gone.to_string(),
            "child \"inner\" failed: child \"b\" faulted: boom (limit: 1 restart within 9s) \
             (limit: 1 restart within 9s)"
        );
        let life = |at: u32| {
            let next = at + 1;
            format!("inner, a begins {at}, b begins {at}, b ends, b begins {next}, b ends, a ends")
        };
        assert_eq!(diary.text(), format!("{}, {}", life(0), life(2)));
    });
    assert_eq!((report.failures, report.exits().len()), (0, 1));
    // An outer one ends its inner ones in order.
    alone(async |os: &mut Os| {
        let diary = Diary::default();
        let mut outer = Supervisor::new(Strategy::OneForOne);
        for names in [["a", "b"], ["c", "d"]] {
            let noted = diary.clone();
            outer = outer.child("inner", Restart::Permanent, move || {
                let noted = noted.clone();
                async move |os: &mut Os| {
                    let mut inner = Supervisor::new(Strategy::OneForAll);
                    for name in names {
                        inner = tidy(inner, &noted, name, 2 * S);
                    }
                    inner.run(os).await
                }
            });
        }
        let run = os.timeout(S, async |os| outer.run(os).await).await;
        assert_eq!((run, os.now().await), (Err(Elapsed), 2 * S));
        let lines = diary.lines();
        let ends: Vec<&String> = lines.iter().filter(|line| line.ends_with("ends")).collect();
        assert_eq!(ends, ["d ends", "c ends", "b ends", "a ends"]);
        assert_eq!(lines.len(), 8);
    });
}

#[test]
fn s76_a_child_that_cannot_be_started_counts_as_failed() {
    let program = async |os: &mut Os| {
        let blocker = async |os: &mut Os| os.sleep(S).await;
        os.spawn("blocker", blocker).await?;
        let diary = Diary::default();
        let one = |restart| {
            let one = Supervisor::new(Strategy::OneForOne).restarts(3, 9 * S);
            noting(one, &diary, "a", restart, |_| Some((S, End::Done)))
        };
        let gone = one(Restart::Permanent).run(os).await.unwrap_err();
        let full = Exit::Failed(Errno::TooManyTasks.to_string());
        assert_eq!((gone.child.as_str(), gone.exit), ("a", full));
        assert_eq!(one(Restart::Temporary).run(os).await, Ok(()));
        assert_eq!(
            (os.now().await, diary.text().as_str()),
            (Duration::ZERO, "")
        );
        // A backoff gives it time.
        let patient = one(Restart::Transient).backoff(S..S);
        assert_eq!(patient.run(os).await, Ok(()));
        assert_eq!((os.now().await, begins(&diary, "a")), (2 * S, 1));
        // All of them, if one cannot be.
        os.spawn("blocker", blocker).await?;
        let diary = Diary::default();
        let all = Supervisor::new(Strategy::OneForAll)
            .restarts(3, 9 * S)
            .backoff(2 * S..S * 2);
        let all = noting(all, &diary, "a", Restart::Temporary, |_| {
            Some((S / 2, End::Done))
        });
        let all = noting(all, &diary, "b", Restart::Transient, |_| {
            Some((S, End::Done))
        });
        assert_eq!(all.run(os).await, Ok(()));
        assert_eq!(diary.text(), "b begins 4, b ends");
        Ok::<(), Errno>(())
    };
    let mut kernel = sim().max_tasks(2).build().unwrap();
    let main = kernel.spawn("main", program).unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&main], Exit::Done);
    report.check().unwrap();
}

#[test]
fn s76_a_factory_that_panics_is_a_child_that_faulted() {
    alone(async |os: &mut Os| {
        let mut lives = 0;
        let one = Supervisor::new(Strategy::OneForOne);
        let one = one.child("a", Restart::Transient, move || {
            lives += 1;
            assert!(lives > 1, "it cannot be made yet");
            async |_: &mut Os| ()
        });
        assert_eq!(one.run(os).await, Ok(()));
    });
}

#[test]
fn s76_the_end_of_a_child_is_heard_although_another_task_has_waited_for_it() {
    alone(async |os: &mut Os| {
        let diary = Diary::default();
        let tids = Queue::<Tid>::unbounded(os).await;
        let theirs = tids.clone();
        let one = Supervisor::new(Strategy::OneForOne).restarts(9, S);
        let one = one.child("a", Restart::Permanent, move || {
            let tids = theirs.clone();
            async move |os: &mut Os| {
                let me = os.get_tid().await;
                tids.put(os, me).await.unwrap();
                os.sleep(S).await;
                Err::<(), _>("no luck")
            }
        });
        let noted = diary.clone();
        let waiter = async move |os: &mut Os| {
            loop {
                let tid = tids.get(os).await.unwrap();
                let exit = os.wait(tid).await.unwrap();
                noted.note(exit.to_string());
            }
        };
        let waiter = os.spawn("waiter", async move |os: &mut Os| {
            let _ = os.timeout(3 * S + S / 2, waiter).await;
        });
        let waiter = waiter.await.unwrap();
        let _ = os.timeout(4 * S, async |os| one.run(os).await).await;
        os.wait(waiter).await.unwrap();
        assert_eq!(diary.text(), ["failed: no luck"; 3].join(", "));
    });
}

#[test]
fn s79_children_count_through_their_supervisor_alone() {
    let run = |restarts, program: fn(Result<(), Gone>) -> Result<(), Gone>| {
        let mut kernel = Kernel::simulated(1);
        let main = async move |os: &mut Os| {
            let supervisor = async move |os: &mut Os| {
                let one = Supervisor::new(Strategy::OneForOne).restarts(restarts, S);
                let diary = Diary::default();
                let one = noting(one, &diary, "a", Restart::Transient, |life| {
                    Some((MS, [End::Faulted, End::Failed, End::Done][life as usize]))
                });
                program(one.run(os).await)
            };
            os.spawn("supervisor", supervisor).await.map(drop)
        };
        kernel.spawn("main", main).unwrap();
        kernel.run().unwrap()
    };
    let report = run(2, |result| result);
    assert!(report.check().is_ok() && report.check_faults().is_ok());
    let report = run(0, |result| result);
    assert_eq!((report.failures, report.check_faults().is_ok()), (1, true));
    assert_eq!(
        report.check().unwrap_err().to_string(),
        "task 2 \"supervisor\" failed: child \"a\" faulted: boom (limit: 0 restarts within 1s)"
    );
    let report = run(0, |_| Ok(()));
    assert!(report.check().is_ok());
    // What a child starts counts as ever.
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let one = Supervisor::new(Strategy::OneForOne);
            let one = one.child("a", Restart::Transient, || {
                async |os: &mut Os| {
                    let grandchild = async |_: &mut Os| Err::<(), _>("no luck");
                    os.spawn_detached("b", grandchild).await.map(drop)
                }
            });
            one.run(os).await
        })
        .unwrap();
    assert_eq!(kernel.run().unwrap().failures, 1);
}

#[test]
fn a_trace_names_the_supervisor() {
    let (mut kernel, log) = logged(sim());
    let main = async |os: &mut Os| {
        let diary = Diary::default();
        let one = Supervisor::new(Strategy::OneForOne).backoff(S..S);
        let one = noting(one, &diary, "worker", Restart::Transient, |life| {
            Some((S, [End::Killed, End::Done][life as usize]))
        });
        one.run(os).await
    };
    kernel.spawn("main", main).unwrap();
    kernel.run().unwrap().check().unwrap();
    for line in [
        "trapped new_queue(unbounded, supervisor)",
        "trapped new_task(\"worker\")",
        "trapped new_task(\"worker (restart 1)\")",
        "spawned \"worker\" by 1",
        "trapped select(message 2, message 1)",
        "trapped select(message 2, message 1, at 00:02.000)",
        "trapped get(1)",
        "deferred disown(2)",
    ] {
        let is_shown = log.lines().iter().any(|other| other.ends_with(line));
        assert!(is_shown, "{line}: {:#?}", log.lines());
    }
}
