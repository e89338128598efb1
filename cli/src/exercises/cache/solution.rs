//! A solution of `task.rs`.

use std::error::Error;

use trapline::{Os, Shared, sync::Mutex};
use trapline_cli::Program;

/// Tasks that miss the same key compute its value once
#[derive(clap::Args)]
pub(crate) struct Solution {}

impl Program for Solution {
    async fn main(self, os: &mut Os) -> Result<(), Box<dyn Error>> {
        let (store, cache) = (Store::default(), Cache::new(os).await);
        let mut tasks = Vec::new();
        for task in 0..3 {
            let store = store.clone();
            let cache = cache.clone();
            let each = async move |os: &mut Os| ask(os, task, &store, &cache).await;
            tasks.push(os.spawn("task", each).await?);
        }
        for task in tasks {
            os.wait(task).await?;
        }
        let (computed, most) = (store.computed.get(), store.most.get());
        let answers = store.answers.map(|answer| answer.get());
        writeln!(
            os,
            "{answers:?}, {computed} computed, at most {most} at once"
        );
        Ok(())
    }
}

const KEYS: [usize; 3] = [0, 0, 1];

#[derive(Clone, Default)]
struct Store {
    answers: [Shared<usize>; 3],
    computed: Shared<u32>,
    under_way: Shared<u32>,
    most: Shared<u32>,
}

impl Store {
    async fn compute(&self, os: &mut Os, key: usize) -> usize {
        self.under_way.update(|under_way| *under_way += 1);
        let under_way = self.under_way.get();
        self.most.update(|most| *most = under_way.max(*most));
        os.yield_now().await;
        self.under_way.update(|under_way| *under_way -= 1);
        self.computed.update(|computed| *computed += 1);
        10 + key
    }
}

async fn ask(os: &mut Os, task: usize, store: &Store, cache: &Cache) {
    let answer = cache.get(os, store, KEYS[task]).await;
    store.answers[task].set(answer);
}

/// A lock for each key, and the value behind it.
#[derive(Clone)]
struct Cache {
    locks: [Mutex<()>; 2],
    values: [Shared<Option<usize>>; 2],
}

impl Cache {
    async fn new(os: &mut Os) -> Self {
        let locks = [Mutex::new(os, ()).await, Mutex::new(os, ()).await];
        let values = Default::default();
        Self { locks, values }
    }

    async fn get(&self, os: &mut Os, store: &Store, key: usize) -> usize {
        let _guard = self.locks[key].lock(os).await;
        if let Some(value) = self.values[key].get() {
            return value;
        }
        let made = store.compute(os, key).await;
        self.values[key].set(Some(made));
        made
    }
}
