//! UDP for programs: [`UdpSocket`].

use std::{io, net::SocketAddr, rc::Rc};

use super::{
    device::{AsDevice, Device, moved, opened, write},
    net::{Sealed, SocketKind, cannot, cannot_listen},
    os::{Os, carrying, io_checked, mismatch},
};
use crate::{
    abi::SystemCall,
    trap::{MAX_IO, Payload, TrapFrame},
};

/// A UDP socket, opened by [`Os::bind_udp`].
///
/// A datagram arrives as a whole or not at all, perhaps twice, and perhaps after a later one. It has
/// at most 65,507 bytes. [`Device::recv`] and [`Device::send`] are for a socket that is connected; a
/// received length of 0 is an empty datagram, not an end.
///
/// ```
/// use std::io;
/// use trapline::{Kernel, Os};
///
/// let mut kernel = Kernel::simulated(1);
/// kernel.spawn("main", async |os: &mut Os| {
///     let server = os.bind_udp(([127, 0, 0, 1], 53).into()).await?;
///     let client = os.bind_udp(([127, 0, 0, 1], 0).into()).await?;
///     client.send_to(os, b"name?", server.local_addr()?).await?;
///     let mut buf = [0; 512];
///     let (n, from) = server.recv_from(os, &mut buf).await?;
///     assert_eq!((&buf[..n], from), (&b"name?"[..], client.local_addr()?));
///     io::Result::Ok(())
/// })?;
/// kernel.run()?.check()?;
/// # Ok::<(), trapline::Error>(())
/// ```
pub type UdpSocket = Device<Udp>;

/// The properties of a [`UdpSocket`].
#[derive(Debug)]
pub struct Udp {
    local: SocketAddr,
}

impl Udp {
    /// Returns the address that the socket was bound to, with the actual port.
    ///
    /// *Errors:* none; it is a `Result` like those of the standard library.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }
}

impl Sealed for Udp {}
impl SocketKind for Udp {}

impl Os {
    /// Opens a UDP socket, at any free port for port 0. Never blocks.
    ///
    /// *Errors:* those of [`Os::listen`].
    pub async fn bind_udp(&mut self, addr: SocketAddr) -> io::Result<UdpSocket> {
        let (handle, local) = self
            .call(carrying(SystemCall::BindUdp, Payload::Addr(addr)), opened)
            .await
            .map_err(|error| cannot_listen("bind UDP to", addr, error))?;
        let local = local.unwrap_or(addr);
        Ok(Device::new(handle, Rc::new(Udp { local })))
    }
}

impl UdpSocket {
    /// Takes the next datagram, and returns how many of its bytes the buffer has, with the sender's
    /// address. Bytes beyond the buffer's length are dropped.
    ///
    /// *Blocks* until there is a datagram. A task that is killed meanwhile takes none.
    ///
    /// *Errors:* those of the operating system; on a connected socket `ConnectionRefused`, if an earlier
    /// datagram found no socket at the peer. Or an [`Errno`](crate::Errno) as [`Os::read_wait`] returns.
    #[track_caller]
    pub fn recv_from<'a>(
        &'a self,
        os: &'a mut Os,
        buf: &'a mut [u8],
    ) -> impl Future<Output = io::Result<(usize, SocketAddr)>> + 'a {
        os.note_caller();
        let (id, room) = (self.device_id(os), buf.len().min(MAX_IO));
        os.call(
            move |frame| {
                frame.put_word(room as u64);
                SystemCall::RecvFrom(id)
            },
            move |reply, frame| {
                let n = moved(reply, frame)?;
                let from = frame.take_addr().unwrap_or_else(|| mismatch(reply));
                buf[..n].copy_from_slice(&frame.buffer(n));
                Ok((n, from))
            },
        )
    }

    /// Sends a datagram, and returns its length. That it was sent does not say that it arrives.
    ///
    /// *Blocks* while the system has no room for it.
    ///
    /// *Errors:* those of the operating system, such as `EMSGSIZE` beyond 65,507 bytes; those of
    /// [`UdpSocket::recv_from`].
    #[track_caller]
    pub fn send_to(
        &self,
        os: &mut Os,
        bytes: &[u8],
        to: SocketAddr,
    ) -> impl Future<Output = io::Result<usize>> {
        let (id, place) = (self.device_id(os), os.note_caller());
        let send = move |frame: &TrapFrame| {
            frame.offer(bytes);
            frame.put_addr(to);
            SystemCall::SendTo(id)
        };
        write(os, place, send, |_| {})
    }

    /// Makes `peer` the only address that the socket receives from, and the one that
    /// [`send`](Device::send) sends to. Nothing is sent, and never blocks. If no socket is there, a later
    /// call fails with `ConnectionRefused`.
    ///
    /// *Errors:* those of the operating system. The text names the address.
    pub async fn connect(&self, os: &mut Os, peer: SocketAddr) -> io::Result<()> {
        let id = self.device_id(os);
        let call = carrying(SystemCall::ConnectUdp(id), Payload::Addr(peer));
        let connected = os.call(call, io_checked).await;
        connected.map_err(|error| cannot("connect UDP to", peer, error, ""))
    }
}
