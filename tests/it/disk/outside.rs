//! S94: nothing outside the root of the disk can be named.

use std::{
    fs, io,
    os::unix::fs::symlink,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::*;

#[test]
fn s94_a_name_that_leads_out_is_refused_with_its_text() {
    let dir = Dir::new("refused");
    fs::create_dir(dir.0.join("a")).unwrap();
    let names = [
        "",
        "/",
        "/etc/passwd",
        "..",
        "../x",
        "a/..",
        "a/../../x",
        "./..",
        "a\0b",
        "../../../etc",
    ];
    dir.run(async move |os: &mut Os| {
        let disk = os.disk();
        for name in names {
            let errors = [
                disk.open(os, name, Mode::Write).await.unwrap_err(),
                disk.open(os, name, Mode::Read).await.unwrap_err(),
                disk.list(os, name).await.unwrap_err(),
                disk.remove(os, name).await.unwrap_err(),
                disk.create_dir(os, name).await.unwrap_err(),
                disk.sync_dir(os, name).await.unwrap_err(),
                disk.rename(os, name, "b").await.unwrap_err(),
                disk.rename(os, "a", name).await.unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name:?}");
                let text = error.to_string();
                assert!(text.contains(&format!("{name:?} is no name")), "{text}");
            }
        }
        for (from, to) in [(".", "b"), ("a", "./")] {
            let error = disk.rename(os, from, to).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(
            disk.remove(os, ".").await.unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(disk.list(os, "./").await?, ["a"]);
        // Names that only look like it.
        for name in ["...", "..a", "a..", "~", "-"] {
            disk.open(os, name, Mode::Write).await?;
        }
        io::Result::Ok(())
    });
}

/// A root with links to a file and a directory beside it, and that directory.
fn linked(test: &str) -> (Dir, Dir) {
    let (dir, beside) = (Dir::new(test), Dir::new(&format!("{test}-beside")));
    beside.write("secret", "secret");
    symlink(beside.0.join("secret"), dir.0.join("file")).unwrap();
    symlink(&beside.0, dir.0.join("dir")).unwrap();
    symlink("..", dir.0.join("up")).unwrap();
    (dir, beside)
}

#[test]
fn s94_links_are_not_followed() {
    let (dir, beside) = linked("links");
    let out = beside.0.file_name().unwrap().to_str().unwrap().to_string();
    dir.write("mine", "mine");
    dir.run(async move |os: &mut Os| {
        let disk = os.disk();
        let through = ["file", "dir/secret", "dir/new", &format!("up/{out}/secret")];
        for name in through {
            for mode in [Mode::Read, Mode::Write, Mode::Append] {
                let error = disk.open(os, name, mode).await.unwrap_err();
                let text = error.to_string();
                assert!(text.contains("a disk follows no links"), "{name}: {text}");
            }
        }
        for name in ["dir", "up", "dir/x"] {
            disk.list(os, name).await.unwrap_err();
            disk.sync_dir(os, name).await.unwrap_err();
        }
        disk.create_dir(os, "dir/new").await.unwrap_err();
        disk.remove(os, "dir/secret").await.unwrap_err();
        disk.rename(os, "mine", "dir/mine").await.unwrap_err();
        disk.rename(os, "dir/secret", "mine").await.unwrap_err();
        // A link itself is a name like any other.
        disk.rename(os, "dir", "other").await?;
        disk.remove(os, "other").await?;
        disk.rename(os, "mine", "file").await?;
        assert_eq!(disk.list(os, ".").await?, ["file", "up"]);
        io::Result::Ok(())
    });
    assert_eq!(beside.read("secret"), b"secret");
    assert_eq!(fs::read_dir(&beside.0).unwrap().count(), 1);
    assert_eq!(dir.read("file"), b"mine");
}

#[test]
fn s94_a_link_that_takes_the_place_of_a_directory_during_the_run_leads_nowhere() {
    let (dir, beside) = linked("swapped");
    fs::create_dir(dir.0.join("real")).unwrap();
    dir.write("real/secret", "harmless");
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, root) = (Arc::clone(&is_over), dir.0.clone());
    let swapper = thread::spawn(move || {
        let at = |name: &str| root.join(name);
        while !over.load(Ordering::Relaxed) {
            // `real` is the directory, then the link.
            for (from, to) in [
                ("real", "kept"),
                ("dir", "real"),
                ("real", "dir"),
                ("kept", "real"),
            ] {
                fs::rename(at(from), at(to)).unwrap();
            }
        }
    });
    dir.run(async |os: &mut Os| {
        let (mut read, mut failed) = (0, 0);
        for number in 0..1500 {
            match os.disk().open(os, "real/secret", Mode::Read).await {
                Ok(file) => {
                    assert_eq!(whole(os, &file).await?, b"harmless");
                    read += 1;
                }
                Err(_) => failed += 1,
            }
            if number % 4 == 0 {
                let _ = os.disk().open(os, "real/new", Mode::Write).await;
                let _ = os.disk().create_dir(os, "real/made").await;
                let _ = os.disk().remove(os, "real/made").await;
            }
        }
        assert!(
            read > 0 && failed > 0,
            "{read} were read and {failed} failed"
        );
        io::Result::Ok(())
    });
    is_over.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert_eq!(
        fs::read_dir(&beside.0).unwrap().count(),
        1,
        "nothing was made"
    );
    assert_eq!(beside.read("secret"), b"secret");
}

#[test]
fn pipes_and_other_things_are_no_files() {
    let dir = Dir::new("pipe");
    let pipe = dir.0.join("pipe");
    let made = process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    dir.run(async |os: &mut Os| {
        for mode in [Mode::Read, Mode::Write] {
            let error = os.disk().open(os, "pipe", mode).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        os.disk().remove(os, "pipe").await
    });
}
