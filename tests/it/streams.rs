//! Readers, writers and copies: what they do, beside the standard library, and when they are cut.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    io::{self, BufRead, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    rc::Rc,
    time::Duration,
};

use trapline::{
    Device, Elapsed, Endpoint, Error, Exit, Kernel, Os, Reader, Scope, Shared, SimNet, SimWorld,
    Stream, TcpStream, Writer, check,
};

use crate::{log::Warnings, support::*};

const MS: Duration = Duration::from_millis(1);

/// Numbers that a test draws, before anything runs.
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: usize) -> usize {
        // Knuth's generator; its upper bits are good enough.
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Runs a server and its client over a connection of that network; both must end well.
fn pair(
    net: &SimNet,
    seed: u64,
    server: impl AsyncFnOnce(&mut Os, TcpStream) -> io::Result<()> + 'static,
    client: impl AsyncFnOnce(&mut Os, TcpStream) -> io::Result<()> + 'static,
) {
    let builder = Kernel::builder().world(SimWorld::new(seed).net(net));
    let mut kernel = builder.max_ticks(10_000_000).build().expect("it boots");
    spawn_pair(&mut kernel, server, client);
    kernel
        .run()
        .expect("it ends")
        .check()
        .expect("it ends well");
}

fn spawn_pair(
    kernel: &mut Kernel,
    server: impl AsyncFnOnce(&mut Os, TcpStream) -> io::Result<()> + 'static,
    client: impl AsyncFnOnce(&mut Os, TcpStream) -> io::Result<()> + 'static,
) {
    kernel
        .spawn("server", async |os: &mut Os| {
            let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
            let (stream, _) = listener.accept(os).await?;
            server(os, stream).await
        })
        .expect("there is room");
    kernel
        .spawn("client", async |os: &mut Os| {
            let stream = os.connect(Endpoint::from(([127, 0, 0, 1], 80))).await?;
            client(os, stream).await
        })
        .expect("there is room");
}

/// Sends these bytes in pieces of those sizes, with pauses.
fn sender(
    bytes: Vec<u8>,
    mut draws: Draws,
) -> impl AsyncFnOnce(&mut Os, TcpStream) -> io::Result<()> {
    async move |os: &mut Os, stream: TcpStream| {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(1 + draws.below(rest.len().min(20)));
            stream.send_all(os, piece).await?;
            os.sleep(MS * draws.below(3) as u32).await;
            rest = more;
        }
        stream.shutdown_write(os).await
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Line,
    Until(u8),
    Exact(usize),
    Parse(usize),
}

type Got = Result<Option<Vec<u8>>, ErrorKind>;

/// What an operation returns according to the standard library.
fn expected(rest: &mut &[u8], op: Op, max: usize) -> Got {
    let mut record = Vec::new();
    match op {
        Op::Line => {
            rest.read_until(b'\n', &mut record).unwrap();
            if record.is_empty() {
                return Ok(None);
            }
            let line = (&record[..]).lines().next().expect("there is one");
            let has_end = record.ends_with(b"\n");
            let end = usize::from(has_end) + usize::from(record.ends_with(b"\r\n"));
            match line {
                _ if record.len() - end > max => Err(ErrorKind::InvalidData),
                Ok(line) => Ok(Some(line.into_bytes())),
                Err(error) => Err(error.kind()),
            }
        }
        Op::Until(delimiter) => {
            rest.read_until(delimiter, &mut record).unwrap();
            let end = usize::from(record.ends_with(&[delimiter]));
            match record.len() - end > max {
                true => Err(ErrorKind::InvalidData),
                false => Ok((!record.is_empty()).then_some(record)),
            }
        }
        Op::Exact(n) => {
            record.resize(n, 0);
            let before = *rest;
            rest.read_exact(&mut record)
                .map(|()| Some(record))
                .map_err(|error| {
                    *rest = before;
                    error.kind()
                })
        }
        Op::Parse(n) => {
            let n = n.min(rest.len());
            record.extend(&rest[..n]);
            *rest = &rest[n..];
            Ok((n > 0).then_some(record))
        }
    }
}

async fn perform(os: &mut Os, reader: &mut Reader<Stream>, op: Op) -> io::Result<Option<Vec<u8>>> {
    match op {
        Op::Line => Ok(reader.read_line(os).await?.map(String::into_bytes)),
        Op::Until(delimiter) => reader.read_until(os, delimiter).await,
        Op::Exact(n) => {
            let mut buf = vec![0; n];
            reader.read_exact(os, &mut buf).await.map(|()| Some(buf))
        }
        Op::Parse(n) => {
            while reader.buffer().len() < n && reader.fill(os).await? > 0 {}
            let n = n.min(reader.buffer().len());
            let taken = reader.buffer()[..n].to_vec();
            reader.consume(n);
            Ok((n > 0).then_some(taken))
        }
    }
}

/// Random bytes in random pieces, read by random operations. With `patience`, each of them is cut by
/// timeouts and made again until it returns.
fn reads_as_the_standard_library_does(seed: u64, patience: Option<usize>) {
    let mut draws = Draws(seed);
    let max = 1 + draws.below(30);
    let letters: [&[u8]; 8] = [
        b"a",
        b"bc",
        b"\n",
        b"\r\n",
        b"\r",
        "ä".as_bytes(),
        b":",
        b"\xff",
    ];
    let mut bytes = Vec::new();
    for _ in 0..draws.below(200) {
        // Few that are no text, or long.
        match draws.below(12) {
            0 => bytes.extend(letters[draws.below(8)]),
            1 => bytes.extend(vec![b'x'; draws.below(50)]),
            _ => bytes.extend(letters[draws.below(7)]),
        }
    }
    let ops: Vec<Op> = (0..60)
        .map(|_| match draws.below(5) {
            0 | 1 => Op::Line,
            2 => Op::Until(*draws.one(b"\n:b")),
            3 => Op::Exact(draws.below(60)),
            _ => Op::Parse(1 + draws.below(max)),
        })
        .collect();
    let mut rest = &bytes[..];
    let expected: Vec<Got> = ops.iter().map(|op| expected(&mut rest, *op, max)).collect();
    let rest = rest.to_vec();
    let net = SimNet::new().fragment(true);
    let server = sender(bytes, Draws(seed ^ 1));
    let client = async move |os: &mut Os, stream: TcpStream| {
        let mut reader = Reader::new(&stream, max);
        for (op, expected) in ops.into_iter().zip(expected) {
            let got = loop {
                let Some(most) = patience else {
                    break perform(os, &mut reader, op).await;
                };
                let span = MS * draws.below(most) as u32 / 2;
                let attempt = async |os: &mut Os| perform(os, &mut reader, op).await;
                match os.timeout(span, attempt).await {
                    Ok(result) => break result,
                    // A timeout of zero lets one answer through; time must pass at some time.
                    Err(Elapsed) => os.sleep(MS).await,
                }
            };
            let got = got.map_err(|error| error.kind());
            assert_eq!(got, expected, "{op:?} of at most {max}, seed {seed}");
        }
        let mut end = reader.buffer().to_vec();
        while stream.recv_into(os, &mut end).await? > 0 {}
        assert!(end.ends_with(&rest), "seed {seed}");
        Ok(())
    };
    pair(&net, seed, server, client);
}

#[test]
fn a_reader_reads_as_the_standard_library_does() {
    for seed in 0..300 {
        reads_as_the_standard_library_does(seed, None);
    }
}

#[test]
fn a_reader_that_is_cut_at_random_reads_the_same() {
    for seed in 0..300 {
        reads_as_the_standard_library_does(seed, Some(1 + seed as usize % 8));
    }
}

/// A cancel at each step of a `read_line`, and at each instant: the line is there for the next one.
#[test]
fn s74_a_read_line_that_is_cancelled_at_any_step_loses_no_byte() {
    let mut outcomes = BTreeSet::new();
    for instant in 0..7 {
        let program = |kernel: &mut Kernel| cancelled_after(kernel, LOOPBACK * instant);
        let all = check(program).exhaustive().explore();
        assert!(all.failure.is_none() && all.complete, "{all:?}");
        outcomes.extend(all.outcomes);
    }
    assert_eq!(
        outcomes.len(),
        4,
        "0 to 2 lines before it, or all: {outcomes:?}"
    );
}

/// How long a packet takes.
const LOOPBACK: Duration = Duration::from_micros(10);

/// The outcome is how many lines come before the cut.
fn cancelled_after(kernel: &mut Kernel, span: Duration) -> Result<(), Error> {
    let cut = Shared::new(None);
    let theirs = cut.clone();
    let server = async |os: &mut Os, stream: TcpStream| {
        for piece in [&b"on"[..], b"e\ntwo"] {
            stream.send_all(os, piece).await?;
            os.sleep(LOOPBACK).await;
        }
        stream.shutdown_write(os).await
    };
    let client = async move |os: &mut Os, stream: TcpStream| {
        let scope = Scope::new();
        let other = scope.clone();
        let cancel = async move |os: &mut Os| {
            os.sleep(span).await;
            other.cancel(os).await;
        };
        os.spawn_detached("cancel", cancel)
            .await
            .map_err(io::Error::other)?;
        let (mut reader, mut lines) = (Reader::new(&stream, 10), Vec::new());
        let body = async |os: &mut Os| {
            while let Some(line) = reader.read_line(os).await? {
                lines.push(line);
            }
            io::Result::Ok(())
        };
        match scope.run(os, body).await {
            Ok(read) => read?,
            Err(_) => theirs.set(Some(lines.len())),
        }
        while let Some(line) = reader.read_line(os).await? {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "two"]);
        Ok(())
    };
    spawn_pair(kernel, server, client);
    kernel.run()?.check()?;
    kernel.outcome(format!("{:?}", cut.get()));
    Ok(())
}

/// A future that is dropped when the bytes have arrived, and before it is polled, has kept them.
#[test]
fn a_read_that_is_dropped_with_its_answer_loses_no_byte() {
    real(async |os: &mut Os| {
        let (ours, mut theirs) = UnixStream::pair()?;
        let device = os.attach(ours).await?;
        let mut reader = Reader::new(&device, 10);
        theirs.write_all(b"on")?;
        leave_answer(reader.read_line(os)).await;
        assert_eq!(reader.buffer(), b"on");
        theirs.write_all(b"e\nmuch too long for it\ntwo\n")?;
        assert_eq!(reader.read_line(os).await?.as_deref(), Some("one"));
        let mut bytes = Vec::new();
        theirs.write_all(b"rest")?;
        assert!(reader.read_line(os).await.is_err());
        leave_answer(device.recv_into(os, &mut bytes)).await;
        assert_eq!(bytes, b"rest");
        io::Result::Ok(())
    });
}

#[test]
fn a_peer_makes_a_reader_keep_only_so_much() {
    let server = async |os: &mut Os, stream: TcpStream| {
        let mut writer = Writer::new(&stream, 1000);
        for _ in 0..200 {
            writer.write(os, &[b'x'; 1000]).await?;
        }
        writer.write(os, b"\n123\r\n1234\n123\r").await?;
        writer.flush(os).await?;
        stream.shutdown_write(os).await
    };
    let client = async |os: &mut Os, stream: TcpStream| {
        let mut reader = Reader::new(&stream, 3);
        let error = reader.read_line(os).await.unwrap_err();
        let id = stream.id();
        let what = "has more than 3 bytes, the limit of its reader";
        assert_eq!(
            error.to_string(),
            format!("a line or record of device {id} {what}")
        );
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        // At once, and not at the end of the line.
        assert!(os.now().await < Duration::from_secs(1));
        let mut kept = 0;
        while reader.buffer().is_empty() {
            // What is dropped counts as received.
            assert!(reader.fill(os).await? > 0);
            kept = kept.max(reader.buffer().len());
        }
        assert!(kept <= 3);
        assert_eq!(reader.read_line(os).await?.as_deref(), Some("123"));
        for _ in 0..2 {
            // The second ends without its `\n`, so the `\r` belongs to it.
            assert_eq!(
                reader.read_line(os).await.unwrap_err().kind(),
                ErrorKind::InvalidData
            );
        }
        assert_eq!(reader.read_line(os).await?, None);
        assert_eq!(reader.read_until(os, 0).await?, None);
        Ok(())
    };
    pair(&SimNet::new(), 1, server, client);
}

#[test]
fn a_parser_that_needs_more_than_the_limit_is_told_so() {
    let server = async |os: &mut Os, stream: TcpStream| stream.send_all(os, b"12345\xffx\n").await;
    let client = async |os: &mut Os, stream: TcpStream| {
        let mut reader = Reader::new(&stream, 4);
        while reader.buffer().len() < 4 {
            reader.fill(os).await?;
        }
        let error = reader.fill(os).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "a parser needs more than the 4 bytes of its reader"
        );
        assert_eq!(
            (error.kind(), reader.buffer()),
            (ErrorKind::InvalidData, &b"1234"[..])
        );
        reader.consume(100);
        let error = reader.read_line(os).await.unwrap_err().to_string();
        assert!(
            error.contains("is no text: invalid utf-8 sequence of 1 bytes"),
            "{error}"
        );
        let error = reader.read_exact(os, &mut [0; 9]).await.unwrap_err();
        assert_eq!(error.to_string(), "the stream ends after 0 of 9 bytes");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        reader.read_exact(os, &mut []).await
    };
    pair(&SimNet::new(), 1, server, client);
}

/// A slow peer, and writes that are cut and repeated until they return: each byte arrives once.
#[test]
fn a_writer_that_is_cut_sends_each_byte_once() {
    for seed in 0..100 {
        let net = SimNet::new()
            .fragment(true)
            .buffer(2000)
            .bandwidth(1_000_000);
        let mut draws = Draws(seed);
        let room = draws.below(5000);
        let sizes: Vec<usize> = (0..30).map(|_| draws.below(4000)).collect();
        let len = sizes.iter().sum();
        let byte = |at: usize| (at % 251) as u8;
        let server = async move |os: &mut Os, stream: TcpStream| {
            let (mut writer, mut at) = (Writer::new(&stream, room), 0);
            for size in sizes {
                let bytes: Vec<u8> = (at..at + size).map(byte).collect();
                at += size;
                loop {
                    let span = MS * draws.below(3) as u32;
                    let write = async |os: &mut Os| writer.write(os, &bytes).await;
                    match os.timeout(span, write).await {
                        Ok(written) => break written?,
                        Err(Elapsed) => os.sleep(MS / 2).await,
                    }
                }
                assert!(writer.unsent() <= room.max(size));
            }
            while writer.unsent() > 0 {
                let flush = async |os: &mut Os| writer.flush(os).await;
                let _ = os.timeout(MS, flush).await;
            }
            stream.shutdown_write(os).await
        };
        let client = async move |os: &mut Os, stream: TcpStream| {
            let mut bytes = Vec::new();
            while stream.recv_into(os, &mut bytes).await? > 0 {
                os.sleep(MS / 4).await;
            }
            assert!(bytes.into_iter().eq((0..len).map(byte)), "seed {seed}");
            Ok(())
        };
        pair(&net, seed, server, client);
    }
}

/// A kill at each instant and in each schedule. The writer outlives the task, and another one flushes it.
#[test]
fn a_writer_whose_task_is_killed_sends_each_byte_once() {
    let mut outcomes = BTreeSet::new();
    for instant in 0..6 {
        let program = move |kernel: &mut Kernel| killed_after(kernel, LOOPBACK * instant);
        let small = || SimNet::new().buffer(4);
        let all = check(program).net(small).exhaustive().explore();
        assert!(all.failure.is_none() && all.complete, "{all:?}");
        outcomes.extend(all.outcomes);
    }
    assert!(outcomes.len() > 2, "{outcomes:?}");
}

/// The outcome is how many bytes are unsent at the kill.
#[expect(clippy::await_holding_refcell_ref, reason = "the kill ends the borrow")]
fn killed_after(kernel: &mut Kernel, span: Duration) -> Result<(), Error> {
    let left = Shared::new(0);
    let theirs = left.clone();
    let server = async |os: &mut Os, stream: TcpStream| {
        os.sleep(3 * LOOPBACK).await;
        let mut bytes = Vec::new();
        while stream.recv_into(os, &mut bytes).await? > 0 {}
        assert_eq!(bytes, b"twelve bytes");
        Ok(())
    };
    let client = async move |os: &mut Os, stream: TcpStream| {
        let writer = Rc::new(RefCell::new(Writer::new(&stream, 100)));
        write!(writer.borrow_mut(), "twelve bytes");
        let of_task = Rc::clone(&writer);
        let flush = async move |os: &mut Os| of_task.borrow_mut().flush(os).await;
        let task = os.spawn("flush", flush).await.map_err(io::Error::other)?;
        os.sleep(span).await;
        os.kill(task).await;
        theirs.set(writer.borrow().unsent());
        writer.borrow_mut().flush(os).await?;
        stream.shutdown_write(os).await
    };
    spawn_pair(kernel, server, client);
    kernel.run()?.check()?;
    kernel.outcome(format!("{}", left.get()));
    Ok(())
}

#[test]
fn a_writer_sends_when_its_room_is_used_up_and_not_when_it_is_dropped() {
    let warnings = Warnings::default();
    let main = async |os: &mut Os| {
        let (ours, mut theirs) = UnixStream::pair()?;
        let device = os.attach(ours).await?;
        theirs.set_nonblocking(true)?;
        let mut writer = Writer::new(&device, 8);
        writer.write(os, b"12345").await?;
        writer.write(os, b"678").await?;
        assert_eq!(
            theirs.read(&mut [0; 9]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        writer.write(os, b"9").await?;
        let mut buf = [0; 20];
        assert_eq!(theirs.read(&mut buf)?, 8);
        let n = 4;
        write!(writer, "and much {n}");
        assert_eq!(writer.unsent(), 11);
        writer.flush(os).await?;
        assert_eq!(theirs.read(&mut buf)?, 11);
        assert_eq!(&buf[..11], b"9and much 4");
        writer.write(os, b"lost").await?;
        drop(writer);
        // One that has failed: the program knows.
        drop(theirs);
        let mut writer = Writer::new(&device, 8);
        writer.write(os, b"lost").await?;
        let error = writer.flush(os).await.unwrap_err();
        assert_eq!((error.kind(), writer.unsent()), (ErrorKind::BrokenPipe, 4));
        io::Result::Ok(())
    };
    warnings.during(|| _ = real(main));
    let expected = "4 bytes for device 1 are lost: its writer was dropped unflushed";
    assert_eq!(warnings.lines(), [expected]);
}

/// A proxy is two copies; the end of each direction goes on to the other side.
#[test]
fn two_copies_are_a_proxy() {
    for seed in 0..50 {
        let net = SimNet::new().fragment(true).buffer(3000);
        let mut kernel = Kernel::builder()
            .world(SimWorld::new(seed).net(&net))
            .build()
            .unwrap();
        let local = |port| Endpoint::from(([127, 0, 0, 1], port));
        let server = async |os: &mut Os| {
            let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
            let (stream, _) = listener.accept(os).await?;
            let mut request = Vec::new();
            while stream.recv_into(os, &mut request).await? > 0 {}
            // The other half is still open.
            request.reverse();
            stream.send_all(os, &request).await
        };
        let proxy = async move |os: &mut Os| {
            let listener = os.listen(([127, 0, 0, 1], 81).into()).await?;
            let (client, _) = listener.accept(os).await?;
            let server = os.connect(local(80)).await?;
            let (from, to) = (server.clone(), client.clone());
            let down = async move |os: &mut Os| os.copy(&from, &to).await;
            let mut down = os
                .spawn_child("down", down)
                .await
                .map_err(io::Error::other)?;
            let mut calls = 0;
            let note = async |_: &mut Os| calls += 1;
            let up = os.copy_noting(&client, &server, note).await?;
            let down = down
                .wait(os)
                .await
                .map_err(|exit| io::Error::other(exit.to_string()))??;
            assert_eq!((up, down), (40_000, 40_000));
            assert!(calls > 1);
            io::Result::Ok(())
        };
        let client = async move |os: &mut Os| {
            let bytes: Vec<u8> = (0..40_000_u32).map(|n| (n % 253) as u8).collect();
            let stream = os.connect(local(81)).await?;
            stream.send_all(os, &bytes).await?;
            stream.shutdown_write(os).await?;
            let mut answer = Vec::new();
            while stream.recv_into(os, &mut answer).await? > 0 {}
            assert!(answer.iter().rev().eq(&bytes));
            io::Result::Ok(())
        };
        kernel.spawn("server", server).unwrap();
        kernel.spawn("proxy", proxy).unwrap();
        kernel.spawn("client", client).unwrap();
        kernel.run().unwrap().check().unwrap();
    }
}

/// A pipe has no halves to end.
#[test]
fn a_copy_to_a_pipe_ends_with_what_it_copies() {
    real(async |os: &mut Os| {
        let (mut out, into) = io::pipe()?;
        let (ours, mut theirs) = UnixStream::pair()?;
        let (from, to): (Device<_>, _) = (os.attach(ours).await?, os.attach(into).await?);
        theirs.write_all(b"some bytes")?;
        drop(theirs);
        assert_eq!(os.copy(&from, &to).await?, 10);
        let mut buf = [0; 20];
        assert_eq!(out.read(&mut buf)?, 10);
        // It is open: there may be more to copy to it.
        to.send_all(os, b"!").await?;
        assert_eq!(out.read(&mut buf)?, 1);
        drop(out);
        let (ours, mut theirs) = UnixStream::pair()?;
        theirs.write_all(b"some bytes")?;
        let from = os.attach(ours).await?;
        let error = os.copy(&from, &to).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        io::Result::Ok(())
    });
}

/// Two tasks that read from one device: the second has an error, as for `recv`.
#[test]
fn s31_a_second_reader_of_a_device_is_told_that_it_is_busy() {
    let server = async |os: &mut Os, stream: TcpStream| {
        os.sleep(2 * MS).await;
        stream.send_all(os, b"one\ntwo\n").await
    };
    let client = async |os: &mut Os, stream: TcpStream| {
        let stream = Rc::new(stream);
        let theirs = Rc::clone(&stream);
        let other = async move |os: &mut Os| {
            os.sleep(MS).await;
            let error = Reader::new(&theirs, 9).read_line(os).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        };
        let other = os.spawn("other", other).await.map_err(io::Error::other)?;
        let (mut reader, mut all) = (Reader::new(&stream, 9), Vec::new());
        let mut lines = reader.lines();
        while let Some(line) = lines.next(os).await? {
            all.push(line);
        }
        assert_eq!(all, ["one", "two"]);
        assert_eq!(os.wait(other).await.ok(), Some(Exit::Done));
        Ok(())
    };
    pair(&SimNet::new(), 1, server, client);
}
