//! `send_file`: S30 to S37 hold for it as for `send`, by the system's call and by the fallback.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read},
    net,
    os::unix::net::UnixStream,
    path::PathBuf,
    process,
    rc::Rc,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use socket2::SockRef;
use trapline::{
    Device, Elapsed, Errno, Exit, Kernel, Os, RealWorld, SimWorld, SystemCall, TcpStream,
};

use crate::{
    support::*,
    worlds::{Bells, Counted},
};

/// More than the buffers of a connection hold.
const LEN: usize = 12_000_000;

/// What is sent. No piece of it is like another.
static CONTENT: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..LEN as u32 / 4).flat_map(u32::to_le_bytes).collect());

/// A file with this content, which is gone with its last descriptor; open for both.
fn file(test: &str, content: &[u8]) -> Arc<File> {
    // Two processes run one test.
    let name = format!("send-file-{test}-{}", process::id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).expect("it can be written");
    let file = OpenOptions::new().read(true).write(true).open(&path);
    fs::remove_file(path).expect("it is there");
    Arc::new(file.expect("it can be opened"))
}

async fn tcp(os: &mut Os) -> io::Result<(TcpStream, net::TcpStream)> {
    let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
    let theirs = net::TcpStream::connect(listener.local_addr()?)?;
    let (ours, _) = listener.accept(os).await?;
    Ok((ours, theirs))
}

/// Sends all of a file from an offset on, and answers in how many calls.
async fn send<S>(os: &mut Os, to: &Device<S>, file: &Arc<File>, from: u64) -> io::Result<usize> {
    let mut at = from;
    for calls in 0.. {
        match to.send_file(os, file, at, usize::MAX).await? {
            0 => return Ok(calls),
            n => at += n as u64,
        }
    }
    unreachable!("a file has an end")
}

/// Fills a connection until it takes no more of the file.
async fn fill<S>(os: &mut Os, to: &Device<S>, file: &Arc<File>) {
    let all = os.timeout(Duration::from_millis(50), async |os| {
        loop {
            to.send_file(os, file, 0, LEN).await?;
        }
    });
    let all: Result<io::Result<()>, Elapsed> = all.await;
    assert!(
        matches!(all, Err(Elapsed)),
        "nothing takes the bytes: {all:?}"
    );
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("it fails").kind()
}

#[test]
fn s30_a_file_arrives_whole_by_any_device_while_its_reader_is_slow() {
    /// Sends it to a reader, which begins when the buffers are full.
    async fn check<S>(
        os: &mut Os,
        name: &str,
        device: Device<S>,
        mut reader: impl Read + Send + 'static,
    ) -> io::Result<()> {
        let source = file(name, &CONTENT);
        fill(os, &device, &source).await;
        let reader = thread::spawn(move || {
            let mut got = Vec::new();
            reader.read_to_end(&mut got).map(|_| got)
        });
        let calls = send(os, &device, &source, 7).await?;
        assert!(calls > LEN / (256 * 1024), "{name}: {calls} calls");
        assert_eq!(Arc::strong_count(&source), 1, "the kernel keeps none");
        device.close(os).await?;
        drop(device);
        let got = os.run_blocking(|| reader.join().expect("it reads")).await;
        let got = got.expect("no panic")?;
        assert!(got.ends_with(&CONTENT[7..]), "{name}: {} bytes", got.len());
        Ok(())
    }
    real(async |os| {
        let (ours, theirs) = tcp(os).await?;
        check(os, "tcp", ours, theirs).await?;
        let (ours, theirs) = UnixStream::pair()?;
        let ours = os.attach(ours).await?;
        check(os, "unix", ours, theirs).await?;
        let (reader, writer) = io::pipe()?;
        let writer = os.attach(writer).await?;
        check(os, "pipe", writer, reader).await
    });
}

#[test]
fn s30_a_part_is_sent_and_nothing_past_the_end() {
    let source = file("part", b"0123456789");
    let log = {
        let builder = Kernel::builder().world(RealWorld::new().unwrap());
        let (mut kernel, log) = logged(builder);
        run_main(&mut kernel, async move |os: &mut Os| {
            let (ours, mut theirs) = tcp(os).await?;
            assert_eq!(ours.send_file(os, &source, 2, 3).await?, 3);
            assert_eq!(ours.send_file(os, &source, 8, 100).await?, 2);
            assert_eq!(ours.send_file(os, &source, 3, 0).await?, 0);
            assert_eq!(ours.send_file(os, &source, 10, 5).await?, 0);
            assert_eq!(ours.send_file(os, &source, 1 << 40, 5).await?, 0);
            // What was sent and not yet received would change with the file.
            let mut got = [0; 5];
            theirs.read_exact(&mut got)?;
            assert_eq!(&got, b"23489");
            // One that is cut while it is sent ends early.
            source.set_len(5)?;
            assert_eq!(ours.send_file(os, &source, 4, 5).await?, 1);
            assert_eq!(ours.send_file(os, &source, 5, 5).await?, 0);
            let beyond = ours.send_file(os, &source, u64::MAX, 5).await.unwrap_err();
            assert_eq!(beyond.kind(), ErrorKind::InvalidInput);
            ours.close(os).await?;
            let mut got = String::new();
            theirs.read_to_string(&mut got)?;
            assert_eq!(got, "4");
            Ok::<(), io::Error>(())
        });
        log.text()
    };
    // The log has it, and what came of it.
    for line in ["trapped send_file(2, 3)", "device 2 write 3", "replied 3"] {
        assert!(log.contains(line), "{line} is not in\n{log}");
    }
}

#[test]
fn s31_s33_a_second_writer_is_busy_and_a_close_wakes_the_first() {
    real(async |os| {
        let (ours, _theirs) = tcp(os).await?;
        let source = file("busy", &CONTENT);
        fill(os, &ours, &source).await;
        let (ours, source) = (Rc::new(ours), Rc::new(source));
        let (device, content) = (Rc::clone(&ours), Rc::clone(&source));
        let writer = os
            .spawn("writer", async move |os| {
                let sent = device.send_file(os, &content, 0, LEN).await;
                assert_eq!(kind(sent), io::Error::from(Errno::Closed).kind());
            })
            .await?;
        os.yield_now().await;
        let busy = ours.send_file(os, &source, 0, LEN).await;
        assert_eq!(kind(busy), ErrorKind::ResourceBusy);
        ours.close(os).await?;
        assert_eq!(os.wait(writer).await, Ok(Exit::Done));
        let closed = ours.send_file(os, &source, 0, LEN).await;
        assert_eq!(kind(closed), ErrorKind::InvalidInput);
        assert_eq!(Arc::strong_count(&source), 1);
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s34_what_cannot_be_sent_is_an_error_to_the_caller_alone() {
    real(async |os| {
        let (ours, mut theirs) = tcp(os).await?;
        let source = file("s34", b"fine");
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("send-file-write-only");
        let write_only = Arc::new(File::create(&path)?);
        fs::remove_file(path)?;
        let (reader, _writer) = io::pipe()?;
        let pipe = Arc::new(File::from(std::os::fd::OwnedFd::from(reader)));
        let directory = Arc::new(File::open(env!("CARGO_TARGET_TMPDIR"))?);
        for (bad, why) in [
            (write_only, rustix::io::Errno::BADF),
            (pipe, rustix::io::Errno::SPIPE),
            (directory, rustix::io::Errno::ISDIR),
        ] {
            let error = ours.send_file(os, &bad, 0, 10).await.unwrap_err();
            assert_eq!(
                rustix::io::Errno::from_io_error(&error),
                Some(why),
                "{bad:?}"
            );
        }
        // Without its stub it has no file.
        let raw = os.trap(SystemCall::SendFile(ours.id())).await;
        assert_eq!(raw, trapline::Reply::Err(Errno::Invalid));
        assert_eq!(ours.send_file(os, &source, 0, 10).await?, 4);
        ours.close(os).await?;
        let mut got = String::new();
        theirs.read_to_string(&mut got)?;
        assert_eq!(got, "fine");
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s34_a_world_that_cannot_send_says_so() {
    let (world, _) = Bells::new();
    let (world, _) = Counted::new(world);
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        let device = os.attach(io::stderr()).await?;
        let source = file("bells", b"x");
        let sent = device.send_file(os, &source, 0, 1).await;
        assert_eq!(kind(sent), ErrorKind::Unsupported);
        Ok::<(), io::Error>(())
    });
    let mut kernel = Kernel::builder().world(SimWorld::new(0)).build().unwrap();
    run_main(&mut kernel, async |os: &mut Os| {
        assert_eq!(kind(os.attach(io::stderr()).await), ErrorKind::Unsupported);
    });
}

/// Sends to a peer that resets the connection, until that is an error, and then again. The peer has
/// ended its half first: the reset is an EPIPE then, which is what the signal comes with.
fn send_to_the_reset() {
    real(async |os| {
        for has_ended in [false, true] {
            let (ours, theirs) = tcp(os).await?;
            let source = file("reset", &CONTENT);
            fill(os, &ours, &source).await;
            if has_ended {
                theirs.shutdown(net::Shutdown::Write)?;
                assert_eq!(ours.recv(os, &mut [0]).await?, 0);
            }
            SockRef::from(&theirs).set_linger(Some(Duration::ZERO))?;
            drop(theirs);
            let first = kind(send(os, &ours, &source, 0).await);
            assert!(
                [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&first),
                "{first}"
            );
            let then = kind(ours.send_file(os, &source, 0, LEN).await);
            assert_eq!(then, ErrorKind::BrokenPipe);
        }
        Ok::<(), io::Error>(())
    });
}

#[test]
fn s37_sending_a_file_to_a_peer_that_has_gone_is_an_error() {
    send_to_the_reset();
}

#[test]
fn s37_sending_a_file_raises_no_signal() {
    let test = "send_file::s37_sending_a_file_raises_no_signal";
    alone(test, || {
        let raised = Arc::new(AtomicBool::new(false));
        let signal = signal_hook::consts::SIGPIPE;
        signal_hook::flag::register(signal, Arc::clone(&raised)).expect("it can be caught");
        send_to_the_reset();
        assert!(!raised.load(Ordering::SeqCst));
    });
}
