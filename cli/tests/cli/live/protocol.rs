//! What goes over the socket of a monitor: requests that are none, answers of another process, and
//! clients that do not read; and the file of the socket.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixListener,
    },
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::*;
use crate::support::*;

// ---- clients without manners

#[test]
fn requests_that_are_none_are_answered_and_no_more() {
    let kernel = Kernel::echo("garbage");
    let mut client = kernel.attach();
    for request in [
        "hello",
        "{\"do\":\"dance\"}",
        "{\"do\":\"kill\"}",
        "{\"do\":\"kill\",\"tid\":-1}",
        "{\"do\":\"ps\",\"loudly\":true}",
        "{\"do\":\"trace\",\"tids\":[]}",
        "[[[[[[[[[[",
        "\0\u{1}\u{202e}",
    ] {
        let message = client.error(request);
        assert!(message.starts_with("this is no request: "), "{message}");
    }
    client.say(b"\xff\xfe\n\n\r\n");
    assert_eq!(client.hear()["is"], "error");
    for byte in b"{\"do\":\"ps\"" {
        client.say([*byte]);
    }
    assert_eq!(client.ask("}").len(), 2, "one that comes in parts is one");
    // Several at once are answered in turn.
    client.say("{\"do\":\"ps\"}\n".repeat(20));
    for _ in 0..20 {
        assert_eq!(client.hear()["tid"], 1);
        assert_eq!(client.hear()["is"], "end");
    }
}

/// However much is asked, a moment goes by after each answer.
#[test]
fn a_flood_of_requests_waits_for_its_turn() {
    for request in [
        "{\"do\":\"where\",\"tid\":99}\n",
        "{\"do\":\"kill\",\"tid\":99}\n",
        "nonsense\n",
    ] {
        let kernel = Kernel::echo("requests");
        let mut client = kernel.attach();
        let began = Instant::now();
        client.say(request.repeat(50));
        for _ in 0..50 {
            assert_eq!(client.hear()["is"], "error");
        }
        assert!(began.elapsed() >= Duration::from_millis(49), "{request}");
    }
}

#[test]
fn a_request_without_end_is_not_kept() {
    let kernel = Kernel::echo("long");
    let mut client = kernel.attach();
    // The other end closes before it has read everything.
    let _ = client.0.get_mut().write_all(&[b'x'; 1 << 20]);
    let rest = client.rest();
    assert!(
        rest.is_empty() || rest.contains("at most 4096 bytes"),
        "{rest}"
    );
    assert_eq!(kernel.attach().ask("{\"do\":\"ps\"}").len(), 2);
}

#[test]
fn clients_that_are_silent_vanish_or_do_not_read_disturb_nobody() {
    let mut kernel = Kernel::echo("rude");
    let client = kernel.tcp();
    let silent: Vec<_> = (0..10).map(|_| kernel.attach()).collect();
    for round in 0..50 {
        let mut vanishing = kernel.attach();
        let request = if round % 2 == 0 {
            "{\"do\":\"ps\"}\n"
        } else {
            "{\"do\":\"trace\"}\n"
        };
        vanishing.say(request);
    }
    let unread: Vec<_> = (0..5)
        .map(|_| {
            let mut unread = kernel.attach();
            unread.say("{\"do\":\"trace\",\"sched\":true}\n");
            // More answers than any buffer holds.
            let _ = unread.0.get_ref().set_nonblocking(true);
            let _ = unread
                .0
                .get_mut()
                .write_all("{\"do\":\"ps\"}\n".repeat(10_000).as_bytes());
            unread
        })
        .collect();
    for _ in 0..1000 {
        echo(&client);
    }
    let out = show(&kernel.socket, &["ps"]);
    assert_eq!(out.lines().count(), 3, "{out}");
    drop((silent, unread));
    // The clients' tasks end with the server's.
    assert_eq!(show(&kernel.socket, &["kill", "1"]), "");
    assert_eq!(kernel.end(), Some(0));
}

#[test]
fn there_is_a_limit_on_clients_and_room_again_when_one_goes() {
    let kernel = Kernel::echo("crowd");
    let mut crowd: Vec<_> = (0..64).map(|_| kernel.attach()).collect();
    for client in &mut crowd {
        assert_eq!(client.ask("{\"do\":\"ps\"}").len(), 2);
    }
    let end = &crowd[0].ask("{\"do\":\"ps\"}")[1];
    assert_eq!(
        end["pause"], 0.064,
        "the more there are, the longer all wait"
    );
    let refused = kernel.attach().rest();
    assert!(refused.contains("there are too many clients"), "{refused}");
    let (code, _, err) = ask(&kernel.socket, &["ps"]);
    assert_eq!((code, &*err), (1, "error: there are too many clients\n"));
    crowd.pop();
    // The kernel hears of that in its own time.
    assert!((0..1000).any(|_| ask(&kernel.socket, &["ps"]).0 == 0));
}

/// Sends a request byte by byte, with a tenth of a second between two, until the kernel disconnects.
/// Returns what it has said.
fn drip(client: &mut Client) -> String {
    let pause = Duration::from_millis(100);
    client.0.get_ref().set_read_timeout(Some(pause)).unwrap();
    let mut said = String::new();
    let until = Instant::now() + PATIENCE;
    while client.0.get_mut().write_all(b" ").is_ok() {
        assert!(Instant::now() < until, "it drips for ever");
        match client.0.read_line(&mut said) {
            Ok(0) => break,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => break,
            Ok(_) | Err(_) => {}
        }
    }
    said
}

#[test]
fn a_request_has_a_limit_of_time() {
    let kernel = Kernel::echo("drip");
    let mut client = kernel.attach();
    let said = drip(&mut client);
    assert!(said.contains("a request is complete within 5 s"), "{said}");
    assert_eq!(kernel.attach().ask("{\"do\":\"ps\"}").len(), 2);
}

#[test]
fn clients_that_drip_do_not_take_the_places_of_others() {
    let kernel = Kernel::echo("drips");
    let mut crowd: Vec<_> = (0..64).map(|_| kernel.attach()).collect();
    // The last to come is not the first to go.
    assert_eq!(crowd[63].ask("{\"do\":\"ps\"}").len(), 2);
    let (code, out, _) = eventually("there is a place", || {
        for client in &mut crowd[..63] {
            // One that is disconnected comes again at once.
            if client.0.get_mut().write_all(b" ").is_err() {
                *client = kernel.attach();
            }
        }
        let asked = ask(&kernel.socket, &["ps"]);
        (asked.0 == 0).then_some(asked)
    });
    assert_eq!((code, out.lines().count()), (0, 2), "{out}");
    assert_eq!(crowd[63].ask("{\"do\":\"ps\"}").len(), 2);
}

#[test]
fn clients_that_are_gone_are_not_waited_for() {
    let tasks = ["rings", "--tasks", "5000"];
    let kernel = Kernel::boot_at(place("poll"), rude(&[]), &tasks);
    let began = Instant::now();
    for _ in 0..40 {
        let answers = kernel.attach().ask("{\"do\":\"top\",\"most\":1}");
        let end = answers.last().expect("it has an end");
        assert_eq!(end["is"], "end", "{end}");
        let pause = end["pause"].as_f64().expect("it says how long");
        assert!(pause < 0.5, "{end}");
    }
    // Who comes anew does not get around the wait.
    let took = began.elapsed();
    assert!(took > Duration::from_millis(500), "{took:?}");
    let mut both = kernel.attach();
    both.say("{\"do\":\"top\",\"most\":1}\n".repeat(2));
    both.0.get_ref().shutdown(Shutdown::Write).unwrap();
    let rest = both.rest();
    assert_eq!(rest.matches("\"end\"").count(), 2, "{rest}");
}

/// The end of a kernel has half a second for all that do not read.
#[test]
fn the_end_does_not_wait_for_each_client_that_does_not_read() {
    let mut kernel = Kernel::boot_at(place("stalled"), rude(&[]), &["floods"]);
    let stalled: Vec<_> = (0..10)
        .map(|_| {
            let mut client = kernel.attach();
            client.say("{\"do\":\"trace\",\"sched\":true,\"console\":true}\n");
            assert_eq!(client.hear()["is"], "tracing");
            client
        })
        .collect();
    // Each has more to read than any buffer holds.
    let mut reader = kernel.attach();
    reader.say("{\"do\":\"trace\",\"console\":true}\n");
    for _ in 0..50 {
        reader.hear();
    }
    drop(reader);
    let began = Instant::now();
    kernel.signal(Signal::INT);
    assert_eq!(kernel.end(), Some(130));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    drop(stalled);
}

// ---- the socket

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_kernel() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 0), (Signal::HUP, 129)] {
        let mut kernel = Kernel::echo("owner");
        let file = fs::metadata(&*kernel.socket).unwrap();
        assert!(file.file_type().is_socket());
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        kernel.signal(signal);
        assert_eq!(kernel.end(), Some(code));
        assert!(!kernel.socket.exists());
    }
}

#[test]
fn a_stale_socket_is_replaced_and_nothing_else_is() {
    let socket = place("stale");
    drop(UnixListener::bind(&*socket).unwrap());
    let echo = ["echo", "--addr", "127.0.0.1:0"];
    let kernel = Kernel::boot_at(socket, trapline(&[]), &echo);
    assert_eq!(kernel.attach().ask("{\"do\":\"ps\"}").len(), 2);
    let boot = |path: &Path| {
        let mut command = trapline(&["boot", "-q", "--monitor", text(path), "parts"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(output.stdout, b"", "nothing has run");
        String::from_utf8(output.stderr).unwrap()
    };
    let err = boot(&kernel.socket);
    assert!(err.contains("a kernel listens there already"), "{err}");
    assert_eq!(kernel.attach().ask("{\"do\":\"ps\"}").len(), 2);
    let file = place("file");
    fs::write(&*file, "precious").unwrap();
    let err = boot(&file);
    assert!(err.contains("it is no socket"), "{err}");
    assert_eq!(fs::read(&*file).unwrap(), b"precious");
    let err = boot(Path::new("/no/such/directory/socket"));
    assert!(err.contains("there is no folder /no: make it"), "{err}");
    let err = boot(&place(&"long".repeat(50)));
    assert!(err.contains("cannot listen on"), "{err}");
}

#[test]
fn a_lock_decides_between_kernels_that_find_a_stale_socket() {
    use rustix::fs::{FlockOperation, flock};

    // Another kernel has it, and has not replaced the socket yet.
    let socket = place("contended");
    drop(UnixListener::bind(&*socket).unwrap());
    let lock = socket.with_extension("lock");
    let file = fs::File::create(&lock).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let boot = || {
        let args = ["boot", "-q", "--monitor", text(&socket), "parts"];
        trapline(&args).output().unwrap()
    };
    let output = boot();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("a kernel listens there already"), "{err}");
    assert!(socket.exists() && lock.exists());
    // That kernel was killed: its lock is free, and goes with the next one.
    drop(file);
    assert_eq!(boot().status.code(), Some(0));
    assert!(!socket.exists() && !lock.exists());
}

#[test]
fn a_socket_that_somebody_else_has_put_there_stays() {
    let mut kernel = Kernel::echo("taken");
    fs::remove_file(&*kernel.socket).unwrap();
    let _other = UnixListener::bind(&*kernel.socket).unwrap();
    kernel.signal(Signal::INT);
    assert_eq!(kernel.end(), Some(130));
    assert!(kernel.socket.exists());
}

#[test]
fn what_cannot_be_attached_to_is_said() {
    let nothing = place("nothing");
    let file = place("plain");
    fs::write(&*file, "").unwrap();
    let stale = place("dead");
    drop(UnixListener::bind(&*stale).unwrap());
    for (path, why) in [
        (&nothing, "there is no such socket: boot with --monitor"),
        (
            &file,
            "no kernel listens there: it has ended, or the file is no socket",
        ),
        (
            &stale,
            "no kernel listens there: it has ended, or the file is no socket",
        ),
    ] {
        let (code, out, err) = ask(path, &["ps"]);
        assert_eq!((code, &*out), (1, ""));
        let expected = format!("error: cannot attach to {}: {why}\n", path.display());
        assert_eq!(err, expected);
    }
    let stranger = place("stranger");
    let listener = UnixListener::bind(&*stranger).unwrap();
    thread::spawn(move || {
        listener
            .accept()
            .unwrap()
            .0
            .write_all(b"220 hello\r\n")
            .unwrap();
    });
    let (code, _, err) = ask(&stranger, &["ps"]);
    assert_eq!(
        (code, &*err),
        (1, "error: the server there is no monitor of a kernel\n")
    );
    let boot = trapline(&["boot", "--virtual", "--monitor", text(&nothing), "parts"]).output();
    let boot = boot.unwrap();
    assert_eq!(boot.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&boot.stderr).contains("cannot be used with"));
}

// ---- answers of another process

/// A socket at which something answers a request with these lines, as a monitor would.
fn impostor(test: &str, lines: impl IntoIterator<Item = String> + Send + 'static) -> Place {
    let socket = place(test);
    let listener = UnixListener::bind(&*socket).unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        BufReader::new(&stream).read_line(&mut String::new())?;
        // A client that has read enough hangs up.
        let mut out = io::BufWriter::new(&stream);
        lines
            .into_iter()
            .try_for_each(|line| writeln!(out, "{line}"))
    });
    socket
}

const HOSTILE: &str = r#"{"is":"task","tid":2,"comm":"a\u001b[31m\u202e","parent":3,"state":"blocked","blocked_on":"b\u001b]0;c\u0007","since":1,"traps":0}"#;

#[test]
fn what_a_hostile_socket_answers_is_cleaned() {
    let parent = HOSTILE
        .replace("\"tid\":2", "\"tid\":3")
        .replace("parent\":3", "parent\":2");
    let end = r#"{"is":"end","at":2,"tasks":2,"ready":0,"blocked":2,"zombies":0}"#;
    let error = r#"{"is":"error","message":"\u001b[2Jgone\u009b\u202e"}"#;
    let trap = r#"{"is":"trap","at":1,"tid":2,"comm":"\u009b","message":["\u009b31m\u202e"]}"#;
    for (command, json) in [
        (&["ps"][..], false),
        (&["tree"], false),
        (&["where", "2"], false),
        (&["ps", "--json"], true),
    ] {
        let raw = format!("{} ", HOSTILE.replace("\\u202e", "\u{202e}\u{9b}"));
        let lines = [raw, parent.clone(), trap.into(), end.into()];
        let socket = impostor("hostile", lines);
        let out = show(&socket, command);
        let plain = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
        assert!(out.chars().all(plain), "{command:?}: {out:?}");
        assert!(
            out.contains(if json { "\\u202e\\u009b" } else { "\\u{202e}" }),
            "{out}"
        );
    }
    let (code, out, err) = ask(&impostor("hostile", [error.into()]), &["ps"]);
    let expected = "error: \\u{1b}[2Jgone\\u{9b}\\u{202e}\n";
    assert_eq!((code, &*out, &*err), (1, "", expected));
}

#[test]
fn an_answer_without_end_is_not_kept() {
    let row = HOSTILE.replace("\"a", &format!("\"{}", "a".repeat(1 << 19)));
    let endless = std::iter::repeat_with(move || row.clone());
    let (code, out, err) = ask(&impostor("endless", endless), &["ps"]);
    let expected = "error: the answer is over 64 MiB: --json shows it as it comes\n";
    assert_eq!((code, &*out, &*err), (1, "", expected));
}

#[test]
fn a_table_of_many_tasks_ends_with_their_number() {
    let row = |tid| {
        format!(r#"{{"is":"task","tid":{tid},"comm":"t","parent":0,"state":"ready","traps":0}}"#)
    };
    let end = r#"{"is":"end","at":2,"tasks":2,"ready":0,"blocked":2,"zombies":0}"#;
    let lines = (1..=10_003).map(row).chain([end.into()]);
    let out = show(&impostor("many", lines), &["ps"]);
    assert!(out.ends_with("\nand 3 more tasks: --json lists all\n"));
    assert_eq!(out.lines().count(), 1 + 10_000 + 1);
}
