//! Programs that misbehave, to show the effect on them and on their neighbours. Boot one beside
//! another, with `--top` or `--trace`.
//!
//! ```sh
//! cargo run --example rude -- boot --top --with panics hogs
//! ```

use std::{
    cell::{Cell, RefCell},
    error::Error,
    io,
    net::SocketAddr,
    process::ExitCode,
    rc::Rc,
    time::Duration,
};

use trapline::{Closed, Mailbox, Os, Queue, Sender, Signal, TcpStream, sync::Mutex};
use trapline_cli::{Program, addr, duration, program};

/// A task that panics after a while, beside one that continues
#[derive(clap::Args)]
struct Panics {
    /// The time until the panic
    #[arg(long, value_parser = duration, default_value = "1s")]
    after: Duration,
    /// Panic in a destructor as well, which ends the process
    #[arg(long)]
    twice: bool,
}

impl Program for Panics {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let Self { after, twice } = self;
        let child = async move |os: &mut Os| {
            let _bomb = twice.then(|| Bomb);
            os.sleep(after).await;
            panic!("as it was told to");
        };
        let child = os.spawn("child", child).await?;
        let exit = os.wait(child).await?;
        writeln!(os, "the child is {exit}");
        os.sleep(Duration::from_secs(60)).await;
        Ok(())
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("and again");
    }
}

/// A task that makes no trap for a while
#[derive(clap::Args)]
struct Hogs {
    /// The time until it begins
    #[arg(long, value_parser = duration, default_value = "500ms")]
    after: Duration,
    /// How long
    #[arg(long, value_parser = duration, default_value = "1m")]
    span: Duration,
}

impl Program for Hogs {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        os.sleep(self.after).await;
        println!("hogging now");
        std::thread::sleep(self.span);
        Ok(())
    }
}

/// A program that writes to the terminal directly, and not through its `Os`
#[derive(clap::Args)]
struct Scribbles {}

impl Program for Scribbles {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        loop {
            println!("scribble");
            os.sleep(Duration::from_millis(300)).await;
        }
    }
}

/// A program that logs fields with the kernel's names, and text that would move the cursor
#[derive(clap::Args)]
struct Boasts {}

impl Program for Boasts {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        tracing::info!(at = -1.0, tid = 7, comm = "kernel", "late");
        tracing::info!(target: "trapline::kernel", at = -1.0, "later");
        tracing::info!(text = "\u{9b}2J\u{202e}", level = "none", "latest");
        os.yield_now().await;
        Ok(())
    }
}

/// Tasks that wait for one another's end, in a ring
#[derive(clap::Args)]
struct Rings {
    /// The number of tasks
    #[arg(long, default_value_t = 3)]
    tasks: u64,
}

impl Program for Rings {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let first = u64::from(os.get_tid().await) + 1;
        for tid in first..first + self.tasks {
            let next = if tid + 1 < first + self.tasks {
                tid + 1
            } else {
                first
            };
            let waits = async move |os: &mut Os| {
                // The next task exists once all have been spawned.
                os.sleep(Duration::from_millis(1)).await;
                os.wait(next.into()).await.map(drop)
            };
            os.spawn("waits", waits).await?;
        }
        os.sleep(Duration::from_secs(3600)).await;
        Ok(())
    }
}

/// A program that prints two megabytes at once
#[derive(clap::Args)]
struct Floods {}

impl Program for Floods {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        loop {
            os.sleep(Duration::from_millis(10)).await;
            writeln!(os, "{}", "flood ".repeat(400_000));
        }
    }
}

/// A chat server that takes all that arrives at once for one line
#[derive(clap::Args)]
struct Mishears {
    /// Address to listen on
    #[arg(long, value_parser = addr, default_value = "127.0.0.1:45000")]
    addr: SocketAddr,
    /// Pass each line on
    #[arg(long)]
    cured: bool,
}

impl Program for Mishears {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let listener = os.listen(self.addr).await?;
        writeln!(os, "listening on {}", listener.local_addr()?);
        let room: Rc<RefCell<Vec<TcpStream>>> = Rc::default();
        loop {
            let (guest, _) = listener.accept(os).await?;
            guest.send_all(os, b"welcome\n").await?;
            room.borrow_mut().push(guest.clone());
            let room = Rc::clone(&room);
            let attend = async move |os: &mut Os| -> io::Result<()> {
                let mut buf = [0; 512];
                loop {
                    let n = guest.recv(os, &mut buf).await?;
                    if n == 0 {
                        return Ok(());
                    }
                    let text = String::from_utf8_lossy(&buf[..n]).into_owned();
                    let lines = if self.cured { usize::MAX } else { 1 };
                    for line in text.lines().take(lines) {
                        let mut others = room.borrow().clone();
                        others.retain(|other| other.peer_addr().ok() != guest.peer_addr().ok());
                        for other in others {
                            other.send_all(os, format!("{line}\n").as_bytes()).await?;
                        }
                    }
                }
            };
            os.spawn_detached("attend", attend).await?;
        }
    }
}

/// A server that answers each client once, and a client that asks it twice
#[derive(clap::Args)]
struct Forgets {}

impl Program for Forgets {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let addr = SocketAddr::from(([127, 0, 0, 1], 45000));
        let listener = os.listen(addr).await?;
        let client = async move |os: &mut Os| -> io::Result<()> {
            let server = os.connect(addr).await?;
            ask(os, &server).await?;
            ask(os, &server).await
        };
        os.spawn("client", client).await?;
        loop {
            let (client, _) = listener.accept(os).await?;
            let session = async move |os: &mut Os| -> io::Result<()> {
                client.recv(os, &mut [0]).await?;
                client.send_all(os, b"!").await?;
                while client.recv(os, &mut [0]).await? > 0 {}
                Ok(())
            };
            os.spawn_detached("session", session).await?;
        }
    }
}

/// A server whose sessions wait for a worker, which a lock keeps from its work
#[derive(clap::Args)]
struct Pools {}

impl Program for Pools {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let a = Rc::new(Mutex::named(os, "a", ()).await);
        let b = Rc::new(Mutex::named(os, "b", ()).await);
        let jobs = Queue::<Queue<u8>>::unbounded(os).await;
        let (first, second, todo) = (Rc::clone(&a), Rc::clone(&b), jobs.clone());
        let worker = async move |os: &mut Os| -> Result<(), Closed> {
            while let Ok(answer) = todo.get(os).await {
                let _first = first.lock(os).await;
                os.sleep(Duration::from_millis(5)).await;
                let _second = second.lock(os).await;
                let _ = answer.put(os, b'!').await;
            }
            Ok(())
        };
        os.spawn_detached("worker", worker).await?;
        let auditor = async move |os: &mut Os| loop {
            let _b = b.lock(os).await;
            os.sleep(Duration::from_millis(1)).await;
            let _a = a.lock(os).await;
        };
        os.spawn_detached("auditor", auditor).await?;
        let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
        let addr = listener.local_addr()?;
        let client = async move |os: &mut Os| {
            let server = os.connect(addr).await?;
            ask(os, &server).await
        };
        os.spawn_detached("client", client).await?;
        loop {
            let (client, _) = listener.accept(os).await?;
            let jobs = jobs.clone();
            let session = async move |os: &mut Os| -> Result<(), Box<dyn Error>> {
                client.recv(os, &mut [0]).await?;
                let answer = Queue::unbounded(os).await;
                let _ = jobs.put(os, answer.clone()).await;
                let answer = answer.get(os).await?;
                Ok(client.send_all(os, &[answer]).await?)
            };
            os.spawn_detached("session", session).await?;
        }
    }
}

/// A server that greets each client by its name. It is right as long as one client asks at a time
#[derive(clap::Args)]
struct Muddles {
    /// What goes wrong with two at a time
    #[arg(long)]
    how: Muddle,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Muddle {
    /// Nothing
    Nothing,
    /// A client may get the greeting of another
    Swaps,
    /// A greeting may end in its middle
    Cuts,
    /// The news of another client may be in the middle of a greeting
    Tears,
    /// A session may fail
    Fails,
    /// Two sessions may wait for one another
    Sticks,
}

/// What the sessions share.
struct Hall {
    how: Muddle,
    /// The guests that have given their names.
    guests: RefCell<Vec<TcpStream>>,
    name: RefCell<String>,
    turn: Cell<u32>,
    locks: [Mutex<()>; 2],
}

impl Program for Muddles {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
        writeln!(os, "listening on {}", listener.local_addr()?);
        let hall = Rc::new(Hall {
            how: self.how,
            guests: RefCell::default(),
            name: RefCell::default(),
            turn: Cell::new(0),
            locks: [Mutex::new(os, ()).await, Mutex::new(os, ()).await],
        });
        loop {
            let (guest, _) = listener.accept(os).await?;
            guest.send_all(os, b"welcome\n").await?;
            let hall = Rc::clone(&hall);
            let session = async move |os: &mut Os| -> Result<(), Box<dyn Error>> {
                let mut buf = [0; 64];
                loop {
                    let n = guest.recv(os, &mut buf).await?;
                    if n == 0 {
                        return Ok(());
                    }
                    let name = String::from_utf8_lossy(&buf[..n]).trim().to_string();
                    greet(os, &hall, &guest, &name).await?;
                }
            };
            os.spawn_detached("session", session).await?;
        }
    }
}

async fn greet(
    os: &mut Os,
    hall: &Hall,
    guest: &TcpStream,
    name: &str,
) -> Result<(), Box<dyn Error>> {
    let turn = hall.turn.get() + 1;
    hall.turn.set(turn);
    hall.name.replace(name.to_string());
    let mut name = name.to_string();
    match hall.how {
        Muddle::Nothing => {}
        Muddle::Swaps => {
            os.yield_now().await;
            name = hall.name.borrow().clone();
        }
        Muddle::Cuts => {
            guest.send_all(os, b"hello ").await?;
            if hall.turn.get() == turn {
                guest.send_all(os, format!("{name}\n").as_bytes()).await?;
            }
            return Ok(());
        }
        Muddle::Tears => {
            let others = hall.guests.borrow().clone();
            hall.guests.borrow_mut().push(guest.clone());
            for other in others {
                let news = format!("* {name} is here\n");
                other.send_all(os, news.as_bytes()).await?;
            }
            guest.send_all(os, b"hello ").await?;
            os.yield_now().await;
            guest.send_all(os, format!("{name}\n").as_bytes()).await?;
            return Ok(());
        }
        Muddle::Fails => {
            os.yield_now().await;
            if hall.turn.get() != turn {
                return Err("two at a time".into());
            }
        }
        Muddle::Sticks => {
            let first = name.len() % 2;
            let _first = hall.locks[first].lock(os).await;
            os.yield_now().await;
            let _second = hall.locks[1 - first].lock(os).await;
        }
    }
    guest
        .send_all(os, format!("hello {name}\n").as_bytes())
        .await?;
    Ok(())
}

/// A server with a listener in each of two tasks, at any ports, that greets in two ways. It reads its
/// greetings as work of another thread
#[derive(clap::Args)]
struct Twice {}

impl Program for Twice {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        for (name, greeting) in [("short", "hi\n"), ("long", "good afternoon\n")] {
            let serve = async move |os: &mut Os| -> Result<(), Box<dyn Error>> {
                let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
                writeln!(os, "{name} at {}", listener.local_addr()?);
                let (client, _) = listener.accept(os).await?;
                let greeting = os.run_recorded(move || greeting.to_string()).await?;
                Ok(client.send_all(os, greeting.as_bytes()).await?)
            };
            os.spawn(name, serve).await?;
        }
        os.sleep(Duration::from_secs(3600)).await;
        Ok(())
    }
}

/// Two tasks, each of which waits for a message of the queue from which the other one got the last
#[derive(clap::Args)]
struct Crosswise {}

impl Program for Crosswise {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let queues = [Queue::unbounded(os).await, Queue::unbounded(os).await];
        for (own, other) in [(0, 1), (1, 0)] {
            let [own, other] = [own, other].map(|at: usize| queues[at].clone());
            let gets = async move |os: &mut Os| -> Result<(), Closed> {
                let _ = own.put(os, ()).await;
                own.get(os).await?;
                other.get(os).await
            };
            os.spawn_detached("gets", gets).await?;
        }
        Ok(())
    }
}

/// Sends a request, and waits for its answer.
async fn ask(os: &mut Os, server: &TcpStream) -> io::Result<()> {
    server.send_all(os, b"?").await?;
    server.recv(os, &mut [0]).await.map(drop)
}

/// A server that closes its listener after each client, and opens another
#[derive(clap::Args)]
struct Reopens {
    /// How many clients it serves
    #[arg(long, default_value_t = 3)]
    clients: u32,
}

impl Program for Reopens {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        for _ in 0..self.clients {
            let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
            writeln!(os, "listening on {}", listener.local_addr()?);
            let (client, _) = listener.accept(os).await?;
            client.send_all(os, b"welcome\n").await?;
        }
        Ok(())
    }
}

/// A server that answers each request, and crashes at the request `crash`
#[derive(clap::Args)]
struct Crashes {
    /// What ends the process
    #[arg(long, value_parser = ["overflow", "abort", "twice"], default_value = "abort")]
    by: String,
}

impl Program for Crashes {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let listener = os.listen(([127, 0, 0, 1], 0).into()).await?;
        writeln!(os, "listening on {}", listener.local_addr()?);
        loop {
            let (client, _) = listener.accept(os).await?;
            let by = self.by.clone();
            let session = async move |os: &mut Os| -> io::Result<()> {
                let mut buf = [0; 512];
                loop {
                    let n = client.recv(os, &mut buf).await?;
                    if &buf[..n] == b"crash" {
                        crash(&by);
                    }
                    client.send_all(os, &buf[..n]).await?;
                    if n == 0 {
                        return Ok(());
                    }
                }
            };
            os.spawn_detached("session", session).await?;
        }
    }
}

/// A task that selects a span, the end of a child, a flag, and SIGUSR1, each beside another flag
#[derive(clap::Args)]
struct Selects {}

impl Program for Selects {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        use trapline::{Source, sync::Flag};
        const MS: Duration = Duration::from_millis(1);
        let (stop, go) = (Flag::named(os, "stop").await, Flag::named(os, "go").await);
        let child = os.spawn("child", async |os| os.sleep(20 * MS).await);
        let child = child.await?;
        let theirs = stop.clone();
        let setter = async move |os: &mut Os| {
            os.sleep(30 * MS).await;
            theirs.set(os).await;
        };
        os.spawn_detached("setter", setter).await?;
        let idle = Source::after(10 * MS);
        os.select(&[Source::flag(&stop), idle]).await;
        os.select(&[Source::flag(&stop), Source::exit(child)]).await;
        os.wait(child).await?;
        os.select(&[Source::flag(&stop), Source::after(60 * MS)])
            .await;
        stop.clear(os).await;
        let signals = os.catch(&[Signal::User1]).await;
        os.select(&[Source::flag(&stop), Source::signal(&signals)])
            .await;
        signals.next(os).await;
        os.select(&[Source::flag(&stop), Source::flag(&go)]).await;
        Ok(())
    }
}

/// A task that catches all signals and prints each, until SIGTERM
#[derive(clap::Args)]
struct Catches {
    /// Take none
    #[arg(long)]
    deaf: bool,
}

impl Program for Catches {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        const FOR_LONG: Duration = Duration::from_secs(3600);
        let signals = os.catch(&Signal::ALL).await;
        writeln!(os, "ready");
        if self.deaf {
            os.sleep(FOR_LONG).await;
        }
        loop {
            let signal = signals.next(os).await;
            writeln!(os, "{signal}");
            match signal {
                Signal::Terminate => return Ok(()),
                Signal::User2 => break,
                _ => {}
            }
        }
        drop(signals);
        os.yield_now().await;
        writeln!(os, "given up");
        os.sleep(FOR_LONG).await;
        Ok(())
    }
}

/// The first kernel asks and the second answers, by mailboxes that all kernels of the process have
#[derive(clap::Args)]
struct Couriers {
    /// The number of questions
    #[arg(long, default_value = "5")]
    rounds: u32,
    /// Both wait first
    #[arg(long)]
    deadlock: bool,
    /// Have the values on tapes, too
    #[arg(long)]
    recorded: bool,
    /// The second kernel makes no trap
    #[arg(long)]
    spin: bool,
}

type Ends = (Sender<u32>, Mailbox<u32>);

static BOXES: std::sync::OnceLock<[Ends; 2]> = std::sync::OnceLock::new();

impl Program for Couriers {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let make = |name: &str| match self.recorded {
            true => Mailbox::recorded(name, 1),
            false => Mailbox::named(name, 1),
        };
        let [asks, answers] = BOXES.get_or_init(|| ["asks", "answers"].map(make)).clone();
        if self.spin && os.kernel().index() == 1 {
            writeln!(os, "spins");
            os.yield_now().await;
            loop {
                std::thread::park();
            }
        }
        for n in 0..self.rounds {
            if os.kernel().index() == 0 {
                if !self.deadlock {
                    asks.0.put(os, n).await?;
                }
                let answer = answers.1.get(os).await?;
                writeln!(os, "{n}: {answer}");
            } else {
                let n = asks.1.get(os).await?;
                os.sleep(Duration::from_millis(2)).await;
                answers.0.put(os, n * n).await?;
            }
        }
        Ok(())
    }
}

fn crash(by: &str) {
    match by {
        "abort" => std::process::abort(),
        "twice" => {
            let _bomb = Bomb;
            panic!("as it was told to");
        }
        _ => println!("{}", depth(1)),
    }
}

/// Calls itself until the stack is full.
fn depth(at: u64) -> u64 {
    let frame = std::hint::black_box([at; 512]);
    if frame[0] == 0 {
        return 0;
    }
    depth(at + 1) + frame[1]
}

fn main() -> ExitCode {
    trapline_cli::main([
        program::<Panics>("panics"),
        program::<Hogs>("hogs"),
        program::<Scribbles>("scribbles"),
        program::<Boasts>("boasts"),
        program::<Rings>("rings"),
        program::<Floods>("floods"),
        program::<Mishears>("mishears"),
        program::<Forgets>("forgets"),
        program::<Pools>("pools"),
        program::<Reopens>("reopens"),
        program::<Crosswise>("crosswise"),
        program::<Muddles>("muddles"),
        program::<Twice>("twice"),
        program::<Crashes>("crashes"),
        program::<Catches>("catches"),
        program::<Selects>("selects"),
        program::<Couriers>("couriers"),
    ])
}
