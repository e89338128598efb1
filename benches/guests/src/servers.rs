//! The servers: the same routes and the same hyper on two runtimes, each on a single thread.

use std::{io, net::SocketAddr};

use axum::{Router, routing::get};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use trapline::{Foreign, Kernel, Os};

use crate::{SERVER_CORE, meter::pin};

type Serve = fn() -> io::Result<()>;

pub(crate) const SERVERS: [(&str, Serve); 2] = [("trapline", trapline), ("tokio", tokio)];

/// The role of the server's process: prints its address, and serves until it is killed.
pub(crate) fn serve(name: &str) -> io::Result<()> {
    let found = SERVERS.iter().find(|(known, _)| *known == name);
    let (_, serve) = found.ok_or_else(|| io::Error::other(format!("there is no {name}")))?;
    pin(None, SERVER_CORE)?;
    serve()
}

fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn service() -> TowerToHyperService<Router> {
    TowerToHyperService::new(Router::new().route("/", get(async || "hello")))
}

fn trapline() -> io::Result<()> {
    let mut kernel = Kernel::real().map_err(io::Error::other)?;
    kernel.spawn("server", async |os: &mut Os| {
        let listener = os.listen(any()).await?;
        println!("{}", listener.local_addr()?);
        let service = service();
        loop {
            let (stream, _) = listener.accept(os).await?;
            let service = service.clone();
            os.spawn_detached("connection", async move |os: &mut Os| {
                os.run_future(async move |foreign: &Foreign| {
                    let io = foreign.stream(stream);
                    http1::Builder::new().serve_connection(io, service).await
                })
                .await
            })
            .await?;
        }
        #[expect(unreachable_code, reason = "names the error of the question marks")]
        io::Result::Ok(())
    })?;
    kernel.run().map_err(io::Error::other)?;
    Ok(())
}

fn tokio() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(any()).await?;
        println!("{}", listener.local_addr()?);
        let service = service();
        loop {
            let (stream, _) = listener.accept().await?;
            let service = service.clone();
            tokio::spawn(async move {
                let io = TokioIo::new(stream);
                http1::Builder::new().serve_connection(io, service).await
            });
        }
    })
}
