mod client;
mod commands;
mod log;
mod pattern;
mod resp;
mod state;
mod store;
#[cfg(test)]
mod tests;

use std::{error::Error, io, net::SocketAddr, rc::Rc, time::Duration};

use trapline::{
    Journal, Os, Restart, Shared, Signals, Source, Strategy, Supervisor, TcpListener, TcpStream,
    sync::Flag,
};
use trapline_cli::{Program, addr, duration};

use crate::serve::{Drain, catch, listen};
use state::{Db, Fsync, Server, wall_clock};
use store::Store;

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
    /// The most clients at once
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    maxclients: usize,
    /// The most bytes of keys and values, about, before changes that need more are refused
    #[arg(long, value_name = "BYTES", default_value_t = usize::MAX, hide_default_value = true)]
    maxmemory: usize,
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
        let ours = Rc::clone(&server);
        let stopper = async move |os: &mut Os| stop_at_signal(os, signals, &ours).await;
        os.spawn_daemon("signals", stopper).await?;
        let (keys, all) = (Rc::clone(&server), Rc::clone(&server));
        let (db, log) = (server.db.clone(), server.log.clone());
        let mut workers = Supervisor::new(Strategy::OneForOne)
            .restarts(u32::MAX, SECOND)
            .backoff(SECOND..SECOND)
            .child("expiry", Restart::Transient, move || {
                expire(Rc::clone(&keys))
            })
            .child("listener", Restart::Transient, move || {
                serve(listener.clone(), drain, Rc::clone(&all))
            });
        if let Some(log) = log.clone() {
            workers = workers.child("log", Restart::Transient, move || {
                let (log, db) = (log.clone(), db.clone());
                async move |os: &mut Os| log.work(os, || log::walk(db.clone())).await
            });
        }
        workers.run(os).await?;
        if let Some(why) = log.and_then(|log| log.error()) {
            return Err(format!("changes may not be on the disk: {why}").into());
        }
        writeln!(os, "Stopped");
        Ok(())
    }
}

impl Kv {
    /// Reads the append-only file, if there is one.
    async fn load(self, os: &mut Os) -> io::Result<Server> {
        let (mut store, mut log) = (Store::default(), None);
        if let Some(name) = &self.aof {
            let replay = |entries: &[u8]| log::replay(&mut store, entries);
            log = Some(Journal::open(os, name, self.fsync.into(), replay).await?);
        }
        let db = Db {
            store,
            log: log.clone(),
            fsync: self.aof.map(|_| self.fsync),
            max_clients: self.maxclients,
            max_memory: self.maxmemory,
            expiry_at: u64::MAX,
            ..Db::default()
        };
        Ok(Server {
            db: Shared::new(db),
            log,
            slow: self.slow,
            expires: Flag::new(os).await,
            stop: Flag::new(os).await,
            drained: Flag::new(os).await,
        })
    }
}

/// Has the server end at a signal. The next one is not caught: it ends the run at once.
async fn stop_at_signal(os: &mut Os, signals: Signals, server: &Server) {
    signals.next(os).await;
    server.stop.set(os).await;
    // One that came together with the first is the same.
    let pending = [Source::signal(&signals), Source::after(Duration::ZERO)];
    while os.select(&pending).await == 0 {
        signals.next(os).await;
    }
}

/// The worker that accepts clients, until the server stops and they have finished.
fn serve(
    listener: TcpListener,
    drain: Duration,
    server: Rc<Server>,
) -> impl AsyncFnOnce(&mut Os) -> io::Result<()> {
    async move |os: &mut Os| {
        let theirs = Rc::clone(&server);
        let client = async move |os: &mut Os, stream: TcpStream, peer| {
            if let Err(error) = client::serve(os, stream, &theirs).await {
                tracing::info!("{peer}: {error}");
            }
        };
        let stop = Source::flag(&server.stop);
        os.serve_until(&listener, stop, drain, client).await?;
        server.drained.set(os).await;
        if let Some(log) = &server.log {
            log.close(os).await;
        }
        Ok(())
    }
}

/// The worker that removes keys which have expired.
fn expire(server: Rc<Server>) -> impl AsyncFnOnce(&mut Os) {
    async move |os: &mut Os| {
        let Server {
            expires, drained, ..
        } = &*server;
        while !drained.is_set() {
            let now = wall_clock(os).await;
            let span = server.db.update(|db| db.expire(now));
            let sources = [
                Source::flag(drained),
                Source::flag(expires),
                Source::after(span),
            ];
            if os.select(&sources).await == 1 {
                expires.clear(os).await;
            }
        }
    }
}
