//! Cases of hyper's own tests of a client beside a server (`tests/integration.rs`), by their names there.
//! Each runs over HTTP/1 and HTTP/2, directly and by a proxy. Each exchange has a connection of its own.

use std::{cell::RefCell, collections::VecDeque, net::SocketAddr, rc::Rc};

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, Uri, Version,
    body::{Body, Incoming},
    client, server,
    service::service_fn,
};
use trapline::{Foreign, Os, TcpListener, TcpStream};

use crate::{
    message::{BoxError, Pairs, headers},
    world::{Outcome, World, accept, both},
};

#[derive(Clone, Default)]
struct Exchange {
    is_post: bool,
    uri: &'static str,
    sent: Pairs,
    sent_body: &'static str,
    /// What the server must see.
    arrives: Pairs,
    reply: Pairs,
    reply_body: &'static str,
    /// What the client must see. An empty value means any.
    returns: Pairs,
    /// What it must not see over HTTP/2.
    stripped: &'static str,
}

#[derive(Clone, Copy)]
struct Setting {
    version: Version,
    has_proxy: bool,
    is_parallel: bool,
}

fn root() -> Exchange {
    Exchange {
        uri: "/",
        ..Exchange::default()
    }
}

fn hello(reply: Pairs, returns: Pairs, stripped: &'static str) -> Exchange {
    Exchange {
        reply,
        returns,
        stripped,
        reply_body: "hello world",
        ..root()
    }
}

fn cases() -> Vec<(&'static str, Vec<Exchange>)> {
    let length: Pairs = &[("content-length", "11")];
    let date: Pairs = &[("date", "let me through")];
    let te: Pairs = &[("te", "trailers")];
    let at = |uri| Exchange {
        uri,
        ..Exchange::default()
    };
    vec![
        (
            "get_1",
            vec![Exchange {
                returns: &[("date", "")],
                ..root()
            }],
        ),
        ("get_implicit_path", vec![at("")]),
        (
            "date_isnt_overwritten",
            vec![Exchange {
                reply: date,
                returns: date,
                ..root()
            }],
        ),
        ("get_body", vec![hello(length, length, "")]),
        ("get_body_2_keeps_alive", vec![hello(length, length, ""); 2]),
        (
            "get_strip_connection_header",
            vec![hello(&[("connection", "close")], &[], "connection")],
        ),
        (
            "get_strip_keep_alive_header",
            vec![hello(
                &[("keep-alive", "timeout=5, max=1000")],
                &[],
                "keep-alive",
            )],
        ),
        (
            "get_strip_upgrade_header",
            vec![hello(&[("upgrade", "h2c")], &[], "upgrade")],
        ),
        (
            "get_allow_te_trailers_header",
            vec![Exchange {
                sent: te,
                arrives: te,
                ..root()
            }],
        ),
        (
            "get_body_chunked",
            vec![hello(
                &[("transfer-encoding", "chunked")],
                &[],
                "transfer-encoding",
            )],
        ),
        (
            "post_outgoing_length",
            vec![Exchange {
                is_post: true,
                sent_body: "hello, world!",
                arrives: &[("content-length", "13")],
                ..at("/hello")
            }],
        ),
        (
            "post_chunked",
            vec![Exchange {
                is_post: true,
                sent: &[("transfer-encoding", "chunked")],
                sent_body: "hello world",
                ..at("/post_chunked")
            }],
        ),
        ("get_2", vec![at("/1"), at("/2")]),
    ]
}

/// Serves a connection with any service.
async fn serve<F, B>(
    foreign: &Foreign,
    version: Version,
    stream: TcpStream,
    answer: impl Fn(Request<Incoming>) -> F,
) -> Outcome
where
    F: Future<Output = Result<Response<B>, BoxError>> + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + 'static,
{
    let (stream, service) = (foreign.stream(stream), service_fn(answer));
    let done = match version {
        Version::HTTP_2 => {
            server::conn::http2::Builder::new(*foreign)
                .serve_connection(stream, service)
                .await
        }
        _ => {
            server::conn::http1::Builder::new()
                .serve_connection(stream, service)
                .await
        }
    };
    Ok(done?)
}

/// Sends one request on a connection.
async fn request<B>(
    foreign: &Foreign,
    version: Version,
    stream: TcpStream,
    request: Request<B>,
) -> Result<Response<Incoming>, hyper::Error>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + 'static,
{
    let stream = foreign.stream(stream);
    match version {
        Version::HTTP_2 => {
            let (mut sender, connection) = client::conn::http2::handshake(*foreign, stream).await?;
            foreign.spawn("connection", async move {
                connection.await.expect("the connection")
            });
            sender.send_request(request).await
        }
        _ => {
            let (mut sender, connection) = client::conn::http1::handshake(stream).await?;
            foreign.spawn("connection", async move {
                connection.await.expect("the connection")
            });
            sender.send_request(request).await
        }
    }
}

async fn origin(
    os: &mut Os,
    listener: TcpListener,
    setting: Setting,
    all: Vec<Exchange>,
) -> Outcome {
    let number = all.len();
    let left = Rc::new(RefCell::new(VecDeque::from(all)));
    for _ in 0..number {
        let (stream, left) = (accept(os, &listener).await?, Rc::clone(&left));
        os.spawn_detached("connection", async move |os: &mut Os| {
            os.run_future(async |foreign: &Foreign| {
                let answer = |request: Request<Incoming>| {
                    let exchange = left.borrow_mut().pop_front().expect("an exchange");
                    async move {
                        assert_eq!(
                            (request.uri().path(), request.version()),
                            (path(&exchange), setting.version)
                        );
                        assert_eq!(request.method() == "POST", exchange.is_post);
                        for (name, value) in &headers(exchange.arrives) {
                            assert_eq!(request.headers().get(name), Some(value));
                        }
                        let body = request.into_body().collect().await?.to_bytes();
                        assert_eq!(body, exchange.sent_body);
                        let mut response = Response::new(Full::from(exchange.reply_body));
                        *response.headers_mut() = headers(exchange.reply);
                        Ok(response)
                    }
                };
                serve(foreign, setting.version, stream, answer).await
            })
            .await
        })
        .await?;
    }
    Ok(())
}

fn path(exchange: &Exchange) -> &'static str {
    if exchange.uri.is_empty() {
        "/"
    } else {
        exchange.uri
    }
}

/// Passes each request to the origin, on a connection of its own.
async fn proxy(
    os: &mut Os,
    listener: TcpListener,
    origin: SocketAddr,
    version: Version,
    number: usize,
) -> Outcome {
    for _ in 0..number {
        let stream = accept(os, &listener).await?;
        os.spawn_detached("proxied", async move |os: &mut Os| {
            os.run_future(async |foreign: &Foreign| {
                let foreign = *foreign;
                let pass = |mut incoming: Request<Incoming>| async move {
                    let uri = format!("http://{origin}{}", incoming.uri().path());
                    *incoming.uri_mut() = uri.parse()?;
                    let stream = foreign
                        .call(async move |os: &mut Os| os.connect(origin).await)
                        .await?;
                    let mut response = request(&foreign, version, stream, incoming).await?;
                    response.headers_mut().remove("connection");
                    Ok(response)
                };
                serve(&foreign, version, stream, pass).await
            })
            .await
        })
        .await?;
    }
    Ok(())
}

/// Makes one exchange, and checks what comes back.
async fn ask(foreign: Foreign, addr: SocketAddr, setting: Setting, exchange: Exchange) -> Outcome {
    let stream = foreign
        .call(async move |os: &mut Os| os.connect(addr).await)
        .await?;
    let mut sent = Request::new(Full::<Bytes>::from(exchange.sent_body));
    *sent.uri_mut() = format!("http://{addr}{}", exchange.uri).parse::<Uri>()?;
    *sent.headers_mut() = headers(exchange.sent);
    if exchange.is_post {
        *sent.method_mut() = "POST".parse()?;
    }
    let response = request(&foreign, setting.version, stream, sent).await?;
    assert_eq!(
        (response.status().as_u16(), response.version()),
        (200, setting.version)
    );
    for (name, value) in &headers(exchange.returns) {
        let got = response.headers().get(name);
        assert!(
            got.is_some_and(|got| value.is_empty() || got == value),
            "{name}: {got:?}"
        );
    }
    if setting.version == Version::HTTP_2 && !exchange.stripped.is_empty() {
        assert_eq!(response.headers().get(exchange.stripped), None);
    }
    assert_eq!(
        response.into_body().collect().await?.to_bytes(),
        exchange.reply_body
    );
    Ok(())
}

fn run(name: &str, exchanges: &[Exchange], setting: Setting) {
    let (here, there) = (exchanges.to_vec(), exchanges.to_vec());
    both(
        name,
        async move |os, listener, world: World| {
            if !setting.has_proxy {
                return origin(os, listener, setting, here).await;
            }
            let (behind, number) = (
                os.listen(([127, 0, 0, 1], world.second_port()).into())
                    .await?,
                here.len(),
            );
            let addr = behind.local_addr()?;
            os.spawn("origin", async move |os: &mut Os| {
                origin(os, behind, setting, here).await
            })
            .await?;
            proxy(os, listener, addr, setting.version, number).await
        },
        async move |os, addr, _| {
            os.run_future(async |foreign: &Foreign| {
                let foreign = *foreign;
                let each = there
                    .into_iter()
                    .map(|exchange| ask(foreign, addr, setting, exchange));
                if setting.is_parallel {
                    return join_all(each).await.into_iter().collect();
                }
                for one in each {
                    one.await?;
                }
                Ok(())
            })
            .await
        },
    );
}

#[test]
fn a_client_and_a_server_directly_and_by_a_proxy() {
    let all = cases();
    assert_eq!(all.len(), 13);
    for (name, exchanges) in all {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            for has_proxy in [false, true] {
                run(
                    name,
                    &exchanges,
                    Setting {
                        version,
                        has_proxy,
                        is_parallel: false,
                    },
                );
            }
        }
    }
}

#[test]
fn ten_connections_of_http2_at_once() {
    let body: &str = "x".repeat(8192).leak();
    let one = Exchange {
        sent_body: body,
        reply_body: body,
        ..root()
    };
    for has_proxy in [false, true] {
        let setting = Setting {
            version: Version::HTTP_2,
            has_proxy,
            is_parallel: true,
        };
        run("http2_parallel_10", &vec![one.clone(); 10], setting);
    }
}
