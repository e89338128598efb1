//! [`Device`]: a program's handle to a descriptor that the kernel owns.

use std::{fmt, fs::File, io, net::SocketAddr, ops::Deref, os::fd::AsFd, rc::Rc, sync::Arc};

use super::os::{Os, carrying, checked, io_error};
use crate::{
    abi::{DeviceId, Errno, Reply, SystemCall},
    trap::{Caller, Descriptor, DeviceRef, MAX_IO, Payload, TrapFrame},
};

/// The most bytes of a file that one call sends. They take 50 us, in which no other task has a
/// turn.
const MAX_FILE: usize = 256 * 1024;

/// A handle to a descriptor that the kernel owns. [`Os::attach`] returns one;
/// [`TcpStream`](crate::TcpStream), [`TcpListener`](crate::TcpListener),
/// [`UdpSocket`](crate::UdpSocket) and the sockets of Unix are devices.
///
/// Clones are handles to the same device, for any task. One task may wait to read while another waits
/// to write. Dropping the last handle closes the descriptor.
///
/// It dereferences to the attached value. I/O on that value is not a trap: it appears in no trace,
/// and works only in the real world. [`Device::recv`] and [`Device::send`] are traps.
///
/// ```
/// use std::{io::Write, os::unix::net::UnixStream};
/// use trapline::{Kernel, Os};
///
/// let (mut ours, theirs) = UnixStream::pair()?;
/// let mut kernel = Kernel::real()?;
/// kernel.spawn("reader", async |os: &mut Os| {
///     let device = os.attach(theirs).await?;
///     let mut buf = [0; 16];
///     let n = device.recv(os, &mut buf).await?;
///     assert_eq!(&buf[..n], b"hello");
///     std::io::Result::Ok(())
/// })?;
/// ours.write_all(b"hello")?;
/// assert_eq!(kernel.run()?.exits()[&1.into()], trapline::Exit::Done);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Device<S> {
    handle: DeviceRef,
    source: Rc<S>,
}

impl<S> Device<S> {
    pub(crate) fn new(handle: DeviceRef, source: Rc<S>) -> Self {
        Self { handle, source }
    }

    pub(super) fn reference(&self) -> DeviceRef {
        self.handle.clone()
    }

    pub(crate) fn frame(&self) -> &TrapFrame {
        self.handle.frame()
    }

    /// Returns the token of the device, which traces show.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.handle.id()
    }

    /// Reads the available bytes, up to the buffer's length and 64 KiB. Returns their number; 0 at
    /// the end of the stream.
    ///
    /// *Blocks* until there is something to read. With an empty buffer it returns 0 at once, even while
    /// another task waits to read. A task that is killed meanwhile consumes no bytes.
    ///
    /// *Errors:* those of the operating system (`ConnectionReset`, ...), or an [`Errno`] as
    /// [`Os::read_wait`] returns.
    #[track_caller]
    pub fn recv<'a>(
        &'a self,
        os: &'a mut Os,
        buf: &'a mut [u8],
    ) -> impl Future<Output = io::Result<usize>> + 'a {
        os.note_caller();
        self.recv_noted(os, buf.len(), |bytes| {
            buf[..bytes.len()].copy_from_slice(bytes);
        })
    }

    /// Appends the available bytes to a vector, at most 64 KiB. Returns their number; 0 at the end of
    /// the stream. The vector grows by what has arrived.
    ///
    /// *Blocks* until there is something to read.
    ///
    /// *Errors:* as for [`recv`](Self::recv).
    #[track_caller]
    pub fn recv_into<'a>(
        &'a self,
        os: &'a mut Os,
        to: &'a mut Vec<u8>,
    ) -> impl Future<Output = io::Result<usize>> + 'a {
        os.note_caller();
        self.recv_noted(os, MAX_IO, |bytes| to.extend_from_slice(bytes))
    }

    /// For a caller that has noted its own caller. What has arrived goes to `take`, even if the future is
    /// dropped before it returns.
    pub(super) fn recv_noted<'a>(
        &'a self,
        os: &'a mut Os,
        room: usize,
        mut take: impl FnMut(&[u8]) + 'a,
    ) -> impl Future<Output = io::Result<usize>> + 'a {
        let (id, room) = (self.device_id(os), room.min(MAX_IO));
        os.call(
            move |frame| {
                frame.put_word(room as u64);
                SystemCall::Recv(id)
            },
            move |reply, frame| {
                let n = moved(reply, frame)?;
                take(&frame.buffer(n));
                Ok(n)
            },
        )
    }

    /// Writes as many bytes as fit, up to 64 KiB, and returns their number.
    ///
    /// *Blocks* until something can be written.
    ///
    /// *Errors:* those of the operating system, or an [`Errno`] as [`Os::write_wait`] returns.
    /// After the peer has closed, they are `BrokenPipe` or `ConnectionReset`; there is no signal.
    #[track_caller]
    pub fn send(&self, os: &mut Os, buf: &[u8]) -> impl Future<Output = io::Result<usize>> {
        let place = os.note_caller();
        self.send_at(place, os, buf, |_| {})
    }

    /// The number of bytes that are sent goes to `note`, even if the future is dropped before it returns.
    pub(super) fn send_at(
        &self,
        place: Caller,
        os: &mut Os,
        buf: &[u8],
        note: impl FnMut(usize),
    ) -> impl Future<Output = io::Result<usize>> {
        let id = self.device_id(os);
        let send = move |frame: &TrapFrame| {
            frame.offer(buf);
            SystemCall::Send(id)
        };
        write(os, place, send, note)
    }

    /// Writes the whole buffer, by repeated [`send`](Self::send)s.
    ///
    /// *Errors:* as for `send`. They do not say how much was written before.
    #[track_caller]
    pub fn send_all(&self, os: &mut Os, mut buf: &[u8]) -> impl Future<Output = io::Result<()>> {
        let place = os.note_caller();
        async move {
            while !buf.is_empty() {
                let n = self.send_at(place, os, buf, |_| {}).await?;
                if n == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                buf = &buf[n..];
            }
            Ok(())
        }
    }

    /// Writes at most `len` bytes of a file from `offset` on, and at most 256 KiB. Returns their
    /// number; 0 at the end of the file.
    ///
    /// On Linux the system copies the bytes to a [`TcpStream`](crate::TcpStream) itself. Bytes that
    /// change before the peer receives them may arrive changed. Elsewhere the bytes are read and sent,
    /// up to 64 KiB at once.
    ///
    /// *Blocks* until something can be written. A read from the disk delays every task:
    /// [`Os::run_blocking`] can read a file ahead.
    ///
    /// *Errors:* those of [`send`](Self::send), and those of the operating system for the file: it
    /// is not open for reading, or has no positions (a pipe, a terminal).
    ///
    /// ```
    /// use std::{fs::File, io::Read, os::unix::net::UnixStream, sync::Arc};
    /// use trapline::{Kernel, Os};
    ///
    /// let (mut ours, theirs) = UnixStream::pair()?;
    /// let mut kernel = Kernel::real()?;
    /// kernel.spawn("sender", async |os: &mut Os| {
    ///     let device = os.attach(theirs).await?;
    ///     let file = Arc::new(File::open("Cargo.toml")?);
    ///     let mut at = 0;
    ///     loop {
    ///         match device.send_file(os, &file, at, usize::MAX).await? {
    ///             0 => return std::io::Result::Ok(()),
    ///             n => at += n as u64,
    ///         }
    ///     }
    /// })?;
    /// kernel.run()?;
    /// assert!(std::io::read_to_string(&mut ours)?.contains("trapline"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn send_file(
        &self,
        os: &mut Os,
        file: &Arc<File>,
        offset: u64,
        len: usize,
    ) -> impl Future<Output = io::Result<usize>> {
        let (id, place) = (self.device_id(os), os.note_caller());
        let send = move |frame: &TrapFrame| {
            frame.put_word(len.min(MAX_FILE) as u64);
            frame.put(Payload::File(Arc::clone(file), offset));
            SystemCall::SendFile(id)
        };
        write(os, place, send, |_| {})
    }

    /// Closes the device for every handle. Tasks that wait on it wake with [`Errno::Closed`]; later
    /// calls fail with [`Errno::BadFd`]. Never blocks. An attached descriptor stays open until the last
    /// handle is dropped, because every handle can reach it.
    ///
    /// *Errors:* [`Errno::BadFd`] if the device is closed already.
    pub fn close(&self, os: &mut Os) -> impl Future<Output = Result<(), Errno>> {
        let id = self.device_id(os);
        os.call(move |_| SystemCall::Close(id), checked)
    }
}

impl Os {
    /// Waits until the device can be read, or its stream has ended. (Beazley's `ReadWait`.)
    ///
    /// *Blocks* until there is something to read; while bytes are left, it returns at once. A device
    /// that cannot be watched, such as a regular file, is always ready.
    ///
    /// *Errors:* [`Errno::Busy`] if another task waits to read the same device, or has a read
    /// pending. [`Errno::Closed`] if the device is closed meanwhile. [`Errno::BadFd`] if it is
    /// closed already, or belongs to another kernel.
    #[track_caller]
    pub fn read_wait(
        &mut self,
        device: &(impl AsDevice + ?Sized),
    ) -> impl Future<Output = Result<(), Errno>> {
        self.note_caller();
        let device = device.device_id(self);
        self.call(move |_| SystemCall::ReadWait(device), checked)
    }

    /// Waits until the device can be written. Otherwise like [`Os::read_wait`].
    #[track_caller]
    pub fn write_wait(
        &mut self,
        device: &(impl AsDevice + ?Sized),
    ) -> impl Future<Output = Result<(), Errno>> {
        self.note_caller();
        self.write_wait_noted(device.device_id(self))
    }

    /// For a caller that has noted its own caller.
    pub(crate) fn write_wait_noted(
        &mut self,
        device: DeviceId,
    ) -> impl Future<Output = Result<(), Errno>> {
        self.call(move |_| SystemCall::WriteWait(device), checked)
    }

    /// Hands a descriptor to the kernel: a socket, a pipe, a terminal, a file. The kernel closes it
    /// after the last handle is dropped. It becomes non-blocking, except for the three standard
    /// streams, which other processes may share. Never blocks.
    ///
    /// *Errors:* those of the operating system; `AlreadyExists` if it is attached already;
    /// `Unsupported` in a world without devices.
    pub async fn attach<S: AsFd + 'static>(&mut self, source: S) -> io::Result<Device<S>> {
        let source = Rc::new(source);
        // Made here, because a panic in `as_fd` belongs to the caller.
        let argument = Payload::Source(Descriptor::new(Rc::clone(&source)));
        let attach = self.call(carrying(SystemCall::Attach, argument), opened);
        let (handle, _) = attach.await?;
        Ok(Device::new(handle, source))
    }
}

impl<S> Clone for Device<S> {
    fn clone(&self) -> Self {
        Self::new(self.handle.clone(), Rc::clone(&self.source))
    }
}

impl<S> Deref for Device<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.source
    }
}

impl<S> fmt::Debug for Device<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.id())
    }
}

/// An argument of [`Os::read_wait`] and [`Os::write_wait`]: a [`Device`], or a type that contains
/// one.
pub trait AsDevice {
    /// Returns the device's token in the kernel of `os`; [`DeviceId::NONE`] in another kernel.
    fn device_id(&self, os: &Os) -> DeviceId;
}

impl<S> AsDevice for Device<S> {
    fn device_id(&self, os: &Os) -> DeviceId {
        if self.handle.is_of(os.frame()) {
            self.id()
        } else {
            DeviceId::NONE
        }
    }
}

impl<D: AsDevice + ?Sized> AsDevice for &D {
    fn device_id(&self, os: &Os) -> DeviceId {
        (**self).device_id(os)
    }
}

impl<D: AsDevice + ?Sized> AsDevice for Rc<D> {
    fn device_id(&self, os: &Os) -> DeviceId {
        (**self).device_id(os)
    }
}

/// Makes a call that writes, until it need not be made again.
pub(super) async fn write(
    os: &mut Os,
    place: Caller,
    prepare: impl Fn(&TrapFrame) -> SystemCall,
    mut note: impl FnMut(usize),
) -> io::Result<usize> {
    loop {
        os.frame().set_place(place);
        let attempt = os.call(&prepare, |reply, frame| match reply {
            Reply::Again => None,
            other => Some(moved(other, frame).inspect(|n| note(*n))),
        });
        if let Some(result) = attempt.await {
            return result;
        }
    }
}

pub(super) fn moved(reply: Reply, frame: &TrapFrame) -> io::Result<usize> {
    match reply {
        Reply::Bytes(n) => Ok(n as usize),
        other => Err(io_error(other, frame)),
    }
}

/// Decodes the reply of a call that opens a device. The kernel makes the handle: so dropping the reply
/// closes the device.
pub(crate) fn opened(
    reply: Reply,
    frame: &Rc<TrapFrame>,
) -> io::Result<(DeviceRef, Option<SocketAddr>)> {
    if let Reply::Device(_) = reply
        && let Some(Payload::Opened(handle, addr)) = frame.take()
    {
        return Ok((handle, addr));
    }
    Err(io_error(reply, frame))
}
