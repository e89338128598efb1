//! [`Writer`]: many small writes in few sends.

use std::{fmt, io};

use super::PIECE;
use crate::{
    trap::Caller,
    user::{device::Device, os::Os},
};

/// Gathers what is written to a [`Device`], and sends it in large pieces. (The `BufWriter` of the standard
/// library, without a send at the drop.)
///
/// A [`write`](Self::write) that is cut by a timeout, a scope or a dropped future has taken nothing. A
/// [`flush`](Self::flush) that is cut has sent a part, and keeps the rest for the next. So a program that
/// repeats a call after a cut sends each byte once.
///
/// Dropping it sends nothing, since a destructor makes no calls that block. If unsent bytes are lost, a
/// `tracing` warning says so; there is none after a call of the writer has failed.
///
/// ```
/// # use trapline::{Kernel, Os, Writer};
/// # let mut kernel = Kernel::simulated(1);
/// # kernel.spawn("server", async |os: &mut Os| {
/// #     let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
/// #     let (stream, _) = listener.accept(os).await?;
/// #     let mut bytes = Vec::new();
/// #     while stream.recv_into(os, &mut bytes).await? > 0 {}
/// #     assert_eq!(bytes, b"GET / HTTP/1.1\r\nHost: server\r\n\r\n");
/// #     std::io::Result::Ok(())
/// # })?;
/// # kernel.spawn("client", async |os: &mut Os| {
/// #     let stream = os.connect(("127.0.0.1", 80)).await?;
/// let mut writer = Writer::new(&stream, 4096);
/// writer.write(os, b"GET / HTTP/1.1\r\n").await?;
/// write!(writer, "Host: {}\r\n\r\n", "server");
/// writer.flush(os).await?; // the only send
/// #     std::io::Result::Ok(())
/// # })?;
/// # kernel.run()?.check()?;
/// # Ok::<(), trapline::Error>(())
/// ```
pub struct Writer<S> {
    device: Device<S>,
    /// What is written. The first `at` bytes are sent.
    bytes: Vec<u8>,
    at: usize,
    room: usize,
    /// Whether the last send has failed, of which the program knows.
    has_failed: bool,
}

impl<S> Writer<S> {
    /// Makes a writer. `room` is the number of bytes that it gathers before it sends.
    #[must_use]
    pub fn new(device: &Device<S>, room: usize) -> Self {
        Self {
            device: device.clone(),
            bytes: Vec::new(),
            at: 0,
            room,
            has_failed: false,
        }
    }

    /// Takes all of the bytes. If they would be more than `room` with those that are unsent, it sends
    /// these first. It keeps a longer write as a whole until the next call.
    ///
    /// *Blocks* until there is room. A write that fits takes no trap.
    ///
    /// *Errors:* as [`flush`](Self::flush). None of the bytes are taken then.
    #[track_caller]
    pub fn write<'a>(
        &'a mut self,
        os: &'a mut Os,
        bytes: &'a [u8],
    ) -> impl Future<Output = io::Result<()>> + 'a {
        let place = os.note_caller();
        async move {
            if self.unsent().saturating_add(bytes.len()) > self.room {
                self.send(os, place).await?;
            }
            self.bytes.extend_from_slice(bytes);
            Ok(())
        }
    }

    /// Takes a text; `writeln!(writer, "...")` takes a line. It makes no trap and sends nothing, whatever
    /// `room` is: the next [`write`](Self::write) or [`flush`](Self::flush) does.
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) {
        io::Write::write_fmt(&mut self.bytes, text).expect("a vector takes every text");
    }

    /// Sends all that is unsent.
    ///
    /// *Blocks* until the device has taken it. The peer may not have received it yet.
    ///
    /// *Errors:* those of [`Device::send`]. The unsent bytes stay.
    #[track_caller]
    pub fn flush<'a>(&'a mut self, os: &'a mut Os) -> impl Future<Output = io::Result<()>> + 'a {
        let place = os.note_caller();
        self.send(os, place)
    }

    /// Returns the number of bytes that are written and not sent.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.bytes.len() - self.at
    }

    async fn send(&mut self, os: &mut Os, place: Caller) -> io::Result<()> {
        while self.unsent() > 0 {
            let (unsent, at) = (&self.bytes[self.at..], &mut self.at);
            let sent = self.device.send_at(place, os, unsent, |n| *at += n).await;
            self.has_failed = !matches!(sent, Ok(1..));
            if sent? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.at = 0;
        self.bytes.clear();
        self.bytes.shrink_to(PIECE);
        Ok(())
    }
}

impl<S> Drop for Writer<S> {
    fn drop(&mut self) {
        let (id, unsent) = (self.device.id(), self.unsent());
        if unsent > 0 && !self.has_failed {
            tracing::warn!(
                "{unsent} bytes for device {id} are lost: its writer was dropped unflushed"
            );
        }
    }
}

impl<S> fmt::Debug for Writer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, unsent) = (self.device.id(), self.unsent());
        write!(f, "Writer(device {id}, {unsent} bytes)")
    }
}
