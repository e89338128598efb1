//! A client: a task that reads its requests, and answers all that have come in one send.

use std::{io, mem, ops::Range, time::Duration};

use trapline::{Elapsed, Os, Queue, Source, TcpStream};

use super::{
    aof::settled,
    commands::{Call, answer},
    db::{Db, Mailbox, Session, Stop},
    resp,
    server::Server,
};

/// The replies that are sent at once, about, and the most that one request may have.
const BATCH: usize = 64 << 10;
const MAX_REPLY: usize = 256 << 20;
/// The words of a request that need no memory.
const FEW: usize = 8;
/// The messages that wait for a subscriber.
const MAILBOX: usize = 1024;

/// What a client's task has. Whatever ends that, the client is forgotten.
struct Client<'a> {
    server: &'a Server,
    session: Session,
    out: Vec<u8>,
    /// Where the replies to changes are.
    changes: Vec<Range<usize>>,
    words: Vec<Range<usize>>,
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.server.db.update(|db| db.leave(&mut self.session));
    }
}

/// Serves a client up to its end.
pub(super) async fn serve(os: &mut Os, stream: &TcpStream, server: &Server) -> io::Result<()> {
    let id = server.db.update(|db| {
        db.last += 1;
        db.clients += 1;
        (db.clients <= db.max_clients).then_some(db.last)
    });
    let mut client = Client {
        server,
        session: Session {
            id: id.unwrap_or(0),
            ..Session::default()
        },
        out: Vec::new(),
        changes: Vec::new(),
        words: Vec::new(),
    };
    if id.is_none() {
        resp::error(&mut client.out, "ERR max number of clients reached");
        return client.send(os, stream).await;
    }
    let mut input = Vec::new();
    while client.receive(os, stream, &mut input).await? {
        client.session.now = wall_clock(os).await;
        let mut used = 0;
        loop {
            let answered = server.db.update(|db| client.answer(db, &input[used..]));
            used += answered;
            client.settle(os).await;
            client.send(os, stream).await?;
            match client.session.stop.take() {
                Some(Stop::Quit) => return Ok(()),
                Some(Stop::Shutdown) => {
                    server.stop.set(os).await;
                    return Ok(());
                }
                Some(Stop::NeedsMailbox) => {
                    client.session.mailbox = Some(Mailbox {
                        letters: Queue::bounded(os, MAILBOX).await,
                        stream: stream.clone(),
                    });
                }
                None if answered == 0 => break,
                None => {}
            }
        }
        input.drain(..used);
    }
    Ok(())
}

/// The wall clock in milliseconds.
pub(super) async fn wall_clock(os: &mut Os) -> u64 {
    let since = os.wall_clock().await.duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

impl Client<'_> {
    /// Waits for more requests, and meanwhile sends the messages of channels. Returns whether the client
    /// is still there.
    async fn receive(
        &mut self,
        os: &mut Os,
        stream: &TcpStream,
        input: &mut Vec<u8>,
    ) -> io::Result<bool> {
        while let Some(Mailbox { letters, .. }) = self.session.mailbox.clone() {
            let sources = [Source::message(&letters), Source::readable(stream)];
            if os.select(&sources).await == 1 {
                break;
            }
            while let Ok(letter) = letters.try_get(os).await {
                self.out.extend_from_slice(&letter);
                if self.out.len() >= BATCH {
                    break;
                }
            }
            self.send(os, stream).await?;
        }
        Ok(stream.recv_into(os, input).await? > 0)
    }

    /// Answers requests as long as their replies are few. Returns the bytes of them.
    fn answer(&mut self, db: &mut Db, input: &[u8]) -> usize {
        let mut used = 0;
        while self.session.stop.is_none() && self.out.len() < BATCH {
            let len = match resp::request(&input[used..], &mut self.words) {
                Ok(Some(len)) => len,
                Ok(None) => break,
                Err(refusal) => {
                    resp::error(&mut self.out, refusal);
                    self.session.stop = Some(Stop::Quit);
                    break;
                }
            };
            let begin = self.out.len();
            // Few requests have more words than that.
            let (mut few, mut many) = ([&[][..]; FEW], Vec::new());
            let words = match few.get_mut(..self.words.len()) {
                Some(few) => few,
                None => {
                    many.resize(self.words.len(), &[][..]);
                    &mut *many
                }
            };
            for (word, place) in words.iter_mut().zip(&self.words) {
                *word = &input[used..][place.clone()];
            }
            if !words.is_empty() {
                db.requests += 1;
                let mut call = Call {
                    db,
                    session: &mut self.session,
                    words,
                    out: &mut self.out,
                };
                if answer(&mut call) {
                    self.changes.push(begin..self.out.len());
                }
            }
            if self.session.stop == Some(Stop::NeedsMailbox) {
                break;
            }
            used += len;
        }
        used
    }

    /// Waits until the changes are safe, and puts the messages that were published.
    async fn settle(&mut self, os: &mut Os) {
        for (mailbox, letter) in mem::take(&mut self.session.letters) {
            if mailbox.letters.try_put(os, letter).await.is_err() {
                // It is too slow, or gone already.
                let _ = mailbox.stream.close(os).await;
            }
        }
        let changes = mem::take(&mut self.changes);
        if changes.is_empty() && !mem::take(&mut self.session.asks_log) {
            return;
        }
        let (queued, expires) = self
            .server
            .db
            .update(|db| (db.log.queued(), db.store.expiring()));
        if expires > 0 {
            let _ = self.server.nudge_expiry.try_put(os, ()).await;
        }
        // If it is full, the worker is about to look.
        let _ = self.server.nudge_log.try_put(os, ()).await;
        if settled(os, self.server, queued).await {
            return;
        }
        let replies = mem::take(&mut self.out);
        let mut at = 0;
        for change in changes {
            self.out.extend_from_slice(&replies[at..change.start]);
            resp::error(
                &mut self.out,
                "MISCONF the change is made, and may not be on the disk",
            );
            at = change.end;
        }
        self.out.extend_from_slice(&replies[at..]);
    }

    /// Sends the replies. A client that reads nothing of them for a while is disconnected.
    async fn send(&mut self, os: &mut Os, stream: &TcpStream) -> io::Result<()> {
        let mut rest = &*self.out;
        if rest.len() > MAX_REPLY {
            return Err(io::Error::other("a reply is too long"));
        }
        while !rest.is_empty() {
            let slow = self.server.slow;
            match os
                .timeout(slow, async |os| stream.send(os, rest).await)
                .await
            {
                Ok(sent) => rest = &rest[sent?..],
                Err(Elapsed) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        self.out.clear();
        if self.out.capacity() > 4 * BATCH {
            self.out = Vec::new();
        }
        Ok(())
    }
}

/// The worker that removes keys which have expired.
pub(super) async fn expire(os: &mut Os, server: &Server) {
    loop {
        let now = wall_clock(os).await;
        let (next, queued) = server.db.update(|db| {
            let before = db.log.queued();
            let next = db.expire_some(now);
            (next, db.log.queued() != before)
        });
        if queued {
            let _ = server.nudge_log.try_put(os, ()).await;
        }
        let mut sources = vec![Source::message(&server.nudge_expiry)];
        // The wall clock may step: look again at least every second.
        let span = |at: u64| Duration::from_millis(at.saturating_sub(now).clamp(1, 1000));
        sources.extend(next.map(|at| Source::after(span(at))));
        if os.select(&sources).await == 0 {
            let _ = server.nudge_expiry.get(os).await;
        }
    }
}
