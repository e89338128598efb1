//! S84, S90, S91 and S94: the order and the time of operations, crashes while one is under way, and
//! runs that begin anew.

use std::{cell::Cell, io::ErrorKind, rc::Rc};

use trapline::{Errno, SimNet};

use super::*;

const MS: Duration = Duration::from_millis(1);

// ---- time and order

#[test]
fn an_operation_takes_its_latency_and_its_bytes_their_time() {
    let disk = SimDisk::new().latency(MS..=MS).bandwidth(1000);
    let mut kernel = kernel(1, &disk);
    kernel
        .spawn("program", async |os: &mut Os| {
            let file = os.disk().open(os, "f", Mode::Write).await?;
            assert_eq!(os.now().await, MS);
            file.append(os, &[1; 500]).await?;
            assert_eq!(os.now().await, 502 * MS);
            file.sync(os).await?;
            assert_eq!(os.now().await, 503 * MS);
            // There are fewer bytes than asked for.
            file.read_at(os, &mut [0; 1000], 400).await?;
            assert_eq!(os.now().await, 604 * MS);
            io::Result::Ok(())
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn files_share_the_bandwidth_and_not_the_latency() {
    let disk = SimDisk::new().latency(10 * MS..=10 * MS).bandwidth(1000);
    let mut kernel = kernel(1, &disk);
    for name in ["a", "b"] {
        kernel
            .spawn(name, async move |os: &mut Os| {
                let file = os.disk().open(os, name, Mode::Append).await?;
                file.append(os, &[1; 100]).await?;
                let now = os.now().await;
                writeln!(os, "{name} {}", now.as_millis());
                io::Result::Ok(())
            })
            .unwrap();
    }
    kernel.run().unwrap().check().unwrap();
    assert_eq!(kernel.take_console(), "a 120\nb 220\n");
}

#[test]
fn s87_a_loop_of_operations_without_latency_advances_the_clock() {
    let disk = SimDisk::new().latency(Duration::ZERO..=Duration::ZERO);
    let mut kernel = kernel(1, &disk);
    kernel
        .spawn("program", async |os: &mut Os| {
            while os.now().await < Duration::from_micros(1) {
                os.disk().list(os, ".").await.unwrap();
            }
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn s90_operations_on_one_file_stay_in_the_order_of_their_calls() {
    for seed in 0..50 {
        let disk = SimDisk::new().latency(MS..=100 * MS);
        let mut kernel = kernel(seed, &disk);
        disk.put("f", "").unwrap();
        for at in 0..5u8 {
            kernel
                .spawn("writer", async move |os: &mut Os| {
                    let file = os.disk().open(os, "f", Mode::Append).await?;
                    os.sleep_until(Duration::from_secs(1) + u32::from(at) * MS)
                        .await;
                    file.append(os, &[b'a' + at]).await?;
                    write!(os, "{at}");
                    io::Result::Ok(())
                })
                .unwrap();
        }
        kernel.run().unwrap().check().unwrap();
        assert_eq!(kernel.take_console(), "01234");
        assert_eq!(disk.files()["f"], b"abcde");
    }
}

/// Crashes the host of a program at a time; what the crash may leave of `f` then.
fn at_crash(
    at: Duration,
    program: impl AsyncFnOnce(&mut Os, SimNet) -> io::Result<()> + 'static,
) -> BTreeSet<Option<String>> {
    let disk = SimDisk::new().latency(10 * MS..=10 * MS);
    disk.put("f", "a").unwrap();
    let world = SimWorld::new(1).disk("server", &disk);
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    let net = kernel.net();
    let own = net.clone();
    kernel
        .spawn_on("server", "program", async move |os: &mut Os| {
            program(os, own).await
        })
        .unwrap();
    let images = Rc::new(Cell::default());
    let (noted, own) = (Rc::clone(&images), disk.clone());
    kernel
        .spawn("test", async move |os: &mut Os| {
            os.sleep_until(at).await;
            noted.set(left_of(&own, "f"));
            net.crash("server").unwrap();
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    let images = images.take();
    let found = disk
        .files()
        .get("f")
        .map(|bytes| String::from_utf8_lossy(bytes).replace('\0', "_"));
    assert!(images.contains(&found), "{found:?}");
    images
}

#[test]
fn s90_a_sync_that_is_under_way_at_a_crash_makes_nothing_durable() {
    for (at, expected) in [(35, vec!["a", "ab"]), (41, vec!["ab"])] {
        // Open, append and sync take 10 ms each, and begin at 5 ms.
        let left = at_crash(at * MS, async |os: &mut Os, _| {
            os.sleep(9 * MS).await;
            let file = os.disk().open(os, "f", Mode::Append).await?;
            file.append(os, b"b").await?;
            file.sync(os).await
        });
        let expected = expected.into_iter().map(|text| Some(text.into()));
        assert_eq!(left, expected.collect(), "{at}");
    }
}

#[test]
fn s90_a_sync_covers_the_writes_before_its_call_and_not_those_after_it() {
    let left = at_crash(Duration::from_secs(1), async |os: &mut Os, _| {
        let file = os.disk().open(os, "f", Mode::Append).await?;
        let other = os.disk().open(os, "f", Mode::Append).await?;
        let writer = os
            .spawn("writer", async move |os: &mut Os| {
                file.append(os, b"b").await?;
                os.sleep(5 * MS).await;
                file.append(os, b"c").await
            })
            .await;
        // The sync begins while the first append is under way, and ends after the second began.
        os.sleep(5 * MS).await;
        other.sync(os).await?;
        let _ = writer;
        Ok(())
    });
    assert_eq!(left, some(["ab", "abc"]));
}

#[test]
fn s91_a_second_call_on_a_handle_is_answered_busy() {
    let disk = SimDisk::new();
    let mut kernel = kernel(1, &disk);
    kernel
        .spawn("program", async |os: &mut Os| {
            let file = os.disk().open(os, "f", Mode::Append).await?;
            let own = file.clone();
            os.spawn("writer", async move |os: &mut Os| {
                own.append(os, b"a").await
            })
            .await
            .unwrap();
            os.yield_now().await;
            let busy = file.append(os, b"b").await.unwrap_err();
            assert_eq!(busy.kind(), io::Error::from(Errno::Busy).kind(), "{busy}");
            os.sleep(MS).await;
            file.append(os, b"c").await
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(disk.files()["f"], b"ac");
}

#[test]
fn s91_the_operation_of_a_killed_task_goes_on_and_a_later_one_comes_after_it() {
    let disk = SimDisk::new().latency(10 * MS..=10 * MS);
    disk.put("f", "").unwrap();
    let own = disk.clone();
    let mut kernel = kernel(1, &disk);
    kernel
        .spawn("program", async move |os: &mut Os| {
            let file = os.disk().open(os, "f", Mode::Append).await?;
            file.append(os, b"a").await?;
            let theirs = file.clone();
            let syncs = os.spawn("syncs", async move |os: &mut Os| theirs.sync(os).await);
            let syncs = syncs.await.unwrap();
            os.sleep(5 * MS).await;
            assert!(os.kill(syncs).await);
            assert_eq!(left_of(&own, "f"), some(["", "a"]));
            let begin = os.now().await;
            assert_eq!(file.len(os).await?, 1);
            // It waited for the sync: 5 ms of that were left, and the file's next began at once.
            assert_eq!(os.now().await - begin, 10 * MS);
            assert_eq!(left_of(&own, "f"), some(["a"]));
            io::Result::Ok(())
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn s91_a_cut_call_leaves_a_result_that_the_next_call_does_not_get() {
    let disk = SimDisk::new().latency(10 * MS..=10 * MS);
    disk.put("f", "abc").unwrap();
    let mut kernel = kernel(1, &disk);
    kernel
        .spawn("program", async |os: &mut Os| {
            let file = os.disk().open(os, "f", Mode::Write).await?;
            let mut buf = [0; 8];
            let cut = os
                .timeout(5 * MS, async |os: &mut Os| {
                    file.read_at(os, &mut [0; 8], 0).await
                })
                .await;
            assert!(cut.is_err());
            assert_eq!(file.read_at(os, &mut buf, 1).await?, 2);
            assert_eq!(&buf[..2], b"bc");
            let opened = os
                .timeout(5 * MS, async |os: &mut Os| {
                    os.disk().open(os, "g", Mode::Write).await.map(drop)
                })
                .await;
            assert!(opened.is_err());
            io::Result::Ok(())
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    // The file was created, or not: here it is.
    assert!(disk.files().contains_key("g"));
}

// ---- crashes

#[test]
fn s84_what_destructors_do_in_a_crash_does_not_reach_the_disk() {
    for seed in 0..20 {
        let mut kernel = Kernel::simulated(seed);
        let net = kernel.net();
        let disk = net.disk("server").unwrap();
        kernel
            .spawn_on("server", "program", async move |os: &mut Os| {
                let file = os.disk().open(os, "f", Mode::Append).await?;
                file.append(os, b"a").await?;
                net.crash("server")?;
                let _ = file.append(os, b"b").await;
                let _ = os.disk().remove(os, "f").await;
                io::Result::Ok(())
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
        let files = disk.files();
        let left = files.get("f").map(Vec::as_slice);
        assert!(
            [None, Some(&b""[..]), Some(b"a")].contains(&left),
            "{left:?}"
        );
        let down = kernel.spawn_on("server", "late", async |_: &mut Os| {});
        assert_eq!(down, Err(Errno::HostDown));
    }
}

#[test]
fn a_crash_of_one_host_leaves_the_disks_of_others() {
    let mut kernel = Kernel::simulated(1);
    let net = kernel.net();
    for host in ["a", "b"] {
        kernel
            .spawn_on(host, "program", async |os: &mut Os| {
                let file = os.disk().open(os, "f", Mode::Append).await?;
                for _ in 0..20 {
                    file.append(os, b"x").await?;
                    os.sleep(MS).await;
                }
                io::Result::Ok(())
            })
            .unwrap();
    }
    let own = net.clone();
    let crash = async move |os: &mut Os| {
        os.sleep(10 * MS).await;
        own.crash("a")
    };
    kernel.spawn("crash", crash).unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(net.disk("b").unwrap().files()["f"].len(), 20);
    assert_eq!(net.disk("a").unwrap().images().count(), 1);
}

#[test]
fn s92_a_file_whose_removal_is_undone_has_an_image_of_its_own() {
    let disk = ran(async |os: &mut Os| {
        let disk = os.disk();
        let old = disk.open(os, "f", Mode::Append).await?;
        old.append(os, b"o").await?;
        old.sync(os).await?;
        disk.sync_dir(os, ".").await?;
        old.append(os, b"p").await?;
        disk.remove(os, "f").await?;
        drop(old);
        let new = disk.open(os, "f", Mode::Append).await?;
        new.append(os, b"n").await
    });
    let mut expected = some(["o", "op", "", "n"]);
    expected.insert(None);
    assert_eq!(left_of(&disk, "f"), expected);
}

#[test]
fn s92_a_rename_leaves_one_name_across_directories_and_takes_the_new_directory_along() {
    let disk = ran(async |os: &mut Os| {
        let disk = os.disk();
        disk.create_dir(os, "new").await?;
        let file = disk.open(os, "f", Mode::Append).await?;
        disk.sync_dir(os, ".").await?;
        disk.create_dir(os, "new/deep").await?;
        disk.rename(os, "f", "new/deep/g").await?;
        drop(file);
        io::Result::Ok(())
    });
    let names = left(&disk)
        .into_iter()
        .map(|files| files.into_keys().collect());
    let names: Vec<Vec<String>> = names.collect();
    assert_eq!(names, [["f"], ["new/deep/g"]]);
    // Without the file: with and without the directory.
    assert_eq!(disk.images().count(), 3);
}

#[test]
fn directories_that_move_into_each_other_never_form_a_ring() {
    let disk = SimDisk::new();
    for name in ["p/x/in_x", "q/y/in_y"] {
        disk.put(name, "").unwrap();
    }
    let mut kernel = kernel(1, &disk);
    kernel
        .spawn("program", async |os: &mut Os| {
            let disk = os.disk();
            disk.rename(os, "p/x", "q/y/x").await?;
            let ring = disk.rename(os, "q/y", "q/y/x/y").await.unwrap_err();
            assert_eq!(ring.kind(), ErrorKind::InvalidInput);
            disk.rename(os, "q/y/x", "p/x").await?;
            disk.rename(os, "q/y", "p/x/y").await
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(disk.images().count(), 3);
    for image in disk.images() {
        assert_eq!(image.files().len(), 2);
    }
}

// ---- worlds

#[test]
fn a_disk_goes_from_world_to_world_with_what_was_not_synced() {
    let disk = SimDisk::new();
    for (run, expected) in [(0, 2), (1, 3)] {
        let mut kernel = kernel(run, &disk);
        kernel
            .spawn("program", async move |os: &mut Os| {
                let file = os.disk().open(os, "f", Mode::Append).await?;
                assert_eq!(file.len(os).await?, run);
                os.disk().sync_dir(os, ".").await?;
                file.append(os, b"x").await
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
        // Two appends of the same byte: with a gap, one or both.
        let images = disk.images().count();
        assert!(images >= expected, "{images}");
    }
}

#[test]
fn a_world_that_has_lost_its_disk_to_another_fails_its_operations() {
    let disk = SimDisk::new();
    let mut first = kernel(1, &disk);
    let task = first
        .spawn("program", async |os: &mut Os| {
            let file = os.disk().open(os, "f", Mode::Append).await?;
            os.sleep(Duration::from_secs(1)).await;
            file.append(os, b"x").await
        })
        .unwrap();
    let soon = first.spawn("soon", async |os: &mut Os| os.sleep(10 * MS).await);
    first.run_until(&[soon.unwrap()]).unwrap();
    let mut second = kernel(1, &disk);
    second.run().unwrap();
    let report = first.run_until(&[task]).unwrap();
    let error = report.check().unwrap_err().to_string();
    assert!(
        error.contains("another world has taken the disk"),
        "{error}"
    );
}

#[test]
fn an_operation_that_is_under_way_when_another_world_takes_the_disk_fails() {
    for steps in 1..=4 {
        let disk = SimDisk::new();
        let mut first = kernel(1, &disk);
        let program = async |os: &mut Os| {
            let file = os.disk().open(os, "f", Mode::Append).await?;
            file.append(os, b"x").await?;
            file.sync(os).await?;
            file.append(os, b"y").await
        };
        first.spawn("program", program).unwrap();
        for _ in 0..steps {
            first.step().unwrap();
        }
        let mut second = kernel(1, &disk);
        second.run().unwrap();
        let error = first.run().unwrap().check().unwrap_err().to_string();
        assert!(
            error.contains("another world has taken the disk"),
            "{error}"
        );
    }
}

#[test]
fn a_reset_makes_a_disk_as_it_was_after_a_crash_alone() {
    let disk = ran(async |os: &mut Os| {
        let file = os.disk().open(os, "f", Mode::Append).await?;
        for _ in 0..20 {
            file.append(os, b"x").await?;
        }
        Ok(())
    });
    let mut kernel = kernel(0, &disk);
    for seed in 0..10 {
        kernel.reset(seed).unwrap();
        assert_eq!(disk.files()["f"].len(), 20);
        kernel.net().crash("localhost").unwrap();
    }
}

#[test]
fn a_reset_makes_the_disks_as_they_were() {
    let disk = SimDisk::new().capacity(100);
    disk.put("f", "a").unwrap();
    let world = SimWorld::new(0).disk("server", &disk);
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    for seed in 0..4 {
        kernel.reset(seed).unwrap();
        assert_eq!(disk.files().len(), 1);
        assert_eq!(kernel.net().disk("other").unwrap().files().len(), 0);
        for host in ["server", "other"] {
            kernel
                .spawn_on(host, "program", async |os: &mut Os| {
                    let file = os.disk().open(os, "f", Mode::Append).await?;
                    os.disk().open(os, "g", Mode::Append).await?;
                    file.append(os, b"b").await?;
                    let len = file.len(os).await?;
                    let now = os.now().await;
                    writeln!(os, "{len} {now:?}");
                    io::Result::Ok(())
                })
                .unwrap();
        }
        disk.capacity(50);
        kernel.net().crash("server").unwrap();
        kernel.net().restart("server").unwrap();
        kernel.run().unwrap().check().unwrap();
        assert_eq!(kernel.take_console(), "1 400µs\n");
    }
}

#[test]
fn s86_the_same_seed_leaves_the_same_disk() {
    let run = |seed| {
        let disk = SimDisk::new().latency(MS..=9 * MS).eio(0.1);
        let world = SimWorld::new(seed).disk("server", &disk);
        let mut kernel = Kernel::builder().world(world).build().unwrap();
        kernel
            .spawn_on("server", "program", async |os: &mut Os| {
                for at in 0..10u8 {
                    let name = format!("{}", at % 3);
                    let Ok(file) = os.disk().open(os, &name, Mode::Append).await else {
                        continue;
                    };
                    let _ = file.append(os, &[at; 10]).await;
                    let _ = file.sync(os).await;
                    let _ = os.disk().sync_dir(os, ".").await;
                    let _ = file.append(os, &[at; 10]).await;
                }
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
        kernel.net().crash("server").unwrap();
        disk.files()
    };
    let all: BTreeSet<Files> = (0..20).map(run).collect();
    assert!(all.len() > 10);
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn a_search_finds_each_schedule_with_the_disk_of_its_begin() {
    trapline::check(|kernel| {
        let disk = kernel.net().disk("localhost")?;
        assert_eq!(disk.files().len(), 0);
        disk.put("f", "")?;
        for byte in [b"a", b"b"] {
            kernel.spawn("writer", async move |os: &mut Os| {
                let file = os.disk().open(os, "f", Mode::Append).await?;
                file.append(os, byte).await?;
                file.sync(os).await
            })?;
        }
        kernel.run()?.check()?;
        let text = disk.files()["f"].clone();
        assert!([b"ab", b"ba"].contains(&&[text[0], text[1]]), "{text:?}");
        assert_eq!(disk.images().count(), 1);
        Ok(())
    })
    .exhaustive()
    .run();
}

#[test]
fn s94_no_name_leads_out_of_the_root() {
    let disk = SimDisk::new();
    for name in ["../f", "/f", "a/../../f", "", "."] {
        let error = disk.put(name, "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}");
    }
    disk.put("./a//b", "").unwrap();
    assert_eq!(
        disk.put("a", "").unwrap_err().kind(),
        ErrorKind::IsADirectory
    );
    assert_eq!(
        disk.put("a/b/c", "").unwrap_err().kind(),
        ErrorKind::NotADirectory
    );
    assert_eq!(disk.files().into_keys().collect::<Vec<_>>(), ["a/b"]);
}
