//! The disk: S90, S91 and S94 in the real world, on temporary directories.

mod cut;
mod exclusive;
mod outside;
mod tapes;

use std::{
    cell::RefCell,
    error::Error as _,
    fs,
    io::{self, ErrorKind},
    path::PathBuf,
    process,
    rc::Rc,
    time::Duration,
};

use trapline::{
    Builder, Calls, DeviceId, Exit, File, Inject, Kernel, Ledger, Limits, Mode, Os, Step,
    SystemCall, TaskState, Tracer,
};

use crate::support::*;

/// A directory of a test's own, that goes with it.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Self {
        // Two processes run one test.
        let name = format!("disk-{test}-{}", process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("it can be made");
        Self(path)
    }

    fn kernel(&self) -> Builder {
        Kernel::builder()
            .disk(&self.0)
            .max_time(Duration::from_secs(60))
            .capture_console()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).expect("it is there")
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), bytes).expect("it can be written");
    }

    /// How many descriptors of this process lead into it. The root is one of a world.
    #[cfg(target_os = "linux")]
    fn descriptors(&self) -> usize {
        let open = fs::read_dir("/proc/self/fd").expect("there is one");
        let paths = open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        paths.filter(|path| path.starts_with(&self.0)).count()
    }

    /// Runs a program on this disk, which must end well.
    fn run<T: trapline::IntoExit>(&self, program: impl AsyncFnOnce(&mut Os) -> T + 'static) {
        run_main(&mut self.kernel().build().expect("a kernel boots"), program);
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn open(os: &mut Os, name: &str, mode: Mode) -> File {
    os.disk().open(os, name, mode).await.expect("it opens")
}

/// The whole of a file.
async fn whole(os: &mut Os, file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.len(os).await? as usize];
    let n = file.read_at(os, &mut bytes, 0).await?;
    assert_eq!(n, bytes.len());
    Ok(bytes)
}

#[test]
fn a_disk_does_what_its_calls_say() {
    let dir = Dir::new("calls");
    dir.run(async |os: &mut Os| {
        let disk = os.disk();
        disk.create_dir(os, "logs").await?;
        let log = disk.open(os, "./logs//1", Mode::Append).await?;
        assert_eq!((log.path(), log.len(os).await?), ("./logs//1", 0));
        log.append(os, b"hello ").await?;
        log.append(os, b"world").await?;
        log.append(os, b"").await?;
        log.sync(os).await?;
        let mut buf = [0; 7];
        assert_eq!(log.read_at(os, &mut buf, 4).await?, 7);
        assert_eq!(&buf, b"o world");
        assert_eq!(log.read_at(os, &mut buf, 8).await?, 3, "the rest");
        assert_eq!(log.read_at(os, &mut buf, 99).await?, 0, "behind the end");
        assert_eq!(log.read_at(os, &mut [], 0).await?, 0);
        log.truncate(os, 5).await?;
        log.append(os, b"!").await?;
        assert_eq!(whole(os, &log).await?, b"hello!");

        let data = disk.open(os, "data", Mode::Write).await?;
        data.write_at(os, b"xyz", 4).await?;
        assert_eq!(whole(os, &data).await?, b"\0\0\0\0xyz");
        data.append(os, b".").await?;
        data.truncate(os, 10).await?;
        assert_eq!(whole(os, &data).await?, b"\0\0\0\0xyz.\0\0");

        disk.rename(os, "data", "logs/0").await?;
        disk.sync_dir(os, ".").await?;
        disk.sync_dir(os, "logs").await?;
        data.write_at(os, b"renamed", 0).await?;
        assert_eq!(disk.list(os, ".").await?, ["logs"]);
        assert_eq!(disk.list(os, "logs").await?, ["0", "1"]);
        disk.rename(os, "logs/0", "logs/1").await?;
        assert_eq!(disk.list(os, "logs").await?, ["1"]);
        let error = disk.remove(os, "logs").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
        disk.remove(os, "logs/1").await?;
        assert_eq!(whole(os, &log).await?, b"hello!", "an open file stays");
        disk.remove(os, "logs").await?;
        assert_eq!(disk.list(os, ".").await?, [""; 0]);
        io::Result::Ok(())
    });
}

/// Runs a program on a real disk, and on a simulated one.
fn run_on_both(test: &str, program: impl AsyncFn(&mut Os) -> io::Result<()> + Copy + 'static) {
    Dir::new(test).run(async move |os: &mut Os| program(os).await);
    run_main(&mut sim().build().unwrap(), async move |os: &mut Os| {
        program(os).await
    });
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("it fails").kind()
}

#[test]
fn a_place_that_no_file_has_is_refused_on_both_disks() {
    run_on_both("places", async |os: &mut Os| {
        let file = open(os, "f", Mode::Write).await;
        file.append(os, b"abc").await?;
        for place in [1 << 63, u64::MAX - 1, u64::MAX] {
            let refused = ErrorKind::InvalidInput;
            let mut buf = [0; 2];
            assert_eq!(kind(file.read_at(os, &mut buf, place).await), refused);
            assert_eq!(kind(file.write_at(os, b"xy", place).await), refused);
            assert_eq!(kind(file.truncate(os, place).await), refused);
        }
        assert_eq!(file.read_at(os, &mut [0; 2], i64::MAX as u64 - 2).await?, 0);
        assert_eq!(whole(os, &file).await?, b"abc");
        Ok(())
    });
}

#[test]
fn a_name_that_no_file_has_is_refused_on_both_disks() {
    run_on_both("long", async |os: &mut Os| {
        let disk = os.disk();
        let parts = [
            "n".repeat(256),
            "\u{e4}".repeat(128),
            "n/".repeat(2048) + "n",
        ];
        for name in &parts {
            let open = disk.open(os, name, Mode::Write).await;
            assert_eq!(kind(open), ErrorKind::InvalidInput);
            let made = disk.create_dir(os, name).await;
            assert_eq!(kind(made), ErrorKind::InvalidInput);
        }
        let longest = "n".repeat(255);
        disk.open(os, &longest, Mode::Write).await?;
        let to = disk.rename(os, &longest, &parts[0]).await;
        assert_eq!(kind(to), ErrorKind::InvalidInput);
        assert_eq!(disk.list(os, ".").await?, [longest]);
        let deep = "n/".repeat(2047) + "n";
        let open = disk.open(os, &deep, Mode::Read).await;
        assert_eq!(kind(open), ErrorKind::NotFound);
        Ok(())
    });
}

#[test]
fn a_rename_fails_alike_on_both_disks() {
    run_on_both("renames", async |os: &mut Os| {
        let disk = os.disk();
        disk.create_dir(os, "dir").await?;
        disk.create_dir(os, "empty").await?;
        disk.create_dir(os, "dir/inner").await?;
        open(os, "dir/file", Mode::Write).await;
        open(os, "file", Mode::Write).await;
        for (from, to, expected) in [
            ("dir/file", "dir", ErrorKind::DirectoryNotEmpty),
            ("dir/inner", "dir", ErrorKind::DirectoryNotEmpty),
            ("empty", "dir", ErrorKind::DirectoryNotEmpty),
            ("file", "empty", ErrorKind::IsADirectory),
            ("empty", "file", ErrorKind::NotADirectory),
            ("none", "file/x", ErrorKind::NotADirectory),
            ("none", "empty", ErrorKind::NotFound),
            ("file", "none/x", ErrorKind::NotFound),
            ("dir", "dir/file", ErrorKind::InvalidInput),
            ("dir", "dir/inner/x", ErrorKind::InvalidInput),
        ] {
            let found = kind(disk.rename(os, from, to).await);
            assert_eq!(found, expected, "{from} to {to}");
        }
        disk.rename(os, "dir", "dir").await?;
        disk.rename(os, "dir", "empty").await?;
        assert_eq!(disk.list(os, ".").await?, ["empty", "file"]);
        Ok(())
    });
}

#[test]
fn a_read_moves_no_more_than_a_mebibyte() {
    let dir = Dir::new("large");
    dir.write("large", vec![7; 3 << 20]);
    dir.run(async |os: &mut Os| {
        let file = open(os, "large", Mode::Read).await;
        let mut all = vec![0; 3 << 20];
        assert_eq!(file.read_at(os, &mut all, 5).await?, 1 << 20);
        file.read_at(os, &mut all, u64::MAX).await.unwrap_err();
        io::Result::Ok(())
    });
}

#[test]
fn errors_name_the_operation_and_the_path_and_have_the_systems_own() {
    let dir = Dir::new("errors");
    dir.write("file", "x");
    fs::create_dir(dir.0.join("dir")).unwrap();
    dir.run(async |os: &mut Os| {
        let disk = os.disk();
        let error = disk.open(os, "none", Mode::Read).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let text = "cannot open none on the disk: No such file or directory (os error 2)";
        assert_eq!(error.to_string(), text);
        let source = error.source().expect("it has one");
        let source = source.downcast_ref::<io::Error>();
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(2));
        let error = disk.list(os, "").await.unwrap_err().to_string();
        assert!(
            error.starts_with("cannot list \"\" on the disk: "),
            "{error}"
        );

        for mode in [Mode::Read, Mode::Write] {
            let error = disk.open(os, "dir", mode).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::IsADirectory, "{mode}");
            let error = disk.open(os, ".", mode).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::IsADirectory, "{mode}");
        }
        let error = disk.open(os, "file/x", Mode::Write).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotADirectory);
        let error = disk.create_dir(os, "file").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        let error = disk.rename(os, "none", "other").await.unwrap_err();
        assert!(error.to_string().starts_with("cannot rename none to other"));

        let file = disk.open(os, "file", Mode::Read).await?;
        let error = file.append(os, b"y").await.unwrap_err();
        let text = "cannot append to file on the disk: it is open for reading: open it with \
                    Mode::Write";
        assert_eq!(error.to_string(), text);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        file.write_at(os, b"y", 0).await.unwrap_err();
        file.truncate(os, 0).await.unwrap_err();
        let log = disk.open(os, "file", Mode::Append).await?;
        let error = log.write_at(os, b"y", 0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert_eq!(whole(os, &log).await?, b"x");
        io::Result::Ok(())
    });
}

#[test]
fn a_world_without_a_disk_says_what_to_do() {
    let told = Rc::new(RefCell::new(String::new()));
    let tell = Rc::clone(&told);
    real(async move |os: &mut Os| {
        let error = os.disk().open(os, "wal", Mode::Append).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        *tell.borrow_mut() = error.to_string();
    });
    let text = told.borrow();
    assert!(
        text.ends_with("give it one by Builder::disk(dir)"),
        "{text}"
    );

    let missing = Kernel::builder().disk("/nowhere/at/all").build();
    let text = missing.unwrap_err().to_string();
    assert!(
        text.contains("/nowhere/at/all") && text.contains("make the directory first"),
        "{text}"
    );
    let other = sim().disk(".").build().unwrap_err().to_string();
    assert!(other.contains("Builder::disk"), "{other}");
}

/// S90: two handles of one file, and many tasks that do not wait for one another.
#[test]
fn s90_operations_on_one_file_take_effect_in_the_order_of_their_calls() {
    const TASKS: u32 = 100;
    let dir = Dir::new("order");
    for round in 0..5 {
        let name = format!("log-{round}");
        let mut kernel = dir.kernel().build().unwrap();
        let opened = name.clone();
        run_main(&mut kernel, async move |os: &mut Os| {
            let name: Rc<str> = opened.into();
            let mut tasks = Vec::new();
            for number in 0..TASKS {
                let file = open(os, &name, Mode::Append).await;
                let append = async move |os: &mut Os| {
                    // A longer one is not overtaken by a shorter one.
                    let len = if number % 3 == 0 { 20_000 } else { 4 };
                    let mut record = number.to_le_bytes().to_vec();
                    record.resize(len, 0xff);
                    file.append(os, &record).await?;
                    if number % 10 == 0 {
                        file.sync(os).await?;
                    }
                    io::Result::Ok(())
                };
                tasks.push(os.spawn("writer", append).await.unwrap());
            }
            for task in tasks {
                assert_eq!(os.wait(task).await, Ok(Exit::Done));
            }
        });
        let bytes = dir.read(&name);
        let mut rest = &bytes[..];
        for number in 0..TASKS {
            assert_eq!(rest[..4], number.to_le_bytes(), "round {round}");
            rest = &rest[if number % 3 == 0 { 20_000 } else { 4 }..];
        }
        assert!(rest.is_empty());
    }
}

/// S90: names change in the order of the calls, so each file is where the last rename left it.
#[test]
fn s90_names_change_in_the_order_of_the_calls() {
    let dir = Dir::new("names");
    dir.write("0", "moved");
    dir.run(async |os: &mut Os| {
        let mut tasks = Vec::new();
        for number in 0..50 {
            let rename = async move |os: &mut Os| {
                let (from, to) = (number.to_string(), (number + 1).to_string());
                os.disk().rename(os, &from, &to).await
            };
            tasks.push(os.spawn("mover", rename).await.unwrap());
        }
        tasks.push(
            os.spawn("syncer", async |os: &mut Os| {
                os.disk().sync_dir(os, ".").await
            })
            .await
            .unwrap(),
        );
        for task in tasks {
            assert_eq!(os.wait(task).await, Ok(Exit::Done));
        }
        assert_eq!(os.disk().list(os, ".").await.unwrap(), ["50"]);
    });
}

#[test]
fn s91_a_second_call_on_a_handle_is_busy_and_one_on_another_handle_is_not() {
    let dir = Dir::new("busy");
    dir.run(async |os: &mut Os| {
        let file = open(os, "wal", Mode::Append).await;
        let (clone, other) = (file.clone(), open(os, "wal", Mode::Append).await);
        let first = async move |os: &mut Os| file.append(os, b"first").await;
        let first = os.spawn("first", first).await.unwrap();
        let second = async move |os: &mut Os| {
            let error = clone.append(os, b"second").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ResourceBusy);
            assert!(error.to_string().starts_with("cannot append to wal"));
        };
        let second = os.spawn("second", second).await.unwrap();
        let third = async move |os: &mut Os| other.append(os, b"third").await;
        let third = os.spawn("third", third).await.unwrap();
        for task in [first, second, third] {
            assert_eq!(os.wait(task).await, Ok(Exit::Done));
        }
    });
    assert_eq!(dir.read("wal"), b"firstthird");
}

#[test]
fn a_wait_for_the_disk_says_for_what() {
    let dir = Dir::new("waits");
    let ledger = Rc::new(RefCell::new(Ledger::new()));
    let tracer = Rc::clone(&ledger);
    let mut kernel = dir
        .kernel()
        .tracer(move |event: &trapline::Event<'_>| tracer.borrow_mut().event(event))
        .build()
        .unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            let file = open(os, "wal", Mode::Append).await;
            file.append(os, b"hello").await?;
            file.sync(os).await?;
            os.disk().rename(os, "wal", "old").await
        })
        .unwrap();
    let mut waits = Vec::new();
    while kernel.step().unwrap() != Step::Finished {
        let Some(task) = kernel.tasks().next() else {
            continue;
        };
        let info = ledger.borrow().info(1.into()).unwrap();
        assert_eq!(info.wait, task.wait);
        if let TaskState::Blocked { .. } = task.state {
            let thing = task.wait.thing.clone().unwrap();
            waits.push(format!("{}: {thing}", task.wait.call));
        }
    }
    waits.dedup();
    let expected = [
        "open: the disk: \"wal\", append",
        "append: file 1 \"wal\"",
        "sync: file 1 \"wal\"",
        "rename: the disk: \"wal\", \"old\"",
    ];
    assert_eq!(waits, expected);
}

#[test]
fn a_trace_has_the_calls_with_their_names_offsets_and_bytes() {
    let dir = Dir::new("trace");
    let (mut kernel, log) = logged(dir.kernel());
    run_main(&mut kernel, async |os: &mut Os| {
        let file = open(os, "wal", Mode::Write).await;
        file.append(os, b"hello").await?;
        file.write_at(os, b"jel", 0).await?;
        file.read_at(os, &mut [0; 64], 2).await?;
        file.truncate(os, 3).await?;
        file.sync(os).await?;
        os.disk().rename(os, "wal", "old").await?;
        os.disk().list(os, ".").await?;
        os.disk().remove(os, "none").await.unwrap_err();
        io::Result::Ok(())
    });
    let told = |line: &String| {
        ["trapped", "replied", "device"]
            .iter()
            .any(|word| line.starts_with(word))
    };
    let lines: Vec<_> = about(&log, 1).into_iter().filter(told).collect();
    let expected = [
        "trapped open(\"wal\", write)",
        "replied device 1",
        "trapped append(1, 5)",
        "device 1 write 5",
        "replied 5",
        "trapped write_at(1, 3 at 0)",
        "device 1 write 3",
        "replied 3",
        "trapped read_at(1, 64 at 2)",
        "device 1 read 3",
        "replied 3",
        "trapped truncate(1, 3)",
        "replied ok",
        "trapped sync(1)",
        "replied ok",
        "trapped rename(\"wal\", \"old\")",
        "replied ok",
        "trapped list(\".\")",
        "replied ok",
        "trapped remove(\"none\")",
        "replied No such file or directory (os error 2)",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn limits_and_injections_reach_the_disk() {
    let dir = Dir::new("limits");
    let inject = |_, call, nth| match call {
        SystemCall::Append(_) if nth == 2 => Some(Inject::Fail(ErrorKind::StorageFull)),
        SystemCall::Sync(_) => Some(Inject::Delay(Duration::from_millis(1))),
        _ => None,
    };
    let mut kernel = dir.kernel().inject(inject).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        let file = open(os, "wal", Mode::Append).await;
        file.append(os, b"one").await?;
        let error = file.append(os, b"two").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        file.append(os, b"three").await?;
        file.sync(os).await?;

        let limits = Limits::new().deny([Calls::FILES]);
        let denied = async move |os: &mut Os| {
            let error = file.append(os, b"four").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            let error = os.disk().list(os, ".").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        };
        let denied = os.spawn_with(limits, "denied", denied).await.unwrap();
        assert_eq!(os.wait(denied).await, Ok(Exit::Done));
        io::Result::Ok(())
    });
    assert_eq!(dir.read("wal"), b"onethree");
}

#[test]
fn raw_calls_and_the_files_of_another_kernel_are_refused() {
    let dir = Dir::new("raw");
    let kept = Rc::new(RefCell::new(None));
    let keep = Rc::clone(&kept);
    let mut first = dir.kernel().build().unwrap();
    run_main(&mut first, async move |os: &mut Os| {
        let file = open(os, "wal", Mode::Write).await;
        for call in [
            SystemCall::Open,
            SystemCall::List,
            SystemCall::Sync(file.id()),
        ] {
            assert_eq!(raw(os, call).await, "Err(Invalid)");
        }
        for call in [
            SystemCall::Accept(file.id()),
            SystemCall::ShutdownWrite(file.id()),
        ] {
            assert_eq!(raw(os, call).await, "Io", "it is no stream");
        }
        assert_eq!(raw(os, SystemCall::Close(file.id())).await, "Done");
        let error = file.len(os).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        *keep.borrow_mut() = Some(open(os, "wal", Mode::Write).await);
    });
    let file = kept.take().expect("it was kept");
    run_main(
        &mut dir.kernel().build().unwrap(),
        async move |os: &mut Os| {
            let _other = open(os, "wal", Mode::Write).await;
            let error = file.append(os, b"x").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        },
    );
    assert_eq!(dir.read("wal"), b"");
}

/// S93: the bytes that did fit are taken back. A limit of the process takes the place of a full disk.
#[test]
#[cfg(unix)]
fn s93_an_append_that_fails_leaves_the_old_length() {
    let name = "disk::s93_an_append_that_fails_leaves_the_old_length";
    alone(name, || {
        let dir = Dir::new("full");
        // SAFETY: a signal that is ignored runs no handler.
        #[expect(unsafe_code, reason = "the standard library has no call for it")]
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        }
        let limit = rustix::process::Rlimit {
            current: Some(10_000),
            maximum: Some(10_000),
        };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        dir.run(async |os: &mut Os| {
            let file = open(os, "wal", Mode::Append).await;
            file.append(os, &[1; 6000]).await?;
            let error = file.append(os, &[2; 6000]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
            assert_eq!(whole(os, &file).await?, [1; 6000]);
            file.append(os, &[3; 4000]).await?;
            assert_eq!(file.len(os).await?, 10_000);
            io::Result::Ok(())
        });
    });
}

#[test]
fn a_tasks_files_are_closed_with_their_last_handles() {
    let dir = Dir::new("closed");
    let path = dir.0.clone();
    dir.run(async move |os: &mut Os| {
        let here = Dir(path);
        let count = || here.descriptors();
        assert_eq!(count(), 1);
        let file = open(os, "wal", Mode::Write).await;
        let clone = file.clone();
        let ids: [DeviceId; 2] = [file.id(), clone.id()];
        assert_eq!(ids[0], ids[1]);
        assert_eq!(count(), 2);
        drop(file);
        os.yield_now().await;
        assert_eq!(count(), 2);
        drop(clone);
        os.yield_now().await;
        assert_eq!(count(), 1);
        for _ in 0..3000 {
            open(os, "wal", Mode::Read).await;
        }
        os.yield_now().await;
        assert_eq!(count(), 1);
        std::mem::forget(here);
    });
}
