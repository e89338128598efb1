//! The same servers and clients under faults, and the planted bugs that faults find.

use std::{cell::Cell, error::Error, io, rc::Rc, time::Duration};

use trapline::{Elapsed, Endpoint, Exit, Kernel, Os, SimNet, SimWorld, TcpStream, Tid};
use trapline_cli::Program;

use super::*;
use crate::networked::{
    bugs::{leaky_server, lost_line, torn_reply},
    chat::Chat,
    echo::Echo,
    http_get::HttpGet,
    httpd::Httpd,
    proxy::Proxy,
};

/// How many seeds each program meets: as many as take seconds.
const SEEDS: u64 = if cfg!(debug_assertions) { 100 } else { 1000 };

/// Boots a server on its host, now and whenever the host restarts.
fn serve<P: Program>(kernel: &mut Kernel, host: &'static str, args: &[&str]) {
    boot::<P>(kernel, host, args);
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    let again = move |kernel: &mut Kernel| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        boot::<P>(kernel, host, &args);
    };
    kernel.on_restart(host, again).expect("it is a name");
}

/// Runs servers and clients under chaos, from many seeds. The clients must all be served in the end,
/// and the servers must have no task left over.
fn survives(
    servers: impl Fn(&mut Kernel),
    clients: impl Fn(&mut Kernel) -> Vec<Tid>,
    check: impl Fn(&str),
) {
    let before = {
        let mut quiet = kernel();
        servers(&mut quiet);
        idle(&mut quiet, SECOND)
    };
    for seed in 1..=SEEDS {
        let mut kernel = served(seed, &servers, &clients, &check);
        let after = idle(&mut kernel, 2000 * SECOND);
        assert_eq!(after, before, "seed {seed}: tasks that are left");
    }
}

/// Runs servers and clients under the chaos of a seed, until the clients have ended well.
fn served(
    seed: u64,
    servers: impl Fn(&mut Kernel),
    clients: impl Fn(&mut Kernel) -> Vec<Tid>,
    check: impl Fn(&str),
) -> Kernel {
    let mut kernel = chaotic(seed);
    servers(&mut kernel);
    let clients = clients(&mut kernel);
    let report = kernel.run_until(&clients);
    let report = report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    for client in clients {
        let exit = &report.exits()[&client];
        assert_eq!(*exit, Exit::Done, "seed {seed}: how task {client} ended");
    }
    check(&kernel.take_console());
    kernel
}

/// Lets so much time pass, and returns how many tasks the servers have.
fn idle(kernel: &mut Kernel, span: Duration) -> usize {
    let clock = kernel.spawn("clock", async move |os: &mut Os| os.sleep(span).await);
    let clock = clock.expect("there is room");
    kernel.run_until(&[clock]).expect("the run ends well");
    kernel.tasks().count()
}

/// Sends lines for 70 seconds, each until its echo has come, on new connections where needed.
async fn insist(os: &mut Os, to: Endpoint) -> io::Result<()> {
    let mut stream: Option<TcpStream> = None;
    for round in 0..35 {
        let line = format!("{round} is the number of this line\n");
        loop {
            let attempt = os.timeout(3 * SECOND, async |os| {
                let stream = match &stream {
                    Some(stream) => stream,
                    None => stream.insert(os.connect(to.clone()).await?),
                };
                stream.send_all(os, line.as_bytes()).await?;
                receive(os, stream, line.len()).await
            });
            match attempt.await {
                Ok(Ok(echo)) => {
                    assert_eq!(echo, line.as_bytes());
                    break;
                }
                Ok(Err(_)) | Err(Elapsed) => retire(os, stream.take()).await,
            }
            os.sleep(SECOND / 10).await;
        }
        os.sleep(2 * SECOND).await;
    }
    Ok(())
}

/// Ends a connection in good order: no reset that a cut could lose.
async fn retire(os: &mut Os, stream: Option<TcpStream>) {
    let Some(stream) = stream else { return };
    let end = async move |os: &mut Os| {
        stream.shutdown_write(os).await?;
        while stream.recv(os, &mut [0; 64]).await? > 0 {}
        io::Result::Ok(())
    };
    // It fails if the connection was reset. A server that crashed after it got the end says no more.
    let retire = async move |os: &mut Os| drop(os.timeout(1000 * SECOND, end).await);
    let _ = os.spawn_detached("retire", retire).await;
}

async fn receive(os: &mut Os, stream: &TcpStream, len: usize) -> io::Result<Vec<u8>> {
    let (mut bytes, mut buf) = (Vec::new(), [0; 64]);
    while bytes.len() < len {
        match stream.recv(os, &mut buf).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => bytes.extend_from_slice(&buf[..n]),
        }
    }
    Ok(bytes)
}

fn insistent(kernel: &mut Kernel, to: &'static str) -> Vec<Tid> {
    let to: Endpoint = to.parse().expect("it is an endpoint");
    ["one", "other"]
        .map(|host| {
            let to = to.clone();
            let client = async move |os: &mut Os| insist(os, to).await;
            kernel
                .spawn_on(host, "client", client)
                .expect("there is room")
        })
        .to_vec()
}

#[test]
fn echo_survives_chaos() {
    let servers = |kernel: &mut Kernel| {
        serve::<Echo>(kernel, "server", &["--addr", "0.0.0.0:45000"]);
    };
    survives(servers, |kernel| insistent(kernel, "server:45000"), |_| ());
}

/// An echo server behind a proxy. One of them crashes and restarts under chaos.
fn behind_proxy(kernel: &mut Kernel, crashes: &str) {
    let server = kernel.net().host("server").expect("it is a name");
    let to = format!("{server}:45000");
    let echo = ["--addr", "0.0.0.0:45000"];
    let proxy = ["--listen", "0.0.0.0:45001", "--to", &to];
    if crashes == "server" {
        serve::<Echo>(kernel, "server", &echo);
        boot::<Proxy>(kernel, "proxy", &proxy);
    } else {
        boot::<Echo>(kernel, "server", &echo);
        serve::<Proxy>(kernel, "proxy", &proxy);
    }
}

#[test]
fn proxy_survives_chaos() {
    let servers = |kernel: &mut Kernel| behind_proxy(kernel, "server");
    survives(servers, |kernel| insistent(kernel, "proxy:45001"), |_| ());
}

#[test]
fn proxy_serves_again_after_a_crash() {
    // The server keeps its connections to a proxy that has crashed: nothing says so.
    let servers = |kernel: &mut Kernel| behind_proxy(kernel, "proxy");
    for seed in 1..=SEEDS {
        served(
            seed,
            servers,
            |kernel| insistent(kernel, "proxy:45001"),
            |_| (),
        );
    }
}

#[test]
fn httpd_and_http_get_survive_chaos() {
    let folder = std::env::temp_dir().join(format!("trapline-chaos-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let page = "All of it.\n".repeat(300);
    std::fs::write(folder.join("page.txt"), &page).expect("a file can be written");
    let path = folder.to_string_lossy().into_owned();
    let servers = |kernel: &mut Kernel| {
        serve::<Httpd>(
            kernel,
            "server",
            &["--addr", "0.0.0.0:8000", "--root", &path],
        );
    };
    let clients = |kernel: &mut Kernel| {
        let client = async |os: &mut Os| {
            for _ in 0..10 {
                let url = ["--timeout", "3s", "http://server:8000/page.txt"];
                while parsed::<HttpGet>(&url).main(os).await.is_err() {
                    os.sleep(SECOND / 10).await;
                }
                os.sleep(7 * SECOND).await;
            }
        };
        vec![
            kernel
                .spawn_on("client", "client", client)
                .expect("there is room"),
        ]
    };
    let check = |console: &str| assert!(console.matches(&page).count() >= 10);
    survives(servers, clients, check);
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}

#[test]
fn chat_survives_chaos() {
    let servers = |kernel: &mut Kernel| {
        serve::<Chat>(kernel, "server", &["--addr", "0.0.0.0:45002"]);
    };
    let clients = |kernel: &mut Kernel| {
        let heard = Rc::new(Cell::new(false));
        ["speaker", "hearer"]
            .map(|name| {
                let heard = Rc::clone(&heard);
                let guest = async move |os: &mut Os| visit(os, name, &heard).await;
                kernel.spawn_on(name, name, guest).expect("there is room")
            })
            .to_vec()
    };
    survives(servers, clients, |_| ());
}

/// A guest of the chat that says its name every second, on new connections where needed, until the
/// hearer has heard the speaker after the chaos.
async fn visit(os: &mut Os, name: &str, heard: &Cell<bool>) {
    let mut visits = 0;
    while !heard.get() {
        visits += 1;
        // It ends with an error, or when the line is heard.
        let _ = os
            .timeout(30 * SECOND, async |os| talk(os, name, visits, heard).await)
            .await;
        os.sleep(SECOND / 10).await;
    }
}

async fn talk(os: &mut Os, name: &str, visit: u32, heard: &Cell<bool>) -> io::Result<()> {
    let stream = os.connect(("server", 45002)).await?;
    let hello = format!("{name}{visit}\n");
    stream.send_all(os, hello.as_bytes()).await?;
    let mut buf = [0; 256];
    while !heard.get() {
        stream
            .send_all(os, format!("I am the {name}\n").as_bytes())
            .await?;
        let mut text = String::new();
        let listen = async |os: &mut Os| loop {
            match stream.recv(os, &mut buf).await {
                Ok(n @ 1..) => text += &String::from_utf8_lossy(&buf[..n]),
                Ok(_) => return io::Error::from(io::ErrorKind::UnexpectedEof),
                Err(error) => return error,
            }
        };
        if let Ok(error) = os.timeout(SECOND, listen).await {
            return Err(error);
        }
        let is_quiet = os.now().await > 61 * SECOND;
        if name == "hearer" && is_quiet && text.contains("I am the speaker") {
            heard.set(true);
        }
    }
    Ok(())
}

// ---- planted bugs: each is found by faults, and hidden without them

/// A kernel with an echo server, and with faults or without.
fn echoing(seed: u64, with_faults: bool) -> Kernel {
    let net = SimNet::new();
    if with_faults {
        net.fragment(true).chaos(2);
    }
    let world = SimWorld::new(seed).net(&net);
    let mut kernel = Kernel::builder()
        .world(world)
        .build()
        .expect("a kernel boots");
    serve::<Echo>(&mut kernel, "server", &["--addr", "0.0.0.0:45000"]);
    kernel
}

fn to_server() -> Endpoint {
    ("server", 45000).into()
}

#[test]
fn chaos_finds_a_line_that_a_reconnect_loses() {
    let answered = |seed, with_faults| {
        let mut kernel = echoing(seed, with_faults);
        let answered = Rc::new(Cell::new(0));
        let told = Rc::clone(&answered);
        let client = async move |os: &mut Os| {
            told.set(lost_line::send_lines(os, to_server(), 60).await);
        };
        let client = kernel
            .spawn_on("client", "client", client)
            .expect("there is room");
        kernel.run_until(&[client]).expect("the run ends well");
        answered.get()
    };
    assert!((1..=10).all(|seed| answered(seed, false) == 60));
    assert!((1..=10).any(|seed| answered(seed, true) < 60));
}

#[test]
fn fragments_find_a_reply_that_is_matched_with_the_wrong_request() {
    let is_right = |with_faults| {
        let mut kernel = echoing(1, false);
        kernel.net().fragment(with_faults);
        let right = Rc::new(Cell::new(false));
        let told = Rc::clone(&right);
        let client = async move |os: &mut Os| {
            let pairs = torn_reply::ask_all(os, to_server(), 20).await?;
            told.set(pairs.iter().all(|(request, reply)| request == reply));
            io::Result::Ok(())
        };
        let client = kernel
            .spawn_on("client", "client", client)
            .expect("there is room");
        kernel.run_until(&[client]).expect("the run ends well");
        right.get()
    };
    assert!(is_right(false) && !is_right(true));
}

#[test]
fn a_reset_finds_a_server_that_leaks_its_clients() {
    let left = |resets: bool| {
        let mut kernel = kernel();
        let (clients, net) = (leaky_server::Clients::default(), kernel.net());
        let list = Rc::clone(&clients);
        let server = async move |os: &mut Os| {
            leaky_server::serve(os, ([0, 0, 0, 0], 45000).into(), list).await
        };
        kernel
            .spawn_on("server", "server", server)
            .expect("there is room");
        let client = async move |os: &mut Os| {
            let stream = connect(os, "server:45000").await?;
            ask(os, &stream, "hello").await?;
            if resets {
                net.reset("client", "server")?;
            }
            Ok::<(), Box<dyn Error>>(())
        };
        let client = kernel
            .spawn_on("client", "client", client)
            .expect("there is room");
        kernel.run_until(&[client]).expect("the run ends well");
        idle(&mut kernel, SECOND);
        clients.borrow().len()
    };
    assert_eq!((left(false), left(true)), (0, 1));
}
