//! A server for any service of tower, over HTTP/1 and HTTP/2, with or without TLS.
//!
//! The loop that accepts is a plain program of trapline: it waits for clients and for signals at once. Each
//! connection is a task, and a guest.

use std::{convert::Infallible, error::Error, io, pin::pin, time::Duration};

use futures::future::{Either, select};
use futures_rustls::TlsAcceptor;
use hyper::{Request, Response, body::Body, body::Incoming};
use hyper_util::{server::conn::auto, service::TowerToHyperService};
use tokio::sync::watch;
use trapline::{Foreign, Os, Signal, Source, TcpListener, TcpStream, sync::Group};

/// What a client may take for its handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

type BoxError = Box<dyn Error + Send + Sync>;

/// Serves until SIGTERM or SIGINT comes, or until the task `needed` ends. Then it closes the listener and has
/// each connection end after its requests. Connections that are left after `drain` are killed; returns
/// how many those were.
pub async fn serve<S, B>(
    os: &mut Os,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    service: S,
    needed: Option<Source>,
    drain: Duration,
) -> io::Result<usize>
where
    S: tower::Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
    S: 'static,
    S::Future: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let signals = os.catch(&[Signal::Terminate, Signal::Interrupt]).await;
    let (stop, stops) = watch::channel(false);
    let mut group = Group::named(os, "connections").await;
    let mut sources = vec![
        Source::member(&group),
        Source::readable(&listener),
        Source::signal(&signals),
    ];
    sources.extend(needed);
    loop {
        match os.select(&sources).await {
            0 => {
                if let Some((tid, trapline::Exit::Faulted(why))) = group.next(os).await {
                    writeln!(os, "connection {tid} has panicked: {why}");
                }
            }
            1 => {
                let Ok((stream, _)) = listener.accept(os).await else {
                    // Most likely there is no descriptor left: a client must leave first.
                    os.sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let (tls, service, stops) = (tls.clone(), service.clone(), stops.clone());
                let client = async move |os: &mut Os| {
                    // Its error is the client's, which has broken the connection.
                    let _ = converse(os, stream, tls, service, stops).await;
                };
                // Without room the client finds its connection closed.
                let _ = group.spawn(os, "connection", client).await;
            }
            2 => {
                signals.next(os).await;
                break;
            }
            _ => break,
        }
    }
    drop(listener);
    let _ = stop.send(true);
    Ok(group.drain(os, drain).await)
}

async fn converse<S, B>(
    os: &mut Os,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    service: S,
    stops: watch::Receiver<bool>,
) -> Result<(), BoxError>
where
    S: tower::Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
    S: 'static,
    S::Future: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    os.run_future(async move |foreign| {
        let stream = foreign.stream(stream);
        let Some(tls) = tls else {
            return answer(*foreign, stream, service, stops).await;
        };
        let handshake = pin!(tls.accept(stream));
        match select(handshake, foreign.sleep(PATIENCE)).await {
            Either::Left((stream, _)) => {
                answer(*foreign, crate::tls::HyperIo(stream?), service, stops).await
            }
            Either::Right(_) => Err("the client is too slow with its handshake".into()),
        }
    })
    .await
}

async fn answer<S, B>(
    foreign: Foreign,
    io: impl hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
    service: S,
    mut stops: watch::Receiver<bool>,
) -> Result<(), BoxError>
where
    S: tower::Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
    S: 'static,
    S::Future: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let mut builder = auto::Builder::new(foreign);
    // hyper reads the date from the system's clock, which no seed repeats.
    let mut http1 = builder.http1();
    http1
        .timer(foreign.timer())
        .header_read_timeout(PATIENCE)
        .auto_date_header(false);
    builder
        .http2()
        .timer(foreign.timer())
        .auto_date_header(false);
    let mut connection = pin!(builder.serve_connection(io, TowerToHyperService::new(service)));
    let stop = pin!(stops.wait_for(|stops| *stops));
    match select(connection.as_mut(), stop).await {
        Either::Left((over, _)) => over,
        Either::Right(_) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}
