//! Up to some faults of a list, each at any trap.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
};

use trapline::{Check, Error, Explored, Kernel, MayFault, Mode, Os, Shared, check};

type Body = fn(&mut Kernel) -> Result<(), Error>;
type Set = fn(Check<Body>) -> Check<Body>;

const STRATEGIES: [(&str, Set); 6] = [
    ("random", |check| check.random()),
    ("pct", |check| check.pct(2)),
    ("fifo", |check| check.fifo()),
    ("no preemptions", |check| check.preemptions(0)),
    ("exhaustive", |check| check.exhaustive()),
    ("in parts", |check| check.exhaustive().threads(2)),
];

// ---- an unreliable link

const LINK: [&str; 2] = [
    "recv_from:error=TimedOut",
    "send_to:error=NetworkUnreachable",
];

/// Counts the requests that it answers. One that it knows counts once, if it `remembers` them.
async fn counts(os: &mut Os, total: Shared<u32>, remembers: bool) -> io::Result<()> {
    let socket = os.bind_udp("127.0.0.1:7000".parse().unwrap()).await?;
    let (mut seen, mut buf) = (BTreeSet::new(), [0; 1]);
    loop {
        let Ok((_, from)) = socket.recv_from(os, &mut buf).await else {
            continue;
        };
        if seen.insert(buf[0]) || !remembers {
            total.update(|total| *total += 1);
        }
        let _ = socket.send_to(os, &buf, from).await;
    }
}

/// Asks until there is an answer. A server that is waited for in vain has not answered.
async fn asks(os: &mut Os) -> io::Result<()> {
    let server: SocketAddr = "127.0.0.1:7000".parse().unwrap();
    let socket = os.bind_udp("127.0.0.1:0".parse().unwrap()).await?;
    let second = std::time::Duration::from_secs(1);
    loop {
        let sent = socket.send_to(os, &[1], server).await;
        let mut buf = [0; 1];
        let answer = async |os: &mut Os| socket.recv_from(os, &mut buf).await;
        if sent.is_ok() && matches!(os.timeout(second, answer).await, Ok(Ok(_))) {
            return Ok(());
        }
    }
}

fn exactly_once(kernel: &mut Kernel, remembers: bool) -> Result<(), Error> {
    let total = Shared::new(0);
    let counted = total.clone();
    let server = async move |os: &mut Os| counts(os, counted, remembers).await;
    kernel.spawn("server", server)?;
    let client = kernel.spawn("client", asks)?;
    kernel.run_until(&[client])?;
    assert_eq!(total.get(), 1, "the request counts so often");
    Ok(())
}

#[test]
fn a_missing_deduplication_is_found_with_one_fault_by_every_strategy() {
    let body: Body = |kernel| exactly_once(kernel, false);
    for (name, set) in STRATEGIES {
        assert_eq!(set(check(body)).explore().failure, None, "{name}");
        let explored = set(check(body)).faults(1, LINK).explore();
        let failure = explored.failure.unwrap_or_else(|| panic!("{name}"));
        assert_eq!(failure.faults.len(), 1, "{name}: {failure}");
        let fault = &failure.faults[0];
        // The answer is lost: the client does not receive it, or the server does not send it.
        let [receives, sends] = LINK.map(|rule| fault.starts_with(&format!("{rule} at turn ")));
        assert!(receives || sends, "{fault}");
        let call = if receives { "recv_from" } else { "send_to" };
        assert!(fault.contains(&format!(", felt by {call} at ")), "{fault}");
        assert!(failure.details.contains(fault), "{failure}");
        let again = check(body).faults(1, LINK).replay(&failure.replay).unwrap();
        let again = again.explore();
        assert_eq!(again.failure.unwrap().why, failure.why, "{name}");
        assert_eq!(again.changed, None, "{name}");
        // Without the faults it is not the program that has changed.
        let without = check(body).replay(&failure.replay).unwrap().explore();
        let lacks = "has faults, and this search has none: give it those of the report";
        assert!(without.changed.unwrap().contains(lacks), "{name}");
    }
}

#[test]
fn deduplication_is_proved_for_up_to_two_faults() {
    for most in [1, 2] {
        let body = |kernel: &mut Kernel| exactly_once(kernel, true);
        let cured = check(body).exhaustive().faults(most, LINK).explore();
        assert_eq!(cured.failure, None);
        assert!(cured.proved, "{cured}");
        let premise =
            format!("at most {most} of these faults happen: \"recv_from:error=TimedOut\"");
        assert!(cured.to_string().contains(&premise), "{cured}");
        assert_eq!(cured.schedules, cured.classes, "{most}");
    }
}

// ---- faults between turns

/// A client that asks a server on another host over TCP; the server keeps what it gets on its disk.
fn stores(kernel: &mut Kernel) -> Result<(), Error> {
    kernel.spawn_on("server", "server", async |os: &mut Os| {
        let listener = os.listen("0.0.0.0:80".parse().unwrap()).await?;
        let (stream, _) = listener.accept(os).await?;
        let mut buf = [0; 1];
        if stream.recv(os, &mut buf).await? == 1 {
            let file = os.disk().open(os, "kept", Mode::Append).await?;
            file.append(os, &buf).await?;
            stream.send_all(os, &buf).await?;
        }
        io::Result::Ok(())
    })?;
    kernel.spawn_on("client", "client", async |os: &mut Os| {
        let stream = os.connect(("server", 80)).await?;
        stream.send_all(os, b"x").await?;
        let mut buf = [0; 1];
        match stream.recv(os, &mut buf).await? {
            1 => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    })?;
    kernel.run()?.check()
}

/// What a search says of the faults of its failing schedule.
fn befell(set: Set, fault: &str) -> Vec<String> {
    let body: Body = stores;
    let explored = set(check(body)).faults(1, [fault]).explore();
    let failure = explored
        .failure
        .unwrap_or_else(|| panic!("{fault} is not felt"));
    let again = check(body)
        .faults(1, [fault])
        .replay(&failure.replay)
        .unwrap();
    assert_eq!(again.explore().failure.unwrap().why, failure.why);
    failure.faults
}

#[test]
fn a_reset_a_full_disk_and_a_crash_are_felt_by_the_call_that_they_break() {
    for (name, set) in [STRATEGIES[0], STRATEGIES[3], STRATEGIES[4]] {
        let faults = befell(set, "reset server client");
        assert_eq!(faults.len(), 1, "{name}: {faults:?}");
        assert!(
            faults[0].starts_with("reset server client before turn "),
            "{faults:?}"
        );
        assert!(faults[0].contains(", felt by "), "{name}: {faults:?}");
        let faults = befell(set, "disk:full server");
        assert!(
            faults[0].contains(", felt by append at "),
            "{name}: {faults:?}"
        );
        let faults = befell(set, "power server");
        assert!(faults[0].starts_with("crash server"), "{name}: {faults:?}");
    }
}

/// Without its end a cut lasts; with it, what was lost comes later. Both happen.
#[test]
fn a_cut_may_heal() {
    let body = |kernel: &mut Kernel| {
        let late = Shared::new(Vec::new());
        let tells = late.clone();
        kernel.net().host("a")?;
        kernel.spawn_on("b", "waits", async move |os: &mut Os| {
            let socket = os.bind_udp("0.0.0.0:7".parse().unwrap()).await.unwrap();
            let mut buf = [0; 1];
            let second = std::time::Duration::from_secs(1);
            let got = os.timeout(second, async |os| socket.recv_from(os, &mut buf).await);
            let got = got.await.is_ok();
            tells.update(|told| told.push(got));
        })?;
        kernel.spawn_on("a", "sends", async |os: &mut Os| {
            let socket = os.bind_udp("0.0.0.0:0".parse().unwrap()).await?;
            let to = os.resolve("b").await?[0];
            os.sleep(std::time::Duration::from_millis(1)).await;
            socket.send_to(os, b"x", (to, 7).into()).await.map(drop)
        })?;
        kernel.run()?;
        kernel.outcome(format!("{:?}", late.get()));
        Ok(())
    };
    let explored = check(body).exhaustive().faults(1, ["cut a b"]).explore();
    assert_eq!(explored.failure, None);
    assert!(
        explored.outcomes.iter().eq(["[false]", "[true]"]),
        "{explored:?}"
    );
    let whole = check(body).exhaustive().explore();
    assert!(whole.outcomes.iter().eq(["[true]"]));
}

// ---- the texts

#[test]
fn a_text_that_is_no_fault_says_so() {
    for (text, why) in [
        ("", "is no fault: write cut A B"),
        ("cut server", "is no fault: write cut A B"),
        ("heal a b", "it ends another fault"),
        (
            "send",
            "say what to do: 'error=KIND', 'delay=TIME' or 'kill'",
        ),
        ("send:break", "say what to do"),
        (
            "send:error=Foo",
            "there is no kind of error 'Foo': there are AddrInUse",
        ),
        ("yield:error=Other", "'yield' cannot fail"),
        ("send:delay=3", "it takes a number and a unit"),
        ("send:kill:3", "say what to do"),
        ("send:when=3", "a search decides when: leave 'when' out"),
        ("send:error=TimedOut:when=3", "a search decides when"),
    ] {
        let error = text.parse::<MayFault>().unwrap_err();
        assert!(error.contains(why), "{text:?}: {error}");
        let search = || check(stores).faults(1, [text]).explore();
        let panic = catch_unwind(AssertUnwindSafe(search)).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>(), Some(&error));
    }
}

#[test]
fn no_fault_is_no_fault() {
    let body: Body = stores;
    let without = check(body).exhaustive().explore();
    let with = check(body)
        .exhaustive()
        .faults(0, ["reset server client"])
        .explore();
    assert_eq!(without.failure, None);
    assert_eq!(with.to_string(), without.to_string());
}

// ---- MOSAIC (Jiang, "The Hitchhiker's Guide to Operating Systems", USENIX ATC 2023)

/// A mail server checks that a file is no link, and then writes to it. An attacker makes it a link.
#[test]
fn the_outcomes_of_mosaics_tocttou() {
    let body = |kernel: &mut Kernel| {
        let (link, said) = (Shared::new(false), Shared::new(""));
        let (makes, reads, says) = (link.clone(), link.clone(), said.clone());
        kernel.spawn("attacker", async move |_: &mut Os| makes.set(true))?;
        kernel.spawn("sendmail", async move |os: &mut Os| {
            if reads.get() {
                return says.set("rejected");
            }
            os.yield_now().await;
            says.set(["file written", "/etc/passwd written"][usize::from(reads.get())]);
        })?;
        kernel.run()?;
        kernel.outcome(said.get());
        Ok(())
    };
    let explored = check(body).exhaustive().explore();
    assert!(explored.proved);
    let all = ["/etc/passwd written", "file written", "rejected"];
    assert!(explored.outcomes.iter().eq(all), "{explored:?}");
}

/// A file gets a second block: its inode, the bitmap and two blocks are written, and the system crashes.
#[test]
fn the_outcomes_of_mosaics_fs_crash() {
    const FILES: [&str; 4] = ["inode", "used", "#1", "#2"];
    let body = |kernel: &mut Kernel| {
        kernel.spawn_on("machine", "writes", async |os: &mut Os| {
            for old in [true, false] {
                for name in FILES {
                    let file = os.disk().open(os, name, Mode::Write).await?;
                    if !old || name != "#2" {
                        file.write_at(os, if old { b"o" } else { b"n" }, 0).await?;
                    }
                    if old {
                        file.sync(os).await?;
                    }
                }
                if old {
                    os.disk().sync_dir(os, ".").await?;
                }
            }
            io::Result::Ok(())
        })?;
        kernel.run()?.check()?;
        let disk = kernel.net().disk("machine")?;
        let images: Vec<_> = disk.images().map(|image| image.files()).collect();
        let (left, said) = (images.len(), Shared::new(0));
        let says = said.clone();
        let crash = async move |os: &mut Os| says.set(os.choose_named("image", left).await);
        kernel.spawn("crash", crash)?;
        kernel.run()?;
        let image = &images[said.get()];
        let text = |name: &str| String::from_utf8_lossy(&image[name]).into_owned();
        let mut outcome = format!("{}; used: {} | {}", text("inode"), text("used"), text("#1"));
        if text("inode") == "n" {
            outcome += &format!(" {}", text("#2"));
        }
        kernel.outcome(outcome);
        Ok(())
    };
    let explored = check(body).exhaustive().explore();
    assert_eq!(explored.failure, None);
    assert!(explored.proved, "{explored}");
    let mut all = BTreeSet::new();
    for (inode, used, one) in [
        ("o", "o", "o"),
        ("o", "o", "n"),
        ("o", "n", "o"),
        ("o", "n", "n"),
    ] {
        all.insert(format!("{inode}; used: {used} | {one}"));
        for two in ["", "n"] {
            all.insert(format!("n; used: {used} | {one} {two}"));
        }
    }
    assert_eq!(explored.outcomes, all);
}

/// Writes two files over and syncs them, or not. A crash at any turn, with all that it may leave, gives these
/// contents and no others.
fn crashes(syncs: bool) -> Explored {
    let body = move |kernel: &mut Kernel| {
        kernel.spawn_on("machine", "writes", async move |os: &mut Os| {
            for text in [b"old", b"new"] {
                for name in ["a", "b"] {
                    let file = os.disk().open(os, name, Mode::Write).await?;
                    file.write_at(os, text, 0).await?;
                    if syncs || text == b"old" {
                        file.sync(os).await?;
                    }
                }
                if text == b"old" {
                    os.disk().sync_dir(os, ".").await?;
                    writeln!(os, "old");
                }
            }
            os.yield_now().await;
            io::Result::Ok(())
        })?;
        kernel.run()?;
        let has_old = kernel.take_console() == "old\n";
        let files = kernel.net().disk("machine")?.files();
        let text = |name: &str| String::from_utf8_lossy(&files[name]).into_owned();
        if has_old {
            kernel.outcome(format!("{} {}", text("a"), text("b")));
        }
        Ok(())
    };
    check(body)
        .exhaustive()
        .faults(1, ["crash machine"])
        .explore()
}

#[test]
fn a_crash_of_a_search_leaves_each_image_of_the_disk() {
    // So many bytes of the new content are on the disk.
    let parts: BTreeSet<String> = (0..=3)
        .map(|n| format!("{}{}", &"new"[..n], &"old"[n..]))
        .collect();
    let pairs = |bs: &BTreeSet<String>| -> BTreeSet<String> {
        let pair = |a: &String| bs.iter().map(|b| format!("{a} {b}")).collect::<Vec<_>>();
        parts.iter().flat_map(pair).collect()
    };
    let unsynced = crashes(false);
    assert!(unsynced.proved, "{unsynced}");
    assert_eq!(unsynced.outcomes, pairs(&parts));
    // With the syncs the second file is written when the first one has all.
    let synced = crashes(true);
    assert!(synced.proved, "{synced}");
    let is_in_order = |pair: &String| pair.ends_with(" old") || pair.starts_with("new ");
    let in_order = pairs(&parts).into_iter().filter(is_in_order);
    assert_eq!(synced.outcomes, in_order.collect());
}
