use bytes::Bytes;
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, stream::FuturesUnordered};
use futures_rustls::{TlsAcceptor, TlsConnector, rustls};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use std::{
    cell::RefCell, convert::Infallible, io, net::SocketAddr, rc::Rc, sync::Arc, time::Duration,
};
use trapline::{Elapsed, Exit, Kernel, Os, SimNet, SimWorld, TcpListener};

/// hyper over any stream of futures: TLS.
pub struct Hyper<S>(pub S);
impl<S: futures::AsyncRead + Unpin> hyper::rt::Read for Hyper<S> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        mut buf: hyper::rt::ReadBufCursor<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let mut piece = [0; 8192];
        let room = buf.remaining().min(piece.len());
        std::pin::Pin::new(&mut self.0)
            .poll_read(cx, &mut piece[..room])
            .map_ok(|n| buf.put_slice(&piece[..n]))
    }
}
impl<S: futures::AsyncWrite + Unpin> hyper::rt::Write for Hyper<S> {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.0).poll_write(cx, buf)
    }
    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_close(cx)
    }
}

#[derive(Clone, Default)]
struct Log(Rc<RefCell<String>>);
impl trapline::Tracer for Log {
    fn event(&mut self, e: &trapline::Event<'_>) {
        use std::fmt::Write;
        let _ = writeln!(self.0.borrow_mut(), "{e}");
    }
}

fn simulated(seed: u64, log: &Log) -> Kernel {
    let net = SimNet::new().latency(Duration::from_millis(1)..=Duration::from_millis(9));
    Kernel::builder()
        .world(SimWorld::new(seed).net(&net))
        .tracer(log.clone())
        .build()
        .unwrap()
}

async fn hyper_server(os: &mut Os, listener: TcpListener, clients: usize) -> io::Result<()> {
    for _ in 0..clients {
        let (stream, _) = listener.accept(os).await?;
        os.spawn_detached("connection", async move |os: &mut Os| {
            os.run_future(async move |foreign| {
                let io = foreign.stream(stream);
                let service = service_fn(async |request: Request<Incoming>| {
                    let path = request.uri().path().to_string();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    // the way back into the kernel
                    let tid = foreign
                        .call(async |os: &mut Os| {
                            os.sleep(Duration::from_millis(5)).await;
                            os.get_tid().await
                        })
                        .await;
                    let _ = tid;
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(format!(
                        "{path} {}",
                        body.len()
                    )))))
                });
                hyper::server::conn::http1::Builder::new()
                    .auto_date_header(false)
                    .serve_connection(io, service)
                    .await
            })
            .await
        })
        .await
        .unwrap();
    }
    Ok(())
}

async fn hyper_client(
    os: &mut Os,
    addr: SocketAddr,
    n: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let stream = os.connect(addr).await?;
    os.run_future(async move |foreign| {
        let io = foreign.stream(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        let requests = async {
            for k in 0..3 {
                let body = vec![b'x'; 10_000 * (k + n)];
                let request = Request::post(format!("/{n}/{k}"))
                    .header("host", "x")
                    .body(Full::new(Bytes::from(body)))?;
                let response = sender.send_request(request).await?;
                let text = response.into_body().collect().await?.to_bytes();
                assert_eq!(text, format!("/{n}/{k} {}", 10_000 * (k + n)));
            }
            drop(sender);
            Ok::<(), Box<dyn std::error::Error>>(())
        };
        let (done, over) = futures::join!(requests, connection);
        over?;
        done
    })
    .await
}

/// The server listens before it spawns its clients, which so need not guess a port.
async fn serve_five(os: &mut Os, host: Option<&str>) -> io::Result<()> {
    let (listener, addr) = listen(os, host).await?;
    for n in 1..=5 {
        let client = async move |os: &mut Os| hyper_client(os, addr, n).await;
        match host {
            Some(_) => os.spawn_on("laptop", format!("client {n}"), client).await?,
            None => os.spawn(format!("client {n}"), client).await?,
        };
    }
    hyper_server(os, listener, 5).await
}

async fn listen(os: &mut Os, host: Option<&str>) -> io::Result<(TcpListener, SocketAddr)> {
    let Some(host) = host else {
        let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
        let addr = listener.local_addr()?;
        return Ok((listener, addr));
    };
    let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
    let ip = os.resolve(host).await?[0];
    Ok((listener, (ip, 80).into()))
}

#[test]
fn hyper_in_the_simulated_network_is_deterministic() {
    let run = |seed| {
        let log = Log::default();
        let mut kernel = simulated(seed, &log);
        kernel
            .spawn_on("server", "server", async |os: &mut Os| {
                serve_five(os, Some("server")).await
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
        kernel.audit_all();
        log.0.take()
    };
    let one = run(7);
    assert!(one == run(7));
    assert!(one != run(8));
}

#[test]
fn hyper_in_the_real_world() {
    let mut kernel = Kernel::real().unwrap();
    kernel
        .spawn("server", async |os: &mut Os| serve_five(os, None).await)
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

thread_local! { static KEY: rcgen::KeyPair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap(); }
/// Configurations have caches of sessions: one for each run.
fn tls() -> (TlsAcceptor, TlsConnector) {
    KEY.with(tls_of)
}
fn tls_of(key: &rcgen::KeyPair) -> (TlsAcceptor, TlsConnector) {
    let cert = rcgen::CertificateParams::new(vec!["localhost".into()])
        .unwrap()
        .self_signed(key)
        .unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let server = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (
        TlsAcceptor::from(Arc::new(server)),
        TlsConnector::from(Arc::new(client)),
    )
}

async fn serve_tls(
    os: &mut Os,
    (acceptor, connector): (TlsAcceptor, TlsConnector),
) -> io::Result<()> {
    let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
    let addr = listener.local_addr()?;
    for n in 1..=3 {
        let connector = connector.clone();
        os.spawn(format!("client {n}"), async move |os: &mut Os| {
            tls_client(os, addr, connector, n).await
        })
        .await?;
    }
    for _ in 0..3 {
        let (stream, _) = listener.accept(os).await?;
        let acceptor = acceptor.clone();
        os.spawn_detached("connection", async move |os: &mut Os| {
            os.run_future(async move |foreign| {
                let stream = acceptor.accept(foreign.stream(stream)).await?;
                let service = service_fn(async |request: Request<Incoming>| {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    Ok::<_, Infallible>(Response::new(Full::new(body)))
                });
                hyper::server::conn::http1::Builder::new()
                    .auto_date_header(false)
                    .serve_connection(Hyper(stream), service)
                    .await
                    .map_err(|e| io::Error::other(format!("{e:?}")))
            })
            .await
        })
        .await?;
    }
    Ok(())
}

async fn tls_client(
    os: &mut Os,
    addr: SocketAddr,
    connector: TlsConnector,
    n: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let stream = os.connect(addr).await?;
    os.run_future(async move |foreign| {
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let stream = connector.connect(name, foreign.stream(stream)).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(Hyper(stream)).await?;
        let requests = async {
            let request = Request::post("/")
                .header("host", "x")
                .body(Full::new(Bytes::from(vec![b'y'; 40_000 * n])))
                .unwrap();
            let response = sender.send_request(request).await?;
            assert_eq!(
                response.into_body().collect().await?.to_bytes().len(),
                40_000 * n
            );
            drop(sender);
            Ok::<(), hyper::Error>(())
        };
        let (done, over) = futures::join!(requests, connection);
        over?;
        done?;
        Ok::<(), Box<dyn std::error::Error>>(())
    })
    .await
}

#[test]
fn https_in_the_simulated_network_is_deterministic() {
    let run = |seed| {
        let log = Log::default();
        let mut kernel = simulated(seed, &log);
        let tls = tls();
        kernel
            .spawn("server", async move |os: &mut Os| serve_tls(os, tls).await)
            .unwrap();
        kernel.run().unwrap().check().unwrap();
        log.0.take()
    };
    let one = run(7);
    let two = run(7);
    assert!(one == two, "the logs differ");
}

#[test]
fn https_in_the_real_world() {
    let mut kernel = Kernel::real().unwrap();
    let tls = tls();
    kernel
        .spawn("server", async move |os: &mut Os| serve_tls(os, tls).await)
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn tokio_sync_between_tasks() {
    let mut kernel = Kernel::simulated(1);
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<u32>(2);
    let lock = Arc::new(tokio::sync::Mutex::new(0));
    for n in 0..3 {
        let (sender, lock) = (sender.clone(), Arc::clone(&lock));
        kernel
            .spawn("sender", async move |os: &mut Os| {
                for k in 0..10 {
                    os.run_future(async |foreign| {
                        let mut guard = lock.lock().await;
                        foreign
                            .sleep_until(foreign.now() + Duration::from_millis(3))
                            .await;
                        *guard += 1;
                        sender.send(n * 100 + k).await.unwrap();
                    })
                    .await;
                }
            })
            .unwrap();
    }
    drop(sender);
    kernel
        .spawn("receiver", async move |os: &mut Os| {
            let mut all = Vec::new();
            os.run_future(async |_| {
                while let Some(n) = receiver.recv().await {
                    all.push(n)
                }
            })
            .await;
            assert_eq!(all.len(), 30);
            assert_eq!(*lock.try_lock().unwrap(), 30);
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
}

#[test]
fn wakes_of_other_threads() {
    let mut kernel = Kernel::real().unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                sender.send(7).unwrap();
            });
            let n = os
                .timeout(Duration::from_secs(5), async |os| {
                    os.run_future(async |_| receiver.await.unwrap()).await
                })
                .await;
            assert_eq!(n, Ok(7));
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn combinators_timers_kill_and_timeout() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let order = os
                .run_future(async |foreign| {
                    let at = foreign.now();
                    let mut all: FuturesUnordered<_> = [3u64, 1, 2]
                        .into_iter()
                        .map(|n| {
                            let f = *foreign;
                            async move {
                                f.sleep_until(at + Duration::from_secs(n)).await;
                                n
                            }
                        })
                        .collect();
                    let mut order = Vec::new();
                    while let Some(n) = all.next().await {
                        order.push(n);
                    }
                    order
                })
                .await;
            assert_eq!(order, [1, 2, 3]);
            struct Bell(Rc<RefCell<u32>>);
            impl Drop for Bell {
                fn drop(&mut self) {
                    *self.0.borrow_mut() += 1;
                }
            }
            let rung = Rc::new(RefCell::new(0));
            let bell = Bell(Rc::clone(&rung));
            let cut = os
                .timeout(Duration::from_secs(1), async |os| {
                    os.run_future(async move |_| {
                        let _bell = bell;
                        futures::future::pending::<()>().await
                    })
                    .await
                })
                .await;
            assert_eq!((cut, *rung.borrow()), (Err(Elapsed), 1));
            let bell = Bell(Rc::clone(&rung));
            let child = os
                .spawn("victim", async |os: &mut Os| {
                    os.run_future(async move |_| {
                        let _bell = bell;
                        futures::future::pending::<()>().await
                    })
                    .await
                })
                .await
                .unwrap();
            os.yield_now().await;
            os.kill(child).await;
            assert_eq!(*rung.borrow(), 2);
            // a panic in the library ends its own task only
            let child = os
                .spawn("faulty", async |os: &mut Os| {
                    os.run_future(async move |_| panic!("in the library")).await
                })
                .await
                .unwrap();
            assert!(matches!(os.wait(child).await, Ok(Exit::Faulted(_))));
        })
        .unwrap();
    kernel.run().unwrap();
    kernel.audit_all();
}

#[test]
fn streams_of_futures_echo() {
    let mut kernel = Kernel::simulated(3);
    kernel
        .spawn("server", async |os: &mut Os| {
            let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
            let (stream, _) = listener.accept(os).await?;
            os.run_future(async |foreign| {
                let (reader, mut writer) = AsyncReadExt::split(foreign.stream(stream));
                futures::io::copy(reader, &mut writer).await?;
                writer.close().await
            })
            .await
        })
        .unwrap();
    kernel
        .spawn("client", async |os: &mut Os| {
            let stream = os.connect(("127.0.0.1", 80)).await?;
            os.run_future(async |foreign| {
                let (mut reader, mut writer) = AsyncReadExt::split(foreign.stream(stream));
                let data: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
                let sent = data.clone();
                let write = async move {
                    writer.write_all(&sent).await?;
                    writer.close().await
                };
                let read = async {
                    let mut all = Vec::new();
                    reader.read_to_end(&mut all).await?;
                    io::Result::Ok(all)
                };
                let (write, read) = futures::join!(write, read);
                write?;
                assert_eq!(read?, data);
                io::Result::Ok(())
            })
            .await
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn a_future_without_a_waker_is_a_deadlock() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            os.run_future(async |_| futures::future::pending::<()>().await)
                .await
        })
        .unwrap();
    let error = kernel.run().unwrap_err().to_string();
    println!("{error}");
    assert!(
        error.contains("deadlock") || error.contains("main"),
        "{error}"
    );
}

#[test]
fn http2_and_axum_in_the_simulated_network() {
    let run = || {
        let log = Log::default();
        let mut kernel = simulated(5, &log);
        kernel
            .spawn_on("server", "server", async |os: &mut Os| {
                let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
                let (stream, _) = listener.accept(os).await?;
                os.run_future(async move |foreign| {
                    let app =
                        axum::Router::new()
                            .route(
                                "/add/{a}/{b}",
                                axum::routing::get(
                                    |axum::extract::Path((a, b)): axum::extract::Path<(
                                        u32,
                                        u32,
                                    )>| async move {
                                        (a + b).to_string()
                                    },
                                ),
                            )
                            .with_state(());
                    let service = service_fn(move |request: Request<Incoming>| {
                        let app = app.clone();
                        async move { tower::ServiceExt::oneshot(app, request).await }
                    });
                    hyper::server::conn::http2::Builder::new(*foreign)
                        .serve_connection(foreign.stream(stream), service)
                        .await
                        .map_err(io::Error::other)
                })
                .await
            })
            .unwrap();
        kernel
            .spawn_on("laptop", "client", async |os: &mut Os| {
                os.sleep(Duration::from_millis(50)).await;
                let stream = os.connect(("server", 80)).await?;
                os.run_future(async |foreign| {
                    let (sender, connection) =
                        hyper::client::conn::http2::handshake::<_, _, Full<Bytes>>(
                            *foreign,
                            foreign.stream(stream),
                        )
                        .await?;
                    let requests = async {
                        let all = (0..20u32).map(|n| {
                            let mut sender = sender.clone();
                            async move {
                                let request = Request::get(format!("http://x/add/{n}/1"))
                                    .body(Full::new(Bytes::new()))
                                    .unwrap();
                                let response = sender.send_request(request).await.unwrap();
                                assert_eq!(
                                    response.into_body().collect().await.unwrap().to_bytes(),
                                    (n + 1).to_string()
                                );
                            }
                        });
                        futures::future::join_all(all).await;
                        drop(sender);
                    };
                    let ((), over) = futures::join!(requests, connection);
                    over?;
                    Ok::<(), Box<dyn std::error::Error>>(())
                })
                .await
            })
            .unwrap();
        kernel.run().unwrap().check().unwrap();
        kernel.audit_all();
        log.0.take()
    };
    let one = run();
    assert!(one == run());
}

#[test]
fn tokio_needs_its_runtime() {
    let mut kernel = Kernel::real().unwrap();
    kernel
        .spawn("main", async |os: &mut Os| {
            os.run_future(async |_| tokio::time::sleep(Duration::from_millis(1)).await)
                .await;
        })
        .unwrap();
    let report = kernel.run().unwrap();
    println!("{:?}", report.exits());
    assert!(
        matches!(&report.exits()[&1.into()], Exit::Faulted(why) if why.contains("no reactor running"))
    );
}

#[test]
fn a_tokio_runtime_beside_the_kernel() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let mut kernel = Kernel::real().unwrap();
    kernel
        .spawn("tokio", async |os: &mut Os| {
            os.run_future_with_threads(async |_| {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
                let addr = listener.local_addr()?;
                let echo = tokio::spawn(async move {
                    use tokio::io::{AsyncReadExt, AsyncWriteExt};
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut buf = [0; 64];
                    loop {
                        let n = stream.read(&mut buf).await.unwrap();
                        if n == 0 {
                            return;
                        }
                        stream.write_all(&buf[..n]).await.unwrap();
                    }
                });
                use tokio::io::{AsyncReadExt, AsyncWriteExt};
                let mut stream = tokio::net::TcpStream::connect(addr).await?;
                for n in 0..50u8 {
                    stream.write_all(&[n]).await?;
                    let mut one = [0];
                    stream.read_exact(&mut one).await?;
                    assert_eq!(one, [n]);
                    if n % 10 == 0 {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                }
                drop(stream);
                echo.await.unwrap();
                io::Result::Ok(())
            })
            .await
        })
        .unwrap();
    kernel
        .spawn("native", async |os: &mut Os| {
            for _ in 0..20 {
                os.sleep(Duration::from_millis(1)).await;
            }
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
}

#[test]
fn the_search_sees_what_tokio_shares() {
    // two tasks read and write one cell of tokio::sync: a lost update needs an interleaving
    let all = trapline::check(|kernel: &mut Kernel| {
        let cell = Arc::new(tokio::sync::RwLock::new(0));
        for name in ["a", "b"] {
            let cell = Arc::clone(&cell);
            kernel.spawn(name, async move |os: &mut Os| {
                let seen = os.run_future(async |_| *cell.read().await).await;
                os.yield_now().await;
                os.run_future(async |_| *cell.write().await = seen + 1)
                    .await;
            })?;
        }
        kernel.run()?.check()?;
        kernel.outcome(cell.try_read().unwrap().to_string());
        Ok(())
    })
    .exhaustive()
    .explore();
    println!("{all:?}");
    assert!(all.complete);
    assert_eq!(all.outcomes.into_iter().collect::<Vec<_>>(), ["1", "2"]);
}
