//! The peers of a script, as tasks of the simulated world.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::{BTreeMap, VecDeque},
    io,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use super::script::{Act, Listener, Mark, Peer, Script, Way};
use crate::{
    Detail, Errno, Error, Event, Fact, Kernel, Observer, Os, Promise, Queue, Setter, SimNet,
    SystemCall, TcpStream,
};

/// How long the programs go on after the last peer, before they are shut down as on the tape.
const REST: Duration = Duration::from_secs(1);
/// The time between two looks for a listener.
const LOOK: Duration = Duration::from_millis(1);

/// How far the peers are.
pub(super) struct Tally {
    net: SimNet,
    peers: RefCell<Vec<(usize, u64)>>,
    /// Whether a peer has found another behaviour than that on the tape.
    has_failed: Cell<bool>,
    /// Whether the next progress is awaited.
    is_watched: Cell<bool>,
    /// The queue for it, made by the task that awaits it.
    news: OnceCell<Queue<()>>,
    is_over: Cell<bool>,
    /// The connections that stay open until the end of the run.
    open: RefCell<Vec<TcpStream>>,
    /// The listeners so far, in the order of their requests.
    opened: Rc<RefCell<Vec<Listener>>>,
    /// Notes them.
    observer: RefCell<Option<Observer>>,
}

impl Tally {
    pub(super) fn new(script: &Script, net: SimNet) -> Rc<Self> {
        Rc::new(Self {
            net,
            peers: RefCell::new(vec![(0, 0); script.peers.len()]),
            has_failed: Cell::new(false),
            is_watched: Cell::new(false),
            news: OnceCell::new(),
            is_over: Cell::new(false),
            open: RefCell::default(),
            opened: Rc::default(),
            observer: RefCell::new(None),
        })
    }

    /// Whether every peer that connects has done its part.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Notes that a peer has made a step, or has got bytes.
    async fn note(&self, os: &mut Os, peer: usize, steps: usize, bytes: u64) {
        self.peers.borrow_mut()[peer] = (steps, bytes);
        self.tell(os).await;
    }

    /// Notes the listeners from now on.
    async fn watch_listeners(&self, os: &mut Os) {
        let opened = Rc::clone(&self.opened);
        let mut asking = BTreeMap::new();
        let observer = os.observe(move |event: &Event<'_>| match event.fact {
            Fact::Trapped {
                call: SystemCall::Listen,
                detail: Detail::Addr(addr),
            } => drop(asking.insert(event.tid, addr.port() == 0)),
            Fact::Replied { detail, .. } => {
                if let Some(has_any_port) = asking.remove(&event.tid)
                    && let Detail::Addr(addr) = detail
                {
                    opened.borrow_mut().push(Listener { addr, has_any_port });
                }
            }
            _ => {}
        });
        self.observer.replace(Some(observer));
        // It observes from the next trap on.
        os.yield_now().await;
    }

    async fn tell(&self, os: &mut Os) {
        if self.is_watched.replace(false)
            && let Some(news) = self.news.get()
        {
            // It is never closed.
            let _ = news.put(os, ()).await;
        }
    }

    fn is_met(&self, mark: &Mark) -> bool {
        let (steps, bytes) = self.peers.borrow()[mark.peer];
        steps >= mark.steps && bytes >= mark.bytes
    }

    /// Waits until the peers are so far, or one has failed. Returns whether they are. An error names
    /// the connection on which the program keeps them waiting.
    async fn reach(&self, os: &mut Os, script: &Script, marks: &[Mark]) -> Result<bool, String> {
        let reached = os.timeout(script.patience(), async |os| self.follow(os, marks).await);
        reached.await.map_err(|_| {
            let late = marks.iter().find(|mark| !self.is_met(mark));
            let way = late.map(|mark| script.peers[mark.peer].way.to_string());
            let way = way.unwrap_or_default();
            format!("the program does not do what it did on the tape ({way})")
        })
    }

    /// Waits until the peers are so far, or one has failed. Returns whether they are.
    async fn follow(&self, os: &mut Os, marks: &[Mark]) -> bool {
        let news = match self.news.get() {
            Some(news) => news.clone(),
            None => Queue::unbounded(os).await,
        };
        let news = self.news.get_or_init(|| news);
        while !self.has_failed.get() {
            if marks.iter().all(|mark| self.is_met(mark)) {
                return true;
            }
            self.is_watched.set(true);
            let _ = news.get(os).await;
        }
        false
    }
}

/// The peers that wait for connections of the program, by address, with their places in the script.
fn servers(script: &Script) -> BTreeMap<SocketAddr, VecDeque<usize>> {
    let mut servers: BTreeMap<SocketAddr, VecDeque<usize>> = BTreeMap::new();
    for (place, peer) in script.scripted() {
        if let Way::ToPeer(addr) = peer.way {
            servers.entry(addr).or_default().push_back(place);
        }
    }
    servers
}

/// The most tasks of the search that live at once: one that listens and one that plays for each peer,
/// and those that begin and end them.
pub(super) fn most_tasks(script: &Script) -> usize {
    2 * script.peers.len() + 3
}

/// Has the peers listen to which the program connects, and has the program's listeners noted. Runs
/// the kernel until then.
pub(super) fn listen(
    kernel: &mut Kernel,
    script: &Arc<Script>,
    tally: &Rc<Tally>,
) -> Result<(), Error> {
    let mut begun = Vec::new();
    for (addr, places) in servers(script) {
        let (host, tally) = (script.host_of(addr.ip()), Rc::clone(tally));
        let script = Arc::clone(script);
        let listens = async move |os: &mut Os| {
            let listener = os.listen(addr).await?;
            let accepts = async move |os: &mut Os| -> io::Result<()> {
                for place in places {
                    let (stream, _) = listener.accept(os).await?;
                    let (script, tally) = (Arc::clone(&script), Rc::clone(&tally));
                    let peer =
                        async move |os: &mut Os| play(os, &stream, &script, place, &tally).await;
                    os.spawn_detached(name(place), peer).await?;
                }
                Ok(())
            };
            os.spawn_detached(format!("peers at {addr}"), accepts)
                .await?;
            io::Result::Ok(())
        };
        begun.push(kernel.spawn_on(&host, format!("listen at {addr}"), listens)?);
    }
    kernel.run_until(&begun)?.check()?;
    let tally = Rc::clone(tally);
    let watches = async move |os: &mut Os| tally.watch_listeners(os).await;
    let watch = kernel.spawn("watch", watches)?;
    kernel.run_until(&[watch])?.check()
}

/// Starts the task that has the other peers connect, in the order of the tape, and the task that ends
/// the run after them.
pub(super) fn connect(
    kernel: &mut Kernel,
    script: &Arc<Script>,
    tally: &Rc<Tally>,
) -> Result<(), Error> {
    let (home, is_stopped) = (script.home(), script.is_stopped);
    let script = Arc::clone(script);
    let tally = Rc::clone(tally);
    let ends = async move |os: &mut Os| {
        let (setter, over) = Promise::new(os).await;
        let shared = Rc::clone(&tally);
        let enters = async move |os: &mut Os| {
            enter_all(os, &script, &shared).await?;
            let _ = setter.set(os, ()).await;
            Ok::<_, String>(())
        };
        // Its failure is not waited for, and so counts.
        os.spawn_detached("peers", enters).await?;
        let is_good = over.wait(os).await.is_ok() && !tally.has_failed.get();
        tally.is_over.set(true);
        if is_good && is_stopped {
            os.sleep(REST).await;
        }
        if is_stopped || !is_good {
            os.shutdown().await;
        }
        Ok::<_, Errno>(())
    };
    kernel.spawn_on(home, "end", ends)?;
    Ok(())
}

/// Has the peers connect, and waits for their ends.
async fn enter_all(os: &mut Os, script: &Arc<Script>, tally: &Rc<Tally>) -> Result<(), String> {
    let (playing, over) = Promise::new(os).await;
    for (place, peer) in script.scripted() {
        let Way::ToListener { number, .. } = peer.way else {
            continue;
        };
        if !tally.reach(os, script, &peer.before).await? {
            break;
        }
        enter(os, script, place, number, tally, playing.clone()).await?;
    }
    drop(playing);
    // Their failures are not waited for, and so count. The promise is abandoned by the last of them.
    let _ = over.wait(os).await;
    finish_all(os, script, tally).await
}

/// Waits until the program has connected to each peer, and sent what it sent on the tape.
async fn finish_all(os: &mut Os, script: &Script, tally: &Tally) -> Result<(), String> {
    let all = |(peer, scripted): (usize, &Peer)| Mark {
        peer,
        steps: scripted.steps.len(),
        bytes: scripted.gets,
    };
    let marks: Vec<Mark> = script.scripted().map(all).collect();
    tally.reach(os, script, &marks).await.map(drop)
}

/// Has a peer connect to a listener of the program. Its task holds `playing` until its end.
async fn enter(
    os: &mut Os,
    script: &Arc<Script>,
    place: usize,
    listener: usize,
    tally: &Rc<Tally>,
    playing: Setter<()>,
) -> Result<(), String> {
    let patience = script.patience();
    let found = os.timeout(patience, async |os| {
        loop {
            let addr = script.address_now(listener, &tally.opened.borrow());
            let listeners = tally.net.listeners(script.home());
            if let Some(addr) = addr.filter(|addr| listeners.contains(addr)) {
                return addr;
            }
            os.sleep(LOOK).await;
        }
    });
    let then = script.listeners[listener].addr;
    let addr = found
        .await
        .map_err(|_| format!("the program does not listen, as on the tape at {then}"))?;
    if tally.opened.borrow().len() >= script.listeners.len() {
        // There are no more on the tape. A search takes a seventh less time without the observer.
        tally.observer.replace(None);
    }
    let stream = os.connect(addr).await;
    let stream = stream.map_err(|error| format!("{}: {error}", name(place)))?;
    let (script, tally) = (Arc::clone(script), Rc::clone(tally));
    let peer = async move |os: &mut Os| {
        let _playing = playing;
        play(os, &stream, &script, place, &tally).await
    };
    let spawned = os.spawn_detached(name(place), peer).await;
    spawned
        .map(drop)
        .map_err(|errno| format!("{}: {errno}", name(place)))
}

/// The name of a peer's task.
fn name(place: usize) -> String {
    format!("peer-{}", place + 1)
}

/// Does what a peer did. An error says what the program does otherwise.
async fn play(
    os: &mut Os,
    stream: &TcpStream,
    script: &Script,
    place: usize,
    tally: &Tally,
) -> Result<(), String> {
    let mut part = Part {
        stream,
        peer: &script.peers[place],
        patience: script.patience(),
        is_open_at_end: script.is_stopped,
        place,
        steps: 0,
        got: 0,
        tally,
    };
    let played = part.play(os).await;
    let played = played.map_err(|why| {
        tally.has_failed.set(true);
        format!("{why} ({})", part.peer.way)
    });
    // A peer that is over holds up no other.
    tally.note(os, place, usize::MAX, u64::MAX).await;
    played
}

/// A peer at one of its steps.
struct Part<'a> {
    stream: &'a TcpStream,
    peer: &'a Peer,
    patience: Duration,
    /// Whether a connection that the program does not close is open until the interrupt.
    is_open_at_end: bool,
    place: usize,
    steps: usize,
    got: u64,
    tally: &'a Tally,
}

impl Part<'_> {
    async fn play(&mut self, os: &mut Os) -> Result<(), String> {
        let peer = self.peer;
        for step in &peer.steps {
            self.receive(os, step.after).await?;
            match &step.act {
                Act::Send(bytes) => {
                    let sent = self.stream.send_all(os, bytes).await;
                    sent.map_err(|error| {
                        let all = bytes.len();
                        format!(
                            "cannot send the next {all} bytes, which the program received: {error}"
                        )
                    })?;
                }
                // The program may have closed the connection at the same time.
                Act::Finish => drop(self.stream.shutdown_write(os).await),
                Act::Break => {
                    // So may it here.
                    let _ = self.tally.net.abort(self.stream.id());
                    return Ok(());
                }
            }
            self.steps += 1;
            self.tell(os).await;
        }
        self.receive(os, peer.gets).await?;
        if peer.is_closed {
            self.drain(os).await;
        } else if self.is_open_at_end {
            self.tally.open.borrow_mut().push(self.stream.clone());
        }
        Ok(())
    }

    async fn tell(&self, os: &mut Os) {
        self.tally.note(os, self.place, self.steps, self.got).await;
    }

    /// Receives until it has got so many bytes.
    async fn receive(&mut self, os: &mut Os, bytes: u64) -> Result<(), String> {
        let mut buf = [0; 4096];
        while self.got < bytes {
            let stream = self.stream;
            let received = os.timeout(self.patience, async |os| stream.recv(os, &mut buf).await);
            let (got, gets) = (self.got, self.peer.gets);
            let than = || format!("{got} bytes; on the tape it sent {gets}");
            match received.await {
                Ok(Ok(0)) => {
                    return Err(format!("the program ended the connection after {}", than()));
                }
                Ok(Ok(n)) => self.got += n as u64,
                Ok(Err(error)) => return Err(format!("{error} after {}", than())),
                Err(_) => return Err(format!("the program sends no more after {}", than())),
            }
            self.tell(os).await;
        }
        Ok(())
    }

    /// Receives until the program ends the connection.
    async fn drain(&self, os: &mut Os) {
        let (stream, mut buf) = (self.stream, [0; 4096]);
        let drained = os.timeout(self.patience, async |os| {
            while let Ok(1..) = stream.recv(os, &mut buf).await {}
        });
        // Where it stays open, nothing is missing.
        let _ = drained.await;
    }
}
