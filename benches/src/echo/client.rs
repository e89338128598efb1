//! The load: one thread, one epoll, and on every connection the next request as soon as the
//! answer to the last one is in.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{MESSAGE, WARM_UP, WINDOW};
use crate::meter::cpu_time_of;

struct Connection {
    stream: TcpStream,
    /// How many bytes of the answer are in.
    received: usize,
}

/// The start of the window of time that is measured.
struct Mark {
    at: Instant,
    requests: u64,
    server: Duration,
}

/// Prints the requests per second, the server's CPU time per request in microseconds, and how many
/// requests there were altogether.
pub(super) fn run(addr: SocketAddr, server: i32, connections: usize) -> io::Result<()> {
    let request: [u8; MESSAGE] = std::array::from_fn(|n| n as u8);
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut clients = Vec::new();
    for key in 0..connections as u64 {
        let stream = TcpStream::connect(addr)?;
        stream.set_nonblocking(true)?;
        epoll::add(&poller, &stream, EventData::new_u64(key), EventFlags::IN)?;
        let received = 0;
        clients.push(Connection { stream, received });
    }
    for client in &mut clients {
        client.stream.write_all(&request)?;
    }
    let mut requests = 0;
    let mark = |requests| {
        io::Result::Ok(Mark {
            at: Instant::now(),
            requests,
            server: cpu_time_of(server)?,
        })
    };
    let begun = Instant::now();
    let mut first: Option<Mark> = None;
    let mut events = Vec::with_capacity(1024);
    loop {
        events.clear();
        epoll::wait(&poller, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            let client = &mut clients[event.data.u64() as usize];
            if client.receive(&request)? {
                requests += 1;
                client.stream.write_all(&request)?;
            }
        }
        match &first {
            None if begun.elapsed() >= WARM_UP => first = Some(mark(requests)?),
            Some(first) if first.at.elapsed() >= WINDOW => {
                tell(first, &mark(requests)?);
                return Ok(());
            }
            _ => {}
        }
    }
}

impl Connection {
    /// Takes what has come, and answers whether the answer is complete.
    fn receive(&mut self, request: &[u8; MESSAGE]) -> io::Result<bool> {
        let mut buf = [0; MESSAGE];
        let n = match self.stream.read(&mut buf) {
            Ok(0) => return Err(io::Error::other("the server has closed a connection")),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let expected = request.get(self.received..self.received + n);
        if expected != Some(&buf[..n]) {
            return Err(io::Error::other("the server has answered something else"));
        }
        self.received = (self.received + n) % MESSAGE;
        Ok(self.received == 0)
    }
}

fn tell(first: &Mark, last: &Mark) {
    let requests = (last.requests - first.requests) as f64;
    let seconds = (last.at - first.at).as_secs_f64();
    let server = (last.server - first.server).as_secs_f64();
    println!(
        "{} {} {}",
        requests / seconds,
        server * 1e6 / requests,
        last.requests
    );
}
