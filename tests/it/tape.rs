//! Tapes: a run in the real world, with real clients, runs again from its tape to the byte.

mod format;
mod mail;
mod sockets;

use std::{
    fs,
    io::{self, Cursor, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use proptest::prelude::*;
use socket2::SockRef;
use trapline::{
    Builder, Error, Event, Kernel, Os, Promise, RealWorld, Report, SimWorld, Step, Tracer, World,
    tape::{self, Header, Left, Playing, Taping},
};

use crate::{
    log::{chaos, everything},
    support::*,
};

const LOCALHOST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A tracer that takes the times of the polls: those are on the tape.
struct Lines(Diary);

impl Tracer for Lines {
    fn event(&mut self, event: &Event<'_>) {
        self.0.note(event.to_string());
    }

    fn is_exact(&self) -> bool {
        false
    }
}

/// What can be told of a run.
#[derive(PartialEq, Eq, Debug)]
struct Told {
    log: Vec<String>,
    console: String,
    exits: String,
}

/// Runs a kernel in a world. Answers what was told, and the error of the run.
fn run(builder: Builder, populate: impl FnOnce(&mut Kernel)) -> (Told, Option<Error>) {
    run_by(Kernel::run, builder, populate)
}

/// The same as a run, a step at a time.
fn in_steps(kernel: &mut Kernel) -> Result<Report, Error> {
    while kernel.step()? != Step::Finished {}
    Ok(kernel.report())
}

fn run_by(
    drive: impl FnOnce(&mut Kernel) -> Result<Report, Error>,
    builder: Builder,
    populate: impl FnOnce(&mut Kernel),
) -> (Told, Option<Error>) {
    let log = Diary::default();
    let mut kernel = builder.tracer(Lines(log.clone())).build().unwrap();
    populate(&mut kernel);
    let ended = drive(&mut kernel);
    let exits = |report: &Report| format!("{:?}", report.exits());
    let told = Told {
        log: log.lines(),
        console: kernel.take_console(),
        exits: ended.as_ref().map(exits).unwrap_or_default(),
    };
    (told, ended.err())
}

/// Runs a kernel, and tapes it. Answers the tape besides.
fn tape(
    world: impl World + 'static,
    max: Option<u64>,
    populate: impl FnOnce(&mut Kernel),
) -> (Told, Option<Error>, Vec<u8>) {
    static TAPES: AtomicU32 = AtomicU32::new(0);
    let number = TAPES.fetch_add(1, Ordering::Relaxed);
    let file = Scratch::new(&format!("tape-{number}"));
    let mut header = Header::default();
    header.command = vec!["server".to_string()];
    let world = Taping::create(world, &file.0, &header, max).unwrap();
    let mode = fs::metadata(&file.0).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for its owner alone");
    let (told, error) = run(
        Kernel::builder().world(world).seed(7).capture_console(),
        populate,
    );
    (told, error, file.bytes())
}

/// What a replay told, its error, and whether it used its tape to the last byte.
type Played = (Told, Option<Error>, Result<(), tape::Error>);

/// Plays a tape.
///
/// *Errors:* it cannot be opened.
fn play(tape: &[u8], populate: impl FnOnce(&mut Kernel)) -> Result<Played, tape::Error> {
    play_by(Kernel::run, tape, populate)
}

fn play_by(
    drive: impl FnOnce(&mut Kernel) -> Result<Report, Error>,
    tape: &[u8],
    populate: impl FnOnce(&mut Kernel),
) -> Result<Played, tape::Error> {
    let world = Playing::from_reader(Cursor::new(tape.to_vec()))?;
    assert_eq!(world.header().command, ["server"]);
    let progress = world.progress();
    let builder = Kernel::builder().world(world).capture_console();
    let (told, error) = run_by(drive, builder, populate);
    Ok((told, error, progress.finish()))
}

/// Tapes a run in the real world and plays the tape at once and in steps, which must tell the same.
fn tape_and_play(populate: impl Fn(&mut Kernel)) -> (Told, Vec<u8>) {
    let (told, error, bytes) = tape(RealWorld::new().unwrap(), None, &populate);
    let error = error.map(|error| error.to_string());
    for drive in [Kernel::run, in_steps] {
        let (again, error_again, finished) = play_by(drive, &bytes, &populate).unwrap();
        assert_eq!(error_again.map(|error| error.to_string()), error);
        assert_eq!(again, told);
        finished.unwrap();
    }
    (told, bytes)
}

// ---- servers and their clients

/// What a client does with its connection.
#[derive(Clone, Debug)]
enum Act {
    Send(usize),
    /// Reads what was sent, or a part of it.
    Read(usize),
    Pause(u32),
}

/// How a client ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Close,
    /// It ends its half and reads the rest.
    HalfClose,
    Reset,
}

type Script = (Vec<Act>, End);

fn scripts() -> impl Strategy<Value = Vec<Script>> {
    let act = prop_oneof![
        3 => (1..300_usize).prop_map(Act::Send),
        1 => (1..200_000_usize).prop_map(Act::Send),
        3 => (1..300_usize).prop_map(Act::Read),
        1 => (0..30_u32).prop_map(Act::Pause),
    ];
    let end = prop::sample::select(vec![End::Close, End::HalfClose, End::Reset]);
    let script = (prop::collection::vec(act, 0..8), end);
    prop::collection::vec(script, 1..8)
}

fn visit(addr: SocketAddr, (acts, end): Script) {
    let Ok(mut stream) = TcpStream::connect(addr) else {
        return;
    };
    let mut waiting = 0;
    for act in acts {
        // The answers of more would not fit: both sides would wait to write.
        let done = match act {
            Act::Send(n) if waiting + n <= 100_000 => {
                waiting += n;
                stream.write_all(&vec![b'x'; n])
            }
            Act::Send(_) => Ok(()),
            Act::Read(n) => {
                let n = n.min(waiting);
                waiting -= n;
                stream.read_exact(&mut vec![0; n])
            }
            Act::Pause(times) => {
                (0..times).for_each(|_| thread::yield_now());
                Ok(())
            }
        };
        if done.is_err() {
            return;
        }
    }
    let socket = SockRef::from(&stream);
    let _ = match end {
        End::Close => Ok(()),
        End::Reset => socket.set_linger(Some(Duration::ZERO)),
        End::HalfClose => socket
            .shutdown(std::net::Shutdown::Write)
            .and_then(|()| stream.read_to_end(&mut Vec::new()).map(drop)),
    };
}

/// An echo server that ends after so many clients.
async fn echo(os: &mut Os, clients: usize, begun: Sender<SocketAddr>) -> io::Result<()> {
    let listener = os.listen(LOCALHOST).await?;
    let addr = listener.local_addr()?;
    // A replay has no clients that wait for it.
    let _ = begun.send(addr);
    writeln!(os, "listening at {addr}");
    let mut handlers = Vec::new();
    for _ in 0..clients {
        let (stream, peer) = listener.accept(os).await?;
        let handler = async move |os: &mut Os| {
            let luck = os.random().await;
            writeln!(os, "{peer} {luck}");
            let mut buf = [0; 4096];
            let mut sum = 0;
            loop {
                let now = os.now().await;
                let n = match stream.recv(os, &mut buf).await {
                    Ok(n) => n,
                    Err(error) => {
                        writeln!(os, "{peer} lost after {sum} at {now:?}: {error}");
                        return Err(error);
                    }
                };
                if n == 0 {
                    writeln!(os, "{peer} left after {sum} at {now:?}");
                    return Ok(());
                }
                sum += n;
                stream.send_all(os, &buf[..n]).await?;
            }
        };
        handlers.push(os.spawn("client", handler).await?);
    }
    for handler in handlers {
        os.wait(handler).await?;
    }
    Ok(())
}

fn clients(scripts: Vec<Script>, begun: Receiver<SocketAddr>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let Ok(addr) = begun.recv() else { return };
        let visits = scripts.into_iter();
        let visits = visits.map(|script| thread::spawn(move || visit(addr, script)));
        for visit in visits.collect::<Vec<_>>() {
            visit.join().unwrap();
        }
    })
}

/// Starts an echo server for so many clients. Answers where its address comes from.
fn spawn_echo(kernel: &mut Kernel, clients: usize) -> Receiver<SocketAddr> {
    let (begun, wait) = channel();
    let main = async move |os: &mut Os| echo(os, clients, begun).await;
    kernel.spawn("main", main).unwrap();
    wait
}

/// A taped run of an echo server with these clients.
fn taped_echo(scripts: &[Script], max: Option<u64>) -> (Told, Vec<u8>) {
    let mut outside = None;
    let (told, error, bytes) = tape(RealWorld::new().unwrap(), max, |kernel| {
        let begun = spawn_echo(kernel, scripts.len());
        outside = Some(clients(scripts.to_vec(), begun));
    });
    assert!(error.is_none(), "{error:?}");
    outside.unwrap().join().unwrap();
    (told, bytes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_server_with_real_clients_runs_again_to_the_byte(scripts in scripts()) {
        let (told, bytes) = taped_echo(&scripts, None);
        let populate = |kernel: &mut Kernel| drop(spawn_echo(kernel, scripts.len()));
        let (again, error, finished) = play(&bytes, populate).unwrap();
        prop_assert_eq!(again, told);
        prop_assert!(error.is_none() && finished.is_ok(), "{:?} {:?}", error, finished);
    }
}

#[test]
fn computations_run_again_without_their_time_and_spins_are_not_on_the_tape() {
    let (told, bytes) = tape_and_play(|kernel| {
        for name in ["one", "other"] {
            let work = async |os: &mut Os| {
                os.compute(Duration::from_millis(3)).await;
                let now = os.now().await;
                writeln!(os, "done at {now:?}");
            };
            kernel.spawn(name, work).unwrap();
        }
    });
    assert!(!told.console.is_empty());
    // Each reading of the clock takes at least a byte, and a spin reads it all the time.
    assert!(bytes.len() < 1000, "{}", bytes.len());
}

// ---- everything that a world answers

/// A server and its client, work on a thread, a promise that a thread sets, time and randomness.
/// At the end a thread shuts the kernel down.
fn spawn_everything(kernel: &mut Kernel) {
    let remote = kernel.remote();
    let main = async move |os: &mut Os| {
        let listener = os.listen(LOCALHOST).await?;
        let addr = listener.local_addr()?;
        os.spawn("server", async move |os| {
            let (stream, _) = listener.accept(os).await?;
            let mut buf = [0; 64];
            loop {
                let n = stream.recv(os, &mut buf).await?;
                if n == 0 {
                    return Ok::<(), io::Error>(());
                }
                stream.send_all(os, &buf[..n]).await?;
            }
        })
        .await?;
        let stream = os.connect(addr).await?;
        let mut buf = [0; 64];
        for n in 0..20 {
            let number = os.run_blocking(move || 7 * n).await.unwrap();
            let sent = format!("{number} {}", os.random().await);
            stream.send_all(os, sent.as_bytes()).await?;
            let n = stream.recv(os, &mut buf).await?;
            writeln!(os, "{}", String::from_utf8_lossy(&buf[..n]));
            os.sleep(Duration::from_micros(200)).await;
        }
        let (setter, promise) = Promise::<u32>::new(os).await;
        let setter = setter.remote();
        os.run_blocking(move || setter.set(42).unwrap())
            .await
            .unwrap();
        let value = promise.wait(os).await;
        writeln!(os, "{value:?}");
        writeln!(os, "all is told");
        os.run_blocking(move || remote.shutdown()).await.unwrap();
        os.sleep(Duration::MAX).await;
        Ok::<(), io::Error>(())
    };
    kernel.spawn("main", main).unwrap();
}

#[test]
fn threads_promises_and_a_shutdown_run_again() {
    let (told, _) = tape_and_play(spawn_everything);
    assert_eq!(told.console.lines().count(), 22);
    assert!(told.console.ends_with("Ok(42)\nall is told\n"));
}

#[test]
fn a_tape_of_an_earlier_version_is_played() {
    let tape = include_bytes!("old/run.tape");
    let (told, error, finished) = play(tape, spawn_everything).unwrap();
    assert_eq!(told.console, include_str!("old/tape.txt"));
    assert!(
        error.is_none() && finished.is_ok(),
        "{error:?} {finished:?}"
    );
}

#[test]
fn work_runs_again_when_the_tape_reports_it_whatever_the_order_then() {
    let (told, _) = tape_and_play(|kernel| {
        let main = async |os: &mut Os| {
            let mut tasks = Vec::new();
            for n in 0..8_u64 {
                let work = async move |os: &mut Os| {
                    let pause = Duration::from_millis(8 - n);
                    let work = move || {
                        trapline::pause(pause);
                        n * n
                    };
                    let square = os.run_blocking(work).await.unwrap();
                    writeln!(os, "{n}: {square}");
                };
                tasks.push(os.spawn("work", work).await.unwrap());
            }
            for task in tasks {
                os.wait(task).await.unwrap();
            }
            let panicked = os.run_blocking(|| panic!("too much")).await;
            writeln!(os, "{:?}", panicked.unwrap_err());
        };
        kernel.spawn("main", main).unwrap();
    });
    assert!(told.console.ends_with("Panicked(\"too much\")\n"));
    assert_eq!(told.console.lines().count(), 9);
}

#[test]
fn a_recorded_value_is_on_the_tape_and_its_work_is_not_done_again() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    let (told, _) = tape_and_play(|kernel| {
        let main = async |os: &mut Os| {
            let work = || (DONE.fetch_add(1, Ordering::Relaxed), "x".repeat(10_000));
            let (number, long) = os.run_recorded(work).await.unwrap();
            writeln!(os, "{number} {}", long.len());
            let panics = || -> u32 { panic!("it is {}", DONE.load(Ordering::Relaxed)) };
            let panicked = os.run_recorded(panics).await.unwrap_err();
            writeln!(os, "{panicked}");
            // Its keys are no texts.
            let pairs = || std::collections::BTreeMap::from([((1, 2), 3)]);
            let unknown = os.run_recorded(pairs).await.unwrap_err();
            writeln!(os, "{unknown}");
        };
        kernel.spawn("main", main).unwrap();
    });
    let lines: Vec<_> = told.console.lines().collect();
    assert_eq!(lines[..2], ["0 10000", "panicked: it is 1"]);
    assert!(
        lines[2].contains("the value cannot be recorded: "),
        "{}",
        lines[2]
    );
    assert_eq!(DONE.load(Ordering::Relaxed), 1);
    // Elsewhere it is as `run_blocking`.
    let mut kernel = Kernel::simulated(0);
    let main = async |os: &mut Os| {
        let value = os
            .run_recorded(|| DONE.fetch_add(1, Ordering::Relaxed))
            .await;
        writeln!(os, "{value:?}");
    };
    kernel.spawn("main", main).unwrap();
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "Ok(1)\n");
}

#[test]
fn a_thread_of_the_program_is_waited_for_where_the_tape_has_heard_of_it() {
    tape_and_play(|kernel| {
        let main = async |os: &mut Os| {
            let (setter, promise) = Promise::<u32>::new(os).await;
            let setter = setter.remote();
            let thread = thread::spawn(move || setter.set(7).unwrap());
            let value = promise.wait(os).await;
            thread.join().unwrap();
            writeln!(os, "{value:?}");
        };
        kernel.spawn("main", main).unwrap();
    });
}

/// In the run the task receives the value before the thread drops the last setter, and in the replay
/// after: the drop closes nothing.
#[test]
fn a_promise_that_a_thread_sets_is_closed_once() {
    let runs = AtomicU32::new(0);
    tape_and_play(|kernel| {
        let is_first = runs.fetch_add(1, Ordering::Relaxed) == 0;
        let main = async move |os: &mut Os| {
            let (setter, promise) = Promise::<u32>::new(os).await;
            let remote = setter.remote();
            drop(setter);
            let (received, is_received) = channel::<()>();
            let thread = thread::spawn(move || {
                remote.set(7).unwrap();
                if is_first {
                    is_received.recv().unwrap();
                }
            });
            let mut thread = Some(thread);
            let mut join = || thread.take().map(|thread| thread.join().unwrap());
            if !is_first {
                join();
            }
            let value = promise.wait(os).await;
            // The thread of a replay has ended.
            let _ = received.send(());
            join();
            os.sleep(Duration::from_millis(1)).await;
            writeln!(os, "{value:?}");
        };
        kernel.spawn("main", main).unwrap();
    });
}

#[test]
fn a_simulated_world_can_be_taped_too() {
    let spawn = |kernel: &mut Kernel| {
        let main = async |os: &mut Os| {
            everything(os).await.unwrap();
            chaos(os).await.unwrap();
            // The simulated world runs the work in place.
            let work = || trapline::pause(Duration::from_secs(9));
            os.run_blocking(work).await.unwrap();
        };
        kernel.spawn("main", main).unwrap();
    };
    let (told, error, bytes) = tape(SimWorld::new(3), None, spawn);
    let (again, error_again, finished) = play(&bytes, spawn).unwrap();
    assert!(error.is_none() && error_again.is_none());
    assert_eq!(again, told);
    finished.unwrap();
}

#[test]
fn a_deadlock_that_a_world_without_devices_finds_is_found_again() {
    let spawn = |kernel: &mut Kernel| {
        let main = async |os: &mut Os| os.wait(2.into()).await.map(drop);
        kernel.spawn("main", main).unwrap();
        let other = async |os: &mut Os| os.wait(1.into()).await.map(drop);
        kernel.spawn("other", other).unwrap();
    };
    let (told, error, bytes) = tape(SimWorld::new(3), None, spawn);
    let (again, error_again, _) = play(&bytes, spawn).unwrap();
    assert!(matches!(error, Some(Error::Deadlock(_))));
    assert!(matches!(error_again, Some(Error::Deadlock(_))));
    assert_eq!(again, told);
}

fn without_times(log: &[String]) -> Vec<&str> {
    log.iter()
        .filter_map(|line| Some(line.split_once(' ')?.1))
        .collect()
}

#[test]
fn tracers_and_daemons_may_differ_between_the_runs() {
    let scripts: Vec<Script> = vec![(vec![Act::Send(10), Act::Read(10)], End::HalfClose); 3];
    let (told, bytes) = taped_echo(&scripts, None);
    let (again, error, finished) = play(&bytes, |kernel| {
        spawn_daemons(kernel);
        drop(spawn_echo(kernel, scripts.len()));
    })
    .unwrap();
    assert!(error.is_none(), "{error:?}");
    // A daemon observes the tasks, and asks for exact times.
    assert_eq!(without_times(&again.log), without_times(&told.log));
    assert_eq!((again.console, again.exits), (told.console, told.exits));
    finished.unwrap();

    // The other way round: the daemons of the run on the tape are not missed.
    let mut outside = None;
    let (told, _, bytes) = tape(RealWorld::new().unwrap(), None, |kernel| {
        spawn_daemons(kernel);
        kernel.spawn_daemon("visitor", async |os: &mut Os| {
            let listener = os.listen(LOCALHOST).await.unwrap();
            let addr = listener.local_addr().unwrap();
            os.run_blocking(move || drop(TcpStream::connect(addr)))
                .await
                .unwrap();
            listener.accept(os).await.unwrap();
        });
        let begun = spawn_echo(kernel, scripts.len());
        outside = Some(clients(scripts.clone(), begun));
    });
    outside.unwrap().join().unwrap();
    let populate = |kernel: &mut Kernel| drop(spawn_echo(kernel, scripts.len()));
    let (again, error, finished) = play(&bytes, populate).unwrap();
    assert!(error.is_none(), "{error:?}");
    assert_eq!(again.console, told.console);
    assert_eq!(again.exits, told.exits);
    finished.unwrap();

    // A tracer that asks for exact times reads a clock that is not on the tape.
    let world = Playing::from_reader(Cursor::new(bytes)).unwrap();
    let (mut kernel, log) = logged(Kernel::builder().world(world).capture_console());
    drop(spawn_echo(&mut kernel, scripts.len()));
    kernel.run().unwrap();
    assert!(!log.lines().is_empty());
}

// ---- what leaves a tape

/// How a replay by another program ends.
fn left(bytes: &[u8], program: impl AsyncFnOnce(&mut Os) -> io::Result<()> + 'static) -> Left {
    let (_, error, finished) = play(bytes, |kernel| {
        kernel.spawn("main", program).unwrap();
    })
    .unwrap();
    assert!(finished.is_err());
    let error = error.expect("the replay leaves its tape");
    match tape::Error::of(&error) {
        Some(tape::Error::Left(left)) => Left::clone(left),
        _ => panic!("another error: {error}"),
    }
}

#[test]
fn a_replay_that_leaves_its_tape_says_where_and_what() {
    let script = (vec![Act::Send(5), Act::Read(5)], End::HalfClose);
    let (_, bytes) = taped_echo(&[script], None);
    let deaf = left(&bytes, async |os: &mut Os| {
        os.sleep(Duration::from_secs(1)).await;
        os.listen(LOCALHOST).await.map(drop)
    });
    assert_eq!(deaf.task, tid(1));
    assert_eq!(
        (&*deaf.asked, &*deaf.found),
        ("the time", "listen on device 1")
    );
    assert_eq!(
        deaf.to_string(),
        format!(
            "the replay leaves its tape at byte {}: task 1 asks for the time, and the tape has \
             listen on device 1",
            deaf.offset
        )
    );

    let talkative = left(&bytes, async |os: &mut Os| {
        let listener = os.listen(LOCALHOST).await?;
        let addr = listener.local_addr()?;
        writeln!(os, "listening at {addr}");
        let (stream, _) = listener.accept(os).await?;
        stream.send_all(os, b"hello").await
    });
    assert_eq!(talkative.asked, "send of 5 bytes on device 2");
    assert_eq!(
        (talkative.task, &*talkative.found),
        (tid(1), "a random number or a choice")
    );
    assert!(talkative.offset > deaf.offset && talkative.offset < bytes.len() as u64);

    let shorter = left(&bytes, async |os: &mut Os| {
        let listener = os.listen(LOCALHOST).await?;
        listener.accept(os).await?;
        Ok(())
    });
    assert_eq!(shorter.asked, "close on device 2");
}

#[test]
fn a_send_of_another_length_or_on_another_device_leaves_the_tape() {
    // Sends so many bytes on one of two pipes.
    let sends = |pipe: usize, text: &'static [u8]| {
        async move |os: &mut Os| {
            let (_first, writer) = io::pipe()?;
            let (_second, other) = io::pipe()?;
            let writers = [os.attach(writer).await?, os.attach(other).await?];
            writers[pipe].send(os, text).await.map(drop)
        }
    };
    let (_, error, bytes) = tape(RealWorld::new().unwrap(), None, |kernel| {
        kernel.spawn("main", sends(0, b"hello")).unwrap();
    });
    assert!(error.is_none(), "{error:?}");
    let found = "send of 5 bytes on device 1";
    let longer = left(&bytes, sends(0, b"hello!"));
    let expected = ("send of 6 bytes on device 1", found);
    assert_eq!((&*longer.asked, &*longer.found), expected);
    let elsewhere = left(&bytes, sends(1, b"hello"));
    let expected = ("send of 5 bytes on device 2", found);
    assert_eq!((&*elsewhere.asked, &*elsewhere.found), expected);
}

#[test]
fn a_program_that_ends_before_its_tape_is_told_so() {
    let (_, bytes) = taped_echo(&[(vec![Act::Send(5)], End::Close)], None);
    let (told, error, finished) = play(&bytes, |kernel| {
        let listen = async |os: &mut Os| {
            let listener = os.listen(LOCALHOST).await?;
            let addr = listener.local_addr()?;
            writeln!(os, "listening at {addr}");
            io::Result::Ok(())
        };
        kernel.spawn("main", listen).unwrap();
    })
    .unwrap();
    // The close of the listener is not on the tape; it is no reason to fail.
    assert!(told.console.starts_with("listening at"));
    drop(error);
    let Err(tape::Error::Left(left)) = finished else {
        panic!("{finished:?}");
    };
    assert_eq!(
        (left.asked.as_str(), left.found.as_str()),
        ("the end", "more")
    );
}

#[test]
fn a_replay_computes_as_the_world_of_the_tape() {
    let spawn = |kernel: &mut Kernel| {
        for name in ["one", "two"] {
            let task = async move |os: &mut Os| {
                os.sleep(Duration::from_millis(1)).await;
                for _ in 0..2 {
                    os.compute(Duration::from_millis(3)).await;
                    let now = os.now().await;
                    writeln!(os, "{name} {now:?}");
                }
            };
            kernel.spawn(name, task).unwrap();
        }
    };
    let worlds: [Box<dyn World>; 2] = [
        Box::new(SimWorld::new(1)),
        Box::new(RealWorld::new().unwrap()),
    ];
    for world in worlds {
        let (told, error, tape) = tape(world, None, spawn);
        assert!(error.is_none());
        let (again, error, used) = play(&tape, spawn).unwrap();
        assert!(error.is_none(), "{error:?}");
        assert_eq!(again, told);
        used.unwrap();
    }
}

#[test]
fn s97_the_choices_of_a_run_are_on_its_tape() {
    let (told, _) = tape_and_play(|kernel| {
        let task = async |os: &mut Os| {
            for _ in 0..3 {
                let chosen = os.choose_named("which", 1 << 40).await;
                writeln!(os, "{chosen}");
            }
        };
        kernel.spawn("task", task).unwrap();
    });
    assert_eq!(told.console.lines().count(), 3);
}
