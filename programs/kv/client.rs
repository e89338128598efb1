//! A client: a task that reads its requests, and answers all that have come in one send.

use std::{io, mem, rc::Rc};

use trapline::{Os, Shared, Source, TcpStream, sync::Flag};

use super::{
    commands::{MAX_LETTERS, Session, Stop, answer},
    db::{Db, Outbox, Server, leave, wall_clock},
};
use crate::{
    resp::{self, Unread},
    serve::send_all,
};

/// The replies that are sent at once, about.
const BATCH: usize = 64 << 10;

/// What a client's task has. Whatever ends that, the client is forgotten.
struct Client<'a> {
    server: &'a Server,
    session: Session,
    outbox: Rc<Outbox>,
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        let session = &self.session;
        self.server.db.update(|db| {
            db.clients.remove(&session.id);
            leave(&mut db.watched, session.id, &session.watched);
            leave(&mut db.channels, session.id, &session.channels);
        });
    }
}

/// Serves a client up to its end.
pub(super) async fn serve(os: &mut Os, stream: TcpStream, server: &Server) -> io::Result<()> {
    let outbox = Rc::new(Outbox {
        letters: Shared::default(),
        nudge: Flag::new(os).await,
        stream,
    });
    let (id, is_full) = server.db.update(|db| {
        db.last += 1;
        db.clients.insert(db.last, Rc::clone(&outbox));
        (db.last, db.clients.len() > db.limits.maxclients)
    });
    let mut client = Client {
        server,
        session: Session {
            id,
            ..Session::default()
        },
        outbox,
    };
    if is_full {
        resp::error(&mut client.session.out, "ERR max number of clients reached");
        return client.send(os).await;
    }
    let (mut input, mut least) = (Vec::new(), 1);
    while client.session.stop.is_none() {
        while input.len() < least {
            if !client.receive(os, &mut input).await? {
                return Ok(());
            }
        }
        let now = wall_clock(os).await;
        let used;
        (used, least) = server.db.update(|db| {
            db.expire(now);
            client.answer(db, &input)
        });
        input.drain(..used);
        client.settle(os).await;
        client.send(os).await?;
    }
    if client.session.stop == Some(Stop::Shutdown) {
        server.stop.set(os).await;
    }
    Ok(())
}

impl Client<'_> {
    /// Waits for more requests, and meanwhile sends the messages of channels. Returns whether the client
    /// is still there.
    async fn receive(&mut self, os: &mut Os, input: &mut Vec<u8>) -> io::Result<bool> {
        let outbox = Rc::clone(&self.outbox);
        while !self.session.channels.is_empty() {
            let sources = [
                Source::flag(&outbox.nudge),
                Source::readable(&outbox.stream),
            ];
            if os.select(&sources).await == 1 {
                break;
            }
            outbox.nudge.clear(os).await;
            self.session.out = outbox.letters.update(mem::take);
            self.send(os).await?;
        }
        Ok(outbox.stream.recv_into(os, input).await? > 0)
    }

    /// Answers requests as long as their replies are few. Returns the bytes of them, and how many there must
    /// be behind them before more are read.
    fn answer(&mut self, db: &mut Db, input: &[u8]) -> (usize, usize) {
        let (mut used, mut words) = (0, Vec::with_capacity(8));
        while self.session.stop.is_none() && self.session.out.len() < BATCH {
            let refusal = match resp::request(&input[used..], &mut words) {
                Ok(len) => {
                    used += len;
                    if !words.is_empty() {
                        db.requests += 1;
                        answer(&mut self.session, db, &words);
                    }
                    continue;
                }
                Err(Unread::Part(least)) if least <= resp::MAX_REQUEST => return (used, least),
                Err(Unread::Part(_)) => "ERR Protocol error: a request has at most 64 MiB",
                Err(Unread::Wrong(refusal)) => refusal,
            };
            resp::error(&mut self.session.out, refusal);
            self.session.stop = Some(Stop::Quit);
        }
        (used, 1)
    }

    /// Wakes the tasks that have something to do, and waits until the replies may be sent. If the
    /// changes may not be on the disk, the first one is replied to with an error, and the client is
    /// disconnected.
    async fn settle(&mut self, os: &mut Os) {
        for outbox in mem::take(&mut self.session.told) {
            if outbox.letters.with(Vec::len) > MAX_LETTERS {
                // It may be gone already.
                let _ = outbox.stream.close(os).await;
            } else if !outbox.nudge.is_set() {
                outbox.nudge.set(os).await;
            }
        }
        let server = self.server;
        if !server.expires.is_set() && server.db.update(|db| !db.expiries.is_empty()) {
            server.expires.set(os).await;
        }
        let change = self.session.change.take();
        if let Some(log) = &server.log
            && log.commit(os).await.is_err()
            && let Some(change) = change
        {
            self.session.out.truncate(change);
            let text = "MISCONF the change is made, and may not be on the disk";
            resp::error(&mut self.session.out, text);
            self.session.stop = Some(Stop::Quit);
        }
    }

    /// Sends the replies. A client that reads nothing of them for a while is disconnected.
    async fn send(&mut self, os: &mut Os) -> io::Result<()> {
        if self.session.out.len() > resp::MAX_REPLY {
            return Err(io::Error::other("a reply is too long"));
        }
        send_all(os, &self.outbox.stream, &self.session.out, self.server.slow).await?;
        self.session.out.clear();
        self.session.out.shrink_to(4 * BATCH);
        Ok(())
    }
}
