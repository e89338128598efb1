//! Echo over UDP: one server socket, and clients that each have one datagram under way.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use rustix::{
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    io::retry_on_intr,
    process::Pid,
};
use trapline::{Kernel, Os};

use super::{CLIENT_CORE, MESSAGE, SERVER_CORE, Server, settle};
use crate::{
    Plan,
    contest::Contest,
    meter::cpu_time_of,
    peers::{figures, this},
};

type Serve = fn() -> io::Result<()>;

const SERVERS: [(&str, Serve); 3] = [
    ("trapline", trapline),
    ("raw epoll, one at a time", one_at_a_time),
    ("raw epoll, until it is empty", until_it_is_empty),
];

/// The number of clients.
const LOADS: [usize; 3] = [1, 8, 50];

pub(crate) fn contests(plan: &Plan) -> Vec<Contest> {
    let window = if plan.quick { 250 } else { 1200 };
    let mut contests = Vec::new();
    for clients in LOADS {
        let name = format!("UDP echo, {clients} clients");
        let units = &["us of CPU per request", "us per request"];
        let mut contest = Contest::new(&name, plan.rounds, units);
        for (name, _) in SERVERS {
            contest = contest.enter_many(name, move || {
                let server = Server::start(&this(&["--child=udp-server", name])?)?;
                let client = this(&[
                    "--child=udp-client",
                    &server.addr.to_string(),
                    &server.pid.to_string(),
                    &clients.to_string(),
                    &window.to_string(),
                ])?;
                figures(&client, 2)
            });
        }
        contests.push(contest);
    }
    contests
}

/// The role of the server's process.
pub(crate) fn serve(args: &[String]) -> io::Result<()> {
    let found = SERVERS.iter().find(|(name, _)| args == [*name]);
    let (_, serve) = found.ok_or_else(|| io::Error::other("there is no such server"))?;
    settle(SERVER_CORE)?;
    serve()
}

fn tell(addr: SocketAddr) {
    println!("{} {addr}", std::process::id());
}

fn trapline() -> io::Result<()> {
    let mut kernel = Kernel::real().map_err(io::Error::other)?;
    kernel.spawn("server", async |os: &mut Os| {
        let socket = os.bind_udp(([127, 0, 0, 1], 0).into()).await?;
        tell(socket.local_addr()?);
        let mut buf = [0; 1024];
        loop {
            let (n, from) = socket.recv_from(os, &mut buf).await?;
            socket.send_to(os, &buf[..n], from).await?;
        }
        #[expect(unreachable_code, reason = "names the error of the question marks")]
        io::Result::Ok(())
    })?;
    kernel.run().map_err(io::Error::other)?;
    Ok(())
}

/// Level-triggered: a wait, a receive and a send serve a request.
fn one_at_a_time() -> io::Result<()> {
    raw(EventFlags::IN, |socket, buf| {
        let (n, from) = socket.recv_from(buf)?;
        socket.send_to(&buf[..n], from).map(drop)
    })
}

/// Receives until there is nothing left: one wait serves all that is there.
fn until_it_is_empty() -> io::Result<()> {
    raw(EventFlags::IN | EventFlags::ET, |socket, buf| {
        loop {
            match socket.recv_from(buf) {
                Ok((n, from)) => drop(socket.send_to(&buf[..n], from)?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    })
}

fn raw(
    flags: EventFlags,
    answer: impl Fn(&UdpSocket, &mut [u8; 1024]) -> io::Result<()>,
) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(true)?;
    tell(socket.local_addr()?);
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poller, &socket, EventData::new_u64(0), flags)?;
    let (mut events, mut buf) = (Vec::with_capacity(16), [0; 1024]);
    loop {
        events.clear();
        retry_on_intr(|| epoll::wait(&poller, rustix::buffer::spare_capacity(&mut events), None))?;
        answer(&socket, &mut buf)?;
    }
}

/// The role of the client's process. It never sleeps, as that of TCP.
pub(crate) fn call(args: &[String]) -> io::Result<()> {
    let usage = || io::Error::other("a UDP client needs ADDR PID CLIENTS WINDOW");
    let addr: SocketAddr = args
        .first()
        .and_then(|addr| addr.parse().ok())
        .ok_or_else(usage)?;
    let numbers: Vec<u64> = args.iter().skip(1).flat_map(|arg| arg.parse()).collect();
    let &[server, clients, window] = &numbers[..] else {
        return Err(usage());
    };
    let server = Pid::from_raw(server as i32).ok_or_else(usage)?;
    settle(CLIENT_CORE)?;
    let request = [7; MESSAGE];
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut sockets = Vec::new();
    for key in 0..clients {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(addr)?;
        socket.set_nonblocking(true)?;
        epoll::add(&poller, &socket, EventData::new_u64(key), EventFlags::IN)?;
        socket.send(&request)?;
        sockets.push(socket);
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
                let socket = &sockets[event.data.u64() as usize];
                if socket.recv(&mut [0; MESSAGE])? != MESSAGE {
                    return Err(io::Error::other("the server has answered something else"));
                }
                requests += 1;
                socket.send(&request)?;
            }
        }
        let (took, done) = (begun.elapsed(), (requests - before) as f64);
        let cpu = cpu_time_of(server.as_raw_nonzero().get())? - cpu;
        io::Result::Ok([cpu, took].map(|span| span.as_secs_f64() * 1e6 / done))
    };
    run(Duration::from_millis(window / 4))?;
    let [cpu, took] = run(Duration::from_millis(window))?;
    println!("{cpu} {took}");
    Ok(())
}
