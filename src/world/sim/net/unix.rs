//! Unix sockets: connections within a host, by paths instead of ports.
//!
//! A connection is established at once, as on Linux; what it carries takes the time of loopback. The
//! listener learns of it by a packet that goes before the bytes.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Result},
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
};

use super::{
    connection::{CLIENT, Connection, End, SERVER, Stage},
    hosts::Listener,
    state::{Net, Signal, Socket},
};
use crate::abi::{DeviceId, HostId, ListenOptions};

/// In place of an address.
const NONE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Net {
    pub(super) fn listen_unix(&mut self, device: DeviceId, host: HostId, path: &str) -> Result<()> {
        self.is_used = true;
        let machine = self.hosts.get_mut(host);
        if !machine.is_up {
            return Err(ErrorKind::NetworkDown.into());
        }
        if machine.paths.contains_key(path) {
            return Err(ErrorKind::AddrInUse.into());
        }
        let path: Rc<str> = path.into();
        let at = self.listeners.insert(Listener {
            device,
            host,
            addr: NONE,
            path: Some(Rc::clone(&path)),
            options: ListenOptions::default(),
            waiting: VecDeque::new(),
            handshakes: 0,
            is_owed: false,
        });
        machine.paths.insert(path, at);
        self.devices.insert(device, Socket::Listener(at));
        Ok(())
    }

    pub(super) fn connect_unix(
        &mut self,
        device: DeviceId,
        host: HostId,
        path: &str,
    ) -> Result<()> {
        self.is_used = true;
        let machine = self.hosts.get(host);
        let at = *machine.paths.get(path).ok_or(ErrorKind::NotFound)?;
        if self.listeners[at].waits() >= machine.backlog {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.listeners[at].handshakes += 1;
        let ends = [(device, Stage::Open), (DeviceId::NONE, Stage::Handshake)];
        let slot = self.join(host, ends, path.into());
        let client = self.end_of(slot, CLIENT);
        self.send_packet(client, Signal::Ack);
        Ok(())
    }

    pub(super) fn pair(&mut self, device: DeviceId, other: DeviceId, host: HostId) -> Result<()> {
        self.is_used = true;
        if !self.hosts.get(host).is_up {
            return Err(ErrorKind::NetworkDown.into());
        }
        let ends = [(device, Stage::Open), (other, Stage::Open)];
        self.join(host, ends, "".into());
        Ok(())
    }

    /// Makes a connection within a host.
    fn join(&mut self, host: HostId, ends: [(DeviceId, Stage); 2], path: Rc<str>) -> usize {
        self.last_serial = self.last_serial.wrapping_add(1);
        let [client, server] = ends.map(|(device, stage)| End::new(device, host, NONE, stage));
        let mut connection = Connection::new(self.last_serial, client, server, self.now);
        connection.path = Some(path);
        let slot = self.connections.insert(connection);
        for (side, (device, _)) in [CLIENT, SERVER].into_iter().zip(ends) {
            if device != DeviceId::NONE {
                let end = self.end_of(slot, side);
                self.devices.insert(device, Socket::Stream(end));
            }
        }
        slot
    }
}
