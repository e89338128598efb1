//! The key-value server in the simulated world: power losses, a full disk, and what its clients see.

mod limits;
mod linear;
mod search;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io,
    rc::Rc,
};

use rand_pcg::{
    Pcg64,
    rand_core::{Rng, SeedableRng},
};
use trapline::{Effect, Kernel, Os, Reader, SimNet, SimWorld, Stream, TcpStream, check};

use super::{SECOND, boot, connect};
use crate::networked::kv::Kv;

type State = BTreeMap<String, String>;

/// A transaction: what it sets, and what it deletes.
type Change = Vec<(String, Option<String>)>;

/// What a client knows of its own keys.
#[derive(Default)]
struct Client {
    /// Before the changes.
    base: State,
    /// Those that it has sent, in their order.
    changes: Vec<Change>,
    /// How many of them were acknowledged.
    told: usize,
}

impl Client {
    /// Checks what the server has after a power loss: all changes up to one, and that is none before the
    /// last of so many.
    fn check(&mut self, found: &State, least: usize) -> Result<(), String> {
        let mut state = self.base.clone();
        for n in 0..=self.changes.len() {
            if n >= least && state == *found {
                *self = Self {
                    base: state,
                    ..Self::default()
                };
                return Ok(());
            }
            for (key, value) in self.changes.get(n).into_iter().flatten() {
                match value {
                    Some(value) => drop(state.insert(key.clone(), value.clone())),
                    None => drop(state.remove(key)),
                }
            }
        }
        let (base, changes, told) = (&self.base, &self.changes, self.told);
        Err(format!(
            "{found:?} is not {base:?} with {told} or more of {changes:?}"
        ))
    }
}

struct Wire {
    stream: TcpStream,
    lines: Reader<Stream>,
}

impl Wire {
    async fn connect(os: &mut Os) -> io::Result<Self> {
        let stream = connect(os, "server:6379").await?;
        let lines = Reader::new(&stream, 1 << 20);
        Ok(Self { stream, lines })
    }

    async fn line(&mut self, os: &mut Os) -> io::Result<String> {
        let line = self.lines.read_line(os).await?;
        line.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    async fn get(&mut self, os: &mut Os, key: &str) -> io::Result<Option<String>> {
        self.stream
            .send_all(os, format!("GET {key}\r\n").as_bytes())
            .await?;
        match &*self.line(os).await? {
            "$-1" => Ok(None),
            head if head.starts_with('$') => self.line(os).await.map(Some),
            other => Err(io::Error::other(other.to_string())),
        }
    }

    /// Sends transactions at once, and waits for their answers. Returns how many have one.
    async fn change(&mut self, os: &mut Os, changes: &[Change]) -> io::Result<()> {
        let mut text = String::new();
        for change in changes {
            text += "MULTI\r\n";
            for (key, value) in change {
                text += &match value {
                    Some(value) => format!("SET {key} {value}\r\n"),
                    None => format!("DEL {key}\r\n"),
                };
            }
            text += "EXEC\r\n";
        }
        self.stream.send_all(os, text.as_bytes()).await?;
        for change in changes {
            for _ in 0..2 * change.len() + 2 {
                let line = self.line(os).await?;
                if line.starts_with('-') {
                    return Err(io::Error::other(line));
                }
            }
        }
        Ok(())
    }
}

fn keys(id: usize) -> impl Iterator<Item = String> {
    (0..5).map(move |n| format!("c{id}:{n}"))
}

/// Makes changes until the server is gone.
async fn work(os: &mut Os, id: usize, client: Rc<RefCell<Client>>, seed: u64) -> io::Result<()> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut wire = Wire::connect(os).await?;
    loop {
        let changes: Vec<Change> = (0..=random.next_u64() % 2)
            .map(|_| {
                let pairs = (0..=random.next_u64() % 2).map(|_| {
                    let key = format!("c{id}:{}", random.next_u64() % 5);
                    let len = (random.next_u64() % 300) as usize;
                    let value = format!("{}{}", random.next_u64(), "x".repeat(len));
                    let is_set = !random.next_u64().is_multiple_of(4);
                    (key, is_set.then_some(value))
                });
                pairs.collect()
            })
            .collect();
        client.borrow_mut().changes.extend(changes.iter().cloned());
        wire.change(os, &changes).await?;
        if random.next_u64().is_multiple_of(4) {
            wire.stream.send_all(os, b"BGREWRITEAOF\r\n").await?;
            // One may be under way.
            wire.line(os).await?;
        }
        let mut client = client.borrow_mut();
        client.told = client.changes.len();
    }
}

/// Crashes the server so often, and checks after each crash what it has. Returns how many changes were
/// acknowledged, or the first promise that was not kept.
fn crashes(seed: u64, lives: usize, fsync: &str) -> Result<usize, String> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut kernel = Kernel::builder()
        .world(SimWorld::new(random.next_u64()).net(&net()))
        .build()
        .expect("it boots");
    crash(&mut kernel, &mut random, lives, fsync).map_err(|why| format!("seed {seed}, {why}"))
}

/// The options of a server with a file.
fn durable(fsync: &str) -> [&str; 6] {
    ["--addr", "0.0.0.0:6379", "--aof", "data", "--fsync", fsync]
}

/// The disk takes its time, too: so a kill comes within a write more often.
fn net() -> SimNet {
    let ms = std::time::Duration::from_millis;
    let net = SimNet::new().latency(ms(0)..=ms(2));
    let disk = net.disk("server").expect("it is a name");
    disk.latency(ms(0)..=ms(2));
    net
}

/// The same on a kernel.
fn crash(
    kernel: &mut Kernel,
    random: &mut Pcg64,
    lives: usize,
    fsync: &str,
) -> Result<usize, String> {
    let clients: Vec<Rc<RefCell<Client>>> = (0..3).map(|_| Rc::default()).collect();
    let mut told = 0;
    for life in 0..lives {
        let args = durable(fsync);
        boot::<Kv>(kernel, "server", &args);
        let found: Rc<RefCell<Vec<State>>> = Rc::default();
        let theirs = Rc::clone(&found);
        let reader = kernel.spawn_on("laptop", "reader", async move |os: &mut Os| {
            let mut wire = Wire::connect(os).await?;
            for id in 0..3 {
                let mut state = State::new();
                for key in keys(id) {
                    state.extend(wire.get(os, &key).await?.map(|value| (key, value)));
                }
                theirs.borrow_mut().push(state);
            }
            io::Result::Ok(())
        });
        let reader = reader.expect("there is room");
        kernel.run_until(&[reader]).expect("it ends");
        if found.borrow().len() != 3 {
            return Err(format!("the server of life {life} does not answer"));
        }
        for (client, found) in clients.iter().zip(found.take()) {
            let mut client = client.borrow_mut();
            told += client.told;
            let least = if fsync == "always" { client.told } else { 0 };
            let checked = client.check(&found, least);
            checked.map_err(|why| format!("life {life}: {why}"))?;
        }
        let mut tasks = Vec::new();
        for (id, client) in clients.iter().enumerate() {
            let (client, seed) = (Rc::clone(client), random.next_u64());
            let task = async move |os: &mut Os| {
                // The server is gone at the end.
                let _ = work(os, id, client, seed).await;
            };
            tasks.push(
                kernel
                    .spawn_on("laptop", "client", task)
                    .expect("there is room"),
            );
        }
        // Some lives are too short for a change.
        let turns = [15, 400][random.next_u64() as usize % 2];
        for _ in 0..random.next_u64() % turns {
            kernel.step().expect("it goes on");
        }
        // A kill leaves what was written; a power loss does not, and tells the clients nothing.
        let is_kill = random.next_u64().is_multiple_of(2);
        let net = kernel.net();
        if !is_kill {
            let power = "power server".parse().expect("it is a fault");
            net.apply(&power).expect("there is a server");
        }
        let ender = kernel.spawn("ender", async move |os: &mut Os| {
            for task in os.tasks().await.iter().rev() {
                if task.name.ends_with("@server") {
                    os.kill(task.tid).await;
                }
            }
            for task in tasks {
                os.kill(task).await;
                let _ = os.wait(task).await;
            }
        });
        let ender = ender.expect("there is room");
        kernel.run_until(&[ender]).expect("they end");
    }
    Ok(told)
}

/// Without any one of the syncs of the append-only file, one of these crashes loses a change.
#[test]
fn no_power_loss_loses_a_change_that_was_acknowledged() {
    let told = Cell::new(0);
    let body = |kernel: &mut Kernel| {
        let mut random = Pcg64::seed_from_u64(kernel.seed());
        let in_this = crash(kernel, &mut random, 10, "always").map_err(io::Error::other)?;
        told.set(told.get() + in_this);
        Ok(())
    };
    let search = check(body).net(net).fifo().schedules(30);
    let explored = search.mutate_only([Effect::Sync]).explore();
    assert_eq!(explored.failure, None);
    assert!(told.get() > 1500, "{}", told.get());
    let mutants = explored.mutants.expect("it passes");
    // Three syncs of a file, and two of a directory.
    assert_eq!((mutants.killed, mutants.survivors), (5, vec![]));
}

/// Changes may be lost, but none without all that came after it.
#[test]
fn without_always_a_power_loss_leaves_the_changes_up_to_one() {
    for fsync in ["everysec", "no"] {
        let told: usize = (0..20).map(|seed| crashes(seed, 10, fsync).unwrap()).sum();
        assert!(told > 2000, "{told}");
    }
}

/// Counts up for 70 seconds, on new connections where one is lost. Each number that comes back is
/// greater than the last one. Returns how many came back, and how many requests were sent.
async fn count(os: &mut Os, seed: u64) -> Result<(u64, u64), String> {
    let (mut wire, mut told, mut sent, mut last) = (None, 0, 0, 0);
    while os.now().await < 70 * SECOND {
        os.sleep(SECOND / 4).await;
        sent += 1;
        let once = os.timeout(3 * SECOND, async |os: &mut Os| {
            let wire = match &mut wire {
                Some(wire) => wire,
                none => none.insert(Wire::connect(os).await?),
            };
            wire.stream.send_all(os, b"INCR n\r\n").await?;
            wire.line(os).await
        });
        match once.await {
            Ok(Ok(line)) => {
                let number = line[1..].parse().map_err(|_| line.clone())?;
                if number <= last {
                    return Err(format!("seed {seed}: {number} after {last}"));
                }
                (told, last) = (told + 1, number);
            }
            _ => wire = None,
        }
    }
    Ok((told, sent))
}

/// Cuts, resets, slow hosts and crashes; segments come in fragments.
#[test]
fn chaos_loses_no_change_that_was_acknowledged() {
    let mut all = 0;
    for seed in 0..20 {
        let mut kernel = super::chaotic(seed);
        let args = durable("always");
        boot::<Kv>(&mut kernel, "server", &args);
        let again = move |kernel: &mut Kernel| {
            boot::<Kv>(kernel, "server", &args);
        };
        kernel.on_restart("server", again).expect("it is a name");
        let counted = Rc::new(RefCell::new((0, 0)));
        let theirs = Rc::clone(&counted);
        let client = kernel.spawn_on("laptop", "client", async move |os: &mut Os| {
            let (told, sent) = count(os, seed).await?;
            let mut wire = Wire::connect(os).await.map_err(|error| error.to_string())?;
            let found = wire.get(os, "n").await.map_err(|error| error.to_string())?;
            let found: u64 = found.unwrap_or_default().parse().map_err(|_| "no number")?;
            if !(told..=sent).contains(&found) {
                return Err(format!("seed {seed}: {found} of {told} to {sent}"));
            }
            *theirs.borrow_mut() = (told, sent);
            Ok::<(), String>(())
        });
        super::finish(&mut kernel, client.expect("there is room"));
        let (told, sent) = *counted.borrow();
        assert!(told > 50 && told < sent, "seed {seed}: {told} of {sent}");
        all += told;
    }
    assert!(all > 2000, "{all}");
}

#[test]
fn a_full_disk_refuses_changes_and_the_rest_goes_on() {
    let mut kernel = super::kernel();
    let disk = kernel.net().disk("server").expect("it is a name");
    boot::<Kv>(&mut kernel, "server", &durable("always"));
    let client = kernel.spawn_on("laptop", "client", async move |os: &mut Os| {
        let mut wire = Wire::connect(os).await?;
        let change = |value: &str| vec![vec![("k".to_string(), Some(value.to_string()))]];
        wire.change(os, &change("one")).await?;
        disk.capacity(200);
        let refusal = wire
            .change(os, &change(&"x".repeat(300)))
            .await
            .unwrap_err();
        assert!(refusal.to_string().starts_with("-MISCONF "), "{refusal}");
        let mut other = Wire::connect(os).await?;
        assert!(other.get(os, "k").await?.is_some());
        let refusal = other.change(os, &change("two")).await.unwrap_err();
        assert!(refusal.to_string().contains("No space left"), "{refusal}");
        disk.capacity(u64::MAX);
        os.sleep(2 * SECOND).await;
        let mut wire = Wire::connect(os).await?;
        wire.change(os, &change("three")).await?;
        assert_eq!(wire.get(os, "k").await?.as_deref(), Some("three"));
        io::Result::Ok(())
    });
    super::finish(&mut kernel, client.expect("there is room"));
}
