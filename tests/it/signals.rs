//! Signals: S73.

mod real;

use std::{cell::Cell, rc::Rc, time::Duration};

use trapline::{
    Either2, Elapsed, Errno, Error, Exit, Kernel, Os, Queue, Scope, Shared, Signal, Signals,
    Source, check,
    record::Header,
    tape::{Playing, Taping},
};

use crate::support::{Diary, Scratch, logged, sim};

fn milli(n: u64) -> Duration {
    Duration::from_millis(n)
}

const ALL: [Signal; 5] = Signal::ALL;

/// A simulated kernel to which these signals come.
fn signalled(signals: &[(u64, Signal)]) -> Kernel {
    let mut kernel = sim().build().unwrap();
    for (at, signal) in signals {
        kernel.signal_at(milli(*at), *signal);
    }
    kernel
}

/// Runs a program to which these signals come, alone and to a good end.
fn alone(signals: &[(u64, Signal)], program: impl AsyncFnOnce(&mut Os) + 'static) {
    let mut kernel = signalled(signals);
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
    assert_eq!(kernel.ended_by(), None);
}

#[test]
fn s73_a_signal_that_no_task_has_caught_ends_the_run_and_destructors_run() {
    for signal in ALL {
        let mut kernel = signalled(&[(5, signal), (6, Signal::Interrupt)]);
        let diary = Diary::default();
        for name in ["elder", "younger"] {
            let gone = diary.on_drop(name);
            let program = async move |os: &mut Os| {
                let _gone = gone;
                // Another signal.
                let others: Vec<_> = ALL.into_iter().filter(|other| *other != signal).collect();
                let _others = os.catch(&others).await;
                os.sleep(Duration::MAX).await;
            };
            kernel.spawn(name, program).unwrap();
        }
        kernel.run().unwrap();
        assert_eq!(diary.lines(), ["younger", "elder"]);
        assert_eq!(kernel.now(), milli(5));
        assert_eq!(kernel.ended_by(), Some(signal));
        kernel.audit_all();
    }
}

#[test]
fn s73_each_holder_gets_each_signal_in_order_and_only_what_it_has_caught() {
    let sent = [
        (1, Signal::User1),
        (1, Signal::Hangup),
        (2, Signal::Terminate),
        (2, Signal::User1),
        (3, Signal::Terminate),
    ];
    alone(&sent, async move |os: &mut Os| {
        let holder = |caught: &'static [Signal], delay| {
            async move |os: &mut Os| {
                let signals = os.catch(caught).await;
                os.sleep(delay).await;
                let mut got = Vec::new();
                while got.len() < 5 {
                    let next = async |os: &mut Os| signals.next(os).await;
                    match os.timeout(milli(10), next).await {
                        Ok(signal) => got.push(signal),
                        Err(Elapsed) => break,
                    }
                }
                got
            }
        };
        // One waits for each signal, the other finds them all.
        let quick = os.spawn_child("quick", holder(&ALL, milli(0))).await;
        let slow = holder(&[Signal::Terminate, Signal::User1], milli(5));
        let slow = os.spawn_child("slow", slow).await;
        assert_eq!(
            quick.unwrap().wait(os).await,
            Ok(sent.map(|(_, signal)| signal).to_vec())
        );
        let theirs = [
            Signal::User1,
            Signal::Terminate,
            Signal::User1,
            Signal::Terminate,
        ];
        assert_eq!(slow.unwrap().wait(os).await, Ok(theirs.to_vec()));
    });
}

#[test]
fn s73_a_task_that_waits_is_woken_at_that_instant() {
    alone(&[(7, Signal::Hangup)], async |os: &mut Os| {
        let signals = os.catch(&[Signal::Hangup]).await;
        assert_eq!(signals.next(os).await, Signal::Hangup);
        assert_eq!(os.now().await, milli(7));
    });
}

#[test]
fn s73_when_the_last_holder_is_dropped_the_default_action_is_back() {
    let mut kernel = signalled(&[(2, Signal::Terminate), (4, Signal::Terminate)]);
    let main = async |os: &mut Os| {
        let signals = os.catch(&[Signal::Terminate]).await;
        let other = os.catch(&[Signal::Terminate]).await;
        assert_eq!(signals.next(os).await, Signal::Terminate);
        // The other holder has not taken it; this one has.
        drop(signals);
        drop(other);
        os.sleep(milli(1)).await;
        writeln!(os, "goes on");
        os.sleep(milli(9)).await;
        writeln!(os, "lost");
    };
    kernel.spawn("main", main).unwrap();
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "goes on\n");
    assert_eq!(
        (kernel.now(), kernel.ended_by()),
        (milli(4), Some(Signal::Terminate))
    );
}

#[test]
fn s73_a_signal_that_no_holder_has_taken_acts_when_the_last_one_is_dropped() {
    let mut kernel = signalled(&[(1, Signal::Terminate), (1, Signal::Hangup)]);
    let main = async |os: &mut Os| {
        let both = os.catch(&[Signal::Terminate, Signal::Hangup]).await;
        let one = os.catch(&[Signal::Terminate]).await;
        os.sleep(milli(2)).await;
        // In order: the first is SIGTERM.
        assert_eq!(both.next(os).await, Signal::Terminate);
        drop(one);
        os.yield_now().await;
        writeln!(os, "one has gone");
        drop(both);
        os.yield_now().await;
        writeln!(os, "lost");
    };
    kernel.spawn("main", main).unwrap();
    let other = async |os: &mut Os| os.sleep(milli(9)).await;
    kernel.spawn("other", other).unwrap();
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "one has gone\n");
    assert_eq!(
        (kernel.now(), kernel.ended_by()),
        (milli(2), Some(Signal::Hangup))
    );
    kernel.audit_all();
}

#[test]
fn s73_a_signal_that_is_not_taken_ends_no_task_that_has_returned() {
    for is_alone in [true, false] {
        let mut kernel = signalled(&[(1, Signal::Terminate)]);
        let main = async move |os: &mut Os| {
            let signals = os.catch(&[Signal::Terminate]).await;
            os.spawn_daemon("ticker", async |os: &mut Os| os.sleep(Duration::MAX).await)
                .await
                .unwrap();
            assert_eq!(os.select(&[Source::signal(&signals)]).await, 0);
            writeln!(os, "it is over");
        };
        let main = kernel.spawn("main", main).unwrap();
        if !is_alone {
            let other = async |os: &mut Os| os.sleep(milli(9)).await;
            kernel.spawn("other", other).unwrap();
        }
        let report = kernel.run().unwrap();
        let exit = [Exit::Killed, Exit::Done][usize::from(is_alone)].clone();
        assert_eq!(report.exits()[&main], exit);
        let ended_by = (!is_alone).then_some(Signal::Terminate);
        assert_eq!(kernel.ended_by(), ended_by);
        kernel.audit_all();
    }
}

#[test]
fn s73_the_end_of_a_holder_is_that_of_its_signals() {
    // It is killed, it faults, it returns.
    for way in 0..3 {
        let mut kernel = signalled(&[(1, Signal::Terminate)]);
        let holder = async move |os: &mut Os| {
            let _signals = os.catch(&[Signal::Terminate]).await;
            os.sleep(milli(2)).await;
            assert_ne!(way, 1);
            os.sleep(if way == 0 { Duration::MAX } else { milli(0) })
                .await;
        };
        let holder = kernel.spawn("holder", holder).unwrap();
        let main = async move |os: &mut Os| {
            os.sleep(milli(3)).await;
            os.kill(holder).await;
            os.sleep(milli(3)).await;
            writeln!(os, "lost");
        };
        kernel.spawn("main", main).unwrap();
        kernel.run().unwrap();
        assert_eq!(kernel.take_console(), "", "{way}");
        assert_eq!(kernel.ended_by(), Some(Signal::Terminate), "{way}");
        kernel.audit_all();
    }
}

#[test]
fn s73_a_second_interrupt_ends_the_run_unless_the_first_was_taken() {
    for taken in [false, true] {
        let mut kernel = signalled(&[(1, Signal::Interrupt), (3, Signal::Interrupt)]);
        let main = async move |os: &mut Os| {
            let signals = os.catch(&[Signal::Interrupt]).await;
            let _other = os.catch(&[Signal::Interrupt]).await;
            if taken {
                signals.next(os).await;
            }
            os.sleep(milli(4)).await;
            writeln!(os, "survived");
            assert_eq!(signals.next(os).await, Signal::Interrupt);
        };
        kernel.spawn("main", main).unwrap();
        kernel.run().unwrap().check().unwrap();
        let (text, ended_by) = match taken {
            true => ("survived\n", None),
            false => ("", Some(Signal::Interrupt)),
        };
        assert_eq!(kernel.take_console(), text);
        assert_eq!(kernel.ended_by(), ended_by);
    }
    // Of other signals each is a message.
    alone(
        &[(1, Signal::Terminate), (1, Signal::Terminate)],
        async |os: &mut Os| {
            let signals = os.catch(&[Signal::Terminate]).await;
            os.sleep(milli(2)).await;
            for _ in 0..2 {
                assert_eq!(signals.next(os).await, Signal::Terminate);
            }
        },
    );
}

#[test]
fn s73_a_wait_for_a_signal_that_will_not_come_is_a_deadlock_with_its_name() {
    let mut kernel = signalled(&[(1, Signal::User1)]);
    let main = async |os: &mut Os| {
        let signals = os.catch(&[Signal::Terminate, Signal::User1]).await;
        assert_eq!(signals.next(os).await, Signal::User1);
        signals.next(os).await;
    };
    kernel.spawn("main", main).unwrap();
    let selecting = async |os: &mut Os| {
        let signals = os.catch(&[Signal::Hangup]).await;
        os.select(&[Source::signal(&signals)]).await;
    };
    kernel.spawn("selecting", selecting).unwrap();
    let Err(Error::Deadlock(deadlock)) = kernel.run() else {
        panic!("the outside is silent");
    };
    let report = deadlock.to_string();
    let waits = "tid 1 \"main\" waits for signals 1 \"SIGTERM, SIGUSR1\", since 00:00.001";
    assert!(report.contains(waits), "{report}");
    let selects = "tid 2 \"selecting\" waits for signals 2 \"SIGHUP\", since 00:00.000";
    assert!(report.contains(selects), "{report}");
    // It goes on when one comes.
    let remote = kernel.remote();
    assert_eq!(remote.untaken(Signal::Terminate), Some(0));
    assert_eq!(remote.untaken(Signal::Interrupt), None);
    std::thread::spawn(move || {
        [Signal::Hangup, Signal::Terminate].map(|signal| remote.signal(signal))
    })
    .join()
    .unwrap();
    assert_eq!(kernel.remote().untaken(Signal::Terminate), Some(1));
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn s73_a_signal_is_a_source_of_a_select() {
    alone(&[(5, Signal::Terminate)], async |os: &mut Os| {
        let signals = os.catch(&[Signal::Terminate]).await;
        let queue = Queue::<u8>::bounded(os, 1).await;
        let sources = [Source::message(&queue), Source::signal(&signals)];
        assert_eq!(os.select(&sources).await, 1);
        // Nothing is taken.
        assert_eq!(os.select(&sources).await, 1);
        queue.put(os, 1).await.unwrap();
        let arms = (queue.get_arm(), signals.next_arm());
        assert_eq!(os.first(arms).await, Either2::First(Ok(1)));
        let arms = (queue.get_arm(), signals.next_arm());
        assert_eq!(os.first(arms).await, Either2::Second(Signal::Terminate));
        assert_eq!(os.now().await, milli(5));
    });
}

#[test]
fn s73_signals_that_come_before_the_catch_and_after_the_end_have_no_effect_on_it() {
    let mut kernel = signalled(&[(1, Signal::Terminate)]);
    kernel
        .spawn("main", async |os: &mut Os| os.yield_now().await)
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!((kernel.now(), kernel.ended_by()), (Duration::ZERO, None));
    // It is for the next run.
    kernel
        .spawn("main", async |os: &mut Os| os.sleep(milli(9)).await)
        .unwrap();
    kernel.run().unwrap();
    assert_eq!(kernel.ended_by(), Some(Signal::Terminate));
    kernel.reset(1).unwrap();
    assert_eq!(kernel.ended_by(), None);
    kernel
        .spawn("main", async |os: &mut Os| os.sleep(milli(9)).await)
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(kernel.now(), milli(9));
}

// ---- its enemies

/// How a task that waits for a signal is cut short.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Enemy {
    Kill,
    Timeout,
    Cancel,
    Shutdown,
}

/// Takes the next signal and counts it, unless the enemy comes first.
async fn take(os: &mut Os, signals: &Signals, scope: &Scope, enemy: Enemy, taken: &Shared<u32>) {
    let next = async |os: &mut Os| {
        signals.next(os).await;
        taken.update(|taken| *taken += 1);
    };
    match enemy {
        Enemy::Timeout => drop(os.timeout(milli(1), next).await),
        Enemy::Cancel => drop(scope.run(os, next).await),
        Enemy::Kill | Enemy::Shutdown => next(os).await,
    }
}

/// Two tasks wait for two signals, which come while an enemy cuts one of the tasks short.
fn raid(kernel: &mut Kernel, enemy: Enemy, selects: bool) -> Result<(), Error> {
    kernel.signal_at(milli(1), Signal::Terminate);
    kernel.signal_at(milli(1), Signal::User1);
    let taken = Shared::new(0);
    let total = taken.clone();
    let ended = Rc::new(Cell::new(false));
    let is_over = Rc::clone(&ended);
    kernel.spawn("main", async move |os: &mut Os| {
        let signals = Rc::new(os.catch(&[Signal::Terminate, Signal::User1]).await);
        let scope = Scope::new();
        let (theirs, count, inner) = (Rc::clone(&signals), taken.clone(), scope.clone());
        let victim = async move |os: &mut Os| {
            if selects {
                os.select(&[Source::signal(&theirs)]).await;
            }
            take(os, &theirs, &inner, enemy, &count).await;
        };
        let victim = os.spawn("victim", victim).await?;
        let foe = async move |os: &mut Os| {
            os.sleep(milli(1)).await;
            match enemy {
                Enemy::Kill => drop(os.kill(victim).await),
                Enemy::Cancel => scope.cancel(os).await,
                Enemy::Shutdown => os.shutdown().await,
                Enemy::Timeout => {}
            }
        };
        os.spawn("foe", foe).await?;
        os.wait(victim).await?;
        // What the victim has not taken is there.
        while taken.get() < 2 {
            let next = async |os: &mut Os| signals.next(os).await;
            match os.timeout(milli(5), next).await {
                Ok(_) => taken.update(|taken| *taken += 1),
                Err(Elapsed) => break,
            }
        }
        ended.set(true);
        Ok::<(), Errno>(())
    })?;
    kernel.run()?.check()?;
    kernel.audit_all();
    if enemy == Enemy::Shutdown {
        // What was not taken has its default action, and no other has.
        let is_left = total.get() < 2;
        assert!(is_over.get() || is_left || kernel.ended_by().is_none());
    } else {
        assert_eq!((total.get(), kernel.ended_by()), (2, None));
    }
    Ok(())
}

#[test]
fn s73_no_signal_is_lost_whatever_cuts_the_task_that_it_is_for() {
    for enemy in [Enemy::Kill, Enemy::Timeout, Enemy::Cancel, Enemy::Shutdown] {
        for selects in [false, true] {
            let all = check(move |kernel| raid(kernel, enemy, selects));
            let all = all.exhaustive().explore();
            let is_well = all.failure.is_none() && all.complete;
            assert!(is_well, "{enemy:?} {selects}: {all:?}");
        }
    }
}

#[test]
fn s73_a_holder_that_is_killed_at_any_step_takes_its_signals_along_or_none() {
    // A catch whose answer no task has got is none.
    for step in 0..6 {
        let program = move |kernel: &mut Kernel| {
            kernel.signal_at(milli(2), Signal::Terminate);
            let taken = Rc::new(Cell::new(false));
            let got = Rc::clone(&taken);
            let holder = kernel.spawn("holder", async move |os: &mut Os| {
                let signals = os.catch(&[Signal::Terminate]).await;
                os.sleep(milli(1)).await;
                signals.next(os).await;
                taken.set(true);
                os.sleep(milli(1)).await;
            })?;
            kernel.spawn("killer", async move |os: &mut Os| {
                os.sleep(milli(step / 2)).await;
                if step % 2 == 1 {
                    os.yield_now().await;
                }
                os.kill(holder).await;
                os.sleep(milli(5)).await;
            })?;
            kernel.run()?.check()?;
            kernel.audit_all();
            let ended_by = (!got.get()).then_some(Signal::Terminate);
            assert_eq!(kernel.ended_by(), ended_by);
            assert_eq!(kernel.remote().untaken(Signal::Terminate), None);
            Ok(())
        };
        let all = check(program).exhaustive().explore();
        assert!(all.failure.is_none() && all.complete, "{step}: {all:?}");
    }
}

// ---- what is seen of it

#[test]
fn s73_a_trace_shows_the_catch_the_signal_and_its_message() {
    let (mut kernel, log) = logged(sim());
    kernel.signal_at(milli(1), Signal::Terminate);
    let main = async |os: &mut Os| {
        let signals = os.catch(&[Signal::Hangup, Signal::Terminate]).await;
        os.first((signals.next_arm(), trapline::after(milli(5))))
            .await;
    };
    kernel.spawn("main", main).unwrap();
    kernel.run().unwrap().check().unwrap();
    for line in [
        "1 trapped catch(signals \"SIGTERM, SIGHUP\")",
        "1 replied queue 1",
        "0 signal SIGTERM",
        "1 woken by queue 1",
        "1 deferred uncatch(1)",
    ] {
        let is_shown = log.lines().iter().any(|other| other.ends_with(line));
        assert!(is_shown, "{line}: {}", log.text());
    }
}

// ---- tapes

/// Prints each signal and its instant, until it is to end.
async fn listener(os: &mut Os) {
    let signals = os.catch(&ALL).await;
    loop {
        let signal = signals.next(os).await;
        let now = os.now().await;
        writeln!(os, "{signal} at {now:?}");
        if signal == Signal::Terminate {
            return;
        }
    }
}

#[test]
fn s73_signals_are_on_a_tape_and_come_again_in_its_replay() {
    let file = Scratch::new("signals.tape");
    let world = trapline::SimWorld::new(7);
    let world = Taping::create(world, &file.0, &Header::default(), None).unwrap();
    let writer = world.writer();
    let boot = |world: Box<dyn trapline::World>| {
        let builder = Kernel::builder().world(world).capture_console();
        let (mut kernel, log) = logged(builder);
        kernel.signal_at(milli(3), Signal::User2);
        kernel.spawn("listener", listener).unwrap();
        // It raises the others, at instants that no program decides.
        let remote = kernel.remote();
        kernel
            .spawn("outside", async move |os: &mut Os| {
                for signal in [
                    Signal::Hangup,
                    Signal::Interrupt,
                    Signal::User1,
                    Signal::Terminate,
                ] {
                    os.sleep(milli(2)).await;
                    let remote = remote.clone();
                    os.run_blocking(move || remote.signal(signal))
                        .await
                        .unwrap();
                }
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
        (kernel.take_console(), log.lines())
    };
    let taped = boot(Box::new(world));
    writer.close().unwrap();
    assert_eq!(taped.0.lines().count(), 5, "{}", taped.0);
    let world = Playing::open(&file.0).unwrap();
    let progress = world.progress();
    assert_eq!(boot(Box::new(world)), taped);
    progress.finish().unwrap();
}
