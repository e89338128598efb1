//! Journals: crashes, errors of the disk, and new files.

mod damage;

use std::{
    cell::{Cell, RefCell},
    io::{self, ErrorKind},
    rc::Rc,
    time::Duration,
};

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};
use trapline::{Durability, Journal, Kernel, Os, SimDisk, SimWorld};

const MS: Duration = Duration::from_millis(1);

/// A pair of numbers, which change together. An entry is one of them.
type Pair = [u32; 2];

fn entry(out: &mut Vec<u8>, which: u8, number: u32) {
    out.push(which);
    out.extend_from_slice(&number.to_le_bytes());
}

async fn open(os: &mut Os, durability: Durability, pair: &Rc<Cell<Pair>>) -> io::Result<Journal> {
    let replay = |entries: &[u8]| {
        let (entries, []) = entries.as_chunks::<5>() else {
            return Err(io::Error::other("no entry"));
        };
        for [which, number @ ..] in entries {
            let mut both = pair.get();
            both[usize::from(*which)] = u32::from_le_bytes(*number);
            pair.set(both);
        }
        Ok(())
    };
    Journal::open(os, "dir/journal", durability, replay).await
}

/// Starts the writer, again after each error.
async fn write(os: &mut Os, journal: &Journal, pair: &Rc<Cell<Pair>>) {
    let (journal, pair) = (journal.clone(), Rc::clone(pair));
    let writer = async move |os: &mut Os| {
        let walk = || {
            let (pair, mut which) = (Rc::clone(&pair), 0);
            move |out: &mut Vec<u8>| {
                entry(out, which, pair.get()[usize::from(which)]);
                which += 1;
                which < 2
            }
        };
        while journal.work(os, walk).await.is_err() {
            os.sleep(MS).await;
        }
    };
    os.spawn("writer", writer).await.expect("there is room");
}

fn add(journal: &Journal, pair: &Rc<Cell<Pair>>, number: u32) {
    pair.set([number; 2]);
    for which in 0..2 {
        journal.add(|out| entry(out, which, number));
    }
}

fn kernel(seed: u64, disk: &SimDisk) -> Kernel {
    let world = SimWorld::new(seed).disk("localhost", disk);
    let kernel = Kernel::builder().world(world).max_ticks(1_000_000);
    kernel.build().expect("a kernel boots")
}

fn disk() -> SimDisk {
    let disk = SimDisk::new();
    let main = async |os: &mut Os| {
        os.disk().create_dir(os, "dir").await?;
        os.disk().sync_dir(os, ".").await
    };
    ran(&disk, main);
    disk
}

fn ran(disk: &SimDisk, main: impl AsyncFnOnce(&mut Os) -> io::Result<()> + 'static) {
    let mut kernel = kernel(1, disk);
    kernel.spawn("main", main).expect("there is room");
    kernel
        .run()
        .expect("it ends")
        .check()
        .expect("it ends well");
}

/// What is known of a journal between the lives of its program.
#[derive(Default)]
struct Known {
    promised: Cell<u32>,
    added: Cell<u32>,
    wrong: RefCell<Option<String>>,
}

/// A life: what it finds, and then changes up to its end.
async fn live(os: &mut Os, durability: Durability, known: Rc<Known>) -> io::Result<()> {
    let pair = Rc::default();
    let journal = open(os, durability, &pair).await?;
    let [one, other] = pair.get();
    let (least, most) = (known.promised.get(), known.added.get());
    if one != other || !(least..=most).contains(&one) {
        let why = format!("{one} and {other} after {least} of {most}");
        known.wrong.borrow_mut().get_or_insert(why);
    }
    // What was found stays.
    known.promised.set(one);
    write(os, &journal, &pair).await;
    loop {
        for _ in 0..os.random().await % 3 {
            known.added.set(known.added.get() + 1);
            add(&journal, &pair, known.added.get());
        }
        if os.random().await.is_multiple_of(8) {
            journal.rewrite();
        }
        let [number, _] = pair.get();
        if journal.commit(os).await.is_ok() && durability == Durability::Always {
            known.promised.set(number);
        }
        if !os.random().await.is_multiple_of(4) {
            os.sleep(MS).await;
        }
    }
}

/// Runs lives that kills and losses of power end. Returns how many changes were promised.
fn lives(seed: u64, durability: Durability, eio: f64) -> Result<u32, String> {
    let mut random = Pcg64::seed_from_u64(seed);
    let (known, mut disk) = (Rc::new(Known::default()), disk());
    for life in 0..12 {
        let mut kernel = kernel(random.next_u64(), &disk.eio(eio));
        let theirs = Rc::clone(&known);
        let main = async move |os: &mut Os| live(os, durability, theirs).await;
        kernel.spawn("main", main).expect("there is room");
        for _ in 0..random.next_u64() % 120 {
            kernel.step().expect("it goes on");
        }
        drop(kernel);
        if let Some(why) = &*known.wrong.borrow() {
            return Err(format!("seed {seed}, life {life}: {why}"));
        }
        if random.next_u64().is_multiple_of(2) {
            disk = disk.eio(0.0).image(random.next_u64());
            if durability != Durability::Always {
                known.promised.set(0);
            }
        }
    }
    Ok(known.promised.get())
}

#[test]
fn crashes_lose_no_entry_that_was_committed() {
    for (eio, least) in [(0.0, 2000), (0.1, 200)] {
        let told = (0..100).map(|seed| lives(seed, Durability::Always, eio));
        let told: u32 = told
            .sum::<Result<_, _>>()
            .map_err(|why| format!("eio {eio}, {why}"))
            .unwrap();
        assert!(told > least, "{told}");
    }
}

/// The disk does not keep what a failed sync was for, though it can be read until the power fails.
#[test]
fn what_was_replayed_behind_a_failed_sync_is_durable() {
    let disk = disk();
    disk.latency(MS..=MS);
    let theirs = disk.clone();
    ran(&disk, async move |os: &mut Os| {
        let pair = Rc::default();
        let journal = open(os, Durability::Always, &pair).await?;
        write(os, &journal, &pair).await;
        add(&journal, &pair, 1);
        journal.commit(os).await?;
        add(&journal, &pair, 2);
        let fail = async move |os: &mut Os| {
            // The write is under way then.
            os.sleep(MS / 2).await;
            theirs.eio(1.0);
        };
        os.spawn("fail", fail).await.expect("there is room");
        journal.commit(os).await.expect_err("its sync fails");
        journal.close(os).await;
        Ok(())
    });
    let finds_both = async |os: &mut Os| {
        let pair = Rc::default();
        open(os, Durability::Always, &pair).await?;
        assert_eq!(pair.get(), [2; 2]);
        Ok(())
    };
    ran(&disk.eio(0.0), finds_both);
    for seed in 0..20 {
        ran(&disk.image(seed), finds_both);
    }
}

/// They may lose the last ones, but no half of a turn.
#[test]
fn without_a_sync_crashes_leave_whole_turns() {
    for durability in [Durability::Every(5 * MS), Durability::Never] {
        for seed in 0..50 {
            lives(seed, durability, 0.0).unwrap();
        }
    }
}

#[test]
fn close_writes_the_rest_and_syncs_it() {
    for durability in [Durability::Always, Durability::Every(MS), Durability::Never] {
        let disk = disk();
        ran(&disk, async move |os: &mut Os| {
            let pair = Rc::default();
            let journal = open(os, durability, &pair).await?;
            add(&journal, &pair, 7);
            assert_eq!(journal.waiting(), 10);
            journal.close(os).await;
            journal.work(os, || |_: &mut Vec<u8>| false).await?;
            assert_eq!((journal.waiting(), journal.error()), (0, None));
            Ok(())
        });
        for seed in 0..20 {
            let disk = disk.image(seed);
            ran(&disk, async move |os: &mut Os| {
                let pair = Rc::default();
                open(os, durability, &pair).await?;
                assert_eq!(pair.get(), [7; 2]);
                Ok(())
            });
        }
    }
}

#[test]
fn without_always_entries_are_synced_after_their_span_at_most() {
    let disk = disk();
    let theirs = disk.clone();
    ran(&disk, async move |os: &mut Os| {
        let pair = Rc::default();
        let journal = open(os, Durability::Every(1000 * MS), &pair).await?;
        write(os, &journal, &pair).await;
        add(&journal, &pair, 7);
        let begin = os.now().await;
        journal.commit(os).await?;
        // It has waited for nothing.
        assert_eq!(os.now().await, begin);
        // All but the mark of a journal.
        let lost = |seed| theirs.image(seed).files()["dir/journal"].len() <= 8;
        os.sleep(500 * MS).await;
        assert!((0..20).any(lost));
        os.sleep(600 * MS).await;
        assert!(!(0..20).any(lost));
        journal.close(os).await;
        Ok(())
    });
}

#[test]
fn a_full_disk_fails_commits_until_there_is_room() {
    let disk = disk();
    let theirs = disk.clone();
    ran(&disk, async move |os: &mut Os| {
        let pair = Rc::default();
        let journal = open(os, Durability::Always, &pair).await?;
        write(os, &journal, &pair).await;
        add(&journal, &pair, 1);
        journal.commit(os).await?;
        theirs.full(true);
        add(&journal, &pair, 2);
        let error = journal.commit(os).await.expect_err("there is no room");
        assert!(error.to_string().contains("No space"), "{error}");
        assert_eq!(journal.error(), Some(error.to_string()));
        theirs.full(false);
        os.sleep(100 * MS).await;
        add(&journal, &pair, 3);
        journal.commit(os).await?;
        assert_eq!(journal.error(), None);
        journal.close(os).await;
        drop(journal);
        let found = Rc::default();
        open(os, Durability::Always, &found).await?;
        assert_eq!(found.get(), [3; 2]);
        Ok(())
    });
}

/// A disk that stays full ends the writer all the same.
#[test]
fn a_close_ends_a_writer_that_cannot_write() {
    let disk = disk();
    let theirs = disk.clone();
    ran(&disk, async move |os: &mut Os| {
        let pair = Rc::default();
        let journal = open(os, Durability::Always, &pair).await?;
        add(&journal, &pair, 1);
        theirs.full(true);
        journal.close(os).await;
        journal.work(os, || |_: &mut Vec<u8>| false).await?;
        assert!(journal.error().is_some());
        Ok(())
    });
}

#[test]
fn a_file_that_has_grown_is_replaced() {
    let disk = disk();
    let theirs = disk.clone();
    ran(&disk, async move |os: &mut Os| {
        let pair = Rc::default();
        let journal = open(os, Durability::Never, &pair).await?;
        write(os, &journal, &pair).await;
        let mut longest = 0;
        for number in 1..=50 {
            for _ in 0..10_000 {
                add(&journal, &pair, number);
            }
            journal.commit(os).await?;
            os.sleep(100 * MS).await;
            longest = longest.max(theirs.files()["dir/journal"].len());
        }
        assert!((1 << 20..2 << 20).contains(&longest), "{longest}");
        journal.close(os).await;
        drop(journal);
        let found = Rc::default();
        open(os, Durability::Never, &found).await?;
        assert_eq!(found.get(), [50; 2]);
        Ok(())
    });
}

#[test]
fn commit_waits_while_much_waits_to_be_written() {
    let disk = disk();
    disk.bandwidth(1 << 20);
    ran(&disk, async move |os: &mut Os| {
        let journal = Journal::open(os, "dir/journal", Durability::Never, |_| Ok(())).await?;
        let ours = journal.clone();
        let writer = async move |os: &mut Os| ours.work(os, || |_: &mut Vec<u8>| false).await;
        os.spawn("writer", writer).await.expect("there is room");
        let begin = os.now().await;
        journal.add(|out| out.resize(16 << 20, 1));
        journal.commit(os).await?;
        assert_eq!(os.now().await, begin);
        journal.add(|out| out.push(1));
        journal.commit(os).await?;
        assert!(os.now().await - begin > Duration::from_secs(15));
        journal.close(os).await;
        Ok(())
    });
}

#[test]
fn two_tasks_cannot_write_at_once() {
    ran(&disk(), async |os: &mut Os| {
        let pair = Rc::default();
        let journal = open(os, Durability::Always, &pair).await?;
        write(os, &journal, &pair).await;
        os.sleep(MS).await;
        let second = journal.work(os, || |_: &mut Vec<u8>| false).await;
        let error = second.expect_err("there is one");
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        add(&journal, &pair, 1);
        journal.commit(os).await?;
        journal.close(os).await;
        Ok(())
    });
}

/// Also while its file is replaced, and while its writer has failed.
#[test]
fn a_journal_is_open_once() {
    let disk = disk();
    let of_main = disk.clone();
    ran(&disk, async move |os: &mut Os| {
        let pair = Rc::default();
        let journal = open(os, Durability::Always, &pair).await?;
        let is_refused = async |os: &mut Os| {
            let second = open(os, Durability::Always, &Rc::default()).await;
            let error = second.expect_err("it is open");
            assert_eq!(error.kind(), ErrorKind::ResourceBusy);
            let why = "another process or task has the journal dir/journal open: end that one, or name \
                       another file";
            assert_eq!(error.to_string(), why);
        };
        is_refused(os).await;
        write(os, &journal, &pair).await;
        for number in 1..=3 {
            add(&journal, &pair, number);
            journal.rewrite();
            journal.commit(os).await?;
            is_refused(os).await;
        }
        of_main.eio(1.0);
        add(&journal, &pair, 4);
        journal.commit(os).await.expect_err("the disk fails");
        of_main.eio(0.0);
        is_refused(os).await;
        journal.commit(os).await?;
        journal.close(os).await;
        os.sleep(MS * 10).await;
        is_refused(os).await;
        drop(journal);
        let found = Rc::default();
        open(os, Durability::Always, &found).await?;
        assert_eq!(found.get(), [4; 2]);
        Ok(())
    });
}

/// Its writer is killed, or its disk fails, at any instant while the file is replaced.
#[test]
fn a_journal_whose_writer_was_stopped_is_open_once() {
    for (quarter, kills) in (40..100).flat_map(|quarter| [(quarter, true), (quarter, false)]) {
        let disk = disk();
        let theirs = disk.clone();
        ran(&disk.latency(MS..=MS), async move |os: &mut Os| {
            let pair = Rc::default();
            let journal = open(os, Durability::Never, &pair).await?;
            let ours = journal.clone();
            let writer = async move |os: &mut Os| {
                let _ = ours.work(os, || |_: &mut Vec<u8>| false).await;
            };
            let writer = os.spawn("writer", writer).await?;
            add(&journal, &pair, 1);
            journal.rewrite();
            // It begins 10 milliseconds later.
            journal.commit(os).await?;
            let stop = async move |os: &mut Os| {
                os.sleep(MS / 4 * quarter).await;
                if kills {
                    os.kill(writer).await;
                } else {
                    theirs.eio(1.0);
                    os.sleep(MS * 2).await;
                    theirs.eio(0.0);
                }
            };
            os.spawn("stop", stop).await?;
            os.sleep(MS * 50).await;
            let second = open(os, Durability::Always, &Rc::default()).await;
            let error = second.expect_err("it is open");
            let what = (quarter, kills);
            assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{what:?}: {error}");
            drop(journal);
            os.kill(writer).await;
            open(os, Durability::Always, &Rc::default()).await.map(drop)
        });
    }
}

/// A server that is started again finds the file of the one before it, which is about to end.
#[test]
fn an_open_waits_a_second_for_the_end_of_the_one_before() {
    for (life, opens) in [(900, true), (1100, false)] {
        ran(&disk(), async move |os: &mut Os| {
            let journal = open(os, Durability::Always, &Rc::default()).await?;
            let end = async move |os: &mut Os| {
                os.sleep(MS * life).await;
                drop(journal);
            };
            os.spawn("end", end).await?;
            let second = open(os, Durability::Always, &Rc::default()).await;
            assert_eq!(second.is_ok(), opens, "{second:?}");
            Ok(())
        });
    }
}
