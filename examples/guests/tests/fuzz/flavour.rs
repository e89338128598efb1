//! The interpreter of a plan. It is compiled twice, over the names of futures and over those of tokio.

use std::{collections::VecDeque, io};

use futures::{
    FutureExt, StreamExt, TryStreamExt,
    future::{Either, LocalBoxFuture, join, join_all, select},
    stream::{self, FuturesUnordered},
};

use super::names::*;
use crate::{
    Pause,
    plan::{Connection, Gather, Plan, Receives, Sends, Turns},
    spins,
};

type Bytes = io::Result<Vec<u8>>;

/// Runs the futures of all connections. The results are in their order.
async fn gather<'a>(
    how: Gather,
    each: Vec<LocalBoxFuture<'a, (usize, Bytes)>>,
) -> Vec<(usize, Bytes)> {
    let mut all = match how {
        Gather::Nested => {
            let none: LocalBoxFuture<'a, Vec<_>> = async { Vec::new() }.boxed_local();
            let nest = |rest: LocalBoxFuture<'a, Vec<_>>, one: LocalBoxFuture<'a, _>| {
                let both = async {
                    let (mut all, last) = join(rest, one).await;
                    all.push(last);
                    all
                };
                both.boxed_local()
            };
            each.into_iter().fold(none, nest).await
        }
        Gather::All => join_all(each).await,
        Gather::Unordered => {
            each.into_iter()
                .collect::<FuturesUnordered<_>>()
                .collect()
                .await
        }
        Gather::Buffered(n) => stream::iter(each).buffered(n).collect().await,
        Gather::BufferUnordered(n) => stream::iter(each).buffer_unordered(n).collect().await,
        Gather::Select => selected(each).await,
    };
    all.sort_by_key(|(index, _)| *index);
    all
}

/// Two groups, of which `select!` polls both until both have ended.
async fn selected(mut each: Vec<LocalBoxFuture<'_, (usize, Bytes)>>) -> Vec<(usize, Bytes)> {
    let others = each.split_off(each.len() / 2);
    let (mut left, mut right) = (join_all(each).fuse(), join_all(others).fuse());
    let mut all = Vec::new();
    loop {
        futures::select! {
            some = left => all.extend(some),
            some = right => all.extend(some),
            complete => return all,
        }
    }
}

/// The client: sends and receives on each connection. Returns what it has received.
pub async fn client<S: AsyncRead + AsyncWrite + Unpin>(
    plan: &Plan,
    streams: Vec<S>,
    pause: &Pause,
) -> io::Result<Vec<Vec<u8>>> {
    let each = plan
        .connections
        .iter()
        .zip(streams)
        .map(|(connection, stream)| {
            let one = async move {
                let (reader, writer) = halves(stream);
                let sends = send(writer, connection, pause);
                let receives = receive(reader, &connection.receives, pause);
                let bytes = match connection.in_turn {
                    true => match sends.await {
                        Ok(()) => receives.await,
                        Err(error) => Err(error),
                    },
                    false => {
                        let (sent, received) = futures::join!(sends, receives);
                        sent.and(received)
                    }
                };
                (connection.index, bytes)
            };
            one.boxed_local()
        });
    let all = gather(plan.client, each.collect()).await;
    all.into_iter().map(|(_, bytes)| bytes).collect()
}

async fn send<W: AsyncWrite + Unpin>(
    mut writer: W,
    connection: &Connection,
    pause: &Pause,
) -> io::Result<()> {
    let pieces = &connection.pieces;
    let all = pieces.concat();
    match connection.sends {
        Sends::Pieces { flushes } => {
            for piece in pieces {
                writer.write_all(piece).await?;
                if flushes {
                    writer.flush().await?;
                }
            }
        }
        Sends::Buffered(room) => {
            let mut buffered = BufWriter::with_capacity(room, &mut writer);
            for (n, piece) in pieces.iter().enumerate() {
                buffered.write_all(piece).await?;
                pause(n as u32 % 3).await;
            }
            buffered.flush().await?;
        }
        Sends::Copy => drop(copy(&mut Cursor::new(all), &mut writer).await?),
        Sends::Chain { take } => {
            let (one, two) = all.split_at(all.len() / 3);
            let mut chain = Cursor::new(one.to_vec()).chain(Cursor::new(two.to_vec()));
            if take {
                copy(&mut (&mut chain).take(all.len() as u64 / 2), &mut writer).await?;
            }
            copy(&mut chain, &mut writer).await?;
        }
        Sends::CopyBuf(room) => {
            let mut buffered = BufReader::with_capacity(room, Cursor::new(all));
            copy_buf(&mut buffered, &mut writer).await?;
        }
        Sends::Sink => return sink(&mut writer, pieces, pause).await,
        Sends::Ahead(n) => {
            let ready = stream::iter(pieces.iter().enumerate());
            let ready = ready.map(|(n, piece)| pause(7 - n as u32 % 7).map(move |()| piece));
            let mut ready = std::pin::pin!(ready.buffered(n));
            while let Some(piece) = ready.next().await {
                writer.write_all(piece).await?;
            }
        }
        Sends::Select(pauses) => {
            let mut rest = &all[..];
            let mut round = 0;
            while !rest.is_empty() {
                round += 1;
                let write = std::pin::pin!(writer.write(rest));
                // The write that is not done is dropped, and must have taken nothing.
                if let Either::Left((n, _)) = select(write, pause(spins(round, pauses))).await {
                    rest = &rest[n?..];
                }
            }
        }
    }
    close(&mut writer).await
}

async fn receive<R: AsyncRead + Unpin>(mut reader: R, how: &Receives, pause: &Pause) -> Bytes {
    let mut all = Vec::new();
    match how {
        Receives::ToEnd => drop(reader.read_to_end(&mut all).await?),
        Receives::Until(room, byte) => {
            let mut buffered = BufReader::with_capacity(*room, reader);
            while buffered.read_until(*byte, &mut all).await? > 0 {
                pause(1).await;
            }
        }
        Receives::Take(n) => {
            (&mut reader).take(*n).read_to_end(&mut all).await?;
            reader.read_to_end(&mut all).await?;
        }
        Receives::Chain(prefix) => {
            let mut chain = Cursor::new(prefix.clone()).chain(reader);
            chain.read_to_end(&mut all).await?;
            assert_eq!(all.drain(..prefix.len()).collect::<Vec<_>>(), *prefix);
        }
        Receives::Chunks(room) => {
            let mut chunk = vec![0; *room];
            loop {
                match reader.read(&mut chunk).await? {
                    0 => break,
                    n => all.extend_from_slice(&chunk[..n]),
                }
            }
        }
        Receives::Select(room, pauses) => {
            let mut chunk = vec![0; *room];
            for round in 1.. {
                let read = std::pin::pin!(reader.read(&mut chunk));
                // The read that is not done is dropped, and must have taken nothing.
                let Either::Left((n, _)) = select(read, pause(spins(round, *pauses))).await else {
                    continue;
                };
                match n? {
                    0 => break,
                    n => all.extend_from_slice(&chunk[..n]),
                }
            }
        }
        Receives::Unfold(n) => {
            let chunks = stream::try_unfold(reader, async |mut reader| {
                let mut chunk = vec![0; 333];
                let n = reader.read(&mut chunk).await?;
                chunk.truncate(n);
                io::Result::Ok((n > 0).then_some((chunk, reader)))
            });
            let later = chunks.map_ok(|chunk| pause(2).map(|()| io::Result::Ok(chunk)));
            all = later.try_buffered(*n).try_concat().await?;
        }
        Receives::Copy => drop(copy(&mut reader, &mut all).await?),
    }
    Ok(all)
}

/// The server: answers on each connection. The streams are in the order of the plan.
pub async fn server<S: AsyncRead + AsyncWrite + Unpin>(
    plan: &Plan,
    mut streams: Vec<S>,
    pause: &Pause,
) -> io::Result<()> {
    let mut each = Vec::new();
    if plan.crosses {
        let (one, two) = (streams.remove(0), streams.remove(0));
        each.push(cross(one, two).map(|done| (0, done)).boxed_local());
    }
    let rest = &plan.connections[if plan.crosses { 2 } else { 0 }..];
    for (connection, stream) in rest.iter().zip(streams) {
        let answers = answer(stream, &connection.turns, pause);
        each.push(answers.map(|done| (connection.index, done)).boxed_local());
    }
    let all = gather(plan.server, each).await;
    all.into_iter().try_for_each(|(_, done)| done.map(drop))
}

async fn cross<S: AsyncRead + AsyncWrite + Unpin>(one: S, two: S) -> Bytes {
    let ((mut one_reader, mut one_writer), (mut two_reader, mut two_writer)) =
        (halves(one), halves(two));
    let there = async {
        copy(&mut one_reader, &mut two_writer).await?;
        close(&mut two_writer).await
    };
    let back = async {
        copy(&mut two_reader, &mut one_writer).await?;
        close(&mut one_writer).await
    };
    let (there, back) = futures::join!(there, back);
    there.and(back).map(|()| Vec::new())
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    turns: &Turns,
    pause: &Pause,
) -> Bytes {
    let (mut reader, mut writer) = halves(stream);
    match turns {
        Turns::Copy => drop(copy(&mut reader, &mut writer).await?),
        Turns::CopyBuf(room) => {
            copy_buf(&mut BufReader::with_capacity(*room, reader), &mut writer).await?;
        }
        Turns::Reverse => {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).await?;
            all.reverse();
            writer.write_all(&all).await?;
        }
        Turns::Xor(after, room) => {
            copy(&mut (&mut reader).take(*after), &mut writer).await?;
            let mut buffered = BufWriter::with_capacity(*room, &mut writer);
            let mut chunk = [0; 1000];
            loop {
                let n = reader.read(&mut chunk).await?;
                if n == 0 {
                    break;
                }
                chunk[..n].iter_mut().for_each(|byte| *byte ^= 0x55);
                buffered.write_all(&chunk[..n]).await?;
            }
            buffered.flush().await?;
        }
        Turns::Prefix(prefix, room) => {
            let mut chain = Cursor::new(prefix.clone()).chain(reader);
            let mut buffered = BufWriter::with_capacity(*room, &mut writer);
            copy(&mut chain, &mut buffered).await?;
            buffered.flush().await?;
        }
        Turns::Until(byte) => {
            let mut buffered = BufReader::new(reader);
            let mut line = Vec::new();
            while buffered.read_until(*byte, &mut line).await? > 0 {
                pause(1).await;
                writer.write_all(&line).await?;
                line.clear();
            }
        }
        Turns::Pump(room) => pump(&mut reader, &mut writer, *room).await?,
    }
    close(&mut writer).await?;
    Ok(Vec::new())
}

/// Reads and writes at once. Each round drops the one of the two that is not done.
async fn pump<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reader: &mut R,
    writer: &mut W,
    room: usize,
) -> io::Result<()> {
    let (mut held, mut is_over) = (VecDeque::new(), false);
    while !is_over || !held.is_empty() {
        let mut chunk = vec![0; room - held.len()];
        let waiting = held.make_contiguous();
        let reads = !is_over && !chunk.is_empty();
        let read = async {
            match reads {
                true => reader.read(&mut chunk).await,
                false => std::future::pending().await,
            }
        };
        let write = async {
            match waiting.is_empty() {
                true => std::future::pending().await,
                false => writer.write(waiting).await,
            }
        };
        match select(std::pin::pin!(read), std::pin::pin!(write)).await {
            Either::Left((n, _)) => {
                let n = n?;
                is_over = n == 0;
                held.extend(&chunk[..n]);
            }
            Either::Right((n, _)) => drop(held.drain(..n?)),
        }
    }
    Ok(())
}
