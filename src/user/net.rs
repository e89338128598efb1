//! TCP for programs: [`TcpListener`] and [`TcpStream`], built on the calls of [`Os`].

use std::{io, net::SocketAddr, panic::Location, rc::Rc};

use super::{
    device::{AsDevice, Device, open, opened},
    os::{Os, io_checked},
};
use crate::{
    abi::SystemCall,
    trap::{DeviceRef, Payload},
};

/// A listening TCP socket, opened by [`Os::listen`].
pub type TcpListener = Device<Listener>;

/// A TCP connection, opened by [`Os::connect`] or [`TcpListener::accept`].
pub type TcpStream = Device<Stream>;

/// The properties of a [`TcpListener`].
#[derive(Debug)]
pub struct Listener {
    local: SocketAddr,
}

impl Listener {
    /// Returns the address that it listens on, with the actual port.
    ///
    /// *Errors:* none; it is a `Result` like those of the standard library.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }
}

/// The properties of a [`TcpStream`].
#[derive(Debug)]
pub struct Stream {
    peer: SocketAddr,
}

impl Stream {
    /// Returns the address of the peer.
    ///
    /// *Errors:* none; it is a `Result` like those of the standard library.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl Os {
    /// Opens a listening TCP socket. Port 0 means any free port; [`Listener::local_addr`] returns
    /// it. The address can be reused, so that a server can restart at once. Never blocks.
    ///
    /// *Errors:* those of the operating system, such as `AddrInUse`; `Unsupported` in a world
    /// without a network.
    pub async fn listen(&mut self, addr: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::open(self, addr).await
    }

    /// Connects to a TCP server. *Blocks* until the connection is established or has failed.
    ///
    /// *Errors:* an [`io::Error`] such as `ConnectionRefused`, `NetworkUnreachable` or `TimedOut`;
    /// `Unsupported` in a world without a network.
    #[track_caller]
    pub fn connect(&mut self, addr: SocketAddr) -> impl Future<Output = io::Result<TcpStream>> {
        let place = self.note_caller();
        TcpStream::open(self, addr, place)
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

    /// Accepts the next connection, and returns it with its peer's address.
    ///
    /// *Blocks* until a peer connects.
    ///
    /// *Errors:* those of the operating system; a server can continue after any of them. Without
    /// free descriptors (`EMFILE`) an immediate retry fails again, so sleep first. Or an
    /// [`Errno`](crate::Errno) as [`Os::read_wait`] returns.
    #[track_caller]
    pub fn accept(&self, os: &mut Os) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> {
        os.note_caller();
        let id = self.device_id(os);
        async move {
            let (handle, peer) = os.call(move |_| SystemCall::Accept(id), opened).await?;
            let peer = peer.ok_or(io::ErrorKind::AddrNotAvailable)?;
            Ok((connection(handle, peer), peer))
        }
    }
}

impl TcpStream {
    async fn open(
        os: &mut Os,
        addr: SocketAddr,
        place: &'static Location<'static>,
    ) -> io::Result<Self> {
        let (handle, _) = os
            .call(open(SystemCall::Connect, Payload::Addr(addr)), opened)
            .await?;
        let stream = connection(handle, addr);
        let id = stream.id();
        os.frame().set_place(place);
        os.write_wait_noted(id).await?;
        os.call(move |_| SystemCall::Connected(id), io_checked)
            .await?;
        Ok(stream)
    }

    /// Shuts down the outgoing half. The peer reads the end of the stream, and can still send.
    /// Never blocks.
    ///
    /// *Errors:* `NotConnected` if the connection is closed already.
    pub fn shutdown_write(&self, os: &mut Os) -> impl Future<Output = io::Result<()>> {
        let id = self.device_id(os);
        os.call(move |_| SystemCall::ShutdownWrite(id), io_checked)
    }
}

fn connection(handle: DeviceRef, peer: SocketAddr) -> TcpStream {
    Device::new(handle, Rc::new(Stream { peer }))
}
