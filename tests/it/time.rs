//! S20 to S23: sleeping, and the virtual clock.

use std::time::Duration;

use trapline::{Errno, Exit, Kernel, Nanos, On, TaskState};

use crate::support::*;

const SECOND: Duration = Duration::from_secs(1);
/// The longest span below "for ever".
const AGES: Duration = Duration::from_nanos(u64::MAX - 1);

// ---- S20

#[test]
fn s20_sleep_for_zero_is_a_yield() {
    for quantum in [1, 4] {
        let mut kernel = sim().quantum(quantum).build().unwrap();
        for name in ["a", "b", "yields"] {
            kernel
                .spawn(name, async move |os| {
                    for _ in 0..3 {
                        write!(os, "{name} ");
                        match name {
                            "yields" => os.yield_now().await,
                            _ => os.sleep(Duration::ZERO).await,
                        }
                    }
                })
                .unwrap();
        }
        let report = kernel.run().unwrap();
        let turns = "a b yields ".repeat(3);
        assert_eq!(kernel.take_console(), turns, "quantum {quantum}");
        assert_eq!(report.elapsed, Duration::ZERO);
    }
}

#[test]
fn s20_sleep_until_an_instant_that_has_passed_takes_no_time_and_gives_the_others_a_turn() {
    let transcript = console(async |os| {
        os.sleep(SECOND).await;
        let other = async |os: &mut trapline::Os| writeln!(os, "other");
        os.spawn_detached("child", other).await?;
        os.spawn_detached("child", async |_| {}).await?;
        for instant in [Duration::ZERO, SECOND] {
            os.sleep_until(instant).await;
            let now = os.now().await;
            writeln!(os, "{now:?}");
        }
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "other\n1s\n1s\n");
}

// ---- S21

#[test]
fn s21_equal_deadlines_fire_in_the_order_of_arming() {
    let mut kernel = Kernel::simulated(0);
    // Armed in the order 4, 2, 3, 1, by different calls and at different times.
    for (name, first, then) in [("1", 3, 7), ("2", 1, 9), ("3", 2, 8), ("4", 0, 10)] {
        kernel
            .spawn(name, async move |os| {
                os.sleep(first * SECOND).await;
                if first % 2 == 0 {
                    os.sleep(then * SECOND).await;
                } else {
                    os.sleep_until(10 * SECOND).await;
                }
                write!(os, "{name} ");
            })
            .unwrap();
    }
    let report = kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "4 2 3 1 ");
    assert_eq!(report.elapsed, 10 * SECOND);
}

#[test]
fn s21_a_timer_that_is_gone_does_not_change_the_order_of_the_others() {
    let mut kernel = Kernel::simulated(0);
    for name in ["1", "2", "3", "4"] {
        kernel
            .spawn(name, async move |os| {
                os.sleep(SECOND).await;
                write!(os, "{name} ");
            })
            .unwrap();
    }
    kernel
        .spawn("killer", async |os| {
            os.kill(tid(2)).await;
        })
        .unwrap();
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "1 3 4 ");
}

#[test]
fn s21_earlier_deadlines_fire_first_whatever_the_order_of_arming() {
    let mut kernel = Kernel::simulated(0);
    for span in [5, 1, 4, 2, 3] {
        kernel
            .spawn("sleeper", async move |os| {
                os.sleep(Duration::from_nanos(span)).await;
                write!(os, "{span} ");
            })
            .unwrap();
    }
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "1 2 3 4 5 ");
}

// ---- S22

#[test]
fn s22_the_clock_stands_still_while_any_task_is_ready() {
    let transcript = console(async |os| {
        let sleeper = os
            .spawn("sleeper", async |os| {
                os.sleep(Duration::from_nanos(1)).await;
                writeln!(os, "awake");
            })
            .await?;
        passes(os, 1000).await;
        let now = os.now().await;
        writeln!(os, "{now:?}");
        os.wait(sleeper).await?;
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "0ns\nawake\n");
}

#[test]
fn s22_the_clock_jumps_exactly_to_the_next_deadline() {
    let (mut kernel, log) = logged(sim());
    for span in [1_500_000_001, 3_000_000_000] {
        kernel
            .spawn("sleeper", async move |os| {
                os.sleep(Duration::from_nanos(span)).await;
            })
            .unwrap();
    }
    kernel.run().unwrap();
    let jumps: Vec<_> = log
        .lines()
        .into_iter()
        .filter(|line| line.contains("clock jumped"))
        .collect();
    assert_eq!(
        jumps,
        [
            "00:01.500000001 0 clock jumped from 00:00.000",
            "00:03.000000000 0 clock jumped from 00:01.500",
        ]
    );
}

#[test]
fn s22_years_of_sleep_take_no_time() {
    let mut kernel = Kernel::simulated(0);
    let year = 365 * 24 * 3600 * SECOND;
    let report = run_main(&mut kernel, async move |os: &mut trapline::Os| {
        for _ in 0..500 {
            os.sleep(year).await;
        }
    });
    assert_eq!(report.elapsed, 500 * year);
}

// ---- S23

#[test]
fn s23_a_span_too_long_waits_for_ever_and_neither_panics_nor_wraps() {
    let spans = [Duration::MAX, Duration::from_nanos(u64::MAX), AGES];
    let transcript = console(async move |os| {
        // Moves boot out of the way, so that the last span is too long only as a deadline.
        os.sleep(SECOND).await;
        let mut sleepers = Vec::new();
        for span in spans {
            sleepers.push(
                os.spawn("span", async move |os| os.sleep(span).await)
                    .await?,
            );
            let until = async move |os: &mut trapline::Os| os.sleep_until(span).await;
            sleepers.push(os.spawn("instant", until).await?);
        }
        os.sleep(1_000_000 * SECOND).await;
        let tasks = os.tasks().await;
        for sleeper in sleepers {
            let info = tasks.iter().find(|info| info.tid == sleeper);
            let info = info.expect("a sleeper is alive");
            let TaskState::Blocked {
                on: On::Timer(deadline),
                ..
            } = info.state
            else {
                panic!("{info}");
            };
            writeln!(os, "{} {deadline}", info.name);
            assert!(deadline >= Nanos::from(AGES));
            os.kill(sleeper).await;
        }
        Ok::<(), Errno>(())
    });
    assert_eq!(
        transcript,
        "span for ever\ninstant for ever\n\
         span for ever\ninstant for ever\n\
         span for ever\ninstant 307445734:33.709\n"
    );
}

#[test]
fn s23_a_task_that_sleeps_for_ever_can_be_killed_in_the_real_world_too() {
    real(async |os| {
        for span in [Duration::MAX, AGES] {
            let sleeper = os
                .spawn("sleeper", async move |os| os.sleep(span).await)
                .await?;
            os.sleep(Duration::from_millis(1)).await;
            os.kill(sleeper).await;
            assert_eq!(os.wait(sleeper).await, Ok(Exit::Killed));
        }
        Ok::<(), Errno>(())
    });
}

#[test]
fn s23_a_limit_too_long_is_none() {
    let mut kernel = sim().max_time(Duration::MAX).build().unwrap();
    run_main(&mut kernel, async |os: &mut trapline::Os| {
        os.sleep(AGES).await;
    });
    assert_eq!(kernel.now(), AGES);
}

// ---- the real clock

#[test]
fn a_real_sleep_is_never_too_short_and_sleepers_overlap() {
    let span = Duration::from_millis(20);
    let report = real(async move |os| {
        let mut children = Vec::new();
        for _ in 0..100 {
            let child = async move |os: &mut trapline::Os| {
                let before = os.now().await;
                os.sleep(span).await;
                assert!(os.now().await - before >= span);
            };
            children.push(os.spawn("sleeper", child).await?);
        }
        for child in children {
            assert_eq!(os.wait(child).await, Ok(Exit::Done));
        }
        Ok::<(), Errno>(())
    });
    assert!(report.elapsed >= span);
    assert!(report.elapsed < 50 * span, "{:?}", report.elapsed);
}
