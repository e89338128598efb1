//! What requests receive: as bytes, and back.

use std::net::{IpAddr, SocketAddr};

use crate::{
    log::recording::{
        decode::Bytes,
        wire::{get_addr, put_addr},
    },
    world::Request,
};

/// A datagram, behind its sender's address.
pub(super) fn datagram(from: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + bytes.len());
    put_addr(&mut out, from);
    out.extend_from_slice(bytes);
    out
}

pub(super) fn addresses(addresses: &[IpAddr]) -> Vec<u8> {
    let mut out = Vec::new();
    for ip in addresses {
        put_addr(&mut out, SocketAddr::new(*ip, 0));
    }
    out
}

/// Gives a request what was received, or the addresses of its name. `None` if it has no room.
pub(super) fn give(request: &mut Request<'_>, read: &[u8]) -> Option<()> {
    match request {
        Request::Recv(buf) => buf.get_mut(..read.len())?.copy_from_slice(read),
        Request::RecvFrom { buf, from } => {
            let mut bytes = Bytes(read);
            // Nothing was received if the call has failed.
            if let Ok(kind) = bytes.byte() {
                **from = get_addr(kind, &mut bytes).ok()?;
                buf.get_mut(..bytes.0.len())?.copy_from_slice(bytes.0);
            }
        }
        Request::Finish(into) => into.extend_from_slice(read),
        Request::Resolve { addresses, .. } => {
            let mut bytes = Bytes(read);
            while let Ok(kind) = bytes.byte() {
                addresses.push(get_addr(kind, &mut bytes).ok()?.ip());
            }
        }
        _ => {}
    }
    Some(())
}
