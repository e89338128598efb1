//! Files that one task or process has open exclusively.

use super::*;

#[test]
fn a_file_is_open_by_one_as_its_only_one_on_both_disks() {
    run_on_both("exclusive", async |os: &mut Os| {
        let disk = os.disk();
        let first = disk.open(os, "f", Mode::Exclusive).await?;
        first.append(os, b"abc").await?;
        first.write_at(os, b"x", 1).await?;
        let refused = disk.open(os, "f", Mode::Exclusive).await;
        let text = refused
            .as_ref()
            .map_or_else(ToString::to_string, |_| String::new());
        let why = "cannot open f on the disk: another process or task has it open exclusively: end that \
                   one, or name another file";
        assert_eq!(text, why);
        assert_eq!(kind(refused), ErrorKind::ResourceBusy);
        // Others are not kept out, and their end frees nothing.
        for mode in [Mode::Read, Mode::Write, Mode::Append] {
            let other = open(os, "f", mode).await;
            assert_eq!(whole(os, &other).await?, b"axc");
        }
        // The lock is the file's, not the name's.
        disk.rename(os, "f", "g").await?;
        let replaced = disk.open(os, "f", Mode::Exclusive).await?;
        assert_eq!(
            kind(disk.open(os, "g", Mode::Exclusive).await),
            ErrorKind::ResourceBusy
        );
        disk.rename(os, "f", "g").await?;
        drop(first);
        assert_eq!(
            kind(disk.open(os, "g", Mode::Exclusive).await),
            ErrorKind::ResourceBusy
        );
        drop(replaced);
        let again = disk.open(os, "g", Mode::Exclusive).await?;
        drop(again.clone());
        assert_eq!(
            kind(disk.open(os, "g", Mode::Exclusive).await),
            ErrorKind::ResourceBusy
        );
        drop(again);
        // That of a task which is killed.
        let holds = async |os: &mut Os| {
            let _held = os.disk().open(os, "g", Mode::Exclusive).await?;
            os.sleep(Duration::MAX).await;
            io::Result::Ok(())
        };
        let holder = os.spawn("holder", holds).await?;
        os.sleep(Duration::from_millis(50)).await;
        assert_eq!(
            kind(disk.open(os, "g", Mode::Exclusive).await),
            ErrorKind::ResourceBusy
        );
        os.kill(holder).await;
        os.wait(holder).await?;
        disk.open(os, "g", Mode::Exclusive).await.map(drop)
    });
}

#[test]
fn another_kernel_of_the_process_is_kept_out_of_an_exclusive_file() {
    let dir = Dir::new("exclusive-kernels");
    let path = dir.0.clone();
    dir.run(async move |os: &mut Os| {
        let held = open(os, "f", Mode::Exclusive).await;
        let second = move || {
            let mut kernel = Kernel::builder().disk(&path).build().unwrap();
            run_main(&mut kernel, async |os: &mut Os| {
                let second = os.disk().open(os, "f", Mode::Exclusive).await;
                assert_eq!(kind(second), ErrorKind::ResourceBusy);
            });
        };
        os.run_blocking(second).await.expect("it ends well");
        drop(held);
    });
}
