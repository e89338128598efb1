//! S91: tasks that are killed or cut in a call on the disk.

use std::rc::Rc;

use super::*;

/// Numbers that were appended whole, in order.
fn records(bytes: &[u8]) -> Vec<u32> {
    assert_eq!(
        bytes.len() % 1000,
        0,
        "each was appended whole, or not at all"
    );
    let first = |record: &[u8]| u32::from_le_bytes(record[..4].try_into().unwrap());
    bytes.chunks(1000).map(first).collect()
}

fn record(number: u32) -> Vec<u8> {
    let mut record = number.to_le_bytes().to_vec();
    record.resize(1000, 0xee);
    record
}

#[test]
fn s91_a_call_that_is_cut_leaves_its_file_usable_and_a_later_one_comes_after_it() {
    let dir = Dir::new("cut");
    dir.run(async |os: &mut Os| {
        let file = open(os, "wal", Mode::Append).await;
        let mut answered = Vec::new();
        for number in 0..1000 {
            let span = Duration::from_micros(u64::from(number % 40) * 5);
            let append = os.timeout(span, async |os| file.append(os, &record(number)).await);
            match append.await {
                Ok(done) => {
                    done?;
                    answered.push(number);
                }
                Err(_) if number % 7 == 0 => file.sync(os).await?,
                Err(_) => {}
            }
        }
        let there = records(&whole(os, &file).await?);
        assert!(there.is_sorted(), "in the order of the calls");
        let missing = answered.iter().find(|number| !there.contains(number));
        assert_eq!(missing, None, "what was answered is there");
        assert!(
            !answered.is_empty() && answered.len() < 1000,
            "{}",
            answered.len()
        );
        io::Result::Ok(())
    });
}

#[test]
fn s91_a_task_that_is_killed_in_a_call_leaves_its_file_usable() {
    let dir = Dir::new("killed");
    dir.run(async |os: &mut Os| {
        let file = Rc::new(open(os, "wal", Mode::Append).await);
        for number in 0..300 {
            let append = {
                let file = Rc::clone(&file);
                async move |os: &mut Os| {
                    file.append(os, &record(number)).await?;
                    file.sync(os).await
                }
            };
            let writer = os.spawn("writer", append).await.unwrap();
            passes(os, (number % 10) as usize).await;
            os.kill(writer).await;
            // The next call is not busy.
            file.len(os).await?;
        }
        assert!(records(&whole(os, &file).await?).is_sorted());
        io::Result::Ok(())
    });
}

/// Operations on names that are cut leave no device and no descriptor behind.
#[test]
#[cfg(target_os = "linux")]
fn s91_names_whose_task_is_cut_leave_nothing_open() {
    let dir = Dir::new("names-cut");
    dir.write("file", "x");
    let path = dir.0.clone();
    dir.run(async move |os: &mut Os| {
        for number in 0..1000_u64 {
            let span = Duration::from_micros(number % 40 * 5);
            let _ = os
                .timeout(span, async |os| {
                    let disk = os.disk();
                    let file = disk.open(os, "file", Mode::Read).await?;
                    disk.list(os, ".").await?;
                    disk.rename(os, "file", "other").await?;
                    disk.rename(os, "other", "file").await?;
                    file.len(os).await
                })
                .await;
            if number % 8 == 0 {
                // Whichever name it has.
                let _ = os.disk().rename(os, "other", "file").await;
            }
        }
        let _ = os.disk().rename(os, "other", "file").await;
        assert_eq!(os.disk().list(os, ".").await?, ["file"]);
        let here = Dir(path);
        assert_eq!(here.descriptors(), 1, "of the root");
        std::mem::forget(here);
        io::Result::Ok(())
    });
}

/// A kernel that is dropped leaves nothing that changes a file later. The append takes 10 ms, and is
/// under way when the run ends.
#[test]
fn s91_what_a_run_has_begun_ends_with_its_kernel() {
    const LEN: usize = 32 << 20;
    let dir = Dir::new("dropped");
    for _ in 0..3 {
        dir.write("wal", "");
        let path = dir.0.join("wal");
        let mut kernel = dir.kernel().build().unwrap();
        let program = async move |os: &mut Os| {
            let file = open(os, "wal", Mode::Append).await;
            let append = async move |os: &mut Os| file.append(os, &vec![b'x'; LEN]).await;
            os.spawn("writer", append).await.unwrap();
            while fs::metadata(&path).unwrap().len() == 0 {
                os.yield_now().await;
            }
            os.shutdown().await;
        };
        kernel.spawn("main", program).unwrap();
        kernel.run().unwrap();
        drop(kernel);
        assert_eq!(dir.read("wal").len(), LEN, "all, and not a part");
    }
}

#[test]
fn a_close_during_a_call_wakes_its_task() {
    let dir = Dir::new("close");
    dir.run(async |os: &mut Os| {
        let file = open(os, "wal", Mode::Append).await;
        let id = file.id();
        let append = async move |os: &mut Os| {
            let error = file.append(os, b"x").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotConnected, "it was closed");
        };
        let writer = os.spawn("writer", append).await.unwrap();
        os.yield_now().await;
        assert_eq!(raw(os, SystemCall::Close(id)).await, "Done");
        assert_eq!(os.wait(writer).await, Ok(Exit::Done));
        // After the append, if that was under way.
        let file = open(os, "wal", Mode::Append).await;
        assert!(file.len(os).await? <= 1);
        io::Result::Ok(())
    });
}

#[test]
fn many_tasks_have_their_files_at_once() {
    let dir = Dir::new("many");
    dir.run(async |os: &mut Os| {
        let mut tasks = Vec::new();
        for number in 0..200_u32 {
            let work = async move |os: &mut Os| {
                let name = format!("file-{number:03}");
                let file = os.disk().open(os, &name, Mode::Write).await?;
                for _ in 0..5 {
                    file.append(os, &record(number)).await?;
                }
                assert_eq!(records(&whole(os, &file).await?), [number; 5]);
                os.disk().remove(os, &name).await
            };
            tasks.push(os.spawn("worker", work).await.unwrap());
        }
        for task in tasks {
            assert_eq!(os.wait(task).await, Ok(Exit::Done));
        }
        assert_eq!(os.disk().list(os, ".").await.unwrap(), [""; 0]);
    });
}

// ---- in the simulated world, where each schedule and each instant can be tried

/// A task appends and is killed; another one appends by another handle meanwhile.
async fn killed_at_any_step(os: &mut Os) -> io::Result<()> {
    let (file, other) = (
        open(os, "wal", Mode::Append).await,
        open(os, "wal", Mode::Append).await,
    );
    let first = file.clone();
    let victim = async move |os: &mut Os| {
        first.append(os, b"a").await?;
        first.sync(os).await?;
        os.disk().rename(os, "wal", "old").await
    };
    let victim = os.spawn("victim", victim).await.unwrap();
    let beside = async move |os: &mut Os| other.append(os, b"b").await;
    let beside = os.spawn("beside", beside).await.unwrap();
    os.kill(victim).await;
    // Not busy, and after what the victim has begun.
    file.append(os, b"c").await?;
    assert_eq!(os.wait(beside).await, Ok(Exit::Done));
    let text = whole(os, &file).await?;
    let place = |letter: u8| text.iter().position(|other| *other == letter);
    assert!(place(b'c').is_some() && place(b'b').is_some(), "{text:?}");
    assert!(
        place(b'a').is_none_or(|a| Some(a) < place(b'c')),
        "{text:?}"
    );
    let names = os.disk().list(os, ".").await?;
    assert!(names == ["wal"] || names == ["old"], "{names:?}");
    Ok(())
}

#[test]
fn s91_every_schedule_of_a_kill_leaves_the_file_usable() {
    let found = trapline::check(|kernel: &mut Kernel| {
        kernel.spawn("main", killed_at_any_step)?;
        kernel.run()?.check()
    });
    found.exhaustive().run();
}

/// A search knows that the close of a file does not commute with an open of it.
#[test]
fn a_search_finds_an_exclusive_open_before_and_behind_a_close() {
    for opens in [true, false] {
        let explored = trapline::check(move |kernel: &mut Kernel| {
            kernel.spawn("first", async |os: &mut Os| {
                let file = os.disk().open(os, "f", Mode::Exclusive).await?;
                os.sleep_until(Duration::from_millis(1)).await;
                drop(file);
                io::Result::Ok(())
            })?;
            kernel.spawn("second", async move |os: &mut Os| {
                os.sleep_until(Duration::from_millis(1)).await;
                let second = os.disk().open(os, "f", Mode::Exclusive).await;
                assert_eq!(second.is_ok(), opens, "{second:?}");
            })?;
            kernel.run()?.check()
        });
        assert!(explored.exhaustive().explore().failure.is_some(), "{opens}");
    }
}

#[test]
fn s91_a_timeout_at_any_instant_leaves_the_disk_usable() {
    let mut cut = 0;
    for micros in (0..3000).step_by(10) {
        let mut kernel = sim().build().unwrap();
        let is_cut = Rc::new(RefCell::new(false));
        let tell = Rc::clone(&is_cut);
        run_main(&mut kernel, async move |os: &mut Os| {
            let work = async |os: &mut Os| {
                let disk = os.disk();
                disk.create_dir(os, "dir").await?;
                let file = disk.open(os, "dir/wal", Mode::Append).await?;
                file.append(os, b"one").await?;
                file.sync(os).await?;
                disk.rename(os, "dir/wal", "wal").await?;
                disk.sync_dir(os, ".").await?;
                disk.list(os, ".").await
            };
            let ended = os.timeout(Duration::from_micros(micros), work).await;
            *tell.borrow_mut() = ended.is_err();
            let (wal, after) = (open(os, "wal", Mode::Write).await, b"after");
            wal.write_at(os, after, 3).await?;
            let text = whole(os, &wal).await?;
            assert!(text == b"\0\0\0after" || text == b"oneafter", "{text:?}");
            let names = os.disk().list(os, ".").await?;
            assert!(names == ["dir", "wal"] || names == ["wal"], "{names:?}");
            io::Result::Ok(())
        });
        cut += usize::from(is_cut.take());
    }
    assert!((1..300).contains(&cut), "{cut} were cut");
}
