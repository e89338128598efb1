//! TCP for programs: [`TcpListener`] and [`TcpStream`], built on the calls of [`Os`].

use std::{io, net::SocketAddr, rc::Rc};

use super::{
    device::{AsDevice, Device, open, opened},
    os::{Os, io_checked},
};
use crate::{
    abi::SystemCall,
    trap::{DeviceRef, Payload},
};

/// A listening TCP socket, of [`Os::listen`].
pub type TcpListener = Device<Listener>;

/// A TCP connection, of [`Os::connect`] or [`TcpListener::accept`].
pub type TcpStream = Device<Stream>;

/// What a [`TcpListener`] knows of itself.
#[derive(Debug)]
pub struct Listener {
    local: SocketAddr,
}

impl Listener {
    /// The address it listens at, with the port it got where it asked for any.
    ///
    /// *Errors:* none; it is a `Result` like those of the standard library.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }
}

/// What a [`TcpStream`] knows of itself.
#[derive(Debug)]
pub struct Stream {
    peer: SocketAddr,
}

impl Stream {
    /// The address of the other end.
    ///
    /// *Errors:* none; it is a `Result` like those of the standard library.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl Os {
    /// Opens a listening TCP socket. Port 0 stands for any free one; the listener knows which it
    /// got. The address is marked for reuse, so that a server can be started again at once. Never
    /// blocks.
    ///
    /// *Errors:* an [`io::Error`] with the operating system's reason, such as `AddrInUse`;
    /// `Unsupported` in a world without a network.
    pub async fn listen(&mut self, addr: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::open(self, addr).await
    }

    /// Connects to a TCP server. *Blocks* until the connection stands or has failed.
    ///
    /// *Errors:* an [`io::Error`] such as `ConnectionRefused`, `NetworkUnreachable` or `TimedOut`;
    /// `Unsupported` in a world without a network.
    pub async fn connect(&mut self, addr: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::open(self, addr).await
    }
}

impl TcpListener {
    pub(crate) async fn open(os: &mut Os, addr: SocketAddr) -> io::Result<Self> {
        let (handle, local) = os
            .call(open(SystemCall::Listen, Payload::Addr(addr)), opened)
            .await?;
        let local = local.unwrap_or(addr);
        Ok(Self::new(handle, Rc::new(Listener { local })))
    }

    /// Takes the next connection, and answers it with its peer's address.
    ///
    /// *Blocks* until somebody connects.
    ///
    /// *Errors:* the operating system's; a server goes on after any of them. Out of descriptors
    /// (`EMFILE`), a call that is made again right away fails again: sleep before the next.
    /// Otherwise an [`Errno`](crate::Errno) like those of [`Os::read_wait`].
    pub async fn accept(&self, os: &mut Os) -> io::Result<(TcpStream, SocketAddr)> {
        let id = self.device_id(os);
        let (handle, peer) = os.call(move |_| SystemCall::Accept(id), opened).await?;
        let peer = peer.ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok((connection(handle, peer), peer))
    }
}

impl TcpStream {
    pub(crate) async fn open(os: &mut Os, addr: SocketAddr) -> io::Result<Self> {
        let (handle, _) = os
            .call(open(SystemCall::Connect, Payload::Addr(addr)), opened)
            .await?;
        let stream = connection(handle, addr);
        os.write_wait(&stream).await?;
        let id = stream.id();
        os.call(move |_| SystemCall::Connected(id), io_checked)
            .await?;
        Ok(stream)
    }

    /// Ends the outgoing half: the peer reads the end of the stream, and can still be read.
    /// Never blocks.
    ///
    /// *Errors:* `NotConnected` where the connection is gone already.
    pub fn shutdown_write(&self, os: &mut Os) -> impl Future<Output = io::Result<()>> {
        let id = self.device_id(os);
        os.call(move |_| SystemCall::ShutdownWrite(id), io_checked)
    }
}

fn connection(handle: DeviceRef, peer: SocketAddr) -> TcpStream {
    Device::new(handle, Rc::new(Stream { peer }))
}
