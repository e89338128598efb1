//! Where in the source: of spawns, of calls that block, and of faults.

use std::{cell::RefCell, rc::Rc, time::Duration};

use trapline::{
    Errno, Error, Event, Exit, Fact, Kernel, Os, Place, Promise, Queue, Step, Tid,
    record::{Header, Recorder},
    sync::{Barrier, Condition, Flag, Group, Mutex, Semaphore},
};

use crate::support::{sim, tid, unscripted};

const HERE: &str = file!();

/// Runs a task until it blocks. Returns what it waits for, and in which call at which line.
fn blocked(program: impl AsyncFnOnce(&mut Os) + 'static) -> (String, &'static str, u32) {
    let mut kernel = unscripted().max_ticks(100).build().expect("a kernel boots");
    let main = kernel.spawn("main", program).expect("there is room");
    let error = kernel.run().expect_err("the task blocks");
    let tasks = match error {
        Error::Deadlock(deadlock) => deadlock.blocked,
        Error::Limit(_, blocked) => blocked.0,
        other => panic!("{other}"),
    };
    let task = tasks.into_iter().find(|task| task.tid == main);
    let task = task.expect("it is blocked");
    let on = task.blocked_on().expect("it is blocked");
    let place = task.wait.place.expect("the place is known");
    assert_eq!(place.file, HERE);
    (on, task.wait.call, place.line)
}

#[test]
fn a_daemon_of_the_host_has_the_place_of_its_own_spawn() {
    let mut kernel = sim().build().unwrap();
    let rest = async |os: &mut Os| os.sleep(Duration::MAX).await;
    kernel.spawn("task", async |_: &mut Os| {}).unwrap();
    let (daemon, line) = (kernel.spawn_daemon("daemon", rest), line!());
    let place = kernel.place_of_call(daemon).unwrap();
    assert_eq!((&*place.file, place.line), (HERE, line));
}

#[test]
fn each_call_that_blocks_has_its_name_and_its_callers_line() {
    let sleep = async |os: &mut Os| os.sleep(Duration::MAX).await;
    let line = line!() - 1;
    let never = "nothing: it sleeps for ever".to_string();
    assert_eq!(blocked(sleep), (never, "sleep", line));

    let get = async |os: &mut Os| _ = Queue::<()>::unbounded(os).await.get(os).await;
    let line = line!() - 1;
    assert_eq!(blocked(get), ("queue 1 (get)".into(), "get", line));

    let put = async |os: &mut Os| _ = Queue::named(os, "full", 0).await.put(os, ()).await;
    let line = line!() - 1;
    assert_eq!(blocked(put), ("queue 1 \"full\" (put)".into(), "put", line));

    let acquire = async |os: &mut Os| drop(Semaphore::named(os, "s", 0).await.acquire(os).await);
    let line = line!() - 1;
    let on = "semaphore 1 \"s\"".to_string();
    assert_eq!(blocked(acquire), (on, "acquire", line));

    let flag = async |os: &mut Os| Flag::named(os, "f").await.wait(os).await;
    let line = line!() - 1;
    assert_eq!(blocked(flag), ("flag 1 \"f\"".into(), "wait", line));

    let barrier = async |os: &mut Os| _ = Barrier::named(os, "b", 2).await.wait(os).await;
    let line = line!() - 1;
    assert_eq!(blocked(barrier), ("barrier 1 \"b\"".into(), "wait", line));

    let promise = async |os: &mut Os| {
        let (_setter, promise) = Promise::<()>::named(os, "p").await;
        let _ = promise.wait(os).await;
    };
    let line = line!() - 2;
    assert_eq!(blocked(promise), ("promise 1 \"p\"".into(), "wait", line));
}

#[test]
fn a_lock_and_a_condition_have_the_line_of_their_user() {
    let lock = async |os: &mut Os| {
        let mutex = Mutex::named(os, "m", ()).await;
        let _held = mutex.lock(os).await;
        let _again = mutex.lock(os).await;
    };
    let line = line!() - 2;
    let on = "mutex 1 \"m\", held by task 1".to_string();
    assert_eq!(blocked(lock), (on, "lock", line));

    let condition = async |os: &mut Os| {
        let (mutex, condition) = (Mutex::new(os, ()).await, Condition::named(os, "c").await);
        let guard = mutex.lock(os).await.expect("it is whole");
        let _ = condition.wait(os, guard).await;
    };
    let line = line!() - 2;
    let on = "condition 2 \"c\"".to_string();
    assert_eq!(blocked(condition), (on, "wait", line));
}

#[test]
fn a_wait_for_tasks_has_the_line_of_its_user() {
    async fn forever(os: &mut Os) {
        os.sleep(Duration::MAX).await;
    }
    let join = async |os: &mut Os| {
        let mut group = Group::named(os, "g").await;
        let _ = group.spawn(os, "member", forever).await;
        let _ = group.join(os).await;
    };
    let line = line!() - 2;
    assert_eq!(blocked(join), ("group 1 \"g\"".into(), "next", line));

    let child = async |os: &mut Os| {
        let mut child = os
            .spawn_child("child", forever)
            .await
            .expect("there is room");
        let _ = child.wait(os).await;
    };
    let line = line!() - 2;
    let on = "the end of task 2".to_string();
    assert_eq!(blocked(child), (on, "wait", line));
}

#[test]
fn a_replaced_gate_keeps_its_name() {
    let flag = async |os: &mut Os| {
        let flag = Flag::named(os, "open").await;
        flag.set(os).await;
        flag.clear(os).await;
        flag.wait(os).await;
    };
    assert_eq!(blocked(flag).0, "flag 1 \"open\"");
    let barrier = async |os: &mut Os| {
        let barrier = Barrier::named(os, "start", 1).await;
        assert!(barrier.wait(os).await);
        let theirs = Barrier::named(os, "start", 2).await;
        drop(barrier);
        theirs.wait(os).await;
    };
    assert_eq!(blocked(barrier).0, "barrier 3 \"start\"");
}

#[test]
fn every_way_to_start_a_task_notes_its_callers_line() {
    let mut kernel = sim().build().expect("a kernel boots");
    let lines = Rc::new(RefCell::new(Vec::new()));
    let expected = Rc::clone(&lines);
    let main = async move |os: &mut Os| {
        let note = |line| expected.borrow_mut().push(line);
        let nothing = async |_: &mut Os| ();
        os.spawn("spawn", nothing).await?;
        note(line!() - 1);
        os.spawn_detached("detached", nothing).await?;
        note(line!() - 1);
        let _child = os.spawn_child("child", nothing).await?;
        note(line!() - 1);
        let mut group = Group::new(os).await;
        group.spawn(os, "member", nothing).await?;
        note(line!() - 1);
        os.call_soon(nothing).await;
        note(line!() - 1);
        os.call_later(Duration::from_secs(1), nothing).await;
        note(line!() - 1);
        let every = os.call_every(Duration::from_secs(1), async |_| ()).await;
        note(line!() - 1);
        let (_setter, promise) = Promise::<()>::new(os).await;
        let done = promise.on_done(os, async |_, _| ()).await?;
        note(line!() - 1);
        let tasks = os.tasks().await;
        let place = |task: &trapline::TaskInfo| task.spawned.clone().expect("it is known");
        let of_main = place(&tasks[0]);
        writeln!(os, "{of_main}");
        os.kill(every).await;
        os.kill(done).await;
        Ok::<(), Errno>(())
    };
    let line = line!() + 1;
    kernel.spawn("main", main).expect("there is room");
    let spawned = Rc::new(RefCell::new(Vec::new()));
    let places = Rc::clone(&spawned);
    let mut traced = sim()
        .tracer(move |event: &Event<'_>| {
            if let Fact::Spawned { .. } = event.fact {
                places.borrow_mut().push(event.place.clone());
            }
        })
        .build()
        .expect("a kernel boots");
    kernel
        .run()
        .expect("nothing is left")
        .check()
        .expect("all ended well");
    assert_eq!(kernel.take_console(), format!("{HERE}:{line}\n"));
    traced.spawn("host", async |_| ()).expect("there is room");
    let line = line!() - 1;
    traced.run().expect("nothing is left");
    let host: Vec<Place> = spawned.borrow().iter().flatten().cloned().collect();
    assert_eq!(host.len(), 1);
    assert_eq!(host[0].line, line);
    assert_eq!(lines.borrow().len(), 8);
}

/// Of the calls that note no caller, and of those that another call of the task comes before.
#[test]
fn the_last_call_of_a_task_has_its_own_line_or_none() {
    let mut kernel = unscripted()
        .tracer(|_: &Event<'_>| {})
        .inject(|_, _, _| None)
        .build()
        .expect("a kernel boots");
    let line = line!();
    let child = async |os: &mut Os| {
        os.get_tid().await;
        os.sleep(Duration::from_secs(1)).await;
        os.yield_now().await;
        let queue = Queue::unbounded(os).await;
        let _ = queue.put(os, 1).await;
        os.get_tid().await;
    };
    let main = async move |os: &mut Os| {
        os.spawn("child", child).await.expect("there is room");
    };
    kernel.spawn("main", main).expect("there is room");
    let mut places = Vec::new();
    while let step = kernel.step().expect("nothing fails")
        && step != Step::Finished
    {
        if step == Step::Ran(tid(2)) {
            let place = kernel.place_of_call(tid(2));
            places.push(place.map(|place| place.line - line));
        }
    }
    assert_eq!(places, [None, Some(3), None, None, Some(6), None, None]);
}

/// The places in a recording, with the facts that have one.
fn recorded(kernel: impl FnOnce(&mut Kernel)) -> Vec<(Tid, String, String)> {
    let recorder = Recorder::in_memory(1000, &Header::default()).expect("memory");
    let handle = recorder.handle();
    let mut booted = unscripted()
        .tracer(recorder)
        .build()
        .expect("a kernel boots");
    kernel(&mut booted);
    let _ = booted.run();
    drop(booted);
    let recording = handle.recording().expect("it is kept");
    let mut places = Vec::new();
    for event in recording {
        let event = event.expect("it can be read");
        if let Some(place) = &event.place {
            assert_eq!(place.file, HERE);
            places.push((event.tid, event.fact.to_string(), place.line.to_string()));
        }
    }
    places
}

#[test]
fn a_recording_has_the_places_of_spawns_of_calls_that_block_and_of_faults() {
    let line = line!();
    let places = recorded(|kernel| {
        let child = async |os: &mut Os| {
            os.sleep(Duration::from_secs(1)).await;
            panic!("ouch");
        };
        let main = async move |os: &mut Os| {
            let child = os.spawn("child", child).await.expect("there is room");
            assert_eq!(os.wait(child).await, Ok(Exit::Faulted("ouch".into())));
        };
        kernel.spawn("main", main).expect("there is room");
    });
    let expected = [
        (1, "spawned \"main\" by 0", 10),
        (2, "spawned \"child\" by 1", 7),
        (2, "blocked on the timer at 00:01.000", 3),
        (1, "blocked on the end of task 2", 8),
        (2, "exited faulted: ouch", 4),
    ];
    let mut expected = expected.map(|(task, fact, at)| {
        let at: u32 = at;
        (tid(task), fact.to_string(), (line + at).to_string())
    });
    let mut places = places;
    places.sort();
    expected.sort();
    assert_eq!(places, expected);
}

#[test]
fn a_recording_names_queues_and_what_they_are_part_of() {
    let recorder = Recorder::in_memory(1000, &Header::default()).expect("memory");
    let handle = recorder.handle();
    let mut kernel = unscripted()
        .tracer(recorder)
        .build()
        .expect("a kernel boots");
    let main = async |os: &mut Os| {
        let inbox = Queue::named(os, "inbox", 1).await;
        let savings = Mutex::named(os, "savings", ()).await;
        let _group = Group::new(os).await;
        let _held = savings.lock(os).await;
        let _ = inbox.put(os, 1).await;
    };
    kernel.spawn("main", main).expect("there is room");
    kernel.run().expect("nothing is left");
    drop(kernel);
    let mut ledger = trapline::Ledger::new();
    let mut lines = Vec::new();
    for event in handle.recording().expect("it is kept") {
        let event = event.expect("it can be read");
        ledger.take(&event);
        if let Fact::Replied { .. } = event.fact {
            lines.push(ledger.line(&event.fact, event.tid).to_string());
        }
    }
    assert_eq!(
        lines,
        [
            "new_queue(1, \"inbox\") = queue 1 \"inbox\"",
            "new_queue(unbounded, mutex \"savings\") = mutex 2 \"savings\"",
            "new_queue(unbounded, group) = group 3",
            "lock(mutex 2 \"savings\") = message 0",
            "put(queue 1 \"inbox\") = ok",
        ]
    );
}
