//! Recordings: what is written can be read, whatever it is and whatever became of the file.

mod anything;
pub(crate) mod fuzz;
pub(crate) mod mutator;

use std::{
    fs,
    io::{self, Cursor},
    sync::LazyLock,
    time::Duration,
};

use proptest::{prelude::*, sample::Index};
use trapline::{
    Detail, DeviceId, Direction, Event, Fact, Kernel, On, Reply, SimWorld, SystemCall, Tid, Tracer,
    record::{Error, Header, OwnedEvent, Recorder, Recording},
};

use crate::{
    log::{chaos, everything},
    support::*,
};

/// What can be read of these bytes, how many events are missing, and the error that ended it.
fn read(bytes: Vec<u8>) -> (Vec<OwnedEvent>, u64, Option<Error>) {
    let mut recording = match Recording::from_reader(Cursor::new(bytes)) {
        Ok(recording) => recording,
        Err(error) => return (Vec::new(), 0, Some(error)),
    };
    let mut events = Vec::new();
    let mut error = None;
    for event in &mut recording {
        match event {
            Ok(event) => events.push(event),
            Err(e) => error = Some(e),
        }
    }
    (events, recording.missing(), error)
}

fn read_well(bytes: Vec<u8>) -> (Vec<OwnedEvent>, u64) {
    let (events, missing, error) = read(bytes);
    assert!(error.is_none(), "{error:?}");
    (events, missing)
}

fn lines(events: &[OwnedEvent]) -> Vec<String> {
    events.iter().map(ToString::to_string).collect()
}

/// A run that is recorded, and logged besides.
fn recorded(recorder: Recorder, program: impl AsyncFnOnce(&mut trapline::Os) + 'static) -> Diary {
    let (mut kernel, log) = logged(Kernel::builder().world(SimWorld::new(7)).tracer(recorder));
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap();
    log
}

fn record(test: &str, events: &[OwnedEvent]) -> Vec<u8> {
    let file = Scratch::new(test);
    let mut recorder = Recorder::create(&file.0, &Header::default()).unwrap();
    for event in events {
        recorder.event(event);
    }
    recorder.handle().close().unwrap();
    file.bytes()
}

/// A recording of a run that has a bit of everything.
static EVERYTHING: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let file = Scratch::new("everything");
    let recorder = Recorder::create(&file.0, &Header::default()).unwrap();
    let handle = recorder.handle();
    recorded(recorder, async |os| {
        let _ = everything(os).await;
    });
    handle.close().unwrap();
    file.bytes()
});

// ---- what is written is read

#[test]
fn a_recording_has_the_header_and_the_log_of_the_run() {
    let file = Scratch::new("run");
    let mut header = Header::default();
    header.command = vec!["chaos".to_string(), "--at \u{1f30a}".to_string()];
    (header.seed, header.quantum, header.is_simulated) = (7, 3, true);
    let recorder = Recorder::create(&file.0, &header).unwrap();
    let log = recorded(recorder, async |os| chaos(os).await.unwrap());
    let recording = Recording::open(&file.0).unwrap();
    assert_eq!(*recording.header(), header);
    let events: Vec<OwnedEvent> = recording.map(Result::unwrap).collect();
    assert_eq!(lines(&events), log.lines());
    assert!(events.len() > 1000);
    let bytes = file.bytes();
    assert!(
        bytes.len() < events.len() * 6,
        "{} bytes for {} events",
        bytes.len(),
        events.len()
    );
}

#[test]
fn recording_the_same_run_twice_gives_the_same_bytes() {
    // How the bytes of a file are cut into chunks depends on when they were written.
    let run = || {
        let recorder = Recorder::in_memory(1_000_000, &Header::default()).unwrap();
        let handle = recorder.handle();
        recorded(recorder, async |os| chaos(os).await.unwrap());
        let file = Scratch::new("twin");
        let again = Recorder::last(1_000_000, &file.0, &Header::default());
        let mut again = again.unwrap();
        for event in handle.recording().unwrap() {
            again.event(&event.unwrap());
        }
        again.handle().close().unwrap();
        file.bytes()
    };
    assert!(run() == run());
}

#[test]
fn texts_of_any_length_are_kept_up_to_a_limit() {
    let text = |len: usize| "\u{e9}".repeat(len / 2);
    for len in [0, 2, 127 * 2, 65_520, 65_536, 65_538, 1 << 20] {
        let text = text(len);
        let event = owned(
            1,
            Fact::Console {
                text: text.as_str().into(),
            },
        );
        let after = owned(2, Fact::Reaped);
        let events = [after.clone(), event, after];
        let (read, _) = read_well(record("texts", &events));
        assert_eq!(read, events, "{len}");
    }
    let huge = text(20 << 20);
    let events = [
        owned(
            1,
            Fact::Console {
                text: huge.as_str().into(),
            },
        ),
        owned(2, Fact::Reaped),
    ];
    let (read, _) = read_well(record("huge", &events));
    let Fact::Console { text: cut } = &read[0].fact else {
        panic!("{}", read[0].tid)
    };
    assert!(huge.starts_with(&**cut) && cut.len() > 15 << 20 && cut.len() < 16 << 20);
    assert_eq!(read[1], events[1]);
}

#[test]
fn an_operating_systems_error_keeps_its_kind_and_text() {
    let refused = io::Error::from_raw_os_error(rustix::io::Errno::CONNREFUSED.raw_os_error());
    let detail = Detail::Io(refused.kind(), refused.to_string().into());
    let reply = Reply::Io;
    let (read, _) = read_well(record("io", &[owned(1, Fact::Replied { reply, detail })]));
    let Fact::Replied {
        detail: Detail::Io(kind, text),
        ..
    } = &read[0].fact
    else {
        panic!("{}", read[0])
    };
    assert_eq!(*kind, io::ErrorKind::ConnectionRefused);
    assert_eq!(*text, refused.to_string());
}

#[test]
fn nothing_is_recorded_after_the_tape_was_closed() {
    let file = Scratch::new("closed");
    let mut recorder = Recorder::create(&file.0, &Header::default()).unwrap();
    recorder.event(&owned(1, Fact::Resumed));
    recorder.handle().flush().unwrap();
    assert!(matches!(
        read(file.bytes()),
        (events, 0, Some(Error::Truncated { .. })) if events.len() == 1
    ));
    recorder.event(&owned(1, Fact::Reaped));
    recorder.handle().close().unwrap();
    let bytes = file.bytes();
    for _ in 0..100_000 {
        recorder.event(&owned(2, Fact::Resumed));
    }
    drop(recorder);
    assert_eq!(file.bytes(), bytes);
    assert_eq!(read_well(bytes).0.len(), 2);
}

#[test]
fn a_recording_of_an_earlier_version_is_read_as_it_was_then() {
    let (events, missing) = read_well(include_bytes!("old/run.trap").to_vec());
    let mut text = String::new();
    for Event {
        at,
        tid,
        fact,
        place,
    } in events
    {
        text.push_str(&format!("{at:?} {tid} {fact:?} {place:?}\n"));
    }
    text.push_str(&format!("{missing} missing\n"));
    assert_eq!(text, include_str!("old/run.txt"));
}

// ---- the last so many

/// A run of which the last so many events are recorded: its log, what could be read, and how many
/// are missing.
fn ring(
    test: &str,
    size: usize,
    program: impl AsyncFnOnce(&mut trapline::Os) + 'static,
) -> (Vec<String>, Vec<OwnedEvent>, u64) {
    let file = Scratch::new(test);
    let recorder = Recorder::last(size, &file.0, &Header::default()).unwrap();
    let log = recorded(recorder, program).lines();
    let (events, missing) = read_well(file.bytes());
    assert_eq!(
        events.len() as u64 + missing,
        log.len() as u64,
        "nothing twice"
    );
    (log, events, missing)
}

#[test]
fn a_ring_keeps_the_last_events_and_who_they_are_about() {
    for size in [0, 1, 7, 500, 1_000_000] {
        let program = async |os: &mut trapline::Os| chaos(os).await.unwrap();
        let (log, events, missing) = ring("ring", size, program);
        let all = lines(&events);
        let last = size.min(log.len());
        assert_eq!(all[all.len() - last..], log[log.len() - last..], "{size}");
        assert_eq!(missing == 0, size >= log.len());
        for event in &events {
            let spawned = |other: &OwnedEvent| {
                other.tid == event.tid && matches!(other.fact, Fact::Spawned { .. })
            };
            let known = event.tid == Tid::KERNEL || events.iter().any(spawned);
            assert!(known, "{event} is about nobody");
        }
        let mut rest = log.iter();
        assert!(
            all.iter().all(|line| rest.any(|other| line == other)),
            "what is kept of the past is in order"
        );
    }
}

#[test]
fn a_ring_says_where_events_are_missing() {
    for size in [0, 1, 7, 500] {
        let file = Scratch::new("ring-gaps");
        let recorder = Recorder::last(size, &file.0, &Header::default()).unwrap();
        let program = async |os: &mut trapline::Os| chaos(os).await.unwrap();
        let log = recorded(recorder, program).lines();
        let mut recording = Recording::from_reader(Cursor::new(file.bytes())).unwrap();
        let mut read = 0;
        while let Some(event) = recording.next() {
            let place = read + recording.missing() as usize;
            assert_eq!(event.unwrap().to_string(), log[place], "{size}");
            read += 1;
        }
    }
}

#[test]
fn a_ring_forgets_by_and_by_and_is_right_at_every_size() {
    let program = async |os: &mut trapline::Os| {
        for n in 0..20_000 {
            os.yield_now().await;
            if n % 100 == 0 {
                let text = "-".repeat(n);
                writeln!(os, "{text}");
            }
        }
    };
    for size in [10, 30_000, 60_000] {
        let (log, events, _) = ring("by-and-by", size, program);
        assert_eq!(
            events.len(),
            size + 1,
            "the window, and that main was spawned"
        );
        assert_eq!(lines(&events)[1..], log[log.len() - size..]);
    }
}

#[test]
fn a_ring_knows_what_a_task_has_been_blocked_on_for_long() {
    let file = Scratch::new("blocked");
    let recorder = Recorder::last(10, &file.0, &Header::default()).unwrap();
    let handle = recorder.handle();
    let mut kernel = sim().tracer(recorder).max_ticks(50_000).build().unwrap();
    let hour = Duration::from_secs(3600);
    kernel
        .spawn("sleeper", async move |os| os.sleep(hour).await)
        .unwrap();
    kernel.spawn("spinner", spin).unwrap();
    assert!(matches!(kernel.run(), Err(trapline::Error::Limit(..))));
    handle.close().unwrap();
    drop(kernel);
    let (events, missing) = read_well(file.bytes());
    assert_eq!(
        lines(&events)[..5],
        [
            "00:00.000000000 1 spawned \"sleeper\" by 0",
            "00:00.000000000 2 spawned \"spinner\" by 0",
            "00:00.000000000 1 trapped sleep(3600s)",
            "00:00.000000000 1 blocked on the timer at 60:00.000",
            "00:00.000000000 2 replied ok",
        ]
    );
    assert_eq!(events.len(), 4 + 10);
    // Two were spawned, one sleeps, and the limit is on turns.
    assert_eq!(missing, 2 + 3 + 3 * 49_999 - 14);
}

#[test]
fn a_ring_is_written_at_the_first_fault_and_keeps_what_led_to_it() {
    let file = Scratch::new("fault");
    let recorder = Recorder::last(10, &file.0, &Header::default()).unwrap();
    let path = file.0.clone();
    let log = recorded(recorder, async move |os| {
        passes(os, 30).await;
        let faulty = os
            .spawn("faulty", async |_| panic!("at last"))
            .await
            .unwrap();
        let (events, missing) = read_well(fs::read(&path).unwrap());
        assert_eq!(
            events.last().unwrap().to_string(),
            "00:00.000000000 2 exited faulted: at last"
        );
        assert_eq!((events.len(), missing), (10 + 1, 1 + 3 * 30 + 6 - 11));
        passes(os, 30).await;
        let _ = os.wait(faulty).await;
        let _ = os.spawn("faulty too", async |_| panic!("again")).await;
        passes(os, 30).await;
    });
    let (events, missing) = read_well(file.bytes());
    let (lines, log) = (lines(&events), log.lines());
    assert_eq!(lines.len() as u64 + missing, log.len() as u64);
    let fault = log
        .iter()
        .position(|line| line.ends_with("at last"))
        .unwrap();
    assert_eq!(lines[1..11], log[fault - 9..=fault]);
    assert_eq!(
        lines[11..lines.len() - 10],
        [
            "00:00.000000000 2 reaped",
            "00:00.000000000 3 spawned \"faulty too\" by 1",
            "00:00.000000000 3 exited faulted: again"
        ]
    );
    assert_eq!(lines[lines.len() - 10..], log[log.len() - 10..]);
}

#[test]
fn a_ring_knows_in_which_call_a_task_is_though_it_blocked_later() {
    let mut recorder = Recorder::in_memory(2, &Header::default()).unwrap();
    let handle = recorder.handle();
    let (device, detail) = (DeviceId::from_raw(1), Detail::Len(10));
    let call = SystemCall::Recv(device);
    let on = On::Device(device, Direction::Read);
    let name = "reader".into();
    let parent = Tid::KERNEL;
    let facts = [
        owned(1, Fact::Spawned { parent, name }),
        owned(
            2,
            Fact::Spawned {
                parent,
                name: "other".into(),
            },
        ),
        owned(1, Fact::Trapped { call, detail }),
        owned(
            2,
            Fact::Trapped {
                call: SystemCall::Yield,
                detail: Detail::None,
            },
        ),
        owned(1, Fact::Blocked { on }),
    ];
    for event in facts.iter().chain(&vec![owned(2, Fact::Resumed); 100]) {
        recorder.event(event);
    }
    let mut recording = handle.recording().unwrap();
    let events: Vec<OwnedEvent> = (&mut recording).map(Result::unwrap).collect();
    assert_eq!(events[..4], [&facts[..3], &facts[4..]].concat());
    assert_eq!((events.len(), recording.missing()), (4 + 2, 5 + 100 - 6));
}

#[test]
fn any_thread_can_have_a_ring_written() {
    let file = Scratch::new("thread");
    let recorder = Recorder::last(1_000, &file.0, &Header::default()).unwrap();
    let (handle, path) = (recorder.handle(), file.0.clone());
    recorded(recorder, async move |os| {
        passes(os, 5).await;
        std::thread::spawn(move || handle.flush().unwrap())
            .join()
            .unwrap();
        let (events, _) = read_well(fs::read(&path).unwrap());
        assert_eq!(
            events.len(),
            2 + 3 * 5,
            "a task that is stuck would be seen"
        );
    });
}

#[test]
fn a_ring_goes_to_a_file_that_can_be_written_and_not_replaced() {
    // There is no room in its name for that of another file beside it.
    let file = Scratch::new(&"long".repeat(59));
    fs::write(
        &file.0,
        "what was there before is longer than the header of a recording",
    )
    .unwrap();
    let recorder = Recorder::last(1_000, &file.0, &Header::default()).unwrap();
    assert!(
        matches!(read(file.bytes()), (events, 0, Some(Error::Truncated { .. })) if events.is_empty())
    );
    recorded(recorder, async |os| passes(os, 5).await);
    assert!(!read_well(file.bytes()).0.is_empty());
}

#[test]
fn nothing_is_left_beside_a_ring_that_was_replaced() {
    use std::os::unix::fs::PermissionsExt;

    let dir = Scratch::new("beside-it");
    fs::create_dir(&dir.0).unwrap();
    let file = dir.0.join("run.trap");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let recorder = Recorder::last(1_000, &file, &Header::default()).unwrap();
    recorded(recorder, async |os| passes(os, 5).await);
    assert!(!read_well(fs::read(&file).unwrap()).0.is_empty());
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 1);
    fs::remove_dir_all(&dir.0).unwrap();
}

#[test]
fn a_recording_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;

    let mode = |file: &Scratch| fs::metadata(&file.0).unwrap().permissions().mode() & 0o777;
    let file = Scratch::new("mode");
    let recorder = Recorder::create(&file.0, &Header::default()).unwrap();
    recorded(recorder, async |os| passes(os, 5).await);
    assert_eq!(mode(&file), 0o600);
    let ring = Scratch::new("ring-mode");
    let recorder = Recorder::last(10, &ring.0, &Header::default()).unwrap();
    recorded(recorder, async |os| passes(os, 5).await);
    assert_eq!(mode(&ring), 0o600);
}

#[test]
fn a_second_recorder_on_a_file_is_refused_until_the_first_has_ended() {
    let file = Scratch::new("locked");
    let create = || Recorder::create(&file.0, &Header::default());
    let last = || Recorder::last(10, &file.0, &Header::default());
    for first in [&create as &dyn Fn() -> io::Result<Recorder>, &last] {
        let recorder = first().unwrap();
        let handle = recorder.handle();
        for second in [create(), last()] {
            assert_eq!(second.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        }
        // A ring replaces the file.
        handle.flush().unwrap();
        assert_eq!(create().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        recorded(recorder, async |os| passes(os, 5).await);
        handle.close().unwrap();
        assert!(!read_well(file.bytes()).0.is_empty());
    }
    create().unwrap();
}

// ---- what became of the file

#[test]
fn what_is_no_recording_is_refused() {
    let error = |bytes: &[u8]| read(bytes.to_vec()).2.expect("it is refused").to_string();
    let foreign = "this is no recording of trapline: it does not begin like one";
    for bytes in ["\n", "00:00.000 1 main spawned", "\u{89}PNG", "\x7fELF"] {
        assert_eq!(error(bytes.as_bytes()), foreign, "{bytes:?}");
    }
    let mut later = EVERYTHING.clone();
    later[8] = 2;
    assert_eq!(
        error(&later),
        "the recording has version 2 of the format, and this trapline reads version 1: read it \
         with a later one"
    );
    later[8] = 0;
    assert_eq!(
        error(&later),
        "the recording is damaged at byte 8: version 0 of the format"
    );
    let missing = Recording::open("no such file").unwrap_err().to_string();
    assert!(missing.starts_with("No such file"), "{missing}");
    let directory = Recording::open(env!("CARGO_TARGET_TMPDIR"))
        .unwrap_err()
        .to_string();
    assert!(directory.starts_with("Is a directory"), "{directory}");
}

#[test]
fn a_recording_cut_anywhere_gives_what_is_whole_and_says_where_it_ends() {
    let file = Scratch::new("cut");
    let mut recorder = Recorder::create(&file.0, &Header::default()).unwrap();
    let (events, _) = read_well(EVERYTHING.clone());
    for (at, event) in events.iter().enumerate() {
        recorder.event(event);
        if at % 10 == 9 {
            recorder.handle().flush().unwrap();
        }
    }
    drop(recorder);
    let bytes = file.bytes();
    let mut most = 0;
    for len in 0..bytes.len() {
        let (read, _, error) = read(bytes[..len].to_vec());
        assert_eq!(read, events[..read.len()]);
        assert!(read.len() >= most);
        most = read.len();
        match error.expect("its end is missing") {
            // Between its creation and its header a file is empty.
            Error::Empty => assert_eq!(len, 0),
            Error::Truncated { offset } => assert!(offset <= len as u64),
            error => panic!("{len}: {error}"),
        }
    }
    assert_eq!(most, events.len());
}

/// Where each chunk begins: that of the header, and those of events.
fn chunks(bytes: &[u8]) -> Vec<usize> {
    let (mut begins, mut at) = (Vec::new(), 10);
    while let Some(len) = bytes.get(at..at + 4) {
        begins.push(at);
        at += 8 + u32::from_le_bytes(len.try_into().unwrap()) as usize;
    }
    begins
}

#[test]
fn a_damaged_chunk_is_found_and_what_stands_before_it_is_read() {
    let file = Scratch::new("damaged");
    let mut recorder = Recorder::create(&file.0, &Header::default()).unwrap();
    // Longer than a page, so that each has a chunk of its own.
    let text = "a text".repeat(1000);
    let event = owned(
        1,
        Fact::Console {
            text: text.as_str().into(),
        },
    );
    for _ in 0..2 {
        recorder.event(&event);
        recorder.handle().flush().unwrap();
    }
    drop(recorder);
    let mut bytes = file.bytes();
    let second = chunks(&bytes)[2];
    bytes[second + 12] ^= 1;
    let (events, _, error) = read(bytes);
    assert_eq!(events, [event]);
    assert_eq!(
        error.expect("it is damaged").to_string(),
        format!(
            "the recording is damaged at byte {second}: a chunk that does not match its checksum"
        )
    );
}

#[test]
fn a_chunk_that_claims_to_be_huge_is_refused_or_cut_off() {
    let mut bytes = EVERYTHING[..10].to_vec();
    bytes.extend([0xff; 8]);
    let (_, _, error) = read(bytes.clone());
    assert_eq!(
        error.expect("it is refused").to_string(),
        "the recording is damaged at byte 10: a chunk that is too long"
    );
    bytes[10..14].copy_from_slice(&(32_u32 << 20).to_le_bytes());
    let (_, _, error) = read(bytes);
    assert!(matches!(error, Some(Error::Truncated { offset: 10 })));
}

/// Each would take twenty times as much memory as the byte that it is here.
#[test]
fn a_command_line_of_many_empty_words_is_refused() {
    let mut payload = vec![0x81, 0x80, 0x40]; // 2^20 + 1
    payload.resize(2 << 20, 0);
    let mut bytes = EVERYTHING[..10].to_vec();
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(&payload).to_le_bytes());
    bytes.extend(payload);
    let (_, _, error) = read(bytes);
    assert_eq!(
        error.expect("it is refused").to_string(),
        "the recording is damaged at byte 10: a command line of too many words"
    );
}

// ---- when it cannot be written

#[test]
fn an_error_in_writing_ends_the_recording_and_not_the_run() {
    let pipe = Scratch::new("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe.0).status();
    assert!(made.unwrap().success());
    let path = pipe.0.clone();
    let reader = std::thread::spawn(move || {
        let mut some = [0; 10];
        let mut file = fs::File::open(path).unwrap();
        io::Read::read_exact(&mut file, &mut some).unwrap();
    });
    let recorder = Recorder::create(&pipe.0, &Header::default()).unwrap();
    reader.join().unwrap();
    let handle = recorder.handle();
    let log = recorded(recorder, async |os| passes(os, 100_000).await);
    assert_eq!(log.lines().len(), 3 + 3 * 100_000 + 1);
    for result in [handle.flush(), handle.close()] {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}

#[test]
fn a_file_that_cannot_be_created_is_an_error_at_once() {
    let nowhere = Scratch::new("no/where");
    let header = Header::default();
    for result in [
        Recorder::create(&nowhere.0, &header),
        Recorder::last(10, &nowhere.0, &header),
    ] {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
    if cfg!(target_os = "linux") {
        let full = Recorder::create("/dev/full", &header).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }
}

#[test]
fn a_header_too_large_to_be_read_is_an_error_at_once() {
    let file = Scratch::new("large");
    let mut header = Header::default();
    // Each is cut, and two of them fit.
    header.command = vec!["x".repeat(20 << 20); 2];
    let recorder = Recorder::in_memory(1, &header).unwrap();
    assert_eq!(
        recorder
            .handle()
            .recording()
            .unwrap()
            .header()
            .command
            .len(),
        2
    );
    header.command.push("and".repeat(20_000));
    for result in [
        Recorder::create(&file.0, &header),
        Recorder::last(10, &file.0, &header),
        Recorder::in_memory(10, &header),
        Recorder::in_memory(10, &Header::default())
            .unwrap()
            .and_in_memory(10, &header),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(
            error
                .to_string()
                .starts_with("the command line is too long"),
            "{error}"
        );
    }
    assert!(!file.0.exists(), "nothing has been written");
}

// ---- anything at all

/// The chunks of a recording: where their payloads lie.
fn payloads(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut at = 10;
    let mut payloads = Vec::new();
    while let Some(len) = bytes.get(at..at + 4) {
        let len = u32::from_le_bytes(len.try_into().unwrap()) as usize;
        payloads.push(at + 8..at + 8 + len);
        at += 8 + len;
    }
    payloads
}

fn owned(tid: u64, fact: Fact<'_>) -> OwnedEvent {
    let (at, tid) = (Duration::from_nanos(tid), tid.into());
    OwnedEvent::from(&Event {
        at,
        tid,
        fact,
        place: None,
    })
}

/// The kind of the record that ends a recording.
const END: u8 = 12;

proptest! {
    #[test]
    fn whatever_can_happen_is_read_back_as_it_was(events in prop::collection::vec(anything::event(), 0..40)) {
        let (read, missing) = read_well(record("any", &events));
        prop_assert_eq!(&read, &events);
        prop_assert_eq!(lines(&read), lines(&events));
        prop_assert_eq!(missing, 0);
    }

    #[test]
    fn no_bytes_confuse_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..1000), is_framed: bool) {
        let mut all = EVERYTHING[..payloads(&EVERYTHING)[0].end].to_vec();
        if is_framed {
            all.extend((bytes.len() as u32).to_le_bytes());
            all.extend(crc32fast::hash(&bytes).to_le_bytes());
        }
        // Bytes with the right checksum may be a whole recording by chance: its end, and no more.
        let may_end = is_framed && bytes.iter().any(|byte| byte & 0x1f == END);
        all.extend(bytes);
        prop_assert!(read(all).2.is_some() || may_end);
    }

    /// Damage that the checksum does not show, as if somebody had meant it.
    #[test]
    fn no_damage_confuses_the_reader(
        damage in prop::collection::vec((any::<Index>(), any::<u8>()), 1..10),
        resealed: bool,
    ) {
        let mut bytes = EVERYTHING.clone();
        let payloads = payloads(&bytes);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if resealed {
            for payload in payloads {
                let sum = crc32fast::hash(&bytes[payload.clone()]).to_le_bytes();
                bytes[payload.start - 4..payload.start].copy_from_slice(&sum);
            }
        }
        read(bytes);
    }
}
