//! Cases in which a connection of HTTP/1 is handed on, after a CONNECT or an upgrade. The guest takes the
//! stream back from hyper.

use futures::{AsyncReadExt, AsyncWriteExt, future::poll_fn, join};
use http_body_util::{BodyExt, Empty};
use hyper::{
    Request, Response, Uri, body::Bytes, client, server::conn::http1, service::service_fn,
};
use trapline::{Foreign, ForeignStream};

use crate::{
    message::{BoxError, Pairs, headers},
    world::{Outcome, accept, both},
};

/// A name, the request's head, the answer's status and headers, and how it begins.
type Served = (&'static str, &'static str, u16, Pairs, &'static str);

const SERVED: [Served; 2] = [
    (
        "upgrades",
        "GET / HTTP/1.1\r\nUpgrade: foobar\r\nConnection: upgrade\r\n\r\n",
        101,
        &[("upgrade", "foobar")],
        "HTTP/1.1 101 Switching Protocols\r\n",
    ),
    (
        "http_connect",
        "CONNECT localhost:80 HTTP/1.1\r\n\r\n",
        200,
        &[],
        "HTTP/1.1 200 OK\r\n",
    ),
];

#[test]
fn a_server_hands_a_connection_on() {
    for (name, head, status, pairs, start) in SERVED {
        both(
            name,
            async move |os, listener, _| {
                let stream = accept(os, &listener).await?;
                os.run_future(async |foreign: &Foreign| {
                    let service = service_fn(async |_| {
                        let mut response = Response::new(Empty::<Bytes>::new());
                        *response.status_mut() = status.try_into()?;
                        *response.headers_mut() = headers(pairs);
                        Ok::<_, BoxError>(response)
                    });
                    let connection =
                        http1::Builder::new().serve_connection(foreign.stream(stream), service);
                    let parts = connection.without_shutdown().await?;
                    assert_eq!(parts.read_buf, "eagerly optimistic");
                    exchange(parts.io).await
                })
                .await
            },
            async move |os, addr, _| {
                let stream = os.connect(addr).await?;
                stream
                    .send_all(os, (head.to_string() + "eagerly optimistic").as_bytes())
                    .await?;
                let mut got = Vec::new();
                while !got.ends_with(b"foo=bar") && stream.recv_into(os, &mut got).await? > 0 {}
                let text = String::from_utf8(got)?;
                assert!(
                    text.starts_with(start) && !text.contains("content-length"),
                    "{text}"
                );
                assert!(text.ends_with("\r\n\r\nfoo=bar"), "{text}");
                stream.send_all(os, b"bar=foo").await.map_err(Into::into)
            },
        );
    }
}

async fn exchange(mut stream: ForeignStream) -> Outcome {
    AsyncWriteExt::write_all(&mut stream, b"foo=bar").await?;
    AsyncWriteExt::flush(&mut stream).await?;
    let mut rest = Vec::new();
    AsyncReadExt::read_to_end(&mut stream, &mut rest).await?;
    assert_eq!(rest, b"bar=foo");
    Ok(())
}

/// A name, whether it is a CONNECT, and how the peer answers.
const ASKED: [(&str, bool, &str); 2] = [
    (
        "upgrade",
        false,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: foobar\r\n\r\nfoobar=ready",
    ),
    (
        "connect_method",
        true,
        "HTTP/1.1 200 OK\r\n\r\nfoobar=ready",
    ),
];

#[test]
fn a_client_takes_a_connection_back() {
    for (name, is_connect, reply) in ASKED {
        both(
            name,
            async move |os, listener, _| {
                let stream = accept(os, &listener).await?;
                let mut got = Vec::new();
                while !got.ends_with(b"\r\n\r\n") && stream.recv_into(os, &mut got).await? > 0 {}
                stream.send_all(os, reply.as_bytes()).await?;
                got.clear();
                while got.len() < 7 && stream.recv_into(os, &mut got).await? > 0 {}
                assert_eq!(got, b"foo=bar");
                stream.send_all(os, b"bar=foo").await.map_err(Into::into)
            },
            async move |os, addr, _| {
                let stream = os.connect(addr).await?;
                os.run_future(async |foreign: &Foreign| {
                    let stream = foreign.stream(stream);
                    let (mut sender, mut connection) =
                        client::conn::http1::handshake(stream).await?;
                    let mut request = Request::new(Empty::<Bytes>::new());
                    if is_connect {
                        *request.method_mut() = "CONNECT".parse()?;
                        *request.uri_mut() = addr.to_string().parse::<Uri>()?;
                    }
                    let answer = async {
                        let response = sender.send_request(request).await?;
                        let status = response.status().as_u16();
                        let body = response.into_body().collect().await?.to_bytes();
                        Ok::<_, hyper::Error>((status, body))
                    };
                    let over = poll_fn(|cx| connection.poll_without_shutdown(cx));
                    let (over, answer) = join!(over, answer);
                    over?;
                    assert_eq!(answer?, (if is_connect { 200 } else { 101 }, Bytes::new()));
                    // The sender is not ready, and is closed once the connection is taken apart.
                    let is_ready = futures::poll!(poll_fn(|cx| sender.poll_ready(cx)));
                    assert!(is_ready.is_pending());
                    let parts = connection.into_parts();
                    assert_eq!(parts.read_buf, "foobar=ready");
                    assert!(poll_fn(|cx| sender.poll_ready(cx)).await.is_err());
                    exchange(parts.io).await
                })
                .await
            },
        );
    }
}
