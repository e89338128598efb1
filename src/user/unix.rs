//! Unix sockets for programs: [`UnixListener`] and [`UnixStream`].

use std::{
    io,
    path::{Path, PathBuf},
    rc::Rc,
};

use super::{
    device::{AsDevice, Device, opened},
    net::{ListenerKind, Sealed, SocketKind, StreamKind, cannot},
    os::{Os, carrying, io_error},
};
use crate::{
    abi::{Reply, SystemCall},
    trap::{DeviceRef, Payload, TrapFrame},
};

/// The most bytes of a path that an address of the system has room for.
const MAX_PATH: usize = 107;

/// A listening Unix socket, opened by [`Os::listen_unix`]. Its file is removed when it is closed, unless
/// another one has taken its place.
pub type UnixListener = Device<UnixListening>;

/// A connection between processes of one machine, opened by [`Os::connect_unix`],
/// [`UnixListener::accept`] or [`Os::socketpair`]. It is used as a [`TcpStream`](crate::TcpStream) is.
pub type UnixStream = Device<UnixPeer>;

/// The properties of a [`UnixListener`].
#[derive(Debug)]
pub struct UnixListening {
    path: PathBuf,
}

impl UnixListening {
    /// Returns the path of its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The properties of a [`UnixStream`]: none.
#[derive(Debug)]
#[non_exhaustive]
pub struct UnixPeer {}

impl Sealed for UnixListening {}

impl ListenerKind for UnixListening {
    type Stream = UnixPeer;
    type Peer = ();

    async fn accept(listener: &UnixListener, os: &mut Os) -> io::Result<(UnixStream, ())> {
        Ok((listener.accept(os).await?, ()))
    }
}

impl Sealed for UnixPeer {}
impl SocketKind for UnixPeer {}
impl StreamKind for UnixPeer {}

impl Os {
    /// Opens a listening Unix socket, whose file is created. Each host of a simulated network has paths
    /// of its own, and no other files. Never blocks.
    ///
    /// *Errors:* those of the operating system, such as `AddrInUse` if there is a file already, also one
    /// that a killed process has left; `InvalidInput` for a path that is empty, is no UTF-8, has a zero
    /// byte or more than 107 bytes. The text names the path.
    ///
    /// ```
    /// use std::io;
    /// use trapline::{Kernel, Os};
    ///
    /// let mut kernel = Kernel::simulated(1);
    /// kernel.spawn("main", async |os: &mut Os| {
    ///     let listener = os.listen_unix("/run/greeter").await?;
    ///     let client = os.connect_unix("/run/greeter").await?;
    ///     let server = listener.accept(os).await?;
    ///     server.send_all(os, b"hello").await?;
    ///     let mut buf = [0; 8];
    ///     assert_eq!(client.recv(os, &mut buf).await?, 5);
    ///     io::Result::Ok(())
    /// })?;
    /// kernel.run()?.check()?;
    /// # Ok::<(), trapline::Error>(())
    /// ```
    pub async fn listen_unix(&mut self, path: impl AsRef<Path>) -> io::Result<UnixListener> {
        let path = path.as_ref();
        let cannot = |error| {
            let advice = match io::Error::kind(&error) {
                // In a simulated network a task listens there.
                io::ErrorKind::AddrInUse if error.raw_os_error().is_some() => {
                    "; if no process listens there, remove the file"
                }
                io::ErrorKind::NotFound => "; create its directory first",
                _ => "",
            };
            cannot("listen on", path.display(), error, advice)
        };
        let name = address(path).map_err(cannot)?;
        let call = carrying(SystemCall::ListenUnix, Payload::Name(name));
        let (handle, _) = self.call(call, opened).await.map_err(cannot)?;
        let path = path.to_path_buf();
        Ok(Device::new(handle, Rc::new(UnixListening { path })))
    }

    /// Connects to a Unix socket. Never blocks: the connection is established before it is accepted.
    ///
    /// *Errors:* those of the operating system: `NotFound` without a file, `ConnectionRefused` if no
    /// process listens at it, `WouldBlock` while too many connections wait to be accepted;
    /// `InvalidInput` as for [`Os::listen_unix`]. The text names the path.
    pub async fn connect_unix(&mut self, path: impl AsRef<Path>) -> io::Result<UnixStream> {
        let path = path.as_ref();
        let cannot = |error| {
            let advice = match io::Error::kind(&error) {
                io::ErrorKind::WouldBlock => "; too many connections wait there: try again later",
                io::ErrorKind::ConnectionRefused => "; no process listens at the file",
                _ => "",
            };
            cannot("connect to", path.display(), error, advice)
        };
        let name = address(path).map_err(cannot)?;
        let call = carrying(SystemCall::ConnectUnix, Payload::Name(name));
        let (handle, _) = self.call(call, opened).await.map_err(cannot)?;
        Ok(Device::new(handle, Rc::new(UnixPeer {})))
    }

    /// Returns two connected Unix sockets without a path. Never blocks.
    ///
    /// *Errors:* those of the operating system.
    pub async fn socketpair(&mut self) -> io::Result<(UnixStream, UnixStream)> {
        let (one, other) = self.call(|_| SystemCall::SocketPair, both_opened).await?;
        let stream = |handle| Device::new(handle, Rc::new(UnixPeer {}));
        Ok((stream(one), stream(other)))
    }
}

impl UnixListener {
    /// Accepts the next connection.
    ///
    /// *Blocks* until a peer connects.
    ///
    /// *Errors:* as [`TcpListener::accept`](crate::TcpListener::accept).
    #[track_caller]
    pub fn accept(&self, os: &mut Os) -> impl Future<Output = io::Result<UnixStream>> {
        os.note_caller();
        let id = self.device_id(os);
        async move {
            let (handle, _) = os.call(move |_| SystemCall::Accept(id), opened).await?;
            Ok(Device::new(handle, Rc::new(UnixPeer {})))
        }
    }
}

fn both_opened(reply: Reply, frame: &Rc<TrapFrame>) -> io::Result<(DeviceRef, DeviceRef)> {
    if let Reply::Device(_) = reply
        && let Some(Payload::Pair(one, other)) = frame.take()
    {
        return Ok((one, other));
    }
    Err(io_error(reply, frame))
}

/// Returns the path as the system takes it.
fn address(path: &Path) -> io::Result<Rc<str>> {
    let text = path.to_str();
    let why = match text {
        None => "the path is no UTF-8",
        Some("") => "the path is empty",
        Some(text) if text.contains('\0') => "the path has a zero byte",
        Some(text) if text.len() > MAX_PATH => "the path is longer than 107 bytes",
        Some(text) => return Ok(text.into()),
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}
