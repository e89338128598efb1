//! The task behind a monitor's socket, and a task for each client. A client costs the kernel at
//! most a bounded buffer and a small part of its time.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    error::Error,
    io::{self, Write},
    mem,
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use trapline::{Device, KernelId, Os, Tid, record::Handle};

use super::{
    feed::{Feed, Outbox},
    model::{self, Gauge, Shared},
    peers::Peers,
    protocol::{self, Answer, Request},
    row::Totals,
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
    live: Live,
) -> Result<(), Box<dyn Error>> {
    let listener = os.attach(listener).await?;
    let all = Rc::new(Clients {
        live,
        count: Cell::default(),
        owed: Cell::default(),
        parting: Cell::new(PARTING),
        slow: RefCell::default(),
    });
    loop {
        os.read_wait(&listener).await?;
        os.sleep_until(all.owed.get()).await;
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
        all.count.update(|count| count + 1);
        let place = Place(Rc::clone(&all));
        let client = async move |os: &mut Os| {
            // A failure concerns this client alone.
            let _ = attend(os, stream, &place.0).await;
        };
        let _ = os.spawn_detached("monitor client", client).await;
        // Clients that connect and leave must leave most of the time to other tasks, too.
        os.sleep(model::pause(0)).await;
    }
}

/// What the clients are told about.
pub(super) enum Live {
    /// The kernel of this task.
    Kernel(Shared),
    /// Kernels that run side by side, each with a monitor of its own.
    Kernels(Rc<[(KernelId, PathBuf)]>),
}

/// What all clients share.
struct Clients {
    live: Live,
    /// How many there are.
    count: Cell<u32>,
    /// The instant until which no new client is served. A client that leaves during its wait passes
    /// the wait on.
    owed: Cell<Duration>,
    /// The time that all clients together may take at the kernel's end.
    parting: Cell<Duration>,
    /// Those in the middle of a request or of an answer, with the instants at which these began.
    slow: RefCell<BTreeSet<(Duration, Tid)>>,
}

/// A client's entry among those that are served.
struct Place(Rc<Clients>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.count.update(|count| count - 1);
    }
}

impl Clients {
    /// Disconnects the client that has been in the middle for longest. Returns whether there was one.
    async fn make_room(&self, os: &mut Os) -> bool {
        let now = os.now().await;
        let longest = self.slow.borrow().first().copied();
        match longest {
            Some((since, tid)) if now.saturating_sub(since) >= GRACE => os.kill(tid).await,
            _ => false,
        }
    }
}

/// A request or an answer that is not complete: its entry, which goes with it.
struct Begun {
    all: Rc<Clients>,
    key: (Duration, Tid),
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.all.slow.borrow_mut().remove(&self.key);
    }
}

/// A connection. What remains of its output at the kernel's end is still sent, so that the last
/// events of a run arrive.
struct Client {
    tid: Tid,
    all: Rc<Clients>,
    device: Device<UnixStream>,
    /// The time that it has to wait after its last request.
    pause: Duration,
    /// The received bytes that are not parsed yet.
    input: Vec<u8>,
    output: Vec<u8>,
    /// The number of bytes already sent.
    sent: usize,
    /// The lines of a trace.
    outbox: Rc<RefCell<Outbox>>,
    /// Whether the output ends here.
    over: bool,
    gauge: Option<Gauge>,
    /// Its connections to several kernels.
    peers: Option<Peers>,
}

async fn attend(os: &mut Os, stream: UnixStream, all: &Rc<Clients>) -> io::Result<()> {
    let mut client = Client {
        tid: os.get_tid().await,
        all: Rc::clone(all),
        device: os.attach(stream).await?,
        pause: Duration::ZERO,
        input: Vec::new(),
        output: Vec::new(),
        sent: 0,
        outbox: Rc::default(),
        over: false,
        gauge: None,
        peers: match &all.live {
            Live::Kernel(_) => None,
            Live::Kernels(kernels) => Some(Peers::new(Rc::clone(kernels))),
        },
    };
    let result = if all.count.get() > CLIENTS && !all.make_room(os).await {
        client.refuse(os, "there are too many clients").await
    } else {
        client.serve(os).await
    };
    client.over = true;
    result
}

impl Client {
    async fn serve(&mut self, os: &mut Os) -> io::Result<()> {
        while let Some(line) = self.line(os).await? {
            self.look_at(0);
            let done = self.hear(os, &line).await;
            let end = os.now().await + self.pause;
            if done.is_err() || !self.rest(os, end).await {
                self.all.owed.set(self.all.owed.get().max(end));
                return done;
            }
        }
        Ok(())
    }

    /// A request lists so many tasks. All clients together must leave most of the time to the other
    /// tasks.
    fn look_at(&mut self, tasks: usize) {
        self.pause = model::pause(tasks) * self.all.count.get();
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
                Err(error) => self.push_error(format!("this is no request: {error}")),
            }
        }
        self.flush(os).await
    }

    async fn refuse(&mut self, os: &mut Os, why: impl Into<String>) -> io::Result<()> {
        self.push_error(why);
        self.flush(os).await
    }

    /// Returns the next request without its line end, or `None` at the end of the stream.
    async fn line(&mut self, os: &mut Os) -> io::Result<Option<Vec<u8>>> {
        let mut begun: Option<Begun> = None;
        loop {
            if let Some(end) = self.input.iter().position(|&byte| byte == b'\n') {
                let rest = self.input.split_off(end + 1);
                let mut line = mem::replace(&mut self.input, rest);
                line.truncate(end);
                return Ok(Some(line));
            }
            if self.input.len() > REQUEST {
                let why = format!("a request has at most {REQUEST} bytes");
                return self.refuse(os, why).await.map(|()| None);
            }
            if begun.is_none() && !self.input.is_empty() {
                begun = Some(self.begin(os).await);
            }
            let left = match &begun {
                Some(begun) => (begun.key.0 + DRIP).saturating_sub(os.now().await),
                None => SILENCE,
            };
            match self.listen(os, left).await? {
                Some(true) => {}
                None if begun.is_some() => {
                    let why = format!("a request is complete within {} s", DRIP.as_secs());
                    return self.refuse(os, why).await.map(|()| None);
                }
                Some(false) | None => return Ok(None),
            }
        }
    }

    /// Receives from the client within this time: `None` if it is silent, `false` if it has
    /// disconnected.
    async fn listen(&mut self, os: &mut Os, span: Duration) -> io::Result<Option<bool>> {
        let mut buf = [0; 1024];
        let device = &self.device;
        match os
            .timeout(span, async |os| device.recv(os, &mut buf).await)
            .await
        {
            Err(_) => Ok(None),
            Ok(n) => {
                let n = n?;
                self.input.extend_from_slice(&buf[..n]);
                Ok(Some(n > 0))
            }
        }
    }

    async fn answer(&mut self, os: &mut Os, request: Request) -> io::Result<()> {
        let live = match &self.all.live {
            Live::Kernel(live) => live.clone(),
            Live::Kernels(_) => return self.answer_of_all(os, request).await,
        };
        match request {
            Request::Trace(filter) => {
                let _observer = os.observe(Feed {
                    kernel: live.number,
                    filter,
                    recent: live.recent,
                    outbox: Rc::clone(&self.outbox),
                });
                return self.trace(os).await;
            }
            Request::Dump {} => return self.dump(os, &live).await,
            Request::Kill { tid } => {
                if let Err(why) = live.kill(os, tid).await {
                    self.push_error(why);
                    return Ok(());
                }
            }
            Request::Top(_) => drop(self.gauge.get_or_insert_with(|| live.gauge())),
            Request::Ps(_) | Request::Waits {} | Request::Where { .. } => {}
        }
        let mut snapshot = live.snapshot(os).await;
        self.look_at(snapshot.tasks.len());
        let gauge = self.gauge.as_mut();
        let gauge = gauge.filter(|_| matches!(request, Request::Top(_)));
        let (answers, totals) = match snapshot.answers(&request, gauge) {
            Ok(answers) => answers,
            Err(why) => {
                self.push_error(why);
                return Ok(());
            }
        };
        for answer in answers {
            self.push(&answer);
            self.flush_chunk(os).await?;
        }
        self.end(totals);
        Ok(())
    }

    /// Answers with what all kernels say.
    async fn answer_of_all(&mut self, os: &mut Os, request: Request) -> io::Result<()> {
        let Some(peers) = &mut self.peers else {
            return Ok(());
        };
        if let Request::Trace(_) = request {
            let outbox = Rc::downgrade(&self.outbox);
            let take = move |answer: &Answer| match outbox.upgrade() {
                Some(outbox) => outbox.borrow_mut().take(answer),
                None => false,
            };
            peers.trace(os, &request, take).await;
            self.trace(os).await?;
            // Those that fill it end.
            self.outbox = Rc::default();
            return Ok(());
        }
        let all = match peers.ask(os, request).await {
            Ok(all) => all,
            Err(why) => {
                self.push_error(why);
                return Ok(());
            }
        };
        let mut totals = all.totals.clone();
        self.look_at(totals.tasks);
        let theirs = totals.pause.take().unwrap_or_default();
        let theirs = Duration::try_from_secs_f64(theirs).unwrap_or_default();
        self.pause = self.pause.max(theirs);
        for answer in all.into_each() {
            self.push(&answer);
            self.flush_chunk(os).await?;
        }
        self.end(totals);
        Ok(())
    }

    /// Sends a recording of the last events.
    async fn dump(&mut self, os: &mut Os, live: &Shared) -> io::Result<()> {
        let recorded = live.recorded.as_ref();
        let Some(recorded) = recorded.map(Handle::dump) else {
            self.push_error(NOT_RECORDED);
            return Ok(());
        };
        let Some(bytes) = recorded else {
            self.push_error(RECORDED_WHOLE);
            return Ok(());
        };
        for piece in bytes.chunks(PIECE) {
            let base64 = BASE64_STANDARD.encode(piece);
            self.push(&Answer::Piece { base64 });
            self.flush_chunk(os).await?;
        }
        let (now, tasks) = (os.now().await, os.tasks().await);
        self.look_at(tasks.len() + bytes.len() / EVENT);
        self.end(Totals::of(&tasks, now));
        Ok(())
    }

    /// Sends the events of the outbox until the client sends another request.
    async fn trace(&mut self, os: &mut Os) -> io::Result<()> {
        self.push(&Answer::Tracing);
        loop {
            self.flush(os).await?;
            let over = self.listen(os, BEAT).await?.is_some();
            self.receive();
            if over {
                return Ok(());
            }
        }
    }

    fn push(&mut self, answer: &Answer) {
        protocol::write(answer, &mut self.output);
    }

    fn push_error(&mut self, why: impl Into<String>) {
        let message = why.into();
        self.push(&Answer::Error { message });
    }

    fn end(&mut self, mut totals: Totals) {
        totals.pause = Some(self.pause.as_secs_f64());
        self.push(&Answer::End(totals));
    }

    /// Takes the trace's new lines.
    fn receive(&mut self) {
        self.outbox.borrow_mut().drain(&mut self.output);
    }

    async fn flush_chunk(&mut self, os: &mut Os) -> io::Result<()> {
        if self.output.len() < CHUNK {
            return Ok(());
        }
        self.flush(os).await
    }

    /// Sends everything, unless the client does not read.
    async fn flush(&mut self, os: &mut Os) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let _begun = self.begin(os).await;
        while self.sent < self.output.len() {
            let (device, rest) = (&self.device, &self.output[self.sent..]);
            let sent = os.timeout(STALL, async |os| device.send(os, rest).await);
            self.sent += sent.await.map_err(|_| io::ErrorKind::TimedOut)??;
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Notes that the client is in the middle of a request or of an answer.
    async fn begin(&self, os: &mut Os) -> Begun {
        let (all, key) = (Rc::clone(&self.all), (os.now().await, self.tid));
        all.slow.borrow_mut().insert(key);
        Begun { all, key }
    }

    /// Sends the rest while the kernel ends, within the time that is left for all clients.
    fn part(&mut self) -> io::Result<()> {
        let mut stream: &UnixStream = &self.device;
        stream.set_nonblocking(false)?;
        while self.sent < self.output.len() {
            let left = self.all.parting.get();
            if left.is_zero() {
                break;
            }
            stream.set_write_timeout(Some(left))?;
            let began = Instant::now();
            let sent = stream.write(&self.output[self.sent..]);
            self.all.parting.set(left.saturating_sub(began.elapsed()));
            self.sent += sent?;
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.over {
            self.receive();
            // A failure is ignored, since the client no longer reads.
            let _ = self.part();
        }
    }
}
