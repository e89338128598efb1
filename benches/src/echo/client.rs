//! The load: one thread and one epoll. On every connection it sends the next request as soon as the
//! last answer is in. It never sleeps, since waking it would be work for the server. A slower
//! server, whose answers would find it asleep, would have more of that work.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    process::{Pid, kill_process},
};

use super::{MARK, MESSAGE, Times};
use crate::meter::cpu_time_of;

struct Connection {
    stream: TcpStream,
    /// The number of received bytes of the answer.
    received: usize,
}

/// The start of the measured window.
struct Mark {
    at: Instant,
    requests: u64,
    server: Duration,
}

/// Prints the microseconds per request, the server's CPU time for each, and the number of requests.
pub(super) fn run(
    addr: SocketAddr,
    server: Pid,
    busy: usize,
    idle: usize,
    times: Times,
) -> io::Result<()> {
    let request: [u8; MESSAGE] = std::array::from_fn(|n| n as u8);
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut clients = Vec::new();
    for key in 0..(busy + idle) as u64 {
        let mut stream = TcpStream::connect(addr)?;
        // An answer shows that the server has accepted, so connections do not queue up.
        stream.write_all(&request)?;
        stream.read_exact(&mut [0; MESSAGE])?;
        stream.set_nonblocking(true)?;
        epoll::add(&poller, &stream, EventData::new_u64(key), EventFlags::IN)?;
        let received = 0;
        clients.push(Connection { stream, received });
    }
    let (warm_up, window) = (
        Duration::from_millis(times.warm_up),
        Duration::from_millis(times.window),
    );
    for client in clients.iter_mut().take(busy) {
        client.stream.write_all(&request)?;
    }
    let mut requests = 0;
    let mark = |requests| {
        kill_process(server, MARK)?;
        io::Result::Ok(Mark {
            at: Instant::now(),
            requests,
            server: cpu_time_of(server.as_raw_nonzero().get())?,
        })
    };
    let begun = Instant::now();
    let mut first: Option<Mark> = None;
    let mut events = Vec::with_capacity(1024);
    loop {
        events.clear();
        let room = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&poller, room, Some(&Timespec::default()))?;
        for event in &events {
            let client = &mut clients[event.data.u64() as usize];
            if client.receive(&request)? {
                requests += 1;
                client.stream.write_all(&request)?;
            }
        }
        match &first {
            None if begun.elapsed() >= warm_up => first = Some(mark(requests)?),
            Some(first) if first.at.elapsed() >= window => {
                tell(first, &mark(requests)?);
                return Ok(());
            }
            _ => {}
        }
    }
}

impl Connection {
    /// Receives bytes, and returns whether the answer is complete.
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
        seconds * 1e6 / requests,
        server * 1e6 / requests,
        requests
    );
}
