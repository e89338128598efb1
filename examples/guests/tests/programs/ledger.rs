//! The gRPC pair.

use std::{cell::Cell, fs, net::SocketAddr, path::Path, rc::Rc, time::Duration};

use futures::{StreamExt, stream};
use prost::Message;
use tonic::Code;
use trapline::{Error, Kernel, Os, SimNet, SimWorld, check};
use trapline_cli::Program;
use trapline_guests::ledger::{Balance, Client, Deposit, Ledger};

use crate::support::*;

/// Writes the body of a call, as gRPC frames it.
pub fn body_file(directory: &Path, account: &str, amount: u64) -> String {
    let message = Deposit {
        account: account.into(),
        amount,
    }
    .encode_to_vec();
    let head = [&[0][..], &(message.len() as u32).to_be_bytes()].concat();
    let path = directory.join(format!("{account}-{amount}"));
    fs::write(&path, [head, message].concat()).unwrap();
    path.to_str().unwrap().into()
}

/// The words of curl for a call. It writes what it gets to a file beside the body.
pub fn call(addr: SocketAddr, method: &str, body: &str) -> Vec<String> {
    let url = format!("http://{addr}/ledger.Ledger/{method}");
    let (data, output) = (format!("@{body}"), format!("{body}.answer"));
    let words = [
        "--http2-prior-knowledge",
        "-i",
        "-H",
        "content-type: application/grpc",
        "-H",
        "te: trailers",
        "--data-binary",
        &data,
        "-o",
        &output,
        &url,
    ];
    words.map(String::from).to_vec()
}

/// Makes a call by curl. Returns the head and the trailer as text, and the messages.
fn by_curl(addr: SocketAddr, method: &str, body: &str) -> (String, Vec<Balance>) {
    curl(call(addr, method, body));
    answer(body)
}

/// Reads the answer to the call with this body.
fn answer(body: &str) -> (String, Vec<Balance>) {
    let answer = fs::read(format!("{body}.answer")).unwrap();
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap()
        + 4;
    let (head, mut rest) = answer.split_at(end);
    let mut balances = Vec::new();
    while let [0, a, b, c, d, message @ ..] = rest {
        let len = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        balances.push(Balance::decode(&message[..len]).unwrap());
        rest = &message[len..];
    }
    (
        String::from_utf8_lossy(&[head, rest].concat()).into(),
        balances,
    )
}

fn totals(balances: &[Balance]) -> Vec<u64> {
    balances.iter().map(|balance| balance.total).collect()
}

#[test]
fn curl_calls_the_ledger() {
    let directory = directory("ledger");
    let server = Served::boot(["ledger", "--addr", "127.0.0.1:0"]);
    let body = body_file(&directory, "ann", 5);
    for total in [5, 10] {
        let (head, balances) = by_curl(server.addr, "Deposit", &body);
        assert!(
            head.starts_with("HTTP/2 200") && head.contains("grpc-status: 0"),
            "{head}"
        );
        assert_eq!(totals(&balances), [total]);
    }
    let (head, balances) = by_curl(server.addr, "Watch", &body_file(&directory, "ann", 1));
    assert!(head.contains("grpc-status: 0"), "{head}");
    assert_eq!(totals(&balances), [10]);
    let (head, balances) = by_curl(server.addr, "Deposit", &body_file(&directory, "", 1));
    assert!(
        head.contains("grpc-status: 3") && balances.is_empty(),
        "{head}"
    );
    // Without a body: the server resets a stream whose body it does not read (RFC 9113, 8.1), and for curl
    // that is an error if it comes before the body is sent.
    let words = call(server.addr, "Withdraw", &body).into_iter();
    curl(words.filter(|word| word != "--data-binary" && !word.starts_with('@')));
    let (head, _) = answer(&body);
    assert!(head.contains("grpc-status: 12"), "{head}");
    // The other program of the pair, in a process of its own.
    let origin = format!("http://{}", server.addr);
    let asks = [
        "boot",
        "-q",
        "ledger-ask",
        "--server",
        &origin,
        "ann",
        "1",
        "2",
        "3",
    ];
    let output = guests().args(asks).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "11\n13\n16\n",
        "{output:?}"
    );
    server.signal("TERM");
    let (status, text) = server.end();
    assert_eq!(
        (status.code(), &*text),
        (Some(0), "Drained; 0 connections were killed\n")
    );
}

#[test]
fn a_stream_without_an_end_is_killed_after_the_drain() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn_on("server", "ledger", async |os: &mut Os| {
            ledger(false).main(os).await
        })
        .unwrap();
    let client = async |os: &mut Os| {
        let watched = os.run_future(async |foreign| {
            let mut client = Client::new(foreign, "http://server".parse().unwrap());
            client.deposit("ann", 3).await?;
            let mut balances = client.watch("ann", 1_000).await?;
            let mut totals = Vec::new();
            while let Some(balance) = balances.message().await? {
                totals.push(balance.total);
            }
            Ok::<_, tonic::Status>(totals)
        });
        let watched = watched.await;
        let now = os.now().await;
        writeln!(os, "{now:?}: {}", watched.is_err());
    };
    kernel.spawn_on("laptop", "client", client).unwrap();
    kernel.signal_at(Duration::from_secs(10), trapline::Signal::Terminate);
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
    let told = "Listening at 0.0.0.0:80\nDrained; 1 connections were killed\n15.001s: true\n";
    assert_eq!(kernel.take_console(), told);
}

/// All kinds of calls, in a simulated network. Returns its log.
fn calls(seed: u64) -> String {
    let log = Log::default();
    let net = SimNet::new().latency(Duration::from_millis(1)..=Duration::from_millis(30));
    let world = SimWorld::new(seed).net(&net.fragment(true));
    let mut kernel = Kernel::builder()
        .world(world)
        .tracer(log.clone())
        .build()
        .unwrap();
    serve_on(&mut kernel, "server", ledger(false));
    let client = async |os: &mut Os| {
        os.run_future(async |foreign| {
            let mut client = Client::new(foreign, "http://server".parse().unwrap());
            let deposit = |account: &str, amount| Deposit {
                account: account.into(),
                amount,
            };
            let total = patiently(foreign, async || client.deposit("ann", 1).await).await;
            let watched = client.watch("ann", 4).await?;
            let deposits = stream::iter([2, 3].map(|amount| deposit("ann", amount)));
            let mut exchanged = client.exchange(deposits).await?;
            while let Some(balance) = exchanged.message().await? {
                assert!(balance.total > total);
            }
            let sum = client.sum(stream::iter([4, 5].map(|amount| deposit("ann", amount))));
            assert_eq!(sum.await?, total + 2 + 3 + 4 + total + 2 + 3 + 4 + 5);
            // A watcher that is slow misses some.
            let watched: Vec<_> = watched
                .map(|balance| balance.unwrap().total)
                .take(2)
                .collect()
                .await;
            assert_eq!(watched[0], total);
            let refused = client.deposit("", 1).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            Ok::<_, tonic::Status>(())
        })
        .await
    };
    let client = kernel.spawn_on("laptop", "client", client).unwrap();
    kernel.run_until(&[client]).unwrap().check().unwrap();
    kernel.audit_all();
    log.0.take()
}

fn ledger(racy: bool) -> Ledger {
    Ledger {
        addr: ([0, 0, 0, 0], 80).into(),
        drain: Duration::from_secs(5),
        racy,
    }
}

#[test]
fn each_kind_of_call_in_a_simulated_network() {
    for seed in 0..20 {
        assert!(calls(seed) == calls(seed), "seed {seed} has two logs");
    }
}

/// Clients deposit while links are cut and connections reset. No deposit that was answered is lost, and none
/// is made that was not asked for.
pub(super) fn chaos(seed: u64) -> String {
    let log = Log::default();
    let net = SimNet::new().fragment(true);
    let world = SimWorld::new(seed).net(&net);
    let mut kernel = Kernel::builder()
        .world(world)
        .tracer(log.clone())
        .build()
        .unwrap();
    // It has no disk, so nothing of it survives a crash. Without a boot the host has none.
    let server = async |os: &mut Os| ledger(false).main(os).await;
    kernel.spawn_on("server", "ledger", server).unwrap();
    net.chaos(3);
    let (asked, answered) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let clients: Vec<_> = (0..3)
        .map(|n| {
            let (asked, answered) = (Rc::clone(&asked), Rc::clone(&answered));
            let client = async move |os: &mut Os| {
                os.run_future(async |foreign| {
                    let mut client = Client::new(foreign, "http://server".parse().unwrap());
                    for _ in 0..12 {
                        patiently(foreign, async || {
                            asked.set(asked.get() + 1);
                            // Nothing in this pair holds a call to a time.
                            let call = std::pin::pin!(client.deposit("ann", 1));
                            let sleep = foreign.sleep(Duration::from_secs(10));
                            match futures::future::select(call, sleep).await {
                                futures::future::Either::Left((total, _)) => total.map(drop),
                                futures::future::Either::Right(_) => {
                                    Err(tonic::Status::deadline_exceeded(""))
                                }
                            }
                        })
                        .await;
                        answered.set(answered.get() + 1);
                        foreign.sleep(Duration::from_secs(4)).await;
                    }
                })
                .await;
            };
            kernel
                .spawn_on(format!("client{n}"), "client", client)
                .unwrap()
        })
        .collect();
    kernel.run_until(&clients).unwrap().check_faults().unwrap();
    assert_eq!(answered.get(), 36);
    let total = Rc::new(Cell::new(0));
    let theirs = Rc::clone(&total);
    let reader = async move |os: &mut Os| {
        os.run_future(async |foreign| {
            let mut client = Client::new(foreign, "http://server".parse().unwrap());
            theirs.set(patiently(foreign, async || client.deposit("ann", 0).await).await);
        })
        .await;
    };
    let reader = kernel.spawn_on("desk", "reader", reader).unwrap();
    kernel.run_until(&[reader]).unwrap().check_faults().unwrap();
    kernel.audit_all();
    let total = total.get();
    assert!(
        (answered.get()..=asked.get()).contains(&total),
        "seed {seed}: {total}"
    );
    log.0.take()
}

#[test]
fn no_chaos_loses_a_deposit_that_was_answered() {
    for seed in 0..10 {
        let log = chaos(seed);
        if seed < 2 {
            assert!(log == chaos(seed), "seed {seed} has two logs");
        }
    }
}

/// Two clients deposit in one account, through all of hyper, h2 and tonic.
fn deposits(kernel: &mut Kernel, racy: bool) -> Result<(), Error> {
    let server = async move |os: &mut Os| ledger(racy).main(os).await;
    kernel.spawn("ledger", server)?;
    let totals = Rc::new(Cell::new(0));
    let clients: Vec<_> = ["one", "two"]
        .into_iter()
        .map(|name| {
            let totals = Rc::clone(&totals);
            kernel.spawn(name, async move |os: &mut Os| {
                os.yield_now().await;
                os.run_future(async |foreign| {
                    let mut client = Client::new(foreign, "http://127.0.0.1".parse().unwrap());
                    let total = client.deposit("ann", 5).await?;
                    totals.set(total.max(totals.get()));
                    Ok::<_, tonic::Status>(())
                })
                .await
            })
        })
        .collect::<Result<_, _>>()?;
    kernel.run_until(&clients)?.check_faults()?;
    // A client that came before the server did has no part in this.
    assert_ne!(totals.get(), 0, "no client found its server");
    kernel.outcome(totals.get().to_string());
    Ok(())
}

/// What the deposits of two clients come to, in so many schedules.
fn searched(racy: bool) -> Vec<String> {
    let explored = check(move |kernel| deposits(kernel, racy))
        .schedules(300)
        .explore();
    if let Some(failure) = explored.failure {
        panic!("{}\n{}", failure.why, failure.details);
    }
    explored.outcomes.into_iter().collect()
}

#[test]
fn the_search_finds_the_deposit_that_is_lost() {
    assert_eq!(searched(true), ["10", "5"]);
}

#[test]
fn the_mended_deposit_is_never_lost() {
    assert_eq!(searched(false), ["10"]);
}
