//! A small test for each crate that the page "Bring your own crates" says to work as a guest.

use std::{cell::RefCell, error::Error, io, rc::Rc, sync::Arc, time::Duration};

use futures::{SinkExt, StreamExt, stream::FuturesUnordered};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio_util::{
    codec::{Framed, LinesCodec},
    sync::CancellationToken,
};
use tower::{Service, ServiceExt};
use trapline::{Event, Exit, Foreign, ForeignStream, Kernel, Os, SimNet, SimWorld, Tracer};

type Done = Result<(), Box<dyn Error>>;

#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<String>>>);

impl Tracer for Log {
    fn event(&mut self, event: &Event<'_>) {
        self.0.borrow_mut().push(event.to_string());
    }
}

/// Has two guests talk over a connection of the simulated network. The same seed must give the same
/// log.
fn talk<S, C>(server: S, client: C)
where
    S: AsyncFnOnce(Foreign, ForeignStream) -> Done + Clone + 'static,
    C: AsyncFnOnce(Foreign, ForeignStream) -> Done + Clone + 'static,
{
    let run = || {
        let (server, client, log) = (server.clone(), client.clone(), Log::default());
        let net = SimNet::new().latency(Duration::from_millis(1)..=Duration::from_millis(9));
        let world = SimWorld::new(7).net(&net);
        let kernel = Kernel::builder().world(world).tracer(log.clone());
        let mut kernel = kernel.build().unwrap();
        let serve = async |os: &mut Os| {
            let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
            let (stream, _) = listener.accept(os).await?;
            os.run_future(async move |foreign: &Foreign| {
                server(*foreign, foreign.stream(stream)).await
            })
            .await
        };
        kernel.spawn_on("server", "server", serve).unwrap();
        let call = async |os: &mut Os| {
            os.sleep(Duration::from_millis(10)).await;
            let stream = os.connect(("server", 80)).await?;
            os.run_future(async move |foreign: &Foreign| {
                client(*foreign, foreign.stream(stream)).await
            })
            .await
        };
        kernel.spawn_on("client", "client", call).unwrap();
        kernel.run().unwrap().check().unwrap();
        kernel.audit_all();
        log.0.take()
    };
    assert_eq!(run(), run());
}

/// Runs a guest alone, and returns how its task ends.
fn alone(guest: impl AsyncFnOnce(Foreign) -> Done + 'static) -> Exit {
    let mut kernel = Kernel::simulated(7);
    let guest = async move |os: &mut Os| {
        os.run_future(async move |foreign: &Foreign| guest(*foreign).await)
            .await
    };
    let tid = kernel.spawn("guest", guest).unwrap();
    kernel.run().unwrap().exits()[&tid].clone()
}

#[test]
fn tokio_util_frames_lines() {
    talk(
        async |_, stream| {
            let mut lines = Framed::new(stream, LinesCodec::new());
            while let Some(line) = lines.next().await {
                lines.send(line?.to_uppercase()).await?;
            }
            Ok(())
        },
        async |_, stream| {
            let mut lines = Framed::new(stream, LinesCodec::new());
            for _ in 0..3 {
                lines.send("hello").await?;
                assert_eq!(lines.next().await.unwrap()?, "HELLO");
            }
            Ok(())
        },
    );
}

#[test]
fn tokio_util_cancels() {
    let exit = alone(async |foreign| {
        let token = CancellationToken::new();
        let (child, at) = (token.child_token(), foreign.now());
        let cancel = async {
            foreign.sleep(Duration::from_secs(3)).await;
            token.cancel();
        };
        futures::join!(child.cancelled(), cancel);
        assert_eq!(foreign.now() - at, Duration::from_secs(3));
        Ok(())
    });
    assert_eq!(exit, Exit::Done);
}

#[test]
fn tokio_tungstenite_speaks_websocket() {
    use tokio_tungstenite::{accept_async, client_async};
    talk(
        async |_, stream| {
            let mut socket = accept_async(stream).await?;
            while let Some(message) = socket.next().await {
                let message = message?;
                if message.is_close() {
                    break;
                }
                socket.send(message).await?;
            }
            Ok(())
        },
        async |_, stream| {
            let (mut socket, _) = client_async("ws://server/", stream).await?;
            for size in [1, 200, 70_000] {
                socket.send("x".repeat(size).into()).await?;
                assert_eq!(socket.next().await.unwrap()?.len(), size);
            }
            Ok(socket.close(None).await?)
        },
    );
}

#[test]
fn async_tungstenite_speaks_websocket() {
    use async_tungstenite::{accept_async, client_async};
    talk(
        async |_, stream| {
            let mut socket = accept_async(stream).await?;
            let message = socket.next().await.unwrap()?;
            Ok(socket.send(message).await?)
        },
        async |_, stream| {
            let (mut socket, _) = client_async("ws://server/", stream).await?;
            socket.send("hello".into()).await?;
            assert_eq!(socket.next().await.unwrap()?.into_text()?, "hello");
            Ok(())
        },
    );
}

#[test]
fn h2_speaks_http2() {
    use bytes::Bytes;
    use hyper::{Request, Response};
    talk(
        async |_, stream| {
            let mut connection = h2::server::handshake(stream).await?;
            while let Some(request) = connection.accept().await {
                let (request, mut respond) = request?;
                let mut body = respond.send_response(Response::new(()), false)?;
                body.send_data(Bytes::from(request.uri().path().to_string()), true)?;
            }
            Ok(())
        },
        async |_, stream| {
            let (mut sender, connection) = h2::client::handshake(stream).await?;
            let calls = async {
                for path in ["/a", "/b"] {
                    let request = Request::get(format!("http://server{path}")).body(())?;
                    let (answer, _) = sender.send_request(request, true)?;
                    let mut body = answer.await?.into_body();
                    assert_eq!(body.data().await.unwrap()?, path);
                }
                drop(sender);
                Done::Ok(())
            };
            let (calls, connection) = futures::join!(calls, connection);
            connection?;
            calls
        },
    );
}

/// A connection that may be sent to other threads, for crates that ask for that: a pipe in memory, whose
/// other end the second future copies to the connection.
fn sendable(mut stream: ForeignStream) -> (tokio::io::DuplexStream, impl Future<Output = ()>) {
    let (near, mut far) = tokio::io::duplex(64 * 1024);
    let copy = async move {
        // The crate is told by its end of the pipe.
        let _ = tokio::io::copy_bidirectional(&mut far, &mut stream).await;
    };
    (near, copy)
}

/// Answers each command of redis.
async fn redis_server(_: Foreign, stream: ForeignStream) -> Done {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut lines = BufReader::new(reader).lines();
    while let Some(head) = lines.next_line().await? {
        let mut words = Vec::new();
        for _ in 0..head.trim_start_matches('*').parse::<usize>()? {
            lines.next_line().await?;
            words.push(lines.next_line().await?.unwrap_or_default());
        }
        let answer = match words[0].as_str() {
            "GET" => "$5\r\nhello\r\n",
            _ => "+OK\r\n",
        };
        writer.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

#[test]
fn redis_by_a_pipe() {
    talk(redis_server, async |_, stream| {
        use redis::{AsyncCommands, AsyncConnectionConfig, aio::MultiplexedConnection};
        let (pipe, copy) = sendable(stream);
        let calls = async {
            // Its timeouts are those of tokio's runtime.
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let info = redis::RedisConnectionInfo::default();
            let opened = MultiplexedConnection::new_with_config(&info, pipe, config);
            let (mut connection, driver) = opened.await?;
            let calls = async move {
                let value: String = connection.get("key").await?;
                assert_eq!(value, "hello");
                Done::Ok(())
            };
            let (calls, ()) = futures::join!(calls, driver);
            calls
        };
        let (calls, ()) = futures::join!(calls, copy);
        calls
    });
}

/// Answers each query of Postgres by one row.
async fn postgres_server(_: Foreign, mut stream: ForeignStream) -> Done {
    let mut body = vec![0; stream.read_i32().await? as usize - 4];
    stream.read_exact(&mut body).await?;
    stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").await?;
    while let Ok(kind) = stream.read_u8().await {
        body.resize(stream.read_i32().await? as usize - 4, 0);
        stream.read_exact(&mut body).await?;
        if kind == b'Q' {
            let mut answer = Vec::new();
            let head = b"\0\x01n\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";
            let row = b"\0\x01\0\0\0\x0242";
            for (kind, body) in [
                (b'T', &head[..]),
                (b'D', row),
                (b'C', b"SELECT 1\0"),
                (b'Z', b"I"),
            ] {
                answer.push(kind);
                answer.extend((body.len() as i32 + 4).to_be_bytes());
                answer.extend(body);
            }
            stream.write_all(&answer).await?;
        }
    }
    Ok(())
}

#[test]
fn tokio_postgres_asks() {
    use tokio_postgres::{Config, NoTls, SimpleQueryMessage};
    talk(postgres_server, async |_, stream| {
        let mut config = Config::new();
        let (client, connection) = config.user("me").connect_raw(stream, NoTls).await?;
        let query = async move {
            let rows = client.simple_query("SELECT 42 AS n").await?;
            let row = rows.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            assert_eq!(row, Some("42"));
            Done::Ok(())
        };
        let (query, connection) = futures::join!(query, connection);
        connection?;
        query
    });
}

#[test]
fn tower_limits_and_sheds() {
    let exit = alone(async |foreign| {
        let work = tower::service_fn(move |n: u64| async move {
            foreign.sleep(Duration::from_secs(n)).await;
            Ok::<_, io::Error>(n)
        });
        let limited = tower::limit::ConcurrencyLimit::new(work, 1);
        let at = foreign.now();
        let calls = [1, 2].map(|n| limited.clone().oneshot(n));
        assert_eq!(futures::future::try_join_all(calls).await?, [1, 2]);
        assert_eq!(foreign.now() - at, Duration::from_secs(3));

        let mut shedding = tower::load_shed::LoadShed::new(limited);
        let first = shedding.ready().await.unwrap().call(1);
        let second = shedding.clone().oneshot(1);
        let (first, second) = futures::join!(first, second);
        assert!(first.is_ok() && second.is_err());
        Ok(())
    });
    assert_eq!(exit, Exit::Done);
}

#[test]
fn tower_buffers_with_a_worker_of_its_own() {
    let exit = alone(async |foreign| {
        let work = tower::service_fn(|n: u32| futures::future::ready(Ok::<_, io::Error>(n + 1)));
        let (buffer, worker) = tower::buffer::Buffer::pair(work, 4);
        foreign.spawn("worker", worker);
        let value = buffer
            .oneshot(41)
            .await
            .map_err(|error| error.to_string())?;
        assert_eq!(value, 42);
        Ok(())
    });
    assert_eq!(exit, Exit::Done);
}

#[test]
fn the_timeout_of_tower_needs_tokio() {
    let exit = alone(async |_| {
        let work = tower::service_fn(async |()| Ok::<_, io::Error>(()));
        tower::timeout::Timeout::new(work, Duration::from_secs(1))
            .oneshot(())
            .await
            .map_err(|error| error.to_string())?;
        Ok(())
    });
    assert!(matches!(exit, Exit::Faulted(why) if why.contains("no reactor running")));
}

#[test]
fn async_channel_between_tasks() {
    let mut kernel = Kernel::simulated(7);
    let (sender, receiver) = async_channel::bounded(2);
    kernel
        .spawn("sender", async move |os: &mut Os| {
            os.run_future(async |_: &Foreign| {
                for n in 0..10 {
                    sender.send(n).await.unwrap();
                }
            })
            .await;
        })
        .unwrap();
    kernel
        .spawn("receiver", async move |os: &mut Os| {
            let all: Vec<_> = os
                .run_future(async |_: &Foreign| receiver.collect().await)
                .await;
            assert_eq!(all, Vec::from_iter(0..10));
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
}

#[test]
fn async_lock_between_tasks() {
    let mut kernel = Kernel::simulated(7);
    let (lock, barrier) = (
        Arc::new(async_lock::Mutex::new(0)),
        Arc::new(async_lock::Barrier::new(3)),
    );
    for _ in 0..3 {
        let (lock, barrier) = (Arc::clone(&lock), Arc::clone(&barrier));
        kernel
            .spawn("adder", async move |os: &mut Os| {
                os.run_future(async |foreign: &Foreign| {
                    for _ in 0..10 {
                        let mut value = lock.lock().await;
                        let seen = *value;
                        foreign.sleep(Duration::from_millis(1)).await;
                        *value = seen + 1;
                    }
                    barrier.wait().await;
                    assert_eq!(*lock.lock().await, 30);
                })
                .await;
            })
            .unwrap();
    }
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
}

#[test]
fn combinators_of_futures() {
    let exit = alone(async |foreign| {
        let sleeps = [3, 1, 2].map(async |n| {
            foreign.sleep(Duration::from_secs(n)).await;
            n
        });
        let order: Vec<u64> = FuturesUnordered::from_iter(sleeps).collect().await;
        assert_eq!(order, [1, 2, 3]);
        let (reader, mut writer) = tokio::io::duplex(8);
        let mut reader = BufReader::new(reader).lines();
        writer.write_all(b"hello\n").await?;
        let first = tokio::select! {
            // Without this word, tokio draws the order by a generator of its own.
            biased;
            line = reader.next_line() => line?,
            () = foreign.sleep(Duration::from_secs(1)) => None,
        };
        assert_eq!(first.as_deref(), Some("hello"));
        Ok(())
    });
    assert_eq!(exit, Exit::Done);
}

#[test]
fn the_split_of_futures() {
    talk(
        async |_, stream| {
            let (reader, mut writer) = futures::AsyncReadExt::split(stream);
            futures::io::copy(reader, &mut writer).await?;
            Ok(futures::AsyncWriteExt::close(&mut writer).await?)
        },
        async |_, stream| {
            let (mut reader, mut writer) = futures::AsyncReadExt::split(stream);
            futures::AsyncWriteExt::write_all(&mut writer, b"hello").await?;
            futures::AsyncWriteExt::close(&mut writer).await?;
            let mut all = String::new();
            futures::AsyncReadExt::read_to_string(&mut reader, &mut all).await?;
            assert_eq!(all, "hello");
            Ok(())
        },
    );
}
