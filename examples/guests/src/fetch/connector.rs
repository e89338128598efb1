//! Connections for the pool of hyper-util.
//!
//! The pool wants connections that are `Send`, since its runtime may move them. Those of a kernel are not:
//! `SendWrapper` promises that they stay on its thread, and panics if they do not.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use futures_rustls::{TlsConnector, client::TlsStream, rustls::pki_types::ServerName};
use hyper::{
    Uri,
    rt::{Read, ReadBufCursor, Write},
};
use hyper_util::client::legacy::connect::{self, Connected};
use send_wrapper::SendWrapper;
use trapline::{Foreign, ForeignStream, Os};

use crate::tls::HyperIo;

/// Connects to servers, by calls of the kernel.
#[derive(Clone)]
pub struct Connector {
    foreign: Foreign,
    tls: Option<TlsConnector>,
}

impl Connector {
    pub(super) fn new(foreign: Foreign, tls: Option<TlsConnector>) -> Self {
        Self { foreign, tls }
    }
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection(SendWrapper<Socket>);

#[derive(Debug)]
enum Socket {
    Plain(ForeignStream),
    Tls(Box<HyperIo<TlsStream<ForeignStream>>>),
}

impl tower::Service<Uri> for Connector {
    type Response = Connection;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Connection>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let connected = connected(self.foreign, self.tls.clone(), url);
        SendWrapper::new(connected).boxed()
    }
}

async fn connected(
    foreign: Foreign,
    tls: Option<TlsConnector>,
    url: Uri,
) -> io::Result<Connection> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{url}: {why}"));
    let host = url.host().ok_or_else(|| invalid("it names no host"))?;
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_string();
    let is_https = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let name = host.clone();
    let stream = foreign
        .call(async move |os: &mut Os| os.connect((&*name, port)).await)
        .await?;
    let stream = foreign.stream(stream);
    if !is_https {
        return Ok(Connection(SendWrapper::new(Socket::Plain(stream))));
    }
    let tls = tls.ok_or_else(|| invalid("this client has no certificates for TLS"))?;
    let name = ServerName::try_from(host).map_err(|_| invalid("its host is no name"))?;
    let stream = HyperIo(tls.connect(name, stream).await?);
    Ok(Connection(SendWrapper::new(Socket::Tls(Box::new(stream)))))
}

impl connect::Connection for Connection {
    fn connected(&self) -> Connected {
        match &*self.0 {
            Socket::Tls(stream) if stream.0.get_ref().1.alpn_protocol() == Some(b"h2") => {
                Connected::new().negotiated_h2()
            }
            _ => Connected::new(),
        }
    }
}

impl Read for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self.0 {
            Socket::Plain(stream) => Read::poll_read(Pin::new(stream), cx, buf),
            Socket::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        }
    }
}

impl Write for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self.0 {
            Socket::Plain(stream) => Write::poll_write(Pin::new(stream), cx, buf),
            Socket::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self.0 {
            Socket::Plain(stream) => Write::poll_flush(Pin::new(stream), cx),
            Socket::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self.0 {
            Socket::Plain(stream) => Write::poll_shutdown(Pin::new(stream), cx),
            Socket::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}
