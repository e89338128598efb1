mod aof;
mod client;
mod commands;
mod db;
mod log;
mod resp;
mod server;
mod store;

use std::{collections::BTreeMap, error::Error, io, net::SocketAddr, rc::Rc, time::Duration};

use trapline::{
    Os, Queue, Restart, Shared, Source, Strategy, Supervisor, TcpListener, TcpStream,
    sync::{Flag, Watch},
};
use trapline_cli::{Program, addr, duration};

use crate::serve::{Drain, catch, listen};
use aof::Aof;
use db::Db;
use log::{Fsync, Log, Progress};
use server::Server;
use store::Store;

/// A key-value server that redis-cli and redis-benchmark speak to
///
/// It keeps texts, and makes them durable in an append-only file of the disk. SIGTERM and SHUTDOWN end it
/// when the clients have their replies, and all is on the disk; a second signal ends it at once.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kv                                           then: redis-cli -p 6379 set greeting hello
  kv --aof data.aof --fsync always             after boot --disk DIR: no reply is before its change")]
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
        let (addr, drain) = (self.addr, self.drain.span);
        let (server, aof) = self.load(os).await?;
        let listener = listen(os, addr, "--addr").await?;
        let mut signals = Some(catch(os).await);
        writeln!(os, "Ready at {}", listener.local_addr()?);
        let mut supervisor = Supervisor::new(Strategy::OneForOne);
        for work in [
            Work::Expire,
            Work::Log,
            Work::Rewrite,
            Work::Serve(listener, drain),
        ] {
            supervisor = work.add_to(supervisor, &server, &aof);
        }
        let run = async move |os: &mut Os| supervisor.run(os).await;
        let workers = os.spawn("workers", run).await?;
        while !server.drained.is_set() {
            let ends = [Source::flag(&server.drained), Source::exit(workers)];
            let signal = signals.as_ref().map(Source::signal);
            let sources: Vec<Source> = ends.into_iter().chain(signal).collect();
            match os.select(&sources).await {
                0 => {}
                1 => return Err(format!("the workers: {}", os.wait(workers).await?).into()),
                _ => server.stop.set(os).await,
            }
            // The next one is not caught: it ends the run at once.
            if server.stop.is_set()
                && let Some(signals) = signals.take()
            {
                let pending = [Source::signal(&signals), Source::after(Duration::ZERO)];
                while os.select(&pending).await == 0 {
                    signals.next(os).await;
                }
            }
        }
        if let Some(aof) = &aof {
            aof.finish(os, &server).await?;
        }
        os.kill(workers).await;
        writeln!(os, "Stopped");
        Ok(())
    }
}

impl Kv {
    /// Reads the append-only file, if there is one.
    async fn load(self, os: &mut Os) -> io::Result<(Rc<Server>, Option<Rc<Aof>>)> {
        let mut db = Db {
            store: Store::default(),
            log: Log::new(None),
            channels: BTreeMap::new(),
            clients: 0,
            max_clients: self.maxclients,
            max_memory: self.maxmemory,
            last: 0,
            requests: 0,
        };
        let aof = match &self.aof {
            Some(name) => Some(Rc::new(Aof::open(os, name, &mut db).await?)),
            None => None,
        };
        db.log = Log::new(aof.is_some().then_some(self.fsync));
        let server = Server {
            db: Shared::new(db),
            slow: self.slow,
            progress: Watch::new(os, Progress::default()).await,
            nudge_log: Queue::bounded(os, 1).await,
            nudge_expiry: Queue::bounded(os, 1).await,
            rewrites: Flag::new(os).await,
            stop: Flag::new(os).await,
            drained: Flag::new(os).await,
        };
        Ok((Rc::new(server), aof))
    }
}

/// What a worker does.
#[derive(Clone)]
enum Work {
    Expire,
    Log,
    Rewrite,
    /// With the span for clients to finish.
    Serve(TcpListener, Duration),
}

impl Work {
    fn add_to(
        self,
        supervisor: Supervisor,
        server: &Rc<Server>,
        aof: &Option<Rc<Aof>>,
    ) -> Supervisor {
        let (name, restart) = match self {
            Self::Expire => ("expiry", Restart::Permanent),
            Self::Log => ("log", Restart::Permanent),
            Self::Rewrite => ("rewriter", Restart::Permanent),
            Self::Serve(..) => ("listener", Restart::Transient),
        };
        let (server, aof) = (Rc::clone(server), aof.clone());
        supervisor.child(name, restart, move || {
            let (work, server, aof) = (self.clone(), Rc::clone(&server), aof.clone());
            async move |os: &mut Os| work.run(os, server, aof).await
        })
    }

    async fn run(self, os: &mut Os, server: Rc<Server>, aof: Option<Rc<Aof>>) -> io::Result<()> {
        match (self, aof) {
            (Self::Expire, _) => client::expire(os, &server).await,
            (Self::Log, Some(aof)) => aof.run(os, &server).await?,
            (Self::Rewrite, Some(aof)) => aof.rewrite_when_asked(os, &server).await,
            // There is nothing to do.
            (Self::Log | Self::Rewrite, None) => server.drained.wait(os).await,
            (Self::Serve(listener, span), _) => {
                let theirs = Rc::clone(&server);
                let client = async move |os: &mut Os, stream: TcpStream, peer| {
                    if let Err(error) = client::serve(os, &stream, &theirs).await {
                        tracing::info!("{peer}: {error}");
                    }
                };
                let stop = Source::flag(&server.stop);
                os.serve_until(&listener, stop, span, client).await?;
                server.drained.set(os).await;
            }
        }
        Ok(())
    }
}
