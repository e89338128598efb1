//! S83 and S84: faults of the simulated network, crashes of hosts, and chaos.

use std::{
    io::{self, ErrorKind},
    time::Duration,
};

use trapline::{Errno, Error, Exit, Fault, Kernel, Os, SimNet, SimWorld};

use super::*;
use crate::support::*;

// ---- faults

#[test]
fn a_fault_that_names_what_does_not_exist_is_an_error() {
    let (_kernel, net) = world();
    for (fault, kind, why) in [
        (
            "cut a nowhere",
            ErrorKind::NotFound,
            "the simulated net has no host \"nowhere\"",
        ),
        (
            "heal nowhere a",
            ErrorKind::NotFound,
            "the simulated net has no host \"nowhere\"",
        ),
        (
            "cut-one-way a a",
            ErrorKind::InvalidInput,
            "\"a\" is one host: a link has two",
        ),
        (
            "hold b b",
            ErrorKind::InvalidInput,
            "\"b\" is one host: a link has two",
        ),
        (
            "slow nowhere 3",
            ErrorKind::NotFound,
            "the simulated net has no host \"nowhere\"",
        ),
        (
            "crash nowhere",
            ErrorKind::NotFound,
            "the simulated net has no host \"nowhere\"",
        ),
        (
            "restart a",
            ErrorKind::InvalidInput,
            "the host \"a\" is up: crash it first",
        ),
    ] {
        let error = net.apply(&fault.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), kind, "{fault}");
        assert!(error.to_string().starts_with(why), "{fault}: {error}");
    }
    let error = net.slow("a", 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("cannot be 0 times"), "{error}");
    net.crash("a").unwrap();
    let error = net.crash("a").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the host \"a\" has crashed already: restart it first"
    );
    net.restart("a").unwrap();
}

#[test]
fn a_fault_is_written_as_a_command() {
    for text in [
        "cut a b",
        "cut-one-way a b",
        "heal a b",
        "hold a b",
        "release a b",
        "reset a b",
        "slow a 5",
        "fragment on",
        "fragment off",
        "crash a",
        "restart a",
    ] {
        assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "cut a",
        "cut a b c",
        "slow a fast",
        "slow a 0",
        "fragment",
        "burn a",
    ] {
        let error = text.parse::<Fault>().unwrap_err().to_string();
        assert!(error.contains("is no fault: write cut A B"), "{error}");
    }
}

/// A program that pings an echo server every 100 ms, and notes each answer that takes long, and the
/// error that ends it.
async fn ping(os: &mut Os) -> io::Result<()> {
    os.sleep(ms(1)).await;
    let stream = os.connect(("b", PORT)).await?;
    note(os, "connected").await;
    for _ in 0..40 {
        let before = os.now().await;
        let answered = async {
            stream.send_all(os, b"ping").await?;
            recv_exact(os, &stream, 4).await
        };
        if let Err(error) = answered.await {
            note(os, format!("{:?}", error.kind())).await;
            return Ok(());
        }
        if os.now().await - before > ms(20) {
            note(os, "a late answer").await;
        }
        os.sleep(ms(100)).await;
    }
    Ok(())
}

/// What a client notes that pings host "b", while these faults happen.
fn pings(faults: &'static [(u64, &'static str)]) -> String {
    let (mut kernel, net) = served();
    let cause = async move |os: &mut Os| {
        for (at, fault) in faults {
            os.sleep_until(ms(*at)).await;
            net.apply(&fault.parse().map_err(io::Error::other)?)?;
        }
        io::Result::Ok(())
    };
    kernel.spawn("faults", cause).unwrap();
    run(&mut kernel, ping)
}

#[test]
fn s83_a_partition_that_heals_delays_what_was_lost() {
    // The ping of 381 ms is under way, and is sent again when the link is healed.
    let console = pings(&[(385, "cut a b"), (5000, "heal a b")]);
    assert_eq!(console, "21 connected\n5020 a late answer\n");
    // The answer of the ping of 381 ms is under way.
    let console = pings(&[(395, "cut a b"), (5000, "heal a b")]);
    assert_eq!(console, "21 connected\n5010 a late answer\n");
    // Nothing is under way.
    let console = pings(&[(450, "cut a b"), (470, "heal a b")]);
    assert_eq!(console, "21 connected\n");
}

#[test]
fn s83_a_partition_that_does_not_heal_ends_the_connection() {
    let console = pings(&[(450, "cut a b")]);
    // A ping every 120 ms: the one of 501 ms is lost.
    assert_eq!(console, "21 connected\n924501 TimedOut\n");
}

#[test]
fn s83_a_cut_of_the_way_back_ends_the_connection_too() {
    let console = pings(&[(450, "cut-one-way b a")]);
    // The ping of 501 ms arrives, and its acknowledgement does not.
    assert_eq!(console, "21 connected\n924511 TimedOut\n");
    let console = pings(&[(450, "cut-one-way b a"), (5000, "heal a b")]);
    assert_eq!(console, "21 connected\n5010 a late answer\n");
    let console = pings(&[(450, "cut-one-way a b")]);
    assert_eq!(console, "21 connected\n924501 TimedOut\n");
}

#[test]
fn s83_a_client_that_connects_through_a_cut_times_out() {
    for cut in ["cut a b", "cut-one-way a b", "cut-one-way b a"] {
        let (mut kernel, net) = served();
        net.apply(&cut.parse().unwrap()).unwrap();
        let console = run(&mut kernel, async |os| {
            failed(os.connect(("b", PORT)).await, os).await;
        });
        assert_eq!(console, "127000 TimedOut\n", "{cut}");
    }
}

#[test]
fn s83_a_link_that_heals_connects_at_once() {
    for (cut_at, cut) in [
        (0, "cut a b"),
        (5, "cut a b"),
        (15, "cut a b"),
        (5, "cut-one-way b a"),
    ] {
        let (mut kernel, net) = served();
        let cause = async move |os: &mut Os| {
            os.sleep(ms(cut_at)).await;
            net.apply(&cut.parse().map_err(io::Error::other)?)?;
            os.sleep_until(ms(20_000)).await;
            net.heal("a", "b")
        };
        kernel.spawn("faults", cause).unwrap();
        let console = connected(&mut kernel, async |os, stream| {
            note(os, "connected").await;
            pinged(os, &stream).await?;
            Ok(())
        });
        assert_eq!(console, "20020 connected\n", "{cut} at {cut_at} ms");
    }
}

#[test]
fn s83_the_end_of_the_handshake_is_sent_again() {
    // The client is connected, and the server does not know yet.
    let (mut kernel, net) = served();
    let cause = async move |os: &mut Os| {
        os.sleep(ms(25)).await;
        net.cut("a", "b")?;
        os.sleep(ms(1000)).await;
        net.heal("a", "b")
    };
    kernel.spawn("faults", cause).unwrap();
    let console = connected(&mut kernel, async |os, stream| {
        note(os, "connected").await;
        pinged(os, &stream).await?;
        note(os, "answered").await;
        Ok(())
    });
    assert_eq!(console, "21 connected\n1045 answered\n");
}

#[test]
fn s83_the_times_are_settings() {
    let (mut kernel, net) = served();
    let net = net.connect_timeout(ms(5000)).retransmission_limit(ms(2000));
    let console = connected(&mut kernel, async move |os, stream| {
        net.cut("a", "b")?;
        stream.send_all(os, b"lost").await?;
        failed(stream.recv(os, &mut [0; 9]).await, os).await;
        failed(os.connect(("b", PORT)).await, os).await;
        Ok(())
    });
    assert_eq!(console, "2021 TimedOut\n7021 TimedOut\n");
}

#[test]
fn s83_a_client_gives_up_when_the_answer_comes_too_late() {
    // A round trip takes 20 ms.
    for (limit, outcome) in [
        (20, "21 connected"),
        (19, "20 TimedOut"),
        (9, "10 TimedOut"),
    ] {
        let (mut kernel, net) = served();
        net.connect_timeout(ms(limit));
        let console = run(&mut kernel, async |os| {
            os.sleep(ms(1)).await;
            match os.connect(("b", PORT)).await {
                Ok(_) => note(os, "connected").await,
                Err(error) => note(os, format!("{:?}", error.kind())).await,
            }
        });
        assert_eq!(console, format!("{outcome}\n"), "{limit} ms");
    }
}

#[test]
fn s83_a_refusal_that_comes_too_late_is_not_waited_for() {
    let (mut kernel, net) = world();
    net.connect_timeout(ms(15));
    let console = run(&mut kernel, async move |os| {
        failed(os.connect(("b", PORT)).await, os).await;
        let unknown: SocketAddr = ([10, 9, 9, 9], PORT).into();
        failed(os.connect(unknown).await, os).await;
        net.connect_timeout(ms(0));
        failed(os.connect(("b", PORT)).await, os).await;
        net.connect_timeout(ms(300));
        net.slow("b", 20)?;
        failed(os.connect(("b", PORT)).await, os).await;
        net.latency(Duration::MAX..=Duration::MAX);
        failed(os.connect(("b", PORT)).await, os).await;
        io::Result::Ok(())
    });
    let expected = "15 TimedOut\n30 TimedOut\n30 TimedOut\n330 TimedOut\n630 TimedOut\n";
    assert_eq!(console, expected);
}

#[test]
fn s83_a_client_that_gave_up_too_early_leaves_no_connection() {
    let (mut kernel, net) = world();
    net.limit_backlog("b", 1).unwrap();
    net.connect_timeout(ms(15));
    let server = serve(&mut kernel, async |os, stream| {
        let mut buf = [0; 9];
        assert_eq!(stream.recv(os, &mut buf).await?, 6);
        note(os, "second").await;
        Ok(())
    });
    let console = run(&mut kernel, async move |os| {
        os.sleep(ms(1)).await;
        // The server has agreed: the answer is under way.
        failed(os.connect(("b", PORT)).await, os).await;
        net.connect_timeout(ms(20));
        os.connect(("b", PORT))
            .await?
            .send_all(os, b"second")
            .await?;
        os.wait(server).await.map(drop).map_err(io::Error::from)
    });
    assert_eq!(console, "16 TimedOut\n46 second\n");
}

#[test]
fn s83_a_connection_whose_packets_come_too_late_fails_at_its_limit() {
    for (latency, answered) in [(1000, true), (1001, false)] {
        let (mut kernel, net) = served();
        let console = connected(&mut kernel, async move |os, stream| {
            pinged(os, &stream).await?;
            net.retransmission_limit(ms(1000));
            net.latency(ms(latency)..=ms(latency));
            match pinged(os, &stream).await {
                Ok(()) => note(os, "answered").await,
                Err(error) => note(os, format!("{:?}", error.kind())).await,
            }
            Ok(())
        });
        let expected = if answered {
            "2041 answered\n"
        } else {
            "1041 TimedOut\n"
        };
        assert_eq!(console, expected, "{latency} ms");
    }
}

#[test]
fn s83_what_arrives_meanwhile_begins_the_limit_anew() {
    let (mut kernel, net) = served();
    let console = connected(&mut kernel, async move |os, stream| {
        // Segments of 8 KiB arrive every 819 ms, and the last one after the limit.
        net.retransmission_limit(ms(1000)).bandwidth(10_000);
        stream.send_all(os, &[1; 16_384]).await?;
        recv_exact(os, &stream, 8192).await?;
        note(os, "half").await;
        recv_exact(os, &stream, 8192).await?;
        net.latency(ms(1500)..=ms(1500));
        stream.send_all(os, &[1; 8192]).await?;
        failed(stream.recv(os, &mut [0; 9]).await, os).await;
        Ok(())
    });
    assert_eq!(console, "1679 half\n3498 TimedOut\n");
}

#[test]
fn s83_a_slow_connection_that_is_held_does_not_fail() {
    let (mut kernel, net) = served();
    let console = connected(&mut kernel, async move |os, stream| {
        net.retransmission_limit(ms(1000));
        net.latency(ms(5000)..=ms(5000));
        stream.send_all(os, b"ping").await?;
        net.hold("a", "b")?;
        os.sleep(ms(2000)).await;
        net.retransmission_limit(ms(5000)).release("a", "b")?;
        recv_exact(os, &stream, 4).await?;
        note(os, "answered").await;
        Ok(())
    });
    assert_eq!(console, "12021 answered\n");
}

#[test]
fn s83_a_slow_connection_fails_at_its_limit_after_a_link_has_healed() {
    let (mut kernel, net) = served();
    let console = connected(&mut kernel, async move |os, stream| {
        net.retransmission_limit(ms(1000));
        net.latency(ms(5000)..=ms(5000));
        stream.send_all(os, b"ping").await?;
        // The ping is under way on the other way.
        net.cut_one_way("b", "a")?;
        os.sleep(ms(500)).await;
        net.heal("a", "b")?;
        failed(stream.recv(os, &mut [0; 9]).await, os).await;
        Ok(())
    });
    assert_eq!(console, "1521 TimedOut\n");
}

#[test]
fn s83_late_news_of_room_needs_no_acknowledgement() {
    let (mut kernel, net) = served();
    net.buffer(8);
    let console = connected(&mut kernel, async move |os, stream| {
        for _ in 0..2 {
            stream.send_all(os, &[1; 8]).await?;
            os.sleep(ms(20)).await;
        }
        // The server waits for room. The byte arrives before the news of it.
        stream.send_all(os, b"x").await?;
        net.retransmission_limit(ms(1000));
        net.latency(ms(5000)..=ms(5000));
        recv_exact(os, &stream, 8).await?;
        os.sleep(ms(3000)).await;
        net.retransmission_limit(ms(9000));
        recv_exact(os, &stream, 8).await?;
        note(os, "all").await;
        Ok(())
    });
    assert_eq!(console, "10061 all\n");
}

#[test]
fn s83_a_peer_that_has_given_up_answers_with_a_reset() {
    let (mut kernel, net) = world();
    net.retransmission_limit(ms(2000));
    let server = serve(&mut kernel, async |os, stream| {
        os.sleep(ms(4000)).await;
        stream.send_all(os, b"late").await?;
        let error = kind(stream.recv(os, &mut [0; 9]).await);
        note(os, format!("server {error:?}")).await;
        Ok(())
    });
    connected(&mut kernel, async move |os, stream| {
        os.sleep(ms(50)).await;
        net.cut("a", "b")?;
        stream.send_all(os, b"lost").await?;
        assert_eq!(
            kind(stream.recv(os, &mut [0; 9]).await),
            ErrorKind::TimedOut
        );
        net.heal("a", "b")
    });
    kernel.run_until(&[server]).unwrap().check().unwrap();
    assert_eq!(kernel.take_console(), "4051 server ConnectionReset\n");
}

#[test]
fn s83_a_reset_behind_lost_bytes_is_sent_when_the_link_has_healed() {
    for sends in [false, true] {
        let (mut kernel, net) = world();
        let server = serve(&mut kernel, async |os, stream| {
            stream.send_all(os, b"unread").await?;
            failed(stream.recv(os, &mut [0; 9]).await, os).await;
            Ok::<(), io::Error>(())
        });
        connected(&mut kernel, async move |os, stream| {
            os.sleep(ms(50)).await;
            net.cut("a", "b")?;
            if sends {
                stream.send_all(os, b"lost").await?;
            }
            drop(stream);
            os.sleep(ms(100)).await;
            net.heal("a", "b")
        });
        kernel.run_until(&[server]).unwrap().check().unwrap();
        assert_eq!(kernel.take_console(), "181 ConnectionReset\n", "{sends}");
    }
}

#[test]
fn s83_a_request_that_comes_late_does_not_hide_that_the_listener_is_closed() {
    let (mut kernel, net) = world();
    let server = async |os: &mut Os| {
        let listener = os.listen(any(PORT)).await?;
        let accept = async |os: &mut Os| listener.accept(os).await.map(drop);
        assert!(os.timeout(ms(3000), accept).await.is_err());
        Ok::<(), io::Error>(())
    };
    kernel.spawn_on("b", "server", server).unwrap();
    let others = net.clone();
    let faults = async move |os: &mut Os| {
        // The answer is slow. The link is cut behind it, so the client asks again.
        os.sleep(ms(5)).await;
        others.latency(ms(5000)..=ms(5000));
        os.sleep(ms(10)).await;
        others.cut_one_way("a", "b")?;
        others.heal("a", "b")?;
        others.latency(ms(10)..=ms(10));
        Ok::<(), io::Error>(())
    };
    kernel.spawn("faults", faults).unwrap();
    let console = connected(&mut kernel, async move |os, stream| {
        note(os, "connected").await;
        failed(stream.recv(os, &mut [0; 9]).await, os).await;
        Ok(())
    });
    assert_eq!(console, "5011 connected\n5031 ConnectionReset\n");
}

#[test]
fn s83_what_was_lost_on_a_slow_link_holds_nothing_back_when_it_has_healed() {
    for slow in [ms(60_000), Duration::MAX] {
        for connects in [false, true] {
            let (mut kernel, net) = served();
            let console = run(&mut kernel, async move |os| {
                os.sleep(ms(1)).await;
                let connected = match connects {
                    true => None,
                    false => Some(os.connect(("b", PORT)).await?),
                };
                net.latency(slow..=slow);
                let others = net.clone();
                let heals = async move |os: &mut Os| {
                    os.sleep(ms(100)).await;
                    others.cut("a", "b")?;
                    others.latency(ms(10)..=ms(10)).heal("a", "b")
                };
                os.spawn("heals", heals).await?;
                let stream = match connected {
                    Some(stream) => stream,
                    None => os.connect(("b", PORT)).await?,
                };
                pinged(os, &stream).await?;
                note(os, "answered").await;
                Ok::<(), io::Error>(())
            });
            assert_eq!(console, "141 answered\n", "{slow:?} {connects}");
        }
    }
}

#[test]
fn a_held_link_delays_and_loses_nothing() {
    let console = pings(&[(385, "hold a b"), (2_000_000, "release a b")]);
    assert_eq!(console, "21 connected\n2000020 a late answer\n");
}

#[test]
fn a_reset_ends_the_connections_of_two_hosts_only() {
    let console = pings(&[(450, "reset a c"), (460, "reset b a")]);
    assert_eq!(console, "21 connected\n501 ConnectionReset\n");
}

#[test]
fn a_slow_host_takes_a_multiple_of_the_latency() {
    let console = pings(&[(450, "slow b 100"), (2000, "slow b 1")]);
    // The answer to the ping of 501 ms travels when the host is no longer slow.
    assert_eq!(console, "21 connected\n2501 a late answer\n");
}

// ---- S84

#[test]
fn s84_a_crashed_hosts_tasks_end_at_the_callers_next_trap() {
    let (mut kernel, net) = world();
    let diary = Diary::default();
    for (host, line) in [("a", "the one on a"), ("b", "the one on b")] {
        let ends = diary.on_drop(line);
        let sleeper = async move |os: &mut Os| {
            let _ends = ends;
            os.sleep(ms(1000)).await;
        };
        kernel.spawn_on(host, "sleeper", sleeper).unwrap();
    }
    let told = diary.clone();
    let main = async move |os: &mut Os| {
        os.sleep(ms(10)).await;
        net.crash("b")?;
        told.note("crashed");
        os.yield_now().await;
        told.note("after the trap");
        assert_eq!(
            os.spawn_on("b", "late", async |_| ()).await,
            Err(Errno::HostDown)
        );
        io::Result::Ok(())
    };
    let main = kernel.spawn("main", main).unwrap();
    kernel.run_until(&[main]).unwrap().check().unwrap();
    kernel.audit();
    assert_eq!(diary.text(), "crashed, the one on b, after the trap");
}

#[test]
fn s84_a_crash_from_outside_comes_before_any_turn() {
    let (mut kernel, net) = world();
    kernel
        .spawn_on("b", "victim", async |os: &mut Os| writeln!(os, "alive"))
        .unwrap();
    net.crash("b").unwrap();
    let report = kernel.run().unwrap();
    assert_eq!((kernel.take_console().as_str(), report.ticks), ("", 0));
    assert_eq!(report.exits().values().next(), Some(&Exit::Killed));
}

#[test]
fn s84_a_task_that_crashes_its_own_host_ends_at_its_next_trap() {
    let (mut kernel, net) = world();
    let main = async move |os: &mut Os| {
        net.crash("a")?;
        writeln!(os, "last words");
        os.yield_now().await;
        writeln!(os, "not reached");
        io::Result::Ok(())
    };
    kernel.spawn_on("a", "main", main).unwrap();
    kernel.run().unwrap();
    assert_eq!(kernel.take_console(), "last words\n");
}

#[test]
fn s84_nothing_that_dying_tasks_do_leaves_the_host() {
    let (mut kernel, net) = world();
    serve(&mut kernel, async |os, stream| {
        // Dropped by the crash, with its socket.
        stream.recv(os, &mut [0; 9]).await.map(drop)
    });
    let console = connected(&mut kernel, async move |os, stream| {
        os.sleep(ms(100)).await;
        net.crash("b")?;
        let silence = os.timeout(ms(60_000), async |os| stream.recv(os, &mut [0; 9]).await);
        assert!(silence.await.is_err(), "no one tells the client");
        // What it sends now, and is lost 10 ms later, is not acknowledged.
        stream.send_all(os, b"ping").await?;
        failed(stream.recv(os, &mut [0; 9]).await, os).await;
        Ok(())
    });
    assert_eq!(console, "984131 TimedOut\n");
}

#[test]
fn s84_a_peer_of_before_is_reset_after_the_restart() {
    let (mut kernel, net) = served();
    kernel.on_restart("b", boot_echo).unwrap();
    let console = run(&mut kernel, async move |os| {
        os.sleep(ms(1)).await;
        let idle = os.connect(("b", PORT)).await?;
        let busy = os.connect(("b", PORT)).await?;
        os.sleep(ms(100)).await;
        net.crash("b")?;
        busy.send_all(os, b"ping").await?;
        os.sleep(ms(1000)).await;
        net.restart("b")?;
        failed(busy.recv(os, &mut [0; 9]).await, os).await;
        idle.send_all(os, b"ping").await?;
        failed(idle.recv(os, &mut [0; 9]).await, os).await;
        let again = os.connect(("b", PORT)).await?;
        again.send_all(os, b"ping").await?;
        recv_exact(os, &again, 4).await?;
        io::Result::Ok(())
    });
    assert_eq!(console, "1161 ConnectionReset\n1181 ConnectionReset\n");
}

#[test]
fn s84_what_has_left_the_host_still_arrives() {
    let (mut kernel, net) = world();
    serve(&mut kernel, async |os, stream| {
        stream.send_all(os, b"hello").await?;
        os.sleep(ms(1000)).await;
        Ok(())
    });
    let console = connected(&mut kernel, async move |os, stream| {
        // The server has it, and has greeted.
        os.sleep(ms(14)).await;
        net.crash("b")?;
        let n = stream.recv(os, &mut [0; 9]).await?;
        note(os, n.to_string()).await;
        Ok(())
    });
    assert_eq!(console, "41 5\n");
}

#[test]
fn s84_a_client_that_connects_to_a_crashed_host_waits_for_its_restart() {
    for (boots, expected) in [
        (true, "1020 connected\n"),
        (false, "1020 ConnectionRefused\n"),
    ] {
        let (mut kernel, net) = world();
        net.crash("b").unwrap();
        if boots {
            kernel.on_restart("b", boot_echo).unwrap();
        }
        let cause = async move |os: &mut Os| {
            os.sleep(ms(1000)).await;
            net.restart("b")
        };
        kernel.spawn("faults", cause).unwrap();
        let console = run(&mut kernel, async |os| {
            match os.connect(("b", PORT)).await {
                Ok(_) => note(os, "connected").await,
                Err(error) => note(os, format!("{:?}", error.kind())).await,
            }
        });
        assert_eq!(console, expected);
    }
}

#[test]
fn s84_a_closure_that_runs_the_kernel_gets_an_error() {
    let (mut kernel, net) = world();
    let diary = Diary::default();
    let told = diary.clone();
    let boot = move |kernel: &mut Kernel| {
        told.note(kernel.run().unwrap_err().to_string());
        told.note(kernel.step().unwrap_err().to_string());
        panic!("it panics");
    };
    kernel.on_restart("b", boot).unwrap();
    let told = diary.clone();
    kernel
        .on_restart("b", move |_| told.note("the other one"))
        .unwrap();
    run(&mut kernel, async move |os| {
        for _ in 0..2 {
            net.crash("b")?;
            os.yield_now().await;
            net.restart("b")?;
            os.yield_now().await;
        }
        io::Result::Ok(())
    });
    let why = "the world failed: a closure of on_restart runs the kernel that called it: let it \
               spawn only";
    let once = format!("{why}, {why}, the other one");
    assert_eq!(diary.text(), format!("{once}, {once}"));
}

/// The faults that happen in 100 seconds of chaos of that level.
fn chaos(level: u8, seed: u64) -> Vec<String> {
    let net = SimNet::new().chaos(level);
    let world = SimWorld::new(seed).net(&net);
    let (mut kernel, log) = logged(Kernel::builder().world(world));
    kernel.spawn_on("b", "server", echo).unwrap();
    kernel.on_restart("b", boot_echo).unwrap();
    kernel
        .spawn_on("c", "bystander", async |os: &mut Os| {
            os.sleep(ms(200_000)).await;
        })
        .unwrap();
    let watch = kernel
        .spawn("watch", async |os: &mut Os| os.sleep(ms(100_000)).await)
        .unwrap();
    kernel.run_until(&[watch]).unwrap();
    let faults = log
        .lines()
        .into_iter()
        .filter(|line| line.contains(" fault: "));
    faults.collect()
}

#[test]
fn chaos_breaks_things_for_a_minute_and_mends_them_all() {
    let count = |level| -> usize { (1..=5).map(|seed| chaos(level, seed).len()).sum() };
    let [none, few, more, most] = [0, 1, 2, 3].map(count);
    assert!(
        none == 0 && 50 < few && few < more && more < most,
        "{few}, {more}, {most}"
    );
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 1..=20 {
        let mut broken = 0i32;
        let faults = chaos(3, seed);
        for line in &faults {
            let (at, fault) = line.split_once(" 0 fault: ").unwrap();
            assert!(at <= "01:00.000000000", "{line}");
            let kind = fault.split(' ').next().unwrap();
            kinds.insert(kind.to_string());
            broken += match kind {
                "cut" | "cut-one-way" | "crash" => 1,
                "slow" if !fault.ends_with(" 1") => 1,
                "heal" | "restart" | "slow" => -1,
                _ => 0,
            };
            assert!(!fault.starts_with("crash c"), "nothing boots it again");
        }
        assert_eq!(broken, 0, "{faults:#?}");
    }
    let all = [
        "crash",
        "cut",
        "cut-one-way",
        "heal",
        "reset",
        "restart",
        "slow",
    ];
    assert!(kinds.iter().eq(all), "{kinds:?}");
}

#[test]
fn chaos_follows_from_the_seed_and_keeps_no_run_alive() {
    assert_eq!(chaos(2, 3), chaos(2, 3));
    assert_ne!(chaos(2, 3), chaos(2, 4));
    let net = SimNet::new().chaos(3);
    let world = SimWorld::new(1).net(&net);
    let mut kernel = Kernel::builder().world(world).build().unwrap();
    kernel.spawn_on("b", "server", echo).unwrap();
    let Err(Error::Deadlock(_)) = kernel.run() else {
        panic!("nothing can come");
    };
    assert_eq!(kernel.now(), Duration::ZERO);
}

#[test]
fn a_fault_is_an_event() {
    let net = SimNet::new();
    let world = SimWorld::new(1).net(&net);
    let (mut kernel, log) = logged(Kernel::builder().world(world));
    for host in ["a", "b"] {
        net.host(host).unwrap();
    }
    net.cut("a", "b").unwrap();
    run(&mut kernel, async move |os| {
        os.sleep(ms(5)).await;
        net.crash("b")?;
        os.yield_now().await;
        io::Result::Ok(())
    });
    let lines = log.lines();
    let faults: Vec<_> = lines
        .iter()
        .filter(|line| line.contains(" fault: "))
        .collect();
    assert_eq!(
        faults,
        [
            "00:00.000000000 0 fault: cut a b",
            "00:00.005000000 1 fault: crash b"
        ]
    );
    assert!(
        lines[0].ends_with("1 spawned \"main@a\" by 0"),
        "{}",
        lines[0]
    );
}
