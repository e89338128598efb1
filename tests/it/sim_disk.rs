//! S90 to S94 on a simulated disk: crashes and their images, errors, time, and searches.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::Duration,
};

use trapline::{Kernel, Mode, Os, SimDisk, SimWorld};

mod crashes;
mod faults;
mod images;
mod kills;
mod mosaic;

type Files = BTreeMap<String, Vec<u8>>;

/// A kernel whose tasks have this disk.
fn kernel(seed: u64, disk: &SimDisk) -> Kernel {
    let world = SimWorld::new(seed).disk("localhost", disk);
    Kernel::builder().world(world).build().unwrap()
}

/// Runs a program on a disk of its own, which it leaves as a crash finds it.
fn ran(program: impl AsyncFnOnce(&mut Os) -> io::Result<()> + 'static) -> SimDisk {
    let disk = SimDisk::new();
    let mut kernel = kernel(1, &disk);
    kernel.spawn("program", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    disk
}

fn left(disk: &SimDisk) -> BTreeSet<Files> {
    disk.images().map(|image| image.files()).collect()
}

/// The images of the only file.
fn left_of(disk: &SimDisk, name: &str) -> BTreeSet<Option<String>> {
    let text = |files: Files| {
        let bytes = files.get(name)?;
        Some(String::from_utf8_lossy(bytes).replace('\0', "_"))
    };
    left(disk).into_iter().map(text).collect()
}

fn some<const N: usize>(texts: [&str; N]) -> BTreeSet<Option<String>> {
    texts.map(|text| Some(text.into())).into()
}

// ---- S92: crashes

#[test]
fn s92_a_crash_keeps_what_was_synced_and_any_part_of_the_rest() {
    let disk = ran(async |os: &mut Os| {
        let file = os.disk().open(os, "f", Mode::Write).await?;
        os.disk().sync_dir(os, ".").await?;
        file.write_at(os, b"ab", 0).await?;
        file.sync(os).await?;
        file.write_at(os, b"X", 0).await?;
        file.write_at(os, b"YZ", 3).await
    });
    let expected = some(["ab", "Xb", "ab_Y", "Xb_Y", "ab_YZ", "Xb_YZ"]);
    assert_eq!(left_of(&disk, "f"), expected);
}

#[test]
fn s92_a_file_without_a_synced_name_may_be_gone_though_it_was_synced() {
    let disk = ran(async |os: &mut Os| {
        let file = os.disk().open(os, "f", Mode::Append).await?;
        file.append(os, b"a").await?;
        file.sync(os).await
    });
    assert_eq!(
        left_of(&disk, "f"),
        BTreeSet::from([None, Some("a".into())])
    );
}

#[test]
fn s92_a_crash_of_a_host_leaves_its_disk_one_of_the_images_and_restart_gives_it() {
    let mut seen = BTreeSet::new();
    let mut expected = BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new();
        let world = SimWorld::new(seed).disk("server", &disk);
        let mut kernel = Kernel::builder().world(world).build().unwrap();
        let net = kernel.net();
        kernel
            .spawn_on("server", "writer", async |os: &mut Os| {
                let log = os.disk().open(os, "log", Mode::Append).await?;
                os.disk().sync_dir(os, ".").await?;
                log.append(os, b"one,").await?;
                log.sync(os).await?;
                log.append(os, b"two").await?;
                os.sleep(Duration::from_secs(10)).await;
                io::Result::Ok(())
            })
            .unwrap();
        kernel
            .on_restart("server", |kernel: &mut Kernel| {
                kernel
                    .spawn_on("server", "reader", async |os: &mut Os| {
                        let log = os.disk().open(os, "log", Mode::Read).await?;
                        let mut buf = [0; 64];
                        let n = log.read_at(os, &mut buf, 0).await?;
                        write!(os, "{}", String::from_utf8_lossy(&buf[..n]));
                        io::Result::Ok(())
                    })
                    .unwrap();
            })
            .unwrap();
        let own = disk.clone();
        let images = std::rc::Rc::new(std::cell::RefCell::new(BTreeSet::new()));
        let noted = images.clone();
        kernel
            .spawn("test", async move |os: &mut Os| {
                os.sleep(Duration::from_secs(1)).await;
                *noted.borrow_mut() = left(&own);
                net.crash("server")?;
                let at_crash = own.files();
                os.sleep(Duration::from_secs(1)).await;
                net.restart("server")?;
                // It is drawn once: nothing changes any more.
                assert_eq!(own.files(), at_crash);
                assert_eq!(left(&own), BTreeSet::from([at_crash]));
                io::Result::Ok(())
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
        assert!(images.borrow().contains(&disk.files()));
        expected = images.take();
        let read = kernel.take_console();
        assert_eq!(disk.files()["log"], read.as_bytes());
        seen.insert(disk.files());
    }
    assert_eq!(seen, expected);
    assert_eq!(expected.len(), 4);
}
