//! A client that keeps what it has read.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::{Client, Failed};

/// A client with a cache: a URL is asked for once, until this client puts another text there.
#[derive(Clone, Debug)]
pub struct Cached {
    client: Client,
    cache: Arc<Mutex<Cache>>,
    is_racy: bool,
}

#[derive(Debug, Default)]
struct Cache {
    texts: BTreeMap<String, Bytes>,
    /// How many times each URL was put.
    puts: BTreeMap<String, u64>,
}

impl Cached {
    /// The racy one has a bug, for the search to find: the answer to an early request may replace what a
    /// later put has left.
    pub fn new(client: Client, is_racy: bool) -> Self {
        Self {
            client,
            cache: Arc::default(),
            is_racy,
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn get(&self, url: &str) -> Result<Bytes, Failed> {
        let (found, puts) = {
            let cache = self.cache();
            (cache.texts.get(url).cloned(), cache.puts.get(url).copied())
        };
        if let Some(found) = found {
            return Ok(found);
        }
        let body = self.client.get(url).await?.body;
        let mut cache = self.cache();
        if self.is_racy || cache.puts.get(url).copied() == puts {
            cache.texts.insert(url.to_string(), body.clone());
        }
        Ok(body)
    }

    pub async fn put(&self, url: &str, body: impl Into<Bytes>) -> Result<(), Failed> {
        let body = body.into();
        self.note_put(url, None);
        let answer = self.client.put(url, body.clone()).await?;
        match answer.status.is_success() {
            true => self.note_put(url, Some(body)),
            false => return Err(format!("{url}: {}", answer.status).into()),
        }
        Ok(())
    }

    fn note_put(&self, url: &str, body: Option<Bytes>) {
        let mut cache = self.cache();
        *cache.puts.entry(url.to_string()).or_default() += 1;
        match body {
            Some(body) => drop(cache.texts.insert(url.to_string(), body)),
            None => drop(cache.texts.remove(url)),
        }
    }
}
