//! Services: what clients do on connections of their own commutes, and a search of them is complete.

use std::{cell::RefCell, io, net::SocketAddr, rc::Rc, time::Duration};

use trapline::{
    Error, Kernel, Os, Shared, SimNet, Source, TcpListener, TcpStream, UnixStream, check,
};

use super::{
    every::{compare_programs, wanted},
    random::draw,
};

/// Adds one for each byte that a client sends, and answers with the sum.
async fn count(os: &mut Os, listener: TcpListener, clients: usize) -> io::Result<()> {
    let sum = Shared::new(0_u8);
    for _ in 0..clients {
        let (stream, _) = listener.accept(os).await?;
        let sum = sum.clone();
        let client = async move |os: &mut Os| {
            while stream.recv(os, &mut [0]).await? > 0 {
                sum.update(|sum| *sum += 1);
                stream.send_all(os, &[sum.get()]).await?;
            }
            io::Result::Ok(())
        };
        os.spawn_detached("client", client).await?;
    }
    Ok(())
}

fn counts(kernel: &mut Kernel, requests: usize) -> Result<(), Error> {
    kernel.spawn_on("server", "server", async |os: &mut Os| {
        let listener = os.listen(([0, 0, 0, 0], 80).into()).await?;
        count(os, listener, 2).await
    })?;
    let answers = Rc::new(RefCell::new(Vec::new()));
    for client in ["left", "right"] {
        let answers = Rc::clone(&answers);
        kernel.spawn_on(client, client, async move |os: &mut Os| {
            let stream = os.connect(("server", 80)).await?;
            let mut mine = Vec::new();
            for _ in 0..requests {
                stream.send_all(os, b"+").await?;
                let mut answer = [0];
                stream.recv(os, &mut answer).await?;
                mine.push(answer[0]);
            }
            answers.borrow_mut().push((client, mine));
            io::Result::Ok(())
        })?;
    }
    kernel.run()?.check()?;
    answers.borrow_mut().sort();
    kernel.outcome(format!("{:?}", answers.borrow()));
    Ok(())
}

/// The sum is the same for two requests that come at one instant, in either order.
#[test]
fn two_clients_of_a_counter_are_searched_completely() {
    let explored = check(|kernel| counts(kernel, 1)).exhaustive().explore();
    assert!(explored.proved, "{explored}");
    let outcomes = [
        "[(\"left\", [1]), (\"right\", [2])]",
        "[(\"left\", [2]), (\"right\", [1])]",
    ];
    assert!(
        explored.outcomes.iter().eq(outcomes),
        "{:?}",
        explored.outcomes
    );
    assert!(explored.schedules < 200, "{}", explored.schedules);
    // A round of requests more has more orders of its own, and repeats none of these.
    let twice = check(|kernel| counts(kernel, 2)).exhaustive().explore();
    assert!(twice.proved, "{twice}");
    assert_eq!(twice.schedules, twice.classes);
}

/// A draw for each packet depends on the packets before: there no two calls commute.
#[test]
fn connections_do_not_commute_where_the_network_draws() {
    let searched = |make: fn() -> SimNet| {
        let test = check(|kernel| counts(kernel, 1)).exhaustive().net(make);
        test.schedules(2_000).explore()
    };
    const MS: Duration = Duration::from_millis(1);
    assert!(searched(SimNet::new).complete);
    assert!(searched(|| SimNet::new().latency(2 * MS..=2 * MS)).complete);
    for net in [
        || SimNet::new().latency(MS..=2 * MS),
        || SimNet::new().bandwidth(1_000),
        || {
            let net = SimNet::new();
            net.fragment(true);
            net
        },
    ] {
        assert!(!searched(net).complete);
    }
}

/// A call on one of two connections that all tasks share.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    Recv(usize),
    Ready(usize),
    Select(usize, usize),
    ShutdownWrite(usize),
    ShutdownRead(usize),
    Close(usize),
    Drop(usize),
    Connect,
    Accept,
    Timed(usize),
    Kill(usize),
    Yield,
}

fn step(state: &mut u64, tasks: usize) -> Step {
    let (end, other) = (draw(state, 4), draw(state, 4));
    match draw(state, 24) {
        0..6 => Step::Send(end),
        6..11 => Step::Recv(end),
        11 => Step::Ready(end),
        12 | 13 => Step::Select(end, other),
        14 | 15 => Step::ShutdownWrite(end),
        16 => Step::ShutdownRead(end),
        17 => Step::Close(end),
        18 => Step::Drop(end),
        19 => Step::Connect,
        20 => Step::Accept,
        21 => Step::Timed(end),
        22 => Step::Kill(draw(state, tasks)),
        _ => Step::Yield,
    }
}

fn drawn(seed: u64) -> Vec<Vec<Step>> {
    let mut state = seed.wrapping_mul(7919) + 1;
    let tasks = 2 + seed as usize / 2 % 2;
    let most = if tasks == 2 { 4 } else { 2 };
    let steps = |state: &mut u64| 1 + draw(state, most);
    (0..tasks)
        .map(|_| {
            (0..steps(&mut state))
                .map(|_| step(&mut state, tasks))
                .collect()
        })
        .collect()
}

#[derive(Clone)]
enum End {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Makes the same call of either kind.
macro_rules! on {
    ($end:expr, $stream:ident => $call:expr) => {
        match $end {
            End::Tcp($stream) => $call,
            End::Unix($stream) => $call,
        }
    };
}

/// The handles of a task. Another task has others, so that each drop is a fact of the kernel.
#[derive(Clone)]
struct Ends {
    ends: [RefCell<Option<End>>; 4],
    listener: TcpListener,
}

impl Ends {
    fn end(&self, at: usize) -> io::Result<End> {
        let end = self.ends[at].borrow().clone();
        end.ok_or(io::ErrorKind::NotFound.into())
    }

    async fn make(&self, os: &mut Os, step: Step) -> io::Result<String> {
        Ok(match step {
            Step::Send(at) => on!(self.end(at)?, s => s.send(os, b"12").await?).to_string(),
            Step::Recv(at) => on!(self.end(at)?, s => s.recv(os, &mut [0; 3]).await?).to_string(),
            Step::Ready(at) => on!(self.end(at)?, s => format!("{:?}", os.read_wait(&s).await)),
            Step::Select(one, other) => {
                let (one, other) = (self.end(one)?, self.end(other)?);
                let sources = [
                    on!(&one, s => Source::readable(s)),
                    on!(&other, s => Source::readable(s)),
                ];
                os.select(&sources).await.to_string()
            }
            Step::ShutdownWrite(at) => {
                on!(self.end(at)?, s => s.shutdown_write(os).await?);
                "shut".into()
            }
            Step::ShutdownRead(at) => match self.end(at)? {
                End::Tcp(stream) => format!("{:?}", stream.shutdown_read(os).await?),
                End::Unix(_) => String::new(),
            },
            Step::Close(at) => on!(self.end(at)?, s => format!("{:?}", s.close(os).await)),
            Step::Drop(at) => self.ends[at].take().is_some().to_string(),
            Step::Connect => {
                let stream = os.connect(self.listener.local_addr()?).await?;
                format!("{}", stream.peer_addr()?)
            }
            Step::Accept => format!("{}", self.listener.accept(os).await?.1),
            Step::Timed(at) => {
                let end = self.end(at)?;
                let recv = async |os: &mut Os| on!(end, s => s.recv(os, &mut [0; 1]).await);
                format!(
                    "{:?}",
                    os.timeout(Duration::from_micros(10), recv).await.is_ok()
                )
            }
            Step::Kill(_) | Step::Yield => unreachable!("it needs no connection"),
        })
    }
}

/// Makes two connections, of TCP or of Unix, and has tasks use them.
fn program(is_unix: bool, tasks: &[Vec<Step>], kernel: &mut Kernel) -> Result<String, Error> {
    let logs = Rc::new(RefCell::new(vec![String::new(); tasks.len()]));
    let (tasks, noted) = (tasks.to_vec(), Rc::clone(&logs));
    kernel.spawn("main", async move |os: &mut Os| {
        let addr: SocketAddr = ([127, 0, 0, 1], 80).into();
        let listener = os.listen(addr).await?;
        let mut ends = Vec::new();
        for _ in 0..2 {
            if is_unix {
                let (one, other) = os.socketpair().await?;
                ends.extend([End::Unix(one), End::Unix(other)]);
            } else {
                let one = os.connect(addr).await?;
                ends.extend([End::Tcp(one), End::Tcp(listener.accept(os).await?.0)]);
            }
        }
        let mut ends = ends.into_iter().map(|end| RefCell::new(Some(end)));
        let all = Ends {
            ends: std::array::from_fn(|_| ends.next().expect("there are four")),
            listener,
        };
        let first = os.get_tid().await;
        for (at, steps) in tasks.into_iter().enumerate() {
            let (all, noted) = (all.clone(), Rc::clone(&noted));
            os.spawn_detached(format!("task {at}"), async move |os: &mut Os| {
                for step in steps {
                    let text = match step {
                        Step::Yield => {
                            os.yield_now().await;
                            String::new()
                        }
                        Step::Kill(task) => {
                            let tid = (u64::from(first) + 1 + task as u64).into();
                            os.kill(tid).await.to_string()
                        }
                        step => match all.make(os, step).await {
                            Ok(text) => text,
                            Err(error) => error.kind().to_string(),
                        },
                    };
                    let now = os.now().await;
                    noted.borrow_mut()[at] += &format!("{text} at {now:?}; ");
                }
            })
            .await?;
        }
        io::Result::Ok(())
    })?;
    let end = match kernel.run() {
        Ok(_) => "done",
        Err(Error::Deadlock(_)) => "deadlock",
        Err(error) => return Err(error),
    };
    let logs = logs.borrow().join(" | ");
    Ok(format!("{logs} {end}"))
}

#[test]
fn random_programs_on_connections_have_no_other_outcome() {
    let first = wanted("TRAPLINE_FUZZ_FIRST", 0);
    compare_programs(first, drawn, |tasks, kernel| program(false, tasks, kernel));
}

#[test]
fn random_programs_on_unix_connections_have_no_other_outcome() {
    let first = wanted("TRAPLINE_FUZZ_FIRST", 1_000);
    compare_programs(first, drawn, |tasks, kernel| program(true, tasks, kernel));
}
