//! Chains of any length, whose links end one another: none is worked off on the stack.

use std::{any::Any, cell::Cell, pin::Pin, rc::Rc, thread, time::Duration};

use trapline::{
    Errno, Exit, Kernel, Os, Promise, Queue, Setter, SimNet,
    sync::{Group, Mutex},
};

use crate::support::*;

/// How long a chain is.
fn links() -> usize {
    tenth_in_a_mode(10_000)
}

/// Runs a test on a stack with room for 26 bytes a link.
fn on_a_small_stack(test: fn()) {
    let name = thread::current().name().unwrap_or("a chain").to_string();
    let small = thread::Builder::new().name(name).stack_size(256 * 1024);
    let done = small.spawn(test).expect("a thread starts").join();
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// How many links have been dropped.
type Count = Rc<Cell<usize>>;

/// Counts its own end.
struct Counted(Count);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// A task that holds a group with a task in it that holds a group, and so on.
fn nest(os: &mut Os, links: usize, count: Count) -> Pin<Box<dyn Future<Output = ()> + '_>> {
    Box::pin(async move {
        let _counted = Counted(Rc::clone(&count));
        let mut group = Group::new(os).await;
        if links > 1 {
            let member = async move |os: &mut Os| nest(os, links - 1, count).await;
            group.spawn(os, "member", member).await.unwrap();
        }
        os.sleep(Duration::MAX).await;
    })
}

#[test]
fn s06_a_kill_goes_through_groups_within_groups() {
    on_a_small_stack(|| {
        console(async |os| {
            let count = Count::default();
            let theirs = Rc::clone(&count);
            let root = async move |os: &mut Os| nest(os, links(), theirs).await;
            let root = os.spawn("root", root).await?;
            os.sleep(Duration::from_secs(1)).await;
            assert_eq!(count.get(), 0);
            assert!(os.kill(root).await);
            assert_eq!(count.get(), links());
            assert_eq!(os.wait(root).await?, Exit::Killed);
            assert_eq!(os.tasks().await.len(), 1);
            Ok::<(), Errno>(())
        });
    });
}

#[test]
fn s07_who_kills_the_root_from_the_last_group_goes_with_it() {
    let transcript = console(async |os| {
        let root = async |os: &mut Os| {
            let me = os.get_tid().await;
            let mut outer = Group::new(os).await;
            let member = async move |os: &mut Os| {
                let mut inner = Group::new(os).await;
                let killer = async move |os: &mut Os| {
                    let killed = os.kill(me).await;
                    writeln!(os, "it went on: {killed}");
                };
                inner.spawn(os, "killer", killer).await.unwrap();
                os.sleep(Duration::MAX).await;
            };
            outer.spawn(os, "member", member).await.unwrap();
            os.sleep(Duration::MAX).await;
        };
        let root = os.spawn("root", root).await?;
        let exit = os.wait(root).await?;
        let left = os.tasks().await.len();
        writeln!(os, "{exit}, {left} left");
        Ok::<(), Errno>(())
    });
    assert_eq!(transcript, "killed, 1 left\n");
}

#[test]
fn s17_a_kill_ends_what_is_within_first_whatever_panics() {
    let (mut kernel, log) = logged(sim());
    run_main(&mut kernel, async |os: &mut Os| {
        let root = async |os: &mut Os| {
            let mut outer = Group::new(os).await;
            let member = async |os: &mut Os| {
                let mut inner = Group::new(os).await;
                inner.spawn(os, "last", spin).await.unwrap();
                let _panics = PanicOnDrop;
                os.sleep(Duration::MAX).await;
            };
            outer.spawn(os, "member", member).await.unwrap();
            outer.spawn(os, "other", spin).await.unwrap();
            os.sleep(Duration::MAX).await;
        };
        let root = os.spawn("root", root).await?;
        passes(os, 9).await;
        assert!(os.kill(root).await);
        Ok::<(), Errno>(())
    });
    let log = log.lines().join("\n").replace("00:00.000000000 ", "");
    let (_, killed) = log.split_once("kill_task(2)\n").expect("it was killed");
    let (killed, _) = killed.split_once("\n1 replied true").expect("it answered");
    let killed: Vec<_> = killed
        .lines()
        .filter(|line| !line.contains("deferred"))
        .collect();
    let innermost_first = "5 exited killed\n5 reaped\n3 exited killed\n3 reaped\n\
                           4 exited killed\n4 reaped\n2 exited killed";
    assert_eq!(killed.join("\n"), innermost_first);
}

/// Each task holds the group that the task before it is in: the youngest, which is the first to
/// go at a shutdown, ends them all.
#[test]
fn s50_a_shutdown_goes_through_groups_from_the_inside() {
    on_a_small_stack(|| {
        let count = Count::default();
        let theirs = Rc::clone(&count);
        let mut kernel = Kernel::simulated(0);
        let main = async move |os: &mut Os| {
            let mut before = None;
            for _ in 0..links() {
                let mut group = Group::new(os).await;
                let counted = Counted(Rc::clone(&theirs));
                let member = async move |os: &mut Os| {
                    let _owned = (before, counted);
                    os.sleep(Duration::MAX).await;
                };
                group.spawn(os, "member", member).await.unwrap();
                before = Some(group);
            }
            os.shutdown().await
        };
        kernel.spawn("main", main).expect("there is room");
        kernel.run().expect("a shutdown ends well");
        assert_eq!(count.get(), links());
    });
}

/// What holds the last handle of the next link, and counts its own end.
struct Link {
    _next: Option<Box<dyn Any>>,
    _counted: Counted,
}

impl Link {
    fn to(next: Option<impl Any>, count: &Count) -> Self {
        Self {
            _next: next.map(|next| Box::new(next) as Box<dyn Any>),
            _counted: Counted(Rc::clone(count)),
        }
    }
}

#[test]
fn queues_within_queues_are_dropped() {
    on_a_small_stack(|| {
        console(async |os| {
            let count = Count::default();
            let mut inner: Option<Queue<Link>> = None;
            for _ in 0..links() {
                let queue = Queue::unbounded(os).await;
                let link = Link::to(inner, &count);
                assert!(queue.put(os, link).await.is_ok());
                inner = Some(queue);
            }
            assert_eq!(count.get(), 0);
            drop(inner);
            assert_eq!(count.get(), links());
        });
    });
}

#[test]
fn queues_of_groups_of_tasks_with_queues_are_dropped() {
    on_a_small_stack(|| {
        console(async |os| {
            let count = Count::default();
            let outermost = Queue::unbounded(os).await;
            let mut inner = outermost.clone();
            for _ in 0..links() {
                let mut group = Group::new(os).await;
                let counted = Counted(Rc::clone(&count));
                let queue = Queue::unbounded(os).await;
                let owned = (queue.clone(), counted);
                let member = async move |os: &mut Os| {
                    let _owned = owned;
                    os.sleep(Duration::MAX).await;
                };
                group.spawn(os, "member", member).await?;
                assert!(inner.put(os, group).await.is_ok());
                inner = queue;
            }
            drop(inner);
            assert_eq!(count.get(), 0);
            drop(outermost);
            os.yield_now().await;
            assert_eq!(count.get(), links());
            assert_eq!(os.tasks().await.len(), 1);
            Ok::<(), Errno>(())
        });
    });
}

#[test]
fn what_is_left_of_a_chain_is_dropped_after_a_panic() {
    console(async |os| {
        let count = Count::default();
        let theirs = Rc::clone(&count);
        let child = async move |os: &mut Os| {
            let (outer, inner) = (Queue::unbounded(os).await, Queue::unbounded(os).await);
            let link = Link::to(None::<PanicOnDrop>, &theirs);
            assert!(inner.put(os, link).await.is_ok());
            let link = Link::to(Some((inner, PanicOnDrop)), &theirs);
            assert!(outer.put(os, link).await.is_ok());
        };
        let child = os.spawn("child", child).await?;
        let exit = os.wait(child).await?;
        assert_eq!(exit, Exit::Faulted("the destructor panics".into()));
        assert_eq!(count.get(), 2);
        Ok::<(), Errno>(())
    });
}

struct Own(
    #[expect(dead_code, reason = "it is held")] Queue<Own>,
    PanicOnDrop,
);

#[test]
fn messages_that_panic_when_dropped_do_not_end_the_process() {
    let (mut kernel, _) = logged(sim());
    run_main(&mut kernel, async |os: &mut Os| {
        let child = async move |os: &mut Os| {
            let (outer, inner) = (Queue::unbounded(os).await, Queue::unbounded(os).await);
            for _ in 0..3 {
                assert!(inner.put(os, PanicOnDrop).await.is_ok());
            }
            assert!(outer.put(os, (PanicOnDrop, inner.clone())).await.is_ok());
            assert!(outer.put(os, (PanicOnDrop, inner)).await.is_ok());
        };
        let child = os.spawn("child", child).await?;
        let exit = os.wait(child).await?;
        assert_eq!(exit, Exit::Faulted("the destructor panics".into()));
        // These hold their own queue, and are dropped with the kernel.
        let own = Queue::unbounded(os).await;
        for _ in 0..3 {
            assert!(own.put(os, Own(own.clone(), PanicOnDrop)).await.is_ok());
        }
        Ok::<(), Errno>(())
    });
}

#[test]
fn promises_of_promises_are_dropped() {
    #[derive(Clone)]
    struct Stream(#[expect(dead_code, reason = "it is dropped")] Option<Promise<Stream>>);
    on_a_small_stack(|| {
        console(async |os| {
            let (mut setters, mut promises) = (None::<Setter<Stream>>, None);
            for _ in 0..links() {
                let (setter, promise) = Promise::new(os).await;
                assert!(setter.set(os, Stream(promises)).await.is_ok());
                (setters, promises) = (Some(setter), Some(promise));
            }
            drop(setters);
            drop(promises);
        });
    });
}

#[test]
fn mutexes_within_mutexes_are_dropped() {
    on_a_small_stack(|| {
        console(async |os| {
            let count = Count::default();
            let mut inner: Option<Mutex<Link>> = None;
            for _ in 0..links() {
                let link = Link::to(inner, &count);
                inner = Some(Mutex::new(os, link).await);
            }
            drop(inner);
            assert_eq!(count.get(), links());
        });
    });
}

/// Crashes a host when it is dropped.
struct Crash(SimNet, String);

impl Drop for Crash {
    fn drop(&mut self) {
        self.0.crash(&self.1).expect("there is such a host");
    }
}

#[test]
fn a_crash_goes_from_host_to_host() {
    on_a_small_stack(|| {
        let hosts = links() / 10;
        let mut kernel = Kernel::simulated(1);
        let net = kernel.net();
        for host in 0..hosts {
            let crash = Crash(net.clone(), format!("host{}", host + 1));
            let program = async move |os: &mut Os| {
                let _crash = crash;
                os.sleep(Duration::MAX).await;
            };
            kernel
                .spawn_on(format!("host{host}"), "task", program)
                .unwrap();
        }
        net.host(format!("host{hosts}")).unwrap();
        let first = async move |os: &mut Os| {
            os.yield_now().await;
            net.crash("host0").unwrap();
            os.yield_now().await;
            assert_eq!(os.tasks().await.len(), 1, "the others have crashed");
        };
        kernel.spawn("first", first).unwrap();
        kernel.run().unwrap();
    });
}
