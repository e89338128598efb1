//! The calls of UDP, Unix sockets and options. What is done with an open socket is in
//! `device_calls.rs`.

use std::{io, net::SocketAddr};

use super::{Kernel, answer::Answer, outcome::Outcome, transfers::failed};
use crate::{
    abi::{DeviceId, Direction, Errno, HostId, Reply},
    sched::Runnable,
    trap::{DeviceRef, Payload},
    world::{self, Request},
};

impl Kernel {
    pub(super) fn bind_udp(&mut self, me: Runnable) -> Outcome {
        let Some(Payload::Addr(addr)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        let (id, host) = (self.devices.next_id(me), self.tasks[me].host);
        let result = self.world.io(id, Request::Bind { host, addr });
        let result = result.and_then(world::Answer::addr);
        let answer = self.opened(id, result.map(Some));
        if addr.port() != 0 {
            // What has a port of its choice is a server.
            self.devices.set_listener(id);
        }
        answer.into()
    }

    pub(super) fn connect_udp(&mut self, device: DeviceId) -> Outcome {
        let Some(Payload::Addr(addr)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        self.ask_device(device, Request::ConnectTo(addr))
    }

    pub(super) fn set_options(&mut self, device: DeviceId) -> Outcome {
        let Some(Payload::Options(options)) = self.frame.take() else {
            return Errno::Invalid.into();
        };
        self.ask_device(device, Request::SetOptions(&options))
    }

    /// Asks an open device for something that takes no time. No task need have it.
    fn ask_device(&mut self, device: DeviceId, request: Request<'_>) -> Outcome {
        match self.devices.check(device, Direction::Write) {
            Err(Errno::BadFd) => Errno::BadFd.into(),
            Ok(()) | Err(_) => match self.world.io(device, request) {
                Ok(answer) => match answer.done() {
                    Ok(()) => Reply::Done.into(),
                    Err(error) => failed(error).into(),
                },
                Err(error) => failed(error).into(),
            },
        }
    }

    pub(super) fn send_to(&mut self, me: Runnable, device: DeviceId) -> Outcome {
        let Some(to) = self.frame.take_addr() else {
            return Errno::Invalid.into();
        };
        if let Err(errno) = self.devices.check(device, Direction::Write) {
            return errno.into();
        }
        let len = self.frame.take_word().unwrap_or(0) as usize;
        let bytes = self.frame.buffer(len);
        let request = Request::SendTo { bytes: &bytes, to };
        let result = self.world.io(device, request);
        drop(bytes);
        self.sent(me, device, result)
    }

    // ---- Unix sockets

    pub(super) fn listen_unix(&mut self, me: Runnable) -> Outcome {
        let outcome = self.open_unix(me, |host, path| Request::ListenUnix { host, path });
        outcome.map_or_else(Outcome::from, |(id, result)| {
            let answer = self.opened(id, result);
            self.devices.set_listener(id);
            answer.into()
        })
    }

    pub(super) fn connect_unix(&mut self, me: Runnable) -> Outcome {
        let outcome = self.open_unix(me, |host, path| Request::ConnectUnix { host, path });
        outcome.map_or_else(Outcome::from, |(id, result)| self.opened(id, result).into())
    }

    /// Asks the world for a device at the path that is in the frame.
    fn open_unix(
        &mut self,
        me: Runnable,
        request: impl FnOnce(HostId, &str) -> Request<'_>,
    ) -> Result<Opening, Errno> {
        let Some(Payload::Name(path)) = self.frame.take() else {
            return Err(Errno::Invalid);
        };
        let (id, host) = (self.devices.next_id(me), self.tasks[me].host);
        let result = self.world.io(id, request(host, &path));
        Ok((id, result.and_then(world::Answer::done).map(|()| None)))
    }

    pub(super) fn socketpair(&mut self, me: Runnable) -> Outcome {
        let (id, host) = (self.devices.next_id(me), self.tasks[me].host);
        let other = DeviceId::from_raw(u64::from(id) + 1);
        let result = self.world.io(id, Request::Pair { host, other });
        match result.and_then(world::Answer::done) {
            Ok(()) => {
                let pair = [id, other].map(|id| {
                    self.devices.insert(id);
                    DeviceRef::new(id, &self.frame)
                });
                let [one, other] = pair;
                Answer::with(Reply::Device(id), Payload::Pair(one, other)).into()
            }
            Err(error) => failed(error).into(),
        }
    }
}

/// A device that a request may have opened.
type Opening = (DeviceId, io::Result<Option<SocketAddr>>);
