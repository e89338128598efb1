//! A taped run on a disk runs again without one.

use std::cell::Cell;

use trapline::{
    RealWorld,
    tape::{self, Header, Playing, Taping},
};

use super::*;

/// Tapes a program on this disk. Returns the tape and what was printed.
fn tape<T: trapline::IntoExit>(
    dir: &Dir,
    file: &Scratch,
    program: impl AsyncFnOnce(&mut Os) -> T + 'static,
) -> String {
    let world = RealWorld::new().unwrap().disk(&dir.0).unwrap();
    let world = Taping::create(world, &file.0, &Header::default(), None).unwrap();
    let mut kernel = Kernel::builder()
        .world(world)
        .capture_console()
        .build()
        .unwrap();
    run_main(&mut kernel, program);
    kernel.take_console()
}

/// Plays it. Returns what was printed, and how the replay has ended.
fn play<T: trapline::IntoExit>(
    file: &Scratch,
    program: impl AsyncFnOnce(&mut Os) -> T + 'static,
) -> (String, Result<(), String>) {
    let world = Playing::open(&file.0).unwrap();
    let progress = world.progress();
    let mut kernel = Kernel::builder()
        .world(world)
        .capture_console()
        .build()
        .unwrap();
    kernel.spawn("main", program).unwrap();
    let ended = kernel.run();
    let ended = ended.map_err(|error| match tape::Error::of(&error) {
        Some(left) => left.to_string(),
        None => error.to_string(),
    });
    let finished = || progress.finish().map_err(|error| error.to_string());
    (kernel.take_console(), ended.and_then(|_| finished()))
}

/// Does one of everything, and prints it. What it appends can be told from outside.
async fn everything(os: &mut Os, appended: Rc<Cell<&'static str>>) -> io::Result<()> {
    let disk = os.disk();
    let file = disk.open(os, "wal", Mode::Append).await?;
    let mut old = [0; 100];
    let n = file.read_at(os, &mut old, 0).await?;
    writeln!(os, "was {:?}", String::from_utf8_lossy(&old[..n]));
    file.append(os, appended.get().as_bytes()).await?;
    file.sync(os).await?;
    file.truncate(os, 6).await?;
    let len = file.len(os).await?;
    disk.create_dir(os, "dir").await?;
    disk.rename(os, "wal", "dir/wal").await?;
    disk.sync_dir(os, "dir").await?;
    let (names, inner) = (disk.list(os, ".").await?, disk.list(os, "dir").await?);
    writeln!(os, "{len} bytes, {names:?}, {inner:?}");
    let error = disk.remove(os, "none").await.unwrap_err();
    writeln!(os, "{error}; {:?}", error.source());
    let only = disk.open(os, "only", Mode::Exclusive).await?;
    let error = disk.open(os, "only", Mode::Exclusive).await.unwrap_err();
    writeln!(os, "{error}; {:?}", error.kind());
    drop(only);
    disk.open(os, "only", Mode::Exclusive).await?;
    disk.remove(os, "only").await?;
    let error = disk.open(os, "..", Mode::Read).await.unwrap_err();
    writeln!(os, "{error}");
    let cut = os.timeout(Duration::ZERO, async |os| file.append(os, b"cut").await);
    let is_cut = cut.await.is_err();
    writeln!(os, "{is_cut}");
    disk.rename(os, "dir/wal", "wal").await?;
    disk.remove(os, "dir").await
}

#[test]
fn a_taped_run_on_a_disk_runs_again_without_it() {
    let (dir, file) = (Dir::new("taped"), Scratch::new("disk-taped"));
    dir.write("wal", "what was");
    let appended = Rc::new(Cell::new("appended"));
    let text = Rc::clone(&appended);
    let printed = tape(&dir, &file, async |os: &mut Os| everything(os, text).await);
    assert!(
        printed.starts_with("was \"what was\"\n6 bytes, [\"dir\"], [\"wal\"]\n"),
        "{printed}"
    );
    assert!(printed.contains("os error 2"), "{printed}");
    assert!(printed.contains("another file; ResourceBusy"), "{printed}");
    drop(dir);
    let text = Rc::clone(&appended);
    let again = play(&file, async |os: &mut Os| everything(os, text).await);
    assert_eq!(again, (printed, Ok(())));

    // The bytes that were written are not on it.
    let bytes = file.bytes();
    assert!(bytes.windows(8).any(|window| window == b"what was"));
    assert!(!bytes.windows(8).any(|window| window == b"appended"));
}

#[test]
fn a_replay_that_writes_something_else_is_told_what() {
    let (dir, file) = (Dir::new("left"), Scratch::new("disk-left"));
    let write = |name: &'static str, mode, bytes: &'static str, offset| {
        async move |os: &mut Os| {
            let file = os.disk().open(os, name, mode).await?;
            file.append(os, bytes.as_bytes()).await?;
            file.write_at(os, bytes.as_bytes(), offset).await
        }
    };
    tape(&dir, &file, write("data", Mode::Write, "one", 0));
    assert_eq!(play(&file, write("data", Mode::Write, "one", 0)).1, Ok(()));
    let other = |(_, ended): (_, Result<(), String>)| ended.unwrap_err();

    let bytes = other(play(&file, write("data", Mode::Write, "two", 0)));
    let (asked, found) = bytes
        .split_once(", and the tape has ")
        .expect("it left the tape");
    assert!(
        asked.contains("task 1 asks for append of 3 bytes with checksum "),
        "{bytes}"
    );
    assert!(
        found.starts_with("append of 3 bytes with checksum "),
        "{bytes}"
    );
    assert_ne!(asked.rsplit_once("checksum"), found.rsplit_once("checksum"));
    for (what, program) in [
        ("append of 4 bytes", write("data", Mode::Write, "four", 0)),
        ("write_at of 3 bytes", write("data", Mode::Write, "one", 1)),
    ] {
        let text = other(play(&file, program));
        assert!(text.contains(&format!("asks for {what}")), "{text}");
    }
    for program in [
        write("date", Mode::Write, "one", 0),
        write("data", Mode::Append, "one", 0),
    ] {
        let text = other(play(&file, program));
        assert!(text.contains("asks for open with checksum"), "{text}");
    }
}
