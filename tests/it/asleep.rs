//! What is in a file when the process may be killed: everything up to the last sleep of the kernel,
//! and as much as fitted.

use std::{
    cell::{Cell, RefCell},
    io::{self, Cursor, ErrorKind},
    rc::Rc,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trapline::{
    Event, Fact, Happening, Kernel, Os, RealWorld, SimWorld, Tid, Tracer, World, forward_world,
    record::{Error, Header, OwnedEvent, Recorder, Recording},
    tape::{self, Playing, Taping},
};

use crate::support::*;

/// The real world. It looks at the files when the kernel may sleep.
struct Looking<F> {
    inner: RealWorld,
    look: F,
}

impl<F: FnMut()> World for Looking<F> {
    forward_world!(inner: now, now_for_log, random, reseed, seed, print, take_console);
    forward_world!(inner: is_idle, remote, submit, io, spins, spin);

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<Happening>,
    ) -> io::Result<()> {
        let now = self.inner.now();
        if deadline.is_none_or(|deadline| deadline > now) {
            (self.look)();
        }
        self.inner.wait(deadline, happened)
    }
}

fn looking<F: FnMut()>(look: F) -> Looking<F> {
    let inner = RealWorld::new().unwrap();
    Looking { inner, look }
}

const NAPS: usize = 5;

async fn naps(os: &mut Os) {
    for nap in 0..NAPS {
        let number = os.random().await;
        writeln!(os, "{nap}: {number}");
        os.sleep(Duration::from_millis(20)).await;
    }
}

/// Counts events, and how often it is told of a sleep.
#[derive(Clone, Default)]
struct Counts(Rc<Cell<usize>>, Rc<Cell<usize>>);

impl Tracer for Counts {
    fn event(&mut self, _: &Event<'_>) {
        self.0.set(self.0.get() + 1);
    }

    fn before_sleep(&mut self) {
        self.1.set(self.1.get() + 1);
    }
}

#[test]
fn a_recording_is_on_disk_when_the_kernel_sleeps() {
    let file = Scratch::new("asleep-recording");
    let (counts, looks) = (Counts::default(), Rc::new(Cell::new(0)));
    let (seen, looked, path) = (counts.clone(), Rc::clone(&looks), file.0.clone());
    let world = looking(move || {
        let events = Recording::open(&path).unwrap().map_while(Result::ok);
        assert_eq!(events.count(), seen.0.get());
        looked.set(looked.get() + 1);
    });
    let recorder = Recorder::create(&file.0, &Header::default()).unwrap();
    let builder = Kernel::builder().world(world).capture_console();
    let mut kernel = builder.tracer(recorder).tracer(counts).build().unwrap();
    kernel.spawn("naps", naps).unwrap();
    kernel.run().unwrap();
    assert!(looks.get() >= NAPS, "{}", looks.get());
}

#[test]
fn a_tape_is_on_disk_when_the_kernel_sleeps() {
    let file = Scratch::new("asleep-tape");
    let found: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let (path, looks) = (file.0.clone(), Rc::clone(&found));
    let world = looking(move || looks.borrow_mut().push(std::fs::read(&path).unwrap()));
    let world = Taping::create(world, &file.0, &Header::default(), None).unwrap();
    let mut kernel = Kernel::builder()
        .world(world)
        .capture_console()
        .build()
        .unwrap();
    kernel.spawn("naps", naps).unwrap();
    kernel.run().unwrap();
    let printed = kernel.take_console();
    let mut naps_taken: Vec<usize> = Vec::new();
    for bytes in found.take() {
        let world = Playing::from_reader(Cursor::new(bytes)).unwrap();
        let mut kernel = Kernel::builder()
            .world(world)
            .capture_console()
            .build()
            .unwrap();
        kernel.spawn("naps", naps).unwrap();
        let error = kernel.run().unwrap_err();
        let error = tape::Error::of(&error).unwrap();
        assert!(matches!(error, tape::Error::Truncated { .. }), "{error}");
        let again = kernel.take_console();
        assert!(printed.starts_with(&again), "{again}");
        naps_taken.push(again.lines().count());
    }
    naps_taken.dedup();
    let all: Vec<usize> = (1..=NAPS).collect();
    assert_eq!(
        naps_taken, all,
        "each sleep finds all that was printed before it"
    );
}

#[test]
fn a_virtual_clock_does_not_sleep() {
    for (world, sleeps) in [(false, false), (true, true)] {
        let counts = Counts::default();
        let builder = Kernel::builder().capture_console().tracer(counts.clone());
        let builder = match world {
            false => builder.world(SimWorld::new(1)),
            true => builder.world(RealWorld::new().unwrap()),
        };
        let mut kernel = builder.build().unwrap();
        kernel.spawn("naps", naps).unwrap();
        kernel.run().unwrap();
        assert_eq!(counts.1.get() > 0, sleeps);
    }
}

fn turn(number: u64) -> OwnedEvent {
    let event = Event {
        at: Duration::from_nanos(number * number),
        tid: Tid::from(number),
        fact: Fact::Resumed,
        place: None,
    };
    (&event).into()
}

/// Whatever the room, and however much is written at once, the file has what fitted, and says why it
/// ends.
#[test]
fn a_file_that_may_not_grow_has_what_fitted() {
    let test = "asleep::a_file_that_may_not_grow_has_what_fitted";
    alone(test, || {
        // The write fails then, and the signal ends no process.
        let ignored = Arc::<AtomicBool>::default();
        signal_hook::flag::register(signal_hook::consts::SIGXFSZ, ignored).unwrap();
        let limit = |most: Option<u64>| {
            let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
            let current = most.or(maximum);
            setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
        };
        for (step, at_once) in [(3, 1), (7, 3), (11, 5000)] {
            for room in (100..9000).step_by(step * 13) {
                let file = Scratch::new("limit");
                let mut recorder = Recorder::create(&file.0, &Header::default()).unwrap();
                limit(Some(room));
                for number in 1..3000 {
                    recorder.event(&turn(number));
                    if number.is_multiple_of(at_once) {
                        let _ = recorder.handle().flush();
                    }
                }
                let closed = recorder.handle().close().unwrap_err();
                limit(None);
                assert_eq!(closed.kind(), ErrorKind::FileTooLarge);
                let len = file.bytes().len() as u64;
                assert!(len <= room && room - len < 64, "{len} of {room}");
                let mut read: Vec<_> = Recording::open(&file.0).unwrap().collect();
                let end = read.pop().unwrap().unwrap_err();
                let is_told = matches!(&end, Error::Unwritten { offset, error }
                    if *offset + 8 == len && *error == ErrorKind::FileTooLarge);
                assert!(is_told, "{end:?} with {room}");
                for (number, event) in (1..).zip(read) {
                    assert_eq!(event.unwrap(), turn(number));
                }
            }
        }
    });
}
