//! [`Reader`]: lines, records and parsers.

use std::{
    fmt,
    io::{self, ErrorKind},
    str,
};

use super::PIECE;
use crate::{
    abi::DeviceId,
    trap::Caller,
    user::{device::Device, os::Os},
};

/// Reads lines, records and exact numbers of bytes from a [`Device`]: a socket, a pipe, a terminal.
/// (The `BufReader` of the standard library, with a limit.)
///
/// It keeps what has arrived until a call takes it. So a call that a timeout, a scope or a dropped future
/// cuts takes nothing: the bytes are there for the next call. No call takes a part of a line, of a record
/// or of an exact number.
///
/// A line or record of more than `max` bytes fails with `InvalidData`, and the next call begins behind
/// its end. So a peer makes a reader keep at most `max` bytes, or 8 KiB if that is more.
///
/// It has a handle to the device, as a clone has. A [`Device::recv`] beside it does not return what the
/// reader has received, and a select on the device does not see that: look at [`Reader::buffer`] first.
///
/// ```
/// use trapline::{Kernel, Os, Reader, Writer};
///
/// let mut kernel = Kernel::simulated(1);
/// kernel.spawn("server", async |os: &mut Os| {
///     let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
///     let (stream, _) = listener.accept(os).await?;
///     let (mut reader, mut writer) = (Reader::new(&stream, 1000), Writer::new(&stream, 4096));
///     let mut lines = reader.lines();
///     while let Some(line) = lines.next(os).await? {
///         writeln!(writer, "{} bytes: {line}", line.len());
///         writer.flush(os).await?;
///     }
///     std::io::Result::Ok(())
/// })?;
/// kernel.spawn("client", async |os: &mut Os| {
///     let stream = os.connect(("127.0.0.1", 80)).await?;
///     stream.send_all(os, b"hello\r\nand").await?;
///     stream.shutdown_write(os).await?;
///     let mut reader = Reader::new(&stream, 1000);
///     assert_eq!(reader.read_line(os).await?.as_deref(), Some("5 bytes: hello"));
///     assert_eq!(reader.read_line(os).await?.as_deref(), Some("3 bytes: and"));
///     assert_eq!(reader.read_line(os).await?, None);
///     std::io::Result::Ok(())
/// })?;
/// kernel.run()?.check()?;
/// # Ok::<(), trapline::Error>(())
/// ```
pub struct Reader<S> {
    device: Device<S>,
    /// What has arrived. The first `at` bytes are taken.
    bytes: Vec<u8>,
    at: usize,
    max: usize,
    /// The delimiter up to which what arrives is dropped: the rest of a record that was too long.
    dropping: Option<u8>,
}

impl<S> Reader<S> {
    /// Makes a reader. `max` is the longest line or record in bytes, without its delimiter, and the most
    /// that [`fill`](Self::fill) keeps for a parser.
    #[must_use]
    pub fn new(device: &Device<S>, max: usize) -> Self {
        Self {
            device: device.clone(),
            bytes: Vec::new(),
            at: 0,
            max,
            dropping: None,
        }
    }

    /// Reads the next line, without its end: `\n` or `\r\n`. `None` at the end of the stream. Bytes
    /// behind the last end of a line are a line, too, as in the standard library.
    ///
    /// *Blocks* until the line is complete. A line that has arrived takes no trap.
    ///
    /// *Errors:* those of [`Device::recv`]; `InvalidData` if the line is no UTF-8, or has more than `max`
    /// bytes. The next call begins behind such a line.
    #[track_caller]
    pub fn read_line<'a>(
        &'a mut self,
        os: &'a mut Os,
    ) -> impl Future<Output = io::Result<Option<String>>> + 'a {
        let place = os.note_caller();
        async move {
            let (max, id) = (self.max, self.device.id());
            let Some(line) = self.record(os, place, b'\n', "\r\n".len()).await? else {
                return Ok(None);
            };
            let line = match line {
                [line @ .., b'\r', b'\n'] | [line @ .., b'\n'] | line => line,
            };
            match str::from_utf8(line) {
                _ if line.len() > max => Err(too_long(id, max)),
                Ok(line) => Ok(Some(line.to_string())),
                Err(error) => Err(invalid(format!(
                    "a line of device {id} is no text: {error}; read_until reads any bytes"
                ))),
            }
        }
    }

    /// The lines, one after the other: `while let Some(line) = lines.next(os).await?`.
    pub fn lines(&mut self) -> Lines<'_, S> {
        Lines(self)
    }

    /// Reads up to a delimiter, which is the last of the returned bytes. What is behind the last delimiter
    /// is returned without one. `None` at the end of the stream.
    ///
    /// *Blocks* until the delimiter or the end of the stream has arrived.
    ///
    /// *Errors:* those of [`Device::recv`]; `InvalidData` if more than `max` bytes come before the
    /// delimiter. The next call begins behind it.
    #[track_caller]
    pub fn read_until<'a>(
        &'a mut self,
        os: &'a mut Os,
        delimiter: u8,
    ) -> impl Future<Output = io::Result<Option<Vec<u8>>>> + 'a {
        let place = os.note_caller();
        async move {
            let max = self.max;
            let record = self.record(os, place, delimiter, 1).await?;
            let record = record.map(<[u8]>::to_vec);
            let body = record.as_deref().unwrap_or_default();
            match body.strip_suffix(&[delimiter]).unwrap_or(body).len() > max {
                true => Err(too_long(self.device.id(), max)),
                false => Ok(record),
            }
        }
    }

    /// Reads exactly as many bytes as the buffer has. They may be more than `max`.
    ///
    /// *Blocks* until they have arrived. They gather in the reader: a call that is cut has taken none.
    ///
    /// *Errors:* those of [`Device::recv`]; `UnexpectedEof` if the stream ends before. Nothing is taken
    /// then: [`buffer`](Self::buffer) has the bytes that did arrive.
    #[track_caller]
    pub fn read_exact<'a>(
        &'a mut self,
        os: &'a mut Os,
        buf: &'a mut [u8],
    ) -> impl Future<Output = io::Result<()>> + 'a {
        let place = os.note_caller();
        async move {
            while self.buffer().len() < buf.len() {
                let missing = buf.len() - self.buffer().len();
                if self.receive(os, place, missing.max(PIECE)).await? == 0 {
                    let (len, there) = (buf.len(), self.buffer().len());
                    let what = format!("the stream ends after {there} of {len} bytes");
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, what));
                }
            }
            buf.copy_from_slice(&self.buffer()[..buf.len()]);
            self.consume(buf.len());
            Ok(())
        }
    }

    /// Returns the bytes that have arrived and are not taken: the input of a parser.
    #[must_use]
    pub fn buffer(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Takes the first `n` bytes of the [`buffer`](Self::buffer); all of them if it has fewer.
    pub fn consume(&mut self, n: usize) {
        self.at += n.min(self.buffer().len());
    }

    /// Receives more bytes into the [`buffer`](Self::buffer), for a parser that needs more than is there.
    /// Returns how many have arrived; 0 at the end of the stream.
    ///
    /// *Blocks* until something has arrived.
    ///
    /// *Errors:* those of [`Device::recv`]; `InvalidData` if the buffer has `max` bytes already.
    ///
    /// ```
    /// # use trapline::{Os, Reader};
    /// /// Reads a number that is before a colon.
    /// async fn number<S>(os: &mut Os, reader: &mut Reader<S>) -> std::io::Result<Option<u32>> {
    ///     loop {
    ///         if let Some(len) = reader.buffer().iter().position(|byte| *byte == b':') {
    ///             let number = str::from_utf8(&reader.buffer()[..len]).ok();
    ///             let number = number.and_then(|text| text.parse().ok());
    ///             reader.consume(len + 1);
    ///             return Ok(number);
    ///         }
    ///         if reader.fill(os).await? == 0 {
    ///             return Ok(None);
    ///         }
    ///     }
    /// }
    /// ```
    #[track_caller]
    pub fn fill<'a>(&'a mut self, os: &'a mut Os) -> impl Future<Output = io::Result<usize>> + 'a {
        let place = os.note_caller();
        async move {
            let (max, len) = (self.max, self.buffer().len());
            if len >= max {
                let what = format!("a parser needs more than the {max} bytes of its reader");
                return Err(invalid(what));
            }
            self.receive(os, place, max - len).await
        }
    }

    /// Takes the bytes up to a delimiter, with it, or those before the end of the stream. They may be too
    /// many. `end` is the length of the longest end of such a record.
    async fn record(
        &mut self,
        os: &mut Os,
        place: Caller,
        delimiter: u8,
        end: usize,
    ) -> io::Result<Option<&[u8]>> {
        let most = self.max.saturating_add(end);
        let mut seen = 0;
        let len = loop {
            let unread = self.buffer();
            if let Some(at) = memchr::memchr(delimiter, &unread[seen..]) {
                break seen + at + 1;
            }
            seen = unread.len();
            if seen >= most {
                self.consume(seen);
                self.dropping = Some(delimiter);
                return Err(too_long(self.device.id(), self.max));
            }
            if self.receive(os, place, most.max(PIECE) - seen).await? == 0 {
                break seen;
            }
        };
        let start = self.at;
        self.at += len;
        Ok((len > 0).then(|| &self.bytes[start..self.at]))
    }

    /// Receives at most `room` bytes. Returns their number, with those that are dropped.
    async fn receive(&mut self, os: &mut Os, place: Caller, room: usize) -> io::Result<usize> {
        self.bytes.drain(..self.at);
        self.at = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(PIECE);
        }
        let (bytes, dropping) = (&mut self.bytes, &mut self.dropping);
        let take = |mut arrived: &[u8]| {
            if let Some(delimiter) = *dropping {
                let Some(at) = memchr::memchr(delimiter, arrived) else {
                    return;
                };
                *dropping = None;
                arrived = &arrived[at + 1..];
            }
            bytes.extend_from_slice(arrived);
        };
        os.frame().set_place(place);
        self.device.recv_noted(os, room, take).await
    }
}

#[cold]
fn too_long(id: DeviceId, max: usize) -> io::Error {
    invalid(format!(
        "a line or record of device {id} has more than {max} bytes, the limit of its reader"
    ))
}

#[cold]
fn invalid(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

impl<S> fmt::Debug for Reader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, unread) = (self.device.id(), self.buffer().len());
        write!(f, "Reader(device {id}, {unread} bytes)")
    }
}

/// The lines of a [`Reader`]: its [`Reader::lines`].
#[derive(Debug)]
pub struct Lines<'a, S>(&'a mut Reader<S>);

impl<S> Lines<'_, S> {
    /// Reads the next line, as [`Reader::read_line`] does.
    #[track_caller]
    pub fn next<'a>(
        &'a mut self,
        os: &'a mut Os,
    ) -> impl Future<Output = io::Result<Option<String>>> + 'a {
        self.0.read_line(os)
    }
}
