//! The load, in place of wrk: one thread and one epoll. On every connection it sends the next request
//! as soon as the last answer is in.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    process::Pid,
};

use crate::meter::cpu_time_of;

/// The only header that wrk sends.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
const STATUS: &[u8] = b"HTTP/1.1 200 OK\r\n";
const BODY: &[u8] = b"\r\n\r\nhello";

struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    fn connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        let mut client = Self {
            stream,
            received: Vec::new(),
        };
        // An answer shows that the server has accepted, so connections do not queue up.
        client.send()?;
        while !client.receive()? {}
        client.stream.set_nonblocking(true)?;
        Ok(client)
    }

    fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(REQUEST)
    }

    /// Receives bytes, and returns whether the answer is complete.
    fn receive(&mut self) -> io::Result<bool> {
        let mut piece = [0; 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => return Err(io::Error::other("the server has closed a connection")),
            Ok(n) => self.received.extend_from_slice(&piece[..n]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        let known = self.received.len().min(STATUS.len());
        if self.received[..known] != STATUS[..known] {
            let told = String::from_utf8_lossy(&self.received);
            return Err(io::Error::other(format!(
                "the server has answered {told:?}"
            )));
        }
        let is_whole = self.received.ends_with(BODY);
        if is_whole {
            self.received.clear();
        }
        Ok(is_whole)
    }
}

/// Returns the microseconds of the server's CPU time for each request, and those between two answers.
pub(crate) fn run(
    addr: SocketAddr,
    server: Pid,
    connections: usize,
    window: Duration,
) -> io::Result<Vec<f64>> {
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut clients = Vec::new();
    for key in 0..connections {
        let mut client = Client::connect(addr)?;
        epoll::add(
            &poller,
            &client.stream,
            EventData::new_u64(key as u64),
            EventFlags::IN,
        )?;
        client.send()?;
        clients.push(client);
    }
    let (mut requests, mut events) = (0_u64, Vec::with_capacity(1024));
    let mut run = |span: Duration| {
        let (before, begun) = (requests, Instant::now());
        let cpu = cpu_time_of(server.as_raw_nonzero().get())?;
        while begun.elapsed() < span {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(&poller, room, Some(&Timespec::default()))?;
            for event in &events {
                let client = &mut clients[event.data.u64() as usize];
                if client.receive()? {
                    requests += 1;
                    client.send()?;
                }
            }
        }
        let (took, done) = (begun.elapsed(), (requests - before) as f64);
        let cpu = cpu_time_of(server.as_raw_nonzero().get())? - cpu;
        io::Result::Ok([cpu, took].map(|span| span.as_secs_f64() * 1e6 / done))
    };
    run(window / 4)?;
    run(window).map(Vec::from)
}
