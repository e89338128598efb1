//! hyper's own cases of CONNECT over HTTP/2, by their names there: a server of hyper with a client of h2
//! (`tests/server.rs`), and a client of hyper with a server of h2 (`tests/client.rs`).

use std::{
    io,
    pin::Pin,
    task::{self, Poll},
};

use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    future::{LocalBoxFuture, join_all, poll_fn, ready},
    stream::FuturesUnordered,
};
use h2::{RecvStream, SendStream, client::SendRequest};
use http_body_util::{BodyExt, Empty};
use hyper::{
    Request, Response,
    body::Incoming,
    rt::ReadBuf,
    server::conn::http2,
    service::service_fn,
    upgrade::{OnUpgrade, Upgraded},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trapline::Foreign;

use crate::world::{World, accept, both};

/// The bytes of an upgraded stream, with the traits of tokio.
struct Tunnel(Upgraded);

impl tokio::io::AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut piece = [0; 4096];
        let room = buf.remaining().min(piece.len());
        let mut read = ReadBuf::new(&mut piece[..room]);
        task::ready!(hyper::rt::Read::poll_read(
            Pin::new(&mut self.0),
            cx,
            read.unfilled()
        ))?;
        buf.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl tokio::io::AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        hyper::rt::Write::poll_write(Pin::new(&mut self.0), cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        hyper::rt::Write::poll_flush(Pin::new(&mut self.0), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        hyper::rt::Write::poll_shutdown(Pin::new(&mut self.0), cx)
    }
}

type Serve = fn(Foreign, World, String, OnUpgrade) -> LocalBoxFuture<'static, ()>;
type Call = fn(Foreign, World, SendRequest<Bytes>) -> LocalBoxFuture<'static, ()>;

/// Windows of the client: of a stream, and of the connection.
type Windows = Option<(u32, u32)>;

/// A server of hyper hands each CONNECT to `serve`, in a task of its own. A client of h2 is `call`.
fn serves(name: &'static str, windows: Windows, serve: Serve, call: Call) {
    both(
        name,
        async move |os, listener, world| {
            let stream = accept(os, &listener).await?;
            os.run_future(async |foreign: &Foreign| {
                let foreign = *foreign;
                let service = service_fn(move |request: Request<Incoming>| {
                    let authority = request.uri().authority().expect("an authority").to_string();
                    let upgrade = hyper::upgrade::on(request);
                    foreign.spawn("tunnel", serve(foreign, world, authority, upgrade));
                    ready(Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new())))
                });
                let builder = http2::Builder::new(foreign);
                // A client that resets its streams may go without a word.
                drop(
                    builder
                        .serve_connection(foreign.stream(stream), service)
                        .await,
                );
                Ok(())
            })
            .await
        },
        async move |os, addr, world| {
            let stream = os.connect(addr).await?;
            os.run_future(async |foreign: &Foreign| {
                let mut builder = h2::client::Builder::new();
                if let Some((stream, connection)) = windows {
                    builder
                        .initial_window_size(stream)
                        .initial_connection_window_size(connection);
                }
                let (sender, connection) = builder
                    .handshake::<_, Bytes>(foreign.stream(stream))
                    .await?;
                foreign.spawn("connection", async move { drop(connection.await) });
                call(*foreign, world, sender.ready().await?).await;
                Ok(())
            })
            .await
        },
    );
}

/// Sends a CONNECT, and returns both directions.
async fn open(sender: &mut SendRequest<Bytes>) -> (RecvStream, SendStream<Bytes>) {
    let request = Request::connect("localhost").body(()).expect("a request");
    let (response, sends) = sender.send_request(request, false).expect("a stream");
    let response = response.await.expect("a response");
    assert_eq!(response.status(), 200);
    (response.into_body(), sends)
}

async fn bread(body: &mut RecvStream) {
    let bytes = body.data().await.expect("data").expect("no error");
    assert_eq!(bytes, "Bread?");
    body.flow_control()
        .release_capacity(bytes.len())
        .expect("capacity");
}

/// The stream ends, after an empty frame or without one.
async fn ends(body: &mut RecvStream) {
    if let Some(bytes) = body.data().await {
        assert!(bytes.expect("no error").is_empty());
    }
}

/// Receives all, and gives the room back.
async fn receive(body: &mut RecvStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = body.data().await {
        let bytes = bytes.expect("no error");
        all.extend_from_slice(&bytes);
        let _ = body.flow_control().release_capacity(bytes.len());
    }
    all
}

/// A server that asks for bread, and receives a baguette.
fn baguette(_: Foreign, _: World, _: String, upgrade: OnUpgrade) -> LocalBoxFuture<'static, ()> {
    let serve = async move {
        let mut tunnel = Tunnel(upgrade.await.expect("an upgrade"));
        tunnel.write_all(b"Bread?").await.unwrap();
        let mut got = Vec::new();
        tunnel.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"Baguette!");
        tunnel.shutdown().await.unwrap();
    };
    serve.boxed_local()
}

#[test]
fn a_tunnel_there_and_back() {
    serves("h2_connect", None, baguette, |_, _, mut sender| {
        let call = async move {
            let (mut body, mut sends) = open(&mut sender).await;
            bread(&mut body).await;
            sends.send_data("Baguette!".into(), true).unwrap();
            ends(&mut body).await;
        };
        call.boxed_local()
    });
    serves(
        "h2_connect_empty_frames",
        None,
        baguette,
        |_, _, mut sender| {
            let call = async move {
                let (mut body, mut sends) = open(&mut sender).await;
                bread(&mut body).await;
                for text in ["", "", "", "Baguette!"] {
                    sends.send_data(text.into(), false).unwrap();
                }
                sends.send_data("".into(), true).unwrap();
                ends(&mut body).await;
            };
            call.boxed_local()
        },
    );
}

const LINE: &str = "All work and no bread makes nox a dull boy.\n";

#[test]
fn a_large_body() {
    let serve: Serve = |_, _, _, upgrade| {
        let serve = async move {
            let mut tunnel = Tunnel(upgrade.await.expect("an upgrade"));
            tunnel.write_all(b"Bread?").await.unwrap();
            let mut got = Vec::new();
            tunnel.read_to_end(&mut got).await.unwrap();
            assert_eq!(got.len(), LINE.len() * 9000 * 2);
            tunnel.shutdown().await.unwrap();
        };
        serve.boxed_local()
    };
    serves("h2_connect_large_body", None, serve, |_, _, mut sender| {
        let call = async move {
            let (mut body, mut sends) = open(&mut sender).await;
            bread(&mut body).await;
            let large = Bytes::from(LINE.repeat(9000));
            sends.send_data(large.clone(), false).unwrap();
            sends.send_data(large, true).unwrap();
            ends(&mut body).await;
        };
        call.boxed_local()
    });
}

/// Of 80 streams a quarter each: are dropped at once, after the response, after the bread, not at all.
#[test]
fn many_streams_of_which_most_are_dropped() {
    let serve: Serve = |_, _, authority, upgrade| {
        let serve = async move {
            let upgraded = upgrade.await;
            if authority == "localhost_0" {
                assert!(upgraded.expect_err("a reset").is_canceled());
                return;
            }
            let mut tunnel = Tunnel(upgraded.expect("an upgrade"));
            tunnel.write_all(b"Bread?").await.unwrap();
            let mut got = Vec::new();
            let read = tunnel.read_to_end(&mut got).await;
            if authority == "localhost_3" {
                assert_eq!((read.unwrap(), &got[..]), (9, &b"Baguette!"[..]));
                tunnel.shutdown().await.unwrap();
                return;
            }
            // The reset, or the end of a stream whose reset has come before.
            if let Err(error) = read {
                let error = error
                    .get_ref()
                    .and_then(|error| error.downcast_ref::<h2::Error>());
                assert_eq!(error.and_then(h2::Error::reason), Some(h2::Reason::CANCEL));
            }
            assert!(got.is_empty());
        };
        serve.boxed_local()
    };
    serves("h2_connect_multiplex", None, serve, |_, _, mut sender| {
        let call = async move {
            // All are opened before the first is awaited.
            let mut opened = Vec::new();
            for n in 0..80 {
                let request = Request::connect(format!("localhost_{}", n % 4))
                    .body(())
                    .unwrap();
                let (response, sends) = sender.send_request(request, false).expect("a stream");
                opened.push((n % 4, response, sends));
            }
            let each = opened
                .into_iter()
                .map(|(kind, response, mut sends)| async move {
                    if kind == 0 {
                        return;
                    }
                    let response = response.await.expect("a response");
                    assert_eq!(response.status(), 200);
                    let mut body = response.into_body();
                    if kind == 1 {
                        return;
                    }
                    bread(&mut body).await;
                    if kind == 2 {
                        return;
                    }
                    sends.send_data("Baguette!".into(), true).unwrap();
                    ends(&mut body).await;
                });
            each.collect::<FuturesUnordered<_>>().collect::<()>().await;
        };
        call.boxed_local()
    });
}

#[test]
fn back_pressure_of_windows() {
    let serve: Serve = |_, _, _, upgrade| {
        let serve = async move {
            let mut tunnel = Tunnel(upgrade.await.expect("an upgrade"));
            for _ in 0..2000 {
                tunnel
                    .write_all(b"backpressure test data chunk!\n")
                    .await
                    .unwrap();
            }
            tunnel.shutdown().await.unwrap();
        };
        serve.boxed_local()
    };
    serves(
        "h2_connect_backpressure_respected",
        Some((1024, 1024)),
        serve,
        |_, _, mut sender| {
            let call = async move {
                let (mut body, _sends) = open(&mut sender).await;
                assert_eq!(receive(&mut body).await.len(), 30 * 2000);
            };
            call.boxed_local()
        },
    );
    let serve: Serve = |_, _, _, upgrade| {
        let serve = async move {
            let mut tunnel = Tunnel(upgrade.await.expect("an upgrade"));
            tunnel
                .write_all(b"Hello from upgraded stream")
                .await
                .unwrap();
            tunnel.shutdown().await.unwrap();
        };
        serve.boxed_local()
    };
    serves(
        "h2_connect_zero_window_then_release",
        Some((65_535, 65_535)),
        serve,
        |_, _, mut sender| {
            let call = async move {
                let (mut body, _sends) = open(&mut sender).await;
                assert_eq!(receive(&mut body).await, b"Hello from upgraded stream");
            };
            call.boxed_local()
        },
    );
    let serve: Serve = |_, _, _, upgrade| {
        let serve = async move {
            let mut tunnel = Tunnel(upgrade.await.expect("an upgrade"));
            for _ in 0..500 {
                tunnel.write_all(LINE.as_bytes()).await.unwrap();
            }
            tunnel.shutdown().await.unwrap();
            let mut got = Vec::new();
            tunnel.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, b"client done");
        };
        serve.boxed_local()
    };
    serves(
        "h2_connect_backpressure_bidirectional",
        Some((2048, 4096)),
        serve,
        |_, _, mut sender| {
            let call = async move {
                let (mut body, mut sends) = open(&mut sender).await;
                assert_eq!(receive(&mut body).await.len(), 500 * LINE.len());
                sends.send_data("client done".into(), true).unwrap();
            };
            call.boxed_local()
        },
    );
}

#[test]
fn a_writer_without_room_is_shut_down_or_reset() {
    let serve: Serve = |foreign, world, _, upgrade| {
        let serve = async move {
            let mut tunnel = Tunnel(upgrade.await.expect("an upgrade"));
            tunnel.write_all(&[b'x'; 1024]).await.unwrap();
            tokio::select! {
                done = tunnel.shutdown() => done.unwrap(),
                () = foreign.sleep(world.seconds(4.0)) => panic!("the shutdown waits for room"),
            }
        };
        serve.boxed_local()
    };
    let name = "h2_connect_shutdown_while_send_backpressured";
    serves(
        name,
        Some((1024, 1024)),
        serve,
        |foreign, world, mut sender| {
            let call = async move {
                let (mut body, _sends) = open(&mut sender).await;
                assert_eq!(body.data().await.unwrap().unwrap().len(), 1024);
                foreign.sleep(world.seconds(5.0)).await;
            };
            call.boxed_local()
        },
    );
    let serve: Serve = |foreign, world, _, upgrade| {
        let serve = async move {
            let mut tunnel = Tunnel(upgrade.await.expect("an upgrade"));
            tunnel.write_all(&[b'x'; 1024]).await.unwrap();
            foreign.sleep(world.seconds(2.0)).await;
            let written = tunnel.write_all(&[b'x'; 1024 * 1024]).await;
            assert!(written.is_err() | tunnel.shutdown().await.is_err());
        };
        serve.boxed_local()
    };
    serves(
        "h2_connect_reset_during_backpressure",
        Some((1024, 1024)),
        serve,
        |foreign, world, mut sender| {
            let call = async move {
                let (mut body, mut sends) = open(&mut sender).await;
                let mut got = 0;
                while got < 1024 {
                    got += body.data().await.unwrap().unwrap().len();
                }
                sends.send_reset(h2::Reason::CANCEL);
                drop((body, sends));
                foreign.sleep(world.seconds(5.0)).await;
            };
            call.boxed_local()
        },
    );
}

/// A client of hyper sends a CONNECT to a server of h2, which answers so.
fn calls(name: &'static str, status: u16, answer: &'static str) {
    both(
        name,
        async move |os, listener, _| {
            let stream = accept(os, &listener).await?;
            os.run_future(async |foreign: &Foreign| {
                let mut connection = h2::server::handshake(foreign.stream(stream)).await?;
                let (request, mut respond) = connection.accept().await.ok_or("no request")??;
                assert_eq!(request.method(), "CONNECT");
                let serve = async {
                    let response = Response::builder().status(status).body(())?;
                    respond
                        .send_response(response, false)?
                        .send_data(answer.into(), true)?;
                    if status == 200 {
                        let mut body = request.into_body();
                        assert_eq!(receive(&mut body).await, b"Baguette!");
                    }
                    Ok::<_, Box<dyn std::error::Error>>(())
                };
                let closed = poll_fn(|cx| connection.poll_closed(cx));
                let (served, closed) = futures::join!(serve, closed);
                closed?;
                served
            })
            .await
        },
        async move |os, addr, _| {
            let stream = os.connect(addr).await?;
            os.run_future(async |foreign: &Foreign| {
                let stream = foreign.stream(stream);
                let (mut sender, connection) =
                    hyper::client::conn::http2::handshake(*foreign, stream).await?;
                let over =
                    foreign.spawn("connection", async move { connection.await.expect("well") });
                let request = Request::connect("localhost").body(Empty::<Bytes>::new())?;
                let mut response = sender.send_request(request).await?;
                assert_eq!(response.status(), status);
                drop(sender);
                if status == 200 {
                    let mut tunnel = Tunnel(hyper::upgrade::on(&mut response).await?);
                    let mut got = Vec::new();
                    tunnel.read_to_end(&mut got).await?;
                    assert_eq!(got, answer.as_bytes());
                    tunnel.write_all(b"Baguette!").await?;
                    tunnel.shutdown().await?;
                } else {
                    assert!(response.extensions().get::<OnUpgrade>().is_none());
                    assert_eq!(response.into_body().collect().await?.to_bytes(), answer);
                }
                over.await.ok_or("the connection has failed")?;
                Ok(())
            })
            .await
        },
    );
}

#[test]
fn a_client_of_a_tunnel() {
    calls("h2_connect", 200, "Bread?");
    calls("h2_connect_rejected", 400, "No bread for you!");
}

/// The connection ends once the client has dropped its tunnels.
#[test]
fn http2_connect_detect_close() {
    both(
        "http2_connect_detect_close",
        async move |os, listener, _| {
            let stream = accept(os, &listener).await?;
            os.run_future(async |foreign: &Foreign| {
                let foreign = *foreign;
                let service = service_fn(move |request: Request<Incoming>| {
                    let upgrade = hyper::upgrade::on(request);
                    let hello =
                        async move { Tunnel(upgrade.await.unwrap()).write_all(b"hello\n").await };
                    foreign.spawn("tunnel", hello.map(drop));
                    ready(Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new())))
                });
                let builder = http2::Builder::new(foreign);
                drop(
                    builder
                        .serve_connection(foreign.stream(stream), service)
                        .await,
                );
                Ok(())
            })
            .await
        },
        async move |os, addr, _| {
            let stream = os.connect(addr).await?;
            os.run_future(async |foreign: &Foreign| {
                let stream = foreign.stream(stream);
                let (sender, connection) =
                    hyper::client::conn::http2::handshake(*foreign, stream).await?;
                let over =
                    foreign.spawn("connection", async move { connection.await.expect("well") });
                let tunnels = (0..2).map(|_| {
                    let mut sender = sender.clone();
                    async move {
                        let request = Request::connect("localhost:80")
                            .body(Empty::<Bytes>::new())
                            .unwrap();
                        let response = sender.send_request(request).await.unwrap();
                        assert_eq!(response.status(), 200);
                        hyper::upgrade::on(response).await.unwrap()
                    }
                });
                let tunnels = join_all(tunnels).await;
                drop((tunnels, sender));
                over.await.ok_or("the connection has failed")?;
                Ok(())
            })
            .await
        },
    );
}
