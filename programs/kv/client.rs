//! A client: a task that reads its requests, and answers all that have come in one send.

use std::{io, mem};

use trapline::{Elapsed, Os, Queue, Source, TcpStream};

use super::{
    commands::{Call, answer},
    resp::{self, Unread},
    state::{Db, Fsync, Outbox, Server, Session, Stop, wall_clock},
};

/// The replies that are sent at once, about.
const BATCH: usize = 64 << 10;
/// The most bytes of entries that wait to be written while clients go on.
const WAITING: u64 = 16 << 20;

/// What a client's task has. Whatever ends that, the client is forgotten.
struct Client<'a> {
    server: &'a Server,
    stream: &'a TcpStream,
    session: Session,
    /// Told when messages of channels wait.
    nudge: Queue<()>,
    /// How many bytes of requests there must be before they are read.
    least: usize,
    out: Vec<u8>,
    /// Where the reply to the first change is.
    change: Option<usize>,
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.server.db.update(|db| db.leave(&self.session));
    }
}

/// Serves a client up to its end.
pub(super) async fn serve(os: &mut Os, stream: &TcpStream, server: &Server) -> io::Result<()> {
    let nudge = Queue::bounded(os, 1).await;
    let outbox = Outbox {
        letters: Vec::new(),
        nudge: nudge.clone(),
        stream: stream.clone(),
    };
    let mut client = Client {
        server,
        stream,
        session: Session {
            id: server.db.update(|db| db.join(outbox)),
            ..Session::default()
        },
        nudge,
        least: 1,
        out: Vec::new(),
        change: None,
    };
    if server.db.update(|db| db.clients.len() > db.max_clients) {
        resp::error(&mut client.out, "ERR max number of clients reached");
        return client.send(os).await;
    }
    let mut input = Vec::new();
    loop {
        while input.len() < client.least {
            if !client.receive(os, &mut input).await? {
                return Ok(());
            }
        }
        let now = wall_clock(os).await;
        let used = server.db.update(|db| {
            db.store.now = now;
            client.answer(db, &input)
        });
        input.drain(..used);
        client.settle(os).await;
        client.send(os).await?;
        match client.session.stop {
            None => {}
            Some(Stop::Quit) => return Ok(()),
            Some(Stop::Shutdown) => {
                server.stop.set(os).await;
                return Ok(());
            }
        }
    }
}

impl Client<'_> {
    /// Waits for more requests, and meanwhile sends the messages of channels. Returns whether the client
    /// is still there.
    async fn receive(&mut self, os: &mut Os, input: &mut Vec<u8>) -> io::Result<bool> {
        while !self.session.channels.is_empty() {
            let sources = [Source::message(&self.nudge), Source::readable(self.stream)];
            if os.select(&sources).await == 1 {
                break;
            }
            // Nothing closes it.
            let _ = self.nudge.get(os).await;
            self.out = self.server.db.update(|db| {
                let outbox = db.clients.get_mut(&self.session.id);
                outbox.map_or(Vec::new(), |outbox| mem::take(&mut outbox.letters))
            });
            self.send(os).await?;
        }
        Ok(self.stream.recv_into(os, input).await? > 0)
    }

    /// Answers requests as long as their replies are few. Returns the bytes of them.
    fn answer(&mut self, db: &mut Db, input: &[u8]) -> usize {
        let (mut used, mut words) = (0, Vec::with_capacity(8));
        self.least = 1;
        while self.session.stop.is_none() && self.out.len() < BATCH {
            let refusal = match resp::request(&input[used..], &mut words) {
                Ok(len) => {
                    used += len;
                    self.one(db, &words);
                    continue;
                }
                Err(Unread::Part(least)) if least <= resp::MAX_REQUEST => {
                    self.least = least;
                    break;
                }
                Err(Unread::Part(_)) => "ERR Protocol error: too big request",
                Err(Unread::Wrong(refusal)) => refusal,
            };
            resp::error(&mut self.out, refusal);
            self.session.stop = Some(Stop::Quit);
        }
        used
    }

    fn one(&mut self, db: &mut Db, words: &[&[u8]]) {
        if words.is_empty() {
            return;
        }
        db.requests += 1;
        let (begin, before) = (self.out.len(), db.log.queued);
        let mut call = Call {
            db,
            session: &mut self.session,
            words,
        };
        answer(&mut call, &mut self.out);
        if db.log.queued != before {
            self.change.get_or_insert(begin);
        }
    }

    /// Wakes the tasks that have something to do, and waits until the replies may be sent. If the
    /// changes may not be on the disk, the first one is replied to with an error, and the client is
    /// disconnected.
    async fn settle(&mut self, os: &mut Os) {
        for nudge in mem::take(&mut self.session.nudges) {
            // If it is full, the client is about to look.
            let _ = nudge.try_put(os, ()).await;
        }
        for stream in mem::take(&mut self.session.too_slow) {
            // It may be gone already.
            let _ = stream.close(os).await;
        }
        let server = self.server;
        let (queued, fsync, has_entries, expires) = server.db.update(|db| {
            let log = &db.log;
            let has_entries = !log.pending.is_empty() || log.is_rewrite_asked;
            let first = db.store.expiries.first();
            let expires = first.is_some_and(|(at, _)| *at < db.expiry_at);
            (log.queued, log.fsync, has_entries, expires)
        });
        if has_entries && server.nudge_log.is_empty() {
            let _ = server.nudge_log.try_put(os, ()).await;
        }
        if expires && server.nudge_expiry.is_empty() {
            let _ = server.nudge_expiry.try_put(os, ()).await;
        }
        let change = self.change.take();
        let room = if fsync == Some(Fsync::Always) {
            0
        } else {
            WAITING
        };
        if !written(os, server, queued.saturating_sub(room)).await
            && let Some(change) = change
        {
            self.out.truncate(change);
            let text = "MISCONF the change is made, and may not be on the disk";
            resp::error(&mut self.out, text);
            self.session.stop = Some(Stop::Quit);
        }
    }

    /// Sends the replies. A client that reads nothing of them for a while is disconnected.
    async fn send(&mut self, os: &mut Os) -> io::Result<()> {
        let mut rest = &*self.out;
        if rest.len() > resp::MAX_REPLY {
            return Err(io::Error::other("a reply is too long"));
        }
        while !rest.is_empty() {
            let send = async |os: &mut Os| self.stream.send(os, rest).await;
            match os.timeout(self.server.slow, send).await {
                Ok(sent) => rest = &rest[sent?..],
                Err(Elapsed) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        self.out.clear();
        self.out.shrink_to(4 * BATCH);
        Ok(())
    }
}

/// Waits until so many bytes of entries are written. Returns whether they are.
async fn written(os: &mut Os, server: &Server, bytes: u64) -> bool {
    // A handle of its own: each one has seen other values.
    let written = server.written.clone();
    while written.get() < bytes {
        if server.db.update(|db| db.log.refused.is_some()) {
            return false;
        }
        written.changed(os).await;
    }
    true
}
