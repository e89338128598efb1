//! What a cut of the library's own calls loses: the table in `docs/25-what-a-test-is-worth.md`.

use std::{cell::RefCell, fmt::Write, fs, io, rc::Rc, time::Duration};

use trapline::{
    Error, Kernel, Mode, Os, Promise, Queue, Reader, Source, check,
    sync::{Broadcast, Condition, Flag, Mutex, Once, RwLock, Semaphore, Watch},
};

use crate::support::ROOT;

const HOUR: Duration = Duration::from_secs(3600);

type Body = fn(&mut Kernel) -> Result<(), Error>;
type Failed = Box<dyn std::error::Error>;

/// What the worker has heard, in its own turn.
type Heard<T> = Rc<RefCell<Vec<T>>>;

/// Notes what a call got. It is an argument, so that nothing is borrowed while the call waits.
fn extend<T>(heard: &Heard<T>, got: impl IntoIterator<Item = T>) {
    heard.borrow_mut().extend(got);
}

/// Runs a worker whose calls are cut, within a timeout. Meanwhile `others` run.
async fn worker(
    os: &mut Os,
    calls: impl AsyncFnOnce(&mut Os) + 'static,
    others: impl AsyncFnOnce(&mut Os),
) -> Result<(), Failed> {
    let worker = async move |os: &mut Os| {
        let _ = os.timeout(HOUR, calls).await;
    };
    let worker = os.spawn("worker", worker).await?;
    // Until it waits.
    for _ in 0..4 {
        os.yield_now().await;
    }
    others(os).await;
    let _ = os.wait(worker).await;
    Ok(())
}

fn run(
    kernel: &mut Kernel,
    main: impl AsyncFnOnce(&mut Os) -> Result<(), Failed> + 'static,
) -> Result<(), Error> {
    kernel.spawn("main", main)?;
    kernel.run()?.check()
}

fn get(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let (queue, heard) = (Queue::unbounded(os).await, Heard::default());
        let (theirs, hears) = (queue.clone(), Rc::clone(&heard));
        let get = async move |os: &mut Os| extend(&hears, theirs.get(os).await);
        worker(os, get, async |os| _ = queue.put(os, 7).await).await?;
        assert_eq!(queue.len() + heard.borrow().len(), 1, "a message is lost");
        Ok(())
    })
}

fn put(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let (queue, heard) = (Queue::bounded(os, 1).await, Heard::default());
        queue.put(os, Rc::new(0)).await?;
        let (theirs, hears) = (queue.clone(), Rc::clone(&heard));
        let (message, mine) = (Rc::new(1), Rc::new(()));
        let kept = Rc::clone(&message);
        let put = async move |os: &mut Os| {
            let _mine = mine;
            let is_put = theirs.put(os, message).await.is_ok();
            hears.borrow_mut().push(is_put);
        };
        worker(os, put, async |os| drop(queue.get(os).await)).await?;
        // In the queue, or dropped: never both, and no second time.
        assert_eq!(
            Rc::strong_count(&kept) - 1,
            queue.len(),
            "a message is lost or doubled"
        );
        assert!(heard.borrow().is_empty() || queue.len() == 1);
        Ok(())
    })
}

fn lock(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let lock = Mutex::new(os, 0).await;
        let theirs = lock.clone();
        let held = lock.lock(os).await;
        let take = async move |os: &mut Os| drop(theirs.lock(os).await);
        worker(os, take, async |_| drop(held)).await?;
        assert!(lock.lock(os).await.is_ok(), "the lock is poisoned");
        Ok(())
    })
}

fn read_write(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let lock = RwLock::new(os, 0).await;
        let theirs = lock.clone();
        let held = lock.write(os).await;
        let take = async move |os: &mut Os| {
            drop(theirs.read(os).await);
            drop(theirs.write(os).await);
        };
        worker(os, take, async |_| drop(held)).await?;
        assert!(lock.write(os).await.is_ok(), "the lock is poisoned");
        Ok(())
    })
}

fn acquire(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let permits = Semaphore::new(os, 3).await;
        let theirs = permits.clone();
        let held = permits.acquire_many(os, 2).await?;
        let take = async move |os: &mut Os| drop(theirs.acquire_many(os, 2).await);
        worker(os, take, async |_| drop(held)).await?;
        assert_eq!(permits.available(), 3, "a permit is lost");
        Ok(())
    })
}

fn wait(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let (lock, changed) = (Mutex::new(os, ()).await, Condition::new(os).await);
        let (theirs, told) = (lock.clone(), changed.clone());
        let wait = async move |os: &mut Os| {
            if let Ok(held) = theirs.lock(os).await {
                drop(told.wait(os, held).await);
            }
        };
        worker(os, wait, async |os| _ = changed.notify_one(os).await).await?;
        assert!(lock.lock(os).await.is_ok(), "the lock is poisoned");
        Ok(())
    })
}

/// A signal that a killed waiter has got goes to the next one.
fn signal(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let (lock, changed) = (Mutex::new(os, ()).await, Condition::new(os).await);
        let waits = |lock: Mutex<()>, changed: Condition| {
            async move |os: &mut Os| {
                if let Ok(held) = lock.lock(os).await {
                    drop(changed.wait(os, held).await);
                }
            }
        };
        let second = waits(lock.clone(), changed.clone());
        let first = waits(lock.clone(), changed.clone());
        worker(os, first, async |os| {
            let second = os.spawn("second", second).await.expect("there is room");
            for _ in 0..4 {
                os.yield_now().await;
            }
            changed.notify_one(os).await;
            os.yield_now().await;
            changed.notify_one(os).await;
            let _ = os.wait(second).await;
        })
        .await
    })
}

fn tell(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let flag = Flag::new(os).await;
        let watch = Watch::new(os, 0).await;
        let (setter, promise) = Promise::new(os).await;
        let (theirs, told, kept) = (flag.clone(), watch.clone(), setter.clone());
        let set = async move |os: &mut Os| {
            theirs.set(os).await;
            told.set(os, 1).await;
            let _ = kept.set(os, 1).await;
        };
        worker(os, set, async |_| ()).await?;
        // What is set is seen by those that wait: none sleeps for ever.
        if flag.is_set() {
            flag.wait(os).await;
        }
        if watch.get() == 1 {
            let _ = setter.set(os, 2).await;
            assert!(promise.wait(os).await.is_ok());
        }
        Ok(())
    })
}

fn broadcast(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let (all, heard) = (Broadcast::new(os, 4).await, Heard::default());
        let hears = Rc::clone(&heard);
        let receiver = Rc::new(all.subscribe(os).await);
        let theirs = Rc::clone(&receiver);
        let get = async move |os: &mut Os| extend(&hears, theirs.get(os).await);
        worker(os, get, async |os| _ = all.put(os, 7).await).await?;
        if heard.borrow().is_empty() {
            assert_eq!(receiver.get(os).await?, 7, "a message is lost");
        }
        Ok(())
    })
}

fn once(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let value = Once::new(os).await;
        let theirs = value.clone();
        let make = async move |os: &mut Os| {
            let _ = theirs.get_or_init(os, async |os| os.random().await).await;
        };
        worker(os, make, async |_| ()).await?;
        // Another task makes it, if this one did not.
        value.get_or_init(os, async |_| 1).await;
        Ok(())
    })
}

fn select(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let (one, other) = (
            Queue::unbounded(os).await,
            Queue::<i32>::unbounded(os).await,
        );
        let heard = Heard::default();
        let (theirs, not, hears) = (one.clone(), other.clone(), Rc::clone(&heard));
        let either = async move |os: &mut Os| {
            let sources = [Source::message(&not), Source::message(&theirs)];
            if os.select(&sources).await == 1 {
                extend(&hears, theirs.get(os).await);
            }
        };
        worker(os, either, async |os| _ = one.put(os, 7).await).await?;
        assert_eq!(one.len() + heard.borrow().len(), 1, "a message is lost");
        Ok(())
    })
}

/// The bytes that a client sends to the worker, which reads from a stream that outlives it.
#[expect(
    clippy::await_holding_refcell_ref,
    reason = "one task at a time borrows it"
)]
async fn bytes(os: &mut Os, by_line: bool) -> Result<(), Failed> {
    let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
    let stream = os.connect(([127, 0, 0, 1], 80)).await?;
    let (peer, _) = listener.accept(os).await?;
    let heard = Heard::default();
    let hears = Rc::clone(&heard);
    let reader = Rc::new(RefCell::new(Reader::new(&peer, 64)));
    let (peer, theirs) = (Rc::new(peer), Rc::clone(&reader));
    let from = Rc::clone(&peer);
    let read = async move |os: &mut Os| {
        if by_line {
            let line = theirs.borrow_mut().read_line(os).await;
            extend(&hears, line.ok().flatten().map(String::into_bytes));
        } else {
            let mut buf = [0; 64];
            let n = from.recv(os, &mut buf).await.unwrap_or(0);
            hears.borrow_mut().push(buf[..n].to_vec());
        }
    };
    worker(os, read, async |os| {
        stream.send_all(os, b"he").await.expect("it is open");
        os.sleep(Duration::from_secs(1)).await;
        stream.send_all(os, b"llo\n").await.expect("it is open");
        os.sleep(Duration::from_secs(1)).await;
    })
    .await?;
    stream.shutdown_write(os).await?;
    let mut all = heard.borrow().concat();
    if by_line {
        if all.is_empty() {
            let line = reader.borrow_mut().read_line(os).await?;
            all = line.unwrap_or_default().into_bytes();
        }
        assert_eq!(all, b"hello", "bytes are lost");
        return Ok(());
    }
    let mut buf = [0; 64];
    loop {
        match peer.recv(os, &mut buf).await? {
            0 => break,
            n => all.extend_from_slice(&buf[..n]),
        }
    }
    assert_eq!(all, b"hello\n", "bytes are lost");
    Ok(())
}

fn recv(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| bytes(os, false).await)
}

fn read_line(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| bytes(os, true).await)
}

fn send_all(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
        let stream = Rc::new(os.connect(([127, 0, 0, 1], 80)).await?);
        let (peer, _) = listener.accept(os).await?;
        // More than the buffers hold.
        let (theirs, len) = (Rc::clone(&stream), 1 << 20);
        let send = async move |os: &mut Os| _ = theirs.send_all(os, &vec![1; len]).await;
        let mut buf = vec![0; 1 << 16];
        let mut got = 0;
        worker(os, send, async |os| {
            let read = async |os: &mut Os| {
                while let Ok(n @ 1..) = peer.recv(os, &mut buf).await {
                    got += n;
                }
            };
            let _ = os.timeout(Duration::from_secs(9), read).await;
        })
        .await?;
        assert!(got == 0 || got == len, "a part is sent");
        Ok(())
    })
}

fn append(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let file = Rc::new(os.disk().open(os, "log", Mode::Append).await?);
        let theirs = Rc::clone(&file);
        let append = async move |os: &mut Os| {
            let _ = theirs.append(os, b"hello").await;
            let _ = theirs.sync(os).await;
        };
        worker(os, append, async |os| {
            os.sleep(Duration::from_secs(1)).await;
        })
        .await?;
        // All or nothing, and the file is of use.
        assert!(matches!(file.len(os).await?, 0 | 5), "a part is written");
        file.append(os, b"x").await?;
        Ok(())
    })
}

fn spawn(kernel: &mut Kernel) -> Result<(), Error> {
    run(kernel, async |os| {
        let heard = Heard::default();
        let hears = Rc::clone(&heard);
        let child = async move |os: &mut Os| {
            let hears = Rc::clone(&hears);
            let child = os.spawn_child("child", async move |_: &mut Os| hears.borrow_mut().push(1));
            if let Ok(mut child) = child.await {
                let _ = child.wait(os).await;
            }
        };
        worker(os, child, async |os| os.sleep(Duration::from_secs(1)).await).await?;
        // A child runs to its end, or was never made.
        assert!(heard.borrow().len() <= 1);
        Ok(())
    })
}

const CALLS: [(&str, Body); 16] = [
    ("`Queue::get`", get),
    ("`Queue::put` on a full queue", put),
    ("`Mutex::lock`", lock),
    ("`RwLock::read`, `write`", read_write),
    ("`Semaphore::acquire_many`", acquire),
    ("`Condition::wait`", wait),
    ("`Condition::wait`, and the signal", signal),
    ("`Flag::set`, `Watch::set`, `Setter::set`", tell),
    ("`Receiver::get` of a broadcast", broadcast),
    ("`Once::get_or_init`", once),
    ("`Os::select`, then `get`", select),
    ("`Device::recv`", recv),
    ("`Reader::read_line`", read_line),
    ("`TcpStream::send_all` of much", send_all),
    ("`File::append`, `sync`", append),
    ("`Os::spawn_child`, `Child::wait`", spawn),
];

/// What the cuts of one kind lose, in words.
fn lost(name: &str, body: Body, by_timeout: bool) -> String {
    let search = check(body).fifo().schedules(1);
    let search = match by_timeout {
        true => search.cut_by_timeout("worker"),
        false => search.cut("worker"),
    };
    let explored = search.explore();
    let cuts = explored
        .cuts
        .unwrap_or_else(|| panic!("{name}: {:?}", explored.failure));
    assert!(cuts.len() >= 2, "{name}: {cuts}");
    let failed = cuts.places.iter().find_map(|place| place.why.clone());
    let Some(why) = failed else {
        return "nothing".into();
    };
    let (_, why) = why.rsplit_once(": ").unwrap_or(("", &why));
    why.split(", at ").next().unwrap_or_default().to_string()
}

#[test]
fn the_table_of_our_own_calls_is_in_the_docs() -> io::Result<()> {
    let mut table = String::from("| call | a kill | a timeout |\n|---|---|---|\n");
    for (name, body) in CALLS {
        let (kill, timeout) = (lost(name, body, false), lost(name, body, true));
        writeln!(table, "| {name} | {kill} | {timeout} |").expect("it is a string");
    }
    let page = fs::read_to_string(format!("{ROOT}/docs/25-what-a-test-is-worth.md"))?;
    assert!(
        page.contains(&table),
        "the page has another table than:\n{table}"
    );
    Ok(())
}
