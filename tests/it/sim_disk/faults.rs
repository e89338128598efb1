//! S93, and errors on demand: a full disk, `disk:eio`, `disk:rot`, and the same as faults of a run.

use std::io::ErrorKind;

use trapline::Fault;

use super::*;
use crate::support::logged;

#[test]
fn s93_a_full_disk_fails_appends_whole_and_writes_in_part() {
    let disk = SimDisk::new().capacity(10);
    let mut kernel = kernel(1, &disk);
    kernel
        .spawn("writer", async |os: &mut Os| {
            let file = os.disk().open(os, "f", Mode::Write).await?;
            let other = os.disk().open(os, "other", Mode::Append).await?;
            file.append(os, b"1234").await?;
            other.append(os, b"abc").await?;
            let full = file.append(os, b"5678").await.unwrap_err();
            assert_eq!(full.kind(), ErrorKind::StorageFull);
            assert!(full.to_string().contains("append to f"), "{full}");
            assert_eq!(file.len(os).await?, 4);
            let full = file.truncate(os, 8).await.unwrap_err();
            assert_eq!(full.kind(), ErrorKind::StorageFull);
            assert_eq!(file.len(os).await?, 4);
            // A gap counts; what fits is written.
            let full = file.write_at(os, b"56789", 5).await.unwrap_err();
            assert_eq!(full.kind(), ErrorKind::StorageFull);
            assert_eq!(file.len(os).await?, 7);
            file.write_at(os, b"ABCD", 0).await?;
            let far = file.write_at(os, b"x", 1 << 62).await.unwrap_err();
            assert_eq!(far.kind(), ErrorKind::StorageFull);
            let far = file.truncate(os, 1 << 62).await.unwrap_err();
            assert_eq!(far.kind(), ErrorKind::StorageFull);
            let mut buf = [0; 16];
            assert_eq!(file.read_at(os, &mut buf, 0).await?, 7);
            assert_eq!(&buf[..7], b"ABCD\x0056");
            assert_eq!(file.read_at(os, &mut buf, 1 << 62).await?, 0);
            file.sync(os).await?;
            // An open file keeps its space.
            os.disk().remove(os, "other").await?;
            file.append(os, b"8").await.unwrap_err();
            drop(other);
            file.append(os, b"89").await?;
            os.disk().remove(os, "f").await?;
            drop(file);
            let again = os.disk().open(os, "f", Mode::Append).await?;
            again.append(os, b"0123456789").await
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(
        disk.files(),
        Files::from([("f".into(), b"0123456789".to_vec())])
    );
}

#[test]
fn s93_the_prefix_of_a_write_on_a_full_disk_is_written_as_any_write() {
    let disk = SimDisk::new().capacity(3);
    let mut kernel = kernel(1, &disk);
    kernel
        .spawn("writer", async |os: &mut Os| {
            let file = os.disk().open(os, "f", Mode::Write).await?;
            os.disk().sync_dir(os, ".").await?;
            file.write_at(os, b"abcd", 0).await.unwrap_err();
            io::Result::Ok(())
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(left_of(&disk, "f"), some(["", "a", "ab", "abc"]));
}

#[test]
fn s92_a_failed_sync_makes_nothing_durable_until_it_is_written_again() {
    for (again, expected) in [(false, vec!["ab", "Ab", "AB"]), (true, vec!["AB"])] {
        let disk = SimDisk::new();
        let own = disk.clone();
        let mut kernel = kernel(1, &disk);
        kernel
            .spawn("writer", async move |os: &mut Os| {
                let file = os.disk().open(os, "f", Mode::Write).await?;
                os.disk().sync_dir(os, ".").await?;
                file.append(os, b"ab").await?;
                file.sync(os).await?;
                file.write_at(os, b"AB", 0).await?;
                own.eio(1.0);
                let error = file.sync(os).await.unwrap_err();
                assert!(
                    error.to_string().contains("cannot sync f on the disk"),
                    "{error}"
                );
                own.eio(0.0);
                if again {
                    file.write_at(os, b"AB", 0).await?;
                }
                file.sync(os).await
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
        let expected = expected.into_iter().map(|text| Some(text.into()));
        assert_eq!(left_of(&disk, "f"), expected.collect(), "{again}");
    }
}

#[test]
fn an_error_on_demand_does_nothing() {
    let disk = SimDisk::new().eio(1.0);
    disk.put("f", "ab").unwrap();
    let own = disk.clone();
    let mut kernel = kernel(1, &disk);
    kernel
        .spawn("program", async move |os: &mut Os| {
            os.disk().open(os, "new", Mode::Write).await.unwrap_err();
            os.disk().remove(os, "f").await.unwrap_err();
            os.disk().rename(os, "f", "g").await.unwrap_err();
            os.disk().create_dir(os, "d").await.unwrap_err();
            os.disk().list(os, ".").await.unwrap_err();
            os.disk().sync_dir(os, ".").await.unwrap_err();
            own.eio(0.0);
            let file = os.disk().open(os, "f", Mode::Write).await?;
            own.eio(1.0);
            file.append(os, b"c").await.unwrap_err();
            file.truncate(os, 0).await.unwrap_err();
            let error = file.read_at(os, &mut [0; 4], 0).await.unwrap_err();
            let inner = std::error::Error::source(error.get_ref().unwrap()).unwrap();
            let inner = inner.downcast_ref::<io::Error>().unwrap();
            assert_eq!(inner.raw_os_error(), Some(5), "{error}");
            io::Result::Ok(())
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(
        left(&disk),
        BTreeSet::from([Files::from([("f".into(), b"ab".to_vec())])])
    );
}

#[test]
fn a_share_of_errors_fails_some_operations() {
    let disk = SimDisk::new().eio(0.25);
    let mut kernel = kernel(1, &disk);
    kernel
        .spawn("program", async move |os: &mut Os| {
            let mut failed = 0;
            for _ in 0..400 {
                failed += usize::from(os.disk().list(os, ".").await.is_err());
            }
            assert!((60..140).contains(&failed), "{failed}");
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn rot_flips_one_bit_of_what_is_read_and_none_on_the_disk() {
    let disk = SimDisk::new().rot(1.0);
    disk.put("f", [0; 100]).unwrap();
    let own = disk.clone();
    let mut kernel = kernel(1, &disk);
    kernel
        .spawn("program", async move |os: &mut Os| {
            let file = os.disk().open(os, "f", Mode::Read).await?;
            let mut flipped = BTreeSet::new();
            for _ in 0..20 {
                let mut buf = [0; 100];
                assert_eq!(file.read_at(os, &mut buf, 0).await?, 100);
                let ones: u32 = buf.iter().map(|byte| byte.count_ones()).sum();
                assert_eq!(ones, 1);
                flipped.insert(buf.to_vec());
            }
            assert!(flipped.len() > 10);
            own.rot(0.0);
            let mut buf = [1; 100];
            file.read_at(os, &mut buf, 0).await?;
            assert_eq!(buf, [0; 100]);
            io::Result::Ok(())
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn faults_of_disks_have_words() {
    for text in [
        "power a",
        "disk:eio a",
        "disk:rot a",
        "disk:full a",
        "disk:heal a",
    ] {
        assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
    }
    let error = "disk:oops a".parse::<Fault>().unwrap_err().to_string();
    assert!(error.contains("power A, disk:eio A, disk:rot A"), "{error}");
    let net = Kernel::simulated(1).net();
    let error = net.apply(&"disk:eio nowhere".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn faults_of_disks_happen_to_the_disk_of_their_host() {
    let mut kernel = Kernel::simulated(1);
    let net = kernel.net();
    net.disk("server").unwrap().put("f", "ab").unwrap();
    net.disk("other").unwrap().put("f", "ab").unwrap();
    let fault = async move |os: &mut Os| {
        let server = os.disk();
        let file = server.open(os, "f", Mode::Append).await?;
        let apply = |text: &str| net.apply(&text.parse().unwrap());
        apply("disk:full server")?;
        let error = file.append(os, b"c").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        apply("disk:heal server")?;
        file.append(os, b"c").await?;
        apply("disk:eio other")?;
        file.sync(os).await?;
        apply("disk:eio server")?;
        file.sync(os).await.unwrap_err();
        apply("disk:heal server")?;
        apply("disk:rot server")?;
        let mut buf = [0; 3];
        file.read_at(os, &mut buf, 0).await?;
        assert_ne!(&buf, b"abc");
        io::Result::Ok(())
    };
    kernel.spawn_on("server", "program", fault).unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn s84_a_power_loss_ends_the_tasks_and_boots_the_host_on_an_image() {
    let mut lost = 0;
    for seed in 0..40 {
        let (mut kernel, log) = logged(Kernel::builder().world(SimWorld::new(seed)));
        let net = kernel.net();
        let program = async |os: &mut Os| {
            let log = os.disk().open(os, "log", Mode::Append).await?;
            let len = log.len(os).await?;
            let now = os.now().await;
            writeln!(os, "{len} at {} s", now.as_secs());
            os.disk().sync_dir(os, ".").await?;
            log.append(os, b"x").await?;
            os.sleep(Duration::from_secs(60)).await;
            io::Result::Ok(())
        };
        kernel.spawn_on("server", "program", program).unwrap();
        kernel
            .on_restart("server", move |kernel: &mut Kernel| {
                kernel.spawn_on("server", "program", program).unwrap();
            })
            .unwrap();
        let power = async move |os: &mut Os| {
            os.sleep(Duration::from_secs(1)).await;
            net.apply(&"power server".parse().unwrap())
        };
        kernel.spawn("power", power).unwrap();
        kernel.run().unwrap().check().unwrap();
        let console = kernel.take_console();
        assert!(
            ["0 at 0 s\n0 at 1 s\n", "0 at 0 s\n1 at 1 s\n"].contains(&&*console),
            "{console}"
        );
        lost += usize::from(console.contains("0 at 1 s"));
        let words = "crash server: its disk may lose 1 write";
        assert!(log.text().contains(words), "{}", log.text());
    }
    assert!((5..35).contains(&lost), "{lost}");
}
