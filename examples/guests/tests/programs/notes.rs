//! The service of notes.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::TcpStream,
    rc::Rc,
    time::Duration,
};

use trapline::{Error, Kernel, Os, SimNet, SimWorld, check};
use trapline_guests::{
    fetch::Client,
    notes::{Notes, channel, database, router},
    serve::serve,
};

use crate::support::*;

fn words(directory: &std::path::Path, rest: &[&str]) -> Vec<String> {
    let disk = directory.join("disk");
    let first = [
        "--disk",
        disk.to_str().unwrap(),
        "notes",
        "--addr",
        "127.0.0.1:0",
    ];
    first.iter().chain(rest).map(ToString::to_string).collect()
}

#[test]
fn curl_keeps_notes_over_each_protocol() {
    let directory = directory("protocols");
    let (cert, key) = certificate(&directory);
    let plain = Served::boot(words(&directory, &[]));
    let origin = format!("http://{}", plain.addr);
    keeps_notes(&origin, &["--http1.1"], "1.1");
    keeps_notes(&origin, &["--http2"], "1.1"); // there is no upgrade to HTTP/2
    keeps_notes(&origin, &["--http2-prior-knowledge"], "2");
    plain.signal("TERM");
    assert_eq!(plain.end().1, "Drained; 0 connections were killed\n");
    let tls = Served::boot(words(&directory, &["--cert", &cert, "--key", &key]));
    let origin = format!("https://localhost:{}", tls.addr.port());
    keeps_notes(&origin, &["--cacert", &cert, "--http1.1"], "1.1");
    keeps_notes(&origin, &["--cacert", &cert, "--http2"], "2");
    // One that does not trust the certificate gets nothing.
    let stranger = curl_output([&origin]);
    assert_eq!(stranger.status.code(), Some(60), "{stranger:?}");
    tls.signal("TERM");
    assert!(tls.end().0.success());
}

fn keeps_notes(origin: &str, options: &[&str], version: &str) {
    let ask = |words: &[&str], path: &str| {
        let url = format!("{origin}{path}");
        let format = ["-w", "|%{http_code}|%{http_version}", &*url];
        let text = curl(options.iter().chain(words).chain(&format));
        text.strip_suffix(&format!("|{version}"))
            .unwrap_or_else(|| panic!("{text}"))
            .to_string()
    };
    assert_eq!(ask(&["-X", "PUT", "-d", "milk"], "/notes/1"), "|204");
    assert_eq!(
        ask(&["-X", "POST", "-d", ", eggs"], "/notes/1"),
        "milk, eggs|200"
    );
    assert_eq!(ask(&["-X", "PUT", "-d", "x"], "/notes/2"), "|204");
    assert_eq!(ask(&[], "/notes"), r#"{"1":"milk, eggs","2":"x"}|200"#);
    assert_eq!(ask(&["-X", "DELETE"], "/notes/2"), "|204");
    assert_eq!(ask(&["-X", "DELETE"], "/notes/2"), "|404");
    assert_eq!(ask(&[], "/notes/2"), "|404");
    assert!(ask(&[], "/notes/two").ends_with("|400"));
    assert!(ask(&["-X", "PATCH"], "/notes/1").ends_with("|405"));
    let large = "y".repeat(300_000);
    assert_eq!(
        ask(
            &[
                "-X",
                "PUT",
                "-H",
                "Expect: 100-continue",
                "-d",
                &large[..100_000]
            ],
            "/notes/3"
        ),
        "|204"
    );
    assert_eq!(ask(&[], "/notes/3"), format!("{}|200", &large[..100_000]));
    assert_eq!(ask(&["-X", "DELETE"], "/notes/3"), "|204");
}

/// Waits until a listener is closed.
fn refused(addr: std::net::SocketAddr) {
    while TcpStream::connect(addr).is_ok() {
        std::thread::yield_now();
    }
}

#[test]
fn sigterm_answers_the_request_that_has_begun() {
    let directory = directory("drain");
    let server = Served::boot(words(&directory, &["--drain", "30s"]));
    let idle = exchange(server.addr, b"GET /notes HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut begun = exchange(
        server.addr,
        b"PUT /notes/5 HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nha",
    );
    // Curl's request comes behind these two, so both connections are accepted.
    let origin = format!("http://{}/notes", server.addr);
    assert_eq!(curl([&origin]), "{}");
    server.signal("TERM");
    refused(server.addr);
    begun.write_all(b"lf").unwrap();
    let mut answer = String::new();
    begun.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    let mut rest = String::new();
    (&idle).read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("{}"), "{rest}");
    let (status, text) = server.end();
    assert_eq!(
        (status.code(), &*text),
        (Some(0), "Drained; 0 connections were killed\n")
    );
    // What was answered is there.
    let server = Served::boot(words(&directory, &[]));
    assert_eq!(curl([format!("http://{}/notes/5", server.addr)]), "half");
}

#[test]
fn a_drain_does_not_wait_for_ever() {
    let directory = directory("drain-kills");
    let server = Served::boot(words(&directory, &["--drain", "50ms"]));
    let begun = exchange(
        server.addr,
        b"PUT /notes/5 HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nha",
    );
    assert_eq!(curl([format!("http://{}/notes", server.addr)]), "{}");
    server.signal("TERM");
    let (status, text) = server.end();
    assert_eq!(
        (status.code(), &*text),
        (Some(0), "Drained; 1 connections were killed\n")
    );
    drop(begun);
}

#[test]
fn a_killed_service_has_what_it_has_acknowledged() {
    let directory = directory("killed");
    let server = Served::boot(words(&directory, &[]));
    for n in 0..5 {
        curl([
            "-X",
            "PUT",
            "-d",
            "text",
            &format!("http://{}/notes/{n}", server.addr),
        ]);
    }
    let begun = exchange(
        server.addr,
        b"PUT /notes/9 HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nha",
    );
    server.signal("KILL");
    assert!(!server.end().0.success());
    drop(begun);
    // A record that was torn is no record.
    let log = directory.join("disk/notes.log");
    let whole = fs::read(&log).unwrap();
    fs::write(&log, [&whole[..], &whole[..13]].concat()).unwrap();
    let server = Served::boot(words(&directory, &[]));
    let all = r#"{"0":"text","1":"text","2":"text","3":"text","4":"text"}"#;
    assert_eq!(curl([format!("http://{}/notes", server.addr)]), all);
    server.signal("INT");
    assert!(server.end().0.success());
    assert_eq!(fs::read(&log).unwrap(), whole);
}

/// Three clients put notes while hosts crash, links are cut and connections are reset. What was answered is
/// there in the end. Returns the log, and how often the service was started.
pub(super) fn chaos(seed: u64, level: u8, is_tls: bool) -> (String, usize) {
    let directory = directory(&format!("chaos-{seed}-{level}-{is_tls}"));
    let (cert, key) = certificate_of_bytes(&directory);
    let mut notes = Notes::default();
    if is_tls {
        (notes.cert, notes.key, notes.tls_seed) = (Some(cert.clone()), Some(key), Some(1));
    }
    let log = Log::default();
    let net = SimNet::new().latency(Duration::from_millis(1)..=Duration::from_millis(30));
    let world = SimWorld::new(seed).net(&net);
    let mut kernel = Kernel::builder()
        .world(world)
        .tracer(log.clone())
        .build()
        .unwrap();
    serve_on(&mut kernel, "server", notes);
    net.fragment(true).chaos(level);
    let origin = if is_tls {
        "https://server:80"
    } else {
        "http://server"
    };
    let clients: Vec<_> = (0..3u64)
        .map(|n| {
            let cacert = is_tls.then(|| cert.clone());
            let client = async move |os: &mut Os| put_notes(os, n, origin, cacert).await;
            kernel
                .spawn_on(format!("client{n}"), "client", client)
                .unwrap()
        })
        .collect();
    let report = kernel.run_until(&clients).unwrap();
    report.check_faults().unwrap();
    for client in clients {
        assert_eq!(report.exits()[&client], trapline::Exit::Done, "seed {seed}");
    }
    kernel.audit_all();
    let starts = kernel.take_console().matches("Listening").count();
    (log.0.take(), starts)
}

/// The same certificate each time.
fn certificate_of_bytes(directory: &std::path::Path) -> (String, String) {
    use trapline_guests::tls::Identity;
    let identity = Identity::of_bytes(&[7; 32], &["server"]).unwrap();
    let (cert, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    fs::write(&cert, pem("CERTIFICATE", &identity.certificates[0])).unwrap();
    fs::write(&key, pem("PRIVATE KEY", identity.key.secret_der())).unwrap();
    (cert.to_str().unwrap().into(), key.to_str().unwrap().into())
}

/// Puts notes until each has an answer. Then all are there.
async fn put_notes(
    os: &mut Os,
    n: u64,
    origin: &'static str,
    cacert: Option<String>,
) -> Result<(), Box<dyn std::error::Error>> {
    let tls = trapline_guests::fetch::connector_of(os, cacert.as_deref(), Some(n)).await?;
    os.run_future(async |foreign| {
        let client = Client::new(foreign, tls).timeout(Duration::from_secs(10));
        let mut expected = BTreeMap::new();
        for k in 0..12 {
            let (id, text) = (n * 100 + k, format!("{n} has {k}"));
            let url = format!("{origin}/notes/{id}");
            patiently(foreign, async || {
                let answer = client.put(&url, text.clone()).await?;
                answer
                    .status
                    .is_success()
                    .then_some(())
                    .ok_or_else(|| BoxError::from("refused"))
            })
            .await;
            expected.insert(url, text);
            foreign.sleep(Duration::from_secs(4)).await;
        }
        for (url, text) in expected {
            let answer = patiently(foreign, async || {
                let answer = client.get(&url).await?;
                // A service whose disk has failed says so until it is started again.
                (answer.status.as_u16() != 503)
                    .then_some(answer)
                    .ok_or_else(|| BoxError::from("503"))
            });
            let answer = answer.await;
            assert_eq!(
                (answer.status.as_u16(), answer.text()),
                (200, text),
                "{url} is lost"
            );
        }
    })
    .await;
    Ok(())
}

#[test]
fn no_chaos_loses_a_note_that_was_answered() {
    let mut starts = 0;
    for seed in 0..10 {
        for is_tls in [false, true] {
            let (log, started) = chaos(seed, 3, is_tls);
            starts += started;
            if seed < 2 {
                assert!(
                    (log, started) == chaos(seed, 3, is_tls),
                    "seed {seed} has two logs"
                );
            }
        }
    }
    assert!(
        starts > 100,
        "the service was started {starts} times in 20 runs"
    );
}

/// Two clients append to one note, through all of hyper and axum.
fn appends(kernel: &mut Kernel, is_racy: bool) -> Result<(), Error> {
    let whole = Rc::new(Cell::new(0));
    let theirs = Rc::clone(&whole);
    kernel.spawn("notes", async move |os: &mut Os| {
        let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
        let (store, jobs) = channel();
        let keeper = async move |os: &mut Os| database(os, jobs).await;
        os.spawn_detached("database", keeper).await?;
        let app = router(store, is_racy);
        serve(os, listener, None, app, None, Duration::ZERO).await?;
        Ok::<(), Box<dyn std::error::Error>>(())
    })?;
    let clients: Vec<_> = ["ann", "bob"]
        .into_iter()
        .map(|name| {
            kernel.spawn(name, async move |os: &mut Os| {
                os.yield_now().await;
                os.run_future(async |foreign| {
                    let client = Client::new(foreign, None);
                    client
                        .post("http://127.0.0.1/notes/1", name)
                        .await
                        .map(drop)
                })
                .await
            })
        })
        .collect::<Result<_, _>>()?;
    kernel.run_until(&clients)?.check_faults()?;
    let reader = kernel.spawn("reader", async move |os: &mut Os| {
        let answer = os.run_future(async |foreign| {
            Client::new(foreign, None)
                .get("http://127.0.0.1/notes/1")
                .await
        });
        theirs.set(answer.await.map(|answer| answer.body.len()).unwrap_or(0));
    })?;
    kernel.run_until(&[reader])?.check_faults()?;
    assert_eq!(whole.get(), 6, "an append is lost");
    Ok(())
}

#[test]
fn the_search_finds_the_append_that_is_lost() {
    let found = check(|kernel| appends(kernel, true))
        .schedules(2_000)
        .explore();
    let failure = found.failure.expect("an append is lost in some schedule");
    assert!(failure.why.contains("an append is lost"), "{}", failure.why);
    let again = check(|kernel| appends(kernel, true))
        .replay(&failure.replay)
        .unwrap()
        .explore();
    assert!(
        again
            .failure
            .is_some_and(|failure| failure.why.contains("an append is lost"))
    );
}

#[test]
fn the_mended_append_loses_nothing() {
    check(|kernel| appends(kernel, false))
        .schedules(1_000)
        .run();
}
