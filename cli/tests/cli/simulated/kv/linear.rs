//! Histories of the key-value server: all that four clients see is explained by one order of their requests.

use std::{error::Error, io};

use trapline::{
    Explored, Kernel, Os, Reader, SimNet, TcpStream, check,
    linear::{History, Model},
};

use super::{
    super::{SECOND, boot, connect},
    Wire,
};
use crate::networked::kv::Kv;

/// The span in which requests are sent.
const SPAN: u32 = 20;

/// Sends requests, on a new connection where one is lost. The answer to a request whose reply does not
/// come is `?`: it may have had its effect, or have it later.
async fn ask(os: &mut Os, history: History) {
    let mut wire = None;
    while os.now().await < SPAN * SECOND {
        let span = os.random().await % 1_500;
        os.sleep(std::time::Duration::from_millis(span)).await;
        let (key, value) = (os.random().await % 2, os.random().await % 1000);
        let (input, line) = match os.random().await % 3 {
            0 => (format!("get k{key}"), format!("GET k{key}")),
            1 => (format!("put k{key} {value}"), format!("SET k{key} {value}")),
            _ => (format!("add k{key} 1"), format!("INCR k{key}")),
        };
        let once = async |os: &mut Os| {
            let answer = async |os: &mut Os| {
                let wire = match &mut wire {
                    Some(wire) => wire,
                    none => none.insert(Wire::connect(os).await?),
                };
                wire.answer(os, &line).await
            };
            let answer = os.timeout(3 * SECOND, answer).await;
            answer.map_or(None, Result::ok).unwrap_or_else(|| {
                wire = None;
                "?".into()
            })
        };
        history.op(os, input, once).await;
    }
}

impl Wire {
    /// Returns the answer to a request, in the words of the model.
    async fn answer(&mut self, os: &mut Os, line: &str) -> io::Result<String> {
        self.stream
            .send_all(os, format!("{line}\r\n").as_bytes())
            .await?;
        let reply = self.line(os).await?;
        Ok(match reply.split_at(1) {
            ("+", _) => "ok".into(),
            (":", number) => number.into(),
            ("$", "-1") => "none".into(),
            ("$", _) => self.line(os).await?,
            _ => return Err(io::Error::other(reply)),
        })
    }
}

/// Four clients of the server on this port; their requests go to port 6379.
fn clients(kernel: &mut Kernel, port: &str, fsync: &str) -> Result<(), Box<dyn Error>> {
    let args = ["--addr", port, "--aof", "data", "--fsync", fsync].map(str::to_string);
    let start = move |kernel: &mut Kernel| {
        boot::<Kv>(kernel, "server", &args.each_ref().map(|arg| &**arg));
    };
    start(kernel);
    kernel.on_restart("server", start)?;
    let history = History::new(Model::map());
    let mut clients = Vec::new();
    for n in 0..4 {
        let history = history.clone();
        let client = async move |os: &mut Os| ask(os, history).await;
        clients.push(kernel.spawn_on(format!("laptop{n}"), "client", client)?);
    }
    kernel.run_until(&clients)?;
    let operations = history.operations();
    let answered = operations.iter().filter(|op| op.answer.is_some()).count();
    assert!(answered > 10, "{answered} of {}", operations.len());
    if answered < operations.len() {
        kernel.outcome("some answers were lost");
    }
    history.check()?;
    Ok(())
}

fn net() -> SimNet {
    let ms = std::time::Duration::from_millis;
    SimNet::new().latency(ms(1)..=ms(20)).fragment(true)
}

fn histories(schedules: u64, chaos: u8, port: &'static str, fsync: &'static str) -> Explored {
    let body = move |kernel: &mut Kernel| {
        if port != "0.0.0.0:6379" {
            kernel.spawn_on("server", "hasty", hasty)?;
        }
        clients(kernel, port, fsync).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(())
    };
    let search = check(body).net(net).chaos(chaos).random();
    search.schedules(schedules).explore()
}

/// With TRAPLINE_KV_SEEDS set to a number, so many seeds.
#[test]
fn what_four_clients_see_under_chaos_is_linearizable() {
    let seeds = std::env::var("TRAPLINE_KV_SEEDS");
    let seeds = seeds.map_or(30, |seeds| seeds.parse().expect("it is a number"));
    let explored = histories(seeds, 2, "0.0.0.0:6379", "always");
    assert_eq!(explored.failure, None);
    assert_eq!(explored.schedules, seeds);
    let lost = explored.outcomes.iter().any(|one| one.contains("lost"));
    assert!(lost, "{explored}");
}

/// A change that is acknowledged before it is on the disk is lost by a crash.
#[test]
fn a_history_finds_a_change_that_a_crash_has_lost() {
    let failure = histories(40, 2, "0.0.0.0:6379", "no").failure;
    let why = failure.expect("it is found").why;
    assert!(why.contains("no order explains"), "{why}");
}

/// Acknowledges each SET before it passes it on.
async fn hasty(os: &mut Os) -> io::Result<()> {
    let listener = os.listen(([0, 0, 0, 0], 6379).into()).await?;
    loop {
        let (client, _) = listener.accept(os).await?;
        os.spawn("client", async move |os: &mut Os| {
            let server = Wire {
                stream: connect(os, "server:6380").await?,
                lines: Reader::new(&client, 1 << 10),
            };
            pass_on(os, client, server).await
        })
        .await?;
    }
}

/// Passes the lines of a client on, and the replies back.
async fn pass_on(os: &mut Os, client: TcpStream, mut server: Wire) -> io::Result<()> {
    let mut replies = Reader::new(&server.stream, 1 << 10);
    while let Some(line) = server.lines.read_line(os).await? {
        let is_set = line.starts_with("SET");
        if is_set {
            client.send_all(os, b"+OK\r\n").await?;
            os.sleep(SECOND).await;
        }
        server
            .stream
            .send_all(os, format!("{line}\r\n").as_bytes())
            .await?;
        let mut reply = replies.read_line(os).await?.unwrap_or_default();
        if reply.starts_with('$') && reply != "$-1" {
            reply = format!(
                "{reply}\r\n{}",
                replies.read_line(os).await?.unwrap_or_default()
            );
        }
        if !is_set {
            client
                .send_all(os, format!("{reply}\r\n").as_bytes())
                .await?;
        }
    }
    Ok(())
}

#[test]
fn a_history_finds_an_answer_before_its_change() {
    let failure = histories(20, 0, "0.0.0.0:6380", "always").failure;
    let why = failure.expect("it is found").why;
    assert!(why.contains("no order explains"), "{why}");
}
