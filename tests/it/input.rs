//! Standard input and the time of day: in the simulated world, in the real one with a text, on tapes.
//! The tests of the binary have terminals, pipes and files.

use std::{
    cell::RefCell,
    io::{self, Cursor, Read, Write},
    rc::Rc,
    time::{Duration, SystemTime},
};

use trapline::{
    Answer, Builder, Calls, Direction, Elapsed, Error, Exit, Fault, Inject, Input, Kernel, Leap,
    Limits, Os, RealWorld, Request, SimWorld, Source, SystemCall, World, check, forward_world,
    tape::{Header, Playing, Taping},
};

use crate::support::*;

const SECOND: Duration = Duration::from_secs(1);

/// Runs a program with this input in both worlds.
fn reads<T: trapline::IntoExit>(
    text: impl AsRef<[u8]>,
    program: impl AsyncFnOnce(&mut Os) -> T + Copy + 'static,
) {
    for builder in [sim(), Kernel::builder()] {
        let mut kernel = builder.input(text.as_ref()).build().unwrap();
        kernel.spawn("main", program).unwrap();
        kernel.run().unwrap().check().unwrap();
    }
}

#[test]
fn lines_come_without_their_ends_and_the_last_needs_none() {
    reads("a\n\nb\r\nc\rd", async |os| {
        for line in ["a", "", "b", "c\rd"] {
            assert_eq!(os.read_line().await?.as_deref(), Some(line));
        }
        for _ in 0..2 {
            assert_eq!(os.read_line().await?, None);
        }
        io::Result::Ok(())
    });
}

#[test]
fn a_simulated_world_without_a_text_has_the_end_at_once() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            assert_eq!(os.read_line().await?, None);
            let input = os.input().await?;
            os.read_wait(&input).await?;
            assert_eq!(input.recv(os, &mut [0; 8]).await?, 0);
            io::Result::Ok(())
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn what_read_line_has_read_ahead_comes_first_everywhere() {
    reads("one\ntwo\nthree\nfour", async |os| {
        assert_eq!(os.read_line().await?.as_deref(), Some("one"));
        let input: Input = os.input().await?;
        let mut buf = [0; 2];
        // Readiness is that of the bytes that are there, whatever the world says.
        assert_eq!(os.select(&[Source::readable(&input)]).await, 0);
        os.read_wait(&input).await?;
        assert_eq!(input.recv(os, &mut buf).await?, 2);
        assert_eq!(&buf, b"tw");
        drop(input);
        assert_eq!(os.read_line().await?.as_deref(), Some("o"));
        let other = os.spawn_child("other", async |os| os.read_line().await);
        let line = other.await?.wait(os).await.unwrap()?;
        assert_eq!(line.as_deref(), Some("three"));
        let mut rest = [0; 64];
        let n = os.input().await?.recv(os, &mut rest).await?;
        assert_eq!(&rest[..n], b"four");
        assert_eq!(os.read_line().await?, None);
        io::Result::Ok(())
    });
}

#[test]
fn all_tasks_have_one_device_which_stays_open_until_it_is_closed() {
    reads("a\nb\n", async |os| {
        let (one, two) = (os.input().await?, os.input().await?);
        let id = one.id();
        assert_eq!(two.id(), id);
        drop((one, two));
        assert_eq!(os.read_line().await?.as_deref(), Some("a"));
        let again = os.input().await?;
        assert_eq!(again.id(), id);
        again.close(os).await?;
        assert_eq!(os.read_line().await?.as_deref(), Some("b"));
        assert_ne!(os.input().await?.id(), id);
        let error = os.input().await?.send(os, b"x").await.unwrap_err();
        writeln!(os, "{error}");
        io::Result::Ok(())
    });
}

#[test]
fn a_line_that_is_no_text_is_taken_and_one_that_is_too_long_stays() {
    reads(b"\xff\xfe\nfine\n", async |os| {
        let error = os.read_line().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("is not UTF-8"), "{error}");
        assert_eq!(os.read_line().await?.as_deref(), Some("fine"));
        io::Result::Ok(())
    });
    const MIB: usize = 1 << 20;
    let exact = [&vec![b'x'; MIB - 1][..], b"\n"].concat();
    reads(&exact, async |os| {
        assert_eq!(os.read_line().await?.map(|line| line.len()), Some(MIB - 1));
        io::Result::Ok(())
    });
    let longer = [&vec![b'x'; MIB][..], b"\nnext"].concat();
    reads(&longer, async |os| {
        for _ in 0..2 {
            let error = os.read_line().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains("longer than 1 MiB"), "{error}");
        }
        let (input, mut left) = (os.input().await?, MIB);
        while left > 0 {
            left -= input.recv(os, &mut vec![0; left]).await?;
        }
        assert_eq!(os.read_line().await?.as_deref(), Some(""));
        assert_eq!(os.read_line().await?.as_deref(), Some("next"));
        io::Result::Ok(())
    });
}

/// A world whose input is ready when a task asks the second time, and comes a byte at a time.
struct Slow {
    inner: SimWorld,
    text: &'static [u8],
    input: Option<trapline::DeviceId>,
    owed: bool,
    is_ready: bool,
}

impl Slow {
    fn new(text: &'static [u8]) -> Self {
        Self {
            inner: SimWorld::new(1),
            text,
            input: None,
            owed: false,
            is_ready: false,
        }
    }
}

impl World for Slow {
    forward_world!(inner: now, now_for_log, random, reseed, seed, print, take_console, remote);

    fn wait(
        &mut self,
        deadline: Option<Duration>,
        happened: &mut Vec<trapline::Happening>,
    ) -> io::Result<()> {
        if std::mem::take(&mut self.owed) {
            self.is_ready = true;
            let input = self.input.unwrap();
            happened.push(trapline::Happening::Ready(input, Direction::Read));
            let now = self.inner.now();
            return self.inner.wait(Some(now), happened);
        }
        self.inner.wait(deadline, happened)
    }

    fn io(&mut self, device: trapline::DeviceId, request: Request<'_>) -> io::Result<Answer> {
        match request {
            Request::Input => {
                self.input = Some(device);
                Ok(Answer::Done)
            }
            Request::Drained => Ok(Answer::Ready(false)),
            Request::Recv(buf) => {
                self.owed = !std::mem::take(&mut self.is_ready);
                match self.text.split_first() {
                    _ if self.owed => Err(io::ErrorKind::WouldBlock.into()),
                    None => Ok(Answer::Bytes(0)),
                    Some((first, rest)) => {
                        (buf[0], self.text) = (*first, rest);
                        Ok(Answer::Bytes(1))
                    }
                }
            }
            _ => Ok(Answer::Done),
        }
    }
}

#[test]
fn a_second_reader_gets_busy_and_a_line_in_pieces_is_whole() {
    let mut kernel = Kernel::builder()
        .world(Slow::new(b"abc\nde"))
        .build()
        .unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            let other = os.spawn_child("other", async |os: &mut Os| os.read_line().await);
            let mut other = other.await?;
            os.yield_now().await;
            let error = os.read_line().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
            let line = other.wait(os).await.unwrap()?;
            assert_eq!(line.as_deref(), Some("abc"));
            assert_eq!(os.read_line().await?.as_deref(), Some("de"));
            assert_eq!(os.read_line().await?, None);
            io::Result::Ok(())
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn a_line_cut_in_the_middle_by_a_kill_a_timeout_or_a_cancel_loses_no_byte() {
    for steps in 0..12 {
        for how in ["kill", "timeout", "cancel"] {
            let world = Slow::new(b"abcd\nefgh\n");
            let mut kernel = Kernel::builder().world(world).build().unwrap();
            let seen = Diary::default();
            let diary = seen.clone();
            kernel
                .spawn("main", async move |os: &mut Os| {
                    let (own, scope) = (diary.clone(), trapline::Scope::new());
                    let within = scope.clone();
                    let reader = os.spawn("reader", async move |os: &mut Os| {
                        let read = async |os: &mut Os| {
                            while let Ok(Some(line)) = os.read_line().await {
                                own.note(line);
                            }
                        };
                        if how == "timeout" {
                            let _ = os.timeout(Duration::from_nanos(1), read).await;
                        } else {
                            let _ = within.run(os, read).await;
                        }
                    });
                    let reader = reader.await.unwrap();
                    for _ in 0..steps {
                        os.yield_now().await;
                    }
                    match how {
                        "kill" => drop(os.kill(reader).await),
                        "cancel" => scope.cancel(os).await,
                        _ => os.sleep(SECOND).await,
                    }
                    let _ = os.wait(reader).await;
                    while let Some(line) = os.read_line().await.unwrap() {
                        diary.note(line);
                    }
                })
                .unwrap();
            kernel.run().unwrap().check().unwrap();
            assert_eq!(seen.lines(), ["abcd", "efgh"], "{how} after {steps}");
        }
    }
}

#[test]
fn in_every_schedule_each_line_is_read_once_whatever_is_cut() {
    check(|kernel: &mut Kernel| -> Result<(), Error> {
        kernel.input("a\nb\nc")?;
        let lines = Diary::default();
        let diary = lines.clone();
        kernel.spawn("main", async move |os: &mut Os| {
            let own = diary.clone();
            let reader = os.spawn("reader", async move |os: &mut Os| {
                if let Ok(Some(line)) = os.read_line().await {
                    own.note(line);
                }
            });
            let reader = reader.await.unwrap();
            let own = diary.clone();
            let hasty = async |os: &mut Os| {
                if let Ok(Some(line)) = os.read_line().await {
                    own.note(line);
                }
            };
            let _ = os.timeout(Duration::ZERO, hasty).await;
            os.kill(reader).await;
            loop {
                match os.read_line().await {
                    Ok(Some(line)) => diary.note(line),
                    Ok(None) => break,
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::ResourceBusy),
                }
            }
        })?;
        kernel.run()?.check()?;
        kernel.outcome(lines.lines().len().to_string());
        let mut lines = lines.lines();
        lines.sort();
        assert_eq!(lines, ["a", "b", "c"]);
        Ok(())
    })
    .exhaustive()
    .run();
}

#[test]
fn a_kernel_that_is_as_new_reads_from_the_begin_again() {
    let mut kernel = sim().input("a\nb\n").build().unwrap();
    for seed in 1..=2 {
        kernel.reset(seed).unwrap();
        kernel
            .spawn("main", async |os: &mut Os| {
                let line = os.read_line().await.unwrap();
                assert_eq!(line.as_deref(), Some("a"));
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
    }
}

#[test]
fn input_obeys_limits_and_injections() {
    let fails = |_, call, _| {
        (call == SystemCall::ReadLine).then_some(Inject::Fail(io::ErrorKind::BrokenPipe))
    };
    let mut kernel = sim().input("a").inject(fails).build().unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            let error = os.read_line().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            let n = os.input().await?.recv(os, &mut [0; 8]).await?;
            assert_eq!(n, 1);
            io::Result::Ok(())
        })
        .unwrap();
    let limits = Limits::new().deny([Calls::DEVICES]);
    kernel
        .spawn_with(limits, "limited", async |os: &mut Os| {
            let error = os.input().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        })
        .unwrap();
    let limits = Limits::new().deny([Calls::TIME]);
    let limited = async |os: &mut Os| assert!(os.wall_clock().await > SystemTime::UNIX_EPOCH);
    let clock = kernel.spawn_with(limits, "clock", limited).unwrap();
    let report = kernel.run().unwrap();
    assert!(matches!(&report.exits()[&clock], Exit::Faulted(why) if why.contains("wall_clock")));
    assert_eq!(report.exits()[&tid(1)], Exit::Done);
    assert_eq!(report.exits()[&tid(2)], Exit::Done);
}

// ---- tapes

/// Tapes a run with this world, and plays the tape: both print the same. Returns what they print.
fn tapes(
    name: &str,
    world: impl World + 'static,
    set: impl Fn(Builder) -> Builder,
    program: impl AsyncFnOnce(&mut Os) + Clone + 'static,
    again: impl AsyncFnOnce(&mut Os) + 'static,
) -> String {
    let file = Scratch::new(name);
    let world = Taping::create(world, &file.0, &Header::default(), None).unwrap();
    let writer = world.writer();
    let builder = set(Kernel::builder().world(world).capture_console());
    let mut kernel = builder.build().unwrap();
    kernel.spawn("main", program).unwrap();
    kernel.run().unwrap().check().unwrap();
    let printed = kernel.take_console();
    drop(kernel);
    writer.close().unwrap();
    let world = Playing::from_reader(Cursor::new(file.bytes())).unwrap();
    let progress = world.progress();
    let mut kernel = Kernel::builder()
        .world(world)
        .capture_console()
        .build()
        .unwrap();
    kernel.spawn("main", again).unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(kernel.take_console(), printed);
    drop(kernel);
    progress.finish().unwrap();
    printed
}

#[test]
fn a_tape_has_what_was_read_and_the_time_of_day() {
    let program = async |os: &mut Os| {
        while let Some(line) = os.read_line().await.unwrap() {
            let time = os.wall_clock().await;
            writeln!(os, "{line} at {time:?}");
        }
    };
    let text = |builder: Builder| builder.input("one\ntwo\n");
    let world = RealWorld::new().unwrap();
    let printed = tapes("tape-input", world, text, program, program);
    assert_eq!(printed.lines().count(), 2);
    let printed = tapes("tape-input-sim", SimWorld::new(1), text, program, program);
    assert!(printed.contains("tv_sec: 946684800"), "{printed}");
}

#[test]
fn a_tape_has_the_readiness_of_an_attached_descriptor_without_its_other_end() {
    let program = |reader: io::PipeReader, begun: Option<std::sync::mpsc::Sender<()>>| {
        async move |os: &mut Os| {
            let pipe = os.attach(reader).await.unwrap();
            let hasty = os.timeout(Duration::from_millis(1), async |os| {
                os.read_wait(&pipe).await
            });
            assert_eq!(hasty.await, Err(Elapsed));
            if let Some(begun) = begun {
                begun.send(()).unwrap();
            }
            let ready = os.select(&[Source::readable(&pipe)]).await;
            let mut buf = [0; 8];
            let n = pipe.recv(os, &mut buf).await.unwrap();
            writeln!(os, "{ready} {n}");
            os.read_wait(&pipe).await.unwrap();
            // Its own I/O, which is not on the tape: in a replay it must not block.
            let own = (&*pipe).read(&mut buf);
            os.get_tid().await;
            drop(own);
        }
    };
    let (reader, mut writer) = io::pipe().unwrap();
    let (begun, wait) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        wait.recv().unwrap();
        writer.write_all(b"hello").unwrap();
        drop(writer);
    });
    let (empty, _silent) = io::pipe().unwrap();
    let first = Rc::new(RefCell::new(Some(program(reader, Some(begun)))));
    let once = async move |os: &mut Os| {
        let program = first.borrow_mut().take().unwrap();
        program(os).await;
    };
    let world = RealWorld::new().unwrap();
    let printed = tapes("tape-attached", world, |it| it, once, program(empty, None));
    other.join().unwrap();
    assert_eq!(printed, "0 5\n");
}

// ---- the time of day

/// The seconds of the wall clock since the default begin, as a task of this host reads them.
async fn seconds(os: &mut Os) -> f64 {
    let dawn = SystemTime::UNIX_EPOCH + Duration::from_secs(946_684_800);
    let time = os.wall_clock().await;
    match time.duration_since(dawn) {
        Ok(since) => since.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}

#[test]
fn the_time_of_day_steps_and_the_monotonic_clock_does_not() {
    let mut kernel = Kernel::simulated(1);
    let net = kernel.net();
    kernel
        .spawn("main", async move |os: &mut Os| {
            assert_eq!(seconds(os).await, 0.0);
            os.sleep(SECOND).await;
            assert_eq!(seconds(os).await, 1.0);
            net.clock_back(SECOND * 3600);
            assert_eq!(seconds(os).await, -3599.0);
            assert_eq!(os.now().await, SECOND);
            net.clock_forward(SECOND * 7200);
            os.sleep(SECOND / 2).await;
            assert_eq!(seconds(os).await, 3601.5);
            assert_eq!(os.now().await, SECOND * 3 / 2);
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn a_leap_second_repeats_or_skips_the_second_at_its_end() {
    for (leap, after) in [(Leap::Repeat, 0.25), (Leap::Skip, 2.25)] {
        let mut kernel = Kernel::simulated(1);
        let net = kernel.net();
        kernel
            .spawn("main", async move |os: &mut Os| {
                os.sleep(SECOND / 2).await;
                net.apply(&Fault::ClockLeap(None, leap)).unwrap();
                os.sleep(SECOND / 4).await;
                assert_eq!(seconds(os).await, 0.75);
                os.sleep(SECOND / 2).await;
                assert_eq!(seconds(os).await, after);
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
    }
}

#[test]
fn the_clock_of_one_host_steps_alone() {
    let mut kernel = Kernel::simulated(1);
    let net = kernel.net();
    for (host, expected) in [("server", -60.0), ("client", 0.0)] {
        let net = net.clone();
        kernel
            .spawn_on(host, "main", async move |os: &mut Os| {
                if host == "server" {
                    net.apply(&"clock-step server -1m".parse().unwrap())
                        .unwrap();
                }
                os.yield_now().await;
                assert_eq!(seconds(os).await, expected);
            })
            .unwrap();
    }
    kernel.run().unwrap().check().unwrap();
    let error = net.apply(&"clock-step nowhere 1s".parse().unwrap());
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn steps_are_written_as_words() {
    for (text, written) in [
        ("clock-step=-1h", "clock-step -1h"),
        ("clock-step -1h", "clock-step -1h"),
        ("clock-step=server=+1500ms", "clock-step server +1500ms"),
        ("clock-step server 60s", "clock-step server +1m"),
        ("clock-step 0s", "clock-step +0s"),
        ("clock-leap=repeat", "clock-leap repeat"),
        ("clock-leap server skip", "clock-leap server skip"),
    ] {
        let fault: Fault = text.parse().unwrap();
        assert_eq!(fault.to_string(), written);
        assert_eq!(written.parse(), Ok(fault));
    }
    for text in [
        "clock-step",
        "clock-step 1",
        "clock-step 1y",
        "clock-step -",
        "clock-step h",
        "clock-step 999999999999d",
        "clock-leap both",
        "cut=a=b",
    ] {
        assert!(text.parse::<Fault>().is_err(), "{text}");
    }
}

#[test]
fn a_clock_before_1970_or_after_2554_shows_the_nearest_time() {
    let ends = [
        SystemTime::UNIX_EPOCH,
        SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::MAX),
    ];
    for (by, expected) in [("-36500d", ends[0]), ("+106751d", ends[1])] {
        let late = SystemTime::UNIX_EPOCH + Duration::from_secs(13_000_000_000);
        let world = match by.starts_with('-') {
            true => SimWorld::new(1),
            false => SimWorld::new(1).wall_clock(late),
        };
        let mut kernel = Kernel::builder().world(world).build().unwrap();
        kernel
            .net()
            .apply(&format!("clock-step {by}").parse().unwrap())
            .unwrap();
        kernel
            .spawn("main", async move |os: &mut Os| {
                assert_eq!(os.wall_clock().await, expected);
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
    }
}

#[test]
fn the_real_wall_clock_is_that_of_the_system() {
    let mut kernel = Kernel::real().unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            let before = SystemTime::now();
            let time = os.wall_clock().await;
            assert!(before <= time && time <= SystemTime::now());
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

// ---- the console as a hook

#[test]
fn the_console_is_a_hook_that_gets_whole_characters_in_order() {
    for builder in [sim(), Kernel::builder()] {
        let shown = Diary::default();
        let show = shown.clone();
        let mut kernel = builder
            .console(move |text: &str| show.note(text))
            .build()
            .unwrap();
        kernel
            .spawn("main", async |os: &mut Os| {
                write!(os, "ä");
                write!(os, "ö");
                os.yield_now().await;
                let many = "ß".repeat(100_000);
                writeln!(os, "{many}");
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
        assert_eq!(
            shown.lines(),
            ["äö".to_string(), "ß".repeat(100_000) + "\n"]
        );
        assert_eq!(kernel.take_console(), "");
    }
}

#[test]
fn a_hook_that_panics_harms_no_task() {
    let mut kernel = sim().console(|_| panic!("no")).build().unwrap();
    kernel
        .spawn("main", async |os: &mut Os| writeln!(os, "hello"))
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}
