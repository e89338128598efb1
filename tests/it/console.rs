//! The console as a device: it takes what it has room for, and the tasks that print wait for it.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};

use trapline::{
    DeviceId, Direction, Elapsed, Exit, Happening, Kernel, On, Os, Queue, Report, SimWorld,
    TaskInfo, TaskState, World, forward_world,
    sync::{Condition, Mutex, Semaphore},
};

use crate::support::{Diary, about, logged, passes, tid};

const SECOND: Duration = Duration::from_secs(1);
/// More than a kernel keeps.
const LOTS: usize = 100_000;

/// What a test sees of its console, and does to it.
#[derive(Clone, Default)]
struct Tap {
    taken: Rc<RefCell<Vec<u8>>>,
    /// How many bytes it takes at once, if that is limited.
    piece: Rc<Cell<Option<usize>>>,
    /// How many bytes it takes before it is full.
    room: Rc<Cell<usize>>,
    /// When it takes everything again.
    opens: Rc<Cell<Option<Duration>>>,
    /// With what it fails.
    fails: Rc<Cell<Option<io::ErrorKind>>>,
}

/// A simulated world with such a console.
struct Plumbed {
    sim: SimWorld,
    tap: Tap,
    is_waited_for: bool,
}

impl World for Plumbed {
    forward_world!(sim: now, random, reseed, seed, remote);

    fn print(&mut self, text: &[u8]) -> io::Result<usize> {
        if let Some(kind) = self.tap.fails.get() {
            return Err(kind.into());
        }
        let n = text.len().min(self.tap.room.get());
        let n = n.min(self.tap.piece.get().unwrap_or(n));
        if n == 0 {
            self.is_waited_for = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.tap.room.set(self.tap.room.get() - n);
        self.tap.taken.borrow_mut().extend_from_slice(&text[..n]);
        Ok(n)
    }

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        let opens = self.tap.opens.get().filter(|_| self.is_waited_for);
        let opens = opens.filter(|opens| deadline.is_none_or(|deadline| *opens <= deadline));
        self.sim.wait(opens.or(deadline), happened)?;
        if opens.is_some() {
            self.is_waited_for = false;
            self.tap.room.set(usize::MAX);
            happened.push(Happening::Console);
        }
        Ok(())
    }
}

/// A kernel whose console takes so many bytes, and everything when that time comes.
fn plumbed(room: usize, opens: Option<Duration>) -> (Kernel, Tap) {
    let tap = Tap::default();
    tap.room.set(room);
    tap.opens.set(opens);
    let world = Plumbed {
        sim: SimWorld::new(1),
        tap: tap.clone(),
        is_waited_for: false,
    };
    let kernel = Kernel::builder().world(world).max_time(60 * SECOND);
    (kernel.build().unwrap(), tap)
}

impl Tap {
    fn text(&self) -> String {
        String::from_utf8(self.taken.borrow().clone()).unwrap()
    }
}

/// Prints a line that fills the console.
fn fill(os: &mut Os, letter: char) {
    writeln!(os, "{}", String::from(letter).repeat(LOTS));
}

fn line(letter: char) -> String {
    String::from(letter).repeat(LOTS) + "\n"
}

fn run(kernel: &mut Kernel) -> Report {
    kernel.run().expect("nothing is wrong")
}

#[test]
fn a_printing_task_waits_for_room_and_others_go_on() {
    let (mut kernel, tap) = plumbed(10, Some(30 * SECOND));
    let times = Rc::new(RefCell::new(Vec::new()));
    let told = Rc::clone(&times);
    kernel
        .spawn("printer", async move |os: &mut Os| {
            fill(os, 'a');
            os.yield_now().await;
            let now = os.now().await;
            told.borrow_mut().push(now);
            writeln!(os, "the end");
        })
        .unwrap();
    let told = Rc::clone(&times);
    kernel
        .spawn("other", async move |os: &mut Os| {
            os.sleep(SECOND).await;
            let printer = &os.tasks().await[0];
            let on = On::Device(DeviceId::CONSOLE, Direction::Write);
            assert!(matches!(printer.state, TaskState::Blocked { on: other, .. } if other == on));
            assert_eq!(
                printer.to_string(),
                "tid 1 \"printer\" waits for the console, since 00:00.000"
            );
            let now = os.now().await;
            told.borrow_mut().push(now);
        })
        .unwrap();
    let report = run(&mut kernel);
    assert_eq!(*times.borrow(), [SECOND, 30 * SECOND]);
    assert!(tap.text() == line('a') + "the end\n");
    assert_eq!((report.lost, report.traps), (0, 5));
}

#[test]
fn printing_tasks_go_on_in_the_order_in_which_they_printed() {
    let (mut kernel, tap) = plumbed(0, Some(30 * SECOND));
    for n in 0..5 {
        let printer = async move |os: &mut Os| {
            for round in 0..3 {
                if round == 0 && n == 0 {
                    fill(os, 'a');
                }
                writeln!(os, "{n}.{round}");
                os.yield_now().await;
            }
        };
        kernel.spawn("printer", printer).unwrap();
    }
    run(&mut kernel);
    let text = tap.text();
    let order: Vec<_> = text.lines().skip(1).collect();
    let expected: Vec<_> = (0..3)
        .flat_map(|round| (0..5).map(move |n| format!("{n}.{round}")))
        .collect();
    assert_eq!(order, expected);
}

#[test]
fn a_task_that_prints_for_ever_is_held_at_the_bound_and_so_is_one_that_ends() {
    let (mut kernel, _) = plumbed(0, None);
    let printed = Rc::<Cell<u64>>::default();
    let count = Rc::clone(&printed);
    kernel
        .spawn("printer", async move |os: &mut Os| {
            loop {
                writeln!(os, "{}", "x".repeat(999));
                count.set(count.get() + 1000);
                os.yield_now().await;
            }
        })
        .unwrap();
    let shutdown = kernel.remote();
    let main = kernel.spawn("main", async move |os: &mut Os| {
        passes(os, 100).await;
        let child = async |os: &mut Os| writeln!(os, "last words");
        let child = os.spawn("child", child).await.unwrap();
        os.sleep(SECOND).await;
        let is_held = |task: &TaskInfo| matches!(task.state, TaskState::Blocked { .. });
        let tasks = os.tasks().await;
        assert!(tasks.iter().any(|task| task.tid == child && is_held(task)));
        shutdown.shutdown();
        os.sleep(SECOND).await;
    });
    let report = run(&mut kernel);
    assert_eq!(report.exits()[&main.unwrap()], Exit::Killed);
    // The shutdown did not wait for ever, and what it cost is known.
    assert_eq!(report.lost, printed.get() + 11);
    assert_eq!(printed.get(), 66_000);
    assert_eq!(report.elapsed, Duration::from_millis(1500));
}

#[test]
fn the_limit_on_time_ends_the_wait_for_the_console() {
    let (mut kernel, _) = plumbed(0, None);
    kernel
        .spawn("printer", async |os: &mut Os| writeln!(os, "lost"))
        .unwrap();
    let report = run(&mut kernel);
    assert_eq!((report.lost, report.elapsed), (5, 60 * SECOND + SECOND / 2));
}

#[test]
fn a_console_that_fails_loses_what_it_is_given_and_the_run_goes_on() {
    let (mut kernel, tap) = plumbed(usize::MAX, None);
    tap.fails.set(Some(io::ErrorKind::StorageFull));
    let there = tap.clone();
    kernel
        .spawn("printer", async move |os: &mut Os| {
            writeln!(os, "lost");
            os.yield_now().await;
            writeln!(os, "lost too");
            os.yield_now().await;
            there.fails.set(None);
            writeln!(os, "kept");
        })
        .unwrap();
    let report = run(&mut kernel);
    assert_eq!((report.lost, &*tap.text()), (14, "kept\n"));
    assert_eq!(report.exits()[&tid(1)], Exit::Done);
}

#[test]
fn a_call_that_is_held_back_keeps_what_travels_with_it() {
    let (mut kernel, tap) = plumbed(0, Some(SECOND));
    kernel
        .spawn("main", async |os: &mut Os| {
            let queue = Queue::unbounded(os).await;
            fill(os, 'a');
            queue.put(os, "message").await.unwrap();
            let child = async |os: &mut Os| {
                writeln!(os, "child");
                Err::<(), _>("its exit")
            };
            fill(os, 'b');
            let child = os.spawn("child", child).await.unwrap();
            let exit = os.wait(child).await.unwrap();
            let message = queue.get(os).await.unwrap();
            writeln!(os, "{exit}, {message}");
        })
        .unwrap();
    run(&mut kernel);
    assert!(tap.text() == line('a') + &line('b') + "child\nfailed: its exit, message\n");
}

#[test]
fn a_held_call_of_a_task_that_is_killed_never_happens() {
    let (mut kernel, _) = plumbed(0, None);
    let diary = Diary::default();
    let queue = Rc::new(RefCell::new(None));
    let (there, never) = (Rc::clone(&queue), diary.on_drop("unborn"));
    let spawner = async move |os: &mut Os| {
        fill(os, 'a');
        os.spawn("child", async move |_: &mut Os| drop(never))
            .await
            .map(drop)
    };
    kernel.spawn("spawner", spawner).unwrap();
    let message = diary.on_drop("message");
    let putter = async move |os: &mut Os| {
        let queue = Queue::unbounded(os).await;
        *there.borrow_mut() = Some(queue.clone());
        writeln!(os, "b");
        queue.put(os, message).await.map_err(|_| "closed")
    };
    kernel.spawn("putter", putter).unwrap();
    kernel
        .spawn("ends", async |os: &mut Os| {
            passes(os, 3).await;
            writeln!(os, "c");
        })
        .unwrap();
    let (notes, shutdown) = (diary.clone(), kernel.remote());
    kernel
        .spawn("killer", async move |os: &mut Os| {
            passes(os, 10).await;
            for victim in 1..=3 {
                assert!(os.kill(tid(victim)).await);
                notes.note(format!("killed {victim}"));
            }
            assert_eq!(queue.borrow().as_ref().map(Queue::len), Some(0));
            shutdown.shutdown();
        })
        .unwrap();
    let report = run(&mut kernel);
    kernel.audit();
    assert_eq!(
        diary.text(),
        "unborn, killed 1, message, killed 2, killed 3"
    );
    assert_eq!(report.peak_tasks, 4);
}

#[test]
fn a_timeout_cuts_a_call_that_is_held_back() {
    let (mut kernel, tap) = plumbed(0, Some(30 * SECOND));
    kernel
        .spawn("main", async |os: &mut Os| {
            let done = os.timeout(SECOND, async |os| {
                fill(os, 'a');
                os.random().await
            });
            assert_eq!(done.await, Err(Elapsed));
            assert_eq!(os.now().await, SECOND);
            // Woken, and cut before its turn.
            let done = os.timeout(29 * SECOND, async |os| {
                writeln!(os, "b");
                os.random().await
            });
            assert_eq!(done.await, Err(Elapsed));
            writeln!(os, "c");
        })
        .unwrap();
    let report = run(&mut kernel);
    assert_eq!(report.exits()[&tid(1)], Exit::Done);
    assert!(tap.text() == line('a') + "b\nc\n");
}

#[test]
fn the_trace_shows_that_a_task_waits_for_the_console() {
    let tap = Tap::default();
    tap.opens.set(Some(SECOND));
    let world = Plumbed {
        sim: SimWorld::new(1),
        tap,
        is_waited_for: false,
    };
    let (mut kernel, log) = logged(Kernel::builder().world(world));
    kernel
        .spawn("printer", async |os: &mut Os| {
            fill(os, 'a');
            os.get_tid().await;
        })
        .unwrap();
    run(&mut kernel);
    let facts = about(&log, 1);
    let told = facts.iter().filter(|fact| !fact.starts_with("console"));
    let told: Vec<&str> = told.map(String::as_str).collect();
    assert_eq!(
        told,
        [
            "spawned \"printer\" by 0",
            "resumed",
            "trapped get_tid()",
            "blocked on the console",
            "woken by the console",
            "replied 1",
            "resumed",
            "exited done",
            "reaped",
        ]
    );
}

#[test]
fn s57_a_due_timeout_cuts_a_call_before_it_is_held_back() {
    let (mut kernel, _) = plumbed(0, Some(30 * SECOND));
    kernel
        .spawn("printer", async |os: &mut Os| fill(os, 'a'))
        .unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            passes(os, 3).await;
            let cut = os.timeout(Duration::ZERO, async |os| {
                writeln!(os, "b");
                os.random().await
            });
            assert_eq!(cut.await, Err(Elapsed));
            assert_eq!(os.now().await, Duration::ZERO);
        })
        .unwrap();
    assert_eq!(run(&mut kernel).exits()[&tid(2)], Exit::Done);
}

#[test]
fn a_signal_is_not_lost_while_the_console_is_full() {
    let (mut kernel, _) = plumbed(0, Some(30 * SECOND));
    kernel
        .spawn("main", async |os: &mut Os| {
            let (lock, changed) = (Mutex::new(os, 0).await, Condition::new(os).await);
            let (theirs, signal) = (lock.clone(), changed.clone());
            let waiter = async move |os: &mut Os| {
                let guard = theirs.lock(os).await.unwrap();
                fill(os, 'a');
                let guard = signal.wait(os, guard).await.unwrap();
                assert_eq!(*guard, 1);
            };
            let waiter = os.spawn("waiter", waiter).await.unwrap();
            passes(os, 5).await;
            *lock.lock(os).await.unwrap() += 1;
            assert!(changed.notify_one(os).await, "the waiter waits");
            assert_eq!(os.wait(waiter).await, Ok(Exit::Done));
        })
        .unwrap();
    assert_eq!(run(&mut kernel).exits()[&tid(1)], Exit::Done);
}

#[test]
fn a_semaphore_has_all_its_permits_while_a_call_to_it_is_held_back() {
    let (mut kernel, _) = plumbed(0, Some(SECOND));
    kernel
        .spawn("main", async |os: &mut Os| {
            let semaphore = Semaphore::new(os, 2).await;
            let theirs = semaphore.clone();
            let printer = async move |os: &mut Os| {
                fill(os, 'a');
                let _permit = theirs.acquire(os).await.unwrap();
                assert_eq!(os.now().await, SECOND);
            };
            os.spawn_detached("printer", printer).await.unwrap();
            os.yield_now().await;
            let _permit = semaphore.acquire(os).await.unwrap();
            os.sleep(2 * SECOND).await;
            assert_eq!(semaphore.available(), 1);
        })
        .unwrap();
    run(&mut kernel).check().unwrap();
}

#[test]
fn a_long_text_is_written_in_short_pieces_without_moving_the_rest_each_time() {
    let (mut kernel, tap) = plumbed(usize::MAX, None);
    tap.piece.set(Some(512));
    kernel
        .spawn("printer", async |os: &mut Os| {
            // Moved each time, these would be 400 GB.
            writeln!(os, "{}", "long text ".repeat(2_000_000));
        })
        .unwrap();
    run(&mut kernel);
    assert_eq!(tap.taken.borrow().len(), 20_000_001);
}
