//! Files for guests.

use std::{
    fmt,
    io::{self, SeekFrom},
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::call::{Awaited, ForeignTask};
use crate::{
    abi::Mode,
    trap::MAX_IO,
    user::{disk::File, os::Os},
};

/// A file for a guest, by [`Foreign::file`](super::Foreign::file), with a position. It has the traits of
/// futures and tokio for bytes and positions, and those of hyper for bytes.
///
/// Each operation is done by a task of its own, one at a time. A write is under way when it returns; the
/// next operation, a flush or a close tells its error. A file that was opened by [`Mode::Append`] has all
/// that is written at its end. What is written is durable after [`File::sync`].
pub struct ForeignFile {
    file: File,
    position: u64,
    under_way: Option<UnderWay>,
    #[cfg(feature = "tokio-io")]
    seeks: Option<SeekFrom>,
}

type Pending<T> = Awaited<io::Result<T>>;

enum UnderWay {
    Read(Pending<Vec<u8>>),
    Write(Pending<()>),
    Length(Pending<u64>),
}

/// What an operation has come to.
enum Outcome {
    Bytes(Vec<u8>),
    Length(u64),
    Nothing,
}

fn begin<T: 'static>(body: impl AsyncFnOnce(&mut Os) -> io::Result<T> + 'static) -> Pending<T> {
    Awaited(ForeignTask::begin("file".into(), body))
}

impl ForeignFile {
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            position: 0,
            under_way: None,
            #[cfg(feature = "tokio-io")]
            seeks: None,
        }
    }

    /// Waits for the operation that is under way.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Outcome>> {
        fn poll<T>(pending: &mut Pending<T>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
            let lost =
                || io::Error::other("the task of the operation was killed, or found no room");
            Pin::new(&mut pending.0)
                .poll(cx)
                .map(|value| value.unwrap_or_else(|| Err(lost())))
        }
        let outcome = match &mut self.under_way {
            None => return Poll::Ready(Ok(Outcome::Nothing)),
            Some(UnderWay::Read(bytes)) => ready!(poll(bytes, cx)).map(Outcome::Bytes),
            Some(UnderWay::Length(len)) => ready!(poll(len, cx)).map(Outcome::Length),
            Some(UnderWay::Write(done)) => ready!(poll(done, cx)).map(|()| Outcome::Nothing),
        };
        self.under_way = None;
        Poll::Ready(outcome)
    }

    /// Reads at the position, up to 64 KiB; 0 at the end of the file.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            if let Outcome::Bytes(bytes) = ready!(self.poll_over(cx))? {
                // The buffer may be another one than that of the poll before.
                let n = bytes.len().min(buf.len());
                buf[..n].copy_from_slice(&bytes[..n]);
                self.position += n as u64;
                return Poll::Ready(Ok(n));
            }
            let (file, from, len) = (self.file.clone(), self.position, buf.len().min(MAX_IO));
            if len == 0 {
                return Poll::Ready(Ok(0));
            }
            self.under_way = Some(UnderWay::Read(begin(async move |os: &mut Os| {
                let mut bytes = vec![0; len];
                let n = file.read_at(os, &mut bytes, from).await?;
                bytes.truncate(n);
                Ok(bytes)
            })));
        }
    }

    /// Takes up to 64 KiB to write at the position.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_over(cx))?;
        let bytes = buf[..buf.len().min(MAX_IO)].to_vec();
        let (file, at, n) = (self.file.clone(), self.position, bytes.len());
        if n == 0 {
            return Poll::Ready(Ok(0));
        }
        self.under_way = Some(UnderWay::Write(begin(
            async move |os: &mut Os| match file.mode() {
                Mode::Append => file.append(os, &bytes).await,
                _ => file.write_at(os, &bytes, at).await,
            },
        )));
        self.position += n as u64;
        Poll::Ready(Ok(n))
    }

    /// Is ready once what was written is in the file. That does not make it durable.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_over(cx).map_ok(drop)
    }

    /// The same.
    pub fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }

    /// Sets the position, and returns it.
    pub fn poll_seek(&mut self, cx: &mut Context<'_>, to: SeekFrom) -> Poll<io::Result<u64>> {
        loop {
            let outcome = ready!(self.poll_over(cx))?;
            let (base, offset) = match (to, outcome) {
                (SeekFrom::Start(position), _) => (position, 0),
                (SeekFrom::Current(offset), _) => (self.position, offset),
                (SeekFrom::End(offset), Outcome::Length(len)) => (len, offset),
                (SeekFrom::End(_), _) => {
                    let file = self.file.clone();
                    let len = async move |os: &mut Os| file.len(os).await;
                    self.under_way = Some(UnderWay::Length(begin(len)));
                    continue;
                }
            };
            let position = base.checked_add_signed(offset);
            self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
            return Poll::Ready(Ok(self.position));
        }
    }
}

/// Tokio's way to seek, in two steps.
#[cfg(feature = "tokio-io")]
impl ForeignFile {
    pub(super) fn start_seek(&mut self, to: SeekFrom) {
        self.seeks = Some(to);
    }

    pub(super) fn poll_complete(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let Some(to) = self.seeks else {
            return Poll::Ready(Ok(self.position));
        };
        let done = ready!(self.poll_seek(cx, to));
        self.seeks = None;
        Poll::Ready(done)
    }
}

impl fmt::Debug for ForeignFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, position, .. } = self;
        write!(f, "ForeignFile({:?} at {position})", file.path())
    }
}
