//! Three tasks ask a cache: two for the key 0, one for the key 1.
//!
//! It prints `[10, 10, 11], 2 computed, at most N at once`, where N is 1 in some schedules and 2 in others:
//! each value is computed once, and those of different keys may be computed at once. `Store` stays as it is.

use std::error::Error;

use trapline::{Os, Shared};
use trapline_cli::Program;

/// Tasks that miss the same key compute its value once
#[derive(clap::Args)]
pub(crate) struct Task {}

impl Program for Task {
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

// Your part:

#[derive(Clone)]
struct Cache {
    values: [Shared<Option<usize>>; 2],
}

impl Cache {
    async fn new(_: &mut Os) -> Self {
        let values = Default::default();
        Self { values }
    }

    async fn get(&self, os: &mut Os, store: &Store, key: usize) -> usize {
        if let Some(value) = self.values[key].get() {
            return value;
        }
        let made = store.compute(os, key).await;
        self.values[key].set(Some(made));
        made
    }
}
