//! The peers of a script, as tasks of the simulated world.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::BTreeMap,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use clap::ValueEnum;
use trapline::{
    Answered, Call, Detail, Errno, Error, Event, Kernel, Observer, Os, Promise, Queue, Remote,
    Setter, SimNet, SystemCall, TcpStream, Tid,
};

use super::{
    answers::{Answer, Coming, Heard},
    script::{Act, Listener, Mark, Peer, Script, Sent, Step, Way},
};

/// How long the programs go on after the last peer, before they are shut down as on the tape.
const REST: Duration = Duration::from_secs(1);
/// The time between two looks for a listener.
const LOOK: Duration = Duration::from_millis(1);
/// After a wait, a peer connects or sends at one of the next multiples of this time. So several do at one
/// instant, and their order is the search's choice, although the network takes time.
const BEAT: Duration = Duration::from_millis(1);
/// The most of them that it waits for.
const BEATS: u64 = 4;
/// How much longer than on the tape a peer waits for bytes that are no part of its answer.
const QUIET: Duration = Duration::from_secs(1);

/// What a peer has to get in each schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(super) enum Expect {
    /// Nothing: how the tasks end decides
    Ends,
    /// The answer to what it sends itself
    #[default]
    Answers,
    /// As many bytes as on the tape
    Bytes,
}

/// What the peers do in a run of the programs.
#[derive(Clone)]
pub(super) enum Course {
    /// They do as on the tape, and have to get that: the answers, if they are known.
    Tape(Expect, Arc<[Option<Answer>]>),
    /// One client connects, and no other.
    Alone(usize),
    /// The clients come in the reverse order, each after the one before is over.
    Reversed,
    /// The clients come in their order, each after the one before has sent all. They stay.
    Staying,
}

impl Course {
    fn is_tape(&self) -> bool {
        matches!(self, Self::Tape(..))
    }

    fn is_strict(&self) -> bool {
        matches!(self, Self::Tape(Expect::Bytes, _))
    }
}

/// A run of the programs with the peers of a script, and how far the peers are.
pub(super) struct Tally {
    pub(super) script: Arc<Script>,
    net: SimNet,
    course: Course,
    pub(super) heard: RefCell<Vec<Heard>>,
    /// The steps and bytes of each peer.
    peers: RefCell<Vec<(usize, u64)>>,
    /// Whether a peer has found another behaviour than that on the tape.
    has_failed: Cell<bool>,
    /// Whether the next progress is awaited.
    is_watched: Cell<bool>,
    /// When the last signal was sent.
    signalled: Cell<Duration>,
    /// The queue for it.
    news: OnceCell<Queue<()>>,
    /// Whether every peer that connects has done its part.
    pub(super) is_over: Cell<bool>,
    /// The connections that stay open until the end of the run.
    open: RefCell<Vec<TcpStream>>,
    /// The listeners so far, in the order of their requests.
    opened: Rc<RefCell<Vec<Listener>>>,
    /// Notes them.
    observer: RefCell<Option<Observer>>,
}

impl Tally {
    pub(super) fn new(script: &Arc<Script>, net: SimNet, course: Course) -> Rc<Self> {
        Rc::new(Self {
            script: Arc::clone(script),
            net,
            course,
            heard: RefCell::new(vec![Heard::default(); script.peers.len()]),
            peers: RefCell::new(vec![(0, 0); script.peers.len()]),
            has_failed: Cell::new(false),
            is_watched: Cell::new(false),
            signalled: Cell::default(),
            news: OnceCell::new(),
            is_over: Cell::new(false),
            open: RefCell::default(),
            opened: Rc::default(),
            observer: RefCell::new(None),
        })
    }

    async fn reached(&self, os: &mut Os, peer: usize, steps: usize, bytes: u64) {
        self.peers.borrow_mut()[peer] = (steps, bytes);
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
    async fn reach(&self, os: &mut Os, marks: &[Mark]) -> Result<bool, String> {
        let patience = self.script.patience();
        let reached = os.timeout(patience, async |os| self.follow(os, marks).await);
        reached.await.map_err(|_| {
            let late = marks.iter().find(|mark| !self.is_met(mark));
            let way = late.map(|mark| self.script.peers[mark.peer].way.to_string());
            let way = way.unwrap_or_default();
            format!("the program does not do what it did on the tape ({way})")
        })
    }

    /// The same, where a program that is not the one of the tape may keep them waiting. Returns whether no
    /// peer has failed.
    async fn reach_or_go_on(&self, os: &mut Os, marks: &[Mark]) -> Result<bool, String> {
        let reached = self.reach(os, marks).await;
        if self.course.is_strict() {
            reached?;
        }
        Ok(!self.has_failed.get())
    }

    /// Sends the program a signal, when the peers are as far as on the tape, and no sooner after the last one.
    async fn send(&self, os: &mut Os, sent: &Sent, remote: &Remote) -> Result<(), String> {
        if self.reach_or_go_on(os, &sent.before).await? {
            let at = sent.at.max(self.signalled.get() + sent.pause);
            os.sleep_until(at).await;
            self.signalled.set(os.now().await);
            remote.signal(sent.signal);
        }
        Ok(())
    }

    async fn follow(&self, os: &mut Os, marks: &[Mark]) -> bool {
        let news = self.news.get().expect("it is made before the peers");
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

pub(super) fn listening(opened: &Rc<RefCell<Vec<Listener>>>) -> impl FnMut(&Event<'_>) + use<> {
    let opened = Rc::clone(opened);
    let mut asking = BTreeMap::new();
    let mut tasks: BTreeMap<Tid, String> = BTreeMap::new();
    move |Event { tid, fact, .. }| {
        if let Some((parent, name)) = fact.spawned() {
            // Its host may have another name.
            let name = name.rsplit_once('@').map_or(name, |(name, _)| name);
            let parent = tasks.get(&parent).map_or("", String::as_str);
            let task = format!("{parent}/{name}");
            tasks.insert(*tid, task);
        } else if fact.is_reaped() {
            tasks.remove(tid);
        } else if let Some(Call(SystemCall::Listen, Detail::Addr(addr))) = fact.call() {
            asking.insert(*tid, addr.port() == 0);
        } else if let Some(Answered(_, detail)) = fact.answer()
            && let Some(has_any_port) = asking.remove(tid)
            && let Detail::Addr(addr) = detail
        {
            opened.borrow_mut().push(Listener {
                addr: *addr,
                has_any_port,
                task: tasks.get(tid).cloned().unwrap_or_default(),
            });
        }
    }
}

/// The most tasks of the search that live at once: one that listens and one that plays for each peer,
/// and those that begin and end them.
pub(super) fn most_tasks(script: &Script) -> usize {
    2 * script.peers.len() + 3
}

/// Has the peers listen to which the program connects, and has the program's listeners noted. Runs
/// the kernel until then.
pub(super) fn listen(kernel: &mut Kernel, tally: &Rc<Tally>) -> Result<(), Error> {
    let script = &tally.script;
    let mut servers: BTreeMap<SocketAddr, Vec<usize>> = BTreeMap::new();
    for (place, peer) in script.scripted() {
        if let Way::ToPeer(addr) = peer.way {
            servers.entry(addr).or_default().push(place);
        }
    }
    let mut begun = Vec::new();
    for (addr, places) in servers {
        let (host, tally) = (script.host_of(addr.ip()), Rc::clone(tally));
        let listens = async move |os: &mut Os| {
            let listener = os.listen(addr).await?;
            let accepts = async move |os: &mut Os| -> io::Result<()> {
                for place in places {
                    let (stream, _) = listener.accept(os).await?;
                    let tally = Rc::clone(&tally);
                    let peer = async move |os: &mut Os| play(os, &stream, place, &tally).await;
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
    let watches = async move |os: &mut Os| {
        let _ = tally.news.set(Queue::unbounded(os).await);
        let observer = os.observe(listening(&tally.opened));
        tally.observer.replace(Some(observer));
        // It observes from the next trap on.
        os.yield_now().await;
    };
    let watch = kernel.spawn("watch", watches)?;
    kernel.run_until(&[watch])?.check()
}

/// Starts the task that has the other peers connect, in the order of the tape, and the task that ends
/// the run after them.
pub(super) fn connect(kernel: &mut Kernel, tally: &Rc<Tally>) -> Result<(), Error> {
    let (home, is_stopped) = (tally.script.home(), tally.script.is_stopped);
    if !tally.course.is_tape() {
        for sent in &tally.script.signals {
            kernel.signal_at(sent.at, sent.signal);
        }
    }
    let (tally, remote) = (Rc::clone(tally), kernel.remote());
    let ends = async move |os: &mut Os| {
        let (setter, over) = Promise::new(os).await;
        let shared = Rc::clone(&tally);
        let enters = async move |os: &mut Os| {
            enter_all(os, &shared, &remote).await?;
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
        if is_stopped || !is_good || !tally.course.is_tape() {
            os.shutdown().await;
        }
        Ok::<_, Errno>(())
    };
    kernel.spawn_on(home, "end", ends)?;
    Ok(())
}

/// Has the peers connect, and waits for their ends. In a search, a signal comes after the connections that
/// began before it, and the end is when the program has connected to each peer, and sent what it sent on the
/// tape.
async fn enter_all(os: &mut Os, tally: &Rc<Tally>, remote: &Remote) -> Result<(), String> {
    let Tally { script, course, .. } = &**tally;
    let mut signals = script.signals.iter().peekable();
    let mut clients: Vec<(usize, &Peer, usize)> = script.clients().collect();
    match course {
        Course::Tape(..) | Course::Staying => {}
        Course::Alone(only) => clients.retain(|(place, ..)| place == only),
        Course::Reversed => clients.reverse(),
    }
    let (mut playing, mut over) = Promise::new(os).await;
    for (place, peer, number) in clients {
        if course.is_tape() {
            while let Some(sent) = signals.next_if(|sent| sent.peers <= place) {
                tally.send(os, sent, remote).await?;
            }
            if !tally.reach_or_go_on(os, &peer.before).await? {
                break;
            }
        }
        enter(os, place, number, tally, playing.clone()).await?;
        if let Course::Reversed | Course::Staying = course {
            drop(playing);
            let _ = over.wait(os).await;
            (playing, over) = Promise::new(os).await;
        }
    }
    if course.is_tape() {
        for sent in signals {
            tally.send(os, sent, remote).await?;
        }
    }
    drop(playing);
    // Their failures are not waited for, and so count. The promise is abandoned by the last of them.
    let _ = over.wait(os).await;
    if course.is_tape() {
        let peers = script.scripted();
        let marks: Vec<Mark> = peers.map(|(place, peer)| peer.mark(place)).collect();
        tally.reach_or_go_on(os, &marks).await?;
    }
    Ok(())
}

/// Has a peer connect to a listener of the program. Its task holds `playing` until its end.
async fn enter(
    os: &mut Os,
    place: usize,
    listener: usize,
    tally: &Rc<Tally>,
    playing: Setter<()>,
) -> Result<(), String> {
    let script = &tally.script;
    let found = os.timeout(script.patience(), async |os| {
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
    await_beat(os).await;
    let name = name(place);
    let stream = os.connect(addr).await;
    let stream = stream.map_err(|error| format!("{name}: {error}"))?;
    let tally = Rc::clone(tally);
    let peer = async move |os: &mut Os| {
        let _playing = playing;
        play(os, &stream, place, &tally).await
    };
    let spawned = os.spawn_detached(name.clone(), peer).await;
    spawned
        .map(drop)
        .map_err(|errno| format!("{name}: {errno}"))
}

async fn await_beat(os: &mut Os) {
    let past = os.now().await.as_nanos() % BEAT.as_nanos();
    let beats = 1 + os.random().await % BEATS;
    let span = BEAT * beats as u32;
    os.sleep(span - Duration::from_nanos(past as u64)).await;
}

fn name(place: usize) -> String {
    format!("peer-{}", place + 1)
}

/// Does what a peer did. An error says what the program does otherwise.
async fn play(os: &mut Os, stream: &TcpStream, place: usize, tally: &Tally) -> Result<(), String> {
    let answer = match &tally.course {
        Course::Tape(_, answers) => answers.get(place).and_then(Option::as_ref),
        Course::Alone(_) | Course::Reversed | Course::Staying => None,
    };
    let mut part = Part {
        stream,
        script: &tally.script,
        place,
        steps: 0,
        got: 0,
        answer: answer.map(Coming::new),
        is_ended: false,
        has_waited: true,
        tally,
    };
    let played = part.play(os).await;
    let played = played.map_err(|why| {
        tally.has_failed.set(true);
        format!("{why} ({})", tally.script.peers[place].way)
    });
    // A peer that is over holds up no other.
    tally.reached(os, place, usize::MAX, u64::MAX).await;
    played
}

/// A peer at one of its steps.
struct Part<'a> {
    stream: &'a TcpStream,
    script: &'a Script,
    place: usize,
    steps: usize,
    got: u64,
    answer: Option<Coming<'a>>,
    /// Whether the program sends no more.
    is_ended: bool,
    /// Whether it has waited since it sent something.
    has_waited: bool,
    tally: &'a Tally,
}

impl Part<'_> {
    async fn play(&mut self, os: &mut Os) -> Result<(), String> {
        let peer = &self.script.peers[self.place];
        for Step { after, pause, act } in &peer.steps {
            self.receive(os, *after, *pause + QUIET).await?;
            self.tally.heard.borrow_mut()[self.place].step();
            match act {
                Act::Finish | Act::Break if self.stays() => break,
                Act::Send(bytes) => {
                    if std::mem::take(&mut self.has_waited) {
                        await_beat(os).await;
                    }
                    if let Err(error) = self.stream.send_all(os, bytes).await {
                        if !self.tally.course.is_strict() {
                            // What it gets decides.
                            break;
                        }
                        let all = bytes.len();
                        return Err(format!(
                            "cannot send the next {all} bytes, which the program received: {error}"
                        ));
                    }
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
            self.advance(os, *after).await;
        }
        self.steps = usize::MAX;
        self.receive(os, peer.gets, QUIET).await?;
        if !self.tally.course.is_tape() {
            // An answer may come after the peer has ended its side.
            self.receive(os, u64::MAX, QUIET).await?;
        }
        if peer.is_closed && !self.stays() {
            let (stream, mut buf) = (self.stream, [0; 4096]);
            let ends = async |os: &mut Os| while let Ok(1..) = stream.recv(os, &mut buf).await {};
            // Where it stays open, nothing is missing.
            let _ = os.timeout(self.script.patience(), ends).await;
        } else if self.script.is_stopped || self.stays() {
            // Such a connection was open until the interrupt.
            self.tally.open.borrow_mut().push(self.stream.clone());
        }
        Ok(())
    }

    fn stays(&self) -> bool {
        matches!(self.tally.course, Course::Staying)
    }

    /// Makes known how far the peer is. It does not wait for more than so many bytes any longer.
    async fn advance(&self, os: &mut Os, bytes: u64) {
        let bytes = self.got.max(bytes);
        self.tally.reached(os, self.place, self.steps, bytes).await;
    }

    /// Receives until it has got so many bytes, and its answer up to its next step. If not all bytes
    /// have to come, it waits for the others for `quiet`.
    async fn receive(&mut self, os: &mut Os, bytes: u64, quiet: Duration) -> Result<(), String> {
        let (is_strict, stream) = (self.tally.course.is_strict(), self.stream);
        let mut buf = [0; 4096];
        while !self.is_ended && (self.got < bytes || !self.has_answer()) {
            self.has_waited = true;
            let wait = match is_strict || !self.has_answer() {
                true => self.script.patience(),
                false => quiet,
            };
            let received = os.timeout(wait, async |os| stream.recv(os, &mut buf).await);
            let received = received.await;
            if let Ok(Ok(n @ 1..)) = received {
                self.got += n as u64;
                self.tally.heard.borrow_mut()[self.place].take(&buf[..n]);
                if let Some(coming) = &mut self.answer {
                    coming.take(&buf[..n]);
                }
                self.advance(os, 0).await;
                continue;
            }
            self.is_ended = received.is_ok();
            if is_strict {
                return Err(self.lacks(received.ok()));
            }
            break;
        }
        let Some(coming) = &mut self.answer else {
            return Ok(());
        };
        if !coming.has_come(self.steps) {
            coming.end();
        }
        if coming.has_come(self.steps) {
            return Ok(());
        }
        let next = String::from_utf8_lossy(coming.next());
        let (got, next) = (self.got, next.chars().take(60).collect::<String>());
        let why = format!("after {got} bytes, a part of its answer does not come: {next:?}");
        Err(why)
    }

    /// Whether its answer has come up to its next step.
    fn has_answer(&self) -> bool {
        let coming = self.answer.as_ref();
        coming.is_none_or(|coming| coming.has_come(self.steps))
    }

    /// What the peer of a search for bytes says when they do not come: `received` is what came instead.
    fn lacks(&self, received: Option<io::Result<usize>>) -> String {
        let (got, gets) = (self.got, self.script.peers[self.place].gets);
        let what = match received {
            Some(Ok(_)) => "the program ended the connection".to_string(),
            Some(Err(error)) => error.to_string(),
            None => "the program sends no more".to_string(),
        };
        format!("{what} after {got} bytes; on the tape it sent {gets}")
    }
}
