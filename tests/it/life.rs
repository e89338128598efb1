//! The memory of a program, which its body and its future share: what each stage owns is dropped once. Small
//! enough for Miri.

use std::{
    cell::{Cell, RefCell},
    fmt,
    future::{Future, pending, poll_fn, ready},
    hint::black_box,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use trapline::{Exit, Kernel, Os, Queue, SimWorld, Tid, sync::Group};

/// Counts what lives.
#[derive(Default)]
struct Census(Rc<Cell<i64>>);

impl Census {
    fn one(&self) -> Counted {
        self.0.set(self.0.get() + 1);
        Counted(Rc::clone(&self.0), Box::new(7))
    }

    #[track_caller]
    fn end(self) {
        assert_eq!(self.0.get(), 0);
    }
}

struct Counted(Rc<Cell<i64>>, Box<u64>);

impl Counted {
    fn look(&self) {
        assert_eq!(*self.1, 7);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.look();
        self.0.set(self.0.get() - 1);
    }
}

/// Its destructor panics.
struct Bad(#[expect(dead_code)] Counted);

impl Drop for Bad {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a destructor panics");
        }
    }
}

/// Its destructor begins a call.
struct Calls<'a>(&'a mut Os, #[expect(dead_code)] Counted);

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        writeln!(self.0, "bye");
        let mut call = Box::pin(self.0.get_tid());
        assert!(poll(call.as_mut()).is_pending());
    }
}

#[derive(Clone, Copy)]
#[repr(align(256))]
struct Wide([u8; 256]);

impl Wide {
    fn check(&self) {
        assert_eq!(std::ptr::from_ref(self) as usize % 256, 0);
        assert!(self.0.iter().all(|byte| *byte == 3));
    }
}

fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn kernel() -> Kernel {
    Kernel::simulated(1)
}

/// The forms that a program has.
fn forms(kernel: &mut Kernel, census: &Census) {
    async fn named(os: &mut Os) {
        os.yield_now().await;
    }
    type Boxed<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;
    fn boxed(os: &mut Os) -> Boxed<'_> {
        Box::pin(async {
            os.yield_now().await;
            Err("boxed fails".to_owned())
        })
    }
    // No size, and a pointer.
    kernel.spawn("named", named).unwrap();
    kernel.spawn("boxed", boxed).unwrap();
    let pointer: fn(&mut Os) -> Boxed<'_> = boxed;
    kernel.spawn("pointer", pointer).unwrap();
    kernel.spawn("empty", async |_: &mut Os| {}).unwrap();
    kernel.spawn("ready", |_: &mut Os| ready(())).unwrap();
    kernel.spawn("pends", |_: &mut Os| pending::<()>()).unwrap();
    let own = census.one();
    let never = async move |os: &mut Os| loop {
        os.sleep(Duration::from_secs(1)).await;
        own.look();
        if os.now().await > Duration::from_secs(3) {
            panic!("enough");
        }
    };
    kernel.spawn("never", never).unwrap();
    // The body is wider than the future.
    let (own, wide) = (census.one(), Wide([3; 256]));
    let body = move |_: &mut Os| {
        black_box(&wide).check();
        drop(own);
        ready(())
    };
    kernel.spawn("wide body", body).unwrap();
    let (own, wide) = (census.one(), Wide([3; 256]));
    let body = move |_: &mut Os| -> std::future::Ready<()> {
        own.look();
        black_box(&wide).check();
        panic!("a wide body panics")
    };
    kernel.spawn("wide panics", body).unwrap();
    // The future is wider than the body.
    let own = census.one();
    let body = async move |os: &mut Os| {
        let wide = Wide([3; 256]);
        for _ in 0..3 {
            os.yield_now().await;
            black_box(&wide).check();
            own.look();
        }
    };
    kernel.spawn("wide future", body).unwrap();
    let (own, wide) = (census.one(), Wide([3; 256]));
    let body = async move |os: &mut Os| {
        os.sleep(Duration::from_secs(2)).await;
        black_box(&wide).check();
        own.look();
    };
    kernel.spawn("both wide", body).unwrap();
    let many = [(); 40].map(|()| census.one());
    let body = async move |os: &mut Os| {
        os.sleep(Duration::from_secs(2)).await;
        many.iter().for_each(Counted::look);
    };
    kernel.spawn("many", body).unwrap();
}

#[test]
fn programs_of_all_forms_run_to_their_ends() {
    let census = Census::default();
    let mut kernel = kernel();
    forms(&mut kernel, &census);
    kernel.run().unwrap();
    drop(kernel);
    census.end();
}

#[test]
fn a_kernel_is_dropped_after_each_number_of_turns() {
    for ticks in [0, 1, 3, 6, 9, 12, 15, 30] {
        let census = Census::default();
        let mut kernel = Kernel::builder()
            .world(SimWorld::new(1))
            .max_ticks(ticks)
            .build()
            .unwrap();
        forms(&mut kernel, &census);
        drop(kernel.run());
        drop(kernel);
        census.end();
    }
}

#[test]
fn a_kernel_is_dropped_while_a_panic_unwinds() {
    let census = Census::default();
    let all = catch_unwind(AssertUnwindSafe(|| {
        let mut kernel = kernel();
        forms(&mut kernel, &census);
        let own = census.one();
        let body = async move |os: &mut Os| {
            let _calls = Calls(os, own);
            pending::<()>().await;
        };
        kernel.spawn("calls", body).unwrap();
        let own = census.one();
        let body = async move |os: &mut Os| {
            let calls = Calls(os, own);
            calls.0.sleep(Duration::from_secs(9)).await;
        };
        kernel.spawn("sleeps", body).unwrap();
        let (own, bad) = (census.one(), Bad(census.one()));
        let body = async move |os: &mut Os| {
            let _owned = (own, bad);
            os.sleep(Duration::from_secs(9)).await;
        };
        kernel.spawn("bad", body).unwrap();
        let stop = async |os: &mut Os| {
            os.yield_now().await;
            os.kill(Tid::from(1)).await;
        };
        kernel.spawn("stop", stop).unwrap();
        drop(kernel.run());
        panic!("the host panics");
    }));
    assert!(all.is_err());
    census.end();
}

#[test]
fn tasks_are_killed_in_each_stage() {
    let census = Census::default();
    let mut kernel = kernel();
    let owned: Vec<_> = (0..8).map(|_| census.one()).collect();
    let body = async move |os: &mut Os| {
        let mut owned = owned.into_iter();
        let mut own = || owned.next().unwrap();
        // Before its first turn.
        let one = own();
        let victim = os
            .spawn("unbegun", async move |_: &mut Os| one.look())
            .await
            .unwrap();
        os.kill(victim).await;
        let one = Bad(own());
        let victim = os
            .spawn("unbegun, bad", async move |_: &mut Os| drop(one))
            .await
            .unwrap();
        os.kill(victim).await;
        // After it.
        let (one, bad) = (own(), Bad(own()));
        let late = async move |os: &mut Os| {
            let _owned = (one, bad);
            os.sleep(Duration::from_secs(1)).await;
        };
        let victim = os.spawn("late, bad", late).await.unwrap();
        os.yield_now().await;
        os.kill(victim).await;
        // One with a destructor that uses its `Os`.
        let one = own();
        let calls = async move |os: &mut Os| {
            let calls = Calls(os, one);
            calls.0.sleep(Duration::from_secs(1)).await;
        };
        let victim = os.spawn("calls", calls).await.unwrap();
        os.yield_now().await;
        os.kill(victim).await;
        // A program that is never admitted.
        let one = own();
        drop(os.spawn("unmade", async move |_: &mut Os| one.look()));
        // One that kills itself, and one that ends with what it owns.
        let one = own();
        let own_end = async move |os: &mut Os| {
            let calls = Calls(os, one);
            let me = calls.0.get_tid().await;
            calls.0.kill(me).await;
        };
        os.spawn("own end", own_end).await.unwrap();
        os.sleep(Duration::from_secs(2)).await;
    };
    kernel.spawn("main", body).unwrap();
    kernel.run().unwrap();
    drop(kernel);
    census.end();
}

/// Its text panics.
struct Unprintable(Counted);

impl fmt::Display for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.look();
        panic!("no text")
    }
}

#[test]
fn panics_in_each_stage_drop_all_once() {
    let census = Census::default();
    let mut kernel = kernel();
    let one = census.one();
    let body = move |_: &mut Os| {
        let _one = one;
        if black_box(true) {
            panic!("in the body");
        }
        ready(())
    };
    kernel.spawn("body", body).unwrap();
    let one = Bad(census.one());
    let body = move |_: &mut Os| {
        drop(one);
        ready(())
    };
    kernel.spawn("bad body", body).unwrap();
    let one = census.one();
    let body = async move |os: &mut Os| {
        let _calls = Calls(os, one);
        panic!("at the first poll");
    };
    kernel.spawn("first", body).unwrap();
    let one = census.one();
    let body = async move |os: &mut Os| {
        let calls = Calls(os, one);
        calls.0.yield_now().await;
        panic!("at the second poll");
    };
    kernel.spawn("second", body).unwrap();
    let one = Bad(census.one());
    let body = async move |os: &mut Os| {
        let _bad = one;
        os.yield_now().await;
    };
    kernel.spawn("bad end", body).unwrap();
    let one = Unprintable(census.one());
    let body = async move |os: &mut Os| -> Result<(), Unprintable> {
        os.yield_now().await;
        Err(one)
    };
    kernel.spawn("unprintable", body).unwrap();
    let one = census.one();
    let body = async move |os: &mut Os| {
        let mut call = Box::pin(async {
            os.yield_now().await;
            one.look();
            panic!("contained");
        });
        let caught = poll_fn(|context| {
            let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context)));
            match polled {
                Ok(polled) => polled.map(|()| false),
                Err(_) => Poll::Ready(true),
            }
        });
        assert!(caught.await);
        drop(call);
        os.yield_now().await;
        one.look();
    };
    let contained = kernel.spawn("contained", body).unwrap();
    // Two traps in one turn, and none.
    let one = census.one();
    let body = async move |os: &mut Os| {
        let mut call = Box::pin(os.yield_now());
        assert!(poll(call.as_mut()).is_pending());
        drop(call);
        os.yield_now().await;
        one.look();
    };
    kernel.spawn("two", body).unwrap();
    let one = census.one();
    let body = async move |os: &mut Os| {
        let _calls = Calls(os, one);
        pending::<()>().await;
    };
    kernel.spawn("none", body).unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&contained], Exit::Done);
    drop(kernel);
    census.end();
}

/// A future by hand. It is not dropped by its last poll, as the variables of an async block are.
struct ByHand<'a>(
    #[expect(dead_code)] Calls<'a>,
    #[expect(dead_code)] Option<Bad>,
);

impl Future for ByHand<'_> {
    type Output = Result<(), String>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err("it fails".to_owned()))
    }
}

#[test]
fn a_future_is_dropped_in_its_last_turn() {
    fn tied<F: FnOnce(&mut Os) -> ByHand<'_>>(body: F) -> F {
        body
    }
    let census = Census::default();
    let mut kernel = kernel();
    let one = census.one();
    let fails = tied(|os| ByHand(Calls(os, one), None));
    let fails = kernel.spawn("fails", fails).unwrap();
    let (one, other) = (census.one(), Bad(census.one()));
    let bad = tied(|os| ByHand(Calls(os, one), Some(other)));
    let bad = kernel.spawn("bad", bad).unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&fails].to_string(), "failed: it fails");
    let faulted = Exit::Faulted("a destructor panics".to_owned());
    assert_eq!(report.exits()[&bad], faulted);
    drop(kernel);
    census.end();
}

#[test]
fn a_handle_that_is_lent_and_given_back_stays_good() {
    let census = Census::default();
    let mut outer = kernel();
    let one = census.one();
    let body = async move |os: &mut Os| {
        os.yield_now().await;
        let lent: *mut Os = os;
        let mut inner = kernel();
        let swaps = async move |os: &mut Os| {
            #[expect(unsafe_code, reason = "safe crates lend a reference in this way")]
            // SAFETY: the lender is in a run of this kernel.
            let lent = unsafe { &mut *lent };
            mem::swap(os, lent);
            let mut call = Box::pin(lent.yield_now());
            assert!(poll(call.as_mut()).is_pending());
            poll_fn(|context| call.as_mut().poll(context)).await;
            drop(call);
            mem::swap(os, lent);
            os.yield_now().await;
        };
        inner.spawn("swaps", swaps).unwrap();
        inner.run().unwrap();
        os.yield_now().await;
        one.look();
    };
    let main = outer.spawn("main", body).unwrap();
    assert_eq!(outer.run().unwrap().exits()[&main], Exit::Done);
    drop(outer);
    census.end();
}

#[test]
fn a_program_owns_a_kernel_with_programs() {
    let census = Rc::new(Census::default());
    let mut outer = kernel();
    let known = Rc::clone(&census);
    let body = async move |os: &mut Os| {
        let mut inner = kernel();
        forms(&mut inner, &known);
        let shared = Rc::new(RefCell::new(inner));
        let held = Rc::clone(&shared);
        let one = known.one();
        let keeps = async move |os: &mut Os| {
            one.look();
            os.yield_now().await;
            let _kept = held;
            os.sleep(Duration::from_secs(1)).await;
        };
        os.spawn("keeps", keeps).await.unwrap();
        drop(shared.borrow_mut().run());
        let mut second = kernel();
        forms(&mut second, &known);
        os.yield_now().await;
        drop(shared);
        os.sleep(Duration::from_secs(5)).await;
        panic!("with a kernel that has not run");
    };
    outer.spawn("main", body).unwrap();
    outer.run().unwrap();
    drop(outer);
    Rc::into_inner(census).unwrap().end();
}

#[test]
fn futures_within_a_program_come_and_go() {
    let census = Census::default();
    let mut kernel = kernel();
    let owned: Vec<_> = (0..4).map(|_| census.one()).collect();
    let body = async move |os: &mut Os| {
        let mut owned = owned.into_iter();
        let queue = Queue::<Counted>::unbounded(os).await;
        let cut = os
            .timeout(Duration::from_millis(1), async |os: &mut Os| {
                queue.get(os).await
            })
            .await;
        assert!(cut.is_err());
        queue.put(os, owned.next().unwrap()).await.ok().unwrap();
        queue.get(os).await.unwrap().look();
        let one = owned.next().unwrap();
        let mut child = os
            .spawn_child("child", async move |os: &mut Os| {
                os.yield_now().await;
                one
            })
            .await
            .unwrap();
        child.wait(os).await.unwrap().look();
        let mut group = Group::new(os).await;
        let one = owned.next().unwrap();
        let member = async move |os: &mut Os| {
            let calls = Calls(os, one);
            calls.0.sleep(Duration::from_secs(1)).await;
        };
        group.spawn(os, "member", member).await.unwrap();
        os.yield_now().await;
        drop(group);
        // A call that is begun and left, with what it borrows.
        let mut call = Box::pin(os.sleep(Duration::from_secs(1)));
        poll_fn(|context| {
            assert!(call.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        poll_fn(|context| call.as_mut().poll(context)).await;
        drop(call);
        os.yield_now().await;
    };
    let main = kernel.spawn("main", body).unwrap();
    let report = kernel.run().unwrap();
    assert_eq!(report.exits()[&main], Exit::Done, "{report:?}");
    drop(kernel);
    census.end();
}

#[test]
fn a_kernel_is_reset_and_used_again() {
    let census = Census::default();
    let mut kernel = kernel();
    for _ in 0..3 {
        forms(&mut kernel, &census);
        drop(kernel.run());
        let one = census.one();
        kernel
            .spawn("unbegun", async move |_: &mut Os| one.look())
            .unwrap();
        kernel.reset(2).unwrap();
        assert_eq!(census.0.get(), 0);
    }
    drop(kernel);
    census.end();
}
