//! Scripts and tapes that no run in `cli/tests` has: addresses of machines, connections that fail,
//! resets, limits.

use std::{
    env,
    error::Error,
    ffi::OsString,
    fs,
    net::{IpAddr, SocketAddr},
    process,
    sync::Arc,
    time::Duration,
};

use trapline::{
    Explored, Os, Signal, SimNet, SimWorld, TcpListener, TcpStream,
    tape::{Header, Taping},
};

use super::{
    script::{Act, Listener, Outcome, Peer, Script, Sent, Step, Way},
    *,
};
use crate::{App, Program, args, commands::Commands, program::program};

/// Port 80 of a machine, which the real world of a test does not have.
fn far(machine: u8) -> SocketAddr {
    ([192, 0, 2, machine], 80).into()
}

fn near(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn listener(addr: SocketAddr, has_any_port: bool, task: &str) -> Listener {
    Listener {
        addr,
        has_any_port,
        task: task.to_string(),
    }
}

/// A peer that gets this many bytes.
fn peer(way: Way, outcome: Outcome, gets: u64) -> Peer {
    Peer {
        gets,
        is_closed: true,
        ..Peer::new(way, outcome, Vec::new())
    }
}

fn client(number: usize, gets: u64) -> Peer {
    let from = near(5000);
    peer(Way::ToListener { number, from }, Outcome::Established, gets)
}

fn to(addr: SocketAddr, outcome: Outcome) -> Peer {
    peer(Way::ToPeer(addr), outcome, 0)
}

fn server(gets: u64) -> Peer {
    peer(Way::ToPeer(far(7)), Outcome::Established, gets)
}

/// What these peers did with a program that listens at these addresses.
fn script_at<const N: usize>(addrs: [SocketAddr; N], peers: Vec<Peer>) -> Script {
    Script {
        listeners: addrs.map(|addr| listener(addr, false, "")).into(),
        peers,
        ..Script::default()
    }
}

fn script(peers: Vec<Peer>) -> Script {
    script_at([near(80)], peers)
}

/// Does what it is told
#[derive(clap::Args)]
struct Does {
    what: String,
}

type Done = Result<(), Box<dyn Error>>;

impl Program for Does {
    async fn main(self, os: &mut Os) -> Done {
        match &*self.what {
            "serves-outside" => {
                let listener = os.listen(far(7)).await?;
                let (stream, from) = listener.accept(os).await?;
                assert_eq!(from.ip(), far(7).ip(), "it is a host of the same net");
                stream.send_all(os, b"hello").await?;
            }
            "connects-late" => {
                os.sleep(Duration::from_secs(20)).await;
                let stream = os.connect(far(7)).await?;
                stream.send_all(os, b"at last").await?;
                os.sleep(Duration::from_secs(3600)).await;
            }
            "only-accepts" => {
                let listener = os.listen(near(80)).await?;
                let mut streams = Vec::new();
                loop {
                    streams.push(listener.accept(os).await?);
                }
            }
            "sleeps" => os.sleep(Duration::from_secs(3600)).await,
            "is-signalled" => is_signalled(os).await?,
            "meets-silence" => meets_silence(os).await?,
            "meets-a-reset" => meets_a_reset(os).await?,
            "fails-to-connect" => fails_to_connect(os).await?,
            "connects-to-itself" => {
                let _itself = itself(os).await?;
                for _ in 0..1000 {
                    os.sleep(Duration::from_secs(1)).await;
                }
            }
            "fails-late" => {
                let _itself = itself(os).await?;
                os.sleep(Duration::from_secs(3600)).await;
                return Err("as on the tape".into());
            }
            "fails-refused" => {
                let refused = os.connect(far(8)).await.unwrap_err();
                os.sleep(Duration::from_secs(3600)).await;
                return Err(refused.into());
            }
            "starts-ten" => {
                for _ in 0..10 {
                    let naps = async |os: &mut Os| os.sleep(Duration::from_secs(1)).await;
                    os.spawn_detached("child", naps).await?;
                }
            }
            other => unreachable!("{other}"),
        }
        Ok(())
    }
}

/// Fails when its client leaves, and when it is silent for long.
async fn meets_silence(os: &mut Os) -> Done {
    let listener = os.listen(near(80)).await?;
    let (stream, _) = listener.accept(os).await?;
    let receives = async |os: &mut Os| stream.recv(os, &mut [0; 16]).await;
    let received = os.timeout(Duration::from_secs(10), receives).await;
    Err(format!("{received:?}").into())
}

async fn meets_a_reset(os: &mut Os) -> Done {
    let listener = os.listen(near(80)).await?;
    let (stream, _) = listener.accept(os).await?;
    let mut buf = [0; 16];
    assert_eq!(stream.recv(os, &mut buf).await?, 4);
    let error = stream.recv(os, &mut buf).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    Ok(())
}

async fn fails_to_connect(os: &mut Os) -> Done {
    let connects = async |os: &mut Os| os.connect(far(7)).await;
    let given_up = os.timeout(Duration::from_secs(1), connects).await;
    assert!(given_up.is_err(), "an answer came");
    for (machine, expected) in [
        (7, io::ErrorKind::TimedOut),
        (8, io::ErrorKind::ConnectionRefused),
        (9, io::ErrorKind::HostUnreachable),
    ] {
        let error = os.connect(far(machine)).await.unwrap_err();
        assert_eq!(error.kind(), expected);
    }
    Ok(())
}

async fn itself(os: &mut Os) -> io::Result<(TcpListener, [TcpStream; 2])> {
    let listener = os.listen(near(80)).await?;
    let own = os.connect(listener.local_addr()?).await?;
    let (other, _) = listener.accept(os).await?;
    Ok((listener, [own, other]))
}

fn line(what: &str) -> BootLine {
    let app = App::new([program::<Does>("program")]);
    let commands = Commands {
        command: &args::command("test", &app),
        programs: &app.programs,
        policies: &app.policies,
    };
    let words = ["test", "boot", "program", what].map(OsString::from);
    let line = BootLine::parse(commands, &words);
    line.expect("it is right").expect("it is boot")
}

/// It accepts two connections. A signal comes between them, and another a second later.
async fn is_signalled(os: &mut Os) -> Done {
    let signals = os.catch(&[Signal::User1]).await;
    let listener = os.listen(near(80)).await?;
    let hears = os.spawn_child("hears", async move |os: &mut Os| {
        signals.next(os).await;
        let first = os.now().await;
        signals.next(os).await;
        (first, os.now().await)
    });
    let mut hears = hears.await?;
    let _one = listener.accept(os).await?;
    let one = os.now().await;
    let _other = listener.accept(os).await?;
    let other = os.now().await;
    let (first, second) = hears.wait(os).await.map_err(|exit| exit.to_string())?;
    // The peer knows that it is connected a packet before the program does.
    let packet = Duration::from_micros(100);
    let is_between = one <= first + packet && first < other;
    assert!(is_between, "{one:?} {first:?} {other:?}");
    assert_eq!(second - first, Duration::from_secs(1));
    Ok(())
}

/// Searches a few schedules of a program with these peers. No more tasks than so many of the run may
/// live at once.
fn searched(what: &str, script: Script, max_tasks: Option<usize>) -> Explored {
    let mut line = line(what);
    line.options.max_tasks = max_tasks;
    let script = Arc::new(script);
    let wanted = SearchOptions {
        explore: NonZeroU64::new(20),
        schedule: None,
        expect: Expect::Bytes,
    };
    let body = |kernel: &mut Kernel| {
        let course = Course::Tape(Expect::Bytes, Arc::default());
        trial(kernel, &line.programs, &script, course)
    };
    let search = search(body, &script, &line, &wanted);
    search.expect("it is right").explore()
}

/// Tapes a program in a simulated world, and reads the script off the tape. The replay ends at this
/// time.
fn noted(what: &str, max_time: Option<Duration>) -> Script {
    let net = SimNet::new();
    net.host_at("silent", far(7).ip()).unwrap();
    net.host_at("closed", far(8).ip()).unwrap();
    net.cut("localhost", "silent").unwrap();
    let mut line = line(what);
    let name = format!("trapline-reenact-{what}-{}", process::id());
    let path = env::temp_dir().join(name);
    let mut header = Header::default();
    header.seed = 1;
    let world = SimWorld::new(1).net(&net);
    let world = Taping::create(world, &path, &header, None).expect("it is created");
    let rules = Rules::new(&[]);
    let builder = boot::settings(&line, 1, &rules, Outside::of(world));
    let mut kernel = builder.build().expect("it boots");
    let desk = boot::desk(&line, &rules);
    boot::load(&mut kernel, &line, desk, Log::SILENT).unwrap();
    kernel.run().expect("it ends").check().expect("it is well");
    drop(kernel);
    let playing = Playing::open(&path).expect("it is a tape");
    line.options.max_time = max_time;
    let script = script_of(playing, 0, &line, Log::SILENT);
    fs::remove_file(path).expect("it is there");
    script.expect("there is one")
}

fn passes(explored: &Explored) {
    let why = explored.failure.as_ref().map(|failure| &failure.why);
    assert_eq!((why, explored.schedules), (None, 20));
}

#[test]
fn peers_do_as_on_the_tape_and_the_run_goes_on_until_the_programs_have_done_so() {
    let stopped = |peers| Script {
        is_stopped: true,
        ..script(peers)
    };
    let silent = Peer {
        is_closed: false,
        ..client(0, 0)
    };
    let step = |act| Step {
        after: 0,
        pause: Duration::ZERO,
        act,
    };
    let resets = Peer {
        steps: vec![step(Act::Send(b"word".into())), step(Act::Break)],
        ..client(0, 0)
    };
    let late = Peer {
        before: vec![server(7).mark(1)],
        ..client(0, 0)
    };
    let misses = "the program does not do what it did on the tape (to 192.0.2.7:80)";
    let outside = script_at([far(7)], vec![client(0, 5)]);
    let own = script(vec![to(near(80), Outcome::Established), client(0, 0)]);
    let refused = script_at([], vec![to(far(8), Outcome::Refused)]);
    for (what, script, expected) in [
        ("serves-outside", outside, &[][..]),
        ("connects-late", stopped(vec![server(7)]), &[]),
        (
            "sleeps",
            stopped(vec![server(7)]),
            &[misses, "[program 4 exits: killed]"],
        ),
        (
            "only-accepts",
            script(vec![client(0, 0), server(7), late]),
            &[misses],
        ),
        ("meets-silence", stopped(vec![silent]), &[]),
        ("meets-a-reset", script(vec![resets]), &[]),
        ("fails-late", own, &["as on the tape"]),
        ("fails-refused", refused, &["connection refused"]),
    ] {
        let explored = searched(what, script.judged().unwrap(), None);
        match (&explored.failure, expected) {
            (_, []) => passes(&explored),
            (None, _) => panic!("{what} passes"),
            (Some(_), expected) => {
                let report = explored.to_string();
                assert!(
                    expected.iter().all(|line| report.contains(line)),
                    "{report}"
                );
            }
        }
    }
}

/// The connections are later than on the tape.
#[test]
fn signals_keep_their_places_and_their_distances() {
    let sent = |pause| Sent {
        signal: Signal::User1,
        at: pause,
        pause,
        peers: 1,
        before: Vec::new(),
    };
    let mut script = script(vec![client(0, 0), client(0, 0)]);
    script.signals = vec![sent(Duration::ZERO), sent(Duration::from_secs(1))];
    script.signals[1].peers = 2;
    passes(&searched("is-signalled", script.judged().unwrap(), None));
}

#[test]
fn a_connection_that_failed_on_the_tape_fails_in_the_same_way() {
    let script = noted("fails-to-connect", None);
    passes(&searched("fails-to-connect", script, None));
}

#[test]
fn the_limits_are_those_of_the_run() {
    let [whole, cut] = [None, Some(Duration::from_secs(500))]
        .map(|max_time| noted("connects-to-itself", max_time));
    assert!(!whole.is_stopped && cut.is_stopped);
    assert!(whole.peers.iter().all(|peer| peer.is_closed));
    assert!(
        !cut.peers.iter().any(|peer| peer.is_closed),
        "its end closes them"
    );
    assert!((1000..2000).contains(&whole.ticks), "{}", whole.ticks);
    let most = [whole.ticks, 10_000_000, u64::MAX].map(most_turns);
    assert_eq!(most, [1_000_000, 160_000_000, u64::MAX]);
    for tasks in [None, Some(11)] {
        passes(&searched("starts-ten", Script::default(), tasks));
    }
    let explored = searched("starts-ten", Script::default(), Some(5));
    let why = explored.failure.expect("it starts too many").why;
    assert!(why.contains("\"program\" failed: "), "{why}");
}

#[test]
fn connections_of_the_program_to_itself_are_left_out() {
    let client = || client(0, 0);
    let own = || to(near(80), Outcome::Established);
    let other = to(near(81), Outcome::Established);
    // A failed attempt hides no client.
    let early = || to(near(80), Outcome::Refused);
    let left = || to(near(80), Outcome::Unanswered);
    for (peers, expected) in [
        (vec![client(), client()], Ok(vec![true; 2])),
        (vec![own(), client()], Ok(vec![false; 2])),
        (vec![client(), other], Ok(vec![true; 2])),
        (vec![early(), client()], Ok(vec![false, true])),
        (vec![early(), own(), client()], Ok(vec![false; 3])),
        (vec![left(), own(), client()], Ok(vec![false; 3])),
        (
            vec![own(), client(), client()],
            Err("1 of 2 connections to "),
        ),
        (
            vec![left(), client()],
            Err("1 of 1 connections to 127.0.0.1:80"),
        ),
        (vec![], Err("it has no connection")),
    ] {
        let mut script = script(peers);
        let marks = script.peers.first().map(|first| first.mark(0));
        for peer in &mut script.peers {
            peer.before.extend(marks);
        }
        match (script.judged(), expected) {
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
            (script, expected) => {
                let script = script.unwrap();
                let scripted: Vec<usize> = script.scripted().map(|(place, _)| place).collect();
                let is_kept = |place| scripted.contains(&place);
                let kept: Vec<bool> = (0..script.peers.len()).map(is_kept).collect();
                let marks = script.peers.iter().map(|peer| peer.before.len());
                assert!(kept[0] || marks.sum::<usize>() == 0, "none waits for it");
                assert_eq!(Ok(kept), expected);
            }
        }
    }
    // A client of a later listener at the same address is not hidden.
    let again = vec![own(), self::client(1, 0), client()];
    let why = script_at([near(80); 2], again).judged().unwrap_err();
    assert!(why.contains("1 of 2 connections to 127.0.0.1:80"), "{why}");
}

#[test]
fn a_listener_keeps_its_number_and_its_task_at_another_port() {
    let given = |port| listener(near(port), false, "");
    let any = |port, task| listener(near(port), true, task);
    let ports = |listeners| {
        let script = Script {
            listeners,
            ..Script::default()
        };
        move |number, opened: &[Listener]| Some(script.address_now(number, opened)?.port())
    };
    // The third has the port that the world chose for the second.
    let now = ports(vec![
        given(80),
        any(90, ""),
        given(90),
        any(91, ""),
        given(80),
        any(90, ""),
    ]);
    let opened = [
        (80, false),
        (70, true),
        (70, false),
        (71, true),
        (80, false),
        (72, true),
    ];
    let opened = opened.map(|(port, has_any_port)| listener(near(port), has_any_port, ""));
    for (number, listener) in opened.iter().enumerate() {
        assert_eq!(now(number, &opened[..number]), None, "{number}");
        let port = Some(listener.addr.port());
        assert_eq!(now(number, &opened[..=number]), port, "{number}");
        assert_eq!(now(number, &opened), port, "{number}");
    }
    let now = ports(vec![
        any(90, "main/a"),
        any(91, "main/b"),
        any(92, "main/a"),
    ]);
    let opened = [any(70, "main/b"), any(71, "main/a"), any(72, "main/a")];
    let all = [0, 1, 2].map(|number| now(number, &opened));
    assert_eq!(all, [Some(71), Some(70), Some(72)]);
    assert_eq!(now(0, &opened[..1]), None);
}

#[test]
fn outcomes_that_no_network_has_are_told() {
    use Outcome::{Established, Pending, Refused, Unanswered, Unreachable};
    let at = |machine: u8, port, outcome| {
        let ip = IpAddr::from([192, 0, 2, machine]);
        to(SocketAddr::new(ip, port), outcome)
    };
    let fit = script(vec![
        at(1, 80, Established),
        at(1, 81, Refused),
        at(2, 80, Unanswered),
        at(2, 81, Unanswered),
        at(1, 80, Pending),
        at(3, 80, Unreachable),
        at(4, 80, Refused),
    ]);
    let hosts = fit.judged().unwrap().network().unwrap().hosts();
    let expected = [
        "localhost",
        "peer-192.0.2.1",
        "peer-192.0.2.2",
        "peer-192.0.2.4",
    ];
    assert_eq!(hosts, expected);
    for (script, expected) in [
        (
            script(vec![at(1, 80, Refused), at(1, 80, Established)]),
            "a connection to 192.0.2.1:80 was refused, and another one was established",
        ),
        (
            script(vec![at(1, 80, Refused), at(1, 81, Unanswered)]),
            "a connection to 192.0.2.1:80 was refused, and one to 192.0.2.1:81 got no answer: a \
             simulated host is reached at all ports or at none",
        ),
        (
            script(vec![to(near(90), Unanswered)]),
            "a connection to 127.0.0.1:90 got no answer, which cannot be within a simulated host",
        ),
        (
            script_at([far(7), far(8)], vec![client(0, 5)]),
            "the programs listen on 192.0.2.7 and on 192.0.2.8, and a simulated host has one address",
        ),
    ] {
        assert_eq!(script.judged().unwrap_err(), expected);
    }
}
