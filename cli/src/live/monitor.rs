//! The task behind a monitor's socket, and a task for each client. A client costs the kernel at
//! most a bounded buffer and a small part of its time.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    error::Error,
    io::{self, Write},
    os::unix::net::{UnixListener, UnixStream},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use trapline::{Deadlock, Device, Os, TaskInfo, Tid};

use super::{
    feed::{Feed, Outbox},
    model::{self, Model, Rows},
    protocol::{Answer, Filter, Request},
    query::{Entry, Query},
    recent,
    row::{Row, Totals},
    shared::{Shared, missing},
    socket::SocketFile,
};

/// The largest number of clients at once.
const CLIENTS: u32 = 64;
/// The longest request.
const REQUEST: usize = 4096;
/// The largest number of bytes in one send.
const CHUNK: usize = 1 << 16;
/// The longest time for which a client may send nothing, and for which it may read nothing.
const SILENCE: Duration = Duration::from_secs(60);
const STALL: Duration = Duration::from_secs(10);
/// The longest time from the first byte of a request to its last.
const DRIP: Duration = Duration::from_secs(5);
/// For how long a client may be in the middle of a request or an answer while others find no place.
const GRACE: Duration = Duration::from_secs(1);
/// The period for sending a trace. It also bounds the cost of tracing: once the tracer's buffer is
/// full, events are only counted.
const BEAT: Duration = Duration::from_millis(50);
/// The number of bytes in a piece of a recording.
const PIECE: usize = 3 << 14;
/// The number of bytes of an event in a recording, about.
const EVENT: usize = 8;
/// Why there is nothing to dump.
const NOT_RECORDED: &str = "the kernel keeps no events: boot it with --record FILE --record-last N";
const RECORDED_WHOLE: &str =
    "the kernel records all events to a file: read that, or boot with --record-last N";
/// The longest time that a kernel's end waits for clients to read the last lines.
const PARTING: Duration = Duration::from_millis(500);

/// Serves clients for ever. The socket's file is removed with the task.
pub(super) async fn serve(
    os: &mut Os,
    listener: UnixListener,
    _file: Arc<SocketFile>,
    live: Shared,
) -> Result<(), Box<dyn Error>> {
    let listener = os.attach(listener).await?;
    let clients = Rc::new(Cell::new(0));
    let parting = Rc::new(Cell::new(PARTING));
    let owed = Rc::new(Cell::new(Duration::ZERO));
    let slow = Slow::default();
    loop {
        os.read_wait(&listener).await?;
        os.sleep_until(owed.get()).await;
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // The client closed the connection before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            // Most likely, the process has no free descriptors.
            Err(_) => {
                os.sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let place = Place::take(&clients);
        let (live, parting, owed) = (live.clone(), Rc::clone(&parting), Rc::clone(&owed));
        let slow = slow.clone();
        let client = async move |os: &mut Os| {
            // A failure concerns this client alone.
            let _ = attend(os, stream, live, &place.0, parting, owed, slow).await;
        };
        let _ = os.spawn_detached("monitor client", client).await;
        // Clients that connect and leave must leave most of the time to other tasks, too.
        os.sleep(model::pause(0)).await;
    }
}

/// A client's entry among those that are served.
struct Place(Rc<Cell<u32>>);

impl Place {
    fn take(clients: &Rc<Cell<u32>>) -> Self {
        clients.set(clients.get() + 1);
        Self(Rc::clone(clients))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The clients in the middle of a request or of an answer, with the instants at which these began.
#[derive(Clone, Default)]
struct Slow(Rc<RefCell<BTreeSet<(Duration, Tid)>>>);

impl Slow {
    /// Disconnects the client that has been in the middle for longest. Returns whether there was one.
    async fn make_room(&self, os: &mut Os) -> bool {
        let now = os.now().await;
        let longest = self.0.borrow().first().copied();
        match longest {
            Some((since, tid)) if now.saturating_sub(since) >= GRACE => os.kill(tid).await,
            _ => false,
        }
    }
}

/// A request or an answer that is not complete: its entry, which goes with it.
struct Begun {
    slow: Slow,
    key: (Duration, Tid),
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.slow.0.borrow_mut().remove(&self.key);
    }
}

struct Client {
    live: Shared,
    /// The number of clients.
    clients: Rc<Cell<u32>>,
    /// The time that a client has to wait after its last request.
    pause: Duration,
    /// The instant until which no new client is served. A client that leaves during its wait passes
    /// the wait on.
    owed: Rc<Cell<Duration>>,
    /// The received bytes that are not parsed yet.
    input: Vec<u8>,
    output: Output,
    model: Option<Model>,
}

async fn attend(
    os: &mut Os,
    stream: UnixStream,
    live: Shared,
    clients: &Rc<Cell<u32>>,
    parting: Rc<Cell<Duration>>,
    owed: Rc<Cell<Duration>>,
    slow: Slow,
) -> io::Result<()> {
    let tid = os.get_tid().await;
    let mut client = Client {
        live,
        clients: Rc::clone(clients),
        pause: Duration::ZERO,
        owed,
        input: Vec::new(),
        output: Output {
            device: os.attach(stream).await?,
            bytes: Vec::new(),
            sent: 0,
            over: false,
            parting,
            outbox: Rc::default(),
            tid,
            slow: slow.clone(),
        },
        model: None,
    };
    let result = if clients.get() > CLIENTS && !slow.make_room(os).await {
        client.refuse(os, "there are too many clients").await
    } else {
        client.serve(os).await
    };
    client.output.over = true;
    result
}

impl Client {
    async fn serve(&mut self, os: &mut Os) -> io::Result<()> {
        while let Some(line) = self.line(os).await? {
            self.look_at(0);
            let done = self.hear(os, &line).await;
            let end = os.now().await + self.pause;
            if done.is_err() || !self.rest(os, end).await {
                self.owed.set(self.owed.get().max(end));
                return done;
            }
        }
        Ok(())
    }

    /// A request lists so many tasks. All clients together must leave most of the time to the other
    /// tasks.
    fn look_at(&mut self, tasks: usize) {
        self.pause = model::pause(tasks) * self.clients.get();
    }

    /// Waits until the instant, unless the client disconnects and gives way to others. Returns
    /// whether the client is still connected.
    async fn rest(&mut self, os: &mut Os, end: Duration) -> bool {
        loop {
            let left = end.saturating_sub(os.now().await);
            if left.is_zero() {
                return true;
            }
            if self.input.contains(&b'\n') || self.input.len() > REQUEST {
                // It has sent its next request, and may have ended its stream.
                os.sleep(left).await;
            } else if let Ok(Some(false)) | Err(_) = self.listen(os, left).await {
                return false;
            }
        }
    }

    /// Handles a request line.
    async fn hear(&mut self, os: &mut Os, line: &[u8]) -> io::Result<()> {
        if !line.trim_ascii().is_empty() {
            match serde_json::from_slice(line) {
                Ok(request) => self.answer(os, request).await?,
                Err(error) => {
                    let message = format!("this is no request: {error}");
                    self.output.push(&Answer::error(message));
                }
            }
        }
        self.output.flush(os).await
    }

    async fn refuse(&mut self, os: &mut Os, message: &str) -> io::Result<()> {
        self.output.push(&Answer::error(message));
        self.output.flush(os).await
    }

    /// Returns the next request without its line end, or `None` at the end of the stream.
    async fn line(&mut self, os: &mut Os) -> io::Result<Option<Vec<u8>>> {
        let mut begun: Option<Begun> = None;
        loop {
            if let Some(end) = self.input.iter().position(|&byte| byte == b'\n') {
                let rest = self.input.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.input, rest);
                line.truncate(end);
                return Ok(Some(line));
            }
            if self.input.len() > REQUEST {
                let message = format!("a request has at most {REQUEST} bytes");
                self.refuse(os, &message).await?;
                return Ok(None);
            }
            if begun.is_none() && !self.input.is_empty() {
                begun = Some(self.output.begin(os).await);
            }
            let left = match &begun {
                Some(begun) => (begun.key.0 + DRIP).saturating_sub(os.now().await),
                None => SILENCE,
            };
            match self.listen(os, left).await? {
                Some(true) => {}
                None if begun.is_some() => {
                    let message = format!("a request is complete within {} s", DRIP.as_secs());
                    self.refuse(os, &message).await?;
                    return Ok(None);
                }
                Some(false) | None => return Ok(None),
            }
        }
    }

    /// Receives from the client within this time: `None` if it is silent, `false` if it has
    /// disconnected.
    async fn listen(&mut self, os: &mut Os, span: Duration) -> io::Result<Option<bool>> {
        let mut buf = [0; 1024];
        let device = &self.output.device;
        let heard = os.timeout(span, async |os| device.recv(os, &mut buf).await);
        Ok(match heard.await {
            Err(_) => None,
            Ok(n) => {
                let n = n?;
                self.input.extend_from_slice(&buf[..n]);
                Some(n > 0)
            }
        })
    }

    async fn answer(&mut self, os: &mut Os, request: Request) -> io::Result<()> {
        match request {
            Request::Ps(query) => self.ps(os, &query).await,
            Request::Waits {} => self.waits(os).await,
            Request::Top(query) => self.top(os, &query).await,
            Request::Where { tid } => self.whereabouts(os, tid).await,
            Request::Kill { tid } => {
                self.kill(os, tid).await;
                Ok(())
            }
            Request::Trace(filter) => self.trace(os, filter).await,
            Request::Dump {} => self.dump(os).await,
        }
    }

    fn end(&mut self, mut totals: Totals) {
        totals.pause = Some(self.pause.as_secs_f64());
        self.output.push(&Answer::End(totals));
    }

    fn miss(&mut self, tid: u64) {
        self.output.push(&Answer::error(missing(tid)));
    }

    async fn ps(&mut self, os: &mut Os, query: &Query) -> io::Result<()> {
        let (now, tasks) = (os.now().await, os.tasks().await);
        self.look_at(tasks.len());
        let mut totals = Totals::of(&tasks, now);
        let entries = tasks.iter().map(Entry::of).collect();
        let recent = Rc::clone(&self.live.recent);
        let mut rows = Rows::of(query, &tasks, entries, &recent.borrow(), &mut totals);
        loop {
            // The ledger is the tracer's again while this task waits.
            let row = rows.next(&recent.borrow());
            let Some(row) = row else {
                break;
            };
            self.output.push(&Answer::Task(row));
            self.output.flush_chunk(os).await?;
        }
        self.end(totals);
        Ok(())
    }

    fn row(&self, task: &TaskInfo) -> Answer {
        Answer::Task(Row::of(task, &self.live.recent.borrow()))
    }

    async fn waits(&mut self, os: &mut Os) -> io::Result<()> {
        let (now, tasks) = (os.now().await, os.tasks().await);
        self.look_at(tasks.len());
        let totals = Totals::of(&tasks, now);
        let Deadlock {
            blocked,
            cycles,
            tails,
            ..
        } = Deadlock::among(tasks);
        for task in &blocked {
            self.output.push(&self.row(task));
            self.output.flush_chunk(os).await?;
        }
        let numbers = |tids: Vec<Tid>| tids.into_iter().map(u64::from).collect();
        let cycles = cycles.into_iter().map(|tids| Answer::Cycle {
            tids: numbers(tids),
        });
        let tails = tails.into_iter().map(|tids| Answer::Behind {
            tids: numbers(tids),
        });
        for answer in cycles.chain(tails) {
            self.output.push(&answer);
            self.output.flush_chunk(os).await?;
        }
        self.end(totals);
        Ok(())
    }

    async fn top(&mut self, os: &mut Os, query: &Query) -> io::Result<()> {
        let live = &self.live;
        let model = self.model.get_or_insert_with(|| Model::new(live));
        let snapshot = model.snapshot(os, query).await;
        self.look_at(snapshot.totals.tasks);
        for row in snapshot.tasks {
            self.output.push(&Answer::Task(row));
            self.output.flush_chunk(os).await?;
        }
        self.end(snapshot.totals);
        Ok(())
    }

    async fn whereabouts(&mut self, os: &mut Os, tid: u64) -> io::Result<()> {
        let (now, tasks) = (os.now().await, os.tasks().await);
        self.look_at(tasks.len());
        let chain = model::chain(&tasks, &self.live.recent.borrow(), tid);
        if chain.is_empty() {
            self.miss(tid);
            return Ok(());
        }
        let traps = recent::lines(&self.live.recent.borrow(), tid.into());
        for row in chain {
            self.output.push(&Answer::Task(row));
            self.output.flush_chunk(os).await?;
        }
        for trap in traps {
            self.output.push(&Answer::Trap(trap));
        }
        self.end(Totals::of(&tasks, now));
        Ok(())
    }

    async fn kill(&mut self, os: &mut Os, tid: u64) {
        if let Err(why) = self.live.kill(os, tid).await {
            return self.output.push(&Answer::error(why));
        }
        let (now, tasks) = (os.now().await, os.tasks().await);
        self.look_at(tasks.len());
        self.end(Totals::of(&tasks, now));
    }

    /// Sends a recording of the last events.
    async fn dump(&mut self, os: &mut Os) -> io::Result<()> {
        let Some(recorded) = &self.live.recorded else {
            self.output.push(&Answer::error(NOT_RECORDED));
            return Ok(());
        };
        let Some(bytes) = recorded.dump() else {
            self.output.push(&Answer::error(RECORDED_WHOLE));
            return Ok(());
        };
        for piece in bytes.chunks(PIECE) {
            let base64 = BASE64_STANDARD.encode(piece);
            self.output.push(&Answer::Piece { base64 });
            self.output.flush_chunk(os).await?;
        }
        let (now, tasks) = (os.now().await, os.tasks().await);
        self.look_at(tasks.len() + bytes.len() / EVENT);
        self.end(Totals::of(&tasks, now));
        Ok(())
    }

    /// Sends events until the client sends another request.
    async fn trace(&mut self, os: &mut Os, filter: Filter) -> io::Result<()> {
        let observer = os.observe(Feed {
            filter,
            recent: Rc::clone(&self.live.recent),
            outbox: Rc::clone(&self.output.outbox),
        });
        self.output.push(&Answer::Tracing);
        loop {
            self.output.flush(os).await?;
            let over = self.listen(os, BEAT).await?.is_some();
            self.output.receive();
            if over {
                drop(observer);
                return Ok(());
            }
        }
    }
}

/// The output to a client. What remains at the kernel's end is still sent, so that the last events
/// of a run arrive.
struct Output {
    device: Device<UnixStream>,
    bytes: Vec<u8>,
    /// The number of bytes already sent.
    sent: usize,
    /// Whether the output ends here.
    over: bool,
    /// The time that all clients together may take at the kernel's end.
    parting: Rc<Cell<Duration>>,
    outbox: Rc<RefCell<Outbox>>,
    /// The client, and those that are slow.
    tid: Tid,
    slow: Slow,
}

impl Output {
    fn push(&mut self, answer: &Answer) {
        answer.write(&mut self.bytes);
    }

    /// Takes the trace's new lines.
    fn receive(&mut self) {
        self.outbox.borrow_mut().drain(&mut self.bytes);
    }

    async fn flush_chunk(&mut self, os: &mut Os) -> io::Result<()> {
        if self.bytes.len() < CHUNK {
            return Ok(());
        }
        self.flush(os).await
    }

    /// Sends the rest while the kernel ends. The wait is limited by the time left for all clients.
    fn part(&mut self) -> io::Result<()> {
        let (began, time) = (Instant::now(), self.parting.get());
        let sent = self.send_within(time);
        self.parting.set(time.saturating_sub(began.elapsed()));
        sent
    }

    fn send_within(&mut self, time: Duration) -> io::Result<()> {
        let mut stream: &UnixStream = &self.device;
        stream.set_nonblocking(false)?;
        let began = Instant::now();
        while self.sent < self.bytes.len() {
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            stream.set_write_timeout(Some(left))?;
            self.sent += stream.write(&self.bytes[self.sent..])?;
        }
        Ok(())
    }

    /// Notes that the client is in the middle of a request or of an answer.
    async fn begin(&self, os: &mut Os) -> Begun {
        let key = (os.now().await, self.tid);
        self.slow.0.borrow_mut().insert(key);
        let slow = self.slow.clone();
        Begun { slow, key }
    }

    /// Sends everything, unless the client does not read.
    async fn flush(&mut self, os: &mut Os) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let _begun = self.begin(os).await;
        while self.sent < self.bytes.len() {
            let (device, rest) = (&self.device, &self.bytes[self.sent..]);
            let sent = os.timeout(STALL, async |os| device.send(os, rest).await);
            self.sent += sent.await.map_err(|_| io::ErrorKind::TimedOut)??;
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.over {
            self.receive();
            // A failure is ignored, since the client no longer reads.
            let _ = self.part();
        }
    }
}
