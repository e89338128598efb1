//! Mail of other kernels and threads on tapes.

use std::sync::Arc;

use trapline::{Closed, KernelId, Kernels, Mailbox, TryPutError};

use super::*;

#[test]
fn mail_of_its_own_tasks_and_of_threads_runs_again() {
    let (told, _) = tape_and_play(|kernel| {
        let (sender, mailbox) = Mailbox::<u32>::named("own", 2);
        for n in 0..3 {
            let sender = sender.clone();
            let put = async move |os: &mut Os| {
                for m in 0..5 {
                    sender.put(os, 10 * n + m).await.unwrap();
                    os.yield_now().await;
                }
            };
            kernel.spawn("puts", put).unwrap();
        }
        drop(sender);
        let (of_thread, letters) = Mailbox::<u32>::unbounded();
        let take = async move |os: &mut Os| {
            while let Ok(n) = mailbox.get(os).await {
                writeln!(os, "{n}");
            }
            let thread = move || {
                for n in 100..110 {
                    of_thread.try_put(n).unwrap();
                    trapline::pause(Duration::from_micros(200));
                }
            };
            os.spawn("works", async |os: &mut Os| {
                os.run_blocking(thread).await.unwrap();
            })
            .await
            .unwrap();
            while let Ok(n) = letters.get(os).await {
                writeln!(os, "{n}");
            }
        };
        kernel.spawn("takes", take).unwrap();
    });
    assert_eq!(told.console.lines().count(), 25);
}

/// A replay may have other daemons. What they put changes no number of what tasks put.
#[test]
fn the_mail_of_daemons_counts_apart() {
    let with = |daemons: usize| {
        move |kernel: &mut Kernel| {
            let (sender, mailbox) = Mailbox::<u32>::unbounded();
            let (visits, visited) = Mailbox::<u32>::unbounded();
            for _ in 0..daemons {
                let visits = visits.clone();
                let visit = async move |os: &mut Os| visits.put(os, 0).await.unwrap();
                kernel.spawn_daemon("visits", visit);
            }
            let put = async move |os: &mut Os| {
                let _open = visited;
                for n in 0..5 {
                    os.sleep(Duration::from_millis(1)).await;
                    sender.put(os, n).await.unwrap();
                }
            };
            kernel.spawn("puts", put).unwrap();
            let take = async move |os: &mut Os| {
                while let Ok(n) = mailbox.get(os).await {
                    writeln!(os, "{n}");
                }
            };
            kernel.spawn("takes", take).unwrap();
        }
    };
    let (told, error, bytes) = tape(RealWorld::new().unwrap(), None, with(2));
    assert!(error.is_none());
    for daemons in [0, 1, 3] {
        let (again, error, finished) = play(&bytes, with(daemons)).unwrap();
        assert!(error.is_none(), "{daemons}: {error:?}");
        assert_eq!(again, told);
        finished.unwrap();
    }
}

/// Each kernel that is not one of `Kernels` has the number 1.
#[test]
fn a_tape_does_not_mix_the_mail_of_two_kernels_with_one_number() {
    let why =
        "two kernels with the number 1 put into one mailbox, and the tape of its kernel cannot";
    let put_by_another = |sender: trapline::Sender<u32>| {
        let put = async move |os: &mut Os| sender.put(os, 1).await.unwrap();
        let (_, error) = run(Kernel::builder(), |kernel| _ = kernel.spawn("puts", put));
        assert!(error.is_none());
    };
    for takes_first in [false, true] {
        let (sender, mailbox) = Mailbox::<u32>::unbounded();
        put_by_another(sender.clone());
        let main = async move |os: &mut Os| {
            if takes_first {
                assert_eq!(mailbox.get(os).await, Ok(1));
            }
            sender.put(os, 2).await.unwrap();
            let _ = mailbox.get(os).await;
        };
        let spawn = |kernel: &mut Kernel| _ = kernel.spawn("main", main).unwrap();
        let (told, _, _) = tape(RealWorld::new().unwrap(), None, spawn);
        assert!(told.exits.contains(why), "{told:?}");
    }
    // Without a tape their numbers do not matter.
    let (sender, mailbox) = Mailbox::<u32>::unbounded();
    put_by_another(sender.clone());
    put_by_another(sender);
    let take = async move |os: &mut Os| {
        assert_eq!(mailbox.get(os).await, Ok(1));
        assert_eq!(mailbox.get(os).await, Ok(1));
    };
    let (told, _) = run(Kernel::builder(), |kernel| _ = kernel.spawn("takes", take));
    assert!(told.exits.contains("Done"), "{told:?}");
}

/// A run of two kernels: the second asks, the first answers. Each mailbox has room for one message, and the
/// first kernel ends while the other still puts.
#[derive(Clone)]
struct Pair {
    asks: (trapline::Sender<u32>, Mailbox<u32>),
    answers: (trapline::Sender<u32>, Mailbox<u32>),
}

impl Pair {
    fn new(make: impl Fn(&str) -> (trapline::Sender<u32>, Mailbox<u32>)) -> Self {
        Self {
            asks: make("asks"),
            answers: make("answers"),
        }
    }

    fn spawn(self, id: KernelId, kernel: &mut Kernel) {
        if id.index() == 0 {
            let (asks, answers) = (self.asks.1, self.answers.0);
            let serve = async move |os: &mut Os| {
                for n in 0..20 {
                    let ask = asks.get(os).await.unwrap();
                    writeln!(os, "{n}: {ask}");
                    answers.put(os, ask * ask).await.unwrap();
                }
            };
            kernel.spawn("serves", serve).unwrap();
            return;
        }
        let (asks, answers) = (self.asks.0, self.answers.1);
        for half in 0..2 {
            let asks = asks.clone();
            let ask = async move |os: &mut Os| {
                for n in 0.. {
                    match asks.put(os, 100 * half + n).await {
                        Ok(()) => {}
                        Err(Closed(n)) => {
                            writeln!(os, "refused: {n}");
                            break;
                        }
                    }
                }
            };
            kernel.spawn("asks", ask).unwrap();
        }
        let hear = async move |os: &mut Os| {
            while let Ok(answer) = answers.get(os).await {
                writeln!(os, "answer {answer}");
            }
        };
        kernel.spawn("hears", hear).unwrap();
    }
}

/// Runs both kernels, each on a tape. Answers what was told, and the tapes.
fn tape_both(pair: Pair) -> Vec<(Told, Vec<u8>)> {
    let all = Arc::new(std::sync::Mutex::new(std::collections::BTreeMap::new()));
    let kept = Arc::clone(&all);
    let files: Arc<[Scratch; 2]> = Arc::new(["one", "two"].map(|name| {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Scratch::new(&format!("mail-{run}-{name}"))
    }));
    let tapes = Arc::clone(&files);
    let results = Kernels::new(2).run(move |id| {
        let file = &tapes[id.index()].0;
        let world = Taping::create(RealWorld::new()?, file, &Header::default(), None)?;
        Ok(observed(id, world, pair.clone(), &kept))
    });
    for result in results {
        result.unwrap().check().unwrap();
    }
    let told = std::mem::take(&mut *all.lock().unwrap());
    let tapes = files.iter().map(Scratch::bytes);
    told.into_values().zip(tapes).collect()
}

type AllTold = Arc<std::sync::Mutex<std::collections::BTreeMap<KernelId, Told>>>;

/// A kernel of the pair. What was told of it goes to `kept` when it is dropped.
fn observed(id: KernelId, world: impl World + 'static, pair: Pair, kept: &AllTold) -> Kernel {
    struct Keeps(KernelId, AllTold, Vec<String>);
    impl Tracer for Keeps {
        fn event(&mut self, event: &Event<'_>) {
            self.2.push(event.to_string());
        }
        fn is_exact(&self) -> bool {
            false
        }
    }
    impl Drop for Keeps {
        fn drop(&mut self) {
            let told = Told {
                log: std::mem::take(&mut self.2),
                console: String::new(),
                exits: String::new(),
            };
            self.1.lock().unwrap().insert(self.0, told);
        }
    }
    let keeps = Keeps(id, Arc::clone(kept), Vec::new());
    let mut kernel = Kernel::builder()
        .world(world)
        .capture_console()
        .tracer(keeps)
        .build()
        .unwrap();
    pair.spawn(id, &mut kernel);
    kernel
}

#[test]
fn kernels_that_are_replayed_together_take_the_same_mail() {
    for _ in 0..5 {
        let both = tape_both(Pair::new(|name| Mailbox::named(name, 1)));
        let (told, tapes): (Vec<_>, Vec<_>) = both.into_iter().unzip();
        let again = AllTold::default();
        let (kept, pair) = (
            Arc::clone(&again),
            Pair::new(|name| Mailbox::named(name, 1)),
        );
        let results = Kernels::new(2).run(move |id| {
            let world = Playing::from_reader(Cursor::new(tapes[id.index()].clone())).unwrap();
            Ok(observed(id, world, pair.clone(), &kept))
        });
        for result in results {
            result.unwrap().check().unwrap();
        }
        let again: Vec<_> = std::mem::take(&mut *again.lock().unwrap())
            .into_values()
            .collect();
        assert_eq!(told, again);
    }
}

/// Replays one kernel of the pair without the other.
fn alone(id: KernelId, tape: &[u8], pair: Pair) -> (Vec<String>, Option<Error>, bool) {
    let world = Playing::from_reader(Cursor::new(tape.to_vec())).unwrap();
    let progress = world.progress();
    let all = AllTold::default();
    let mut kernel = observed(id, world, pair, &all);
    let error = kernel.run().err();
    drop(kernel);
    let told = all.lock().unwrap().remove(&id).unwrap();
    (told.log, error, progress.finish().is_ok())
}

#[test]
fn a_kernel_is_replayed_alone_where_the_tape_has_the_values() {
    let make = |name: &str| Mailbox::recorded(name, 1);
    for (index, (told, tape)) in tape_both(Pair::new(make)).into_iter().enumerate() {
        let (log, error, is_finished) = alone(KernelId::at(index), &tape, Pair::new(make));
        assert!(error.is_none() && is_finished, "{index}: {error:?}");
        assert_eq!(log, told.log);
    }
}

#[test]
fn mail_that_is_not_put_again_and_not_on_the_tape_is_an_error_that_says_so() {
    let make = |name: &str| Mailbox::named(name, 1);
    for (index, (_, tape)) in tape_both(Pair::new(make)).into_iter().enumerate() {
        let mut pair = Pair::new(make);
        // No sender is left, of which one is the own kernel's.
        match index {
            0 => pair.asks.0 = make("another").0,
            _ => pair.answers.0 = make("another").0,
        }
        let (_, error, _) = alone(KernelId::at(index), &tape, pair);
        let error = error.expect("it ends there").to_string();
        assert!(error.contains("a message that is not put again"), "{error}");
    }
}

#[test]
fn a_replay_whose_program_sends_no_mail_leaves_the_tape() {
    let (sender, mailbox) = Mailbox::<u32>::bounded(1);
    let one = sender.clone();
    let (_, _, bytes) = tape(RealWorld::new().unwrap(), None, |kernel| {
        let put = async move |os: &mut Os| one.put(os, 1).await.unwrap();
        kernel.spawn("main", put).unwrap();
    });
    let other = async |os: &mut Os| _ = os.random().await;
    let (_, error, _) = play(&bytes, |kernel| _ = kernel.spawn("main", other).unwrap()).unwrap();
    let error = error.expect("it leaves the tape").to_string();
    assert!(
        error.contains("asks for a random number, and the tape has mail"),
        "{error}"
    );
    assert_eq!(sender.try_put(2), Err(TryPutError::Full(2)));
    drop(mailbox);
}

#[test]
fn a_wrapper_that_hides_the_mail_from_its_tape_is_told_so() {
    struct Hides<W>(W);
    impl<W: World> World for Hides<W> {
        trapline::forward_world!(0: now, now_for_log, random, reseed, seed, reset, print, take_console);
        trapline::forward_world!(0: wait, wait_for_threads, holds_tasks, is_idle, remote, submit, io);
        trapline::forward_world!(0: spins, spin, net, choose);
    }
    let file = Scratch::new("mail-hidden");
    let world = RealWorld::new().unwrap();
    let world = Taping::create(world, &file.0, &Header::default(), None).unwrap();
    let mut kernel = Kernel::builder().world(Hides(world)).build().unwrap();
    let (sender, _mailbox) = Mailbox::unbounded();
    let put = async move |os: &mut Os| sender.put(os, 1).await;
    kernel.spawn("puts", put).unwrap();
    let error = kernel.run().unwrap_err().to_string();
    assert!(error.contains("does not forward `mail`"), "{error}");
}
