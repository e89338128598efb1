use std::{cell::Cell, error::Error, io, net::SocketAddr, rc::Rc, time::Duration};

use trapline::{
    Os, Queue, Restart, Source, Strategy, Supervisor, TcpListener, TcpStream, sync::Group,
};
use trapline_cli::{Program, addr, duration};

use crate::serve::{accept, listen};

/// An echo server that crashes, and a supervisor that starts it again
///
/// A client that sends the word crash crashes the server, with the tasks of all its clients. The
/// supervisor has the listening socket, so new clients wait for the next server. When it gives up, the
/// program fails.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  supervised --every 100 --restarts 9       crashes at every 100th request
  supervised --backoff 100ms --at-most 2s   waits longer before each restart")]
pub(crate) struct Supervised {
    /// The address to listen on; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = addr, default_value = "127.0.0.1:45000")]
    addr: SocketAddr,
    /// Crash at every N-th request, too; with 0 at none
    #[arg(long, value_name = "N", default_value_t = 0)]
    every: u32,
    /// The restarts that are allowed within a span
    #[arg(long, value_name = "N", default_value_t = 3)]
    restarts: u32,
    /// That span
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    within: Duration,
    /// How long to wait before the first restart; twice as long before each other
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0s")]
    backoff: Duration,
    /// The longest such wait
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    at_most: Duration,
}

/// What the lives of the server have in common.
struct Shared {
    listener: TcpListener,
    lives: Cell<u32>,
    requests: Cell<u32>,
    every: u32,
}

impl Program for Supervised {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let listener = listen(os, self.addr, "--addr").await?;
        writeln!(os, "Listening at {}", listener.local_addr()?);
        let shared = Rc::new(Shared {
            listener,
            lives: Cell::new(0),
            requests: Cell::new(0),
            every: self.every,
        });
        let server = move || {
            let shared = Rc::clone(&shared);
            async move |os: &mut Os| serve(os, &shared).await
        };
        let supervisor = Supervisor::new(Strategy::OneForOne)
            .restarts(self.restarts, self.within)
            .backoff(self.backoff..self.at_most)
            .child("server", Restart::Permanent, server);
        Ok(supervisor.run(os).await?)
    }
}

/// One life of the server.
async fn serve(os: &mut Os, shared: &Rc<Shared>) {
    shared.lives.set(shared.lives.get() + 1);
    let life = shared.lives.get();
    writeln!(os, "Server {life} starts");
    let crash = Queue::<String>::unbounded(os).await;
    let mut clients = Group::new(os).await;
    let mut quiet_until = Duration::ZERO;
    loop {
        let sources = [
            Source::message(&crash),
            Source::member(&clients),
            Source::readable(&shared.listener),
        ];
        match os.select(&sources).await {
            0 => {
                let why = crash.get(os).await.unwrap_or_default();
                panic!("server {life} crashes: {why}");
            }
            1 => drop(clients.next(os).await),
            _ => {
                let Ok(Some((client, peer))) = accept(os, &shared.listener, &mut quiet_until).await
                else {
                    continue;
                };
                let (shared, crash) = (Rc::clone(shared), crash.clone());
                let echo = async move |os: &mut Os| echo(os, &client, &shared, &crash).await;
                if let Err(errno) = clients.spawn(os, "client", echo).await {
                    writeln!(os, "Client rejected {peer}: {errno}");
                }
            }
        }
    }
}

async fn echo(
    os: &mut Os,
    client: &TcpStream,
    shared: &Shared,
    crash: &Queue<String>,
) -> io::Result<()> {
    let mut buf = [0; 4096];
    loop {
        let n = client.recv(os, &mut buf).await?;
        if n == 0 {
            return Ok(());
        }
        shared.requests.set(shared.requests.get() + 1);
        let request = shared.requests.get();
        if buf[..n].trim_ascii() == b"crash" {
            let _ = crash.put(os, "a client asked for it".into()).await;
        } else if request.checked_rem(shared.every) == Some(0) {
            let _ = crash.put(os, format!("request {request}")).await;
        } else {
            client.send_all(os, &buf[..n]).await?;
        }
    }
}
