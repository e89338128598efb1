//! Three tasks ask a cache: two for one key, one for another. Each value is computed once, and values of
//! different keys may be computed at once.

use trapline::{
    Error, Kernel, Os, Promise, Queue, Setter, Shared,
    sync::{Condition, Mutex, Once, Semaphore},
};

use super::{Peak, Wrong, all, all_right, all_wrong, locked, locked_when, programs, put, run};

const KEYS: [usize; 3] = [0, 0, 1];

#[derive(Clone, Default)]
struct Store {
    computed: Shared<u32>,
    under_way: Peak,
}

impl Store {
    async fn compute(&self, os: &mut Os, key: usize) -> usize {
        self.under_way.pass(os).await;
        self.computed.update(|computed| *computed += 1);
        10 + key
    }
}

/// Runs three tasks. `make` makes what looks up a key.
fn asking<G: AsyncFn(&mut Os, &Store, usize) -> usize + 'static>(
    kernel: &mut Kernel,
    make: impl AsyncFnOnce(&mut Os) -> G + 'static,
) -> Result<(), Error> {
    run(kernel, async move |os: &mut Os| {
        let store = Store::default();
        let (get, theirs) = (make(os).await, store.clone());
        let answers = [0; 3].map(Shared::new);
        let each = answers.clone();
        all(os, 3, async move |os: &mut Os, task: usize| {
            each[task].set(get(os, &theirs, KEYS[task]).await);
        })
        .await?;
        let (computed, most) = (store.computed.get(), store.under_way.most());
        let answers = answers.map(|answer| answer.get());
        writeln!(
            os,
            "{answers:?}, {computed} computed, at most {most} at once"
        );
        Ok::<(), trapline::Errno>(())
    })
}

fn once(kernel: &mut Kernel) -> Result<(), Error> {
    asking(kernel, async |os: &mut Os| {
        let values = [Once::new(os).await, Once::new(os).await];
        async move |os: &mut Os, store: &Store, key: usize| {
            let init = async |os: &mut Os| store.compute(os, key).await;
            *values[key].get_or_init(os, init).await
        }
    })
}

fn lock_for_each_key(kernel: &mut Kernel) -> Result<(), Error> {
    with_locks(kernel, |key| (key, key))
}

/// Has a lock for each key, and a value. `places` returns the lock's and the value's index.
fn with_locks(kernel: &mut Kernel, places: fn(usize) -> (usize, usize)) -> Result<(), Error> {
    asking(kernel, async move |os: &mut Os| {
        let locks = [Mutex::new(os, ()).await, Mutex::new(os, ()).await];
        let values = [Shared::new(None), Shared::new(None)];
        async move |os: &mut Os, store: &Store, key: usize| {
            let (lock, value) = places(key);
            let _guard = locked(os, &locks[lock]).await;
            if let Some(value) = values[value].get() {
                return value;
            }
            let made = store.compute(os, key).await;
            values[value].set(Some(made));
            made
        }
    })
}

fn permit_for_each_key(kernel: &mut Kernel) -> Result<(), Error> {
    asking(kernel, async |os: &mut Os| {
        let permits = [Semaphore::new(os, 1).await, Semaphore::new(os, 1).await];
        let values = [Shared::new(None), Shared::new(None)];
        async move |os: &mut Os, store: &Store, key: usize| {
            let _permit = permits[key].acquire(os).await;
            if values[key].get().is_none() {
                let made = store.compute(os, key).await;
                values[key].set(Some(made));
            }
            values[key].get().expect("it is made")
        }
    })
}

fn promises(kernel: &mut Kernel) -> Result<(), Error> {
    promised(kernel, true)
}

/// The first task of a key takes its setter.
fn promised(kernel: &mut Kernel, is_set: bool) -> Result<(), Error> {
    asking(kernel, async move |os: &mut Os| {
        let mut entries: Vec<(Shared<Option<Setter<usize>>>, Promise<usize>)> = Vec::new();
        for _ in 0..2 {
            let (setter, promise) = Promise::new(os).await;
            entries.push((Shared::new(Some(setter)), promise));
        }
        async move |os: &mut Os, store: &Store, key: usize| {
            let (setter, promise) = &entries[key];
            if let Some(setter) = setter.update(Option::take) {
                let made = store.compute(os, key).await;
                if !is_set {
                    return made;
                }
                assert_eq!(setter.set(os, made).await, Ok(()));
            }
            promise.wait(os).await.expect("it is set")
        }
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Entry {
    Empty,
    Pending,
    Made(usize),
}

fn pending(kernel: &mut Kernel) -> Result<(), Error> {
    monitor(kernel, true)
}

fn monitor(kernel: &mut Kernel, notifies: bool) -> Result<(), Error> {
    asking(kernel, async move |os: &mut Os| {
        let changed = Condition::new(os).await;
        let entries = [
            Mutex::new(os, Entry::Empty).await,
            Mutex::new(os, Entry::Empty).await,
        ];
        async move |os: &mut Os, store: &Store, key: usize| {
            let is_decided = |entry: &Entry| *entry != Entry::Pending;
            let mut entry = locked_when(os, &entries[key], &changed, is_decided).await;
            if let Entry::Made(value) = *entry {
                return value;
            }
            *entry = Entry::Pending;
            drop(entry);
            let made = store.compute(os, key).await;
            *locked(os, &entries[key]).await = Entry::Made(made);
            if notifies {
                changed.notify_all(os).await;
            }
            made
        }
    })
}

fn token_for_each_key(kernel: &mut Kernel) -> Result<(), Error> {
    asking(kernel, async |os: &mut Os| {
        let slots = [Queue::bounded(os, 1).await, Queue::bounded(os, 1).await];
        for slot in &slots {
            put(os, slot, None).await;
        }
        async move |os: &mut Os, store: &Store, key: usize| {
            let known = super::take(os, &slots[key]).await;
            let value = match known {
                Some(value) => value,
                None => store.compute(os, key).await,
            };
            put(os, &slots[key], Some(value)).await;
            value
        }
    })
}

fn checks_then_computes(kernel: &mut Kernel) -> Result<(), Error> {
    asking(kernel, async |_: &mut Os| {
        let values = [Shared::new(None), Shared::new(None)];
        async move |os: &mut Os, store: &Store, key: usize| {
            if let Some(value) = values[key].get() {
                return value;
            }
            let made = store.compute(os, key).await;
            values[key].set(Some(made));
            made
        }
    })
}

fn one_lock(kernel: &mut Kernel) -> Result<(), Error> {
    with_locks(kernel, |key| (0, key))
}

fn one_value(kernel: &mut Kernel) -> Result<(), Error> {
    with_locks(kernel, |key| (key, 0))
}

fn broken_promise(kernel: &mut Kernel) -> Result<(), Error> {
    promised(kernel, false)
}

fn no_signal(kernel: &mut Kernel) -> Result<(), Error> {
    monitor(kernel, false)
}

#[test]
fn the_programs_of_the_cache_are_judged_right() {
    all_right(
        lock_for_each_key,
        programs![
            once,
            permit_for_each_key,
            promises,
            pending,
            token_for_each_key
        ],
    );
}

#[test]
fn the_wrong_programs_of_the_cache_are_found() {
    let [twice, strict, mixed, broken, silent] = programs![
        checks_then_computes,
        one_lock,
        one_value,
        broken_promise,
        no_signal
    ];
    all_wrong(
        lock_for_each_key,
        &[
            (Wrong::Race, twice),
            (Wrong::TooStrict, strict),
            (Wrong::Race, mixed),
            (Wrong::Fault, broken),
            (Wrong::Deadlock, silent),
        ],
    );
}
