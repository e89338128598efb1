use std::{cell::RefCell, rc::Rc, time::Duration};
use trapline::{Cancelled, Elapsed, Error, Kernel, Os, Queue, Scope, Shared};

const S: fn(u64) -> Duration = Duration::from_secs;

fn done(kernel: &mut Kernel) {
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
}

#[test]
fn s74_cancel_drops_the_body_and_the_task_goes_on() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let scope = Scope::new();
            let theirs = scope.clone();
            let child = os
                .spawn_child("worker", async move |os: &mut Os| {
                    let result = theirs.run(os, async |os| os.sleep(S(100)).await).await;
                    os.sleep(S(1)).await; // cleanup by traps
                    (result, os.now().await)
                })
                .await
                .unwrap();
            os.sleep(S(1)).await;
            scope.cancel(os).await;
            let mut child = child;
            assert_eq!(child.wait(os).await, Ok((Err(Cancelled), S(2))));
            // one that is cancelled before it begins is cut at its first call that blocks
            assert_eq!(
                scope.run(os, async |os| os.sleep(S(9)).await).await,
                Err(Cancelled)
            );
            assert_eq!(os.now().await, S(2));
            // a task cancels itself
            let mine = Scope::new();
            let also = mine.clone();
            assert_eq!(
                mine.run(os, async move |os| {
                    also.cancel(os).await;
                    os.sleep(S(9)).await
                })
                .await,
                Err(Cancelled)
            );
            // the outermost scope of another task
            let other = os
                .spawn_child("other", async |os: &mut Os| {
                    let (outer, inner) = (Scope::new(), Scope::new());
                    outer
                        .run(os, async |os| {
                            inner.run(os, async |os| os.sleep(S(50)).await).await
                        })
                        .await
                })
                .await
                .unwrap();
            os.sleep(S(1)).await;
            assert!(os.cancel(other.tid()).await);
            let mut other = other;
            assert_eq!(other.wait(os).await, Ok(Err(Cancelled)));
            let none = os
                .spawn("none", async |os: &mut Os| os.sleep(S(1)).await)
                .await
                .unwrap();
            os.yield_now().await;
            assert!(!os.cancel(none).await);
        })
        .unwrap();
    done(&mut kernel);
}

#[test]
fn s74_a_shield_holds_timeouts_and_cancels_back() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let seen = Rc::new(RefCell::new(Vec::new()));
            let log = Rc::clone(&seen);
            let cut = os
                .timeout(S(1), async move |os| {
                    os.shield(async |os| {
                        // a timeout within the shield works
                        assert_eq!(
                            os.timeout(S(2), async |os| os.sleep(S(50)).await).await,
                            Err(Elapsed)
                        );
                        os.sleep(S(3)).await;
                        log.borrow_mut().push(os.now().await);
                    })
                    .await;
                    os.sleep(S(100)).await;
                    log.borrow_mut().push(os.now().await);
                })
                .await;
            assert_eq!(cut, Err(Elapsed));
            assert_eq!((seen.take(), os.now().await), (vec![S(5)], S(5)));
            // two around it: the outermost answers
            let cut = os
                .timeout(S(2), async |os| {
                    os.timeout(S(1), async |os| {
                        os.shield(async |os| os.sleep(S(5)).await).await;
                        os.sleep(S(5)).await
                    })
                    .await
                })
                .await;
            assert_eq!((cut, os.now().await), (Err(Elapsed), S(10)));
            // only the inner
            let cut = os
                .timeout(S(20), async |os| {
                    os.timeout(S(1), async |os| {
                        os.shield(async |os| os.sleep(S(5)).await).await;
                        os.sleep(S(5)).await
                    })
                    .await
                })
                .await;
            assert_eq!((cut, os.now().await), (Ok(Err(Elapsed)), S(15)));
            // a body that ends with its shield answers Ok
            let ok = os
                .timeout(S(1), async |os| {
                    os.shield(async |os| os.sleep(S(5)).await).await
                })
                .await;
            assert_eq!((ok, os.now().await), (Ok(()), S(20)));
            // a shield in a shield
            let cut = os
                .timeout(S(1), async |os| {
                    os.shield(async |os| {
                        os.shield(async |os| os.sleep(S(2)).await).await;
                        os.sleep(S(2)).await
                    })
                    .await;
                    os.sleep(S(2)).await
                })
                .await;
            assert_eq!((cut, os.now().await), (Err(Elapsed), S(24)));
            // entered when the timeout is due already
            let cut = os
                .timeout(Duration::ZERO, async |os| {
                    os.shield(async |os| os.sleep(S(2)).await).await;
                    os.sleep(S(2)).await
                })
                .await;
            assert_eq!((cut, os.now().await), (Err(Elapsed), S(26)));
            // a kill does not wait
            let child = os
                .spawn("child", async |os: &mut Os| {
                    os.shield(async |os| os.sleep(S(100)).await).await
                })
                .await
                .unwrap();
            os.yield_now().await;
            assert!(os.kill(child).await);
            assert_eq!(os.now().await, S(26));
        })
        .unwrap();
    done(&mut kernel);
}

#[test]
fn s74_search_cancel_loses_no_message() {
    let all = trapline::check(|kernel: &mut Kernel| -> Result<(), Error> {
        let (got, left) = (Shared::new(0u32), Shared::new(0u32));
        let (g, l) = (got.clone(), left.clone());
        kernel.spawn("main", async move |os: &mut Os| {
            let q = Queue::<u32>::bounded(os, 4).await;
            let scope = Scope::new();
            let (s1, q1, g1) = (scope.clone(), q.clone(), g.clone());
            let worker = os
                .spawn("worker", async move |os: &mut Os| {
                    let _ = s1
                        .run(os, async |os| {
                            if let Ok(n) = q1.get(os).await {
                                g1.set(n);
                            }
                        })
                        .await;
                })
                .await?;
            let q2 = q.clone();
            let putter = os
                .spawn("putter", async move |os: &mut Os| {
                    q2.put(os, 1).await.unwrap()
                })
                .await?;
            scope.cancel(os).await;
            let _ = (os.wait(worker).await, os.wait(putter).await);
            while let Ok(n) = q.try_get(os).await {
                l.update(|l| *l += n);
            }
            Ok::<(), trapline::Errno>(())
        })?;
        kernel.run()?.check()?;
        assert_eq!(got.get() + left.get(), 1);
        kernel.outcome(format!("got {} left {}", got.get(), left.get()));
        Ok(())
    })
    .exhaustive()
    .explore();
    println!("{all:?}");
    assert!(all.failure.is_none() && all.complete);
    assert_eq!(all.outcomes.len(), 2);
}
