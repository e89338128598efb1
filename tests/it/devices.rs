//! S29 to S38, for descriptors that are attached: pairs of sockets, pipes, files.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    process::Stdio,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::fs::OFlags;
use trapline::{
    Device, DeviceId, Direction, Elapsed, Errno, Exit, Kernel, Os, Queue, RealWorld, SimWorld,
    SystemCall,
};

use crate::{
    support::*,
    worlds::{Bare, Bells, Counted},
};

type End = Rc<Device<UnixStream>>;

/// A pair of connected sockets: one that the kernel has, one for the test's own use.
async fn pair(os: &mut Os) -> io::Result<(End, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((Rc::new(os.attach(theirs).await?), ours))
}

/// Runs a program with such a pair in the real world.
fn paired(program: impl AsyncFnOnce(&mut Os, End, UnixStream) -> io::Result<()> + 'static) {
    real(async |os| {
        let (device, ours) = pair(os).await?;
        program(os, device, ours).await
    });
}

/// Fills a socket until it takes no more, and answers how much it took.
fn fill(mut socket: &UnixStream) -> usize {
    let mut sum = 0;
    loop {
        match socket.write(&[7; 4096]) {
            Ok(n) => sum += n,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return sum;
            }
        }
    }
}

/// Reads what there is.
fn drain(mut socket: &UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let error = socket.read_to_end(&mut bytes).expect_err("it is open");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    bytes
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("it fails").kind()
}

/// Lets the kernel look at the world, and those whom that wakes have their turns.
async fn look(os: &mut Os) {
    passes(os, 300).await;
}

/// A task that waits for a direction of a device and notes how that came out.
async fn spawn_waiter(
    os: &mut Os,
    device: &End,
    direction: Direction,
    diary: &Diary,
) -> Result<trapline::Tid, Errno> {
    let (device, diary) = (Rc::clone(device), diary.clone());
    os.spawn("waiter", async move |os| {
        let result = match direction {
            Direction::Read => os.read_wait(&device).await,
            Direction::Write => os.write_wait(&device).await,
        };
        diary.note(format!("{direction}: {result:?}"));
    })
    .await
}

// ---- S30

#[test]
fn s30_wait_then_read_and_read_then_wait() {
    paired(async |os, device, mut ours| {
        let mut buf = [0; 64];
        for text in [b"first", b"other", b"third"] {
            // Read, then wait: the data comes while the task waits for it.
            assert_eq!(kind((&**device).read(&mut buf)), ErrorKind::WouldBlock);
            let diary = Diary::default();
            spawn_waiter(os, &device, Direction::Read, &diary).await?;
            look(os).await;
            assert_eq!(diary.text(), "");
            ours.write_all(text)?;
            look(os).await;
            assert_eq!(diary.text(), "read: Ok(())");
            // Wait, then read: it is level-triggered.
            for _ in 0..3 {
                os.read_wait(&*device).await?;
            }
            assert_eq!((&**device).read(&mut buf)?, 5);
            assert_eq!(&buf[..5], text);
        }
        Ok(())
    });
}

#[test]
fn s30_partial_reads_in_any_order_and_by_any_door_lose_nothing() {
    paired(async |os, device, mut ours| {
        let sent: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let text = sent.clone();
        let writer = async move |os: &mut Os| {
            for chunk in text.chunks(97) {
                ours.write_all(chunk)?;
                let pause = os.random().await % 3;
                passes(os, pause as usize).await;
            }
            Ok::<(), io::Error>(())
        };
        os.spawn("writer", writer).await?;
        let mut got = Vec::new();
        loop {
            let (door, size) = (os.random().await % 4, os.random().await as usize % 150 + 1);
            let mut buf = vec![0; size];
            let n = match door {
                // A trap, without and with a wait before it; the source itself, likewise.
                0 => device.recv(os, &mut buf).await?,
                1 => {
                    os.read_wait(&*device).await?;
                    device.recv(os, &mut buf).await?
                }
                2 => {
                    os.read_wait(&*device).await?;
                    (&**device).read(&mut buf)?
                }
                _ => match (&**device).read(&mut buf) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        os.read_wait(&*device).await?;
                        continue;
                    }
                    result => result?,
                },
            };
            if n == 0 {
                break;
            }
            got.extend_from_slice(&buf[..n]);
        }
        assert!(got == sent, "{} bytes of {}", got.len(), sent.len());
        Ok(())
    });
}

#[test]
fn s30_a_recv_after_the_source_was_read_to_its_end_waits_for_more() {
    paired(async |os, device, mut ours| {
        ours.write_all(b"one")?;
        os.read_wait(&*device).await?;
        assert_eq!((&**device).read(&mut [0; 8])?, 3);
        let reader = Rc::clone(&device);
        let reader = os
            .spawn("reader", async move |os| {
                let mut buf = [0; 8];
                assert_eq!(reader.recv(os, &mut buf).await?, 3);
                assert_eq!(&buf[..3], b"two");
                Ok::<(), io::Error>(())
            })
            .await?;
        look(os).await;
        ours.write_all(b"two")?;
        assert_eq!(os.wait(reader).await, Ok(Exit::Done));
        Ok(())
    });
}

#[test]
fn s30_the_end_of_a_stream_stays_ready() {
    paired(async |os, device, ours| {
        drop(ours);
        for _ in 0..3 {
            os.read_wait(&*device).await?;
            assert_eq!(device.recv(os, &mut [0; 8]).await?, 0);
            assert_eq!((&**device).read(&mut [0; 8])?, 0);
        }
        Ok(())
    });
}

#[test]
fn s30_writing_waits_until_there_is_room() {
    paired(async |os, device, ours| {
        let filled = fill(&device);
        let diary = Diary::default();
        spawn_waiter(os, &device, Direction::Write, &diary).await?;
        look(os).await;
        assert_eq!(diary.text(), "", "there is no room");
        assert_eq!(drain(&ours).len(), filled);
        look(os).await;
        assert_eq!(diary.text(), "write: Ok(())");
        // The same by send, which moves more than fits at once.
        let sender = Rc::clone(&device);
        let sent: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
        let text = sent.clone();
        let sender = os
            .spawn("sender", async move |os| sender.send_all(os, &text).await)
            .await?;
        let mut got = Vec::new();
        while got.len() < sent.len() {
            look(os).await;
            got.extend(drain(&ours));
        }
        assert!(got == sent);
        assert_eq!(os.wait(sender).await, Ok(Exit::Done));
        Ok(())
    });
}

#[test]
fn s30_a_killed_reader_takes_no_bytes_with_it() {
    paired(async |os, device, mut ours| {
        for pause in 0..300 {
            let reader = Rc::clone(&device);
            let reader = os
                .spawn("reader", async move |os| {
                    reader.recv(os, &mut [0; 8]).await.map(drop)
                })
                .await?;
            look(os).await;
            ours.write_all(b"kept")?;
            // After one of these pauses it has been woken and has not had its turn.
            passes(os, pause).await;
            let killed = os.kill(reader).await;
            let exit = os.wait(reader).await?;
            assert_eq!(killed, exit == Exit::Killed);
            if killed {
                assert_eq!(device.recv(os, &mut [0; 8]).await?, 4, "pause {pause}");
            }
        }
        Ok(())
    });
}

#[test]
fn s30_pipes_work_too() {
    real(async |os| {
        let (reader, writer) = io::pipe()?;
        let (reader, writer) = (os.attach(reader).await?, os.attach(writer).await?);
        let task = async move |os: &mut Os| {
            writer.send_all(os, &[9; 200_000]).await?;
            os.write_wait(&writer).await?;
            Ok::<(), io::Error>(())
        };
        os.spawn("writer", task).await?;
        let (mut sum, mut buf) = (0, [0; 1000]);
        loop {
            match reader.recv(os, &mut buf).await? {
                0 => break,
                n => sum += n,
            }
        }
        assert_eq!(sum, 200_000);
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s30_an_empty_buffer_is_no_end() {
    paired(async |os, device, mut ours| {
        ours.write_all(b"x")?;
        assert_eq!(device.recv(os, &mut []).await?, 0);
        assert_eq!(device.send(os, &[]).await?, 0);
        device.send_all(os, &[]).await?;
        assert_eq!(device.recv(os, &mut [0; 4]).await?, 1);
        Ok(())
    });
}

#[test]
fn s30_an_empty_buffer_is_answered_at_once() {
    // With nothing to read, and while another task waits for that.
    let program = async |os: &mut Os| {
        let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
        let client = os.connect(listener.local_addr()?).await?;
        let (server, _) = listener.accept(os).await?;
        assert_eq!(client.recv(os, &mut []).await?, 0);
        let theirs = client.clone();
        let reader = async move |os: &mut Os| {
            let n = theirs.recv(os, &mut [0; 8]).await?;
            assert_eq!(n, 2);
            io::Result::Ok(())
        };
        let reader = os.spawn("reader", reader).await?;
        os.yield_now().await;
        assert_eq!(client.recv(os, &mut []).await?, 0);
        server.send_all(os, b"hi").await?;
        assert_eq!(os.wait(reader).await?, Exit::Done);
        // A closed device is an error all the same.
        client.close(os).await?;
        assert_eq!(
            kind(client.recv(os, &mut []).await),
            ErrorKind::InvalidInput
        );
        io::Result::Ok(())
    };
    real(program);
    console(program);
}

// ---- S31

#[test]
fn s31_a_second_waiter_for_a_direction_is_busy_and_the_first_undisturbed() {
    paired(async |os, device, mut ours| {
        let filled = fill(&device);
        let diary = Diary::default();
        // One reader and one writer may wait at once.
        spawn_waiter(os, &device, Direction::Read, &diary).await?;
        spawn_waiter(os, &device, Direction::Write, &diary).await?;
        look(os).await;
        assert_eq!(os.read_wait(&*device).await, Err(Errno::Busy));
        assert_eq!(os.write_wait(&*device).await, Err(Errno::Busy));
        assert_eq!(
            kind(device.recv(os, &mut [0; 8]).await),
            ErrorKind::ResourceBusy
        );
        assert_eq!(kind(device.send(os, b"x").await), ErrorKind::ResourceBusy);
        assert_eq!(diary.text(), "");
        ours.write_all(b"x")?;
        look(os).await;
        assert_eq!(diary.text(), "read: Ok(())");
        assert_eq!(drain(&ours).len(), filled);
        look(os).await;
        assert_eq!(diary.text(), "read: Ok(()), write: Ok(())");
        os.read_wait(&*device).await?;
        os.write_wait(&*device).await?;
        Ok(())
    });
}

#[test]
fn s31_a_reader_that_was_woken_is_not_made_busy_by_those_who_came_later() {
    paired(async |os, device, ours| {
        // Passes of so many tasks end with a look at the world.
        for _ in 0..300 {
            os.spawn("spinner", async |os| passes(os, 700).await)
                .await?;
        }
        let (diary, ours) = (Diary::default(), Rc::new(ours));
        let go = Rc::new(Cell::new(false));
        for name in ["first", "second", "third"] {
            let (device, diary) = (Rc::clone(&device), diary.clone());
            let (go, ours) = (Rc::clone(&go), Rc::clone(&ours));
            os.spawn_detached(name, async move |os| {
                while name != "first" && !go.get() {
                    os.yield_now().await;
                }
                if name == "third" {
                    // The first still waits, and will be woken at the end of this pass.
                    (&*ours).write_all(b"data")?;
                }
                let result = device.recv(os, &mut [0; 8]).await;
                let result = result.map_err(|error| error.kind());
                diary.note(format!("{name}: {result:?}"));
                Ok::<(), io::Error>(())
            })
            .await?;
        }
        passes(os, 5).await;
        go.set(true);
        look(os).await;
        let mut lines = diary.lines();
        lines.sort();
        let busy = "Err(ResourceBusy)";
        let expected = [
            "first: Ok(4)",
            &format!("second: {busy}"),
            &format!("third: {busy}"),
        ];
        assert_eq!(lines, expected);
        Ok(())
    });
}

#[test]
fn s31_a_killed_waiter_makes_room_at_once() {
    // S06, for devices.
    paired(async |os, device, mut ours| {
        fill(&device);
        let diary = Diary::default();
        for direction in [Direction::Read, Direction::Write] {
            let victim = spawn_waiter(os, &device, direction, &diary).await?;
            look(os).await;
            assert!(os.kill(victim).await);
            spawn_waiter(os, &device, direction, &diary).await?;
        }
        look(os).await;
        assert_eq!(diary.text(), "");
        ours.write_all(b"x")?;
        drain(&ours);
        look(os).await;
        assert_eq!(diary.text(), "read: Ok(()), write: Ok(())");
        Ok(())
    });
}

#[test]
fn s31_the_reader_that_called_first_is_undisturbed_by_one_that_waits() {
    for killed in [false, true] {
        real(async move |os| {
            let (device, mut ours) = pair(os).await?;
            let diary = Diary::default();
            let (first, notes) = (Rc::clone(&device), diary.clone());
            let first = async move |os: &mut Os| {
                os.yield_now().await;
                let n = first.recv(os, &mut [0; 8]).await?;
                notes.note(format!("first: {n}"));
                Ok::<(), io::Error>(())
            };
            let first = os.spawn("first", first).await?;
            // The first has called in the pass in which this one does, and has had no turn since.
            spawn_waiter(os, &device, Direction::Read, &diary).await?;
            if killed {
                assert!(os.kill(first).await);
                spawn_waiter(os, &device, Direction::Read, &diary).await?;
            }
            look(os).await;
            ours.write_all(b"data")?;
            look(os).await;
            let last = if killed { "read: Ok(())" } else { "first: 4" };
            assert_eq!(diary.lines(), ["read: Err(Busy)", last]);
            Ok::<(), io::Error>(())
        });
    }
}

#[test]
fn s31_a_reader_whose_call_timed_out_before_its_turn_makes_room() {
    paired(async |os, device, mut ours| {
        let reader = Rc::clone(&device);
        let hasty = async move |os: &mut Os| {
            let read = os.timeout(Duration::ZERO, async |os| {
                reader.recv(os, &mut [0; 8]).await
            });
            assert_eq!(read.await.map_err(drop).map(drop), Err(()));
        };
        let hasty = os.spawn("hasty", hasty).await?;
        assert_eq!(os.wait(hasty).await, Ok(Exit::Done));
        ours.write_all(b"data")?;
        assert_eq!(device.recv(os, &mut [0; 8]).await?, 4);
        Ok(())
    });
}

// ---- S32

#[test]
fn s32_where_both_directions_are_ready_the_reader_is_woken_first() {
    for reader_first in [true, false] {
        real(async move |os| {
            let (device, mut ours) = pair(os).await?;
            fill(&device);
            let diary = Diary::default();
            let mut directions = [Direction::Write, Direction::Read];
            if reader_first {
                directions.reverse();
            }
            for direction in directions {
                spawn_waiter(os, &device, direction, &diary).await?;
            }
            look(os).await;
            // Within one turn, so that one look at the world finds both.
            drain(&ours);
            ours.write_all(b"x")?;
            look(os).await;
            assert_eq!(diary.text(), "read: Ok(()), write: Ok(())");
            Ok::<(), io::Error>(())
        });
    }
}

// ---- S33

#[test]
fn s33_a_device_closed_while_tasks_wait_on_it_wakes_them_with_closed() {
    paired(async |os, device, ours| {
        fill(&device);
        let diary = Diary::default();
        spawn_waiter(os, &device, Direction::Write, &diary).await?;
        spawn_waiter(os, &device, Direction::Read, &diary).await?;
        passes(os, 3).await;
        device.close(os).await?;
        passes(os, 1).await;
        assert_eq!(diary.text(), "read: Err(Closed), write: Err(Closed)");
        // It is gone for everybody, and the peer sees it.
        assert_eq!(os.read_wait(&*device).await, Err(Errno::BadFd));
        assert_eq!(device.close(os).await, Err(Errno::BadFd));
        drop(device);
        passes(os, 1).await;
        let mut rest = Vec::new();
        (&ours).read_to_end(&mut rest)?;
        Ok(())
    });
}

#[test]
fn s33_recv_and_send_that_wait_are_woken_too() {
    paired(async |os, device, _ours| {
        fill(&device);
        let reader = Rc::clone(&device);
        let reader = async move |os: &mut Os| reader.recv(os, &mut [0; 8]).await.map(drop);
        let writer = Rc::clone(&device);
        let writer = async move |os: &mut Os| writer.send(os, b"x").await.map(drop);
        let tasks = [
            os.spawn("reader", reader).await?,
            os.spawn("writer", writer).await?,
        ];
        passes(os, 3).await;
        device.close(os).await?;
        for task in tasks {
            let exit = os.wait(task).await?;
            assert_eq!(exit, Exit::Failed("it is closed".into()));
        }
        Ok(())
    });
}

#[test]
fn s33_a_descriptor_number_that_is_used_again_wakes_nobody_of_before() {
    real(async |os| {
        let diary = Diary::default();
        for _ in 0..20 {
            let (device, mut ours) = pair(os).await?;
            spawn_waiter(os, &device, Direction::Read, &diary).await?;
            passes(os, 2).await;
            ours.write_all(b"x")?;
            device.close(os).await?;
        }
        passes(os, 3).await;
        assert_eq!(diary.lines(), ["read: Err(Closed)"; 20]);
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s33_a_reader_that_had_no_turn_since_its_call_or_its_wake_is_told_of_the_close_too() {
    real(async |os| {
        // After one of these pauses the reader has been woken and has not had its turn.
        for pause in 0..300 {
            let (device, mut ours) = pair(os).await?;
            let reader = Rc::clone(&device);
            let reader = async move |os: &mut Os| {
                while reader.recv(os, &mut [0; 8]).await? == 4 {}
                Ok::<(), io::Error>(())
            };
            let reader = os.spawn("reader", reader).await?;
            if pause > 0 {
                passes(os, pause).await;
                ours.write_all(b"data")?;
                passes(os, 300 - pause).await;
            }
            device.close(os).await?;
            let exit = os.wait(reader).await?;
            assert_eq!(exit, Exit::Failed("it is closed".into()), "pause {pause}");
        }
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s33_an_accept_made_in_the_same_pass_is_told_of_the_close_too() {
    real(async |os| {
        let listener = Rc::new(os.listen(([127, 0, 0, 1], 0).into()).await?);
        let theirs = Rc::clone(&listener);
        let acceptor = async move |os: &mut Os| theirs.accept(os).await.map(drop);
        let acceptor = os.spawn("acceptor", acceptor).await?;
        listener.close(os).await?;
        assert_eq!(
            os.wait(acceptor).await?,
            Exit::Failed("it is closed".into())
        );
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s57_a_close_that_answers_a_read_uses_up_a_due_timeout() {
    real(async |os| {
        for pause in 0..5 {
            let (device, _ours) = pair(os).await?;
            let theirs = Rc::clone(&device);
            let closer = async move |os: &mut Os| {
                passes(os, pause).await;
                theirs.close(os).await
            };
            os.spawn_detached("closer", closer).await?;
            let cut = os.timeout(Duration::ZERO, async |os| {
                let _ = device.recv(os, &mut [0; 8]).await;
                os.sleep(Duration::MAX).await;
            });
            assert_eq!(cut.await, Err(Elapsed), "pause {pause}");
        }
        Ok::<(), io::Error>(())
    });
}

// ---- S34

#[test]
fn s34_a_device_of_another_kernel_is_a_bad_descriptor_to_the_caller_alone() {
    let kept = Rc::new(RefCell::new(None));
    let keep = Rc::clone(&kept);
    let mut other = Kernel::real().unwrap();
    run_main(&mut other, async move |os: &mut Os| {
        *keep.borrow_mut() = Some(pair(os).await?);
        Ok::<(), io::Error>(())
    });
    let (foreign, mut ours) = kept.take().unwrap();
    let theirs = Rc::clone(&foreign);
    real(async move |os| {
        // It has the same number as a device of this kernel.
        let (device, mut mine) = pair(os).await?;
        assert_eq!(device.id(), theirs.id());
        mine.write_all(b"mine")?;
        assert_eq!(os.read_wait(&*theirs).await, Err(Errno::BadFd));
        assert_eq!(os.write_wait(&theirs).await, Err(Errno::BadFd));
        assert_eq!(
            kind(theirs.recv(os, &mut [0; 8]).await),
            ErrorKind::InvalidInput
        );
        assert_eq!(kind(theirs.send(os, b"x").await), ErrorKind::InvalidInput);
        assert_eq!(theirs.close(os).await, Err(Errno::BadFd));
        drop(theirs);
        assert_eq!(device.recv(os, &mut [0; 8]).await?, 4);
        Ok::<(), io::Error>(())
    });
    // And its own kernel serves it still.
    run_main(&mut other, async move |os: &mut Os| {
        ours.write_all(b"yours")?;
        assert_eq!(foreign.recv(os, &mut [0; 8]).await?, 5);
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s34_numbers_that_no_device_has_are_bad_descriptors() {
    real(async |os| {
        for id in [0, 1, 77, u64::MAX] {
            for call in [
                SystemCall::ReadWait(DeviceId::from_raw(id)),
                SystemCall::WriteWait(DeviceId::from_raw(id)),
                SystemCall::Recv(DeviceId::from_raw(id)),
                SystemCall::Accept(DeviceId::from_raw(id)),
                SystemCall::Send(DeviceId::from_raw(id)),
                SystemCall::Close(DeviceId::from_raw(id)),
            ] {
                assert_eq!(raw(os, call).await, "Err(BadFd)", "{call:?}");
            }
        }
    });
}

#[test]
fn s34_a_descriptor_is_attached_once() {
    real(async |os| {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = Rc::new(theirs);
        let first = os.attach(Rc::clone(&theirs)).await?;
        let again = os.attach(Rc::clone(&theirs)).await;
        assert_eq!(kind(again), ErrorKind::AlreadyExists);
        (&ours).write_all(b"x")?;
        assert_eq!(first.recv(os, &mut [0; 8]).await?, 1);
        first.close(os).await?;
        os.attach(theirs).await?;
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s34_calls_that_are_for_other_devices_are_errors_to_the_caller_alone() {
    real(async |os| {
        let file = os.attach(File::open("/dev/null")?).await?;
        for call in [
            SystemCall::Accept(file.id()),
            SystemCall::ShutdownWrite(file.id()),
            SystemCall::Connected(file.id()),
        ] {
            assert_eq!(raw(os, call).await, "Io", "{call:?}");
        }
        let error = file
            .send(os, b"x")
            .await
            .expect_err("it is open for reading");
        assert_eq!(
            error.raw_os_error(),
            Some(rustix::io::Errno::BADF.raw_os_error())
        );
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s34_the_last_handle_closes_the_descriptor() {
    paired(async |os, device, ours| {
        let other = Device::clone(&device);
        drop(device);
        os.yield_now().await;
        assert_eq!(kind((&ours).read(&mut [0; 8])), ErrorKind::WouldBlock);
        let id = other.id();
        drop(other);
        os.yield_now().await;
        assert_eq!((&ours).read(&mut [0; 8])?, 0, "the peer sees its end");
        assert_eq!(raw(os, SystemCall::ReadWait(id)).await, "Err(BadFd)");
        Ok(())
    });
}

#[test]
fn s34_an_attached_descriptor_that_was_closed_goes_with_the_last_handle() {
    paired(async |os, device, ours| {
        let other = Device::clone(&device);
        device.close(os).await?;
        drop(device);
        os.yield_now().await;
        // The device is closed, and what was attached can still be reached.
        assert_eq!(other.close(os).await, Err(Errno::BadFd));
        assert_eq!(kind((&ours).read(&mut [0; 8])), ErrorKind::WouldBlock);
        (&*other).write_all(b"x")?;
        assert_eq!((&ours).read(&mut [0; 8])?, 1);
        drop(other);
        assert_eq!((&ours).read(&mut [0; 8])?, 0, "the peer sees its end");
        Ok(())
    });
}

#[test]
fn s34_a_killed_task_closes_what_it_held() {
    real(async |os| {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let holder = os
            .spawn("holder", async move |os| {
                let device = os.attach(theirs).await?;
                os.read_wait(&device).await?;
                Ok::<(), io::Error>(())
            })
            .await?;
        passes(os, 3).await;
        assert!(os.kill(holder).await);
        assert_eq!((&ours).read(&mut [0; 8])?, 0);
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s34_a_task_killed_before_it_was_given_its_device_leaves_it_closed() {
    real(async |os| {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let opener = async move |os: &mut Os| os.attach(theirs).await.map(drop);
        let opener = os.spawn("opener", opener).await?;
        assert!(os.kill(opener).await);
        assert_eq!((&ours).read(&mut [0; 8])?, 0);
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s34_a_device_that_its_opener_did_not_take_is_closed() {
    // What the opener does instead of hearing the answer.
    for next in 0..5 {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut kernel = Kernel::real().unwrap();
        let opener = async move |os: &mut Os| {
            ignore_answer(os.attach(theirs)).await;
            match next {
                0 => drop(os.get_tid().await),
                1 => drop(os.listen(([127, 0, 0, 1], 0).into()).await),
                2 => drop(os.spawn("child", async |_| ()).await),
                3 => panic!("it has other worries"),
                _ => return,
            }
            os.yield_now().await;
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 0, "case {next}");
        };
        let tid = kernel.spawn("opener", opener).unwrap();
        let report = kernel.run().unwrap();
        match &report.exits()[&tid] {
            Exit::Faulted(why) if next == 3 => assert!(why.contains("worries"), "{why}"),
            exit => assert_eq!(*exit, Exit::Done),
        }
        run_main(&mut kernel, async move |os: &mut Os| {
            let reply = raw(os, SystemCall::Close(DeviceId::from_raw(1))).await;
            assert_eq!(reply, "Err(BadFd)", "case {next}");
        });
    }
}

#[test]
fn s34_a_world_without_descriptors_says_so() {
    console(async |os| {
        let null = File::open("/dev/null")?;
        assert_eq!(kind(os.attach(null).await), ErrorKind::Unsupported);
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s34_a_world_of_ones_own_without_a_network_does_not_call_itself_simulated() {
    let world = Bare(SimWorld::new(1));
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        let refused = os.listen(([127, 0, 0, 1], 0).into()).await;
        let why = refused.expect_err("it has none").to_string();
        assert_eq!(
            why,
            "cannot listen on 127.0.0.1:0: this world has no devices and no network, which the real one \
             has"
        );
    });
}

// ---- S35

#[test]
fn s35_what_the_poller_cannot_watch_is_always_ready() {
    real(async |os| {
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let null = os.attach(null).await?;
        let itself = os.attach(File::open("it/main.rs")?).await?;
        let mut sum = 0;
        for _ in 0..3 {
            os.read_wait(&null).await?;
            os.write_wait(&null).await?;
            assert_eq!(null.recv(os, &mut [0; 8]).await?, 0);
            assert_eq!(null.send(os, b"into the void").await?, 13);
            os.read_wait(&itself).await?;
        }
        loop {
            let n = itself.recv(os, &mut [0; 100]).await?;
            sum += n as u64;
            if n == 0 {
                break;
            }
        }
        assert_eq!(sum, itself.metadata()?.len());
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s35_what_cannot_be_watched_and_is_not_ready_is_an_error() {
    let test = "devices::s35_what_cannot_be_watched_and_is_not_ready_is_an_error";
    let redirect = |command: &mut std::process::Command| {
        let file = File::open("Cargo.toml").expect("tests run where the manifest is");
        command.stdin(Stdio::from(file));
    };
    in_own_process(test, redirect, || {
        real(async |os| {
            let stdin = os.attach(io::stdin()).await?;
            // A file when it was attached, and an empty pipe from now on.
            let (pipe, mut ours) = io::pipe()?;
            rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
            rustix::stdio::dup2_stdin(&pipe)?;
            // The poller cannot say when to try again: the caller must know.
            for _ in 0..2 {
                os.read_wait(&stdin).await?;
                let none = stdin.recv(os, &mut [0; 8]).await;
                assert_eq!(kind(none), ErrorKind::Unsupported);
            }
            ours.write_all(b"x")?;
            assert_eq!(stdin.recv(os, &mut [0; 8]).await?, 1);
            Ok::<(), io::Error>(())
        });
    });
}

#[test]
fn s35_a_redirected_stdin_is_always_ready() {
    let test = "devices::s35_a_redirected_stdin_is_always_ready";
    let redirect = |command: &mut std::process::Command| {
        let file = File::open("Cargo.toml").expect("tests run where the manifest is");
        command.stdin(Stdio::from(file));
    };
    in_own_process(test, redirect, || {
        real(async |os| {
            let stdin = os.attach(io::stdin()).await?;
            let mut text = Vec::new();
            loop {
                let mut buf = [0; 100];
                os.read_wait(&stdin).await?;
                match stdin.recv(os, &mut buf).await? {
                    0 => break,
                    n => text.extend_from_slice(&buf[..n]),
                }
            }
            assert!(
                text == std::fs::read("Cargo.toml")?,
                "not what the file says"
            );
            Ok::<(), io::Error>(())
        });
    });
}

/// Whoever shares it expects it to block.
#[test]
fn s35_a_socket_as_stdin_is_used_as_it_is() {
    let test = "devices::s35_a_socket_as_stdin_is_used_as_it_is";
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"hello").unwrap();
    let redirect = |command: &mut std::process::Command| {
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    };
    in_own_process(test, redirect, || {
        real(async |os| {
            let flags = || rustix::fs::fcntl_getfl(io::stdin());
            let before = flags()?;
            assert!(!before.contains(OFlags::NONBLOCK));
            let stdin = os.attach(io::stdin()).await?;
            let mut buf = [0; 8];
            os.read_wait(&stdin).await?;
            assert_eq!(stdin.recv(os, &mut buf).await?, 5);
            // To the others it does not block.
            let wait = Duration::from_millis(5);
            let more = os.timeout(wait, async |os| stdin.recv(os, &mut buf).await);
            assert!(matches!(more.await, Err(Elapsed)));
            let send = async |os: &mut Os| loop {
                stdin.send(os, &[7; 4096]).await.expect("it is open");
            };
            assert_eq!(os.timeout(wait, send).await, Err(Elapsed));
            assert_eq!(flags()?, before);
            Ok::<(), io::Error>(())
        });
    });
}

#[test]
fn s35_a_task_at_a_device_that_is_always_ready_starves_nobody() {
    let report = real(async |os| {
        let busy = os
            .spawn("busy", async |os| {
                let null = os.attach(File::open("/dev/null")?).await?;
                loop {
                    null.recv(os, &mut [0; 8]).await?;
                }
                #[expect(unreachable_code, reason = "names the type of the error")]
                Ok::<(), io::Error>(())
            })
            .await?;
        os.sleep(Duration::from_millis(2)).await;
        assert!(os.kill(busy).await);
        Ok::<(), io::Error>(())
    });
    assert!(report.traps > 10);
}

// ---- S37

#[test]
fn s37_writing_to_a_peer_that_has_gone_is_an_error() {
    // A process that another test starts has the peer too, for a moment.
    let test = "devices::s37_writing_to_a_peer_that_has_gone_is_an_error";
    alone(test, || {
        paired(async |os, device, ours| {
            drop(ours);
            for _ in 0..2 {
                assert_eq!(kind(device.send(os, b"x").await), ErrorKind::BrokenPipe);
                assert_eq!(kind(device.send_all(os, b"x").await), ErrorKind::BrokenPipe);
                os.write_wait(&*device).await?;
            }
            let (reader, writer) = io::pipe()?;
            let writer = os.attach(writer).await?;
            drop(reader);
            assert_eq!(kind(writer.send(os, b"x").await), ErrorKind::BrokenPipe);
            Ok(())
        });
    });
}

#[test]
fn s37_writing_to_a_socket_raises_no_signal() {
    let test = "devices::s37_writing_to_a_socket_raises_no_signal";
    alone(test, || {
        let raised = Arc::new(AtomicBool::new(false));
        let signal = signal_hook::consts::SIGPIPE;
        signal_hook::flag::register(signal, Arc::clone(&raised)).expect("it can be caught");
        paired(async |os, device, ours| {
            drop(ours);
            assert_eq!(kind(device.send(os, b"x").await), ErrorKind::BrokenPipe);
            Ok(())
        });
        assert!(!raised.load(Ordering::SeqCst));
    });
}

#[test]
fn s37_a_writer_that_waits_is_told_when_its_peer_goes() {
    paired(async |os, device, ours| {
        fill(&device);
        let writer = os
            .spawn("writer", async move |os| {
                device.send(os, b"x").await.map(drop)
            })
            .await?;
        look(os).await;
        drop(ours);
        let Exit::Failed(why) = os.wait(writer).await? else {
            panic!("it fails");
        };
        assert!(
            why.contains("Broken pipe") || why.contains("reset"),
            "{why}"
        );
        Ok(())
    });
}

// ---- S38

#[test]
fn s38_with_nothing_ready_the_kernel_sleeps_until_the_next_deadline() {
    let span = Duration::from_millis(50);
    let (world, waits) = Counted::new(RealWorld::new().unwrap());
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let counter = Rc::clone(&waits);
    let report = run_main(&mut kernel, async move |os: &mut Os| {
        let mut kept = Vec::new();
        // Idle; with bytes that no task reads; at its end; and a waiter that is never served.
        for n in 0..100 {
            let (device, mut ours) = pair(os).await?;
            match n % 4 {
                0 => {}
                1 => ours.write_all(b"unread")?,
                2 => ours.shutdown(std::net::Shutdown::Both)?,
                _ => {
                    spawn_waiter(os, &device, Direction::Read, &Diary::default()).await?;
                }
            }
            kept.push((device, ours));
        }
        look(os).await;
        let before = (counter.get(), cpu());
        os.sleep(span).await;
        let after = (counter.get(), cpu());
        assert!(after.0 - before.0 <= 4, "{} waits", after.0 - before.0);
        let nanos = |time: rustix::time::Timespec| time.tv_sec * 1_000_000_000 + time.tv_nsec;
        let burnt = Duration::from_nanos((nanos(after.1) - nanos(before.1)) as u64);
        assert!(burnt < span / 2, "{burnt:?} of CPU");
        for (device, _) in &kept {
            device.close(os).await?;
        }
        Ok::<(), io::Error>(())
    });
    assert!(report.elapsed >= span);
}

#[test]
fn s38_a_device_wakes_a_kernel_that_sleeps() {
    let (world, waits) = Counted::new(RealWorld::new().unwrap());
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let mut buf = [0; 4];
        for _ in 0..10 {
            ours.write_all(b"ping")?;
            ours.read_exact(&mut buf)?;
        }
        io::Result::Ok(buf)
    });
    let report = run_main(&mut kernel, async move |os: &mut Os| {
        let device = os.attach(theirs).await?;
        let mut buf = [0; 64];
        while device.recv(os, &mut buf).await? > 0 {
            device.send_all(os, b"pong").await?;
        }
        Ok::<(), io::Error>(())
    });
    assert_eq!(&thread.join().unwrap().unwrap(), b"pong");
    assert!(
        waits.get() < 60 && report.ticks < 200,
        "{} waits, {report:?}",
        waits.get()
    );
}

#[test]
fn s38_a_killed_waiter_leaves_no_device_behind_that_is_waited_for() {
    // What is left when it is gone is a deadlock, not a sleep for ever.
    let (world, _) = Bells::new();
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    kernel
        .spawn("main", async |os| {
            let reader = os
                .spawn("reader", async |os| {
                    let device = os.attach(File::open("/dev/null")?).await?;
                    os.read_wait(&device).await.map_err(io::Error::from)
                })
                .await?;
            look(os).await;
            os.kill(reader).await;
            os.sleep(Duration::MAX).await;
            Ok::<(), Errno>(())
        })
        .unwrap();
    assert!(matches!(kernel.run(), Err(trapline::Error::Deadlock(_))));
}

// ---- S17

/// A source with a destructor that panics.
struct Bad(Rc<UnixStream>, PanicOnDrop);

impl AsFd for Bad {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[test]
fn s17_a_panic_in_the_destructor_of_a_source_is_contained() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut kernel = Kernel::real().unwrap();
    run_main(&mut kernel, async move |os: &mut Os| {
        let theirs = Rc::new(theirs);
        let device = os.attach(Bad(Rc::clone(&theirs), PanicOnDrop)).await?;
        // The kernel has the last of one that it refuses, too.
        let refused = Bad(Rc::clone(&theirs), PanicOnDrop);
        let half = os.spawn("half", async move |os: &mut Os| {
            abandon(os.attach(refused));
            foreign().await;
        });
        let half = half.await?;
        assert!(matches!(os.wait(half).await?, Exit::Faulted(_)));
        drop((device, theirs));
        os.yield_now().await;
        assert_eq!((&ours).read(&mut [0; 8])?, 0, "it is closed");
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s17_a_panic_in_the_destructor_of_a_source_in_a_message_is_contained() {
    /// A message that holds its own queue is dropped with the kernel.
    struct Own(#[expect(dead_code, reason = "it is held")] (Queue<Own>, Device<Bad>));

    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut kernel = Kernel::real().unwrap();
    run_main(&mut kernel, async move |os: &mut Os| {
        let device = os.attach(Bad(Rc::new(theirs), PanicOnDrop)).await?;
        let queue = Queue::unbounded(os).await;
        assert!(queue.put(os, Own((queue.clone(), device))).await.is_ok());
        Ok::<(), io::Error>(())
    });
    drop(kernel);
    assert_eq!((&ours).read(&mut [0; 8]).unwrap(), 0, "it is closed");
}

#[test]
fn s15_a_source_that_panics_when_it_is_attached_ends_its_task_only() {
    struct Bad;

    impl AsFd for Bad {
        fn as_fd(&self) -> BorrowedFd<'_> {
            panic!("there is none")
        }
    }

    let mut kernel = Kernel::real().unwrap();
    let bad = kernel
        .spawn("bad", async |os: &mut Os| {
            drop(os.attach(Bad).await);
        })
        .unwrap();
    let other = kernel
        .spawn("other", async |os: &mut Os| os.yield_now().await)
        .unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&bad], Exit::Faulted("there is none".into()));
    assert_eq!(report.exits()[&other], Exit::Done);
}

/// A source that can take another descriptor for its own, or panic when it is asked for one.
struct Fickle {
    own: UnixStream,
    other: Option<Rc<UnixStream>>,
    changed: Cell<bool>,
}

impl AsFd for Fickle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.other {
            _ if !self.changed.get() => self.own.as_fd(),
            Some(other) => other.as_fd(),
            None => panic!("asked again"),
        }
    }
}

#[test]
fn s34_a_source_that_changes_its_answer_does_not_touch_the_device_of_another_task() {
    real(async |os| {
        let (theirs, mut ours) = UnixStream::pair()?;
        let theirs = Rc::new(theirs);
        let device = os.attach(Rc::clone(&theirs)).await?;
        let waiter = os.spawn("waiter", async move |os: &mut Os| {
            device.recv(os, &mut [0; 8]).await.map(drop)
        });
        let waiter = waiter.await?;
        let (own, mut mine) = UnixStream::pair()?;
        let (other, changed) = (Some(theirs), Cell::new(false));
        let fickle = os
            .attach(Fickle {
                own,
                other,
                changed,
            })
            .await?;
        fickle.changed.set(true);
        mine.write_all(b"mine")?;
        assert_eq!(fickle.recv(os, &mut [0; 8]).await?, 4);
        fickle.close(os).await?;
        ours.write_all(b"ours")?;
        let limit = Duration::from_secs(10);
        let heard = os.timeout(limit, async |os| os.wait(waiter).await).await;
        assert_eq!(heard, Ok(Ok(Exit::Done)));
        Ok::<(), Box<dyn std::error::Error>>(())
    });
}

#[test]
fn s15_a_source_that_panics_later_is_not_asked_again() {
    let mut kernel = Kernel::real().unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        let (own, mut mine) = UnixStream::pair()?;
        let (other, changed) = (None, Cell::new(false));
        let fickle = os
            .attach(Fickle {
                own,
                other,
                changed,
            })
            .await?;
        fickle.changed.set(true);
        mine.write_all(b"mine")?;
        os.read_wait(&fickle).await?;
        assert_eq!(fickle.recv(os, &mut [0; 8]).await?, 4);
        assert_eq!(fickle.send(os, b"x").await?, 1);
        fickle.close(os).await?;
        Ok::<(), io::Error>(())
    });
    // The kernel is whole.
    run_main(&mut kernel, async |os: &mut Os| os.yield_now().await);
}
