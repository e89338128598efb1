//! What a program holds of a descriptor: a [`Device`], whose descriptor the kernel owns.
//!
//! Built on the calls of [`Os`]; uses the ABI and the frame.

use std::{fmt, fs::File, io, net::SocketAddr, ops::Deref, os::fd::AsFd, rc::Rc, sync::Arc};

use crate::{
    abi::{DeviceId, Errno, Reply, SystemCall},
    frame::{Frame, MAX_IO, Mail, Payload},
    os::{Os, checked, io_error},
};

/// The most bytes of a file that one call sends: some 50 us, in which no other task has a turn.
const MAX_FILE: usize = 256 * 1024;

/// A handle to a descriptor that the kernel owns: of [`Os::attach`], or a
/// [`TcpStream`](crate::TcpStream) or [`TcpListener`](crate::TcpListener).
///
/// It can be cloned and shared between tasks; one may wait to read while another waits to write.
/// The descriptor is closed with the last handle; one that the kernel opened itself, of a
/// [`TcpStream`](crate::TcpStream) or [`TcpListener`](crate::TcpListener), is closed for all of
/// them by [`Device::close`].
///
/// It dereferences to what was attached. I/O that a program does on that itself is not a trap: it
/// shows in no trace and works only with the real outside. [`Device::recv`] and [`Device::send`]
/// are traps, for every kind of descriptor.
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
    handle: Handle,
    source: Rc<S>,
}

impl<S> Device<S> {
    pub(crate) fn new(handle: Handle, source: Rc<S>) -> Self {
        Self { handle, source }
    }

    /// Its token, as traces show it.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.handle.0.id
    }

    /// Reads what there is, up to the buffer's length and 64 KiB, and answers how many bytes; 0
    /// at the end of the stream.
    ///
    /// *Blocks* until there is something to read. A task that is killed meanwhile takes no bytes
    /// with it.
    ///
    /// *Errors:* the operating system's (`ConnectionReset`, ...), or an [`Errno`] like those of
    /// [`Os::read_wait`].
    pub fn recv<'a>(
        &'a self,
        os: &'a mut Os,
        buf: &'a mut [u8],
    ) -> impl Future<Output = io::Result<usize>> + 'a {
        let (id, room) = (self.device_id(os), buf.len().min(MAX_IO));
        os.call(
            move |frame| {
                frame.len.set(room);
                SystemCall::Recv(id)
            },
            move |reply, frame| match reply {
                Reply::Bytes(n) => {
                    let n = n as usize;
                    buf[..n].copy_from_slice(&frame.buffer(n));
                    Ok(n)
                }
                other => Err(io_error(other, frame)),
            },
        )
    }

    /// Writes what fits, up to 64 KiB, and answers how many bytes that was.
    ///
    /// *Blocks* until something can be written.
    ///
    /// *Errors:* the operating system's (`BrokenPipe` and `ConnectionReset` where the peer has
    /// gone, never a signal), or an [`Errno`] like those of [`Os::write_wait`].
    pub async fn send(&self, os: &mut Os, buf: &[u8]) -> io::Result<usize> {
        let id = self.device_id(os);
        loop {
            let attempt = os.call(
                |frame| {
                    frame.offer(buf);
                    SystemCall::Send(id)
                },
                sent,
            );
            if let Some(result) = attempt.await {
                return result;
            }
        }
    }

    /// Writes all of it, by as many [`send`](Self::send)s as it takes.
    ///
    /// *Errors:* as for `send`; how much went out before is not told.
    pub async fn send_all(&self, os: &mut Os, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let n = self.send(os, buf).await?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            buf = &buf[n..];
        }
        Ok(())
    }

    /// Writes at most `len` bytes of a file from `offset` on, and answers how many; 0 at the end of
    /// the file. It writes no more than 256 KiB at once, so a long file takes several calls.
    ///
    /// Where the system has a call for that (Linux, to a [`TcpStream`](crate::TcpStream)), the bytes
    /// do not pass through this process; those that change before the peer has them may arrive
    /// changed. Elsewhere they are read and sent, up to 64 KiB at once.
    ///
    /// *Blocks* until something can be written. What is not in memory is read from the disk first,
    /// and that holds up every task: [`Os::run_blocking`] can read a file ahead.
    ///
    /// *Errors:* those of [`send`](Self::send), and the operating system's for the file: one that
    /// is not open for reading, or that cannot be read from any place (a pipe, a terminal).
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
    pub async fn send_file(
        &self,
        os: &mut Os,
        file: &Arc<File>,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        let id = self.device_id(os);
        loop {
            let attempt = os.call(
                |frame| {
                    frame.len.set(len.min(MAX_FILE));
                    frame.put(Payload::File(Arc::clone(file), offset));
                    SystemCall::SendFile(id)
                },
                sent,
            );
            if let Some(result) = attempt.await {
                return result;
            }
        }
    }

    /// Closes the device, for every handle. Tasks that wait on it wake with [`Errno::Closed`];
    /// later calls answer [`Errno::BadFd`]. Never blocks.
    ///
    /// With it the descriptor is closed, if the kernel opened it. One that was attached every
    /// handle can still reach, so it stays open until the last of them is dropped.
    ///
    /// *Errors:* [`Errno::BadFd`] if it is closed already.
    pub fn close(&self, os: &mut Os) -> impl Future<Output = Result<(), Errno>> {
        let id = self.device_id(os);
        os.call(move |_| SystemCall::Close(id), checked)
    }
}

impl<S: AsFd + 'static> Device<S> {
    pub(crate) async fn attach(os: &mut Os, source: S) -> io::Result<Self> {
        // Asked for here first, where a panic in it is the caller's.
        source.as_fd();
        let source = Rc::new(source);
        let argument = Payload::Source(Rc::clone(&source) as Rc<dyn AsFd>);
        let (handle, _) = os.call(open(SystemCall::Attach, argument), opened).await?;
        Ok(Self::new(handle, source))
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

/// What [`Os::read_wait`] and [`Os::write_wait`] take: a [`Device`], or something that leads to
/// one.
pub trait AsDevice {
    /// The device's token in the kernel of `os`; [`DeviceId::NONE`] if it belongs to another.
    fn device_id(&self, os: &Os) -> DeviceId;
}

impl<S> AsDevice for Device<S> {
    fn device_id(&self, os: &Os) -> DeviceId {
        if Rc::ptr_eq(&self.handle.0.frame, os.frame()) {
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

/// What keeps a device open: the last one to go tells the kernel.
#[derive(Clone)]
pub(crate) struct Handle(Rc<Lease>);

struct Lease {
    id: DeviceId,
    frame: Rc<Frame>,
}

impl Handle {
    pub(crate) fn new(id: DeviceId, frame: &Rc<Frame>) -> Self {
        let frame = Rc::clone(frame);
        Self(Rc::new(Lease { id, frame }))
    }

    /// Leaves the device open, for whoever knows its number.
    pub(crate) fn let_go(mut self) {
        if let Some(lease) = Rc::get_mut(&mut self.0) {
            lease.id = DeviceId::NONE;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.frame.post(Mail::CloseDevice(self.id));
    }
}

/// Prepares a call that opens a device and takes `argument`.
pub(crate) fn open(
    call: SystemCall,
    argument: Payload,
) -> impl FnOnce(&Frame) -> SystemCall + Unpin {
    move |frame| {
        frame.put(argument);
        call
    }
}

/// Decodes the reply of a call that writes; `None` where it is to be made again.
fn sent(reply: Reply, frame: &Rc<Frame>) -> Option<io::Result<usize>> {
    match reply {
        Reply::Again => None,
        Reply::Bytes(n) => Some(Ok(n as usize)),
        other => Some(Err(io_error(other, frame))),
    }
}

/// Decodes the reply of a call that opens a device. The kernel has made the handle, so that a
/// device is at no time without an owner: where nobody decodes the reply, it is closed.
pub(crate) fn opened(reply: Reply, frame: &Rc<Frame>) -> io::Result<(Handle, Option<SocketAddr>)> {
    if let Reply::Device(_) = reply
        && let Some(Payload::Opened(handle, addr)) = frame.take()
    {
        return Ok((handle, addr));
    }
    Err(io_error(reply, frame))
}
