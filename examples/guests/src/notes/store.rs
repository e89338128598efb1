//! The task of the database, and how handlers reach it.
//!
//! The task is a plain program: it calls the disk, and knows nothing of HTTP. The handlers are those of any
//! axum service. Between them are channels of tokio, which are `Send`, as axum wants it.

use std::{collections::BTreeMap, io};

use tokio::sync::{mpsc, oneshot};
use trapline::Os;

use super::log::{Change, Log, apply};

/// The most changes that one sync makes durable.
const BATCH: usize = 32;

/// A handle of the database, for handlers.
#[derive(Clone, Debug)]
pub struct Store(mpsc::Sender<Job>);

/// The database has ended.
#[derive(Clone, Copy, Debug)]
pub struct Gone;

/// What the database is asked for.
#[derive(Debug)]
enum Ask {
    Get(u64),
    All,
    Put(u64, String),
    Append(u64, String),
    Delete(u64),
}

#[derive(Debug)]
struct Job {
    ask: Ask,
    /// The texts after the change, or before a removal.
    answer: oneshot::Sender<BTreeMap<u64, String>>,
}

/// The other end, for [`database`].
#[derive(Debug)]
pub struct Jobs(mpsc::Receiver<Job>);

/// Makes a handle, and its other end.
pub fn channel() -> (Store, Jobs) {
    let (sender, receiver) = mpsc::channel(64);
    (Store(sender), Jobs(receiver))
}

/// Keeps the notes, until the last handle is gone. Fails with the first error of the disk.
pub async fn database(os: &mut Os, Jobs(mut jobs): Jobs) -> io::Result<()> {
    let mut log = Log::open(os).await?;
    let mut batch = Vec::new();
    loop {
        let come = os
            .run_future(async |_| jobs.recv_many(&mut batch, BATCH).await)
            .await;
        if come == 0 {
            return Ok(());
        }
        let mut notes = log.notes.clone();
        let (mut changes, mut answers) = (Vec::new(), Vec::new());
        for Job { ask, answer } in batch.drain(..) {
            let (found, change) = answered(&notes, ask);
            if let Some(change) = change {
                apply(&mut notes, change.clone());
                changes.push(change);
            }
            answers.push((answer, found));
        }
        if !changes.is_empty() {
            log.append(os, &changes).await?;
            log.notes = notes;
        }
        for (answer, found) in answers {
            // The handler may be gone with its client.
            let _ = answer.send(found);
        }
    }
}

fn answered(notes: &BTreeMap<u64, String>, ask: Ask) -> (BTreeMap<u64, String>, Option<Change>) {
    let one = |id: u64, text: &str| BTreeMap::from([(id, text.to_string())]);
    let found = |id: u64| {
        notes
            .get(&id)
            .map_or_else(BTreeMap::new, |text| one(id, text))
    };
    match ask {
        Ask::All => (notes.clone(), None),
        Ask::Get(id) => (found(id), None),
        Ask::Put(id, text) => (one(id, &text), Some(Change::Put(id, text))),
        Ask::Append(id, line) => {
            let text = appended(notes.get(&id).cloned(), &line);
            (one(id, &text), Some(Change::Put(id, text)))
        }
        Ask::Delete(id) => (
            found(id),
            notes.contains_key(&id).then_some(Change::Delete(id)),
        ),
    }
}

fn appended(text: Option<String>, line: &str) -> String {
    text.unwrap_or_default() + line
}

impl Store {
    async fn ask(&self, ask: Ask) -> Result<BTreeMap<u64, String>, Gone> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Job { ask, answer }).await.map_err(|_| Gone)?;
        answered.await.map_err(|_| Gone)
    }

    async fn ask_one(&self, id: u64, ask: Ask) -> Result<Option<String>, Gone> {
        self.ask(ask).await.map(|mut found| found.remove(&id))
    }

    pub async fn all(&self) -> Result<BTreeMap<u64, String>, Gone> {
        self.ask(Ask::All).await
    }

    pub async fn get(&self, id: u64) -> Result<Option<String>, Gone> {
        self.ask_one(id, Ask::Get(id)).await
    }

    pub async fn put(&self, id: u64, text: String) -> Result<(), Gone> {
        self.ask(Ask::Put(id, text)).await.map(drop)
    }

    /// Removes a note, and returns its text.
    pub async fn delete(&self, id: u64) -> Result<Option<String>, Gone> {
        self.ask_one(id, Ask::Delete(id)).await
    }

    /// Appends to a note, and returns its new text.
    pub async fn append(&self, id: u64, line: String) -> Result<Option<String>, Gone> {
        self.ask_one(id, Ask::Append(id, line)).await
    }

    /// The same with a bug, for the search to find: another change may come between the two.
    pub async fn append_in_two(&self, id: u64, line: String) -> Result<Option<String>, Gone> {
        let text = appended(self.get(id).await?, &line);
        self.put(id, text.clone()).await?;
        Ok(Some(text))
    }
}
