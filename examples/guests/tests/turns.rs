//! The turns of a guest's task that do not wait for its waker.

use std::{future::poll_fn, io, task::Poll};

use futures::{AsyncReadExt, AsyncWriteExt};
use trapline::{Foreign, Kernel, Os};

/// The task has a look at its devices after 64 polls in a row. It is not parked then, and no message comes.
#[test]
fn a_guest_that_wakes_itself_many_times_ends() {
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("main", async |os: &mut Os| {
            let mut left = 1000;
            let spin = poll_fn(|cx| match left {
                0 => Poll::Ready(()),
                _ => {
                    left -= 1;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            });
            os.run_future(async |_: &Foreign| spin.await).await;
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
}

/// The guest is over, and its task waits for room only.
#[test]
fn a_guest_that_ends_before_its_bytes_are_sent_sends_them() {
    const LEN: usize = 60_000;
    let mut kernel = Kernel::simulated(1);
    kernel
        .spawn("server", async |os: &mut Os| {
            let listener = os.listen(([127, 0, 0, 1], 80).into()).await?;
            let (stream, _) = listener.accept(os).await?;
            os.sleep(std::time::Duration::from_secs(1)).await;
            os.run_future(async |foreign: &Foreign| {
                let mut all = Vec::new();
                foreign.stream(stream).read_to_end(&mut all).await?;
                assert_eq!(all.len(), 12 * LEN);
                io::Result::Ok(())
            })
            .await
        })
        .unwrap();
    kernel
        .spawn("client", async |os: &mut Os| {
            let stream = os.connect(("127.0.0.1", 80)).await?;
            os.run_future(async |foreign: &Foreign| {
                let mut stream = foreign.stream(stream);
                for _ in 0..12 {
                    stream.write_all(&[7; LEN]).await?;
                }
                io::Result::Ok(())
            })
            .await
        })
        .unwrap();
    kernel.run().unwrap().check().unwrap();
    kernel.audit_all();
}
