//! The follower: which call each task is at.

use std::{cell::RefCell, rc::Rc, time::Duration};

use trapline::{Detail, Event, Fact, Follower, On, Os, Reply, SystemCall, Tid, Tracer};

use crate::support::*;

/// Hands facts about a task to a follower.
fn follow(follower: &mut Follower, tid: u64, facts: impl IntoIterator<Item = Fact<'static>>) {
    for (at, fact) in facts.into_iter().enumerate() {
        let at = Duration::from_secs(at as u64);
        let tid = tid.into();
        follower.event(&Event {
            at,
            tid,
            fact,
            place: None,
        });
    }
}

#[test]
fn a_follower_knows_which_call_a_task_is_at() {
    let trapped = |call| Fact::Trapped {
        call,
        detail: Detail::None,
    };
    let on = On::Exit(3.into());
    let mut follower = Follower::new();
    let (parent, name) = (Tid::KERNEL, "waiter".into());
    follow(&mut follower, 1, [Fact::Spawned { parent, name }]);
    assert!(follower.last(1.into()).is_none());
    let wait = trapped(SystemCall::WaitTask(3.into()));
    follow(&mut follower, 1, [trapped(SystemCall::Now), wait]);
    let unseen = follower.unseen(1.into()).expect("it has no answer");
    assert_eq!(unseen.to_string(), "wait_task(3)");
    let blocked = Fact::Blocked { on };
    follow(&mut follower, 1, [blocked]);
    assert!(follower.unseen(1.into()).is_none(), "a trace has shown it");
    let pending = follower.pending(1.into()).expect("it has no answer");
    assert_eq!(pending.blocked, Some((on, Duration::ZERO)));
    let reply = Reply::Done;
    follow(
        &mut follower,
        1,
        [Fact::Replied {
            reply,
            detail: Detail::None,
        }],
    );
    let told = |follower: &Follower, reply| {
        let fact = Fact::Replied {
            reply,
            detail: Detail::None,
        };
        follower.line(&fact, 1.into()).to_string()
    };
    assert_eq!(told(&follower, reply), "... wait_task(3) = ok");
    assert!(follower.pending(1.into()).is_none());
    let late = Reply::Elapsed(1);
    follow(
        &mut follower,
        1,
        [Fact::Replied {
            reply: late,
            detail: Detail::None,
        }],
    );
    assert!(follower.last(1.into()).is_some_and(|call| call.is_late));
    assert_eq!(
        told(&follower, late),
        "... wait_task(3) = timeout 1 elapsed"
    );
    follow(&mut follower, 1, [Fact::Reaped]);
    assert_eq!((follower.comm(1.into()), follower.len()), ("waiter", 0));
    follow(&mut follower, 2, [Fact::Reaped]);
    assert_eq!(follower.comm(1.into()), "?", "another was reaped since");
}

#[test]
fn a_follower_keeps_as_many_calls_and_tasks_as_it_is_told_to() {
    let mut follower = Follower::keeping(2).at_most(1);
    let calls = [SystemCall::Now, SystemCall::Yield, SystemCall::Random];
    for tid in [1, 2] {
        let trapped = calls.map(|call| Fact::Trapped {
            call,
            detail: Detail::None,
        });
        follow(&mut follower, tid, trapped);
    }
    let kept = |tid: u64| {
        let calls = follower.calls(tid.into());
        calls.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(kept(1), ["yield()", "random()"]);
    assert!(kept(2).is_empty(), "there was no room");
    assert_eq!(follower.comm(1.into()), "?", "its name was not told");
}

#[test]
fn a_follower_knows_the_addresses_of_open_devices() {
    let follower = Rc::new(RefCell::new(Follower::new()));
    let opened = Rc::new(RefCell::new(Vec::new()));
    let (tracer, devices) = (Rc::clone(&follower), Rc::clone(&opened));
    let builder = unscripted().tracer(move |event: &Event<'_>| {
        tracer.borrow_mut().event(event);
        if let Fact::Replied {
            reply: Reply::Device(device),
            ..
        } = event.fact
        {
            devices.borrow_mut().push(device);
        }
    });
    let mut kernel = builder.build().unwrap();
    let addrs = move || -> Vec<_> {
        let opened = opened.borrow();
        let addrs = opened.iter().map(|device| follower.borrow().addr(*device));
        addrs.collect()
    };
    let seen = addrs.clone();
    let main = async move |os: &mut Os| {
        let listener = os.listen("127.0.0.1:80".parse().unwrap()).await?;
        let here = listener.local_addr()?;
        let client = os.connect(here).await?;
        let (server, peer) = listener.accept(os).await?;
        os.yield_now().await;
        assert_eq!(seen(), [Some(here), Some(here), Some(peer)]);
        drop((client, server));
        os.yield_now().await;
        assert_eq!(seen(), [Some(here), None, None]);
        Ok::<(), std::io::Error>(())
    };
    kernel.spawn("main", main).unwrap();
    kernel.run().unwrap().check().unwrap();
    assert_eq!(addrs(), [None; 3], "all are closed");
}
