//! Programs of the tests' own, searched with scripts and with tapes of simulated runs.

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
    Explored, Os, SimWorld, TcpListener, TcpStream, World,
    tape::{Header, Taping},
};

use super::{
    script::{Act, Listener, Mark, Outcome, Peer, Step, Way},
    *,
};
use crate::{App, Program, args, commands::Commands, program::program};

/// An address of a machine, which the real world of a test does not have.
const MACHINE: [u8; 4] = [192, 0, 2, 7];

fn parsed<P: Program>() -> BootLine {
    let app = App::new([program::<P>("program")]);
    let commands = Commands {
        command: &args::command("test", &app),
        programs: &app.programs,
    };
    let words = ["test", "boot", "program"].map(OsString::from);
    let line = BootLine::parse(commands, &words);
    line.expect("it is right").expect("it is boot")
}

/// Searches a few schedules of a program with these peers.
fn searched<P: Program>(script: Script) -> Explored {
    searched_within::<P>(script, None)
}

/// The same, where no more tasks than so many of the run may live at once.
fn searched_within<P: Program>(script: Script, max_tasks: Option<usize>) -> Explored {
    let mut line = parsed::<P>();
    line.options.max_tasks = max_tasks;
    let script = Arc::new(script);
    let wanted = SearchOptions {
        explore: NonZeroU64::new(20),
        schedule: None,
        expect: Expect::Bytes,
    };
    let body = |kernel: &mut Kernel| {
        let course = Course::Tape(Arc::new(Expected::Bytes));
        trial(kernel, &line.programs, &script, course)
    };
    let search = search(body, &script, &line, &wanted);
    search.expect("it is right").explore()
}

/// Tapes a program in a world, and reads the script off the tape.
fn noted<P: Program>(test: &str, world: impl World + 'static) -> Result<Script, String> {
    noted_within::<P>(test, world, None)
}

/// The same, where the replay ends at this time.
fn noted_within<P: Program>(
    test: &str,
    world: impl World + 'static,
    max_time: Option<Duration>,
) -> Result<Script, String> {
    let mut line = parsed::<P>();
    let name = format!("trapline-reenact-{test}-{}", process::id());
    let path = env::temp_dir().join(name);
    let seed = world.seed();
    let mut header = Header::default();
    header.seed = seed;
    let world = Taping::create(world, &path, &header, None).expect("it is created");
    let rules = Rules::new(&[]);
    let builder = boot::settings(&line.options, seed, &rules, Outside::of(world));
    let mut kernel = builder.build().expect("it boots");
    boot::load(&mut kernel, &line, Log::SILENT)?;
    kernel
        .run()
        .expect("it ends")
        .check()
        .expect("all goes well");
    drop(kernel);
    let playing = Playing::open(&path).expect("it is a tape");
    line.options.max_time = max_time;
    let script = script_of(playing, &line, Log::SILENT);
    fs::remove_file(path).expect("it is there");
    script
}

fn machine(port: u16) -> SocketAddr {
    (MACHINE, port).into()
}

/// Port 80 of another machine.
fn beside(last: u8) -> SocketAddr {
    ([192, 0, 2, last], 80).into()
}

/// A peer that sends or gets these bytes.
fn peer(way: Way, sends: &str, gets: u64) -> Peer {
    let send = Step {
        after: 0,
        pause: Duration::ZERO,
        act: Act::Send(sends.into()),
    };
    Peer {
        way,
        steps: if sends.is_empty() {
            Vec::new()
        } else {
            vec![send]
        },
        gets,
        heard: Heard::default(),
        is_closed: true,
        before: Vec::new(),
        outcome: Outcome::Established,
        is_own: false,
    }
}

fn client(sends: &str, gets: u64) -> Peer {
    let from = ([127, 0, 0, 1], 5000).into();
    peer(Way::ToListener { number: 0, from }, sends, gets)
}

fn listener(addr: impl Into<SocketAddr>) -> Listener {
    Listener {
        addr: addr.into(),
        has_any_port: false,
        task: String::new(),
    }
}

/// What these peers did with a server at port 80 of this machine.
fn served(peers: Vec<Peer>) -> Script {
    Script {
        listeners: vec![listener(([127, 0, 0, 1], 80))],
        peers,
        ..Script::default()
    }
}

fn passes(explored: &Explored) {
    let why = explored.failure.as_ref().map(|failure| &failure.why);
    assert_eq!((why, explored.schedules), (None, 20));
}

/// Serves a client at an address of its machine
#[derive(clap::Args)]
struct ListensOutside {}

impl Program for ListensOutside {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let listener = os.listen(machine(80)).await?;
        let (stream, from) = listener.accept(os).await?;
        assert_eq!(
            from.ip(),
            IpAddr::from(MACHINE),
            "it is a host of the same net"
        );
        stream.send_all(os, b"hello").await?;
        Ok(())
    }
}

#[test]
fn a_server_can_listen_on_an_address_of_its_machine() {
    let listens = |listeners| Script {
        listeners,
        peers: vec![client("", 5)],
        ..Script::default()
    };
    let script = listens(vec![listener(machine(80))]);
    passes(&searched::<ListensOutside>(script.judged().unwrap()));
    let script = listens(vec![listener(machine(80)), listener(beside(8))]);
    assert_eq!(
        script.judged().unwrap_err(),
        "the programs listen on 192.0.2.7 and on 192.0.2.8, and a simulated host has one address"
    );
}

/// Connects to a server of another machine, late
#[derive(clap::Args)]
struct ConnectsLate {}

impl Program for ConnectsLate {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        os.sleep(Duration::from_secs(20)).await;
        let stream = os.connect(machine(80)).await?;
        stream.send_all(os, b"at last").await?;
        os.sleep(Duration::from_secs(3600)).await;
        Ok(())
    }
}

/// Does nothing until it is shut down
#[derive(clap::Args)]
struct NeverConnects {}

impl Program for NeverConnects {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        os.sleep(Duration::from_secs(3600)).await;
        Ok(())
    }
}

#[test]
fn a_run_goes_on_until_the_program_has_connected_to_each_server() {
    let script = || {
        let script = Script {
            peers: vec![peer(Way::ToPeer(machine(80)), "", 7)],
            is_stopped: true,
            ..Script::default()
        };
        script.judged().unwrap()
    };
    passes(&searched::<ConnectsLate>(script()));
    let explored = searched::<NeverConnects>(script());
    let report = explored.to_string();
    assert!(report.contains("[program 4 exits: killed]"), "{report}");
    let failure = explored.failure.expect("it misses the server");
    let why = "the program does not do what it did on the tape (to 192.0.2.7:80)";
    assert!(failure.why.contains(why), "{}", failure.why);
}

/// Accepts connections, and makes none
#[derive(clap::Args)]
struct OnlyAccepts {}

impl Program for OnlyAccepts {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
        let mut streams = Vec::new();
        loop {
            streams.push(listener.accept(os).await?);
        }
    }
}

#[test]
fn a_client_that_came_after_a_connection_of_the_program_waits_for_it_within_limits() {
    let late = Peer {
        before: vec![Mark {
            peer: 1,
            steps: 0,
            bytes: 7,
        }],
        ..client("", 0)
    };
    let script = served(vec![
        client("", 0),
        peer(Way::ToPeer(machine(80)), "", 7),
        late,
    ]);
    let failure = searched::<OnlyAccepts>(script.judged().unwrap()).failure;
    let why = failure.expect("it does not connect").why;
    let expected = "the program does not do what it did on the tape (to 192.0.2.7:80)";
    assert!(why.contains(expected), "{why}");
}

/// Fails when its client leaves, and when it is silent for long
#[derive(clap::Args)]
struct ServesAttentively {}

impl Program for ServesAttentively {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
        let (stream, _) = listener.accept(os).await?;
        let heard = os.timeout(Duration::from_secs(10), async |os| {
            stream.recv(os, &mut [0; 16]).await
        });
        match heard.await {
            Ok(received) => Err(format!("{received:?}").into()),
            Err(elapsed) => Err(elapsed.into()),
        }
    }
}

#[test]
fn a_connection_that_was_open_at_the_interrupt_stays_open_until_then() {
    let silent = Peer {
        is_closed: false,
        ..client("", 0)
    };
    let script = Script {
        is_stopped: true,
        ..served(vec![silent])
    };
    passes(&searched::<ServesAttentively>(script.judged().unwrap()));
}

/// Gives up a connection that gets no answer
#[derive(clap::Args)]
struct GivesUp {}

impl Program for GivesUp {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let given_up = os.timeout(Duration::from_secs(1), async |os| {
            os.connect(machine(80)).await
        });
        let given_up = given_up.await;
        if given_up.is_ok() {
            return Err("an answer came".into());
        }
        Ok(())
    }
}

/// Prints the kinds of error of its connections
#[derive(clap::Args)]
struct Fails {}

impl Program for Fails {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let timed_out = os.connect(machine(80)).await.unwrap_err();
        let refused = os.connect(beside(8)).await.unwrap_err();
        let unreachable = os.connect(beside(9)).await.unwrap_err();
        let kinds = [timed_out.kind(), refused.kind(), unreachable.kind()];
        let expected = [
            io::ErrorKind::TimedOut,
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::HostUnreachable,
        ];
        match kinds == expected {
            true => Ok(()),
            false => Err(format!("{kinds:?}").into()),
        }
    }
}

#[test]
fn a_connection_that_failed_on_the_tape_fails_in_the_same_way() {
    let net = || {
        let net = SimNet::new();
        net.host_at("silent", MACHINE.into()).unwrap();
        net.host_at("closed", [192, 0, 2, 8].into()).unwrap();
        net.cut("localhost", "silent").unwrap();
        SimWorld::new(1).net(&net)
    };
    passes(&searched::<GivesUp>(
        noted::<GivesUp>("gives-up", net()).unwrap(),
    ));
    passes(&searched::<Fails>(noted::<Fails>("fails", net()).unwrap()));
}

async fn connect_to_itself(os: &mut Os) -> io::Result<(TcpListener, [TcpStream; 2])> {
    let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
    let own = os.connect(listener.local_addr()?).await?;
    let (other, _) = listener.accept(os).await?;
    Ok((listener, [own, other]))
}

/// Connects to itself, and fails long after that
#[derive(clap::Args)]
struct FailsLate {}

impl Program for FailsLate {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let _itself = connect_to_itself(os).await?;
        os.sleep(Duration::from_secs(3600)).await;
        Err("as on the tape".into())
    }
}

/// Fails long after its connection was refused
#[derive(clap::Args)]
struct FailsRefused {}

impl Program for FailsRefused {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let refused = os.connect(beside(8)).await.unwrap_err();
        os.sleep(Duration::from_secs(3600)).await;
        Err(refused.into())
    }
}

#[test]
fn programs_without_peers_run_to_their_own_end() {
    let why = |explored: Explored| explored.failure.expect("it fails").why;
    let itself = Way::ToPeer(([127, 0, 0, 1], 80).into());
    let own = served(vec![peer(itself, "", 0), client("", 0)]);
    let failed = why(searched::<FailsLate>(own.judged().unwrap()));
    assert!(failed.contains("as on the tape"), "{failed}");
    let refused = Peer {
        outcome: Outcome::Refused,
        ..peer(Way::ToPeer(beside(8)), "", 0)
    };
    let refused = Script {
        peers: vec![refused],
        ..Script::default()
    };
    let failed = why(searched::<FailsRefused>(refused.judged().unwrap()));
    assert!(failed.contains("refused"), "{failed}");
}

/// Connects to itself, and then sleeps a thousand times
#[derive(clap::Args)]
struct GoesOn {}

impl Program for GoesOn {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let _itself = connect_to_itself(os).await?;
        for _ in 0..1000 {
            os.sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }
}

#[test]
fn a_run_that_ended_before_its_programs_shuts_them_down() {
    let script = |max| noted_within::<GoesOn>("goes-on", SimWorld::new(1), max).unwrap();
    assert!(!script(None).is_stopped);
    assert!(script(Some(Duration::from_secs(500))).is_stopped);
}

/// Is content with a client that resets its connection after a word
#[derive(clap::Args)]
struct ExpectsReset {}

impl Program for ExpectsReset {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
        let (stream, _) = listener.accept(os).await?;
        let mut buf = [0; 16];
        assert_eq!(stream.recv(os, &mut buf).await?, 4);
        match stream.recv(os, &mut buf).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    }
}

#[test]
fn a_peer_resets_a_connection_that_broke_on_the_tape() {
    let mut resets = client("word", 0);
    resets.steps.push(Step {
        after: 0,
        pause: Duration::ZERO,
        act: Act::Break,
    });
    let script = served(vec![resets]).judged().unwrap();
    passes(&searched::<ExpectsReset>(script));
}

/// Starts ten tasks, and waits for the last
#[derive(clap::Args)]
struct StartsTen {}

impl Program for StartsTen {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        for _ in 0..10 {
            let naps = async |os: &mut Os| os.sleep(Duration::from_secs(1)).await;
            os.spawn_detached("child", naps).await?;
        }
        Ok(())
    }
}

#[test]
fn the_limit_on_tasks_is_that_of_the_run() {
    passes(&searched_within::<StartsTen>(Script::default(), None));
    passes(&searched_within::<StartsTen>(Script::default(), Some(11)));
    let explored = searched_within::<StartsTen>(Script::default(), Some(5));
    let why = explored.failure.expect("it starts too many").why;
    assert!(why.contains("\"program\" failed: "), "{why}");
}

#[test]
fn the_limit_on_turns_follows_the_run() {
    let script = noted::<GoesOn>("turns", SimWorld::new(1)).unwrap();
    assert!((1000..2000).contains(&script.ticks), "{}", script.ticks);
    assert_eq!(most_turns(script.ticks), 1_000_000);
    assert_eq!(most_turns(10_000_000), 160_000_000);
    assert_eq!(most_turns(u64::MAX), u64::MAX);
}
