//! Recordings: what is written can be read, whatever it is and whatever became of the file.

use std::{
    fs,
    io::{self, Cursor},
    net::SocketAddr,
    path::PathBuf,
    sync::LazyLock,
    time::Duration,
};

use proptest::{
    prelude::*,
    sample::{Index, select},
};
use trapline::{
    Detail, DeviceId, Direction, End, Errno, Event, Exit, Fact, Kernel, Nanos, On, Queue, QueueId,
    Reply, SimWorld, SystemCall, Tid, Tracer, Wake,
    record::{Error, Header, OwnedEvent, Recorder, Recording},
};

use crate::{
    log::{chaos, everything},
    support::*,
};

/// A file of a test's own, that goes with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let name = format!("{test}-{}.trap", std::process::id());
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

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
        recorder.event(&event.borrow());
    }
    recorder.tape().close().unwrap();
    file.bytes()
}

/// A recording of a run that has a bit of everything.
static EVERYTHING: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let file = Scratch::new("everything");
    let recorder = Recorder::create(&file.0, &Header::default()).unwrap();
    let tape = recorder.tape();
    recorded(recorder, async |os| {
        let _ = everything(os).await;
    });
    tape.close().unwrap();
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
    let run = |test| {
        let file = Scratch::new(test);
        let recorder = Recorder::create(&file.0, &Header::default()).unwrap();
        recorded(recorder, async |os| chaos(os).await.unwrap());
        read_well(file.bytes()).0
    };
    assert_eq!(run("twin-1"), run("twin-2"));
}

#[test]
fn texts_of_any_length_are_kept_up_to_a_limit() {
    let text = |len: usize| "\u{e9}".repeat(len / 2);
    for len in [0, 2, 127 * 2, 65_520, 65_536, 65_538, 1 << 20] {
        let text = text(len);
        let event = owned(1, Fact::Console { text: &text });
        let after = owned(2, Fact::Reaped);
        let events = [after.clone(), event, after];
        let (read, _) = read_well(record("texts", &events));
        assert_eq!(read, events, "{len}");
    }
    let huge = text(20 << 20);
    let events = [
        owned(1, Fact::Console { text: &huge }),
        owned(2, Fact::Reaped),
    ];
    let (read, _) = read_well(record("huge", &events));
    let Fact::Console { text: cut } = read[0].borrow().fact else {
        panic!("{}", read[0].tid)
    };
    assert!(huge.starts_with(cut) && cut.len() > 15 << 20 && cut.len() < 16 << 20);
    assert_eq!(read[1], events[1]);
}

#[test]
fn an_operating_systems_error_keeps_its_kind_and_text() {
    let refused = io::Error::from_raw_os_error(rustix::io::Errno::CONNREFUSED.raw_os_error());
    let detail = Detail::Io(&refused);
    let reply = Reply::Io;
    let (read, _) = read_well(record("io", &[owned(1, Fact::Replied { reply, detail })]));
    let Fact::Replied {
        detail: Detail::Io(error),
        ..
    } = read[0].borrow().fact
    else {
        panic!("{}", read[0])
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(error.to_string(), refused.to_string());
}

#[test]
fn nothing_is_recorded_after_the_tape_was_closed() {
    let file = Scratch::new("closed");
    let mut recorder = Recorder::create(&file.0, &Header::default()).unwrap();
    recorder.event(&owned(1, Fact::Resumed).borrow());
    recorder.tape().flush().unwrap();
    assert!(matches!(
        read(file.bytes()),
        (events, 0, Some(Error::Truncated { .. })) if events.len() == 1
    ));
    recorder.event(&owned(1, Fact::Reaped).borrow());
    recorder.tape().close().unwrap();
    let bytes = file.bytes();
    for _ in 0..100_000 {
        recorder.event(&owned(2, Fact::Resumed).borrow());
    }
    drop(recorder);
    assert_eq!(file.bytes(), bytes);
    assert_eq!(read_well(bytes).0.len(), 2);
}

// ---- what became of the file

#[test]
fn what_is_no_recording_is_refused() {
    let error = |bytes: &[u8]| read(bytes.to_vec()).2.expect("it is refused").to_string();
    let foreign = "this is no recording of trapline: it does not begin like one";
    for bytes in ["", "\n", "00:00.000 1 main spawned", "\u{89}PNG", "\x7fELF"] {
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
    assert!(Recording::open(env!("CARGO_TARGET_TMPDIR")).is_err());
}

#[test]
fn a_recording_cut_anywhere_gives_what_is_whole_and_says_where_it_ends() {
    let file = Scratch::new("cut");
    let mut recorder = Recorder::create(&file.0, &Header::default()).unwrap();
    let (events, _) = read_well(EVERYTHING.clone());
    for (at, event) in events.iter().enumerate() {
        recorder.event(&event.borrow());
        if at % 10 == 9 {
            recorder.tape().flush().unwrap();
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
            Error::Truncated { offset } => assert!(offset <= len as u64),
            Error::Foreign => assert_eq!(len, 0),
            error => panic!("{len}: {error}"),
        }
    }
    assert_eq!(most, events.len());
}

#[test]
fn a_damaged_chunk_is_found_and_what_stands_before_it_is_read() {
    let file = Scratch::new("damaged");
    let mut recorder = Recorder::create(&file.0, &Header::default()).unwrap();
    let event = owned(1, Fact::Console { text: "a text" });
    recorder.event(&event.borrow());
    recorder.tape().flush().unwrap();
    let second = file.bytes().len();
    recorder.event(&event.borrow());
    drop(recorder);
    let mut bytes = file.bytes();
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
fn a_chunk_that_claims_to_be_huge_takes_no_memory() {
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

proptest! {
    #[test]
    fn whatever_can_happen_is_read_back_as_it_was(events in prop::collection::vec(event(), 0..40)) {
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
        all.extend(bytes);
        prop_assert!(read(all).2.is_some());
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

// ---- anything that can happen

fn owned(tid: u64, fact: Fact<'_>) -> OwnedEvent {
    let (at, tid) = (Duration::from_nanos(tid), tid.into());
    OwnedEvent::from(&Event { at, tid, fact })
}

/// Real queues: nobody else can make up their names.
static QUEUES: LazyLock<Vec<QueueId>> = LazyLock::new(|| {
    let diary = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let ids = diary.clone();
    let tracer = move |event: &Event<'_>| {
        if let Fact::Replied {
            reply: Reply::Queue(id),
            ..
        } = event.fact
        {
            ids.lock().unwrap().push(id);
        }
    };
    let mut kernel = sim().tracer(tracer).build().unwrap();
    run_main(&mut kernel, async |os| {
        let mut kept = Vec::new();
        for n in 0..300 {
            let queue = Queue::<u8>::unbounded(os).await;
            if n % 3 == 0 {
                kept.push(queue);
            }
        }
    });
    let ids = diary.lock().unwrap().clone();
    assert_eq!(ids.len(), 300);
    ids
});

fn queue() -> impl Strategy<Value = QueueId> {
    select(&QUEUES[..])
}

/// Small numbers mostly.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..3_u64, 0..100_000_u64, any::<u64>()]
}

fn a_tid() -> impl Strategy<Value = Tid> {
    number().prop_map(Tid::from)
}

fn device() -> impl Strategy<Value = DeviceId> {
    number().prop_map(DeviceId::from)
}

fn nanos() -> impl Strategy<Value = Nanos> {
    number().prop_map(|n| Duration::from_nanos(n).into())
}

fn direction() -> impl Strategy<Value = Direction> {
    select(&[Direction::Read, Direction::Write][..])
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>(), 0..8).prop_map(String::from_iter)
}

fn exit() -> impl Strategy<Value = Exit> {
    prop_oneof![
        Just(Exit::Done),
        text().prop_map(Exit::Failed),
        text().prop_map(Exit::Faulted),
        Just(Exit::Killed),
    ]
}

fn call() -> impl Strategy<Value = SystemCall> {
    use SystemCall as C;
    prop_oneof![
        select(
            &[
                C::GetTid,
                C::Yield,
                C::NewTask,
                C::NewDetachedTask,
                C::Exit,
                C::Shutdown,
                C::Now,
                C::Random,
                C::Tasks,
                C::Submit,
                C::Attach,
                C::Listen,
                C::Connect,
            ][..]
        ),
        (select(&[C::KillTask, C::WaitTask][..]), a_tid()).prop_map(|(call, tid)| call(tid)),
        (select(&[C::Sleep, C::SleepUntil, C::Timeout][..]), nanos()).prop_map(|(call, n)| call(n)),
        number().prop_map(C::NewQueue),
        (
            select(&[C::Put, C::Get, C::TryPut, C::TryGet, C::CloseQueue][..]),
            queue()
        )
            .prop_map(|(call, queue)| call(queue)),
        (
            select(
                &[
                    C::ReadWait,
                    C::WriteWait,
                    C::Connected,
                    C::Accept,
                    C::Recv,
                    C::Send,
                    C::ShutdownWrite,
                    C::Close,
                ][..]
            ),
            device()
        )
            .prop_map(|(call, device)| call(device)),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    use Reply as R;
    prop_oneof![
        select(&[R::Done, R::Yes, R::No, R::Again, R::Exit, R::Tasks, R::Io][..]),
        select(
            &[
                Errno::NoSuchTask,
                Errno::WouldDeadlock,
                Errno::TooManyTasks,
                Errno::BadFd,
                Errno::Busy,
                Errno::Closed,
                Errno::Invalid,
            ][..]
        )
        .prop_map(R::Err),
        a_tid().prop_map(R::Tid),
        nanos().prop_map(R::Time),
        device().prop_map(R::Device),
        queue().prop_map(R::Queue),
        (
            select(
                &[
                    R::Random,
                    R::Bytes,
                    R::Message,
                    R::Full,
                    R::Timeout,
                    R::Elapsed
                ][..]
            ),
            number()
        )
            .prop_map(|(reply, number)| reply(number)),
    ]
}

fn on() -> impl Strategy<Value = On> {
    prop_oneof![
        a_tid().prop_map(On::Exit),
        nanos().prop_map(On::Timer),
        (device(), direction()).prop_map(|(device, direction)| On::Device(device, direction)),
        (queue(), select(&[End::Put, End::Get][..])).prop_map(|(queue, end)| On::Queue(queue, end)),
    ]
}

fn wake() -> impl Strategy<Value = Wake> {
    prop_oneof![
        a_tid().prop_map(Wake::Exit),
        select(&[Wake::Timer, Wake::Timeout][..]),
        (device(), direction()).prop_map(|(device, direction)| Wake::Device(device, direction)),
        device().prop_map(Wake::Closed),
        queue().prop_map(Wake::Queue),
    ]
}

fn error_kind() -> impl Strategy<Value = io::ErrorKind> {
    use io::ErrorKind as E;
    select(
        &[
            E::Other,
            E::WouldBlock,
            E::NotFound,
            E::BrokenPipe,
            E::TimedOut,
            E::OutOfMemory,
        ][..],
    )
}

/// What texts a detail or a fact may borrow from.
#[derive(Clone, Debug)]
struct Texts {
    text: String,
    exit: Exit,
    addr: SocketAddr,
    size: usize,
    error: io::ErrorKind,
}

fn texts() -> impl Strategy<Value = Texts> {
    (
        text(),
        exit(),
        any::<SocketAddr>(),
        any::<usize>(),
        error_kind(),
    )
        .prop_map(|(text, exit, addr, size, error)| Texts {
            text,
            exit,
            addr,
            size,
            error,
        })
}

fn event() -> impl Strategy<Value = OwnedEvent> {
    let calls = (call(), reply(), on(), wake());
    let rest = (a_tid(), device(), direction(), nanos());
    let which = (0..11, 0..7, any::<bool>());
    let whose = (nanos(), a_tid());
    (which, whose, calls, rest, texts()).prop_map(
        |(which, (at, tid), (call, reply, on, by), (parent, device, direction, from), texts)| {
            let (fact, detail, fails) = which;
            let error = io::Error::new(texts.error, texts.text.clone());
            let detail = match detail {
                0 => Detail::None,
                1 => Detail::Name(&texts.text),
                2 => Detail::Addr(texts.addr),
                3 => Detail::Len(texts.size),
                4 => Detail::Exit(&texts.exit),
                5 => Detail::Count(texts.size),
                _ => Detail::Io(&error),
            };
            let fact = match fact {
                0 => Fact::Spawned {
                    parent,
                    name: &texts.text,
                },
                1 => Fact::Resumed,
                2 => Fact::Trapped { call, detail },
                3 => Fact::Replied { reply, detail },
                4 => Fact::Blocked { on },
                5 => Fact::Woken { by },
                6 => {
                    let result = if fails {
                        Err(texts.error)
                    } else {
                        Ok(texts.size)
                    };
                    Fact::DeviceIo {
                        device,
                        direction,
                        result,
                    }
                }
                7 => Fact::Console { text: &texts.text },
                8 => Fact::Exited { exit: &texts.exit },
                9 => Fact::Reaped,
                _ => Fact::ClockJumped { from: from.into() },
            };
            let at = at.into();
            OwnedEvent::from(&Event { at, tid, fact })
        },
    )
}
