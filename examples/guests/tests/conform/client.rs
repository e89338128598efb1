//! Cases of hyper's own tests of connections of its HTTP/1 client (`mod conn` in `tests/client.rs`).

use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
    task,
};

use bytes::Bytes;
use futures::{channel::mpsc, join};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::{
    Request,
    body::{Body, Frame},
    client::conn::http1,
    ext::ReasonPhrase,
};
use trapline::{Foreign, ForeignStream, Os, TcpListener, TcpStream};

use crate::{
    message::BoxError,
    world::{Outcome, World, accept, both},
};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Receives a head, which must be this if it is not empty.
async fn head(os: &mut Os, stream: &TcpStream, expected: &str) -> Outcome {
    let mut got = Vec::new();
    while !got.ends_with(b"\r\n\r\n") && stream.recv_into(os, &mut got).await? > 0 {}
    let text = String::from_utf8(got)?;
    assert!(expected.is_empty() || text == expected, "{text}");
    Ok(())
}

/// A peer that answers one head by these pieces, with pauses, and waits for the end of the stream.
fn peer(
    expected: &'static str,
    pieces: &'static [&'static [u8]],
) -> impl AsyncFnOnce(&mut Os, TcpListener, World) -> Outcome + Clone + 'static {
    async move |os, listener, world| {
        let stream = accept(os, &listener).await?;
        head(os, &stream, expected).await?;
        for piece in pieces {
            stream.send_all(os, piece).await?;
            os.sleep(world.seconds(0.1)).await;
        }
        while stream.recv(os, &mut [0; 512]).await? > 0 {}
        Ok(())
    }
}

/// A sender on a new connection, which a task of its own drives.
async fn sender<B>(
    foreign: &Foreign,
    stream: TcpStream,
) -> Result<http1::SendRequest<B>, hyper::Error>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + 'static,
{
    let (sender, connection) = http1::handshake(foreign.stream(stream)).await?;
    foreign.spawn("connection", async move { drop(connection.await) });
    Ok(sender)
}

fn get(uri: &str) -> Request<Empty<Bytes>> {
    Request::builder()
        .uri(uri)
        .body(Empty::new())
        .expect("a request")
}

#[test]
fn get_custom_reason_phrase() {
    let server = peer(
        "GET /a HTTP/1.1\r\n\r\n",
        &[b"HTTP/1.1 200 Alright\r\nContent-Length: 0\r\n\r\n"],
    );
    both("get_custom_reason_phrase", server, async |os, addr, _| {
        let stream = os.connect(addr).await?;
        os.run_future(async |foreign: &Foreign| {
            let response = sender(foreign, stream)
                .await?
                .send_request(get("/a"))
                .await?;
            let reason = response
                .extensions()
                .get::<ReasonPhrase>()
                .expect("a reason");
            assert_eq!(
                (reason.as_bytes(), response.headers().len()),
                (&b"Alright"[..], 1)
            );
            assert!(response.into_body().frame().await.is_none());
            Ok(())
        })
        .await
    });
}

#[test]
fn uri_absolute_form() {
    let server = peer("GET http://hyper.local/a HTTP/1.1\r\n\r\n", &[OK]);
    both("uri_absolute_form", server, async |os, addr, _| {
        let stream = os.connect(addr).await?;
        os.run_future(async |foreign: &Foreign| {
            let request = get("http://hyper.local/a");
            let response = sender(foreign, stream).await?.send_request(request).await?;
            assert_eq!(response.status(), 200);
            Ok(())
        })
        .await
    });
}

#[test]
fn dropped_conn_sends_incomplete_body_error() {
    let server = peer(
        "GET / HTTP/1.1\r\n\r\n",
        &[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"],
    );
    both(
        "dropped_conn_sends_incomplete_body_error",
        server,
        async |os, addr, _| {
            let stream = os.connect(addr).await?;
            os.run_future(async |foreign: &Foreign| {
                let (mut sender, connection) = http1::handshake(foreign.stream(stream)).await?;
                let mut connection = Box::pin(connection);
                let response = tokio::select! {
                    response = sender.send_request(get("/")) => response?,
                    _ = &mut connection => panic!("the connection has ended"),
                };
                assert_eq!(response.body().size_hint().exact(), Some(5));
                assert!(!response.body().is_end_stream());
                drop(connection);
                let error = response
                    .into_body()
                    .frame()
                    .await
                    .expect("a frame")
                    .expect_err("no end");
                assert!(error.is_incomplete_message(), "{error:?}");
                Ok(())
            })
            .await
        },
    );
}

#[test]
fn aborted_body_isnt_completed() {
    let expected = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let server = async move |os: &mut Os, listener: TcpListener, _| -> Outcome {
        let stream = accept(os, &listener).await?;
        let mut got = Vec::new();
        while stream.recv_into(os, &mut got).await? > 0 {}
        assert_eq!(String::from_utf8(got)?, expected);
        Ok(())
    };
    both(
        "aborted_body_isnt_completed",
        server,
        async |os, addr, world| {
            let stream = os.connect(addr).await?;
            os.run_future(async |foreign: &Foreign| {
                let (mut body, frames) = mpsc::channel::<Result<Frame<Bytes>, BoxError>>(1);
                body.try_send(Ok(Frame::data("hello".into())))?;
                let mut sender = sender(foreign, stream).await?;
                let request = Request::post("/").body(StreamBody::new(frames))?;
                let abort = async {
                    foreign.sleep(world.seconds(0.3)).await;
                    body.try_send(Err("body write aborted".into()))
                        .expect("room");
                };
                let (response, ()) = join!(sender.send_request(request), abort);
                assert!(response.is_err());
                Ok(())
            })
            .await
        },
    );
}

#[test]
fn pipeline() {
    both("pipeline", peer("", &[OK]), async |os, addr, _| {
        let stream = os.connect(addr).await?;
        os.run_future(async |foreign: &Foreign| {
            let mut sender = sender(foreign, stream).await?;
            let one = sender.send_request(get("/a"));
            // The connection is not ready for a second one.
            let two = sender.send_request(get("/b"));
            let (one, two) = join!(one, two);
            assert_eq!(one?.status(), 200);
            assert!(two.expect_err("it is canceled").is_canceled());
            Ok(())
        })
        .await
    });
}

#[test]
fn client_100_then_http09() {
    let pieces: &[&[u8]] = &[
        b"HTTP/1.1 100 Continue\r\nContent-Type: text/plain\r\nServer: BaseHTTP/0.6 Python/3.12.5\r\n\
          Date: Mon, 16 Dec 2024 03:08:27 GMT\r\n",
        b"\r\n",
        b"This is a sample text/plain document, without final headers.\n\n",
    ];
    both(
        "client_100_then_http09",
        peer("", pieces),
        async |os, addr, _| {
            let stream = os.connect(addr).await?;
            os.run_future(async |foreign: &Foreign| {
                let mut builder = http1::Builder::new();
                builder.http09_responses(true);
                let (mut sender, connection) = builder.handshake(foreign.stream(stream)).await?;
                foreign.spawn("connection", async move { drop(connection.await) });
                sender
                    .send_request(get("/a"))
                    .await
                    .map(drop)
                    .map_err(Into::into)
            })
            .await
        },
    );
}

#[test]
fn client_on_informational_ext() {
    let server = peer("", &[b"HTTP/1.1 100 Continue\r\n\r\n", OK]);
    both(
        "client_on_informational_ext",
        server,
        async |os, addr, _| {
            let stream = os.connect(addr).await?;
            os.run_future(async |foreign: &Foreign| {
                let (count, mut request) = (Arc::new(AtomicUsize::new(0)), get("/a"));
                let counter = Arc::clone(&count);
                hyper::ext::on_informational(&mut request, move |response| {
                    assert_eq!(response.status(), 100);
                    counter.fetch_add(1, Ordering::Relaxed);
                });
                sender(foreign, stream).await?.send_request(request).await?;
                assert_eq!(count.load(Ordering::Relaxed), 1);
                Ok(())
            })
            .await
        },
    );
}

#[test]
fn test_body_panics() {
    let server = async |os: &mut Os, listener: TcpListener, _| -> Outcome {
        let stream = accept(os, &listener).await?;
        while stream.recv(os, &mut [0; 512]).await? > 0 {}
        Ok(())
    };
    both("test_body_panics", server, async |os, addr, _| {
        let stream = os.connect(addr).await?;
        os.run_future(async |foreign: &Foreign| {
            // The panic is one of the task that drives the connection. Here that is the guest's own.
            let body = Full::<Bytes>::from("baguette").map_frame::<_, Bytes>(|_| panic!("oopsie"));
            let (mut sender, connection) = http1::handshake(foreign.stream(stream)).await?;
            let sent = sender.send_request(Request::post("/a").body(body)?);
            let connection = std::panic::AssertUnwindSafe(connection);
            let over = futures::FutureExt::catch_unwind(connection);
            let (sent, _) = join!(sent, over);
            assert!(sent.expect_err("the body panics").is_user());
            Ok(())
        })
        .await
    });
}

/// Counts flushes.
struct Counting(ForeignStream, Rc<Cell<u32>>);

impl hyper::rt::Read for Counting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> task::Poll<io::Result<()>> {
        hyper::rt::Read::poll_read(Pin::new(&mut self.0), cx, buf)
    }
}

impl hyper::rt::Write for Counting {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: &[u8],
    ) -> task::Poll<io::Result<usize>> {
        self.0.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> task::Poll<io::Result<()>> {
        self.1.set(self.1.get() + 1);
        self.0.poll_flush(cx)
    }

    fn poll_shutdown(
        self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> task::Poll<io::Result<()>> {
        self.0.poll_close(cx)
    }
}

#[test]
fn http1_half_closed_peer_with_open_request_body_does_not_spin() {
    let server = async |os: &mut Os, listener: TcpListener, world: World| -> Outcome {
        let stream = accept(os, &listener).await?;
        head(os, &stream, "").await?;
        stream.shutdown_write(os).await?;
        os.sleep(world.seconds(2.0)).await;
        Ok(())
    };
    both(
        "http1_half_closed_peer_with_open_request_body_does_not_spin",
        server,
        async |os, addr, world| {
            let stream = os.connect(addr).await?;
            os.run_future(async |foreign: &Foreign| {
                let flushes = Rc::new(Cell::new(0));
                let counting = Counting(foreign.stream(stream), Rc::clone(&flushes));
                let (mut sender, connection) = http1::handshake(counting).await?;
                let (_body, frames) = mpsc::channel::<Result<Frame<Bytes>, BoxError>>(0);
                let request = Request::post("/a").body(StreamBody::new(frames))?;
                tokio::select! {
                    _ = async { join!(connection, sender.send_request(request)) } => {}
                    () = foreign.sleep(world.seconds(1.0)) => {}
                }
                assert!(flushes.get() < 100, "{} flushes", flushes.get());
                Ok(())
            })
            .await
        },
    );
}
