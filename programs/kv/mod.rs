mod client;
mod commands;
mod db;
mod pattern;
#[cfg(test)]
mod tests;

use std::{error::Error, io, net::SocketAddr, rc::Rc, time::Duration};

use trapline::{
    Durability, Journal, Os, Restart, Shared, Source, Strategy, Supervisor, TcpListener, TcpStream,
    sync::Flag,
};
use trapline_cli::{Program, addr, duration};

use crate::serve::{Drain, catch, listen, take_pending};
use db::{Db, Fsync, Limits, Server, wall_clock};

const SECOND: Duration = Duration::from_secs(1);

/// A key-value server that redis-cli and redis-benchmark speak to
///
/// It keeps texts, and makes them durable in an append-only file of the disk. SIGTERM and SHUTDOWN end it
/// when the clients have their replies, and all is on the disk; a second signal ends it at once.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kv                                 then: redis-cli -p 6379 set greeting hello
  kv --aof data.aof --fsync always   with boot --disk DIR: a reply means on disk")]
pub(crate) struct Kv {
    /// The address to listen on; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", value_parser = addr, default_value = "127.0.0.1:6379")]
    addr: SocketAddr,
    /// The append-only file, on the disk
    #[arg(long, value_name = "FILE")]
    aof: Option<String>,
    /// When a change must be on the disk
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "everysec",
        requires = "aof"
    )]
    fsync: Fsync,
    #[command(flatten)]
    limits: Limits,
    /// How long a client may read nothing of its replies
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    slow: Duration,
    #[command(flatten)]
    drain: Drain,
}

impl Program for Kv {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        if os.kernel().index() > 0 {
            tracing::warn!(
                "kernel {} has a database of its own: a client sees that of the kernel which accepts it",
                os.kernel().index() + 1
            );
        }
        let (addr, drain) = (self.addr, self.drain.span);
        let server = Rc::new(self.load(os).await?);
        let listener = listen(os, addr, "--addr").await?;
        let signals = catch(os).await;
        writeln!(os, "Ready at {}", listener.local_addr()?);
        let [expiring, serving, writing] = [(); 3].map(|()| Rc::clone(&server));
        let stop = server.stop.clone();
        let stopper = async move |os: &mut Os| {
            signals.next(os).await;
            stop.set(os).await;
            // One that came together with the first is the same. The next one ends the run at once.
            take_pending(os, &signals).await;
        };
        os.spawn_daemon("signals", stopper).await?;
        let mut workers = Supervisor::new(Strategy::OneForOne)
            .restarts(u32::MAX, SECOND)
            .backoff(SECOND..SECOND)
            .child("expiry", Restart::Transient, move || {
                let server = Rc::clone(&expiring);
                async move |os: &mut Os| expire(os, &server).await
            })
            .child("listener", Restart::Transient, move || {
                let (listener, server) = (listener.clone(), Rc::clone(&serving));
                async move |os: &mut Os| serve(os, &listener, drain, server).await
            });
        if let Some(log) = server.log.clone() {
            workers = workers.child("log", Restart::Transient, move || {
                let (log, db) = (log.clone(), writing.db.clone());
                async move |os: &mut Os| log.work(os, || db::walk(db.clone())).await
            });
        }
        workers.run(os).await?;
        if let Some(why) = server.log.as_ref().and_then(Journal::error) {
            return Err(format!("changes may not be on the disk: {why}").into());
        }
        writeln!(os, "Stopped");
        Ok(())
    }
}

impl Kv {
    /// Reads the append-only file, if there is one.
    async fn load(self, os: &mut Os) -> io::Result<Server> {
        let durability = match self.fsync {
            Fsync::Always => Durability::Always,
            Fsync::Everysec => Durability::Every(SECOND),
            Fsync::No => Durability::Never,
        };
        let mut db = Db {
            limits: self.limits,
            fsync: self.aof.as_ref().map(|_| self.fsync),
            ..Db::default()
        };
        if let Some(name) = &self.aof {
            let replay = |entries: &[u8]| db.replay(entries);
            db.log = Some(Journal::open(os, name, durability, replay).await?);
        }
        Ok(Server {
            log: db.log.clone(),
            db: Shared::new(db),
            slow: self.slow,
            expires: Flag::named(os, "expires").await,
            stop: Flag::named(os, "stop").await,
        })
    }
}

/// The worker that accepts clients, until the server stops and they have finished.
async fn serve(
    os: &mut Os,
    listener: &TcpListener,
    drain: Duration,
    server: Rc<Server>,
) -> io::Result<()> {
    let ours = Rc::clone(&server);
    let client = async move |os: &mut Os, stream: TcpStream, peer| {
        if let Err(error) = client::serve(os, stream, &ours).await {
            tracing::info!("{peer}: {error}");
        }
    };
    let stop = Source::flag(&server.stop);
    os.serve_until(listener, stop, drain, client).await?;
    if let Some(log) = &server.log {
        log.close(os).await;
    }
    Ok(())
}

/// The worker that removes keys which have expired while no client asks.
async fn expire(os: &mut Os, server: &Server) {
    let Server { expires, stop, .. } = server;
    while !stop.is_set() {
        let now = wall_clock(os).await;
        let span = server.db.update(|db| db.expire(now));
        let next = span.map_or(Source::flag(expires), Source::after);
        os.select(&[Source::flag(stop), next]).await;
        if span.is_none() {
            expires.clear(os).await;
        }
    }
}
