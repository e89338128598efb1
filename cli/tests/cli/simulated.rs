//! The servers and clients of `programs/`, unchanged, in the simulated world. They run in this
//! process, as a user's own tests run theirs.

mod chaos;
mod kv;

use std::{error::Error, io, time::Duration};

use clap::Command;
use trapline::{Endpoint, Exit, Kernel, Os, SimNet, SimWorld, TcpStream, Tid};
use trapline_cli::Program;

use crate::{
    networked::{chat::Chat, echo::Echo, http_get::HttpGet, httpd::Httpd, proxy::Proxy},
    support::begins,
};

const SECOND: Duration = Duration::from_secs(1);

/// A program with its arguments, as `boot` takes them.
fn parsed<P: Program>(args: &[&str]) -> P {
    let command = P::augment_args(Command::new("program").no_binary_name(true));
    let matches = command
        .try_get_matches_from(args)
        .expect("the arguments are right");
    P::from_arg_matches(&matches).expect("the arguments are right")
}

/// Boots a program on a host.
fn boot<P: Program>(kernel: &mut Kernel, host: &str, args: &[&str]) -> Tid {
    let program = parsed::<P>(args);
    let main = async move |os: &mut Os| program.main(os).await;
    kernel.spawn_on(host, host, main).expect("there is room")
}

fn kernel() -> Kernel {
    let ms = Duration::from_millis;
    in_world(1, &SimNet::new().latency(ms(1)..=ms(10)))
}

/// A kernel whose network cuts, resets and slows down, whose hosts crash, and whose segments come in fragments.
fn chaotic(seed: u64) -> Kernel {
    let ms = Duration::from_millis;
    let net = SimNet::new().latency(ms(1)..=ms(20));
    in_world(seed, &net.fragment(true).chaos(2))
}

fn in_world(seed: u64, net: &SimNet) -> Kernel {
    let world = SimWorld::new(seed).net(net);
    let kernel = Kernel::builder().world(world).max_ticks(10_000_000);
    kernel.build().expect("a kernel boots")
}

/// Runs a client to its end, and returns what was printed.
fn finish(kernel: &mut Kernel, client: Tid) -> String {
    let report = kernel.run_until(&[client]).expect("the run ends well");
    report.check().expect("all tasks end well");
    kernel.take_console()
}

/// Connects once the server listens.
async fn connect(os: &mut Os, to: &str) -> io::Result<TcpStream> {
    let to: Endpoint = to.parse().map_err(io::Error::other)?;
    loop {
        match os.connect(to.clone()).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                os.sleep(Duration::from_millis(10)).await;
            }
            result => return result,
        }
    }
}

async fn ask(os: &mut Os, stream: &TcpStream, text: &str) -> Result<(), Box<dyn Error>> {
    stream.send_all(os, text.as_bytes()).await?;
    let (mut got, mut buf) = (String::new(), [0; 64]);
    while got.len() < text.len() {
        match stream.recv(os, &mut buf).await? {
            0 => return Err("the server closes early".into()),
            n => got += str::from_utf8(&buf[..n])?,
        }
    }
    writeln!(os, "answer {got}");
    Ok(())
}

fn ask_once(kernel: &mut Kernel, to: &'static str) -> Tid {
    let client = async move |os: &mut Os| {
        let stream = connect(os, to).await?;
        ask(os, &stream, "hello").await
    };
    kernel
        .spawn_on("client", "client", client)
        .expect("there is room")
}

#[test]
fn echo_answers() {
    let mut kernel = kernel();
    boot::<Echo>(&mut kernel, "server", &["--addr", "0.0.0.0:45000"]);
    let client = ask_once(&mut kernel, "server:45000");
    let console = finish(&mut kernel, client);
    begins(&console, "Server starting at 0.0.0.0:45000\n");
    assert!(console.ends_with("answer hello\n"), "{console}");
}

#[test]
fn proxy_passes_on() {
    let mut kernel = kernel();
    let server = kernel.net().host("server").expect("it is a name");
    let to = format!("{server}:45000");
    boot::<Echo>(&mut kernel, "server", &["--addr", "0.0.0.0:45000"]);
    boot::<Proxy>(
        &mut kernel,
        "proxy",
        &["--listen", "0.0.0.0:45001", "--to", &to],
    );
    let client = ask_once(&mut kernel, "proxy:45001");
    let console = finish(&mut kernel, client);
    assert!(console.ends_with("answer hello\n"), "{console}");
}

#[test]
fn proxy_ends_connections_that_are_idle() {
    let mut kernel = kernel();
    let server = kernel.net().host("server").expect("it is a name");
    let to = format!("{server}:45000");
    let args = ["--listen", "0.0.0.0:45001", "--idle-timeout", "1500ms"];
    boot::<Proxy>(&mut kernel, "proxy", &[&args[..], &["--to", &to]].concat());
    let server = async |os: &mut Os| {
        let listener = os.listen(([0, 0, 0, 0], 45000).into()).await?;
        let (client, _) = listener.accept(os).await?;
        // Lively in this direction only, while the other has nothing to say, and for longer than that.
        for n in 0..8 {
            client.send_all(os, &[n]).await?;
            os.sleep(Duration::from_secs(1)).await;
        }
        os.sleep(Duration::from_secs(60)).await;
        Ok::<(), io::Error>(())
    };
    kernel
        .spawn_on("server", "server", server)
        .expect("there is room");
    let client = async |os: &mut Os| {
        let stream = connect(os, "proxy:45001").await?;
        let (mut got, mut buf) = (Vec::new(), [0; 64]);
        while let n @ 1.. = stream.recv(os, &mut buf).await? {
            got.extend_from_slice(&buf[..n]);
        }
        assert_eq!(got, (0..8).collect::<Vec<u8>>());
        let idle = os.now().await - 7 * SECOND;
        let late = Duration::from_millis(1500)..Duration::from_millis(1600);
        assert!(late.contains(&idle), "{idle:?}");
        Ok::<(), io::Error>(())
    };
    let client = kernel
        .spawn_on("client", "client", client)
        .expect("there is room");
    let report = kernel.run_until(&[client]).expect("the run ends well");
    assert_eq!(report.exits()[&client], Exit::Done);
    let console = kernel.take_console();
    let lost = " lost: failed: no byte has moved for 1.5s\n";
    assert!(console.ends_with(lost), "{console}");
}

#[test]
fn a_page_goes_from_httpd_to_http_get() {
    let folder = std::env::temp_dir().join(format!("trapline-simulated-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let page = "All of it.\n".repeat(50_000);
    std::fs::write(folder.join("page.txt"), &page).expect("a file can be written");
    let mut kernel = kernel();
    let path = folder.to_string_lossy().into_owned();
    boot::<Httpd>(
        &mut kernel,
        "server",
        &["--addr", "0.0.0.0:8000", "--root", &path],
    );
    let ready = kernel.spawn_on("client", "wait", async |os: &mut Os| {
        connect(os, "server:8000").await.map(drop)
    });
    finish(&mut kernel, ready.expect("there is room"));
    let client = boot::<HttpGet>(&mut kernel, "client", &["http://server:8000/page.txt"]);
    let console = finish(&mut kernel, client);
    std::fs::remove_dir_all(&folder).expect("it can be removed");
    assert!(console == page, "{} bytes came", console.len());
}

#[test]
fn a_crowd_of_one_address_delays_no_other_client_of_httpd() {
    const CROWD: usize = 1000;
    let mut kernel = kernel();
    let args = ["--addr", "0.0.0.0:8000", "--max-per-address", "1"];
    boot::<Httpd>(&mut kernel, "server", &args);
    let crowd = async |os: &mut Os| {
        let busy = connect(os, "server:8000").await?;
        busy.send_all(os, b"GET / HT").await?;
        os.sleep(Duration::from_secs(1)).await;
        for _ in 0..CROWD {
            let refused = async |os: &mut Os| {
                let stream = connect(os, "server:8000").await?;
                hear(os, &stream, "503 Service Unavailable").await
            };
            os.spawn("refused", refused).await?;
        }
        os.sleep(Duration::from_secs(4)).await;
        Ok::<(), Box<dyn Error>>(())
    };
    let client = async |os: &mut Os| {
        os.sleep(Duration::from_millis(1100)).await;
        let stream = connect(os, "server:8000").await?;
        stream.send_all(os, b"GET /none HTTP/1.0\r\n\r\n").await?;
        hear(os, &stream, "404 Not Found").await?;
        let now = os.now().await;
        assert!(now < Duration::from_millis(1200), "{now:?}");
        Ok::<(), Box<dyn Error>>(())
    };
    let ended = [
        kernel
            .spawn_on("crowd", "crowd", crowd)
            .expect("there is room"),
        kernel
            .spawn_on("client", "client", client)
            .expect("there is room"),
    ];
    let report = kernel.run_until(&ended).expect("the run ends well");
    report.check().expect("all are answered");
}

#[test]
fn two_guests_chat() {
    let mut kernel = kernel();
    boot::<Chat>(&mut kernel, "server", &["--addr", "0.0.0.0:45002"]);
    let listener = async |os: &mut Os| {
        let stream = connect(os, "server:45002").await?;
        stream.send_all(os, b"ada\n").await?;
        hear(os, &stream, "hello ada").await
    };
    let ada = kernel
        .spawn_on("one", "ada", listener)
        .expect("there is room");
    let speaker = async |os: &mut Os| {
        let stream = connect(os, "server:45002").await?;
        os.sleep(Duration::from_secs(1)).await;
        stream.send_all(os, b"bob\nhello ada\n").await?;
        hear(os, &stream, "ada").await
    };
    let bob = kernel
        .spawn_on("other", "bob", speaker)
        .expect("there is room");
    kernel
        .run_until(&[ada, bob])
        .expect("the run ends well")
        .check()
        .expect("both hear");
}

/// Receives until that text has come.
async fn hear(os: &mut Os, stream: &TcpStream, text: &str) -> Result<(), Box<dyn Error>> {
    let (mut got, mut buf) = (String::new(), [0; 64]);
    while !got.contains(text) {
        match stream.recv(os, &mut buf).await? {
            0 => return Err(format!("{text:?} does not come after {got:?}").into()),
            n => got += str::from_utf8(&buf[..n])?,
        }
    }
    Ok(())
}
